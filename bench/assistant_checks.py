"""Conversations of `bench.assistant`: how they are read, and the rules that judge them."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

DIRECTORY = Path(__file__).with_name("assistant_conversations")
KINDS = (
    "arithmetic",
    "dates",
    "plain_talk",
    "in_conversation",
    "correction",
    "remember",
    "after_restart",
    "long_ago",
    "documents",
    "schedule",
    "honesty",
    "several_steps",
    *("told", "passing", "correct", "forget", "remind", "calculate", "date", "plain"),
    *("trap", "knowledge"),
)
SPLITS = ("tuned", "held_out", "unseen")
MAX_CALLS = 8
"""Calls in one turn; more is a failure in every conversation."""
DEFAULT_ZONE = "Europe/Berlin"

_TOLERANCE = 60.0
"""Seconds by which a schedule may miss the time that was asked for."""
_OCCURRENCES = 4
"""How many times of a regular schedule are compared."""


# -- conversations ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens in a conversation, and what has to be true after it."""

    say: str = ""
    restart: bool = False
    new_chat: bool = False
    """The conversation begins anew; what is kept stays."""
    filler: int = 0
    may_decline: bool = False
    """A good answer may read like a refusal: a letter that declines, or what was forgotten."""
    checks: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is there at the beginning, and the steps that follow."""

    id: str
    kind: str
    split: str
    steps: tuple[Step, ...]
    language: str = "en"
    everyday: bool = False
    """One of the everyday conversations of its language, which have a goal together."""
    timezone: str = DEFAULT_ZONE
    now: str = ""
    """The owner's local time at the beginning, such as "10:15"; empty: the real one."""
    documents: Mapping[str, str] = field(default_factory=dict[str, str])
    earlier: tuple[tuple[str, str], ...] = ()
    days_ago: int = 0
    blocks: Mapping[str, str] = field(default_factory=dict[str, str])
    archive: tuple[str, ...] = ()

    @property
    def zone(self) -> ZoneInfo:
        """The owner's time zone."""
        return ZoneInfo(self.timezone)

    def shift(self, real: datetime) -> timedelta:
        """Return how far the clock of this conversation is from the real time."""
        if not self.now:
            return timedelta()
        here = real.astimezone(self.zone)
        hour, minute = map(int, self.now.split(":"))
        start = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return start.astimezone(UTC) - real.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Filler:
    """Small talk that stands between something said and the question about it."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]

    def messages(self, count: int) -> list[tuple[str, str]]:
        """Return this many messages, each a role and a text, no two neighbours alike."""
        found: list[tuple[str, str]] = []
        for number in range((count + 1) // 2):
            question = self.questions[number % len(self.questions)]
            # A stride that shares no factor with the length pairs them anew in each round.
            answer = self.answers[(number * 7 + number // len(self.questions)) % len(self.answers)]
            found += [("user", question), ("assistant", answer)]
        return found[:count]


_STEP_FIELDS = {"say", "restart", "new_chat", "filler", "may_decline"}
_CONVERSATION_FIELDS = {
    *("id", "kind", "split", "steps", "language", "everyday", "timezone", "now"),
    *("documents", "earlier", "days_ago", "blocks", "archive"),
}


def conversations(directory: Path = DIRECTORY) -> list[Conversation]:
    """Return all conversations below a directory, in the order of `KINDS` and of their files.

    What stands at the top of a file holds for each of its conversations that does not say
    otherwise; a file that names no kind has it as its name.
    """
    found: list[Conversation] = []
    for path in sorted(directory.rglob("*.toml")):
        top = _load(path)
        entries = top.pop("conversation", [])
        found += [read_conversation({**top, **entry}, path.stem) for entry in entries]
    return sorted(found, key=lambda one: KINDS.index(one.kind))


@cache
def filler() -> Filler:
    """Return the small talk."""
    table = _load(DIRECTORY / "shared.toml")["filler"]
    return Filler(tuple(table["questions"]), tuple(table["answers"]))


@cache
def phrases() -> dict[str, tuple[str, ...]]:
    """Return expressions that checks name, such as `@unknown`."""
    table = _load(DIRECTORY / "shared.toml")["phrases"]
    return {name: tuple(expressions) for name, expressions in table.items()}


def _load(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def read_conversation(entry: Mapping[str, Any], kind: str) -> Conversation:
    """Return a conversation from its table; raise `ValueError` for a name that is not known."""
    unknown = set(entry) - _CONVERSATION_FIELDS
    if unknown:
        raise ValueError(f"{entry.get('id')}: {', '.join(sorted(unknown))} is not a valid field.")
    kind = entry.get("kind", kind)
    if kind not in KINDS:
        raise ValueError(f"{entry.get('id')}: {kind} is not a valid kind.")
    values = {key: value for key, value in entry.items() if key not in {"kind", "steps"}}
    values["earlier"] = tuple((role, text) for role, text in entry.get("earlier", ()))
    values["archive"] = tuple(entry.get("archive", ()))
    steps = tuple(_read_step(entry["id"], step) for step in entry["steps"])
    return Conversation(kind=kind, steps=steps, **values)


def _read_step(name: str, entry: Mapping[str, Any]) -> Step:
    checks = {key: value for key, value in entry.items() if key not in _STEP_FIELDS}
    unknown = set(checks) - set(CHECKS)
    if unknown:
        raise ValueError(f"{name}: {', '.join(sorted(unknown))} is not a valid check.")
    return Step(**{key: entry[key] for key in _STEP_FIELDS & set(entry)}, checks=checks)


# -- what a system did -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A tool that was called."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class PlannedMessage:
    """A schedule that exists after a turn."""

    text: str
    due: datetime
    cron: str | None = None


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A message, the answer, and how things stand after it."""

    say: str
    answer: str
    began: datetime
    ended: datetime
    calls: tuple[CallRecord, ...] = ()
    problem: str = ""
    """Why there is no answer, if there is none."""
    memory: tuple[str, ...] = ()
    """What is kept beyond the conversation: lines of blocks, passages of the archive."""
    schedules: tuple[PlannedMessage, ...] = ()
    memory_before: tuple[str, ...] = ()
    schedules_before: tuple[PlannedMessage, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended - self.began).total_seconds()


