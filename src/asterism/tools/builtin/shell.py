"""The tool `shell`: programs in the sandbox, in the agent's own folder."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from asterism.config import Settings
from asterism.errors import SandboxError, ToolError
from asterism.records import dataclass
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
from asterism.tools.sandbox import (
    ProgramResult,
    RunningProgram,
    Sandbox,
    SandboxKind,
    SandboxLimits,
    SandboxView,
    find_sandbox,
)
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.agents import OWNER, Participants, Trust, new_id
from asterism.types.permissions import Effect, EffectKind

_ISOLATED = (SandboxKind.BUBBLEWRAP, SandboxKind.NAMESPACES, SandboxKind.LANDLOCK)


class Workspaces:
    """Where agents work with files and programs."""

    def __init__(self, data: Path, settings: Callable[[], Settings] = Settings) -> None:
        self.data = data
        self.settings = settings
        self._found: dict[tuple[SandboxKind, ...], Sandbox] = {}
        self._finding = asyncio.Lock()

    def folder(self, agent_id: str) -> Path:
        """Return the folder of an agent."""
        return (self.data / "workspaces" / agent_id).resolve()

    async def sandbox(self) -> Sandbox:
        """Return the sandbox in force; raise `SandboxError` if there is none."""
        wanted = self.settings().sandbox
        kinds = _ISOLATED if wanted.kind == "auto" else (SandboxKind(wanted.kind),)
        if wanted.allow_unsandboxed:
            kinds = (*kinds, SandboxKind.UNSANDBOXED)
        async with self._finding:
            if kinds not in self._found:
                self._found[kinds] = await find_sandbox(kinds)
            return self._found[kinds]

    def view(self, agent_id: str) -> SandboxView:
        """Return what programs of an agent see."""
        return SandboxView(self.folder(agent_id), network=self.settings().sandbox.network)

    def bounds(self, seconds: float) -> SandboxLimits:
        """Return how much a program may use that runs for so long at most."""
        wanted = self.settings().sandbox
        return SandboxLimits(
            seconds=seconds,
            cpu_seconds=wanted.cpu_seconds,
            memory=wanted.memory_mb << 20,
            processes=wanted.processes,
            file_size=min(wanted.disk_mb, 4096) << 20,
            disk=wanted.disk_mb << 20,
            files=wanted.files,
        )


@dataclass(frozen=True, slots=True)
class SandboxStatus:
    """Which sandbox is in force, in words."""

    kind: str
    limitations: tuple[str, ...] = ()
    problem: str = ""


async def sandbox_status(workspaces: Workspaces) -> SandboxStatus:
    """Say which sandbox is in force, and what it cannot do."""
    try:
        sandbox = await workspaces.sandbox()
    except SandboxError as error:
        return SandboxStatus("none", problem=error.message)
    return SandboxStatus(sandbox.kind.value, sandbox.limitations)


# -- the tool --------------------------------------------------------------------------------------

MAX_COMMAND = 100_000
_MAX_SECONDS = 3_600.0
_MAX_RUNNING = 8
_MAX_REMEMBERED = 20
_MAX_STATUS = 1_500

Operation = Literal["execute", "spawn", "kill", "status"]


@dataclass(slots=True)
class _BackgroundProgram:
    agent_id: str
    participants: str
    """The key of those who were present when it was started."""
    command: str
    running: RunningProgram


class BackgroundPrograms:
    """Programs in the background: they outlast turns, and end with the home."""

    def __init__(self) -> None:
        self._all: dict[str, _BackgroundProgram] = {}

    def running(self, agent_id: str) -> int:
        """Return how many programs of an agent are running, whoever was there at their start."""
        return sum(
            not program.running.ended
            for program in self._all.values()
            if program.agent_id == agent_id
        )

    def of(self, agent_id: str, participants: Participants) -> dict[str, _BackgroundProgram]:
        """Return the programs of an agent by their ids, those that ended lately, too.

        The owner alone sees all; others see what was started in the same participants.
        """
        return {
            key: program
            for key, program in self._all.items()
            if program.agent_id == agent_id
            and (participants.owner_alone or program.participants == participants.key)
        }

    def add(
        self, agent_id: str, participants: Participants, command: str, running: RunningProgram
    ) -> str:
        """Keep a program, and return its id."""
        own = {key: program for key, program in self._all.items() if program.agent_id == agent_id}
        ended = [key for key, program in own.items() if program.running.ended]
        for key in ended[: max(0, len(own) + 1 - _MAX_REMEMBERED)]:
            del self._all[key]
        key = new_id("task")
        self._all[key] = _BackgroundProgram(agent_id, participants.key, command, running)
        return key

    def clear(self) -> None:
        """Drop what programs have said and how they were called, since something was forgotten."""
        for key, program in list(self._all.items()):
            if program.running.ended:
                del self._all[key]
            else:
                program.command = "(its command was dropped when something was forgotten)"
                program.running.drop_output()

    async def close(self) -> None:
        """End them all."""
        for program in list(self._all.values()):
            if not program.running.ended:
                await program.running.stop()
        self._all.clear()


def shell_tool(workspaces: Workspaces, programs: BackgroundPrograms) -> Tool:
    """Return the tool `shell` for the agents of a home."""

    def effects(arguments: Mapping[str, Any]) -> tuple[Effect, ...]:
        operation = arguments.get("operation")
        if operation == "status":
            return (Effect(EffectKind.READ),)
        if operation == "kill":
            return (Effect(EffectKind.REMEMBER, things=(str(arguments.get("task_id")),)),)
        command = str(arguments.get("command"))
        run = Effect(EffectKind.RUN, things=(command,))
        if workspaces.settings().sandbox.network:
            # With a network, whatever the command names may be told to anybody.
            return (run, Effect(EffectKind.FETCH, hosts=(command,), content=(command,)))
        return (run,)

    @tool(
        effects=effects,
        trust=Trust.DOCUMENT,
        compact=False,
        timeout=_MAX_SECONDS + 60,
        audience=OWNER,
        changes_by_itself=True,
    )
    async def shell(
        ctx: ToolContext,
        operation: Annotated[Operation, WORD, OPERATION] = "execute",
        command: Annotated[str, TEXT, also("command", "cmd", "script")] = "",
        timeout: Annotated[float, null_as(60.0), Field(gt=0, le=_MAX_SECONDS)] = 60.0,  # noqa: ASYNC109 - what models call it
        task_id: Annotated[str, TEXT, also("task_id", "task", "id")] = "",
    ) -> str:
        """Run a command with sh in your own folder, in a sandbox without network.

        execute waits for its end; spawn leaves it running and gives a task_id; kill ends that;
        status lists them.

        Args:
            timeout: Seconds.
        """
        if operation == "status":
            return _status(programs.of(ctx.agent.id, ctx.participants))
        if operation == "kill":
            return await _kill(programs.of(ctx.agent.id, ctx.participants), task_id)
        if not command.strip() or "\0" in command or len(command) > MAX_COMMAND:
            raise ToolError(
                f"shell {operation} needs a command of 1 to {MAX_COMMAND:,} characters, such "
                'as "ls -l". Nothing was run.'
            )
        if operation == "spawn" and programs.running(ctx.agent.id) >= _MAX_RUNNING:
            raise ToolError(
                f"No more than {_MAX_RUNNING} programs can run in the background. End one with "
                "kill. Nothing was run."
            )
        try:
            box = await workspaces.sandbox()
            running = await box.start(
                ("/bin/sh", "-c", command),
                workspaces.view(ctx.agent.id),
                workspaces.bounds(timeout if operation == "execute" else 0),
            )
            if operation == "spawn":
                key = programs.add(ctx.agent.id, ctx.participants, command, running)
                return f"Started as {key}. It runs until it ends, you kill it, or the home stops."
            return describe_result(await running.wait(), timeout)
        except SandboxError as error:
            raise ToolError(error.message) from None

    return shell


def describe_result(ran: ProgramResult, timeout: float) -> str:
    """Say what became of a program."""
    reasons = {
        "time": f"Ended after {timeout:g} s, its time limit. Set a longer timeout, or spawn it.",
        "output": "Ended, since its output is too long. Print less, or write to a file.",
        "disk": "Ended, since your folder is full. Delete files that you do not need.",
        "files": "Ended, since your folder holds too many files. Delete some or pack them.",
        "memory": "Ended, since it exceeded its memory limit.",
        "stopped": "Stopped.",
    }
    head = reasons.get(ran.ended) or f"Exit code {ran.exit_code}{_signal_reason(ran.exit_code)}."
    output = ran.text.rstrip("\n")
    return f"{head} ({ran.seconds:.1f} s)\n{output}" if output else f"{head} ({ran.seconds:.1f} s)"


def _signal_reason(code: int | None) -> str:
    reasons: dict[int, str] = {
        signal.SIGXCPU: ": it used up its processor time",
        signal.SIGXFSZ: ": it wrote a file larger than allowed",
        signal.SIGKILL: ": it was killed",
        signal.SIGSYS: ": it made a system call that is not allowed",
    }
    return "" if code is None or code <= 128 else reasons.get(code - 128, "")


async def _kill(own: Mapping[str, _BackgroundProgram], task_id: str) -> str:
    program = own.get(task_id)
    if program is None:
        known = ", ".join(own) or "none"
        raise ToolError(
            f"There is no task {task_id[:60]!r}; there is {known}. Programs from before the "
            "last restart of the home have ended."
        )
    if program.running.ended:
        return f"{task_id} had ended before. {await _ended_text(program)}"
    return f"Ended {task_id}. {describe_result(await program.running.stop(), 0)}"


async def _ended_text(program: _BackgroundProgram) -> str:
    try:
        return describe_result(await program.running.wait(), 0)
    except SandboxError as error:
        return error.message


def _status(own: Mapping[str, _BackgroundProgram]) -> str:
    lines: list[str] = []
    for key, program in own.items():
        state = "ended" if program.running.ended else f"running for {program.running.seconds:.0f} s"
        output = program.running.output[-_MAX_STATUS:].decode("utf-8", "replace").strip()
        lines.append(
            f"{key} ({state}): {program.command[:200]}" + (f"\n{output}" if output else "")
        )
    return "\n".join(lines) or (
        "No programs in the background. Programs from before the last restart of the home have "
        "ended."
    )
