"""`asterism chat`: a conversation at the terminal, or one question from a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from pathlib import Path
from queue import SimpleQueue
from signal import SIGHUP, SIGTERM
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Self, TypeVar, cast

import orjson

from asterism.cli import log
from asterism.cli.approval import read_limits
from asterism.cli.commands import Options, flag, open_home, option
from asterism.cli.group import ask_group, converse
from asterism.cli.inputs import Play, Record, read_bytes
from asterism.cli.output import Column, ItemTable, Output, note, one_line, plural, printable
from asterism.cli.screen import Prompt, Screen
from asterism.cli.setup import FIRST_AGENT, choose_model
from asterism.cli.terminal import MAX_ATTEMPTS, EditorFile, ask_line, exit_on
from asterism.cli.turn import outcome_result
from asterism.errors import AsterismError, HomeLost, InvalidInput, NotFound
from asterism.times import local_short
from asterism.types.permissions import amount_of, argument_lines, call_lines, read_effects, whole_at

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.agents import Agent
    from asterism.cli.output import Part, Result
    from asterism.types.permissions import ApprovalRecord, Wish
    from asterism.types.turns import Outcome, Receipt, Signal, TurnRecord

T = TypeVar("T")

CHANNEL = "terminal"
STOPPED = "Stopped."
_GRACE = 5.0
_CHOICES = (
    "y this once · r this recipient · t in this turn · a always up to a limit (a 50, a 3/day) · "
    "n no · d no, say why · e edit first · Enter later"
)
_MAX_LINES = 60

_log = logging.getLogger(__name__)

AgentName = Annotated[
    str | None, option("--agent", "NAME", "The agent to talk to; default: the first agent.")
]
GroupName = Annotated[str | None, option("--group", "NAME", "Talk to a group instead.")]
Once = Annotated[
    str | None, option("--once", "TEXT", "Ask this, print the answer and end; - reads stdin.")
]
Images = Annotated[
    list[Path] | None, option("--image", "FILE", "Show this image too, with --once; repeatable.")
]
Schema = Annotated[
    Path | None, option("--schema", "FILE", "With --once: answer in JSON that follows this schema.")
]
Yes = Annotated[
    bool, flag("--yes -y", "At a first start, ask no questions and use the first available model.")
]


def chat(
    options: Options,
    agent: AgentName = None,
    group: GroupName = None,
    once: Once = None,
    image: Images = None,
    schema: Schema = None,
    yes: Yes = False,
    record: Record = None,
    play: Play = None,
) -> Result | None:
    """Talk to an agent or a group. With --once or in a pipe: one message in, its answer out."""
    options = options.with_cassette(record, play)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if group is not None:
        if agent or image or schema:
            raise InvalidInput(
                "--group cannot be used with --agent, --image or --schema. Nothing was sent."
            )
        if once is None and interactive and not options.json:
            asyncio.run(converse(options, group))
            return None
        text = _standard_input() if once in (None, "-") else once or ""
        return asyncio.run(ask_group(options, group, text))
    if once is None and interactive and not options.json:
        if image or schema:
            raise InvalidInput(
                "--image and --schema need --once TEXT or a message from a pipe. In a "
                "conversation, /image FILE TEXT shows an image. Nothing was sent."
            )
        if play is None:
            choose_model(options, yes=yes)
        _converse(options, agent)
        return None
    attached: dict[str, Any] = {
        "images": [_read_image(path) for path in image or ()],
        "schema": _read_schema(schema) if schema else None,
    }
    text = _standard_input() if once in (None, "-") else once or ""
    return _ask_once(options, agent, text, attached)


# -- one question ------------------------------------------------------------------------------


def _ask_once(options: Options, agent: str | None, text: str, attached: dict[str, Any]) -> Result:
    with _home_thread(options) as thread:
        who = thread.run(_choose(thread.home, agent))
        older = len(thread.home.taken_up)
        if older and not options.json:
            note(f"Continuing {plural(older, 'message')} from before the restart.")
        outcome = _answer(thread, who, text, attached)
    return outcome_result(outcome, who.name)


def _answer(thread: HomeThread, who: Agent, text: str, attached: dict[str, Any]) -> Outcome:
    receipt = thread.run(thread.home.agents.send(who, text, channel=CHANNEL, **attached))
    ended = thread.start(_wait(thread.home, receipt))
    try:
        return ended.result()
    except KeyboardInterrupt:
        with contextlib.suppress(AsterismError):
            thread.run(thread.home.turns.stop(receipt.turn_id, STOPPED))
        return ended.result()


async def _wait(home: Asterism, receipt: Receipt) -> Outcome:
    """Return how a turn ends; should the process end that has the home open, it goes on here."""
    while True:
        try:
            return await home.turns.wait(receipt)
        except HomeLost as lost:
            note(lost.reason)
            await _renew(home)


async def _renew(home: Asterism) -> None:
    """Go on with whoever has the home open now; if nobody has, in this process."""
    from asterism.client import RemoteHome

    if isinstance(home, RemoteHome):
        await home.renew()


def _standard_input() -> str:
    from asterism.types.turns import MAX_MESSAGE_LENGTH

    limit = MAX_MESSAGE_LENGTH * 4  # bytes that as many characters take at most
    raw = sys.stdin.buffer.read(limit + 1)
    if len(raw) > limit:
        raise InvalidInput(
            f"The message is longer than {limit:,} bytes; the limit is {MAX_MESSAGE_LENGTH:,} "
            "characters. Send it in parts. Nothing was stored."
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"Byte {error.start + 1} of standard input (0x{raw[error.start]:02x}) is not UTF-8. "
            "Send the message as UTF-8. Nothing was stored."
        ) from None


async def _choose(home: Asterism, name: str | None) -> Agent:
    if name is not None:
        return await home.agents.get(name)
    agents = await home.agents.list()
    return agents[0] if agents else await home.agents.ensure(FIRST_AGENT)


def _read_image(path: Path) -> bytes:
    """Return the bytes of a file."""
    return read_bytes(path.expanduser())


def _read_schema(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        schema = orjson.loads(read_bytes(path.expanduser()))
    except orjson.JSONDecodeError as error:
        why = f"it is not JSON ({error})"
    else:
        if isinstance(schema, dict):
            return cast("dict[str, Any]", schema)
        why = "it is not a JSON object"
    raise InvalidInput(
        f"The schema {str(path)!r} cannot be read: {why}. Name a file with a JSON schema. Nothing "
        "was sent."
    )


# -- a conversation ----------------------------------------------------------------------------


def _converse(options: Options, agent: str | None) -> None:
    screen = Screen()
    prompt = Prompt(options.place, [f"/{name}" for name in Chat.COMMANDS], coloured=screen.coloured)
    exit_on((SIGTERM, SIGHUP), prompt.close)

    def on_problem(problem: str) -> None:
        prompt.announce(lambda: screen.warn(problem))

    with _home_thread(options, follow=True, on_problem=on_problem) as thread:
        chat = Chat(thread, thread.run(_choose(thread.home, agent)), screen, prompt)
        try:
            chat.greet()
            chat.show_resumed()
            chat.run()
        finally:
            prompt.close()


class Chat:
    """A conversation with one agent at a time."""

    COMMANDS: ClassVar = {
        "help": "this list",
        "agents": "all agents",
        "agent": "NAME talk to another agent",
        "turns": "the latest turns of this agent",
        "why": "where the fact that was kept last comes from",
        "undo": "take back what was kept last",
        "image": "FILE [TEXT] show an image",
        "approve": "[ID] approve a call that waits for you",
        "deny": "[ID] [WHY] deny a call",
        "quit": "leave; Ctrl-D does too",
    }

    def __init__(self, thread: HomeThread, agent: Agent, screen: Screen, prompt: Prompt) -> None:
        self._thread = thread
        self._home: Asterism = thread.home
        self._agent = agent
        self._screen = screen
        self._prompt = prompt
        self._shown: set[str] = set()
        """Turns that were followed on the screen."""
        self._kept: dict[str, Signal] = {}
        """What was shown as kept and not taken back, by the signal's id."""
        self._following = ""
        """The turn that is on the screen."""
        self._watching: Future[None] = thread.start(self._watch_agent(agent))
        self._warming: Future[None] = thread.start(self._home.agents.warm(agent))

    # -- the beginning -------------------------------------------------------------------------

    def greet(self) -> None:
        """Say who is there, and what happened in the meantime."""
        self._introduce()
        self._screen.note(
            "Type a message. /help shows commands, Ctrl-C stops an answer, Ctrl-D leaves."
        )
        notices = self._thread.run(self._home.notices.list())
        for notice in notices:
            self._screen.warn(notice.text)
        if notices:
            self._thread.run(self._home.notices.mark_seen([notice.id for notice in notices]))
        questions = self._questions()
        if questions:
            lines = [f"{question.question} (approval {question.id})" for question in questions]
            self._screen.show_questions("\n".join(lines))
        self._screen.gap()

    def _introduce(self) -> None:
        agent = self._agent
        model = agent.model_in_use
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
            self._screen.note(
                f"asterism agent edit {agent.name} --model default gives it {default}."
            )

    def show_resumed(self, ids: Sequence[str] = ()) -> None:
        """Show the answers to what was accepted before the last stop or crash."""
        ids = self._home.taken_up or ids
        turns = [self._thread.run(self._home.turns.outcome(id)) for id in ids]
        ours = [turn.turn_id for turn in turns if turn.agent_id == self._agent.id]
        others = len(turns) - len(ours)
        if others:
            self._screen.note(
                f"Continuing {plural(others, 'message')} to other agents; /turns and "
                '"asterism turn list" show them.'
            )
        if ours:
            self._screen.note(f"Continuing {plural(len(ours), 'message')} from before the restart:")
        for turn_id in ours:
            self._screen.note(
                f"› {one_line(self._thread.run(_message_of(self._home, turn_id)), 200)}"
            )
            self._watch(_without_pieces(self._home.turns.follow(turn_id)))
            self._screen.gap()

    # -- the middle ----------------------------------------------------------------------------

    def run(self) -> None:
        """Take lines until the person leaves."""
        while True:
            try:
                line = self._prompt.ask()
            except (EOFError, KeyboardInterrupt):
                print()  # noqa: T201
                return
            except UnicodeDecodeError:
                self._screen.fail("That was not UTF-8. Nothing was sent.")
                continue
            if line.strip() == "/quit":
                return
            try:
                self._handle(line)
            except HomeLost as lost:
                self._rejoin(lost)
            except AsterismError as error:
                self._screen.fail(error.message)
            except KeyboardInterrupt:
                self._screen.note("(The turn continues at the next start.)")
                return

    def _rejoin(self, lost: HomeLost) -> None:
        """Go on after the end of the process that had the home open, with the turn it was at."""
        self._screen.warn(lost.reason)
        try:
            self._thread.run(_renew(self._home))
            self.show_resumed([self._following] if self._following else [])
        except AsterismError as error:
            self._screen.fail(error.message)

    def _handle(self, line: str) -> None:
        text = line.strip()
        if not text:
            return
        if not text.startswith("/"):
            self._converse(self._home.agents.stream(self._agent, text, channel=CHANNEL))
            return
        name, _, rest = text[1:].partition(" ")
        commands: dict[str, Callable[[str], None]] = {
            "help": self._help,
            "agents": self._agents,
            "agent": self._switch,
            "turns": self._turns,
            "why": self._why,
            "undo": self._undo,
            "image": self._image,
            "approve": self._approve,
            "deny": self._deny,
        }
        if name not in commands:
            raise NotFound(f"There is no command /{name}. /help shows all commands.")
        commands[name](rest.strip())

    def _image(self, rest: str) -> None:
        name, _, text = rest.partition(" ")
        if not name:
            raise InvalidInput("Write which image to show, as in /image photo.png What is this?")
        images = [_read_image(Path(name))]
        prompt = text.strip() or "What do you see?"
        self._converse(
            self._home.agents.stream(self._agent, prompt, channel=CHANNEL, images=images)
        )

    def _converse(self, signals: AsyncGenerator[Signal, None]) -> None:
        """Show a turn, and put to the person what it asks before it goes on."""
        prompt = ApprovalPrompt(self._screen)
        self._screen.hints = False  # it is asked at once
        try:
            self._ask_until_it_ends(prompt, self._watch(signals))
        finally:
            self._screen.hints = True
        self._screen.gap()

    def _ask_until_it_ends(self, prompt: ApprovalPrompt, turn_id: str) -> None:
        while question := self._question_of(turn_id):
            answer = prompt.ask(question)
            if answer is None:
                return
            approved, details = answer
            try:
                self._watch(
                    self._home.approvals.stream_decision(question, approved=approved, **details)
                )
            except InvalidInput as error:  # such as arguments that do not fit
                self._screen.fail(error.message)

    def _watch(self, signals: AsyncGenerator[Signal, None]) -> str:
        """Show a turn until it ends; return its id. Ctrl-C stops it, and a second one leaves."""
        turn_id, stopping = "", False
        self._following = ""
        with contextlib.closing(self._thread.iterate(signals)) as relayed:
            while True:
                try:
                    if (signal := next(relayed, None)) is None:
                        return turn_id
                    if not turn_id and signal.turn_id:
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

    def _stop(self, turn_id: str) -> None:
        with contextlib.suppress(AsterismError):  # it has just ended
            if turn_id:
                self._thread.run(self._home.turns.stop(turn_id, STOPPED))

    async def _watch_agent(self, agent: Agent) -> None:
        """Show what the agent says of its own accord, such as what it was scheduled to."""
        while True:
            try:
                async for signal in self._home.agents.watch(agent):
                    if signal.kind in ("ended", "parked"):
                        self._prompt.announce(
                            lambda signal=signal: self._show_watched(agent, signal)
                        )
                    elif signal.kind == "kept":
                        self._prompt.announce(lambda signal=signal: self._show(signal))
            except HomeLost:
                # At once, so that reminders come although nobody types.
                await _renew(self._home)
            else:
                return

    def _show(self, signal: Signal) -> None:
        """Show a signal; what was kept is shown once, however it was heard of."""
        if signal.kind == "kept":
            if signal.id in self._kept:
                return
            self._kept[signal.id] = signal
        self._screen.show(signal)

    def _show_watched(self, agent: Agent, signal: Signal) -> None:
        if signal.turn_id not in self._shown:
            self._shown.add(signal.turn_id)
            self._screen.note(f"{agent.name}, meanwhile:")
            self._screen.show(signal)
            self._screen.gap()

    # -- commands ------------------------------------------------------------------------------

    def _help(self, _: str) -> None:
        for name, meaning in self.COMMANDS.items():
            self._screen.say(f"/{name:<8} {meaning}")

    def _agents(self, _: str) -> None:
        columns: list[Column[Agent]] = [
            Column("agent", lambda agent: agent.name, prose=True),
            Column("model", lambda agent: agent.model_in_use, prose=True),
        ]
        self._show_table(ItemTable(columns, self._thread.run(self._home.agents.list()), "None."))

    def _switch(self, name: str) -> None:
        if not name:
            raise InvalidInput("Name the agent to talk to, as in /agent aria. /agents shows them.")
        self._agent = self._thread.run(self._home.agents.get(name))
        self._watching.cancel()
        self._watching = self._thread.start(self._watch_agent(self._agent))
        self._warming.cancel()
        self._warming = self._thread.start(self._home.agents.warm(self._agent))
        self._introduce()

    def _turns(self, _: str) -> None:
        columns: list[Column[TurnRecord]] = [
            Column("turn", lambda turn: turn.id),
            Column("state", lambda turn: turn.state.value, state=True),
            Column("opened", lambda turn: local_short(turn.opened_at_ms)),
        ]
        turns = self._thread.run(self._home.turns.list(self._agent, limit=10))
        self._show_table(ItemTable(columns, turns, "No turns yet."))

    def _why(self, _: str) -> None:
        from asterism.cli.memory import TraceTree

        signal = self._last_kept()
        where, text = signal.data["where"], signal.data["text"]
        if where == "human":
            lines = self._thread.run(self._home.blocks.get(self._agent, where)).lines
            kept = text.casefold()
            numbers = [
                number for number, line in enumerate(lines, 1) if kept in line.text.casefold()
            ]
            where = f"{where}:{numbers[0]}" if numbers else where
        trace = self._thread.run(self._home.memory.why(where, agent=self._agent))
        self._show_table(TraceTree(trace))

    def _undo(self, _: str) -> None:
        signal = self._last_kept()
        writes = self._thread.run(self._home.memory.revert_turn(signal.turn_id, by="chat"))
        for id in [id for id, kept in self._kept.items() if kept.turn_id == signal.turn_id]:
            del self._kept[id]
        self._screen.note(f"Took back: {one_line(signal.data['text'], 200)}")
        for sentence in writes.left:
            self._screen.warn(sentence)

    def _last_kept(self) -> Signal:
        for signal in reversed(self._kept.values()):
            if signal.agent_id == self._agent.id:
                return signal
        raise NotFound(
            f"{self._agent.name} has kept nothing since you opened this chat. "
            f'"asterism block show human --agent {self._agent.name}" shows what it knows.'
        )

    def _approve(self, rest: str) -> None:
        self._decide(rest, approved=True)

    def _deny(self, rest: str) -> None:
        self._decide(rest, approved=False)

    def _decide(self, rest: str, *, approved: bool) -> None:
        question, note = self._find_question(rest)
        self._converse(
            self._home.approvals.stream_decision(question, approved=approved, note=note or None)
        )

    def _find_question(self, rest: str) -> tuple[ApprovalRecord, str]:
        """Return the question that an answer is for, and the note that follows its id."""
        waiting = self._thread.run(self._home.approvals.list())
        id, _, note = rest.partition(" ")
        for question in waiting:
            if question.id == id or (id.startswith("ap_") and question.id.endswith(id[3:])):
                return question, note.strip()
        if id.startswith("ap_"):
            raise NotFound(f"No question {id} waits for an answer.")
        ours = [question for question in waiting if question.agent_id == self._agent.id]
        if len(ours) != 1:
            which = ", ".join(question.id for question in ours)
            raise InvalidInput(
                f"Name the one you mean: {which}." if ours else "Nothing waits for your answer."
            )
        return ours[0], rest

    def _questions(self) -> list[ApprovalRecord]:
        waiting = self._thread.run(self._home.approvals.list())
        return [question for question in waiting if question.agent_id == self._agent.id]

    def _question_of(self, turn_id: str) -> ApprovalRecord | None:
        return next(
            (question for question in self._questions() if question.turn_id == turn_id), None
        )

    def _show_table(self, table: Part) -> None:
        table.show(Output(json=False))


