"""What a process keeps in memory to search quickly does not outlive what is forgotten."""

from pathlib import Path

import pytest

from asterism import Asterism
from asterism.memory.forgetting import Forgetting
from asterism.search import index, rank
from asterism.search.texts import cached_analysis
from asterism.types.turns import PastMessage

TEXT = "The zebrafinch sang at dawn."


@pytest.mark.promise("M13")
async def test_what_is_kept_to_search_quickly_goes_with_what_is_forgotten(tmp_path: Path):
    async with Asterism.open(tmp_path, settings={"model": "demo:guide"}, work=False) as home:
        aria = await home.agents.ensure("aria")
        await home.agents.import_messages(aria, [PastMessage("user", TEXT)])
        (hit,) = (await home.search(aria, "zebrafinch")).hits
        kept = cached_analysis(TEXT, hit.at)
        assert len(index.cache)
        assert len(rank.views)
        assert cached_analysis(TEXT, hit.at) is kept
        await home.memory.forget(Forgetting(texts=("zebrafinch",)))
        assert not len(index.cache)
        assert not len(rank.views)
        assert cached_analysis(TEXT, hit.at) is not kept
        assert not (await home.search(aria, "zebrafinch")).hits
