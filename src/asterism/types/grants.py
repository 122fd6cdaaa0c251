"""Grants: what a person allowed once and for more than one call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, cast

from asterism.types.effects import Effect, EffectKind, amount_of


@dataclass(frozen=True, slots=True)
class Grant:
    """Leave to call a tool without asking each time. What it leaves open, it does not limit."""

    id: str
    constellation: str
    tool: str
    """A tool's name, or a glob such as `file*`."""
    agent_id: str | None = None
    """Whose calls; None: those of every agent."""
    pattern: Mapping[str, str] = field(default_factory=dict[str, str])
    """Which calls: a glob for each argument that matters."""
    turn_id: str | None = None
    """For calls of this turn only."""
    until: int | None = None
    uses: int | None = None
    """For how many calls more."""
    given_by: str = "owner"
    given_at: int = 0
    approval_id: str | None = None
    """The question it was given with."""
    revoked_at: int | None = None
    effects: tuple[Effect, ...] | None = None
    """What calls may do at most: the same kinds of effects, to the same targets and amounts."""
    arguments: str | None = None
    """The only arguments that calls may have, as `exact_arguments` writes them."""
    amount: float | None = None
    """Up to which amount each call, whatever the amounts of `effects`."""
    per_day: int | None = None
    """How many calls in 24 hours."""
    definition: str | None = None
    """The digest of the tool that it was given for; another tool of that name is not meant."""


class Extent(StrEnum):
    """How far a yes reaches beyond the call that it was said to."""

    TURN = "turn"
    """Calls of this tool until the turn ends."""
    RECIPIENT = "recipient"
    """Calls of this tool that do the same to the same targets, texts aside."""
    ALWAYS = "always"
    """Calls of this tool; under a limit, those to the same targets."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person grants along with a yes."""

    extent: Extent
    until: int | None = None
    pattern: Mapping[str, str] | None = None
    """A glob for each argument that matters; None: as the extent has it."""
    amount: float | None = None
    """With `ALWAYS`: up to which amount each call."""
    per_day: int | None = None
    """With `ALWAYS`: how many calls in 24 hours."""

    @property
    def limited(self) -> bool:
        """Whether there is a limit."""
        return self.amount is not None or self.per_day is not None


def told_of(grant: Grant) -> dict[str, Any]:
    """Return a grant as an event tells it."""
    told = {
        "what": grant.id,
        "tool": grant.tool,
        "pattern": dict(grant.pattern),
        "turn": grant.turn_id,
        "until": grant.until,
        "uses": grant.uses,
        "approval": grant.approval_id,
    }
    limits = {
        "effects": [str(one) for one in grant.effects] if grant.effects is not None else None,
        "arguments": grant.arguments,
        "amount": grant.amount,
        "per_day": grant.per_day,
    }
    return told | {name: value for name, value in limits.items() if value is not None}


# -- what calls like one call are ------------------------------------------------------------------


def limits_of(effects: Iterable[Effect]) -> tuple[Effect, ...] | None:
    """Return what calls like one that does this may do; None where its effects do not tell.

    Each effect needs something that it is done to, or it could be done to anything; and an amount
    that cannot be read might be any.
    """
    told = tuple(replace(one, content=()) for one in effects)
    telling = all(
        one.kind is not EffectKind.UNDECLARED
        and one.targets
        and not (one.amount_unreadable or one.unreadable)
        for one in told
    )
    return told if told and telling else None


def does_no_more(
    effects: Iterable[Effect], granted: Iterable[Effect], *, amounts: bool = True
) -> bool:
    """Tell whether each effect was granted, to no more targets and of the same amount."""
    most = tuple(granted)
    return all(
        any(
            one.kind is other.kind
            and _within(one.recipients, other.recipients)
            and _within(one.hosts, other.hosts)
            and _within(one.paths, other.paths)
            and _within(one.things, other.things)
            and (other.amends or not one.amends)
            and (not amounts or _same_amount(one, other))
            for other in most
        )
        for one in effects
    )


def _within(some: tuple[str, ...], granted: tuple[str, ...]) -> bool:
    # Nothing named is not less than something named: it may mean everything.
    return set(some) <= set(granted) and bool(some) == bool(granted)


def _same_amount(one: Effect, other: Effect) -> bool:
    # Amounts that cannot be read are not known to be the same.
    return one.amount == other.amount and not (one.amount_unreadable or other.amount_unreadable)


def amount_within(effects: Iterable[Effect], most: float) -> bool:
    """Tell whether a call has amounts that can be read and are no more than this together."""
    paying = [one for one in effects if one.counted is not None or one.kind is EffectKind.PAY]
    known = all(one.amount is not None and one.amount >= 0 for one in paying)
    return bool(paying) and known and amount_of(paying) <= most


def arguments_json(arguments: Mapping[str, Any]) -> str:
    """Return arguments as their tool has read them, as JSON that people may change."""
    return json.dumps(arguments, ensure_ascii=False, default=_plain)


def exact_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as a text that is the same for the same arguments and no others."""
    return json.dumps(arguments, ensure_ascii=False, default=_plain, sort_keys=True)


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, set | frozenset):
        return sorted(map(str, cast("set[Any]", value)))
    return str(value)
