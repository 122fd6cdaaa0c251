"""Calls: may one run, what comes of it, and what becomes of one that a crash interrupted."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from asterism.errors import StoreError, ToolError
from asterism.memory import people
from asterism.permissions import (
    PRESENT,
    Act,
    Actor,
    Allow,
    Ask,
    Authority,
    CallRequest,
    Deny,
    GrantSet,
    Resource,
    Situation,
    Verdict,
    decide,
)
from asterism.permissions.decide import has_outside_effect
from asterism.records import dataclass
from asterism.store import approvals, journal
from asterism.store.database import Connection
from asterism.store.events import Event
from asterism.store.journal import Draft
from asterism.telemetry import ToolWatch, current_turn, turn_context
from asterism.telemetry.redaction import redact
from asterism.times import DAY
from asterism.tools.tool import Decision, NeedsApproval, Tool, ToolContext
from asterism.turns.context import speaker_of
from asterism.turns.intents import doubt_about, doubt_anything
from asterism.turns.repeats import PastCall, answer_from_before, is_empty, may_change
from asterism.turns.rules import Attempt, Refusal
from asterism.turns.turn import Turn
from asterism.types.agents import OWNER, Audience, Label, Participants, Trust, new_id
from asterism.types.memory import Origin, OriginKind
from asterism.types.permissions import (
    CLIENT,
    ApprovalRecord,
    Effect,
    EffectKind,
    Grant,
    amount_of,
    arguments_json,
    comment_of,
    effects_in_words,
    plain_effects,
    spell_call,
    visible_line,
    write_effects,
)
from asterism.types.turns import (
    Call,
    Entry,
    EntryKind,
    Reply,
    ResultMeta,
    ResultState,
    RetrySafety,
    ToolResult,
    plain,
    result_wire,
    text_of,
    unmarked,
)

_log = logging.getLogger(__name__)
_MAX_ARGUMENT_LENGTH = 500
"""How much of an argument the audit log keeps."""
_MAX_RESULT_LENGTH = 100_000
_NOTE = 100
"""Room for the words that a result was cut, so that it is not cut once more."""
_FAILURES = (Exception, SystemExit, asyncio.CancelledError)
"""What a tool may raise and the model is told; a turn that is being stopped is told apart."""

OUTCOME_UNKNOWN = (
    "Outcome unknown: the process stopped while {name} was running, so it may or may not have "
    "happened. It was not repeated. Find out, or ask, before you try it again."
)
_NOT_RUN = ToolResult(ResultState.NOT_RUN, "Not run: the turn ended before this call.")
CLIENT_LIMIT = DAY
"""How long a turn waits for a program that carries out a call, in milliseconds."""
CUT_SHORT = "Cut short: the turn ended while {name} was running. It can safely be called again."


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call that names a tool the agent has, with arguments that fit."""

    key: str
    call: Call
    tool: Tool
    arguments: dict[str, Any]
    effects: tuple[Effect, ...]
    """What it would do, found out once: what is judged is what is counted and recorded."""
    audience: Audience
    """Who may see what it brings back."""


async def run_calls(turn: Turn, step: int, reply: Reply) -> list[str]:
    """Carry out the calls of a reply in order; return the questions that now wait for a person.

    Neighbouring calls of repeatable tools run together. Calls with a recorded result are not run.
    """
    together: list[_Ready] = []
    # What calls of this reply bring in was not read when they were made.
    trust = turn.context.label.trust
    for index, call in enumerate(reply.calls):
        key = f"{step}/call/{index}"
        if key in turn.recorded:
            continue
        ready = _prepare(turn, key, call)
        refused = await _refusal(turn, key, call, ready, together)
        verdict = None
        if refused is None and isinstance(ready, _Ready):
            verdict = await _judge(turn, ready, trust)
            if isinstance(verdict, Deny):
                _count_outside(turn, ready, "denied")
                text = f"Error: {verdict.reason} It was not run."
                refused = _NotMade(text, ResultMeta(ResultState.DENIED))
            elif ready.tool.retry_safety is RetrySafety.REPEATABLE and isinstance(verdict, Allow):
                together.append(ready)
                continue
        await _run_together(turn, together)
        if refused is not None:
            _settle_not_made(turn, key, call, refused)
        elif isinstance(ready, _Ready) and isinstance(verdict, Ask):
            _ask(turn, ready, verdict.reason, verdict.reviewers)
        elif isinstance(ready, _Ready) and ready.tool.name in turn.client_tools:
            _wait_for_client(turn, ready)
        elif isinstance(ready, _Ready):
            await _run_one(turn, ready)
    await _run_together(turn, together)
    _drop_repeats(turn, step, reply)
    _drop_lookups(turn, step, reply)
    questions = open_questions(turn)
    if not questions:
        turn.flush_meanwhile()
    return questions


@dataclass(frozen=True, slots=True)
class _NotMade:
    """What the model reads of a call that is not made."""

    text: str
    meta: ResultMeta


async def _refusal(
    turn: Turn, key: str, call: Call, ready: _Ready | str, together: list[_Ready]
) -> _NotMade | None:
    """Return why a call is not made, or None if it may be, as far as rules and repeats go."""
    refused = _refused_now(turn, key, call, ready, together)
    if together and (refused is not None or _is_under_way(ready, together)):
        # It may depend on what becomes of these.
        await _run_together(turn, together)
        refused = _refused_now(turn, key, call, ready, together)
    return refused


