"""Context: what the model sees. A frozen prefix, then an append-only tail within a budget."""

from __future__ import annotations

from collections.abc import Sequence

from asterism.agents.account import Account
from asterism.agents.sections import Section, Shown, prefix_wire
from asterism.ports import Profile
from asterism.store.epochs import Epoch
from asterism.types.labels import Label
from asterism.types.people import Participants
from asterism.types.turns import EntryKind
from asterism.types.wire import images_in

_BYTES_PER_TOKEN = 4
_COMPACT_TOKENS = 1_200
"""How much of the past a small model gets: it may read no more than some 40 tokens a second."""
_KEEP_AFTER_CUT = 0.7
"""What a small model gets of the past is cut well below its bound, so that it then stays the same
for many turns and the vendor's cache is of use."""
_ANY = Profile()


class Tail:
    """The messages after the prefix as wire forms: only ever appended to within an epoch.

    What is left out of a request, for a small model or a small window, is left out at its front.
    """

    def __init__(self, budget_tokens: int) -> None:
        self.budget = budget_tokens * _BYTES_PER_TOKEN
        self.wires: list[bytes] = []
        self.size = 0
        self.skipped = 0
        """How many messages at the front are not sent, because a window was found too small."""
        self._skipped_size = 0
        self._starts: list[bool] = []
        self._recent_from = 0
        self.pictured = False
        """Whether a message has images."""

    @property
    def tokens(self) -> int:
        """About how many tokens are sent of it."""
        return (self.size - self._skipped_size) // _BYTES_PER_TOKEN

    def append(self, kind: EntryKind, wire: bytes) -> None:
        """Add the next message."""
        self.wires.append(wire)
        self._starts.append(kind is EntryKind.MESSAGE)
        self.size += len(wire)
        if kind is EntryKind.MESSAGE and images_in(wire):
            self.pictured = True

    def squeeze(self) -> bool:
        """Send half as much, and no more from now on; False if it cannot be less."""
        sent = self.size - self._skipped_size
        cut, left = self._find_cut(self.skipped, sent, sent // 2)
        if cut == self.skipped:
            return False
        self.skipped = cut
        self._skipped_size = self.size - left
        self.budget = left
        return True

    def sent(self, profile: Profile = _ANY) -> int:
        """Return the place of the first message that a model with this profile is sent."""
        if not profile.compact:
            return self.skipped
        start = max(self.skipped, self._recent_from)
        size = sum(map(len, self.wires[start:]))
        if size > _COMPACT_TOKENS * _BYTES_PER_TOKEN:
            goal = _COMPACT_TOKENS * _BYTES_PER_TOKEN * _KEEP_AFTER_CUT
            start, _ = self._find_cut(start, size, goal)
        self._recent_from = start
        return start

    def _find_cut(self, start: int, size: int, target: float) -> tuple[int, int]:
        """Return where to cut what begins at `start`, and the size of what is left."""
        last_start = max((i for i, starts in enumerate(self._starts) if starts), default=0)
        cut = start
        while cut < last_start and (size > target or not self._starts[cut]):
            size -= len(self.wires[cut])
            cut += 1
        return cut, size


class Context:
    """What an agent sees with the same participants, kept from turn to turn."""

    def __init__(
        self,
        participants: Participants,
        epoch: Epoch,
        sections: Sequence[Section],
        shown: dict[str, Shown],
        tail: Tail,
        upto: int,
    ) -> None:
        self.participants = participants
        self.epoch = epoch
        self.saved = True
        """Whether the epoch is in the store."""
        self.shown = shown
        """The blocks as it shows them, by their ids."""
        self.referable: dict[str, str] = {}
        """Labels of blocks that it does not show until a message refers to them, by block id."""
        self.tail = tail
        self.upto = upto
        """The entry of the journal that its tail ends with."""
        self.label = Label()
        """The least trusted of all that it shows, and who may hear it beyond those present."""
        self.account: Account | None = None
        """What was said and read in it, once a call had to be judged by that."""
        self.stale = False
        """Whether memory has changed since it was looked at."""
        self.prefix = prefix_wire(sections)
        self.compact_prefix = prefix_wire(sections, compact=True)

    def learn(self, *labels: Label) -> None:
        """Note how far what is shown now is trusted, and who may hear it."""
        self.label = Label.join((self.label, *labels))

    def messages(self, profile: Profile = _ANY) -> list[bytes]:
        """Return wire forms: the frozen prefix, then the tail."""
        head = self.compact_prefix if profile.compact else self.prefix
        start = self.tail.sent(profile)
        return [head, *(self.tail.wires[start:] if start else self.tail.wires)]
