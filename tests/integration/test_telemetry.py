"""What a home at work tells: spans to a collector that was named, and nothing to anybody else."""

import asyncio
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from prometheus_client.parser import text_string_to_metric_families

from asterism import Asterism, ToolContext, ToolError, TurnState, tool
from asterism.errors import ConfigError, DeliveryError, ModelBusy, ModelUnavailable
from asterism.ports import Model, ModelRequest
from asterism.telemetry.logs import JsonLines, TurnFilter
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import Reply, Usage
from tests.scenes import calls, open_home, until
from tests.servers.collector import Collector, Seen

INTERNAL, CLIENT, PRODUCER = 1, 3, 4
WORDS = "the violet umbrella"


@tool(repeatable=True)
async def look(ctx: ToolContext, place: str) -> str:
    """Look at a place.

    Args:
        place: Which one.
    """
    return f"At {place} there is {WORDS}."


@tool(repeatable=True)
async def fall(ctx: ToolContext) -> str:
    """Fail."""
    raise ToolError(f"I fell over {WORDS}.")


@tool(transactional=True)
async def note(ctx: ToolContext) -> str:
    """Write a line to the log."""
    logging.getLogger("tests.note").warning("noted inside the transaction")
    return "noted"


@tool(repeatable=True)
def shout(ctx: ToolContext) -> str:
    """Write a line to the log from a thread."""
    logging.getLogger("tests.shout").warning("shouted from a thread")
    return "shouted"


def telling(collector: Collector, **more: Any) -> dict[str, Any]:
    return {"telemetry": {"endpoint": collector.url, **more}}


def open_with(
    place: Path, models: dict[str, Model], **given: Any
) -> AbstractAsyncContextManager[Asterism]:
    """Open a home with several models."""
    return Asterism.open(place, environ={}, grace=1.0, models=models, **given)


def looker() -> ScriptedModel:
    """A model that looks at the garden and then says what it saw."""
    wanted = calls(("look", '{"place": "the garden"}'))
    first = Reply(calls=wanted.calls, usage=Usage(100, 7, 60, 40), finish="tool_calls")
    return ScriptedModel([first, Reply(f"I saw {WORDS}.", usage=Usage(140, 9))])


def named(spans: list[Seen], name: str) -> Seen:
    (found,) = [span for span in spans if span.name == name]
    return found


async def scraped(home: Asterism) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    body, kind = await home.metrics()
    assert kind.startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def sample(found: dict[Any, float], name: str, **labels: str) -> float | None:
    return found.get((f"asterism_{name}", tuple(sorted(labels.items()))))


# -- spans -----------------------------------------------------------------------------------------


@pytest.mark.promise("D4")
async def test_a_turn_is_a_tree_of_spans_in_the_words_of_the_conventions(tmp_path: Path):
    with Collector() as collector:
        async with open_home(tmp_path, looker(), tools=[look], settings=telling(collector)) as home:
            agent = await home.agents.create("aria")
            outcome = await home.agents.ask(agent, f"Where is {WORDS}?")
        spans = collector.spans()
        tokens = collector.points("gen_ai.client.token.usage")
        seconds = collector.points("gen_ai.client.operation.duration")
        sent = b"".join(body for _, _, body in collector.raw)

    assert [span.name for span in spans] == [
        "chat one",
        "execute_tool look",
        "chat one",
        "invoke_agent aria",
    ]
    first, looked, second, turn = spans
    assert turn.parent == ""
    assert {span.parent for span in (first, looked, second)} == {turn.id}
    assert {span.trace for span in spans} == {turn.trace}
    assert [span.kind for span in spans] == [CLIENT, INTERNAL, CLIENT, INTERNAL]
    assert not any(span.failed for span in spans)

    who = {
        "gen_ai.agent.id": agent.id,
        "gen_ai.agent.name": "aria",
        "gen_ai.agent.version": "1",
        "gen_ai.conversation.id": agent.id,
    }
    waited = turn.attributes.pop("asterism.turn.waited")
    assert 0 <= waited < 10
    assert turn.attributes == {
        **who,
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "asterism",
        "gen_ai.usage.input_tokens": 240,
        "gen_ai.usage.output_tokens": 16,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 40,
        "asterism.turn.id": outcome.turn_id,
        "asterism.turn.resumed": False,
        "asterism.turn.state": "done",
    }
    assert first.attributes == {
        **who,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "one",
        "gen_ai.response.model": "one",
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 40,
    }
    assert looked.attributes == {
        **who,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "call_0",
        "gen_ai.tool.type": "function",
    }
    assert turn.resource["service.name"] == "asterism"
    assert turn.resource["asterism.constellation"] == "home"

    about = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "one",
        "gen_ai.response.model": "one",
    }
    assert ({**about, "gen_ai.token.type": "input"}, 2, 240.0) in tokens
    assert ({**about, "gen_ai.token.type": "output"}, 2, 16.0) in tokens
    assert [(labels, count) for labels, count, _ in seconds] == [(about, 2)]

    for content in (WORDS, "the garden", "long-lived assistant"):
        assert content.encode() not in sent


