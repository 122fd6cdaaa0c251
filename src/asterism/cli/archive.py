"""`asterism archive`: what agents keep beyond their blocks, found by search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from asterism.cli.gauge import Gauge
from asterism.cli.given import only_one, read_text
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.problem import INTERRUPTED
from asterism.cli.search import Asked, Moment, Present, Tagged, Within, find, print_found
from asterism.cli.search import Limit as SearchLimit
from asterism.cli.shapes import called, plain, visible_to
from asterism.cli.text import one_line, plural
from asterism.cli.whose import Whose, Yes, meant
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text, read_moment

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.memory.gate.passages import Written
    from asterism.store.passages import PassageEdit
    from asterism.types.memory import Passage

app = group("Look at what agents keep, add to it, search and forget.")

PassageId = Annotated[str, typer.Argument(metavar="ID", help="The passage's id.")]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="A word to find it by; give it once for each."),
]
Audience = Annotated[
    str,
    typer.Option("--audience", metavar="WHO", help="Who may hear it: owner, public, person:NAME …"),
]
Text = Annotated[
    str | None, typer.Argument(metavar="TEXT", help="What is to be known; - reads stdin.")
]
TextFile = Annotated[
    Path | None, typer.Option("--file", metavar="FILE", help="The text is in this file.")
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="How many at most.")]


# -- looking ---------------------------------------------------------------------------------------


@command(app, "list")
def list_passages(
    options: Options,
    agent: Whose = None,
    tag: Annotated[
        str | None, typer.Option("--tag", metavar="TAG", help="Only those with this tag.")
    ] = None,
    moment: Annotated[
        str | None, typer.Option("--at", metavar="MOMENT", help="What held then, not now.")
    ] = None,
    before: Annotated[
        str | None, typer.Option("--before", metavar="ID", help="Only those before this one.")
    ] = None,
    limit: Limit = 20,
) -> None:
    """Show the passages of an agent that hold, the newest first."""
    print_passages(options, agent, tag, moment, before, limit)


def print_passages(
    options: Options,
    agent: str | None,
    tag: str | None = None,
    moment: str | None = None,
    before: str | None = None,
    limit: int = 20,
) -> None:
    """Print passages as a table."""
    then = read_moment(moment) if moment is not None else None

    async def errand(home: Asterism) -> tuple[list[Passage], dict[str, str]]:
        whose = await meant(home, agent)
        found = await home.archive.list(whose, tag=tag, moment=then, limit=limit, before=before)
        return found, await called(home)

    found, names = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(found))
        return
    columns: list[Column[Passage]] = [
        Column("passage", lambda one: one.id, least=80),
        Column("known", lambda one: local_short(one.known_from)),
        Column(
            "heard by", lambda one: visible_to(one.source.audience, names), least=110, prose=True
        ),
        Column("trust", lambda one: one.source.trust.value, least=100),
        Column("tags", lambda one: ", ".join(one.tags), least=120, prose=True),
        Column("text", lambda one: one_line(one.text, 160), prose=True),
    ]
    empty = "There is nothing here. " + ('"asterism archive add" adds a passage.')
    out.table(columns, found, empty=empty)


@command(app, "show")
def show(options: Options, passage: PassageId) -> None:
    """Show a passage whole, where it comes from, and what was done to it."""

    async def errand(home: Asterism) -> tuple[Passage, list[PassageEdit], dict[str, str]]:
        found = await home.archive.get(passage)
        return found, await home.archive.history(passage), await called(home)

    found, edits, names = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data({**plain(found), "edits": plain(edits)})
        return
    out.grid(list(_facts(found, names)))
    if edits:
        out.line()
        columns: list[Column[PassageEdit]] = [
            Column("edit", lambda one: str(one.number)),
            Column("when", lambda one: local_short(one.at)),
            Column("what", lambda one: one.kind),
            Column("by", lambda one: one.author, prose=True),
            Column("why", lambda one: one.reason, prose=True),
        ]
        out.table(columns, edits, empty="")


def _facts(one: Passage, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield "passage", one.id
    yield "known", local_text(one.known_from)
    if one.true_from is not None:
        yield "true from", local_text(one.true_from)
    if one.superseded_at is not None:
        yield "ended", f"{local_text(one.superseded_at)}, superseded by {one.superseded_by}"
    if one.retracted_at is not None:
        yield "ended", f"{local_text(one.retracted_at)}, retracted"
    yield "by", one.author
    yield "from", "\n".join(map(str, one.source.origins)) or "unknown"
    yield "heard by", visible_to(one.source.audience, names)
    yield "trust", one.source.trust.value
    if one.tags:
        yield "tags", ", ".join(one.tags)
    if one.metadata:
        yield "metadata", orjson.dumps(one.metadata).decode()
    yield "text", one.text


# -- searching -------------------------------------------------------------------------------------


@command(app, "search")
def search(
    options: Options,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Any text is a query.")],
    agent: Whose = None,
    within: Within = None,
    tag: Tagged = None,
    present: Present = None,
    moment: Moment = None,
    limit: SearchLimit = 10,
) -> None:
    """Search an agent's memory; "asterism search" has more ways to narrow it."""
    print_hits(
        options,
        Asked(
            query,
            agent=agent,
            within=within or (),
            tags=tag or (),
            present=present or (),
            moment=moment,
            limit=limit,
        ),
    )


