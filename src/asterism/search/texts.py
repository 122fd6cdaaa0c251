"""The texts of an index as a ranking sees them: column by column, in the order of their numbers."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import field, fields, replace
from enum import IntFlag
from functools import lru_cache
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any

import orjson

from asterism.memory import archive, blocks, history
from asterism.memory.forgetting.redaction import FORGOTTEN
from asterism.memory.words import NO_TOKENS, word_set, words
from asterism.memory.words import read as read_tokens
from asterism.records import dataclass
from asterism.search.query import AGENT, PERSON, days_in, has_time_words, plain_words, terms_of
from asterism.store import passages, search_index, summaries
from asterism.store.agents import PassageOwner
from asterism.store.database import Connection
from asterism.store.search_index import JOURNAL, ArchiveText, JournalText
from asterism.types.agents import OWNER, Participants
from asterism.types.memory import Origin, OriginKind, Source
from asterism.types.search import HitKind, Query
from asterism.types.turns import NOTE, MessageMeta, text_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WIDTH = 128
"""How many dimensions of static vectors are kept: the first ones tell nearly all."""
NO_DAY = -1
"""Stands for a text that names no day."""


class Flag(IntFlag):
    """What a text looks like."""

    TIME = 1
    """It has words of time, such as `yesterday` or `in May`."""
    DIGIT = 2
    """It has a number."""
    ASKS = 4
    """It ends in a question."""
    REPLY = 8
    """The agent said it."""
    WISH = 16
    """It says how its speaker wants things: `Always …`, `I prefer …`."""
    PLACE = 32
    """It names somewhere."""


@dataclass(frozen=True, slots=True)
class TextAnalysis:
    """The analysis of a text, without its speaker, place and time."""

    terms: dict[str, int]
    """How often each term is in it."""
    words: int
    """How many words it has, stop words too."""
    flags: Flag
    days: tuple[int, int]
    """The first and last day that it names, in days since 1970; else `NO_DAY` twice."""
    vector: bytes
    """The first `WIDTH` dimensions of its static vector."""
    weight: float
    """How much its tokens tell together: common ones have short vectors."""
    tokens: int
    addresses: int
    """How often it says `you`: what is said to somebody tells less of the speaker."""


@dataclass(frozen=True, slots=True)
class IndexedText:
    """A text with its number in an index."""

    number: int
    at: int
    """When it was said or became known."""
    speaker: str
    """Who said it: `owner`, `agent`, or an account as `channel:sender`; empty: nobody."""
    thread: str
    """The conversation or document that it is a part of, in which it has neighbours."""
    audience: str
    """Who may see it, as it is stored."""
    text: TextAnalysis


_COLUMNS = {
    "numbers": "<i8",
    "at": "<i8",
    "speaker": "<u2",
    "thread": "<u2",
    "audience": "<u2",
    "words": "<u4",
    "length": "<u4",
    "norm": "<f4",
    "weight": "<f4",
    "tokens": "<u2",
    "addresses": "u1",
    "flags": "u1",
    "first_day": "<i4",
    "last_day": "<i4",
}


@dataclass(slots=True)
class Texts:
    """Columns of texts; `speaker`, `thread` and `audience` are places in the lists beside them."""

    numbers: NDArray[np.int64]
    at: NDArray[np.int64]
    speaker: NDArray[np.uint16]
    thread: NDArray[np.uint16]
    audience: NDArray[np.uint16]
    words: NDArray[np.uint32]
    """How many words each has, stop words too."""
    length: NDArray[np.uint32]
    """How many terms each has, repeated ones too."""
    norm: NDArray[np.float32]
    """The length of each one's static vector."""
    weight: NDArray[np.float32]
    """How much the tokens of each tell together."""
    tokens: NDArray[np.uint16]
    addresses: NDArray[np.uint8]
    """How often each says `you`."""
    flags: NDArray[np.uint8]
    first_day: NDArray[np.int32]
    last_day: NDArray[np.int32]
    vectors: NDArray[np.int8]
    """Static vectors, a row a text."""
    speakers: list[str] = field(default_factory=list[str])
    threads: list[str] = field(default_factory=list[str])
    audiences: list[str] = field(default_factory=list[str])

    def __len__(self) -> int:
        return len(self.numbers)

    def pack(self) -> tuple[bytes, bytes]:
        """Return what `unpack` reads: the columns, and the static vectors."""
        head = orjson.dumps([len(self), self.speakers, self.threads, self.audiences])
        body = b"".join(
            getattr(self, name).astype(kind).tobytes() for name, kind in _COLUMNS.items()
        )
        return len(head).to_bytes(4, "little") + head + body, self.vectors.tobytes()


