"""What was forgotten is not told again from the memory of a process, nor brought back by a tool."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, tool
from asterism.memory.forgetting import Forgetting
from asterism.store import journal
from asterism.testing.postgres import postgres_server
from asterism.types.turns import EntryKind, TurnState
from tests.conformance.forget_scene import columns_with
from tests.integration.test_web_tool import Site, serving
from tests.scenes import open_home, until

CANARY = "Kanarie-4711-xk"
WHAT = Forgetting(texts=(CANARY,))
ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@tool(effects=())
def tell() -> str:
    """Tell what only the tool knows."""
    return f"It is {CANARY.upper()}, as before."


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as found:
        yield found


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest) -> Any:
    """Return the settings of a store."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store": {"url": url}}


async def call(home: Asterism, name: str, **arguments: Any) -> str:
    """Have the agent call a tool; return the call's result."""
    outcome = await home.agents.ask("aria", f"[[call:{name} {orjson.dumps(arguments).decode()}]]")
    assert outcome.state is TurnState.DONE, outcome.text
    record = (await home.turns.list("aria"))[0]
    entries = await home.database.read(lambda tx: journal.entries_of(tx, record))
    (result,) = [entry for entry in entries if entry.kind is EntryKind.RESULT]
    return orjson.loads(result.body)["content"]


async def workspace(home: Asterism) -> Path:
    place = home.workshop.workplace.folder((await home.agents.get("aria")).id)
    place.mkdir(parents=True, exist_ok=True)
    return place


@pytest.mark.promise("M13")
async def test_tools_do_not_tell_it_again(tmp_path: Path, site: Site, store: dict[str, Any]):
    # Pages may be fetched whatever was read before, such as the notes.
    policy = '[[policy]]\nname = "pages"\nverdict = "allow"\ntools = ["web"]\n'
    (tmp_path / "authorizations.toml").write_text(policy)
    wanted = {**store, "web": {"allow": [f"127.0.0.1:{site.port}"]}}
    async with open_home(tmp_path, settings=wanted) as home:
        await home.agents.create("aria")
        notes = await workspace(home) / "notes.md"
        notes.write_text(f"{CANARY}\n")
        await call(home, "shell", operation="spawn", command="cat notes.md; sleep 300")
        assert CANARY in await call(home, "file", operation="load", path="notes.md")
        page = site.text("/a", f"<p>{CANARY} and <b>{'long ' * 6_000}</b></p>")

        async def said() -> bool:
            return CANARY in await call(home, "shell", operation="status")

        await until(said)
        assert CANARY in await call(home, "web", operation="fetch", query=page)
        await home.memory.forget(WHAT)
        assert CANARY not in notes.read_text()
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            ("file", {"operation": "diff", "path": "notes.md"}),
            ("file", {"operation": "status"}),
            ("shell", {"operation": "status"}),
            ("web", {"operation": "fetch", "query": page}),
        )
        for name, arguments in asked:
            assert CANARY not in await call(home, name, **arguments)
        assert await columns_with(home.database, CANARY) == set()


@pytest.mark.promise("M13")
async def test_what_a_tool_brings_back_is_not_stored(tmp_path: Path, store: dict[str, Any]):
    async with open_home(tmp_path, tools=[tell], settings=store) as home:
        await home.agents.create("aria")
        assert CANARY.upper() in await call(home, "tell")
        await home.memory.forget(WHAT)
        assert await call(home, "tell") == "It is [forgotten], as before."
        assert await columns_with(home.database, CANARY) == set()
    async with open_home(tmp_path, tools=[tell], settings=store) as home:
        assert await call(home, "tell") == "It is [forgotten], as before."


@pytest.mark.postgres
@pytest.mark.promise("M13")
async def test_another_process_drops_it_too(tmp_path: Path):
    with postgres_server().database() as url:
        wanted = {"store": {"url": url}}
        async with (
            open_home(tmp_path / "one", settings=wanted) as worker,
            open_home(tmp_path / "two", settings=wanted, work=False) as other,
        ):
            await worker.agents.create("aria")
            # In a place that the other process does not see.
            await call(worker, "file", operation="save", path="notes.md", content=CANARY)
            assert "as loaded" in await call(worker, "file", operation="status")
            await other.memory.forget(WHAT)

            async def is_dropped() -> bool:
                return await call(worker, "file", operation="status") == "No file is loaded."

            await until(is_dropped)
