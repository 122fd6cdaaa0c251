"""Documents: folders that are read into an archive, and what became of each file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from asterism.records import dataclass
from asterism.times import Moment, OptionalMoment
from asterism.types.agents import PUBLIC, Audience

STAGED = 0
"""The retraction time of passages whose document is still being read: they were never valid."""


@dataclass(frozen=True, slots=True)
class DocumentSource:
    """A folder of documents, or one file; agents that it is attached to can search its passages."""

    id: str
    name: str
    path: str
    include: tuple[str, ...] = ()
    """Globs such as `notes/**/*.md`; empty: every file in a supported format."""
    exclude: tuple[str, ...] = ()
    audience: Audience = PUBLIC
    created_at_ms: int = 0
    synced_at_ms: int | None = None
    paused: bool = False
    """Whether it is paused: its passages stay, and files are not read again."""
    unread: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many files of kinds that are not read were there at the latest sync, by suffix."""

    created_at = Moment()
    synced_at = OptionalMoment()


class DocumentState(StrEnum):
    """The state of a document."""

    READING = "reading"
    """Some of its passages are stored, but not visible yet."""
    READ = "read"
    REFUSED = "refused"
    """It cannot be read; none of its text is stored."""


@dataclass(frozen=True, slots=True)
class SourceDocument:
    """A file of a source."""

    source_id: str
    path: str
    """Within the source, with `/` between folders."""
    digest: str
    """SHA-256 of the file that was read; empty if it must be read again."""
    size: int
    modified: int
    """When the file was last changed; 0 if that was just before it was read."""
    state: DocumentState
    passages: int = 0
    """How many are stored so far."""
    error: str | None = None
    read_at_ms: int | None = None

    read_at = OptionalMoment()
