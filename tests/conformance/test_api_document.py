"""The API against its own OpenAPI document: requests made up from it, with a fixed seed."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from asterism import Asterism
from asterism.api.server import Server, bind
from tests.scenes import open_home

pytest.importorskip("schemathesis")

_PROGRAM = str(Path(sys.executable).with_name("schemathesis"))
_SLOW = "events|stream|fork|tokens/"
"""Paths whose answers do not end, that ask a model again, or that end the token in use."""


@asynccontextmanager
async def served(home: Asterism) -> AsyncGenerator[str, None]:
    async with Server(home, bind("127.0.0.1", 0), tuple) as server:
        yield server.url


@pytest.mark.promise("A1")
@pytest.mark.timeout(400)
async def test_made_up_requests_are_answered_as_the_document_says(tmp_path: Path):
    examples = "50" if os.environ.get("ASTERISM_TORTURE") else "3"
    async with open_home(tmp_path / "home") as home, served(home) as url:
        aria = await home.agents.create("aria")
        await aria.ask("hello")
        token = (await home.tokens.create("tester")).secret
        process = await asyncio.create_subprocess_exec(
            *(_PROGRAM, "run", f"{url}/api/openapi.json"),
            # Who guesses tokens is soon told to wait (429), where that check expects 401.
            *("--seed", "1", "--max-examples", examples, "--checks", "all"),
            *("--exclude-checks", "ignored_auth"),
            *("--phases", "coverage,fuzzing", "--exclude-path-regex", _SLOW),
            *("--header", f"Authorization: Bearer {token}", "--request-timeout", "20"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )
        output, _ = await process.communicate()
    said = output.decode()
    found = re.findall(r"❌ (ST.+)", said)
    assert process.returncode == 0, f"{found}\n{said[-6_000:]}"
    shutil.rmtree(Path(__file__).parents[2] / ".schemathesis", ignore_errors=True)
