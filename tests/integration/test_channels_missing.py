"""A channel that the configuration names and that is not installed is an error at start."""

from pathlib import Path

import pytest

from asterism import Asterism
from asterism.app.constellations import constellation_directory
from asterism.config import LiveSettings
from asterism.errors import ConfigError
from asterism.testing.channel import MemoryChannel
from tests.scenes import open_home

pytestmark = pytest.mark.promise("X5")

MISSING = {
    '[channels.x]\ntype = "discord"\n': (
        'line 2: channels.x.type names "discord", which is not a channel that is installed. '
        "Installed: webhook. Install the plugin with pip, or take the table out."
    ),
    '[channels.x]\nmore = 1\ntype = "a\\nb"\n': 'line 3: channels.x.type names "a',
}


def put(place: Path, text: str) -> Path:
    file = place / "asterism.toml"
    file.write_text(text)
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("text", MISSING)
async def test_it_is_told_at_the_start_and_by_a_check(tmp_path: Path, text: str):
    async with open_home(tmp_path, work=False, settings={"model": None}) as home:
        found = await home.config.check(text)
        assert not found.valid
        assert MISSING[text] in found.problems[0]
    put(tmp_path, text)
    for work in (True, False):
        with pytest.raises(ConfigError) as refused:
            async with Asterism.open(tmp_path, environ={}, work=work):
                pass
        assert refused.value.message.startswith("asterism.toml line ")
        assert MISSING[text] in refused.value.message


async def test_a_reload_keeps_the_last_good_configuration(tmp_path: Path):
    told: list[str] = []
    file = put(tmp_path, '[channels.desk]\ntype = "webhook"\nurl = "http://127.0.0.1:1/"\n')
    async with open_home(tmp_path, on_problem=told.append) as home:
        for text, problem in MISSING.items():
            file.write_text(text)
            result = await home.config.reload()
            assert problem in (result.error or "")
            assert told[-1] == result.error
            assert list(home.settings.channels) == ["desk"]
        file.write_text("")
        assert (await home.config.reload()).error is None
        assert not home.settings.channels


async def test_what_a_program_hands_over_need_not_be_installed(tmp_path: Path):
    put(
        tmp_path,
        '[channels.x]\ntype = "mine"\n',
    )
    async with open_home(tmp_path, channels={"x": MemoryChannel()}) as home:
        assert home.settings.channels["x"].type == "mine"


async def test_a_channel_that_cannot_be_made_is_told_at_the_start(tmp_path: Path):
    put(tmp_path, '[channels.desk]\ntype = "webhook"\n')
    with pytest.raises(ConfigError, match="desk"):
        async with open_home(tmp_path):
            pass
    async with open_home(tmp_path, work=False) as home:
        assert await home.agents.list() == []


async def test_a_constellation_of_others_is_checked_as_well(tmp_path: Path):
    place = constellation_directory(tmp_path, "garden")
    place.mkdir(parents=True, mode=0o700)
    put(place, '[channels.x]\ntype = "discord"\n')
    async with open_home(tmp_path) as home:
        await home.constellations.ensure("garden")
        with pytest.raises(ConfigError, match=r'channels\.x\.type names "discord"'):
            await home.tokens.create("laptop", constellation="garden")
        assert await home.agents.list() == []


def test_settings_without_a_check_are_read_as_they_are(tmp_path: Path):
    put(tmp_path, next(iter(MISSING)))
    assert LiveSettings(tmp_path, None, {}).current.channels["x"].type == "discord"
