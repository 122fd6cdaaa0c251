"""Keys of others at rest: encrypted with a data key, which the master key encrypts in turn.

A place for the master key holds one key or several, the current one first. Those behind it decrypt
what was encrypted before, so that a change of keys can be cut off at any instant.
"""

from __future__ import annotations

import base64
import binascii
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from asterism.errors import AsterismError, ConfigError, MasterKeyMissing, SecretUnreadable
from asterism.private import make_directory
from asterism.records import dataclass
from asterism.store.database import Connection
from asterism.types.agents import new_id

VARIABLE = "ASTERISM_KEY"
_FILE = "master.key"
_MAKE = "openssl rand -base64 32"
_KEY_SIZE = 32
_NONCE_SIZE = 12


@dataclass(frozen=True, slots=True)
class EncryptedText:
    """Bytes that only the right key opens."""

    ciphertext: bytes
    nonce: bytes


def new_key() -> bytes:
    """Return a new key."""
    return os.urandom(_KEY_SIZE)


def fingerprint(key: bytes) -> str:
    """Return a name of a key that tells nothing about it."""
    return sha256(b"asterism master key" + key).hexdigest()[:16]


def encrypt(key: bytes, text: bytes, name: str) -> EncryptedText:
    """Encrypt a text under a name; under another name it cannot be opened."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE_SIZE)
    return EncryptedText(AESGCM(key).encrypt(nonce, text, name.encode()), nonce)


def decrypt(key: bytes, encrypted: EncryptedText, name: str) -> bytes:
    """Return the text; raise `SecretUnreadable` if a bit of it, its name or the key is another."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(encrypted.nonce, encrypted.ciphertext, name.encode())
    except (InvalidTag, ValueError):
        raise SecretUnreadable(
            f"The secret {name!r} cannot be decrypted: it is damaged in the store. Set it again "
            f'with "asterism key set {name}", or restore the database from a backup. The '
            "others are not affected."
        ) from None


# -- where the master key is -----------------------------------------------------------------------


class MasterKeyStore(Protocol):
    """Where the master key is."""

    place: str
    """In words, for messages."""
    is_writable: bool
    """Whether a new key can be put there."""

    def read(self) -> list[bytes]:
        """Return the keys, the current one first; none if there is no key yet."""
        ...

    def put(self, keys: Sequence[bytes]) -> None:
        """Keep these keys and no others."""
        ...


class MasterKeyVariable:
    """The master key in the variable ASTERISM_KEY; it is changed by whoever sets it."""

    is_writable = False

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.place = f"the environment variable {VARIABLE}"

    def read(self) -> list[bytes]:
        """Return the keys."""
        return _parse_keys(self._environ.get(VARIABLE, ""), self.place)

    def put(self, keys: Sequence[bytes]) -> None:
        """Refuse: the environment is not ours."""
        del keys
        raise ConfigError(
            f'{VARIABLE} is not set, and secrets.keeper is "env". Set it to 32 random bytes in '
            f'Base64, such as "{_MAKE}" prints, and keep a copy. Nothing was stored.'
        )


class MasterKeyFile:
    """The master key in a file that only its owner may read."""

    is_writable = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self.place = str(path)

    def read(self) -> list[bytes]:
        """Return the keys; a file that others may read is refused."""
        try:
            mode = self._path.stat().st_mode
            text = self._path.read_text("ascii", "replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ConfigError(
                f"The master key {self._path} cannot be read ({error.strerror}). Let the user that "
                "runs asterism read it. Nothing was changed."
            ) from None
        if stat.S_IMODE(mode) & 0o077:
            raise ConfigError(
                f"The master key {self._path} can be read by others (mode "
                f'{stat.S_IMODE(mode):04o}). Run "chmod 600 {self._path}". Nothing was changed.'
            )
        return _parse_keys(text, self.place)

    def put(self, keys: Sequence[bytes]) -> None:
        """Write the file anew, in one go."""
        text = "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)
        try:
            make_directory(self._path.parent)
            handle, name = tempfile.mkstemp(prefix=".master", dir=self._path.parent)
            try:
                with os.fdopen(handle, "w", encoding="ascii") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self._path)
            except BaseException:
                with suppress(OSError):
                    Path(name).unlink()
                raise
        except OSError as error:
            raise ConfigError(
                f"The master key cannot be written to {self._path} ({error.strerror}). Set "
                f"secrets.key_file to a writable path, or set {VARIABLE}. Nothing was stored."
            ) from None


