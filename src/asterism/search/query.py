"""The terms of words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import IntFlag
from functools import lru_cache
from itertools import pairwise
from unicodedata import normalize

from asterism.memory import people
from asterism.memory.words import word_set, words
from asterism.records import dataclass
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
from asterism.store import agents
from asterism.store.database import Connection
from asterism.types.agents import OWNER, Account, Participants

MAX_TERM_LENGTH = 40
_PARTS = re.compile(r"[.,:/\-']")


def terms_of(word_list: list[str]) -> list[str]:
    """Return the stems of words, without stop words."""
    return [term for word in word_list for term in _term(word)]


@lru_cache(65_536)
def _term(word: str) -> tuple[str, ...]:
    if word in STOP_WORDS:
        return ()
    if word.isalpha() and word.isascii():
        return (_stemmer()(word)[:MAX_TERM_LENGTH],)
    parts = [part for part in _PARTS.split(word) if part]
    if "'" in word and parts[-1] in _ENDINGS:
        # Of "don't" and "we've" nothing is left, of "Anna's" the name.
        return () if parts[0] in _CONTRACTED else _term(parts[0])
    if len(parts) > 1 and parts[0].isalpha():
        # What hangs together by an apostrophe or a dash: each part by itself.
        return tuple(term for part in parts for term in _term(part) if len(part) > 1)
    return (word[:MAX_TERM_LENGTH],)


_ENDINGS = word_set("s t re ve ll d m")
_CONTRACTED = word_set(
    "don didn doesn isn aren wasn weren hasn haven hadn won wouldn shouldn couldn can mustn needn"
    " ain let"
)


@lru_cache(1)
def _stemmer() -> Callable[[str], str]:
    from importlib import import_module

    # The library has no types.
    return import_module("Stemmer").Stemmer("english").stemWord


STOP_WORDS = word_set(
    "a an the and or but if of to in on at by for from with as is are was were be been being am do"
    " does did doing done have has had having will would shall should can could may might must i"
    " you he she it we they me him her us them my your his its our their mine yours hers ours"
    " theirs this that these those there here what which who whom whose when where why how than"
    " then so such not no nor only own same too very just about into over under again more most"
    " some any both each few other up out off down during before after above below between because"
    " while until also get got"
)
"""English words that say little by themselves, in questions above all."""


AGENT = "agent"
"""Stands for the agent as the speaker of its replies."""
PERSON = "person"
"""In place of a channel: what follows is the id of a person."""


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


def _joined(text: str, mentions: list[Mention]) -> list[Mention]:
    """Put together what belongs together: `from A to B`, `the week before A`, `Friday, A`."""
    joined: list[Mention] = []
    for mention in reversed(mentions):
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


MAX_CHARACTERS = 2_000
"""The rest of a longer question is ignored."""
_MAX_PHRASES = 16


class Asks(IntFlag):
    """The kind of answer that a question wants; no flag: a fact."""

    PLACE = 1
    """Somewhere: `Where did we eat?`"""
    HELP = 2
    """Something to be done or advised, for which standing wishes count: `Could you write …`"""
    SUMMARY = 4
    """All that was said of something, in short."""


NO_HINT = Asks(0)


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A question as a ranking sees it."""

    text: str
    terms: list[str] = field(default_factory=list[str])
    """Its terms without the names of speakers, in their order, repeated ones too."""
    names: list[str] = field(default_factory=list[str])
    """The terms of the names of speakers: they are words where nobody speaks, as in a document."""
    phrases: list[str] = field(default_factory=list[str])
    """The quoted parts, as written."""
    prefixes: list[str] = field(default_factory=list[str])
    """Beginnings of words, written as `garden*`, in lower case."""
    speakers: dict[str, float] = field(default_factory=dict[str, float])
    """Whose words are asked for, with shares that add up to one; empty: anybody's."""
    bare: str = ""
    """Its text without the names of speakers: a name draws a vector to all that a speaker said."""
    when: bool = False
    """It asks for a time or a duration."""
    number: bool = False
    """It asks for a number or an amount."""
    span: tuple[int, int] | None = None
    """The first and the last millisecond of the time that it names, as if its days were of UTC."""
    dated: bool = False
    """Whether the time has a year; otherwise it is relative, such as `last week`."""
    ahead: int = 0
    """How many milliseconds the clock of who asks is ahead of UTC."""
    asks: Asks = NO_HINT


