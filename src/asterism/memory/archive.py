"""Reading archives: what they hold, what they held at a moment, and how a passage came about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import NotFound
from asterism.store import agents, passages
from asterism.store.agents import PassageOwner
from asterism.store.database import Connection
from asterism.store.passages import PassageEdit, read_origins
from asterism.types.agents import OWNER_ALONE, Audience, Participants, Trust
from asterism.types.memory import Passage, Source

_PAGE = 200


async def archives_of(tx: Connection, constellation: str, agent_id: str) -> list[PassageOwner]:
    """Return the archives that an agent reads: its own, then the sources attached to it."""
    own = await passages.archive(tx, constellation, agent_id)
    if own is None:
        raise NotFound(f'There is no agent {agent_id!r}. "asterism agent list" shows all.')
    return [own, *await agents.attached(tx, agent_id)]


async def get(
    tx: Connection,
    constellation: str,
    passage_id: str,
    *,
    participants: Participants = OWNER_ALONE,
    moment: int | None = None,
) -> Passage:
    """Return a passage as it is, or as it was at a moment, also passage that no longer holds.

    What those present may not see is not there.
    """
    found = await passages.get(tx, constellation, passage_id)
    if found is not None and not participants.can_see(found.source.audience):
        found = None  # also if they might have heard it then
    if found is not None and moment is not None:
        after = await passages.edits_after(tx, [passage_id], moment)
        found = rewound(found, after.get(passage_id, ())) if found.known_from <= moment else None
    if found is None or not participants.can_see(found.source.audience):
        when = "" if moment is None else " at that time"
        raise NotFound(f"There is no passage {passage_id!r}{when}. Search for it to learn its id.")
    return found


async def listing(
    tx: Connection,
    archive_ids: Sequence[str],
    *,
    participants: Participants = OWNER_ALONE,
    tag: str | None = None,
    moment: int | None = None,
    limit: int = 50,
    before: str | None = None,
) -> list[Passage]:
    """Return passages that hold, or held at a moment, the latest known first.

    Args:
        participants: Those present; what they may not see is left out.
        tag: Only those that have it.
        moment: When; None: now.
        limit: How many.
        before: The id of the last passage of the page before.
    """
    found: list[Passage] = []
    after: tuple[int, str] | None = None
    if before is not None:
        last = (await passages.many(tx, [before])).get(before)
        if last is None or last.archive_id not in archive_ids:
            raise NotFound(
                f"There is no passage {before!r} to go on from. Start at the first page."
            )
        after = (last.known_from, last.id)
    wanted = " ".join(tag.split()).casefold() if tag is not None else None
    while len(found) < limit:
        page = await passages.newest(
            tx,
            archive_ids,
            _PAGE,
            holding=moment is None,
            # At an earlier moment a passage may have had other tags.
            tags=(wanted,) if wanted is not None and moment is None else (),
            known_until=moment,
            before=after,
        )
        if not page:
            break
        after = (page[-1].known_from, page[-1].id)
        now = [passage for passage in page if participants.can_see(passage.source.audience)]
        then = now if moment is None else await as_of(tx, now, moment)
        found += [
            passage
            for passage in then
            if participants.can_see(passage.source.audience)
            and (wanted is None or wanted in passage.tags)
        ]
    return found[:limit]


async def history(
    tx: Connection, constellation: str, passage_id: str, *, participants: Participants = OWNER_ALONE
) -> list[PassageEdit]:
    """Return what was done to a passage after it was stored, in order.

    What it said when it was not for those present to see is left out.
    """
    found = await get(tx, constellation, passage_id, participants=participants)
    edits = await passages.edits(tx, passage_id)
    if participants.owner_alone:
        return edits
    kept: list[PassageEdit] = []
    for edit in reversed(edits):
        found = before(found, edit)
        if not participants.can_see(found.source.audience):
            break
        kept.append(edit)
    return kept[::-1]


async def visible_history(
    tx: Connection, constellation: str, passage_id: str, participants: Participants
) -> list[PassageEdit]:
    """Return the history of a passage; nothing of passage that those present may not see."""
    try:
        return await history(tx, constellation, passage_id, participants=participants)
    except NotFound:
        return []


async def as_of(tx: Connection, many: Sequence[Passage], moment: int) -> list[Passage]:
    """Return those of some passages that held at a moment, as they were then."""
    after = await passages.edits_after(tx, [passage.id for passage in many], moment)
    then = (rewound(passage, after.get(passage.id, ())) for passage in many)
    return [passage for passage in then if passage.held_at(moment)]


def rewound(passage: Passage, edits: Sequence[PassageEdit]) -> Passage:
    """Return a passage as it was before some edits, the latest of which comes first."""
    for edit in edits:
        passage = before(passage, edit)
    return passage


def before(passage: Passage, edit: PassageEdit) -> Passage:
    """Return a passage as it was before its latest edit."""
    was = edit.before
    source = passage.source
    changes: dict[str, Any] = {
        name: was[name]
        for name in ("text", "superseded_by", "superseded_at", "retracted_at")
        if name in was
    }
    if "tags" in was:
        changes["tags"] = tuple(orjson.loads(was["tags"]))
    if "metadata" in was:
        changes["metadata"] = orjson.loads(was["metadata"])
    return replace(
        passage,
        **changes,
        source=Source(
            read_origins(was["origins"]) if "origins" in was else source.origins,
            Audience.read(was["audience"]) if "audience" in was else source.audience,
            Trust(was["trust"]) if "trust" in was else source.trust,
        ),
    )
