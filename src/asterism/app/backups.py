"""The verbs about backups: create, list and verify them; those that are scheduled.

A backup is one file with everything that makes up a home: a snapshot of the database, taken while
turns run, and the files of the data directory. `backup_file` has the format; `restore` restores it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from asterism.app.access import DEFAULT_FILE
from asterism.app.backup_file import (
    FORMAT,
    BackedUpFile,
    EncryptionHeader,
    Manifest,
    PackedFile,
    Stopped,
    check_passphrase,
    damaged,
    is_safe_name,
    no_room,
    open_backup,
    pack,
    peek,
    total,
    write_backup,
)
from asterism.app.session import AnyText, Session, note, verbs
from asterism.config import Settings
from asterism.config.load import DOCUMENTS, document_files
from asterism.errors import (
    AsterismError,
    BackupError,
    Conflict,
    InvalidInput,
    NotAllowed,
    StoreError,
    StoreTooNew,
)
from asterism.memory.forgetting import TOMBSTONE_KEY
from asterism.permissions import Act
from asterism.private import make_directory, open_regular
from asterism.records import dataclass
from asterism.secrets import MasterKeyFile
from asterism.store import agents, events
from asterism.store.database import TABLE_SUFFIX, Connection, Database, load_migrations
from asterism.store.forgetting import DATA_FILES
from asterism.store.sqlite import FILE as DATABASE
from asterism.store.sqlite import (
    load_tables,
    open_sqlite,
    read_file,
    refuse_foreign_schema,
    version_of_file,
)
from asterism.times import Moment, to_datetime
from asterism.turns.lanes import Pump
from asterism.types.agents import new_id
from asterism.types.memory import BACKUP_SUFFIX
from asterism.types.turns import Notice
from asterism.version import __version__

if TYPE_CHECKING:
    from asterism.app.engine import Engine

T = TypeVar("T")

_log = logging.getLogger(__name__)

MANUAL, SCHEDULED, UPGRADE = "manual", "scheduled", "upgrade"
_STAGE = ".backup-"
_MAX_NOTE = 1_000
_MAX_LEFT_OUT = 100
_REPORT_EVERY = 0.1
_RETRY_AFTER = 3_600_000
_OLD_DRAFT = 86_400
_SPARE = 1 << 24
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SLUG = re.compile(r"[^\w-]+")


@dataclass(frozen=True, slots=True)
class BackupProgress:
    """How far a backup is: how many bytes of how many, and what is done with them."""

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that is there."""

    path: str
    size: int
    created_at_ms: int
    kind: str
    """`manual`, `scheduled`, or `upgrade` for the copy of a database from before an upgrade."""
    encrypted: bool
    version: str = ""
    """The release of asterism that made it."""
    schema: int | None = None
    engine: str = ""
    note: str = ""
    left_out: tuple[str, ...] = ()
    """Files of the data directory that are not in it, such as links."""
    problem: str | None = None
    """Why it cannot be read."""

    created_at = Moment()


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds, after all of it was read and checked."""

    backup: Backup
    constellations: tuple[str, ...]
    contents: Mapping[str, int]
    """How many there are of each kind of thing, such as `agents`."""
    problems: tuple[str, ...] = ()
    """Flaws of the audit log that were copied with it."""


OnProgress = Callable[[BackupProgress], None]


@verbs("backup", create=Act.GOVERN, list=Act.GOVERN, verify=Act.GOVERN)
class Backups:
    """The backups of a home."""

    def __init__(self, engine: Engine, session: Session) -> None:
        self._engine = engine
        self._session = session

    async def create(
        self,
        path: Path | str | None = None,
        *,
        passphrase: AnyText | None = None,
        note: str = "",
        progress: OnProgress | None = None,
    ) -> Backup:
        """Make a backup of everything that makes up the home, while turns go on.

        Args:
            path: The file or the directory; else `backups.directory`.
            passphrase: Encrypt it with this; else with `backups.passphrase`, if that is set.
            note: What it is for.
            progress: Hears how far it is.
        """
        if len(note) > _MAX_NOTE:
            raise InvalidInput(
                f"The note has {len(note):,} characters; at most {_MAX_NOTE:,} are kept. Shorten "
                "it. Nothing was done."
            )
        place = self._own(path, "written") if path is not None else None
        wanted = _Wanted(place, passphrase, note, MANUAL, "api")
        return await make_backup(self._engine, self._session, wanted, progress)

    async def list(self) -> list[Backup]:
        """Return the backups in `backups.directory` and the copies from before upgrades."""
        data = self._session.data
        directory = backup_directory(self._engine.settings, data)
        return await asyncio.to_thread(list_backups, directory, data)

    async def verify(
        self,
        path: Path | str,
        passphrase: AnyText | None = None,
        *,
        progress: OnProgress | None = None,
    ) -> BackupReport:
        """Read all of a backup, open its database in a temporary place, and check both.

        Args:
            path: The file.
            passphrase: Of one that is encrypted; else `backups.passphrase` is tried.
            progress: Hears how far it is.
        """
        known = passphrase if passphrase is not None else _configured(self._engine)
        return await verify_backup(self._own(path, "read"), known, progress=progress)

    def _own(self, path: Path | str, what: str) -> Path:
        """Return a path that the actor may use; only the owner may use any file of the machine."""
        place = absolute(path)
        directory = backup_directory(self._engine.settings, self._session.data)
        if not self._session.is_owner and place.resolve().parent != directory.resolve():
            raise NotAllowed(
                f"Only the owner may choose where backups are {what}; for others, it is "
                f"{directory}. Nothing was done."
            )
        return place


def _configured(engine: Engine) -> str | None:
    """Return the passphrase of the settings."""
    chosen = engine.settings.backups.passphrase
    return engine.keys.resolve(chosen.get_secret_value()) if chosen is not None else None


def backup_directory(settings: Settings, data: Path) -> Path:
    """Return where the backups of a data directory are."""
    return data / Path(settings.backups.directory).expanduser()


# -- creating --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Wanted:
    path: Path | None
    passphrase: str | None
    note: str
    kind: str
    by: str


async def make_backup(
    engine: Engine, session: Session, wanted: _Wanted, progress: OnProgress | None = None
) -> Backup:
    """Make a backup, and leave an event of it."""
    passphrase = wanted.passphrase if wanted.passphrase is not None else _configured(engine)
    if passphrase is not None:
        check_passphrase(passphrase)
    database = engine.database
    await database.write(_nothing)  # a home that was opened for reading leaves no event of it
    target = await asyncio.to_thread(_target, engine, wanted)
    reporter = Reporter(progress)
    try:
        # Whoever forgets something goes through all files meanwhile, and would change these.
        async with database.alone(DATA_FILES), _stage(session.data) as stage:
            reporter.begin("copying the database", 0)
            await database.snapshot(stage / "database")
            facts = await database.read(_read_facts)
            manifest = _manifest(engine, wanted, facts)
            job = _Job(engine, stage, target, manifest, passphrase, reporter)
            manifest = await run_stoppable(reporter, job.run)
    except OSError as error:
        raise _unwritable(target, error) from error
    size = await asyncio.to_thread(_size, target)
    made = _described(target, size, manifest, encrypted=passphrase is not None)

    async def record(tx: Connection) -> None:
        await note(
            tx,
            session,
            "backup.created",
            by=wanted.by,
            what=target.name,
            size=size,
            encrypted=made.encrypted,
            scheduled=wanted.kind == SCHEDULED,
        )

    await database.write(record)
    return made


async def _nothing(tx: Connection) -> None:
    """Write nothing."""


def _target(engine: Engine, wanted: _Wanted) -> Path:
    """Return the file that a backup is written to, which is not there yet."""
    stamp = to_datetime(engine.clock()).strftime("%Y%m%dT%H%M%SZ")
    home = _SLUG.sub("-", engine.database.constellation)
    name = f"{home}-{wanted.kind}-{stamp}"
    path = absolute(wanted.path) if wanted.path is not None else None
    if path is None:
        directory = backup_directory(engine.settings, engine.session.data)
        try:
            make_directory(directory)
        except OSError as error:
            raise _unwritable(directory / name, error) from error
        path = directory
    elif not path.is_dir():
        if path.exists():
            raise Conflict(f"{path} already exists. Name another file. Nothing was written.")
        return path
    _remove_old_drafts(path)
    for number in range(1, 1_000):
        more = f"-{number}" if number > 1 else ""
        if not (path / f"{name}{more}{BACKUP_SUFFIX}").exists():
            return path / f"{name}{more}{BACKUP_SUFFIX}"
    raise Conflict(f"{path} already has a thousand backups of this second. Nothing was written.")


def _remove_old_drafts(directory: Path) -> None:
    """Remove what a process has left that was killed while it wrote a backup."""
    for draft in directory.glob(f".*{BACKUP_SUFFIX}.partial-*"):
        with contextlib.suppress(OSError):
            if draft.stat().st_mtime < time.time() - _OLD_DRAFT:
                draft.unlink()


def _unwritable(target: Path, error: OSError) -> AsterismError:
    if error.errno in _FULL:
        return no_room(target.parent)
    if isinstance(error, FileExistsError):
        return Conflict(f"{target} already exists. Name another file. Nothing was written.")
    where = error.filename if isinstance(error.filename, str) else str(target)
    return BackupError(
        f"The backup {target} cannot be written ({where}: {error.strerror or error}). Name a "
        "directory that exists and that you can write to. Nothing of it was left there."
    )


@contextlib.asynccontextmanager
async def _stage(data: Path) -> AsyncGenerator[Path, None]:
    """Give a directory for files on their way into a backup, beside what they are copies of.

    They are not encrypted yet, so that they stay where the data are.
    """
    stage = await asyncio.to_thread(_make_stage, data)
    try:
        yield stage
    finally:
        await asyncio.to_thread(shutil.rmtree, stage, ignore_errors=True)


def _make_stage(data: Path) -> Path:
    make_directory(data)
    for left in data.glob(f"{_STAGE}*"):
        shutil.rmtree(left, ignore_errors=True)
    stage = Path(tempfile.mkdtemp(prefix=_STAGE, dir=data))
    (stage / "database").mkdir(mode=0o700)
    (stage / "packed").mkdir(mode=0o700)
    return stage


@dataclass(frozen=True, slots=True)
class _Facts:
    schema: int
    constellations: tuple[str, ...]
    stored_keys: int


async def _read_facts(tx: Connection) -> _Facts:
    schema = await tx.one("SELECT MAX(version) FROM schema_versions")
    names = await tx.all("SELECT DISTINCT constellation FROM agents ORDER BY constellation")
    keys = await tx.one("SELECT COUNT(*) FROM secrets")
    assert schema is not None
    return _Facts(int(schema[0]), tuple(str(row[0]) for row in names), int((keys or (0,))[0]))


def _manifest(engine: Engine, wanted: _Wanted, facts: _Facts) -> Manifest:
    return Manifest(
        format=FORMAT,
        version=__version__,
        schema=facts.schema,
        engine="postgresql" if engine.database.distributed else "sqlite",
        constellations=facts.constellations,
        created_at_ms=engine.clock(),
        kind=wanted.kind,
        note=wanted.note,
        master_key=engine.keys.key_store.place if facts.stored_keys else "",
        has_master_key=False,
    )


class _Job:
    """Puts a backup together, in a thread of its own."""

    def __init__(
        self,
        engine: Engine,
        stage: Path,
        target: Path,
        manifest: Manifest,
        passphrase: str | None,
        reporter: Reporter,
    ) -> None:
        self._data = engine.session.data
        self._settings = engine.settings
        self._config = engine.live_settings.file
        self._key_store = engine.keys.key_store
        self._stage = stage
        self._target = target
        self._manifest = manifest
        self._passphrase = passphrase
        self._reporter = reporter
        self._left_out: list[str] = []

    def run(self) -> Manifest:
        """Write the backup; return its manifest."""
        database = sorted((self._stage / "database").iterdir())
        sources = {f"database/{file.name}": file for file in database}
        files = dict(self._files())
        sources |= {f"files/{name}": file for name, file in sorted(files.items())}
        self._reporter.begin("packing", sum(map(_size, sources.values())))
        packed: list[PackedFile] = []
        for name, file in sources.items():
            if one := self._pack(name, file, len(packed)):
                packed.append(one)
            if file in database:
                file.unlink()  # its room is needed for the rest
        self._reporter.begin("writing", total(packed))
        manifest = replace(
            self._manifest,
            has_master_key=self._key_file in files.values(),
            left_out=tuple(self._left_out[:_MAX_LEFT_OUT]),
            files=tuple(file.entry for file in packed),
        )
        write_backup(self._target, manifest, packed, self._passphrase, part=self._reporter.part)
        return manifest

    def _pack(self, name: str, file: Path, number: int) -> PackedFile | None:
        try:
            source = file.open("rb")
        except OSError as error:
            if file.parent == self._stage / "database":
                raise
            self._left_out.append(f"{name.partition('/')[2]} ({error.strerror})")
            return None
        with source:
            executable = bool(os.fstat(source.fileno()).st_mode & 0o100)
            packed = self._stage / "packed" / str(number)
            try:
                return pack(name, source, packed, executable=executable, part=self._reporter.part)
            except OSError as error:
                if error.errno in _FULL:  # the disk of the data, not that of the backup
                    raise no_room(self._data) from error
                raise

    @property
    def _key_file(self) -> Path | None:
        """The master key, if it is in a file."""
        store = self._key_store
        return Path(store.place).absolute() if isinstance(store, MasterKeyFile) else None

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Yield the files that make up the home beside its database, by their names."""
        backups = backup_directory(self._settings, self._data).resolve()
        for folder, folders, names in os.walk(self._data):
            here = Path(folder)
            linked = [name for name in folders if (here / name).is_symlink()]
            self._left_out += [(here / name).relative_to(self._data).as_posix() for name in linked]
            folders[:] = sorted(
                name
                for name in folders
                if name not in linked
                and (here / name).resolve() != backups
                and self._is_part(here, name)
            )
            for name in sorted(names):
                if self._is_part(here, name):
                    yield from self._file(here / name)
        yield from self._configuration()

    def _file(self, file: Path) -> Iterator[tuple[str, Path]]:
        name = file.relative_to(self._data).as_posix()
        is_safe = is_safe_name(f"files/{name}")
        if file.is_symlink() or not file.is_file() or not is_safe:
            self._left_out.append(name.encode("utf-8", "replace").decode())
        else:
            yield name, file

    def _is_part(self, here: Path, name: str) -> bool:
        if name.endswith(BACKUP_SUFFIX):
            return False
        if self._passphrase is None and (
            name == TOMBSTONE_KEY or here.absolute() / name == self._key_file
        ):
            return False  # what it opens would lie beside it
        if here == self._data and _TOKEN_FILE.fullmatch(name):
            return False  # whoever has the backup would be the owner of the home that goes on
        return here != self._data or not NOT_PART.fullmatch(name)

    def _configuration(self) -> Iterator[tuple[str, Path]]:
        """Yield the configuration in use, wherever it is, under the names it has in a home."""
        folder = self._config.parent
        if self._config.is_file():
            yield "asterism.toml", self._config
        for document in DOCUMENTS:
            for name in document_files(document):
                if (folder / name).is_file():
                    yield name, folder / name
        for module in self._settings.tools.modules:
            path = Path(module)
            if path.suffix == ".py" and path.is_file() and path.is_relative_to(folder):
                yield path.relative_to(folder).as_posix(), path