def read(
    query: str,
    names: Mapping[str, str],
    asker: str | None,
    agent: str,
    now: int | None = None,
) -> ParsedQuery:
    """Read a question; `names` are those of speakers in lower case, each with its label.

    `asker` is the label of who says `I`, `agent` that of who is called `you`; days are counted from
    `now`. Any text is a question, if need be one without terms.
    """
    text = query[:MAX_CHARACTERS].replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    named = _named(text, names)
    bare = _without(text, named)
    prefixes = [match[1].lower() for match in _PREFIX.finditer(text)]
    # Some letters stand for whole sentences once they are normalised.
    plain = normalize("NFKC", _PREFIX.sub(" ", bare))[:MAX_CHARACTERS]
    terms = terms_of(words(plain))
    if not terms and not prefixes:
        terms = terms_of(words(normalize("NFKC", text)[:MAX_CHARACTERS]))
    lowered = " ".join(text.lower().split())
    time = None if now is None else time_of(text, now)
    return ParsedQuery(
        text=text,
        terms=terms,
        names=terms_of(words(" ".join(text[name.start : name.end] for name in named))),
        phrases=_phrases(text),
        prefixes=prefixes,
        speakers=_speakers(text, named, asker, agent),
        bare=bare or text.strip(),
        when=_WHEN.search(lowered) is not None,
        number=_NUMBER.search(lowered) is not None,
        span=time[:2] if time else None,
        dated=time is not None and time[2],
        asks=_asks(lowered, of_others=bool(named) and not _MINE.search(lowered)),
    )


_PREFIX = re.compile(r"(?<![\w*])(\w{2,})\*(?![\w*])")
_QUOTED = re.compile(
    r'"([^"]*)"|\u201c([^\u201c\u201d]+)\u201d|\u201e([^\u201c\u201d\u201e]+)[\u201c\u201d]|'
    r"\u00ab([^\u00ab\u00bb]+)\u00bb|\u2039([^\u2039\u203a]+)\u203a|\u300c([^\u300c\u300d]+)\u300d|"
    r"\u300e([^\u300e\u300f]+)\u300f|(?<!\w)\u2018([^\u2018]+?)\u2019(?!\w)|(?<!\w)'([^'\s](?:[^']|'(?=\w))*)'(?!\w)|"
    r"\uff02([^\uff02]+)\uff02|(?<!\w)`([^`]+)`"
)


def _phrases(text: str) -> list[str]:
    result: list[str] = []
    for match in _QUOTED.finditer(text):
        phrase = " ".join((match[match.lastindex or 0]).split())
        if any(character.isalnum() for character in phrase) and phrase not in result:
            result.append(phrase)
    return result[:_MAX_PHRASES]


@dataclass(frozen=True, slots=True)
class _Name:
    start: int
    end: int
    label: str


_WORDS_TOO = STOP_WORDS | word_set(
    "mark bill rose grace hope faith joy art chase drew pat sky dawn summer autumn april june"
    " august jack sunny penny iris ivy lily daisy violet ruby pearl amber ginger heather holly"
    " olive jasmine rob sue don frank grant miles wade wood dean duke earl king max star storm"
    " melody harmony angel agent assistant user owner"
)
"""Names that are words too: they are names where they have a capital within a sentence."""
_CAPITAL = re.compile(r"(?<!\w)[A-Z][a-z]{2,9}(?=\W|$)")


