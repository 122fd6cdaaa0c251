"""Room in a context: when its tail is too long, old turns are folded, and nothing is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from asterism.agents.compaction import (
    Folding,
    Options,
    Strategy,
    Told,
    ask_for_summary,
    choose,
    chunks,
    facts_leaving,
    rule_digest,
    summary_from,
)
from asterism.agents.context import Context
from asterism.agents.held import held
from asterism.agents.live import LiveAgent, compile_context, load_context
from asterism.agents.turn import Means, Turn
from asterism.errors import AsterismError, BudgetReached, ModelError
from asterism.memory.facts import Fact
from asterism.memory.gate import passages
from asterism.memory.gate.writer import Writer
from asterism.permissions import Actor
from asterism.ports import ModelRequest, Profile, Purse, Question
from asterism.store import epochs, journal, summaries
from asterism.store.database import Connection
from asterism.telemetry.redaction import redact
from asterism.types.ids import new_id
from asterism.types.memory import Insert, Origin, OriginKind, Source
from asterism.types.people import Audience
from asterism.types.summaries import Summary
from asterism.types.turns import WIRE_KINDS

_log = logging.getLogger(__name__)

_BYTES_PER_TOKEN = 4
_READ_SHARE = 0.8
"""How much of its window a model is given to summarise at once."""
_WORTH_SAVING = 0.6
"""How sure the rules must be that a sentence tells something that lasts."""
_SUMMARY_SECONDS = 120.0
_SUMMARY_OUTPUT = 1_000


@dataclass(frozen=True, slots=True)
class Folded:
    """What was done to make room."""

    summary: Summary
    facts: int
    """How many facts were saved into the archive by rule."""


async def make_room(turn: Turn, budget: int) -> None:
    """Fold old turns so that a turn's context fits a budget in bytes."""
    await turn.written()
    before = turn.record.first_seq if turn.record is not None else turn.live.length + 1
    turn.publish("progress", {"key": "memory", "text": "making room in the context"})
    await fold(
        turn.means,
        turn.live,
        turn.context,
        before=before,
        budget_tokens=budget // _BYTES_PER_TOKEN,
        purse=turn.purse,
        notify=turn.notify_owner,
        key=f"{turn.id}/fold",
    )
    former, turn.context = turn.context, turn.live.context
    # What this turn has seen and said so far is not in the store yet.
    turn.context.learn(former.label)
    for draft in turn.staged:
        if draft.kind in WIRE_KINDS:
            turn.context.tail.append(draft.kind, draft.body)


async def fold(
    means: Means,
    live: LiveAgent,
    context: Context,
    *,
    before: int,
    budget_tokens: int,
    purse: Purse | None,
    notify: Callable[[str, str], None],
    key: str,
) -> Folded | None:
    """Fold what was told before an entry, and compile the context anew; None if nothing can be.

    Facts are saved by rule first. Then a model is asked for the summary, where the strategy says
    so; if it does not answer, the summary is made by rule, so that the turn goes on in any case.
    """
    past = await means.database.read(lambda tx: _read_past(tx, live, context, before))
    made = None
    if past.folded_by is None:
        made = await _summarise(
            means, live, context, past, budget_tokens=budget_tokens, asking=(purse, notify, key)
        )
        if made is None:
            context.tail.squeeze()
            return None
    begun = await means.database.write(lambda tx: _begin(tx, means, live, context, made))
    if begun is None:
        return None
    compiled, folded = begun
    live.put(compiled)
    return folded


@dataclass(frozen=True, slots=True)
class _Past:
    """What a context could fold."""

    told: list[Told]
    former: Summary | None
    """What stands for all before that."""
    unfinished: list[str]
    """Turns that have not ended."""
    folded_by: Summary | None
    """What another process has folded it into already."""


async def _read_past(tx: Connection, live: LiveAgent, context: Context, before: int) -> _Past:
    agent_id = live.agent.id
    former = await summaries.get(tx, context.epoch.summary) if context.epoch.summary else None
    first = former.last_seq + 1 if former is not None else 1
    rows = await held(tx, agent_id, context.participants, former, first, before - 1)
    unfinished = await journal.unfinished(tx, agent_id)
    return _Past(
        [_as_told(one) for one in rows], former, unfinished, await _folded_by(tx, live, context)
    )


async def _folded_by(tx: Connection, live: LiveAgent, context: Context) -> Summary | None:
    """Return the summary of a later epoch with these participants, if another process began one."""
    latest = await epochs.latest(tx, live.agent.id, context.participants.key)
    if latest is None or latest.summary is None or latest.first_seq <= context.epoch.first_seq:
        return None
    return await summaries.get(tx, latest.summary)


def _as_told(one: journal.Told) -> Told:
    audience = Audience.of_turn(one.audience)
    return Told(one.seq, one.turn_id, one.kind, one.body, one.at, audience, one.trust)


@dataclass(frozen=True, slots=True)
class _Made:
    """A folding that is to be stored."""

    summary: Summary
    facts: list[tuple[Fact, Told]]
    """What must not be lost, and the message that each was said in."""


