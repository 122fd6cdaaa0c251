"""What a token makes allows no more than it does and lasts no longer, whichever way it is asked."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from asterism import Asterism
from asterism.times import to_datetime
from asterism.version import __version__
from asterism.wire import from_line, to_line
from tests.api_scene import api_client
from tests.scenes import open_home

pytestmark = pytest.mark.promise("X1")

PASSWORD = "eleven green bottles"


async def made_token(home: Asterism, name: str, **options: Any) -> dict[str, str]:
    """Return the header that brings a new token."""
    return {"authorization": f"Bearer {(await home.tokens.create(name, **options)).secret}"}


async def ending_token(home: Asterism) -> dict[str, str]:
    """Return the header of a token of the owner that lasts an hour."""
    return await made_token(home, "short", expires_at=to_datetime(home.now()) + timedelta(hours=1))


async def call(
    client: httpx.AsyncClient, headers: dict[str, str], verb: str, *args: Any, **named: Any
) -> dict[str, Any]:
    """Call a verb by its name; return the line that ends the answer."""
    called = {"call": verb, "args": args, "kwargs": named, "version": __version__}
    answer = await client.post("/api/call", content=to_line(called), headers=headers)
    assert answer.status_code == 200, answer.text
    return from_line(answer.content.splitlines()[-1])


@pytest.mark.parametrize(
    ("verb", "args"),
    [
        ("tokens.create", ["forever"]),
        ("users.set_password", ["owner", PASSWORD]),
        ("people.link", ["owner", "telegram:666"]),
        ("people.create", ["Eve"]),
        ("people.set_roles", ["ada", ["admin"]]),
        ("people.merge", ["owner", "ada"]),
    ],
)
async def test_a_verb_called_by_its_name_gives_nobody_access_for_longer(
    tmp_path: Path, verb: str, args: list[Any]
):
    async with open_home(tmp_path, work=False) as home, api_client(home) as client:
        await home.people.create("ada")
        named = {"roles": ["admin"]} if verb == "people.create" else {}
        found = await call(client, await ending_token(home), verb, *args, **named)
        assert found["error"]["!"] == "asterism.errors.NotAllowed", found
        assert "short" in found["error"]["reason"]
        assert [token.name for token in await home.tokens.list()] == ["short", "test-owner"]
        assert await home.users.list() == []
        assert [person.name for person in await home.people.list()] == ["owner", "ada"]


async def test_what_is_called_by_its_name_is_told_with_its_token(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, api_client(home) as client:
        short = await ending_token(home)
        made = await call(client, short, "agents.create", "aria")
        assert made["result"]["name"] == "aria"
        await call(client, short, "grants.give", "file", agent="aria")
        for kind in ("agent.created", "grant.given"):
            (event,) = await home.audit.list(kind=kind)
            assert (event.body or {})["token"] == "short", kind
        # The token is known there, and can be given back.
        assert (await call(client, short, "tokens.revoke_current"))["result"]["name"] == "short"
        refused = await client.post("/api/call", content=b"{}", headers=short)
        assert refused.status_code == 401


@pytest.mark.parametrize("limits", ["ending", "narrowed"])
async def test_a_limited_token_gives_no_lasting_access_through_people(tmp_path: Path, limits: str):
    async with open_home(tmp_path, work=False) as home, api_client(home) as client:
        await home.people.create("ada", roles=["viewer"])
        await home.people.create("bob")
        if limits == "ending":
            theirs = await ending_token(home)
        else:
            theirs = await made_token(home, "governor", scopes=["read", "govern"])
        before = await home.people.list()
        tried: list[tuple[str, str, Any]] = [
            ("POST", "/api/people/owner/accounts", {"account": "telegram:666"}),
            ("POST", "/api/people/ada/accounts", {"account": "telegram:666"}),
            ("POST", "/api/people", {"name": "Eve", "roles": ["admin"]}),
            ("PATCH", "/api/people/bob", {"roles": ["admin"]}),
            ("PATCH", "/api/people/bob", {"trust": "known"}),
            ("POST", "/api/people/owner/merge", {"person": "ada"}),
            ("PUT", "/api/users/owner/password", {"password": PASSWORD}),
        ]
        for method, path, body in tried:
            answer = await client.request(method, path, json=body, headers=theirs)
            assert answer.status_code == 403, (path, answer.text)
            assert answer.json()["type"] == "not-allowed", path
        assert await home.people.list() == before
        # What gives nobody access can be done.
        made = await client.post("/api/people", json={"name": "Eve"}, headers=theirs)
        assert made.status_code == 201
        renamed = await client.patch("/api/people/bob", json={"name": "Rob"}, headers=theirs)
        assert renamed.status_code == 200
        listed = await client.get("/api/people", headers=theirs)
        assert listed.status_code == 200


async def test_a_narrowed_token_gives_the_roles_that_it_allows_itself(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, api_client(home) as client:
        theirs = await made_token(home, "governor", scopes=["read", "govern"])
        made = await client.post(
            "/api/people", json={"name": "Vera", "roles": ["viewer"]}, headers=theirs
        )
        assert made.status_code == 201, made.text


async def test_an_admin_revokes_no_token_of_the_owner(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, api_client(home, "admin") as client:
        owners = await home.tokens.create("script")
        await home.tokens.create("reader", role="viewer")
        refused = await client.delete("/api/tokens/script")
        assert (refused.status_code, refused.json()["type"]) == (403, "not-allowed")
        assert await home.authenticate(owners.secret)
        assert (await client.delete("/api/tokens/reader")).status_code in (200, 204)
        assert [token.name for token in await home.tokens.list()] == ["script", "test-admin"]
