"""Readers: which one a file needs, by its name and its first bytes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from pathlib import Path

from asterism.sources.pieces import DocumentPiece, DocumentRefused, is_unicode, open_regular

__all__ = ["DocumentPiece", "DocumentRefused", "is_known", "looks_readable", "read"]

_CODE = (
    "bash bat c cc cfg clj cljs conf cpp cs css cxx dart diff dockerfile el elm env erl ex exs fs"
    " fsx gleam go gradle graphql groovy h hcl hh hpp hrl hs ini ipp java jl js json5 jsonc jsx"
    " kt kts less lisp lua m make mjs ml mli mm nim nix patch php pl pm properties proto ps1 py pyi"
    " r rb rkt rs sass scala scm scss sh sol sql svelte swift tcl tf toml ts tsx v vb vhd vim vue"
    " wat xml yaml yml zig zsh"
)
_TEXT_READER = "plain:read_text"
_CODE_READER = "plain:read_code"
_PDF_READER = "child_reader:read_pdf"
_PDF_START = b"%PDF-"
_SUFFIXES = {
    _TEXT_READER: "txt text log rst adoc org tex srt",
    "plain:read_markdown": "md markdown mdx mkd",
    _CODE_READER: _CODE,
    "plain:read_csv": "csv tsv tab",
    "plain:read_json": "json geojson ipynb webmanifest",
    "plain:read_json_lines": "jsonl ndjson",
    "html:read_html": "html htm xhtml",
    "office:read_docx": "docx",
    "office:read_pptx": "pptx",
    "office:read_epub": "epub",
    _PDF_READER: "pdf",
    "child_reader:read_sheets": "xlsx xlsm xls ods",
    "child_reader:read_mail": "eml",
}
"""Readers by module and function, each imported when a file needs it."""
_BY_SUFFIX = {
    f".{suffix}": reader for reader, suffixes in _SUFFIXES.items() for suffix in suffixes.split()
}
_BY_NAME = {
    **dict.fromkeys(("makefile", "dockerfile", "justfile", "gemfile", "rakefile"), _CODE_READER),
    **dict.fromkeys(
        ("readme", "license", "copying", "changelog", "notice", "authors"), _TEXT_READER
    ),
}
"""Files that have no suffix."""


def is_known(path: Path) -> bool:
    """Tell whether a file's name says that it can be read."""
    return _reader(path) is not None


def looks_readable(path: Path) -> bool:
    """Tell whether a file whose name says nothing can be read: as text in Unicode, or a PDF."""
    with open_regular(path) as file:
        return file.read(len(_PDF_START)) == _PDF_START or is_unicode(file)


def read(path: Path) -> Generator[DocumentPiece, None, None]:
    """Yield the pieces of a document, always the same ones for the same bytes.

    Raises `DocumentRefused`, possibly after some pieces, if it cannot be read to its end.
    """
    with open_regular(path) as file:
        start = file.read(len(_PDF_START))
    # A name may be wrong; these first bytes are not.
    name = _PDF_READER if start == _PDF_START else _reader(path) or _TEXT_READER
    module, _, function = name.partition(":")
    reader: Callable[[Path], Iterator[DocumentPiece]] = getattr(
        import_module(f"asterism.sources.{module}"), function
    )
    yield from reader(path)


def _reader(path: Path) -> str | None:
    return _BY_SUFFIX.get(path.suffix.lower()) or _BY_NAME.get(path.name.lower())
