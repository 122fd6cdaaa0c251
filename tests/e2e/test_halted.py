"""A halted home says so in every command that shows or waits for what agents do."""

import pytest

from tests.e2e.command import Command

SAYS = "All agents are halted since "
LISTS = [
    ("agent", "list"),
    ("agent", "show", "aster"),
    ("turn", "list"),
    ("approval", "list"),
    ("schedule", "list"),
]


@pytest.fixture
def halted(asterism: Command) -> Command:
    asterism.configure('model = "demo:guide"\n')
    asterism.ok("chat", "--once", "Good morning")
    asterism.ok("halt", "smoke in the kitchen")
    return asterism


@pytest.mark.parametrize("words", LISTS)
def test_lists_say_it_beside_their_output(halted: Command, words: tuple[str, ...]):
    done = halted.run(*words)
    assert (done.returncode, SAYS in done.stdout) == (0, False)
    assert SAYS in done.stderr
    assert 'smoke in the kitchen. "asterism resume" lets them continue.' in done.stderr
    halted.ok("resume")
    assert SAYS not in halted.run(*words).stderr


def test_status_and_doctor_say_it(halted: Command):
    assert SAYS in halted.ok("status")
    found = halted.run("doctor", "--offline")
    assert found.returncode == 1
    (line,) = [line for line in found.stdout.splitlines() if SAYS in line]
    assert line.startswith("✗ halt")
    assert line.endswith('→ "asterism resume" lets them continue.')


@pytest.mark.promise("T1", "X5")
def test_a_question_does_not_hang_and_is_answered_after_the_halt(halted: Command):
    done = halted.run("chat", "--once", "Are you there?")
    assert (done.returncode, done.stdout) == (1, "")
    assert SAYS in done.stderr
    assert "The message is kept and waits" in done.stderr
    (waiting,) = [turn for turn in halted.json("turn", "list") if turn["state"] == "waiting"]
    assert f'"asterism turn show {waiting["id"]}" shows its answer then.' in done.stderr
    assert SAYS in halted.run("turn", "show", waiting["id"]).stderr
    assert "1 message not answered yet." in halted.run("doctor", "--offline").stdout
    assert "Continuing" not in halted.run("chat", "--once", "Still there?").stderr
    halted.ok("resume")
    halted.ok("chat", "--once", "And now?")
    assert halted.json("turn", "show", waiting["id"])["state"] == "done"


def test_a_copy_is_not_made_while_everything_is_halted(halted: Command):
    (turn,) = halted.json("turn", "list")
    done = halted.run("turn", "fork", turn["id"])
    assert (done.returncode, SAYS in done.stderr) == (1, True)
    assert done.stderr.rstrip().endswith("Nothing was copied.")
    assert len(halted.json("agent", "list")) == 1


def test_a_halt_needs_no_reason(asterism: Command):
    asterism.configure('model = "demo:guide"\n')
    asterism.ok("agent", "create", "aria")
    assert "All agents are halted." in asterism.ok("halt")
    shown = asterism.run("agent", "list").stderr
    assert SAYS in shown
    assert ": ." not in shown
    assert "They were halted" in asterism.ok("resume")
