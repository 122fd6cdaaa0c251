"""Facts that stay by themselves, where no rule is exact: the agent's own model reads them.

"Remember that …" is carried out before the answer (`pipeline.Remember`), and what an exact rule
reads ("My name is …") is kept with the end of the turn (`Turn.finish`). The rest is read once the
agent is idle, from the owner's words alone, so that nothing else can have a say.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import orjson

from asterism.errors import AsterismError
from asterism.memory import blocks
from asterism.memory.gate import facts
from asterism.memory.gate.blocks import HUMAN
from asterism.memory.gate.facts import KeptFact
from asterism.memory.keep import (
    asked_to_keep,
    correction_in,
    lasting_facts,
    looks_secret,
    sentences,
)
from asterism.memory.words import words
from asterism.ports import ModelQuestion, ModelRequest, Profile
from asterism.records import dataclass
from asterism.store import agents, journal
from asterism.telemetry.redaction import redact
from asterism.turns.turn import Turn, TurnServices, keep_facts, kept_signal, reservations_for
from asterism.types.agents import OWNER_ALONE, AgentRecord, Trust, new_id
from asterism.types.memory import Origin, OriginKind
from asterism.types.turns import (
    SCHEDULED,
    EntryKind,
    MessageMeta,
    Reply,
    message_wire,
    text_of,
)

if TYPE_CHECKING:
    from asterism.store.database import Connection, Database
    from asterism.store.journal import VisibleEntry

_log = logging.getLogger(__name__)

IDLE_SECONDS = 3.0
"""How long an agent has to be idle before its model reads what was said."""
_LEAST_PAUSE = 0.25
"""Seconds between looking which agents have been idle long enough."""
_MAX_MESSAGES = 8
"""How many messages are read at once; what came before them was said too fast to be read."""
_MAX_AGE = 24 * 3_600_000
_MAX_CHARACTERS = 4_000
_MAX_NOTES = 40
_LOOKED_BACK = 4
"""How many entries are looked at for what the agent said before."""
_MAX_FACTS = 5
_MAX_OUTPUT = 300
_SECONDS = 60.0
_LEAST_WORDS = 3
_LEAST_GROUNDED = 0.6
"""How many of a fact's words have to be words that were said."""


@dataclass(frozen=True, slots=True)
class _Unread:
    """What an owner has said since it was last read for facts."""

    entries: tuple[VisibleEntry, ...]
    notes: tuple[str, ...]
    """The lines of the block about the owner."""
    before: str
    """What the agent said before that, where nothing untrusted had a part in it."""

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(text_of(entry.body) for entry in self.entries)


@dataclass(frozen=True, slots=True)
class _ReadFact:
    """A fact that a model has read."""

    text: str
    replaces: str


