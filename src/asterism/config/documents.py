"""Documents beside `asterism.toml`: the authorizations and the contacts, in TOML or YAML.

The authorizations say what agents may do alone, what a person is asked for, and who may use verbs.
The contacts say where people are reached, and who is asked when nobody answers.
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta, tzinfo
from functools import cached_property
from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from asterism.patterns import InvalidPattern, check_length, compile_pattern
from asterism.records import dataclass
from asterism.times import DAY, PERIODS, read_duration, read_hours
from asterism.types.agents import Trust
from asterism.types.permissions import EffectKind


class SettingsTable(BaseModel):
    """A table of the configuration: names it does not know are refused, as are other types."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        hide_input_in_errors=True,
        # A table is built when one is read, which most documents and tables of a home never are.
        defer_build=True,
    )


# -- authorizations --------------------------------------------------------------------------------

_QUOTA = re.compile(rf"^\s*(?P<most>\d[\d,]*(?:\.\d+)?)\s+per\s+(?P<unit>{'|'.join(PERIODS)})\s*$")
_PERSON = r"^(owner|known|stranger|(person|role):.+)$"
_REVIEWER = r"^(owner|present|(person|role):.+)$"
_EFFECTS = "|".join(kind.value for kind in EffectKind)
_TRUST_LEVELS = "|".join(trust.value for trust in Trust)
Globs = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    Field(strict=False, description='a list of patterns, such as ["*@example.org"],'),
]


