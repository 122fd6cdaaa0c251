"""What trusted people asked for in a turn, and whether a call does what none of them wanted."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.errors import BudgetReached, ModelError
from asterism.memory import blocks
from asterism.memory.blocks import is_visible
from asterism.permissions.intent import (
    SCHEMA,
    Intent,
    TrustedText,
    answer_of,
    intents_wire,
    question_for,
    read_intents,
    read_literally,
    verify_intents,
)
from asterism.permissions.provenance import Evidence, reading_of
from asterism.permissions.readings import ReadContent
from asterism.ports import ModelQuestion, ModelRequest, Profile
from asterism.store.database import Connection
from asterism.store.journal import VisibleEntry
from asterism.turns.context import ContextReader, Declares, TrustedMessage, entries_for, speaker_of
from asterism.types.agents import OWNER, Trust
from asterism.types.permissions import Doubt, Effect, EffectKind, results_of
from asterism.types.turns import Call, EntryKind, Usage, trust_of

if TYPE_CHECKING:
    from asterism.turns.turn import Turn


def doubt_anything(effects: tuple[Effect, ...]) -> Doubt:
    """Say that nobody who is trusted asked for effects of a call."""
    outside = next((effect for effect in effects if effect.kind.outside), effects[0])
    undeclared = outside.kind is EffectKind.UNDECLARED
    what = "do something that its tool does not declare" if undeclared else str(outside)
    return Doubt(f"it would {what}, and no trusted person asked for it")


async def doubt_about(turn: Turn, key: str) -> Callable[[tuple[Effect, ...]], Doubt | None]:
    """Return a function that says why nobody seems to have asked for effects of a call, if so."""
    from asterism.permissions.provenance import judge as compare

    evidence = await _evidence_of(turn)
    if evidence is None:
        return doubt_anything
    back = {reading.key for reading in evidence.readings}
    evidence.pending = [
        effect
        for other, effects in turn.payments.items()
        if other != key and f"{turn.id}/{other}" not in back
        for effect in effects
    ]
    readings = await _intents_of(turn, evidence.text)

    def doubt(effects: tuple[Effect, ...]) -> Doubt | None:
        for intents in readings:
            concern = compare(evidence, intents, effects)
            if concern is not None:
                return concern
        return None

    return doubt


_MAX_ENTRIES = 400
"""How far back the context is gone through; what is older than that vouches for nothing."""


async def _evidence_of(turn: Turn) -> Evidence | None:
    """Return the words of trusted people and the readings in the context of a turn.

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


def _trusted_text(
    turn: Turn, account: ContextReader
) -> tuple[TrustedMessage | None, TrustedText | None]:
    """Return the request of the one who speaks, and what a reader may see: it and what vouches."""
    by_owner = OWNER in turn.people
    opening = turn.recorded.get("in")
    speaker = OWNER if by_owner else speaker_of(opening) if opening is not None else ""
    requests = [
        place
        for place, message in enumerate(account.messages)
        if message.speaker == speaker and (message.trust is Trust.OWNER or not by_owner)
    ]
    if not requests:
        return None, None
    latest = requests[-1]
    others = account.messages[:latest] + account.messages[latest + 1 :]
    earlier = [turn.agent.system, *account.blocks.get(Trust.OWNER, ())]
    earlier += [message.text for message in others if message.trust is Trust.OWNER]
    known = [*account.blocks.get(Trust.KNOWN, ())]
    known += [message.text for message in others if message.trust is Trust.KNOWN]
    return account.messages[latest], TrustedText(
        account.messages[latest].text,
        tuple(text for text in earlier if text.strip()),
        tuple(text for text in known if text.strip()),
        by_owner=by_owner,
        sources=_sources(turn),
    )


def _sources(turn: Turn) -> tuple[str, ...]:
    """Return the source labels that the agent's tools declare."""
    toolbox = turn.services.toolbox
    tools = (toolbox.get(name, turn.agent.tools) for name in toolbox.names(turn.agent.tools))
    labels = {results_of(tool.declared_effects).source for tool in tools if tool is not None}
    return tuple(sorted(labels - {""}))


async def _open_account(turn: Turn) -> ContextReader:
    """Begin an account with what the agent was told to be, and what blocks tell those present."""
    participants = turn.context.participants
    seen = await turn.live.database.read(lambda tx: blocks.seen_by(tx, turn.agent.id))
    lines: dict[Trust, list[str]] = {}
    for visible in seen:
        if visible.block.id not in turn.context.blocks:
            continue
        for line in visible.lines:
            if is_visible(visible.block.schema, line, visible.block.audience, participants):
                lines.setdefault(line.label.trust, []).append(line.text)
    first = turn.context.epoch.first_seq
    return ContextReader(
        first,
        max(first - 1, turn.live.length - _MAX_ENTRIES),
        {trust: tuple(texts) for trust, texts in lines.items()},
    )


