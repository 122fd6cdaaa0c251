"""One home, many terminals: every command works while another process has the home open."""

import contextlib
import re
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.command import PATIENCE, Command, Installed, ModelServer, Terminal
from tests.e2e.test_cli_once import with_tools
from tests.servers.openai_server import Fault

pytestmark = pytest.mark.promise("A8")

KEY = "sk-0123456789abcdef"
CTRL_C, CTRL_D = "\x03", "\x04"


@contextlib.contextmanager
def served(command: Command) -> Generator[subprocess.Popen[str], None, None]:
    """Let another process have the home open."""
    with command.started("serve", "--port", "0") as process:
        assert process.stderr is not None
        assert "Listening" in process.stderr.readline()
        yield process


def stop(process: subprocess.Popen[str]) -> None:
    """End a process as a person would, and wait for it."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0


def furnish(command: Command, folder: Path) -> tuple[str, str]:
    """Fill a home with something of every noun; return a turn and an approval that waits."""
    for name in ("aria", "bea"):
        command.ok("agent", "create", name)
    turn = command.json("chat", "--agent", "aria", "--once", "I have a cat named Miso")["turn_id"]
    command.run("chat", "--agent", "aria", "--once", '[[call:pay {"amount": 5}]]')
    (approval,) = command.json("approval", "list")
    command.ok("block", "create", "plans", "--agent", "aria", "--text", "Paint the door.")
    command.ok("block", "edit", "plans", "--agent", "aria", "--append", "Buy paint.")
    command.ok("archive", "add", "The rent is due on Monday", "--agent", "aria")
    command.ok("person", "add", "Ann")
    command.ok("rule", "add", "aria", "recall", "start")
    command.ok("token", "create", "ci", "--agent", "aria")
    command.ok("grant", "give", "pay", "--agent", "aria", "--uses", "2")
    command.ok("schedule", "add", "aria", "2030-01-01T09:00", "Happy new year")
    command.ok("block", "create", "shop", "--agent", "aria", "--text", f"The key is {KEY}.")
    command.ok("key", "set", "shop", "--stdin", stdin=f"{KEY}\n")
    folder.mkdir()
    (folder / "house.md").write_text("# House\n\nThe boiler is in the cellar.\n", encoding="utf-8")
    command.ok("source", "add", "papers", str(folder), "--agent", "aria")
    return turn, approval["id"]


def reading(turn: str, approval: str) -> list[tuple[str, ...]]:
    """Return every command that reads, with arguments that fit a furnished home."""
    return [
        ("agent", "list"),
        ("agent", "show", "aria"),
        ("block", "list", "--agent", "aria"),
        ("block", "show", "plans", "--agent", "aria"),
        ("block", "history", "plans", "--agent", "aria"),
        ("block", "diff", "plans", "1", "2", "--agent", "aria"),
        ("block", "blame", "plans", "--agent", "aria"),
        ("archive", "list", "--agent", "aria"),
        ("archive", "search", "rent", "--agent", "aria"),
        ("source", "list"),
        ("source", "show", "papers"),
        ("person", "list"),
        ("person", "show", "Ann"),
        ("memory", "as-of", "aria", "2030-01-01T00:00"),
        ("memory", "why", "plans", "--agent", "aria"),
        ("memory", "health", "aria"),
        ("memory", "receipts"),
        ("memory", "export", "aria"),
        ("context", "show", "aria"),
        ("turn", "list"),
        ("turn", "show", turn),
        ("turn", "replay", turn),
        ("approval", "list"),
        ("approval", "show", approval),
        ("grant", "list"),
        ("outbox", "list"),
        ("notice", "list", "--all"),
        ("schedule", "list"),
        ("tool", "list"),
        ("rule", "list", "aria"),
        ("model", "list"),
        ("mcp", "list"),
        ("key", "list"),
        ("token", "list", "--all"),
        ("user", "list"),
        ("audit", "list"),
        ("audit", "autonomy"),
        ("audit", "verify"),
        ("audit", "export"),
        ("search", "boiler", "--agent", "aria"),
        ("spend",),
        ("agent", "show", "nobody"),
        ("turn", "show", "turn_0"),
        ("approval", "show", "ap_0"),
        ("block", "show", "nothing", "--agent", "aria"),
    ]


def without_now(printed: str) -> str:
    """Leave out what is another at every run: when a memory was exported."""
    return re.sub(r'"exported_at": ("[^"]*"|\d+)', '"exported_at": 0', printed)


def test_what_is_read_is_the_same_byte_for_byte(
    asterism: Command, model: ModelServer, tmp_path: Path
):
    with_tools(asterism, model)
    commands = reading(*furnish(asterism, tmp_path / "papers"))
    forms = [(*command, *more) for command in commands for more in ((), ("--json",))]

    def all_of_them() -> list[tuple[int, str, str]]:
        done = [asterism.run(*form) for form in forms]
        return [(one.returncode, without_now(one.stdout), one.stderr) for one in done]

    with served(asterism) as process:
        # A home at work asks what waits, which is noted.
        until(lambda: asterism.json("approval", "list")[0]["rounds"] == 1)
        there = all_of_them()
        stop(process)
    here = all_of_them()
    for form, direct, remote in zip(forms, here, there, strict=True):
        assert remote == direct, form
        assert form[0] != "context" or KEY not in remote[1], form
    assert sum(code == 0 for code, _, _ in here) > 70


@contextlib.contextmanager
def two_chats(command: Command) -> Generator[tuple[Terminal, Terminal], None, None]:
    """Open two chats; the first has the home open."""
    with command.terminal("chat") as first:
        first.expect("› ")
        with command.terminal("chat") as second:
            yield first, second


# -- while the first terminal chats ----------------------------------------------------------------


def test_every_noun_works_while_another_terminal_chats(
    asterism: Command, model: ModelServer, tmp_path: Path
):
    with_tools(asterism, model)
    with asterism.terminal("chat") as first:
        first.expect("› ")
        turn, approval = furnish(asterism, tmp_path / "papers")
        assert asterism.ok("approval", "approve", approval).startswith("answer to:")
        assert asterism.json("turn", "show", turn)["state"] == "done"
        asterism.ok("block", "undo", "plans", "--agent", "aria")
        assert asterism.json("block", "show", "plans", "--agent", "aria")["text"] == (
            "Paint the door."
        )
        (added,) = asterism.json("schedule", "list", "--agent", "aria")
        asterism.ok("schedule", "cancel", added["id"])
        (tmp_path / "papers" / "garden.md").write_text("The roses are red.", encoding="utf-8")
        assert "read 1 document" in asterism.ok("source", "sync", "papers")
        assert "roses" in asterism.ok("search", "roses", "--agent", "aria")
        asterism.ok("key", "remove", "shop")
        assert asterism.json("key", "list") == []
        assert asterism.ok("memory", "index").startswith(("0 texts", "1 text", "2 texts"))
        assert "is running here" in asterism.run("doctor", "--offline").stdout
        assert (
            "There is no agent named 'nobody'"
            in asterism.run("chat", "--agent", "nobody", "--once", "x").stderr
        )
        asterism.ok("agent", "delete", "bea", "--yes")
        first.type("and now?")
        first.expect("answer to: and now?")
        first.expect("› ")
        first.press(CTRL_D)
        assert first.ended() == 0
    assert [agent["name"] for agent in asterism.json("agent", "list")] == ["aria", "aster"]


def test_a_halt_from_another_terminal_stands_until_it_is_lifted(
    asterism: Command, model: ModelServer
):
    asterism.use(model)
    with asterism.terminal("chat") as first:
        first.expect("› ")
        assert "All agents are halted" in asterism.ok("halt", "smoke in the kitchen")
        first.type("are you there?")
        until(lambda: [turn["state"] for turn in asterism.json("turn", "list")] == ["waiting"])
        asterism.ok("resume")
        first.expect("answer to: are you there?")
        again = asterism.run("resume")
        assert (again.returncode, "Nothing is halted" in again.stderr) == (1, True)


def test_a_turn_is_stopped_from_another_terminal(asterism: Command, stalled_model: ModelServer):
    asterism.use(stalled_model)
    with asterism.terminal("chat") as first:
        first.expect("› ")
        first.type("a long story about the sea")
        first.expect("answer to: a")
        (turn,) = asterism.json("turn", "list")
        asterism.ok("turn", "stop", turn["id"])
        first.expect("Stopped")
        first.expect("› ")


def test_two_chats_and_a_question_at_once(
    asterism: Command, installed: Installed, model: ModelServer
):
    with_tools(asterism, model)
    with two_chats(asterism) as (first, second):
        second.expect("aster · local:m")
        second.expect("› ")
        second.type("from the second")
        second.expect("answer to: from the second")
        first.expect("aster, meanwhile:")
        first.expect("answer to: from the second")
        second.type('[[call:pay {"amount": 5}]]')
        second.expect("Approve? ")
        second.type("y")
        second.expect("Paid 5.")
        assert installed.ok("chat", "--once", "from the third") == "answer to: from the third\n"
        parked = installed.run("chat", "--once", '[[call:pay {"amount": 7}]]')
        assert parked.returncode == 3
        first.type("still here?")
        first.expect("answer to: still here?")


def test_ctrl_c_in_one_terminal_stops_its_turn_alone(asterism: Command, stalled_model: ModelServer):
    asterism.use(stalled_model)
    with served(asterism), asterism.terminal("chat") as person:
        person.expect("› ")
        person.type("a long story")
        person.expect("answer to: a")
        person.press(CTRL_C)
        person.expect("(Stopped.)")
        person.expect("› ")
        assert asterism.json("turn", "list")[0]["state"] == "stopped"
        assert asterism.ok("chat", "--once", "and now") == "answer to: and now\n"


# -- processes that end ----------------------------------------------------------------------------


def test_a_terminal_that_is_killed_harms_nobody(asterism: Command, stalled_model: ModelServer):
    asterism.use(stalled_model)
    with asterism.terminal("chat") as first:
        first.expect("› ")
        with asterism.terminal("chat") as second:
            second.expect("› ")
            second.type("a long story")
            second.expect("answer to: a")
            second.kill()
        (turn,) = asterism.json("turn", "list")
        assert turn["state"] in ("waiting", "open")  # it goes on without anybody who looks
        asterism.ok("turn", "stop", turn["id"])
        first.type("hello")
        first.expect("answer to: hello")


def test_a_home_that_is_killed_while_another_terminal_waits(
    asterism: Command, stalled_model: ModelServer
):
    """The waiting command says so in a sentence and goes on by itself, with nothing said twice."""
    asterism.use(stalled_model)
    with served(asterism) as home:
        with asterism.started("chat", "--once", "are you there?") as waiting:
            stalled_model.wait_until_asked()
            home.kill()
            out, err = waiting.communicate(timeout=PATIENCE)
        assert (waiting.returncode, out) == (0, "answer to: are you there?\n")
        assert f"Process {home.pid}, which had {asterism.data} open, ended" in err
        assert err.count("\n") == 1
    assert len(asterism.json("turn", "list")) == 1
    assert asterism.ok("chat", "--once", "and now") == "answer to: and now\n"


def test_a_command_whose_home_is_killed_says_so(asterism: Command, model: ModelServer):
    with_tools(asterism, model)
    model.next(None, Fault.STALL)
    with served(asterism) as home:
        parked = asterism.run("chat", "--once", '[[call:pay {"amount": 5}]]')
        assert parked.returncode == 3
        (approval,) = asterism.json("approval", "list")
        with asterism.started("approval", "approve", approval["id"]) as waiting:
            until(lambda: model.requests == 2)
            home.kill()
            _, err = waiting.communicate(timeout=PATIENCE)
        assert (waiting.returncode, err.count("\n")) == (1, 1)
        assert "ended before it answered. What it had confirmed is kept" in err
    assert asterism.json("turn", "list")[0]["state"] == "open"
    asterism.ok("chat", "--once", "and now")


def test_a_chat_goes_on_when_the_terminal_is_closed_that_had_the_home(
    asterism: Command, stalled_model: ModelServer
):
    asterism.use(stalled_model)
    with two_chats(asterism) as (first, second):
        second.expect("› ")
        second.type("a long story")
        second.expect("answer to: a")
        first.kill()
        second.expect(f"Process {first.pid}, which had")
        second.expect("Continuing 1 message from before the restart:")
        second.expect("answer to: a long story")
        second.expect("› ")
        second.type("again")
        second.expect("answer to: again")
        assert asterism.ok("chat", "--once", "a third") == "answer to: a third\n"
        second.press(CTRL_D)
        assert second.ended() == 0
    assert len(asterism.json("turn", "list")) == 3


def test_an_idle_chat_takes_the_home_over(asterism: Command, model: ModelServer):
    asterism.use(model)
    with two_chats(asterism) as (first, second):
        second.expect("› ")
        first.press(CTRL_D)
        assert first.ended() == 0
        lock = asterism.data / "asterism.lock"
        until(lambda: lock.read_text().strip() == str(second.pid))
        second.type("hello")
        second.expect("answer to: hello")


@pytest.mark.parametrize("attempts", [1, pytest.param(10, marks=pytest.mark.torture)])
def test_ten_questions_at_once_are_answered_although_no_process_stays(
    installed: Installed, attempts: int
):
    """Whoever opens the home first serves the others, and ends when it has its own answer."""
    installed.configure('model = "demo:guide"\n')
    installed.ok("agent", "create", "aria")
    for attempt in range(attempts):
        texts = [f"question {attempt} {number}" for number in range(10)]
        with contextlib.ExitStack() as stack:
            asked = [
                stack.enter_context(installed.started("chat", "--once", text)) for text in texts
            ]
            for process in asked:
                out, err = process.communicate(timeout=PATIENCE * 2)
                assert process.returncode == 0, err
                assert out.strip()
        turns = installed.json("turn", "list", "--limit", "200")
        assert len(turns) == 10 * (attempt + 1)
        assert {turn["state"] for turn in turns} == {"done"}


def test_a_lock_file_that_is_deleted_lets_nobody_else_in(asterism: Command, model: ModelServer):
    asterism.use(model)
    asterism.ok("agent", "create", "aria")
    with served(asterism) as process:
        (asterism.data / "asterism.lock").unlink()
        assert "answer to: hello" in asterism.ok("chat", "--once", "hello")
        again = asterism.run("serve", "--port", "0")
        assert again.returncode != 0
        assert "open" in again.stderr or "using" in again.stderr
        stop(process)


# -- all of it at once -----------------------------------------------------------------------------

LEDGER = """
from pathlib import Path

