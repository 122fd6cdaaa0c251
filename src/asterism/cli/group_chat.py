"""A conversation with a group at the terminal: who is asked and why, and who says what."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from asterism.cli import group as group_commands
from asterism.cli.conversation import TerminalConversation
from asterism.cli.inputs import CHANNEL
from asterism.cli.output import one_line, printable
from asterism.errors import InvalidInput
from asterism.records import dataclass
from asterism.times import ago_text
from asterism.types.groups import GROUP_CHANNEL, Role
from asterism.types.turns import Signal, TurnState
from asterism.views import speaker_label

if TYPE_CHECKING:
    from asterism.app.groups import Group
    from asterism.cli.conversation import ChatPrompt
    from asterism.cli.home_thread import HomeThread
    from asterism.cli.screen import Screen
    from asterism.types.groups import GroupEvent
    from asterism.types.permissions import ApprovalRecord
    from asterism.types.turns import Receipt

_FEW_TURNS = 5
_LOOKED_BACK = 50
"""How many of the latest turns are looked at for the one that a question belongs to."""
_PATIENCE = 1.0
"""Seconds without a sign of a group's turn after which the home is asked how it stands."""
_PASSED_ON = frozenset({"call", "result", "progress", "kept", "again", "waiting"})


@dataclass(frozen=True, slots=True)
class _Question:
    """What a member was asked in a turn of the group."""

    member: str
    turn_id: str
    """The turn of the group."""
    formatted: bool
    """Whether the answer is JSON for the group, such as a ballot, and not words for people."""


