"""The tool `where_was_i`: the work before an interruption, from tasks and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from asterism.memory.words import terms
from asterism.records import dataclass
from asterism.store import journal
from asterism.store.groups import role_tools
from asterism.store.journal import VisibleEntry
from asterism.times import MINUTE, to_datetime, weekday_text
from asterism.tools.builtin.arguments import TEXT, also
from asterism.tools.planning.records import (
    TASKS,
    figure_of,
    moment_of,
    number_of,
    open_rows,
    tool_errors,
)
from asterism.tools.planning.tasks import is_active, minutes_text, spent_minutes
from asterism.tools.tool import NothingFound, ToolContext, tool
from asterism.types.agents import Audience
from asterism.types.groups import LEADING, RESERVED_FOR_ROLES
from asterism.types.memory import Source
from asterism.types.permissions import ToolEffect
from asterism.types.search import Query
from asterism.types.turns import HEARTBEAT, MARK, SCHEDULED, EntryKind, speaker_and_text

BREAK = 30 * MINUTE
"""After so long without a message, a new conversation begins."""
_MAX_ENTRIES = 400
"""So many of the newest entries of a journal are looked at."""
_NOT_SAID = (SCHEDULED, HEARTBEAT, "[calls ", MARK)
"""How entries begin that nobody said: what was planned, calls alone, words of the system."""
_NAME = "where_was_i"
_MAX_QUOTED = 300
_MAX_MESSAGES = 8


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a conversation."""

    seq: int
    at_ms: int
    speaker: str
    text: str
    source: Source


def conversations(messages: Sequence[Said]) -> list[list[Said]]:
    """Return messages in groups: a break of half an hour ends one."""
    groups: list[list[Said]] = []
    for message in messages:
        if not groups or message.at_ms - groups[-1][-1].at_ms >= BREAK:
            groups.append([])
        groups[-1].append(message)
    return groups


def conversation_about(groups: Sequence[Sequence[Said]], text: str) -> Sequence[Said]:
    """Return the newest conversation that has most of the words of a text; else the newest."""
    wanted = set(terms(text))
    if not groups:
        return ()
    if not wanted:
        return groups[-1]
    counts = [
        len(wanted & {term for message in group for term in terms(message.text)})
        for group in groups
    ]
    best = max(counts)
    return groups[max(place for place, count in enumerate(counts) if count == best)]


