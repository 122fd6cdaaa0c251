"""A conversation with an agent at the terminal: its greeting, and commands about its memory."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from asterism.cli.conversation import TerminalConversation
from asterism.cli.inputs import CHANNEL, read_document
from asterism.cli.output import Column, ItemTable, Result, one_line, plural, printable
from asterism.errors import InvalidInput, NotFound
from asterism.records import dataclass
from asterism.times import ago_text, local_minute, local_short, local_text

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.agents import Agent
    from asterism.cli.conversation import ChatPrompt
    from asterism.cli.home_thread import HomeThread
    from asterism.cli.screen import Screen
    from asterism.types.agents import Halt, Schedule
    from asterism.types.permissions import ApprovalRecord
    from asterism.types.turns import AttachedDocument, Receipt, Signal, TurnRecord

_ATTACHED = re.compile(r"(?:^|(?<=\s))@(\S+)")
_FEW_TURNS = 10
_FEW_KEPT = 3
_MAX_PASSAGES = 50
_PAUSE_MS = 60 * 60 * 1000
"""Milliseconds without a turn after which another conversation begins."""


@dataclass(frozen=True, slots=True)
class KeptText:
    """Something that an agent has put into its memory, and that is still there."""

    where: str
    """The label of a block, or `archive`."""
    text: str
    ref: str
    """What its origin is asked by: `label:line`, or the id of a passage."""
    turn_id: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Recap:
    """What a person who comes back should know."""

    turns: int
    latest: TurnRecord | None
    message: str
    answer: str
    known: int
    """How many lines the agent has kept about its owner."""
    kept: tuple[KeptText, ...]
    """What the agent has kept since the last conversation began, the newest first."""
    schedules: tuple[Schedule, ...]
    waiting: int
    """How many questions of agents wait for an answer."""
    halt: Halt | None


class AgentChat(TerminalConversation):
    """A conversation with one agent at a time."""

    COMMANDS: ClassVar = {
        "help": "this list",
        "memory": "what the agent always has in mind",
        "why": "where the fact that was kept last comes from",
        "undo": "take back what was kept last",
        "search": "WORDS find something in all that was said and kept",
        "context": "what the model is sent, and what it costs in tokens",
        "history": "[N] the latest exchanges",
        "turns": "the latest turns of this agent",
        "retry": "ask the last message again",
        "new": "begin the conversation anew; memory stays",
        "agent": "[NAME] talk to another agent",
        "agents": "all agents",
        "model": "[NAME] the model of this agent, or give it another",
        "file": "PATH [TEXT] send a document along; @PATH in a message does too",
        "image": "FILE [TEXT] show an image",
        "edit": "[TEXT] write the message in your editor; Ctrl-X Ctrl-E does too",
        "schedule": "what is scheduled; [WHEN: TEXT] add, [cancel ID] cancel",
        "spend": "what models have cost",
        "approve": "[ID] approve a call that waits for you",
        "deny": "[ID] [WHY] deny a call",
        "halt": "[WHY] stop all agents at once",
        "resume": "let the agents continue after a halt",
        "quit": "leave; Ctrl-D does too",
    }

    def __init__(
        self, thread: HomeThread, agent: Agent, screen: Screen, prompt: ChatPrompt
    ) -> None:
        super().__init__(thread, screen, prompt)
        self._agent = agent
        self._watching: Future[None] = thread.start(self._watch_meanwhile())
        self._warming: Future[None] = thread.start(self._home.agents.warm(agent))

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self._agent.name

    def _send(self, text: str, **attached: Any) -> None:
        documents = [*attached.pop("documents", ())]
        if "retry_of" not in attached:  # which brings the documents of the earlier turn along
            documents += _attached_in(text)
        if documents:
            attached["documents"] = documents
            names = ", ".join(document.name for document in documents)
            self._screen.note(f"Attached: {one_line(names, 200)}")
        super()._send(text, **attached)

    def _is_ours(self, agent_id: str) -> bool:
        return agent_id == self._agent.id

    def _answers(self, agent_id: str) -> bool:
        return agent_id == self._agent.id

    def _accept(self, text: str, **attached: Any) -> Coroutine[Any, Any, Receipt]:
        return self._home.agents.send(self._agent, text, channel=CHANNEL, **attached)

    def _stream(self, text: str, **attached: Any) -> AsyncGenerator[Signal, None]:
        return self._home.agents.stream(self._agent, text, channel=CHANNEL, **attached)

    def _stream_decision(
        self, question: ApprovalRecord, *, approved: bool, **details: Any
    ) -> AsyncGenerator[Signal, None]:
        return self._home.approvals.stream_decision(question, approved=approved, **details)

    def _follow(self, turn_id: str) -> AsyncGenerator[Signal, None]:
        return _without_pieces(self._home.turns.follow(turn_id))

    def _watched(self) -> AsyncGenerator[Signal, None]:
        return self._home.agents.watch(self._agent)

    # -- the beginning -----------------------------------------------------------------------------

    def greet(self) -> None:
        """Say who is there, what was said last, and what happened in the meantime."""
        self._introduce()
        # What goes on from before the restart is shown when it is done, with its notices.
        resumed = frozenset(self._home.taken_up)
        recap = self._thread.run(_recap(self._home, self._agent, resumed))
        self._show_recap(recap)
        self._show_state(recap.halt, resumed)
        self._screen.note(
            "Type a message. /help shows commands, Ctrl-C stops an answer, Ctrl-D leaves."
        )
        self._screen.gap()

    def _introduce(self) -> None:
        agent = self._agent
        model = agent.model_in_use
        self._prompt.agents = [found.name for found in self._thread.run(self._home.agents.list())]
        self._screen.say(f"{agent.name} · {model}")
        if not model.startswith("demo:"):
            return
        self._screen.note("This is the built-in demo model, not a language model.")
        default = self._thread.run(self._home.status()).model
        if default.startswith("demo:"):
            self._screen.note(
                'For a real one, run "asterism setup": it finds keys and servers, '
                "or fetches a model that runs on this machine."
            )
        else:
            self._screen.note(f"/model default gives it {default}.")

    def _show_recap(self, recap: Recap) -> None:
        if recap.latest is None:
            return  # nothing was said before
        began = recap.latest.arrived_at_ms or recap.latest.opened_at_ms
        ago = ago_text(int(time.time() * 1000) - began)
        self._screen.gap()
        if recap.message:
            self._screen.quote("› ", recap.message, lines=2)
        if recap.answer:
            self._screen.quote("  ", recap.answer, lines=4)
        for kept in reversed(recap.kept[:_FEW_KEPT]):
            self._screen.quote("+ ", f"{kept.where}: {kept.text}", lines=1)
        facts = [ago, plural(recap.turns, "turn")]
        if recap.kept:
            facts.append(f"kept {len(recap.kept)} lately (/why, /undo)")
        if recap.known:
            facts.append(f"{plural(recap.known, 'line')} kept about you (/memory)")
        if recap.schedules:
            first = min(recap.schedules, key=lambda schedule: schedule.due_at_ms)
            text = one_line(first.text, 40)
            more = f" and {len(recap.schedules) - 1} more" if len(recap.schedules) > 1 else ""
            due = first.due_at_ms <= time.time() * 1000
            when = "due now" if due else f"scheduled {local_minute(first.due_at_ms)}"
            facts.append(f"{when}: {text}{more} (/schedule)")
        waits = plural(recap.waiting, "question") if recap.waiting else "nothing"
        waits += " waits for you" if recap.waiting <= 1 else " wait for you"
        self._screen.note(" · ".join([*facts, waits, "/history for more"]))

    # -- commands ----------------------------------------------------------------------------------

    def _do_memory(self, _: str) -> None:
        blocks = self._thread.run(self._home.blocks.list(self._agent))
        if not blocks:
            self._screen.say(f"{self._agent.name} has no blocks.")
        for seen in blocks:
            used = f"{len(seen.block.text):,} of {seen.block.limit:,} characters"
            self._screen.note(f"{seen.name} · {seen.block.type.value} · {used}")
            self._screen.say(seen.block.text.strip() or "(empty)")
        self._screen.note(
            "/search finds what was said and archived; /why and /undo are for what was kept last."
        )

    def _do_why(self, _: str) -> None:
        from asterism.cli.memory import TraceTree

        kept = self._latest_kept()[0]
        trace = self._thread.run(self._home.memory.why(kept.ref, agent=self._agent))
        self._show_result(Result(None, TraceTree(trace)))

    def _do_undo(self, _: str) -> None:
        kept = self._latest_kept()
        turn_id = kept[0].turn_id
        writes = self._thread.run(self._home.memory.revert_turn(turn_id, by="chat"))
        texts = [item.text for item in reversed(kept) if item.turn_id == turn_id]
        self._screen.note(f"Took back: {one_line(' · '.join(texts), 200)}")
        for sentence in writes.left:
            self._screen.warn(sentence)

    def _latest_kept(self) -> list[KeptText]:
        """Return what the agent has kept, the newest first, also from before this chat."""
        if kept := self._thread.run(_kept_texts(self._home, self._agent)):
            return kept
        raise NotFound(
            f"{self._agent.name} has kept nothing by itself that is still there. "
            "/memory shows what it knows."
        )

    def _do_search(self, words: str) -> None:
        from asterism.cli.search import SearchOptions, search_home

        if not words:
            raise InvalidInput("Write what to look for, as in /search bicycle.")
        options = SearchOptions(words, agent=self._agent.id)
        hits = self._thread.run(search_home(self._home, options, {}))
        self._show_result(Result(None, hits, notes=hits.result.notes))

    def _do_context(self, rest: str) -> None:
        from asterism.cli.context import context_result

        full = rest == "full"
        self._show_result(self._thread.run(context_result(self._home, self._agent.id, full=full)))

    def _do_history(self, rest: str) -> None:
        count = int(rest) if rest.isdecimal() and 0 < len(rest) < 4 else _FEW_TURNS
        exchanges = self._thread.run(_exchanges(self._home, self._agent, count))
        if not exchanges:
            self._screen.say("Nothing was said yet.")
        for record, message, answer in exchanges:
            self._screen.note(local_text(record.opened_at_ms))
            self._screen.quote("› ", message, lines=4)
            self._screen.say(answer or record.error or f"({record.state.value})")

    def _do_turns(self, _: str) -> None:
        columns: list[Column[TurnRecord]] = [
            Column("turn", lambda turn: turn.id),
            Column("state", lambda turn: turn.state.value, state=True),
            Column("opened", lambda turn: local_short(turn.opened_at_ms)),
        ]
        turns = self._thread.run(self._home.turns.list(self._agent, limit=_FEW_TURNS))
        self._show_result(Result(None, ItemTable(columns, turns, "No turns yet.")))

    def _do_retry(self, _: str) -> None:
        turns = self._thread.run(self._home.turns.list(self._agent, limit=_FEW_TURNS))
        latest = next((turn for turn in turns if turn.channel == CHANNEL), None)
        if latest is None:
            raise NotFound("There is no message to ask again yet.")
        message, attached = self._thread.run(_asked_before(self._home, latest.id))
        self._screen.note(f"› {one_line(message, 200)}")
        self._send(message, retry_of=latest.id, **attached)

    def _do_new(self, _: str) -> None:
        summary = self._thread.run(self._home.contexts.restart(self._agent))
        self._screen.note(
            f"Begun anew: {plural(summary.messages, 'message')} left the context. "
            f"{self._agent.name} keeps its memory; /search and /history show what was said."
        )

    def _do_agents(self, _: str) -> None:
        columns: list[Column[Agent]] = [
            Column("agent", lambda agent: agent.name, prose=True),
            Column("model", lambda agent: agent.model_in_use, prose=True),
        ]
        agents = self._thread.run(self._home.agents.list())
        self._prompt.agents = [agent.name for agent in agents]
        self._show_result(Result(None, ItemTable(columns, agents, "None.")))

    def _switch(self, agent: Agent) -> None:
        self._agent = agent
        self._watching.cancel()
        self._watching = self._thread.start(self._watch_meanwhile())
        self._warming.cancel()
        self._warming = self._thread.start(self._home.agents.warm(agent))

    def _do_agent(self, name: str) -> None:
        if not name:
            self._do_agents(name)
            self._screen.note(f"You talk to {self._agent.name}. /agent NAME changes that.")
            return
        self._switch(self._thread.run(self._home.agents.get(name)))
        self._introduce()
        self._show_recap(self._thread.run(_recap(self._home, self._agent)))

    def _do_model(self, name: str) -> None:
        from asterism.cli.model import read_chain

        if not name:
            self._screen.say(f"{self._agent.name} uses {self._agent.model_in_use}.")
            self._screen.note(
                "/model NAME gives it another, such as /model ollama:llama3.2; /model default uses "
                'the default. "asterism model list" shows which there are.'
            )
            return
        chosen = name if name == "default" else ", ".join(read_chain(name))
        self._switch(self._thread.run(self._home.agents.edit(self._agent, model=chosen)))
        self._screen.note(f"{self._agent.name} uses {self._agent.model_in_use} from now on.")

    def _do_file(self, rest: str) -> None:
        name, _, text = rest.partition(" ")
        if not name:
            raise InvalidInput("Write which document to send, as in /file notes.pdf Summarise it.")
        document = read_document(Path(name))
        self._send(text.strip() or f"Here is {document.name}.", documents=[document])

    def _do_schedule(self, rest: str) -> None:
        from asterism.cli import schedule

        word, _, id = rest.partition(" ")
        when, colon, text = rest.partition(": ")
        if not rest or rest == "list":
            listing = schedule.list_schedules(self._home, agent=self._agent.id)
            self._show_result(self._thread.run(listing))
        elif word == "cancel" and id:
            self._show_result(self._thread.run(schedule.cancel(self._home, [id.strip()])))
        elif colon and text.strip():
            adding = schedule.add(self._home, self._agent.id, when.strip(), text.strip())
            self._show_result(self._thread.run(adding))
        else:
            raise InvalidInput(
                "Write a time and a message, as in /schedule tomorrow at 9: water the plants, or "
                "/schedule cancel ID. Nothing was scheduled."
            )


# -- what is read of the home ----------------------------------------------------------------------


async def _recap(home: Asterism, agent: Agent, resumed: frozenset[str] = frozenset()) -> Recap:
    """Return what was said last and waits, but for turns that have just been resumed."""
    turns = await home.turns.list(agent, limit=len(resumed) + 1)
    latest = next((turn for turn in turns if turn.id not in resumed), None)
    message, answer = await _exchange(home, latest) if latest is not None else ("", "")
    blocks = await home.blocks.list(agent) if latest is not None else []
    known = sum(len(seen.lines) for seen in blocks if seen.block.label == "human")
    kept: list[KeptText] = []
    if latest is not None:
        since = _conversation_start(await home.turns.list(agent, limit=_FEW_TURNS))
        kept = [item for item in await _kept_texts(home, agent) if item.at_ms >= since]
    return Recap(
        await home.turns.count(agent) if latest is not None else 0,
        latest,
        message,
        answer,
        known,
        tuple(kept),
        tuple(await home.schedules.list(agent)) if latest is not None else (),
        len(await home.approvals.list()),
        await home.halts.current(),
    )


def _conversation_start(turns: Sequence[TurnRecord]) -> int:
    """Return when the latest conversation began, as far as its turns are given, newest first."""
    began = turns[0].opened_at_ms
    for turn in turns[1:]:
        if began - turn.opened_at_ms > _PAUSE_MS:
            break
        began = turn.opened_at_ms
    return began


async def _kept_texts(home: Asterism, agent: Agent) -> list[KeptText]:
    """Return what was put into blocks and archive in an agent's turns, the newest first."""
    # What the owner says is kept by rule as well, in memory of the agent's own.
    by_call, by_itself = f"agent:{agent.name}", (f"agent:{agent.name}", "system")
    kept: list[KeptText] = []
    for seen in await home.blocks.list(agent):
        authors = by_itself if seen.block.owner_id == agent.id else (by_call,)
        for number, (line, edits) in enumerate(await home.blocks.blame(agent, seen.name), 1):
            own = [edit for edit in edits if edit.author in authors and _is_turn(edit.turn_id)]
            if own and line.text.strip():
                ref, turn_id = f"{seen.name}:{number}", own[-1].turn_id or ""
                text = printable(line.text.strip())
                kept.append(KeptText(seen.name, text, ref, turn_id, own[-1].at_ms))
    for passage in await home.archive.list(agent, limit=_MAX_PASSAGES):
        if passage.author in by_itself and _is_turn(passage.turn_id):
            text, turn_id = printable(passage.text), passage.turn_id or ""
            kept.append(KeptText("archive", text, passage.id, turn_id, passage.known_from_ms))
    return sorted(kept, key=lambda item: item.at_ms)[::-1]


