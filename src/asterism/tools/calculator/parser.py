"""The parser: an expression is read and calculated in one pass, operation by operation, counted."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, DecimalException
from fractions import Fraction
from typing import NamedTuple, NoReturn

from asterism.errors import ToolError
from asterism.records import dataclass
from asterism.times import MONTH_NUMBERS, MONTH_PATTERN, WEEKDAYS, to_datetime
from asterism.tools.calculator.quantities import (
    CONTEXT,
    Quantity,
    Unit,
    Value,
    add,
    divide,
    from_decimal,
    kind_of,
    measured,
    modulo,
    multiply,
    number,
    plain,
    power,
    root,
    to_decimal,
    too_large,
    unit_named,
    whole,
)

MAX_LENGTH = 2_000
_MAX_OPERATIONS = 2_000
_MAX_DEPTH = 40
_MAX_EXPONENT = 9_999
_MAX_FACTORIAL = 5_000
_MAX_CHOICE = 20_000
_MAX_ROUNDING_DIGITS = 1_000
_FLOAT_DIGITS = 15
_PI = Decimal("3.14159265358979323846264338327950288419716939937511")
_E = Decimal("2.71828182845904523536028747135266249775724709369996")

_TOKEN = re.compile(
    r"\s*(?:"
    r"(?P<iso>\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:\d{2})?)?(?![\d-]))"
    rf"|(?P<dmy>\d{{1,2}}\.?\s+(?:{MONTH_PATTERN})\.?,?\s+\d{{4}})"
    rf"|(?P<mdy>(?:{MONTH_PATTERN})\.?\s+\d{{1,2}},?\s+\d{{4}})"
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
_CONSTANTS = {
    "pi": _PI,
    "π": _PI,
    "tau": _PI * 2,
    "deg": _PI / 180,
    "degree": _PI / 180,
    "degrees": _PI / 180,
}
_CURRENCIES = frozenset({"$", "€", "£", "usd", "eur", "gbp", "chf", "jpy", "dollars", "euros"})


class Token(NamedTuple):
    """One sign, name, number or date."""

    kind: str
    text: str
    position: int


def calculate(expression: str, now: int) -> Value:
    """Return the value of the last statement of an expression; `now` is in milliseconds."""
    if len(expression) > MAX_LENGTH:
        raise ToolError(
            f"The expression has {len(expression):,} characters; {MAX_LENGTH:,} are the most. "
            "Calculate it in parts."
        )
    names: dict[str, Value] = {}
    value: Value | None = None
    operations = 0
    # Thousands are grouped by commas only outside of brackets, where commas part arguments.
    if "(" not in expression:
        expression = _GROUPED.sub(lambda match: match[0].replace(",", ""), expression)
    for statement in re.split(r"[;\n]", expression):
        if not statement.strip():
            continue
        parser = Parser(statement, names, to_datetime(now), operations)
        value = parser.statement()
        operations = parser.operations
    if value is None:
        raise ToolError('What is to be calculated? Give `expression`, such as "3 * (4 + 5)".')
    return value


def _tokenize(text: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            rest = text[position:].strip()
            if not rest:
                break
            raise ToolError(f"{rest[:20]!r} cannot be read in the expression {_short(text)!r}.")
        kind = match.lastgroup
        tokens.append(Token(kind, _SIGNS.get(match[kind], match[kind]), match.start(kind)))
        position = match.end()
    return tokens


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:80] + "…"


class Parser:
    """Reads one statement and calculates it on the way."""

    def __init__(
        self, text: str, names: dict[str, Value], now: datetime, operations: int = 0
    ) -> None:
        self._text = text.strip()
        self._tokens = _tokenize(text)
        self._next = 0
        self._names = names
        self._now = now
        self._depth = 0
        self.operations = operations

    # -- reading ---------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> Token | None:
        position = self._next + ahead
        return self._tokens[position] if position < len(self._tokens) else None

    def _is(self, *texts: str, ahead: int = 0) -> bool:
        token = self._peek(ahead)
        return token is not None and token.text.casefold() in texts

    def _take(self) -> Token:
        token = self._peek()
        if token is None:
            self._unexpected()
        self._next += 1
        return token

    def _accept(self, *texts: str) -> bool:
        accepted = self._is(*texts)
        self._next += accepted
        return accepted

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._unexpected()

    def _unexpected(self) -> NoReturn:
        token = self._peek()
        if token is None:
            raise ToolError(f"The expression {_short(self._text)!r} ends too early.")
        if token.text.casefold() in _CURRENCIES:
            raise ToolError("Currencies have no exchange rates here. Leave the currency out.")
        if token.kind == "name":
            raise ToolError(f"{token.text!r} is not a known unit.")
        raise ToolError(
            f"{token.text!r} is not expected at character {token.position + 1} of "
            f"{_short(self._text)!r}."
        )

    def _count(self, value: Value) -> Value:
        self.operations += 1
        if self.operations > _MAX_OPERATIONS:
            raise ToolError(f"The expression has more than {_MAX_OPERATIONS:,} operations.")
        return value

    # -- grammar ---------------------------------------------------------------------------------

    def statement(self) -> Value:
        """Calculate `name = expression`, or an expression."""
        name = self._peek()
        if name is not None and name.kind == "name" and self._is("=", ahead=1):
            self._next += 2
            value = self._conversion()
            if name.text.casefold() in FUNCTIONS:
                raise ToolError(f"{name.text!r} is a function. Choose another name.")
            self._names[name.text] = value
        else:
            value = self._conversion()
        if self._peek() is not None:
            self._unexpected()
        return value

    def _conversion(self) -> Value:
        value = self._sum()
        while self._accept(*_CONVERSIONS):
            value = self._count(self._convert(value))
        return value

    def _convert(self, value: Value) -> Value:
        if not isinstance(value, Quantity):
            raise ToolError("A date cannot be converted to a unit.")
        if self._accept("%", "percent"):
            if value.units:
                raise ToolError("A number with a unit cannot be a percentage.")
            return replace(value, percent=True)
        start = self._peek()
        target = self._product()
        if not isinstance(target, Quantity) or not target.units or start is None:
            raise ToolError(f"{start.text if start else ''!r} is not a known unit.")
        if value.dimensions != target.dimensions:
            raise ToolError(
                f"This cannot be converted to {self._text[start.position :].strip()!r}: they "
                "measure different things."
            )
        return replace(value, units=target.units, percent=False, months=None)

    def _sum(self) -> Value:
        value = self._product()
        while self._is("+", "-", "plus", "minus"):
            sign = 1 if self._take().text.casefold() in ("+", "plus") else -1
            value = self._count(add(value, self._product(), sign))
        return value

    def _product(self) -> Value:
        value = self._unary()
        while True:
            if self._is("("):  # 2(3 + 4)
                operation: Callable[[Value, Value], Value] = multiply
            elif self._accept("*", "of", "times"):
                operation = multiply
            elif self._accept("/", "per"):
                operation = divide
            elif self._accept("//"):
                operation = _divide_whole
            elif (self._is("%") and self._starts_operand(1)) or self._is("mod"):
                self._next += 1
                operation = modulo
            else:
                return value
            value = self._count(operation(value, self._unary()))

    def _starts_operand(self, ahead: int) -> bool:
        token = self._peek(ahead)
        if token is None:
            return False
        if token.kind == "name":
            return token.text.casefold() not in (*_CONVERSIONS, "of", "plus", "minus", "times")
        return token.kind != "sign" or token.text in ("(", "√")

    def _unary(self) -> Value:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ToolError(f"The expression is nested more than {_MAX_DEPTH} deep.")
        try:
            if self._accept("-"):
                return self._count(_negative(self._unary()))
            if self._accept("+"):
                return self._unary()
            if self._accept("√"):
                return self._count(FUNCTIONS["sqrt"].call([self._unary()]))
            return self._power()
        finally:
            self._depth -= 1

    def _power(self) -> Value:
        value = self._postfix()
        if self._accept("^"):
            # To the right: 2^3^2 is 2^9.
            return self._count(power(value, self._unary()))
        return value

    def _postfix(self) -> Value:
        value = self._primary()
        while True:
            if self._accept("!"):
                value = _factorial([value])
            elif self._is("²", "³"):
                value = power(value, number(self._superscript()))
            elif (self._is("%") and not self._starts_operand(1)) or self._is("percent"):
                self._next += 1
                value = divide(value, number(100))
                value = replace(value, percent=not value.units)
            else:
                return self._count(value)

    def _superscript(self) -> int:
        return 2 if self._take().text == "²" else 3

    def _primary(self) -> Value:
        if self._accept("("):
            value = self._conversion()
            self._expect(")")
            if isinstance(value, Quantity) and not value.units:
                return self._with_unit(value)
            return value
        token = self._peek()
        if token is None or token.kind == "sign":
            self._unexpected()
        self._next += 1
        if token.kind in ("number", "based"):
            return self._with_unit(_read_number(token))
        return self._named(token) if token.kind == "name" else _read_date(token)

    def _with_unit(self, value: Quantity) -> Value:
        """Return a number with the unit behind it; `5 ft 3 in` and `1 h 30 min` are one value."""
        unit = self._unit()
        if unit is None:
            token = self._peek()
            if token is not None and (token.text in self._names or token.text in _CONSTANTS):
                self._next += 1
                return self._count(multiply(value, self._named(token)))
            return value
        self._next += 1
        quantity = measured(value, unit, self._unit_exponent())
        following = self._peek()
        if following is not None and following.kind == "number":
            position = self._next
            self._next += 1
            rest = self._with_unit(_read_number(following))
            if isinstance(rest, Quantity) and rest.dimensions == quantity.dimensions:
                return self._count(add(quantity, rest))
            self._next = position
        return quantity

    def _unit(self) -> Unit | None:
        token = self._peek()
        if token is None or token.kind != "name" or token.text in self._names:
            return None
        if token.text.casefold() in FUNCTIONS and self._is("(", ahead=1):
            return None
        if token.text == "in" and (self._starts_operand(1) or self._is("%", ahead=1)):
            return None  # 5 km in miles
        return unit_named(token.text)

    def _unit_exponent(self) -> int:
        """Read the power that belongs to the unit alone, as in `5 m^2`."""
        if self._is("²", "³"):
            return self._superscript()
        exponent = self._peek(1)
        if self._is("^") and exponent is not None and exponent.text.isdecimal():
            self._next += 2
            return min(int(exponent.text[:4]), 100)
        return 1

    def _named(self, token: Token) -> Value:
        name, low = token.text, token.text.casefold()
        if self._is("(") and low in FUNCTIONS:
            return self._call(low)
        if name in self._names:
            return self._names[name]
        day = self._day(low)
        if day is not None:
            return day
        if low in _CONSTANTS or name == "e":
            return from_decimal(_CONSTANTS.get(low, _E))
        unit = unit_named(name)
        if unit is not None:
            return measured(number(1), unit, self._unit_exponent())
        raise ToolError(
            f"{name!r} is not a known unit, function or name. The functions are: "
            f"{', '.join(FUNCTIONS)}. Give a name its value with {name} = …;"
        )

    def _call(self, name: str) -> Value:
        self._expect("(")
        arguments: list[Value] = []
        while not self._is(")"):
            arguments.append(self._conversion())
            if not self._is(")"):
                self._expect(",")
        self._expect(")")
        function, count = FUNCTIONS[name], len(arguments)
        least, most = function.min_arguments, function.max_arguments
        if count < least or (most is not None and count > most):
            wanted = f"{least} or more" if most is None else f"{least} to {most}"
            if least == most:
                wanted = f"{least}"
            raise ToolError(f"{name} takes {wanted} arguments, not {count}.")
        return self._count(function.call(arguments))

    def _day(self, name: str) -> date | None:
        if name == "now":
            return self._now
        today = self._now.date()
        if name in ("today", "tomorrow", "yesterday"):
            return today + timedelta(days=("yesterday", "today", "tomorrow").index(name) - 1)
        token = self._peek()
        if name in ("next", "last") and token is not None and token.text.casefold() in WEEKDAYS:
            self._next += 1
            ahead = (WEEKDAYS.index(token.text.casefold()) - today.weekday()) % 7
            return today + timedelta(days=ahead or 7 if name == "next" else ahead - 7)
        if name in WEEKDAYS:
            return today + timedelta(days=(WEEKDAYS.index(name) - today.weekday()) % 7)
        return None


def _negative(value: Value) -> Value:
    if isinstance(value, Quantity) and value.unit is not None and value.has_offset:
        return replace(value, value=2 * value.unit.offset - value.value)  # -40 °C
    return multiply(number(-1), value)


def _divide_whole(left: Value, right: Value) -> Value:
    return FUNCTIONS["floor"].call([divide(left, right)])


def _read_number(token: Token) -> Quantity:
    text = token.text.replace("_", "")
    try:
        if token.kind == "based":
            return number(int(text, 0))
        exponent = text.casefold().partition("e")[2]
        if exponent and abs(int(exponent)) > _MAX_EXPONENT:
            raise ToolError(f"{token.text!r} is too large or too small to calculate with.")
        return number(Fraction(text if not text.endswith(".") else text + "0"))
    except ValueError:
        raise ToolError(f"{token.text!r} is not a valid number.") from None


def _read_date(token: Token) -> date:
    text = token.text
    try:
        if token.kind == "iso":
            if len(text) == len("2026-12-24"):
                return date.fromisoformat(text)
            moment = datetime.fromisoformat(text)
            return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
        day, year = (int(digits) for digits in re.findall(r"\d+", text))
        return date(year, MONTH_NUMBERS[re.sub(r"[^a-z]", "", text.casefold())], day)
    except (ValueError, OverflowError) as error:
        raise ToolError(f"There is no day {text!r} ({error}).") from None


# -- functions -------------------------------------------------------------------------------------

Arguments = Sequence[Value]


@dataclass(frozen=True, slots=True)
class Function:
    """A function with how many arguments it takes; without a maximum: any number."""

    call: Callable[[Arguments], Value]
    min_arguments: int = 1
    max_arguments: int | None = 1


def _quantity(value: Value, name: str) -> Quantity:
    if isinstance(value, Quantity):
        return value
    raise ToolError(f"{name} needs a number, not {kind_of(value)}.")


def _day_of(value: Value, name: str) -> date:
    if isinstance(value, Quantity):
        raise ToolError(f"{name} needs a date such as 2026-12-24.")
    return value


def _round(name: str, to_whole: Callable[[Fraction], int]) -> Function:
    def call(arguments: Arguments) -> Value:
        value = _quantity(arguments[0], name)
        size = value.unit.size if value.unit is not None else Fraction(1)
        digits = whole(arguments[1], name) if len(arguments) > 1 else 0
        if abs(digits) > _MAX_ROUNDING_DIGITS:
            raise ToolError(f"{name} can go to {_MAX_ROUNDING_DIGITS:,} digits, not {digits:,}.")
        step = Fraction(10) ** digits
        return replace(value, value=to_whole(value.value / size * step) / step * size)

    return Function(call, 1, 2)


def _half_up(value: Fraction) -> int:
    """Round as people do: a half goes away from zero."""
    rounded = math.floor(abs(value) + Fraction(1, 2))
    return rounded if value >= 0 else -rounded


def _approximate(name: str, function: Callable[[Fraction], Decimal]) -> Function:
    def call(arguments: Arguments) -> Value:
        value = plain(arguments[0], name).value
        try:
            return from_decimal(function(value))
        except (DecimalException, ValueError, OverflowError):
            raise ToolError(f"{name} has no real result here, or one that is too large.") from None

    return Function(call)


def _float(name: str, function: Callable[[float], float]) -> Function:
    # A float is right to fifteen digits, so that no more are taken from it.
    return _approximate(name, lambda value: Decimal(f"{function(float(value)):.{_FLOAT_DIGITS}g}"))


def _log(arguments: Arguments) -> Value:
    value = plain(arguments[0], "log")
    base = plain(arguments[1], "log").value if len(arguments) > 1 else Fraction(10)
    if value.value <= 0 or base <= 0 or base == 1:
        raise ToolError("log needs a number above 0, and a base above 0 that is not 1.")
    exact = _exact_log(value.value, base)
    if exact is not None and not value.approximate:
        return number(exact)
    return from_decimal(
        CONTEXT.divide(CONTEXT.ln(to_decimal(value.value)), CONTEXT.ln(to_decimal(base)))
    )


def _exact_log(value: Fraction, base: Fraction) -> int | None:
    guess = round(
        (math.log2(value.numerator) - math.log2(value.denominator))
        / (math.log2(base.numerator) - math.log2(base.denominator))
    )
    fits = abs(guess) * max(base.numerator.bit_length(), base.denominator.bit_length()) < 10**5
    return guess if fits and base**guess == value else None


def _ln(arguments: Arguments) -> Value:
    value = plain(arguments[0], "ln").value
    if value <= 0:
        raise ToolError("ln needs a number above 0: it has no real result here.")
    return number(0) if value == 1 else from_decimal(CONTEXT.ln(to_decimal(value)))


def _factorial(arguments: Arguments) -> Value:
    count = whole(arguments[0], "factorial")
    if count < 0:
        raise ToolError("factorial needs a whole number of 0 or more.")
    if count > _MAX_FACTORIAL:
        raise too_large()
    return number(math.factorial(count))


def _choice(name: str, function: Callable[[int, int], int]) -> Function:
    def call(arguments: Arguments) -> Value:
        total, chosen = (whole(argument, name) for argument in arguments)
        if total < 0 or chosen < 0:
            raise ToolError(f"{name} needs whole numbers of 0 or more.")
        if total > _MAX_CHOICE or min(chosen, total) > _MAX_FACTORIAL:
            raise too_large()
        return number(function(total, chosen))

    return Function(call, 2, 2)


def _of_integers(name: str, function: Callable[..., int]) -> Function:
    def call(arguments: Arguments) -> Value:
        return number(function(*(whole(argument, name) for argument in arguments)))

    return Function(call, 1, None)


def _sum(arguments: Arguments) -> Value:
    total = arguments[0]
    for argument in arguments[1:]:
        total = add(total, argument)
    return total


def _mean(arguments: Arguments) -> Value:
    return divide(_sum(arguments), number(len(arguments)))


def _sort(arguments: Arguments, name: str) -> list[Value]:
    kinds = {
        value.dimensions if isinstance(value, Quantity) else type(value) for value in arguments
    }
    if len(kinds) > 1:
        raise ToolError(f"{name} needs values of the same kind.")
    return sorted(arguments, key=_order)


def _order(value: Value) -> Fraction | date:
    return value.value if isinstance(value, Quantity) else value


def _median(arguments: Arguments) -> Value:
    ordered = _sort(arguments, "median")
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else _mean(ordered[half - 1 : half + 1])


def _absolute(arguments: Arguments) -> Value:
    value = _quantity(arguments[0], "abs")
    months = None if value.months is None else abs(value.months)
    return replace(value, value=abs(value.value), months=months)


def _root(arguments: Arguments) -> Value:
    return root(_quantity(arguments[0], "root"), whole(arguments[1], "root"))


def _date(arguments: Arguments) -> Value:
    year, month, day = (whole(argument, "date") for argument in arguments)
    try:
        return date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise ToolError(f"There is no such day ({error}).") from None


FUNCTIONS: dict[str, Function] = {
    "abs": Function(_absolute),
    "sqrt": Function(lambda arguments: root(_quantity(arguments[0], "sqrt"), 2)),
    "cbrt": Function(lambda arguments: root(_quantity(arguments[0], "cbrt"), 3)),
    "root": Function(_root, 2, 2),
    "round": _round("round", _half_up),
    "floor": _round("floor", math.floor),
    "ceil": _round("ceil", math.ceil),
    "ln": Function(_ln),
    "log": Function(_log, 1, 2),
    "log10": Function(lambda arguments: _log([arguments[0], number(10)])),
    "log2": Function(lambda arguments: _log([arguments[0], number(2)])),
    "exp": _approximate("exp", lambda value: CONTEXT.exp(to_decimal(value))),
    "sin": _float("sin", math.sin),
    "cos": _float("cos", math.cos),
    "tan": _float("tan", math.tan),
    "asin": _float("asin", math.asin),
    "acos": _float("acos", math.acos),
    "atan": _float("atan", math.atan),
    "factorial": Function(_factorial),
    "comb": _choice("comb", math.comb),
    "perm": _choice("perm", math.perm),
    "gcd": _of_integers("gcd", math.gcd),
    "lcm": _of_integers("lcm", math.lcm),
    "mod": Function(lambda arguments: modulo(arguments[0], arguments[1]), 2, 2),
    "min": Function(lambda arguments: _sort(arguments, "min")[0], 1, None),
    "max": Function(lambda arguments: _sort(arguments, "max")[-1], 1, None),
    "sum": Function(_sum, 1, None),
    "mean": Function(_mean, 1, None),
    "avg": Function(_mean, 1, None),
    "median": Function(_median, 1, None),
    # A day is shown with the name of its weekday.
    "weekday": Function(lambda arguments: _day_of(arguments[0], "weekday")),
    "week": Function(lambda arguments: number(_day_of(arguments[0], "week").isocalendar().week)),
    "date": Function(_date, 3, 3),
}
