"""Supervisor: a leader answers, and gives tasks to others with the tool `delegate`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from asterism.groups.capabilities import best_match
from asterism.groups.options import PatternOptions, from_speaker, nobody, problem_of
from asterism.types.groups import (
    LEADER_KEY,
    LEADING,
    AskedQuestion,
    Delegation,
    GroupDecision,
    GroupMember,
    GroupState,
    MemberQuestion,
    QuestionState,
)

MAX_DELEGATIONS = 10
MAX_ROUNDS = 5
STRATEGIES = ("round_robin", "least_busy", "capability", "random")


class SupervisorPattern:
    """Asks the leader, carries out what it delegates, and lets it answer with what came back."""

    member_options = ("leader",)

    def check(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read the leader and the rules of delegation."""
        read = PatternOptions("supervisor", options)
        read.text("leader")
        read.count("max_delegations", least=0, most=1_000)
        read.count("max_delegations_per_agent", least=0, most=1_000)
        read.count("max_rounds", most=100)
        read.choice("strategy", *STRATEGIES)
        read.choice("fallback", "handle_self", "queue", "fail")
        read.number("timeout", 0.001, 86_400)
        return read.done()

    def decide(self, state: GroupState) -> GroupDecision:
        """Carry out new delegations first, then ask or hear the leader."""
        leader = _leader(state)
        if leader is None:
            return GroupDecision("Nobody can lead.", failure=nobody(state))
        if not state.asked:
            return GroupDecision(
                f"{leader.name} leads, and gets the message first.",
                asks=(MemberQuestion(f"{LEADER_KEY}0", leader.agent_id, _opening(state, leader)),),
            )
        fresh = [each for each in state.delegations if each.key not in _handled(state)]
        if fresh:
            return self._take_tasks(state, leader, fresh)
        lead = [asked for asked in state.asked if asked.key.startswith(LEADER_KEY)][-1]
        if state.pending:
            return GroupDecision("Members are at work.")
        if lead.state is not QuestionState.DONE:
            return GroupDecision(
                f"{lead.name}, who leads, gave no answer.",
                failure=f"I could not answer: {problem_of(lead)}",
            )
        given = [each for each in state.delegations if each.by == lead.key]
        if not given:
            return GroupDecision(f"{lead.name} has answered.", answer=lead.answer)
        refused: Mapping[str, str] = state.notes.get("refused", {})
        if state.option("fallback", "handle_self") == "fail" and any(
            each.key in refused for each in given
        ):
            reason = next(refused[each.key] for each in given if each.key in refused)
            return GroupDecision(
                "A task could not be given away, and the rules say that this ends the turn.",
                failure=f"I had to stop: {reason}",
            )
        return self._ask_again(state, leader, lead, given)

    def _take_tasks(
        self, state: GroupState, leader: GroupMember, fresh: list[Delegation]
    ) -> GroupDecision:
        """Give new tasks to members; if nobody gets one and all have ended, go on after that."""
        given = self._delegate(state, leader, fresh)
        if given.asks or state.pending:
            return given
        notes = given.notes or {}
        following = self.decide(replace(state, notes={**state.notes, **notes}))
        reason = f"{given.reason} {following.reason}"
        return replace(following, reason=reason, memory=given.memory, notes=notes)

    def _ask_again(
        self, state: GroupState, leader: GroupMember, lead: AskedQuestion, given: list[Delegation]
    ) -> GroupDecision:
        """Give the leader what came back; end the turn if it still does not answer."""
        number = int(lead.key.removeprefix(LEADER_KEY)) + 1
        rounds = int(state.option("max_rounds", MAX_ROUNDS))
        if number > rounds + 1:
            # It has been told twice that it has to answer itself.
            return GroupDecision(
                f"{lead.name} delegates instead of answering, after {rounds} rounds of tasks.",
                failure=f"I had to stop: {lead.name}, who leads, gave tasks away again and again "
                f"after {rounds} rounds, instead of answering. Its latest words: {lead.answer}",
            )
        return GroupDecision(
            f"All that {lead.name} gave away has come back.",
            asks=(
                MemberQuestion(
                    f"{LEADER_KEY}{number}", leader.agent_id, _collected(state, given, number)
                ),
            ),
        )

    def _delegate(
        self, state: GroupState, leader: GroupMember, fresh: list[Delegation]
    ) -> GroupDecision:
        """Give new tasks to members, as far as the rules allow."""
        given = Counter(asked.ask.agent_id for asked in state.asked if _is_task(asked))
        refused: dict[str, str] = dict(state.notes.get("refused", {}))
        chosen: dict[str, str] = dict(state.notes.get("chosen", {}))
        turns: int = int(state.group.memory.get("position", 0))
        asks: list[MemberQuestion] = []
        reasons: list[str] = []
        queue = state.option("fallback", "handle_self") == "queue"
        for task in fresh:
            problem = self._limit(state, task, sum(given.values()))
            member, why = None, problem
            if not problem:
                member, why = _choose(state, leader, task, given, turns, queue=queue)
            if member is None:
                refused[task.key] = why
                reasons.append(why)
                continue
            given[member.agent_id] += 1
            turns = member.position
            chosen[task.key] = member.agent_id
            reasons.append(f"{member.name} gets a task: {why}")
            text = f"[group {state.group.name}, task from {leader.name}] {task.task}"
            seconds = state.option("timeout", None)
            asks.append(MemberQuestion(f"task/{task.key}", member.agent_id, text, seconds=seconds))
        return GroupDecision(
            " ".join(reasons),
            asks=tuple(asks),
            memory={**state.group.memory, "position": turns},
            notes={"refused": refused, "chosen": chosen},
        )

    def _limit(self, state: GroupState, task: Delegation, given: int) -> str:
        """Say which limit a task would pass; nothing if none."""
        most = int(state.option("max_delegations", MAX_DELEGATIONS))
        if given >= most:
            return f"At most {most} tasks may be given away in a turn."
        if not task.by.startswith(LEADER_KEY):
            return "Only whoever leads the group can give tasks away."
        rounds = int(state.option("max_rounds", MAX_ROUNDS))
        if int(task.by.removeprefix(LEADER_KEY)) >= rounds:
            return f"After {rounds} rounds of tasks, the leader has to answer itself."
        return ""


