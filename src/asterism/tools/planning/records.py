"""What the planning tools keep: the rows of a block, and the messages that come of them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import AsterismError, NotFound, StoreError, ToolError
from asterism.memory import blocks
from asterism.memory.blocks import VisibleBlock, is_visible
from asterism.memory.content import read_parts, row_fields, to_json
from asterism.memory.gate import blocks as gate
from asterism.memory.gate.writer import WriteNeedsApproval
from asterism.memory.words import terms
from asterism.records import dataclass
from asterism.store import groups, messages
from asterism.times import quiet_until, read_iso, to_ms
from asterism.tools.builtin.control import check_quiet
from asterism.tools.tool import ToolContext
from asterism.types.agents import OWNER_ONLY, Schedule
from asterism.types.groups import delayed_message_id
from asterism.types.memory import (
    Append,
    BlockType,
    Field,
    FieldType,
    ListSchema,
    LogSchema,
    MapSchema,
    RemoveItem,
    Schema,
    SetField,
    SetItem,
    SetText,
    Source,
)

MAX_ROWS = 1_000
"""So many rows a block may have: each edit writes all of them again, in about 50 ms. Finished tasks
and old notes make room for new ones; the history keeps them."""
_SPARE_ROWS = 100
"""So many more a log may have, so that it is not shortened with each note."""
_LIMIT = 1_000_000
"""Characters of a block: it is not in the context, so that many cost nothing."""
DEFAULT_QUIET = "22:00-08:00"


@dataclass(frozen=True, slots=True)
class BlockKind:
    """A block that the planning tools write to."""

    label: str
    schema: Schema
    description: str


TASKS = BlockKind(
    "tasks",
    ListSchema(
        (
            Field("title", required=True),
            Field("done", FieldType.BOOLEAN, default=False),
            Field("number", FieldType.NUMBER, required=True),
            Field("part_of", FieldType.NUMBER, "The task that it is a step of"),
            Field("kind", description="Such as writing or errands"),
            Field("estimate", FieldType.NUMBER, "Minutes, as the owner says"),
            Field("spent", FieldType.NUMBER, "Minutes"),
            Field("started", FieldType.TIMESTAMP, "While it is under way"),
            Field("touched", FieldType.TIMESTAMP, "When it was last worked on"),
            Field("finished", FieldType.TIMESTAMP),
            Field("check_ins", FieldType.NUMBER, "Since it was started"),
        )
    ),
    "The owner's tasks, with what they were expected to take and what they took. The tool task "
    "writes it.",
)
HABITS = BlockKind(
    "habits",
    ListSchema(
        (
            Field("name", required=True),
            Field("number", FieldType.NUMBER, required=True),
            Field("rule", description="When, in words"),
            Field("cron", description="The same as five cron fields"),
            Field("times", FieldType.NUMBER, "How often it was done"),
            Field("last_done", FieldType.TIMESTAMP),
            Field("reminded", FieldType.TIMESTAMP, "The reminder that waits for an answer"),
            Field("ignored", FieldType.NUMBER, "Reminders in a row without an answer"),
            Field("paused", FieldType.BOOLEAN),
        )
    ),
    "The owner's habits and needs, with their reminders. The tool habit writes it.",
)
ENERGY = BlockKind(
    "energy",
    LogSchema(
        (
            Field("note"),
            Field("energy", FieldType.NUMBER, "From 1 to 10"),
            Field("mood", FieldType.NUMBER, "From 1 to 10"),
            Field("state", description="hyperfocus, flow, neutral, scattered or depleted"),
        )
    ),
    "How much energy the owner had and when. The tool energy writes it.",
)
REMINDERS = BlockKind(
    "reminders",
    MapSchema((Field("quiet_hours", default=DEFAULT_QUIET),)),
    "When the owner wants no reminders, such as 22:00-08:00. The tool habit writes it.",
)
KINDS = (TASKS, HABITS, ENERGY, REMINDERS)
"""All blocks of the planning tools."""


@contextmanager
def tool_errors(ctx: ToolContext) -> Generator[None]:
    """Ask a person where one must be asked, and tell the model what else is wrong."""
    try:
        yield
    except WriteNeedsApproval as needed:
        ctx.ask(needed.question, needed.reviewers)
        raise ToolError("This needs an approval, and it was denied.") from None
    except (StoreError, ToolError):
        raise
    except AsterismError as error:
        raise ToolError(error.message) from None


class Rows:
    """The rows of a block that those present may see, and the ways to change them."""

    def __init__(self, ctx: ToolContext, seen: VisibleBlock, rows: list[dict[str, Any]]) -> None:
        self._ctx = ctx
        self.block = seen.block
        self.rows = rows

    async def add(self, **values: Any) -> dict[str, Any]:
        """Add a row at the end and return it."""
        row = {name: value for name, value in values.items() if value not in (None, "")}
        await self._write(Append(orjson.dumps(row).decode()))
        self.rows.append(row)
        return row

    async def change(self, row: Mapping[str, Any], **values: Any) -> dict[str, Any]:
        """Change fields of a row and return it as it is then; None takes a value away."""
        at = self.rows.index(dict(row))
        await self._write(SetItem(at + 1, values))
        merged = {**row, **values}
        self.rows[at] = {name: value for name, value in merged.items() if value is not None}
        return self.rows[at]

    async def remove(self, row: Mapping[str, Any]) -> None:
        """Take a row out; its history stays."""
        at = self.rows.index(dict(row))
        await self._write(RemoveItem(at + 1))
        del self.rows[at]

    async def shorten_log(self) -> None:
        """Keep the newest entries of a log where there are too many."""
        if len(self.rows) < MAX_ROWS + _SPARE_ROWS:
            return
        self.rows = self.rows[-MAX_ROWS:]
        kept = to_json(self.block.schema, self.rows)
        await self._write(SetText(orjson.dumps(kept).decode()))

    async def _write(self, write: Append | SetItem | RemoveItem | SetText) -> None:
        await gate.write(self._ctx.tx, self._ctx.writer(), self.block.id, write)

    def new_number(self) -> int:
        """Return a number that no row has."""
        return max((number_of(row) for row in self.rows), default=0) + 1

    def find(self, wanted: str, title: str) -> dict[str, Any] | None:
        """Return the row with a number, or the only one whose title shares most words with it.

        Args:
            wanted: A number or words.
            title: The name of the field that has the title.
        """
        text = wanted.strip().removeprefix("#")
        if text.isdecimal():
            return next((row for row in self.rows if number_of(row) == int(text[:9])), None)
        same = [row for row in self.rows if str(row.get(title)).casefold() == text.casefold()]
        if same:
            return same[-1]
        words = set(terms(text))
        counts = [len(words & set(terms(str(row.get(title))))) for row in self.rows]
        best = max(counts, default=0)
        found = [row for row, count in zip(self.rows, counts, strict=True) if count == best]
        return found[0] if best and len(found) == 1 else None


def number_of(row: Mapping[str, Any]) -> int:
    """Return the number of a row; 0 for one that was written by hand without a number."""
    number = row.get("number")
    return int(number) if isinstance(number, int | float) else 0


def moment_of(row: Mapping[str, Any], field: str) -> int | None:
    """Return the time in a field of a row, in milliseconds; None if there is none."""
    text = row.get(field)
    if not isinstance(text, str) or not text:
        return None
    try:
        return to_ms(read_iso(text))
    except (ValueError, OverflowError):
        return None


def figure_of(row: Mapping[str, Any], field: str) -> float | None:
    """Return the number in a field of a row; None if there is none."""
    value = row.get(field)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


async def open_rows(ctx: ToolContext, kind: BlockKind, *, write: bool = False) -> Rows:
    """Return the rows of a planning block, which is made if it does not exist.

    It is the agent's own, one that is shared with it, or the constellation's.
    """
    if not ctx.participants.can_see(OWNER_ONLY):
        raise ToolError(
            f"The block {kind.label!r} is your owner's alone, and somebody else is present. "
            "Nothing was done. Offer your owner to do it when the two of you are alone."
        )
    seen = await _find(ctx, kind)
    if write:
        await gate.lock(ctx.tx, seen.block.id)
    row = await blocks.get(ctx.tx, seen.block.id)
    assert row is not None
    lines = blocks.with_full_labels(blocks.read_lines(row.text, row.lines), seen.block.audience)
    visible = [
        is_visible(seen.block.schema, line, seen.block.audience, ctx.participants) for line in lines
    ]
    ctx.quotes(
        Source((), seen.block.audience & line.label.audience, line.label.trust)
        for line, seen_here in zip(lines, visible, strict=True)
        if seen_here
    )
    state = read_parts(seen.block.schema, blocks.read_parts(row))
    if isinstance(state, dict):
        return Rows(ctx, seen, [state] if all(visible) else [])
    return Rows(
        ctx, seen, [row for row, seen_here in zip(state, visible, strict=True) if seen_here]
    )


async def _find(ctx: ToolContext, kind: BlockKind) -> VisibleBlock:
    try:
        seen = await blocks.find(ctx.tx, ctx.agent.id, kind.label, ctx.participants)
    except NotFound:
        await gate.create(
            *(ctx.tx, ctx.writer(), ctx.agent.id, kind.label),
            type=BlockType.WORKING,
            schema=kind.schema,
            description=kind.description,
            limit=_LIMIT,
            audience=OWNER_ONLY,
        )
        seen = await blocks.find(ctx.tx, ctx.agent.id, kind.label, ctx.participants)
    if not fits(seen.block.schema, kind):
        raise ToolError(
            f"The block {seen.name!r} has another schema than {kind.label!r} needs. Tell your "
            "owner to give that block another label. Nothing was done."
        )
    return seen


def fits(schema: Schema, kind: BlockKind) -> bool:
    """Tell whether a block with a schema can be used as a planning block of a kind."""
    if type(schema) is not type(kind.schema):
        return False
    if isinstance(schema, MapSchema) and isinstance(kind.schema, MapSchema):
        needed, there = kind.schema.fields, schema.fields
    elif isinstance(schema, ListSchema | LogSchema) and isinstance(
        kind.schema, ListSchema | LogSchema
    ):
        needed, there = row_fields(kind.schema), row_fields(schema)
    else:
        return False
    types = {field.name: field.type for field in there}
    return all(types.get(field.name) is field.type for field in needed)


# -- messages that come of it ----------------------------------------------------------------------


async def quiet_hours(ctx: ToolContext) -> str:
    """Return the hours in which the owner wants no reminders."""
    try:
        rows = (await open_rows(ctx, REMINDERS)).rows
        return check_quiet(str(rows[0].get("quiet_hours") or DEFAULT_QUIET))
    except (AsterismError, IndexError):
        return DEFAULT_QUIET  # what was written there by hand says nothing


async def set_quiet_hours(ctx: ToolContext, hours: str) -> str:
    """Set the hours in which the owner wants no reminders, and return them."""
    checked = check_quiet(hours)
    rows = await open_rows(ctx, REMINDERS, write=True)
    await gate.write(ctx.tx, ctx.writer(), rows.block.id, SetField("quiet_hours", checked))
    return checked


async def put_reminder(ctx: ToolContext, schedule_id: str, at: int, text: str, quiet: str) -> int:
    """Let a message come at a time outside of quiet hours, in place of the one with its id.

    It comes to the agent that had the former one, else to the one that calls. Returns the time.
    """
    zone = ctx.settings().zone_name
    former = await messages.get_schedule(ctx.tx, schedule_id)
    if former is not None:
        await messages.cancel_schedule(ctx.tx, former.agent_id, former.id)
    at = quiet_until(quiet, at, ctx.settings().zone) or at
    channel, reply_to = await groups.address_of(ctx.tx, ctx.turn_id, ctx.channel, ctx.reply_to)
    mine = Schedule(
        *(schedule_id, ctx.agent.id, text, at, None),
        channel=channel,
        reply_to=reply_to,
        created_at_ms=ctx.now_ms,
        participants=ctx.participants.wire(ctx.source.audience, ctx.source.trust),
        zone=zone,
        quiet=quiet,
    )
    entry = mine if former is None else _moved(former, mine)
    await messages.put_schedule(ctx.tx, entry)
    await groups.continue_exchange(
        ctx.tx, ctx.turn_id, delayed_message_id(entry.id), entry.agent_id, ctx.now_ms
    )
    await ctx.tx.notify("schedule", entry.id)
    return at


def _moved(former: Schedule, new: Schedule) -> Schedule:
    """Return a schedule that goes where the former one went."""
    return replace(
        new,
        agent_id=former.agent_id,
        channel=former.channel,
        reply_to=former.reply_to,
        participants=former.participants,
    )


async def drop_reminder(ctx: ToolContext, schedule_id: str) -> None:
    """Let a message not come after all."""
    former = await messages.get_schedule(ctx.tx, schedule_id)
    if former is not None:
        await messages.cancel_schedule(ctx.tx, former.agent_id, former.id)


def listed(rows: Sequence[Mapping[str, Any]], title: str, most: int = 12) -> str:
    """Return the numbers and titles of rows, for an error."""
    named = [f"{number_of(row)} ({row.get(title)})" for row in rows[:most]]
    return ", ".join(named) + (" …" if len(rows) > most else "") if named else "none"
