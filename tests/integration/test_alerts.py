"""Alerts: found by themselves, told once for each cause; and quotas."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism
from asterism.app import alerts
from asterism.app.alerts import AlertWatch
from asterism.errors import DeliveryError
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.types.turns import Delivery
from tests.scenes import open_home, until

pytestmark = pytest.mark.promise("O4")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class Home:
    """A home whose alerts are looked for when the test says so."""

    def __init__(self, home: Asterism, clock: ManualClock, data: Path) -> None:
        self.home = home
        self._clock = clock
        self.watch = AlertWatch(home._engine, data)  # pyright: ignore[reportPrivateUsage] - as the home makes it

    async def look(self, after: float = 60) -> list[str]:
        """Look some time later, and return the causes of what is wrong."""
        self._clock.forward(seconds=after)
        await self.watch.look()
        return [alert.cause for alert in await self.home.alerts.list()]

    async def notices(self) -> list[str]:
        found = await self.home.notices.list()
        return [notice.text for notice in found if notice.kind == "alert"]


@asynccontextmanager
async def opened(place: Path, clock: ManualClock, **options: Any) -> AsyncGenerator[Home, None]:
    async with open_home(place, clock=clock, **options) as home:
        yield Home(home, clock, place)


def disk(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    def free_percent(place: Path) -> float:
        del place
        return free

    monkeypatch.setattr(alerts, "_free_percent", free_percent)


async def test_a_cause_is_told_once_until_it_comes_back_much_later(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    channel = MemoryChannel()
    settings = {"alerts.channel": "pager", "alerts.to": "on-call"}
    options: dict[str, Any] = {"settings": settings, "channels": {"pager": channel}}
    async with opened(tmp_path, clock, **options) as home:
        disk(monkeypatch, 50)
        assert await home.look() == []
        disk(monkeypatch, 3)
        for _ in range(3):
            assert await home.look() == ["disk"]
        assert len(await home.notices()) == 1
        assert [(sent.target, sent.text[:14]) for sent in channel.delivered] == [
            ("on-call", "3.0 % of the d")
        ]
        # It comes and goes: still the same.
        disk(monkeypatch, 50)
        assert await home.look() == ["disk"]
        await home.look()
        await home.look()
        assert await home.look() == []
        disk(monkeypatch, 3)
        assert await home.look() == ["disk"]
        assert len(channel.delivered) == 1
    # Nor does a restart tell of it again.
    async with opened(tmp_path, clock, **options) as home:
        assert await home.look() == ["disk"]
        assert len(await home.notices()) == 1
        disk(monkeypatch, 50)
        for _ in range(3):
            await home.look()
        assert await home.look() == []
        disk(monkeypatch, 2)
        assert await home.look(after=4_000) == ["disk"]
        assert (len(await home.notices()), len(channel.delivered)) == (2, 2)
        kinds = [event.kind for event in await home.home.audit.list(limit=100)]
        assert (kinds.count("alert.raised"), kinds.count("alert.ended")) == (2, 2)


class Refusing(MemoryChannel):
    """A channel that refuses at first."""

    def __init__(self, times: int, *, final: bool = False) -> None:
        super().__init__()
        self.times = times
        self.final = final
        self.keys: list[str] = []

    async def deliver(self, delivery: Delivery) -> None:
        self.keys.append(delivery.key)
        if len(self.keys) <= self.times:
            raise DeliveryError("Not now.", final=self.final)
        await super().deliver(delivery)


@pytest.mark.parametrize(("final", "tries"), [(False, 3), (True, 1)])
async def test_a_channel_that_refuses_is_asked_again_with_the_same_key(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, *, final: bool, tries: int
):
    disk(monkeypatch, 1)
    channel = Refusing(2, final=final)
    settings = {"alerts.channel": "pager"}
    async with opened(tmp_path, clock, settings=settings, channels={"pager": channel}) as home:
        for _ in range(5):
            await home.look()
    assert (len(channel.keys), len(set(channel.keys))) == (tries, 1)


async def test_each_cause_is_found(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    disk(monkeypatch, 50)
    settings = {
        "budget.day": 1.0,
        "backups.every": "1 hour",
        "backups.directory": "/proc/nowhere",
        "outbox.attempts": 1,
    }
    channels = {"door": Refusing(99, final=True)}
    async with opened(tmp_path, clock, settings=settings, channels=channels) as home:
        await home.home.agents.create("aria")
        assert await home.look() == []
        await home.home.agents.ask("aria", "hello", channel="door", reply_to="Ann")
        await until(lambda: has_dead(home.home))
        assert await home.look() == ["deliveries"]
        registry = home.home._engine.models  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(registry, "breakers", lambda: {"openai": True, "ollama": False})
        assert await home.look() == ["deliveries", "model:openai"]
        found = await home.look(after=3 * 3_600)
        assert found == ["deliveries", "model:openai", "backup"]
        (key,) = [delivery.key for delivery in await home.home.outbox.list("dead")]
        channels["door"].times = 0
        await home.home.outbox.retry(key)
        await until(lambda: has_dead(home.home, dead=False))
        for _ in range(4):
            found = await home.look()
        assert found == ["model:openai", "backup"]


async def has_dead(home: Asterism, *, dead: bool = True) -> bool:
    return bool(await home.outbox.list("dead")) == dead


async def test_budgets_and_questions_that_wait(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    from asterism.types.permissions import ApprovalRecord
    from asterism.types.spending import Cap, Span, Standing, Total

    used = 85

    async def standings(*_: object) -> list[Standing]:
        cap = Cap("all", Span.DAY, 100, "everybody", "budget.day")
        return [Standing(cap, Total("all", "2026-11-18", spent=used), "tomorrow")]

    disk(monkeypatch, 50)
    monkeypatch.setattr(alerts, "standings", standings)
    async with opened(tmp_path, clock) as home:
        assert await home.look() == ["budget:budget.day:80:2026-11-18"]
        used = 120
        assert (await home.look())[-1] == "budget:budget.day:100:2026-11-18"
        assert [text[:22] for text in await home.notices()] == [
            "85 % of budget.day are",
            "120 % of budget.day ar",
        ]
        asked_at = clock()

        class Waiting:
            asked_at_ms = asked_at

        async def waiting(_: object) -> list[ApprovalRecord]:
            return [Waiting()]  # pyright: ignore[reportReturnType] - its age is all that counts

        monkeypatch.setattr(alerts.approvals, "waiting", waiting)
        assert "approvals" not in await home.look()
        assert "approvals" in await home.look(after=86_400)


@pytest.mark.postgres
async def test_of_several_processes_one_tells(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    disk(monkeypatch, 1)
    first, second = MemoryChannel(), MemoryChannel()
    with postgres_server().database() as url:
        settings = {"store.url": url, "alerts.channel": "pager"}
        async with (
            opened(tmp_path / "a", clock, settings=settings, channels={"pager": first}) as one,
            opened(tmp_path / "b", clock, settings=settings, channels={"pager": second}) as two,
        ):
            for _ in range(3):
                assert await one.look() == await two.look() == ["disk"]
            assert len(await one.notices()) == 1
            assert len(first.delivered + second.delivered) == 1


async def test_they_are_looked_for_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    disk(monkeypatch, 1)
    async with open_home(tmp_path, settings={"alerts.every": 1}) as home:

        async def is_told() -> bool:
            return [alert.cause for alert in await home.alerts.list()] == ["disk"]

        await until(is_told)


async def test_a_quota_of_agents(tmp_path: Path):
    from asterism.errors import QuotaReached

    async with open_home(tmp_path, settings={"quotas.agents": 2}) as home:
        await home.agents.create("aria")
        await home.agents.ensure("bea")
        for making in (
            home.agents.create("cleo"),
            home.agents.ensure("cleo"),
            home.agents.clone("aria", "cleo"),
        ):
            with pytest.raises(QuotaReached, match=r"quotas\.agents allows no more"):
                await making
        outcome = await home.agents.ask("aria", "hello")
        with pytest.raises(QuotaReached, match=r"quotas\.agents allows no more"):
            await home.turns.fork(outcome.turn_id)
        assert len(await home.agents.list()) == 2
        assert (await home.agents.ensure("aria")).name == "aria"
        await home.agents.delete("bea")
        await home.agents.create("cleo")
