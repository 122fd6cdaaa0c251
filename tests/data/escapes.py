"""Run within the sandbox: tries to get out, and prints ESCAPED for each way that works."""
# pyright: basic

import ctypes
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

target = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
WAYS = []


def way(function):
    WAYS.append(function)
    return function


def syscall(number, *arguments):
    if libc.syscall(number, *arguments) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return True


@way
def read_shadow():
    return "root:" in Path("/etc/shadow").read_text() or True


@way
def read_data():
    return Path(target["secret"]).read_text()


@way
def list_data():
    return os.listdir(os.path.dirname(target["secret"]))


@way
def list_home():
    return [name for name in os.listdir(target["home"]) if name not in (".local", ".pyenv")]


@way
def see_parent():
    return Path(f"/proc/{target['pid']}/environ").read_bytes()


@way
def see_memory():
    return open(f"/proc/{target['pid']}/mem", "rb")


@way
def see_any_environment():
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                if b"SECRET_OF_HOME" in Path(f"/proc/{name}/environ").read_bytes():
                    return name
            except OSError:
                pass
    return None


@way
def inherited_environment():
    return "SECRET_OF_HOME" in os.environ


@way
def inherited_descriptor():
    for number in range(3, 64):
        try:
            os.fstat(number)
        except OSError:
            continue
        kind = os.readlink(f"/proc/self/fd/{number}")
        if "escapes.py" not in kind:
            return kind
    return None


@way
def loopback():
    return socket.create_connection(("127.0.0.1", target["port"]), 2)


@way
def loopback_6():
    return socket.create_connection(("::1", target["port"]), 2)


@way
def outside():
    return socket.create_connection(("1.1.1.1", 53), 2)


@way
def outside_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        return one.sendto(b"x", ("1.1.1.1", 53))


@way
def abstract_socket():
    one = socket.socket(socket.AF_UNIX)
    one.connect("\0" + target["abstract"])
    return True


@way
def named_socket():
    one = socket.socket(socket.AF_UNIX)
    one.connect(target["socket"])
    return True


@way
def other_families():
    for family in (16, 17, 38, 40):  # netlink, packet, alg, vsock
        try:
            socket.socket(family, socket.SOCK_RAW if family < 20 else socket.SOCK_STREAM)
        except OSError:
            continue
        return family
    return None


@way
def write_outside():
    for place in ("/usr/x", "/etc/x", "/x", "/proc/sys/kernel/hostname", target["secret"]):
        try:
            with open(place, "a") as file:
                file.write("x")
        except OSError:
            continue
        return place
    return None


@way
def by_symlink():
    os.symlink(target["secret"], "link")
    return Path("link").read_text()


@way
def by_root_of_process():
    for number in ("self", "1", str(target["pid"]), str(os.getppid())):
        for folder in ("root", "cwd"):
            try:
                return Path(f"/proc/{number}/{folder}{target['secret']}").read_text()
            except OSError:
                continue
    return None


@way
def by_dots():
    return Path("../" * 30 + target["secret"].lstrip("/")).read_text()


@way
def by_descriptors_of_first():
    shown = [os.readlink(f"/proc/1/fd/{name}") for name in os.listdir("/proc/1/fd")]
    return [one for one in shown if one.startswith("/") and one != "/dev/null"]


@way
def by_handle():
    # A handle of the root of a file system: type 1 (32 bits of inode and generation).
    handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0")
    return syscall(304, os.open(".", os.O_RDONLY), handle, 0)


