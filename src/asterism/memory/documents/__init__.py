"""The content of blocks: schemas, edits, lines and rendering, without a store."""

from __future__ import annotations

from asterism.memory.documents.document import BlockContent, DocumentEdit
from asterism.memory.documents.rendering import render
from asterism.memory.documents.schemas import TEMPLATES, read_schema, schema_wire

__all__ = ["TEMPLATES", "BlockContent", "DocumentEdit", "read_schema", "render", "schema_wire"]