def make_texts(analyzed: Sequence[IndexedText]) -> Texts:
    """Return texts column by column."""
    import numpy as np

    lists: dict[str, dict[str, int]] = {"speaker": {}, "thread": {}, "audience": {}}

    def known(column: str, value: str) -> int:
        return lists[column].setdefault(value, len(lists[column]))

    most = 65_535
    rows: dict[str, list[float]] = {name: [] for name in _COLUMNS}
    for text in analyzed:
        rows["numbers"].append(text.number)
        rows["at"].append(text.at)
        rows["speaker"].append(known("speaker", text.speaker))
        rows["thread"].append(known("thread", text.thread))
        rows["audience"].append(known("audience", text.audience))
        rows["words"].append(text.text.words)
        rows["length"].append(sum(text.text.terms.values()))
        rows["weight"].append(text.text.weight)
        rows["tokens"].append(min(text.text.tokens, most))
        rows["addresses"].append(min(text.text.addresses, 255))
        rows["flags"].append(int(text.text.flags))
        rows["first_day"].append(text.text.days[0])
        rows["last_day"].append(text.text.days[1])
    joined = b"".join(text.text.vector for text in analyzed)
    vectors = np.frombuffer(joined, dtype=np.int8).reshape(len(analyzed), WIDTH)
    floats = vectors.astype(np.float32)
    rows["norm"] = np.sqrt(np.einsum("ij,ij->i", floats, floats)).tolist()
    columns: dict[str, Any] = {
        name: np.array(rows[name], dtype=kind) for name, kind in _COLUMNS.items()
    }
    return Texts(
        **columns,
        vectors=vectors,
        speakers=list(lists["speaker"]),
        threads=list(lists["thread"]),
        audiences=list(lists["audience"]),
    )


def unpack(columns: bytes, vectors: bytes) -> Texts:
    """Return texts that `Texts.pack` has packed; nothing is copied."""
    import numpy as np

    size = int.from_bytes(columns[:4], "little")
    count, speakers, threads, audiences = orjson.loads(columns[4 : 4 + size])
    at = 4 + size
    read: dict[str, Any] = {}
    for name, kind in _COLUMNS.items():
        read[name] = np.frombuffer(columns, dtype=kind, count=count, offset=at)
        at += read[name].nbytes
    table = np.frombuffer(vectors, dtype=np.int8).reshape(count, WIDTH)
    return Texts(**read, vectors=table, speakers=speakers, threads=threads, audiences=audiences)


def concatenate(parts: Sequence[Texts]) -> Texts:
    """Return texts of several segments or indexes as one, in this order."""
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    lists: dict[str, dict[str, int]] = {"speaker": {}, "thread": {}, "audience": {}}
    columns: dict[str, list[Any]] = {name: [] for name in (*_COLUMNS, "vectors")}
    for part in parts:
        for name, selected in columns.items():
            values = getattr(part, name)
            if name in lists:
                merged = lists[name]
                moved = [
                    merged.setdefault(value, len(merged)) for value in getattr(part, f"{name}s")
                ]
                values = np.array(moved or [0], dtype=np.uint32)[values]
            selected.append(values)
    joined: dict[str, Any] = {name: np.concatenate(selected) for name, selected in columns.items()}
    return Texts(
        **joined,
        speakers=list(lists["speaker"]),
        threads=list(lists["thread"]),
        audiences=list(lists["audience"]),
    )


