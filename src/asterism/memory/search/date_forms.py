"""The ways in which English text names days, and a quick look whether a text may do so."""

from __future__ import annotations

import re

from asterism.memory.search.date_context import (
    COUNTS,
    DIVISIBLE,
    MONTHS,
    SEASONS,
    WEEKDAYS,
    Mention,
    Said,
    narrow_to_part,
)
from asterism.memory.search.date_readings import READINGS
from asterism.memory.search.hints import plain_words
from asterism.memory.words import word_set

_FULL_MONTHS = "|".join(one for one in MONTHS if len(one) > 4 or one in ("may", "june", "july"))
_MONTH = "(?:" + "|".join(sorted(MONTHS, key=len, reverse=True)) + ")"
_WEEKDAY = "(?:" + "|".join(one for one in WEEKDAYS if one.endswith("day")) + "|tues|thurs)"
_COUNT = rf"(?:\d{{1,3}}|(?:a\s+)?couple(?:\s+of)?|(?:a\s+)?few|several|{'|'.join(COUNTS)})"
_YEAR = r"(?:19[7-9]|20\d)\d"
_TH = "(?:st|nd|rd|th)"
_TO = r"\s*(?:-|\u2013|to|and|until)\s*"
_WHICH = "last|past|previous|this past|this|next|coming|upcoming|current"
_THINGS = (
    "words|people|users|steps|characters|tokens|dollars|euros|calories|items|rows|records|requests|"
    "lines|points|hours|ms|times|miles|meters|metres|kilometers|km|pounds|copies"
)

_FORMS = {
    "iso": rf"(?P<iso_y>{_YEAR})(?:[-/.](?P<iso_m>\d\d?)[-/.](?P<iso_d>\d\d?)|-(?P<iso_o>\d\d))"
    r"(?:t[\d:.]+z?)?(?!\d|[-/]\d)",
    "slashes": r"(?P<s_a>\d\d?)(?P<s_by>[-/.])(?P<s_b>\d\d?)(?P=s_by)(?P<s_y>\d{4}|(?<=/)\d\d)"
    r"(?!\d|[-/.]\d)",
    "day_month": rf"(?P<dm_a>\d\d?){_TH}?(?:{_TO}(?P<dm_b>\d\d?){_TH}?)?(?:\s+of)?\s+"
    rf"(?P<dm_m>{_MONTH})\b\.?(?:,?\s+(?P<dm_y>{_YEAR})\b)?",
    "month_day": rf"(?P<md_m>{_MONTH})\.?\s+(?:the\s+)?(?P<md_a>\d\d?){_TH}?"
    r"(?!\d|:\d|\s*%|\s*[ap]m\b)"
    rf"(?:{_TO}(?P<md_b>\d\d?){_TH}?(?!\d|:\d|\s*[ap]m\b|\s+{_MONTH}\b))?"
    rf"(?:,?\s+(?P<md_y>{_YEAR})\b)?",
    "month_year": rf"(?P<my_m>{_MONTH})\.?,?\s+(?:of\s+)?(?P<my_y>{_YEAR})\b(?!-\d)",
    "month": rf"(?:(?P<m_q>{_WHICH})\s+)?(?P<m_m>{_FULL_MONTHS})\b"
    r"(?:\s+(?:of\s+)?(?P<m_y>last|this|next)\s+year)?",
    "season": rf"(?:(?P<se_q>{_WHICH})\s+|"
    r"(?P<se_p>for\s+the|(?:in|over|during|since|before|after|by|until)(?:\s+the)?)\s+)?"
    rf"(?P<se_s>{'|'.join(SEASONS)})\b(?:\s+(?:of\s+)?(?P<se_y>{_YEAR})\b)?",
    "feast": rf"(?:(?P<f_q>{_WHICH})\s+|"
    r"(?P<f_p>on|over|at|during|since|before|after|by|until|around)\s+)?"
    r"(?P<f_f>christmas(?:\s+(?:eve|day))?|xmas|new\s+year[\u2019']?s\s+(?:eve|day)|"
    r"new\s+year[\u2019']s|"
    r"boxing\s+day|halloween|valentine[\u2019']?s(?:\s+day)?|independence\s+day|easter|"
    rf"thanksgiving)\b(?:\s+(?:of\s+|in\s+)?(?P<f_y>{_YEAR})\b)?",
    "near": r"(?:the\s+)?day\s+before\s+yesterday|(?:the\s+)?day\s+after\s+tomorrow|yesterday|"
    r"last\s+night|today|tonight|tomorrow|this\s+(?:morning|afternoon|evening)|"
    r"the\s+other\s+(?:day|night)",
    "part": r"(?:the\s+)?(?P<p_n>first|second|third|fourth|last|final|1st|2nd|3rd|4th)\s+"
    rf"(?P<p_u>day|week|weekend|half|quarter|{_WEEKDAY})\s+(?:of|in)\b",
    "unit": rf"(?P<u_the>(?:the|these)\s+)?(?P<u_q>{_WHICH})\s+(?:(?P<u_n>{_COUNT})\s+)?"
    r"(?P<u_u>days?|weekends?|weeks?|months?|quarters?|years?|decades?)",
    "weekday": rf"(?:(?P<w_q>{_WHICH}|every|each|most)\s+)?(?P<w_d>{_WEEKDAY})(?P<w_s>s)?\b"
    r"(?!(?:\s+(?:and|or)\s+\w+day)?\s+(?:mornings|afternoons|evenings|nights))"
    r"(?:(?:\s+(?:morning|afternoon|evening|night))?\s+(?:of\s+)?"
    r"(?P<w_w>last|this|next)\s+week\b)?",
    "weekday_short": rf"(?:(?P<ws_q>{_WHICH})|on)\s+"
    r"(?P<ws_d>mon|tue|wed|thu|fri|sat|sun)\b\.?",
    "weekend": r"(?:over|at|on|during|for)\s+the\s+weekend",
    "count": rf"(?P<c_n>{_COUNT}|half\s+an?)\s*"
    r"(?P<c_u>(?:hour|day|night|week|weekend|month|year|decade)s?)(?P<c_h>\s+and\s+a\s+half)?\s+"
    r"(?P<c_t>ago|back|from\s+(?:now|today)|before|after|prior\s+to)",
    "hence": rf"(?:with)?in\s+(?:the\s+next\s+)?(?P<h_n>{_COUNT})\s+"
    r"(?P<h_u>days?|weeks?|months?|years?)",
    "lasting": r"(?P<l_for>for\s+"
    r"(?:(?:about|almost|nearly|around|over|more\s+than|roughly|like)\s+)?)?"
    rf"(?P<l_n>{_COUNT})\s+(?P<l_u>months?|years?|decades?)(?P<l_now>\s+now)?",
    "beside": rf"(?:the\s+)?(?P<b_u>day|night|evening|week|weekend|month|year|{_WEEKDAY})\s+"
    r"(?P<b_t>before|after|following|prior\s+to|of)",
    "day_alone": rf"(?:on|by|since|until|till|before|after|around|for)\s+the\s+(?P<d_d>\d\d?){_TH}"
    r"(?!\s+(?:floor|grade|time|place|avenue|street|century|anniversary|birthday|level|"
    r"line|page|row|day|of)\b)",
    "year": rf"(?<![$\u20ac\u00a3#.,/\d-])(?P<y_y>{_YEAR})\b(?![.,]\d|\s*%|-\d|\s+(?:{_THINGS})\b)",
}
_FIRST = (
    rf"\d|{_MONTH}\b|{_WEEKDAY}|{_WHICH}|(?:{'|'.join(COUNTS)})\s|couple|few|several|half|"
    r"th(?:e|ese)\s|in\s|over|during|since|before|after|by\s|until|till|of\s|on\s|at\s|around|for\s|within|every|"
    r"each|most|day|night|evening|week|month|year|yesterday|to(?:day|night|morrow)|christmas|xmas|"
    r"new|boxing|halloween|valentine|independence|easter|thanksgiving|first|second|third|fourth|"
    rf"final|{'|'.join(SEASONS)}"
)
"""How each form can begin: few words can, so most of a text is passed over at once."""
_ANY = re.compile(
    rf"\b(?={_FIRST})(?:{'|'.join(f'(?P<{name}>{form})' for name, form in _FORMS.items())})(?!\w)"
)

