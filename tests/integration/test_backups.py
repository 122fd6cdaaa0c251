"""Backups: made while turns run, whole or not at all, refused when they were changed, restored."""

# Scheduled backups are looked for at once where the settings change; tests say that they did.
# apsw does not say what its methods return.
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

import asyncio
import contextlib
import errno
import io
import os
import re
import shutil
import stat
import tarfile
import zlib
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import apsw
import orjson
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.sql import SQL, Identifier

from asterism import Asterism, NotAllowed
from asterism.app import backup_file
from asterism.app.backup_file import (
    FORMAT,
    BackedUpFile,
    DecryptingFile,
    EncryptingFile,
    Manifest,
    open_backup,
    pack,
    write_backup,
)
from asterism.app.backups import Backup, BackupProgress, list_backups, verify_backup
from asterism.app.restore import restore_backup
from asterism.client import running_or_opened
from asterism.errors import (
    AsterismError,
    BackupDamaged,
    BackupError,
    Conflict,
    InvalidInput,
    PassphraseWrong,
    StoreDamaged,
    StoreFull,
    StoreInUse,
    StoreMissing,
    StoreReadOnly,
    StoreTooNew,
)
from asterism.memory.forgetting import Forgetting
from asterism.permissions import Actor
from asterism.store.database import Database, load_migrations
from asterism.store.events import Event, append, home_chain
from asterism.store.forgetting import DATA_FILES
from asterism.store.postgres import open_postgres
from asterism.store.sqlite import RESTORING, open_sqlite, refuse_foreign_schema
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.types.memory import BACKUP_SUFFIX
from tests.conformance.memory_scene import ENGINES
from tests.conftest import examples
from tests.scenes import obedient, open_home, until

pytestmark = pytest.mark.promise("A6")

PASSPHRASE = "eleven green bottles"


@pytest.fixture(autouse=True)
def _quick_passphrases() -> Generator[None, None, None]:
    """Derive keys in a millisecond; how long it takes is the only difference."""
    with mock.patch.object(backup_file, "_KDF_COST", 10):
        yield


class Places:
    """Two machines: data directories and databases of one engine."""

    def __init__(self, engine: str, place: Path, stack: contextlib.ExitStack) -> None:
        self.engine = engine
        self.first, self.second = place / "first" / "data", place / "second" / "data"
        self._urls = (
            [stack.enter_context(postgres_server().database(empty=True)) for _ in range(2)]
            if engine == "postgres"
            else [None, None]
        )

    def settings(self, data: Path) -> dict[str, Any]:
        url = self._urls[data == self.second]
        return {"store.url": url} if url else {}

    def at(self, data: Path, **options: Any) -> Any:
        settings = {**self.settings(data), **options.pop("settings", {})}
        return open_home(data, settings=settings, **options)

    async def restore(self, made: Backup, **options: Any) -> Any:
        store = self._urls[1]
        return await restore_backup(made.path, self.second, store=store, environ={}, **options)


@pytest.fixture(params=ENGINES)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Places, None, None]:
    with contextlib.ExitStack() as stack:
        yield Places(request.param, tmp_path, stack)


@asynccontextmanager
async def at_work(places: Places, **options: Any) -> AsyncGenerator[Asterism, None]:
    async with asyncio.timeout(120), places.at(places.first, **options) as home:
        yield home


def body_of(made: Backup) -> bytes:
    return Path(made.path).read_bytes()


def mode_of(made: Backup) -> int:
    return stat.S_IMODE(Path(made.path).stat().st_mode)


def cut_off(made: Backup, size: int) -> None:
    Path(made.path).write_bytes(body_of(made)[:-size])


def stages_in(data: Path) -> list[Path]:
    """Return what is left of backups that were being made."""
    return list(data.glob(".backup-*"))


def scheduled_in(directory: Path) -> list[Path]:
    return list(directory.glob("home-scheduled-*"))


# -- there and back --------------------------------------------------------------------------------


async def test_a_backup_restores_all_that_a_home_has(places: Places):
    async with at_work(places) as home:
        aria = await home.agents.create("aria", system="Be brief.")
        await aria.ask("Hello")
        await aria.archive.add("The rent is due on the 3rd.")
        await home.people.create("Anna")
        workspace = places.first / "workspaces" / aria.id
        workspace.mkdir(parents=True)
        (workspace / "run.sh").write_text("echo hi", encoding="utf-8")
        (workspace / "run.sh").chmod(0o755)
        (workspace / "link").symlink_to("/etc/passwd")
        (places.first / "authorizations.toml").write_text("", encoding="utf-8")
        (places.first / "asterism.log").write_text("a line", encoding="utf-8")
        made = await home.backups.create(note="before the move")
        [listed] = await home.backups.list()
        report = await home.backups.verify(made.path)
    assert (listed.path, listed.note, listed.kind) == (made.path, "before the move", "manual")
    assert mode_of(made) == 0o600
    assert listed.left_out == (f"workspaces/{aria.id}/link",)
    assert report.contents["agents"] == report.contents["passages"] == 1
    assert report.contents["turns"] == 1
    assert report.contents["entries"] > 1
    assert report.constellations == ("home",)
    restored = await places.restore(made)
    assert restored.moved_to is None
    assert restored.report.contents == report.contents
    assert not stages_in(places.first)
    assert not (places.second / RESTORING).exists()
    assert not (places.second / "asterism.log").exists()
    script = places.second / "workspaces" / aria.id / "run.sh"
    assert (script.read_text("utf-8"), stat.S_IMODE(script.stat().st_mode)) == ("echo hi", 0o700)
    assert not (script.parent / "link").exists()
    async with places.at(places.second) as home:
        again = await home.agents.get("aria")
        assert (again.id, again.system) == (aria.id, "Be brief.")
        assert (await again.search("rent")).hits
        assert (await home.audit.verify()).sound
        assert (await again.ask("And now?")).text
        # What was recorded after the snapshot is not in it.
        assert not await home.audit.list(kind="backup")


async def test_a_backup_under_load_is_a_consistent_state(places: Places):
    """Messages arrive all the time; each is in the backup with all that belongs to it, or not."""
    async with at_work(places, model=obedient(delay=0.001)) as home:
        agents = [await home.agents.create(name) for name in ("aria", "ben", "cleo")]
        sent = 0
        enough = asyncio.Event()

        async def talk(agent: Any) -> None:
            nonlocal sent
            while not enough.is_set():
                await agent.ask("Hello there")
                sent += 1

        talking = [asyncio.create_task(talk(agent)) for agent in agents]
        await until(lambda: sent > 3)
        before = sent
        made = await home.backups.create()
        more = sent
        await until(lambda: sent > more)
        enough.set()
        await asyncio.gather(*talking)
        total = sent
    report = await verify_backup(made.path)
    assert not report.problems
    assert before <= report.contents["turns"] <= total
    restored = await places.restore(made)
    assert restored.report.contents == report.contents
    async with asyncio.timeout(120), places.at(places.second) as home:
        for name in ("aria", "ben", "cleo"):
            agent = await home.agents.get(name)
            await until(lambda: _is_idle(home))
            turns = await home.turns.list(agent, limit=1_000)
            assert all(turn.ended_at for turn in turns)
            assert len({turn.id for turn in turns}) == len(turns)
        assert (await home.audit.verify()).sound


