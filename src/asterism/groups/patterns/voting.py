"""Voting: each member casts a ballot, and the rules of the vote decide."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import orjson

from asterism.groups.options import PatternOptions, from_speaker, nobody
from asterism.records import dataclass
from asterism.types.groups import (
    AskedQuestion,
    GroupDecision,
    GroupMember,
    GroupState,
    MemberQuestion,
    QuestionState,
)

ABSTAIN = "abstain"
DEFAULT_OPTIONS = ("approve", "reject")
TIE_RULES = ("no_decision", "random", "first_vote", "named")
MAX_OPTIONS = 50
_LISTED = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+(\S.*?)\s*$")


@dataclass(frozen=True, slots=True)
class Ballot:
    """The vote of a member."""

    agent_id: str
    name: str
    choice: str
    """An option, or `abstain`."""
    weight: float
    at_ms: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class VoteResult:
    """The count of a vote."""

    winner: str | None
    """None: there is no decision."""
    totals: Mapping[str, float]
    rule: str
    """How it was decided, in one sentence."""


def count_votes(
    ballots: Sequence[Ballot],
    options: Sequence[str],
    *,
    quorum: int,
    tie: str,
    seed: str,
    named: str = "",
    secret: bool = False,
) -> VoteResult:
    """Count ballots: the largest total wins; a tie goes by its rule.

    Args:
        ballots: The votes that were cast, in any order.
        options: What is voted about; their order is that of the totals.
        quorum: How many ballots are needed, abstentions counted.
        tie: `no_decision`, `random`, `first_vote` (the tied option that was voted for first) or
            `named` (the option of a named member, if it is one of the tied).
        seed: What a draw depends on; it is recorded, so that anybody can repeat the draw.
        named: The id of the member whose vote decides a tie.
        secret: Whether the rule is told without saying who voted how.
    """
    cast = [ballot for ballot in ballots if ballot.choice in options]
    # As they are written: as binary numbers, 0.1 and 0.2 are more than 0.3.
    exact = dict.fromkeys(options, Fraction(0))
    for ballot in cast:
        exact[ballot.choice] += Fraction(str(ballot.weight))
    totals = {option: float(total) for option, total in exact.items()}
    if len(ballots) < quorum:
        return VoteResult(None, totals, f"{len(ballots)} of the {quorum} ballots needed were cast.")
    most = max(exact.values(), default=Fraction(0))
    if most <= 0:
        return VoteResult(None, totals, "Nobody voted for an option.")
    tied = [option for option in options if exact[option] == most]
    if len(tied) == 1:
        return VoteResult(tied[0], totals, f"{tied[0]} has the most votes.")
    between = f"A tie between {', '.join(tied)}"
    if tie == "random":
        # Not a secret: whoever doubts the draw repeats it with the seed.
        drawn = random.Random(seed).choice(tied)
        return VoteResult(drawn, totals, f"{between}, drawn with the seed {seed}.")
    if tie == "first_vote":
        first = min(
            (ballot for ballot in cast if ballot.choice in tied),
            key=lambda ballot: (ballot.at_ms, ballot.agent_id),
        )
        who = "decides" if secret else f"was {first.name}'s"
        return VoteResult(first.choice, totals, f"{between}; the first vote {who}.")
    if tie == "named":
        for ballot in cast:
            if ballot.agent_id == named and ballot.choice in tied:
                who = "a named member" if secret else ballot.name
                return VoteResult(ballot.choice, totals, f"{between}; {who} decides.")
        return VoteResult(
            None, totals, f"{between}, and the member that decides voted for neither."
        )
    return VoteResult(None, totals, f"{between}, and a tie is no decision.")


class VotingPattern:
    """Asks every member for a ballot, counts them, and answers with the minutes."""

    is_stateless = True
    member_options = ("tie_member",)

    def check(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read what is voted about, the quorum, weights, the rule for ties, and the time."""
        read = PatternOptions("voting", options)
        read.texts("options", least=2)
        if isinstance(options.get("quorum"), float):
            read.number("quorum", 0.0, 1.0)  # a share: 1.0 is everybody, and 1 is one ballot
        else:
            read.count("quorum", least=0)
        read.flag("weighted")
        read.choice("tie", *TIE_RULES)
        read.text("tie_member")
        read.number("timeout", 0.001, 86_400)
        read.flag("secret")
        checked = read.done()
        named = [option.casefold() for option in checked.get("options", ())]
        if len(set(named)) < len(named) or ABSTAIN in named or len(named) > MAX_OPTIONS:
            raise read.fault(
                "options", named, f"a list of 2 to {MAX_OPTIONS} different options without abstain"
            )
        if checked.get("tie") == "named" and "tie_member" not in checked:
            raise read.fault("tie_member", None, "the member whose vote decides a tie")
        return checked

    def decide(self, state: GroupState) -> GroupDecision:
        """Hand out the ballots; when all are back, or their time is over, count them."""
        voters = state.members
        if not state.asked and not voters:
            return GroupDecision("Nobody can vote.", failure=nobody(state))
        options = _options(state)
        if not state.asked:
            return GroupDecision(
                f"{len(voters)} members vote about {', '.join(options)}.",
                asks=tuple(
                    MemberQuestion(
                        f"ballot/{member.agent_id}",
                        member.agent_id,
                        _question(state, options),
                        schema=_schema(options),
                        seconds=state.option("timeout", None),
                        secret=bool(state.option("secret", default=False)),
                    )
                    for member in voters
                ),
                notes={"options": list(options), **_weights(state, voters)},
            )
        if state.pending:
            return GroupDecision("Ballots are still out.")
        return self._count(state, options)

    def _count(self, state: GroupState, options: Sequence[str]) -> GroupDecision:
        ballots = [ballot for asked in state.asked if (ballot := _ballot(state, asked, options))]
        named = state.member(str(state.option("tie_member", "")))
        seed = state.turn_id
        # As it was when the ballots were cast: who was promised that stays so.
        secret = bool(state.option("secret", default=False))
        secret = secret or any(asked.ask.secret for asked in state.asked)
        result = count_votes(
            ballots,
            options,
            quorum=_quorum(state),
            tie=str(state.option("tie", "no_decision")),
            seed=seed,
            named=named.agent_id if named is not None else "",
            secret=secret,
        )
        weighted = "weights" in state.notes
        silent = [
            asked.name
            for asked in state.asked
            if asked.ask.agent_id not in {ballot.agent_id for ballot in ballots}
        ]
        minutes: dict[str, Any] = {
            "options": list(options),
            # Weighted totals would tell who voted for what, as soon as weights differ.
            "totals": _counts(ballots, options) if secret else dict(result.totals),
            "ballots": len(ballots),
            "quorum": _quorum(state),
            "abstentions": sum(ballot.choice == ABSTAIN for ballot in ballots),
            "winner": result.winner,
            "rule": result.rule + (" Votes count by weight." if secret and weighted else ""),
            "seed": seed,
            "secret": secret,
            "without_ballot": silent,
        }
        if not secret:
            minutes["votes"] = [
                {
                    "member": ballot.name,
                    "choice": ballot.choice,
                    "weight": ballot.weight,
                    "reason": ballot.reason,
                }
                for ballot in ballots
            ]
        return GroupDecision(minutes["rule"], answer=_minutes(minutes), notes={"minutes": minutes})


