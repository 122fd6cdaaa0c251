"""Cassettes: what went over the wire is recorded, and played again without any network."""

import logging
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, Signal, ToolContext, TurnState, tool
from asterism.errors import ConfigError, ModelError, ModelRefused, ModelUnavailable
from asterism.models.cassette import Cassette, read_tape, settings_to_play
from asterism.ports import Model
from asterism.types.turns import Call, Outcome, Reply
from tests.conformance.model_contract import Pieces, ask
from tests.servers.fault_server import (
    FAULTS,
    FORMATS,
    OPENAI,
    Break,
    FaultServer,
    Garbage,
    Status,
    closed_port,
)
from tests.servers.openai_server import OpenAIServer
from tests.servers.openai_server import Raw as OpenAIRaw

CANARY = "sk-canary-0123456789"


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with FaultServer(text="grüß dich, wie geht es?") as server:
        yield server


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


def port(wire: str, address: str, cassette: Cassette, **options: Any) -> Model:
    from asterism.models.anthropic import Anthropic
    from asterism.models.openai import OpenAI

    kind = OpenAI if wire == OPENAI else Anthropic
    return kind("local", {"base_url": address, "cassette": cassette, **options})


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise AssertionError("a socket was opened")

    def unless_local(verb: Callable[..., Any]) -> Callable[..., Any]:
        # Other terminals reach a home through a socket in its directory, which is no network.
        def checked(self: socket.socket, *args: Any) -> Any:
            return verb(self, *args) if self.family == socket.AF_UNIX else refuse()

        return checked

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, unless_local(getattr(socket.socket, name)))
    monkeypatch.setattr("aiohttp.ClientSession", refuse)


def content(tape: Path) -> bytes:
    return tape.read_bytes()


def rewrite(tape: Path, content: bytes) -> None:
    tape.write_bytes(content)


def mode_of(tape: Path) -> int:
    return tape.stat().st_mode & 0o777


def line_of(tape: Path) -> dict[str, Any]:
    """Return the only line of a tape."""
    return orjson.loads(content(tape))


async def heard(model: Model, text: str, *, streamed: bool) -> tuple[Reply, list[tuple[str, str]]]:
    pieces = Pieces()
    try:
        reply = await model.complete(ask(text, timeout=5.0), pieces if streamed else None)
    finally:
        await model.close()
    return reply, pieces.all


# At the port


@pytest.mark.promise("T12")
@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("wire", FORMATS)
async def test_what_was_recorded_is_played_without_a_socket_or_a_key(
    server: FaultServer, tape: Path, monkeypatch: pytest.MonkeyPatch, wire: str, streamed: bool
):
    recording = port(wire, server.base_url, Cassette(tape, "record"), key=CANARY)
    before = await heard(recording, "hallo", streamed=streamed)
    assert server.requests[0].key == CANARY
    no_network(monkeypatch)
    # A named variable that is not set would be an error, were anybody asked.
    playing = port(wire, server.base_url, Cassette(tape, "play"), key_env="NOT_SET")
    assert await heard(playing, "hallo", streamed=streamed) == before
    assert before[0].text == server.text
    assert len(before[1]) > 3 if streamed else not before[1]


@pytest.mark.promise("T12")
@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize("streamed", [True, False])
# Not 429-date: a date is another number of seconds each time it is read.
@pytest.mark.parametrize("name", sorted({*FAULTS, "down"} - {"429-date"}))
async def test_a_recorded_failure_is_played_as_the_same_failure(
    server: FaultServer, tape: Path, wire: str, streamed: bool, name: str
):
    server.stays = FAULTS.get(name)
    address = f"http://127.0.0.1:{closed_port()}/v1" if name == "down" else server.base_url

    async def ended(mode: str) -> object:
        pieces = Pieces()
        model = port(wire, address, Cassette(tape, mode), timeout=0.3)
        try:
            request = ask("hallo", timeout=0.5)
            return await model.complete(request, pieces if streamed else None), pieces.all
        except ModelError as error:
            more = (
                (error.retry_after, error.slow, error.begun)
                if isinstance(error, ModelUnavailable)
                else ()
            )
            return type(error), error.message, *more, pieces.all
        finally:
            await model.close()

    recorded = await ended("record")
    asked = len(server.requests)
    assert await ended("play") == recorded
    assert len(server.requests) == asked
    (exchange,) = read_tape(tape)
    assert exchange.request.key == "turn_1/0/reply"


