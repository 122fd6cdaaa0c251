"""Quantities: exact numbers with units, and dates; how they are calculated with, and shown."""

from __future__ import annotations

import calendar
import math
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException
from fractions import Fraction

from asterism.errors import ToolError
from asterism.records import dataclass

MAX_BITS = 100_000
"""Numbers may have as many: about 30,000 digits."""
_MAX_ROOT_BITS = 10_000
_MAX_DECIMAL_EXPONENT = 20_000
CONTEXT = Context(prec=50, Emax=40_000, Emin=-40_000)

Dimensions = tuple[tuple[str, int], ...]
"""Powers of the five dimensions, sorted by name, none of them 0."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit with its size; `offset` is where its zero lies, in kelvin."""

    name: str
    size: Fraction
    dimensions: Dimensions
    offset: Fraction = Fraction(0)
    months: int = 0
    """How many calendar months it is, where a date is concerned."""


Units = tuple[tuple[Unit, int], ...]
"""Units with their powers, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, perhaps of a unit; its value is in metre, kilogram, second, kelvin and bit."""

    value: Fraction
    units: Units = ()
    """How it was written, and is shown."""
    approximate: bool = False
    months: Fraction | None = None
    """What it is in months of the calendar, if it was written in months and years."""
    percent: bool = False

    def __post_init__(self) -> None:
        if _bits(self.value) > MAX_BITS:
            raise too_large()

    @property
    def dimensions(self) -> Dimensions:
        """What it measures."""
        powers: dict[str, int] = {}
        for unit, power in self.units:
            for name, exponent in unit.dimensions:
                powers[name] = powers.get(name, 0) + power * exponent
        return tuple(sorted((name, power) for name, power in powers.items() if power))

    @property
    def unit(self) -> Unit | None:
        """Its unit, if it is a single one that is not raised to a power."""
        return self.units[0][0] if len(self.units) == 1 and self.units[0][1] == 1 else None

    @property
    def has_offset(self) -> bool:
        """Whether its zero is not the zero of its dimension, as with °C."""
        return self.unit is not None and bool(self.unit.offset)


Value = Quantity | date
"""A number, a day (`date`) or a moment in UTC (`datetime`)."""


def number(value: Fraction | int) -> Quantity:
    """Return a plain number."""
    return Quantity(Fraction(value))


def measured(value: Quantity, unit: Unit, exponent: int = 1) -> Quantity:
    """Return a plain number with a unit, which may be raised to a power."""
    if exponent != 1:
        return multiply(value, power(measured(number(1), unit), number(exponent)))
    months = value.value * unit.months if unit.months else None
    size = value.value * unit.size + unit.offset
    return Quantity(size, ((unit, 1),), value.approximate, months)


def from_decimal(value: Decimal) -> Quantity:
    """Return a number that is known to many digits, but not exactly."""
    if not value.is_finite() or abs(value.adjusted()) > _MAX_DECIMAL_EXPONENT:
        raise too_large()
    return Quantity(Fraction(value), approximate=True)


def to_decimal(value: Fraction) -> Decimal:
    """Return a number to fifty digits."""
    try:
        return CONTEXT.divide(Decimal(value.numerator), Decimal(value.denominator))
    except DecimalException:
        raise too_large() from None


def plain(value: Value, operation: str) -> Quantity:
    """Return a number without a unit; raise `ToolError` if it has one or is a date."""
    if isinstance(value, Quantity) and not value.units:
        return value
    raise ToolError(f"{operation} needs a plain number, not {kind_of(value)}.")


def whole(value: Value, operation: str) -> int:
    """Return a value that is a whole number."""
    number = plain(value, operation).value
    if number.denominator != 1:
        raise ToolError(f"{operation} needs a whole number, not {to_decimal(number):.6g}.")
    return number.numerator


def kind_of(value: Value) -> str:
    """Return in words what kind of thing a value is."""
    if not isinstance(value, Quantity):
        return "a date"
    return "a number with a unit" if value.units else "a plain number"


def too_large() -> ToolError:
    """Return the error for a number that has too many digits."""
    return ToolError(
        f"This has a number of more than {MAX_BITS:,} bits (about 30,000 digits), which is not "
        "calculated. Ask for less, such as its logarithm."
    )


