"""Cutting: atoms of a document's text are gathered into pieces, and parted where it hurts least."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from asterism.sources.readers.piece import Piece, clean

GOAL = 800
"""Characters that a piece should have."""
MOST = 1_600
"""Characters that no piece exceeds."""
ATOM = 400
"""Characters above which a text is parted into several atoms."""
LONGEST_WORD = 1_200
"""A word above this is cut; with the longest heading in front it still fits a piece."""
HEADING = 300
"""Characters of what stands in front of a piece."""

# How good it is to cut in front of an atom; a distance of `GOAL` from the goal weighs 1.
MUST = 100.0
BLOCK = 2.0
PARAGRAPH = 1.2
LINE = 0.5
SENTENCE = 0.5
WORD = 0.0

_SENTENCE_END = re.compile(r"[.!?…][\"”’»)\]]*\s+|[。！？]")
_SPACE = re.compile(r"\s+")


@dataclass(slots=True)
class Atom:
    """Text that stays together."""

    text: str
    at: tuple[int, int]
    """Where it is: a line, page, row or paragraph, and how far into it."""
    strength: float = LINE
    """How good it is to cut in front of it."""
    joint: str = "\n"
    """What stands between it and the one before, if they are in one piece."""
    heading: str = ""
    """What stands in front of a piece that begins with it."""
    label: str = ""
    """Where it is, in words, where numbers do not say it."""


Place = Callable[[Atom, Atom], str]
"""Says where a piece is, given its first and last atom."""


def counted(one: str, several: str) -> Place:
    """Return how to say where a piece is by the numbers of its atoms."""

    def place(first: Atom, last: Atom) -> str:
        (start, offset), (end, _) = first.at, last.at
        if start != end:
            return f"{several} {start}-{end}"
        return f"{one} {start}" + (f" from character {offset + 1}" if offset else "")

    return place


def under_heading(within: Place) -> Place:
    """Return how to say where a piece is by its heading, and then in another way."""

    def place(first: Atom, last: Atom) -> str:
        told = within(first, last)
        return f"{first.heading} ({told})" if first.heading else told

    return place


def pieces(atoms: Iterable[Atom], place: Place) -> Iterator[Piece]:
    """Gather atoms into pieces of about `GOAL` characters; holds no more than one piece."""
    held: list[Atom] = []
    size = 0
    for atom in atoms:
        if held and atom.strength >= MUST:
            yield from _rest(held, place)
            held, size = [], 0
        held.append(atom)
        size += len(atom.text) + len(atom.joint)
        while size > MOST - len(held[0].heading) - 4:
            cut = _best(held)
            yield from _piece(held[:cut], place)
            del held[:cut]
            size = sum(len(one.text) + len(one.joint) for one in held)
    yield from _rest(held, place)


def _rest(held: list[Atom], place: Place) -> Iterator[Piece]:
    size = sum(len(one.text) + len(one.joint) for one in held)
    if held and size + len(held[0].heading) > GOAL * 1.5 and len(held) > 1:
        cut = _best(held)
        yield from _piece(held[:cut], place)
        held = held[cut:]
    yield from _piece(held, place)


def _best(held: list[Atom]) -> int:
    """Return before which atom to cut: near the goal, and where the text has a seam."""
    room = MOST - len(held[0].heading) - 4
    goal = GOAL - len(held[0].heading)
    best, chosen, length = -MUST, 1, 0
    for index, atom in enumerate(held):
        if index:
            score = atom.strength - abs(length - goal) / goal
            if score > best and (length <= room or index == 1):
                best, chosen = score, index
        length += len(atom.text) + len(atom.joint)
    return chosen


def _piece(atoms: list[Atom], place: Place) -> Iterator[Piece]:
    if not atoms:
        return
    first = atoms[0]
    parts = [first.text]
    for atom in atoms[1:]:
        parts += (atom.joint, atom.text)
    body = clean("".join(parts)).strip("\n").rstrip()
    heading = clean(first.heading)
    if not body.strip() and (not heading or first.text):
        return
    text = f"{heading}\n\n{body}" if heading and body else heading or body
    yield Piece(text, clean(place(first, atoms[-1])))


def parts(text: str) -> Iterator[tuple[int, str, float, str]]:
    """Part a text at sentences, else between words; yield offset, part, strength and joint.

    Strength and joint of the first part are for the caller to say. A word is cut only if it is
    longer than `LONGEST_WORD`.
    """
    start, strength, joint = 0, LINE, "\n"
    while len(text) - start > ATOM:
        end, follows = _seam(text, start)
        after, now, then = follows
        yield start, text[start:end], strength, joint
        start, strength, joint = after, now, then
    if start < len(text) or start == 0:
        yield start, text[start:], strength, joint


def _seam(text: str, start: int) -> tuple[int, tuple[int, float, str]]:
    """Return where a part ends, and where, how willingly and after what the next one begins."""
    limit = start + ATOM
    seam = None
    for found in _SENTENCE_END.finditer(text, start + ATOM // 4, limit):
        seam = found
    if seam is not None:
        end = start + len(text[start : seam.end()].rstrip())
        return end, (seam.end(), SENTENCE, " " if end < seam.end() else "")
    space = text.rfind(" ", start + 1, limit)
    if space < 0:
        found = _SPACE.search(text, start + 1, start + LONGEST_WORD)
        if found is None:
            end = min(start + LONGEST_WORD, len(text))
            return end, (end, WORD, "")
        return found.start(), (found.end(), WORD, " ")
    return space, (space + 1, WORD, " ")


def atoms_of(
    text: str, at: tuple[int, int], *, strength: float, joint: str, heading: str = ""
) -> Iterator[Atom]:
    """Yield a text as one atom, or if it is long as several."""
    if len(text) <= ATOM:
        yield Atom(text, at, strength, joint, heading)
        return
    number, column = at
    for offset, part, inner, between in parts(text):
        if offset:
            yield Atom(part, (number, column + offset), inner, between, heading)
        else:
            yield Atom(part, at, strength, joint, heading)


class Outline:
    """The headings above a place in a document."""

    def __init__(self) -> None:
        self._path: list[tuple[int, str]] = []
        self._bare = False
        self.heading = ""
        """The path of headings, as `# Heading > ## Sub`."""

    def enter(
        self, level: int, title: str, at: tuple[int, int], *, quiet: bool = False
    ) -> Iterator[Atom]:
        """Go under a heading; unless `quiet`, one with nothing below it is a piece by itself."""
        title = " ".join(title.split())
        if not title:
            return
        if self._bare and self._path and level <= self._path[-1][0]:
            yield from self.end(at)
        while self._path and self._path[-1][0] >= level:
            self._path.pop()
        short = title if len(title) <= 120 else f"{title[:119].rstrip()}…"
        self._path.append((level, f"{'#' * level} {short}"))
        self.heading = _joined([told for _, told in self._path])
        self._bare = not quiet

    def end(self, at: tuple[int, int]) -> Iterator[Atom]:
        """Yield the heading itself if nothing came after it."""
        if self._bare:
            self._bare = False
            yield Atom("", at, MUST, "", self.heading)

    def seam(self, strength: float) -> float:
        """Return how good it is to cut here: the first text under a heading begins a piece."""
        if self._bare:
            self._bare = False
            return MUST
        return strength


def _joined(path: list[str]) -> str:
    told = " > ".join(path)
    while len(told) > HEADING and len(path) > 2:
        path = [path[0], *path[2:]]
        told = " > ".join([path[0], "…", *path[1:]])
    return told if len(told) <= HEADING else f"{told[: HEADING - 1]}…"
