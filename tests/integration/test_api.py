"""The REST API: what a program can do with a home over HTTP."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from starlette.requests import Request

from asterism import Asterism
from asterism.api.endpoints import JSON, OPEN, ApiEndpoint, call_of
from asterism.api.rest import ENDPOINTS
from asterism.api.server import Server, bind
from asterism.errors import HomeLost, InvalidInput, NotAllowed, NotFound
from asterism.permissions import Act
from asterism.testing.scripted import ScriptedModel
from tests.api_scene import api_client, events
from tests.scenes import open_home


async def test_an_agent_is_made_changed_and_taken_out_of_service(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        made = await client.post("/api/agents", json={"name": "aria", "system": "Be kind."})
        assert made.status_code == 201
        assert made.json()["system"] == "Be kind."
        listed = (await client.get("/api/agents")).json()
        assert [agent["name"] for agent in listed["items"]] == ["aria"]
        changed = await client.patch("/api/agents/aria", json={"name": "bea"})
        assert changed.json()["version"] == 2
        assert (await client.get("/api/agents/aria")).status_code == 404
        assert (await client.delete("/api/agents/bea")).status_code == 204
        assert (await home.agents.list()) == []


@pytest.mark.promise("A1")
async def test_a_change_for_a_former_state_is_refused(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        await home.agents.create("aria")
        seen = (await client.get("/api/agents/aria")).headers["etag"]
        first = await client.patch(
            "/api/agents/aria", json={"system": "One."}, headers={"if-match": seen}
        )
        assert first.status_code == 200
        second = await client.patch(
            "/api/agents/aria", json={"system": "Two."}, headers={"if-match": seen}
        )
        assert second.status_code == 412
        problem = second.json()
        assert problem["type"] == "conflict.changed"
        assert first.headers["etag"] in problem["detail"]
        assert (await home.agents.get("aria")).system == "One."


@pytest.mark.promise("A1")
async def test_of_two_changes_at_once_for_one_state_one_is_made(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        await home.agents.create("aria")
        seen = (await client.get("/api/agents/aria/blocks/human")).headers["etag"]

        async def append(word: str) -> int:
            answer = await client.post(
                "/api/agents/aria/blocks/human/edits",
                json={"operation": "append", "content": word},
                headers={"if-match": seen},
            )
            return answer.status_code

        codes = await asyncio.gather(*(append(f"word {number}") for number in range(5)))
        assert sorted(codes)[:2] == [200, 409] or sorted(codes)[:2] == [200, 412]
        assert codes.count(200) == 1
        text = (await client.get("/api/agents/aria/blocks/human")).json()["text"]
        assert text.count("word") == 1


async def test_a_message_is_answered_and_its_turn_can_be_read(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel(["Hello, Lena."])) as home:
        await home.agents.create("aria")
        async with api_client(home) as client:
            answer = (await client.post("/api/agents/aria/ask", json={"text": "I am Lena."})).json()
            assert (answer["state"], answer["text"]) == ("done", "Hello, Lena.")
            turn = (await client.get(f"/api/turns/{answer['turn_id']}")).json()
            assert turn["agent"] == "aria"
            assert turn["entries"][0]["kind"] == "message"
            found = (await client.post("/api/search", json={"text": "Lena"})).json()
            assert found["hits"][0]["text"] == "I am Lena."


@pytest.mark.promise("A1")
async def test_a_message_with_the_same_key_is_taken_once(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel(["One."])) as home:
        await home.agents.create("aria")
        async with api_client(home) as client:
            receipts = [
                (
                    await client.post(
                        "/api/agents/aria/messages",
                        json={"text": "hi"},
                        headers={"idempotency-key": "k1"},
                    )
                ).json()
                for _ in range(2)
            ]
    assert receipts[0]["turn_id"] == receipts[1]["turn_id"]
    assert [receipt["duplicate"] for receipt in receipts] == [False, True]


@pytest.mark.promise("A1")
async def test_what_happens_in_a_turn_is_streamed(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel(["Good morning, Lena."])) as home:
        await home.agents.create("aria")
        async with api_client(home) as client:
            streamed = await client.post("/api/agents/aria/stream", json={"text": "hi"})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    told = events(streamed.text)
    assert told[-1]["event"] == "ended"
    texts = [json.loads(one["data"])["data"]["text"] for one in told if one["event"] == "text"]
    assert "".join(texts) == "Good morning, Lena."
    assert len({one["id"] for one in told}) == len(told)


@pytest.mark.promise("A1", "T5")
async def test_whoever_comes_back_is_told_what_happened_meanwhile(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel(["One.", "Two."])) as home:
        aria = await home.agents.create("aria")
        first = [signal async for signal in aria.stream("hi")]
        await aria.ask("and now?")
        endpoint = next(one for one in ENDPOINTS if one.path == "/agents/{agent}/events")
        request = Request(
            {
                "type": "http",
                "headers": [(b"last-event-id", first[-1].id.encode())],
                "query_string": b"",
                "path_params": {"agent": "aria"},
                "state": {"home": home},
            }
        )
        stream = await endpoint.run(await call_of(request, endpoint))
        told: list[dict[str, str]] = []
        async for part in stream:
            told += events(part.decode())
            if "Two." in told[-1]["data"]:
                break
        await stream.aclose()
    assert told[-1]["event"] == "ended"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/agents/nobody", None, 404, "not-found"),
        ("POST", "/api/agents", {"name": "aria"}, 409, "conflict"),
        ("POST", "/api/agents", {"nmae": "bea"}, 400, "input.request"),
        ("POST", "/api/agents", {"name": ""}, 400, "input.request"),
        ("POST", "/api/agents", {"name": "a\nb"}, 422, "input"),
        ("POST", "/api/agents/aria/messages", {"text": " "}, 400, "input.request"),
        ("POST", "/api/agents/aria/schedules", {"when": "soonish", "text": "x"}, 422, "input"),
        ("GET", "/api/turns?limit=0", None, 400, "input.request"),
        ("GET", "/api/agents?cursor=x", None, 400, "input.request"),
        ("GET", "/api/agents/aria/blocks/human/lines?moment=12", None, 400, "input.request"),
        ("GET", "/api/nothing", None, 404, "not-found"),
        ("GET", "/elsewhere", None, 404, "not-found"),
        ("DELETE", "/api/agents", None, 405, "method-not-allowed"),
    ],
)
async def test_what_is_wrong_is_told_as_a_problem(
    tmp_path: Path, method: str, path: str, body: object, status: int, code: str
):
    async with open_home(tmp_path) as home, api_client(home) as client:
        await home.agents.create("aria")
        answer = await client.request(method, path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == code
    assert problem["status"] == status
    assert problem["instance"] == answer.headers["x-request-id"]
    assert problem["detail"].endswith(".")


async def test_a_body_that_is_not_json_or_too_large_is_refused(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        broken = await client.post("/api/agents", content=b'{"name": ')
        assert (broken.status_code, broken.json()["type"]) == (400, "input.request")
        large = await client.post("/api/agents", content=b" " * (5 << 20))
        assert (large.status_code, large.json()["type"]) == (413, "input.too-large")
        nested = await client.post("/api/agents", content=b"[" * 100_000)
        assert nested.status_code == 400


@pytest.mark.promise("X1")
async def test_whoever_may_only_read_changes_nothing(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        async with api_client(home, "viewer") as client:
            assert (await client.get("/api/agents/aria")).status_code == 200
            for method, path, body in (
                ("POST", "/api/agents", {"name": "bea"}),
                ("PATCH", "/api/agents/aria", {"system": "x"}),
                ("DELETE", "/api/agents/aria", None),
                ("PUT", "/api/halt", {"reason": "x"}),
                ("POST", "/api/memory/forget", {"texts": ["x"]}),
            ):
                answer = await client.request(method, path, json=body)
                assert answer.status_code == 403, (path, answer.text)
                assert answer.json()["type"] == "not-allowed"


@pytest.mark.promise("X1")
async def test_every_endpoint_names_a_verb_that_there_is(tmp_path: Path):
    async with open_home(tmp_path) as home:
        unknown = [one.path for one in ENDPOINTS if home.find_verb(one.verb) is None]
    assert unknown == ["/login"]


@pytest.mark.promise("S5")
async def test_a_tool_that_is_registered_over_the_api_is_offered_and_kept_in_versions(
    tmp_path: Path,
):
    tool: dict[str, Any] = {
        "name": "dice",
        "description": "Rolls a die.",
        "json_schema": {"type": "object", "properties": {}},
        "python": "def run():\n    return 4\n",
    }
    model = ScriptedModel(["Hello."])
    async with open_home(tmp_path, model) as home, api_client(home) as client:
        made = await client.post("/api/registered-tools", json=tool)
        assert made.status_code == 201, made.text
        again = await client.post("/api/registered-tools", json={**tool, "ask": True})
        assert again.json()["version"] == 2
        await home.agents.create("aria")
        await client.post("/api/agents/aria/ask", json={"text": "hi"})
        assert b'"dice"' in (model.requests[0].tools or b"")
        versions = (await client.get("/api/registered-tools/dice/versions")).json()["items"]
        assert [version["version"] for version in versions] == [2, 1]
        assert (await client.delete("/api/registered-tools/dice")).status_code == 204
        assert (await client.get("/api/registered-tools")).json()["items"] == []
        neither = {name: value for name, value in tool.items() if name != "python"}
        refused = await client.post("/api/registered-tools", json=neither)
        assert (refused.status_code, refused.json()["type"]) == (422, "input")


async def test_lists_come_in_pages(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        for number in range(5):
            await home.agents.create(f"agent-{number}")
        names: list[str] = []
        cursor = ""
        while True:
            page = (await client.get(f"/api/agents?limit=2{cursor}")).json()
            names += [agent["name"] for agent in page["items"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
    assert names == [f"agent-{number}" for number in range(5)]


async def test_the_document_and_its_page_are_there(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        document = (await client.get("/api/openapi.json")).json()
        page = await client.get("/api/docs")
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {f"/api{one.path}" for one in ENDPOINTS}
    assert "/api/agents/{agent}/blocks/{label}" in page.text
    assert "http" not in page.headers["content-security-policy"]


async def test_a_clone_has_the_past_and_the_memory_of_its_original(tmp_path: Path):
    model = ScriptedModel(["Noted.", "In Ghent.", "Hm."])
    async with open_home(tmp_path, model) as home, api_client(home) as client:
        aria = await home.agents.create("aria")
        await aria.ask("My sister lives in Ghent.")
        await aria.blocks["human"].append("The owner is Lena.")
        made = await client.post("/api/agents/aria/clone", json={"name": "bea"})
        assert made.status_code == 201
        await client.post("/api/agents/bea/ask", json={"text": "Where does she live?"})
        assert "My sister lives in Ghent." in str(model.requests[1].messages)
        assert "Lena" in (await client.get("/api/agents/bea/blocks/human")).json()["text"]
        taken = await client.post("/api/agents/aria/clone", json={"name": "bea"})
        assert (taken.status_code, taken.json()["type"]) == (409, "conflict")
        assert (await home.audit.list(kind="agent.cloned"))[0].actor == "owner"


async def test_all_agents_are_watched_at_once_also_those_who_come_later(tmp_path: Path):
    async with open_home(tmp_path, ScriptedModel(["One.", "Two."])) as home:
        await home.agents.create("aria")
        await home.agents.create("cleo")
        told: list[str] = []
        kinds: set[str] = set()

        async def watch() -> None:
            async for signal in home.agents.watch():
                kinds.add(signal.kind)
                if len(told) == 0:
                    assert "gap" not in kinds, "nothing was missed"
                if signal.kind == "ended":
                    told.append(signal.data["text"])
                if len(told) == 2:
                    return

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        await asyncio.wait_for(home.agents.ask("aria", "hi"), 10)
        await home.agents.create("bea")
        await asyncio.wait_for(home.agents.ask("bea", "hi"), 10)
        await asyncio.wait_for(watching, 10)
    assert sorted(told) == ["One.", "Two."]


async def test_the_configuration_is_shown_without_secrets_and_checked(tmp_path: Path):
    settings = {"models.openai.key": "sk-hush-hush-hush"}
    async with open_home(tmp_path, settings=settings) as home, api_client(home) as client:
        shown = await client.get("/api/config")
        assert shown.json()["model"] == "scripted:one"
        assert "hush" not in shown.text
        checks = [
            (await client.post("/api/config/check", json={"text": text})).json()
            for text in ("[limits]\nsteps = 3\n", "[limits]\nsteps = -3\n", "[limits")
        ]
    assert [check["valid"] for check in checks] == [True, False, False]
    assert "limits.steps" in checks[1]["problems"][0]


async def test_files_are_put_into_a_source_and_found(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        await home.agents.create("aria")
        put = await client.put(
            "/api/sources/papers/files/boiler.md", content=b"The boiler runs at 1.6 bar."
        )
        assert put.status_code == 200, put.text
        files = [("file", ("bus.txt", b"The bus leaves at 7:10.")), ("file", ("b.txt", b"Bread."))]
        form = await client.post("/api/sources/papers/files", files=files)
        assert form.status_code == 200, form.text
        await client.put("/api/sources/papers/agents/aria")
        listed = (await client.get("/api/sources/papers/documents")).json()
        assert [one["path"] for one in listed["items"]] == ["b.txt", "boiler.md", "bus.txt"]
        found = await client.post("/api/search", json={"text": "boiler bar", "agent": "aria"})
        assert found.json()["hits"][0]["text"] == "The boiler runs at 1.6 bar."


@pytest.mark.promise("A1")
@pytest.mark.parametrize(
    "name", ["..%2F..%2Fetc%2Fpasswd.txt", ".hidden.txt", "a%00.txt", "C:%5Cboot.txt", "run.exe"]
)
async def test_a_file_that_leads_elsewhere_or_is_not_read_is_refused(tmp_path: Path, name: str):
    async with open_home(tmp_path) as home, api_client(home) as client:
        answer = await client.put(f"/api/sources/papers/files/{name}", content=b"x")
        form = await client.post(
            "/api/sources/papers/files", files={"file": (f"../{unquote(name)}", b"x")}
        )
        listed = await client.get("/api/sources")
    assert answer.status_code in (404, 422)
    assert form.status_code == 422
    assert listed.json()["items"] == []


async def test_nothing_is_put_into_a_folder_of_the_machine(tmp_path: Path):
    folder = tmp_path / "mine"
    folder.mkdir()
    async with open_home(tmp_path / "home") as home, api_client(home) as client:
        await home.sources.add("mine", folder)
        answer = await client.put("/api/sources/mine/files/a.txt", content=b"x")
    assert (answer.status_code, answer.json()["type"]) == (409, "conflict")
    assert not any(os.scandir(folder))


async def test_too_many_requests_are_told_when_to_come_again(tmp_path: Path):
    settings = {"api.requests_per_minute": 10}
    async with open_home(tmp_path, settings=settings) as home, api_client(home) as client:
        answers = [await client.get("/api/status") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
    assert answers[0].headers["ratelimit-limit"] == "10"
    assert answers[1].headers["ratelimit-remaining"] == "0"
    assert 1 <= int(answers[2].headers["retry-after"]) <= 6
    assert answers[2].json()["type"] == "too-many-requests"


async def test_web_pages_of_other_origins_are_let_in_only_if_the_owner_says_so(tmp_path: Path):
    settings = {"api.origins": ["https://good.example"]}
    async with open_home(tmp_path, settings=settings) as home, api_client(home) as client:
        for origin, allowed in (("https://good.example", True), ("https://bad.example", False)):
            asked = await client.options("/api/status", headers={"origin": origin})
            got = await client.get("/api/status", headers={"origin": origin})
            for answer in (asked, got):
                leave = answer.headers.get("access-control-allow-origin")
                assert leave == (origin if allowed else None)


@asynccontextmanager
async def served(home: Asterism, role: str = "owner") -> AsyncGenerator[tuple[str, str], None]:
    """Serve a home on a port of this machine; give its address and a token of a role."""
    secret = (await home.tokens.create(f"test-{role}", role=role)).secret
    with bind("127.0.0.1", 0) as taken:
        async with Server(home, taken, tuple) as server:
            yield server.url, secret


@pytest.mark.promise("A8")
async def test_a_home_elsewhere_has_the_same_nouns_and_verbs(tmp_path: Path):
    model = ScriptedModel(["Hello.", "One.", "Two."])
    async with (
        open_home(tmp_path, model) as home,
        served(home) as (url, secret),
        Asterism.connect(url, secret) as remote,
    ):
        aria = await remote.agents.ensure("aria")
        assert (await remote.agents.ask(aria, "hi")).text == "Hello."
        texts = [
            signal.data["text"]
            async for signal in remote.agents.stream(aria, "again")
            if signal.kind == "ended"
        ]
        assert texts == ["One."]
        with pytest.raises(NotFound, match="no agent named 'bea'"):
            await remote.agents.get("bea")
        assert [agent.name for agent in await home.agents.list()] == ["aria"]
        turns = await remote.turns.list("aria")
        assert [turn.id for turn in turns] == [turn.id for turn in await home.turns.list()]


@pytest.mark.promise("X1")
async def test_verbs_are_called_by_name_by_the_owner_alone(tmp_path: Path):
    async with open_home(tmp_path) as home:
        narrow = (await home.tokens.create("narrow", scopes=["read"])).secret
        async with served(home, "admin") as (url, secret):
            for refused in (secret, narrow):
                with pytest.raises(NotAllowed, match="Only the owner may call verbs"):
                    async with Asterism.connect(url, refused):
                        pass


@pytest.mark.parametrize("url", ["127.0.0.1:8283", "ftp://home", "http://", "http://h?x=1"])
async def test_what_is_not_an_address_is_refused(url: str):
    with pytest.raises(InvalidInput, match="is not an address of a home"):
        async with Asterism.connect(url, "any"):
            pass


async def test_an_address_where_nobody_listens_is_told():
    with pytest.raises(HomeLost, match=r"There is no home at http://127\.0\.0\.1:9"):
        async with Asterism.connect("http://127.0.0.1:9", "any"):
            pass


@pytest.mark.promise("X1")
async def test_no_endpoint_lets_anybody_in_without_a_token(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home, None) as client:
        paths = {
            (one.method, re.sub(r"{\w+}", "x", f"/api{one.path}"))
            for one in ENDPOINTS
            if one.verb != OPEN
        }
        assert [one.path for one in ENDPOINTS if one.verb == OPEN] == ["/login"]
        more = {("POST", "/api/call"), ("GET", "/openai/v1/models"), ("POST", "/mcp")}
        for method, path in sorted(paths | more):
            answer = await client.request(method, path)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            if path.startswith("/openai/"):
                assert answer.json()["error"]["code"] == "invalid_api_key"
            else:
                assert answer.json()["type"] == "not-authenticated"
        for path in ("/health", "/ready", "/metrics", "/api/openapi.json", "/api/docs"):
            assert (await client.get(path)).status_code == 200, path


_ACTS = {
    "viewer": {Act.READ},
    "partner": {Act.READ, Act.TALK},
    "operator": {Act.READ, Act.TALK, Act.APPEND},
    "editor": {Act.READ, Act.TALK, Act.APPEND, Act.OVERWRITE},
}


@pytest.mark.promise("X1")
@pytest.mark.parametrize("role", _ACTS)
async def test_each_endpoint_is_refused_without_the_right_role(tmp_path: Path, role: str):
    refused = 0
    async with open_home(tmp_path) as home, api_client(home, role) as client:
        await home.agents.create("x")
        for one in ENDPOINTS:
            method = home.find_verb(one.verb)
            if one.verb == OPEN or one.verb.removeprefix("users.") in ("current", "log_out"):
                continue  # about what a caller came with, which everybody may know and end
            act, _ = getattr(method, "verb", (None, ""))
            # To look one up belongs to talking, and is allowed to who may read.
            looks_up = one.verb in ("agents.get", "groups.get")
            if act in _ACTS[role] or looks_up or one.media != JSON:
                continue
            path = re.sub(r"{\w+}", "x", f"/api{one.path}")
            body = json.dumps(example(one)) if one.body is not None else None
            answer = await client.request(one.method, path, content=body)
            assert answer.status_code in (403, 404), (one.method, path, answer.text)
            refused += answer.status_code == 403
    assert refused > 20


def example(one: ApiEndpoint) -> dict[str, Any]:
    """The least that an endpoint takes."""
    assert one.body is not None
    values: dict[str, Any] = {
        "agent": "x",
        "name": "y",
        "text": "hello",
        "messages": [{"role": "user", "text": "hi"}],
        "operation": "append",
        "label": "y",
        "approved": True,
        "tool": "web",
        "when": "tomorrow at 9",
        "ids": ["n"],
        "account": "chat:y",
        "person": "y",
        "description": "d",
        "json_schema": {},
        "rules": [],
        "path": "/tmp",
        "document": {},
        "password": "correct horse battery",
    }
    needed = [name for name, field in one.body.model_fields.items() if field.is_required()]
    return {name: values[name] for name in needed}


@pytest.mark.promise("S5")
async def test_a_registered_tool_is_tested_in_its_sandbox(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        tool = {
            "name": "double",
            "description": "Doubles a number.",
            "json_schema": {
                "type": "object",
                "properties": {"number": {"type": "integer"}},
                "required": ["number"],
            },
            "python": "def run(number):\n assert number < 100, 'too large'\n return 2 * number",
        }
        await client.post("/api/registered-tools", json=tool)
        path = "/api/registered-tools/double/test"

        async def tested(**arguments: object) -> tuple[str, str]:
            answer = await client.post(path, json={"arguments": arguments})
            assert answer.status_code == 200, answer.text
            return answer.json()["state"], answer.json()["text"]

        assert await tested(number=21) == ("ok", "42")
        state, text = await tested(number=100)
        assert (state, "too large" in text) == ("failed", True)
        state, text = await tested(number="many")
        assert (state, "do not fit" in text) == ("not_run", True)
        unknown = await client.post("/api/registered-tools/half/test", json={})
        assert unknown.status_code == 404
        assert "tool.tested" in {event.kind for event in await home.audit.list()}


async def test_who_is_in_which_room(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        await home.agents.create("aria")
        for sender in ("anna", "ben"):
            await home.agents.ask("aria", "hello", channel="chat", sender=sender, room="kitchen")
        (room,) = (await client.get("/api/rooms")).json()["items"]
        assert room["name"] == "chat:kitchen"
        assert len(room["members"]) == 2
        assert (await client.get("/api/rooms/chat:kitchen")).json() == room
        gone = room["members"][0]["person_id"]
        left = await client.delete(f"/api/rooms/chat:kitchen/people/{gone}")
        assert left.status_code == 204
        (rest,) = (await client.get("/api/rooms/chat:kitchen")).json()["members"]
        assert rest == room["members"][1]
        assert (await client.get("/api/rooms/chat:attic")).status_code == 404
        # Whoever may read sees the rooms that they are in.
        reader = (await home.tokens.create("reader", role="viewer")).secret
        headers = {"authorization": f"Bearer {reader}"}
        assert (await client.get("/api/rooms", headers=headers)).json()["items"] == []


@pytest.mark.promise("A1", "A6")
async def test_backups_are_made_listed_and_verified(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        await home.agents.create("aria")
        made = await client.post("/api/backups", json={"note": "before the move"})
        assert made.status_code == 201, made.text
        name = made.json()["name"]
        assert (made.json()["kind"], made.json()["encrypted"]) == ("manual", False)
        (listed,) = (await client.get("/api/backups")).json()["items"]
        assert (listed["name"], listed["note"]) == (name, "before the move")
        report = await client.post(f"/api/backups/{name}/verify", json={})
        assert report.status_code == 200, report.text
        assert report.json()["backup"]["name"] == name
        assert report.json()["contents"]["agents"] == 1
        secret = await client.post("/api/backups", json={"passphrase": "eleven green bottles"})
        path = f"/api/backups/{secret.json()['name']}/verify"
        assert (await client.post(path, json={})).status_code == 422
        wrong = await client.post(path, json={"passphrase": "ten green bottles"})
        assert (wrong.status_code, wrong.json()["type"]) == (422, "backup.passphrase")
        right = await client.post(path, json={"passphrase": "eleven green bottles"})
        assert right.status_code == 200
        for other in ("nothing", "..%2Fasterism.db", "%2Fetc%2Fpasswd"):
            unknown = await client.post(f"/api/backups/{other}/verify", json={})
            assert unknown.status_code == 404, unknown.text
        os.truncate(made.json()["path"], made.json()["size"] - 100)
        cut = await client.post(f"/api/backups/{name}/verify", json={})
        assert (cut.status_code, "cut off" in cut.json()["detail"]) == (422, True)


@pytest.mark.promise("X1")
async def test_backups_are_of_the_server_and_its_owner_alone(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.constellations.ensure("guests")
        guest = (await home.tokens.create("guest", constellation="guests")).secret
        async with api_client(home, "operator") as client:
            given = [{}, {"authorization": f"Bearer {guest}"}]
            for headers in given:
                for method, path in (
                    ("GET", "/api/backups"),
                    ("POST", "/api/backups"),
                    ("POST", "/api/backups/x/verify"),
                ):
                    body = None if method == "GET" else {}
                    answer = await client.request(method, path, json=body, headers=headers)
                    assert answer.status_code == 403, (path, answer.text)
        assert await home.backups.list() == []


@pytest.mark.promise("A1", "T5")
async def test_a_group_is_streamed_and_watched(tmp_path: Path):
    """What happens in a group's turn is told to who asked, and later to who comes back."""
    async with open_home(tmp_path) as home, served(home) as (url, secret):
        await home.agents.create("aria")
        await home.groups.create("team", members=["aria"])
        headers = {"authorization": f"Bearer {secret}"}
        async with (
            asyncio.timeout(30),
            httpx.AsyncClient(base_url=url, headers=headers, timeout=20) as client,
        ):
            answer = await client.post("/api/groups/team/stream", json={"text": "hello"})
            assert answer.status_code == 200, answer.text
            asked = events(answer.text)
            assert [each["event"] for each in asked][-1] == "ended"
            again = {"last-event-id": asked[0]["id"]}
            told: list[str] = []
            async with client.stream("GET", "/api/groups/team/events", headers=again) as answer:
                assert answer.status_code == 200
                async for line in answer.aiter_lines():
                    told.append(line)
                    if line == "event: ended":
                        break
            kinds = [line.removeprefix("event: ") for line in told if line.startswith("event: ")]
            assert kinds[-1] == "ended"
            assert (await client.get("/api/groups/nobody/events")).status_code == 404
