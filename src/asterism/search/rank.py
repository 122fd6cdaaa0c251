"""One search under way: which texts those present may know of, and how they are ranked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from asterism.memory import archive
from asterism.memory.words import read as read_tokens
from asterism.memory.words import words
from asterism.records import dataclass
from asterism.search.encode import encode_rows
from asterism.search.index import IndexSnapshot, places, terms_with_prefix
from asterism.search.query import ParsedQuery, Speakers, terms_of
from asterism.search.signals import (
    ConversationView,
    HitStrength,
    QueryWord,
    QuestionStrength,
    Signals,
    Similarity,
    ViewCache,
    features,
    probability,
    score,
    signals,
    strength_of,
    worth_of,
)
from asterism.search.texts import WIDTH, Flag, Texts, UnindexedText, select_texts, tags_of
from asterism.store import passages, search_index
from asterism.store.agents import PassageOwner
from asterism.store.database import Connection
from asterism.store.search_index import JOURNAL
from asterism.times import days_text
from asterism.types.agents import Audience, Participants
from asterism.types.memory import Origin, OriginKind, Source
from asterism.types.search import (
    Hit,
    HitKind,
    MatchReason,
    Neighbour,
    Query,
    ReasonKind,
    SearchResult,
)
from asterism.types.turns import text_of, trust_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asterism.search.signals import Floats

ALIKE, ALIKE_ENCODED = 0.3, 0.15
"""The cosines from which a text without a common word counts as found."""
DATED = 0.5
"""How near a text must be to a time that is asked about to be found by it."""
_SPARE, _SPARE_QUOTED = 50, 400
"""How many more than are asked for are put in order: some may not be there any more, and texts with
the very words of a quote go before."""
_MAX_TERMS = 64
"""How many terms of a question are looked up; a longer one has said by then what it is about."""
_MAX_PREFIX_TERMS = 50
"""How many terms a beginning of a word may stand for."""
_MAX_CHECKED, _CHUNK = 20_000, 400
"""How many terms are looked at for them, in all and at a time, where not all may be seen."""
_FEW = 10
"""Of how many texts one may be without a vector before that is worth a word."""

views = ViewCache()
"""The views that this process keeps in memory."""


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A question's vector, and the encoder that made it."""

    encoder: str
    vector: NDArray[np.float32]


@dataclass(slots=True)
class Candidates:
    """The texts that a search ranks."""

    loaded: list[IndexSnapshot]
    agent_of: list[str]
    unindexed: list[UnindexedText]
    texts: Texts
    starts: list[int]
    """The row at which each index begins; the extras come last."""
    unindexed_terms: dict[str, tuple[list[int], list[int]]]

    def key(self, rows: NDArray[Any] | None) -> Hashable:
        """Return a key that changes with the loaded texts and the visible rows."""
        return (
            tuple((*snapshot.inner.identity, len(snapshot.texts)) for snapshot in self.loaded),
            tuple((text.id, text.text, text.at) for text in self.unindexed),
            None if rows is None else rows.tobytes(),
        )

    def in_conversation(self) -> NDArray[np.bool_] | None:
        """Return which rows belong to a conversation or a document; None: all.

        Their neighbours add to their meaning. Passages, blocks and summaries have no neighbours.
        """
        import numpy as np

        if not self.unindexed and all(snapshot.kind == JOURNAL for snapshot in self.loaded):
            return None
        mask = np.zeros(len(self.texts), dtype=np.bool_)
        ends = [*self.starts[1:], len(self.texts)]
        for snapshot, agent_id, first, end in zip(
            self.loaded, self.agent_of, self.starts, ends, strict=False
        ):
            mask[first:end] = snapshot.kind == JOURNAL or snapshot.owner_id != agent_id
        return mask

    def location(self, row: int) -> RowLocation:
        """Return where a row is from."""
        at = bisect_right(self.starts, row) - 1
        number = int(self.texts.numbers[row])
        speaker = self.texts.speakers[int(self.texts.speaker[row])]
        if at >= len(self.loaded):
            return RowLocation("", "", "", number, speaker)
        index_id = self.loaded[at]
        return RowLocation(index_id.kind, index_id.owner_id, self.agent_of[at], number, speaker)