def select_texts(texts: Texts, rows: NDArray[Any]) -> Texts:
    """Return some of the texts, those of these rows."""
    columns: dict[str, Any] = {name: getattr(texts, name)[rows] for name in (*_COLUMNS, "vectors")}
    return Texts(
        **columns, speakers=texts.speakers, threads=texts.threads, audiences=texts.audiences
    )


_MAX_READ = 2_000
_MAX_WISH = 600
"""A wish for the answers to come is looked for in so many characters from the beginning."""


def _bytes(words: str) -> frozenset[bytes]:
    return frozenset(word.encode() for word in word_set(words))


_NUMBER_WORDS = _bytes(
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred"
    " hundreds thousand thousands million dozen dozens half twice triple couple several"
)
_DIGIT = re.compile(r"\d")


def has_number(text: str) -> bool:
    """Tell whether a text has a number, in figures or in words."""
    if _DIGIT.search(text, 0, _MAX_READ):
        return True
    return not _NUMBER_WORDS.isdisjoint(plain_words(text[:_MAX_READ]))


_PLACE = re.compile(r"\b(?:in|at|to|from|near|around|visit(?:ed|ing)?) (?:the )?(?!I\b)[A-Z][a-z]")


def names_place(text: str) -> bool:
    """Tell whether a text names somewhere, as far as `in Rome` does."""
    return _PLACE.search(text, 0, _MAX_READ) is not None


_WISH_WORDS = _bytes(
    "always never whenever ask sure ensure remember now prefer preference preferred rather like"
    " want please"
)
"""One of these is in every wish."""
_WISH = re.compile(
    r"(?:^|[.!?;:\n]\s*)(?:(?:please|and|so|also|but)[\s,]+)*(?:always|never|whenever|remember\s+to|"
    r"make\s+sure|ensure)\b|\b(?:when(?:ever)?|if|every\s+time)\s+i\s+ask\b|\bfrom\s+now\s+on\b|"
    r"\bi\s+(?:\w+\s+)?prefer\b|\bi(?:['\u2019]d|\s+would)\s+(?:rather|prefer|like\s+you)\b|"
    r"\bi\s+want\s+you\s+to\b|\bplease\s+(?:always|never|use|include|keep|avoid|don['\u2019]t|do\s+not)\b|"
    r"\bmy\s+prefer(?:ence|red)\b"
)


def states_wish(text: str) -> bool:
    """Tell whether a text says how its speaker wants things: `Always …`, `I prefer …`."""
    text = text[:_MAX_WISH]
    return not _WISH_WORDS.isdisjoint(plain_words(text)) and bool(_WISH.search(text.lower()))


_MAX_CHARACTERS = 200_000
"""Terms of a longer text are those of its beginning."""


def analyze(text: str, at: int) -> TextAnalysis:
    """Return what a text is found by; days that it names are counted from the moment `at`."""
    text = text[:_MAX_CHARACTERS]
    text_words = words(text)
    tokens = read_tokens(text) or NO_TOKENS
    return TextAnalysis(
        terms=dict(Counter(terms_of(text_words))),
        words=len(text.split()),
        flags=_flags(text),
        days=days_in(text, at),
        vector=tokens.vector[:WIDTH],
        weight=tokens.weight,
        tokens=tokens.tokens,
        addresses=sum(word in _YOU for word in text_words),
    )


_YOU = frozenset(("you", "your", "you're", "you've", "you'd", "you'll", "yours"))


