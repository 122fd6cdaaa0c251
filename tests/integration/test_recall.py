"""Memory that comes by itself: what an agent knows on a message is put before it unasked."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from asterism.errors import ConfigError
from asterism.memory.forgetting import Forgetting
from asterism.ports import Emit, ModelRequest, Profile
from asterism.testing.scripted import Line, ScriptedModel
from asterism.times import to_datetime
from asterism.types.turns import EntryKind, PastMessage, Reply
from bench.small_talk import MEASURED
from tests.scenes import heard, open_home

pytestmark = pytest.mark.promise("M16")

FACT = "My sister Judith moved to Rotterdam and restores old church organs there."
QUESTION = "Where does my sister Judith live now?"
NOTE = "[asterism] From your memory"
_DAY = 86_400_000
_BEGIN = 1_750_000_000_000


class Small(ScriptedModel):
    """A model that says of itself that it is a small one, so that it is sent little of the past."""

    def profile(self, model: str) -> Profile:
        """Say so."""
        del model
        return Profile(compact=True)


def past(*facts: str, after: int = 150) -> list[PastMessage]:
    """Facts, each with an answer, and then many messages about something else."""
    spoken: list[tuple[str, str]] = [(fact, "I see.") for fact in facts]
    spoken += [
        (
            f"Today I walked {number} kilometres along the canal and saw {number % 7} herons.",
            f"That makes {number} kilometres, a fine walk along the canal.",
        )
        for number in range(1, after + 1)
    ]
    return [
        PastMessage(role, text, at=to_datetime(_BEGIN + place * _DAY // 4))
        for place, (asked, answer) in enumerate(spoken)
        for role, text in (("user", asked), ("assistant", answer))
    ]


def recalled(request: ModelRequest) -> list[str]:
    """What a request tells of memory right before its last message, piece by piece."""
    note = str(heard(request)[-2]["content"])
    return note.split("\n- ")[1:] if note.startswith(NOTE) else []


async def test_what_was_said_long_ago_is_put_before_the_model(tmp_path: Path):
    model = Small(["In Rotterdam.", "Bye."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(FACT))
        outcome = await aria.ask(QUESTION)
        _, entries = await home.turns.get(outcome.turn_id)
        shown = await home.contexts.of_turn(outcome.turn_id)
        replayed = await home.turns.replay(outcome.turn_id)
    prefix, earlier, *tail = heard(model.requests[0])
    assert not any(FACT in str(message) for message in (prefix, *tail[:-2]))
    assert "in short" in earlier["content"]  # the digest has it, without where and when
    (piece, *_) = recalled(model.requests[0])
    assert FACT in piece
    assert "2025-06-15" in piece
    assert "owner said" in piece
    assert "[words: " in piece
    assert heard(model.requests[0])[-1]["content"] == QUESTION
    (note,) = [entry for entry in entries if entry.key.startswith("note/recall")]
    assert note.kind is EntryKind.MESSAGE
    assert '"why"' in (note.meta or "")
    assert '"origins"' in (note.meta or "")
    (line,) = [line for line in shown.lines if line.text.startswith(NOTE)]
    assert "words: " in line.why
    assert "likely" in line.why
    assert replayed.same, replayed.differences


async def test_what_the_model_sees_anyway_is_not_told_again(tmp_path: Path):
    """A big model is sent everything; a small one sees what it was told a moment ago."""
    big = ScriptedModel(["In Rotterdam.", "Yes."])
    async with open_home(tmp_path / "big", big) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(FACT))
        await aria.archive.add("The garage code is 4711.")  # so that there is something to search
        await aria.ask(QUESTION)
    assert recalled(big.requests[0]) == []
    small = Small(["In Rotterdam.", "Yes."])
    async with open_home(tmp_path / "small", small) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(FACT))
        await aria.ask(QUESTION)
        await aria.ask("My sister Judith lives in Rotterdam, does she not?")
    assert FACT in recalled(small.requests[0])[0]
    assert not any(FACT in piece for piece in recalled(small.requests[1]))


async def test_small_talk_gets_nothing(tmp_path: Path):
    talk = MEASURED[::8]
    model = Small(["Hello."] * len(talk))
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(FACT, "I am allergic to walnuts."))
        for text in talk:
            await aria.ask(text)
    told = [text for text, request in zip(talk, model.requests, strict=True) if recalled(request)]
    assert len(talk) == 25
    assert len(told) <= 1, told


async def test_a_short_question_is_read_with_what_it_refers_to(tmp_path: Path):
    model = Small(["A fine city.", "In June.", "Fine."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(FACT))
        await aria.ask("Rotterdam restores its church organs.")
        await aria.ask("And who is doing that there?")
    assert any(FACT in piece for request in model.requests for piece in recalled(request))


@pytest.mark.parametrize(("small", "most", "tokens"), [(True, 3, 250), (False, 6, 700)])
async def test_the_budget_is_kept(tmp_path: Path, small: bool, most: int, tokens: int):
    facts = [
        f"Judith has repaired church organ number {number} in Rotterdam. " + "It was hard. " * 40
        for number in range(12)
    ]
    model = (Small if small else ScriptedModel)(["Many."])
    settings = {"context": {"tokens": 4_000, "strategy": "truncate"}}
    async with open_home(tmp_path, model, settings=settings) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(*facts))
        await aria.ask("Which church organs in Rotterdam has Judith repaired?")
    pieces = recalled(model.requests[0])
    assert 1 < len(pieces) <= most
    assert len(str(heard(model.requests[0])[-2]["content"]).encode()) / 4 <= tokens


async def test_it_is_tuned_and_turned_off_by_agent(tmp_path: Path):
    settings: dict[str, Any] = {
        "pipeline": {"options": {"recall": {"hits": 1}}},
        "agents": {
            "bea": {"pipeline": {"processors": []}},
            "cleo": {"pipeline": {"options": {"recall": {"threshold": 1.0}}}},
            "dora": {"pipeline": {"options": {"recall": {"domains": ["passages"]}}}},
        },
    }
    model = Small(["Rotterdam."] * 4)
    async with open_home(tmp_path, model, settings=settings) as home:
        for name in ("aria", "bea", "cleo", "dora"):
            agent = await home.agents.create(name)
            await agent.import_messages(past(FACT, "Judith likes her house in Rotterdam."))
            await agent.ask(QUESTION)
    assert [len(recalled(request)) for request in model.requests] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"hits": "many"}, r'recall\.hits is "many"; a whole number from 1 to 20 is needed'),
        ({"tokens": 10}, r"recall\.tokens is 10; a whole number from 50 to 4,000 is needed"),
        ({"threshold": 2.0}, r"recall\.threshold is 2\.0; a number from 0 to 1 is needed"),
        ({"domains": ["dreams"]}, r"recall\.domains"),
        ({"hit": 3}, r"recall\.hit is not a setting"),
    ],
)
async def test_a_wrong_option_is_refused(tmp_path: Path, options: dict[str, Any], problem: str):
    settings = {"pipeline": {"options": {"recall": options}}}
    with pytest.raises(ConfigError, match=problem):
        async with open_home(tmp_path, Small(), settings=settings):
            pass


@pytest.mark.promise("X6")
async def test_documents_come_by_themselves_and_are_trusted_as_documents(tmp_path: Path):
    (tmp_path / "papers").mkdir()
    text = "The boiler in the cellar is a Vaillant; its pressure must be 1.6 bar.\n"
    (tmp_path / "papers" / "boiler.md").write_text(text)
    model = ScriptedModel(["Good morning.", "1.6 bar."])
    async with open_home(tmp_path / "home", model) as home:
        aria = await home.agents.create("aria")
        await home.sources.add("papers", tmp_path / "papers", agents=["aria"])
        await home.sources.sync("papers")
        turns = [
            (await aria.ask(text)).turn_id
            for text in ("Good morning!", "What pressure must the boiler in the cellar have?")
        ]
        records = [(await home.turns.get(turn_id))[0] for turn_id in turns]
    (piece,) = recalled(model.requests[1])
    assert "papers/boiler.md" in piece
    assert "(from a document)" in piece
    assert "1.6 bar" in piece
    assert [record.trust for record in records] == [None, "document"]


@pytest.mark.promise("M9")
async def test_a_stranger_is_not_told_what_the_owner_said_alone(tmp_path: Path):
    model = Small(["I cannot say.", "In Rotterdam."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(FACT))
        await aria.archive.add("Judith lives on the Westersingel in Rotterdam.")
        asked = QUESTION.replace("my sister ", "")
        await home.agents.ask("aria", asked, channel="chat", sender="eve", room="kitchen")
        await aria.ask(QUESTION)
    assert recalled(model.requests[0]) == []
    assert "Rotterdam" not in str(heard(model.requests[0]))
    assert len(recalled(model.requests[1])) >= 2


class Mortal(Small):
    """Falls silent at its first request."""

    def __init__(self, lines: Sequence[Line] = ()) -> None:
        super().__init__(lines)
        self.silent = asyncio.Event()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Say nothing any more."""
        del request, emit
        self.silent.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.promise("T2")
