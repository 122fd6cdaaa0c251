"""The socket of an open home: its verbs for other processes, and what hostile peers can do."""

# How many calls are under way is nobody's business else.
# pyright: reportPrivateUsage=false

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from asterism import Asterism, __version__, tool
from asterism.app.listener import Listener
from asterism.client import RemoteHome, greet, running_or_opened
from asterism.errors import HomeLost, InvalidInput, NotFound, OtherVersion, StoreInUse
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Call, Reply, Signal
from asterism.wire import FILE
from tests.scenes import until

pytestmark = pytest.mark.promise("A8")

PATIENCE = 120.0


@asynccontextmanager
async def at_home(place: Path, **options: Any) -> AsyncGenerator[Asterism, None]:
    model = options.pop("model", None) or ScriptedModel(["Hello.", "Again.", "More."])
    async with (
        asyncio.timeout(120),
        Asterism.open(
            place,
            settings={"model": "scripted:one"},
            models={"scripted": model},
            **options,
        ) as home,
    ):
        yield home


def nothing_to_open() -> Any:
    raise AssertionError("a home is running, so that none should be opened")


@asynccontextmanager
async def elsewhere(place: Path, *, work: bool = False) -> AsyncGenerator[Any, None]:
    async with running_or_opened(place, nothing_to_open, work=work) as home:
        assert isinstance(home, RemoteHome)
        yield home


async def talk(place: Path, sent: bytes, *, end: bool = False) -> dict[str, Any]:
    """Write bytes to the socket, and return the first line of the answer."""
    reader, writer = await asyncio.open_unix_connection(place / FILE)
    writer.write(sent)
    if end:
        writer.write_eof()
    async with asyncio.timeout(PATIENCE):
        line = await reader.readline()
    writer.close()
    return json.loads(line)


def calls_of(home: Asterism) -> int:
    """Return how many calls of others are under way."""
    listener = home._listener
    assert listener is not None
    return listener.calls


def call(name: Any, **more: Any) -> bytes:
    return json.dumps({"version": __version__, "call": name, **more}).encode() + b"\n"


# -- verbs -----------------------------------------------------------------------------------------


async def test_verbs_streams_and_errors_are_those_of_the_home(tmp_path: Path):
    async with at_home(tmp_path) as home, elsewhere(tmp_path) as remote:
        made = await remote.agents.create("aria", system="Be brief.")
        here = await home.agents.get("aria")
        assert (made.id, made.system, made.model_in_use) == (here.id, "Be brief.", "scripted:one")
        signals: list[Signal] = [
            signal async for signal in remote.agents.stream(made, "hi", channel="terminal")
        ]
        assert signals[-1].kind == "ended"
        assert signals[-1].data["text"] == "Hello."
        assert await remote.turns.list(made) == await home.turns.list("aria")
        assert (await remote.search("aria", "hi")).hits
        assert await remote.counts() == await home.counts()
        await remote.keys.set("shop", "sk-1234567890")
        # These return at once, and the home that they ask is in this very loop.
        assert await asyncio.to_thread(remote.keys.get, "shop") == "sk-1234567890"
        assert await asyncio.to_thread(remote.mcp.list) == []
        with pytest.raises(NotFound) as there:
            await remote.agents.get("arya")
        with pytest.raises(NotFound) as direct:
            await home.agents.get("arya")
        assert there.value.message == direct.value.message
        with pytest.raises(InvalidInput, match=r"agent\.get takes name as str"):
            await remote.agents.get(5)
        with pytest.raises(InvalidInput, match="not valid Unicode"):
            await remote.agents.create("\ud800")
        status = await remote.status()
        assert (status.pid, status.working, status.agents) == (os.getpid(), True, 1)


async def test_what_a_verb_reports_is_reported_here(tmp_path: Path):
    papers = tmp_path / "papers"
    papers.mkdir()
    for number in range(3):
        (papers / f"{number}.md").write_text(f"Paper {number}.", encoding="utf-8")
    data = tmp_path / "data"
    async with at_home(data) as home, elsewhere(data) as remote:
        await home.agents.create("aria")
        await remote.sources.add("papers", papers, agents=["aria"])
        seen: list[Any] = []
        done = await remote.sources.sync("papers", progress=seen.append)
        assert (done.read, seen[-1].documents) == (3, 3)
        assert type(seen[-1]).__name__ == "Progress"


