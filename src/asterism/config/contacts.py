"""The contacts: where people are reached, and who is asked when nobody answers.

It is a document of its own, `contacts.toml` (or `.yaml`) beside `asterism.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from functools import cached_property
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from asterism.times import DAY, read_duration, read_hours

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


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


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


class ContactSettings(_Table):
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
    def _known_hours(cls, text: str | None) -> str | None:
        if text is not None:
            _hours(text)
        return text

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, name: str | None) -> str | None:
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
            hours = Hours(*_hours(self.hours), ZoneInfo(self.zone) if self.zone else None)
        return Contact(person.strip(), tuple(one.strip() for one in self.reach), hours)


def _hours(text: str) -> tuple[time, time]:
    try:
        return read_hours(text)
    except ValueError:
        raise ValueError(
            f'is "{text[:80]}"; two times of the day are needed, such as "08:00-22:00".'
        ) from None


class EscalationSettings(_Table):
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
            tuple(one.strip() for one in self.to),
            tuple(one.strip() for one in self.tools),
        )


class ContactsSettings(_Table):
    """The whole document."""

    again: Duration | None = Field(default=None, description="a duration", examples=["1d"])
    expire: Duration | None = Field(default=None, description="a duration", examples=["90d"])
    contacts: dict[str, ContactSettings] = {}
    escalation: tuple[EscalationSettings, ...] = Field(
        default=(), strict=False, description="a list of tables, each an [[escalation]],"
    )

    @cached_property
    def book(self) -> Contacts:
        """The same, as whoever announces questions looks at it."""
        return Contacts(
            tuple(one.contact(name) for name, one in self.contacts.items()),
            tuple(one.escalation for one in self.escalation),
            None if self.again is None else _milliseconds(self.again),
            None if self.expire is None else _milliseconds(self.expire),
        )
