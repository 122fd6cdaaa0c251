"""Documents of all formats become pieces of bounded size; what cannot be read is refused."""

import contextlib
import json
import os
import random
import re
import string
import subprocess
import tracemalloc
import zipfile
from collections.abc import Callable
from datetime import date
from email.message import EmailMessage
from itertools import islice
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.sources import child_reader, office
from asterism.sources.pieces import MAX_PIECE
from asterism.sources.readers import DocumentPiece, DocumentRefused, is_known, read
from tests.documents import make_docx, make_epub, make_pdf, paragraph, table

pytestmark = pytest.mark.promise("M5")

SENTENCE = "The quick brown fox number {} jumps over the lazy dog and goes home."


def prose(count: int, start: int = 0) -> str:
    return " ".join(SENTENCE.format(number) for number in range(start, start + count))


def pieces_of(path: Path, content: str | bytes) -> list[DocumentPiece]:
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        path.write_bytes(content)
    return list(read(path))


def words(text: str) -> list[str]:
    return text.split()


def refusal(path: Path, content: str | bytes | None = None) -> str:
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DocumentRefused) as caught:
        list(read(path))
    assert path.name in caught.value.message
    assert caught.value.message.endswith("Nothing of it was stored.")
    assert caught.value.code == "input"
    return caught.value.message


# -- text ------------------------------------------------------------------------------------------


def test_text_is_cut_between_paragraphs_and_keeps_every_word(tmp_path: Path) -> None:
    text = "\n\n".join(prose(5, start) for start in range(0, 100, 5))
    found = pieces_of(tmp_path / "a.txt", text)
    assert words(" ".join(piece.text for piece in found)) == words(text)
    assert all(400 <= len(piece.text) <= MAX_PIECE for piece in found)
    assert all(piece.text.endswith("home.") for piece in found)
    assert found[0].place == "lines 1-3"
    starts = [int(piece.place.split()[1].split("-")[0]) for piece in found]
    assert starts == sorted(set(starts))


def test_a_long_line_is_cut_after_sentences_and_never_in_a_word(tmp_path: Path) -> None:
    text = prose(2_000)
    found = pieces_of(tmp_path / "a.txt", text)
    assert words(" ".join(piece.text for piece in found)) == words(text)
    assert max(len(piece.text) for piece in found) <= MAX_PIECE
    assert sum(piece.text.endswith(".") for piece in found) > 0.9 * len(found)
    assert found[0].place == "line 1"
    assert found[1].place.startswith("line 1 from character ")


def test_a_word_that_fits_is_kept_whole(tmp_path: Path) -> None:
    address = "https://example.org/" + "a" * 1_100
    found = pieces_of(tmp_path / "a.txt", f"{prose(20)} {address} {prose(20)}")
    assert any(address in piece.text for piece in found)


@given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=300), max_size=40
    )
)
def test_no_piece_of_any_text_is_too_long_or_unfit_for_a_store(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text("x" + "\n".join(lines).replace("\0", ""), encoding="utf-8")
    for suffix in (".txt", ".md", ".py", ".html", ".csv"):
        named = path.rename(path.with_suffix(suffix))
        path = named
        try:
            found = list(read(named))
        except DocumentRefused:
            assert suffix == ".csv"
            continue
        assert all(piece.text.strip() and len(piece.text) <= MAX_PIECE for piece in found)
        assert not any("\0" in piece.text + piece.place for piece in found)
        assert found == list(read(named))


def test_an_empty_text_has_no_pieces(tmp_path: Path) -> None:
    assert pieces_of(tmp_path / "a.txt", "") == []
    assert pieces_of(tmp_path / "a.md", " \n\n \n") == []


# -- encodings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8", "Müller grüßt Zoë 日本"),
        ("utf-8-sig", "Müller grüßt"),
        ("utf-16", "Müller grüßt Zoë 日本"),
        ("utf-16-le", "Plain words without any mark in front of them"),
        ("utf-16-be", "Plain words without any mark in front of them"),
        ("utf-32", "Müller grüßt"),
        ("latin-1", "Die Straße nach Köln führt über Düren"),
        ("cp1252", "„Straße“ – “road” costs 5 €"),
    ],
)
def test_text_is_read_whatever_its_encoding(tmp_path: Path, encoding: str, text: str) -> None:
    (piece,) = pieces_of(tmp_path / "a.txt", text.encode(encoding))
    assert piece.text == text


