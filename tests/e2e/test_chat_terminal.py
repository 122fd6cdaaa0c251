"""The chat at a real pseudo-terminal: typing, answers, commands, coming back."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.documents import make_documents
from tests.e2e.command import Command, ModelServer, Terminal
from tests.e2e.test_cli_once import with_tools
from tests.e2e.test_terminals import until
from tests.servers.openai_server import Fault

CTRL_C, CTRL_D, CTRL_R = "\x03", "\x04", "\x12"
ALT_ENTER, ENTER, UP, TAB = "\x1b\r", "\r", "\x1b[A", "\t"
SHIFT_ENTER = "\x1b[13;2u"
MARKDOWN = """see

## Plan

- **one** thing
- `two` things

```python
x = 1
```

| a | b |
|---|---|
| 1 | 2 |

done"""


def paste(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


def leave(person: Terminal) -> None:
    person.expect("› ")
    person.press(CTRL_D)
    assert person.ended() == 0


# -- typing ----------------------------------------------------------------------------------------


def test_a_message_of_several_lines(asterism: Command, model: ModelServer):
    asterism.use(model)
    with asterism.terminal() as person:
        person.expect("› ")
        person.press(f"one{ALT_ENTER}two\\{ENTER}three{SHIFT_ENTER}four{ENTER}")
        person.expect("› one\n  two\n  three\n  four\n")
        person.expect("answer to: one two three four")  # Markdown joins them
        person.press(paste("five\nsix") + ENTER)
        person.expect("answer to: five six")
        person.expect("› ")
        person.press(UP)
        person.expect("› five\n  six")
        person.press(CTRL_C)
        person.see("Ctrl-C again or Ctrl-D leaves")
        person.press(f"seven{ENTER}")
        person.expect("answer to: seven")
        leave(person)
    texts = [body["messages"][-1]["content"] for body in model.bodies]
    assert [text.rpartition("] ")[2] for text in texts] == [
        "one\ntwo\nthree\nfour",
        "five\nsix",
        "seven",
    ]


def test_what_was_typed_is_kept_in_a_private_history(asterism: Command, model: ModelServer):
    asterism.use(model)
    with asterism.terminal() as person:
        person.expect("› ")
        person.press(paste("first\nsecond") + ENTER)
        person.expect("answer to: first second")
        person.expect("› ")
        person.press("half a thou")
        person.see("half a thou")
        person.press(CTRL_C)  # it clears the line, which is not lost
        person.see("Ctrl-C again")
        person.press(CTRL_C)
        assert person.ended() == 0
    history = asterism.data / "chat-history"
    assert history.stat().st_mode & 0o777 == 0o600
    with asterism.terminal() as person:
        person.expect("nothing waits for you")
        person.expect("› ")
        person.press(UP)
        person.see("› half a thou")
        person.press(f"{UP}{UP}")
        person.see("› first\n  second")
        person.press(CTRL_C)
        person.see("Ctrl-C again")
        person.press(f"{CTRL_R}thou")
        person.see("› half a thou")


def test_commands_agents_and_paths_are_completed(
    asterism: Command, model: ModelServer, tmp_path: Path
):
    asterism.use(model)
    asterism.ok("agent", "create", "aria")
    asterism.ok("agent", "create", "belinda")
    (tmp_path / "unusual-name.txt").write_text("The boiler is in the cellar.")
    with asterism.terminal("chat", "--agent", "aria", columns=200) as person:
        person.expect("› ")
        person.press("/sche")
        person.see("/schedule  what is scheduled")
        person.press(TAB)
        person.see("› /schedule")
        person.press(ENTER)
        person.expect("Nothing is scheduled.")
        person.press("/agent beli")
        person.see("› /agent beli")
        person.press(TAB)
        person.see("› /agent belinda")
        person.press(ENTER)
        person.expect("belinda · local:m")
        person.press(f"Where is it? @{tmp_path}/unus")
        person.see("unusual-name.txt")  # among the choices
        person.press(TAB)
        person.see("/unusual-name.txt")
        person.press(ENTER)
        person.expect("Attached: unusual-name.txt")
        person.expect("answer to: Where is it?")
        person.type("/retry")
        assert "unusual-name.txt, " not in person.expect("answer to: Where is it?")
        leave(person)
    sent = "\n".join(str(message["content"]) for message in model.bodies[-1]["messages"])
    assert "> The boiler is in the cellar." in sent


def test_the_line_is_written_in_an_editor(asterism: Command, model: ModelServer, tmp_path: Path):
    asterism.use(model)
    editor = tmp_path / "editor.py"
    editor.write_text("import sys; open(sys.argv[1], 'a').write('and from the editor\\n')\n")
    asterism.env["EDITOR"] = f"{sys.executable} {editor}"
    with asterism.terminal() as person:
        person.expect("› ")
        person.press("from the line \x18\x05")
        person.expect("and from the editor")
        person.press(ENTER)
        person.expect("answer to: from the line and from the editor")
        person.expect("› ")
        person.type("/edit begun")
        person.expect("answer to: begun and from the editor")
        leave(person)


# -- while an answer streams -----------------------------------------------------------------------


@pytest.mark.promise("T5", "T14")
def test_typing_ahead_while_an_answer_streams(asterism: Command, stalled_model: ModelServer):
    asterism.use(stalled_model)
    with asterism.terminal() as person:
        person.expect("› ")
        person.type("a long story about the sea")
        person.expect("answer to: a")
        person.see("writing · ")
        person.see("Ctrl-C stops")
        person.type("the next question")
        person.see("queued: the next question")
        (turn,) = asterism.json("turn", "list")
        asterism.ok("turn", "stop", turn["id"])
        person.expect("› the next question\n")
        person.expect("answer to: the next question")
        leave(person)
    shown = asterism.ok("turn", "show", turn["id"])
    assert "answer to: a" in shown


@pytest.mark.promise("T14")
def test_ctrl_c_stops_the_answer_and_gives_back_what_was_typed_ahead(
    asterism: Command, stalled_model: ModelServer
):
    asterism.use(stalled_model)
    with asterism.terminal() as person:
        person.expect("› ")
        person.type("a long story about the sea")
        person.expect("answer to: a")
        person.type("the next question")
        person.see("queued: the next question")
        person.press(CTRL_C)
        person.expect("(Stopped.)")
        person.expect("› the next question")
        person.press(ENTER)
        person.expect("answer to: the next question")
        person.expect("› ")
        person.type("/history")
        person.expect("answer to: a")
        leave(person)


def test_markdown_is_rendered(asterism: Command, model: ModelServer):
    asterism.use(model)
    with asterism.terminal() as person:
        person.expect("› ")
        person.press(paste(MARKDOWN) + ENTER)
        person.expect("answer to: see")
        answer = person.expect("tokens · ")
        assert "## Plan" not in answer
        assert "Plan" in answer
        assert " • one thing" in answer
        assert "two things" in answer
        assert "```" not in answer
        assert "  x = 1" in answer
        assert "|---|" not in answer
        assert re.search(r"a +b", answer)
        assert "done" in answer
        leave(person)


def test_signs_of_life(asterism: Command):
    with ModelServer(together=2) as slow:
        with_tools(asterism, slow)
        with asterism.terminal() as person:
            person.expect("› ")
            person.type('[[call:add {"a": 1, "b": 2}]]')
            person.see("thinking · 1 s · Ctrl-C stops")
            asterism.ok("agent", "create", "bea")
            asterism.ok("chat", "--agent", "bea", "--once", "let it go on")
            person.expect('· add {"a": 1, "b": 2} → 3')
            person.expect("tokens · ")
            leave(person)


# -- coming back -----------------------------------------------------------------------------------


def test_what_was_said_last_is_there_on_return(asterism: Command, model: ModelServer):
    asterism.use(model)
    asterism.ok("agent", "create", "aria")
    asterism.ok("agent", "create", "bea")
    asterism.ok("chat", "--agent", "bea", "--once", "The boiler is in the cellar")
    asterism.ok("block", "edit", "human", "--agent", "bea", "--append", "Has a boiler.")
    asterism.ok("schedule", "add", "bea", "2036-01-01T09:00", "Sweep the chimney")
    with asterism.terminal() as person:  # bea was talked to last
        person.expect("bea · local:m")
        person.expect("› The boiler is in the cellar\n")
        person.expect("answer to: The boiler is in the cellar\n")
        told = person.expect("/history for more")
        for part in ("ago · 1 turn", "1 line kept about you", "Sweep the chimney", "nothing waits"):
            assert part in " ".join(told.split())
        leave(person)
    assert asterism.json("chat", "--once", "hello")["agent"] == "bea"
    assert asterism.json("chat", "--agent", "aria", "--once", "hello")["agent"] == "aria"
    assert asterism.json("chat", "--once", "hello")["agent"] == "aria"


@pytest.mark.promise("M8")
def test_what_was_kept_is_told_on_return_and_can_be_taken_back(asterism: Command):
    asterism.configure('model = "demo:guide"\n')
    asterism.ok("chat", "--once", "Remember that my cat is called Miso.")
    asterism.ok("chat", "--once", 'call recall {"operation": "insert", "text": "Two keys."}')
    asterism.ok("block", "edit", "human", "--append", "Typed by the owner.")
    asterism.ok("schedule", "add", "aster", "2036-01-01T09:00", "Sweep the chimney")
    with asterism.terminal() as person:
        person.expect("+ human: My cat is called Miso")
        person.expect("+ archive: Two keys.")
        told = " ".join(person.expect("/history for more").split())
        for part in ("kept 2 lately", "2 lines kept about you", "Sweep the chimney"):
            assert part in told
        person.type("/why")
        person.expect("call of recall")
        person.type("/undo")
        person.expect("Took back: Two keys.")
        person.type("/why")
        person.expect("call of remember")
        person.type("/undo")
        person.expect("Took back: My cat is called Miso")
        person.type("/undo")
        person.expect("aster has kept nothing by itself that is still there.")
        leave(person)
    assert "Miso" not in asterism.ok("block", "show", "human")
    assert "Typed by the owner." in asterism.ok("block", "show", "human")
    assert asterism.json("archive", "list") == []


@pytest.mark.promise("M17")
def test_what_is_kept_without_being_asked_is_explained_and_taken_back(asterism: Command):
    asterism.configure('model = "demo:guide"\n')
    asterism.ok("chat", "--once", "I am Tom and I live in Porto.")
    with asterism.terminal() as person:
        told = " ".join(person.expect("/history for more").split())
        assert "kept 1 lately" in told
        person.type("My daughter is called Ines.")
        person.expect("+ human: My daughter is called Ines.")
        person.type("/why")
        assert "My daughter is called Ines." in person.expect("message that opened")
        person.type("/undo")
        person.expect("Took back: My daughter is called Ines.")
        person.type("/undo")
        person.expect("Took back: I am Tom and I live in Porto.")
        leave(person)
    assert asterism.json("block", "show", "human")["text"] == ""


# -- trouble ---------------------------------------------------------------------------------------


@pytest.mark.promise("X5")
def test_a_model_that_is_missing_is_told_with_the_next_move(asterism: Command, tmp_path: Path):
    asterism.env["ASTERISM_MODELS"] = str(tmp_path / "models")
    asterism.configure('model = "embedded:qwen2.5-coder-1.5b"\n')
    with asterism.terminal() as person:
        person.expect("› ")
        person.type("hello")
        told = " ".join(person.expect("model pull qwen2.5-coder-1.5b").split())
        assert "not on this machine" in told
        person.type("/model demo:guide")
        person.expect("aster uses demo:guide from now on.")
        person.type("hello again")
        person.expect("demo model built into asterism")
        leave(person)


@pytest.mark.promise("X5")
def test_a_disk_that_is_full_is_told_and_the_chat_goes_on(asterism: Command, tmp_path: Path):
    full, place = tmp_path / "full", tmp_path / "site"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'pip' not in sys.orig_argv:\n"
        "    import pathlib, apsw\n"
        "    from tests.torture.disk import MeddledDisk\n"
        f"    full = pathlib.Path({str(full)!r})\n"
        "    def meddle(operation, file, data, offset):\n"
        "        if operation == 'write' and full.exists():\n"
        "            raise apsw.FullError('database or disk is full')\n"
        "    disk = MeddledDisk(meddle, default=True)\n"
    )
    asterism.env["PYTHONPATH"] = os.pathsep.join([str(place), str(Path(__file__).parents[2])])
    asterism.configure('model = "demo:guide"\n')
    with asterism.terminal() as person:
        person.expect("› ")
        person.type("hello")
        person.expect("demo model built into asterism")
        person.expect("› ")
        full.touch()
        person.type("Do you hear me?")
        told = " ".join(person.expect("this was not written.").split())
        assert "There is no room left on the disk" in told
        assert "Free some space and try again" in told
        full.unlink()
        person.expect("› ")
        person.type("and now?")
        person.expect("demo model built into asterism")
        leave(person)


# -- commands --------------------------------------------------------------------------------------


@pytest.mark.promise("T11", "M8")
def test_commands_about_memory_and_the_conversation(asterism: Command, model: ModelServer):
    asterism.use(model, '[prices."local:m"]\ninput = 2.0\noutput = 2.0\n')
    with asterism.terminal() as person:
        person.expect("› ")
        person.type("Please remember that my cat is called Miso.")
        person.expect("+ human:")
        person.expect("kept 1 · ")
        assert "$" in person.expect(" s\n")
        person.type("/memory")
        person.expect("Miso")
        person.expect("/search finds")
        person.type("/why")
        person.expect("call of remember")
        person.type("/undo")
        person.expect("Took back:")
        person.type("/search Miso")
        person.expect("message")
        person.type("/context")
        person.expect("tools (")
        person.type("/spend")
        person.expect("aster")
        person.type("/retry")
        person.expect("answer to: Please remember that my cat is called Miso.")
        person.type("/new")
        person.expect("left the context")
        person.expect("› ")
        person.type("and now?")
        person.expect("answer to: and now?")
        person.type("/history 1")
        person.expect("› and now?")
        leave(person)
    answers = [
        str(message["content"])
        for message in model.bodies[-1]["messages"]
        if message["role"] == "assistant"
    ]
    assert not any("Miso" in answer for answer in answers)
    retried = [str(message["content"]) for message in model.bodies[1]["messages"]]
    assert any("asks the message of turn_" in content for content in retried)


def test_commands_about_agents_models_and_schedules(asterism: Command, model: ModelServer):
    asterism.use(model)
    with asterism.terminal() as person:
        person.expect("› ")
        person.type("/model")
        person.expect("aster uses local:m.")
        person.type("/model nonsense")
        person.expect("'nonsense' is not a valid model name.")
        person.type("/model demo:guide")
        person.expect("aster uses demo:guide from now on.")
        person.type("hello")
        person.expect("I am the demo model")
        person.type("/model default")
        person.expect("aster uses local:m from now on.")
        person.type("/schedule 2036-01-01T09:00: Happy new year")
        person.expect("Scheduled for")
        person.type("/schedule")
        person.expect("Happy new year")
        person.type("/schedule whenever")
        person.expect("Nothing was scheduled.")
        person.type("/agent")
        person.expect("You talk to aster.")
        person.type("/halt too hot here")
        person.expect("All agents are halted.")
        person.type("are you there?")
        person.expect("All agents are halted since")
        person.expect("too hot here. /resume lets them continue.")
        person.type("/resume")
        person.expect("too hot here.")
        person.expect("answer to: are you there?")
        leave(person)


def test_messages_that_begin_with_a_slash_and_ways_to_leave(asterism: Command, model: ModelServer):
    asterism.use(model)
    with asterism.terminal() as person:
        person.expect("› ")
        person.type("//usr/bin is a directory")
        person.expect("answer to: /usr/bin is a directory")
        person.type(" /etc is another")
        person.expect("answer to: /etc is another")
        person.type("/usr/bin")
        person.expect("There is no command /usr/bin.")
        person.expect("› ")
        person.type("/quit now")
        assert person.ended() == 0
    for word in ("exit", "quit", "/q", "/exit"):
        with asterism.terminal() as person:
            person.expect("› ")
            person.type(word)
            assert person.ended() == 0
    assert model.requests == 2


# -- terminals of other kinds ----------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("--plain",)], ids=["dumb", "plain"])
def test_a_plain_terminal_gets_plain_lines(
    asterism: Command, model: ModelServer, arguments: tuple[str, ...]
):
    asterism.use(model)
    if not arguments:
        asterism.env["TERM"] = "dumb"
    with asterism.terminal("chat", *arguments) as person:
        person.expect("› ")
        person.type("hello **there**")
        person.expect("answer to: hello **there**")
        person.expect("› ")
        person.type("/memory")
        person.expect("human · core")
        person.expect("› ")  # before it, a terminal takes Ctrl-D for the end of a line
        person.press(CTRL_D)
        assert person.ended() == 0
        moves = re.findall(r"\x1b\[[0-9]*[A-DHJ]", person.raw)
        assert moves == []


@pytest.mark.parametrize("columns", [60, 140])
def test_the_chat_fits_the_terminal(asterism: Command, model: ModelServer, columns: int):
    asterism.use(model)
    said = "word " * 60
    with asterism.terminal(columns=columns) as person:
        person.expect("› ")
        person.type(said.strip())
        person.expect("tokens · ")
        person.resize(80)
        person.type("again after the resize")
        person.expect("answer to: again after the resize")
        person.expect("› ")
        answer = [line for line in person.lines if line.startswith("answer to: word")]
        assert len(answer) == 1
        assert len(answer[0]) <= columns
        assert not answer[0].endswith("wor")
        leave(person)


# -- one question ----------------------------------------------------------------------------------


def sent(model: ModelServer) -> str:
    return "\n".join(str(message["content"]) for message in model.bodies[-1]["messages"])


def test_a_pipe_goes_with_a_question(asterism: Command, model: ModelServer, tmp_path: Path):
    asterism.use(model)
    answer = asterism.ok("chat", "--once", "summarise", stdin="The roses are red.\n")
    assert answer == "answer to: summarise\n"
    assert "the document 'standard input'" in sent(model)
    assert "> The roses are red." in sent(model)
    file = tmp_path / "house.html"
    file.write_text("<h1>House</h1><p>The boiler is in the cellar.</p><script>bad()</script>")
    asterism.ok("chat", "--once", "where?", "--file", str(file))
    assert "the document 'house.html'" in sent(model)
    assert "The boiler is in the cellar." in sent(model)
    assert "bad()" not in sent(model)
    turn = asterism.json("turn", "list")[0]["id"]
    assert "house.html" in asterism.ok("turn", "show", turn)
    missing = asterism.run("chat", "--once", "where?", "--file", str(tmp_path / "none.pdf"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "There is no file" in missing.stderr
    assert "Nothing was sent." in missing.stderr
    assert model.requests == 2


READ_OF_DOCUMENTS = {
    "sheet": "> lamp | 42",
    "slides": "> Notes: Mention the garden.",
    "book": "> Call me Ishmael, said the whale.",
    "mail": "> The rent is due on Friday.",
}


def test_office_files_books_and_mail_go_with_a_message(
    asterism: Command, model: ModelServer, tmp_path: Path
):
    asterism.use(model)
    files = make_documents(tmp_path)
    for name, line in READ_OF_DOCUMENTS.items():
        asterism.ok("chat", "--once", "what?", "--file", str(files[name]))
        assert line in sent(model), name
    assert "Attachment: lease.txt" in sent(model)
    assert "hiddenword" not in sent(model)
    assert "attachedword" not in sent(model)
    with asterism.terminal(columns=200) as person:
        for name in READ_OF_DOCUMENTS:
            person.type(f"/file {files[name]} and now?")
            person.expect(f"Attached: {files[name].name}")
            person.expect("answer to: and now?")
        leave(person)


def test_what_cannot_be_read_does_not_go_with_a_message(
    asterism: Command, model: ModelServer, tmp_path: Path
):
    asterism.use(model)
    for name, reason in (
        ("photo.jpg", "is an image, not a document. Send it with --image"),
        ("film.mp4", "is a file of a kind that is not read"),
        ("broken.xlsx", "Nothing was sent."),
    ):
        (tmp_path / name).write_bytes(b"\xff\xd8\xff\xe0" * 20)
        done = asterism.run("chat", "--once", "what?", "--file", str(tmp_path / name))
        assert done.returncode == 2
        assert reason in done.stderr
        assert "Nothing was sent." in done.stderr
    (tmp_path / "notes.unknown").write_text("Grüße")
    asterism.ok("chat", "--once", "what?", "--file", str(tmp_path / "notes.unknown"))
    assert "> Grüße" in sent(model), "text whose name says nothing is read"
    assert model.requests == 1


@pytest.mark.promise("X5")
def test_a_question_to_a_halted_home_ends_with_a_sentence(asterism: Command, model: ModelServer):
    asterism.use(model)
    asterism.ok("agent", "create", "aria")
    asterism.ok("halt", "smoke in the kitchen")
    done = asterism.run("chat", "--once", "hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert "All agents are halted since" in done.stderr
    assert "smoke in the kitchen" in done.stderr
    assert "The message is kept and waits" in done.stderr
    with asterism.terminal() as person:
        person.expect("smoke in the kitchen. /resume lets them continue.")
        person.type("/resume")
        person.expect("The agents continue.")
        person.type("hello")
        person.expect("answer to: hello")
        leave(person)


def test_a_halt_while_a_question_waits_is_told(asterism: Command, model: ModelServer):
    asterism.use(model)
    model.next(Fault.STALL)
    with asterism.terminal() as person:
        person.expect("› ")
        person.type("a long story")
        person.expect("answer to: a")
        asterism.ok("halt", "smoke")
        person.expect("Everything was halted: smoke")
        person.expect("› ")
        asterism.ok("resume")
        until(lambda: asterism.json("turn", "list")[0]["state"] == "stopped")
        leave(person)
