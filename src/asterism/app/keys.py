"""The verbs about stored keys: set, list, remove, rotate, and use at the moment of a request."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr

from asterism.app.audit import note
from asterism.app.checks import no_such
from asterism.app.reach import Reach
from asterism.app.verbs import verbs
from asterism.config import Settings
from asterism.config.vendors import vendors
from asterism.errors import (
    AsterismError,
    InvalidInput,
    MasterKeyMissing,
    NotFound,
    SecretUnreadable,
)
from asterism.permissions import Act
from asterism.secrets.keeper import Keeper, first_key, keeper_of
from asterism.secrets.sealing import fingerprint, new_key, seal, unseal
from asterism.store import secrets as store
from asterism.store.database import Connection
from asterism.store.secrets import DataKey, SecretRow
from asterism.telemetry.redaction import add_secret, add_secrets
from asterism.types.ids import new_id

_log = logging.getLogger(__name__)

_NAME = re.compile(r"\w[\w.:/@-]{0,199}")
_REFERENCE = re.compile(r"\$?\{secret:(\w[\w.:/@-]*)\}")
_WHOLE = re.compile(r"secret:(\w[\w.:/@-]*)")
_SECRET_NAME = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)
_LONGEST = 65_536
_USE_NOTED_EVERY = 3_600_000
_TOPIC = "keys"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What can be told of a stored key: never its value."""

    name: str
    created_at: int
    used_at: int | None
    used_by: tuple[str, ...]
    """Settings that name it."""
    problem: str | None = None
    """Why it cannot be opened."""


