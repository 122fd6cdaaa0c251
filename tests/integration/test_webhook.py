"""The webhook channel: a real request to a real server, with a key and a signature."""

import hashlib
import hmac
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from asterism.channels.webhook import Webhook
from asterism.errors import ConfigError
from tests.scenes import open_home, until

Seen = list[tuple[str, web.Request, bytes]]


@asynccontextmanager
async def receiver(*statuses: int, location: str = "") -> AsyncGenerator[tuple[str, Seen], None]:
    """A server that answers with these statuses, then with 204; yields its address and log."""
    seen: Seen = []
    left = list(statuses)

    async def take(request: web.Request) -> web.Response:
        seen.append((request.path, request, await request.read()))
        headers = {"location": location} if location and left else None
        return web.Response(status=left.pop(0) if left else 204, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{place:.*}", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"http://127.0.0.1:{port}", seen
    finally:
        await runner.cleanup()


def settings(address: str, **more: Any) -> dict[str, Any]:
    hook = {"type": "webhook", "url": f"{address}/{{target}}", **more}
    outbox = {"first_delay": 0.01, "longest_delay": 0.02, "attempts": 3}
    return {"channels": {"hook": hook}, "outbox": outbox}


@pytest.mark.promise("K1", "K2")
async def test_an_answer_is_posted_with_its_key_and_signature_and_tried_again(tmp_path: Path):
    async with (
        receiver(503) as (address, seen),
        open_home(tmp_path, settings=settings(address, secret="a secret")) as home,
    ):
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "hello", channel="hook", reply_to="kitchen")
        await until(lambda: len(seen) == 2)
        await until(lambda: _sent(home))
    for attempt, (path, request, body) in enumerate(seen, 1):
        assert path == "/kitchen"
        assert request.headers["Idempotency-Key"] == f"{receipt.turn_id}/answer"
        timestamp = request.headers["X-Asterism-Timestamp"]
        assert abs(time.time() - int(timestamp)) < 60
        signed = timestamp.encode() + b"." + body
        digest = hmac.new(b"a secret", signed, hashlib.sha256).hexdigest()
        assert request.headers["X-Asterism-Signature"] == f"sha256={digest}"
        said = orjson.loads(body)
        assert (said["text"], said["attempt"]) == ("answer to: hello", attempt)


@pytest.mark.promise("K1", "K2")
async def test_a_refusal_is_final_and_becomes_a_dead_letter_with_the_next_move(tmp_path: Path):
    async with (
        receiver(404) as (address, seen),
        open_home(tmp_path, settings=settings(address)) as home,
    ):
        await home.agents.create("aria")
        await home.agents.send("aria", "hello", channel="hook", reply_to="kitchen")
        await until(lambda: _has_notice(home))
        [dead] = await home.outbox.list("dead")
        assert "answered 404" in (dead.error or "")
        [notice] = await home.notices.list()
        assert f"asterism outbox retry {dead.key}" in notice.text
        await home.outbox.retry(dead.key)
        await until(lambda: len(seen) == 2)
        await until(lambda: _sent(home))


@pytest.mark.promise("K1", "K2")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed_and_counts_as_a_failure(tmp_path: Path, status: int):
    async with (
        receiver(status, location="/elsewhere") as (address, seen),
        open_home(tmp_path, settings=settings(address)) as home,
    ):
        await home.agents.create("aria")
        await home.agents.send("aria", "hello", channel="hook", reply_to="kitchen")
        await until(lambda: len(seen) == 2)  # tried again, and taken
        await until(lambda: _sent(home))
        assert [path for path, _, _ in seen] == ["/kitchen", "/kitchen"]
        assert {request.method for _, request, _ in seen} == {"POST"}


async def test_a_redirect_for_good_is_given_up_with_the_next_move(tmp_path: Path):
    async with (
        receiver(*[302] * 3, location="/elsewhere") as (address, seen),
        open_home(tmp_path, settings=settings(address)) as home,
    ):
        await home.agents.create("aria")
        await home.agents.send("aria", "hello", channel="hook", reply_to="kitchen")
        await until(lambda: _has_notice(home))
        [dead] = await home.outbox.list("dead")
        assert "answered 302, a redirect to /elsewhere, which is not followed" in (dead.error or "")
        assert len(seen) == 3


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("../admin/delete?all=1&x=#y", "/hooks/..%2Fadmin%2Fdelete%3Fall=1&x=%23y/in"),
        ("a b/ü", "/hooks/a%20b%2F%C3%BC/in"),
        ("%2e%2e", "/hooks/%252e%252e/in"),
        ("discord:#home", "/hooks/discord:%23home/in"),
    ],
)
async def test_a_target_is_one_part_of_the_address(tmp_path: Path, target: str, path: str):
    async with receiver() as (address, seen):
        given = settings(address)
        given["channels"]["hook"]["url"] = f"{address}/hooks/{{target}}/in"
        async with open_home(tmp_path, settings=given) as home:
            await home.agents.create("aria")
            await home.agents.send("aria", "hello", channel="hook", reply_to=target)
            await until(lambda: len(seen) == 1)
            await until(lambda: _sent(home))
            assert seen[0][1].raw_path == path
            assert orjson.loads(seen[0][2])["target"] == target
            # What would lead out of the address is not sent at all.
            await home.agents.send("aria", "hello again", channel="hook", reply_to="..")
            await until(lambda: _has_notice(home))
            assert len(seen) == 1


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "channels.hook.url is None"),
        ({"url": "ftp://x"}, "http:// or https://"),
        ({"url": "http://x", "sekret": "y"}, "channels.hook.sekret is not a setting"),
    ],
)
def test_bad_options_are_told(options: dict[str, Any], told: str):
    with pytest.raises(ConfigError, match=told):
        Webhook("hook", options)


async def _sent(home: Any) -> bool:
    return not await home.outbox.list()


async def _has_notice(home: Any) -> bool:
    return bool(await home.notices.list())
