"""Encoders: near texts get near vectors, from this process or from a server, or a clear word."""

import asyncio
import shutil
import subprocess
import sys
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from asterism.app.engine import make_encoder, make_model
from asterism.config import Settings
from asterism.config.load import FixedSettings
from asterism.errors import AsterismError, ConfigError, ModelGarbled, ModelRefused
from asterism.models.chain import ModelRegistry
from asterism.ports import Encoder
from asterism.search.encode import encode_question, encode_texts, pieces, quantize, without
from asterism.search.minilm import PACKAGE, SIZE, WEIGHTS_FILE, MiniLM, tokenizer
from asterism.search.search import QueryEncoder
from tests.conformance.vendor_server import VendorServer
from tests.servers.openai_server import HTML, Fault, OpenAIServer, Raw, embeddings, status

MINILM = MiniLM()
PAIRS = [
    ("Anna lives in Berlin.", "Anna resides in Germany's capital"),
    ("What did she cook for dinner?", "She made lasagne last night"),
    ("My dog is ill", "The vet says our puppy has a fever"),
    ("How much do I pay for the flat?", "The rent is 900 euros a month"),
]
TOKENS = {
    "Anna resides in Berlin.": [101, 4698, 11665, 1999, 4068, 1012, 102],
    "naïve CAFÉ": [101, 15743, 7668, 102],
    "我住": [101, 1855, 100, 102],
    "[SEP] 😀 unbelievably": [101, 1031, 19802, 1033, 100, 4895, 8671, 2666, 3567, 6321, 102],
}


# -- MiniLM ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TOKENS)
def test_texts_are_cut_into_the_tokens_that_the_model_was_made_with(text: str):
    assert tokenizer().encode(text).ids == TOKENS[text]


@pytest.mark.promise("M6")
def test_a_paraphrase_is_nearer_than_anything_else():
    asked = MINILM.encode_here([one for one, _ in PAIRS])
    there = MINILM.encode_here([one for _, one in PAIRS])
    near = asked @ there.T
    assert near.argmax(axis=1).tolist() == near.argmax(axis=0).tolist() == [0, 1, 2, 3]
    assert near.diagonal().min() > 0.3
    assert near[0, 0] == pytest.approx(0.84, abs=0.02)


async def test_a_vector_does_not_depend_on_what_is_encoded_with_it():
    texts = [one for pair in PAIRS for one in pair]
    together = await encode_texts(MINILM, texts)
    alone = [await encode_texts(MINILM, [one]) for one in texts]
    assert np.array_equal(together, np.concatenate(alone))
    assert together.dtype == np.int8
    assert np.abs(together).max(axis=1).tolist() == [127] * len(texts)
    question = await encode_question(MINILM, PAIRS[0][0])
    assert np.linalg.norm(question) == pytest.approx(1, abs=1e-5)
    kept = together[0] / np.linalg.norm(together[0].astype(np.float32))
    assert question @ kept > 0.999


@pytest.mark.parametrize(
    "text", ["\0", "😀", "\ud800 lone", "שלום עולם", "我住在柏林", "x" * 100_000, "a b " * 50_000]
)
async def test_hard_input_has_a_vector(text: str):
    (vector,) = await encode_texts(MINILM, [text])
    assert len(vector) == SIZE


async def test_nothing_has_a_vector_of_zeros():
    made = await encode_texts(MINILM, ["", " \n", "Anna"])
    assert [any(row) for row in made] == [False, False, True]
    assert (await encode_texts(MINILM, [""])).shape == (1, SIZE)
    assert not (await encode_question(MINILM, " ")).any()


async def test_an_encoder_that_is_given_up_leaves_its_thread():
    task = asyncio.create_task(MINILM.encode(["a long text " * 80] * 2_000))
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(120):
        with pytest.raises(asyncio.CancelledError):
            await task
        # The thread is free again: it would be busy for minutes.
        await asyncio.get_running_loop().shutdown_default_executor()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a package will be that is not there yet."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path / "weights_of_ours"


