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
from asterism.agents.live import LiveAgent, compile_context
from asterism.agents.turn import Means, Turn
from asterism.errors import AsterismError, BudgetReached, ModelError
from asterism.memory.facts import Fact
from asterism.memory.gate import passages
from asterism.memory.gate.writer import Writer
from asterism.permissions import Actor
from asterism.ports import ModelRequest, Profile, Purse, Question
from asterism.store import epochs, journal, summaries
from asterism.store.database import Connection
from asterism.types.ids import new_id
from asterism.types.memory import Insert, Origin, OriginKind, Source
from asterism.types.people import OWNER_ONLY, Audience, Tier
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
    heard, turn.context = turn.context.heard, turn.live.context
    # What this turn has seen and said so far is not in the store yet.
    turn.context.heard &= heard
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
    folds = means.folding()
    strategy = folds.strategy
    options = Options(folds.keep_recent, folds.keep_important, folds.decay_hours)
    told, former, unfinished = await means.database.read(
        lambda tx: _told(tx, live, context, before)
    )
    if context.epoch.summary is None and context.epoch.first_seq > 1:
        strategy = Strategy.TRUNCATE  # a past from before there were summaries, or an imported one
    folding = choose(
        told,
        strategy,
        budget_tokens=budget_tokens,
        now=means.clock(),
        options=options,
        former=former,
        unfinished=unfinished,
    )
    if folding is None:
        context.tail.squeeze()
        return None
    written = None
    if strategy is not Strategy.TRUNCATE:
        written = await _ask(means, live, folding, purse, notify, key)
    text, made_by = written or (rule_digest(folding), "rule")
    now = means.clock()
    # A past that never stood in the context does not leave it.
    facts = [
        (fact, told)
        for fact, told in facts_leaving(folding)
        if fact.weight >= _WORTH_SAVING and told.seq >= context.epoch.first_seq
    ]
    summary = Summary(
        id=new_id("sum"),
        agent_id=live.agent.id,
        company=context.company.key,
        audience=context.company.after(folding.audience),
        tier=folding.tier,
        first_seq=folding.first_seq,
        last_seq=folding.last_seq,
        strategy=strategy,
        text=text,
        kept=folding.kept,
        messages=folding.messages,
        tokens=folding.tokens,
        made_by=made_by,
        at=now,
    )
    context_budget = context.tail.budget // _BYTES_PER_TOKEN

    async def work(tx: Connection) -> tuple[Context, int]:
        await summaries.put(tx, summary)
        saved = await _save_facts(tx, means, live, facts, now)
        compiled = await compile_context(
            tx,
            live,
            context.company,
            context_budget,
            now,
            folding.last_seq + 1,
            summary.id,
            f"{folding.messages:,} messages were folded ({strategy.value})",
        )
        await epochs.put(tx, compiled.epoch)
        return compiled, saved

    compiled, saved = await means.database.write(work)
    compiled.saved = True
    live.put(compiled)
    return Folded(summary, saved)


async def _told(
    tx: Connection, live: LiveAgent, context: Context, before: int
) -> tuple[list[Told], Summary | None, list[str]]:
    """Return what a context holds in full before an entry, the summary in front, and open turns."""
    former = await summaries.get(tx, context.epoch.summary) if context.epoch.summary else None
    agent_id, company = live.agent.id, context.company
    rows: list[journal.Told] = []
    for seq in former.kept if former is not None else ():
        rows += await journal.told(tx, agent_id, seq, seq)
    first = former.last_seq + 1 if former is not None else 1
    rows += await journal.told(tx, agent_id, first, before - 1)
    told = [_as_told(one) for one in rows]
    unfinished = await journal.unfinished(tx, agent_id)
    return [one for one in told if company.may_hear(one.audience)], former, unfinished


def _as_told(one: journal.Told) -> Told:
    audience = Audience.read(one.audience) if one.audience else OWNER_ONLY
    tier = Tier(one.tier) if one.tier else Tier.OWNER
    return Told(one.seq, one.turn_id, one.kind, one.body, one.at, audience, tier)


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
            text, made_by = summary_from(reply.text) or text, reply.model
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
            (Origin(OriginKind.MESSAGE, told.turn_id, str(told.seq)),), told.audience, told.tier
        )
        writer = Writer(
            actor=Actor("system", live.agent.id, live.agent.name, told.tier),
            constellation=live.constellation,
            source=source,
            now=now,
            agent_id=live.agent.id,
            turn_id=told.turn_id,
            reason="about to leave the context",
            rules=means.rules(),
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