class GroupChat(TerminalConversation):
    """A conversation with one group at a time."""

    COMMANDS: ClassVar = {
        "help": "this list",
        "members": "who is in the group, and what each is there for",
        "history": "[N] what was said and decided in the latest turns",
        "transcript": "FILE write what was said to FILE.md or FILE.json",
        "group": "[NAME] talk to another group",
        "groups": "all groups",
        "image": "FILE [TEXT] show an image",
        "edit": "[TEXT] write the message in your editor; Ctrl-X Ctrl-E does too",
        "spend": "what models have cost",
        "approve": "[ID] approve a call that waits for you",
        "deny": "[ID] [WHY] deny a call",
        "halt": "[WHY] stop all agents at once",
        "resume": "let the agents continue after a halt",
        "quit": "leave; Ctrl-D does too",
    }

    def __init__(
        self, thread: HomeThread, group: Group, screen: Screen, prompt: ChatPrompt
    ) -> None:
        super().__init__(thread, screen, prompt)
        screen.kept_hint = ""
        self._group = group
        self._questions_to: dict[str, _Question] = {}
        """What members were asked, by the turns that they answer in."""
        self._doing: dict[str, str] = {}
        """What each member is at, by its turn."""
        self._speaking = ""
        """The member's turn whose words are shown as they come."""
        self._held: list[Callable[[], None]] = []
        """What is shown when whoever speaks has finished."""
        self._said: dict[str, str] = {}
        """What members have said since their last call, by turn."""
        self._begun: set[str] = set()
        """Turns of members that were watched from their beginning."""
        self._answers_shown: list[tuple[str, str]] = []
        """Who has said what in the turn on the screen."""
        self._watching: Future[None] = thread.start(self._watch_meanwhile())

    @classmethod
    def open(cls, thread: HomeThread, name: str, screen: Screen, prompt: ChatPrompt) -> GroupChat:
        """Begin a conversation with the group of that name."""
        return cls(thread, thread.run(thread.home.groups.get(name)), screen, prompt)

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._group.name

    # -- the beginning -----------------------------------------------------------------------------

    def greet(self) -> None:
        """Say who is there, what was said last, and what happened in the meantime."""
        self._introduce()
        self._show_recap()
        halt = self._thread.run(self._home.halts.current())
        self._show_state(halt, frozenset(self._home.taken_up))
        addressed = "@NAME addresses a member, @all everybody; " if self._is_addressed else ""
        self._screen.note(
            f"Type a message. {addressed}/help shows commands, Ctrl-C stops an answer, Ctrl-D "
            "leaves."
        )
        self._screen.gap()

    @property
    def _is_addressed(self) -> bool:
        """Whether a message can be for one of the members."""
        return self._group.pattern == "dynamic"

    def _introduce(self) -> None:
        group = self._group
        models = {
            agent.id: agent.model_in_use for agent in self._thread.run(self._home.agents.list())
        }
        self._prompt.agents = [each.name for each in self._thread.run(self._home.groups.list())]
        self._prompt.mentions = (
            [*(member.name for member in group.members), "all"] if self._is_addressed else []
        )
        names = ", ".join(
            member.name if member.role is Role.REGULAR else f"{member.name} ({member.role.value})"
            for member in group.members
        )
        self._screen.say(f"{group.name} · {group.pattern} · {names or 'no members'}")
        if not group.members:
            adds = f"asterism group add member {shlex.quote(group.name)} AGENT"
            self._screen.warn(f'Nobody can answer yet. "{adds}" adds an agent.')
        used = [models.get(member.agent_id, "") for member in group.members]
        if used and all(model.startswith("demo:") for model in used):
            self._screen.note(
                "All of them use the built-in demo model, not a language model. "
                '"asterism setup" finds a real one.'
            )

    def _show_recap(self) -> None:
        events = self._thread.run(self._home.groups.transcript(self._group, limit=1))
        if not events:
            return
        self._screen.gap()
        for event in events:
            if event.kind == "message":
                self._screen.quote("› ", f"{_said_by(event)}{printable(event.text)}", lines=2)
            elif event.kind in ("reply", "end"):
                self._screen.quote("  ", printable(event.text), lines=4)
        ago = ago_text(int(time.time() * 1000) - events[0].at_ms)
        self._screen.note(f"{ago} · /history for more")

    # -- what is asked of the home -----------------------------------------------------------------

    def _answers(self, agent_id: str) -> bool:
        return agent_id == self._group.id

    def _is_ours(self, agent_id: str) -> bool:
        return any(member.agent_id == agent_id for member in self._group.members)

    def _questions(self) -> list[ApprovalRecord]:
        """Return the questions of members that they ask for the group."""
        channel = f"{GROUP_CHANNEL}{self._group.name}"
        asked = super()._questions()
        return [
            question
            for question in asked
            if self._thread.run(self._home.turns.get(question.turn_id))[0].channel == channel
        ]

    def _question_of(self, turn_id: str) -> ApprovalRecord | None:
        for question in self._questions():
            asked = self._questions_to.get(question.turn_id)
            if asked is None or asked.turn_id == turn_id:
                return question
        return None

    def _accept(self, text: str, **attached: Any) -> Coroutine[Any, Any, Receipt]:
        return self._home.groups.send(self._group, text, channel=CHANNEL, **attached)

    def _stream(self, text: str, **attached: Any) -> AsyncGenerator[Signal, None]:
        return self._with_members(
            self._home.groups.stream(self._group, text, channel=CHANNEL, **attached)
        )

    def _follow(self, turn_id: str) -> AsyncGenerator[Signal, None]:
        return self._with_members(self._home.turns.follow(turn_id))

    def _watched(self) -> AsyncGenerator[Signal, None]:
        return self._home.groups.watch(self._group)

    def _opens(self, signal: Signal) -> bool:
        return self._answers(signal.agent_id) and bool(signal.turn_id)

    def _stream_decision(
        self, question: ApprovalRecord, *, approved: bool, **details: Any
    ) -> AsyncGenerator[Signal, None]:
        return self._with_members(
            self._decide_and_follow(question, approved=approved, **details), question.agent_id
        )

    async def _decide_and_follow(
        self, question: ApprovalRecord, *, approved: bool, **details: Any
    ) -> AsyncGenerator[Signal, None]:
        """Answer a member's question, and yield the signals of the group's turn that waits."""
        turn_id = await self._turn_of(question)
        known = self._questions_to.get(question.turn_id)
        if known is None:
            names = {member.agent_id: member.name for member in self._group.members}
            name = names.get(question.agent_id, "")
            self._questions_to[question.turn_id] = _Question(name, turn_id, formatted=False)
        queue: asyncio.Queue[Signal] = asyncio.Queue()
        watching = asyncio.create_task(_put_all(self._home.groups.watch(self._group), queue))
        try:
            await self._home.approvals.decide(question.id, approved=approved, **details)
            yield Signal("", self._group.id, turn_id, "resumed", {})
            while True:
                signal = await self._next(queue, turn_id)
                if signal is not None:
                    yield signal
                    if signal.kind in ("ended", "parked"):
                        return
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _turn_of(self, question: ApprovalRecord) -> str:
        """Return the group's turn that waits for a member's question."""
        known = self._questions_to.get(question.turn_id)
        if known is not None:
            return known.turn_id
        events = await self._home.groups.transcript(self._group, limit=_LOOKED_BACK)
        for event in events:
            if event.details.get("turn_id") == question.turn_id:
                return event.turn_id
        raise InvalidInput(
            f"{question.id} does not belong to one of the latest turns of {self.name}. "
            f'"asterism approval approve {question.id}" answers it. Nothing was decided.'
        )

    async def _next(self, queue: asyncio.Queue[Signal], turn_id: str) -> Signal | None:
        """Return the next signal of a turn; how it stands, if none comes and nobody is asked."""
        with contextlib.suppress(TimeoutError):
            signal = await asyncio.wait_for(queue.get(), _PATIENCE)
            return signal if signal.turn_id == turn_id else None
        outcome = await self._home.turns.outcome(turn_id)
        kind = "ended"
        if outcome.state is TurnState.PARKED:
            waiting = {question.turn_id for question in await self._home.approvals.list()}
            if not waiting & {
                turn for turn, asked in self._questions_to.items() if asked.turn_id == turn_id
            }:
                return None
            kind = "parked"
        elif outcome.state not in (TurnState.DONE, TurnState.FAILED, TurnState.STOPPED):
            return None
        data = {"state": outcome.state.value, "text": outcome.text}
        return Signal("", self._group.id, turn_id, kind, data)

    async def _with_members(
        self, signals: AsyncGenerator[Signal, None], *agents: str
    ) -> AsyncGenerator[Signal, None]:
        """Yield the signals of a group's turn, and between them those of members at work on it."""
        queue: asyncio.Queue[Signal] = asyncio.Queue()
        main = asyncio.create_task(_put_all(signals, queue))
        watching = {
            agent: asyncio.create_task(_put_all(self._home.agents.watch(agent), queue))
            for agent in agents
        }
        try:
            while not main.done() or not queue.empty():
                got = asyncio.create_task(queue.get())
                await asyncio.wait({got, main}, return_when=asyncio.FIRST_COMPLETED)
                if not got.done():
                    got.cancel()
                    continue
                signal = got.result()
                if signal.kind == "opened":
                    self._begun.add(signal.turn_id)
                for ask in signal.data.get("asks", ()) if signal.kind == "decision" else ():
                    self._questions_to[ask["turn"]] = _Question(
                        ask["member"], signal.turn_id, ask["formatted"]
                    )
                    if ask["agent"] not in watching:
                        watched = self._home.agents.watch(ask["agent"])
                        watching[ask["agent"]] = asyncio.create_task(_put_all(watched, queue))
                if self._opens(signal) or signal.turn_id in self._questions_to:
                    yield signal
            await main  # raises what it has failed with
        finally:
            for task in (main, *watching.values()):
                task.cancel()
            await asyncio.gather(main, *watching.values(), return_exceptions=True)

    # -- what is shown -----------------------------------------------------------------------------

    def _show_turn(self, signals: AsyncGenerator[Signal, None]) -> None:
        self._doing.clear()
        self._said.clear()
        self._answers_shown.clear()
        self._held.clear()
        self._speaking = ""
        super()._show_turn(signals)

    def _show(self, signal: Signal) -> None:
        """Show a signal of the group's turn, or of a member at work on it."""
        data = signal.data
        if not self._answers(signal.agent_id):
            self._show_member_at_work(signal)
            return
        match signal.kind:
            case "decision":
                if data["asks"]:  # else the answer follows, which tells as much
                    self._show_next(lambda: self._screen.note(f"· {data['reason']}"))
                self._doing |= {ask["turn"]: "waiting" for ask in data["asks"]}
            case "delegation":
                to = f" → {data['to']}" if data["to"] else ""
                text = f"  {data['member']}{to}: {one_line(data['text'], 200)}"
                self._show_next(lambda: self._screen.note(text))
            case "member":
                self._doing.pop(data["turn"], None)
                self._begun.discard(data["turn"])
                if data["turn"] == self._speaking:
                    self._finish_speaking(data["text"])
                if self._said.get(data["turn"]) != data["text"]:
                    self._show_next(lambda: self._show_answer(data))
            case "ended" if data["state"] == "done":
                self._settle()
                if not self._is_shown(data["text"]):
                    self._speak(self.name, data["text"])
                self._screen.show(replace(signal, data={**data, "text": ""}))
            case _:
                self._settle()
                super()._show(signal)
        self._tell_who_works()

    def _show_member_at_work(self, signal: Signal) -> None:
        asked, turn = self._questions_to[signal.turn_id], signal.turn_id
        if turn not in self._doing:
            return  # its answer was shown
        self._doing[turn] = _activity(signal) or self._doing[turn]
        self._tell_who_works()
        if signal.kind == "text" and not asked.formatted:
            # Of words that were joined in their middle, nobody wants the rest alone.
            if not self._speaking and turn not in self._said and turn in self._begun:
                self._speaking = turn
                self._screen.speak(asked.member, self._place(asked.member))
            if self._speaking == turn:
                self._said[turn] = self._said.get(turn, "") + signal.text
                self._screen.show(signal)
            else:
                self._said.setdefault(turn, "")  # it is shown as a whole when it is there
        elif signal.kind in ("ended", "parked") and self._speaking == turn:
            self._finish_speaking(self._said[turn])
        elif signal.kind in _PASSED_ON:
            if signal.kind in ("call", "again"):
                if self._speaking == turn:
                    self._settle()
                self._said.pop(turn, None)  # what follows is another step
            self._show_next(lambda: self._show_step(asked.member, signal))

    def _show_step(self, member: str, signal: Signal) -> None:
        """Show what a member does beside speaking, under its name."""
        data = dict(signal.data)
        if "key" in data:
            data["key"] = f"{signal.turn_id}/{data['key']}"
        if signal.kind == "call":
            data["name"] = f"{member}: {data['name']}"
        if signal.kind == "kept":
            data["where"] = f"{member}/{data['where']}"
        super()._show(replace(signal, data=data))
        self._tell_who_works()

    def _finish_speaking(self, text: str) -> None:
        """End the words of whoever speaks; `text` is all that they have said."""
        turn, said = self._speaking, self._said[self._speaking]
        if text.startswith(said):
            if rest := text.removeprefix(said):
                self._screen.show(Signal("", "", turn, "text", {"text": rest, "step": 0}))
            self._said[turn] = text
            self._answers_shown.append((self._questions_to[turn].member, text))
        self._settle()

    def _show_answer(self, data: dict[str, Any]) -> None:
        """Show what a member has said that does not stand on the screen already."""
        turn, member, text = data["turn"], data["member"], data["text"]
        asked = self._questions_to.get(turn)
        if data["state"] != "done":
            self._screen.warn(f"{member} ({data['state']}): {one_line(text, 500)}")
        elif asked is not None and asked.formatted:
            self._screen.note(f"  {member}: {one_line(_read_aloud(text), 500)}")
        elif text:
            self._speak(member, text)
            self._answers_shown.append((member, text))

    def _speak(self, name: str, text: str) -> None:
        self._screen.speak(name, self._place(name))
        self._screen.show(Signal("", "", "", "text", {"text": text, "step": 0}))
        self._screen.settle()

    def _show_next(self, show: Callable[[], None]) -> None:
        """Show something now, or when whoever speaks has finished."""
        if self._speaking:
            self._held.append(show)
        else:
            show()

    def _settle(self) -> None:
        """Let nobody speak, and show what was held back meanwhile."""
        if self._speaking:
            self._speaking = ""
            self._screen.settle()
        held, self._held = self._held, []
        for show in held:
            show()

    def _place(self, name: str) -> int:
        names = [member.name for member in self._group.members]
        return names.index(name) if name in names else len(names)

    def _is_shown(self, text: str) -> bool:
        """Tell whether an answer is nothing but what members were shown to say."""
        answers = [answer for answer in self._answers_shown if answer[1]]
        for name, said in answers:
            text = text.replace(f"{name}: {said}", "")
        for _, said in answers:
            text = text.replace(said, "")
        return not text.strip()

    def _tell_who_works(self) -> None:
        """Say in the status line who is at what."""
        words = [
            f"{self._questions_to[turn].member} {doing}"
            for turn, doing in self._doing.items()
            if turn in self._questions_to
        ]
        self._screen.doing = one_line(" · ".join(words), max(20, self._screen.width - 26))

    # -- commands ----------------------------------------------------------------------------------

    def _do_members(self, _: str) -> None:
        self._show_result(self._thread.run(group_commands.show(self._home, self._group.id)))

    def _do_history(self, rest: str) -> None:
        count = int(rest) if rest.isdecimal() and 0 < len(rest) < 4 else _FEW_TURNS
        events = self._thread.run(self._home.groups.transcript(self._group, limit=count))
        if not events:
            self._screen.say("Nothing was said yet.")
        self._show_events(events)

    def _show_events(self, events: Sequence[GroupEvent]) -> None:
        for event in events:
            if event.kind == "message":
                self._answers_shown.clear()
            match event.kind:
                case "message":
                    self._screen.note(f"{event.at.astimezone():%Y-%m-%d %H:%M}")
                    self._screen.quote("› ", f"{_said_by(event)}{printable(event.text)}", lines=4)
                case "decision":
                    self._screen.note(f"· {event.text}")
                case "delegation":
                    to = f" → {event.details['to']}" if event.details.get("to") else ""
                    self._screen.note(f"  {event.speaker}{to}: {one_line(event.text, 200)}")
                case "answer":
                    self._speak(event.speaker, _read_aloud(event.text))
                    self._answers_shown.append((event.speaker, event.text))
                case "reply" if not self._is_shown(event.text):
                    self._speak(event.speaker, event.text)
                case "end":
                    self._screen.warn(event.text)
                case _:
                    pass

    def _do_transcript(self, rest: str) -> None:
        if not rest:
            raise InvalidInput(
                "Write where to, as in /transcript talk.md or /transcript talk.json. Nothing was "
                "written."
            )
        written = group_commands.transcript(self._home, self._group.id, output=Path(rest))
        self._show_result(self._thread.run(written))

    def _do_groups(self, _: str) -> None:
        self._show_result(self._thread.run(group_commands.list_groups(self._home)))

    def _do_group(self, name: str) -> None:
        if not name:
            self._do_groups(name)
            self._screen.note(f"You talk to {self.name}. /group NAME changes that.")
            return
        self._group = self._thread.run(self._home.groups.get(name))
        self._watching.cancel()
        self._watching = self._thread.start(self._watch_meanwhile())
        self._introduce()
        self._show_recap()


