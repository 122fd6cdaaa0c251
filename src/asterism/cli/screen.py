"""The screen of a chat: a turn while it is under way, and a plain prompt for plain terminals.

`Screen` writes as it comes, which every terminal can show. `LiveScreen` prints what is finished and
keeps the rest, rendered so far, for the input line to show below it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import re
import select
import sys
import termios
import textwrap
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from asterism.cli.output import console, one_line, printable
from asterism.cli.terminal import ask_line
from asterism.records import dataclass

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.markdown import Markdown

    from asterism.cli.terminal import EditorFile
    from asterism.types.turns import Signal

try:
    import readline as _readline
except ImportError:  # some builds of Python have none
    readline: ModuleType | None = None
else:
    readline = _readline

HISTORY = "chat-history"
MAX_HISTORY = 1_000
_PARTS = re.compile(r"\n|[^\S\n]+|\S+")
_SPEAKERS = ("cyan", "magenta", "blue", "green")
_DIM, _KEPT, _WARNING, _ERROR = "bright_black", "green", "yellow", "red"
_MAX_UNFINISHED = 6_000
"""Characters of an unfinished paragraph that are rendered again as it grows; then it is cut."""


class Screen:
    """Shows signals: answers as they come, tool calls and trouble on lines of their own."""

    def __init__(self) -> None:
        self._console = console()
        self._text = _Typewriter(lambda text: self._write(text, ""), lambda: self.width)
        self._thought = _Typewriter(lambda text: self._write(text, _DIM), lambda: self.width)
        self._streamed = ""
        """What was streamed since the last step."""
        self._calls: dict[str, str] = {}
        self._open_call: str | None = None
        self._waits_for = ""
        self.hints = True
        """Whether to say how a question is answered."""
        self.kept_hint = " · /why · /undo"
        """What can be done about a fact that was kept."""
        self.doing = ""
        """What is going on, in words."""
        self.kept = 0
        """How many facts were shown as kept since the turn began."""
        self._shows: dict[str, Callable[[dict[str, Any]], None]] = {
            "text": self._show_text,
            "reasoning": self._show_reasoning,
            "call": self._show_call,
            "progress": self._show_progress,
            "result": self._show_result,
            "kept": self._show_kept,
            "again": self._show_again,
            "waiting": self._show_waiting,
            "parked": self._show_parked,
            "ended": self._show_ended,
        }

    @property
    def width(self) -> int:
        """How many columns the terminal has now."""
        return self._console.width

    @property
    def coloured(self) -> bool:
        """Whether the terminal takes styles."""
        return self._console.color_system is not None and not self._console.no_color

    def show(self, signal: Signal) -> None:
        """Show what happened; kinds that nobody needs to see are passed over."""
        show = self._shows.get(signal.kind)
        if show is not None:
            show(signal.data)

    def begin(self, calls: Mapping[str, str] | None = None) -> None:
        """Get ready for a turn; `calls` are the names of those that it has made before."""
        self.kept = 0
        self._calls = dict(calls or {})

    @contextlib.contextmanager
    def capturing(self) -> Generator[None, None, None]:
        """Show what is printed within to standard output."""
        self._finish_line()
        yield

    def quote(self, mark: str, text: str, *, lines: int) -> None:
        """Print the beginning of what was said before, dimmed."""
        width = max(20, self.width - len(mark))
        words = textwrap.wrap(one_line(text, width * lines), width) or [""]
        for place, line in enumerate(words[:lines]):
            self._line(f"{mark if place == 0 else ' ' * len(mark)}{line}", _DIM)

    def say(self, text: str) -> None:
        """Print a line or more of plain text, broken at words."""
        self._finish_line()
        self._text.put(printable(text))
        self._text.end()

    def gap(self) -> None:
        """Leave a line empty."""
        self._finish_line()
        self._write("\n", "")

    def speak(self, name: str, place: int) -> None:
        """Print who speaks, in the colour of that place in a group, above what they say."""
        self._line(name, f"bold {_SPEAKERS[place % len(_SPEAKERS)]}")

    def settle(self) -> None:
        """Finish what was begun to be said; what follows is somebody else's."""
        self._finish_line()
        self._streamed = ""

    def note(self, text: str) -> None:
        """Print something beside the conversation."""
        self._line(text, _DIM)

    def warn(self, text: str) -> None:
        """Print something that needs attention."""
        self._line(f"! {text}", _WARNING)

    def fail(self, text: str) -> None:
        """Print what went wrong."""
        self._line(f"✗ {text}", _ERROR)

    def _show_text(self, data: dict[str, Any]) -> None:
        self._end_call()
        self._thought.end()
        self._streamed += data["text"]
        self._text.put(printable(data["text"]))

    def _show_reasoning(self, data: dict[str, Any]) -> None:
        self._end_call()
        self._text.end()
        self._thought.put(printable(data["text"]))

    def _show_call(self, data: dict[str, Any]) -> None:
        self._finish_line()
        self._streamed = ""
        self._calls[data["key"]] = data["name"]
        self._open_call = data["key"]
        arguments = one_line(data["arguments"], max(20, self.width // 2 - len(data["name"])))
        self._write(f"· {printable(data['name'])} {arguments}", _DIM)

    def _show_progress(self, data: dict[str, Any]) -> None:
        self._line(f"  {self._calls.get(data['key'], '')}: {one_line(data['text'], 200)}", _DIM)

    def _show_result(self, data: dict[str, Any]) -> None:
        name = self._calls.get(data["key"], data["key"])
        if self._open_call == data["key"]:
            self._write(f" → {one_line(data['text'], max(20, self.width // 2 - 8))}\n", _DIM)
            self._open_call = None
        else:
            self._line(f"· {name} → {one_line(data['text'], max(20, self.width - 20))}", _DIM)

    def _show_kept(self, data: dict[str, Any]) -> None:
        self.kept += 1
        where = "archive" if data["where"].startswith("pass_") else data["where"]
        before = f" (before: {one_line(data['before'], 60)})" if data["before"] else ""
        text = one_line(data["text"], max(20, self.width - 30))
        self._line(f"+ {where}: {text}{before}{self.kept_hint}", _KEPT)

    def _show_again(self, data: dict[str, Any]) -> None:
        self._streamed = ""
        if data.get("evaluated"):  # why is said to the model; "turn show" has it
            self._line("(That answer did not fit, so the model is asked again.)", _DIM)
            return
        self._line(
            f"(The model was interrupted and is asked again: {one_line(data['why'], 200)})", _DIM
        )

    def _show_waiting(self, data: dict[str, Any]) -> None:
        if data["why"] != self._waits_for:
            self._waits_for = data["why"]
            self.warn(f"Waiting: {data['why']} The turn continues by itself.")

    def _show_parked(self, data: dict[str, Any]) -> None:
        self.show_questions(data["text"])
        self._streamed = ""

    def show_questions(self, questions: str) -> None:
        """Show questions that wait for an answer, and how to give it."""
        for question in questions.splitlines():
            self._line(f"? {question}", _WARNING)
        if self.hints:
            self.note('  "/approve" allows it, "/deny why" refuses it; add the id if several wait.')

    def _show_ended(self, data: dict[str, Any]) -> None:
        text = data["text"]
        if data["state"] == "done":
            if text != self._streamed:  # nobody watched while it was written
                self._finish_line()
                self._text.put(printable(text))
            self._finish_line()
        elif data["state"] == "stopped":
            self.note(f"({text})")
        else:
            self.fail(text)
        self._streamed = self._waits_for = ""
        self._calls.clear()

    def summarise(self, text: str) -> None:
        """Print one line about the turn that has just ended."""
        self._line(text, _DIM)

    def _line(self, text: str, style: str) -> None:
        from rich.text import Text

        self._finish_line()
        self._console.print(Text(printable(text), style))

    def _finish_line(self) -> None:
        self._end_call()
        self._thought.end()
        self._text.end()

    def _end_call(self) -> None:
        if self._open_call is not None:
            self._write("\n", "")
            self._open_call = None

    def _write(self, text: str, style: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style), end="", soft_wrap=True)
        self._console.file.flush()


class _Typewriter:
    """Writes text that comes in pieces, and breaks lines between words."""

    def __init__(self, write: Callable[[str], None], width: Callable[[], int]) -> None:
        self._write = write
        self._width = width
        self._column = 0
        self._space = ""
        self._word = ""

    def put(self, text: str) -> None:
        """Write a piece; its last word is held back, since it may go on."""
        for part in _PARTS.findall(text):
            if not part.isspace():
                self._word += part
                continue
            self._put_word()
            if part == "\n":
                self._write("\n")
                self._column, self._space = 0, ""
            else:
                self._space += part.expandtabs(4)

    def end(self) -> None:
        """Write what was held back and finish the line, if one was begun."""
        self._put_word()
        if self._column:
            self._write("\n")
        self._column, self._space = 0, ""

    def _put_word(self) -> None:
        if not self._word:
            return
        from rich.cells import cell_len

        size = cell_len(self._word)
        if self._column and self._column + len(self._space) + size > self._width():
            self._write("\n")
            self._column, self._space = 0, ""
        self._write(self._space + self._word)
        self._column += len(self._space) + size
        self._space = self._word = ""


# -- a screen above an input line ------------------------------------------------------------------


class _Sink(io.StringIO):
    """Takes what is meant for the terminal."""

    def isatty(self) -> bool:
        """Say that it is one, so that tables come in their forms for people."""
        return True


class LiveScreen(Screen):
    """Prints finished parts above an input line, and keeps the unfinished rest for it to show."""

    def __init__(self) -> None:
        """Make a screen; set `write` before anything is shown."""
        super().__init__()
        self.write: Callable[[str], object] = sys.stdout.write
        """Prints a text with its styles above the line."""
        self._renderer = _capture_console(self._console)
        self.dirty = False
        """Whether the unfinished rest has changed since it was shown."""
        self._lock = threading.RLock()
        self._answer = MarkdownStream()
        self._pending = ""
        """A call that has no result yet, or the end of what a model thinks."""
        self._printed = False
        """Whether a part of the answer stands above."""
        self._shown: tuple[tuple[str, int], str] = (("", 0), "")
        self._shows |= {"opened": self._show_opened, "reading": self._show_reading}

    # -- what the input line asks for ----------------------------------------------------------

    def live(self, width: int, rows: int) -> str:
        """Return the unfinished rest as the terminal shows it, its last rows if there are many."""
        with self._lock:
            self.dirty = False
            key = (f"{self._answer.rest}\0{self._pending}", width)
            if key != self._shown[0]:
                rest = self._live_answer()
                pending = self._styled(self._pending, _DIM) if self._pending else ""
                self._shown = (key, f"{rest}{pending}".rstrip("\n"))
            return "\n".join(self._shown[1].split("\n")[-rows:])

    def _live_answer(self) -> str:
        rest = self._answer.rest
        if not rest.strip():
            return ""
        shown = self._styled(f"  {rest}", "") if self._answer.in_code else self._markdown(rest)
        return f"\n{shown}" if self._printed else shown

    # -- signals -------------------------------------------------------------------------------

    def _show_opened(self, data: dict[str, Any]) -> None:
        self.doing = "going on" if data.get("resumed") else "thinking"

    def _show_reading(self, data: dict[str, Any]) -> None:
        share = data["done"] / data["total"] if data["total"] else 1.0
        self.doing = f"reading the prompt, {share:.0%}" if share < 1 else "thinking"

    def _show_text(self, data: dict[str, Any]) -> None:
        self.doing = "writing"
        self._streamed += data["text"]
        with self._lock:
            self._settle_pending()
            for block in self._answer.feed(printable(data["text"])):
                self._print_block(block)
            self.dirty = True

    def _show_reasoning(self, data: dict[str, Any]) -> None:
        self.doing = "thinking"
        with self._lock:
            self._end_answer()
            if self._open_call is not None:
                self._settle_pending()
            *lines, self._pending = f"{self._pending}{printable(data['text'])}".split("\n")
            for line in lines:
                self._put(self._styled(line, _DIM))
            self.dirty = True

    def _show_call(self, data: dict[str, Any]) -> None:
        with self._lock:
            self._finish_line()
            self._streamed = ""
            name = printable(data["name"])
            self._calls[data["key"]] = name
            self._open_call = data["key"]
            arguments = one_line(data["arguments"], max(20, self.width // 2 - len(name)))
            self._pending = f"· {name} {arguments}"
            self.doing = f"running {name}"
            self.dirty = True

    def _show_progress(self, data: dict[str, Any]) -> None:
        name = self._calls.get(data["key"])
        text = one_line(data["text"], max(20, self.width - 30))
        self.doing = f"{name}: {text}" if name else text

    def _show_result(self, data: dict[str, Any]) -> None:
        self.doing = "thinking"
        if self._open_call != data["key"]:
            super()._show_result(data)
            return
        with self._lock:
            call, self._pending, self._open_call = self._pending, "", None
            room = max(20, self.width // 2 - 8)
            self._put(self._styled(f"{call} → {one_line(data['text'], room)}", _DIM))

    def _show_waiting(self, data: dict[str, Any]) -> None:
        super()._show_waiting(data)
        self.doing = "waiting"

    def _show_again(self, data: dict[str, Any]) -> None:
        with self._lock:
            self._answer.clear()
        super()._show_again(data)

    def _show_ended(self, data: dict[str, Any]) -> None:
        text = data["text"]
        unseen = data["state"] == "done" and text != self._streamed
        if unseen:
            with self._lock:
                self._finish_line()
                for block in self._answer.feed(printable(text)):
                    self._print_block(block)
                self._end_answer()
            data = {**data, "text": self._streamed}
        super()._show_ended(data)
        self._printed = False

    # -- printing ------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Print a line or more of plain text, broken at words."""
        self._line(text, "")

    def gap(self) -> None:
        """Leave a line empty."""
        with self._lock:
            self._finish_line()
            self._put("\n")

    @contextlib.contextmanager
    def capturing(self) -> Generator[None, None, None]:
        """Show what is printed within to standard output above the line."""
        sink = _Sink()
        with contextlib.redirect_stdout(sink):
            yield
        with self._lock:
            self._finish_line()
            self._put(sink.getvalue())

    def _line(self, text: str, style: str) -> None:
        with self._lock:
            self._finish_line()
            self._put(self._styled(printable(text), style))

    def _finish_line(self) -> None:
        with self._lock:
            self._end_answer()
            self._settle_pending()

    def _settle_pending(self) -> None:
        """Print a call without its result, or the last words of what a model thinks."""
        if self._pending:
            pending, self._pending = self._pending, ""
            self._put(self._styled(pending, _DIM))
        self._open_call = None

    def _end_answer(self) -> None:
        for block in self._answer.end():
            self._print_block(block)
        self._printed = False

    def _print_block(self, block: MarkdownBlock) -> None:
        gap = "\n" if self._printed and block.apart else ""
        text = block.text
        shown = self._styled(f"  {text}", "") if block.code else self._markdown(text)
        self._put(f"{gap}{shown}")
        self._printed = True

    def _put(self, text: str) -> None:
        self.dirty = True
        self.write(text)

    def _markdown(self, text: str) -> str:
        """Return Markdown as the terminal shows it, without the spaces that fill up lines."""
        # Addresses of links are in plain sight: what a link says may lead elsewhere.
        rendered = self._rendered(_markdown_class()(text, hyperlinks=False))
        lines = [_PADDING.sub(r"\1", line) for line in rendered.split("\n")]
        there = [place for place, line in enumerate(lines) if _STYLES.sub("", line).strip()]
        return "\n".join(lines[there[0] : there[-1] + 1]) + "\n" if there else ""

    def _styled(self, text: str, style: str) -> str:
        from rich.text import Text

        return self._rendered(Text(text, style))

    def _rendered(self, renderable: RenderableType) -> str:
        with self._renderer.capture() as captured:
            self._renderer.print(renderable, width=self.width)
        return captured.get()


_STYLES = re.compile(r"\x1b\[[0-9;]*m")
_PADDING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$")
_THEME = {
    "markdown.code": "cyan",
    "markdown.code_block": "",
    "markdown.block_quote": "italic",
    "markdown.list": "",
    "markdown.item.number": "bold",
    "markdown.h1": "bold underline",
    "markdown.h2": "bold underline",
    "markdown.h3": "bold",
    "markdown.h4": "bold",
    "markdown.h5": "italic",
    "markdown.h6": "italic",
    "markdown.link": "underline",
    "markdown.link_url": "underline",
    "markdown.table.border": "bright_black",
    "markdown.table.header": "bold",
}
"""Styles that can be read on dark and on light backgrounds: none has a background of its own."""


def _capture_console(screen: Console) -> Console:
    """Return a console with the colours of a terminal whose output is only captured."""
    from rich.console import Console
    from rich.theme import Theme

    return Console(
        file=_Sink(),
        force_terminal=True,
        color_system=screen.color_system if not screen.no_color else None,  # pyright: ignore[reportArgumentType] - one of the names that it takes
        no_color=screen.no_color,
        highlight=False,
        markup=False,
        emoji=False,
        theme=Theme(_THEME),
    )


@functools.cache
def _markdown_class() -> type[Markdown]:
    """Return a kind of Markdown that has its headings at the left, where the text is."""
    from rich.markdown import Heading, Markdown

    class LeftHeading(Heading):
        """A heading at the left."""

        LEVEL_ALIGN: ClassVar[dict[str, Any]] = dict.fromkeys(Heading.LEVEL_ALIGN, "left")

    class PlainMarkdown(Markdown):
        """Markdown without what only suits a page."""

        elements: ClassVar[dict[str, Any]] = {**Markdown.elements, "heading_open": LeftHeading}

    return PlainMarkdown


@dataclass(frozen=True, slots=True)
class MarkdownBlock:
    """A part of a Markdown text that will not change any more."""

    text: str
    code: bool = False
    """Whether it is a line of a block of code, as it is."""
    apart: bool = True
    """Whether an empty line stands before it."""


class MarkdownStream:
    """Cuts a Markdown text that comes in pieces into blocks, each as soon as it is finished.

    Lines of code are finished one by one; other blocks end where an empty line follows.
    """

    _FENCE = re.compile(r"^( {0,12})(`{3,}|~{3,})([^`]*)$")

    def __init__(self) -> None:
        """Begin with nothing."""
        self._block = ""
        """The lines of the block that is not finished."""
        self._line = ""
        """The line that has not ended yet."""
        self._fence = ""
        """What the block of code is closed with that the text is in."""
        self._indent = 0
        self._ends = False
        """Whether an empty line has just come."""
        self._apart = True

    @property
    def rest(self) -> str:
        """What may still change."""
        return self._block + self._line

    @property
    def in_code(self) -> bool:
        """Whether the rest is a line of code."""
        return bool(self._fence)

    def feed(self, text: str) -> list[MarkdownBlock]:
        """Take a piece, and return the blocks that it finishes."""
        *lines, self._line = f"{self._line}{text}".split("\n")
        blocks = [block for line in lines for block in self._take(line)]
        if len(self.rest) > _MAX_UNFINISHED and not self._fence:
            before, space, self._line = self._line.rpartition(" ")
            self._block += before + space
            blocks += self._finish()
            self._apart = False
        return blocks

    def end(self) -> list[MarkdownBlock]:
        """Return what is left, since nothing follows, and begin anew."""
        line, self._line = self._line, ""
        blocks = [*(self._take(line) if line else ()), *self._finish()]
        self.clear()
        return blocks

    def clear(self) -> None:
        """Begin anew; what is left is void."""
        self._block = self._line = self._fence = ""
        self._ends, self._apart = False, True

    def _take(self, line: str) -> Iterator[MarkdownBlock]:
        if self._fence:
            yield from self._take_code(line)
        elif not line.strip():
            self._ends = bool(self._block)
        elif fence := self._FENCE.match(line):
            yield from self._finish()
            self._indent, self._fence, self._apart = len(fence[1]), fence[2], True
        else:
            if self._ends and line.startswith("  "):
                self._block += "\n"  # it goes on with what is indented
            elif self._ends:
                yield from self._finish()
            self._ends = False
            self._block += f"{line}\n"

    def _take_code(self, line: str) -> Iterator[MarkdownBlock]:
        bare = line.strip()
        if len(bare) >= len(self._fence) and set(bare) == {self._fence[0]}:
            self._fence, self._apart = "", True
            return
        indent = min(self._indent, len(line) - len(line.lstrip(" ")))
        yield MarkdownBlock(line[indent:], code=True, apart=self._apart)
        self._apart = False

    def _finish(self) -> list[MarkdownBlock]:
        text, self._block, self._ends = self._block, "", False
        if not text.strip():
            return []
        apart, self._apart = self._apart, True
        return [MarkdownBlock(text, apart=apart)]


# -- the prompt of plain terminals -----------------------------------------------------------------


class Prompt:
    """Asks for a line; other threads may print above it while it waits."""

    def __init__(self, place: Path, words: Sequence[str], *, coloured: bool) -> None:
        """Make a prompt that keeps its history in `place` and completes `words`."""
        mark = "› " if (sys.stdout.encoding or "").lower().startswith("utf") else "> "
        self._plain = f"\x1b[1m{mark}\x1b[0m" if coloured else mark
        # Readline must know what takes no room on the line.
        self._prompt = f"\x01\x1b[1m\x02{mark}\x01\x1b[0m\x02" if coloured else mark
        if readline is None:
            self._prompt = self._plain
        self._terminal = termios.tcgetattr(sys.stdin)
        self.agents: Sequence[str] = ()
        """Names that are completed after `/agent` and `/group`."""
        self.mentions: Sequence[str] = ()
        """Names that are completed after `@`."""
        # At a plain prompt, Ctrl-C raises KeyboardInterrupt where the turn is waited for.
        self.on_interrupt: Callable[[], bool] = lambda: False
        self.on_leave: Callable[[], None] = lambda: None
        self._history = place / HISTORY
        self._words = words
        self._lock = threading.Lock()
        self._asking = False
        self._announced: list[Callable[[], None]] = []
        self._set_up()

    def ask(self) -> str:
        """Return what a person typed; raises EOFError or KeyboardInterrupt if they leave."""
        with self._lock:
            self._show_announced()
            self._asking = True
        try:
            line = input(self._prompt)
            # Without bracketed paste the lines of a paste come one by one.
            while not _pastes_whole() and select.select([sys.stdin], [], [], 0.01)[0]:
                line += "\n" + input()
            return line
        finally:
            with self._lock:
                self._asking = False

    def announce(self, show: Callable[[], None]) -> None:
        """Let `show` print above the prompt: now if a person is asked, else before the next ask."""
        with self._lock:
            self._announced.append(show)
            if self._asking:
                print("\r\x1b[J", end="")  # noqa: T201
                self._show_announced()
                typed = readline.get_line_buffer() if readline else ""
                print(f"{self._plain}{typed}", end="", flush=True)  # noqa: T201

    def run(self, converse: Callable[[], None]) -> None:
        """Call `converse`, which asks for lines."""
        try:
            converse()
        finally:
            self.close()

    def ask_line(self, question: str) -> str:
        """Ask a question; raises KeyboardInterrupt at Ctrl-C."""
        return ask_line(question)

    def edit(self, draft: EditorFile) -> str:
        """Open the person's editor, and return the text after it."""
        return draft.edit()

    def close(self) -> None:
        """Give the terminal back as it was, and keep the history for the next time."""
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._terminal)
        if readline is not None:
            readline.set_history_length(MAX_HISTORY)
            with contextlib.suppress(OSError):
                readline.write_history_file(self._history)

    def _show_announced(self) -> None:
        for show in self._announced:
            show()
        self._announced.clear()

    def _set_up(self) -> None:
        if readline is None:
            return
        if _is_gnu():
            readline.parse_and_bind("set enable-bracketed-paste on")
        readline.set_completer(self._complete)
        readline.set_completer_delims(" ")
        readline.parse_and_bind("tab: complete" if _is_gnu() else "bind ^I rl_complete")
        with contextlib.suppress(OSError):
            readline.read_history_file(self._history)

    def _complete(self, text: str, number: int) -> str | None:
        known = (*self._words, *self.agents, *(f"@{name}" for name in self.mentions))
        words = [word for word in known if text and word.startswith(text)]
        return words[number] if number < len(words) else None


def _is_gnu() -> bool:
    return readline is not None and "libedit" not in (readline.__doc__ or "")


def _pastes_whole() -> bool:
    return _is_gnu()
