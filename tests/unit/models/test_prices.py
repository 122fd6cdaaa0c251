"""Prices: looked up by name, exact to the nano-dollar, and never below what a call costs."""

import tomllib
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asterism.config import Settings, load
from asterism.config.load import FixedSettings
from asterism.errors import ConfigError
from asterism.ports import ModelRequest
from asterism.turns import spending as module
from asterism.turns.spending import Prices, bound_of, is_local_url, match_name, published_prices
from asterism.types.spending import FREE, Budget, Limit, Payer, Price, Span, dollars, nano
from asterism.types.turns import Usage

FILE = Path(module.__file__).with_name("prices.toml")


def prices(**settings: Any) -> Prices:
    found = Settings.model_validate(settings, context={})
    return Prices(FixedSettings(found))


# -- looking up --------------------------------------------------------------------------------


def test_shipped_prices_are_dated_sourced_and_plausible() -> None:
    document = tomllib.loads(FILE.read_text("utf-8"), parse_float=Decimal)
    assert date.fromisoformat(str(document.pop("as_of")))
    assert set(document) == set(published_prices())
    for vendor, listed in document.items():
        assert listed["source"].startswith("https://")
        for name, price in published_prices()[vendor].items():
            assert 0 < price.input <= price.output, name
            assert price.cached <= price.input <= max(price.written, price.input), name
            if price.long is not None:
                assert price.long.input > price.input, name
                assert 100_000 <= price.long_from <= 272_000, name


@pytest.mark.parametrize(
    ("model", "per_million"),
    [
        ("openai:gpt-4.1-mini", "0.40"),
        ("openai:gpt-4.1-mini-2025-04-14", "0.40"),
        ("openai:gpt-4o-2024-05-13", "5"),
        ("openai:gpt-4o-2024-08-06", "2.50"),
        ("anthropic:claude-haiku-4-5", "1"),
        ("anthropic:claude-haiku-4-5-20251001", "1"),
        ("cohere:command-r-08-2024", "0.15"),
        ("groq:openai/gpt-oss-120b", "0.15"),
        ("bedrock:global.anthropic.claude-sonnet-4-5-20250929-v1:0", "3"),
        ("bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3"),
        ("bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3"),
        ("bedrock:us.amazon.nova-pro-v1:0", "0.8"),
    ],
)
def test_names_are_found_with_dates_and_versions(model: str, per_million: str) -> None:
    price = prices().of(model)
    assert price is not None
    assert price.input == nano(Decimal(per_million))


@pytest.mark.parametrize(
    "model",
    ["openai:gpt-4o-audio-preview", "openai:gpt-4.1-mini-turbo", "nobody:gpt-4o", "openai:"],
)
def test_a_name_that_only_begins_like_another_is_unknown(model: str) -> None:
    assert prices().of(model) is None


def test_what_runs_here_is_free() -> None:
    found = prices(models={"here": {"base_url": "http://[::1]:9/v1"}})
    for model in ("demo:guide", "embedded:any", "ollama:llama3.2", "here:m"):
        assert found.of(model) == FREE
    found.custom_vendors.add("scripted")
    assert found.of("scripted:one") == FREE


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:11434/v1", True),
        ("http://127.0.0.53", True),
        ("http://me.localhost/v1", True),
        ("http://10.0.0.1/v1", False),
        ("https://localhost.example.org/v1", False),
        (None, False),
    ],
)
def test_loopback(url: str | None, here: bool) -> None:
    assert is_local_url(url) is here


def test_configured_prices_win_and_may_be_patterns() -> None:
    found = prices(
        prices={
            "openai:gpt-4.1-mini": {"input": 1.0, "output": 2.0},
            "mine:*": {"input": 3.0, "output": 4.0},
            "mine:big-*": {"input": 5.0, "output": 6.0, "cached": 0.5, "written": 7.0},
            "demo:guide": {"input": 8.0, "output": 9.0},
        },
        models={"mine": {"base_url": "http://localhost/v1"}, "work": {"api": "openai"}},
    )

    def rate(model: str) -> int:
        price = found.of(model)
        assert price is not None
        return price.input // nano(1)

    assert rate("openai:gpt-4.1-mini-2025-04-14") == 1
    assert [rate("mine:small"), rate("mine:big-one"), rate("demo:guide")] == [3, 5, 8]
    # Another account at a vendor whose list is known.
    assert found.of("work:gpt-4.1") == published_prices()["openai"]["gpt-4.1"]


def test_a_changed_configuration_counts_at_once() -> None:
    live = FixedSettings(Settings.model_validate({}, context={}))
    found = Prices(live)
    assert found.of("openai:gpt-4.1") == published_prices()["openai"]["gpt-4.1"]
    live.current = Settings.model_validate(
        {"prices": {"openai:gpt-4.1": {"input": 0.0, "output": 0.0}}}, context={}
    )
    price = found.of("openai:gpt-4.1")
    assert price is not None
    assert price.free


