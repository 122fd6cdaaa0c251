"""The gate for archives: it checks permission, audience and form, and finds similar passages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, cast, get_args

import orjson

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.memory.archive import Likeness, Relation, compare
from asterism.memory.gate.rows import (
    Fresh,
    change_passages,
    delete_staged,
    insert_passages,
    lock_archive,
    passages_changed,
    put_document,
    remove_document,
)
from asterism.memory.gate.writer import Writer, judge
from asterism.memory.words import digest, embed, nearest, terms
from asterism.permissions import Act, Resource
from asterism.records import dataclass
from asterism.store import agents, passages
from asterism.store.agents import PassageOwner
from asterism.store.database import Connection
from asterism.store.passages import PassageEdit, origins_wire
from asterism.types.agents import Trust, least_trusted, new_id
from asterism.types.documents import STAGED
from asterism.types.memory import (
    AppendPassage,
    Insert,
    Origin,
    Passage,
    PassageWrite,
    Permission,
    Retract,
    Source,
    Tag,
)

MAX_TEXT = 100_000
MAX_TAGS = 50
MAX_TAG_LENGTH = 80
MAX_METADATA = 20_000
_SCANNED = 2_000
"""How many passages a new one is compared with, the latest first."""
_COMPARED = 8
"""How many of them, the nearest, are looked at closely."""
_MAX_CONTRADICTIONS = 20
_BATCH = 500

ACTS: dict[type[PassageWrite], Act] = {
    Insert: Act.APPEND,
    AppendPassage: Act.APPEND,
    Retract: Act.OVERWRITE,
    Tag: Act.OVERWRITE,
}
"""The act of each kind of write, for the decision. A kind that is not here cannot be written."""
assert ACTS.keys() == set(get_args(PassageWrite)), "a way to write to archives without an act"

JudgeWith = Callable[[str, str], Relation | None]
"""Says what a new text is to an old one where the rules found nothing; None: nothing, too."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a write."""

    passage: Passage
    """As it is now; of an insert that was merged, the one that was there."""
    kind: str
    """`stored`, `merged` (it was there), `superseded` (it took the place of another),
    `contradicts`, `appended`, `retracted` or `tagged`."""
    note: str = ""
    """A sentence for the writer about similar passages."""
    quoted: tuple[Source, ...] = ()
    """Where the texts come from that the note quotes."""


@dataclass(frozen=True, slots=True)
class NewPassage:
    """A passage of a document or of an import."""

    text: str
    source: Source | None = None
    """None: the source of the writer."""
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    document: str | None = None
    """The path of its document in the source."""
    place: int | None = None
    """Its number in the document."""
    known_from: int | None = None
    """None: from now on."""
    true_from: int | None = None
    staged: bool = False
    """Whether nobody is to see it until `publish_document`."""
    search_keys: tuple[str, bytes | None] | None = None
    """The digest and vector of its text, from `prepare_passages`; None: made when it is stored."""


async def write(
    tx: Connection,
    writer: Writer,
    archive_id: str,
    write: PassageWrite,
    *,
    judge_with: JudgeWith | None = None,
) -> Written:
    """Do one thing to an archive; the one way, besides `insert_many`."""
    archive = await _archive(tx, archive_id)
    act = ACTS[type(write)]
    if isinstance(write, Insert) and write.supersedes is not None:
        act = Act.OVERWRITE
    await _judge(tx, writer, act, archive, _describe_write(write, archive))
    await lock_archive(tx, archive_id)
    match write:
        case Insert():
            return await _insert(tx, writer, archive, write, judge_with)
        case AppendPassage():
            return await _append(tx, writer, archive_id, write)
        case Retract(passage_id):
            old = await _current_passage(tx, writer, archive_id, passage_id)
            await _judge(
                tx, writer, act, archive, _describe_write(write, archive, old), old.source.trust
            )
            new = replace(old, retracted_at_ms=writer.now)
            await _change(tx, writer, "retract", old, {"retracted_at": writer.now})
            return Written(new, "retracted")
        case Tag(passage_id, new_tags):
            old = await _current_passage(tx, writer, archive_id, passage_id)
            tags = check_tags(new_tags)
            await _change(tx, writer, "tag", old, {"tags": orjson.dumps(tags).decode()})
            return Written(replace(old, tags=tags), "tagged")