async def _is_idle(home: Asterism) -> bool:
    return not await home.turns.unfinished()


async def test_an_open_turn_goes_on_once_after_a_restore(places: Places):
    """The model was being asked when the snapshot was taken."""
    asked, go_on = asyncio.Event(), asyncio.Event()

    class Slow(ScriptedModel):
        async def complete(self, *args: Any, **options: Any) -> Any:
            asked.set()
            await go_on.wait()
            return await super().complete(*args, **options)

    async with at_work(places, model=Slow(["From the first machine."])) as home:
        aria = await home.agents.create("aria")
        receipt = await aria.send("Are you there?")
        await asked.wait()
        made = await home.backups.create()
        go_on.set()
        assert (await home.turns.wait(receipt)).text == "From the first machine."
    report = await verify_backup(made.path)
    assert report.contents["open turns"] + report.contents["waiting messages"] > 0
    restored = await places.restore(made)
    assert any("both would answer" in line for line in restored.notes)
    model = ScriptedModel(["From the second machine."])
    async with asyncio.timeout(120), places.at(places.second, model=model) as home:
        outcome = await home.turns.wait(receipt)
        assert outcome.text == "From the second machine."
        await until(lambda: _is_idle(home))
        assert len(await home.turns.list(await home.agents.get("aria"))) == 1
    async with places.at(places.second, model=ScriptedModel([])) as home:
        assert await _is_idle(home)


async def test_a_schedule_that_was_due_meanwhile_fires_once(places: Places, clock: ManualClock):
    async with at_work(places, clock=clock) as home:
        aria = await home.agents.create("aria")
        await home.schedules.add(aria, "in 2 hours", "Water the plants")
        made = await home.backups.create()
    await places.restore(made)
    clock.forward(seconds=5 * 3_600)
    for _ in range(2):
        async with asyncio.timeout(120), places.at(places.second, clock=clock) as home:
            aria = await home.agents.get("aria")
            await until(lambda aria=aria, home=home: _has_turns(home, aria))
            await until(lambda home=home: _is_idle(home))
            assert len(await home.turns.list(aria)) == 1
            assert not await home.schedules.list(aria)


async def _has_turns(home: Asterism, agent: Any) -> bool:
    return bool(await home.turns.list(agent))


async def test_what_was_forgotten_since_the_backup_stays_forgotten(places: Places):
    """An older backup is put back where something was forgotten meanwhile."""
    secret = "the heron of Nymphenburg"
    async with at_work(places) as home:
        aria = await home.agents.create("aria")
        await aria.archive.add(f"Remember {secret}.")
        made = await home.backups.create()
        await home.memory.forget(Forgetting(texts=(secret,)))
        assert not (await aria.search("heron")).hits
    # The directory of the second machine knows what was forgotten, as the first one does.
    places.second.mkdir(parents=True, mode=0o700)
    for name in ("tombstones.jsonl", "tombstones.key"):
        (places.second / name).write_bytes((places.first / name).read_bytes())
        (places.second / name).chmod(0o600)
    restored = await places.restore(made, replace=True)
    assert restored.moved_to is not None
    async with places.at(places.second) as home:
        assert not (await (await home.agents.get("aria")).search("heron")).hits
    if places.engine == "sqlite":
        assert secret.encode() not in (places.second / "asterism.db").read_bytes()


async def test_a_receipt_names_backups_that_hold_what_was_forgotten(tmp_path: Path):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        await aria.archive.add("Remember the heron of Nymphenburg.")
        plain = await home.backups.create()
        locked = await home.backups.create(passphrase=PASSPHRASE)
        receipt = await home.memory.forget(Forgetting(texts=("the heron of Nymphenburg",)))
        named = "\n".join(receipt.unreached)
        assert f"{Path(plain.path).name} holds it" in named
        assert f"{Path(locked.path).name} is a backup from before, and may hold it" in named
        later = await home.backups.create()
        receipt = await home.memory.forget(Forgetting(texts=("the heron of Nymphenburg",)))
        assert Path(later.path).name not in "\n".join(receipt.unreached)


async def test_backups_and_forgetting_wait_for_each_other(places: Places):
    """Both go through all files; a backup in the making must not be changed under its digests."""
    async with at_work(places) as home:
        await home.agents.create("aria")
        async with home.database.alone(DATA_FILES):
            waiting: set[asyncio.Task[Any]] = {
                asyncio.create_task(home.backups.create()),
                asyncio.create_task(home.memory.forget(Forgetting(texts=("the heron of 1987",)))),
            }
            done, _ = await asyncio.wait(waiting, timeout=0.3)
            assert not done
        await asyncio.gather(*waiting)
        [made] = await home.backups.list()
    assert not (await verify_backup(made.path)).problems


# -- whatever was changed is refused ---------------------------------------------------------------


def small_backup(place: Path, passphrase: str | None = None, *, size: int = 3_000) -> Path:
    """Write a backup with files of no home, to be damaged; larger than a chunk if wanted."""
    contents = {
        "database/asterism.db": os.urandom(size),
        "files/asterism.toml": b'model = "a:b"\n',
        f"files/{'long/' * 40}name with é.txt": b"text",
    }
    return crafted(place, contents, passphrase)


def crafted(
    place: Path,
    contents: dict[str, bytes],
    passphrase: str | None = None,
    *,
    change: Callable[[BackedUpFile], BackedUpFile] = lambda file: file,
    **facts: Any,
) -> Path:
    """Write a backup whose manifest says what a test wants."""
    place.mkdir(parents=True, exist_ok=True)
    packed = [
        pack(name, io.BytesIO(content), place / str(number))
        for number, (name, content) in enumerate(contents.items())
    ]
    packed = [replace(file, entry=change(file.entry)) for file in packed]
    usual: dict[str, Any] = {
        "format": FORMAT,
        "version": "0.1.0",
        "schema": load_migrations()[-1].number,
        "engine": "sqlite",
        "constellations": ("home",),
        "created_at_ms": 1_800_000_000_000,
        "kind": "manual",
        "note": "",
        "master_key": "",
        "has_master_key": False,
        "files": tuple(file.entry for file in packed),
    }
    target = place / f"crafted{BACKUP_SUFFIX}"
    target.unlink(missing_ok=True)
    write_backup(target, Manifest(**{**usual, **facts}), packed, passphrase)
    for file in packed:
        file.path.unlink()
    return target


def read_all(file: Path, passphrase: str | None = None) -> Manifest:
    """Read a backup to its end, as verify does before it opens anything."""
    with open_backup(file, passphrase) as reader:
        reader.read_files(lambda _: None)
        return reader.manifest