async def test_a_turn_that_is_taken_up_again_has_the_note_once(tmp_path: Path):
    mortal = Mortal()
    async with open_home(tmp_path, mortal, grace=0.0) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(FACT))
        receipt = await home.agents.send("aria", QUESTION)
        async with asyncio.timeout(120):
            await mortal.silent.wait()
    heir = Small(["In Rotterdam."])
    async with open_home(tmp_path, heir) as home:
        outcome = await home.turns.wait(receipt)
        _, entries = await home.turns.get(outcome.turn_id)
    assert len([entry for entry in entries if entry.key.startswith("note/recall")]) == 1
    assert FACT in recalled(heir.requests[0])[0]


async def test_a_note_is_not_found_by_a_search_and_is_forgotten_with_the_fact(tmp_path: Path):
    model = Small(["In Rotterdam.", "Nothing."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.import_messages(past(FACT))
        outcome = await aria.ask(QUESTION)
        found = await home.search("aria", FACT, limit=50)
        assert [hit.text for hit in found.hits if hit.text.startswith(NOTE)] == []
        await home.memory.forget(Forgetting(texts=("restores old church organs",)))
        _, entries = await home.turns.get(outcome.turn_id)
    assert not any(b"church organs" in entry.body for entry in entries)


async def test_a_young_agent_searches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from asterism.search.search import Searcher

    async def find(*_: object) -> None:
        raise AssertionError("All that was ever said is in the context.")

    monkeypatch.setattr(Searcher, "find", find)
    model = ScriptedModel(["Hello."] * 3)
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        for text in ("My sister lives in Ghent.", "And mine in Bruges.", QUESTION):
            await aria.ask(text)
        assert await home.notices.list() == []


def told_again(request: ModelRequest) -> list[str]:
    """What a request tells again right before its last message."""
    texts = [str(message["content"]) for message in heard(request)[-4:-1]]
    told = [text.removeprefix("[asterism] ") for text in texts if text.startswith("[asterism] ")]
    return [text for text in told if " said " in text]


@pytest.mark.promise("M16")
async def test_a_small_model_is_told_again_what_stands_in_its_context(tmp_path: Path):
    model = Small(["Nice!", "I see.", "In Leipzig."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        for text in (FACT, "It rains a lot here.", QUESTION):
            await aria.ask(text)
    assert told_again(model.requests[1]) == []
    assert told_again(model.requests[2]) == [f'Your owner said before: "{FACT}"']


@pytest.mark.promise("M16", "M17")
@pytest.mark.parametrize(
    ("said", "correction", "question", "told"),
    [
        (
            "The choir rehearses on Wednesday.",
            "Sorry, it is Thursday, not Wednesday.",
            "Which day is choir?",
            'Your owner said before, corrected since: "The choir rehearses on Thursday."',
        ),
        (
            "We need 24 chairs for the party.",
            "actually 31, the cousins are coming too",
            "how many chairs do we need?",
            'Your owner said before, corrected since: "We need 31 chairs for the party."',
        ),
        (
            "Mi hermano vive en Sevilla.",
            "Perdón, vive en Zaragoza, no en Sevilla.",
            "¿En qué ciudad vive mi hermano?",
            'Your owner said before, corrected since: "Mi hermano vive en Zaragoza."',
        ),
        (
            "The paint in the hall is white.",
            "no wait, that is the kitchen. the hall is more of a cream",
            "what colour is the paint in the hall?",
            (
                'Your owner corrected what was said before ("The paint in the hall is white."). '
                'Now this is right: "no wait, that is the kitchen. the hall is more of a cream"'
            ),
        ),
    ],
)
async def test_what_was_corrected_since_is_told_corrected(
    tmp_path: Path, said: str, correction: str, question: str, told: str
):
    model = Small(["Nice!", "I see.", "Well."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        for text in (said, correction, question):
            await aria.ask(text)
    assert told_again(model.requests[2]) == [told]


@pytest.mark.promise("M16", "M17")
@pytest.mark.parametrize(
    ("corrects", "told"),
    [("ann", '"The choir rehearses on Thursday."'), ("bob", '"The choir rehearses on Wednesday."')],
)
async def test_only_those_who_said_something_put_it_right(tmp_path: Path, corrects: str, told: str):
    model = Small(["Nice!", "I see.", "Well."])
    async with open_home(tmp_path, model) as home:
        await home.agents.create("aria")
        for sender, text in (
            ("ann", "The choir rehearses on Wednesday."),
            (corrects, "Sorry, it is Thursday, not Wednesday."),
            ("ann", "Which day is choir?"),
        ):
            await home.agents.ask("aria", text, channel="chat", sender=sender, room="kitchen")
    (line,) = told_again(model.requests[2])
    assert told in line


async def test_what_was_corrected_in_other_words_is_told_corrected(tmp_path: Path):
    """A search for the question does not find the correction, which has none of its words."""
    model = Small(["Nice!", "Oh.", "Fine.", "Well."])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        await aria.ask("Yoga is in studio 3 up on the first floor")
        await aria.ask("ugh they moved us again. number 7 from now on")
        await aria.ask("I made soup.")
        await aria.ask("Which studio do I go to for yoga?")
    (told,) = told_again(model.requests[3])
    assert "studio 7 up on the first floor" in told
    assert "studio 3" not in told


@pytest.mark.promise("T6")
@pytest.mark.parametrize(
    ("question", "wrong", "right", "why"),
    [
        ("i get 14.85/hr and did 37.5 hrs, what's that", "That's it.", "556.875.", "= 556.875"),
        ("Wo steht die Lampe im Flur?", "Die Lampe steht im Flur, wo.", "Links.", "Do not repeat"),
        ("Where are the blue plates?", "The blue plates are where.", "No idea.", "Do not repeat"),
    ],
)
async def test_a_small_model_is_asked_again_when_it_leaves_out_a_result_or_repeats_the_question(
    tmp_path: Path, question: str, wrong: str, right: str, why: str
):
    model = Small([wrong, right])
    async with open_home(tmp_path, model) as home:
        aria = await home.agents.create("aria")
        assert (await aria.ask(question)).text == right
        assert why in str(model.requests[1].messages[-1])


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Is the shop open today?", "Yes, the shop is open."),
        ("Who is the dentist?", "The dentist is Bo."),
        ("My cat is called Miso. How is my cat called?", "Miso."),
    ],
)
async def test_an_answer_in_the_words_of_the_question_stands(
    tmp_path: Path, question: str, answer: str
):
    model = Small([answer])
    async with open_home(tmp_path, model) as home:
        assert (await (await home.agents.create("aria")).ask(question)).text == answer
    assert len(model.requests) == 1


async def test_notes_of_processors_are_not_found_as_if_somebody_had_said_them(tmp_path: Path):
    async with open_home(tmp_path, Small(["It is 391."])) as home:
        aria = await home.agents.create("aria")
        await aria.ask("What is 17 * 23?")
        found = await aria.search("worked out exactly")
        assert all("Worked out" not in hit.text for hit in found.hits)
