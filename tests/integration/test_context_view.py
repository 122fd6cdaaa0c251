"""What is shown of a context is what was sent: sections, tools, messages, what was left out."""

from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, tool
from asterism.memory.forgetting import Forgetting
from asterism.models.embedded.prompt import describe, render
from asterism.ports import ModelRequest, Profile, RequestPart
from asterism.testing.scripted import ScriptedModel
from asterism.turns.context_view import ContextView, TokenBasis
from asterism.types.memory import BlockType
from asterism.types.turns import Call, Reply, Usage
from tests.scenes import open_home
from tests.servers.openai_server import answer_by_directives

WITHIN = 0.03
"""How far the total may be from the vendor's count."""
CONVERSATION = (
    "Good morning! My name is Lena and I live in Kyoto, near the river.",
    "[[call:forecast {}]] What will the weather be like on 2026-11-20?",
    "My cat is called Miso. She is 7 years old and eats 3 times a day.",
    "Ich hätte gern ein Rezept für eine Suppe mit Kürbis, Ingwer und Kokosmilch.",
    "Send the invoice 4711 over 1,250.50 euros to office@example.com by Friday, please.",
    "What did I tell you about my cat?",
)


@tool(repeatable=True)
def forecast(place: str = "Kyoto", days: int = 3) -> str:
    """Return the weather forecast for a place.

    Args:
        place: A city, such as "Kyoto" or "Bern".
        days: How many days to look ahead, at most 10.
    """
    return f"{place}: sunny, 17 to 23 degrees, light wind from the west, {days} days alike."


@cache
def tokenizer() -> Any:
    """The tokenizer of Llama 2, as a vendor may count with it."""
    from tokenizers import Tokenizer

    files = metadata.files("wordllama") or ()
    (file,) = [file for file in files if file.match("tokenizers/l2_*.json")]
    return Tokenizer.from_file(str(file.locate()))


def count(request: ModelRequest) -> int:
    """Count a request as a vendor would: each message in its frame, tools as declarations."""
    texts: list[str] = []
    for wire in request.messages:
        message: dict[str, Any] = orjson.loads(wire)
        made = [call["function"] for call in message.get("tool_calls") or ()]
        spelled = "".join(f"{function['name']}{function['arguments']}" for function in made)
        texts.append(f"<|{message['role']}|>\n{message.get('content') or ''}{spelled}<|end|>\n")
    for one in orjson.loads(request.tools) if request.tools else ():
        function = one["function"]
        arguments = orjson.dumps(function["parameters"]).decode()
        texts.append(f"// {function['description']}\ntype {function['name']} = (_: {arguments});\n")
    return len(tokenizer().encode("".join(texts)).ids)


