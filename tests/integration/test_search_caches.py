"""What a process keeps in memory to search quickly does not outlive what is forgotten."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from asterism import Asterism
from asterism.memory.forgetting import Forgetting
from asterism.search import index, rank
from asterism.search.texts import cached_analysis
from asterism.store import search_index
from asterism.store.database import Connection
from asterism.store.search_index import JOURNAL
from asterism.types.turns import PastMessage

TEXT = "The zebrafinch sang at dawn."


@pytest.mark.promise("M13")
async def test_what_is_kept_to_search_quickly_goes_with_what_is_forgotten(tmp_path: Path):
    async with Asterism.open(tmp_path, settings={"model": "demo:guide"}, work=False) as home:
        aria = await home.agents.ensure("aria")
        await home.agents.import_messages(aria, [PastMessage("user", TEXT)])
        (hit,) = (await home.search(aria, "zebrafinch")).hits
        kept = cached_analysis(TEXT, hit.at_ms)
        assert len(index.cache)
        assert len(rank.views)
        assert cached_analysis(TEXT, hit.at_ms) is kept
        await home.memory.forget(Forgetting(texts=("zebrafinch",)))
        assert not len(index.cache)
        assert not len(rank.views)
        assert cached_analysis(TEXT, hit.at_ms) is not kept
        assert not (await home.search(aria, "zebrafinch")).hits


async def test_where_terms_are_is_read_once_for_as_long_as_a_segment_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    reads: list[list[str]] = []
    read = search_index.postings

    async def counted(tx: Connection, index_id: int, firsts: Sequence[int], prefixes: list[str]):
        reads.append(prefixes)
        return await read(tx, index_id, firsts, prefixes)

    monkeypatch.setattr(search_index, "postings", counted)
    async with Asterism.open(tmp_path, settings={"model": "demo:guide"}, work=False) as home:
        aria = await home.agents.ensure("aria")

        async def found(query: str) -> list[str]:
            hits = (await home.search(aria, query, domains=("messages",))).hits
            return [hit.text for hit in hits if hit.matched]

        async def index_messages(*texts: str) -> None:
            await home.agents.import_messages(aria, [PastMessage("user", text) for text in texts])
            await home.indexing.catch_up()

        await index_messages(TEXT, *(f"Nothing of note, number {n}." for n in range(100)))
        assert await found("zebrafinch") == await found("zebrafinch") == [TEXT]
        assert reads == [["ze", ""]]
        assert await found("zephyr zebrafinch") == [TEXT]
        assert reads == [["ze", ""]]
        await index_messages("A zephyr blew.", *(f"Again nothing, number {n}." for n in range(100)))
        (snapshot,) = await home.database.read(
            lambda tx: index.load_indexes(tx, [(JOURNAL, aria.id)])
        )
        assert not snapshot.inner.tail_terms
        assert set(await found("zephyr zebrafinch")) == {TEXT, "A zephyr blew."}
        assert reads == [["ze", ""], ["ze", ""]]
