"""What `asterism doctor` says of MCP servers."""

from __future__ import annotations

import asyncio
import importlib.util
from typing import TYPE_CHECKING

from asterism.cli.finding import BAD, LOOK, OK, CheckResult
from asterism.cli.text import plural
from asterism.errors import AsterismError, Conflict, StoreMissing

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.cli.options import Options
    from asterism.config import Settings
    from asterism.tools.mcp.clients import McpServerStatus

_PATIENCE = 60.0


async def check_servers(
    options: Options, settings: Settings, *, offline: bool
) -> list[CheckResult]:
    """Ask each server for its tools; offline, say what is known of them."""
    if not settings.mcp:
        return []
    if importlib.util.find_spec("mcp") is None:
        remedy = "Install it with: pip install 'asterism[mcp]'."
        return [CheckResult("mcp", BAD, "servers are configured, but mcp is not installed", remedy)]
    from asterism.app import Asterism

    try:
        async with Asterism.open(options.data, config=options.config, readonly=True) as home:
            standings = home.mcp.list()
            return list(await asyncio.gather(*(_finding(home, one, offline) for one in standings)))
    except StoreMissing:
        said = f"{plural(len(settings.mcp), 'server')} configured, not asked yet"
        return [CheckResult("mcp", OK, said)]
    except AsterismError as error:
        return [CheckResult("mcp", BAD, error.message)]


async def _finding(home: Asterism, one: McpServerStatus, offline: bool) -> CheckResult:
    if not one.settings.enabled:
        return CheckResult("mcp", OK, f"{one.name}: off")
    if not offline:
        try:
            async with asyncio.timeout(_PATIENCE):
                one = await home.mcp.ask(one.name)
        except TimeoutError:
            return CheckResult("mcp", BAD, f"{one.name}: no answer within {_PATIENCE:g} s")
        except Conflict as error:
            return CheckResult("mcp", LOOK, error.message)
        except AsterismError as error:
            return CheckResult("mcp", BAD, error.message)
    if one.listing is None:
        return CheckResult("mcp", OK, f"{one.name}: not asked yet")
    said = f"{one.name}: {plural(one.offered, 'tool')}, protocol {one.listing.protocol}"
    refused = [offer for offer in one.tools if offer.refused and not offer.excluded]
    if not refused:
        return CheckResult("mcp", OK, said)
    remedy = f'"asterism mcp tools {one.name}" shows why.'
    return CheckResult("mcp", LOOK, f"{said}; {plural(len(refused), 'tool')} not offered", remedy)
