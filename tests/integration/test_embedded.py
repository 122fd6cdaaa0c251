"""The embedded model with real weights, the smallest there are, through the real runtime."""

import asyncio
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import orjson
import pytest
import pytest_asyncio

from asterism import Asterism
from asterism.errors import ConfigError, ContextTooLong, ModelRefused, ModelUnavailable
from asterism.models.cassette import Cassette, read_tape
from asterism.models.embedded import Embedded
from asterism.models.embedded.weights import WeightsDirectory
from asterism.ports import ModelRequest, Profiled, Warm
from asterism.tools.tool import Tool, tool
from asterism.turns.context_view import TokenBasis

# Not imported: native code that crashes must not take this process with it, here as in earnest.
if importlib.util.find_spec("xllamacpp") is None:
    pytest.skip("the extra 'embedded' is not installed", allow_module_level=True)

pytestmark = pytest.mark.timeout(300)

NAME = "smollm2-135m"
LONG = "Tell me a very long story about the sea, the ships and the people on them."


@tool
def weather(place: str, day: Literal["today", "tomorrow"] = "today") -> str:
    """Weather forecast for a place."""
    return f"{place}: sunny {day}."


@tool
def order(items: list[str], count: int, urgent: bool, note: str | None = None) -> str:
    """Order things for the household."""
    return f"{count} {items} {urgent} {note}"


TOOLS: dict[str, Tool] = {"weather": weather, "order": order}


@pytest.fixture(scope="session")
def weights() -> WeightsDirectory:
    """The weights of this machine, fetched once."""
    found = WeightsDirectory()
    if found.path(NAME) is None:
        try:
            asyncio.run(found.pull(NAME))
        except ModelUnavailable as error:
            pytest.skip(error.message)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(weights: WeightsDirectory) -> AsyncGenerator[Embedded]:
    """One child for all tests that leave it as it was."""
    port = Embedded("embedded", {"directory": weights.directory, "options": {"temperature": 0}})
    yield port
    await port.close()


@pytest.fixture
async def own(weights: WeightsDirectory) -> AsyncGenerator[Embedded]:
    """A child of the test's own, to be treated badly."""
    port = Embedded("embedded", {"directory": weights.directory, "options": {"window": 1024}})
    yield port
    await port.close()


def wire(role: str, text: str) -> bytes:
    return orjson.dumps({"role": role, "content": text})


def ask(
    *texts: str,
    system: str = "You are Aria.",
    tools: list[Tool] | None = None,
    timeout: float = 120.0,
    most: int | None = 24,
    choice: str = "auto",
    schema: bytes | None = None,
) -> ModelRequest:
    """Make a request; user and assistant take turns in `texts`."""
    roles = ("user", "assistant")
    said = [wire(roles[place % 2], text) for place, text in enumerate(texts)]
    return ModelRequest(
        NAME,
        [wire("system", system), *said],
        orjson.dumps([one.wire() for one in tools]) if tools else None,
        "turn_1/0/reply",
        timeout,
        tool_choice=choice,
        schema=schema,
        max_output=most,
    )


