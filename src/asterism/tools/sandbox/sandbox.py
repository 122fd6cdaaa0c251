"""The sandbox: programs run isolated, within limits, and leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from pathlib import Path
from typing import Any

from asterism.errors import SandboxError
from asterism.private import make_directory
from asterism.records import dataclass


class SandboxKind(StrEnum):
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
class SandboxLimits:
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
    tail_bytes: int = 60_000
    """Bytes of its output that are kept, of the end."""


@dataclass(frozen=True, slots=True)
class SandboxView:
    """What a program sees: the system's programs, one folder of its own, and little else."""

    workspace: Path
    readable: tuple[Path, ...] = ()
    """Further folders and files, for reading only."""
    network: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """What became of a program."""

    exit_code: int | None
    """What it returned, 128 and the signal if one ended it; None if it was stopped."""
    output: bytes
    """What it said at the end, on both of its outputs."""
    total_bytes: int
    """How many bytes it said in all."""
    seconds: float
    ended: str = ""
    """Why it was ended: `time`, `output`, `disk`, `files`, `memory` or `stopped`."""

    @property
    def text(self) -> str:
        """The output as text, with a note of what is left out."""
        text = self.output.decode("utf-8", "replace")
        left_out = self.total_bytes - len(self.output)
        return f"({left_out:,} bytes before this are left out.)\n{text}" if left_out else text


# -- the plan that the launcher carries out ------------------------------------------------------

INSIDE = "/workspace"
_SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONTROL_GROUPS = Path("/sys/fs/cgroup")


def make_plan(
    kind: SandboxKind,
    command: tuple[str, ...],
    view: SandboxView,
    bounds: SandboxLimits,
    *,
    bwrap: str = "",
) -> dict[str, Any]:
    """Return the plan for a command."""
    from asterism.tools.sandbox import kernel

    owner = view.workspace.stat()
    inside = (
        INSIDE if kind in (SandboxKind.BUBBLEWRAP, SandboxKind.NAMESPACES) else str(view.workspace)
    )
    version = (
        kernel.landlock_version() if kind in (SandboxKind.NAMESPACES, SandboxKind.LANDLOCK) else 0
    )
    own_network = inside == INSIDE and not view.network
    seccomp = _call_filter(kind, own_network=own_network, network=view.network, landlock=version)
    readable, links = _system_folders(view)
    temporary = "/tmp" if inside == INSIDE else f"{view.workspace}/.tmp"
    plan = {
        "id": secrets.token_hex(6),
        "kind": kind.value,
        "command": list(command),
        "environment": {
            "PATH": _PATH,
            "HOME": inside,
            "USER": "agent",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": temporary,
            **view.environment,
        },
        "workspace": str(view.workspace),
        "inside": inside,
        "temporary": temporary,
        "readable": readable,
        "links": links,
        "network": view.network,
        "user": owner.st_uid,
        "group": owner.st_gid,
        "landlock": version > 0,
        "seccomp": seccomp.hex(),
        "seconds": bounds.seconds,
        "cpu_seconds": bounds.cpu_seconds,
        "memory": bounds.memory,
        "memory_in_all": bounds.memory,
        "processes": bounds.processes + (0 if os.geteuid() == 0 else _own_processes(kind)),
        "open_files": bounds.open_files,
        "file_size": bounds.file_size,
        "disk": bounds.disk,
        "files": bounds.files,
        "scratch": bounds.scratch,
        "groups": control_groups(),
    }
    if kind is SandboxKind.BUBBLEWRAP:
        plan["rebound"] = [str(view.workspace), *map(str, _extra_folders(view))]
        plan["bubblewrap"] = _bubblewrap_command(plan, bwrap)
    return plan


def _call_filter(kind: SandboxKind, *, own_network: bool, network: bool, landlock: int) -> bytes:
    """Return the filter of system calls for a kind of sandbox; empty where there is none."""
    from asterism.tools.sandbox import kernel

    if kind is SandboxKind.UNSANDBOXED or not kernel.is_known_machine():
        return b""
    own_root = kind in (SandboxKind.BUBBLEWRAP, SandboxKind.NAMESPACES)
    return kernel.filter_program(
        internet=own_network or network,
        # Sockets of other programs have names that no mount hides, but a network namespace or
        # Landlock does.
        local=own_network or landlock >= 6,
        others_in_sight=not own_root and landlock < 6,
        own_ipc=own_root,
    )


