"""Where terms are in a segment, at rest: those that begin alike stand together in one row.

A row for each term would be some forty bytes of keys for a term that is in two texts. What is in a
row: the length of the list of terms in three bytes; that list, each without its beginning, with a
line's end before and after each; how many texts have each, in a byte (255: in two bytes behind all
of these); then for each of these texts its place and how often it has the term, in two bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import pack, unpack_from

_BEGINNING = 2
_MANY = 255
_LENGTH = 3


def beginning_of(term: str) -> str:
    """Return what the terms of a row begin with that has this one."""
    return term[:_BEGINNING]


def by_beginning(terms: Iterable[str]) -> dict[str, list[str]]:
    """Return terms by what they begin with."""
    found: dict[str, list[str]] = {}
    for term in terms:
        found.setdefault(beginning_of(term), []).append(term)
    return found


def packed(places: Mapping[str, Sequence[int]]) -> dict[str, bytes]:
    """Return the rows of a segment by what their terms begin with."""
    return {
        beginning: _row(beginning, [(term, places[term]) for term in terms])
        for beginning, terms in by_beginning(sorted(places)).items()
    }


def _row(beginning: str, terms: Sequence[tuple[str, Sequence[int]]]) -> bytes:
    names = "\n".join(term[len(beginning) :] for term, _ in terms)
    named = f"\n{names}\n".encode("utf-8", "surrogatepass")
    many = [len(codes) for _, codes in terms if len(codes) >= _MANY]
    codes = [code for _, some in terms for code in some]
    return b"".join(
        (
            len(named).to_bytes(_LENGTH, "little"),
            named,
            bytes(min(len(some), _MANY) for _, some in terms),
            pack(f"<{len(many)}H", *many),
            pack(f"<{len(codes)}H", *codes),
        )
    )


def listed(term: str) -> bytes:
    """Return a term as it stands in the list of its row."""
    return b"\n%b\n" % term[_BEGINNING:].encode("utf-8", "surrogatepass")


def places_of(row: bytes, name: bytes) -> bytes:
    """Return where the term is that is listed so, two bytes a text; nothing if it is not there."""
    start = _LENGTH + int.from_bytes(row[:_LENGTH], "little")
    at = row.find(name, _LENGTH, start)
    if at < 0:
        return b""
    before = row.count(b"\n", _LENGTH, at)
    last = start + row.count(b"\n", _LENGTH, start) - 1
    counts = row[start : start + before + 1]
    size, skipped = counts[-1:], counts[:-1]
    if not size:
        return b""
    if _MANY not in row[start:last]:
        first, many = last + 2 * sum(skipped), size[0]
    else:
        all_many = row.count(b"\xff", start, last)
        if len(row) < last + 2 * all_many:
            return b""
        long = unpack_from(f"<{all_many}H", row, last)
        at_many = skipped.count(b"\xff")
        first = last + 2 * (all_many + sum(skipped) - _MANY * at_many + sum(long[:at_many]))
        many = long[at_many] if size[0] == _MANY else size[0]
    found = row[first : first + 2 * many]
    return found if len(found) == 2 * many else b""


def terms_in(row: bytes, beginning: str) -> Iterator[str]:
    """Yield the terms of a row that is of those with this beginning, in their order."""
    end = _LENGTH + int.from_bytes(row[:_LENGTH], "little")
    names = row[_LENGTH + 1 : end - 1].decode("utf-8", "replace")
    for name in names.split("\n"):
        yield beginning + name