_UNITS = (
    *("day", "week", "weekend", "month", "quarter", "year", "decade"),
    *("hour", "night", "morning", "afternoon", "evening"),
)
WORDS_OF_DAYS = frozenset(
    one.encode()
    for one in (
        *MONTHS,
        *(f"{name}{end}" for name in (*_UNITS, *WEEKDAYS) for end in ("", "s")),
        *SEASONS,
        *word_set("yesterday today tonight tomorrow christmas xmas halloween valentine valentines"),
        *word_set("boxing independence easter thanksgiving"),
        *map(str, range(1970, 2100)),
        *(f"{day}{end}" for day in range(1, 32) for end in ("st", "nd", "rd", "th")),
    )
)
"""One of these is in every text that names a day, but for days such as 7/5/23 and `2years ago`."""
_GLUED = re.compile(r"\d/\d\d?/\d\d|(?:\d|two|three)years? ago")


def may_name_days(text: str) -> bool:
    """Tell in microseconds whether a text may name a day."""
    return has_words(text, WORDS_OF_DAYS)


def has_words(text: str, words: frozenset[bytes]) -> bool:
    """Tell whether a text has one of some words, or a day that has no words, such as 7/5/23."""
    if not words.isdisjoint(plain_words(text)):
        return True
    return ("/" in text or "ago" in text) and _GLUED.search(text) is not None


def mentions(text: str, day: int, *, asked: bool) -> list[Mention]:
    """Return what a text in lower case says about days; `asked` for a question to a search."""
    said = Said(text, day, asked)
    found: list[Mention] = []
    for match in _ANY.finditer(text):
        form = match.lastgroup or ""
        try:
            read = READINGS[form](match, said)
        except (ValueError, OverflowError):
            continue  # There is no such day, as the 30th of February.
        if read is None:
            continue
        mention = (
            Mention(match.start(), match.end(), *read, form) if isinstance(read, tuple) else read
        )
        if mention.offset is None and form in DIVISIBLE:
            narrow_to_part(text, mention)
        found.append(mention)
    return found
