"""OpenAI's embeddings wire format, which Ollama and most other servers of models speak too.

Written from the API reference, https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.models.http.text import parse_json
from asterism.models.http.trouble import MalformedAnswer, RequestRejected
from asterism.ports import ModelRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from asterism.models.http.endpoint import Endpoint

EMBEDDINGS_PATH = "/embeddings"
_TEXTS_PER_REQUEST = 64
"""Texts in one request; small servers work through them one after the other."""
_EMBEDDINGS_HINT = "The address usually ends in /v1, and the model must be one for embeddings."


class OpenAIEncoder:
    """An encoder that is asked over HTTP."""

    def __init__(self, vendor: str, model: str, endpoint: Endpoint, timeout: float) -> None:
        self.name = f"{vendor}:{model}"
        self._model = model
        self._endpoint = endpoint
        self._timeout = timeout

    async def encode(
        self,
        texts: Sequence[str],
        *,
        question: bool = False,  # noqa: ARG002 - the format has no word for it
    ) -> NDArray[np.float32]:
        """Return a vector for each text, a row each; zeros for one without words."""
        import numpy as np

        asked = [place for place, text in enumerate(texts) if text.strip()]
        rows: list[NDArray[np.float32]] = []
        for first in range(0, len(asked), _TEXTS_PER_REQUEST):
            some = asked[first : first + _TEXTS_PER_REQUEST]
            rows.append(await self._ask([texts[place] for place in some]))
        if not rows:
            return np.zeros((len(texts), 0), dtype=np.float32)
        made = np.zeros((len(texts), rows[0].shape[1]), dtype=np.float32)
        made[asked] = np.concatenate(rows)
        return made

    async def close(self) -> None:
        """Let go of connections."""
        await self._endpoint.close()

    async def _ask(self, texts: list[str]) -> NDArray[np.float32]:
        # JSON has no lone surrogates.
        clean = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        body = orjson.dumps({"model": self._model, "input": clean, "encoding_format": "float"})
        request = ModelRequest(self._model, [], None, key="encode", timeout=self._timeout)
        answer = await self._endpoint.ask(request, body, lambda: _VectorParser(len(texts)))
        return answer.vectors


class _VectorParser:
    """The vectors of an answer; there is nothing to stream."""

    def __init__(self, count: int) -> None:
        self.done = False
        self.finish = ""
        self.vectors: NDArray[np.float32]
        self._count = count

    def take(self, body: bytes) -> None:
        whole: Any = parse_json(body, _EMBEDDINGS_HINT)
        if not isinstance(whole, dict):
            raise MalformedAnswer(f"with no list of embeddings. {_EMBEDDINGS_HINT}")
        table = cast("dict[str, Any]", whole)
        if table.get("error"):
            raise RequestRejected.from_table(table)
        self.vectors = _rows(table.get("data"), self._count)
        self.done = True

    def feed(self, chunk: bytes) -> None:
        raise MalformedAnswer(f"with a stream of {len(chunk)} bytes and more. {_EMBEDDINGS_HINT}")

    def end(self) -> None:
        raise MalformedAnswer(f"with an empty stream. {_EMBEDDINGS_HINT}")


def _rows(data: Any, count: int) -> NDArray[np.float32]:
    import numpy as np

    if not isinstance(data, list):
        raise MalformedAnswer(f"with no list of embeddings. {_EMBEDDINGS_HINT}")
    entries = cast("list[dict[str, Any]]", data)
    if len(entries) != count:
        raise MalformedAnswer(
            f"with {len(entries)} embeddings for {count} texts. Nothing of it was kept."
        )
    try:
        ordered = sorted(entries, key=lambda one: int(one["index"]))
        rows = np.array([one["embedding"] for one in ordered], dtype=np.float32)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedAnswer(
            f"with embeddings that are not lists of numbers. {_EMBEDDINGS_HINT}"
        ) from error
    if rows.ndim != 2 or not rows.shape[1] or not np.isfinite(rows).all():
        raise MalformedAnswer(f"with embeddings that are not lists of numbers. {_EMBEDDINGS_HINT}")
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
