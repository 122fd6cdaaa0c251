"""`asterism spend`: a table, a plot and caps, in wide and narrow terminals and in pipes."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest

from tests.e2e.command import Command, Installed, ModelServer

PRICED = """
[budget]
day = {day}
[budget.agents.aria]
month = 50.0
[prices."local:m"]
input = 100.0
output = 1000.0
"""
STYLED = "\x1b["


def talk(asterism: Command, model: ModelServer, more: str = "") -> None:
    asterism.use(model, more)
    for name in ("aria", "bert"):
        asterism.ok("agent", "create", name)
        asterism.ok("chat", "--agent", name, "--once", "Hello")


@pytest.mark.promise("T7")
def test_an_empty_home_says_that_nothing_was_spent_and_how_to_set_a_cap(
    asterism: Command, model: ModelServer
) -> None:
    asterism.use(model)
    asterism.ok("agent", "create", "aria")
    told = asterism.ok("spend")
    span = r"from \d{4}-\d\d-\d\d to \d{4}-\d\d-\d\d"
    assert re.match(rf"There were no calls to models {span}: nothing was spent", told)
    assert "[budget]\nday = 5.00" in told
    today = asterism.ok("spend", "--days", "1")
    assert today.startswith("There were no calls to models today: nothing was")


@pytest.mark.promise("T7")
def test_what_was_spent_is_shown_as_a_table_and_as_json(
    asterism: Command, model: ModelServer
) -> None:
    talk(asterism, model, PRICED.format(day=25))
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    told = asterism.ok("spend")
    assert STYLED not in told
    rows = {line.split()[0]: line.split() for line in told.splitlines() if line}
    assert {"agent", "aria", "bert", "total"} <= rows.keys()
    assert rows["aria"][1] == "1"
    assert "┤" in told
    assert re.search(r"everything, this day: \d+ % of \$25\.00", told)
    assert re.search(r"the agent aria, this month: \d+ % of \$50\.00", told)

    data = asterism.json("spend", "--by", "model")
    (line,) = data["sums"]
    assert (line["name"], line["calls"]) == ("local:m", 2)
    cost = line["tokens_in"] * 0.0001 + line["tokens_out"] * 0.001
    assert cost > 0
    assert line["cost_usd"] == pytest.approx(cost)
    assert data["days"][-1] == {"day": today, "cost_usd": line["cost_usd"], "presumed_usd": 0}
    first = date.fromisoformat(data["first"])
    every = [f"{first + timedelta(days=number)}" for number in range(30)]
    assert [day["day"] for day in data["days"]] == every, "days without calls are there, as 0"
    assert {day["cost_usd"] for day in data["days"][:-1]} == {0}
    assert [cap["setting"] for cap in data["caps"]] == ["budget.day", "budget.agents.aria.month"]
    assert data["caps"][0]["spent_usd"] == line["cost_usd"]
    only = asterism.json("spend", "--agent", "bert", "--days", "1")
    assert [(one["name"], one["calls"]) for one in only["sums"]] == [("bert", 1)]
    assert asterism.json("spend", "--by", "day")["sums"][0]["name"] == today


@pytest.mark.promise("T7")
def test_it_fits_the_terminal(asterism: Command, model: ModelServer) -> None:
    talk(asterism, model, PRICED.format(day=25))
    for columns, days in ((40, "30"), (40, "366"), (120, "30")):
        with asterism.screen("spend", "--days", days, columns=columns) as person:
            assert person.ended() == 0
            shown = person.shown.splitlines()
        assert max(map(len, shown)) <= columns
        assert any("█" in line for line in shown)
        assert any(line.startswith("aria") for line in shown)
        assert any("everything, this day" in line for line in shown)
        assert ("cached" in shown[0]) == (columns == 120)
        assert STYLED in person.raw


@pytest.mark.promise("T7")
def test_at_the_cap_the_chat_says_so_and_asks_no_model(
    asterism: Command, model: ModelServer
) -> None:
    asterism.use(model, PRICED.format(day=8))
    asterism.ok("agent", "create", "aria")
    done = asterism.run("chat", "--agent", "aria", "--once", "Hello")
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "The spending cap for everything is $8.00 a day, with $0.00 spent, and asking" in said
    assert "lower budget.max_output or context.tokens (budget.day in asterism.toml)" in said
    assert model.requests == 0


@pytest.mark.promise("T7")
def test_tokens_of_free_models_are_shown(asterism: Command, model: ModelServer) -> None:
    talk(asterism, model)
    told = asterism.ok("spend", "--by", "model")
    row = next(line for line in told.splitlines() if line.startswith("local:m"))
    assert row.split()[1] == "2"
    assert row.endswith("free")


def test_bad_options_are_told(asterism: Command, installed: Installed, model: ModelServer) -> None:
    asterism.use(model)
    asterism.ok("agent", "create", "aria")
    assert installed.run("spend", "--days", "0").returncode == 2
    assert "agent, model, day" in asterism.run("spend", "--by", "colour").stderr.replace("'", "")
    assert "no agent named 'nobody'" in asterism.run("spend", "--agent", "nobody").stderr
