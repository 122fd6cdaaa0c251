"""Static token vectors: how near two texts are in meaning, in microseconds and without a model.

A text's vector is the mean of its tokens' vectors, kept as 256 signed bytes. The weights and the
tokenizer come as data files in the package `wordllama`, of which no code is run.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

SIZE = 256
"""How many bytes a vector has."""

WEIGHTS_FILE = "weights/l2_supercat_256.safetensors"
TOKENIZER_FILE = "tokenizers/l2_supercat_tokenizer_config.json"
_MOST_CHARACTERS = 16_000
"""Some four thousand tokens; what comes later changes the mean of a text little."""
_ROWS = 16_384
"""Vectors compared in one go: 16 MB as floats."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """What the tokens of a text tell."""

    vector: bytes
    """Zeros for a text without words."""
    weight: float
    """The lengths of its tokens' vectors together: those of common words are short."""
    tokens: int


NOTHING_READ = Reading(bytes(SIZE), 0.0, 0)


class Encoder:
    """Makes vectors of texts with the data files of a package, read when first needed."""

    def __init__(self, package: str = "wordllama") -> None:
        self._package = package
        self._lock = threading.Lock()
        self._tried = False
        self._weights: _Weights | None = None

    def embed(self, texts: Sequence[str]) -> list[bytes] | None:
        """Return a vector for each text, zeros for one without words; None without the weights."""
        weights = self._load()
        return None if weights is None else [weights.read(text).vector for text in texts]

    def read(self, text: str) -> Reading | None:
        """Return what the tokens of a text tell; None without the weights."""
        weights = self._load()
        return None if weights is None else weights.read(text)

    def _load(self) -> _Weights | None:
        if self._tried:
            return self._weights
        with self._lock:
            if not self._tried:
                try:
                    self._weights = _read(self._package)
                except Exception as error:  # noqa: BLE001 - what the tokenizer raises has no class
                    _log.warning(
                        "There are no static vectors, since %r cannot be read (%s): what is alike "
                        "is found by words alone. Install it to have them.",
                        self._package,
                        error,
                    )
                self._tried = True
        return self._weights


_encoder = Encoder()


def embed(texts: Sequence[str]) -> list[bytes] | None:
    """Return a vector for each text, zeros for one without words; None without the weights."""
    return _encoder.embed(texts)


def read(text: str) -> Reading | None:
    """Return what the tokens of a text tell; None without the weights."""
    return _encoder.read(text)


def cosine(a: bytes, b: bytes) -> float:
    """Return how near two vectors are, from -1 to 1; 0 if one is all zeros or of another size."""
    import numpy as np

    if len(a) != len(b) or not a:
        return 0.0
    one, two = (np.frombuffer(each, dtype=np.int8).astype(np.float32) for each in (a, b))
    norms = float(np.linalg.norm(one)) * float(np.linalg.norm(two))
    return min(1.0, max(-1.0, float(one @ two) / norms)) if norms else 0.0


def nearest(query: bytes, vectors: Sequence[bytes], most: int) -> list[tuple[int, float]]:
    """Return the places of the nearest vectors with their cosines, the nearest first."""
    import numpy as np

    if most < 1 or not vectors or not query:
        return []
    wanted = np.frombuffer(query, dtype=np.int8).astype(np.float32)
    length = float(np.linalg.norm(wanted))
    if not length:
        return []
    scores = np.empty(len(vectors), dtype=np.float32)
    for first in range(0, len(vectors), _ROWS):
        some = vectors[first : first + _ROWS]
        rows = np.frombuffer(b"".join(some), dtype=np.int8).reshape(len(some), -1)
        floats = rows.astype(np.float32)
        norms = np.sqrt(np.einsum("ij,ij->i", floats, floats))
        scores[first : first + len(some)] = floats @ wanted / np.maximum(norms * length, 1e-9)
    most = min(most, len(vectors))
    kept = np.argpartition(-scores, most - 1)[:most]
    # Equal scores come in the order of the vectors, so that an answer does not change by itself.
    kept = kept[np.lexsort((kept, -scores[kept]))]
    return [(int(place), float(scores[place])) for place in kept]


@dataclass(frozen=True, slots=True)
class _Weights:
    tokenizer: Tokenizer
    table: NDArray[np.float16]
    lengths: NDArray[np.float32]
    """How long each row of the table is, as far as it was used; else zero."""

    def read(self, text: str) -> Reading:
        import numpy as np

        # The tokenizer takes no lone surrogates.
        clean = text[:_MOST_CHARACTERS]
        if not clean.isascii():
            clean = clean.encode("utf-8", "replace").decode("utf-8")
        tokens = self.tokenizer.encode(" ".join(clean.split()), add_special_tokens=False).ids
        if not tokens:
            return NOTHING_READ
        total = self.table.take(tokens, axis=0).sum(axis=0, dtype=np.float32)
        largest = max(float(total.max()), -float(total.min()))
        if not largest:
            return NOTHING_READ
        weight = float(self._lengths_of(tokens).sum())
        # Only the direction counts, so each vector uses the whole range of a byte.
        vector = np.rint(total * (127 / largest)).astype(np.int8).tobytes()
        return Reading(vector, weight, len(tokens))

    def _lengths_of(self, tokens: list[int]) -> NDArray[np.float32]:
        import numpy as np

        found = self.lengths.take(tokens)
        if not found.all():
            rows = self.table.take(tokens, axis=0).astype(np.float32)
            found = np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), 1e-9)
            self.lengths[tokens] = found
        return found


def _read(package: str) -> _Weights:
    import numpy as np
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import Split

    # `find_spec` of a top-level package finds its folder without running it.
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ImportError(f"there is no package {package!r}")
    folder = Path(spec.origin).parent
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # By itself this tokenizer takes a whole text for one word and remembers ten thousand of them.
    tokenizer.pre_tokenizer = Split("\u2581", "merged_with_next")
    table = _table(folder / WEIGHTS_FILE)
    return _Weights(tokenizer, table, np.zeros(len(table), dtype=np.float32))


def _table(path: Path) -> NDArray[np.float16]:
    """Map the one table of a safetensors file into memory, so that only the rows in use are read.

    The format: the header's length in eight bytes, the header in JSON, the tables
    (https://huggingface.co/docs/safetensors, 2026-11). The library `safetensors` would copy it.
    """
    import numpy as np

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > 1_000_000:
            raise ValueError(f"{path.name} is no safetensors file")
        header: dict[str, Any] = json.loads(file.read(length))
    entry = header["embedding.weight"]
    if entry["dtype"] != "F16" or entry["shape"][1] != SIZE:
        raise ValueError(f"{path.name} holds {entry['dtype']} {entry['shape']}")
    rows, columns = entry["shape"]
    offset = 8 + length + entry["data_offsets"][0]
    mapped = np.memmap(path, dtype="<f2", mode="r", offset=offset, shape=(rows, columns))
    # The class of mapped arrays costs more at each use than what is done with a few rows.
    return np.asarray(mapped)
