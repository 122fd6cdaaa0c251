"""Static vectors: near texts have near vectors, and without the weights there are none."""

import importlib.util
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asterism.memory.words import (
    SIZE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    StaticEncoder,
    cosine,
    embed,
    nearest,
)

ANNA, ANN, RENT = "Anna lives in Berlin.", "Anna resides in Berlin", "The rent is 900 euros"


def embed_all(*texts: str) -> list[bytes]:
    found = embed(texts)
    assert found is not None
    return found


def test_near_texts_have_near_vectors():
    anna, ann, rent = embed_all(ANNA, ANN, RENT)
    assert cosine(anna, anna) == pytest.approx(1)
    assert cosine(anna, ann) > 0.8 > 0.4 > cosine(anna, rent)
    assert cosine(anna, ann) == cosine(ann, anna)
    assert {len(one) for one in (anna, ann, rent)} == {SIZE}


def test_a_vector_is_that_of_the_same_words_whatever_the_spacing_and_the_company():
    alone, spaced, other = embed_all(ANNA, "  Anna \n lives\tin  Berlin. ", RENT)
    assert alone == spaced == embed_all(ANNA)[0] != other


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_nothing_has_a_vector_of_zeros_that_is_near_to_nothing(text: str):
    nothing, anna = embed_all(text, ANNA)
    assert nothing == bytes(SIZE)
    assert cosine(nothing, anna) == cosine(nothing, nothing) == 0
    assert nearest(nothing, [anna], 3) == []


def test_vectors_of_another_size_are_not_near():
    assert cosine(b"\1\2", embed_all(ANNA)[0]) == 0
    assert cosine(b"", b"") == 0


@pytest.mark.parametrize("text", ["\0", "😀", "\ud800 lone", "שלום עולם", "我住在柏林", "é" * 40])
def test_hard_input_has_a_vector(text: str):
    assert any(embed_all(text)[0])


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["x", "a b ", "😀", "\0", "我", " "])
def test_a_megabyte_is_cut(text: str):
    assert len(embed_all(text * (1_000_000 // len(text)))[0]) == SIZE


def test_nearest_are_those_with_the_highest_cosine():
    texts = [f"Note {number} about {word}" for number in range(40) for word in ("tea", "rent")]
    kept = [*embed_all(*texts, ANN), bytes(SIZE)]
    query = embed_all(ANNA)[0]
    found = nearest(query, kept, 7)
    expected = sorted(
        ((cosine(query, one), -place) for place, one in enumerate(kept)), reverse=True
    )
    assert found[0][0] == 80
    assert [score for _, score in found] == pytest.approx([score for score, _ in expected[:7]])
    assert len(nearest(query, kept, 1_000)) == len(kept)
    assert nearest(query, [], 3) == nearest(query, kept, 0) == nearest(b"", kept, 3) == []


def test_equal_vectors_are_found_in_their_order():
    anna = embed_all(ANNA)[0]
    assert [place for place, _ in nearest(anna, [anna] * 5, 5)] == [0, 1, 2, 3, 4]


def test_more_vectors_than_are_compared_in_one_go():
    anna, ann, rent = embed_all(ANNA, ANN, RENT)
    many = [rent] * 40_000
    many[3], many[16_384], many[39_999] = ann, anna, ann
    assert [place for place, _ in nearest(anna, many, 3)] == [16_384, 3, 39_999]


def test_a_vector_is_the_mean_of_its_tokens_and_a_byte_for_each_number_loses_little():
    import numpy as np
    from safetensors.numpy import load
    from tokenizers import Tokenizer

    spec = importlib.util.find_spec("wordllama")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    table = load((folder / WEIGHTS_FILE).read_bytes())["embedding.weight"].astype(np.float64)
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
    texts = [ANNA, ANN, RENT, "Ben has a dog", "The flight leaves at 18:20"]
    rows = [
        table[tokenizer.encode(text, add_special_tokens=False).ids].mean(axis=0) for text in texts
    ]
    packed = embed_all(*texts)
    for one, row in enumerate(rows):
        for other, column in enumerate(rows):
            expected = float(row @ column / np.linalg.norm(row) / np.linalg.norm(column))
            assert math.isclose(cosine(packed[one], packed[other]), expected, abs_tol=0.01)


def test_threads_share_one_encoder():
    encoder = StaticEncoder()

    def make(_number: int) -> list[bytes] | None:
        return encoder.embed([ANNA])

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(make, range(32)))
    assert found == [embed([ANNA])] * 32


def test_without_the_weights_there_are_no_vectors_and_it_is_said_once(
    caplog: pytest.LogCaptureFixture,
):
    encoder = StaticEncoder("a_package_that_is_not_there")
    assert encoder.embed([ANNA]) is None
    assert encoder.embed([ANNA]) is None
    assert len(caplog.records) == 1
    assert "Install it" in caplog.records[0].getMessage()


@pytest.mark.parametrize("header", [b"\xff" * 64, b"\x02" + bytes(7) + b"{}"])
def test_broken_weights_are_said_and_not_raised(
    header: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    name = f"broken_weights_{len(header)}"
    spec = importlib.util.find_spec("wordllama")
    assert spec is not None
    assert spec.origin is not None
    tokenizer = (Path(spec.origin).parent / TOKENIZER_FILE).read_bytes()
    for file, content in (
        (WEIGHTS_FILE, header),
        (TOKENIZER_FILE, tokenizer),
        ("__init__.py", b""),
    ):
        place = tmp_path / name / file
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    assert StaticEncoder(name).embed([ANNA]) is None
    (tmp_path / name / TOKENIZER_FILE).write_bytes(b"no tokenizer")
    assert StaticEncoder(name).embed([ANNA]) is None
    assert caplog.text.count("cannot be read") == 2


def test_nothing_is_loaded_before_it_is_needed_and_the_package_itself_is_never_run():
    code = (
        "import sys, asterism.memory.words as v;"
        "assert not {'numpy', 'tokenizers', 'wordllama'} & set(sys.modules);"
        "assert v.embed(['hello']);"
        "assert 'numpy' in sys.modules and 'wordllama' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
