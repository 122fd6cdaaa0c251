"""The audit log and stored keys from the command line, and a canary that is found nowhere."""

import base64
import csv
import io
import json
from pathlib import Path

import pytest

from tests.e2e.command import Command, Installed, ModelServer
from tests.servers.openai_server import Raw

CANARY = "canary-4711-key-of-a-vendor"

LEAKS = """
import base64, logging
from asterism import tool

# Joined when it runs: a constant would stand in the compiled module.
KEY = "-".join(["canary", "4711", "key", "of", "a", "vendor"])


@tool(repeatable=True)
def leak() -> str:
    '''Write a key to the log.'''
    logging.getLogger("leaks").debug("a tool that tells %s", KEY)
    try:
        raise ValueError(KEY + " and " + base64.b64encode(KEY.encode()).decode())
    except ValueError:
        logging.getLogger("leaks").exception("failed")
    return "done"
"""


@pytest.fixture
def keyed(asterism: Command, tmp_path: Path) -> Command:
    """A command whose user has a place for configuration of their own."""
    asterism.env["XDG_CONFIG_HOME"] = str(tmp_path / "config")
    return asterism


def forms() -> list[bytes]:
    raw = CANARY.encode()
    return [raw, base64.b64encode(raw).rstrip(b"=")[:-1], raw.hex().encode()]


def held(place: Path) -> list[str]:
    """Return the files below a place that hold the canary in any form."""
    files = [one for one in place.rglob("*") if one.is_file()]
    return [str(one) for one in files if any(form in one.read_bytes() for form in forms())]


@pytest.mark.promise("X3")
def test_a_canary_is_found_nowhere(keyed: Command, tmp_path: Path):
    with ModelServer() as server:
        keyed.use(server, 'log.level = "debug"\ntools.modules = ["leaks.py"]')
        (keyed.data / "leaks.py").write_text(LEAKS)
        said = [keyed.ok("key", "set", "local", "--stdin", stdin=f"{CANARY}\n")]
        said += [keyed.ok("chat", "--once", "hello [[call:leak {}]]")]
        assert server.headers[-1]["Authorization"] == f"Bearer {CANARY}"
        # A server that quotes what it was sent, plainly and encoded.
        coded = base64.b64encode(f"user:{CANARY}".encode()).decode()
        error = json.dumps({"error": {"message": f"no: {CANARY}, Basic {coded}"}}).encode()
        server.next(*[Raw(error, status=400)] * 4)
        done = keyed.run("chat", "--once", "again")
        assert done.returncode != 0
        said += [done.stdout, done.stderr]
        for arguments in (
            ("key", "list", "--json"),
            ("key", "rotate"),
            ("turn", "list", "--json"),
            ("memory", "export"),
            ("audit", "list", "--json"),
            ("audit", "export"),
            ("audit", "export", "--format", "csv"),
        ):
            done = keyed.run(*arguments)
            said += [done.stdout, done.stderr]
    assert not [text for text in said if any(form.decode() in text for form in forms())]
    assert held(tmp_path) == []
    log = (keyed.data / "asterism.log").read_text("utf-8")
    assert "a tool that tells [redacted local]" in log
    assert "ValueError: [redacted local] and [redacted local]" in log


def test_keys_are_set_listed_and_removed(keyed: Command, tmp_path: Path):
    keyed.ok("agent", "create", "aria")
    assert "No keys are stored" in keyed.ok("key", "list")
    told = keyed.ok("key", "set", "openai", "--stdin", stdin=CANARY)
    master = tmp_path / "config" / "asterism" / "master.key"
    assert f"The master key is in {master}" in told
    assert master.stat().st_mode & 0o777 == 0o600
    keyed.env["GIVEN"] = "another-value-99"
    assert "replaces the earlier key" in keyed.ok("key", "set", "openai", "--from-env", "GIVEN")
    assert "fewer than 8" in keyed.ok("key", "set", "pin", "--stdin", stdin="1234")
    [one, two] = keyed.json("key", "list")
    assert (one["name"], one["used_by"]) == ("openai", ["models.openai"])
    assert two["used_by"] == []
    assert keyed.json("key", "remove", "pin") == {"name": "pin"}
    assert keyed.json("key", "rotate") == {"keys": 1}
    assert "encrypted again" in keyed.ok("key", "rotate")
    with keyed.terminal("key", "set", "typed") as person:
        person.expect("Key of typed")
        person.type(CANARY)
        assert person.ended() == 0
    assert CANARY not in person.shown


