"""`asterism search`: what agents remember on anything, with what was found marked."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from asterism.cli.excerpt import Excerpt, cut
from asterism.cli.given import read_since, read_until
from asterism.cli.home import visit
from asterism.cli.options import Options
from asterism.cli.output import Output, console
from asterism.cli.shapes import plain
from asterism.cli.text import one_line, printable
from asterism.cli.whose import Whose, meant
from asterism.errors import InvalidInput
from asterism.times import local_minute, read_moment

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from asterism.app import Asterism
    from asterism.types.search import Hit, Neighbour, SearchResult

Within = Annotated[
    list[str] | None,
    typer.Option(
        "--in",
        metavar="WHERE",
        help="messages, passages, documents, blocks or summaries; several with commas.",
    ),
]
Tagged = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Only passages with this tag; once for each."),
]
Present = Annotated[
    list[str] | None,
    typer.Option("--present", metavar="NAME", help="Only what this person may hear."),
]
Moment = Annotated[
    str | None, typer.Option("--at", metavar="MOMENT", help="Memory as it was then.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many at most.")]

_PLAIN_WIDTH = 300
_MATCH = "bold underline"
_LINES = 3
"""How many lines of a terminal the text of a hit takes at most."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A search as it was typed."""

    words: str
    agent: str | None = None
    everyone: bool = False
    within: Sequence[str] = ()
    speaker: str | None = None
    role: str | None = None
    since: str | None = None
    until: str | None = None
    tags: Sequence[str] = ()
    source: str | None = None
    moment: str | None = None
    limit: int = 10
    page: int = 1
    near: int = 0
    present: Sequence[str] = ()

    def filters(self) -> dict[str, Any]:
        """Return what narrows the search, as the verb takes it."""
        given: dict[str, Any] = {
            "speaker": self.speaker,
            "role": self.role,
            "since": read_since(self.since) if self.since is not None else None,
            "until": read_until(self.until) if self.until is not None else None,
            "tags": tuple(self.tags),
            "source": self.source,
            "moment": read_moment(self.moment) if self.moment is not None else None,
        }
        if domains := [part.strip() for one in self.within for part in one.split(",")]:
            given["domains"] = tuple(domains)
        return given

    def narrowed(self) -> bool:
        """Tell whether a filter may be why nothing was found."""
        return any(self.filters().values()) or bool(self.present)


def search(
    options: Options,
    query: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUERY", help="Any text; without one, the newest are shown."),
    ] = None,
    agent: Whose = None,
    everyone: Annotated[bool, typer.Option("--all", help="The memory of all agents.")] = False,
    within: Within = None,
    speaker: Annotated[
        str | None,
        typer.Option(
            "--speaker", metavar="NAME", help="Only what this person, account or agent said."
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option("--role", metavar="ROLE", help="Only messages of user or assistant."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="WHEN", help="Nothing older than this.")
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="WHEN", help="Nothing newer than this.")
    ] = None,
    tag: Tagged = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="NAME", help="Only documents of this source."),
    ] = None,
    moment: Moment = None,
    limit: Limit = 10,
    page: Annotated[int, typer.Option("--page", min=1, help="Which page, from 1.")] = 1,
    near: Annotated[
        int,
        typer.Option("--near", min=0, max=50, help="How many texts before and after each hit."),
    ] = 0,
    present: Present = None,
) -> None:
    """Search all that agents remember: messages, passages, documents, blocks and summaries."""
    asked = Asked(
        " ".join(query or ()),
        agent=agent,
        everyone=everyone,
        within=within or (),
        speaker=speaker,
        role=role,
        since=since,
        until=until,
        tags=tag or (),
        source=source,
        moment=moment,
        limit=limit,
        page=page,
        near=near,
        present=present or (),
    )
    found, names = find(options, asked)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(found))
    else:
        print_found(out, asked, found, names)