def latest_work(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the task that is under way, or else the open one that was worked on last."""
    open_tasks = [row for row in rows if not row.get("done")]
    active = [row for row in open_tasks if is_active(row)]
    if active:
        return active[-1]
    begun = [row for row in open_tasks if figure_of(row, "spent")]
    return max(begun, key=lambda row: moment_of(row, "touched") or 0, default=None)


@tool(
    transactional=True,
    trust=None,
    compact=True,
    effects=ToolEffect("read"),
    reserved=True,
    audience="owner",
    changes_by_itself=True,
)
async def where_was_i(
    ctx: ToolContext,
    about: Annotated[str, also("about", "query", "topic", "text"), TEXT] = "",
) -> str:
    """Find what your owner was doing before they were interrupted, to help them back into it.

    Args:
        about: What it was about, if your owner says so; else leave it out.
    """
    with tool_errors(ctx):
        rows = (await open_rows(ctx, TASKS)).rows
        current = latest_work(rows)
        if about.strip():
            named = set(terms(about))
            fitting = [row for row in rows if named & set(terms(str(row.get("title"))))]
            current = latest_work(fitting) or next(
                (row for row in reversed(fitting) if not row.get("done")), None
            )
        told = _task_text(ctx, rows, current) if current is not None else []
        topic = about or _topic(rows, current)
        told += await _conversation(ctx, topic)
    if not told:
        return NothingFound("Nothing is known of it. Ask what your owner last remembers doing.")
    return "\n".join((*told, "Tell your owner this in two or three sentences, the next step last."))


def _topic(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any] | None) -> str:
    """Return the words that a task is known by: its title, and that of what it is a step of."""
    if row is None:
        return ""
    parent = figure_of(row, "part_of")
    titles = [str(other.get("title")) for other in rows if parent and number_of(other) == parent]
    return " ".join((str(row.get("title")), *titles))


def _task_text(
    ctx: ToolContext, rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]
) -> list[str]:
    zone = ctx.settings().zone
    state = "under way" if is_active(row) else "paused"
    touched = moment_of(row, "touched")
    when = f", last worked on {weekday_text(touched, zone)}" if touched is not None else ""
    spent = minutes_text(spent_minutes(row, ctx.now_ms))
    told = [f"Task {number_of(row)}: {row.get('title')} ({state}, {spent} so far{when})."]
    family = int(figure_of(row, "part_of") or number_of(row))
    steps = [other for other in rows if figure_of(other, "part_of") == family]
    whole = next((other for other in rows if number_of(other) == family), None)
    if whole is not None and whole is not row:
        told.append(f"It is a step of task {family}: {whole.get('title')}.")
    if done := [str(step.get("title")) for step in steps if step.get("done")]:
        told.append(f"Done so far: {'; '.join(done[-6:])}.")
    left = [step for step in steps if not step.get("done") and step is not row]
    if left:
        told.append(f"Then: {number_of(left[0])} {left[0].get('title')}.")
    return told


async def _conversation(ctx: ToolContext, topic: str) -> list[str]:
    """Return what was said last about a topic, before this turn."""
    messages = await _messages(ctx)
    group = conversation_about(conversations(messages), topic)
    if topic.strip() and not _mentions(group, topic):
        found = await _search(ctx, messages, topic)
        group = found or await _search_elsewhere(ctx, topic) or group
    if not group:
        return []
    shown = list(group)[-_MAX_MESSAGES:]
    ctx.quotes(message.source for message in shown)
    zone = ctx.settings().zone
    lines = [f"Said on {weekday_text(shown[0].at_ms, zone)}:"]
    for message in shown:
        text = " ".join(message.text.split())
        cut = f"{text[:_MAX_QUOTED]}…" if len(text) > _MAX_QUOTED else text
        lines.append(f"{to_datetime(message.at_ms, zone):%H:%M} {message.speaker}: {cut}")
    return lines


def _mentions(group: Sequence[Said], topic: str) -> bool:
    wanted = set(terms(topic))
    return any(wanted & set(terms(message.text)) for message in group)


async def _messages(ctx: ToolContext) -> list[Said]:
    """Return what was said in the newest part of the journal, as far as those present may see."""
    length = await journal.length_of(ctx.tx, ctx.agent.id)
    entries = await journal.visible_entries(
        ctx.tx, ctx.agent.id, 1, max(1, length), newest=_MAX_ENTRIES
    )
    said: list[Said] = []
    told = {entry.turn_id for entry in entries if _calls_itself(entry)}
    for entry in entries:
        source = Source((), Audience.of_turn(entry.audience), entry.trust)
        if (
            entry.turn_id == ctx.turn_id
            or entry.turn_id in told
            or entry.kind is EntryKind.RESULT
            or not ctx.participants.can_see(source.audience)
        ):
            continue
        speaker, text = speaker_and_text(entry.body)
        if text.strip() and not text.startswith(_NOT_SAID):
            said.append(Said(entry.seq, entry.at_ms, speaker, _words(text), source))
    return said


def _calls_itself(entry: VisibleEntry) -> bool:
    """Tell whether an entry calls this tool: asking for the work is not the work."""
    text = speaker_and_text(entry.body)[1]
    return entry.kind is EntryKind.REPLY and text.startswith("[calls ") and _NAME in text


def _words(text: str) -> str:
    """Return what was said in a group without what asterism has put around it for its leader."""
    _, bracket, rest = text.partition("] ") if text.startswith("[group ") else ("", "", text)
    return rest.partition(f"\n\n{LEADING}")[0] if bracket else text


async def _search_elsewhere(ctx: ToolContext, topic: str) -> Sequence[Said]:
    """Return what other agents have heard of it, for whoever may search what all remember."""
    from asterism.search.search import search  # its patterns take long to compile

    if RESERVED_FOR_ROLES["memory_management"] not in await role_tools(ctx.tx, ctx.agent.id):
        return ()
    found = await search(
        ctx.tx,
        None,
        Query(topic, domains=("messages",), limit=_MAX_MESSAGES),
        participants=ctx.participants,
        now=ctx.now_ms,
        zone=ctx.settings().zone,
    )
    hits = [hit for hit in found.hits if hit.agent_id != ctx.agent.id]
    near = [hit for hit in hits if abs(hit.at_ms - hits[0].at_ms) < BREAK]
    return [
        Said(0, hit.at_ms, hit.speaker or "person", _words(hit.text), hit.source)
        for hit in sorted(near, key=lambda hit: hit.at_ms)
    ]


async def _search(ctx: ToolContext, messages: Sequence[Said], topic: str) -> Sequence[Said]:
    """Return the conversation around the best hit of a search for older ones."""
    from asterism.search.search import search  # its patterns take long to compile

    found = await search(
        ctx.tx,
        ctx.agent.id,
        Query(topic, domains=("messages",), limit=5),
        participants=ctx.participants,
        now=ctx.now_ms,
        zone=ctx.settings().zone,
    )
    for hit in found.hits:
        if hit.id.startswith(f"{ctx.turn_id}#"):
            continue
        near = [message for message in messages if abs(message.at_ms - hit.at_ms) < BREAK]
        if near:
            return near
        return [Said(0, hit.at_ms, hit.speaker or "person", hit.text, hit.source)]
    return ()
