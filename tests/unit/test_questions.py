"""What is worked out exactly before a model speaks: sums, conversions, days and times."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from asterism.tools.calculator.questions import facts_about, read_number
from bench.small_talk import MEASURED

ZONE = "Europe/Berlin"
NOW = int(datetime(2026, 11, 18, 14, 5, tzinfo=ZoneInfo(ZONE)).timestamp() * 1000)


def facts(message: str, *previous: str) -> list[str]:
    return facts_about(message, previous, NOW, ZONE)


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    ("message", "fact"),
    [
        ("whats 613 times 2084", "613 * 2084 = 1277492"),
        ("What is 12 × 11?", "12 * 11 = 132"),
        ("(12+8)*3?", "(12 + 8) * 3 = 60"),
        ("what is 7 x 8 - 6?", "7 * 8 - 6 = 50"),
        ("12-5", "12 - 5 = 7"),
        ("square root of 2025?", "sqrt(2025) = 45"),
        ("what's 15 squared", "15^2 = 225"),
        ("how much is 3/4 of 200?", "3 / 4 * 200 = 150"),
        ("two thousand divided by 16?", "2000 / 16 = 125"),
        ("split a bill of 186.30 between seven people", "186.30 / 7 = 26.614286 (rounded 26.61)"),
        ("What is 1,234.5 + 1,000?", "1234.5 + 1000 = 2234.5"),
        ("2) what is 4% of 350 3) thanks", "4% of 350 = 14"),
        ("Wie viel ist 1.250,50 plus 300?", "1250.50 + 300 = 1550.5"),
        ("12,5 % von 640?", "12.5% of 640 = 80"),
        ("Was ist siebenundzwanzig mal 4?", "27 * 4 = 108"),
        ("¿Cuánto es 345 por 27?", "345 * 27 = 9315"),
        ("Combien font 144 divisé par 12 ?", "144 / 12 = 12"),
        ("Quanto fa 17 per 23?", "17 * 23 = 391"),
        ("Quanto é 12 vezes 45?", "12 * 45 = 540"),
        ("128かける47はいくつですか？", "128 * 47 = 6016"),
        ("128乘以47等于多少", "128 * 47 = 6016"),
        ("4 Karten kosten je 12,50 Euro, was zahle ich?", "4 * 12.50 = 50"),
        ("I save 40 a week for 6 weeks, how much is that?", "40 a week for 6 weeks = 40 * 6 = 240"),
        (
            "If I pay 120 a month for 2 years and 3 months, what is that in all?",
            "120 a month for 27 months = 120 * 27 = 3240",
        ),
        ("45 is what percent of 180?", "45 of 180 is 25%"),
        ("how many kilometers is 5 miles?", "5 mi = 8.04672 km (rounded 8.05 km)"),
        ("convert 5 ft 3 in to cm", "5 ft 3 in = 160.02 cm"),
        ("70°F in Celsius?", "70 °F = 21.111111 °C (rounded 21.11 °C)"),
        ("How many minutes are in 3.5 hours?", "3.5 h = 210 min"),
        ("how many seconds in a week?", "1 week = 604800 s"),
        ("Cuántos kilos son 150 libras?", "150 lb = 68.038855 kg (rounded 68.04 kg)"),
    ],
)
def test_a_sum_or_conversion_is_worked_out(message: str, fact: str):
    assert facts(message) == [fact] or fact in facts(message)[:1]


@pytest.mark.parametrize(
    ("message", "fact"),
    [
        (
            "What is 80 with 15%?",
            "15% of 80 = 12, 80 with 15% taken off = 68, 80 with 15% added = 92",
        ),
        ("A coat costs 80 euros and is 15% off. What do I pay?", "80 with 15% taken off = 68"),
        ("Lunch was 40, how much is a 15% tip?", "15% of 40 = 6"),
        ("Lunch was 40 and I add a 15% tip. What do I pay in total?", "40 with 15% added = 46"),
        (
            "Le vélo coûte 300 € avec 20 % de remise, combien je vais payer ?",
            "300 with 20% taken off = 240",
        ),
        ("La cena son 50 euros, ¿cuánto pago con un 10% de propina?", "50 with 10% added = 55"),
    ],
)
def test_of_a_percentage_the_result_is_told_that_was_asked_for(message: str, fact: str):
    assert facts(message) == [fact]


@pytest.mark.parametrize(
    ("message", "fact"),
    [
        ("dinner was 75.60 for the four of us, how much each?", "75.60 / 4 = 18.9 for each"),
        (
            "we were 6 people and paid 93€, what does everyone owe per person?",
            "93 / 6 = 15.5 for each",
        ),
        (
            "wir sind 5 leute und die rechnung ist 87,50, was zahlt jeder?",
            "87.50 / 5 = 17.5 for each",
        ),
        ("La cuenta son 54 euros y somos 3, ¿cuánto paga cada uno?", "54 / 3 = 18 for each"),
        (
            "The van takes 9 litres per 100 km. How many litres for 350 km?",
            "9 * 350 / 100 = 31.5 litres",
        ),
        ("2 cups rice for 5 people, how many for 8 people?", "2 * 8 / 5 = 3.2 cups"),
        ("I run 5 km in 30 minutes, how many minutes for 12 km?", "30 * 12 / 5 = 72 minutes"),
        ("7 chairs at 19.90 each, what do they cost?", "7 * 19.90 = 139.3"),
        ("1本120円のペンを15本買うといくらですか？", "120 * 15 = 1800"),
    ],
)
def test_shares_proportions_and_prices_are_worked_out(message: str, fact: str):
    assert facts(message) == [fact]


@pytest.mark.parametrize(
    "message",
    [
        "3 tickets at 14.50 each plus 5 for parking, how much in total?",  # not just two numbers
        "Each of my 2 dogs is 7, how old is that?",
        "We need 4 chairs for 9 people, is that enough?",
    ],
)
def test_what_is_not_exactly_a_share_or_a_price_is_left_to_the_model(message: str):
    assert facts(message) == []


@pytest.mark.parametrize(
    ("message", "previous", "fact"),
    [
        ("and now subtract 32 from that", ("What is 12 × 11?", "It is 132."), "132 - 32 = 100"),
        ("times 3?", ("What is 12 × 11?", "132!"), "132 * 3 = 396"),
        ("und davon 10 Prozent?", ("Was kostet es?", "Es kostet 60 Euro."), "10% of 60 = 6"),
    ],
)
def test_a_message_may_refer_to_the_number_before(
    message: str, previous: tuple[str, ...], fact: str
):
    assert facts(message, *previous)[0].startswith(fact)


@pytest.mark.promise("T15")
@pytest.mark.parametrize(
    ("message", "fact"),
    [
        ("hey what day is it?", "Today is Wednesday, 18 November 2026"),
        (
            "what date is the day after tomorrow",
            "The day after tomorrow is Friday, 20 November 2026",
        ),
        ("¿Qué día fue ayer?", "Yesterday was Tuesday, 17 November 2026 (martes)"),
        ("What's the date in 10 days?", "In 10 days is Saturday, 28 November 2026"),
        (
            "welches Datum haben wir in zwei Wochen?",
            "In 2 weeks is Wednesday, 2 December 2026 (Mittwoch)",
        ),
        (
            "3 weeks after 5 March, which date is that?",
            "3 weeks after 5 March 2027 is Friday, 26 March 2027",
        ),
        ("on what weekday does christmas fall?", "25 December 2026 is Friday, 25 December 2026"),
        ("今日は何曜日ですか？", "Today is Wednesday, 18 November 2026 (水曜日)"),
        (
            "how long until 24 December",
            (
                "From today (18 November 2026) to Thursday, 24 December 2026 it is 36 days "
                "(5 weeks and 1 day)"
            ),
        ),
        (
            "12月24日まであと何日ですか？",
            (
                "From today (18 November 2026) to Thursday, 24 December 2026 (木曜日) "
                "it is 36 days (5 weeks and 1 day)"
            ),
        ),
        (
            "How many days are there from 3 May 2027 to 10 June 2027?",
            "From 3 May 2027 to 10 June 2027 it is 38 days (5 weeks and 3 days)",
        ),
        (
            "I was born on 3 May 1990, how old am i?",
            (
                "From Thursday, 3 May 1990 to today (18 November 2026) it is 13348 days "
                "(1906 weeks and 6 days), 36 whole years"
            ),
        ),
        ("what time is it", "Now it is 14:05, Wednesday, 18 November 2026"),
        (
            "Wie spät ist es in New York?",
            (
                "In New York (America/New_York) it is 08:05 now, "
                "Wednesday, 18 November 2026 (Mittwoch)"
            ),
        ),
        (
            "東京は今何時ですか？",
            "In 東京 (Asia/Tokyo) it is 22:05 now, Wednesday, 18 November 2026 (水曜日)",
        ),
        (
            "if I leave now and drive 50 minutes, at what time am I there?",
            "50 min from now it is 14:55, Wednesday, 18 November 2026",
        ),
        (
            "It's 14:20 and the train takes 3 hours 45 minutes, when do I arrive?",
            "14:20 + 3 h 45 min = 18:05",
        ),
        (
            "Der Film beginnt um 20:15 und dauert 2 Stunden und 10 Minuten. Wann ist er zu Ende?",
            "20:15 + 2 h 10 min = 22:25",
        ),
        ("how long is it from 9:40 to 13:15?", "From 09:40 to 13:15 it is 3 h 35 min"),
        ("Train leaves 16:42, how long do I have?", "From now (14:05) to 16:42 it is 2 h 37 min"),
    ],
)
def test_a_day_or_a_time_is_worked_out(message: str, fact: str):
    assert facts(message) == [fact]


def test_several_questions_are_answered_in_their_order():
    sum_of, day = "14 * 19 = 266", "Tomorrow is Thursday, 19 November 2026"
    assert facts("What weekday is it tomorrow, and what is 14 times 19?") == [day, sum_of]
    assert facts("What is 14 times 19, and what weekday is it tomorrow?") == [sum_of, day]


@pytest.mark.parametrize(
    "message",
    [
        *MEASURED,
        "hiya :)",
        "We're staying at the Hotel Miramar, room 512, from the 4th on.",
        "which room did I say?",
        "For the soup: 300 g lentils, 2 carrots, a litre of stock and a spoon of cumin.",
        "how many drops does biscuit get at night",
        "I have 3 shelves of 86 cm and 2 of 120 cm.",
        "Remind me in 20 minutes to check the oven.",
        "my number is 0451-2217, ok?",
        "The score was 3-2 yesterday, did you see it?",
        "Tell me about 9/11",
        "what happened in 1989?",
        "what did i have for dinner yesterday",
        "How many people came yesterday?",
        "¿A qué hora cierra la piscina según las normas?",
        "What time does the shop in London open?",
        "My phone is at 20% and it is 5 degrees outside, is that bad?",
        "How was your day?",
        "母の誕生日はいつですか？",
    ],
)
def test_what_has_no_exact_answer_is_left_to_the_model(message: str):
    assert facts(message) == []


@pytest.mark.parametrize(
    ("written", "continental", "number"),
    [
        ("1,234", False, "1234"),
        ("1,234", True, "1.234"),
        ("1.234", False, "1.234"),
        ("1.234", True, "1234"),
        ("1,5", False, "1.5"),
        ("1.234.567,89", True, "1234567.89"),
        ("1,234,567.89", True, "1234567.89"),
        ("24.12.2026", True, None),
        ("1.2.3", False, None),
    ],
)
def test_numbers_are_read_as_the_language_writes_them(
    written: str, continental: bool, number: str | None
):
    assert read_number(written, continental=continental) == number


@pytest.mark.parametrize(
    ("message", "result"),
    [
        ("i get 14.85/hr and did 37.5 hrs this wk, what's that before tax", "556.875"),
        ("Ho comprato 3 chili e mezzo di ciliegie a 6,80 euro al chilo, quanto ho speso?", "23.8"),
        ("How much is 2.5 kg of beef at 18.40 a kilo?", "46"),
        ("3 nights at 85 euros a night, how much?", "255"),
        ("Er hat 4 Std. 20 Min. gearbeitet und nimmt 54 € die Stunde. Wieviel macht das?", "234"),
        ("The recipe serves 4 and asks for 350g of rice. We'll be 11. How much rice?", "962.5 g"),
        ("hoeveel is vijfentwintig keer 12?", "300"),
        ("wat is 15 procent van 80?", "12"),
    ],
)
def test_rates_portions_and_halves_are_worked_out(message: str, result: str):
    (fact,) = facts(message)
    assert fact.endswith(f"= {result}")
