"""The verbs about stored keys: set, list, remove, rotate, and use at the moment of a request."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any, Protocol, cast
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, SecretStr

from asterism.app.session import Session, no_such, note, verbs
from asterism.config import Settings
from asterism.config.vendors import vendors
from asterism.errors import (
    AsterismError,
    InvalidInput,
    NotFound,
)
from asterism.permissions import Act
from asterism.records import dataclass
from asterism.secrets import (
    DataKey,
    Decrypter,
    MasterKeyStore,
    SecretRow,
    current_master_key,
    delete_unused_data_keys,
    encrypt,
    fingerprint,
    list_data_keys,
    list_secrets,
    master_key_store,
    new_data_key,
    new_key,
    put_data_key,
    put_secret,
    remove_secret,
    set_used_at,
    usable_data_key,
)
from asterism.store.database import Connection
from asterism.telemetry.redaction import add_secret, add_secrets
from asterism.times import Moment, OptionalMoment

_log = logging.getLogger(__name__)

_NAME = re.compile(r"\w[\w.:/@-]{0,199}")
_REFERENCE = re.compile(r"\$?\{secret:(\w[\w.:/@-]*)\}")
_WHOLE = re.compile(r"secret:(\w[\w.:/@-]*)")
_SECRET_NAME = re.compile(r"(key|token|secret|password)$", re.IGNORECASE)
_MAX_KEY_LENGTH = 65_536
_USE_NOTED_EVERY = 3_600_000
_TOPIC = "keys"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What can be told of a stored key: never its value."""

    name: str
    created_at_ms: int
    used_at_ms: int | None
    used_by: tuple[str, ...]
    """Settings that name it."""
    problem: str | None = None
    """Why it cannot be opened."""

    created_at = Moment()
    used_at = OptionalMoment()


