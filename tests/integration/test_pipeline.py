"""The pipeline around the model: processors before it, sections, evaluators after it."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from asterism import Judgement, JudgementKind, ProcessorNote, TurnState, TurnView
from asterism.errors import ConfigError
from asterism.ports import Emit, ModelRequest
from asterism.testing.scripted import Line, ScriptedModel
from asterism.types.agents import Audience, Trust
from asterism.types.memory import Source
from asterism.types.turns import EntryKind, Reply
from tests.scenes import heard, open_home


class Weather:
    """Tells the agent the weather, if the message speaks of it."""

    def __init__(self, source: Source | None = None) -> None:
        self.views: list[TurnView] = []
        self._sources = () if source is None else (source,)

    async def process(self, turn: TurnView) -> Sequence[ProcessorNote]:
        """Look at a message."""
        self.views.append(turn)
        if "weather" not in turn.message:
            return []
        return [ProcessorNote("It rains.", "the message speaks of the weather", self._sources)]


class Rules:
    """Adds a section."""

    async def section(self, turn: TurnView) -> str:
        """Return the section."""
        return f"House rules for {turn.agent.name}: no shoes."


class Polite:
    """Wants a polite answer, and notes long ones."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def evaluate(self, turn: TurnView, answer: str) -> Judgement:
        """Look at an answer."""
        del turn
        self.seen.append(answer)
        if "please" not in answer:
            return Judgement(JudgementKind.RETRY, "It lacks a please.")
        if len(answer) > 20:
            return Judgement(JudgementKind.NOTE, "It is long.")
        return Judgement()


class Broken:
    """Fails, or takes for ever."""

    def __init__(self, *, slow: bool = False) -> None:
        self._slow = slow

    async def process(self, turn: TurnView) -> Sequence[ProcessorNote]:
        """Fail."""
        if self._slow:
            await asyncio.Event().wait()
        raise ValueError(turn.message)

    async def evaluate(self, turn: TurnView, answer: str) -> Judgement:
        """Fail."""
        del turn
        raise ValueError(answer)


def home(place: Path, lines: Sequence[Line], **given: Any):
    model = ScriptedModel(lines)
    return open_home(place, model, **given), model


@pytest.mark.promise("T6")
async def test_a_processor_tells_the_agent_something_before_the_message(tmp_path: Path):
    weather = Weather()
    opened, model = home(tmp_path, ["Wet.", "Hello."], plugins={"processors": {"weather": weather}})
    async with opened as house:
        aria = await house.agents.create("aria")
        outcome = await aria.ask("How is the weather?")
        await aria.ask("Hello")
        _, entries = await house.turns.get(outcome.turn_id)
    told = [message["content"] for message in heard(model.requests[0])][-2:]
    assert told == ["[asterism] It rains.", "How is the weather?"]
    (note,) = [entry for entry in entries if entry.key.startswith("note/weather")]
    assert note.kind is EntryKind.MESSAGE
    assert "the message speaks of the weather" in (note.meta or "")
    assert heard(model.requests[1])[-1]["content"] == "Hello"
    assert weather.views[1].previous == ("How is the weather?", "Wet.")


@pytest.mark.promise("T6", "X6")
async def test_what_a_processor_tells_is_trusted_as_far_as_its_source(tmp_path: Path):
    web = Source((), Audience.read("owner"), Trust.WEB)
    opened, _ = home(tmp_path, ["Wet."], plugins={"processors": {"weather": Weather(web)}})
    async with opened as house:
        aria = await house.agents.create("aria")
        outcome = await aria.ask("How is the weather?")
        record, _ = await house.turns.get(outcome.turn_id)
    assert record.trust == "web"


@pytest.mark.promise("T6", "M12")
async def test_a_section_stands_in_the_prefix_and_stays_there(tmp_path: Path):
    opened, model = home(tmp_path, ["One.", "Two."], plugins={"sections": {"rules": Rules()}})
    async with opened as house:
        aria = await house.agents.create("aria")
        await aria.ask("a")
        await aria.ask("b")
    prefixes = {request.messages[0] for request in model.requests}
    assert len(prefixes) == 1
    assert b"House rules for aria: no shoes." in prefixes.pop()


@pytest.mark.promise("T6", "T12")
async def test_an_evaluator_asks_for_another_try_and_the_turn_replays(tmp_path: Path):
    polite = Polite()
    lines: list[Line] = ["Sit.", "Sit down, please, my dear friend."]
    opened, model = home(tmp_path, lines, plugins={"evaluators": {"polite": polite}})
    async with opened as house:
        aria = await house.agents.create("aria")
        outcome = await aria.ask("May I come in?")
        _, entries = await house.turns.get(outcome.turn_id)
        replayed = await house.turns.replay(outcome.turn_id)
    assert outcome.text == "Sit down, please, my dear friend."
    assert "It lacks a please. Answer again." in heard(model.requests[1])[-1]["content"]
    judged = {entry.key: entry.body for entry in entries if "/evaluate/" in entry.key}
    assert list(judged) == ["0/evaluate/polite", "1/evaluate/polite"]
    assert b"It is long." in judged["1/evaluate/polite"]
    assert replayed.same, replayed.differences


