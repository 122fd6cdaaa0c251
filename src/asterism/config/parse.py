"""A TOML file: its values, the line of each key, and what is wrong with it in our words."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from asterism.errors import ConfigError
from asterism.private import TooLarge, read_regular

Key = tuple[str | int, ...]
"""Where a value stands: `("tools", "modules", 0)`."""

MAX_DEPTH = 32
MAX_KEY_PARTS = 16
"""The most parts of a key, joined by dots: what reading takes grows with their square."""
_MAX_BYTES = 1_000_000

_EXPLANATIONS = {
    "Cannot": "this was set before; keep only one",
    "Duplicate": "this was set before; keep only one",
    "Escaped character": "this is not a character; \\u needs four hex digits, such as \\u00e9",
    "Expected '='": 'a key needs "=" and a value, such as constellation = "home"',
    "Expected ']": 'a section ends with a bracket, such as "[store]"',
    "Expected newline": "only a comment may follow here; begin the next setting on its own line",
    "Found invalid character": "a comment holds a control character; remove it",
    "Illegal character": "a text is cut off by a line break or holds a control character; "
    "close it with a quote on the same line",
    "Invalid date": "there is no such date",
    "Invalid hex": "this is not a character; \\u needs four hex digits, such as \\u00e9",
    "Invalid initial": "a key is made of letters, digits, dashes and underscores",
    "Invalid statement": 'a line is a "[section]", a "key = value" or a "# comment"',
    "Invalid value": 'a value is missing or not one; text stands in quotes, such as "home"',
    "Unclosed array": 'a list is not closed; it ends with "]"',
    "Unclosed inline": 'a table is not closed; it ends with "}"',
    "Unescaped": "a backslash in double quotes is written twice; in single quotes once",
    "Unterminated": "a text is not closed; it ends with the quotes it began with",
}
"""What tomllib says (by its first words), and what a reader can do about it."""


def printable(text: str, most: int = 80) -> str:
    """Text that shows on one line of a terminal whatever it holds."""
    escaped = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in text[:most]
    )
    return escaped if len(text) <= most else f"{escaped}…"


def dotted(key: Key) -> str:
    """A key as it is written in TOML: `models."my.vendor".key`, with `[0]` for items."""
    parts = (
        f"[{part}]"
        if isinstance(part, int)
        else f".{part}"
        if re.fullmatch(r"[\w-]{1,80}", part, re.ASCII)
        else f'."{printable(part)}"'
        for part in key
    )
    return "".join(parts).removeprefix(".")


def refuse_depth(value: object, place: str) -> None:
    """Refuse what nests so deeply that comparing or merging it would exhaust the stack."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for node in level:
            if isinstance(node, dict):
                inner.extend(cast("dict[object, object]", node).values())
            elif isinstance(node, list | tuple):
                inner.extend(cast("list[object]", node))
        level = inner
        if not level:
            return
    raise ConfigError(
        f"{place}: values are nested deeper than {MAX_DEPTH} levels; use fewer levels."
    )


