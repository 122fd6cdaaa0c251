"""Words of the calendar, and a mention of days with the text around it."""

from __future__ import annotations

import re
from dataclasses import dataclass

MONTHS = {
    "january": 1,
    "jan": 1,
    "february": 2,
    "feb": 2,
    "march": 3,
    "mar": 3,
    "april": 4,
    "apr": 4,
    "may": 5,
    "june": 6,
    "jun": 6,
    "july": 7,
    "jul": 7,
    "august": 8,
    "aug": 8,
    "september": 9,
    "sept": 9,
    "sep": 9,
    "october": 10,
    "oct": 10,
    "november": 11,
    "nov": 11,
    "december": 12,
    "dec": 12,
}
WEEKDAYS = {
    "monday": 0,
    "mon": 0,
    "tuesday": 1,
    "tues": 1,
    "tue": 1,
    "wednesday": 2,
    "wed": 2,
    "thursday": 3,
    "thurs": 3,
    "thu": 3,
    "friday": 4,
    "fri": 4,
    "saturday": 5,
    "sat": 5,
    "sunday": 6,
    "sun": 6,
}
SEASONS = {"spring": 0, "summer": 1, "autumn": 2, "fall": 2, "winter": 3}
COUNTS = {
    "an": 1,
    "a": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}

_PART = re.compile(
    r"\b(?:(?P<early>early|(?:beginning|start)\s+of)|(?P<mid>mid|(?:the\s+)?middle\s+of)|"
    r"(?P<late>late|(?:the\s+)?end\s+of))[\s-]+(?:in\s+)?(?:the\s+)?$"
)
_FUTURE = re.compile(
    r"\b(?:will|won[\u2019']t|shall|gonna|going\s+to|plans?\s+(?:to|on|for)|planning|looking\s+forward|"
    r"can[\u2019']t\s+wait|hop(?:e|ing)\s+to|upcoming|coming\s+up|scheduled|due(?!\s+to)|deadline|see\s+you|"
    r"let[\u2019']s|about\s+to)\b|[\u2019']ll\b|"
    r"(?:\b(?:am|is|are)|[\u2019'](?:m|re))\s+(?:going|having|hosting|intersection|leaving|starting|taking)\b"
)
_STOP = re.compile(r"[.!?\n;]")
_REACH = 120
"""A sentence is looked at so far either way for what tells its tense."""


@dataclass(slots=True)
class Mention:
    """Days that a part of a text names."""

    start: int
    end: int
    first: int
    last: int
    form: str
    month_day: tuple[int, int, int] | None = None
    """Month, first and last day (0: the whole month) of a date without its year."""
    year: int | None = None
    """The year, where it is written."""
    offset: tuple[str, str, int] | None = None
    """What lies by another mention: a unit or weekday, `before`, `after` or `of`, how many."""
    part: int = 0
    """Which of the units within the other mention: the first is 1, the last -1."""


@dataclass(slots=True)
class Said:
    """A text in lower case, the day on which it was said, and whether it is a question."""

    text: str
    day: int
    asked: bool

    def sentence(self, match: re.Match[str]) -> str:
        """Return the sentence around a part of the text, without that part."""
        before = self.text[max(0, match.start() - _REACH) : match.start()]
        after = self.text[match.end() : match.end() + _REACH]
        return _STOP.split(before)[-1] + " " + _STOP.split(after, maxsplit=1)[0]

    def ahead(self, match: re.Match[str]) -> bool:
        """Tell whether the sentence around a part of the text speaks of what is to come."""
        return _FUTURE.search(self.sentence(match)) is not None


def narrow_to_part(text: str, mention: Mention) -> None:
    """Keep a third of a month, season or year that is called its beginning, middle or end."""
    part = _PART.search(text[max(0, mention.start - 24) : mention.start])
    if part is None or mention.last - mention.first < 6:
        return
    third = (mention.last - mention.first + 1) // 3
    which = ("early", "mid", "late").index(part.lastgroup or "")
    mention.first += which * third
    if which < 2:
        mention.last = mention.first + third - 1


DIVISIBLE = frozenset(("month_year", "month", "season", "unit", "year"))