_TOKEN_FILE = re.compile(rf"{re.escape(DEFAULT_FILE)}(\..*)?")
NOT_PART = re.compile(
    r"asterism\.(db.*|lock|sock)|background\.json|.*\.log(\.\d+)?|snapshots|before-restore-.*"
    r"|\.(backup-|restoring|forgetting-|draft-|master).*"
)
"""Files and folders of a data directory that are not part of the home, or are there anyway."""


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


class Reporter:
    """Tells whoever waits how far it is, and the thread that works that nobody waits any more."""

    def __init__(self, progress: OnProgress | None) -> None:
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        self._stage, self._done, self._total = "", 0, 0
        self._told = 0.0
        self.stopped = threading.Event()

    def begin(self, stage: str, total: int) -> None:
        """Begin with the next stage."""
        self._stage, self._done, self._total = stage, 0, total
        self._tell()

    def part(self, size: int) -> None:
        """Count bytes; raise `Stopped` if there is no need to go on."""
        if self.stopped.is_set():
            raise Stopped
        self._done += size
        if time.monotonic() - self._told >= _REPORT_EVERY or self._done >= self._total:
            self._tell()

    def _tell(self) -> None:
        self._told = time.monotonic()
        if self._progress is not None:
            now = BackupProgress(self._stage, min(self._done, self._total), self._total)
            self._loop.call_soon_threadsafe(self._progress, now)