def counting(reply: Reply, request: ModelRequest) -> Reply:
    """Return a reply with the vendor's count of its request."""
    usage = Usage(count(request), len(reply.text) // 4)
    return Reply(reply.text, reply.calls, usage=usage, finish=reply.finish)


class CountingModel(ScriptedModel):
    """A vendor that counts what it is sent."""

    async def complete(self, request: ModelRequest, emit: Any = None) -> Reply:
        return counting(await super().complete(request, emit), request)


class SmallModel(CountingModel):
    """A vendor of small models."""

    def profile(self, model: str) -> Profile:
        del model
        return Profile(window=8_192, compact=True, images=False)


def obey(request: ModelRequest) -> Reply:
    """Make the calls that the last message asks for."""
    return answer_by_directives({"messages": [orjson.loads(wire) for wire in request.messages]})


def parts(context: ContextView) -> list[str]:
    return [line.part for line in context.lines]


def is_near(estimate: int, counted: int) -> bool:
    return abs(estimate - counted) <= WITHIN * counted


@pytest.mark.promise("T11")
async def test_the_total_is_the_vendors_count_and_the_estimate_is_near_it(tmp_path: Path):
    model = CountingModel.from_rule(obey)
    async with open_home(tmp_path, model, tools=[forecast]) as home:
        aria = await home.agents.create("aria")
        first = await home.contexts.now("aria")
        assert first.basis is TokenBasis.ESTIMATED
        seen = 0
        for text in CONVERSATION:
            before = await home.contexts.now("aria")
            outcome = await aria.ask(text)
            for step, request in enumerate(model.requests[seen:]):
                shown = await home.contexts.of_turn(outcome.turn_id, step)
                counted = count(request)
                assert (shown.tokens_in, shown.tokens) == (counted, counted)
                assert shown.basis is TokenBasis.COUNTED
                assert list(shown.messages) == request.messages
                if seen or step:
                    assert is_near(shown.estimate, counted), (shown.estimate, counted)
                    assert shown.corrected_by
                    assert not shown.difference
                else:
                    assert not shown.corrected_by
                    assert bool(shown.difference) != is_near(shown.estimate, counted)
            # What is shown before a message comes is what the message is then added to.
            first_request = model.requests[seen]
            shorter = ModelRequest(
                first_request.model, first_request.messages[:-1], first_request.tools, "", 0.0
            )
            if seen:
                assert before.basis is TokenBasis.CORRECTED
                assert is_near(before.tokens, count(shorter)), (before.tokens, count(shorter))
            seen = len(model.requests)


@pytest.mark.promise("T11")
async def test_an_agent_that_was_never_answered_profits_from_the_counts_of_others(tmp_path: Path):
    model = CountingModel.from_rule(obey)
    async with open_home(tmp_path, model, tools=[forecast]) as home:
        await (await home.agents.create("aria")).ask("Hello")
        await home.agents.create("bran")
        shown = await home.contexts.now("bran")
        assert shown.basis is TokenBasis.CORRECTED
        await home.agents.ask("bran", "Hello")
        request = model.requests[-1]
        shorter = ModelRequest(request.model, request.messages[:-1], request.tools, "", 0.0)
        assert is_near(shown.tokens, count(shorter))


@pytest.mark.promise("T11")
async def test_tools_are_lines_of_their_own_and_stay_those_that_were_offered(tmp_path: Path):
    async with open_home(tmp_path, CountingModel.from_rule(obey), tools=[forecast]) as home:
        aria = await home.agents.create("aria")
        outcome = await aria.ask("Hello")
        now = await home.contexts.now("aria")
        assert "tool forecast" in parts(now)
        assert "tool recall" in parts(now)
    async with open_home(tmp_path, CountingModel.from_rule(obey)) as home:
        assert "tool forecast" not in parts(await home.contexts.now("aria"))
        then = await home.contexts.of_turn(outcome.turn_id)
        (line,) = [line for line in then.lines if line.part == "tool forecast"]
        assert "Return the weather forecast for a place." in line.text
        assert line.tokens > 20
        assert line.why


@pytest.mark.promise("T11", "M13")
async def test_tools_that_were_forgotten_are_said_to_be_gone_and_the_next_are_kept(tmp_path: Path):
    async with open_home(tmp_path, CountingModel.from_rule(obey), tools=[forecast]) as home:
        aria = await home.agents.create("aria")
        before = await aria.ask("Hello")
        await home.memory.forget(Forgetting(texts=("Return the weather forecast for a place",)))
        then = await home.contexts.of_turn(before.turn_id)
        assert "tool forecast" not in parts(then)
        assert "not kept any more" in then.left_out[-1].why
        after = await aria.ask("Hello again")
        assert "tool forecast" in parts(await home.contexts.of_turn(after.turn_id))


@pytest.mark.promise("T11")
async def test_images_reasoning_and_schemas_are_among_what_was_sent(tmp_path: Path):
    thinking = Reply(
        calls=(Call("call_1", "forecast", "{}"),),
        thought=b'[{"type":"thinking","thinking":"Let me look."}]',
        usage=Usage(900, 10),
    )
    model = ScriptedModel([thinking, Reply('{"sunny": true}', usage=Usage(990, 10))])
    schema = {"type": "object", "properties": {"sunny": {"type": "boolean"}}}
    async with open_home(tmp_path, model, tools=[forecast]) as home:
        aria = await home.agents.create("aria")
        outcome = await aria.ask("Is it sunny?", schema=schema)
        shown = await home.contexts.of_turn(outcome.turn_id)
        assert {"reasoning", "schema"} <= set(parts(shown))
        assert "Let me look." in next(x.text for x in shown.lines if x.part == "reasoning")


@pytest.mark.promise("T11")
async def test_a_vendor_that_does_not_count_is_said_not_to(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel(["Hello."])) as home:
        outcome = await (await home.agents.create("aria")).ask("Hi")
        shown = await home.contexts.of_turn(outcome.turn_id)
        assert shown.tokens_in == 0
        assert shown.basis is TokenBasis.ESTIMATED
        assert shown.tokens == shown.estimate > 0


# -- small models ----------------------------------------------------------------------------------


@pytest.mark.promise("T11")
async def test_a_small_model_is_shown_with_what_it_is_sent_and_what_is_left_out(tmp_path: Path):
    model = SmallModel.from_rule(obey)
    async with open_home(tmp_path, model, tools=[forecast]) as home:
        aria = await home.agents.create("aria")
        await home.blocks.create("aria", "human", "Likes tea.")
        await home.blocks.create("aria", "diary", "A long day. " * 200)
        await home.blocks.create("aria", "goals")
        await home.blocks.create("aria", "trip", "On Monday.", kind=BlockType.WORKING, pinned=True)
        shown: ContextView | None = None
        for number in range(30):
            outcome = await aria.ask(f"Message {number}: " + "I walked along the river. " * 8)
            shown = await home.contexts.of_turn(outcome.turn_id)
            assert list(shown.messages) == model.requests[-1].messages
            assert shown.compact
        assert shown is not None
        now = await home.contexts.now("aria")
        totals: list[int] = []
        for context in (shown, now):
            assert sum(line.part == "notes" for line in context.lines) == 1
            assert "block human" in parts(context)
            assert "block diary" not in parts(context)
            left_out = {part.what: part for part in context.left_out}
            assert "300 tokens" in left_out["block diary"].why
            assert left_out["block goals"].why == "it said nothing when this context began"
            assert "core blocks only" in left_out["block trip"].why
            (messages,) = [part for what, part in left_out.items() if "messages" in what]
            assert "1,200 tokens of the past" in messages.why
            assert messages.tokens > 1_000
            sent = sum(line.wire != b"" for line in context.lines)
            totals.append(int(messages.what.split()[0]) + sent)
        assert totals[1] == totals[0] + 1  # the reply


@pytest.mark.promise("T11")
async def test_looking_at_a_context_does_not_change_what_is_sent_next(tmp_path: Path):
    sent: list[list[bytes]] = []
    for looks in (False, True):
        model = SmallModel.from_rule(obey)
        clock = iter(range(1_800_000_000_000, 1_900_000_000_000, 1_000))
        async with open_home(
            tmp_path / str(looks), model, clock=lambda clock=clock: next(clock)
        ) as home:
            aria = await home.agents.create("aria")
            for number in range(12):
                await aria.ask(f"Message {number}: " + "I walked along the river. " * 12)
                if looks:
                    await home.contexts.now("aria")
            sent.append([orjson.dumps(len(request.messages)) for request in model.requests])
    assert sent[0] == sent[1]


def wire(role: str, text: str) -> bytes:
    return orjson.dumps({"role": role, "content": text})


def embedded_request(tools: int, *texts: str) -> ModelRequest:
    roles = ("user", "assistant")
    described = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number}",
                "description": f"Do the thing of number {number} with lamps and rooms.",
                "parameters": {"type": "object", "properties": {"room": {"type": "string"}}},
            },
        }
        for number in range(tools)
    ]
    messages = [wire(roles[place % 2], text) for place, text in enumerate(texts)]
    return ModelRequest(
        "any",
        [wire("system", "You are Aria.\n\nBe brief."), *messages],
        orjson.dumps(described) if tools else None,
        "turn_1/0/reply",
        10.0,
    )


