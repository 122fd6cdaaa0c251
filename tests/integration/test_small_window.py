"""A small model is sent little of the past; a digest by rule stands for the rest of it."""

from itertools import pairwise
from pathlib import Path

import orjson
import pytest

from asterism import Asterism
from asterism.memory.forgetting import Forgetting
from asterism.ports import ModelRequest, Profile
from asterism.testing.scripted import ScriptedModel
from asterism.turns.digest import SHORT_DIGEST_BYTES, digest_lines, short_digest
from asterism.types.turns import message_wire, text_of
from tests.scenes import open_home

PLAIN: dict[str, list[str]] = {"pipeline.processors": []}
"""Without what memory brings by itself, a small model knows only what is in its window."""
BOUND = 1_200 * 4
FACTS = (
    "My name is Lena and I live in Kyoto.",
    "My cat is called Miso.",
    "I am allergic to nuts.",
    "My sister Anna works as a nurse in Bern.",
)


class SmallModel(ScriptedModel):
    """A vendor of small models."""

    def profile(self, model: str) -> Profile:
        del model
        return Profile(window=8_192, compact=True, images=False)


def answering() -> SmallModel:
    return SmallModel(iter(lambda: "I see. Tell me more about that, if you like.", None))


def told(request: ModelRequest) -> list[str]:
    return [text_of(message) for message in request.messages]


def chatter(number: int) -> str:
    walks = "I walked along the river and looked at the boats. " * 4
    return f"Walk number {number}. {walks}"


async def talk(home: Asterism, count: int, first: int = 0) -> None:
    aria = await home.agents.get("aria")
    for number in range(first, first + count):
        await aria.ask(chatter(number))


@pytest.mark.promise("M11")
async def test_what_has_left_the_small_window_is_still_told_in_short(tmp_path: Path):
    model = answering()
    async with open_home(tmp_path, model, settings=PLAIN) as home:
        aria = await home.agents.create("aria")
        for fact in FACTS:
            await aria.ask(fact)
        await talk(home, 40)
        await aria.ask("What is my cat called?")
        asked = len(model.requests)
        request = model.requests[-1]
        assert asked == len(FACTS) + 41, "a model was asked for a summary"
        earlier = told(request)[1]
        for fact in FACTS:
            assert fact in earlier
            assert not any(fact in text for text in told(request)[2:])
        assert len(earlier) < SHORT_DIGEST_BYTES + 150
        sent = sum(map(len, request.messages[2:]))
        assert sent < BOUND + 200
        # The originals are all there, and the agent can find them.
        hits = (await home.search("aria", "Miso")).hits
        assert hits[0].text == FACTS[1]


@pytest.mark.promise("M11", "M12")
async def test_what_a_small_model_is_sent_stays_the_same_for_many_turns(tmp_path: Path):
    model = answering()
    async with open_home(tmp_path, model, settings=PLAIN) as home:
        await home.agents.create("aria")
        await talk(home, 60)
    requests = model.requests
    size = sum(map(len, requests[1].messages)) - sum(map(len, requests[0].messages))
    cuts = 0
    for former, request in pairwise(requests):
        assert request.messages[0] == former.messages[0]
        cuts += request.messages[: len(former.messages)] != former.messages
        assert sum(map(len, request.messages[1:])) < BOUND + SHORT_DIGEST_BYTES + size + 200
    turns_between = BOUND / 2 / size
    assert 2 <= cuts <= 60 / turns_between + 1


@pytest.mark.promise("M11")
async def test_the_latest_exchange_stays_if_it_fits(tmp_path: Path):
    model = answering()
    async with open_home(tmp_path, model, settings=PLAIN) as home:
        aria = await home.agents.create("aria")
        await aria.ask("Hello. " * 150)
        long = "I tell you about the boats on the river. " * 90
        await aria.ask(long)
        await aria.ask("What did I just say?")
        messages = told(model.requests[-1])
        assert any(long in text for text in messages)
        assert not any("Hello. Hello." in text for text in messages)
        # One that does not fit by itself leaves like any other.
        await aria.ask(long * 2)
        await aria.ask("And now?")
        assert not any(long in text for text in told(model.requests[-1]))