def python_inside() -> str:
    """Return the path of this Python as programs in the sandbox see it."""
    executable = getattr(sys, "_base_executable", None) or sys.executable
    return os.path.realpath(executable)


def _extra_folders(view: SandboxView) -> list[Path]:
    """Return the folders to be shown beside the system's: Python itself may live elsewhere."""
    prefix = Path(sys.base_prefix)
    wanted = (*view.readable, prefix, prefix.resolve())
    return [
        folder
        for folder in dict.fromkeys(wanted)
        if folder.is_dir() and not any(folder.is_relative_to(system) for system in _SYSTEM_FOLDERS)
    ]


def _system_folders(view: SandboxView) -> tuple[list[str], list[tuple[str, str]]]:
    """Return what is shown for reading, and which of the system's folders are links."""
    readable: list[str] = []
    links: list[tuple[str, str]] = []
    for path in _SYSTEM_FOLDERS:
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            readable.append(path)
    readable += map(str, _extra_folders(view))
    return readable, links


def _own_processes(kind: SandboxKind) -> int:
    """Return how many processes this user has, where they count for the limit of a program."""
    if kind is not SandboxKind.LANDLOCK and kind is not SandboxKind.UNSANDBOXED:
        return 0  # a user namespace counts for itself
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError):
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _bubblewrap_command(plan: dict[str, Any], bwrap: str) -> list[str]:
    words = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    if plan["network"]:
        words.append("--share-net")
    else:
        words += ["--hostname", "sandbox"]
    for path in plan["readable"]:
        words += ["--ro-bind", f"@SRC:{path}", path]
    for target, source in plan["links"]:
        words += ["--symlink", source, target]
    from asterism.tools.sandbox import kernel

    online = kernel.ETC_NETWORK_FILES if plan["network"] else ()
    names = (*kernel.ETC_FILES, *online, "passwd", "group")
    for name in names:
        words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(plan["scratch"])]
    words += ["--perms", "1777", "--tmpfs", "/tmp", "--bind", f"@SRC:{plan['workspace']}", INSIDE]
    words += ["--remount-ro", "/", "--chdir", INSIDE, "--cap-drop", "ALL"]
    for name, value in plan["environment"].items():
        words += ["--setenv", name, value]
    return [*words, "--seccomp", "@SECCOMP"] if plan["seccomp"] else words


def control_groups() -> list[str]:
    """Return folders in which a control group with limits of its own can be made."""
    folders: list[str] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if {"memory", "pids"} & set(names.split(",")):
                folders.append(f"{_CONTROL_GROUPS}/{names}{path}".rstrip("/"))
            if not names:
                for root in (_CONTROL_GROUPS, _CONTROL_GROUPS / "unified"):
                    place = Path(f"{root}{path}")
                    with contextlib.suppress(OSError):
                        controllers = (place / "cgroup.subtree_control").read_text().split()
                        if {"memory", "pids"} & set(controllers):
                            folders.append(str(place).rstrip("/"))
    return [folder for folder in folders if os.access(folder, os.W_OK)]


def prepare_workspace(place: Path) -> None:
    """Make a workspace; root gives it to a user that owns nothing else."""
    make_directory(place.parent)
    make_directory(place)
    if os.geteuid() != 0 or place.stat().st_uid != 0:
        return
    # The same place gets the same user, and two places hardly ever share one.
    user = 1_000_000_000 + zlib.crc32(str(place).encode()) % 500_000_000
    for user_id in (user, 65534):
        try:
            os.chown(place, user_id, user_id)
        except OSError:
            continue  # a number that this container does not have
        for root, folders, files in os.walk(place):
            for name in (*folders, *files):
                with contextlib.suppress(OSError):
                    os.chown(os.path.join(root, name), user_id, user_id, follow_symlinks=False)
        # That user has to get there: through the data directory, of which it sees nothing else.
        for above in place.parents[:2]:
            above.chmod(stat.S_IMODE(above.stat().st_mode) | 0o001)
        return


# -- running programs ----------------------------------------------------------------------------

LAUNCHER = Path(__file__).with_name("launcher.py")
_GRACE = 15.0
_CHUNK = 1 << 16