def find(options: Options, asked: Asked) -> tuple[SearchResult, dict[str, str]]:
    """Return what is found, and where several agents were searched, their names by id."""
    filters = asked.filters()

    async def errand(home: Asterism) -> tuple[SearchResult, dict[str, str]]:
        from asterism.types.agents import OWNER_ALONE

        whose = (
            None
            if asked.everyone
            else await meant(home, asked.agent, instead="Or search the memory of all with --all.")
        )
        participants = (
            await home.people.participants(asked.present) if asked.present else OWNER_ALONE
        )
        found = await home.search(
            whose,
            asked.words,
            participants=participants,
            limit=asked.limit,
            offset=(asked.page - 1) * asked.limit,
            neighbours=asked.near,
            **filters,
        )
        return found, {
            one.id: one.name for one in await home.agents.list()
        } if whose is None else {}

    if asked.everyone and asked.agent is not None:
        raise InvalidInput(
            "--agent and --all exclude each other. Give one of them. Nothing was searched."
        )
    return visit(options, errand, readonly=True)


# -- printing --------------------------------------------------------------------------------------


def print_found(out: Output, asked: Asked, found: SearchResult, names: dict[str, str]) -> None:
    """Print hits for people, and beside them what they should know of the search."""
    if not found.hits:
        out.line(_nothing(asked))
    elif sys.stdout.isatty():
        screen = console()
        for number, hit in enumerate(found.hits):
            if number:
                screen.print()
            _show(screen, hit, names)
    else:
        for hit in found.hits:
            out.line("  ".join(_head(hit, names)))
            for one in hit.before:
                out.line(f"    | {_said(one)}")
            out.line(f"    {cut(hit, _PLAIN_WIDTH).text}")
            for one in hit.after:
                out.line(f"    | {_said(one)}")
            out.line(f"    {hit.reason}")
    for note in found.notes:
        typer.echo(printable(note), err=True)
    if found.more:
        typer.echo(f"There is more: --page {asked.page + 1} shows it.", err=True)


def _nothing(asked: Asked) -> str:
    if asked.page > 1:
        return f"There is nothing on page {asked.page}. The pages before it have all."
    on = f" on {one_line(asked.words, 80)!r}" if asked.words.strip() else ""
    if asked.narrowed():
        return f"Nothing was found{on}. Try other words, or search more widely with fewer options."
    if not on:
        return "There is nothing here yet: what agents hear, say and keep is found from then on."
    return f"Nothing was found{on}. Try other words."


def _head(hit: Hit, names: dict[str, str]) -> list[str]:
    """Return what a hit is, when it was said, by whom and where, and its id as the last."""
    trust, whose = hit.source.trust, names.get(hit.agent_id)
    parts = [
        hit.kind.value,
        local_minute(hit.at),
        f"[{whose}]" if whose else "",
        hit.speaker,
        "" if hit.id.startswith(f"{hit.where}:") else hit.where,
        "" if trust.trusted else f"({trust.value})",
        hit.id,
    ]
    return [one_line(part) for part in parts if part]


def _show(screen: Console, hit: Hit, names: dict[str, str]) -> None:
    from rich.text import Text

    *head, name = _head(hit, names)
    first = Text.assemble(("  ".join(head), "cyan"))
    if first.cell_len + len(name) + 2 <= screen.width:
        screen.print(first.append("  ").append(name, "dim"))
    else:
        screen.print(first)
        screen.print(_indented(Text(name, "dim", overflow="fold")))
    width = max(screen.width - 2, 20)
    for one in hit.before:
        screen.print(_beside(one, width))
    screen.print(_indented(_marked(cut(hit, _room(hit, width)))))
    for one in hit.after:
        screen.print(_beside(one, width))
    screen.print(_indented(Text(one_line(hit.reason), "dim")))


def _room(hit: Hit, width: int) -> int:
    """Return how many characters of a hit fit; those of some scripts take two cells each."""
    from rich.cells import cell_len

    sample = one_line(hit.text, 200)
    return max(20, (width * _LINES - 10) * len(sample) // max(cell_len(sample), 1))


def _indented(text: Text) -> Padding:
    from rich.padding import Padding

    return Padding(text, (0, 0, 0, 2), expand=False)


def _beside(one: Neighbour, width: int) -> Text:
    from rich.text import Text

    line = Text(f"  │ {_said(one)}", "dim", no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def _said(one: Neighbour) -> str:
    return one_line(f"{one.speaker}: {one.text}" if one.speaker else one.text, _PLAIN_WIDTH)


def _marked(excerpt: Excerpt) -> Text:
    from rich.text import Text

    text = Text(excerpt.text)
    for first, last in excerpt.places:
        text.stylize(_MATCH, first, last)
    return text
