"""The sandbox: whoever tries to get out stays in, within bounds, and the home is unharmed."""

import asyncio
import contextlib
import ctypes
import getpass
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path

import pytest

from asterism.errors import SandboxError
from asterism.tools.sandbox import (
    ProgramResult,
    Sandbox,
    SandboxKind,
    SandboxLimits,
    SandboxView,
    find_sandbox,
)

ESCAPES = Path(__file__).parents[1] / "data" / "escapes.py"
KINDS = [SandboxKind.BUBBLEWRAP, SandboxKind.NAMESPACES, SandboxKind.LANDLOCK]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.value)
async def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    try:
        return await find_sandbox([request.param])
    except SandboxError as error:
        # Every machine has one of them at least; `test_one_of_them_works_here` sees to it.
        pytest.skip(error.message)


@pytest.fixture
def view(tmp_path: Path) -> SandboxView:
    for folder in (tmp_path, *tmp_path.parents):
        if f"pytest-of-{getpass.getuser()}" in folder.parts:
            folder.chmod(0o711)  # so that another user can pass
    return SandboxView(tmp_path / "data" / "workspaces" / "agent_1")


async def shell(
    sandbox: Sandbox, view: SandboxView, script: str, bounds: SandboxLimits | None = None
) -> ProgramResult:
    return await sandbox.run(("/bin/sh", "-c", script), view, bounds)


async def python(
    sandbox: Sandbox, view: SandboxView, script: str, bounds: SandboxLimits | None = None
) -> ProgramResult:
    return await sandbox.run((sandbox.python(), "-I", "-S", "-c", script), view, bounds)