def _refused_now(
    turn: Turn, key: str, call: Call, ready: _Ready | str, together: list[_Ready]
) -> _NotMade | None:
    if isinstance(ready, _Ready):
        against = _against_rules(turn, ready, together)
        if against is not None:
            return _NotMade(against.text, against.meta())
    earlier = _repeated(turn, key, call, ready)
    if earlier is not None:
        meta = ResultMeta(ResultState.NOT_RUN, repeats=earlier.key)
        return _NotMade(answer_from_before(earlier), meta)
    if isinstance(ready, str):
        return _NotMade(ready, ResultMeta(ResultState.NOT_RUN))
    return None


def _settle_not_made(turn: Turn, key: str, call: Call, refused: _NotMade) -> None:
    if f"{key}/begun" in turn.recorded:  # its tool was there before the crash
        _settle(turn, key, call, _unknown(turn, call))
        return
    _show_call(turn, key, call)
    _settle(turn, key, call, ToolResult(refused.meta.state, refused.text), refused.meta)


def _is_under_way(ready: _Ready | str, together: Sequence[_Ready]) -> bool:
    """Tell whether the same call is among those that are about to run."""
    return isinstance(ready, _Ready) and any(
        (other.tool, other.arguments) == (ready.tool, ready.arguments) for other in together
    )


def _repeated(turn: Turn, key: str, call: Call, ready: _Ready | str) -> PastCall | None:
    """Return the call of the turn whose result answers this one; None if it is to be made."""
    if key == "0/call/0" or f"{key}/begun" in turn.recorded or call.name in turn.client_tools:
        return None
    ordered = isinstance(ready, _Ready) and (
        _attempt_of(ready).outside
        or any(
            rule.is_for(ready.tool.name) or rule.names(ready.tool.name) for rule in turn.agent.rules
        )
    )
    return turn.services.find_repeat(turn.recorded, key, call, turn.find_tool, ordered=ordered)


def _drop_repeats(turn: Turn, step: int, reply: Reply) -> None:
    """Take a step out of the context in which every call was made before, and say so instead."""
    results = [turn.recorded.get(f"{step}/call/{index}") for index in range(len(reply.calls))]
    metas = [ResultMeta.from_json(result.meta) for result in results if result is not None]
    if len(metas) < len(results) or any(meta.repeats is None for meta in metas):
        return
    if f"{step}/repeated" in turn.recorded:
        return
    texts = dict.fromkeys(text_of(result.body) for result in results if result is not None)
    turn.drop_step(step, len(reply.calls))
    turn.tell(f"{step}/repeated", "\n".join(texts))


def _drop_lookups(turn: Turn, step: int, reply: Reply) -> None:
    """Take a step out of the context of a small model whose calls looked for something in vain.

    A small model believes a tool more than the conversation: it would say that it does not know
    what stands a few lines above. It is asked again without these tools.
    """
    if not turn.sent.compact:
        return
    for index, call in enumerate(reply.calls):
        result = turn.recorded.get(f"{step}/call/{index}")
        tool, _, arguments = turn.find_tool(call.name, call.arguments)
        if result is None or tool is None or not isinstance(tool.compact, str):
            return
        meta = ResultMeta.from_json(result.meta)
        failed = meta.state in (ResultState.FAILED, ResultState.NOT_RUN)
        if meta.dropped or not (failed or is_empty(meta, text_of(result.body))):
            return
        if may_change(tool, arguments):
            return  # what was not done must be told
    turn.drop_step(step, len(reply.calls))


def _prepare(turn: Turn, key: str, call: Call) -> _Ready | str:
    """Return the call ready to run, or what the model must be told instead."""
    tool, name, arguments = turn.find_tool(call.name, call.arguments)
    call = replace(call, name=name, arguments=arguments)
    if tool is None:
        names = [*turn.client_tools, *turn.services.toolbox.tool_names(turn.agent.tools)]
        offer = f"There are: {', '.join(names)}." if names else "There are no tools."
        return f"Error: there is no tool {call.name!r}. {offer}"
    try:
        read = tool.read(call.arguments)
        audience = tool.audience(turn.agent, turn.context.participants, read)
        return _Ready(key, call, tool, read, tool.effects(dict(read)), audience)
    except ToolError as error:
        return f"Error: {error.message}"


# -- may it run? ----------------------------------------------------------------------------------


def _against_rules(turn: Turn, ready: _Ready, under_way: list[_Ready]) -> Refusal | None:
    """Return why rules are against a call; one that was begun before a crash was let through."""
    attempt = _attempt_of(ready)
    if f"{ready.key}/begun" in turn.recorded or not (turn.rule_state.rules or attempt.outside):
        return None
    turn.rule_state.read(turn.recorded)
    pending = [_attempt_of(other) for other in under_way]
    return turn.rule_state.refusal(attempt, turn.services.clock(), pending)


def _attempt_of(ready: _Ready) -> Attempt:
    """Return a call as rules look at it; the arguments as its tool reads them."""
    operation = ready.arguments.get("operation")
    outside = ready.tool.retry_safety in (RetrySafety.UNKNOWN, RetrySafety.CHECKABLE) and any(
        effect.kind.outside and effect.kind is not EffectKind.FETCH for effect in ready.effects
    )
    named = None if operation is None else str(operation)
    return Attempt(ready.call.name, ready.call.arguments, named, outside)


