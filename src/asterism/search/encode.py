"""Encoders, which give texts of one meaning vectors that are near, and the stored vectors.

Every encoder that fits the port will do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from asterism.ports import Encoder
from asterism.search.index import IndexSnapshot, cache, fingerprint
from asterism.store import search_index
from asterism.store.database import Connection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Encoder", "encode_question", "encode_texts", "pieces", "quantize", "without"]

_SPARE_ROWS = 512
"""Room for texts that are added after the vectors of an index were read."""


async def encode_texts(
    encoder: Encoder, texts: Sequence[str], names: Iterable[str] = ()
) -> NDArray[np.int8]:
    """Return a vector of signed bytes for each text, a row each; zeros for one without words.

    Args:
        encoder: The encoder.
        texts: The original texts.
        names: The speakers, whose names are left out.
    """
    return quantize(await _encode(encoder, texts, names))


async def encode_question(
    encoder: Encoder, question: str, names: Iterable[str] = ()
) -> NDArray[np.float32]:
    """Return the vector of a question, of length 1, or zeros if there is no word in it."""
    return (await _encode(encoder, [question], names, question=True))[0]


async def _encode(
    encoder: Encoder, texts: Sequence[str], names: Iterable[str], *, question: bool = False
) -> NDArray[np.float32]:
    """Return the mean of the vectors of each text's pieces."""
    import numpy as np

    taken_out = list(names)
    parts = [pieces(without(taken_out, text)) for text in texts]
    flat = [part for some in parts for part in some]
    # Where there is no word, a sign tells the size that vectors have.
    result = await encoder.encode(flat or ["."], question=question)
    output = np.zeros((len(texts), result.shape[1]), dtype=np.float32)
    at = 0
    for row, some in enumerate(parts):
        if some:
            output[row] = result[at : at + len(some)].mean(axis=0)
        at += len(some)
    lengths = np.linalg.norm(output, axis=1, keepdims=True)
    output /= np.where(lengths > 0, lengths, 1)
    return output


