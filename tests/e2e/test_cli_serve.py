"""Processes that run until told to stop."""

import asyncio
import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from subprocess import Popen
from unittest.mock import Mock

import httpx2
import pytest

from asterism.api.server import bind
from asterism.errors import StoreUnavailable
from tests.e2e.command import PATIENCE, Command, ModelServer


def url_of(server: "Popen[str]") -> str:
    assert server.stderr is not None
    line = server.stderr.readline()
    found = re.search(r"http://[\d.:]+", line)
    assert found, line
    return found[0]


def health(url: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=PATIENCE) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_tells_its_health_and_stops_when_told(asterism: Command, number: signal.Signals):
    asterism.ok("agent", "create", "aria")
    with asterism.started("serve", "--port", "0") as server:
        url = url_of(server)
        status, found = health(url)
        assert status == 200
        assert found == {
            "status": "ok",
            "version": found["version"],
            "store": "sqlite",
            "agents": 1,
            "waiting": 0,
            "problems": [],
        }
        server.send_signal(number)
        assert server.wait(PATIENCE) == 0
    assert asterism.ok("chat", "--once", "the directory is free again")


def test_serve_goes_on_with_what_was_interrupted(asterism: Command, stalled_model: ModelServer):
    asterism.use(stalled_model)
    with asterism.started("chat", "--once", "hi") as process:
        stalled_model.wait_until_asked()
        process.kill()
        process.wait()
    with asterism.started("serve", "--port", "0") as server:
        url_of(server)
        while (state := asterism.json("turn", "list")[0]["state"]) in ("waiting", "open"):
            assert server.poll() is None
        assert state == "done"


def test_serve_tells_of_a_bad_configuration(asterism: Command):
    asterism.configure("")
    with asterism.started("serve", "--port", "0") as server:
        url = url_of(server)
        asterism.configure("model = 3\n")
        assert server.stderr is not None
        assert "The previous configuration stays in use." in server.stderr.readline()
        status, found = health(url)
        assert (status, found["status"]) == (200, "troubled")
        assert "asterism.toml line 1" in str(found["problems"])


