"""The ways in which English text names days, and a quick look whether a text may do so."""

from __future__ import annotations

import re

from asterism.memory.words import word_set
from asterism.search import date_forms as on
from asterism.search.date_forms import (
    COUNTS,
    DIVISIBLE,
    MONTHS,
    READINGS,
    SEASONS,
    WEEKDAYS,
    DatedText,
    Mention,
    Span,
    narrow_to_part,
)

_FULL_MONTHS = "|".join(
    month for month in MONTHS if len(month) > 4 or month in ("may", "june", "july")
)
_MONTH = "(?:" + "|".join(sorted(MONTHS, key=len, reverse=True)) + ")"
_WEEKDAY = (
    "(?:" + "|".join(weekday for weekday in WEEKDAYS if weekday.endswith("day")) + "|tues|thurs)"
)
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
    word.encode()
    for word in (
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


def mentions(text: str, day: int, *, is_question: bool) -> list[Mention]:
    """Return what a text in lower case says about days; `asked` for a question to a search."""
    dated = DatedText(text, day, is_question)
    result: list[Mention] = []
    for match in _ANY.finditer(text):
        form = match.lastgroup or ""
        try:
            read = READINGS[form](match, dated)
        except (ValueError, OverflowError):
            continue  # There is no such day, as the 30th of February.
        if read is None:
            continue
        mention = (
            Mention(match.start(), match.end(), *read, form) if isinstance(read, tuple) else read
        )
        if mention.offset is None and form in DIVISIBLE:
            narrow_to_part(text, mention)
        result.append(mention)
    return result


_DAY = 86_400_000
_MAX_READ = 2_000
"""A page has said in so many characters which days it is about."""
_NARROW = 14
"""Days within so many are taken together; of others the narrowest is taken."""
_NONE = (-1, -1)

_TIME_WORDS = (WORDS_OF_DAYS - {b"may", b"mar", b"sat", b"sun", b"fall"}) | frozenset(
    b"last next ago since until till yearly monthly weekly hours minutes recently".split()
)
_MAY = re.compile(
    r"(?i)\b(?:in|of|during|since|until|by|before|after|last|next|this)\s+may\b|\bmay\s+\d"
)


def days_in(text: str, at: int) -> tuple[int, int]:
    """Return the first and last day that a text said at `at` names, in days since 1970.

    (-1, -1) stands for none, days before 1970 too. Several days that lie close together are taken
    together; else those of the narrowest mention are returned.
    """
    text = text[:_MAX_READ]
    if not may_name_days(text):
        return _NONE
    text = text.lower()
    result = _joined(text, mentions(text, _day_of(at), is_question=False))
    named = [(max(mention.first, 0), mention.last) for mention in result if mention.last >= 0]
    if not named:
        return _NONE
    first, last = min(mention[0] for mention in named), max(mention[1] for mention in named)
    return (
        (first, last) if last - first < _NARROW else min(named, key=lambda span: span[1] - span[0])
    )


def has_time_words(text: str) -> bool:
    """Tell whether a text has a word of time, such as `yesterday`, `in May` or `three weeks`."""
    if has_words(text, _TIME_WORDS):
        return True
    return "ay" in text and _MAY.search(text) is not None


def span_of(question: str, now: int) -> tuple[int, int] | None:
    """Return the first and last millisecond that a question asks about; None: it names no time."""
    time = time_of(question, now)
    return time[:2] if time else None


def time_of(question: str, now: int) -> tuple[int, int, bool] | None:
    """Return what `span_of` does, and whether the question writes a year: the span is sure then."""
    question = question[:_MAX_READ]
    if not may_name_days(question):
        return None
    question, today = question.lower(), _day_of(now)
    result = _joined(question, mentions(question, today, is_question=True))
    spans = [_bounded(question, mention, today) for mention in result]
    spans = [(max(first, 0), last) for first, last in spans if last >= max(first, 0)]
    if not spans:
        return None
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    return first * _DAY, last * _DAY + _DAY - 1, any(mention.year for mention in result)


def _day_of(at: int) -> int:
    return min(max(at // _DAY, 0), on.LAST_DAY - 40_000)


_BOUND = re.compile(
    r"\b(?:(?P<before>before|prior\s+to|earlier\s+than)|(?P<after>after|later\s+than)|(?P<since>since|"
    r"starting(?:\s+(?:in|from|on))?)|(?P<until>until|till|up\s+to|as\s+of))\s+(?:(?:the|early|mid|late)\s+)*$"
)


def _bounded(text: str, mention: Mention, today: int) -> Span:
    """Return the days before, after, since or until a mention, if such a word stands before it."""
    if mention.form in ("offset", "range"):
        return mention.first, mention.last
    # Some forms take the word before them in.
    word = _BOUND.search(text[max(0, mention.start - 24) : mention.start]) or _INSIDE.match(
        text[mention.start : mention.end]
    )
    if word is None:
        return mention.first, mention.last
    if word.lastgroup == "before":
        return 0, mention.first - 1
    if word.lastgroup == "until":
        return 0, mention.last
    end = today if mention.last <= today else on.LAST_DAY
    return (mention.last + 1 if word.lastgroup == "after" else mention.first), end


_INSIDE = re.compile(r"(?P<before>before)|(?P<after>after)|(?P<since>since)|(?P<until>until|till)")
_BETWEEN = re.compile(
    r"\s*,?\s*(?P<word>and|to|until|till|through|thru|-|\u2013|\u2014)\s*(?:the\s+)?$"
)
_OPENS = re.compile(r"\bbetween\s+(?:the\s+)?$")
_FOLLOWS = re.compile(r"[,\s]*(?:the\s+)?$")
_MAX_GAP = 20


def _joined(text: str, found: list[Mention]) -> list[Mention]:
    """Put together what belongs together: `from A to B`, `the week before A`, `Friday, A`."""
    joined: list[Mention] = []
    for mention in reversed(found):
        after = joined[-1] if joined else None
        near = after is not None and after.start - mention.end <= _MAX_GAP
        gap = text[mention.end : after.start] if after and near else None
        if mention.offset is not None:
            if after and gap is not None and _FOLLOWS.fullmatch(gap):
                joined[-1] = _beside(mention, after)
            continue
        if after and gap is not None:
            if mention.form == "weekday" and after.form == "date" and _FOLLOWS.fullmatch(gap):
                continue
            between = _BETWEEN.fullmatch(gap)
            if between and (
                between["word"] != "and"
                or _OPENS.search(text[max(0, mention.start - 16) : mention.start])
            ):
                joined[-1] = _range(mention, after)
                continue
        joined.append(mention)
    joined.reverse()
    return joined


def _range(mention: Mention, other: Mention) -> Mention:
    """Return the days from one mention to another; a year at the end counts for both."""
    if mention.month_day and other.year:
        month, first, last = mention.month_day
        year = other.year if month <= on.date_of(other.first).month else other.year - 1
        try:
            start = (
                on.month(year, month)
                if not first
                else (on.day_number(year, month, first), on.day_number(year, month, last))
            )
            mention.first, mention.last = start
        except ValueError:
            return other
    elif mention.month_day and other.month_day and mention.first > other.last:
        mention.first -= 365
    first, last = min(mention.first, other.first), max(mention.last, other.last)
    return Mention(mention.start, other.end, first, last, "range", year=other.year)


def _beside(mention: Mention, other: Mention) -> Mention:
    """Return the day, week, weekend … before or after another mention, or a part of it."""
    assert mention.offset is not None
    unit, way, count = mention.offset
    if mention.part:
        first, last = _part_of(unit, mention.part, other.first, other.last)
    elif way == "of":
        first, last = _at(unit, other.first, other.last)
    elif unit in WEEKDAYS or unit == "weekend":
        first = _next_to(unit, way, other.first, other.last)
        last = first + (unit == "weekend")
    else:
        size = {"week": 7, "month": 30, "year": 365}.get(unit, 1)
        first, last = _away(size, count if way == "after" else -count, other.first, other.last)
    return Mention(mention.start, other.end, first, last, "offset", year=other.year)


def _at(unit: str, first: int, last: int) -> Span:
    """Return the week, weekend or weekday of a day: in that week."""
    monday = on.week(first)[0]
    if unit in WEEKDAYS:
        return monday + WEEKDAYS[unit], monday + WEEKDAYS[unit]
    if last - first > 6 or unit not in ("week", "weekend"):
        return first, last
    return (monday, monday + 6) if unit == "week" else (monday + 5, monday + 6)


def _next_to(unit: str, way: str, first: int, last: int) -> int:
    wanted = WEEKDAYS.get(unit, 5)
    if way == "after":
        return on.weekday_after(last, wanted)
    return on.weekday_before(first if unit in WEEKDAYS else first - 1, wanted)


def _away(size: int, count: int, first: int, last: int) -> Span:
    """Return so many days, weeks … before or after a span; just one: all that lie between."""
    if abs(count) == 1:
        return (last + 1, last + size) if count > 0 else (first - size, first - 1)
    slack = size // 3
    return first + count * size - slack, last + count * size + slack


def _part_of(unit: str, number: int, first: int, last: int) -> Span:
    """Return the first, second … or last of the units in a span."""
    if unit in WEEKDAYS or unit == "weekend":
        wanted = WEEKDAYS.get(unit, 5)
        day = (
            on.weekday_after(first - 1, wanted) + 7 * (number - 1)
            if number > 0
            else on.weekday_before(last + 1, wanted)
        )
        return day, day + (unit == "weekend")
    whole = last - first + 1
    size = {"day": 1, "week": 7, "half": whole // 2, "quarter": whole // 4}[unit]
    start = first + size * (number - 1) if number > 0 else last - size + 1
    return start, min(start + size - 1, last)


_PLAIN = bytes(
    ord(chr(code).lower()) if code < 128 and chr(code).isalnum() else ord(" ")
    for code in range(256)
)


def plain_words(text: str) -> list[bytes]:
    """Return the words of a text in lower case, as far as they are letters and digits of ASCII.

    A split of bytes is several times faster than any pattern, so it goes before one.
    """
    return text.encode("ascii", "replace").translate(_PLAIN).split()
