"""The authorizations: what agents may do alone, what a person is asked for, and who may use verbs.

It is a document of its own, `authorizations.toml` (or `.yaml`) beside `asterism.toml`.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from asterism.times import PERIODS
from asterism.types.effects import EffectKind
from asterism.types.people import Trust

_PER = re.compile(rf"^\s*(?P<most>\d[\d,]*(?:\.\d+)?)\s+per\s+(?P<unit>{'|'.join(PERIODS)})\s*$")
_PERSON = r"^(owner|known|stranger|(person|role):.+)$"
_REVIEWER = r"^(owner|present|(person|role):.+)$"
_DEEDS = "|".join(kind.value for kind in EffectKind)
_TIERS = "|".join(trust.value for trust in Trust)

Globs = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(strict=False, description='a list of patterns, such as ["*@example.org"],'),
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PolicySettings(_Table):
    """One policy. It fits a call if everything that it names does; the first that fits counts."""

    name: str = Field(min_length=1, description="a name", examples=["small payments"])
    verdict: Literal["allow", "ask", "deny"] = Field(
        description='"allow", "ask" or "deny"', examples=["ask"]
    )
    agents: Globs = ()
    people: tuple[Annotated[str, Field(pattern=_PERSON)], ...] = Field(
        default=(),
        strict=False,
        description='a list of "owner", "known", "stranger", "person:NAME" or "role:NAME"',
    )
    tools: Globs = ()
    operations: Globs = ()
    effects: tuple[Annotated[str, Field(pattern=f"^({_DEEDS})$")], ...] = Field(
        default=(), strict=False, description=f"a list of {_DEEDS.replace('|', ', ')}"
    )
    arguments: dict[str, str] = Field(
        default={}, description='a table of patterns, such as {path = "/srv/**"},'
    )
    recipients: Globs = ()
    hosts: Globs = ()
    paths: Globs = ()
    things: Globs = ()
    amount_up_to: float | None = Field(default=None, description="a number")
    amount_above: float | None = Field(default=None, description="a number")
    trust_levels: tuple[Annotated[str, Field(pattern=f"^({_TIERS})$")], ...] = Field(
        default=(), strict=False, description=f"a list of {_TIERS.replace('|', ', ')}"
    )
    verbs: Globs = ()
    reviewers: tuple[Annotated[str, Field(pattern=_REVIEWER)], ...] = Field(
        default=("owner",),
        strict=False,
        min_length=1,
        description='a list of "owner", "present", "person:NAME" or "role:NAME"',
    )
    quota: str | None = Field(
        default=None,
        pattern=_PER.pattern,
        description="how many calls in what time",
        examples=["10 per day"],
    )
    amount_quota: str | None = Field(
        default=None,
        pattern=_PER.pattern,
        description="what sum of amounts in what time",
        examples=["500 per month"],
    )
    reason: str = Field(default="", max_length=500)

    @field_validator("agents", "tools", "operations", "recipients", "hosts", "things", "verbs")
    @classmethod
    def _readable(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for one in patterns:
            _check_expression(one)
        return patterns

    @model_validator(mode="after")
    def _one_quota(self) -> Self:
        if self.quota and self.amount_quota:
            raise ValueError("has quota and amount_quota; keep one of them.")
        return self

    @field_validator("arguments")
    @classmethod
    def _readable_arguments(cls, patterns: dict[str, str]) -> dict[str, str]:
        for one in patterns.values():
            _check_expression(one)
        return patterns


def _check_expression(pattern: str) -> None:
    if pattern.startswith("re:"):
        try:
            re.compile(pattern[3:])
        except re.error as error:
            raise ValueError(
                f"holds {pattern!r}, which is no regular expression: {error}."
            ) from None


class RoleSettings(_Table):
    """What persons of a role may do by verbs."""

    may: tuple[
        Annotated[str, Field(pattern="^(read|talk|append|overwrite|delete|govern)$")], ...
    ] = Field(
        strict=False,
        description="a list of read, talk, append, overwrite, delete, govern",
        examples=[["read", "talk"]],
    )


class AuthorizationSettings(_Table):
    """The whole document."""

    policy: tuple[PolicySettings, ...] = Field(
        default=(), strict=False, description="a list of tables, each a [[policy]]"
    )
    roles: dict[str, RoleSettings] = {}

    @field_validator("policy")
    @classmethod
    def _named_once(cls, policies: tuple[PolicySettings, ...]) -> tuple[PolicySettings, ...]:
        names = [one.name for one in policies]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"names {twice[0]!r} twice; each policy needs a name of its own.")
        return policies


def quota_of(words: str) -> tuple[float, int]:
    """Return how much is meant by words such as `10 per day`, and in how many milliseconds."""
    found = _PER.match(words)
    assert found is not None
    return float(found["most"].replace(",", "")), PERIODS[found["unit"]]
