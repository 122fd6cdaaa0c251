"""Labels: how far a value is trusted, and who may see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from asterism.types.people import (
    OWNER,
    PUBLIC,
    Audience,
    Participants,
    Trust,
    audience_of,
    least_trusted,
)


@dataclass(frozen=True, slots=True)
class Label:
    """The two labels of a value. One that is made of nothing is the owner's, and public."""

    trust: Trust = Trust.OWNER
    audience: Audience = PUBLIC

    @staticmethod
    def join(labels: Iterable[Label]) -> Label:
        """Return the label of what is made of all of these: the least trusted, seen by the fewest.

        Joining has no order and no number, and never raises trust nor lets anybody see more.
        """
        found = set(labels)
        if len(found) == 1:
            return found.pop()
        return Label(
            least_trusted(one.trust for one in found),
            Audience.intersection(one.audience for one in found),
        )

    def flows_to(self, participants: Participants) -> bool:
        """Tell whether everyone present may see it."""
        return participants.can_see(self.audience)


def label_of(participants: str | None) -> Label:
    """Return the label of what is planned among those that `Participants.wire` names."""
    told: dict[str, Any] = orjson.loads(participants) if participants is not None else {}
    speaker = next(iter(told.get("persons", ())), OWNER)
    said_by = Trust.OWNER if speaker == OWNER else Trust.STRANGER
    return Label(Trust(told.get("trust", said_by)), audience_of(participants))
