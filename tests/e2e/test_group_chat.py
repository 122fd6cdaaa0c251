"""`asterism chat --group` at a real pseudo-terminal: who says what, who works, and questions."""

import pytest

from tests.e2e.command import Command, ModelServer, Terminal
from tests.servers.openai_server import Fault

CTRL_C, CTRL_D, TAB, ENTER = "\x03", "\x04", "\t", "\r"
TOOLS = '''
from asterism import tool
from asterism.types.permissions import ToolEffect

@tool(effects=ToolEffect("pay", recipients="to", amount="euros"), ask=True)
def pay(to: str, euros: int) -> str:
    """Pay somebody."""
    return f"Paid {euros} to {to}."
'''


@pytest.fixture
def group(asterism: Command, model: ModelServer) -> Command:
    """A home with the agents ada, ben and cy, of whom messages to `talk` address some."""
    asterism.use(model, '[tools]\nmodules = ["tools.py"]')
    (asterism.data / "tools.py").write_text(TOOLS)
    for name in ("ada", "ben", "cy"):
        asterism.ok("agent", "create", name)
    members = [part for name in ("ada", "ben", "cy") for part in ("--member", name)]
    asterism.ok("group", "create", "talk", "--pattern", "dynamic", *members)
    asterism.ok("group", "create", "desk", "--pattern", "supervisor", *members)
    asterism.ok("group", "add", "member", "desk", "ada", "--role", "supervisor")
    return asterism


def leave(person: Terminal) -> None:
    person.expect("› ")
    person.press(CTRL_D)
    assert person.ended() == 0


@pytest.mark.promise("T5")
def test_each_member_speaks_under_its_name_once(group: Command, model: ModelServer):
    with group.terminal("chat", "--group", "talk", columns=60) as person:
        person.expect("talk · dynamic · ada, ben, cy")
        person.expect("@NAME addresses a member, @all everybody;")
        person.expect("› ")
        person.type("@all hello")
        person.expect("· ada, ben, cy: the message is for @all.")
        person.expect("tokens ·")
        shown = person.shown
        assert shown.count("@all hello\n") == 4, shown  # what was typed, and each answer once
        for name in ("ada", "ben", "cy"):
            assert f"\n{name}\nanswer to:" in shown, shown
        person.expect("› ")
        person.press("@b")
        person.see("ben")
        person.press(f"{TAB} only you{ENTER}")
        person.expect("· ben: addressed with @.")
        person.expect("ben\nanswer to:")
        leave(person)
    assert len(model.bodies) == 4


def test_commands_are_not_messages_to_the_group(group: Command, model: ModelServer):
    with group.terminal("chat", "--group", "talk") as person:
        person.expect("› ")
        person.type("/help")
        person.expect("/transcript FILE write what was said to FILE.md or FILE.json")
        person.type("/members")
        person.expect("regular member")
        person.type("/nonsense")
        person.expect("There is no command /nonsense.")
        person.type("Ben, hello")
        person.expect("ben\nanswer to:")
        person.type("/history")
        person.expect("› Ben, hello")
        person.type("/transcript")
        person.expect("Nothing was written.")
        talk = group.data / "talk.md"
        person.type(f"/transcript {talk}")
        person.expect("Wrote 6 events to")
        assert "**owner (terminal)**: Ben, hello" in talk.read_text()
        person.type("/group desk")
        person.expect("desk · supervisor · ada (supervisor), ben, cy")
        person.type("Good evening")
        person.expect("· ada leads, and gets the message first.")
        person.expect("ada\nanswer to:")
        leave(person)
    assert len(model.bodies) == 2


@pytest.mark.promise("H1")
def test_a_question_in_the_middle_is_answered_here_or_later(group: Command):
    pay = r'[[call:delegate {"task": "[[call:pay {\"to\": \"bob\", \"euros\": 5}]]", "to": "ben"}]]'
    with group.terminal("chat", "--group", "desk", columns=140) as person:
        person.expect("› ")
        person.type(pay)
        person.expect("ada → ben: [[call:pay")
        person.expect("· ben gets a task: ada asked for it by name.")
        person.expect("? ben wants to pay 5 to bob")
        person.expect("Approve? ")
        person.type("y")
        person.expect("ben\nanswer to:")
        person.expect("Result: Paid 5 to bob.")
        person.expect("· All that ada gave away has come back.")
        # The task is in what comes back, so that the leader is made to pay as well.
        person.expect("? ada wants to pay 5 to bob")
        person.expect("Approve? ")
        person.type("")
        person.expect("The turn waits.")
        leave(person)
    with group.terminal("chat", "--group", "desk", columns=140) as person:
        person.expect("? ada wants to pay 5 to bob")
        person.expect("› ")
        person.type("/approve")
        person.expect("ada\nanswer to:")
        person.expect("tokens ·")
        leave(person)
    assert group.json("--json", "approval", "list") == []


def test_a_stopped_turn_and_a_halted_home(group: Command, model: ModelServer):
    with group.terminal("chat", "--group", "desk") as person:
        person.expect("› ")
        model.next(Fault.HANG)
        person.type("take your time")
        person.expect("· ada leads, and gets the message first.")
        person.see("ada thinking")
        person.press(CTRL_C)
        person.expect("(Stopped.)")
        person.type("/halt lunch")
        person.expect("All agents are halted.")
        person.type("hello again")
        person.expect("Your message is kept, and is answered when they continue.")
        leave(person)
    with group.terminal("chat", "--group", "desk") as person:
        person.expect("All agents are halted since")
        person.expect("1 message will be answered after /resume.")
        person.expect("› ")
        person.type("/resume")
        person.expect("desk, meanwhile:")
        person.expect("hello again")
        leave(person)


def test_a_vote_is_told_in_words(asterism: Command):
    asterism.configure('model = "demo:guide"\n')
    asterism.ok("constellation", "new", "--template", "review-board")
    with asterism.terminal("chat", "--group", "board") as person:
        person.expect("board · voting · advocate, skeptic, user-voice")
        person.expect("› ")
        person.type("Shall we buy a bicycle?")
        person.expect("· 3 members vote about yes, no.")
        person.expect("votes yes: The demo model always takes what comes first.")
        person.expect("board\nDecision: yes. yes has the most votes.")
        person.expect("• yes: 3\n • no: 0\n\nBallots: 3, needed: 2.")
        leave(person)


def test_a_group_without_members_says_what_to_do(asterism: Command):
    asterism.configure('model = "demo:guide"\n')
    asterism.ok("group", "create", "empty")
    with asterism.terminal("chat", "--group", "empty") as person:
        person.expect('"asterism group add member empty AGENT" adds an agent.')
        leave(person)
    refused = asterism.run("chat", "--group", "empty", "--file", "x.txt", "--once", "hi")
    assert "--group cannot be used with" in refused.stderr