class KeyRing:
    """The stored keys of a process: opened once, and used for whatever the home itself does.

    The actor has the verbs of `Keys`, which are judged; these are not.
    """

    def __init__(
        self,
        session: Session,
        settings: Callable[[], Settings],
        environ: Mapping[str, str],
        changed: Callable[[str], None],
    ) -> None:
        """Prepare; `changed` hears the name of each key that is another now."""
        self._session = session
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
        """Open the stored keys, so that they can be used and are redacted in all texts.

        A key that cannot be opened hinders nothing but its own use.
        """
        add_secrets(configured_secrets(self._settings(), self._environ))
        self._writes = not readonly
        await self.load()
        for problem in {failure.message for failure in self._problems.values()}:
            _log.warning("%s", problem)
        if not readonly:
            await self._session.database.listen(_TOPIC, self._on_notice)

    async def close(self) -> None:
        """Wait until all uses are recorded."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def settings_changed(self, _: Settings, new: Settings) -> None:
        """Know the keys of a configuration that is in use now."""
        add_secrets(configured_secrets(new, self._environ))

    def _on_notice(self, name: str) -> None:
        async def again() -> None:
            await self.load()
            self._changed(name)

        self._start(again())

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def load(self) -> None:
        """Read the stored keys."""

        async def read(tx: Connection) -> tuple[list[SecretRow], list[DataKey]]:
            rows = await list_secrets(tx)
            return rows, await list_data_keys(tx) if rows else []

        rows, wrapped = await self._session.database.read(read)
        values: dict[str, str] = {}
        problems: dict[str, AsterismError] = {}
        if rows:
            decrypter = await asyncio.to_thread(Decrypter, self.key_store, wrapped, len(rows))
            for row in rows:
                try:
                    values[row.name] = decrypter.text(row)
                except AsterismError as error:
                    problems[row.name] = error
        self._values, self._problems = values, problems
        add_secrets(values.items())

    # -- use -----------------------------------------------------------------------------------

    def get(self, name: str) -> str | None:
        """Return a key, or None if it is not stored; raise if it cannot be opened."""
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
        if match := _WHOLE.fullmatch(text):
            return self._required(match[1])
        return _REFERENCE.sub(lambda match: self._required(match[1]), text)

    def _required(self, name: str) -> str:
        value = self.get(name)
        if value is None:
            there = no_such("key", name, sorted(self._values))
            raise NotFound(f"{there} Nothing was sent.")
        return value

    def _note_use(self, name: str) -> None:
        now = self._session.clock()
        if not self._writes or now - self._uses.get(name, -_USE_NOTED_EVERY) < _USE_NOTED_EVERY:
            return
        self._uses[name] = now

        async def noted() -> None:
            await self._session.database.write(lambda tx: set_used_at(tx, name, now))

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
        """Return a key as it is stored now, or None if it is not stored."""
        await self.load()
        return self.get(name)

    async def write(self, name: str, value: str | None) -> None:
        """Keep a value, or remove it with None."""
        if value is not None:
            await self.put(self._session, name, value, by="asterism")
        elif self.has(name):
            await self.take_out(self._session, name, by="asterism")

    def alone(self, name: str) -> AbstractAsyncContextManager[None]:
        """Lock a key for all processes while the block runs."""
        return self._session.database.alone(f"key {self.home} {name}")

    # -- changes -------------------------------------------------------------------------------

    async def put(self, session: Session, name: str, value: str, *, by: str) -> bool:
        """Store a key for the actor; return whether it replaced another."""
        add_secret(name, value)
        key_store, now = self.key_store, session.clock()
        wrapped = await session.database.read(list_data_keys)
        pair = await asyncio.to_thread(usable_data_key, key_store, wrapped, now)

        async def work(tx: Connection) -> bool:
            data_key, key = pair
            await put_data_key(tx, data_key)
            row = SecretRow(name, encrypt(key, value.encode(), name), data_key.id, now, None)
            before = await put_secret(tx, row)
            kind = "key.changed" if before else "key.set"
            await note(tx, session, kind, by=by, what=name)
            await tx.notify(_TOPIC, name)
            return before

        replaced = await session.database.write(work)
        self._values[name] = value
        self._problems.pop(name, None)
        self._changed(name)
        return replaced

    async def take_out(self, session: Session, name: str, *, by: str) -> None:
        """Remove a key for the actor."""

        async def work(tx: Connection) -> bool:
            if not await remove_secret(tx, name):
                return False
            await note(tx, session, "key.removed", by=by, what=name)
            await tx.notify(_TOPIC, name)
            return True

        if not await session.database.write(work):
            there = await session.database.read(list_secrets)
            raise NotFound(
                f"{no_such('key', name, [key.name for key in there])} Nothing was removed."
            )
        self._values.pop(name, None)
        self._problems.pop(name, None)
        self._changed(name)

    # -- where ---------------------------------------------------------------------------------

    @property
    def home(self) -> str:
        """The constellation whose keys these are."""
        return self._session.database.constellation

    @property
    def key_store(self) -> MasterKeyStore:
        """Where the master key is."""
        settings = self._settings().secrets
        return master_key_store(
            settings.keeper, settings.key_file, self._session.data, self.home, self._environ
        )

    def settings_by_key(self) -> dict[str, list[str]]:
        """Return the settings that name each key."""
        settings = self._settings()
        names: dict[str, list[str]] = {}
        for path, text in _texts(settings):
            for name in {*_REFERENCE.findall(text), *_WHOLE.findall(text)}:
                names.setdefault(name, []).append(path)
        for vendor in {*settings.models, *vendors()}:
            if settings.takes_stored_key(vendor, self._environ):
                names.setdefault(vendor, []).append(f"models.{vendor}")
        return names


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
    """Stored keys, such as those of vendors: encrypted at rest, opened when they are needed."""

    def __init__(self, session: Session, ring: KeyRing) -> None:
        self._session = session
        self._ring = ring

    def get(self, name: str) -> str | None:
        """Return a key, or None if it is not stored; raise if it cannot be opened."""
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
                f"{name!r} is not a valid name of a key. Use letters, digits and the signs . _ - / "
                ": @, such as openai or mcp:github. Nothing was stored."
            )
        value = value.strip()
        if not value or len(value) > _MAX_KEY_LENGTH or "\x00" in value:
            problem = "empty" if not value else f"{len(value):,} characters long"
            problem = "not text" if "\x00" in value else problem
            raise InvalidInput(
                f"The value of {name!r} is {problem}; a key of 1 to {_MAX_KEY_LENGTH:,} characters "
                "is needed. Nothing was stored."
            )
        return await self._ring.put(self._session, name, value, by=by)

    async def list(self) -> list[StoredKey]:
        """Return the stored keys by name, without their values."""
        rows = await self._session.database.read(list_secrets)
        uses = self._ring.settings_by_key()
        return [
            StoredKey(
                row.name,
                row.created_at,
                self._ring.used_at(row),
                tuple(uses.get(row.name, ())),
                self._described(self._ring.problem(row.name)),
            )
            for row in rows
        ]

    def _described(self, problem: AsterismError | None) -> str | None:
        """Return what hinders a key, as whoever acts is told it."""
        if problem is not None and not self._session.owns_machine:
            problem = problem.for_others()
        return problem.message if problem is not None else None

    async def remove(self, name: str, *, by: str = "api") -> None:
        """Remove a key; this process still redacts its value in all texts."""
        await self._ring.take_out(self._session, name, by=by)

    async def rotate(self, *, by: str = "api") -> int:
        """Encrypt everything again, with a new data key, and a new master key where possible.

        Former master keys stay behind the new one, since other data may be encrypted with them.
        """
        await self._ring.load()
        if (broken := self._ring.first_problem()) is not None:
            name, error = broken
            raise type(error)(
                f"{error.message} Set {name!r} again or remove it, and then rotate. Nothing was "
                "changed."
            )
        key_store, now = self._ring.key_store, self._session.clock()
        masters = await asyncio.to_thread(key_store.read)
        master = new_key() if key_store.is_writable else current_master_key(key_store, masters)
        if key_store.is_writable:
            # Both are there before anything is encrypted with the new one.
            await asyncio.to_thread(key_store.put, [master, *masters])

        async def work(tx: Connection) -> int:
            decrypter = Decrypter(key_store, await list_data_keys(tx), 0)
            for old, key in decrypter.data_keys():
                encrypted = encrypt(master, key, old.id)
                await put_data_key(
                    tx, replace(old, encrypted=encrypted, master=fingerprint(master))
                )
            data_key, key = new_data_key(master, now)
            await put_data_key(tx, data_key)
            rows = await list_secrets(tx)
            for row in rows:
                encrypted = encrypt(key, decrypter.text(row).encode(), row.name)
                await put_secret(tx, replace(row, encrypted=encrypted, key_id=data_key.id))
            await delete_unused_data_keys(tx)
            await note(tx, self._session, "key.rotated", by=by, what=f"{len(rows)} keys")
            return len(rows)

        return await self._session.database.write(work)

    def place(self) -> str:
        """Return where the master key is, in words; not the path, unless the machine is theirs."""
        if not self._session.owns_machine:
            return "the machine of the server"
        return self._ring.key_store.place


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
    passphrase = settings.backups.passphrase
    if passphrase is not None and not _WHOLE.fullmatch(passphrase.get_secret_value()):
        yield "backups.passphrase", passphrase.get_secret_value()
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
        values = {name: getattr(value, name) for name in type(value).model_fields}
        yield from _texts({**values, **(value.model_extra or {})}, path)
    elif isinstance(value, Mapping):
        for name, item in cast("Mapping[str, object]", value).items():
            yield from _texts(item, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for item in cast("list[object]", value):
            yield from _texts(item, path)


STORED = "secret:"
"""What a setting begins with that names a stored key."""

Secret = Callable[[str], str | None]
"""Returns a stored key by its name; None if there is none."""


class StoredKeys(Protocol):
    """The keys that are stored in a home."""

    def get(self, name: str) -> str | None:
        """Return a key, or None."""
        ...

    def has(self, name: str) -> bool:
        """Tell whether there is a key of a name."""
        ...


class NoStoredKeys:
    """The keys of a home that is not there yet."""

    def get(self, name: str) -> str | None:
        """Return nothing."""
        del name
        return None

    def has(self, name: str) -> bool:
        """Return False."""
        del name
        return False


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Where the key of a vendor is, or should be."""

    found: bool
    where: str = ""
    """A file, a variable or a stored key, in words; empty where no key is needed."""
    stored: str = ""
    """The name of the stored key, if it is one."""

    @property
    def lacks(self) -> bool:
        """Whether a key is needed that is not there."""
        return not self.found and bool(self.where)

    @property
    def problem(self) -> str:
        """The problem with a key that is needed and missing, as a clause."""
        return f"{self.where} is not {'there' if self.stored else 'set'}"


