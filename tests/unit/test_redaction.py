"""Secrets taken out of texts: known ones in every form, and what looks like one."""

import base64
import html
import json
import time
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asterism.telemetry.redaction import SHORTEST, Secrets, Stream

CANARY = "pw/+ä“1%&<\"\\'x y=9"
SECRETS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=("Cs", "Z", "C")),
    min_size=SHORTEST,
    max_size=60,
)
AROUND = st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=("Cs",)), max_size=40)


def forms(secret: str) -> dict[str, str]:
    raw = secret.encode()
    return {
        "plain": secret,
        "json": json.dumps(secret)[1:-1],
        "json, unescaped": json.dumps(secret, ensure_ascii=False)[1:-1],
        "orjson": orjson.dumps(secret).decode()[1:-1],
        "json in json": json.dumps(json.dumps(secret))[3:-3],
        "quoted": quote(secret, safe=""),
        "quoted as a path": quote(secret),
        "quoted as a form": quote_plus(secret),
        "quoted in small letters": quote(secret, safe="").lower() if secret.islower() else secret,
        "html": html.escape(secret),
        "repr": repr(secret)[1:-1],
        "hex": raw.hex(),
        "base64": base64.b64encode(raw).decode(),
        "base64, URL-safe": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "base64, one byte before": base64.b64encode(b"u:" + raw).decode(),
        "base64, two bytes before": base64.b64encode(b"u" + raw + b"!").decode(),
    }


def knowing(*values: str) -> Secrets:
    secrets = Secrets()
    for number, value in enumerate(values):
        secrets.know(f"secret-{number}", value)
    return secrets


@pytest.mark.promise("X3")
@pytest.mark.parametrize("form", forms(CANARY))
def test_a_known_secret_is_taken_out_in_every_form(form: str):
    written = forms(CANARY)[form]
    text = knowing(CANARY).redact(f'before "{written}" after')
    assert "[redacted secret-0]" in text
    assert text.startswith('before "')
    assert text.endswith('" after')
    # What is encoded along with it may stay, and is a few characters.
    assert len(text) <= len('before "[redacted secret-0]" after') + 3


@pytest.mark.promise("X3")
@given(SECRETS, AROUND, AROUND)
def test_no_known_secret_survives(secret: str, before: str, after: str):
    assume(secret not in "[redacted secret-0]")
    secrets = knowing(secret)
    for form, written in forms(secret).items():
        left = secrets.redact(f"{before}{written}{after}")
        core = written.rstrip("=")[2:-2] if form.startswith("base64") else written
        if core not in f"{before}\n{after}\n[redacted secret-0]":
            assert core not in left, form


@given(st.lists(SECRETS, min_size=1, max_size=4), st.lists(AROUND, min_size=5, max_size=5))
def test_secrets_that_overlap_are_all_taken_out(values: list[str], around: list[str]):
    secrets = knowing(*values)
    text = "".join(f"{words}{value}" for words, value in zip(around, values, strict=False))
    left = secrets.redact(text)
    for value in values:
        if value not in "".join(around) and "redacted" not in value:
            assert value not in left


@pytest.mark.promise("X3")
@given(
    SECRETS,
    AROUND,
    AROUND,
    st.lists(st.integers(1, 12), min_size=1, max_size=30),
    st.sampled_from(["plain", "json", "quoted", "base64", "hex"]),
)
def test_pieces_of_a_stream_never_hold_a_secret(
    secret: str, before: str, after: str, cuts: list[int], form: str
):
    secrets = knowing(secret)
    whole = f"{before} {forms(secret)[form]} {after}"
    stream, shown, at = Stream(secrets), "", 0
    for number in range(len(whole)):
        size = cuts[number % len(cuts)]
        shown += stream.feed(whole[at : at + size])
        at += size
    shown += stream.rest()
    if form != "base64":
        assert shown == secrets.redact(whole)
    else:
        assert forms(secret)[form].rstrip("=")[2:-2] not in shown


def test_a_stream_holds_back_only_what_may_become_a_secret():
    stream = Stream(knowing("canary-4711-canary"))
    assert stream.feed("hello ") == "hello "
    assert stream.feed("a can") == "a "
    assert stream.feed(" of tea") == "can of tea"
    assert stream.feed(" canary-4711-can") == " "
    assert stream.feed("ary!") == "[redacted secret-0]!"
    assert stream.feed("sk-abc1") == ""
    assert stream.feed("2345678901234567890") == ""
    assert stream.feed("12 and") == "[redacted key] and"
    assert stream.rest() == ""


SHAPES = {
    "key": "sk-proj-4f9aQ8zX7cV6bN5mL4kJ3hG2",
    "github key": "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "gitlab key": "glpat-4f9aQ8zX7cV6bN5mL4kJ",
    "slack key": "xoxb-2345678901-abcdefghij",
    "hugging face key": "hf_abcdefghijklmnopqrstuvwxyzABCDEF",
    "google key": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "aws key": "AKIAIOSFODNN7EXAMPLE",
    "token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow/+=\nabc\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.promise("X3")
@pytest.mark.parametrize("name", SHAPES)
def test_what_looks_like_a_key_is_taken_out(name: str):
    secrets = Secrets()
    assert secrets.redact(f"it is {SHAPES[name]}, yes") == f"it is [redacted {name}], yes"
    within = secrets.redact(json.dumps({"a": SHAPES[name], "b": "kept"}))
    assert json.loads(within) == {"a": f"[redacted {name}]", "b": "kept"}


def test_a_private_key_without_an_end_leaves_the_json_around_it_whole():
    cut = json.dumps({"a": SHAPES["private key"][:50], "b": "kept"})
    assert json.loads(Secrets().redact(cut)) == {"a": "[redacted private key]", "b": "kept"}


@pytest.mark.parametrize(
    "text",
    [
        "risk-adjusted-returns-of-2024-were-fine-all-the-same",
        "the sk-learn-library-has-many-estimators-in-it",
        "task-12345678901234567890",
        "AKIA is a prefix; eyJ too; ghp_ as well, and xoxb-",
        "https://example.org/a-path/with-many-parts/20260101?x=1",
    ],
)
def test_ordinary_words_stay(text: str):
    assert Secrets().redact(text) is text


def test_short_secrets_are_left_and_a_text_without_any_is_the_same_object():
    secrets = knowing("1234567", "")
    text = "the number is 1234567"
    assert secrets.redact(text) is text


def test_each_line_of_a_long_key_is_taken_out():
    lines = ["MIIEowIBAAKCAQEA0Z3VS5JJcds3xfn", "ygWyF8PbnGy0AHB7MaB2cVHCkXkp1Vn"]
    assert lines[1] not in knowing("\n".join(lines)).redact(f"line 2: {lines[1]}")


def test_a_text_without_secrets_costs_little():
    secrets = knowing(*(f"sk-ant-canary{n}-9f8e7d6c5b4a39281706f5e4d3c2b1a0" for n in range(5)))
    text = ("The quick brown fox jumps over the lazy dog, and tasks wait. " * 17)[:1024]
    best = 1.0
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(100):
            secrets.redact(text)
        best = min(best, (time.perf_counter() - began) / 100)
    assert best < 60e-6  # 20 µs on a machine with nothing else to do
