"""Readers: documents of many formats as pieces of text, in bounded memory whatever their size."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from pathlib import Path

from asterism.sources.readers.decode import open_regular
from asterism.sources.readers.piece import DocumentRefused, Piece

__all__ = ["DocumentRefused", "Piece", "is_known", "read"]

_CODE = (
    "bash bat c cc cfg clj cljs conf cpp cs css cxx dart diff dockerfile el elm env erl ex exs fs"
    " fsx gleam go gradle graphql groovy h hcl hh hpp hrl hs ini ipp java jl js json5 jsonc jsx"
    " kt kts less lisp lua m make mjs ml mli mm nim nix patch php pl pm properties proto ps1 py pyi"
    " r rb rkt rs sass scala scm scss sh sol sql svelte swift tcl tf toml ts tsx v vb vhd vim vue"
    " wat xml yaml yml zig zsh"
)
_SUFFIXES = {
    **{f".{suffix}": "code" for suffix in _CODE.split()},
    **dict.fromkeys((".csv", ".tsv", ".tab"), "csv"),
    ".docx": "docx",
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".json", ".geojson", ".ipynb", ".webmanifest"), "json"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".md", ".markdown", ".mdx", ".mkd"), "markdown"),
    ".pdf": "pdf",
    **dict.fromkeys((".txt", ".text", ".log", ".rst", ".adoc", ".org", ".tex", ".srt"), "text"),
}
_NAMES = {
    **dict.fromkeys(("makefile", "dockerfile", "justfile", "gemfile", "rakefile"), "code"),
    **dict.fromkeys(("readme", "license", "copying", "changelog", "notice", "authors"), "text"),
}
"""Files that have no suffix."""


def is_known(path: Path) -> bool:
    """Tell whether a file's name says that it can be read."""
    return _format(path) is not None


def read(path: Path) -> Generator[Piece, None, None]:
    """Yield the pieces of a document, always the same ones for the same bytes.

    Raises `DocumentRefused`, possibly after some pieces, if it cannot be read to its end.
    """
    with open_regular(path) as file:
        start = file.read(5)
    # A name may be wrong; these first bytes are not.
    form = "pdf" if start == b"%PDF-" else _format(path) or "text"
    module, function = ("json", "read_lines") if form == "jsonl" else (form, "read")
    reader: Callable[[Path], Iterator[Piece]] = getattr(
        import_module(f"asterism.sources.readers.{module}"), function
    )
    yield from reader(path)


def _format(path: Path) -> str | None:
    return _SUFFIXES.get(path.suffix.lower()) or _NAMES.get(path.name.lower())
