"""`asterism token` and `asterism user`: alone, and while another process has the home open."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.command import Command
from tests.e2e.test_terminals import served, stop

PASSWORD = "seven green umbrellas"


def test_tokens_are_created_listed_and_revoked(asterism: Command):
    asterism.ok("agent", "create", "aria")
    done = asterism.run("token", "create", "ci", "--scope", "read", "--agent", "aria")
    assert done.stdout.startswith("ast_")
    assert done.stdout.count("\n") == 1  # for $(asterism token create ci)
    assert "cannot be shown again" in done.stderr
    made = asterism.json("token", "create", "ops", "--role", "operator", "--expires", "90d")
    assert made["secret"].startswith("ast_")
    assert (made["role"], made["person"]) == ("operator", "ops")
    end = datetime.fromtimestamp(made["expires_at"] / 1000, UTC)
    assert timedelta(days=89) < end - datetime.now(UTC) < timedelta(days=91)
    ci, ops = asterism.json("token", "list")
    assert (ci["name"], ci["scopes"], ci["agents"]) == ("ci", ["read"], ["aria"])
    assert "secret" not in ops
    assert "hash" not in ops
    shown = asterism.ok("token", "list")
    assert "operator" in shown
    assert "ast_" not in shown
    asterism.ok("token", "revoke", "ci")
    assert [token["name"] for token in asterism.json("token", "list")] == ["ops"]
    assert len(asterism.json("token", "list", "--all")) == 2
    kinds = [event["kind"] for event in asterism.json("audit", "list", "--kind", "token")]
    assert kinds == ["token.revoked", "token.created", "token.created"]
    with asterism.screen("token", "list", "--all", columns=60) as person:
        assert person.ended() == 0
    assert max(map(len, person.shown.splitlines())) <= 60


@pytest.mark.promise("X5")
def test_what_no_token_can_be(asterism: Command):
    asterism.ok("token", "create", "ci")
    for code, *arguments in (
        (2, "create", ""),
        (2, "create", "two\nlines"),
        (2, "create", "x", "--role", "boss"),
        (2, "create", "x", "--scope", "everything"),
        (2, "create", "x", "--expires", "2020-01-01"),
        (2, "create", "x", "--expires", "whenever"),
        (2, "create", "x", "--role", "agent-service"),
        (1, "create", "x", "--agent", "nobody"),
        (1, "create", "x", "--role", "viewer", "--person", "nobody"),
        (1, "create", "ci"),
        (1, "revoke", "nothing"),
    ):
        done = asterism.run("token", *map(str, arguments))
        assert done.returncode == code, (arguments, done.stderr)
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    assert [token["name"] for token in asterism.json("token", "list")] == ["ci"]


def test_users_get_and_lose_a_password(asterism: Command):
    asterism.ok("person", "add", "Ann")
    assert asterism.run("user", "password", "Ann").returncode == 2  # there is no terminal
    short = asterism.run("user", "password", "Ann", "--stdin", stdin="short\n")
    assert short.returncode == 2
    assert "at least 10" in short.stderr
    asterism.ok("user", "password", "Ann", "--stdin", stdin=f"{PASSWORD}\n")
    with asterism.terminal("user", "password", "owner") as person:
        person.expect("Password of owner")
        person.type(PASSWORD)
        person.expect("The same again")
        person.type(PASSWORD)
        person.expect("is set")
        assert person.ended() == 0
        assert PASSWORD not in person.shown
    assert [user["name"] for user in asterism.json("user", "list")] == ["owner", "Ann"]
    asterism.ok("user", "remove", "Ann")
    assert asterism.run("user", "remove", "Ann").returncode == 1
    assert asterism.run("user", "password", "Bob", "--stdin", stdin=PASSWORD).returncode == 1


@pytest.mark.promise("X1")
def test_a_served_home_has_a_token_for_this_machine_and_takes_the_commands(asterism: Command):
    asterism.ok("agent", "create", "aria")
    file = asterism.data / "api-token"
    with served(asterism) as process:
        secret = file.read_text().strip()
        assert secret.startswith("ast_")
        assert file.stat().st_mode & 0o777 == 0o600
        (default,) = asterism.json("token", "list")
        assert (default["name"], default["role"]) == ("default", "owner")
        made = asterism.json("token", "create", "ci", "--agent", "aria")
        assert made["agents"] == ["aria"]
        asterism.ok("token", "revoke", "ci")
        refused = asterism.run("token", "revoke", "ci", "--json")
        assert json.loads(refused.stderr)["type"] == "not-found"
        asterism.ok("user", "password", "owner", "--stdin", stdin=f"{PASSWORD}\n")
        assert len(asterism.json("user", "list")) == 1
        asterism.ok("user", "remove", "owner")
        stop(process)
    with served(asterism) as process:
        assert file.read_text().strip() == secret
        stop(process)
    for log in asterism.data.rglob("*.log"):
        content = log.read_text()
        assert secret.rpartition("_")[2] not in content
        assert made["secret"].rpartition("_")[2] not in content
        assert PASSWORD not in content