def _bits(*values: Fraction) -> int:
    return sum(value.numerator.bit_length() + value.denominator.bit_length() for value in values)


# -- arithmetic ------------------------------------------------------------------------------------


def add(left: Value, right: Value, sign: int = 1) -> Value:
    """Return a sum, or with -1 a difference."""
    if isinstance(left, Quantity):
        if isinstance(right, Quantity):
            return _add_quantities(left, right, sign)
        if sign < 0:
            raise ToolError("A date cannot be subtracted from a number. Write the date first.")
        return _move(right, left, sign)
    if isinstance(right, Quantity):
        return _move(left, right, sign)
    if sign > 0:
        raise ToolError('Two dates cannot be added. Add a duration, such as "today + 3 weeks".')
    if isinstance(left, datetime) or isinstance(right, datetime):
        microseconds = (_moment(left) - _moment(right)) // timedelta(microseconds=1)
        return Quantity(Fraction(microseconds, 10**6), ((UNITS["h"], 1),))
    return measured(number((left - right).days), UNITS["day"])


def _add_quantities(left: Quantity, right: Quantity, sign: int) -> Quantity:
    approximate = left.approximate or right.approximate
    if right.percent and not left.percent:
        value = left.value * (1 + sign * right.value)
        return replace(left, value=value, approximate=approximate, months=None)
    if left.dimensions != right.dimensions:
        raise ToolError(
            f"{units_text(left)} and {units_text(right)} cannot be added to each other: they "
            "measure different things."
        )
    if left.has_offset or right.has_offset:
        raise ToolError(
            "Degrees cannot be added: it is not clear whether they are differences. Write "
            'them in kelvin, or convert one with "in".'
        )
    months = None
    if left.months is not None and right.months is not None:
        months = left.months + sign * right.months
    return Quantity(
        left.value + sign * right.value,
        left.units or right.units,
        approximate,
        months,
        percent=left.percent and right.percent,
    )


def _move(start: date, duration: Quantity, sign: int) -> date:
    if duration.dimensions != TIME:
        raise ToolError(
            f"{units_text(duration)} cannot be added to a date. Add a duration, such as 3 weeks."
        )
    try:
        if duration.months is not None:
            if duration.months.denominator != 1:
                raise ToolError("Only whole months can be added to a date. Write the rest in days.")
            return _move_months(start, sign * duration.months.numerator)
        seconds = sign * duration.value
        days = seconds / 86_400
        if not isinstance(start, datetime) and days.denominator == 1:
            return start + timedelta(days=days.numerator)
        return _moment(start) + timedelta(microseconds=round(seconds * 10**6))
    except (OverflowError, ValueError):
        raise ToolError("This date is not between the years 1 and 9999.") from None


def _move_months(start: date, months: int) -> date:
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise ValueError(year)
    last = calendar.monthrange(year, month + 1)[1]
    return start.replace(year=year, month=month + 1, day=min(start.day, last))


def _moment(value: date) -> datetime:
    if isinstance(value, datetime):
        return value
    return datetime(value.year, value.month, value.day, tzinfo=UTC)


def quantities(left: Value, right: Value, operation: str) -> tuple[Quantity, Quantity]:
    """Return two values that are numbers; raise `ToolError` if one is a date."""
    if not isinstance(left, Quantity) or not isinstance(right, Quantity):
        raise ToolError(f"A date cannot be {operation}.")
    return left, right


def multiply(left: Value, right: Value) -> Quantity:
    """Return a product."""
    left, right = quantities(left, right, "multiplied")
    months = None
    if left.months is not None and not right.units:
        months = left.months * right.value
    elif right.months is not None and not left.units:
        months = right.months * left.value
    return _combine(left, right, 1, months)


def divide(left: Value, right: Value) -> Quantity:
    """Return a quotient."""
    left, right = quantities(left, right, "divided")
    if not right.value:
        raise division_by_zero()
    months = left.months / right.value if left.months is not None and not right.units else None
    return _combine(left, right, -1, months)


