"""Idempotency-Key: the same request again is answered as before, and not done again."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import orjson
import pytest

from asterism import Asterism
from asterism.api.endpoints import EVENTS
from asterism.api.routes import ENDPOINTS
from asterism.api.server import HttpApplication
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from tests.scenes import open_home, until

KEY = {"idempotency-key": "0b9c-1"}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings that put what is stored into one engine or the other."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store.url": url}


@asynccontextmanager
async def client_of(home: Asterism, secret: str) -> AsyncGenerator[httpx.AsyncClient, None]:
    transport = httpx.ASGITransport(cast("Any", HttpApplication(home)))
    headers = {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://home", headers=headers
    ) as client:
        yield client


@pytest.mark.promise("A1")
async def test_the_same_request_is_done_once(tmp_path: Path, engine: dict[str, str]):
    async with open_home(tmp_path, settings=engine) as home:
        secret = (await home.tokens.create("ci")).secret
        async with client_of(home, secret) as client:
            first, second = await asyncio.gather(
                *(client.post("/api/agents", json={"name": "aria"}, headers=KEY) for _ in range(2))
            )
            assert (first.status_code, second.status_code) == (201, 201)
            assert first.content == second.content
            assert first.headers["etag"] == second.headers["etag"]
            replays = sorted("idempotency-replayed" in one.headers for one in (first, second))
            assert replays == [False, True]
    async with open_home(tmp_path, settings=engine) as home, client_of(home, secret) as client:
        third = await client.post("/api/agents", json={"name": "aria"}, headers=KEY)
        assert (third.status_code, third.content) == (201, first.content)
        created = [one for one in await home.audit.list() if one.kind == "agent.created"]
        assert len(created) == 1


@pytest.mark.promise("A1")
async def test_a_key_stands_for_one_request_of_one_token(tmp_path: Path):
    async with open_home(tmp_path) as home:
        secret = (await home.tokens.create("ci")).secret
        other = (await home.tokens.create("other")).secret
        async with client_of(home, secret) as client:
            await client.post("/api/agents", json={"name": "aria"}, headers=KEY)
            for path, body in (
                ("/api/agents", {"name": "bea"}),
                ("/api/people", {"name": "aria"}),
                ("/api/agents/aria/messages", {"text": "hello"}),
            ):
                refused = await client.post(path, json=body, headers=KEY)
                assert refused.status_code == 422
                assert "another request" in refused.json()["detail"]
            written = await client.post(
                "/api/agents",
                content=b'{ "name" :\n"aria" }',
                headers={**KEY, "content-type": "application/json"},
            )
            assert written.status_code == 201  # the same, however it is written
        async with client_of(home, other) as client:
            own = await client.post("/api/agents", json={"name": "bea"}, headers=KEY)
            assert own.status_code == 201
        assert [agent.name for agent in await home.agents.list()] == ["aria", "bea"]


@pytest.mark.promise("A1")
async def test_a_request_that_did_nothing_can_be_sent_again(tmp_path: Path):
    async with open_home(tmp_path) as home:
        secret = (await home.tokens.create("ci")).secret
        async with client_of(home, secret) as client:
            aria = await home.agents.create("aria")
            taken = await client.post("/api/agents", json={"name": "aria"}, headers=KEY)
            assert taken.status_code == 409
            await home.agents.delete(aria)
            made = await client.post("/api/agents", json={"name": "aria"}, headers=KEY)
            assert made.status_code == 201
            invalid = await client.post(
                "/api/agents", json={"name": "bea"}, headers={"idempotency-key": "x" * 201}
            )
            assert invalid.status_code == 400


@pytest.mark.promise("A1")
async def test_what_was_cut_off_is_never_done_a_second_time(
    tmp_path: Path, engine: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    async with open_home(tmp_path, settings=engine) as home:
        secret = (await home.tokens.create("ci")).secret
        async with client_of(home, secret) as client:
            with monkeypatch.context() as patch:

                async def lost(*_: object) -> None:
                    raise asyncio.CancelledError  # as when the process ends after the effect

                patch.setattr("asterism.api.idempotency._record", lost)
                with pytest.raises(asyncio.CancelledError):
                    await client.post("/api/agents", json={"name": "aria"}, headers=KEY)
            monkeypatch.setattr("asterism.api.idempotency._PATIENCE", 0.2)
            again = await client.post("/api/agents", json={"name": "aria"}, headers=KEY)
            assert again.status_code == 409
            assert "how it ended is not known" in again.json()["detail"]
        assert [agent.name for agent in await home.agents.list()] == ["aria"]


@pytest.mark.promise("A1")
async def test_a_key_is_forgotten_after_a_day(tmp_path: Path):
    clock = ManualClock()
    async with open_home(tmp_path, clock=clock) as home:
        secret = (await home.tokens.create("ci")).secret
        async with client_of(home, secret) as client:
            await client.post("/api/people", json={"name": "Anna"}, headers=KEY)
            clock.forward(seconds=23 * 3_600)
            again = await client.post("/api/people", json={"name": "Anna"}, headers=KEY)
            assert again.status_code == 201
            clock.forward(seconds=2 * 3_600)
            late = await client.post("/api/people", json={"name": "Anna"}, headers=KEY)
            assert late.status_code == 409  # a new request, and the name is taken
        rows = await home.database.read(lambda tx: tx.all("SELECT key FROM idempotency_keys"))
        assert rows == []


@pytest.mark.promise("A1", "X5")
async def test_a_recorded_answer_cannot_be_read_in_the_database(tmp_path: Path):
    async with open_home(tmp_path) as home:
        secret = (await home.tokens.create("ci")).secret
        async with client_of(home, secret) as client:
            made = await client.post("/api/tokens", json={"name": "new"}, headers=KEY)
            told = made.json()["secret"]
            again = await client.post("/api/tokens", json={"name": "new"}, headers=KEY)
            assert again.json()["secret"] == told
            await client.post("/api/memory/forget", json={"texts": ["something else"]})
            gone = await client.post("/api/tokens", json={"name": "new"}, headers=KEY)
            assert (gone.status_code, told in gone.text) == (409, False)
    assert not _holds(tmp_path, told)


def _holds(place: Path, text: str) -> list[Path]:
    """The files below a directory that hold a text."""
    files = [file for file in place.rglob("*") if file.is_file()]
    return [file for file in files if text.encode() in file.read_bytes()]


@pytest.mark.promise("A1")
async def test_a_message_with_a_key_is_answered_once_also_as_a_stream(tmp_path: Path):
    async with open_home(tmp_path) as home:
        secret = (await home.tokens.create("ci")).secret
        await home.agents.create("aria")
        async with client_of(home, secret) as client:
            texts: list[str] = []
            for path in ("ask", "ask", "messages"):
                key = {"idempotency-key": f"key of {path}".replace(" ", "-")}
                answer = await client.post(
                    f"/api/agents/aria/{path}", json={"text": "hello"}, headers=key
                )
                assert answer.status_code in (200, 202)
                texts.append(answer.json()["turn_id"])
            assert texts[0] == texts[1]
            assert texts[2] != texts[0]


def test_every_post_that_changes_something_takes_a_key():
    without = {one.path for one in ENDPOINTS if one.method == "POST" and not one.keyed}
    assert without == {
        *("/search", "/config/check", "/login", "/logout", "/backups/{backup}/verify"),
        *("/logout/everywhere", "/session/password"),
        "/sources/{source}/files",  # the same file again replaces it
    }
    assert not [one.path for one in ENDPOINTS if one.keyed and one.method != "POST"]
    assert [one.path for one in ENDPOINTS if one.keyed and one.media == EVENTS]


@pytest.mark.promise("A1")
async def test_a_message_to_a_group_is_answered_once_after_a_crash(
    tmp_path: Path, engine: dict[str, str]
):
    async with open_home(tmp_path, settings=engine) as home:
        secret = (await home.tokens.create("ci")).secret
        await home.agents.create("aria")
        await home.groups.create("ring", members=["aria"])
        await home.halts.halt("The process ends in the middle of both requests.")
        async with client_of(home, secret) as client:
            body = {"text": "hello"}
            waiting = asyncio.create_task(
                client.post("/api/groups/ring/ask", json=body, headers=KEY)
            )
            await until(lambda: _waits(home))
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    async with open_home(tmp_path, settings=engine) as home, client_of(home, secret) as client:
        await home.halts.resume()
        again = await client.post("/api/groups/ring/ask", json=body, headers=KEY)
        assert (again.status_code, again.json()["agent"]) == (200, "ring")
        handed_in = {"idempotency-key": "k2"}
        for _ in range(2):
            sent = await client.post("/api/groups/ring/messages", json=body, headers=handed_in)
            assert sent.status_code == 202
        ring = await home.groups.get("ring")
        await until(lambda: _rests(home))
        turns = [turn for turn in await home.turns.list() if turn.agent_id == ring.id]
        assert len(turns) == 2


async def _rests(home: Asterism) -> bool:
    return (await home.counts())[1] == 0


async def _waits(home: Asterism) -> bool:
    return (await home.counts())[1] > 0


@pytest.mark.promise("A1")
async def test_a_request_that_was_cut_off_before_it_began_can_be_sent_again(
    tmp_path: Path, engine: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    async with open_home(tmp_path, settings=engine) as home:
        secret = (await home.tokens.create("ci")).secret
        async with client_of(home, secret) as client:
            write = home.database.write

            async def cut_off(work: Any) -> Any:
                claimed = await write(work)
                monkeypatch.undo()
                del claimed
                raise asyncio.CancelledError  # as when the server stops just now

            monkeypatch.setattr(home.database, "write", cut_off)
            with pytest.raises(asyncio.CancelledError):
                await client.post("/api/agents", json={"name": "aria"}, headers=KEY)
            assert await home.agents.list() == []
            made = await client.post("/api/agents", json={"name": "aria"}, headers=KEY)
            assert made.status_code == 201


@pytest.mark.promise("A1", "X5")
async def test_a_password_in_a_body_cannot_be_tried_out_by_what_is_stored(tmp_path: Path):
    async with open_home(tmp_path) as home:
        bodies = [{"passphrase": word} for word in ("correct horse", "battery staple")]
        for name in ("one", "two"):
            secret = (await home.tokens.create(name)).secret
            async with client_of(home, secret) as client:
                await client.post("/api/backups", json=bodies[0], headers=KEY)
                other = await client.post("/api/backups", json=bodies[1], headers=KEY)
                assert other.status_code == 422
        rows = await home.database.read(lambda tx: tx.all("SELECT request FROM idempotency_keys"))
        seen = [bytes(row[0]) for row in rows]
        # One body, and what stands for it can be made with the secret of the token only.
        assert len(set(seen)) == 2
        body = {"note": "", "passphrase": "correct horse"}
        parts = ["POST", "/backups", {}, {}, body]
        plain = orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
        assert hashlib.sha256(plain).digest() not in seen