async def _judge(
    turn: Turn, ready: _Ready, trust: Trust, approved_by: str | None = None
) -> Verdict:
    """Return the decision about a call, and record it in the audit log.

    One that was begun before a crash was let through.

    Args:
        turn: The turn.
        ready: The call.
        trust: The least trusted of what the model had read when it made the call.
        approved_by: Who has approved this very call, if it was asked for.
    """
    begun = f"{ready.key}/begun" if approved_by is None else f"{ready.key}/approved"
    if begun in turn.recorded:
        return Allow()
    agent, participants, tool = turn.agent, turn.context.participants, ready.tool
    names: dict[str, str] = {}
    if not participants.can_see(ready.audience):
        names = await turn.live.database.read(lambda tx: people.names_of(tx, participants))
    wanted = CallRequest(
        agent=agent.name,
        tool=tool.name,
        arguments=ready.arguments,
        effects=ready.effects,
        operation=str(ready.arguments.get("operation") or ""),
        trust=trust,
        people=turn.people,
        asks=tool.ask or turn.rule_state.asks_person(_attempt_of(ready)),
        audience=ready.audience,
        participants=participants,
        names=names,
        definition=tool.digest(ready.arguments),
    )
    verdict = await _decide(turn, ready.key, Actor("agent", agent.id, agent.name, trust), wanted)
    if isinstance(verdict, Ask) and approved_by is not None:
        verdict = Allow(f"approved by {approved_by or 'a person'}")
    if isinstance(verdict, Allow) and any(
        effect.kind is EffectKind.PAY for effect in ready.effects
    ):
        turn.payments[ready.key] = ready.effects
    turn.note(_judgement_event(turn, ready.key, wanted, verdict))
    return verdict


def _note_question(turn: Turn, ready: _Ready, reason: str) -> None:
    """Note in the audit log that a call which was allowed waits for a person all the same."""
    wanted = CallRequest(turn.agent.name, ready.tool.name, ready.arguments, ready.effects)
    turn.note(_judgement_event(turn, ready.key, wanted, Ask(reason)))


class _Quota(NamedTuple):
    """The quota of a policy."""

    policy: str
    span: int
    of: str
    """`calls` or `amount`."""


async def _decide(turn: Turn, key: str, actor: Actor, wanted: CallRequest) -> Verdict:
    authority = turn.services.authority()
    resource = Resource("tool", wanted.tool, wanted=wanted)
    now = turn.services.clock()
    situation = Situation(authority, doubt=doubt_anything, now=now, turn_id=turn.id)
    verdict = decide(actor, Act.CALL, resource, situation)
    quota = _quota_of(authority, verdict)
    if not isinstance(verdict, Ask) and quota is None:
        return verdict
    # Only now it matters what was granted, and what of a quota has gone by.
    granted, used, givers = await _granted_and_used(turn, actor, wanted, quota, now)
    situation = replace(situation, grants=granted, used=used, givers=givers)
    verdict = decide(actor, Act.CALL, resource, situation)
    if isinstance(verdict, Ask) and _rests_on_trust(actor, resource, situation):
        # Only now it matters what was asked for.
        situation = replace(situation, doubt=await doubt_about(turn, key))
        verdict = decide(actor, Act.CALL, resource, situation)
    if isinstance(verdict, Allow) and verdict.grant:
        turn.use_grant(verdict.grant)
        if verdict.grant in used:
            turn.use_quota(approvals.Use(actor.id, verdict.grant, now, 0.0))
    elif isinstance(verdict, Allow) and quota is not None and verdict.policy == quota.policy:
        amount = amount_of(wanted.effects)
        # A quota of calls may let one pass whose amount cannot be read.
        amount = amount if math.isfinite(amount) else 0.0
        turn.use_quota(approvals.Use(actor.id, quota.policy, now, amount))
    return verdict


async def _granted_and_used(
    turn: Turn, actor: Actor, wanted: CallRequest, quota: _Quota | None, now: int
) -> tuple[GrantSet, dict[str, float], dict[str, frozenset[str]]]:
    """Return the valid grants for a call, the used part of grants and quota, and the givers.

    These are persons other than the owner, each with every way in which a policy may name them.
    """
    opening = turn.recorded.get("in")
    opener = OWNER if OWNER in turn.people or opening is None else speaker_of(opening)

    async def read(
        tx: Connection,
    ) -> tuple[list[Grant], dict[str, float], dict[str, frozenset[str]]]:
        live = await approvals.live_grants(tx, actor.id, now, turn.id)
        if opener != OWNER:
            live = [
                grant for grant in live if await _covers_turns_of_others(tx, grant, turn.id, opener)
            ]
        if not wanted.participants.can_see(wanted.audience):
            live = [
                grant
                for grant in live
                if await _covers_participants(tx, grant, wanted.participants)
            ]
        used: dict[str, float] = {}
        for grant in live:
            if grant.per_day is not None:
                used[grant.id] = await approvals.quota_used(
                    tx, actor.id, grant.id, now - DAY, "calls"
                )
        if quota is not None:
            since = now - quota.span
            used[quota.policy] = await approvals.quota_used(
                tx, actor.id, quota.policy, since, quota.of
            )
        others = {grant.given_by for grant in live} - {OWNER}
        givers = {person_id: await _names_of(tx, person_id) for person_id in others}
        return live, used, givers

    # Calls of one reply may be judged before the first of them is written.
    await turn.wait_for_write()
    live, used, givers = await turn.live.database.read(read)
    if opener in givers:
        givers[opener] |= {PRESENT}
    for use in turn.uses:
        if use.policy in used:
            by_amount = quota is not None and (quota.policy, quota.of) == (use.policy, "amount")
            used[use.policy] += use.amount if by_amount else 1
    granted = GrantSet(
        _after_uses(grant, turn.staged_grants.count(grant.id))
        for grant in live
        if grant.per_day is None or used[grant.id] < grant.per_day
    )
    return granted, used, givers


