"""The contacts document: what it says, and what is wrong with it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from asterism.config import LiveSettings, load
from asterism.config.documents import Contacts
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


def written(place: Path, text: str, name: str = "contacts.toml") -> Path:
    file = place / name
    file.write_text(text)
    return file


def read_contacts(place: Path) -> Contacts:
    return load(place, None, {}).contacts.book


def test_a_document_is_read(tmp_path: Path):
    assert read_contacts(tmp_path) == Contacts()
    written(tmp_path, WHOLE)
    found = read_contacts(tmp_path)
    assert (found.again, found.expire) == (24 * HOUR, 30 * 24 * HOUR)
    assert [one.person for one in found.people] == ["anna", "bob"]
    assert found.people[0].reach == ("discord:4711", "mail:anna@example.org")
    (rule,) = found.escalations
    assert (rule.after, rule.to, rule.tools) == (4 * HOUR, ("role:admin", "owner"), ("pay*",))


def test_it_stands_beside_the_configuration_and_may_be_yaml(tmp_path: Path):
    place = tmp_path / "etc"
    place.mkdir()
    (place / "my.toml").write_text("")
    written(place, "again: 1d\ncontacts:\n  anna:\n    reach: [mail:anna]\n", "contacts.yaml")
    found = load(tmp_path, place / "my.toml", {}).contacts.book
    assert (found.again, found.people[0].reach) == (24 * HOUR, ("mail:anna",))
    written(place, "")
    with pytest.raises(ConfigError, match=r"contacts\.toml and contacts\.yaml"):
        load(tmp_path, place / "my.toml", {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("again = 3", "line 1: again is 3; a duration is needed"),
        ('again = "soon"', 'line 1: again is "soon"; a duration is needed'),
        ('again = "0h"', 'line 1: again is "0h"; a duration is needed'),
        ('\nexpire = "999999999d"', "line 2: expire is"),
        ('agian = "1d"', "line 1: agian is not a setting. Did you mean again?"),
        ("contacts = 3", "line 1: contacts is a number; a table is needed"),
        ("[contacts]\nanna = 3", "line 2: contacts.anna is a number; a table is needed"),
        ("[contacts.anna]", "line 1: contacts.anna.reach is missing"),
        ('[contacts.anna]\nreach = ["x"]', 'line 2: contacts.anna.reach[0] is "x"; '),
        ('[contacts.anna]\nreach = "x:y"', "line 2: contacts.anna.reach is "),
        ('[contacts.anna]\nreach = ["x:y"]\nperson = ""', "line 3: contacts.anna.person"),
        ('[contacts.anna]\nreach = ["x:y"]\nhours = "8-22"', "line 3: contacts.anna.hours"),
        ('[contacts.anna]\nreach = ["x:y"]\nhours = "25:00-26:00"', "two times of the day"),
        ('[contacts.anna]\nreach = ["x:y"]\nzone = "Mars"', "the name of a time zone"),
        ("escalation = 3", "line 1: escalation is 3; a list of tables"),
        ('[[escalation]]\nto = ["owner"]', "line 1: escalation[0].after is missing"),
        ('[[escalation]]\nafter = "4h"', "line 1: escalation[0].to is missing"),
        ('[[escalation]]\nafter = "4h"\nto = ["bob"]', 'escalation[0].to[0] is "bob"; '),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, said: str):
    written(tmp_path, text)
    with pytest.raises(ConfigError) as problem:
        read_contacts(tmp_path)
    assert said in problem.value.message
    assert problem.value.message.startswith("contacts.toml line ")


def test_all_that_is_wrong_is_told_at_once_with_the_file_that_it_is_in(tmp_path: Path):
    written(tmp_path, 'again = "soon"\nexpire = 3\n')
    written(tmp_path, "[limits]\nsteps = 0\n", "asterism.toml")
    written(tmp_path, "policies = 3\n", "authorizations.toml")
    with pytest.raises(ConfigError) as problem:
        read_contacts(tmp_path)
    lines = problem.value.message.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "asterism.toml line 2",
        "authorizations.toml line 1",
        "contacts.toml line 1",
        "contacts.toml line 2",
    ]


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
    written(tmp_path, WHOLE)
    hours = read_contacts(tmp_path).people[who].hours
    assert hours is not None
    assert hours.next_open(ms(now)) == ms(opens)


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_a_document_that_changes_is_read_again_and_a_bad_one_is_not_used(tmp_path: Path):
    heard: list[str] = []
    live = LiveSettings(tmp_path, None, {}, on_problem=heard.append)
    assert live.current.contacts.book == Contacts()
    file = written(tmp_path, 'again = "1d"')
    live.reload()
    assert live.current.contacts.book.again == 24 * HOUR
    file.write_text('again = "never ever"')
    live.reload()
    assert live.current.contacts.book.again == 24 * HOUR
    (problem,) = heard
    assert problem.endswith("The previous configuration stays in use.")
    file.unlink()
    live.reload()
    assert live.current.contacts.book == Contacts()