REGIONS = {
    "the first byte": 0.0,
    "the first header": 0.01,
    "the manifest": 0.1,
    "the database": 0.5,
    "near the end": 0.97,
    "the last byte": 1.0,
}


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
@pytest.mark.parametrize("region", REGIONS)
def test_a_flipped_or_missing_part_is_refused(region: str, passphrase: str | None, tmp_path: Path):
    good = small_backup(tmp_path / "good", passphrase, size=200_000)
    read_all(good, passphrase)
    body = good.read_bytes()
    at = round(REGIONS[region] * (len(body) - 1))
    changed = tmp_path / "changed"
    for damage in (
        body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :],
        body[:at],
        body[:at] + body[at + 1 :],
        body[:at] + b"x" + body[at:],
        body + b"\0",
    ):
        changed.write_bytes(damage)
        with pytest.raises((BackupDamaged, PassphraseWrong), match="Nothing was restored"):
            read_all(changed, passphrase)


@pytest.fixture(scope="module", params=[None, PASSPHRASE])
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bytes, str | None]:
    with mock.patch.object(backup_file, "_KDF_COST", 10):
        file = small_backup(tmp_path_factory.mktemp("whole"), request.param)
    return file.read_bytes(), request.param


@examples(150, 3_000)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_bit_can_be_flipped(
    whole: tuple[bytes, str | None],
    tmp_path_factory: pytest.TempPathFactory,
    place: float,
    bit: int,
):
    body, passphrase = whole
    at = int(place * len(body))
    file = tmp_path_factory.getbasetemp() / "flipped"
    file.write_bytes(body[:at] + bytes([body[at] ^ (1 << bit)]) + body[at + 1 :])
    with pytest.raises((BackupDamaged, PassphraseWrong, BackupError)):
        read_all(file, passphrase)


@examples(100, 2_000)
@given(place=st.floats(0, 1, exclude_max=True))
def test_no_end_can_be_cut_off(
    whole: tuple[bytes, str | None], tmp_path_factory: pytest.TempPathFactory, place: float
):
    body, passphrase = whole
    file = tmp_path_factory.getbasetemp() / "cut"
    file.write_bytes(body[: int(place * len(body))])
    with pytest.raises((BackupDamaged, PassphraseWrong)):
        read_all(file, passphrase)


CHUNK = 1 << 16


@pytest.mark.parametrize(
    ("order", "returned"),
    [
        ([0, 1, 2, 3], 4),
        ([1, 0, 2, 3], 0),
        ([0, 0, 1, 2, 3], 1),
        ([0, 2, 3], 1),
        ([0, 1, 2], 2),
        ([0], 0),
        ([], 0),
        ([3], 0),
        ([0, 1, 2, 3, 3], 3),
    ],
)
def test_a_chunk_is_known_by_its_place_and_the_last_one_by_being_last(
    order: list[int], returned: int, tmp_path: Path
):
    """Whatever the chunks hold: nothing is returned from the first one on that is out of place."""
    with open_backup(small_backup(tmp_path), None) as reader:
        manifest = reader.manifest
    raw = io.BytesIO()
    out = EncryptingFile(raw, PASSPHRASE, manifest)
    start = len(raw.getvalue())
    whole = b"".join(bytes([number]) * CHUNK for number in range(4))
    out.write(whole)
    out.finish()
    body, size = raw.getvalue(), CHUNK + 16
    chunks = [body[at : at + size] for at in range(start, len(body), size)]
    changed = io.BytesIO(body[:start] + b"".join(chunks[number] for number in order))
    read = bytearray()
    expected = contextlib.nullcontext() if returned == 4 else pytest.raises(BackupDamaged)
    with expected:
        file = DecryptingFile(changed, PASSPHRASE, "it")
        while piece := file.read(10_000):
            read += piece
    assert bytes(read) == whole[: returned * CHUNK]


async def test_a_wrong_passphrase_is_told_in_one_sentence(tmp_path: Path):
    async with open_home(tmp_path / "data") as home:
        await home.agents.create("aria")
        made = await home.backups.create(passphrase=PASSPHRASE)
        assert made.encrypted
        with pytest.raises(PassphraseWrong, match="no passphrase was given"):
            await home.backups.verify(made.path)
        with pytest.raises(PassphraseWrong, match="does not open"):
            await home.backups.verify(made.path, "eleven green battles")
        assert (await home.backups.verify(made.path, PASSPHRASE)).contents["agents"] == 1
        with pytest.raises(InvalidInput, match="at least 8"):
            await home.backups.create(passphrase="short")
    body = body_of(made)
    assert b"aria" not in body
    assert b"SQLite format" not in body
    with pytest.raises(PassphraseWrong):
        await restore_backup(made.path, tmp_path / "other", environ={})
    assert not any(entry.name != "asterism.lock" for entry in (tmp_path / "other").iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "/etc/cron.d/evil",
        "files/../../evil",
        "files/..",
        "files//evil",
        "files/./evil",
        "files/",
        "files",
        "database/../evil",
        "database/other.db",
        "files/asterism.db",
        "files/asterism.lock",
        "files/asterism.sock",
        "files/before-restore-1/x",
        "files/a\\b",
        "files/a\0b",
        "files/a\nb",
        "elsewhere/evil",
        "",
        "files/" + "a" * 2_000,
    ],
)
async def test_names_that_lead_elsewhere_are_refused(name: str, tmp_path: Path):
    contents = {"database/asterism.db": b"x", "files/harmless": b"evil"}

    def rename(file: BackedUpFile) -> BackedUpFile:
        return replace(file, name=name) if file.name == "files/harmless" else file

    # The tar has whatever name the manifest has.
    with mock.patch.object(backup_file, "_header", _lenient_header):
        file = crafted(tmp_path / "made", contents, change=rename)
        refused = "not a valid name|not a file that a backup has|does not hold a database"
        with pytest.raises(BackupDamaged, match=refused):
            await verify_backup(file)
        with pytest.raises(BackupDamaged, match=refused):
            await restore_backup(file, tmp_path / "data", environ={})
    assert {entry.name for entry in (tmp_path / "data").iterdir()} == {"asterism.lock"}
    assert not (tmp_path / "evil").exists()