async def _put_all(signals: AsyncGenerator[Signal, None], queue: asyncio.Queue[Signal]) -> None:
    async with contextlib.aclosing(signals):
        async for signal in signals:
            queue.put_nowait(signal)


def _activity(signal: Signal) -> str:
    """Return in a word or two what a member is at; nothing if the signal does not tell."""
    data = signal.data
    match signal.kind:
        case "opened" | "result" | "reasoning":
            return "thinking"
        case "reading":
            share = data["done"] / data["total"] if data["total"] else 1.0
            return f"reading, {share:.0%}" if share < 1 else "thinking"
        case "text":
            return "writing"
        case "call":
            return f"running {printable(data['name'])}"
        case "parked":
            return "waits for you"
        case _:
            return ""


def _read_aloud(text: str) -> str:
    """Return a ballot or a choice, which is JSON, in words; any other text as it is."""
    try:
        said: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    match said:
        case {"choice": str(choice), **rest}:
            chosen = f"votes {choice}"
        case {"members": [*members], **rest}:
            chosen = f"chooses {', '.join(map(str, members))}"
        case _:
            return text
    return f"{chosen}: {rest['reason']}" if rest.get("reason") else chosen


def _said_by(event: GroupEvent) -> str:
    """Return who has opened a turn, unless it was the person at this terminal."""
    return "" if event.speaker == CHANNEL else f"{speaker_label(event.speaker)}: "
