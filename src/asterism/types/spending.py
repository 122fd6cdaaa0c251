"""Spending: prices, caps, charges. Money is whole nano-dollars (10⁻⁹ USD): sums are exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import ROUND_CEILING, Decimal
from enum import StrEnum

from asterism.records import dataclass
from asterism.types.turns import Usage

NANO = 1_000_000_000
_MILLION = 1_000_000
IMAGE_TOKENS = 8_192
"""The most tokens of an image, unless a price says otherwise."""


def nano(dollars: Decimal | float | str) -> int:
    """Return an amount in US dollars as nano-dollars, rounded up."""
    exact = dollars if isinstance(dollars, Decimal) else Decimal(str(dollars))
    return int((exact * NANO).to_integral_value(ROUND_CEILING))


def dollars(amount: int) -> str:
    """Return nano-dollars as people write them: cents, or two significant digits below that."""
    if amount == 0 or abs(amount) >= NANO // 100:
        return f"${Decimal(amount) / NANO:,.2f}"
    value = Decimal(amount) / NANO
    return f"${value:.{1 - value.adjusted()}f}"


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs: nano-dollars per million tokens, and per request and image."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Tokens in that came from the vendor's cache."""
    written: int = 0
    """Tokens in that the vendor put into its cache."""
    request: int = 0
    image: int = 0
    image_tokens: int = IMAGE_TOKENS
    """The most tokens that one image counts for."""
    long_from: int = 0
    """With more input tokens than this, `long` is the price of the whole call; 0: never."""
    long: Price | None = None

    @property
    def free(self) -> bool:
        """Whether nothing is ever charged."""
        rates = self.input, self.output, self.cached, self.written, self.request, self.image
        return not any(rates) and (self.long is None or self.long.free)

    def cost(self, usage: Usage, images: int = 0) -> int:
        """Return what a call cost, rounded up once."""
        rates = self
        if self.long is not None and usage.input > self.long_from:
            rates = self.long
        plain = max(0, usage.input - usage.cached - usage.written)
        tokens = (
            plain * rates.input
            + usage.cached * rates.cached
            + usage.written * rates.written
            + usage.output * rates.output
        )
        return -(-tokens // _MILLION) + rates.request + images * rates.image

    def worst(self, input_tokens: int, output_tokens: int, images: int = 0) -> int:
        """Return the most that a call of up to so many tokens can cost."""
        dearest = max(self.input, self.cached, self.written)
        tokens = input_tokens * dearest + output_tokens * self.output
        most = -(-tokens // _MILLION) + self.request + images * self.image
        if self.long is not None and input_tokens > self.long_from:
            most = max(most, self.long.worst(input_tokens, output_tokens, images))
        return most


FREE = Price()


class Span(StrEnum):
    """The period of a cap."""

    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Cap:
    """The most that a scope may spend in a day or a month."""

    scope: str
    """`all`, or the owner of the cap: `agent:ID`, `person:CHANNEL:SENDER`, `group:NAME`."""
    span: Span
    amount: int
    who: str
    """The scope in words, such as `the agent aria`."""
    setting: str
    """Where it is written, such as `budget.agents.aria.day`."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The caps of one table of the configuration, in nano-dollars; None for no cap."""

    day: int | None = None
    month: int | None = None

    def caps(self, scope: str, who: str, setting: str) -> list[Cap]:
        """Return the caps that are set here."""
        spans = (Span.DAY, self.day), (Span.MONTH, self.month)
        return [
            Cap(scope, span, amount, who, f"{setting}.{span}")
            for span, amount in spans
            if amount is not None
        ]


@dataclass(frozen=True, slots=True)
class Payer:
    """The accounts that a call counts for: an agent's, and a person's or a group's, if any."""

    agent_id: str
    agent: str
    """The agent's name, which caps refer to."""
    person: str | None = None
    """The account that spoke, as `channel:sender`."""
    group: str | None = None

    @property
    def scopes(self) -> tuple[str, ...]:
        """Every scope that a call counts in."""
        scopes = ["all", f"agent:{self.agent_id}"]
        if self.group is not None:
            scopes.append(f"group:{self.group}")
        if self.person is not None:
            scopes.append(f"person:{self.person}")
        return tuple(scopes)


@dataclass(frozen=True, slots=True)
class Budget:
    """All caps, and the time zone of their days."""

    all: Limit = field(default_factory=Limit)
    agents: Mapping[str, Limit] = field(default_factory=dict[str, Limit])
    each_agent: Limit = field(default_factory=Limit)
    persons: Mapping[str, Limit] = field(default_factory=dict[str, Limit])
    each_person: Limit = field(default_factory=Limit)
    groups: Mapping[str, Limit] = field(default_factory=dict[str, Limit])
    warn_at: float = 0.8
    """The share of a cap at which the owner gets a notice."""
    max_output: int = 8_192
    """The most tokens that a call under a cap may write, unless the call sets its own limit."""
    zone: tzinfo = UTC

    def caps(self, payer: Payer) -> list[Cap]:
        """Return the caps for a call of this payer."""
        caps = self.all.caps("all", "everything", "budget")
        for kind, name, scope, named, each in (
            ("agent", payer.agent, f"agent:{payer.agent_id}", self.agents, self.each_agent),
            ("group", payer.group, f"group:{payer.group}", self.groups, None),
            ("person", payer.person, f"person:{payer.person}", self.persons, self.each_person),
        ):
            if name is None:
                continue
            limit, setting = named.get(name), f"budget.{kind}s.{_quoted(name)}"
            if limit is None and each is not None:
                limit, setting = each, f"budget.each_{kind}"
            if limit is not None:
                caps += limit.caps(scope, f"the {kind} {name}", setting)
        return caps

    def today(self, now: int) -> date:
        """Return the day that a time in milliseconds falls on."""
        return datetime.fromtimestamp(now / 1000, self.zone).date()

    def periods(self, now: int) -> dict[Span, str]:
        """Return the day and the month that a time falls in, such as 2026-11-16 and 2026-11."""
        day = self.today(now)
        return {Span.DAY: f"{day:%Y-%m-%d}", Span.MONTH: f"{day:%Y-%m}"}

    def renewal(self, span: Span, now: int) -> str:
        """Return in words when a cap is reset."""
        day = self.today(now)
        following = day + timedelta(days=1)
        if span is Span.MONTH:
            following = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
        return f"{following:%Y-%m-%d} 00:00 {self.zone}"


def _quoted(name: str) -> str:
    return name if name.isascii() and name.replace("-", "_").isidentifier() else f'"{name}"'


class ChargeState(StrEnum):
    """The state of the money for one call."""

    RESERVED = "reserved"
    """Reserved at the worst case until the cost is known."""
    SETTLED = "settled"
    """The vendor has reported the number of tokens."""
    PRESUMED = "presumed"
    """It is unknown whether it was billed; the worst case counts."""
    RELEASED = "released"
    """Refused before it produced anything: nothing was billed."""


@dataclass(frozen=True, slots=True)
class Charge:
    """The money of one call to a model."""

    id: str
    payer: Payer
    turn_id: str
    key: str
    """The step that asked."""
    model: str
    """`vendor:name`."""
    day: str
    month: str
    state: ChargeState
    amount: int
    """The worst case while reserved or presumed, else the cost."""
    at: int
    until: int = 0
    """When its turn has certainly ended."""
    usage: Usage = field(default_factory=Usage)
    worst: int = 0
    """The reserved amount; 0 if there was none."""


@dataclass(frozen=True, slots=True)
class Total:
    """The spending of one scope in one period."""

    scope: str
    period: str
    spent: int = 0
    presumed: int = 0
    reserved: int = 0

    @property
    def counted(self) -> int:
        """The amount that counts against a cap."""
        return self.spent + self.presumed + self.reserved


@dataclass(frozen=True, slots=True)
class Standing:
    """How much of a cap is used."""

    cap: Cap
    total: Total
    renewal: str


@dataclass(frozen=True, slots=True)
class SpendLine:
    """The calls of one day, agent, person and model."""

    day: str
    agent: str
    person: str | None
    model: str
    calls: int
    usage: Usage
    cost: int | None
    """The certain spending, in nano-dollars; None if the price of the model is not known."""
    presumed: int = 0
    reserved: int = 0


@dataclass(frozen=True, slots=True)
class Spend:
    """The spending of some days, and the state of the caps."""

    first: str
    last: str
    lines: tuple[SpendLine, ...]
    standings: tuple[Standing, ...]
