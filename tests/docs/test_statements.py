"""What pages say of the code in figures and names is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from asterism.memory.gate.blocks import ERA
from asterism.models.embedded.weights import manifest
from asterism.tools.sandbox.sandbox import LAUNCHER

ROOT = Path(__file__).parents[2]


def text_of(page: str) -> str:
    """Return a page without its line breaks."""
    return re.sub(r"\s+", " ", (ROOT / page).read_text("utf-8"))


@pytest.mark.parametrize(
    "page", ["docs/adr/0023-blocks-with-one-representation.md", "docs/explanation/memory.md"]
)
def test_how_many_edits_are_squashed(page: str) -> None:
    assert f"the oldest {ERA} are squashed" in text_of(page)


def test_the_form_of_a_sandbox_plan() -> None:
    (form,) = re.findall(r"(\w+)\.loads\(plan_file", LAUNCHER.read_text("utf-8"))
    assert f"`{form}` format" in text_of("docs/adr/0015-sandbox.md")


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorial/first-agent.md"])
def test_which_model_the_first_start_fetches(page: str) -> None:
    fetched = next(one for one in manifest().values() if one.recommended)
    said = text_of(page)
    assert f"{fetched.size / 1e9:.1f} GB" in said
    assert "no download" not in said
    assert page == "docs/index.md" or fetched.name in said


def test_the_tutorial_says_to_whom_a_call_can_be_dictated() -> None:
    before, call, _ = text_of("docs/tutorial/first-agent.md").partition("`call count_sheep")
    assert call
    assert "asterism model use demo:guide" in before