# -- moments ---------------------------------------------------------------------------------------

_WEEKDAYS = (
    "monday|mon|montag|lunes|lundi|segunda|lunedì|maandag|月曜",
    "tuesday|tues?|dienstag|martes|mardi|terça|martedì|dinsdag|火曜",
    "wednesday|wed|mittwoch|miércoles|miercoles|mercredi|quarta|mercoledì|woensdag|水曜",
    "thursday|thu(?:rs?)?|donnerstag|jueves|jeudi|quinta|giovedì|donderdag|木曜",
    "friday|fri|freitag|viernes|vendredi|sexta|venerdì|vrijdag|金曜",
    "saturday|sat|samstag|sonnabend|sábado|sabado|samedi|sabato|zaterdag|土曜",
    "sunday|sun|sonntag|domingo|dimanche|domenica|zondag|日曜",
)
_MONTHS = (
    "january|jan|januar|enero|janvier|janeiro|gennaio|januari",
    "february|feb|februar|febrero|février|fevereiro|febbraio|februari",
    "march|mar|märz|marzo|mars|março|maart",
    "april|apr|abril|avril|aprile",
    "may|mai|mayo|maio|maggio|mei",
    "june|jun|juni|junio|juin|junho|giugno",
    "july|jul|juli|julio|juillet|julho|luglio",
    "august|aug|agosto|août|augustus",
    "september|sept?|septiembre|septembre|setembro|settembre",
    "october|oct|oktober|octubre|octobre|outubro|ottobre",
    "november|nov|noviembre|novembre|novembro",
    "december|dec|dezember|diciembre|décembre|dezembro|dicembre|december",
)
_WEEKDAY_NAMES = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPANS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_day(text: str, today: date) -> date:
    """Return the day that `today`, `+3d`, `fri` (the next), `12-24` (the next) or a date names."""
    if text == "today":
        return today
    if text == "tomorrow":
        return today + timedelta(days=1)
    if text in _WEEKDAY_NAMES:
        return today + timedelta(days=(_WEEKDAY_NAMES.index(text) - today.weekday() - 1) % 7 + 1)
    if re.fullmatch(r"[+-]\d+[dw]", text):
        return today + read_span(text)
    if re.fullmatch(r"\d\d-\d\d", text):
        here = date.fromisoformat(f"{today.year}-{text}")
        return here if here >= today else date.fromisoformat(f"{today.year + 1}-{text}")
    return date.fromisoformat(text)