@pytest.mark.promise("D4")
async def test_content_is_told_to_those_who_ask_for_it(tmp_path: Path):
    with Collector() as collector:
        settings = telling(collector, content=True, headers={"x-api-key": "abc"})
        async with open_home(tmp_path, looker(), tools=[look], settings=settings) as home:
            await home.agents.create("aria", system="Be brief.")
            await home.agents.ask("aria", "Where is it?")
        first, looked, second, turn = collector.spans()
        headers = [headers for _, headers, _ in collector.raw]

    assert all(one["x-api-key"] == "abc" for one in headers)
    told = json.loads(second.attributes["gen_ai.input.messages"])
    assert [message["role"] for message in told] == ["system", "user", "assistant", "tool"]
    assert told[0]["parts"][0]["content"].startswith("Be brief.")
    (part,) = told[1]["parts"]
    assert part["type"] == "text"
    assert part["content"].endswith("] Where is it?")  # with the time at which it was sent
    assert told[2]["parts"] == [
        {
            "type": "tool_call",
            "id": "call_0",
            "name": "look",
            "arguments": {"place": "the garden"},
        }
    ]
    assert told[3]["parts"] == [
        {
            "type": "tool_call_response",
            "id": "call_0",
            "response": f"At the garden there is {WORDS}.",
        }
    ]
    assert json.loads(second.attributes["gen_ai.output.messages"]) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": f"I saw {WORDS}."}],
            "finish_reason": "stop",
        }
    ]
    assert "look" in first.attributes["gen_ai.tool.definitions"]
    assert json.loads(looked.attributes["gen_ai.tool.call.arguments"]) == {"place": "the garden"}
    assert WORDS in looked.attributes["gen_ai.tool.call.result"]
    assert WORDS in turn.attributes["gen_ai.output.messages"]


