"""What a process keeps in memory to search quickly does not outlive what is forgotten."""

from pathlib import Path

import pytest

from asterism import Asterism
from asterism.memory.forgetting import Forgetting
from asterism.memory.search import across, index, looking, stored
from asterism.types.messages import PastMessage


@pytest.mark.promise("M13")
async def test_what_is_kept_to_search_quickly_goes_with_what_is_forgotten(tmp_path: Path):
    async with Asterism.open(tmp_path, settings={"model": "demo:guide"}, work=False) as home:
        aria = await home.ensure_agent("aria")
        said = [PastMessage("user", f"The zebrafinch sang at {one}.") for one in range(30)]
        await home.import_messages(aria, said)
        assert (await home.search(aria, "zebrafinch")).hits
        assert len(index.kept)
        assert len(looking.views)
        assert stored.keeps()
        await home.memory.forget(Forgetting(texts=("zebrafinch",)))
        assert not len(index.kept)
        assert not len(looking.views)
        assert not stored.keeps()
        assert not across.keeps()
        found = await home.search(aria, "zebrafinch")
        assert not [hit for hit in found.hits if "zebrafinch" in hit.text]
