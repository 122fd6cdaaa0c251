"""Make the transcripts and pictures of the documentation from real runs at a real terminal.

    python -m bench.transcripts             write those that need no weights
    python -m bench.transcripts --embedded  write those with the embedded model too
    python -m bench.transcripts --check     compare instead of writing, and fail where they differ

A page marks the block that a scene fills: `<!-- transcript: crash -->` before a fenced block. Ids,
times, process numbers and paths change from run to run, so that they are not compared.
"""

import argparse
import contextlib
import difflib
import html
import io
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import apsw
import pexpect
import pyte
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "images"
COLUMNS, ROWS = 96, 400
"""So high that nothing scrolls away."""
PATIENCE = 60.0
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(
    r"(?P<mark><!-- transcript: (?P<name>[\w-]+) -->\n+```text\n)(?P<text>.*?)(?P<end>\n```)",
    re.DOTALL,
)
CHANGING = [
    # A chat greets with this notice if it is written by then; the turn is resumed at the same time.
    (re.compile(r"! The outcome of .*?\(turn turn_\w+\)\. "), ""),
    (re.compile(r"\b(turn|ap|msg|sch|tomb|block|agent)_[0-9a-f]{24}\b"), r"\1_ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?"), "TIME"),
    (re.compile(r"\b\d\d:\d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? m?s\b"), "SECONDS"),
    (re.compile(r"\b\d[\d,]* tokens\b"), "N tokens"),
    (re.compile(r"\b[\d,]+ in \([\d,]+ cached\), [\d,]+ out\b"), "TOKENS"),
    (re.compile(r"(kill -9|[Pp]rocess) \d+"), r"\1 PID"),
    (re.compile(r"/\S*asterism-tour-\w+"), "PLACE"),
    (re.compile(r"\b[0-9A-F]{4}-[0-9A-F]{4}\b"), "CANARY"),
    (re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]"), "⠋"),
]
# Readable on a light and on a dark page, since it brings its own background.
THEME = TerminalTheme(
    (24, 26, 31),
    (220, 223, 228),
    [(24, 26, 31), (224, 108, 117), (152, 195, 121), (229, 192, 123), (97, 175, 239),
     (198, 120, 221), (86, 182, 194), (220, 223, 228)],
    [(140, 148, 160), (224, 108, 117), (152, 195, 121), (229, 192, 123), (97, 175, 239),
     (198, 120, 221), (86, 182, 194), (255, 255, 255)],
)  # fmt: skip
# Fonts of the reader's machine, so that a page that shows the picture fetches nothing.
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "Fira Code", "DejaVu Sans Mono", Menlo, Consolas, monospace;
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


class Shell:
    """A person at a shell in a terminal, whose screen can be read."""

    def __init__(self, home: Path, *, columns: int = COLUMNS) -> None:
        self.home = home
        self.screen = pyte.Screen(columns, ROWS)
        self._stream = pyte.Stream(self.screen)
        self._process: Any = pexpect.spawn(
            "bash",
            ["--norc", "--noprofile", "-i"],
            env=_environment(home),
            dimensions=(ROWS, columns),
            encoding="utf-8",
            cwd=str(home),
            timeout=PATIENCE,
        )
        self.at_prompt("$", 1)
        self.press("\x0c")  # an empty screen, with the prompt in its first line

    def text(self) -> str:
        """All that is on the screen."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def type(self, text: str) -> None:
        """Type a line."""
        self._process.send(f"{text}\r")

    def press(self, key: str) -> None:
        """Press a key."""
        self._process.send(key)

    def wait(self, holds: Callable[[], bool]) -> None:
        """Wait until the screen is as it should be."""
        until = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > until:
                raise TimeoutError(self.text())
            try:
                self._stream.feed(self._process.read_nonblocking(65536, timeout=0.05))
            except pexpect.TIMEOUT:
                continue

    def at_prompt(self, prompt: str, number: int) -> None:
        """Wait until a prompt stands in the last line, as the so-many-th."""

        def holds() -> bool:
            lines = self.text().splitlines()
            prompts = [line for line in lines if line.startswith(prompt)]
            return bool(lines) and lines[-1] == prompt and len(prompts) >= number

        self.wait(holds)

    def shows(self, text: str, times: int = 1) -> None:
        """Wait until a text is on the screen so many times."""
        self.wait(lambda: self.text().count(text) >= times)

    def turn_at_work(self) -> str:
        """Wait until the journal says that a call has begun, and return the id of its turn."""
        until = time.monotonic() + PATIENCE
        flags = apsw.SQLITE_OPEN_READONLY
        while time.monotonic() < until:
            opened: Any = apsw.Connection(str(self.home / "asterism.db"), flags=flags)
            with contextlib.closing(opened) as database:
                found = database.execute("SELECT turn_id FROM entries WHERE kind = 'begun'")
                for (turn_id,) in found:
                    return str(turn_id)
            time.sleep(0.02)
        raise TimeoutError(self.text())

    def kill_child(self) -> None:
        """Kill the command that runs in the foreground, as a power failure would."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        os.kill(int(children.split()[-1]), signal.SIGKILL)

    def close(self) -> None:
        """Leave."""
        self._process.close(force=True)