async def run_stoppable(reporter: Reporter, work: Callable[[], T]) -> T:
    """Run work in a thread; if nobody waits any more, return when the thread has stopped."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        reporter.stopped.set()
        await asyncio.wait([task])
        task.exception()
        raise


# -- lists -----------------------------------------------------------------------------------------


def list_backups(directory: Path, data: Path | None = None) -> list[Backup]:
    """Return the backups of a directory, the newest first.

    Args:
        directory: Where they are.
        data: A data directory, whose copies from before upgrades are listed, too.
    """
    found = [_look(file) for file in directory.glob(f"*{BACKUP_SUFFIX}")]
    if data is not None:
        found += [_copy_of(file) for file in (data / "snapshots").glob("schema-*.db")]
    return sorted(found, key=lambda backup: (backup.created_at_ms, backup.path), reverse=True)


def _look(file: Path) -> Backup:
    try:
        told = peek(file)
    except (AsterismError, OSError) as error:
        problem = error.message if isinstance(error, AsterismError) else str(error.strerror)
        changed = int(file.lstat().st_mtime * 1000)
        return Backup(str(file), _size(file), changed, "unknown", encrypted=False, problem=problem)
    return _described(file, _size(file), told, encrypted=isinstance(told, EncryptionHeader))


def _described(
    file: Path, size: int, told: Manifest | EncryptionHeader, *, encrypted: bool
) -> Backup:
    known = Backup(
        str(file), size, told.created_at_ms, told.kind, encrypted=encrypted, version=told.version
    )
    if isinstance(told, EncryptionHeader):
        return known
    return replace(
        known, schema=told.schema, engine=told.engine, note=told.note, left_out=told.left_out
    )


def _copy_of(file: Path) -> Backup:
    """Describe the copy of a database that was made before an upgrade."""
    _, schema, at = file.stem.split("-") if file.stem.count("-") == 2 else ("", "0", "0")
    is_named = schema.isdecimal() and at.isdecimal()
    return Backup(
        str(file),
        _size(file),
        int(at) if is_named else 0,
        UPGRADE,
        encrypted=False,
        schema=int(schema) if is_named else None,
        engine="sqlite",
    )


# -- verifying -------------------------------------------------------------------------------------


def absolute(path: Path | str) -> Path:
    """Return a path that a person has written, wherever the working directory is later."""
    return Path(path).expanduser().absolute()


async def verify_backup(
    path: Path | str, passphrase: str | None = None, *, progress: OnProgress | None = None
) -> BackupReport:
    """Read all of a backup, open its database in a temporary place, and check both.

    Raises `BackupDamaged` if it is not as it was written. Nothing of it is run or kept.
    """
    file = absolute(path)
    reporter = Reporter(progress)
    with tempfile.TemporaryDirectory(prefix="asterism-verify-") as name:
        place = Path(name)
        if await asyncio.to_thread(is_copy, file):
            return await inspect_copy(file, place)

        def where(entry: BackedUpFile) -> Path | None:
            kind, _, rest = entry.name.partition("/")
            return place / rest if kind == "database" and "/" not in rest else None

        manifest = await run_stoppable(
            reporter, lambda: extract(file, passphrase, place, where, reporter)
        )
        reporter.begin("checking the database", 0)
        return await inspect_backup(file, place, manifest)


def extract(
    file: Path,
    passphrase: str | None,
    place: Path,
    where: Callable[[BackedUpFile], Path | None],
    reporter: Reporter,
) -> Manifest:
    """Read a backup to its end, and write its files where they belong below a directory."""
    with open_backup(file, passphrase) as reader:
        manifest = reader.manifest
        _check_database(manifest, file.name)
        wanted = sum(entry.size for entry in manifest.files if where(entry) is not None)
        free = shutil.disk_usage(place).free
        if wanted + _SPARE > free:
            raise BackupError(
                f"{file.name} needs {wanted + _SPARE:,} bytes, and the disk of {place.parent} has "
                f"{free:,} left. Free some space, or set TMPDIR to a directory on another disk to "
                "verify it there. Nothing was restored."
            )
        reporter.begin("reading", manifest.size)
        try:
            reader.read_files(where, part=reporter.part)
        except OSError as error:
            raise BackupError(
                f"{file} cannot be read, or not be unpacked to {place} "
                f"({error.strerror or error}). Nothing was restored."
            ) from error
        return manifest


def _check_database(manifest: Manifest, name: str) -> None:
    """Raise unless a backup has exactly the files of a database that this release can read."""
    known = load_migrations()[-1].number
    if manifest.schema > known:
        raise StoreTooNew(
            f"{name} was made by asterism {manifest.version} with schema {manifest.schema}, and "
            f"this release knows schemas up to {known}. Upgrade asterism. Nothing was restored."
        )
    files = [entry.name for entry in manifest.files if entry.name.startswith("database/")]
    if manifest.engine == "sqlite":
        fits = files == [f"database/{DATABASE}"]
    else:
        tables = re.compile(rf"database/\w+{re.escape(TABLE_SUFFIX)}")
        fits = manifest.engine == "postgresql" and all(map(tables.fullmatch, files))
    if not fits:
        raise damaged(name, "it does not hold a database")
    for entry in manifest.files:
        kind, _, rest = entry.name.partition("/")
        if kind == "files" and NOT_PART.fullmatch(rest.partition("/")[0]):
            raise damaged(name, f"{rest[:80]!r} is not a file that a backup has")


async def inspect_backup(file: Path, place: Path, manifest: Manifest) -> BackupReport:
    """Open the database of a backup, check all of it, and say what is in it."""
    migrations = load_migrations()
    check = place / "check"
    check.mkdir(mode=0o700)
    try:
        if manifest.engine == "postgresql":
            await asyncio.to_thread(load_tables, place, check, manifest.schema, migrations)
            opened = check
        else:
            await asyncio.to_thread(refuse_foreign_schema, place / DATABASE, migrations)
            schema = await asyncio.to_thread(version_of_file, place / DATABASE)
            if schema != manifest.schema:
                raise damaged(file.name, f"its database has schema {schema}")
            opened = place
        if manifest.schema < migrations[-1].number and opened == place:
            # To be opened, it is brought up to date; what is restored stays as it was.
            await asyncio.to_thread(shutil.copyfile, place / DATABASE, check / DATABASE)
            opened = check
        contents, problems = await _look_into(file, opened, readonly=opened == place)
    except StoreError as error:
        raise damaged(file.name, error.reason.rstrip(".")) from error
    finally:
        shutil.rmtree(check, ignore_errors=True)
    encrypted = isinstance(await asyncio.to_thread(peek, file), EncryptionHeader)
    described = _described(file, _size(file), manifest, encrypted=encrypted)
    return BackupReport(described, manifest.constellations, contents, problems)


_SQLITE = b"SQLite format 3\0"


def is_copy(file: Path) -> bool:
    """Tell whether a file is a database itself: the copy from before an upgrade."""
    try:
        with os.fdopen(open_regular(file), "rb") as content:
            return content.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False  # whoever opens it says why it cannot be


async def inspect_copy(file: Path, place: Path) -> BackupReport:
    """Put the copy of a database into a directory, check all of it, and say what is in it."""
    migrations = load_migrations()
    latest = migrations[-1].number
    check = place / "check"
    check.mkdir(mode=0o700)
    try:
        await asyncio.to_thread(refuse_foreign_schema, file, migrations)
        schema = await asyncio.to_thread(version_of_file, file)
        if schema > latest:
            raise StoreTooNew(
                f"{file.name} has schema {schema}, and this release knows schemas up to {latest}. "
                "Upgrade asterism. Nothing was restored."
            )
        await asyncio.to_thread(shutil.copyfile, file, place / DATABASE)
        (place / DATABASE).chmod(0o600)
        # To be opened, it is brought up to date; what is restored stays as it was.
        await asyncio.to_thread(shutil.copyfile, file, check / DATABASE)
        contents, problems = await _look_into(file, check, readonly=schema == latest)
        query = "SELECT DISTINCT constellation FROM agents ORDER BY constellation"
        rows = await asyncio.to_thread(read_file, place / DATABASE, query)
    except StoreTooNew:
        raise
    except StoreError as error:
        raise damaged(file.name, error.reason.rstrip(".")) from error
    finally:
        shutil.rmtree(check, ignore_errors=True)
    described = replace(_copy_of(file), schema=schema)
    return BackupReport(described, tuple(str(row[0]) for row in rows), contents, problems)


async def _look_into(
    file: Path, directory: Path, *, readonly: bool
) -> tuple[dict[str, int], tuple[str, ...]]:
    database = await open_sqlite(directory, readonly=readonly)
    try:
        if faults := await database.check():
            raise damaged(file.name, f"its database is not healthy ({faults[0]})")
        verified = await events.verify(database)
        flaws = [
            f"{flaw.chain}{f':{flaw.number}' if flaw.number else ''}: {flaw.what}"
            for flaw in verified.flaws
        ]
        return await database.read(_count), tuple(flaws)
    finally:
        await database.close()


_COUNTS = {
    "agents": "agents WHERE deleted_at IS NULL",
    "turns": "turns",
    "open turns": "turns WHERE ended_at IS NULL",
    "waiting messages": "inbox",
    "entries": "entries",
    "passages": "passages",
    "blocks": "blocks",
    "people": "persons",
    "schedules": "schedules",
    "events": "events",
    "stored keys": "secrets",
}


async def _count(tx: Connection) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, table in _COUNTS.items():
        row = await tx.one(f"SELECT COUNT(*) FROM {table}")
        counts[name] = int((row or (0,))[0])
    return counts


# -- scheduled -------------------------------------------------------------------------------------


class ScheduledBackups:
    """Makes a backup whenever one is due, and keeps the newest ones."""

    def __init__(self, engine: Engine) -> None:
        """Make it; it works from `start` on."""
        self._engine = engine
        self._pump = Pump("backups", self._work, engine.clock)
        self._retry_at = 0
        self._failing = False

    def start(self) -> None:
        """Begin."""
        self._pump.start()

    def kick(self) -> None:
        """Look at once, such as after a change of the settings."""
        self._pump.kick()

    async def stop(self) -> None:
        """Stop; a backup that is being made is given up, and nothing of it is left."""
        await self._pump.stop()

    async def _work(self) -> int | None:
        engine = self._engine
        every = engine.settings.backups.interval_ms
        if every is None:
            return None
        due = max(await engine.database.read(_last_scheduled) + every, self._retry_at)
        if due > engine.clock():
            return due
        # Of several workers, one makes it.
        async with engine.database.alone("scheduled backup"):
            due = await engine.database.read(_last_scheduled) + every
            if due > engine.clock():
                return due
            await self._make(every)
        return max(engine.clock() + every, self._retry_at) if not self._failing else self._retry_at

    async def _make(self, every: int) -> None:
        engine = self._engine
        try:
            wanted = _Wanted(None, None, "", SCHEDULED, "schedule")
            made = await make_backup(engine, engine.session, wanted)
            keep = engine.settings.backups.keep
            home = _SLUG.sub("-", engine.database.constellation)
            await asyncio.to_thread(_prune, Path(made.path).parent, home, keep)
        except Exception as error:  # noqa: BLE001 - the owner is told, and it is tried again
            self._retry_at = engine.clock() + min(every, _RETRY_AFTER)
            reason = error.message if isinstance(error, AsterismError) else str(error)
            _log.warning("A scheduled backup failed: %s", reason, exc_info=error)
            if not self._failing:
                await _tell_owner(
                    engine.database,
                    "backup",
                    f"A scheduled backup failed: {reason} It is tried again every hour.",
                    engine.clock(),
                )
            self._failing = True
        else:
            self._failing, self._retry_at = False, 0


async def _last_scheduled(tx: Connection) -> int:
    """Return when the last scheduled backup was made; 0 if none was."""
    made = await events.page(tx, kind="backup.created", limit=100)
    return next((event.at_ms for event in made if (event.body or {}).get("scheduled")), 0)


def _prune(directory: Path, home: str, keep: int) -> None:
    """Remove all scheduled backups of a home but the newest ones."""
    made = sorted(directory.glob(f"{home}-{SCHEDULED}-*{BACKUP_SUFFIX}"), reverse=True)
    for file in made[keep:]:
        file.unlink(missing_ok=True)


async def tell_upgrade(database: Database, now: int) -> None:
    """Tell the owner that the schema was brought up to date, and where the copy from before is."""
    upgrade = database.upgrade
    if upgrade is None:
        return
    text = (
        f"asterism {__version__} brought the database from schema {upgrade.before} to schema "
        f"{upgrade.after}. A copy from before is kept: {upgrade.copy}."
    )
    _log.warning("%s", text)
    await _tell_owner(database, UPGRADE, text, now)


async def _tell_owner(database: Database, kind: str, text: str, now: int) -> None:
    async def put(tx: Connection) -> None:
        about = events.home_chain(tx.constellation)
        await agents.put_notice(tx, Notice(new_id("note"), about, None, kind, text, now))

    await database.write(put)
