"""`asterism halt` and `asterism resume`: everything stands still, and goes on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.home import visit
from asterism.cli.options import Options
from asterism.cli.output import Output
from asterism.times import local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import Halt


def halt(
    options: Options,
    reason: Annotated[
        str, typer.Argument(metavar="REASON", help="Why; it is shown until they go on.")
    ],
) -> None:
    """Stop all agents until "asterism resume"; what comes in meanwhile waits."""

    async def errand(home: Asterism) -> Halt:
        return await home.halts.halt(reason)

    stopped = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(asdict(stopped))
    else:
        out.line('Everything is halted. "asterism resume" lets the agents go on.')


def resume(options: Options) -> None:
    """Let all agents go on after a halt."""

    async def errand(home: Asterism) -> Halt:
        return await home.halts.resume()

    stood = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(asdict(stood))
    else:
        out.line(f"The agents go on. They were halted {local_text(stood.at)}: {stood.reason}")
