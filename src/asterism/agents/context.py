"""Context: what the model sees. A frozen prefix, then an append-only tail within a budget."""

from __future__ import annotations

from dataclasses import dataclass

from asterism.types.agents import Agent
from asterism.types.turns import EntryKind
from asterism.types.wire import message_wire

_BYTES_PER_TOKEN = 4
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


def sections_of(agent: Agent) -> list[Section]:
    """Return the sections of an agent's prefix, in order."""
    sections = [Section("system", agent.system, "who the agent is and how it behaves")]
    if agent.tools != ():
        sections.append(Section("notes", _NOTES, "it has tools, and calls may wait for a person"))
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

    def append(self, kind: EntryKind, wire: bytes) -> None:
        """Add the next message."""
        self.wires.append(wire)
        self._starts.append(kind is EntryKind.MESSAGE)
        self.size += len(wire)

    def fit(self) -> None:
        """Cut old messages if the budget is exceeded; what is left starts with a message."""
        if self.size <= self.budget:
            return
        target = self.budget * _KEEP_AFTER_CUT
        size, cut = self.size, 0
        last_start = max((i for i, start in enumerate(self._starts) if start), default=0)
        while cut < last_start and (size > target or not self._starts[cut]):
            size -= len(self.wires[cut])
            cut += 1
        del self.wires[:cut], self._starts[:cut]
        self.size = size