@pytest.mark.promise("T11")
@pytest.mark.parametrize("tools", [0, 3, 20])
def test_the_embedded_model_tells_all_that_it_is_sent(tools: int):
    texts = ("Turn on the lamps.", "They are on.", "Which of my rooms has lamps number 7?")
    request = embedded_request(tools, *texts)
    told = describe(request)
    prompt = [orjson.loads(message) for message in render(request).messages]
    sent = "\n".join(message["content"] for message in prompt)
    assert _letters(part.text for part in told) >= _letters([sent])
    for part in told:
        if part.kind != "examples":
            assert part.text in sent, part
    kinds = [part.kind for part in told]
    assert kinds.count("message") == 4
    assert [part.message for part in told if part.kind == "message"] == [0, 1, 2, 3]
    assert {"rule", "examples"} <= set(kinds)
    listed = [part.name for part in told if part.kind == "tool"]
    assert listed == ([f"tool_{number}" for number in range(3)] if tools == 3 else [])
    notes = [part.text for part in told if part.kind == "tool note"]
    assert any("tool_" in note for note in notes) == (tools == 20)
    assert any("said before" in note for note in notes) == (tools == 0)


def _letters(texts: Any) -> int:
    """Count what is not space, in which frames of messages differ."""
    return sum(len("".join(text.split())) for text in texts)