def _environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name[:9] != "ASTERISM_"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    return kept | {
        "PATH": path,
        "PS1": "$ ",
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        "TMPDIR": "/tmp",
        "ASTERISM_DATA": str(home),
        "ASTERISM_SERVERS": "none",
        "ASTERISM_NONINTERACTIVE": "1",
        "BASH_SILENCE_DEPRECATION_WARNING": "1",
    }


@contextlib.contextmanager
def shell(configuration: str = "") -> Generator[Shell, None, None]:
    """Give a shell with a new home."""
    with tempfile.TemporaryDirectory(prefix="asterism-") as folder:
        home = Path(folder)
        home.chmod(0o700)
        if configuration:
            (home / "asterism.toml").write_text(configuration)
        person = Shell(home)
        try:
            yield person
        finally:
            person.close()


@dataclass(frozen=True)
class Recorded:
    """What a scene left on the screen."""

    text: str
    lines: list[Text] = field(repr=False)


def recorded(screen: pyte.Screen, first: str = "", last: str = "") -> Recorded:
    """Return the screen from a line that begins with `first` to the one before `last`."""
    shown = [line.rstrip() for line in screen.display]
    start = next((n for n, line in enumerate(shown) if line.startswith(first)), 0)
    end = max((n for n, line in enumerate(shown) if line), default=0) + 1
    if last:
        end = next(n for n, line in enumerate(shown) if n > start and line.startswith(last))
    while end > start and not shown[end - 1].strip("$› "):
        end -= 1
    lines = [_styled(screen, number) for number in range(start, end)]
    return Recorded("\n".join(shown[start:end]), lines)


def _styled(screen: pyte.Screen, number: int) -> Text:
    text, row = Text(), screen.buffer[number]
    chars = [row[column] for column in range(len(screen.display[number].rstrip()))]
    shown = "".join(char.data for char in chars)
    indent = len(shown) - len(shown.lstrip())
    # As a run of its own, since some viewers drop spaces at the beginning of a run.
    text.append(shown[:indent], Style(blink=True))
    for style, run in groupby(chars[indent:], _style):
        text.append("".join(char.data for char in run), style)
    return text


def _style(char: pyte.screens.Char) -> Style:
    names = {"brown": "yellow", "brightbrown": "bright_yellow", "default": None}
    colour = names.get(char.fg, re.sub(r"^bright(?=[a-z])", "bright_", char.fg))
    if colour is not None and re.fullmatch(r"[0-9a-f]{6}", colour):
        colour = f"#{colour}"
    return Style(color=colour, bold=char.bold, italic=char.italics, underline=char.underscore)


# -- scenes --------------------------------------------------------------------------------------


def crash() -> Recorded:
    """The bell of the README rings when the process is killed."""
    readme = (ROOT / "README.md").read_text("utf-8")
    tool = re.search(r"```python\n(.*?async def ring_bell.*?)```", readme, re.DOTALL)
    assert tool is not None
    with shell('model = "demo:guide"\n[tools]\nmodules = ["tools.py"]\n') as person:
        (person.home / "tools.py").write_text(tool[1])
        person.type("asterism")
        person.at_prompt("›", 1)
        person.type('call ring_bell {"times": 2}')
        person.shows("· ring_bell")
        turn = person.turn_at_work()
        person.kill_child()
        person.shows("Killed")
        person.type("asterism")
        person.shows("Outcome unknown")
        person.at_prompt("›", 3)
        person.press("\x04")
        person.at_prompt("$", 3)
        person.type(f"asterism turn show {turn}")
        person.at_prompt("$", 4)
        return recorded(person.screen, "$ asterism")


def tour() -> Recorded:
    """The steps of the tour that show a crash and an attack."""
    with shell() as person:
        person.type("asterism tour --no-pause")
        person.shows("Next:")
        return recorded(person.screen, "2/5", "4/5")