async def _covers_turns_of_others(tx: Connection, grant: Grant, turn_id: str, opener: str) -> bool:
    """Tell whether a grant is for calls in turns that a person other than the owner opens.

    It is if the question that it was given with came from a turn of theirs.
    """
    if grant.turn_id == turn_id:
        return True
    approval = await approvals.get(tx, grant.approval_id) if grant.approval_id else None
    record = await journal.turn(tx, approval.turn_id) if approval is not None else None
    return record is not None and await approvals.opener_of(tx, record) == opener


async def _names_of(tx: Connection, person_id: str) -> frozenset[str]:
    """Return every form in which a policy may name a person; empty for unknown persons."""
    person = await people.get_person(tx, person_id)
    if person is None:
        return frozenset()
    return Actor("person", person.id, person.name, person.trust, frozenset(person.roles)).tokens


async def _covers_participants(tx: Connection, grant: Grant, participants: Participants) -> bool:
    """Tell whether a grant was given for calls whose results these people see.

    What the owner lets an agent do in private is no word about whom its results may be shown to.
    """
    approval = await approvals.get(tx, grant.approval_id) if grant.approval_id else None
    record = await journal.turn(tx, approval.turn_id) if approval is not None else None
    return record is not None and participants.can_see(Audience.of_turn(record.audience))


def _after_uses(grant: Grant, uses: int) -> Grant:
    """Return a grant as it stands after some more uses."""
    return grant if grant.uses is None else replace(grant, uses=grant.uses - uses)


def _never(effects: tuple[Effect, ...]) -> None:
    del effects


def _rests_on_trust(actor: Actor, resource: Resource, situation: Situation) -> bool:
    """Tell whether a call is asked for only because nobody is known to have wanted it."""
    trusting = replace(situation, doubt=_never)
    return isinstance(decide(actor, Act.CALL, resource, trusting), Allow)


def _quota_of(authority: Authority, verdict: Verdict) -> _Quota | None:
    """Return the quota of the policy that would allow a call."""
    if not isinstance(verdict, Allow) or not verdict.policy:
        return None
    for policy in authority.policies.all:
        if policy.name == verdict.policy and policy.quota is not None:
            return _Quota(policy.name, policy.quota.span, policy.quota.of)
    return None


def _judgement_event(turn: Turn, key: str, wanted: CallRequest, verdict: Verdict) -> Event:
    """Return what the audit log keeps of a judgement."""
    kind = {"Allow": "allowed", "Ask": "asked", "Deny": "denied"}[type(verdict).__name__]
    body: dict[str, Any] = {
        "what": wanted.tool,
        "key": key,
        "verdict": kind,
        "reason": verdict.reason,
        "effects": [str(effect) for effect in wanted.effects],
        "arguments": {name: _short(value) for name, value in wanted.arguments.items()},
    }
    if wanted.trust.value != "owner":
        body["trust"] = wanted.trust.value
    if isinstance(verdict, Ask) and verdict.because:
        body["because"] = [
            {
                "what": reason.what,
                "from": reason.origin,
                "trust": reason.trust,
                "where": reason.where,
            }
            for reason in verdict.because
        ]
    return Event(
        f"call.{kind}",
        f"agent:{turn.agent.name}",
        turn.services.clock(),
        body,
        turn.agent.id,
        turn.id,
    )


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_ARGUMENT_LENGTH:
        return f"{value[:_MAX_ARGUMENT_LENGTH]}… ({len(value):,} characters)"
    return value


# -- running ---------------------------------------------------------------------------------------


async def _run_together(turn: Turn, together: list[_Ready]) -> None:
    """Run the calls that were let pass so far, and empty their list."""
    calls = together[:]
    together.clear()
    if len(calls) == 1:
        await _run_one(turn, calls[0])
    elif calls:
        await turn.flush()
        for ready in calls:
            _show_call(turn, ready.key, ready.call)
        contexts = [_context(turn, ready, None) for ready in calls]
        runs = (_attempt(turn, *pair) for pair in zip(calls, contexts, strict=True))
        for ready, context, outcome in zip(
            calls, contexts, await asyncio.gather(*runs), strict=True
        ):
            _record(turn, ready, outcome, context)


async def _run_one(turn: Turn, ready: _Ready) -> None:
    _show_call(turn, ready.key, ready.call)
    context = _context(turn, ready, None)
    outcome = await _carry_out(turn, ready, context, f"{ready.key}/begun")
    if outcome is not None:
        _record(turn, ready, outcome, context)
    else:
        _count_outside(turn, ready, "allowed")
        turn.context.learn(context.label)


async def _carry_out(
    turn: Turn, ready: _Ready, context: ToolContext, begun_key: str
) -> ToolResult | NeedsApproval | None:
    """Run a call as its effect demands. None: its result is in the journal already."""
    retry_safety = ready.tool.retry_safety
    if retry_safety is RetrySafety.TRANSACTIONAL:
        return await _commit_with_effect(turn, ready, context)
    if retry_safety is RetrySafety.REPEATABLE:
        await turn.flush()
        return await _attempt(turn, ready, context)
    if begun_key in turn.recorded:
        known = await _reconcile(turn, ready, context)
        if known is not None:
            return known
    else:
        turn.stage(EntryKind.BEGUN, begun_key, b"")
        await turn.flush()
    return await _attempt(turn, ready, context)


