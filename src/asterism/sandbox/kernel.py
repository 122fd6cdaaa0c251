"""The kernel's doors, through ctypes: namespaces, mounts, Landlock, seccomp, capabilities, limits.

It is loaded by the launcher, in a process that has nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

TYPE_CHECKING = False  # typing itself would add some milliseconds to each start
if TYPE_CHECKING:
    from asterism.sandbox import calls
else:  # beside this file, since the launcher does not know the package
    try:
        import calls
    except ImportError:
        from asterism.sandbox import calls

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x00020000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 32, 4096, 16384, 1 << 19
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_SYS = {
    "x86_64": {"pivot_root": 155, "capset": 126, "seccomp": 317},
    "aarch64": {"pivot_root": 41, "capset": 91, "seccomp": 277},
}
_SYS_MOUNT_SETATTR = 442
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MACHINE = os.uname().machine


def known_machine() -> bool:
    """Tell whether numbers of system calls are known for this machine."""
    return MACHINE in _ARCH


def _call(number: int, *arguments: object) -> int:
    done: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if done < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"system call {number}: {os.strerror(error)}")
    return done


def _check(done: int, what: str) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int, third: int = 0) -> None:
    """Set something about this process."""
    zero = ctypes.c_ulong(0)
    _check(
        _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(third), zero, zero),
        f"prctl {option}",
    )


def die_with_parent(number: int = 9) -> None:
    """Get a signal, by default the deadly one, when the process that started this one ends."""
    prctl(_PR_SET_PDEATHSIG, number)


def hide() -> None:
    """Let nobody of the same user look into this process."""
    prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Become the parent of descendants whose own has ended."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """Make setuid programs powerless, for good."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def unshare(flags: int) -> None:
    """Leave the namespaces of the parent."""
    _check(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system."""
    done = _libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(done, f"mount {target}")


def seal(target: str, *, writable: bool) -> None:
    """Take setuid, devices and (unless writable) writing from a mount and all below it."""
    attributes = 0x2 | 0x4 | (0 if writable else 0x1)
    body = struct.pack("=QQQQ", attributes, 0, 0, 0)
    _call(
        _SYS_MOUNT_SETATTR,
        ctypes.c_int(_AT_FDCWD),
        ctypes.c_char_p(target.encode()),
        ctypes.c_uint(_AT_RECURSIVE),
        ctypes.c_char_p(body),
        ctypes.c_size_t(len(body)),
    )


def change_root(place: str) -> None:
    """Make a folder the root, with nothing of the old one left."""
    os.chdir(place)
    here = ctypes.c_char_p(b".")
    _call(_SYS[MACHINE]["pivot_root"], here, here)
    _check(_libc.umount2(b".", _MNT_DETACH), "umount the old root")
    os.chdir("/")


def loopback_up() -> None:
    """Switch on the loopback of an own network namespace."""
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


def drop_capabilities() -> None:
    """Give away every capability, also those that a program could bring."""
    for capability in range(64):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            break  # beyond the last that there is, or not allowed and so of no use
    with contextlib.suppress(OSError):
        prctl(_PR_CAP_AMBIENT, 4)
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    nothing = ctypes.create_string_buffer(bytes(24))
    _call(_SYS[MACHINE]["capset"], header, nothing)


# -- Landlock -------------------------------------------------------------------------------------

# https://docs.kernel.org/userspace-api/landlock.html (2026-11): rights by version of the interface.
_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 2, 4, 8
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | (1 << 14) | (1 << 15)
_READING = _EXECUTE | _READ | _READ_DIR


def landlock_version() -> int:
    """Return the version of Landlock's interface; 0 if the kernel has none or does not use it."""
    try:
        return _call(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(1))
    except OSError:
        return 0


def landlock(readable: list[str], writable: list[str], *, network: bool, own_network: bool) -> None:
    """Restrict this process and its descendants to these folders and files, for good."""
    version = landlock_version()
    rights = (1 << 13) - 1
    rights |= (1 << 13) if version >= 2 else 0
    rights |= (1 << 14) if version >= 3 else 0
    rights |= (1 << 15) if version >= 5 else 0
    tcp = 3 if version >= 4 and not network and not own_network else 0
    # Abstract sockets and signals of processes outside of the sandbox.
    scope = 3 if version >= 6 else 0
    body = struct.pack("=QQQ", rights, tcp, scope)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(
        _LANDLOCK_CREATE, ctypes.c_char_p(body), ctypes.c_size_t(size), ctypes.c_uint(0)
    )
    for path in readable:
        _allow(ruleset, path, _READING & rights)
    for path in writable:
        _allow(ruleset, path, rights & ~((1 << 6) | (1 << 11)))  # no devices
    _call(_LANDLOCK_RESTRICT, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    import stat

    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no right
    if not stat.S_ISDIR(os.fstat(handle).st_mode):
        rights &= _FILE_RIGHTS
    body = struct.pack("=Qi", rights, handle)
    _call(
        _LANDLOCK_ADD,
        ctypes.c_int(ruleset),
        ctypes.c_int(1),
        ctypes.c_char_p(body),
        ctypes.c_uint(0),
    )
    os.close(handle)


# -- seccomp --------------------------------------------------------------------------------------

_LD, _JEQ, _JGT, _JSET, _RET = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_NEW_NAMESPACES = 0x7E020000
_NUMBER, _MACHINE_AT, _FIRST, _SECOND, _THIRD = 0, 4, 16, 24, 32
_ALL_BITS, _LIMIT_OF_CORES = 0xFFFFFFFF, 4
_LOCAL, _INTERNET = (1,), (2, 10)


def _i(code: int, k: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, k)


def _refuse(error: int) -> bytes:
    return _i(_RET, _ERROR | error)


def filter_program(*, internet: bool, local: bool, others_in_sight: bool, own_ipc: bool) -> bytes:
    """Assemble the filter of system calls.

    Args:
        internet: Sockets of the internet may be made.
        local: Sockets of this machine may be made.
        others_in_sight: Processes outside of the sandbox can be reached by their number.
        own_ipc: Shared memory, queues and semaphores are those of the sandbox alone.
    """
    table = {**(calls.X86_64 if MACHINE == "x86_64" else calls.ARM64), **calls.SHARED}
    parts = [
        _i(_LD, _MACHINE_AT),
        _i(_JEQ, _ARCH[MACHINE], 1, 0),
        _i(_RET, _KILL),
        _i(_LD, _NUMBER),
        _i(_JGT, calls.NEWEST, 0, 1),  # also the x32 calls of x86-64
        _refuse(_ENOSYS),
    ]
    refused = set(table) - set(calls.JUDGED) - {"pidfd_open"}
    if not others_in_sight:
        refused -= set(calls.AT_OTHERS)
    if own_ipc:
        refused -= set(calls.BETWEEN_PROGRAMS)
    for name in sorted(refused):
        parts += [_i(_JEQ, table[name], 0, 1), _refuse(_EPERM)]
    # The flags of clone3 are out of a filter's sight; told that it is missing, libraries use clone.
    parts += [_i(_JEQ, table["clone3"], 0, 1), _refuse(_ENOSYS)]

    def judge(name: str, *body: bytes) -> None:
        parts.append(_i(_JEQ, table[name], 0, len(body)))
        parts.extend(body)

    allow, forbid = _i(_RET, _ALLOW), _refuse(_EPERM)
    judge("clone", _i(_LD, _FIRST), _i(_JSET, _NEW_NAMESPACES, 0, 1), forbid, allow)
    families = (*(_LOCAL if local else ()), *(_INTERNET if internet else ()))
    known = [one for family in families for one in (_i(_JEQ, family, 0, 1), allow)]
    judge("socket", _i(_LD, _FIRST), *known, _refuse(_EAFNOSUPPORT))
    # Both type into a terminal.
    tiocsti, tioclinux = _i(_JEQ, 0x5412, 0, 1), _i(_JEQ, 0x541C, 0, 1)
    judge("ioctl", _i(_LD, _SECOND), tiocsti, forbid, tioclinux, forbid, allow)
    usual = (_i(_JEQ, 0, 1, 0), _i(_JEQ, 0xFFFFFFFF, 0, 1))
    judge("personality", _i(_LD, _FIRST), *usual, allow, forbid)
    # The limit of core files stays at 1 (see the launcher). Some programs end if they cannot set
    # it to 0, so that they are told that it is done.
    done = _refuse(0)
    judge("setrlimit", _i(_LD, _FIRST), _i(_JEQ, _LIMIT_OF_CORES, 0, 1), done, allow)
    cores = (
        _i(_LD, _SECOND),
        _i(_JEQ, _LIMIT_OF_CORES, 0, 5),
        # The third argument is where the new limit stands; 0: it is only asked for.
        _i(_LD, _THIRD),
        _i(_JSET, _ALL_BITS, 2, 0),
        _i(_LD, _THIRD + 4),
        _i(_JSET, _ALL_BITS, 0, 1),
        done,
    )
    whose = (_i(_LD, _FIRST), _i(_JEQ, 0, 0, 1), allow, forbid) if others_in_sight else (allow,)
    judge("prlimit64", *cores, *whose)
    parts.append(allow)
    return b"".join(parts)


def restrict_calls(program: bytes) -> None:
    """Put a filter of system calls in force for this process and its descendants, for good."""
    code = ctypes.create_string_buffer(program, len(program))
    fields = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    head = ctypes.create_string_buffer(fields, len(fields))
    _call(_SYS[MACHINE]["seccomp"], ctypes.c_uint(1), ctypes.c_uint(0), head)
