"""What the benchmark of search is made of: the adapter, the baselines and the made-up talks."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench.adapters.memory import Memory
from bench.baselines import Fts5
from bench.dialogues import Conversation, Message, Question, Session, made
from bench.search import FTS5, Score, below_words, measure, table

BEGIN = datetime(2025, 3, 1, tzinfo=UTC)


def session(number: int, *said: tuple[str, str]) -> Session:
    time = BEGIN + timedelta(days=number)
    messages = [
        Message(f"{number}:{place}", speaker, text, time + timedelta(minutes=place))
        for place, (speaker, text) in enumerate(said)
    ]
    return Session(str(number), time, messages)


@pytest.mark.promise("M6")
def test_the_adapter_finds_messages_by_the_ids_of_the_dataset(tmp_path: Path):
    memory = Memory(tmp_path, "none")
    memory.ingest(session(1, ("assistant", "Good morning!"), ("user", "My canary is ill.")))
    memory.ingest(
        session(2, ("Maya", "The canary sings."), ("assistant", "Birds recover."), ("", " "))
    )
    first = memory.search("canary", 10, BEGIN + timedelta(days=9))
    memory.finish()
    again = memory.search("canary", 10, BEGIN + timedelta(days=9))

    assert set(first[:2]) == {"1:1", "2:0"}
    assert again == first
    assert memory.search("birds", 1) == ["2:1"]
    assert memory.search("good morning", 1) == ["1:0"]
    assert memory.disk_bytes() > 10_000
    memory.close()


def test_a_clock_that_was_set_back_keeps_no_message_out(tmp_path: Path):
    memory = Memory(tmp_path, "none")
    memory.ingest(session(5, ("user", "Later words.")))
    late = session(6, ("user", "Earlier words."))
    late.messages[0] = replace(late.messages[0], time=BEGIN)
    memory.ingest(late)
    assert set(memory.search("words", 5, BEGIN)) == {"5:0", "6:0"}
    memory.close()


def test_the_made_up_talks_are_the_same_for_everybody_and_have_their_answers():
    talks = made()
    assert talks == made()
    assert made(6) != talks
    for talk in talks:
        ids = [one.id for one in talk.messages]
        assert len(ids) == len(set(ids)) > 100
        assert all(set(one.gold) <= set(ids) and one.gold for one in talk.questions)
        times = [one.time for one in talk.messages]
        assert times == sorted(times)
    assert sum(len(talk.questions) for talk in talks) >= 100


def test_scores_are_shares_of_the_right_messages():
    score = Score()
    score.add(["x", "a", *"cdefghij", "b"], Question("q", "?", "plain", ["a", "b"]))
    score.add(["a", "a"], Question("r", "?", "plain", ["a"]))
    assert score.services == (0.75, 0.75, 0.75)
    score.add([], Question("s", "?", "plain", ["a"]))
    assert score.services == (0.5, 0.5, 0.5)


def test_what_is_found_less_than_by_words_alone_is_told():
    talk = Conversation(
        "one",
        [session(1, ("user", "I like tea."), ("assistant", "Noted."))],
        [Question("q", "tea", "plain", ["1:0"]), Question("r", "tea", "summarization", ["1:1"])],
    )
    found = measure(Fts5, [talk])
    assert found["plain"].services == (1, 1, 1)
    assert found["overall"].count == 1
    nothing = {name: Score(1) for name in found}
    assert below_words({FTS5: found, "asterism": nothing}) == [
        "asterism, overall: R@10 0.000 is below FTS5",
        "asterism, plain: R@10 0.000 is below FTS5",
    ]
    assert below_words({FTS5: found, "asterism": found}) == []
    assert "summarization *" in table({FTS5: found})
