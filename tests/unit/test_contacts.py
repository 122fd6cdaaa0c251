"""The contacts document: what it says, and what is wrong with it."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from asterism.config.contacts import ContactBook, Contacts, read_contacts
from asterism.errors import ConfigError

HOUR = 3_600_000
WHOLE = """
again = "1d"
expire = "30 days"

[contacts.anna]
reach = ["discord:4711", "mail:anna@example.org"]
hours = "08:00-22:00"
zone = "Europe/Berlin"

[contacts.night]
person = "bob"
reach = ["mail:bob"]
hours = "22:00-06:00"
zone = "UTC"

[[escalation]]
after = "4h"
to = ["role:admin", "owner"]
tools = ["pay*"]
"""


def written(place: Path, text: str) -> Path:
    file = place / "contacts.toml"
    file.write_text(text)
    return file


def test_a_document_is_read(tmp_path: Path):
    found = read_contacts(written(tmp_path, WHOLE))
    assert (found.again, found.expire) == (24 * HOUR, 30 * 24 * HOUR)
    assert [one.person for one in found.people] == ["anna", "bob"]
    assert found.people[0].reach == ("discord:4711", "mail:anna@example.org")
    (rule,) = found.escalations
    assert (rule.after, rule.to, rule.tools) == (4 * HOUR, ("role:admin", "owner"), ("pay*",))
    assert read_contacts(tmp_path / "none.toml") == Contacts()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("again = 3", "line 1: again: a time is needed"),
        ('again = "soon"', "line 1: again: a time is needed"),
        ('again = "0h"', "line 1: again: a time is needed"),
        ('\nexpire = "999999999d"', "line 2: expire: a time is needed"),
        ('agian = "1d"', "line 1: agian: it is not known here; again, expire"),
        ("contacts = 3", "line 1: contacts: a table is needed"),
        ("[contacts]\nanna = 3", "line 2: contacts.anna: a table is needed"),
        ("[contacts.anna]", "line 1: contacts.anna: reach is missing"),
        ('[contacts.anna]\nreach = ["x"]', 'line 2: contacts.anna.reach[0]: "x" is no place'),
        ('[contacts.anna]\nreach = "x:y"', "line 2: contacts.anna.reach: a list of texts"),
        ('[contacts.anna]\nreach = ["x:y"]\nperson = ""', "line 3: contacts.anna.person"),
        ('[contacts.anna]\nreach = ["x:y"]\nhours = "8-22"', "line 3: contacts.anna.hours"),
        ('[contacts.anna]\nreach = ["x:y"]\nhours = "25:00-26:00"', "two times of the day"),
        ('[contacts.anna]\nreach = ["x:y"]\nzone = "Mars"', "the name of a time zone"),
        ("escalation = 3", "line 1: escalation: a list of tables"),
        ('[[escalation]]\nto = ["owner"]', "line 1: escalation[0]: after is missing"),
        ('[[escalation]]\nafter = "4h"', "line 1: escalation[0]: to is missing"),
        ('[[escalation]]\nafter = "4h"\nto = ["bob"]', '"bob" is nobody; owner, person:NAME'),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, said: str):
    with pytest.raises(ConfigError) as problem:
        read_contacts(written(tmp_path, text))
    assert said in problem.value.message
    assert problem.value.message.startswith("contacts.toml line ")


@pytest.mark.parametrize(
    ("who", "now", "opens"),
    [
        (0, "2026-07-01T05:59", "2026-07-01T06:00"),  # eight o'clock in Berlin, in summer
        (0, "2026-07-01T06:00", "2026-07-01T06:00"),
        (0, "2026-07-01T20:00", "2026-07-02T06:00"),
        (0, "2026-12-01T06:30", "2026-12-01T07:00"),
        (1, "2026-07-01T23:00", "2026-07-01T23:00"),
        (1, "2026-07-01T05:00", "2026-07-01T05:00"),
        (1, "2026-07-01T06:00", "2026-07-01T22:00"),
    ],
)
def test_hours(tmp_path: Path, who: int, now: str, opens: str):
    hours = read_contacts(written(tmp_path, WHOLE)).people[who].hours
    assert hours is not None
    assert hours.next_open(ms(now)) == ms(opens)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_a_document_that_changes_is_read_again_and_a_bad_one_is_not_used(tmp_path: Path):
    heard: list[str] = []
    book = ContactBook(tmp_path, heard.append)
    assert book.current == Contacts()
    file = written(tmp_path, 'again = "1d"')
    assert book.current.again == 24 * HOUR
    file.write_text('again = "never ever"')
    os.utime(file, ns=(1, 1))
    assert book.current.again == 24 * HOUR
    assert book.current.again == 24 * HOUR
    (problem,) = heard
    assert problem.endswith("The previous contacts stay in use.")
    file.unlink()
    assert book.current == Contacts()