@pytest.mark.promise("M6")
def test_without_its_package_the_encoder_says_so_and_works_once_it_is_there(package: Path):
    encoder = MiniLM(package=package.name)
    with pytest.raises(ModelRefused) as told:
        encoder.encode_here(["Anna"])
    assert f"the package '{package.name}' is not installed" in told.value.message
    assert "Search goes on without it" in told.value.message

    package.mkdir()
    invalidate_caches()
    (package / "__init__.py").write_text("raise RuntimeError('this code is not run')")
    with pytest.raises(ModelRefused, match="weights cannot be read"):
        encoder.encode_here(["Anna"])

    spec = find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    sound = Path(spec.origin).parent / WEIGHTS_FILE
    damaged = bytearray(sound.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (package / WEIGHTS_FILE).write_bytes(damaged)
    with pytest.raises(ModelRefused, match="is damaged or of another release"):
        encoder.encode_here(["Anna"])

    shutil.copy(sound, package / WEIGHTS_FILE)
    assert np.array_equal(encoder.encode_here(["Anna"]), MINILM.encode_here(["Anna"]))


@pytest.mark.promise("D3")
def test_the_encoder_takes_little_memory():
    """A process of its own: what others have left there would be used again."""
    grown = subprocess.run(
        [sys.executable, "-c", _GROWTH], capture_output=True, text=True, check=True, timeout=60
    )
    assert int(grown.stdout) < 60_000


_GROWTH = """
import re
from pathlib import Path
import numpy, tokenizers, asterism.search.encode
from asterism.search.minilm import MiniLM

def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = resident()
MiniLM().encode_here(["Anna lives in Berlin.", "a long text " * 200])
print(resident() - before)
"""


# -- what is encoded -------------------------------------------------------------------------------


def test_a_short_text_is_one_piece_and_a_long_one_is_cut_between_sentences():
    assert pieces("Anna lives in Berlin. She rows.") == ["Anna lives in Berlin. She rows."]
    assert pieces("") == pieces(" \n ") == []
    sentence = "One two three four five six seven eight nine ten."
    found = pieces(" ".join([sentence] * 20))
    assert [len(one.split()) for one in found] == [90, 90, 20]
    assert all(one.endswith("ten.") for one in found)
    assert len(pieces(sentence * 1_000)) == 4


@pytest.mark.parametrize("text", ["word " * 2_000, "我住在柏林" * 400, "x" * 5_000, "😀" * 5_000])
def test_a_text_without_sentences_is_cut_too(text: str):
    found = pieces(text)
    assert 1 <= len(found) <= 4
    assert all(found)


def test_names_of_speakers_are_left_out():
    names = ["Anna", "Jo", "Anna Lee", "c++", ""]
    assert without(names, "Anna's dog met ANNA LEE and Joan.") == "dog met and Joan."
    assert without(names, "He likes c++ and jo’s tea") == "He likes and tea"
    assert without([], "a  b\nc") == "a b\nc"


def test_vectors_use_the_whole_range_of_a_byte():
    made = quantize(np.array([[0.5, -0.25, 0], [0, 0, 0]], dtype=np.float32))
    assert made.tolist() == [[127, -64, 0], [0, 0, 0]]


# -- servers ---------------------------------------------------------------------------------------


def settings(base_url: str, encoder: str = "ours:embedder", **options: object) -> Settings:
    table = {"base_url": base_url, "timeout": 5.0, **options}
    return Settings.model_validate(
        {"search": {"encoder": encoder}, "models": {encoder.partition(":")[0]: table}}
    )


@pytest.mark.promise("M6")
async def test_a_server_that_speaks_openais_format_encodes():
    async with OpenAIServer() as server:
        encoder = make_encoder(settings(server.base_url, key="sk-1"), "ours:embedder")
        assert encoder.name == "ours:embedder"
        made = await encoder.encode(["Anna rows", "", "Anna rows", "The rent is 900 euros"])
        await encoder.close()
    (seen,) = server.requests
    assert seen.path == "/v1/embeddings"
    assert seen.headers["Authorization"] == "Bearer sk-1"
    assert seen.body == {
        "model": "embedder",
        "input": ["Anna rows", "Anna rows", "The rent is 900 euros"],
        "encoding_format": "float",
    }
    assert np.linalg.norm(made, axis=1).tolist() == pytest.approx([1, 0, 1, 1])
    assert made[0] @ made[2] == pytest.approx(1)
    assert made[0] @ made[3] < 0.5


async def test_many_texts_are_sent_in_several_requests_and_come_back_in_order():
    texts = [f"word{number} \ud800" for number in range(150)]
    async with OpenAIServer() as server:
        encoder = make_encoder(settings(server.base_url), "ours:embedder")
        together = await encoder.encode(texts)
        (last,) = await encoder.encode(texts[-1:])
        await encoder.close()
    assert [len(one.body["input"]) for one in server.requests] == [64, 64, 22, 1]
    assert np.array_equal(together[-1], last)


async def test_vectors_are_put_in_order_by_their_index():
    data = embeddings(["one", "two"], "m")
    turned = {**data, "data": data["data"][::-1]}
    async with OpenAIServer() as server:
        encoder = make_encoder(settings(server.base_url), "ours:m")
        sound = await encoder.encode(["one", "two"])
        server.next(Raw(orjson.dumps(turned)))
        assert np.array_equal(await encoder.encode(["one", "two"]), sound)
        await encoder.close()


def _answer(**changed: Any) -> Raw:
    return Raw(orjson.dumps({"object": "list", "data": [], "model": "m", **changed}))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (_answer(), "answered, but with 0 embeddings for 1 texts"),
        (_answer(data=None), "answered, but with no list of embeddings"),
        (_answer(data=[{"index": 0}]), "not lists of numbers"),
        (_answer(data=[{"index": 0, "embedding": ["x"]}]), "not lists of numbers"),
        (_answer(data=[{"index": 0, "embedding": []}]), "not lists of numbers"),
        (_answer(data=[{"index": 0, "embedding": 4}]), "not lists of numbers"),
        (Raw(b"[]"), "answered, but with no list of embeddings"),
        (Raw(b"data: {}\n\n", "text/event-stream"), "a stream"),
        (Raw(b"", "text/event-stream"), "an empty stream"),
        (HTML, "an HTML page"),
        (status(404, "no such model"), "no such model"),
        (status(500, "out of order"), "out of order"),
        (_answer(error={"message": "no such model"}), "no such model"),
        (Fault.REFUSE, "'ours:m' at http://127.0.0.1:"),
    ],
)
async def test_what_a_server_does_wrong_is_said_in_a_sentence(answer: Raw | Fault, told: str):
    async with OpenAIServer() as server:
        encoder = make_encoder(settings(server.base_url), "ours:m")
        server.next(answer, answer)  # a connection that was cut may be tried once more
        with pytest.raises(AsterismError) as found:
            await encoder.encode(["Anna"])
        assert told in found.value.message
        await encoder.close()


