"""The health of an agent's memory: what is double, contradictory, stale, junk or too full."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, cast

from asterism.errors import NotFound
from asterism.memory import blocks
from asterism.memory.archive import Relation, compare
from asterism.memory.words import digest, terms
from asterism.records import dataclass
from asterism.store import journal, passages, summaries
from asterism.store.database import Connection
from asterism.times import MONTH_NUMBERS, MONTH_PATTERN, to_datetime
from asterism.types.agents import OWNER_ALONE, Participants, now_ms
from asterism.types.memory import Passage

_MAX_PASSAGES = 2_000
"""How many passages are looked at closely, the latest first."""
_MAX_PAIRS = 500
_MIN_COSINE = 0.85
"""The cosine from which two passages are compared word by word."""
_MAX_IDS = 50
_FULL_FROM = 0.9


@dataclass(frozen=True, slots=True)
class HealthIssue:
    """One kind of trouble, where it is, and the next move."""

    kind: str
    """`duplicate`, `contradiction`, `stale`, `orphaned`, `junk`, `full`, `sourceless`
    or `untrusted`."""
    ids: tuple[str, ...]
    """Passages, or labels of blocks; of pairs, both."""
    text: str
    move: str


@dataclass(frozen=True, slots=True)
class Health:
    """The result of a health check."""

    counts: dict[str, int]
    findings: tuple[HealthIssue, ...]
    checked_passages: int
    """How many passages were looked at; the rest is older."""

    def of(self, kind: str) -> list[HealthIssue]:
        """Return the findings of one kind."""
        return [finding for finding in self.findings if finding.kind == kind]


async def health(
    tx: Connection,
    agent_id: str,
    *,
    now: int | None = None,
    participants: Participants = OWNER_ALONE,
) -> Health:
    """Check the memory of an agent that those present may see; nothing is changed."""
    if await passages.archive(tx, agent_id) is None:
        raise NotFound(f'There is no agent {agent_id!r}. "asterism agent list" shows all.')
    moment = now_ms() if now is None else now
    seen = [
        visible
        for block in await blocks.seen_by(tx, agent_id)
        if (visible := blocks.as_visible_to(block, participants)) is not None
    ]
    there = [
        passage
        for passage in await passages.newest(tx, [agent_id], _MAX_PASSAGES)
        if participants.can_see(passage.source.audience)
    ]
    counts = {"passages": len(there)}
    if participants.owner_alone:
        counts = await passages.counts(tx, agent_id)
        counts["entries of the journal"] = await journal.length_of(tx, agent_id)
    counts["blocks"] = len(seen)
    counts["summaries"] = sum(
        participants.can_see(summary.audience) for summary in await summaries.of_agent(tx, agent_id)
    )
    vectors = dict(await passages.vectors(tx, [agent_id], _MAX_PASSAGES))
    findings = [
        *_duplicates(there, vectors),
        *_contradictions(there),
        *_past(there, moment),
        *await _orphaned(tx, agent_id, participants),
        *_junk(there),
        *_full_blocks(seen),
    ]
    sourceless = await passages.without_origin(tx, agent_id, _MAX_IDS)
    if sourceless and participants.owner_alone:
        findings.append(
            HealthIssue(
                "sourceless",
                tuple(sourceless),
                f"{len(sourceless)} passages do not say where they come from",
                "Please report this: it must not happen. Retract them.",
            )
        )
    findings += _untrusted(there)
    return Health(counts, tuple(findings), len(there))


# -- pairs -----------------------------------------------------------------------------------------


def _duplicates(there: Sequence[Passage], vectors: dict[str, bytes]) -> Iterator[HealthIssue]:
    for passage, other in _pairs(there, vectors):
        same_words = digest(passage.text) == digest(other.text)
        if passage.source.audience != other.source.audience:
            continue
        if not same_words:
            likeness = compare(
                passage.text, other.text, vectors.get(passage.id), vectors.get(other.id)
            )
            if likeness.kind is not Relation.SAME:
                continue
        yield HealthIssue(
            "duplicate",
            (passage.id, other.id),
            f"{_short(passage.text)} – {_short(other.text)}",
            f'"asterism archive forget {passage.id}", or let the agent retract one of them.',
        )


def _pairs(
    there: Sequence[Passage], vectors: dict[str, bytes]
) -> Iterator[tuple[Passage, Passage]]:
    """Yield pairs that may say the same, the newer one first, each once."""
    known = {passage.id: place for place, passage in enumerate(there)}
    pairs: set[tuple[int, int]] = set()
    first_places: dict[str, int] = {}
    for place, passage in enumerate(there):
        former = first_places.setdefault(digest(passage.text), place)
        if former != place:
            pairs.add((former, place))
    ids = [id for id in vectors if id in known]
    for first, second in _near([vectors[id] for id in ids]):
        a, b = sorted((known[ids[first]], known[ids[second]]))
        pairs.add((a, b))
    for a, b in sorted(pairs):
        yield there[a], there[b]


def _near(vectors: Sequence[bytes]) -> list[tuple[int, int]]:
    """Return which of some vectors are near to which, the nearest pairs first."""
    import numpy as np

    if len(vectors) < 2:
        return []
    rows = np.frombuffer(b"".join(vectors), dtype=np.int8).reshape(len(vectors), -1)
    floats = rows.astype(np.float32)
    floats /= np.maximum(np.linalg.norm(floats, axis=1, keepdims=True), 1e-9)
    scores = np.triu(floats @ floats.T, 1)
    firsts, seconds = np.nonzero(scores >= _MIN_COSINE)
    order = np.argsort(-scores[firsts, seconds], kind="stable")[:_MAX_PAIRS]
    return [(int(firsts[place]), int(seconds[place])) for place in order]


def _contradictions(there: Sequence[Passage]) -> Iterator[HealthIssue]:
    holding = {passage.id: passage for passage in there}
    for passage in there:
        flagged: Any = passage.metadata.get("contradicts")
        for other_id in cast("list[Any]", flagged) if isinstance(flagged, list) else ():
            other = holding.get(str(other_id))
            # Both sides are flagged; it is told once, at the newer one.
            if other is not None and (other.known_from_ms, other.id) < (
                passage.known_from_ms,
                passage.id,
            ):
                yield HealthIssue(
                    "contradiction",
                    (passage.id, other.id),
                    f"{_short(passage.text)} – {_short(other.text)}",
                    f"Say which one holds and retract the other: {passage.id} is the newer one.",
                )


# -- single ones -----------------------------------------------------------------------------------


_NAME = rf"({MONTH_PATTERN})\b\.?"
_DATES = (
    re.compile(r"\b(?P<year>\d{4})-(?P<number>\d{1,2})-(?P<day>\d{1,2})\b"),
    re.compile(
        rf"\b(?P<day>\d{{1,2}})(?:st|nd|rd|th|\.)?\s+(?:of\s+)?(?P<name>{_NAME})"
        r"(?:,?\s+(?P<year>\d{4}))?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"\b(?P<name>{_NAME})\s+(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,?\s+(?P<year>\d{{4}}))?",
        re.IGNORECASE,
    ),
    re.compile(r"\b(?P<day>\d{1,2})\.(?P<number>\d{1,2})\.(?P<year>\d{4})\b"),
)
_EVERY_YEAR = re.compile(
    r"\b(birthdays?|born|anniversar\w+|every|each|annual\w*|yearly)\b", re.IGNORECASE
)


def _past(there: Sequence[Passage], now: int) -> Iterator[HealthIssue]:
    """Find passages on future days that are past now."""
    today = to_datetime(now).date()
    for passage in there:
        if _EVERY_YEAR.search(passage.text):
            continue
        stored = to_datetime(passage.known_from_ms).date()
        days = [day for day in _days_in(passage.text, stored) if day >= stored]
        if days and max(days) < today:
            yield HealthIssue(
                "stale",
                (passage.id,),
                f"{_short(passage.text)} (over since {max(days):%d %B %Y})",
                "Retract it, or say what came of it.",
            )


def _days_in(text: str, stored: date) -> Iterator[date]:
    for pattern in _DATES:
        for match in pattern.finditer(text):
            parts = match.groupdict()
            name = parts.get("name", "").rstrip(".").lower()
            month = MONTH_NUMBERS[name] if name else int(parts["number"])
            years = [int(parts["year"])] if parts["year"] else [stored.year, stored.year + 1]
            days = [day for year in years if (day := _day(year, month, int(parts["day"])))]
            # Without a year the next one is meant.
            coming = [day for day in days if parts["year"] or day >= stored]
            if coming:
                yield coming[0]


def _day(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


async def _orphaned(tx: Connection, agent_id: str, participants: Participants) -> list[HealthIssue]:
    """Find passages whose successor was retracted, so that neither holds."""
    return [
        HealthIssue(
            "orphaned",
            (passage.id, successor),
            f"{_short(passage.text)} was superseded by {successor}, which was retracted",
            "If the former holds again, insert it anew; else there is nothing to do.",
        )
        for passage, successor in await passages.orphaned_passages(tx, agent_id, _MAX_IDS)
        if participants.can_see(passage.source.audience)
    ]


def _junk(there: Sequence[Passage]) -> Iterator[HealthIssue]:
    for passage in there:
        passage_terms = terms(passage.text)
        if len(passage_terms) < 2 and len(passage.text) < 20:
            why = "says nothing" if not passage_terms else "is a single word"
            yield HealthIssue(
                "junk",
                (passage.id,),
                f"{_short(passage.text)} {why}",
                f'Retract it, or "asterism archive forget {passage.id}".',
            )


def _full_blocks(seen: Sequence[blocks.VisibleBlock]) -> Iterator[HealthIssue]:
    for seen_block in seen:
        used, most = len(seen_block.block.text), seen_block.block.limit
        if used > most * _FULL_FROM:
            yield HealthIssue(
                "full",
                (seen_block.name,),
                f"block {seen_block.name} holds {used:,} of {most:,} characters",
                "Shorten it, raise its limit, or move a part of it to the archive.",
            )


def _untrusted(there: Sequence[Passage]) -> Iterator[HealthIssue]:
    by_trust: dict[str, list[str]] = {}
    for passage in there:
        if not passage.source.trust.trusted:
            by_trust.setdefault(passage.source.trust.value, []).append(passage.id)
    for trust, ids in sorted(by_trust.items()):
        yield HealthIssue(
            "untrusted",
            tuple(ids[:_MAX_IDS]),
            f"{len(ids):,} passages come from: {trust}",
            "They are marked wherever they are shown; forget those that you do not want.",
        )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return repr(line if len(line) <= 80 else f"{line[:79]}…")
