"""What the configuration names becomes real: tools from files, vendors, changes while it runs."""

from pathlib import Path

import pytest

from asterism import Asterism, TurnState
from asterism.errors import ConfigError
from tests.scenes import until
from tests.servers.openai_server import OpenAIServer

TOOLS = '''
from asterism import tool


@tool(repeatable=True)
def shout(word: str) -> str:
    """Shout."""
    return word.upper()
'''


@pytest.mark.promise("S5")
async def test_tools_come_from_the_files_that_the_configuration_names(tmp_path: Path):
    (tmp_path / "mine.py").write_text(TOOLS)
    (tmp_path / "asterism.toml").write_text('tools.modules = ["mine.py"]')
    async with Asterism.open(tmp_path, environ={}) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", 'call shout {"word": "hey"}')
    assert "HEY" in outcome.text


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import nothing_there", "No module named 'nothing_there'"),
        ("def broken(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit"),
        (
            TOOLS + TOOLS.replace("shout(", "other(").replace("@tool(", "@tool(name='shout', "),
            "Two",
        ),
    ],
)
async def test_a_file_of_tools_that_cannot_be_used_is_told(tmp_path: Path, text: str, told: str):
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "asterism.toml").write_text('tools.modules = ["mine.py"]')
    with pytest.raises(ConfigError, match=told):
        async with Asterism.open(tmp_path, environ={}):
            pass


@pytest.mark.promise("X5")
async def test_a_vendor_nobody_knows_is_told_in_the_answer(tmp_path: Path):
    async with Asterism.open(tmp_path, environ={}) as home:
        await home.agents.create("aria", model="moon:dust")
        outcome = await home.agents.ask("aria", "hello")
        assert outcome.state is TurnState.FAILED
        assert "[models.moon]" in outcome.text
        await home.agents.edit("aria", model="demo:guide")
        assert (await home.agents.ask("aria", "hello")).state is TurnState.DONE


@pytest.mark.promise("O3")
async def test_a_vendor_can_be_moved_while_it_runs_and_a_bad_change_changes_nothing(
    tmp_path: Path,
):
    file = tmp_path / "asterism.toml"
    problems: list[str] = []
    async with OpenAIServer() as old, OpenAIServer() as new:
        file.write_text(f'[models.local]\nbase_url = "{old.base_url}"\n')
        async with Asterism.open(tmp_path, environ={}, on_problem=problems.append) as home:
            home.follow_configuration()
            await home.agents.create("aria", model="local:any")
            await home.agents.ask("aria", "one")
            file.write_text('[models.local]\nbase_url = "nonsense"\n')
            await until(lambda: bool(problems))
            assert "The previous configuration stays in use." in problems[0]
            await home.agents.ask("aria", "two")
            assert (len(old.requests), len(new.requests)) == (2, 0)
            moved = f"{new.base_url}"
            file.write_text(f'[models.local]\nbase_url = "{moved}"\n')
            await until(lambda: home.settings.models["local"].base_url == moved)
            assert (await home.agents.ask("aria", "three")).state is TurnState.DONE
            assert (len(old.requests), len(new.requests)) == (2, 1)
