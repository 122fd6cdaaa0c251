"""Restoring a backup: into a data directory that nobody has open, after all of it was checked.

Files are unpacked beside what is there, and checked there. Only then is what was there moved aside
and the new files take its place, the database last. A restore that is cut off leaves a directory
that no home opens, and is begun again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from asterism.app.access import DEFAULT_FILE, WANTED_FILE
from asterism.app.backup_file import BackedUpFile, Manifest
from asterism.app.backups import (
    BackupReport,
    OnProgress,
    Reporter,
    absolute,
    extract,
    inspect_backup,
    inspect_copy,
    is_copy,
    run_stoppable,
)
from asterism.config import Settings, data_directory, load
from asterism.errors import AsterismError, BackupError, Conflict, InvalidInput
from asterism.memory.forgetting import TOMBSTONE_KEY, TombstoneFile
from asterism.records import dataclass
from asterism.secrets import fingerprint, master_key_store
from asterism.store.database import TABLE_SUFFIX, load_migrations
from asterism.store.sqlite import FILE as DATABASE
from asterism.store.sqlite import RESTORING, locked, read_file
from asterism.times import to_datetime
from asterism.types.agents import now_ms
from asterism.types.memory import TOMBSTONES

_ASIDE = "before-restore-"


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored, and what is left to do."""

    data: str
    """The data directory."""
    report: BackupReport
    moved_to: str | None
    """Where the former content of the directory is."""
    notes: tuple[str, ...] = field(default=())


async def restore_backup(
    path: Path | str,
    data: Path | str | None = None,
    *,
    passphrase: str | None = None,
    replace: bool = False,
    store: str | None = None,
    despite_flaws: bool = False,
    environ: Mapping[str, str] | None = None,
    progress: OnProgress | None = None,
) -> RestoreReport:
    """Put the home of a backup into a data directory that nobody has open, after a full check.

    Args:
        path: The backup.
        data: The data directory; else ASTERISM_DATA, else the platform's usual place.
        passphrase: Of a backup that is encrypted.
        replace: Move what the directory holds aside; else it must be empty.
        store: The address of an empty PostgreSQL database, for a backup of one; else `store.url`
            of the configuration in the backup.
        despite_flaws: Restore it even if its audit log has flaws.
        environ: The environment to read settings from.
        progress: Hears how far it is.
    """
    variables = os.environ if environ is None else environ
    place = data_directory(Path(data) if data is not None else None, variables)
    file = absolute(path)
    try:
        with locked(place):
            if await asyncio.to_thread(is_copy, file):
                return await _restore_copy(file, place, replace=replace, despite=despite_flaws)
            restoring = _Restoring(file, place, variables, store, Reporter(progress))
            return await restoring.run(passphrase, replace=replace, despite_flaws=despite_flaws)
    except OSError as error:
        raise BackupError(
            f"{file.name} cannot be restored into {place} ({error.strerror or error}). Look at the "
            'disk and the rights of the directory, then run "asterism backup restore" again; what '
            f"was there before is there, or in {place / _ASIDE}…."
        ) from error


async def _restore_copy(file: Path, place: Path, *, replace: bool, despite: bool) -> RestoreReport:
    """Put the database from before an upgrade back; the other files of the home stay."""
    there = await asyncio.to_thread(os.listdir, place)
    former = [place / name for name in sorted(there) if name.startswith(DATABASE)]
    if former and not replace:
        raise Conflict(
            f"{place} has a database. Add --replace: it is moved aside and kept. Nothing was "
            "restored."
        )
    stage = place / RESTORING
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(mode=0o700)
    try:
        report = await inspect_copy(file, stage)
        if report.problems and not despite:
            raise BackupError(
                f"The audit log in {file.name} is not as it was written ({report.problems[0]}). "
                "Take another copy, or add --despite-flaws. Nothing was restored."
            )
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    aside = None
    if former:
        aside = place / f"{_ASIDE}{to_datetime(now_ms()).strftime('%Y%m%dT%H%M%S%fZ')}"
        aside.mkdir(mode=0o700)
        for entry in former:  # the database before its log
            entry.rename(aside / entry.name)
    (stage / DATABASE).rename(place / DATABASE)
    _sync(place)
    shutil.rmtree(stage)
    note = (
        f"Only the database was restored, with schema {report.backup.schema}. The release that has "
        "this schema opens it as it is; a newer one brings it up to date again, after another copy."
    )
    moved = str(aside) if aside is not None else None
    return RestoreReport(str(place), report, moved, (note,))


_STAYS = re.compile(r"asterism\.lock|asterism\.log(\.\d+)?|backups|before-restore-.*|\.restoring")
"""What a restore leaves where it is."""


