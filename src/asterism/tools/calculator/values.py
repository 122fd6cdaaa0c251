"""Values: exact numbers with units, days and moments, and what can be done with them."""

from __future__ import annotations

import calendar
import math
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException
from fractions import Fraction

from asterism.errors import ToolError
from asterism.tools.calculator.units import TIME, Dimensions, Unit, raised, times

MOST_BITS = 100_000
"""Numbers may have as many: about 30,000 digits."""
_MOST_ROOT_BITS = 10_000
CONTEXT = Context(prec=50, Emax=40_000, Emin=-40_000)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, perhaps of a unit; in units of metre, kilogram, second, kelvin and bit."""

    value: Fraction
    dimensions: Dimensions = ()
    approximate: bool = False
    unit: Unit | None = None
    """How it was written, and is shown."""
    months: Fraction | None = None
    """What it is in months of the calendar, if it was written in months and years."""
    percent: bool = False
    by_powers: tuple[tuple[Unit, int], ...] = ()
    """The units that it is shown in, where it is more than one."""

    def __post_init__(self) -> None:
        bits = self.value.numerator.bit_length() + self.value.denominator.bit_length()
        if bits > MOST_BITS:
            raise too_large()


@dataclass(frozen=True, slots=True)
class Day:
    """A day of the calendar."""

    day: date


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment, in UTC."""

    at: datetime


Value = Quantity | Day | Moment


def too_large() -> ToolError:
    """Return what tells that a number has too many digits."""
    return ToolError(
        f"This has a number of more than {MOST_BITS:,} bits (about 30,000 digits), which is not "
        "worked out. Ask for less, such as its logarithm."
    )


def number(value: Fraction | int, *, approximate: bool = False) -> Quantity:
    """Return a bare number."""
    return Quantity(Fraction(value), approximate=approximate)


def of_decimal(value: Decimal) -> Quantity:
    """Return a number that is known to many digits, but not exactly."""
    if not value.is_finite() or abs(value.adjusted()) > 20_000:
        raise too_large()
    return number(Fraction(value), approximate=True)


def as_decimal(value: Fraction) -> Decimal:
    """Return a number to fifty digits."""
    try:
        return CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))
    except DecimalException:
        raise too_large() from None


def bare(value: Value, what: str) -> Quantity:
    """Return a value that has no unit; raise `ToolError` if it has one or is no number."""
    if isinstance(value, Quantity) and not value.dimensions:
        return value
    raise ToolError(f"{what} needs a plain number, not {name_of(value)}.")


def whole(value: Value, what: str) -> int:
    """Return a value that is a whole number."""
    found = bare(value, what)
    if found.value.denominator != 1:
        raise ToolError(f"{what} needs a whole number, not {float_text(found.value)}.")
    return found.value.numerator


def name_of(value: Value) -> str:
    """Say what kind of thing a value is."""
    if isinstance(value, Day | Moment):
        return "a date"
    return "a number with a unit" if value.dimensions else "a plain number"


def float_text(value: Fraction) -> str:
    """Return a number to a few digits, for an error."""
    return f"{as_decimal(value):.6g}"


# -- arithmetic ------------------------------------------------------------------------------------


def add(one: Value, other: Value, sign: int = 1) -> Value:
    """Return a sum, or with -1 a difference."""
    if isinstance(one, Quantity) and isinstance(other, Quantity):
        return _add_quantities(one, other, sign)
    if isinstance(one, Quantity):
        if sign < 0 or isinstance(other, Quantity):
            raise ToolError("A date cannot be taken away from a number. Write the date first.")
        return add(other, one)
    if isinstance(other, Quantity):
        return _move(one, other, sign)
    if sign > 0:
        raise ToolError('Two dates cannot be added. Add a span, such as "today + 3 weeks".')
    return _between(one, other)


def _add_quantities(one: Quantity, other: Quantity, sign: int) -> Quantity:
    if other.percent and not one.percent:
        return replace(
            one,
            value=one.value * (1 + sign * other.value),
            approximate=one.approximate or other.approximate,
            months=None,
        )
    if one.dimensions != other.dimensions:
        raise ToolError(
            f"{shown_unit(one)} and {shown_unit(other)} cannot be added to each other: they "
            "measure different things."
        )
    for each in (one, other):
        if each.unit is not None and each.unit.offset:
            raise ToolError(
                "Degrees cannot be added: it is not clear whether they are differences. Write "
                'them in kelvin, or convert one with "in".'
            )
    months = None
    if one.months is not None and other.months is not None:
        months = one.months + sign * other.months
    shown = one if one.unit is not None or one.by_powers else other
    return replace(
        shown,
        value=one.value + sign * other.value,
        approximate=one.approximate or other.approximate,
        months=months,
        percent=one.percent and other.percent,
    )


