"""`asterism agent`: lasting identities."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.given import read_text
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.text import one_line, plural
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord, Limits

app = group("Create, show, change and delete agents.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The agent's name or id.")]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="Its model, such as openai:gpt-4.1-mini."),
]
System = Annotated[
    str | None, typer.Option("--system", metavar="TEXT", help="Who it is: its system prompt.")
]
SystemFile = Annotated[
    Path | None,
    typer.Option("--system-file", metavar="FILE", help="The same, from a file; - reads stdin."),
]
Tools = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="TOOL", help="A tool it may call; give it once for each."),
]


@command(app, "create")
def create(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that is free.")],
    model: Model = None,
    system: System = None,
    system_file: SystemFile = None,
    tool: Tools = None,
) -> None:
    """Create an agent; without --tool it may call every tool there is."""
    prompt = _system(system, system_file)

    async def errand(home: Asterism) -> AgentRecord:
        return await home.agents.create(name, model=model, system=prompt, tools=tool or None)

    agent = visit(options, errand)
    _done(options, agent, f'Created {agent.name}. "{_chat(agent)}" opens a chat.')


@command(app, "list")
def list_all(options: Options) -> None:
    """Show all agents."""

    async def errand(home: Asterism) -> Sequence[AgentRecord]:
        return await home.agents.list()

    agents = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(agents)
        return
    columns: list[Column[AgentRecord]] = [
        Column("agent", lambda one: one.name, prose=True),
        Column("model", lambda one: one.model, prose=True),
        Column("tools", _tools, least=80, prose=True),
        Column("created", lambda one: local_short(one.created_at)),
    ]
    out.table(columns, agents, empty='There are no agents yet. "asterism agent create" makes one.')


@command(app, "show")
def show(options: Options, name: Name) -> None:
    """Show one agent with everything it was given."""

    async def errand(home: Asterism) -> AgentRecord:
        return await home.agents.get(name)

    agent = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(agent)
        return
    most = agent.limits
    limits = (
        f"{most.steps:,} steps, {most.seconds:g} s, {most.tokens:,} tokens, {most.calls:,} calls"
    )
    out.grid(
        [
            ("name", agent.name),
            ("id", agent.id),
            ("model", agent.model),
            ("tools", _tools(agent)),
            ("limits", f"{limits} in a turn"),
            ("created", local_text(agent.created_at)),
            ("version", str(agent.version)),
            ("system", agent.system),
        ]
    )


@command(app, "edit")
def edit(
    options: Options,
    name: Name,
    new_name: Annotated[
        str | None, typer.Option("--name", metavar="NEW", help="Another name.")
    ] = None,
    model: Model = None,
    system: System = None,
    system_file: SystemFile = None,
    tool: Tools = None,
    all_tools: Annotated[
        bool, typer.Option("--all-tools", help="Let it call every tool there is.")
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Model replies that one turn may take.")
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(min=0.001, help="Time that one turn may take.")
    ] = None,
    tokens: Annotated[int | None, typer.Option(min=1, help="Tokens that one turn may use.")] = None,
    calls: Annotated[
        int | None, typer.Option(min=1, help="Tool calls that one turn may make.")
    ] = None,
) -> None:
    """Change an agent; what is not given stays. It counts from its next turn on."""
    prompt = _system(system, system_file)
    if tool and all_tools:
        raise InvalidInput("--tool and --all-tools exclude each other. Nothing was changed.")
    given = {"steps": steps, "seconds": seconds, "tokens": tokens, "calls": calls}
    changed = {key: value for key, value in given.items() if value is not None}
    if not (new_name or model or prompt is not None or tool or all_tools or changed):
        raise InvalidInput(
            f'Say what to change, such as --model; "asterism agent edit --help" shows what there '
            f"is. {name} stays as it is."
        )

    async def errand(home: Asterism) -> AgentRecord:
        agent = await home.agents.get(name)
        limits: Limits | None = replace(agent.limits, **changed) if changed else None
        return await home.agents.edit(
            name,
            new_name=new_name,
            model=model,
            system=prompt,
            tools=tool or None,
            all_tools=all_tools,
            limits=limits,
        )

    agent = visit(options, errand)
    _done(options, agent, f"Changed {agent.name}; its next turn goes by it.")


@command(app, "delete")
def delete(
    options: Options,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Take an agent out of service; its journal stays and can be read."""
    if not yes:
        _confirm(name)

    async def errand(home: Asterism) -> AgentRecord:
        return await home.agents.delete(name)

    agent = visit(options, errand)
    _done(options, agent, f"Deleted {agent.name}. Its turns can still be read.")


def _confirm(name: str) -> None:
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"Deleting {name} takes a yes, and there is no terminal to ask at. "
            "Add --yes. Nothing was deleted."
        )
    if not typer.confirm(
        f"Delete {one_line(name)}? Its turns can still be read afterwards.", err=True
    ):
        raise typer.Exit(1)


def _system(text: str | None, file: Path | None) -> str | None:
    if text is not None and file is not None:
        raise InvalidInput("--system and --system-file exclude each other. Nothing was changed.")
    return text if file is None else read_text(file)


def _done(options: Options, agent: AgentRecord, said: str) -> None:
    out = Output(json=options.json)
    if out.json:
        out.data(agent)
    else:
        out.line(said)


def _tools(agent: AgentRecord) -> str:
    if agent.tools is None:
        return "all"
    return ", ".join(agent.tools) if agent.tools else plural(0, "tool")


def _chat(agent: AgentRecord) -> str:
    return f"asterism chat --agent {agent.name}"
