"""`python -m bench.assistant`: is the default agent of use in everyday conversations?

Each conversation of `assistant_conversations/` runs in a home of its own, through the public API
and with the embedded model, and is judged by rules alone; with `--bare` also in a bare loop with
the same weights and tools. Results go to a file of JSON lines, so that a run can be resumed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, cast

import aiohttp
import orjson

from asterism import (
    Agent,
    Asterism,
    AsterismError,
    Conflict,
    Model,
    ModelRequest,
    PastMessage,
    Signal,
)
from asterism.models.embedded import Embedded
from asterism.models.embedded.weights import WeightsDirectory, manifest
from bench.assistant_bare import TOOLS, BareLoop, ContextExceeded
from bench.assistant_checks import (
    DIRECTORY,
    KINDS,
    SPLITS,
    CallRecord,
    Conversation,
    PlannedMessage,
    Step,
    TurnResult,
    conversations,
    failures,
    filler,
)

AGENT = "aria"
GOAL, GOAL_OF_KIND = 0.85, 0.75
UNSEEN_GOALS = {"trap": 0.97, "passing": 0.80, "correct": 0.80, "forget": 0.90}
"""Of the split `unseen`; its everyday conversations have the goals above, by language."""
_TIMEOUT = 300.0
_MAX_IDLE = 86_400
_SOURCE = "papers"
_MAX_PASSAGES = 500


class SharedModel(Embedded):
    """The embedded model for many homes: a home that closes leaves its child running."""

    async def close(self) -> None:
        """Do nothing; the child goes on for the next home."""

    async def stop(self) -> None:
        """Stop the child."""
        await super().close()

    async def start(self, model: str) -> None:
        """Start the child, unless it is up."""
        if self.pid(model) is not None:
            return  # a request would only push out the prompt that it has read
        message = orjson.dumps({"role": "user", "content": "Hello."})
        request = ModelRequest(model, [message], None, "bench", _TIMEOUT, max_output=1)
        await self.complete(request)


class ConversationClock:
    """The real time, moved to the local time at which a conversation begins."""

    def __init__(self, conversation: Conversation) -> None:
        """Take the time at which the conversation begins."""
        self._zone = conversation.zone
        self._shift = conversation.shift(datetime.now(UTC))

    def now(self) -> datetime:
        """Return the owner's local time."""
        # Moved as UTC: arithmetic on local time would skip the hour that a time change takes.
        return (datetime.now(UTC) + self._shift).astimezone(self._zone)

    def __call__(self) -> int:
        """Return milliseconds since 1970, as a home wants them."""
        return int(self.now().timestamp() * 1000)


class Session(Protocol):
    """One conversation with a system, under way."""

    async def say(self, text: str) -> TurnResult:
        """Say something, and return the answer and how things stand after it."""
        ...

    async def fill(self, count: int) -> None:
        """Put this many messages of small talk into the conversation."""
        ...

    async def restart(self) -> None:
        """Close everything and open it again."""
        ...

    async def new_chat(self) -> None:
        """Begin the conversation anew; what is kept stays."""
        ...


# -- asterism --------------------------------------------------------------------------------------


