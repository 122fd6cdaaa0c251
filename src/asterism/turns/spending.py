"""The spending of turns: a worst case is reserved before a model call and settled after it."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from asterism.config import Settings
from asterism.config.load import CurrentSettings
from asterism.errors import AsterismError, BudgetReached
from asterism.ports import Clock, Hold, ModelRequest
from asterism.records import dataclass
from asterism.store import spending as at_rest
from asterism.store.database import Connection, Database
from asterism.types.agents import new_id
from asterism.types.spending import (
    FREE,
    IMAGE_TOKENS,
    Budget,
    Cap,
    Charge,
    ChargeState,
    Payer,
    Price,
    Span,
    Total,
    dollars,
    nano,
)
from asterism.types.turns import Notice, Reply

# What vendors add to what they are sent, such as a prompt about tools: of 530 tokens for one model
# of Anthropic's (docs.anthropic.com/en/docs/tool-use-pricing-and-tokens, 2026-11).
_ADDED_TOKENS = 1_024
# In the wire form quotes inside of texts are escaped, so neither can be part of what somebody said.
_IMAGE = b'"image_url":'
_IMAGE_DATA = re.compile(rb'"url":\s*"(data:[^"]*)"')
_MAX_GAUGES = 4_096
_LET_GO = 1.0
_GRACE_MS = 60_000
_SWEEP_EVERY_MS = 600_000

Write = Callable[[Callable[[Connection], Awaitable[None]]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Gauge:
    """The tokens that a vendor counted for the beginning of a conversation."""

    messages: int
    mark: int
    """A hash of those messages and of what goes with them."""
    tokens: int


@dataclass(slots=True)
class Spending:
    """What the reservations of all turns share: prices, caps, and what vendors counted before."""

    price: Callable[[str], Price | None]
    """From `vendor:name` to its price; None where it is not known."""
    budget: Callable[[], Budget]
    gauges: OrderedDict[tuple[str, str], _Gauge] = field(
        default_factory=OrderedDict[tuple[str, str], _Gauge]
    )
    swept_at: int = 0


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that a request can count for."""

    tokens: int
    images: int


def bound_of(request: ModelRequest, image_tokens: int, gauge: _Gauge | None = None) -> Bound:
    """Return an upper bound on the tokens of a request.

    Vendors' tokens are at least one byte long, and the wire form has every byte of the text. Where
    the vendor has counted the beginning of the same conversation, only what is new is taken so.
    """
    known = 0
    if gauge is not None and _mark(request, gauge.messages) == gauge.mark:
        known = gauge.messages
    tokens, images = _ADDED_TOKENS, 0
    for wire in request.messages[known:]:
        tokens += len(wire)
        if _IMAGE in wire:
            count = wire.count(_IMAGE)
            images += count
            tokens += count * image_tokens
            tokens -= sum(len(data) for data in _IMAGE_DATA.findall(wire))
    if gauge is not None and known:
        tokens += gauge.tokens
        images += sum(wire.count(_IMAGE) for wire in request.messages[:known])
    else:
        tokens += len(request.tools or b"") + len(request.schema or b"") + len(request.extra)
    tokens += sum(len(thought) for thought in request.thoughts.values())
    return Bound(tokens, images)


def _mark(request: ModelRequest, messages: int) -> int:
    if messages > len(request.messages):
        return 0
    return hash((tuple(request.messages[:messages]), request.tools, request.schema, request.extra))


@dataclass(frozen=True, slots=True)
class _Open:
    """A hold whose call is under way."""

    charge: Charge
    price: Price
    images: int
    request: ModelRequest


