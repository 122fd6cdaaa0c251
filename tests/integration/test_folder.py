"""Folders of documents: read once, kept true, resumed where they were cut off, on both engines."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from shutil import move
from typing import Any

import pytest

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.memory import archive
from asterism.sources import child_reader
from asterism.sources import folder as folders
from asterism.sources.folder import Folder, Progress, SyncResult, glob_matches
from asterism.sources.readers import DocumentPiece, DocumentRefused, read
from asterism.store import documents
from asterism.store.database import Connection, Database, Row, Work
from asterism.store.postgres import open_postgres
from asterism.store.sqlite import open_sqlite
from asterism.testing.postgres import postgres_server
from asterism.types.agents import Audience, Trust
from asterism.types.documents import DocumentSource, DocumentState, SourceDocument
from asterism.types.memory import Origin, OriginKind
from tests.documents import make_docx, make_epub, make_pdf, paragraph

pytestmark = pytest.mark.promise("M5")

LATER = 4_000_000_000_000
"""A moment long after every file of a test was written, so that its time can be relied upon."""
FAMILY = Audience.read("role:family")
SOURCE = "source_1"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield str(tmp_path / "data")
        else:
            yield stack.enter_context(postgres_server().database())


@pytest.fixture
async def database(engine: str) -> AsyncIterator[Database]:
    opened: Database
    if engine.startswith("postgresql:"):
        opened = await open_postgres(engine)
    else:
        opened = await open_sqlite(Path(engine))
    yield opened
    await opened.close()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    return tmp_path / "docs"


@pytest.fixture
async def folder(database: Database, place: Path) -> Folder:
    return await put_folder(database, place)


async def put_folder(database: Database, place: Path, **given: Any) -> Folder:
    source = DocumentSource(SOURCE, "docs", str(place), audience=FAMILY, created_at_ms=1, **given)
    assert await database.write(lambda tx: documents.create(tx, source))
    return Folder(source, now=lambda: LATER, batch=2)


async def rows(database: Database) -> list[Row]:
    """All passages at rest, staged ones too."""
    return await database.read(
        lambda tx: tx.all(
            "SELECT document, place, text, origins, audience, trust, retracted_at FROM passages"
            " WHERE archive_id = ? ORDER BY document, place, id",
            (SOURCE,),
        )
    )


async def seen(database: Database) -> dict[str, list[str]]:
    """What those who look see: the texts of each document in order."""
    shown = await database.read(lambda tx: archive.listing(tx, [SOURCE], limit=100_000))
    ids = {one.id for one in shown}
    found = await database.read(
        lambda tx: tx.all("SELECT document, id, text FROM passages ORDER BY document, place, id")
    )
    texts: dict[str, list[str]] = {}
    for document, passage_id, text in found:
        if passage_id in ids:
            texts.setdefault(document, []).append(text)
    return texts


async def states(database: Database) -> dict[str, SourceDocument]:
    found = await database.read(lambda tx: documents.documents(tx, SOURCE, most=1_000))
    return {one.path: one for one in found}


def texts_of(path: Path) -> list[str]:
    return [piece.text for piece in read(path)]


def texts_in(place: Path) -> dict[str, list[str]]:
    return {path.name: texts_of(path) for path in place.iterdir()}


def story(name: str, paragraphs: int = 12) -> str:
    return "\n\n".join(
        f"{name} paragraph {number}: " + "something is told here at length. " * 20
        for number in range(paragraphs)
    )


async def sync(folder: Folder, database: Database) -> SyncResult:
    async with asyncio.timeout(120):
        return await folder.sync(database)


# -- reading ---------------------------------------------------------------------------------------


async def test_every_format_is_read_with_its_origin(
    database: Database, folder: Folder, place: Path
) -> None:
    (place / "sub").mkdir()
    (place / "a.txt").write_text(story("Anna"))
    (place / "sub/b.md").write_text("# Birds\n\nOwls fly by night.")
    (place / "c.csv").write_text("name,age\nAnna,7\n")
    (place / "d.json").write_text('{"likes": "tea"}')
    (place / "e.html").write_text("<h1>Bees</h1><p>They hum.</p>")
    (place / "f.py").write_text("def hum():\n    return 'mm'\n")
    make_docx(place / "g.docx", paragraph("Words of Word."))
    make_pdf(place / "h.pdf", [["Words of a PDF."]])
    make_epub(place / "i.epub", {"one": "<p>Words of a book.</p>"})
    (place / "j.eml").write_text("From: anna@example.org\nSubject: Tea\n\nWords of a mail.\n")
    (place / "photo.png").write_bytes(b"\x89PNG")
    done = await sync(folder, database)
    assert (done.read, done.refused, done.unchanged, done.removed) == (10, 0, 0, 0)
    there = await seen(database)
    assert there == {
        path: [text.strip() for text in texts_of(place / path)]
        for path in (
            "a.txt",
            "sub/b.md",
            "c.csv",
            "d.json",
            "e.html",
            "f.py",
            "g.docx",
            "h.pdf",
            "i.epub",
            "j.eml",
        )
    }
    (bird,) = [
        one
        for one in await database.read(lambda tx: archive.listing(tx, [SOURCE]))
        if "Owls" in one.text
    ]
    origin = Origin(OriginKind.DOCUMENT, "docs/sub/b.md", "# Birds (line 3)")
    assert bird.source.origins == (origin,)
    assert (bird.source.audience, bird.source.trust) == (FAMILY, Trust.DOCUMENT)
    assert bird.known_from_ms == LATER
    assert all(one.state is DocumentState.READ for one in (await states(database)).values())
    assert done.passages == sum(map(len, there.values()))
    (source,) = await database.read(documents.sources)
    assert source.synced_at_ms == LATER


async def test_nothing_is_read_twice(database: Database, folder: Folder, place: Path) -> None:
    (place / "a.txt").write_text(story("Anna"))
    await sync(folder, database)
    before = await rows(database)
    done = await sync(folder, database)
    assert (done.read, done.unchanged, done.passages) == (0, 1, 0)
    os.utime(place / "a.txt", (1, 1))
    done = await sync(folder, database)
    assert (done.read, done.unchanged) == (0, 1)
    assert (await states(database))["a.txt"].modified == 1_000
    assert await rows(database) == before


async def test_a_change_is_noticed_even_within_one_tick_of_the_clock(
    database: Database, place: Path
) -> None:
    source = DocumentSource(SOURCE, "docs", str(place))
    await database.write(lambda tx: documents.create(tx, source))
    folder = Folder(source)
    (place / "a.txt").write_text("tea")
    looked = (place / "a.txt").stat()
    await sync(folder, database)
    (place / "a.txt").write_text("pie")
    os.utime(place / "a.txt", ns=(looked.st_atime_ns, looked.st_mtime_ns))
    await sync(folder, database)
    assert await seen(database) == {"a.txt": ["pie"]}


async def test_changed_removed_and_renamed_files(
    database: Database, folder: Folder, place: Path
) -> None:
    for name in ("changed", "removed", "renamed", "same"):
        (place / f"{name}.txt").write_text(story(name))
    await sync(folder, database)
    (place / "changed.txt").write_text(story("other", 3))
    (place / "removed.txt").unlink()
    (place / "renamed.txt").rename(place / "new name.txt")
    done = await sync(folder, database)
    assert (done.read, done.unchanged, done.removed, done.refused) == (2, 1, 2, 0)
    assert await seen(database) == texts_in(place)
    assert {row[0] for row in await rows(database)} == set(await states(database))
    assert not any(row[6] is not None for row in await rows(database))


async def test_a_file_that_became_empty_has_no_passages(
    database: Database, folder: Folder, place: Path
) -> None:
    (place / "a.txt").write_text("tea")
    await sync(folder, database)
    (place / "a.txt").write_text("")
    done = await sync(folder, database)
    assert (done.read, done.refused) == (1, 0)
    assert await rows(database) == []
    assert (await states(database))["a.txt"].state is DocumentState.READ


# -- what cannot be read ---------------------------------------------------------------------------


async def test_refused_documents_leave_nothing_and_the_others_go_on(
    database: Database, folder: Folder, place: Path
) -> None:
    (place / "a.pdf").write_bytes(b"%PDF-1.7 broken")
    (place / "b.txt").write_bytes(bytes(range(256)))
    late = ", ".join(f'{{"n": {n}, "text": "{"x " * 200}"}}' for n in range(20))
    (place / "c.json").write_text(f"[{late} oops")
    (place / "d.txt").write_text("tea")
    done = await sync(folder, database)
    assert (done.read, done.refused) == (1, 3)
    assert [problem.split()[0] for problem in done.problems] == ["'a.pdf'", "'b.txt'", "'c.json'"]
    assert [row[0] for row in await rows(database)] == ["d.txt"]
    found = await states(database)
    assert found["c.json"].state is DocumentState.REFUSED
    assert found["c.json"].error == done.problems[2]
    assert found["c.json"].passages == 0
    again = await sync(folder, database)
    assert (again.read, again.refused, again.unchanged) == (0, 0, 4)
    (place / "c.json").write_text('["mended"]')
    assert (await sync(folder, database)).read == 1


async def test_a_document_that_can_no_longer_be_read_is_no_longer_told(
    database: Database, folder: Folder, place: Path
) -> None:
    (place / "a.json").write_text('{"likes": "tea"}')
    await sync(folder, database)
    (place / "a.json").write_text('{"likes": ')
    assert (await sync(folder, database)).refused == 1
    assert await rows(database) == []


async def test_a_pdf_is_tried_again_once_the_library_is_there(
    database: Database, folder: Folder, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_pdf(place / "a.pdf", [["Words of a PDF."]])
    with monkeypatch.context() as patch:
        patch.setattr(child_reader, "find_spec", dict[str, str]().get)
        done = await sync(folder, database)
        assert "asterism[documents]" in done.problems[0]
    assert (await sync(folder, database)).read == 1


async def test_hidden_files_links_and_odd_names_are_left_out(
    database: Database, folder: Folder, place: Path
) -> None:
    outside = place.parent / "secret.txt"
    outside.write_text("secret")
    (place / ".hidden").mkdir()
    (place / ".hidden/a.txt").write_text("secret")
    (place / ".b.txt").write_text("secret")
    (place / "out.txt").symlink_to(outside)
    (place / "up").symlink_to(place.parent)
    (place / "loop").symlink_to(place)
    os.mkfifo(place / "pipe.txt")
    (place / "in.txt").write_text("tea")
    (place / "alias.txt").symlink_to(place / "in.txt")
    with (place / os.fsdecode(b"b\xff.txt")).open("w") as odd:
        odd.write("odd")
    done = await sync(folder, database)
    assert await seen(database) == {"in.txt": ["tea"]}
    (problem,) = done.problems
    assert problem.endswith("rename it to have it read.")
    # A folder that becomes a link is out of the source from then on.
    (place / "sub").mkdir()
    (place / "sub/c.txt").write_text("cake")
    await sync(folder, database)
    (place / "sub").rename(place.parent / "elsewhere")
    (place / "sub").symlink_to(place.parent / "elsewhere")
    assert (await sync(folder, database)).removed == 1
    assert await seen(database) == {"in.txt": ["tea"]}


async def test_globs_say_what_belongs_to_a_source(database: Database, place: Path) -> None:
    for path in ("a.txt", "notes/b.md", "notes/old/c.md", "notes/d.xyz", "build/e.md"):
        (place / path).parent.mkdir(exist_ok=True)
        (place / path).write_text("tea")
    folder = await put_folder(
        database, place, include=("notes/**", "*.txt"), exclude=("notes/old/",)
    )
    await sync(folder, database)
    assert sorted(await seen(database)) == ["a.txt", "notes/b.md", "notes/d.xyz"]
    narrower = DocumentSource(SOURCE, "docs", str(place), include=("*.txt",))
    assert (await sync(Folder(narrower), database)).removed == 2
    for bad in ("", "/etc/*", "x" * 300):
        with pytest.raises(InvalidInput):
            Folder(DocumentSource(SOURCE, "docs", str(place), exclude=(bad,)))


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.md", "a/b.md", True),
        ("a/*.md", "a/b.md", True),
        ("a/*.md", "a/b/c.md", False),
        ("a/**/*.md", "a/c.md", True),
        ("a/**/*.md", "a/b/x/c.md", True),
        ("**/c.md", "c.md", True),
        ("a/", "a/b/c", True),
        ("a/", "b/a/c", False),
        ("**", "a/b", True),
        ("**/*", "a/b", True),
        ("a/b", "a/b/c", False),
    ],
)
def test_globs(glob: str, path: str, fits: bool) -> None:
    assert glob_matches(glob, path) is fits


async def test_a_folder_that_is_not_there_removes_nothing(
    database: Database, folder: Folder, place: Path
) -> None:
    (place / "a.txt").write_text("tea")
    await sync(folder, database)
    move(place, place.parent / "moved")
    with pytest.raises(NotFound, match="Nothing was changed"):
        await sync(folder, database)
    assert await seen(database) == {"a.txt": ["tea"]}


# -- cut off and gone on ---------------------------------------------------------------------------


class Cut(Exception):
    """The end of a process, as far as the sync is concerned."""


class Breaking:
    """A database that ends the sync at its n-th write, before or after it is durable."""

    def __init__(self, inner: Database, last: int, *, durable: bool) -> None:
        self._inner = inner
        self._left = last
        self._durable = durable

    async def write(self, work: Work[Any]) -> Any:
        self._left -= 1
        if not self._left and not self._durable:
            raise Cut
        result = await self._inner.write(work)
        if not self._left:
            raise Cut
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_sync_goes_on_wherever_it_was_cut_off(
    database: Database, folder: Folder, place: Path, durable: bool
) -> None:
    old, new = story("old", 7), story("new", 9)
    broken = f'["{"x " * 700}", "{"y " * 700}", oops'
    (place / "a.txt").write_text(old)
    (place / "gone.txt").write_text(story("gone", 3))
    await sync(folder, database)
    first = await seen(database)
    (place / "a.txt").write_text(new)
    (place / "b.txt").write_text(story("more", 5))
    (place / "broken.json").write_text(broken)
    (place / "gone.txt").unlink()
    expected = {name: texts_of(place / name) for name in ("a.txt", "b.txt")}
    stored: list[int] = []
    for last in range(1, 100):
        await database.write(forget_everything)
        (place / "a.txt").write_text(old)
        (place / "gone.txt").write_text(story("gone", 3))
        (place / "b.txt").rename(place / "b.hid")
        (place / "broken.json").rename(place / "broken.hid")
        await sync(folder, database)
        (place / "a.txt").write_text(new)
        (place / "gone.txt").unlink()
        (place / "b.hid").rename(place / "b.txt")
        (place / "broken.hid").rename(place / "broken.json")
        try:
            await folder.sync(Breaking(database, last, durable=durable))  # pyright: ignore[reportArgumentType] - as much of it as a sync uses
        except Cut:
            pass
        else:
            break
        for name, texts in (await seen(database)).items():
            assert texts in (first.get(name), expected.get(name))
        done = await sync(folder, database)
        stored.append(done.passages)
        assert await seen(database) == expected
        at_rest = await rows(database)
        assert [(row[0], row[1]) for row in at_rest] == [
            (name, number) for name, texts in expected.items() for number in range(len(texts))
        ]
        assert not any(row[6] is not None for row in at_rest)
        assert set(await states(database)) == {"a.txt", "b.txt", "broken.json"}
    assert len(stored) > 12
    # What was stored before the cut is not stored again.
    assert stored[0] > stored[len(stored) // 2] > 0 == stored[-1]


async def forget_everything(tx: Connection) -> None:
    await tx.run("DELETE FROM passages")
    await tx.run("DELETE FROM documents")


async def test_a_file_that_changed_after_the_cut_is_read_anew(
    database: Database, folder: Folder, place: Path
) -> None:
    (place / "a.txt").write_text(story("first", 9))
    with pytest.raises(Cut):
        await folder.sync(Breaking(database, 3, durable=True))  # pyright: ignore[reportArgumentType]
    assert (await states(database))["a.txt"].passages == 4
    assert await seen(database) == {}
    (place / "a.txt").write_text(story("second", 9))
    await sync(folder, database)
    assert await seen(database) == {"a.txt": texts_of(place / "a.txt")}
    assert len(await rows(database)) == len(texts_of(place / "a.txt"))


async def test_what_was_cut_in_another_way_is_read_anew(
    database: Database, folder: Folder, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "a.txt").write_text(story("first", 9))
    with monkeypatch.context() as patch:
        patch.setattr(folders, "read", _by_words)
        with pytest.raises(Cut):
            await folder.sync(Breaking(database, 3, durable=True))  # pyright: ignore[reportArgumentType]
    await sync(folder, database)
    assert await seen(database) == {"a.txt": texts_of(place / "a.txt")}
    assert len(await rows(database)) == len(texts_of(place / "a.txt"))


def _by_words(path: Path) -> Iterator[DocumentPiece]:
    """Read as another release of asterism might."""
    yield from (DocumentPiece(word, "somewhere") for word in path.read_text().split())


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from asterism.sources.folder import Folder, Progress
from asterism.store import documents
from asterism.store.sqlite import open_sqlite

async def main():
    database = await open_sqlite(Path(sys.argv[1]))
    (source,) = await database.read(lambda tx: documents.sources(tx))

    def watch(progress: Progress) -> None:
        if progress.passages >= int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

    await Folder(source, batch=2).sync(database, watch)

asyncio.run(main())
"""


