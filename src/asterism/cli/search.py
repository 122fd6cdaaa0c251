"""`asterism search`: what agents remember on anything, with what was found marked."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from asterism.cli.commands import Options, argument, flag, open_home, option
from asterism.cli.inputs import (
    AgentOption,
    choose_agent,
    optional_moment,
    read_since,
    read_until,
)
from asterism.cli.output import Result, console, one_line
from asterism.errors import InvalidInput
from asterism.records import dataclass
from asterism.times import local_minute
from asterism.views import agent_names

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from asterism.app import Asterism
    from asterism.cli.output import Output
    from asterism.types.search import Hit, Neighbour, SearchResult

Within = Annotated[
    list[str] | None,
    option(
        "--in", "WHERE", "messages, passages, documents, blocks or summaries; separated by commas."
    ),
]
Tags = Annotated[
    list[str] | None, option("--tag", "TAG", "Only passages with this tag; repeatable.")
]
Present = Annotated[list[str] | None, option("--present", "NAME", "Only what this person may see.")]
Moment = Annotated[str | None, option("--at", "MOMENT", "Search memory as it was at this moment.")]
SearchLimit = Annotated[int, option("--limit", None, "The maximum number.", min=1, max=1000)]

_PLAIN_WIDTH = 300
_MATCH = "bold underline"
_LINES = 3
"""How many lines of a terminal the text of a hit takes at most."""
_MAX_READ = 200_000
"""Of a text that is longer, the rest is not looked through for what to show."""
_NEAR_SPACE = 20
"""How far to look for the space before or after a word, so that it is not cut."""


@dataclass(frozen=True, slots=True)
class SearchOptions:
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
        """Return what narrows the search, as the home takes it."""
        filters: dict[str, Any] = {
            "speaker": self.speaker,
            "role": self.role,
            "since": read_since(self.since) if self.since is not None else None,
            "until": read_until(self.until) if self.until is not None else None,
            "tags": tuple(self.tags),
            "source": self.source,
            "moment": optional_moment(self.moment),
        }
        if domains := [part.strip() for text in self.within for part in text.split(",")]:
            filters["domains"] = tuple(domains)
        return filters

    @property
    def is_narrow(self) -> bool:
        """Whether a filter may be why nothing was found."""
        return any(self.filters().values()) or bool(self.present)


async def search(
    options: Options,
    query: Annotated[
        list[str] | None, argument("QUERY", "Any text; without one, the newest are shown.")
    ] = None,
    agent: AgentOption = None,
    everyone: Annotated[bool, flag("--all", "The memory of all agents.")] = False,
    within: Within = None,
    speaker: Annotated[
        str | None, option("--speaker", "NAME", "Only what this person, account or agent said.")
    ] = None,
    role: Annotated[
        str | None, option("--role", "ROLE", "Only messages of user or assistant.")
    ] = None,
    since: Annotated[str | None, option("--since", "WHEN", "Nothing older than this.")] = None,
    until: Annotated[str | None, option("--until", "WHEN", "Nothing newer than this.")] = None,
    tag: Tags = None,
    source: Annotated[
        str | None, option("--source", "NAME", "Only documents of this source.")
    ] = None,
    moment: Moment = None,
    limit: SearchLimit = 10,
    page: Annotated[int, option("--page", None, "Which page, from 1.", min=1)] = 1,
    near: Annotated[
        int, option("--near", None, "How many texts before and after each hit.", min=0, max=50)
    ] = 0,
    present: Present = None,
) -> Result:
    """Search all that agents remember: messages, passages, documents, blocks and summaries."""
    search_options = SearchOptions(
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
    hits = await find(options, search_options)
    return Result(hits.result, hits, notes=hits.notes)


async def find(options: Options, search_options: SearchOptions) -> FoundHits:
    """Search, and return what is found as a part of a result."""
    filters = search_options.filters()
    if search_options.everyone and search_options.agent is not None:
        raise InvalidInput(
            "--agent and --all cannot be used together. Choose one. Nothing was searched."
        )
    async with open_home(options, readonly=True) as home:
        return await search_home(home, search_options, filters)


async def search_home(
    home: Asterism, search_options: SearchOptions, filters: dict[str, Any]
) -> FoundHits:
    """Search in a home that is open."""
    from asterism.types.agents import OWNER_ALONE

    agent, names = None, {}
    if search_options.everyone:
        names = await agent_names(home)
    else:
        instead = "Or search the memory of all with --all."
        agent = await choose_agent(home, search_options.agent, instead=instead)
    present = search_options.present
    result = await home.search(
        agent,
        search_options.words,
        participants=await home.people.participants(present) if present else OWNER_ALONE,
        limit=search_options.limit,
        offset=(search_options.page - 1) * search_options.limit,
        neighbours=search_options.near,
        **filters,
    )
    return FoundHits(search_options, result, names)


# -- printing --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FoundHits:
    """What a search has found; `names` of agents by id, where several were searched."""

    options: SearchOptions
    result: SearchResult
    names: dict[str, str]

    @property
    def notes(self) -> list[str]:
        """What a person should know of the search."""
        notes = list(self.result.notes)
        if self.result.more:
            notes.append(f"There is more: --page {self.options.page + 1} shows it.")
        return notes

    def show(self, out: Output) -> None:
        """Print the hits."""
        if not self.result.hits:
            out.line(_nothing_found(self.options))
        elif sys.stdout.isatty():
            screen = console()
            for number, hit in enumerate(_with_surroundings(self.result.hits)):
                if number:
                    screen.print()
                _show_hit(screen, hit, self.names)
        else:
            for hit in _with_surroundings(self.result.hits):
                out.line("  ".join(_head(hit, self.names)))
                for neighbour in hit.before:
                    out.line(f"    | {_line(neighbour)}")
                out.line(f"    {excerpt_of(hit, _PLAIN_WIDTH).text}")
                for neighbour in hit.after:
                    out.line(f"    | {_line(neighbour)}")
                out.line(f"    {hit.reason}")


def _with_surroundings(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that stand for themselves, each with what was found only by its words."""
    from asterism.types.search import Neighbour

    here = {hit.id for hit in hits if not hit.beside}
    around: dict[str, dict[int, Neighbour]] = {}
    for hit in hits:
        if hit.beside in here:
            neighbour = Neighbour(hit.id, hit.text, hit.at_ms, hit.speaker, hit.source)
            around.setdefault(hit.beside, {})[hit.steps] = neighbour
    shown: list[Hit] = []
    for hit in hits:
        if hit.beside not in here:
            found = around.get(hit.id, {})
            found |= dict(zip(range(-len(hit.before), 0), hit.before, strict=True))
            found |= dict(enumerate(hit.after, 1))
            before = tuple(found[step] for step in sorted(found) if step < 0)
            after = tuple(found[step] for step in sorted(found) if step > 0)
            shown.append(replace(hit, before=before, after=after))
    return shown


