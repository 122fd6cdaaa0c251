"""Memory: blocks and what can be done to them, passages, where a memory comes from."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from asterism.types.agents import PUBLIC, Audience, Label, Trust

DEFAULT_LIMIT = 5_000
TOMBSTONES = "tombstones.jsonl"
"""The file of a data directory that tells what was forgotten, without saying it."""
CONSTELLATION = ""
"""The owner of blocks that belong to no single agent; every agent sees them."""


class BlockType(StrEnum):
    """When a model sees a block."""

    CORE = "core"
    """Always."""
    WORKING = "working"
    """When it is pinned, or a message refers to it."""
    ARCHIVAL = "archival"
    """Never by itself; found by search."""
    LOG = "log"
    """Like working; its newest entries."""


class Permission(StrEnum):
    """What an agent may do to a block, the strictest first."""

    READ_ONLY = "read_only"
    PARTNER = "partner"
    """Only after the owner was asked."""
    HUMAN = "human"
    """Only after a person was asked: the one it talks to, or the owner."""
    APPEND = "append"
    READ_WRITE = "read_write"
    ADMIN = "admin"


class FieldType(StrEnum):
    """What a field of a map, of a list's item or of a log's entry holds."""

    TEXT = "text"
    NUMBER = "number"
    BOOLEAN = "boolean"
    LIST = "list"
    TIMESTAMP = "timestamp"
    """A time in ISO 8601."""
    COUNTER = "counter"
    """A number that several add to at once; maps only."""


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed value."""

    name: str
    type: FieldType = FieldType.TEXT
    description: str = ""
    required: bool = False
    default: Any = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class TextSchema:
    """Plain text in lines; with a viewport, only a window of it is shown."""

    first_line: int = 1
    """Counted from 1."""
    lines: int | None = None
    """How many lines are shown; None: all."""


@dataclass(frozen=True, slots=True)
class MapSchema:
    """Named fields."""

    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class ListSchema:
    """Items: texts, or with `item` maps of fields; a boolean `done` makes it a list of tasks."""

    item: tuple[Field, ...] = ()
    max_items: int | None = None


@dataclass(frozen=True, slots=True)
class LogSchema:
    """Entries with a time, only ever added; the newest `shown` are rendered, newest first."""

    entry: tuple[Field, ...] = ()
    shown: int = 20


@dataclass(frozen=True, slots=True)
class SectionSchema:
    """A named part of a composite."""

    name: str
    schema: Schema
    description: str = ""
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class CompositeSchema:
    """Sections, each with a schema of its own other than a composite."""

    sections: tuple[SectionSchema, ...]


Schema = TextSchema | MapSchema | ListSchema | LogSchema | CompositeSchema


class OriginKind(StrEnum):
    """What a memory comes from."""

    PERSON = "person"
    """Written by a person with their own hands; `ref` is who, `detail` by what means."""
    MESSAGE = "message"
    """`ref` is a turn; the message that opened it."""
    CALL = "call"
    """`ref` is a turn, `detail` the call's key in it."""
    DOCUMENT = "document"
    """`ref` is a document of a source, `detail` where in it."""
    PASSAGE = "passage"
    SUMMARY = "summary"
    IMPORT = "import"


@dataclass(frozen=True, slots=True)
class Origin:
    """One thing that a memory comes from."""

    kind: OriginKind
    ref: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.ref}" + (f"#{self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Source:
    """Where what is written comes from: all that it was made of, who may see it, how trusted."""

    origins: tuple[Origin, ...]
    audience: Audience = PUBLIC
    trust: Trust = Trust.OWNER

    @property
    def label(self) -> Label:
        """How far it is trusted, and who may see it."""
        return Label(self.trust, self.audience)


@dataclass(frozen=True, slots=True)
class Block:
    """A labelled document in, or near, the context; `text` is all of it, as it is rendered."""

    id: str
    owner_id: str
    """The agent it belongs to, or `CONSTELLATION`."""
    label: str
    type: BlockType
    schema: Schema
    text: str
    description: str = ""
    limit: int = DEFAULT_LIMIT
    """The most characters it may hold."""
    permission: Permission = Permission.READ_WRITE
    """What its owner (and for a constellation's block, every agent) may do to it."""
    audience: Audience = PUBLIC
    pinned: bool = False
    version: int = 0
    """Counts its edits."""
    created_at: int = 0
    updated_at: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a block, with the edits it comes from."""

    text: str
    edits: tuple[int, ...]
    """Numbers of the edits that made it, the first one first."""
    label: Label


# -- what can be done to a block -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Add text, a list's item or a log's entry at the end; JSON where the schema has fields."""

    content: str
    section: str | None = None


