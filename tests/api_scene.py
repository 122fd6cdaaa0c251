"""The API of a home as a client sees it, without a network in between."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx

from asterism import Asterism
from asterism.api.server import HttpApplication


@asynccontextmanager
async def api_client(
    home: Asterism, role: str | None = "owner"
) -> AsyncGenerator[httpx.AsyncClient, None]:
    """A client of the API with a token of a role, or without any."""
    headers: dict[str, str] = {}
    if role is not None:
        secret = (await home.tokens.create(f"test-{role}", role=role)).secret
        headers["authorization"] = f"Bearer {secret}"
    transport = httpx.ASGITransport(cast("Any", HttpApplication(home)))
    async with httpx.AsyncClient(
        transport=transport, base_url="http://home", headers=headers
    ) as client:
        yield client


def events(text: str) -> list[dict[str, str]]:
    """The server-sent events of a body, each by its fields."""
    blocks = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    return [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
