"""Blobs: images and other large contents, named by their digest."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from asterism.errors import InvalidInput

LARGEST_IMAGE = 10 * 1024 * 1024
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes with their type."""

    id: str
    """The SHA-256 in hexadecimal."""
    type: str
    body: bytes


def image(body: bytes) -> Blob:
    """Return an image as a blob, or raise `InvalidInput` if models could not see it."""
    if len(body) > LARGEST_IMAGE:
        raise InvalidInput(
            f"The image has {len(body) / 1e6:.1f} MB, and at most {LARGEST_IMAGE >> 20} MiB can be "
            "taken. Make it smaller. Nothing was stored."
        )
    kind = next((kind for magic, kind in _KINDS if body.startswith(magic)), "")
    if body[:4] == b"RIFF" and body[8:12] == b"WEBP":
        kind = "image/webp"
    if not kind:
        raise InvalidInput(
            f"The {len(body):,} bytes are no image that models can see: PNG, JPEG, GIF or WebP is "
            "needed. Convert it. Nothing was stored."
        )
    return Blob(hashlib.sha256(body).hexdigest(), kind, body)
