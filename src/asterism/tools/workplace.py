"""The workplace: a folder for each agent, and the sandbox in which its programs run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from asterism.config import Settings
from asterism.errors import SandboxError
from asterism.sandbox import Bounds, Kind, Sandbox, View, find_sandbox

_SHUT_IN = (Kind.BUBBLEWRAP, Kind.NAMESPACES, Kind.LANDLOCK)


class Workplace:
    """Where agents work with files and programs."""

    def __init__(self, data: Path, settings: Callable[[], Settings] = Settings) -> None:
        self.data = data
        self.settings = settings
        self._found: dict[tuple[Kind, ...], Sandbox] = {}
        self._finding = asyncio.Lock()

    def folder(self, agent_id: str) -> Path:
        """Return the folder of an agent."""
        return (self.data / "workspaces" / agent_id).resolve()

    async def sandbox(self) -> Sandbox:
        """Return the sandbox in force; raise `SandboxError` if there is none."""
        wanted = self.settings().sandbox
        kinds = _SHUT_IN if wanted.kind == "auto" else (Kind(wanted.kind),)
        if wanted.allow_unsandboxed:
            kinds = (*kinds, Kind.UNSANDBOXED)
        async with self._finding:
            if kinds not in self._found:
                self._found[kinds] = await find_sandbox(kinds)
            return self._found[kinds]

    def view(self, agent_id: str) -> View:
        """Return what programs of an agent see."""
        return View(self.folder(agent_id), network=self.settings().sandbox.network)

    def bounds(self, seconds: float) -> Bounds:
        """Return how much a program may use that runs for so long at most."""
        wanted = self.settings().sandbox
        return Bounds(
            seconds=seconds,
            cpu_seconds=wanted.cpu_seconds,
            memory=wanted.memory_mb << 20,
            processes=wanted.processes,
            file_size=min(wanted.disk_mb, 4096) << 20,
            disk=wanted.disk_mb << 20,
            files=wanted.files,
        )


@dataclass(frozen=True, slots=True)
class Standing:
    """Which sandbox is in force, in words."""

    kind: str
    lacks: tuple[str, ...] = ()
    problem: str = ""


async def standing(workplace: Workplace) -> Standing:
    """Say which sandbox is in force, and what it cannot do."""
    try:
        found = await workplace.sandbox()
    except SandboxError as error:
        return Standing("none", problem=error.message)
    return Standing(found.kind.value, found.lacks)
