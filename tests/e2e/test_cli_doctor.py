"""`asterism doctor` on good and bad days."""

import json
import socket
import sqlite3
import time
from contextlib import closing
from typing import Any

import pytest

from asterism.testing.postgres import postgres_server
from tests.e2e.command import Command, Installed, ModelServer
from tests.servers.openai_server import Raw


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
    assert "local:m answers after" in findings(asterism)["model"]["text"]
    assert model.requests == before + 1
    assert findings(asterism, "--offline")["model"]["state"] == "ok"
    assert model.requests == before + 1


@pytest.mark.postgres
def test_a_server_that_does_not_sync_is_not_called_damaged(asterism: Command):
    with postgres_server().database() as url:  # which has fsync off
        asterism.env["ASTERISM_STORE__URL"] = url
        store = findings(asterism, "--offline", code=1)["store"]
    assert "damaged" not in store["text"]
    assert "The server runs with fsync = off, and may lose what it confirmed." in store["text"]
    assert "pg_reload_conf" in store["remedy"]


def test_the_first_day(installed: Installed):
    found = findings(installed)
    assert found["data"]["state"] == found["store"]["state"] == found["model"]["state"] == "look"
    assert "asterism setup" in found["model"]["remedy"]
    assert not installed.data.exists()


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
    assert found["model"]["state"] == "bad"
    assert f"127.0.0.1:{port}" in found["model"]["text"]
    for model, lacks in {
        "openai:gpt-4.1-mini": "OPENAI_API_KEY is not set",
        "groq:m": "GROQ_API_KEY is not set",
        "nobody:m": "not known",
        "embedded:smollm2-135m": "not on this machine",
    }.items():
        asterism.configure(f'model = "{model}"\n')
        for more in ([], ["--offline"]):
            assert lacks in findings(asterism, *more, code=1)["model"]["text"]


def test_every_model_of_every_chain_is_asked_at_the_same_time(asterism: Command):
    began = time.monotonic()
    with ModelServer(together=3) as model:
        asterism.use(model, '[models.unused]\nbase_url = "http://127.0.0.1:1/v1"')
        asterism.ok("agent", "create", "aria", "--model", "local:a, local:b, demo:guide")
        done = asterism.run("doctor", "--json")
    told = [one for one in json.loads(done.stdout) if one["check"] == "model"]
    assert [(one["text"].split()[0], one["state"]) for one in told] == [
        ("demo:guide", "look"),
        ("local:a", "ok"),
        ("local:b", "ok"),
        ("local:m", "ok"),
        ("[models.unused]", "ok"),
    ]
    assert model.requests == 3
    assert time.monotonic() - began < 3 * 2.0 + 10  # no model was given up on, on any machine
    assert done.returncode == 0


@pytest.mark.promise("X3")
def test_a_key_that_is_refused_is_told_and_not_shown(asterism: Command, model: ModelServer):
    echo = b'{"error": {"message": "Incorrect API key provided: sk-hunter2."}}'
    model.next(Raw(echo, status=401))
    asterism.env["MY_KEY"] = "sk-hunter2"
    asterism.use(model)
    with (asterism.data / "asterism.toml").open("a", encoding="utf-8") as file:
        file.write('key_env = "MY_KEY"\n')
    done = asterism.run("doctor")
    assert done.returncode == 1
    assert "MY_KEY" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.promise("X3")
@pytest.mark.parametrize("named", ["local", "work"])
def test_a_stored_key_is_used_as_in_a_turn(asterism: Command, model: ModelServer, named: str):
    key = "sk-stored-in-the-home"
    model.demand(key)
    asterism.use(model)
    if named != "local":
        with (asterism.data / "asterism.toml").open("a", encoding="utf-8") as file:
            file.write(f'key = "secret:{named}"\n')
    assert "bad" in {one["state"] for one in findings(asterism, code=1).values()}
    assert asterism.run("model", "test").returncode == 1
    asterism.ok("key", "set", named, "--stdin", stdin=key)
    asterism.ok("chat", "--once", "hi")
    assert "local:m answers after" in findings(asterism)["model"]["text"]
    assert findings(asterism, "--offline")["model"]["state"] == "ok"
    assert "tokens" in asterism.ok("model", "test")
    listed = {one["name"]: one for one in asterism.json("model", "list")}
    assert listed["local"]["key"] == f"stored as {named}"
    assert asterism.json("model", "use", "local:m")["hints"] == []
    printed = [asterism.run(*one) for one in (("doctor",), ("model", "test"), ("model", "list"))]
    assert key not in "".join(one.stdout + one.stderr for one in printed)


@pytest.mark.promise("X3")
def test_a_vendor_whose_key_is_stored_lacks_none(asterism: Command):
    asterism.configure('model = "openai:gpt-4.1-mini"\n')
    assert findings(asterism, "--offline", code=1)["model"]["state"] == "bad"
    assert "needs a key" in asterism.ok("model", "use", "openai:gpt-4.1-mini")
    asterism.ok("key", "set", "openai", "--stdin", stdin="sk-stored-in-the-home")
    assert findings(asterism, "--offline")["model"]["state"] == "ok"
    assert asterism.json("model", "use", "openai:gpt-4.1-mini")["hints"] == []


def test_a_channel_that_cannot_work(asterism: Command):
    asterism.configure('[channels.home]\ntype = "webhook"\nurl = "nonsense"\n')
    found = findings(asterism, code=1)
    assert "channels.home.url" in found["channel"]["text"]
    asterism.configure('[channels.home]\ntype = "discord"\n')
    found = findings(asterism, code=1)
    assert 'channels.home.type names "discord"' in found["configuration"]["text"]
    assert asterism.run("serve", "--port", "0").returncode == 1


def test_a_damaged_database(asterism: Command):
    asterism.data.mkdir()
    (asterism.data / "asterism.db").write_bytes(b"not a database" * 100)
    assert "not a healthy database" in findings(asterism, code=1)["store"]["text"]
    (asterism.data / "asterism.db").unlink()
    (asterism.data / "snapshots").mkdir()
    assert "is gone" in findings(asterism, code=1)["store"]["text"]


@pytest.mark.promise("X5")
def test_a_database_from_before_the_first_release(asterism: Command):
    asterism.data.mkdir(mode=0o700)
    database = asterism.data / "asterism.db"
    with closing(sqlite3.connect(database)) as raw, raw:
        raw.execute("CREATE TABLE schema_versions (version BIGINT, applied_at BIGINT)")
        raw.execute("INSERT INTO schema_versions VALUES (13, 0)")
    before = database.read_bytes()
    refusal = (
        f"The database in {asterism.data} has schema 13, from before the first release; this "
        "release begins with schema 15. "
    )
    assert findings(asterism, code=1)["store"]["text"].startswith(refusal)
    for arguments in (["agent", "list"], ["agent", "create", "aria"]):
        done = asterism.run(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith(f"asterism: {refusal}")
        assert done.stderr.endswith("Nothing was changed.\n")
    assert database.read_bytes() == before


def test_at_a_narrow_terminal(asterism: Command):
    asterism.ok("agent", "create", "aria")
    with asterism.screen("doctor", columns=60) as person:
        assert person.ended() == 0
    assert "✓" in person.shown
    assert max(map(len, person.shown.splitlines())) <= 60
