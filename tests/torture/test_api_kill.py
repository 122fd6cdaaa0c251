"""Workers and API processes killed under load: nothing is lost, and no watcher misses an end."""

import asyncio
import contextlib
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from asterism import Asterism
from asterism.testing.postgres import postgres_server
from tests.conftest import TORTURE
from tests.torture.api_process import ApiLife, live
from tests.torture.world import model_server, spawn

SEED = int(os.environ.get("ASTERISM_SEED", "1"))
AGENTS = 64 if TORTURE else 8
SECONDS = 120.0 if TORTURE else 8.0
WORKERS = 3
EVERY = 3.0 if TORTURE else 2.0
"""Seconds between two kills."""
PATIENCE = 90.0

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.promise("T1", "T2", "T5", "D2"),
    pytest.mark.timeout(900 if TORTURE else 400),
]
if TORTURE:
    pytestmark.append(pytest.mark.torture)


@dataclass
class Watcher:
    """A client of the events, which comes back with the last id that it has seen."""

    path: str
    ended: dict[str, str] = field(default_factory=dict[str, str])
    """The text of each turn whose end it was told."""
    streamed: Counter[str] = field(default_factory=Counter[str])
    last_id: str = ""
    connects: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def watch(self, session: aiohttp.ClientSession, ports: list[int]) -> None:
        """Watch, through whichever process answers."""
        while True:
            port = ports[self.connects % len(ports)]
            self.connects += 1
            try:
                await self._read(session, f"http://127.0.0.1:{port}{self.path}")
            except (TimeoutError, aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)  # it is being started again

    async def _read(self, session: aiohttp.ClientSession, url: str) -> None:
        headers = {"last-event-id": self.last_id} if self.last_id else {}
        async with session.get(url, headers=headers) as answer:
            if answer.status != 200:
                await asyncio.sleep(0.05)
                return
            async for line in answer.content:
                if line.startswith(b"id: "):
                    self.last_id = line[4:].strip().decode()
                    self.begun.set()
                elif line.startswith(b"data: "):
                    event = orjson.loads(line[6:])
                    self.streamed[event["kind"]] += 1
                    if event["kind"] == "ended":
                        self.ended[event["turn_id"]] = event["data"]["text"]


@dataclass
class Fleet:
    """The processes, and whoever kills them."""

    life: ApiLife
    ports: list[int]
    rng: random.Random
    running: list[tuple[ApiLife, BaseProcess]] = field(
        default_factory=list[tuple[ApiLife, BaseProcess]]
    )
    kills: Counter[str] = field(default_factory=Counter[str])

    def start(self, life: ApiLife) -> None:
        process = spawn.Process(target=live, args=(life,), daemon=True)
        process.start()
        self.running.append((life, process))

    def start_all(self) -> None:
        for _ in range(WORKERS):
            self.start(self.life)
        for port in self.ports:
            self.start(replace(self.life, port=port))

    async def kill_one(self, *, api: bool) -> None:
        """Kill a process at any instant, and start another in its place."""
        self.restart_ended()
        victim = self.rng.choice(
            [each for each in self.running if (each[0].port is not None) == api]
        )
        self.running.remove(victim)
        victim[1].kill()
        await asyncio.to_thread(victim[1].join, 10)
        self.kills["api" if api else "worker"] += 1
        self.start(victim[0])

    def restart_ended(self) -> None:
        """Start what has ended by itself, as a supervisor does: its server may have been full."""
        for each in [each for each in self.running if each[1].exitcode is not None]:
            self.kills["ended by itself"] += 1
            self.running.remove(each)
            self.start(each[0])

    def log(self) -> str:
        """The last words of the processes."""
        path = self.life.place / "processes.log"
        return path.read_text()[-3_000:] if path.exists() else "(no words)"

    async def serves(self) -> bool:
        """Tell whether all API processes are there, so that one is left when one is killed."""
        for port in self.ports:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
        return True

    async def stop(self) -> None:
        for _, process in self.running:
            process.kill()
            await asyncio.to_thread(process.join, 10)


async def hand_in(
    session: aiohttp.ClientSession, fleet: Fleet, agent: str, text: str
) -> dict[str, Any]:
    """Hand a message in until it is accepted, through any process."""
    while True:
        url = f"http://127.0.0.1:{fleet.rng.choice(fleet.ports)}/api/agents/{agent}/messages"
        headers = {"idempotency-key": text}
        try:
            async with session.post(url, json={"text": text}, headers=headers) as answer:
                if answer.status == 202:
                    return await answer.json()
                assert answer.status >= 500, await answer.text()
        except (TimeoutError, aiohttp.ClientError, OSError):
            pass
        await asyncio.sleep(0.05)  # it is being started again


