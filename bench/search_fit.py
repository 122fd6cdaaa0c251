"""Fit the weights of the ranking on questions with known answers: `python -m bench.search_fit`.

Needs files of conversations with questions and the ids of the messages that answer them, in the
form of `bench/README.md`; the weights that are shipped were fitted on the development halves of
LoCoMo and BEAM, which are not. One weight a signal, by listwise softmax with a penalty for large
ones; each file counts the same, whatever its size. Figures are by five-index cross-validation over
conversations, so that no question is judged by weights that have seen its conversation.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asterism.app.engine import make_encoder
from asterism.search.encode import encode_question
from asterism.search.search import QueryVector, names_for, prepare
from asterism.types.agents import OWNER_ALONE
from asterism.types.search import Query
from bench.adapters.memory import Memory, milliseconds
from bench.dialogues import APART, Conversation, load

WEIGHTS = Path(__file__).parent.parent / "src/asterism/search/weights.json"
FOLDS = 5
_CANDIDATES = 150
"""Per question, those that any reasonable weights would put first; others only cost time."""
_PENALTY = 1e-3
_ENCODED = ("meaning", "meaning_spread", "meaning_session")
_NOT_FITTED = APART - {"summarization"}
"""Questions that no message answers, or so many that the first ones say nothing."""
_FIXED = {"date_relative": 1.0}
"""By judgement: in the data `last week` is copied from what was said long before the question."""


@dataclass(slots=True)
class Asked:
    """A question with the signals of its candidates."""

    file: str
    conversation: str
    category: str
    signals: NDArray[np.float32]
    right: NDArray[np.bool_]
    answers: int
    """How many messages answer it, those that are no candidates too."""

    @property
    def counts(self) -> bool:
        """Whether weights are fitted on it."""
        return self.category not in _NOT_FITTED and bool(self.right.any())


# -- signals ---------------------------------------------------------------------------------------


def collect(path: Path, encoder: str) -> tuple[list[str], list[Asked]]:
    """Return the names of the signals, and all questions of a file with theirs."""
    names: list[str] = []
    asked: list[Asked] = []
    for conversation in load(path):
        with tempfile.TemporaryDirectory(prefix="asterism-fit-") as place:
            memory = Memory(place, encoder=encoder)
            try:
                for session in conversation.sessions:
                    memory.ingest(session)
                memory.finish()
                names, some = memory.run(_tables(memory, path.stem, conversation))
                asked += some
            finally:
                memory.close()
        print(f"{path.stem} {conversation.id}: {len(asked)} questions", file=sys.stderr)
    return names, asked


async def _tables(
    memory: Memory, file: str, conversation: Conversation
) -> tuple[list[str], list[Asked]]:
    home, agent = memory.home, memory.agent
    wanted = home.settings.search.encoder
    encoder = None if wanted == "none" else make_encoder(home.settings, wanted)
    names = await home.database.read(lambda tx: names_for(tx, agent.id))
    now = milliseconds(conversation.messages[-1].time)
    found: list[Asked] = []
    signals: list[str] = []
    for one in conversation.questions:
        vector = None
        if encoder is not None:
            vector = QueryVector(encoder.name, await encode_question(encoder, one.text, names))

        async def read(tx: Any, one: Any = one, vector: QueryVector | None = vector) -> Any:
            looking = await prepare(
                tx,
                agent.id,
                Query(one.text, domains=("messages",)),
                participants=OWNER_ALONE,
                now=now,
            )
            return looking.candidates.texts.numbers, await looking.signal_table(vector)

        numbers, table = await home.database.read(read)
        signals = list(table)
        right = np.isin(numbers, [memory.number_of(id) for id in one.gold])
        matrix = np.stack(list(table.values()), axis=1)
        kept = _likely(table)
        found.append(
            Asked(
                file,
                conversation.id,
                one.category,
                matrix[kept],
                right[kept],
                len(set(one.gold)),
            )
        )
    return signals, found


def _likely(table: dict[str, NDArray[np.float32]]) -> NDArray[Any]:
    mixed = table["window"] + table["static"] + 1.5 * table["speaker"] + 2 * table["date"]
    mixed = mixed + table.get("meaning_spread", 0)
    return np.sort(np.argsort(-mixed, kind="stable")[:_CANDIDATES])


Fixed = dict[int, float]
"""Weights that are given, by column."""


def _given(one: Asked, fixed: Fixed) -> NDArray[np.float64]:
    """Return what weights that are given make of the candidates."""
    made = np.zeros(len(one.right))
    for column, weight in fixed.items():
        made += weight * one.signals[:, column]
    return made


# -- fitting ---------------------------------------------------------------------------------------


def fit(asked: Sequence[Asked], columns: Sequence[int], fixed: Fixed) -> NDArray[np.float64]:
    """Return the weights of some signals, by gradient descent with a line search (L-BFGS)."""
    counted = [one for one in asked if one.counts]
    matrix = np.concatenate([one.signals[:, columns] for one in counted]).astype(np.float64)
    given = np.concatenate([_given(one, fixed) for one in counted])
    sizes = [len(one.right) for one in counted]
    starts = np.cumsum([0, *sizes[:-1]])
    groups = np.repeat(np.arange(len(counted)), sizes)
    wanted = np.concatenate([one.right / one.right.sum() for one in counted])
    per_file = {
        file: sum(one.file == file for one in counted) for file in {o.file for o in counted}
    }
    worth = np.array([1 / per_file[one.file] for one in counted])
    worth /= worth.sum()

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = matrix @ weights + given
        most = np.maximum.reduceat(scores, starts)
        odds = np.exp(scores - most[groups])
        sums = np.add.reduceat(odds, starts)
        value = worth @ (np.log(sums) + most - np.add.reduceat(wanted * scores, starts))
        slope = matrix.T @ ((odds / sums[groups] - wanted) * worth[groups])
        return value + _PENALTY * weights @ weights, slope + 2 * _PENALTY * weights

    return minimise(loss, np.zeros(len(columns)))


def minimise(loss: Any, start: NDArray[np.float64], steps: int = 200) -> NDArray[np.float64]:
    """Return where a smooth loss is least, by L-BFGS."""
    at, (value, slope) = start, loss(start)
    past: list[tuple[NDArray[np.float64], NDArray[np.float64], float]] = []
    for _ in range(steps):
        direction = -_curved(slope, past)
        size, fall = 1.0, float(slope @ direction)
        while True:
            there = at + size * direction
            new_value, new_slope = loss(there)
            if new_value <= value + 1e-4 * size * fall or size < 1e-8:
                break
            size /= 2
        moved, turned = there - at, new_slope - slope
        if abs(value - new_value) < 1e-9 * max(1.0, abs(value)):
            return there
        at, value, slope = there, new_value, new_slope
        if (curve := float(moved @ turned)) > 1e-12:
            past = [*past[-9:], (moved, turned, 1 / curve)]
    return at


def _curved(
    slope: NDArray[np.float64],
    past: Sequence[tuple[NDArray[np.float64], NDArray[np.float64], float]],
) -> NDArray[np.float64]:
    turned = slope.copy()
    shares: list[float] = []
    for moved, change, rate in reversed(past):
        share = rate * float(moved @ turned)
        turned -= share * change
        shares.append(share)
    if past:
        moved, change, _ = past[-1]
        turned *= float(moved @ change) / float(change @ change)
    for (moved, change, rate), share in zip(past, reversed(shares), strict=True):
        turned += moved * (share - rate * float(change @ turned))
    return turned


# -- figures ---------------------------------------------------------------------------------------


def folds(asked: Sequence[Asked]) -> list[int]:
    """Return a index for each question; those of one conversation have the same."""
    fold: dict[tuple[str, str], int] = {}
    for file in sorted({one.file for one in asked}):
        names = sorted({one.conversation for one in asked if one.file == file})
        fold |= {(file, name): number % FOLDS for number, name in enumerate(names)}
    return [fold[one.file, one.conversation] for one in asked]


def judged(
    asked: Sequence[Asked], columns: Sequence[int], fixed: Fixed
) -> list[NDArray[np.float64]]:
    """Return the scores of candidates by weights that have not seen their conversation."""
    fold = folds(asked)
    scores: list[Any] = [None] * len(asked)
    for number in range(FOLDS):
        seen = [one for one, at in zip(asked, fold, strict=True) if at != number]
        weights = fit(seen, columns, fixed)
        for place, (one, at) in enumerate(zip(asked, fold, strict=True)):
            if at == number:
                scores[place] = one.signals[:, columns] @ weights + _given(one, fixed)
    return scores


def figures(one: Asked, scores: NDArray[np.float64]) -> dict[str, float]:
    """Return recall among the first 1, 5, 10 and 20, and the reciprocal rank."""
    hit = one.right[np.argsort(-scores, kind="stable")]
    first = np.flatnonzero(hit)
    found = {f"R@{most}": float(hit[:most].sum()) / one.answers for most in (1, 5, 10, 20)}
    return found | {"MRR": 1 / (int(first[0]) + 1) if len(first) else 0.0}


def table(title: str, asked: Sequence[Asked], scores: Sequence[NDArray[np.float64]]) -> None:
    """Print figures by file and category."""
    rows = [(one, figures(one, some)) for one, some in zip(asked, scores, strict=True)]
    print(f"\n{title}\n{'':34}{'n':>5}  " + "".join(f"{name:>7}" for name in rows[0][1]))
    for file in sorted({one.file for one in asked}):
        mine = [(one, some) for one, some in rows if one.file == file]
        _line(file, [some for one, some in mine if one.category not in APART])
        for category in sorted({one.category for one, _ in mine}):
            apart = " (apart)" if category in APART else ""
            _line(f"  {category}{apart}", [some for one, some in mine if one.category == category])


def _line(name: str, rows: Sequence[dict[str, float]]) -> None:
    services = [math.fsum(row[key] for row in rows) / len(rows) for key in rows[0]]
    print(f"{name:34}{len(rows):>5}  " + "".join(f"{mean:7.3f}" for mean in services))


def _signals(
    data: Sequence[Path], encoder: str, keep: Path | None
) -> tuple[list[str], list[Asked]]:
    if keep is not None and keep.exists():
        return pickle.loads(keep.read_bytes())
    names: list[str] = []
    asked: list[Asked] = []
    for path in data:
        names, some = collect(path, encoder)
        asked += some
    if keep is not None:
        keep.write_bytes(pickle.dumps((names, asked)))
    return names, asked


def main() -> None:
    """Fit, print figures, and write the weights if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", nargs="+", type=Path, help="files of conversations with questions")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--leave-out", default="", help="signals to do without, by commas")
    parser.add_argument("--write", action="store_true", help=f"write {WEIGHTS.name}")
    parser.add_argument("--keep", type=Path, help="keep the signals here, or read them from there")
    given = parser.parse_args()
    names, asked = _signals(given.data, given.encoder, given.keep)
    left_out = {one for one in str(given.leave_out).split(",") if one}
    written: dict[str, dict[str, float]] = {}
    for kind, without in (("with", left_out), ("without", left_out | set(_ENCODED))):
        fixed = {names.index(name): weight for name, weight in _FIXED.items()}
        columns = [
            place for place, name in enumerate(names) if name not in without and place not in fixed
        ]
        title = f"{kind} the encoder"
        table(f"{title}, cross-validated", asked, judged(asked, columns, fixed))
        weights = fit(asked, columns, fixed)
        scores = [one.signals[:, columns] @ weights + _given(one, fixed) for one in asked]
        table(f"{title}, as fitted", asked, scores)
        written[kind] = _FIXED | {
            names[place]: round(float(weight), 3)
            for place, weight in zip(columns, weights, strict=True)
        }
    print(json.dumps(written, indent=1))
    if given.write:
        about = (
            "Fitted by python -m bench.search_fit on "
            + ", ".join(path.name for path in given.data)
            + "; one set for all."
        )
        WEIGHTS.write_text(json.dumps({"about": about, "weights": written}, indent=1) + "\n")


if __name__ == "__main__":
    main()
