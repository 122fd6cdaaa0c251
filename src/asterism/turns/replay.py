"""Replay: a recorded turn runs again, offline; model and tools answer from the journal.

It runs in the same loop on a scratch database, so that nothing of the real one is touched and what
the loop writes can be compared, byte for byte.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import orjson

from asterism.config.load import FixedSettings
from asterism.config.settings import ContextSettings, Settings
from asterism.errors import Conflict, InvalidInput, ModelError, NotFound
from asterism.memory import people
from asterism.ports import ModelQuestion, Profile
from asterism.records import dataclass
from asterism.store import agents, approvals, journal, messages
from asterism.store.database import Connection, Database
from asterism.store.journal import Draft
from asterism.store.sqlite import open_sqlite
from asterism.times import utc_text
from asterism.tools.tool import Tool, Toolbox, ToolContext
from asterism.turns.approvals import settle
from asterism.turns.context_view import Past, past_of
from asterism.turns.loop import RULES_KEY
from asterism.turns.pipeline import RecordedPipeline
from asterism.turns.repeats import recorded_repeat
from asterism.turns.runtime import Hub, Runtime
from asterism.turns.turn import TurnServices
from asterism.types.agents import (
    OWNER,
    Account,
    AgentRecord,
    Trust,
    least_trusted,
    message_id_for,
    new_id,
    optional_ms,
    stored_rules,
    turn_id_for,
)
from asterism.types.permissions import Answer, ToolEffect
from asterism.types.turns import (
    END,
    WIRE_KINDS,
    Entry,
    EntryKind,
    ImportResult,
    MessageMeta,
    MessageOrigin,
    Outcome,
    PastMessage,
    Replay,
    Reply,
    ReplyMeta,
    ResultMeta,
    ResultState,
    RetrySafety,
    SentContext,
    ToolResult,
    TurnRecord,
    TurnState,
    check_field,
    check_text,
    message_wire,
    text_of,
    unmarked,
)


class _EndOfRecording(ModelError):
    """The turn went no further than this."""


Wire = Callable[[ModelQuestion, Past | None, Reply | None], Awaitable[Reply | None]]
"""Answers a question from a tape of what went over the wire, with the past that the models saw and
the reply that was recorded; None if the tape has no such exchange."""


_CONTEXT_TOKENS = 1_000
"""What a replay reads of an agent's past: what was sent then is known."""


class _RecordedModel:
    """Says what was said."""

    def __init__(
        self,
        entries: list[Entry],
        wire: Wire | None = None,
        past: Callable[[Entry | None], Awaitable[Past | None]] | None = None,
    ) -> None:
        self._replies = {entry.key: entry for entry in entries if entry.kind is EntryKind.REPLY}
        self._wire = wire
        self._past = past

    async def answer(self, question: ModelQuestion) -> Reply:
        """Return the recorded reply of the step that asks."""
        request = question.compose(question.models[0], Profile(), 0)
        entry = self._replies.get(request.key.partition("/")[2])
        recorded = Reply.from_entry(entry.body, entry.meta) if entry is not None else None
        if self._wire is not None and self._past is not None:
            past = await self._past(entry)
            played = await self._wire(question, past, recorded)
            if played is not None:
                return played
        if recorded is None:
            raise _EndOfRecording("The recording ends here.")
        return recorded


class _RecordedTool(Tool):
    """Gives the results that were given; has no effect of its own."""

    def __init__(self, name: str, results: dict[str, Entry]) -> None:
        super().__init__(
            _nothing,
            name=name,
            retry_safety=RetrySafety.REPEATABLE,
            check=None,
            ask=False,
            timeout=None,
            effects=ToolEffect("read"),
        )
        self._results = results

    def read(self, arguments: str) -> dict[str, Any]:
        """Take any arguments: they were judged when the turn was recorded."""
        del arguments
        return {}

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Return the recorded result of this call."""
        del arguments
        key = context.key.partition("/")[2]
        if context.decision is not None:
            outcome = self._results[f"{key}/outcome"]
            told = text_of(outcome.body).partition(" Result: ")[2]
            return ToolResult(ResultMeta.from_json(outcome.meta).state, told)
        entry = self._results[key]
        meta = ResultMeta.from_json(entry.meta)
        if meta.question is not None:
            context.ask(meta.question)
        return ToolResult(meta.state, text_of(entry.body), empty=meta.empty)


class _RecordedTools(Toolbox):
    """Every tool there ever was."""

    def __init__(self, entries: list[Entry], real: Toolbox | None) -> None:
        super().__init__()
        self._recorded = {entry.key: entry for entry in entries}
        self._real = real

    def wire(self, allowed: tuple[str, ...] | None, *, compact: bool = False) -> bytes | None:
        """Return the descriptions that a model would be given now."""
        return self._real.wire(allowed, compact=compact) if self._real is not None else None

    def names(self, allowed: tuple[str, ...] | None = None) -> list[str]:
        """Return the tools that rules of the turn looked at."""
        del allowed
        return _recorded_rules(self._recorded.get(RULES_KEY))["tools"]

    def get(self, name: str, allowed: tuple[str, ...] | None) -> Tool:
        """Return the recorded tool of that name."""
        del allowed
        return _RecordedTool(name, self._recorded)


def _nothing() -> None:
    """Stand in for a tool's function, which is never called."""


