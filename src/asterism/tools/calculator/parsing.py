"""Parsing: an expression is read and worked out in one go, operation by operation, counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, NoReturn

from asterism.errors import ToolError
from asterism.tools.calculator.functions import FUNCTIONS, modulo
from asterism.tools.calculator.units import Unit, unit_named
from asterism.tools.calculator.values import (
    Day,
    Moment,
    Quantity,
    Value,
    add,
    divide,
    multiply,
    number,
    of_decimal,
    power,
)

LONGEST = 2_000
_MOST_OPERATIONS = 2_000
_DEEPEST = 40
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|"
    "sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<iso>\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?(?![\d-]))"
    rf"|(?P<dmy>\d{{1,2}}\.?\s+(?:{_MONTH})\.?,?\s+\d{{4}})"
    rf"|(?P<mdy>(?:{_MONTH})\.?\s+\d{{1,2}},?\s+\d{{4}})"
    r"|(?P<based>0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+)"
    r"|(?P<number>(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)(?:[eE][+-]?\d+(?![\w.]))?)"
    r"|(?P<name>[^\W\d]\w*|°[CF]|µ\w+)"
    r"|(?P<sign>\*\*|//|[-+*/^%!(),;=×÷·−√²³$€£])"
    r")",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?![\d,])")
_SIGNS = {"×": "*", "·": "*", "÷": "/", "−": "-", "**": "^"}
_CONVERSIONS = ("in", "to", "as")
_FACTORS = ("pi", "π", "tau", "deg", "degree", "degrees")
_CURRENCIES = frozenset({"$", "€", "£", "usd", "eur", "gbp", "chf", "jpy", "dollars", "euros"})
PI = Decimal("3.14159265358979323846264338327950288419716939937511")
_E = Decimal("2.71828182845904523536028747135266249775724709369996")


class Token(NamedTuple):
    """One sign, name, number or date."""

    kind: str
    text: str
    place: int


def _tokens(text: str) -> list[Token]:
    found: list[Token] = []
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            rest = text[place:].strip()
            if not rest:
                break
            raise ToolError(f"{rest[:20]!r} cannot be read in the expression {_short(text)!r}.")
        said = match[match.lastgroup]
        found.append(Token(match.lastgroup, _SIGNS.get(said, said), match.start(match.lastgroup)))
        place = match.end()
    return found


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "…"


def work_out(expression: str, now: int) -> tuple[Value, list[str]]:
    """Return the value of the last statement, and the names that were given values."""
    if len(expression) > LONGEST:
        raise ToolError(
            f"The expression has {len(expression):,} characters; {LONGEST:,} are the most. Work "
            "it out in parts."
        )
    names: dict[str, Value] = {}
    value: Value | None = None
    spent = 0
    # Thousands are grouped by commas only outside of brackets, where commas part arguments.
    text = expression if "(" in expression else _GROUPED.sub(_ungrouped, expression)
    for statement in re.split(r"[;\n]", text):
        if not statement.strip():
            continue
        parser = Parser(statement, names, now, spent)
        value = parser.statement()
        spent = parser.spent
    if value is None:
        raise ToolError('What shall be worked out? Give `expression`, such as "3 * (4 + 5)".')
    return value, list(names)


def _ungrouped(match: re.Match[str]) -> str:
    return match[0].replace(",", "")


class Parser:
    """Reads one statement and works it out on the way."""

    def __init__(self, text: str, names: dict[str, Value], now: int, spent: int = 0) -> None:
        self._text = text.strip()
        self._tokens = _tokens(text)
        self._at = 0
        self._names = names
        self._now = datetime.fromtimestamp(now / 1000, UTC)
        self._depth = 0
        self.spent = spent

    # -- reading ---------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> Token | None:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else None

    def _is(self, *texts: str, ahead: int = 0) -> bool:
        token = self._peek(ahead)
        return token is not None and token.text.casefold() in texts

    def _take(self) -> Token:
        token = self._peek()
        if token is None:
            raise ToolError(f"The expression {_short(self._text)!r} ends too early.")
        self._at += 1
        return token

    def _expect(self, text: str) -> None:
        if not self._is(text):
            self._odd()
        self._at += 1

    def _odd(self) -> NoReturn:
        token = self._peek()
        if token is None:
            raise ToolError(f"The expression {_short(self._text)!r} ends too early.")
        if token.text.casefold() in _CURRENCIES:
            raise ToolError("There are no rates of currencies here. Leave the currency away.")
        if token.kind == "name":
            raise ToolError(f"{token.text!r} is no unit that is known here.")
        raise ToolError(
            f"{token.text!r} is not expected at character {token.place + 1} of "
            f"{_short(self._text)!r}."
        )

    def _count(self, value: Value) -> Value:
        self.spent += 1
        if self.spent > _MOST_OPERATIONS:
            raise ToolError(f"More than {_MOST_OPERATIONS:,} operations are not worked out.")
        return value

    # -- grammar ---------------------------------------------------------------------------------

    def statement(self) -> Value:
        """Work out `name = expression`, or an expression."""
        name = self._peek()
        if name is not None and name.kind == "name" and self._is("=", ahead=1):
            self._at += 2
            value = self._converted()
            if name.text.casefold() in FUNCTIONS:
                raise ToolError(f"{name.text!r} is a function. Choose another name.")
            self._names[name.text] = value
        else:
            value = self._converted()
        if self._peek() is not None:
            self._odd()
        return value

    def _converted(self) -> Value:
        value = self._sum()
        while self._is(*_CONVERSIONS):
            self._at += 1
            value = self._count(self._convert(value))
        return value

    def _convert(self, value: Value) -> Value:
        if not isinstance(value, Quantity):
            raise ToolError("A date has no unit that it could be converted to.")
        if self._is("%", "percent"):
            self._at += 1
            if value.dimensions:
                raise ToolError("A number with a unit is no percentage.")
            return replace(value, percent=True)
        start = self._peek()
        target = self._product()
        if not isinstance(target, Quantity) or not target.dimensions or start is None:
            raise ToolError(f"{start.text if start else ''!r} is no unit.")
        if value.dimensions != target.dimensions:
            raise ToolError(
                f"This cannot be converted to {self._text[start.place :].strip()!r}: they measure "
                "different things."
            )
        return replace(
            value, unit=target.unit, by_powers=target.by_powers, percent=False, months=None
        )

    def _sum(self) -> Value:
        value = self._product()
        while self._is("+", "-", "plus", "minus"):
            sign = 1 if self._take().text.casefold() in ("+", "plus") else -1
            value = self._count(add(value, self._product(), sign))
        return value

    def _product(self) -> Value:
        value = self._unary()
        while True:
            if self._is("*", "of", "times"):
                work: Callable[[Value, Value], Value] = multiply
            elif self._is("/", "per"):
                work = divide
            elif self._is("//"):
                work = _floored
            elif self._is("mod") or (self._is("%") and self._starts_operand(1)):
                work = modulo
            elif self._is("("):  # 2(3 + 4)
                value = self._count(multiply(value, self._unary()))
                continue
            else:
                return value
            self._at += 1
            value = self._count(work(value, self._unary()))

    def _starts_operand(self, ahead: int) -> bool:
        token = self._peek(ahead)
        if token is None:
            return False
        if token.kind == "name":
            return token.text.casefold() not in (*_CONVERSIONS, "of", "plus", "minus", "times")
        return token.kind != "sign" or token.text in ("(", "√")

    def _unary(self) -> Value:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise ToolError(f"The expression is nested more than {_DEEPEST} deep.")
        try:
            if self._is("+", "-"):
                minus = self._take().text == "-"
                value = self._unary()
                return self._count(_negative(value)) if minus else value
            if self._is("√"):
                self._at += 1
                return self._count(FUNCTIONS["sqrt"].call([self._unary()]))
            return self._power()
        finally:
            self._depth -= 1

    def _power(self) -> Value:
        value = self._postfix()
        if self._is("^"):
            self._at += 1
            # To the right: 2^3^2 is 2^9.
            return self._count(power(value, self._unary()))
        return value

    def _postfix(self) -> Value:
        value = self._primary()
        while True:
            if self._is("!"):
                value = FUNCTIONS["factorial"].call([value])
            elif self._is("²", "³"):
                value = power(value, number(2 if self._is("²") else 3))
            elif (self._is("%") and not self._starts_operand(1)) or self._is("percent"):
                percent = divide(value, number(100))
                value = replace(percent, percent=not percent.dimensions)
            else:
                return self._count(value)
            self._at += 1

    def _primary(self) -> Value:
        token = self._take()
        match token.kind:
            case "number" | "based":
                return self._measured(_read_number(token))
            case "iso" | "dmy" | "mdy":
                return _read_date(token)
            case "name":
                return self._named(token)
            case _:
                if token.text != "(":
                    self._at -= 1
                    self._odd()
        value = self._converted()
        self._expect(")")
        if isinstance(value, Quantity) and not value.dimensions:
            return self._measured(value)
        return value

    def _measured(self, value: Quantity) -> Value:
        """Return a number with the unit behind it; `5 ft 3 in` and `1 h 30 min` are one value."""
        unit = self._unit_here()
        if unit is None:
            token = self._peek()
            if token is not None and (token.text in self._names or token.text in _FACTORS):
                self._at += 1
                return self._count(multiply(value, self._named(token)))
            return value
        self._at += 1
        found = _with_unit(value, unit, self._unit_power())
        following = self._peek()
        if following is not None and following.kind == "number":
            place = self._at
            self._at += 1
            rest = self._measured(_read_number(following))
            if isinstance(rest, Quantity) and rest.dimensions == found.dimensions:
                return self._count(add(found, rest))
            self._at = place
        return found

    def _unit_here(self) -> Unit | None:
        token = self._peek()
        if token is None or token.kind != "name" or token.text in self._names:
            return None
        following = self._peek(1)
        if token.text.casefold() in FUNCTIONS and following is not None and following.text == "(":
            return None
        if token.text == "in" and (self._starts_operand(1) or self._is("%", ahead=1)):
            return None  # 5 km in miles
        return unit_named(token.text)

    def _unit_power(self) -> int:
        """Read the power that belongs to the unit alone, as in `5 m^2`."""
        if self._is("²", "³"):
            return 2 if self._take().text == "²" else 3
        exponent = self._peek(1)
        if self._is("^") and exponent is not None and exponent.text.isdecimal():
            self._at += 2
            return min(int(exponent.text[:4]), 100)
        return 1

    def _named(self, token: Token) -> Value:
        name = token.text
        low = name.casefold()
        if self._is("(") and low in FUNCTIONS:
            return self._called(low)
        if name in self._names:
            return self._names[name]
        day = self._day(low)
        if day is not None:
            return day
        if low in ("pi", "π", "tau"):
            return of_decimal(PI * (2 if low == "tau" else 1))
        if name == "e":
            return of_decimal(_E)
        if low in ("deg", "degree", "degrees"):
            return of_decimal(PI / 180)
        unit = unit_named(name)
        if unit is not None:
            return _with_unit(number(1), unit, self._unit_power())
        raise ToolError(
            f"{name!r} is no unit, function or name that is known here. Functions are: "
            f"{', '.join(FUNCTIONS)}. A name is given a value with {name} = …;"
        )

    def _called(self, name: str) -> Value:
        self._expect("(")
        given: list[Value] = []
        while not self._is(")"):
            given.append(self._converted())
            if not self._is(")"):
                self._expect(",")
        self._expect(")")
        function = FUNCTIONS[name]
        most = function.most if function.most is not None else len(given)
        if not function.least <= len(given) <= most or not given:
            wanted = f"{function.least} to {most}" if most != function.least else f"{most}"
            raise ToolError(f"{name} takes {wanted} arguments, not {len(given)}.")
        return self._count(function.call(given))

    def _day(self, name: str) -> Value | None:
        today = self._now.date()
        if name == "now":
            return Moment(self._now)
        if name in ("today", "tomorrow", "yesterday"):
            return Day(today + timedelta(days=("yesterday", "today", "tomorrow").index(name) - 1))
        if name in ("next", "last") and (token := self._peek()) is not None:
            wanted = token.text.casefold()
            if wanted in _DAYS:
                self._at += 1
                ahead = (_DAYS.index(wanted) - today.weekday()) % 7
                if name == "next":
                    return Day(today + timedelta(days=ahead or 7))
                return Day(today - timedelta(days=(7 - ahead) % 7 or 7))
        if name in _DAYS:
            return Day(today + timedelta(days=(_DAYS.index(name) - today.weekday()) % 7))
        return None


def _negative(value: Value) -> Value:
    if isinstance(value, Quantity) and value.unit is not None and value.unit.offset:
        return replace(value, value=2 * value.unit.offset - value.value)  # -40 °C
    return multiply(number(-1), value)


def _floored(one: Value, other: Value) -> Value:
    return FUNCTIONS["floor"].call([divide(one, other)])


def _with_unit(value: Quantity, unit: Unit, exponent: int) -> Quantity:
    if exponent != 1:
        return multiply(value, power(_with_unit(number(1), unit, 1), number(exponent)))
    size = value.value * unit.size + unit.offset
    months = value.value * unit.months if unit.months else None
    return Quantity(size, unit.dimensions, value.approximate, unit=unit, months=months)


def _read_number(token: Token) -> Quantity:
    text = token.text.replace("_", "")
    try:
        if token.kind == "based":
            return number(int(text, 0))
        if "e" in text.casefold() and abs(int(text.casefold().partition("e")[2])) > 9_999:
            raise ToolError(f"{token.text!r} is too large or too small to be worked with.")
        return number(Fraction(text if not text.endswith(".") else text + "0"))
    except ValueError:
        raise ToolError(f"{token.text!r} is no number.") from None


def _read_date(token: Token) -> Value:
    text = token.text
    try:
        if token.kind == "iso":
            if len(text) == len("2026-12-24"):
                return Day(date.fromisoformat(text))
            moment = datetime.fromisoformat(text)
            return Moment(
                moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
            )
        numbers = [int(one) for one in re.findall(r"\d+", text)]
        word = re.search(r"[a-z]+", text, re.IGNORECASE)
        assert word is not None
        return Day(date(numbers[1], _MONTHS.index(word[0].casefold()[:3]) + 1, numbers[0]))
    except ValueError as error:
        raise ToolError(f"There is no day {text!r} ({error}).") from None
