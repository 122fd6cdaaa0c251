"""Words, names and values of a sentence: dates, times, money and numbers in one form each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache

from asterism.memory import lexicon
from asterism.memory.words import word_set
from asterism.times import MONTH_NUMBERS, MONTH_PATTERN

_UNITS = (
    r"kg|kilograms?|kilos?|km|kilometers?|kilometres?|cm|mm|mg|ml|gb|tb|mb|ghz|grams?|g|litres?"
    r"|liters?"
    r"|years? old|years?|months?|weeks?|days?|hours?|minutes?|seconds?|percent|per cent|%|°c"
    r"|degrees?"
    r"|pages?|metres?|meters?|m|km/h|mph|miles?|feet|inches|rooms?|points?"
)
_VALUE = rf"""
      (?P<email>[\w.+-]+@[\w-]+(?:\.[\w-]+)+)
    | (?P<url>(?:https?://|www\.)[^\s,;)]+)
    | (?P<iso>\b\d{{4}}-\d\d-\d\d\b)
    | (?P<date>\b\d{{1,2}}(?:st|nd|rd|th|\.)?\s(?:of\s)?(?:{MONTH_PATTERN})\b\.?(?:,?\s\d{{4}}\b)?
        | \b(?:{MONTH_PATTERN})\b\.?\s\d{{1,2}}(?:st|nd|rd|th)?\b(?!:)(?:,?\s\d{{4}}\b)?)
    | (?P<time>\b\d{{1,2}}(?::\d\d(?::\d\d)?)\s?(?:[ap]\.?m\b)?
        | \b\d{{1,2}}\s?(?:[ap]\.?m\b|o'clock\b)
        | \b\d{{1,2}}\s?h(?:\d\d)?\b)
    | (?P<money>[€$£]\s?\d[\d.,]*\d|[€$£]\s?\d
        | \b\d[\d.,]*\s?(?:euros?\b|eur\b|dollars?\b|usd\b|pounds?\b|gbp\b|chf\b|francs?\b|[€$£]))
    | (?P<phone>(?:\+|\b0)\d[\d\s()/-]{{5,18}}\d\b)
    | (?P<measure>\b\d+(?:[.,]\d+)*\s?(?:{_UNITS})(?!\w))
    | (?P<weekday>\b(?:mon|tues|wednes|thurs|fri|satur|sun)day(?:'s|s)?\b)
    | (?P<number>(?<!\w)[-\u2212]?\d+(?:[.,:/-]\d+)*(?:st|nd|rd|th)?\b)
    | (?P<month>\b(?:{MONTH_PATTERN})\b(?:\s\d{{4}}\b)?)
    | (?P<word>[^\W\d_][\w]*(?:[-'][\w]+)*[+#]*)
    | (?P<stop>[,;:])
    """
_CURRENCY = {
    "€": "eur", "euro": "eur", "$": "usd", "dollar": "usd", "£": "gbp", "pound": "gbp",
    "franc": "chf",
}  # fmt: skip
ARTICLES = word_set("a an the my your his her its our their this that these those no")
_BEFORE_YEARS = frozenset({"in", "since", "until", "till", "by", "from", "year", "of"})


@dataclass(frozen=True, slots=True)
class Token:
    """A word, or a value such as a date, with the form in which it is compared."""

    kind: str
    """`word`, `name`, or a kind of value: `date`, `time`, `money`, `number` …"""
    key: str
    shown: str


def tokens(text: str) -> list[Token]:
    """Return words, names and values of a sentence."""
    found: list[Token] = []
    for match in _value_pattern().finditer(text):
        kind = match.lastgroup or "word"
        shown = match[0].strip()
        if kind == "word":
            found.append(_word(shown, found))
        elif kind in {"date", "iso", "month"}:
            found.extend(_date(kind, shown))
        elif kind == "number":
            found.append(_number(shown, found))
        elif kind == "stop":
            found.append(Token("stop", shown, shown))
        else:
            found.append(_value(kind, shown))
    return found


@cache
def _value_pattern() -> re.Pattern[str]:
    return re.compile(_VALUE, re.VERBOSE | re.IGNORECASE)


def _word(shown: str, before: list[Token]) -> Token:
    lower = shown.lower().replace("-", "")
    if lower in lexicon.NUMBERS:
        return replace(_number(lexicon.NUMBERS[lower], before), shown=shown)
    named = shown[0].isupper() and (bool(before) or lower not in _COMMON)
    if named and lower != "i":
        return Token("name", lower.removesuffix("'s"), shown)
    return Token("word", lower, shown)


def _number(shown: str, before: list[Token]) -> Token:
    plain = re.sub(r"(?:st|nd|rd|th)$", "", shown.lower())
    plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", plain)
    last = before[-1].key if before else ""
    if re.fullmatch(r"(?:19|20)\d\d", plain) and last in _BEFORE_YEARS:
        return Token("year", plain, shown)
    if last == "at" and re.fullmatch(r"\d{1,2}", plain) and int(plain) < 25:
        return Token("time", f"{int(plain):02}:00", shown)
    return Token("number", plain, shown)


def _date(kind: str, shown: str) -> list[Token]:
    lower = shown.lower()
    if kind == "iso":
        year, month, day = lower.split("-")
        return [Token("date", f"{month}-{day}", shown), Token("year", year, year)]
    name = re.search(MONTH_PATTERN, lower)
    month = MONTH_NUMBERS[name[0]] if name else 0
    numbers = re.findall(r"\d+", lower)
    years = [one for one in numbers if len(one) == 4]
    days = [one for one in numbers if len(one) < 3]
    found = (
        [Token("date", f"{month:02}-{int(days[0]):02}", shown)]
        if days
        else [Token("month", f"{month:02}", shown)]
    )
    return [*found, *(Token("year", one, one) for one in years)]


def _value(kind: str, shown: str) -> Token:
    lower = shown.lower()
    if kind == "time":
        hours, minutes = re.findall(r"\d+", lower)[:1], re.findall(r"\d+", lower)[1:2]
        hour = int(hours[0]) % 12 if "m" in lower else int(hours[0])
        hour += 12 if "p" in lower else 0
        return Token(kind, f"{hour:02}:{minutes[0] if minutes else '00'}", shown)
    if kind == "money":
        unit = re.sub(r"[\d.,\s]", "", lower)
        unit = _CURRENCY.get(unit.removesuffix("s"), unit)
        amount = re.sub(r"[,.](?=\d{3}\b)|[^\d.,]", "", lower).rstrip(".,")
        return Token(kind, f"{amount} {unit}", shown)
    if kind == "phone":
        return Token(kind, re.sub(r"\D", "", lower), shown)
    if kind == "weekday":
        return Token(kind, lower.removesuffix("s").removesuffix("'"), shown)
    if kind == "measure":
        match = re.match(r"([\d.,]+)\s?(.*)", lower)
        amount, unit = (match[1], match[2]) if match else (lower, "")
        unit = {"kilogram": "kg", "kilo": "kg"}.get(unit.removesuffix("s"), unit)
        return Token(f"measure {unit.removesuffix('s')}", amount.replace(",", ""), shown)
    return Token(kind, lower.rstrip("/."), shown)


_COMMON = frozenset(
    {*lexicon.VERBS, *lexicon.LINKS, *lexicon.FILLERS, *lexicon.CONDITIONS, *ARTICLES}
    | {*lexicon.MODALS, *lexicon.AUXILIARIES, *lexicon.PRONOUNS, *lexicon.SINGLE, *lexicon.MANY}
    | {"i", "we", "you", "there", "all", "nobody", "everybody", "everyone", "user", "tickets"}
)