@pytest.mark.promise("X5")
def test_a_port_that_is_taken(asterism: Command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = asterism.run("serve", "--port", port)
    assert done.returncode == 1
    assert f"127.0.0.1:{port} cannot be listened at" in done.stderr
    assert not asterism.data.exists()


def test_a_worker_needs_postgresql(asterism: Command):
    done = asterism.run("worker")
    assert done.returncode == 2
    assert "On SQLite a single process does everything" in done.stderr
    assert not asterism.data.exists()


@pytest.mark.postgres
def test_workers_answer_on_postgresql(asterism: Command, model: ModelServer):
    from asterism.testing.postgres import postgres_server

    with postgres_server().database() as url:
        asterism.use(model, f'[store]\nurl = "{url}"')
        with asterism.started("worker") as worker:
            assert worker.stderr is not None
            assert "Running" in worker.stderr.readline()
            assert asterism.ok("chat", "--once", "hi") == "answer to: hi\n"
            assert asterism.json("turn", "list")[0]["state"] == "done"
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == 0


@pytest.mark.postgres
@pytest.mark.promise("D2")
def test_a_worker_waits_until_its_server_is_there(asterism: Command, model: ModelServer):
    from asterism.testing.postgres import postgres_server

    server = postgres_server(fsync=True)
    with server.database() as url:
        asterism.use(model, f'[store]\nurl = "{url}"')
        server.stop()
        try:
            done = asterism.run("chat", "--once", "hi")
            assert done.returncode == 1
            assert "is out of reach" in done.stderr
            with asterism.started("worker") as worker:
                assert worker.stderr is not None
                said = worker.stderr.readline()
                waits = r"is out of reach \(.+\)\. .* Waiting for it; Ctrl-C .* ends\.$"
                assert re.search(waits, said)
                server.start()
                # Whatever it has tried meanwhile, it has said so once.
                assert "Running" in worker.stderr.readline()
                assert asterism.ok("chat", "--once", "hi") == "answer to: hi\n"
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(PATIENCE) == 0
        finally:
            server.start()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_waits_for_its_server_ends_when_told(
    asterism: Command, number: signal.Signals
):
    asterism.configure(f'[store]\nurl = "postgresql://127.0.0.1:{unused_port()}/asterism"\n')
    with asterism.started("worker") as worker:
        assert worker.stderr is not None
        assert "Waiting for it" in worker.stderr.readline()
        worker.send_signal(number)
        assert worker.wait(PATIENCE) == 0
        assert worker.stderr.read() == ""


@pytest.mark.promise("X5")
def test_a_worker_does_not_wait_for_what_cannot_come(asterism: Command):
    asterism.configure('[store]\nurl = "postgresql://a@b@c:1/d"\n')
    done = asterism.run("worker")
    assert done.returncode == 1
    assert "[store] url cannot be read" in done.stderr


async def test_a_worker_that_waits_says_so_again_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from asterism.cli import serve
    from asterism.cli.commands import Options

    out_of_reach = StoreUnavailable("The server is out of reach (no answer).", outcome="No.")
    monkeypatch.setenv("ASTERISM_STORE__URL", "postgresql://127.0.0.1/asterism")
    monkeypatch.setattr(serve, "open_here", Mock(side_effect=out_of_reach))
    monkeypatch.setattr(serve, "_FIRST_WAIT", 0.02)
    monkeypatch.setattr(serve, "_MAX_WAIT", 0.02)
    monkeypatch.setattr(serve, "_SAY_AGAIN", 0.2)
    working = asyncio.create_task(serve.worker(Options(data=tmp_path)))
    said = ""
    async with asyncio.timeout(PATIENCE):
        began = time.monotonic()
        while said.count("\n") < 3:
            await asyncio.sleep(0.01)
            said += capsys.readouterr().err
        assert time.monotonic() - began >= 0.4
        os.kill(os.getpid(), signal.SIGTERM)
        await working
    told = "The server is out of reach (no answer). Waiting for it; Ctrl-C or SIGTERM ends."
    assert set(said.splitlines()) == {told}


def unused_port() -> int:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return int(closed.getsockname()[1])


async def test_answers_are_sent_at_once() -> None:
    """Small pieces are not held back until the client has acknowledged those before."""
    options: asyncio.Queue[int] = asyncio.Queue()

    def accepted(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        options.put_nowait(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with bind("127.0.0.1", 0) as taken:
        async with await asyncio.start_server(accepted, sock=taken):
            _, writer = await asyncio.open_connection(*taken.getsockname())
            async with asyncio.timeout(PATIENCE):
                assert await options.get()
            writer.close()


@pytest.mark.promise("A3", "A4")
async def test_a_served_home_answers_clients_of_openai_and_of_mcp(asterism: Command):
    openai = pytest.importorskip("openai")
    pytest.importorskip("mcp")
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    asterism.ok("agent", "create", "aria", "--model", "demo:demo")
    with asterism.started("serve", "--port", "0") as server:
        url = url_of(server)
        secret = (asterism.data / "api-token").read_text().strip()
        async with openai.AsyncOpenAI(base_url=f"{url}/openai/v1", api_key=secret) as client:
            asked = [{"role": "user", "content": "hello"}]
            answer = await client.chat.completions.create(model="aria", messages=asked)
            assert "demo model" in answer.choices[0].message.content
        headers = {"authorization": f"Bearer {secret}"}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            streamable_http_client(f"{url}/mcp", http_client=http) as streams,
            ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            tools = [tool.name for tool in (await session.list_tools()).tools]
            assert "chat_with_agent" in tools
            found = await session.call_tool("list_agents", {})
            assert "aria" in str(found.content)
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0
