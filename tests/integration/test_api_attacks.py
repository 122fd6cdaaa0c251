"""The API as somebody sees it who looks for ways around it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from asterism.api import endpoints
from asterism.testing.scripted import ScriptedModel
from tests.api_scene import api_client
from tests.integration.test_hostile_clients import Answer, Place, served
from tests.scenes import open_home

pytestmark = pytest.mark.promise("S5")


async def token_of(place: Place, name: str, **options: Any) -> Place:
    """The place as somebody with another token sees it."""
    made = await place.home.tokens.create(name, **options)
    return Place(place.home, place.port, made.secret)


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Read a stream to its end, which must be a proper one."""
    async with asyncio.timeout(120):
        return await reader.readuntil(b"0\r\n\r\n")


async def test_a_schema_of_an_answer_leads_nowhere_else(tmp_path: Path):
    fetched: list[str] = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fetched.append((await reader.readline()).decode())
        writer.close()

    trap = await asyncio.start_server(note, "127.0.0.1", 0)
    port = trap.sockets[0].getsockname()[1]
    circle = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    schemas: list[dict[str, Any]] = [
        {"$ref": f"http://127.0.0.1:{port}/secret"},
        {"items": {"$ref": "file:///etc/passwd"}},
        {"$ref": "#/$defs/none"},
        {"$dynamicRef": "#x"},
        {"allOf": [{"$ref": "#"}]},
        circle,
    ]
    # Three attempts to please the pattern, and then the tree.
    model = ScriptedModel([*[f'"{"a" * 40}!"'] * 3, "[[], [[]]]"])
    async with trap, open_home(tmp_path, model) as home, api_client(home) as client:
        await home.agents.create("aria")
        for schema in schemas:
            for path in ("ask", "messages", "stream"):
                asked = {"text": "hi", "json_schema": schema}
                refused = await client.post(f"/api/agents/aria/{path}", json=asked)
                assert (refused.status_code, refused.json()["type"]) == (422, "input"), schema
                assert "The schema is not a valid JSON schema" in refused.json()["detail"]
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            told = [{"role": "user", "content": "hi"}]
            asked = {"model": "aria", "messages": told, "response_format": form}
            refused = await client.post("/openai/v1/chat/completions", json=asked)
            assert refused.status_code == 400
        assert fetched == []
        assert model.requests == []
        # A pattern that takes for ever ends the attempt, and stops nobody else.
        asked = {"text": "hi", "json_schema": {"type": "string", "pattern": "^(a|a)*b?(a|aa)*$"}}
        async with asyncio.timeout(120):
            answer = (await client.post("/api/agents/aria/ask", json=asked)).json()
        assert answer["state"] == "failed"
        tree = {"type": "array", "items": {"$ref": "#"}}  # goes deeper, and so ends
        asked = {"text": "hi", "json_schema": tree}
        answer = (await client.post("/api/agents/aria/ask", json=asked)).json()
        assert (answer["state"], answer["text"]) == ("done", "[[], [[]]]")


@pytest.mark.parametrize("path", ["/api/agents/aria/events", "/api/events"])
async def test_a_stream_ends_with_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
):
    monkeypatch.setattr(endpoints, "CHECK_EVERY", 0.05)
    async with served(tmp_path) as place:
        theirs = await token_of(place, "guest", role="viewer")
        async with theirs.connected() as (reader, writer), asyncio.timeout(120):
            writer.write(theirs.head("GET", path))
            await reader.readuntil(b"\n\n")
            await place.home.tokens.revoke("guest")
            await until_closed(reader)
        assert (await theirs.send(theirs.head())).status == 401


async def test_a_stream_of_any_verb_ends_with_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from asterism import __version__

    monkeypatch.setattr(endpoints, "CHECK_EVERY", 0.05)
    async with served(tmp_path) as place:
        theirs = await token_of(place, "second", role="owner")
        body = b'{"version": "%b", "call": "agents.watch"}' % __version__.encode()
        async with theirs.connected() as (reader, writer), asyncio.timeout(120):
            writer.write(theirs.head("POST", "/api/call", f"content-length: {len(body)}") + body)
            await reader.readuntil(b"\r\n\r\n")
            await place.home.tokens.revoke("second")
            await until_closed(reader)


@pytest.mark.parametrize("role", ["owner", "admin", "viewer", "agent-service"])
async def test_who_may_not_talk_is_refused_before_the_stream_begins(tmp_path: Path, role: str):
    async with served(tmp_path) as place:
        theirs = await token_of(place, "guest", role=role, scopes=["read"], agents=["aria"])
        body = b'{"text": "hi"}'
        head = theirs.head("POST", "/api/agents/aria/stream", f"content-length: {len(body)}")
        (await theirs.send(head + body)).is_problem(403)
        assert not await place.home.turns.list("aria")


async def test_a_message_that_is_refused_is_no_stream(tmp_path: Path):
    async with served(tmp_path) as place:
        for text, image in (("x\\u0000y", ""), ("hi", '"AAAA"')):
            body = f'{{"text": "{text}", "images": [{image}]}}'.encode()
            head = place.head("POST", "/api/agents/aria/stream", f"content-length: {len(body)}")
            answer = await place.send(head + body)
            assert answer.status in (200, 400, 422), answer
            if answer.status != 200:
                answer.is_problem(answer.status)
        await place.is_alive()


@pytest.mark.parametrize(
    "path", ["/api/events", "/api/agents/aria/events", "/api/agents", "/health", "/api/docs"]
)
async def test_the_head_of_a_stream_is_not_a_stream(tmp_path: Path, path: str):
    async with served(tmp_path) as place:
        async with place.connected() as (reader, writer), asyncio.timeout(120):
            writer.write(place.head("HEAD", path, "connection: close"))
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"\r\n\r\n")


