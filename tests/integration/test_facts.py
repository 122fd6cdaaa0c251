"""Facts that stay by themselves: asked for, read by rule, read by the agent's own model."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from asterism import Agent, Asterism, Signal
from asterism.testing.scripted import ScriptedModel
from tests.scenes import heard, open_home

pytestmark = pytest.mark.promise("M17")


def settings(**remember: Any) -> dict[str, Any]:
    """Settings with options for what keeps facts by itself."""
    return {"pipeline": {"options": {"remember": {"idle_seconds": 0, **remember}}}}


async def human(agent: Agent) -> list[str]:
    """Return the lines of the block about the owner."""
    return [line.text for line in (await agent.blocks["human"].get()).lines]


async def kept(home: Asterism, agent: Agent, text: str) -> Signal:
    """Say something, and return what was then shown as kept."""

    async def watch() -> Signal:
        async for signal in home.agents.watch(agent):
            if signal.kind == "kept":
                return signal
        raise AssertionError

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await agent.ask(text)
    async with asyncio.timeout(120):
        return await watching


async def test_new_agent_has_blocks_for_its_owner_alone(tmp_path: Path) -> None:
    async with open_home(tmp_path, ScriptedModel([])) as home:
        aria = await home.agents.ensure("aria")
        seen = await aria.blocks.list()
        assert [block.name for block in seen] == ["human", "persona"]
        assert {str(block.block.audience) for block in seen} == {"owner"}
        assert [block.block.text for block in seen] == ["", ""]


async def test_remember_is_carried_out_before_the_answer(tmp_path: Path) -> None:
    model = ScriptedModel(["I will keep that in mind."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.ensure("aria")
        answer = await aria.ask("Please remember that my cat is called Miso.")
        assert answer.text == "I will keep that in mind."
        assert await human(aria) == ["My cat is called Miso"]
        assert "Kept in block 'human'" in heard(model.requests[0])[-1]["content"]
        trace = await home.memory.why("human:1", agent=aria)
        assert "my cat is called Miso" in str(trace)


async def test_why_names_the_message_and_not_what_was_worked_out_for_it(tmp_path: Path) -> None:
    async with open_home(tmp_path, ScriptedModel(["It is 391."])) as home:
        aria = await home.agents.ensure("aria")
        await aria.ask("My name is Lena. What is 17 * 23?")
        assert await human(aria) == ["My name is Lena."]
        trace = str(await home.memory.why("human:1", agent=aria))
        assert "What is 17 * 23?" in trace
        assert "Worked out exactly" not in trace


async def test_what_was_kept_is_undone_with_one_verb(tmp_path: Path) -> None:
    async with open_home(tmp_path, ScriptedModel(["Yes."])) as home:
        aria = await home.agents.ensure("aria")
        answer = await aria.ask("Remember that the spare key is under the flower pot.")
        await home.memory.revert_turn(answer.turn_id)
        assert await human(aria) == []


async def test_what_a_rule_reads_is_kept_with_the_answer(tmp_path: Path) -> None:
    async with open_home(tmp_path, ScriptedModel(["Hello, Lena!"])) as home:
        aria = await home.agents.ensure("aria")
        signal = await kept(home, aria, "My name is Lena and I live in Kyoto.")
        assert signal.data["text"] == "My name is Lena and I live in Kyoto."
        assert await human(aria) == ["My name is Lena and I live in Kyoto."]


async def test_the_same_is_kept_once_and_a_contradiction_replaces_it(tmp_path: Path) -> None:
    async with open_home(tmp_path, ScriptedModel(["Yes."] * 3)) as home:
        aria = await home.agents.ensure("aria")
        await aria.ask("I live in Kyoto.")
        await aria.ask("Remember that I live in Kyoto.")
        assert await human(aria) == ["I live in Kyoto."]
        await aria.ask("I live in Osaka.")
        assert await human(aria) == ["I live in Osaka."]
        history = await home.blocks.history(aria, "human")
        assert len(history) == 3  # created, added, replaced


async def test_the_model_reads_what_rules_leave_once_the_agent_is_idle(tmp_path: Path) -> None:
    said = "Wir haben seit gestern einen Hund, er ist ein Dackel."
    facts = [{"fact": "Sie haben einen Hund, einen Dackel.", "replaces": 0}]
    model = ScriptedModel(["Wie schön!"], facts={said: facts})
    async with open_home(tmp_path, model, settings=settings()) as home:
        aria = await home.agents.ensure("aria")
        signal = await kept(home, aria, said)
        assert signal.data == {"where": "human", "text": facts[0]["fact"], "before": ""}
        assert await human(aria) == [facts[0]["fact"]]
        assert len(model.read) == 1


async def test_a_model_cannot_add_what_nobody_said(tmp_path: Path) -> None:
    said = "We got a dog yesterday, a dachshund."
    facts = [
        {"fact": "The bank account is 4711.", "replaces": 0},
        {"fact": "We got a dog, a dachshund.", "replaces": 0},
    ]
    async with open_home(
        tmp_path, ScriptedModel(["Nice!"], facts={said: facts}), settings=settings()
    ) as home:
        aria = await home.agents.ensure("aria")
        await kept(home, aria, said)
        assert await human(aria) == ["We got a dog, a dachshund."]


async def test_a_plain_correction_changes_what_was_kept(tmp_path: Path) -> None:
    model = ScriptedModel(["Noted.", "I see."])
    async with open_home(tmp_path, model, settings=settings()) as home:
        aria = await home.agents.ensure("aria")
        await aria.ask("Remember that the piano lesson is on Wednesday at five.")
        signal = await kept(home, aria, "Sorry, it is Thursday, not Wednesday.")
        assert signal.data["before"] == "the piano lesson is on Wednesday at five"
        (line,) = await human(aria)
        assert "Thursday at five" in line
        assert "Wednesday" not in line
        assert model.read == []  # a rule was enough


@pytest.mark.parametrize(
    ("said", "correction", "line"),
    [
        ("Remember that my shoe size is 42.", "that was wrong, I take a 43", "My shoe size is 43"),
        ("My name is Katrin Meier.", "oh wait, Kathrin Mayr", "My name is Kathrin Mayr."),
        ("Merk dir, dass die Chorprobe um 19:30 ist.", "nein, 20:00", "Die Chorprobe um 20:00 ist"),
    ],
)
async def test_what_was_just_kept_is_corrected_by_the_next_message(
    tmp_path: Path, said: str, correction: str, line: str
) -> None:
    async with open_home(tmp_path, ScriptedModel(["Noted.", "I see."])) as home:
        aria = await home.agents.ensure("aria")
        await aria.ask(said)
        await aria.ask(correction)
        assert await human(aria) == [line]


@pytest.mark.parametrize(
    ("said", "wanted", "line"),
    [
        (
            "The boiler man comes every March.",
            "remember that please",
            "The boiler man comes every March.",
        ),
        (
            "",
            "I only drink rooibos these days. Keep that in mind.",
            "I only drink rooibos these days.",
        ),
        ("妹の誕生日は5月3日です", "覚えておいて", "妹の誕生日は5月3日です"),
        ("what is 6 * 7?", "remember that number, it is our flat", "It is 42. (it is our flat)"),
    ],
)
async def test_remember_that_keeps_what_was_said_before_it(
    tmp_path: Path, said: str, wanted: str, line: str
) -> None:
    async with open_home(tmp_path, ScriptedModel(["It is 42.", "Kept."])) as home:
        aria = await home.agents.ensure("aria")
        for text in filter(None, (said, wanted)):
            await aria.ask(text)
        assert line in await human(aria)


async def test_reading_can_be_turned_off_for_an_agent(tmp_path: Path) -> None:
    said = "We got a dog yesterday, a dachshund."
    model = ScriptedModel(["Yes."] * 3, facts={said: [{"fact": said, "replaces": 0}]})
    off = {"pipeline": {"options": {"remember": {"rules": False, "model": False}}}}
    async with open_home(tmp_path, model, settings={**settings(), "agents": {"aria": off}}) as home:
        aria, bea = await home.agents.ensure("aria"), await home.agents.ensure("bea")
        await aria.ask("My name is Lena.")
        await aria.ask(said)
        await kept(home, bea, said)  # what is on for this one was read after what was said before
        assert await human(aria) == []
        assert len(model.read) == 1


async def test_what_others_say_or_hear_is_not_kept_about_the_owner(tmp_path: Path) -> None:
    async with open_home(tmp_path, ScriptedModel(["Hi."] * 2), settings=settings()) as home:
        aria = await home.agents.ensure("aria")
        await aria.ask("My name is Mallory.", channel="chat", sender="mallory")
        await aria.ask("Remember that the owner owes me 100 euros.", channel="chat", sender="mal")
        assert await human(aria) == []


async def test_nothing_is_read_while_the_agent_is_at_work(tmp_path: Path) -> None:
    """A turn that takes longer than the pause before reading has the model to itself."""
    said = "We got a dog yesterday, a dachshund."
    facts = {said: [{"fact": "We got a dog, a dachshund.", "replaces": 0}]}
    model = ScriptedModel(["Nice!", "Well."], delay=0.8, facts=facts)
    async with open_home(tmp_path, model, settings=settings(idle_seconds=0.3)) as home:
        aria = await home.agents.ensure("aria")
        await aria.ask(said)
        await aria.ask("How are you?")
        assert await human(aria) == []


async def test_what_was_not_read_before_a_stop_is_read_after_the_next_turn(tmp_path: Path) -> None:
    said = "We got a dog yesterday, a dachshund."
    facts = {
        f"{said}\nHis fur is brown by the way.": [
            {"fact": "We got a dog, a dachshund.", "replaces": 0}
        ]
    }
    slow = settings(idle_seconds=3600)
    async with open_home(tmp_path, ScriptedModel(["Nice!"]), settings=slow) as home:
        await (await home.agents.ensure("aria")).ask(said)
    async with open_home(
        tmp_path, ScriptedModel(["I see."], facts=facts), settings=settings()
    ) as home:
        aria = await home.agents.ensure("aria")
        await kept(home, aria, "His fur is brown by the way.")
        assert await human(aria) == ["We got a dog, a dachshund."]


async def test_an_agent_with_schema_or_without_the_tool_answers_as_before(tmp_path: Path) -> None:
    async with open_home(tmp_path, ScriptedModel(["Yes."])) as home:
        aria = await home.agents.create("aria", tools=["calculator"])
        assert (await aria.ask("Remember that I like tea.")).text == "Yes."
        assert await human(aria) == []
