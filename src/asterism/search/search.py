"""Search: messages, passages, documents, blocks and summaries, ranked as one for those present."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from asterism.config.load import CurrentSettings
from asterism.errors import AsterismError, NotFound
from asterism.memory import people
from asterism.memory.words import words
from asterism.ports import Clock, Encoder
from asterism.records import dataclass
from asterism.search.encode import encode_question, without
from asterism.search.index import (
    MAX_COUNT,
    IndexKey,
    by_prefix,
    encoder_counts,
    load_indexes,
    term_entry,
    term_postings,
)
from asterism.search.query import AGENT, MAX_CHARACTERS, asker_of, speakers_of, terms_of
from asterism.search.query import read as read_question
from asterism.search.rank import (
    Candidates,
    HitReader,
    QueryVector,
    Ranker,
    read_page,
    speaker_labels,
    visible_rows,
)
from asterism.search.texts import (
    UnindexedText,
    concatenate,
    former_wordings,
    make_texts,
    read_texts,
    unindexed_texts,
)
from asterism.store import agents, journal, search_index
from asterism.store.agents import PassageOwner
from asterism.store.database import Connection, Database, Work
from asterism.store.search_index import ARCHIVE, JOURNAL, RANGE, IndexState
from asterism.telemetry.redaction import SECRETS, redact
from asterism.times import ahead_of_utc
from asterism.types.agents import Participants
from asterism.types.search import Hit, Query, SearchResult

__all__ = ["QueryVector", "prepare", "search"]

MAX_INDEXES = 40
"""How many indexes are all looked at closely."""
_BEST = 12
"""Of more, so many are: those with the best texts by their words."""
_DOMAINS = {JOURNAL: "messages", ARCHIVE: "passages"}
_LATEST = 100
"""How many turns tell which agents spoke last."""


@dataclass(frozen=True, slots=True)
class _Target:
    kind: str
    owner_id: str
    agent_id: str


async def search(
    tx: Connection,
    agent_id: str | None,
    query: Query,
    *,
    participants: Participants,
    now: int,
    query_vector: QueryVector | None = None,
    zone: tzinfo = UTC,
) -> SearchResult:
    """Return the hits of a query, the best first; any text is a query.

    Args:
        agent_id: Whose memory; None: that of all agents.
        query: The words and the filters.
        participants: Those present. A text must be visible to all of them.
        now: From when days such as `last week` are counted.
        query_vector: The query's vector, if there is an encoder.
        zone: The time zone in whose days they are counted.
    """
    ranker = await prepare(tx, agent_id, query, participants=participants, now=now, zone=zone)
    if not len(ranker.candidates.texts):
        return SearchResult(notes=ranker.notes)
    result = await read_page(ranker, await ranker.rank(query_vector))
    return replace(result, hits=[*map(_without_keys, result.hits)]) if SECRETS.order else result


def _without_keys(hit: Hit) -> Hit:
    """Return a hit without known keys: it may be older than they are, or written by the owner."""
    text = redact(hit.text)
    return replace(
        hit,
        text=text,
        why=tuple(replace(reason, text=redact(reason.text)) for reason in hit.why),
        speaker=redact(hit.speaker),
        where=redact(hit.where),
        matched=hit.matched if text is hit.text else tuple(w for w in hit.matched if w in text),
        before=tuple(replace(neighbour, text=redact(neighbour.text)) for neighbour in hit.before),
        after=tuple(replace(neighbour, text=redact(neighbour.text)) for neighbour in hit.after),
    )


async def prepare(
    tx: Connection,
    agent_id: str | None,
    query: Query,
    *,
    participants: Participants,
    now: int,
    zone: tzinfo = UTC,
) -> Ranker:
    """Read the question, and take all texts from the indexes that may answer it."""
    if agent_id is not None and not await agents.is_agent_of(tx, agent_id):
        raise NotFound(f'There is no agent {agent_id!r}. "asterism agent list" shows all.')
    sources: dict[str, PassageOwner] = {}
    targets: list[_Target] = []
    notes: tuple[str, ...] = ()
    if query.searched_domains:
        possible = await _targets(tx, agent_id, query, sources)
        targets = await _selected(tx, query, possible)
        notes = _selection_notes(possible, targets, query, participants)
    candidates = await _gather_candidates(tx, targets, query, participants, sources)
    visible = visible_rows(candidates.texts, query, participants)
    agent_ids = list(dict.fromkeys(target.agent_id for target in targets))
    # Names of those who spoke only elsewhere are words like others.
    labels = speaker_labels(candidates.texts, visible)
    speakers = await speakers_of(tx, labels, agent_ids)
    ahead = 0 if zone is UTC else ahead_of_utc(now, zone)
    question = read_question(query.text, speakers.names, asker_of(participants), AGENT, now + ahead)
    question = replace(question, ahead=ahead) if ahead else question
    reader = HitReader(tx, query, participants, speakers, sources, candidates.unindexed)
    return Ranker(tx, query, participants, candidates, visible, speakers, question, reader, notes)


async def _targets(
    tx: Connection, agent_id: str | None, query: Query, sources: dict[str, PassageOwner]
) -> dict[tuple[str, str], _Target]:
    """Return the indexes that may be searched, each with its agent."""
    looked_at = set(query.searched_domains)
    members = [agent_id] if agent_id is not None else await agents.ids(tx)
    kinds = [kind for kind, domain in _DOMAINS.items() if domain in looked_at]
    targets = {
        (kind, member): _Target(kind, member, member) for member in members for kind in kinds
    }
    if "documents" in looked_at:
        for source, reader in await _sources(tx, agent_id):
            if query.source in (None, source.name, source.id):
                sources[source.id] = source
                targets[ARCHIVE, source.id] = _Target(ARCHIVE, source.id, reader)
    if not targets:
        targets = {("", member): _Target("", member, member) for member in members}
    return targets


async def _sources(tx: Connection, agent_id: str | None) -> list[tuple[PassageOwner, str]]:
    """Return the sources that an agent, or any of them, may read, each with one who may."""
    if agent_id is None:
        return await agents.sources_attached_to_any(tx)
    return [(source, agent_id) for source in await agents.attached_sources(tx, agent_id)]


async def _selected(
    tx: Connection, query: Query, possible: dict[tuple[str, str], _Target]
) -> list[_Target]:
    """Return all of a few indexes, or those of many that fit a query best."""
    indexed = [key for key in possible if key[0]]
    if not indexed or len(possible) <= MAX_INDEXES:
        return list(possible.values())
    terms = terms_of(words(query.text[:MAX_CHARACTERS]))
    if terms:
        return [possible[key] for key in await best_indexes(tx, indexed, terms, _BEST)]
    latest = await journal.turns_of(tx, None, _LATEST)
    ids = {turn.agent_id for turn in latest}
    return [target for target in possible.values() if target.agent_id in ids][:_BEST]


def _selection_notes(
    possible: Mapping[tuple[str, str], _Target],
    selected: Sequence[_Target],
    query: Query,
    participants: Participants,
) -> tuple[str, ...]:
    """Tell if not all indexes are looked at."""
    if len(selected) == len(possible):
        return ()
    owners = len({target.owner_id for target in possible.values()})
    few = len({target.owner_id for target in selected})
    # How many there are is for those who may see all of them.
    of_all = (
        f"{few} of {owners:,} agents and sources" if participants.owner_alone else "some of many"
    )
    by = "whose texts fit best by their words" if query.text.strip() else "who spoke last"
    return (f"Only {of_all} were searched closely, those {by}; name one to search all it has.",)


async def _gather_candidates(
    tx: Connection,
    targets: Sequence[_Target],
    query: Query,
    participants: Participants,
    sources: Mapping[str, PassageOwner],
) -> Candidates:
    indexed = [target for target in targets if target.kind]
    loaded = (
        await load_indexes(tx, [(target.kind, target.owner_id) for target in indexed])
        if indexed
        else []
    )
    unindexed: list[UnindexedText] = []
    for agent_id in dict.fromkeys(target.agent_id for target in targets):
        unindexed += await unindexed_texts(tx, agent_id, query, participants)
    for target in indexed:
        if target.kind == ARCHIVE:
            source = sources.get(target.owner_id)
            unindexed += await former_wordings(
                tx, target.owner_id, target.agent_id, source, query, participants
            )
    unique = list({(text.id, text.text): text for text in unindexed}.values())
    analyzed = [text.analyzed(number) for number, text in enumerate(unique)]
    parts = [snapshot.texts for snapshot in loaded]
    terms: dict[str, tuple[list[int], list[int]]] = {}
    for row, text in enumerate(analyzed):
        for term, often in text.text.terms.items():
            rows, counts = terms.setdefault(term, ([], []))
            rows.append(row)
            counts.append(often)
    starts: list[int] = []
    count = 0
    for part in parts:
        starts.append(count)
        count += len(part)
    if analyzed or not parts:
        starts.append(count)
        parts.append(make_texts(analyzed))
    agent_of = [target.agent_id for target in indexed]
    return Candidates(loaded, agent_of, unique, concatenate(parts), starts, terms)


_NO_NAMES = frozenset({"agent", "assistant", "owner", "somebody", "user"})


async def names_for(tx: Connection, owner_id: str) -> list[str]:
    """Return the names of all persons, and of the agent whose texts they are if it is one's."""
    result = [name for _, name in await people.people_names(tx)]
    agent = await agents.by_id(tx, owner_id)
    if agent is not None:
        result.append(agent.name)
    # Strangers are named after their accounts, as in `telegram:anna`.
    result += [name.partition(":")[2] for name in result if ":" in name]
    result += [name.split()[0] for name in result if len(name.split()) > 1]
    return [
        name
        for name in dict.fromkeys(result)
        if len(name) > 1 and name.casefold() not in _NO_NAMES and any(map(str.isalpha, name))
    ]