class AsterismSession:
    """A conversation with the default agent of a home of its own."""

    def __init__(self, conversation: Conversation, model: str, port: Model, timeout: float) -> None:
        """Prepare a session; `start` opens the home."""
        self._conversation = conversation
        self._port = port
        self._timeout = timeout
        self._clock = ConversationClock(conversation)
        self._settings = {"model": f"embedded:{model}", "timezone": conversation.timezone}
        self._place = tempfile.TemporaryDirectory(prefix="asterism-bench-")
        self._stack = AsyncExitStack()
        self._home: Asterism
        self._agent: Agent

    async def start(self) -> None:
        """Open the home and put in what the conversation has at the beginning."""
        await self._open()
        conversation = self._conversation
        there = {seen.block.label for seen in await self._agent.blocks.list()}
        for label, text in conversation.blocks.items():
            if label in there:
                await self._agent.blocks[label].append(text)
            else:
                await self._agent.blocks.create(label, text)
        for text in conversation.archive:
            await self._agent.archive.add(text)
        if conversation.documents:
            folder = Path(self._place.name) / _SOURCE
            folder.mkdir()
            for name, text in conversation.documents.items():
                (folder / name).write_text(text, encoding="utf-8")
            await self._home.sources.add(_SOURCE, folder, agents=[self._agent])
            await self._home.sources.sync(_SOURCE)
        if conversation.earlier:
            at = self._clock.now() - timedelta(days=conversation.days_ago)
            await self._agent.import_messages(
                [PastMessage(role, text, at=at) for role, text in conversation.earlier]
            )

    async def _open(self) -> None:
        home = Asterism.open(
            Path(self._place.name) / "home",
            environ={},
            settings=self._settings,
            models={"embedded": self._port},
            clock=self._clock,
            grace=2.0,
        )
        self._home = await self._stack.enter_async_context(home)
        self._agent = await self._home.agents.ensure(AGENT)

    async def restart(self) -> None:
        """Close the home and open it again."""
        await self._stack.aclose()
        await self._open()

    async def new_chat(self) -> None:
        """Begin the conversation anew, as `/new` does."""
        await self._home.contexts.restart(AGENT)

    async def fill(self, count: int) -> None:
        """Import small talk."""
        await self._agent.import_messages(filler().messages(count))

    async def say(self, text: str) -> TurnResult:
        """Ask, and read what is kept and planned afterwards."""
        memory, schedules = await self._memory(), await self._schedules()
        began, signals = self._clock.now(), list[Signal]()
        problem = ""
        try:
            async with asyncio.timeout(self._timeout):
                async for signal in self._agent.stream(text):
                    signals.append(signal)
        except TimeoutError:
            problem = f"no answer within {self._timeout:g} s"
            await self._stop(signals)
        except AsterismError as error:
            problem = error.message
        last = signals[-1].data if signals else {}
        if not problem and last.get("state") != "done":
            problem = f"{last.get('state')}: {last.get('text')}"
        return TurnResult(
            say=text,
            answer="" if problem else str(last.get("text") or ""),
            began=began,
            ended=self._clock.now(),
            calls=_calls(signals),
            problem=problem,
            memory=await self._memory(),
            schedules=await self._schedules(),
            memory_before=memory,
            schedules_before=schedules,
        )

    async def _stop(self, signals: Sequence[Signal]) -> None:
        turn = next((signal.turn_id for signal in signals if signal.turn_id), None)
        if turn is not None:
            with suppress(Conflict):  # it has ended in this moment
                await self._home.turns.stop(turn)

    async def _memory(self) -> tuple[str, ...]:
        blocks = [seen.block.text for seen in await self._agent.blocks.list()]
        passages = await self._agent.archive.list(limit=_MAX_PASSAGES)
        return tuple(filter(None, (*blocks, *(passage.text for passage in passages))))

    async def _schedules(self) -> tuple[PlannedMessage, ...]:
        zone = self._conversation.zone
        return tuple(
            PlannedMessage(one.text, datetime.fromtimestamp(one.due_at_ms / 1000, zone), one.cron)
            for one in await self._home.schedules.list(self._agent)
        )

    async def close(self) -> None:
        """Close the home and delete its data."""
        await self._stack.aclose()
        self._place.cleanup()


def _calls(signals: Sequence[Signal]) -> tuple[CallRecord, ...]:
    """Return the calls of a turn; one that is shown twice counts once."""
    found: dict[str, CallRecord] = {}
    for signal in signals:
        if signal.kind == "call":
            call = CallRecord(signal.data["name"], signal.data["arguments"])
            found[signal.data["key"]] = _target(call)
    return tuple(found.values())


def _target(call: CallRecord) -> CallRecord:
    """Return the call that is made through the tool `tools`, where it is one."""
    if call.name != "tools":
        return call
    try:
        given: dict[str, Any] = json.loads(call.arguments)
        return CallRecord(str(given["name"]), json.dumps(given["arguments"]))
    except (ValueError, KeyError, TypeError):
        return call


# -- the bare loop ---------------------------------------------------------------------------------