def _flags(text: str) -> Flag:
    flags = Flag(0)
    for flag, tells in (
        (Flag.TIME, has_time_words),
        (Flag.DIGIT, has_number),
        (Flag.WISH, states_wish),
        (Flag.PLACE, names_place),
    ):
        if tells(text):
            flags |= flag
    if text.rstrip().endswith(("?", "\uff1f", "\u061f")):
        flags |= Flag.ASKS
    return flags


_OPENING = "in"
"""The key of the entry that opens a turn; other messages in it are asterism's own notes."""


@dataclass(frozen=True, slots=True)
class StoredText:
    """A text as it is stored, with its place."""

    number: int
    text: str
    at: int
    speaker: str
    thread: str
    audience: str
    reply: bool
    mark: tuple[Any, ...]
    """Identifies the text: a transaction that was rolled back may have used the same number."""
    open_turn: str | None = None
    """Its turn, if that goes on: who may see it can change."""

    def analyzed(self) -> IndexedText:
        """Return it with what it is found by."""
        result = cached_analysis(self.text, self.at)
        if self.reply:
            result = replace(result, flags=result.flags | Flag.REPLY)
        return IndexedText(self.number, self.at, self.speaker, self.thread, self.audience, result)


async def read_texts(
    tx: Connection, kind: str, owner_id: str, first: int, last: int
) -> list[StoredText]:
    """Return the texts of a stretch of an index, in order."""
    if kind == JOURNAL:
        messages = await search_index.messages(tx, owner_id, first, last)
        return [text for text in map(_of_journal, messages) if text is not None]
    return [
        _of_archive(passage) for passage in await search_index.passages(tx, owner_id, first, last)
    ]


async def read_texts_at(
    tx: Connection, kind: str, owner_id: str, numbers: Sequence[int]
) -> list[StoredText]:
    """Return texts of an index by their numbers, in order."""
    if kind == JOURNAL:
        messages = await search_index.messages_at(tx, owner_id, numbers)
        return [text for text in map(_of_journal, messages) if text is not None]
    return [
        _of_archive(passage) for passage in await search_index.passages_at(tx, owner_id, numbers)
    ]


def _of_journal(row: JournalText) -> StoredText | None:
    text = text_of(row.body)
    if not text.strip() or text == FORGOTTEN or row.key.startswith(NOTE):
        return None
    reply = row.kind == "reply"
    channel = row.channel or ""
    return StoredText(
        number=row.number,
        text=text,
        at=row.at,
        speaker=AGENT if reply else _speaker(row, channel),
        thread=channel if row.reply_to is None else f"{channel}:{row.reply_to}",
        audience=row.audience or OWNER,
        reply=reply,
        mark=(row.turn_id, row.key, row.at, hash(text)),
        open_turn=row.turn_id if row.channel is not None and row.ended_at is None else None,
    )


def _speaker(row: JournalText, channel: str) -> str:
    if row.key != _OPENING:
        return ""
    if row.meta is None or not ('"sender"' in row.meta or '"participants"' in row.meta):
        return OWNER
    meta = MessageMeta.from_json(row.meta)
    if meta.sender:
        return f"{channel}:{meta.sender}"
    # Whoever acts by verbs has no account.
    return f"{PERSON}:{meta.person}" if meta.person else OWNER


def _of_archive(row: ArchiveText) -> StoredText:
    return StoredText(
        number=row.number,
        text=row.text,
        at=row.at,
        speaker="",
        thread=row.document or row.turn_id or "",
        audience=row.audience,
        reply=False,
        mark=(row.id, row.digest),
    )


# -- analyses that were made lately ----------------------------------------------------------------

_MAX_ANALYSES = 4_096
_analyses: OrderedDict[bytes, TextAnalysis] = OrderedDict()
_lock = Lock()