def prepare_passages(rows: Sequence[NewPassage]) -> list[NewPassage]:
    """Compute the digest and the vector of passages, before a transaction begins."""
    checked = [replace(row, text=check_text(row.text)) for row in rows]
    vectors = embed([row.text for row in checked]) or [None] * len(checked)
    return [
        replace(row, search_keys=(digest(row.text), vector))
        for row, vector in zip(checked, vectors, strict=True)
    ]


async def insert_many(
    tx: Connection, writer: Writer, archive_id: str, rows: Sequence[NewPassage]
) -> int:
    """Store the passages of documents or of an import; return how many are new.

    A passage with the same words and the same audience as a stored one is merged into it. The
    pieces of a document are always stored, since the document may be removed again.
    """
    archive = await _archive(tx, archive_id)
    what = f"store {len(rows):,} passages in the archive of {archive.name!r}"
    await _judge(tx, writer, Act.APPEND, archive, what)
    await lock_archive(tx, archive_id)
    stored = 0
    for first in range(0, len(rows), _BATCH):
        stored += await _insert_batch(tx, writer, archive_id, rows[first : first + _BATCH])
    return stored


async def delete_document(
    tx: Connection, writer: Writer, archive_id: str, document: str, *, keep: Sequence[str] = ()
) -> int:
    """Remove the passages of a document, but those of some ids; return how many were removed."""
    archive = await _archive(tx, archive_id)
    what = f"remove the passages of {document!r} from the archive of {archive.name!r}"
    await _judge(tx, writer, Act.DELETE, archive, what)
    await lock_archive(tx, archive_id)
    return await remove_document(tx, archive_id, document, keep)


async def publish_document(tx: Connection, writer: Writer, archive_id: str, document: str) -> int:
    """Replace the passages of a document by its staged ones, all at once."""
    archive = await _archive(tx, archive_id)
    what = f"replace the passages of {document!r} in the archive of {archive.name!r}"
    await _judge(tx, writer, Act.DELETE, archive, what)
    await lock_archive(tx, archive_id)
    return await put_document(tx, archive_id, document, writer.now)


async def discard_document(tx: Connection, writer: Writer, archive_id: str, document: str) -> int:
    """Remove the staged passages of a document; return how many were removed."""
    archive = await _archive(tx, archive_id)
    what = f"give up reading {document!r} into the archive of {archive.name!r}"
    await _judge(tx, writer, Act.DELETE, archive, what)
    await lock_archive(tx, archive_id)
    return await delete_staged(tx, archive_id, document)


# -- who may ---------------------------------------------------------------------------------------


async def _archive(tx: Connection, archive_id: str) -> PassageOwner:
    owner = await passages.archive(tx, archive_id)
    if owner is None:
        raise NotFound(
            f"There is no archive {archive_id!r}: an agent or a source has one. "
            "Nothing was changed."
        )
    return owner


async def _judge(
    tx: Connection,
    writer: Writer,
    act: Act,
    archive: PassageOwner,
    what: str,
    trust: Trust | None = None,
) -> None:
    """Return if the writer may do that; `trust` is that of a passage that would hold no more."""
    permission = None
    if writer.agent_id == archive.id:
        permission = Permission.READ_WRITE
    elif writer.agent_id is not None:
        shared = await agents.attached_sources(tx, writer.agent_id)
        permission = Permission.READ_ONLY if archive in shared else None
    judge(writer, act, Resource("passage", archive.name, permission, trust), what)