def read_span(text: str) -> timedelta:
    """Return `20m`, `3h`, `+2d` or `-1w` as a span."""
    return timedelta(**{_SPANS[text[-1]]: int(text[:-1])})


def expand(text: str, began: datetime, ended: datetime) -> str:
    """Put what a moment is into an expression: `{{weekday +1d}}`, `{{date fri}}`, `{{time}}`."""

    def value(found: re.Match[str]) -> str:
        name, _, moment = found[1].strip().partition(" ")
        return _EXPANSIONS[name](moment.strip(), began, ended)

    return re.sub(r"\{\{(.+?)\}\}", value, text)


def _weekday(moment: str, began: datetime, _ended: datetime) -> str:
    return _names(_WEEKDAYS[read_day(moment, began.date()).weekday()])


def _month(moment: str, began: datetime, _ended: datetime) -> str:
    return _names(_MONTHS[read_day(moment, began.date()).month - 1])


def _names(names: str) -> str:
    """Return an expression for one of several names, which must not be a part of a longer word."""
    # Japanese writes no spaces, and most of these languages have plurals and endings.
    return rf"(?:(?<![^\W\d_])(?:{names})(?![a-z]))"


def _date(moment: str, began: datetime, _ended: datetime) -> str:
    """Return an expression for a date in the spellings of several languages, its year optional."""
    day = read_day(moment, began.date())
    month = _names(_MONTHS[day.month - 1])
    number, ordinal = f"0?{day.day}", r"(?:st|nd|rd|th|\.|º|er)?"
    spellings = (
        rf"(?<!\d){number}{ordinal}\s*(?:of |de |di )?{month}",
        rf"{month}\s+(?:the )?{number}(?!\d)",
        rf"(?<!\d){number}[./-]0?{day.month}(?!\d)",
        rf"(?<!\d)0?{day.month}/{number}(?!\d)",
        rf"(?<!\d){day.year}[-/.]0?{day.month}[-/.]{number}(?!\d)",
        rf"(?<!\d){day.month}月{day.day}日",
    )
    return f"(?:{'|'.join(spellings)})"


def _day_number(moment: str, began: datetime, _ended: datetime) -> str:
    return str(read_day(moment, began.date()).day)


def _year(moment: str, began: datetime, _ended: datetime) -> str:
    return str(read_day(moment, began.date()).year)


def _days(moment: str, began: datetime, _ended: datetime) -> str:
    return str(abs((read_day(moment, began.date()) - began.date()).days))


def _week(moment: str, began: datetime, _ended: datetime) -> str:
    return str(read_day(moment, began.date()).isocalendar().week)


