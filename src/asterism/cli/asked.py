"""A question of an agent as people see it, and what they type to answer it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from asterism.cli.given import read_since
from asterism.errors import InvalidInput
from asterism.times import local_text
from asterism.types.permissions import (
    amount_in_words,
    argument_lines,
    call_lines,
    effects_in_words,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asterism.app.approvals import ApprovalDetails
    from asterism.types.permissions import ApprovalRecord, Grant, Wish

ONCE = "once"
"""What a yes is for that grants nothing beyond its call."""


def rows_of(shown: ApprovalDetails, agent: str) -> list[tuple[str, str]]:
    """Return all that is known of a question, as names and texts."""
    one = shown.approval
    rows = [
        ("approval", one.id),
        ("state", one.verdict),
        ("agent", agent),
        ("turn", one.turn_id),
        ("asked", local_text(one.asked_at)),
        ("question", visible(one.question)),
        ("call", "\n".join(call_lines(one))),
        ("because", visible(one.reason)),
        ("who", f"{shown.whom} may answer"),
        ("announced", "\n".join(_announced(one))),
        ("expires", local_text(one.expires_at) if one.expires_at is not None else ""),
    ]
    if one.decided_at is None:
        rows.append(("next", f"announced again {local_text(one.next_at)}" if one.next_at else ""))
    else:
        where = f" in {one.place}" if one.place else ""
        rows.append(("answered", f"{local_text(one.decided_at)} by {shown.answered_by}{where}"))
        edited = argument_lines(one.edited) if one.edited is not None else []
        rows.append(("run with", "\n".join(edited)))
        rows.append(("note", one.note or ""))
        rows.append(("grant", f"{one.grant}: {spell(shown.grant)}" if shown.grant else ""))
    return [(name, text) for name, text in rows if text]


def _announced(approval: ApprovalRecord) -> list[str]:
    places = [
        f"{place} (round {number})" if approval.rounds > 1 else place
        for place, number in sorted(approval.announced.items())
    ]
    if approval.announced_at is not None and places and approval.rounds > 1:
        places.append(f"{approval.rounds} times, last {local_text(approval.announced_at)}")
    return places


def spell(grant: Grant) -> str:
    """Return what a grant allows, in words."""
    words = [f"calls of {grant.tool}"]
    if grant.effects is not None:
        words.append(f"that {effects_in_words(grant.effects)}")
    if grant.arguments is not None:
        words.append(f"with exactly {visible(grant.arguments)}")
    if grant.pattern:
        words.append("with " + ", ".join(f"{name}={glob}" for name, glob in grant.pattern.items()))
    if grant.turn_id is not None:
        words.append(f"in {grant.turn_id}")
    if grant.until is not None:
        words.append(f"until {local_text(grant.until)}")
    if grant.uses is not None:
        words.append(f"{grant.uses} more")
    limits: list[str] = []
    if grant.amount is not None:
        limits.append(f", up to {amount_in_words(grant.amount)} each")
    if grant.per_day is not None:
        limits.append(f", at most {grant.per_day} a day")
    return " ".join(words) + "".join(limits)


# -- what is typed ---------------------------------------------------------------------------------


def read_wish(
    reach: str,
    *,
    limits: Sequence[str] | None = None,
    until: str | None = None,
    patterns: Sequence[str] | None = None,
) -> Wish | None:
    """Return what is granted with a yes for `once`, `turn`, `recipient` or `always`."""
    from asterism.types.permissions import Extent, Wish

    if reach == ONCE:
        if limits or until or patterns:
            raise InvalidInput(
                "--limit, --until and --pattern narrow a grant, and none is given. Add --for "
                "recipient, turn or always. Nothing was done."
            )
        return None
    try:
        extent = Extent(reach)
    except ValueError:
        raise InvalidInput(
            f"{reach!r} does not say what a yes is for. Write once, recipient, turn or always. "
            "Nothing was done."
        ) from None
    amount, per_day = read_limits(limits)
    last = read_since(until) if until is not None else None
    return Wish(extent, last, read_pattern(patterns), amount, per_day)


def read_limits(limits: Sequence[str] | None) -> tuple[float | None, int | None]:
    """Return the amount and the calls a day that limits such as `50` and `3/day` mean."""
    amount: float | None = None
    per_day: int | None = None
    for one in limits or ():
        number, slash, unit = one.replace(" ", "").partition("/")
        try:
            if slash:
                per_day = int(number) if unit in ("day", "d") else int("")
            else:
                amount = float(number)
        except ValueError:
            raise InvalidInput(
                f"{one!r} is no limit. Write an amount, such as 50, or calls a day, such as "
                "3/day. Nothing was done."
            ) from None
    return amount, per_day


def read_pattern(patterns: Sequence[str] | None) -> Mapping[str, str] | None:
    """Return the arguments that matter and their globs, from `NAME=GLOB`."""
    if not patterns:
        return None
    found: dict[str, str] = {}
    for one in patterns:
        name, equals, glob = one.partition("=")
        if not (name.strip() and equals and glob):
            raise InvalidInput(
                f"{one!r} is no pattern. Write ARGUMENT=GLOB, such as path=/srv/**. "
                "Nothing was done."
            )
        found[name.strip()] = glob
    return found


def read_arguments(given: str | None) -> str | None:
    """Return arguments as JSON, typed or (behind `@`) in a file; `@-` is standard input."""
    if given is None or not given.startswith("@"):
        return given
    from asterism.cli.given import read_text

    return read_text(Path(given[1:]))
