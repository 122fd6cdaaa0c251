"""Counting, the words of log lines, and the forms in which they are told."""

import asyncio
import json
import logging
import sys
from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from asterism.app.metrics import render_metrics
from asterism.cli.log import secrets_of
from asterism.config import Settings
from asterism.errors import BudgetReached, KeyRefused, ModelBusy, ToolError
from asterism.store.events import Figures
from asterism.telemetry import Counts, ModelWatch, Telemetry, ToolWatch, current_turn
from asterism.telemetry.logs import JsonLines, TextLines
from asterism.telemetry.metrics import OTHER, Counter, Histogram, LabeledHistogram, error_class
from asterism.telemetry.spans import input_messages, output_messages
from asterism.types.agents import AgentRecord
from asterism.types.turns import Call, Outcome, Reply, TurnState, Usage

ARIA = AgentRecord("agent_1", "aria", "a:b", "", 0)


def test_a_counter_has_a_bounded_number_of_series():
    counter = Counter(2, max_series=3)
    for number in range(10):
        counter.add((str(number), "x"))
    counter.add(("0", "x"), 5)
    assert dict(counter.items()) == {
        ("0", "x"): 6,
        ("1", "x"): 1,
        ("2", "x"): 1,
        (OTHER, OTHER): 7,
    }


def test_histograms_are_bounded_too():
    histograms = LabeledHistogram(1, (1.0,), max_series=2)
    for number in range(10):
        histograms.add((str(number),), 0.5)
    assert [(labels, list(histogram.buckets())) for labels, histogram in histograms.items()] == [
        ((OTHER,), [("1.0", 8), ("+Inf", 8)]),
        (("0",), [("1.0", 1), ("+Inf", 1)]),
        (("1",), [("1.0", 1), ("+Inf", 1)]),
    ]


@given(st.lists(st.floats(0, 10), max_size=30))
def test_a_histogram_counts_each_value_up_to_its_bounds(values: list[float]):
    histogram = Histogram((1.0, 2.5, 5.0))
    for value in values:
        histogram.add(value)
    bounds = {"1.0": 1.0, "2.5": 2.5, "5.0": 5.0, "+Inf": float("inf")}
    assert dict(histogram.buckets()) == {
        name: sum(value <= bound for value in values) for name, bound in bounds.items()
    }
    assert histogram.total == pytest.approx(sum(values))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelBusy("…"), "busy"),
        (KeyRefused("…"), "key"),
        (BudgetReached("…"), "budget.reached"),
        (ToolError("…"), "tool"),
        (TimeoutError(), "timeout"),
        (asyncio.CancelledError(), "cancelled"),
        (ZeroDivisionError(), "ZeroDivisionError"),
    ],
)
def test_errors_have_few_kinds(error: BaseException, kind: str):
    assert error_class(error) == kind


# -- metrics ---------------------------------------------------------------------------------------


def watched() -> Counts:
    """Counts after a turn with a model call and three tool calls."""
    telemetry = Telemetry()
    with telemetry.turn(ARIA, "turn_1", resumed=False, waited=0.25) as turn:
        assert current_turn() is turn
        with ModelWatch("a:b") as call:
            call.retry(ModelBusy("…"))
            call.queued(2.0)
            call.reply = Reply("Hi", usage=Usage(10, 2, 4))
        for name in ("ok", "error", "cancelled"):
            with ToolWatch(Call("1", f"do_{name}", "{}")) as tool:
                if name != "ok":
                    tool.failed(ValueError() if name == "error" else asyncio.CancelledError())
        turn.outcome = Outcome("turn_1", ARIA.id, TurnState.DONE, "Hi")
    assert current_turn() is None
    return telemetry.counts


def told(counts: Counts, figures: Figures | None = None, accept: str = "") -> tuple[str, str]:
    body, kind = render_metrics(
        counts, figures, version="1.2", now=5_000, breakers={"a": True}, accept=accept
    )
    return body.decode(), kind


def read_open_metrics(text: str) -> Iterable[Metric]:
    return open_metrics.text_string_to_metric_families(text)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped


def samples(text: str, parse: Any) -> dict[tuple[str, ...], float]:
    return {
        (one.name, *(value for _, value in sorted(one.labels.items()))): one.value
        for family in parse(text)
        for one in family.samples
        if one.name.startswith("asterism_")
    }


@pytest.mark.promise("D4")
@pytest.mark.parametrize(
    ("accept", "kind", "parse"),
    [
        ("", "text/plain", text_string_to_metric_families),
        (
            "application/openmetrics-text; version=1.0.0",
            "application/openmetrics-text",
            read_open_metrics,
        ),
    ],
)
def test_metrics_are_told_in_both_formats(accept: str, kind: str, parse: Any):
    figures = Figures(
        agents=3, inbox=2, oldest=1_000, deliveries={"dead": 1}, money={"spent": 1_500_000_000}
    )
    text, told_kind = told(watched(), figures, accept)
    found = samples(text, parse)
    assert told_kind.startswith(kind)
    assert found[("asterism_info", "1.2")] == 1
    assert found[("asterism_turns_total", "done")] == 1
    assert found[("asterism_queue_seconds_bucket", "0.1")] == 0
    assert found[("asterism_queue_seconds_bucket", "0.25")] == 1
    assert found[("asterism_queue_seconds_sum",)] == 0.25
    assert found[("asterism_model_calls_total", "b", "ok", "a")] == 1
    assert found[("asterism_model_retries_total", "b", "busy", "a")] == 1
    assert found[("asterism_model_queue_seconds_count", "a")] == 1
    assert found[("asterism_tokens_total", "cached", "b", "a")] == 4
    assert found[("asterism_tool_calls_total", "cancelled", "do_cancelled")] == 1
    assert found[("asterism_tool_calls_total", "error", "do_error")] == 1
    assert found[("asterism_tool_calls_total", "ok", "do_ok")] == 1
    assert found[("asterism_model_breaker_open", "a")] == 1
    assert found[("asterism_inbox_oldest_seconds",)] == 4
    assert found[("asterism_outbox", "dead")] == 1
    assert found[("asterism_outbox", "waiting")] == 0
    assert found[("asterism_money_dollars", "spent")] == 1.5


