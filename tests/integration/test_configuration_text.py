"""A configuration that is only looked at takes little time and memory, whatever it says."""

import time
import tracemalloc
from pathlib import Path

import pytest

from asterism.app.configuration import MAX_CHECKED_LENGTH
from asterism.config import load
from asterism.errors import AsterismError, ConfigError
from asterism.gate import Gate
from tests.api_scene import api_client
from tests.scenes import open_home

pytestmark = pytest.mark.promise("X5")

MOST_BYTES = 50_000_000
MOST_SECONDS = 2.0
"""Far more than any of them takes, so that a busy machine does not matter."""


def filled(piece: str, size: int = MAX_CHECKED_LENGTH) -> str:
    return (piece * (size // len(piece) + 1))[:size]


def numbered(piece: str, size: int = MAX_CHECKED_LENGTH) -> str:
    """Pieces with a number each, as many as fit."""
    pieces: list[str] = []
    length = 0
    while length < size - 1_000:
        pieces.append(piece.format(len(pieces)))
        length += len(pieces[-1])
    return "".join(pieces)


PARTS = "a." * 15
HOSTILE = {
    "a key of many dots": "a." * 30_000 + "b=1",
    "a key of many dots with blanks": "a . " * 15_000 + "b=1",
    "a key of many quoted parts": '"a".' * 15_000 + "b=1",
    "a key of many literal parts": "'.'." * 15_000 + "b=1",
    "a header of many dots": "[" + "a." * 30_000 + "b]",
    "a header of a list": "[[" + "a." * 30_000 + "b]]",
    "dots inside of a table": "a={" + "a." * 30_000 + "b=1}",
    "dots after a text of many lines": 'x="""\n[[[\n""""\n' + "a." * 30_000 + "b=1",
    "dots after a text that ends late": "x='''\n'' \\'''''\n" + "a." * 30_000 + "b=1",
    "dots after a comment": '#"\n' + "a." * 30_000 + "b=1",
    "many keys of many dots": numbered("k{}." + PARTS + "b=1\n"),
    "many headers of many dots": numbered("[k{}." + PARTS + "b]\n"),
    "many keys of many dots below one": f"[{PARTS}b]\n" + numbered("k{}." + PARTS + "b=1\n"),
    "many lists of many dots": filled("[[" + PARTS + "b]]\n"),
    "many keys": numbered("k{}=1\n"),
    "many tables": numbered("[models.k{}]\n"),
    "nested lists": "a=" + "[" * 60_000,
    "nested tables": "a=" + "{a=" * 20_000,
    "nested tables of dots": "a=" + "{a.a.a.a=" * 7_000,
    "nested in turn": "a=" + "[{a=" * 15_000,
    "a long list": "a=[" + "1," * 30_000 + "]",
    "a list of tables": "a=[" + "{}," * 20_000 + "]",
    "a list of deep lists": "a=[" + ("[" * 31 + "]" * 31 + ",") * 1_000 + "]",
    "a huge number": "a=" + "1" * 60_000,
    "a huge hexadecimal number": "a=0x" + "f" * 60_000,
    "a huge number with a point": "a=1." + "1" * 60_000,
    "a huge exponent": "a=1e" + "9" * 60_000,
    "only quotes": '"' * 60_000,
    "only apostrophes": "'" * 60_000,
    "quotes and backslashes": filled('"""\\"""'),
    "backslashes": 'a="' + "\\" * 60_000,
    "an endless text": 'a="""' + "x" * 60_000,
    "blank lines": "\n" * 60_000,
    "comments": filled("#\n"),
    "long names": numbered('"{}' + "\\u0007" * 150 + '"=1\n'),
    "far too long": "#" * 900_000,
}


async def test_a_viewer_who_has_a_text_checked_costs_little(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home, api_client(home, "viewer") as viewer:
        await viewer.post("/api/config/check", json={"text": ""})
        for name, text in HOSTILE.items():
            tracemalloc.start()
            before = time.perf_counter()
            answer = await viewer.post("/api/config/check", json={"text": text})
            seconds, (_, most) = time.perf_counter() - before, tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert answer.status_code in (200, 422), (name, answer.text[:200])
            assert seconds < MOST_SECONDS, name
            assert most < MOST_BYTES, name
            assert len(answer.content) < 10_000, name


async def test_what_was_not_checked_is_said(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        (told,) = (await home.config.check("\n" + "a." * 300 + "b=1")).problems
        assert told.startswith("asterism.toml line 2: a key has 301 parts joined by dots, and 16")
        (told,) = (await home.config.check("x = '[.]'\n# [[\ny = [[\n")).problems
        assert told.startswith("asterism.toml line 4, its end: this is not valid TOML")
        for text in ("#" * 64_001, "k=[" + "1," * 5_000 + "]"):
            with pytest.raises(AsterismError, match=r"at most .* are checked here"):
                await home.config.check(text)


@pytest.mark.parametrize("name", [name for name in HOSTILE if "dots" in name])
def test_a_text_of_policies_is_bounded_too(name: str):
    before = time.perf_counter()
    with pytest.raises(ConfigError):
        Gate("Hello", tools={}, policies=HOSTILE[name])
    assert time.perf_counter() - before < MOST_SECONDS


@pytest.mark.parametrize(
    "text", ["[" * 60_000, "- " * 5_000, "a: " + "{a: " * 20_000, "? " * 5_000, "x: &a [*a, *a]"]
)
def test_a_document_in_yaml_that_nests_is_an_error_in_words(tmp_path: Path, text: str):
    (tmp_path / "authorizations.yaml").write_text(text)
    (tmp_path / "authorizations.yaml").chmod(0o600)
    before = time.perf_counter()
    with pytest.raises(ConfigError, match=r"authorizations\.yaml"):
        load(tmp_path, None, {})
    assert time.perf_counter() - before < MOST_SECONDS


@pytest.mark.parametrize("depth", [990, 100_000])
async def test_json_in_a_text_that_nests_is_an_error_in_words(tmp_path: Path, depth: int):
    nested = "[" * depth + "]" * depth
    async with open_home(tmp_path, work=False) as home, api_client(home) as owner:
        await home.agents.create("aria")
        schema = {"kind": "map", "fields": [{"name": "names", "type": "list"}]}
        await home.blocks.create("aria", "them", "{}", schema=schema)
        for edit in (
            {"operation": "set_field", "field": "names", "value": nested},
            {"operation": "set", "content": nested},
        ):
            answer = await owner.post("/api/agents/aria/blocks/them/edits", json=edit)
            assert answer.status_code in (400, 409, 422), answer.text[:300]
            assert len(answer.content) < 10_000
