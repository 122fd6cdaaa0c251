"""Intents in a turn: what was asked for is read once, recorded, and given back after a crash."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING, Any

import orjson

from asterism.errors import BudgetReached, ModelError
from asterism.permissions.intent import (
    SCHEMA,
    Intent,
    TrustedText,
    answer_of,
    intents_wire,
    question_for,
    read_intents,
    verified,
)
from asterism.permissions.literal import read_literally
from asterism.ports import ModelRequest, Profile, Question
from asterism.types.turns import EntryKind, Usage

if TYPE_CHECKING:
    from asterism.agents.turn import Turn

_log = logging.getLogger(__name__)
_SCHEMA = orjson.dumps(SCHEMA)
_SECONDS = 60.0
_MAX_OUTPUT = 1_000
LITERAL = "literal"
AUTO = "auto"


async def intents_of(turn: Turn, text: TrustedText) -> tuple[tuple[Intent, ...], ...]:
    """Return the readings of a request, of which each must cover a call.

    A capable model reads it alone. A small one errs too often, so that the literal reading has to
    agree. Without a model, or if it does not answer, the literal reading stands in.
    """
    models, weak = _reader(turn)
    read = await _read(turn, text, models) if models else None
    if read is None:
        return (verified(read_literally(text), text),)
    readings = [verified(read, text)]
    if weak:
        readings.append(verified(read_literally(text), text))
    return tuple(readings)


def _reader(turn: Turn) -> tuple[tuple[str, ...], bool]:
    """Return the models that are asked, and whether they are small ones."""
    means, wanted = turn.means, turn.means.settings().trust.reader
    if wanted == LITERAL:
        return (), False
    models = means.chain(turn.agent.model if wanted == AUTO else wanted)
    small = means.profile(models[0]).compact
    return (() if small and wanted == AUTO else models), small


async def _read(
    turn: Turn, text: TrustedText, models: tuple[str, ...]
) -> tuple[Intent, ...] | None:
    """Return what a model reads, from the journal if it did before; None if it does not answer."""
    key = f"intent/{_digest(text)}"
    recorded = turn.recorded.get(key)
    if recorded is not None:
        kept: dict[str, Any] = orjson.loads(recorded.body)
        return None if kept["effects"] is None else read_intents(kept["effects"])
    intents, by, usage = await _ask(turn, text, models, key)
    told = None if intents is None else intents_wire(intents)
    body = {"by": by, "request": text.request, "effects": told}
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
        reply = await turn.means.ask(
            Question(models, compose, purse=turn.purse, notify=turn.notify_owner)
        )
    except (ModelError, BudgetReached) as problem:
        _log.info("the request of %s is read literally: %s", turn.id, problem.message)
        return None, "", Usage()
    turn.usage += reply.usage
    return answer_of(reply.text), reply.model or models[0], reply.usage


def _digest(text: TrustedText) -> str:
    told = [text.request, text.earlier, text.known, text.by_owner, text.sources]
    return hashlib.sha256(orjson.dumps(told)).hexdigest()[:16]
