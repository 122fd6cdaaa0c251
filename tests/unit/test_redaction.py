"""Secrets taken out of texts: known ones in every form, and what looks like one."""

import base64
import html
import json
from functools import partial
from typing import Any
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from asterism.ports import ModelRequest
from asterism.telemetry import redaction
from asterism.telemetry.redaction import (
    MIN_SECRET_LENGTH,
    KnownSecrets,
    RedactingStream,
    redact_json,
)

CANARY = "pw/+ä“1%&<\"\\'x y=9"
SECRETS = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FFF, exclude_categories=("Cs", "Z", "C")),
    min_size=MIN_SECRET_LENGTH,
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
        "base64 in lines": base64.encodebytes(raw * 5).decode()[:-1],
        "base64 in short lines": _in_lines(base64.b64encode(raw).decode(), 5, "\n"),
        "base64 in lines, JSON": _in_lines(base64.b64encode(raw).decode(), 7, "\\r\\n"),
        "base64 in lines, JSON in JSON": _in_lines(base64.b64encode(raw).decode(), 7, "\\\\n"),
        "hex in capitals": raw.hex().upper(),
        "hex in pairs": raw.hex(" "),
        "hex with colons": raw.hex(":").upper(),
        "hex with dashes": raw.hex("-", 2),
        "hex in lines": _in_lines(raw.hex(" "), 12, "\n"),
        "hex as in C": ", ".join(f"0x{one:02X}" for one in raw),
        "hex as in Python": "".join(f"\\x{one:02x}" for one in raw),
        "every byte quoted": "".join(f"%{one:02X}" for one in raw),
        "decimal references": "".join(f"&#{ord(one)};" for one in secret),
        "hexadecimal references": "".join(f"&#x{ord(one):X};" for one in secret),
        "references here and there": "".join(
            f"&#{ord(one):03};" if number % 3 else one for number, one in enumerate(secret)
        ),
        "signs quoted": "".join(
            one if one.isalnum() or not one.isascii() else f"%{ord(one):02x}" for one in secret
        ),
    }


def _in_lines(text: str, width: int, between: str) -> str:
    return between.join(text[at : at + width] for at in range(0, len(text), width))


def knowing(*values: str) -> KnownSecrets:
    secrets = KnownSecrets()
    for number, value in enumerate(values):
        secrets.add(f"secret-{number}", value)
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
    put = text.count("[redacted secret-0]") * len("[redacted secret-0]")
    assert len(text) <= len('before "" after') + put + 3


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
    st.sampled_from(
        [
            *("plain", "json", "quoted", "base64", "hex", "hex in lines", "hex as in C"),
            *("decimal references", "references here and there"),
        ]
    ),
)
def test_pieces_of_a_stream_never_hold_a_secret(
    secret: str, before: str, after: str, cuts: list[int], form: str
):
    secrets = knowing(secret)
    whole = f"{before} {forms(secret)[form]} {after}"
    stream, shown, at = RedactingStream(secrets), "", 0
    for number in range(len(whole)):
        size = cuts[number % len(cuts)]
        shown += stream.feed(whole[at : at + size])
        at += size
    shown += stream.rest()
    if form != "base64":
        # What comes before the first digit may have been shown by then.
        assert shown.replace("0x", "") == secrets.redact(whole).replace("0x", "")
    else:
        assert forms(secret)[form].rstrip("=")[2:-2] not in shown


def test_a_stream_holds_back_only_what_may_become_a_secret():
    stream = RedactingStream(knowing("canary-4711-canary"))
    assert stream.feed("hello ") == "hello "
    assert stream.feed("a can") == "a "
    assert stream.feed(" of soup") == "can of soup"
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
    "asterism token": "ast_01a1ee5634cc091091a22f3f_ZB1RJrlRLU8ebVpn3XLEe26ZNM8BmZQGKVdL68bmgOS",
    "google key": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "aws key": "AKIAIOSFODNN7EXAMPLE",
    "token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N",
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow/+=\nabc\n-----END RSA PRIVATE KEY-----",
}


@pytest.mark.promise("X3")
@pytest.mark.parametrize("name", SHAPES)
def test_what_looks_like_a_key_is_taken_out(name: str):
    secrets = KnownSecrets()
    assert secrets.redact(f"it is {SHAPES[name]}, yes") == f"it is [redacted {name}], yes"
    within = secrets.redact(json.dumps({"a": SHAPES[name], "b": "kept"}))
    assert json.loads(within) == {"a": f"[redacted {name}]", "b": "kept"}