async def _summarise(
    means: Means,
    live: LiveAgent,
    context: Context,
    past: _Past,
    *,
    budget_tokens: int,
    asking: tuple[Purse | None, Callable[[str, str], None], str],
) -> _Made | None:
    """Choose what leaves a context, and write what stands for it; None if nothing can leave."""
    folds = means.folding()
    strategy = folds.strategy
    if context.epoch.summary is None and context.epoch.first_seq > 1:
        strategy = Strategy.TRUNCATE  # a past from before there were summaries, or an imported one
    folding = choose(
        past.told,
        strategy,
        budget_tokens=budget_tokens,
        now=means.clock(),
        options=Options(folds.keep_recent, folds.keep_important, folds.decay_hours),
        former=past.former,
        unfinished=past.unfinished,
    )
    if folding is None:
        return None
    written = None
    if strategy is not Strategy.TRUNCATE:
        written = await _ask(means, live, folding, *asking)
    text, made_by = written or (rule_digest(folding), "rule")
    summary = Summary(
        id=new_id("sum"),
        agent_id=live.agent.id,
        participants=context.participants.key,
        audience=context.participants.after(folding.audience),
        trust=folding.trust,
        first_seq=folding.first_seq,
        last_seq=folding.last_seq,
        strategy=strategy,
        text=text,
        kept=folding.kept,
        messages=folding.messages,
        tokens=folding.tokens,
        made_by=made_by,
        at=means.clock(),
    )
    # A past that never stood in the context does not leave it.
    facts = [
        (fact, told)
        for fact, told in facts_leaving(folding)
        if fact.weight >= _WORTH_SAVING and told.seq >= context.epoch.first_seq
    ]
    return _Made(summary, facts)


async def _begin(
    tx: Connection, means: Means, live: LiveAgent, context: Context, made: _Made | None
) -> tuple[Context, Folded] | None:
    """Begin the epoch after a folding; where another process has folded first, go on in its one."""
    participants, budget, now = (
        context.participants,
        context.tail.budget // _BYTES_PER_TOKEN,
        means.clock(),
    )
    await epochs.hold(tx, live.agent.id)
    other = await _folded_by(tx, live, context)
    if other is not None:
        compiled, folded = await load_context(tx, live, participants, budget, now), Folded(other, 0)
    elif made is not None:
        summary = await summaries.put(tx, made.summary)
        folded = Folded(summary, await _save_facts(tx, means, live, made.facts, now))
        why = f"{summary.messages:,} messages were folded ({summary.strategy.value})"
        compiled = await compile_context(
            tx, live, participants, budget, now, summary.last_seq + 1, summary.id, why
        )
    else:
        return None  # the other's summary was forgotten meanwhile
    if not compiled.saved:
        compiled.epoch, compiled.saved = await epochs.begin(tx, compiled.epoch), True
    return compiled, folded


async def _ask(
    means: Means,
    live: LiveAgent,
    folding: Folding,
    purse: Purse | None,
    notify: Callable[[str, str], None],
    key: str,
) -> tuple[str, str] | None:
    """Return the summary that a model writes, with the model; None if a rule has to do."""
    models = means.chain(live.agent.model)
    profile = means.profile(models[0])
    if profile.compact:
        return None  # it reads too slowly to be waited for
    window = profile.window or means.context_tokens()
    text, made_by = "", ""
    try:
        for number, part in enumerate(chunks(folding, int(window * _READ_SHARE))):
            piece = part if number == 0 else replace(part, former=text)
            messages = ask_for_summary(piece)
            reply = await means.ask(
                Question(
                    models=models,
                    compose=_composer(live, messages, f"{key}/{number}"),
                    purse=purse,
                    notify=notify,
                )
            )
            text, made_by = summary_from(redact(reply.text)) or text, reply.model
    except (ModelError, BudgetReached) as problem:
        _log.info("the summary of %s is made by rule: %s", live.agent.name, problem.message)
        return None
    return (text, made_by or models[0]) if text else None


def _composer(
    live: LiveAgent, messages: Sequence[bytes], key: str
) -> Callable[[str, Profile, int], ModelRequest]:
    def compose(model: str, profile: Profile, too_long: int) -> ModelRequest:
        del profile, too_long
        return ModelRequest(
            model=model.partition(":")[2],
            messages=list(messages),
            tools=None,
            key=key,
            timeout=_SUMMARY_SECONDS,
            agent_id=live.agent.id,
            frozen=1,
            max_output=_SUMMARY_OUTPUT,
        )

    return compose


async def _save_facts(
    tx: Connection,
    means: Means,
    live: LiveAgent,
    facts: Sequence[tuple[Fact, Told]],
    now: int,
) -> int:
    """Put what must not be lost into the archive, each fact with the message it was said in."""
    saved = 0
    for fact, told in facts:
        source = Source(
            (Origin(OriginKind.MESSAGE, told.turn_id, str(told.seq)),), told.audience, told.trust
        )
        writer = Writer(
            actor=Actor("system", live.agent.id, live.agent.name, told.trust),
            constellation=live.constellation,
            source=source,
            now=now,
            agent_id=live.agent.id,
            turn_id=told.turn_id,
            reason="about to leave the context",
            authority=means.authority(),
        )
        try:
            async with tx.savepoint():
                await passages.write(
                    tx, writer, live.agent.id, Insert(fact.text, tags=(fact.kind,))
                )
        except AsterismError as problem:
            _log.info("a fact was not saved: %s", problem.message)
        else:
            saved += 1
    return saved
