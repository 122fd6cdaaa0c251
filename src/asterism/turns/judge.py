"""Judge a call before it runs: its effects, who asked for it, and what was read before."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import orjson

from asterism.errors import BudgetReached, ModelError
from asterism.memory import blocks, people
from asterism.memory import people as stored_people
from asterism.memory.blocks import is_visible
from asterism.permissions import (
    PRESENT,
    Act,
    Actor,
    Allow,
    Ask,
    Authority,
    CallRequest,
    GrantSet,
    Resource,
    Situation,
    Verdict,
    decide,
)
from asterism.permissions.intent import (
    SCHEMA,
    Intent,
    TrustedText,
    answer_of,
    intents_wire,
    question_for,
    read_intents,
    read_literally,
    verify_intents,
)
from asterism.permissions.provenance import Evidence, reading_of
from asterism.permissions.readings import ReadContent
from asterism.ports import ModelQuestion, ModelRequest, Profile
from asterism.store import approvals, journal
from asterism.store.database import Connection
from asterism.store.events import Event
from asterism.store.journal import VisibleEntry
from asterism.times import DAY
from asterism.turns.context import ContextReader, Declares, TrustedMessage, held, speaker_of
from asterism.types.agents import OWNER, Audience, Participants, Trust
from asterism.types.permissions import Doubt, Effect, EffectKind, Grant, amount_of, results_of
from asterism.types.turns import Call, EntryKind, Usage, trust_of

if TYPE_CHECKING:
    from asterism.tools.tool import Tool
    from asterism.turns.turn import Turn

_MAX_ARGUMENT_LENGTH = 500


async def judge(
    turn: Turn,
    key: str,
    tool: Tool,
    arguments: Mapping[str, Any],
    effects: tuple[Effect, ...],
    trust: Trust,
    audience: Audience,
    *,
    asks: bool = False,
    approved_by: str | None = None,
) -> Verdict:
    """Return the decision about a call, and record it in the audit log.

    Args:
        turn: The turn.
        key: The call's.
        tool: What is called.
        arguments: As the tool reads them.
        effects: What the call would do.
        trust: The least trusted of what the model had read when it made the call.
        audience: Who may see what the call brings back.
        asks: Whether a rule of the agent wants a person to be asked, whatever the tool says.
        approved_by: Who has approved this very call, if it was asked for.
    """
    agent, participants = turn.agent, turn.context.participants
    names: dict[str, str] = {}
    if not participants.can_see(audience):
        names = await turn.live.database.read(lambda tx: people.names_of(tx, participants))
    wanted = CallRequest(
        agent=agent.name,
        tool=tool.name,
        arguments=arguments,
        effects=effects,
        operation=str(arguments.get("operation") or ""),
        trust=trust,
        people=turn.people,
        asks=tool.ask or asks,
        audience=audience,
        participants=participants,
        names=names,
        definition=tool.digest(arguments),
    )
    verdict = await _decide(turn, key, Actor("agent", agent.id, agent.name, wanted.trust), wanted)
    if isinstance(verdict, Ask) and approved_by is not None:
        verdict = Allow(f"approved by {approved_by or 'a person'}")
    if isinstance(verdict, Allow) and any(
        effect.kind is EffectKind.PAY for effect in wanted.effects
    ):
        turn.payments[key] = wanted.effects
    turn.note(event_of(turn, key, wanted, verdict))
    return verdict


def note_question(
    turn: Turn,
    key: str,
    tool: Tool,
    arguments: Mapping[str, Any],
    effects: tuple[Effect, ...],
    reason: str,
) -> None:
    """Note in the audit log that a call which was allowed waits for a person all the same."""
    wanted = CallRequest(turn.agent.name, tool.name, arguments, effects)
    turn.note(event_of(turn, key, wanted, Ask(reason)))


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
    situation = Situation(authority, doubt=_always, now=now, turn_id=turn.id)
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
        situation = replace(situation, doubt=await _doubt(turn, key))
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
    person = await stored_people.get_person(tx, person_id)
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


def _always(effects: tuple[Effect, ...]) -> Doubt:
    outside = next((effect for effect in effects if effect.kind.outside), effects[0])
    return Doubt(f"it would {outside}, and no trusted person asked for it")


def _never(effects: tuple[Effect, ...]) -> None:
    del effects


def _rests_on_trust(actor: Actor, resource: Resource, situation: Situation) -> bool:
    """Tell whether a call is asked for only because nobody is known to have wanted it."""
    trusting = replace(situation, doubt=_never)
    return isinstance(decide(actor, Act.CALL, resource, trusting), Allow)


async def _doubt(turn: Turn, key: str) -> Callable[[tuple[Effect, ...]], Doubt | None]:
    """Return what tells whether effects of a call were asked for, after all that was read."""
    from asterism.permissions.provenance import judge as compare

    evidence = await evidence_of(turn)
    if evidence is None:
        return _always
    back = {reading.key for reading in evidence.readings}
    evidence.pending = [
        effect
        for other, effects in turn.payments.items()
        if other != key and f"{turn.id}/{other}" not in back
        for effect in effects
    ]
    readings = await intents_of(turn, evidence.text)

    def doubt(effects: tuple[Effect, ...]) -> Doubt | None:
        for intents in readings:
            concern = compare(evidence, intents, effects)
            if concern is not None:
                return concern
        return None

    return doubt


def _quota_of(authority: Authority, verdict: Verdict) -> _Quota | None:
    """Return the quota of the policy that would allow a call."""
    if not isinstance(verdict, Allow) or not verdict.policy:
        return None
    for policy in authority.policies.all:
        if policy.name == verdict.policy and policy.quota is not None:
            return _Quota(policy.name, policy.quota.span, policy.quota.of)
    return None


def event_of(turn: Turn, key: str, wanted: CallRequest, verdict: Verdict) -> Event:
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


_MAX_ENTRIES = 400
"""How far back the context is gone through; what is older than that vouches for nothing."""


async def evidence_of(turn: Turn) -> Evidence | None:
    """Return the words of trusted people and the readings in the context of a turn.

    None if nobody who is trusted asks for anything here.
    """
    account = turn.context.account
    if account is None or account.first != turn.context.epoch.first_seq or account.is_long:
        account = turn.context.account = await _open_account(turn)
    if account.upto < turn.live.length:
        await _catch_up(turn, account)
    for key, entry in turn.recorded.items():
        trust = turn.speaker_trust if key == "in" else trust_of(entry.meta, None)
        account.take(turn.id, entry, trust, _declares(turn))
    request, text = _trusted_text(turn, account)
    if request is None or text is None:
        return None
    evidence = Evidence(text)
    evidence.readings = account.readings
    evidence.requested_at = request.read_before
    return evidence


def _trusted_text(
    turn: Turn, account: ContextReader
) -> tuple[TrustedMessage | None, TrustedText | None]:
    """Return the request of the one who speaks, and what a reader may see: it and what vouches."""
    by_owner = OWNER in turn.people
    opening = turn.recorded.get("in")
    speaker = OWNER if by_owner else speaker_of(opening) if opening is not None else ""
    requests = [
        place
        for place, message in enumerate(account.said)
        if message.speaker == speaker and (message.trust is Trust.OWNER or not by_owner)
    ]
    if not requests:
        return None, None
    latest = requests[-1]
    others = account.said[:latest] + account.said[latest + 1 :]
    earlier = [turn.agent.system, *account.blocks.get(Trust.OWNER, ())]
    earlier += [message.text for message in others if message.trust is Trust.OWNER]
    known = [*account.blocks.get(Trust.KNOWN, ())]
    known += [message.text for message in others if message.trust is Trust.KNOWN]
    return account.said[latest], TrustedText(
        account.said[latest].text,
        tuple(text for text in earlier if text.strip()),
        tuple(text for text in known if text.strip()),
        by_owner=by_owner,
        sources=_sources(turn),
    )


def _sources(turn: Turn) -> tuple[str, ...]:
    """Return the source labels that the agent's tools declare."""
    toolbox = turn.services.toolbox
    tools = (toolbox.get(name, turn.agent.tools) for name in toolbox.names(turn.agent.tools))
    labels = {results_of(tool.declared_effects).source for tool in tools if tool is not None}
    return tuple(sorted(labels - {""}))


