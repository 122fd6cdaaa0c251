"""Names of agents and groups: checked when they are given, and good for ever once there."""

from pathlib import Path

import pytest

from asterism import Asterism, InvalidInput
from tests.api_scene import api_client
from tests.scenes import open_home

VALID = (
    *("aria", "Ben Smith", "Bo B.", "guide-2", "my_agent", "_inner", "v1.2", "7", "team/aria"),
    *("Ärger", "Ñandú", "Σοφία", "Анна", "田中さん", "राम", "ليلى", "สมหญิง", "n" * 63),
)
INVALID = (
    *("bad name!!", "a@b", "a:b", "a%2Fb", "a?b", "a#b", "a\\b", '"aria"', "a,b", "a*", "[x]"),
    *("a  b", " aria", "aria ", "/aria", "aria/", "a//b", "..", "a/../b", "-aria", ".hidden", " "),
    *("a\nb", "a\tb", "a\x1b[2Jb", "a\u202eb", "a\u200bb", "a\u3164", "\u0301a", "a\u00a0b"),
    *("", "n" * 64, "Owner", "Ｏｗｎｅｒ", "agent_" + "0" * 24, "group_" + "0" * 24),
)


async def names(home: Asterism) -> set[str]:
    return {there.name for there in (*await home.agents.list(), *await home.groups.list())}


@pytest.mark.parametrize("name", VALID)
async def test_a_name_in_any_script_is_valid(tmp_path: Path, name: str):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create(name)
        assert (await home.agents.get(name)).id == aria.id
        await home.groups.create(f"{name[:40]} 2", members=[name])
        copy = await home.agents.clone(name, "copy")
        assert (await copy.edit(new_name=f"{name[:40]}-3")).name == f"{name[:40]}-3"


@pytest.mark.promise("X5")
@pytest.mark.parametrize("name", INVALID)
async def test_other_names_are_refused_in_a_sentence(tmp_path: Path, name: str):
    async with open_home(tmp_path) as home:
        aria = await home.agents.create("aria")
        await home.groups.create("ring")
        before = await names(home)
        for attempt in (
            lambda: home.agents.create(name),
            lambda: home.agents.ensure(name),
            lambda: home.agents.edit(aria, new_name=name),
            lambda: home.agents.clone(aria, name),
            lambda: home.groups.create(name),
            lambda: home.groups.ensure(name),
            lambda: home.groups.edit("ring", new_name=name),
        ):
            with pytest.raises(InvalidInput, match=r"letters and digits of any script") as refused:
                await attempt()
            assert str(refused.value).endswith("Nothing was changed.")
        assert await names(home) == before


async def test_no_agent_is_named_as_all_members_of_a_group_are_addressed(tmp_path: Path):
    async with open_home(tmp_path) as home:
        with pytest.raises(InvalidInput, match="a meaning of its own"):
            await home.agents.create("All")
        assert (await home.groups.create("all")).name == "all"


@pytest.mark.promise("X5")
async def test_the_api_says_what_a_name_is(tmp_path: Path):
    async with open_home(tmp_path) as home, api_client(home) as client:
        answer = await client.post("/api/agents", json={"name": "bad name!!"})
        assert (answer.status_code, answer.json()["type"]) == (422, "input")
        assert answer.json()["detail"].startswith("'bad name!!' cannot name an agent, because it")
        assert await names(home) == set()


async def test_a_name_of_a_former_release_stays_good(tmp_path: Path):
    former = "bad name!! " + "x" * 60
    async with open_home(tmp_path) as home:
        agent, ring = await home.agents.create("aria"), await home.groups.create("ring")
        for kind, new in ((agent.id, former), (ring.id, f"{former}2")):
            await home.database.write(
                lambda tx, kind=kind, new=new: tx.run(
                    "UPDATE agents SET name = ? WHERE id = ?", (new, kind)
                )
            )
        assert (await home.agents.ensure(former)).id == agent.id
        assert (await home.groups.ensure(f"{former}2")).id == ring.id
        outcome = await (await home.agents.get(former)).ask("hi")
        assert (await home.agents.edit(former, new_name=former, system="Be kind.")).name == former
        changed = await home.groups.edit(f"{former}2", new_name=f"{former}2", description="All.")
        assert changed.description == "All."
        copy, _ = await home.turns.fork(outcome.turn_id)
        assert copy.name.startswith("bad name!! ")
