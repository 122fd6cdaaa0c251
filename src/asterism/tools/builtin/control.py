"""The tools `schedule`, `heartbeat`, `halt` and `think`: when to go on, and when all stop."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from typing import Annotated, Any, Literal

from asterism.errors import InvalidInput, ToolError
from asterism.memory.gate.writer import NeedsConsent, judge
from asterism.permissions import Act, Resource
from asterism.store import agents, messages, schedules
from asterism.times import DAY, read_duration, read_iso, to_datetime, to_ms, utc_text
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.agents import Halt, Schedule, label_of, new_id
from asterism.types.memory import Permission, Source
from asterism.types.permissions import Effect, EffectKind, ToolEffect
from asterism.types.turns import MessageOrigin, Notice, message_wire

_MAX_DELAY = 36_500 * DAY


def next_time(cron: str, after_ms: int) -> int:
    """Return when a cron rule comes true next, in milliseconds; raise `InvalidInput` if never."""
    from cronsim import CronSim, CronSimError

    try:
        moment = next(CronSim(cron, to_datetime(after_ms)))
    except (CronSimError, StopIteration) as error:
        raise InvalidInput(
            f"{cron!r} is not a cron rule that comes true ({error}). Write five fields, minute "
            'hour day month weekday, such as "0 9 * * 1-5" for 9:00 UTC on weekdays.'
        ) from None
    return int(moment.timestamp() * 1000)


def _read_time(when: str, now_ms: int) -> int:
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


def _schedule_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    if arguments.get("operation") == "list":
        return [Effect(EffectKind.READ)]
    text = str(arguments.get("message") or "")
    amends = arguments.get("operation") == "cancel"
    return [Effect(EffectKind.REMEMBER, content=(text,) if text else (), amends=amends)]


@tool(transactional=True, trust=None, effects=_schedule_effects, audience="public")
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
    if operation == "list":
        return await _list_schedules(ctx)
    if operation == "cancel":
        return await _cancel_schedule(ctx, id)
    if not message.strip():
        raise ToolError("What should the message say? Give `message`.")
    try:
        due = next_time(when, ctx.now) if operation == "every" else _read_time(when, ctx.now)
    except InvalidInput as error:
        raise ToolError(error.message) from None
    if due > ctx.now + _MAX_DELAY:
        raise ToolError(f"{when!r} is more than a hundred years away.")
    entry = Schedule(
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
    await schedules.put(ctx.tx, entry)
    await ctx.tx.notify("schedule", entry.id)
    return f"Scheduled as {entry.id} for {utc_text(due)}."


async def _visible_schedules(ctx: ToolContext) -> list[Schedule]:
    """Return what those present may know of: what was scheduled among others is theirs alone."""
    return [
        entry
        for entry in await schedules.of_agent(ctx.tx, ctx.agent.id)
        if label_of(entry.participants).flows_to(ctx.participants)
    ]


async def _list_schedules(ctx: ToolContext) -> str:
    entries = await _visible_schedules(ctx)
    labels = (label_of(entry.participants) for entry in entries)
    ctx.quotes(Source((), label.audience, label.trust) for label in labels)
    lines = [
        f"{entry.id}: {utc_text(entry.due_at)}"
        f"{f' (every {entry.cron})' if entry.cron else ''}: {entry.text}"
        for entry in entries
    ]
    return "\n".join(lines) or "Nothing is scheduled."


async def _cancel_schedule(ctx: ToolContext, id: str) -> str:
    entries = await _visible_schedules(ctx)
    entry = next((entry for entry in entries if entry.id == id), None)
    if entry is not None:
        _check_cancel(ctx, entry)
    if entry is None or not await schedules.cancel(ctx.tx, ctx.agent.id, id):
        raise ToolError(f"There is no schedule {id!r}. Use operation list to see them.")
    return f"Schedule {id} is cancelled."


def _check_cancel(ctx: ToolContext, entry: Schedule) -> None:
    """Return if a plan may be cancelled; else park the turn and ask, as for an edit of a block."""
    plan = Resource("schedule", entry.id, Permission.READ_WRITE, label_of(entry.participants).trust)
    try:
        judge(ctx.writer(), Act.OVERWRITE, plan, f"cancel schedule {entry.id}: {entry.text[:200]}")
    except NeedsConsent as needed:
        ctx.ask(needed.question, needed.reviewers)


@tool(transactional=True, trust=None, effects=ToolEffect("remember", content="reason"))
async def heartbeat(ctx: ToolContext, reason: str) -> str:
    """Ask for another turn of your own right after this one, to go on with longer work.

    Args:
        reason: What you will do in that turn; you will read it then.
    """
    item = await messages.put_message(
        ctx.tx,
        ctx.agent.id,
        new_id("msg"),
        message_wire("user", f"[heartbeat you asked for] {reason}"),
        MessageOrigin(ctx.channel if ctx.reply_to else "heartbeat", reply_to=ctx.reply_to),
        ctx.now,
        participants=ctx.participants.wire(ctx.source.audience, ctx.source.trust),
    )
    if item is None:
        raise ToolError("This agent has been deleted.")
    return "You will get another turn after this one."


def _halt_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    del arguments
    return [Effect(EffectKind.WRITE, things=("the whole constellation",))]


@tool(transactional=True, trust=None, compact=False, reserved=True, effects=_halt_effects)
async def halt(
    ctx: ToolContext,
    reason: Annotated[str, also("reason", "message"), TEXT],
    severity: Annotated[
        Literal["warning", "high", "critical"], null_as("critical"), WORD
    ] = "critical",
) -> str:
    """Stop all agents at once, until the owner lets them go on. Only for real danger."""
    if not reason.strip():
        raise ToolError("Why shall everything stop? Give `reason`; the owner reads it.")
    await agents.put_halt(
        ctx.tx,
        ctx.constellation,
        Halt(new_id("halt"), ctx.agent.id, ctx.turn_id, severity, reason, ctx.now),
    )
    await agents.put_notice(
        ctx.tx,
        Notice(
            new_id("ntc"),
            ctx.agent.id,
            ctx.turn_id,
            "halt",
            f"{ctx.agent.name} has halted everything ({severity}): {reason} No agent takes a turn "
            'until you say "asterism resume".',
            ctx.now,
        ),
    )
    return "Everything is halted after this turn. The owner has been told."


@tool(repeatable=True, trust=None, compact=False, effects=ToolEffect("read"), audience="public")
async def think(ctx: ToolContext, thought: Annotated[str, also("thought", "content"), TEXT]) -> str:
    """Think something through before you act. Nothing else happens."""
    del ctx, thought  # the call itself is in the log
    return "Noted."


TOOLS: list[Tool] = [schedule, heartbeat, halt, think]
