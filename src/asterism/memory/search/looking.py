"""One search under way: which texts those present may know of, and how they are ranked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from asterism.memory.search import ranking
from asterism.memory.search.extras import Extra
from asterism.memory.search.hits import Reader, Spot
from asterism.memory.search.index import Loaded, encoded
from asterism.memory.search.places import places, terms_like
from asterism.memory.search.question import Question
from asterism.memory.search.signals import Nearness, Signals, signals
from asterism.memory.search.speakers import Speakers
from asterism.memory.search.texts import WIDTH, Flag, Texts, chosen
from asterism.memory.search.view import View, Views
from asterism.memory.vectors import read as read_tokens
from asterism.store.database import Connection
from asterism.store.shelves import JOURNAL
from asterism.types.people import Audience, Participants
from asterism.types.search import Query

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asterism.memory.search.view import Floats

ALIKE, ALIKE_ENCODED = 0.3, 0.15
"""The cosines from which a text without a common word counts as found."""
DATED = 0.5
"""How near a text must be to a time that is asked about to be found by it."""
_SPARE, _SPARE_QUOTED = 50, 400
"""How many more than are asked for are put in order: some may not be there any more, and texts with
the very words of a quote go before."""
_MOST_LOOKED_UP = 64
"""How many terms of a question are looked up; a longer one has said by then what it is about."""
_MOST_FORMS = 50
"""How many terms a beginning of a word may stand for."""
_MOST_LOOKED_AT, _CHUNK = 20_000, 400
"""How many terms are looked at for them, in all and at a time, where not all may be heard."""
_FEW = 10
"""Of how many texts one may be without a vector before that is worth a word."""
_ROWS = 1_024
"""Rows of vectors that are compared in one go, so that they stay in the processor's cache."""

views = Views()
"""The views that this process keeps in memory."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A question's vector, and the encoder that made it."""

    encoder: str
    vector: NDArray[np.float32]


@dataclass(slots=True)
class Held:
    """All that one search looks at."""

    loaded: list[Loaded]
    agent_of: list[str]
    extras: list[Extra]
    texts: Texts
    starts: list[int]
    """The row at which each shelf begins; the extras come last."""
    extra_terms: dict[str, tuple[list[int], list[int]]]

    def key(self, rows: NDArray[Any] | None) -> Hashable:
        """Return what is another whenever other texts are held, or other rows of them are seen."""
        return (
            tuple((*one.inner.identity, len(one.texts)) for one in self.loaded),
            tuple((one.id, one.text, one.at) for one in self.extras),
            None if rows is None else rows.tobytes(),
        )

    def told_in_a_row(self) -> NDArray[np.bool_] | None:
        """Return which rows say something together with those before and after them; None: all.

        Messages and parts of documents do; what an agent keeps stands for itself.
        """
        import numpy as np

        if not self.extras and all(one.kind == JOURNAL for one in self.loaded):
            return None
        told = np.zeros(len(self.texts), dtype=np.bool_)
        ends = [*self.starts[1:], len(self.texts)]
        for shelf, agent_id, first, end in zip(
            self.loaded, self.agent_of, self.starts, ends, strict=False
        ):
            told[first:end] = shelf.kind == JOURNAL or shelf.owner_id != agent_id
        return told

    def spot(self, row: int) -> Spot:
        """Return where a row is from."""
        at = bisect_right(self.starts, row) - 1
        number = int(self.texts.numbers[row])
        speaker = self.texts.speakers[int(self.texts.speaker[row])]
        if at >= len(self.loaded):
            return Spot("", "", "", number, speaker)
        shelf = self.loaded[at]
        return Spot(shelf.kind, shelf.owner_id, self.agent_of[at], number, speaker)


@dataclass(slots=True)
class Ranked:
    """What was found, in order."""

    rows: NDArray[Any]
    """The rows of what was found, the best first."""
    scores: Floats
    """By row."""
    why: Why | None
    total: int
    notes: tuple[str, ...] = ()
    unordered: NDArray[Any] | None = None
    """All that was found, if `rows` may have the best of it only."""


@dataclass(frozen=True, slots=True)
class Why:
    """What a hit's reasons are made of, by row."""

    covered: Floats
    static: Floats
    encoded: Floats | None
    dated: Floats | None
    """None: no time is asked about."""
    spoken: Floats | None
    """None: nobody's words are asked for."""


