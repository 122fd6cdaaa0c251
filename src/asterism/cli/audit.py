"""`asterism audit`: what was done, by whom and why, and whether it is as it was written."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import orjson

from asterism.cli.commands import FAILED, Options, argument, command, group, open_home, option
from asterism.cli.inputs import Limit, read_since, read_until
from asterism.cli.output import Column, Grid, ItemTable, Result, one_line, plural, printable, up_to
from asterism.errors import InvalidInput
from asterism.private import private
from asterism.times import local_short, local_text
from asterism.views import (
    VERDICTS,
    autonomy_view,
    event_reference,
    event_view,
    verification_view,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from asterism.app import Asterism
    from asterism.cli.output import Part
    from asterism.store.events import RecordedEvent, Verified

app = group("Show what was done, by whom and why; verify and export the audit log.")

_FORGOTTEN = "(forgotten)"
_ABOUT = ("what", "verdict", "reason", "because")

Since = Annotated[str | None, option("--since", "TIME", 'From then on: "2 hours ago".')]
Until = Annotated[str | None, option("--until", "TIME", "Up to then.")]


def _read_span(since: str | None, until: str | None) -> tuple[datetime | None, datetime | None]:
    return read_since(since) if since else None, read_until(until) if until else None


@command(app, "list", example="audit list --limit 10")
async def list_events(
    options: Options,
    agent: Annotated[str | None, option("--agent", "NAME", "Only events of this agent.")] = None,
    kind: Annotated[
        str | None,
        option(
            "--kind", "KIND", "Only this kind, such as call.denied, or call for all kinds of calls."
        ),
    ] = None,
    actor: Annotated[str | None, option("--actor", "WHO", "Only events of this actor.")] = None,
    turn: Annotated[str | None, option("--turn", "TURN", "Only events of this turn.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
) -> Result:
    """Show events, newest first."""
    first, last = _read_span(since, until)
    async with open_home(options, readonly=True) as home:
        found = await home.audit.list(
            agent=agent, kind=kind, actor=actor, turn=turn, since=first, until=last, limit=limit + 1
        )
        names = await home.audit.names()
    events, notes = up_to(found, limit)
    columns: list[Column[RecordedEvent]] = [
        Column("event", lambda event: event_reference(event, names)),
        Column("at", lambda event: local_short(event.at_ms)),
        Column("who", lambda event: event.actor, prose=True, least=80),
        Column("kind", lambda event: event.kind),
        Column("what", _summary, prose=True),
        Column("turn", lambda event: event.turn_id or "", least=140),
    ]
    shapes = [event_view(event, names) for event in events]
    return Result(shapes, ItemTable(columns, events, "No event matches."), notes=notes)


@command(app, "autonomy", example="audit autonomy")
async def autonomy(
    options: Options,
    agent: Annotated[str | None, option("--agent", "NAME", "Only calls of this agent.")] = None,
    since: Since = None,
    until: Until = None,
) -> Result:
    """Count calls with an effect outside: which ran without asking, were asked for, or denied."""
    first, last = _read_span(since, until)
    async with open_home(options, readonly=True) as home:
        calls = await home.audit.autonomy(agent=agent, since=first, until=last)
    ran, asked, denied = (calls.total(verdict) for verdict in VERDICTS)
    total = ran + asked + denied
    parts: list[Part | str] = []
    if not total:
        parts.append("No call had an effect outside.")
    else:
        parts.append(
            f"Of {plural(total, 'call')} with an effect outside, {ran:,} ran without asking "
            f"({ran / total:.0%}), {asked:,} were asked for, {denied:,} were denied."
        )
        columns: list[Column[tuple[str, Mapping[str, int]]]] = [
            Column("tool", lambda row: row[0], prose=True),
            Column("ran", lambda row: f"{row[1]['allowed']:,}"),
            Column("asked", lambda row: f"{row[1]['asked']:,}"),
            Column("denied", lambda row: f"{row[1]['denied']:,}"),
        ]
        parts.append(ItemTable(columns, list(calls.tools.items())))
    if calls.forgotten:
        count = plural(calls.forgotten, "event")
        parts.append(f"{count} about calls were forgotten and not counted.")
    return Result(autonomy_view(calls), *parts)


@command(app, "show", example="audit show aria:7", readonly=True)
async def show(
    home: Asterism,
    event: Annotated[str, argument("EVENT", "CHAIN:NUMBER, such as aria:12 or home:3.")],
) -> Result:
    """Show one event, with what led to it."""
    details, names = await home.audit.get(event), await home.audit.names()
    body = details.body or {}
    rows = [
        ("event", event_reference(details, names)),
        ("at", local_text(details.at_ms)),
        ("kind", details.kind),
        ("who", details.actor),
        ("agent", names.get(details.agent_id or "", details.agent_id or "")),
        ("turn", details.turn_id or ""),
        ("what", _words(body.get("what")) if details.body is not None else _FORGOTTEN),
        ("verdict", _words(body.get("verdict"))),
        ("reason", _words(body.get("reason"))),
        *((name, _words(value)) for name, value in body.items() if name not in _ABOUT),
        ("hash", details.hash.hex()),
    ]
    parts: list[Part | str] = [Grid([row for row in rows if row[1]])]
    chain: list[dict[str, Any]] = body.get("because") or []
    if chain:
        links = [_link(number, link) for number, link in enumerate(chain, 1)]
        parts += ["\nWhat led to it, from what was read to what was decided:", Grid(links)]
    return Result(event_view(details, names), *parts)


@command(app, "verify", example="audit verify")
async def verify(
    options: Options,
    head: Annotated[
        str | None,
        option(
            "--head",
            "EVENT:HASH",
            "An event that was written down elsewhere, such as home:120:9f86d081…",
        ),
    ] = None,
) -> Result:
    """Check that every event of the log is as it was written."""
    if head is not None and head.count(":") < 2:
        raise InvalidInput(
            f"{head!r} is not an event with its hash. Write CHAIN:NUMBER:HASH, as this command "
            "prints it. Nothing was verified."
        )
    async with open_home(options, readonly=True) as home:
        verified, names = await home.audit.verify(head=head), await home.audit.names()
    code = 0 if verified.sound else FAILED
    return Result(verification_view(verified), *_verification(verified, names), code=code)


def _verification(verified: Verified, names: Mapping[str, str]) -> Iterator[Part | str]:
    chains = plural(len(verified.heads), "chain")
    if verified.sound:
        yield f"{plural(verified.events, 'event')} in {chains} are as they were written."
    else:
        yield f"{plural(verified.events, 'event')} in {chains} were read, and some are not valid:"
        yield Grid(
            [
                (f"{names.get(flaw.chain, flaw.chain)}:{flaw.number or ''}".rstrip(":"), flaw.what)
                for flaw in verified.flaws
            ]
        )
    if verified.forgotten:
        events = "one event" if verified.forgotten == 1 else f"{verified.forgotten:,} events"
        yield f"The content of {events} was forgotten; their time and kind were not."
    for head in verified.heads:
        if names.get(head.chain) == "home":
            yield f"The head is home:{head.length}:{head.hash.hex()}"
            yield "Keep it in another place: with --head it proves later that no event was removed."


@command(app, "export", example="audit export --file audit.jsonl")
async def export(
    options: Options,
    file: Annotated[
        Path | None, option("--file", "FILE", "The file to write; default: standard output.")
    ] = None,
    form: Annotated[str, option("--format", "FORMAT", "jsonl or csv.")] = "jsonl",
) -> Result | None:
    """Write the whole log with its hashes; they can be verified without asterism."""
    if form not in {"jsonl", "csv"}:
        raise InvalidInput(
            f"{form!r} is not a valid format of an export. Use jsonl or csv. Nothing was written."
        )
    try:
        async with open_home(options, readonly=True) as home:
            count = await _export(home, file, form)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InvalidInput(
            f"{file} cannot be written ({error.strerror}). Name another file."
        ) from None
    if file is None:
        return None
    shape = {"file": str(file), "events": count}
    return Result(shape, f"{plural(count, 'event')} written to {file}.")


async def _export(home: Asterism, file: Path | None, form: str) -> int:
    count = 0
    target = _private(file) if file else sys.stdout
    try:
        async for line in home.audit.export(form):
            target.write(line)
            count += 1
    finally:
        if file:
            target.close()
    return count - (form == "csv")


def _private(file: Path) -> TextIO:
    """Open a file for writing that only this user reads, if it is new."""
    return open(file, "w", encoding="utf-8", newline="", opener=private)


# -- in words --------------------------------------------------------------------------------------


def _summary(event: RecordedEvent) -> str:
    """Return in few words what was done, and how it was decided."""
    if event.body is None:
        return _FORGOTTEN
    what, reason = (_words(event.body.get(name)) for name in ("what", "reason"))
    if not what and not reason:
        what = ", ".join(f"{name} {_words(value)}" for name, value in event.body.items())
    if not reason:
        return one_line(what, 160)
    # The reason is what somebody looks for; a call may be as long as it likes.
    return f"{one_line(what, 60)} · {one_line(reason, 160)}"


def _words(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return str(value)
    return one_line(orjson.dumps(value).decode(), 2_000)


def _link(number: int, link: Mapping[str, Any]) -> tuple[str, str, str, str]:
    origin, what = _words(link.get("from")), printable(_words(link.get("what")))
    return f"{number}.", _words(link.get("trust")), origin, what
