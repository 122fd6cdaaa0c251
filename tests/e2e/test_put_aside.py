"""A turn that ends the process is put aside after the second time, and everything else goes on."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Generator
from subprocess import Popen

import httpx2
import pytest

from tests.e2e.command import PATIENCE, Command
from tests.e2e.test_serving import address_of, client_of, until

TOOLS = '''
import signal
from asterism import tool
from asterism.types.permissions import ToolEffect

@tool(repeatable=True, effects=ToolEffect("read"))
def die(how: str) -> str:
    """End this process."""
    if how == "interrupt":
        raise KeyboardInterrupt
    signal.raise_signal(int(how))  # ends it at once; os.kill may do so after the return
    return "alive"

@tool(transactional=True, effects=ToolEffect("read"))
async def die_inside(ctx, how: str) -> str:
    """End this process in a transaction."""
    signal.raise_signal(int(how))  # ends it at once; os.kill may do so after the return
    return "alive"
'''

pytestmark = [pytest.mark.promise("X5", "T2", "O4"), pytest.mark.timeout(PATIENCE)]


@pytest.fixture
def home(asterism: Command) -> Command:
    module = asterism.place / "deadly.py"
    module.write_text(TOOLS)
    asterism.configure(f'model = "demo:default"\n[tools]\nmodules = ["{module}"]\n')
    for name in ("aria", "bela"):
        asterism.ok("agent", "create", name)
    return asterism


@contextlib.contextmanager
def served(home: Command) -> Generator[tuple[Popen[str], httpx2.Client], None, None]:
    with (
        home.started("serve", "--port", "0") as server,
        client_of(home, address_of(server)) as client,
    ):
        yield server, client


def send(client: httpx2.Client, agent: str, text: str) -> str:
    """Hand in a message and return its turn, whether or not the answer to it arrives."""
    answer = client.post(f"/api/agents/{agent}/messages", json={"text": text})
    assert answer.status_code == 202, answer.text
    return answer.json()["turn_id"]


def state_of(client: httpx2.Client, turn: str) -> str:
    return client.get(f"/api/turns/{turn}/outcome").json()["state"]


def test_a_turn_that_ends_the_process_twice_is_put_aside(home: Command):
    with served(home) as (server, client):
        before = send(client, "bela", "say before")
        until(lambda: state_of(client, before) == "done")
        culprit = send(client, "aria", f'call die_inside {{"how": "{signal.SIGSEGV.value}"}}')
        assert server.wait(PATIENCE) < 0
    with home.started("serve", "--port", "0") as server:
        assert server.wait(PATIENCE) < 0
    with served(home) as (server, client):
        until(lambda: state_of(client, culprit) == "failed")
        said = client.get(f"/api/turns/{culprit}/outcome").json()["text"]
        assert "ended 2 times" in said
        assert f"asterism turn retry {culprit}" in said
        after = send(client, "aria", "say after")
        until(lambda: state_of(client, after) == "done")
        notices = client.get("/api/notices").json()["items"]
        assert [one["turn_id"] for one in notices if one["kind"] == "turn.put-aside"] == [culprit]
        shown = home.json("turn", "show", culprit)
        assert shown["state"] == "failed"
        assert "die" in str(shown["entries"])
        events = home.json("audit", "list", "--kind", "turn.put-aside")
        assert [event["turn_id"] for event in events] == [culprit]
        retried = client.post(f"/api/turns/{culprit}/retry")
        assert retried.status_code == 202
        assert server.wait(PATIENCE) < 0  # on purpose


def test_others_that_were_under_way_beside_it_are_answered(home: Command):
    """Messages before, beside and behind the one that ends the process."""
    with served(home) as (server, client):
        client.put("/api/halt", json={"reason": "to fill the inboxes"})
        waiting = [send(client, name, f"say {n}") for n in range(5) for name in ("aria", "bela")]
        culprit = send(client, "aria", 'call die {"how": "interrupt"}')
        waiting += [send(client, name, f"say {n}") for n in range(5) for name in ("aria", "bela")]
        client.delete("/api/halt")
        with contextlib.suppress(httpx2.HTTPError):
            client.get("/health")
        assert server.wait(PATIENCE) == 130
    with home.started("serve", "--port", "0") as server:
        assert server.wait(PATIENCE) == 130
    with served(home) as (server, client):
        until(lambda: state_of(client, culprit) == "failed")
        until(lambda: all(state_of(client, turn) == "done" for turn in waiting))


@pytest.mark.postgres
@pytest.mark.promise("D2")
def test_a_turn_that_ends_two_workers_is_put_aside_by_the_third(home: Command):
    from asterism.testing.postgres import postgres_server

    config = home.data / "asterism.toml"
    with postgres_server().database() as url:
        config.write_text(
            config.read_text()
            + f'[store]\nurl = "{url}"\n[runtime]\nheartbeat = 0.2\nstalled_after = 0.5\n'
        )
        for name in ("aria", "bela"):
            home.ok("agent", "create", name)
        with (
            home.started("worker") as first,
            home.started("serve", "--port", "0", "--no-worker") as server,
            client_of(home, address_of(server)) as client,
        ):
            culprit = send(client, "aria", 'call die {"how": "9"}')
            behind = send(client, "aria", "say behind")
            assert first.wait(PATIENCE) == -signal.SIGKILL
            with home.started("worker") as second:
                assert second.wait(PATIENCE) == -signal.SIGKILL
            with home.started("worker"):
                until(lambda: state_of(client, culprit) == "failed")
                until(lambda: state_of(client, behind) == "done")
                beside = send(client, "bela", "say beside")
                until(lambda: state_of(client, beside) == "done")
                notices = client.get("/api/notices").json()["items"]
                assert "turn.put-aside" in [one["kind"] for one in notices]