@dataclass(slots=True)
class Ranking:
    """What was found, in order."""

    rows: NDArray[Any]
    """The rows of the hits, the best first."""
    scores: Floats
    """By row."""
    why: ReasonSignals | None
    total: int
    notes: tuple[str, ...] = ()
    unordered: NDArray[Any] | None = None
    """All that was found, if `rows` may have the best of it only."""
    strength: QuestionStrength | None = None
    """What hits are held against to tell how likely they have to do with the question."""


@dataclass(frozen=True, slots=True)
class ReasonSignals:
    """The signals behind the reasons of a hit, by row."""

    covered: Floats
    static: Floats
    encoded: Floats | None
    dated: Floats | None
    """None: no time is asked about."""
    spoken: Floats | None
    """None: nobody's words are asked for."""
    rarity: float
    """How rare the words of the question that some text has are, all together."""


@dataclass(slots=True)
class Ranker:
    """One search under way."""

    tx: Connection
    query: Query
    participants: Participants
    candidates: Candidates
    visible: NDArray[np.bool_] | None
    """Which rows those present may know of; None: all."""
    speakers: Speakers
    question: ParsedQuery
    reader: HitReader
    notes: tuple[str, ...] = ()
    """Notes on the search, independent of its hits."""

    async def signal_table(self, query_vector: QueryVector | None) -> dict[str, Floats]:
        """Return all signals of all texts: what weights are fitted on."""
        result = await self._find_words(await self._prefix_terms())
        signals_ = self._signals(result, await self._similarity(query_vector), None)
        return {name: signals_.view.unsorted(values) for name, values in signals_.columns().items()}

    async def rank(self, query_vector: QueryVector | None) -> Ranking:
        """Return the rows of all that is found, the best first."""
        import numpy as np

        visible = self.visible
        allowed = self._allowed()
        if visible is not None:
            allowed &= visible
        if not self.question.terms and not self.question.prefixes and not self.question.phrases:
            return self._newest(allowed)
        forms = await self._prefix_terms()
        result = await self._find_words(forms)
        near = await self._similarity(query_vector)
        rows = np.arange(len(self.candidates.texts)) if visible is None else np.flatnonzero(visible)
        if not len(rows):
            return Ranking(rows, np.zeros(0, dtype=np.float32), None, 0, self.notes)
        scores, why = self._scored(result, near, None if visible is None else rows)
        wanted = np.flatnonzero(self._matches(why, allowed))
        spare = _SPARE_QUOTED if self.question.phrases else _SPARE
        most = spare + self.query.offset + self.query.limit
        best = self.ordered(wanted, scores, len(wanted) if self.query.tags else most)
        strength = self._strength(result, scores, rows, best, why)
        return Ranking(best, scores, why, len(wanted), self._notes(near), wanted, strength)

    def ordered(self, rows: NDArray[Any], scores: Floats, most: int) -> NDArray[Any]:
        """Return rows, the best first: all of them, or of many at least so many of the best."""
        import numpy as np

        if len(rows) > 2 * most:
            of_rows = scores[rows]
            # All that are as good as the last, or another page would have others of them.
            least = np.partition(of_rows, len(rows) - most)[len(rows) - most]
            rows = rows[of_rows >= least]
        # Equal scores come newest first, then in the order of the texts.
        return rows[np.lexsort((rows, -self.candidates.texts.at[rows], -scores[rows]))]

    def _strength(
        self,
        found: Mapping[str, Any],
        scores: Floats,
        rows: NDArray[Any],
        best: NDArray[Any],
        why: ReasonSignals,
    ) -> QuestionStrength:
        """Return what is known of the question as a whole, from what those present may see."""
        spelled = {term: word for word in words(self.question.bare) for term in terms_of([word])}
        known: list[QueryWord] = []
        missing: list[float] = []
        for term in dict.fromkeys(self.question.terms[:_MAX_TERMS]):
            word = spelled.get(term, term)
            there: NDArray[Any] | None = found[term][0] if term in found else None
            if there is not None and self.visible is not None:
                there = there[self.visible[there]]
            if there is not None and len(there):
                known.append(QueryWord(worth_of(word, len(there), len(rows)), there))
            else:
                missing.append(worth_of(word, 0, len(rows)))
        return strength_of(
            scores[rows],
            scores[best],
            known,
            missing,
            rarity=why.rarity,
            encoded=why.encoded is not None,
        )

    def _scored(
        self, term_rows: dict[str, Any], near: Similarity, rows: NDArray[Any] | None
    ) -> tuple[Floats, ReasonSignals]:
        """Return the score of each row, and the reasons; hidden texts have no influence."""
        import numpy as np

        signals_ = self._signals(term_rows, near, rows)
        view, lexical = signals_.view, signals_.lexical
        count = len(self.candidates.texts)

        def put(values: Floats | None) -> Floats | None:
            """Return values in the order of all texts, zero for those that were left out."""
            if values is None:
                return None
            back = view.unsorted(values)
            if rows is None:
                return back
            output = np.zeros(count, dtype=np.float32)
            output[rows] = back
            return output

        def put_all(values: Floats) -> Floats:
            output = put(lexical.spread_out(values, len(view)))
            assert output is not None
            return output

        in_conversation = self.candidates.in_conversation()
        covered = put_all(lexical.window_covered)
        if in_conversation is not None:
            covered = np.where(in_conversation, covered, put_all(lexical.covered))
        why = ReasonSignals(
            covered=covered,
            static=near.static,
            encoded=near.encoded,
            dated=put(signals_.others["date" if self.question.dated else "date_relative"]),
            spoken=put(signals_.others["speaker"]),
            rarity=lexical.rarity,
        )
        scores = put(score(signals_, encoded=near.encoded is not None))
        assert scores is not None
        return scores, why

    def _signals(
        self, term_rows: dict[str, Any], near: Similarity, rows: NDArray[Any] | None
    ) -> Signals:
        """Return the signals of some rows, as if there were no others."""
        texts = self.candidates.texts
        if rows is not None:
            term_rows = _moved(term_rows, rows, len(texts))
            near = Similarity(
                near.static[rows],
                None if near.encoded is None else near.encoded[rows],
                None if near.has is None else near.has[rows],
            )
        view = views.get(self.candidates.key(rows), lambda: self._make_view(rows))
        ids = [self.speakers.ids.get(label, "") for label in texts.speakers]
        return signals(view, self.question, term_rows, near, ids)

    def _make_view(self, rows: NDArray[Any] | None) -> ConversationView:
        import numpy as np

        texts, starts = self.candidates.texts, self.candidates.starts
        index_id = np.zeros(len(texts), dtype=np.int32)
        for number, start in enumerate(starts):
            index_id[start:] = number
        if rows is not None:
            texts, index_id = select_texts(texts, rows), index_id[rows]
        return ConversationView(texts, index_id if len(starts) > 1 else None)

    # -- which rows ----------------------------------------------------------------------------

    def _allowed(self) -> NDArray[np.bool_]:
        """Return which rows the filters of the query leave."""
        import numpy as np

        query, texts = self.query, self.candidates.texts
        allowed = np.ones(len(texts), dtype=np.bool_)
        if query.since is not None:
            allowed &= texts.at >= query.since
        if query.last is not None:
            allowed &= texts.at <= query.last
        if query.role is not None:
            replies = (texts.flags & int(Flag.REPLY)) != 0
            allowed &= replies if query.role == "assistant" else ~replies
        if query.speaker is not None:
            labels = self.speakers.labels_for(query.speaker)
            matches = [speaker in labels for speaker in texts.speakers]
            allowed &= np.array(matches or [False], dtype=np.bool_)[texts.speaker]
        return allowed

    def _newest(self, allowed: NDArray[np.bool_]) -> Ranking:
        import numpy as np

        texts = self.candidates.texts
        selected = np.flatnonzero(allowed)
        order = np.lexsort((selected, -texts.numbers[selected], -texts.at[selected]))
        scores = np.zeros(len(texts), dtype=np.float32)
        return Ranking(selected[order], scores, None, len(selected), self.notes)

    def _matches(self, why: ReasonSignals, allowed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of the rows that may be found have something to do with the question."""
        result = (why.covered > 0) | (why.static >= ALIKE)
        if why.encoded is not None:
            result |= why.encoded >= ALIKE_ENCODED
        if why.dated is not None:
            result |= why.dated >= DATED
        result &= allowed
        if why.spoken is not None and not result.any():
            # Nothing is like it: what was said by those who are asked about comes nearest.
            return allowed & (why.spoken > 0)
        return result

    # -- words ---------------------------------------------------------------------------------

    async def _prefix_terms(self) -> list[str]:
        """Return the terms that beginnings of words stand for."""
        most = _MAX_PREFIX_TERMS if self.visible is None else _MAX_CHECKED
        result: dict[str, None] = {}
        for prefix in self.question.prefixes:
            there = await terms_with_prefix(self.tx, self.candidates.loaded, prefix, most)
            result.update(dict.fromkeys(there))
            tail_terms = [
                term
                for snapshot in self.candidates.loaded
                for term in list(snapshot.inner.tail_terms)
            ]
            for term in (*tail_terms, *self.candidates.unindexed_terms):
                if len(result) < most and term.startswith(prefix):
                    result[term] = None
        if self.visible is None:
            return list(result)
        return await self._visible_terms(list(result), self.visible)

    async def _find_words(self, forms: Sequence[str]) -> dict[str, Any]:
        """Return where the words of the question are."""
        import numpy as np

        terms = [*self.question.terms, *forms]
        names = [name for name in self.question.names if name not in terms]
        texts = self.candidates.texts
        if not names or all(texts.speakers):
            return await self._places(terms)
        result = await self._places(terms)
        silent = np.array([not speaker for speaker in texts.speakers])[texts.speaker]
        for term, (rows, often) in (await self._places(names)).items():
            # Whoever speaks is asked for by the name, and seldom says it.
            selected = silent[rows]
            if selected.any():
                result[term] = (rows[selected], often[selected])
        return result

    async def _visible_terms(self, terms: list[str], visible: NDArray[np.bool_]) -> list[str]:
        """Return the terms that occur in visible texts."""
        spoken: list[str] = []
        for first in range(0, len(terms), _CHUNK):
            part = terms[first : first + _CHUNK]
            there = await self._places(part, _CHUNK)
            spoken += [
                term for term in part if term in there and bool(visible[there[term][0]].any())
            ]
            if len(spoken) >= _MAX_PREFIX_TERMS:
                break
        return spoken[:_MAX_PREFIX_TERMS]

    async def _places(self, terms: Sequence[str], most: int = _MAX_TERMS) -> dict[str, Any]:
        import numpy as np

        terms = list(dict.fromkeys(terms))[:most]
        result = (
            await places(self.tx, self.candidates.loaded, terms) if self.candidates.loaded else {}
        )
        start = self.candidates.starts[-1]
        for term in terms:
            there = self.candidates.unindexed_terms.get(term)
            if there is None:
                continue
            rows = np.array(there[0], dtype=np.int32) + start
            often = np.array(there[1], dtype=np.float32)
            known = result.get(term)
            if known is not None:
                rows, often = np.concatenate([known[0], rows]), np.concatenate([known[1], often])
            result[term] = (rows, often)
        return result

    # -- meaning -------------------------------------------------------------------------------

    async def _similarity(self, query_vector: QueryVector | None) -> Similarity:
        import numpy as np

        texts = self.candidates.texts
        read = read_tokens(self.question.bare)
        static = np.zeros(len(texts), dtype=np.float32)
        if read is not None and read.tokens:
            wanted = np.frombuffer(read.vector, dtype=np.int8)[:WIDTH].astype(np.float32)
            wanted /= max(float(np.linalg.norm(wanted)), 1e-9)
            static = _cosines(texts.vectors, wanted, texts.norm)
        if query_vector is None or not self.candidates.loaded:
            return Similarity(static)
        there = await encode_rows(self.tx, self.candidates.loaded, query_vector.encoder)
        if there is None or there[0].shape[1] != len(query_vector.vector):
            return Similarity(static)
        vectors, has, norms = there
        near = np.zeros(len(texts), dtype=np.float32)
        near[: len(vectors)] = _cosines(vectors, query_vector.vector, norms)
        whole = np.zeros(len(texts), dtype=np.bool_)
        whole[: len(has)] = has
        return Similarity(static, near, whole)

    def _notes(self, near: Similarity) -> tuple[str, ...]:
        notes = list(self.notes)
        left_out = sum(snapshot.left_out for snapshot in self.candidates.loaded)
        if left_out:
            # How many there are is for those who may see all of them.
            count = f"About {left_out:,}" if self.participants.owner_alone else "Some"
            notes.append(
                f"{count} older texts are not in the index yet and were not searched; "
                "they are put in in the background."
            )
        if near.has is not None:
            import numpy as np

            # Those that are in no segment yet get a vector when there are more of them.
            parts = [snapshot.in_segments for snapshot in self.candidates.loaded]
            asked = np.concatenate(parts)
            if self.visible is not None:
                asked &= self.visible[: len(asked)]
            there = near.has[: len(asked)][asked]
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

    # Not by BLAS, which wakes other threads for it: on busy cores that takes milliseconds. And not
    # as a matrix of floats: einsum turns a few rows at a time into floats, in the nearest cache.
    output = np.einsum("ij,j->i", vectors, wanted, dtype=np.float32)
    output /= np.maximum(norms, 1e-9)
    return output


def visible_rows(
    texts: Texts, query: Query, participants: Participants
) -> NDArray[np.bool_] | None:
    """Return which rows those present may know of; None: all."""
    import numpy as np

    known = None if query.moment is None else texts.at <= query.moment
    if participants.owner_alone:
        return known
    may = [participants.can_see(Audience.of_turn(audience)) for audience in texts.audiences]
    visible = np.array(may or [False], dtype=np.bool_)[texts.audience]
    return visible if known is None else visible & known


def speaker_labels(texts: Texts, visible: NDArray[np.bool_] | None) -> list[str]:
    """Return the labels of the speakers of visible texts."""
    import numpy as np

    if visible is None:
        return list(texts.speakers)
    return [texts.speakers[place] for place in np.unique(texts.speaker[visible]).tolist()]


def _moved(term_rows: dict[str, Any], rows: NDArray[Any], count: int) -> dict[str, Any]:
    """Return where terms are among some of the rows."""
    import numpy as np

    where = np.full(count, -1, dtype=np.int64)
    where[rows] = np.arange(len(rows))
    moved: dict[str, Any] = {}
    for term, (places_, often) in term_rows.items():
        there = where[places_]
        if bool((there >= 0).any()):
            moved[term] = (there[there >= 0], often[there >= 0])
    return moved


def clear() -> None:
    """Keep no views any more."""
    views.clear()


_PHRASED = 400
"""How many of the best texts are read for the very words in quotes."""
_PAGE = 100
_BY_NEIGHBOURS = MatchReason(ReasonKind.WORDS, "those of its neighbours")
_GAPS = 20
"""How many texts beside a hit may be there no more without a neighbour being missed."""


async def read_page(ranker: Ranker, ranking: Ranking) -> SearchResult:
    """Read the page of hits that the query asks for."""
    query, reader = ranker.query, ranker.reader
    wanted = query.offset + query.limit
    if ranker.question.phrases and ranking.why is not None:
        ranking = await _phrases_first(ranker, ranking)
    hit_texts: list[tuple[int, HitText]] = []
    gone = 0
    first, size = 0, wanted + 2
    while first < len(ranking.rows) and len(hit_texts) <= wanted:
        rows: list[int] = ranking.rows[first : first + size].tolist()
        first, size = first + len(rows), _PAGE
        texts = await reader.read([ranker.candidates.location(row) for row in rows])
        for row, text in zip(rows, texts, strict=True):
            if text is None:
                gone += 1
            else:
                hit_texts.append((row, text))
        if first >= len(ranking.rows) and len(hit_texts) <= wanted:
            ranking = _with_rest(ranker, ranking)
    page = hit_texts[query.offset : wanted]
    hits = [_hit(ranker, ranking, row, text) for row, text in page]
    hits = _with_surroundings(ranker, hits, [row for row, _ in page])
    if query.neighbours:
        hits = [
            await _with_neighbours(ranker, hit, row)
            for hit, (row, _) in zip(hits, page, strict=True)
        ]
    return SearchResult(hits, ranking.total - gone, len(hit_texts) > wanted, ranking.notes)


def _with_rest(ranker: Ranker, ranking: Ranking) -> Ranking:
    """Return all that was found in order, where so many of the best are no more that it counts."""
    import numpy as np

    if ranking.unordered is None or len(ranking.unordered) == len(ranking.rows):
        return ranking
    left = np.setdiff1d(ranking.unordered, ranking.rows, assume_unique=True)
    rest = ranker.ordered(left, ranking.scores, len(left))
    return replace(ranking, rows=np.concatenate([ranking.rows, rest]))


async def _phrases_first(ranker: Ranker, ranking: Ranking) -> Ranking:
    """Put texts that contain the quoted words before the others."""
    import numpy as np

    rows = ranking.rows[:_PHRASED]
    texts = await ranker.reader.read([ranker.candidates.location(int(row)) for row in rows])
    exact = [
        text is not None
        and all(_contains_phrase(text.text, phrase) for phrase in ranker.question.phrases)
        for text in texts
    ]
    if not any(exact):
        return ranking
    order = np.argsort(~np.array(exact), kind="stable")
    return replace(ranking, rows=np.concatenate([rows[order], ranking.rows[_PHRASED:]]))


def _contains_phrase(text: str, phrase: str) -> bool:
    return " ".join(phrase.split()).casefold() in " ".join(text.split()).casefold()


def _hit(ranker: Ranker, ranking: Ranking, row: int, text: HitText) -> Hit:
    question = ranker.question
    names = () if text.speaker else question.names
    result = matched_words(text.text, frozenset((*question.terms, *names)), question.prefixes)
    return Hit(
        text.kind,
        text.id,
        text.text,
        round(float(ranking.scores[row]), 4),
        _reasons(ranker, ranking, row, text, result),
        text.at,
        text.source,
        text.agent_id,
        text.speaker,
        text.where,
        result,
        relevance=relevance_of(ranker, ranking, row),
    )


_MAX_RELEVANCE = 0.9999
"""Nothing is certain, so that a threshold of one lets nothing pass."""


def relevance_of(ranker: Ranker, ranking: Ranking, row: int) -> float | None:
    """Return how likely a row has to do with the question; None: nothing was asked."""
    found = features_of(ranker, ranking, row)
    return None if found is None else min(round(probability(found), 4), _MAX_RELEVANCE)


def features_of(ranker: Ranker, ranking: Ranking, row: int) -> dict[str, float] | None:
    """Return what that is made of."""
    why, strength = ranking.why, ranking.strength
    if why is None or strength is None:
        return None
    hit = HitStrength(
        row=row,
        score=float(ranking.scores[row]),
        covered=float(why.covered[row]),
        static=float(why.static[row]),
        encoded=0.0 if why.encoded is None else float(why.encoded[row]),
        dated=0.0 if why.dated is None else float(why.dated[row]),
        words=int(ranker.candidates.texts.words[row]),
    )
    return features(strength, hit)


def _reasons(
    ranker: Ranker, ranking: Ranking, row: int, text: HitText, matched_words: Sequence[str]
) -> tuple[MatchReason, ...]:
    question = ranker.question
    if ranking.why is None:
        return (MatchReason(ReasonKind.NEWEST),)
    phrases = [
        MatchReason(ReasonKind.PHRASE, f"\u201c{phrase}\u201d")
        for phrase in question.phrases
        if _contains_phrase(text.text, phrase)
    ]
    return (
        *phrases,
        *_word_reasons(ranker, ranking.why, row, matched_words),
        *_other_reasons(ranker, ranking.why, row, text),
    )


def _word_reasons(
    ranker: Ranker, why: ReasonSignals, row: int, matched_words: Sequence[str]
) -> list[MatchReason]:
    prefixes = ranker.question.prefixes
    begun = [word for word in matched_words if _is_prefixed(word, prefixes)]
    # As they are spelled there, each once.
    plain = {word.lower(): word for word in matched_words if not _is_prefixed(word, prefixes)}
    reasons: list[MatchReason] = []
    if begun:
        reasons.append(MatchReason(ReasonKind.PREFIX, ", ".join(dict.fromkeys(begun))))
    if plain:
        reasons.append(MatchReason(ReasonKind.WORDS, ", ".join(plain.values())))
    elif why.covered[row] > 0 and not matched_words:
        reasons.append(_BY_NEIGHBOURS)
    return reasons


def _other_reasons(
    ranker: Ranker, why: ReasonSignals, row: int, text: HitText
) -> list[MatchReason]:
    """Return the reasons besides words: meaning, time, and who said it."""
    question = ranker.question
    reasons: list[MatchReason] = []
    static = float(why.static[row])
    near = -1.0 if why.encoded is None else float(why.encoded[row])
    if static >= ALIKE or near >= ALIKE_ENCODED:
        reasons.append(MatchReason(ReasonKind.MEANING, f"{max(static, near):.2f}"))
    if question.span is not None and why.dated is not None and why.dated[row] >= DATED:
        reasons.append(MatchReason(ReasonKind.DATE, days_text(*question.span)))
    if why.spoken is not None and why.spoken[row] > 0 and text.speaker:
        reasons.append(MatchReason(ReasonKind.SPEAKER, text.speaker))
    return reasons


def _is_prefixed(word: str, prefixes: Sequence[str]) -> bool:
    return any(word.casefold().startswith(prefix) for prefix in prefixes)


def _with_surroundings(ranker: Ranker, hits: list[Hit], rows: Sequence[int]) -> list[Hit]:
    """Return hits of which those that were found by their neighbours alone name these.

    The order stays: such a text may be the answer to a question that has all the words.
    """
    own = {row: hit for row, hit in zip(rows, hits, strict=True) if not _is_surrounding(hit)}
    if not own:
        return hits
    return [
        hit if row in own else _beside_nearest(ranker, hit, row, own)
        for row, hit in zip(rows, hits, strict=True)
    ]


def _beside_nearest(ranker: Ranker, hit: Hit, row: int, own: Mapping[int, Hit]) -> Hit:
    """Return a hit that names the nearest of some others in its conversation or document."""
    import numpy as np

    thread = _thread(ranker, row)
    here = int(np.searchsorted(thread, row))
    places = {other: int(np.searchsorted(thread, other)) for other in own}
    steps = {
        other: here - place
        for other, place in places.items()
        if place < len(thread) and thread[place] == other
    }
    if not steps:
        return hit
    nearest = min(steps, key=lambda other: (abs(steps[other]), other))
    return replace(hit, beside=own[nearest].id, steps=steps[nearest])


def _is_surrounding(hit: Hit) -> bool:
    """Tell whether a hit has nothing of the question by itself; who said it does not count."""
    why = [reason for reason in hit.why if reason.kind is not ReasonKind.SPEAKER]
    return why == [_BY_NEIGHBOURS]


def _thread(ranker: Ranker, row: int) -> NDArray[Any]:
    """Return the rows of the conversation or document that a row is a part of, in their order."""
    import numpy as np

    candidates = ranker.candidates
    texts = candidates.texts
    at = max(number for number, start in enumerate(candidates.starts) if start <= row)
    end = candidates.starts[at + 1] if at + 1 < len(candidates.starts) else len(texts)
    start = candidates.starts[at]
    same = start + np.flatnonzero(texts.thread[start:end] == texts.thread[row])
    return same if ranker.visible is None else same[ranker.visible[same]]


async def _with_neighbours(ranker: Ranker, hit: Hit, row: int) -> Hit:
    """Return a hit with what comes before and after it in its conversation or document."""
    import numpy as np

    most = ranker.query.neighbours
    same = _thread(ranker, row)
    place = int(np.searchsorted(same, row))
    reach = most + _GAPS
    before = await _neighbours(ranker, same[max(0, place - reach) : place])
    after = await _neighbours(ranker, same[place + 1 : place + 1 + reach])
    return replace(hit, before=before[-most:], after=after[:most])


async def _neighbours(ranker: Ranker, rows: NDArray[Any]) -> tuple[Neighbour, ...]:
    locations = [ranker.candidates.location(int(row)) for row in rows]
    texts = await ranker.reader.read(locations, tagged=False)
    return tuple(
        Neighbour(text.id, text.text, text.at, text.speaker, text.source)
        for text in texts
        if text is not None
    )


@dataclass(frozen=True, slots=True)
class HitText:
    """A text as a hit shows it."""

    kind: HitKind
    id: str
    text: str
    at: int
    source: Source
    agent_id: str
    speaker: str
    where: str


@dataclass(frozen=True, slots=True)
class RowLocation:
    """Where a row is from."""

    kind: str
    """That of its index; empty: it is one of the extras."""
    owner_id: str
    agent_id: str
    number: int
    speaker: str


@dataclass(frozen=True, slots=True)
class HitReader:
    """Reads rows for those present."""

    tx: Connection
    query: Query
    participants: Participants
    speakers: Speakers
    sources: Mapping[str, PassageOwner]
    """The sources of documents that are searched, by id."""
    unindexed: Sequence[UnindexedText]

    async def read(
        self, locations: Sequence[RowLocation], *, tagged: bool = True
    ) -> list[HitText | None]:
        """Return the texts at some places, None where those present may not see one.

        Unless it is `tagged`, a passage needs no tags.
        """
        tags = tags_of(self.query) if tagged else frozenset[str]()
        by_index: dict[tuple[str, str], list[int]] = {}
        for location in locations:
            by_index.setdefault((location.kind, location.owner_id), []).append(location.number)
        messages: dict[tuple[str, int], search_index.JournalText] = {}
        passages_: dict[tuple[str, int], passages.Numbered] = {}
        for (kind, owner_id), numbers in by_index.items():
            if kind == JOURNAL:
                rows = await search_index.messages_at(self.tx, owner_id, numbers)
                messages |= {(owner_id, row.number): row for row in rows}
            elif kind:
                by_number = await self._passages_by_number(owner_id, numbers)
                passages_ |= {(owner_id, number): passage for number, passage in by_number.items()}
        texts: list[HitText | None] = []
        for location in locations:
            if not location.kind:
                texts.append(_unindexed_text(self.unindexed[location.number]))
            elif location.kind == JOURNAL:
                texts.append(
                    self._message(location, messages.get((location.owner_id, location.number)))
                )
            else:
                texts.append(
                    self._passage(
                        location, passages_.get((location.owner_id, location.number)), tags
                    )
                )
        return texts

    async def _passages_by_number(
        self, archive_id: str, numbers: Sequence[int]
    ) -> dict[int, passages.Numbered]:
        result = await passages.by_numbers(self.tx, archive_id, numbers)
        moment = self.query.moment
        if moment is None:
            return {
                number: numbered for number, numbered in result.items() if numbered.passage.is_valid
            }
        then = await archive.as_of(
            self.tx, [numbered.passage for numbered in result.values()], moment
        )
        by_id = {passage.id: passage for passage in then}
        return {
            number: numbered._replace(passage=by_id[numbered.passage.id])
            for number, numbered in result.items()
            # What read otherwise then is among the extras.
            if numbered.passage.id in by_id
            and by_id[numbered.passage.id].text == numbered.passage.text
        }

    def _message(
        self, location: RowLocation, message: search_index.JournalText | None
    ) -> HitText | None:
        if message is None or not self.participants.can_see(Audience.of_turn(message.audience)):
            return None
        text = text_of(message.body)
        if not text.strip():
            return None
        origin = Origin(OriginKind.MESSAGE, message.turn_id)
        channel = message.channel or ""
        return HitText(
            HitKind.MESSAGE,
            f"{message.turn_id}#{message.number}",
            text,
            message.at,
            Source(
                (origin,), Audience.of_turn(message.audience), trust_of(message.meta, message.trust)
            ),
            location.agent_id,
            self.speakers.display_names.get(location.speaker, ""),
            channel if message.reply_to is None else f"{channel}:{message.reply_to}",
        )

    def _passage(
        self, location: RowLocation, numbered: passages.Numbered | None, tags: frozenset[str]
    ) -> HitText | None:
        if numbered is None:
            return None
        passage = numbered.passage
        if not self.participants.can_see(passage.source.audience) or not tags <= set(passage.tags):
            return None
        kind, where = HitKind.PASSAGE, ""
        source = self.sources.get(location.owner_id)
        if source is not None:
            kind, where = HitKind.DOCUMENT, f"{source.name}/{numbered.document or ''}".rstrip("/")
        return HitText(
            kind,
            passage.id,
            passage.text,
            passage.known_from_ms,
            passage.source,
            location.agent_id,
            "",
            where,
        )


def _unindexed_text(text: UnindexedText) -> HitText:
    return HitText(
        text.kind, text.id, text.text, text.at, text.source, text.agent_id, "", text.where
    )


def matched_words(text: str, terms: frozenset[str], prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a text, as they are written, that have a term or begin so."""
    result: dict[str, None] = {}
    pieces = text.split()
    if text.isascii():
        heads = _word_prefixes(terms, tuple(prefixes))
        plain = text.lower().split()
        pieces = [
            piece
            for piece, low in zip(pieces, plain, strict=True)
            if low.startswith(heads) or not low.isalpha()
        ]
    for piece in dict.fromkeys(pieces):
        word = piece.strip(_SIGNS)
        if word and word not in result:
            parts, stems = _read(word)
            if not terms.isdisjoint(stems) or (
                prefixes and any(part.startswith(prefix) for prefix in prefixes for part in parts)
            ):
                result[word] = None
    return tuple(result)


@lru_cache(64)
def _word_prefixes(terms: frozenset[str], prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return how words begin that may have a term or begin so; others need not be read.

    A stem begins like its word: a short one, as in `dying`, with the same letter at least.
    """
    return tuple({*(term[: 3 if len(term) > 4 else 1] for term in terms), *prefixes})


@lru_cache(16_384)
def _read(word: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    parts = words(word)
    return tuple(parts), tuple(terms_of(parts))


_SIGNS = ".,;:!?\"'()[]{}<>*_`\u201c\u201d\u2018\u2019\u2026"
