"""`asterism search`: what is found, how it is shown, and what is said when nothing is."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism
from asterism.types.turns import PastMessage
from tests.e2e.command import Command, Installed
from tests.e2e.test_memory_commands import refused

MAY = datetime(2026, 5, 3, 12, tzinfo=UTC)
JUNE = datetime(2026, 6, 20, 12, tzinfo=UTC)
LONG = "Filler of no interest. " * 60 + "The cello is in the attic. " + "More of the same. " * 60


@pytest.fixture
def full(asterism: Command, tmp_path: Path) -> Command:
    """A home of two agents with messages, passages, a block and a document."""
    papers = tmp_path / "papers"
    papers.mkdir()
    (papers / "music.md").write_text("# Strings\n\nA cello has four strings.\n")

    async def fill() -> None:
        async with Asterism.open(asterism.data, environ={}, work=False) as home:
            for name in ("aria", "bea"):
                await home.agents.create(name, model="demo:demo")
            past = [
                PastMessage("user", "My sister plays the cello.", None, MAY),
                PastMessage("assistant", "How lovely, which orchestra?", None, MAY),
                PastMessage("user", "In Bremen, since 1998.", None, MAY),
                PastMessage("assistant", LONG, None, MAY),
                PastMessage("user", "The cello was sold.", "anna", JUNE),
                PastMessage("assistant", "I am sorry.", None, JUNE + timedelta(milliseconds=1)),
            ]
            await home.agents.import_messages("aria", past)
            await home.archive.add("aria", "The cello is insured.", tags=["music"])
            await home.archive.add("aria", "A cello for Anna's birthday.", audience="owner")
            await home.archive.add("bea", "Bea tunes a cello.", audience="public")
            await home.blocks.create("aria", "human", "Likes tea.\nListens to cello suites.")
            await home.sources.add("papers", papers, agents=["aria"])
            await home.sources.sync("papers")

    asyncio.run(fill())
    return asterism


def texts(home: Command, *arguments: str) -> set[str]:
    """Return what is found by its own words; messages are by those of their neighbours too."""
    hits = home.json("search", *arguments)["hits"]
    return {hit["text"].strip() for hit in hits if hit["matched"]}


def kinds(home: Command, *arguments: str) -> set[str]:
    return {hit["kind"] for hit in home.json("search", *arguments)["hits"]}


@pytest.mark.promise("M6")
def test_all_kinds_of_memory_are_found_by_one_search(full: Command) -> None:
    found = full.json("search", "cello", "--agent", "aria", "--limit", "50")
    assert {hit["kind"] for hit in found["hits"]} == {"message", "passage", "document", "block"}
    assert found["more"] is False
    for hit in found["hits"]:
        assert hit["agent_id"]
        assert "words" in {reason["kind"] for reason in hit["why"]}
        if "cello" in hit["text"].lower():
            assert [one.lower() for one in hit["matched"]] == ["cello"]
        else:
            # What is said right before or after belongs to it; all else stands for itself.
            assert hit["kind"] == "message"
            assert hit["why"][0]["text"] == "those of its neighbours"
            assert hit["beside"] in {one["id"] for one in found["hits"] if one["matched"]}
    document = next(hit for hit in found["hits"] if hit["kind"] == "document")
    assert "papers/music.md" in document["where"]
    assert document["source"]["trust"] == "document"


@pytest.mark.promise("M6")
def test_what_is_found_by_its_neighbours_stands_beside_them(full: Command) -> None:
    """`search` shows hits; what only surrounds one is shown with it, and is no hit of its own."""
    arguments = ("sister", "--agent", "aria", "--in", "messages")
    shown = full.ok("search", *arguments).splitlines()
    heads = [line for line in shown if line.startswith("message ")]
    assert len(heads) == 1
    assert "    My sister plays the cello." in shown
    place = shown.index("    My sister plays the cello.")
    assert shown[place + 1 : place + 3] == [
        "    | aria: How lovely, which orchestra?",
        "    | owner: In Bremen, since 1998.",
    ]
    assert not any("those of its neighbours" in line for line in shown)
    hits = full.json("search", *arguments)["hits"]
    assert [hit["beside"] != "" for hit in hits] == [False, *[True] * (len(hits) - 1)]
    # `--near` brings the same once.
    near = full.ok("search", *arguments, "--near", "2").splitlines()
    assert near.count("    | owner: In Bremen, since 1998.") == 1


@pytest.mark.promise("M6")
def test_filters_narrow_it(full: Command) -> None:
    aria = ("cello", "--agent", "aria", "--limit", "50")
    assert kinds(full, *aria, "--in", "messages,blocks") == {"message", "block"}
    assert kinds(full, *aria, "--in", "passages", "--in", "documents") == {"passage", "document"}
    assert kinds(full, *aria, "--role", "assistant") == {"message"}
    assert texts(full, *aria, "--role", "assistant") == {LONG.strip()}
    assert texts(full, *aria, "--tag", "music") == {"The cello is insured."}
    assert kinds(full, *aria, "--source", "papers") == {"document"}
    may = ("--since", "2026-05-01", "--until", "2026-05-03", "--role", "user")
    assert texts(full, *aria, *may) == {"My sister plays the cello."}
    june = texts(full, *aria, "--since", "2026-06-20", "--role", "user")
    assert june == {"The cello was sold."}
    assert texts(full, *aria, "--speaker", "anna") == {"The cello was sold."}
    assert texts(full, *aria, "--speaker", "import:anna") == {"The cello was sold."}
    assert texts(full, *aria, "--speaker", "owner") == {"My sister plays the cello."}
    assert texts(full, *aria, "--speaker", "aria") == {LONG.strip()}
    assert full.json("search", *aria, "--at", "2020-01-01")["hits"] == []


@pytest.mark.promise("M6")
def test_until_a_day_means_its_end(full: Command) -> None:
    aria = ("cello", "--agent", "aria", "--role", "user")
    assert texts(full, *aria, "--until", "2026-05-02") == set()
    assert texts(full, *aria, "--until", "2026-05-04") == {"My sister plays the cello."}
    assert texts(full, *aria, "--until", "today") == texts(full, *aria)


@pytest.mark.promise("M9")
def test_those_present_hear_what_they_may(full: Command) -> None:
    full.ok("person", "add", "Ben")
    aria = ("birthday", "--agent", "aria")
    assert texts(full, *aria) == {"A cello for Anna's birthday."}
    assert texts(full, *aria, "--present", "Ben") == set()


def test_pages_follow_each_other(full: Command) -> None:
    aria = ("cello", "--agent", "aria")
    whole = [hit["id"] for hit in full.json("search", *aria, "--limit", "50")["hits"]]
    paged: list[str] = []
    for page in range(1, 99):
        found = full.json("search", *aria, "--limit", "2", "--page", str(page))
        paged += [hit["id"] for hit in found["hits"]]
        if not found["more"]:
            break
    assert paged == whole
    done = full.run("search", *aria, "--limit", "2")
    assert "--page 2" in done.stderr
    assert "--page" not in done.stdout
    assert "Page 40 is empty" in full.ok("search", *aria, "--page", "40")


def test_neighbours_come_with_a_hit(full: Command) -> None:
    query = ("Bremen 1998", "--agent", "aria", "--in", "messages", "--limit", "1")
    hit = full.json("search", *query, "--near", "1")["hits"][0]
    assert [one["text"] for one in hit["before"]] == ["How lovely, which orchestra?"]
    assert [one["text"] for one in hit["after"]] == [LONG]
    shown = full.ok("search", *query, "--near", "1")
    assert "    | aria: How lovely, which orchestra?\n    In Bremen, since 1998.\n" in shown


def test_several_agents(full: Command) -> None:
    assert "--all" in refused(full, "search", "cello", code=2)
    hits = full.json("search", "cello", "--all", "--limit", "50")["hits"]
    assert len({hit["agent_id"] for hit in hits}) == 2
    assert "[bea]" in full.ok("search", "bea tunes", "--all")
    told = refused(full, "search", "cello", "--all", "--agent", "aria", code=2)
    assert "cannot be used together" in told


@pytest.mark.parametrize(
    "query",
    [
        '"cello is insured"',
        "cel*",
        "cello AND (",
        "'; DROP TABLE entries; --",
        "🎻",
        "چلو",
        "チェロ",
        "\\ % _ ? *",
        "x" * 50_000,
    ],
)
@pytest.mark.promise("M6")
def test_any_text_is_a_query(full: Command, query: str) -> None:
    found = json.loads(full.ok("search", "--json", "--agent", "aria", "--", query))
    assert isinstance(found["hits"], list)


def test_words_can_be_typed_without_quotes_and_dashes_behind_dashes(
    full: Command, installed: Installed
) -> None:
    assert "The cello is insured." in installed.ok("search", "-a", "aria", "insured", "cello")
    assert "Nothing was found on '--frobnicate'" in full.ok(
        "search", "-a", "aria", "--", "--frobnicate"
    )


def test_without_a_word_the_newest_come_first(full: Command) -> None:
    found = full.json("search", "--agent", "aria", "--in", "messages", "--limit", "1")["hits"]
    assert found[0]["text"] == "I am sorry."
    assert found[0]["why"] == [{"kind": "newest", "text": ""}]


def test_in_a_pipe_there_is_no_style_and_the_part_with_the_words(full: Command) -> None:
    shown = full.ok("search", "attic", "--agent", "aria")
    assert "\x1b" not in shown
    head, text, why = shown.splitlines()
    assert head.startswith("message  2026-05-0")
    assert re.search(r"turn_\w+#4$", head)
    assert text.strip().startswith("…")
    assert "The cello is in the attic." in text
    assert len(text) < 320
    assert why.startswith("    words: attic")


@pytest.mark.parametrize("columns", [60, 140])
def test_at_a_terminal_what_was_found_is_marked(full: Command, columns: int) -> None:
    with full.screen("search", "attic", "--agent", "aria", columns=columns) as screen:
        assert screen.ended() == 0
        assert "\x1b[1;4mattic\x1b[0m" in screen.raw
        assert all(len(line) <= columns for line in screen.shown.splitlines())
        assert "turn_" in screen.shown


def test_control_characters_in_what_is_found_are_spelled_out(full: Command) -> None:
    full.ok("archive", "add", "A \x1b[31mviola\x07 speaks.", "--agent", "aria")
    shown = full.ok("search", "viola", "--agent", "aria")
    assert "\\x1b[31mviola\\x07" in shown
    assert "\x1b" not in shown


def test_nothing_is_told_with_a_way_on(full: Command) -> None:
    assert full.ok("search", "submarine", "-a", "bea") == (
        "Nothing was found on 'submarine'. Try other words.\n"
    )
    narrow = full.ok("search", "submarine", "-a", "bea", "--since", "yesterday")
    assert "fewer options" in narrow
    full.ok("agent", "create", "cleo")
    assert full.ok("search", "-a", "cleo").startswith("There is nothing to search yet")


@pytest.mark.parametrize(
    ("code", "arguments", "told"),
    [
        (2, ("--in", "dreams"), "'dreams' is not a search domain. Use one of: messages, passages"),
        (2, ("--role", "system"), "'system' is not a role"),
        (2, ("--since", "whenever"), "'whenever' is not a valid time"),
        (1, ("--present", "Nobody"), "Nobody"),
        (2, ("--limit", "0"), "--limit"),
        (2, ("--page", "0"), "--page"),
    ],
)
def test_mistakes(full: Command, code: int, arguments: tuple[Any, ...], told: str) -> None:
    assert told in refused(full, "search", "x", "-a", "aria", *arguments, code=code)


def test_older_spellings_find_the_same(full: Command) -> None:
    hits = full.json("archive", "search", "insured", "--agent", "aria")
    assert hits[0]["text"] == "The cello is insured."
    assert "insured" in full.ok("debug", "search-archival", "aria", "insured cello")
    assert "My sister" in full.ok("debug", "search-conversations", "aria", "sister plays")


@pytest.mark.promise("M15")
def test_the_index_can_be_made_at_once(asterism: Command):
    async def fill() -> None:
        async with Asterism.open(asterism.data, environ={}, work=False) as home:
            await home.agents.create("aria", model="demo:demo")
            said = [
                PastMessage("user", f"Number {one} is a cello.", None, MAY) for one in range(40)
            ]
            await home.agents.import_messages("aria", said)

    asyncio.run(fill())
    assert "minilm; the few texts there are so far are read as they are" in asterism.ok("doctor")
    done = asterism.run("memory", "index")
    assert done.returncode == 0
    assert "40 texts in the index, 40 of them with vectors" in done.stdout
    assert "100%: 40 of 40 texts" in done.stderr
    assert "minilm: 40 of 40 indexed texts have vectors" in asterism.ok("doctor")
    assert asterism.json("memory", "index") == {"indexed": 40, "encoded": 40}
