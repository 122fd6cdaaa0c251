"""The reference of settings says what the schema says."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

import pytest

from asterism.config import NEEDS_RESTART, RESERVED, Settings, load

PAGE = (Path(__file__).parents[2] / "docs/reference/configuration.md").read_text(encoding="utf-8")

ROW = re.compile(
    r"^\| `(?P<name>[\w.<>]+)` \| [^|]+ \| `?(?P<default>[^|`]+)`? \| (?P<when>\w+) \|",
    re.MULTILINE,
)
ROWS = {row["name"]: row for row in ROW.finditer(PAGE)}


NAMED = {
    "models": "<vendor>",
    "channels": "<name>",
    "prices": "<model>",
    "agents": "<name>",
    "persons": "<name>",
    "groups": "<name>",
    "retention": "<name>",
    "mcp": "<name>",
    "tools": "<tool>",
}
"""Tables that have a table for each name."""
WHOLE = {"rooms", "options", "headers", "long", "env", "effects", "roles", "contacts.contacts"}
"""Tables that are one value."""
PLUGINS = "pipeline.options"
"""Whose tables are known of the plugins that come with asterism."""


def schema(model: Any = Settings, prefix: str = "") -> dict[str, Any]:
    """Every setting by its name on the page, with its default (`...` if it must be given)."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if hasattr(kind, "model_fields"):
            found |= schema(kind, f"{prefix}{name}.")
        elif name in NAMED and get_origin(kind) is dict:
            found |= schema(kind.__args__[1], f"{prefix}{name}.{NAMED[name]}.")
        else:
            found[prefix + name] = ... if field.is_required() else field.default
    return found


def block(opening: str) -> str:
    (text,) = re.findall(rf"^```{opening}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return text


def test_every_setting_is_documented_and_every_documented_setting_exists() -> None:
    assert set(ROWS) == set(schema())


@pytest.mark.parametrize("name", schema())
def test_default_and_when_it_takes_effect(name: str) -> None:
    shown = ROWS[name]["default"]
    default = schema()[name]
    if default is ...:
        assert shown == "required"
    elif default is None:
        assert shown == "none"
    elif default == ():
        assert shown == "[]"
    else:
        value: Any = tomllib.loads(f"value = {shown}")["value"]
        assert (tuple(value) if isinstance(default, tuple) else value) == default
    section, _, _ = name.partition(".")
    assert ROWS[name]["when"] == ("restart" if section in NEEDS_RESTART else "live")


def test_reserved_variables_are_documented() -> None:
    assert all(f"`{name}`" in PAGE for name in RESERVED)


def test_variables_of_the_page_are_settings(tmp_path: Path) -> None:
    lines = [line.split("=", 1) for line in block("sh").splitlines()]
    settings = load(tmp_path, None, {name: value.strip("'") for name, value in lines})
    assert settings.limits.steps == 40


def test_example_file_loads(tmp_path: Path) -> None:
    (tmp_path / "asterism.toml").write_text(block('toml title="asterism.toml"'), encoding="utf-8")
    settings = load(tmp_path, None, {})
    assert settings.default_model == "local:llama3.2"
    assert settings.channels["home"].type == "webhook"


def test_example_file_shows_every_setting() -> None:
    text = re.sub(r"^# (?=\w+ =)", "", block('toml title="asterism.toml"'), flags=re.MULTILINE)

    def names(table: dict[str, Any], prefix: str = "") -> Iterator[str]:
        for name, value in table.items():
            whole = {name, prefix + name} & WHOLE and not f"{prefix}{name}".endswith(PLUGINS)
            if isinstance(value, dict) and not whole:
                yield from names(value, f"{prefix}{name}.")  # pyright: ignore[reportUnknownArgumentType]
            else:
                yield prefix + name

    written = names(tomllib.loads(text))
    table = re.compile(rf"\b({'|'.join(NAMED)})\.[^.]+\.")
    shown = {table.sub(lambda part: f"{part[1]}.{NAMED[part[1]]}.", name) for name in written}
    assert set(schema()) <= shown