def _lenient_header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name.replace("\0", "?"))
    info.size, info.mode = size, 0o600
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def test_a_name_in_the_tar_is_never_used(tmp_path: Path):
    """Whoever changes the headers of the tar alone has changed what they say, and no more."""
    file = small_backup(tmp_path)
    body = file.read_bytes()
    evil = body.replace(b"files/asterism.toml.gz", b"../../etc/cron.d/ev.gz")
    assert evil != body
    file.write_bytes(evil)
    with pytest.raises(BackupDamaged, match="header"):
        read_all(file)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"size": 10}, "larger than its manifest says"),
        ({"size": 1 << 50}, "cannot be unpacked to"),
        ({"size": -1}, "size"),
        ({"size": 1.5}, "not a valid name"),
        ({"sha256": "0" * 64}, "not what was saved"),
        ({"sha256": "x"}, "digest"),
        ({"packed": 0}, "size"),
    ],
)
async def test_a_bomb_is_refused_by_the_sizes_in_the_manifest(
    change: dict[str, Any], problem: str, tmp_path: Path
):
    contents = {"database/asterism.db": b"x", "files/bomb": bytes(50_000_000)}

    def lie(file: BackedUpFile) -> BackedUpFile:
        return replace(file, **change) if file.name == "files/bomb" else file

    file = crafted(tmp_path / "made", contents, change=lie)
    assert file.stat().st_size < 300_000
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(BackupDamaged, match=problem), open_backup(file, None) as reader:
        reader.read_files(lambda entry: out / entry.name.replace("/", "-"))
    # No more than the manifest says is ever written.
    promised = max(0, int(change.get("size", 50_000_000)))
    assert sum(part.stat().st_size for part in out.iterdir()) <= promised + 1
    with pytest.raises(BackupDamaged):
        await restore_backup(file, tmp_path / "data", environ={})
    assert {entry.name for entry in (tmp_path / "data").iterdir()} == {"asterism.lock"}


async def test_a_backup_that_does_not_fit_on_the_disk_is_refused(tmp_path: Path):
    async with open_home(tmp_path / "data") as home:
        made = await home.backups.create()
    usage = mock.Mock(free=1_000_000)
    with (
        mock.patch("shutil.disk_usage", return_value=usage),
        pytest.raises(BackupError, match="has 1,000,000 left"),
    ):
        await restore_backup(made.path, tmp_path / "other", environ={})


@pytest.mark.parametrize(
    "facts",
    [
        {"schema": "17"},
        {"note": 5},
        {"constellations": [["x"]], "kind": None},
        {"created_at_ms": True},
        {"has_master_key": 1},
        {"engine": "oracle"},
        {"engine": "postgresql"},
    ],
)
async def test_a_manifest_of_other_types_is_refused(facts: dict[str, Any], tmp_path: Path):
    file = crafted(tmp_path, {"database/asterism.db": b"x"}, **facts)
    with pytest.raises(BackupDamaged):
        await verify_backup(file)


async def test_later_formats_and_schemas_are_told_as_such(tmp_path: Path):
    file = crafted(tmp_path, {"database/asterism.db": b"x"}, format=FORMAT + 1)
    with pytest.raises(BackupError, match="reads formats up to"):
        await verify_backup(file)
    file = crafted(tmp_path, {"database/asterism.db": b"x"}, schema=9_999)
    with pytest.raises(StoreTooNew, match="Upgrade asterism"):
        await verify_backup(file)
    for content in (b"not a database", b"SQLite format 3\0" + bytes(5_000)):
        file = crafted(tmp_path, {"database/asterism.db": content})
        with pytest.raises(BackupDamaged):
            await verify_backup(file)