class MasterKeyring:
    """The master key in the keyring of the system."""

    is_writable = True
    _SERVICE, _USER = "asterism", "master key"

    def __init__(self, constellation: str) -> None:
        self._user = f"{self._USER} of {constellation}"
        self.place = "the system's keyring"

    def read(self) -> list[bytes]:
        """Return the keys."""
        return _parse_keys(self._ask("get_password", self._SERVICE, self._user) or "", self.place)

    def put(self, keys: Sequence[bytes]) -> None:
        """Keep these keys."""
        text = ",".join(base64.b64encode(key).decode() for key in keys)
        self._ask("set_password", self._SERVICE, self._user, text)

    def _ask(self, verb: str, *arguments: str) -> str | None:
        try:
            import keyring
            from keyring.errors import KeyringError
        except ImportError:
            raise ConfigError(
                'secrets.keeper is "keyring", but keyring is not installed. Install it with: pip '
                "install 'asterism[keyring]', or set secrets.keeper to \"file\". Nothing was done."
            ) from None
        try:
            return getattr(keyring, verb)(*arguments)
        except (KeyringError, RuntimeError) as error:
            raise ConfigError(
                f"The system's keyring does not answer ({error}). Unlock it, or set secrets.keeper "
                'to "file" or "env". Nothing was changed.'
            ) from None


def master_key_store(
    kind: str, key_file: str | None, data: Path, constellation: str, environ: Mapping[str, str]
) -> MasterKeyStore:
    """Return the place of the master key; the environment wins where it has one."""
    if kind == "env" or environ.get(VARIABLE):
        return MasterKeyVariable(environ)
    if kind == "keyring":
        return MasterKeyring(constellation)
    return MasterKeyFile(
        Path(key_file).expanduser() if key_file else default_key_file(data, environ)
    )


def default_key_file(data: Path, environ: Mapping[str, str]) -> Path:
    """Return the usual file: not with the data, so that a copy of those reveals no secret.

    It is in the user's folder for configuration; beside the data for a made-up environment.
    """
    if environ is not os.environ and not {"HOME", "XDG_CONFIG_HOME"} & environ.keys():
        return data.parent / _FILE
    if chosen := environ.get("XDG_CONFIG_HOME"):
        return Path(chosen) / "asterism" / _FILE
    from platformdirs import user_config_path

    return user_config_path("asterism", appauthor=False) / _FILE


