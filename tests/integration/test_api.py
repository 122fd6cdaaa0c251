"""The REST API: what a program can do with a home over HTTP."""

import asyncio
import json
import os
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import httpx
import pytest
from starlette.requests import Request

from asterism import Asterism
from asterism.api import routes
from asterism.api.endpoints import JSON, OPEN, ApiEndpoint, call_of
from asterism.api.openapi import document
from asterism.api.routes import ENDPOINTS
from asterism.api.server import Server, bind
from asterism.app.session import OWN_VERBS
from asterism.errors import (
    Changed,
    Conflict,
    DeliveryError,
    HomeLost,
    InvalidInput,
    NotAllowed,
    NotFound,
)
from asterism.permissions import Act
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.times import to_datetime
from asterism.types.agents import Trust
from asterism.types.memory import Append, Share
from asterism.types.turns import ClientRequest, RetrySafety, TurnState
from tests.api_scene import api_client, events
from tests.integration.group_scene import store
from tests.integration.test_parking import Outside
from tests.scenes import calls, open_home, until


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


_TAGGED = {
    "/api/agents/aria": [("DELETE", ""), ("PATCH", ""), ("POST", "/archive")],
    "/api/groups/duo": [("DELETE", ""), ("PATCH", "")],
    "/api/agents/aria/blocks/human": [
        *(("DELETE", ""), ("PATCH", ""), ("POST", "/edits"), ("PUT", "/shares/bea"))
    ],
    "/api/people/Anna": [("PATCH", "")],
    "/api/passages/PASSAGE": [("DELETE", ""), ("PATCH", "")],
}
"""What has an ETag, and the requests that take it back."""
_CHANGES: dict[str, Any] = {
    "/edits": {"operation": "append", "content": "x"},
    "/api/agents/aria": {"system": "Two."},
    "/api/groups/duo": {"description": "Two."},
    "/api/agents/aria/blocks/human": {"description": "Two."},
    "/api/people/Anna": {"name": "Annette"},
    "/api/passages/PASSAGE": {"append": "Two."},
}


