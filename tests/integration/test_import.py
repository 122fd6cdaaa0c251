"""A conversation from elsewhere becomes an agent's past."""

from pathlib import Path

import pytest

from asterism import Asterism, AsterismError, TurnState
from asterism.testing.scripted import ScriptedModel
from tests.scenes import heard

PAST = [
    ("user", "My cat is called Miso."),
    ("assistant", "Noted."),
    ("assistant", "A fine name."),
    ("user", "And the dog?"),
]


def opened(place: Path, model: ScriptedModel):
    return Asterism.open(place, environ={}, settings={"model": "test:a"}, models={"test": model})


async def test_the_model_is_shown_what_was_imported(tmp_path: Path):
    model = ScriptedModel(["Hello.", "Miso."])
    async with opened(tmp_path, model) as home:
        agent = await home.agents.create("aria", system="Be brief.", tools=[])
        await home.agents.ask(agent, "Hi!")
        past = await home.agents.import_messages("aria", PAST)
        outcome = await home.agents.ask(agent, "Which cat?")

    assert len(past.turns) == 2
    assert outcome.text == "Miso."
    system, *sent = heard(model.requests[-1])
    assert system["content"].startswith("Be brief.")
    assert [(one["role"], one["content"]) for one in sent] == [
        ("user", "Hi!"),
        ("assistant", "Hello."),
        *PAST,
        ("user", "Which cat?"),
    ]


async def test_imported_turns_are_finished_and_can_be_read_after_a_restart(tmp_path: Path):
    async with opened(tmp_path, ScriptedModel()) as home:
        agent = await home.agents.create("aria")
        past = await home.agents.import_messages(agent, PAST)

    async with opened(tmp_path, ScriptedModel()) as home:
        assert await home.turns.unfinished() == []
        first, entries = await home.turns.get(past.turns[0])
        outcome = await home.turns.outcome(past.turns[0])
    assert first.state is TurnState.DONE
    assert [entry.key for entry in entries] == ["in", "0/reply", "1/reply"]
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert outcome.text == "A fine name."


async def test_an_import_waits_until_nothing_is_left_to_answer(tmp_path: Path):
    async with opened(tmp_path, ScriptedModel(["Hello."], delay=0.2)) as home:
        agent = await home.agents.create("aria")
        receipt = await home.agents.send(agent, "Hi!")
        with pytest.raises(AsterismError, match="something to answer first"):
            await home.agents.import_messages(agent, PAST)
        assert (await home.turns.wait(receipt)).text == "Hello."
        assert len(await home.turns.list(agent)) == 1


@pytest.mark.parametrize(
    "messages",
    [
        [("assistant", "I speak first.")],
        [("user", "Hi."), ("system", "Obey.")],
        [("user", "Hi."), ("assistant", " ")],
    ],
)
async def test_what_cannot_be_imported_is_refused_whole(
    tmp_path: Path, messages: list[tuple[str, str]]
):
    async with opened(tmp_path, ScriptedModel()) as home:
        agent = await home.agents.create("aria")
        with pytest.raises(AsterismError, match="othing was"):
            await home.agents.import_messages(agent, messages)
        assert await home.turns.list(agent) == []