def _parse_keys(text: str, place: str) -> list[bytes]:
    keys: list[bytes] = []
    for word in text.replace(",", " ").split():
        try:
            key = base64.b64decode(word, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != _KEY_SIZE:
            raise ConfigError(
                f"The master key in {place} is not a valid key: 32 bytes in Base64 are "
                f'needed, such as "{_MAKE}" prints. Restore the right key. Nothing was changed.'
            )
        keys.append(key)
    return keys


# -- rows ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key for secrets, encrypted with the master key."""

    id: str
    encrypted: EncryptedText
    master: str
    """Which master key, by its fingerprint."""
    created_at: int


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A secret, encrypted."""

    name: str
    encrypted: EncryptedText
    key_id: str
    created_at: int
    used_at: int | None


async def list_data_keys(tx: Connection) -> list[DataKey]:
    """Return all data keys, the newest first."""
    rows = await tx.all(
        "SELECT id, wrapped, nonce, master, created_at FROM data_keys ORDER BY created_at DESC, id"
    )
    return [
        DataKey(id, EncryptedText(bytes(wrapped), bytes(nonce)), master, at)
        for id, wrapped, nonce, master, at in rows
    ]


async def put_data_key(tx: Connection, key: DataKey) -> None:
    """Store a data key, or the same one encrypted anew."""
    await tx.run(
        "INSERT INTO data_keys (id, wrapped, nonce, master, created_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET wrapped = excluded.wrapped, nonce = excluded.nonce,"
        " master = excluded.master",
        (key.id, key.encrypted.ciphertext, key.encrypted.nonce, key.master, key.created_at),
    )


async def delete_unused_data_keys(tx: Connection) -> None:
    """Remove data keys that no secret needs."""
    await tx.run("DELETE FROM data_keys WHERE id NOT IN (SELECT key_id FROM secrets)")


async def list_secrets(tx: Connection) -> list[SecretRow]:
    """Return all secrets of a constellation by name."""
    rows = await tx.all(
        "SELECT name, ciphertext, nonce, key_id, created_at, used_at FROM secrets"
        " WHERE constellation = ? ORDER BY name",
        (tx.constellation,),
    )
    return [
        SecretRow(name, EncryptedText(bytes(ciphertext), bytes(nonce)), key_id, created_at, used_at)
        for name, ciphertext, nonce, key_id, created_at, used_at in rows
    ]


async def put_secret(tx: Connection, row: SecretRow) -> bool:
    """Store a secret; tell whether there was one of that name before."""
    before = await tx.one(
        "SELECT 1 FROM secrets WHERE constellation = ? AND name = ?", (tx.constellation, row.name)
    )
    await tx.run(
        "INSERT INTO secrets (constellation, name, ciphertext, nonce, key_id, created_at, used_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (constellation, name) DO UPDATE SET"
        " ciphertext = excluded.ciphertext, nonce = excluded.nonce, key_id = excluded.key_id,"
        " created_at = excluded.created_at, used_at = excluded.used_at",
        (
            tx.constellation,
            row.name,
            row.encrypted.ciphertext,
            row.encrypted.nonce,
            row.key_id,
            row.created_at,
            row.used_at,
        ),
    )
    return before is not None


async def remove_secret(tx: Connection, name: str) -> bool:
    """Remove a secret; False if there is none."""
    sql = "DELETE FROM secrets WHERE constellation = ? AND name = ?"
    return await tx.run(sql, (tx.constellation, name)) > 0


async def set_used_at(tx: Connection, name: str, at: int) -> None:
    """Note when a secret was last used."""
    await tx.run(
        "UPDATE secrets SET used_at = ? WHERE constellation = ? AND name = ?",
        (at, tx.constellation, name),
    )


# -- data keys -------------------------------------------------------------------------------------


class Decrypter:
    """Decrypts secrets with the master keys that a place holds."""

    def __init__(self, key_store: MasterKeyStore, data_keys: list[DataKey], count: int) -> None:
        self._place = key_store.place
        self._count = count
        self._problem: AsterismError | None = None
        self._masters: dict[str, bytes] = {}
        try:
            self._masters = {fingerprint(key): key for key in key_store.read()}
        except AsterismError as error:
            self._problem = error
        self._data_keys = {data_key.id: data_key for data_key in data_keys}
        self._keys: dict[str, bytes] = {}

    def data_keys(self) -> Iterator[tuple[DataKey, bytes]]:
        """Yield each data key that a master key decrypts."""
        for data_key in self._data_keys.values():
            if data_key.master in self._masters:
                yield (
                    data_key,
                    decrypt(self._masters[data_key.master], data_key.encrypted, data_key.id),
                )

    def text(self, row: SecretRow) -> str:
        """Return a secret."""
        key = self._keys.get(row.key_id)
        if key is None:
            key = self._keys[row.key_id] = self._key(row)
        return decrypt(key, row.encrypted, row.name).decode()

    def _key(self, row: SecretRow) -> bytes:
        if self._problem is not None:
            raise self._problem
        data_key = self._data_keys.get(row.key_id)
        if data_key is None:
            raise SecretUnreadable(
                f"The secret {row.name!r} cannot be decrypted: its data key {row.key_id} is "
                f'missing. Set it again with "asterism key set {row.name}".'
            )
        master = self._masters.get(data_key.master)
        if master is None:
            raise _master_key_missing(self._place, bool(self._masters), self._count)
        try:
            return decrypt(master, data_key.encrypted, data_key.id)
        except SecretUnreadable:
            raise SecretUnreadable(
                f"The secret {row.name!r} cannot be decrypted: its data key is damaged. Restore "
                f'the database from a backup, or set it again with "asterism key set '
                f'{row.name}".'
            ) from None


def _master_key_missing(place: str, is_another: bool, count: int) -> MasterKeyMissing:
    """Return the error of a master key that is gone, or is another one."""
    what = "has a different master key" if is_another else "has no master key"
    whose = f"{count} stored keys" if count != 1 else "A stored key"
    return MasterKeyMissing(
        f"{whose} cannot be decrypted: {place} {what}. Restore the right key (or set ASTERISM_KEY "
        "to it). Nothing was lost or changed."
    )


def current_master_key(key_store: MasterKeyStore, masters: list[bytes]) -> bytes:
    """Return the master key to encrypt with; make one where there is none yet."""
    if masters:
        return masters[0]
    key = new_key()
    key_store.put([key])
    return key


def usable_data_key(
    key_store: MasterKeyStore, data_keys: list[DataKey], now: int
) -> tuple[DataKey, bytes]:
    """Return a data key to encrypt with, a new one where there is none."""
    masters = key_store.read()
    by_name = {fingerprint(key): key for key in masters}
    for data_key in data_keys:
        if data_key.master in by_name:
            try:
                return data_key, decrypt(by_name[data_key.master], data_key.encrypted, data_key.id)
            except SecretUnreadable:
                continue
    if data_keys and not masters:
        # A new master key would hide that the right one has to be put back.
        raise _master_key_missing(key_store.place, is_another=False, count=2)
    return new_data_key(current_master_key(key_store, masters), now)


def new_data_key(master: bytes, now: int) -> tuple[DataKey, bytes]:
    """Return a new data key, encrypted and as it is."""
    key, id = new_key(), new_id("dkey")
    return DataKey(id, encrypt(master, key, id), fingerprint(master), now), key