def _describe_write(write: PassageWrite, archive: PassageOwner, old: Passage | None = None) -> str:
    """Describe a write, and its passage, for the person who has to approve it."""
    was = f": {old.text[:200]}" if old is not None else ""
    match write:
        case Insert(text) if old is not None:
            return f"put in the place of passage {old.id}{was}\nthis: {text[:200]}"
        case Insert(text):
            return f"add to the archive of {archive.name!r}: {text[:200]}"
        case AppendPassage(passage_id, text):
            return f"append to passage {passage_id}: {text[:200]}"
        case Retract(passage_id):
            return f"retract passage {passage_id}{was}"
        case Tag(passage_id, tags):
            return f"tag passage {passage_id} with {', '.join(tags) or 'nothing'}"


async def _current_passage(
    tx: Connection, writer: Writer, archive_id: str, passage_id: str
) -> Passage:
    """Return a passage that still holds and that the writer may see."""
    passage = await passages.get(tx, passage_id)
    if (
        passage is None
        or passage.archive_id != archive_id
        or not writer.participants.can_see(passage.source.audience)
    ):
        raise NotFound(
            f"There is no passage {passage_id!r} in this archive. Search for it to learn its id. "
            "Nothing was changed."
        )
    if passage.retracted_at_ms is not None:
        raise Conflict(
            f"Passage {passage_id} was retracted. Insert what holds now. Nothing was changed."
        )
    if passage.superseded_by is not None:
        raise Conflict(
            f"Passage {passage_id} was superseded by {passage.superseded_by}. Change that one. "
            "Nothing was changed."
        )
    return passage


# -- writing ---------------------------------------------------------------------------------------


def _fresh(
    writer: Writer, archive_id: str, new: NewPassage, vector: bytes | None, digested: str
) -> Fresh:
    source = new.source or writer.source
    if writer.by_verb:
        # What they say that others have said is still told by them.
        source = replace(source, trust=least_trusted((source.trust, writer.source.trust)))
    if not source.origins:
        raise InvalidInput(
            "A passage must say where it comes from, and this one does not. Nothing was stored."
        )
    passage = Passage(
        id=new_id("pas"),
        archive_id=archive_id,
        text=new.text,
        source=source,
        author=str(writer.actor),
        tags=check_tags(new.tags),
        metadata=check_metadata(new.metadata),
        known_from_ms=writer.now if new.known_from is None else new.known_from,
        true_from_ms=new.true_from,
        retracted_at_ms=STAGED if new.staged else None,
        turn_id=writer.turn_id,
    )
    return Fresh(passage, digested, vector, new.document, new.place)


async def _change(
    tx: Connection, writer: Writer, kind: str, old: Passage, columns: Mapping[str, Any]
) -> None:
    """Change a passage, and keep the old values in its history."""
    before = {name: value for name, value in _as_stored(old).items() if name in columns}
    await change_passages(tx, old.id, columns)
    await passages_changed(
        tx,
        PassageEdit(
            old.id, 0, kind, str(writer.actor), writer.turn_id, writer.reason, writer.now, before
        ),
    )


def _as_stored(passage: Passage) -> dict[str, Any]:
    return {
        "text": passage.text,
        "tags": orjson.dumps(passage.tags).decode(),
        "metadata": orjson.dumps(passage.metadata).decode(),
        "origins": origins_wire(passage.source.origins),
        "audience": str(passage.source.audience),
        "trust": passage.source.trust.value,
        "superseded_by": passage.superseded_by,
        "superseded_at": passage.superseded_at_ms,
        "retracted_at": passage.retracted_at_ms,
    }


