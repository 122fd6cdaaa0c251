"""A disk that a test meddles with: full, failing, or the last thing a process touches."""

from collections.abc import Callable
from itertools import count
from typing import Literal

import apsw

Operation = Literal["write", "sync", "truncate"]
Meddle = Callable[[Operation, "MeddledFile", bytes, int], None]
"""Called before each operation, with what is to be written and where; may raise an apsw error."""

_numbers = count(1)


# apsw writes `Buffer`, which its types name from Python 3.12 on.
# pyright: reportUnknownMemberType=false


class MeddledFile(apsw.VFSFile):
    """A file of the machine's own file system, with somebody at the door."""

    def __init__(
        self, meddle: Meddle, name: str | apsw.URIFilename | None, flags: list[int]
    ) -> None:
        super().__init__("unix", name, flags)
        self._meddle = meddle

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._meddle("write", self, data, offset)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._meddle("sync", self, b"", 0)
        super().xSync(flags)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._meddle("truncate", self, b"", newsize)
        super().xTruncate(newsize)

    def write_through(self, data: bytes, offset: int) -> None:
        """Write without asking the meddler, as for a part of what was to be written."""
        super().xWrite(data, offset)


class MeddledDisk(apsw.VFS):
    """SQLite's way to the disk, by its `name`, or for every connection with `default`."""

    def __init__(self, meddle: Meddle, *, default: bool = False) -> None:
        self.name = f"meddled{next(_numbers)}"
        self._meddle = meddle
        super().__init__(self.name, "unix", makedefault=default)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> MeddledFile:  # noqa: N802
        return MeddledFile(self._meddle, name, flags)
