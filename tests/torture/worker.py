"""One life of a worker: it opens the home, serves, and is killed where its doom says.

Runs in a process of its own through the public API. What it does outside goes to files that only
ever grow: messages it was acknowledged, effects its tools had, signals its watchers saw.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from asterism import NOT_HAPPENED, Asterism, Delivery, Tool, ToolContext, tool
from asterism.channels.webhook import Webhook
from asterism.types.permissions import ToolEffect
from tests.scenes import until
from tests.torture.disk import MeddledDisk, MeddledFile, Operation

AGENTS = ("aria", "bela")


@dataclass(frozen=True)
class Aim:
    """Where to die: the n-th time that a point is reached."""

    point: str
    nth: int


SQLITE_POINTS: Mapping[str, int] = {
    "disk write": 60,
    "disk write torn": 60,
    "disk sync": 14,
    "disk truncate": 1,
}
POSTGRES_POINTS: Mapping[str, int] = {"before commit": 20, "in commit": 20, "after commit": 20}
POINTS: Mapping[str, int] = {
    "accepted": 2,
    "stream": 12,
    "transaction": 1,
    "before effect": 2,
    "after effect": 2,
    "before post": 2,
    "after post": 2,
}
"""The points, with how often each is reached in a short life or so."""


@dataclass(frozen=True)
class Life:
    """What a worker is told: where it works, with whom, and where it dies."""

    place: Path
    """The data directory, and the files that tell what happened outside."""
    model_url: str
    sink_url: str
    store_url: str | None = None
    hand_in: int = 0
    """How many messages of the spool it hands in."""
    aim: Aim | None = None
    finish: bool = False
    """Leave when there is nothing left to do, else stay until killed."""


class Doom:
    """Kills this process, as nobody can prevent, at the point aimed for."""

    def __init__(self, aim: Aim | None) -> None:
        self.point = aim.point if aim else None
        self._left = aim.nth if aim else 0

    def strikes(self, point: str) -> bool:
        """Count that a point is reached; tell whether it is the one."""
        if point != self.point:
            return False
        self._left -= 1
        return self._left == 0

    def at(self, point: str) -> None:
        """Die here if this is the point."""
        if self.strikes(point):
            self.now()

    def now(self) -> None:
        """Die."""
        os.kill(os.getpid(), signal.SIGKILL)

    def meddle(self, operation: Operation, file: MeddledFile, data: bytes, offset: int) -> None:
        """Die before an operation of the disk, or in the middle of a write."""
        self.at(f"disk {operation}")
        if operation == "write" and self.strikes("disk write torn"):
            file.write_through(data[: len(data) // 2], offset)
            self.now()


def settings_of(life: Life) -> dict[str, Any]:
    """The configuration of every process of one world."""
    return {
        "model": "loop:scripted",
        "models": {"loop": {"api": "openai", "base_url": life.model_url, "timeout": 20.0}},
        "outbox": {
            "timeout": 2.0, "first_delay": 0.05, "longest_delay": 0.4, "attempts": 1_000,
        },
        "runtime": {"heartbeat": 0.3, "stalled_after": 1.0, "crashes": 1_000},
        "store": {"url": life.store_url} if life.store_url else {},
    }  # fmt: skip


class DoomedWebhook(Webhook):
    """The webhook channel, which may die before or after a request."""

    def __init__(self, url: str, doom: Doom) -> None:
        super().__init__("hook", {"url": url})
        self._doom = doom

    async def deliver(self, delivery: Delivery) -> None:
        self._doom.at("before post")
        await super().deliver(delivery)
        self._doom.at("after post")


def append(path: Path, **line: Any) -> None:
    """Add a line to a file in one write, so that a kill leaves it whole or out."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, orjson.dumps(line) + b"\n")
    finally:
        os.close(fd)


