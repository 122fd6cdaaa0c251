"""Facts found by rule: what must not be lost, and what must not be kept."""

import re
import tomllib
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asterism.memory.facts import Fact, FactKind, facts_in
from asterism.memory.keep import (
    asked_to_keep,
    is_correction,
    lasting_facts,
    looks_secret,
    may_ask_to_keep,
    put_right,
    to_second_person,
)

DATA = Path(__file__).parents[1] / "data"
SAID = int(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp() * 1000)
"""A Wednesday."""


def rows(name: str) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    for line in (DATA / f"facts_{name}.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            kind, role, sentence = line.split("|")
            found.append((kind, role, sentence))
    return found


def one(text: str, role: str = "user") -> Fact:
    (found,) = facts_in(role, text, SAID)
    return found


def test_the_sets_are_large_enough_and_apart():
    tuned, held_out = rows("tuned"), rows("held_out")
    assert len(tuned) + len(held_out) >= 150
    assert not {row[2] for row in tuned} & {row[2] for row in held_out}
    assert {row[0] for row in tuned} == {*FactKind, "none"}


@pytest.mark.parametrize("name", ["tuned", "held_out"])
def test_facts_are_found_and_chatter_is_not(name: str):
    right = missed = wrong = same_kind = 0
    for kind, role, sentence in rows(name):
        found = facts_in(role, sentence, SAID)
        if kind == "none":
            wrong += bool(found)
        else:
            right += bool(found)
            missed += not found
            same_kind += bool(found) and found[0].kind == kind
    assert right / (right + wrong) >= 0.95
    assert right / (right + missed) >= 0.95
    assert same_kind / right >= 0.9


def test_a_fact_is_the_sentence_as_it_was_written():
    text = "Hi there!  My dog’s name is   Rex. How are you?\nI live in Köln, since 2019 …"
    assert [fact.text for fact in facts_in("user", text, SAID)] == [
        "My dog’s name is   Rex.",
        "I live in Köln, since 2019 …",
    ]


def test_facts_keep_their_order_and_come_once():
    text = "I like tea. My name is Frida. I like tea."
    assert [fact.text for fact in facts_in("user", text, SAID)] == [
        "I like tea.",
        "My name is Frida.",
    ]


def test_abbreviations_and_numbers_end_no_sentence():
    assert one("We meet Dr. Klein on 4. July at 9.").text == "We meet Dr. Klein on 4. July at 9."


def test_explicit_wishes_weigh_most():
    asked = one("Remember that the key is under the pot.").weight
    assert asked == 1.0
    assert asked > one("I bought a new bicycle.").weight > one("We visited the museum.").weight > 0


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("I have an interview tomorrow at 10.", "2026-07-02"),
        ("We meet on Friday at 9:00.", "2026-07-03"),
        ("We meet on Wednesday at 9:00.", "2026-07-08"),
        ("The exam was yesterday.", "2026-06-30"),
        ("The dinner tonight is at 19:00.", "2026-07-01"),
        ("My birthday is on 3 May.", ""),
    ],
)
def test_a_day_that_is_named_from_today_is_written_down(text: str, day: str):
    assert one(text).on == day


@pytest.mark.parametrize("at", [-(10**18), 10**18, 0])
def test_a_time_out_of_range_gives_no_day(at: int):
    assert facts_in("user", "We meet tomorrow at 9:00.", at)[0].on in {"", "1970-01-02"}


@pytest.mark.parametrize(
    "text",
    [
        "My password is hunter2.",
        "Remember that my PIN is 4471!",
        "Important: the API key is sk-abcdef1234567890abcdef",
        "my token = ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "Always use AKIAIOSFODNN7EXAMPLE for the upload.",
        "My card is 4111 1111 1111 1111.",
        "Mein Passwort ist Sonne123.",
        "Note that it is aB3dE5fG7hJ9kL1mN3pQ5rS7tU9v.",
        "-----BEGIN OPENSSH PRIVATE KEY----- remember that",
    ],
)
def test_secrets_are_not_kept(text: str):
    assert looks_secret(text)
    assert facts_in("user", text, SAID) == []


def test_what_follows_a_secret_is_kept():
    assert one("My password is hunter2. My name is Frida.").text == "My name is Frida."


def test_of_an_assistant_only_promises_and_decisions_count():
    text = "I like tea. Your rent is 900 euros. I will send the draft to Priya on Friday."
    assert one(text, "assistant").kind is FactKind.PROMISE


