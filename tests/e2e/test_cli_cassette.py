"""A conversation on tape: recorded, talked to without network, and replayed byte for byte."""

from pathlib import Path

import pytest

from tests.e2e.command import Command, ModelServer


@pytest.mark.promise("T12")
def test_a_recorded_chat_plays_elsewhere_and_its_turns_replay_on_the_wire(
    asterism: Command, model: ModelServer, tmp_path: Path
) -> None:
    tape = tmp_path / "demo.jsonl"
    asterism.use(model)
    said = asterism.ok("chat", "--record", str(tape), "--once", "hello")
    assert said == "answer to: hello\n"
    (turn,) = asterism.json("turn", "list")

    # A new home without a key, a server or a configuration.
    elsewhere = tmp_path / "elsewhere"
    done = asterism.run("chat", "--play", str(tape), "--once", "hello", data=elsewhere)
    assert (done.returncode, done.stdout) == (0, said), done.stderr
    lost = asterism.run("chat", "--play", str(tape), "--once", "what else?", data=elsewhere)
    assert lost.returncode == 1
    assert "demo.jsonl has no answer to this request" in lost.stdout + lost.stderr

    same = asterism.ok("turn", "replay", turn["id"], "--wire", str(tape))
    assert "Identical, entry by entry and byte by byte on the wire." in same
    # What the agent was then is kept, so it may be another by now; the tape may not.
    asterism.ok("agent", "edit", "aster", "--system", "Be brief.")
    asterism.ok("turn", "replay", turn["id"], "--wire", str(tape))
    tape.write_bytes(tape.read_bytes().replace(b"You are aster", b"You are oster"))
    other = asterism.run("turn", "replay", turn["id"], "--wire", str(tape))
    assert other.returncode == 1
    assert "0/reply, line 1 of the tape: another request; after " in other.stdout


@pytest.mark.promise("X5")
def test_tapes_that_cannot_be_used_are_told_before_anything_is_done(
    asterism: Command, tmp_path: Path
) -> None:
    tape = tmp_path / "none.jsonl"
    missing = asterism.run("chat", "--play", str(tape), "--once", "hello")
    assert missing.returncode != 0
    assert "none.jsonl cannot be read: No such file or directory." in missing.stderr
    both = asterism.run("chat", "--play", str(tape), "--record", str(tape), "--once", "hello")
    assert both.returncode != 0
    assert "--record and --play cannot be used together" in both.stderr
    nowhere = tmp_path / "no" / "tape.jsonl"
    unwritable = asterism.run("chat", "--record", str(nowhere), "--once", "hello")
    assert unwritable.returncode != 0
    assert "tape.jsonl cannot be written: No such file or directory." in unwritable.stderr
    assert not tape.exists()