class _WorkspacePaths:
    """What is said of the workspace: the path that programs see, not where the data lies."""

    def __init__(self, workspace: Path, *, inside: str) -> None:
        self._workspace = str(workspace)
        self._inside = inside
        # The folders of the data directory above it: a short one may be any folder.
        self._above = [str(folder) for folder in workspace.parents[:2] if len(folder.parts) > 2]

    def in_output(self, output: bytes) -> bytes:
        """Return what a program said; where it has another path, it has no use for ours."""
        if self._inside == self._workspace:
            return output
        return output.replace(os.fsencode(self._workspace), self._inside.encode())

    def in_error(self, text: str) -> str:
        """Return what the launcher said."""
        text = text.replace(self._workspace, INSIDE)
        for folder in self._above:
            text = text.replace(folder, "…")
        return text


class RunningProgram:
    """A program under way."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        report: int,
        bounds: SandboxLimits,
        stdin: bytes,
        names: _WorkspacePaths,
    ) -> None:
        self._process = process
        self._report = report
        self._bounds = bounds
        self._names = names
        self._began = time.monotonic()
        self._kept = bytearray()
        self.total_bytes = 0
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

    async def wait(self) -> ProgramResult:
        """Wait for its end; who stops waiting stops the program, too."""
        try:
            return await asyncio.shield(self._done)
        except asyncio.CancelledError:
            await self.stop()
            raise

    async def stop(self) -> ProgramResult:
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

    async def _follow(self, stdin: bytes) -> ProgramResult:
        feeding = asyncio.ensure_future(self._feed(stdin))
        await self._listen()
        code = await self._process.wait()
        await feeding
        seconds = self.seconds
        report = await asyncio.to_thread(_read_all, self._report)
        how, _, rest = report.partition(" ")
        if not report and code == -signal.SIGTERM:
            how = "stopped"  # before it had begun
        elif how == "failed" or not report:
            rest = self._names.in_error(rest) or f"the launcher ended with {code}"
            raise SandboxError(
                f"The program was not run: the sandbox could not be set up ({rest}). "
                '"asterism doctor" says more.'
            )
        ended = "output" if self._too_much else "" if how == "exit" else how
        exit_code = int(rest) if how == "exit" and not self._too_much else None
        output = self.output
        total = self.total_bytes - len(self._kept) + len(output)
        return ProgramResult(exit_code, output, total, seconds, ended)

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
            self.total_bytes += len(chunk)
            self._kept += chunk
            if len(self._kept) > 2 * self._bounds.tail_bytes:
                del self._kept[: -self._bounds.tail_bytes]
            if self.total_bytes > self._bounds.output and not self._too_much:
                self._too_much = True
                self._signal(signal.SIGTERM)
        del self._kept[: -self._bounds.tail_bytes or None]


def _read_all(handle: int) -> str:
    with os.fdopen(handle, "rb") as file:
        return file.read().decode("utf-8", "replace")


class Sandbox:
    """One way to shut programs in, found to work here."""

    def __init__(
        self, kind: SandboxKind, *, bwrap: str = "", limitations: tuple[str, ...] = ()
    ) -> None:
        self.kind = kind
        self.limitations = limitations
        """What it cannot do, in words."""
        self._bwrap = bwrap

    def __repr__(self) -> str:
        return f"<sandbox {self.kind.value}>"

    def inside(self, view: SandboxView) -> str:
        """Return the path of the workspace as programs see it."""
        own_root = self.kind in (SandboxKind.BUBBLEWRAP, SandboxKind.NAMESPACES)
        return INSIDE if own_root else str(view.workspace)

    def python(self) -> str:
        """Return the path of a Python that programs in this sandbox can run."""
        own = python_inside()
        if self.kind is not SandboxKind.LANDLOCK or os.geteuid() != 0:
            return own
        # Here programs have the rights of another user, who may not pass root's folders.
        passable = all(folder.stat().st_mode & 0o001 for folder in Path(own).parents)
        executable = (
            own if passable else shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
        )
        if executable is None:
            raise SandboxError(
                f"Python at {own} lies in a folder that only root may pass, so no Python can be "
                "run in this sandbox. Install bubblewrap, or a Python in /usr/bin."
            )
        return executable

    async def run(
        self,
        command: Sequence[str],
        view: SandboxView,
        bounds: SandboxLimits | None = None,
        stdin: bytes = b"",
    ) -> ProgramResult:
        """Run a program to its end; who is cancelled ends it."""
        return await (await self.start(command, view, bounds, stdin)).wait()

    async def start(
        self,
        command: Sequence[str],
        view: SandboxView,
        bounds: SandboxLimits | None = None,
        stdin: bytes = b"",
    ) -> RunningProgram:
        """Start a program and return it."""
        within = bounds or SandboxLimits()
        names = _WorkspacePaths(view.workspace, inside=self.inside(view))
        try:
            plan = await asyncio.to_thread(self._plan, tuple(command), view, within)
        except OSError as error:
            raise SandboxError(
                "The program was not run: its folder could not be made ready "
                f"({names.in_error(error.strerror or type(error).__name__)})."
            ) from None
        read_end, write_end = os.pipe()
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
                    str(write_end),
                    stdin=asyncio.subprocess.PIPE if stdin else asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    pass_fds=(file.fileno(), write_end),
                    start_new_session=True,
                    env={},
                    cwd="/",
                )
        except BaseException:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        return RunningProgram(process, read_end, within, stdin, names)

    def _plan(
        self, command: tuple[str, ...], view: SandboxView, bounds: SandboxLimits
    ) -> dict[str, object]:
        prepare_workspace(view.workspace)
        plan = make_plan(self.kind, command, view, bounds, bwrap=self._bwrap)
        if plan["temporary"] != "/tmp":
            place = Path(plan["temporary"])
            place.mkdir(mode=0o700, exist_ok=True)
            if os.geteuid() == 0:
                os.chown(place, plan["user"], plan["group"])
        return plan


async def find_sandbox(wanted: Sequence[SandboxKind] = tuple(SandboxKind)[:3]) -> Sandbox:
    """Return the first wanted kind of sandbox that is found to work here."""
    faults: list[str] = []
    if sys.platform != "linux":
        faults.append("programs can be sandboxed on Linux only")
        wanted = [kind for kind in wanted if kind is SandboxKind.UNSANDBOXED]
    _remove_old_control_groups()
    for kind in wanted:
        bwrap = shutil.which("bwrap") or ""
        if kind is SandboxKind.BUBBLEWRAP and not bwrap:
            faults.append("bubblewrap is not installed")
            continue
        sandbox = Sandbox(kind, bwrap=bwrap, limitations=_limitations(kind))
        if kind is SandboxKind.UNSANDBOXED:
            return sandbox
        if not (fault := await _try(sandbox)):
            return sandbox
        faults.append(f"{kind.value}: {fault}")
    raise SandboxError(
        f"No sandbox works here ({'; '.join(faults)}), so no program was run. Install bubblewrap, "
        "use a kernel with Landlock (5.13 or later), or allow it in [sandbox] of asterism.toml."
    )


async def _try(sandbox: Sandbox) -> str:
    """Say what is wrong with a kind of sandbox here: it must run programs, and hide files."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o711)  # noqa: S103 - another user has to pass
        marker = Path(folder) / "marker"
        marker.write_text("seen")
        marker.chmod(0o644)
        script = 'cat "$0" 2>/dev/null; echo x > made && cat made'
        view = SandboxView(Path(folder) / "workspace")
        try:
            ran = await sandbox.run(
                ("/bin/sh", "-c", script, str(marker)),
                view,
                SandboxLimits(seconds=20, processes=64),
            )
        except (SandboxError, OSError) as error:
            return str(error)[:300]
    if b"seen" in ran.output:
        return "it does not hide files"
    if ran.exit_code != 0 or ran.output != b"x\n":
        return f"a program ended with {ran.exit_code} {ran.ended} {ran.text[:200]!r}"
    return ""


def _limitations(kind: SandboxKind) -> tuple[str, ...]:
    """Say what a kind of sandbox cannot do on this machine."""
    from asterism.tools.sandbox import kernel

    limitations: list[str] = []
    if kind is SandboxKind.UNSANDBOXED:
        return ("anything that you may, programs may, too: only time and sizes are limited",)
    if not control_groups():
        limitations.append("memory is limited for each process, not for all together")
    if not kernel.is_known_machine():
        limitations.append(f"system calls are not filtered on {kernel.MACHINE}")
    version = kernel.landlock_version()
    if kind is SandboxKind.NAMESPACES and not version:
        limitations.append("there is no Landlock beside the namespaces")
    if kind is SandboxKind.LANDLOCK:
        limitations.append("there is no /proc, and /tmp is a folder of the workspace")
        limitations.append("programs see the path of their folder, and with it that of the data")
        if version < 4:
            limitations.append("without a filter of system calls the network would be open")
    return tuple(limitations)


def _remove_old_control_groups() -> None:
    """Remove control groups that a killed process left; one in use cannot be removed."""
    for folder in control_groups():
        for group in Path(folder).glob("asterism-*"):
            with contextlib.suppress(OSError):
                group.rmdir()