def _named(text: str, names: Mapping[str, str]) -> list[_Name]:
    """Return where speakers are named, longer names before those within them."""
    # The one letter whose small form is longer would shift all that follows.
    lowered = text.replace("\u0130", "I").lower()
    result: list[_Name] = []
    inside = [name for name in names if name.strip() and name in lowered]
    for name in sorted(inside, key=len, reverse=True):
        edge = r"\w" if name.isascii() else r"[a-z0-9_]"
        for match in re.finditer(rf"(?<!{edge}){re.escape(name)}(?!{edge})", lowered):
            if any(name.start < match.end() and match.start() < name.end for name in result):
                continue
            if name in _WORDS_TOO and not _is_capital_within(text, match.start()):
                continue
            result.append(_Name(match.start(), match.end(), names[name]))
    if not result:
        result = _short_names(text, names)
    return sorted(result, key=lambda name: name.start)


def _is_capital_within(text: str, start: int) -> bool:
    return text[start].isupper() and text[:start].rstrip()[-1:] not in ("", ".", "!", "?", ":")


def _short_names(text: str, names: Mapping[str, str]) -> list[_Name]:
    """Return short names, such as Mel for Melanie, that fit exactly one speaker."""
    result: list[_Name] = []
    for match in _CAPITAL.finditer(text):
        short = match[0].lower()
        if short in _WORDS_TOO or not text[: match.start()].strip():
            continue
        labels = {label for name, label in names.items() if name.startswith(short)}
        if len(labels) == 1:
            result.append(_Name(match.start(), match.end(), labels.pop()))
    return result


_POSSESSIVE = re.compile(r"['\u2019]s?(?!\w)")


def _without(text: str, named: list[_Name]) -> str:
    parts: list[str] = []
    at = 0
    for name in named:
        parts.append(text[at : name.start])
        own = _POSSESSIVE.match(text, name.end)
        at = own.end() if own else name.end
    return " ".join(" ".join([*parts, text[at:]]).split())


_POLITE = re.compile(
    r"\b(?:can|could|would|will)\s+you\s+(?:please\s+)?(?!suggested|recommended)\w+|"
    r"\b(?:do|did)\s+you\s+(?:know|remember|recall|think)\b|\bthank\s+you\b|\bif\s+you\b"
)
_MINE = re.compile(r"\b(?:i|my|me|mine|myself|i['\u2019](?:m|ve|d|ll))\b")
_YOURS = re.compile(
    r"\b(?:did|have|had|were|do|are)\s+you\b|\byou\s+(?:had\s+|have\s+|ever\s+)?(?:said|say|told|"
    r"gave|wrote|made|sent|did|were|thought|\w+ed)\b|\byou['\u2019](?:ve|d)\b|\byour(?:s|self)?\b"
)


_I_DO = re.compile(r"^i\b|\b(?:did|do|have|had|was|am|were|will|should|can)\s+i\b")
_JOINED = re.compile(r"(?:['\u2019]s)?(?:\s*(?:,|and|or|&|\+))+\s*")


def _speakers(text: str, named: list[_Name], asker: str | None, agent: str) -> dict[str, float]:
    """Share out whose words are asked for: those of who is named, else by `I` and `you`."""
    lowered = text.lower()
    mine = asker is not None and _MINE.search(lowered) is not None
    if named:
        shares = _shares_of_named(text, named)
        if asker is not None and asker not in shares and _I_DO.search(lowered[: named[0].start]):
            # "What did I tell Ann?"
            shares = {asker: 0.7} | {label: 0.3 * share for label, share in shares.items()}
        return shares
    yours = _YOURS.search(_POLITE.sub(" ", lowered)) is not None
    if yours and mine and asker is not None and asker != agent:
        return {agent: 0.6, asker: 0.4}
    if yours:
        return {agent: 1.0}
    return {asker: 1.0} if mine and asker is not None else {}