@pytest.mark.promise("D4")
async def test_retries_failovers_and_failing_tools_are_seen(tmp_path: Path):
    first = ScriptedModel([ModelBusy("Busy.", retry_after=0.01), ModelUnavailable("Gone.")])
    second = ScriptedModel(["Well.", calls(("fall", "{}")), "Ouch."])
    with Collector() as collector:
        settings = telling(collector) | {"models": {"first": {"retries": 1}}}
        models: dict[str, Model] = {"first": first, "second": second}
        async with open_with(tmp_path, models, tools=[fall], settings=settings) as home:
            await home.agents.create("aria", model="first:a, second:b")
            await home.agents.create("bo", model="second:b")
            outcome = await home.agents.ask("aria", "Hi!")
            await home.agents.ask("bo", "Fall!")
            found = await scraped(home)
        spans = collector.spans()

    assert outcome.text == "Well."
    given_up = named(spans, "chat a")
    assert given_up.failed
    assert given_up.attributes["error.type"] == "unavailable"
    assert given_up.events == [("asterism.retry", {"error.type": "busy"})]
    turn = named(spans, "invoke_agent aria")
    assert turn.events == [
        (
            "asterism.failover",
            {
                "asterism.from": "first:a",
                "asterism.to": "second:b",
                "error.type": "unavailable",
            },
        )
    ]
    fell = named(spans, "execute_tool fall")
    assert fell.failed
    assert fell.attributes["error.type"] == "tool"

    assert sample(found, "model_calls_total", vendor="first", model="a", outcome="unavailable") == 1
    assert sample(found, "model_calls_total", vendor="second", model="b", outcome="ok") == 3
    assert sample(found, "model_retries_total", vendor="first", model="a", reason="busy") == 1
    assert (
        sample(
            found,
            "model_failovers_total",
            model="first:a",
            next="second:b",
            reason="unavailable",
        )
        == 1
    )
    assert sample(found, "tool_calls_total", tool="fall", outcome="error") == 1
    assert sample(found, "model_breaker_open", vendor="first") == 0


@pytest.mark.promise("D4")
async def test_a_parked_turn_and_its_deliveries_are_one_trace(tmp_path: Path):
    @tool(ask=True)
    async def act(ctx: ToolContext) -> str:
        """Act."""
        return "acted"

    channel = MemoryChannel()
    channel.trouble(DeliveryError("The room is closed."))
    quick = {"outbox": {"first_delay": 0.01, "longest_delay": 0.02}}
    with Collector() as collector:
        async with open_home(
            tmp_path,
            ScriptedModel([calls(("act", "{}")), "Done."]),
            tools=[act],
            channels={"room": channel},
            settings=telling(collector) | quick,
        ) as home:
            await home.agents.create("aria")
            receipt = await home.agents.send("aria", "Act!", channel="room", reply_to="ada")
            await home.turns.wait(receipt)
            (question,) = await home.approvals.list()
            outcome = await home.turns.wait(await home.approvals.decide(question.id, approved=True))
            assert outcome.state is TurnState.DONE

            async def all_sent() -> bool:
                return (
                    len(await home.outbox.list("sent")) == 3
                )  # question, how it was answered, answer

            await until(all_sent)
            found = await scraped(home)
        spans = collector.spans()

    assert len({span.trace for span in spans}) == 1
    parked, resumed = [span for span in spans if span.name == "invoke_agent aria"]
    assert parked.attributes["asterism.turn.state"] == "parked"
    assert resumed.attributes["asterism.turn.state"] == "done"
    assert resumed.attributes["asterism.turn.resumed"] is True
    assert resumed.parent == parked.id
    assert named(spans, "execute_tool act").parent == resumed.id
    tries = [span for span in spans if span.name == "deliver room"]
    assert {(span.parent, span.kind) for span in tries} == {(parked.id, PRODUCER)}
    assert [span.failed for span in tries] == [True, False, False, False]
    assert sample(found, "deliveries_total", channel="room", outcome="failed") == 1
    assert sample(found, "turns_total", state="parked") == 1
    assert sample(found, "turns_total", state="done") == 1


async def test_a_share_of_turns_can_be_traced(tmp_path: Path):
    with Collector() as collector:
        async with open_home(tmp_path, settings=telling(collector, sample=0.0)) as home:
            await home.agents.create("aria")
            await home.agents.ask("aria", "Hi!")
        assert collector.spans() == []
        assert collector.points("gen_ai.client.operation.duration")[0][1] == 1


async def test_the_first_piece_of_a_streamed_answer_is_timed(tmp_path: Path):
    with Collector() as collector:
        async with open_home(tmp_path, settings=telling(collector)) as home:
            await home.agents.create("aria")
            async for _ in home.agents.stream("aria", "Hi!"):
                pass
        chat = named(collector.spans(), "chat one")
    assert chat.attributes["gen_ai.request.stream"] is True
    assert 0 <= chat.attributes["gen_ai.response.time_to_first_chunk"] < 10


