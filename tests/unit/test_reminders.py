"""Reminders that a message asks for in so many words, read without a model."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from asterism.tools.builtin.control import asked_of_schedules, read_reminders

ZONE = ZoneInfo("Europe/Berlin")
NOW = int(datetime(2026, 11, 18, 10, 15, tzinfo=ZONE).timestamp() * 1000)


def reminders(message: str) -> list[tuple[str, str, str]]:
    return [(one.operation, one.when, one.text) for one in read_reminders(message, NOW, ZONE)]


@pytest.mark.promise("T15")
@pytest.mark.parametrize(
    ("message", "when", "text"),
    [
        ("Remind me in 40 minutes to turn the roast.", "in 40 minutes", "turn the roast"),
        ("can you poke me at 5pm about the laundry", "at 5pm", "the laundry"),
        ("let us know at 6 pm that the pasta is ready", "at 6 pm", "the pasta is ready"),
        (
            "Sag mir um 18 Uhr Bescheid, dass der Kuchen raus muss",
            "um 18 Uhr",
            "der Kuchen raus muss",
        ),
        ("Kannst du mich morgen um 9 an die Miete erinnern?", "morgen um 9", "die Miete"),
        ("Mi puoi avvisare domani alle 15 per la riunione?", "domani alle 15", "la riunione"),
        (
            "wil je me er morgen om 10:15 aan herinneren dat ik de huisarts moet bellen?",
            "morgen om 10:15",
            "ik de huisarts moet bellen",
        ),
        ("Herinner me over 2 uur aan de pan", "over 2 uur", "pan"),
        ("Rappelle-moi à 18 heures d'appeler Luc", "à 18 heures", "appeler Luc"),
        (
            "I have to be at the dock this afternoon, can you alert me at quarter past two",
            "at quarter past two afternoon",
            "I have to be at the dock this afternoon",
        ),
        ("remidn me in 2 days to water the ferns", "in 2 days", "water the ferns"),
        (
            "wake me at half past six tomorrow",
            "at half past six tomorrow",
            "wake me",
        ),
        (
            "remind me at 4 pm today that the shop closes at 5",
            "at 4 pm today",
            "the shop closes at 5",
        ),
        (
            "Please remind me on 24 December at 16:00 to light the candles.",
            "on 24 December at 16:00",
            "light the candles",
        ),
        ("ping me in half an hour, laundry", "in half an hour", "laundry"),
        ("tomorrow 7:15am i need a reminder to leave", "tomorrow 7:15am", "leave"),
        ("need a nudge in an hour and a half to rest", "in an hour and a half", "rest"),
        ("could you give me a reminder at 6pm to feed the cat?", "at 6pm", "feed the cat"),
        (
            "In twenty minutes I have to feed the cat, don't let me forget.",
            "In twenty minutes",
            "I have to feed the cat",
        ),
        ("Remind me about the dentist on Friday at 10", "on Friday at 10", "the dentist"),
        ("What's 2 + 2? And remind me in 25 minutes to stretch.", "in 25 minutes", "stretch"),
        (
            "Erinnere mich morgen um 18:30 Uhr an den Elternabend.",
            "morgen um 18:30 Uhr",
            "den Elternabend",
        ),
        (
            "Erinnere mich am 24. Dezember um 16 Uhr an die Kerzen.",
            "am 24. Dezember um 16 Uhr",
            "die Kerzen",
        ),
        ("Recuérdame mañana a las 9 comprar pan", "mañana a las 9", "comprar pan"),
        ("Rappelle-moi demain à 9 h d'appeler Marie", "demain à 9 h", "appeler Marie"),
        (
            "Ricordami domani alle 8:30 di chiamare il dentista",
            "domani alle 8:30",
            "chiamare il dentista",
        ),
        ("20分後に薬を飲むようにリマインドして", "in 20 minutes", "薬を飲むように"),
        ("明天下午3点提醒我给妈妈打电话", "tomorrow at 15:00", "给妈妈打电话"),
    ],
)
def test_a_reminder_is_read_with_its_time_in_the_person_s_words(message: str, when: str, text: str):
    assert reminders(message) == [("at", when, text)]


def test_regular_and_several_reminders_are_read():
    assert reminders("Every Monday at 8 remind me to put the bins out.") == [
        ("every", "Every Monday at 8", "put the bins out")
    ]
    assert reminders("remind me at 5 pm to leave and remind me at 6 pm to eat") == [
        ("at", "at 5 pm", "leave"),
        ("at", "at 6 pm", "eat"),
    ]


@pytest.mark.parametrize(
    "message",
    [
        "remind me to buy milk",
        "remind me to walk for 30 minutes",
        "can you remind me what we said yesterday?",
        "don't remind me tomorrow at 9",
        "What reminders do I have tomorrow?",
        "Cancel the reminder tomorrow at 9.",
        "Erinnere mich nicht morgen um 9.",
        "remind me yesterday at 9 to call",
        "remind me to buy bread at 9 and milk at 10",
        "I leave tomorrow at 9.",
    ],
)
def test_what_is_not_clearly_asked_for_is_left_to_the_model(message: str):
    assert reminders(message) == []


@pytest.mark.parametrize("message", ["Wake me at 7:00 tomorrow.", "Set a timer for 10 minutes"])
def test_the_message_that_comes_then_asks_for_no_other_reminder(message: str):
    ((_, _, text),) = reminders(message)
    assert reminders(text) == reminders(f"[scheduled for Wed 18 Nov 10:15] {message}") == []


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        ("never mind, cancel that reminder", "cancel"),
        ("lösch die Erinnerung bitte", "cancel"),
        ("annule le rappel", "cancel"),
        ("Anything planned for me?", "list"),
        ("what reminders do i have", "list"),
        ("Remind me tomorrow at 9 to cancel the gym", ""),
        ("What is planned for the Apollo mission?", ""),
        ("do you have any plans?", ""),
    ],
)
def test_a_message_may_ask_to_list_or_cancel_reminders(message: str, wanted: str):
    assert asked_of_schedules(message) == wanted


def test_two_reminders_of_one_sentence_are_read():
    said = "remind me in 10 minutes to turn the rice off and in 40 minutes to pick up Nils"
    assert reminders(said) == [
        ("at", "in 10 minutes", "turn the rice off"),
        ("at", "in 40 minutes", "pick up Nils"),
    ]
    assert reminders("remind me, which month and year are we in?") == []
