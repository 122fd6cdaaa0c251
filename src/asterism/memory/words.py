"""Words of a text in any script, and a digest that ignores case, spacing and punctuation."""

from __future__ import annotations

import json
import logging
import re
import threading
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asterism.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer


def word_set(text: str) -> frozenset[str]:
    """Return the words of a list that is written as one text."""
    return frozenset(text.split())


STOP_WORDS = word_set(
    "a an the this that these those and or but so as if of to in on at by for from with about"
    " into is are was were be been being am 's do does did has have had will would shall it"
    " its he she they them his her their i me my we us our you your there here then than too"
    " very just also really quite some any again"
)
"""English words that say little by themselves; negations are not among them."""

# Scripts that are written without spaces between words.
_UNSPACED = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul: spaced, but the particles hang on the nouns
    "\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_NUMBER = r"(?<![^\W\d])[-\u2212]?\d+(?:[.,:/\-]\d+)*"
_ASCII = re.compile(
    rf"(?<!\S){_NUMBER}|\d+(?:[.,:/\-]\d+)*|[a-z](?:[a-z0-9]|'(?=[a-z]))*[+#]*|[$%]"
)
_APOSTROPHES = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u2018": "'", "\u2212": "-"})
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def words(text: str) -> list[str]:
    """Return the words of a text as they are compared: any script, one case, one way to write.

    Numbers keep their points, colons and dashes (`3.5`, `14:30`, `2026-07-04`), signs of money,
    per cent and pictures are words, and scripts without spaces are cut into pairs.
    """
    if text.isascii():
        result = _ASCII.findall(text.lower())
        return [_THOUSANDS.sub("", word) if "," in word else word for word in result]
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    result: list[str] = []
    hidden, word = _patterns()
    for match in word.finditer(hidden.sub("", plain.translate(_APOSTROPHES))):
        word = match[0]
        if match.lastgroup == "unspaced":
            result.extend(_pairs(word))
        elif "," in word:
            result.append(_THOUSANDS.sub("", word))
        else:
            result.append(word)
    return result


def terms(text: str) -> list[str]:
    """Return the words of a text that carry meaning, plurals and possessives folded."""
    return [singular(word) for word in words(text) if word not in STOP_WORDS]


def singular(word: str) -> str:
    """Return an English word without the ending of a plural, a possessive or a third person."""
    word = word.removesuffix("'s")
    if len(word) < 4 or word[-1] != "s" or not word.isalpha():
        return word
    if word.endswith(("ss", "us", "is", "as", "news")):
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes", "oes")):
        return word[:-2]
    return word[:-1]


