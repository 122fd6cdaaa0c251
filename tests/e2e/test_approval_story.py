"""The story of an approval at the command line: asked, carried elsewhere, shown, answered once."""

import json
import shutil
from pathlib import Path

import pytest

from tests.e2e.command import Command, ModelServer

TOOLS = '''
from asterism import tool
from asterism.types.deeds import Does

@tool(does=Does("pay", recipients="to", amount="euros"), ask=True)
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
    assert there.run("approval", "approve", waiting["id"], "--grant", "forever").returncode == 2
    assert there.run("approval", "approve", waiting["id"], "--pattern", "to=bob").returncode == 2
    changed = tmp_path / "changed.json"
    changed.write_text('{"to": "bob", "euros": 10}')
    answer = there.ok(
        "approval", "approve", waiting["id"], "--arguments", f"@{changed}",
        "--grant", "until=2999-12-01", "--pattern", "to=bob", "--note", "Ten will do.",
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
    assert "is revoked" in there.ok("grant", "revoke", grant["id"])
    done = there.run("chat", "--once", '[[call:pay {"to": "bob", "euros": 4}]]')
    assert done.returncode == 3
    assert "Nothing is granted" in there.ok("grant", "list")
    assert grant["id"] in there.ok("grant", "list", "--all")
    assert there.run("grant", "give", "pay").returncode == 2
    given = there.ok("grant", "give", "pay", "--agent", "aster", "--uses", "1")
    assert "may make calls of pay 1 more without asking" in given
    there.ok("chat", "--once", '[[call:pay {"to": "eve", "euros": 5}]]')
    assert log.read_text() == "bob 10\nbob 3\neve 5\n"
