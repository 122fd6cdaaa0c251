"""A conversation at the terminal: messages, the turns they open, and commands about all of it."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from asterism.cli.approval import grant_notes, read_limits
from asterism.cli.halt import halt_since, halt_text
from asterism.cli.inputs import CHANNEL, STOPPED, read_bytes, read_document, renew
from asterism.cli.output import Column, ItemTable, Output, Result, one_line, plural, printable
from asterism.cli.terminal import MAX_ATTEMPTS, EditorFile
from asterism.errors import AsterismError, HomeLost, InvalidInput, NotFound
from asterism.records import dataclass
from asterism.times import ago_text, local_minute, local_short, local_text
from asterism.types.permissions import amount_of, argument_lines, call_lines, read_effects, whole_at

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.agents import Agent
    from asterism.cli.home_thread import HomeThread, ThreadIterator
    from asterism.cli.screen import Screen
    from asterism.types.agents import Halt, Schedule
    from asterism.types.permissions import ApprovalRecord, Wish
    from asterism.types.turns import AttachedDocument, Entry, Receipt, Signal, TurnRecord

_CHOICES = (
    "y this once · r this recipient · t in this turn · a always up to a limit (a 50, a 3/day) · "
    "n no · d no, say why · e edit first · Enter later"
)
_MAX_LINES = 60
_PATIENCE = 1.0
"""Seconds without a sign of a turn after which the home is asked whether it is halted."""
_LEAVE = frozenset({"exit", "quit", "/exit", "/quit", "/q"})
_ATTACHED = re.compile(r"(?:^|(?<=\s))@(\S+)")
_FEW_TURNS = 10
_FEW_KEPT = 3
_MAX_PASSAGES = 50
_PAUSE_MS = 60 * 60 * 1000
"""Milliseconds without a turn after which another conversation begins."""


class ChatPrompt(Protocol):
    """Where a person types: an input line, or the plain prompt of a plain terminal."""

    agents: Sequence[str]
    """Names that are completed."""
    mentions: Sequence[str]
    """Names that are completed after `@`."""

    def ask(self) -> str:
        """Return a line; raises EOFError when the person leaves."""
        ...

    def ask_line(self, question: str) -> str:
        """Ask a question; raises KeyboardInterrupt at Ctrl-C."""
        ...

    def edit(self, draft: EditorFile) -> str:
        """Open the person's editor, and return the text after it."""
        ...

    def announce(self, show: Callable[[], None]) -> None:
        """Let `show` print when nothing else is under way."""
        ...


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