async def replay(
    database: Database,
    record: TurnRecord,
    entries: list[Entry],
    *,
    toolbox: Toolbox | None = None,
    wire: Wire | None = None,
) -> Replay:
    """Run a turn again and compare what it writes with what it wrote then.

    With `wire`, models are heard through it instead of from the journal, each with the past that it
    was shown then, and with the tools of `toolbox` to choose from.
    """
    if record.state is TurnState.OPEN:
        raise Conflict(
            f"Turn {record.id} is still under way. Replay it when it has ended; nothing was done."
        )
    agent = await database.read(lambda tx: agents.by_id(tx, record.agent_id))
    assert agent is not None
    with tempfile.TemporaryDirectory(prefix="asterism-replay-") as place:
        scratch = await open_sqlite(Path(place), constellation="replay")
        try:
            await scratch.write(lambda tx: _lay_out(tx, agent, record, entries))

            async def past(reply: Entry | None) -> Past | None:
                return await database.read(lambda tx: past_of(tx, record, reply))

            model = _RecordedModel(entries, wire, past)
            tools = _RecordedTools(entries, toolbox)
            outcome, written = await _run(scratch, agent, record, entries, model, tools)
        finally:
            await scratch.close()
    differences = tuple(_differences(entries, written, whole=wire is not None))
    text = outcome.text if outcome.state is TurnState.DONE else record.error or outcome.text
    return Replay(record.id, not differences, differences, text)


async def _lay_out(
    tx: Connection, agent: AgentRecord, record: TurnRecord, entries: list[Entry]
) -> None:
    """Put the agent as it stood before the turn, and the message, in the scratch database."""
    limits = replace(agent.limits, seconds=86_400.0)
    given = _recorded_rules(next((entry for entry in entries if entry.key == RULES_KEY), None))
    agent = replace(agent, limits=limits, rules=stored_rules(given["rules"]))
    await agents.create(tx, agent)
    await agents.have_run(tx, agent.id, given["ran"])
    await tx.run("UPDATE agents SET length = ? WHERE id = ?", (record.first_seq - 1, agent.id))
    said = next(entry for entry in entries if entry.key == "in")
    opening = MessageMeta.from_json(said.meta)
    origin = MessageOrigin(record.channel, opening.sender)
    message_id, schema = message_id_for(record.id), opening.schema
    await messages.put_message(
        tx,
        agent.id,
        message_id,
        said.body,
        origin,
        said.at_ms,
        schema=schema,
        client=opening.client,
    )


def _recorded_rules(entry: Entry | None) -> dict[str, Any]:
    """Return the rules that a turn began with, and what they looked at."""
    return orjson.loads(entry.body) if entry else {"rules": None, "tools": [], "ran": {}}


class _RecordedModels:
    """Answers with what was recorded, whatever an agent's model is."""

    def __init__(self, model: _RecordedModel) -> None:
        self.ask = model.answer

    def chain(self, model: str) -> tuple[str, ...]:
        return (model,)

    def profile(self, model: str) -> Profile:
        del model
        return Profile()


async def _run(
    scratch: Database,
    agent: AgentRecord,
    record: TurnRecord,
    entries: list[Entry],
    model: _RecordedModel,
    tools: _RecordedTools,
) -> tuple[Outcome, list[Entry]]:
    recorded = {entry.key: entry for entry in entries}
    services = TurnServices(
        database=scratch,
        toolbox=tools,
        models=_RecordedModels(model),
        hub=Hub(),
        clock=lambda: record.opened_at_ms,
        settings=FixedSettings(Settings(context=ContextSettings(tokens=_CONTEXT_TOKENS))),
        pipeline=RecordedPipeline(FixedSettings(), recorded),
        find_repeat=recorded_repeat(recorded),
    )
    runtime = Runtime(services, delivered=lambda: None, ended=lambda _: None)
    await runtime.serve(agent.id, None)
    for entry in entries:
        if entry.is_decision and await _decide_again(scratch, record, entry, entries):
            await runtime.serve(agent.id, None)
    outcome = await runtime.outcome(record.id)

    async def read(tx: Connection) -> tuple[list[Entry], dict[str, str]]:
        there = await journal.turn(tx, record.id)
        asked = {approval.key: approval.id for approval in await approvals.of_turn(tx, record.id)}
        return (await journal.entries_of(tx, there) if there else []), asked

    written, asked = await scratch.read(read)
    return outcome, [_with_old_ids(entry, entries, asked) for entry in written]