def modulo(left: Value, right: Value) -> Quantity:
    """Return the remainder of a division."""
    left, right = quantities(left, right, "divided")
    if not right.value:
        raise division_by_zero()
    if left.dimensions != right.dimensions:
        raise ToolError("mod needs two numbers of the same kind.")
    approximate = left.approximate or right.approximate
    return replace(left, value=left.value % right.value, approximate=approximate, months=None)


def division_by_zero() -> ToolError:
    """Return the error for a division by 0."""
    return ToolError("Something is divided by 0 here, which has no result.")


def _combine(left: Quantity, right: Quantity, sign: int, months: Fraction | None) -> Quantity:
    # Checked before the work, which takes long for numbers that are too large.
    if _bits(left.value, right.value) > 2 * MAX_BITS:
        raise too_large()
    if (left.has_offset and right.units) or (right.has_offset and left.units):
        raise ToolError("Degrees cannot be multiplied with units. Write them in kelvin.")
    powers = dict(left.units)
    for unit, exponent in right.units:
        powers[unit] = powers.get(unit, 0) + sign * exponent
    value = left.value * right.value if sign > 0 else left.value / right.value
    product = Quantity(
        value,
        tuple((unit, exponent) for unit, exponent in powers.items() if exponent),
        left.approximate or right.approximate,
        months,
    )
    return product if product.dimensions else replace(product, units=())


def power(left: Value, right: Value) -> Quantity:
    """Return a power, exact for whole exponents."""
    left, right = quantities(left, right, "raised to a power")
    if right.units:
        raise ToolError("An exponent must be a plain number.")
    exponent = right.value
    if exponent.denominator == 1:
        return _whole_power(left, exponent.numerator, approximate=right.approximate)
    if left.units:
        if exponent.denominator == 2 and all(each % 2 == 0 for _, each in left.dimensions):
            return _whole_power(root(left, 2), exponent.numerator)
        raise ToolError("A number with a unit can only be raised to a whole power.")
    if left.value < 0:
        raise ToolError("A negative number has no real power with a fraction as exponent.")
    exact = _exact_root(left.value, exponent.denominator)
    if exact is not None and not left.approximate:
        return _whole_power(number(exact), exponent.numerator)
    if not left.value:
        return number(0)
    try:
        return from_decimal(CONTEXT.power(to_decimal(left.value), to_decimal(exponent)))
    except DecimalException:
        raise too_large() from None


def _whole_power(base: Quantity, exponent: int, *, approximate: bool = False) -> Quantity:
    if not base.value and exponent < 0:
        raise ToolError("0 has no negative power.")
    bits = max(base.value.numerator.bit_length(), base.value.denominator.bit_length())
    trivial = abs(base.value) in (0, 1)
    if (not trivial and bits * abs(exponent) > 2 * MAX_BITS) or abs(exponent) > 10**12:
        raise too_large()
    if base.has_offset and exponent != 1:
        raise ToolError("Degrees cannot be raised to a power. Write them in kelvin.")
    approximate = base.approximate or approximate
    if not exponent:
        return Quantity(Fraction(1), approximate=approximate)
    # The parity of the exponent says it all for 0, 1 and -1, however large the exponent is.
    value = base.value ** (2 - exponent % 2) if trivial else base.value**exponent
    units = tuple((unit, each * exponent) for unit, each in base.units)
    return Quantity(value, units, approximate)