ANSWERS = {
    "google": {"embeddings": [{"values": [3.0, 4.0]}, {"values": [0.0, 2.0]}]},
    "cohere": {
        "id": "1",
        "texts": ["Anna", "Ben"],
        "embeddings": {"float": [[3.0, 4.0], [0.0, 2.0]]},
        "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": 2}},
        "response_type": "embeddings_by_type",
    },
    "bedrock": {
        "id": "1",
        "texts": ["Anna", "Ben"],
        "embeddings": [[3.0, 4.0], [0.0, 2.0]],
        "response_type": "embeddings_floats",
    },
}
MODELS = {"bedrock": "cohere.embed-english-v3"}
GIVEN: dict[str, dict[str, Any]] = {
    # A key would want https; without one the library looks for credentials by itself.
    "bedrock": {"options": {"region": "eu-central-1"}},
}


@pytest.mark.parametrize("vendor", ANSWERS)
async def test_vendors_with_a_library_of_their_own_encode(
    vendor: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with VendorServer(vendor) as server:
        name = f"{vendor}:{MODELS.get(vendor, 'embedder')}"
        told = settings(server.base_url, name, timeout=60.0, **GIVEN.get(vendor, {"key": "sk-1"}))
        encoder = make_encoder(told, name)
        server.next(Raw(orjson.dumps(ANSWERS[vendor])))
        made = await encoder.encode(["Anna", " ", "Ben"])
        server.next(Raw(orjson.dumps(ANSWERS[vendor])))
        with pytest.raises(ModelGarbled, match="2 vectors for 1 texts"):
            await encoder.encode(["Anna"], question=True)
        server.refuse(401, "wrong key")
        with pytest.raises(AsterismError, match=name):
            await encoder.encode(["Anna"])
        await encoder.close()
    assert made == pytest.approx(np.array([[0.6, 0.8], [0, 0], [0, 1]]))
    documents, question = map(str, server.bodies[:2])
    assert "Anna" in documents
    assert "Ben" in documents
    assert "document" in documents.lower()
    assert "query" in question.lower()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mistral:mistral-embed", "the library for Mistral offers none"),
        ("anthropic:claude", "names a vendor whose models make no vectors here"),
        ("nobody:x", "names the vendor 'nobody', which is not known"),
        ("bert", "There is no encoder 'bert'"),
    ],
)
def test_an_encoder_that_is_not_offered_is_named(
    name: str, told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MISTRAL_API_KEY", "sk-1")
    with pytest.raises(ConfigError) as found:
        make_encoder(Settings(), name)
    assert told in found.value.message


async def test_a_registry_makes_an_encoder_once_and_anew_when_its_settings_change():
    async with OpenAIServer() as server:
        live = FixedSettings(settings(server.base_url))
        registry = ModelRegistry(
            live,
            lambda model: make_model(live.current, model),
            lambda name: make_encoder(live.current, name),
        )
        assert registry.encoder("none") is None
        first, minilm = registry.encoder("ours:m"), registry.encoder("minilm")
        assert registry.encoder("ours:m") is first
        old, new = live.current, settings(server.base_url, timeout=6.0)
        live.current = new
        registry.settings_changed(old, new)
        assert registry.encoder("ours:m") is not first
        assert registry.encoder("minilm") is minilm
        await registry.close()


# -- questions -------------------------------------------------------------------------------------


async def test_a_question_is_encoded_once_and_without_names():
    async with OpenAIServer() as server:
        encoder = make_encoder(settings(server.base_url), "ours:m")
        query_encoder = QueryEncoder(lambda name: encoder if name == "ours:m" else None)
        first = await query_encoder.vector("ours:m", "What did Anna row?", ["Anna"])
        again = await query_encoder.vector("ours:m", "What did  row?")
        assert first is not None
        assert again is first
        assert [one.body["input"] for one in server.requests] == [["What did row?"]]
        assert await query_encoder.vector(None, "What?") is None
        assert await query_encoder.vector("none", "What?") is None
        await encoder.close()


@pytest.mark.promise("M6")
async def test_a_search_does_not_wait_for_an_encoder_that_cannot_answer(
    caplog: pytest.LogCaptureFixture,
):
    class Broken:
        name = "broken"
        calls = 0

        async def encode(self, texts: object, *, question: bool = False) -> Any:
            self.calls += 1
            raise ModelRefused("The encoder is out of order.")

        async def close(self) -> None: ...

    broken = Broken()
    encoder: Encoder = broken
    query_encoder = QueryEncoder(lambda _: encoder)
    for number in range(3):
        assert await query_encoder.vector("broken", f"What? {number}") is None
    assert broken.calls == 1
    (told,) = caplog.messages
    assert told.startswith("The encoder is out of order. Searches go on by words")
