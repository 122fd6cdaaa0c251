"""Logging in and out of the web page over HTTP."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from asterism import Asterism
from asterism.api.server import HttpApplication
from tests.scenes import open_home

PASSWORD = "seven green umbrellas"
LOCAL, REMOTE = ("127.0.0.1", 5000), ("192.0.2.7", 5000)
PLAIN, SECURE = "http://127.0.0.1:8283", "https://home.example"


@asynccontextmanager
async def browser(
    home: Asterism, base: str = PLAIN, client: tuple[str, int] = LOCAL
) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(cast("Any", HttpApplication(home)), client=client)
    headers = {"origin": base}
    async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers) as inside:
        yield inside


async def log_in(client: httpx.AsyncClient, **more: str) -> httpx.Response:
    return await client.post("/api/login", json={"name": "owner", "password": PASSWORD, **more})


@pytest.mark.promise("X1")
async def test_a_browser_logs_in_works_and_logs_out(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, browser(home) as client:
        await home.users.set_password("owner", PASSWORD)
        begun = await log_in(client)
        assert begun.status_code == 200, begun.text
        shape = begun.json()
        assert (shape["person_id"], shape["roles"]) == ("owner", ["owner"])
        assert shape["constellation"] == "home"
        cookie = SimpleCookie(begun.headers["set-cookie"])["asterism"]
        assert cookie["httponly"]
        assert (cookie["samesite"], cookie["path"], cookie["secure"]) == ("Strict", "/", "")
        assert cookie.value not in begun.text
        again = await client.get("/api/session")
        assert again.json() == shape  # a page that is loaded again has its CSRF token from here
        csrf = {"x-csrf-token": shape["csrf"]}
        made = await client.post("/api/agents", json={"name": "aria"}, headers=csrf)
        assert made.status_code == 201
        assert (await client.post("/api/logout")).status_code == 403
        ended = await client.post("/api/logout", headers=csrf)
        assert ended.status_code == 204
        assert "Max-Age=0" in ended.headers["set-cookie"]
        client.cookies.set("asterism", cookie.value)
        assert (await client.get("/api/session")).status_code == 401
        kinds = [event.kind for event in await home.audit.list()]
        assert {"login.succeeded", "login.ended"} <= set(kinds)


@pytest.mark.promise("X1")
async def test_a_person_changes_their_password_and_logs_out_everywhere(tmp_path: Path):
    other = "eleven blue umbrellas"
    async with (
        open_home(tmp_path, work=False) as home,
        browser(home) as client,
        browser(home) as elsewhere,
    ):
        await home.people.create("Anna", roles=["partner"])
        await home.users.set_password("Anna", PASSWORD)
        csrf = {"x-csrf-token": (await log_in(client, name="Anna")).json()["csrf"]}
        await log_in(elsewhere, name="Anna")
        path, passwords = "/api/session/password", {"old": PASSWORD, "new": other}
        assert (await client.post(path, json=passwords)).status_code == 403
        wrong = {"old": other, "new": other}
        assert (await client.post(path, json=wrong, headers=csrf)).status_code == 403
        changed = await client.post(path, json=passwords, headers=csrf)
        assert changed.status_code == 204, changed.text
        assert "Max-Age=0" in changed.headers["set-cookie"]
        for each in (client, elsewhere):
            assert (await each.get("/api/session")).status_code == 401
        assert (await log_in(client, name="Anna")).status_code == 401
        begun = await log_in(client, name="Anna", password=other)
        await log_in(elsewhere, name="Anna", password=other)
        csrf = {"x-csrf-token": begun.json()["csrf"]}
        ended = await client.post("/api/logout/everywhere", headers=csrf)
        assert ended.status_code == 204
        assert "Max-Age=0" in ended.headers["set-cookie"]
        assert (await elsewhere.get("/api/session")).status_code == 401
        # A token may be for less than the login of whoever made it.
        token = {"authorization": f"Bearer {(await home.tokens.create('t')).secret}"}
        for where, body in (("/api/logout/everywhere", None), (path, passwords)):
            refused = await elsewhere.post(where, json=body, headers=token)
            assert refused.status_code == 403
            assert "takes a session of the web page" in refused.json()["detail"]


@pytest.mark.promise("X1")
async def test_over_tls_the_cookie_is_for_this_host_alone(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, browser(home, SECURE, REMOTE) as client:
        await home.users.set_password("owner", PASSWORD)
        begun = await log_in(client)
        assert begun.status_code == 200
        text = begun.headers["set-cookie"]
        assert text.startswith("__Host-asterism=")
        assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(text.split("; "))
        assert "Domain" not in text


@pytest.mark.promise("X1")
async def test_a_password_is_not_taken_over_a_network_without_tls(tmp_path: Path):
    async with (
        open_home(tmp_path, work=False) as home,
        browser(home, "http://home.example", REMOTE) as client,
    ):
        await home.users.set_password("owner", PASSWORD)
        refused = await log_in(client)
        assert refused.status_code == 403
        assert "HTTPS" in refused.json()["detail"]
        assert "set-cookie" not in refused.headers


@pytest.mark.promise("X1")
async def test_a_page_of_another_origin_gets_nothing_by_the_cookie(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, browser(home) as client:
        await home.users.set_password("owner", PASSWORD)
        csrf = (await log_in(client)).json()["csrf"]
        evil = {"origin": "https://evil.example"}
        refused = await client.post("/api/login", json={}, headers=evil)
        assert refused.status_code == 400
        for headers in (evil, {"origin": "null"}, {"origin": "http://127.0.0.1:9999"}):
            assert (
                await client.post(
                    "/api/login", json={"name": "owner", "password": PASSWORD}, headers=headers
                )
            ).status_code == 403
            # With the cookie and even with the CSRF token of the page.
            stolen = {**headers, "x-csrf-token": csrf}
            made = await client.post("/api/agents", json={"name": "eve"}, headers=stolen)
            assert made.status_code == 403
            read = await client.get("/api/session", headers=headers)
            assert "access-control-allow-origin" not in read.headers
        assert await home.agents.list() == []


@pytest.mark.promise("X1")
async def test_wrong_passwords_are_slowed_down(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, browser(home) as client:
        await home.users.set_password("owner", PASSWORD)
        codes: list[int] = []
        for number in range(12):
            body = {"name": "owner", "password": f"wrong {number}"}
            answer = await client.post("/api/login", json=body)
            codes.append(answer.status_code)
        assert codes[:10] == [401] * 10
        assert codes[-1] == 429
        # Also the right one has to wait.
        late = await log_in(client)
        assert late.status_code == 429
        assert int(late.headers["retry-after"]) > 0


async def test_an_unknown_constellation_is_told_as_a_wrong_password(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, browser(home) as client:
        await home.users.set_password("owner", PASSWORD)
        await home.constellations.ensure("garden")
        wrong = await client.post("/api/login", json={"name": "owner", "password": "not this one"})
        there = await log_in(client, constellation="garden")
        nowhere = await log_in(client, constellation="nowhere")
        assert {answer.status_code for answer in (wrong, there, nowhere)} == {401}
        details = {answer.json()["detail"] for answer in (wrong, there, nowhere)}
        assert len(details) == 1


@pytest.mark.parametrize("role", ["viewer", "partner", "agent-service"])
async def test_everybody_may_know_who_they_are(tmp_path: Path, role: str):
    async with open_home(tmp_path, work=False) as home, browser(home) as client:
        await home.agents.create("aria")
        agents = ["aria"] if role == "agent-service" else []
        made = await home.tokens.create("ci", role=role, agents=agents)
        headers = {"authorization": f"Bearer {made.secret}"}
        told = (await client.get("/api/session", headers=headers)).json()
        assert (told["name"], told["csrf"], told["credential"]) == ("ci", None, made.token.id)
        ended = await client.post("/api/logout", headers=headers)
        assert ended.status_code == 404
        assert "token" in ended.json()["detail"]
