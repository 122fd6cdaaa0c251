"""Numbers in words, as people write them in requests: in several languages, and in numerals."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources

from asterism.permissions.texts import plain, stands_in
from asterism.types.values import amounts_of, numbers_in

_CURRENCIES = {
    name: group.split()[0]
    for group in (
        "eur € euro euros",
        "usd $ dollar dollars us$",
        "gbp £ pound pounds",
        "jpy yen 円",
        "cny yuan rmb 元",
        "chf franken francs",
        "inr ₹ rupees",
        "btc ₿ bitcoin bitcoins",
    )
    for name in group.split()
}
_MONEY = re.compile(
    r"(?:[$€£¥₹₽]|\b[A-Z]{3})[  ]?(\d[\d.,'  ]{0,20})|"
    r"(\d[\d.,']{0,20})[  ]?(?:[$€£¥₹₽]|[A-Z]{3}\b)|(\d[\d']{0,12}[.,]\d\d)(?!\d)"
)
_MAX_PARTS = 12
_MAX_OPERANDS = 24
_NUMERALS = {
    **{char: value for value, char in enumerate("〇一二三四五六七八九")},
    "零": 0,
    "两": 2,
    "兩": 2,
    "十": 10,
    "百": 100,
    "千": 1_000,
    "万": 10_000,
}


@cache
def number_words() -> dict[str, float]:
    """Return numbers in words, in languages other than English."""
    text = resources.files("asterism.permissions").joinpath("numbers.toml").read_text("utf-8")
    table = tomllib.loads(text)
    words = {word: value for value, names in table.pop("more").items() for word in names.split()}
    for names in table.values():
        words |= {word: value for value, word in enumerate(names.split())}
    return {word: float(value) for word, value in words.items()}


def amounts_said(text: str) -> tuple[float, ...]:
    """Return the amounts of a literal of a request, in digits or in words."""
    word = plain(text).strip(" .,!?")
    if word in number_words():
        return (number_words()[word],)
    numeral = _numeral(word)
    if numeral is not None:
        return (numeral,)
    return amounts_of(text) or ()


def _numeral(word: str) -> float | None:
    """Read Chinese and Japanese numerals, such as 两, 一百 or 二十五."""
    if not word or not all(char in _NUMERALS for char in word):
        return None
    total = digit = 0
    for char in word:
        value = _NUMERALS[char]
        if value >= 10:
            total, digit = total + (digit or 1) * value, 0
        else:
            digit = value
    return float(total + digit)


def digit_of(word: str) -> str:
    """Return the digit that a word means; empty if it means none."""
    for value in amounts_said(word):
        if 0 <= value <= 9 and value == int(value):
            return str(int(value))
    return ""


def amounts_told(text: str) -> set[float]:
    """Return the amounts in a text: numbers beside a currency or with cents, if there are such."""
    money = [amounts_of(next(filter(None, one.groups())).strip()) for one in _MONEY.finditer(text)]
    found = {round(one, 2) for group in money for one in group or ()}
    return found or {round(one, 2) for one in numbers_in(text)}


def worked_out(known: set[float], way: str) -> set[float]:
    """Return what amounts can be worked out to in one way, such as a part of one of them."""
    few = sorted(known)[:_MAX_OPERANDS]
    shares = {a * b / 100 for a in few for b in few if b <= 100}
    found: set[float] = set()
    match way:
        case "part":
            found = {one / share for one in few for share in range(2, _MAX_PARTS + 1)}
        case "percent":
            found = shares | {share + one for share in shares for one in few}
        case "sum":
            found = {a + b for a in few for b in few if a != b} | {sum(few)}
        case "difference":
            # What is too much of a share, such as of a bill for two.
            found = {abs(a - b / n) for a in few for b in few for n in (1, 2, 3, 4) if a != b}
        case "more":
            found = {a + b for a in few for b in few if a != b}
            found |= {a + a * b / 100 for a in few for b in few if b < a and b <= 100}
        case "less":
            found = {a - b for a in few for b in few if a > b}
            found |= {a - a * b / 100 for a in few for b in few if b < a and b <= 100}
        case _:
            pass
    return {round(one, 2) for one in found if one > 0}


def currency_of(unit: str) -> str:
    """Return the code of a currency, such as `eur` for `€`; what is none stays as it is."""
    return _CURRENCIES.get(unit.lower(), unit.lower())


def currencies_in(text: str) -> set[str]:
    """Return the codes of the currencies that a text speaks of."""
    said = plain(text)
    return {
        code
        for name, code in _CURRENCIES.items()
        if (stands_in(name, said) if name.isascii() and name.isalpha() else name in said)
    }
