"""What a context holds in full: the originals beside its summary, then the journal itself."""

from __future__ import annotations

from asterism.store import journal
from asterism.store.database import Connection
from asterism.types.people import Audience, Participants
from asterism.types.summaries import Summary


async def held(
    tx: Connection,
    agent_id: str,
    participants: Participants,
    summary: Summary | None,
    first: int,
    last: int,
) -> list[journal.Told]:
    """Return what those present may hear: a summary's kept originals, then a stretch of entries."""
    rows: list[journal.Told] = []
    for seq in summary.kept if summary is not None else ():
        rows += await journal.told(tx, agent_id, seq, seq)
    rows += await journal.told(tx, agent_id, first, last)
    return audible(rows, participants)


def audible(rows: list[journal.Told], participants: Participants) -> list[journal.Told]:
    """Return of some entries those that the participants may see."""
    if participants.owner_alone:
        return rows
    heard = {
        text: participants.can_see(Audience.of_turn(text)) for text in {r.audience for r in rows}
    }
    return [one for one in rows if heard[one.audience]]
