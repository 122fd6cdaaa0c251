"""How tools quote what a search has found: where it is from, and no more of it than is needed."""

from __future__ import annotations

from asterism.times import day_text
from asterism.types.memory import Source
from asterism.types.people import Trust
from asterism.types.search import Hit, HitKind

LONGEST = 1_000
_FROM = {
    Trust.STRANGER: "from a stranger",
    Trust.TOOL: "from a tool",
    Trust.DOCUMENT: "from a document",
    Trust.WEB: "from the web",
}
_BEFORE = 200
"""How much of a long text is kept before the first word that was found."""


def mark(source: Source) -> str:
    """Say where a text comes from that must not be taken for what somebody known has said."""
    said = _FROM.get(source.trust)
    return f" ({said})" if said else ""


def line(hit: Hit) -> str:
    """Return a hit on one line, with the id by which other tools read it whole."""
    if hit.kind is HitKind.BLOCK:
        return f"block {hit.id}{mark(hit.source)}: {shortened(hit)}"
    where = f", {hit.where}" if hit.kind is HitKind.DOCUMENT and hit.where else ""
    who = f", {hit.speaker}" if hit.speaker else ""
    return f"{hit.id}, {day_text(hit.at)}{where}{who}{mark(hit.source)}: {shortened(hit)}"


def shortened(hit: Hit) -> str:
    """Return a hit's text on one line; of a long one, the part around what was found."""
    text = " ".join(hit.text.split())
    if len(text) <= LONGEST:
        return text
    places = [place for word in hit.matched if (place := text.find(word)) >= 0]
    first = min(max(0, min(places, default=0) - _BEFORE), len(text) - LONGEST)
    cut = f"{'…' * (first > 0)}{text[first : first + LONGEST]}{'…' * (first + LONGEST < len(text))}"
    return f"{cut} ({len(hit.text):,} characters{_READ.get(hit.kind, '').format(hit.id)})"


_READ = {
    HitKind.PASSAGE: "; read {} for all",
    HitKind.DOCUMENT: "; read {} for all",
    HitKind.SUMMARY: "; expand {} for all",
    HitKind.MESSAGE: "; expand {} for all",
}
