"""Ids of what whoever asks may not see are answered as ids that exist nowhere."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asterism import Asterism
from asterism.errors import NotFound
from asterism.store import agents
from asterism.testing.clock import ManualClock
from asterism.types.turns import Notice
from tests.api_scene import api_client
from tests.scenes import open_home, until

pytestmark = pytest.mark.promise("X1")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[Asterism]:
    async with open_home(tmp_path, clock=ManualClock()) as opened:
        aria = await opened.agents.create("aria")
        for name in ("one", "two"):
            notice = Notice(f"note_{name}", aria.id, None, "model", f"About {name}.", 1)
            await opened.database.write(lambda tx, notice=notice: agents.put_notice(tx, notice))
        yield opened


async def unseen(home: Asterism) -> list[str]:
    return [notice.id for notice in await home.notices.list() if notice.id.startswith("note_o")]


async def test_notices_are_seen_by_those_who_may_see_them(home: Asterism):
    for role in ("operator", "editor"):
        async with api_client(home, role) as client:
            told: list[str] = []
            for notice_id in ("note_one", "note_none"):
                answer = await client.post("/api/notices/seen", json={"ids": [notice_id]})
                assert (answer.status_code, answer.json()["type"]) == (404, "not-found")
                told.append(answer.json()["detail"].replace(notice_id, ""))
            assert told[0] == told[1]
    assert await unseen(home) == ["note_one"]
    async with api_client(home) as client:
        mixed = await client.post("/api/notices/seen", json={"ids": ["note_one", "note_none"]})
        assert mixed.status_code == 404
        assert await unseen(home) == ["note_one"]  # all of them or none
        done = await client.post("/api/notices/seen", json={"ids": ["note_one", "note_two"]})
        assert done.status_code == 204
    assert await unseen(home) == []


async def test_a_delivery_is_retried_by_those_who_may_see_its_turn(home: Asterism):
    await home.agents.send("aria", "hello", channel="gone", reply_to="ada")

    async def is_dead() -> bool:
        return bool(await home.outbox.list("dead"))

    await until(is_dead)
    (dead,) = await home.outbox.list("dead")
    operator = await home.authenticate((await home.tokens.create("op", role="operator")).secret)
    told: list[str] = []
    for key in (dead.key, "none"):
        with pytest.raises(NotFound) as refused:
            await operator.outbox.retry(key)
        told.append(refused.value.message.replace(key, ""))
    assert told[0] == told[1]
    assert not await home.audit.list(kind="delivery.retried")
    await home.outbox.retry(dead.key)
    assert await home.audit.list(kind="delivery.retried")
