"""`asterism archive`: what agents keep beyond their blocks, found by search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson

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
from asterism.cli.inputs import (
    AgentOption,
    Limit,
    Yes,
    choose_agent,
    only_one,
    optional_moment,
    read_text,
)
from asterism.cli.memory import ForgetOptions, ForgetReason, forget_result
from asterism.cli.output import (
    Column,
    Grid,
    ItemTable,
    ProgressBar,
    Result,
    one_line,
    plural,
    up_to,
    visible_to,
)
from asterism.cli.search import Moment, Present, SearchLimit, SearchOptions, Tags, Within, find
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text
from asterism.views import person_names, view

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.cli.output import Part
    from asterism.memory.gate.passages import Written
    from asterism.store.passages import PassageEdit
    from asterism.types.memory import Passage

app = group("Show, add, search and forget passages.")

PassageId = Annotated[str, argument("ID", "The passage's id.")]
NewTags = Annotated[list[str] | None, option("--tag", "TAG", "A tag; repeat for each tag.")]
Audience = Annotated[
    str, option("--audience", "WHO", "Who may see it: owner, public, person:NAME …")
]
Text = Annotated[str | None, argument("TEXT", "The text; - reads stdin.")]
TextFile = Annotated[Path | None, option("--file", "FILE", "The text is in this file.")]


# -- looking ---------------------------------------------------------------------------------------


@command(app, "list", example="archive list --limit 5")
async def list_passages(
    options: Options,
    agent: AgentOption = None,
    tag: Annotated[str | None, option("--tag", "TAG", "Only those with this tag.")] = None,
    moment: Annotated[
        str | None, option("--at", "MOMENT", "Passages that were valid then, not now.")
    ] = None,
    before: Annotated[str | None, option("--before", "ID", "Only those before this one.")] = None,
    limit: Limit = 20,
) -> Result:
    """Show the valid passages of an agent, the newest first."""
    then = optional_moment(moment)
    async with open_home(options, readonly=True) as home:
        which = await choose_agent(home, agent)
        found = await home.archive.list(which, tag=tag, moment=then, limit=limit + 1, before=before)
        names = await person_names(home)
    passages, notes = up_to(found, limit)
    columns: list[Column[Passage]] = [
        Column("passage", lambda passage: passage.id, least=80),
        Column("known", lambda passage: local_short(passage.known_from_ms)),
        Column("visible to", lambda passage: _audience(passage, names), least=110, prose=True),
        Column("trust", lambda passage: passage.source.trust.value, least=100),
        Column("tags", lambda passage: ", ".join(passage.tags), least=120, prose=True),
        Column("text", lambda passage: one_line(passage.text, 160), prose=True),
    ]
    empty = 'There are no passages. "asterism archive add" adds a passage.'
    return Result(passages, ItemTable(columns, passages, empty), notes=notes)


def _audience(passage: Passage, names: dict[str, str]) -> str:
    return visible_to(passage.source.audience, names)


@command(app, "show", example="archive show pas_01a1ed55", readonly=True)
async def show(home: Asterism, passage: PassageId) -> Result:
    """Show a passage with its sources and its history."""
    details = await home.archive.get(passage)
    edits = await home.archive.history(passage)
    parts: list[Part | str] = [Grid(list(_facts(details, await person_names(home))))]
    if edits:
        columns: list[Column[PassageEdit]] = [
            Column("edit", lambda edit: str(edit.number)),
            Column("when", lambda edit: local_short(edit.at_ms)),
            Column("what", lambda edit: edit.kind),
            Column("by", lambda edit: edit.author, prose=True),
            Column("why", lambda edit: edit.reason, prose=True),
        ]
        parts += ["", ItemTable(columns, edits)]
    return Result({**view(details), "edits": edits}, *parts)


def _facts(passage: Passage, names: dict[str, str]) -> Iterator[tuple[str, str]]:
    yield "passage", passage.id
    yield "known", local_text(passage.known_from_ms)
    if passage.true_from_ms is not None:
        yield "true from", local_text(passage.true_from_ms)
    if passage.superseded_at_ms is not None:
        when = local_text(passage.superseded_at_ms)
        yield "ended", f"{when}, superseded by {passage.superseded_by}"
    if passage.retracted_at_ms is not None:
        yield "ended", f"{local_text(passage.retracted_at_ms)}, retracted"
    yield "by", passage.author
    yield "from", "\n".join(map(str, passage.source.origins)) or "unknown"
    yield "visible to", _audience(passage, names)
    yield "trust", passage.source.trust.value
    if passage.tags:
        yield "tags", ", ".join(passage.tags)
    if passage.metadata:
        yield "metadata", orjson.dumps(passage.metadata).decode()
    yield "text", passage.text


@command(app, "search", example='archive search "boiler invoice"')
async def search(
    options: Options,
    query: Annotated[str, argument("QUERY", "Any text is a query.")],
    agent: AgentOption = None,
    within: Within = None,
    tag: Tags = None,
    present: Present = None,
    moment: Moment = None,
    limit: SearchLimit = 10,
) -> Result:
    """Search an agent's memory; "asterism search" has more ways to narrow it."""
    search_options = SearchOptions(
        query,
        agent=agent,
        within=within or (),
        tags=tag or (),
        present=present or (),
        moment=moment,
        limit=limit,
    )
    return await hits_result(options, search_options)