async def _decide_again(
    scratch: Database, record: TurnRecord, entry: Entry, entries: list[Entry]
) -> bool:
    """Give the turn the decision of an entry; False if it came with the one before."""
    said: dict[str, Any] = orjson.loads(entry.body)
    if said.get("client"):
        return await _submit_again(scratch, record, entry, entries)
    answer = Answer(said["approved"], said["by"], said["by"], said["note"], said.get("arguments"))
    outcome = next(
        (recorded for recorded in entries if recorded.key == f"{said['key']}/outcome"), None
    )
    asked_again = (
        outcome is not None and ResultMeta.from_json(outcome.meta).state is ResultState.WAITING
    )

    async def work(tx: Connection) -> None:
        for approval in await approvals.of_turn(tx, record.id):
            if approval.key == said["key"] and approval.decided_at_ms is None:
                # Its tool had changed by then, or (edited arguments) is not there to look.
                known = "another" if asked_again else ""
                asked = replace(approval, definition=known)
                await settle(tx, asked, record, answer, record.opened_at_ms)

    await scratch.write(work)
    return True


async def _submit_again(
    scratch: Database, record: TurnRecord, entry: Entry, entries: list[Entry]
) -> bool:
    """Give the turn the results of a program that came together, with the first of them."""
    place = entries.index(entry)
    if place and entries[place - 1].is_decision and b'"client":true' in entries[place - 1].body:
        return False
    together = takewhile(lambda later: later.is_decision, entries[place:])
    body = orjson.dumps({"results": [orjson.Fragment(later.body) for later in together]})
    decision_id, at = f"{message_id_for(record.id)}/{entry.key}", record.opened_at_ms
    await scratch.write(
        lambda tx: messages.put_decision(tx, record.agent_id, decision_id, record.id, body, at)
    )
    return True


def _with_old_ids(entry: Entry, recorded: list[Entry], asked: dict[str, str]) -> Entry:
    """Return an entry with the approval ids of the recording instead of new ones."""
    body = entry.body
    for old in recorded:
        if old.meta and old.key in asked:
            former = ResultMeta.from_json(old.meta).approval or asked[old.key]
            body = body.replace(asked[old.key].encode(), former.encode())
    return replace(entry, body=body)


def _differences(recorded: list[Entry], written: list[Entry], *, whole: bool) -> Iterator[str]:
    """Yield what differs in the wire forms, and with `whole` in what came along with replies."""
    then = {
        entry.key: entry
        for entry in recorded
        # What a turn was told of memory, and why it was ended, comes from outside of it.
        if entry.kind in WIRE_KINDS and entry.key != END and not entry.key.startswith("note/")
    }
    now = {entry.key: entry for entry in written if entry.kind in WIRE_KINDS and entry.key != END}
    for key in then | now:
        if key not in now:
            yield f"{key}: recorded, but the replay did not come to it."
        elif key not in then:
            yield f"{key}: new in the replay."
        elif then[key].body != now[key].body:
            yield f"{key}: other text than recorded."
        elif (
            whole
            and then[key].kind is EntryKind.REPLY
            and _reply_details(then[key]) != _reply_details(now[key])
        ):
            yield f"{key}: other reasoning, tokens or ending than recorded."


def _reply_details(entry: Entry) -> ReplyMeta:
    """Return what came along with a reply, without what tells which context it was given."""
    return replace(ReplyMeta.from_json(entry.meta), epoch=None, sent=SentContext())


