"""A disk without room or with faults: nothing is confirmed that was not stored; work goes on."""

import asyncio
import contextlib
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import apsw
import pytest

from asterism import Asterism, Signal, Tool, ToolContext, TurnState, tool
from asterism.errors import StoreFull, StoreUnavailable
from asterism.ports import Emit, ModelRequest
from asterism.store.sqlite import open_sqlite
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Reply, RetrySafety
from tests.api_scene import api_client
from tests.scenes import obedient, open_home, until
from tests.torture.disk import MeddledDisk, MeddledFile, Operation


class BadDisk:
    """A disk with trouble that can be switched on: `full`, or `fsync` for one that fails."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.refused = 0
        self.disk = MeddledDisk(self._meddle)

    def _meddle(self, operation: Operation, file: MeddledFile, data: bytes, offset: int) -> None:
        if self.trouble == "full" and operation == "write":
            self.refused += 1
            raise apsw.FullError("no space left on device")
        if self.trouble == "fsync" and operation == "sync":
            self.refused += 1
            raise apsw.IOError("input/output error")

    @contextlib.asynccontextmanager
    async def home(self, place: Path, *given: Any, **more: Any) -> AsyncGenerator[Asterism, None]:
        """A home on this disk, which is whole when it closes."""
        database = await open_sqlite(place, vfs=self.disk.name)
        async with open_home(place, *given, database=database, **more) as home:
            yield home
            assert await home.database.check() == []


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> BadDisk:
    monkeypatch.setattr("asterism.turns.turn._FIRST_WAIT", 0.02)
    return BadDisk()


TROUBLES = pytest.mark.parametrize(
    ("trouble", "error"), [("full", StoreFull), ("fsync", StoreUnavailable)]
)


@pytest.mark.promise("O4")
@TROUBLES
async def test_what_could_not_be_stored_is_not_confirmed(
    tmp_path: Path, disk: BadDisk, trouble: str, error: type[StoreUnavailable]
):
    model = obedient()
    async with disk.home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await home.agents.ask(aria, "before")
        disk.trouble = trouble
        sends = (home.agents.send(aria, "lost", channel="c", external_id=str(i)) for i in range(4))
        refused = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(one) for one in refused] == [error] * 4
        assert "this was not written" in str(refused[0])
        with pytest.raises(error):
            await home.agents.create("bela")
        assert await home.turns.waiting() == []
        async with api_client(home, None) as client:
            health = await client.get("/health")
            fails = trouble == "full"
            assert health.status_code == (503 if fails else 200)
            assert (health.json()["status"] == "failing") is fails
            assert (await client.get("/ready")).status_code == health.status_code
        disk.trouble = None
        # It was not accepted, so the same message is a new one.
        receipt = await home.agents.send(aria, "after", channel="c", external_id="0")
        assert not receipt.duplicate
        assert (await home.turns.wait(receipt)).text == "answer to: after"
        async with api_client(home, None) as client:
            assert (await client.get("/health")).json()["status"] == "ok"
    assert len(model.requests) == 2
    async with open_home(tmp_path) as home:
        assert [agent.name for agent in await home.agents.list()] == ["aria"]
        assert len(await home.turns.list("aria")) == 2


def act_of(effect: RetrySafety, disk: BadDisk, trouble: str | None, done: list[str]) -> Tool:
    """A tool that runs once, on whose first way the disk may fill up."""
    troubles = [trouble] if trouble else []

    async def act(ctx: ToolContext) -> str:
        if effect is RetrySafety.TRANSACTIONAL:
            await ctx.tx.run("INSERT INTO done VALUES (?)", (ctx.key,))
        else:
            done.append(ctx.key)
        if troubles:
            disk.trouble = troubles.pop()
        return "acted"

    async def check(ctx: ToolContext) -> str:
        return "acted before"

    return {
        RetrySafety.TRANSACTIONAL: tool(transactional=True),
        RetrySafety.REPEATABLE: tool(repeatable=True),
        RetrySafety.CHECKABLE: tool(check=check),
        RetrySafety.UNKNOWN: tool(),
    }[effect](act)


class Filling(ScriptedModel):
    """Obeys, and has trouble come upon the disk while it thinks about its n-th reply."""

    def __init__(self, disk: BadDisk, trouble: str | None, at: int) -> None:
        super().__init__()
        self._disk, self._trouble, self._at = disk, trouble, at
        self._obedient = obedient()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        self.requests.append(request)
        if len(self.requests) == self._at and self._trouble:
            self._disk.trouble = self._trouble
        return await self._obedient.complete(request, emit)


async def paused(home: Asterism, disk: BadDisk, text: str) -> list[Signal]:
    """Stream a turn, and make room once it has said that it waits."""
    found: list[Signal] = []
    async with asyncio.timeout(120):
        async for signal in home.agents.stream("aria", text):
            found.append(signal)
            if signal.kind == "waiting":
                disk.trouble = None
    return found


@pytest.mark.promise("T2")
@TROUBLES
@pytest.mark.parametrize("effect", list(RetrySafety))
@pytest.mark.parametrize("when", ["first reply", "in the call", "last reply"])
async def test_a_turn_pauses_and_goes_on_without_doing_anything_twice(
    tmp_path: Path, disk: BadDisk, trouble: str, error: Any, effect: RetrySafety, when: str
):
    done: list[str] = []
    in_call = trouble if when == "in the call" else None
    model = Filling(disk, None if in_call else trouble, 1 if when == "first reply" else 2)
    act = act_of(effect, disk, in_call, done)
    async with disk.home(tmp_path, model, tools=[act]) as home:
        await home.agents.create("aria")
        await home.database.write(lambda tx: tx.run("CREATE TABLE done (key TEXT)"))
        signals = await paused(home, disk, "[[call:act {}]]")
        assert disk.refused > 0
        assert "waiting" in [signal.kind for signal in signals]
        assert signals[-1].data == {"state": "done", "text": "answer to: [[call:act {}]]"}
        rows = await home.database.read(lambda tx: tx.all("SELECT key FROM done"))
        assert [*done, *(row[0] for row in rows)] == [f"{signals[-1].turn_id}/0/call/0"]
        assert await home.notices.list() == []
    assert len(model.requests) == 2


@pytest.mark.promise("T2")
@TROUBLES
async def test_a_turn_that_cannot_be_written_survives_the_end_of_the_process(
    tmp_path: Path, disk: BadDisk, trouble: str, error: Any
):
    done: list[str] = []
    model = Filling(disk, trouble, 2)
    act = act_of(RetrySafety.CHECKABLE, disk, None, done)
    async with disk.home(tmp_path, model, tools=[act], grace=0) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "[[call:act {}]]")
        await until(lambda: disk.refused > 2)
    disk.trouble = None
    async with open_home(tmp_path, tools=[act]) as home:

        async def over() -> bool:
            return (await home.turns.outcome(receipt.turn_id)).state is TurnState.DONE

        await until(over)
        assert done == [f"{receipt.turn_id}/0/call/0"]
        assert await home.database.check() == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path, None, None]:
    """A file system of 2 MB, where one can be mounted."""
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    if sys.platform != "linux" or mount is None:
        pytest.skip("a small tmpfs can be mounted on Linux alone")
    command = [mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.promise("T2", "O4")
async def test_a_file_system_that_is_really_full(small_disk: Path):
    ballast = small_disk / "ballast"
    async with open_home(small_disk) as home:
        aria = await home.agents.create("aria")
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                pass
        accepted: list[str] = []
        with contextlib.suppress(StoreFull):
            while len(accepted) < 1_000:
                receipt = await home.agents.send(aria, f"{len(accepted)} {'x' * 2_000}")
                accepted.append(receipt.turn_id)
        assert len(accepted) < 1_000
        async with api_client(home, None) as client:
            health = await client.get("/health")
            assert health.status_code == 503
            assert health.json()["status"] == "failing"
            assert "disk is full" in health.json()["problems"][0]
        ballast.unlink()
        last = await asyncio.wait_for(home.agents.ask(aria, "room again"), 10)
        assert last.text == "answer to: room again"
        turns = [turn.id for turn in reversed(await home.turns.list(aria, limit=2_000))]
        assert turns == [*accepted, last.turn_id]
        assert await home.database.check() == []