def _time(moment: str, began: datetime, ended: datetime) -> str:
    """Return an expression for the time of day, with two minutes to spare on both sides.

    A moment such as `+90m` is that much later; `Asia/Tokyo` is the time there.
    """
    later = read_span(moment) if moment[:1] in ("+", "-") else timedelta()
    at = began - timedelta(minutes=2) + later
    spellings: set[str] = set()
    while at <= ended + timedelta(minutes=2) + later:
        here = at.astimezone(ZoneInfo(moment)) if "/" in moment else at
        spellings.add(f"0?{here.hour}[:.h時]{here.minute:02}")
        spellings.add(f"0?{here.hour % 12 or 12}[:.]{here.minute:02}")
        spellings.add(f"0?{here.hour} (?:Uhr|h) 0?{here.minute}")
        hours = f"(?:{here.hour}|{here.hour % 12}|{here.hour % 12 or 12})"
        spellings.add(f"0?{hours} ?時 ?0?{here.minute}(?= ?分)")
        at += timedelta(minutes=1)
    return rf"(?<!\d)(?:{'|'.join(sorted(spellings))})(?!\d)"


_EXPANSIONS = {
    "weekday": _weekday,
    "month": _month,
    "date": _date,
    "day": _day_number,
    "year": _year,
    "days": _days,
    "week": _week,
    "time": _time,
}


# -- texts and numbers -----------------------------------------------------------------------------

Wanted = str | int | float
_NUMBER = re.compile(r"\d{1,3}(?:[ ,.'_]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)?")
_PLAIN_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def normal(text: str) -> str:
    """Return a text with one spelling of quotes, spaces, digits and dashes."""
    text = unicodedata.normalize("NFKC", text)
    return re.sub(r"[’‘ʼ]", "'", re.sub(r"[^\S\n]", " ", re.sub(r"[‐-―−]", "-", text)))


def numbers(text: str) -> set[float]:
    """Return the numbers in a text, in every way that its separators can be read."""
    found: set[float] = set()
    for token in _NUMBER.findall(normal(text)):
        found.update(_readings(token))
    return found


def _readings(token: str) -> Iterable[float]:
    digits = re.sub(r"[ '_]", "", token)
    marks = re.findall(r"[.,]", digits)
    whole, _, rest = digits.rpartition(marks[-1]) if marks else (digits, "", "")
    bare = re.sub(r"[.,]", "", whole)
    if not marks:
        yield float(digits)
        return
    if len(marks) == 1 or marks[-1] != marks[0]:
        yield float(f"{bare}.{rest}")
    if len(rest) == 3 and len(set(marks)) == 1:
        yield float(bare + rest)


def has_number(text: str, wanted: float) -> bool:
    """Return whether a text names a number, rounded no more coarsely than it is written here."""
    if float(wanted).is_integer():
        return wanted in numbers(text)
    decimals = max(2, len(str(wanted).partition(".")[2]))
    return any(round(value, decimals) == wanted for value in numbers(text))


def has(text: str, wanted: Wanted) -> bool:
    """Return whether a text has a number, or something that an expression matches."""
    if isinstance(wanted, str):
        if wanted.startswith("@"):
            return any(has(text, expression) for expression in phrases()[wanted[1:]])
        if not _PLAIN_NUMBER.fullmatch(wanted):
            return re.search(wanted, normal(text), re.IGNORECASE) is not None
        wanted = float(wanted) if "." in wanted else int(wanted)
    return has_number(text, wanted)


# -- schedules -------------------------------------------------------------------------------------


def schedule_problem(
    wanted: Mapping[str, Any], schedules: Sequence[PlannedMessage], turn: TurnResult
) -> str:
    """Return why no schedule is as wanted: its time first, then its text; empty if one is."""
    at_time = [one for one in schedules if _is_due(wanted, one, turn)]
    if not at_time:
        there = ", ".join(
            f"{one.due:%a %d %b %H:%M}{f' ({one.cron})' * bool(one.cron)}" for one in schedules
        )
        when = wanted.get("in") or wanted.get("at") or wanted.get("every")
        return f"no schedule for {when!r}; there are: {there or 'none'}"
    texts = cast("list[Wanted]", wanted.get("text", []))
    if texts and not any(has(one.text, text) for one in at_time for text in texts):
        return f"the schedule says {at_time[0].text!r}, without any of {texts}"
    return ""