class KeyRing:
    """The stored keys of a process: opened once, and used for whatever the home itself does.

    Whoever acts has the verbs of `Keys`, which are judged; these are not.
    """

    def __init__(
        self,
        reach: Reach,
        settings: Callable[[], Settings],
        environ: Mapping[str, str],
        changed: Callable[[str], None],
    ) -> None:
        """Prepare; `changed` hears the name of each key that is another now."""
        self._reach = reach
        self._settings = settings
        self._environ = environ
        self._changed = changed
        self._values: dict[str, str] = {}
        self._problems: dict[str, AsterismError] = {}
        self._uses: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writes = False

    # -- life ----------------------------------------------------------------------------------

    async def open(self, *, readonly: bool = False) -> None:
        """Open what is stored, so that it can be used and is taken out of all texts.

        A key that cannot be opened hinders nothing but its own use.
        """
        add_secrets(configured_secrets(self._settings(), self._environ))
        self._writes = not readonly
        await self.load()
        for problem in {one.message for one in self._problems.values()}:
            _log.warning("%s", problem)
        if not readonly:
            await self._reach.database.listen(_TOPIC, self._heard)

    async def close(self) -> None:
        """Wait for what is being noted."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def settings_changed(self, _: Settings, new: Settings) -> None:
        """Know the keys of a configuration that is in use now."""
        add_secrets(configured_secrets(new, self._environ))

    def _heard(self, name: str) -> None:
        async def again() -> None:
            await self.load()
            self._changed(name)

        self._start(again())

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def load(self) -> None:
        """Read what is stored at this moment."""

        async def read(tx: Connection) -> tuple[list[SecretRow], list[DataKey]]:
            rows = await store.listing(tx, self.home)
            return rows, await store.data_keys(tx) if rows else []

        rows, wrapped = await self._reach.database.read(read)
        values: dict[str, str] = {}
        problems: dict[str, AsterismError] = {}
        if rows:
            opener = await asyncio.to_thread(_Opener, self.keeper, wrapped, len(rows))
            for row in rows:
                try:
                    values[row.name] = opener.text(row)
                except AsterismError as error:
                    problems[row.name] = error
        self._values, self._problems = values, problems
        add_secrets(values.items())

    # -- use -----------------------------------------------------------------------------------

    def get(self, name: str) -> str | None:
        """Return a key, or None if there is none; raise if there is one that cannot be opened."""
        if name in self._problems:
            raise self._problems[name]
        value = self._values.get(name)
        if value is not None:
            self._note_use(name)
        return value

    def has(self, name: str) -> bool:
        """Tell whether there is a key of a name, whether or not it can be opened."""
        return name in self._values or name in self._problems

    def resolve(self, text: str) -> str:
        """Return a text with the keys that it names as `secret:NAME` or `{secret:NAME}`.

        For the moment of a request: what comes of it is not kept, shown or put into a prompt.
        """
        if found := _WHOLE.fullmatch(text):
            return self._needed(found[1])
        return _REFERENCE.sub(lambda found: self._needed(found[1]), text)

    def _needed(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            there = no_such("key", name, sorted(self._values))
            raise NotFound(f"{there} Nothing was sent.")
        return value

    def _note_use(self, name: str) -> None:
        now = self._reach.clock()
        if not self._writes or now - self._uses.get(name, -_USE_NOTED_EVERY) < _USE_NOTED_EVERY:
            return
        self._uses[name] = now

        async def noted() -> None:
            await self._reach.database.write(lambda tx: store.used(tx, self.home, name, now))

        try:
            self._start(noted())
        except RuntimeError:  # no loop runs in this thread; the next use is noted
            self._uses.pop(name)

    def used_at(self, row: SecretRow) -> int | None:
        """Return when a key was last used, as far as it is known here."""
        return max(filter(None, (row.used_at, self._uses.get(row.name))), default=None)

    def problem(self, name: str) -> AsterismError | None:
        """Return why a key cannot be opened."""
        return self._problems.get(name)

    def first_problem(self) -> tuple[str, AsterismError] | None:
        """Return a key that cannot be opened, with the reason."""
        return next(iter(self._problems.items()), None)

    # -- what a vault has to offer, for tokens that other processes may change at any time ---------

    @property
    def writes(self) -> bool:
        """Whether a value can be kept."""
        return self._writes

    async def read(self, name: str) -> str | None:
        """Return a key as it is stored at this moment, or None if there is none."""
        await self.load()
        return self.get(name)

    async def write(self, name: str, value: str | None) -> None:
        """Keep a value, or take it away with None."""
        if value is not None:
            await self.put(self._reach, name, value, by="asterism")
        elif self.has(name):
            await self.take_out(self._reach, name, by="asterism")

    def alone(self, name: str) -> AbstractAsyncContextManager[None]:
        """Keep everybody else from holding a key while the block runs."""
        return self._reach.database.alone(f"key {self.home} {name}")

    # -- changes -------------------------------------------------------------------------------

    async def put(self, reach: Reach, name: str, value: str, *, by: str) -> bool:
        """Store a key for whoever acts; return whether it took the place of another."""
        add_secret(name, value)
        keeper, now = self.keeper, reach.clock()
        wrapped = await reach.database.read(store.data_keys)
        made = await asyncio.to_thread(_data_key, keeper, wrapped, now)

        async def work(tx: Connection) -> bool:
            data_key, key = made
            await store.put_data_key(tx, data_key)
            row = SecretRow(name, seal(key, value.encode(), name), data_key.id, now, None)
            before = await store.put(tx, self.home, row)
            kind = "key.changed" if before else "key.set"
            await note(tx, reach, kind, by=by, what=name)
            await tx.notify(_TOPIC, name)
            return before

        replaced = await reach.database.write(work)
        self._values[name] = value
        self._problems.pop(name, None)
        self._changed(name)
        return replaced

    async def take_out(self, reach: Reach, name: str, *, by: str) -> None:
        """Remove a key for whoever acts."""

        async def work(tx: Connection) -> bool:
            if not await store.remove(tx, self.home, name):
                return False
            await note(tx, reach, "key.removed", by=by, what=name)
            await tx.notify(_TOPIC, name)
            return True

        if not await reach.database.write(work):
            there = await reach.database.read(lambda tx: store.listing(tx, self.home))
            raise NotFound(
                f"{no_such('key', name, [one.name for one in there])} Nothing was removed."
            )
        self._values.pop(name, None)
        self._problems.pop(name, None)
        self._changed(name)

    # -- where ---------------------------------------------------------------------------------

    @property
    def home(self) -> str:
        """The constellation whose keys these are."""
        return self._reach.constellation

    @property
    def keeper(self) -> Keeper:
        """What keeps the master key."""
        given = self._settings().secrets
        return keeper_of(given.keeper, given.key_file, self._reach.data, self.home, self._environ)

    def named(self) -> dict[str, list[str]]:
        """Return the settings that name each key."""
        settings = self._settings()
        found: dict[str, list[str]] = {}
        for path, text in _texts(settings):
            for name in {*_REFERENCE.findall(text), *_WHOLE.findall(text)}:
                found.setdefault(name, []).append(path)
        for vendor in {*settings.models, *vendors()}:
            if settings.takes_stored_key(vendor, self._environ):
                found.setdefault(vendor, []).append(f"models.{vendor}")
        return found


@verbs(
    "key",
    list=Act.READ,
    has=Act.READ,
    place=Act.READ,
    get=Act.GOVERN,
    resolve=Act.GOVERN,
    set=Act.GOVERN,
    remove=Act.GOVERN,
    rotate=Act.GOVERN,
)
class Keys:
    """Keys of others, such as those of vendors: encrypted at rest, opened when they are needed."""

    def __init__(self, reach: Reach, ring: KeyRing) -> None:
        self._reach = reach
        self._ring = ring

    def get(self, name: str) -> str | None:
        """Return a key, or None if there is none; raise if there is one that cannot be opened."""
        return self._ring.get(name)

    def has(self, name: str) -> bool:
        """Tell whether there is a key of a name, whether or not it can be opened."""
        return self._ring.has(name)

    def resolve(self, text: str) -> str:
        """Return a text with the keys that it names as `secret:NAME` or `{secret:NAME}`."""
        return self._ring.resolve(text)

    async def set(self, name: str, value: str, *, by: str = "api") -> bool:
        """Store a key, encrypted; return whether it took the place of another."""
        if not _NAME.fullmatch(name):
            raise InvalidInput(
                f"{name!r} is no name of a key. Take letters, digits and the signs . _ - / : @, "
                "such as openai or mcp:github. Nothing was stored."
            )
        value = value.strip()
        if not value or len(value) > _LONGEST or "\x00" in value:
            found = "empty" if not value else f"{len(value):,} characters long"
            found = "not text" if "\x00" in value else found
            raise InvalidInput(
                f"The value of {name!r} is {found}; a key of 1 to {_LONGEST:,} characters is "
                "needed. Nothing was stored."
            )
        return await self._ring.put(self._reach, name, value, by=by)

    async def list(self) -> list[StoredKey]:
        """Return what is stored, by name: never a value."""
        rows = await self._reach.database.read(lambda tx: store.listing(tx, self._ring.home))
        uses = self._ring.named()
        return [
            StoredKey(
                row.name,
                row.created_at,
                self._ring.used_at(row),
                tuple(uses.get(row.name, ())),
                problem.message if (problem := self._ring.problem(row.name)) is not None else None,
            )
            for row in rows
        ]

    async def remove(self, name: str, *, by: str = "api") -> None:
        """Remove a key; what it was is still taken out of all texts by this process."""
        await self._ring.take_out(self._reach, name, by=by)

    async def rotate(self, *, by: str = "api") -> int:
        """Encrypt everything anew: a new master key where it can be put, and a new data key.

        Former master keys stay behind the new one, since other data may be sealed with them.
        """
        await self._ring.load()
        if (broken := self._ring.first_problem()) is not None:
            name, error = broken
            raise type(error)(
                f"{error.message} Set {name!r} again or remove it, and then rotate. Nothing was "
                "changed."
            )
        keeper, now = self._ring.keeper, self._reach.clock()
        masters = await asyncio.to_thread(keeper.read)
        master = new_key() if keeper.changes else _current(keeper, masters)
        if keeper.changes:
            # Both are there before anything is sealed with the new one.
            await asyncio.to_thread(keeper.put, [master, *masters])

        async def work(tx: Connection) -> int:
            opener = _Opener(keeper, await store.data_keys(tx), 0)
            for old, key in opener.opened():
                sealed = seal(master, key, old.id)
                await store.put_data_key(
                    tx, replace(old, sealed=sealed, master=fingerprint(master))
                )
            data_key, key = _new_data_key(master, now)
            await store.put_data_key(tx, data_key)
            rows = await store.listing(tx, self._ring.home)
            for row in rows:
                sealed = seal(key, opener.text(row).encode(), row.name)
                await store.put(
                    tx, self._ring.home, replace(row, sealed=sealed, key_id=data_key.id)
                )
            await store.drop_unused_keys(tx)
            await note(tx, self._reach, "key.rotated", by=by, what=f"{len(rows)} keys")
            return len(rows)

        return await self._reach.database.write(work)

    def place(self) -> str:
        """Return where the master key is, in words."""
        return self._ring.keeper.place


class _Opener:
    """Opens secrets with the master keys that a keeper has."""

    def __init__(self, keeper: Keeper, wrapped: list[DataKey], count: int) -> None:
        self._place = keeper.place
        self._count = count
        self._problem: AsterismError | None = None
        self._masters: dict[str, bytes] = {}
        try:
            self._masters = {fingerprint(key): key for key in keeper.read()}
        except AsterismError as error:
            self._problem = error
        self._wrapped = {one.id: one for one in wrapped}
        self._keys: dict[str, bytes] = {}

    def opened(self) -> Iterator[tuple[DataKey, bytes]]:
        """Yield each data key that a master key opens."""
        for one in self._wrapped.values():
            if one.master in self._masters:
                yield one, unseal(self._masters[one.master], one.sealed, one.id)

    def text(self, row: SecretRow) -> str:
        """Return a secret."""
        key = self._keys.get(row.key_id)
        if key is None:
            key = self._keys[row.key_id] = self._key(row)
        return unseal(key, row.sealed, row.name).decode()

    def _key(self, row: SecretRow) -> bytes:
        if self._problem is not None:
            raise self._problem
        wrapped = self._wrapped.get(row.key_id)
        if wrapped is None:
            raise SecretUnreadable(
                f"The secret {row.name!r} cannot be opened: its data key {row.key_id} is gone. Set "
                f'it again with "asterism key set {row.name}".'
            )
        master = self._masters.get(wrapped.master)
        if master is None:
            raise wrong_master(self._place, bool(self._masters), self._count)
        try:
            return unseal(master, wrapped.sealed, wrapped.id)
        except SecretUnreadable:
            raise SecretUnreadable(
                f"The secret {row.name!r} cannot be opened: its data key was damaged at rest. Put "
                f'the database back from a backup, or set it again with "asterism key set '
                f'{row.name}".'
            ) from None


def wrong_master(place: str, found: bool, count: int) -> MasterKeyMissing:
    """Return the error of a master key that is gone, or is another one."""
    what = "holds another master key than they were sealed with" if found else "has no master key"
    whose = f"{count} stored keys" if count != 1 else "A stored key"
    return MasterKeyMissing(
        f"{whose} cannot be opened: {place} {what}. Put the right one back (or set ASTERISM_KEY to "
        "it). Nothing was lost or changed."
    )


def _current(keeper: Keeper, masters: list[bytes]) -> bytes:
    return masters[0] if masters else first_key(keeper)


def _data_key(keeper: Keeper, wrapped: list[DataKey], now: int) -> tuple[DataKey, bytes]:
    """Return a data key to seal with, a new one where there is none."""
    masters = keeper.read()
    by_name = {fingerprint(key): key for key in masters}
    for one in wrapped:
        if one.master in by_name:
            try:
                return one, unseal(by_name[one.master], one.sealed, one.id)
            except SecretUnreadable:
                continue
    if wrapped and not masters:
        # A new master key would hide that the right one has to be put back.
        raise wrong_master(keeper.place, found=False, count=2)
    return _new_data_key(_current(keeper, masters), now)


def _new_data_key(master: bytes, now: int) -> tuple[DataKey, bytes]:
    key, id = new_key(), new_id("dkey")
    return DataKey(id, seal(master, key, id), fingerprint(master), now), key


# -- configuration ---------------------------------------------------------------------------------


def configured_secrets(settings: Settings, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the keys and passwords that configuration and environment hold, with names."""
    for vendor, table in settings.models.items():
        if table.key is not None and not _WHOLE.fullmatch(table.key.get_secret_value()):
            yield from _each(f"models.{vendor}.key", table.key.get_secret_value())
        if table.key_env:
            yield from _each(table.key_env, environ.get(table.key_env, ""))
    for vendor in vendors().values():
        for variable in vendor.keys:
            yield from _each(variable, environ.get(variable, ""))
    for name, header in settings.telemetry.headers.items():
        yield f"telemetry.headers.{name}", header.get_secret_value()
    for name, channel in settings.channels.items():
        for option, value in channel.options.items():
            if isinstance(value, str) and _SECRET_NAME.search(option):
                yield f"channels.{name}.{option}", value
    if settings.store.url and (password := urlsplit(settings.store.url).password):
        yield "store.url", unquote(password)


def _each(name: str, keys: str) -> Iterator[tuple[str, str]]:
    """Yield keys that are separated by commas, each alone."""
    yield from ((name, key) for key in keys.split(",") if not _WHOLE.fullmatch(key.strip()))


def _texts(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield all texts of the configuration with their dotted names."""
    if isinstance(value, str | SecretStr):
        yield path, value if isinstance(value, str) else value.get_secret_value()
    elif isinstance(value, BaseModel):
        given = {name: getattr(value, name) for name in type(value).model_fields}
        yield from _texts({**given, **(value.model_extra or {})}, path)
    elif isinstance(value, Mapping):
        for name, one in cast("Mapping[str, object]", value).items():
            yield from _texts(one, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for one in cast("list[object]", value):
            yield from _texts(one, path)