@pytest.mark.promise("M12")
async def test_a_restart_does_not_change_what_a_small_model_is_sent(tmp_path: Path):
    for count in (7, 11, 14):
        place = tmp_path / str(count)
        model, again = answering(), answering()
        async with open_home(place, model, settings=PLAIN) as home:
            await home.agents.create("aria")
            await talk(home, count)
            before = await home.contexts.now("aria")
        async with open_home(place, again, settings=PLAIN) as home:
            after = await home.contexts.now("aria")
            assert after.messages == before.messages
            await talk(home, 1, count)
        length = len(before.messages)
        assert tuple(again.requests[-1].messages[:length]) == before.messages


@pytest.mark.promise("M11", "T11")
async def test_a_digest_is_shown_where_it_was_sent(tmp_path: Path):
    model = answering()
    async with open_home(tmp_path, model, settings=PLAIN) as home:
        aria = await home.agents.create("aria")
        await aria.ask(FACTS[1])
        await talk(home, 30)
        outcome = await aria.ask("Hello?")
        shown = await home.contexts.of_turn(outcome.turn_id)
        assert list(shown.messages) == model.requests[-1].messages
        (line,) = [line for line in shown.lines if line.part == "earlier"]
        (left_out,) = [left for left in shown.left_out if "message" in left.what]
        assert f"stands for {left_out.what.split()[0]} earlier messages" in line.why
        assert FACTS[1] in line.text
        assert 0 < line.tokens < 250


@pytest.mark.promise("M13")
async def test_a_digest_forgets_what_is_forgotten(tmp_path: Path):
    model = answering()
    async with open_home(tmp_path, model, settings=PLAIN) as home:
        aria = await home.agents.create("aria")
        for fact in FACTS:
            await aria.ask(fact)
        await talk(home, 30)
        assert "Miso" in told(model.requests[-1])[1]
        await home.memory.forget(Forgetting(texts=("My cat is called Miso",)))
        await aria.ask("Hello?")
        assert not any("Miso" in text for text in told(model.requests[-1]))
        assert FACTS[2] in told(model.requests[-1])[1]


@pytest.mark.promise("M11")
async def test_a_summary_that_is_too_long_for_a_small_model_is_told_in_short(tmp_path: Path):
    summary = "\n".join(
        ["My cat is called Miso.", *(f"Lena walked along the river on day {n}." for n in range(90))]
    )

    def answer(request: ModelRequest) -> str:
        return summary if "/compact/" in request.key else "I see."

    async with open_home(tmp_path, ScriptedModel.from_rule(answer), settings=PLAIN) as home:
        await home.agents.create("aria")
        await talk(home, 12)
        await home.contexts.compact("aria")
    model = answering()
    async with open_home(tmp_path, model, settings=PLAIN) as home:
        await (await home.agents.get("aria")).ask("Hello?")
        messages = told(model.requests[-1])
        assert "Miso" not in messages[0]
        assert "My cat is called Miso." in messages[1]
        shown = await home.contexts.now("aria")
        assert list(shown.messages[:2]) == model.requests[-1].messages[:2]


def wires(*texts: str) -> list[bytes]:
    return [message_wire("user", text) for text in texts]


def digest(messages: list[bytes]) -> str:
    return short_digest(list(digest_lines(messages)))


def test_a_digest_names_days_once_and_takes_in_neither_tools_nor_the_system():
    result = orjson.dumps({"role": "tool", "tool_call_id": "c", "content": "My code is 4711."})
    said = wires(
        "[Tue 2026-11-17 14:05] My cat is called Miso.",
        "[Tue 2026-11-17 14:06] I am allergic to nuts.",
        "[asterism] My owner is called Bob.",
        "[Wed 2026-11-18 09:00] My name is Lena.",
    )
    assert digest([*said, result]) == (
        "2026-11-17:\n- person: My cat is called Miso.\n- person: I am allergic to nuts.\n"
        "2026-11-18:\n- person: My name is Lena."
    )
    assert digest([result]) == ""


def test_a_digest_says_the_same_once_and_stays_short():
    facts = [f"My colleague number {n} is called Name{n} and likes tea." for n in range(200)]
    told_twice = digest(wires("My cat is called Miso.", "My cat is called Miso."))
    assert told_twice.count("Miso") == 1
    assert len(digest(wires(*facts)).encode()) <= SHORT_DIGEST_BYTES
