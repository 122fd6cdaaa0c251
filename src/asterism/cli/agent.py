"""`asterism agent`: lasting identities."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, argument, command, flag, group, open_home, option
from asterism.cli.halt import halt_notes
from asterism.cli.inputs import Yes, read_text, require_yes
from asterism.cli.output import Column, Grid, ItemTable, Result, one_line, plural
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text
from asterism.types.agents import DEFAULT_MODEL

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.agents import Agent
    from asterism.types.agents import AgentRecord

app = group("Create, show, change and delete agents.")

Name = Annotated[str, argument("NAME", "The agent's name or id.")]
Model = Annotated[str | None, option("--model", "MODEL", "Its model, such as openai:gpt-4.1-mini.")]
System = Annotated[str | None, option("--system", "TEXT", "Who it is: its system prompt.")]
SystemFile = Annotated[
    Path | None, option("--system-file", "FILE", "The same, from a file; - reads stdin.")
]
Tools = Annotated[
    list[str] | None, option("--tool", "TOOL", "A tool it may call; repeat for each tool.")
]


@command(
    app,
    "create",
    example='agent create aria --system "You are Aria. You answer in short sentences."',
)
async def create(
    options: Options,
    name: Annotated[str | None, argument("NAME", "A new name.")] = None,
    model: Model = None,
    system: System = None,
    system_file: SystemFile = None,
    tool: Tools = None,
) -> Result:
    """Create an agent; without --tool it may call every tool. Alone it opens a form."""
    if name is None:
        from asterism.cli.builder import CANCELLED, may_build

        if model or system or system_file or tool or not may_build(options):
            raise InvalidInput(
                'Name the new agent, such as "asterism agent create aria". At a terminal, '
                '"asterism agent create" alone opens a form. Nothing was created.'
            )
        filled = await _fill_in(options)
        if filled is None:
            return CANCELLED
        name, model, system, tool = filled
    prompt = _system(system, system_file)
    async with open_home(options) as home:
        agent = await home.agents.create(name, model=model, system=prompt, tools=tool or None)
    chat = f"asterism chat --agent {shlex.quote(agent.name)}"
    return Result(agent, f'Created {agent.name}. "{chat}" opens a chat.')


async def _fill_in(options: Options) -> tuple[str, str | None, str | None, list[str]] | None:
    """Ask in a form for name, model, system prompt and tools; None if it was cancelled."""
    from asterism.app.session import checked_model, checked_system
    from asterism.cli.builder import Form, MarkField, TextField, fill_in, free_name, known_in

    known = await known_in(options)
    name = TextField("name", "such as aria", free_name(known))
    model = TextField("model", "the configured one", lambda text: text and checked_model(text))
    system = TextField(
        "persona", "who it is, in a few sentences", lambda text: text and checked_system(text)
    )
    tools = MarkField("tools", known.tools, "every tool")

    def preview() -> list[str]:
        arguments = ["asterism", "agent", "create", name.text.strip() or "NAME"]
        arguments += ["--model", model.text.strip()] if model.text.strip() else []
        arguments += ["--system", system.text.strip()] if system.text.strip() else []
        for tool in tools.marked:
            arguments += ["--tool", tool]
        return arguments

    if not await fill_in(Form("New agent", [name, model, system, tools], preview)):
        return None
    return (
        name.text.strip(),
        model.text.strip() or None,
        system.text.strip() or None,
        tools.marked,
    )


@command(app, "list", example="agent list", readonly=True)
async def list_agents(
    home: Asterism,
    archived: Annotated[bool, flag("--archived", "Show the archived agents instead.")] = False,
) -> Result:
    """Show all agents that are not archived."""
    agents = await home.agents.list(archived=archived)
    columns: list[Column[AgentRecord]] = [
        Column("agent", lambda agent: agent.name, prose=True),
        Column("model", lambda agent: agent.model, prose=True),
        Column("tools", _tools, least=80, prose=True),
        Column("created", lambda agent: local_short(agent.created_at_ms)),
    ]
    empty = 'There are no agents yet. "asterism agent create" makes one.'
    if archived:
        empty = "No agent is archived."
    elif not agents and await home.agents.list(archived=True):
        empty = 'All agents are archived. "asterism agent list --archived" shows them.'
    return Result(agents, ItemTable(columns, agents, empty), notes=await halt_notes(home))


@command(app, "show", example="agent show aria", readonly=True)
async def show(home: Asterism, name: Name) -> Result:
    """Show one agent with all its settings."""
    agent = await home.agents.get(name)
    limits = agent.limits
    limits_text = (
        f"{limits.steps:,} steps, {limits.seconds:g} s, {limits.tokens:,} tokens, "
        f"{limits.calls:,} calls in a turn"
    )
    rows = [
        ("name", agent.name),
        ("id", agent.id),
        ("model", _model(agent)),
        ("tools", _tools(agent)),
        ("limits", limits_text),
        ("created", local_text(agent.created_at_ms)),
        *([("archived", local_text(agent.archived_at_ms))] if agent.archived_at_ms else []),
        ("version", str(agent.version)),
        ("system", agent.system),
    ]
    return Result(agent, Grid(rows), notes=await halt_notes(home))


@command(app, "edit", example="agent edit aria --model openai:gpt-4.1-mini")
async def edit(
    options: Options,
    name: Name,
    new_name: Annotated[str | None, option("--name", "NEW", "Another name.")] = None,
    model: Model = None,
    system: System = None,
    system_file: SystemFile = None,
    tool: Tools = None,
    all_tools: Annotated[bool, flag("--all-tools", "Let it call every tool.")] = False,
    steps: Annotated[
        int | None, option("--steps", None, "Model replies that one turn may take.", min=1)
    ] = None,
    seconds: Annotated[
        float | None, option("--seconds", None, "Time that one turn may take.", min=0.001)
    ] = None,
    tokens: Annotated[
        int | None, option("--tokens", None, "Tokens that one turn may use.", min=1)
    ] = None,
    calls: Annotated[
        int | None, option("--calls", None, "Tool calls that one turn may make.", min=1)
    ] = None,
) -> Result:
    """Change an agent from its next turn on; options that you leave out stay unchanged."""
    prompt = _system(system, system_file)
    if tool and all_tools:
        raise InvalidInput(
            "--tool and --all-tools cannot be used together. Choose one. Nothing was changed."
        )
    values = {"steps": steps, "seconds": seconds, "tokens": tokens, "calls": calls}
    changed = {key: value for key, value in values.items() if value is not None}
    if not (new_name or model or prompt is not None or tool or all_tools or changed):
        raise InvalidInput(
            f'Say what to change, such as --model; "asterism agent edit --help" shows all '
            f"options. {name} was not changed."
        )
    async with open_home(options) as home:
        limits = replace((await home.agents.get(name)).limits, **changed) if changed else None
        agent = await home.agents.edit(
            name,
            new_name=new_name,
            model=model,
            system=prompt,
            tools=tool or None,
            all_tools=all_tools,
            limits=limits,
        )
    return Result(agent, f"Changed {agent.name}. The change takes effect at its next turn.")


@command(app, "archive", example="agent archive aria")
async def archive(home: Asterism, name: Name) -> Result:
    """Let an agent rest: it is in no list and takes no turns; its memory and journal stay."""
    agent = await home.agents.archive(name)
    back = f'"asterism agent unarchive {shlex.quote(agent.name)}" puts it back to work.'
    return Result(agent, f"Archived {agent.name}. {back}")


@command(app, "unarchive", example="agent unarchive aria")
async def unarchive(home: Asterism, name: Name) -> Result:
    """Put an archived agent back to work, first on what has waited meanwhile."""
    agent = await home.agents.unarchive(name)
    return Result(agent, f"{agent.name} is back at work.")


@command(app, "delete", example="agent delete aria")
async def delete(options: Options, name: Name, yes: Yes = False) -> Result:
    """Delete an agent; its journal stays and can still be read."""
    require_yes(f"Delete {one_line(name)}? Its turns can still be read afterwards.", yes=yes)
    async with open_home(options) as home:
        agent = await home.agents.delete(name)
    return Result(agent, f"Deleted {agent.name}. Its turns can still be read.")


def _system(text: str | None, file: Path | None) -> str | None:
    if text is not None and file is not None:
        raise InvalidInput(
            "--system and --system-file cannot be used together. Choose one. Nothing was changed."
        )
    return text if file is None else read_text(file)


def _model(agent: Agent) -> str:
    """Return the model of an agent; of the default one, which it is."""
    return agent.model if agent.model != DEFAULT_MODEL else f"default ({agent.model_in_use})"


def _tools(agent: AgentRecord) -> str:
    if agent.tools is None:
        return "all"
    return ", ".join(agent.tools) if agent.tools else plural(0, "tool")