@pytest.mark.promise("T6")
async def test_tries_are_bounded(tmp_path: Path):
    polite = Polite()
    opened, model = home(tmp_path, ["Sit."] * 9, plugins={"evaluators": {"polite": polite}})
    async with opened as house:
        aria = await house.agents.create("aria")
        assert (await aria.ask("May I come in?")).text == "Sit."
    assert len(model.requests) == 3  # the answer, and two more tries


@pytest.mark.promise("T6")
async def test_each_agent_has_a_pipeline_of_its_own(tmp_path: Path):
    polite, weather = Polite(), Weather()
    settings: dict[str, Any] = {
        "pipeline": {"evaluators": ["polite"], "processors": ["weather"], "retries": 1},
        "agents": {"bea": {"pipeline": {"evaluators": [], "processors": []}}},
    }
    plugins = {"processors": {"weather": weather}, "evaluators": {"polite": polite}}
    opened, model = home(tmp_path, ["Sit."] * 9, settings=settings, plugins=plugins)
    async with opened as house:
        await (await house.agents.create("aria")).ask("weather")
        await (await house.agents.create("bea")).ask("weather")
    assert len(model.requests) == 3
    assert [view.agent.name for view in weather.views] == ["aria"]
    assert polite.seen == ["Sit.", "Sit."]


@pytest.mark.promise("T6", "X5")
@pytest.mark.parametrize("slow", [False, True])
async def test_a_plugin_that_fails_does_not_cost_the_answer(tmp_path: Path, slow: bool):
    broken = Broken(slow=slow)
    plugins = {"processors": {"broken": broken}, "evaluators": {"broken": broken}}
    settings = {"pipeline": {"seconds": 0.05}}
    opened, _ = home(tmp_path, ["Hello."], plugins=plugins, settings=settings)
    async with opened as house:
        aria = await house.agents.create("aria")
        outcome = await aria.ask("Hello")
        notices = await house.notices.list()
    assert (outcome.state, outcome.text) == (TurnState.DONE, "Hello.")
    kinds = [notice.kind for notice in notices]
    assert kinds == ["pipeline.processors", "pipeline.evaluators"]
    assert "The turn went on without it." in notices[0].text


@pytest.mark.promise("T6", "X5")
async def test_a_plugin_that_is_not_there_is_named(tmp_path: Path):
    settings = {"pipeline": {"processors": ["astrology"]}}
    opened, _ = home(tmp_path, ["Hello."], settings=settings)
    async with opened as house:
        aria = await house.agents.create("aria")
        assert (await aria.ask("Hello")).text == "Hello."
        (notice,) = await house.notices.list()
    assert "There is no plugin 'astrology' for processors." in notice.text
    with pytest.raises(ConfigError, match="'critics' is not a valid kind of plugin"):
        async with open_home(tmp_path / "b", ScriptedModel(), plugins={"critics": {}}):
            pass


class Mortal(ScriptedModel):
    """Falls silent at its second request."""

    def __init__(self, lines: Sequence[Line]) -> None:
        super().__init__(lines)
        self.silent = asyncio.Event()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Say the next line, or nothing any more."""
        if self.requests:
            self.silent.set()
            await asyncio.Event().wait()
        return await super().complete(request, emit)


@pytest.mark.promise("T6", "T2")
async def test_what_was_judged_before_a_crash_is_not_judged_again(tmp_path: Path):
    first, second = Polite(), Polite()
    mortal = Mortal(["Sit."])
    opened = open_home(tmp_path, mortal, plugins={"evaluators": {"polite": first}}, grace=0.0)
    async with opened as house:
        await house.agents.create("aria")
        receipt = await house.agents.send("aria", "May I come in?")
        async with asyncio.timeout(120):
            await mortal.silent.wait()
    heir = ScriptedModel(["Sit down, please."])
    async with open_home(tmp_path, heir, plugins={"evaluators": {"polite": second}}) as house:
        assert (await house.turns.wait(receipt)).text == "Sit down, please."
    assert first.seen == ["Sit."]
    assert second.seen == ["Sit down, please."]


async def test_an_empty_answer_is_asked_for_again(tmp_path: Path):
    opened, model = home(tmp_path, ["", "Hello."])
    async with opened as house:
        aria = await house.agents.create("aria")
        assert (await aria.ask("Hello")).text == "Hello."
    assert len(model.requests) == 2