def _move(start: Day | Moment, span: Quantity, sign: int) -> Day | Moment:
    if span.dimensions != TIME:
        raise ToolError(
            f"{shown_unit(span)} cannot be added to a date. Add a span of time, such as 3 weeks."
        )
    try:
        if span.months is not None:
            if span.months.denominator != 1:
                raise ToolError("Only whole months can be added to a date. Write the rest in days.")
            return _by_months(start, sign * span.months.numerator)
        seconds = sign * span.value
        if isinstance(start, Day):
            days = seconds / 86_400
            if days.denominator == 1:
                return Day(start.day + timedelta(days=days.numerator))
            midnight = datetime(start.day.year, start.day.month, start.day.day, tzinfo=UTC)
            return Moment(midnight + timedelta(microseconds=round(seconds * 10**6)))
        return Moment(start.at + timedelta(microseconds=round(seconds * 10**6)))
    except (OverflowError, ValueError):
        raise ToolError("This date is not between the years 1 and 9999.") from None


def _by_months(start: Day | Moment, months: int) -> Day | Moment:
    day = start.day if isinstance(start, Day) else start.at
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError(year)
    last = calendar.monthrange(year, month + 1)[1]
    if isinstance(start, Day):
        return Day(start.day.replace(year=year, month=month + 1, day=min(day.day, last)))
    return Moment(start.at.replace(year=year, month=month + 1, day=min(day.day, last)))


def _between(one: Day | Moment, other: Day | Moment) -> Quantity:
    from asterism.tools.calculator.units import UNITS

    if isinstance(one, Day) and isinstance(other, Day):
        days = (one.day - other.day).days
        return Quantity(Fraction(days * 86_400), TIME, unit=UNITS["day"])
    span = _at(one) - _at(other)
    micro = span // timedelta(microseconds=1)
    return Quantity(Fraction(micro, 10**6), TIME, unit=UNITS["h"])


def _at(value: Day | Moment) -> datetime:
    if isinstance(value, Moment):
        return value.at
    return datetime(value.day.year, value.day.month, value.day.day, tzinfo=UTC)


def _numbers(one: Value, other: Value, what: str) -> tuple[Quantity, Quantity]:
    if not isinstance(one, Quantity) or not isinstance(other, Quantity):
        raise ToolError(f"A date cannot be {what}.")
    return one, other


def multiply(left: Value, right: Value) -> Quantity:
    """Return a product."""
    one, other = _numbers(left, right, "multiplied")
    _check_size(one, other)
    months = None
    if one.months is not None or other.months is not None:
        single = one if one.months is not None else other
        factor = other if single is one else one
        if not factor.dimensions and single.months is not None:
            months = single.months * factor.value
    return _joined(one, other, one.value * other.value, 1, months)


def divide(left: Value, right: Value) -> Quantity:
    """Return a quotient."""
    one, other = _numbers(left, right, "divided")
    if not other.value:
        raise ToolError("Something is divided by 0 here, which has no result.")
    _check_size(one, other)
    months = None
    if one.months is not None and not other.dimensions:
        months = one.months / other.value
    return _joined(one, other, one.value / other.value, -1, months)


def _check_size(one: Quantity, other: Quantity) -> None:
    bits = sum(
        part.bit_length()
        for each in (one, other)
        for part in (each.value.numerator, each.value.denominator)
    )
    if bits > 2 * MOST_BITS:
        raise too_large()


def _joined(
    one: Quantity, other: Quantity, value: Fraction, sign: int, months: Fraction | None
) -> Quantity:
    for each, another in ((one, other), (other, one)):
        if each.unit is not None and each.unit.offset and another.dimensions:
            raise ToolError("Degrees cannot be multiplied with units. Write them in kelvin.")
    dimensions = times(one.dimensions, other.dimensions, sign)
    powers: dict[Unit, int] = dict(_powers(one))
    for unit, power in _powers(other):
        powers[unit] = powers.get(unit, 0) + sign * power
    kept = tuple((unit, power) for unit, power in powers.items() if power)
    if not dimensions:
        kept = ()
    single = kept[0][0] if len(kept) == 1 and kept[0][1] == 1 else None
    return Quantity(
        value,
        dimensions,
        one.approximate or other.approximate,
        unit=single,
        months=months,
        by_powers=() if single else kept,
    )


def _powers(one: Quantity) -> tuple[tuple[Unit, int], ...]:
    return ((one.unit, 1),) if one.unit is not None else one.by_powers