_PATIENCE = 3.0
"""Seconds that a search waits for the vector of its question."""
_REST = 30.0
"""Seconds that an encoder is left alone after it could not answer."""
_MAX_CACHED = 512
_MAX_INDEXES = 8

_log = logging.getLogger(__name__)


class QueryEncoder:
    """Makes the vectors of questions."""

    def __init__(self, encoder: Callable[[str], Encoder | None]) -> None:
        """Make it; `encoder` returns an encoder by its name, None for one that is not wanted."""
        self._encoder = encoder
        self._vectors: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()
        self._rests: dict[str, float] = {}
        self._reported: set[str] = set()

    async def vector(
        self, name: str | None, question: str, names: Iterable[str] = ()
    ) -> NDArray[np.float32] | None:
        """Return the vector of a question by the encoder `name`; None where there is none now.

        Args:
            name: What `serving` says.
            question: As it was asked.
            names: The speakers, whose names are left out.
        """
        if name is None or time.monotonic() < self._rests.get(name, 0):
            return None
        text = without(names, question)
        selected = self._vectors.get((name, text))
        if selected is None:
            selected = await self._ask(name, text)
            if selected is None:
                return None
            self._vectors[name, text] = selected
            if len(self._vectors) > _MAX_CACHED:
                self._vectors.popitem(last=False)
        self._vectors.move_to_end((name, text))
        return selected

    async def _ask(self, name: str, text: str) -> NDArray[np.float32] | None:
        try:
            encoder = self._encoder(name)
            if encoder is None:
                return None
            async with asyncio.timeout(_PATIENCE):
                output = await encode_question(encoder, text)
        except TimeoutError:
            message = f"The encoder {name!r} gave no answer within {_PATIENCE:g} seconds."
        except AsterismError as error:
            message = error.message
        else:
            self._reported.discard(name)
            return output
        self._rests[name] = time.monotonic() + _REST
        if name not in self._reported:
            self._reported.add(name)
            _log.warning("%s Searches go on by words and static vectors until it works.", message)
        return None


