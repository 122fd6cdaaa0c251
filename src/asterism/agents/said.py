"""What was said and read up to a call, and by whom: what its judgement rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asterism.agents.account import Account, speaker_of
from asterism.memory import blocks
from asterism.permissions.readings import Readings
from asterism.store import journal, people
from asterism.store.database import Connection
from asterism.types.people import OWNER, Tier
from asterism.types.turns import Entry

if TYPE_CHECKING:
    from asterism.agents.turn import Turn

_MOST_ENTRIES = 400
"""How far back the context is gone through; what is older than that vouches for nothing."""
_STILL_ASKED = 2
"""How many earlier messages still count as requests: "yes, do it" means the one before."""


async def readings_of(turn: Turn) -> Readings:
    """Return what trusted people have said and what was read in the context of a turn."""
    account = turn.context.account
    if account is None or account.first != turn.context.epoch.first_seq or account.is_long:
        account = turn.context.account = await _open_account(turn)
    if account.upto < turn.live.length:
        await _catch_up(turn, account)
    if (opening := turn.recorded.get("in")) is not None:
        account.speaks(speaker_of(opening), turn.speaker_tier)
    for key, entry in turn.recorded.items():
        account.take(turn.id, key, entry)
    account.ask_of(_STILL_ASKED + 1)
    return account.readings


async def _open_account(turn: Turn) -> Account:
    """Begin an account with what the agent was told to be, and what trusted people told it."""
    seen = await turn.means.database.read(
        lambda tx: blocks.seen_by(tx, turn.live.constellation, turn.agent.id)
    )
    lines = [
        line.text
        for one in seen
        if one.block.id in turn.context.shown
        for line in one.lines
        if line.mark.tier.trusted
    ]
    first = turn.context.epoch.first_seq
    account = Account(first, max(first - 1, turn.live.length - _MOST_ENTRIES))
    account.readings.trust("\n".join([turn.agent.system, *lines]))
    return account


async def _catch_up(turn: Turn, account: Account) -> None:
    """Take in what the journal has got since the account was last looked at."""
    first, last = account.upto + 1, turn.live.length

    async def read(tx: Connection) -> tuple[list[Entry], dict[str, Tier]]:
        entries = await journal.newest(tx, turn.agent.id, first, last, _MOST_ENTRIES)
        tiers: dict[str, Tier] = {}
        for person_id in {speaker_of(one) for one in entries} - {None, OWNER}:
            assert person_id is not None
            found = await people.get(tx, turn.live.constellation, person_id)
            tiers[person_id] = found.tier if found is not None else Tier.STRANGER
        return entries, tiers

    entries, tiers = await turn.means.database.read(read)
    for person_id, tier in tiers.items():
        account.speaks(person_id, tier)
    for entry in entries:
        account.take(entry.turn_id, entry.key, entry)
    account.upto = last