def power(left: Value, right: Value) -> Quantity:
    """Return a power, exact for whole exponents."""
    one, exponent = _numbers(left, right, "raised to a power")
    if exponent.dimensions:
        raise ToolError("An exponent must be a plain number.")
    if exponent.value.denominator == 1:
        return _whole_power(one, exponent.value.numerator, exponent.approximate)
    if one.dimensions:
        half = exponent.value * 2
        if half.denominator == 1 and all(each % 2 == 0 for _, each in one.dimensions):
            root = root_of(one, 2)
            return _whole_power(root, half.numerator, approximate=False)
        raise ToolError("A number with a unit can only be raised to a whole power.")
    if one.value < 0:
        raise ToolError("A negative number has no real power with a fraction as exponent.")
    exact = _exact_root(one.value, exponent.value.denominator)
    if exact is not None and not one.approximate:
        return _whole_power(number(exact), exponent.value.numerator, approximate=False)
    if not one.value:
        return number(0)
    try:
        raised_to = CONTEXT.power(as_decimal(one.value), as_decimal(exponent.value))
    except DecimalException:
        raise too_large() from None
    return of_decimal(raised_to)


def _whole_power(one: Quantity, exponent: int, approximate: bool) -> Quantity:
    if not one.value and exponent < 0:
        raise ToolError("0 has no negative power.")
    bits = max(one.value.numerator.bit_length(), one.value.denominator.bit_length())
    trivial = abs(one.value) in (0, 1)
    if (not trivial and bits * abs(exponent) > 2 * MOST_BITS) or abs(exponent) > 10**12:
        raise too_large()
    if one.unit is not None and one.unit.offset and exponent != 1:
        raise ToolError("Degrees cannot be raised to a power. Write them in kelvin.")
    if not exponent:
        value = Fraction(1)
    elif trivial:
        value = one.value if exponent % 2 else abs(one.value)
    else:
        value = one.value**exponent
    powers = tuple((unit, each * exponent) for unit, each in _powers(one)) if exponent else ()
    single = powers[0][0] if len(powers) == 1 and powers[0][1] == 1 else None
    return Quantity(
        value,
        raised(one.dimensions, exponent),
        one.approximate or approximate,
        unit=single,
        by_powers=() if single else powers,
    )


def root_of(one: Quantity, degree: int) -> Quantity:
    """Return a root, exact if it is a fraction."""
    if degree < 1 or degree > 1000:
        raise ToolError("A root needs a degree from 1 to 1,000.")
    if any(each % degree for _, each in one.dimensions):
        raise ToolError(f"{shown_unit(one)} has no such root.")
    if one.value < 0 and degree % 2 == 0:
        raise ToolError("A negative number has no real root of an even degree.")
    dimensions = tuple((name, each // degree) for name, each in one.dimensions)
    powers = tuple((unit, each // degree) for unit, each in _powers(one) if each % degree == 0)
    kept = powers if len(powers) == len(_powers(one)) else ()
    single = kept[0][0] if len(kept) == 1 and kept[0][1] == 1 else None
    shown = Quantity(Fraction(0), dimensions, unit=single, by_powers=() if single else kept)
    exact = _exact_root(abs(one.value), degree)
    sign = -1 if one.value < 0 else 1
    if exact is not None:
        return replace(shown, value=sign * exact, approximate=one.approximate)
    found = CONTEXT.power(as_decimal(abs(one.value)), as_decimal(Fraction(1, degree)))
    return replace(shown, value=sign * of_decimal(found).value, approximate=True)


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    top, bottom = _whole_root(value.numerator, degree), _whole_root(value.denominator, degree)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _whole_root(value: int, degree: int) -> int | None:
    if degree == 2:
        found = math.isqrt(value)
    elif value.bit_length() > _MOST_ROOT_BITS:
        return None
    else:
        found = 1 << -(-value.bit_length() // degree)
        while value and (nearer := _nearer(found, value, degree)) < found:
            found = nearer
    return found if found**degree == value else None


def _nearer(found: int, value: int, degree: int) -> int:
    """Return the next step of Newton's way to a root, from above."""
    return ((degree - 1) * found + value // found ** (degree - 1)) // degree


def shown_unit(one: Quantity) -> str:
    """Return the unit of a quantity in words."""
    if one.unit is not None:
        return one.unit.name
    if one.by_powers:
        return powers_text(one.by_powers)
    return "a number with a unit" if one.dimensions else "a plain number"


def powers_text(powers: tuple[tuple[Unit, int], ...]) -> str:
    """Write a product of units."""
    above = "*".join(_raised_text(unit, each) for unit, each in powers if each > 0)
    below = "/".join(_raised_text(unit, -each) for unit, each in powers if each < 0)
    return f"{above or '1'}/{below}" if below else above


def _raised_text(unit: Unit, power: int) -> str:
    return unit.name if power == 1 else f"{unit.name}^{power}"