async def _open_account(turn: Turn) -> ContextReader:
    """Begin an account with what the agent was told to be, and what blocks tell those present."""
    participants = turn.context.participants
    seen = await turn.live.database.read(lambda tx: blocks.seen_by(tx, turn.agent.id))
    lines: dict[Trust, list[str]] = {}
    for visible in seen:
        if visible.block.id not in turn.context.shown:
            continue
        for line in visible.lines:
            if is_visible(visible.block.schema, line, visible.block.audience, participants):
                lines.setdefault(line.label.trust, []).append(line.text)
    first = turn.context.epoch.first_seq
    return ContextReader(
        first,
        max(first - 1, turn.live.length - _MAX_ENTRIES),
        {trust: tuple(texts) for trust, texts in lines.items()},
    )


async def _catch_up(turn: Turn, account: ContextReader) -> None:
    """Take in what the journal has got since the account was last looked at."""
    first, last = account.upto + 1, turn.live.length

    async def read(tx: Connection) -> list[VisibleEntry]:
        return await held(tx, turn.agent.id, turn.context.participants, None, first, last)

    declares = _declares(turn)
    for entry in await turn.live.database.read(read):
        account.take(entry.turn_id, entry, entry.trust, declares)
    account.upto = last


def _declares(turn: Turn) -> Declares:
    """Return a function that turns a result into a reading, by its tool's declaration."""
    toolbox = turn.services.toolbox

    def reading(call: Call, text: str, trust: Trust, key: str) -> ReadContent:
        name, arguments = toolbox.resolve_call(call.name, call.arguments)
        try:
            parsed: Any = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError:
            parsed = {}
        fields = cast("dict[str, Any]", parsed) if isinstance(parsed, dict) else {}
        tool = toolbox.get(name, turn.agent.tools)
        if tool is None:
            return ReadContent(name, text, trust, arguments=fields, key=key)
        try:
            effects = tool.effects(fields)
        except (KeyError, TypeError, ValueError, AttributeError):
            effects = ()  # a call that its tool refused
        return reading_of(
            name, text, trust, fields, effects, results_of(tool.declared_effects), key
        )

    return reading