# -- collectors that do not work -------------------------------------------------------------------


@pytest.mark.promise("D4")
@pytest.mark.parametrize("kind", ["absent", "hanging", "failing"])
async def test_a_collector_that_does_not_work_holds_nothing_up(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    # Whatever waits for an answer to an export waits longer than a test may take.
    monkeypatch.setattr("asterism.telemetry.spans._TIMEOUT", 3_600.0)
    with Collector(hang=kind == "hanging", status=503) as collector, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        absent = f"http://127.0.0.1:{closed.getsockname()[1]}"
        endpoint = absent if kind == "absent" else collector.url
        settings = {"telemetry": {"endpoint": endpoint}}
        async with open_home(tmp_path, settings=settings) as home:
            await home.agents.create("aria")
            for number in range(20):
                outcome = await home.agents.ask("aria", str(number))
                assert outcome.state is TurnState.DONE
    if kind != "hanging":  # that one has not been given up yet when the home closes
        lost = [record for record in caplog.records if "telemetry was not taken" in record.message]
        assert len(lost) == 1
        assert endpoint in lost[0].message


@pytest.mark.promise("D4")
async def test_the_libraries_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("asterism.telemetry.spans", "asterism.telemetry.spans"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.id_generator", None)
    with pytest.raises(ConfigError, match=r"not installed.*asterism\[telemetry\].*Nothing was"):
        async with open_home(tmp_path, settings={"telemetry": {"endpoint": "http://127.0.0.1:1"}}):
            pass
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")


# -- nothing unless asked --------------------------------------------------------------------------

SILENT = """
import asyncio, json, sys
from pathlib import Path

reached = []

def hear(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        reached.append([event, str(arguments[1:] if event == "socket.connect" else arguments)])

sys.addaudithook(hear)

from asterism import Asterism

async def main():
    async with Asterism.open(sys.argv[1], settings={"model": "demo:guide"}) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "Hi!")
        assert outcome.state.value == "done", outcome
        loaded = [name for name in
                  ("opentelemetry", "prometheus_client", "structlog", "requests", "google.protobuf")
                  if name in sys.modules]
        await home.metrics()
    print(json.dumps({"reached": reached, "loaded": loaded,
                      "after": "opentelemetry" in sys.modules}))

asyncio.run(main())
"""


@pytest.mark.promise("D4")
def test_nothing_leaves_the_machine_and_nothing_is_loaded_unless_configured(tmp_path: Path):
    with Collector() as collector:
        env = {
            name: value for name, value in os.environ.items() if not name.startswith("ASTERISM_")
        }
        env |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_METRICS_EXPORTER": "otlp",
        }
        done = subprocess.run(
            [sys.executable, "-c", SILENT, str(tmp_path / "data")],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert told == {"reached": [], "loaded": [], "after": False}
        assert collector.raw == []


# -- metrics and logs ------------------------------------------------------------------------------


@pytest.mark.promise("D4", "O4")
async def test_metrics_tell_what_was_done_and_what_waits(tmp_path: Path):
    @tool(ask=True)
    async def act(ctx: ToolContext) -> str:
        """Act."""
        return "acted"

    channel = MemoryChannel()
    channel.trouble(DeliveryError("No such room.", final=True))
    async with open_home(tmp_path, looker(), tools=[look, act], channels={"room": channel}) as home:
        home._engine.models.put({"asking": ScriptedModel([calls(("act", "{}"))])})  # pyright: ignore[reportPrivateUsage] - two ports
        await home.agents.create("aria")
        await home.agents.create("bo", model="asking:x")
        receipt = await home.agents.send("aria", "Look!", channel="room", reply_to="ada")
        await home.turns.wait(receipt)
        await home.agents.ask("bo", "Act!")
        await until(lambda: bool(channel.tried))

        async def given_up() -> bool:
            return len(await home.outbox.list("dead")) == 1

        await until(given_up)
        found = await scraped(home)

    assert sample(found, "store_up") == 1
    assert sample(found, "agents") == 2
    assert sample(found, "inbox_waiting") == 0
    assert sample(found, "approvals_waiting") == 1
    assert sample(found, "notices_unseen") == 1
    assert sample(found, "outbox", state="dead") == 1
    assert sample(found, "outbox", state="waiting") == 0
    assert sample(found, "turns_total", state="done") == 1
    assert sample(found, "turns_open") == 0
    assert sample(found, "turn_seconds_count") == 2
    assert sample(found, "queue_seconds_count") == 2
    assert sample(found, "tool_calls_total", tool="look", outcome="ok") == 1
    kinds = {"input": 240.0, "output": 16.0, "cached": 60.0, "written": 40.0}
    for kind, count in kinds.items():
        assert sample(found, "tokens_total", vendor="scripted", model="one", kind=kind) == count
    assert sample(found, "money_dollars", state="spent") == 0
    assert found[("process_resident_memory_bytes", ())] > 1_000_000
    assert found[("process_cpu_seconds_total", ())] > 0


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The settings of each engine."""
    if request.param == "sqlite":
        yield {}
    else:
        with postgres_server().database() as url:
            yield {"store": {"url": url}}


@pytest.mark.promise("D4")
async def test_figures_are_those_of_a_constellation_on_both_engines(
    tmp_path: Path, store: dict[str, Any], clock: ManualClock
):
    def opened(constellation: str) -> AbstractAsyncContextManager[Asterism]:
        settings = {"constellation": constellation, "model": "demo:guide", **store}
        return Asterism.open(tmp_path, environ={}, settings=settings, work=False, clock=clock)

    totals = [
        ("ours", "2026-10", "all", 1_000_000_000, 5, 0),
        ("ours", "2026-11", "all", 2_500_000_000, 0, 7),
        ("ours", "2026-11-16", "all", 2_500_000_000, 0, 7),
        ("ours", "2026-11", "agent:x", 2_500_000_000, 0, 7),
        ("theirs", "2026-11", "all", 9_000_000_000, 0, 0),
    ]
    async with opened("theirs") as home:
        await home.agents.create("zed")
        await home.agents.send("zed", "Hi!")
    async with opened("ours") as home:
        before = await scraped(home)
        await home.agents.create("aria")
        await home.agents.delete((await home.agents.create("bo")).name)
        await home.agents.send("aria", "One")
        clock.forward(seconds=3)
        await home.agents.send("aria", "Two")
        clock.forward(seconds=4)
        await home.database.write(
            lambda tx: tx.run_many(
                "INSERT INTO totals (constellation, period, scope, spent, presumed, reserved)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                totals,
            )
        )
        found = await scraped(home)

    assert sample(before, "agents") == 0
    assert sample(before, "inbox_oldest_seconds") == 0
    assert sample(before, "money_dollars", state="spent") == 0
    assert sample(found, "agents") == 1
    assert sample(found, "inbox_waiting") == 2
    assert sample(found, "inbox_oldest_seconds") == 7
    assert sample(found, "money_dollars", state="spent") == 3.5
    assert sample(found, "money_dollars", state="presumed") == 5e-9
    assert sample(found, "money_dollars", state="reserved") == 7e-9


async def test_metrics_are_told_while_the_store_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from asterism.errors import StoreUnavailable

    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        await home.agents.ask("aria", "Hi!")

        async def gone(work: Any) -> Any:
            raise StoreUnavailable("The disk is gone.")

        monkeypatch.setattr(home.database, "read", gone)
        found = await scraped(home)
    assert sample(found, "store_up") == 0
    assert sample(found, "agents") is None
    assert sample(found, "turns_total", state="done") == 1


class Kept(logging.Handler):
    """Keeps each line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []
        self.addFilter(TurnFilter())
        self.setFormatter(JsonLines(("sk-very-secret",)))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(orjson.loads(self.format(record)))


@pytest.mark.promise("D4")
async def test_every_line_logged_in_a_turn_says_which(tmp_path: Path):
    def speak(request: ModelRequest) -> Reply:
        logging.getLogger("tests.model").warning("asked with sk-very-secret")
        return calls(("note", "{}"), ("shout", "{}")) if len(request.messages) < 3 else Reply("Hm.")

    kept = Kept()
    logging.getLogger("tests").addHandler(kept)
    try:
        async with open_home(tmp_path, ScriptedModel.from_rule(speak), tools=[note, shout]) as home:
            one = await home.agents.create("aria")
            two = await home.agents.create("bo")
            outcomes = await asyncio.gather(
                home.agents.ask(one, "Hi!"), home.agents.ask(two, "Hi!")
            )
        logging.getLogger("tests.after").warning("outside")
    finally:
        logging.getLogger("tests").removeHandler(kept)

    *inside, last = kept.lines
    assert "turn_id" not in last
    assert "agent_id" not in last
    assert not any("secret" in line["message"] for line in kept.lines)
    for outcome in outcomes:
        own = [line for line in inside if line["turn_id"] == outcome.turn_id]
        assert {line["agent_id"] for line in own} == {outcome.agent_id}
        assert sorted(line["logger"] for line in own) == [
            "tests.model",
            "tests.model",
            "tests.note",
            "tests.shout",
        ]
    assert len(inside) == 8


async def test_a_turn_that_another_one_sets_off_is_its_own(tmp_path: Path):
    where: list[Asterism] = []

    @tool(repeatable=True)
    async def tell(ctx: ToolContext) -> str:
        """Send a message to another agent."""
        await where[0].agents.send("bo", "Hi from aria!")
        return "told"

    with Collector() as collector:
        model = ScriptedModel.from_rule(
            lambda request: calls(("tell", "{}")) if len(request.messages) == 2 else "Well."
        )
        models: dict[str, Model] = {"loud": model, "quiet": ScriptedModel(["Hello."])}
        async with open_with(tmp_path, models, tools=[tell], settings=telling(collector)) as home:
            where.append(home)
            await home.agents.create("aria", model="loud:x")
            await home.agents.create("bo", model="quiet:y")
            await home.agents.ask("aria", "Tell bo!")

            async def both() -> bool:
                return len([t for t in await home.turns.list() if t.state is TurnState.DONE]) == 2

            await until(both)
        spans = collector.spans()
    aria, bo = named(spans, "invoke_agent aria"), named(spans, "invoke_agent bo")
    assert bo.parent == ""
    assert aria.trace != bo.trace
    assert [span.parent for span in spans if span.name == "chat y"] == [bo.id]


@pytest.mark.promise("D4")
async def test_a_request_is_a_span_named_after_its_route(tmp_path: Path):
    from tests.integration.test_api import served

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Collector() as collector:
        settings = telling(collector)
        async with open_home(tmp_path, settings=settings, work=False) as home:
            await home.agents.create("secret-name")
            async with served(home) as (url, secret), aiohttp.ClientSession() as client:
                headers = {"authorization": f"Bearer {secret}", "traceparent": parent}
                async with client.get(f"{url}/api/agents/secret-name", headers=headers) as answer:
                    assert answer.status == 200
                    request_id = answer.headers["x-request-id"]
        (span,) = collector.spans()
        sent = b"".join(body for _, _, body in collector.raw)
    assert span.name == "GET /api/agents/{agent}"
    assert span.attributes["http.route"] == "/api/agents/{agent}"
    assert span.attributes["http.response.status_code"] == 200
    assert span.attributes["asterism.request.id"] == request_id
    assert b"secret-name" not in sent
