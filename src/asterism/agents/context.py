"""Context: what the model sees. A frozen prefix, then an append-only tail within a budget."""

from __future__ import annotations

from asterism.types.turns import EntryKind

_BYTES_PER_TOKEN = 4
_KEEP_AFTER_CUT = 0.7
"""When the tail outgrows its budget it is cut well below it, so that the prefix then stays the same
for many turns and the vendor's cache is of use."""


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
