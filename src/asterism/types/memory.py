"""Memory: blocks and what can be done to them, passages, where a memory comes from."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import Any

from asterism.records import dataclass
from asterism.times import Moment, OptionalMoment
from asterism.types.agents import PUBLIC, Audience, Label, Trust

DEFAULT_LIMIT = 5_000
MAX_LIMIT = 10_000_000
"""The most characters that a block can be allowed to hold."""
TOMBSTONES = "tombstones.jsonl"
"""The file in a data directory that lists forgotten texts by digest, not by content."""
BACKUP_SUFFIX = ".asterism-backup"
"""What the name of a backup ends with."""
CONSTELLATION_DIRECTORIES = "constellations"
"""The directory in the data directory of a server that has those of its other constellations."""
CONSTELLATION = ""
"""The owner of blocks that do not belong to one agent; every agent sees them."""


class BlockType(StrEnum):
    """When a model sees a block."""

    CORE = "core"
    """Always."""
    WORKING = "working"
    """When it is pinned, or a message refers to it."""
    ARCHIVAL = "archival"
    """Never automatically; only by search."""
    LOG = "log"
    """Like working; its newest entries."""


class Permission(StrEnum):
    """What an agent may do to a block, the strictest first."""

    READ_ONLY = "read_only"
    PARTNER = "partner"
    """Only after the owner has approved."""
    HUMAN = "human"
    """Only after a person has approved: the one it talks to, or the owner."""
    APPEND = "append"
    READ_WRITE = "read_write"
    ADMIN = "admin"


class FieldType(StrEnum):
    """The type of a field in a map, in an item of a list or in an entry of a log."""

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
    """The kinds of sources of a memory."""

    PERSON = "person"
    """Written by a person directly; `ref` is the person, `detail` the command or channel."""
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
    """One source of a memory."""

    kind: OriginKind
    ref: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.ref}" + (f"#{self.detail}" if self.detail else "")


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a text: its sources, its audience, its trust."""

    origins: tuple[Origin, ...]
    audience: Audience = PUBLIC
    trust: Trust = Trust.OWNER

    @property
    def label(self) -> Label:
        """The trust and the audience."""
        return Label(self.trust, self.audience)


@dataclass(frozen=True, slots=True)
class Block:
    """A labelled document in, or near, the context; `text` is its rendered content."""

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
    """The permission of its agent (for a constellation's block, of every agent)."""
    audience: Audience = PUBLIC
    pinned: bool = False
    version: int = 0
    """The number of its edits."""
    created_at_ms: int = 0
    updated_at_ms: int = 0

    created_at = Moment()
    updated_at = Moment()


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a block, with the edits that made it."""

    text: str
    edits: tuple[int, ...]
    """Numbers of the edits that made it, the first edit first."""
    label: Label


# -- what can be done to a block -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Append:
    """Add text, a list's item or a log's entry at the end; JSON where the schema has fields."""

    content: str
    section: str | None = None


class Which(StrEnum):
    """Which of several matches to replace."""

    FIRST = "first"
    ALL = "all"
    NTH = "nth"
    REGEX = "regex"
    """`old` is a regular expression; the first match is replaced, groups as `\\1`."""


@dataclass(frozen=True, slots=True)
class Replace:
    """Replace one text by another; text schemas only."""

    old: str
    new: str
    which: Which = Which.FIRST
    n: int = 1
    """The number of the match with `NTH`, counted from 1."""
    section: str | None = None


@dataclass(frozen=True, slots=True)
class Patch:
    """Apply a unified diff whose context is verified; text schemas only."""

    diff: str
    section: str | None = None


@dataclass(frozen=True, slots=True)
class EditRange:
    """Replace whole lines, counted from 1, both ends included."""

    first: int
    last: int
    content: str
    section: str | None = None


@dataclass(frozen=True, slots=True)
class SetText:
    """Replace the whole content: text as it is, other schemas as JSON."""

    content: str
    base: int | None = None
    """The version that the writer saw: edits of others since then are kept."""
    section: str | None = None


@dataclass(frozen=True, slots=True)
class SetField:
    """Set a field of a map, also a counter."""

    field: str
    value: Any
    section: str | None = None


@dataclass(frozen=True, slots=True)
class Add:
    """Add to a counter; a negative amount subtracts."""

    field: str
    amount: float
    section: str | None = None


@dataclass(frozen=True, slots=True)
class SetItem:
    """Change an item of a list, counted from 1: its fields, or the whole text of a plain item."""

    index: int
    value: Any
    section: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveItem:
    """Remove an item from a list, counted from 1."""

    index: int
    section: str | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """Undo the latest edit that is not undone yet."""


@dataclass(frozen=True, slots=True)
class Redo:
    """Redo the edit that was undone last."""


@dataclass(frozen=True, slots=True)
class Revert:
    """Undo one edit by its number; later edits stay."""

    edit: int


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore the block to an earlier version."""

    version: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge the updates of another replica of this block."""

    updates: bytes


@dataclass(frozen=True, slots=True)
class Describe:
    """Change the description and settings of a block; None keeps a value unchanged."""

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
    """Share a block with another agent, with a permission."""

    agent_id: str
    permission: Permission = Permission.APPEND


@dataclass(frozen=True, slots=True)
class Unshare:
    """Stop sharing a block with an agent."""

    agent_id: str


@dataclass(frozen=True, slots=True)
class Retire:
    """Archive a block: agents no longer see it; its history stays."""


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
"""The operations that change the content of a block."""

BlockWrite = Edit | Describe | Share | Unshare | Retire
"""All operations on an existing block."""


@dataclass(frozen=True, slots=True)
class EditRecord:
    """One edit in the history of a block."""

    block_id: str
    number: int
    kind: str
    """The name of the edit in lower case: `append`, `undo` …"""
    author: str
    """`owner`, `agent:NAME`, `person:NAME` …"""
    turn_id: str | None
    reason: str
    source: Source
    at_ms: int
    undone_by: int | None = None
    """The edit that undid it, if any."""
    undoes: int | None = None
    """The edit that this one undoes."""

    at = Moment()


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
    known_from_ms: int = 0
    """When it was stored."""
    true_from_ms: int | None = None
    """Since when it is valid, if known."""
    superseded_by: str | None = None
    superseded_at_ms: int | None = None
    retracted_at_ms: int | None = None
    turn_id: str | None = None
    """The turn that wrote it."""

    known_from = Moment()
    true_from = OptionalMoment()
    superseded_at = OptionalMoment()
    retracted_at = OptionalMoment()

    @property
    def is_valid(self) -> bool:
        """Whether it is neither retracted nor superseded."""
        return self.superseded_at_ms is None and self.retracted_at_ms is None


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
    """Add text to the end of a passage; the earlier text stays in the history."""

    passage_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Retract:
    """Retract a passage: it is no longer considered true, but stays in the history."""

    passage_id: str


@dataclass(frozen=True, slots=True)
class Tag:
    """Replace the tags of a passage."""

    passage_id: str
    tags: tuple[str, ...]


PassageWrite = Insert | AppendPassage | Retract | Tag
"""All operations on an archive."""