def _leader(state: GroupState) -> GroupMember | None:
    """Return who leads: the member that is named, the supervisor, or the first member."""
    named = state.member(str(state.option("leader", "")))
    if named is not None and named.takes_part:
        return named
    return state.supervisor or next(iter(state.members), None)


def _is_task(asked: AskedQuestion) -> bool:
    return asked.key.startswith("task/")


def _handled(state: GroupState) -> set[str]:
    """Return the delegations that were decided about."""
    tasks = {asked.key.partition("/")[2] for asked in state.asked if _is_task(asked)}
    return tasks | set(state.notes.get("refused", {}))


def _choose(
    state: GroupState,
    leader: GroupMember,
    task: Delegation,
    given: Counter[str],
    last: int,
    *,
    queue: bool,
) -> tuple[GroupMember | None, str]:
    """Return who gets a task and why; nobody, and why not, if nobody may."""
    each = int(state.option("max_delegations_per_agent", MAX_DELEGATIONS))
    others = [member for member in state.members if member.agent_id != leader.agent_id]
    free = [member for member in others if given[member.agent_id] < each]
    if task.to:
        return _by_name(state, leader, task, others, free, queue=queue)
    if not free and queue and others:
        least = min(others, key=lambda member: (given[member.agent_id], member.waiting))
        return least, "all have as many tasks as allowed, and it has the fewest to wait for."
    if not free:
        return None, "No other active member may be given a task now."
    return _by_strategy(state, task, free, given, last)


def _by_name(
    state: GroupState,
    leader: GroupMember,
    task: Delegation,
    others: Sequence[GroupMember],
    free: Sequence[GroupMember],
    *,
    queue: bool,
) -> tuple[GroupMember | None, str]:
    """Return the member that a task names, if it may be given one."""
    wanted = state.member(task.to)
    if wanted is None or wanted not in others:
        name = wanted.name if wanted is not None else task.to
        return None, f"{name} is not an active member that can be given tasks."
    if wanted in free:
        return wanted, f"{leader.name} asked for it by name."
    if queue:
        return wanted, f"{leader.name} asked for it by name, and it waits for its turn."
    each = int(state.option("max_delegations_per_agent", MAX_DELEGATIONS))
    return None, f"{wanted.name} has been given {each} tasks in this turn, the most allowed."


def _by_strategy(
    state: GroupState,
    task: Delegation,
    free: Sequence[GroupMember],
    given: Counter[str],
    last: int,
) -> tuple[GroupMember, str]:
    """Return who gets a task that names nobody, and why."""
    strategy = state.option("strategy", "capability")
    if strategy == "round_robin":
        later = [member for member in free if member.position > last]
        return (later or free)[0], "it comes next."
    if strategy == "least_busy":
        least = min(free, key=lambda member: (member.waiting + given[member.agent_id],))
        return least, f"it has the least to do ({least.waiting} waiting)."
    if strategy == "random":
        draw = random.Random(f"{state.turn_id}/{task.key}")
        return draw.choice(free), "it was drawn."
    match = best_match(task.task, free)
    if match is not None:
        return match.member, match.reason
    least = min(free, key=lambda member: (given[member.agent_id], member.waiting))
    return least, "no capability fits, and it has the least to do."


def _opening(state: GroupState, leader: GroupMember) -> str:
    """Return the message for the leader, with whom it may give tasks to."""
    others = [member for member in state.members if member.agent_id != leader.agent_id]
    if not others:
        return from_speaker(state)
    lines = "\n".join(f"- {_described(member)}" for member in others)
    return (
        f"{from_speaker(state)}\n\n{LEADING} Answer yourself, or give parts of it to "
        f"members with the tool delegate; their results come back to you before you answer.\n"
        f"Members:\n{lines}"
    )


def _described(member: GroupMember) -> str:
    parts = [part for part in (member.domain, ", ".join(member.capabilities)) if part]
    return f"{member.name} ({'; '.join(parts)})" if parts else member.name


def _collected(state: GroupState, given: list[Delegation], number: int) -> str:
    """Return what came back from the tasks of a round, for the leader."""
    refused: Mapping[str, str] = state.notes.get("refused", {})
    lines: list[str] = []
    for task in given:
        asked = state.find(f"task/{task.key}")
        if asked is None:
            lines.append(
                f"Not given away: {task.task}\n{refused.get(task.key, '')} Do it yourself."
            )
        elif asked.state is QuestionState.DONE:
            lines.append(f"{asked.name}, on the task: {task.task}\n{asked.answer}")
        else:
            lines.append(f"No result for the task: {task.task}\n{problem_of(asked)}")
    rounds = int(state.option("max_rounds", MAX_ROUNDS))
    last = number >= rounds
    ending = "Answer now." if last else "Answer now, or delegate what is still missing."
    return (
        f"[group {state.group.name}] What you gave away has come back.\n\n"
        + "\n\n".join(lines)
        + f"\n\nThe message was: {state.message}\n{ending}"
    )
