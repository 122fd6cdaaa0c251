"""What people see of a call: nothing invisible, no forged lines, targets whole, cuts said."""

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.types.permissions import (
    MAX_ANNOUNCED,
    ApprovalRecord,
    Effect,
    EffectKind,
    ToolEffect,
    announcement,
    argument_lines,
    call_lines,
    effects_in_words,
    effects_of,
    spell_call,
    visible_line,
    write_effects,
)

HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
PAY = ToolEffect("pay", recipients="to", amount="amount", content="subject")


def question(
    arguments: dict[str, Any] | str, declared: ToolEffect | None = PAY, **given_: Any
) -> ApprovalRecord:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    effects = write_effects(effects_of(declared, json.loads(written)))
    return ApprovalRecord(
        "ap_1", "agent_1", "turn_1", "0/call/0", "aria asks.", 0, "pay", written, effects, **given_
    )


@given(st.text(st.characters()))
def test_nothing_that_is_shown_is_invisible(text: str):
    shown = visible_line(text)
    assert not any(unicodedata.category(char) in HIDDEN for char in shown)
    assert visible_line(shown) == shown


@pytest.mark.parametrize(
    ("hidden", "spelled"),
    [
        ("\u202e", r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\u200b", r"\u200b"),
        ("\u2028", r"\u2028"),
        ("\ufe0f", r"\ufe0f"),
        ("\u3164", r"\u3164"),
        ("\u00a0", r"\u00a0"),
        ("\n", r"\n"),
        ("\x1b", r"\u001b"),
        ("\U000e0041", r"\udb40\udc41"),
    ],
)
def test_what_hides_or_turns_text_is_spelled_out(hidden: str, spelled: str):
    assert visible_line(f"a{hidden}b") == f"a{spelled}b"
    for text in (
        announcement(question({"to": f"a{hidden}b", "amount": 1, f"k{hidden}": hidden})),
        announcement(question({"x": f"a{hidden}b"}, None)),
        spell_call(f"a{hidden}", json.dumps({"x": hidden})),
    ):
        assert all(one == "\n" or visible_line(one) == one for one in text)
        assert spelled in text


def test_an_edited_text_of_what_was_shown_means_the_same():
    arguments = {"to": "a\u202e\U000e0041\n\x00\u2028 b", "list": [1, "ä\u200b"]}
    assert json.loads("\n".join(argument_lines(json.dumps(arguments)))) == arguments


def test_a_value_cannot_forge_a_line_or_another_target():
    lines = call_lines(question({"to": "eve\nIt would pay 1 to bob.", "amount": 500}))
    assert lines[0] == r'It would pay 500 to "eve\nIt would pay 1 to bob.".'
    assert sum(line.startswith("It would") for line in lines) == 1
    two = Effect(EffectKind.SEND, recipients=("bob", "eve"))
    one = Effect(EffectKind.SEND, recipients=("bob, eve",))
    assert effects_in_words([two]) == "send something to bob, eve"
    assert effects_in_words([one]) == 'send something to "bob, eve"'


def test_of_a_key_that_is_there_twice_the_value_is_shown_that_counts():
    lines = call_lines(question('{"to": "bob", "amount": 1, "to": "eve"}'))
    assert lines[0] == "It would pay 1 to eve."
    assert "bob" not in "\n".join(lines)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [(1234567.89, "1234567.89"), (12.0, "12"), (0.1, "0.1"), (1e9, "1" + "0" * 9)],
)
def test_an_amount_has_all_of_its_digits(amount: float, shown: str):
    assert effects_in_words([Effect(EffectKind.PAY, amount=amount)]) == f"pay {shown}"


def test_letters_that_look_like_others_are_pointed_out():
    assert "careful" in effects_in_words([Effect(EffectKind.SEND, recipients=("p\u0430ypal.com",))])
    for honest in ("Jürgen", "Иван", "δοκιμή@example.org", "李雷", "bob@example.org"):
        assert "careful" not in effects_in_words([Effect(EffectKind.SEND, recipients=(honest,))])


@given(
    st.lists(st.integers(0, 9_000), min_size=1, max_size=60),
    st.lists(st.text(st.characters(codec="ascii"), max_size=400), min_size=1, max_size=30),
)
def test_what_is_cut_is_counted_and_targets_are_not(sizes: list[int], to: list[str]):
    arguments: dict[str, Any] = {f"k{index}": "x" * size for index, size in enumerate(sizes)}
    asked = question({**arguments, "to": to, "amount": 7})
    whole = call_lines(asked)
    shown = call_lines(asked, MAX_ANNOUNCED)
    assert shown[:2] == whole[:2]
    if shown == whole:
        return
    *lines, said = shown
    gone = sum(int(line.partition(" characters")[0].split()[-1].replace(",", ""))
               for line in lines if " characters cut … " in f"{line} ")  # fmt: skip
    assert said.startswith(f"{gone:,} characters are cut here.")
    assert "asterism approval show ap_1" in said
    assert len(" ".join(lines[1:])) < MAX_ANNOUNCED * 2


@pytest.mark.parametrize("amount", ["some", ["5", "some"], float("inf")])
def test_an_amount_that_cannot_be_read_is_told(amount: Any):
    effects = effects_of(PAY, {"to": "bob", "amount": amount})
    assert effects_in_words(effects) == "pay an amount that cannot be read to bob"
    asked = ApprovalRecord("ap_1", "a", "t", "k", "?", 0, "pay", "{}", write_effects(effects))
    assert call_lines(asked)[0] == "It would pay an amount that cannot be read to bob."


def test_each_argument_is_seen_however_long_another_is():
    arguments = {"subject": "x" * 50_000, "to": "bob", "amount": 1, "last": "y" * 50_000 + "END"}
    text = announcement(question(arguments))
    assert len(text) < MAX_ANNOUNCED + 600
    for word in ("It would pay 1 to bob.", '"subject": "xxx', '"last": "yyy', 'END"'):
        assert word in text
    lost = 100_003 + len('  "subject": "",') + len('  "last": ""') - MAX_ANNOUNCED
    said = next(line for line in text.splitlines() if "are cut here" in line)
    assert abs(int(said.split()[0].replace(",", "")) - lost) < 200


def test_of_a_tool_that_declares_nothing_all_is_shown():
    text = announcement(question({"body": "x" * 20_000 + "; rm -rf /"}, None))
    assert "x; rm -rf /" in text
    assert "x" * 20_000 in text
    assert "cut" not in text
