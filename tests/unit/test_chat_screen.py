"""What a chat shows: Markdown in pieces, signals of a turn, the history of lines."""

import itertools
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.cli.input_line import FileHistory
from asterism.cli.screen import MAX_HISTORY, LiveScreen, MarkdownBlock, MarkdownStream
from asterism.types.turns import Signal

TEXT = """First
paragraph.

1. one

   goes on
2. two

~~~py
x = 1

y = 2
~~~
last"""


def blocks_of(pieces: list[str]) -> list[MarkdownBlock]:
    stream = MarkdownStream()
    return [block for piece in pieces for block in stream.feed(piece)] + stream.end()


@given(st.lists(st.integers(0, len(TEXT)), max_size=30))
def test_blocks_are_the_same_however_they_are_cut(places: list[int]):
    cuts = [0, *sorted(places), len(TEXT)]
    pieces = [TEXT[start:end] for start, end in itertools.pairwise(cuts)]
    assert blocks_of(pieces) == [
        MarkdownBlock("First\nparagraph.\n"),
        MarkdownBlock("1. one\n\n   goes on\n2. two\n"),
        MarkdownBlock("x = 1", code=True),
        MarkdownBlock("", code=True, apart=False),
        MarkdownBlock("y = 2", code=True, apart=False),
        MarkdownBlock("last\n"),
    ]


@given(st.text(alphabet="ab `~\n-#|*", max_size=200))
def test_no_words_are_lost(text: str):
    letters = re.sub(r"[^ab]", "", text)
    shown = "".join(block.text for block in blocks_of(list(text)))
    fences = re.findall(r"(?m)^ *(?:`{3,}|~{3,})[^`\n]*$", text)
    assert len(re.sub(r"[^ab]", "", shown)) >= len(letters) - sum(map(len, fences))


def test_a_paragraph_without_end_is_cut_and_not_rendered_for_ever():
    stream = MarkdownStream()
    blocks = [block for _ in range(3_000) for block in stream.feed("word ")]
    assert len(blocks) >= 2
    assert len(stream.rest) < 7_000
    assert not blocks[1].apart


class Watched:
    """A live screen, and what was printed above its line."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "60")
        self.screen = LiveScreen()
        self.printed = ""
        self.screen.write = self._print

    def _print(self, text: str) -> None:
        self.printed += text

    def show(self, kind: str, **data: object) -> None:
        self.screen.show(Signal("1-1", "agent_1", "turn_1", kind, data))

    @property
    def plain(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.printed)

    @property
    def live(self) -> str:
        return re.sub(r"\x1b\[[0-9;]*m", "", self.screen.live(60, 20))


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_finished_parts_are_printed_once_and_the_rest_is_live(watched: Watched):
    watched.show("text", text="A **bold** word.\n\nThe rest of", step=0)
    assert watched.plain == ""  # an indented line could still belong to it
    watched.show("text", text=" it\n", step=0)
    assert watched.plain == "A bold word.\n"
    assert watched.live.strip() == "The rest of it"
    watched.show("ended", state="done", text="A **bold** word.\n\nThe rest of it\n")
    assert watched.plain == "A bold word.\n\nThe rest of it\n"
    assert watched.live == ""


def test_what_a_turn_does_is_said_in_words(watched: Watched):
    screen = watched.screen
    watched.show("opened", resumed=False)
    assert screen.doing == "thinking"
    watched.show("reading", done=300, total=1_200)
    assert screen.doing == "reading the prompt, 25%"
    watched.show("call", key="0/call/0", name="add", arguments='{"a": 1}')
    assert (screen.doing, watched.live) == ("running add", '· add {"a": 1}')
    watched.show("progress", key="0/call/0", text="half way")
    assert screen.doing == "add: half way"
    watched.show("result", key="0/call/0", state="ok", text="3")
    assert watched.plain == '· add {"a": 1} → 3\n'
    watched.show("reasoning", text="Let me see.\nThen", step=1)
    assert watched.plain.endswith("Let me see.\n")
    assert watched.live == "Then"
    watched.show("text", text="Done", step=1)
    watched.show("again", why="it was cut off")
    assert "Done" not in watched.live
    watched.show("ended", state="stopped", text="Stopped.")
    assert watched.plain.endswith("(Stopped.)\n")


def test_a_call_that_was_made_before_has_its_name(watched: Watched):
    watched.screen.begin({"0/call/0": "count_sheep"})
    watched.show("result", key="0/call/0", state="ok", text="20 sheep")
    assert watched.plain == "· count_sheep → 20 sheep\n"


def test_control_characters_are_spelled_out(watched: Watched):
    watched.show("text", text="a\x1b]0;owned\x07\n\nb", step=0)
    watched.show("ended", state="done", text="a\x1b]0;owned\x07\n\nb")
    assert "\x1b]" not in watched.printed
    assert r"a\x1b]0;owned\x07" in watched.plain


def test_the_history_keeps_lines_and_is_private(tmp_path: Path):
    file = tmp_path / "chat-history"
    history = FileHistory(file)
    history.store_string("one\ntwo")
    for number in range(MAX_HISTORY + 5):
        history.store_string(f"line {number}")
    assert file.stat().st_mode & 0o777 == 0o600
    history.trim()
    kept = list(FileHistory(file).load_history_strings())
    assert len(kept) == MAX_HISTORY
    assert kept[0] == f"line {MAX_HISTORY + 4}"
    history.store_string("three\nfour")
    assert next(iter(FileHistory(file).load_history_strings())) == "three\nfour"