async def test_an_answer_asked_for_as_a_stream_serves_one_that_is_not(
    server: FaultServer, tape: Path
):
    streamed = await heard(
        port(OPENAI, server.base_url, Cassette(tape, "record")), "hallo", streamed=True
    )
    plain = await heard(
        port(OPENAI, server.base_url, Cassette(tape, "play")), "hallo", streamed=False
    )
    assert plain[0] == streamed[0]


async def test_the_same_request_again_gets_the_answers_in_their_order(
    server: FaultServer, tape: Path
):
    server.next(FAULTS["500"], None)
    recorder = Cassette(tape, "record")
    model = port(OPENAI, server.base_url, recorder)
    with pytest.raises(ModelUnavailable):
        await model.complete(ask("hallo"))
    await heard(model, "hallo", streamed=False)
    assert [one.attempt for one in read_tape(tape)] == [0, 1]
    playing = port(OPENAI, server.base_url, Cassette(tape, "play"))
    for _ in range(2):
        with pytest.raises(ModelUnavailable, match="HTTP 500"):
            await playing.complete(ask("hallo"))
        assert (await playing.complete(ask("hallo"))).text == server.text
    await playing.close()


async def test_the_same_request_to_two_vendors_is_kept_apart(server: FaultServer, tape: Path):
    from asterism.models.openai import OpenAI

    def ports(mode: str) -> list[OpenAI]:
        options = {"base_url": server.base_url, "cassette": Cassette(tape, mode)}
        return [OpenAI(vendor, options) for vendor in ("one", "two")]

    for model in ports("record"):
        server.text = f"answer {len(server.requests)}"
        await heard(model, "hallo", streamed=False)
    one, two = ports("play")
    assert (await heard(two, "hallo", streamed=False))[0].text == "answer 1"
    assert (await heard(one, "hallo", streamed=False))[0].text == "answer 0"


@pytest.mark.promise("X5")
async def test_what_is_not_on_the_tape_is_told_with_the_first_difference(
    server: FaultServer, tape: Path
):
    model = port(OPENAI, server.base_url, Cassette(tape, "record"))
    await model.complete(ask("good morning"))
    await heard(model, "hallo", streamed=False)
    with pytest.raises(ModelRefused) as caught:
        await heard(
            port(OPENAI, server.base_url, Cassette(tape, "play")), "good evening", streamed=False
        )
    assert "The cassette tape.jsonl has no answer to this request to 'local:guide'." in str(
        caught.value
    )
    assert 'line 1: after 106 equal bytes it has …tent":"good morning"' in str(caught.value)
    assert 'where this one has …tent":"good evening"' in str(caught.value)
    assert "Nothing was sent." in str(caught.value)


async def test_loose_goes_by_order_and_ends_with_the_tape(server: FaultServer, tape: Path):
    model = port(OPENAI, server.base_url, Cassette(tape, "record"))
    for text in ("one", "two"):
        server.text = f"answer to {text}"
        await model.complete(ask(text))
    await model.close()
    loose = port(OPENAI, server.base_url, Cassette(tape, "play", loose=True))
    said = [(await loose.complete(ask(text))).text for text in ("other", "else")]
    assert said == ["answer to one", "answer to two"]
    with pytest.raises(ModelRefused, match="all of its 2 exchanges have been played"):
        await loose.complete(ask("more"))
    # What is there byte for byte is found all the same.
    assert (await loose.complete(ask("two"))).text == "answer to two"
    await loose.close()