_TEXTS = re.compile(
    r'"""(?:[^"\\]|\\(?:.|\Z)|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'''(?:[^']|'(?!''))*+(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\(?:.|\Z))*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+",
    re.DOTALL,
)
"""Texts and comments. One that is not closed ends where a parser of TOML refuses it, or later."""
_BETWEEN_KEYS = re.compile(r"[^\w.\- \t]+")
_BRACKETS = re.compile(r"[\[\]{}]")


class TooDeep(ValueError):
    """A text is TOML that nests too deeply to be read."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML that anybody may have written; raise `ValueError` if that cannot be done.

    What would take memory or time beyond measure is refused before it is parsed.
    """
    _refuse_deep(_TEXTS.sub(_without_words, text))
    try:
        return tomllib.loads(text)
    except (RecursionError, MemoryError):
        raise TooDeep("is nested too deeply or too large; use fewer levels") from None


def count_values(text: str) -> int:
    """Return about how many keys and values TOML has, without parsing it."""
    bare = _TEXTS.sub(_without_words, text)
    return sum(map(bare.count, "=.,[{"))


def _refuse_deep(bare: str) -> None:
    for key in _BETWEEN_KEYS.split(bare):
        if (parts := key.count(".") + 1) > MAX_KEY_PARTS:
            line = bare.count("\n", 0, bare.index(key)) + 1
            raise TooDeep(
                f"line {line}: a key has {parts:,} parts joined by dots, and {MAX_KEY_PARTS} are "
                f"the most: no values are nested deeper than {MAX_DEPTH} levels"
            )
    depth = 0
    for bracket in _BRACKETS.finditer(bare):
        depth = depth + 1 if bracket[0] in "[{" else max(depth - 1, 0)
        if depth > MAX_DEPTH:
            line = bare.count("\n", 0, bracket.start()) + 1
            raise TooDeep(
                f"line {line}: values are nested too deeply; {MAX_DEPTH} levels are the most"
            )


def _without_words(text: re.Match[str]) -> str:
    """Return what stands for a text or a comment where only the structure matters."""
    return "" if text[0][0] == "#" else "q" + "\n" * text[0].count("\n")


@dataclass(frozen=True)
class ConfigDocument:
    """A parsed file that knows where each of its keys stands."""

    name: str
    text: str
    values: dict[str, Any]
    known_lines: dict[Key, int] | None = None

    @classmethod
    def read(cls, path: Path, *, must_exist: bool) -> ConfigDocument:
        """Read and parse a file; one that is missing is empty if it may be."""
        return cls.parse(path.name, read_text(path, must_exist=must_exist))

    @classmethod
    def parse(cls, name: str, text: str) -> ConfigDocument:
        """Parse the text of a file, which errors call by its name."""
        try:
            values = parse_toml(text)
        except TooDeep as error:
            raise ConfigError(f"{name} {error}.") from None
        except ValueError as error:
            raise ConfigError(f"{name} {_explain_toml(str(error), text)}") from None
        refuse_depth(values, name)
        return cls(name, text, values)

    @cached_property
    def _lines(self) -> dict[Key, int]:
        return key_lines(self.text) if self.known_lines is None else self.known_lines

    def line_of(self, key: Key) -> int:
        """The line that sets a key, or the innermost table around it."""
        return next(
            (self._lines[key[:end]] for end in range(len(key), 0, -1) if key[:end] in self._lines),
            1,
        )


def read_text(path: Path, *, must_exist: bool) -> str:
    """Return the text of a file; that of one that is missing is empty if it may be."""
    try:
        # An empty configuration is often given so, and this device ends at once.
        raw = b"" if str(path) == os.devnull else read_regular(path, _MAX_BYTES)
    except TooLarge:
        raise ConfigError(
            f"{path} is larger than {_MAX_BYTES:,} bytes, which is the limit for a configuration. "
            "Check the path."
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        if not must_exist and not path.is_symlink():
            return ""
        raise ConfigError(
            f"The configuration file {path} does not exist. "
            "Create it, or name another with --config or ASTERISM_CONFIG."
        ) from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path} is a directory; a TOML file is needed, such as {path / 'asterism.toml'}."
        ) from None
    except PermissionError:
        raise ConfigError(
            f'{path} is not readable for this user. Allow it, for example with "chmod u+r".'
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{printable(str(path))} cannot be read: {reason}.") from None
    try:
        # Windows editors put a byte order mark first, which TOML does not know.
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{path.name} line {line}: byte 0x{raw[error.start]:02x} is not UTF-8. "
            "Save the file as UTF-8."
        ) from None


def _explain_toml(problem: str, text: str) -> str:
    match = re.fullmatch(
        r"(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)",
        problem,
        re.DOTALL,
    )
    if not match:  # the one error of tomllib without a place comes from int()
        return "holds a number with too many digits; shorten it."
    what, line, column = match["what"], match["line"], match["column"]
    words = next((words for start, words in _EXPLANATIONS.items() if what.startswith(start)), what)
    place = f"line {line}, column {column}" if line else f"line {text.count(chr(10)) + 1}, its end"
    return f"{place}: this is not valid TOML: {printable(words, 200)}."


_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|(?P<skip>\#[^\n]*|[ \t]+)"
    r"|[\w-]+"
    r"|.",
    re.DOTALL,
)


def key_lines(text: str) -> dict[Key, int]:
    """The line of each key and list item in a text that is known to be valid TOML."""
    return _KeyScanner(text).lines