@contextlib.contextmanager
def listening(tmp_path: Path) -> Generator[dict[str, object]]:
    """Listen where a program in the sandbox must not be heard."""
    with (
        socket.socket() as tcp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        tcp.bind(("127.0.0.1", 0))
        name = f"asterism-test-{os.getpid()}"
        abstract.bind(f"\0{name}")
        place = os.path.relpath(tmp_path / "socket")
        named.bind(place)
        for one in (tcp, abstract, named):
            one.listen(8)
            one.setblocking(False)
        yield {
            "port": tcp.getsockname()[1],
            "abstract": name,
            "socket": str(tmp_path / "socket"),
        }
        for one in (tcp, abstract, named):
            with pytest.raises(BlockingIOError):
                one.accept()


@contextlib.contextmanager
def messages_of_others() -> Generator[dict[str, object]]:
    """Have shared memory, queues and semaphores that anybody on this machine may use."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    key, name = 0x4A570000 | os.getpid() & 0xFFF0, f"/asterism-test-{os.getpid()}"
    memory, queue = libc.shmget(key, 4096, 0o1666), libc.msgget(key, 0o1666)
    semaphores = libc.semget(key, 1, 0o1666)
    named = libc.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    assert min(memory, queue, semaphores, named) >= 0
    place = libc.shmat(memory, None, 0)
    ctypes.memmove(place, b"a secret of ours", 16)
    os.close(named)
    try:
        yield {"ipc": key, "queue": name}
        assert libc.mq_unlink(name.encode()) == 0
    finally:
        libc.shmdt(ctypes.c_void_p(place))
        gone = [libc.shmctl(memory, 0, None), libc.msgctl(queue, 0, None)]
        gone.append(libc.semctl(semaphores, 0, 0))
    assert gone == [0, 0, 0]


@pytest.mark.promise("S1")
async def test_one_of_them_works_here():
    found = await find_sandbox()
    assert found.kind in KINDS


@pytest.mark.promise("S1")
async def test_nobody_gets_out(
    sandbox: Sandbox, view: SandboxView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SECRET_OF_HOME", "sk-1234")
    secret = tmp_path / "data" / "asterism.db"
    secret.parent.mkdir()
    secret.write_text("all that was ever said")
    secret.chmod(0o644)
    heard: list[int] = []
    previous = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with listening(tmp_path) as target, messages_of_others() as queues:
            known = {**target, **queues, "ipc_is_shared": sandbox.kind is SandboxKind.LANDLOCK}
            known |= {"secret": str(secret), "pid": os.getpid(), "home": str(Path.home())}
            script = ESCAPES.read_text()
            command = (sandbox.python(), "-I", "-S", "-c", script, json.dumps(known))
            ran = await sandbox.run(command, view, SandboxLimits(seconds=60))
    finally:
        signal.signal(signal.SIGUSR1, previous)
    assert "ESCAPED" not in ran.text
    assert "tried 51" in ran.text
    assert not heard
    assert secret.read_text() == "all that was ever said"
    assert os.getpriority(os.PRIO_PROCESS, 0) < 19


@pytest.mark.promise("S1")
async def test_a_program_works_in_its_own_folder(sandbox: Sandbox, view: SandboxView):
    script = 'mkdir -p a && echo hello > a/b && cat a/b && echo "$HOME" && echo t > "$TMPDIR/t"'
    ran = await shell(sandbox, view, f"{script} && ls -d /usr && exit 3")
    assert ran.exit_code == 3
    assert ran.text.splitlines() == ["hello", sandbox.inside(view), "/usr"]
    assert (view.workspace / "a" / "b").read_text() == "hello\n"
    again = await shell(sandbox, view, 'cat a/b; ls "$TMPDIR"; cat')
    assert again.text.startswith("hello\n")
    fed = await sandbox.run(("/bin/cat",), view, stdin=b"x" * 1_000_000)
    assert (fed.total_bytes, fed.exit_code) == (1_000_000, 0)


@pytest.mark.promise("S1")
async def test_a_fork_bomb_stays_small(sandbox: Sandbox, view: SandboxView):
    script = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except OSError:
    print("held after", made, flush=True)
"""
    ran = await python(sandbox, view, script, SandboxLimits(seconds=20, processes=30))
    assert "held after" in ran.text
    assert int(ran.text.split()[-1]) <= 36
    began = time.monotonic()
    bomb = await shell(sandbox, view, "b() { b | b & }; b; sleep 30", SandboxLimits(seconds=3))
    assert time.monotonic() - began < 30
    assert bomb.ended in ("time", "")
    assert not _left(view)


@pytest.mark.promise("S1")
async def test_ten_gigabytes_are_not_to_be_had(sandbox: Sandbox, view: SandboxView):
    ran = await python(
        sandbox, view, "x = bytearray(10 << 30); print('had')", SandboxLimits(seconds=30)
    )
    assert "had" not in ran.text
    assert "MemoryError" in ran.text
    many = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = bytearray(200 << 20)
        for i in range(0, len(x), 4096): x[i] = 1
        print("had", flush=True)
        time.sleep(20)
        os._exit(0)
for _ in range(5): os.wait()  # for whom there is no room
"""
    if "memory is limited for each process" in " ".join(sandbox.limitations):
        return
    began = time.monotonic()
    together = await python(sandbox, view, many, SandboxLimits(seconds=25, memory=600 << 20))
    assert together.text.count("had") <= 3
    assert time.monotonic() - began < 60


@pytest.mark.promise("S1")
async def test_the_disk_is_not_filled(sandbox: Sandbox, view: SandboxView):
    one = await shell(
        sandbox,
        view,
        "head -c 100000000 /dev/zero > big; echo $?",
        SandboxLimits(file_size=10 << 20),
    )
    assert one.text.strip() != "0"
    assert (view.workspace / "big").stat().st_size <= 10 << 20
    many = "i=0; while true; do head -c 5000000 /dev/zero > f$i; i=$((i+1)); sleep 0.01; done"
    ran = await shell(sandbox, view, many, SandboxLimits(seconds=60, disk=50 << 20))
    assert ran.ended == "disk"
    if sandbox.kind is not SandboxKind.LANDLOCK:
        scratch = await shell(
            sandbox,
            view,
            "head -c 90000000 /dev/zero > /tmp/x; wc -c < /tmp/x",
            SandboxLimits(scratch=1 << 20),
        )
        assert int(scratch.text.split()[-1]) <= 1 << 20


MANY_FILES = """
import os, time
made = 0
while True:
    folder = f"d{made}"
    os.mkdir(folder)
    for name in range(200):
        os.close(os.open(f"{folder}/{name}", os.O_CREAT))
    made += 1
    time.sleep(0.01)
"""


@pytest.mark.promise("S1")
async def test_the_number_of_files_is_bounded(sandbox: Sandbox, view: SandboxView):
    bounds = SandboxLimits(seconds=60, files=2_000)
    ran = await python(sandbox, view, MANY_FILES, bounds)
    assert ran.ended == "files"
    left = sum(len(folders) + len(files) for _, folders, files in os.walk(view.workspace))
    assert 2_000 < left < 60_000
    # Over the bound, a program may go on only while it makes room.
    idle = await shell(sandbox, view, "sleep 30", bounds)
    assert idle.ended == "files"
    tidied = await shell(sandbox, view, "for d in d*; do rm -r $d; sleep 0.01; done", bounds)
    assert (tidied.ended, tidied.exit_code) == ("", 0)
    assert not list(view.workspace.glob("d*"))


@pytest.mark.promise("S1")
async def test_nobody_is_told_where_the_data_lies(sandbox: Sandbox, view: SandboxView):
    told = await shell(sandbox, view, "cat /proc/self/mountinfo; echo end")
    assert str(view.workspace) not in told.text or sandbox.kind is SandboxKind.LANDLOCK
    assert str(view.workspace.parent.parent) not in told.text.replace(str(view.workspace), "")
    assert told.text.endswith("end\n")
    assert "left out" not in told.text
    blocked = SandboxView(view.workspace / "a-file" / "agent_2")
    (view.workspace / "a-file").write_text("x")
    with pytest.raises(SandboxError, match="The program was not run") as refused:
        await shell(sandbox, blocked, "echo hi")
    assert str(view.workspace) not in refused.value.message


@pytest.mark.promise("S1")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to another user")
async def test_a_folder_that_cannot_be_reached_is_told_without_its_path(tmp_path: Path):
    try:
        landlock = await find_sandbox([SandboxKind.LANDLOCK])
    except SandboxError as error:
        pytest.skip(error.message)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    view = SandboxView(closed / "data" / "workspaces" / "agent_1")
    with pytest.raises(SandboxError) as refused:
        await landlock.run((f"{view.workspace}/no-such-program",), view)
    assert str(closed) not in refused.value.message
    assert "/workspace/no-such-program" in refused.value.message


@pytest.mark.promise("S1")
async def test_a_gigabyte_of_words_is_cut(sandbox: Sandbox, view: SandboxView):
    bounds = SandboxLimits(seconds=60, output=4 << 20, tail_bytes=1_000)
    ran = await shell(sandbox, view, "yes | head -c 1000000000", bounds)
    assert ran.ended == "output"
    assert ran.exit_code is None
    assert len(ran.output) <= 1_000
    assert "are left out" in ran.text
    short = await shell(sandbox, view, "seq 1 1000; echo end", SandboxLimits(tail_bytes=20))
    assert short.text.endswith("1000\nend\n")
    assert len(short.output) == 20


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM INT HUP; while true; do sleep 1; done",
        "while true; do :; done",
        "sleep 1000 & sleep 1000 & wait",
        "kill -STOP $$",
    ],
)
async def test_time_is_up_for_everybody(sandbox: Sandbox, view: SandboxView, script: str):
    ran = await shell(sandbox, view, script, SandboxLimits(seconds=1))
    assert ran.ended == "time"
    assert ran.exit_code is None
    assert ran.seconds < 20
    assert not _left(view)


@pytest.mark.promise("S1")
async def test_cpu_time_is_bounded_apart_from_the_clock(sandbox: Sandbox, view: SandboxView):
    ran = await shell(
        sandbox, view, "while true; do :; done", SandboxLimits(seconds=60, cpu_seconds=1)
    )
    assert ran.exit_code == 128 + signal.SIGXCPU


@pytest.mark.promise("S1")
async def test_no_daemon_survives(sandbox: Sandbox, view: SandboxView):
    script = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for n in range(3): os.close(n)
        while True:
            open("alive", "w").write(str(time.time()))
            time.sleep(0.01)
    os._exit(0)
while not os.path.exists("alive"): time.sleep(0.01)
print("started")
"""
    ran = await python(sandbox, view, script, SandboxLimits(seconds=20))
    assert ran.text == "started\n"
    assert not _left(view)


@pytest.mark.promise("S1")
async def test_who_stops_waiting_ends_the_program(sandbox: Sandbox, view: SandboxView):
    running = asyncio.ensure_future(shell(sandbox, view, "echo x > begun; sleep 1000"))
    async with asyncio.timeout(120):
        await _until((view.workspace / "begun").exists)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert not _left(view)


@pytest.mark.promise("S1")
async def test_it_dies_with_the_home(sandbox: Sandbox, view: SandboxView, tmp_path: Path):
    """Killed without a chance to tidy up, the home leaves no program behind."""
    script = (
        "import asyncio, sys; from pathlib import Path; from asterism.tools.sandbox import *\n"
        "async def main():\n"
        "    box = await find_sandbox([SandboxKind(sys.argv[1])])\n"
        "    await box.run(('/bin/sh', '-c', 'echo x > begun; sleep 1000 & sleep 1000'), "
        "SandboxView(Path(sys.argv[2])))\n"
        "asyncio.run(main())"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, sandbox.kind.value, str(view.workspace)
    )
    async with asyncio.timeout(120):
        await _until((view.workspace / "begun").exists)
        process.kill()
        await process.wait()
        await _until(lambda: not _left(view))


@pytest.mark.promise("S1")
async def test_a_granted_network_is_there(sandbox: Sandbox, view: SandboxView):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        script = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
        )
        granted = SandboxView(view.workspace, network=True)
        assert (await python(sandbox, granted, script)).exit_code == 0
        assert (await python(sandbox, view, script)).exit_code == 1