class TurnBudget:
    """The money of a turn. Settled charges are written with the turn's next entries."""

    def __init__(
        self,
        spending: Spending,
        database: Database,
        clock: Clock,
        *,
        turn_id: str,
        payer: Payer,
        seconds: float,
        write: Write | None = None,
    ) -> None:
        """Begin the reservations of a turn that may take so many seconds.

        With `write`, reservations are written by it: a turn waits for a store that has no room.
        """
        self._spending = spending
        self._database = database
        self._write = write or database.write
        self._clock = clock
        self._turn_id = turn_id
        self._payer = payer
        self._seconds = seconds
        self._open: dict[str, _Open] = {}
        self._staged: list[Charge] = []

    # -- the port ------------------------------------------------------------------------------

    async def reserve(self, model: str, request: ModelRequest) -> Hold | None:
        """Reserve money for a call to `vendor:name`; None where spending is not counted."""
        price = self._spending.price(model)
        if price is FREE or (price is not None and price.free):
            return None
        budget = self._spending.budget()
        caps = budget.caps(self._payer)
        if price is None:
            if not caps:
                return None
            raise BudgetReached(_unknown_price(model, caps[0]))
        gauge = self._spending.gauges.get((self._payer.agent_id, model))
        bound = bound_of(request, price.image_tokens, gauge)
        most = request.max_output or budget.max_output
        worst = price.worst(bound.tokens, most, bound.images)
        charge = self._charge(model, request, worst, budget)
        if caps:
            await self._reserve(charge, budget)
        else:
            charge = replace(charge, worst=0)
        self._open[charge.id] = _Open(charge, price, bound.images, request)
        return Hold(charge.id, model, worst, most if caps else request.max_output)

    def settle(self, hold: Hold | None, reply: Reply) -> None:
        """Settle a reservation with the cost of a complete reply."""
        reservation = self._take(hold)
        if reservation is None:
            return
        usage, request = reply.usage, reservation.request
        charge = replace(
            reservation.charge,
            usage=usage,
            amount=reservation.price.cost(usage, reservation.images),
        )
        if usage.estimated:
            # A guess is no bill: under a cap the worst case stands.
            amount = charge.worst or charge.amount
            self._staged.append(replace(charge, state=ChargeState.PRESUMED, amount=amount))
            return
        self._staged.append(replace(charge, state=ChargeState.SETTLED))
        if usage.input:
            count = len(request.messages)
            gauges = self._spending.gauges
            key = (self._payer.agent_id, reservation.charge.model)
            gauges[key] = _Gauge(count, _mark(request, count), usage.input)
            gauges.move_to_end(key)
            if len(gauges) > _MAX_GAUGES:
                gauges.popitem(last=False)

    def release(self, hold: Hold | None) -> None:
        """It was refused before anything was produced: nothing was billed."""
        reservation = self._take(hold)
        if reservation is not None and reservation.charge.worst:
            self._staged.append(replace(reservation.charge, state=ChargeState.RELEASED, amount=0))

    def presume(self, hold: Hold | None) -> None:
        """It was cut off, timed out or was cancelled: its worst case counts, as presumed."""
        reservation = self._take(hold)
        if reservation is not None:
            self._staged.append(replace(reservation.charge, state=ChargeState.PRESUMED))

    def _take(self, hold: Hold | None) -> _Open | None:
        return self._open.pop(hold.id, None) if hold is not None else None

    # -- the turn's side -----------------------------------------------------------------------

    def take(self, *, ended: bool = False) -> list[Charge]:
        """Return the charges to write; at the turn's end, open reservations count as spent."""
        if ended:
            for reservation in list(self._open.values()):
                self._staged.append(replace(reservation.charge, state=ChargeState.PRESUMED))
            self._open.clear()
        staged, self._staged = self._staged, []
        return staged

    async def record(self, tx: Connection, charges: list[Charge]) -> None:
        """Write charges that were taken, in the transaction of what they paid for."""
        watch = self._watch(self._spending.budget())
        await at_rest.record(tx, charges, watch)

    async def close(self) -> None:
        """Write the open charges when the turn is dropped; a later start finds them on failure."""
        left = self.take(ended=True)
        if left:
            try:
                async with asyncio.timeout(_LET_GO):
                    await self._database.write(lambda tx: self.record(tx, left))
            except (AsterismError, TimeoutError):
                return

    # -- inside --------------------------------------------------------------------------------

    def _charge(self, model: str, request: ModelRequest, worst: int, budget: Budget) -> Charge:
        now = self._clock()
        periods = budget.periods(now)
        return Charge(
            id=new_id("charge"),
            payer=self._payer,
            turn_id=self._turn_id,
            key=request.key.removeprefix(f"{self._turn_id}/"),
            model=model,
            day=periods[Span.DAY],
            month=periods[Span.MONTH],
            state=ChargeState.RESERVED,
            amount=worst,
            at=now,
            until=now + int(self._seconds * 1000) + _GRACE_MS,
            worst=worst,
        )

    async def _reserve(self, charge: Charge, budget: Budget) -> None:
        watch = self._watch(budget)
        before = charge.at if self._sweep_due(charge.at) else None
        staged, self._staged = self._staged, []
        try:
            await self._write(
                lambda tx: at_rest.reserve(tx, charge, staged, watch, sweep_before=before)
            )
        except at_rest.CapReached as reached:
            self._staged[:0] = staged
            raise BudgetReached(_refusal(reached, charge, budget)) from None
        except BaseException:
            # It may have been written all the same, and then it is for a call that is not made.
            # What was staged counts once, however often it is written.
            given_up = replace(charge, state=ChargeState.RELEASED, amount=0)
            self._staged[:0] = [*staged, given_up]
            raise

    def _sweep_due(self, now: int) -> bool:
        if not self._database.distributed or now - self._spending.swept_at < _SWEEP_EVERY_MS:
            return False
        self._spending.swept_at = now
        return True

    def _watch(self, budget: Budget) -> at_rest.Watch:
        return at_rest.Watch(
            budget.caps(self._payer),
            budget.warn_at,
            lambda cap, total: self._warning(cap, total, budget),
        )

    def _warning(self, cap: Cap, total: Total, budget: Budget) -> Notice:
        now, gone = self._clock(), total.spent + total.presumed
        part = f" ({dollars(total.presumed)} of it presumed)" if total.presumed else ""
        text = (
            f"{_capital(cap.who)} has used {dollars(gone)}{part} of the {dollars(cap.amount)} that "
            f"{cap.setting} allows a {cap.span}: {100 * gone // max(cap.amount, 1)} %. At the cap, "
            f"paid models are asked no more until {budget.renewal(cap.span, now)}."
        )
        return Notice(new_id("note"), self._payer.agent_id, self._turn_id, "budget", text, now)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unknown_price(model: str, cap: Cap) -> str:
    return (
        f"The price of the model {model!r} is not known, and {cap.setting} caps what may be spent. "
        f'Write [prices."{model}"] with input and output in US dollars per million tokens into '
        "asterism.toml (0 if it is free), or use another model. The model was not asked."
    )