def cached_analysis(text: str, at: int) -> TextAnalysis:
    """Return what a text is found by, perhaps as it was found out before."""
    # What a text says of days depends on the day on which it was said, in any time zone.
    key = blake2b(
        text.encode("utf-8", "surrogatepass"),
        digest_size=16,
        salt=at.to_bytes(8, "little", signed=True),
    ).digest()
    with _lock:
        known = _analyses.get(key)
        if known is not None:
            _analyses.move_to_end(key)
            return known
    output = analyze(text, at)
    with _lock:
        _analyses[key] = output
        while len(_analyses) > _MAX_ANALYSES:
            _analyses.popitem(last=False)
    return output


def clear() -> None:
    """Keep no analyses any more."""
    with _lock:
        _analyses.clear()


_MAX_UNINDEXED = 2_000


@dataclass(frozen=True, slots=True)
class UnindexedText:
    """A line of a block, a summary, or a passage in its former words."""

    kind: HitKind
    id: str
    text: str
    at: int
    source: Source
    where: str
    agent_id: str

    def analyzed(self, number: int) -> IndexedText:
        """Return it with what it is found by."""
        thread = f"{self.kind.value}:{self.where or self.id}"
        result = cached_analysis(self.text, self.at)
        return IndexedText(number, self.at, "", thread, str(self.source.audience), result)


async def unindexed_texts(
    tx: Connection, agent_id: str, query: Query, participants: Participants
) -> list[UnindexedText]:
    """Return the lines of blocks and the summaries of an agent that those present may see."""
    result: list[UnindexedText] = []
    if "blocks" in query.searched_domains:
        result += await _lines(tx, agent_id, query, participants)
    if "summaries" in query.searched_domains:
        result += [
            UnindexedText(
                HitKind.SUMMARY,
                summary.id,
                summary.text,
                summary.at_ms,
                Source((Origin(OriginKind.SUMMARY, summary.id),), summary.audience, summary.trust),
                "",
                agent_id,
            )
            for summary in (await summaries.of_agent(tx, agent_id))[-_MAX_UNINDEXED:]
            if participants.can_see(summary.audience)
        ]
    return [text for text in result if query.moment is None or text.at <= query.moment]


def tags_of(query: Query) -> frozenset[str]:
    """Return the tags that are asked for, as they are stored."""
    return frozenset(" ".join(tag.split()).casefold() for tag in query.tags)


async def former_wordings(
    tx: Connection,
    archive_id: str,
    agent_id: str,
    source: PassageOwner | None,
    query: Query,
    participants: Participants,
) -> list[UnindexedText]:
    """Return the passages that were different at the requested moment, as they were then."""
    if query.moment is None:
        return []
    tags = tags_of(query)
    changed = await passages.reworded_since(tx, archive_id, query.moment)
    documents = {numbered.passage.id: numbered.document for numbered in changed}
    then = await archive.as_of(tx, [numbered.passage for numbered in changed], query.moment)
    now = {numbered.passage.id: numbered.passage.text for numbered in changed}
    return [
        UnindexedText(
            HitKind.PASSAGE if source is None else HitKind.DOCUMENT,
            passage.id,
            passage.text,
            passage.known_from_ms,
            passage.source,
            "" if source is None else f"{source.name}/{documents[passage.id] or ''}".rstrip("/"),
            agent_id,
        )
        for passage in then
        if passage.text != now[passage.id]
        and participants.can_see(passage.source.audience)
        and tags <= set(passage.tags)
    ][:_MAX_UNINDEXED]


async def _lines(
    tx: Connection, agent_id: str, query: Query, participants: Participants
) -> list[UnindexedText]:
    result: list[UnindexedText] = []
    for seen in await blocks.seen_by(tx, agent_id):
        block = seen.block
        if not participants.can_see(block.audience):
            continue
        lines, at = list(seen.lines), block.updated_at_ms
        if query.moment is not None:
            at = min(at, query.moment)
            if block.created_at_ms > query.moment:
                continue
            lines = await history.lines_at(tx, block.id, moment=query.moment)
        # Lines are counted as those present see them, so that a gap does not tell of one.
        visible = [line for line in lines if participants.can_see(line.label.audience)]
        for number, line in enumerate(visible, 1):
            if line.text.strip():
                # Where a line comes from is in its edits, which `why` reads.
                source = Source((), line.label.audience, line.label.trust)
                id = f"{seen.name}:{number}"
                result.append(
                    UnindexedText(HitKind.BLOCK, id, line.text, at, source, seen.name, agent_id)
                )
    return result[:_MAX_UNINDEXED]