@pytest.mark.promise("S1")
async def test_a_program_that_is_not_there_is_told(sandbox: Sandbox, view: SandboxView):
    with contextlib.suppress(SandboxError):
        ran = await sandbox.run(("/usr/bin/no-such-program",), view)
        assert ran.exit_code  # bubblewrap itself tells of it
    assert (await shell(sandbox, view, "echo fine")).text == "fine\n"


async def test_what_does_not_work_is_said():
    with pytest.raises(SandboxError, match="No sandbox works here"):
        await find_sandbox([])


async def test_unsandboxed_programs_are_bounded_all_the_same(view: SandboxView):
    one = await find_sandbox([SandboxKind.UNSANDBOXED])
    assert one.limitations
    ran = await shell(one, view, "echo hi; sleep 100", SandboxLimits(seconds=1))
    assert (ran.text, ran.ended) == ("hi\n", "time")
    assert not _left(view)


async def _until(true: Callable[[], bool]) -> None:
    """Wait for another process, which has nothing to tell by; the caller bounds it."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def _left(view: SandboxView) -> list[str]:
    """Return the processes of the workspace's owner, or with it as their folder, that live on."""
    owner = view.workspace.stat().st_uid
    left: list[str] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - not of the file system
        with contextlib.suppress(OSError):
            if not name.isdecimal() or int(name) == os.getpid():
                continue
            state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
            mine = Path(f"/proc/{name}").stat().st_uid == owner and owner != os.getuid()
            here = Path(f"/proc/{name}/cwd").readlink() == view.workspace
            if state not in "ZX" and (mine or here):
                left.append(name)
    return left


@pytest.fixture(autouse=True)
async def unharmed() -> AsyncIterator[None]:
    """See to it that nothing of the test's own process is lost."""
    before = set(_open_files())
    yield
    assert len(set(_open_files()) - before) <= 3


def _open_files() -> list[str]:
    return os.listdir("/proc/self/fd")  # noqa: PTH208 - not of the file system
