"""Secrets at rest: ciphertexts, and the wrapped keys that open them."""

from __future__ import annotations

from dataclasses import dataclass

from asterism.secrets.sealing import Sealed
from asterism.store.database import Connection


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key for secrets, sealed with the master key."""

    id: str
    sealed: Sealed
    master: str
    """Which master key, by its fingerprint."""
    created_at: int


@dataclass(frozen=True, slots=True)
class SecretRow:
    """A secret, sealed."""

    name: str
    sealed: Sealed
    key_id: str
    created_at: int
    used_at: int | None


async def data_keys(tx: Connection) -> list[DataKey]:
    """Return all data keys, the newest first."""
    rows = await tx.all(
        "SELECT id, wrapped, nonce, master, created_at FROM data_keys ORDER BY created_at DESC, id"
    )
    return [
        DataKey(id, Sealed(bytes(wrapped), bytes(nonce)), master, at)
        for id, wrapped, nonce, master, at in rows
    ]


async def put_data_key(tx: Connection, key: DataKey) -> None:
    """Store a data key, or the same one wrapped anew."""
    await tx.run(
        "INSERT INTO data_keys (id, wrapped, nonce, master, created_at) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET wrapped = excluded.wrapped, nonce = excluded.nonce,"
        " master = excluded.master",
        (key.id, key.sealed.ciphertext, key.sealed.nonce, key.master, key.created_at),
    )


async def drop_unused_keys(tx: Connection) -> None:
    """Remove data keys that no secret needs."""
    await tx.run("DELETE FROM data_keys WHERE id NOT IN (SELECT key_id FROM secrets)")


async def listing(tx: Connection, constellation: str) -> list[SecretRow]:
    """Return all secrets of a constellation by name."""
    rows = await tx.all(
        "SELECT name, ciphertext, nonce, key_id, created_at, used_at FROM secrets"
        " WHERE constellation = ? ORDER BY name",
        (constellation,),
    )
    return [
        SecretRow(name, Sealed(bytes(ciphertext), bytes(nonce)), key_id, created_at, used_at)
        for name, ciphertext, nonce, key_id, created_at, used_at in rows
    ]


async def put(tx: Connection, constellation: str, row: SecretRow) -> bool:
    """Store a secret; tell whether there was one of that name before."""
    before = await tx.one(
        "SELECT 1 FROM secrets WHERE constellation = ? AND name = ?", (constellation, row.name)
    )
    await tx.run(
        "INSERT INTO secrets (constellation, name, ciphertext, nonce, key_id, created_at, used_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (constellation, name) DO UPDATE SET"
        " ciphertext = excluded.ciphertext, nonce = excluded.nonce, key_id = excluded.key_id,"
        " created_at = excluded.created_at, used_at = excluded.used_at",
        (
            constellation,
            row.name,
            row.sealed.ciphertext,
            row.sealed.nonce,
            row.key_id,
            row.created_at,
            row.used_at,
        ),
    )
    return before is not None


async def remove(tx: Connection, constellation: str, name: str) -> bool:
    """Remove a secret; False if there is none."""
    sql = "DELETE FROM secrets WHERE constellation = ? AND name = ?"
    return await tx.run(sql, (constellation, name)) > 0


async def used(tx: Connection, constellation: str, name: str, at: int) -> None:
    """Note when a secret was last used."""
    await tx.run(
        "UPDATE secrets SET used_at = ? WHERE constellation = ? AND name = ?",
        (at, constellation, name),
    )
