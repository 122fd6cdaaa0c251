"""One scenario of one system: `python -m bench.worker JOB`, where JOB is a JSON object."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from bench import harness
from bench.scenarios import SCENARIOS

SYSTEMS = {
    "floor": ("bench.floor", "Httpx"),
    "raw": ("bench.floor", "Raw"),
    "ours": ("bench.adapters.overhead", "A"),
}


def make_system(name: str, base_url: str, directory: Path) -> harness.Adapter:
    """Return a system under test, not open yet."""
    # The adapter works under any harness that offers a module of this name.
    sys.modules.setdefault("common", harness)
    module, attribute = SYSTEMS[name]
    made: harness.Adapter = getattr(importlib.import_module(module), attribute)(
        harness.Env(base_url, directory)
    )
    return made


def main() -> None:
    """Run the job and print its figures as one line of JSON."""
    job: dict[str, Any] = json.loads(sys.argv[1])
    system = make_system(job["system"], job["base_url"], Path(job["directory"]))
    scenario = SCENARIOS[job["scenario"]]

    async def run() -> dict[str, float]:
        return await scenario(system, job["options"])

    print(json.dumps(asyncio.run(run())))


if __name__ == "__main__":
    main()