async def test_a_tape_plays_as_fast_as_wanted(
    server: FaultServer, tape: Path, monkeypatch: pytest.MonkeyPatch
):
    model = port(OPENAI, server.base_url, Cassette(tape, "record"))
    await heard(model, "hallo", streamed=True)
    line = line_of(tape)
    text = "".join(text for _, text in line["chunks"])
    rewrite(tape, orjson.dumps(line | {"chunks": [[0.5, text[:40]], [2.5, text[40:]]]}) + b"\n")
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("asterism.models.cassette.asyncio.sleep", wait)
    await heard(
        port(OPENAI, server.base_url, Cassette(tape, "play", speed=2)), "hallo", streamed=True
    )
    assert waited[:2] == [0.25, 1.0]


# The tape


@pytest.mark.parametrize("wire", FORMATS)
async def test_no_key_is_ever_on_a_tape(server: FaultServer, tape: Path, wire: str):
    cassette = Cassette(tape, "record")
    quoting = Status(401, "authentication_error", f"Incorrect key: {CANARY}. Find yours there.")
    server.next(None, quoting, Garbage(f"data: {CANARY}".encode(), "text/plain"), Break.DROP)
    query = f"?token={CANARY}" if wire == OPENAI else ""
    model = port(wire, server.base_url + query, cassette, key=CANARY)
    for text in ("hallo", "hallo", "hallo", f"my key is {CANARY}"):
        try:
            await model.complete(ask(text), Pieces())
        except ModelError:
            continue
    await model.close()
    assert {seen.key for seen in server.requests} == {CANARY}
    kept = content(tape).decode()
    assert len(kept.splitlines()) == len(server.requests) == 4
    assert CANARY not in kept
    assert "authorization" not in kept.lower()
    assert "x-api-key" not in kept.lower()
    assert "Incorrect key: …." in kept
    assert mode_of(tape) == 0o600


async def test_a_key_that_is_cut_in_two_by_chunks_is_blotted_out(tape: Path):
    body = orjson.dumps({"error": {"message": f"Incorrect key: {CANARY}.", "code": "x"}})
    async with OpenAIServer() as server:
        server.next(OpenAIRaw(body, status=401, step=7))
        model = port(OPENAI, server.base_url, Cassette(tape, "record"), key=CANARY)
        with pytest.raises(ModelRefused):
            await heard(model, "hallo", streamed=False)
    whole = b"".join(chunk for _, chunk in read_tape(tape)[0].chunks)
    assert whole == body.replace(CANARY.encode(), "…".encode())


async def test_bytes_that_are_no_text_are_kept_exactly(server: FaultServer, tape: Path):
    body = bytes(range(256))
    server.next(Garbage(body, "application/octet-stream"))
    with pytest.raises(ModelError):
        await heard(
            port(OPENAI, server.base_url, Cassette(tape, "record")), "hallo", streamed=False
        )
    assert b"".join(chunk for _, chunk in read_tape(tape)[0].chunks) == body


@pytest.mark.promise("T2")
async def test_a_torn_line_is_passed_over_with_a_word_and_written_on_behind(
    server: FaultServer, tape: Path, caplog: pytest.LogCaptureFixture
):
    for text in ("one", "two"):
        model = port(OPENAI, server.base_url, Cassette(tape, "record"))
        await heard(model, text, streamed=False)
    # Killed in the middle of the second line.
    rewrite(tape, content(tape)[:-30])
    with caplog.at_level(logging.WARNING):
        assert len(read_tape(tape)) == 1
    assert "tape.jsonl: line 2 is torn and was passed over" in caplog.text
    await heard(port(OPENAI, server.base_url, Cassette(tape, "record")), "three", streamed=False)
    assert [one.line for one in read_tape(tape)] == [1, 3]


