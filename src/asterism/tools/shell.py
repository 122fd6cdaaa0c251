"""The tool `shell`: programs in the sandbox, in the agent's own folder."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from asterism.errors import SandboxError, ToolError
from asterism.sandbox import Ran, Running
from asterism.tools.spellings import OPERATION, TEXT, WORD, also, unless_null
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.tools.workplace import Workplace
from asterism.types.agents import new_id
from asterism.types.effects import Effect, EffectKind
from asterism.types.people import OWNER, Participants, Trust

LONGEST_COMMAND = 100_000
_LONGEST_TIME = 3_600.0
_MOST_SPAWNED = 8
_MOST_REMEMBERED = 20
_SHOWN_OF_STATUS = 1_500

Operation = Literal["execute", "spawn", "kill", "status"]


@dataclass(slots=True)
class _Spawned:
    agent_id: str
    participants: str
    """The key of those who were present when it was started."""
    command: str
    running: Running


class Spawned:
    """Programs in the background: they outlast turns, and end with the home."""

    def __init__(self) -> None:
        self._all: dict[str, _Spawned] = {}

    def running(self, agent_id: str) -> int:
        """Return how many programs of an agent are running, whoever was there at their start."""
        return sum(not one.running.ended for one in self._all.values() if one.agent_id == agent_id)

    def of(self, agent_id: str, participants: Participants) -> dict[str, _Spawned]:
        """Return the programs of an agent by their ids, those that ended lately, too.

        The owner alone sees all; others see what was started in the same participants.
        """
        return {
            key: one
            for key, one in self._all.items()
            if one.agent_id == agent_id
            and (participants.owner_alone or one.participants == participants.key)
        }

    def add(self, agent_id: str, participants: Participants, command: str, running: Running) -> str:
        """Keep a program, and return its id."""
        own = {key: one for key, one in self._all.items() if one.agent_id == agent_id}
        ended = [key for key, one in own.items() if one.running.ended]
        for key in ended[: max(0, len(own) + 1 - _MOST_REMEMBERED)]:
            del self._all[key]
        key = new_id("task")
        self._all[key] = _Spawned(agent_id, participants.key, command, running)
        return key

    def clear(self) -> None:
        """Drop what programs have said and how they were called, since something was forgotten."""
        for key, one in list(self._all.items()):
            if one.running.ended:
                del self._all[key]
            else:
                one.command = "(its command was dropped when something was forgotten)"
                one.running.drop_output()

    async def close(self) -> None:
        """End them all."""
        for one in list(self._all.values()):
            if not one.running.ended:
                await one.running.stop()
        self._all.clear()


def shell_tool(workplace: Workplace, spawned: Spawned) -> Tool:
    """Return the tool `shell` for the agents of a home."""

    def effects(arguments: Mapping[str, Any]) -> tuple[Effect, ...]:
        operation = arguments.get("operation")
        if operation == "status":
            return (Effect(EffectKind.READ),)
        if operation == "kill":
            return (Effect(EffectKind.REMEMBER, things=(str(arguments.get("task_id")),)),)
        command = str(arguments.get("command"))
        run = Effect(EffectKind.RUN, things=(command,))
        if workplace.settings().sandbox.network:
            # With a network, whatever the command names may be told to anybody.
            return (run, Effect(EffectKind.FETCH, hosts=(command,), content=(command,)))
        return (run,)

    @tool(
        effects=effects,
        trust=Trust.DOCUMENT,
        compact=False,
        timeout=_LONGEST_TIME + 60,
        audience=OWNER,
    )
    async def shell(
        ctx: ToolContext,
        operation: Annotated[Operation, WORD, OPERATION] = "execute",
        command: Annotated[str, TEXT, also("command", "cmd", "script")] = "",
        timeout: Annotated[float, unless_null(60.0), Field(gt=0, le=_LONGEST_TIME)] = 60.0,  # noqa: ASYNC109 - what models call it
        task_id: Annotated[str, TEXT, also("task_id", "task", "id")] = "",
    ) -> str:
        """Run a command with sh in your own folder, in a sandbox without network.

        execute waits for its end; spawn leaves it running and gives a task_id; kill ends that;
        status lists them.

        Args:
            timeout: Seconds.
        """
        if operation == "status":
            return _status(spawned.of(ctx.agent.id, ctx.participants))
        if operation == "kill":
            return await _kill(spawned.of(ctx.agent.id, ctx.participants), task_id)
        if not command.strip() or "\0" in command or len(command) > LONGEST_COMMAND:
            raise ToolError(
                f"shell {operation} needs a command of 1 to {LONGEST_COMMAND:,} characters, such "
                'as "ls -l". Nothing was run.'
            )
        if operation == "spawn" and spawned.running(ctx.agent.id) >= _MOST_SPAWNED:
            raise ToolError(
                f"No more than {_MOST_SPAWNED} programs can run in the background. End one with "
                "kill. Nothing was run."
            )
        try:
            box = await workplace.sandbox()
            running = await box.start(
                ("/bin/sh", "-c", command),
                workplace.view(ctx.agent.id),
                workplace.bounds(timeout if operation == "execute" else 0),
            )
            if operation == "spawn":
                key = spawned.add(ctx.agent.id, ctx.participants, command, running)
                return f"Started as {key}. It runs until it ends, you kill it, or the home stops."
            return told(await running.wait(), timeout)
        except SandboxError as error:
            raise ToolError(error.message) from None

    return shell


def told(ran: Ran, timeout: float) -> str:
    """Say what became of a program."""
    reasons = {
        "time": f"Ended after {timeout:g} s, its time. Give a longer timeout, or spawn it.",
        "output": "Ended, since it said too much. Let it say less, or write to a file.",
        "disk": "Ended, since your folder is full. Delete what is not needed.",
        "files": "Ended, since your folder holds too many files. Delete some or pack them.",
        "memory": "Ended, since it needed more memory than there is for it.",
        "stopped": "Stopped.",
    }
    head = reasons.get(ran.ended) or f"Exit code {ran.exit_code}{_signal(ran.exit_code)}."
    output = ran.text.rstrip("\n")
    return f"{head} ({ran.seconds:.1f} s)\n{output}" if output else f"{head} ({ran.seconds:.1f} s)"


def _signal(code: int | None) -> str:
    reasons: dict[int, str] = {
        signal.SIGXCPU: ": it used up its processor time",
        signal.SIGXFSZ: ": it wrote a file larger than allowed",
        signal.SIGKILL: ": it was killed",
        signal.SIGSYS: ": it made a system call that is not allowed",
    }
    return "" if code is None or code <= 128 else reasons.get(code - 128, "")


async def _kill(own: Mapping[str, _Spawned], task_id: str) -> str:
    one = own.get(task_id)
    if one is None:
        there = ", ".join(own) or "none"
        raise ToolError(
            f"There is no task {task_id[:60]!r}; there is {there}. What was spawned before the "
            "last restart of the home has ended with it."
        )
    if one.running.ended:
        return f"{task_id} had ended before. {await _ended(one)}"
    return f"Ended {task_id}. {told(await one.running.stop(), 0)}"


async def _ended(one: _Spawned) -> str:
    try:
        return told(await one.running.wait(), 0)
    except SandboxError as error:
        return error.message


def _status(own: Mapping[str, _Spawned]) -> str:
    lines: list[str] = []
    for key, one in own.items():
        state = "ended" if one.running.ended else f"running for {one.running.seconds:.0f} s"
        shown = one.running.output[-_SHOWN_OF_STATUS:].decode("utf-8", "replace").strip()
        lines.append(f"{key} ({state}): {one.command[:200]}" + (f"\n{shown}" if shown else ""))
    return "\n".join(lines) or (
        "No programs in the background. What was spawned before the last restart of the home has "
        "ended with it."
    )