@pytest.mark.promise("A1")
async def test_every_change_of_what_has_a_tag_looks_at_it(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        aria = await home.agents.create("aria")
        await home.agents.create("bea")
        await home.groups.create("duo", members=["aria"])
        await home.people.create("Anna")
        passage = (await aria.archive.add("The rent is due.")).passage.id
        stale = {"if-match": '"of-another-state"'}
        for path, changes in _TAGGED.items():
            url = path.replace("PASSAGE", passage)
            before = await client.get(url)
            for method, more in changes:
                body = _CHANGES.get(more or path) if method != "DELETE" else None
                content = {} if body is None else {"json": body}
                refused = await client.request(method, url + more, headers=stale, **content)
                assert refused.status_code == 412, (method, url, more, refused.text)
                assert (await client.get(url)).content == before.content
        documented = {
            (operation["x-verb"], method, path)
            for path, methods in document(ENDPOINTS)["paths"].items()
            for method, operation in methods.items()
            if any(part["name"] == "if-match" for part in operation.get("parameters", ()))
        }
        assert len(documented) == sum(map(len, _TAGGED.values())) + 1  # and unarchive
        for method, path in (("POST", "/api/agents"), ("DELETE", "/api/grants/x")):
            refused = await client.request(method, path, headers=stale, json={"name": "cy"})
            assert (refused.status_code, refused.json()["type"]) == (400, "input.request")
            assert "does not look at If-Match" in refused.json()["detail"]
        assert len(await home.agents.list()) == 2


@pytest.mark.promise("A1")
async def test_a_change_in_between_is_seen_by_the_write_itself(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        group = await home.groups.create("duo", members=["aria"])
        anna = await home.people.create("Anna")
        passage = (await aria.archive.add("The rent is due.")).passage
        await aria.edit(system="Two.")
        await group.edit(description="Two.")
        await home.people.rename("Anna", "Annette")
        await home.archive.append(passage.id, "On Monday.")
        for change in (
            home.agents.archive(aria, version=aria.version),
            home.agents.delete(aria, version=aria.version),
            home.groups.delete(group, version=group.version),
            home.people.edit(anna.id, trust=Trust.STRANGER, expected=anna),
            home.archive.edit(passage.id, tags=["rent"], expected=passage),
            home.archive.retract(passage.id, expected=passage),
        ):
            with pytest.raises(Changed, match="Nothing was changed"):
                await change
        now = await home.archive.get(passage.id)
        assert (now.tags, now.is_valid) == ((), True)
        await home.archive.retract(passage.id, expected=now)


@pytest.mark.promise("A1")
async def test_a_change_of_several_things_is_made_whole_or_not_at_all(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        aria = await home.agents.create("aria")
        await home.people.create("Anna")
        passage = (await aria.archive.add("The rent is due.")).passage.id
        for path, body in (
            ("/api/people/Anna", {"name": "Annette", "roles": ["partner", "no|role"]}),
            ("/api/people/owner", {"name": "Lena", "trust": "known"}),
            (f"/api/passages/{passage}", {"append": "On Monday.", "tags": ["x" * 80, " "]}),
        ):
            before = await client.get(path)
            refused = await client.patch(path, json=body)
            assert refused.status_code in (400, 422), refused.text
            assert (await client.get(path)).content == before.content, path
        kinds = {event.kind for event in await home.audit.list()}
        assert not kinds & {"person.renamed", "passage.appended"}
        changed = await client.patch(
            "/api/people/Anna", json={"name": "Annette", "trust": "stranger", "roles": ["viewer"]}
        )
        shape = changed.json()
        assert (shape["name"], shape["trust"], shape["roles"]) == (
            "Annette",
            "stranger",
            ["viewer"],
        )
        changed = await client.patch(
            f"/api/passages/{passage}", json={"append": "On Monday.", "tags": ["rent"]}
        )
        assert changed.json()["tags"] == ["rent"]
        assert changed.json()["text"].endswith("On Monday.")
        assert changed.json() == (await client.get(f"/api/passages/{passage}")).json()


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_agents_and_groups_share_their_names(tmp_path: Path, engine: str):
    with store(engine) as settings:
        async with open_home(tmp_path, settings=settings) as home, api_client(home) as client:
            for name in ("aria", "bea", "old"):
                await home.agents.create(name)
            await home.agents.archive("old")
            for name in ("duo", "trio"):
                await home.groups.create(name, members=["aria"])
            for method, path, name in (
                *(("PATCH", "/agents/aria", name) for name in ("duo", "bea", "old")),
                *(("PATCH", "/groups/duo", name) for name in ("trio", "bea", "old")),
                *(("PATCH", "/agents/old", name) for name in ("duo", "bea")),
                *(("POST", "/agents", name) for name in ("duo", "bea", "old")),
                *(("POST", "/groups", name) for name in ("trio", "bea", "old")),
                *(("POST", "/agents/aria/clone", name) for name in ("duo", "bea", "old")),
            ):
                refused = await client.request(method, f"/api{path}", json={"name": name})
                assert refused.status_code == 409, (path, name, refused.text)
                assert f"named '{name}' already. Choose another name" in refused.json()["detail"]
                assert "Nothing was" in refused.json()["detail"]
            with pytest.raises(Conflict, match="There is a group named 'duo'"):
                await home.agents.ensure("duo")
            for name in ("bea", "old"):
                with pytest.raises(Conflict, match="There is an agent named"):
                    await home.groups.ensure(name)

            wishes = ("/agents/aria", "/agents/bea", "/groups/duo", "/groups/trio")
            at_once = await asyncio.gather(
                *(client.patch(f"/api{path}", json={"name": "new"}) for path in wishes)
            )
            codes = sorted(answer.status_code for answer in at_once)
            assert codes == [200, 409, 409, 409]


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_an_id_leads_to_its_own_agent_or_group(tmp_path: Path, engine: str):
    with store(engine) as settings:
        async with open_home(tmp_path, settings=settings) as home, api_client(home) as client:
            aria, bea = await home.agents.create("aria"), await home.agents.create("bea")
            duo = await home.groups.create("duo", members=["aria"])
            for method, path in (
                ("POST", "/agents"),
                ("POST", "/groups"),
                ("POST", "/agents/bea/clone"),
                ("PATCH", "/agents/bea"),
                ("PATCH", "/groups/duo"),
            ):
                for name in (aria.id, duo.id):
                    refused = await client.request(method, f"/api{path}", json={"name": name})
                    assert refused.status_code == 422, (path, refused.text)
                    assert "looks like an id" in refused.json()["detail"]
            # A home of before may have such a name.
            await home.database.write(
                lambda tx: tx.run("UPDATE agents SET name = ? WHERE id = ?", (aria.id, bea.id))
            )
            assert (await home.agents.get(aria.id)).name == "aria"
            assert (await home.agents.get(bea.id)).id == bea.id


async def test_a_slash_in_a_name_is_sent_encoded(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        aria, bea = await home.agents.create("a/b"), await home.agents.create("bea")
        # A home of before may have such a name.
        await home.database.write(
            lambda tx: tx.run("UPDATE agents SET name = 'a/b%2F' WHERE id = ?", (aria.id,))
        )
        await aria.blocks.create("facts/cat", "Miso")
        await home.blocks.write(aria, "facts/cat", Share(bea.id))
        for agent in ("a%2Fb%252F", "a%2fb%252F", aria.id):
            path = f"/api/agents/{agent}/blocks/facts%2Fcat"
            assert (await client.get(path)).json()["label"] == "facts/cat"
            added = {"operation": "append", "content": "Pip"}
            assert (await client.post(f"{path}/edits", json=added)).status_code == 200
        listed = (await client.get("/api/agents/bea/blocks")).json()["items"]
        (shared,) = (block for block in listed if block["owner"])
        assert shared["name"] == "a/b%2F/facts/cat"
        shown = await client.get(f"/api/agents/bea/blocks/{quote(shared['name'], safe='')}")
        assert shown.json()["text"].split("\n") == ["Miso", "Pip", "Pip", "Pip"]
        await home.people.create("Ann")
        await home.people.link("Ann", "web:https://ann.example")
        gone = await client.delete("/api/accounts/web:https:%2F%2Fann.example")
        assert gone.status_code == 204
        assert (await home.people.get("Ann")).accounts == ()
        nowhere = await client.get("/api/agents/a%2Fb/nothing")
        assert nowhere.status_code == 404
        figures = (await client.get("/metrics")).text
        assert 'route="/api/agents/{agent}/blocks/{label}",status="200"} 4.0' in figures
        slashed = await client.get("/api/agents/a%2Fb%252F/")
        assert slashed.headers["location"].endswith("/api/agents/a%2Fb%252F")


async def test_a_group_is_not_counted_as_an_agent_of_its_constellation(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        for name in ("aria", "bea"):
            await home.agents.create(name)
        await home.groups.create("duo", members=["aria", "bea"])
        (own,) = (await client.get("/api/constellations")).json()["items"]
        assert own["agents"] == 2


async def test_the_owner_can_be_named_owner_again(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        for name in ("Lena", "owner", "Mia", "owner"):
            changed = await client.patch("/api/people/owner", json={"name": name})
            assert (changed.status_code, changed.json().get("name")) == (200, name), changed.text
        await client.post("/api/people", json={"name": "Ben"})
        refused = await client.patch("/api/people/Ben", json={"name": "owner"})
        assert refused.status_code == 422


async def test_who_may_not_remove_the_owner_is_told_so(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home, "admin") as client:
        refused = await client.delete("/api/users/owner")
        assert refused.status_code == 403
        assert "cannot take access away from somebody with the role 'owner'" in refused.text


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


async def test_an_edit_that_archives_a_block_returns_it_once(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        await home.agents.create("aria")
        path, edit = "/api/agents/aria/blocks/human", {"operation": "retire"}
        version = (await client.get(path)).json()["version"]
        key = {"idempotency-key": "k-1"}
        retired = await client.post(f"{path}/edits", json=edit, headers=key)
        assert (retired.status_code, retired.json()["name"]) == (200, "human")
        assert retired.json()["version"] == version + 1
        assert (await client.get(path)).status_code == 404
        again = await client.post(f"{path}/edits", json=edit, headers=key)
        assert (again.status_code, again.content) == (200, retired.content)


def test_every_module_of_routes_is_served_in_the_order_of_paths():
    modules = {path.stem for path in Path(routes.__file__).parent.glob("*.py")} - {"__init__"}
    assert {one.run.__module__.rpartition(".")[2] for one in ENDPOINTS} == modules
    # So a part that is written out is matched before a parameter in its place.
    assert [one.path for one in ENDPOINTS] == sorted(one.path for one in ENDPOINTS)
    assert len({(one.method, one.path) for one in ENDPOINTS}) == len(ENDPOINTS)


@pytest.mark.promise("X1")
async def test_a_refusal_names_what_it_is_about(tmp_path: Path):
    async with open_home(tmp_path) as home:
        eve = await home.people.create("eve", roles=["viewer"])
        token = await home.tokens.create("hers", role="viewer", person=eve.name)
        theirs = await home.authenticate(token.secret)
        about = r"group\.create \(group 'ring'\)"
        with pytest.raises(NotAllowed, match=about):
            await theirs.groups.create("ring")
        with pytest.raises(NotAllowed, match=about):
            await theirs.groups.create(name="ring")
        aria = await home.agents.create("aria")
        with pytest.raises(NotAllowed, match=r"block\.write \(block 'human'\)"):
            await theirs.blocks.write(aria.id, "human", Append("a line"))
        with pytest.raises(
            NotAllowed, match=r"'hers' has the role viewer, .* agent\.send \('talk'\)"
        ):
            await theirs.agents.send("aria", "hi")


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


PAGED = {
    "/agents": [""],
    "/groups": [""],
    "/groups/{group}/transcript": [""],
    "/turns": ["", "agent=aria"],
    "/blocks": [""],
    "/agents/{agent}/blocks": [""],
    "/agents/{agent}/blocks/{label}/history": [""],
    "/agents/{agent}/passages": [""],
    "/approvals": ["", "answered=true"],
    "/notices": ["", "unseen=false"],
    "/outbox": ["", "state=dead"],
    "/people": [""],
    "/sources/{source}/documents": [""],
    "/audit": [""],
    "/grants": ["", "everything=true"],
    "/schedules": [""],
    "/agents/{agent}/schedules": [""],
}
"""Every list that comes in pages, with the queries by which it is read in the test."""
PAGED_ELSEWHERE = {"/memory/receipts", "/passages/{passage}/history", "/tokens"}
"""Those that another test reads."""


def is_list(one: ApiEndpoint) -> bool:
    fields = getattr(one.answer, "more", {}) if one.method == "GET" else {}
    return "items" in fields and "next" in fields


def test_every_list_that_takes_a_limit_takes_a_cursor():
    bounded = {one.path: one for one in ENDPOINTS if "limit" in one.query.model_fields}
    assert set(bounded) == set(PAGED) | PAGED_ELSEWHERE
    for one in bounded.values():
        assert is_list(one)
        assert "cursor" in one.query.model_fields, one.path
        for name in ("limit", "cursor"):
            assert one.query.model_fields[name].description, (one.path, name)


async def home_with_lists(home: Asterism, place: Path) -> None:
    """Put five items or more into each list."""
    for number in range(5):
        await home.agents.create(f"agent-{number}")
        await home.groups.create(f"group-{number}", members=[f"agent-{number}"])
        await home.people.create(f"person-{number}")
        (place / f"{number}.txt").write_text(f"document {number}")
    await home.agents.create("aria")
    await home.groups.create("duo", members=["aria"])
    await home.sources.add("papers", place)
    await home.sources.sync("papers")
    for number in range(5):
        await home.archive.add("aria", f"passage {number}")
        await home.schedules.add("aria", "tomorrow at 9", f"reminder {number}")
        await home.grants.give(f"tool-{number}", agent="aria")
        await home.blocks.write("aria", "human", Append(f"line {number}"))
        await home.blocks.create("aria", f"block-{number}")
        await home.groups.ask("duo", f"to all {number}")
        await home.agents.ask("aria", f"say {number}", channel="gone", reply_to="ada")
        for _ in range(2):
            await home.agents.ask(f"agent-{number}", "[[call:act {}]]")
        asked = await home.approvals.list()
        await home.turns.wait(await home.approvals.decide(asked[-1].id, approved=False))
    await until(lambda: _has_dead(home, 5))


@pytest.mark.promise("A1", "K2")
async def test_a_delivery_that_was_given_up_is_tried_again(tmp_path: Path):
    outbox = {"first_delay": 0.01, "longest_delay": 0.02, "attempts": 2}
    channel = MemoryChannel()
    channel.trouble(DeliveryError("The room is closed."), DeliveryError("The room is closed."))
    async with (
        open_home(tmp_path, channels={"room": channel}, settings={"outbox": outbox}) as home,
        api_client(home) as client,
    ):
        await home.agents.create("aria")
        await home.agents.ask("aria", "hello", channel="room", reply_to="ada")
        await until(lambda: _has_dead(home, 1))
        (dead,) = (await client.get("/api/outbox?state=dead")).json()["items"]
        for key in (dead["key"], quote(dead["key"], safe="")):
            assert (await client.post(f"/api/outbox/{key}x/retry")).status_code == 404
        again = await client.post(f"/api/outbox/{quote(dead['key'], safe='')}/retry")
        assert again.status_code == 204, again.text
        await until(lambda: len(channel.delivered) == 1)


async def _has_dead(home: Asterism, count: int) -> bool:
    return len(await home.outbox.list("dead")) == count


async def pages_of(client: httpx.AsyncClient, path: str, query: str) -> list[list[Any]]:
    """Follow `next` to the end of a list, two at a time."""
    pages: list[list[Any]] = []
    cursor: dict[str, str] = {}
    while len(pages) < 200:
        answer = await client.get(f"/api{path}?limit=2&{query}", params=cursor or None)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        pages.append(page["items"])
        if page["next"] is None:
            return pages
        cursor = {**dict(httpx.QueryParams(f"limit=2&{query}")), "cursor": page["next"]}
    raise AssertionError(f"{path} never ends")


@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_following_next_gives_every_item_of_every_list_once(tmp_path: Path, engine: str):
    documents = tmp_path / "papers"
    documents.mkdir()
    act = Outside().tool(RetrySafety.UNKNOWN)
    with store(engine) as settings:
        async with (
            open_home(tmp_path / "home", tools=[act], settings=settings) as home,
            api_client(home) as client,
        ):
            await home_with_lists(home, documents)
            names = {"group": "duo", "agent": "aria", "label": "human", "source": "papers"}
            for template, queries in PAGED.items():
                path = template.format(**names)
                for query in queries:
                    whole = (await client.get(f"/api{path}?limit=500&{query}")).json()
                    pages = await pages_of(client, path, query)
                    read = [json.dumps(item) for page in pages for item in page]
                    assert whole["next"] is None
                    assert len(pages) >= 3, path
                    assert sorted(read) == sorted(map(json.dumps, whole["items"])), path
                    assert len(set(read)) == len(read), path


async def test_a_page_goes_on_where_the_last_one_ended_though_rows_come_and_go(tmp_path: Path):
    act = Outside().tool(RetrySafety.UNKNOWN)
    async with open_home(tmp_path, tools=[act]) as home, api_client(home) as client:
        await home.agents.create("aria")
        turns = [(await home.agents.ask("aria", f"say {number}")).turn_id for number in range(4)]
        first = (await client.get("/api/turns?limit=2")).json()
        await home.agents.ask("aria", "one more")
        second = (await client.get(f"/api/turns?limit=2&cursor={first['next']}")).json()
        read = [turn["id"] for page in (first, second) for turn in page["items"]]
        assert read == turns[::-1]

        for _ in range(3):
            await home.agents.ask("aria", "[[call:act {}]]")
        first = (await client.get("/api/approvals?limit=1")).json()
        await home.approvals.decide(first["items"][0]["id"], approved=False)
        rest = (await client.get(f"/api/approvals?cursor={first['next']}")).json()
        assert len(rest["items"]) == 2
        for path in ("turns", "turns?agent=aria", "approvals", "approvals?answered=1", "notices"):
            mark = "&" if "?" in path else "?"
            refused = await client.get(f"/api/{path}{mark}cursor=nothing-such")
            assert (refused.status_code, refused.json()["type"]) == (404, "not-found"), path
            assert "Start at the first page" in refused.json()["detail"]
        assert (await client.get("/api/outbox?cursor=nothing-such")).status_code == 404


async def test_the_document_and_its_page_are_there(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        document = (await client.get("/api/openapi.json")).json()
        page = await client.get("/api/docs")
    assert document["openapi"] == "3.1.0"
    schemas = document["components"]["schemas"]
    entries = schemas["TurnDetails"]["properties"]["entries"]["items"]
    assert entries == {"$ref": "#/components/schemas/Entry"}
    beside = {"/health", "/ready", "/metrics"}
    assert set(document["paths"]) == {f"/api{one.path}" for one in ENDPOINTS} | beside
    for elsewhere in ("/openai/v1", "/mcp", "/api/call"):
        assert elsewhere in document["info"]["description"]
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


@pytest.mark.parametrize("name", ["a.txt", "../b.txt", "b.exe"])
async def test_of_a_form_with_a_file_that_is_refused_none_is_stored(tmp_path: Path, name: str):
    async with open_home(tmp_path) as home, api_client(home) as client:
        files = [("file", ("a.txt", b"one")), ("file", (name, b"two"))]
        refused = await client.post("/api/sources/papers/files", files=files)
        assert refused.status_code == 422
        assert "Nothing was stored" in refused.json()["detail"]
        assert await home.sources.list() == []


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
            if one.verb == OPEN or one.verb.replace("users.", "user.") in OWN_VERBS:
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
        "results": {"0/call/0": "42"},
        "value": "a-key",
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
                    body: Any = None if method == "GET" else {}
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
            asyncio.timeout(120),
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


@pytest.mark.promise("X1", "X5")
@pytest.mark.parametrize("name", ["%2e%2e", "%2e", "..%2f..", "a%2fb", "%2ehidden", "a%5cb"])
async def test_the_name_of_a_source_leads_nowhere_else(tmp_path: Path, name: str):
    async with open_home(tmp_path / "data", work=False) as home, api_client(home) as client:
        before = set((tmp_path / "data").iterdir())
        answer = await client.put(
            f"/api/sources/{name}/files/asterism.toml", content=b"model = 'demo:gullible'"
        )
        assert answer.status_code in (404, 422), answer.text
        assert set((tmp_path / "data").iterdir()) == before


async def test_uploads_are_for_the_owner_of_the_home_alone(tmp_path: Path):
    former = os.umask(0)
    try:
        async with open_home(tmp_path / "data", work=False) as home, api_client(home) as client:
            stored = await client.put("/api/sources/papers/files/a.md", content=b"A word.")
            assert stored.status_code == 200, stored.text
    finally:
        os.umask(former)
    for place in ("uploads", "uploads/papers"):
        assert (tmp_path / "data" / place).stat().st_mode & 0o777 == 0o700


@pytest.mark.promise("T1", "A1")
@pytest.mark.parametrize("path", ["agents/aria", "groups/team"])
async def test_an_id_of_another_message_is_refused_and_the_same_message_is_not(
    tmp_path: Path, path: str
):
    async with open_home(tmp_path) as home, api_client(home) as client:
        await home.agents.create("aria")
        await home.groups.create("team", members=["aria"])
        once: dict[str, object] = {"text": "one", "external_id": "E1"}
        first = await client.post(f"/api/{path}/ask", json=once)
        assert first.status_code == 200
        again = await client.post(f"/api/{path}/messages", json=once)
        assert (again.status_code, again.json()["duplicate"]) == (202, True)
        for way in ("messages", "ask"):
            other = await client.post(f"/api/{path}/{way}", json={**once, "text": "two"})
            assert other.status_code == 409, other.text
            assert "says something else" in other.json()["detail"]
        await home.agents.send("aria", "x", external_id="E2")
        with pytest.raises(Conflict):
            await home.agents.send("aria", "y", external_id="E2")
        # A channel that delivers an edited message again is answered once.
        for text in ("hello", "hello, edited"):
            receipt = await home.agents.send("aria", text, channel="chat", external_id="C1")
        assert receipt.duplicate


@pytest.mark.promise("A1")
async def test_lists_that_grow_are_read_page_by_page(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        for name in ("aria", "bea"):
            agent = await home.agents.create(name)
            for day in ("Monday", "Friday"):
                await home.schedules.add(agent, f"every {day} at 9", f"{name} on {day}")
            await home.grants.give(name, agent=agent)
            await home.tokens.create(name)
        passage = (await agent.archive.add("One.")).passage.id
        await home.archive.append(passage, "Two.")
        for text in ("first", "second", "third"):
            await client.post("/api/memory/forget", json={"texts": [text]})
        for path, count in (
            ("/api/schedules", 4),
            ("/api/agents/aria/schedules", 2),
            ("/api/grants", 2),
            ("/api/tokens", 3),
            (f"/api/passages/{passage}/history", 1),
            ("/api/memory/receipts", 3),
        ):
            whole = (await client.get(path)).json()
            assert (len(whole["items"]), whole["next"]) == (count, None), path
            found: list[Any] = []
            page: dict[str, Any] = {"next": ""}
            while page["next"] is not None:
                cursor = f"&cursor={page['next']}" if page["next"] else ""
                page = (await client.get(f"{path}?limit=1{cursor}")).json()
                assert len(page["items"]) == 1
                found += page["items"]
            for item in (*found, *whole["items"]):
                item.pop("used_at", None)  # of the token that asks
            assert found == whole["items"], path
        due = [one["due_at"] for one in (await client.get("/api/schedules")).json()["items"]]
        assert due == sorted(due)
        limited = (await home.tokens.create("one", agents=["bea"])).secret
        seen = await client.get("/api/schedules", headers={"authorization": f"Bearer {limited}"})
        assert {one["agent"] for one in seen.json()["items"]} == {"bea"}


@pytest.mark.promise("A1", "X5")
async def test_stored_keys_are_listed_set_and_removed_and_never_told(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        path, value = "/api/keys/mailer", {"value": "a-secret-of-the-mailer"}
        assert (await client.put(path, json=value)).json() == {"replaced": False}
        assert (await client.put(path, json=value)).json() == {"replaced": True}
        listed = await client.get("/api/keys")
        assert [key["name"] for key in listed.json()["items"]] == ["mailer"]
        assert value["value"] not in listed.text
        assert home.keys.get("mailer") == value["value"]
        assert (await client.delete(path)).status_code == 204
        assert (await client.delete(path)).status_code == 404
        viewer = (await home.tokens.create("looker", role="viewer")).secret
        refused = await client.put(path, json=value, headers={"authorization": f"Bearer {viewer}"})
        assert refused.status_code == 403


@pytest.mark.promise("A1")
async def test_what_else_a_program_asks_for(tmp_path: Path):
    clock = ManualClock()
    async with open_home(tmp_path, clock=clock) as home, api_client(home) as client:
        aria = await home.agents.create("aria")
        await aria.blocks["human"].append("Has a cat.")
        clock.forward(seconds=60)
        before = to_datetime(clock()).isoformat()
        clock.forward(seconds=60)
        await aria.blocks["human"].append("Has a dog.")
        block = "/api/agents/aria/blocks/human"
        version = (await client.get(block)).json()["version"]
        diff = (await client.get(f"{block}/diff?a={version - 1}")).json()["diff"]
        assert "+Has a dog." in diff
        assert "+Has a cat." not in diff
        lines = (await client.get(f"{block}/blame")).json()["items"]
        assert lines[-1]["text"] == "Has a dog."
        assert lines[-1]["made_by"]
        moment = {"moment": before}
        then = (await client.get("/api/agents/aria/memory/at", params=moment)).json()
        assert "Has a cat." in str(then["blocks"])
        assert "Has a dog." not in str(then["blocks"])
        token = (await client.get("/api/tokens/test-owner")).json()
        assert (token["name"], "secret" in token) == ("test-owner", False)
        assert (await client.get("/api/tokens/nobody")).status_code == 404
        assert (await client.get("/api/mcp-servers")).json() == {"items": [], "next": None}
        assert (await client.get("/api/spending/caps")).json()["next"] is None
        compacted = await client.post("/api/agents/aria/context/compact")
        assert (compacted.status_code, compacted.json()["type"]) == (409, "conflict")
        exported = await client.get("/api/audit/export")
        assert exported.headers["content-type"].startswith("application/x-ndjson")
        kinds = [json.loads(line)["kind"] for line in exported.text.splitlines()]
        assert "agent.created" in kinds
        limited = (await home.tokens.create("talker", scopes=["talk"])).secret
        refused = await client.get(
            "/api/audit/export", headers={"authorization": f"Bearer {limited}"}
        )
        assert refused.status_code == 403


@pytest.mark.promise("A1")
async def test_a_program_gives_a_turn_what_came_of_its_calls(tmp_path: Path):
    function = {"name": "look_up", "description": "Look up.", "parameters": {"type": "object"}}
    model = ScriptedModel([calls(("look_up", "{}")), "It is 42."])
    async with open_home(tmp_path, model) as home, api_client(home) as client:
        aria = await home.agents.create("aria")
        wish = ClientRequest(tools=({"type": "function", "function": function},))
        asked = await home.agents.ask(aria, "What is it?", client=wish)
        assert asked.state is TurnState.PARKED
        path = f"/api/turns/{asked.turn_id}/results"
        wrong = await client.post(path, json={"results": {"7/call/7": "42"}})
        assert wrong.status_code == 404
        given = await client.post(path, json={"results": {"0/call/0": "42"}})
        assert (given.status_code, given.json()["turn_id"]) == (202, asked.turn_id)
        await until(lambda: _has_ended(client, asked.turn_id))
        outcome = (await client.get(f"/api/turns/{asked.turn_id}/outcome")).json()
        assert outcome["text"] == "It is 42."


async def _has_ended(client: httpx.AsyncClient, turn_id: str) -> bool:
    return (await client.get(f"/api/turns/{turn_id}/outcome")).json()["state"] == "done"