def test_the_longest_pattern_wins() -> None:
    assert match_name("ab", {"*": 1, "a*": 2, "*b": 3}) in (2, 3)
    assert match_name("abc", {"*": 1, "a*": 2, "ab*": 3}) == 3
    assert match_name("x", {"a*": 2}) is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("budget.day = -1", "budget.day is -1; an amount in US dollars"),
        ('budget.month = "5"', 'budget.month is "5"; an amount in US dollars'),
        ("budget.warn_at = 80", "budget.warn_at is 80; a part of the cap above 0 and up to 1"),
        ('budget.timezone = "Mars"', 'budget.timezone is "Mars"; the name of a time zone'),
        ("budget.agents.aria.day = nan", "budget.agents.aria.day is nan; an amount"),
        ("prices.'a:b'.input = 1", "is missing; an amount in US dollars"),
    ],
)
def test_bad_settings_are_told(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / "asterism.toml").write_text(content)
    with pytest.raises(ConfigError) as problem:
        load(tmp_path, None, {})
    assert told in problem.value.message


# -- money -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        ("0", "$0.00"),
        ("0.01", "$0.01"),
        ("1234.5", "$1,234.50"),
        ("0.0012345", "$0.0012"),
        ("0.000000001", "$0.0000000010"),
    ],
)
def test_amounts_are_shown_as_people_write_them(amount: str, shown: str) -> None:
    assert dollars(nano(amount)) == shown


rates = st.integers(0, 10**12)
counts = st.integers(0, 10**7)


@given(
    price=st.builds(
        Price,
        input=rates,
        output=rates,
        cached=rates,
        written=rates,
        request=rates,
        image=rates,
        long_from=counts,
        long=st.none() | st.builds(Price, rates, rates, rates, rates),
    ),
    tokens=counts,
    part=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    output=counts,
    images=st.integers(0, 9),
)
def test_the_worst_case_is_never_below_the_cost(
    price: Price, tokens: int, part: tuple[float, float], output: int, images: int
) -> None:
    cached = int(tokens * part[0])
    usage = Usage(tokens, output, cached, int((tokens - cached) * part[1]))
    cost = price.cost(usage, images)
    assert cost <= price.worst(tokens, output, images)
    assert cost <= price.worst(tokens + 1, output + 1, images)
    if price.long is None:
        plain = tokens - usage.cached - usage.written
        exact = (
            Fraction(
                plain * price.input
                + usage.cached * price.cached
                + usage.written * price.written
                + output * price.output,
                10**6,
            )
            + price.request
            + images * price.image
        )
        assert 0 <= cost - exact < 1


def asked(*messages: dict[str, Any], **more: Any) -> ModelRequest:
    return ModelRequest("m", [orjson.dumps(one) for one in messages], None, "k", 1.0, **more)


@given(text=st.text())
def test_every_byte_of_a_text_may_be_a_token(text: str) -> None:
    assert bound_of(asked({"role": "user", "content": text}), 0).tokens >= len(text.encode())


def test_images_count_by_their_number_and_texts_about_them_by_their_bytes() -> None:
    data = "data:image/png;base64," + "A" * 1_000_000
    shown = {"type": "image_url", "image_url": {"url": data}}
    bound = bound_of(asked({"role": "user", "content": [shown, shown]}), 8_192)
    assert bound.images == 2
    assert 2 * 8_192 < bound.tokens < 2 * 8_192 + 2_000
    told = orjson.dumps({"image_url": {"url": data}}).decode()
    bound = bound_of(asked({"role": "user", "content": told}), 8_192)
    assert bound.images == 0
    assert bound.tokens > 1_000_000


# -- caps --------------------------------------------------------------------------------------


def test_a_named_cap_takes_the_place_of_everybodys() -> None:
    budget = Budget(
        each_agent=Limit(day=1), agents={"aria": Limit(month=2)}, groups={"team": Limit(day=3)}
    )
    aria = budget.caps(Payer("agent_1", "aria", None, "team"))
    assert [(cap.scope, cap.setting, cap.amount) for cap in aria] == [
        ("agent:agent_1", "budget.agents.aria.month", 2),
        ("group:team", "budget.groups.team.day", 3),
    ]
    (bert,) = budget.caps(Payer("agent_2", "bert"))
    assert (bert.setting, bert.amount) == ("budget.each_agent.day", 1)


def test_days_are_those_of_the_configured_zone(tmp_path: Path) -> None:
    (tmp_path / "asterism.toml").write_text('budget.timezone = "Pacific/Auckland"')
    budget = load(tmp_path, None, {}).spending_caps
    noon = 1_798_718_400_000  # 2026-12-31 12:00 UTC, past midnight there
    assert budget.periods(noon) == {Span.DAY: "2027-01-01", Span.MONTH: "2027-01"}
    assert Budget().periods(noon) == {Span.DAY: "2026-12-31", Span.MONTH: "2026-12"}
    assert Budget().renewal(Span.MONTH, noon) == "2027-01-01 00:00 UTC"
    assert budget.renewal(Span.DAY, noon) == "2027-01-02 00:00 Pacific/Auckland"