async def test_a_question_is_answered_from_elsewhere(tmp_path: Path):
    paid: list[int] = []

    @tool(ask=True)
    async def pay(amount: int) -> str:
        """Pay an amount.

        Args:
            amount: How much.
        """
        paid.append(amount)
        return "paid"

    wants = Reply(calls=(Call("c1", "pay", '{"amount": 5}'),), finish="tool_calls")
    model = ScriptedModel([wants, "Done."])
    async with at_home(tmp_path, tools=[pay], model=model) as home, elsewhere(tmp_path) as remote:
        await home.agents.create("aria")
        assert (await remote.agents.ask("aria", "pay")).state == "parked"
        (question,) = await remote.approvals.list()
        answered = [
            signal async for signal in remote.approvals.stream_decision(question, approved=True)
        ]
        assert answered[-1].data["text"] == "Done."
        assert paid == [5]


async def test_whoever_leaves_ends_their_own_call_alone(tmp_path: Path):
    async with at_home(tmp_path) as home, elsewhere(tmp_path) as remote:
        agent = await home.agents.create("aria")
        watching = asyncio.create_task(anext(remote.agents.watch("aria")))
        staying = asyncio.create_task(anext(remote.agents.watch("aria")))
        await until(lambda: calls_of(home) == 2)
        watching.cancel()
        await until(lambda: calls_of(home) == 1)
        await agent.ask("hi")
        assert (await staying).kind == "opened"


async def test_a_home_that_only_writes_begins_to_work_when_it_is_asked_to(tmp_path: Path):
    async with at_home(tmp_path, work=False) as home:
        await home.agents.create("aria")
        async with elsewhere(tmp_path) as remote:
            assert (await remote.status()).working is False
            receipt = await remote.agents.send("aria", "hi")
        async with elsewhere(tmp_path, work=True) as remote:
            assert (await remote.turns.wait(receipt)).text == "Hello."
            assert (await home.status()).working is True


async def test_a_home_that_closes_is_opened_by_whoever_needs_it(tmp_path: Path):
    """The next verb opens the home here, and a call that was under way says that it was lost."""
    opened: list[Asterism] = []

    @asynccontextmanager
    async def opening() -> AsyncGenerator[Asterism, None]:
        async with at_home(tmp_path) as home:
            opened.append(home)
            yield home

    async with at_home(tmp_path) as first:
        await first.agents.create("aria")
        context = running_or_opened(tmp_path, opening, work=True)
        remote = await context.__aenter__()
        watching = asyncio.create_task(anext(remote.agents.watch("aria")))
        await remote.agents.list()
        with pytest.raises(StoreInUse):
            await Asterism.open(tmp_path).__aenter__()
    with pytest.raises(HomeLost, match=r"ended before it answered.*run the command again"):
        await watching
    assert not (tmp_path / FILE).exists()
    try:
        assert [agent.name for agent in await remote.agents.list()] == ["aria"]
        assert (await remote.agents.ask("aria", "hi")).text == "Hello."
        assert len(opened) == 1
    finally:
        await context.__aexit__(None, None, None)
    assert await greet(tmp_path) is None


async def test_nobody_listens_where_nothing_is_held(tmp_path: Path):
    async with at_home(tmp_path):
        pass
    async with at_home(tmp_path, readonly=True, work=False):
        assert not (tmp_path / FILE).exists()
        assert await greet(tmp_path) is None


async def test_a_directory_that_cannot_hold_a_socket_is_opened_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def refuse(_: Path) -> Any:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("asterism.app.listener.bind", refuse)
    async with at_home(tmp_path) as home:
        await home.agents.create("aria")
    assert "other terminals cannot use this home" in caplog.text


