"""The world around the workers: a model and people that never die, and somebody who kills."""

import asyncio
import contextlib
import multiprocessing
import random
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from asterism.store.database import Database
from asterism.turns.runtime import time_of
from asterism.types.turns import EntryKind, TurnState
from tests.servers.openai_server import directives
from tests.torture.audit import Audit, AuditedTurn, audit
from tests.torture.worker import AGENTS, Life, append, lines, live

ROOT = Path(__file__).parents[2]

# Children are forked from a process that has imported everything and started nothing, so that a
# worker is ready in a hundredth of a second and can be killed often.
spawn = multiprocessing.get_context("forkserver")
spawn.set_forkserver_preload(
    ["__main__", "tests.torture.worker", "tests.torture.short_life", "tests.torture.crowd"]
)


class Sink:
    """The people: they get every message at least once, and know a repeat by its key."""

    def __init__(self, rng: random.Random) -> None:
        self.received: list[dict[str, Any]] = []
        self._rng = rng
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        """Take a message; now and then lose it, or answer as if it had not arrived."""
        body = orjson.loads(await request.read())
        assert request.headers["idempotency-key"] == body["key"]
        chance = self._rng.random()
        if chance < 0.4:
            return web.Response(status=503)
        self.received.append(body)
        return web.Response(status=503 if chance < 0.45 else 200)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[None, None]:
        """Listen on loopback."""
        app = web.Application()
        app.router.add_post("/{target}", self.take)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/{{target}}"
        try:
            yield
        finally:
            await runner.cleanup()


