"""Sealing: AES-256-GCM, each text bound to its name."""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256

from asterism.errors import SecretUnreadable

SIZE = 32
_NONCE = 12


@dataclass(frozen=True, slots=True)
class Sealed:
    """Bytes that only the right key opens."""

    ciphertext: bytes
    nonce: bytes


def new_key() -> bytes:
    """Return a new key."""
    return os.urandom(SIZE)


def fingerprint(key: bytes) -> str:
    """Return a name of a key that tells nothing about it."""
    return sha256(b"asterism master key" + key).hexdigest()[:16]


def seal(key: bytes, text: bytes, name: str) -> Sealed:
    """Encrypt a text under a name; under another name it cannot be opened."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE)
    return Sealed(AESGCM(key).encrypt(nonce, text, name.encode()), nonce)


def unseal(key: bytes, sealed: Sealed, name: str) -> bytes:
    """Return the text; raise `SecretUnreadable` if a bit of it, its name or the key is another."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed.nonce, sealed.ciphertext, name.encode())
    except (InvalidTag, ValueError):
        raise SecretUnreadable(
            f"The secret {name!r} cannot be opened: it was damaged at rest. Set it again with "
            f'"asterism key set {name}", or put the database back from a backup. The others are '
            "not affected."
        ) from None
