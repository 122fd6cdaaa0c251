"""Units: what each is in terms of metre, kilogram, second, kelvin and bit."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

Dimensions = tuple[tuple[str, int], ...]
"""Powers of the five kinds, sorted by name, none of them 0."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit with its size; `offset` is where its zero lies, in kelvin."""

    name: str
    size: Fraction
    dimensions: Dimensions
    offset: Fraction = Fraction(0)
    months: int = 0
    """How many calendar months it is, where a date is concerned."""


def times(one: Dimensions, other: Dimensions, sign: int = 1) -> Dimensions:
    """Return the dimensions of a product, or with -1 of a quotient."""
    powers = dict(one)
    for name, power in other:
        powers[name] = powers.get(name, 0) + sign * power
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def raised(one: Dimensions, power: int) -> Dimensions:
    """Return the dimensions of a power."""
    return tuple((name, each * power) for name, each in one) if power else ()


def _dims(**powers: int) -> Dimensions:
    return tuple(sorted(powers.items()))


LENGTH, MASS, TIME = _dims(length=1), _dims(mass=1), _dims(time=1)
TEMPERATURE, DATA = _dims(temperature=1), _dims(data=1)
_AREA, _VOLUME = _dims(length=2), _dims(length=3)
_SPEED = _dims(length=1, time=-1)
_FORCE = _dims(length=1, mass=1, time=-2)
_PRESSURE = _dims(length=-1, mass=1, time=-2)
_ENERGY = _dims(length=2, mass=1, time=-2)
_POWER = _dims(length=2, mass=1, time=-3)
_RATE = _dims(time=-1)

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
_BINARY = {"Ki": "kibi", "Mi": "mebi", "Gi": "gibi", "Ti": "tebi", "Pi": "pebi"}

# Short name, long names, size, dimensions, and the prefixes that it is used with.
_METRIC: list[tuple[str, str, Fraction, Dimensions, str]] = [
    ("m", "metre meter", Fraction(1), LENGTH, "nµumcdhkM"),
    ("g", "gram gramme", Fraction(1, 1000), MASS, "nµumck"),
    ("s", "second sec", Fraction(1), TIME, "nµum"),
    ("K", "kelvin", Fraction(1), TEMPERATURE, "m"),
    ("b", "bit", Fraction(1), DATA, "kMGTP"),
    ("B", "byte", Fraction(8), DATA, "kMGTP"),
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
    ("t", "tonne", Fraction(1000), MASS, ""),
    ("ha", "hectare", Fraction(10_000), _AREA, ""),
]
_INCH, _POUND = Fraction(254, 10_000), Fraction(45_359_237, 10**8)
_GALLON = 231 * _INCH**3
_GRAVITY = Fraction(980_665, 100_000)
_DAY = Fraction(86_400)
_YEAR = Fraction(31_556_952)
"""Seconds in an average year of the calendar."""
_OTHERS: list[tuple[str, Fraction, Dimensions]] = [
    ("in inch inches", _INCH, LENGTH),
    ("ft foot feet", 12 * _INCH, LENGTH),
    ("yd yard yards", 36 * _INCH, LENGTH),
    ("mi mile miles", 63_360 * _INCH, LENGTH),
    ("nmi", Fraction(1852), LENGTH),
    ("ly lightyear lightyears", Fraction(9_460_730_472_580_800), LENGTH),
    ("au", Fraction(149_597_870_700), LENGTH),
    ("oz ounce ounces", _POUND / 16, MASS),
    ("lb lbs pound pounds", _POUND, MASS),
    ("stone", 14 * _POUND, MASS),
    ("ton tons", 2000 * _POUND, MASS),
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


def _metric() -> dict[str, Unit]:
    found: dict[str, Unit] = {}
    for short, long, size, dimensions, prefixes in _METRIC:
        names = [short, *long.split(), *(f"{one}s" for one in long.split())]
        for name in names:
            found[name] = Unit(short, size, dimensions)
        for sign in prefixes:
            word, factor = _PREFIXES[sign]
            unit = Unit(f"{sign}{short}", size * factor, dimensions)
            found[f"{sign}{short}"] = unit
            if word:
                for one in long.split():
                    found[f"{word}{one}"] = found[f"{word}{one}s"] = unit
    for power, (sign, word) in enumerate(_BINARY.items(), 1):
        for short, long, size in (("b", "bit", 1), ("B", "byte", 8)):
            unit = Unit(f"{sign}{short}", Fraction(size * 1024**power), DATA)
            found |= dict.fromkeys((unit.name, f"{word}{long}", f"{word}{long}s"), unit)
    return found


def _all() -> dict[str, Unit]:
    found = _metric()
    for names, size, dimensions in _OTHERS:
        first = names.split()[0]
        for name in names.split():
            found[name] = Unit(first, size, dimensions)
    for months, names in ((1, "month months"), (12, "year years yr yrs")):
        for name in names.split():
            found[name] = Unit(names.split()[0], _YEAR * months / 12, TIME, months=months)
    zero = Fraction(27_315, 100)
    celsius = Unit("°C", Fraction(1), TEMPERATURE, zero)
    fahrenheit = Unit("°F", Fraction(5, 9), TEMPERATURE, zero - 32 * Fraction(5, 9))
    found |= dict.fromkeys(("°C", "C", "celsius", "degC"), celsius)
    found |= dict.fromkeys(("°F", "F", "fahrenheit", "degF"), fahrenheit)
    found["KB"] = found["kB"]
    return found


UNITS = _all()


def unit_named(name: str) -> Unit | None:
    """Return a unit by one of its names; long ones in any case."""
    return UNITS.get(name) or (UNITS.get(name.casefold()) if len(name) > 2 else None)