def first_chat() -> Recorded:
    """A fact is kept, and where it comes from is shown."""
    with shell('model = "demo:guide"\n') as person:
        person.type("asterism")
        person.at_prompt("›", 1)
        person.type("Remember that my cat is called Miso.")
        person.shows("/undo")
        person.at_prompt("›", 2)
        person.type("/why")
        person.at_prompt("›", 3)
        person.press("\x04")
        person.at_prompt("$", 2)
        return recorded(person.screen, "$ asterism")


def conversation() -> Recorded:
    """The embedded model answers what people ask first."""
    from asterism.config.vendors import weights_here

    model = weights_here(os.environ)[0]
    questions = [
        "My name is Lena. What is 17 * 23?",
        "Remind me in 20 minutes to water the plants.",
        "actually make that 30 minutes",
        "what is my name?",
    ]
    with shell(f'model = "embedded:{model}"\n') as person:
        person.type("asterism")
        person.at_prompt("›", 1)
        for number, question in enumerate(questions, 2):
            person.type(question)
            person.at_prompt("›", number)
        return recorded(person.screen, "aster")


SCENES: dict[str, Callable[[], Recorded]] = {"crash": crash, "tour": tour, "first-chat": first_chat}
PICTURED = ("tour", "first-chat")
WITH_WEIGHTS: dict[str, Callable[[], Recorded]] = {"conversation": conversation}


# -- pages and pictures --------------------------------------------------------------------------


def picture(recording: Recorded, title: str) -> str:
    """Return a screen as SVG."""
    width = max(line.cell_len for line in recording.lines)
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True)
    for line in recording.lines:
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    return console.export_svg(title=title, theme=THEME, code_format=SVG, unique_id="terminal")


def stable(text: str) -> list[str]:
    """Return the words of a text without what changes from run to run, such as line breaks.

    A longer process number moves them.
    """
    text = " ".join(text.split())
    for pattern, words in CHANGING:
        text = pattern.sub(words, text)
    return text.split()


def words_of(picture: str) -> list[str]:
    """Return what can be read in a picture, line by line."""
    lines: dict[float, str] = {}
    for place, text in re.findall(r'<text [^>]*?y="([\d.]+)"[^>]*>(.*?)</text>', picture):
        lines[float(place)] = lines.get(float(place), "") + html.unescape(text)
    return stable("\n".join(line.replace("\xa0", " ") for _, line in sorted(lines.items())))


def apply(name: str, recording: Recorded, *, check: bool) -> list[str]:
    """Put a recording into the pages and its picture; return how they differ from it."""
    found: list[str] = []
    for page in PAGES:
        before = page.read_text("utf-8")

        def put(match: re.Match[str], page: Path = page) -> str:
            if match["name"] != name:
                return match[0]
            old, new = stable(match["text"]), stable(recording.text)
            if old != new:
                found.extend(_difference(str(page.relative_to(ROOT)), old, new))
                return f"{match['mark']}{recording.text}{match['end']}"
            return match[0]

        after = BLOCK.sub(put, before)
        if not check and after != before:
            page.write_text(after, "utf-8")
    file = PICTURES / f"{name}.svg"
    if name in PICTURED:
        new = picture(recording, "asterism")
        old = file.read_text("utf-8") if file.exists() else ""
        if words_of(old) != words_of(new):
            found.extend(_difference(file.name, words_of(old), words_of(new)))
            if not check:
                file.parent.mkdir(exist_ok=True)
                file.write_text(new, "utf-8")
    return found


def _difference(name: str, old: list[str], new: list[str]) -> list[str]:
    return list(difflib.unified_diff(old, new, name, f"{name} now", lineterm="", n=1))


def main() -> int:
    """Make or check what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("scenes", nargs="*", help=f"of {', '.join({**SCENES, **WITH_WEIGHTS})}")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("--embedded", action="store_true", help="also those with weights")
    wanted = parser.parse_args()
    scenes = SCENES | (WITH_WEIGHTS if wanted.embedded else {})
    differs = False
    for name in wanted.scenes or scenes:
        found = apply(name, (SCENES | WITH_WEIGHTS)[name](), check=wanted.check)
        differs |= bool(found)
        print(
            f"{name}: {'differs' if wanted.check else 'written'}" if found else f"{name}: the same"
        )
        print("\n".join(found))
    return 1 if differs and wanted.check else 0


if __name__ == "__main__":
    sys.exit(main())
