"""What is looked for is found whatever its case, spaces, form and escapes, also by fingerprint."""

import base64
import json
import unicodedata
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.errors import InvalidInput
from asterism.memory.forgetting.redaction import (
    FingerprintMatcher,
    Redactor,
    TextMatcher,
    check_texts,
    find_spans,
    fingerprint,
    new_key,
    normalize,
    same_length,
)

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
    quote(TEXT),
    quote(TEXT, safe="").lower(),
    json.dumps(quote(quote(TEXT))),
    "".join(f"%{one:02X}" for one in TEXT.encode()),
    "Stra&szlig;e &Auml;rger 42",
    "".join(f"&#{ord(one)};" for one in TEXT),
    "".join(f"&#x{ord(one):X};" for one in TEXT),
    "Stra&amp;szlig;e &#xC4;rger%2042",
]


@pytest.mark.parametrize("written", WRITTEN)
def test_however_it_is_written(written: str) -> None:
    whole = f"\U0001f600 before {written} behind"
    for matcher in (TextMatcher([TEXT]), FingerprintMatcher([fingerprint(TEXT, KEY)], KEY)):
        [(start, end)] = find_spans(matcher, whole)
        assert whole[:start].startswith("\U0001f600 before")
        assert whole[end:].endswith(" behind")
        assert Redactor(matcher).text(whole).count("[forgotten]") == 1
        assert not find_spans(matcher, Redactor(matcher).text(whole))


@pytest.mark.parametrize("dash", "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d")
def test_a_dash_is_a_dash(dash: str) -> None:
    for text, written in (("4711-XK-99", f"4711{dash}xk{dash}99"), (f"4711{dash}XK", "4711-xk")):
        for matcher in (TextMatcher([text]), FingerprintMatcher([fingerprint(text, KEY)], KEY)):
            assert Redactor(matcher).text(f"It is {written}.") == "It is [forgotten]."


@pytest.mark.parametrize("upper", [False, True])
def test_hexadecimal(upper: bool) -> None:
    coded = f"id {TEXT} or so".encode().hex()
    coded = coded.upper() if upper else coded
    for matcher in (TextMatcher([TEXT]), FingerprintMatcher([fingerprint(TEXT, KEY)], KEY)):
        assert Redactor(matcher).text(f"0x{coded}, and more") == "0x[forgotten], and more"
        digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
        assert Redactor(matcher).text(digest) == digest


WORDS = "Quux-Canary 8842 Lilac"


def _letter(text: bytes, width: int, between: str) -> str:
    coded = base64.b64encode(text).decode()
    return between.join(coded[at : at + width] for at in range(0, len(coded), width))


SPREAD = {
    "base64 in lines": base64.encodebytes(b"padding " * 5 + WORDS.encode()).decode().strip(),
    "base64 in short lines": _letter(b"padding " + WORDS.encode(), 8, "\r\n    "),
    "base64 in lines of JSON": _letter(b"padding " + WORDS.encode(), 20, "\\n"),
    "base64 behind a word": f"see/{_letter(WORDS.encode(), 99, '')}",
    "hex with spaces": WORDS.encode().hex(" "),
    "hex with colons": WORDS.encode().hex(":").upper(),
    "hex in C": ", ".join(f"0x{one:02x}" for one in WORDS.encode()),
    "hex in Python": "".join(f"\\x{one:02x}" for one in WORDS.encode()),
    "hex in lines": WORDS.encode().hex(" ", 8).replace(" ", "\n"),
    "hex in other bytes": f"00ff{WORDS.encode().hex()}fe01",
    "plus for spaces": "Quux-Canary+8842+Lilac",
    "a line for spaces": "quux_canary_8842_lilac",
    "nothing between": "QuuxCanary8842Lilac",
    "no dash": "Quux Canary 8842 Lilac",
    "no spaces": "Quux-Canary8842Lilac",
    "invisible characters": "\u200b".join(WORDS),
    "invisible characters for spaces": WORDS.replace(" ", "\u200b"),
}


@pytest.mark.promise("M13")
@pytest.mark.parametrize("form", SPREAD)
def test_words_are_found_however_they_are_spread(form: str) -> None:
    whole = f"Before: {SPREAD[form]}; behind."
    for matcher in (TextMatcher([WORDS]), FingerprintMatcher([fingerprint(WORDS, KEY)], KEY)):
        redactor = Redactor(matcher)
        left = redactor.text(whole)
        assert left.count("[forgotten]") == 1
        assert left.startswith("Before: ")
        assert left.endswith("; behind.")
        assert redactor.text(left) == left
        assert len(left) < len("Before: [forgotten]; behind.") + 62  # the lines before it