async def talk(
    session: aiohttp.ClientSession, fleet: Fleet, agent: str, until: float, accepted: dict[str, str]
) -> None:
    """Hand messages to an agent, one after the other; some twice."""
    loop, number = asyncio.get_running_loop(), 0
    while loop.time() < until:
        text = f"{agent} message {number}"
        receipt = await hand_in(session, fleet, agent, text)
        if fleet.rng.random() < 0.2:
            again = await hand_in(session, fleet, agent, text)
            assert again["turn_id"] == receipt["turn_id"]
        accepted[receipt["turn_id"]] = text
        number += 1
        await asyncio.sleep(fleet.rng.uniform(0.2, 0.6) * (4 if TORTURE else 1))


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]


@contextlib.asynccontextmanager
async def fleet_of(
    place: Path, url: str
) -> AsyncGenerator[tuple[Fleet, Asterism, aiohttp.ClientSession], None]:
    async with model_server(place / "requests.jsonl", 30) as model_url:
        life = ApiLife(place, model_url, url)
        async with Asterism.open(place, environ={}, settings=life.settings(), work=False) as home:
            token = (await home.tokens.create("test")).secret
            for number in range(AGENTS):
                await home.agents.create(f"agent{number}")
            fleet = Fleet(life, free_ports(2), random.Random(SEED))
            fleet.start_all()
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=40)
            headers = {"authorization": f"Bearer {token}"}
            connector = aiohttp.TCPConnector(limit=0)
            try:
                async with aiohttp.ClientSession(
                    headers=headers, timeout=timeout, connector=connector
                ) as session:
                    yield fleet, home, session
            finally:
                await fleet.stop()


async def test_workers_and_api_processes_are_killed_under_load(tmp_path: Path):
    with postgres_server(fsync=True).database() as url:
        async with fleet_of(tmp_path, url) as (fleet, home, session):
            names = [f"agent{number}" for number in range(AGENTS)]
            watchers = [Watcher(f"/api/agents/{name}/events") for name in names]
            everything = [Watcher("/api/events") for _ in range(2)]
            tasks = [
                asyncio.create_task(watcher.watch(session, fleet.ports[:: 1 - 2 * (place % 2)]))
                for place, watcher in enumerate([*watchers, *everything])
            ]
            accepted: dict[str, str] = {}
            try:
                async with asyncio.timeout(PATIENCE):
                    for watcher in [*watchers, *everything]:
                        await watcher.begun.wait()
                until = asyncio.get_running_loop().time() + SECONDS
                async with asyncio.TaskGroup() as talking:
                    for name in names:
                        talking.create_task(talk(session, fleet, name, until, accepted))
                    while asyncio.get_running_loop().time() < until:
                        await asyncio.sleep(EVERY)
                        await fleet.kill_one(api=False)
                        if await fleet.serves():
                            await fleet.kill_one(api=True)
                fleet.restart_ended()
                watched = dict(zip(names, watchers, strict=True))
                await all_told(home, fleet, accepted, watched, everything)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            await judge(home, accepted, [*watchers, *everything])
    streamed = sum((watcher.streamed for watcher in watchers), Counter[str]())
    print(f"\n{dict(fleet.kills)} killed, {len(accepted)} messages, told: {dict(streamed)}")


async def all_told(
    home: Asterism,
    fleet: Fleet,
    accepted: dict[str, str],
    watchers: dict[str, Watcher],
    everything: list[Watcher],
) -> None:
    """Wait until every watcher was told of the end of every turn that it watches for."""
    missing: dict[str, set[str]] = {}
    try:
        async with asyncio.timeout(PATIENCE):
            while True:
                missing = {
                    name: {turn for turn, text in accepted.items() if text.startswith(f"{name} ")}
                    - set(watcher.ended)
                    for name, watcher in watchers.items()
                }
                missing |= {
                    f"all {number}": set(accepted) - set(watcher.ended)
                    for number, watcher in enumerate(everything)
                }
                missing = {name: turns for name, turns in missing.items() if turns}
                if not missing:
                    return
                fleet.restart_ended()
                await asyncio.sleep(0.1)
    except TimeoutError:
        states = Counter(turn.state.value for turn in await home.turns.list(limit=500))
        counts = {name: len(turns) for name, turns in missing.items()}
        said = f"not told: {counts}; turns are {dict(states)}; {fleet.log()}"
        raise AssertionError(said) from None


async def judge(home: Asterism, accepted: dict[str, str], watchers: list[Watcher]) -> None:
    """Every accepted message was answered once, and every watcher was told that answer."""
    turns = await home.database.read(
        lambda tx: tx.all(
            "SELECT t.id, t.state, COUNT(e.seq) FROM turns t LEFT JOIN entries e"
            " ON e.turn_id = t.id AND e.kind = 'reply' GROUP BY t.id, t.state"
        )
    )
    assert {turn_id: (state, replies) for turn_id, state, replies in turns} == dict.fromkeys(
        accepted, ("done", 1)
    )
    for watcher in watchers:
        wrong = {
            turn: text
            for turn, text in watcher.ended.items()
            if text != f"answer to: {accepted[turn]}"
        }
        assert wrong == {}
