"""One message in, one answer out, whatever comes in."""

import json
import os
from pathlib import Path

import pytest

from tests.e2e.command import Command, Installed, ModelServer
from tests.servers.openai_server import HTML, MALFORMED, Fault, Raw

TOOLS = """
from asterism import tool


@tool(repeatable=True)
def add(a: int, b: int) -> int:
    return a + b


@tool(ask=True)
def pay(amount: int) -> str:
    return f"Paid {amount}."


@tool(repeatable=True, effects=())
def shout() -> str:
    return "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m"
"""


def with_tools(asterism: Command, model: ModelServer) -> None:
    asterism.use(model, '[tools]\nmodules = ["tools.py"]')
    (asterism.data / "tools.py").write_text(TOOLS)


@pytest.mark.promise("D1")
def test_a_fresh_machine_answers_without_key_or_database(installed: Installed):
    assert "demo model" in installed.ok("chat", "--once", "hello")
    assert "asterism.db" in {path.name for path in installed.data.iterdir()}


def test_pipes(installed: Installed, model: ModelServer):
    installed.use(model)
    assert installed.ok("chat", stdin="from a pipe\n") == "answer to: from a pipe\n\n"
    assert installed.ok("chat", "--once", "-", stdin="dash") == "answer to: dash\n"
    assert installed.ok(stdin="alone") == "answer to: alone\n"


def test_json_answer(asterism: Command, model: ModelServer):
    asterism.use(model)
    answer = asterism.json("chat", "--once", "hi")
    assert answer["text"] == "answer to: hi"
    assert answer["state"] == "done"
    assert answer["agent"] == "aster"
    assert asterism.json("--json", "turn", "list")[0]["id"] == answer["turn_id"]


def test_a_tool_is_used_and_only_the_answer_printed(asterism: Command, model: ModelServer):
    with_tools(asterism, model)
    said = 'sum [[call:add {"a": 1, "b": 2}]]'
    assert asterism.ok("chat", "--once", said) == f"answer to: {said}\n"
    shown = asterism.ok("turn", "show", asterism.json("turn", "list")[0]["id"])
    assert '→ add {"a": 1, "b": 2}' in shown
    assert "← 3" in shown


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("stdin", "says"),
    [
        ("", "The message is empty."),
        ("  \n\t", "The message is empty."),
        (b"caf\xe9", "Byte 4 of standard input (0xe9) is not UTF-8."),
        ("x" * 10_000_000, "Send it in parts. Nothing was stored."),
        ("x" * 1_000_001, "1,000,001 characters"),
    ],
    ids=["empty", "blank", "latin-1", "10 MB", "a bit too long"],
)
def test_a_message_that_cannot_be_taken(asterism: Command, stdin: str | bytes, says: str):
    done = asterism.run("chat", stdin=stdin)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""
    assert asterism.ok("chat", "--once", "next")
    assert len(asterism.json("turn", "list")) == 1


@pytest.mark.promise("X5")
def test_an_argument_that_is_not_utf8(installed: Installed):
    done = installed.run("chat", "--once", b"caf\xe9")
    assert (done.returncode, done.stdout) == (2, "")
    assert "not UTF-8" in done.stderr


@pytest.mark.promise("X5")
def test_control_characters_never_reach_the_terminal(asterism: Command, model: ModelServer):
    with_tools(asterism, model)
    asterism.ok("agent", "create", "aria", "--system", "\x1b[31mred")
    printed = asterism.ok("chat", "--once", "bell \x07 [[call:shout {}]] \x1b[31m \x9b31m")
    assert r"bell \x07" in printed
    turn = asterism.json("turn", "list")[0]["id"]
    for shown in (
        printed,
        asterism.ok("turn", "show", turn),
        asterism.ok("turn", "show", turn, "--json"),
        asterism.ok("agent", "show", "aria"),
    ):
        assert not set(shown) & set("\x1b\x07\x9b")


