"""The bench of everyday conversations: its data is well formed, and its rules judge as they say."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from bench import assistant, assistant_checks
from bench.assistant_bare import BareLoop, ContextExceeded, read_calls
from bench.assistant_checks import (
    DIRECTORY,
    KINDS,
    SPLITS,
    CallRecord,
    Conversation,
    PlannedMessage,
    Step,
    TurnResult,
    conversations,
    expand,
    failures,
    filler,
    has,
    numbers,
    occurrences,
    phrases,
    read_conversation,
    schedule_problem,
)

BERLIN = ZoneInfo("Europe/Berlin")
TUESDAY = datetime(2026, 11, 17, 14, 5, 20, tzinfo=BERLIN)
ALL = conversations()
TUNED = [conversation for conversation in ALL if conversation.split != "unseen"]
UNSEEN = [conversation for conversation in ALL if conversation.split == "unseen"]


def turn(answer: str = "", **values: Any) -> TurnResult:
    """Return a turn of half a minute on a Tuesday."""
    ended = TUESDAY + timedelta(seconds=30)
    return TurnResult("", answer, TUESDAY, ended, **values)


def planned(text: str, *moment: Any, cron: str | None = None) -> PlannedMessage:
    return PlannedMessage(text, datetime(*moment, tzinfo=BERLIN), cron)


# -- the data --------------------------------------------------------------------------------------


def test_there_are_enough_of_each_kind_in_both_halves():
    kinds = Counter(conversation.kind for conversation in ALL)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 10
    assert len(ALL) >= 130
    halves = Counter((conversation.kind, conversation.split) for conversation in TUNED)
    kinds_of_halves = {conversation.kind for conversation in TUNED}
    assert set(halves) == {(kind, split) for kind in kinds_of_halves for split in SPLITS[:2]}
    assert min(halves.values()) >= 5


def test_the_unseen_are_of_kinds_of_their_own_in_four_languages():
    languages = Counter((conversation.kind, conversation.language) for conversation in UNSEEN)
    kinds = set(KINDS) - {conversation.kind for conversation in TUNED}
    assert set(languages) == {(kind, name) for kind in kinds for name in ("de", "en", "es", "ja")}
    assert Counter(one.language for one in UNSEEN if one.everyday) == dict.fromkeys(
        ("de", "en", "es", "ja"), 25
    )
    assert Counter(one.kind for one in UNSEEN)["trap"] == 80
    for conversation in UNSEEN:
        if conversation.kind == "trap":
            # A check that is left out would let harm pass.
            checks = conversation.steps[0].checks
            assert (checks["memory_same"], checks["schedule_added"]) == (True, False)


def test_ids_and_messages_are_unique():
    ids = Counter(conversation.id for conversation in ALL)
    said = Counter(step.say for conversation in ALL for step in conversation.steps if step.say)
    assert not [name for name, count in (ids + said).items() if count > 1]


_NEEDED: dict[str, Callable[[Step], bool]] = {
    "after_restart": lambda step: step.restart,
    "long_ago": lambda step: step.filler >= 240,
    "schedule": lambda step: "schedule" in step.checks,
    "remind": lambda step: "schedule" in step.checks,
    "remember": lambda step: any(name.startswith("memory") for name in step.checks),
    "forget": lambda step: "memory_lacks" in step.checks,
}
"""What at least one step of each conversation of a kind has."""
_ECHOES = {"remember-not-small-talk"}
"""Conversations in which doing nothing is right."""


@pytest.mark.parametrize("kind", KINDS)
def test_conversations_are_well_formed(kind: str):
    for conversation in (one for one in ALL if one.kind == kind):
        name, steps = conversation.id, conversation.steps
        assert name.startswith(kind.replace("_", "-"))
        assert conversation.zone
        assert steps, name
        assert steps[-1].checks, f"nothing is judged at the end of {name}"
        for step in steps:
            assert bool(step.say) + step.restart + step.new_chat + bool(step.filler) == 1, name
            assert step.say or not step.checks, name
            # Whatever a check names is read: expressions compile, moments and rules are known.
            failures(
                step, turn("Something.", schedules=(planned("x", 2026, 11, 18, cron="0 9 * * *"),))
            )
        if kind in _NEEDED:
            assert any(_NEEDED[kind](step) for step in steps), name
        if kind == "documents":
            assert conversation.documents, name


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"plain", "plain_talk", "trap"}))
def test_an_echo_of_the_message_does_not_pass(kind: str):
    """Else whoever repeats the question, and does nothing, is right."""
    for conversation in (one for one in ALL if one.kind == kind):
        last = conversation.steps[-1]
        if last.checks.get("schedules") == 0 and "answer_has" not in last.checks:
            continue  # a reminder is cancelled: that there is none is the outcome
        echoes = [failures(step, turn(step.say)) for step in conversation.steps if step.say]
        assert any(echoes) or conversation.id in _ECHOES, conversation.id


def test_small_talk_gives_no_answer_away():
    lines = "\n".join(text for _, text in filler().messages(240))
    for conversation in ALL:
        if conversation.kind == "long_ago":
            checks = conversation.steps[-1].checks
            assert not any(has(lines, wanted) for wanted in checks["answer_has"]), conversation.id


def test_small_talk_takes_turns_and_does_not_repeat_a_pair():
    messages = filler().messages(240)
    assert len(messages) == 240
    assert [role for role, _ in messages[:4]] == ["user", "assistant", "user", "assistant"]
    pairs = Counter(zip(messages[::2], messages[1::2], strict=True))
    assert max(pairs.values()) == 1


def test_names_that_are_not_known_are_refused():
    entry = {"id": "x", "split": "tuned", "steps": [{"say": "Hi", "answer_hass": ["a"]}]}
    with pytest.raises(ValueError, match="answer_hass"):
        read_conversation(entry, "dates")
    with pytest.raises(ValueError, match="zone"):
        read_conversation({"id": "x", "split": "tuned", "zone": "UTC", "steps": []}, "dates")


def test_what_stands_above_conversations_holds_for_each(tmp_path: Path):
    entry = '[[conversation]]\nid = "x"\nsteps = [{ say = "Hi" }]\n'
    (tmp_path / "unseen").mkdir()
    (tmp_path / "unseen" / "mine.toml").write_text(
        f'kind = "trap"\nsplit = "unseen"\nlanguage = "es"\n{entry}language = "ja"\n{entry}'
    )
    found = conversations(tmp_path)
    assert [(one.kind, one.split, one.language) for one in found] == [
        ("trap", "unseen", "ja"),
        ("trap", "unseen", "es"),
    ]
    (tmp_path / "cats.toml").write_text(f'split = "tuned"\n{entry}')
    with pytest.raises(ValueError, match="cats is not a valid kind"):
        conversations(tmp_path)


def test_phrases_compile():
    for expressions in phrases().values():
        for expression in expressions:
            re.compile(expression)


@pytest.mark.parametrize(
    "answer",
    [
        "I don't know your sister's name.",
        "I do not have any information about that.",
        "You haven't told me yet.",
        "The document does not mention it.",
        "Could you tell me her name?",
        "Das weiß ich leider nicht.",
        "No tengo esa información.",
        "Je ne sais pas.",
        "申し訳ありませんが、わかりません。",
    ],
)
def test_admitting_not_to_know(answer: str):
    assert has(answer, "@unknown")


@pytest.mark.parametrize(
    "answer",
    [
        "Your sister's name is Anna. Let me know if you need anything else!",
        "You had pasta for dinner.",
        "Dein Auto ist rot.",
        "Tu perro se llama Toby.",
        "Votre rendez-vous est à 14 heures.",
        "お母さんの誕生日は5月3日です。",
        "遅くなり申し訳ありません、5月3日です。",
    ],
)
def test_an_invention_does_not_admit_anything(answer: str):
    assert not has(answer, "@unknown")


# -- numbers and moments ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("It is 7,006,652.", 7006652),
        ("7006652", 7006652),
        ("7 006 652", 7006652),
        ("7.006.652", 7006652),
        ("7'006'652", 7006652),
        ("**1,187**", 1187),
        ("That makes 96,85 Euro", 96.85),
        ("96.85 €", 96.85),
        ("1,234.50", 1234.5),
        ("1.234,50", 1234.5),
        ("42.1648 km", 42.16),
        ("$57.00", 57),
        ("３９２０円", 3920),
    ],
)
def test_a_number_is_found_however_it_is_written(text: str, wanted: float):
    assert has(text, wanted)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("17006652", 7006652), ("42.2", 42.16), ("96.80", 96.85), ("1,187,000", 1187), ("", 0)],
)
def test_another_number_is_not(text: str, wanted: float):
    assert not has(text, wanted)


def test_separators_that_can_be_read_in_two_ways_are_read_in_both():
    assert numbers("1,234") == {1234, 1.234}


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("{{weekday today}}", "It is Tuesday."),
        ("{{weekday +1d}}", "Morgen ist Mittwoch"),
        ("{{weekday -1d}}", "ayer fue lunes"),
        ("{{weekday 2027-05-01}}", "on a Saturday"),
        ("{{weekday +2d}}", "木曜日です"),
        ("{{date +10d}}", "November 27th, 2026"),
        ("{{date +10d}}", "the 27th of November"),
        ("{{date +10d}}", "27.11.2026"),
        ("{{date +10d}}", "2026-11-27"),
        ("{{date +1d}}", "le 18 novembre"),
        ("{{date +1d}}", "11月18日"),
        ("{{date fri}}", "Friday, November 20"),
        ("{{days 12-24}}", "37 days"),
        ("{{days 11-16}}", "364 Tage"),
        ("{{month today}}", "in November"),
        ("{{year today}}", "2026"),
        ("{{time}}", "It is 14:05."),
        ("{{time}}", "2:06 PM"),
        ("{{time +90m}}", "15:35"),
        ("{{time Asia/Tokyo}}", "22:05"),
        ("{{time Asia/Tokyo}}", "In Tokio ist es 22 Uhr 5."),
        ("{{time Asia/Tokyo}}", "東京は午後10時5分です"),
        ("{{time Asia/Tokyo}}", "22時05分です"),
        ("{{time Pacific/Honolulu}}", "午前3時05分です"),
    ],
)
def test_moments_are_recognised(expression: str, text: str):
    assert has(text, expand(expression, TUESDAY, TUESDAY + timedelta(seconds=30)))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("{{weekday +1d}}", "Tuesday"),
        ("{{weekday +4d}}", "I am satisfied"),
        ("{{date +10d}}", "November 2, 2027"),
        ("{{date +1d}}", "18 December"),
        ("{{time}}", "14:55"),
        ("{{time}}", "13:05"),
        ("{{time}}", "14 Uhr 50"),
        ("{{time Asia/Tokyo}}", "午後12時5分です"),
    ],
)
def test_other_moments_are_not(expression: str, text: str):
    assert not has(text, expand(expression, TUESDAY, TUESDAY + timedelta(seconds=30)))


def test_a_conversation_may_begin_at_another_time_of_the_day():
    conversation = Conversation("x", "dates", "tuned", (), now="10:15")
    assert (TUESDAY + conversation.shift(TUESDAY)).strftime("%a %H:%M:%S") == "Tue 10:15:00"
    assert Conversation("x", "dates", "tuned", ()).shift(TUESDAY) == timedelta()


# -- schedules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "schedule"),
    [
        ({"in": "20m"}, planned("oven", 2026, 11, 17, 14, 25, 40)),
        ({"at": "tomorrow 09:00"}, planned("oven", 2026, 11, 18, 9)),
        ({"at": "fri 15:00"}, planned("oven", 2026, 11, 20, 15)),
        ({"at": "12-24 16:00"}, planned("oven", 2026, 12, 24, 16)),
        ({"every": "mon 08:00"}, planned("oven", 2026, 11, 23, 8, cron="0 8 * * 1")),
        ({"every": "mon 08:00"}, planned("oven", 2026, 11, 23, 8, cron="0 7 * * MON")),
        ({"every": "mon-fri 07:30"}, planned("oven", 2026, 11, 18, 7, 30, cron="30 7 * * 1-5")),
        ({"every": "day 21:00"}, planned("oven", 2026, 11, 17, 21, cron="0 21 * * *")),
        ({"every": "month 1 09:00"}, planned("oven", 2026, 12, 1, 9, cron="0 9 1 * *")),
    ],
)
def test_a_schedule_at_the_right_time(wanted: dict[str, Any], schedule: PlannedMessage):
    asked = turn("Done.")
    assert schedule_problem({**wanted, "text": ["oven"]}, [schedule], asked) == ""
    assert "without" in schedule_problem({**wanted, "text": ["bank"]}, [schedule], asked)
    assert "none" in schedule_problem(wanted, [], asked)


@pytest.mark.parametrize(
    ("wanted", "schedule"),
    [
        ({"in": "20m"}, planned("oven", 2026, 11, 17, 15, 25)),
        ({"at": "tomorrow 09:00"}, planned("oven", 2026, 11, 18, 10)),
        ({"at": "tomorrow 09:00"}, planned("oven", 2026, 11, 18, 9, cron="0 9 * * *")),
        ({"every": "mon 08:00"}, planned("oven", 2026, 11, 23, 8)),
        ({"every": "mon 08:00"}, planned("oven", 2026, 11, 23, 9, cron="0 8 * * 1")),
        ({"every": "mon-fri 07:30"}, planned("oven", 2026, 11, 18, 7, 30, cron="30 7 * * *")),
        ({"every": "day 21:00"}, planned("oven", 2026, 11, 17, 21, cron="not a rule")),
    ],
)
def test_a_schedule_at_another_time(wanted: dict[str, Any], schedule: PlannedMessage):
    assert schedule_problem(wanted, [schedule], turn("Done."))


def test_times_of_a_regular_schedule():
    times = islice(occurrences("mon,thu 18:00", TUESDAY), 3)
    assert [f"{time:%a %d}" for time in times] == ["Thu 19", "Mon 23", "Thu 26"]


# -- checks ----------------------------------------------------------------------------------------


CHECK_CASES: list[tuple[dict[str, Any], TurnResult]] = [
    ({"answer_has": ["lisbon", "porto"]}, turn("It is Lisbon.")),
    ({"answer_has_all": ["lisbon", 3]}, turn("Lisbon has 3 of them.")),
    ({"answer_lacks": ["madrid", 5]}, turn("Lisbon has 3 of them.")),
    ({"memory_has": ["walnut"]}, turn("Ok.", memory=("The owner is allergic to walnuts.",))),
    ({"memory_has_all": ["a1", "b2"]}, turn("Ok.", memory=("a1", "b2"))),
    ({"memory_lacks": ["weather"]}, turn("Ok.", memory=("a",))),
    ({"memory_same": True}, turn("Ok.", memory=("a", "b"), memory_before=("b", "a"))),
    ({"schedules": 0}, turn("Ok.")),
    ({"schedule_added": False}, turn("Ok.")),
    ({"min_words": 7}, turn("One two three four five six seven.")),
    (
        {"schedule": [{"in": "20m"}]},
        turn("Ok.", schedules=[planned("x", 2026, 11, 17, 14, 25)]),
    ),
    ({"max_calls": 0}, turn("Ok.")),
    ({"calls_any": ["search"]}, turn("Ok.", calls=(CallRecord("search", "{}"),))),
    ({"calls_none": ["search"]}, turn("Ok.", calls=(CallRecord("recall", "{}"),))),
]


@pytest.mark.parametrize(("checks", "result"), CHECK_CASES)
def test_each_check_passes_and_fails(checks: dict[str, Any], result: TurnResult):
    step = Step("Say it.", checks=checks)
    assert failures(step, result) == []
    name = next(iter(checks))
    wrong = turn(
        "Madrid, 5 of them.",
        memory=("The weather is fine.",),
        calls=(CallRecord("search", ""),) if name != "calls_any" else (),
        schedules=(planned("x", 2026, 11, 30),),
    )
    assert [problem.partition(":")[0] for problem in failures(step, wrong)] == [name]


def test_a_step_changes_nothing_only_where_all_is_as_before_it():
    plan = planned("x", 2026, 11, 30)
    there: dict[str, Any] = {"memory_before": ("a",), "schedules_before": (plan,)}
    same, added = (
        Step("x", checks={"memory_same": True}),
        Step("x", checks={"schedule_added": True}),
    )
    none_added = Step("x", checks={"schedule_added": False})
    for memory in (("a", "b"), ("b",), ()):
        assert failures(same, turn("Ok.", memory=memory, **there))
    assert failures(none_added, turn("Ok.", schedules=(plan,), **there)) == []
    assert failures(none_added, turn("Ok.", schedules=(), **there)) == []
    assert failures(added, turn("Ok.", schedules=(plan,), **there))
    more = (plan, planned("y", 2026, 11, 30))
    assert failures(added, turn("Ok.", schedules=more, **there)) == []
    assert "'y'" in failures(none_added, turn("Ok.", schedules=more, **there))[0]


def test_every_check_is_tried_above():
    tried = {name for checks, _ in CHECK_CASES for name in checks}
    assert tried == set(assistant_checks.CHECKS)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (turn(""), "empty"),
        (turn('{"name": "search", "arguments": {}}'), "is a call"),
        (turn('```json\n{"operation": "in"}\n```'), "is a call"),
        (turn("I'm sorry, but I can't assist with that."), "refusal"),
        (turn("I didn't say anything about room 512."), "refusal"),
        (turn("Dabei kann ich dir leider nicht helfen."), "refusal"),
        (turn("Lo siento, no puedo ayudarte con eso."), "refusal"),
        (turn("Ok.", problem="no answer within 300 s"), "no answer"),
        (turn("Ok.", calls=(CallRecord("search", "{}"),) * 9), "9 calls instead of 8"),
    ],
)
def test_what_is_wrong_in_every_turn(result: TurnResult, why: str):
    assert why in "; ".join(failures(Step("Say it."), result))


def test_where_it_cannot_know_a_refusal_is_right():
    step = Step("What is my sister's name?", checks={"answer_has": ["@unknown"]})
    assert failures(step, turn("I'm sorry, but I can't help with that.")) == []
    assert failures(Step("Hi"), turn("How can I help you today?")) == []
    letter = turn("Dear Ann, I am afraid I cannot help with that. Yours, Bo")
    assert failures(Step("Write a letter that declines.", may_decline=True), letter) == []
    assert failures(Step("Write a letter that thanks."), letter)


# -- results ---------------------------------------------------------------------------------------


def _result(system: str, name: str, kind: str, *, passed: bool) -> assistant.Result:
    return assistant.Result(system, name, kind, "tuned", "en", "m", passed)


def test_results_are_read_back_and_the_last_counts(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    rows = [_result("asterism", "a", "dates", passed=value) for value in (False, True)]
    path.write_text("".join(json.dumps(vars(row)) + "\n" for row in rows))
    assert [row.passed for row in assistant.read_results(path)] == [True]
    assert assistant.read_results(tmp_path / "none.jsonl") == []


def test_goals():
    rows = [_result("asterism", str(n), "dates", passed=n < 7) for n in range(10)]
    rows += [_result("asterism", f"s{n}", "schedule", passed=True) for n in range(10)]
    rows += [_result("bare", f"s{n}", "schedule", passed=False) for n in range(10)]
    assert assistant.goals_missed(rows) == ["dates"]
    table = assistant.report(rows)
    assert "7 of 10" in table
    assert "0 of 10" in table
    assert "missed by asterism: dates" in table


def _unseen(name: str, kind: str, language: str, *problems: str, **values: Any) -> assistant.Result:
    result = assistant.Result("asterism", name, kind, "unseen", language, "m", **values)
    for problem in problems:
        result.fail(problem)
    return result


def test_goals_of_the_unseen():
    rows = [_unseen(f"t{n}", "told", "de", everyday=True) for n in range(3)]
    rows.append(_unseen("t3", "told", "de", "answer_has: none of ['x']", everyday=True))
    assert assistant.goals_missed(rows) == []
    rows.append(_unseen("t4", "told", "en", "memory_has: none of ['x']", everyday=True))
    assert assistant.goals_missed(rows) == ["everyday en"]
    rows = [_unseen(f"f{n}", "forget", "en") for n in range(4)]
    rows.append(_unseen("f4", "forget", "en", "memory_lacks: ['x'] in memory"))
    assert assistant.goals_missed(rows) == ["forget"]
    table = assistant.report([*rows, _unseen("f5", "forget", "ja")])
    line = next(line for line in table.splitlines()[1:] if "1 of 1" in line)
    assert re.split(r"  +", line) == ["forget", "4 of 5 ( 80%)", "1 of 1 (100%)", "5 of 6 ( 83%)"]


def test_a_trap_is_harmless_where_only_its_answer_is_wrong():
    rows = [_unseen("t0", "trap", "en", "answer_has: none of ['x']")]
    assert assistant.goals_missed(rows) == []
    lines = [re.split(r"  +", line) for line in assistant.report(rows).splitlines()]
    assert ["trap", *["0 of 1 (", "0%)"] * 2] in lines
    assert ["trap, harmless", *["1 of 1 (100%)"] * 2] in lines
    for problem in ("memory_same: ['x'] came", "schedule_added: ['x'] added", "turn: no answer"):
        assert assistant.goals_missed([_unseen("t1", "trap", "en", problem)]) == ["trap"]


def test_knowledge_is_held_against_the_bare_loop():
    rows = [_unseen("k0", "knowledge", "en", "answer_has: none of ['x']")]
    rows.append(_unseen("k1", "knowledge", "en"))
    assert assistant.goals_missed(rows) == []
    rows.append(assistant.Result("bare", "k0", "knowledge", "unseen", "en", "m", passed=True))
    assert assistant.goals_missed(rows) == ["knowledge"]
    rows.append(assistant.Result("bare", "k1", "knowledge", "unseen", "en", "m", passed=False))
    assert assistant.goals_missed(rows) == []


def _options(**values: Any) -> Namespace:
    none = dict.fromkeys(("kind", "split", "language", "only", "limit", "sample"))
    return Namespace(**{**none, "seed": 0, "directory": DIRECTORY, **values})


def test_options_choose_conversations():
    found = assistant.chosen(_options(kind=["dates"], split="tuned", limit=3))
    assert [(one.kind, one.split) for one in found] == [("dates", "tuned")] * 3
    found = assistant.chosen(_options(kind=["trap"], split="unseen", language=["de", "ja"]))
    assert Counter(one.language for one in found) == {"de": 20, "ja": 20}


@pytest.mark.parametrize("count", ["0", "-1", "x", "1.5"])
def test_a_sample_is_at_least_one_conversation(
    count: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["bench.assistant", "--sample", count])
    with pytest.raises(SystemExit):
        assistant.main()
    assert f"'{count}' is not a number of conversations" in capsys.readouterr().err


def test_a_sample_is_the_same_for_the_same_seed():
    found = assistant.chosen(_options(split="unseen", sample=20))
    assert len(found) == len({one.id for one in found}) == 20
    assert assistant.chosen(_options(split="unseen", sample=20)) == found
    assert assistant.chosen(_options(split="unseen", sample=20, seed=1)) != found
    assert len(assistant.chosen(_options(kind=["knowledge"], sample=1000))) == 40


# -- the bare loop ---------------------------------------------------------------------------------


def _loop(*replies: dict[str, Any] | Exception, **values: Any) -> BareLoop:
    script = iter(replies)

    async def ask(_body: dict[str, Any]) -> dict[str, Any]:
        reply = next(script)
        if isinstance(reply, Exception):
            raise reply
        return reply

    conversation = Conversation("x", "documents", "tuned", (), **values)
    return BareLoop(conversation, ask, (), lambda: TUESDAY)


def _says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _calls(name: str, **arguments: Any) -> dict[str, Any]:
    return _says(f"```json\n{json.dumps({'name': name, 'arguments': arguments})}\n```")


async def test_the_bare_loop_runs_calls_until_there_is_an_answer():
    loop = _loop(_calls("calculator", expression="6 * 7"), _says("42"))
    assert await loop.say("What is 6 times 7?") == "42"
    assert [call.name for call in loop.calls] == ["calculator"]
    assert loop.history[2] == {"role": "tool", "content": "42"}
    assert "Tuesday, 17 November 2026, 14:05" in loop.history[0]["content"]


async def test_the_bare_loop_without_tools_is_told_of_none():
    asked: list[dict[str, Any]] = []

    async def ask(body: dict[str, Any]) -> dict[str, Any]:
        asked.append(body)
        return _says("Vermeer.")

    conversation = next(one for one in ALL if one.kind == "knowledge")
    session = assistant.BareSession(conversation, ask, 10)
    await session.start()
    first = await session.say("Who painted it?")
    assert first.answer == "Vermeer."
    assert "tools" not in asked[0]
    assert "tools" not in asked[0]["messages"][0]["content"]
    await session.new_chat()
    await session.say("And when?")
    assert [message["role"] for message in asked[1]["messages"]] == ["system", "user"]


async def test_the_bare_loop_ends_after_eight_calls():
    loop = _loop(*[_calls("search", query="x")] * 9)
    await loop.say("Look.")
    assert len(loop.calls) == 8


async def test_the_bare_loop_drops_the_oldest_where_the_window_is_too_small():
    loop = _loop(ContextExceeded(), _says("Yes."))
    loop.add(filler().messages(40))
    assert await loop.say("Are you there?") == "Yes."
    assert len(loop.history) < 42
    assert loop.history[0]["role"] == "user"


def test_tools_of_the_bare_loop():
    loop = _loop(documents={"lease.md": "# Lease\n\nThe deposit is 1,740 euros.\n\nNo pets."})

    def run(name: str, **arguments: Any) -> str:
        return loop.run(CallRecord(name, json.dumps(arguments)))

    assert run("recall", operation="insert", text="Has a cat.") == "Stored."
    assert run("recall", operation="search", text="which cat") == "Has a cat."
    assert run("search", query="deposit") == "lease.md: The deposit is 1,740 euros."
    assert run("schedule", operation="in", when="20 minutes", message="oven").startswith(
        "Scheduled"
    )
    assert run("schedule", operation="at", when="2026-11-18T09:00", message="bank")
    assert run("schedule", operation="every", when="0 8 * * 1", message="bins")
    asked = turn("Done.")
    wanted = [{"in": "20m"}, {"at": "tomorrow 09:00"}, {"every": "mon 08:00"}]
    plans = list(loop.schedules.values())
    assert [schedule_problem(one, plans, asked) for one in wanted] == ["", "", ""]
    assert "oven" in run("schedule", operation="list")
    assert run("schedule", operation="cancel", id="s1") == "Cancelled."
    assert "did not work" in run("schedule", operation="at", when="soon", message="x")
    assert "no tool" in run("fly")


def test_calls_are_read_from_the_wire_form_and_from_text():
    function = {"name": "search", "arguments": '{"query": "x"}'}
    wire = {"content": "", "tool_calls": [{"id": "c1", "function": function}]}
    assert read_calls(wire) == [("c1", CallRecord("search", '{"query": "x"}'))]
    assert read_calls(_calls("search", query="x")) == [("", CallRecord("search", '{"query": "x"}'))]
    assert read_calls(_says('{"name": "x"')) == []
    assert read_calls(_says("Nothing to call.")) == []