def _counts(ballots: Sequence[Ballot], options: Sequence[str]) -> dict[str, float]:
    """Return how many ballots each option got."""
    counted = Counter(ballot.choice for ballot in ballots)
    return {option: float(counted[option]) for option in options}


def _options(state: GroupState) -> tuple[str, ...]:
    """Return what is voted about: noted, configured, listed in the message, or the default."""
    if noted := state.notes.get("options") or state.option("options", ()):
        return tuple(noted)
    listed = [found[1] for line in state.message.splitlines() if (found := _LISTED.match(line))]
    different = tuple(dict.fromkeys(listed))
    if 2 <= len(different) <= MAX_OPTIONS and ABSTAIN not in map(str.casefold, different):
        return different
    return DEFAULT_OPTIONS


def _weights(state: GroupState, voters: Sequence[GroupMember]) -> dict[str, dict[str, float]]:
    """Return the weights to note: those of the moment in which the ballots are handed out."""
    if not state.option("weighted", default=False):
        return {}
    return {"weights": {member.agent_id: member.weight for member in voters}}


def _quorum(state: GroupState) -> int:
    """Return how many ballots are needed; a share is of those who were asked."""
    quorum = state.option("quorum", 1)
    if isinstance(quorum, float):
        return max(1, -(-round(quorum * len(state.asked) * 1_000_000) // 1_000_000))
    return int(quorum)


def _schema(options: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "choice": {"enum": [*options, ABSTAIN]},
            "reason": {"type": "string"},
        },
        "required": ["choice", "reason"],
        "additionalProperties": False,
    }


def _question(state: GroupState, options: Sequence[str]) -> str:
    listed = ", ".join(f'"{option}"' for option in (*options, ABSTAIN))
    return (
        f"{from_speaker(state)}\n\nThe group votes about this. Cast your own ballot: one of "
        f'{listed}. Answer with JSON: {{"choice": "…", "reason": "one sentence"}}.'
    )


def _ballot(state: GroupState, asked: AskedQuestion, options: Sequence[str]) -> Ballot | None:
    """Return the ballot of a member; None if it cast none."""
    if asked.state is not QuestionState.DONE:
        return None
    try:
        said: dict[str, Any] = orjson.loads(asked.answer)
        choice, reason = str(said["choice"]), str(said.get("reason", ""))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return None
    if choice not in (*options, ABSTAIN):
        return None
    weight = float(state.notes.get("weights", {}).get(asked.ask.agent_id, 1.0))
    return Ballot(asked.ask.agent_id, asked.name, choice, weight, asked.ended_at_ms, reason)


def _minutes(minutes: Mapping[str, Any]) -> str:
    """Return the minutes of a vote as Markdown."""
    winner = minutes["winner"]
    decision = f"Decision: {winner}." if winner is not None else "No decision."
    lines = [f"{decision} {minutes['rule']}", ""]
    lines += [f"- {option}: {total:g}" for option, total in minutes["totals"].items()]
    if minutes["abstentions"]:
        lines.append(f"- {ABSTAIN}: {minutes['abstentions']}")
    lines += ["", f"Ballots: {minutes['ballots']}, needed: {minutes['quorum']}."]
    lines += [""] if minutes.get("votes") else []
    for vote in minutes.get("votes", ()):
        # On one line, so that no reason looks like the ballot of another member.
        reason = f": {' '.join(vote['reason'].split())}" if vote["reason"].strip() else ""
        weight = f" (weight {vote['weight']:g})" if vote["weight"] != 1.0 else ""
        lines.append(f"- {vote['member']} voted {vote['choice']}{weight}{reason}")
    if minutes["without_ballot"]:
        lines += ["", f"Without a ballot: {', '.join(minutes['without_ballot'])}."]
    return "\n".join(lines)
