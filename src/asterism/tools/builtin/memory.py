"""The tools `remember`, `recall`, `search`, `expand` and `source`: what an agent remembers.

Each shows as much of it as those present may see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta, tzinfo
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator
from pydantic.json_schema import SkipJsonSchema

from asterism.errors import AsterismError, StoreError, ToolError
from asterism.memory import archive
from asterism.memory.gate import facts
from asterism.memory.gate import passages as gate
from asterism.memory.gate.facts import FactChange
from asterism.memory.gate.writer import WriteNeedsApproval
from asterism.memory.words import words
from asterism.records import dataclass
from asterism.store import documents, journal, summaries
from asterism.store.database import Connection
from asterism.store.journal import VisibleEntry
from asterism.store.summaries import CanSee
from asterism.times import ahead_of_utc, day_text, read_iso, to_datetime, to_ms
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
from asterism.tools.tool import NeedsApproval, NothingFound, Tool, ToolContext, tool
from asterism.types.agents import Audience, Participants, Trust
from asterism.types.documents import DocumentSource
from asterism.types.memory import AppendPassage, Insert, Passage, Retract, Source, Tag
from asterism.types.permissions import Effect, EffectKind, ToolEffect
from asterism.types.search import DOMAINS, MAX_HITS, Hit, HitKind, Query
from asterism.types.turns import Summary, speaker_and_text

# -- quoting what a search has found ---------------------------------------------------------------

MAX_QUOTE = 1_000
NOTHING_FOUND = "Nothing was found. Answer from the conversation, or say that you do not know."
_ORIGIN_NOTES = {
    Trust.STRANGER: "from a stranger",
    Trust.TOOL: "from a tool",
    Trust.DOCUMENT: "from a document",
    Trust.WEB: "from the web",
}
_CONTEXT_BEFORE = 200
"""How much of a long text is kept before the first word that was found."""


def origin_note(source: Source) -> str:
    """Say where a text comes from that must not be taken for what somebody known has said."""
    note = _ORIGIN_NOTES.get(source.trust)
    return f" ({note})" if note else ""


def hit_line(hit: Hit, zone: tzinfo) -> str:
    """Return a hit on one line, with its day in a zone and the id by which it is read whole."""
    if hit.kind is HitKind.BLOCK:
        return f"block {hit.id}{origin_note(hit.source)}: {hit_text(hit)}"
    where = f", {hit.where}" if hit.kind is HitKind.DOCUMENT and hit.where else ""
    who = f", {hit.speaker}" if hit.speaker else ""
    day = day_text(hit.at_ms, zone)
    return f"{hit.id}, {day}{where}{who}{origin_note(hit.source)}: {hit_text(hit)}"


def hit_text(hit: Hit) -> str:
    """Return a hit's text on one line; of a long one, the part around what was found."""
    cut = hit_excerpt(hit, MAX_QUOTE)
    if len(" ".join(hit.text.split())) <= MAX_QUOTE:
        return cut
    return f"{cut} ({len(hit.text):,} characters{_READ_HINTS.get(hit.kind, '').format(hit.id)})"


