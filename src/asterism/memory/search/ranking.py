"""The ranking: a weighted sum of signals, with weights that `python -m bench.search_fit` fits."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from asterism.memory.search.signals import Signals
    from asterism.memory.search.view import Floats

_FILE = "weights.json"


@lru_cache(1)
def weights() -> dict[str, dict[str, float]]:
    """Return the weights of signals, `with` and `without` an encoder."""
    text = files("asterism.memory.search").joinpath(_FILE).read_bytes()
    return orjson.loads(text)["weights"]


def score(found: Signals, *, encoded: bool) -> Floats:
    """Return one score a text."""
    return found.summed(weights()["with" if encoded else "without"])