from asterism import tool


@tool(ask=True)
def pay(amount: int) -> str:
    with Path({path!r}).open("a") as ledger:
        ledger.write(f"{amount}\\n")
    return f"Paid {amount}."
"""


def at_terminal(command: Command, *arguments: str) -> str:
    """Run a command that must succeed at a terminal of its own; return what it showed."""
    with command.terminal(*arguments) as terminal:
        assert terminal.ended() == 0, terminal.shown
        return terminal.shown


def unfinished(command: Command) -> list[str]:
    """The turns that are neither done nor stopped."""
    turns = command.json("turn", "list", "--limit", "50")
    return [turn["id"] for turn in turns if turn["state"] not in ("done", "stopped")]


def journal(command: Command) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """The message, the state and the entries of each turn."""
    turns = command.json("turn", "list", "--limit", "50")
    shown = [command.json("turn", "show", turn["id"]) for turn in turns]
    return [
        (entry["body"]["content"], turn["state"], turn["entries"])
        for turn in shown
        for entry in turn["entries"]
        if entry["key"] == "in"
    ]


@pytest.mark.promise("T2")
@pytest.mark.timeout(240)
def test_three_terminals_are_killed_in_turn_and_nothing_is_lost_or_repeated(
    asterism: Command, model: ModelServer, tmp_path: Path
):
    """One streams, one halts, approves and edits, one asks `--once`; then each is killed."""
    asterism.use(model, '[tools]\nmodules = ["tools.py"]')
    ledger = tmp_path / "ledger"
    (asterism.data / "tools.py").write_text(LEDGER.replace("{path!r}", repr(str(ledger))))
    for agent in ("aster", "bea", "cleo"):
        asterism.ok("agent", "create", agent)
    asterism.ok("block", "create", "plans", "--agent", "aster", "--text", "Paint the door.")
    approvals = {amount: question(asterism, amount) for amount in (5, 7)}

    with asterism.terminal("chat", "--agent", "aster") as first:
        first.expect("› ")
        model.every(Fault.STALL)
        first.type("a long story about the sea")
        first.expect("answer to: a")  # it is in the middle of its answer
        model.every(None)

        # The second terminal halts, edits, resumes and approves; the third asks.
        at_terminal(
            asterism, "block", "edit", "plans", "--agent", "aster", "--append", "Buy paint."
        )
        assert "answer to: in between" in at_terminal(
            asterism, "chat", "--agent", "bea", "--once", "in between"
        )
        assert "All agents are halted" in at_terminal(asterism, "halt", "smoke in the kitchen")
        first.expect("(Everything was halted: smoke in the kitchen)")
        first.expect("› ")
        with asterism.terminal("chat", "--agent", "bea", "--once", "while halted") as third:
            assert third.ended() == 1
            assert "The message is kept and waits" in third.shown
        at_terminal(asterism, "resume")
        first.type("still there?")
        first.expect("answer to: still there?")
        first.expect("› ")
        assert "Paid 5" in at_terminal(asterism, "approval", "approve", approvals[5])

        # Each of them waits for an answer that has begun, and is killed.
        model.every(Fault.STALL)
        first.type("the first, killed")
        first.expect("answer to: the")
        with (
            asterism.terminal("approval", "approve", approvals[7]) as second,
            asterism.terminal("chat", "--agent", "bea", "--once", "the third, killed") as third,
        ):
            until(lambda: ledger.read_text() == "5\n7\n")
            until(lambda: model.requests_about("the third, killed") == 1)
            second.kill()
            assert len(unfinished(asterism)) == 3  # they go on without anybody who looks
            first.kill()  # it has the home open
            third.expect(f"Process {first.pid}, which had")
            until(lambda: model.requests_about("the third, killed") == 2)
            lock = asterism.data / "asterism.lock"
            assert lock.read_text().strip() == str(third.pid)
            at_terminal(
                asterism, "block", "edit", "plans", "--agent", "aster", "--append", "Paint."
            )
            third.kill()  # now it had the home
    model.every(None)

    # The next command finds its way, and whatever was begun is brought to an end.
    assert at_terminal(asterism, "block", "show", "plans", "--agent", "aster").count("Paint.") == 1
    with asterism.terminal("chat", "--agent", "aster") as fourth:
        fourth.expect("Continuing")
        until(lambda: not unfinished(asterism))
        fourth.expect("answer to: the first, killed")
        fourth.press(CTRL_D)
        assert fourth.ended() == 0

    assert ledger.read_text() == "5\n7\n"
    check_journal(asterism, model)


def question(command: Command, amount: int) -> str:
    """Let cleo ask whether it may pay; return the approval."""
    done = command.run("chat", "--agent", "cleo", "--once", f'[[call:pay {{"amount": {amount}}}]]')
    assert done.returncode == 3
    return max(command.json("approval", "list"), key=lambda each: each["asked_at"])["id"]


def check_journal(command: Command, model: ModelServer) -> None:
    """Raise unless each message has one turn, with one answer, and no step was made twice."""
    turns = journal(command)
    paid = ['[[call:pay {"amount": 5}]]', '[[call:pay {"amount": 7}]]']
    halted = "a long story about the sea"
    answered = ["in between", "while halted", "still there?"]
    answered += ["the first, killed", "the third, killed"]
    assert sorted(message for message, _, _ in turns) == sorted([halted, *answered, *paid])
    for message, state, entries in turns:
        keys = [entry["key"] for entry in entries]
        wanted = "stopped" if message == halted else "done"
        assert (state, len(keys)) == (wanted, len(set(keys))), entries
        replies = [entry for entry in entries if entry["kind"] == "reply"]
        assert len(replies) == (2 if message in paid else 1), entries
    # A request is made again where its answer was cut off, and nowhere else.
    asked = {message: model.requests_about(message) for message, _, _ in turns}
    assert {asked[message] for message in (halted, "in between", "still there?")} == {1}
    assert asked["the third, killed"] == 3
    assert asked["the first, killed"] in (2, 3)


def until(fulfilled: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + PATIENCE
    while not fulfilled():
        assert time.monotonic() < deadline
        time.sleep(0.02)
