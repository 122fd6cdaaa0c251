"""The tools `schedule` and `heartbeat`: an agent's own future turns, durable like any message."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from asterism.errors import InvalidInput, ToolError
from asterism.memory.gate.writer import NeedsConsent, judge
from asterism.permissions import Act, Resource
from asterism.store import inbox, schedules
from asterism.tools.spellings import OPERATION, TEXT, WORD, also
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.agents import Schedule, new_id
from asterism.types.effects import Effect, EffectKind, ToolEffect
from asterism.types.memory import Permission, Source
from asterism.types.people import label_of
from asterism.types.turns import Origin, message_wire

_SPAN = re.compile(r"^(\d+(?:\.\d+)?)\s*(s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?)$")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def next_time(cron: str, after_ms: int) -> int:
    """Return when a cron rule comes true next, in milliseconds; raise `InvalidInput` if never."""
    from cronsim import CronSim, CronSimError

    try:
        found = next(CronSim(cron, datetime.fromtimestamp(after_ms / 1000, UTC)))
    except (CronSimError, StopIteration) as error:
        raise InvalidInput(
            f"{cron!r} is not a cron rule that comes true ({error}). Write five fields, minute "
            'hour day month weekday, such as "0 9 * * 1-5" for 9:00 UTC on weekdays.'
        ) from None
    return int(found.timestamp() * 1000)


def _when(when: str, now_ms: int) -> int:
    """Read "20 minutes" or "2026-12-24T18:00" as a time in milliseconds."""
    text = when.strip().lower().removeprefix("in ")
    match = _SPAN.match(text)
    if match:
        seconds = float(match[1]) * _SECONDS[match[2][0]]
        return now_ms + int(seconds * 1000)
    try:
        moment = datetime.fromisoformat(when.strip())
    except ValueError:
        raise ToolError(
            f"{when!r} is no time I can read. Write a span such as '20 minutes' or '2 hours', or a "
            "time such as '2026-12-24T18:00' (UTC)."
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _said(moment_ms: int) -> str:
    return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _effects_of(arguments: Mapping[str, Any]) -> list[Effect]:
    if arguments.get("operation") == "list":
        return [Effect(EffectKind.READ)]
    said = str(arguments.get("message") or "")
    amends = arguments.get("operation") == "cancel"
    return [Effect(EffectKind.REMEMBER, content=(said,) if said else (), amends=amends)]


@tool(transactional=True, trust=None, effects=_effects_of, audience="public")
async def schedule(
    ctx: ToolContext,
    operation: Annotated[Literal["at", "in", "every", "list", "cancel"], OPERATION, WORD],
    when: Annotated[str, also("when", "time", "cron"), TEXT] = "",
    message: Annotated[str, also("message", "content", "text"), TEXT] = "",
    id: Annotated[str, also("id", "schedule_id"), TEXT] = "",
) -> str:
    """Send a message to yourself later: a reminder, a follow-up, something regular.

    Args:
        operation: at (a time), in (a span), every (a cron rule), list, or cancel.
        when: For at: "2026-12-24T18:00" (UTC). For in: "20 minutes". For every: "0 9 * * 1-5".
        message: What to tell yourself then.
        id: For cancel: which schedule.
    """
    found: list[Schedule] = []
    if operation in ("list", "cancel"):
        # What was scheduled among others is theirs alone.
        found = [
            one
            for one in await schedules.of_agent(ctx.tx, ctx.agent.id)
            if label_of(one.participants).flows_to(ctx.participants)
        ]
    if operation == "list":
        if not found:
            return "Nothing is scheduled."
        labels = (label_of(one.participants) for one in found)
        ctx.quotes(Source((), one.audience, one.trust) for one in labels)
        return "\n".join(
            f"{one.id}: {_said(one.due_at)}{f' (every {one.cron})' if one.cron else ''}: {one.text}"
            for one in found
        )
    if operation == "cancel":
        one = next((one for one in found if one.id == id), None)
        if one is not None:
            _may_cancel(ctx, one)
        if one is None or not await schedules.cancel(ctx.tx, ctx.agent.id, id):
            raise ToolError(f"There is no schedule {id!r}. Use operation list to see them.")
        return f"Schedule {id} is cancelled."
    if not message.strip():
        raise ToolError("What should the message say? Give `message`.")
    try:
        due = next_time(when, ctx.now) if operation == "every" else _when(when, ctx.now)
    except InvalidInput as error:
        raise ToolError(error.message) from None
    if due > ctx.now + int(timedelta(days=36_500).total_seconds() * 1000):
        raise ToolError(f"{when!r} is more than a hundred years away.")
    one = Schedule(
        id=new_id("sch"),
        agent_id=ctx.agent.id,
        text=message,
        due_at=due,
        cron=when if operation == "every" else None,
        channel=ctx.channel if ctx.reply_to else None,
        reply_to=ctx.reply_to,
        created_at=ctx.now,
        participants=ctx.participants.wire(ctx.source.audience, ctx.source.trust),
    )
    await schedules.put(ctx.tx, one)
    await ctx.tx.notify("schedule", one.id)
    return f"Scheduled as {one.id} for {_said(due)}."


def _may_cancel(ctx: ToolContext, one: Schedule) -> None:
    """Return if a plan may be cancelled; else park the turn and ask, as for an edit of a block."""
    plan = Resource("schedule", one.id, Permission.READ_WRITE, label_of(one.participants).trust)
    try:
        judge(ctx.writer(), Act.OVERWRITE, plan, f"cancel schedule {one.id}: {one.text[:200]}")
    except NeedsConsent as needed:
        ctx.ask(needed.question, needed.reviewers)


@tool(transactional=True, trust=None, effects=ToolEffect("remember", content="reason"))
async def heartbeat(ctx: ToolContext, reason: str) -> str:
    """Ask for another turn of your own right after this one, to go on with longer work.

    Args:
        reason: What you will do in that turn; you will read it then.
    """
    item = await inbox.put_message(
        ctx.tx,
        ctx.agent.id,
        new_id("msg"),
        message_wire("user", f"[heartbeat you asked for] {reason}"),
        Origin(ctx.channel if ctx.reply_to else "heartbeat", reply_to=ctx.reply_to),
        ctx.now,
        participants=ctx.participants.wire(ctx.source.audience, ctx.source.trust),
    )
    if item is None:
        raise ToolError("This agent has been deleted.")
    return "You will get another turn after this one."


TOOLS: list[Tool] = [schedule, heartbeat]
