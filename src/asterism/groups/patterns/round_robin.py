"""Round robin: members answer one after the other, each message the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asterism.groups.options import PatternOptions, from_speaker, nobody, problem_of, with_names
from asterism.types.groups import GroupDecision, GroupState, MemberQuestion, QuestionState, Role


class RoundRobinPattern:
    """Asks the member after the one that was asked last, in the order in which they joined."""

    def check(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read `skip_unavailable` and `speakers`."""
        read = PatternOptions("round_robin", options)
        read.flag("skip_unavailable")
        read.count("speakers", most=100)
        return read.done()

    def decide(self, state: GroupState) -> GroupDecision:
        """Ask the next member, or answer with what those who were asked have said."""
        wanted = int(state.option("speakers", 1))
        if state.pending:
            return GroupDecision("The member that was asked has not answered yet.")
        answered = [asked for asked in state.asked if asked.state is QuestionState.DONE]
        skips = bool(state.option("skip_unavailable", default=True))
        counted = [
            asked
            for asked in state.asked
            if not skips or asked.state is not QuestionState.UNAVAILABLE
        ]
        if len(counted) < wanted and len(answered) == len(counted):
            return self._ask_next(state)
        if not answered:
            return GroupDecision(
                "The member whose turn it was gave no answer.",
                failure=f"I could not answer: {problem_of(state.asked[-1])}",
            )
        return GroupDecision(
            f"{answered[-1].name} has answered, whose turn it was.", answer=with_names(answered)
        )

    def _ask_next(self, state: GroupState) -> GroupDecision:
        members = [member for member in state.group.members if member.role is not Role.OBSERVER]
        last = int(state.group.memory.get("position", 0))
        later = [member for member in members if member.position > last]
        ring = [*later, *(member for member in members if member.position <= last)]
        if not state.option("skip_unavailable", default=True) and ring and not ring[0].active:
            return GroupDecision(
                f"It is {ring[0].name}'s turn, who is not active, and nobody is skipped.",
                failure=f"It is {ring[0].name}'s turn, who is not active. Make it active, or set "
                "skip_unavailable.",
            )
        chosen = next((member for member in ring if member.active), None)
        if chosen is None:
            return GroupDecision("Nobody can be asked.", failure=nobody(state))
        skipped = [member.name for member in ring[: ring.index(chosen)]]
        reason = f"{chosen.name} comes next"
        reason += f"; {', '.join(skipped)} cannot be asked now." if skipped else "."
        if state.asked and state.asked[-1].state is QuestionState.UNAVAILABLE:
            reason = f"{problem_of(state.asked[-1])}. {reason}"
        return GroupDecision(
            reason,
            asks=(MemberQuestion(f"speaker/{len(state.asked)}", chosen.agent_id, _text(state)),),
            memory={"position": chosen.position},
        )


def _text(state: GroupState) -> str:
    """Return what a member reads: the message, and what members before it have said."""
    said = [asked for asked in state.asked if asked.state is QuestionState.DONE]
    if not said:
        return from_speaker(state)
    before = "\n\n".join(f"{asked.name} said: {asked.answer}" for asked in said)
    return f"{from_speaker(state)}\n\n{before}"