def print_hits(options: Options, asked: Asked) -> None:
    """Print what a search finds; as JSON, the hits alone."""
    found, names = find(options, asked)
    out = Output(json=options.json)
    if out.json:
        out.data(plain(found.hits))
    else:
        print_found(out, asked, found, names)


# -- writing ---------------------------------------------------------------------------------------


@command(app, "add")
def add(
    options: Options,
    text: Text = None,
    agent: Whose = None,
    file: TextFile = None,
    tag: Tags = None,
    audience: Audience = "owner",
    true_from: Annotated[
        str | None, typer.Option("--true-from", metavar="MOMENT", help="Since when it holds.")
    ] = None,
    supersedes: Annotated[
        str | None, typer.Option("--supersedes", metavar="ID", help="The passage it replaces.")
    ] = None,
) -> None:
    """Store a passage; what is there already is not stored twice."""
    content = _content(text, file)
    since = read_moment(true_from) if true_from is not None else None

    async def errand(home: Asterism) -> Written:
        return await home.archive.add(
            await meant(home, agent),
            content,
            tags=tag or (),
            true_from=since,
            supersedes=supersedes,
            audience=audience,
            by="cli",
        )

    _say(options, visit(options, errand))


@command(app, "append")
def append(options: Options, passage: PassageId, text: Text = None, file: TextFile = None) -> None:
    """Add text to the end of a passage; its former wording stays in the history."""
    content = _content(text, file)

    async def errand(home: Asterism) -> Written:
        return await home.archive.append(passage, content, by="cli")

    _say(options, visit(options, errand))


@command(app, "tag")
def tag_passage(
    options: Options,
    passage: PassageId,
    tags: Annotated[
        list[str] | None, typer.Argument(metavar="TAG", help="The tags it has from now on.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take all tags away.")] = False,
) -> None:
    """Give a passage these tags and no others."""
    if bool(tags) == none:
        raise InvalidInput("Name its tags, or take all away with --none. Nothing was changed.")

    async def errand(home: Asterism) -> Written:
        return await home.archive.tag(passage, tags or (), by="cli")

    _say(options, visit(options, errand))


@command(app, "retract")
def retract(options: Options, passage: PassageId) -> None:
    """Hold a passage to be true no longer; it stays in the history."""

    async def errand(home: Asterism) -> Written:
        return await home.archive.retract(passage, by="cli")

    _say(options, visit(options, errand))


@command(app, "forget")
def forget(
    options: Options,
    passages: Annotated[list[str], typer.Argument(metavar="ID", help="The passages' ids.")],
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; the receipt keeps it.")
    ] = "",
    yes: Yes = False,
) -> None:
    """Forget passages everywhere and for good, with a receipt."""
    from asterism.cli.forget import ForgetOptions, forget_wanted

    forget_wanted(options, ForgetOptions(passages=tuple(passages)), reason=reason, yes=yes)


def _content(text: str | None, file: Path | None) -> str:
    only_one([("TEXT", text), ("--file", file)])
    if file is not None:
        return read_text(file)
    assert text is not None
    return read_text(Path("-")) if text == "-" else text


def _say(options: Options, written: Written) -> None:
    out = Output(json=options.json)
    if out.json:
        out.data(plain(written))
        return
    said = {
        "merged": "It was there already, and keeps this source too",
        "superseded": "Stored, in the place of another",
        "contradicts": "Stored, though it contradicts another",
    }.get(written.kind, written.kind.capitalize())
    out.line(f"{said}: {written.passage.id}.{f' {written.note}' if written.note else ''}")


# -- many at once ----------------------------------------------------------------------------------


@command(app, "import")
def import_file(
    options: Options,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A passage on each line, or JSONL; - is stdin.")
    ],
    agent: Whose = None,
    tag: Tags = None,
    audience: Audience = "owner",
) -> None:
    """Store many passages: one on each line, or JSON objects with a "text"."""
    texts = list(_passages(read_text(file), file))
    if not texts:
        raise InvalidInput(f"{file} holds no passage. Nothing was stored.")

    with Gauge(silent=options.json) as gauge:

        def progress(done: int) -> None:
            told = f"{done:,} of {plural(len(texts), 'passage')}"
            gauge.show(done, len(texts), told, file.name)

        async def errand(home: Asterism) -> int:
            whose = await meant(home, agent)
            return await home.archive.add_many(
                whose, texts, tags=tag or (), audience=audience, by="cli", progress=progress
            )

        try:
            new = visit(options, errand)
        except KeyboardInterrupt:
            done = gauge.last or "before the first was stored"
            typer.echo(
                f"Stopped: {done}. The same command goes on where it stopped, since what is "
                "stored is not stored twice.",
                err=True,
            )
            raise typer.Exit(INTERRUPTED) from None
    out = Output(json=options.json)
    if out.json:
        out.data({"given": len(texts), "stored": new})
    else:
        there = len(texts) - new
        more = f" {there:,} were there already." if there else ""
        out.line(f"Stored {plural(new, 'passage')}.{more}")


def _passages(text: str, file: Path) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        said = line.strip()
        if not said:
            continue
        if not said.startswith("{"):
            yield said
            continue
        try:
            found: Any = orjson.loads(said)
        except orjson.JSONDecodeError:
            yield said
            continue
        inner = found.get("text")
        if not isinstance(inner, str) or not inner.strip():
            raise InvalidInput(
                f'{file} line {number}: a JSON object needs a "text" that says something. '
                "Nothing was stored."
            )
        yield inner
