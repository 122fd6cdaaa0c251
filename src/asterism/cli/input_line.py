"""The input line of a chat: it stays at the bottom of the terminal while answers stream above it.

Three threads meet here. The main thread runs the line and draws; the conversation goes on in a
thread that asks for lines; the home is at work in a third one. Whatever they print goes above the
line, in one write with the line drawn again below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from signal import SIGHUP, SIGTERM
from typing import TypeVar

from prompt_toolkit.application import Application, in_terminal
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.data_structures import Size
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.history import History
from prompt_toolkit.input import create_input
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import (
    BufferControl,
    ConditionalContainer,
    FormattedTextControl,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from asterism.cli.output import one_line, printable
from asterism.cli.screen import HISTORY, MAX_HISTORY, LiveScreen
from asterism.cli.terminal import EditorFile
from asterism.errors import AsterismError

T = TypeVar("T")

_TICK = 0.1
"""Seconds between two looks at whether something has to be drawn."""
_SPIN_EVERY = 3
"""Ticks after which the sign of life moves: a model on this machine needs the processor too."""
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_MAX_CHOICES = 8
_MAX_QUEUED_SHOWN = 5
_LEAVE_WITHIN = 2.0
"""Seconds that a conversation has to end by itself when the person leaves."""
_LINE_BREAK = "\u2028"
"""Stands for a line break within a line of the history."""
_STYLE = Style.from_dict(
    {
        "mark": "bold",
        "mark.busy": "ansibrightblack",
        "question": "bold ansiyellow",
        "status": "ansibrightblack",
        "queued": "ansibrightblack",
        "choice": "",
        "choice.current": "reverse",
        "choice.meta": "ansibrightblack",
    }
)
# Terminals that tell Shift-Enter apart send one of these; it is a line break, as Alt-Enter is.
for _sequence in ("\x1b[13;2u", "\x1b[27;2;13~"):
    ANSI_SEQUENCES[_sequence] = (Keys.Escape, Keys.ControlM)
_SYNCHRONIZED = ("\x1b[?2026h", "\x1b[?2026l")
"""Terminals that know it show what is between at once; others pass over it."""


class InputLine:
    """Asks for lines at the bottom of a terminal; whatever is shown meanwhile goes above it."""

    def __init__(
        self, place: Path, commands: Mapping[str, str], screen: LiveScreen, *, coloured: bool
    ) -> None:
        """Make a line that keeps its history in `place` and completes `commands`."""
        utf8 = (sys.stdout.encoding or "").lower().startswith("utf")
        self._marks = ("› ", "» ") if utf8 else ("> ", ">> ")
        self.agents: Sequence[str] = ()
        """The names that are completed after `/agent` and `/group`."""
        self.mentions: Sequence[str] = ()
        """The names that are completed after `@`, in place of paths."""
        self.on_interrupt: Callable[[], bool] = lambda: False
        """Stops what is under way when Ctrl-C is pressed; returns False to leave instead."""
        self.on_leave: Callable[[], None] = lambda: None
        """Called when the person leaves while something is under way."""
        self._screen = screen
        self._coloured = coloured
        self._changed = threading.Condition(threading.RLock())
        self._lines: deque[str] = deque()
        """What was entered and not taken yet."""
        self._announced: list[Callable[[], None]] = []
        self._busy = True
        self._left = False
        self._armed = False
        """Whether Ctrl-C was just pressed at an idle line, so that the next one leaves."""
        self._question = ""
        self._answers: SimpleQueue[str | None] = SimpleQueue()
        self._draft = Document()
        self._began = time.monotonic()
        self._drawn: tuple[str, StyleAndTextTuples] = ("", [])
        """The unfinished part of an answer as it was drawn last."""
        self._code: int | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._history = FileHistory(place / HISTORY)
        self._buffer = Buffer(
            completer=_Completer(commands, lambda: self.agents, lambda: self.mentions),
            complete_while_typing=Condition(self._completes_by_itself),
            history=self._history,
            multiline=True,
            on_text_changed=lambda _: self._disarm(),
        )
        self._app = self._application()

    # -- for the conversation ----------------------------------------------------------------------

    def run(self, converse: Callable[[], None]) -> None:
        """Show the line until `converse`, which runs in a thread of its own, has returned."""
        problems: list[BaseException] = []

        def work() -> None:
            try:
                converse()
            except BaseException as error:  # noqa: BLE001 - raised again in the main thread
                problems.append(error)
            finally:
                self._in_loop(self._end)

        conversation = threading.Thread(target=work, name="asterism-chat", daemon=True)
        asyncio.run(self._show(conversation))
        conversation.join(_LEAVE_WITHIN)
        self._loop = None
        self.close()
        if self._code is not None:
            os._exit(self._code)
        if problems and not self._left:
            raise problems[0]

    def ask(self) -> str:
        """Return the next line; raises EOFError when the person leaves."""
        with self._changed:
            self._busy = False
            self._screen.doing = ""
            self._show_announced()
            self._draw()
            self._changed.wait_for(lambda: self._lines or self._left)
            if not self._lines:
                raise EOFError
            text = self._lines.popleft()
            self._busy, self._began = True, time.monotonic()
        self._echo(self._marks[0], text)
        return text

    def ask_line(self, question: str) -> str:
        """Ask a question on the line, beside what was typed; raises KeyboardInterrupt at Ctrl-C."""
        self._in_loop(lambda: self._begin_question(question))
        answer = self._answers.get()
        if answer is None:
            self._echo(question, "")
            raise KeyboardInterrupt
        self._echo(question, answer)
        return answer.strip()

    def edit(self, draft: EditorFile) -> str:
        """Open the person's editor in place of the line, and return the text after it."""
        loop = self._loop
        if loop is None:
            return draft.edit()

        async def edit() -> str:
            async with in_terminal():
                return draft.edit()

        return asyncio.run_coroutine_threadsafe(edit(), loop).result()

    def announce(self, show: Callable[[], None]) -> None:
        """Let `show` print above the line: now if nothing is under way, else after it."""
        with self._changed:
            self._announced.append(show)
            if not self._busy and not self._question:
                self._show_announced()

    def print(self, text: str) -> None:
        """Print a text with its styles above the line; its last line is ended."""
        if self._loop is None:
            sys.stdout.write(text)
            sys.stdout.flush()
        else:
            self._in_loop(lambda: self._print(text))

    def close(self) -> None:
        """Keep the history short."""
        self._history.trim()

    def _show_announced(self) -> None:
        announced, self._announced = self._announced, []
        for show in announced:
            show()

    def _echo(self, mark: str, text: str) -> None:
        indent = " " * len(mark)
        lines = printable(text).split("\n")
        body = "\n".join([lines[0], *(f"{indent}{line}" for line in lines[1:])])
        bold, end = ("\x1b[1m", "\x1b[0m") if self._coloured else ("", "")
        self.print(f"{bold}{mark}{end}{body}\n")

    # -- in the main thread ------------------------------------------------------------------------

    async def _show(self, conversation: threading.Thread) -> None:
        self._loop = asyncio.get_running_loop()
        for number in (SIGTERM, SIGHUP):
            self._loop.add_signal_handler(number, self._die, 128 + number)
        ticking = asyncio.create_task(self._tick())
        try:
            await self._app.run_async(
                pre_run=conversation.start, handle_sigint=False, set_exception_handler=False
            )
        finally:
            ticking.cancel()

    async def _tick(self) -> None:
        """Draw what has changed since, and let the sign of life move."""
        count = 0
        while True:
            await asyncio.sleep(_TICK)
            count += 1
            if self._screen.dirty or (self._busy and count % _SPIN_EVERY == 0):
                self._app.invalidate()

    def _in_loop(self, work: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(work)

    def _draw(self) -> None:
        self._in_loop(self._app.invalidate)

    def _die(self, code: int) -> None:
        self._code = code
        self._leave()

    def _end(self) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _print(self, text: str) -> None:
        """Write a text above the line, and draw the line again in the same moment."""
        app = self._app
        if not app.is_running or app.is_done:
            sys.stdout.write(text)
            sys.stdout.flush()
            return
        output = app.output
        output.write_raw(_SYNCHRONIZED[0])
        app.renderer.erase(leave_alternate_screen=False)
        output.write_raw(text)
        app._redraw()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - `invalidate` would leave a moment without a line
        output.write_raw(_SYNCHRONIZED[1])
        output.flush()

    def _leave(self) -> None:
        with self._changed:
            self._left = True
            self._changed.notify_all()
            busy = self._busy
        if self._question:
            self._end_question(None)
        if busy:
            self.on_leave()
            self._loop_later(_LEAVE_WITHIN, self._end)

    def _loop_later(self, seconds: float, work: Callable[[], object]) -> None:
        assert self._loop is not None
        self._loop.call_later(seconds if self._code is None else 0.0, work)

    def _disarm(self) -> None:
        self._armed = False

    # -- questions ---------------------------------------------------------------------------------

    def _begin_question(self, question: str) -> None:
        self._draft = self._buffer.document
        self._buffer.reset()
        self._question = question
        self._app.invalidate()

    def _end_question(self, answer: str | None) -> None:
        self._question = ""
        self._buffer.set_document(self._draft, bypass_readonly=True)
        self._draft = Document()
        self._answers.put(answer)

    # -- keys --------------------------------------------------------------------------------------

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        editing = Condition(lambda: not self._app.layout.is_searching)
        keys.add("enter", filter=editing)(self._on_enter)
        keys.add("escape", "enter", filter=editing)(self._on_line_break)
        keys.add("c-c")(self._on_ctrl_c)
        keys.add("c-d", filter=editing)(self._on_ctrl_d)
        keys.add("c-x", "c-e", filter=editing)(self._on_edit)
        keys.add("c-z")(self._on_suspend)
        return keys

    def _on_suspend(self, event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    def _on_line_break(self, event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    def _on_enter(self, event: KeyPressEvent) -> None:
        buffer = self._buffer
        before = buffer.document.text_before_cursor
        if not self._question and before.endswith("\\") and not before.endswith("\\\\"):
            buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
            return
        text = buffer.text
        if self._question:
            self._end_question(text)
            return
        if not text.strip():
            buffer.reset()
            return
        buffer.reset(append_to_history=True)
        with self._changed:
            self._lines.append(text)
            self._changed.notify_all()
        event.app.invalidate()

    def _on_ctrl_c(self, event: KeyPressEvent) -> None:
        buffer = self._buffer
        if self._question:
            self._end_question(None)
        elif self._busy:
            self._take_back()
            if not self.on_interrupt():
                self._leave()
        elif buffer.text:
            # What was typed is not lost: it is the latest line of the history.
            buffer.reset(append_to_history=True)
            self._armed = True
        elif self._armed:
            self._leave()
        else:
            self._armed = True
        event.app.invalidate()

    def _take_back(self) -> None:
        """Put what was typed ahead back on the line: it was meant to follow what is stopped."""
        with self._changed:
            lines = [*self._lines, *([self._buffer.text] if self._buffer.text else [])]
            self._lines.clear()
        if lines:
            text = "\n".join(lines)
            self._buffer.set_document(Document(text, len(text)), bypass_readonly=True)

    def _on_ctrl_d(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.text:
            buffer.delete()
        else:
            self._leave()

    def _on_edit(self, event: KeyPressEvent) -> None:
        event.app.create_background_task(self._edit_buffer())

    async def _edit_buffer(self) -> None:
        try:
            draft = EditorFile("message", ".md", self._buffer.text)
            async with in_terminal():
                text = draft.edit()
        except (AsterismError, KeyboardInterrupt) as error:
            if isinstance(error, AsterismError):
                self._screen.fail(error.message)
            return
        draft.discard()
        text = text.rstrip("\n")
        self._buffer.set_document(Document(text, len(text)), bypass_readonly=True)

    # -- what is drawn -----------------------------------------------------------------------------

    def _application(self) -> Application[None]:
        search = SearchToolbar()
        entry = Window(
            BufferControl(self._buffer, search_buffer_control=search.control, preview_search=True),
            get_line_prefix=self._prefix,
            wrap_lines=True,
            dont_extend_height=True,
        )
        parts = (self._live, self._status, self._queued)
        rows = [
            *(_text_window(part) for part in parts),
            entry,
            _text_window(self._choices),
            _text_window(self._hint),
            search,
        ]
        depth = None if self._coloured else ColorDepth.DEPTH_1_BIT
        return Application(
            Layout(HSplit(rows, align=VerticalAlign.TOP), focused_element=entry),
            key_bindings=self._keys(),
            style=_STYLE,
            color_depth=depth,
            input=create_input(),
            # Where the cursor is asked for, terminals that do not answer are waited for.
            output=Vt100_Output(
                sys.stdout, _terminal_size, term=os.environ.get("TERM"), enable_cpr=False
            ),
            enable_page_navigation_bindings=False,
        )

    def _prefix(self, line: int, wrapped: int) -> StyleAndTextTuples:
        mark, style = self._marks[0], "class:mark"
        if self._question:
            mark, style = self._question, "class:question"
        elif self._busy:
            mark, style = self._marks[1], "class:mark.busy"
        if line or wrapped:
            return [("", " " * len(mark))]
        return [(style, mark)]

    def _live(self) -> StyleAndTextTuples:
        size = self._app.output.get_size()
        below = self._buffer.document.line_count + _MAX_CHOICES
        text = self._screen.live(size.columns, max(3, size.rows - below))
        if text != self._drawn[0]:
            self._drawn = (text, to_formatted_text(ANSI(text)) if text else [])
        return self._drawn[1]

    def _status(self) -> StyleAndTextTuples:
        if not self._busy or self._question:
            return []
        spin = _SPINNER[int(time.monotonic() / (_TICK * _SPIN_EVERY)) % len(_SPINNER)]
        if self._marks[0] == "> ":
            spin = "*"
        seconds = int(time.monotonic() - self._began)
        doing = self._screen.doing or "working"
        return [("class:status", f"{spin} {doing} · {seconds} s · Ctrl-C stops")]

    def _queued(self) -> StyleAndTextTuples:
        if not self._busy:
            return []
        lines = list(self._lines)
        room = max(20, self._app.output.get_size().columns - 12)
        shown = [f"queued: {one_line(line, room)}" for line in lines[:_MAX_QUEUED_SHOWN]]
        if (more := len(lines) - len(shown)) > 0:
            shown.append(f"and {more} more")
        return [("class:queued", "\n".join(shown))] if shown else []

    def _hint(self) -> StyleAndTextTuples:
        armed = self._armed and not self._busy
        hint = "Ctrl-C again or Ctrl-D leaves; Up brings back what was typed."
        return [("class:status", hint)] if armed else []

    def _choices(self) -> StyleAndTextTuples:
        state = self._buffer.complete_state
        if state is None or self._question:
            return []
        index = state.complete_index or 0
        first = max(0, min(index - _MAX_CHOICES + 1, len(state.completions) - _MAX_CHOICES))
        shown = state.completions[first : first + _MAX_CHOICES]
        width = max((len(choice.display_text) for choice in shown), default=0)
        room = max(10, self._app.output.get_size().columns - width - 6)
        fragments: StyleAndTextTuples = []
        for place, choice in enumerate(shown, first):
            current = place == state.complete_index
            style = "class:choice.current" if current else "class:choice"
            end = "\n" if place < first + len(shown) - 1 else ""
            meta = one_line(choice.display_meta_text, room)
            fragments.append((style, f"  {choice.display_text:<{width}}"))
            fragments.append(("class:choice.meta", f"  {meta}{end}"))
        return fragments

    def _completes_by_itself(self) -> bool:
        text = self._buffer.document.text_before_cursor
        if self._question or "\n" in self._buffer.text:
            return False
        is_command = text.startswith("/") and not text.startswith("//") and " " not in text
        return is_command or text.rpartition(" ")[2].startswith("@")


def _terminal_size() -> Size:
    columns, rows = shutil.get_terminal_size()
    return Size(rows, columns)


def _text_window(text: Callable[[], StyleAndTextTuples]) -> ConditionalContainer:
    """Return a part of the screen that is there while it has something to say."""
    window = Window(FormattedTextControl(text), wrap_lines=False, dont_extend_height=True)
    return ConditionalContainer(window, Condition(lambda: bool(text())))


# -- history ---------------------------------------------------------------------------------------


class FileHistory(History):
    """What was entered in earlier chats, a line each, in a file that nobody else may read."""

    def __init__(self, path: Path) -> None:
        """Read it when it is first needed."""
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterator[str]:
        """Yield what was entered, the latest first."""
        for line in reversed(self._read()):
            yield line.replace(_LINE_BREAK, "\n")

    def store_string(self, string: str) -> None:
        """Add what was entered to the file; a disk that is full forgets it."""
        line = string.replace("\n", _LINE_BREAK)
        with contextlib.suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(file, "a", encoding="utf-8", errors="surrogateescape") as history:
                history.write(f"{line}\n")

    def trim(self) -> None:
        """Leave the latest lines in the file."""
        lines = self._read()
        if len(lines) > MAX_HISTORY:
            kept = "".join(f"{line}\n" for line in lines[-MAX_HISTORY:])
            with contextlib.suppress(OSError):
                self._path.write_text(kept, encoding="utf-8", errors="surrogateescape")

    def _read(self) -> list[str]:
        try:
            text = self._path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return []
        return [line for line in text.split("\n") if line]


# -- completion ------------------------------------------------------------------------------------


class _Completer(Completer):
    """Completes commands, names after `/agent`, `/group` and `@`, and paths after `/file`."""

    _TAKE_PATHS = re.compile(r"^/(?:file|image)\s+(\S*)$")
    _TAKE_AGENTS = re.compile(r"^/(?:agent|group)\s+(.*)$")
    _ATTACHED = re.compile(r"(?:^|\s)@(\S*)$")

    def __init__(
        self,
        commands: Mapping[str, str],
        agents: Callable[[], Sequence[str]],
        mentions: Callable[[], Sequence[str]],
    ) -> None:
        self._commands = commands
        self._agents = agents
        self._mentions = mentions
        self._paths = PathCompleter(expanduser=True)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield what may follow."""
        text = document.text_before_cursor
        if found := self._TAKE_AGENTS.match(text):
            yield from self._among(dict.fromkeys(self._agents(), ""), found[1])
        elif (found := self._ATTACHED.search(text)) and self._mentions():
            yield from self._among(dict.fromkeys(self._mentions(), ""), found[1])
        elif found := self._TAKE_PATHS.match(text) or self._ATTACHED.search(text):
            yield from self._paths.get_completions(Document(found[1]), complete_event)
        elif text.startswith("/") and " " not in text and "\n" not in text:
            yield from self._among(
                {f"/{name}": meaning for name, meaning in self._commands.items()}, text
            )

    def _among(self, words: Mapping[str, str], begun: str) -> Iterator[Completion]:
        for word, meaning in words.items():
            if word.casefold().startswith(begun.casefold()):
                yield Completion(word, -len(begun), display_meta=meaning)