async def encoder_in_use(tx: Connection, index_key: Sequence[IndexKey], wanted: str) -> str | None:
    """Return the encoder whose vectors a search over these indexes uses; None: there are none.

    After a change of encoder that is the former one, until as many texts have the new vectors.
    """
    counts: dict[str, int] = {}
    for kind, owner_id in index_key[:_MAX_INDEXES]:
        for name, count in (await encoder_counts(tx, kind, owner_id)).items():
            counts[name] = counts.get(name, 0) + count
    if wanted == "none" or not any(counts.values()):
        return None
    return max(counts, key=lambda name: (counts[name], name == wanted, name))


class Searcher:
    """Search for whoever is present, with the vector of the question where an encoder is used."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        query_encoder: QueryEncoder,
        settings: CurrentSettings,
    ) -> None:
        self._database = database
        self._clock = clock
        self._query_encoder = query_encoder
        self._settings = settings

    async def find(
        self, whose: Work[str | None], query: Query, present: Work[Participants]
    ) -> SearchResult:
        """Return what an agent's memory, or that of all, has on a query for those present.

        `whose` returns the agent's id, None for all agents, and `present` those present.
        """
        # An encoder takes milliseconds, so it must not run while a transaction is open.
        query_vector = await self._vector(whose, query)
        now, zone = self._clock(), self._settings.current.zone

        async def read(tx: Connection) -> SearchResult:
            agent_id, participants = await whose(tx), await present(tx)
            return await search(
                tx,
                agent_id,
                query,
                participants=participants,
                now=now,
                query_vector=query_vector,
                zone=zone,
            )

        return await self._database.read(read)

    async def _vector(self, whose: Work[str | None], query: Query) -> QueryVector | None:
        """Return the query's vector, or None where no encoder is wanted or it cannot answer."""
        wanted = self._settings.current.search.encoder
        if wanted == "none" or not query.text.strip():
            return None

        async def look(tx: Connection) -> tuple[str | None, list[str]]:
            agent_id = await whose(tx)
            agent_ids = [agent_id] if agent_id else await agents.ids(tx)
            indexes = [(kind, owner) for owner in agent_ids for kind in (JOURNAL, ARCHIVE)]
            return (
                await encoder_in_use(tx, indexes, wanted),
                await names_for(tx, agent_id or ""),
            )

        name, names = await self._database.read(look)
        vector = await self._query_encoder.vector(name, query.text[:MAX_CHARACTERS], names)
        return None if name is None or vector is None else QueryVector(name, vector)


