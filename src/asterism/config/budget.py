"""The tables [budget] and [prices]: what may be spent, and what models cost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, tzinfo
from functools import cached_property
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

from asterism.types.spending import IMAGE_TOKENS, Budget, Limit, Price, nano

_MOST_DOLLARS = 1_000_000
_MOST_TOKENS = 1_000_000_000

Dollars = Annotated[
    float,
    Field(
        ge=0,
        le=_MOST_DOLLARS,
        allow_inf_nan=False,
        description=f"an amount in US dollars from 0 to {_MOST_DOLLARS:,}",
    ),
]
Tokens = Annotated[
    int, Field(ge=1, le=_MOST_TOKENS, description=f"a whole number from 1 to {_MOST_TOKENS:,}")
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class RateSettings(_Table):
    """What a model costs when it is sent more tokens than usual."""

    above: Tokens
    input: Dollars
    output: Dollars
    cached: Dollars | None = Field(default=None, description="an amount in US dollars")
    written: Dollars | None = Field(default=None, description="an amount in US dollars")


class PriceSettings(_Table):
    """What a model costs, in US dollars per million tokens; per request and image, each."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = Field(default=None, description="an amount in US dollars")
    written: Dollars | None = Field(default=None, description="an amount in US dollars")
    request: Dollars = 0.0
    image: Dollars = 0.0
    image_tokens: Tokens = IMAGE_TOKENS
    long: RateSettings | None = Field(
        default=None, description="a table with above, input and output"
    )

    @cached_property
    def price(self) -> Price:
        """The same in nano-dollars."""
        price = replace(
            _per_token(self),
            request=nano(self.request),
            image=nano(self.image),
            image_tokens=self.image_tokens,
        )
        if self.long is None:
            return price
        long = replace(_per_token(self.long), request=price.request, image=price.image)
        return replace(price, long_from=self.long.above, long=long)


def _per_token(table: PriceSettings | RateSettings) -> Price:
    # What is not said about a cache costs as much as without one.
    return Price(
        input=nano(table.input),
        output=nano(table.output),
        cached=nano(table.input if table.cached is None else table.cached),
        written=nano(table.input if table.written is None else table.written),
    )


class CapSettings(_Table):
    """The most that may be spent in a day and in a month, in US dollars."""

    day: Dollars | None = Field(default=None, description="an amount in US dollars", examples=[5.0])
    month: Dollars | None = Field(
        default=None, description="an amount in US dollars", examples=[50.0]
    )

    @property
    def limit(self) -> Limit:
        """The same in nano-dollars."""
        return Limit(
            day=None if self.day is None else nano(self.day),
            month=None if self.month is None else nano(self.month),
        )


class BudgetSettings(CapSettings):
    """Spending caps: of the whole constellation, and of agents, persons and groups."""

    warn_at: float = Field(
        default=0.8, gt=0, le=1, description="a part of the cap above 0 and up to 1"
    )
    max_output: Tokens = 8_192
    timezone: str = Field(
        default="UTC", description="the name of a time zone", examples=["Europe/Berlin"]
    )
    each_agent: CapSettings = CapSettings()
    each_person: CapSettings = CapSettings()
    agents: dict[str, CapSettings] = {}
    persons: dict[str, CapSettings] = {}
    groups: dict[str, CapSettings] = {}

    @field_validator("timezone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            _zone(name)
        except (KeyError, OSError, ValueError):
            raise ValueError(
                f'is "{name}"; the name of a time zone is needed, such as "Europe/Berlin".'
            ) from None
        return name

    @cached_property
    def budget(self) -> Budget:
        """The same as caps in nano-dollars."""
        return Budget(
            all=self.limit,
            agents={name: cap.limit for name, cap in self.agents.items()},
            each_agent=self.each_agent.limit,
            persons={name: cap.limit for name, cap in self.persons.items()},
            each_person=self.each_person.limit,
            groups={name: cap.limit for name, cap in self.groups.items()},
            warn_at=self.warn_at,
            max_output=self.max_output,
            zone=_zone(self.timezone),
        )


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    return ZoneInfo(name)
