"""Deliveries whose process is killed halfway go out again under the same key, and soon."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, Delivery
from asterism.testing.channel import MemoryChannel
from asterism.testing.postgres import postgres_server
from tests.conformance.memory_scene import ENGINES
from tests.scenes import open_home, until

_SPAWN = get_context("spawn")
MADE_WITHIN = 30.0
"""Six seconds are waited for the dead; the rest is for machines that are slow."""


@pytest.fixture(params=ENGINES)
def settings(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A delivery may take two minutes, which nobody should have to wait for."""
    patient: dict[str, Any] = {"outbox": {"timeout": 120.0}}
    if request.param == "sqlite":
        yield patient
        return
    with postgres_server(fsync=True).database() as url:
        yield patient | {"store": {"url": url}}


class Hanging(MemoryChannel):
    """Never hears that something arrived."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place

    async def deliver(self, delivery: Delivery) -> None:
        (self._place / "begun.part").write_text(delivery.key)
        (self._place / "begun.part").rename(self._place / "begun")
        await asyncio.Event().wait()


def live(place: Path, settings: dict[str, Any]) -> None:
    """Begin a delivery, and hang in it until killed."""
    asyncio.run(_live(place, settings))


async def _live(place: Path, settings: dict[str, Any]) -> None:
    channels = {"room": Hanging(place)}
    async with open_home(place / "data", settings=settings, channels=channels) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "hello", channel="room", reply_to="ada")
        await asyncio.Event().wait()


@asynccontextmanager
async def in_delivery(
    place: Path, settings: dict[str, Any]
) -> AsyncGenerator[tuple[BaseProcess, str], None]:
    """Start a process, and wait until it is in the middle of a delivery; give its key."""
    process = _SPAWN.Process(target=live, args=(place, settings), daemon=True)
    process.start()
    try:
        await until((place / "begun").exists)
        yield process, (place / "begun").read_text()
    finally:
        process.kill()
        await asyncio.to_thread(process.join, 10)


async def kill(process: BaseProcess) -> float:
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    await asyncio.to_thread(process.join, 10)
    return time.monotonic()


@pytest.mark.promise("K2")
async def test_a_delivery_that_was_killed_halfway_is_made_again_after_a_restart(
    tmp_path: Path, settings: dict[str, Any]
):
    channel = MemoryChannel()
    async with in_delivery(tmp_path, settings) as (process, key):
        killed_at = await kill(process)
        async with open_home(
            tmp_path / "data", settings=settings, channels={"room": channel}
        ) as home:
            await until(lambda: bool(channel.delivered))
            took = time.monotonic() - killed_at
            await until(lambda: _all_sent(home))
    print(f"\ndelivered {took:.1f} s after the kill")
    assert [(one.key, one.attempts) for one in channel.delivered] == [(key, 2)]
    assert took < MADE_WITHIN


@pytest.mark.promise("K2", "D2")
@pytest.mark.parametrize("settings", ENGINES[1:], indirect=True)
async def test_a_delivery_of_a_worker_that_is_killed_is_made_by_another(
    tmp_path: Path, settings: dict[str, Any]
):
    channel = MemoryChannel()
    async with (
        in_delivery(tmp_path, settings) as (process, key),
        open_home(tmp_path / "data", settings=settings, channels={"room": channel}) as home,
    ):
        # A slow delivery is left to whoever makes it, for as long as they live.
        await asyncio.sleep(8)
        assert channel.tried == []
        killed_at = await kill(process)
        await until(lambda: bool(channel.delivered))
        took = time.monotonic() - killed_at
        await until(lambda: _all_sent(home))
    print(f"\ndelivered {took:.1f} s after the kill")
    assert [(one.key, one.attempts) for one in channel.delivered] == [(key, 2)]
    assert took < MADE_WITHIN


@pytest.mark.promise("K2", "D2")
@pytest.mark.parametrize("settings", ENGINES[1:], indirect=True)
async def test_a_delivery_of_a_worker_that_stops_is_made_by_another_at_once(
    tmp_path: Path, settings: dict[str, Any]
):
    first, second = Hanging(tmp_path), MemoryChannel()
    settings = settings | {"runtime": {"stalled_after": 3_600.0}}  # nobody is taken for dead
    async with open_home(tmp_path, settings=settings, channels={"room": second}, work=False) as one:
        await one.agents.create("aria")
    async with open_home(tmp_path, settings=settings, channels={"room": first}) as one:
        await one.agents.ask("aria", "hello", channel="room", reply_to="ada")
        await until((tmp_path / "begun").exists)
        other = open_home(tmp_path, settings=settings, channels={"room": second})
        home = await other.__aenter__()
    try:
        await until(lambda: bool(second.delivered))
        await until(lambda: _all_sent(home))
    finally:
        await other.__aexit__(None, None, None)
    assert [one.key for one in second.delivered] == [(tmp_path / "begun").read_text()]


async def _all_sent(home: Asterism) -> bool:
    return not await home.outbox.list() and bool(await home.outbox.list("sent"))
