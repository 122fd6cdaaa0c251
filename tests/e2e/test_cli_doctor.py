"""`asterism doctor` on good and bad days."""

import json
import socket
from typing import Any

from tests.e2e.command import Command, ModelServer


def findings(asterism: Command, *arguments: str, code: int = 0) -> dict[str, dict[str, Any]]:
    done = asterism.run("doctor", *arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return {finding["check"]: finding for finding in json.loads(done.stdout)}


def test_a_good_day(asterism: Command, model: ModelServer):
    asterism.use(model)
    asterism.ok("chat", "--once", "hi")
    found = findings(asterism)
    assert {finding["state"] for finding in found.values()} == {"ok"}
    assert found["agents"]["text"] == "1 agent"
    printed = asterism.ok("doctor")
    assert printed.count("✓") == len(found)
    before = model.requests
    assert "answers" in findings(asterism, "--probe")["model"]["text"]
    assert model.requests == before + 1


def test_the_first_day(asterism: Command):
    found = findings(asterism)
    assert found["data"]["state"] == found["store"]["state"] == found["model"]["state"] == "look"
    assert "OPENAI_API_KEY" in found["model"]["remedy"]
    assert not asterism.data.exists()


def test_beside_a_process_at_work(asterism: Command):
    with asterism.started("serve", "--port", "0") as server:
        assert server.stderr is not None
        assert "Listening" in server.stderr.readline()
        assert f"process {server.pid}" in findings(asterism)["process"]["text"]


def test_a_bad_configuration(asterism: Command):
    asterism.configure("[limits]\nsteps = 0\n")
    found = findings(asterism, code=1)
    assert found["configuration"]["state"] == "bad"
    assert "line 2" in found["configuration"]["text"]


def test_a_model_out_of_reach_and_a_key_that_is_missing(asterism: Command):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    asterism.configure(
        f'model = "local:m"\n[models.local]\nbase_url = "http://127.0.0.1:{port}/v1"\n'
    )
    found = findings(asterism, code=1)
    assert f"127.0.0.1:{port} cannot be reached" in found["model"]["text"]
    asterism.configure('model = "openai:gpt-4.1-mini"\n')
    assert "OPENAI_API_KEY is not set" in findings(asterism, code=1)["model"]["text"]
    asterism.configure('model = "nobody:m"\n')
    assert "not known" in findings(asterism, code=1)["model"]["text"]


def test_a_channel_that_cannot_work(asterism: Command):
    asterism.configure('[channels.home]\ntype = "webhook"\nurl = "nonsense"\n')
    found = findings(asterism, code=1)
    assert "channels.home.url" in found["channel"]["text"]


def test_a_damaged_database(asterism: Command):
    asterism.data.mkdir()
    (asterism.data / "asterism.db").write_bytes(b"not a database" * 100)
    assert "not a healthy database" in findings(asterism, code=1)["store"]["text"]
    (asterism.data / "asterism.db").unlink()
    (asterism.data / "snapshots").mkdir()
    assert "is gone" in findings(asterism, code=1)["store"]["text"]


def test_at_a_narrow_terminal(asterism: Command):
    asterism.ok("agent", "create", "aria")
    with asterism.terminal("doctor", columns=60) as person:
        assert person.ended() == 0
    assert "✓" in person.shown
    assert max(map(len, person.shown.splitlines())) <= 60