async def _append(tx: Connection, writer: Writer, archive_id: str, write: AppendPassage) -> Written:
    old = await _current_passage(tx, writer, archive_id, write.passage_id)
    text = check_text(f"{old.text}\n{check_text(write.text)}")
    source = Source(
        _joined_origins(old.source.origins, writer.source.origins),
        old.source.audience & writer.source.audience,
        least_trusted((old.source.trust, writer.source.trust)),
    )
    new = replace(old, text=text, source=source)
    columns = _as_stored(new)
    columns = {name: columns[name] for name in ("text", "origins", "audience", "trust")}
    await _change(tx, writer, "append", old, columns)
    # The words and the vector follow from the text, so that the history need not keep them.
    made = embed([text])
    search_keys = {"digest": digest(text), "vector": made[0] if made else None}
    await change_passages(tx, old.id, search_keys)
    return Written(new, "appended")


async def _insert(
    tx: Connection,
    writer: Writer,
    archive: PassageOwner,
    write: Insert,
    judge_with: JudgeWith | None,
) -> Written:
    archive_id = archive.id
    text = check_text(write.text)
    vectors = embed([text])
    fresh = _fresh(
        writer,
        archive_id,
        NewPassage(text, None, write.tags, write.metadata, true_from=write.true_from),
        vectors[0] if vectors else None,
        digest(text),
    )
    if write.supersedes is not None:
        old = await _current_passage(tx, writer, archive_id, write.supersedes)
        what = _describe_write(write, archive, old)
        await _judge(tx, writer, Act.OVERWRITE, archive, what, old.source.trust)
        await insert_passages(tx, [fresh])
        await _supersede(tx, writer, old, fresh.passage)
        return Written(fresh.passage, "superseded", f"It takes the place of {old.id}.")
    return await _insert_without_duplicate(
        tx, writer, fresh, await _similar_passages(tx, writer, fresh, judge_with)
    )


async def _insert_batch(
    tx: Connection, writer: Writer, archive_id: str, rows: Sequence[NewPassage]
) -> int:
    if any(row.search_keys is None for row in rows):
        rows = prepare_passages(rows)
    digests = [row.search_keys[0] for row in rows if row.search_keys and row.document is None]
    there = await passages.by_digest(tx, archive_id, list(dict.fromkeys(digests)))
    fresh: dict[str, Fresh] = {}
    merged: dict[str, list[Source]] = {}
    for row in rows:
        assert row.search_keys is not None
        digested, vector = row.search_keys
        made = _fresh(writer, archive_id, row, vector, digested)
        known = (made.digest, str(made.passage.source.audience))
        former = there.get(known) if row.document is None else None
        if former is None:
            fresh[made.passage.id] = made
            there.setdefault(known, made.passage.id)
        elif former in fresh:
            fresh[former] = _with_source(fresh[former], made.passage.source)
        else:
            merged.setdefault(former, []).append(made.passage.source)
    await insert_passages(tx, list(fresh.values()))
    old = await passages.many(tx, list(merged))
    for passage_id, sources in merged.items():
        origins = _joined_origins(
            old[passage_id].source.origins, *(source.origins for source in sources)
        )
        if origins != old[passage_id].source.origins:
            columns = {"origins": origins_wire(origins)}
            await _change(tx, writer, "merge", old[passage_id], columns)
    return len(fresh)


def _with_source(fresh: Fresh, source: Source) -> Fresh:
    own = fresh.passage.source
    both = Source(_joined_origins(own.origins, source.origins), own.audience, own.trust)
    return replace(fresh, passage=replace(fresh.passage, source=both))


def _joined_origins(*many: Sequence[Origin]) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys(origin for origins in many for origin in origins))


# -- hygiene ---------------------------------------------------------------------------------------


