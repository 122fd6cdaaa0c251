"""A question of an agent as people see it, and what they type to answer it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from asterism.cli.moment import read_first
from asterism.cli.text import at
from asterism.errors import InvalidInput
from asterism.types.approvals import deeds_in_words, pretty

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asterism.app.approvals import Shown
    from asterism.types.approvals import Approval
    from asterism.types.grants import Grant, Wish


def call_lines(approval: Approval) -> list[str]:
    """Return the exact call, a line for each argument, as whoever answers must see it."""
    if not approval.tool:
        return []
    written = pretty(approval.edited if approval.edited is not None else approval.arguments)
    return [approval.tool, *written.splitlines()]


def rows_of(shown: Shown, agent: str) -> list[tuple[str, str]]:
    """Return all that is known of a question, as names and texts."""
    one = shown.approval
    rows = [
        ("approval", one.id),
        ("state", one.verdict),
        ("agent", agent),
        ("turn", one.turn_id),
        ("asked", at(one.asked_at)),
        ("question", one.question),
        ("call", f"{one.tool} {pretty(one.arguments)}" if one.tool else ""),
        ("does", deeds_in_words(one)),
        ("because", one.reason),
        ("who", f"{shown.whom} may answer"),
        ("announced", "\n".join(_announced(one))),
        ("expires", at(one.expires_at) if one.expires_at is not None else ""),
    ]
    if one.decided_at is None:
        rows.append(("next", f"announced again {at(one.next_at)}" if one.next_at else ""))
    else:
        where = f" in {one.place}" if one.place else ""
        rows.append(("answered", f"{at(one.decided_at)} by {shown.answered_by}{where}"))
        rows.append(("run with", pretty(one.edited) if one.edited is not None else ""))
        rows.append(("note", one.note or ""))
        rows.append(("grant", f"{one.grant}: {spell(shown.grant)}" if shown.grant else ""))
    return [(name, text) for name, text in rows if text]


def _announced(approval: Approval) -> list[str]:
    places = [
        f"{place} (round {number})" if approval.rounds > 1 else place
        for place, number in sorted(approval.announced.items())
    ]
    if approval.announced_at is not None and places and approval.rounds > 1:
        places.append(f"{approval.rounds} times, last {at(approval.announced_at)}")
    return places


def spell(grant: Grant) -> str:
    """Return what a grant allows, in words."""
    words = [f"calls of {grant.tool}"]
    if grant.pattern:
        words.append("with " + ", ".join(f"{name}={glob}" for name, glob in grant.pattern.items()))
    if grant.turn_id is not None:
        words.append(f"in {grant.turn_id}")
    if grant.until is not None:
        words.append(f"until {at(grant.until)}")
    if grant.uses is not None:
        words.append(f"{grant.uses} more")
    return " ".join(words)


# -- what is typed ---------------------------------------------------------------------------------


def read_wish(grant: str | None, patterns: Sequence[str] | None) -> Wish | None:
    """Return what is granted with a yes: `turn`, `scope`, `always` or `until=TIME`."""
    from asterism.types.grants import Extent, Wish

    pattern = read_pattern(patterns)
    if grant is None:
        if pattern is not None:
            raise InvalidInput(
                "--pattern narrows a grant, and none is given. Add --grant always, turn or "
                "until=TIME. Nothing was done."
            )
        return None
    word, _, rest = grant.partition("=")
    if word == Extent.UNTIL and rest:
        return Wish(Extent.UNTIL, read_first(rest), pattern)
    if rest or word not in (Extent.TURN, Extent.SCOPE, Extent.ALWAYS):
        raise InvalidInput(
            f"{grant!r} is no grant. Write turn, scope, always or until=2026-12-01. "
            "Nothing was done."
        )
    return Wish(Extent(word), pattern=pattern)


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