async def hits_result(options: Options, search_options: SearchOptions) -> Result:
    """Return what a search finds; as JSON, the hits alone."""
    hits = await find(options, search_options)
    return Result(hits.result.hits, hits, notes=hits.notes)


# -- writing ---------------------------------------------------------------------------------------


@command(app, "add", example='archive add "The boiler was serviced on 3 May."')
async def add(
    options: Options,
    text: Text = None,
    agent: AgentOption = None,
    file: TextFile = None,
    tag: NewTags = None,
    audience: Audience = "owner",
    true_from: Annotated[
        str | None, option("--true-from", "MOMENT", "Since when it is valid.")
    ] = None,
    supersedes: Annotated[
        str | None, option("--supersedes", "ID", "The passage it replaces.")
    ] = None,
) -> Result:
    """Store a passage; a duplicate is not stored again."""
    content = _read_content(text, file)
    since = optional_moment(true_from)
    async with open_home(options) as home:
        written = await home.archive.add(
            await choose_agent(home, agent),
            content,
            tags=tag or (),
            true_from=since,
            supersedes=supersedes,
            audience=audience,
            by="cli",
        )
    return _written_result(written)


@command(app, "append", example='archive append pas_01a1ed55 "It cost 120 euros."')
async def append(
    options: Options, passage: PassageId, text: Text = None, file: TextFile = None
) -> Result:
    """Add text to the end of a passage; the earlier text stays in the history."""
    content = _read_content(text, file)
    async with open_home(options) as home:
        return _written_result(await home.archive.append(passage, content, by="cli"))


@command(app, "tag", example="archive tag pas_01a1ed55 house")
async def tag_passage(
    options: Options,
    passage: PassageId,
    tags: Annotated[list[str] | None, argument("TAG", "The new tags.")] = None,
    none: Annotated[bool, flag("--none", "Remove all tags.")] = False,
) -> Result:
    """Replace the tags of a passage."""
    if bool(tags) == none:
        raise InvalidInput("Name its tags, or remove all with --none. Nothing was changed.")
    async with open_home(options) as home:
        return _written_result(await home.archive.tag(passage, tags or (), by="cli"))


@command(app, "retract", example="archive retract pas_01a1ed55")
async def retract(home: Asterism, passage: PassageId) -> Result:
    """Mark a passage as no longer true; it stays in the history."""
    return _written_result(await home.archive.retract(passage, by="cli"))


@command(app, "forget", example="archive forget pas_01a1ed55")
async def forget(
    options: Options,
    passages: Annotated[list[str], argument("ID", "The passages' ids.")],
    reason: ForgetReason = "",
    yes: Yes = False,
) -> Result:
    """Forget passages everywhere and for good, with a receipt."""
    wanted = ForgetOptions(passages=tuple(passages))
    return await forget_result(options, wanted, reason=reason, yes=yes)


def _read_content(text: str | None, file: Path | None) -> str:
    only_one([("TEXT", text), ("--file", file)])
    if file is not None:
        return read_text(file)
    assert text is not None
    return read_text(Path("-")) if text == "-" else text


def _written_result(written: Written) -> Result:
    if written.kind == "merged":
        told = f"Already stored as {written.passage.id}, which now names this source as well."
        return Result(written, told)
    what = {
        "superseded": "Stored; it replaces another",
        "contradicts": "Stored, but it contradicts another",
    }.get(written.kind, written.kind.capitalize())
    more = f" {written.note}" if written.note else ""
    return Result(written, f"{what}: {written.passage.id}.{more}")


# -- many at once ----------------------------------------------------------------------------------


@command(app, "import", example="archive import notes.md")
async def import_file(
    options: Options,
    file: Annotated[Path, argument("FILE", "A passage on each line, or JSONL; - is stdin.")],
    agent: AgentOption = None,
    tag: NewTags = None,
    audience: Audience = "owner",
) -> Result:
    """Store many passages: one on each line, or JSON objects with a "text"."""
    texts = list(_read_passages(read_text(file), file))
    if not texts:
        raise InvalidInput(f"{file} has no passages. Nothing was stored.")
    bar = ProgressBar(silent=options.json)

    def progress(done: int) -> None:
        bar.update(done, len(texts), f"{done:,} of {plural(len(texts), 'passage')}", file.name)

    def stopped() -> str:
        return (
            f"Stopped: {bar.last or 'before the first was stored'}. Run the same command "
            "again to continue: duplicates are not stored twice."
        )

    with note_if_stopped(stopped), bar:
        async with open_home(options) as home:
            new = await home.archive.add_many(
                await choose_agent(home, agent),
                texts,
                tags=tag or (),
                audience=audience,
                by="cli",
                progress=progress,
            )
    known = len(texts) - new
    more = f" {known:,} were already stored." if known else ""
    shape = {"given": len(texts), "stored": new}
    return Result(shape, f"Stored {plural(new, 'passage')}.{more}")


def _read_passages(text: str, file: Path) -> Iterator[str]:
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if not line:
            continue
        if not line.startswith("{"):
            yield line
            continue
        try:
            value: Any = orjson.loads(line)
        except orjson.JSONDecodeError:
            yield line
            continue
        inner = value.get("text")
        if not isinstance(inner, str) or not inner.strip():
            raise InvalidInput(
                f'{file} line {number}: a JSON object needs a "text" that is not empty. '
                "Nothing was stored."
            )
        yield inner