class Pieces:
    """Keeps what a model emits, and lets a test wait for the first piece."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.begun = asyncio.Event()

    def __call__(self, kind: str, piece: str) -> None:
        if kind == "reading":
            done, _, total = piece.partition("/")
            assert 0 <= int(done) <= int(total)
            return
        assert kind == "text"
        self.all.append(piece)
        self.begun.set()


async def until(true: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 - no event reaches us from there
            await asyncio.sleep(0.02)


def is_there(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.asyncio(loop_scope="module")
class TestAnswers:
    """Everything that one child does for many."""

    @pytest.mark.promise("D1")
    async def test_answers_in_words_and_streams_them(self, shared: Embedded):
        pieces = Pieces()
        reply = await shared.complete(ask("Hello, who are you?"), pieces)
        assert reply.text
        assert "".join(pieces.all).strip() == reply.text
        assert len(pieces.all) > 3
        assert reply.usage.input > 10
        assert 1 < reply.usage.output <= 24
        assert "xllamacpp" not in sys.modules

    @pytest.mark.parametrize("choice", ["auto", "required"])
    async def test_a_tool_for_one_message_is_called_or_words_come_without_it(
        self, shared: Embedded, choice: str
    ):
        tools = orjson.dumps([weather.wire()])
        request = replace(ask("Will it rain in Rome?", choice=choice), message_tools=tools)
        pieces = Pieces()
        reply = await shared.complete(request, pieces)
        if choice == "required" or reply.calls:
            (call,) = reply.calls
            assert call.name == "weather"
            assert weather.read(call.arguments)["place"] is not None
            assert not pieces.all
        else:
            assert "".join(pieces.all).strip() == reply.text
            assert reply.text
            assert "tool:" not in reply.text

    async def test_says_the_same_without_a_listener(self, shared: Embedded):
        told = await shared.complete(ask("Name a colour."), Pieces())
        assert (await shared.complete(ask("Name a colour."))).text == told.text

    @pytest.mark.promise("M12")
    async def test_two_agents_in_turn_both_keep_what_was_read(self, shared: Embedded):
        def prefix(name: str) -> str:
            return f"You are {name}. " + f"{name} likes short answers and long walks. " * 20

        cached: dict[str, list[int]] = {"Aria": [], "Boris": []}
        past: dict[str, list[str]] = {"Aria": [], "Boris": []}
        for question in ("Good morning.", "What do you like?", "Thank you."):
            for name, said in past.items():
                asked = ask(*said, question, system=prefix(name), tools=[weather], choice="none")
                reply = await shared.complete(asked)
                said += [question, reply.text]
                cached[name].append(reply.usage.cached)
                if len(said) > 2:
                    assert reply.usage.cached > 0.8 * reply.usage.input - 60
        assert all(later[1] > 250 and later[2] > later[1] for later in cached.values())

    async def test_warming_reads_the_prefix_and_writes_nothing(self, shared: Embedded):
        asked = ask("Hi!", system="You are Clara. " + "Clara knows a lot about birds. " * 30)
        assert isinstance(shared, Warm)
        await shared.warm(asked)
        reply = await shared.complete(asked)
        assert reply.usage.cached > 200

    @pytest.mark.parametrize("name", list(TOOLS))
    async def test_a_call_fits_its_tool(self, shared: Embedded, name: str):
        asked = ask("Is it nice in Rome?", tools=list(TOOLS.values()), choice=name, most=None)
        reply = await shared.complete(asked, Pieces())
        assert [call.name for call in reply.calls] == [name]
        assert reply.finish == "tool_calls"
        assert reply.text == ""
        TOOLS[name].read(reply.calls[0].arguments)

    async def test_required_means_one_of_the_tools(self, shared: Embedded):
        asked = ask("Hello!", tools=list(TOOLS.values()), choice="required", most=None)
        reply = await shared.complete(asked)
        assert len(reply.calls) == 1
        TOOLS[reply.calls[0].name].read(reply.calls[0].arguments)

    async def test_none_means_words(self, shared: Embedded):
        asked = ask("What is the weather in Rome?", tools=[weather], choice="none")
        reply = await shared.complete(asked)
        assert reply.text
        assert not reply.calls
        assert "tool:" not in reply.text

    async def test_a_bound_that_cuts_a_call_does_not_leave_half_of_it(self, shared: Embedded):
        asked = ask("Order milk and bread.", tools=[order], choice="order", most=1)
        reply = await shared.complete(asked)
        (call,) = reply.calls
        assert call.name == "order"
        assert order.read(call.arguments), "arguments that do not fit are an error"

    async def test_an_answer_fulfils_its_schema(self, shared: Embedded):
        schema = orjson.dumps(
            {
                "type": "object",
                "properties": {
                    "mood": {"enum": ["good", "bad"]},
                    "score": {"type": "integer", "minimum": 3, "maximum": 7},
                },
                "required": ["mood", "score"],
            }
        )
        for tools in (None, [weather]):
            asked = ask("How are you?", schema=schema, tools=tools, choice="none", most=64)
            found = orjson.loads((await shared.complete(asked)).text)
            assert found["mood"] in {"good", "bad"}
            assert 3 <= found["score"] <= 7
            assert len(found) == 2

    @pytest.mark.promise("T5")
    async def test_an_answer_that_nobody_waits_for_is_dropped(self, shared: Embedded):
        pieces = Pieces()
        task = asyncio.create_task(shared.complete(ask(LONG, most=2000), pieces))
        await asyncio.wait_for(pieces.begun.wait(), 60)
        pid = shared.pid(NAME)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        reply = await shared.complete(ask("Hi!", most=4))
        assert reply.text
        assert shared.pid(NAME) == pid  # it noticed by itself and was not killed

    async def test_time_that_is_up_is_said_and_the_child_lives(self, shared: Embedded):
        await shared.complete(ask("Hi!", most=1))
        pid = shared.pid(NAME)
        with pytest.raises(ModelUnavailable, match=r"no whole answer within 0\.3 seconds") as told:
            await shared.complete(ask(LONG, most=2000, timeout=0.3))
        assert told.value.slow
        await shared.complete(ask("Hi!", most=1))
        assert shared.pid(NAME) == pid

    async def test_a_profile_for_small_models(self, shared: Embedded):
        assert isinstance(shared, Profiled)
        profile = shared.profile(NAME)
        assert (profile.window, profile.compact, profile.images) == (8192, True, False)


@pytest.mark.promise("T11")
async def test_what_is_shown_of_a_context_is_what_the_child_was_sent(
    weights: WeightsDirectory, tmp_path: Path
):
    tape = Cassette(tmp_path / "tape.jsonl", "record")
    options = {"directory": weights.directory, "cassette": tape, "options": {"temperature": 0}}
    model = {"embedded": Embedded("embedded", options)}
    settings = {"model": f"embedded:{NAME}"}
    async with Asterism.open(tmp_path / "home", models=model, settings=settings) as home:
        aria = await home.agents.create("aria", tools=["calculator", "recall", "schedule"])
        for place, text in enumerate(("Hello!", "My cat is called Miso.")):
            before = await home.contexts.now("aria")
            outcome = await aria.ask(text)
            shown = await home.contexts.of_turn(outcome.turn_id, 0)
            sent = next(
                orjson.loads(exchange.request.body)["messages"]
                for exchange in read_tape(tape.path)
                if exchange.request.key == f"{outcome.turn_id}/0/reply"
            )
            whole = "\n".join(message["content"] for message in sent)
            assert {"rule", "examples", "tool recall"} <= {line.part for line in shown.lines}
            told = [line.text for line in shown.lines if line.part != "examples"]
            assert all(text in whole for text in told)
            examples = [line.text for line in shown.lines if line.part == "examples"]
            left = _letters(whole) - sum(map(_letters, told))
            roles = len("user:") * examples[0].count("user:")
            roles += len("assistant:") * examples[0].count("assistant:")
            assert left == _letters(examples[0]) - roles, "something was sent that is not shown"
            assert shown.tokens == shown.tokens_in
            if place:
                assert abs(shown.estimate - shown.tokens) <= 0.03 * shown.tokens
                # The child is up and counts by itself; what was said since has a few tokens.
                assert before.basis is TokenBasis.COUNTED
                assert 0 < shown.tokens - before.tokens < 60


def _letters(text: str) -> int:
    return len("".join(text.split()))


@pytest.mark.promise("T8")
async def test_a_child_that_is_killed_in_mid_answer_is_replaced(own: Embedded):
    pieces = Pieces()
    task = asyncio.create_task(own.complete(ask(LONG, most=800), pieces))
    await asyncio.wait_for(pieces.begun.wait(), 120)
    pid = own.pid(NAME)
    assert pid
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ModelUnavailable, match="was cut off: its process was ended by SIGKILL"):
        await task
    assert own.pid(NAME) is None
    assert (await own.complete(ask("Hi!", most=4))).text
    assert own.pid(NAME) not in {None, pid}


async def test_a_child_that_hangs_is_ended(weights: WeightsDirectory):
    options = {"directory": weights.directory, "options": {"window": 1024}}
    port = Embedded("embedded", options)
    try:
        await port.complete(ask("Hi!", most=1))
        pid = port.pid(NAME)
        assert pid
        os.kill(pid, signal.SIGSTOP)
        port._silence = 1.0  # pyright: ignore[reportPrivateUsage] - only now: a busy machine may be slow before
        with pytest.raises(ModelUnavailable, match=r"hung .* and was ended"):
            await port.complete(ask("Hi!"))
        assert not is_there(pid)
    finally:
        await port.close()


async def test_a_conversation_longer_than_the_window_is_said_to_be(own: Embedded):
    with pytest.raises(ContextTooLong, match="longer than the 1,024 tokens"):
        await own.complete(ask("word " * 2000))


async def test_an_idle_child_is_stopped_and_started_when_needed(weights: WeightsDirectory):
    options = {"directory": weights.directory, "options": {"window": 1024, "idle": 1}}
    port = Embedded("embedded", options)
    try:
        assert port.pid(NAME) is None
        await port.complete(ask("Hi!", most=1))
        pid = port.pid(NAME)
        assert pid
        await until(lambda: not is_there(pid))
        assert port.pid(NAME) is None
        await port.complete(ask("Hi!", most=1))
        assert port.pid(NAME)
    finally:
        await port.close()
    assert port.pid(NAME) is None


PARENT = f"""
import asyncio, sys, orjson
from pathlib import Path
from asterism.models.embedded import Embedded
from asterism.ports import ModelRequest

