"""`asterism approval`: questions to a person that a turn waits for."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.asked import ONCE, read_arguments, read_wish, rows_of
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.outcome import report
from asterism.cli.output import Column, Output
from asterism.cli.turn import names
from asterism.times import local_short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asterism.app import Asterism
    from asterism.app.approvals import ApprovalDetails
    from asterism.types.permissions import ApprovalRecord
    from asterism.types.turns import Outcome

app = group("See what agents ask before they act, and answer.")

ApprovalId = Annotated[
    str, typer.Argument(metavar="ID", help="The approval's id, or the end of it.")
]
Note = Annotated[
    str | None, typer.Option("--note", metavar="TEXT", help="What the agent is told with it.")
]
Reach = Annotated[
    str,
    typer.Option(
        "--for", metavar="HOW", help="What the yes is for: once, recipient, turn or always."
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="LIMIT",
        help="With --for always: an amount each (50) or calls a day (3/day); several times.",
    ),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="When the grant ends.")]
Patterns = Annotated[
    list[str] | None,
    typer.Option(
        "--pattern", metavar="ARGUMENT=GLOB", help="Which calls the grant means; several times."
    ),
]
Arguments = Annotated[
    str | None,
    typer.Option(
        "--arguments", metavar="JSON", help="Make the call with these instead; @FILE reads a file."
    ),
]
Answered = Annotated[
    bool, typer.Option("--answered", help="Those that were answered, the latest first.")
]


@command(app, "list")
def list_waiting(options: Options, answered: Answered = False) -> None:
    """Show the questions that wait for an answer."""

    async def errand(home: Asterism) -> tuple[Sequence[ApprovalRecord], dict[str, str]]:
        found = await home.approvals.answered() if answered else await home.approvals.list()
        return found, await names(home)

    found, called = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([_data(one, called) for one in found])
        return
    columns: list[Column[ApprovalRecord]] = [
        Column("approval", lambda one: one.id),
        Column("asked", lambda one: local_short(one.asked_at), least=90 if answered else 0),
        Column("question", lambda one: one.question, prose=True),
    ]
    if answered:
        columns.insert(2, Column("answer", lambda one: one.verdict, prose=True))
    empty = "Nothing was answered yet." if answered else "Nothing waits for an answer."
    out.table(columns, found, empty=empty)


@command(app, "show")
def show(options: Options, approval: ApprovalId) -> None:
    """Show a question whole: the exact call, why it is asked, who may answer, and its history."""

    async def errand(home: Asterism) -> tuple[ApprovalDetails, dict[str, str]]:
        return await home.approvals.show(approval), await names(home)

    shown, called = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    one = shown.approval
    if out.json:
        granted = asdict(shown.grant) if shown.grant is not None else None
        out.data({**_data(one, called), "whom": shown.whom, "granted": granted})
        return
    out.grid(rows_of(shown, called.get(one.agent_id, one.agent_id)))


@command(app, "approve")
def approve(
    options: Options,
    approval: ApprovalId,
    note: Note = None,
    arguments: Arguments = None,
    reach: Reach = ONCE,
    limit: Limits = None,
    until: Until = None,
    pattern: Patterns = None,
) -> None:
    """Let the call happen; the turn goes on, and its answer is printed."""
    given = {
        "note": note,
        "arguments": read_arguments(arguments),
        "grant": read_wish(reach, limits=limit, until=until, patterns=pattern),
    }
    _decide(options, approval, given, approved=True)


@command(app, "deny")
def deny(options: Options, approval: ApprovalId, note: Note = None) -> None:
    """Do not let the call happen; the agent is told, and its answer is printed."""
    _decide(options, approval, {"note": note}, approved=False)


def _data(one: ApprovalRecord, called: dict[str, str]) -> dict[str, Any]:
    return {**asdict(one), "agent": called.get(one.agent_id), "state": one.verdict}


def _decide(options: Options, approval_id: str, given: dict[str, Any], *, approved: bool) -> None:
    async def errand(home: Asterism) -> tuple[Outcome, dict[str, str]]:
        receipt = await home.approvals.decide(approval_id, approved=approved, **given)
        return await home.turns.wait(receipt), await names(home)

    outcome, called = visit(options, errand, work=True)
    report(outcome, called.get(outcome.agent_id, outcome.agent_id), json=options.json)