class TerminalConversation:
    """A conversation at the terminal with one that answers: an agent, or a group."""

    COMMANDS: ClassVar[Mapping[str, str]] = {}
    """What can be typed after `/`, and what it does."""

    def __init__(self, thread: HomeThread, screen: Screen, prompt: ChatPrompt) -> None:
        self._thread = thread
        self._home: Asterism = thread.home
        self._screen = screen
        self._prompt = prompt
        self._shown: set[str] = set()
        """Turns that were followed on the screen."""
        self._shown_kept: set[str] = set()
        """The ids of signals that were shown as kept."""
        self._following = ""
        """The turn that is on the screen."""
        self._relayed: ThreadIterator[Signal] | None = None
        self._interrupted = False
        self._commands: dict[str, Callable[[str], None]] = {
            name: getattr(self, f"_do_{name}") for name in self.COMMANDS if name != "quit"
        }

    # -- what depends on who answers ---------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of whoever answers."""
        raise NotImplementedError

    def greet(self) -> None:
        """Say who is there, what was said last, and what happened in the meantime."""
        raise NotImplementedError

    def _is_ours(self, agent_id: str) -> bool:
        """Tell whether an agent's questions belong to this conversation."""
        raise NotImplementedError

    def _answers(self, agent_id: str) -> bool:
        """Tell whether turns of an agent or group are those of this conversation."""
        raise NotImplementedError

    def _accept(self, text: str, **attached: Any) -> Coroutine[Any, Any, Receipt]:
        """Hand a message in without waiting for its answer."""
        raise NotImplementedError

    def _stream(self, text: str, **attached: Any) -> AsyncGenerator[Signal, None]:
        """Hand a message in, and yield the signals of its turn."""
        raise NotImplementedError

    def _stream_decision(
        self, question: ApprovalRecord, *, approved: bool, **details: Any
    ) -> AsyncGenerator[Signal, None]:
        """Answer a question, and yield the signals of what goes on then."""
        raise NotImplementedError

    def _follow(self, turn_id: str) -> AsyncGenerator[Signal, None]:
        """Yield the signals of a turn that was accepted before."""
        raise NotImplementedError

    def _watched(self) -> AsyncGenerator[Signal, None]:
        """Yield the signals of all turns of whoever answers."""
        raise NotImplementedError

    # -- the beginning -----------------------------------------------------------------------------

    def converse(self) -> None:
        """Greet, go on with what was left, and take lines until the person leaves."""
        self.greet()
        self.show_resumed()
        self.run()

    def _show_state(self, halt: Halt | None, resumed: frozenset[str]) -> None:
        """Show whether all agents are halted, what nobody has seen yet, and what is asked."""
        if halt is not None:
            self._screen.fail(_halted(halt))
        self._show_notices(without=resumed)
        questions = self._questions()
        if questions:
            lines = [f"{question.question} (approval {question.id})" for question in questions]
            self._screen.show_questions("\n".join(lines))

    def _show_notices(self, without: frozenset[str] = frozenset()) -> None:
        """Show the notices that nobody has seen, but those of some turns."""
        notices = self._thread.run(self._home.notices.list())
        notices = [notice for notice in notices if notice.turn_id not in without]
        for notice in notices:
            self._screen.warn(notice.text)
        if notices:
            with contextlib.suppress(NotFound):  # one may have been forgotten meanwhile
                self._thread.run(self._home.notices.mark_seen([notice.id for notice in notices]))

    def show_resumed(self, ids: Sequence[str] = ()) -> None:
        """Show the answers to what was accepted before the last stop or crash."""
        ids = self._home.taken_up or ids
        turns = [self._thread.run(self._home.turns.outcome(id)) for id in ids]
        ours = [turn.turn_id for turn in turns if self._answers(turn.agent_id)]
        others = len(turns) - len(ours)
        if others:
            self._screen.note(
                f"Continuing {plural(others, 'message')} to other agents; /turns and "
                '"asterism turn list" show them.'
            )
        if ours and self._thread.run(self._home.halts.current()) is not None:
            self._screen.note(f"{plural(len(ours), 'message')} will be answered after /resume.")
            return
        if ours:
            self._screen.note(f"Continuing {plural(len(ours), 'message')} from before the restart:")
        for turn_id in ours:
            message, calls = self._thread.run(_begun_turn(self._home, turn_id))
            self._screen.note(f"› {one_line(message, 200)}")
            self._watch(self._follow(turn_id), calls)
            self._show_notices()
            self._screen.gap()

    # -- the middle --------------------------------------------------------------------------------

    def run(self) -> None:
        """Take lines until the person leaves."""
        while True:
            try:
                line = self._prompt.ask()
            except (EOFError, KeyboardInterrupt):
                return
            except UnicodeDecodeError:
                self._screen.fail("That was not UTF-8. Nothing was sent.")
                continue
            if line.strip().partition(" ")[0] in _LEAVE and (
                line.startswith("/") or line.strip() in _LEAVE
            ):
                return
            self._interrupted = False
            try:
                self._handle(line)
            except HomeLost as lost:
                self._rejoin(lost)
            except AsterismError as error:
                self._screen.fail(error.message)
            except KeyboardInterrupt:
                self._screen.note("(The turn continues at the next start.)")
                return

    def interrupt(self) -> bool:
        """Stop the turn on the screen, as Ctrl-C does; False if that was asked for before."""
        if self._interrupted:
            return False
        self._interrupted = True
        if self._relayed is not None:
            self._relayed.interrupt()
        else:
            self._screen.note("Ctrl-C again leaves.")
        return True

    def leave(self) -> None:
        """Let go of the turn on the screen, which goes on by itself."""
        if self._relayed is not None:
            self._interrupted = True
            self._relayed.interrupt()
            self._relayed.interrupt()

    def _rejoin(self, lost: HomeLost) -> None:
        """Go on after the end of the process that had the home open, with the turn it was at."""
        self._screen.warn(lost.reason)
        try:
            self._thread.run(renew(self._home))
            self.show_resumed([self._following] if self._following else [])
        except AsterismError as error:
            self._screen.fail(error.message)

    def _handle(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if line.startswith((" ", "//")) or not text.startswith("/"):
            self._send(text[1:] if text.startswith("//") else text)
            return
        name, _, rest = text[1:].partition(" ")
        command = self._commands.get({"clear": "new", "?": "help"}.get(name, name))
        if command is None:
            raise NotFound(
                f"There is no command /{name}. /help shows all commands. To send a message that "
                "begins with /, type a space before it."
            )
        command(rest.strip())

    def _send(self, text: str, **attached: Any) -> None:
        """Send a message with what is attached to it, and show its turn."""
        halt = self._thread.run(self._home.halts.current())
        if halt is not None:
            self._thread.run(self._accept(text, **attached))
            self._screen.fail(_halted(halt))
            self._screen.note("Your message is kept, and is answered when they continue.")
            return
        self._show_turn(self._stream(text, **attached))

    def _show_turn(self, signals: AsyncGenerator[Signal, None]) -> None:
        """Show a turn, and put to the person what it asks before it goes on."""
        prompt = ApprovalPrompt(self._screen, self._prompt)
        self._screen.hints = False  # it is asked at once
        began = time.monotonic()
        try:
            turn_id = self._watch(signals)
            self._ask_until_it_ends(prompt, turn_id)
        finally:
            self._screen.hints = True
        if turn_id:
            self._show_notices()
            self._summarise(turn_id, time.monotonic() - began)
        self._screen.gap()

    def _ask_until_it_ends(self, prompt: ApprovalPrompt, turn_id: str) -> None:
        while turn_id and (question := self._question_of(turn_id)):
            answer = prompt.ask(question)
            if answer is None:
                return
            approved, details = answer
            try:
                self._watch(self._stream_decision(question, approved=approved, **details))
                if "grant" in details:
                    for note in self._thread.run(grant_notes(self._home, question.id)):
                        self._screen.note(note)
            except InvalidInput as error:  # such as arguments that do not fit
                self._screen.fail(error.message)

    def _summarise(self, turn_id: str, seconds: float) -> None:
        """Print one line about a turn: what was kept, tokens, cost and time."""
        from asterism.types.spending import dollars

        outcome = self._thread.run(self._home.turns.outcome(turn_id))
        cost = self._thread.run(self._home.turns.cost(turn_id))
        parts = [f"kept {self._screen.kept}"] if self._screen.kept else []
        if outcome.usage.total:
            parts.append(f"{outcome.usage.total:,} tokens")
        if cost:
            parts.append(dollars(cost))
        parts.append(f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s")
        self._screen.summarise("  " + " · ".join(parts))

    def _watch(
        self, signals: AsyncGenerator[Signal, None], calls: dict[str, str] | None = None
    ) -> str:
        """Show a turn until it ends; return its id. Ctrl-C stops it, and a second one leaves.

        Empty if it has not begun, since everything is halted.
        """
        turn_id, stopping = "", False
        self._following = ""
        self._screen.begin(calls)
        with contextlib.closing(self._thread.iterate(signals)) as relayed:
            self._relayed = relayed
            try:
                while True:
                    try:
                        if not turn_id and not relayed.wait(_PATIENCE):
                            if self._is_held_up():
                                return ""
                            continue
                        if (signal := next(relayed, None)) is None:
                            return turn_id
                        if not turn_id and self._opens(signal):
                            turn_id = self._following = signal.turn_id
                            self._shown.add(turn_id)
                            if stopping:
                                self._stop(turn_id)
                        self._show(signal)
                    except KeyboardInterrupt:
                        if stopping:
                            raise
                        stopping = True
                        self._stop(turn_id)
            finally:
                self._relayed = None

    def _opens(self, signal: Signal) -> bool:
        """Tell whether a signal is one of the turn that is shown, and not of one within it."""
        return bool(signal.turn_id)

    def _is_held_up(self) -> bool:
        """Tell whether a turn does not begin because all agents are halted, and say so."""
        halt = self._thread.run(self._home.halts.current())
        if halt is None:
            return False
        self._screen.fail(_halted(halt))
        self._screen.note("Your message is kept, and is answered when they continue.")
        return True

    def _stop(self, turn_id: str) -> None:
        with contextlib.suppress(AsterismError):  # it has just ended
            if turn_id:
                self._thread.run(self._home.turns.stop(turn_id, STOPPED))

    async def _watch_meanwhile(self) -> None:
        """Show what is said of its own accord, such as what an agent was scheduled to."""
        name, signals = self.name, self._watched
        while True:
            try:
                async for signal in signals():
                    if signal.kind in ("ended", "parked"):
                        self._prompt.announce(
                            lambda signal=signal: self._show_watched(name, signal)
                        )
                    elif signal.kind == "kept":
                        self._prompt.announce(lambda signal=signal: self._show(signal))
            except HomeLost:
                # At once, so that reminders come although nobody types.
                await renew(self._home)
            else:
                return

    def _show(self, signal: Signal) -> None:
        """Show a signal; what was kept is shown once, however it was heard of."""
        if signal.kind == "kept":
            if signal.id in self._shown_kept:
                return
            self._shown_kept.add(signal.id)
        self._screen.show(signal)

    def _show_watched(self, name: str, signal: Signal) -> None:
        if signal.turn_id not in self._shown:
            self._shown.add(signal.turn_id)
            self._screen.note(f"{name}, meanwhile:")
            self._screen.show(signal)
            self._screen.gap()

    # -- commands ----------------------------------------------------------------------------------

    def _do_help(self, _: str) -> None:
        room = max(9, *map(len, self.COMMANDS))
        for name, meaning in self.COMMANDS.items():
            self._screen.say(f"/{name:<{room}} {meaning}")
        self._screen.note(
            "Alt-Enter or a \\ at the end of a line begins another line. A space before / sends it "
            "as a message."
        )

    def _do_image(self, rest: str) -> None:
        name, _, text = rest.partition(" ")
        if not name:
            raise InvalidInput("Write which image to show, as in /image photo.png What is this?")
        self._send(text.strip() or "What do you see?", images=[read_bytes(Path(name).expanduser())])

    def _do_edit(self, text: str) -> None:
        draft = EditorFile("message", ".md", text)
        written = self._prompt.edit(draft).strip()
        draft.discard()
        if not written:
            self._screen.note("The message is empty. Nothing was sent.")
            return
        self._screen.quote("› ", written, lines=4)
        self._send(written)

    def _do_spend(self, _: str) -> None:
        from asterism.cli.spend import spend
        from asterism.views import SpendBy

        self._show_result(self._thread.run(spend(self._home, 30, None, SpendBy.AGENT)))

    def _do_halt(self, reason: str) -> None:
        self._thread.run(self._home.halts.halt(reason or "the owner halted all agents in the chat"))
        self._screen.warn("All agents are halted. /resume lets them continue.")

    def _do_resume(self, _: str) -> None:
        halt = self._thread.run(self._home.halts.resume())
        self._screen.note(f"The agents continue. They were halted {halt_since(halt)}.")

    def _do_approve(self, rest: str) -> None:
        self._decide(rest, approved=True)

    def _do_deny(self, rest: str) -> None:
        self._decide(rest, approved=False)

    def _decide(self, rest: str, *, approved: bool) -> None:
        question, note = self._find_question(rest)
        self._show_turn(self._stream_decision(question, approved=approved, note=note or None))

    def _find_question(self, rest: str) -> tuple[ApprovalRecord, str]:
        """Return the question that an answer is for, and the note that follows its id."""
        waiting = self._thread.run(self._home.approvals.list())
        id, _, note = rest.partition(" ")
        for question in waiting:
            if question.id == id or (id.startswith("ap_") and question.id.endswith(id[3:])):
                return question, note.strip()
        if id.startswith("ap_"):
            raise NotFound(f"No question {id} waits for an answer.")
        ours = self._questions()
        if len(ours) != 1:
            which = ", ".join(question.id for question in ours)
            raise InvalidInput(
                f"Name the one you mean: {which}." if ours else "Nothing waits for your answer."
            )
        return ours[0], rest

    def _questions(self) -> list[ApprovalRecord]:
        waiting = self._thread.run(self._home.approvals.list())
        return [question for question in waiting if self._is_ours(question.agent_id)]

    def _question_of(self, turn_id: str) -> ApprovalRecord | None:
        return next(
            (question for question in self._questions() if question.turn_id == turn_id), None
        )

    def _show_result(self, result: Result) -> None:
        """Show what a command of the command line would print."""
        notes, result.notes = result.notes, ()
        with self._screen.capturing():
            Output(json=False).result(result)
        for text in notes:
            self._screen.note(text)


class Chat(TerminalConversation):
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


async def _begun_turn(home: Asterism, turn_id: str) -> tuple[str, dict[str, str]]:
    """Return the message that a turn answers, and the names of the calls that it has made."""
    from asterism.types.turns import text_of

    for item in await home.turns.waiting():
        if item.turn_id == turn_id:
            return text_of(item.body), {}
    _, entries = await home.turns.get(turn_id)
    message = next((text_of(entry.body) for entry in entries if entry.key == "in"), "")
    return printable(message), _call_names(entries)


def _call_names(entries: Sequence[Entry]) -> dict[str, str]:
    """Return the names of the calls in a turn by their keys, such as `0/call/0`."""
    from asterism.types.turns import EntryKind, Reply

    return {
        f"{entry.key.partition('/')[0]}/call/{place}": printable(call.name)
        for entry in entries
        if entry.kind is EntryKind.REPLY
        for place, call in enumerate(Reply.from_entry(entry.body, entry.meta).calls)
    }


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


def _halted(halt: Halt) -> str:
    return f"{halt_text(halt)} /resume lets them continue."


# -- what goes with a message ----------------------------------------------------------------------


def _attached_in(text: str) -> list[AttachedDocument]:
    """Return the documents that a message names with `@PATH`, if there are such files."""
    paths = (Path(found[1]).expanduser() for found in _ATTACHED.finditer(text))
    return [read_document(path) for path in dict.fromkeys(paths) if path.is_file()]


# -- questions before a call -----------------------------------------------------------------------


class ApprovalPrompt:
    """Puts a question to the person at the terminal: the exact call, and one key to answer."""

    def __init__(self, screen: Screen, prompt: ChatPrompt) -> None:
        self._screen = screen
        self._prompt = prompt

    def ask(self, question: ApprovalRecord) -> tuple[bool, dict[str, Any]] | None:
        """Return whether the call may be made and what comes with it; None: it is left waiting."""
        self._show(question)
        try:
            for _ in range(MAX_ATTEMPTS):
                typed = self._prompt.ask_line("Approve? ")
                if not typed:
                    break
                answer = self._read(question, typed)
                if answer is not None:
                    return answer
        except KeyboardInterrupt:
            pass
        self._screen.note(f'The turn waits. "/approve" or "/deny WHY" answers {question.id} later.')
        return None

    def _read(self, question: ApprovalRecord, typed: str) -> tuple[bool, dict[str, Any]] | None:
        word, _, rest = typed.partition(" ")
        match word.lower().removeprefix("/"):
            case "y" | "yes" | "approve":
                if not rest or word.startswith("/"):
                    return True, {"note": rest.strip() or None}
            case "n" | "no" | "deny":
                return False, {"note": rest.strip() or None}
            case "d":
                return False, {"note": rest.strip() or self._prompt.ask_line("Why not? ") or None}
            case "e":
                arguments = self._edited(question)
                return (True, {"arguments": arguments}) if arguments is not None else None
            case "r":
                return True, {"grant": "recipient"}
            case "t":
                return True, {"grant": "turn"}
            case "a":
                wish = self._limited(question, rest)
                return (True, {"grant": wish}) if wish is not None else None
            case _:
                pass
        self._screen.warn(f"Answer with one letter: {_CHOICES}")
        return None

    def _limited(self, question: ApprovalRecord, typed: str) -> Wish | None:
        """Return a grant up to limits; without any, up to the amount that is asked for."""
        from asterism.types.permissions import Extent, Wish

        requested = amount_of(read_effects(question.effects))
        known = 0 < requested < math.inf
        if not typed and not known:
            typed = self._prompt.ask_line("How many a day? ")
            typed = f"{typed}/day" if typed.isdecimal() else typed
        try:
            amount, per_day = read_limits(typed.split())
        except InvalidInput as error:
            self._screen.fail(error.message)
            return None
        if amount is None and per_day is None:
            if not known:
                return None
            amount = requested
        return Wish(Extent.ALWAYS, amount=amount, per_day=per_day)

    def _show(self, question: ApprovalRecord) -> None:
        lines = call_lines(question)
        for line in lines[:_MAX_LINES]:
            self._screen.say(f"  {line}")
        if (left := len(lines) - _MAX_LINES) > 0:
            self._screen.note(f"  {left:,} more lines. {whole_at(question.id)}")
        self._screen.note(f"  {_CHOICES}")

    def _edited(self, question: ApprovalRecord) -> str | None:
        """Let the person change the arguments in their editor; None if that came to nothing."""
        try:
            lines = argument_lines(question.arguments)
            draft = EditorFile(question.tool or "call", ".json", "\n".join(lines))
            text = self._prompt.edit(draft)
        except AsterismError as error:
            self._screen.fail(error.message)
            return None
        draft.discard()
        return text
