"""`asterism grant`: what agents may do without asking each time."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.asked import read_limits, read_pattern, spell
from asterism.cli.given import read_since
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.turn import names
from asterism.errors import InvalidInput
from asterism.times import local_short

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.permissions import Grant

app = group("See what agents may do without asking each time, and change it.")

AgentName = Annotated[
    str | None, typer.Option("--agent", "-a", metavar="NAME", help="Whose calls are meant.")
]


@command(app, "list")
def list_grants(
    options: Options,
    agent: AgentName = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that ended or were revoked.")
    ] = False,
) -> None:
    """Show what was granted and still counts."""

    async def errand(home: Asterism) -> tuple[list[Grant], dict[str, str]]:
        return await home.grants.list(agent, everything=everything), await names(home)

    found, called = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([{**asdict(one), "agent": called.get(one.agent_id or "")} for one in found])
        return
    columns: list[Column[Grant]] = [
        Column("grant", lambda one: one.id),
        Column("agent", lambda one: called.get(one.agent_id or "", "all agents"), prose=True),
        Column("allows", spell, prose=True),
        Column("given", lambda one: local_short(one.given_at), least=90),
    ]
    if everything:
        columns.append(
            Column("revoked", lambda one: local_short(one.revoked_at) if one.revoked_at else "")
        )
    out.table(columns, found, empty="Nothing is granted: agents ask each time.")


@command(app, "give")
def give(
    options: Options,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool, or a glob: file*.")],
    agent: AgentName = None,
    everybody: Annotated[bool, typer.Option("--everybody", help="Calls of all agents.")] = False,
    pattern: Annotated[
        list[str] | None,
        typer.Option("--pattern", metavar="ARGUMENT=GLOB", help="Which calls; several times."),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="When it ends.")
    ] = None,
    uses: Annotated[
        int | None, typer.Option("--uses", metavar="COUNT", help="For how many calls.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="LIMIT",
            help="An amount each (50) or calls a day (3/day); several times.",
        ),
    ] = None,
) -> None:
    """Let an agent call a tool without asking."""
    if (agent is None) != everybody:
        raise InvalidInput(
            "Say whose calls are meant: --agent NAME, or --everybody. Nothing was granted."
        )
    last = read_since(until) if until is not None else None
    globs = read_pattern(pattern)
    amount, per_day = read_limits(limit)

    async def errand(home: Asterism) -> Grant:
        return await home.grants.give(
            tool,
            agent=agent,
            pattern=globs,
            until=last,
            uses=uses,
            amount=amount,
            per_day=per_day,
        )

    grant = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(asdict(grant))
        return
    out.line(f"{grant.id}: {agent or 'all agents'} may make {spell(grant)} without asking.")


@command(app, "revoke")
def revoke(
    options: Options,
    grant: Annotated[str, typer.Argument(metavar="ID", help="The grant's id.")],
) -> None:
    """Take a grant back; from the next call on the agent asks again."""

    async def errand(home: Asterism) -> Grant:
        return await home.grants.revoke(grant)

    found = visit(options, errand)
    out = Output(json=options.json)
    if out.json:
        out.data(asdict(found))
        return
    out.line(f"{found.id} is revoked: {spell(found)} are asked for again.")