def _shares_of_named(text: str, named: list[_Name]) -> dict[str, float]:
    """Give those named an equal share, if they are named side by side; else the first one most."""
    labels = list(dict.fromkeys(name.label for name in named))
    gaps = [text[name.end : other.start] for name, other in pairwise(named)]
    if len(labels) == 1 or all(_JOINED.fullmatch(gap) for gap in gaps[: len(labels) - 1]):
        return {label: 1 / len(labels) for label in labels}
    # Measured on real questions: of two who are named apart, the first said it four times in five.
    rest = 0.2 / (len(labels) - 1)
    return {label: rest if at else 0.8 for at, label in enumerate(labels)}


_UNIT_WORDS = r"(?:days?|nights?|weeks?|weekends?|months?|years?|hours?|minutes?)"
_WHEN = re.compile(
    r"\b(?:when\s+(?:did|does|do|is|are|was|were|will|has|have|had|should|can|would|exactly)\b|how\s+long\b|"
    rf"how\s+(?:many|much)\s+(?:\w+\s+)?{_UNIT_WORDS}\b|how\s+(?:soon|recently|often|old)\b|since\s+when|until\s+when|"
    r"by\s+when|(?:what|which)(?:\s+(?:is|was|are|were))?(?:\s+the)?(?:\s+\w+)?\s+(?:dates?|days?|months?|year|times?|"
    r"deadline|weekend|week|season|hour)\b|(?:date|deadline|time)\s+(?:of|for)\b)|^\s*when\b(?!.*,)"
)
_NUMBER = re.compile(
    r"\b(?:how\s+(?:many|much|old|tall|far|big|large|long|often|high|fast|heavy)\b|what(?:\s+(?:is|was|are|were))?"
    r"(?:\s+(?:the|my|your|his|her|their|our))?(?:\s+\w+){0,2}?\s+(?:number|amount|percentage|percent|price|cost|"
    r"budget|rate|score|total|age|size|count|salary|income|limit|target)\b|what\s+percentage)"
)


_LEAD = r"^(?:(?:please|so|and|but|hey|hi|hello|ok|okay|well|also)[\s,]+)*"
_ASKED = r"(?:^|[,;:.?!]\s|\b(?:and|or|but|so|of|with|to|for|from|by|me|know|remember|is|was)\s)"
"""What stands before a word that asks, but not before one that joins two clauses."""
_PLACE = re.compile(
    rf"{_ASKED}where\b|\b(?:which|what)\s+(?:\w+\s+)?(?:places?|city|cities|country|countries|states?|"
    r"towns?|villages?|locations?|restaurants?|streets?|address|venue|area|park|beach)\b"
)
_SUMMARY = re.compile(r"\b(?:summar(?:y|ies|i[sz]e\w*)|overview|recap\w*)\b")
_WHOLE = re.compile(
    r"\b(?:summar(?:y|ies|i[sz]e\w*)|overview|in\s+(?:what|which)\s+order|the\s+order\s+in\s+which|in\s+order\b(?!\s+to)|"
    r"(?:developed|evolved|progressed|changed)\s+(?:over|across|throughout)|over\s+time|timeline|chronolog\w+)"
)
_DO = (
    r"(?:help|write|create|make|draft|show|give|explain|suggest|recommend|design|set\s+up|build|generate|provide|"
    r"plan|prepare|compose|fix|find|describe|outline|review|improve|teach|guide|walk|tell|list|translate|format|check)"
)
_HELP = re.compile(
    _LEAD + rf"(?:{_DO}\b(?!\s+(?:did|do|does|is|was))|"
    rf"(?:can|could|would|will)\s+you\s+(?:please\s+)?{_DO}\b)|"
    r"\b(?:would|do|should|can|could)\s+you\s+(?:suggest|recommend|advise)\b|"
    r"\b(?:how|what|which|where|who)\b[^.?!]{0,150}\b(?:should|can|could|might)\s+(?:i|we)\b|"
    r"\bwhat\s+(?:are|would\s+be)\s+(?:some|a\s+good|good|the\s+best)\b|\bhelp\s+me\b|"
    r"\bany\s+(?:tips|advice|suggestions?|ideas?|recommendations?)\b|\bwhat\s+can\s+you\s+tell\s+me\b|"
    r"\bwhat\s+(?:\w+\s+)?(?:steps|tips|ways|methods|strategies|techniques)\b(?!.*\bdid\b)|"
    r"(?:^|[.!?,;]\s)(?:and\s|but\s|so\s)?i(?:['\u2019]m|\s+am)\s+(?:trying|looking|planning|thinking|working|preparing|considering|about)\b|"
    r"(?:^|[.!?,;]\s)(?:and\s|but\s|so\s)?i(?:['\u2019]d\s+like|\s+(?:want|need|would\s+like))\s+(?:to|you|some|a|help)\b"
)
_TOLD = re.compile(
    r"\bdid\s+(?:i|you|we)\b|\bhave\s+i\b|\bi\s+(?:said|told|mentioned)\b|\bremind\s+me\b"
)