@way
def setuid_program():
    for program in ("/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/sudo"):
        found = subprocess.run(
            ["/bin/sh", "-c", f"{program} --help >/dev/null 2>&1; grep CapEff /proc/self/status"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
        if found and int(found.split()[1], 16):
            return found
    return os.geteuid() == 0 or None


@way
def own_setuid_file():
    Path("own").write_bytes(Path("/bin/true").read_bytes())
    os.chown("own", 0, 0)
    return True


@way
def become_root():
    os.setuid(0)
    return True


@way
def trace_parent():
    return syscall(101, 16, target["pid"], 0, 0)


@way
def read_memory_of_parent():
    return syscall(310, target["pid"], 0, 0, 0, 0, 0)


@way
def kill_parent():
    os.kill(target["pid"], signal.SIGUSR1)
    return True


@way
def kill_all():
    os.kill(-1, signal.SIGCONT)
    return syscall(62, target["pid"], 0)


@way
def limit_parent():
    import resource

    resource.prlimit(target["pid"], resource.RLIMIT_NOFILE, (3, 3))
    return True


@way
def slow_parent():
    os.setpriority(os.PRIO_PROCESS, target["pid"], 19)
    return True


@way
def mount():
    return libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0 or None


@way
def new_user_namespace():
    return libc.unshare(0x10000000) == 0 or None


@way
def new_user_namespace_by_clone():
    done = libc.syscall(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if done == 0:
        os._exit(0)
    return done > 0 or None


@way
def new_user_namespace_by_clone3():
    body = (ctypes.c_uint64 * 8)(0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    done = libc.syscall(435, body, 64)
    if done == 0:
        os._exit(0)
    return done > 0 or None


@way
def other_root():
    os.chroot("/tmp")
    return True


@way
def keyring():
    return syscall(250, 0, -3, 0) if os.uname().machine == "x86_64" else None


@way
def bpf():
    return syscall(321, 0, None, 0)


@way
def io_uring():
    return syscall(425, 8, ctypes.create_string_buffer(256))


@way
def perf():
    return syscall(298, ctypes.create_string_buffer(128), 0, -1, -1, 0)


@way
def device():
    os.mknod("disk", 0o60600, os.makedev(8, 0))
    return True


@way
def old_calls():
    """Calls of 32-bit programs would pass a filter that knows the 64-bit ones only."""
    if os.uname().machine != "x86_64":
        return None
    child = os.fork()
    if child == 0:
        # mov eax, 20 (getpid); int 0x80; ret
        code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        got = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(7 if got > 0 else 0)
    _, status = os.waitpid(child, 0)
    return True if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7 else None


@way
def x32_calls():
    return syscall(0x40000000 + 39) if os.uname().machine == "x86_64" else None


@way
def type_into_terminal():
    import fcntl

    _, replica = os.openpty()
    fcntl.ioctl(replica, 0x5412, b"x")
    return True


def called(done):
    if done in (-1, None):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return done


@way
def shared_memory():
    libc.shmat.restype = ctypes.c_void_p
    place = libc.shmat(called(libc.shmget(target["ipc"], 0, 0)), None, 0o10000)
    return ctypes.string_at(place, 16) if place not in (None, 2**64 - 1) else None


@way
def own_shared_memory():
    """In the host's namespace it would outlast the program, beside all bounds."""
    found = called(libc.shmget(target["ipc"] + 1, 4096, 0o1600))
    return found if target["ipc_is_shared"] else libc.shmctl(found, 0, None) and None


@way
def message_queue():
    return called(libc.msgget(target["ipc"], 0)) + 1


@way
def semaphores():
    return called(libc.semget(target["ipc"], 0, 0)) + 1


@way
def named_queue():
    return called(libc.mq_open(target["queue"].encode(), os.O_RDONLY))


@way
def remove_named_queue():
    return called(libc.mq_unlink(target["queue"].encode())) == 0


@way
def drop_of_memory():
    """With a limit of 0 a crash is still handed to a program that the host has for it."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return resource.getrlimit(resource.RLIMIT_CORE) != (1, 1)


def attempt(function):
    try:
        got = function()
    except (OSError, ValueError, AttributeError) as error:
        return f"held {function.__name__} ({type(error).__name__})"
    if got in (None, False, []):
        return f"held {function.__name__}"
    return f"ESCAPED {function.__name__}: {got!r:.80}"


for one in WAYS:
    print(attempt(one), flush=True)
print(f"tried {len(WAYS)}")