@pytest.mark.promise("X5")
def test_what_keys_cannot_be_given(keyed: Command, tmp_path: Path):
    keyed.env["GIVEN"] = "another-value-99"
    keyed.ok("key", "set", "openai", "--from-env", "GIVEN")
    (tmp_path / "config" / "asterism" / "master.key").unlink()
    assert "has no master key" in keyed.ok("key", "list")
    for arguments, told in (
        (("key", "set", "openai"), "no terminal"),
        (("key", "set", "openai", "--stdin", "--from-env", "GIVEN"), "cannot be used together"),
        (("key", "set", "openai", "--from-env", "GIVEN"), "has no master key"),
        (("key", "rotate"), "Nothing was changed"),
        (("key", "remove", "opnai"), "Did you mean 'openai'?"),
    ):
        done = keyed.run(*arguments)
        assert done.returncode in (1, 2)
        assert told in done.stderr


@pytest.mark.promise("X2")
def test_the_log_is_listed_shown_verified_and_exported(keyed: Command, tmp_path: Path):
    keyed.ok("agent", "create", "aria")
    keyed.ok("person", "add", "anna", "--role", "family")
    keyed.ok("block", "create", "human", "--text", "Likes tea.", "--agent", "aria")
    keyed.ok("key", "set", "openai", "--stdin", stdin=CANARY)
    found = keyed.json("audit", "list")
    kinds = [one["kind"] for one in found]
    assert kinds[0] == "key.set"
    assert {"person.created", "block.created"} <= set(kinds)
    [person] = keyed.json("audit", "list", "--kind", "person.created", "--since", "1 hour ago")
    assert person["body"]["what"] == "anna"
    assert keyed.json("audit", "list", "--until", "1 hour ago") == []
    assert [
        one["kind"] for one in keyed.json("audit", "list", "--agent", "aria", "--kind", "block")
    ]
    shown = keyed.ok("audit", "show", person["event"])
    assert "anna" in shown
    assert person["hash"] in shown
    verified = keyed.ok("audit", "verify")
    assert "are as they were written" in verified
    head = next(line for line in verified.splitlines() if line.startswith("The head is"))
    assert keyed.json("audit", "verify", "--head", head.rpartition(" ")[2])["sound"]
    number = head.rpartition(" ")[2].split(":")[1]
    cut = keyed.run("audit", "verify", "--head", f"home:{number}:{'0' * 64}")
    assert cut.returncode == 1
    lines = [json.loads(line) for line in keyed.ok("audit", "export").splitlines()]
    assert [line["number"] for line in lines] == [*range(1, len(lines) + 1)]
    table = tmp_path / "log.csv"
    keyed.ok("audit", "export", "--format", "csv", "--file", str(table))
    rows = list(csv.DictReader(io.StringIO(table.read_text("utf-8"))))
    assert [row["hash"] for row in rows] == [line["hash"] for line in lines]
    for arguments in (
        ("audit", "show", "home"),
        ("audit", "show", "home:9999"),
        ("audit", "export", "--format", "xml"),
        ("audit", "export", "--file", str(tmp_path / "no" / "such" / "place")),
        ("audit", "verify", "--head", "home:1"),
        ("audit", "list", "--agent", "nobody"),
    ):
        assert keyed.run(*arguments).returncode in (1, 2), arguments


@pytest.mark.promise("X2")
def test_a_changed_log_is_told(keyed: Command, installed: Installed):
    import apsw

    keyed.ok("person", "add", "anna")
    keyed.ok("person", "add", "ben")
    raw = apsw.Connection(str(keyed.data / "asterism.db"))
    raw.execute("UPDATE events SET at = at - 60000 WHERE number = 1").fetchall()  # pyright: ignore[reportUnknownMemberType] - apsw's stubs
    raw.close()
    done = installed.run("audit", "verify")
    assert done.returncode == 1
    assert "home:1  it does not follow from the event before it" in done.stdout
    told = json.loads(keyed.run("audit", "verify", "--json").stdout)
    assert (told["sound"], told["flaws"][0]["number"]) == (False, 1)


@pytest.mark.parametrize("noun", [("audit", "list"), ("key", "list")])
def test_lists_fit_a_narrow_terminal(keyed: Command, noun: tuple[str, ...]):
    keyed.ok("person", "add", "anna")
    keyed.ok("key", "set", "openai", "--stdin", stdin=CANARY)
    with keyed.screen(*noun, columns=60) as person:
        assert person.ended() == 0
    assert max(map(len, person.shown.splitlines())) <= 60


@pytest.mark.promise("X3")
def test_a_key_in_a_block_is_neither_shown_as_sent_nor_repeated_by_an_error(keyed: Command):
    keyed.ok("agent", "create", "aria", "--model", "demo:guide")
    keyed.ok("block", "create", "house", "--text", f"Opens with {CANARY}.", "--agent", "aria")
    keyed.ok("key", "set", "door", "--stdin", stdin=CANARY)
    for form in ("--full", "--json"):
        shown = keyed.ok("context", "show", "aria", form)
        assert "Opens with [redacted door]." in shown
        assert CANARY not in shown
    refused = keyed.run("agent", "show", CANARY)
    assert refused.returncode == 1
    assert "no agent named '[redacted door]'" in " ".join(refused.stderr.split())