def _is_due(wanted: Mapping[str, Any], planned: PlannedMessage, turn: TurnResult) -> bool:
    slack = timedelta(seconds=wanted.get("within", _TOLERANCE))
    if "every" in wanted:
        return planned.cron is not None and _repeats(wanted["every"], planned, turn)
    if "in" in wanted:
        span = read_span(wanted["in"])
        return turn.began + span - slack <= planned.due <= turn.ended + span + slack
    due = _moment(wanted["at"], turn.began)
    return abs(planned.due - due) <= slack and planned.cron is None


def _moment(text: str, now: datetime) -> datetime:
    day, _, clock = text.partition(" ")
    hour, minute = map(int, clock.split(":"))
    return datetime(*read_day(day, now.date()).timetuple()[:3], hour, minute, tzinfo=now.tzinfo)


def _repeats(rule: str, planned: PlannedMessage, turn: TurnResult) -> bool:
    """Return whether a cron rule comes true at the right times, be it in UTC or the owner's."""
    expected = list(islice(occurrences(rule, turn.ended), _OCCURRENCES))
    if abs(planned.due - expected[0]) > timedelta(seconds=_TOLERANCE):
        return False
    for zone in (turn.ended.tzinfo, ZoneInfo("UTC")):
        try:
            times = list(
                islice(CronSim(planned.cron or "", turn.ended.astimezone(zone)), _OCCURRENCES)
            )
        except CronSimError:
            return False
        if [time.astimezone(turn.ended.tzinfo) for time in times] == expected:
            return True
    return False


def occurrences(rule: str, after: datetime) -> Iterable[datetime]:
    """Yield when `mon,thu 08:00`, `mon-fri 07:30`, `day 21:00` or `month 1 09:00` comes true."""
    *days, clock = rule.split()
    hour, minute = map(int, clock.split(":"))
    day = after.date()
    while True:
        at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=after.tzinfo)
        if at > after and _is_on(days, day):
            yield at
        day += timedelta(days=1)


def _is_on(days: Sequence[str], day: date) -> bool:
    if days[0] == "day":
        return True
    if days[0] == "month":
        return day.day == int(days[1])
    for part in days[0].split(","):
        first, _, last = part.partition("-")
        number, until = (_WEEKDAY_NAMES.index(name) for name in (first, last or first))
        if number <= day.weekday() <= until:
            return True
    return False


# -- checks ----------------------------------------------------------------------------------------


def _expanded(wanted: Iterable[Wanted], turn: TurnResult) -> list[Wanted]:
    return [expand(one, turn.began, turn.ended) if isinstance(one, str) else one for one in wanted]


def _quote(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 160 else line[:159] + "…")


def _answer_has(wanted: list[Wanted], turn: TurnResult) -> str:
    if any(has(turn.answer, one) for one in _expanded(wanted, turn)):
        return ""
    return f"none of {wanted} in {_quote(turn.answer)}"


def _answer_has_all(wanted: list[Wanted], turn: TurnResult) -> str:
    pairs = zip(wanted, _expanded(wanted, turn), strict=True)
    missing = [one for one, expression in pairs if not has(turn.answer, expression)]
    return f"not {missing} in {_quote(turn.answer)}" if missing else ""


def _answer_lacks(unwanted: list[Wanted], turn: TurnResult) -> str:
    pairs = zip(unwanted, _expanded(unwanted, turn), strict=True)
    found = [one for one, expression in pairs if has(turn.answer, expression)]
    return f"{found} in {_quote(turn.answer)}" if found else ""


def _memory_has(wanted: list[Wanted], turn: TurnResult) -> str:
    kept = "\n".join(turn.memory)
    if any(has(kept, one) for one in _expanded(wanted, turn)):
        return ""
    return f"none of {wanted} in memory {_quote(kept)}"


def _memory_has_all(wanted: list[Wanted], turn: TurnResult) -> str:
    kept = "\n".join(turn.memory)
    missing = [one for one in wanted if not has(kept, one)]
    return f"not {missing} in memory {_quote(kept)}" if missing else ""