# -- which indexes have the best texts -------------------------------------------------------------

_K1 = 1.2
_SHORT = 512
"""How many numbers a tail has at most that is looked at; indexing soon shortens it."""
_MAX_READ = 2_000
"""How many texts of tails are read in one search; those of others wait for the next."""
_MAX_TAILS = 4_096

_Tail = dict[str, list[tuple[int, int]]]
"""Where the terms of a tail are, and how often."""
_tails: OrderedDict[tuple[int, str, str], tuple[tuple[int, int, int], _Tail]] = OrderedDict()
_lock = Lock()


async def best_indexes(
    tx: Connection, index_key: Sequence[IndexKey], terms: Sequence[str], most: int = 40
) -> list[IndexKey]:
    """Return the indexes with the best texts by their words, the best first.

    Terms weigh more if they are rare in these indexes. Texts that are not in a segment yet count
    too, if there are few.
    """
    import numpy as np

    wanted = [term for term in dict.fromkeys(terms) if term]
    if not wanted or not index_key:
        return []
    index_states = await search_index.index_states(tx, index_key)
    ids = {
        state.index_id: place for place, state in enumerate(index_states.values()) if state.index_id
    }
    board = _ScoreBoard(wanted)
    alike = {
        prefix: [(term, term_entry(term)) for term in terms]
        for prefix, terms in by_prefix(wanted).items()
    }
    for index_id, first, prefix, row in await search_index.postings_of_many(
        tx, list(ids), list(alike)
    ):
        for term, name in alike[prefix]:
            # Most indexes have no such term, and this tells it soonest.
            if name in row:
                board.post(ids[index_id], first, term, term_postings(row, name))
    covered = await search_index.indexed_up_to(tx, list(ids))
    room = _MAX_READ
    for place, (state, index_state) in enumerate(index_states.items()):
        upto = covered.get(index_state.index_id or 0, 0)
        if index_state.top > upto:
            tail, read = await _tail(tx, state, index_state, upto, room)
            room -= read
            board.add(place, tail)
    owners = list(index_states)
    best = board.best(len(owners), sum(state.top for state in index_states.values()))
    order = np.argsort(-best, kind="stable")[:most]
    return [owners[place] for place in order.tolist() if best[place] > 0]


