"""How a turn ended, printed once it has."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import typer

from asterism.cli.output import Output
from asterism.cli.problem import FAILED, INTERRUPTED, PARKED
from asterism.cli.text import printable

if TYPE_CHECKING:
    from asterism.types.turns import Outcome

HOW_TO_DECIDE = '"asterism approval approve ID" or "asterism approval deny ID" answers.'

_CODES = {"done": 0, "parked": PARKED, "stopped": INTERRUPTED}


def report(outcome: Outcome, agent: str, *, json: bool) -> None:
    """Print the answer on standard output, anything else on standard error; end with its code."""
    out = Output(json=json)
    state = outcome.state.value
    if out.json:
        out.data(
            {
                "agent": agent,
                "agent_id": outcome.agent_id,
                "turn_id": outcome.turn_id,
                "state": state,
                "text": outcome.text,
                "usage": outcome.usage,
            }
        )
    elif state == "done":
        out.line(outcome.text)
    else:
        hint = f"\n{HOW_TO_DECIDE}" if state == "parked" else ""
        print(f"{printable(outcome.text)}{hint}", file=sys.stderr)  # noqa: T201
    code = _CODES.get(state, FAILED)
    if code:
        raise typer.Exit(code)
