"""What a member is in a group, and which names its options may have."""

from pathlib import Path
from typing import Any

import pytest

from asterism.config.parse import ConfigDocument
from asterism.errors import ConfigError, InvalidInput, NotFound
from asterism.groups.template import parse_template
from tests.integration.group_scene import Cast, cast_home, soon

pytestmark = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)


@pytest.mark.promise("G2")
async def test_what_is_left_out_stays_as_it_is_for_a_member(engine: str, tmp_path: Path):
    async with cast_home(engine, tmp_path, Cast(), "ada", "ben") as home:
        group = await home.groups.create("desk", members=["ben"])
        await group.add_member(
            "ada", role="specialist", domain="law", capabilities=["money"], weight=3
        )
        for active in (False, True):
            changed = await group.add_member("ada", active=active)
            (ada,) = [member for member in changed.members if member.name == "ada"]
            assert (ada.role.value, ada.domain) == ("specialist", "law")
            assert (ada.capabilities, ada.weight, ada.active) == (("money",), 3, active)
        changed = await group.add_member("ada", weight=2, domain="tax")
        (ada,) = [member for member in changed.members if member.name == "ada"]
        assert (ada.domain, ada.weight, ada.capabilities) == ("tax", 2, ("money",))
        changed = await group.add_member("ada", role="supervisor", capabilities=[])
        (ada,) = [member for member in changed.members if member.name == "ada"]
        assert (ada.role.value, ada.domain, ada.capabilities) == ("supervisor", "", ())
        with pytest.raises(InvalidInput, match="Only a specialist has a domain"):
            await group.add_member("ada", domain="law")
        # An archived member is not made inactive by a change of something else.
        await home.agents.archive("ben")
        await group.add_member("ben", weight=5)
        await home.agents.unarchive("ben")
        (ben,) = [each for each in (await home.groups.get("desk")).members if each.name == "ben"]
        assert (ben.active, ben.weight) == (True, 5)


@pytest.mark.promise("G1")
@pytest.mark.parametrize(
    ("pattern", "options"),
    [
        ("supervisor", {"leader": "nobody"}),
        ("voting", {"tie": "named", "tie_member": "nobody"}),
        ("pipeline", {"stages": ["ada", "nobody"]}),
        (
            "pipeline",
            {"stages": [{"agents": ["ada"], "on_failure": "fallback", "fallback": "nobody"}]},
        ),
        ("dynamic", {"selector": "supervisor", "supervisor": "nobody"}),
        ("sleeptime", {"agent": "nobody"}),
    ],
)
async def test_options_that_name_nobody_are_refused(
    engine: str, tmp_path: Path, pattern: str, options: dict[str, Any]
):
    async with cast_home(engine, tmp_path, Cast(), "ada", "ben") as home:
        with pytest.raises(InvalidInput, match="name 'nobody', which is not an agent"):
            await home.groups.create("desk", pattern=pattern, options=options, members=["ada"])
        with pytest.raises(NotFound):
            await home.groups.get("desk")
        group = await home.groups.create("desk", members=["ada"])
        with pytest.raises(InvalidInput, match="name 'nobody', which is not an agent"):
            await group.edit(pattern=pattern, options=options)
        assert (await home.groups.get("desk")).pattern == "round_robin"


@pytest.mark.promise("G1")
async def test_an_agent_may_be_named_before_it_is_a_member(engine: str, tmp_path: Path):
    async with cast_home(engine, tmp_path, Cast(), "ada", "ben") as home:
        group = await home.groups.create(
            "line", pattern="pipeline", options={"stages": ["Ada", "ben"]}
        )
        for name in ("ada", "ben"):
            await group.add_member(name)
        assert (await soon(group.ask("go"))).text == "ben answers"
        # A member that has left does not keep the rest of a group from being changed.
        await home.agents.delete("ben")
        await group.edit(description="Two by two.")
        with pytest.raises(InvalidInput, match="'Bem', which is not an agent"):
            await group.edit(options={"stages": ["ada", "Bem"]})


def test_a_template_names_members_of_its_group_alone(engine: str):
    del engine
    text = """
        name = "x"
        description = "d"
        [[agents]]
        name = "ada"
        system = "s"
        [[groups]]
        name = "desk"
        pattern = "supervisor"
        options = { leader = "adda" }
        members = [{ agent = "ada" }]
    """
    with pytest.raises(ConfigError, match="name 'adda', which is not one of its members"):
        parse_template(ConfigDocument.parse("x.toml", text))
    fine = parse_template(ConfigDocument.parse("x.toml", text.replace("adda", "ada")))
    assert fine.groups[0].options == {"leader": "ada"}