def _nothing_found(options: SearchOptions) -> str:
    if options.page > 1:
        return f"Page {options.page} is empty; earlier pages have all hits."
    on = f" on {one_line(options.words, 80)!r}" if options.words.strip() else ""
    if options.is_narrow:
        return f"Nothing was found{on}. Try other words, or search more widely with fewer options."
    if not on:
        return (
            "There is nothing to search yet. Messages, passages and documents are found here later."
        )
    return f"Nothing was found{on}. Try other words."


def _head(hit: Hit, names: dict[str, str]) -> list[str]:
    """Return what a hit is, when it was said, by whom and where; its id is the last."""
    trust, agent = hit.source.trust, names.get(hit.agent_id)
    parts = [
        hit.kind.value,
        local_minute(hit.at_ms),
        f"[{agent}]" if agent else "",
        hit.speaker,
        "" if hit.id.startswith(f"{hit.where}:") else hit.where,
        "" if trust.trusted else f"({trust.value})",
        hit.id,
    ]
    return [one_line(part) for part in parts if part]


def _show_hit(screen: Console, hit: Hit, names: dict[str, str]) -> None:
    from rich.text import Text

    *head, name = _head(hit, names)
    first = Text.assemble(("  ".join(head), "cyan"))
    if first.cell_len + len(name) + 2 <= screen.width:
        screen.print(first.append("  ").append(name, "dim"))
    else:
        screen.print(first)
        screen.print(_indented(Text(name, "dim", overflow="fold")))
    width = max(screen.width - 2, 20)
    for neighbour in hit.before:
        screen.print(_beside(neighbour, width))
    screen.print(_indented(_marked(excerpt_of(hit, _room(hit, width)))))
    for neighbour in hit.after:
        screen.print(_beside(neighbour, width))
    screen.print(_indented(Text(one_line(hit.reason), "dim")))