def _memory_lacks(unwanted: list[Wanted], turn: TurnResult) -> str:
    kept = "\n".join(turn.memory)
    found = [one for one in unwanted if has(kept, one)]
    return f"{found} in memory {_quote(kept)}" if found else ""


def _memory_same(wanted: bool, turn: TurnResult) -> str:
    added = [text for text in turn.memory if text not in turn.memory_before]
    gone = [text for text in turn.memory_before if text not in turn.memory]
    if wanted == (not added and not gone):
        return ""
    return f"{_quote(str(added))} came for {_quote(str(gone))}" if wanted else "nothing changed"


def _schedule(wanted: list[Mapping[str, Any]], turn: TurnResult) -> str:
    problems = (schedule_problem(one, turn.schedules, turn) for one in wanted)
    return "; ".join(filter(None, problems))


def _schedules(count: int, turn: TurnResult) -> str:
    there = len(turn.schedules)
    return "" if there == count else f"{there} schedules instead of {count}"


def _schedule_added(wanted: bool, turn: TurnResult) -> str:
    added = [one.text for one in turn.schedules if one not in turn.schedules_before]
    return "" if wanted == bool(added) else f"{added or 'none'} added"


def _min_words(least: int, turn: TurnResult) -> str:
    count = len(re.findall(r"\w+", turn.answer))
    return "" if count >= least else f"{count} words instead of {least}: {_quote(turn.answer)}"


def _max_calls(most: int, turn: TurnResult) -> str:
    if len(turn.calls) <= most:
        return ""
    return f"{len(turn.calls)} calls instead of {most}: {_call_names(turn)}"


def _calls_any(names: list[str], turn: TurnResult) -> str:
    if any(call.name in names for call in turn.calls):
        return ""
    return f"none of {names} called, but {_call_names(turn) or 'nothing'}"


def _calls_none(names: list[str], turn: TurnResult) -> str:
    return "" if not any(call.name in names for call in turn.calls) else _call_names(turn)


def _call_names(turn: TurnResult) -> str:
    return ", ".join(call.name for call in turn.calls)


CHECKS: dict[str, Callable[[Any, TurnResult], str]] = {
    "answer_has": _answer_has,
    "answer_has_all": _answer_has_all,
    "answer_lacks": _answer_lacks,
    "memory_has": _memory_has,
    "memory_has_all": _memory_has_all,
    "memory_lacks": _memory_lacks,
    "memory_same": _memory_same,
    "schedule": _schedule,
    "schedules": _schedules,
    "schedule_added": _schedule_added,
    "min_words": _min_words,
    "max_calls": _max_calls,
    "calls_any": _calls_any,
    "calls_none": _calls_none,
}

_RAW_CALL = re.compile(r"^\s*(?:```\w*\s*)?\{\s*\"|^\s*tool:\s*\w+|</?tool_call>")


def failures(step: Step, turn: TurnResult) -> list[str]:
    """Return which checks of a step fail, and those that hold for every turn."""
    if turn.problem:
        return [f"turn: {turn.problem}"]
    found: list[str] = []
    if not turn.answer.strip():
        found.append("turn: the answer is empty")
    elif _RAW_CALL.search(turn.answer):
        found.append(f"turn: the answer is a call: {_quote(turn.answer)}")
    elif not step.may_decline and not _wants_unknown(step) and has(turn.answer, "@refusal"):
        found.append(f"turn: the answer is a refusal: {_quote(turn.answer)}")
    checks = {"max_calls": MAX_CALLS, **step.checks}
    for name, value in checks.items():
        problem = CHECKS[name](value, turn)
        if problem:
            found.append(f"{name}: {problem}")
    return found


def _wants_unknown(step: Step) -> bool:
    """Return whether the right answer is that it does not know."""
    return "@unknown" in step.checks.get("answer_has", ())
