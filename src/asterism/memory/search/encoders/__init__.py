"""Encoders: models that give texts of one meaning near vectors; any that fits the port will do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from asterism.memory.search.encoders.pieces import pieces, without
from asterism.ports import Encoder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Encoder", "encode_question", "encode_texts", "pieces", "quantised", "without"]


async def encode_texts(
    encoder: Encoder, texts: Sequence[str], names: Iterable[str] = ()
) -> NDArray[np.int8]:
    """Return a vector of signed bytes for each text, a row each; zeros for one without words.

    Args:
        encoder: What makes them.
        texts: As they were said.
        names: The speakers, whose names are left out.
    """
    return quantised(await _encode(encoder, texts, names))


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
    found = await encoder.encode(flat or ["."], question=question)
    made = np.zeros((len(texts), found.shape[1]), dtype=np.float32)
    at = 0
    for row, some in enumerate(parts):
        if some:
            made[row] = found[at : at + len(some)].mean(axis=0)
        at += len(some)
    lengths = np.linalg.norm(made, axis=1, keepdims=True)
    made /= np.where(lengths > 0, lengths, 1)
    return made


def quantised(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Return vectors as signed bytes; only the direction counts, so each uses the whole range."""
    import numpy as np

    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    return np.rint(vectors * (127 / np.where(largest > 0, largest, 1))).astype(np.int8)
