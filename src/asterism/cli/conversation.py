"""A conversation at the terminal: messages, the turns they open, and commands about all of it."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from asterism.cli.approval import grant_notes, read_limits
from asterism.cli.halt import halt_since, halt_text
from asterism.cli.inputs import STOPPED, read_bytes, renew
from asterism.cli.output import Output, Result, one_line, plural, printable
from asterism.cli.terminal import MAX_ATTEMPTS, EditorFile
from asterism.errors import AsterismError, HomeLost, InvalidInput, NotFound
from asterism.types.permissions import amount_of, argument_lines, call_lines, read_effects, whole_at

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.cli.home_thread import HomeThread, ThreadIterator
    from asterism.cli.screen import Screen
    from asterism.types.agents import Halt
    from asterism.types.permissions import ApprovalRecord, Wish
    from asterism.types.turns import Entry, Receipt, Signal

_CHOICES = (
    "y this once · r this recipient · t in this turn · a always up to a limit (a 50, a 3/day) · "
    "n no · d no, say why · e edit first · Enter later"
)
_MAX_LINES = 60
_PATIENCE = 1.0
"""Seconds without a sign of a turn after which the home is asked whether it is halted."""
_LEAVE = frozenset({"exit", "quit", "/exit", "/quit", "/q"})


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


# -- what is read of the home ----------------------------------------------------------------------


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


def _halted(halt: Halt) -> str:
    return f"{halt_text(halt)} /resume lets them continue."


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
