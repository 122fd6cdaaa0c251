"""Sleeptime: cheap rules watch what members do, and a member is asked only when one fires."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from asterism import plugins
from asterism.groups.options import PatternOptions, nobody, problem_of
from asterism.patterns import MAX_WORK, InvalidPattern, RegularExpression, compile_pattern
from asterism.types.groups import (
    GroupActivity,
    GroupDecision,
    GroupRecord,
    GroupState,
    MemberQuestion,
    QuestionState,
)

_RULES = "group_rules"
"""The kind of plugins whose functions rules may call."""
CHECK_INTERVAL = 1_200.0
"""Seconds between two looks, unless the group says otherwise."""
CONDITIONS = ("time_elapsed", "messages", "silence", "pattern", "threshold", "custom")
PRIORITIES = ("low", "medium", "high", "critical")
METRICS = ("messages", "failed_turns", "tokens", "open_turns", "waiting")
NOTHING = "NOTHING"
"""What a member answers that has nothing to say."""
_DUTIES = (
    "Look at what happened, consolidate memory (keep what lasts, correct what is outdated), and "
    "check whether somebody should be told something."
)


class SleeptimePattern:
    """Looks at rules in the background; the first that fires begins a turn."""

    member_options = ("agent",)

    def check(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the interval, the member that is asked, and the rules."""
        read = PatternOptions("sleeptime", options)
        read.number("check_interval", 1, 30 * 86_400)
        read.text("agent")
        read.text("instructions")
        read.number("cooldown", 0, 30 * 86_400)
        tables = read.tables("triggers")
        triggers = [_check_trigger(number, table) for number, table in enumerate(tables)]
        return {**read.done(), "triggers": triggers} if triggers else read.done()

    def next_look(self, group: GroupRecord, now_ms: int) -> int:
        """Return when to look again."""
        return now_ms + int(float(group.options.get("check_interval", CHECK_INTERVAL)) * 1_000)

    def watch(self, group: GroupRecord, activity: GroupActivity) -> str | None:
        """Return the message that begins a turn, of the most urgent rule that fires."""
        cooldown = float(group.options.get("cooldown", 0)) * 1_000
        if activity.now_ms - activity.since_ms < cooldown:
            return None
        fired = [
            trigger for trigger in group.options.get("triggers", ()) if _fires(trigger, activity)
        ]
        if not fired:
            return None
        first = max(fired, key=lambda trigger: PRIORITIES.index(trigger["priority"]))
        return f"{first['name']}: {_why(first, activity)}"

    def decide(self, state: GroupState) -> GroupDecision:
        """Ask the member that looks after things; say nothing if it has nothing to say."""
        if not state.asked:
            wanted = state.member(str(state.option("agent", "")))
            chosen = wanted if wanted is not None and wanted.takes_part else state.supervisor
            chosen = chosen or next(iter(state.members), None)
            if chosen is None:
                return GroupDecision("Nobody can be asked.", failure=nobody(state))
            duties = str(state.option("instructions", _DUTIES))
            text = (
                f"[group {state.group.name}, in the background] {state.message}\n\n{duties}\n"
                f"If there is nothing that somebody has to be told, answer {NOTHING} alone."
            )
            return GroupDecision(
                f"{chosen.name} looks after it.",
                asks=(MemberQuestion("watch/0", chosen.agent_id, text),),
            )
        asked = state.asked[0]
        if state.pending:
            return GroupDecision(f"{asked.name} is at work.")
        if asked.state is not QuestionState.DONE:
            return GroupDecision(
                f"{asked.name} gave no answer.", failure=f"Not done: {problem_of(asked)}"
            )
        if asked.answer.strip().strip(".!\"'*").upper() == NOTHING:
            return GroupDecision(f"{asked.name} has nothing to say.", answer="")
        return GroupDecision(f"{asked.name} has something to say.", answer=asked.answer)


