"""Context: what the model sees. A frozen prefix, then an append-only tail within a budget."""

from __future__ import annotations

from dataclasses import dataclass

from asterism.types.agents import Agent
from asterism.types.turns import EntryKind
from asterism.types.wire import images_in, message_wire

_BYTES_PER_TOKEN = 4
_COMPACT_TOKENS = 1_200
"""How much of the past a small model gets: it may read no more than some 40 tokens a second."""
_KEEP_AFTER_CUT = 0.7
"""When the tail outgrows its budget it is cut well below it, so that the prefix then stays the same
for many turns and the vendor's cache is of use."""


@dataclass(frozen=True, slots=True)
class Section:
    """A named part of the frozen prefix, and why it is there."""

    name: str
    text: str
    why: str


_NOTES = (
    "Messages that begin with [asterism] come from the system you run on, not from a person: they "
    "tell you what became of calls that waited."
)


_SHORT_NOTES = "Messages that begin with [asterism] come from the system, not from a person."


def sections_of(agent: Agent, *, compact: bool = False) -> list[Section]:
    """Return the sections of an agent's prefix, in order; for a small model, the short ones."""
    sections = [Section("system", agent.system, "who the agent is and how it behaves")]
    if agent.tools != ():
        notes = _SHORT_NOTES if compact else _NOTES
        sections.append(Section("notes", notes, "it has tools, and calls may wait for a person"))
    return sections


def prefix_wire(sections: list[Section]) -> bytes:
    """Return the prefix as one system message; the same sections give the same bytes."""
    return message_wire("system", "\n\n".join(one.text for one in sections if one.text.strip()))


class Tail:
    """The recent messages as wire forms: appended to, and cut at its front at a turn's start."""

    def __init__(self, budget_tokens: int) -> None:
        self.budget = budget_tokens * _BYTES_PER_TOKEN
        self.wires: list[bytes] = []
        self.size = 0
        self._starts: list[bool] = []
        self._recent_from = 0
        self.pictured = False
        """Whether a message has images."""

    @property
    def tokens(self) -> int:
        """About how many tokens it holds."""
        return self.size // _BYTES_PER_TOKEN

    def append(self, kind: EntryKind, wire: bytes) -> None:
        """Add the next message."""
        self.wires.append(wire)
        self._starts.append(kind is EntryKind.MESSAGE)
        self.size += len(wire)
        if kind is EntryKind.MESSAGE and images_in(wire):
            self.pictured = True

    def fit(self) -> None:
        """Cut old messages if the budget is exceeded; what is left starts with a message."""
        if self.size > self.budget:
            self._cut_to(self.budget * _KEEP_AFTER_CUT)

    def squeeze(self) -> None:
        """Keep half of the messages, and not more from now on: the model's window is smaller."""
        self.budget = self.size // 2
        self._cut_to(self.budget)

    def recent(self) -> list[bytes]:
        """Return what a small model gets of it; like the whole, it mostly only grows."""
        size = self.size - sum(map(len, self.wires[: self._recent_from]))
        if size > _COMPACT_TOKENS * _BYTES_PER_TOKEN:
            goal = _COMPACT_TOKENS * _BYTES_PER_TOKEN * _KEEP_AFTER_CUT
            self._recent_from, _ = self._find_cut(self._recent_from, size, goal)
        return self.wires[self._recent_from :]

    def _cut_to(self, target: float) -> None:
        cut, self.size = self._find_cut(0, self.size, target)
        del self.wires[:cut], self._starts[:cut]
        self._recent_from = max(0, self._recent_from - cut)

    def _find_cut(self, start: int, size: int, target: float) -> tuple[int, int]:
        """Return where to cut what begins at `start`, and the size of what is left."""
        last_start = max((i for i, starts in enumerate(self._starts) if starts), default=0)
        cut = start
        while cut < last_start and (size > target or not self._starts[cut]):
            size -= len(self.wires[cut])
            cut += 1
        return cut, size