def lines(path: Path) -> list[dict[str, Any]]:
    """Read what was appended to a file."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def tools_of(place: Path, doom: Doom) -> list[Tool]:
    """A tool of each crash class, acting upon a file outside or the database."""
    effects = place / "effects.jsonl"

    def act(name: str, ctx: ToolContext, word: str) -> str:
        doom.at("before effect")
        append(effects, tool=name, key=ctx.key, word=word, pid=os.getpid(), at=time.time())
        doom.at("after effect")
        return f"{name} {word}"

    @tool(transactional=True)
    async def enter(ctx: ToolContext, word: str) -> str:
        await ctx.tx.run("INSERT INTO torture VALUES (?, ?)", (ctx.key, word))
        doom.at("transaction")
        return f"enter {word}"

    @tool(repeatable=True, effects=ToolEffect("read"))
    def stamp(ctx: ToolContext, word: str) -> str:
        return act("stamp", ctx, word)

    async def posted(ctx: ToolContext, word: str) -> Any:
        done = any(line["key"] == ctx.key for line in lines(effects))
        return f"post {word}" if done else NOT_HAPPENED

    @tool(check=posted, effects=ToolEffect("read"))
    def post(ctx: ToolContext, word: str) -> str:
        return act("post", ctx, word)

    @tool(effects=ToolEffect("read"))
    def mail(ctx: ToolContext, word: str) -> str:
        return act("mail", ctx, word)

    return [enter, stamp, post, mail]


def live(life: Life) -> None:
    """Live one life; the process is killed, or ends when all is done."""
    fd = os.open(life.place / "worker.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    logging.basicConfig(level=logging.INFO, format=f"{os.getpid()} %(message)s")
    doom = Doom(life.aim)
    disk = MeddledDisk(doom.meddle, default=True) if life.aim and "disk" in life.aim.point else None
    if life.aim and "commit" in life.aim.point:
        _meddle_with_commits(doom)
    asyncio.run(_live(life, doom))
    del disk


def _meddle_with_commits(doom: Doom) -> None:
    import psycopg

    commit = psycopg.AsyncConnection.commit

    async def doomed(self: psycopg.AsyncConnection[Any]) -> None:
        doom.at("before commit")
        if doom.strikes("in commit"):
            # The server hears the word, and nobody hears its answer.
            self.pgconn.send_query(b"COMMIT")
            self.pgconn.flush()
            doom.now()
        await commit(self)
        doom.at("after commit")

    psycopg.AsyncConnection.commit = doomed


async def _live(life: Life, doom: Doom) -> None:
    async with Asterism.open(
        life.place,
        environ={},
        settings=settings_of(life),
        tools=tools_of(life.place, doom),
        channels={"hook": DoomedWebhook(life.sink_url, doom)},
    ) as home:
        await prepare(home)
        watching = [
            asyncio.ensure_future(watch(home, name, life.place / "watched.jsonl", doom))
            for name in AGENTS
        ]
        await hand_in(home, life.place, life.hand_in, doom)
        if not life.finish:
            await asyncio.gather(*watching)
        await finished(home)
        for task in watching:
            task.cancel()


async def prepare(home: Asterism) -> None:
    """Create what the conversation needs, unless it is there."""
    table = "CREATE TABLE IF NOT EXISTS torture (key TEXT, word TEXT)"
    await home.database.write(lambda tx: tx.run(table))
    for name in AGENTS:
        await home.agents.ensure(name)


async def hand_in(home: Asterism, place: Path, count: int, doom: Doom) -> None:
    """Hand in the spool's first messages until each is acknowledged, and some once more."""
    acks = place / "acks.jsonl"
    known = {line["id"] for line in lines(acks)}
    for number, message in enumerate(lines(place / "spool.jsonl")[:count]):
        if message["id"] in known and number % 3:
            continue
        receipt = await home.agents.send(
            message["agent"],
            message["text"],
            channel="hook",
            external_id=message["id"],
            reply_to=message["agent"],
        )
        doom.at("accepted")
        append(acks, id=message["id"], turn=receipt.turn_id)


async def watch(home: Asterism, name: str, seen: Path, doom: Doom) -> None:
    """Watch an agent from where its last watcher stopped, and note what is seen."""
    agent = await home.agents.get(name)
    ids = [line["id"] for line in lines(seen) if line["agent"] == agent.id and line["id"]]
    async for one in home.agents.watch(agent, after=ids[-1] if ids else None):
        append(seen, agent=agent.id, id=one.id, turn=one.turn_id, kind=one.kind)
        if one.kind == "text":
            doom.at("stream")


_LEFT = (
    "SELECT (SELECT COUNT(*) FROM inbox) + (SELECT COUNT(*) FROM schedules)"
    " + (SELECT COUNT(*) FROM turns WHERE state = 'open')"
    " + (SELECT COUNT(*) FROM outbox WHERE state = 'waiting')"
)


async def finished(home: Asterism) -> None:
    """Return when everything that came in has gone out."""
    await until(lambda: _is_finished(home), 90)


async def _is_finished(home: Asterism) -> bool:
    return await home.database.read(lambda tx: tx.one(_LEFT)) == (0,)
