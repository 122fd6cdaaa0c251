"""Settings written into a file: what is asked for changes, and not a character besides."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.config import Settings, load
from asterism.config.edit import edit, save
from asterism.config.parse import Key
from asterism.errors import ConfigError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "asterism.toml"


def saved(file: Path, changes: dict[Key, object]) -> Settings:
    assert save(file.parent, None, {}, changes) == file.resolve()
    return load(file.parent, None, {})


BEFORE = """\
# My house.
constellation = 'den'   # not "home"

[limits]
calls=7 # few
steps   =   3 # three


[models.local]     # under the desk
base_url = "http://127.0.0.1:9000/v1"
# the end
"""


def test_comments_order_and_spaces_stay(file: Path) -> None:
    file.write_text(BEFORE)
    saved(file, {("model",): "local:m", ("limits", "steps"): 12, ("models", "local", "key"): "k"})
    text = file.read_text()
    assert text == (
        BEFORE.replace("\n\n[limits]", '\nmodel = "local:m"\n\n[limits]')
        .replace("steps   =   3 # three", "steps   =   12 # three")
        .replace("# the end\n", '# the end\nkey = "k"\n')
    )


def test_a_new_file_is_for_the_owner_alone(tmp_path: Path) -> None:
    data = tmp_path / "not" / "there"
    file = save(data, None, {}, {("model",): "a:b"})
    assert file.read_text() == 'model = "a:b"\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in data.iterdir()] == ["asterism.toml"]


def test_the_mode_of_a_file_stays_until_it_gets_a_key(file: Path) -> None:
    file.write_text("")
    file.chmod(0o644)
    saved(file, {("model",): "a:b"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    saved(file, {("models", "a", "key"): "hunter2"})
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_value_is_taken_out(file: Path) -> None:
    file.write_text('model = "a:b"\n# kept\n[budget]\nday = 5.0\n')
    settings = saved(file, {("budget", "day"): None, ("log", "format"): None})
    assert settings.budget.day is None
    assert file.read_text() == 'model = "a:b"\n# kept\n[budget]\n'


@pytest.mark.parametrize(
    "text",
    [
        '\ufeffconstellation = "den"\r\n[limits]\r\nsteps = 2\r\n',
        "limits.steps = 2\nmodels.local.timeout = 5\n",
        "limits = {steps = 2, calls = 3}\n",
        "[models]\n[models.b]\nretries=1\n[limits]\nsteps=1\n[models.c]\nretries=2",
        '"model" = "x:y"\n',
        "# nothing but this",
        "model = '''a:b'''\n",
    ],
)
def test_layouts_of_all_kinds(file: Path, text: str) -> None:
    file.write_bytes(text.encode())
    before = tomllib.loads(text.removeprefix("\ufeff"))
    settings = saved(file, {("model",): "new:m", ("models", "local", "base_url"): "http://x/v1"})
    assert settings.model == "new:m"
    assert settings.models["local"].base_url == "http://x/v1"
    raw = file.read_bytes().decode()
    assert raw.startswith("\ufeff") == text.startswith("\ufeff")
    after = tomllib.loads(raw.removeprefix("\ufeff"))
    for name in before.keys() - {"model", "models"}:
        assert after[name] == before[name]


def test_nothing_happens_without_a_commit(file: Path) -> None:
    file.write_text(BEFORE)
    with edit(file.parent, None, {}, {("model",): "a:b"}) as prepared:
        assert prepared.path == file.resolve()
        assert file.read_text() == BEFORE
    assert file.read_text() == BEFORE
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        ("model = ", {("model",): "a:b"}, "line 1"),
        ("", {("model",): "nonsense"}, 'model is "nonsense"'),
        ("", {("no", "such"): 1}, "no is not a setting"),
        ("", {("models", "a", "key"): ""}, "models.a.key is empty"),
        ("limits.steps = 0", {("model",): "a:b"}, "limits.steps is 0"),
    ],
)
def test_what_cannot_be_is_told_and_changes_nothing(
    file: Path, text: str, changes: dict[Key, object], said: str
) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"asterism\.toml line") as raised:
        save(file.parent, None, {}, changes)
    assert said in raised.value.message
    assert file.read_text() == text
    assert list(file.parent.iterdir()) == [file]


@given(
    name=st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20),
    key=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30),
)
def test_any_text_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, name: str, key: str
) -> None:
    file = tmp_path_factory.mktemp("edit") / "asterism.toml"
    file.write_text(BEFORE)
    settings = saved(file, {("models", name, "key"): key, ("constellation",): name})
    held = settings.models[name].key
    assert held is not None
    assert held.get_secret_value() == key
    assert settings.constellation == name
