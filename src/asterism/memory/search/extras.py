"""What is searched without an index: blocks, summaries, and the former words of passages."""

from __future__ import annotations

from dataclasses import dataclass

from asterism.memory import archive, blocks, history
from asterism.memory.search.stored import analysis_of
from asterism.memory.search.texts import Placed
from asterism.store import passages, summaries
from asterism.store.database import Connection
from asterism.store.passages import Archive
from asterism.types.memory import Origin, OriginKind, Source
from asterism.types.people import Participants
from asterism.types.search import HitKind, Query

_MOST = 2_000


@dataclass(frozen=True, slots=True)
class Extra:
    """A line of a block, a summary, or a passage in its former words."""

    kind: HitKind
    id: str
    text: str
    at: int
    source: Source
    where: str
    agent_id: str

    def placed(self, number: int) -> Placed:
        """Return it with what it is found by."""
        thread = f"{self.kind.value}:{self.where or self.id}"
        found = analysis_of(self.text, self.at)
        return Placed(number, self.at, "", thread, str(self.source.audience), found)


async def extras_of(
    tx: Connection, constellation: str, agent_id: str, query: Query, participants: Participants
) -> list[Extra]:
    """Return the lines of blocks and the summaries of an agent that those present may hear."""
    found: list[Extra] = []
    if "blocks" in query.looked_at:
        found += await _lines(tx, constellation, agent_id, query, participants)
    if "summaries" in query.looked_at:
        found += [
            Extra(
                HitKind.SUMMARY,
                one.id,
                one.text,
                one.at,
                Source((Origin(OriginKind.SUMMARY, one.id),), one.audience, one.trust),
                "",
                agent_id,
            )
            for one in (await summaries.of_agent(tx, agent_id))[-_MOST:]
            if participants.can_see(one.audience)
        ]
    return [one for one in found if query.moment is None or one.at <= query.moment]


def tags_of(query: Query) -> frozenset[str]:
    """Return the tags that are asked for, as they are stored."""
    return frozenset(" ".join(tag.split()).casefold() for tag in query.tags)


async def wordings_of(
    tx: Connection,
    archive_id: str,
    agent_id: str,
    source: Archive | None,
    query: Query,
    participants: Participants,
) -> list[Extra]:
    """Return the passages that read otherwise at the moment that is asked about, as they did."""
    if query.moment is None:
        return []
    tags = tags_of(query)
    changed = await passages.worded_otherwise(tx, archive_id, query.moment)
    documents = {one.passage.id: one.document for one in changed}
    then = await archive.as_of(tx, [one.passage for one in changed], query.moment)
    now = {one.passage.id: one.passage.text for one in changed}
    return [
        Extra(
            HitKind.PASSAGE if source is None else HitKind.DOCUMENT,
            one.id,
            one.text,
            one.known_from,
            one.source,
            "" if source is None else f"{source.name}/{documents[one.id] or ''}".rstrip("/"),
            agent_id,
        )
        for one in then
        if one.text != now[one.id]
        and participants.can_see(one.source.audience)
        and tags <= set(one.tags)
    ][:_MOST]


async def _lines(
    tx: Connection, constellation: str, agent_id: str, query: Query, participants: Participants
) -> list[Extra]:
    found: list[Extra] = []
    for seen in await blocks.seen_by(tx, constellation, agent_id):
        block = seen.block
        if not participants.can_see(block.audience):
            continue
        lines, at = list(seen.lines), block.updated_at
        if query.moment is not None:
            at = min(at, query.moment)
            if block.created_at > query.moment:
                continue
            lines = await history.lines_at(tx, block.id, moment=query.moment)
        # Lines are counted as those present see them, so that a gap does not tell of one.
        heard = [line for line in lines if participants.can_see(line.label.audience)]
        for number, line in enumerate(heard, 1):
            if line.text.strip():
                # Where a line comes from is in its edits, which `why` reads.
                source = Source((), line.label.audience, line.label.trust)
                id = f"{seen.name}:{number}"
                found.append(Extra(HitKind.BLOCK, id, line.text, at, source, seen.name, agent_id))
    return found[:_MOST]