# -- hostile peers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET / HTTP/1.1\r\n", "is not JSON"),
        (b"\xff\x00\xfe\n", "is not JSON"),
        (b"[1, 2]\n", "is not a JSON object"),
        (b"[" * 50_000 + b"\n", "is not JSON"),
        (call("agents.steal"), "'agents.steal' is not a verb of a home"),
        (call("agents._bind"), "is not a verb"),
        (call("agents.__init__"), "is not a verb"),
        (call("database.write"), "is not a verb"),
        (call("home._close"), "is not a verb"),
        (call("home.acting_as"), "is not a verb"),
        (call("agents"), "is not a verb"),
        (call(""), "is not a verb"),
        (call(None), "is not a verb"),
        (call({"deep": 1}), "is not a verb"),
        (call("agents.get"), "missing a required argument"),
        (call("agents.get", args=[1, 2, 3]), "too many positional arguments"),
        (call("agents.get", args=[5]), "agent.get takes name as str"),
        (call("agents.get", args="aria"), "args must be a list"),
        (call("agents.get", kwargs=[]), "kwargs an object"),
        (call("agents.get", callbacks=[5]), "cannot be called"),
        (call("agents.get", callbacks=[[7, False]]), "cannot be called"),
        (call("agents.get", args=[{"!": "os.system"}]), "is not a kind of value"),
        (call("agents.get", args=[{"!": "asterism.__main__.main"}]), "is not a kind of value"),
        (call("archive.list", args=["aria"], kwargs={"limit": 2**70}), "more than 64 bits"),
    ],
)
async def test_what_nobody_writes_is_answered_in_a_sentence(
    tmp_path: Path, sent: bytes, answer: str
):
    async with at_home(tmp_path) as home:
        await home.agents.create("aria")
        said = (await talk(tmp_path, sent))["error"]
        assert answer in said["reason"]
        assert "Nothing was" in said["reason"]
        assert [agent.name for agent in await home.agents.list()] == ["aria"]


async def test_half_a_frame_and_one_that_is_too_long(tmp_path: Path):
    async with at_home(tmp_path) as home:
        half = await talk(tmp_path, call("agents.list")[:-5], end=True)
        assert "it ends before its line does" in half["error"]["reason"]
        small = Listener(home, tmp_path / "small", max_frame=1_000)
        (tmp_path / "small").mkdir()
        await small.start()
        long = await talk(tmp_path / "small", b"x" * 5_000)
        assert "it is longer than 1,000 bytes" in long["error"]["reason"]
        await small.close()
        # Those who say nothing keep nobody from being heard.
        silent = [await asyncio.open_unix_connection(tmp_path / FILE) for _ in range(20)]
        assert (await talk(tmp_path, call("agents.list"))) == {"result": []}
        for _, writer in silent:
            writer.close()


async def test_a_release_that_differs_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with at_home(tmp_path):
        said = await talk(tmp_path, call("agents.list").replace(__version__.encode(), b"9.9.9"))
        assert "and this is asterism 9.9.9. End that process" in said["error"]["reason"]
        monkeypatch.setattr("asterism.client.__version__", "9.9.9")
        with pytest.raises(OtherVersion, match="asterism down"):
            await greet(tmp_path)


async def test_a_user_who_is_another_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with at_home(tmp_path):
        monkeypatch.setattr("asterism.app.listener.peer_uid", Mock(return_value=os.geteuid() + 1))
        said = await talk(tmp_path, call("agents.list"))
        assert "Only the user who runs a home may use its socket" in said["error"]["reason"]


async def test_a_fault_of_ours_is_logged_here_and_told_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    async def broken(_: object) -> Any:
        raise KeyError("a bug")

    async with at_home(tmp_path) as home, elsewhere(tmp_path) as remote:
        monkeypatch.setattr("asterism.store.agents.everyone", broken)
        with pytest.raises(Exception, match="a bug") as fault:
            await remote.agents.list()
        assert type(fault.value).__name__ == "KeyError"
        monkeypatch.undo()
        assert await home.agents.list() == []
    assert "a call of another terminal failed" in caplog.text


async def test_a_process_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("asterism.client._ANSWER_WITHIN", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # until the other end has had enough
        writer.close()
        await writer.wait_closed()
        left.set()

    left = asyncio.Event()
    async with await asyncio.start_unix_server(silent, tmp_path / FILE):
        with pytest.raises(HomeLost, match=r"does not answer within 0\.05 seconds"):
            await greet(tmp_path)
        async with asyncio.timeout(PATIENCE):
            await left.wait()