async def _commit_with_effect(
    turn: Turn, ready: _Ready, context: ToolContext
) -> ToolResult | NeedsApproval | None:
    """Run a transactional tool in the transaction that records its result."""
    with ToolWatch(ready.call) as watch:
        return await _run_inside(turn, ready, context, watch)


async def _run_inside(
    turn: Turn, ready: _Ready, context: ToolContext, watch: ToolWatch
) -> ToolResult | NeedsApproval | None:
    asked: list[NeedsApproval] = []
    around = current_turn()

    async def inside(tx: Connection) -> Draft:
        # On SQLite this runs in the thread of the writer, which does not know the turn.
        with turn_context(around):
            return await attempt(tx)

    async def attempt(tx: Connection) -> Draft:
        asked.clear()
        watch.begin_again()
        try:
            async with tx.savepoint():
                inner = replace(context, transaction=tx)
                result = await ready.tool.call(inner, ready.arguments)
                watch.result = result.text
        except StoreError:
            raise
        except NeedsApproval as question:
            asked.append(question)
            watch.asked()
            result = ToolResult(ResultState.WAITING, "")
        except _FAILURES as error:
            watch.failed(error)
            result = _tool_failed(ready, error)
        if (forgotten := turn.services.forgotten()) is not None:
            result = replace(result, text=forgotten(_shorten(result.text)))
        # A call that waits for a person leaves a trace of the try, and its result is staged after.
        if asked or context.decision is not None:
            key = f"{ready.key}/{'asked' if asked else 'effect'}"
            meta = _meta(result.state, context).to_json()
            return Draft(EntryKind.ONCE, key, result.text.encode(), context.now_ms, meta)
        return _result(ready, result, context)

    draft = await turn.flush(inside=inside)
    if asked:
        return asked[0]
    assert draft is not None
    if draft.kind is EntryKind.ONCE:
        return _effect(draft)
    state = ResultMeta.from_json(draft.meta).state
    _show_result(turn, ready.key, draft.body, state)
    if state is ResultState.OK:
        _show_kept(turn, ready)
    return None


def _effect(entry: Entry | Draft) -> ToolResult:
    """Return the result of an approved call, as it was committed with its effect."""
    return ToolResult(ResultMeta.from_json(entry.meta).state, entry.body.decode())


async def _reconcile(turn: Turn, ready: _Ready, context: ToolContext) -> ToolResult | None:
    """Find out about a call that was begun before a crash; None means that it did not happen."""
    if ready.tool.retry_safety is RetrySafety.CHECKABLE:
        try:
            known = await ready.tool.find_result(context, ready.arguments)
            return ToolResult(ResultState.OK, known) if known is not None else None
        except Exception:  # noqa: BLE001 - a check that fails leaves the outcome unknown
            _log.exception("check of %s failed", ready.tool.name)
    return _unknown(turn, ready.call)


def _unknown(turn: Turn, call: Call, said: str = "") -> ToolResult:
    turn.notify_owner(
        "call.unknown",
        f"The outcome of {spell_call(call.name, call.arguments)} is unknown: it was interrupted, "
        f"and it was not repeated. Please look whether it happened (turn {turn.id}).",
    )
    return ToolResult(ResultState.UNKNOWN, said + OUTCOME_UNKNOWN.format(name=call.name))


async def _attempt(turn: Turn, ready: _Ready, context: ToolContext) -> ToolResult | NeedsApproval:
    turn.attempted.add(ready.key)
    with ToolWatch(ready.call) as watch:
        outcome = await _run_outside(turn, ready, context, watch)
    forgotten = turn.services.forgotten()
    if forgotten is not None and isinstance(outcome, ToolResult):
        # A tool may bring back what was forgotten; a long text takes too long for the event loop.
        text = await asyncio.to_thread(forgotten, _shorten(outcome.text))
        return replace(outcome, text=text)
    return outcome


async def _run_outside(
    turn: Turn, ready: _Ready, context: ToolContext, watch: ToolWatch
) -> ToolResult | NeedsApproval:
    tool = ready.tool
    try:
        async with asyncio.timeout(tool.timeout):
            result = await tool.call(context, ready.arguments)
        watch.result = result.text
        return result
    except NeedsApproval as question:
        watch.asked()
        return question
    except TimeoutError as error:
        watch.failed(error)
        if tool.timeout is None:
            return _tool_failed(ready, error)
        said = f"Error: {tool.name} gave no answer within {tool.timeout:g} s."
        if tool.retry_safety is not RetrySafety.REPEATABLE:
            return _unknown(turn, ready.call, f"{said} ")
        return ToolResult(ResultState.FAILED, said)
    except _FAILURES as error:
        watch.failed(error)
        return _tool_failed(ready, error)


def _tool_failed(ready: _Ready, error: BaseException) -> ToolResult:
    """Return what the model reads of an error; raise it if it means that the turn shall stop."""
    if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
        raise error
    if isinstance(error, ToolError):
        return ToolResult(ResultState.FAILED, f"Error: {error.message}")
    _log.warning("tool %s failed", ready.tool.name, exc_info=error)
    said = f"Error: {ready.tool.name} failed with {type(error).__name__}: {error}"
    return ToolResult(ResultState.FAILED, said)


def _is_being_cancelled() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # in the thread of the writer, which nobody cancels
        return False
    return task is not None and task.cancelling() > 0