def quantize(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return vectors as signed bytes; only the direction counts, so each uses the whole range."""
    import numpy as np

    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    return np.rint(vectors * (127 / np.where(largest > 0, largest, 1))).astype(np.int8)


MAX_PIECES = 4
"""Later pieces of a text change the mean little, and cost as much."""
_MAX_WORDS = 90
_MAX_CHARACTERS = 16_000
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|(?<=[。！？])|\n+")
_SPACES = re.compile(r"[^\S\n]+")
# Where words are not told apart by spaces, a model reads about a sign at a time.
_SIGNS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U000323af"
)
"""Thai, Lao, Burmese, Khmer, kana and Han."""
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
"""Marks that are part of a word; `\\w` has letters alone."""
_WORD = re.compile(rf"[{_SIGNS}]|[\w{_MARKS}]+")


def pieces(text: str) -> list[str]:
    """Return the parts of a text that are encoded; its vector is the mean of theirs."""
    result: list[str] = []
    sentences: list[str] = []
    size = 0
    for sentence, words in _sentences(text[:_MAX_CHARACTERS]):
        if sentences and size + words > _MAX_WORDS:
            result.append(" ".join(sentences))
            sentences, size = [], 0
            if len(result) == MAX_PIECES:
                return result
        sentences.append(sentence)
        size += words
    if sentences:
        result.append(" ".join(sentences))
    return result[:MAX_PIECES]


def without(names: Iterable[str], text: str) -> str:
    """Return a text without the names of speakers, since speakers are a signal of their own."""
    # Few of many names are in a text, and to look for them so is quick.
    casefolded = text.casefold()
    wanted = {name for name in names if name.strip() and name.casefold() in casefolded}
    if wanted:
        joined = "|".join(map(re.escape, sorted(wanted, key=len, reverse=True)))
        text = re.sub(rf"(?<!\w)(?:{joined})(?:['’]s)?(?!\w)", "", text, flags=re.IGNORECASE)
    return _SPACES.sub(" ", text).strip()


def _sentences(text: str) -> Iterator[tuple[str, int]]:
    """Yield sentences with the number of their words; a very long one comes in several parts."""
    for sentence in _SENTENCE_END.split(text):
        clean = " ".join(sentence.split())
        starts = [match.start() for match in _WORD.finditer(clean)]
        for first in range(0, len(starts), _MAX_WORDS):
            some = starts[first : first + _MAX_WORDS + 1]
            begin = some[0] if first else 0
            end = some[-1] if len(some) > _MAX_WORDS else len(clean)
            yield clean[begin:end].strip(), min(len(some), _MAX_WORDS)
        if clean and not starts:
            yield clean, 1


# -- vectors of encoders ---------------------------------------------------------------------------


async def encode_rows(
    tx: Connection, loaded: Sequence[IndexSnapshot], encoder: str
) -> tuple[NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]] | None:
    """Return an encoder's vectors for the rows of the concatenation, which have one, and how long.

    None: none has.
    """
    import numpy as np

    there: dict[int, dict[int, int]] = {}
    ids = [snapshot.index_id for snapshot in loaded if snapshot.index_id is not None]
    for index_id, first, output in await search_index.embeddings(tx, ids, encoder):
        there.setdefault(index_id, {})[first] = output
    parts = [
        await _vectors_of(tx, snapshot, encoder, there[snapshot.index_id])
        if snapshot.index_id is not None and snapshot.index_id in there
        else None
        for snapshot in loaded
    ]
    sizes = [part[0].shape[1] for part in parts if part is not None]
    if not sizes:
        return None
    size = max(sizes)
    if len(parts) == 1 and parts[0] is not None:
        return parts[0]
    vectors = np.zeros((sum(len(snapshot.texts) for snapshot in loaded), size), dtype=np.int8)
    has = np.zeros(len(vectors), dtype=np.bool_)
    norms = np.zeros(len(vectors), dtype=np.float32)
    start = 0
    for snapshot, part in zip(loaded, parts, strict=True):
        if part is not None and part[0].shape[1] == size:
            vectors[start : start + len(snapshot.texts)] = part[0]
            has[start : start + len(snapshot.texts)] = part[1]
            norms[start : start + len(snapshot.texts)] = part[2]
        start += len(snapshot.texts)
    return vectors, has, norms


async def _vectors_of(
    tx: Connection, snapshot: IndexSnapshot, encoder: str, there: dict[int, int]
) -> tuple[NDArray[np.int8], NDArray[np.bool_], NDArray[np.float32]] | None:
    import numpy as np

    assert snapshot.index_id is not None
    count = len(snapshot.texts)
    known = snapshot.inner.encoded.get(encoder)
    # Texts that were added since have none: there is room for some of them.
    if known is not None and known[0] == there and len(known[1]) >= count:
        return known[1][:count], known[2][:count], known[3][:count]
    vectors: NDArray[np.int8] | None = None
    room = count + _SPARE_ROWS
    has = np.zeros(room, dtype=np.bool_)
    norms = np.zeros(room, dtype=np.float32)
    for first in there:
        row = await search_index.embedding(tx, snapshot.index_id, encoder, first)
        read = None if row is None else unpack_vectors(*row)
        if read is None or (vectors is not None and read[1].shape[1] != vectors.shape[1]):
            continue
        if vectors is None:
            vectors = np.zeros((room, read[1].shape[1]), dtype=np.int8)
        numbers = read[0].astype(np.int64) + first
        rows = snapshot.texts.numbers.searchsorted(numbers)
        known_rows = rows < count
        known_rows[known_rows] = snapshot.texts.numbers[rows[known_rows]] == numbers[known_rows]
        vectors[rows[known_rows]] = read[1][known_rows]
        has[rows[known_rows]] = True
        floats = read[1].astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", floats, floats))
        norms[rows[known_rows]] = lengths[known_rows]
    if vectors is None:
        return None
    with cache.lock:
        snapshot.inner.encoded[encoder] = (there, vectors, has, norms)
        if cache.get(snapshot.inner.key) is snapshot.inner:
            cache.keep(snapshot.inner)
    return vectors[:count], has[:count], norms[:count]


def unpack_vectors(
    made: int, numbers: bytes, vectors: bytes
) -> tuple[NDArray[np.uint16], NDArray[np.int8]] | None:
    """Return the places of the texts and their vectors; None if the bytes are damaged."""
    import numpy as np

    if not numbers or len(numbers) % 2 or fingerprint(numbers, vectors) != made:
        return None
    many = len(numbers) // 2
    if len(vectors) % many:
        return None
    return np.frombuffer(numbers, dtype="<u2"), np.frombuffer(vectors, dtype=np.int8).reshape(
        many, -1
    )


async def drop_vectors(tx: Connection, kind: str, owner_id: str, encoder: str) -> None:
    """Remove an encoder's vectors of an index."""
    index_state = await search_index.index_state(tx, kind, owner_id)
    if index_state.index_id is not None:
        await search_index.drop_embeddings(tx, index_state.index_id, encoder)