CHANNEL = "import"
"""Where a past comes from; speakers are accounts in it."""


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A message of a person, and what the agent said to it."""

    id: str
    speaker: str | None
    """None: whoever imports it."""
    drafts: list[Draft] = field(default_factory=list[Draft])


def read_past(
    messages: Sequence[PastMessage | tuple[str, str]], now: int, by: str = OWNER
) -> list[PastTurn]:
    """Return a conversation as turns, each begun by a message of a person.

    What names no speaker was said by whoever imports it: `by` is their id.
    """
    unnamed = (
        None if by == OWNER else orjson.dumps({"participants": people.alone_with(by)}).decode()
    )
    past: list[PastTurn] = []
    before: int | None = None
    for index, given in enumerate(messages, 1):
        message = given if isinstance(given, PastMessage) else PastMessage(*given)
        if message.role not in ("user", "assistant") or not (past or message.role == "user"):
            raise InvalidInput(
                f"Message {index} is of the role {message.role!r}; a conversation is imported as "
                "messages of 'user' and 'assistant', the first of 'user'. Nothing was imported."
            )
        at = before = _time(index, message, before, now)
        body = message_wire(message.role, unmarked(check_text(message.text)))
        if message.role == "user":
            turn = PastTurn(turn_id_for(new_id("msg")), _speaker(index, message))
            meta = orjson.dumps({"sender": turn.speaker}).decode() if turn.speaker else unnamed
            turn.drafts.append(Draft(EntryKind.MESSAGE, "in", body, at, meta))
            past.append(turn)
        else:
            _speaker(index, message)
            entries = past[-1].drafts
            key = f"{len(entries) - 1}/reply"
            entries.append(Draft(EntryKind.REPLY, key, body, at, Reply(message.text).meta()))
    return past


def _time(index: int, message: PastMessage, before: int | None, now: int) -> int:
    """Return when a message was said."""
    at = optional_ms(message.at)
    if at is None:
        return now if before is None else before
    if at > now:
        raise InvalidInput(
            f"Message {index} is of {utc_text(at)}, and now it is {utc_text(now)}. Give each "
            "message the time at which it was said. Nothing was imported."
        )
    if before is not None and at < before:
        raise InvalidInput(
            f"Message {index} is of {utc_text(at)}, before the one that precedes it "
            f"({utc_text(before)}). Sort them by time; one without a time counts as said with the "
            "one before it, the first of all now. Nothing was imported."
        )
    return at


def _speaker(index: int, one: PastMessage) -> str | None:
    """Return who said a message, None being whoever imports it."""
    if one.speaker is None:
        return None
    if one.role != "user":
        raise InvalidInput(
            f"Message {index} is of the role 'assistant' and names the speaker {one.speaker!r}; "
            "what the agent said has none. Leave it out, or make it a message of 'user'. "
            "Nothing was imported."
        )
    if not one.speaker.strip():
        raise InvalidInput(
            f"Message {index} names a speaker without a name. Give the name, or None for "
            "whoever imports it. Nothing was imported."
        )
    check_field("speaker", one.speaker)
    return one.speaker


async def append_past(
    tx: Connection, agent_id: str, past: Sequence[PastTurn], now: int, trust: Trust = Trust.OWNER
) -> ImportResult:
    """Append finished turns to the journal of an agent that has nothing to do.

    `trust` says how far whoever imports it is trusted, and so at most all that they bring.
    """
    # The claim voids what is in the memory of other processes, and keeps messages out till the end.
    if await journal.claim(tx, agent_id) is None:
        raise NotFound(f"There is no agent {agent_id}. Nothing was imported.")
    if await messages.first(tx, agent_id) or await journal.find_open_turn(tx, agent_id):
        raise Conflict(
            "The agent has something to answer first. Wait until it has, then import. "
            "Nothing was imported."
        )
    standing = await journal.standing(tx, agent_id)
    assert standing is not None
    claim, length = standing
    trust_levels = await _meet(tx, past, now, trust)
    ended: list[tuple[TurnRecord, list[Draft]]] = []
    ids: list[str] = []
    last = length
    for turn in past:
        first, last = last + 1, last + len(turn.drafts)
        record = TurnRecord(
            id=turn.id,
            agent_id=agent_id,
            state=TurnState.DONE,
            channel=CHANNEL,
            reply_to=None,
            first_seq=first,
            last_seq=last,
            opened_at_ms=turn.drafts[0].at_ms,
            ended_at_ms=turn.drafts[-1].at_ms,
            trust=trust_levels[turn.speaker],
            arrived_at_ms=turn.drafts[0].at_ms,
        )
        ended.append((record, turn.drafts))
        ids += [f"{turn.id}#{seq}" for seq in range(first, last + 1)]
    await journal.append_ended(tx, claim, length, ended)
    return ImportResult(tuple(turn.id for turn in past), tuple(ids))


async def _meet(
    tx: Connection, past: Sequence[PastTurn], now: int, trust: Trust
) -> dict[str | None, str | None]:
    """Note who has spoken; return how far each is trusted, as turns have it: None is the owner."""
    trust_levels: dict[str | None, str | None] = {
        None: None if trust is Trust.OWNER else trust.value
    }
    # In one order, so that two imports with the same speakers do not wait for each other.
    for speaker in sorted({turn.speaker for turn in past if turn.speaker is not None}):
        person = await people.person_for(tx, Account(CHANNEL, speaker), now)
        trust_levels[speaker] = least_trusted((person.trust, trust)).value
    return trust_levels
