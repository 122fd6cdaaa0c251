"""Wire forms: messages as chat-completions JSON, the bytes that are stored and sent."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import orjson

from asterism.types.blobs import Blob

# A quote inside of a text is escaped in JSON, so nobody can write this into a message.
_BLOB = b'"asterism:blob/'
_BLOB_PART = re.compile(
    rb'\{"type":"image_url","image_url":\{"url":"asterism:blob/([0-9a-f]{64})"\}\}'
)
_UNSEEN = b'{"type":"text","text":"[an image that you cannot see]"}'


def message_wire(role: str, text: str, images: Sequence[Blob] = ()) -> bytes:
    """Return the wire form of a message; images are named by their digests."""
    if not images:
        return orjson.dumps({"role": role, "content": text})
    parts: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": f"asterism:blob/{one.id}"}} for one in images
    ]
    return orjson.dumps({"role": role, "content": [{"type": "text", "text": text}, *parts]})


def result_wire(call_id: str, text: str) -> bytes:
    """Return the wire form of a call's result."""
    return orjson.dumps({"role": "tool", "tool_call_id": call_id, "content": text})


def plain(text: str) -> str:
    """Return text that every store can keep: PostgreSQL takes no NUL characters."""
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def text_of(body: bytes) -> str:
    """Return the text of a message's wire form."""
    message: dict[str, Any] = orjson.loads(body)
    content: Any = message.get("content")
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        return "\n".join(part["text"] for part in parts if part.get("type") == "text")
    return content if isinstance(content, str) else ""


def images_in(body: bytes) -> list[str]:
    """Return the digests of the images that a wire form names."""
    return [one.decode() for one in _BLOB_PART.findall(body)] if _BLOB in body else []


def with_images(body: bytes, blobs: Mapping[str, Blob] | None) -> bytes:
    """Return a wire form with its images in place of their digests; with None, without them."""

    def show(part: re.Match[bytes]) -> bytes:
        blob = blobs.get(part[1].decode()) if blobs is not None else None
        if blob is None:
            return _UNSEEN
        data = base64.b64encode(blob.body)
        return b'{"type":"image_url","image_url":{"url":"data:%b;base64,%b"}}' % (
            blob.type.encode(),
            data,
        )

    return _BLOB_PART.sub(show, body)
