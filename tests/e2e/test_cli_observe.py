"""What a process that serves tells about itself, and what it writes to its log."""

import json
import time
import urllib.request
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.command import PATIENCE, Command, Installed, ModelServer
from tests.e2e.test_cli_serve import url_of
from tests.servers.collector import Collector

TOOLS = """
import os
from asterism import ToolContext, tool

@tool(repeatable=True)
async def burst(ctx: ToolContext) -> str:
    "Fail in a way that nobody has thought of."
    raise ValueError("out of " + os.environ["SOME_API_KEY"])
"""


def metrics(url: str) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as answer:
        assert answer.status == 200
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["cache-control"] == "no-store"
        text = answer.read().decode()
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def log_of(asterism: Command) -> list[dict[str, Any]]:
    text = (asterism.data / "asterism.log").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.promise("D4", "O4")
def test_serve_tells_prometheus_how_it_goes(asterism: Command, stalled_model: ModelServer):
    asterism.use(stalled_model)
    with asterism.started("chat", "--once", "hi") as process:
        stalled_model.wait_until_asked()
        process.kill()
        process.wait()
    with asterism.started("serve", "--port", "0") as server:
        url = url_of(server)
        # The figures at rest are read a moment before the counts, so one page may show both sides.
        deadline = time.monotonic() + PATIENCE
        while True:
            found = metrics(url)
            if ("asterism_turns_total", "done") in found and not found["asterism_inbox_waiting",]:
                break
            assert server.poll() is None
            assert time.monotonic() < deadline, found
    assert found[("asterism_turns_total", "done")] == 1
    assert found[("asterism_model_calls_total", "m", "ok", "local")] == 1
    assert found[("asterism_store_up",)] == 1
    assert found[("asterism_agents",)] == 1
    assert found[("process_resident_memory_bytes",)] > 0


@pytest.mark.promise("D4")
def test_lines_of_the_log_are_json_with_the_turn_and_without_keys(
    asterism: Command, model: ModelServer
):
    asterism.use(model, '[log]\nformat = "json"\n[tools]\nmodules = ["burst.py"]')
    (asterism.data / "burst.py").write_text(TOOLS, encoding="utf-8")
    asterism.env["SOME_API_KEY"] = "sk-do-not-write-me"
    asterism.ok("chat", "--once", "[[call:burst {}]]")

    (turn,) = asterism.json("turn", "list")
    (line,) = log_of(asterism)
    assert line["message"] == "tool burst failed"
    assert line["level"] == "warning"
    assert line["turn_id"] == turn["id"]
    assert line["agent_id"].startswith("agent_")
    assert line["error"] == "ValueError"
    assert "out of …" in line["traceback"]
    assert "[[call" not in (asterism.data / "asterism.log").read_text("utf-8")


def test_lines_of_the_log_are_text_unless_told_otherwise(asterism: Command, model: ModelServer):
    asterism.use(model, '[tools]\nmodules = ["burst.py"]')
    (asterism.data / "burst.py").write_text(TOOLS, encoding="utf-8")
    asterism.env["SOME_API_KEY"] = "sk-do-not-write-me"
    asterism.ok("chat", "--once", "[[call:burst {}]]")

    (turn,) = asterism.json("turn", "list")
    text = (asterism.data / "asterism.log").read_text("utf-8")
    assert f"[{turn['id']} agent_" in text.splitlines()[0]
    assert text.splitlines()[0].endswith("tool burst failed")
    assert "sk-do-not-write-me" not in text


@pytest.mark.promise("D4")
def test_a_command_sends_what_is_left_before_it_ends(installed: Installed, model: ModelServer):
    with Collector() as collector:
        installed.use(model, f'[telemetry]\nendpoint = "{collector.url}"')
        assert installed.ok("chat", "--once", "hi") == "answer to: hi\n"
        names = [span.name for span in collector.spans()]
    assert names[-1].startswith("invoke_agent ")
    assert "chat m" in names


@pytest.mark.promise("D4", "X5")
def test_a_mistake_in_the_table_is_told(installed: Installed):
    installed.configure(
        '[telemetry]\nendpoint = "localhost:4318"\nsample = 2\n[log]\nformat = "xml"\n'
    )
    done = installed.run("serve", "--port", "0")
    assert done.returncode == 1
    assert "telemetry.endpoint is" in done.stderr
    assert "http://127.0.0.1:4318" in done.stderr
    assert "telemetry.sample is 2; a number from 0 to 1 is needed" in done.stderr
    assert 'log.format is "xml"; "text" or "json" is needed' in done.stderr