async def test_an_answer_is_not_lost_because_its_recording_is(
    server: FaultServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    cassette = Cassette(tmp_path / "gone" / "tape.jsonl", "record")
    reply, _ = await heard(port(OPENAI, server.base_url, cassette), "hallo", streamed=False)
    assert reply.text == server.text
    assert "tape.jsonl cannot be written: No such file or directory." in caplog.text


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "is empty. Record it first"),
        (b'{"name": "asterism"}\n', "is not a cassette of format 1: line 1 is not a recorded"),
        (b"\x00\xff\n[]\n", "is not a cassette of format 1: line 1"),
        (b'{"cassette": 2}\n', "is not a cassette of format 1"),
    ],
)
def test_a_file_that_is_no_tape(tape: Path, content: bytes | None, told: str):
    if content is not None:
        tape.write_bytes(content)
    with pytest.raises(ConfigError, match=told):
        settings_to_play(tape)


@pytest.mark.promise("X5")
async def test_a_tape_that_cannot_be_used_is_told_at_the_start(tmp_path: Path):
    nowhere = {"cassette.file": str(tmp_path / "no" / "tape.jsonl")}
    with pytest.raises(ConfigError, match=r"tape\.jsonl cannot be read"):
        async with Asterism.open(tmp_path / "a", environ={}, settings=nowhere):
            pass
    with pytest.raises(ConfigError, match=r"tape\.jsonl cannot be written: No such file"):
        async with Asterism.open(
            tmp_path / "a", environ={}, settings={**nowhere, "cassette.mode": "record"}
        ):
            pass


# A home


def configured(wire: str, address: str, tape: Path | None = None, **more: object) -> dict[str, Any]:
    named: dict[str, Any] = {
        "model": "local:m",
        "models.local.api": wire,
        "models.local.base_url": address,
        "models.local.retries": 1,
        "models.local.timeout": 5,
    }
    if tape is not None:
        named |= {"cassette.file": str(tape), "cassette.mode": "record"}
    return named | more


def opened(place: Path, settings: dict[str, Any], **given: Any) -> Any:
    return Asterism.open(place, environ={}, settings=settings, grace=1.0, **given)


async def signals(home: Asterism, agent: str, text: str) -> list[Signal]:
    return [one async for one in home.agents.stream(agent, text)]


@pytest.mark.promise("T12")
@pytest.mark.parametrize("wire", FORMATS)
async def test_a_home_talks_from_a_tape_alone(
    server: FaultServer, tape: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: str
):
    async with opened(
        tmp_path / "a", configured(wire, server.base_url, tape, **{"models.local.key": CANARY})
    ) as home:
        await home.agents.create("aria")
        first = [one.data for one in await signals(home, "aria", "hallo")]
        second = await home.agents.ask("aria", "and?")
    no_network(monkeypatch)
    # Nothing but the tape is given: it names the model and its wire format.
    async with opened(tmp_path / "b", settings_to_play(tape)) as home:
        await home.agents.create("aria")
        assert [one.data for one in await signals(home, "aria", "hallo")] == first
        again = await home.agents.ask("aria", "and?")
        assert (again.state, again.text, again.usage) == (
            TurnState.DONE,
            second.text,
            second.usage,
        )
        lost = await home.agents.ask("aria", "something else")
        assert lost.state is TurnState.FAILED
        assert "has no answer to this request" in lost.text


@tool
async def pay(ctx: ToolContext, euros: int) -> str:
    """Pay."""
    ctx.ask(f"Pay {euros}?")
    return f"paid {euros}"


async def replayed(home: Asterism, turn: str, tape: Path) -> tuple[str, ...]:
    found = await home.turns.replay(turn, cassette=tape)
    assert found.same == (not found.differences)
    return found.differences


async def turn_with_calls(home: Asterism) -> tuple[Outcome, Outcome]:
    """Have a turn that calls a tool, waits for a person with another turn between, and goes on."""
    parked = await home.agents.ask("aria", '[[call:pay {"euros": 5}]]')
    between = await home.agents.ask("aria", "meanwhile")
    (question,) = await home.approvals.list()
    done = await home.turns.wait(
        await home.approvals.decide(question.id, approved=True, note="yes")
    )
    assert (parked.state, done.state) == (TurnState.PARKED, TurnState.DONE)
    return done, between