class PolicySettings(SettingsTable):
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
    effects: tuple[Annotated[str, Field(pattern=f"^({_EFFECTS})$")], ...] = Field(
        default=(), strict=False, description=f"a list of {_EFFECTS.replace('|', ', ')}"
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
    trust_levels: tuple[Annotated[str, Field(pattern=f"^({_TRUST_LEVELS})$")], ...] = Field(
        default=(), strict=False, description=f"a list of {_TRUST_LEVELS.replace('|', ', ')}"
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
        pattern=_QUOTA.pattern,
        description="how many calls in what time",
        examples=["10 per day"],
    )
    amount_quota: str | None = Field(
        default=None,
        pattern=_QUOTA.pattern,
        description="what sum of amounts in what time",
        examples=["500 per month"],
    )
    reason: str = Field(default="", max_length=500)

    @field_validator(
        *("agents", "tools", "operations", "recipients", "hosts", "paths", "things", "verbs")
    )
    @classmethod
    def _check_patterns(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            _check_expression(pattern)
        return patterns

    @model_validator(mode="after")
    def _check_one_quota(self) -> Self:
        if self.quota and self.amount_quota:
            raise ValueError("has quota and amount_quota; keep one of them.")
        return self

    @field_validator("arguments")
    @classmethod
    def _check_argument_patterns(cls, patterns: dict[str, str]) -> dict[str, str]:
        for pattern in patterns.values():
            _check_expression(pattern)
        return patterns


def _check_expression(pattern: str) -> None:
    try:
        if pattern.startswith("re:"):
            compile_pattern(pattern[3:])
        else:
            check_length(pattern)
    except InvalidPattern as error:
        what = "regular expression" if pattern.startswith("re:") else "pattern"
        raise ValueError(f"holds {pattern[:80]!r}, which is not a valid {what}: {error}.") from None


class RoleSettings(SettingsTable):
    """What persons of a role may do by verbs."""

    may: tuple[
        Annotated[str, Field(pattern="^(read|talk|append|overwrite|delete|govern)$")], ...
    ] = Field(
        strict=False,
        description="a list of read, talk, append, overwrite, delete, govern",
        examples=[["read", "talk"]],
    )


class AuthorizationSettings(SettingsTable):
    """The whole document."""

    policy: tuple[PolicySettings, ...] = Field(
        default=(), strict=False, description="a list of tables, each a [[policy]]"
    )
    roles: dict[str, RoleSettings] = Field(default={})

    @field_validator("policy")
    @classmethod
    def _check_unique_names(
        cls, policies: tuple[PolicySettings, ...]
    ) -> tuple[PolicySettings, ...]:
        names = [policy.name for policy in policies]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"names {twice[0]!r} twice; each policy needs its own name.")
        return policies


def parse_quota(words: str) -> tuple[float, int]:
    """Return how much is meant by words such as `10 per day`, and in how many milliseconds."""
    match = _QUOTA.match(words)
    assert match is not None
    return float(match["most"].replace(",", "")), PERIODS[match["unit"]]


# -- contacts --------------------------------------------------------------------------------------

_MAX_DURATION = 100 * 366 * DAY


@dataclass(frozen=True, slots=True)
class Hours:
    """When somebody may be disturbed."""

    first: time
    last: time
    zone: tzinfo | None = None
    """None: that of the machine."""

    def next_open(self, now: int) -> int:
        """Return the first moment from `now` on at which they may be disturbed."""
        here = datetime.fromtimestamp(now / 1000, self.zone)
        clock = here.time().replace(tzinfo=None)
        if self.first < self.last:
            is_open = self.first <= clock < self.last
        else:  # over midnight
            is_open = clock >= self.first or clock < self.last
        if is_open:
            return now
        opening = datetime.combine(here.date(), self.first, here.tzinfo)
        if opening <= here:
            opening = datetime.combine(here.date() + timedelta(days=1), self.first, here.tzinfo)
        return int(opening.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Contact:
    """Where one person is reached."""

    person: str
    """Their name or id, or `owner`."""
    reach: tuple[str, ...]
    """Places as `channel:address`."""
    hours: Hours | None = None


@dataclass(frozen=True, slots=True)
class Escalation:
    """Who else is asked when nobody has answered for a time."""

    after: int
    """Milliseconds since the question was asked."""
    to: tuple[str, ...]
    """Reviewers: `owner`, `person:NAME` or `role:NAME`."""
    tools: tuple[str, ...] = ()
    """Only for calls of these, as globs; empty: for all."""


@dataclass(frozen=True, slots=True)
class Contacts:
    """What the document says."""

    people: tuple[Contact, ...] = ()
    escalations: tuple[Escalation, ...] = ()
    again: int | None = None
    """Milliseconds after which a question is announced again."""
    expire: int | None = None
    """Milliseconds after which it ends as denied; None: never."""


def _milliseconds(text: str) -> int:
    try:
        duration = int(read_duration(text) * 1000)
    except ValueError:
        duration = 0
    if not 0 < duration <= _MAX_DURATION:
        raise ValueError(f'is "{text[:80]}"; a duration is needed, such as "4h", "1d" or "30d".')
    return duration


def _check_duration(text: str) -> str:
    _milliseconds(text)
    return text


Duration = Annotated[
    str, AfterValidator(_check_duration), Field(description="a duration", examples=["4h"])
]
Text = Annotated[str, Field(min_length=1, pattern=r"\S")]


class ContactSettings(SettingsTable):
    """Where one person is reached."""

    person: Text | None = Field(default=None, description="a person's name", examples=["anna"])
    reach: tuple[Annotated[str, Field(pattern=r"^\s*[^:\s][^:]*:.*\S")], ...] = Field(
        strict=False,
        min_length=1,
        description="a list of places as CHANNEL:ADDRESS",
        examples=[["discord:4711"]],
    )
    hours: str | None = Field(
        default=None, description="two times of the day", examples=["08:00-22:00"]
    )
    zone: str | None = Field(
        default=None, description="the name of a time zone", examples=["Europe/Berlin"]
    )

    @field_validator("hours")
    @classmethod
    def _check_hours(cls, text: str | None) -> str | None:
        if text is not None:
            _parse_hours(text)
        return text

    @field_validator("zone")
    @classmethod
    def _check_zone(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                ZoneInfo(name)
            except (KeyError, OSError, ValueError):
                raise ValueError(
                    f'is "{name[:80]}"; the name of a time zone is needed, such as "Europe/Berlin".'
                ) from None
        return name

    def contact(self, name: str) -> Contact:
        """The same, with what is left out."""
        person = self.person if self.person is not None else name
        hours = None
        if self.hours is not None:
            hours = Hours(*_parse_hours(self.hours), ZoneInfo(self.zone) if self.zone else None)
        return Contact(person.strip(), tuple(place.strip() for place in self.reach), hours)


def _parse_hours(text: str) -> tuple[time, time]:
    try:
        return read_hours(text)
    except ValueError:
        raise ValueError(
            f'is "{text[:80]}"; two times of the day are needed, such as "08:00-22:00".'
        ) from None


class EscalationSettings(SettingsTable):
    """Who else is asked when nobody has answered for a time."""

    after: Duration
    to: tuple[Annotated[str, Field(pattern=r"^\s*(owner|(person|role):.*\S)\s*$")], ...] = Field(
        strict=False,
        min_length=1,
        description="a list of owner, person:NAME or role:NAME",
        examples=[["role:admin"]],
    )
    tools: tuple[Text, ...] = Field(
        default=(), strict=False, description='a list of patterns, such as ["pay*"],'
    )

    @property
    def escalation(self) -> Escalation:
        """The same in milliseconds."""
        return Escalation(
            _milliseconds(self.after),
            tuple(reviewer.strip() for reviewer in self.to),
            tuple(tool.strip() for tool in self.tools),
        )


class ContactsSettings(SettingsTable):
    """The whole document."""

    again: Duration | None = Field(default=None, description="a duration", examples=["1d"])
    expire: Duration | None = Field(default=None, description="a duration", examples=["90d"])
    contacts: dict[str, ContactSettings] = Field(default={})
    escalation: tuple[EscalationSettings, ...] = Field(
        default=(), strict=False, description="a list of tables, each an [[escalation]],"
    )

    @cached_property
    def book(self) -> Contacts:
        """The same, as whoever announces questions looks at it."""
        return Contacts(
            tuple(contact.contact(name) for name, contact in self.contacts.items()),
            tuple(table.escalation for table in self.escalation),
            None if self.again is None else _milliseconds(self.again),
            None if self.expire is None else _milliseconds(self.expire),
        )
