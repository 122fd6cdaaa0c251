"""From rows to hits: what was found is read, checked once more for those present, and explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from asterism.memory import archive
from asterism.memory.search.analysis import terms_of
from asterism.memory.search.extras import Extra, tags_of
from asterism.memory.search.speakers import Speakers
from asterism.memory.words import words
from asterism.store import passages, shelved
from asterism.store.database import Connection
from asterism.store.passages import Archive
from asterism.store.shelves import JOURNAL
from asterism.types.memory import Origin, OriginKind, Source
from asterism.types.people import Audience, Participants
from asterism.types.search import HitKind, Query
from asterism.types.turns import text_of, trust_of


@dataclass(frozen=True, slots=True)
class Shown:
    """A text as a hit shows it."""

    kind: HitKind
    id: str
    text: str
    at: int
    source: Source
    agent_id: str
    speaker: str
    where: str


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a row is from."""

    kind: str
    """That of its shelf; empty: it is one of the extras."""
    owner_id: str
    agent_id: str
    number: int
    speaker: str


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads rows for those present."""

    tx: Connection
    query: Query
    participants: Participants
    speakers: Speakers
    sources: Mapping[str, Archive]
    """The sources of documents that are searched, by id."""
    extras: Sequence[Extra]

    async def read(self, spots: Sequence[Spot], *, tagged: bool = True) -> list[Shown | None]:
        """Return what is at some places, None where there is nothing for those present.

        Unless it is `tagged`, a passage needs no tags.
        """
        tags = tags_of(self.query) if tagged else frozenset[str]()
        by_shelf: dict[tuple[str, str], list[int]] = {}
        for one in spots:
            by_shelf.setdefault((one.kind, one.owner_id), []).append(one.number)
        said: dict[tuple[str, int], shelved.Said] = {}
        kept: dict[tuple[str, int], passages.Numbered] = {}
        for (kind, owner_id), numbers in by_shelf.items():
            if kind == JOURNAL:
                found = await shelved.said_at(self.tx, owner_id, numbers)
                said |= {(owner_id, one.number): one for one in found}
            elif kind:
                there = await self._kept(owner_id, numbers)
                kept |= {(owner_id, number): one for number, one in there.items()}
        shown: list[Shown | None] = []
        for one in spots:
            if not one.kind:
                shown.append(_extra(self.extras[one.number]))
            elif one.kind == JOURNAL:
                shown.append(self._message(one, said.get((one.owner_id, one.number))))
            else:
                shown.append(self._passage(one, kept.get((one.owner_id, one.number)), tags))
        return shown

    async def _kept(self, archive_id: str, numbers: Sequence[int]) -> dict[int, passages.Numbered]:
        found = await passages.numbered(self.tx, archive_id, numbers)
        moment = self.query.moment
        if moment is None:
            return {number: one for number, one in found.items() if one.passage.holds}
        then = await archive.as_of(self.tx, [one.passage for one in found.values()], moment)
        by_id = {one.id: one for one in then}
        return {
            number: one._replace(passage=by_id[one.passage.id])
            for number, one in found.items()
            # What read otherwise then is among the extras.
            if one.passage.id in by_id and by_id[one.passage.id].text == one.passage.text
        }

    def _message(self, spot: Spot, said: shelved.Said | None) -> Shown | None:
        if said is None or not self.participants.can_see(Audience.of_turn(said.audience)):
            return None
        text = text_of(said.body)
        if not text.strip():
            return None
        origin = Origin(OriginKind.MESSAGE, said.turn_id)
        channel = said.channel or ""
        return Shown(
            HitKind.MESSAGE,
            f"{said.turn_id}#{said.number}",
            text,
            said.at,
            Source((origin,), Audience.of_turn(said.audience), trust_of(said.meta, said.trust)),
            spot.agent_id,
            self.speakers.shown.get(spot.speaker, ""),
            channel if said.reply_to is None else f"{channel}:{said.reply_to}",
        )

    def _passage(
        self, spot: Spot, kept: passages.Numbered | None, tags: frozenset[str]
    ) -> Shown | None:
        if kept is None:
            return None
        one = kept.passage
        if not self.participants.can_see(one.source.audience) or not tags <= set(one.tags):
            return None
        kind, where = HitKind.PASSAGE, ""
        source = self.sources.get(spot.owner_id)
        if source is not None:
            kind, where = HitKind.DOCUMENT, f"{source.name}/{kept.document or ''}".rstrip("/")
        return Shown(kind, one.id, one.text, one.known_from, one.source, spot.agent_id, "", where)


def _extra(one: Extra) -> Shown:
    return Shown(one.kind, one.id, one.text, one.at, one.source, one.agent_id, "", one.where)


def matched(text: str, terms: frozenset[str], prefixes: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a text, as they are written, that have a term or begin so."""
    found: dict[str, None] = {}
    pieces = text.split()
    if text.isascii():
        heads = _heads(terms, tuple(prefixes))
        plain = text.lower().split()
        pieces = [
            piece
            for piece, low in zip(pieces, plain, strict=True)
            if low.startswith(heads) or not low.isalpha()
        ]
    for piece in dict.fromkeys(pieces):
        word = piece.strip(_SIGNS)
        if word and word not in found:
            parts, stems = _read(word)
            if not terms.isdisjoint(stems) or (
                prefixes and any(part.startswith(one) for one in prefixes for part in parts)
            ):
                found[word] = None
    return tuple(found)


@lru_cache(64)
def _heads(terms: frozenset[str], prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return how words begin that may have a term or begin so; others need not be read.

    A stem begins like its word: a short one, as in `dying`, with the same letter at least.
    """
    return tuple({*(one[: 3 if len(one) > 4 else 1] for one in terms), *prefixes})


@lru_cache(16_384)
def _read(word: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    parts = words(word)
    return tuple(parts), tuple(terms_of(parts))


_SIGNS = ".,;:!?\"'()[]{}<>*_`\u201c\u201d\u2018\u2019\u2026"