@pytest.mark.promise("T12")
async def test_a_turn_is_replayed_byte_for_byte_on_the_wire(tape: Path, tmp_path: Path):
    async with OpenAIServer() as server:
        settings = configured(OPENAI, server.base_url, tape)
        async with opened(tmp_path / "a", settings, tools=[pay]) as home:
            await home.agents.create("aria")
            first = await home.agents.ask("aria", "hello")
            shown = await signals(home, "aria", "a streamed héllo")
            done, between = await turn_with_calls(home)
    offline = configured(OPENAI, "http://127.0.0.1:9/v1")
    async with opened(tmp_path / "a", offline, tools=[pay], readonly=True) as home:
        for turn in (first.turn_id, shown[-1].turn_id, done.turn_id, between.turn_id):
            assert await replayed(home, turn, tape) == ()
        assert (await home.turns.replay(done.turn_id, cassette=tape)).text == done.text


@pytest.mark.promise("T12")
@pytest.mark.parametrize("wire", FORMATS)
async def test_failures_on_the_way_are_replayed_too(
    server: FaultServer, tape: Path, tmp_path: Path, wire: str
):
    settings = configured(wire, server.base_url, tape, model="local:m, other:n") | {
        "models.other.base_url": server.base_url,
        "models.other.api": OPENAI,
    }
    server.next(FAULTS["503-soon"], FAULTS["401"], None, FAULTS["400-too-long"])
    async with opened(tmp_path / "a", settings) as home:
        await home.agents.create("aria")
        saved = await home.agents.ask("aria", "hello")
        longer = await home.agents.ask("aria", "hello again")
        server.stays = FAULTS["403"]
        failed = await home.agents.ask("aria", "nobody there?")
    assert (saved.state, longer.state, failed.state) == (
        TurnState.DONE,
        TurnState.DONE,
        TurnState.FAILED,
    )
    async with opened(tmp_path / "a", settings, readonly=True) as home:
        for turn in (saved, longer, failed):
            assert await replayed(home, turn.turn_id, tape) == ()


@pytest.mark.promise("T12")
async def test_how_much_of_a_long_past_was_sent_is_told_by_the_tape(
    server: FaultServer, tape: Path, tmp_path: Path
):
    settings = configured(OPENAI, server.base_url, tape, **{"context.tokens": 300})
    async with opened(tmp_path / "a", settings) as home:
        await home.agents.create("aria", tools=[])
        turns = [
            (await home.agents.ask("aria", f"message {number}")).turn_id for number in range(30)
        ]
    sizes = [len(one.request.body) for one in read_tape(tape)]
    assert sizes != sorted(sizes), "the past was never cut"
    async with opened(tmp_path / "a", settings, readonly=True) as home:
        for turn in turns:
            assert await replayed(home, turn, tape) == ()


@pytest.mark.promise("T12")
async def test_what_differs_on_the_wire_is_told(tape: Path, tmp_path: Path):
    async with OpenAIServer() as server:
        settings = configured(OPENAI, server.base_url, tape)
        async with opened(tmp_path / "a", settings) as home:
            await home.agents.create("aria", system="Be aria.")
            turn = (await home.agents.ask("aria", "hello")).turn_id
            # What the agent was then is kept, so it may be another now.
            await home.agents.edit("aria", system="Be another.")
            assert await replayed(home, turn, tape) == ()
            rewrite(tape, content(tape).replace(b"Be aria.", b"Be somebody."))
            (difference,) = await replayed(home, turn, tape)
            assert difference.startswith("0/reply, line 1 of the tape: another request; after ")
            assert '":"Be aria.' in difference
            assert '":"Be somebody.' in difference
            rewrite(tape, content(tape).replace(b"Be somebody.", b"Be aria."))
            assert await replayed(home, turn, tape) == ()
            # Another answer on the tape than in the journal.
            rewrite(tape, content(tape).replace(b"answer to: hello", b"answer to: hallo"))
            assert await replayed(home, turn, tape) == ("0/reply: other text than recorded.",)
            rewrite(tape, content(tape).replace(b"answer to: hallo", b"answer to: hello"))
            line = line_of(tape)
            text = "".join(text for _, text in line["chunks"])
            line["chunks"] = [[0.1, text.replace('completion_tokens":', 'completion_tokens":9')]]
            rewrite(tape, orjson.dumps(line) + b"\n")
            (difference,) = await replayed(home, turn, tape)
            assert difference == "0/reply: other reasoning, tokens or ending than recorded."
            # A tape of something else.
            line["key"] = "turn_other/0/reply"
            rewrite(tape, orjson.dumps(line) + b"\n")
            (difference,) = await replayed(home, turn, tape)
            assert difference == "0/reply: not on the tape; taken from the journal."


