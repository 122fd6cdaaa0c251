"""Every Python block of the documentation runs, and every TOML block is TOML."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """Return the blocks of a language, each with a name that says where it stands."""
    found: list[tuple[str, str]] = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            if match[1] == language:
                line = text.count("\n", 0, match.start()) + 1
                found.append((f"{page.relative_to(ROOT)}:{line}", match[2]))
    return found


@pytest.mark.parametrize(("place", "code"), blocks("python"), ids=lambda value: value[:60])
def test_python_block_runs(
    place: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASTERISM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ASTERISM_MODELS", str(tmp_path / "models"))
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    compiled = compile(code, place, "exec", flags=0x2000)  # top-level await is allowed
    result = eval(compiled, {"__name__": "__block__"})
    if inspect.iscoroutine(result):
        asyncio.run(result)
    assert "TODO" not in code


@pytest.mark.parametrize(("place", "text"), blocks("toml"), ids=lambda value: value[:60])
def test_toml_block_is_toml(place: str, text: str) -> None:
    assert tomllib.loads(text), place
