"""`asterism approval`: questions to a person that a turn waits for."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.outcome import report
from asterism.cli.output import Column, Output
from asterism.cli.text import when
from asterism.cli.turn import names

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.turns import Approval, Outcome

app = group("See what agents ask before they act, and answer.")

ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="The approval's id.")]
Note = Annotated[
    str | None, typer.Option("--note", metavar="TEXT", help="What the agent is told with it.")
]


@command(app, "list")
def list_waiting(options: Options) -> None:
    """Show the questions that wait for an answer."""

    async def errand(home: Asterism) -> tuple[list[Approval], dict[str, str]]:
        return await home.approvals(), await names(home)

    found, called = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([{**asdict(one), "agent": called.get(one.agent_id)} for one in found])
        return
    columns: list[Column[Approval]] = [
        Column("approval", lambda one: one.id),
        Column("asked", lambda one: when(one.asked_at)),
        Column("question", lambda one: one.question, prose=True),
    ]
    out.table(columns, found, empty="Nothing waits for an answer.")


@command(app, "approve")
def approve(options: Options, approval: ApprovalId, note: Note = None) -> None:
    """Let the call happen; the turn goes on, and its answer is printed."""
    _decide(options, approval, note, approved=True)


@command(app, "deny")
def deny(options: Options, approval: ApprovalId, note: Note = None) -> None:
    """Do not let the call happen; the agent is told, and its answer is printed."""
    _decide(options, approval, note, approved=False)


def _decide(options: Options, approval_id: str, note: str | None, *, approved: bool) -> None:
    async def errand(home: Asterism) -> tuple[Outcome, dict[str, str]]:
        receipt = await home.decide(approval_id, approved=approved, note=note)
        return await home.wait(receipt), await names(home)

    outcome, called = visit(options, errand, work=True)
    report(outcome, called.get(outcome.agent_id, outcome.agent_id), json=options.json)