def _room(hit: Hit, width: int) -> int:
    """Return how many characters of a hit fit; those of some scripts take two cells each."""
    from rich.cells import cell_len

    sample = one_line(hit.text, 200)
    return max(20, (width * _LINES - 10) * len(sample) // max(cell_len(sample), 1))


def _indented(text: Text) -> Padding:
    from rich.padding import Padding

    return Padding(text, (0, 0, 0, 2), expand=False)


def _beside(neighbour: Neighbour, width: int) -> Text:
    from rich.text import Text

    line = Text(f"  │ {_line(neighbour)}", "dim", no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def _line(neighbour: Neighbour) -> str:
    speaker = f"{neighbour.speaker}: " if neighbour.speaker else ""
    return one_line(f"{speaker}{neighbour.text}", _PLAIN_WIDTH)


def _marked(excerpt: Excerpt) -> Text:
    from rich.text import Text

    text = Text(excerpt.text)
    for first, last in excerpt.places:
        text.stylize(_MATCH, first, last)
    return text


# -- the part of a text that is shown: around what was found, with the places to mark --------------


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A text on one line, and where in it the words are that were found."""

    text: str
    places: tuple[tuple[int, int], ...]


def excerpt_of(hit: Hit, limit: int) -> Excerpt:
    """Return at most so many characters of a hit, those with the most of what was found."""
    line = one_line(hit.text[:_MAX_READ])
    places = _places(line, [one_line(word) for word in hit.matched])
    if len(line) <= limit:
        return Excerpt(line, tuple(places))
    first = _start(line, places, limit)
    last = _end(line, places, first + limit)
    lead, trail = "…" * (first > 0), "…" * (last < len(line))
    moved = len(lead) - first
    lines = [
        (start + moved, end + moved) for start, end in places if start >= first and end <= last
    ]
    return Excerpt(f"{lead}{line[first:last]}{trail}", tuple(lines))


def _places(line: str, words: list[str]) -> list[tuple[int, int]]:
    """Return where the words are, as whole words if they are anywhere written so."""
    places: set[tuple[int, int]] = set()
    for word in filter(None, words):
        inner = re.escape(word)
        # Some scripts have no space between words.
        whole = [match.span() for match in re.finditer(rf"(?<!\w){inner}(?!\w)", line)]
        places.update(whole or [match.span() for match in re.finditer(inner, line)])
    merged: list[tuple[int, int]] = []
    for first, last in sorted(places):
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _start(line: str, places: list[tuple[int, int]], limit: int) -> int:
    """Return where the part begins that has the most different words, a little before the first."""
    best, start, ahead = 0, 0, limit // 4
    for first, _ in places:
        begin = max(0, min(first - ahead, len(line) - limit))
        inside = {line[from_:to] for from_, to in places if begin <= from_ and to <= begin + limit}
        if len(inside) > best:
            best, start = len(inside), begin
    space = line.find(" ", start, start + _NEAR_SPACE)
    return space + 1 if start and space >= 0 and not _is_in(places, start, space) else start


def _end(line: str, places: list[tuple[int, int]], last: int) -> int:
    if last >= len(line):
        return len(line)
    space = line.rfind(" ", last - _NEAR_SPACE, last)
    return space if space >= 0 and not _is_in(places, space, last) else last


def _is_in(places: list[tuple[int, int]], first: int, last: int) -> bool:
    return any(start < last and end > first for start, end in places)
