"""Search: what is asked of memory, and what is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from asterism.errors import InvalidInput
from asterism.types.memory import Source

DOMAINS = ("messages", "passages", "documents", "blocks", "summaries")
"""Where can be searched: what was said, what agents keep, what sources hold, and what a context
is made of."""
ROLES = ("user", "assistant")
MAX_HITS = 1_000
"""How many hits one search returns at most; `offset` leads on."""
MAX_NEIGHBOURS = 50


class HitKind(StrEnum):
    """What was found."""

    MESSAGE = "message"
    PASSAGE = "passage"
    DOCUMENT = "document"
    """A passage of a document of a source."""
    BLOCK = "block"
    """A line of a block."""
    SUMMARY = "summary"


class ReasonKind(StrEnum):
    """By what a hit was found."""

    WORDS = "words"
    MEANING = "meaning"
    DATE = "date"
    SPEAKER = "speaker"
    PHRASE = "phrase"
    """The very words that stand in quotes in the query."""
    PREFIX = "prefix"
    """Words that begin like one in the query that ends in `*`."""
    NEWEST = "newest"
    """The query has no word, so that the newest come first."""


@dataclass(frozen=True, slots=True)
class MatchReason:
    """One reason why something was found."""

    kind: ReasonKind
    text: str = ""
    """What to show beside the kind: the words, how near, which days, who."""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.text}" if self.text else self.kind.value


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked; any text will do, and filters narrow where it is looked for."""

    text: str
    domains: tuple[str, ...] = DOMAINS
    speaker: str | None = None
    """Only what this one said: a person's name or id, an account as `channel:sender` or by the
    sender alone, `owner`, or an agent's name."""
    role: str | None = None
    """Only messages of `user` or `assistant`."""
    since: int | None = None
    """Only what is of this moment or later."""
    until: int | None = None
    """Only what is of this moment or earlier."""
    tags: tuple[str, ...] = ()
    """Only passages that have all of these."""
    source: str | None = None
    """Only documents of the source with this name or id."""
    limit: int = 10
    offset: int = 0
    """How many of the best hits are left out: the pages before."""
    moment: int | None = None
    """As memory was then; None: now."""
    neighbours: int = 0
    """How many texts before and after each hit come with it."""

    def __post_init__(self) -> None:
        for one in self.domains:
            if one not in DOMAINS:
                raise InvalidInput(f"{one!r} cannot be searched. There are: {', '.join(DOMAINS)}.")
        if self.role is not None and self.role not in ROLES:
            raise InvalidInput(f"Nobody speaks as {self.role!r}. There are: {', '.join(ROLES)}.")
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
    def looked_at(self) -> tuple[str, ...]:
        """The domains that can have a hit at all, since some filters are of one kind of text."""
        left = [one for one in DOMAINS if one in self.domains]
        if self.role is not None or self.speaker is not None:
            left = [one for one in left if one == "messages"]
        if self.tags:
            left = [one for one in left if one in ("passages", "documents")]
        if self.source is not None:
            left = [one for one in left if one == "documents"]
        return tuple(left)

    @property
    def last(self) -> int | None:
        """The moment after which nothing is looked at."""
        ends = [end for end in (self.moment, self.until) if end is not None]
        return min(ends) if ends else None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A text before or after a hit, in the same conversation or document."""

    id: str
    text: str
    at: int
    speaker: str
    source: Source


@dataclass(frozen=True, slots=True)
class Hit:
    """Something that was found."""

    kind: HitKind
    id: str
    """A passage's or a summary's id; of a message `turn#number`, of a block's line `label:line`."""
    text: str
    score: float
    why: tuple[MatchReason, ...]
    at: int
    """When it was said or became known."""
    source: Source
    agent_id: str = ""
    """Whose memory it was found in."""
    speaker: str = ""
    """Who said it, by the name to show; empty where nobody did."""
    where: str = ""
    """Where it is, to show: a document's path, a block's label, a room."""
    matched: tuple[str, ...] = ()
    """The words that were found, as they are written in the text."""
    before: tuple[Neighbour, ...] = ()
    after: tuple[Neighbour, ...] = ()

    @property
    def reason(self) -> str:
        """Why it was found, in one line."""
        return "; ".join(str(one) for one in self.why)

    @property
    def sources(self) -> list[Source]:
        """Where all that it brings to light comes from."""
        return [self.source, *(one.source for one in (*self.before, *self.after))]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search has found, the best first."""

    hits: list[Hit] = field(default_factory=list[Hit])
    total: int = 0
    """How many texts have anything to do with the query, of all pages."""
    more: bool = False
    """Whether there is a next page."""
    notes: tuple[str, ...] = ()
    """What the asker should know of the search itself, such as that vectors are still made."""
