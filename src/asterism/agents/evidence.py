"""What was said and read in a context, and by whom: what the judgement of a call rests on.

Only entries that everyone present may hear count, and only the words of the one who speaks ask for
anything: what the owner said in private vouches for nothing in somebody else's turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.agents.account import Account, Declares, Said, speaker_of
from asterism.agents.held import held
from asterism.memory import blocks
from asterism.memory.lines import is_visible
from asterism.permissions.intent import TrustedText
from asterism.permissions.provenance import Evidence, reading_of
from asterism.permissions.readings import Reading
from asterism.store.database import Connection
from asterism.store.journal import Told
from asterism.types.effects import results_of
from asterism.types.people import OWNER, Trust
from asterism.types.turns import Call, trust_of

if TYPE_CHECKING:
    from asterism.agents.turn import Turn

_MAX_ENTRIES = 400
"""How far back the context is gone through; what is older than that vouches for nothing."""


async def evidence_of(turn: Turn) -> Evidence | None:
    """Return what trusted people have said and what was read in the context of a turn.

    None if nobody who is trusted asks for anything here.
    """
    account = turn.context.account
    if account is None or account.first != turn.context.epoch.first_seq or account.is_long:
        account = turn.context.account = await _open_account(turn)
    if account.upto < turn.live.length:
        await _catch_up(turn, account)
    for key, entry in turn.recorded.items():
        trust = turn.speaker_trust if key == "in" else trust_of(entry.meta, None)
        account.take(turn.id, entry, trust, _declares(turn))
    request, text = _trusted_text(turn, account)
    if request is None or text is None:
        return None
    evidence = Evidence(text)
    evidence.readings = account.readings
    evidence.requested_at = request.read_before
    return evidence


def _trusted_text(turn: Turn, account: Account) -> tuple[Said | None, TrustedText | None]:
    """Return the request of the one who speaks, and what a reader may see: it and what vouches."""
    by_owner = OWNER in turn.people
    opening = turn.recorded.get("in")
    speaker = OWNER if by_owner else speaker_of(opening) if opening is not None else ""
    requests = [
        place
        for place, one in enumerate(account.said)
        if one.speaker == speaker and (one.trust is Trust.OWNER or not by_owner)
    ]
    if not requests:
        return None, None
    latest = requests[-1]
    others = account.said[:latest] + account.said[latest + 1 :]
    earlier = [turn.agent.system, *account.blocks.get(Trust.OWNER, ())]
    earlier += [one.text for one in others if one.trust is Trust.OWNER]
    known = [*account.blocks.get(Trust.KNOWN, ())]
    known += [one.text for one in others if one.trust is Trust.KNOWN]
    return account.said[latest], TrustedText(
        account.said[latest].text,
        tuple(one for one in earlier if one.strip()),
        tuple(one for one in known if one.strip()),
        by_owner=by_owner,
        sources=_sources(turn),
    )


def _sources(turn: Turn) -> tuple[str, ...]:
    """Return the labels of what the agent can read; only those that an owner's side has given."""
    toolbox = turn.means.toolbox
    tools = (toolbox.get(name, turn.agent.tools) for name in toolbox.names(turn.agent.tools))
    labels = {results_of(tool.declared_effects).source for tool in tools if tool is not None}
    return tuple(sorted(labels - {""}))


async def _open_account(turn: Turn) -> Account:
    """Begin an account with what the agent was told to be, and what blocks tell those present."""
    participants = turn.context.participants
    seen = await turn.means.database.read(
        lambda tx: blocks.seen_by(tx, turn.live.constellation, turn.agent.id)
    )
    lines: dict[Trust, list[str]] = {}
    for one in seen:
        if one.block.id not in turn.context.shown:
            continue
        for line in one.lines:
            if is_visible(one.block.schema, line, one.block.audience, participants):
                lines.setdefault(line.label.trust, []).append(line.text)
    first = turn.context.epoch.first_seq
    return Account(
        first,
        max(first - 1, turn.live.length - _MAX_ENTRIES),
        {trust: tuple(texts) for trust, texts in lines.items()},
    )


async def _catch_up(turn: Turn, account: Account) -> None:
    """Take in what the journal has got since the account was last looked at."""
    first, last = account.upto + 1, turn.live.length

    async def read(tx: Connection) -> list[Told]:
        return await held(tx, turn.agent.id, turn.context.participants, None, first, last)

    declares = _declares(turn)
    for one in await turn.means.database.read(read):
        account.take(one.turn_id, one, one.trust, declares)
    account.upto = last


def _declares(turn: Turn) -> Declares:
    """Return what makes a reading of a result, with what its tool declares of it."""
    toolbox = turn.means.toolbox

    def reading(call: Call, text: str, trust: Trust, key: str) -> Reading:
        name, arguments = toolbox.meant(call.name, call.arguments)
        try:
            told: Any = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError:
            told = {}
        given = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
        tool = toolbox.get(name, turn.agent.tools)
        if tool is None:
            return Reading(name, text, trust, arguments=given, key=key)
        try:
            effects = tool.effects(given)
        except (KeyError, TypeError, ValueError, AttributeError):
            effects = ()  # a call that its tool refused
        return reading_of(name, text, trust, given, effects, results_of(tool.declared_effects), key)

    return reading
