"""What a program in the sandbox may see and use, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """The ways to shut a program in, the best first."""

    BUBBLEWRAP = "bubblewrap"
    """bwrap arranges the view; calls are filtered, limits set."""
    NAMESPACES = "namespaces"
    """Namespaces, Landlock and a filter of calls, without another program's help."""
    LANDLOCK = "landlock"
    """Landlock and a filter of calls alone, where the kernel gives no namespaces."""
    UNSANDBOXED = "unsandboxed"
    """Limits of time and size only: the program has all rights of the home."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a program may use."""

    seconds: float = 60.0
    """Of wall time; 0 for no end."""
    cpu_seconds: int = 60
    """Of each process."""
    memory: int = 1 << 30
    """Bytes of address space of each process, and of memory of all together."""
    processes: int = 64
    open_files: int = 256
    file_size: int = 256 << 20
    disk: int = 1 << 30
    """Bytes that the workspace may hold."""
    files: int = 100_000
    """Files and folders that the workspace may hold."""
    scratch: int = 256 << 20
    """Bytes of /tmp."""
    output: int = 32 << 20
    """Bytes that it may say; at more it is ended."""
    kept: int = 60_000
    """Bytes of its output that are kept, of the end."""


@dataclass(frozen=True, slots=True)
class View:
    """What a program sees: the system's programs, one folder of its own, and little else."""

    workspace: Path
    readable: tuple[Path, ...] = ()
    """Further folders and files, for reading only."""
    network: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a program."""

    exit_code: int | None
    """What it returned, 128 and the signal if one ended it; None if it was stopped."""
    output: bytes
    """What it said at the end, on both of its outputs."""
    said: int
    """How many bytes it said in all."""
    seconds: float
    ended: str = ""
    """Why it was ended: `time`, `output`, `disk`, `files`, `memory` or `stopped`."""

    @property
    def text(self) -> str:
        """The output as text, with a note of what is left out."""
        text = self.output.decode("utf-8", "replace")
        left_out = self.said - len(self.output)
        return f"({left_out:,} bytes before this are left out.)\n{text}" if left_out else text