@dataclass(slots=True)
class Looking:
    """One search under way."""

    tx: Connection
    query: Query
    participants: Participants
    held: Held
    heard: NDArray[np.bool_] | None
    """Which rows those present may know of; None: all."""
    speakers: Speakers
    question: Question
    reader: Reader
    told: tuple[str, ...] = ()
    """What is to be said of the search, whatever it finds."""

    async def table(self, asked: Encoded | None) -> dict[str, Floats]:
        """Return all signals of all texts: what weights are fitted on."""
        found = await self._worded(await self._forms())
        told = self._told(found, await self._nearness(asked), None)
        return {name: told.view.unsorted(values) for name, values in told.columns().items()}

    async def rank(self, asked: Encoded | None) -> Ranked:
        """Return the rows of all that is found, the best first."""
        import numpy as np

        heard = self.heard
        allowed = self._allowed()
        if heard is not None:
            allowed &= heard
        if not self.question.terms and not self.question.prefixes and not self.question.phrases:
            return self._newest(allowed)
        forms = await self._forms()
        found = await self._worded(forms)
        near = await self._nearness(asked)
        rows = np.arange(len(self.held.texts)) if heard is None else np.flatnonzero(heard)
        if not len(rows):
            return Ranked(rows, np.zeros(0, dtype=np.float32), None, 0, self.told)
        scores, why = self._scored(found, near, None if heard is None else rows)
        wanted = np.flatnonzero(self._found(why, allowed))
        spare = _SPARE_QUOTED if self.question.phrases else _SPARE
        most = spare + self.query.offset + self.query.limit
        best = self.ordered(wanted, scores, len(wanted) if self.query.tags else most)
        return Ranked(best, scores, why, len(wanted), self._notes(near), wanted)

    def ordered(self, rows: NDArray[Any], scores: Floats, most: int) -> NDArray[Any]:
        """Return rows, the best first: all of them, or of many at least so many of the best."""
        import numpy as np

        if len(rows) > 2 * most:
            of_rows = scores[rows]
            # All that are as good as the last, or another page would have others of them.
            least = np.partition(of_rows, len(rows) - most)[len(rows) - most]
            rows = rows[of_rows >= least]
        # Equal scores come newest first, then in the order of the texts.
        return rows[np.lexsort((rows, -self.held.texts.at[rows], -scores[rows]))]

    def _scored(
        self, found: dict[str, Any], near: Nearness, rows: NDArray[Any] | None
    ) -> tuple[Floats, Why]:
        """Return the score of each row, and why; what nobody present may hear has no part in it."""
        import numpy as np

        told = self._told(found, near, rows)
        view, said = told.view, told.said
        count = len(self.held.texts)

        def put(values: Floats | None) -> Floats | None:
            """Return values in the order of all texts, zero for those that were left out."""
            if values is None:
                return None
            back = view.unsorted(values)
            if rows is None:
                return back
            made = np.zeros(count, dtype=np.float32)
            made[rows] = back
            return made

        def put_all(values: Floats) -> Floats:
            made = put(said.spread_out(values, len(view)))
            assert made is not None
            return made

        told_in_a_row = self.held.told_in_a_row()
        if told_in_a_row is None:
            covered = put_all(said.window_covered)
        else:
            covered = np.where(told_in_a_row, put_all(said.window_covered), put_all(said.covered))
        why = Why(
            covered=covered,
            static=near.static,
            encoded=near.encoded,
            dated=put(told.others["date" if self.question.dated else "date_relative"]),
            spoken=put(told.others["speaker"]),
        )
        scores = put(ranking.score(told, encoded=near.encoded is not None))
        assert scores is not None
        return scores, why

    def _told(self, found: dict[str, Any], near: Nearness, rows: NDArray[Any] | None) -> Signals:
        """Return the signals of some rows, as if there were no others."""
        texts = self.held.texts
        if rows is not None:
            found = _moved(found, rows, len(texts))
            near = Nearness(
                near.static[rows],
                None if near.encoded is None else near.encoded[rows],
                None if near.has is None else near.has[rows],
            )
        view = views.get(self.held.key(rows), lambda: self._viewed(rows))
        ids = [self.speakers.ids.get(label, "") for label in texts.speakers]
        return signals(view, self.question, found, near, ids)

    def _viewed(self, rows: NDArray[Any] | None) -> View:
        import numpy as np

        texts, starts = self.held.texts, self.held.starts
        shelf = np.zeros(len(texts), dtype=np.int32)
        for number, start in enumerate(starts):
            shelf[start:] = number
        if rows is not None:
            texts, shelf = chosen(texts, rows), shelf[rows]
        return View(texts, shelf if len(starts) > 1 else None)

    # -- which rows ----------------------------------------------------------------------------

    def _allowed(self) -> NDArray[np.bool_]:
        """Return which rows the filters of the query leave."""
        import numpy as np

        query, texts = self.query, self.held.texts
        allowed = np.ones(len(texts), dtype=np.bool_)
        if query.since is not None:
            allowed &= texts.at >= query.since
        if query.last is not None:
            allowed &= texts.at <= query.last
        if query.role is not None:
            replies = (texts.flags & int(Flag.REPLY)) != 0
            allowed &= replies if query.role == "assistant" else ~replies
        if query.speaker is not None:
            labels = self.speakers.meant_by(query.speaker)
            said = [one in labels for one in texts.speakers]
            allowed &= np.array(said or [False], dtype=np.bool_)[texts.speaker]
        return allowed

    def _newest(self, allowed: NDArray[np.bool_]) -> Ranked:
        import numpy as np

        texts = self.held.texts
        kept = np.flatnonzero(allowed)
        order = np.lexsort((kept, -texts.numbers[kept], -texts.at[kept]))
        scores = np.zeros(len(texts), dtype=np.float32)
        return Ranked(kept[order], scores, None, len(kept), self.told)

    def _found(self, why: Why, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the rows that may be found have something to do with the question."""
        found = (why.covered > 0) | (why.static >= ALIKE)
        if why.encoded is not None:
            found |= why.encoded >= ALIKE_ENCODED
        if why.dated is not None:
            found |= why.dated >= DATED
        found &= allowed
        if why.spoken is not None and not found.any():
            # Nothing is like it: what was said by those who are asked about comes nearest.
            return allowed & (why.spoken > 0)
        return found

    # -- words ---------------------------------------------------------------------------------

    async def _forms(self) -> list[str]:
        """Return the terms that beginnings of words stand for."""
        most = _MOST_FORMS if self.heard is None else _MOST_LOOKED_AT
        found: dict[str, None] = {}
        for beginning in self.question.prefixes:
            there = await terms_like(self.tx, self.held.loaded, beginning, most)
            found.update(dict.fromkeys(there))
            said = [term for one in self.held.loaded for term in list(one.inner.said)]
            for term in (*said, *self.held.extra_terms):
                if len(found) < most and term.startswith(beginning):
                    found[term] = None
        if self.heard is None:
            return list(found)
        return await self._spoken(list(found), self.heard)

    async def _worded(self, forms: Sequence[str]) -> dict[str, Any]:
        """Return where the words of the question are."""
        import numpy as np

        terms = [*self.question.terms, *forms]
        names = [one for one in self.question.names if one not in terms]
        texts = self.held.texts
        if not names or all(texts.speakers):
            return await self._places(terms)
        found = await self._places(terms)
        silent = np.array([not one for one in texts.speakers])[texts.speaker]
        for term, (rows, often) in (await self._places(names)).items():
            # Whoever speaks is asked for by the name, and seldom says it.
            kept = silent[rows]
            if kept.any():
                found[term] = (rows[kept], often[kept])
        return found

    async def _spoken(self, terms: list[str], heard: NDArray[np.bool_]) -> list[str]:
        """Return terms that those present may have heard, so that others take no room."""
        spoken: list[str] = []
        for first in range(0, len(terms), _CHUNK):
            part = terms[first : first + _CHUNK]
            there = await self._places(part, _CHUNK)
            spoken += [one for one in part if one in there and bool(heard[there[one][0]].any())]
            if len(spoken) >= _MOST_FORMS:
                break
        return spoken[:_MOST_FORMS]

    async def _places(self, terms: Sequence[str], most: int = _MOST_LOOKED_UP) -> dict[str, Any]:
        import numpy as np

        terms = list(dict.fromkeys(terms))[:most]
        found = await places(self.tx, self.held.loaded, terms) if self.held.loaded else {}
        start = self.held.starts[-1]
        for term in terms:
            there = self.held.extra_terms.get(term)
            if there is None:
                continue
            rows = np.array(there[0], dtype=np.int32) + start
            often = np.array(there[1], dtype=np.float32)
            known = found.get(term)
            if known is not None:
                rows, often = np.concatenate([known[0], rows]), np.concatenate([known[1], often])
            found[term] = (rows, often)
        return found

    # -- meaning -------------------------------------------------------------------------------

    async def _nearness(self, asked: Encoded | None) -> Nearness:
        import numpy as np

        texts = self.held.texts
        read = read_tokens(self.question.bare)
        static = np.zeros(len(texts), dtype=np.float32)
        if read is not None and read.tokens:
            wanted = np.frombuffer(read.vector, dtype=np.int8)[:WIDTH].astype(np.float32)
            wanted /= max(float(np.linalg.norm(wanted)), 1e-9)
            static = _cosines(texts.vectors, wanted, texts.norm)
        if asked is None or not self.held.loaded:
            return Nearness(static)
        there = await encoded(self.tx, self.held.loaded, asked.encoder)
        if there is None or there[0].shape[1] != len(asked.vector):
            return Nearness(static)
        vectors, has, norms = there
        near = np.zeros(len(texts), dtype=np.float32)
        near[: len(vectors)] = _cosines(vectors, asked.vector, norms)
        whole = np.zeros(len(texts), dtype=np.bool_)
        whole[: len(has)] = has
        return Nearness(static, near, whole)

    def _notes(self, near: Nearness) -> tuple[str, ...]:
        notes = list(self.told)
        left_out = sum(one.left_out for one in self.held.loaded)
        if left_out:
            # How many there are is for those who may hear all of them.
            count = f"About {left_out:,}" if self.participants.owner_alone else "Some"
            notes.append(
                f"{count} older texts are not in the index yet and were not searched; "
                "they are put in in the background."
            )
        if near.has is not None:
            there = near.has[: sum(len(one.texts) for one in self.held.loaded)]
            if self.heard is not None:
                there = there[self.heard[: len(there)]]
            count, missing = len(there), int((~there).sum())
            if missing * _FEW > count:
                notes.append(
                    f"The vectors of {missing:,} of {count:,} texts are not made yet; these were "
                    "found by words and static vectors alone."
                )
        return tuple(notes)


def _cosines(vectors: NDArray[np.int8], wanted: Floats, norms: Floats) -> Floats:
    """Return the cosines of rows of signed bytes with a vector of length one."""
    import numpy as np

    made = np.empty(len(vectors), dtype=np.float32)
    room = np.empty((min(_ROWS, len(vectors)), len(wanted)), dtype=np.float32)
    for first in range(0, len(vectors), _ROWS):
        last = min(first + _ROWS, len(vectors))
        rows = room[: last - first]
        rows[:] = vectors[first:last]
        # Not by BLAS, which wakes other threads for it: on busy cores that takes milliseconds.
        np.einsum("ij,j->i", rows, wanted, out=made[first:last])
    made /= np.maximum(norms, 1e-9)
    return made


def heard_of(texts: Texts, query: Query, participants: Participants) -> NDArray[np.bool_] | None:
    """Return which rows those present may know of; None: all."""
    import numpy as np

    known = None if query.moment is None else texts.at <= query.moment
    if participants.owner_alone:
        return known
    may = [participants.can_see(Audience.of_turn(one)) for one in texts.audiences]
    heard = np.array(may or [False], dtype=np.bool_)[texts.audience]
    return heard if known is None else heard & known


def speaking(texts: Texts, heard: NDArray[np.bool_] | None) -> list[str]:
    """Return the labels of those who speak in what is heard."""
    import numpy as np

    if heard is None:
        return list(texts.speakers)
    return [texts.speakers[one] for one in np.unique(texts.speaker[heard]).tolist()]


def _moved(found: dict[str, Any], rows: NDArray[Any], count: int) -> dict[str, Any]:
    """Return where terms are among some of the rows."""
    import numpy as np

    where = np.full(count, -1, dtype=np.int64)
    where[rows] = np.arange(len(rows))
    moved: dict[str, Any] = {}
    for term, (places_, often) in found.items():
        there = where[places_]
        if bool((there >= 0).any()):
            moved[term] = (there[there >= 0], often[there >= 0])
    return moved


def clear() -> None:
    """Keep no views any more."""
    views.clear()
