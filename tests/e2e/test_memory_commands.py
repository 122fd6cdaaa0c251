"""The commands about memory: blocks, archive, sources, people, time, forgetting, context."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from asterism.cli.source import progress_text
from asterism.sources.folder import Progress
from asterism.types.memory import Append, TextSchema
from tests.documents import make_documents, make_pdf
from tests.e2e.command import EXECUTABLE, Command, ModelServer
from tests.elsewhere import Elsewhere

TEXT = "Likes tea.\nHas a cat."
TURN = (
    'Note: [[call:block_edit {"operation":"append","label":"human","content":"Prefers mornings."}]]'
    ' [[call:recall {"operation":"insert","text":"The alarm code is 4711-XK."}]]'
)


@pytest.fixture
def aria(asterism: Command) -> Command:
    """A home with one agent, who has one block."""
    asterism.ok("agent", "create", "aria")
    asterism.ok("block", "create", "human", "--text", TEXT, "--description", "About the owner.")
    return asterism


def said(home: Command, label: str = "human", *more: str) -> str:
    return home.json("block", "show", label, *more)["text"]


def refused(home: Command, *arguments: str, code: int = 1, stdin: str | bytes = "") -> str:
    """Run a command that must fail with one sentence, and return it."""
    done = home.run(*arguments, stdin=stdin)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "fault inside asterism" not in done.stderr
    return done.stderr


def editor(place: Path, body: str) -> str:
    """Make an editor that does this to its file, `$1`."""
    script = place / "editor.sh"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    return str(script)


# -- blocks ----------------------------------------------------------------------------------------


@pytest.mark.promise("M1")
def test_blocks_are_listed_shown_and_described(aria: Command):
    block, persona = aria.json("block", "list")
    assert (persona["name"], persona["text"]) == ("aria/persona", "")
    assert (block["name"], block["text"], block["version"]) == ("aria/human", TEXT, 1)
    assert "Likes tea. Has a cat." in aria.ok("block", "list", "-a", "aria")
    shown = aria.ok("block", "show", "human", "--lines")
    assert "About the owner." in shown
    assert "1     1      owner       owner  Likes tea." in shown
    aria.ok("person", "add", "Anna")
    aria.ok("block", "describe", "human", "--limit", "900", "--audience", "person:Anna")
    shown = aria.json("block", "show", "aria/human")
    assert shown["limit"] == 900
    assert shown["audience"].startswith("person:person_")
    assert "person:Anna" in aria.ok("block", "show", "human")
    aria.ok("block", "describe", "human", "--label", "owner", "--type", "working", "--pin")
    assert "working, pinned" in aria.ok("block", "list")
    assert "Retire block" in refused(aria, "block", "retire", "owner", code=2)
    aria.ok("block", "retire", "owner", "--yes")
    assert [block["name"] for block in aria.json("block", "list")] == ["aria/persona"]


@pytest.mark.promise("M1")
def test_every_schema_is_edited_by_its_own_means(aria: Command):
    aria.ok("block", "create", "todo", "--schema", "tasks")
    aria.ok("block", "edit", "todo", "--append", '{"title": "Water the plants"}')
    aria.ok("block", "edit", "todo", "--append", '{"title": "Sleep"}')
    aria.ok("block", "edit", "todo", "--item", '1={"done": true}')
    assert said(aria, "todo").startswith("[x] Water the plants")
    aria.ok("block", "edit", "todo", "--remove", "2")
    assert "Sleep" not in said(aria, "todo")
    aria.ok("block", "create", "anna", "--schema", "partner")
    aria.ok("block", "edit", "anna", "--set", "name=Anna")
    aria.ok("block", "edit", "anna", "--set", 'preferences=["tea", "quiet"]')
    aria.ok("block", "edit", "anna", "--add", "energy_level=2")
    assert "name: Anna" in said(aria, "anna")
    assert "energy_level: 7" in said(aria, "anna")
    parts = {
        "kind": "composite",
        "sections": [
            {"name": "facts", "schema": {"kind": "text"}},
            {"name": "days", "schema": {"kind": "log"}},
        ],
    }
    aria.ok("block", "create", "both", "--schema", json.dumps(parts))
    aria.ok("block", "edit", "both", "--section", "facts", "--append", "One fact.")
    assert "One fact." in said(aria, "both")


@pytest.mark.promise("M3")
def test_edits_are_told_undone_restored_and_compared(aria: Command, tmp_path: Path):
    aria.ok("block", "edit", "human", "--append", "Sleeps late.", "--reason", "she said so")
    aria.ok("block", "edit", "human", "--replace", "tea", "coffee")
    patch = tmp_path / "change.diff"
    patch.write_text("@@ -2,1 +2,1 @@\n-Has a cat.\n+Has two cats.\n")
    aria.ok("block", "edit", "human", "--patch", str(patch))
    after = "Likes coffee.\nHas two cats.\nSleeps late."
    assert said(aria) == after
    assert said(aria, "human", "--version", "2") == f"{TEXT}\nSleeps late."
    assert said(aria, "human", "--at", "now") == after
    assert said(aria, "human", "--at", "1 hour ago") == ""
    assert "she said so" in aria.ok("block", "history", "human")
    assert [edit["kind"] for edit in aria.json("block", "history", "human", "--limit", "2")] == [
        "patch",
        "replace",
    ]
    diff = aria.ok("block", "diff", "human", "1", "3")
    assert "-Likes tea.\n+Likes coffee." in diff
    assert "+Likes coffee." in aria.ok("block", "diff", "human", "1 hour ago", "now")
    assert "are equal" in aria.ok("block", "diff", "human", "now")
    blame = aria.json("block", "blame", "human")
    assert blame[2]["made_by"][0]["reason"] == "she said so"
    assert "Undid edit 4" in aria.ok("block", "undo", "human")
    assert "Has a cat." in said(aria)
    assert "Redid the edit that undo 5 had undone" in aria.ok("block", "redo", "human")
    assert said(aria) == after
    aria.ok("block", "revert", "human", "2")
    assert said(aria) == "Likes coffee.\nHas two cats."
    aria.ok("block", "restore", "human", "1")
    assert said(aria) == TEXT
    assert "already has this text" in aria.ok("block", "edit", "human", "--text", TEXT)


@pytest.mark.promise("M4")
def test_blocks_are_shared_and_belong_to_all(aria: Command):
    aria.ok("agent", "create", "bea")
    assert "aria/human and bea/human" in refused(aria, "block", "show", "human", code=1)
    aria.ok("block", "share", "human", "bea", "-a", "aria", "--permission", "read_write")
    (seen,) = [
        block for block in aria.json("block", "list", "-a", "bea") if block["owner"] == "aria"
    ]
    assert (seen["name"], seen["may"]) == ("aria/human", "read_write")
    assert "bea (read_write)" in aria.ok("block", "show", "human", "-a", "aria")
    aria.ok("block", "unshare", "human", "bea", "-a", "aria")
    own = ["human", "persona"]
    assert [block["name"] for block in aria.json("block", "list", "-a", "bea")] == own
    for _ in range(2):
        aria.ok("block", "create", "house", "--constellation", "--text", "Quiet.", "--existing")
    assert said(aria, "house", "--constellation") == "Quiet."
    assert [one["name"] for one in aria.json("block", "list", "-a", "bea")] == [
        *own,
        "constellation/house",
    ]
    aria.ok("block", "create", "plan", "-a", "bea", "--share", "aria=read_only")
    assert "bea/plan" in aria.ok("block", "list", "-a", "aria")


@pytest.mark.promise("M3")
def test_replicas_are_merged(aria: Command, tmp_path: Path):
    updates = tmp_path / "human.loro"
    aria.ok("block", "export-updates", "human", str(updates))
    assert "already exists" in refused(
        aria, "block", "export-updates", "human", str(updates), code=2
    )
    elsewhere = Elsewhere(TextSchema(), updates.read_bytes())
    elsewhere.edit(Append("Written elsewhere."))
    aria.ok("block", "edit", "human", "--replace", "tea", "coffee")
    updates.write_bytes(elsewhere.updates())
    aria.ok("block", "merge", "human", str(updates))
    merged = "Likes coffee.\nHas a cat.\nWritten elsewhere."
    assert said(aria) == merged
    updates.write_bytes(b"\x00\x01 no updates")
    assert "nothing was changed" in refused(aria, "block", "merge", "human", str(updates), code=2)
    assert said(aria) == merged


# -- the editor ------------------------------------------------------------------------------------


def test_a_block_is_edited_in_an_editor_and_what_others_wrote_meanwhile_stays(
    aria: Command, tmp_path: Path
):
    aria.env["EDITOR"] = editor(
        tmp_path,
        f"{EXECUTABLE} block edit human --append 'Written meanwhile.' >/dev/null\n"
        'sed -i "s/tea/coffee/" "$1"',
    )
    told = aria.ok("block", "edit", "human")
    assert "Edits of others since then are kept." in told
    assert said(aria) == "Likes coffee.\nHas a cat.\nWritten meanwhile."


def test_an_editor_that_changes_nothing_changes_nothing(aria: Command, tmp_path: Path):
    aria.env["EDITOR"] = editor(tmp_path, "true")
    assert "the text is as it was" in aria.ok("block", "edit", "human")
    aria.env["EDITOR"] = editor(tmp_path, ': > "$1"')
    assert "the text is empty" in aria.ok("block", "edit", "human")
    aria.env["VISUAL"] = editor(tmp_path, "exit 3")
    assert "ended with code 3" in refused(aria, "block", "edit", "human", code=2)
    aria.env["VISUAL"] = "/nowhere/editor"
    assert "cannot be started" in refused(aria, "block", "edit", "human", code=2)
    del aria.env["VISUAL"], aria.env["EDITOR"]
    assert "There is no terminal" in refused(aria, "block", "edit", "human", code=2)
    aria.env["PATH"] = str(tmp_path / "empty")
    with aria.terminal("block", "edit", "human") as person:
        person.expect("No editor was found. Set EDITOR")
        assert person.ended() == 2
    assert aria.json("block", "show", "human")["version"] == 1
    assert len(list(tmp_path.glob("asterism-*/human.md"))) == 1, "what the failing editor left"


def test_what_was_typed_is_kept_when_it_is_refused(aria: Command, tmp_path: Path):
    aria.ok("block", "describe", "human", "--limit", "40")
    aria.env["EDITOR"] = editor(tmp_path, 'printf "%050d" 7 >> "$1"')
    told = refused(aria, "block", "edit", "human", code=2)
    assert "of 40 characters" in told
    kept = Path(told.partition("Your text is saved in ")[2].strip().removesuffix("."))
    assert kept.read_text().rstrip() == f"{TEXT}\n{7:050d}"
    assert said(aria) == TEXT
    aria.ok("block", "create", "todo", "--schema", "tasks")
    aria.env["EDITOR"] = editor(tmp_path, 'printf \'[{"titel": 1}]\' > "$1"')
    told = refused(aria, "block", "edit", "todo")
    assert "titel" in told
    assert "Your text is saved in" in told
    aria.env["EDITOR"] = editor(tmp_path, 'printf \'[{"title": "Sleep"}]\' > "$1"')
    aria.ok("block", "edit", "todo")
    assert said(aria, "todo") == "[ ] Sleep (priority: 3)"


@pytest.mark.promise("X5")
def test_what_blocks_cannot_be_told(aria: Command, tmp_path: Path):
    aria.ok("block", "create", "anna", "--schema", "partner")
    aria.ok("block", "describe", "human", "--limit", "50")
    binary = tmp_path / "picture.png"
    binary.write_bytes(b"\x89PNG\x00\xff\xfe")
    bad_diff = tmp_path / "bad.diff"
    bad_diff.write_text("@@ -1,1 +1,1 @@\n-Likes milk.\n+Likes beer.\n")
    for code, arguments, word in (
        (1, ("block", "show", "humen", "-a", "aria"), "Did you mean 'human'?"),
        (1, ("block", "show", "nothing"), "There are: aria/anna, aria/human, aria/persona."),
        (1, ("block", "list", "-a", "arai"), "Did you mean 'aria'?"),
        (1, ("block", "show", "human", "--version", "9"), "no version 9"),
        (1, ("block", "restore", "human", "9"), "9"),
        (1, ("block", "restore", "human", "2 hours ago"), "did not exist at that moment"),
        (1, ("block", "revert", "human", "9"), "9"),
        (1, ("block", "redo", "human"), "human"),
        (2, ("block", "diff", "human", "soon"), "'soon' is not a valid time"),
        (2, ("block", "show", "human", "--at", "25:00"), "is not a valid time"),
        (2, ("block", "edit", "human", "--append", "x" * 60), "50"),
        (2, ("block", "edit", "anna", "--set", "energy_level=high"), "energy_level"),
        (2, ("block", "edit", "anna", "--set", "energy"), "FIELD=VALUE"),
        (2, ("block", "edit", "anna", "--add", "energy_level=lots"), "not a number"),
        (2, ("block", "edit", "human", "--patch", str(bad_diff)), "Nothing was changed"),
        (2, ("block", "edit", "human", "--file", str(binary)), "UTF-8"),
        (2, ("block", "edit", "human", "--file", "/nowhere/at/all"), "cannot be read"),
        (2, ("block", "edit", "human", "--append", "a", "--text", "b"), "cannot be used together"),
        (2, ("block", "edit", "human", "--text", "a", "--all"), "--replace"),
        (2, ("block", "create", "x", "--schema", "poem"), "poem"),
        (2, ("block", "create", "x", "--schema", "{"), "not valid JSON"),
        (2, ("block", "create", "x", "--audience", "friends"), "is not a valid audience"),
        (1, ("block", "create", "x", "--audience", "person:Nobody"), "Nobody"),
        (2, ("block", "create", "x", "--share", "aria=boss"), "has no valid permission"),
        (1, ("block", "create", "human"), "already"),
        (2, ("block", "describe", "human"), "Say what to change"),
        (2, ("block", "show", "human", "-a", "aria", "--constellation"), "cannot be used together"),
        (1, ("block", "share", "human", "nobody"), "nobody"),
    ):
        assert word in refused(aria, *arguments, code=code), arguments
    assert said(aria) == TEXT
    names = {block["name"] for block in aria.json("block", "list")}
    assert names == {"aria/human", "aria/anna", "aria/persona"}


# -- the archive -----------------------------------------------------------------------------------


@pytest.mark.promise("M5")
def test_passages_are_added_found_changed_and_retracted(aria: Command, tmp_path: Path):
    told = aria.json("archive", "add", "The spare key is with the neighbour.", "--tag", "house")
    key = told["passage"]["id"]
    assert told["kind"] == "stored"
    assert "Already stored" in aria.ok("archive", "add", "The spare key is with the neighbour.")
    note = tmp_path / "note.txt"
    note.write_text("The boiler was serviced in May.")
    aria.ok("archive", "add", "--file", str(note))
    aria.ok("archive", "add", "-", stdin="Bins go out on Tuesday.")
    assert len(aria.json("archive", "list")) == 3
    assert [one["id"] for one in aria.json("archive", "list", "--tag", "house")] == [key]
    hit = aria.json("archive", "search", "where is the key?")[0]
    assert (hit["kind"], hit["id"]) == ("passage", key)
    assert "words:" in aria.ok("archive", "search", "key", "--in", "passages")
    assert "Nothing was found" in aria.ok("archive", "search", "submarine", "--in", "messages")
    aria.ok("archive", "append", key, "Ring twice.")
    aria.ok("archive", "tag", key, "keys", "doors")
    shown = aria.json("archive", "show", key)
    assert shown["text"].endswith("Ring twice.")
    assert shown["tags"] == ["doors", "keys"] or shown["tags"] == ["keys", "doors"]
    assert [edit["kind"] for edit in shown["edits"]][-2:] == ["append", "tag"]
    newer = aria.json("archive", "add", "The spare key is in the shed.", "--supersedes", key)
    assert "superseded by" in aria.ok("archive", "show", key)
    aria.ok("archive", "retract", newer["passage"]["id"])
    assert key not in aria.ok("archive", "list")


@pytest.mark.promise("M5")
def test_many_passages_are_imported_once(aria: Command, tmp_path: Path):
    lines = tmp_path / "facts.jsonl"
    rows = [
        json.dumps({"text": f"Fact {number} is about topic {number * 7}."}) for number in range(700)
    ]
    lines.write_text("\n".join([*rows, "A plain line.", ""]))
    done = aria.run("archive", "import", str(lines), "--tag", "old")
    assert done.stdout == "Stored 701 passages.\n"
    assert "100%: 701 of 701 passages" in done.stderr
    again = aria.json("archive", "import", str(lines))
    assert again == {"given": 701, "stored": 0}
    lines.write_text('{"text": "one"}\n{"txt": "two"}\n')
    assert "line 2" in refused(aria, "archive", "import", str(lines), code=2)
    lines.write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refused(aria, "archive", "import", str(lines), code=2)


@pytest.mark.promise("X5")
def test_what_archives_cannot_be_told(aria: Command):
    for code, arguments, word in (
        (1, ("archive", "show", "pas_0"), "pas_0"),
        (1, ("archive", "retract", "pas_0"), "pas_0"),
        (1, ("archive", "forget", "pas_0", "--yes"), "pas_0"),
        (2, ("archive", "add"), "Give one of TEXT and --file"),
        (2, ("archive", "add", "  "), "Nothing"),
        (2, ("archive", "add", "x", "--audience", "everybody"), "is not a valid audience"),
        (2, ("archive", "add", "x", "--true-from", "soon"), "not a valid time"),
        (2, ("archive", "search", "x", "--in", "dreams"), "dreams"),
        (1, ("archive", "search", "x", "--present", "Nobody"), "Nobody"),
        (2, ("archive", "tag", "pas_0"), "--none"),
        (1, ("archive", "list", "-a", "nobody"), "nobody"),
    ):
        assert word in refused(aria, *arguments, code=code), arguments
    aria.ok("agent", "create", "bea")
    assert "--agent: aria, bea" in refused(aria, "archive", "list", code=2)
    assert aria.json("archive", "list", "-a", "aria") == []


# -- sources ---------------------------------------------------------------------------------------


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """A folder with documents, one of them broken."""
    place = tmp_path / "papers"
    place.mkdir()
    (place / "garden.md").write_text("# Garden\n\nThe tulips are watered at dawn.\n")
    make_pdf(place / "lease.pdf", [["The lease ends in March."]])
    (place / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    return place


@pytest.mark.promise("M5")
def test_a_folder_is_read_searched_read_again_and_removed(aria: Command, papers: Path):
    done = aria.run("source", "add", "papers", str(papers), "-a", "aria")
    assert done.returncode == 0, done.stderr
    assert "read 2 documents" in done.stdout
    assert "broken.pdf" in done.stdout
    assert "documents" in done.stderr
    (source,) = aria.json("source", "list")
    assert (source["documents"], source["refused"], source["agents"]) == (2, 1, ["aria"])
    assert "refused" in aria.ok("source", "show", "papers")
    hit = aria.json("archive", "search", "when are the tulips watered?")[0]
    assert "tulips" in hit["text"]
    assert hit["source"]["trust"] == "document"
    (papers / "garden.md").write_text("# Garden\n\nThe roses are cut at noon.\n")
    assert "read 1 document" in aria.ok("source", "sync", "papers")
    assert aria.json("archive", "search", "tulips", "--in", "passages") == []
    aria.ok("source", "detach", "papers", "aria")
    assert "Nothing was found" in aria.ok("archive", "search", "roses noon", "--in", "passages")
    aria.ok("source", "attach", "papers", "aria")
    assert "Remove papers with 2 documents" in refused(aria, "source", "remove", "papers", code=2)
    aria.ok("source", "remove", "papers", "--yes")
    assert aria.json("source", "list") == []
    assert (papers / "garden.md").exists()


@pytest.mark.promise("M5")
def test_files_of_kinds_that_are_not_read_are_named(aria: Command, papers: Path):
    (papers / "photo.jpg").write_bytes(b"\xff\xd8\xff")
    done = aria.ok("source", "add", "papers", str(papers))
    assert "Not read: 1 file of a kind that is not read (.jpg)." in done
    shown = aria.ok("source", "show", "papers")
    assert "1 file of a kind that is not read (.jpg)" in shown
    for name in ("other.JPG", "film.mp4", "Unknown"):
        (papers / name).write_bytes(b"\0")
    synced = aria.json("source", "sync", "papers")
    assert synced["unread"] == {".jpg": 2, ".mp4": 1, "without suffix": 1}
    told = "4 files of kinds that are not read (2 .jpg, 1 .mp4, 1 without suffix)"
    assert told in aria.ok("source", "show", "papers")
    assert aria.json("source", "show", "papers")["unread"] == synced["unread"]
    # What the owner has left out is not missed.
    aria.ok("source", "add", "few", str(papers), "--exclude", "*.[jJ][pP][gG]", "--exclude", "U*")
    assert aria.json("source", "sync", "few")["unread"] == {".mp4": 1}
    aria.ok("source", "add", "one", str(papers), "--include", "*.md")
    assert aria.json("source", "sync", "one")["unread"] == {}


@pytest.mark.promise("M5")
def test_a_single_file_is_a_source(aria: Command, papers: Path):
    file = papers / "garden.md"
    assert "read 1 document" in aria.ok("source", "add", "garden", str(file), "-a", "aria")
    (source,) = aria.json("source", "list")
    assert (source["documents"], source["path"]) == (1, str(file))
    hit = aria.json("archive", "search", "when are the tulips watered?")[0]
    assert "tulips" in hit["text"]
    file.write_text("# Garden\n\nThe roses are cut at noon.\n")
    assert "read 1 document" in aria.ok("source", "sync", "garden")
    assert aria.json("archive", "search", "tulips", "--in", "passages") == []
    file.unlink()
    assert "not there" in refused(aria, "source", "sync", "garden", code=1)
    assert aria.json("source", "list")[0]["documents"] == 1, "it may only be out of reach"


@pytest.mark.promise("M5")
def test_one_office_file_book_or_mail_is_a_source(aria: Command, tmp_path: Path):
    files = make_documents(tmp_path)
    for name, file in files.items():
        assert "read 1 document (1 passage)" in aria.ok("source", "add", name, str(file)), name
    for words, name in (
        ("lamp", "sheet"),
        ("garden", "slides"),
        ("whale", "book"),
        ("rent", "mail"),
    ):
        (hit,) = aria.json("search", words, "--in", "documents")["hits"]
        assert files[name].name in str(hit), "the only agent can search it"
    for hidden in ("hiddenword", "attachedword"):
        assert aria.json("search", hidden, "--in", "documents")["hits"] == []


@pytest.mark.promise("M5")
def test_a_source_is_for_the_only_agent_unless_others_are_named(aria: Command, papers: Path):
    assert "No agent" not in aria.ok("source", "add", "papers", str(papers))
    assert aria.json("source", "show", "papers")["agents"] == ["aria"]
    aria.ok("agent", "create", "bea")
    told = aria.ok("source", "add", "shared", str(papers))
    assert 'No agent can search shared yet: "asterism source attach shared AGENT" lets one.' in told
    assert aria.json("source", "show", "shared")["agents"] == []


@pytest.mark.promise("M5")
def test_a_bar_counts_in_a_unit_that_fits():
    told = [progress_text(Progress(1, 1, size, size, 2, "")) for size in (4, 4_200, 42_000_000)]
    assert told == [
        f"1 of 1 document, {size}, 2 passages"
        for size in ("4 of 4 bytes", "4.2 of 4.2 kB", "42.0 of 42.0 MB")
    ]


@pytest.mark.promise("M5")
def test_reading_a_folder_is_interrupted_and_goes_on(aria: Command, tmp_path: Path):
    place = tmp_path / "many"
    place.mkdir()
    for number in range(40):
        text = "\n\n".join(
            f"Chapter {number}, part {part}: " + "words " * 60 for part in range(200)
        )
        (place / f"{number:02}.txt").write_text(text)
    with aria.terminal("source", "add", "many", str(place)) as person:
        person.expect("passages")
        person.press("\x03")
        person.expect('"asterism source sync many" continues where it stopped.')
        assert person.ended() == 130
    before = aria.json("source", "list")[0]
    assert before["documents"] < 40
    done = aria.json("source", "sync", "many")
    assert done["read"] + done["unchanged"] == 40
    assert aria.json("source", "list")[0]["documents"] == 40


@pytest.mark.promise("X5")
def test_what_sources_cannot_be_told(aria: Command, tmp_path: Path, papers: Path):
    file = tmp_path / "photo.jpg"
    file.write_bytes(b"no document")
    for code, arguments, word in (
        (1, ("source", "add", "x", str(tmp_path / "none")), "no folder or file"),
        (2, ("source", "add", "x", str(file)), "of a kind that is not read (.jpg)"),
        (1, ("source", "add", "x", str(papers), "-a", "nobody"), "nobody"),
        (2, ("source", "add", "x", str(papers), "--audience", "all"), "is not a valid audience"),
        (1, ("source", "sync", "x"), "x"),
        (1, ("source", "show", "x"), "x"),
        (1, ("source", "remove", "x", "--yes"), "x"),
        (1, ("source", "attach", "x", "aria"), "x"),
    ):
        assert word in refused(aria, *arguments, code=code), arguments
    assert aria.json("source", "list") == []


# -- people ----------------------------------------------------------------------------------------


@pytest.mark.promise("M9")
def test_people_are_introduced_linked_merged_and_decide_what_is_heard(aria: Command):
    aria.ok("person", "add", "Anna", "--role", "family")
    aria.ok("person", "add", "Anna at work", "--trust", "stranger")
    aria.ok("person", "link", "Anna", "discord:4711")
    aria.ok("person", "link", "Anna at work", "slack:U77")
    assert aria.json("person", "show", "discord:4711")["name"] == "Anna"
    assert "cannot be undone" in refused(aria, "person", "merge", "Anna", "slack:U77", code=2)
    aria.ok("person", "merge", "Anna", "slack:U77", "--yes")
    assert "discord:4711, slack:U77" in aria.ok("person", "list")
    aria.ok("person", "rename", "Anna", "Ann")
    aria.ok("person", "trust", "Ann", "stranger")
    aria.ok("person", "roles", "Ann", "friends", "band")
    shown = aria.json("person", "show", "Ann")
    assert (shown["trust"], set(shown["roles"])) == ("stranger", {"friends", "band"})
    aria.ok("person", "unlink", "slack:U77")
    aria.ok("archive", "add", "Ann's present is a drum.", "--audience", "owner")
    aria.ok("archive", "add", "The band rehearses on Friday.", "--audience", "role:band")
    heard = aria.json("archive", "search", "present drum rehearses", "--present", "Ann")
    assert [hit["text"] for hit in heard] == ["The band rehearses on Friday."]
    # What the owner types is for the owner, unless they say otherwise.
    context = aria.json("context", "show", "aria", "--present", "Ann")
    assert not any(line["part"] == "block human" for line in context["lines"])
    aria.ok("block", "create", "band", "--text", "We play jazz.", "--audience", "role:band")
    context = aria.json("context", "show", "aria", "--present", "Ann")
    assert any(line["part"] == "block band" for line in context["lines"])
    aria.ok("block", "describe", "human", "--audience", "owner")
    assert "Likes tea." not in aria.ok("context", "show", "aria", "--present", "Ann", "--full")
    assert "Likes tea." in aria.ok("context", "show", "aria", "--full")
    for code, arguments, word in (
        (1, ("person", "show", "Bob"), "Bob"),
        (1, ("person", "add", "Ann"), "Ann"),
        (2, ("person", "trust", "Ann", "boss"), "boss"),
        (2, ("person", "link", "Ann", "discord"), "not a valid account"),
        (1, ("person", "unlink", "irc:x"), "irc:x"),
        (2, ("person", "roles", "Ann"), "--none"),
        (1, ("context", "show", "aria", "--present", "Bob"), "Bob"),
    ):
        assert word in refused(aria, *arguments, code=code), arguments


# -- memory as a whole -----------------------------------------------------------------------------


@pytest.fixture
def talked(aria: Command, model: ModelServer) -> Command:
    """A home whose agent has written to its memory in a turn."""
    aria.use(model)
    aria.ok("chat", "--once", TURN)
    return aria


def turn_of(home: Command) -> str:
    return home.json("turn", "list")[0]["id"]


@pytest.mark.promise("M7")
def test_why_a_memory_is_there(talked: Command):
    turn = turn_of(talked)
    told = talked.ok("memory", "why", "human:3")
    assert "Prefers mornings." in told
    assert f"edit 2, append by agent:aria in {turn}" in told
    passage = talked.json("archive", "list")[0]["id"]
    trace = talked.json("memory", "why", passage)
    assert trace["children"][0]["what"].startswith("call of recall")
    with talked.screen("memory", "why", "human", columns=60) as person:
        assert person.ended() == 0
    assert "└──" in person.shown
    assert max(map(len, person.shown.splitlines())) <= 60
    assert "no line 9" in refused(talked, "memory", "why", "human:9")
    assert "pas_0" in refused(talked, "memory", "why", "pas_0")


@pytest.mark.promise("M8")
def test_a_turn_is_taken_back_and_memory_is_told_as_of_before(talked: Command):
    turn = turn_of(talked)
    opened = talked.json("turn", "show", turn)["opened_at"]
    then = talked.json("memory", "as-of", "aria", str(opened - 1))
    assert then["blocks"][0]["block"]["text"] == TEXT
    assert then["passages"] == []
    assert "Prefers mornings." in talked.ok("memory", "as-of", "aria", "now")
    asked = talked.run("memory", "revert", turn)
    assert asked.returncode == 2
    assert "block aria/human, edit 2, append" in asked.stderr
    with talked.terminal("memory", "revert", turn) as person:
        person.expect("Undo all of this?")
        person.type("n")
        assert person.ended() == 1
    assert "Prefers mornings." in said(talked)
    done = talked.json("memory", "revert", turn, "--yes")
    assert said(talked) == TEXT
    assert talked.json("archive", "list") == []
    talked.ok("memory", "revert", done["taken_back_by"], "--yes")
    assert "Prefers mornings." in said(talked)
    talked.ok("memory", "revert", "--block", "human", "--edit", "2", "--yes")
    assert said(talked) == TEXT
    for code, arguments, word in (
        (1, ("memory", "revert", "turn_0", "--yes"), "There is no turn"),
        (1, ("memory", "revert", "turn_0"), "There is no turn"),
        (1, ("memory", "revert", "--block", "human", "--edit", "99"), "no edit 99"),
        (2, ("memory", "revert"), "Name a turn"),
        (2, ("memory", "as-of", "aria", "then"), "not a valid time"),
        (1, ("memory", "as-of", "nobody", "now"), "nobody"),
    ):
        assert word in refused(talked, *arguments, code=code), arguments


@pytest.mark.promise("M13")
def test_something_is_forgotten_with_a_receipt(talked: Command):
    asked = talked.run("memory", "forget", "--text", "4711-XK")
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    with talked.terminal("memory", "forget", "--text", "4711-XK") as person:
        person.expect('text: "4711-XK"')
        person.expect("cannot be brought back")
        person.type("n")
        assert person.ended() == 1
    assert "4711-XK" in talked.ok("archive", "list")
    done = talked.run("memory", "forget", "--text", "4711-XK", "--reason", "a secret", "--yes")
    assert done.returncode == 0, done.stderr
    assert "passages.text" not in done.stdout
    assert "passages  " in done.stdout
    assert "4711" not in done.stdout
    held = [path for path in talked.data.rglob("*") if path.is_file()]
    assert not [path for path in held if b"4711-XK" in path.read_bytes()]
    (receipt,) = talked.json("memory", "receipts")
    assert receipt["reason"] == "a secret"
    assert receipt["id"] in talked.ok("memory", "receipts", receipt["id"])
    passage = talked.json("archive", "add", "A canary sings at six.")["passage"]["id"]
    talked.ok("archive", "forget", passage, "--yes")
    assert talked.json("archive", "search", "canary") == []
    turn = turn_of(talked)
    talked.ok("memory", "forget", "--turn", turn, "--block", "aria/human", "--yes")
    assert [block["name"] for block in talked.json("block", "list")] == ["aria/persona"]
    for code, arguments, word in (
        (2, ("memory", "forget", "--yes"), "what to forget"),
        (2, ("memory", "forget", "--text", "a", "--yes"), "a"),
        (1, ("memory", "forget", "--passage", "pas_0", "--yes"), "pas_0"),
        (1, ("memory", "forget", "--person", "Bob", "--yes"), "Bob"),
        (1, ("memory", "forget", "--agent", "bob", "--yes"), "bob"),
        (1, ("memory", "forget", "--source", "x", "--yes"), "x"),
        (1, ("memory", "forget", "--turn", "turn_0", "--yes"), "turn_0"),
        (1, ("memory", "receipts", "tomb_0"), "tomb_0"),
    ):
        done = talked.run(*arguments)
        assert done.returncode == code, (arguments, done.stderr)
        assert word in done.stderr


@pytest.mark.promise("M14")
def test_health_tells_what_to_look_at(aria: Command):
    assert "has no problems" in aria.ok("memory", "health", "aria")
    aria.ok("block", "describe", "human", "--limit", "22")
    aria.ok("archive", "add", "ok")
    found = aria.json("memory", "health", "aria")
    assert {one["kind"] for one in found["findings"]} >= {"full", "junk"}
    told = aria.ok("memory", "health", "aria")
    assert "next move" in told
    assert "nobody" in refused(aria, "memory", "health", "nobody")


def test_memory_leaves_and_returns(talked: Command, tmp_path: Path):
    file = tmp_path / "aria.json"
    talked.ok("memory", "export", "aria", "--file", str(file))
    document: dict[str, Any] = json.loads(file.read_text())
    assert json.loads(talked.ok("memory", "export", "aria")) == document
    talked.ok("agent", "create", "bea")
    assert "Would import 2 blocks" in talked.ok("memory", "import", "bea", str(file), "--dry-run")
    assert {block["text"] for block in talked.json("block", "list", "-a", "bea")} == {""}
    talked.ok("memory", "import", "bea", str(file))
    assert said(talked, "human", "-a", "bea") == said(talked, "human", "-a", "aria")
    talked.ok("agent", "create", "cleo")
    talked.ok("memory", "fork", "aria", "cleo")
    assert said(talked, "human", "-a", "cleo") == said(talked, "human", "-a", "aria")
    assert len(talked.json("archive", "list", "-a", "cleo")) == 1
    file.write_text("[]")
    for code, arguments, word in (
        (2, ("memory", "import", "bea", str(file)), "not an export"),
        (2, ("memory", "import", "bea", str(tmp_path / "none")), "cannot be read"),
        (1, ("memory", "export", "nobody"), "nobody"),
        (2, ("memory", "fork", "aria", "aria"), "itself"),
        (1, ("memory", "fork", "aria", "nobody"), "nobody"),
    ):
        assert word in refused(talked, *arguments, code=code), arguments


# -- the context -----------------------------------------------------------------------------------


@pytest.mark.promise("M12", "T11")
def test_the_context_of_now_and_of_a_turn(talked: Command):
    turn = turn_of(talked)
    now = talked.ok("context", "show", "aria")
    assert "block human" in now
    assert "core memory, always seen" in now
    assert re.search(r"^tools \(\d+\) ", now, re.MULTILINE)
    assert "corrected by what the vendor counted for turn_" in now
    last = talked.json("context", "show", "aria", "--turn", turn)
    assert last["tokens_in"] > 0
    assert {line["cached"] for line in last["lines"]} == {True, False}
    first = talked.json("context", "show", "aria", "--turn", turn, "--step", "0")
    assert first["messages"] == last["messages"][: len(first["messages"])]
    assert last["tokens"] == last["tokens_in"] == sum(line["tokens"] for line in last["lines"])
    assert "tool recall" in {line["part"] for line in last["lines"]}
    total = f"{last['tokens']:,}, as the vendor counted"
    assert total in talked.ok("context", "show", "aria", "--turn", turn)
    assert TURN in talked.ok("context", "show", "aria", "--turn", turn, "--full")
    talked.ok("agent", "create", "bea")
    for code, arguments, word in (
        (1, ("context", "show", "bea", "--turn", turn), "not one of bea's"),
        (1, ("context", "show", "aria", "--turn", turn, "--step", "9"), "no step 9"),
        (1, ("context", "show", "aria", "--turn", "turn_0"), "turn_0"),
        (2, ("context", "show", "aria", "--step", "1"), "--turn"),
        (1, ("context", "show", "nobody"), "nobody"),
        (1, ("context", "compact", "bea"), "nothing to compact"),
    ):
        assert word in refused(talked, *arguments, code=code), arguments


@pytest.mark.promise("M11")
def test_the_context_is_folded_on_demand(aria: Command, model: ModelServer):
    aria.use(model, "[context]\nkeep_recent = 1")
    for number in range(4):
        aria.ok("chat", "--once", f"Message {number} about the garden, the cat and the tea.")
    compacted = aria.json("context", "compact", "aria")
    assert compacted["summary"]["messages"] > 0
    shown = aria.ok("context", "show", "aria")
    assert "summary" in shown
    assert compacted["summary"]["id"] in aria.ok("memory", "why", compacted["summary"]["id"])


def test_the_other_spellings(talked: Command):
    assert "human" in talked.ok("debug", "list-core", "aria")
    assert "4711-XK" in talked.ok("debug", "list-archival", "aria")
    assert talked.json("debug", "show-context", "aria") == talked.json("context", "show", "aria")
    assert "alarm" in talked.ok("debug", "search-archival", "aria", "alarm code")
    assert "debug" not in talked.ok("--help").replace("--debug", "")
    assert "nobody" in refused(talked, "debug", "list-core", "nobody")


# -- how it looks ----------------------------------------------------------------------------------


def test_tables_keep_to_the_width_of_the_terminal(talked: Command, papers: Path):
    talked.ok("source", "add", "papers", str(papers), "-a", "aria")
    for arguments in (
        ("block", "list"),
        ("block", "show", "human", "--lines"),
        ("block", "history", "human"),
        ("block", "blame", "human"),
        ("block", "diff", "human", "1"),
        ("archive", "list"),
        ("archive", "search", "alarm"),
        ("source", "list"),
        ("source", "show", "papers"),
        ("person", "list"),
        ("memory", "health", "aria"),
        ("context", "show", "aria"),
    ):
        with talked.screen(*arguments, columns=60) as person:
            assert person.ended() == 0
        assert max(map(len, person.shown.splitlines())) <= 60, (arguments, person.shown)


def test_lists_of_an_empty_home_say_what_to_do(asterism: Command):
    asterism.ok("agent", "create", "aria")
    assert "aria/persona" in asterism.ok("block", "list")
    assert '"asterism archive add"' in asterism.ok("archive", "list")
    assert '"asterism source add" makes one' in asterism.ok("source", "list")
    assert "Nothing was forgotten yet." in asterism.ok("memory", "receipts")
    assert "owner" in asterism.ok("person", "list")
