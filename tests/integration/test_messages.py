"""Messages with more than text: images in, and answers in the shape that was asked for."""

import base64
import hashlib
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from asterism import Asterism
from asterism.errors import InvalidInput
from asterism.ports import ModelRequest, Profile
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import TurnState
from tests.scenes import heard

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
JPEG = b"\xff\xd8\xff\xe0" + bytes(64)
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "people": {"type": "integer", "minimum": 0}},
    "required": ["city", "people"],
    "additionalProperties": False,
}


def opened(place: Path, model: ScriptedModel):
    return Asterism.open(place, environ={}, models={"a": model}, settings={"model": "a:one"})


def images_of(request: ModelRequest) -> list[bytes]:
    found: list[bytes] = []
    for wire in request.messages:
        content: Any = orjson.loads(wire)["content"]
        parts = cast("list[dict[str, Any]]", content if isinstance(content, list) else [])
        found += [
            base64.b64decode(part["image_url"]["url"].partition(",")[2])
            for part in parts
            if part["type"] == "image_url"
        ]
    return found


def everything_in(place: Path) -> bytes:
    return b"".join(file.read_bytes() for file in place.rglob("*") if file.is_file())


async def test_images_are_seen_again_in_later_turns_and_after_a_restart(tmp_path: Path):
    model = ScriptedModel(["two pictures", "still there", "and now", "forked"])
    async with opened(tmp_path, model) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "what is this?", images=[PNG, JPEG])
        await home.agents.ask("aria", "and again?", images=[PNG])
    async with opened(tmp_path, model) as home:
        await home.agents.ask("aria", "after a restart")
        record = (await home.turns.list("aria"))[-1]
        assert (await home.turns.replay(record.id)).same
        await home.turns.fork(record.id)
    assert [images_of(request) for request in model.requests] == [
        [PNG, JPEG],
        [PNG, JPEG, PNG],
        [PNG, JPEG, PNG],
        [PNG, JPEG],
    ]
    first = orjson.loads(model.requests[0].messages[-1])["content"][0]
    assert first["type"] == "text"
    assert first["text"].endswith("] what is this?")  # with the time at which it was sent
    # The same bytes are kept once, beside the journal.
    digest = hashlib.sha256(PNG).hexdigest().encode()
    stored = everything_in(tmp_path)
    assert stored.count(PNG) == 1
    assert stored.count(b"asterism:blob/" + digest) >= 2


async def test_a_model_that_cannot_see_is_told_so(tmp_path: Path):
    class Blind(ScriptedModel):
        def profile(self, model: str) -> Profile:
            return Profile(images=False)

    model = Blind(["I cannot see it."])
    async with opened(tmp_path, model) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "look", images=[PNG])
    content = orjson.loads(model.requests[0].messages[-1])["content"]
    assert [part["type"] for part in content] == ["text", "text"]
    assert "cannot see" in content[1]["text"]


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("image", "told"),
    [
        (b"", "0 bytes are not an image"),
        (b"<svg/>", "PNG, JPEG, GIF or WebP"),
        (PNG + bytes(11 << 20), "the limit is 10 MiB"),
    ],
)
async def test_what_is_no_image_is_refused(tmp_path: Path, image: bytes, told: str):
    async with opened(tmp_path, ScriptedModel()) as home:
        await home.agents.create("aria")
        with pytest.raises(InvalidInput, match=told):
            await home.agents.send("aria", "look", images=[image])
        assert await home.turns.waiting() == []


async def test_nobody_can_write_an_image_into_a_text(tmp_path: Path):
    model = ScriptedModel(["hm", "hm"])
    digest = hashlib.sha256(PNG).hexdigest()
    text = f'{{"type":"image_url","image_url":{{"url":"asterism:blob/{digest}"}}}}'
    async with opened(tmp_path, model) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "look", images=[PNG])
        await home.agents.ask("aria", text)
    assert heard(model.requests[1])[-1]["content"] == text


# Answers in a shape


async def test_an_answer_is_corrected_until_it_fulfils_the_schema(tmp_path: Path):
    good: dict[str, Any] = {"city": "Oslo", "people": 700_000}
    fenced = f"```json\n{orjson.dumps(good).decode()}\n```"
    model = ScriptedModel(["Oslo!", '{"city": "Oslo", "people": "many"}', fenced])
    async with opened(tmp_path, model) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "the capital of Norway?", schema=CITY)
        assert (outcome.state, orjson.loads(outcome.text)) == (TurnState.DONE, good)
        assert (await home.turns.outcome(outcome.turn_id)).text == outcome.text
        assert (await home.turns.replay(outcome.turn_id)).same
    assert [orjson.loads(one.schema or b"") for one in model.requests] == [CITY] * 3
    told = [orjson.loads(request.messages[-1])["content"] for request in model.requests[1:]]
    assert "it is not JSON" in told[0]
    assert "at $.people" in told[1]


async def test_a_model_that_cannot_keep_to_it_is_told_on(tmp_path: Path):
    model = ScriptedModel(["no"] * 3 + ["next"])
    async with opened(tmp_path, model) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "the capital of Norway?", schema=CITY)
        assert outcome.state is TurnState.FAILED
        assert "after 3 tries it is not JSON" in outcome.text
        assert (await home.agents.ask("aria", "plain")).text == "next"
    assert model.requests[-1].schema is None


@pytest.mark.promise("X5")
@pytest.mark.parametrize("schema", [{"type": "text"}, {"type": object()}, {"properties": 3}])
async def test_what_is_no_schema_is_refused(tmp_path: Path, schema: dict[str, Any]):
    async with opened(tmp_path, ScriptedModel()) as home:
        await home.agents.create("aria")
        with pytest.raises(
            InvalidInput,
            match=r"The schema is not (JSON|a valid JSON schema).* Nothing was stored\.",
        ):
            await home.agents.send("aria", "hello", schema=schema)


# What a vendor can keep in its cache


@pytest.mark.promise("M12")
async def test_the_prefix_stays_the_same_for_twenty_turns(tmp_path: Path):
    model = ScriptedModel(["A short answer."] * 20)
    sent = cached = 0
    async with opened(tmp_path, model) as home:
        await home.agents.create("aria", system="You are Aria. " + "You know a lot. " * 200)
        for number in range(20):
            await home.agents.ask("aria", f"Question {number}: what do you make of this?")
    assert len({request.messages[0] for request in model.requests}) == 1
    assert len({request.tools for request in model.requests}) == 1
    before = b""
    for request in model.requests:
        body = b",".join(request.messages)
        if before:
            assert body.startswith(before), "the past is only ever added to"
            sent += len(body)
            cached += len(before)
        before = body
    assert cached / sent >= 0.95
