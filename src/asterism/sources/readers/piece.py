"""A piece of a document, and why a document is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from asterism.errors import InvalidInput

# Neither store keeps NUL or half of a surrogate pair, and no reader wants the other controls.
_UNWANTED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True)
class Piece:
    """A passage to be: some text of a document, and where in it."""

    text: str
    place: str
    """`page 12`, `lines 40-58`, `# Heading > ## Sub`, `rows 1-40`, `$.items[3]` …"""


class DocumentRefused(InvalidInput):
    """A document that cannot be read; nothing of it is stored, and the others go on."""

    def __init__(self, path: Path, problem: str, *, passing: bool = False) -> None:
        """Say what is wrong.

        Args:
            path: The file; its name begins the message.
            problem: The rest of the sentence.
            passing: Whether the same file may be readable later.
        """
        super().__init__(f"{shown(path)} {problem} Nothing of it was stored.")
        self.path = path
        self.passing = passing


def shown(path: Path) -> str:
    """Return a file's name as a message can show it, whatever bytes it is made of."""
    return repr(path.name.encode(errors="replace").decode())


def clean(text: str) -> str:
    """Return a text without what no store keeps."""
    return _UNWANTED.sub(" ", text)
