"""Encoders of vendors that are asked by way of pydantic-ai."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from asterism.errors import ModelGarbled

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AT_ONCE = 64


class Port(Protocol):
    """The vendor, asked with its keys."""

    async def embed(self, model: str, texts: list[str], *, question: bool) -> list[Sequence[float]]:
        """Return the vectors of texts."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class VendorEncoder:
    """An encoder by its name as `vendor:name`."""

    def __init__(self, port: Port, name: str) -> None:
        self.name = name
        self._port = port

    async def encode(self, texts: Sequence[str], *, question: bool = False) -> NDArray[np.float32]:
        """Return a vector of length 1 for each text, a row each; zeros for one without words."""
        import numpy as np

        asked = [place for place, text in enumerate(texts) if text.strip()]
        found: list[Sequence[float]] = []
        for first in range(0, len(asked), _AT_ONCE):
            some = [texts[place] for place in asked[first : first + _AT_ONCE]]
            found += await self._port.embed(self.name.partition(":")[2], some, question=question)
        if not asked:
            return np.zeros((len(texts), 0), dtype=np.float32)
        sizes = {len(one) for one in found}
        if len(found) != len(asked) or len(sizes) != 1:
            raise ModelGarbled(
                f"The model {self.name!r} gave {len(found)} vectors for {len(asked)} texts, or "
                "vectors of several sizes. Nothing of it was kept."
            )
        rows = np.array(found, dtype=np.float32)
        made = np.zeros((len(texts), rows.shape[1]), dtype=np.float32)
        made[asked] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return made

    async def close(self) -> None:
        """Let go of connections."""
        await self._port.close()
