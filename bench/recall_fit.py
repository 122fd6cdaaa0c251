"""Fit what tells a relevant hit from noise: `python -m bench.recall_fit A.json B.json`.

Needs files of conversations with questions, in the form of `bench/README.md`. Each conversation is
asked its own questions, questions of other conversations, to which it has no answer, and small
talk. A logistic model on the features of relevance in `search/signals.py` is fitted by weighted
cross-entropy with a penalty for large weights; the ranking stays as it is. Figures are by
cross-validation over conversations.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import random
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
from asterism.search.rank import features_of
from asterism.search.search import QueryVector, names_for, prepare
from asterism.search.signals import FEATURES, FEATURES_OF_FEW, relevance_weights_name
from asterism.types.agents import OWNER_ALONE
from asterism.types.search import Query
from bench.adapters.memory import Memory, milliseconds
from bench.dialogues import APART, Conversation, load, made
from bench.search_fit import FOLDS, minimise
from bench.small_talk import FITTED, MEASURED

WEIGHTS = Path(__file__).parent.parent / "src/asterism/search/relevance.json"
HITS, _DEPTH = 6, 10
_FOREIGN = 60
"""How many questions of other conversations each is asked."""
_PENALTY = 2e-4
_NOT_FITTED = APART
_SHARE = {"own": 1.0, "beside": 0.05, "foreign": 0.15, "talk": 1.0}
"""What the kinds of hits count: what answers a question, what was found beside it … The two in the
middle count little, as such a hit may well be worth telling."""
OWN, FOREIGN, TALK, MEASURED_TALK = "own", "foreign", "talk", "measured"


@dataclass(slots=True)
class Asked:
    """Something asked of a memory, with the features of the first hits."""

    file: str
    conversation: str
    kind: str
    category: str
    text: str
    with_encoder: list[dict[str, float]]
    right_with: list[bool]
    without_encoder: list[dict[str, float]]
    right_without: list[bool]

    def hits(self, kind: str) -> tuple[list[dict[str, float]], list[bool]]:
        """Return features of hits `with` or `without` the encoder, and which answer."""
        if kind == "with":
            return self.with_encoder, self.right_with
        return self.without_encoder, self.right_without


def collect(
    name: str, conversations: Sequence[Conversation], others: Sequence[Conversation], encoder: str
) -> list[Asked]:
    """Ask all conversations of a file."""
    asked: list[Asked] = []
    for conversation in conversations:
        with tempfile.TemporaryDirectory(prefix="asterism-fit-") as place:
            memory = Memory(place, encoder=encoder)
            try:
                for session in conversation.sessions:
                    memory.ingest(session)
                memory.finish()
                asked += memory.run(_ask(memory, name, conversation, others))
            finally:
                memory.close()
        print(f"{name} {conversation.id}: {len(asked)} asked", file=sys.stderr, flush=True)
    return asked


def _questions(
    conversation: Conversation, others: Sequence[Conversation]
) -> list[tuple[str, str, str, list[str]]]:
    """Return what is asked: kind, category, text, the messages that answer it."""
    dice = random.Random(conversation.id)
    foreign = [
        question
        for other in others
        if other.id != conversation.id
        for question in other.questions
        if question.category not in APART
    ]
    return [
        *(
            (OWN, question.category, question.text, question.gold)
            for question in conversation.questions
            if question.gold
        ),
        *(
            (FOREIGN, question.category, question.text, [])
            for question in dice.sample(foreign, min(_FOREIGN, len(foreign)))
        ),
        *((TALK, TALK, text, []) for text in FITTED),
        *((MEASURED_TALK, TALK, text, []) for text in MEASURED),
    ]


async def _ask(
    memory: Memory, file: str, conversation: Conversation, others: Sequence[Conversation]
) -> list[Asked]:
    home, agent = memory.home, memory.agent
    wanted = home.settings.search.encoder
    encoder = None if wanted == "none" else make_encoder(home.settings, wanted)
    names = await home.database.read(lambda tx: names_for(tx, agent.id))
    now = milliseconds(conversation.messages[-1].time)
    found: list[Asked] = []
    for kind, category, text, gold in _questions(conversation, others):
        vector = None
        if encoder is not None:
            vector = QueryVector(encoder.name, await encode_question(encoder, text, names))
        right = [memory.number_of(id) for id in gold]

        async def read(
            tx: Any, text: str = text, right: list[int] = right, vector: Any = vector
        ) -> Any:
            query = Query(text, domains=("messages",))
            ranker = await prepare(tx, agent.id, query, participants=OWNER_ALONE, now=now)
            made: list[Any] = []
            for asked in (vector, None):
                ranking = await ranker.rank(asked)
                rows = [int(row) for row in ranking.rows[:_DEPTH]]
                some = [features_of(ranker, ranking, row) for row in rows]
                made.append([one for one in some if one is not None])
                made.append([int(ranker.candidates.texts.numbers[row]) in right for row in rows])
            return made

        found.append(
            Asked(file, conversation.id, kind, category, text, *await home.database.read(read))
        )
    return found


# -- fitting ---------------------------------------------------------------------------------------


def fit(asked: Sequence[Asked], kind: str, names: Sequence[str]) -> NDArray[np.float64]:
    """Return the weights of features by their names, and the constant as the last."""
    rows, right, worth = _matrix(asked, kind, names)
    middle, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
    matrix = np.hstack([(rows - middle) / spread, np.ones((len(rows), 1))])

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        odds = matrix @ weights
        value = float(worth @ (np.logaddexp(0, odds) - right * odds))
        slope = matrix.T @ (worth * (1 / (1 + np.exp(-odds)) - right))
        held = np.append(weights[:-1], 0.0)
        return value + _PENALTY * float(held @ held), slope + 2 * _PENALTY * held

    found = minimise(loss, np.zeros(len(names) + 1))
    weights = found[:-1] / spread
    return np.append(weights, found[-1] - weights @ middle)


def _matrix(
    asked: Sequence[Asked], kind: str, names: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    rows: list[list[float]] = []
    right: list[bool] = []
    groups: list[tuple[str, str]] = []
    for one in asked:
        if one.kind == MEASURED_TALK or (one.kind == OWN and one.category in _NOT_FITTED):
            continue
        hits, answers = one.hits(kind)
        for hit, answer in zip(hits[:HITS], answers, strict=False):
            rows.append([hit[name] for name in names])
            right.append(answer)
            groups.append((one.file, "beside" if one.kind == OWN and not answer else one.kind))
    sizes = {group: groups.count(group) for group in set(groups)}
    worth = np.array([_SHARE[group[1]] / sizes[group] for group in groups])
    return np.array(rows), np.array(right, dtype=np.float64), worth / worth.sum()


def judge(hits: Sequence[dict[str, float]], names: Sequence[str], weights: Any) -> list[float]:
    """Return the probability of each hit."""
    totals = [
        float(weights[-1])
        + sum(hit[name] * weight for name, weight in zip(names, weights[:-1], strict=True))
        for hit in hits
    ]
    return [1 / (1 + math.exp(-total)) for total in totals]


def cross_validated(asked: Sequence[Asked], kind: str, names: Sequence[str]) -> list[list[float]]:
    """Return the probabilities of hits by weights that have not seen their conversation."""
    conversations = sorted({(one.file, one.conversation) for one in asked})
    fold = {name: number % FOLDS for number, name in enumerate(conversations)}
    judged: list[list[float]] = [[] for _ in asked]
    for number in range(FOLDS):
        weights = fit(
            [one for one in asked if fold[one.file, one.conversation] != number], kind, names
        )
        for place, one in enumerate(asked):
            if fold[one.file, one.conversation] == number:
                judged[place] = judge(one.hits(kind)[0], names, weights)
    return judged


def table(asked: Sequence[Asked], judged: Sequence[list[float]], kind: str) -> None:
    """Print for some thresholds how often something is told, and how often it answers."""
    titles = ("answered", "hits", "precise", FOREIGN, TALK, MEASURED_TALK)
    print(f"{'threshold':>10}  {'file':12}" + "".join(f"{title:>9}" for title in titles))
    for threshold in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8):
        for file in sorted({one.file for one in asked}):
            mine = [
                (one, [place for place, odd in enumerate(odds) if odd >= threshold][:HITS])
                for one, odds in zip(asked, judged, strict=True)
                if one.file == file and not (one.kind == OWN and one.category in APART)
            ]
            figures = _figures(mine, kind)
            print(f"{threshold:10.1f}  {file:12}" + "".join(f"{one:9.3f}" for one in figures))


def _figures(told: Sequence[tuple[Asked, list[int]]], kind: str) -> list[float]:
    own = [(one.hits(kind)[1], places) for one, places in told if one.kind == OWN]
    hits = sum(len(places) for _, places in own)
    right = sum(answers[place] for answers, places in own for place in places)
    answered = sum(any(answers[place] for place in places) for answers, places in own)
    rest = (
        [bool(places) for one, places in told if one.kind == other]
        for other in (FOREIGN, TALK, MEASURED_TALK)
    )
    shares = [sum(some) / max(len(some), 1) for some in rest]
    return [answered / len(own), hits / len(own), right / max(hits, 1), *shares]


def main() -> None:
    """Fit, print figures, and write the weights if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", nargs="*", type=Path, help="files of conversations with questions")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument("--write", action="store_true", help=f"write {WEIGHTS.name}")
    parser.add_argument("--keep", type=Path, help="keep features in this folder, or read them")
    given = parser.parse_args()
    data = {"made up": made()} | {path.stem: load(path) for path in given.data}
    others = [one for some in data.values() for one in some]
    asked: list[Asked] = []
    for name, conversations in data.items():
        kept = given.keep / f"{name}.pickle" if given.keep is not None else None
        if kept is not None and kept.exists():
            asked += pickle.loads(kept.read_bytes())
            continue
        some = collect(name, conversations, others, given.encoder)
        if kept is not None:
            kept.write_bytes(pickle.dumps(some))
        asked += some
    written: dict[str, dict[str, float]] = {}
    for few, features in ((False, FEATURES), (True, FEATURES_OF_FEW)):
        for kind in ("with", "without"):
            names = [name for name in features if kind == "with" or name != "encoded"]
            title = relevance_weights_name(encoded=kind == "with", few=few)
            print(f"\n{title}, cross-validated")
            table(asked, cross_validated(asked, kind, names), kind)
            written[title] = {
                name: round(float(weight), 4)
                for name, weight in zip((*names, "constant"), fit(asked, kind, names), strict=True)
            }
    print(json.dumps(written, indent=1))
    if given.write:
        about = "Fitted by python -m bench.recall_fit on " + ", ".join(
            [*(path.name for path in given.data), "small talk."]
        )
        WEIGHTS.write_text(json.dumps({"about": about, "weights": written}, indent=1) + "\n")


if __name__ == "__main__":
    main()