# -- results ---------------------------------------------------------------------------------------


def _result(ready: _Ready, result: ToolResult, context: ToolContext) -> Draft:
    body = result_wire(ready.call.id, _shorten(result.text))
    meta = _meta(result.state, context, empty=result.empty).to_json()
    return Draft(EntryKind.RESULT, ready.key, body, context.now_ms, meta)


def _meta(state: ResultState, context: ToolContext, *, empty: bool = False) -> ResultMeta:
    """Return what is kept beside a result: how far it is trusted, and who may see it."""
    trust_levels, audiences = tuple(context.trust_levels), tuple(map(str, context.audiences))
    return ResultMeta(state, trust_levels, audiences, empty=empty)


def _record(
    turn: Turn, ready: _Ready, outcome: ToolResult | NeedsApproval, context: ToolContext
) -> None:
    if isinstance(outcome, NeedsApproval):
        _note_question(turn, ready, outcome.question)
        _ask(turn, ready, "", outcome.reviewers, outcome.question)
    else:
        _count_outside(turn, ready, "allowed")
        meta = _meta(outcome.state, context, empty=outcome.empty)
        _settle(turn, ready.key, ready.call, outcome, meta)
        turn.context.learn(context.label)


def _settle(
    turn: Turn, key: str, call: Call, result: ToolResult, meta: ResultMeta | None = None
) -> None:
    body = result_wire(call.id, _shorten(result.text))
    meta = meta or ResultMeta(result.state)
    turn.stage(EntryKind.RESULT, key, body, meta=meta.to_json())
    _show_result(turn, key, body, result.state)


def _shorten(text: str) -> str:
    # A lone surrogate cannot be stored or sent, a secret and the system's mark must not be.
    text = unmarked(redact(text.encode("utf-8", "replace").decode()))
    if len(text) <= _MAX_RESULT_LENGTH + _NOTE:
        return text
    return (
        f"{text[:_MAX_RESULT_LENGTH]}\n(Cut: the first {_MAX_RESULT_LENGTH:,} of {len(text):,} "
        "characters are shown.)"
    )


def settle_open_calls(turn: Turn) -> None:
    """Give every call without a result one, since the turn ends here."""
    for key, entry in list(turn.recorded.items()):
        if entry.kind is not EntryKind.REPLY:
            continue
        step = key.partition("/")[0]
        for index, call in enumerate(Reply.from_entry(entry.body, entry.meta).calls):
            call_key = f"{step}/call/{index}"
            if call_key in turn.recorded:
                continue
            if _was_begun(turn, call_key, f"{call_key}/begun"):
                _settle(turn, call_key, call, _unknown(turn, call))
            elif call_key in turn.attempted:
                _settle(turn, call_key, call, _cut_short(call))
            else:
                _settle(turn, call_key, call, _NOT_RUN)
    for key in list(turn.recorded):
        call_key = key.removesuffix("/decision")
        if call_key == key or f"{call_key}/outcome" in turn.recorded:
            continue
        call = _call_at(turn, call_key)
        effect = turn.recorded.get(f"{call_key}/effect")
        if effect is not None:
            result = _effect(effect)
        elif _was_begun(turn, call_key, f"{call_key}/approved"):
            result = _unknown(turn, call)
        else:
            result = _cut_short(call) if call_key in turn.attempted else _NOT_RUN
        meta = ResultMeta(result.state).to_json()
        turn.tell(f"{call_key}/outcome", f"{_spell(call)}: {result.text}", meta=meta)


def _cut_short(call: Call) -> ToolResult:
    return ToolResult(ResultState.FAILED, CUT_SHORT.format(name=call.name))


def _was_begun(turn: Turn, call_key: str, begun_key: str) -> bool:
    """Tell whether a call may have had its effect: begun before a crash, or started here."""
    return isinstance(turn.recorded.get(begun_key), Entry) or (
        begun_key in turn.recorded and call_key in turn.attempted
    )


# -- questions and decisions -----------------------------------------------------------------------


def _ask(
    turn: Turn,
    ready: _Ready,
    reason: str,
    reviewers: tuple[str, ...] = (OWNER,),
    question: str = "",
) -> None:
    """Leave a call to a person: the agent is told that it waits, other calls go on."""
    approval = _question(turn, ready, reason, reviewers, question)
    text = f"Waiting for approval {approval.id}. A person has been asked; you will be told."
    body = result_wire(ready.call.id, text)
    turn.stage(EntryKind.RESULT, ready.key, body, meta=_waiting(approval).to_json())
    turn.ask_person(approval)


def _question(
    turn: Turn, ready: _Ready, reason: str, reviewers: tuple[str, ...], question: str = ""
) -> ApprovalRecord:
    """Return the question whether a call may be made, as people read it."""
    _count_outside(turn, ready, "asked")
    effects = ready.tool.reviewed_effects(ready.arguments)
    arguments = arguments_json(ready.arguments)
    if not question:
        spelled = spell_call(ready.call.name, arguments)
        declared = [effect for effect in effects if effect.kind is not EffectKind.UNDECLARED]
        what = f"{effects_in_words(declared)}: {spelled}" if declared else f"call {spelled}"
        question = f"{turn.agent.name} wants to {what}{f' ({reason})' if reason else ''}."
    question = redact(question)  # a tool may have worded it
    return ApprovalRecord(
        id=new_id("ap"),
        agent_id=turn.agent.id,
        turn_id=turn.id,
        key=ready.key,
        question=visible_line(question),
        asked_at_ms=turn.services.clock(),
        tool=ready.call.name,
        arguments=plain(arguments),
        effects=plain(write_effects(effects)),
        reason=visible_line(reason),
        reviewers=reviewers,
        definition=ready.tool.digest(ready.arguments),
    )