def test_another_script_is_recognised(tmp_path: Path) -> None:
    pytest.importorskip("charset_normalizer")
    text = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 5
    (piece,) = pieces_of(tmp_path / "a.txt", text.encode("cp1251"))
    assert piece.text == text.strip()


def test_a_page_says_its_own_encoding(tmp_path: Path) -> None:
    page = '<meta charset="koi8-r"><p>Привет, мир</p>'
    (piece,) = pieces_of(tmp_path / "a.html", page.encode("koi8-r"))
    assert piece.text == "Привет, мир"
    unpacking = '<meta charset="zip"><p>Grüße</p>'.encode("latin-1")
    (piece,) = pieces_of(tmp_path / "b.html", unpacking)
    assert piece.text == "Grüße"


# -- Markdown --------------------------------------------------------------------------------------


def test_markdown_is_cut_by_headings_which_stand_in_front(tmp_path: Path) -> None:
    text = (
        "---\ntitle: x\n---\nIntro.\n\n# Birds\n\nAll of them.\n\n## Owls\nBy night.\n\n"
        "```sh\n# no heading\n```\n\n## Swifts\n\nBy day.\n\nFish\n====\n\nWet.\n\n## Bare\n"
    )
    found = pieces_of(tmp_path / "a.md", text)
    assert [(piece.place, piece.text) for piece in found] == [
        ("lines 2-4", "title: x\n\nIntro."),
        ("# Birds (line 8)", "# Birds\n\nAll of them."),
        (
            "# Birds > ## Owls (lines 11-15)",
            "# Birds > ## Owls\n\nBy night.\n\n```sh\n# no heading\n```",
        ),
        ("# Birds > ## Swifts (line 19)", "# Birds > ## Swifts\n\nBy day."),
        ("# Fish (line 24)", "# Fish\n\nWet."),
        ("# Fish > ## Bare (line 26)", "# Fish > ## Bare"),
    ]


def test_a_long_section_repeats_its_heading(tmp_path: Path) -> None:
    text = "# Tales\n\n" + "\n\n".join(prose(4, start) for start in range(0, 80, 4))
    found = pieces_of(tmp_path / "a.md", text)
    assert len(found) > 5
    assert all(piece.text.startswith("# Tales\n\nThe quick") for piece in found)


# -- HTML ------------------------------------------------------------------------------------------


def test_html_is_read_as_people_see_it(tmp_path: Path) -> None:
    page = (
        "<!doctype html><html><head><title>Birds &amp; more</title><style>p > b {x}</style>"
        "<script>if (a < b) { document.write('<p>no</p>') }</script></head>"
        "<body><!-- <p>hidden</p> --><h1>Owls</h1><p>They fly<br>by\n night, 1 < 2 &eacute;"
        "<template><p>never</p></template></p><h2 title='a > b'>Food</h2>"
        "<ul><li>Mice<li>Voles</ul><table><tr><th>Kind<th>Size<tr><td>Barn<td>35</table>"
        "<pre>  one\n    two</pre>"
    )
    found = pieces_of(tmp_path / "a.html", page)
    assert [piece.text for piece in found] == [
        "# Owls\n\nThey fly\nby night, 1 < 2 é",
        "# Owls > ## Food\n\n- Mice\n- Voles\n\nKind | Size\n\nBarn | 35\n\n  one\n    two",
    ]
    assert found[1].place == "# Owls > ## Food (paragraphs 2-6)"


@pytest.mark.parametrize(
    "hostile",
    [
        "<div>" * 300_000 + "deep",
        "<!--" * 300_000,
        "<a " * 300_000,
        "<![CDATA[" * 100_000,
        '<a b="' * 200_000,
        "<script>" + "</scrip" * 200_000,
        "&" * 500_000,
        "</" * 500_000,
        "<h1>" * 300_000,
        "<br>" * 300_000,
        "<svg>" * 300_000,
        "<td>x" * 300_000,
        "<?" * 500_000,
        "a<b>" * 300_000 + " x",
    ],
    ids=lambda text: text[:12],
)
def test_hostile_html_takes_linear_time(tmp_path: Path, hostile: str) -> None:
    # Its own time, so that what else the machine does is not counted.
    before = process_time()
    # Some are one endless word, which is refused.
    with contextlib.suppress(DocumentRefused):
        found = pieces_of(tmp_path / "a.html", hostile)
        assert all(len(piece.text) <= MAX_PIECE for piece in found)
    assert process_time() - before < 10


