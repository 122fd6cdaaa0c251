"""What every model port must do, whatever stands behind it."""

import asyncio

import orjson
import pytest

from asterism.ports import Model, ModelRequest
from asterism.types.turns import Reply

TOOLS = orjson.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "look",
                "description": "Look somewhere.",
                "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
            },
        }
    ]
)


def wire(role: str, text: str, **fields: object) -> bytes:
    return orjson.dumps({"role": role, "content": text, **fields})


def ask(
    *messages: bytes | str, tools: bytes | None = None, timeout: float = 20.0, model: str = "guide"
) -> ModelRequest:
    """Make a request; a plain string is what the user says."""
    said = [each if isinstance(each, bytes) else wire("user", each) for each in messages]
    said.insert(0, wire("system", "You are a test."))
    return ModelRequest(model, said, tools, "turn_1/0/reply", timeout)


class Pieces:
    """Keeps what a model emits."""

    def __init__(self) -> None:
        self.all: list[tuple[str, str]] = []

    def __call__(self, kind: str, piece: str) -> None:
        self.all.append((kind, piece))

    def joined(self, kind: str) -> str:
        return "".join(piece for its, piece in self.all if its == kind)


class ModelContract:
    """Subclass it with a fixture `model`, and say how that model is made to call `look`."""

    asks_for_call = ""

    @pytest.fixture
    async def model(self) -> Model:
        raise NotImplementedError

    async def test_answers(self, model: Model):
        reply = await model.complete(ask("Hello"))
        assert "Hello" in reply.text
        assert reply.calls == ()
        assert reply.finish == "stop"
        assert reply.usage.input > 0
        assert reply.usage.output > 0

    async def test_same_request_same_reply(self, model: Model):
        assert await model.complete(ask("Hello")) == await model.complete(ask("Hello"))

    @pytest.mark.promise("T5")
    @pytest.mark.parametrize("text", ["Hello", "a  b\n\tc", "日本語 🌌 é"])
    async def test_streams_what_it_returns(self, model: Model, text: str):
        pieces = Pieces()
        reply = await model.complete(ask(text), pieces)
        assert len(pieces.all) > 1
        assert all(piece for _, piece in pieces.all)
        assert pieces.joined("text") == reply.text
        assert pieces.joined("reasoning") == reply.reasoning
        unstreamed = await model.complete(ask(text))
        assert (reply.text, reply.finish) == (unstreamed.text, unstreamed.finish)

    @pytest.mark.parametrize("streamed", [False, True])
    async def test_calls_a_tool_and_reads_its_result(self, model: Model, streamed: bool):
        emit = Pieces() if streamed else None
        first = await model.complete(ask(self.asks_for_call, tools=TOOLS), emit)
        assert [(call.name, orjson.loads(call.arguments)) for call in first.calls] == [
            ("look", {"at": "[[the]] sky"})
        ]
        assert first.finish == "tool_calls"
        result = wire("tool", "It is blue.", tool_call_id=first.calls[0].id)
        second = await model.complete(
            ask(self.asks_for_call, first.wire(), result, tools=TOOLS), emit
        )
        assert second.calls == ()
        assert second.text

    async def test_replies_survive_the_journal(self, model: Model):
        for text in ("Hello", self.asks_for_call):
            reply = await model.complete(ask(text, tools=TOOLS))
            assert Reply.from_entry(reply.wire(), reply.meta()) == reply

    async def test_many_at_once_each_get_their_own(self, model: Model):
        texts = [f"number {n}." for n in range(40)]
        replies = await asyncio.gather(*(model.complete(ask(text)) for text in texts))
        for text, reply in zip(texts, replies, strict=True):
            assert text in reply.text

    async def test_a_long_conversation(self, model: Model):
        before = [wire("user", "x" * 100_000), wire("assistant", "y" * 100_000)] * 20
        reply = await model.complete(ask(*before, "Hello"))
        assert "Hello" in reply.text

    async def test_a_message_of_ten_megabytes(self, model: Model):
        reply = await model.complete(ask("word " * 2_000_000))
        assert "word word" in reply.text

    async def test_a_cancelled_call_does_no_harm(self, model: Model):
        task = asyncio.create_task(model.complete(ask("Hello"), Pieces()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert "Hello" in (await model.complete(ask("Hello"))).text

    async def test_closing_twice(self, model: Model):
        await model.complete(ask("Hello"))
        await model.close()
        await model.close()
