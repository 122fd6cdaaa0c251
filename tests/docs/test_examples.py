"""Every example runs as a stranger would run it: offline, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SAYS = {
    "approval.py": "Paid 5 euros to Ada.",
    "hello.py": "aria has answered 2 messages.",
    "tools.py": "Sent to Ada.",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
@pytest.mark.promise("D1")
def test_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert SAYS[example.name] in done.stdout
    assert done.stderr == ""
