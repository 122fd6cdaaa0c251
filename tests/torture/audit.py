"""The audit: what must be true of a database after whatever has happened to it."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import orjson

from asterism.store.database import Connection, Database
from asterism.turns.turn import EMPTY_ANSWER
from asterism.types.turns import WIRE_KINDS, Entry, EntryKind, Reply, TurnState, text_of


@dataclass
class AuditedTurn:
    """One turn as it rests in the database."""

    id: str
    agent_id: str
    state: TurnState
    reply_to: str | None
    ended_at: int | None
    entries: list[Entry] = field(default_factory=list[Entry])

    @property
    def asked(self) -> str:
        """The message that began it."""
        return text_of(self.entries[0].body)

    @property
    def replies(self) -> list[Reply]:
        """What the model said in it, step by step."""
        return [
            Reply.from_entry(entry.body, entry.meta)
            for entry in self.entries
            if entry.kind is EntryKind.REPLY
        ]

    @property
    def answer(self) -> str:
        """Its last words."""
        return self.replies[-1].text or EMPTY_ANSWER

    @property
    def results(self) -> dict[str, tuple[str, str]]:
        """The tool and the result of each call, by the key that the tool was given."""
        found: dict[str, tuple[str, str]] = {}
        by_key = {entry.key: entry for entry in self.entries}
        for entry in self.entries:
            if entry.kind is EntryKind.RESULT:
                step, _, index = entry.key.partition("/call/")
                reply = by_key[f"{step}/reply"]
                call = Reply.from_entry(reply.body, reply.meta).calls[int(index)]
                found[f"{self.id}/{entry.key}"] = (call.name, text_of(entry.body))
        return found


@dataclass
class Audit:
    """A database that was found sound: its turns by agent in order, and what it says of them."""

    turns: dict[str, list[AuditedTurn]]
    accepted: dict[str, str]
    """The turn of each external id."""
    notices: Counter[tuple[str, str | None]]
    """How often each turn has a notice of each kind."""

    def all_turns(self) -> list[AuditedTurn]:
        """Every turn of every agent."""
        return [turn for turns in self.turns.values() for turn in turns]


async def audit(database: Database, *, parked: bool = False) -> Audit:
    """Read everything, check what must hold of any database at rest, and return it."""
    assert await database.check() == []
    rows = await database.read(_read)
    assert rows["inbox"] == [], "something accepted was left in the inbox"
    turns = {
        row[0]: AuditedTurn(row[0], row[1], TurnState(row[2]), row[3], row[4])
        for row in rows["turns"]
    }
    journals: dict[str, list[Entry]] = defaultdict(list)
    for agent_id, *entry in rows["entries"]:
        one = Entry(entry[0], entry[1], EntryKind(entry[2]), *entry[3:])
        journals[agent_id].append(one)
        turns[one.turn_id].entries.append(one)
    for agent_id, length in rows["agents"]:
        seqs = [entry.seq for entry in journals[agent_id]]
        assert seqs == list(range(1, length + 1)), "the journal has a gap"
        check_wire([orjson.loads(e.body) for e in journals[agent_id] if e.kind in WIRE_KINDS])
    for turn in turns.values():
        _check_turn(turn, parked=parked)
    _check_outbox(turns, rows["outbox"])
    accepted = {row[0]: "turn_" + row[1].partition("_")[2] for row in rows["accepted"]}
    assert set(accepted.values()) <= set(turns), "an accepted message has no turn"
    by_agent: dict[str, list[AuditedTurn]] = defaultdict(list)
    for turn in sorted(turns.values(), key=lambda turn: turn.entries[0].seq):
        by_agent[turn.agent_id].append(turn)
    return Audit(by_agent, accepted, Counter((row[0], row[1]) for row in rows["notices"]))


async def _read(tx: Connection) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "inbox": await tx.all("SELECT id FROM inbox"),
        "agents": await tx.all("SELECT id, length FROM agents"),
        "turns": await tx.all("SELECT id, agent_id, state, reply_to, ended_at FROM turns"),
        "entries": await tx.all(
            "SELECT agent_id, seq, turn_id, kind, key, body, meta, at FROM entries"
            " ORDER BY agent_id, seq"
        ),
        "outbox": await tx.all("SELECT turn_id, key, body, state FROM outbox"),
        "accepted": await tx.all("SELECT external_id, message_id FROM accepted"),
        "notices": await tx.all("SELECT kind, turn_id FROM notices"),
    }


def _check_turn(turn: AuditedTurn, *, parked: bool) -> None:
    keys = [entry.key for entry in turn.entries]
    assert keys[0] == "in"
    assert len(keys) == len(set(keys)), f"a step was recorded twice: {keys}"
    steps = [entry.key for entry in turn.entries if entry.kind is EntryKind.REPLY]
    assert steps == [f"{step}/reply" for step in range(len(steps))]
    assert turn.state is not TurnState.OPEN, "a turn was left open"
    if turn.state is TurnState.PARKED:
        assert parked
        assert turn.ended_at is None
        return
    assert turn.ended_at is not None
    final = [reply for reply in turn.replies if not reply.calls]
    assert len(final) == (turn.state is TurnState.DONE), "one answer and no more"


def _check_outbox(turns: dict[str, AuditedTurn], rows: list[tuple[Any, ...]]) -> None:
    answers = {row[0]: row for row in rows if row[1].endswith("/answer")}
    expected = {t.id for t in turns.values() if t.reply_to is not None and t.ended_at is not None}
    assert set(answers) == expected, "each ended turn of a channel has one answer on its way"
    for turn_id, key, body, state in answers.values():
        assert (key, state) == (f"{turn_id}/answer", "sent")
        if turns[turn_id].state is TurnState.DONE:
            assert body == turns[turn_id].answer


def check_wire(messages: list[dict[str, Any]]) -> None:
    """Each reply's calls are followed by their results, and no result stands alone."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert open_calls, f"a result without a call: {message}"
            assert message["tool_call_id"] == open_calls.pop(0)
        else:
            assert open_calls == [], f"calls without results before {message}"
            open_calls = [call["id"] for call in message.get("tool_calls") or ()]
    assert open_calls == []