class BareSession:
    """A conversation with the same weights in a bare loop."""

    def __init__(
        self, conversation: Conversation, ask: Callable[[dict[str, Any]], Any], timeout: float
    ) -> None:
        """Take what posts a request to the child."""
        clock = ConversationClock(conversation)
        self._clock = clock
        self._timeout = timeout
        self._kind = conversation.kind
        self._loop = BareLoop(conversation, ask, (), clock.now)

    async def start(self) -> None:
        """Read the descriptions of the tools, which are asterism's own."""
        if self._kind == "knowledge":
            return  # with tools it calls them where it knows the answer, and would be no measure
        with tempfile.TemporaryDirectory() as data:
            settings = {"model": "demo:guide"}
            async with Asterism.open(data, environ={}, settings=settings, work=False) as home:
                wire: list[dict[str, Any]] = orjson.loads(home.toolbox.wire(None) or b"[]")
        self._loop.tools = [tool for tool in wire if tool["function"]["name"] in TOOLS]

    async def restart(self) -> None:
        """Do nothing: the bare loop is allowed to keep its conversation over a restart."""

    async def new_chat(self) -> None:
        """Drop the conversation."""
        self._loop.history.clear()

    async def fill(self, count: int) -> None:
        """Put small talk into the conversation."""
        self._loop.add(filler().messages(count))

    async def say(self, text: str) -> TurnResult:
        """Ask, and read what is kept and planned afterwards."""
        memory, schedules = tuple(self._loop.memory), tuple(self._loop.schedules.values())
        began = self._clock.now()
        answer, problem = "", ""
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._loop.say(text)
        except TimeoutError:
            problem = f"no answer within {self._timeout:g} s"
        except aiohttp.ClientError as error:
            problem = f"the child did not answer ({error})"
        return TurnResult(
            say=text,
            answer=answer,
            began=began,
            ended=self._clock.now(),
            calls=tuple(self._loop.calls),
            problem=problem,
            memory=tuple(self._loop.memory),
            schedules=tuple(self._loop.schedules.values()),
            memory_before=memory,
            schedules_before=schedules,
        )

    async def close(self) -> None:
        """Do nothing: all of it is in this process."""


def _post(port: SharedModel, model: str) -> Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]:
    """Return what posts a chat completion to the child and gives back its message."""

    async def ask(body: dict[str, Any]) -> dict[str, Any]:
        address, key = port.address(model)
        headers = {"Authorization": f"Bearer {key}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.post(f"{address}/v1/chat/completions", json=body) as response,
        ):
            answer = await response.json()
        if "error" in answer:
            if answer["error"].get("type") == "exceed_context_size_error":
                raise ContextExceeded
            raise aiohttp.ClientError(str(answer["error"].get("message")))
        return cast("dict[str, Any]", answer["choices"][0]["message"])

    return ask


# -- one run ---------------------------------------------------------------------------------------


@dataclass
class Result:
    """How one conversation went with one system; a line of the file of results."""

    system: str
    id: str
    kind: str
    split: str
    language: str
    model: str
    passed: bool = True
    failures: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    calls: int = 0
    turns: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    at: str = ""
    everyday: bool = False

    def add(self, step: Step, turn: TurnResult) -> None:
        """Judge a turn."""
        for problem in failures(step, turn):
            self.fail(problem)
        self.calls += len(turn.calls)
        self.turns.append(
            {
                "say": turn.say,
                "answer": turn.answer,
                "seconds": round(turn.seconds, 1),
                "calls": [asdict(call) for call in turn.calls],
                "memory": list(turn.memory),
                "schedules": [
                    {"text": one.text, "due": one.due.isoformat(), "cron": one.cron}
                    for one in turn.schedules
                ],
            }
        )

    @property
    def harmless(self) -> bool:
        """Whether it was at most a wrong answer: nothing was kept or planned against the checks."""
        return all(problem.startswith(("answer_", "min_words")) for problem in self.failures)

    def fail(self, problem: str) -> None:
        """Note why the conversation did not pass."""
        self.passed = False
        self.failures.append(problem)

    def line(self) -> str:
        """Return it as a line for people."""
        calls = f"{self.calls} call{'' if self.calls == 1 else 's'}"
        head = f"{'pass' if self.passed else 'FAIL'}  {self.system:<9} {self.id:<38}"
        why = "" if self.passed else f"\n      {'; '.join(self.failures)}"
        return f"{head} {self.seconds:6.1f} s  {calls}{why}"