async def test_a_sync_that_was_killed_goes_on(tmp_path: Path, place: Path) -> None:
    (place / "a.txt").write_text(story("killed", 30))
    data = tmp_path / "data"
    database = await open_sqlite(data)
    await put_folder(database, place)
    await database.close()
    stored: list[int] = []
    for most in (2, 5, 9):
        command = [sys.executable, "-c", KILLED, str(data), str(most)]
        done = await asyncio.to_thread(
            subprocess.run, command, timeout=60, capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        database = await open_sqlite(data)
        stored.append((await states(database))["a.txt"].passages)
        assert len(await rows(database)) == stored[-1]
        assert await seen(database) == {}
        await database.close()
    assert stored == [2, 8, 18]
    database = await open_sqlite(data)
    (source,) = await database.read(documents.sources)
    done = await sync(Folder(source), database)
    assert done.passages == len(texts_of(place / "a.txt")) - 18
    assert await seen(database) == {"a.txt": texts_of(place / "a.txt")}
    await database.close()


async def test_two_syncs_at_once_store_everything_once(
    database: Database, folder: Folder, place: Path
) -> None:
    for name in "abcdef":
        (place / f"{name}.txt").write_text(story(name, 9))
    ended = await asyncio.gather(*(folder.sync(database) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(one, SyncResult | Conflict) for one in ended)
    await sync(folder, database)
    assert await seen(database) == texts_in(place)
    assert not any(row[6] is not None for row in await rows(database))


async def test_a_cancelled_sync_lets_go_and_goes_on_later(
    database: Database, folder: Folder, place: Path
) -> None:
    make_pdf(
        place / "a.pdf", [[f"Page {page} says {line}." for line in range(40)] for page in range(40)]
    )
    begun = asyncio.Event()
    task = asyncio.create_task(
        folder.sync(database, lambda progress: begun.set() if progress.passages else None)
    )
    async with asyncio.timeout(120):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await seen(database) == {}
    await sync(folder, database)
    assert await seen(database) == {"a.pdf": texts_of(place / "a.pdf")}


async def test_a_file_that_changes_while_it_is_read_is_read_again(
    database: Database, folder: Folder, place: Path
) -> None:
    (place / "a.txt").write_text(story("first", 9))

    def watch(progress: Progress) -> None:
        if progress.passages == 2:
            (place / "a.txt").write_text(story("second", 8))

    async with asyncio.timeout(120):
        done = await folder.sync(database, watch)
    assert (done.read, done.refused) == (1, 0)
    assert await seen(database) == {"a.txt": texts_of(place / "a.txt")}
    assert len(await rows(database)) == len(texts_of(place / "a.txt"))


async def test_a_file_that_never_stands_still_is_left_for_later(
    database: Database, folder: Folder, place: Path
) -> None:
    (place / "a.txt").write_text(story("first", 3))

    def watch(progress: Progress) -> None:
        if progress.bytes:
            with (place / "a.txt").open("a") as file:
                file.write("more")

    async with asyncio.timeout(120):
        done = await folder.sync(database, watch)
    assert "keeps changing" in done.problems[0]
    assert await seen(database) == {}
    await sync(folder, database)
    assert await seen(database) == {"a.txt": texts_of(place / "a.txt")}


async def test_progress_only_grows_and_ends_at_its_total(
    database: Database, folder: Folder, place: Path
) -> None:
    for name in "abc":
        (place / f"{name}.txt").write_text(story(name, 9))
    told: list[Progress] = []
    async with asyncio.timeout(120):
        done = await folder.sync(database, told.append)
    size = 3 * (place / "a.txt").stat().st_size
    assert (told[0].documents, told[0].documents_total) == (0, 3)
    assert (told[-1].documents, told[-1].bytes, told[-1].bytes_total) == (3, size, size)
    assert told[-1].passages == done.passages
    assert [one.bytes for one in told] == sorted(one.bytes for one in told)
    assert len(told) > 9


# -- sources ---------------------------------------------------------------------------------------


async def test_a_source_is_attached_and_removed_cleanly(
    database: Database, folder: Folder, place: Path
) -> None:
    for name in "abc":
        (place / f"{name}.txt").write_text(story(name, 5))
    await sync(folder, database)
    assert await database.write(lambda tx: documents.attach(tx, SOURCE, "agent_1", 1))
    assert not await database.write(lambda tx: documents.attach(tx, SOURCE, "agent_1", 2))
    assert await database.write(lambda tx: documents.attach(tx, SOURCE, "agent_2", 2))
    assert await database.read(lambda tx: documents.agents_of(tx, SOURCE)) == ["agent_1", "agent_2"]
    assert await database.write(lambda tx: documents.detach(tx, SOURCE, "agent_2"))
    assert not await database.write(lambda tx: documents.detach(tx, SOURCE, "agent_2"))
    counts = await database.read(lambda tx: documents.counts(tx, SOURCE))
    assert counts == (3, len(await rows(database)), 0)
    with pytest.raises(Cut):
        await folder.remove(Breaking(database, 3, durable=True))  # pyright: ignore[reportArgumentType]
    await folder.remove(database)
    for table in ("sources", "source_agents", "documents", "passages"):
        assert await database.read(lambda tx, table=table: tx.all(f"SELECT * FROM {table}")) == []


async def test_a_name_is_given_once(database: Database, folder: Folder, place: Path) -> None:
    other = DocumentSource("source_2", "docs", str(place))
    assert not await database.write(lambda tx: documents.create(tx, other))
    elsewhere = database.for_constellation("elsewhere")
    assert await elsewhere.write(lambda tx: documents.create(tx, other))
    found = await database.read(lambda tx: documents.by_name(tx, "docs"))
    assert found == folder.source
    assert await database.read(lambda tx: documents.by_name(tx, "none")) is None


def test_a_refusal_says_whether_it_may_pass() -> None:
    assert DocumentRefused(Path("a"), "is odd.").temporary is False
