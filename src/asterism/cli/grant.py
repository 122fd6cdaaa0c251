"""`asterism grant`: what agents may do without asking each time."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Annotated

from asterism.cli.approval import grant_text, read_limits, read_pattern
from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.inputs import read_since
from asterism.cli.output import Column, ItemTable, Result
from asterism.errors import InvalidInput
from asterism.times import local_short
from asterism.views import agent_names, grant_view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.permissions import Grant

app = group("Show and change what agents may do without asking each time.")

AgentName = Annotated[str | None, option("--agent -a", "NAME", "The agent whose calls to allow.")]


@command(app, "list", example="grant list", readonly=True)
async def list_grants(
    home: Asterism,
    agent: Annotated[
        str | None, option("--agent -a", "NAME", "Only grants for calls of this agent.")
    ] = None,
    everything: Annotated[
        bool, flag("--all", "Also show grants that ended or were revoked.")
    ] = False,
) -> Result:
    """Show the valid grants."""
    grants = await home.grants.list(agent, everything=everything)
    agents = await agent_names(home)
    columns: list[Column[Grant]] = [
        Column("grant", lambda grant: grant.id),
        Column("agent", lambda grant: agents.get(grant.agent_id or "", "all agents"), prose=True),
        Column("allows", grant_text, prose=True),
        Column("given", lambda grant: local_short(grant.given_at_ms), least=90),
    ]
    if everything:
        columns.append(
            Column(
                "revoked",
                lambda grant: local_short(grant.revoked_at_ms) if grant.revoked_at_ms else "",
            )
        )
    shapes = [grant_view(grant, agents) for grant in grants]
    return Result(shapes, ItemTable(columns, grants, "There are no grants: agents ask each time."))


@command(app, "give", example="grant give pay --agent aria --uses 3")
async def give(
    options: Options,
    tool: Annotated[str, argument("TOOL", "The tool, or a glob: file*.")],
    agent: AgentName = None,
    everybody: Annotated[bool, flag("--everybody", "Calls of all agents.")] = False,
    pattern: Annotated[
        list[str] | None, option("--pattern", "ARGUMENT=GLOB", "Which calls it covers; repeatable.")
    ] = None,
    until: Annotated[str | None, option("--until", "TIME", "When it ends.")] = None,
    uses: Annotated[int | None, option("--uses", "COUNT", "The number of calls.")] = None,
    limit: Annotated[
        list[str] | None,
        option("--limit", "LIMIT", "An amount per call (50) or calls a day (3/day); repeatable."),
    ] = None,
) -> Result:
    """Let an agent call a tool without asking."""
    if (agent is None) != everybody:
        raise InvalidInput(
            "Name the agent with --agent NAME, or use --everybody. Nothing was granted."
        )
    last = read_since(until) if until is not None else None
    globs = read_pattern(pattern)
    amount, per_day = read_limits(limit)
    async with open_home(options) as home:
        grant = await home.grants.give(
            tool,
            agent=agent,
            pattern=globs,
            until=last,
            uses=uses,
            amount=amount,
            per_day=per_day,
        )
        known = {str(offered["name"]) for offered in await home.tools.offered()}
    missing = [f"There is no tool {tool!r} here yet."] if not fnmatch.filter(known, tool) else []
    who = agent or "all agents"
    return Result(
        grant, f"{grant.id}: {who} may make {grant_text(grant)} without asking.", *missing
    )


@command(app, "revoke", example="grant revoke grant_01a1ed55")
async def revoke(
    home: Asterism,
    grant: Annotated[str, argument("ID", "The grant's id.")],
) -> Result:
    """Revoke a grant; the agent asks again from the next call on."""
    revoked = await home.grants.revoke(grant)
    return Result(revoked, f"Revoked {revoked.id}: {grant_text(revoked)} need an approval again.")
