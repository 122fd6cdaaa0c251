"""Search: messages, passages, documents, blocks and summaries, ranked as one for those present."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from asterism.config.load import CurrentSettings
from asterism.errors import AsterismError, NotFound
from asterism.memory import people
from asterism.memory.words import words
from asterism.ports import Clock, Encoder
from asterism.search.encode import encode_question, without
from asterism.search.index import IndexKey, encoder_counts, load_indexes
from asterism.search.postings import best_indexes
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
    unindexed_texts,
)
from asterism.store import agents, journal
from asterism.store.agents import PassageOwner
from asterism.store.database import Connection, Database, Work
from asterism.store.search_index import ARCHIVE, JOURNAL
from asterism.telemetry.redaction import SECRETS, redact
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
    constellation: str,
    agent_id: str | None,
    query: Query,
    *,
    participants: Participants,
    now: int,
    asked: QueryVector | None = None,
) -> SearchResult:
    """Return what memory has on a query, the best first; any text is a query.

    Args:
        agent_id: Whose memory; None: that of all agents.
        query: What is looked for, and where.
        participants: Those present; what one of them may not see is not there.
        now: From when days such as `last week` are counted.
        asked: The query's vector, if there is an encoder.
    """
    ranker = await prepare(tx, constellation, agent_id, query, participants=participants, now=now)
    if not len(ranker.candidates.texts):
        return SearchResult(notes=ranker.notes)
    result = await read_page(ranker, await ranker.rank(asked))
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
    constellation: str,
    agent_id: str | None,
    query: Query,
    *,
    participants: Participants,
    now: int,
) -> Ranker:
    """Read the question, and take all texts from the indexes that may answer it."""
    if agent_id is not None and not await agents.is_agent_of(tx, constellation, agent_id):
        raise NotFound(f'There is no agent {agent_id!r}. "asterism agent list" shows all.')
    sources: dict[str, PassageOwner] = {}
    targets: list[_Target] = []
    notes: tuple[str, ...] = ()
    if query.looked_at:
        possible = await _targets(tx, constellation, agent_id, query, sources)
        targets = await _selected(tx, constellation, query, possible)
        notes = _selection_notes(possible, targets, query, participants)
    candidates = await _gather_candidates(tx, constellation, targets, query, participants, sources)
    visible = visible_rows(candidates.texts, query, participants)
    agent_ids = list(dict.fromkeys(target.agent_id for target in targets))
    # Names of those who spoke only elsewhere are words like others.
    labels = speaker_labels(candidates.texts, visible)
    speakers = await speakers_of(tx, constellation, labels, agent_ids)
    question = read_question(query.text, speakers.names, asker_of(participants), AGENT, now)
    reader = HitReader(tx, query, participants, speakers, sources, candidates.unindexed)
    return Ranker(tx, query, participants, candidates, visible, speakers, question, reader, notes)


async def _targets(
    tx: Connection,
    constellation: str,
    agent_id: str | None,
    query: Query,
    sources: dict[str, PassageOwner],
) -> dict[tuple[str, str], _Target]:
    """Return the indexes that may be looked at, each with the agent on whose behalf."""
    looked_at = set(query.looked_at)
    members = [agent_id] if agent_id is not None else await agents.ids(tx, constellation)
    kinds = [kind for kind, domain in _DOMAINS.items() if domain in looked_at]
    targets = {
        (kind, member): _Target(kind, member, member) for member in members for kind in kinds
    }
    if "documents" in looked_at:
        for source, reader in await _sources(tx, constellation, agent_id):
            if query.source in (None, source.name, source.id):
                sources[source.id] = source
                targets[ARCHIVE, source.id] = _Target(ARCHIVE, source.id, reader)
    if not targets:
        targets = {("", member): _Target("", member, member) for member in members}
    return targets


async def _sources(
    tx: Connection, constellation: str, agent_id: str | None
) -> list[tuple[PassageOwner, str]]:
    """Return the sources that an agent, or any of them, may read, each with one who may."""
    if agent_id is None:
        return await agents.attached_to_any(tx, constellation)
    return [(source, agent_id) for source in await agents.attached(tx, agent_id)]


async def _selected(
    tx: Connection, constellation: str, query: Query, possible: dict[tuple[str, str], _Target]
) -> list[_Target]:
    """Return all of a few indexes, or those of many that fit a query best."""
    indexed = [key for key in possible if key[0]]
    if not indexed or len(possible) <= MAX_INDEXES:
        return list(possible.values())
    terms = terms_of(words(query.text[:MAX_CHARACTERS]))
    if terms:
        return [possible[key] for key in await best_indexes(tx, indexed, terms, _BEST)]
    latest = await journal.turns_of(tx, constellation, None, _LATEST)
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
    constellation: str,
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
        unindexed += await unindexed_texts(tx, constellation, agent_id, query, participants)
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


async def names_for(tx: Connection, constellation: str, owner_id: str) -> list[str]:
    """Return the names of all persons, and of the agent whose texts they are if it is one's."""
    result = [name for _, name in await people.people_names(tx, constellation)]
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
        self._kept: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()
        self._rests: dict[str, float] = {}
        self._told: set[str] = set()

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
        asked = without(names, question)
        selected = self._kept.get((name, asked))
        if selected is None:
            selected = await self._ask(name, asked)
            if selected is None:
                return None
            self._kept[name, asked] = selected
            if len(self._kept) > _MAX_CACHED:
                self._kept.popitem(last=False)
        self._kept.move_to_end((name, asked))
        return selected

    async def _ask(self, name: str, asked: str) -> NDArray[np.float32] | None:
        try:
            encoder = self._encoder(name)
            if encoder is None:
                return None
            async with asyncio.timeout(_PATIENCE):
                output = await encode_question(encoder, asked)
        except TimeoutError:
            message = f"The encoder {name!r} gave no answer within {_PATIENCE:g} seconds."
        except AsterismError as error:
            message = error.message
        else:
            self._told.discard(name)
            return output
        self._rests[name] = time.monotonic() + _REST
        if name not in self._told:
            self._told.add(name)
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
        constellation: str,
        clock: Clock,
        query_encoder: QueryEncoder,
        settings: CurrentSettings,
    ) -> None:
        self._database = database
        self._constellation = constellation
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
        asked = await self._vector(whose, query)
        now = self._clock()

        async def read(tx: Connection) -> SearchResult:
            return await search(
                tx,
                self._constellation,
                await whose(tx),
                query,
                participants=await present(tx),
                now=now,
                asked=asked,
            )

        return await self._database.read(read)

    async def _vector(self, whose: Work[str | None], query: Query) -> QueryVector | None:
        """Return the query's vector, or None where no encoder is wanted or it cannot answer."""
        wanted = self._settings.current.search.encoder
        if wanted == "none" or not query.text.strip():
            return None

        async def look(tx: Connection) -> tuple[str | None, list[str]]:
            agent_id = await whose(tx)
            agent_ids = [agent_id] if agent_id else await agents.ids(tx, self._constellation)
            indexes = [(kind, owner) for owner in agent_ids for kind in (JOURNAL, ARCHIVE)]
            return (
                await encoder_in_use(tx, indexes, wanted),
                await names_for(tx, self._constellation, agent_id or ""),
            )

        name, names = await self._database.read(look)
        vector = await self._query_encoder.vector(name, query.text[:MAX_CHARACTERS], names)
        return None if name is None or vector is None else QueryVector(name, vector)