# -- code ------------------------------------------------------------------------------------------


def test_code_is_cut_between_functions_with_the_class_in_front(tmp_path: Path) -> None:
    body = "".join(f"        value_{number} = compute({number})\n" for number in range(12))
    methods = "".join(
        f"\n    @cached\n    def method_{number}(self) -> int:\n{body}" for number in range(6)
    )
    text = f"import os\n\n\nclass Owl:\n    name = 1\n{methods}\n\ndef last():\n    return 1\n"
    found = pieces_of(tmp_path / "a.py", text)
    inside = [piece for piece in found if piece.text.startswith("class Owl\n\n")]
    assert len(inside) >= 2
    assert all(
        piece.text.removeprefix("class Owl\n\n").startswith("    @cached") for piece in inside
    )
    assert all(len(piece.text) <= MAX_PIECE for piece in found)
    body_lines = [line for piece in found for line in piece.text.splitlines() if line.strip()]
    kept = [line for line in body_lines if line != "class Owl"]
    assert kept == [line for line in text.splitlines() if line.strip()]


def test_other_languages_are_cut_at_the_margin(tmp_path: Path) -> None:
    one = "func Name{}() int {{\n" + "\tx := 1\n" * 90 + "\treturn x\n}}\n\n"
    found = pieces_of(tmp_path / "a.go", "".join(one.format(number) for number in range(5)))
    assert [piece.text.splitlines()[0] for piece in found] == [
        f"func Name{number}() int {{" for number in range(5)
    ]
    assert found[1].place == "lines 95-187"


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("suffix", "mark"), [(".csv", ","), (".csv", ";"), (".tsv", "\t")])
def test_rows_have_the_header_in_front(tmp_path: Path, suffix: str, mark: str) -> None:
    rows = [
        ["name", "age"],
        *([f"Anna {number}", f'"{number}{mark} or so"'] for number in range(200)),
    ]
    found = pieces_of(tmp_path / f"a{suffix}", "\n".join(mark.join(row) for row in rows))
    shown = mark.strip()
    assert len(found) > 3
    assert all(piece.text.startswith("name | age\n\nAnna ") for piece in found)
    assert found[0].text.splitlines()[2] == f"Anna 0 | 0{shown} or so"
    assert found[0].place.startswith("rows 1-")
    assert found[-1].place.endswith("-200")


def test_wide_rows_name_each_value(tmp_path: Path) -> None:
    header = ",".join(f"column {number} of many" for number in range(60))
    row = ",".join(f"value {number}" for number in range(60))
    found = pieces_of(tmp_path / "a.csv", f"{header}\n{row}\n")
    assert "column 59 of many: value 59" in found[-1].text
    assert {piece.place for piece in found} == {"row 1"}


def test_a_quote_that_is_never_closed_is_refused(tmp_path: Path) -> None:
    told = refusal(tmp_path / "a.csv", 'a,b\n1,"' + "x\n" * 200_000)
    assert "is a quote never closed?" in told
    assert "too many for a row" in refusal(tmp_path / "b.csv", "a,b\n" + "x," * 600_000)


# -- JSON ------------------------------------------------------------------------------------------


def test_json_items_that_fit_stay_whole(tmp_path: Path) -> None:
    items = [{"name": f"Anna {number}", "likes": ["tea", "é"]} for number in range(100)]
    found = pieces_of(tmp_path / "a.json", json.dumps({"items": items, "n": 1, "empty": {}}))
    shown = [line for piece in found for line in piece.text.splitlines() if line.startswith("{")]
    assert [json.loads(line) for line in shown[:100]] == items
    assert found[0].text.startswith('$.items\n\n{"name": "Anna 0", "likes": ["tea", "é"]}')
    assert found[0].place.startswith("$.items[0] to $.items[")
    assert found[-1].text == "$\n\nn: 1\nempty: {}"


