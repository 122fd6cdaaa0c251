"""Search, in its first form: candidates by words and vectors, ranked by both, for those present."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from asterism.errors import InvalidInput, NotFound
from asterism.memory import archive, blocks, history
from asterism.memory.vectors import cosine, embed, nearest
from asterism.memory.words import STOP_WORDS, fold, terms, words
from asterism.store import passages, summaries
from asterism.store import search as journal
from asterism.store.database import Connection
from asterism.types.memory import Origin, OriginKind, Passage, Source
from asterism.types.people import OWNER_ONLY, Audience, Company, Tier
from asterism.types.turns import EntryKind
from asterism.types.wire import text_of

DOMAINS = ("passages", "messages", "blocks", "summaries")
ROLES = {"user": (EntryKind.MESSAGE,), "assistant": (EntryKind.REPLY,)}
_MOST_CANDIDATES = 2_000
_MOST_WORDS = 12
_LONGEST_QUERY = 2_000
_SCANNED_VECTORS = 2_000
_NEAR = 50
_SCANNED_MESSAGES = 50_000
_PAGE = 2_000
_EMBEDDED = 100
"""How many candidates, the best by words, are compared by meaning."""
_EMBEDDED_CHARACTERS = 2_000
_ALIKE = 0.5
"""The cosine from which a text without a common word counts as found."""
_K1, _B = 1.2, 0.4
"""How soon a repeated word counts no more, and how much long texts are held back (BM25)."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Hit:
    """Something that was found."""

    kind: str
    """`passage`, `message`, `block` or `summary`."""
    id: str
    """A passage's or a summary's id; of a message `turn#number`, of a block's line `label:line`."""
    text: str
    score: float
    why: str
    at: int
    source: Source


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A query, in the forms in which texts are held against it."""

    text: str
    terms: tuple[str, ...]
    forms: tuple[str, ...]
    """Parts of words, one of which a candidate has in its text."""
    company: Company
    moment: int | None
    since: int | None
    until: int | None
    tags: tuple[str, ...]
    role: str | None
    vector: bytes | None = None
    near: dict[str, float] = field(default_factory=dict[str, float])
    """The cosines that are known already, by id."""

    @property
    def last(self) -> int | None:
        """The moment after which nothing is looked at."""
        ends = [end for end in (self.moment, self.until) if end is not None]
        return min(ends) if ends else None

    @property
    def hears_all(self) -> bool:
        """Whether nothing has to be held back."""
        return self.company.owner_alone

    def may_hear(self, audience: Audience) -> bool:
        """Tell whether everybody whom the hits reach may hear what has this audience."""
        return self.company.may_hear(audience)

    def in_time(self, at: int) -> bool:
        """Tell whether something of this moment is looked for."""
        last = self.last
        return (self.since is None or at >= self.since) and (last is None or at <= last)

    def has_word(self, text: str) -> bool:
        """Tell whether a text may have a word of the query; every text has, of an empty one."""
        if not self.forms:
            return not self.terms
        low = _ascii_lower(text)
        return any(form in low for form in self.forms)


async def search(
    tx: Connection,
    constellation: str,
    agent_id: str,
    query: str,
    *,
    company: Company,
    domains: Sequence[str] = DOMAINS,
    limit: int = 10,
    moment: int | None = None,
    role: str | None = None,
    since: int | None = None,
    until: int | None = None,
    tags: Sequence[str] = (),
) -> list[Hit]:
    """Return what an agent's memory holds on something, the best first; any text is a query.

    Args:
        company: Those present; what one of them may not hear is not there.
        domains: Where to look.
        limit: How many hits.
        moment: As memory was then; None: now.
        role: Only messages of `user` or `assistant`.
        since: Only what is of this moment or later.
        until: Only what is of this moment or earlier.
        tags: Only passages that have all of these.
    """
    _check(domains, role)
    wanted = _read(query, company, moment, since, until, tags, role)
    if query.strip() and not wanted.terms:
        return []
    looked_at = [one for one in DOMAINS if one in domains]
    if role is not None:
        looked_at = [one for one in looked_at if one == "messages"]
    if tags:
        looked_at = [one for one in looked_at if one == "passages"]
    found: list[Hit] = []
    for domain in looked_at:
        found += await _GATHER[domain](tx, constellation, agent_id, wanted)
    if not wanted.terms:
        newest = sorted(found, key=lambda hit: (-hit.at, hit.kind, hit.id))
        return [replace(hit, why="the newest") for hit in newest[:limit]]
    return _ranked(wanted, found, limit)


def _check(domains: Sequence[str], role: str | None) -> None:
    for one in domains:
        if one not in DOMAINS:
            raise InvalidInput(f"{one!r} cannot be searched. There are: {', '.join(DOMAINS)}.")
    if role is not None and role not in ROLES:
        raise InvalidInput(f"Nobody speaks as {role!r}. There are: {', '.join(ROLES)}.")


# -- the query -------------------------------------------------------------------------------------


def _read(
    query: str,
    company: Company,
    moment: int | None,
    since: int | None,
    until: int | None,
    tags: Sequence[str],
    role: str | None,
) -> _Wanted:
    query = query[:_LONGEST_QUERY]
    wanted = list(dict.fromkeys(terms(query) or words(query)))
    vectors = embed([query]) if wanted else None
    return _Wanted(
        text=query,
        terms=tuple(wanted),
        forms=_forms(query) if wanted else (),
        company=company,
        moment=moment,
        since=since,
        until=until,
        tags=tuple(" ".join(tag.split()).casefold() for tag in tags),
        role=role,
        vector=vectors[0] if vectors else None,
    )


def _forms(query: str) -> tuple[str, ...]:
    """Return parts of a query's words as they may be written, the longest words first.

    SQL and bytes know the case of ASCII letters only, so other letters are looked for in each.
    """
    tokens = [
        one
        for one in _WORD.findall(unicodedata.normalize("NFKC", query))
        if one.casefold() not in STOP_WORDS
    ] or words(query)
    tokens.sort(key=lambda one: -len(one))
    forms: dict[str, None] = {}
    for token in list(dict.fromkeys(tokens))[:_MOST_WORDS]:
        pairs = words(token)
        for form in pairs if len(pairs) > 1 else [_stem(token)]:
            written = (form, form.casefold(), form.lower(), form.capitalize(), form.upper())
            forms.update(dict.fromkeys(_ascii_lower(one) for one in written))
    return tuple(forms)


def _stem(token: str) -> str:
    """Return the part that a word has in common with its folded form."""
    folded = fold(token.casefold())
    size = 0
    while size < min(len(token), len(folded)) and token[size].casefold() == folded[size]:
        size += 1
    return token[:size] if size >= 3 else token


_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")


def _ascii_lower(text: str) -> str:
    return text.translate(_LOWER)


# -- candidates ------------------------------------------------------------------------------------


def _heard(wanted: _Wanted, audiences: Sequence[str]) -> list[str]:
    return [one for one in audiences if wanted.may_hear(Audience.read(one))]


async def _passages(
    tx: Connection, constellation: str, agent_id: str, wanted: _Wanted
) -> list[Hit]:
    archives = [one.id for one in await archive.archives_of(tx, constellation, agent_id)]
    heard = None
    if not wanted.hears_all:
        # What is withheld must not take the room of what is not.
        heard = _heard(wanted, await passages.audiences(tx, archives))
    found: list[Passage] = await passages.newest(
        tx,
        archives,
        _MOST_CANDIDATES,
        holding=wanted.moment is None,
        tags=wanted.tags if wanted.moment is None else (),
        known_until=wanted.last,
        patterns=[f"%{form}%" for form in wanted.forms],
        audiences=heard,
    )
    if wanted.vector is not None and wanted.moment is None:
        there = await passages.vectors(tx, archives, _SCANNED_VECTORS, heard)
        places = nearest(wanted.vector, [vector for _, vector in there], _NEAR)
        wanted.near.update({there[place][0]: score for place, score in places if score >= _ALIKE})
        known = {one.id for one in found}
        more = await passages.many(tx, [one for one in wanted.near if one not in known])
        found += more.values()
    if wanted.moment is not None:
        found = await archive.as_of(tx, found, wanted.moment)
    return [
        Hit("passage", one.id, one.text, 0, "", one.known_from, one.source)
        for one in found
        if wanted.may_hear(one.source.audience)
        and wanted.in_time(one.known_from)
        and set(wanted.tags) <= set(one.tags)
    ]


async def _messages(
    tx: Connection, constellation: str, agent_id: str, wanted: _Wanted
) -> list[Hit]:
    if not await passages.is_agent_of(tx, constellation, agent_id):
        raise NotFound(f'There is no agent {agent_id!r}. "asterism agent list" shows all.')
    kinds = ROLES[wanted.role] if wanted.role else (EntryKind.MESSAGE, EntryKind.REPLY)
    heard = None
    if not wanted.hears_all:
        heard = _heard(wanted, await journal.audiences(tx, agent_id))
    forms = [form.encode("utf-8", "replace") for form in wanted.forms]
    hits: list[Hit] = []
    before: int | None = None
    for _ in range(_SCANNED_MESSAGES // _PAGE):
        page = await journal.said(
            tx,
            agent_id,
            kinds,
            _PAGE,
            before=before,
            since=wanted.since,
            until=wanted.last,
            audiences=heard,
        )
        for one in page:
            low = one.body.lower()
            if not forms or any(form in low for form in forms):
                hits.append(_message(one))
        if len(page) < _PAGE or len(hits) >= _MOST_CANDIDATES:
            break
        before = page[-1].seq
    return [hit for hit in hits[:_MOST_CANDIDATES] if hit.text and wanted.has_word(hit.text)]


def _message(one: journal.Said) -> Hit:
    source = Source(
        (Origin(OriginKind.MESSAGE, one.turn_id),),
        OWNER_ONLY if one.audience is None else Audience.read(one.audience),
        Tier.OWNER if one.tier is None else Tier(one.tier),
    )
    return Hit("message", f"{one.turn_id}#{one.seq}", text_of(one.body), 0, "", one.at, source)


async def _blocks(tx: Connection, constellation: str, agent_id: str, wanted: _Wanted) -> list[Hit]:
    hits: list[Hit] = []
    for seen in await blocks.seen_by(tx, constellation, agent_id):
        block = seen.block
        if not wanted.may_hear(block.audience):
            continue
        lines, at = list(seen.lines), block.updated_at
        if wanted.moment is not None:
            at = min(at, wanted.moment)
            if block.created_at > wanted.moment:
                continue
            lines = await history.lines_at(tx, block.id, moment=wanted.moment)
        if not wanted.in_time(at):
            continue
        # Lines are counted as those present see them, so that a gap does not tell of one.
        heard = [line for line in lines if wanted.may_hear(line.mark.audience)]
        for number, line in enumerate(heard, 1):
            if line.text.strip() and wanted.has_word(line.text):
                # Where a line comes from is in its edits, which `why` reads.
                source = Source((), line.mark.audience, line.mark.tier)
                hits.append(Hit("block", f"{seen.name}:{number}", line.text, 0, "", at, source))
    return hits[:_MOST_CANDIDATES]


async def _summaries(
    tx: Connection, constellation: str, agent_id: str, wanted: _Wanted
) -> list[Hit]:
    if not await passages.is_agent_of(tx, constellation, agent_id):
        raise NotFound(f'There is no agent {agent_id!r}. "asterism agent list" shows all.')
    return [
        Hit(
            "summary",
            one.id,
            one.text,
            0,
            "",
            one.at,
            Source((Origin(OriginKind.SUMMARY, one.id),), one.audience, one.tier),
        )
        for one in (await summaries.of_agent(tx, agent_id))[-_MOST_CANDIDATES:]
        if wanted.may_hear(one.audience) and wanted.in_time(one.at) and wanted.has_word(one.text)
    ]


_GATHER: dict[str, Callable[[Connection, str, str, _Wanted], Awaitable[list[Hit]]]] = {
    "passages": _passages,
    "messages": _messages,
    "blocks": _blocks,
    "summaries": _summaries,
}


# -- ranking ---------------------------------------------------------------------------------------


def _ranked(wanted: _Wanted, hits: Sequence[Hit], limit: int) -> list[Hit]:
    """Return the best hits with their scores, without those that have nothing in common."""
    counts = [Counter(terms(hit.text)) for hit in hits]
    lengths = [counted.total() for counted in counts]
    mean = sum(lengths) / len(lengths) if lengths else 1.0
    weights = _weights(wanted.terms, counts)
    by_words: list[tuple[float, Hit, list[str]]] = []
    for hit, counted, length in zip(hits, counts, lengths, strict=True):
        held_back = 1 - _B + _B * length / max(mean, 1.0)
        common = [term for term in wanted.terms if counted[term]]
        score = sum(
            weights[term] * counted[term] / (counted[term] + _K1 * held_back) for term in common
        )
        by_words.append((score, hit, common))
    by_words.sort(key=lambda one: (-one[0], -one[1].at, one[1].id))
    near = _nearness(wanted, [hit for _, hit, _ in by_words])
    ranked: list[tuple[float, Hit, list[str]]] = []
    for score, hit, common in by_words:
        alike = near.get((hit.kind, hit.id), 0.0)
        if common or alike >= _ALIKE:
            reasons = [f"words: {', '.join(common)}"] if common else []
            if alike >= _ALIKE:
                reasons.append(f"alike in meaning ({alike:.2f})")
            ranked.append((round(score + 0.5 * max(alike, 0.0), 4), hit, reasons))
    ranked.sort(key=lambda one: (-one[0], -one[1].at, one[1].id))
    return [
        replace(hit, score=score, why="; ".join(reasons)) for score, hit, reasons in ranked[:limit]
    ]


def _weights(wanted: Sequence[str], counts: Sequence[Counter[str]]) -> dict[str, float]:
    """Return how much each term tells: the rarer among the candidates, the more; together one."""
    many = max(len(counts), 10)
    found = {term: sum(1 for counted in counts if counted[term]) for term in wanted}
    told = {
        term: math.log(1 + (many - number + 0.5) / (number + 0.5)) for term, number in found.items()
    }
    whole = sum(told.values()) or 1.0
    return {term: weight / whole for term, weight in told.items()}


def _nearness(wanted: _Wanted, hits: Sequence[Hit]) -> dict[tuple[str, str], float]:
    near = {("passage", one): score for one, score in wanted.near.items()}
    if wanted.vector is None:
        return near
    unknown = [hit for hit in hits if (hit.kind, hit.id) not in near][:_EMBEDDED]
    vectors = embed([hit.text[:_EMBEDDED_CHARACTERS] for hit in unknown]) or []
    for hit, vector in zip(unknown, vectors, strict=False):
        near[hit.kind, hit.id] = cosine(wanted.vector, vector)
    return near