def _refusal(reached: at_rest.CapReached, charge: Charge, budget: Budget) -> str:
    cap, total = reached.cap, reached.total
    reserved = total.reserved - charge.amount
    used = [f"{dollars(total.spent)} spent"]
    if total.presumed:
        used.append(f"{dollars(total.presumed)} presumed spent")
    if reserved:
        used.append(f"{dollars(reserved)} held for calls under way")
    if charge.amount > cap.amount:
        change = "Raise it, or lower budget.max_output or context.tokens"
    else:
        change = f"It starts anew at {budget.renewal(cap.span, charge.at)}; to go on now, raise it"
    return (
        f"The spending cap for {cap.who} is {dollars(cap.amount)} a {cap.span}, with "
        f"{', '.join(used)}, and asking {charge.model} could cost up to {dollars(charge.amount)}. "
        f"{change} ({cap.setting} in asterism.toml). The model was not asked."
    )


T = TypeVar("T")

ALWAYS_FREE = frozenset({"demo", "embedded"})
"""Vendors that run in a process of ours."""
# A vendor's dated name of a model costs what its plain name does: -2025-04-14, -20250929, -08-2024,
# -latest, and Bedrock's -v1:0 behind any of them.
_DATED = re.compile(r"(-(\d{4}-\d{2}-\d{2}|\d{8}|\d{2}-\d{4}|latest))?(-v\d+(:\d+)?)?$")


class Prices:
    """Finds prices as they are configured now."""

    def __init__(self, settings: CurrentSettings) -> None:
        self._settings = settings
        self.custom_vendors: set[str] = set()
        """Vendors whose ports were handed in by a program: free, unless the configuration says."""
        self._known: dict[str, Price | None] = {}
        self._found_in: Settings | None = None

    def of(self, model: str) -> Price | None:
        """Return the price of a model; None if it is unknown."""
        settings = self._settings.current
        if settings is not self._found_in:
            self._known, self._found_in = {}, settings
        if model not in self._known:
            self._known[model] = self._look_up(model, settings)
        return self._known[model]

    def _look_up(self, model: str, settings: Settings) -> Price | None:
        configured = match_name(model, settings.prices)
        if configured is not None:
            return configured.price
        vendor, _, name = model.partition(":")
        settings_of_vendor = settings.vendor(vendor)
        if (
            vendor in ALWAYS_FREE
            or vendor in self.custom_vendors
            or is_local_url(settings_of_vendor.base_url)
        ):
            return FREE
        listed = published_prices().get(vendor)
        if listed is None and settings_of_vendor.api and not settings_of_vendor.base_url:
            listed = published_prices().get(settings_of_vendor.api)
        return match_name(name, listed or {})


def match_name(name: str, table: Mapping[str, T]) -> T | None:
    """Look up a model name: exactly, without its date, or by the longest pattern."""
    names = (name, _DATED.sub("", name, count=1))
    for candidate in names:
        if candidate in table:
            return table[candidate]
    for pattern in sorted(
        (pattern_in_table for pattern_in_table in table if "*" in pattern_in_table),
        key=len,
        reverse=True,
    ):
        if any(fnmatchcase(candidate, pattern) for candidate in names):
            return table[pattern]
    return None


def is_local_url(url: str | None) -> bool:
    """Tell whether an address is on this machine, where asking costs nothing."""
    if url is None:
        return False
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@cache
def published_prices() -> dict[str, dict[str, Price]]:
    """Return the vendors' lists that come with asterism."""
    prices: dict[str, dict[str, Price]] = {}
    for vendor, listed in _document().items():
        if vendor != "as_of":
            rates: dict[str, dict[str, Any]] = listed["models"]
            prices[vendor] = {name: _price(rate) for name, rate in rates.items()}
    return prices


@cache
def _document() -> dict[str, Any]:
    text = Path(__file__).with_name("prices.toml").read_text("utf-8")
    return tomllib.loads(text, parse_float=Decimal)


def _price(rates: dict[str, Any]) -> Price:
    price = replace(_per_token(rates), image_tokens=rates.get("image_tokens", IMAGE_TOKENS))
    if "above" not in rates:
        return price
    return replace(price, long_from=rates["above"], long=_per_token(rates["long"]))


def _per_token(rates: dict[str, Any]) -> Price:
    usual = rates["input"]
    return Price(
        input=nano(usual),
        output=nano(rates["output"]),
        cached=nano(rates.get("cached", usual)),
        written=nano(rates.get("written", usual)),
    )
