"""The sandbox: programs run shut in, within bounds, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from asterism.errors import SandboxError
from asterism.sandbox.plan import INSIDE, control_groups, make_plan, own_workspace, python_inside
from asterism.sandbox.view import Bounds, Kind, Ran, View

LAUNCHER = Path(__file__).with_name("launcher.py")
_GRACE = 15.0
_CHUNK = 1 << 16


class _Names:
    """What is said of the workspace: the path that programs see, not where the data lies."""

    def __init__(self, workspace: Path, *, inside: str) -> None:
        self._workspace = str(workspace)
        self._inside = inside
        # The folders of the data directory above it: a short one may be any folder.
        self._above = [str(one) for one in workspace.parents[:2] if len(one.parts) > 2]

    def in_output(self, said: bytes) -> bytes:
        """Return what a program said; where it has another path, it has no use for ours."""
        if self._inside == self._workspace:
            return said
        return said.replace(os.fsencode(self._workspace), self._inside.encode())

    def in_error(self, text: str) -> str:
        """Return what the launcher said."""
        text = text.replace(self._workspace, INSIDE)
        for one in self._above:
            text = text.replace(one, "…")
        return text


class Running:
    """A program under way."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        report: int,
        bounds: Bounds,
        stdin: bytes,
        names: _Names,
    ) -> None:
        self._process = process
        self._report = report
        self._bounds = bounds
        self._names = names
        self._began = time.monotonic()
        self._kept = bytearray()
        self.said = 0
        self._too_much = False
        self._done = asyncio.ensure_future(self._follow(stdin))
        # Whoever waits is told of a failure; that nobody waits is no fault.
        self._done.add_done_callback(lambda done: done.cancelled() or done.exception())

    @property
    def pid(self) -> int:
        """The number of its launcher."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self._done.done()

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return time.monotonic() - self._began

    @property
    def output(self) -> bytes:
        """What it said lately."""
        return self._names.in_output(bytes(self._kept))

    def drop_output(self) -> None:
        """Drop what it has said so far."""
        self._kept.clear()

    async def wait(self) -> Ran:
        """Wait for its end; who stops waiting stops the program, too."""
        try:
            return await asyncio.shield(self._done)
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def stop(self) -> Ran:
        """End it with all that it has started."""
        if not self._done.done():
            self._signal(signal.SIGTERM)
            done, _ = await asyncio.wait([self._done], timeout=_GRACE)
            if not done:
                self._signal(signal.SIGKILL)
        return await self._done

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def _follow(self, stdin: bytes) -> Ran:
        feeding = asyncio.ensure_future(self._feed(stdin))
        await self._listen()
        code = await self._process.wait()
        await feeding
        seconds = self.seconds
        told = await asyncio.to_thread(_read_all, self._report)
        how, _, rest = told.partition(" ")
        if not told and code == -signal.SIGTERM:
            how = "stopped"  # before it had begun
        elif how == "failed" or not told:
            rest = self._names.in_error(rest) or f"the launcher ended with {code}"
            raise SandboxError(
                f"The program was not run: the sandbox could not be set up ({rest}). "
                '"asterism doctor" says more.'
            )
        ended = "output" if self._too_much else "" if how == "exit" else how
        exit_code = int(rest) if how == "exit" and not self._too_much else None
        output = self.output
        said = self.said - len(self._kept) + len(output)
        return Ran(exit_code, output, said, seconds, ended)

    async def _feed(self, stdin: bytes) -> None:
        pipe = self._process.stdin
        if pipe is None:
            return
        with contextlib.suppress(ConnectionError):
            pipe.write(stdin)
            await pipe.drain()
        pipe.close()

    async def _listen(self) -> None:
        """Take in what the program says, keeping its end; one that never stops is stopped."""
        pipe = self._process.stdout
        assert pipe is not None
        while chunk := await pipe.read(_CHUNK):
            self.said += len(chunk)
            self._kept += chunk
            if len(self._kept) > 2 * self._bounds.kept:
                del self._kept[: -self._bounds.kept]
            if self.said > self._bounds.output and not self._too_much:
                self._too_much = True
                self._signal(signal.SIGTERM)
        del self._kept[: -self._bounds.kept or None]


def _read_all(handle: int) -> str:
    with os.fdopen(handle, "rb") as file:
        return file.read().decode("utf-8", "replace")


class Sandbox:
    """One way to shut programs in, found to work here."""

    def __init__(self, kind: Kind, *, bwrap: str = "", lacks: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.lacks = lacks
        """What it cannot do, in words."""
        self._bwrap = bwrap

    def __repr__(self) -> str:
        return f"<sandbox {self.kind.value}>"

    def inside(self, view: View) -> str:
        """Return the path of the workspace as programs see it."""
        shown = self.kind in (Kind.BUBBLEWRAP, Kind.NAMESPACES)
        return INSIDE if shown else str(view.workspace)

    def python(self) -> str:
        """Return the path of a Python that programs in this sandbox can run."""
        own = python_inside()
        if self.kind is not Kind.LANDLOCK or os.geteuid() != 0:
            return own
        # Here programs have the rights of another user, who may not pass root's folders.
        passable = all(one.stat().st_mode & 0o001 for one in Path(own).parents)
        found = own if passable else shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
        if found is None:
            raise SandboxError(
                f"Python at {own} lies in a folder that only root may pass, so no Python can be "
                "run in this sandbox. Install bubblewrap, or a Python in /usr/bin."
            )
        return found

    async def run(
        self, command: Sequence[str], view: View, bounds: Bounds | None = None, stdin: bytes = b""
    ) -> Ran:
        """Run a program to its end; who is cancelled ends it."""
        return await (await self.start(command, view, bounds, stdin)).wait()

    async def start(
        self, command: Sequence[str], view: View, bounds: Bounds | None = None, stdin: bytes = b""
    ) -> Running:
        """Start a program and return it."""
        within = bounds or Bounds()
        names = _Names(view.workspace, inside=self.inside(view))
        try:
            plan = await asyncio.to_thread(self._plan, tuple(command), view, within)
        except OSError as error:
            raise SandboxError(
                "The program was not run: its folder could not be made ready "
                f"({names.in_error(error.strerror or type(error).__name__)})."
            ) from None
        told, tells = os.pipe()
        try:
            with tempfile.TemporaryFile() as file:
                # The launcher is the same Python, and json would cost it some milliseconds.
                file.write(marshal.dumps(plan))
                file.seek(0)
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-I",
                    "-S",
                    str(LAUNCHER),
                    str(file.fileno()),
                    str(tells),
                    stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    pass_fds=(file.fileno(), tells),
                    start_new_session=True,
                    env={},
                    cwd="/",
                )
        except BaseException:
            os.close(told)
            raise
        finally:
            os.close(tells)
        return Running(process, told, within, stdin, names)

    def _plan(self, command: tuple[str, ...], view: View, bounds: Bounds) -> dict[str, object]:
        own_workspace(view.workspace)
        plan = make_plan(self.kind, command, view, bounds, bwrap=self._bwrap)
        if plan["temporary"] != "/tmp":
            place = Path(plan["temporary"])
            place.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(place, plan["user"], plan["group"])
        return plan


async def find_sandbox(wanted: Sequence[Kind] = tuple(Kind)[:3]) -> Sandbox:
    """Return the first wanted kind of sandbox that is found to work here."""
    faults: list[str] = []
    if sys.platform != "linux":
        faults.append("programs can be shut in on Linux only")
        wanted = [kind for kind in wanted if kind is Kind.UNSANDBOXED]
    _sweep()
    for kind in wanted:
        bwrap = shutil.which("bwrap") or ""
        if kind is Kind.BUBBLEWRAP and not bwrap:
            faults.append("bubblewrap is not installed")
            continue
        one = Sandbox(kind, bwrap=bwrap, lacks=_lacks(kind))
        if kind is Kind.UNSANDBOXED:
            return one
        if not (fault := await _try(one)):
            return one
        faults.append(f"{kind.value}: {fault}")
    raise SandboxError(
        f"No sandbox works here ({'; '.join(faults)}), so no program was run. Install bubblewrap, "
        "use a kernel with Landlock (5.13 or later), or allow it in [sandbox] of asterism.toml."
    )


async def _try(one: Sandbox) -> str:
    """Say what is wrong with a kind of sandbox here: it must run programs, and hide files."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)  # noqa: S103 - another user has to pass
        marker = Path(folder) / "marker"
        marker.write_text("seen")
        marker.chmod(0o644)
        script = 'cat "$0" 2>/dev/null; echo x > made && cat made'
        view = View(Path(folder) / "workspace")
        try:
            ran = await one.run(
                ("/bin/sh", "-c", script, str(marker)), view, Bounds(seconds=20, processes=64)
            )
        except (SandboxError, OSError) as error:
            return str(error)[:300]
    if b"seen" in ran.output:
        return "it does not hide files"
    if ran.exit_code != 0 or ran.output != b"x\n":
        return f"a program ended with {ran.exit_code} {ran.ended} {ran.text[:200]!r}"
    return ""


def _lacks(kind: Kind) -> tuple[str, ...]:
    """Say what a kind of sandbox cannot do on this machine."""
    from asterism.sandbox import kernel

    found: list[str] = []
    if kind is Kind.UNSANDBOXED:
        return ("anything that you may, programs may, too: only time and sizes are limited",)
    if not control_groups():
        found.append("memory is limited for each process, not for all together")
    if not kernel.known_machine():
        found.append(f"system calls are not filtered on {kernel.MACHINE}")
    version = kernel.landlock_version()
    if kind is Kind.NAMESPACES and not version:
        found.append("there is no Landlock beside the namespaces")
    if kind is Kind.LANDLOCK:
        found.append("there is no /proc, and /tmp is a folder of the workspace")
        found.append("programs see the path of their folder, and with it that of the data")
        if version < 4:
            found.append("without a filter of system calls the network would be open")
    return tuple(found)


def _sweep() -> None:
    """Remove control groups that a killed process left; one in use cannot be removed."""
    for folder in control_groups():
        for one in Path(folder).glob("asterism-*"):
            with contextlib.suppress(OSError):
                one.rmdir()
