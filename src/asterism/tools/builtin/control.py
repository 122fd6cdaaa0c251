"""The tools `schedule`, `heartbeat`, `halt` and `think`: when to go on, and when all stop."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Annotated, Any, Literal

from asterism.errors import InvalidInput, ToolError
from asterism.memory.gate.writer import WriteNeedsApproval, judge
from asterism.memory.words import terms
from asterism.permissions import Act, Resource
from asterism.records import dataclass
from asterism.store import agents, groups, messages
from asterism.times import (
    DAY,
    FutureTime,
    in_plain_english,
    read_future,
    read_hours,
    weekday_text,
    zone_named,
)
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.agents import Halt, Schedule, label_of, new_id
from asterism.types.groups import delayed_message_id
from asterism.types.memory import Permission, Source
from asterism.types.permissions import Effect, EffectKind, ToolEffect
from asterism.types.turns import HEARTBEAT, MessageOrigin, Notice, message_wire

_MAX_DELAY = 36_500 * DAY
LATEST = "latest"
"""Stands for the id of the schedule that was made last."""

# -- schedule --------------------------------------------------------------------------------------

_REMINDER = (
    r"\br[eimnd]{4,6} me\b(?!,? (?:what|which|who|when|where|why|how)\b)|\btell me to\b|\b(?:ping"
    r"|nudge|wake|alert|notify|buzz|poke|prod|warn|message|text|bug|beep) (?:me|us)\b"
    r"|\b(?:give|drop|send|shoot) (?:me|us) (?:a|an|another) (?:little |quick |gentle )?(?:shout"
    r"|ping|buzz|poke|prod|heads[- ]?up|ring|call|bell|yell|holler|warning|wake-?up call|signal"
    r"|message)\b"
    r"|\bmake sure (?:that )?i (?:don'?t|do not|never) (?:forget|miss)\b"
    r"|\b(?:(?:i|i'd|we|(?:could|can|would) (?:you|i)) )?(?:please )?(?:set|create|add|make|need"
    r"|want"
    r"|give me|send me|like|get)\b[\w' ]{0,20}\b(?:reminder|nudge)\b"
    r"|\bdon'?t let me forget\b|\b(?:set|start) (?:an?|the) [\w ]{0,15}?(?:timer|alarm)\b"
    r"|\b(?:gib|gebt|geben|sag|sagt|sagen)\b[^.?!]{0,60}\bbescheid\b|\bbescheid (?:geben|sagen)\b"
    r"|\blaat (?:me|mij|het me) weten\b|\blet (?:me|us) know (?=at|in|on|tomorrow|tonight|by)"
    r"|\berinner\w* (?:mich|uns)\b|\bweck\w* (?:mich|uns)\b"
    r"|\b(?:kannst|k[oö]nntest|w[uü]rdest) du (?:mich|uns)\b(?=[^.?!]{3,80}\b(?:erinnern|wecken)\b)"
    r"|\b(?:kun|kan|wil|zou) (?:je|jij|u) (?:me|mij|ons)\b(?: er\b)?"
    r"(?=[^.?!]{3,80}\b(?:herinneren|wekken|waarschuwen)\b)"
    r"|\b(?:pued|podr[ií])\w+ (?:recordar|avisar|despertar)(?:me|nos)\b"
    r"|\b(?:peux|pourrais)-tu (?:me|nous) (?:rappeler|pr[eé]venir|r[eé]veiller)\b"
    r"|\bpuoi (?:ricordar|avvisar|svegliar)(?:mi|ci)\b"
    r"|\b(?:mi|ci) puoi (?:ricord|avvis|svegli)are\b"
    r"|\bpod(?:e|ia|es|erias?) (?:me )?(?:lembrar|avisar|acordar)(?:-me)?\b"
    r"|\bstell\w* [\w ]{0,20}(?:timer|wecker)\b"
    r"|\brecu[eé]rda(?:me|nos)\b|\brecu[eé]rdeme\b|\bav[ií]same\b|\bdespi[eé]rtame\b"
    r"|\brappel(?:le|ez)[- ](?:moi|nous)\b|\bpr[eé]v(?:iens|enez)[- ]moi\b|\br[eé]veille[- ]moi\b"
    r"|\bricorda(?:mi|ci)\b|\bavvisami\b|\bsvegliami\b"
    r"|\b(?:lembr|avis|acord)[ae]-me\b|\bme (?:lembr|avis|acord)[ae]\b|\bherinner (?:me|mij)\b"
    r"|リマインド\w*|思い出させて\w*|知らせて\w*|起こして\w*|提醒我?|叫醒我|叫我"
)
"""How people ask for a reminder: each of these says so, in whatever sentence it stands."""
_ABOUT_SCHEDULES = (
    r"\b(?:reminders?|schedule\w*|alarms?|timers?|erinnerung\w*|termine?|wecker|recordatorios?"
    r"|alarmas?|rappels?|promemoria|sveglie?|lembretes?)\b|リマインダー|予定|アラーム|日程|闹钟"
)


def plan_schedule(
    agent_id: str, when: str, text: str, now: int, zone: str, *, regular: bool = False
) -> tuple[Schedule, FutureTime]:
    """Return the schedule of a message, and when it comes; raise `InvalidInput` if it cannot.

    Args:
        agent_id: Who gets the message.
        when: When, as `read_future` reads it.
        text: What the message says.
        now: The time.
        zone: The name of the owner's time zone.
        regular: Whether `when` is a rule even if it does not say "every".
    """
    if not text.strip():
        raise InvalidInput("What should the message say? It is empty. Nothing was scheduled.")
    found = read_future(when, now, zone_named(zone), regular=regular)
    if found.at > now + _MAX_DELAY:
        raise InvalidInput(
            f"{when[:80]!r} is more than a hundred years away. Write an earlier time. Nothing was "
            "scheduled."
        )
    entry = Schedule(
        id=new_id("sch"),
        agent_id=agent_id,
        text=text,
        due_at_ms=found.at,
        cron=found.cron,
        channel=None,
        reply_to=None,
        created_at_ms=now,
        zone=zone,
    )
    return entry, found


def check_quiet(hours: str) -> str:
    """Return quiet hours as they are stored, or raise `InvalidInput`."""
    try:
        first, last = read_hours(hours)
    except ValueError:
        raise InvalidInput(
            f"{hours[:80]!r} are not valid quiet hours. Write two different times of the day, such "
            "as 22:00-08:00. Nothing was changed."
        ) from None
    return f"{first:%H:%M}-{last:%H:%M}"


def scheduled_text(entry: Schedule, found: FutureTime) -> str:
    """Return in words what was scheduled, in the time of its zone."""
    when = f"{weekday_text(entry.due_at_ms, zone_named(entry.zone))} ({entry.zone})"
    rule = f", then by the rule {entry.cron}" if entry.cron else ""
    moved = " That time has passed today, so it is tomorrow." if found.moved else ""
    return f"Scheduled for {when}{rule}, as {entry.id}.{moved}"


def _schedule_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    if arguments.get("operation") == "list":
        return [Effect(EffectKind.READ)]
    text = str(arguments.get("message") or "")
    amends = arguments.get("operation") == "cancel"
    return [Effect(EffectKind.REMEMBER, content=(text,) if text else (), amends=amends)]


@tool(
    transactional=True,
    trust=None,
    compact=f"{_REMINDER}|{_ABOUT_SCHEDULES}",
    effects=_schedule_effects,
    audience="public",
)
async def schedule(
    ctx: ToolContext,
    operation: Annotated[Literal["at", "in", "every", "list", "cancel"], OPERATION, WORD],
    when: Annotated[str, also("when", "time", "cron"), TEXT] = "",
    message: Annotated[str, also("message", "content", "text"), TEXT] = "",
    id: Annotated[str, also("id", "schedule_id"), TEXT] = "",
) -> str:
    """Send a message to yourself later: a reminder, a follow-up, something regular.

    Args:
        operation: at (a time), in (a duration), every (a rule), list, or cancel.
        when: Local time. at: "tomorrow at 9", "18:30". in: "20 minutes". every: "Monday at 8".
        message: What to tell yourself then.
        id: For cancel: which schedule, in words or by its id, or "latest".
    """
    if operation == "list":
        return await _list_schedules(ctx)
    if operation == "cancel":
        return await _cancel_schedule(ctx, id)
    zone = ctx.settings().zone_name
    try:
        entry, found = plan_schedule(
            ctx.agent.id, when, message, ctx.now_ms, zone, regular=operation == "every"
        )
    except InvalidInput as error:
        raise ToolError(error.message) from None
    channel, reply_to = await groups.address_of(ctx.tx, ctx.turn_id, ctx.channel, ctx.reply_to)
    entry = replace(
        entry,
        channel=channel,
        reply_to=reply_to,
        participants=ctx.participants.wire(ctx.source.audience, ctx.source.trust),
    )
    await messages.put_schedule(ctx.tx, entry)
    await groups.continue_exchange(
        ctx.tx, ctx.turn_id, delayed_message_id(entry.id), ctx.agent.id, ctx.now_ms
    )
    await ctx.tx.notify("schedule", entry.id)
    return scheduled_text(entry, found)


async def _visible_schedules(ctx: ToolContext) -> list[Schedule]:
    """Return what those present may know of: what was scheduled among others is theirs alone."""
    return [
        entry
        for entry in await messages.schedules_of(ctx.tx, ctx.agent.id)
        if label_of(entry.participants).flows_to(ctx.participants)
    ]


async def _list_schedules(ctx: ToolContext) -> str:
    entries = await _visible_schedules(ctx)
    labels = (label_of(entry.participants) for entry in entries)
    ctx.quotes(Source((), label.audience, label.trust) for label in labels)
    zone = ctx.settings().zone
    lines = [
        f"{entry.id}: {weekday_text(entry.due_at_ms, zone)}"
        f"{f' (by the rule {entry.cron})' if entry.cron else ''}: {entry.text}"
        for entry in entries
    ]
    return "\n".join(lines) or "Nothing is scheduled."


async def _cancel_schedule(ctx: ToolContext, id: str) -> str:
    entry = _meant(await _visible_schedules(ctx), id)
    if entry is not None:
        _check_cancel(ctx, entry)
    if entry is None or not await messages.cancel_schedule(ctx.tx, ctx.agent.id, entry.id):
        raise ToolError(f"There is no schedule {id[:80]!r}. Use operation list to see them.")
    return f"Schedule {entry.id} is cancelled: {entry.text}"


def _meant(entries: Sequence[Schedule], id: str) -> Schedule | None:
    """Return the schedule with an id, the latest, or the only one that shares words with a text."""
    if not id.strip() or not entries:
        return None
    if id == LATEST:
        return max(entries, key=lambda entry: (entry.created_at_ms, entry.id))
    if named := next((entry for entry in entries if entry.id == id), None):
        return named
    if id.startswith("sch_"):
        return None
    wanted = set(terms(id))
    counts = {entry.id: len(wanted & set(terms(entry.text))) for entry in entries}
    best = max(counts.values())
    found = [entry for entry in entries if counts[entry.id] == best]
    return found[0] if len(found) == 1 else None


def _check_cancel(ctx: ToolContext, entry: Schedule) -> None:
    """Return if a plan may be cancelled; else park the turn and ask, as for an edit of a block."""
    plan = Resource("schedule", entry.id, Permission.READ_WRITE, label_of(entry.participants).trust)
    try:
        judge(ctx.writer(), Act.OVERWRITE, plan, f"cancel schedule {entry.id}: {entry.text[:200]}")
    except WriteNeedsApproval as needed:
        ctx.ask(needed.question, needed.reviewers)


# -- what a message asks of the schedules ----------------------------------------------------------

_PLANNED = (
    r"(?:reminders?|alarms?|timers?|erinnerung(?:en)?|wecker|timer|recordatorios?|alarmas?|rappels?"
    r"|promemoria|sveglie?|lembretes?|alarmes?)"
)
_CANCEL = re.compile(
    r"\b(?:cancel|delete|remove|drop|l[oö]sch\w*|streich\w*|cancela|borra|elimina|quita|annule\w*"
    rf"|supprime\w*|annulla|cancella|apaga)\b[^.?!]{{0,40}}\b{_PLANNED}\b"
    rf"|\b{_PLANNED}\b[^.?!]{{0,30}}\b(?:abbrechen|l[oö]schen|stornieren|streichen)\b"
    r"|(?:リマインダー|アラーム|提醒|闹钟).{0,8}(?:キャンセル|削除|取り消|取消|删除)|取消.{0,8}(?:提醒|闹钟)",
    re.IGNORECASE,
)
_LIST = re.compile(
    r"\b(?:what|which|whats|any|anything|list|show|do i have|have i|are there)\b[^.!]{0,30}"
    rf"\b(?:{_PLANNED}|(?:planned|scheduled|coming up)(?: for (?:me|us|today|tomorrow)|\s*\?*$))"
    rf"|\b(?:welche|habe ich|zeig\w*|qu[eé]|cu[aá]les|tengo|quels?|ai-je|j'ai|quali|ho|quais|tenho)"
    rf"\b[^.!]{{0,30}}\b(?:{_PLANNED}|geplant|programado|pr[eé]vu|programmato|planejado)\b"
    r"|(?:リマインダー|予定).{0,6}(?:あり|何|見せ)|有什么(?:提醒|安排)",
    re.IGNORECASE,
)


def asked_of_schedules(message: str) -> Literal["list", "cancel", ""]:
    """Return whether a message asks to list what is planned, or to cancel some of it."""
    if message.startswith("[") or len(message) > _MAX_ASKED:
        return ""
    if _CANCEL.search(message) is not None:
        return "cancel"
    return "list" if _LIST.search(message) is not None else ""


_MAX_ASKED = 200
"""Characters; a longer message has more in it than that."""
_MAX_WORDS = 9
"""So many words may say when."""
_TIMER = re.compile(r"timer|alarm|wecker", re.IGNORECASE)
_SEGMENT_END = re.compile(
    r"(?<![\d])[.!?;\n]+(?=\s|$)|(?<=\d)[!?;\n]+(?=\s|$)|(?<=\d)\.(?=\s*$)|[。！？；]"
    r"|(?:^|(?<=\s))\(?\d\)\s|,?\s(?:and|und|y|et|e|then|dann)\s(?=(?:please |bitte )?(?:"
    + _REMINDER
    + r"))",
    re.IGNORECASE,
)
_BARE_DURATION = re.compile(
    r"(?:(?:\d+(?:\.\d+)?|an?) ?(?:second|minute|hour|day|week|month|year|[smhdw])\b(?: and)? ?)+"
)
_FILLER = re.compile(
    r"(?:[\s,:–-]|\b(?:please|pls|plz|to|bitte|por favor|per favore|stp|svp|for|by|then|me)\b)*",
    re.IGNORECASE,
)
_LEADING = re.compile(
    r"(?:please|pls|plz|bitte|por favor|per favore|to|that|about|of|for|and|und|daran|dass|an|zu"
    r"|de|que|qu'|di|che|d'|para|pour|per|et|y|e|me|with|mit|(?:can|could|would|will) you|kannst du"
    r"|aan herinneren|aan|dat)(?:\s+|(?<=')|$)|[\s,.:;–-]+",
    re.IGNORECASE,
)
_CHARACTERS_WHEN = re.compile(
    r"(?P<minutes>\d+)\s?分(?:後|钟后|鐘後|后)(?:に)?|(?P<hours>\d+)\s?(?:時間|个?小时|個小時)(?:後|后)(?:に)?"
    r"|(?P<day>今日|明日|明後日|今天|明天|后天|毎日|毎朝|每天)(?:の|的)?"
    r"(?P<half>朝|午前|午後|夜|早上|上午|下午|晚上)?(?:の)?(?P<hour>\d{1,2})\s?[時点](?P<past>半)?"
    r"(?:(?P<minute>\d{1,2})分)?(?:に)?"
)
_CHARACTERS_DAY = {
    **dict.fromkeys(("今日", "今天"), "today"),
    **dict.fromkeys(("明日", "明天"), "tomorrow"),
    **dict.fromkeys(("明後日", "后天"), "the day after tomorrow"),
    **dict.fromkeys(("毎日", "毎朝", "每天"), "every day"),
}


@dataclass(frozen=True, slots=True)
class Reminder:
    """A reminder that a message asks for, in the words of the message."""

    operation: Literal["at", "every"]
    when: str
    text: str


_NOT_WANTED = re.compile(
    r"\b(?:what|which|do i|do we|is there|are there|any|list|show|cancel|delete|remove|stop"
    r"|don'?t|do not|never|did|not|welche[rsn]?"
    r"|zeig\w*|l[oö]sch\w*|nicht|kein\w*|qu[eé]|no|muestra|quels?|ne|pas|annule|supprime|quali|non"
    r"|annulla|cancella|quais|n[aã]o|cancel[ae])\b|ないで|不要|别",
    re.IGNORECASE,
)
"""Words before or right after the ones that ask for a reminder which say that none is wanted."""


_PAST = re.compile(r"\b(?:yesterday|ago|gestern|ayer|ieri|ontem)\b|昨日|昨天", re.IGNORECASE)


def read_reminders(message: str, now: int, zone: tzinfo) -> list[Reminder]:
    """Return the reminders that a message asks for where it says exactly when, in its order.

    Where a sentence names no time, or more than one that may be meant, there is none.
    """
    if message.startswith("[") or not re.search(_REMINDER, message, re.IGNORECASE):
        return []  # what begins with a bracket was planned by an agent, or is from the system
    found: list[Reminder] = []
    start, segment = 0, ""
    for end in (*_SEGMENT_END.finditer(message), None):
        before = segment
        segment = message[start : end.start() if end is not None else len(message)]
        start = end.end() if end is not None else start
        cue = re.search(_REMINDER, segment, re.IGNORECASE)
        if cue is None:
            continue
        # "… in 10 minutes to turn the rice off and in 40 minutes to pick up Nils"
        first, *others = _AND_LATER.split(segment)
        parts = (
            [first, *(f"{cue[0]} {other}" for other in others)] if cue[0] in first else [segment]
        )
        for part in parts:
            cue = re.search(_REMINDER, part, re.IGNORECASE)
            reminder = _read_reminder(part, cue, before, now, zone) if cue is not None else None
            found += [reminder] if reminder is not None else []
    return found


_AND_LATER = re.compile(
    r",?\s(?:and|und|y|et|e)\s(?=in \d|in (?:an?|half) |at \d|um \d|tomorrow\b|tonight\b|en \d"
    r"|a las \d"
    r"|dans \d|à \d|tra \d|alle \d|às \d|morgen\b|mañana\b|demain\b|domani\b|amanhã\b)",
    re.IGNORECASE,
)


def _read_reminder(
    segment: str, cue: re.Match[str], before: str, now: int, zone: tzinfo
) -> Reminder | None:
    """Return the reminder that a sentence asks for; one about nothing is about that before it."""
    after = segment[cue.end() :].split(maxsplit=1)[:1]
    if _PAST.search(segment) or _NOT_WANTED.search(" ".join([segment[: cue.start()], *after])):
        return None
    if (written := _CHARACTERS_WHEN.search(segment)) is not None:
        times = [(written.start(), written.end(), _when_in_english(written))]
    else:
        times = _times_in(segment, now, zone, timer=_TIMER.search(cue[0]) is not None)
    if len(times) > 1:
        times = [
            (first, last, when)
            for first, last, when in times
            if _FILLER.fullmatch(segment[cue.end() : first] if first >= cue.end() else "x")
            or _FILLER.fullmatch(segment[last : cue.start()] if last <= cue.start() else "x")
        ]
    if len(times) != 1:
        return None
    first, last, when = times[0]
    if _DURATION_BEFORE.search(segment[:first]):
        return None  # "half an hour before 3 pm" is not at 3 pm
    when = _with_part_of_day(when, f"{segment[:first]} {segment[last:]}", now, zone)
    try:
        regular = read_future(when, now, zone).cron is not None
    except InvalidInput:
        return None
    cuts = sorted([(cue.start(), cue.end()), (first, last)])
    if cue.start() <= first and last <= cue.end():
        cuts[1] = (cue.end(), cue.end())  # "sag mir um 18 Uhr Bescheid"
    if cuts[0][1] > cuts[1][0]:
        return None
    text = f"{segment[: cuts[0][0]]} {segment[cuts[0][1] : cuts[1][0]]} {segment[cuts[1][1] :]}"
    # Without its time: the message that comes then must not ask for the same again.
    untimed = f"{segment[:first]} {segment[last:]}"
    matter = _matter(text) or _matter(before) or _matter(untimed)
    return Reminder("every" if regular else "at", when, matter)


_DURATION_BEFORE = re.compile(
    r"\b(?:minutes?|mins?|hours?|hour|hrs?|minuten|stunden?|minutos?|horas?|heures?|minuti|or[ae]"
    r"|uur) (?:before|vor|antes(?: d[eo]| da)?|avant|prima(?: di| delle)?|voor)\s*$",
    re.IGNORECASE,
)


def _with_part_of_day(when: str, rest: str, now: int, zone: tzinfo) -> str:
    """Return a time with the part of the day that is named elsewhere in its sentence, if any."""
    part = _PART_OF_DAY.search(in_plain_english(rest))
    if part is None or _PART_OF_DAY.search(in_plain_english(when)):
        return when
    fuller = f"{when} {part[0]}"
    return fuller if _is_time(fuller, now, zone, timer=False) else when


_PART_OF_DAY = re.compile(r"\b(?:afternoon|evening|tonight)\b")


def _times_in(segment: str, now: int, zone: tzinfo, *, timer: bool) -> list[tuple[int, int, str]]:
    """Return the longest runs of words that say when, each with its place."""
    words = list(re.finditer(r"[^\s,;]+", segment))
    found: list[tuple[int, int, str]] = []
    place = 0
    while place < len(words):
        for size in range(min(_MAX_WORDS, len(words) - place), 0, -1):
            first, last = words[place].start(), words[place + size - 1].end()
            when = segment[first:last].rstrip(".!?:")
            if _is_time(when, now, zone, timer=timer):
                found.append((first, last, when))
                place += size - 1
                break
        place += 1
    return found


def _is_time(when: str, now: int, zone: tzinfo, *, timer: bool) -> bool:
    if not timer and _BARE_DURATION.fullmatch(in_plain_english(when)):
        return False  # how long something takes
    try:
        read_future(when, now, zone)
    except InvalidInput:
        return False
    return True


def _when_in_english(written: re.Match[str]) -> str:
    """Return a time that is written in Japanese or Chinese as `read_future` reads it."""
    if written["minutes"] or written["hours"]:
        unit = "minutes" if written["minutes"] else "hours"
        return f"in {written['minutes'] or written['hours']} {unit}"
    hour = int(written["hour"])
    if written["half"] in ("午後", "夜", "下午", "晚上") and hour < 12:
        hour += 12
    minute = 30 if written["past"] else int(written["minute"] or 0)
    return f"{_CHARACTERS_DAY[written['day']]} at {hour}:{minute:02}"


def _matter(text: str) -> str:
    """Return what a reminder is about, without the words that lead to it."""
    text = " ".join(text.split())
    for _ in range(6):
        if not text or (leading := _LEADING.match(text)) is None or not leading[0]:
            break
        text = text[leading.end() :]
    return _TRAILING.sub("", text).strip(" ,.!?;:。、")


_TRAILING = re.compile(
    r"(?:[\s,]+(?:so|and|please|bitte|(?:can|could|would|will) you|erinnern|herinneren))+\W*$",
    re.IGNORECASE,
)


# -- what else moves or stops an agent -------------------------------------------------------------


@tool(
    transactional=True,
    trust=None,
    compact=r"\bheartbeat\b|\banother turn\b|\bkeep (?:going|working)\b",
    effects=ToolEffect("remember", content="reason"),
)
async def heartbeat(ctx: ToolContext, reason: str) -> str:
    """Ask for another turn of your own right after this one, to go on with longer work.

    Args:
        reason: What you will do in that turn; you will read it then.
    """
    channel, reply_to = await groups.address_of(ctx.tx, ctx.turn_id, ctx.channel, ctx.reply_to)
    message_id = new_id("msg")
    item = await messages.put_message(
        ctx.tx,
        ctx.agent.id,
        message_id,
        message_wire("user", f"{HEARTBEAT}{reason}"),
        MessageOrigin(channel or "heartbeat", reply_to=reply_to),
        ctx.now_ms,
        participants=ctx.participants.wire(ctx.source.audience, ctx.source.trust),
    )
    if item is None:
        raise ToolError("This agent has been deleted.")
    await groups.continue_exchange(ctx.tx, ctx.turn_id, message_id, ctx.agent.id, ctx.now_ms)
    return "You will get another turn after this one."


def _halt_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    del arguments
    return [Effect(EffectKind.WRITE, things=("the whole constellation",))]


@tool(transactional=True, trust=None, compact=False, reserved=True, effects=_halt_effects)
async def halt(
    ctx: ToolContext,
    reason: Annotated[str, also("reason", "message"), TEXT],
    severity: Annotated[
        Literal["warning", "high", "critical"], null_as("critical"), WORD
    ] = "critical",
) -> str:
    """Stop all agents at once, until the owner lets them go on. Only for real danger."""
    if not reason.strip():
        raise ToolError("Why shall everything stop? Give `reason`; the owner reads it.")
    await agents.put_halt(
        ctx.tx, Halt(new_id("halt"), ctx.agent.id, ctx.turn_id, severity, reason, ctx.now_ms)
    )
    await agents.put_notice(
        ctx.tx,
        Notice(
            new_id("ntc"),
            ctx.agent.id,
            ctx.turn_id,
            "halt",
            f"{ctx.agent.name} has halted everything ({severity}): {reason} No agent takes a turn "
            'until you say "asterism resume".',
            ctx.now_ms,
        ),
    )
    return "Everything is halted after this turn. The owner has been told."


@tool(repeatable=True, trust=None, compact=False, effects=ToolEffect("read"), audience="public")
async def think(ctx: ToolContext, thought: Annotated[str, also("thought", "content"), TEXT]) -> str:
    """Think something through before you act. Nothing else happens."""
    del ctx, thought  # the call itself is in the log
    return "Noted."


TOOLS: list[Tool] = [schedule, heartbeat, halt, think]