class _KeyScanner:
    """One pass over the tokens. It trusts the text, so it only needs to see where things end."""

    def __init__(self, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self._items: dict[Key, int] = {}  # how many [[tables]] a list has so far
        self._tokens: list[tuple[str, int]] = []
        self._next = 0
        line = 1
        for match in _TOKEN.finditer(text.replace("\r\n", "\n")):
            if not match["skip"]:
                self._tokens.append((match[0], line))
            line += match[0].count("\n")
        self._document()

    @property
    def _here(self) -> str:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else ""

    @property
    def _line(self) -> int:
        return self._tokens[self._next][1]

    def _skip(self, *tokens: str) -> None:
        while self._here and self._here in tokens:
            self._next += 1

    def _document(self) -> None:
        table: Key = ()
        self._skip("\n")
        while self._here:
            if self._here == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip("\n")

    def _header(self) -> Key:
        line = self._line
        opening = self._next
        self._skip("[")
        is_item = self._next - opening == 2
        *outer, last = self._key()
        self._skip("]")
        table: Key = ()
        for part in outer:
            table = (*table, part)
            self.lines.setdefault(table, line)
            if table in self._items:
                table = (*table, self._items[table] - 1)
        table = (*table, last)
        if is_item:
            self.lines.setdefault(table, line)
            self._items[table] = self._items.get(table, 0) + 1
            table = (*table, self._items[table] - 1)
        self.lines[table] = line
        return table

    def _key(self) -> list[str]:
        parts: list[str] = []
        while True:
            token = self._here
            parts.append(tomllib.loads(f"k={token}")["k"] if token[0] in "\"'" else token)
            self._next += 1
            if self._here != ".":
                return parts
            self._next += 1

    def _pair(self, table: Key) -> None:
        line = self._line
        for part in self._key():
            table = (*table, part)
            self.lines.setdefault(table, line)
        self._next += 1  # the equals sign
        self._value(table)

    def _value(self, key: Key) -> None:
        opening = self._here
        if opening not in {"[", "{"}:
            while self._here not in {"", "\n", ",", "]", "}"}:
                self._next += 1
            return
        closing = "]" if opening == "[" else "}"
        self._next += 1
        self._skip("\n")
        item = 0
        while self._here != closing:
            if opening == "[":
                self.lines[*key, item] = self._line
                self._value((*key, item))
                item += 1
            else:
                self._pair(key)
            self._skip(",", "\n")
        self._next += 1


def read_yaml(path: Path) -> ConfigDocument:
    """Read a YAML file; raise `ConfigError` with the line if it cannot be used."""
    from importlib import import_module

    yaml: Any = import_module("yaml")
    text = read_text(path, must_exist=True)
    try:
        depth = 0
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                # A few of them can stand for more than memory holds.
                raise ConfigError(
                    f"{path.name} uses an alias (*name); write the values out instead."
                )
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1
                raise ConfigError(
                    f"{path.name} line {line}: values are nested deeper than {MAX_DEPTH} levels; "
                    "use fewer levels."
                )
        node: Any = yaml.compose(text, yaml.SafeLoader)
        values: Any = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = printable(str(getattr(error, "problem", None) or "it cannot be read"), 200)
        raise ConfigError(f"{path.name} line {line}: this is not valid YAML: {problem}.") from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise ConfigError(f"{path.name} is not valid YAML: {printable(str(error), 200)}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path.name}: names with values are needed, such as policy: [].")
    table = cast("dict[str, Any]", values)
    refuse_depth(table, path.name)
    lines: dict[Key, int] = {}
    if node is not None:
        _note_lines(node, (), lines)
    return ConfigDocument(path.name, text, table, lines)


def _note_lines(node: Any, key: Key, lines: dict[Key, int]) -> None:
    lines.setdefault(key, node.start_mark.line + 1)
    if node.id == "mapping":
        for name, inner in node.value:
            within = (*key, str(name.value))
            lines[within] = name.start_mark.line + 1
            _note_lines(inner, within, lines)
    elif node.id == "sequence":
        for number, inner in enumerate(node.value):
            _note_lines(inner, (*key, number), lines)