class _Restoring:
    """Puts a backup into a data directory that is locked."""

    def __init__(
        self,
        file: Path,
        place: Path,
        environ: Mapping[str, str],
        store: str | None,
        reporter: Reporter,
    ) -> None:
        self._file = file
        self._place = place
        self._environ = environ
        self._store = store
        self._reporter = reporter
        self._stage = place / RESTORING
        self._notes: list[str] = []

    async def run(
        self, passphrase: str | None, *, replace: bool, despite_flaws: bool
    ) -> RestoreReport:
        """Check the backup, then move its files into place, the database last."""
        former = [entry for entry in sorted(self._place.iterdir()) if not self._stays(entry)]
        if former and not replace:
            raise Conflict(
                f"{self._place} is not empty: it holds {former[0].name}. Choose another directory "
                "with --data, or add --replace: what it holds is moved aside and kept. Nothing was "
                "restored."
            )
        interrupted = self._stage.exists()
        shutil.rmtree(self._stage, ignore_errors=True)
        for folder in (self._stage, self._stage / "database", self._stage / "files"):
            folder.mkdir(mode=0o700)
        try:
            manifest, report = await self._check(passphrase, despite_flaws=despite_flaws)
            settings = await asyncio.to_thread(self._prepare, manifest)
            await self._fill_postgres(manifest, settings)
        except BaseException:
            if not interrupted:
                shutil.rmtree(self._stage, ignore_errors=True)
            raise
        masters = await self._master_keys(manifest)
        moved_to = await asyncio.to_thread(self._move, former, interrupted=interrupted)
        self._note_keys(manifest, report, settings, masters)
        self._note_open(report)
        moved = str(moved_to) if moved_to is not None else None
        return RestoreReport(str(self._place), report, moved, tuple(self._notes))

    def _stays(self, entry: Path) -> bool:
        """Tell whether something stays where it is: the backup itself among others."""
        return bool(_STAYS.fullmatch(entry.name)) or self._file.is_relative_to(entry)

    async def _check(
        self, passphrase: str | None, *, despite_flaws: bool
    ) -> tuple[Manifest, BackupReport]:
        def where(entry: BackedUpFile) -> Path:
            target = self._stage / entry.name
            for folder in reversed(target.relative_to(self._stage).parents):
                (self._stage / folder).mkdir(mode=0o700, exist_ok=True)
            return target

        manifest = await run_stoppable(
            self._reporter,
            lambda: extract(self._file, passphrase, self._stage, where, self._reporter),
        )
        self._reporter.begin("checking the database", 0)
        report = await inspect_backup(self._file, self._stage / "database", manifest)
        if report.problems and not despite_flaws:
            raise BackupError(
                f"The audit log in {self._file.name} is not as it was written "
                f"({len(report.problems)} flaws, the first: {report.problems[0]}). Take another "
                "backup, or add --despite-flaws. Nothing was restored."
            )
        return manifest, report

    def _prepare(self, manifest: Manifest) -> Settings | None:
        """Make the files ready to be moved: settings, and what was forgotten here meanwhile."""
        files = self._stage / "files"
        if self._store is not None:
            if manifest.engine != "postgresql":
                raise InvalidInput(
                    f"{self._file.name} is of a home on SQLite, which needs no --store. Leave it "
                    "out. Nothing was restored."
                )
            from asterism.config.edit import save

            save(files, None, {}, {("store", "url"): self._store})
        self._keep_forgotten(files)
        if not (files / DEFAULT_FILE).exists():  # backups of earlier releases have it
            (files / WANTED_FILE).touch(mode=0o600)
        if self._environ.get("ASTERISM_CONFIG"):
            self._notes.append(
                "ASTERISM_CONFIG names another configuration file than the one that was restored."
            )
        named = {name: value for name, value in self._environ.items() if name != "ASTERISM_CONFIG"}
        try:
            return load(files, None, named)
        except AsterismError as error:
            self._notes.append(f"The configuration has a problem: {error.message}")
            return None

    def _keep_forgotten(self, files: Path) -> None:
        """Let what was forgotten in this directory since the backup stay forgotten."""
        here, restored = TombstoneFile(self._place), TombstoneFile(files)
        known = {tombstone.id for tombstone in restored.read()}
        restored.add(tombstone for tombstone in here.read() if tombstone.id not in known)
        key, restored_key = here.key(), restored.key()
        if key is not None and restored_key is None:
            shutil.copyfile(self._place / TOMBSTONE_KEY, files / TOMBSTONE_KEY)
            (files / TOMBSTONE_KEY).chmod(0o600)
        elif key != restored_key and key is not None:
            self._notes.append(
                f"The former {TOMBSTONE_KEY} is another one: texts that were forgotten here since "
                "cannot be looked for in the backup. Forget them again."
            )
        if (files / TOMBSTONES).exists() and not (files / TOMBSTONE_KEY).exists():
            self._notes.append(
                f"{TOMBSTONE_KEY} is only in encrypted backups. What was forgotten stays so, but "
                "forgotten texts that come in again are not recognised. Copy the file from the "
                f"former data directory to {self._place}."
            )

    async def _fill_postgres(self, manifest: Manifest, settings: Settings | None) -> None:
        configured = settings.store.url if settings is not None else None
        url = self._store or configured
        if manifest.engine == "sqlite":
            if url is not None:
                raise Conflict(
                    f"{self._file.name} is of a home on SQLite, but store.url names a PostgreSQL "
                    "database. Take ASTERISM_STORE__URL out of the environment. Nothing was "
                    "restored."
                )
            return
        if url is None:
            raise InvalidInput(
                f"{self._file.name} is of a home on PostgreSQL. Make an empty database, and name "
                "it with --store postgresql://user@host/name. Nothing was restored."
            )
        if configured not in (None, url):
            self._notes.append(
                "ASTERISM_STORE__URL names another database than the one that was restored. Take "
                "it out of the environment."
            )
        from asterism.store.postgres import restore_postgres

        self._reporter.begin("filling the database", 0)
        await restore_postgres(url, self._stage / "database", manifest.schema, load_migrations())

    async def _master_keys(self, manifest: Manifest) -> set[str]:
        """Return the fingerprints of the master keys that the stored keys need."""
        if manifest.engine == "postgresql":
            lines = (self._stage / "database" / f"data_keys{TABLE_SUFFIX}").read_text().splitlines()
            columns = lines[0].split("\t")
            return {line.split("\t")[columns.index("master")] for line in lines[1:]}
        rows = await asyncio.to_thread(
            read_file, self._stage / "database" / DATABASE, "SELECT master FROM data_keys"
        )
        return {str(row[0]) for row in rows}

    def _move(self, former: list[Path], *, interrupted: bool) -> Path | None:
        """Move what was there aside, then what was restored into place; the database is last."""
        aside = None
        if former:
            stamp = to_datetime(now_ms()).strftime("%Y%m%dT%H%M%S%fZ")
            earlier = sorted(self._place.glob(f"{_ASIDE}*")) if interrupted else []
            aside = self._place / f"{_ASIDE}{stamp}"
            aside.mkdir(mode=0o700)
            # The database first, and then its log: as long as there is no database, nobody takes
            # a part of what was there for all of it.
            for entry in sorted(former, key=lambda entry: not entry.name.startswith(DATABASE)):
                # A log that an interrupted restore left behind belongs to the database it moved.
                is_log = entry.name.startswith(f"{DATABASE}-")
                away = earlier[-1] if is_log and earlier else aside
                entry.rename((aside if (away / entry.name).exists() else away) / entry.name)
        files = self._stage / "files"
        for entry in sorted(files.iterdir()):
            target = self._place / entry.name
            if target.exists():  # such as a folder named backups, which stays
                self._notes.append(f"{entry.name} was in the backup and left as it is here.")
                continue
            entry.rename(target)
        if (self._stage / "database" / DATABASE).exists():
            (self._stage / "database" / DATABASE).rename(self._place / DATABASE)
        _sync(self._place)
        shutil.rmtree(self._stage)
        return aside

    def _note_keys(
        self,
        manifest: Manifest,
        report: BackupReport,
        settings: Settings | None,
        masters: set[str],
    ) -> None:
        """Say what has to be done so that the stored keys can be used here."""
        count = report.contents["stored keys"]
        if not count or settings is None:
            return
        secrets = settings.secrets
        store = master_key_store(
            secrets.keeper, secrets.key_file, self._place, settings.constellation, self._environ
        )
        try:
            there = {fingerprint(key) for key in store.read()}
        except AsterismError:
            there = set[str]()
        if masters <= there:
            return
        whose = f"{count} stored keys need" if count != 1 else "A stored key needs"
        if manifest.has_master_key:
            name = Path(manifest.master_key).name
            todo = f"It was in the backup and is among the files of {self._place} as {name}: set "
            todo += "secrets.key_file to its path."
        else:
            todo = f"It was in {manifest.master_key} when the backup was made: copy it to "
            todo += f"{store.place}, or set ASTERISM_KEY to it."
        self._notes.append(f"{whose} the master key, which is not here. {todo}")

    def _note_open(self, report: BackupReport) -> None:
        counts = report.contents
        going_on = [
            f"{counts[name]} {name}"
            for name in ("open turns", "waiting messages", "schedules")
            if counts[name]
        ]
        if going_on:
            self._notes.append(
                f"The next start goes on with {', '.join(going_on)}. Do not let the home that the "
                "backup is of run as well: both would answer."
            )


def _sync(directory: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
