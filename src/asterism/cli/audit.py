"""`asterism audit`: what was done, by whom and why, and whether it is as it was written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import orjson
import typer

from asterism.cli.given import read_since, read_until
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output
from asterism.cli.problem import FAILED
from asterism.cli.text import one_line, plural, printable
from asterism.errors import InvalidInput
from asterism.private import private
from asterism.times import local_short, local_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asterism.app import Asterism
    from asterism.app.audit import Autonomy
    from asterism.store.events import Recorded, Verified

app = group("See what was done, by whom and why; verify and export the audit log.")

_FORGOTTEN = "(forgotten)"
_ABOUT = ("what", "verdict", "reason", "because")


@command(app, "list")
def list_events(
    options: Options,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only those of this agent.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", metavar="KIND", help="Only these, such as call.denied, or all of call."
        ),
    ] = None,
    actor: Annotated[
        str | None, typer.Option("--actor", metavar="WHO", help="Only what they did.")
    ] = None,
    turn: Annotated[
        str | None, typer.Option("--turn", metavar="TURN", help="Only those of this turn.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help='From then on: "2 hours ago".')
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Up to then.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="How many at most.")] = 50,
) -> None:
    """Show events, newest first."""
    first = read_since(since) if since else None
    last = read_until(until) if until else None

    async def errand(home: Asterism) -> tuple[list[Recorded], dict[str, str]]:
        found = await home.audit.list(
            agent=agent, kind=kind, actor=actor, turn=turn, since=first, until=last, limit=limit
        )
        return found, await home.audit.names()

    found, names = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data([_plain(one, names) for one in found])
        return
    columns: list[Column[Recorded]] = [
        Column("event", lambda one: _ref(one, names)),
        Column("at", lambda one: local_short(one.at)),
        Column("who", lambda one: one.actor, prose=True, least=80),
        Column("kind", lambda one: one.kind),
        Column("what", _told, prose=True),
        Column("turn", lambda one: one.turn_id or "", least=140),
    ]
    out.table(columns, found, empty="Nothing was done that fits.")


@command(app, "autonomy")
def autonomy(
    options: Options,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only calls of this agent.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help='From then on: "2 days ago".')
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Up to then.")
    ] = None,
) -> None:
    """Count calls with an effect outside: which ran without asking, were asked for, or denied."""
    first = read_since(since) if since else None
    last = read_until(until) if until else None

    async def errand(home: Asterism) -> Autonomy:
        return await home.audit.autonomy(agent=agent, since=first, until=last)

    found = visit(options, errand, readonly=True)
    counts = {verdict: found.total(verdict) for verdict in ("allowed", "asked", "denied")}
    out = Output(json=options.json)
    if out.json:
        out.data({**counts, "tools": found.tools, "forgotten": found.forgotten})
        return
    total = sum(counts.values())
    if not total:
        out.line("No call had an effect outside.")
    else:
        ran = counts["allowed"]
        out.line(
            f"Of {plural(total, 'call')} with an effect outside, {ran:,} ran without asking "
            f"({ran / total:.0%}), {counts['asked']:,} were asked for, "
            f"{counts['denied']:,} were denied."
        )
        columns: list[Column[tuple[str, Mapping[str, int]]]] = [
            Column("tool", lambda one: one[0], prose=True),
            Column("ran", lambda one: f"{one[1]['allowed']:,}"),
            Column("asked", lambda one: f"{one[1]['asked']:,}"),
            Column("denied", lambda one: f"{one[1]['denied']:,}"),
        ]
        out.table(columns, list(found.tools.items()), empty="")
    if found.forgotten:
        out.line(f"{plural(found.forgotten, 'event')} about calls were forgotten and not counted.")


@command(app, "show")
def show(
    options: Options,
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="CHAIN:NUMBER, such as aria:12 or home:3.")
    ],
) -> None:
    """Show one event, with what led to it."""

    async def errand(home: Asterism) -> tuple[Recorded, dict[str, str]]:
        return await home.audit.get(event), await home.audit.names()

    found, names = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(_plain(found, names))
        return
    body = found.body or {}
    rows = [
        ("event", _ref(found, names)),
        ("at", local_text(found.at)),
        ("kind", found.kind),
        ("who", found.actor),
        ("agent", names.get(found.agent_id or "", found.agent_id or "")),
        ("turn", found.turn_id or ""),
        ("what", _words(body.get("what")) if found.body is not None else _FORGOTTEN),
        ("verdict", _words(body.get("verdict"))),
        ("reason", _words(body.get("reason"))),
        *((name, _words(value)) for name, value in body.items() if name not in _ABOUT),
        ("hash", found.hash.hex()),
    ]
    out.grid([row for row in rows if row[1]])
    chain: list[dict[str, Any]] = body.get("because") or []
    if chain:
        out.line("\nWhat led to it, from what was read to what was decided:")
        out.grid([_link(number, one) for number, one in enumerate(chain, 1)])


@command(app, "verify")
def verify(
    options: Options,
    head: Annotated[
        str | None,
        typer.Option(
            "--head",
            metavar="EVENT:HASH",
            help="An event that was written down elsewhere, such as home:120:9f86d081…",
        ),
    ] = None,
) -> None:
    """Go through the whole log and tell whether every event is as it was written."""
    if head is not None and head.count(":") < 2:
        raise InvalidInput(
            f"{head!r} is no event with its hash. Write CHAIN:NUMBER:HASH, as this command prints "
            "it. Nothing was verified."
        )

    async def errand(home: Asterism) -> tuple[Verified, dict[str, str]]:
        return await home.audit.verify(head=head), await home.audit.names()

    found, names = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(
            {
                "sound": found.sound,
                "events": found.events,
                "forgotten": found.forgotten,
                "heads": [
                    {"chain": one.chain, "number": one.length, "hash": one.hash.hex()}
                    for one in found.heads
                ],
                "flaws": [
                    {"chain": one.chain, "number": one.number, "what": one.what}
                    for one in found.flaws
                ],
            }
        )
    else:
        _tell(out, found, names)
    if not found.sound:
        raise typer.Exit(FAILED)


def _tell(out: Output, found: Verified, names: dict[str, str]) -> None:
    chains = plural(len(found.heads), "chain")
    if found.sound:
        out.line(f"{plural(found.events, 'event')} in {chains} are as they were written.")
    else:
        out.line(f"{plural(found.events, 'event')} in {chains} were read, and not all are sound:")
        out.grid(
            [
                (f"{names.get(one.chain, one.chain)}:{one.number or ''}".rstrip(":"), one.what)
                for one in found.flaws
            ]
        )
    if found.forgotten:
        out.line(_forgotten(found))
    for one in found.heads:
        if names.get(one.chain) == "home":
            out.line(f"The head is home:{one.length}:{one.hash.hex()}")
            out.line("Keep it elsewhere: with --head it proves later that nothing was cut off.")


def _forgotten(found: Verified) -> str:
    those = "one event" if found.forgotten == 1 else f"{found.forgotten:,} events"
    return f"What {those} said was forgotten; that they happened, and when, was not."


@command(app, "export")
def export(
    options: Options,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Where to; else standard output.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="jsonl or csv.")
    ] = "jsonl",
) -> None:
    """Write the whole log with its hashes, which can be verified without asterism."""
    if form not in {"jsonl", "csv"}:
        raise InvalidInput(
            f"{form!r} is no format of an export. Take jsonl or csv. Nothing was written."
        )

    async def errand(home: Asterism) -> int:
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

    try:
        count = visit(options, errand, readonly=True)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise InvalidInput(
            f"{file} cannot be written ({error.strerror}). Name a place that can be."
        ) from None
    if file is not None:
        out = Output(json=options.json)
        if out.json:
            out.data({"file": str(file), "events": count})
        else:
            out.line(f"{plural(count, 'event')} written to {file}.")


def _private(file: Path) -> TextIO:
    """Open a file for writing that only this user reads, if it is new."""
    return open(file, "w", encoding="utf-8", newline="", opener=private)


# -- in words --------------------------------------------------------------------------------------


def _ref(one: Recorded, names: dict[str, str]) -> str:
    return f"{names.get(one.chain, one.chain)}:{one.number}"


def _told(one: Recorded) -> str:
    """Return in few words what was done, and how it was decided."""
    if one.body is None:
        return _FORGOTTEN
    what, reason = (_words(one.body.get(name)) for name in ("what", "reason"))
    if not what and not reason:
        what = ", ".join(f"{name} {_words(value)}" for name, value in one.body.items())
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


def _link(number: int, one: dict[str, Any]) -> tuple[str, str, str, str]:
    where = _words(one.get("from"))
    return f"{number}.", _words(one.get("trust")), where, printable(_words(one.get("what")))


def _plain(one: Recorded, names: dict[str, str]) -> dict[str, Any]:
    return {
        "event": _ref(one, names),
        "chain": one.chain,
        "number": one.number,
        "at": one.at,
        "kind": one.kind,
        "actor": one.actor,
        "agent_id": one.agent_id,
        "turn_id": one.turn_id,
        "body": one.body,
        "forgotten": one.body is None,
        "hash": one.hash.hex(),
    }