def hit_excerpt(hit: Hit, most: int) -> str:
    """Return at most so many characters of a hit on one line, those around what was found."""
    text = " ".join(hit.text.split())
    if len(text) <= most:
        return text
    places = [place for word in hit.matched if (place := text.find(word)) >= 0]
    before = min(_CONTEXT_BEFORE, most // 4)
    first = min(max(0, min(places, default=0) - before), len(text) - most)
    last = first + most
    return f"{'…' * (first > 0)}{text[first:last]}{'…' * (last < len(text))}"


_READ_HINTS = {
    HitKind.PASSAGE: "; read {} for all",
    HitKind.DOCUMENT: "; read {} for all",
    HitKind.SUMMARY: "; expand {} for all",
    HitKind.MESSAGE: "; expand {} for all",
}


# -- remember: one fact about the owner ------------------------------------------------------------

_KEPT_TEXT = {
    FactChange.ADDED: "Kept in block 'human', which you always see: {text}",
    FactChange.REPLACED: "Kept in block 'human': {text} It took the place of: {before}",
    FactChange.KNOWN: "That is known already: {text}",
    FactChange.ARCHIVED: "Kept in your archive as {where}.",
}


def _remember_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    effect = ToolEffect("remember", content="fact").effect(arguments)
    return [replace(effect, things=(facts.HUMAN,), amends=bool(arguments.get("replaces")))]


_KEEPING = (
    r"\bremember (?:that|this|my|our|the|i|we|it)\b|\bmemori[sz]e\b|\bkeep in mind\b"
    r"|\bnote (?:down|that)\b"
    r"|\bdon'?t forget\b|\bmerk\w* dir\b|\bnotier\w*\b|\bvergiss nicht\b|\brecuerda(?: que)?\b"
    r"|\bacu[eé]rdate\b|\bapunta\b|\banota\b|\bretiens\b|\bsouviens\b|\bnote que\b"
    r"|\bricorda(?:ti)?\b"
    r"|\bannota\b|\blembr[ae](?:-te|-se)? (?:que|de)\b|覚えて|メモして|记住|记下"
)
"""How people ask for something to be kept."""


@tool(transactional=True, trust=None, compact=_KEEPING, effects=_remember_effects)
async def remember(
    ctx: ToolContext,
    fact: Annotated[str, also("fact", "text", "content"), TEXT],
    replaces: Annotated[str, also("replaces", "old"), TEXT] = "",
) -> str:
    """Keep one lasting fact about your owner, their people or their things.

    Args:
        fact: One short sentence.
        replaces: What no longer holds, as you kept it.
    """
    try:
        kept = await facts.keep(
            *(ctx.tx, ctx.writer(), ctx.agent.id, fact),
            replaces=replaces,
            zone=ctx.settings().zone,
        )
    except WriteNeedsApproval as needed:
        raise NeedsApproval(needed.question, needed.reviewers) from None
    except StoreError:
        raise
    except AsterismError as error:
        raise ToolError(error.message) from None
    return _KEPT_TEXT[kept.kind].format(text=kept.text, before=kept.before, where=kept.where)


# -- recall: the archive ---------------------------------------------------------------------------

_MAX_RECALLED = 20


def _as_list(value: Any) -> Any:
    """Take one word, or several with commas between them, as a list."""
    if isinstance(value, str):
        return [tag.strip() for tag in value.split(",") if tag.strip()]
    return value


def _recall_operation(value: Any) -> Any:
    word = value.strip().casefold() if isinstance(value, str) else value
    return "retract" if word in ("delete", "remove") else word


def _recall_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    if arguments.get("operation") in ("search", "read"):
        return [Effect(EffectKind.READ)]
    text = str(arguments.get("text") or "")
    amends = arguments.get("operation") == "retract" or bool(arguments.get("id"))
    return [Effect(EffectKind.REMEMBER, content=(text,) if text else (), amends=amends)]


@tool(
    transactional=True,
    trust=None,
    compact=r"\barchiv|アーカイブ|归档",
    effects=_recall_effects,
    audience="public",
)
async def recall(
    ctx: ToolContext,
    operation: Annotated[
        Literal["search", "read", "insert", "append", "retract"],
        OPERATION,
        BeforeValidator(_recall_operation),
    ],
    text: Annotated[str, also("text", "content", "query"), TEXT] = "",
    id: Annotated[str, also("id", "entry_id", "passage_id", "label", "name"), TEXT] = "",
    tags: Annotated[list[str], BeforeValidator(_as_list)] | None = None,
    limit: Annotated[int, null_as(5)] = 5,
    metadata: SkipJsonSchema[dict[str, Any] | None] = None,
) -> str:
    """Your archive: lasting facts, kept word by word and found by search.

    Args:
        text: What to search for, insert or append.
        id: The passage. For insert: one that the new one supersedes.
        tags: For insert; for append, to set them anew; for search, to find only those with all.
    """
    try:
        match operation:
            case "search":
                return await _search_archive(ctx, text, tags or [], limit)
            case "read":
                return await _read_passage(ctx, id)
            case "insert":
                wanted = Insert(
                    text, tuple(tags or ()), metadata=metadata or {}, supersedes=id or None
                )
                done = await gate.write(ctx.tx, ctx.writer(), ctx.agent.id, wanted)
                if done.quoted:
                    # The reason quotes both: what was there, and what the model has just written.
                    ctx.quotes((*done.quoted, done.passage.source))
                return " ".join(
                    filter(None, (_STORED_TEXT[done.kind].format(done.passage.id), done.note))
                )
            case "append":
                return await _append_passage(ctx, id, text, tags)
            case "retract":
                await gate.write(ctx.tx, ctx.writer(text), ctx.agent.id, Retract(id))
                return f"Retracted {id}. It is no longer found; its history stays."
    except WriteNeedsApproval as needed:
        raise NeedsApproval(needed.question, needed.reviewers) from None
    except StoreError:
        raise
    except AsterismError as error:
        raise ToolError(error.message) from None


_STORED_TEXT = {
    "stored": "Stored as {}.",
    "merged": "Nothing new was stored.",
    "superseded": "Stored as {}.",
    "contradicts": "Stored as {}.",
}


async def _append_passage(ctx: ToolContext, id: str, text: str, tags: list[str] | None) -> str:
    if not text and tags is None:
        raise ToolError("What should be appended? Set `text`, or `tags` to replace them.")
    sentences: list[str] = []
    if text:
        done = await gate.write(ctx.tx, ctx.writer(), ctx.agent.id, AppendPassage(id, text))
        sentences.append(f"Appended to {id}, which has {len(done.passage.text):,} characters now.")
    if tags is not None:
        done = await gate.write(ctx.tx, ctx.writer(), ctx.agent.id, Tag(id, tuple(tags)))
        sentences.append(f"The tags of {id} are: {', '.join(done.passage.tags) or 'none'}.")
    return " ".join(sentences)


async def _read_passage(ctx: ToolContext, id: str) -> str:
    passage = await archive.get(ctx.tx, id, participants=ctx.participants)
    archives = await archive.archives_of(ctx.tx, ctx.agent.id)
    if passage.archive_id not in {entry.id for entry in archives}:
        raise ToolError(f"There is no passage {id!r}. Search for it to learn its id.")
    ctx.quotes([passage.source])
    ended, zone = "", ctx.settings().zone
    if passage.retracted_at_ms is not None:
        ended = f" Retracted on {day_text(passage.retracted_at_ms, zone)}: it is no longer valid."
    elif passage.superseded_by is not None:
        ended = f" Superseded by {passage.superseded_by}: read that instead."
    return f"{_passage_head(passage, zone)}{ended}\n{passage.text}"


def _passage_head(passage: Passage, zone: tzinfo) -> str:
    tags = f" [{', '.join(passage.tags)}]" if passage.tags else ""
    return (
        f"{passage.id}, {day_text(passage.known_from_ms, zone)}{origin_note(passage.source)}{tags}"
    )


async def _search_archive(ctx: ToolContext, text: str, tags: list[str], limit: int) -> str:
    from asterism.search.search import search  # its patterns take long to compile

    if not text.strip() and not tags:
        raise ToolError("What should be searched for? Set `text`, `tags`, or both.")
    zone = ctx.settings().zone
    # An encoder would keep the writer waiting, so that words and static vectors have to do.
    result = await search(
        ctx.tx,
        ctx.agent.id,
        Query(
            text,
            domains=("passages", "documents"),
            tags=tuple(tags),
            limit=max(1, min(limit, _MAX_RECALLED)),
        ),
        participants=ctx.participants,
        now=ctx.now_ms,
        zone=zone,
    )
    ctx.quotes(hit.source for hit in result.hits)
    lines = [hit_line(hit, zone) for hit in result.hits]
    return "\n".join(lines) or NothingFound(NOTHING_FOUND)


# -- search: everything ----------------------------------------------------------------------------

_MAX_HITS = 50
_EXTRA_HITS = 8
"""How many more are asked for, since what was said in this turn is in the context anyway."""
_ARCHIVE_DOMAINS = ("passages", "documents")
_DOMAIN_SPELLINGS: dict[str, tuple[str, ...]] = {
    "": DOMAINS,
    "all": DOMAINS,
    "archival_memory": _ARCHIVE_DOMAINS,
    "archival": _ARCHIVE_DOMAINS,
    "archive": _ARCHIVE_DOMAINS,
    "local_archival": _ARCHIVE_DOMAINS,
    "group_archival": _ARCHIVE_DOMAINS,
    "conversations": ("messages",),
    "conversation": ("messages",),
    "constellation_messages": ("messages",),
    "constellation_history": ("messages",),
    "message": ("messages",),
    "passage": ("passages",),
    "document": ("documents",),
    "block": ("blocks",),
    "summary": ("summaries",),
    **{domain: (domain,) for domain in DOMAINS},
}
_DOMAIN = also("domain", "domains")
_SINCE = also("since", "start_time")
_UNTIL = also("until", "end_time")


def _read_role(value: Any) -> Any:
    word = value.strip().casefold() if isinstance(value, str) else value
    return {None: "", "agent": "assistant", "human": "user"}.get(word, word)


_Text = Annotated[str, TEXT]


_SEARCHING = (
    r"\bsearch\b|\blook (?:it )?(?:up|for|in|into)\b|\bfind (?:out|the|what|where|when|in|my)\b"
    r"|\b(?:my|the|our) (?:documents?|files?|notes?|archive)\b|\bdocuments?\b|\bsuche?\b"
    r"|\bdurchsuche\b"
    r"|\bnachsehen\b|\bschau\w* (?:nach|in)\b|\bdokument\w*|\bunterlagen\b|\bbusca\b"
    r"|\bdocumentos?\b"
    r"|\bcherche\b|\bcerca\b|\bdocument[oi]\b|\bprocura\b|探して|検索|書類|文書|搜索|查找|文件|文档"
)
"""How people ask for something to be looked up in so many words; what memory has on a message comes
by itself."""


@tool(
    repeatable=True,
    trust=None,
    compact=_SEARCHING,
    effects=ToolEffect("read"),
    audience="public",
)
async def search(
    ctx: ToolContext,
    query: Annotated[str, also("query", "text", "q"), TEXT],
    domain: Annotated[_Text, _DOMAIN] = "all",
    speaker: _Text = "",
    role: Annotated[Literal["", "user", "assistant"], BeforeValidator(_read_role)] = "",
    since: Annotated[_Text, _SINCE] = "",
    until: Annotated[_Text, _UNTIL] = "",
    limit: Annotated[int, null_as(10)] = 10,
    fuzzy: Annotated[bool, null_as(default=True)] = True,
) -> str:
    """Search all you have heard and kept.

    Args:
        domain: messages, passages, documents, blocks, summaries.
        since: Date or "last week".
        fuzzy: false: exact words.
    """
    max_hits = max(1, min(limit, _MAX_HITS))
    zone = ctx.settings().zone
    try:
        wanted = Query(
            query,
            domains=_read_domains(domain),
            speaker=speaker.strip() or None,
            role=role or None,
            since=_read_moment(since, ctx.now_ms, zone, last=False),
            until=_read_moment(until, ctx.now_ms, zone, last=True),
            limit=max_hits + _EXTRA_HITS if fuzzy else MAX_HITS,
        )
        result = await ctx.search(wanted)
    except StoreError:
        raise
    except AsterismError as error:
        raise ToolError(error.message) from None
    hits = [hit for hit in result.hits if not hit.id.startswith(f"{ctx.turn_id}#")]
    if not fuzzy:
        query_words = set(words(query))
        hits = [hit for hit in hits if query_words <= set(words(hit.text))]
    quoted = hits[:max_hits]
    ctx.quotes(source for hit in quoted for source in hit.sources)
    if not quoted:
        wider = (
            "" if fuzzy else " Words were searched for exactly; fuzzy true searches more widely."
        )
        return NothingFound(NOTHING_FOUND + wider)
    return "\n".join(hit_line(hit, zone) for hit in quoted)


def _read_domains(text: str) -> tuple[str, ...]:
    """Return the domains that a model means, however it spells them."""
    domains: list[str] = []
    for word in text.split(","):
        spelled = word.strip().casefold().replace(" ", "_").replace("-", "_")
        if spelled not in _DOMAIN_SPELLINGS:
            raise ToolError(
                f"{word.strip()!r} is not a search domain. Use one of: {', '.join(DOMAINS)}, all."
            )
        domains += _DOMAIN_SPELLINGS[spelled]
    return tuple(dict.fromkeys(domains))


def _read_moment(text: str, now: int, zone: tzinfo, *, last: bool) -> int | None:
    """Return the first, or the last, moment of the local time that a model has written."""
    text = text.strip()
    if not text:
        return None
    try:
        at = read_iso(text, zone)
    except ValueError:
        from asterism.search.query import span_of

        # It counts in days of UTC; the same days of the zone are meant.
        span = span_of(text, now + ahead_of_utc(now, zone))
        if span is None:
            raise ToolError(
                f"{text!r} is not a valid time. Write a date such as 2026-12-24, or words such "
                "as 'last week'."
            ) from None
        return to_ms(to_datetime(span[last]).replace(tzinfo=zone))
    whole_day = ":" not in text and "T" not in text.upper()
    return to_ms(at + timedelta(days=1)) - 1 if last and whole_day else to_ms(at)


# -- expand: messages behind a summary -------------------------------------------------------------

_PAGE_BYTES = 6_000
"""Bytes of wire form on a page; the text of a message is no longer than its wire form."""

_MAX_DIGITS = 19
"""Digits of a number that both engines can hold."""


@dataclass(frozen=True, slots=True)
class _MessagePage:
    """Whole messages, or one part of a long one."""

    first_seq: int
    last_seq: int
    part: int = 0
    parts: int = 1


@tool(transactional=True, trust=None, compact=False, effects=ToolEffect("read"), audience="public")
async def expand(
    ctx: ToolContext,
    summary: Annotated[str, also("summary", "id", "message"), TEXT],
    page: Annotated[int, null_as(1)] = 1,
) -> str:
    """Read the exact earlier messages that a summary stands for, or a message that was found.

    Args:
        summary: Its id, such as "sum_…" or "turn_…#12".
        page: Which page, from 1.
    """
    if "#" in summary:
        return await _expand_message(ctx, summary.strip(), page)
    can_see = ctx.participants.can_see
    stored = await _visible_summary(ctx.tx, ctx.agent.id, can_see, summary.strip())
    if stored is None:
        raise ToolError(
            f"There is no summary {summary!r}. Use the id in front of a summary in "
            "your context; it begins with sum_."
        )
    outline = await summaries.outline(ctx.tx, stored, can_see)
    pages = _split_pages(outline)
    if not pages:
        return f"The messages of {stored.id} no longer exist: they were forgotten."
    if not 1 <= page <= len(pages):
        raise ToolError(
            f"Summary {stored.id} has {len(pages)} page{'s' * (len(pages) != 1)}, so there is no "
            f"page {page}. Call expand with a page from 1 to {len(pages)}."
        )
    current = pages[page - 1]
    entries = await summaries.originals(
        ctx.tx, stored, can_see, after_seq=current.first_seq - 1, upto_seq=current.last_seq
    )
    ctx.quotes([_entry_source(entry) for entry in entries])
    parts = [
        _page_head(stored, len(outline), page, len(pages)),
        _page_body(entries, current, ctx.settings().zone),
    ]
    if page == 1 and (former := await _earlier_summary(ctx.tx, stored, can_see)):
        parts.insert(1, former)
    if page < len(pages):
        parts.append(f"Page {page} of {len(pages)}: call expand again with page {page + 1}.")
    return "\n\n".join(parts)


async def _expand_message(ctx: ToolContext, id: str, page: int) -> str:
    """Return a message that a search has found, whole or page by page."""
    turn_id, _, number = id.partition("#")
    seq = int(number) if number.isdecimal() and len(number) < _MAX_DIGITS else 0
    entries = [
        entry
        for entry in await journal.visible_entries(ctx.tx, ctx.agent.id, seq, seq)
        if entry.turn_id == turn_id and ctx.participants.can_see(_entry_source(entry).audience)
    ]
    if not entries:
        raise ToolError(f"There is no message {id!r}. Search for it to learn its id.")
    ctx.quotes(map(_entry_source, entries))
    parts = max(1, -(-len(entries[0].body) // _PAGE_BYTES))
    if not 1 <= page <= parts:
        raise ToolError(f"Message {id} has {parts} page{'s' * (parts != 1)}; there is no {page}.")
    text = _page_body(entries, _MessagePage(seq, seq, page - 1, parts), ctx.settings().zone)
    more = f"\n\nPage {page} of {parts}: call expand again with page {page + 1}."
    return text + more * (page < parts)


async def originals_exact(
    tx: Connection, agent_id: str, participants: Participants, summary_id: str
) -> list[bytes] | None:
    """Return the wire forms behind a summary; None if there is none for these participants."""
    summary = await _visible_summary(tx, agent_id, participants.can_see, summary_id)
    if summary is None:
        return None
    entries = await summaries.originals(tx, summary, participants.can_see)
    return [entry.body for entry in entries]


def _entry_source(entry: VisibleEntry) -> Source:
    return Source((), Audience.of_turn(entry.audience), entry.trust)


async def _visible_summary(
    tx: Connection, agent_id: str, can_see: CanSee, summary_id: str
) -> Summary | None:
    """Return a summary if it is the agent's own and may be seen."""
    summary = await summaries.get(tx, summary_id)
    if summary is None or summary.agent_id != agent_id or not can_see(summary.audience):
        return None
    return summary


async def _earlier_summary(tx: Connection, summary: Summary, can_see: CanSee) -> str:
    """Return what tells of the summary before, which this one took in."""
    former = await summaries.latest(tx, summary.agent_id, summary.participants, summary.first_seq)
    if former is None or not can_see(former.audience):
        return ""
    return (
        f"It took in an earlier summary, {former.id}, of {former.messages:,} messages before "
        "these; call expand with that id to read them."
    )


def _split_pages(outline: Sequence[summaries.OriginalPosition]) -> list[_MessagePage]:
    pages: list[_MessagePage] = []
    filled = _PAGE_BYTES
    for place in outline:
        if place.size > _PAGE_BYTES:
            parts = -(-place.size // _PAGE_BYTES)
            pages.extend(_MessagePage(place.seq, place.seq, part, parts) for part in range(parts))
            filled = _PAGE_BYTES
        elif filled + place.size > _PAGE_BYTES:
            pages.append(_MessagePage(place.seq, place.seq))
            filled = place.size
        else:
            pages[-1] = _MessagePage(pages[-1].first_seq, place.seq)
            filled += place.size
    return pages


def _page_head(summary: Summary, messages: int, page: int, pages: int) -> str:
    of = f", page {page} of {pages}" if pages > 1 else ""
    return f"{summary.id}: {messages:,} message{'s' * (messages != 1)}, word by word{of}."


def _page_body(entries: Sequence[VisibleEntry], page: _MessagePage, zone: tzinfo) -> str:
    lines: list[str] = []
    turn_id = ""
    for entry in entries:
        if entry.turn_id != turn_id:
            turn_id = entry.turn_id
            lines.append(f"{turn_id}, {day_text(entry.at_ms, zone)}")
        who, text = speaker_and_text(entry.body)
        if page.parts > 1:
            length = -(-len(text) // page.parts)
            text = text[page.part * length : (page.part + 1) * length]
            who = f"{who} (part {page.part + 1} of {page.parts})"
        lines.append(f"{who}, {to_datetime(entry.at_ms, zone):%H:%M}: {text}")
    return "\n".join(lines)


# -- source: folders of documents ------------------------------------------------------------------


def _source_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    name = str(arguments.get("name") or "")
    reads = arguments.get("operation") in ("list", "status")
    kind = EffectKind.READ if reads else EffectKind.WRITE
    return [Effect(kind, things=(name,) if name else ())]


@tool(transactional=True, trust=None, compact=False, effects=_source_effects, audience="public")
async def source(
    ctx: ToolContext,
    operation: Annotated[Literal["list", "status", "pause", "resume"], OPERATION, WORD],
    name: Annotated[str, also("name", "source_id", "id", "source", "label"), TEXT] = "",
) -> str:
    """Folders of documents that you can search. A paused one is not read again."""
    folders = await _attached_sources(ctx)
    if operation == "list":
        return (
            "\n".join([await _source_line(ctx, folder) for folder in folders])
            or "You have no sources."
        )
    folder = next((folder for folder in folders if name in (folder.name, folder.id)), None)
    if folder is None:
        names = ", ".join(folder.name for folder in folders) or "none"
        raise ToolError(f"There is no source {name!r}. Set `name` to one of: {names}.")
    if operation == "status":
        return await _source_line(ctx, folder)
    paused = operation == "pause"
    if folder.paused == paused:
        return f"Source {folder.name!r} {'is paused' if paused else 'is not paused'} already."
    await documents.set_paused(ctx.tx, folder, paused=paused)
    if paused:
        return f"Source {folder.name!r} is paused: it can be searched, but is not read again."
    return f"Source {folder.name!r} is resumed: changes are read again."


async def _attached_sources(ctx: ToolContext) -> list[DocumentSource]:
    """Return the sources of this agent that those present may know of."""
    return [
        folder
        for folder in await documents.sources(ctx.tx)
        if ctx.agent.id in await documents.agents_of(ctx.tx, folder.id)
        and ctx.participants.can_see(folder.audience)
    ]


async def _source_line(ctx: ToolContext, folder: DocumentSource) -> str:
    read, passages, refused = await documents.counts(ctx.tx, folder.id)
    ctx.audiences.append(folder.audience)
    parts = [
        f"{folder.name}: {read:,} document{'s' * (read != 1)}, {passages:,} passages",
        f"{refused:,} could not be read" if refused else "",
        f"read on {day_text(folder.synced_at_ms)}"
        if folder.synced_at_ms
        else "never read to its end",
        "paused" if folder.paused else "",
    ]
    return ", ".join(part for part in parts if part)


TOOLS: list[Tool] = [remember, recall, search, expand, source]
