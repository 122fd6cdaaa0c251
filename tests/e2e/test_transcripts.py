"""What the documentation shows of a terminal is what the program shows."""

import re

import pytest

from bench import transcripts


@pytest.mark.parametrize("name", transcripts.SCENES)
def test_a_transcript_is_what_happens(name: str):
    assert transcripts.apply(name, transcripts.SCENES[name](), check=True) == []


def test_every_marked_block_has_a_scene_and_every_scene_is_shown():
    pages = "\n".join(page.read_text("utf-8") for page in transcripts.PAGES)
    marked = {match["name"] for match in transcripts.BLOCK.finditer(pages)}
    scenes = transcripts.SCENES.keys() | transcripts.WITH_WEIGHTS.keys()
    pictures = set(re.findall(r"\(\S*images/([\w-]+)\.svg\)", pages))
    assert marked <= scenes
    assert marked | pictures == scenes
    assert pictures == set(transcripts.PICTURED)


@pytest.mark.parametrize("name", transcripts.PICTURED)
def test_a_picture_fetches_nothing(name: str):
    picture = (transcripts.PICTURES / f"{name}.svg").read_text("utf-8")
    assert re.findall(r"https?://[^\"')\s]+", picture) == ["http://www.w3.org/2000/svg"]


def test_a_difference_is_found():
    changed = transcripts.Recorded("$ asterism\nsomething else", [])
    assert transcripts.apply("crash", changed, check=True)
    assert (
        transcripts.stable("turn_" + "0" * 24)
        == transcripts.stable("turn_" + "f" * 24)
        == ["turn_ID"]
    )
