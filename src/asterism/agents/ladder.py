"""The ladder: what a turn does about rules that its agent does not keep.

First the refused call says what is right. The second time the agent is reminded. The third time the
tool that a rule wants is called for it, the way the agent itself would call it. Each rung is an
entry in the journal, so that a crash neither repeats nor skips one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from asterism.agents.rules import Due
from asterism.agents.trail import RUN, Refusal
from asterism.agents.turn import Turn
from asterism.agents.verdicts import Attempt
from asterism.errors import ToolError, TurnLimit
from asterism.store import rules
from asterism.tools.tool import Tool
from asterism.types.effects import EffectKind
from asterism.types.rules import rules_text
from asterism.types.turns import Call, EntryKind, Reply, RetrySafety

BY_RULE = "asterism:rules"
"""Who is named as the model of a reply that a rule has made."""
GIVEN = "rules"
"""The entry with the rules that a turn began with, and what they look at."""
_REMINDED = 2
"""The step from which on an agent is reminded."""
_FORCED = 3
_ENDED = 5
"""The step in which a turn ends whose agent goes on with what it must not do."""
_LONGEST_CLOSING = 2_000


def attempt_of(tool: Tool, call: Call, arguments: dict[str, Any]) -> Attempt:
    """Return a call as rules look at it; the arguments as its tool reads them."""
    operation = arguments.get("operation")
    outside = tool.retry_safety in (RetrySafety.UNKNOWN, RetrySafety.CHECKABLE) and any(
        one.kind.outside and one.kind is not EffectKind.FETCH for one in tool.effects(arguments)
    )
    named = None if operation is None else str(operation)
    return Attempt(call.name, call.arguments, named, outside)


def refusal(turn: Turn, attempt: Attempt, pending: Sequence[Attempt]) -> Refusal | None:
    """Return why rules are against a call; see `Course.refusal`."""
    if not (turn.course.rules or attempt.outside):
        return None
    turn.course.read(turn.recorded)
    return turn.course.refusal(attempt, turn.means.clock(), pending)


async def begin(turn: Turn) -> None:
    """Learn what rules look at beyond the turn, and note it for whoever replays the turn."""
    course = turn.course
    if not course.rules:
        return
    ran: dict[str, int] = {}
    if course.looks_back:
        ran = await turn.means.database.read(lambda tx: rules.ran(tx, turn.agent.id))
        course.look_back(ran)
    if GIVEN not in turn.recorded:
        kept = {"rules": rules_text(turn.agent.rules), "tools": course.tools, "ran": ran}
        turn.stage(EntryKind.ONCE, GIVEN, orjson.dumps(kept))


def remind(turn: Turn, step: int) -> None:
    """Climb a rung for each rule that calls of a step did not keep; may end the turn."""
    turn.course.read(turn.recorded)
    key = f"{step}/rules"
    if not turn.course.trail.refused or key in turn.recorded:
        return
    broken = [one for one in turn.course.broken(step) if one[0] >= _REMINDED]
    if not broken:
        return
    said = " ".join(dict.fromkeys(_lesson(refused) for _, refused in broken))
    for count, refused in broken:
        if refused.needs is None:
            if count >= _ENDED:
                raise TurnLimit(_stopped(f"in {count} steps I did what a rule forbids. {said}"))
        elif count >= _FORCED:
            name = _force(turn, step, (refused.needs,))
            if name is None:
                raise TurnLimit(_stopped(f"in {count} steps I did not keep a rule. {said}"))
            turn.tell(key, f"{said} {name} is called for you now.")
            return
    turn.tell(key, f"For the second time or more: {said}")


async def may_end(turn: Turn, step: int) -> bool:
    """Tell whether a turn may end with its answer; if not, the agent is reminded or helped."""
    course, key = turn.course, f"{step}/due"
    if not course.rules:
        return True
    if key in turn.recorded:
        return False
    course.read(turn.recorded)
    due = course.due(turn.means.clock())
    if not due:
        return True
    said = " ".join(str(one) for one in due)
    if _count(turn, "/due") < _REMINDED:
        turn.tell(key, f"The turn cannot end yet. {said} Call it now, and give your answer after.")
        await turn.flush()
        return False
    name = next((name for one in due if (name := _force(turn, step, one.tools))), None)
    if name is not None:
        turn.tell(key, f"{said} {name} is called for you now; give your answer after.")
        await turn.flush()
        return False
    if all(_was_tried(turn, one) for one in due):
        turn.notify_owner(
            "rule.unmet",
            f"{turn.agent.name} ended a turn although a rule wants more, since the tool failed: "
            f"{said} (turn {turn.id})",
        )
        return True
    raise TurnLimit(_stopped(f"I did not call what a rule wants before the turn ends. {said}"))


def forced(turn: Turn, step: int) -> Reply | None:
    """Return the call that is made for the agent in this step, as if it had made it."""
    entry = turn.recorded.get(f"{step - 1}/force")
    if entry is None:
        return None
    call = Call(f"rule_{turn.id[-8:]}_{step}", entry.body.decode(), "{}")
    return Reply(calls=(call,), model=BY_RULE, finish="tool_calls")


async def closing(turn: Turn, step: int, reply: Reply) -> Reply | None:
    """Return the answer that a turn ends with since a tool of it ends turns, or None."""
    if not turn.course.rules or turn.schema is not None:
        return None
    turn.course.read(turn.recorded)
    made, key = turn.course.ended(), f"{step + 1}/reply"
    if made is None or turn.course.due(turn.means.clock()):
        return None
    if (former := turn.recorded.get(key)) is not None:
        said = Reply.from_entry(former.body, former.meta)
        return said if said.model == BY_RULE and not said.calls else None
    if reply.text:
        return reply

    async def result() -> Reply:
        return Reply(text=made.said[:_LONGEST_CLOSING], model=BY_RULE)

    return await turn.once(key, result)


def _force(turn: Turn, step: int, tools: tuple[str, ...]) -> str | None:
    """Have a tool called in the next step that leads to one of these; None if none can be."""
    course, now = turn.course, turn.means.clock()
    forced_before = {
        entry.body.decode() for key, entry in turn.recorded.items() if key.endswith("/force")
    }
    for wanted in tools:
        name = course.first_step(wanted, now)
        if name is not None and name not in forced_before and _takes_nothing(turn, name):
            turn.stage(EntryKind.ONCE, f"{step}/force", name.encode())
            return name
    return None


def _takes_nothing(turn: Turn, name: str) -> bool:
    """Tell whether a tool can be called without arguments."""
    tool = turn.means.toolbox.get(name, turn.agent.tools)
    if tool is None:
        return False
    try:
        tool.read("{}")
    except ToolError:
        return False
    return True


def _was_tried(turn: Turn, due: Due) -> bool:
    return any(turn.course.trail.any(name, RUN) for name in due.tools)


def _count(turn: Turn, ending: str) -> int:
    return sum(key.endswith(ending) for key in turn.recorded)


def _lesson(refused: Refusal) -> str:
    """Return what a refusal says, without the words with which every refusal begins."""
    said = refused.text.removeprefix("Error: not run, ").removeprefix("by a rule for your tools: ")
    return said[:1].upper() + said[1:]


def _stopped(why: str) -> str:
    return (
        f"I had to stop: {why} What was done so far is kept. Ask me to go on, or change the rules "
        'with "asterism rule".'
    )
