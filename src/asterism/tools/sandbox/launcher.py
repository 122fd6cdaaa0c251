"""The launcher: a process of its own that shuts itself in, and then becomes the program.

It is started as a script with nothing but the standard library, so that nothing of the home's
memory is in it. It reads a plan from one descriptor, and on another says what became of it:
`failed …`, or `exit N`, `time`, `disk`, `files`, `memory`, `stopped`.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import resource
import select
import signal
import stat
import sys
import time

TYPE_CHECKING = False  # typing itself would add some milliseconds to each start
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from asterism.tools.sandbox import kernel

    Plan = dict[str, Any]
else:  # beside this file, since a script does not know the package
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import kernel

_stops: list[str] = []
"""Why the program has to end before its time; the first reason counts."""
INSIDE = "/workspace"
_FIRST_LOOK, _LOOK_EVERY = 0.1, 0.5


def _stopped(_: int, __: object) -> None:
    _stops.append("stopped")


def main() -> None:
    """Read the plan, carry it out and tell."""
    signal.signal(signal.SIGTERM, _stopped)
    source, report = int(sys.argv[1]), int(sys.argv[2])
    with os.fdopen(source, "rb") as plan_file:
        plan: Plan = marshal.loads(plan_file.read())  # noqa: S302 - of our own making
    os.set_inheritable(report, False)  # noqa: FBT003 - it takes no name
    try:
        # Not killed, it ends the program with all that it has started.
        kernel.die_with_parent(signal.SIGTERM)
        group = _enter_control_group(plan)
        try:
            outcome = _launch(plan)
            if outcome == "exit 137" and any(map(_out_of_memory, group)):
                outcome = "memory"
        finally:
            _leave_control_group(group)
    except Exception as error:  # noqa: BLE001 - whoever asked is told, whatever it is
        outcome = f"failed {type(error).__name__}: {error}"
    os.write(report, outcome.encode()[:4_000])


def _launch(plan: Plan) -> str:
    """Start the program shut in as planned, wait for its end, and say how it ended."""
    if plan["kind"] == "bubblewrap":
        return _watch(plan, _fork(lambda: _bubblewrap(plan)))
    if plan["kind"] == "namespaces":
        _enter_namespaces(plan)
        child = _fork(lambda: _run_as_init(plan))
    else:
        # Orphans come to this process, so that none survives the program.
        kernel.adopt_orphans()
        child = _fork(lambda: _become_program(plan))
    outcome = _watch(plan, child)
    if plan["kind"] != "namespaces":
        _end_descendants()
    return outcome


def _fork(then: Any) -> int:
    """Return the number of a child that does `then` and nothing else."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_end)
        try:
            then()
        except BaseException as error:  # noqa: BLE001 - the launcher is told
            os.write(write_end, f"{type(error).__name__}: {error}".encode()[:3_000])
        os._exit(125)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as reading:
        # Ends when the program is started, since both ends are closed by that.
        problem = reading.read()
    if problem:
        os.waitpid(child, 0)
        raise OSError(problem.decode("utf-8", "replace"))
    return child


# -- the end of it --------------------------------------------------------------------------------


def _watch(plan: Plan, child: int) -> str:
    """Wait for the program; end it when its time is up or its folder too full."""
    ends = time.monotonic() + plan["seconds"] if plan["seconds"] else float("inf")
    look = time.monotonic() + _FIRST_LOOK
    room = _WorkspaceSize(plan)
    stop = _stops
    handle = os.pidfd_open(child)
    while not _ended(handle, min(ends, look)):
        now = time.monotonic()
        if now >= ends:
            stop.append("time")
        elif now >= look:
            if full := room.look():
                stop.append(full)
            # A large folder takes long to look through, and is looked at less often, unless it
            # fills up quickly.
            took = time.monotonic() - now
            look = time.monotonic() + max(_LOOK_EVERY, took * (2 if room.is_filling else 20))
        if stop:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
            break
    _, status = os.waitpid(child, 0)
    if stop:
        return stop[0]
    signalled = os.WIFSIGNALED(status)
    return f"exit {128 + os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status)}"