async def test_reasoning_that_goes_back_to_the_server_is_replayed(tape: Path, tmp_path: Path):
    def respond(body: dict[str, Any]) -> Reply:
        if body["messages"][-1]["role"] == "tool":
            return Reply("done", reasoning="so it went")
        call = Call("call_0", "heartbeat", '{"reason": "x"}')
        return Reply(calls=(call,), reasoning="let me see", finish="tool_calls")

    async with OpenAIServer(respond) as server:
        settings = configured(OPENAI, server.base_url, tape)
        async with opened(tmp_path / "a", settings) as home:
            await home.agents.create("aria")
            turn = await home.agents.ask("aria", "go")
            assert turn.state is TurnState.DONE
            assert await replayed(home, turn.turn_id, tape) == ()
    assert b"let me see" in read_tape(tape)[1].request.body


@pytest.mark.parametrize("wire", FORMATS)
async def test_a_turn_with_an_image_is_replayed_byte_for_byte(
    server: FaultServer, tape: Path, tmp_path: Path, wire: str
):
    settings = configured(wire, server.base_url, tape)
    async with opened(tmp_path / "a", settings) as home:
        await home.agents.create("aria")
        seen = await home.agents.ask(
            "aria", "what is this?", images=[b"\x89PNG\r\n\x1a\n" + b"x" * 64]
        )
        later = await home.agents.ask("aria", "and now?")
        for turn in (seen, later):
            assert await replayed(home, turn.turn_id, tape) == ()
    assert all(b"iVBORw0KGgp4eHh4" in one.request.body for one in read_tape(tape))


@pytest.mark.parametrize("wire", FORMATS)
async def test_a_turn_under_a_spending_cap_is_replayed_byte_for_byte(
    server: FaultServer, tape: Path, tmp_path: Path, wire: str
):
    settings = configured(wire, server.base_url, tape) | {
        "budget.day": 5.0,
        "budget.max_output": 777,
        "prices": {"local:m": {"input": 1.0, "output": 2.0}},
    }
    async with opened(tmp_path / "a", settings) as home:
        await home.agents.create("aria")
        turn = await home.agents.ask("aria", "hello")
        assert turn.state is TurnState.DONE
        assert await replayed(home, turn.turn_id, tape) == ()
    (exchange,) = read_tape(tape)
    assert exchange.output_options == (False, 777)


@pytest.mark.parametrize("wire", FORMATS)
async def test_a_turn_whose_answer_has_a_shape_is_replayed_byte_for_byte(
    server: FaultServer, tape: Path, tmp_path: Path, wire: str
):
    server.text = '{"name": "Ada"}'
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    async with opened(tmp_path / "a", configured(wire, server.base_url, tape)) as home:
        await home.agents.create("aria")
        turn = await home.agents.ask("aria", "who?", schema=schema)
        assert (turn.state, turn.text) == (TurnState.DONE, server.text)
        assert await replayed(home, turn.turn_id, tape) == ()
    assert b"json_schema" in read_tape(tape)[0].request.body
