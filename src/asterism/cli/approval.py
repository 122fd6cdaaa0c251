"""`asterism approval`: questions to a person that a turn waits for."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.halt import halt_notes, wait_unless_halted
from asterism.cli.inputs import Limit, read_since, read_text
from asterism.cli.output import Column, Grid, ItemTable, Result, up_to
from asterism.cli.turn import outcome_result
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text
from asterism.types.permissions import (
    amount_in_words,
    argument_lines,
    call_lines,
    effects_in_words,
    visible_line,
)
from asterism.views import agent_names, approval_details_view, approval_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asterism.app import Asterism
    from asterism.app.turns import ApprovalDetails
    from asterism.types.permissions import ApprovalRecord, Grant, Wish

app = group("Show the approvals that agents wait for, and answer them.")

ONCE = "once"
"""What a yes is for that grants nothing beyond its call."""


ApprovalId = Annotated[str, argument("ID", "The approval's id, or the end of it.")]
Note = Annotated[str | None, option("--note", "TEXT", "A message to the agent with the answer.")]
Extent = Annotated[str, option("--for", "HOW", "What to allow: once, recipient, turn or always.")]
Limits = Annotated[
    list[str] | None,
    option(
        "--limit",
        "LIMIT",
        "With --for always: an amount per call (50) or calls a day (3/day); repeatable.",
    ),
]
Until = Annotated[str | None, option("--until", "TIME", "When the grant ends.")]
Patterns = Annotated[
    list[str] | None,
    option("--pattern", "ARGUMENT=GLOB", "Which calls the grant covers; repeatable."),
]
Arguments = Annotated[
    str | None,
    option("--arguments", "JSON", "Run the call with these arguments instead; @FILE reads a file."),
]
Answered = Annotated[bool, flag("--answered", "Show answered approvals, the latest first.")]


@command(app, "list", example="approval list", readonly=True)
async def list_approvals(home: Asterism, answered: Answered = False, limit: Limit = 20) -> Result:
    """Show the questions that wait for an answer."""
    if answered:
        approvals, more = up_to(await home.approvals.answered(limit=limit + 1), limit)
    else:
        approvals, more = await home.approvals.list(), []
    agents = await agent_names(home)
    asked_from = 90 if answered else 0
    columns: list[Column[ApprovalRecord]] = [
        Column("approval", lambda approval: approval.id),
        Column("asked", lambda approval: local_short(approval.asked_at_ms), least=asked_from),
        Column("question", lambda approval: approval.question, prose=True),
    ]
    if answered:
        columns.insert(2, Column("answer", lambda approval: approval.verdict, prose=True))
    empty = "No approval has been answered yet." if answered else "Nothing waits for an answer."
    shapes = [approval_view(approval, agents) for approval in approvals]
    notes = [*more, *await halt_notes(home)]
    return Result(shapes, ItemTable(columns, approvals, empty), notes=notes)


@command(app, "show", example="approval show ap_4c2f81", readonly=True)
async def show(home: Asterism, approval: ApprovalId) -> Result:
    """Show all of a question: the exact call, why it is asked, who may answer, and its history."""
    details, agents = await home.approvals.show(approval), await agent_names(home)
    agent_id = details.approval.agent_id
    rows = _rows(details, agents.get(agent_id, agent_id))
    return Result(approval_details_view(details, agents), Grid(rows))


@command(app, "approve", example="approval approve ap_4c2f81 --for always --limit 3/day")
async def approve(
    options: Options,
    approval: ApprovalId,
    note: Note = None,
    arguments: Arguments = None,
    extent: Extent = ONCE,
    limit: Limits = None,
    until: Until = None,
    pattern: Patterns = None,
) -> Result:
    """Approve the call; the turn continues, and its answer is printed."""
    answer = {
        "note": note,
        "arguments": _read_arguments(arguments),
        "grant": read_wish(extent, limits=limit, until=until, patterns=pattern),
    }
    async with open_home(options, work=True) as home:
        result = await _decide(home, approval, answer, approved=True)
        if answer["grant"] is not None:
            result.notes = [*await grant_notes(home, approval), *result.notes]
        return result


async def grant_notes(home: Asterism, approval_id: str) -> list[str]:
    """Return what was granted with the answer to a question, in words, if anything was."""
    granted = (await home.approvals.show(approval_id)).grant
    return [f"Granted ({granted.id}): {grant_text(granted)}."] if granted else []


@command(app, "deny", example='approval deny ap_4c2f81 --note "Too expensive."', work=True)
async def deny(home: Asterism, approval: ApprovalId, note: Note = None) -> Result:
    """Deny the call; the agent reads your reason, and its answer is printed."""
    return await _decide(home, approval, {"note": note}, approved=False)


async def _decide(
    home: Asterism, approval_id: str, answer: dict[str, Any], *, approved: bool
) -> Result:
    receipt = await home.approvals.decide(approval_id, approved=approved, **answer)
    outcome = await wait_unless_halted(home, receipt)
    agents = await agent_names(home)
    return outcome_result(outcome, agents.get(outcome.agent_id, outcome.agent_id))


# -- in words --------------------------------------------------------------------------------------


def _rows(details: ApprovalDetails, agent: str) -> list[tuple[str, str]]:
    """Return all that is known of a question, as names and texts."""
    approval = details.approval
    rows = [
        ("approval", approval.id),
        ("state", approval.verdict),
        ("agent", agent),
        ("turn", approval.turn_id),
        ("asked", local_text(approval.asked_at_ms)),
        ("question", visible_line(approval.question)),
        ("call", "\n".join(call_lines(approval))),
        ("because", visible_line(approval.reason)),
        ("who", f"{details.whom} may answer"),
        ("announced", "\n".join(_announced(approval))),
        (
            "expires",
            local_text(approval.expires_at_ms) if approval.expires_at_ms is not None else "",
        ),
    ]
    if approval.decided_at_ms is None:
        # Before it was put to anybody for the first time, this moment has passed.
        again = approval.next_at_ms is not None and approval.next_at_ms > time.time() * 1000
        rows.append(
            ("next", f"announced again {local_text(approval.next_at_ms or 0)}" if again else "")
        )
    else:
        where = f" in {approval.place}" if approval.place else ""
        rows.append(
            ("answered", f"{local_text(approval.decided_at_ms)} by {details.answered_by}{where}")
        )
        edited = argument_lines(approval.edited) if approval.edited is not None else []
        rows.append(("run with", "\n".join(edited)))
        rows.append(("note", approval.note or ""))
        rows.append(
            ("grant", f"{approval.grant}: {grant_text(details.grant)}" if details.grant else "")
        )
    return [(name, text) for name, text in rows if text]


def _announced(approval: ApprovalRecord) -> list[str]:
    places = [
        f"{place} (round {number})" if approval.rounds > 1 else place
        for place, number in sorted(approval.announced.items())
    ]
    if approval.announced_at_ms is not None and places and approval.rounds > 1:
        places.append(f"{approval.rounds} times, last {local_text(approval.announced_at_ms)}")
    return places


def grant_text(grant: Grant) -> str:
    """Return what a grant allows, in words."""
    words = [f"calls of {grant.tool}"]
    if grant.effects is not None:
        words.append(f"that {effects_in_words(grant.effects)}")
    if grant.arguments is not None:
        words.append(f"with exactly {visible_line(grant.arguments)}")
    if grant.pattern:
        words.append("with " + ", ".join(f"{name}={glob}" for name, glob in grant.pattern.items()))
    if grant.turn_id is not None:
        words.append(f"in {grant.turn_id}")
    if grant.until_ms is not None:
        words.append(f"until {local_text(grant.until_ms)}")
    if grant.uses is not None:
        words.append(f"({grant.uses} more)")
    limits: list[str] = []
    if grant.amount is not None:
        limits.append(f", up to {amount_in_words(grant.amount)} each")
    if grant.per_day is not None:
        limits.append(f", at most {grant.per_day} a day")
    return " ".join(words) + "".join(limits)


# -- what is typed ---------------------------------------------------------------------------------


def read_wish(
    extent: str,
    *,
    limits: Sequence[str] | None = None,
    until: str | None = None,
    patterns: Sequence[str] | None = None,
) -> Wish | None:
    """Return what is granted with a yes for `once`, `turn`, `recipient` or `always`."""
    from asterism.types.permissions import Extent, Wish

    if extent == ONCE:
        if limits or until or patterns:
            raise InvalidInput(
                "--limit, --until and --pattern need a grant. Add --for "
                "recipient, turn or always. Nothing was done."
            )
        return None
    try:
        granted = Extent(extent)
    except ValueError:
        raise InvalidInput(
            f"{extent!r} is not a valid value of --for. Write once, recipient, turn or always. "
            "Nothing was done."
        ) from None
    amount, per_day = read_limits(limits)
    last = read_since(until) if until is not None else None
    return Wish(granted, last, read_pattern(patterns), amount, per_day)


def read_limits(limits: Sequence[str] | None) -> tuple[float | None, int | None]:
    """Return the amount and the calls a day that limits such as `50` and `3/day` mean."""
    amount: float | None = None
    per_day: int | None = None
    for limit in limits or ():
        number, slash, unit = limit.replace(" ", "").partition("/")
        try:
            if slash:
                per_day = int(number) if unit in ("day", "d") else int("")
            else:
                amount = float(number)
        except ValueError:
            raise InvalidInput(
                f"{limit!r} is not a valid limit. Write an amount, such as 50, or calls a day, "
                "such as 3/day. Nothing was done."
            ) from None
    return amount, per_day


def read_pattern(patterns: Sequence[str] | None) -> Mapping[str, str] | None:
    """Return the arguments that matter and their globs, from `NAME=GLOB`."""
    if not patterns:
        return None
    globs: dict[str, str] = {}
    for pattern in patterns:
        name, equals, glob = pattern.partition("=")
        if not (name.strip() and equals and glob):
            raise InvalidInput(
                f"{pattern!r} is not a valid pattern. Write ARGUMENT=GLOB, such as path=/srv/**. "
                "Nothing was done."
            )
        globs[name.strip()] = glob
    return globs


def _read_arguments(text: str | None) -> str | None:
    """Return arguments as JSON, typed or (behind `@`) in a file; `@-` is standard input."""
    return read_text(Path(text[1:])) if text is not None and text.startswith("@") else text
