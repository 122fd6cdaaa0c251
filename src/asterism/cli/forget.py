"""`asterism memory forget` and receipts: what is gone for good, what could not be reached."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from asterism.cli.given import be_sure
from asterism.cli.home import visit
from asterism.cli.output import Column, Output
from asterism.cli.shapes import plain
from asterism.cli.text import one_line, plural, printable
from asterism.errors import InvalidInput
from asterism.times import local_short, local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.cli.options import Options
    from asterism.memory.forgetting import ForgetReceipt, Forgetting

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ForgetOptions:
    """What a person wants forgotten, as they named it."""

    texts: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    persons: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()


Told = tuple["Forgetting", list[tuple[str, str]]]


def forget_wanted(options: Options, wanted: ForgetOptions, *, reason: str, yes: bool) -> None:
    """Say what will be looked for, ask, forget it, and print the receipt."""
    if not any(getattr(wanted, one.name) for one in fields(wanted)):
        raise InvalidInput(
            "It was not said what to forget. Give --text, --passage, --turn, --person, --source, "
            "--block or --agent. Nothing was done."
        )
    what, told = visit(options, lambda home: _look(home, wanted), readonly=True)
    out = Output(json=options.json)
    if not out.json:
        _tell("To be forgotten, wherever it occurs and in every former version:")
        for kind, name in told:
            _tell(f"  {kind}: {name}")
    be_sure("Forget this for good? It cannot be brought back.", yes=yes)

    async def errand(home: Asterism) -> ForgetReceipt:
        return await home.memory.forget(what, reason=reason, by="cli")

    receipt = visit(options, errand)
    if out.json:
        out.data(plain(receipt))
        return
    print_receipt(out, receipt)


def _tell(text: str) -> None:
    """Say on standard error what is about to happen, so that output stays the receipt."""
    print(printable(text), file=sys.stderr)  # noqa: T201


async def _look(home: Asterism, wanted: ForgetOptions) -> Told:
    """Find what is meant, each by its id, with words for a person."""
    from asterism.memory.forgetting import Forgetting

    told = [("text", _quoted(text)) for text in wanted.texts]
    for passage_id in wanted.passages:
        passage = await home.archive.get(passage_id)
        told.append(("passage", f"{passage.id}, {_quoted(passage.text)}"))
    for turn_id in wanted.turns:
        turn, _ = await home.turns.get(turn_id)
        told.append(
            ("turn", f"{turn.id} of {local_text(turn.opened_at)}, and what was written in it")
        )
    persons = [await home.people.get(one) for one in wanted.persons]
    told += [("person", f"{one.name}: what they said, what only they may hear") for one in persons]
    sources = [await home.sources.get(one) for one in wanted.sources]
    told += [("source", f"{one.name}, the documents that were read") for one in sources]
    seen = [await home.blocks.get(None, one) for one in wanted.blocks]
    told += [("block", f"{one.name} with its history") for one in seen]
    agents = [await home.agents.get(one) for one in wanted.agents]
    told += [("agent", f"{one.name} with everything that it has") for one in agents]
    what = Forgetting(
        texts=wanted.texts,
        passages=wanted.passages,
        turns=wanted.turns,
        persons=tuple(one.id for one in persons),
        sources=tuple(one.id for one in sources),
        blocks=tuple(one.block.id for one in seen),
        agents=tuple(one.id for one in agents),
    )
    return what, told


def _quoted(text: str) -> str:
    return f'"{one_line(text, _SHOWN)}"'


def print_receipt(out: Output, receipt: ForgetReceipt) -> None:
    """Print what was found where, and what could not be reached."""
    if receipt.places:
        rows = list(receipt.places.items())
        columns: list[Column[tuple[str, int]]] = [
            Column("found in", lambda one: one[0], prose=True),
            Column("times", lambda one: f"{one[1]:,}"),
        ]
        out.table(columns, rows, empty="")
        out.line()
    times, places = plural(receipt.count, "time"), plural(len(receipt.places), "place")
    total = f"Found {times} in {places}, and forgotten" if receipt.count else "Found nowhere"
    out.line(f"{total}. Receipt {receipt.id}, {local_text(receipt.at)}.")
    if receipt.summaries:
        out.line(
            f"Emptied: {len(receipt.summaries):,} of the summaries, since nobody can tell which of "
            "their words came from it."
        )
    for place, count in receipt.names.items():
        out.line(f"Left: a name or an address in {place} holds it ({count:,}).")
    for sentence in receipt.unreached:
        out.line(f"Not reached: {sentence}")
    if not receipt.finished:
        out.line("It is not finished: the next start goes on with it.")


def print_receipts(out: Output, found: Sequence[ForgetReceipt]) -> None:
    """Print the receipts of all that was forgotten."""
    columns: list[Column[ForgetReceipt]] = [
        Column("receipt", lambda one: one.id),
        Column("when", lambda one: local_short(one.at)),
        Column("times", lambda one: f"{one.count:,}"),
        Column("by", lambda one: one.by, least=80, prose=True),
        Column("not reached", lambda one: f"{len(one.unreached):,}", least=80),
        Column("why", lambda one: one.reason, prose=True),
    ]
    out.table(columns, found, empty="Nothing was forgotten yet.")
