"""`asterism source`: folders of documents that agents can search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.gauge import Gauge
from asterism.cli.given import be_sure
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.problem import INTERRUPTED
from asterism.cli.shapes import called, plain, visible_to
from asterism.cli.text import one_line, plural
from asterism.cli.turn import names
from asterism.cli.whose import Yes
from asterism.times import local_short, local_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from asterism.app import Asterism
    from asterism.app.sources import SourceState
    from asterism.sources.folder import Progress, SyncResult
    from asterism.types.documents import SourceDocument

app = group("Let agents search folders of documents.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The source's name.")]
Reader = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name.")]
_MB = 1_000_000
_MOST_PROBLEMS = 20


@command(app, "add")
def add(
    options: Options,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that is free.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the documents are.")],
    agent: Annotated[
        list[str] | None,
        typer.Option("--agent", "-a", metavar="NAME", help="An agent that can search it."),
    ] = None,
    include: Annotated[
        list[str] | None,
        typer.Option("--include", metavar="GLOB", help='Only these, such as "notes/**/*.md".'),
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option("--exclude", metavar="GLOB", help="Not these.")
    ] = None,
    audience: Annotated[
        str, typer.Option("--audience", metavar="WHO", help="Who may hear what they say.")
    ] = "owner",
    later: Annotated[
        bool, typer.Option("--later", help='Do not read it now; "sync" does.')
    ] = False,
) -> None:
    """Make a source of a folder, and read it."""

    async def errand(home: Asterism) -> None:
        await home.sources.add(
            name,
            folder,
            agents=agent or (),
            include=include or (),
            exclude=exclude or (),
            audience=audience,
        )

    visit(options, errand)
    if not later:
        _sync(options, name)
        return
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name})
    else:
        out.line(f'Added {name}. "asterism source sync {name}" reads it.')


@command(app, "list")
def list_sources(options: Options) -> None:
    """Show all sources and how they stand."""

    async def errand(home: Asterism) -> tuple[list[SourceState], dict[str, str]]:
        return await home.sources.list(), await names(home)

    found, agents = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([_data(one, agents) for one in found])
        return
    columns: list[Column[SourceState]] = [
        Column("source", lambda one: one.source.name, prose=True),
        Column("documents", lambda one: f"{one.documents:,}"),
        Column("passages", lambda one: f"{one.passages:,}"),
        Column("refused", lambda one: f"{one.refused:,}", least=80),
        Column(
            "read",
            lambda one: local_short(one.source.synced_at) if one.source.synced_at else "never",
        ),
        Column("agents", lambda one: _readers(one, agents), prose=True),
        Column("folder", lambda one: one.source.path, least=100, prose=True),
    ]
    out.table(columns, found, empty='There are no sources yet. "asterism source add" makes one.')


def _data(one: SourceState, agents: dict[str, str]) -> dict[str, object]:
    readers = [agents.get(agent, agent) for agent in one.agents]
    return {**plain(one.source), **plain(one), "source": one.source.name, "agents": readers}


def _readers(one: SourceState, agents: dict[str, str]) -> str:
    return ", ".join(agents.get(agent, agent) for agent in one.agents) or "none"


@command(app, "show")
def show(
    options: Options,
    name: Name,
    after: Annotated[
        str, typer.Option("--after", metavar="PATH", help="Only documents after this one.")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 50,
) -> None:
    """Show a source and what became of its documents."""

    async def errand(
        home: Asterism,
    ) -> tuple[SourceState, Sequence[SourceDocument], dict[str, str], dict[str, str]]:
        wanted = await home.sources.get(name)
        (state,) = [one for one in await home.sources.list() if one.source.id == wanted.id]
        found = await home.sources.documents(name, after=after, limit=limit)
        return state, found, await names(home), await called(home)

    state, found, agents, persons = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data({**_data(state, agents), "files": plain(found)})
        return
    source = state.source
    facts = [
        ("source", source.name),
        ("folder", source.path),
        ("agents", _readers(state, agents)),
        ("heard by", visible_to(source.audience, persons)),
        ("read", local_text(source.synced_at) if source.synced_at else "never"),
        ("holds", f"{plural(state.documents, 'document')}, {plural(state.passages, 'passage')}"),
    ]
    facts += [("only", ", ".join(source.include))] if source.include else []
    facts += [("not", ", ".join(source.exclude))] if source.exclude else []
    out.grid(facts)
    out.line()
    columns: list[Column[SourceDocument]] = [
        Column("document", lambda one: one.path, prose=True),
        Column("state", lambda one: one.state.value),
        Column("passages", lambda one: f"{one.passages:,}"),
        Column("size", lambda one: f"{one.size:,}", least=80),
        Column("problem", lambda one: one.error or "", least=80, prose=True),
    ]
    out.table(columns, list(found), empty="No document was read yet.")
    if len(found) == limit:
        out.line(f'"--after {one_line(found[-1].path)}" shows more.')


@command(app, "sync")
def sync(options: Options, name: Name) -> None:
    """Read what is new or has changed; it goes on where it was cut off before."""
    _sync(options, name)


def _sync(options: Options, name: str) -> None:
    with Gauge(silent=options.json) as gauge:

        def progress(one: Progress) -> None:
            gauge.show(one.bytes, one.bytes_total, _told(one), one.path)

        async def errand(home: Asterism) -> SyncResult:
            return await home.sources.sync(name, progress=progress)

        try:
            done = visit(options, errand)
        except KeyboardInterrupt:
            far = f" at {gauge.last}" if gauge.last else ""
            typer.echo(
                f'Stopped{far}. "asterism source sync {name}" goes on where it stopped.', err=True
            )
            raise typer.Exit(INTERRUPTED) from None
    out = Output(json=options.json)
    if out.json:
        out.data(plain(done))
        return
    told = [f"read {plural(done.read, 'document')} ({plural(done.passages, 'passage')})"]
    told += [f"{done.unchanged:,} unchanged"] if done.unchanged else []
    told += [f"{done.removed:,} removed"] if done.removed else []
    told += [f"{done.refused:,} refused"] if done.refused else []
    out.line(f"{name}: {', '.join(told)}.")
    for problem in done.problems[:_MOST_PROBLEMS]:
        out.line(f"  {problem}")
    if len(done.problems) > _MOST_PROBLEMS:
        out.line(f'  … "asterism source show {name}" shows all.')


def _told(one: Progress) -> str:
    size = f"{one.bytes / _MB:,.1f} of {one.bytes_total / _MB:,.1f} MB"
    files = f"{one.documents:,} of {plural(one.documents_total, 'document')}"
    return f"{files}, {size}, {plural(one.passages, 'passage')}"


@command(app, "remove")
def remove(options: Options, name: Name, yes: Yes = False) -> None:
    """Take a source away with all that was read from it; the files stay."""

    async def look(home: Asterism) -> SourceState:
        wanted = await home.sources.get(name)
        (state,) = [one for one in await home.sources.list() if one.source.id == wanted.id]
        return state

    state = visit(options, look, readonly=True)
    held = f"{plural(state.documents, 'document')} and {plural(state.passages, 'passage')}"
    be_sure(f"Remove {name} with {held}? The files stay.", yes=yes)

    async def errand(home: Asterism) -> None:
        await home.sources.remove(name)

    try:
        visit(options, errand)
    except KeyboardInterrupt:
        typer.echo(f'Stopped. "asterism source remove {name}" goes on where it stopped.', err=True)
        raise typer.Exit(INTERRUPTED) from None
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name, "documents": state.documents, "passages": state.passages})
    else:
        out.line(f"Removed {name}: {held}. The files stay.")


@command(app, "attach")
def attach(options: Options, name: Name, agent: Reader) -> None:
    """Let an agent search a source."""

    async def errand(home: Asterism) -> None:
        await home.sources.attach(name, agent)

    visit(options, errand)
    _say(options, name, agent, f"{agent} can search {name}.")


@command(app, "detach")
def detach(options: Options, name: Name, agent: Reader) -> None:
    """Let an agent search a source no longer."""

    async def errand(home: Asterism) -> None:
        await home.sources.detach(name, agent)

    visit(options, errand)
    _say(options, name, agent, f"{agent} cannot search {name} any more.")


@command(app, "pause")
def pause(options: Options, name: Name) -> None:
    """Let a source rest: what was read can be searched, and nothing is read anew."""

    async def errand(home: Asterism) -> None:
        await home.sources.pause(name)

    visit(options, errand)
    _say(options, name, None, f"{name} is paused.")


@command(app, "resume")
def resume(options: Options, name: Name) -> None:
    """Let a source that rested be read again."""

    async def errand(home: Asterism) -> None:
        await home.sources.resume(name)

    visit(options, errand)
    _say(options, name, None, f'{name} can be read again. "asterism source sync {name}" reads it.')


def _say(options: Options, name: str, agent: str | None, said: str) -> None:
    out = Output(json=options.json)
    if out.json:
        out.data({"name": name} | ({} if agent is None else {"agent": agent}))
    else:
        out.line(said)