class _WorkspaceSize:
    """What the workspace holds, against what it may hold.

    A program that finds it too full may go on while it makes room.
    """

    def __init__(self, plan: Plan) -> None:
        self._place: str = plan["workspace"]
        self._limits: dict[str, int] = {
            name: plan[name] for name in ("disk", "files") if plan[name]
        }
        self._before: dict[str, int] = {}
        self.is_filling = False
        """Whether a tenth of what fits was added since the look before."""

    def look(self) -> str:
        """Return what there is too much of, or nothing."""
        size, count = disk_usage(self._place, self._limits)
        current: dict[str, int] = {"disk": size, "files": count}
        before, self._before = self._before, current
        self.is_filling = any(
            current[name] - before.get(name, 0) > limit // 10
            for name, limit in self._limits.items()
        )
        for name, limit in self._limits.items():
            if current[name] > limit and current[name] >= before.get(name, sys.maxsize):
                return name
        return ""


def _ended(handle: int, until: float) -> bool:
    """Wait until a process has ended, a signal has come, or a time is reached."""
    # A signal that only notes something does not end a wait by itself, so waits are short.
    wait = max(0.0, min(until - time.monotonic(), 0.1))
    return bool(select.select([handle], [], [], wait)[0])


def disk_usage(place: str, limits: dict[str, int]) -> tuple[int, int]:
    """Return how many bytes a folder takes up on the disk, and how many files it holds.

    It is counted beyond what it may hold, to see it grow or shrink there, but not endlessly.
    """
    total, count, waiting = 0, 0, [place]
    last, last_file = (4 * limits.get(name, sys.maxsize) for name in ("disk", "files"))
    while waiting and total <= last and count <= last_file:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                count += 1
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    total += status.st_blocks * 512 + 256
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
    return total, count


def _end_descendants() -> None:
    """Kill whoever is left below this process, also those that made a session of their own."""
    own = os.getpid()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        remaining = _descendants(own)
        if not remaining:
            return
        for pid in remaining:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _descendants(root: int) -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                parents[int(name)] = int(fields[1])
    descendants = {root}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in descendants} - descendants
        grown = bool(more)
        descendants |= more
    return sorted(descendants - {root})


# -- an own view ----------------------------------------------------------------------------------


def _enter_namespaces(plan: Plan) -> None:
    flags = kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS | kernel.CLONE_NEWPID
    if not plan["network"]:
        flags |= kernel.CLONE_NEWNET
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        kernel.unshare(flags)
        return
    kernel.unshare(flags | kernel.CLONE_NEWUSER)
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{file}", "w") as mapping:
            mapping.write(text)


def _run_as_init(plan: Plan) -> NoReturn:
    """Be the first process of the namespaces: arrange the view, start the program, reap."""
    kernel.die_with_parent()
    if not plan["network"]:
        kernel.loopback_up()
    # Only now, since the launcher still has to see the files of the system.
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWCGROUP)
    _make_root(plan)
    _become_owner(plan)
    kernel.drop_capabilities()
    kernel.no_new_privileges()
    # A change of user lets go of both.
    kernel.die_with_parent()
    kernel.forbid_inspection()
    child = _fork(lambda: _become_program(plan))
    # The launcher waits for both ends of its pipe to be closed.
    os.closerange(3, 4096)
    while True:
        done, status = os.waitpid(-1, 0)
        if done == child:
            # With the first process, the kernel ends all others of the namespace.
            os._exit(
                128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            )


def _make_root(plan: Plan) -> None:
    """Make a root with the system's programs, the workspace and nothing else."""
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
    root = "/tmp"
    sources = _open_sources(plan)
    plain = kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount("tmpfs", root, "tmpfs", plain, "mode=755,size=4m,nr_inodes=4096")
    for target, source in sources:
        _bind(source, root + target, writable=target == INSIDE)
    for target, source in plan["links"]:
        _parent(root + target)
        os.symlink(source, root + target)
    _make_etc(plan, root)
    _make_devices(root, plan)
    os.makedirs(f"{root}/proc", exist_ok=True)
    # Within some containers it is refused; programs do without, and never see the one outside.
    with contextlib.suppress(PermissionError):
        kernel.mount("proc", f"{root}/proc", "proc", plain | kernel.MS_NOEXEC | kernel.MS_RDONLY)
    os.makedirs(f"{root}/tmp", exist_ok=True)
    room = f"mode=1777,size={plan['scratch']},nr_inodes=65536"
    kernel.mount("tmpfs", f"{root}/tmp", "tmpfs", plain, room)
    kernel.change_root(root)
    kernel.mount("none", "/", flags=kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | plain)