def _wait_for_client(turn: Turn, ready: _Ready) -> None:
    """Leave a call to the program that sent the message; the turn waits for its result."""
    _show_call(turn, ready.key, ready.call)
    arguments = arguments_json(ready.arguments)
    now = turn.services.clock()
    approval = ApprovalRecord(
        id=new_id("ap"),
        agent_id=turn.agent.id,
        turn_id=turn.id,
        key=ready.key,
        question=visible_line(
            redact(
                f"{turn.agent.name} waits for the result of "
                f"{spell_call(ready.call.name, arguments)} from the program that asked."
            )
        ),
        asked_at_ms=now,
        tool=ready.call.name,
        arguments=plain(arguments),
        effects=plain(write_effects(())),
        reviewers=(CLIENT,),
        next_at_ms=now + CLIENT_LIMIT,
        expires_at_ms=now + CLIENT_LIMIT,
    )
    text = (
        f"{ready.call.name} is carried out by the program that sent the message. Its result is "
        "not here yet; you will be told."
    )
    body = result_wire(ready.call.id, text)
    meta = replace(_waiting(approval), client=True).to_json()
    turn.stage(EntryKind.RESULT, ready.key, body, meta=meta)
    turn.ask_person(approval)


def _tell_client_result(turn: Turn, key: str, call: Call, text: str) -> None:
    """Tell the agent what the program says came of a call; it is trusted as a tool's result."""
    label = Label(Trust.TOOL)
    turn.context.learn(label)
    meta = ResultMeta(ResultState.OK, trust_levels=(label.trust,))
    said = f"Result of your call {_spell(call)}: {_shorten(text)}"
    turn.tell(f"{key}/outcome", said, meta=meta.to_json())


def _waiting(approval: ApprovalRecord) -> ResultMeta:
    state, question = ResultState.WAITING, approval.question
    return ResultMeta(state, approval=approval.id, question=question)


def open_questions(turn: Turn) -> list[str]:
    """Return the questions of a turn whose outcome the agent has not been told yet."""
    questions: list[str] = []
    for key, entry in turn.recorded.items():
        # A call that is asked for again waits as its outcome.
        if not entry.meta or not (entry.kind is EntryKind.RESULT or key.endswith("/outcome")):
            continue
        asked = ResultMeta.from_json(entry.meta)
        if asked.approval and f"{key}/outcome" not in turn.recorded:
            questions.append(f"{asked.question} (approval {asked.approval})")
    return questions


async def carry_out_decisions(turn: Turn) -> None:
    """Do what a person has decided about calls that waited."""
    for key, entry in list(turn.recorded.items()):
        call_key = key.removesuffix("/decision")
        if call_key == key or f"{call_key}/outcome" in turn.recorded:
            continue
        answer: dict[str, Any] = orjson.loads(entry.body)
        if answer.get("client"):
            _tell_client_result(turn, call_key, _call_at(turn, call_key), answer["text"])
            continue
        decision = Decision(
            answer["approved"],
            answer["note"],
            answer["by"],
            answer.get("arguments"),
            answer.get("approval"),
            answer.get("person") or "",
        )
        call = _call_at(turn, call_key)
        changed = _changed_tool(turn, call_key, call, answer) if decision.approved else None
        if changed is not None:
            _ask_again(turn, changed, decision, tuple(answer["reviewers"]))
        else:
            told = await _decided(turn, call_key, call, decision, _label_of(answer))
            meta = ResultMeta(told.state).to_json()
            turn.tell(f"{call_key}/outcome", told.text, meta=meta)
        turn.flush_meanwhile()


def _changed_tool(turn: Turn, key: str, call: Call, answer: dict[str, Any]) -> _Ready | None:
    """Return a call whose tool is not the one that was asked about any more; it must not run.

    What was begun before a crash was begun by the right one.
    """
    if f"{key}/approved" in turn.recorded or f"{key}/effect" in turn.recorded:
        return None
    asked = _prepare(turn, key, call)
    ready = _prepare(turn, key, _as_edited(turn, call, answer.get("arguments")))
    if not isinstance(ready, _Ready) or not answer.get("definition"):
        return None
    effects = plain_effects(plain(write_effects(ready.tool.reviewed_effects(ready.arguments))))
    if (answer["definition"], answer["effects"]) == (ready.tool.digest(ready.arguments), effects):
        return None
    return asked if isinstance(asked, _Ready) else ready


def _as_edited(turn: Turn, call: Call, arguments: str | None) -> Call:
    """Return a call with the arguments that a person has changed, if they have."""
    if arguments is None:
        return call
    # What a person saw and changed is the call that was meant.
    name, _ = turn.services.toolbox.resolve_call(call.name, call.arguments)
    return replace(call, name=name, arguments=arguments)


def _ask_again(turn: Turn, ready: _Ready, decision: Decision, reviewers: tuple[str, ...]) -> None:
    """Put a call to a person anew, since another tool has its name by now; it was not run."""
    reason = f"{ready.tool.name} is not the tool any more that {decision.approval_id} was about"
    again = replace(ready, key=f"{ready.key}/outcome")
    approval = _question(turn, again, reason, reviewers)
    _note_question(turn, again, reason)
    told = (
        f"Your call {_spell(ready.call)} was approved by {decision.by}, but the tool has changed "
        f"since it was asked for. It was not run. Waiting for approval {approval.id}; you will be "
        "told."
    )
    turn.tell(again.key, told, meta=_waiting(approval).to_json())
    turn.ask_person(approval)