async def test_what_is_no_backup_is_refused(tmp_path: Path):
    with pytest.raises(BackupError, match="No such file"):
        await verify_backup(tmp_path / "nothing")
    with pytest.raises(BackupError, match="directory"):
        await verify_backup(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BackupError, match="regular"):
        await verify_backup(tmp_path / "pipe")
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(BackupDamaged):
        await verify_backup(tmp_path / "empty")
    with tarfile.open(tmp_path / "foreign.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("manifest.json"))
    with pytest.raises(BackupDamaged):
        await verify_backup(tmp_path / "foreign.tar")


async def test_a_changed_audit_log_is_not_restored_unasked(tmp_path: Path):
    """Somebody unpacks a backup, changes the log and writes a backup with valid digests."""
    data = tmp_path / "data"
    async with open_home(data) as home:
        await home.people.create("Anna")
    database = await open_sqlite(data)
    body = orjson.dumps({"what": "Eve", "by": "api"})
    await database.write(
        lambda tx: tx.run("UPDATE events SET body = ? WHERE kind = 'person.created'", (body,))
    )
    await database.close()
    async with open_home(data) as home:
        made = await home.backups.create()
    report = await verify_backup(made.path)
    assert report.problems
    with pytest.raises(BackupError, match="audit log"):
        await restore_backup(made.path, tmp_path / "other", environ={})
    restored = await restore_backup(made.path, tmp_path / "other", despite_flaws=True, environ={})
    assert restored.report.problems == report.problems


LATEST = load_migrations()[-1].number
FOREIGN = {
    "a trigger": "CREATE TRIGGER stays AFTER UPDATE ON tokens BEGIN UPDATE tokens SET"
    " revoked_at = NULL WHERE id = new.id; END",
    "a trigger of a usual name": "CREATE TRIGGER sqlite AFTER INSERT ON inbox BEGIN SELECT 1; END",
    "a view": "CREATE VIEW agents_of AS SELECT * FROM agents",
    "a view for a table": "ALTER TABLE tokens RENAME TO hidden;"
    " CREATE VIEW tokens AS SELECT * FROM hidden",
    "an endless view": "ALTER TABLE schema_versions RENAME TO hidden;"
    " CREATE VIEW schema_versions AS WITH RECURSIVE"
    " n(version) AS (SELECT 1 UNION ALL SELECT version + 1 FROM n)"
    " SELECT version, 0 AS applied_at FROM n",
    "a table": "CREATE TABLE more (a TEXT)",
    "a virtual table": "CREATE VIRTUAL TABLE more USING fts5(a)",
    "a column": "ALTER TABLE tokens ADD COLUMN more TEXT",
    "a generated column": "ALTER TABLE tokens ADD COLUMN more TEXT AS (hex(id))",
    "an index": "CREATE UNIQUE INDEX one ON events (chain)",
    "no index": "DROP INDEX agents_name",
    "another index": "DROP INDEX agents_name; CREATE INDEX agents_name ON agents (name)",
    "no table": "DROP TABLE halts",
    "no column": "ALTER TABLE agents DROP COLUMN facts_upto",
    "another name": "ALTER TABLE agents RENAME COLUMN facts_upto TO facts_until",
    "another number": "UPDATE schema_versions SET version = 'x' WHERE version = 20",
    "a part twice": "PRAGMA writable_schema=ON; INSERT INTO sqlite_schema SELECT * FROM"
    " sqlite_schema WHERE name = 'agents_name'",
    "another default": "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql ="
    " replace(sql, 'DEFAULT 1', 'DEFAULT 2') WHERE name = 'agents'",
    "a rule for clashes": "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql ="
    " replace(sql, 'PRIMARY KEY,', 'PRIMARY KEY ON CONFLICT IGNORE,') WHERE name = 'agents'",
}


@pytest.mark.promise("X1")
@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("change", FOREIGN)
async def test_a_schema_of_somebody_else_is_refused(change: str, older: bool, tmp_path: Path):
    """A trigger would give a revoked token back; what is verified has the schema of a release."""
    migrations = load_migrations()[: -1 if older else None]
    database = await open_sqlite(tmp_path / "data", migrations=migrations)
    await leave_something(database)
    await database.close()
    copy = tmp_path / "data" / "asterism.db"
    raw = apsw.Connection(str(copy))
    raw.execute(FOREIGN[change])
    raw.execute("PRAGMA journal_mode=DELETE")
    raw.close()
    body = copy.read_bytes()
    file = crafted(tmp_path / "made", {"database/asterism.db": body}, schema=migrations[-1].number)
    for made in (file, copy):
        async with asyncio.timeout(30):
            with pytest.raises(BackupDamaged, match="cannot be used"):
                await verify_backup(made)
            with pytest.raises(BackupDamaged, match="cannot be used"):
                await restore_backup(made, tmp_path / "other", environ={})
    assert not (tmp_path / "other" / "asterism.db").exists()


async def test_a_difference_of_schemas_is_named(tmp_path: Path):
    for change, told in (
        ("a trigger", "the trigger 'stays' does not belong to it"),
        ("a column", "the table 'tokens' is another one"),
        ("no index", "the index 'agents_name' is missing"),
    ):
        database = await open_sqlite(tmp_path / change)
        await database.close()
        refuse_foreign_schema(tmp_path / change / "asterism.db", load_migrations())
        raw = apsw.Connection(str(tmp_path / change / "asterism.db"))
        raw.execute(FOREIGN[change])
        raw.close()
        with pytest.raises(StoreDamaged, match=f"{told}, as of schema {LATEST}"):
            refuse_foreign_schema(tmp_path / change / "asterism.db", load_migrations())


@pytest.mark.postgres
@pytest.mark.promise("X1")
@pytest.mark.parametrize("change", ["a table", "no table", "a column", "no column", "a schema"])
async def test_tables_of_somebody_else_are_refused(change: str, tmp_path: Path):
    with postgres_server().database(empty=True) as url:
        database = await open_postgres(url)
        await leave_something(database)
        (tmp_path / "copy").mkdir()
        names = await database.snapshot(tmp_path / "copy")
        await database.close()
    tables = {f"database/{name}": (tmp_path / "copy" / name).read_bytes() for name in names}
    whole = crafted(tmp_path / "made", tables, engine="postgresql")
    assert (await verify_backup(whole)).contents["events"] == 1
    match change:
        case "a table":
            tables["database/more.copy"] = b"a\n1\n"
        case "no table":
            del tables["database/halts.copy"]
        case "a column":
            tables["database/halts.copy"] = b"more\t" + tables["database/halts.copy"]
        case "no column":
            tables["database/halts.copy"] = b"constellation\n"
        case _:
            tables["database/schema_versions.copy"] = b"version\tapplied_at\n15\t0\n"
    with pytest.raises(BackupDamaged, match="cannot be used"):
        await verify_backup(crafted(tmp_path / "made", tables, engine="postgresql"))


# -- making one ------------------------------------------------------------------------------------


async def test_a_full_disk_leaves_no_half_file(tmp_path: Path):
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        full = OSError(errno.ENOSPC, "No space left on device")
        for step in ("pack", "write_backup"):
            with (
                mock.patch(f"asterism.app.backups.{step}", side_effect=full),
                pytest.raises(StoreFull, match="Nothing of this backup was left"),
            ):
                await home.backups.create()
        real = os.fsync

        def fail(handle: int) -> None:
            if ".partial-" in str(Path(f"/proc/self/fd/{handle}").readlink()):
                raise full
            real(handle)

        with mock.patch("os.fsync", fail), pytest.raises(StoreFull):
            await home.backups.create()
        assert list((tmp_path / "backups").iterdir()) == []
        assert not stages_in(tmp_path)
        assert (await home.backups.create()).size > 0


async def test_a_backup_that_nobody_waits_for_leaves_nothing(tmp_path: Path):
    async with open_home(tmp_path) as home:
        (tmp_path / "large").write_bytes(os.urandom(30_000_000))
        packing = asyncio.Event()

        def progress(now: BackupProgress) -> None:
            if now.stage == "packing":
                packing.set()

        making = asyncio.create_task(home.backups.create(progress=progress))
        await packing.wait()
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        assert list((tmp_path / "backups").iterdir()) == []
        assert not stages_in(tmp_path)


async def test_where_a_backup_goes(tmp_path: Path, clock: ManualClock):
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with open_home(data, clock=clock) as home:
        first, second = await home.backups.create(), await home.backups.create()
        assert Path(first.path).name == f"home-manual-20270115T080000Z{BACKUP_SUFFIX}"
        assert Path(second.path).name == f"home-manual-20270115T080000Z-2{BACKUP_SUFFIX}"
        into = await home.backups.create(elsewhere)
        assert Path(into.path).parent == elsewhere
        named = await home.backups.create(elsewhere / "mine")
        assert named.path == str(elsewhere / "mine")
        before = (elsewhere / "mine").read_bytes()
        with pytest.raises(Conflict, match="already exists"):
            await home.backups.create(elsewhere / "mine")
        assert (elsewhere / "mine").read_bytes() == before
        with pytest.raises(BackupError, match="cannot be written"):
            await home.backups.create(tmp_path / "nowhere" / "mine")
        with pytest.raises(InvalidInput, match="note"):
            await home.backups.create(note="x" * 1_001)
        # A backup is not in the next one.
        report = await home.backups.verify(second.path)
        assert report.backup.size < first.size * 1.2
        for actor in (Actor("person", "person_1", "Anna"), Actor("agent", "agent_1", "aria")):
            with pytest.raises(NotAllowed):
                await home.acting_as(actor).backups.create()
            with pytest.raises(NotAllowed):
                await home.acting_as(actor).backups.list()
            with pytest.raises(NotAllowed):
                await home.acting_as(actor).backups.verify(first.path)


async def test_standard_tools_open_a_backup(tmp_path: Path):
    async with open_home(tmp_path / "data") as home:
        (tmp_path / "data" / "asterism.toml").write_text("# mine\n", encoding="utf-8")
        made = await home.backups.create()
    with tarfile.open(made.path) as tar:
        names = tar.getnames()
        packed = tar.extractfile("database/asterism.db.gz")
        assert packed is not None
        assert zlib.decompress(packed.read(), 31).startswith(b"SQLite format 3")
    assert (names[0], names[-1]) == ("manifest.json", "SHA256")


async def test_through_the_socket(tmp_path: Path):
    def nothing_to_open() -> Any:
        raise AssertionError("a home is running")

    async with (
        open_home(tmp_path),
        running_or_opened(tmp_path, nothing_to_open, work=False) as home,
    ):
        seen: list[BackupProgress] = []
        made: Backup = await home.backups.create(passphrase=PASSPHRASE, progress=seen.append)
        assert {"packing", "writing"} <= {now.stage for now in seen}
        assert (seen[-1].done, seen[-1].total) == (seen[-1].total, seen[-1].total)
        assert (await home.backups.list())[0].path == made.path
        assert (await home.backups.verify(Path(made.path), PASSPHRASE)).contents["agents"] == 0
        with pytest.raises(StoreInUse):
            await restore_backup(made.path, tmp_path, passphrase=PASSPHRASE, replace=True)


async def test_only_the_owner_chooses_files(tmp_path: Path):
    async with open_home(tmp_path / "data") as home:
        anna = await home.people.create("Anna", roles=["admin"])
        admin = home.acting_as(Actor("person", anna.id, "Anna", roles=frozenset({"admin"})))
        made = await admin.backups.create()
        assert (await admin.backups.verify(made.path)).contents["people"] == 1
        for path in (tmp_path / "mine", tmp_path / "data" / "backups" / ".." / "mine"):
            with pytest.raises(NotAllowed, match="Only the owner"):
                await admin.backups.create(path)
            with pytest.raises(NotAllowed, match="Only the owner"):
                await admin.backups.verify(path)


async def test_a_home_that_is_open_for_reading_makes_none(tmp_path: Path):
    async with open_home(tmp_path):
        pass
    async with open_home(tmp_path, readonly=True) as home:
        with pytest.raises(StoreReadOnly):
            await home.backups.create()
    assert not (tmp_path / "backups").exists()


# -- keys ------------------------------------------------------------------------------------------


async def test_stored_keys_need_the_master_key_which_is_not_in_the_backup(tmp_path: Path):
    first, second = tmp_path / "first" / "data", tmp_path / "second" / "data"
    async with open_home(first) as home:
        await home.keys.set("openai", "sk-1234567890")
        made = await home.backups.create(passphrase=PASSPHRASE)
    master = tmp_path / "first" / "master.key"
    with open_backup(Path(made.path), PASSPHRASE) as reader:
        assert reader.manifest.master_key == str(master)
        assert not reader.manifest.has_master_key
    restored = await restore_backup(made.path, second, passphrase=PASSPHRASE, environ={})
    [line] = [line for line in restored.notes if "master key" in line]
    there = tmp_path / "second" / "master.key"
    assert f"It was in {master}" in line
    assert f"copy it to {there}" in line
    there.write_bytes(master.read_bytes())
    there.chmod(0o600)
    async with open_home(second) as home:
        assert home.keys.get("openai") == "sk-1234567890"
    # Where the key is in place already, there is nothing to do.
    restored = await restore_backup(
        made.path, second, passphrase=PASSPHRASE, replace=True, environ={}
    )
    assert not any("master key" in line for line in restored.notes)


async def test_a_master_key_in_the_data_directory_is_in_encrypted_backups_only(tmp_path: Path):
    data = tmp_path / "data"
    settings = {"secrets.key_file": str(data / "own.key")}
    async with open_home(data, settings=settings) as home:
        await home.keys.set("openai", "sk-1234567890")
        await home.memory.forget(Forgetting(texts=("the heron of Nymphenburg",)))
        plain = await home.backups.create()
        locked = await home.backups.create(passphrase=PASSPHRASE)
    keys = {"files/own.key", "files/tombstones.key"}
    with open_backup(Path(plain.path), None) as reader:
        assert not reader.manifest.has_master_key
        assert not keys & {file.name for file in reader.manifest.files}
    with open_backup(Path(locked.path), PASSPHRASE) as reader:
        assert reader.manifest.has_master_key
        assert keys <= {file.name for file in reader.manifest.files}
    restored = await restore_backup(plain.path, tmp_path / "plain", environ={})
    assert any("tombstones.key is only in encrypted backups" in line for line in restored.notes)


@pytest.mark.promise("X1")
@pytest.mark.parametrize("passphrase", [None, "eleven green bottles"])
async def test_the_token_of_the_owner_is_in_no_backup(tmp_path: Path, passphrase: str | None):
    first, second = tmp_path / "first", tmp_path / "second"
    async with open_home(first, work=False) as home:
        await home.ensure_default_token()
        secret = (first / "api-token").read_text().strip()
        (first / "api-token.new").write_text(secret)
        made = await home.backups.create(passphrase=passphrase)
    with open_backup(Path(made.path), passphrase) as reader:
        names = [entry.name for entry in reader.manifest.files]
    assert names
    assert not [name for name in names if "api-token" in name]
    await restore_backup(made.path, second, passphrase=passphrase, environ={})
    assert not (second / "api-token").exists()
    async with open_home(second, work=False) as home:
        # What programs were given stays valid; this machine gets another one, once.
        assert str(second / "api-token") in await home.ensure_default_token()
        new = (second / "api-token").read_text().strip()
        assert new != secret
        assert (await (await home.authenticate(new)).tokens.current()).name == "default-2"
        assert (await (await home.authenticate(secret)).tokens.current()).name == "default"
        assert await home.ensure_default_token() == ""
        (second / "api-token").unlink()
        assert "is not in" in await home.ensure_default_token()
        assert len(await home.tokens.list()) == 2


async def test_a_backup_of_an_earlier_release_brings_its_token(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    async with open_home(first, work=False) as home:
        await home.ensure_default_token()
        secret = (first / "api-token").read_text().strip()
        with mock.patch("asterism.app.backups._TOKEN_FILE", re.compile("nothing")):
            made = await home.backups.create()
    await restore_backup(made.path, second, environ={})
    assert (second / "api-token").read_text().strip() == secret
    async with open_home(second, work=False) as home:
        assert await home.ensure_default_token() == ""
        assert len(await home.tokens.list()) == 1


async def test_the_configuration_is_in_it_wherever_it_is(tmp_path: Path):
    folder = tmp_path / "etc"
    folder.mkdir(mode=0o700)
    (folder / "mine.toml").write_text('[tools]\nmodules = ["own.py"]\n', encoding="utf-8")
    (folder / "own.py").write_text("", encoding="utf-8")
    (folder / "contacts.toml").write_text("", encoding="utf-8")
    async with open_home(tmp_path / "data", config=folder / "mine.toml") as home:
        made = await home.backups.create()
    await restore_backup(made.path, tmp_path / "other", environ={})
    other = tmp_path / "other"
    assert (other / "asterism.toml").read_bytes() == (folder / "mine.toml").read_bytes()
    assert (other / "own.py").exists()
    assert (other / "contacts.toml").exists()


# -- restoring where something is ------------------------------------------------------------------


async def test_nothing_is_overwritten(tmp_path: Path):
    data = tmp_path / "data"
    async with open_home(data) as home:
        await home.agents.create("aria")
        made = await home.backups.create()
        await home.agents.create("ben")
    (data / "asterism.toml").write_text("# later\n", encoding="utf-8")
    with pytest.raises(Conflict, match="--replace"):
        await restore_backup(made.path, data, environ={})
    restored = await restore_backup(made.path, data, replace=True, environ={})
    assert restored.moved_to is not None
    aside = Path(restored.moved_to)
    assert aside.parent == data
    assert (aside / "asterism.toml").read_text("utf-8") == "# later\n"
    assert not (data / "asterism.toml").exists()
    assert body_of(made)
    async with open_home(data) as home:
        assert [agent.name for agent in await home.agents.list()] == ["aria"]
        again = await home.backups.create()
    with open_backup(Path(again.path), None) as reader:
        assert not any("before-restore" in file.name for file in reader.manifest.files)
    async with open_home(aside) as home:
        assert [agent.name for agent in await home.agents.list()] == ["aria", "ben"]


async def test_a_damaged_backup_changes_nothing(tmp_path: Path):
    data = tmp_path / "data"
    async with open_home(data) as home:
        await home.agents.create("aria")
        made = await home.backups.create()
    before = {file.name: file.read_bytes() for file in data.iterdir() if file.is_file()}
    cut_off(made, 1_000)
    with pytest.raises(BackupDamaged):
        await restore_backup(made.path, data, replace=True, environ={})
    assert {file.name: file.read_bytes() for file in data.iterdir() if file.is_file()} == before
    assert not (data / RESTORING).exists()


@pytest.mark.parametrize("moves", range(8))
async def test_a_restore_that_is_cut_off_is_never_taken_for_a_home(moves: int, tmp_path: Path):
    data = tmp_path / "data"
    async with open_home(data) as home:
        await home.agents.create("aria")
        (data / "asterism.toml").write_text("", encoding="utf-8")
        (data / "note.txt").write_text("", encoding="utf-8")
        made = await home.backups.create()
        await home.agents.create("ben")
    real, left = Path.rename, moves

    def stop(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return real(path, target)

    with mock.patch.object(Path, "rename", stop), contextlib.suppress(KeyboardInterrupt):
        await restore_backup(made.path, data, replace=True, environ={})
    names: list[str] = []
    with contextlib.suppress(StoreMissing):
        async with open_home(data) as home:
            names = [agent.name for agent in await home.agents.list()]
    # All of what was there, all of the backup, or no home at all.
    expected = [["aria", "ben"]] if moves == 0 else [[], ["aria"]]
    assert names in expected
    await restore_backup(made.path, data, replace=True, environ={})
    async with open_home(data) as home:
        assert [agent.name for agent in await home.agents.list()] == ["aria"]


async def test_the_log_of_a_moved_database_stays_with_it(tmp_path: Path):
    """A restore is cut off right after it moved the database of a process that was killed."""
    data, killed = tmp_path / "data", tmp_path / "killed"
    killed.mkdir(mode=0o700)
    async with open_home(data) as home:
        await home.agents.create("aria")
        made = await home.backups.create(tmp_path)
        await home.agents.create("ben")
        for name in ("asterism.db", "asterism.db-wal"):
            (killed / name).write_bytes((data / name).read_bytes())
    assert (killed / "asterism.db-wal").stat().st_size > 0
    real, left = Path.rename, 1

    def stop(path: Path, target: Path) -> Path:
        nonlocal left
        left -= 1
        if left < 0:
            raise KeyboardInterrupt
        return real(path, target)

    with mock.patch.object(Path, "rename", stop), pytest.raises(KeyboardInterrupt):
        await restore_backup(made.path, killed, replace=True, environ={})
    with pytest.raises(StoreMissing, match="was interrupted"):
        async with open_home(killed):
            pass
    await restore_backup(made.path, killed, replace=True, environ={})
    [aside] = asides_of(killed, "asterism.db")
    async with open_home(aside) as home:
        assert [agent.name for agent in await home.agents.list()] == ["aria", "ben"]


def asides_of(data: Path, name: str) -> list[Path]:
    """Return where former content is that has a file of a name."""
    return [place.parent for place in data.glob(f"before-restore-*/{name}")]


@pytest.mark.postgres
async def test_a_database_that_is_not_empty_is_refused(tmp_path: Path):
    with postgres_server().database() as url, postgres_server().database(empty=True) as empty:
        async with open_home(tmp_path / "data", settings={"store.url": url}) as home:
            await home.agents.create("aria")
            made = await home.backups.create()
        other = tmp_path / "other"
        with pytest.raises(Conflict, match="holds an asterism already"):
            await restore_backup(made.path, other, store=url, environ={})
        with pytest.raises(InvalidInput, match="--store"):
            await restore_backup(made.path, other, environ={})
        # Another database in the environment does not take the place of the one that is named.
        elsewhere = {"ASTERISM_STORE__URL": url}
        restored = await restore_backup(made.path, other, store=empty, environ=elsewhere)
        assert any("ASTERISM_STORE__URL names another" in note for note in restored.notes)
        # The configuration that was restored names the database.
        async with Asterism.open(other, environ={}) as home:
            assert home.database.distributed
            assert [agent.name for agent in await home.agents.list()] == ["aria"]
    async with open_home(tmp_path / "plain") as home:
        small = await home.backups.create()
    with pytest.raises(InvalidInput, match="SQLite"):
        await restore_backup(small.path, tmp_path / "third", store="postgresql://x/y", environ={})


# -- scheduled, and before an upgrade --------------------------------------------------------------


async def test_scheduled_backups_are_made_and_the_newest_kept(places: Places, clock: ManualClock):
    settings = {"backups.every": "1 day", "backups.keep": 2}
    directory = places.first / "backups"
    async with at_work(places, clock=clock, settings=settings) as home:
        mine = await home.backups.create()

        for count in range(1, 5):
            home._schedule_backups(home.settings)
            await until(lambda count=count: _is_scheduled(home, count))
            clock.forward(seconds=86_400)
        await until(lambda: len(scheduled_in(directory)) == 2)
        kept = sorted(file.name.split("-")[2][:8] for file in scheduled_in(directory))
        assert kept == ["20270117", "20270118"]
        assert body_of(mine)
        clock.forward(seconds=-86_400)
    # After a restart nothing is due.
    async with at_work(places, clock=clock, settings=settings) as home:
        home._schedule_backups(home.settings)
        await home.backups.create()
        assert await _is_scheduled(home, 4)
    for backup in await asyncio.to_thread(list_backups, directory):
        assert not (await verify_backup(backup.path)).problems


async def _is_scheduled(home: Asterism, count: int) -> bool:
    events = await home.audit.list(kind="backup.created")
    return sum(bool((event.body or {}).get("scheduled")) for event in events) == count


@pytest.mark.postgres
async def test_of_several_workers_one_makes_it(tmp_path: Path, clock: ManualClock):
    with postgres_server().database() as url:
        settings = {"store.url": url, "backups.every": "1 day"}
        async with (
            asyncio.timeout(120),
            open_home(tmp_path / "one", clock=clock, settings=settings) as one,
            open_home(tmp_path / "two", clock=clock, settings=settings) as two,
        ):
            for count in range(1, 4):
                for home in (one, two):
                    home._schedule_backups(home.settings)
                await until(lambda count=count: _is_scheduled(one, count))
                # Whoever came second has seen it and waits for the next one.
                async with two.database.alone("scheduled backup"):
                    assert await _is_scheduled(two, count)
                clock.forward(seconds=86_400)
    made = scheduled_in(tmp_path / "one" / "backups") + scheduled_in(tmp_path / "two" / "backups")
    assert len(made) == 3


async def test_a_scheduled_backup_that_failed_is_told_once(tmp_path: Path, clock: ManualClock):
    data = tmp_path / "data"
    blocked = tmp_path / "blocked"
    blocked.write_text("a file", encoding="utf-8")
    settings = {"backups.every": "1 day", "backups.directory": str(blocked)}
    async with open_home(data, clock=clock, settings=settings) as home:
        await until(lambda: _has_notice(home))
        clock.forward(seconds=3_700)
        blocked.unlink()
        home._schedule_backups(home.settings)
        await until(lambda: blocked.is_dir() and bool(list(blocked.glob(f"*{BACKUP_SUFFIX}"))))
        [notice] = await home.notices.list()
        assert notice.kind == "backup"
        assert "A scheduled backup failed" in notice.text
        assert (await home.metrics())[0].count(b"notices") > 0


async def _has_notice(home: Asterism) -> bool:
    return bool(await home.notices.list())


async def test_the_passphrase_of_scheduled_backups_is_a_stored_key(
    tmp_path: Path, clock: ManualClock
):
    settings = {"backups.passphrase": "secret:backup"}
    async with open_home(tmp_path, clock=clock, settings=settings) as home:
        with pytest.raises(AsterismError, match="backup"):
            await home.backups.create()
        await home.keys.set("backup", PASSPHRASE)
        made = await home.backups.create()
        assert made.encrypted
        assert (await home.backups.verify(made.path)).backup.encrypted
    assert (await verify_backup(made.path, PASSPHRASE)).backup.path == made.path


async def leave_something(database: Database) -> None:
    """Let a database hold an event, so that there is something to keep."""
    event = Event("agent.created", "owner", 1, {"what": "aria"})
    await database.write(lambda tx: append(tx, home_chain(tx.constellation), [event]))


async def test_a_first_start_that_was_cut_off_is_no_upgrade(tmp_path: Path):
    database = await open_sqlite(tmp_path, migrations=load_migrations()[:-1])
    await database.close()
    async with open_home(tmp_path) as home:
        assert await home.notices.list() == []
        assert await home.backups.list() == []


async def test_an_upgrade_says_where_the_copy_from_before_is(tmp_path: Path):
    older = load_migrations()[:-1]
    database = await open_sqlite(tmp_path, migrations=older)
    await leave_something(database)
    await database.close()
    async with open_home(tmp_path) as home:
        [notice] = await home.notices.list()
        [copy] = await home.backups.list()
        assert notice.kind == copy.kind == "upgrade"
        assert copy.path in notice.text
        assert copy.schema == older[-1].number
    async with open_home(tmp_path) as home:
        assert len(await home.notices.list()) == 1


@pytest.mark.promise("A6")
async def test_the_copy_from_before_an_upgrade_is_verified_and_brought_back(tmp_path: Path):
    older, data = load_migrations()[:-1], tmp_path / "data"
    database = await open_sqlite(data, migrations=older)
    await leave_something(database)
    await database.close()
    async with open_home(data) as home:
        await home.agents.create("made-since")
        [copy] = await home.backups.list()
        assert (await home.backups.verify(copy.path)).contents["events"] == 1
    with pytest.raises(Conflict, match="Add --replace"):
        await restore_backup(copy.path, data, environ={})
    done = await restore_backup(copy.path, data, replace=True, environ={})
    assert (done.report.backup.kind, done.report.backup.schema) == ("upgrade", older[-1].number)
    assert done.moved_to is not None
    assert (Path(done.moved_to) / "asterism.db").exists()
    database = await open_sqlite(data, migrations=older)
    assert await database.read(lambda tx: tx.all("SELECT kind FROM events")) == [("agent.created",)]
    await database.close()
    async with open_home(data) as home:  # and up again
        assert await home.agents.list() == []
        assert len(await home.backups.list()) == 2
    # One that is cut off is refused, and what is there stays.
    broken = tmp_path / "broken.db"
    shutil.copyfile(copy.path, broken)
    os.truncate(broken, 20_000)
    with pytest.raises(AsterismError):
        await restore_backup(broken, data, replace=True, environ={})
    async with open_home(data) as home:
        assert await home.agents.list() == []


@pytest.mark.promise("A6")
async def test_without_a_sound_copy_there_is_no_upgrade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    older = load_migrations()[:-1]
    database = await open_sqlite(tmp_path, migrations=older)
    await leave_something(database)
    await database.close()

    def fewer(path: Path, query: str) -> list[Any]:
        return [("ok",)] if "integrity" in query else [(0,)]

    monkeypatch.setattr("asterism.store.sqlite.read_file", fewer)
    with pytest.raises(AsterismError, match=r"not healthy \(rows of .* The schema was not changed"):
        async with open_home(tmp_path):
            pass
    monkeypatch.undo()
    database = await open_sqlite(tmp_path, migrations=older)
    await database.close()


@pytest.mark.postgres
@pytest.mark.promise("A6")
async def test_postgresql_is_copied_before_an_upgrade(tmp_path: Path):
    older = load_migrations()[:-1]
    with postgres_server().database(empty=True) as url:
        database = await open_postgres(url, migrations=older)
        await leave_something(database)
        await database.close()
        async with open_home(tmp_path, settings={"store.url": url}) as home:
            [notice] = await home.notices.list()
            found = re.search(r"asterism_snapshot_\w+", notice.text)
            assert found is not None
            await home.agents.create("made-since")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as raw:
            await raw.execute("ALTER SCHEMA public RENAME TO asterism_newer")
            renamed = SQL("ALTER SCHEMA {} RENAME TO public").format(Identifier(found[0]))
            await raw.execute(renamed)
        database = await open_postgres(url, migrations=older)
        kinds = await database.read(lambda tx: tx.all("SELECT kind FROM events"))
        assert kinds == [("agent.created",)]
        await database.close()


async def test_a_backup_of_an_earlier_schema_is_restored_as_it_was(tmp_path: Path):
    older = load_migrations()[:-1]
    data = tmp_path / "data"
    database = await open_sqlite(data, migrations=older)
    await leave_something(database)
    (tmp_path / "copy").mkdir()
    [name] = await database.snapshot(tmp_path / "copy")
    await database.close()
    body = (tmp_path / "copy" / name).read_bytes()
    file = crafted(tmp_path / "made", {f"database/{name}": body}, schema=older[-1].number)
    assert (await verify_backup(file)).backup.schema == older[-1].number
    await restore_backup(file, tmp_path / "other", environ={})
    assert (tmp_path / "other" / name).read_bytes() == body
    async with open_home(tmp_path / "other") as home:
        assert (await home.notices.list())[0].kind == "upgrade"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("every", "soon"),
        ("every", "5 seconds"),
        ("keep", 0),
        ("directory", ""),
        ("passphrase", "short"),
    ],
)
async def test_settings_that_are_not_valid_are_refused(setting: str, value: Any, tmp_path: Path):
    with pytest.raises(AsterismError, match=rf"backups\.{setting}"):
        async with open_home(tmp_path, settings={f"backups.{setting}": value}):
            pass
