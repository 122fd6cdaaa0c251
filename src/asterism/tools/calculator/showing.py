"""Showing: a value as a model reads it, exact, or marked as approximate."""

from __future__ import annotations

from decimal import Context, Decimal
from fractions import Fraction

from asterism.tools.calculator.units import TIME, Unit
from asterism.tools.calculator.values import (
    Day,
    Moment,
    Quantity,
    Value,
    as_decimal,
    powers_text,
)

_DIGITS = 15
_MOST_DIGITS = 1_000
_MOST_PLACES = 30
_LONGEST_FRACTION = 4
_BASES = {"length": "m", "mass": "kg", "time": "s", "temperature": "K", "data": "bit"}
_LONG = {"d": "days", "week": "weeks", "month": "months", "year": "years"}
_ROUNDING = Context(prec=_DIGITS)


def shown(value: Value) -> str:
    """Return a value as text."""
    if isinstance(value, Day):
        return f"{value.day.isoformat()} ({value.day:%A})"
    if isinstance(value, Moment):
        return f"{value.at:%Y-%m-%d %H:%M:%S} UTC ({value.at:%A})"
    if value.percent:
        return _number(value.value * 100, value.approximate, "%")
    size, offset, unit = _unit(value)
    amount = (value.value - offset) / size
    if amount == 1 and unit in _LONG.values():
        unit = unit.removesuffix("s")
    text = _number(amount, value.approximate, f" {unit}" if unit else "")
    return text + _weeks(value)


def _weeks(value: Quantity) -> str:
    """Say a number of days in weeks, too."""
    if value.dimensions != TIME or value.unit is None or value.unit.name != "d":
        return ""
    days = value.value / 86_400
    if days.denominator != 1 or abs(days) < 14 or abs(days) > 10_000:
        return ""
    weeks, rest = divmod(abs(days.numerator), 7)
    more = f" and {rest} day{'s' * (rest != 1)}" if rest else ""
    return f" ({weeks} weeks{more})"


def _unit(value: Quantity) -> tuple[Fraction, Fraction, str]:
    if value.unit is not None:
        return value.unit.size, value.unit.offset, _long(value.unit)
    if value.by_powers:
        size = Fraction(1)
        for unit, power in value.by_powers:
            size *= unit.size**power
        return size, Fraction(0), powers_text(value.by_powers)
    named = "*".join(
        _BASES[name] + (f"^{power}" if power != 1 else "") for name, power in value.dimensions
    )
    return Fraction(1), Fraction(0), named


def _long(unit: Unit) -> str:
    return _LONG.get(unit.name, unit.name)


def _number(value: Fraction, approximate: bool, unit: str) -> str:
    if approximate:
        return f"about {_rounded(value)}{unit}"
    exact = _exact(value)
    if exact is not None:
        return f"{exact}{unit}"
    about = _rounded(value)
    if len(str(value.denominator)) <= _LONGEST_FRACTION and abs(value.numerator) < 10**15:
        return f"{value.numerator}/{value.denominator}{unit} (about {about}{unit})"
    return f"about {about}{unit}"


def _exact(value: Fraction) -> str | None:
    """Return a number with all its digits, unless they never end or are too many."""
    bottom, powers = value.denominator, [0, 0]
    for index, prime in enumerate((2, 5)):
        while bottom % prime == 0 and powers[index] <= _MOST_PLACES:
            bottom //= prime
            powers[index] += 1
    places = max(powers)
    if bottom != 1 or places > _MOST_PLACES:
        return None
    top = value * 10**places
    if top.numerator.bit_length() > 4 * _MOST_DIGITS:
        return None
    digits = str(abs(top.numerator)).rjust(places + 1, "0")
    if len(digits) > _MOST_DIGITS:
        return None
    whole, rest = (digits[:-places], digits[-places:].rstrip("0")) if places else (digits, "")
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}"


def _rounded(value: Fraction) -> str:
    found = _ROUNDING.plus(as_decimal(value)).normalize()
    if not found:
        return "0"
    if -6 <= found.adjusted() < _DIGITS:
        return f"{found:f}"
    return _scientific(found)


def _scientific(value: Decimal) -> str:
    digits, _, exponent = f"{value:e}".partition("e")
    return f"{digits}e{int(exponent)}"
