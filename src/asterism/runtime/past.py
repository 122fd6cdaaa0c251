"""A past from elsewhere: a conversation that becomes finished turns of an agent."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.runtime.checks import check_text
from asterism.store import inbox, journal
from asterism.store.database import Connection
from asterism.store.journal import Draft
from asterism.types.ids import new_id, turn_id_for
from asterism.types.turns import EntryKind, Reply, TurnRecord, TurnState
from asterism.types.wire import message_wire

Past = list[tuple[str, list[Draft]]]
"""The entries of turns by the turn's id, oldest first."""


def read_past(messages: Sequence[tuple[str, str]], at: int) -> Past:
    """Return a conversation as turns, each begun by a message of the user."""
    past: Past = []
    for index, (role, text) in enumerate(messages, 1):
        if role not in ("user", "assistant") or not (past or role == "user"):
            raise InvalidInput(
                f"Message {index} is of the role {role!r}; a conversation is imported as messages "
                "of 'user' and 'assistant', the first of 'user'. Nothing was imported."
            )
        body = message_wire(role, check_text(text))
        if role == "user":
            past.append((turn_id_for(new_id("msg")), [Draft(EntryKind.MESSAGE, "in", body, at)]))
        else:
            entries = past[-1][1]
            key = f"{len(entries) - 1}/reply"
            entries.append(Draft(EntryKind.REPLY, key, body, at, Reply(text).meta()))
    return past


async def append_past(tx: Connection, agent_id: str, past: Past, at: int) -> None:
    """Append finished turns to the journal of an agent that has nothing to do."""
    # The claim voids what is in the memory of other processes, and keeps messages out till the end.
    if await journal.claim(tx, agent_id) is None:
        raise NotFound(f"There is no agent {agent_id}. Nothing was imported.")
    if await inbox.first(tx, agent_id) or await journal.interrupted(tx, agent_id):
        raise Conflict(
            "The agent has something to answer first. Wait until it has, then import. "
            "Nothing was imported."
        )
    standing = await journal.standing(tx, agent_id)
    assert standing is not None
    claim, length = standing
    for turn_id, drafts in past:
        await journal.append(tx, claim, length, turn_id, drafts)
        first, length = length + 1, length + len(drafts)
        record = TurnRecord(
            id=turn_id,
            agent_id=agent_id,
            state=TurnState.DONE,
            channel="import",
            reply_to=None,
            first_seq=first,
            last_seq=length,
            opened_at=at,
            ended_at=at,
        )
        await journal.open_turn(tx, record, length)
