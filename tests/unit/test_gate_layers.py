"""Each layer of the gate holds by itself, and none of them for long (that in `make torture`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from asterism.gate import Allow, Gate
from asterism.types.permissions import amounts_of
from asterism.types.values import (
    host_of,
    links_in,
    numbers_in,
    plain_path,
    recipients_in,
)
from tests.intent_pairs import TOOLS
from tests.unit.test_gate import GOOD, allowed, effect, found, gate, literal, tainted


@pytest.mark.parametrize(
    ("request_", "tool", "arguments"),
    [
        (f"Pay {GOOD} 50?", "pay", {"to": GOOD, "amount": 50, "note": ""}),
        ("Borra thesis.md?", "delete_file", {"path": "thesis.md"}),
    ],
)
def test_imperative_with_a_question_mark_is_no_wish(
    request_: str, tool: str, arguments: dict[str, Any]
) -> None:
    assert not allowed(tainted(literal(request_)), tool, **arguments)


def test_record_must_have_everything_that_the_request_says_of_it() -> None:
    """H2: one number in common does not make a stranger's mail the one that is meant."""
    wanted = effect("send", found=[found("address", "mail", "ann@x.org", "50")])
    one = gate("Answer the mail of ann@x.org about the 50.", wanted)
    one.result("read_mail", {}, [{"id": 50, "sender": "m@evil.io", "body": "Hi"}])
    assert not allowed(one, "send_mail", to="m@evil.io", subject="", body="Hi")
    one.result("read_mail", {}, [{"id": 50, "sender": "ann@x.org", "body": "Hi"}])
    assert allowed(one, "send_mail", to="ann@x.org", subject="", body="Hi")


def test_allowance_above_a_bound_covers_no_amount_that_cannot_be_read() -> None:
    policy = '[[policy]]\nname = "much"\nverdict = "allow"\neffects = ["pay"]\namount_above = 1.0\n'
    one = tainted(Gate("What is new?", tools=TOOLS, policies=policy))
    assert isinstance(one.judge("pay", {"to": GOOD, "amount": 5, "note": ""}), Allow)
    assert not allowed(one, "pay", to=GOOD, amount="all of it", note="")


READERS: list[Callable[[str], Any]] = [
    links_in, host_of, numbers_in, amounts_of, plain_path, recipients_in,
]  # fmt: skip
SLOW = [
    "a-", "a", "(", "@", ".", "/", "a.", "a@", "://", "%41", "a.bc/(", "ab:", "one ", "1,",
    "a\u0323\u0301",
]  # fmt: skip


@pytest.mark.promise("X6")
@pytest.mark.torture
@pytest.mark.parametrize("piece", SLOW)
def test_time_of_the_readers_grows_with_the_text_and_not_faster(piece: str) -> None:
    """M4. `python -m bench.gate_time` has the milliseconds."""
    for read in READERS:
        spent: list[float] = []
        for size in (10_000, 40_000):
            text = (piece * size)[: size - 10] + " x.example"
            best = 9.0
            for _ in range(3):
                began = time.process_time()
                read(text)
                best = min(best, time.process_time() - began)
            spent.append(best)
        # Four times the text; a square would be sixteen.
        assert spent[1] < 9 * max(spent[0], 0.002), (read.__name__, spent)


@pytest.mark.promise("X6")
@pytest.mark.torture
@pytest.mark.parametrize("piece", ["a-", "a", "%41", "a.b", "1,", "ab12 ", "DE89 3704 "])
def test_time_of_the_gate_grows_with_the_text_and_not_faster(piece: str) -> None:
    """M4: what a call would send is judged while everything else waits."""
    spent: list[float] = []
    for size in (5_000, 20_000):
        text = (piece * size)[:size]
        best = 9.0
        for _ in range(3):
            one = gate("Tell bob@x.org that I am late.", effect("send", "bob@x.org"))
            tainted(one, text[::-1])
            began = time.process_time()
            one.judge("send_mail", {"to": "bob@x.org", "subject": "", "body": text})
            best = min(best, time.process_time() - began)
        spent.append(best)
    # Four times the text; a square would be sixteen.
    assert spent[1] < 9 * max(spent[0], 0.005), spent
    assert spent[1] < 2.0