def _open_sources(plan: Plan) -> list[tuple[str, str]]:
    """Return what is shown as (where, source), each source by a descriptor that outlasts mounts.

    The new root covers /tmp, and what is to be shown may lie there.
    """
    visible = [(path, path) for path in plan["readable"]]
    names = kernel.ETC_FILES + (kernel.ETC_NETWORK_FILES if plan["network"] else ())
    visible += [(f"/etc/{name}", f"/etc/{name}") for name in names]
    visible.append((INSIDE, plan["workspace"]))
    sources: list[tuple[str, str]] = []
    for target, source in visible:
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(source, os.O_PATH | os.O_CLOEXEC)
            sources.append((target, f"/proc/self/fd/{handle}"))
    return sources


def _bind(source: str, target: str, *, writable: bool) -> None:
    if stat.S_ISDIR(os.stat(source).st_mode):
        os.makedirs(target, exist_ok=True)
    else:
        _parent(target)
        with open(target, "wb"):
            pass
    kernel.mount(source, target, flags=kernel.MS_BIND | kernel.MS_REC)
    kernel.restrict_mount(target, writable=writable)


def _parent(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)


def _make_etc(plan: Plan, root: str) -> None:
    os.makedirs(f"{root}/etc", exist_ok=True)
    user, group = plan["user"], plan["group"]
    lines = {
        "passwd": f"root:x:0:0:root:/:/bin/false\nagent:x:{user}:{group}::{INSIDE}:/bin/sh\n",
        "group": f"root:x:0:\nagent:x:{group}:\n",
        "hostname": "sandbox\n",
    }
    if not plan["network"]:
        lines["hosts"] = "127.0.0.1 localhost sandbox\n::1 localhost\n"
    for name, text in lines.items():
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(text)


def _make_devices(root: str, plan: Plan) -> None:
    os.makedirs(f"{root}/dev/shm", exist_ok=True)
    for name in kernel.DEVICES:
        target = f"{root}/dev/{name}"
        with open(target, "wb"):
            pass
        kernel.mount(f"/dev/{name}", target, flags=kernel.MS_BIND)
    for name, source in (
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        os.symlink(source, f"{root}/dev/{name}")
    flags = kernel.MS_NOSUID | kernel.MS_NODEV
    room = f"mode=1777,size={plan['scratch']},nr_inodes=65536"
    kernel.mount("tmpfs", f"{root}/dev/shm", "tmpfs", flags, room)


# -- becoming the program -------------------------------------------------------------------------


def _become_owner(plan: Plan) -> None:
    """Become the owner of the workspace, if this is root."""
    if os.geteuid() == 0 and plan["user"] != 0:
        os.setgroups([])
        os.setresgid(plan["group"], plan["group"], plan["group"])
        os.setresuid(plan["user"], plan["user"], plan["user"])


def _become_program(plan: Plan) -> NoReturn:
    """Take limits and locks upon this process, and become the program."""
    kernel.die_with_parent()
    _set_limits(plan)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # should memory run out, it is the program that ends
    os.chdir(plan["inside"])
    shut_in = plan["kind"] != "unsandboxed"
    kernel.no_new_privileges()
    if shut_in and plan["landlock"]:
        _apply_landlock(plan)
    _become_owner(plan)
    if shut_in:
        kernel.drop_capabilities()
    # A change of user lets go of it.
    kernel.die_with_parent()
    for number in (signal.SIGPIPE, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.umask(0o077)
    if shut_in and plan["seccomp"]:
        kernel.restrict_calls(bytes.fromhex(plan["seccomp"]))
    os.execve(plan["command"][0], plan["command"], plan["environment"])


def _apply_landlock(plan: Plan) -> None:
    own = plan["kind"] == "namespaces"
    if own:
        readable, writable = ["/"], ["/tmp", "/dev", INSIDE]
    else:
        of_etc = (*kernel.ETC_FILES, *kernel.ETC_NETWORK_FILES, "passwd", "group")
        readable = [*plan["readable"], *(f"/etc/{name}" for name in of_etc)]
        devices = [f"/dev/{name}" for name in kernel.DEVICES]
        writable = [plan["workspace"], plan["temporary"], *devices]
    network = plan["network"]
    kernel.landlock(readable, writable, network=network, own_network=own and not network)


def _set_limits(plan: Plan) -> None:
    """Set what one process may use; a soft limit first, so that it sees it."""
    cpu, memory = plan["cpu_seconds"], plan["memory"]
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, cpu, cpu + 2),
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_NPROC, plan["processes"], plan["processes"]),
        (resource.RLIMIT_NOFILE, plan["open_files"], plan["open_files"]),
        (resource.RLIMIT_FSIZE, plan["file_size"], plan["file_size"]),
        # At 0 a crash would still be handed to a program of the host (core_pattern with a pipe);
        # 1 byte is too little for both. A file of 1 byte is not written. core(5), 2026-11.
        (resource.RLIMIT_CORE, 1, 1),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
    ):
        hard_limit = _hard_limit(kind, hard)
        bound = sys.maxsize if hard_limit == resource.RLIM_INFINITY else hard_limit
        resource.setrlimit(kind, (min(soft, bound), min(hard, bound)))


