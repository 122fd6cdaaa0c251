"""The demo model and the scripted model keep the contract; what is special about each."""

import time

import orjson
import pytest

from asterism.errors import ModelUnavailable
from asterism.models.demo import Demo
from asterism.ports import Model, ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Reply, Usage
from tests.conformance.model_contract import TOOLS, ModelContract, Pieces, ask, wire
from tests.servers.openai_server import answer_by_directives


class TestDemo(ModelContract):
    asks_for_call = 'call look {"at": "[[the]] sky"}'

    @pytest.fixture
    async def model(self) -> Model:
        return Demo("demo", {})

    async def test_says_what_it_is_and_how_to_get_a_real_model(self, model: Model):
        reply = await model.complete(ask("Are you clever?"))
        assert "not a language model" in reply.text
        assert "“Are you clever?”" in reply.text
        assert "shown 2 messages" in reply.text
        assert '"asterism setup"' in reply.text

    async def test_quotes_little_of_a_long_message(self, model: Model):
        reply = await model.complete(ask("word " * 1_000))
        assert len(reply.text) < 1_000

    async def test_reports_the_result_of_a_tool(self, model: Model):
        first = await model.complete(ask(self.asks_for_call, tools=TOOLS))
        result = wire("tool", "It is blue.", tool_call_id=first.calls[0].id)
        second = await model.complete(ask(self.asks_for_call, first.wire(), result, tools=TOOLS))
        assert second.text == "The tool 'look' answered: “It is blue.”."

    @pytest.mark.promise("X5")
    async def test_names_the_tools_there_are(self, model: Model):
        reply = await model.complete(ask("call dance {}", tools=TOOLS))
        assert "no tool named 'dance'" in reply.text
        assert "look" in reply.text

    @pytest.mark.promise("X5")
    async def test_hands_malformed_arguments_on(self, model: Model):
        reply = await model.complete(ask("call look {at", tools=TOOLS))
        assert reply.calls[0].arguments == "{at"

    async def test_calls_what_a_scheduled_message_asks_for(self, model: Model):
        reply = await model.complete(
            ask('[scheduled for Wed 18 Nov 09:00] call look {"at": "x"}', tools=TOOLS)
        )
        assert [(call.name, call.arguments) for call in reply.calls] == [("look", '{"at": "x"}')]

    async def test_takes_content_in_parts_and_a_note_behind_it(self, model: Model):
        parts = [{"type": "text", "text": "Good"}, {"type": "text", "text": "day"}]
        said = orjson.dumps({"role": "user", "content": parts})
        reply = await model.complete(ask(said, wire("system", "It is late.")))
        assert "“Good day”" in reply.text

    async def test_reads_only_the_last_two_messages(self, model: Model):
        reply = await model.complete(ask(b"not JSON", b"nor this", wire("user", "a"), "b"))
        assert "shown 5 messages" in reply.text


class TestScripted(ModelContract):
    asks_for_call = '[[call:look {"at": "[[the]] sky"}]]'

    @pytest.fixture
    async def model(self) -> Model:
        return ScriptedModel.from_rule(by_directives)

    async def test_says_its_lines_and_keeps_the_requests(self):
        told = Reply("third", usage=Usage(3, 2, 1))
        model = ScriptedModel(["first", lambda request: f"second to {request.model}", told])
        requests = [ask(str(n)) for n in range(3)]
        replies = [await model.complete(request) for request in requests]
        assert [reply.text for reply in replies] == ["first", "second to guide", "third"]
        assert replies[2] is told
        assert model.requests == requests

    async def test_raises_what_the_script_says(self):
        model = ScriptedModel([ModelUnavailable("down"), "up"])
        with pytest.raises(ModelUnavailable, match="down"):
            await model.complete(ask("Hello"))
        assert (await model.complete(ask("Hello"))).text == "up"

    async def test_a_script_that_is_over_fails_the_test(self):
        with pytest.raises(AssertionError, match="request 1"):
            await ScriptedModel([]).complete(ask("Hello"))

    async def test_takes_its_time_and_streams_reasoning(self):
        model = ScriptedModel([Reply("so it is", reasoning="let me think")], delay=0.05)
        pieces = Pieces()
        begun = time.monotonic()
        await model.complete(ask("Hello"), pieces)
        assert time.monotonic() - begun >= 0.04
        assert pieces.joined("reasoning") == "let me think"


def by_directives(request: ModelRequest) -> Reply:
    reply = answer_by_directives({"messages": [orjson.loads(each) for each in request.messages]})
    return Reply(reply.text, reply.calls, usage=Usage(2, 1), finish=reply.finish)