async def _similar_passages(
    tx: Connection, writer: Writer, fresh: Fresh, judge_with: JudgeWith | None
) -> list[tuple[Passage, Likeness]]:
    """Return the passages that a new one repeats, extends or contradicts, the likest first.

    Only passages with the same audience count: a merge across audiences would reveal the words of
    one audience to the other.
    """
    new = fresh.passage
    if not writer.participants.can_see(new.source.audience):
        return []
    audience = str(new.source.audience)
    same = await passages.by_digest(tx, new.archive_id, [fresh.digest])
    near: dict[str, bytes | None] = {}
    if (fresh.digest, audience) in same:
        near[same[fresh.digest, audience]] = fresh.vector
    if fresh.vector is not None:
        there = await passages.vectors(tx, [new.archive_id], _SCANNED, [audience])
        places = nearest(fresh.vector, [vector for _, vector in there], _COMPARED)
        near.update({there[place][0]: there[place][1] for place, _ in places})
    else:
        near.update(dict.fromkeys(await _near_by_words(tx, new, audience)))
    candidates = await passages.many(tx, list(near))
    order = {"same": 0, "extends": 1, "contradicts": 2}
    likenesses: list[tuple[Passage, Likeness]] = []
    for passage_id, vector in near.items():
        old = candidates[passage_id]
        likeness = compare(new.text, old.text, fresh.vector, vector)
        if judge_with is not None and likeness.kind is Relation.UNRELATED:
            verdict = judge_with(new.text, old.text) or likeness.kind
            likeness = replace(likeness, kind=verdict)
        if likeness.kind in order:
            likenesses.append((old, likeness))
    return sorted(likenesses, key=lambda pair: (order[pair[1].kind], -pair[1].score))


async def _near_by_words(tx: Connection, new: Passage, audience: str) -> list[str]:
    wanted = set(terms(new.text))
    scores: list[tuple[float, str]] = []
    for passage in await passages.newest(tx, [new.archive_id], _SCANNED):
        if str(passage.source.audience) != audience:
            continue
        its = set(terms(passage.text))
        common = len(wanted & its)
        if common:
            scores.append((-common / len(wanted | its), passage.id))
    return [passage_id for _, passage_id in sorted(scores)[:_COMPARED]]


async def _insert_without_duplicate(
    tx: Connection, writer: Writer, fresh: Fresh, alike: Sequence[tuple[Passage, Likeness]]
) -> Written:
    """Store a passage unless it is there, and settle what it is to those that are.

    A text keeps the trust of its author: text from the web that repeats or extends words of the
    owner must not replace them.
    """
    new = fresh.passage
    extended: list[Passage] = []
    contradicted: list[tuple[Passage, str]] = []
    for old, likeness in alike:
        match likeness.kind:
            case "same" if not _is_more_trusted(new.source.trust, old.source.trust):
                return await _merge(tx, writer, old, new)
            case "same" if digest(old.text) == fresh.digest:
                extended.append(old)
            case "extends" if not _is_more_trusted(old.source.trust, new.source.trust):
                extended.append(old)
            case "contradicts":
                contradicted.append((old, likeness.reason))
            case _:
                pass
    origins = _joined_origins(*(old.source.origins for old in extended), new.source.origins)
    tags = dict.fromkeys(tag for old in (*extended, new) for tag in old.tags)
    new = replace(new, source=replace(new.source, origins=origins), tags=tuple(tags)[:MAX_TAGS])
    if contradicted:
        ids = [old.id for old, _ in contradicted]
        new = replace(new, metadata={**new.metadata, "contradicts": ids})
    await insert_passages(tx, [replace(fresh, passage=new)])
    for old in extended:
        await _supersede(tx, writer, old, new)
    for old, _ in contradicted:
        await _flag(tx, writer, old, new)
    notes = [f"It takes the place of {old.id}, with all its sources." for old in extended]
    notes += [_contradiction(old, reason) for old, reason in contradicted]
    kind = "contradicts" if contradicted else "superseded" if extended else "stored"
    return Written(new, kind, " ".join(notes), tuple(old.source for old, _ in contradicted))


def _is_more_trusted(trust: Trust, other: Trust) -> bool:
    return trust is not other and least_trusted((trust, other)) is other


