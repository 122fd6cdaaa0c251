"""Functions of the calculator, exact where a result can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, DecimalException
from fractions import Fraction

from asterism.errors import ToolError
from asterism.tools.calculator.values import (
    CONTEXT,
    Day,
    Moment,
    Quantity,
    Value,
    add,
    as_decimal,
    bare,
    divide,
    name_of,
    number,
    of_decimal,
    root_of,
    too_large,
    whole,
)

_MOST_FACTORIAL = 5_000
_MOST_CHOICE = 20_000
_DIGITS = 1_000
_EXACT_FLOAT = 15


@dataclass(frozen=True, slots=True)
class Function:
    """A function with how many arguments it takes; no most: any number."""

    call: Callable[[Sequence[Value]], Value]
    least: int = 1
    most: int | None = 1


def _quantity(value: Value, what: str) -> Quantity:
    if isinstance(value, Quantity):
        return value
    raise ToolError(f"{what} needs a number, not {name_of(value)}.")


def _rounded(how: Callable[[Fraction], int], what: str) -> Callable[[Sequence[Value]], Value]:
    def call(given: Sequence[Value]) -> Value:
        one = _quantity(given[0], what)
        size = one.unit.size if one.unit is not None else Fraction(1)
        digits = whole(given[1], what) if len(given) > 1 else 0
        if abs(digits) > _DIGITS:
            raise ToolError(f"{what} can go to {_DIGITS:,} digits, not {digits:,}.")
        step = Fraction(10) ** digits
        return replace(one, value=how(one.value / size * step) / step * size)

    return call


def _half_up(value: Fraction) -> int:
    """Round as people do: a half goes away from zero."""
    found = math.floor(abs(value) + Fraction(1, 2))
    return found if value >= 0 else -found


def _decimal(what: str, work: Callable[[Decimal], Decimal]) -> Callable[[Sequence[Value]], Value]:
    def call(given: Sequence[Value]) -> Value:
        one = bare(given[0], what)
        try:
            return of_decimal(work(as_decimal(one.value)))
        except DecimalException:
            raise ToolError(f"{what} has no real result here, or one that is too large.") from None

    return call


def _float(what: str, work: Callable[[float], float]) -> Callable[[Sequence[Value]], Value]:
    def call(given: Sequence[Value]) -> Value:
        one = bare(given[0], what)
        try:
            found = work(float(one.value))
        except (ValueError, OverflowError):
            raise ToolError(f"{what} has no real result here, or one that is too large.") from None
        # A float is right to fifteen digits, so that no more are taken from it.
        return of_decimal(Decimal(f"{found:.{_EXACT_FLOAT}g}"))

    return call


def _log(given: Sequence[Value]) -> Value:
    one = bare(given[0], "log")
    base = bare(given[1], "log").value if len(given) > 1 else Fraction(10)
    if one.value <= 0 or base <= 0 or base == 1:
        raise ToolError("log needs a number above 0, and a base above 0 that is not 1.")
    exact = _exact_log(one.value, base)
    if exact is not None and not one.approximate:
        return number(exact)
    found = CONTEXT.divide(CONTEXT.ln(as_decimal(one.value)), CONTEXT.ln(as_decimal(base)))
    return of_decimal(found)


def _exact_log(value: Fraction, base: Fraction) -> int | None:
    guess = round(
        (math.log2(value.numerator) - math.log2(value.denominator))
        / (math.log2(base.numerator) - math.log2(base.denominator))
    )
    fits = abs(guess) * max(base.numerator.bit_length(), base.denominator.bit_length()) < 10**5
    return guess if fits and base**guess == value else None


def _ln(given: Sequence[Value]) -> Value:
    one = bare(given[0], "ln")
    if one.value <= 0:
        raise ToolError("ln needs a number above 0: it has no real result here.")
    if one.value == 1:
        return number(0)
    return _decimal("ln", CONTEXT.ln)(given)


def _factorial(given: Sequence[Value]) -> Value:
    count = whole(given[0], "factorial")
    if count < 0:
        raise ToolError("factorial needs a whole number of 0 or more.")
    if count > _MOST_FACTORIAL:
        raise too_large()
    return number(math.factorial(count))


def _choice(what: str, work: Callable[[int, int], int]) -> Callable[[Sequence[Value]], Value]:
    def call(given: Sequence[Value]) -> Value:
        of, some = whole(given[0], what), whole(given[1], what)
        if of < 0 or some < 0:
            raise ToolError(f"{what} needs whole numbers of 0 or more.")
        if of > _MOST_CHOICE or min(some, of) > _MOST_FACTORIAL:
            raise too_large()
        return number(work(of, some))

    return call


def _whole_two(what: str, work: Callable[..., int]) -> Callable[[Sequence[Value]], Value]:
    def call(given: Sequence[Value]) -> Value:
        return number(work(*(whole(one, what) for one in given)))

    return call


def modulo(left: Value, right: Value) -> Value:
    """Return the rest of a division."""
    one, other = _quantity(left, "mod"), _quantity(right, "mod")
    if not other.value:
        raise ToolError("Something is divided by 0 here, which has no result.")
    if one.dimensions != other.dimensions:
        raise ToolError("mod needs two numbers of the same kind.")
    return replace(one, value=one.value % other.value, months=None)


def _sum(given: Sequence[Value]) -> Value:
    total = given[0]
    for one in given[1:]:
        total = add(total, one)
    return total


def _mean(given: Sequence[Value]) -> Value:
    return divide(_sum(given), number(len(given)))


def _key(one: Value) -> Fraction | date:
    if isinstance(one, Quantity):
        return one.value
    return one.day if isinstance(one, Day) else Fraction(one.at.timestamp())


def _sorted(given: Sequence[Value], what: str) -> list[Value]:
    kinds = {(type(one), one.dimensions if isinstance(one, Quantity) else ()) for one in given}
    if len(kinds) > 1:
        raise ToolError(f"{what} needs values of the same kind.")
    return sorted(given, key=_key)


def _median(given: Sequence[Value]) -> Value:
    ordered = _sorted(given, "median")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else _mean(ordered[half - 1 : half + 1])


def _weekday(given: Sequence[Value]) -> Value:
    """Only the name of the day is shown, which the day itself carries."""
    if isinstance(given[0], Quantity):
        raise ToolError("weekday needs a date such as 2026-12-24.")
    return given[0]


def _week(given: Sequence[Value]) -> Value:
    one = given[0]
    if isinstance(one, Quantity):
        raise ToolError("week needs a date such as 2026-12-24.")
    day = one.day if isinstance(one, Day) else one.at.date()
    return number(day.isocalendar().week)


def _absolute(given: Sequence[Value]) -> Value:
    one = _quantity(given[0], "abs")
    return replace(
        one, value=abs(one.value), months=None if one.months is None else abs(one.months)
    )


def _cbrt(given: Sequence[Value]) -> Value:
    return root_of(_quantity(given[0], "cbrt"), 3)


def _sqrt(given: Sequence[Value]) -> Value:
    return root_of(_quantity(given[0], "sqrt"), 2)


def _root(given: Sequence[Value]) -> Value:
    return root_of(_quantity(given[0], "root"), whole(given[1], "root"))


def _date(given: Sequence[Value]) -> Value:
    year, month, day = (whole(one, "date") for one in given)
    try:
        return Day(date(year, month, day))
    except ValueError as error:
        raise ToolError(f"There is no such day ({error}).") from None


FUNCTIONS: dict[str, Function] = {
    "abs": Function(_absolute),
    "sqrt": Function(_sqrt),
    "cbrt": Function(_cbrt),
    "root": Function(_root, 2, 2),
    "round": Function(_rounded(_half_up, "round"), 1, 2),
    "floor": Function(_rounded(math.floor, "floor"), 1, 2),
    "ceil": Function(_rounded(math.ceil, "ceil"), 1, 2),
    "ln": Function(_ln),
    "log": Function(_log, 1, 2),
    "log10": Function(lambda given: _log([given[0], number(10)])),
    "log2": Function(lambda given: _log([given[0], number(2)])),
    "exp": Function(_decimal("exp", CONTEXT.exp)),
    "sin": Function(_float("sin", math.sin)),
    "cos": Function(_float("cos", math.cos)),
    "tan": Function(_float("tan", math.tan)),
    "asin": Function(_float("asin", math.asin)),
    "acos": Function(_float("acos", math.acos)),
    "atan": Function(_float("atan", math.atan)),
    "factorial": Function(_factorial),
    "comb": Function(_choice("comb", math.comb), 2, 2),
    "perm": Function(_choice("perm", math.perm), 2, 2),
    "gcd": Function(_whole_two("gcd", math.gcd), 1, None),
    "lcm": Function(_whole_two("lcm", math.lcm), 1, None),
    "mod": Function(lambda given: modulo(given[0], given[1]), 2, 2),
    "min": Function(lambda given: _sorted(given, "min")[0], 1, None),
    "max": Function(lambda given: _sorted(given, "max")[-1], 1, None),
    "sum": Function(_sum, 1, None),
    "mean": Function(_mean, 1, None),
    "avg": Function(_mean, 1, None),
    "median": Function(_median, 1, None),
    "weekday": Function(_weekday),
    "week": Function(_week),
    "date": Function(_date, 3, 3),
}

__all__ = ["FUNCTIONS", "Function", "Moment", "modulo"]