class FactReader:
    """Reads what lasts in what an owner said, while the agent is idle."""

    def __init__(self, services: TurnServices) -> None:
        self._services = services
        self.due: dict[str, tuple[float, Database, AgentRecord]] = {}
        """Agents whose words are read when they stay idle until then, by their ids."""
        self._timer: asyncio.TimerHandle | None = None
        self.tasks: dict[str, asyncio.Task[None]] = {}
        """What is read now, by the agent's id."""

    def turn_ended(self, turn: Turn) -> None:
        """Read what the owner said in a turn, unless the agent gets to work again before that."""
        options = turn.remember_options
        if options is None or not options.get("model", not self._is_small(turn.agent)):
            return
        loop = asyncio.get_running_loop()
        idle = float(options.get("idle_seconds", IDLE_SECONDS))
        self.due[turn.agent.id] = (loop.time() + idle, turn.live.database, turn.agent)
        # One timer for all agents costs a turn less than a timer or a task for each.
        if self._timer is None:
            self._timer = loop.call_later(idle, self._begin_due)

    def _begin_due(self) -> None:
        """Begin to read for the agents that have been idle long enough."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        for at, database, agent in list(self.due.values()):
            if at <= now:
                self._begin(database, agent)
        self._timer = None
        if self.due:
            soonest = min(at for at, _, _ in self.due.values()) - now
            self._timer = loop.call_later(max(_LEAST_PAUSE, soonest), self._begin_due)

    def _begin(self, database: Database, agent: AgentRecord) -> None:
        self.interrupt(agent.id)
        task = asyncio.create_task(self._read(database, agent))
        self.tasks[agent.id] = task
        task.add_done_callback(lambda done: self._let_go(agent.id, done))

    def _is_small(self, agent: AgentRecord) -> bool:
        """Tell whether an agent's model is too small to tell facts from chatter.

        Of six messages without a fact, the embedded model of 1.5 billion parameters found facts in
        four ("thanks, that helped a lot!"), each in ten seconds or more.
        """
        models = self._services.models
        return models.profile(models.chain(agent.model)[0]).compact

    def interrupt(self, agent_id: str) -> None:
        """Stop reading for an agent that has something better to do; it is read later."""
        self.due.pop(agent_id, None)
        task = self.tasks.pop(agent_id, None)
        if task is not None:
            task.cancel()

    async def stop(self) -> None:
        """Stop reading; what was not read is read after the next turn."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.due.clear()
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _let_go(self, agent_id: str, task: asyncio.Task[None]) -> None:
        if self.tasks.get(agent_id) is task:
            del self.tasks[agent_id]

    async def _read(self, database: Database, agent: AgentRecord) -> None:
        now = self._services.clock()
        unread = await database.read(lambda tx: _unread(tx, agent.id, now))
        if not unread.entries:
            return
        try:
            read = await self._corrected(agent, unread)
            kept = await database.write(lambda tx: self._keep(tx, agent, unread, read))
        except AsterismError as problem:
            _log.info("facts for %s were not read: %s", agent.name, problem.message)
            return
        turn_id = unread.entries[-1].turn_id
        for fact in kept:
            self._services.hub.publish(agent.id, turn_id, "kept", kept_signal(fact))

    async def _corrected(self, agent: AgentRecord, unread: _Unread) -> list[_ReadFact]:
        """Return the facts in what was said: a plain correction by rule, the rest by the model."""
        for entry in unread.entries:
            fact = corrected_note(text_of(entry.body), unread.notes)
            if fact is not None:
                return [fact]
        if all(_is_corrected(text_of(entry.body), unread.notes) for entry in unread.entries):
            return []
        return grounded(await self._ask(agent, unread), unread)

    async def _ask(self, agent: AgentRecord, unread: _Unread) -> list[_ReadFact]:
        services, key = self._services, f"{new_id('turn')}/facts"
        messages = question(unread)

        def compose(model: str, profile: Profile, too_long: int) -> ModelRequest:
            del profile, too_long
            return ModelRequest(
                model=model.partition(":")[2],
                messages=messages,
                tools=None,
                key=f"{key}/0",
                timeout=_SECONDS,
                agent_id=agent.id,
                schema=_SCHEMA,
                max_output=_MAX_OUTPUT,
            )

        async with reservations_for(services, agent, key) as reservations:
            reply = await services.models.ask(
                ModelQuestion(
                    services.models.chain(agent.model),
                    compose,
                    reservations,
                    lambda kind, text: _log.info("%s: %s", kind, text),
                )
            )
        return read_answer(redact(reply.text), unread.notes)

    async def _keep(
        self, tx: Connection, agent: AgentRecord, unread: _Unread, read: Sequence[_ReadFact]
    ) -> list[KeptFact]:
        """Store facts and how far was read, in one transaction."""
        services, last = self._services, unread.entries[-1]
        if not await agents.facts_read(tx, agent.id, last.seq):
            return []  # another process has read it meanwhile
        origins = tuple(
            Origin(OriginKind.MESSAGE, entry.turn_id, str(entry.seq)) for entry in unread.entries
        )
        writer = facts.writer_for(
            agent, last.turn_id, origins, services.clock(), services.authority()
        )
        wanted = [(fact.text, fact.replaces) for fact in read]
        zone = services.settings.current.zone
        return await keep_facts(tx, writer, agent.id, wanted, zone)


# -- what is read, and from what -------------------------------------------------------------------


def worth_reading(text: str) -> bool:
    """Tell whether a message may say something that lasts beyond what rules find in it."""
    if text.startswith(SCHEDULED) or not text.strip():
        return False
    done = (*asked_to_keep(text), *lasting_facts(text))
    return any(
        sentence[-1] not in "?？؟"
        and len(words(sentence)) >= _LEAST_WORDS
        and not any(fact in sentence for fact in done)
        for sentence in sentences(text)
    )


async def _unread(tx: Connection, agent_id: str, now: int) -> _Unread:
    """Return what an owner has said to an agent alone since that was last read."""
    upto = await agents.facts_upto(tx, agent_id)
    length = await journal.length_of(tx, agent_id)
    messages = await journal.opening_messages(tx, agent_id, upto + 1, length, _MAX_MESSAGES)
    said = tuple(
        entry
        for entry in messages
        if entry.audience is None
        and entry.trust is Trust.OWNER
        and entry.at_ms > now - _MAX_AGE
        and not MessageMeta.from_json(entry.meta).participants
        and worth_reading(text_of(entry.body))
    )
    if not said:
        return _Unread((), (), "")
    earlier = await journal.visible_entries(tx, agent_id, 1, said[0].seq - 1, newest=_LOOKED_BACK)
    replies = [
        Reply.from_entry(entry.body, entry.meta).text
        for entry in earlier
        if entry.kind is EntryKind.REPLY and entry.trust is Trust.OWNER and entry.audience is None
    ]
    return _Unread(said, await _notes(tx, agent_id), replies[-1] if replies else "")