def key_of_setting(settings: Settings, vendor: str) -> str | None:
    """Return the stored key that `models.VENDOR.key` names, if it names one."""
    own = settings.vendor(vendor).key
    reference = own.get_secret_value() if own is not None else ""
    return reference.removeprefix(STORED) if reference.startswith(STORED) else None


def key_of(
    settings: Settings, vendor: str, secret: Secret, environ: Mapping[str, str]
) -> str | None:
    """Return a vendor's key: the configured key, else the stored key.

    None leaves it to the port, which looks into the environment.
    """
    name = key_of_setting(settings, vendor)
    if name is not None:
        stored = secret(name)
        if stored is None:
            raise NotFound(
                f"models.{vendor}.key is '{STORED}{name}', but there is no stored key {name!r}. "
                f'Store it with "asterism key set {name}". Nothing was asked.'
            )
        return stored
    own = settings.vendor(vendor).key
    if own is not None:
        return own.get_secret_value()
    return secret(vendor) if settings.takes_stored_key(vendor, environ) else None


def key_place(
    settings: Settings, vendor: str, keys: StoredKeys, environ: Mapping[str, str]
) -> KeyPlace:
    """Tell where `key_of` and the port find a vendor's key, without looking at the key."""
    name = key_of_setting(settings, vendor)
    if name is not None:
        found = keys.has(name)
        return KeyPlace(found, f"stored as {name}" if found else f"the stored key {name!r}", name)
    if settings.vendor(vendor).key is not None:
        return KeyPlace(found=True, where="in asterism.toml")
    if settings.takes_stored_key(vendor, environ) and keys.has(vendor):
        return KeyPlace(found=True, where=f"stored as {vendor}", stored=vendor)
    variable = settings.vendor(vendor).key_env
    known, own = vendors().get(vendor), settings.models.get(vendor)
    if variable is None and known is not None and not (own and own.base_url):
        variable = known.key_variable(environ)
    if variable is None:
        usual = f"{vendor.upper().replace('-', '_')}_API_KEY"
        found = bool(environ.get(usual))
        return KeyPlace(found, f"in {usual}" if found else "")
    # A key may have been put into key_env by mistake; no variable looks like one.
    shown = variable if re.fullmatch(r"[A-Z][A-Z0-9_]{0,60}", variable) else "key_env"
    found = bool(environ.get(variable))
    return KeyPlace(found, f"in {shown}" if found else shown)