def _check_trigger(number: int, table: dict[str, Any]) -> dict[str, Any]:
    condition = table.pop("condition", None)
    if isinstance(condition, Mapping):
        table = {**cast("Mapping[str, Any]", condition), **table}
        condition = table.pop("type", None)
    read = PatternOptions(f"sleeptime, rule {number + 1}", table)
    if condition not in CONDITIONS:
        raise read.fault("condition", condition, f"one of {', '.join(CONDITIONS)}")
    read.text("name")
    read.choice("priority", *PRIORITIES)
    needs = {
        "time_elapsed": "seconds",
        "silence": "seconds",
        "messages": "count",
        "pattern": "pattern",
        "threshold": "metric",
        "custom": "function",
    }[condition]
    read.number("seconds", 1, 365 * 86_400)
    read.count("count")
    read.text("pattern")
    read.choice("metric", *METRICS)
    read.number("above", 0, 1e15)
    read.text("function")
    checked = read.done()
    if needs not in checked or (condition == "threshold" and "above" not in checked):
        raise read.fault(needs, checked.get(needs), f"{needs} for the condition {condition}")
    if condition == "pattern":
        try:
            _compiled(checked["pattern"])
        except InvalidPattern as error:
            what = f"a regular expression ({error})"
            raise read.fault("pattern", checked["pattern"], what) from None
    if condition == "custom" and checked["function"] not in (known := plugins.names(_RULES)):
        installed = ", ".join(known) or "none"
        what = f"the name of a plugin for {_RULES} that is installed ({installed})"
        raise read.fault("function", checked["function"], what)
    return {"name": f"rule {number + 1}", "priority": "medium", **checked, "condition": condition}


def _fires(trigger: Mapping[str, Any], activity: GroupActivity) -> bool:
    """Tell whether a rule fires; it looks at what happened since a rule last fired."""
    match trigger["condition"]:
        case "time_elapsed":
            return activity.now_ms - activity.since_ms >= trigger["seconds"] * 1_000
        case "messages":
            return activity.messages >= trigger["count"]
        case "silence":
            last = activity.last_message_ms
            if last is None:
                return False
            silent_at = last + trigger["seconds"] * 1_000
            # A silence that a firing came upon was looked at then; one that fell later was not.
            return activity.since_ms < silent_at <= activity.now_ms
        case "pattern":
            try:
                pattern = _compiled(trigger["pattern"])
            except InvalidPattern:  # of a group that was stored before this was refused
                return False
            return any(pattern.search(text[:_MAX_MATCHED]) for text in activity.texts)
        case "threshold":
            return activity.metrics.get(trigger["metric"], 0.0) > trigger["above"]
        case _:
            return bool(_function(trigger["function"])(activity))


_MAX_MATCHED = 10_000
"""Characters of a text that are looked at."""


def _compiled(pattern: str) -> RegularExpression:
    compiled = compile_pattern(pattern, "i")
    if compiled.work("€" * _MAX_MATCHED) > MAX_WORK:
        raise InvalidPattern("it is too large; use lower counts")
    return compiled


def _why(trigger: Mapping[str, Any], activity: GroupActivity) -> str:
    """Say in words why a rule fires."""
    match trigger["condition"]:
        case "time_elapsed":
            return f"{trigger['seconds']:g} seconds have passed since the last look that mattered."
        case "messages":
            return f"{activity.messages} messages came in."
        case "silence":
            return f"Nobody has said anything for {trigger['seconds']:g} seconds."
        case "pattern":
            return f"A message matches {trigger['pattern']!r}."
        case "threshold":
            metric = trigger["metric"]
            return f"{metric} is {activity.metrics.get(metric, 0):g}, above {trigger['above']:g}."
        case _:
            return f"{trigger['function']} says so."


def _function(name: str) -> Callable[[GroupActivity], object]:
    """Return a function that a package offers: whoever makes a group may name no other code."""
    return cast("Callable[[GroupActivity], object]", plugins.load(_RULES, name))