async def _message_of(home: Asterism, turn_id: str) -> str:
    """Return the message that a turn answers."""
    from asterism.types.turns import text_of

    for item in await home.turns.waiting():
        if item.turn_id == turn_id:
            return text_of(item.body)
    _, entries = await home.turns.get(turn_id)
    return printable(text_of(entries[0].body))


async def _without_pieces(signals: AsyncGenerator[Signal, None]) -> AsyncGenerator[Signal, None]:
    """Leave out an answer's pieces, of which the first may be missing; its end has all of it."""
    async with contextlib.aclosing(signals):
        async for signal in signals:
            if signal.kind not in ("text", "reasoning"):
                yield signal


# -- questions before a call ----------------------------------------------------------------------


class ApprovalPrompt:
    """Puts a question to the person at the terminal: the exact call, and one key to answer."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def ask(self, question: ApprovalRecord) -> tuple[bool, dict[str, Any]] | None:
        """Return whether the call may be made and what comes with it; None: it is left waiting."""
        self._show(question)
        try:
            for _ in range(MAX_ATTEMPTS):
                typed = ask_line("Approve? ")
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
                return False, {"note": rest.strip() or ask_line("Why not? ") or None}
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
            typed = ask_line("How many a day? ")
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
            text = draft.edit()
        except AsterismError as error:
            self._screen.fail(error.message)
            return None
        draft.discard()
        return text


# -- the home in a thread --------------------------------------------------------------------------


class HomeThread:
    """A home at work in a thread of its own, so that this one can wait for a person to type."""

    def __init__(self, home: Asterism, loop: asyncio.AbstractEventLoop) -> None:
        self.home = home
        self.closing = asyncio.Event()
        self._loop = loop

    def close(self) -> None:
        """Let the home close."""
        self._loop.call_soon_threadsafe(self.closing.set)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there and wait for its result."""
        return self.start(coroutine).result()

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def iterate(self, source: AsyncGenerator[T, None]) -> ThreadIterator[T]:
        """Return an iterator over what a generator yields there."""
        return ThreadIterator(self, source)