def test_other_words_stay_however_near_they_are() -> None:
    for text, others in (
        ("not able", ["notable", "no table", "not - able to"]),
        ("he is", ["heist", "the-island"]),
        ("4711 XK", ["84711XK9", "4711X"]),
        ("Anna Schmidt", ["Johannaschmidtke", "Anna, Schmidt"]),
        (WORDS, ["Quux-Canary 8842Lilac", "QuuxCanary8842Lila"]),
    ):
        for matcher in (TextMatcher([text]), FingerprintMatcher([fingerprint(text, KEY)], KEY)):
            redactor = Redactor(matcher)
            for other in others:
                assert redactor.text(f"Say {other}") == f"Say {other}"


def test_of_a_list_of_codes_the_others_stay() -> None:
    codes = [base64.b64encode(f"the code of item {n} is {n}".encode()).decode() for n in range(50)]
    codes[20] = base64.b64encode(f"it is {WORDS}".encode()).decode()
    left = Redactor(TextMatcher([WORDS])).text("\n".join(codes)).split("\n")
    assert left == [*codes[:20], "[forgotten]", *codes[21:]]


def test_only_what_was_written_goes_of_an_address() -> None:
    whole = f"https://example.org/a%20b?q={quote(TEXT)}%20%C3%A4&r=100%25"
    for matcher in (TextMatcher([TEXT]), FingerprintMatcher([fingerprint(TEXT, KEY)], KEY)):
        left = Redactor(matcher).text(whole)
        assert left == "https://example.org/a%20b?q=[forgotten]%20%C3%A4&r=100%25"
    # What looks like an escape and is none stays, whatever it stands for.
    for odd in ("100% sure", "%zz", "&nosuch;", "&;", "%ff%fe", "%e4", "a&b"):
        assert Redactor(TextMatcher([TEXT])).text(odd) == odd


def test_what_is_not_it() -> None:
    for matcher in (TextMatcher([TEXT]), FingerprintMatcher([fingerprint(TEXT, KEY)], KEY)):
        for other in ("", "stra", "stra\u00dfe\u00e4rger 42", "strasse arger 42", "strasse 42"):
            assert find_spans(matcher, other) == []


def test_a_fingerprint_says_nothing_without_its_key() -> None:
    mark = fingerprint(TEXT, KEY)
    assert "tra" not in json.dumps(mark)
    assert fingerprint(TEXT, KEY)["tag"] != mark["tag"]
    other = FingerprintMatcher([mark], new_key())
    assert len(other) == 0
    assert other.find(normalize(TEXT)) == []


@given(
    st.text(st.sampled_from('ab \u00e9\u00df\u4e2d\U0001f600\n"\\'), max_size=80),
    st.text(st.sampled_from("ab\u00e9\u4e2d\U0001f600"), min_size=4, max_size=6),
    st.integers(0, 80),
)
def test_whatever_is_around_it(around: str, needle: str, at: int) -> None:
    whole = around[:at] + needle + around[at:]
    redactor = Redactor(TextMatcher([needle]))
    for form in (whole, json.dumps({"k": whole}), json.dumps(json.dumps([whole]))):
        left = redactor.json(form)
        assert normalize(needle) not in normalize(left)
        assert not find_spans(redactor.matcher, left)
    covered = redactor.text(whole, same_length)
    assert len(covered) == len(whole)
    assert covered.count("\n") == whole.count("\n")


_LONG = fingerprint("abcaab", KEY)


@given(st.text("abc", max_size=60))
def test_fingerprints_find_what_texts_find(text: str) -> None:
    assert FingerprintMatcher([_LONG], KEY).find(text) == TextMatcher(["abcaab"]).find(text)


def test_json_stays_json() -> None:
    redactor = Redactor(TextMatcher(["user", "5551234"]))
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
    redactor = Redactor(TextMatcher(["secret word"]))
    assert redactor.text(f"data:image/png;base64,{coded}") == "data:image/png;base64,[forgotten]"
    assert redactor.text(base64.b64encode(b"a picture with nothing in it at all").decode())


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["plain words", "\u00c4rger mit W\u00f6rtern"])
def test_any_bytes(encoding: str, text: str) -> None:
    body = b"\x00\xff\x01" + text.encode(encoding) + b"\xfe"
    for matcher in (TextMatcher([text]), FingerprintMatcher([fingerprint(text, KEY)], KEY)):
        assert Redactor(matcher).in_bytes(body)
        assert not Redactor(matcher).in_bytes(body[:-4])


@pytest.mark.parametrize("text", ["", "abc", "  a  ", "\u200b\u200b\u200b\u200b", "x" * 20_001])
def test_too_short_or_too_long(text: str) -> None:
    with pytest.raises(InvalidInput, match="Nothing was forgotten"):
        check_texts([text])
