"""The story of an approval at the command line: asked, carried elsewhere, shown, answered once."""

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.command import Command, ModelServer

TOOLS = '''
from asterism import tool
from asterism.types.permissions import ToolEffect

@tool(effects=ToolEffect("pay", recipients="to", amount="euros"), ask=True)
def pay(to: str, euros: int) -> str:
    """Pay somebody."""
    with open({log!r}, "a") as file:
        file.write(f"{{to}} {{euros}}\\n")
    return f"Paid {{euros}} to {{to}}."
'''


@pytest.mark.promise("H1", "H2", "H3")
def test_a_question_is_asked_here_and_answered_on_a_copy(tmp_path: Path, model: ModelServer):
    here, log = Command(tmp_path / "here"), tmp_path / "paid.txt"
    module = tmp_path / "house.py"
    module.write_text(TOOLS.format(log=str(log)))
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    here.use(model, f'\n[tools]\nmodules = ["{module}"]\n')
    said = here.run("chat", "--once", '[[call:pay {"to": "bob", "euros": 12}]]')
    assert said.returncode == 3

    there = Command(tmp_path / "there")
    shutil.copytree(here.data, there.data, dirs_exist_ok=True)
    (waiting,) = there.json("approval", "list")
    short = waiting["id"][-6:]
    shown = there.ok("approval", "show", f"ap_{short}")
    for words in ('"euros": 12', "pay 12 to bob", "owner may answer", "waiting", waiting["id"]):
        assert words in shown
    assert json.loads(there.ok("--json", "approval", "show", waiting["id"]))["whom"] == "owner"

    wrong = there.run("approval", "approve", waiting["id"], "--arguments", '{"to": "bob"}')
    assert (wrong.returncode, "Nothing was changed" in wrong.stderr) == (2, True)
    for unfit in (("--for", "forever"), ("--pattern", "to=bob"), ("--limit", "5"),
                  ("--for", "always", "--limit", "many")):  # fmt: skip
        assert there.run("approval", "approve", waiting["id"], *unfit).returncode == 2
    changed = tmp_path / "changed.json"
    changed.write_text('{"to": "bob", "euros": 10}')
    answer = there.ok(
        "approval", "approve", waiting["id"], "--arguments", f"@{changed}",
        "--for", "always", "--until", "2999-12-01", "--pattern", "to=bob", "--note", "Ten will do.",
    )  # fmt: skip
    assert (
        "approved with changes by owner. They say: Ten will do. Result: Paid 10 to bob." in answer
    )
    assert log.read_text() == "bob 10\n"
    again = there.run("approval", "deny", waiting["id"])
    assert "was approved with changes by owner before" in again.stderr
    shown = there.ok("approval", "show", waiting["id"])
    for words in ("approved with changes", "by owner", '"euros": 10', "Ten will do.", "to=bob"):
        assert words in shown
    assert waiting["id"] in there.ok("approval", "list", "--answered")

    # What was granted is not asked for again, until it is taken back.
    there.ok("chat", "--once", '[[call:pay {"to": "bob", "euros": 3}]]')
    (grant,) = there.json("grant", "list")
    assert grant["pattern"] == {"to": "bob"}
    assert "to=bob" in there.ok("grant", "list")
    assert "Revoked " in there.ok("grant", "revoke", grant["id"])
    done = there.run("chat", "--once", '[[call:pay {"to": "bob", "euros": 4}]]')
    assert done.returncode == 3
    assert "There are no grants" in there.ok("grant", "list")
    assert grant["id"] in there.ok("grant", "list", "--all")
    assert there.run("grant", "give", "pay").returncode == 2
    given = there.ok("grant", "give", "pay", "--agent", "aster", "--uses", "1")
    assert "may make calls of pay (1 more) without asking" in given
    there.ok("chat", "--once", '[[call:pay {"to": "eve", "euros": 5}]]')
    assert log.read_text() == "bob 10\nbob 3\neve 5\n"

    # Up to a limit: above it, and to others, the agent asks.
    (waiting,) = there.json("approval", "list")
    there.ok("approval", "approve", waiting["id"], "--for", "always", "--limit", "9",
             "--limit", "9/day")  # fmt: skip
    assert "that pay bob, up to 9 each, at most 9 a day" in there.ok("grant", "list")
    there.ok("chat", "--once", '[[call:pay {"to": "bob", "euros": 9}]]')
    for other in ('{"to": "bob", "euros": 10}', '{"to": "eve", "euros": 1}'):
        assert there.run("chat", "--once", f"[[call:pay {other}]]").returncode == 3
    counted = there.json("audit", "autonomy")
    assert (counted["allowed"], counted["asked"], counted["denied"]) == (3, 4, 0)
    assert "3 ran without asking (43%), 4 were asked for" in there.ok("audit", "autonomy")


def test_what_is_shown_of_a_question_cannot_be_forged(tmp_path: Path, model: ModelServer):
    command, module = Command(tmp_path / "here"), tmp_path / "house.py"
    (tmp_path / "here").mkdir()
    module.write_text(TOOLS.format(log=str(tmp_path / "paid.txt")))
    command.use(model, f'\n[tools]\nmodules = ["{module}"]\n')
    to = "eve\u200b\nIt would pay 1 to bob."
    said = command.run("chat", "--once", f"[[call:pay {json.dumps({'to': to, 'euros': 9})}]]")
    assert said.returncode == 3
    (waiting,) = command.json("approval", "list")
    for shown in (command.ok("approval", "show", waiting["id"]), said.stderr):
        assert "\u200b" not in shown
        assert not any(line.strip().startswith("It would pay 1") for line in shown.splitlines())
        assert r'pay 9 to "eve\u200b\nIt would pay 1 to bob."' in shown


@pytest.mark.promise("H3")
def test_one_key_ends_the_asking(tmp_path: Path, model: ModelServer):
    command, module = Command(tmp_path / "here"), tmp_path / "house.py"
    (tmp_path / "here").mkdir()
    module.write_text(TOOLS.format(log=str(tmp_path / "paid.txt")))
    command.use(model, f'\n[tools]\nmodules = ["{module}"]\n')

    def ask(to: str, euros: int) -> str:
        return f'[[call:pay {{"to": "{to}", "euros": {euros}}}]]'

    with command.terminal("chat") as person:
        person.expect("› ")
        person.type(ask("tom", 1))
        person.expect("It would pay 1 to tom.")
        person.expect("Approve?")
        person.type("t")
        person.expect("Paid 1")
        person.expect("› ")
        person.type(ask("bob", 12))
        person.expect("Approve?")
        person.type("a much")
        person.expect("'much' is not a valid limit.")
        person.type("a")
        person.expect("was approved by owner")
        person.expect("› ")
        person.type(ask("bob", 11))
        person.expect("→ Paid 11 to bob.")
        person.expect("› ")
        person.type(ask("bob", 13))
        person.expect("Approve?")
        person.type("a 50 2/day")
        person.expect("was approved by owner")
        person.expect("› ")
    turn, first, second = command.json("grant", "list", "--all")
    assert turn["turn_id"]
    assert (first["amount"], first["per_day"]) == (12, None)
    assert (second["amount"], second["per_day"]) == (50, 2)
