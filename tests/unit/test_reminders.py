"""Reminders that a message asks for in so many words, read without a model."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from asterism.tools.builtin.control import read_reminders

ZONE = ZoneInfo("Europe/Berlin")
NOW = int(datetime(2026, 11, 18, 10, 15, tzinfo=ZONE).timestamp() * 1000)


def reminders(message: str) -> list[tuple[str, str, str]]:
    return [(one.operation, one.when, one.text) for one in read_reminders(message, NOW, ZONE)]


@pytest.mark.promise("T15")
@pytest.mark.parametrize(
    ("message", "when", "text"),
    [
        ("Remind me in 40 minutes to turn the roast.", "in 40 minutes", "turn the roast"),
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