class _ScoreBoard:
    """Scores of texts: a stretch of `RANGE` places for each segment, and one for each tail."""

    def __init__(self, terms: Sequence[str]) -> None:
        self._terms = terms
        self._stretches: dict[tuple[int, int], int] = {}
        self._owners: list[int] = []
        self._posted: dict[str, tuple[list[bytes], list[int], list[int]]] = {
            term: ([], [], []) for term in terms
        }
        self._tail_rows: dict[str, list[tuple[int, int]]] = {term: [] for term in terms}

    def _stretch(self, owner: int, first: int) -> int:
        result = self._stretches.get((owner, first))
        if result is None:
            result = self._stretches[owner, first] = len(self._owners)
            self._owners.append(owner)
        return result

    def post(self, owner: int, first: int, term: str, posted: bytes) -> None:
        """Take in where a term is in a segment."""
        blobs, stretches, lengths = self._posted[term]
        blobs.append(posted)
        stretches.append(self._stretch(owner, first))
        lengths.append(len(posted) // 2)

    def add(self, owner: int, tail: _Tail) -> None:
        """Take in where terms are in a tail."""
        for term in self._terms:
            if term in tail:
                start = self._stretch(owner, 0) * RANGE
                self._tail_rows[term] += [(start + row, often) for row, often in tail[term]]

    def best(self, owners: int, texts: int) -> NDArray[np.float32]:
        """Return the score of the best text of each index."""
        import numpy as np

        scores = np.zeros(len(self._owners) * RANGE, dtype=np.float32)
        for term in self._terms:
            blobs, stretches, lengths = self._posted[term]
            codes = np.frombuffer(b"".join(blobs), dtype="<u2")
            starts = np.repeat(np.array(stretches, dtype=np.int64) * RANGE, lengths)
            rows_of_codes = np.minimum(codes >> 4, RANGE - 1)
            tail_rows = np.array(self._tail_rows[term], dtype=np.int64).reshape(-1, 2)
            rows = np.concatenate([starts + rows_of_codes, tail_rows[:, 0]])
            often = np.concatenate([(codes & MAX_COUNT).astype(np.float32), tail_rows[:, 1]])
            if not len(rows):
                continue
            rare = math.log(1 + (max(texts, len(rows)) - len(rows) + 0.5) / (len(rows) + 0.5))
            scores[rows] += (rare * often / (often + _K1)).astype(np.float32)
        result = np.zeros(owners, dtype=np.float32)
        if len(self._owners):
            highest = scores.reshape(-1, RANGE).max(axis=1)
            np.maximum.at(result, np.array(self._owners), highest)
        return result


async def _tail(
    tx: Connection, index_key: IndexKey, index_state: IndexState, upto: int, room: int
) -> tuple[_Tail, int]:
    """Return where terms are in texts without a segment, and how many texts were read."""
    key = (index_state.database, *index_key)
    version = (index_state.removals, index_state.top, upto)
    with _lock:
        known = _tails.get(key)
        if known is not None and known[0] == version:
            _tails.move_to_end(key)
            return known[1], 0
    if room <= 0:
        return {}, 0
    first = max(upto + 1, index_state.top - _SHORT + 1)
    texts = await read_texts(tx, *index_key, first, index_state.top)
    tail: _Tail = {}
    for row, raw in enumerate(texts):
        for term, often in Counter(terms_of(words(raw.text))).items():
            tail.setdefault(term, []).append((row, min(often, MAX_COUNT)))
    with _lock:
        _tails[key] = (version, tail)
        while len(_tails) > _MAX_TAILS:
            _tails.popitem(last=False)
    return tail, len(texts)


def clear() -> None:
    """Keep no tails any more."""
    with _lock:
        _tails.clear()
