"""Dynamic: a selector chooses who answers each message, unless it addresses somebody by name."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from asterism.groups.capabilities import matches
from asterism.groups.options import PatternOptions, from_speaker, nobody, problem_of, with_names
from asterism.times import MINUTE
from asterism.types.groups import (
    AskedQuestion,
    GroupDecision,
    GroupMember,
    GroupState,
    MemberQuestion,
    QuestionState,
)

SELECTORS = ("random", "load_balancing", "capability", "supervisor")
_MAX_KEPT = 1_000
"""Choices that the selector `load_balancing` looks back at."""
_WORD = re.compile(r"\w")
_GREETING = r"(?:hey|hi|hello|dear|ok|okay)?[\s,]*"


class DynamicPattern:
    """Asks those whom the message names, else those whom its selector chooses."""

    member_options = ("supervisor",)

    def check(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the selector, what it needs, and when a conversation ends."""
        read = PatternOptions("dynamic", options)
        read.choice("selector", *SELECTORS)
        read.count("count", most=100)
        read.number("window", 1, 86_400)
        read.text("supervisor")
        read.choice("fallback", "supervisor", "all", "random", "fail")
        read.count("max_turns", most=100)
        read.text("termination_token")
        return read.done()

    def decide(self, state: GroupState) -> GroupDecision:
        """Choose who answers; after their answers, go on with the conversation or end it."""
        if state.pending:
            return GroupDecision("Members are at work.")
        if not state.members:
            return GroupDecision("Nobody can be asked.", failure=nobody(state))
        rounds = _rounds(state)
        spoken = [asked for asked in state.asked if asked.key.startswith("round/")]
        ended = _ended(state, spoken, rounds)
        if ended is not None:
            return ended
        named, why = _addressed(state) if rounds == 0 else ([], "")
        if named:
            return self._ask(state, named, why, rounds)
        return self._select(state, rounds)

    def _select(self, state: GroupState, rounds: int) -> GroupDecision:
        selector = state.option("selector", "capability")
        count = int(state.option("count", 1))
        if selector == "supervisor":
            return self._by_supervisor(state, rounds)
        if selector == "random":
            chosen = _draw(state, state.members, count, f"{rounds}")
            return self._ask(state, chosen, "drawn at random.", rounds)
        if selector == "load_balancing":
            return self._ask(state, *_least_used(state, count), rounds)
        text = state.message if rounds == 0 else state.asked[-1].answer
        found = matches(text, state.members)
        if found:
            why = "; ".join(f"{match.member.name}: {match.reason}" for match in found[:count])
            return self._ask(state, [match.member for match in found[:count]], why, rounds)
        return self._fallback(state, "no capability of a member fits the message", rounds)

    def _by_supervisor(self, state: GroupState, rounds: int) -> GroupDecision:
        """Let the supervisor choose, by structured output."""
        chooser = state.member(str(state.option("supervisor", ""))) or state.supervisor
        if chooser is None or not chooser.takes_part:
            return self._fallback(state, "there is no supervisor who could choose", rounds)
        asked = state.find(f"choice/{rounds}")
        if asked is None:
            return GroupDecision(
                f"{chooser.name} chooses who answers.",
                asks=(_choice(state, chooser, rounds),),
                notes={"agents": {member.name: member.agent_id for member in state.members}},
            )
        # The names are those that the question gave; a member may have another one by now.
        offered: Mapping[str, str] = state.notes.get("agents", {})
        chosen = [offered.get(name, name) for name in _chosen(asked)]
        members = [member for each in chosen if (member := state.member(each)) is not None]
        members = [member for member in dict.fromkeys(members) if member.takes_part]
        if not members:
            return self._fallback(state, f"{chooser.name} has chosen nobody who can answer", rounds)
        return self._ask(state, members, f"{chooser.name} has chosen.", rounds)

    def _fallback(self, state: GroupState, why: str, rounds: int) -> GroupDecision:
        """Ask whom the option `fallback` says, when nobody was chosen."""
        fallback = state.option("fallback", "supervisor")
        if fallback == "fail":
            return GroupDecision(
                f"Nobody answers, since {why}.",
                failure=f"Nobody in the group {state.group.name} can answer this: {why}. Address "
                "somebody by name, or set the option fallback.",
            )
        if fallback == "all":
            return self._ask(state, state.members, f"{why}, so that all are asked.", rounds)
        if fallback == "supervisor" and (leader := state.supervisor) is not None:
            return self._ask(state, [leader], f"{why}; the supervisor gets it.", rounds)
        drawn = _draw(state, state.members, 1, f"fallback/{rounds}")
        return self._ask(state, drawn, f"{why}; {drawn[0].name} was drawn.", rounds)

    def _ask(
        self, state: GroupState, chosen: Sequence[GroupMember], why: str, rounds: int
    ) -> GroupDecision:
        earlier = [asked for asked in state.asked if asked.key.startswith("round/")]
        said = "\n\n".join(f"{asked.name} said: {asked.answer}" for asked in earlier)
        text = from_speaker(state) + (f"\n\n{said}" if said else "")
        kept = list(state.group.memory.get("chosen", ()))
        kept += [[member.agent_id, state.now_ms] for member in chosen]
        names = ", ".join(member.name for member in chosen)
        return GroupDecision(
            f"{names}: {why}",
            asks=tuple(
                MemberQuestion(f"round/{rounds}/{member.agent_id}", member.agent_id, text)
                for member in chosen
            ),
            memory={"chosen": kept[-_MAX_KEPT:]},
        )