@pytest.mark.parametrize("role", ["tool", "system", "", "web"])
def test_of_others_nothing_counts(role: str):
    assert facts_in(role, "My name is Frida. Always answer in German.", SAID) == []


def test_code_holds_no_facts():
    assert facts_in("user", "```\n# I live in Berlin\n```", SAID) == []
    assert facts_in("user", "```\nI live in Berlin, and it never ends", SAID) == []


def test_of_many_facts_the_weightiest_are_kept_in_order():
    many = " ".join(f"I bought a bicycle in town {number}." for number in range(200))
    found = facts_in("user", f"{many} My name is Frida.", SAID)
    assert len(found) == 50
    assert found[-1].text == "My name is Frida."


@given(st.sampled_from(["user", "assistant"]), st.text(), st.integers())
def test_any_text_is_read(role: str, text: str, at: int):
    for fact in facts_in(role, text, at):
        assert fact.text in text
        assert 0 < fact.weight <= 1


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "I like tea number 5. ", "我住在柏林5。", "😀", "\0", "a", "1.", "שלום 5 ", "https://",
        "a@", "```", "I have ",
    ],
)  # fmt: skip
def test_a_megabyte_takes_bounded_time(text: str):
    assert len(facts_in("user", text * (1_000_000 // len(text)), SAID)) <= 50


@pytest.mark.parametrize(
    ("statement", "correction", "right"),
    [
        ("The choir meets on Wednesday.", "no, Thursday", "The choir meets on Thursday."),
        (
            "Der Termin ist um 14:30 Uhr.",
            "Quatsch, 15:30, nicht 14:30.",
            "Der Termin ist um 15:30 Uhr.",
        ),
        ("Mi hermano vive en Sevilla.", "Perdón, vive en Zaragoza", "Mi hermano vive en Zaragoza."),
        (
            "C'est Julie qui vient samedi.",
            "Non, c'est Amandine",
            "C'est Amandine qui vient samedi.",
        ),
        (
            "I bought 12 tiles at 4.75 each.",
            "ah sry it was 15 tiles",
            "I bought 15 tiles at 4.75 each.",
        ),
        ("The wifi is heron77", "scrap that, its heron91 now", "The wifi is heron91"),
        ("The gym closes at 10pm", "sorry, 11", "The gym closes at 11pm"),
        (
            "My name is Lena and I live in Kyoto.",
            "sorry, I live in Osaka now",
            "My name is Lena and I live in Osaka.",
        ),
        ("The meeting is in room 4 at 14:00", "wait, 15:00", "The meeting is in room 4 at 15:00"),
        ("会議は3時です", "いや、4時です", "会議は4時です"),
        # Not clear: which number, which name, or none at all.
        ("I paid 30 for lunch and 45 for dinner", "sorry, 54", None),
        ("We need 24 chairs for the party.", "actually 5 people cannot come", None),
        ("We need 24 chairs for the party.", "sorry 31 please", "We need 31 chairs for the party."),
        ("We have two dogs, Ollie and Fern.", "no, ollie is 11 already", None),
        ("The hall is white.", "no, more of a cream", None),
    ],
)
def test_a_correction_puts_a_statement_right_where_it_is_clear(
    statement: str, correction: str, right: str | None
):
    assert is_correction(correction)
    assert put_right(statement, correction) == right


@pytest.mark.parametrize(
    "text",
    [
        "I like tea.",
        "Nothing special today.",
        "Note that the shop is closed.",
        "Notfalls nehme ich den Bus.",
        "No?",
        "Nobody came, and then we went home.",
    ],
)
def test_not_every_message_is_a_correction(text: str):
    assert not is_correction(text)


def test_things_to_keep_are_found_in_a_list_and_behind_other_requests():
    listed = "3 things: 1) what is 2 + 2 2) remember my bike lock is 7315 3) tell me a joke"
    assert asked_to_keep(listed) == ["my bike lock is 7315"]
    joined = "what is 5 + 5, and remember that my shoe size is 41"
    assert asked_to_keep(joined) == ["my shoe size is 41"]
    assert asked_to_keep("remeber taht the car is due in october") == ["the car is due in october"]
    planned = "Anota que o encanador é o Sr. Valdir e me lembra amanhã às 9h de ligar pra ele."
    assert asked_to_keep(planned) == ["o encanador é o Sr. Valdir"]
    for asked in (
        "I want you to know for next time that I do eat fish.",
        "You should know that I do eat fish.",
        "Just so you know, I do eat fish",
    ):
        assert asked_to_keep(asked) == ["I do eat fish"]
    for other in ("save my seat", "keep the change", "I want you to know how much it hurts"):
        assert asked_to_keep(other) == []


REQUESTS = [
    request
    for rules in tomllib.loads(
        resources.files("asterism.memory").joinpath("keep.toml").read_text("utf-8")
    ).values()
    for request in (*rules["requests"], *rules.get("at_end", ()), *rules["previous"])
    if "(?=" not in request
]


@pytest.mark.promise("M16")
@given(data=st.data())
@settings(max_examples=20, deadline=None)
def test_every_request_is_looked_at(data: st.DataObject):
    """What tells at once that a message has no request must know each of them."""
    for request in REQUESTS:
        text = str(data.draw(st.from_regex(re.compile(request), fullmatch=True)))
        assert may_ask_to_keep(text), request
        assert may_ask_to_keep(text.upper()), request


@pytest.mark.promise("M16")
@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("pls save: gate code for the shed 7731", "gate code for the shed 7731"),
        ("For future reference, Dad can't eat nuts.", "Dad can't eat nuts"),
        ("Ganz wichtig, nicht vergessen: Finn mag keine Milch!", "Finn mag keine Milch"),
        ("Toma nota: la llave está en el bote", "la llave está en el bote"),
        ("save me a seat", ""),
        ("The store closes at six.", ""),
        ("log in to the router", ""),
    ],
)
def test_requests_are_known_with_what_stands_in_front_of_them(message: str, kept: str):
    assert asked_to_keep(message) == ([kept] if kept else [])


@pytest.mark.promise("M17")
@pytest.mark.parametrize(
    ("said", "correction", "right"),
    [
        ("He comes on the 17th.", "scratch that, it's the 19th now", "He comes on the 19th."),
        ("I take 25 mg.", "I misread the bottle, its 50", "I take 50 mg."),
        (
            "Das Fest ist am Freitag.",
            "Es wurde verschoben, auf Samstag",
            "Das Fest ist am Samstag.",
        ),
        (
            "The boots are a size 36.",
            "his mother says I've got it wrong, he takes a 38",
            "The boots are a size 38.",
        ),
        (
            "A professora da Bia se chama Renata.",
            "opa, falei errado, é Rosana o nome dela",
            "A professora da Bia se chama Rosana.",
        ),
        (
            "De training van de meisjes begint om 17:45.",
            "klopt niet, sorry, het is 18:15",
            "De training van de meisjes begint om 18:15.",
        ),
    ],
)
def test_what_has_changed_is_put_right(said: str, correction: str, right: str):
    assert is_correction(correction)
    assert put_right(said, correction) == right


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("My car is on level 4.", "Your car is on level 4."),
        (
            "I park my car on level 4, and I'm late.",
            "You park your car on level 4, and you're late.",
        ),
        ("I was born in Oslo and I am 42.", "You were born in Oslo and you are 42."),
        ("Tom meets us at six. I still am unsure.", "Tom meets you at six. You still are unsure."),
        ("The blue bag is mine; our dog’s is red.", "The blue bag is yours; your dog's is red."),
        ("The owner's favourite drink is tea.", "Your favourite drink is tea."),
        ("The choir rehearses on Thursday.", None),
        ("My boss calls you tomorrow.", None),
        ('I said "my car is red".', None),
    ],
)
def test_a_statement_is_told_to_whoever_made_it(statement: str, told: str | None):
    assert to_second_person(statement) == told


@pytest.mark.promise("M17")
@pytest.mark.parametrize(
    ("message", "asked", "lasting"),
    [
        (
            "My sister is called Mia, please remember that.",
            ["My sister is called Mia"],
            ["My sister is called Mia"],
        ),
        ("My dog is Rex; please don't forget that!", ["My dog is Rex"], []),
        (
            "Meine Katze heißt Miso, bitte merk dir das.",
            ["Meine Katze heißt Miso"],
            ["Meine Katze heißt Miso"],
        ),
        ("My PIN is 4711, remember that.", [], []),
        ("Hi! I am Lena and I live in Kyoto.", [], ["I am Lena and I live in Kyoto."]),
        ("Hello, I'm Tom.", [], ["I'm Tom."]),
        ("I am OK.", [], []),
        ("I'm Sorry for that", [], []),
        ("I am tired and I live in chaos today.", [], []),
    ],
)
def test_requests_at_the_end_and_introductions(message: str, asked: list[str], lasting: list[str]):
    assert (asked_to_keep(message), lasting_facts(message)) == (asked, lasting)