async def _merge(tx: Connection, writer: Writer, old: Passage, new: Passage) -> Written:
    origins = _joined_origins(old.source.origins, new.source.origins)
    tags = tuple(dict.fromkeys([*old.tags, *new.tags]))[:MAX_TAGS]
    merged = replace(old, source=replace(old.source, origins=origins), tags=tags)
    if merged != old:
        columns = {"origins": origins_wire(origins), "tags": orjson.dumps(tags).decode()}
        await _change(tx, writer, "merge", old, columns)
    return Written(
        merged, "merged", f"{old.id} says that already; it now names this source as well."
    )


async def _supersede(tx: Connection, writer: Writer, old: Passage, new: Passage) -> None:
    columns = {"superseded_by": new.id, "superseded_at": writer.now}
    await _change(tx, writer, "supersede", old, columns)


async def _flag(tx: Connection, writer: Writer, old: Passage, new: Passage) -> None:
    before: Any = old.metadata.get("contradicts")
    former = cast("list[Any]", before) if isinstance(before, list) else []
    metadata = {**old.metadata, "contradicts": [*former, new.id][-_MAX_CONTRADICTIONS:]}
    await _change(tx, writer, "flag", old, {"metadata": orjson.dumps(metadata).decode()})


def _contradiction(old: Passage, reason: str) -> str:
    short = old.text if len(old.text) <= 200 else f"{old.text[:200]}…"
    return (
        f"This contradicts {old.id}: {short!r} ({reason}). Both are kept: retract the wrong one, "
        "or insert what holds and name the one it supersedes."
    )


# -- what a passage may be -------------------------------------------------------------------------


def check_text(text: str) -> str:
    """Return the text of a passage as it is stored."""
    if "\x00" in text:
        raise InvalidInput("The text has a NUL character in it. Leave it out. Nothing was stored.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"Character {error.start + 1} of the text is half of a pair and means nothing by "
            "itself. Leave it out. Nothing was stored."
        ) from None
    text = text.strip()
    if not text:
        raise InvalidInput("There is no text. Give the text of the passage. Nothing was stored.")
    if len(text) > MAX_TEXT:
        raise InvalidInput(
            f"The text has {len(text):,} characters; a passage takes {MAX_TEXT:,}. Cut it into "
            "several passages, or add it as a document of a source. Nothing was stored."
        )
    return text


def check_tags(raw_tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of a passage as they are stored: in one case, each once."""
    tags = tuple(dict.fromkeys(" ".join(tag.split()).casefold() for tag in raw_tags))
    if len(tags) > MAX_TAGS:
        raise InvalidInput(
            f"{len(tags)} tags are too many; {MAX_TAGS} is the most. Nothing was changed."
        )
    for tag in tags:
        if not 1 <= len(tag) <= MAX_TAG_LENGTH or not tag.isprintable():
            raise InvalidInput(
                f"{tag[:MAX_TAG_LENGTH]!r} cannot be a tag: it has 1 to {MAX_TAG_LENGTH} "
                "characters that can be printed. Nothing was changed."
            )
    return tags


def check_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a passage as it is stored: a JSON object."""
    try:
        wire = orjson.dumps(metadata)
    except (TypeError, RecursionError) as error:
        raise InvalidInput(
            f"The metadata cannot be written as JSON ({error}). Use texts, numbers, lists and "
            "objects. Nothing was stored."
        ) from None
    if len(wire) > MAX_METADATA:
        raise InvalidInput(
            f"The metadata has {len(wire):,} bytes; {MAX_METADATA:,} is the most. Put long "
            "values into the text. Nothing was stored."
        )
    read: Any = orjson.loads(wire)
    if not isinstance(read, dict) or _has_nul(cast("object", read)):
        raise InvalidInput(
            "The metadata must be a JSON object without NUL characters. Nothing was stored."
        )
    return cast("dict[str, Any]", read)


def _has_nul(value: object) -> bool:
    match value:
        case str():
            return "\x00" in value
        case dict():
            inner = cast("dict[str, object]", value)
            return any(_has_nul(each) for pair in inner.items() for each in pair)
        case list():
            return any(_has_nul(each) for each in cast("list[object]", value))
        case _:
            return False
