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
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.sources.readers import DocumentRefused, Piece, is_known, pdf, read
from asterism.sources.readers.cut import MOST
from tests.documents import make_docx, make_pdf, paragraph, table

pytestmark = pytest.mark.promise("M5")

SENTENCE = "The quick brown fox number {} jumps over the lazy dog and goes home."


def prose(count: int, start: int = 0) -> str:
    return " ".join(SENTENCE.format(number) for number in range(start, start + count))


def pieces_of(path: Path, content: str | bytes) -> list[Piece]:
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
    assert all(400 <= len(piece.text) <= MOST for piece in found)
    assert all(piece.text.endswith("home.") for piece in found)
    assert found[0].place == "lines 1-3"
    starts = [int(piece.place.split()[1].split("-")[0]) for piece in found]
    assert starts == sorted(set(starts))


def test_a_long_line_is_cut_after_sentences_and_never_in_a_word(tmp_path: Path) -> None:
    text = prose(2_000)
    found = pieces_of(tmp_path / "a.txt", text)
    assert words(" ".join(piece.text for piece in found)) == words(text)
    assert max(len(piece.text) for piece in found) <= MOST
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
        assert all(piece.text.strip() and len(piece.text) <= MOST for piece in found)
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
    before = monotonic()
    # Some are one endless word, which is refused.
    with contextlib.suppress(DocumentRefused):
        found = pieces_of(tmp_path / "a.html", hostile)
        assert all(len(piece.text) <= MOST for piece in found)
    assert monotonic() - before < 10


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
    assert all(len(piece.text) <= MOST for piece in found)
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
    assert "no row of a table" in refusal(tmp_path / "b.csv", "a,b\n" + "x," * 600_000)


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
        ("[1,]", "']' is no value"),
        ("[1]]", "more after its end"),
        ("{} {}", "more after its end"),
        ("[1}", "a comma or an end is missing"),
        ("nope", "'nope' is no JSON"),
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
    assert all(len(piece.text) <= MOST for piece in found)
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
    assert all(len(piece.text) <= MOST for piece in found)
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
    monkeypatch.setattr(pdf, "CHILD", silent)
    monkeypatch.setattr(pdf, "PATIENCE", 0.2)
    assert "takes more than 0 seconds" in refusal(make_pdf(tmp_path / "a.pdf", [["Hello."]]))


def test_without_the_library_a_pdf_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_pdf(tmp_path / "a.pdf", [["Hello."]])
    monkeypatch.setattr(pdf, "find_spec", dict[str, str]().get)
    assert "pip install 'asterism[documents]'" in refusal(path)


def test_leaving_a_pdf_early_ends_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            started.append(self)

    monkeypatch.setattr(pdf.subprocess, "Popen", Recorded)
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
            assert len(piece.text) <= MOST
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
