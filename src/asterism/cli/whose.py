"""Whose memory a command is about, and who may hear it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asterism.errors import InvalidInput

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord

Whose = Annotated[
    str | None, typer.Option("--agent", "-a", metavar="NAME", help="Whose memory is meant.")
]
Everybodys = Annotated[
    bool, typer.Option("--constellation", help="A block that belongs to all agents together.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the history keeps it.")]

_SHARED = "constellation"
_MOST = 10


def block_of(agent: str | None, label: str, *, everybodys: bool) -> tuple[str | None, str]:
    """Return whose eyes a label is read with, and the label; None: the owner's, who sees all."""
    if not everybodys:
        return agent, label
    if agent is not None:
        raise InvalidInput(
            "--agent and --constellation exclude each other. Give one of them. Nothing was done."
        )
    return None, label if "/" in label else f"{_SHARED}/{label}"


async def meant(home: Asterism, agent: str | None, *, instead: str = "") -> AgentRecord:
    """Return the agent that is named; where there is only one, that one needs no name.

    `instead` is a sentence on what else can be done where there are several.
    """
    if agent is not None:
        return await home.agents.get(agent)
    there = await home.agents.list()
    if len(there) == 1:
        return there[0]
    if not there:
        raise InvalidInput(
            'There are no agents yet. "asterism agent create" makes one. Nothing was done.'
        )
    names = ", ".join(one.name for one in there[:_MOST]) + (" …" if len(there) > _MOST else "")
    told = f"Say whose memory is meant with --agent: {names}."
    raise InvalidInput(f"{told} {instead}" if instead else told, outcome="Nothing was done.")
