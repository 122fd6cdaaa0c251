"""The plan that the launcher carries out: all that a program may see and use, in plain values."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
import zlib
from pathlib import Path
from typing import Any

from asterism.private import make_directory
from asterism.sandbox.facts import NEEDED_FOR_NETWORK, NEEDED_OF_ETC
from asterism.sandbox.view import Bounds, Kind, View

INSIDE = "/workspace"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_GROUPS = Path("/sys/fs/cgroup")


def make_plan(
    kind: Kind, command: tuple[str, ...], view: View, bounds: Bounds, *, bwrap: str = ""
) -> dict[str, Any]:
    """Return the plan for a command."""
    from asterism.sandbox import kernel

    owner = view.workspace.stat()
    inside = INSIDE if kind in (Kind.BUBBLEWRAP, Kind.NAMESPACES) else str(view.workspace)
    version = kernel.landlock_version() if kind in (Kind.NAMESPACES, Kind.LANDLOCK) else 0
    own_network = inside == INSIDE and not view.network
    seccomp = b""
    if kind is not Kind.UNSANDBOXED and kernel.known_machine():
        seccomp = kernel.filter_program(
            internet=own_network or view.network,
            # Sockets of other programs have names that no mount hides, but a network namespace or
            # Landlock does.
            local=own_network or version >= 6,
            others_in_sight=inside != INSIDE and version < 6,
            own_ipc=inside == INSIDE,
        )
    readable, links = _system(view)
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
        "processes": bounds.processes + (0 if os.geteuid() == 0 else _mine(kind)),
        "open_files": bounds.open_files,
        "file_size": bounds.file_size,
        "disk": bounds.disk,
        "files": bounds.files,
        "scratch": bounds.scratch,
        "groups": control_groups(),
    }
    if kind is Kind.BUBBLEWRAP:
        plan["rebound"] = [str(view.workspace), *map(str, _further(view))]
        plan["bubblewrap"] = _bubblewrap(plan, bwrap)
    return plan


def python_inside() -> str:
    """Return the path of this Python as programs in the sandbox see it."""
    found = getattr(sys, "_base_executable", None) or sys.executable
    return os.path.realpath(found)


def _further(view: View) -> list[Path]:
    """Return the folders to be shown beside the system's: Python itself may live elsewhere."""
    prefix = Path(sys.base_prefix)
    wanted = (*view.readable, prefix, prefix.resolve())
    return [
        one
        for one in dict.fromkeys(wanted)
        if one.is_dir() and not any(one.is_relative_to(system) for system in _SYSTEM)
    ]


def _system(view: View) -> tuple[list[str], list[tuple[str, str]]]:
    """Return what is shown for reading, and which of the system's folders are links."""
    readable: list[str] = []
    links: list[tuple[str, str]] = []
    for path in _SYSTEM:
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            readable.append(path)
    readable += map(str, _further(view))
    return readable, links


def _mine(kind: Kind) -> int:
    """Return how many processes this user has, where they count for the limit of a program."""
    if kind is not Kind.LANDLOCK and kind is not Kind.UNSANDBOXED:
        return 0  # a user namespace counts for itself
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with contextlib.suppress(OSError):
            if name.isdecimal() and os.stat(f"/proc/{name}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{name}/task"))
    return count


def _bubblewrap(plan: dict[str, Any], bwrap: str) -> list[str]:
    words = [bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    if plan["network"]:
        words.append("--share-net")
    else:
        words += ["--hostname", "sandbox"]
    for path in plan["readable"]:
        words += ["--ro-bind", f"@SRC:{path}", path]
    for target, source in plan["links"]:
        words += ["--symlink", source, target]
    names = (*NEEDED_OF_ETC, *(NEEDED_FOR_NETWORK if plan["network"] else ()), "passwd", "group")
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
    found: list[str] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, names, path = line.split(":", 2)
            if {"memory", "pids"} & set(names.split(",")):
                found.append(f"{_GROUPS}/{names}{path}".rstrip("/"))
            if not names:
                for root in (_GROUPS, _GROUPS / "unified"):
                    place = Path(f"{root}{path}")
                    with contextlib.suppress(OSError):
                        given = (place / "cgroup.subtree_control").read_text().split()
                        if {"memory", "pids"} & set(given):
                            found.append(str(place).rstrip("/"))
    return [one for one in found if os.access(one, os.W_OK)]


def own_workspace(place: Path) -> None:
    """Make a workspace; root gives it to a user that owns nothing else."""
    make_directory(place.parent)
    make_directory(place)
    if os.geteuid() != 0 or place.stat().st_uid != 0:
        return
    # The same place gets the same user, and two places hardly ever share one.
    user = 1_000_000_000 + zlib.crc32(str(place).encode()) % 500_000_000
    for one in (user, 65534):
        try:
            os.chown(place, one, one)
        except OSError:
            continue  # a number that this container does not have
        for root, folders, files in os.walk(place):
            for name in (*folders, *files):
                with contextlib.suppress(OSError):
                    os.chown(os.path.join(root, name), one, one, follow_symlinks=False)
        # That user has to get there: through the data directory, of which it sees nothing else.
        for above in place.parents[:2]:
            above.chmod(stat.S_IMODE(above.stat().st_mode) | 0o001)
        return
