"""Generated conversations: turns with calls and results, some of which wait while others run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asterism.turns.compaction import ContextEntry
from asterism.types.agents import PUBLIC, Audience, Trust
from asterism.types.turns import Call, EntryKind, Reply, message_wire, result_wire

MAY_3 = 1_777_766_400_000  # 2026-05-03 00:00 UTC
MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class TurnShape:
    """What a generated turn is like."""

    calls: int = 0
    words: int = 8
    parked: int = 0
    """How many later turns begin before it goes on."""
    audience: Audience = PUBLIC
    trust: Trust = Trust.OWNER
    text: str = ""


def told_turns(
    shapes: Sequence[TurnShape], *, first_seq: int = 1, first_turn: int = 0, at: int = MAY_3
) -> list[ContextEntry]:
    """Return what a model was told in these turns, with gaps where other entries of a journal are.

    A parked turn's last entries come after those of the turns that began meanwhile.
    """
    found: list[ContextEntry] = []
    waiting: list[tuple[int, list[tuple[EntryKind, bytes]], str, TurnShape]] = []
    seq = first_seq - 1

    def write(turn_id: str, shape: TurnShape, parts: list[tuple[EntryKind, bytes]]) -> None:
        nonlocal seq
        for kind, wire in parts:
            seq += 1
            when = at + seq * MINUTE
            found.append(ContextEntry(seq, turn_id, kind, wire, when, shape.audience, shape.trust))
        seq += 1  # where the journal says that the turn ended, or waits

    for number, shape in enumerate(shapes, first_turn):
        turn_id = f"turn_{number:06}"
        parts = _entries(number, shape)
        if shape.parked:
            waiting.append((number + shape.parked, parts[-1:], turn_id, shape))
            parts = parts[:-1]
        write(turn_id, shape, parts)
        for one in [one for one in waiting if one[0] <= number]:
            waiting.remove(one)
            write(one[2], one[3], one[1])
    for _, parts, turn_id, shape in waiting:
        write(turn_id, shape, parts)
    return found


def _entries(number: int, shape: TurnShape) -> list[tuple[EntryKind, bytes]]:
    text = shape.text or " ".join(f"word{number}x{index}" for index in range(shape.words))
    found = [(EntryKind.MESSAGE, message_wire("user", text))]
    for index in range(shape.calls):
        call = Call(f"call_{number}_{index}", "look_up", f'{{"what": {index}}}')
        found.append((EntryKind.REPLY, Reply(calls=(call,)).wire()))
        found.append((EntryKind.RESULT, result_wire(call.id, f"found {index}")))
    found.append((EntryKind.REPLY, Reply(f"Answer {number}.").wire()))
    return found