def test_long_members_are_parted_with_their_path(tmp_path: Path) -> None:
    value = {"a b": {"story": prose(60), "n": [1.5e33, None, True]}, "data": "QUJD" * 100_000}
    found = pieces_of(tmp_path / "a.json", json.dumps(value, indent=1))
    assert found[0].place == "$['a b'].story"
    assert words(prose(60))[-1] in found[-3].text
    assert found[-2].text.endswith("n: [1.5e+33, null, true]")
    assert found[-1].place == "$.data"
    assert re.fullmatch(r"\$\n\n(data: \([\d,]+ characters of data\)\s*)+", found[-1].text)


def test_json_lines_are_counted(tmp_path: Path) -> None:
    lines = [json.dumps({"n": number, "text": "x " * 30}) for number in range(50)]
    found = pieces_of(tmp_path / "a.jsonl", "\n".join([*lines, json.dumps({"big": prose(40)})]))
    assert found[0].place.startswith("line 1 to line ")
    assert found[-1].place == "line 51: $.big"
    assert found[-1].text.startswith("line 51\n\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "nested more than 500 deep"),
        ('{"a":' * 100_000, "nested more than 500 deep"),
        ('{"a": 1', "ends in the middle"),
        ('{"a": 1,}', "needs a name"),
        ('{"a" 1}', "a colon is missing after 'a'"),
        ("[1 2]", "a comma or an end is missing"),
        ("[1,]", "']' is not a JSON value"),
        ("[1]]", "more after its end"),
        ("{} {}", "more after its end"),
        ("[1}", "a comma or an end is missing"),
        ("nope", "'nope' is not a JSON value"),
        ('["\\x"]', "means nothing"),
        ('["' + "x " * 100_000, "never closed"),
        ('\n\n["abc', "never closed"),
        ("[1,\n2,\n?]", "(line 3)"),
    ],
    ids=lambda text: text[:16],
)
def test_broken_json_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    assert why in refusal(tmp_path / "a.json", text)


def test_escapes_that_no_store_keeps_are_taken_out(tmp_path: Path) -> None:
    (piece,) = pieces_of(tmp_path / "a.json", r'{"a": "one\u0000two \ud800 \ud83d\ude00"}')
    piece.text.encode()
    assert "\0" not in piece.text
    assert "😀" in piece.text


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=200)
        | st.floats(allow_nan=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=20), inner),
        max_leaves=60,
    )
)
def test_any_json_is_read_and_bounded(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    found = pieces_of(path, json.dumps(value))
    assert all(len(piece.text) <= MAX_PIECE for piece in found)
    assert found or value in ("", None) or not str(value).strip()


# -- PDF -------------------------------------------------------------------------------------------


def test_pdf_pages_are_named(tmp_path: Path) -> None:
    pages = [
        [f"Page {page} line {line} says (something) here." for line in range(30)]
        for page in range(1, 6)
    ]
    path = make_pdf(tmp_path / "a.pdf", pages)
    found = list(read(path))
    assert words(" ".join(piece.text for piece in found)) == words(
        " ".join(line for page in pages for line in page)
    )
    assert all(len(piece.text) <= MAX_PIECE for piece in found)
    assert found[0].place == "page 1"
    assert found[-1].place == "page 5"
    assert list(read(path)) == found
    assert list(read(path.rename(tmp_path / "a.txt"))) == found


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is empty"),
        (b"%PDF-1.7\n", "damaged"),
        (b"%PDF-1.4\n" + bytes(range(256)) * 400, "damaged"),
        (b"no PDF at all", "damaged"),
    ],
    ids=["empty", "header", "noise", "other"],
)
def test_broken_pdfs_are_refused(tmp_path: Path, content: bytes, why: str) -> None:
    assert why in refusal(tmp_path / "a.pdf", content)


def test_pdfs_that_are_cut_or_changed_anywhere_never_break_the_reader(tmp_path: Path) -> None:
    whole = make_pdf(tmp_path / "a.pdf", [["Hello there."] * 20] * 3).read_bytes()
    chance = random.Random(4)
    for number in range(12):
        damaged = bytearray(whole[: chance.randrange(len(whole))] if number % 2 else whole)
        for _ in range(20):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        (tmp_path / "b.pdf").write_bytes(damaged)
        with contextlib.suppress(DocumentRefused):
            assert all("\0" not in piece.text for piece in read(tmp_path / "b.pdf"))