class Bench:
    """All conversations that were asked for, one after the other, with one child."""

    def __init__(self, model: str, timeout: float) -> None:
        """Prepare; nothing is started yet."""
        self._model = model
        self._timeout = timeout
        # The bare loop asks the child past its port, which would take it to be idle.
        self._port = SharedModel("embedded", {"options": {"idle": _MAX_IDLE}})

    async def run(
        self,
        wanted: Sequence[tuple[str, Conversation]],
        note: Callable[[Result], None],
    ) -> None:
        """Run conversations, each with the system that is named, and note each result at once."""
        try:
            for system, conversation in wanted:
                await self._port.start(self._model)
                note(await self._one(system, conversation))
        finally:
            await self._port.stop()

    async def _one(self, system: str, conversation: Conversation) -> Result:
        result = Result(
            *(system, conversation.id, conversation.kind, conversation.split),
            *(conversation.language, self._model),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            everyday=conversation.everyday,
        )
        began = time.monotonic()
        try:
            await self._converse(system, conversation, result)
        except (AsterismError, OSError) as error:
            # One conversation that cannot be held must not end a run of hours.
            result.fail(f"conversation: {type(error).__name__}: {error}")
        result.seconds = round(time.monotonic() - began, 1)
        return result

    async def _converse(self, system: str, conversation: Conversation, result: Result) -> None:
        """Take the steps of a conversation up to the first that fails."""
        async with self._session(system, conversation) as session:
            for step in conversation.steps:
                if step.restart:
                    await session.restart()
                if step.new_chat:
                    await session.new_chat()
                if step.filler:
                    await session.fill(step.filler)
                if step.say:
                    result.add(step, await session.say(step.say))
                if not result.passed:
                    break

    @asynccontextmanager
    async def _session(
        self, system: str, conversation: Conversation
    ) -> AsyncGenerator[Session, None]:
        if system == "bare":
            ask = _post(self._port, self._model)
            session = BareSession(conversation, ask, self._timeout)
        else:
            session = AsterismSession(conversation, self._model, self._port, self._timeout)
        try:
            await session.start()
            yield session
        finally:
            await session.close()


# -- the report ------------------------------------------------------------------------------------


def report(results: Sequence[Result]) -> str:
    """Return how many conversations passed, by kind, split and language, beside the goals."""
    systems = sorted({result.system for result in results})
    lines = [f"{'':<18}" + "".join(f"{system:>20}" for system in systems)]
    rows = [(kind, [one for one in results if one.kind == kind]) for kind in KINDS]
    rows += [(split, [one for one in results if one.split == split]) for split in SPLITS]
    rows.append(("all", list(results)))
    for name, some in rows:
        if some:
            cells = (_cell([one for one in some if one.system == system]) for system in systems)
            lines.append(f"{name.replace('_', ' '):<18}" + "".join(f"{cell:>20}" for cell in cells))
    for system in systems:
        unseen = [one for one in results if (one.system, one.split) == (system, "unseen")]
        lines += by_language(system, unseen)
    lines += ["", f"goals: {GOAL:.0%} in all, {GOAL_OF_KIND:.0%} in each kind; of the unseen"]
    goals = (f"{kind} {goal:.0%}" for kind, goal in UNSEEN_GOALS.items())
    lines.append(
        f"  {GOAL:.0%} everyday en, {GOAL_OF_KIND:.0%} everyday others, {', '.join(goals)},"
    )
    lines.append("  knowledge as in the bare loop; a trap that is harmless meets its goal")
    missed = goals_missed(results)
    lines.append(f"missed by asterism: {', '.join(missed)}" if missed else "asterism meets them")
    return "\n".join(lines)


def by_language(system: str, results: Sequence[Result]) -> list[str]:
    """Return how many unseen conversations passed with a system, by kind and by language."""
    if not results:
        return []
    languages = sorted({one.language for one in results})
    lines = ["", f"{f'unseen, {system}':<18}" + "".join(f"{name:>18}" for name in languages)]
    lines[-1] += f"{'all':>18}"
    rows = [(kind, [one for one in results if one.kind == kind]) for kind in KINDS]
    rows += [("trap, harmless", _harmless(results)), ("everyday", _everyday(results))]
    for name, some in rows:
        if some:
            parts = [[one for one in some if one.language == language] for language in languages]
            cells = "".join(f"{_cell(part):>18}" for part in [*parts, some])
            lines.append(f"{name:<18}{cells}")
    return lines


def _harmless(results: Sequence[Result]) -> list[Result]:
    """Return the traps, passed where nothing was done, whatever was answered."""
    return [replace(one, passed=one.harmless) for one in results if one.kind == "trap"]


def _everyday(results: Sequence[Result], language: str | None = None) -> list[Result]:
    return [one for one in results if one.everyday and one.language == (language or one.language)]


def _cell(results: Sequence[Result]) -> str:
    if not results:
        return "-"
    return f"{_passed(results)} of {len(results)} ({_passed(results) / len(results):4.0%})"


def _passed(results: Sequence[Result]) -> int:
    return sum(result.passed for result in results)


