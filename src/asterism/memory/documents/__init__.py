"""Blocks as Loro documents: their schemas, edits, lines, history and rendering, without a store."""

from __future__ import annotations

from asterism.memory.documents.document import Document, DocumentEdit
from asterism.memory.documents.history import History, fold
from asterism.memory.documents.rendering import render
from asterism.memory.documents.schemas import TEMPLATES, read_schema, schema_wire

__all__ = [
    "TEMPLATES",
    "Document",
    "DocumentEdit",
    "History",
    "fold",
    "read_schema",
    "render",
    "schema_wire",
]
