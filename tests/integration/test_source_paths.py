"""Which folders of the machine a source may read, and who may name one."""

from pathlib import Path

import pytest

from asterism.store import documents
from asterism.store.database import Connection
from asterism.types.documents import DocumentSource
from tests.api_scene import api_client
from tests.scenes import open_home

pytestmark = pytest.mark.promise("X1")

SECRET = "ast_0123"


async def test_an_admin_names_no_folder_of_the_machine(tmp_path: Path):
    papers = tmp_path / "papers"
    papers.mkdir()
    async with (
        open_home(tmp_path / "data", work=False) as home,
        api_client(home, "admin") as client,
    ):
        for path in (papers, tmp_path / "data", Path("/etc")):
            answer = await client.post("/api/sources", json={"name": "leak", "path": str(path)})
            assert (answer.status_code, answer.json()["type"]) == (403, "not-allowed")
        assert await home.sources.list() == []
        # What they send themselves is read.
        uploaded = await client.put("/api/sources/mine/files/a.txt", content=b"Mine.")
        assert uploaded.status_code == 200, uploaded.text
        assert uploaded.json()["read"] == 1


@pytest.mark.parametrize("inside", ["", "api-token", "uploads", "uploads/mine", "uploads/.."])
async def test_nobody_makes_a_source_in_the_data_directory(tmp_path: Path, inside: str):
    data = tmp_path / "data"
    async with open_home(data, work=False) as home, api_client(home) as client:
        (data / "api-token").write_text(SECRET)
        await client.put("/api/sources/mine/files/a.txt", content=b"Mine.")
        link = tmp_path / "link"
        link.symlink_to(data)
        for place in (data / inside, link / inside):
            body = {"name": "leak", "path": str(place), "include": ["api-token"]}
            answer = await client.post("/api/sources", json=body)
            assert answer.status_code == 422, answer.text
        assert [state.source.name for state in await home.sources.list()] == ["mine"]


async def test_a_folder_around_the_data_directory_is_read_without_it(tmp_path: Path):
    data = tmp_path / "data"
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tea.md").write_text("Green tea.")
    async with open_home(data, work=False) as home:
        (data / "api-token").write_text(SECRET)
        (data / "notes.md").write_text(SECRET)
        await home.sources.add("all", tmp_path, include=["api-token", "*.md"])
        done = await home.sources.sync("all")
        assert done.read == 1
        assert [one.path for one in await home.sources.documents("all")] == ["notes/tea.md"]


async def test_a_source_from_before_that_is_in_the_data_directory_is_not_read(tmp_path: Path):
    data = tmp_path / "data"

    async def put(tx: Connection, name: str, path: Path) -> None:
        await documents.create(tx, DocumentSource(f"source_{name}", name, str(path)))

    async with open_home(data, work=False) as home, api_client(home) as client:
        (data / "notes.md").write_text(SECRET)
        (data / "uploads").mkdir()
        for name, path in (("old", data), ("..", data), ("one", data / "notes.md")):
            await home.database.write(lambda tx, name=name, path=path: put(tx, name, path))
            with pytest.raises(Exception, match="in the data directory"):
                await home.sources.sync(name)
        answer = await client.post("/api/sources/old/sync")
        assert (answer.status_code, answer.json()["type"]) == (409, "conflict")
        assert list(await home.sources.documents("old")) == []
