"""What a small model is spared: sums, dates and reminders are done, tools come when asked for."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, ProcessorCall, TurnView
from asterism.ports import ModelRequest, Profile
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import EntryKind
from tests.scenes import calls, heard, open_home


class Small(ScriptedModel):
    """A model that says of itself that it is a small one."""

    def profile(self, model: str) -> Profile:
        """Say so."""
        del model
        return Profile(compact=True)


def offered(request: ModelRequest) -> list[str]:
    """The tools that a request offers for its latest message alone."""
    return [one["function"]["name"] for one in orjson.loads(request.message_tools or b"[]")]


def notes(request: ModelRequest) -> list[str]:
    """What the system says in a request."""
    texts = [str(message["content"]) for message in heard(request)]
    return [text for text in texts if text.startswith("[asterism]")]


@pytest.fixture
def berlin(clock: ManualClock) -> dict[str, Any]:
    """A home in Berlin, with a clock that stands still."""
    return {"clock": clock, "settings": {"timezone": "Europe/Berlin"}}


@pytest.mark.promise("T6", "S1")
@pytest.mark.parametrize("kind", [ScriptedModel, Small])
async def test_a_sum_is_worked_out_before_any_model_speaks(
    tmp_path: Path, kind: type[ScriptedModel]
):
    model = kind(["It is 7006652.", "Hello!"])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        outcome = await aria.ask("What is 1234 * 5678?")
        await aria.ask("Thank you, that was kind.")
        shown = await home.contexts.of_turn(outcome.turn_id)
        replayed = await home.turns.replay(outcome.turn_id)
    assert notes(model.requests[0]) == ["[asterism] Worked out exactly: 1234 * 5678 = 7006652."]
    assert notes(model.requests[1]) == notes(model.requests[0]), "small talk needs no note"
    assert any("calculated exactly" in line.why for line in shown.lines)
    assert replayed.same


@pytest.mark.promise("T15")
async def test_a_small_model_is_told_the_time_where_a_message_is_about_it(
    tmp_path: Path, berlin: dict[str, Any]
):
    model = Small(["It is.", "Hm."])
    async with open_home(tmp_path, model, **berlin) as home:
        aria = await home.agents.create("aria")
        await aria.ask("Is the shop still open?")
        await aria.ask("I like bread.")
    (note,) = notes(model.requests[1])
    assert note.startswith("[asterism] Now it is ")


@pytest.mark.promise("T6", "T9")
async def test_a_reminder_is_scheduled_before_a_small_model_is_asked(
    tmp_path: Path, clock: ManualClock, berlin: dict[str, Any]
):
    model = Small(["I will."])
    async with open_home(tmp_path, model, **berlin) as home:
        aria = await home.agents.create("aria")
        outcome = await aria.ask("Remind me in 20 minutes to water the plants.")
        (planned,) = await home.schedules.list(aria)
        _, entries = await home.turns.get(outcome.turn_id)
        replayed = await home.turns.replay(outcome.turn_id)
    assert outcome.text == "I will."
    assert (planned.text, planned.due_at_ms) == ("water the plants", clock() + 20 * 60_000)
    (request,) = model.requests
    assert heard(request)[-1]["content"].startswith("Scheduled for ")
    assert offered(request) == []
    kinds = [entry.kind for entry in entries if entry.key in ("0/reply", "0/call/0", "1/reply")]
    assert kinds == [EntryKind.REPLY, EntryKind.RESULT, EntryKind.REPLY]
    assert replayed.same


async def test_a_large_model_schedules_by_itself(tmp_path: Path):
    model = ScriptedModel(["I will."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.ask("Remind me in 20 minutes to water the plants.")
        assert await home.schedules.list(aria) == []


class Lookups:
    """Calls a tool for every message."""

    def __init__(self, *wanted: ProcessorCall) -> None:
        self._wanted = wanted

    async def process(self, turn: TurnView) -> Sequence[ProcessorCall]:
        """Look at a message."""
        del turn
        return self._wanted


@pytest.mark.promise("T6")
async def test_a_processor_may_call_tools_that_the_agent_has(tmp_path: Path):
    wanted = [
        ProcessorCall("calculator", {"expression": "6 * 7"}),
        ProcessorCall("missing", {}),
    ]
    model = ScriptedModel(["It is 42.", "Hi."])
    plugins = {"processors": {"lookups": Lookups(*wanted)}}
    async with open_home(tmp_path, model, plugins=plugins) as home:
        aria = await home.agents.create("aria")
        assert (await aria.ask("Well?")).text == "It is 42."
        bare = await home.agents.create("bare", tools=["recall"])
        assert (await bare.ask("Well?")).text == "Hi."
    assert [message["content"] for message in heard(model.requests[0])][-1] == "42"
    assert heard(model.requests[1])[-1]["content"] == "Well?"


@pytest.mark.promise("S1")
async def test_tools_come_with_the_message_that_asks_for_them_and_go_after_one_call(
    tmp_path: Path,
):
    model = Small(
        [
            calls(("calculator", '{"expression": "3 * 86 + 2 * 120"}')),
            "498 cm.",
            "Good morning!",
        ]
    )
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.ask("I have 3 shelves of 86 cm and 2 of 120 cm. Are they longer than my wall?")
        await aria.ask("Good morning!")
    asked, answered, greeted = model.requests
    assert [request.tools for request in model.requests] == [None] * 3
    assert offered(asked) == ["calculator"]
    assert heard(answered)[-1]["content"] == "498"
    assert offered(answered) == offered(greeted) == []


async def test_a_message_that_needs_two_tools_gets_them_one_after_the_other(tmp_path: Path):
    model = Small(
        [
            calls(("search", '{"query": "paint"}')),
            calls(("calculator", '{"expression": "6 * 41.9"}')),
            "251.40.",
        ]
    )
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.archive.add("A can of paint costs 41.90 euros.")
        await aria.ask("What do 6 cans of paint cost, and 0 brushes? Look it up.")
    assert [sorted(offered(request)) for request in model.requests] == [
        ["calculator", "search"],
        ["calculator"],
        [],
    ]


async def look_up_in_vain(home: Asterism) -> None:
    aria = await home.agents.ensure("aria")
    outcome = await aria.ask("My cat is called Miso. Look up how my cat is called.")
    assert outcome.text == "Miso."
    _, entries = await home.turns.get(outcome.turn_id)
    assert any(entry.key == "0/call/0" for entry in entries), "the journal keeps it"


@pytest.mark.promise("T2")
@pytest.mark.parametrize("arguments", ['{"query": "zebra"}', '{"question": "zebra"}'])
async def test_a_small_model_does_not_see_what_it_looked_up_in_vain(tmp_path: Path, arguments: str):
    model = Small([calls(("search", arguments)), "Miso.", "Yes.", "No."])
    async with open_home(tmp_path, model) as home:
        await look_up_in_vain(home)
        await home.agents.ask("aria", "Nice?")
    async with open_home(tmp_path, model) as home:
        await home.agents.ask("aria", "Nice!")
    assert offered(model.requests[0]) == ["search"]
    assert offered(model.requests[1]) == []
    for request in model.requests:
        assert all(message["role"] in ("system", "user", "assistant") for message in heard(request))
        assert all("tool_calls" not in message for message in heard(request))


async def test_a_small_model_sees_what_could_not_be_done(tmp_path: Path):
    wrong = '{"operation": "at", "when": "when the cows come home", "message": "Milk."}'
    model = Small([calls(("schedule", wrong)), "I could not read that time."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.ask("Remind me of milk when the cows come home.")
    assert "is not a valid time" in heard(model.requests[1])[-1]["content"]
    assert offered(model.requests[1]) == []


@pytest.mark.promise("T6")
async def test_a_small_model_that_refuses_is_asked_again(tmp_path: Path):
    refusal = "Lo siento, pero no puedo ayudarte con eso."
    model = Small([refusal, "Se llama Maricarmen."])
    async with open_home(tmp_path, model) as house:
        aria = await house.agents.create("aria")
        assert (await aria.ask("¿Cómo se llama mi vecina?")).text == "Se llama Maricarmen."
    other = ScriptedModel([refusal])
    async with open_home(tmp_path / "other", other) as house:
        aria = await house.agents.create("aria")
        assert (await aria.ask("¿Cómo se llama mi vecina?")).text == refusal


@pytest.mark.promise("T15", "M17")
async def test_a_correction_moves_the_reminder_that_was_just_made(
    tmp_path: Path, berlin: dict[str, Any]
):
    model = Small(["I will.", "Moved."])
    async with open_home(tmp_path, model, **berlin) as home:
        aria = await home.agents.create("aria")
        await aria.ask("remind me tomorrow at 10:00 to call the bank")
        (before,) = await home.schedules.list(aria)
        await aria.ask("Make that 11:00 instead, please.")
        (after,) = await home.schedules.list(aria)
    assert after.text == before.text == "call the bank"
    assert after.due_at - before.due_at == timedelta(hours=1)


async def test_a_corrected_question_is_worked_out_anew(tmp_path: Path):
    model = Small(["57.", "71.25."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.ask("I bought 12 tiles at 4.75 each. What do they cost?")
        await aria.ask("ah sry it was 15 tiles")
    assert any("15 * 4.75 = 71.25" in note for note in notes(model.requests[-1]))


async def test_reminders_are_listed_and_cancelled_in_words(tmp_path: Path, berlin: dict[str, Any]):
    model = Small(["I will.", "I will.", "Two.", "Done."])
    async with open_home(tmp_path, model, **berlin) as home:
        aria = await home.agents.create("aria")
        await aria.ask("remind me in 45 minutes to ring Esther")
        await aria.ask("remind me tomorrow at 9 to water the ferns")
        await aria.ask("Anything planned for me?")
        assert "ring Esther" in str(heard(model.requests[-1])[-1])
        await aria.ask("cancel the reminder about Esther please")
        assert [entry.text for entry in await home.schedules.list(aria)] == ["water the ferns"]


async def test_a_small_model_that_repeats_the_question_is_asked_again(
    tmp_path: Path, berlin: dict[str, Any]
):
    model = Small(["On est quelle date demain ?", "Demain, c'est samedi."])
    async with open_home(tmp_path, model, **berlin) as home:
        aria = await home.agents.create("aria")
        assert (await aria.ask("On est quelle date demain ?")).text == "Demain, c'est samedi."


@pytest.mark.parametrize(
    ("message", "echo", "answer"),
    [
        (
            "Hi! I am Lena and I live in Kyoto.",
            "Hello! I am Lena and I live in Kyoto.",
            "Hello Lena!",
        ),
        (
            "Hallo, ich bin Jonas und wohne in Köln.",
            "Hallo, ich bin Jonas und wohne in Köln.",
            "Hallo Jonas!",
        ),
    ],
)
async def test_a_small_model_that_speaks_of_its_owner_as_of_itself_is_asked_again(
    tmp_path: Path, message: str, echo: str, answer: str
):
    async with open_home(tmp_path, Small([echo, answer])) as home:
        aria = await home.agents.create("aria")
        assert (await aria.ask(message)).text == answer


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("I am Lena and I live in Kyoto.", "You live in Kyoto, Lena, and I will remember it."),
        ("Please water the plants with me.", "I will water the plants with you."),
        ("Gieß bitte die Pflanzen mit mir.", "Ich gieße die Pflanzen mit dir."),
    ],
)
async def test_what_a_small_model_says_to_its_owner_stands(tmp_path: Path, message: str, said: str):
    async with open_home(tmp_path, Small([said, "another answer"])) as home:
        aria = await home.agents.create("aria")
        assert (await aria.ask(message)).text == said


async def test_a_reminder_is_not_shown_as_something_that_was_kept(
    tmp_path: Path, berlin: dict[str, Any]
):
    async with open_home(tmp_path, Small(["I will."]), **berlin) as home:
        aria = await home.agents.create("aria")
        shown = [signal.kind async for signal in aria.stream("remind me at 18:30 to eat")]
    assert "call" in shown
    assert "kept" not in shown


@pytest.mark.promise("T6")
@pytest.mark.parametrize("text", ["Water the plants.", "Remind me to call Ada."])
async def test_a_small_model_is_not_offered_to_schedule_what_has_just_come(
    tmp_path: Path, text: str
):
    """It would put off the reminder, again and again, and remind nobody."""
    model = Small(["Please do it now.", "Good."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.ask(f"[scheduled for Thu 19 Nov 03:58] {text}")
        await aria.ask("Could you plan a reminder for the plants some day?")
    assert "schedule" not in offered(model.requests[0])
    assert (
        f'It is time now for what your owner had planned: "{text}"' in notes(model.requests[0])[-1]
    )
    assert "schedule" in offered(model.requests[1])