class ThreadIterator(Generic[T]):
    """What a generator in the other thread yields; being interrupted does not end it."""

    def __init__(self, thread: HomeThread, source: AsyncGenerator[T, None]) -> None:
        self._items: SimpleQueue[tuple[T] | BaseException | None] = SimpleQueue()
        self._relaying = thread.start(self._relay(source))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        item = self._items.get()
        if item is None:
            raise StopIteration
        if isinstance(item, BaseException):
            raise item
        return item[0]

    def close(self) -> None:
        """End the generator."""
        self._relaying.cancel()

    async def _relay(self, source: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(source):
                async for item in source:
                    self._items.put((item,))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._items.put(error)
        else:
            self._items.put(None)


@contextlib.contextmanager
def _home_thread(
    options: Options,
    *,
    follow: bool = False,
    on_problem: Callable[[str], None] = _log.warning,
) -> Generator[HomeThread, None, None]:
    """Open the home at work in a thread of its own; with `follow`, it heeds its configuration."""
    ready: Future[HomeThread] = Future()
    closed: Future[None] = Future()

    async def work() -> None:
        async with open_home(options, work=True, grace=_GRACE, on_problem=on_problem) as home:
            if follow:
                home.follow_configuration(log.follow)
            thread = HomeThread(home, asyncio.get_running_loop())
            ready.set_result(thread)
            await thread.closing.wait()

    def run() -> None:
        try:
            asyncio.run(work())
            closed.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            (closed if ready.done() else ready).set_exception(error)

    # A daemon, since a second Ctrl-C may leave at once: nothing is lost by it.
    threading.Thread(target=run, name="asterism", daemon=True).start()
    thread = ready.result()
    try:
        yield thread
    finally:
        thread.close()
        closed.result()
