"""The head of a GGUF file: what a model says about itself.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (2026-11-16).
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_MAX_STRING = 1 << 24


class NotGguf(ValueError):
    """The file is not what a GGUF file is."""


def read_gguf_header(path: Path) -> dict[str, str | int | float]:
    """Return the plain values in the head of a file, such as `llama.context_length`.

    Lists (the tokens, mostly) are skipped. Raises `NotGguf`.
    """
    with path.open("rb") as file:
        if file.read(4) != _MAGIC:
            raise NotGguf("it does not begin as a GGUF file does")
        try:
            version, _, count = struct.unpack("<IQQ", _read(file, 20))
            if version not in (2, 3):
                raise NotGguf(f"it has version {version} of the format; 2 and 3 are known")
            return dict(_pairs(file, count))
        except (struct.error, UnicodeDecodeError, KeyError, OverflowError):
            raise NotGguf("its head is cut off or damaged") from None


def context_length(head: dict[str, str | int | float]) -> int:
    """Return the context that a model was trained with; 0 where the head does not say."""
    window = head.get(f"{head.get('general.architecture')}.context_length", 0)
    return window if isinstance(window, int) else 0


def _pairs(file: BinaryIO, count: int) -> list[tuple[str, str | int | float]]:
    found: list[tuple[str, str | int | float]] = []
    for _ in range(count):
        key = _text(file)
        (kind,) = struct.unpack("<I", _read(file, 4))
        value = _value(file, kind)
        if value is not None:
            found.append((key, value))
    return found


def _value(file: BinaryIO, kind: int) -> str | int | float | None:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        inner, length = struct.unpack("<IQ", _read(file, 12))
        if inner in _NUMBERS:
            file.seek(length * struct.calcsize(_NUMBERS[inner]), 1)
        else:
            for _ in range(length):
                _value(file, inner)
        return None
    form = "<" + _NUMBERS[kind]
    return struct.unpack(form, _read(file, struct.calcsize(form)))[0]


def _text(file: BinaryIO) -> str:
    (length,) = struct.unpack("<Q", _read(file, 8))
    return _read(file, length).decode()


def _read(file: BinaryIO, size: int) -> bytes:
    if size > _MAX_STRING:
        raise OverflowError
    data = file.read(size)
    if len(data) < size:
        raise OverflowError
    return data