@pytest.mark.promise("X5")
def test_an_unknown_agent_gets_a_suggestion(asterism: Command):
    asterism.ok("agent", "create", "aria")
    done = asterism.run("chat", "--agent", "arya", "--once", "hi")
    assert done.returncode == 1
    assert "Did you mean 'aria'?" in done.stderr
    problem = json.loads(asterism.run("agent", "show", "arya", "--json").stderr)
    assert problem["type"] == "not-found"
    assert "aria" in problem["detail"]


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("agent", "lsit"), ("turn", "list", "--limit", "many"), ("chat", "--bogus")],
    ids=" ".join,
)
def test_a_command_that_cannot_be_understood(asterism: Command, arguments: tuple[str, ...]):
    done = asterism.run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "--help" in done.stderr
    assert json.loads(asterism.run(*arguments, "--json").stderr)["type"] == "usage"


@pytest.mark.promise("X5")
def test_malformed_toml(asterism: Command):
    asterism.configure('model = "demo:guide"\nmodel = \n')
    done = asterism.run("chat", "--once", "hi")
    assert done.returncode == 1
    assert "asterism.toml line 2" in done.stderr
    assert not (asterism.data / "asterism.db").exists()


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (HTML, "local"),
        (MALFORMED, "local"),
        (Fault.CUT, "local"),
        (Fault.REFUSE, "local"),
    ],
    ids=["html", "malformed", "cut", "refused"],
)
def test_a_model_that_misbehaves(asterism: Command, model: ModelServer, fault: Fault, says: str):
    asterism.use(model)
    model.next(fault)
    done = asterism.run("chat", "--once", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("I could not answer:")
    assert says in done.stderr
    assert asterism.ok("chat", "--once", "next") == "answer to: next\n"


@pytest.mark.promise("X5")
def test_a_model_that_is_down(asterism: Command):
    with ModelServer() as gone:
        asterism.use(gone)
    done = asterism.run("chat", "--once", "hi")
    assert done.returncode == 1
    assert "Your message is kept." in done.stderr
    assert asterism.json("turn", "list")[0]["state"] == "failed"


@pytest.mark.promise("T10")
def test_the_demo_model_leaves_nothing_on_a_tape_and_that_is_told(
    asterism: Command, tmp_path: Path
):
    asterism.configure('model = "demo:guide"\n')
    done = asterism.run("chat", "--record", str(tmp_path / "tape"), "--once", "hello")
    assert done.returncode == 0
    assert "demo model" in done.stdout
    assert f"Nothing was recorded on {tmp_path / 'tape'}: no request was made" in done.stderr


def test_turns_of_a_deleted_agent_keep_its_name(asterism: Command, model: ModelServer):
    asterism.use(model)
    asterism.ok("agent", "create", "aria")
    turn = asterism.json("chat", "--agent", "aria", "--once", "hello")["turn_id"]
    asterism.ok("agent", "delete", "aria", "--yes")
    assert "aria (deleted)" in asterism.ok("turn", "list")
    assert "aria (deleted)" in asterism.ok("turn", "show", turn)


def test_what_is_stored_twice_is_told_once(asterism: Command):
    asterism.ok("agent", "create", "aria")
    stored = asterism.json("archive", "add", "The boiler was serviced on 3 May.")["passage"]["id"]
    again = asterism.ok("archive", "add", "The boiler was serviced on 3 May.")
    assert again == f"Already stored as {stored}, which now names this source as well.\n"


def test_a_limit_ends_the_turn_with_an_explanation(asterism: Command, model: ModelServer):
    with_tools(asterism, model)
    asterism.ok("agent", "create", "aria")
    asterism.ok("agent", "edit", "aria", "--steps", "1")
    done = asterism.run("chat", "--once", '[[call:add {"a": 1, "b": 2}]]')
    assert done.returncode == 1
    assert "I had to stop: I had no answer after the 1 steps" in done.stderr


def test_a_turn_that_waits_for_a_person(asterism: Command, model: ModelServer):
    with_tools(asterism, model)
    done = asterism.run("chat", "--once", '[[call:pay {"amount": 12}]]')
    assert done.returncode == 3
    assert "approval approve" in done.stderr
    (waiting,) = asterism.json("approval", "list")
    assert asterism.run("turn", "stop", waiting["turn_id"]).returncode == 1
    answer = asterism.ok("approval", "approve", waiting["id"], "--note", "just this once")
    assert "Paid 12." in answer
    again = asterism.run("approval", "deny", waiting["id"])
    assert again.returncode == 1
    assert "Nothing was changed." in again.stderr


@pytest.mark.promise("X5")
def test_a_second_process_on_the_same_directory(asterism: Command, model: ModelServer):
    asterism.use(model)
    with asterism.started("serve", "--port", "0") as server:
        assert server.stderr is not None
        assert "Listening" in server.stderr.readline()
        done = asterism.run("serve", "--port", "0")
        assert done.returncode == 1
        assert f"process {server.pid}" in done.stderr
        assert asterism.json("agent", "list") == []  # whatever needs no directory of its own works


@pytest.mark.promise("X5")
def test_a_place_that_cannot_be_written(asterism: Command, tmp_path: Path):
    a_file = tmp_path / "file"
    a_file.write_text("")
    places = [a_file, Path("/proc/asterism")]
    if os.geteuid() != 0:
        locked = tmp_path / "locked"
        locked.mkdir(mode=0o555)
        places.append(locked / "data")
    for place in places:
        done = asterism.run("chat", "--once", "hi", data=place)
        assert done.returncode == 1
        assert "--data" in done.stderr


@pytest.mark.promise("X5")
def test_reading_what_is_not_there_yet(installed: Installed):
    done = installed.run("agent", "list")
    assert done.returncode == 1
    assert "There is no database" in done.stderr
    assert not installed.data.exists()


@pytest.mark.promise("X5")
def test_a_bug_of_ours_is_one_sentence_and_a_log(asterism: Command, installed: Installed):
    asterism.ok("agent", "create", "aria")
    broken = installed.env | {
        "PYTHONPATH": str(installed.data),
    }
    (installed.data / "sitecustomize.py").write_text(
        "import asterism.cli.commands as c\n"
        "def broken(*args, **kwargs): raise ZeroDivisionError('a bug')\n"
        "c.open_home = broken\n"
    )
    installed.env = broken
    done = installed.run("agent", "list")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "ZeroDivisionError" in done.stderr
    log = installed.data / "asterism.log"
    assert str(log) in done.stderr
    assert "a bug" in log.read_text()


def test_an_interrupted_answer_is_told_at_the_next_start(
    asterism: Command, stalled_model: ModelServer
):
    asterism.use(stalled_model)
    with asterism.started("chat", "--once", "first") as process:
        stalled_model.wait_until_asked()
        process.kill()
        process.wait()
    done = asterism.run("chat", "--once", "second")
    assert "Continuing 1 message" in done.stderr
    assert done.stdout == "answer to: second\n"
    states = [turn["state"] for turn in asterism.json("turn", "list")]
    assert states == ["done", "done"]


def test_an_image_and_a_schema_go_with_a_message(asterism: Command, model: ModelServer):
    asterism.use(model)
    png = asterism.data / "dot.png"
    png.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(32))
    schema = asterism.data / "schema.json"
    schema.write_text('{"type": "object", "required": ["n"]}')
    model.next(Raw(json.dumps(_said('{"n": 1}')).encode()))
    sent = ("chat", "--once", "look", "--image", str(png), "--schema", str(schema))
    assert asterism.ok(*sent) == '{"n": 1}\n'
    body = model.bodies[-1]
    assert body["messages"][-1]["content"][1]["image_url"]["url"].startswith("data:image/png;")
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["n"]


def _said(text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


NOWHERE = (
    "{} cannot be read (No such file or directory). Name a file that exists. Nothing was done."
)


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--image", "nowhere.png"), NOWHERE.format("nowhere.png")),
        (("--image", "asterism.toml"), "are not an image that models can read"),
        (("--schema", "nowhere.json"), NOWHERE.format("nowhere.json")),
        (("--schema", "asterism.toml"), "cannot be read: it is not JSON"),
        (("--schema", "list.json"), "it is not a JSON object"),
        (("--schema", "odd.json"), "is not a valid JSON schema: at $.type"),
    ],
)
def test_a_file_that_cannot_go_with_a_message(
    asterism: Command, model: ModelServer, arguments: tuple[str, str], told: str
):
    asterism.use(model)
    (asterism.data / "list.json").write_text("[]")
    (asterism.data / "odd.json").write_text('{"type": "thing"}')
    option, name = arguments
    there = asterism.data / name
    file = str(there) if there.exists() else name
    done = asterism.run("chat", "--once", "look", option, file)
    assert done.returncode != 0
    assert told in " ".join(done.stderr.split())
    assert model.requests == 0
