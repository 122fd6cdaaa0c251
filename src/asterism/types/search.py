"""Search: queries to memory, and their hits."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from asterism.errors import InvalidInput
from asterism.records import dataclass
from asterism.times import Moment
from asterism.types.memory import Source

DOMAINS = ("messages", "passages", "documents", "blocks", "summaries")
"""The searchable domains: messages, passages of agents, documents of sources, blocks and
summaries."""
ROLES = ("user", "assistant")
MAX_HITS = 1_000
"""The most hits of one search; `offset` gets the next page."""
MAX_NEIGHBOURS = 50


class HitKind(StrEnum):
    """The kinds of hits."""

    MESSAGE = "message"
    PASSAGE = "passage"
    DOCUMENT = "document"
    """A passage of a document of a source."""
    BLOCK = "block"
    """A line of a block."""
    SUMMARY = "summary"


class ReasonKind(StrEnum):
    """The reasons why a hit was found."""

    WORDS = "words"
    MEANING = "meaning"
    DATE = "date"
    SPEAKER = "speaker"
    PHRASE = "phrase"
    """The exact words that are in quotes in the query."""
    PREFIX = "prefix"
    """Words that begin with a prefix in the query, such as `auto*`."""
    NEWEST = "newest"
    """The query has no words, so the newest hits come first."""


@dataclass(frozen=True, slots=True)
class MatchReason:
    """One reason why something was found."""

    kind: ReasonKind
    text: str = ""
    """The details of the reason: the words, the distance, the days, the speaker."""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}" if self.text else self.kind.value


@dataclass(frozen=True, slots=True)
class Query:
    """A query: any text, with filters that narrow the search."""

    text: str
    domains: tuple[str, ...] = DOMAINS
    speaker: str | None = None
    """Only messages of this speaker: a person's name or id, an account as `channel:sender` or by
    the sender alone, `owner`, or an agent's name."""
    role: str | None = None
    """Only messages of `user` or `assistant`."""
    since: int | None = None
    """Only texts of this moment or later."""
    until: int | None = None
    """Only texts of this moment or earlier."""
    tags: tuple[str, ...] = ()
    """Only passages with all of these tags."""
    source: str | None = None
    """Only documents of the source with this name or id."""
    limit: int = 10
    offset: int = 0
    """How many of the best hits to skip: those on earlier pages."""
    moment: int | None = None
    """Search memory as it was at this moment; None: now."""
    neighbours: int = 0
    """How many texts before and after each hit come with it."""

    def __post_init__(self) -> None:
        for domain in self.domains:
            if domain not in DOMAINS:
                raise InvalidInput(
                    f"{domain!r} is not a search domain. Use one of: {', '.join(DOMAINS)}."
                )
        if self.role is not None and self.role not in ROLES:
            raise InvalidInput(f"{self.role!r} is not a role. Use one of: {', '.join(ROLES)}.")
        for name, value, least, most in (
            ("limit", self.limit, 1, MAX_HITS),
            ("neighbours", self.neighbours, 0, MAX_NEIGHBOURS),
        ):
            if not least <= value <= most:
                raise InvalidInput(
                    f"The search's {name} is {value:,}; it must be from {least:,} to {most:,}. "
                    "Nothing was searched."
                )
        if self.offset < 0:
            raise InvalidInput(
                f"The search's offset is {self.offset:,}; it must be 0 or more. Nothing was "
                "searched."
            )

    @property
    def searched_domains(self) -> tuple[str, ...]:
        """The domains that can have hits: some filters apply to one kind of text only."""
        left = [domain for domain in DOMAINS if domain in self.domains]
        if self.role is not None or self.speaker is not None:
            left = [domain for domain in left if domain == "messages"]
        if self.tags:
            left = [domain for domain in left if domain in ("passages", "documents")]
        if self.source is not None:
            left = [domain for domain in left if domain == "documents"]
        return tuple(left)

    @property
    def last(self) -> int | None:
        """The latest moment of the texts to search."""
        ends = [end for end in (self.moment, self.until) if end is not None]
        return min(ends) if ends else None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A text before or after a hit, in the same conversation or document."""

    id: str
    text: str
    at_ms: int
    speaker: str
    source: Source

    at = Moment()


@dataclass(frozen=True, slots=True)
class Hit:
    """One hit of a search."""

    kind: HitKind
    id: str
    """A passage's or a summary's id; of a message `turn#number`, of a block's line `label:line`."""
    text: str
    score: float
    why: tuple[MatchReason, ...]
    at_ms: int
    """When it was said or stored."""
    source: Source
    agent_id: str = ""
    """The agent whose memory it is in."""
    speaker: str = ""
    """The speaker, by the name to show; empty if there is none."""
    where: str = ""
    """The place to show: a document's path, a block's label, a room."""
    matched: tuple[str, ...] = ()
    """The matching words, as they are written in the text."""
    before: tuple[Neighbour, ...] = ()
    after: tuple[Neighbour, ...] = ()
    relevance: float | None = None
    """How likely it has to do with the query, from 0 to 1, whatever the size of the memory; None if
    the query has no words. Hits are in the order of their scores all the same."""
    beside: str = ""
    """The id of the hit that it surrounds, where it was found only by the words of that one."""
    steps: int = 0
    """How many texts after that hit it comes; negative: before it."""

    at = Moment()

    @property
    def reason(self) -> str:
        """Why it was found, in one line."""
        return "; ".join(str(signal) for signal in self.why)

    @property
    def sources(self) -> list[Source]:
        """The sources of the hit and of the texts around it."""
        return [self.source, *(hit.source for hit in (*self.before, *self.after))]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The hits of a search, the best first."""

    hits: list[Hit] = field(default_factory=list[Hit])
    total: int = 0
    """The number of matching texts on all pages."""
    more: bool = False
    """Whether there is a next page."""
    notes: tuple[str, ...] = ()
    """Notes about the search itself, such as that vectors are still being made."""