def root(base: Quantity, degree: int) -> Quantity:
    """Return a root, exact if it is a fraction."""
    if degree < 1 or degree > 1000:
        raise ToolError("A root needs a degree from 1 to 1,000.")
    if any(each % degree for _, each in base.dimensions):
        raise ToolError(f"{units_text(base)} has no such root.")
    if base.value < 0 and degree % 2 == 0:
        raise ToolError("A negative number has no real root of an even degree.")
    if all(each % degree == 0 for _, each in base.units):
        units = tuple((unit, each // degree) for unit, each in base.units)
    else:  # such as the root of km*m
        units = tuple((UNITS[_BASES[name]], each // degree) for name, each in base.dimensions)
    exact = _exact_root(abs(base.value), degree)
    sign = -1 if base.value < 0 else 1
    if exact is not None:
        return Quantity(sign * exact, units, base.approximate)
    magnitude = CONTEXT.power(to_decimal(abs(base.value)), to_decimal(Fraction(1, degree)))
    return Quantity(sign * from_decimal(magnitude).value, units, approximate=True)


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    top, bottom = _whole_root(value.numerator, degree), _whole_root(value.denominator, degree)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _whole_root(value: int, degree: int) -> int | None:
    if value < 2:
        return value
    if degree == 2:
        estimate = math.isqrt(value)
    elif value.bit_length() <= degree or value.bit_length() > _MAX_ROOT_BITS:
        return None  # it lies between 1 and 2, or would take too long
    else:  # Newton's method, from above
        estimate = 1 << -(-value.bit_length() // degree)
        while True:
            closer = ((degree - 1) * estimate + value // estimate ** (degree - 1)) // degree
            if closer >= estimate:
                break
            estimate = closer
    return estimate if estimate**degree == value else None


# -- text ------------------------------------------------------------------------------------------

_MAX_APPROXIMATE_DIGITS = 15
_MAX_DIGITS = 1_000
_MAX_PLACES = 30
_MAX_DENOMINATOR = 9_999
_MAX_NUMERATOR = 10**15
_PLURALS = {"d": "days", "week": "weeks", "month": "months", "year": "years"}
_ROUNDING = Context(prec=_MAX_APPROXIMATE_DIGITS)


def value_text(value: Value) -> str:
    """Return a value as a model reads it: exact, or marked as approximate."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC ({value:%A})"
    if isinstance(value, date):
        return f"{value.isoformat()} ({value:%A})"
    if value.percent:
        return _number_text(value.value * 100, value.approximate, "%")
    amount = value.value - (value.unit.offset if value.unit is not None else 0)
    for unit, exponent in value.units:
        amount /= unit.size**exponent
    name = units_text(value) if value.units else ""
    if value.unit is not None and amount != 1:
        name = _PLURALS.get(name, name)
    elif name == "d":
        name = "day"
    text = _number_text(amount, value.approximate, f" {name}" if name else "")
    return text + _weeks_text(amount) if name == "days" else text


def _weeks_text(days: Fraction) -> str:
    if days.denominator != 1 or abs(days) < 14 or abs(days) > 10_000:
        return ""
    weeks, rest = divmod(abs(days.numerator), 7)
    more = f" and {rest} day{'s' * (rest != 1)}" if rest else ""
    return f" ({weeks} weeks{more})"


def units_text(value: Quantity) -> str:
    """Return the units of a quantity, such as `km/h`."""
    above = "*".join(_power_text(unit, each) for unit, each in value.units if each > 0)
    below = "/".join(_power_text(unit, -each) for unit, each in value.units if each < 0)
    return f"{above or '1'}/{below}" if below else above or "a plain number"


def _power_text(unit: Unit, exponent: int) -> str:
    return unit.name if exponent == 1 else f"{unit.name}^{exponent}"


def _number_text(value: Fraction, approximate: bool, unit: str) -> str:
    exact = None if approximate else _exact_text(value)
    if exact is not None:
        return f"{exact}{unit}"
    rounded = f"about {_rounded_text(value)}{unit}"
    if approximate:
        return rounded
    if value.denominator <= _MAX_DENOMINATOR and abs(value.numerator) < _MAX_NUMERATOR:
        return f"{value}{unit} ({rounded})"
    return rounded


def _exact_text(value: Fraction) -> str | None:
    """Return a number with all its digits, unless they never end or are too many."""
    bottom, powers = value.denominator, [0, 0]
    for index, prime in enumerate((2, 5)):
        while bottom % prime == 0 and powers[index] <= _MAX_PLACES:
            bottom //= prime
            powers[index] += 1
    places = max(powers)
    if bottom != 1 or places > _MAX_PLACES:
        return None
    top = value * 10**places
    if top.numerator.bit_length() > 4 * _MAX_DIGITS:
        return None
    digits = str(abs(top.numerator)).rjust(places + 1, "0")
    if len(digits) > _MAX_DIGITS:
        return None
    before, after = (digits[:-places], digits[-places:].rstrip("0")) if places else (digits, "")
    sign = "-" if value < 0 else ""
    return f"{sign}{before}.{after}" if after else f"{sign}{before}"


def _rounded_text(value: Fraction) -> str:
    rounded = _ROUNDING.plus(to_decimal(value)).normalize()
    if not rounded:
        return "0"
    if -6 <= rounded.adjusted() < _MAX_APPROXIMATE_DIGITS:
        return f"{rounded:f}"
    digits, _, exponent = f"{rounded:e}".partition("e")
    return f"{digits}e{int(exponent)}"


# -- units -----------------------------------------------------------------------------------------


def _powers(**powers: int) -> Dimensions:
    return tuple(sorted(powers.items()))


_LENGTH, _MASS, TIME = _powers(length=1), _powers(mass=1), _powers(time=1)
_TEMPERATURE, _DATA = _powers(temperature=1), _powers(data=1)
_BASES = {"length": "m", "mass": "kg", "time": "s", "temperature": "K", "data": "bit"}
_AREA, _VOLUME = _powers(length=2), _powers(length=3)
_SPEED = _powers(length=1, time=-1)
_FORCE = _powers(length=1, mass=1, time=-2)
_PRESSURE = _powers(length=-1, mass=1, time=-2)
_ENERGY = _powers(length=2, mass=1, time=-2)
_POWER = _powers(length=2, mass=1, time=-3)
_RATE = _powers(time=-1)

_PREFIXES = {
    "n": ("nano", Fraction(1, 10**9)),
    "µ": ("micro", Fraction(1, 10**6)),
    "u": ("", Fraction(1, 10**6)),
    "m": ("milli", Fraction(1, 1000)),
    "c": ("centi", Fraction(1, 100)),
    "d": ("deci", Fraction(1, 10)),
    "h": ("hecto", Fraction(100)),
    "k": ("kilo", Fraction(1000)),
    "M": ("mega", Fraction(10**6)),
    "G": ("giga", Fraction(10**9)),
    "T": ("tera", Fraction(10**12)),
    "P": ("peta", Fraction(10**15)),
}
_BINARY_PREFIXES = {"Ki": "kibi", "Mi": "mebi", "Gi": "gibi", "Ti": "tebi", "Pi": "pebi"}

# Short name, long names, size, dimensions, and the prefixes that it is used with.
_METRIC: list[tuple[str, str, Fraction, Dimensions, str]] = [
    ("m", "metre meter", Fraction(1), _LENGTH, "nµumcdhkM"),
    ("g", "gram gramme", Fraction(1, 1000), _MASS, "nµumck"),
    ("s", "second sec", Fraction(1), TIME, "nµum"),
    ("K", "kelvin", Fraction(1), _TEMPERATURE, "m"),
    ("b", "bit", Fraction(1), _DATA, "kMGTP"),
    ("B", "byte", Fraction(8), _DATA, "kMGTP"),
    ("l", "litre liter", Fraction(1, 1000), _VOLUME, "mcdh"),
    ("L", "", Fraction(1, 1000), _VOLUME, "mcdh"),
    ("N", "newton", Fraction(1), _FORCE, "mkM"),
    ("J", "joule", Fraction(1), _ENERGY, "mkMG"),
    ("W", "watt", Fraction(1), _POWER, "mkMGT"),
    ("Wh", "", Fraction(3600), _ENERGY, "mkMGT"),
    ("Pa", "pascal", Fraction(1), _PRESSURE, "mhkM"),
    ("bar", "", Fraction(100_000), _PRESSURE, "m"),
    ("Hz", "hertz", Fraction(1), _RATE, "kMGT"),
    ("cal", "calorie", Fraction(4184, 1000), _ENERGY, "k"),
    ("t", "tonne", Fraction(1000), _MASS, ""),
    ("ha", "hectare", Fraction(10_000), _AREA, ""),
]
_INCH, _POUND = Fraction(254, 10_000), Fraction(45_359_237, 10**8)
_GALLON = 231 * _INCH**3
_GRAVITY = Fraction(980_665, 100_000)
_DAY = Fraction(86_400)
_YEAR = Fraction(31_556_952)
"""Seconds in an average year of the calendar."""
_OTHERS: list[tuple[str, Fraction, Dimensions]] = [
    ("in inch inches", _INCH, _LENGTH),
    ("ft foot feet", 12 * _INCH, _LENGTH),
    ("yd yard yards", 36 * _INCH, _LENGTH),
    ("mi mile miles", 63_360 * _INCH, _LENGTH),
    ("nmi", Fraction(1852), _LENGTH),
    ("ly lightyear lightyears", Fraction(9_460_730_472_580_800), _LENGTH),
    ("au", Fraction(149_597_870_700), _LENGTH),
    ("oz ounce ounces", _POUND / 16, _MASS),
    ("lb lbs pound pounds", _POUND, _MASS),
    ("stone", 14 * _POUND, _MASS),
    ("ton tons", 2000 * _POUND, _MASS),
    ("min mins minute minutes", Fraction(60), TIME),
    ("h hr hrs hour hours", Fraction(3600), TIME),
    ("d day days", _DAY, TIME),
    ("week weeks wk", 7 * _DAY, TIME),
    ("fortnight fortnights", 14 * _DAY, TIME),
    ("acre acres", 4840 * (36 * _INCH) ** 2, _AREA),
    ("gal gallon gallons", _GALLON, _VOLUME),
    ("qt quart quarts", _GALLON / 4, _VOLUME),
    ("pt pint pints", _GALLON / 8, _VOLUME),
    ("cup cups", _GALLON / 16, _VOLUME),
    ("floz", _GALLON / 128, _VOLUME),
    ("tbsp tablespoon tablespoons", _GALLON / 256, _VOLUME),
    ("tsp teaspoon teaspoons", _GALLON / 768, _VOLUME),
    ("mph", 63_360 * _INCH / 3600, _SPEED),
    ("kmh kph", Fraction(1000, 3600), _SPEED),
    ("kn knot knots", Fraction(1852, 3600), _SPEED),
    ("lbf", _POUND * _GRAVITY, _FORCE),
    ("psi", _POUND * _GRAVITY / _INCH**2, _PRESSURE),
    ("atm", Fraction(101_325), _PRESSURE),
    ("hp", 550 * 12 * _INCH * _POUND * _GRAVITY, _POWER),
    ("BTU", Fraction(1_055_055_852_62, 10**8), _ENERGY),
]


def _metric_units() -> dict[str, Unit]:
    units: dict[str, Unit] = {}
    for short, long, size, dimensions, prefixes in _METRIC:
        words = long.split()
        unit = Unit(short, size, dimensions)
        units |= dict.fromkeys((short, *words, *(f"{word}s" for word in words)), unit)
        for sign in prefixes:
            prefix, factor = _PREFIXES[sign]
            unit = units[f"{sign}{short}"] = Unit(f"{sign}{short}", size * factor, dimensions)
            for word in words if prefix else ():
                units |= dict.fromkeys((f"{prefix}{word}", f"{prefix}{word}s"), unit)
    for exponent, (sign, prefix) in enumerate(_BINARY_PREFIXES.items(), 1):
        for short, word, size in (("b", "bit", 1), ("B", "byte", 8)):
            unit = Unit(f"{sign}{short}", Fraction(size * 1024**exponent), _DATA)
            units |= dict.fromkeys((unit.name, f"{prefix}{word}", f"{prefix}{word}s"), unit)
    return units


def _all_units() -> dict[str, Unit]:
    units = _metric_units()
    for names, size, dimensions in _OTHERS:
        units |= dict.fromkeys(names.split(), Unit(names.split()[0], size, dimensions))
    month = Unit("month", _YEAR / 12, TIME, months=1)
    year = Unit("year", _YEAR, TIME, months=12)
    units |= dict.fromkeys(("month", "months"), month)
    units |= dict.fromkeys(("year", "years", "yr", "yrs"), year)
    zero = Fraction(27_315, 100)
    celsius = Unit("°C", Fraction(1), _TEMPERATURE, zero)
    fahrenheit = Unit("°F", Fraction(5, 9), _TEMPERATURE, zero - 32 * Fraction(5, 9))
    units |= dict.fromkeys(("°C", "C", "celsius", "degC"), celsius)
    units |= dict.fromkeys(("°F", "F", "fahrenheit", "degF"), fahrenheit)
    units["KB"] = units["kB"]
    return units


UNITS = _all_units()


def unit_named(name: str) -> Unit | None:
    """Return a unit by one of its names; long ones in any case."""
    return UNITS.get(name) or (UNITS.get(name.casefold()) if len(name) > 2 else None)
