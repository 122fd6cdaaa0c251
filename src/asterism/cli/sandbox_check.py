"""The doctor's look at the sandbox: which is in force, and what it cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from asterism.cli.finding import LOOK, OK, CheckResult

if TYPE_CHECKING:
    from asterism.config import Settings


async def check_sandbox(settings: Settings, place: Path) -> CheckResult:
    """Say which sandbox programs would run in, after trying it."""
    from asterism.tools.builtin.shell import Workspaces, sandbox_status

    found = await sandbox_status(Workspaces(place, lambda: settings))
    if found.problem:
        return CheckResult("sandbox", LOOK, found.problem, "Until then shell and own Python fail.")
    if found.kind == "unsandboxed":
        remedy = "Install bubblewrap, and take sandbox.allow_unsandboxed out of asterism.toml."
        return CheckResult("sandbox", LOOK, "Programs run with your rights.", remedy)
    limitations = "; ".join(found.limitations)
    return CheckResult("sandbox", OK, f"{found.kind}: {limitations}" if limitations else found.kind)
