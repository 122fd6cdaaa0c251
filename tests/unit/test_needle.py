"""What is looked for is found whatever its case, spaces, form and escapes, also by fingerprint."""

import base64
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InvalidInput
from asterism.memory.forgetting.needle import (
    Prints,
    Texts,
    checked,
    fingerprint,
    fold,
    new_key,
    spans,
)
from asterism.memory.forgetting.redaction import Redactor, same_length

KEY = new_key()
TEXT = "Stra\u00dfe  \u00c4rger 42"

WRITTEN = [
    TEXT,
    "STRASSE \u00c4RGER 42",
    "stra\u00dfe\n\t\u00e4rger\u00a042",
    unicodedata.normalize("NFD", TEXT),
    "stra\u00ad\u00dfe \u200b\u00e4rger 42",
    json.dumps(TEXT)[1:-1],
    json.dumps(json.dumps(TEXT))[3:-3],
    json.dumps({"a": json.dumps({"b": TEXT})}),
]


@pytest.mark.parametrize("written", WRITTEN)
def test_however_it_is_written(written: str) -> None:
    whole = f"\U0001f600 before {written} behind"
    for seeker in (Texts([TEXT]), Prints([fingerprint(TEXT, KEY)], KEY)):
        [(start, end)] = spans(seeker, whole)
        assert whole[:start].startswith("\U0001f600 before")
        assert whole[end:].endswith(" behind")
        assert Redactor(seeker).text(whole).count("[forgotten]") == 1
        assert not spans(seeker, Redactor(seeker).text(whole))


def test_what_is_not_it() -> None:
    for seeker in (Texts([TEXT]), Prints([fingerprint(TEXT, KEY)], KEY)):
        for other in ("", "stra", "stra\u00dfe\u00e4rger 42", "strasse arger 42", "strasse 42"):
            assert spans(seeker, other) == []


def test_a_fingerprint_says_nothing_without_its_key() -> None:
    mark = fingerprint(TEXT, KEY)
    assert "tra" not in json.dumps(mark)
    assert fingerprint(TEXT, KEY)["tag"] != mark["tag"]
    other = Prints([mark], new_key())
    assert len(other) == 0
    assert other.find(fold(TEXT)) == []


@given(
    st.text(st.sampled_from('ab \u00e9\u00df\u4e2d\U0001f600\n"\\'), max_size=80),
    st.text(st.sampled_from("ab\u00e9\u4e2d\U0001f600"), min_size=4, max_size=6),
    st.integers(0, 80),
)
def test_whatever_is_around_it(around: str, needle: str, at: int) -> None:
    whole = around[:at] + needle + around[at:]
    redactor = Redactor(Texts([needle]))
    for form in (whole, json.dumps({"k": whole}), json.dumps(json.dumps([whole]))):
        left = redactor.json(form)
        assert fold(needle) not in fold(left)
        assert not spans(redactor.seeker, left)
    covered = redactor.text(whole, same_length)
    assert len(covered) == len(whole)
    assert covered.count("\n") == whole.count("\n")


_LONG = fingerprint("abcaab", KEY)


@given(st.text("abc", max_size=60))
def test_fingerprints_find_what_texts_find(text: str) -> None:
    assert Prints([_LONG], KEY).find(text) == Texts(["abcaab"]).find(text)


def test_json_stays_json() -> None:
    redactor = Redactor(Texts(["user", "5551234"]))
    body = json.dumps(
        {
            "role": "user",
            "content": 'the "user" says',
            "tool_calls": [
                {"id": "user", "function": {"name": "f", "arguments": '{"user":5551234,"n":1}'}}
            ],
        }
    ).encode()
    changed = json.loads(redactor.wire(body))
    assert changed["role"] == "user"
    assert changed["content"] == 'the "[forgotten]" says'
    call = changed["tool_calls"][0]
    assert call["id"] == "user"
    assert json.loads(call["function"]["arguments"]) == {"[forgotten]": "[forgotten]", "n": 1}
    untouched = b'{ "role": "user", "content": "nothing" }'
    assert redactor.wire(untouched) is untouched


@pytest.mark.parametrize("lead", range(3))
def test_base64_is_looked_into(lead: int) -> None:
    coded = base64.b64encode(b"x" * lead + b"a picture with the SECRET word in it").decode()
    redactor = Redactor(Texts(["secret word"]))
    assert redactor.text(f"data:image/png;base64,{coded}") == "data:image/png;base64,[forgotten]"
    assert redactor.text(base64.b64encode(b"a picture with nothing in it at all").decode())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["plain words", "\u00c4rger mit W\u00f6rtern"])
def test_any_bytes(encoding: str, text: str) -> None:
    body = b"\x00\xff\x01" + text.encode(encoding) + b"\xfe"
    for seeker in (Texts([text]), Prints([fingerprint(text, KEY)], KEY)):
        assert Redactor(seeker).in_bytes(body)
        assert not Redactor(seeker).in_bytes(body[:-4])


@pytest.mark.parametrize("text", ["", "abc", "  a  ", "\u200b\u200b\u200b\u200b", "x" * 20_001])
def test_too_short_or_too_long(text: str) -> None:
    with pytest.raises(InvalidInput, match="Nothing was forgotten"):
        checked([text])