def test_protected_and_scanned_pdfs_say_what_to_do(tmp_path: Path) -> None:
    locked = make_pdf(tmp_path / "a.pdf", [["Secret."]], encrypted=True)
    assert "protected by a password" in refusal(locked)
    assert "text recognised first" in refusal(make_pdf(tmp_path / "b.pdf", [[], []]))


def test_a_pdf_that_takes_too_long_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent.py"
    silent.write_text("import signal\nsignal.pause()\n")
    monkeypatch.setattr(child_reader, "CHILD", silent)
    monkeypatch.setattr(child_reader, "PATIENCE", 0.2)
    assert "takes more than 0 seconds" in refusal(make_pdf(tmp_path / "a.pdf", [["Hello."]]))


def test_without_the_library_a_pdf_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_pdf(tmp_path / "a.pdf", [["Hello."]])
    monkeypatch.setattr(child_reader, "find_spec", dict[str, str]().get)
    assert "pip install 'asterism[documents]'" in refusal(path)
    assert "pip install 'asterism[documents]'" in refusal(tmp_path / "a.xlsx", b"PK")


def test_leaving_a_pdf_early_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self)

    monkeypatch.setattr(child_reader.subprocess, "Popen", Recorded)
    reading = read(make_pdf(tmp_path / "a.pdf", [[SENTENCE] * 40] * 500))
    assert len(list(islice(reading, 2))) == 2
    assert started[0].poll() is None
    reading.close()
    assert started[0].poll() is not None


# -- DOCX ------------------------------------------------------------------------------------------


def test_docx_is_cut_by_headings(tmp_path: Path) -> None:
    body = (
        paragraph("Birds", "berschrift1")
        + paragraph("All of them & more.")
        + paragraph("Owls", "berschrift2")
        + "<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>one</w:t></w:r></w:p>"
        + "<w:p><w:r><w:t>left</w:t><w:br/><w:t>right</w:t><w:delText>gone</w:delText></w:r></w:p>"
        + table(["Kind", "Size"], ["Barn", "35"])
    )
    found = list(read(make_docx(tmp_path / "a.docx", body)))
    assert [(piece.place, piece.text) for piece in found] == [
        ("# Birds (paragraph 2)", "# Birds\n\nAll of them & more."),
        (
            "# Birds > ## Owls (paragraphs 4-7)",
            "# Birds > ## Owls\n\n- one\n\nleft\nright\nKind | Size\nBarn | 35",
        ),
    ]


def zipped(path: Path, name: str, content: bytes) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)


ENTITIES = '<!DOCTYPE lol [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">]>'
HOSTILE_DOCX: dict[str, Callable[[Path], object]] = {
    "is not a Word document that": lambda path: path.write_bytes(b"no zip"),
    "is not a Word document": lambda path: path.write_bytes(b""),
    "password": lambda path: path.write_bytes(b"\xd0\xcf\x11\xe0" + bytes(600)),
    "no text of the form": lambda path: zipped(path, "other.xml", b"<a/>"),
    "broken XML": lambda path: zipped(path, "word/document.xml", b"<a><b></a>"),
    "nested more than 1000 deep": lambda path: make_docx(path, "<w:p>" * 5_000),
    "one paragraph or row": lambda path: make_docx(path, paragraph("a " * 600_000)),
    "XML entities": lambda path: make_docx(path, paragraph("x"), before=ENTITIES),
    "XML without end": lambda path: zipped(
        path, "word/document.xml", b"<a b='" + b"x" * 20_000_000 + b"'/>"
    ),
}


@pytest.mark.parametrize("why", HOSTILE_DOCX)
def test_hostile_docx_is_refused(tmp_path: Path, why: str) -> None:
    path = tmp_path / "a.docx"
    HOSTILE_DOCX[why](path)
    assert why in refusal(path)


def test_a_docx_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.docx"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("word/document.xml", "w", force_zip64=True) as inside,
    ):
        inside.write(b"<a>")
        for _ in range(270):
            inside.write(b"<b></b>" + b" " * (1 << 20))
    assert path.stat().st_size < 3_000_000
    assert "more than 256 MB" in refusal(path)