def test_a_turn_that_is_cut_off_is_told_apart():
    telemetry = Telemetry()
    with (
        pytest.raises(asyncio.CancelledError),
        telemetry.turn(ARIA, "turn_1", resumed=False, waited=None),
    ):
        raise asyncio.CancelledError
    assert telemetry.counts.turns.items() == [(("interrupted",), 1)]
    assert telemetry.counts.turns_open == 0


def test_labels_of_any_kind_are_told_soundly():
    counts = Counts()
    counts.tool_calls.add(('a"b\\c\nd', "ok"))
    text, _ = told(counts)
    found = samples(text, text_string_to_metric_families)
    assert found[("asterism_tool_calls_total", "ok", 'a"b\\c\nd')] == 1


def test_outside_of_turns_nothing_is_counted_for_a_home():
    telemetry = Telemetry()
    with ModelWatch("a:b") as call:
        call.reply = Reply("Hi", usage=Usage(10, 2))
    assert telemetry.counts.model_calls.items() == []


# -- content ---------------------------------------------------------------------------------------


def test_messages_that_do_not_fit_are_left_out_oldest_first():
    wires = [orjson.dumps({"role": "user", "content": f"{n}" + "x" * 100_000}) for n in range(5)]
    text, left_out = input_messages(wires)
    kept = json.loads(text)
    assert left_out == 3
    assert [message["parts"][0]["content"][0] for message in kept] == ["3", "4"]


def test_images_and_malformed_arguments_are_told_without_their_bytes():
    wire = {
        "role": "user",
        "content": [
            {"type": "text", "text": "See:"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}},
        ],
    }
    text, _ = input_messages([orjson.dumps(wire)])
    assert json.loads(text)[0]["parts"] == [
        {"type": "text", "content": "See:"},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": ""},
        {"type": "uri", "modality": "image", "uri": "https://example.org/cat.png"},
    ]
    reply = Reply("Hm.", (Call("1", "act", "{oops"),), reasoning="Well", finish="tool_calls")
    assert json.loads(output_messages(reply))[0]["parts"] == [
        {"type": "reasoning", "content": "Well"},
        {"type": "text", "content": "Hm."},
        {"type": "tool_call", "id": "1", "name": "act", "arguments": "{oops"},
    ]


# -- logs ------------------------------------------------------------------------------------------


def record(message: str, *args: object, error: Exception | None = None) -> logging.LogRecord:
    caught: Any = None
    if error is not None:
        try:
            raise error
        except type(error):
            caught = sys.exc_info()
    made = logging.LogRecord("a.b", logging.WARNING, "file", 1, message, args, caught)
    made.created, made.msecs, made.process = 1_700_000_000.25, 250.0, 42
    return made


def test_a_line_of_text():
    made = record("took %d s", 3)
    lines = TextLines(())
    assert lines.format(made) == "2023-11-14T22:13:20.250Z WARNING a.b (42): took 3 s"
    made.turn_id, made.agent_id = "turn_1", "agent_1"
    assert "(42) [turn_1 agent_1]: took 3 s" in lines.format(made)


def test_a_line_of_json_holds_a_traceback_on_one_line():
    made = record("failed", error=ValueError("two\nlines \udcff"))
    text = JsonLines(()).format(made)
    assert "\n" not in text
    line = json.loads(text)
    assert line["error"] == "ValueError"
    assert line["traceback"].startswith("Traceback")
    assert line == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "a.b",
        "process": 42,
        "message": "failed",
        "error": "ValueError",
        "traceback": line["traceback"],
    }


@pytest.mark.promise("D4")
@pytest.mark.parametrize("lines", [TextLines, JsonLines])
def test_secrets_are_not_written(lines: type[TextLines] | type[JsonLines]):
    settings = Settings.model_validate(
        {
            "store": {"url": "postgresql://me:pass%2Fword%21@host/db"},
            "models": {"a": {"key": "sk-configured"}},
            "channels": {"c": {"type": "webhook", "secret": "shared-secret", "url": "http://x"}},
            "telemetry": {"headers": {"authorization": "Bearer 12345678"}},
        }
    )
    found = secrets_of(settings, {"B_API_KEY": "sk-environment", "HOME": "/home/me", "KEY": ""})
    secrets = {
        "sk-configured",
        "sk-environment",
        "shared-secret",
        "Bearer 12345678",
        "pass%2Fword%21",
        "pass/word!",
    }
    assert found >= secrets
    assert "/home/me" not in found
    words = " ".join(sorted(secrets))
    text = lines(found).format(record("said %s", words, error=ValueError(words)))
    assert not any(secret in text for secret in secrets)
    assert "said …" in text