async def _notes(tx: Connection, agent_id: str) -> tuple[str, ...]:
    seen = next((s for s in await blocks.seen_by(tx, agent_id) if s.name == HUMAN), None)
    lines = blocks.visible_lines(seen, OWNER_ALONE) if seen is not None else []
    return tuple(line for line in lines if line.strip())[-_MAX_NOTES:]


_INSTRUCTIONS = (
    "You keep notes on a person for later. Read what the person said and list the facts in it that "
    "will still hold and matter in a month: about themselves, their family, friends, animals, "
    "home, work, health, habits, likes and dislikes, dates that were set, and whatever corrects a "
    "note. Do not list questions, requests, greetings, opinions on an answer, moods, what happens "
    "just now, or what a note says already. Most messages have none: then the list is empty. "
    "Write each fact as one short sentence that can be understood by itself, in the language of "
    "the person and with their words. `replaces` is the number of the note that is no longer "
    "true because of it, else 0."
)
_SCHEMA = orjson.dumps(
    {
        "type": "object",
        "properties": {
            "facts": {
                "type": "array",
                "maxItems": _MAX_FACTS,
                "items": {
                    "type": "object",
                    "properties": {
                        "fact": {"type": "string", "maxLength": 200},
                        "replaces": {"type": "integer", "minimum": 0, "maximum": _MAX_NOTES},
                    },
                    "required": ["fact", "replaces"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["facts"],
        "additionalProperties": False,
    }
)


def question(unread: _Unread) -> list[bytes]:
    """Return the messages that ask a model for facts; nothing untrusted is in them."""
    notes = "\n".join(f"{number}. {note}" for number, note in enumerate(unread.notes, 1))
    parts = [f"Notes so far:\n{notes or '(none)'}"]
    if unread.before:
        parts.append(f"You had said:\n{unread.before[: _MAX_CHARACTERS // 4]}")
    parts.append(f"The person said:\n{unread.text[:_MAX_CHARACTERS]}")
    return [message_wire("system", _INSTRUCTIONS), message_wire("user", "\n\n".join(parts))]


def read_answer(text: str, notes: Sequence[str]) -> list[_ReadFact]:
    """Return the facts that a model has listed; none if its answer cannot be read."""
    try:
        listed: list[dict[str, Any]] = orjson.loads(text)["facts"]
        return [
            _ReadFact(
                " ".join(str(item["fact"]).split()),
                notes[number - 1] if 0 < (number := int(item["replaces"])) <= len(notes) else "",
            )
            for item in listed[:_MAX_FACTS]
        ]
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return []


def grounded(read: Sequence[_ReadFact], unread: _Unread) -> list[_ReadFact]:
    """Return the facts whose words were said: a model must not add to what a person told it."""
    said = set(words(unread.text))
    known = said.union(words(unread.before), *map(words, unread.notes))
    kept: list[_ReadFact] = []
    for fact in read:
        its = words(fact.text)
        numbers = [word for word in its if any(character.isdigit() for character in word)]
        share = sum(word in known for word in its) / max(1, len(its))
        new = any(word in said for word in its)
        invented = share < _LEAST_GROUNDED or any(number not in known for number in numbers)
        if new and not invented and not looks_secret(fact.text):
            kept.append(fact)
    return kept


def _is_corrected(text: str, notes: Sequence[str]) -> bool:
    """Tell whether a plain correction has been carried out: a note has the new value, none the old.

    `pipeline.Remember` corrects what was kept just before.
    """
    correction = correction_in(text)
    if correction is None:
        return False
    new, old = (value.casefold() for value in correction)
    lines = [note.casefold() for note in notes]
    return any(new in line for line in lines) and not any(old in line for line in lines)


def corrected_note(text: str, notes: Sequence[str]) -> _ReadFact | None:
    """Return the one note that a plain correction means, put right; None if there is none such."""
    correction = correction_in(text)
    if correction is None:
        return None
    new, old = correction
    value = re.compile(rf"\b{re.escape(old)}\b", re.IGNORECASE)
    fitting = [note for note in notes if value.search(note)]
    if len(fitting) != 1:
        return None
    return _ReadFact(value.sub(lambda _: new, fitting[0]), fitting[0])
