"""A conversation at a terminal."""

import os
import signal
import time

import pytest

from tests.e2e.command import Command, ModelServer
from tests.e2e.test_cli_once import with_tools
from tests.servers.openai_server import Fault

CTRL_C, CTRL_D = "\x03", "\x04"


@pytest.mark.promise("D1")
def test_asterism_alone_opens_a_chat(asterism: Command):
    began = time.monotonic()
    with asterism.terminal() as person:
        person.expect("aster · demo:guide")
        person.expect("not a language model")
        person.expect("› ")
        ready = time.monotonic() - began
        person.type("hello there")
        person.expect("“hello there”.")
        person.expect("› ")
        person.press(CTRL_D)
        assert person.ended() == 0
    assert ready < 10  # a bound for any machine; `make bench` has the figure


def test_text_streams_and_tools_are_shown(asterism: Command, model: ModelServer):
    with_tools(asterism, model)
    with asterism.terminal("chat") as person:
        person.expect("› ")
        person.type('what is [[call:add {"a":1,"b":2}]]')
        person.expect('· add {"a":1,"b":2} → 3\n')
        person.expect("answer to: what is")
        person.expect("› ")
        person.type("[[call:shout {}]]")
        person.expect(r"→ \x1b]0;owned\x07\x1b[2J\x9b31m")
        person.expect("answer to:")
        assert "\x1b]0;owned" not in person.raw
        person.expect("› ")
        person.type("[[call:nope {}]]")
        person.expect("· nope {} → Error: there is no tool 'nope'.")
        person.expect("› ")
        person.press(CTRL_C)
        person.see("Ctrl-C again or Ctrl-D leaves")
        person.press(CTRL_C)
        assert person.ended() == 0


def test_ctrl_c_stops_the_turn_and_keeps_the_chat(asterism: Command, stalled_model: ModelServer):
    asterism.use(stalled_model)
    with asterism.terminal("chat") as person:
        person.expect("› ")
        person.type("a long story about the sea")
        person.expect("answer to: a")
        person.press(CTRL_C)
        person.expect("(Stopped.)")
        person.expect("› ")
        person.type("next")
        person.expect("answer to: next")
        person.expect("› ")
        person.type("/quit")
        assert person.ended() == 0
    states = [turn["state"] for turn in asterism.json("turn", "list")]
    assert states == ["done", "stopped"]


@pytest.mark.promise("T2")
def test_a_killed_chat_says_so_at_the_next_start_and_answers(
    asterism: Command, stalled_model: ModelServer
):
    asterism.use(stalled_model)
    with asterism.terminal("chat") as person:
        person.expect("› ")
        person.type("a question before the crash")
        person.expect("answer to:")
        person.kill()
    with asterism.terminal("chat") as person:
        person.expect("Continuing 1 message from before the restart:")
        person.expect("› a question before the crash")
        person.expect("answer to: a question before the crash")
        person.expect("› ")
        person.press(CTRL_D)
        assert person.ended() == 0
    (turn,) = asterism.json("turn", "list")
    assert turn["state"] == "done"
    entries = asterism.json("turn", "show", turn["id"])["entries"]
    assert [entry["kind"] for entry in entries] == ["message", "reply"]


def test_a_model_that_is_cut_off_is_asked_again(asterism: Command, model: ModelServer):
    asterism.use(model, retries=1)
    model.next(Fault.CUT)
    with asterism.terminal("chat") as person:
        person.expect("› ")
        person.type("one two three four five six seven")
        person.expect("The model was interrupted and is asked again")
        person.expect("answer to: one two three four five six seven")


@pytest.mark.promise("H1", "H3")
def test_a_question_is_answered_in_the_chat(asterism: Command, model: ModelServer):
    with_tools(asterism, model)
    with asterism.terminal("chat") as person:
        person.expect("› ")
        person.type('[[call:pay {"amount": 1}]]')
        person.expect("? aster wants to call pay")
        person.expect('"amount": 1')
        person.expect("Approve?")
        person.type("perhaps")
        person.expect("Answer with one letter")
        person.type("y")
        person.expect("Result: Paid 1.")
        person.expect("› ")
        person.type('[[call:pay {"amount": 2}]]')
        person.expect("Approve?")
        person.type("d")
        person.expect("Why not?")
        person.type("too much")
        person.expect("was denied by owner. They say: too much. It was not run.")
        person.expect("› ")
        person.type('[[call:pay {"amount": 3}]]')
        person.expect("Approve?")
        person.type("r")
        person.expect("Result: Paid 3.")
        person.expect("Granted (grant_")
        person.expect("calls of pay")
        person.expect("› ")
        person.type('[[call:pay {"amount": 3}]]')
        person.expect("Paid 3.")
        person.expect("› ")
        person.type('[[call:pay {"amount": 4}]]')
        person.expect("Approve?")
        person.type("")
        person.expect("The turn waits.")
        person.expect("› ")
        person.type("/approve")
        person.expect("Result: Paid 4.")
        person.expect("› ")
        person.type('[[call:pay {"amount": 5}]]')
        person.expect("Approve?")
    with asterism.terminal("chat") as person:  # killed; the question is still there
        person.expect("? aster wants to call pay")
        person.expect("/approve")
        person.expect("› ")
        person.type("/deny too much")
        person.expect("was denied by owner.")
        person.expect("› ")
        person.type("/deny")
        person.expect("Nothing waits for your answer.")


def test_commands_of_the_chat(asterism: Command):
    asterism.ok("agent", "create", "aria")
    asterism.ok("agent", "create", "bea")
    with asterism.terminal("chat", "--agent", "bea") as person:
        person.expect("bea · demo:guide")
        person.type("/help")
        person.expect("/approve")
        person.type("/agents")
        person.expect("aria")
        person.type("/agent aira")
        person.expect("Did you mean 'aria'?")
        person.type("/agent aria")
        person.expect("aria · demo:guide")
        person.type("hi")
        person.expect("demo model")
        person.expect("› ")
        person.type("/turns")
        person.expect("turn_")
        person.type("/bogus")
        person.expect("There is no command /bogus.")
        person.expect("› ")
        person.type("/quit")
        assert person.ended() == 0


def test_what_an_agent_says_by_itself_appears_above_the_prompt(
    asterism: Command, model: ModelServer
):
    asterism.use(model)
    with asterism.terminal("chat") as person:
        person.expect("› ")
        person.type(
            '[[call:schedule {"operation":"in","when":"1 second","message":"drink water"}]]'
        )
        person.expect("· schedule")
        person.expect("aster, meanwhile:")
        person.expect("drink water")


def test_a_bad_configuration_is_told_while_chatting(asterism: Command, model: ModelServer):
    asterism.use(model)
    with asterism.terminal("chat") as person:
        person.expect("› ")
        asterism.configure("model = 3\n")
        person.expect("The previous configuration stays in use.")
        person.type("still there?")
        person.expect("answer to: still there?")


def test_sigterm_gives_the_terminal_back(asterism: Command):
    with asterism.terminal("chat") as person:
        person.expect("› ")
        os.kill(person.pid, signal.SIGTERM)
        assert person.ended() == 143
