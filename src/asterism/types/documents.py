"""Documents: folders that are read into an archive, and what became of each file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from asterism.types.agents import PUBLIC, Audience

STAGED = 0
"""When passages were retracted whose document is still being read: they have never held."""


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """A folder of documents, whose passages agents that it is attached to find."""

    id: str
    name: str
    path: str
    include: tuple[str, ...] = ()
    """Globs such as `notes/**/*.md`; none: every file of a format that can be read."""
    exclude: tuple[str, ...] = ()
    audience: Audience = PUBLIC
    created_at: int = 0
    synced_at: int | None = None
    paused: bool = False
    """Whether it rests: what was read stays, and nothing is read anew."""


class DocumentState(StrEnum):
    """What became of a document."""

    READING = "reading"
    """Some of its passages are stored, and nobody sees them yet."""
    READ = "read"
    REFUSED = "refused"
    """It cannot be read; nothing of it is stored."""


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A file of a source."""

    source_id: str
    path: str
    """Within the source, with `/` between folders."""
    digest: str
    """SHA-256 of the file that was read; empty if it has to be tried again in any case."""
    size: int
    modified: int
    """When the file was changed last, 0 if that was just before it was read."""
    state: DocumentState
    passages: int = 0
    """How many are stored so far."""
    error: str | None = None
    read_at: int | None = None
