"""`asterism chat`: a conversation at the terminal, or one question from a pipe."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from asterism.cli.asking import Asking
from asterism.cli.attach import Images, Schema, read_image, read_schema
from asterism.cli.first_run import choose_model
from asterism.cli.home import Household, household
from asterism.cli.options import Options, Play, Record
from asterism.cli.outcome import report
from asterism.cli.output import Column, Output
from asterism.cli.prompt import Prompt
from asterism.cli.screen import Screen
from asterism.cli.stop import exit_on
from asterism.cli.text import one_line, plural, printable
from asterism.errors import AsterismError, InvalidInput, NotFound
from asterism.times import local_short

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord
    from asterism.types.permissions import ApprovalRecord
    from asterism.types.turns import Outcome, Signal, TurnRecord

FIRST_AGENT = "aster"
CHANNEL = "terminal"
STOPPED = "Stopped."
_GRACE = 5.0

AgentName = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Whom to talk to; else the first agent."),
]
Once = Annotated[
    str | None,
    typer.Option(
        "--once", metavar="TEXT", help="Ask this, print the answer and end; - reads stdin."
    ),
]

Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Ask nothing at a first start; take what is there.")
]


def chat(
    options: Options,
    agent: AgentName = None,
    once: Once = None,
    image: Images = None,
    schema: Schema = None,
    yes: Yes = False,
    record: Record = None,
    play: Play = None,
) -> None:
    """Talk to an agent. With --once or in a pipe: one message in, its answer out."""
    options = options.with_cassette(record, play)
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if once is None and interactive and not options.json:
        if image or schema:
            raise InvalidInput(
                "--image and --schema go with --once TEXT or a message from a pipe. In a "
                "conversation, /image FILE TEXT shows an image. Nothing was sent."
            )
        if play is None:
            choose_model(options, yes=yes)
        _converse(options, agent)
    else:
        given: dict[str, Any] = {
            "images": [read_image(path) for path in image or ()],
            "schema": read_schema(schema) if schema else None,
        }
        text = _standard_input() if once in (None, "-") else once or ""
        _ask_once(options, agent, text, given)


# -- one question ------------------------------------------------------------------------------


def _ask_once(options: Options, agent: str | None, text: str, given: dict[str, Any]) -> None:
    with household(options, grace=_GRACE) as house:
        who = house.run(_whom(house.home, agent))
        older = len(house.home.taken_up)
        if older and not options.json:
            said = f"Took up {plural(older, 'message')} accepted before the last stop."
            print(said, file=sys.stderr)  # noqa: T201
        outcome = _answered(house, who, text, given)
    report(outcome, who.name, json=options.json)


def _answered(house: Household, who: AgentRecord, text: str, given: dict[str, Any]) -> Outcome:
    receipt = house.run(house.home.agents.send(who, text, channel=CHANNEL, **given))
    ended = house.start(house.home.turns.wait(receipt))
    try:
        return ended.result()
    except KeyboardInterrupt:
        with contextlib.suppress(AsterismError):
            house.run(house.home.turns.stop(receipt.turn_id, STOPPED))
        return ended.result()


def _standard_input() -> str:
    from asterism.types.turns import LONGEST_MESSAGE

    most = LONGEST_MESSAGE * 4  # bytes that as many characters take at most
    raw = sys.stdin.buffer.read(most + 1)
    if len(raw) > most:
        raise InvalidInput(
            f"The message is longer than {most:,} bytes, and at most {LONGEST_MESSAGE:,} "
            "characters can be taken. Send it in parts. Nothing was stored."
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"Byte {error.start + 1} of standard input (0x{raw[error.start]:02x}) is not UTF-8. "
            "Send the message as UTF-8. Nothing was stored."
        ) from None


async def _whom(home: Asterism, name: str | None) -> AgentRecord:
    if name is not None:
        return await home.agents.get(name)
    everyone = await home.agents.list()
    return everyone[0] if everyone else await home.agents.ensure(FIRST_AGENT)


# -- a conversation ----------------------------------------------------------------------------


def _converse(options: Options, agent: str | None) -> None:
    screen = Screen()
    prompt = Prompt(options.place, [f"/{name}" for name in Chat.COMMANDS], coloured=screen.coloured)
    exit_on((signal.SIGTERM, signal.SIGHUP), prompt.close)

    def heed(problem: str) -> None:
        prompt.announce(lambda: screen.warn(problem))

    with household(options, grace=_GRACE, follow=True, on_problem=heed) as house:
        talk = Chat(house, house.run(_whom(house.home, agent)), screen, prompt)
        try:
            talk.greet()
            talk.take_up()
            talk.hold()
        finally:
            prompt.close()


class Chat:
    """A conversation with one agent at a time."""

    COMMANDS: ClassVar = {
        "help": "this list",
        "agents": "all agents",
        "agent": "NAME talk to another agent",
        "turns": "the latest turns of this agent",
        "image": "FILE [TEXT] show an image",
        "approve": "[ID] let a call happen that waits for you",
        "deny": "[ID] [WHY] do not let it happen",
        "quit": "leave; Ctrl-D does too",
    }

    def __init__(
        self, house: Household, agent: AgentRecord, screen: Screen, prompt: Prompt
    ) -> None:
        self._house = house
        self._home: Asterism = house.home
        self._agent = agent
        self._screen = screen
        self._prompt = prompt
        self._shown: set[str] = set()
        """Turns that were followed on the screen."""
        self._overhearing: Future[None] = house.start(self._overhear(agent))
        self._warming: Future[None] = house.start(self._home.agents.warm(agent))

    # -- the beginning -------------------------------------------------------------------------

    def greet(self) -> None:
        """Say who is there, and what happened in the meantime."""
        self._introduce()
        self._screen.note(
            "Type a message. /help shows commands, Ctrl-C stops an answer, Ctrl-D leaves."
        )
        notices = self._house.run(self._home.notices.list())
        for notice in notices:
            self._screen.warn(notice.text)
        if notices:
            self._house.run(self._home.notices.mark_seen([notice.id for notice in notices]))
        questions = self._questions()
        if questions:
            asked = "\n".join(f"{one.question} (approval {one.id})" for one in questions)
            self._screen.show_questions(asked)
        self._screen.gap()

    def _introduce(self) -> None:
        agent, usual = self._agent, self._home.settings.default_model
        model = self._home.agents.model_of(agent)
        self._screen.say(f"{agent.name} · {model}")
        if not model.startswith("demo:"):
            return
        self._screen.note("This is the built-in demo model, not a language model.")
        if usual.startswith("demo:"):
            self._screen.note(
                'For a real one, run "asterism setup": it finds keys and servers, '
                "or fetches a model that runs on this machine."
            )
        else:
            self._screen.note(f"asterism agent edit {agent.name} --model default gives it {usual}.")

    def take_up(self) -> None:
        """Show the answers to what was accepted before the last stop or crash."""
        turns = [self._house.run(self._home.turns.outcome(id)) for id in self._home.taken_up]
        ours = [turn.turn_id for turn in turns if turn.agent_id == self._agent.id]
        others = len(turns) - len(ours)
        if others:
            self._screen.note(
                f"Took up {plural(others, 'message')} to other agents; /turns and "
                '"asterism turn list" show them.'
            )
        if ours:
            answer = "the answer" if len(ours) == 1 else "the answers"
            self._screen.note(
                f"Took up {plural(len(ours), 'message')} accepted before the last stop; "
                f"here {'is' if len(ours) == 1 else 'are'} {answer}:"
            )
        for turn_id in ours:
            self._screen.note(f"› {one_line(self._house.run(_said(self._home, turn_id)), 200)}")
            self._watch(_without_pieces(self._home.turns.follow(turn_id)))
            self._screen.gap()

    # -- the middle ----------------------------------------------------------------------------

    def hold(self) -> None:
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
                self._take(line)
            except AsterismError as error:
                self._screen.fail(error.message)
            except KeyboardInterrupt:
                self._screen.note("(The turn goes on at the next start.)")
                return

    def _take(self, line: str) -> None:
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
            "image": self._image,
            "approve": self._approve,
            "deny": self._deny,
        }
        if name not in commands:
            raise NotFound(f"There is no command /{name}. /help shows what there is.")
        commands[name](rest.strip())

    def _image(self, rest: str) -> None:
        name, _, text = rest.partition(" ")
        if not name:
            raise InvalidInput("Write which image to show, as in /image photo.png What is this?")
        images = [read_image(Path(name))]
        said = text.strip() or "What do you see?"
        self._converse(self._home.agents.stream(self._agent, said, channel=CHANNEL, images=images))

    def _converse(self, signals: AsyncGenerator[Signal, None]) -> None:
        """Show a turn, and put to the person what it asks before it goes on."""
        asking = Asking(self._screen)
        self._screen.hints = False  # it is asked at once
        try:
            self._ask_until_it_ends(asking, self._watch(signals))
        finally:
            self._screen.hints = True
        self._screen.gap()

    def _ask_until_it_ends(self, asking: Asking, turn_id: str) -> None:
        while question := next((one for one in self._questions() if one.turn_id == turn_id), None):
            answer = asking.about(question)
            if answer is None:
                return
            approved, given = answer
            try:
                self._watch(
                    self._home.approvals.stream_decision(question, approved=approved, **given)
                )
            except InvalidInput as error:  # such as arguments that do not fit
                self._screen.fail(error.message)

    def _watch(self, signals: AsyncGenerator[Signal, None]) -> str:
        """Show a turn until it ends; return its id. Ctrl-C stops it, and a second one leaves."""
        turn_id, stopping = "", False
        with contextlib.closing(self._house.iterate(signals)) as passed:
            while True:
                try:
                    if (one := next(passed, None)) is None:
                        return turn_id
                    if not turn_id and one.turn_id:
                        turn_id = one.turn_id
                        self._shown.add(turn_id)
                        if stopping:
                            self._stop(turn_id)
                    self._screen.show(one)
                except KeyboardInterrupt:
                    if stopping:
                        raise
                    stopping = True
                    self._stop(turn_id)

    def _stop(self, turn_id: str) -> None:
        with contextlib.suppress(AsterismError):  # it has just ended
            if turn_id:
                self._house.run(self._home.turns.stop(turn_id, STOPPED))

    async def _overhear(self, agent: AgentRecord) -> None:
        """Show what the agent says of its own accord, such as what it was scheduled to."""
        async for one in self._home.agents.watch(agent):
            if one.kind in ("ended", "parked"):
                self._prompt.announce(lambda one=one: self._show_watched(agent, one))

    def _show_watched(self, agent: AgentRecord, one: Signal) -> None:
        if one.turn_id not in self._shown:
            self._shown.add(one.turn_id)
            self._screen.note(f"{agent.name}, meanwhile:")
            self._screen.show(one)
            self._screen.gap()

    # -- commands ------------------------------------------------------------------------------

    def _help(self, _: str) -> None:
        for name, meaning in self.COMMANDS.items():
            self._screen.say(f"/{name:<8} {meaning}")

    def _agents(self, _: str) -> None:
        columns: list[Column[AgentRecord]] = [
            Column("agent", lambda one: one.name, prose=True),
            Column("model", self._home.agents.model_of, prose=True),
        ]
        Output(json=False).table(columns, self._house.run(self._home.agents.list()), empty="None.")

    def _switch(self, name: str) -> None:
        if not name:
            raise InvalidInput("Name the agent to talk to, as in /agent aria. /agents shows them.")
        self._agent = self._house.run(self._home.agents.get(name))
        self._overhearing.cancel()
        self._overhearing = self._house.start(self._overhear(self._agent))
        self._warming.cancel()
        self._warming = self._house.start(self._home.agents.warm(self._agent))
        self._introduce()

    def _turns(self, _: str) -> None:
        columns: list[Column[TurnRecord]] = [
            Column("turn", lambda one: one.id),
            Column("state", lambda one: one.state.value, state=True),
            Column("opened", lambda one: local_short(one.opened_at)),
        ]
        turns = self._house.run(self._home.turns.list(self._agent, limit=10))
        Output(json=False).table(columns, turns, empty="No turns yet.")

    def _approve(self, rest: str) -> None:
        self._decide(rest, approved=True)

    def _deny(self, rest: str) -> None:
        self._decide(rest, approved=False)

    def _decide(self, rest: str, *, approved: bool) -> None:
        question, note = self._meant(rest)
        self._converse(
            self._home.approvals.stream_decision(question, approved=approved, note=note or None)
        )

    def _meant(self, rest: str) -> tuple[ApprovalRecord, str]:
        """Return the question that an answer is for, and the note that follows its id."""
        waiting = self._house.run(self._home.approvals.list())
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
        waiting = self._house.run(self._home.approvals.list())
        return [one for one in waiting if one.agent_id == self._agent.id]


async def _said(home: Asterism, turn_id: str) -> str:
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
        async for one in signals:
            if one.kind not in ("text", "reasoning"):
                yield one
