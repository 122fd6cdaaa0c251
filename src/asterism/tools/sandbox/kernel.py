"""The kernel's doors, through ctypes: namespaces, mounts, Landlock, seccomp, capabilities, limits.

It is loaded by the launcher, in a process that has nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct

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


# -- the system's files ---------------------------------------------------------------------------
# Which of them every program needs, and which only those with a network.

ETC_FILES = (
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "mime.types",
    "nsswitch.conf",
    "pki",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
ETC_NETWORK_FILES = ("gai.conf", "host.conf", "hosts", "resolv.conf")
DEVICES = ("null", "zero", "full", "random", "urandom")


def is_known_machine() -> bool:
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


def forbid_inspection() -> None:
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


def restrict_mount(target: str, *, writable: bool) -> None:
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

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x40))


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


# -- system calls --------------------------------------------------------------------------------
# Numbers of those that programs in the sandbox have no business with, from the kernel's tables for
# x86-64 and for the generic table that arm64 uses (Linux 6.18, 2026-11). From 424 on all
# architectures share their numbers.

CALLS_X86_64: dict[str, int] = {
    "clone": 56,
    "socket": 41,
    "ioctl": 16,
    "personality": 135,
    "setrlimit": 160,
    "prlimit64": 302,
    "shmget": 29,
    "shmat": 30,
    "shmctl": 31,
    "semget": 64,
    "semop": 65,
    "semctl": 66,
    "shmdt": 67,
    "msgget": 68,
    "msgsnd": 69,
    "msgrcv": 70,
    "msgctl": 71,
    "semtimedop": 220,
    "mq_open": 240,
    "mq_unlink": 241,
    "kill": 62,
    "tkill": 200,
    "tgkill": 234,
    "ptrace": 101,
    "syslog": 103,
    "mknod": 133,
    "ustat": 136,
    "sysfs": 139,
    "setpriority": 141,
    "sched_setparam": 142,
    "sched_setscheduler": 144,
    "vhangup": 153,
    "modify_ldt": 154,
    "pivot_root": 155,
    "adjtimex": 159,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "sethostname": 170,
    "setdomainname": 171,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "sched_setaffinity": 203,
    "lookup_dcookie": 212,
    "clock_settime": 227,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "ioprio_set": 251,
    "migrate_pages": 256,
    "mknodat": 259,
    "unshare": 272,
    "move_pages": 279,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "name_to_handle_at": 303,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "sched_setattr": 314,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
}

CALLS_ARM64: dict[str, int] = {
    "clone": 220,
    "socket": 198,
    "ioctl": 29,
    "personality": 92,
    "setrlimit": 164,
    "prlimit64": 261,
    "mq_open": 180,
    "mq_unlink": 181,
    "msgget": 186,
    "msgctl": 187,
    "msgrcv": 188,
    "msgsnd": 189,
    "semget": 190,
    "semctl": 191,
    "semtimedop": 192,
    "semop": 193,
    "shmget": 194,
    "shmctl": 195,
    "shmat": 196,
    "shmdt": 197,
    "kill": 129,
    "tkill": 130,
    "tgkill": 131,
    "ptrace": 117,
    "syslog": 116,
    "lookup_dcookie": 18,
    "ioprio_set": 30,
    "mknodat": 33,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "vhangup": 58,
    "quotactl": 60,
    "acct": 89,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "sched_setparam": 118,
    "sched_setscheduler": 119,
    "sched_setaffinity": 122,
    "setpriority": 140,
    "reboot": 142,
    "sethostname": 161,
    "setdomainname": 162,
    "settimeofday": 170,
    "adjtimex": 171,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "swapon": 224,
    "swapoff": 225,
    "migrate_pages": 238,
    "move_pages": 239,
    "perf_event_open": 241,
    "fanotify_init": 262,
    "name_to_handle_at": 264,
    "open_by_handle_at": 265,
    "clock_adjtime": 266,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "sched_setattr": 274,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}

CALLS_SHARED: dict[str, int] = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_send_signal": 424,
    "pidfd_open": 434,
    "clone3": 435,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "memfd_secret": 447,
    "process_mrelease": 448,
    "statmount": 457,
    "listmount": 458,
    "lsm_set_self_attr": 460,
    "open_tree_attr": 467,
}

NEWEST_CALL = 467
"""What is newer is unknown here, and answered as if the kernel did not have it."""

PROCESS_CALLS = (
    "kill",
    "tkill",
    "tgkill",
    "pidfd_send_signal",
    "setpriority",
    "ioprio_set",
    "migrate_pages",
    "move_pages",
    "process_madvise",
    "process_mrelease",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
)
"""Calls that reach other processes of the same user: refused where these are within sight."""

IPC_CALLS = (
    "shmget",
    "shmat",
    "shmctl",
    "shmdt",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
    "semget",
    "semop",
    "semtimedop",
    "semctl",
    "mq_open",
    "mq_unlink",
)
"""Shared memory, queues and semaphores: refused where they are those of the whole machine."""

CHECKED_CALLS = ("clone", "clone3", "socket", "ioctl", "personality", "setrlimit", "prlimit64")
"""Calls that are judged by their arguments."""


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
    table = {
        **(CALLS_X86_64 if MACHINE == "x86_64" else CALLS_ARM64),
        **CALLS_SHARED,
    }
    parts = [
        _i(_LD, _MACHINE_AT),
        _i(_JEQ, _ARCH[MACHINE], 1, 0),
        _i(_RET, _KILL),
        _i(_LD, _NUMBER),
        _i(_JGT, NEWEST_CALL, 0, 1),  # also the x32 calls of x86-64
        _refuse(_ENOSYS),
    ]
    refused = set(table) - set(CHECKED_CALLS) - {"pidfd_open"}
    if not others_in_sight:
        refused -= set(PROCESS_CALLS)
    if own_ipc:
        refused -= set(IPC_CALLS)
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
    known = [instruction for family in families for instruction in (_i(_JEQ, family, 0, 1), allow)]
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