# -- columns that grow -----------------------------------------------------------------------------

_LISTS = {"speaker": "speakers", "thread": "threads", "audience": "audiences"}
_SPARE_ROWS = 256


@lru_cache(1)
def _columns() -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return the columns of texts, each with the shape of a value and its type."""
    nothing = make_texts([])
    columns = [field_.name for field_ in fields(Texts) if field_.name not in _LISTS.values()]
    # More texts have more speakers, threads and audiences than those of one segment.
    return {
        name: (
            getattr(nothing, name).shape[1:],
            "uint32" if name in _LISTS else getattr(nothing, name).dtype,
        )
        for name in columns
    }


class GrowingTexts:
    """Columns with room at their end. A view does not change when rows are added."""

    def __init__(self, capacity: int) -> None:
        self.count = 0
        self._room = 0
        self._columns: dict[str, NDArray[Any]] = {}
        self._known: dict[str, dict[str, int]] = {name: {} for name in _LISTS}
        self._lists: dict[str, list[str]] = {name: [] for name in _LISTS}
        self._grow(capacity)

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return sum(column.nbytes for column in self._columns.values())

    def _grow(self, capacity: int) -> None:
        import numpy as np

        for name, (shape, kind) in _columns().items():
            output = np.empty((capacity, *shape), dtype=kind)
            if self.count:
                output[: self.count] = self._columns[name][: self.count]
            self._columns[name] = output
        self._room = capacity

    def add(self, texts: Texts) -> None:
        """Add texts at the end."""
        import numpy as np

        first, last = self.count, self.count + len(texts)
        if last > self._room:
            self._grow(last + last // 4 + _SPARE_ROWS)
        for name, column in self._columns.items():
            values = getattr(texts, name)
            if name in _LISTS and len(texts):
                moved = [self.known(name, value) for value in getattr(texts, _LISTS[name])]
                values = np.array(moved, dtype="uint32")[values]
            column[first:last] = values
        self.count = last

    def known(self, column: str, value: str) -> int:
        """Return the place of a value in the list of a column, which is added if need be."""
        known = self._known[column]
        place = known.get(value)
        if place is None:
            place = known[value] = len(known)
            self._lists[column].append(value)
        return place

    def put(self, column: str, row: int, value: str) -> None:
        """Give a row another speaker, thread or audience."""
        self._columns[column][row] = self.known(column, value)

    def sort(self) -> None:
        """Put the rows in the order of their numbers; only before anybody has seen them."""
        import numpy as np

        numbers = self._columns["numbers"][: self.count]
        if bool(np.all(numbers[1:] > numbers[:-1])):
            return
        order = np.argsort(numbers, kind="stable")
        for column in self._columns.values():
            column[: self.count] = column[: self.count][order]

    def view(self, first: int = 0, last: int | None = None) -> Texts:
        """Return some rows as texts; nothing is copied."""
        last = self.count if last is None else last
        return self._texts({name: column[first:last] for name, column in self._columns.items()})

    def at(self, rows: NDArray[Any]) -> Texts:
        """Return a copy of some rows."""
        return self._texts({name: column[rows] for name, column in self._columns.items()})

    def _texts(self, columns: dict[str, Any]) -> Texts:
        return Texts(
            **columns,
            speakers=self._lists["speaker"],
            threads=self._lists["thread"],
            audiences=self._lists["audience"],
        )
