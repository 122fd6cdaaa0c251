"""`asterism source`: folders of documents that agents can search."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import (
    Options,
    argument,
    command,
    flag,
    group,
    note_if_stopped,
    open_home,
    option,
)
from asterism.cli.inputs import Limit, Yes, require_yes
from asterism.cli.output import (
    Column,
    Grid,
    ItemTable,
    ProgressBar,
    Result,
    one_line,
    plural,
    visible_to,
)
from asterism.times import local_short, local_text
from asterism.views import agent_names, page_of, person_names, source_page_view, source_view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.sources import SourceState
    from asterism.sources.folder import Progress
    from asterism.types.documents import SourceDocument

app = group("Let agents search folders of documents.")

Name = Annotated[str, argument("NAME", "The source's name.")]
Reader = Annotated[str, argument("AGENT", "The agent's name, or that of a group.")]
_KB = 1_000
_MB = 1_000_000
MAX_PROBLEMS = 20
MAX_KINDS = 8


@command(app, "add", example="source add papers ~/papers")
async def add(
    home: Asterism,
    options: Options,
    name: Annotated[str, argument("NAME", "A new name.")],
    path: Annotated[Path, argument("PATH", "A folder with documents, or one file.")],
    agent: Annotated[
        list[str] | None,
        option(
            "--agent -a",
            "NAME",
            "An agent that can search it, or a group: its supervisor (default: the only agent).",
        ),
    ] = None,
    include: Annotated[
        list[str] | None,
        option("--include", "GLOB", 'Only files that match, such as "notes/**/*.md".'),
    ] = None,
    exclude: Annotated[list[str] | None, option("--exclude", "GLOB", "Not these.")] = None,
    audience: Annotated[str, option("--audience", "WHO", "Who may see the documents.")] = "owner",
    later: Annotated[bool, flag("--later", 'Do not read it now; "sync" does.')] = False,
) -> Result:
    """Add a folder or a file as a source, and read it."""
    agents = agent or [only.name for only in await home.agents.list()]
    if agent is None and len(agents) > 1:
        agents = []
    await home.sources.add(
        name,
        path,
        agents=agents,
        include=include or (),
        exclude=exclude or (),
        audience=audience,
    )
    hint: list[str] = []
    if not agents:
        command = f"asterism source attach {shlex.quote(name)} AGENT"
        hint = [f'No agent can search {name} yet: "{command}" lets one.']
    if later:
        added = f'Added {name}. "asterism source sync {shlex.quote(name)}" reads it.'
        return Result({"name": name}, added, *hint)
    done = await sync(home, options, name)
    return Result(done.data, *done.parts, *hint)


@command(app, "list", example="source list", readonly=True)
async def list_sources(home: Asterism) -> Result:
    """Show all sources and their state."""
    sources, agents = await home.sources.list(), await agent_names(home)
    columns: list[Column[SourceState]] = [
        Column("source", lambda state: state.source.name, prose=True),
        Column("documents", lambda state: f"{state.documents:,}"),
        Column("passages", lambda state: f"{state.passages:,}"),
        Column("refused", lambda state: f"{state.refused:,}", least=80),
        Column("read", lambda state: _read_at(state, local_short)),
        Column("agents", lambda state: _readers(state, agents), prose=True),
        Column("path", lambda state: state.source.path, least=100, prose=True),
    ]
    empty = 'There are no sources yet. "asterism source add" makes one.'
    shapes = [source_view(state, agents) for state in sources]
    return Result(shapes, ItemTable(columns, sources, empty))


def _readers(state: SourceState, agents: dict[str, str]) -> str:
    return ", ".join(agents.get(agent, agent) for agent in state.agents) or "none"


def _read_at(state: SourceState, words: Callable[[int], str]) -> str:
    return words(state.source.synced_at_ms) if state.source.synced_at_ms else "never"


def _size(state: SourceState, joined: str = ", ") -> str:
    return f"{plural(state.documents, 'document')}{joined}{plural(state.passages, 'passage')}"


async def _state(home: Asterism, name: str) -> SourceState:
    wanted = await home.sources.get(name)
    return next(state for state in await home.sources.list() if state.source.id == wanted.id)


@command(app, "show", example="source show papers", readonly=True)
async def show(
    home: Asterism,
    name: Name,
    after: Annotated[str, option("--after", "PATH", "Only documents after this one.")] = "",
    limit: Limit = 50,
) -> Result:
    """Show a source and the state of its documents."""
    state, agents = await _state(home, name), await agent_names(home)
    documents = await home.sources.documents(name, after=after, limit=limit)
    page = page_of(documents, limit, lambda document: document.path)
    source = state.source
    facts = [
        ("source", source.name),
        ("path", source.path),
        ("agents", _readers(state, agents)),
        ("visible to", visible_to(source.audience, await person_names(home))),
        ("read", _read_at(state, local_text)),
        ("holds", _size(state)),
    ]
    facts += [("only", ", ".join(source.include))] if source.include else []
    facts += [("not", ", ".join(source.exclude))] if source.exclude else []
    facts += [("not read", _unread(source.unread))] if source.unread else []
    columns: list[Column[SourceDocument]] = [
        Column("document", lambda document: document.path, prose=True),
        Column("state", lambda document: document.state.value),
        Column("passages", lambda document: f"{document.passages:,}"),
        Column("size", lambda document: f"{document.size:,}", least=80),
        Column("problem", lambda document: document.error or "", least=80, prose=True),
    ]
    more = [] if page.next is None else [f'"--after {one_line(page.next)}" shows more.']
    return Result(
        source_page_view(state, page, agents),
        Grid(facts),
        "",
        ItemTable(columns, page.items, "No documents have been read yet."),
        *more,
    )


@command(app, "sync", example="source sync papers")
async def sync(home: Asterism, options: Options, name: Name) -> Result:
    """Read new and changed documents; an interrupted run continues where it stopped."""
    bar = ProgressBar(silent=options.json)

    def progress(now: Progress) -> None:
        bar.update(now.bytes, now.bytes_total, progress_text(now), now.path)

    def stopped() -> str:
        far = f" at {bar.last}" if bar.last else ""
        return (
            f'Stopped{far}. "asterism source sync {shlex.quote(name)}" continues where it stopped.'
        )

    with note_if_stopped(stopped), bar:
        done = await home.sources.sync(name, progress=progress)
    words = [f"read {plural(done.read, 'document')} ({plural(done.passages, 'passage')})"]
    counts = {"unchanged": done.unchanged, "removed": done.removed, "refused": done.refused}
    words += [f"{count:,} {what}" for what, count in counts.items() if count]
    lines = [f"{name}: {', '.join(words)}."]
    lines += [f"  Not read: {_unread(done.unread)}."] if done.unread else []
    lines += [f"  {problem}" for problem in done.problems[:MAX_PROBLEMS]]
    if len(done.problems) > MAX_PROBLEMS:
        lines.append(f'  … "asterism source show {shlex.quote(name)}" shows all.')
    return Result(done, *lines)


def _unread(kinds: Mapping[str, int]) -> str:
    """Say how many files were passed over, and of which kinds: `1 file of a kind that …`."""
    count = sum(kinds.values())
    if len(kinds) == 1:
        return f"{plural(count, 'file')} of a kind that is not read ({one_line(next(iter(kinds)))})"
    named = [f"{number:,} {one_line(kind)}" for kind, number in kinds.items()][:MAX_KINDS]
    more = [f"{len(kinds) - MAX_KINDS:,} more kinds"] if len(kinds) > MAX_KINDS else []
    return f"{plural(count, 'file')} of kinds that are not read ({', '.join([*named, *more])})"


def progress_text(now: Progress) -> str:
    """Say how far reading is: documents, size in a unit that fits, passages."""
    if now.bytes_total < _KB:
        size = f"{now.bytes:,} of {plural(now.bytes_total, 'byte')}"
    else:
        unit, name = (_MB, "MB") if now.bytes_total >= _MB else (_KB, "kB")
        size = f"{now.bytes / unit:,.1f} of {now.bytes_total / unit:,.1f} {name}"
    files = f"{now.documents:,} of {plural(now.documents_total, 'document')}"
    return f"{files}, {size}, {plural(now.passages, 'passage')}"


@command(app, "remove", example="source remove papers")
async def remove(options: Options, name: Name, yes: Yes = False) -> Result:
    """Remove a source and its passages; the files stay."""
    async with open_home(options, readonly=True) as home:
        state = await _state(home, name)
    size = _size(state, " and ")
    require_yes(f"Remove {name} with {size}? The files stay.", yes=yes)
    stopped = f'Stopped. "asterism source remove {shlex.quote(name)}" continues where it stopped.'
    with note_if_stopped(lambda: stopped):
        async with open_home(options) as home:
            await home.sources.remove(name)
    shape = {"name": name, "documents": state.documents, "passages": state.passages}
    return Result(shape, f"Removed {name}: {size}. The files stay.")


@command(app, "attach", example="source attach papers aria")
async def attach(home: Asterism, name: Name, agent: Reader) -> Result:
    """Let an agent search a source, or the supervisor of a group."""
    reader = await home.sources.attach(name, agent)
    return Result({"name": name, "agent": reader}, f"{reader} can search {name}.")


@command(app, "detach", example="source detach papers aria")
async def detach(home: Asterism, name: Name, agent: Reader) -> Result:
    """Do not let an agent search a source any more."""
    reader = await home.sources.detach(name, agent)
    return Result({"name": name, "agent": reader}, f"{reader} cannot search {name} any more.")


@command(app, "pause", example="source pause papers")
async def pause(home: Asterism, name: Name) -> Result:
    """Pause a source: its documents can be searched, but new ones are not read."""
    await home.sources.pause(name)
    return Result({"name": name}, f"Paused {name}.")


@command(app, "resume", example="source resume papers")
async def resume(home: Asterism, name: Name) -> Result:
    """Resume a paused source."""
    await home.sources.resume(name)
    return Result(
        {"name": name}, f'Resumed {name}. "asterism source sync {shlex.quote(name)}" reads it.'
    )
