"""Regular expressions that people, models and configuration hand in, matched in linear time.

They are those of RE2: no look-ahead, no look-behind, no references back to a group, and counted
repeats up to 1,000. Whatever the expression and the text, a match takes a few tens of milliseconds
and a few megabytes at most: what might take more is refused before it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

MAX_PATTERN = 1_000
"""Characters of an expression."""
MAX_GROUPS = 99
MAX_WORK = 6_000_000
"""Parts of an expression times bytes of a text: about 25 ms in the worst case, measured."""
_MAX_MEMORY = 1 << 17
"""Bytes of a compiled expression: about 10,000 parts, and 30 ms to compile at worst, measured."""
_MAX_CHARACTER = 4
"""Bytes of a character in UTF-8."""
_SUPPORTED = (
    "look-ahead, look-behind, references back to a group and repeats above 1,000 are not supported"
)

# RE2 has another name for the end of the text, and another form for the number of a character.
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|(.))", re.DOTALL)
_IN_TEMPLATE = re.compile(r"\\(?:([1-9][0-9]?)|g<(\w{1,64})>|(.)|\Z)", re.DOTALL)
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\"}


class InvalidPattern(ValueError):
    """An expression or a replacement cannot be used; the message says why."""


class TooMuchWork(Exception):
    """A text is too long for an expression."""


class RegularExpression:
    """A compiled expression."""

    __slots__ = ("_compiled", "size")

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.size: int = compiled.programsize * (50 + compiled.groups) // 50
        """How much work it is for each byte of a text, in the parts that it consists of."""

    def search(self, text: str) -> bool:
        """Tell whether it matches anywhere in a text; may raise `TooMuchWork`."""
        return self._compiled.search(self._bytes(text)) is not None

    def matches(self, text: str) -> bool:
        """Tell whether it matches the whole of a text; may raise `TooMuchWork`."""
        return self._compiled.fullmatch(self._bytes(text)) is not None

    def replace_first(self, text: str, template: str, most: int) -> str | None:
        r"""Return the text with the first match replaced; None where nothing matches.

        Args:
            text: The text.
            template: What comes in its place, with groups as `\1` or `\g<name>`.
            most: How many characters may be made; `InvalidPattern` is raised before far more are.
        """
        pieces = self._read_template(template)
        encoded = self._bytes(text)
        found = self._compiled.search(encoded)
        if found is None:
            return None
        sizes = [
            len(piece) if isinstance(piece, bytes) else found.end(piece) - found.start(piece)
            for piece in pieces
        ]
        size = len(encoded) - (found.end() - found.start()) + sum(sizes)
        if size > most * _MAX_CHARACTER:
            raise InvalidPattern(
                f"it would make {size:,} bytes of text, too long for {most:,} characters"
            )
        made = (piece if isinstance(piece, bytes) else found[piece] or b"" for piece in pieces)
        return b"".join([encoded[: found.start()], *made, encoded[found.end() :]]).decode()

    def work(self, text: str) -> int:
        """Return how much work it is at most to match a text; `MAX_WORK` is what is done."""
        return self.size * (len(text) if text.isascii() else _MAX_CHARACTER * len(text))

    def _bytes(self, text: str) -> bytes:
        encoded = text.encode(errors="surrogatepass")
        if self.size * len(encoded) > MAX_WORK:
            raise TooMuchWork
        return encoded

    def _read_template(self, template: str) -> list[bytes | int]:
        """Return the literal texts of a replacement and the groups between them."""
        names: dict[str, int] = self._compiled.groupindex
        pieces: list[bytes | int] = []
        behind = 0
        for escape in _IN_TEMPLATE.finditer(template):
            pieces.append(template[behind : escape.start()].encode())
            behind = escape.end()
            number, name, character = escape.groups()
            if number or name:
                group = int(number) if number else names.get(name, -1)
                if name and group < 0 and name.isdecimal():
                    group = int(name)
                if not 0 <= group <= self._compiled.groups:
                    raise InvalidPattern(f"it has no group {number or name}")
                pieces.append(group)
            elif character in _CONTROL:
                pieces.append(_CONTROL[character].encode())
            else:
                raise InvalidPattern(
                    f"{escape[0]!r} means nothing in a replacement; a backslash is written twice"
                )
        return [piece for piece in [*pieces, template[behind:].encode()] if piece != b""]


def compile_pattern(expression: str, flags: str = "", *, groups: bool = False) -> RegularExpression:
    """Compile an expression, or raise `InvalidPattern`.

    Args:
        expression: What somebody handed in.
        flags: Some of `i` (ignore case), `m` (`^` and `$` match at lines) and `s` (`.` matches
            the end of a line, too).
        groups: Whether the matches of its groups are needed, for a replacement.
    """
    check_length(expression)
    return _compile(expression, flags, groups=groups)


def compile_glob(pieces: Iterable[str], wildcards: Mapping[str, str]) -> RegularExpression:
    """Compile a glob that was taken apart: wildcards stand for expressions, texts for themselves.

    Raises `InvalidPattern` for a glob that is too long.
    """
    parts = list(pieces)
    check_length("".join(parts))
    expression = "".join(wildcards.get(part) or re.escape(part) for part in parts)
    return _compile(expression, "s", groups=False)


def check_length(pattern: str) -> None:
    """Raise `InvalidPattern` where a pattern is too long."""
    if len(pattern) > MAX_PATTERN:
        raise InvalidPattern(f"it has {len(pattern):,} characters; the most is {MAX_PATTERN:,}")


# A compiled expression takes up to `_MAX_MEMORY`, so few are kept.
@lru_cache(maxsize=32)
def _compile(expression: str, flags: str, *, groups: bool) -> RegularExpression:
    import re2  # pyright: ignore[reportMissingTypeStubs] - it has none

    library: Any = re2
    options = library.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    options.never_capture = not groups
    prefix = f"(?{flags})" if flags else ""
    try:
        compiled = library.compile(prefix + _ESCAPE.sub(_rewrite, expression), options)
    except UnicodeEncodeError:
        raise InvalidPattern("it holds half a character (a surrogate)") from None
    except library.error as error:
        raise InvalidPattern(_reason(error, prefix)) from None
    finally:
        # It keeps the last 128 as well.
        library.purge()
    if compiled.groups > MAX_GROUPS:
        raise InvalidPattern(f"it has {compiled.groups:,} groups; the most is {MAX_GROUPS}")
    return RegularExpression(compiled)


def _rewrite(escape: re.Match[str]) -> str:
    code = escape[1] or escape[2]
    if code:
        return rf"\x{{{code}}}"
    if escape[3] == "C":
        raise InvalidPattern(r"\C, half a character, is not supported")
    return r"\z" if escape[3] == "Z" else escape[0]


def _reason(error: Exception, prefix: str) -> str:
    """Return what RE2 says of an expression; it comes as bytes, and quotes without an end."""
    said = error.args[0] if error.args else ""
    text = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    text = text.replace(prefix, "") if prefix else text
    reason = text if len(text) <= 100 else f"{text[:99]}…"
    # Only a bracket that is missing has another cause.
    return reason if reason.startswith("missing") else f"{reason} ({_SUPPORTED})"