_log = logging.getLogger(__name__)
_SCHEMA = orjson.dumps(SCHEMA)
_SECONDS = 60.0
_MAX_OUTPUT = 1_000
LITERAL = "literal"
AUTO = "auto"


async def intents_of(turn: Turn, text: TrustedText) -> tuple[tuple[Intent, ...], ...]:
    """Return the readings of a request, of which each must cover a call.

    A capable model reads it alone. A small one errs too often, so that the literal reading has to
    agree. Without a model, or if it does not answer, the literal reading stands in.
    """
    models, weak = _reader(turn)
    read = await _read(turn, text, models) if models else None
    if read is None:
        return (verify_intents(read_literally(text), text),)
    readings = [verify_intents(read, text)]
    if weak:
        readings.append(verify_intents(read_literally(text), text))
    return tuple(readings)


def _reader(turn: Turn) -> tuple[tuple[str, ...], bool]:
    """Return the models that are asked, and whether they are small ones."""
    services, wanted = turn.services, turn.services.settings.current.trust.reader
    if wanted == LITERAL:
        return (), False
    models = services.models.chain(turn.agent.model if wanted == AUTO else wanted)
    small = services.models.profile(models[0]).compact
    return (() if small and wanted == AUTO else models), small


async def _read(
    turn: Turn, text: TrustedText, models: tuple[str, ...]
) -> tuple[Intent, ...] | None:
    """Return a model's reading, from the journal if it is there; None without an answer."""
    key = f"intent/{_digest(text)}"
    recorded = turn.recorded.get(key)
    if recorded is not None:
        stored: dict[str, Any] = orjson.loads(recorded.body)
        return None if stored["effects"] is None else read_intents(stored["effects"])
    intents, by, usage = await _ask(turn, text, models, key)
    wire = None if intents is None else intents_wire(intents)
    body = {"by": by, "request": text.request, "effects": wire}
    meta = {"in": usage.input, "out": usage.output}
    turn.stage(EntryKind.ONCE, key, orjson.dumps(body), meta=orjson.dumps(meta).decode())
    return intents


async def _ask(
    turn: Turn, text: TrustedText, models: tuple[str, ...], key: str
) -> tuple[tuple[Intent, ...] | None, str, Usage]:
    messages = question_for(text)

    def compose(model: str, profile: Profile, too_long: int) -> ModelRequest:
        del profile, too_long
        return ModelRequest(
            model=model.partition(":")[2],
            messages=messages,
            tools=None,
            key=f"{turn.id}/{key}",
            timeout=min(_SECONDS, turn.seconds_left),
            agent_id=turn.agent.id,
            schema=_SCHEMA,
            max_output=_MAX_OUTPUT,
        )

    turn.publish("progress", {"key": "intent", "text": "reading what was asked for"})
    try:
        reply = await turn.services.models.ask(
            ModelQuestion(models, compose, reservations=turn.reservations, notify=turn.notify_owner)
        )
    except (ModelError, BudgetReached) as problem:
        _log.info("the request of %s is read literally: %s", turn.id, problem.message)
        return None, "", Usage()
    turn.usage += reply.usage
    return answer_of(reply.text), reply.model or models[0], reply.usage


def _digest(text: TrustedText) -> str:
    parts = [text.request, text.earlier, text.known, text.by_owner, text.sources]
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:16]
