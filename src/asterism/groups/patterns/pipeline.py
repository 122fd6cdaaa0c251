"""Pipeline: stage after stage, each with the output of the one before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from asterism.groups.options import PatternOptions, from_speaker, problem_of, with_names
from asterism.records import dataclass
from asterism.types.groups import (
    AskedQuestion,
    GroupDecision,
    GroupMember,
    GroupState,
    MemberQuestion,
    QuestionState,
)

MAX_STAGES = 50
MAX_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a pipeline."""

    number: int
    name: str
    agents: tuple[str, ...]
    """Members by name, who work in parallel; none: all of the group."""
    seconds: float | None
    on_failure: str
    """`abort`, `skip`, `retry` or `fallback`."""
    attempts: int
    fallback: str
    instructions: str


def stages_of(options: Mapping[str, Any]) -> list[Stage]:
    """Return the stages of checked options."""
    return [
        Stage(
            number,
            str(table["name"]),
            tuple(dict.fromkeys(table["agents"])),
            table.get("timeout"),
            str(table.get("on_failure", "abort")),
            int(table.get("attempts", 2)),
            str(table.get("fallback", "")),
            str(table.get("instructions", "")),
        )
        for number, table in enumerate(options.get("stages", ()))
    ]


class PipelinePattern:
    """Passes a message through stages; without any, each member is a stage."""

    is_stateless = True
    _read: tuple[Mapping[str, Any], list[Stage]] = ({}, [])
    """The options that were read last, and their stages."""
    member_options = ("stages.agents", "stages.fallback")

    def check(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Read `stages`: names of members, or tables."""
        given = options.get("stages")
        if isinstance(given, str):
            given = [name.strip() for name in given.split(",")]
        if isinstance(given, list | tuple):
            items = cast("Sequence[Any]", given)
            given = [{"agents": [item]} if isinstance(item, str) else item for item in items]
        read = PatternOptions("pipeline", {**options, "stages": given})
        tables = read.tables("stages")
        if len(tables) > MAX_STAGES:
            raise read.fault("stages", f"{len(tables)} stages", f"at most {MAX_STAGES}")
        stages = [self._check_stage(number, table) for number, table in enumerate(tables)]
        return {**read.done(), "stages": stages} if stages else read.done()

    def _check_stage(self, number: int, table: dict[str, Any]) -> dict[str, Any]:
        if "agent" in table and "agents" not in table:
            table["agents"] = [table.pop("agent")]
        read = PatternOptions(f"pipeline, stage {number + 1}", table)
        read.text("name")
        read.texts("agents")
        read.number("timeout", 0.001, 86_400)
        read.choice("on_failure", "abort", "skip", "retry", "fallback")
        read.count("attempts", most=MAX_ATTEMPTS)
        read.text("fallback")
        read.text("instructions")
        stage = read.done()
        if "agents" not in stage:
            raise read.fault("agents", None, "a list of members")
        if stage.get("on_failure") == "fallback" and "fallback" not in stage:
            raise read.fault("fallback", None, "the member that stands in")
        return {"name": f"stage {number + 1}", **stage}

    def decide(self, state: GroupState) -> GroupDecision:
        """Begin the first stage that is not over, or answer with the output of the last."""
        options, stages = self._read
        if options is not state.group.options:
            stages = stages_of(state.group.options)
            self._read = state.group.options, stages
        stages = stages or _stages_of_members(state)
        output: str | None = None
        for stage in stages:
            outcome = self._stage(state, stage, output)
            if isinstance(outcome, GroupDecision):
                return outcome
            output = outcome if outcome is not None else output
        if output is None:
            return GroupDecision(
                "No stage gave an output.",
                failure=f"No stage of the group {state.group.name} gave an output, so that there "
                "is no answer. Look at the members, or at the stages.",
            )
        return GroupDecision("All stages are through.", answer=output)

    def _stage(
        self, state: GroupState, stage: Stage, before: str | None
    ) -> GroupDecision | str | None:
        """Return what to do in a stage, or its output; None if it was skipped."""
        workers = [_worker(state, stage, place) for place in range(len(stage.agents))]
        missing = [each.name for each in workers if each.member is None and not each.attempts]
        if missing and stage.on_failure not in ("skip", "fallback"):
            return GroupDecision(
                f"{missing[0]} of {stage.name} cannot be asked.",
                failure=f"The stage {stage.name!r} needs {missing[0]!r}, which is not an active "
                f"member of the group {state.group.name}. Add it, or change the stages.",
            )
        asks: list[MemberQuestion] = []
        names: list[str] = []
        reasons: list[str] = []
        outputs: list[AskedQuestion] = []
        waiting = False
        for worker in workers:
            last = worker.attempts[-1] if worker.attempts else None
            if last is not None and not last.over:
                waiting = True
            elif last is not None and last.state is QuestionState.DONE:
                outputs.append(last)
            elif last is None and worker.member is not None:
                names.append(worker.name)
                asks.append(_ask(state, stage, worker.member, worker.place, 0, before))
            else:
                failed = self._failed(state, stage, worker, before)
                if isinstance(failed, GroupDecision):
                    return failed
                if failed is not None:
                    asks.append(failed)
                    reasons.append(
                        f"{worker.name} gave no output, so that {stage.on_failure} applies."
                    )
        if asks:
            fresh = f"{stage.name}: {', '.join(names)}." if not reasons else " ".join(reasons)
            return GroupDecision(fresh, asks=tuple(asks))
        if waiting:
            return GroupDecision(f"{stage.name} is under way.")
        return with_names(outputs) if outputs else None

    def _failed(
        self,
        state: GroupState,
        stage: Stage,
        worker: _Worker,
        before: str | None,
    ) -> GroupDecision | MemberQuestion | None:
        """Return what follows from a failure; None: the stage goes on without this member."""
        member, done = worker.member, len(worker.attempts)
        last = worker.attempts[-1] if worker.attempts else None
        why = problem_of(last) if last is not None else f"{worker.name} is not an active member."
        if stage.on_failure == "retry" and member is not None and done < stage.attempts:
            return _ask(state, stage, member, worker.place, done, before)
        if stage.on_failure == "fallback":
            instead = state.member(stage.fallback)
            used = last is not None and last.ask.key.endswith("/fallback")
            if instead is not None and instead.takes_part and not used:
                return _ask(state, stage, instead, worker.place, "fallback", before)
        if stage.on_failure == "skip":
            return None
        return GroupDecision(
            f"{stage.name} failed, which ends the turn.",
            failure=f"I had to stop at the stage {stage.name!r}: {why}",
            cancel=tuple(asked.key for asked in state.pending),
        )


def _stages_of_members(state: GroupState) -> list[Stage]:
    """Return a stage for each member, those included that have left since they were asked."""
    names = {
        int(asked.key.split("/")[1]): asked.name
        for asked in state.asked
        if asked.key.startswith("stage/")
    }
    # The position of a member stays the same when others leave.
    names |= {member.position: member.name for member in state.members}
    return [
        Stage(number, name, (name,), None, "abort", 1, "", "")
        for number, name in sorted(names.items())
    ]


@dataclass(frozen=True, slots=True)
class _Worker:
    """A member of a stage, and what it was asked."""

    place: int
    """Which member of the stage it is; its name may change in the middle of a turn."""
    name: str
    member: GroupMember | None
    """None: it cannot be asked."""
    attempts: tuple[AskedQuestion, ...]


def _worker(state: GroupState, stage: Stage, place: int) -> _Worker:
    name = stage.agents[place]
    member = state.member(name)
    start = f"stage/{stage.number}/{place}/"
    return _Worker(
        place,
        name,
        member if member is not None and member.takes_part else None,
        tuple([asked for asked in state.asked if asked.ask.key.startswith(start)]),
    )


def _ask(
    state: GroupState,
    stage: Stage,
    member: GroupMember,
    place: int,
    attempt: int | str,
    before: str | None,
) -> MemberQuestion:
    text = from_speaker(state)
    if before is not None:
        text += f"\n\nOutput of the stage before:\n{before}"
    if stage.instructions:
        text += f"\n\nYour part: {stage.instructions}"
    key = f"stage/{stage.number}/{place}/{attempt}"
    return MemberQuestion(key, member.agent_id, text, seconds=stage.seconds)