@contextlib.asynccontextmanager
async def model_server(log: Path, latency_ms: float) -> AsyncGenerator[str, None]:
    """A model server as a process of its own; give its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.servers.openai_server", "--latency-ms", str(latency_ms)),
        *("--log", str(log)),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            ready = orjson.loads(await process.stdout.readline())
        yield f"http://127.0.0.1:{ready['port']}/v1"
    finally:
        process.kill()
        await process.wait()


@dataclass
class World:
    """One place with its people, its model and its workers."""

    life: Life
    sink: Sink
    rng: random.Random
    kills: int = 0
    deaths: Counter[str] = field(default_factory=Counter[str])

    @property
    def place(self) -> Path:
        return self.life.place

    def start(self, **told: Any) -> BaseProcess:
        """Start a worker."""
        process = spawn.Process(target=live, args=(replace(self.life, **told),), daemon=True)
        process.start()
        return process

    async def end(self, process: BaseProcess, after: float, why: str) -> None:
        """Kill a worker after some time, unless its doom is quicker."""
        await asyncio.to_thread(process.join, after)
        if process.exitcode is None:
            process.kill()
            why = "any time"
        await asyncio.to_thread(process.join, 10)
        assert process.exitcode == -9, f"a worker ended by itself: {self.log()}"
        self.kills += 1
        self.deaths[why] += 1

    async def stop(self, process: BaseProcess) -> None:
        """End a worker that has nothing left to do."""
        process.kill()
        await asyncio.to_thread(process.join, 10)

    async def finish(self, process: BaseProcess, within: float) -> None:
        """Let a worker come to its end."""
        await asyncio.to_thread(process.join, within)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode == 0, f"not finished within {within} s: {self.log()}"

    def log(self) -> str:
        """The last words of the workers."""
        path = self.place / "worker.log"
        return path.read_text()[-4_000:] if path.exists() else "(no words)"

    def write_spool(self, count: int) -> None:
        """Write down the conversation: messages with calls of all crash classes."""
        for number in range(count):
            calls = self.rng.choices(
                ["enter", "stamp", "post", "mail", "heartbeat", "schedule"],
                weights=[3, 3, 3, 3, 1, 1],
                k=self.rng.randrange(4),
            )
            text = f"m{number}"
            for index, name in enumerate(calls):
                word = f"{number}.{index}"
                arguments = {
                    "heartbeat": {"reason": word},
                    "schedule": {"operation": "in", "when": "0.2 s", "message": word},
                }.get(name, {"word": word})
                text += f" [[call:{name} {orjson.dumps(arguments).decode()}]]"
            agent = AGENTS[number % len(AGENTS)]
            append(self.place / "spool.jsonl", id=f"m{number}", agent=agent, text=text)


@contextlib.asynccontextmanager
async def world(
    place: Path, seed: int, *, store_url: str | None = None, latency_ms: float = 30.0
) -> AsyncGenerator[World, None]:
    """Make a world, whose chances follow from the seed."""
    rng = random.Random(seed)
    sink = Sink(rng)
    async with sink.listening(), model_server(place / "requests.jsonl", latency_ms) as model_url:
        yield World(Life(place, model_url, sink.url, store_url), sink, rng)


# -- what must be true in the end ----------------------------------------------------------------


async def judge(world: World, database: Database) -> Audit:
    """Hold what happened in a world against what was promised."""
    found = await audit(database)
    spool = lines(world.place / "spool.jsonl")
    _judge_messages(world, found, spool)
    rows = await database.read(lambda tx: tx.all("SELECT key, word FROM torture"))
    _judge_effects(world, found, [(row[0], row[1]) for row in rows])
    _judge_deliveries(world, found)
    _judge_model_calls(world, found)
    return found


def _judge_messages(world: World, found: Audit, spool: list[dict[str, Any]]) -> None:
    """Each message has one turn and one answer, in order; so have heartbeats and schedules."""
    assert set(found.accepted) >= {message["id"] for message in spool}
    for line in lines(world.place / "acks.jsonl"):
        assert found.accepted[line["id"]] == line["turn"], "one message got two receipts"
    turns = {turn.id: turn for turn in found.all_turns()}
    assert len(set(found.accepted.values())) == len(found.accepted)
    for turn in turns.values():
        assert turn.state is TurnState.DONE
        assert turn.answer == f"answer to: {turn.asked}"
    for message in spool:
        turn = turns[found.accepted[message["id"]]]
        assert turn.asked == message["text"]
        names = [name for name, _ in directives(message["text"])]
        assert [name for name, _ in turn.results.values()] == names
    for agent_turns in found.turns.values():
        order = [turn.id for turn in agent_turns]
        mine = [
            found.accepted[message["id"]]
            for message in spool
            if found.accepted[message["id"]] in set(order)
        ]
        assert [turn for turn in order if turn in set(mine)] == mine, "answered out of order"
    from_spool = {found.accepted[message["id"]] for message in spool}
    extra = Counter(
        turn.asked.rpartition(" ")[2] for turn in turns.values() if turn.id not in from_spool
    )
    wanted = Counter(
        arguments.get("reason") or arguments.get("message")
        for message in spool
        for name, text in directives(message["text"])
        if name in ("heartbeat", "schedule")
        for arguments in [orjson.loads(text)]
    )
    assert extra == wanted, "heartbeats and schedules happen once each"


def _judge_effects(world: World, found: Audit, entered: list[tuple[str, str]]) -> None:
    """Side effects are those of a run that nobody interrupts, the unknown ones excepted."""
    done: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines(world.place / "effects.jsonl"):
        done[line["tool"]][line["key"]] += 1
    done["enter"] = Counter(key for key, _ in entered)
    made: dict[str, dict[str, str]] = defaultdict(dict)
    for turn in found.all_turns():
        for key, (name, result) in turn.results.items():
            assert not result.startswith(("Error", "Not run", "Cut short")), result
            made[name][key] = result
    assert set(done["stamp"]) == set(made["stamp"])
    for name in ("enter", "post"):
        assert dict(done[name]) == dict.fromkeys(made[name], 1), f"{name} happens exactly once"
    unknown = {key for key, result in made["mail"].items() if result.startswith("Outcome unknown")}
    assert set(done["mail"]) <= set(made["mail"])
    assert all(count == 1 for count in done["mail"].values()), "an unknown one is never repeated"
    assert set(made["mail"]) - unknown <= set(done["mail"])
    assert len(unknown) <= world.kills
    told = Counter(key.partition("/")[0] for key in unknown)
    noticed = {turn: n for (kind, turn), n in found.notices.items() if kind == "call.unknown"}
    assert noticed == dict(told), "each unknown outcome is told to the owner once"


def _judge_deliveries(world: World, found: Audit) -> None:
    """People get each answer, and those of one target in the order of its turns."""
    answers = {f"{turn.id}/answer": turn for turn in found.all_turns()}
    assert {one["key"] for one in world.sink.received} == set(answers)
    first_seen: dict[str, list[AuditedTurn]] = defaultdict(list)
    for key in dict.fromkeys(one["key"] for one in world.sink.received):
        turn = answers[key]
        assert turn.reply_to is not None
        first_seen[turn.reply_to].append(turn)
    for one in world.sink.received:
        assert one["text"] == answers[one["key"]].answer
    for seen in first_seen.values():
        seqs = [turn.entries[-1].seq for turn in seen]
        assert seqs == sorted(seqs), "answers reached their target out of order"


def _judge_model_calls(world: World, found: Audit) -> None:
    """No reply that was recorded was asked for again."""
    replies = sum(
        entry.kind is EntryKind.REPLY for turn in found.all_turns() for entry in turn.entries
    )
    asked = len(lines(world.place / "requests.jsonl"))
    assert replies <= asked <= replies + world.kills * len(AGENTS)


def judge_watching(world: World, found: Audit) -> None:
    """A watcher that comes back with its last id is told of every turn's end."""
    seen = lines(world.place / "watched.jsonl")
    for agent_id, turns in found.turns.items():
        mine = [line for line in seen if line["agent"] == agent_id]
        since = time_of(next(line["id"] for line in mine if line["id"]))
        ended = {line["turn"] for line in mine if line["kind"] == "ended"}
        missed = [t.id for t in turns if (t.ended_at or 0) > since and t.id not in ended]
        assert missed == []
