"""A client speaks to a server that is no home, or that means it harm."""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from asterism import Asterism
from asterism.errors import HomeLost


@asynccontextmanager
async def answering(frame: dict[str, Any]) -> AsyncGenerator[str, None]:
    """Give the address of a server that answers every call with this."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=orjson.dumps(frame) + b"\n")

    app = web.Application()
    app.router.add_post("/api/call", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.promise("X1")
@pytest.mark.parametrize(
    "error",
    [
        {"!": "planted.X", "reason": "x", "outcome": "", "notes": []},
        {"!": "asterism.types.agents.Trust", "reason": "x", "outcome": "", "notes": []},
        {"!": "asterism.errors.NotFound"},
        {},
        "no",
    ],
)
async def test_no_answer_has_a_module_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any
):
    (tmp_path / "planted.py").write_text("raise SystemExit('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    async with answering({"error": error}) as url:
        with pytest.raises(HomeLost, match="not an answer of a home"):
            async with Asterism.connect(url, "ast_x"):
                pass
    assert "planted" not in sys.modules