def digest(text: str) -> str:
    """Return the SHA-256 of a text's words: equal whatever its spacing, case and punctuation."""
    word_list = words(text)
    # A text without a word, such as "?!", is known by its characters.
    parts = word_list or unicodedata.normalize("NFKC", text).split()
    return sha256("\x1f".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _pairs(run: str) -> list[str]:
    if len(run) < 3:
        return [run]
    return [run[at : at + 2] for at in range(len(run) - 1)]


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of signs that show nothing (joiners, directions) and that of a word.

    They are made when first needed, as that looks at every character there is.
    """
    classes = _classes()
    marks, symbols = classes["M"], classes["S"]
    letter = rf"(?:(?![{_UNSPACED}])[^\W\d_])"
    inner = rf"(?:(?![{_UNSPACED}])[^\W_]|[{marks}]|'(?=[^\W\d_]))"
    word = re.compile(
        rf"(?P<unspaced>(?:[{_UNSPACED}][{marks}]*)+)"
        rf"|(?P<number>(?<!\S){_NUMBER}|\d+(?:[.,:/\-]\d+)*)"
        rf"|(?P<word>{letter}{inner}*[+#]*)"
        rf"|(?P<sign>[$%{symbols}])"
    )
    return re.compile(f"[{classes['C']}]+"), word


def _classes() -> dict[str, str]:
    """Return marks, symbols and signs that show nothing in the form of character classes."""
    kinds = {"Mn": "M", "Mc": "M", "Me": "M", "So": "S", "Sc": "S", "Cf": "C"}
    ranges_by_kind: dict[str, list[list[int]]] = {"M": [], "S": [], "C": []}
    for code in (*range(0x80, 0x3100), *range(0xA000, 0x10000), *range(0x1F000, 0x1FB00)):
        kind = kinds.get(unicodedata.category(chr(code)))
        if kind is None:
            continue
        ranges = ranges_by_kind[kind]
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return {
        kind: "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
        for kind, ranges in ranges_by_kind.items()
    }


SIZE = 256
"""How many bytes a vector has."""

WEIGHTS_FILE = "weights/l2_supercat_256.safetensors"
TOKENIZER_FILE = "tokenizers/l2_supercat_tokenizer_config.json"
_MAX_CHARACTERS = 16_000
"""Some four thousand tokens; what comes later changes the mean of a text little."""
_ROWS = 16_384
"""Vectors compared in one go: 16 MB as floats."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenSummary:
    """The vector of a text and the weight of its tokens."""

    vector: bytes
    """Zeros for a text without words."""
    weight: float
    """The lengths of its tokens' vectors together: those of common words are short."""
    tokens: int


NO_TOKENS = TokenSummary(bytes(SIZE), 0.0, 0)


class StaticEncoder:
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

    def read(self, text: str) -> TokenSummary | None:
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


_encoder = StaticEncoder()


def embed(texts: Sequence[str]) -> list[bytes] | None:
    """Return a vector for each text, zeros for one without words; None without the weights."""
    return _encoder.embed(texts)


def read(text: str) -> TokenSummary | None:
    """Return what the tokens of a text tell; None without the weights."""
    return _encoder.read(text)


def cosine(a: bytes, b: bytes) -> float:
    """Return how near two vectors are, from -1 to 1; 0 if one is all zeros or of another size."""
    import numpy as np

    if len(a) != len(b) or not a:
        return 0.0
    first, second = (np.frombuffer(each, dtype=np.int8).astype(np.float32) for each in (a, b))
    norms = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return min(1.0, max(-1.0, float(first @ second) / norms)) if norms else 0.0


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
    best = np.argpartition(-scores, most - 1)[:most]
    # Equal scores come in the order of the vectors, so that an answer does not change by itself.
    best = best[np.lexsort((best, -scores[best]))]
    return [(int(place), float(scores[place])) for place in best]


@dataclass(frozen=True, slots=True)
class _Weights:
    tokenizer: Tokenizer
    table: NDArray[np.float16]
    lengths: NDArray[np.float32]
    """The length of each row of the table that was used; zero for the others."""

    def read(self, text: str) -> TokenSummary:
        import numpy as np

        # The tokenizer takes no lone surrogates.
        clean = text[:_MAX_CHARACTERS]
        if not clean.isascii():
            clean = clean.encode("utf-8", "replace").decode("utf-8")
        tokens = self.tokenizer.encode(" ".join(clean.split()), add_special_tokens=False).ids
        if not tokens:
            return NO_TOKENS
        total = self.table.take(tokens, axis=0).sum(axis=0, dtype=np.float32)
        largest = max(float(total.max()), -float(total.min()))
        if not largest:
            return NO_TOKENS
        weight = float(self._lengths_of(tokens).sum())
        # Only the direction counts, so each vector uses the whole range of a byte.
        vector = np.rint(total * (127 / largest)).astype(np.int8).tobytes()
        return TokenSummary(vector, weight, len(tokens))

    def _lengths_of(self, tokens: list[int]) -> NDArray[np.float32]:
        import numpy as np

        lengths = self.lengths.take(tokens)
        if not lengths.all():
            rows = self.table.take(tokens, axis=0).astype(np.float32)
            lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", rows, rows)), 1e-9)
            self.lengths[tokens] = lengths
        return lengths


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
            raise ValueError(f"{path.name} is not a safetensors file")
        header: dict[str, Any] = json.loads(file.read(length))
    entry = header["embedding.weight"]
    if entry["dtype"] != "F16" or entry["shape"][1] != SIZE:
        raise ValueError(f"{path.name} holds {entry['dtype']} {entry['shape']}")
    rows, columns = entry["shape"]
    offset = 8 + length + entry["data_offsets"][0]
    mapped = np.memmap(path, dtype="<f2", mode="r", offset=offset, shape=(rows, columns))
    # The class of mapped arrays costs more at each use than what is done with a few rows.
    return np.asarray(mapped)
