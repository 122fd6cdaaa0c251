"""Uploads that are meant to fill the memory or the disk of a server."""

import http.client
import os
import socket
import zipfile
from pathlib import Path

import pytest

from tests.documents import make_docx, paragraph
from tests.e2e.command import PATIENCE, Command
from tests.e2e.test_cli_serve import health, url_of

pytestmark = [pytest.mark.promise("S5"), pytest.mark.timeout(180)]
_PIECE = b"x" * (1 << 20)


def resident_mb(pid: int) -> float:
    """The memory that a process holds now."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def stored_bytes(place: Path) -> int:
    return sum(path.stat().st_size for path in place.rglob("*") if path.is_file())


def test_a_gigabyte_is_refused_at_the_limit(asterism: Command):
    asterism.ok("agent", "create", "aria")
    with asterism.started("serve", "--port", "0") as server:
        url = url_of(server)
        host, port = url.removeprefix("http://").split(":")
        token = (asterism.data / "api-token").read_text().strip()
        health(url)
        before, kept = resident_mb(server.pid), stored_bytes(asterism.data)
        head = (
            f"PUT /api/sources/papers/files/big.txt HTTP/1.1\r\nhost: {host}:{port}\r\n"
            f"authorization: Bearer {token}\r\n"
        )
        # Announced: it is refused before any of it is read.
        with socket.create_connection((host, int(port)), PATIENCE) as client:
            client.sendall(f"{head}content-length: {1 << 30}\r\n\r\n".encode())
            assert b" 413 " in client.recv(1 << 16).split(b"\r\n")[0]
        # Not announced: it is refused at the limit of a file.
        peak, sent = before, 0
        with socket.create_connection((host, int(port)), PATIENCE) as client:
            client.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
            try:
                while sent < 1 << 10:
                    client.sendall(b"%x\r\n%b\r\n" % (len(_PIECE), _PIECE))
                    sent += 1
                    peak = max(peak, resident_mb(server.pid))
            except OSError:
                pass
            assert sent < 1 << 9
        assert peak - before < 50, (before, peak)
        assert stored_bytes(asterism.data) - kept < 10 << 20
        assert health(url)[0] == 200


def make_bomb(path: Path) -> Path:
    """Make a document whose text is 300 MB of spaces, which takes less than 1 MB."""
    plain = make_docx(path.with_name("plain.docx"), paragraph("Hello."))
    with (
        zipfile.ZipFile(plain) as source,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as bomb,
    ):
        for name in source.namelist():
            before, end, after = source.read(name).partition(b"</w:body>")
            with bomb.open(name, "w", force_zip64=True) as stream:
                stream.write(before)
                for _ in range(300 if end else 0):
                    stream.write(b" " * (1 << 20))
                stream.write(end + after)
    return path


@pytest.mark.parametrize("name", ["bomb.docx", "bomb.zip"])
def test_a_small_file_that_unpacks_to_hundreds_of_megabytes(
    asterism: Command, tmp_path: Path, name: str
):
    bomb = make_bomb(tmp_path / name)
    assert bomb.stat().st_size < 5 << 20
    asterism.ok("agent", "create", "aria")
    with asterism.started("serve", "--port", "0") as server:
        url = url_of(server)
        token = (asterism.data / "api-token").read_text().strip()
        before = resident_mb(server.pid)
        client = http.client.HTTPConnection(url.removeprefix("http://"), timeout=90)
        client.request(
            "PUT",
            f"/api/sources/papers/files/{name}",
            bomb.read_bytes(),
            {"authorization": f"Bearer {token}"},
        )
        answer = client.getresponse()
        said = answer.read()
        client.close()
        assert answer.status < 500, said
        assert resident_mb(server.pid) - before < 150
        assert health(url)[0] == 200