def _is_turn(id: str | None) -> bool:
    """Tell whether a change was made in a turn, and not by taking one back."""
    return id is not None and id.startswith("turn_")


async def _exchanges(home: Asterism, agent: Agent, count: int) -> list[tuple[TurnRecord, str, str]]:
    """Return the latest turns with what was said and answered, the oldest first."""
    turns = await home.turns.list(agent, limit=count)
    return [(turn, *await _exchange(home, turn)) for turn in reversed(turns)]


async def _exchange(home: Asterism, turn: TurnRecord) -> tuple[str, str]:
    """Return the message of a turn and the words of its last reply."""
    from asterism.types.turns import EntryKind, Reply, text_of

    _, entries = await home.turns.get(turn.id)
    message = next((text_of(entry.body) for entry in entries if entry.key == "in"), "")
    replies = (
        Reply.from_entry(entry.body, entry.meta).text
        for entry in reversed(entries)
        if entry.kind is EntryKind.REPLY
    )
    return printable(message), printable(next((text for text in replies if text), ""))


async def _asked_before(home: Asterism, turn_id: str) -> tuple[str, dict[str, Any]]:
    """Return the message of a turn, and the documents that went with it."""
    from asterism.types.turns import CLIENT_NOTE, document_in_note, images_in, text_of

    _, entries = await home.turns.get(turn_id)
    message = next(entry for entry in entries if entry.key == "in")
    if images_in(message.body):
        raise InvalidInput(
            "The last message came with an image. Show it again with /image. Nothing was sent."
        )
    documents = [
        document
        for entry in entries
        if entry.key.startswith(CLIENT_NOTE)
        and (document := document_in_note(text_of(entry.body))) is not None
    ]
    return text_of(message.body), {"documents": documents} if documents else {}


async def _without_pieces(signals: AsyncGenerator[Signal, None]) -> AsyncGenerator[Signal, None]:
    """Leave out an answer's pieces, of which the first may be missing; its end has all of it."""
    async with contextlib.aclosing(signals):
        async for signal in signals:
            if signal.kind not in ("text", "reasoning"):
                yield signal


# -- what goes with a message ----------------------------------------------------------------------


def _attached_in(text: str) -> list[AttachedDocument]:
    """Return the documents that a message names with `@PATH`, if there are such files."""
    paths = (Path(found[1]).expanduser() for found in _ATTACHED.finditer(text))
    return [read_document(path) for path in dict.fromkeys(paths) if path.is_file()]