def _hard_limit(kind: int, wanted: int) -> int:
    """Return how far a limit can be set; root can also raise it."""
    hard_limit = resource.getrlimit(kind)[1]
    if 0 <= hard_limit < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(kind, (wanted, wanted))
            return wanted
    return hard_limit


def _bubblewrap(plan: Plan) -> NoReturn:
    """Let bubblewrap arrange the view; limits and the user are set before."""
    kernel.die_with_parent()
    rebound = _rebind_folders(plan) if os.geteuid() == 0 and plan["user"] != 0 else {}
    _set_limits(plan)
    _become_owner(plan)
    kernel.die_with_parent()
    program = os.memfd_create("filter", 0)
    os.write(program, bytes.fromhex(plan["seccomp"]))
    os.lseek(program, 0, os.SEEK_SET)
    words: list[str] = [str(program) if word == "@SECCOMP" else word for word in plan["bubblewrap"]]
    places = [
        rebound.get(word[5:], word[5:]) if word.startswith("@SRC:") else word for word in words
    ]
    os.execve(places[0], [*places, "--", *plan["command"]], {})


def _rebind_folders(plan: Plan) -> dict[str, str]:
    """Make what is shown reachable for an ordinary user, whoever may pass the folders above it."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_SLAVE)
    places = {path: os.open(path, os.O_PATH) for path in plan["rebound"]}
    kernel.mount("tmpfs", "/tmp", "tmpfs", 0, "mode=755,size=1m")
    rebound: dict[str, str] = {}
    for index, (path, handle) in enumerate(places.items()):
        rebound[path] = f"/tmp/{index}"
        os.mkdir(rebound[path])
        kernel.mount(f"/proc/self/fd/{handle}", rebound[path], flags=kernel.MS_BIND | kernel.MS_REC)
        os.close(handle)
    return rebound


# -- a control group of its own -------------------------------------------------------------------


def _enter_control_group(plan: Plan) -> list[str]:
    """Enter a control group that bounds all processes together, where one can be made."""
    groups: list[str] = []
    for folder in plan["groups"]:
        place = f"{folder}/asterism-{plan['id']}"
        with contextlib.suppress(OSError):
            os.mkdir(place)
            groups.append(place)
            for name, value in (
                ("memory.max", plan["memory_in_all"]),
                ("memory.swap.max", 0),
                ("memory.limit_in_bytes", plan["memory_in_all"]),
                ("pids.max", plan["processes"] + 4),
            ):
                if os.path.exists(f"{place}/{name}"):
                    with contextlib.suppress(OSError), open(f"{place}/{name}", "w") as file:
                        file.write(str(value))
            with open(f"{place}/cgroup.procs", "w") as file:
                file.write(str(os.getpid()))
    return groups


def _out_of_memory(place: str) -> bool:
    """Tell whether the kernel ended a process of the group for want of memory."""
    for name in ("memory.events", "memory.oom_control"):
        with contextlib.suppress(OSError), open(f"{place}/{name}") as file:
            for line in file:
                if line.startswith("oom_kill ") and int(line.split()[1]):
                    return True
    return False


def _leave_control_group(groups: list[str]) -> None:
    for place in groups:
        above = os.path.dirname(place)
        with contextlib.suppress(OSError), open(f"{above}/cgroup.procs", "w") as file:
            file.write(str(os.getpid()))
        for _ in range(50):
            # What was killed stays in the group until the kernel is done with it.
            try:
                os.rmdir(place)
            except OSError:
                time.sleep(0.01)
            else:
                break


if __name__ == "__main__":
    main()