async def main():
    port = Embedded("embedded", {{"directory": Path(sys.argv[1]), "options": {{"window": 512}}}})
    said = [orjson.dumps({{"role": "user", "content": "Hi"}})]
    await port.complete(ModelRequest({NAME!r}, said, None, "k", 100.0, max_output=1))
    print(port.pid({NAME!r}), flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


def test_a_parent_that_dies_takes_its_child_along_and_shows_no_secret(weights: WeightsDirectory):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(weights.directory)], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert len(command) == 4  # interpreter, -P, file, and what follows the last zero
        assert os.getsid(pid) != os.getsid(parent.pid)  # Ctrl-C does not reach it
        parent.kill()
    end = time.monotonic() + 120
    while is_there(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


async def test_weights_that_are_not_here_are_named_with_the_next_move(tmp_path: Path):
    port = Embedded("embedded", {"directory": tmp_path})
    with pytest.raises(ModelRefused, match=rf'"asterism model pull {NAME}" \(98 MB\)'):
        await port.complete(ask("Hi!"))
    asked = ask("Hi!")
    unknown = ModelRequest("smollm", asked.messages, None, "k", 10.0)
    with pytest.raises(ModelRefused, match=rf"Did you mean '{NAME}'"):
        await port.complete(unknown)


async def test_weights_that_cannot_be_loaded_are_said_to_be(
    weights: WeightsDirectory, tmp_path: Path
):
    whole = weights.path(NAME)
    assert whole is not None
    file = tmp_path / "mine.gguf"
    file.write_bytes(whole.read_bytes()[: 8 << 20])
    await WeightsDirectory(tmp_path / "weights").pull("mine", file=file)
    port = Embedded("embedded", {"directory": tmp_path / "weights"})
    asked = ModelRequest("mine", ask("Hi!").messages, None, "k", 60.0)
    with pytest.raises(ModelUnavailable, match="'mine' could not be started: ") as told:
        await port.complete(asked)
    assert str(tmp_path / "weights" / "logs" / "mine.log") in told.value.message
    await port.close()


def test_a_wrong_option_is_named(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"models\.embedded\.options\.window is 'big'"):
        Embedded("embedded", {"directory": tmp_path, "options": {"window": "big"}})