@pytest.mark.parametrize(("row", "filler"), [("<w:tr>", "<w:tc/>"), ("<w:p>", "<w:br/>")])
def test_a_docx_of_empty_cells_or_breaks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, filler: str
) -> None:
    monkeypatch.setattr(office, "_MAX_PARAGRAPH", 1_000)
    assert "one paragraph or row" in refusal(make_docx(tmp_path / "a.docx", row + filler * 1_001))


def test_a_docx_made_by_a_library_is_read(tmp_path: Path) -> None:
    document: Any = pytest.importorskip("docx").Document()
    document.add_heading("Birds", 1)
    document.add_paragraph("All of them.")
    document.add_heading("Owls", 2)
    document.add_paragraph("By night.", style="List Bullet")
    rows = document.add_table(2, 2).rows
    for row, texts in zip(rows, (("Kind", "Size"), ("Barn", "35")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    document.save(tmp_path / "a.docx")
    found = list(read(tmp_path / "a.docx"))
    assert [piece.text for piece in found] == [
        "# Birds\n\nAll of them.",
        "# Birds > ## Owls\n\nBy night.\nKind | Size\nBarn | 35",
    ]


def test_text_around_and_inside_of_a_text_box_is_kept(tmp_path: Path) -> None:
    box = f"<w:txbxContent>{paragraph('Inside.')}</w:txbxContent>"
    body = f"<w:p><w:r><w:t>Before</w:t>{box}</w:r><w:r><w:t> and after.</w:t></w:r></w:p>"
    (piece,) = read(make_docx(tmp_path / "a.docx", body))
    assert piece.text == "Inside.\n\nBefore and after."


# -- PPTX ------------------------------------------------------------------------------------------


def test_slides_have_their_titles_tables_and_notes(tmp_path: Path) -> None:
    deck: Any = pytest.importorskip("pptx").Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[1])
    slide.shapes.title.text = "Owls"
    slide.placeholders[1].text = "By night.\nVery quiet."
    slide.notes_slide.notes_text_frame.text = "Show the film."
    slide = deck.slides.add_slide(deck.slide_layouts[6])
    cells = slide.shapes.add_table(2, 2, 0, 0, 99, 99).table
    for row, texts in enumerate((("Kind", "Size"), ("Barn", "35"))):
        for column, text in enumerate(texts):
            cells.cell(row, column).text = text
    deck.save(tmp_path / "a.pptx")
    found = list(read(tmp_path / "a.pptx"))
    assert [(piece.place, piece.text) for piece in found] == [
        ("# Owls (slide 1)", "# Owls\n\nBy night.\nVery quiet.\n\nNotes: Show the film."),
        ("# Slide 2 (slide 2)", "# Slide 2\n\nKind | Size\nBarn | 35"),
    ]


def test_hostile_presentations_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pptx"
    assert "is not a PowerPoint presentation that" in refusal(path, b"no zip")
    zipped(path, "other.xml", b"<a/>")
    assert "no text of the form that PowerPoint writes" in refusal(path)
    zipped(path, "ppt/presentation.xml", f"{ENTITIES}<a>&b;</a>".encode())
    assert "XML entities" in refusal(path)
    relations = b'<a><Relationship Id="r1" Type="t/slide" Target="slides/s.xml"/></a>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ppt/presentation.xml", b'<a xmlns:r="r"><sldId r:id="r1"/></a>')
        archive.writestr("ppt/_rels/presentation.xml.rels", relations)
        archive.writestr("ppt/slides/s.xml", b"<a>" + b" " * (17 << 20))
    assert "more than 16 MB" in refusal(path)


# -- EPUB ------------------------------------------------------------------------------------------


def test_a_book_is_read_chapter_by_chapter(tmp_path: Path) -> None:
    book = make_epub(
        tmp_path / "a.epub",
        {
            "one": '<?xml version="1.0"?><html><head><title/><script src="x.js"/></head>'
            "<body><h1>Owls</h1><p>By night &amp; quiet.</p></body></html>",
            "two": "<html><body><h1>Swifts</h1><p>By day.</p></body></html>",
        },
    )
    assert [(piece.place, piece.text) for piece in read(book)] == [
        ("# Owls (paragraph 1)", "# Owls\n\nBy night & quiet."),
        ("# Swifts (paragraph 2)", "# Swifts\n\nBy day."),
    ]


def test_books_that_cannot_be_read_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.epub"
    assert "is not an EPUB book" in refusal(make_epub(path, {}))
    locked = '<e><CipherReference URI="OPS/text/one.xhtml"/></e>'
    assert "protected against copying" in refusal(
        make_epub(path, {"one": "<p>x</p>"}, encryption=locked)
    )
    chapters = {f"c{number}": "<p>x</p>" + " " * 200_000 for number in range(6)}
    assert len(list(read(make_epub(path, chapters)))) == 1
    # The limit is one for all chapters together.
    monkeypatch.setattr(office, "_MAX_UNPACKED", 1 << 20)
    assert "more than 1 MB" in refusal(make_epub(path, chapters))


# -- spreadsheets ----------------------------------------------------------------------------------


def test_sheets_have_their_names_and_headers_in_front(tmp_path: Path) -> None:
    workbook: Any = pytest.importorskip("openpyxl").Workbook()
    owls = workbook.active
    owls.title = "Owls"
    owls["B3"], owls["C3"], owls["D3"] = "Kind", "Size", "Seen"
    for number in range(4, 100):
        owls[f"B{number}"], owls[f"C{number}"] = f"Owl {number}", number
        owls[f"D{number}"] = date(2026, 5, 3)
    workbook.create_sheet("Empty")
    workbook.create_sheet("Alone").append(["Only", "a header"])
    hidden = workbook.create_sheet("Hidden")
    hidden.append(["Secret"])
    hidden.sheet_state = "hidden"
    workbook.save(tmp_path / "a.xlsx")
    found = list(read(tmp_path / "a.xlsx"))
    assert all(piece.text.startswith("Owls\n\nKind | Size | Seen\n\nOwl ") for piece in found[:-1])
    assert found[0].text.splitlines()[4] == "Owl 4 | 4 | 2026-05-03"
    assert found[0].place.startswith("Owls, rows 4-")
    assert found[-2].place.endswith("-99")
    assert (found[-1].place, found[-1].text) == ("Alone, row 1", "Alone\n\nOnly | a header")


def test_old_and_open_spreadsheets_are_read(tmp_path: Path) -> None:
    old = Path(__file__).parents[1] / "data/birds.xls"
    expected = "Birds\n\nKind | Size\n\nBarn owl | 35\nSwift | 17.5"
    assert [(piece.place, piece.text) for piece in read(old)] == [("Birds, rows 2-3", expected)]
    rows = "".join(
        f"<table:table-row>{cells}</table:table-row>"
        for cells in (
            "<table:table-cell/>",
            ods_cell("Kind") + ods_cell("Size"),
            ods_cell("Barn") + ods_cell("35"),
        )
    )
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("META-INF/manifest.xml", "<manifest/>")
        archive.writestr(
            "content.xml",
            '<office:document-content xmlns:office="o" xmlns:table="t" xmlns:text="x">'
            '<office:body><office:spreadsheet><table:table table:name="Owls">'
            f"{rows}</table:table></office:spreadsheet></office:body></office:document-content>",
        )
    (piece,) = read(tmp_path / "a.ods")
    assert (piece.place, piece.text) == ("Owls, row 3", "Owls\n\nKind | Size\n\nBarn | 35")


def ods_cell(text: str) -> str:
    return (
        f'<table:table-cell office:value-type="string"><text:p>{text}</text:p></table:table-cell>'
    )


def test_hostile_spreadsheets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    assert "is empty" in refusal(path, b"")
    assert "is not a spreadsheet that can be read" in refusal(path, b"no zip")
    workbook: Any = pytest.importorskip("openpyxl").Workbook()
    workbook.active["A1"], workbook.active["XFD1048576"] = "first", "last"
    workbook.save(path)
    assert "needs too much memory" in refusal(path)


# -- mail ------------------------------------------------------------------------------------------


def message(subject: str, text: str = "") -> EmailMessage:
    made = EmailMessage()
    made["From"], made["To"] = "Anna <anna@example.org>", "ben@example.org"
    made["Subject"] = subject
    if text:
        made.set_content(text)
    return made


def test_mail_is_read_with_what_was_forwarded(tmp_path: Path) -> None:
    whole = message("Größe der Eulen", "Dear Ben,\n\nsee below.\n")
    whole.add_alternative("<p>The same <b>again</b></p>", subtype="html")
    inner = message("Owls")
    inner.set_content("<h1>Sizes</h1><p>Barn: 35</p>", subtype="html")
    whole.add_attachment(inner)
    whole.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="owls.pdf")
    (tmp_path / "a.eml").write_bytes(bytes(whole))
    headers = "From: Anna <anna@example.org>\nTo: ben@example.org"
    assert [piece.text for piece in read(tmp_path / "a.eml")] == [
        f"# Größe der Eulen\n\n{headers}\n\nDear Ben,\n\nsee below.",
        f"# Größe der Eulen > ## Owls\n\n{headers}",
        "# Größe der Eulen > ## Owls > ### Sizes\n\nBarn: 35\n\nAttachment: owls.pdf",
    ]