def test_a_private_key_without_an_end_leaves_the_json_around_it_whole():
    cut = json.dumps({"a": SHAPES["private key"][:50], "b": "kept"})
    assert json.loads(KnownSecrets().redact(cut)) == {"a": "[redacted private key]", "b": "kept"}


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
    assert KnownSecrets().redact(text) is text


@pytest.mark.promise("X3")
@pytest.mark.parametrize("form", forms(CANARY))
def test_json_stays_json(form: str):
    spelled = "".join(f"\\u{ord(char):04x}" for char in CANARY)
    for text in (json.dumps({"a": forms(CANARY)[form], "b": 1}), f'{{"a": "{spelled}", "b": 1}}'):
        redacted = json.loads(redact_json(text, knowing(CANARY)))
        assert set(redacted) == {"a", "b"}
        assert "[redacted secret-0]" in redacted["a"]


def test_short_secrets_are_left_and_a_text_without_any_is_the_same_object():
    secrets = knowing("1234567", "")
    text = "the number is 1234567"
    assert secrets.redact(text) is text


def test_each_line_of_a_long_key_is_taken_out():
    lines = ["MIIEowIBAAKCAQEA0Z3VS5JJcds3xfn", "ygWyF8PbnGy0AHB7MaB2cVHCkXkp1Vn"]
    assert lines[1] not in knowing("\n".join(lines)).redact(f"line 2: {lines[1]}")


LARGE = {
    "words": "The quick brown fox jumps over the lazy dog, and tasks wait. ",
    "base64": base64.encodebytes(bytes(range(256))).decode(),
    "hex": bytes(range(256)).hex(" "),
    "escaped lines": "a line\\n\\tanother\\n",
    "no ASCII": "汉字 и кириллица ",
    "white space": " \n\t",
    "references": "The quick brown fox jumps over the lazy dog. " * 9 + "Tea &amp; cake. ",
    "almost a secret": base64.b64encode(b"canary-0-canary-0-canary-").decode() + "\n",
}


@pytest.mark.promise("X3")
@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", LARGE)
def test_large_texts_of_every_kind_are_read(kind: str):
    """`python -m bench.growth` has how the time grows with the text."""
    secrets = knowing(*(f"canary-{n}-canary-{n}-canary-{n}-canary" for n in range(5)))
    hidden = base64.encodebytes(b"x" * 100 + b"canary-3-canary-3-canary-3-canary").decode()
    text = LARGE[kind] * (800_000 // len(LARGE[kind]))
    for whole, held in ((text, False), (f"{text}\n{hidden}", True)):
        assert ("[redacted secret-3]" in secrets.redact(whole)) is held


@pytest.mark.timeout(30)
def test_a_stream_of_white_space_is_read():
    stream = RedactingStream(knowing("canary-4711-canary"))
    stream.feed(base64.b64encode(b"canary").decode())
    for _ in range(3_000):
        stream.feed(" " * 100)


def test_a_key_that_is_a_word_of_the_wire_breaks_no_request(monkeypatch: pytest.MonkeyPatch):
    secrets = knowing("assistant", "function", "door-4711-door")
    monkeypatch.setattr(redaction, "SECRETS", secrets)
    monkeypatch.setattr(redaction, "redact", secrets.redact)
    monkeypatch.setattr(redaction, "redact_json", partial(redact_json, secrets=secrets))
    call = {
        "id": "call-door-4711-door",
        "type": "function",
        "function": {"name": "note", "arguments": '{"a": "door-4711-\\u0064oor"}'},
    }
    picture = f"data:image/png;base64,{base64.b64encode(b'door-4711-door' * 99).decode()}"
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": "your assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-door-4711-door", "content": "noted"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": picture}}]},
    ]
    tools = [{"type": "function", "function": {"name": "note", "description": "door-4711-door"}}]
    request = ModelRequest(
        "one", [orjson.dumps(one) for one in messages], orjson.dumps(tools), "key", 1.0
    )
    cleaned = redaction.RequestRedactor()
    sent = cleaned.request(request)
    said, result, seen = map(orjson.loads, sent.messages)
    assert (said["role"], said["content"]) == ("assistant", "your [redacted secret-0]")
    [made] = said["tool_calls"]
    assert (made["type"], made["id"]) == ("function", result["tool_call_id"])
    assert made["id"] == "call-_redacted_secret-2"
    assert orjson.loads(made["function"]["arguments"]) == {"a": "[redacted secret-2]"}
    assert seen == messages[2]
    assert b'"[redacted secret-2]"' in (sent.tools or b"")
    assert cleaned.request(sent) is sent
    secrets.add("later", "your assistant")
    assert cleaned.request(request).messages != sent.messages
