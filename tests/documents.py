"""Documents for tests: PDFs, Word files and books, made from text by hand."""

import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def make_pdf(path: Path, pages: Iterable[Sequence[str]], *, encrypted: bool = False) -> Path:
    """Write a PDF whose pages have these lines."""
    bodies: list[bytes] = []
    kids: list[int] = []
    for lines in pages:
        shown = b"".join(f"({_pdf_text(line)}) Tj T*\n".encode("latin-1") for line in lines)
        packed = zlib.compress(b"BT /F1 11 Tf 14 TL 50 790 Td\n" + shown + b"ET")
        content = 4 + len(bodies)
        bodies.append(
            f"<< /Length {len(packed)} /Filter /FlateDecode >>\nstream\n".encode()
            + packed
            + b"\nendstream"
        )
        kids.append(content + 1)
        bodies.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {content} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
    listed = " ".join(f"{kid} 0 R" for kid in kids)
    head = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Count {len(kids)} /Kids [{listed}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    objects = head + bodies
    trailer = "/Root 1 0 R"
    if encrypted:
        # A standard handler whose hashes fit no password.
        zeros = "00" * 32
        objects.append(
            f"<< /Filter /Standard /V 1 /R 2 /O <{'11' * 32}> /U <{zeros}> /P -4 >>".encode()
        )
        trailer += f" /Encrypt {len(objects)} 0 R /ID [<{zeros}> <{zeros}>]"
    path.write_bytes(_assembled(objects, trailer))
    return path


def _pdf_text(line: str) -> str:
    return line.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def _assembled(objects: Sequence[bytes], trailer: str) -> bytes:
    out = bytearray(b"%PDF-1.4\n")
    places: list[int] = []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    for place in places:
        out += f"{place:010} 00000 n \n".encode()
    out += f"trailer << /Size {len(objects) + 1} {trailer} >>\nstartxref\n{start}\n%%EOF".encode()
    return bytes(out)


def paragraph(text: str, style: str = "") -> str:
    """A paragraph as Word writes it."""
    styled = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f'<w:p>{styled}<w:r><w:t xml:space="preserve">{escape(text)}</w:t></w:r></w:p>'


def table(*rows: Sequence[str]) -> str:
    """A table as Word writes it."""
    told = "".join(
        f"<w:tr>{''.join(f'<w:tc>{paragraph(cell)}</w:tc>' for cell in row)}</w:tr>" for row in rows
    )
    return f"<w:tbl>{told}</w:tbl>"


def make_docx(path: Path, body: str, *, before: str = "") -> Path:
    """Write a Word file with this XML as its body; heading styles are named in German."""
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="berschrift{level}">'
        f'<w:name w:val="heading {level}"/></w:style>'
        for level in (1, 2, 3)
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/styles.xml", f'<w:styles xmlns:w="{WORD}">{styles}</w:styles>')
        archive.writestr(
            "word/document.xml",
            f'{before}<w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>',
        )
    return path


def make_epub(path: Path, chapters: Mapping[str, str], **more: str) -> Path:
    """Write a book with these chapters, listed in the reverse order and read in this one."""
    items = "".join(
        f'<item id="{name}" href="text/{name}.xhtml" media-type="application/xhtml+xml"/>'
        for name in reversed(list(chapters))
    )
    order = "".join(f'<itemref idref="{name}"/>' for name in chapters)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/epub+zip")
        archive.writestr(
            "META-INF/container.xml",
            '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
            '<rootfile full-path="OPS/book.opf"/></rootfiles></container>',
        )
        archive.writestr(
            "OPS/book.opf",
            f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest>'
            f"<spine>{order}</spine></package>",
        )
        for name, text in chapters.items():
            archive.writestr(f"OPS/text/{name}.xhtml", text)
        for name, text in more.items():
            archive.writestr(f"META-INF/{name}.xml", text)
    return path


def make_documents(place: Path) -> dict[str, Path]:
    """Write a spreadsheet, slides, a book and a mail, each with a part that is not read."""
    workbook: Any = pytest.importorskip("openpyxl").Workbook()
    for row in (["item", "price"], ["lamp", 42]):
        workbook.active.append(row)
    hidden = workbook.create_sheet("Hidden")
    hidden.append(["hiddenword"])
    hidden.sheet_state = "hidden"
    workbook.save(place / "costs.xlsx")
    deck: Any = pytest.importorskip("pptx").Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[0])
    slide.shapes.title.text = "Plan for May"
    slide.notes_slide.notes_text_frame.text = "Mention the garden."
    deck.save(place / "plan.pptx")
    mail = EmailMessage()
    mail["Subject"] = "Rent"
    mail.set_content("The rent is due on Friday.")
    mail.add_attachment("attachedword", filename="lease.txt")
    (place / "rent.eml").write_bytes(bytes(mail))
    make_epub(place / "book.epub", {"one": "<p>Call me Ishmael, said the whale.</p>"})
    names = {"sheet": "costs.xlsx", "slides": "plan.pptx", "book": "book.epub", "mail": "rent.eml"}
    return {kind: place / name for kind, name in names.items()}