async def test_a_watcher_of_all_sees_the_own_agent_alone(tmp_path: Path):
    async with served(tmp_path) as place:
        await place.home.agents.create("bela")
        theirs = await token_of(place, "guest", agents=["bela"])
        async with theirs.connected() as (reader, writer), asyncio.timeout(120):
            writer.write(theirs.head("GET", "/api/events"))
            await reader.readuntil(b"\n\n")
            await place.home.agents.ask("aria", "a secret of aria")
            await place.home.agents.ask("bela", "for bela")
            found = await reader.readuntil(b'"answer to: for bela"')
        assert b"secret" not in found
        aria = await place.home.agents.get("aria")
        assert aria.id.encode() not in found
        # And what is told from the journal after a gap.
        since = theirs.head("GET", "/api/events", "last-event-id: other-1-1")
        async with theirs.connected() as (reader, writer), asyncio.timeout(120):
            writer.write(since)
            found = await reader.readuntil(b'"answer to: for bela"')
        assert b"event: gap" in found
        assert b"secret" not in found


@pytest.mark.parametrize(
    "event_id", ["", "-", "--", "a-b-c", "x-99999999999999999999-zz", "end-0--", "a-1-" + "f" * 400]
)
async def test_made_up_event_ids_are_gaps(tmp_path: Path, event_id: str):
    async with served(tmp_path) as place:
        outcome = await place.home.agents.ask("aria", "before")
        head = place.head("GET", "/api/agents/aria/events", f"last-event-id: {event_id}")
        async with place.connected() as (reader, writer), asyncio.timeout(120):
            writer.write(head)
            await reader.readuntil(b"\n\n")
            await place.home.agents.ask("aria", "after")
            found = await reader.readuntil(b"answer to: after")
        assert outcome.text
        assert b"event: error" not in found


async def test_the_same_key_for_another_agent_is_refused(tmp_path: Path):
    async with served(tmp_path) as place:
        await place.home.agents.create("bela")
        answers: list[Answer] = []
        for path in ("aria/messages", "bela/messages", "bela/ask", "bela/stream", "aria/messages"):
            body = b'{"text": "hi"}'
            more = (f"content-length: {len(body)}", "idempotency-key: k1")
            answers.append(
                await place.send(place.head("POST", f"/api/agents/{path}", *more) + body)
            )
        first, *others, last = answers
        assert (first.status, last.status) == (202, 202)
        assert last.body["turn_id"] == first.body["turn_id"]
        for answer in others:
            answer.is_problem(422)
        assert not await place.home.turns.list("bela")


async def test_two_changes_for_the_same_state_of_which_one_is_made(tmp_path: Path):
    async with served(tmp_path) as place:
        etag = (await place.send(place.head())).headers["etag"]
        answers = await asyncio.gather(
            *(
                place.send(
                    place.head(
                        "PATCH", "/api/agents/aria", f"if-match: {etag}", "content-length: 16"
                    )
                    + b'{"system":"%03d"}' % number
                )
                for number in range(100, 108)
            )
        )
        assert {answer.status for answer in answers} <= {200, 409, 412}, answers
        made = [answer.status for answer in answers if answer.status not in (409, 412)]
        assert made == [200]


@pytest.mark.promise("X1", "X5")
@pytest.mark.timeout(60)
async def test_a_body_of_many_small_values_is_refused_before_they_are_looked_at(tmp_path: Path):
    async with (
        open_home(tmp_path, ScriptedModel(["Hello."] * 2)) as home,
        api_client(home) as client,
    ):
        await home.agents.create("aria")
        lists: list[Any] = [[[]]]
        many: dict[str, Any] = {"text": "hi", "json_schema": {"const": lists * 600_000}}
        refused = await client.post("/api/agents/aria/ask", json=many)
        assert refused.status_code == 400
        assert "more than 20,000 values" in refused.json()["detail"]
        talk = [{"role": "user", "content": "hi"}]
        named = {"name": "x", "schema": many["json_schema"]}
        form: dict[str, Any] = {"type": "json_schema", "json_schema": named}
        told: dict[str, Any] = {"model": "aria", "messages": talk, "response_format": form}
        refused = await client.post("/openai/v1/chat/completions", json=told)
        assert refused.status_code == 400
        # Words are no values, whatever is in them.
        asked = {"text": '"[{, ' * 20_000}
        assert (await client.post("/api/agents/aria/ask", json=asked)).is_success


@pytest.mark.promise("X5")
@pytest.mark.timeout(60)
async def test_no_schema_asks_for_more_than_a_model_could_write(tmp_path: Path):
    huge = {"type": "array", "items": {"type": "string"}, "minItems": 50_000_000}
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(6):
        nested = {"type": "array", "items": nested, "minItems": 10_000}
    async with (
        open_home(tmp_path, settings={"model": "demo:guide"}) as home,
        api_client(home) as client,
    ):
        await home.agents.create("aria", model="demo:guide")
        asked = {"text": "hi", "json_schema": huge}
        refused = await client.post("/api/agents/aria/ask", json=asked)
        assert refused.status_code == 422
        assert "minItems 50,000,000; the most is 10,000" in refused.json()["detail"]
        asked = {"text": "hi", "json_schema": nested}
        answered = await client.post("/api/agents/aria/ask", json=asked)
        assert answered.json()["state"] == "failed"
        assert len(answered.content) < 1_000_000