def _rounds(state: GroupState) -> int:
    """Return how many rounds of answers there were."""
    return len({asked.key.split("/")[1] for asked in state.asked if asked.key.startswith("round/")})


def _ended(state: GroupState, spoken: list[AskedQuestion], rounds: int) -> GroupDecision | None:
    """Return how the turn ends, if it does: by the number of rounds, or by the token."""
    if not rounds:
        return None
    latest = [asked for asked in spoken if asked.key.startswith(f"round/{rounds - 1}/")]
    answered = [asked for asked in latest if asked.state is QuestionState.DONE]
    if not answered:
        return GroupDecision(
            "Nobody of those who were asked gave an answer.",
            failure="I could not answer: " + " ".join(problem_of(asked) for asked in latest),
        )
    token = str(state.option("termination_token", ""))
    done = [asked for asked in spoken if asked.state is QuestionState.DONE]
    ends = bool(token) and any(token in asked.answer for asked in answered)
    if not ends and rounds < int(state.option("max_turns", 1)):
        return None
    if token:
        told = [replace(asked, answer=asked.answer.replace(token, "").strip()) for asked in done]
        done = [asked for asked in told if asked.answer] or done
    reason = (
        "The token that ends a conversation was said." if ends else "Those asked have answered."
    )
    return GroupDecision(reason, answer=with_names(done))


def _addressed(state: GroupState) -> tuple[list[GroupMember], str]:
    """Return those whom a message addresses: @all, @name, or a name at its beginning."""
    text = state.message
    if re.search(r"(?<!\w)@all\b", text, re.IGNORECASE):
        return list(state.members), "the message is for @all."
    mentioned = _mentioned(text, state.group.members) if "@" in text else set[str]()
    named = [member for member in state.members if member.name in mentioned]
    if named:
        return named, "addressed with @."
    for member in sorted(state.members, key=lambda member: -len(member.name)):
        pattern = rf"{_GREETING}{re.escape(member.name)}\s*[,:!?]"
        if re.match(pattern, text.strip(), re.IGNORECASE):
            return [member], "addressed by name."
    return [], ""


def _mentioned(text: str, members: Sequence[GroupMember]) -> set[str]:
    """Return the names behind an @, each time the longest that stands there.

    So `@ben-2` is not for ben. Of names that differ in case alone, the one that is written so is
    meant.
    """
    by_length: dict[int, dict[str, str]] = {}
    for member in members:
        by_length.setdefault(len(member.name), {})[member.name.casefold()] = member.name
    names = {member.name for member in members}
    lengths = sorted(by_length, reverse=True)
    mentioned: set[str] = set()
    for found in re.finditer(r"(?<!\w)@(?=[^\s@])", text):
        start = found.end()
        for length in lengths:
            said = text[start : start + length]
            name = by_length[length].get(said.casefold())
            if name is not None and _WORD.match(text, start + length) is None:
                mentioned.add(said if said in names else name)
                break
    return mentioned


def _draw(
    state: GroupState, members: Sequence[GroupMember], count: int, what: str
) -> list[GroupMember]:
    """Draw members, the same after a crash as before it."""
    draw = random.Random(f"{state.turn_id}/{what}")
    return draw.sample(list(members), min(count, len(members)))


def _least_used(state: GroupState, count: int) -> tuple[list[GroupMember], str]:
    """Return the members chosen least often in the window, and why."""
    since = state.now_ms - float(state.option("window", 300)) * 1_000
    recent = [agent_id for agent_id, at in state.group.memory.get("chosen", ()) if at >= since]
    ranked = sorted(
        state.members,
        key=lambda member: (recent.count(member.agent_id) + member.waiting, member.position),
    )
    minutes = float(state.option("window", 300)) * 1_000 / MINUTE
    return ranked[:count], f"asked least often in the last {minutes:g} minutes."


def _choice(state: GroupState, chooser: GroupMember, rounds: int) -> MemberQuestion:
    """Return the question that lets the supervisor choose."""
    names = [member.name for member in state.members]
    lines = "\n".join(
        f"- {member.name}: {', '.join((*member.capabilities, member.domain)).strip(', ')}"
        for member in state.members
    )
    said = "\n\n".join(
        f"{asked.name} said: {asked.answer}"
        for asked in state.asked
        if asked.key.startswith("round/")
    )
    schema = {
        "type": "object",
        "properties": {
            "members": {"type": "array", "items": {"enum": names}, "minItems": 1},
            "reason": {"type": "string"},
        },
        "required": ["members"],
        "additionalProperties": False,
    }
    text = (
        f"{from_speaker(state)}\n\n{said}\n\nWho of the group shall answer next?\n"
        f"Members:\n{lines}\n"
        'Answer with JSON: {"members": [names], "reason": "one sentence"}.'
    )
    return MemberQuestion(f"choice/{rounds}", chooser.agent_id, text, schema=schema)


def _chosen(asked: AskedQuestion) -> list[str]:
    """Return the names that the supervisor has chosen."""
    if asked.state is not QuestionState.DONE:
        return []
    try:
        return [str(name) for name in orjson.loads(asked.answer)["members"]]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return []
