"""Answers in words: what a person writes in a channel, read as a yes or a no to a question."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST = 4_000
_NAMED = re.compile(
    r"/?(?P<word>approve|yes|deny|no)[\s:]+(?P<id>ap_[0-9a-z]{4,})\b[\s:,.!-]*(?P<note>.*)",
    re.IGNORECASE | re.DOTALL,
)
_YES = re.compile(r"/?(?:yes|y|approve|approved)[\s.!]*", re.IGNORECASE)
# A yes with a condition is no yes; a no with words is one, and the agent reads the words.
_NO = re.compile(
    r"/?(?:(?:no|n|deny|denied)[\s.!]*|no[,:;-]\s*(?P<no>.+)|deny[\s,:;-]+(?P<deny>.+))",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Said:
    """A message that may be an answer."""

    approved: bool
    approval_id: str | None = None
    """Which question it names, perhaps by the end of its id; None: the one that waits."""
    note: str | None = None


def read_answer(text: str) -> Said | None:
    """Return what a message says if it is an answer; None if it is anything else."""
    if len(text) > _LONGEST:
        return None
    said = text.strip()
    if found := _NAMED.fullmatch(said):
        approved = found["word"].lower() in ("approve", "yes")
        return Said(approved, found["id"].lower(), found["note"].strip() or None)
    if _YES.fullmatch(said):
        return Said(approved=True)
    if found := _NO.fullmatch(said):
        return Said(approved=False, note=(found["no"] or found["deny"] or "").strip() or None)
    return None
