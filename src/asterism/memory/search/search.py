"""Search: messages, passages, documents, blocks and summaries, ranked as one for those present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from asterism.errors import NotFound
from asterism.memory.search.across import across
from asterism.memory.search.analysis import terms_of
from asterism.memory.search.extras import Extra, extras_of, wordings_of
from asterism.memory.search.hits import Reader
from asterism.memory.search.index import load_many
from asterism.memory.search.looking import Encoded, Held, Looking, heard_of, speaking
from asterism.memory.search.page import page
from asterism.memory.search.question import MOST_CHARACTERS
from asterism.memory.search.question import read as read_question
from asterism.memory.search.speakers import asker_of, speakers_of
from asterism.memory.search.stored import AGENT
from asterism.memory.search.texts import concatenate, gather
from asterism.memory.words import words
from asterism.store import agents, journal, passages
from asterism.store.database import Connection
from asterism.store.passages import Archive
from asterism.store.shelves import ARCHIVE, JOURNAL
from asterism.telemetry.redaction import SECRETS, redact
from asterism.types.people import Participants
from asterism.types.search import Found, Hit, Query

__all__ = ["Encoded", "begin", "search"]

MOST_SHELVES = 40
"""How many shelves are all looked at closely."""
_BEST = 12
"""Of more, so many are: those with the best texts by their words."""
_SHELVES = {JOURNAL: "messages", ARCHIVE: "passages"}
_LATEST = 100
"""How many turns tell which agents spoke last."""


@dataclass(frozen=True, slots=True)
class _Whose:
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
    asked: Encoded | None = None,
) -> Found:
    """Return what memory has on a query, the best first; any text is a query.

    Args:
        agent_id: Whose memory; None: that of all agents.
        query: What is looked for, and where.
        participants: Those present; what one of them may not hear is not there.
        now: From when days such as `last week` are counted.
        asked: The query's vector, if there is an encoder.
    """
    looking = await begin(tx, constellation, agent_id, query, participants=participants, now=now)
    if not len(looking.held.texts):
        return Found(notes=looking.told)
    found = await page(looking, await looking.rank(asked))
    return replace(found, hits=[*map(_without_keys, found.hits)]) if SECRETS.order else found


def _without_keys(hit: Hit) -> Hit:
    """Return a hit without known keys: it may be older than they are, or written by the owner."""
    text = redact(hit.text)
    return replace(
        hit,
        text=text,
        why=tuple(replace(one, text=redact(one.text)) for one in hit.why),
        speaker=redact(hit.speaker),
        where=redact(hit.where),
        matched=hit.matched if text is hit.text else tuple(w for w in hit.matched if w in text),
        before=tuple(replace(one, text=redact(one.text)) for one in hit.before),
        after=tuple(replace(one, text=redact(one.text)) for one in hit.after),
    )


async def begin(
    tx: Connection,
    constellation: str,
    agent_id: str | None,
    query: Query,
    *,
    participants: Participants,
    now: int,
) -> Looking:
    """Read the question, and take all texts from the shelves that may answer it."""
    if agent_id is not None and not await passages.is_agent_of(tx, constellation, agent_id):
        raise NotFound(f'There is no agent {agent_id!r}. "asterism agent list" shows all.')
    sources: dict[str, Archive] = {}
    whose: list[_Whose] = []
    told: tuple[str, ...] = ()
    if query.looked_at:
        there = await _whose(tx, constellation, agent_id, query, sources)
        whose = await _looked_at(tx, constellation, query, there)
        told = _left_out(there, whose, query, participants)
    held = await _hold(tx, constellation, whose, query, participants, sources)
    heard = heard_of(held.texts, query, participants)
    agent_ids = list(dict.fromkeys(one.agent_id for one in whose))
    # Names of those who spoke only elsewhere are words like others.
    labels = speaking(held.texts, heard)
    speakers = await speakers_of(tx, constellation, labels, agent_ids)
    question = read_question(query.text, speakers.names, asker_of(participants), AGENT, now)
    reader = Reader(tx, query, participants, speakers, sources, held.extras)
    return Looking(tx, query, participants, held, heard, speakers, question, reader, told)


async def _whose(
    tx: Connection,
    constellation: str,
    agent_id: str | None,
    query: Query,
    sources: dict[str, Archive],
) -> dict[tuple[str, str], _Whose]:
    """Return the shelves that may be looked at, each with the agent on whose behalf."""
    looked_at = set(query.looked_at)
    members = [agent_id] if agent_id is not None else await agents.ids(tx, constellation)
    kinds = [kind for kind, domain in _SHELVES.items() if domain in looked_at]
    found = {(kind, one): _Whose(kind, one, one) for one in members for kind in kinds}
    if "documents" in looked_at:
        for source, reader in await _sources(tx, constellation, agent_id):
            if query.source in (None, source.name, source.id):
                sources[source.id] = source
                found[ARCHIVE, source.id] = _Whose(ARCHIVE, source.id, reader)
    if not found:
        found = {("", one): _Whose("", one, one) for one in members}
    return found


async def _sources(
    tx: Connection, constellation: str, agent_id: str | None
) -> list[tuple[Archive, str]]:
    """Return the sources that an agent, or any of them, may read, each with one who may."""
    if agent_id is None:
        return await passages.attached_to_any(tx, constellation)
    return [(one, agent_id) for one in await passages.attached(tx, agent_id)]


async def _looked_at(
    tx: Connection, constellation: str, query: Query, found: dict[tuple[str, str], _Whose]
) -> list[_Whose]:
    """Return all of a few shelves, or those of many that fit a query best."""
    indexed = [one for one in found if one[0]]
    if not indexed or len(found) <= MOST_SHELVES:
        return list(found.values())
    terms = terms_of(words(query.text[:MOST_CHARACTERS]))
    if terms:
        return [found[one] for one in await across(tx, indexed, terms, _BEST)]
    latest = await journal.turns_of(tx, constellation, None, _LATEST)
    ids = {one.agent_id for one in latest}
    return [one for one in found.values() if one.agent_id in ids][:_BEST]


def _left_out(
    there: Mapping[tuple[str, str], _Whose],
    chosen: Sequence[_Whose],
    query: Query,
    participants: Participants,
) -> tuple[str, ...]:
    """Tell if not all shelves are looked at."""
    if len(chosen) == len(there):
        return ()
    owners = len({one.owner_id for one in there.values()})
    few = len({one.owner_id for one in chosen})
    # How many there are is for those who may hear all of them.
    of_all = (
        f"{few} of {owners:,} agents and sources" if participants.owner_alone else "some of many"
    )
    by = "whose texts fit best by their words" if query.text.strip() else "who spoke last"
    return (f"Only {of_all} were searched closely, those {by}; name one to search all it has.",)


async def _hold(
    tx: Connection,
    constellation: str,
    whose: Sequence[_Whose],
    query: Query,
    participants: Participants,
    sources: Mapping[str, Archive],
) -> Held:
    shelves = [one for one in whose if one.kind]
    loaded = await load_many(tx, [(one.kind, one.owner_id) for one in shelves]) if shelves else []
    extras: list[Extra] = []
    for agent_id in dict.fromkeys(one.agent_id for one in whose):
        extras += await extras_of(tx, constellation, agent_id, query, participants)
    for one in shelves:
        if one.kind == ARCHIVE:
            source = sources.get(one.owner_id)
            extras += await wordings_of(tx, one.owner_id, one.agent_id, source, query, participants)
    unique = list({(one.id, one.text): one for one in extras}.values())
    placed = [one.placed(number) for number, one in enumerate(unique)]
    parts = [one.texts for one in loaded]
    terms: dict[str, tuple[list[int], list[int]]] = {}
    for row, one in enumerate(placed):
        for term, often in one.text.terms.items():
            rows, counts = terms.setdefault(term, ([], []))
            rows.append(row)
            counts.append(often)
    starts: list[int] = []
    count = 0
    for part in parts:
        starts.append(count)
        count += len(part)
    if placed or not parts:
        starts.append(count)
        parts.append(gather(placed))
    agent_of = [one.agent_id for one in shelves]
    return Held(loaded, agent_of, unique, concatenate(parts), starts, terms)