def _label_of(answer: dict[str, Any]) -> Label:
    """Return the label of what whoever answered says: their note, and what they have changed."""
    if "trust" not in answer:
        return Label()  # an answer from before there were labels
    return Label(Trust(answer["trust"]), Audience.read(answer["audience"]))


async def _decided(
    turn: Turn, key: str, call: Call, decision: Decision, label: Label
) -> ToolResult:
    """Run a call that a person has approved; return what the agent is told of it."""
    by = f" by {decision.by}" if decision.by else ""
    note = comment_of(decision.note)
    changed = decision.arguments is not None
    if not decision.approved:
        if note:
            turn.context.learn(label)
        said = f"Your call {_spell(call)} was denied{by}.{note} It was not run."
        return ToolResult(ResultState.DENIED, said)
    if changed:
        # What they have written into the call is theirs, in all that it writes, too.
        turn.context.learn(label)
    call = _as_edited(turn, call, decision.arguments)
    ready = _prepare(turn, key, call)
    state = ResultState.NOT_RUN
    if isinstance(ready, _Ready) and f"{key}/effect" not in turn.recorded:
        verdict = await _judge(turn, ready, turn.context.label.trust, decision.by)
        if isinstance(verdict, Deny):
            ready, state = f"Error: {verdict.reason} It was not run.", ResultState.DENIED
    if isinstance(ready, str):
        outcome: ToolResult | NeedsApproval | None = ToolResult(state, ready)
    elif f"{key}/effect" in turn.recorded:
        outcome = _effect(turn.recorded[f"{key}/effect"])
    else:
        context = _context(turn, ready, decision)
        outcome = await _carry_out(turn, ready, context, f"{key}/approved")
        turn.context.learn(context.label)
    if isinstance(outcome, NeedsApproval) or outcome is None:
        said = "Error: the tool asked again although it was approved; it was not run."
        outcome = ToolResult(ResultState.FAILED, said)
    if note:
        turn.context.learn(label)
    how = "approved with changes" if changed else "approved"
    said = f"Your call {_spell(call)} was {how}{by}.{note} Result: {_shorten(outcome.text)}"
    return ToolResult(outcome.state, said)


def _call_at(turn: Turn, key: str) -> Call:
    step, _, index = key.partition("/call/")
    entry = turn.recorded[f"{step}/reply"]
    return Reply.from_entry(entry.body, entry.meta).calls[int(index.partition("/")[0])]


# -- what is shown ---------------------------------------------------------------------------------


def _context(turn: Turn, ready: _Ready, decision: Decision | None) -> ToolContext:
    loop, key = asyncio.get_running_loop(), ready.key
    search, participants = turn.services.search, turn.context.participants

    def progress(text: str) -> None:
        # A plain function runs in a thread of its own.
        loop.call_soon_threadsafe(turn.publish, "progress", {"key": key, "text": text})

    return ToolContext(
        agent=turn.agent,
        turn_id=turn.id,
        key=f"{turn.id}/{key}",
        now_ms=turn.services.clock(),
        channel=turn.channel,
        reply_to=turn.reply_to,
        decision=decision,
        progress=progress,
        participants=participants,
        people=turn.people,
        source=replace(
            turn.source_of(ready.effects),
            origins=(Origin(OriginKind.CALL, turn.id, key),),
        ),
        authority=turn.services.authority(),
        trust_levels=[ready.tool.trust] if ready.tool.trust is not None else [],
        audiences=[] if participants.owner_alone or ready.audience.public else [ready.audience],
        searching=(lambda query: search(turn.agent.id, query, participants)) if search else None,
        searching_all=(lambda query: search("", query, participants)) if search else None,
        settings=lambda: turn.services.settings.current,
        channels=turn.services.channels,
        contacts=lambda: turn.services.settings.current.contacts.book,
        resolve=turn.services.resolve,
    )


def _spell(call: Call) -> str:
    arguments = call.arguments if len(call.arguments) <= 300 else call.arguments[:300] + "…"
    return f"{call.name}({arguments})"


def _count_outside(turn: Turn, ready: _Ready, verdict: str) -> None:
    """Count a call with an effect outside: it ran without asking, a person was asked, or denied."""
    if has_outside_effect(ready.effects):
        turn.services.telemetry.counts.outside_calls.add((verdict,))


def _show_call(turn: Turn, key: str, call: Call) -> None:
    turn.publish("call", {"key": key, "name": call.name, "arguments": call.arguments})


def _show_result(turn: Turn, key: str, body: bytes, state: ResultState) -> None:
    if turn.services.hub.is_watched(turn.agent.id):
        text = orjson.loads(body)["content"]
        turn.publish("result", {"key": key, "state": state.value, "text": text})


def _show_kept(turn: Turn, ready: _Ready) -> None:
    """Show watchers what a call has put into memory, word by word; a plan is shown as a call."""
    if ready.tool.name == "schedule":
        return
    for effect in ready.effects:
        if effect.kind is EffectKind.REMEMBER:
            where = effect.things[0] if effect.things else "archive"
            before = str(ready.arguments.get("replaces") or "") if effect.amends else ""
            for text in effect.content:
                turn.publish("kept", {"where": where, "text": text, "before": before})
