"""Builders: a form at the terminal in which a new agent or group is put together.

Arrow keys move and choose, what is wrong is said below its field, and the command that would do
the same is shown at the end. Nothing is created before the form is done.
"""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from asterism.cli.output import Result, console, printable
from asterism.cli.terminal import may_ask
from asterism.errors import AsterismError, InvalidInput, StoreMissing
from asterism.records import dataclass

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.key_binding import KeyBindings

    from asterism.cli.commands import Options

Check = Callable[[str], object]
"""Raises an `AsterismError` for a text that cannot be taken."""
Fragments = list[tuple[str, str]]
CANCELLED = Result(None, "Cancelled. Nothing was created.", code=130)
_MAX_SHOWN = 8
"""So many entries of a long list are shown at a time."""
_HELP = "↑↓ move   ←→ choose   Space marks   Enter goes on   Esc cancels"


@dataclass(slots=True)
class TextField:
    """A line of text."""

    name: str
    hint: str = ""
    """What stands there while it is empty."""
    check: Check = str
    text: str = ""
    cursor: int = 0
    shown: Callable[[], bool] = lambda: True
    """Whether the field is needed, by what the others say."""

    def insert(self, text: str) -> None:
        """Put text where the cursor is."""
        clean = "".join(sign for sign in text if sign.isprintable())
        self.text = self.text[: self.cursor] + clean + self.text[self.cursor :]
        self.cursor += len(clean)

    def problem(self) -> str:
        """Return what is wrong with it; empty if nothing is."""
        try:
            self.check(self.text.strip())
        except AsterismError as error:
            return error.reason
        return ""


@dataclass(slots=True)
class ChoiceField:
    """One of some words."""

    name: str
    choices: Callable[[], Sequence[str]]
    notes: Callable[[str], str] = lambda _: ""
    """Says what a choice means."""
    place: int = 0
    shown: Callable[[], bool] = lambda: True

    @property
    def value(self) -> str:
        """What is chosen; empty if there is nothing to choose from."""
        choices = self.choices()
        return choices[self.place % len(choices)] if choices else ""

    def problem(self) -> str:
        """Return what is wrong with it; empty if nothing is."""
        return "" if self.choices() else "there is nothing to choose from yet"


@dataclass(slots=True)
class MarkField:
    """Some of many, in the order in which they were marked."""

    name: str
    entries: Sequence[str]
    none: str = "none"
    """What it means that none is marked."""
    least: int = 0
    marked: list[str] = field(default_factory=list[str])
    place: int = 0
    shown: Callable[[], bool] = lambda: True

    def toggle(self) -> None:
        """Mark the entry at the cursor, or take its mark away."""
        if not self.entries:
            return
        entry = self.entries[self.place]
        if entry in self.marked:
            self.marked.remove(entry)
        else:
            self.marked.append(entry)

    def problem(self) -> str:
        """Return what is wrong with it; empty if nothing is."""
        if len(self.marked) >= self.least:
            return ""
        return f"mark at least {self.least} with Space"


Field = TextField | ChoiceField | MarkField