class EmbeddedLike(CountingModel):
    """Adds to requests what the embedded model adds, and counts that."""

    def profile(self, model: str) -> Profile:
        del model
        return Profile(window=8_192, compact=True, images=False)

    def describe(self, request: ModelRequest) -> list[RequestPart]:
        return describe(request)

    async def count(self, request: ModelRequest) -> int | None:
        return rendered(request)

    async def complete(self, request: ModelRequest, emit: Any = None) -> Reply:
        reply = await ScriptedModel.complete(self, request, emit)
        return Reply(reply.text, reply.calls, usage=Usage(rendered(request), 9))


def rendered(request: ModelRequest) -> int:
    messages = render(request).messages
    return count(ModelRequest(request.model, messages, None, "", 0.0))


@pytest.mark.promise("T11")
async def test_the_rule_and_the_examples_of_an_embedded_model_are_shown(tmp_path: Path):
    model = EmbeddedLike.from_rule(obey)
    async with open_home(tmp_path, model, tools=[forecast]) as home:
        aria = await home.agents.create("aria")
        outcomes = [await aria.ask(text) for text in CONVERSATION]
        shown = await home.contexts.of_turn(outcomes[-1].turn_id)
        assert {"rule", "examples", "tool forecast"} <= set(parts(shown))
        assert is_near(shown.estimate, rendered(model.requests[-1]))
        now = await home.contexts.now("aria")
        assert now.basis is TokenBasis.COUNTED  # the model counts by itself while it is up
        assert "examples" in parts(now)
        assert is_near(now.estimate, now.tokens)


@pytest.mark.promise("T11")
async def test_a_model_that_is_not_configured_any_more_is_shown_as_far_as_known(tmp_path: Path):
    async with open_home(tmp_path, CountingModel.from_rule(obey), tools=[forecast]) as home:
        outcome = await (await home.agents.create("aria")).ask("Hello")
    async with Asterism.open(tmp_path, environ={}, settings={"model": "demo:guide"}) as home:
        shown = await home.contexts.of_turn(outcome.turn_id)
        assert shown.model == "scripted:one"
        assert "tool forecast" in parts(shown)
