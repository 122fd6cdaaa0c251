"""The tools `schedule` and `heartbeat`: an agent's own future turns, durable like any message."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Annotated, Any, Literal

from asterism.errors import InvalidInput, ToolError
from asterism.memory.gate.writer import NeedsConsent, judge
from asterism.permissions import Act, Resource
from asterism.store import inbox, schedules
from asterism.times import DAY, read_duration, read_iso, to_datetime, to_ms, utc_text
from asterism.tools.spellings import OPERATION, TEXT, WORD, also
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.agents import Schedule, new_id
from asterism.types.effects import Effect, EffectKind, ToolEffect
from asterism.types.memory import Permission, Source
from asterism.types.people import label_of
from asterism.types.turns import message_wire

_MAX_DELAY = 36_500 * DAY


def next_time(cron: str, after_ms: int) -> int:
    """Return when a cron rule comes true next, in milliseconds; raise `InvalidInput` if never."""
    from cronsim import CronSim, CronSimError

    try:
        found = next(CronSim(cron, to_datetime(after_ms)))
    except (CronSimError, StopIteration) as error:
        raise InvalidInput(
            f"{cron!r} is not a cron rule that comes true ({error}). Write five fields, minute "
            'hour day month weekday, such as "0 9 * * 1-5" for 9:00 UTC on weekdays.'
        ) from None
    return to_ms(found)


def _when(when: str, now_ms: int) -> int:
    """Read "20 minutes" or "2026-12-24T18:00" as a time in milliseconds."""
    try:
        return now_ms + int(read_duration(when.strip().lower().removeprefix("in ")) * 1000)
    except ValueError:
        pass
    try:
        return to_ms(read_iso(when, UTC))
    except ValueError:
        raise ToolError(
            f"{when!r} is not a valid time. Write a duration such as '20 minutes' or '2 hours', or "
            "a time such as '2026-12-24T18:00' (UTC)."
        ) from None


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
            f"{one.id}: {utc_text(one.due_at)}{f' (every {one.cron})' if one.cron else ''}: "
            f"{one.text}"
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
    if due > ctx.now + _MAX_DELAY:
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
    return f"Scheduled as {one.id} for {utc_text(due)}."


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
    item = await inbox.put(
        ctx.tx,
        ctx.agent.id,
        new_id("msg"),
        kind="message",
        channel=ctx.channel if ctx.reply_to else "heartbeat",
        body=message_wire("user", f"[heartbeat you asked for] {reason}"),
        at=ctx.now,
        reply_to=ctx.reply_to,
        participants=ctx.participants.wire(ctx.source.audience, ctx.source.trust),
    )
    if item is None:
        raise ToolError("This agent has been deleted.")
    return "You will get another turn after this one."


TOOLS: list[Tool] = [schedule, heartbeat]