class Form:
    """A form: what the keys do to it, and what it looks like."""

    def __init__(
        self, title: str, fields: Sequence[Field], preview: Callable[[], list[str]]
    ) -> None:
        """Make a form; `preview` returns the arguments of the command that would do the same."""
        self.title = title
        self.fields = list(fields)
        self.preview = preview
        self.at = 0
        """Which of the visible fields has the cursor; one more than there are: the button."""
        self.tried = False
        """Whether somebody tried to be done with it: then all that is wrong is shown."""

    @property
    def visible(self) -> list[Field]:
        """The fields that are needed."""
        return [entry for entry in self.fields if entry.shown()]

    @property
    def current(self) -> Field | None:
        """The field with the cursor; None: the button has it."""
        return self.visible[self.at] if self.at < len(self.visible) else None

    def move(self, by: int) -> None:
        """Go to another field."""
        self.at = min(max(0, self.at + by), len(self.visible))

    def vertical(self, by: int) -> None:
        """Go up or down, within a list of marks first."""
        current = self.current
        if isinstance(current, MarkField) and 0 <= current.place + by < len(current.entries):
            current.place += by
        else:
            self.move(by)

    def horizontal(self, by: int) -> None:
        """Choose another word, or move in a text."""
        current = self.current
        if isinstance(current, ChoiceField) and current.choices():
            current.place = (current.place + by) % len(current.choices())
        elif isinstance(current, TextField):
            current.cursor = min(max(0, current.cursor + by), len(current.text))

    def typed(self, text: str) -> None:
        """Take what was typed or pasted."""
        current = self.current
        if isinstance(current, TextField):
            current.insert(text)
        elif isinstance(current, MarkField) and text == " ":
            current.toggle()
        elif isinstance(current, ChoiceField) and text == " ":
            self.horizontal(1)

    def erase(self, *, before: bool) -> None:
        """Remove the character before the cursor, or the one at it."""
        current = self.current
        if not isinstance(current, TextField):
            return
        at = current.cursor - 1 if before else current.cursor
        if 0 <= at < len(current.text):
            current.text = current.text[:at] + current.text[at + 1 :]
            current.cursor = at

    def enter(self) -> bool:
        """Go on to the next field; at the button, tell whether the form is done."""
        if self.current is not None:
            if not self.current.problem():
                self.move(1)
            else:
                self.tried = True
            return False
        self.tried = True
        wrong = next((at for at, entry in enumerate(self.visible) if entry.problem()), None)
        if wrong is not None:
            self.at = wrong
            return False
        return True

    # -- looks -----------------------------------------------------------------------------------

    def render(self) -> Fragments:
        """Return what the form looks like now."""
        self.at = min(self.at, len(self.visible))
        width = console().width
        shown: Fragments = [("bold", self.title), ("class:dim", f"\n{_wrapped(_HELP, width)}\n\n")]
        wide = max(len(entry.name) for entry in self.fields)
        for at, entry in enumerate(self.visible):
            here = at == self.at
            shown.append(("class:here" if here else "", f"{'›' if here else ' '} "))
            shown.append(("bold" if here else "", f"{entry.name:<{wide}}  "))
            shown += self._value(entry, wide, here=here)
            problem = entry.problem()
            if problem and (self.tried or (isinstance(entry, TextField) and entry.text)):
                shown.append(("class:wrong", f"\n{_wrapped(problem, width, wide + 4)}"))
            shown.append(("", "\n"))
        on_button = self.current is None
        shown.append(("reverse" if on_button else "", f"\n{'›' if on_button else ' '} Create "))
        command = _wrapped(printable(shlex.join(self.preview())), width)
        shown.append(("class:dim", f"\n\nThe same as a command:\n{command}\n"))
        return shown

    def _value(self, entry: Field, wide: int, *, here: bool) -> Fragments:
        if isinstance(entry, TextField):
            return _text_fragments(entry, here=here)
        if isinstance(entry, ChoiceField):
            value = entry.value or "nothing to choose from"
            chosen: Fragments = [("", f"‹ {value} ›" if here else f"  {value}  ")]
            note = entry.notes(value)
            fits = wide + len(value) + len(note) + 10 <= console().width
            return [*chosen, ("class:dim", f"  {note}" if fits else "")]
        if not here:
            return [("" if entry.marked else "class:dim", ", ".join(entry.marked) or entry.none)]
        return _mark_fragments(entry, wide)