def _asks(lowered: str, *, of_others: bool) -> Asks:
    asks = NO_HINT
    if _PLACE.search(lowered):
        asks |= Asks.PLACE
    if _SUMMARY.search(lowered):
        asks |= Asks.SUMMARY
    elif not (of_others or _WHOLE.search(lowered) or _TOLD.search(lowered)):
        asks |= Asks.HELP if _HELP.search(lowered) else NO_HINT
    return asks


_MIN_NAME = 2
_MAX_AGENTS = 40


@dataclass(slots=True)
class Speakers:
    """Those who speak in some texts."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Who is behind each label: a person's id, `agent`, or the label of somebody unknown."""
    display_names: dict[str, str] = field(default_factory=dict[str, str])
    """The name to show, by label."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """The id of each speaker by the names that a question may use, in lower case."""

    def add(self, label: str, id: str, display_name: str, *also: str) -> None:
        """Note who is behind a label, and by what names they go."""
        self.ids[label], self.display_names[label] = id, display_name
        names = [
            *(display_name, *also),
            *(name.split()[0] for name in (display_name, *also) if name.split()),
        ]
        for name in names:
            if len(name) >= _MIN_NAME:
                self.names.setdefault(name.casefold(), id)

    def labels_for(self, who: str) -> frozenset[str]:
        """Return the labels of those who go by a name, an id or an account."""
        wanted = " ".join(who.split()).casefold()
        return frozenset(
            label
            for label, id in self.ids.items()
            if wanted in (id.casefold(), label.casefold(), self.display_names[label].casefold())
            or self.names.get(wanted) == id
        )


async def speakers_of(tx: Connection, labels: Sequence[str], agent_ids: Sequence[str]) -> Speakers:
    """Find out who is behind the labels of texts of some agents."""
    result = Speakers()
    called: list[str] = []
    if AGENT in labels and len(agent_ids) <= _MAX_AGENTS:
        called = [
            agent.name for id in agent_ids if (agent := await agents.by_id(tx, id)) is not None
        ]
    accounts = {
        label: Account(*label.split(":", 1)) for label in dict.fromkeys(labels) if ":" in label
    }
    known = await people.people_of_accounts(tx, list(accounts.values())) if accounts else {}
    for label, account in accounts.items():
        if account.channel == PERSON and account not in known:
            person = await people.get_person(tx, account.sender)
            if person is not None:
                result.add(label, person.id, person.name)
                continue
        id, name = known.get(account, (label, label))
        # Strangers are named after their account, of which the channel says nothing.
        result.add(label, id, account.sender if name == label else name, account.sender)
    if AGENT in labels:
        result.add(AGENT, AGENT, called[0] if len(called) == 1 else AGENT, *called)
    if OWNER in labels:
        owner = await people.get_person(tx, OWNER)
        result.add(OWNER, OWNER, owner.name if owner is not None else OWNER)
    return result


def asker_of(participants: Participants) -> str | None:
    """Return who says `I` in a question, as far as that is one of those present."""
    if participants.owner_alone:
        return OWNER
    return participants.people[0].person_id if len(participants.people) == 1 else None