async def _catch_up(turn: Turn, account: ContextReader) -> None:
    """Take in what the journal has got since the account was last looked at."""
    first, last = account.upto + 1, turn.live.length

    async def read(tx: Connection) -> list[VisibleEntry]:
        return await entries_for(tx, turn.agent.id, turn.context.participants, None, first, last)

    declares = _declares(turn)
    for entry in await turn.live.database.read(read):
        account.take(entry.turn_id, entry, entry.trust, declares)
    account.upto = last


def _declares(turn: Turn) -> Declares:
    """Return a function that turns a result into a reading, by its tool's declaration."""
    toolbox = turn.services.toolbox

    def reading(call: Call, text: str, trust: Trust, key: str) -> ReadContent:
        name, arguments = toolbox.resolve_call(call.name, call.arguments)
        try:
            parsed: Any = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError:
            parsed = {}
        fields = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
        tool = toolbox.get(name, turn.agent.tools)
        if tool is None:
            return ReadContent(name, text, trust, arguments=fields, key=key)
        try:
            effects = tool.effects(fields)
        except (KeyError, TypeError, ValueError, AttributeError):
            effects = ()  # a call that its tool refused
        return reading_of(
            name, text, trust, fields, effects, results_of(tool.declared_effects), key
        )

    return reading


_log = logging.getLogger(__name__)
_SCHEMA = orjson.dumps(SCHEMA)
_SECONDS = 60.0
_MAX_OUTPUT = 1_000
LITERAL = "literal"
AUTO = "auto"


async def _intents_of(turn: Turn, text: TrustedText) -> tuple[tuple[Intent, ...], ...]:
    """Return the readings of a request, of which each must cover a call.

    A capable model reads it alone. A small one errs too often, so that the literal reading has to
    agree. Without a model, or if it does not answer, the literal reading stands in.
    """
    models, weak = _reader(turn)
    read = await _read(turn, text, models) if models else None
    if read is None:
        return (verify_intents(read_literally(text), text),)
    readings = [verify_intents(read, text)]
    if weak:
        readings.append(verify_intents(read_literally(text), text))
    return tuple(readings)


def _reader(turn: Turn) -> tuple[tuple[str, ...], bool]:
    """Return the models that are asked, and whether they are small ones."""
    services, wanted = turn.services, turn.services.settings.current.trust.reader
    if wanted == LITERAL:
        return (), False
    models = services.models.chain(turn.agent.model if wanted == AUTO else wanted)
    small = services.models.profile(models[0]).compact
    return (() if small and wanted == AUTO else models), small


async def _read(
    turn: Turn, text: TrustedText, models: tuple[str, ...]
) -> tuple[Intent, ...] | None:
    """Return a model's reading, from the journal if it is there; None without an answer."""
    key = f"intent/{_digest(text)}"
    recorded = turn.recorded.get(key)
    if recorded is not None:
        stored: dict[str, Any] = orjson.loads(recorded.body)
        return None if stored["effects"] is None else read_intents(stored["effects"])
    intents, by, usage = await _ask(turn, text, models, key)
    wire = None if intents is None else intents_wire(intents)
    body = {"by": by, "request": text.request, "effects": wire}
    meta = {"in": usage.input, "out": usage.output}
    turn.stage(EntryKind.ONCE, key, orjson.dumps(body), meta=orjson.dumps(meta).decode())
    return intents


async def _ask(
    turn: Turn, text: TrustedText, models: tuple[str, ...], key: str
) -> tuple[tuple[Intent, ...] | None, str, Usage]:
    messages = question_for(text)

    def compose(model: str, profile: Profile, too_long: int) -> ModelRequest:
        del profile, too_long
        return ModelRequest(
            model=model.partition(":")[2],
            messages=messages,
            tools=None,
            key=f"{turn.id}/{key}",
            timeout=min(_SECONDS, turn.seconds_left),
            agent_id=turn.agent.id,
            schema=_SCHEMA,
            max_output=_MAX_OUTPUT,
        )

    turn.publish("progress", {"key": "intent", "text": "reading what was asked for"})
    try:
        reply = await turn.services.models.ask(
            ModelQuestion(models, compose, reservations=turn.reservations, notify=turn.notify_owner)
        )
    except (ModelError, BudgetReached) as problem:
        _log.info("the request of %s is read literally: %s", turn.id, problem.message)
        return None, "", Usage()
    turn.usage += reply.usage
    return answer_of(reply.text), reply.model or models[0], reply.usage


def _digest(text: TrustedText) -> str:
    parts = [text.request, text.earlier, text.known, text.by_owner, text.sources]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]