def _wrapped(text: str, width: int, indent: int = 0) -> str:
    """Return a text broken at words."""
    before = " " * indent
    return textwrap.fill(
        text,
        max(20, width - 1),
        initial_indent=before,
        subsequent_indent=before,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _text_fragments(entry: TextField, *, here: bool) -> Fragments:
    text = printable(entry.text)
    if not here:
        return [("", text)] if text else [("class:dim", entry.hint)]
    at = entry.cursor
    under = text[at : at + 1] or " "
    hint: Fragments = [("class:dim", f" {entry.hint}")] if not text and entry.hint else []
    return [("", text[:at]), ("reverse", under), ("", text[at + 1 :]), *hint]


def _mark_fragments(entry: MarkField, wide: int) -> Fragments:
    """Return the part of a list of marks around the cursor."""
    if not entry.entries:
        return [("class:dim", "nothing to choose from yet")]
    first = min(max(0, entry.place - _MAX_SHOWN // 2), max(0, len(entry.entries) - _MAX_SHOWN))
    shown: Fragments = [("class:dim", f"{len(entry.marked)} of {len(entry.entries)}")]
    for place in range(first, min(first + _MAX_SHOWN, len(entry.entries))):
        name = entry.entries[place]
        mark = "[x]" if name in entry.marked else "[ ]"
        style = "reverse" if place == entry.place else ""
        shown += [("", f"\n  {' ' * wide}  "), (style, f"{mark} {printable(name)}")]
    return shown


# -- keys ------------------------------------------------------------------------------------------


def may_build(options: Options) -> bool:
    """Tell whether there is a person at a terminal that can show a form."""
    return may_ask(yes=options.json) and os.environ.get("TERM", "dumb") != "dumb"


async def fill_in(form: Form) -> bool:
    """Let a person fill in a form; False if they cancel. Nothing of it stays on the screen."""
    return bool(await _application(form).run_async())


def _application(form: Form) -> Application[bool]:
    from prompt_toolkit.application import Application
    from prompt_toolkit.formatted_text import FormattedText
    from prompt_toolkit.layout import HSplit, Layout, Window
    from prompt_toolkit.layout.controls import FormattedTextControl
    from prompt_toolkit.styles import Style

    control = FormattedTextControl(
        lambda: FormattedText(form.render()), focusable=True, show_cursor=False
    )
    style = Style.from_dict(
        {"dim": "ansibrightblack", "here": "ansicyan bold", "wrong": "ansiyellow"}
    )
    return Application(
        layout=Layout(HSplit([Window(control, wrap_lines=True, dont_extend_height=True)])),
        key_bindings=_keys(form),
        style=style,
        erase_when_done=True,
        mouse_support=False,
    )


def _keys(form: Form) -> KeyBindings:
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys

    bindings = KeyBindings()

    def bind(*keys: str) -> Callable[[Callable[[Any], None]], None]:
        def add(function: Callable[[Any], None]) -> None:
            for key in keys:
                bindings.add(key, eager=key == "escape")(function)

        return add

    bind("up", "c-p")(lambda _: form.vertical(-1))
    bind("down", "c-n")(lambda _: form.vertical(1))
    bind("tab")(lambda _: form.move(1))
    bind("s-tab")(lambda _: form.move(-1))
    bind("left")(lambda _: form.horizontal(-1))
    bind("right")(lambda _: form.horizontal(1))
    bind("backspace")(lambda _: form.erase(before=True))
    bind("delete")(lambda _: form.erase(before=False))
    bind(Keys.Any, Keys.BracketedPaste)(lambda event: form.typed(event.data))
    bind("escape", "c-c", "c-d")(lambda event: event.app.exit(result=False))

    @bind("enter")
    def _(event: Any) -> None:
        if form.enter():
            event.app.exit(result=True)

    return bindings


# -- what there is to choose from ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Known:
    """What a home has when a form is opened."""

    tools: tuple[str, ...]
    agents: tuple[str, ...]
    groups: tuple[str, ...]
    patterns: tuple[str, ...]


async def known_in(options: Options) -> Known:
    """Return what there is to choose from, without making anything where there is nothing yet."""
    from asterism import plugins
    from asterism.cli.commands import open_home

    try:
        async with open_home(options, readonly=True) as home:
            offered = await home.tools.offered()
            return Known(
                tuple(sorted(str(tool["name"]) for tool in offered)),
                tuple(agent.name for agent in await home.agents.list()),
                tuple(group.name for group in await home.groups.list()),
                tuple(plugins.names("patterns")),
            )
    except StoreMissing:
        loaded = [plugins.load("tools", name) for name in plugins.names("tools")]
        tools = sorted({str(tool.name) for found in loaded for tool in found})
        return Known(tuple(tools), (), (), tuple(plugins.names("patterns")))


def free_name(known: Known) -> Check:
    """Return a check for a name that neither an agent nor a group has."""
    from asterism.app.session import checked_agent_name

    def check(name: str) -> None:
        if not name:
            raise InvalidInput("A name is needed, such as aria.")
        checked_agent_name(name)
        for kind, names in (("an agent", known.agents), ("a group", known.groups)):
            if name in names:
                raise InvalidInput(f"There is {kind} named {name!r} already. Choose another name.")

    return check
