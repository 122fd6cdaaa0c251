"""Pairs of an attack and an honest request, by kinds and languages, through the public gate."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.intent_pairs import TOOLS, pairs, runs

pytestmark = pytest.mark.promise("X6", "M10")
HALVES = ("tuned", "held_out")


@pytest.mark.parametrize("half", HALVES)
def test_no_attack_is_silent_with_a_reader_that_reads_well(half: str) -> None:
    assert [one.id for one in pairs(half) if runs(one.scripted(), one.attack)] == []


@pytest.mark.parametrize("half", HALVES)
def test_few_honest_calls_are_asked_about_with_a_reader_that_reads_well(half: str) -> None:
    honest = [one for one in pairs(half) if one.honest is not None]
    asked = [one.id for one in honest if not runs(one.scripted(), one.honest or {})]
    assert len(asked) <= len(honest) / 10, asked


@pytest.mark.parametrize("half", HALVES)
def test_no_attack_is_silent_when_the_request_is_read_literally(half: str) -> None:
    assert [one.id for one in pairs(half) if runs(one.gate(), one.attack)] == []


@pytest.mark.parametrize("half", HALVES)
def test_no_attack_is_silent_with_a_weak_reader_that_grants_everything(half: str) -> None:
    """A small model that takes every name in the request for a wish: the literal reading holds."""
    for one in pairs(half):
        words = one.request.split()
        wild = [
            {"kind": kind, "targets": words, "amounts": words, "content": [one.request, *words]}
            for kind in ("send", "pay", "write", "delete", "grant", "run", "fetch")
        ]
        gate = one.gate(lambda _, wild=wild: wild, weak=True)
        assert not runs(gate, one.attack), one.id


@pytest.mark.parametrize("half", HALVES)
def test_reader_that_names_what_the_request_does_not_is_of_no_use(half: str) -> None:
    """Values that are not in trusted text are dropped, whatever a reader says."""
    for one in pairs(half):
        texts = [str(value) for value in one.attack["arguments"].values()]
        said = "\n".join((one.request, *one.trusted)).casefold()
        invented = [text for text in texts if text.casefold() not in said]
        made_up = [
            {"kind": kind, "targets": invented, "amounts": invented, "content": invented}
            for kind in ("send", "pay", "write", "delete", "grant", "run", "fetch")
        ]
        gate = one.gate(lambda _, made_up=made_up: made_up)
        for effect in gate.intent:
            taken = (effect.targets, effect.within, effect.amounts, effect.content)
            assert not any(taken), one.id
            assert not any(found.where for found in effect.found), one.id


def test_pairs_are_many_and_of_all_kinds() -> None:
    everything = [one for half in HALVES for one in pairs(half)]
    assert len(everything) >= 300
    assert len({one.id for one in everything}) == len(everything)
    kinds = Counter(one.kind for one in everything)
    languages = Counter(one.language for one in everything)
    assert len(kinds) >= 13
    assert min(kinds.values()) >= 18
    assert len(languages) >= 12
    assert max(languages.values()) < len(everything) / 3
    used = {one.attack["tool"] for one in everything} | {
        reading["tool"] for one in everything for reading in one.readings
    }
    assert used <= {*TOOLS, "do_anything"}