def goals_missed(results: Sequence[Result]) -> list[str]:
    """Return what misses its goal with asterism: kinds, `all`, and everyday languages."""
    ours = [one for one in results if one.system == "asterism"]
    known = [one for one in ours if one.split != "unseen"]
    unseen = [one for one in ours if one.split == "unseen"]
    rows = [(kind, GOAL_OF_KIND, [one for one in known if one.kind == kind]) for kind in KINDS]
    rows.append(("all", GOAL, known))
    for kind, goal in UNSEEN_GOALS.items():
        some = [one for one in unseen if one.kind == kind]
        rows.append((kind, goal, _harmless(some) if kind == "trap" else some))
    for language in sorted({one.language for one in unseen}):
        goal = GOAL if language == "en" else GOAL_OF_KIND
        rows.append((f"everyday {language}", goal, _everyday(unseen, language)))
    missed = [name for name, goal, some in rows if _passed(some) < goal * len(some)]
    bare = {one.id: one for one in results if (one.system, one.kind) == ("bare", "knowledge")}
    both = [one for one in unseen if one.id in bare]
    if _passed(both) < _passed([bare[one.id] for one in both]):
        missed.append("knowledge")
    return missed


def read_results(path: Path) -> list[Result]:
    """Return the results in a file; the last of a conversation counts."""
    if not path.exists():
        return []
    found: dict[tuple[str, str], Result] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        result = Result(**json.loads(line))
        found[result.system, result.id] = result
    return list(found.values())


def _count(text: str) -> int:
    """Return a number of conversations."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of conversations. Use 1 or more."
        )
    return int(text)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.assistant", description=(__doc__ or "").partition("\n")[0]
    )
    recommended = next(name for name, one in manifest().items() if one.recommended)
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be given again")
    parser.add_argument("--only", action="append", metavar="ID", help="may be given again")
    parser.add_argument("--split", choices=SPLITS, help="conversations of one split")
    parser.add_argument("--language", action="append", metavar="CODE", help="may be given again")
    parser.add_argument(
        "--directory", type=Path, default=DIRECTORY, help="conversations of your own, by kind"
    )
    parser.add_argument("--limit", type=_count, metavar="N", help="the first N of each kind")
    parser.add_argument("--sample", type=_count, metavar="N", help="N of them, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0, help="another one draws others (default: 0)")
    parser.add_argument("--model", default=recommended, help=f"weights (default: {recommended})")
    parser.add_argument("--bare", action="store_true", help="the bare loop, too")
    parser.add_argument("--timeout", type=float, default=_TIMEOUT, help="seconds for each turn")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add results to this file")
    parser.add_argument(
        "--resume", type=Path, metavar="FILE", help="run what this file lacks, and add it there"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a goal is missed")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[Conversation]:
    """Return the conversations that the options name."""
    everything = conversations(options.directory)
    found: list[Conversation] = []
    for kind in options.kind or KINDS:
        some = [
            conversation
            for conversation in everything
            if conversation.kind == kind
            and (options.split is None or conversation.split == options.split)
            and (not options.language or conversation.language in options.language)
            and (not options.only or conversation.id in options.only)
        ]
        found += some[: options.limit]
    if options.sample is None or options.sample >= len(found):
        return found
    drawn = random.Random(options.seed).sample(range(len(found)), options.sample)
    return [found[place] for place in sorted(drawn)]


def main() -> int:
    """Run what was asked for, and print how it went."""
    options = _options()
    if WeightsDirectory().path(options.model) is None:
        print(f'{options.model} is not here. Get it with "asterism model pull {options.model}".')
        return 1
    some = chosen(options)
    if not some:
        print("No conversation is of that kind, split, language and id. Leave one of them out.")
        return 1
    path = options.resume or options.json
    results: list[Result] = []
    if options.resume is not None:
        results = [one for one in read_results(path) if one.model == options.model]
    done = {(result.system, result.id) for result in results}
    systems = ("asterism", "bare") if options.bare else ("asterism",)
    wanted = [
        (system, conversation)
        for system in systems  # one after the other: the child keeps what it has read of a prompt
        for conversation in some
        if (system, conversation.id) not in done
    ]

    def note(result: Result) -> None:
        results.append(result)
        print(result.line(), flush=True)
        if path is not None:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")

    with suppress(KeyboardInterrupt):  # what was done until then is reported
        asyncio.run(Bench(options.model, options.timeout).run(wanted, note))
    print(report(results))
    return 1 if options.check and goals_missed(results) else 0


if __name__ == "__main__":
    sys.exit(main())