class Which(StrEnum):
    """Which of several places that fit is meant."""

    FIRST = "first"
    ALL = "all"
    NTH = "nth"
    REGEX = "regex"
    """`old` is a regular expression; the first match is replaced, groups as `\\1`."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Put one text in the place of another; text schemas only."""

    old: str
    new: str
    which: Which = Which.FIRST
    n: int = 1
    """Which one with `NTH`, counted from 1."""
    section: str | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Apply a unified diff whose context is verified; text schemas only."""

    diff: str
    section: str | None = None


@dataclass(frozen=True, slots=True)
class EditRange:
    """Put text in the place of whole lines, counted from 1, both ends included."""

    first: int
    last: int
    content: str
    section: str | None = None


@dataclass(frozen=True, slots=True)
class SetText:
    """Write the whole anew: text as it is, other schemas as JSON."""

    content: str
    base: int | None = None
    """The version that the writer saw: what others have written since is kept."""
    section: str | None = None


@dataclass(frozen=True, slots=True)
class SetField:
    """Give a field of a map a value; for a counter, set it."""

    field: str
    value: Any
    section: str | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """Add to a counter, or with a negative amount take away."""

    field: str
    amount: float
    section: str | None = None


@dataclass(frozen=True, slots=True)
class SetItem:
    """Change an item of a list, counted from 1: its fields, or the whole of a plain one."""

    index: int
    value: Any
    section: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveItem:
    """Take an item out of a list, counted from 1."""

    index: int
    section: str | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """Take back the latest edit that was not taken back."""


@dataclass(frozen=True, slots=True)
class Redo:
    """Make the latest edit that was taken back again."""


@dataclass(frozen=True, slots=True)
class Revert:
    """Take back one edit by its number; what came after it stays."""

    edit: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Make the block what it was at a version."""

    version: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Take in the updates of another replica of this block."""

    updates: bytes


@dataclass(frozen=True, slots=True)
class Describe:
    """Change what is said of a block, not what it says; None leaves a thing as it is."""

    description: str | None = None
    type: BlockType | None = None
    limit: int | None = None
    permission: Permission | None = None
    audience: Audience | None = None
    pinned: bool | None = None
    schema: Schema | None = None
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """Let another agent see a block and do with it what the permission says."""

    agent_id: str
    permission: Permission = Permission.APPEND


@dataclass(frozen=True, slots=True)
class Unshare:
    """Take a shared block away from an agent."""

    agent_id: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Put a block away: no agent sees it any more; its history stays."""


Edit = (
    Append
    | Replace
    | Patch
    | EditRange
    | SetText
    | SetField
    | Add
    | SetItem
    | RemoveItem
    | Undo
    | Redo
    | Revert
    | Restore
    | Merge
)
"""What changes what a block says."""

BlockWrite = Edit | Describe | Share | Unshare | Retire
"""Everything that can be done to a block that is there."""


@dataclass(frozen=True, slots=True)
class EditRecord:
    """One edit of a block, as its history tells it."""

    block_id: str
    number: int
    kind: str
    """The name of the edit in lower case: `append`, `undo` …"""
    author: str
    """`owner`, `agent:NAME`, `person:NAME` …"""
    turn_id: str | None
    reason: str
    source: Source
    at: int
    undone_by: int | None = None
    """The edit that took it back, if it was."""
    undoes: int | None = None
    """The edit that this one takes back."""


# -- the archive -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Passage:
    """A text in an archive, kept word by word."""

    id: str
    archive_id: str
    """The agent it belongs to, or the source of documents."""
    text: str
    source: Source
    author: str = ""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    known_from: int = 0
    """When it was stored."""
    true_from: int | None = None
    """Since when it holds, if that is known."""
    superseded_by: str | None = None
    superseded_at: int | None = None
    retracted_at: int | None = None
    turn_id: str | None = None
    """The turn that wrote it."""

    @property
    def holds(self) -> bool:
        """Whether it was neither taken back nor superseded."""
        return self.superseded_at is None and self.retracted_at is None

    def held_at(self, moment: int) -> bool:
        """Tell whether it was known, and neither taken back nor superseded, at a moment."""
        ended = [at for at in (self.superseded_at, self.retracted_at) if at is not None]
        return self.known_from <= moment and all(moment < at for at in ended)


@dataclass(frozen=True, slots=True)
class Insert:
    """A new passage. Near-duplicates are merged into one that keeps all sources."""

    text: str
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    true_from: int | None = None
    supersedes: str | None = None


@dataclass(frozen=True, slots=True)
class AppendPassage:
    """Text at the end of a passage; the former wording stays in the history."""

    passage_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Retract:
    """A passage is no longer held to be true; it stays in the history."""

    passage_id: str


@dataclass(frozen=True, slots=True)
class Tag:
    """The tags of a passage, anew."""

    passage_id: str
    tags: tuple[str, ...]


PassageWrite = Insert | AppendPassage | Retract | Tag
"""Everything that can be done to an archive."""