def test_mail_of_an_unknown_encoding_is_read_and_what_is_no_mail_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.eml"
    start = "From: a@b.c\nSubject: x\nContent-Type: "
    path.write_text(f"{start}text/plain; charset=nope\n\nHello there.\n")
    (piece,) = read(path)
    assert piece.text == "# x\n\nFrom: a@b.c\n\nHello there."
    assert "is not a mail message" in refusal(path, "Just some text.\n")
    parts = "".join(
        f"--b{level}\nContent-Type: multipart/mixed; boundary=b{level + 1}\n\n"
        for level in range(1_500)
    )
    assert "is not a mail message" in refusal(
        path, f"{start}multipart/mixed; boundary=b0\n\n{parts}"
    )


@pytest.mark.parametrize("suffix", [".docx", ".pptx", ".epub", ".xlsx", ".eml"])
def test_files_that_are_cut_or_changed_anywhere_never_break_a_reader(
    tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"a{suffix}"
    match suffix:
        case ".docx":
            make_docx(path, paragraph("Hello there.") * 30)
        case ".pptx":
            pytest.importorskip("pptx").Presentation().save(path)
        case ".epub":
            make_epub(path, {"one": "<p>Hello there.</p>" * 30})
        case ".xlsx":
            workbook: Any = pytest.importorskip("openpyxl").Workbook()
            workbook.active.append(["Hello", "there"])
            workbook.save(path)
        case _:
            path.write_bytes(bytes(message("Hello", "there. " * 99)))
    whole = path.read_bytes()
    chance = random.Random(4)
    for number in range(8):
        damaged = bytearray(whole[: chance.randrange(1, len(whole))] if number % 2 else whole)
        for _ in range(20):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        path.write_bytes(damaged)
        with contextlib.suppress(DocumentRefused):
            assert all("\0" not in piece.text for piece in read(path))


# -- what is no document ---------------------------------------------------------------------------


def test_binary_files_are_refused(tmp_path: Path) -> None:
    assert "is binary" in refusal(tmp_path / "a.txt", bytes(range(256)) * 100)
    assert "is binary" in refusal(tmp_path / "b.md", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    assert "data rather than text" in refusal(tmp_path / "c.txt", "x" * 5_000_000)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    assert "not a regular file" in refusal(tmp_path / "pipe.txt")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    assert "cannot be opened" in refusal(tmp_path / "loop.txt")
    assert "is not there any more" in refusal(tmp_path / "gone.txt")
    (tmp_path / "folder.txt").mkdir()
    refusal(tmp_path / "folder.txt")


def test_a_huge_single_line_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    line = (" ".join("word" + letter for letter in string.ascii_letters) + " ") * 3_000
    with path.open("w", encoding="utf-8") as file:
        for _ in range(20):
            file.write(line)
    size, count = path.stat().st_size, 0
    tracemalloc.start()
    try:
        for piece in read(path):
            count += 1
            assert len(piece.text) <= MAX_PIECE
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 15_000_000
    assert count > size / 1_600
    assert peak < 4_000_000


def test_names_say_what_can_be_read() -> None:
    assert is_known(Path("a/b.PDF"))
    assert is_known(Path("README"))
    assert not is_known(Path("a.png"))
    assert not is_known(Path("a.doc"))
    for suffix in ("docx", "pptx", "epub", "xlsx", "xlsm", "xls", "ods", "eml"):
        assert is_known(Path(f"a.{suffix}"))
