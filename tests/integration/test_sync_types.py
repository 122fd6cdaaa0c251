"""The types of a home without `await` are those of the classes, and both checkers know them."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from asterism import Asterism
from bench import sync_types
from tests import sync_script
from tests.scenes import obedient

if TYPE_CHECKING:
    from asterism.app.sync import SyncAsterism

SCRIPT = Path(sync_script.__file__)
CACHE = SCRIPT.parents[1] / ".mypy_cache"


def test_the_written_types_are_current() -> None:
    assert sync_types.FILE.read_text("utf-8") == sync_types.written(), (
        'Run "python -m bench.sync_types", and commit what it writes.'
    )


def test_the_script_whose_types_are_checked_runs(tmp_path: Path) -> None:
    options = {"models": {"scripted": obedient()}, "settings": {"model": "scripted:one"}}
    with Asterism.open_sync(tmp_path, environ={}, **options) as home:
        assert sync_script.talk(home) == "answer to: And now?"


@pytest.mark.promise("X5")
def test_mypy_sees_the_types_and_every_mistake(tmp_path: Path) -> None:
    # pyright checks the script in "make check", as it does all tests.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", CACHE, SCRIPT],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=tmp_path,
    )
    assert (done.stdout, done.returncode) == ("Success: no issues found in 1 source file\n", 0)


def test_everything_that_is_declared_is_there(tmp_path: Path) -> None:
    with Asterism.open_sync(tmp_path, environ={}) as home:
        for name in dir(cast("SyncAsterism", sync_types.Asterism)):
            if name[0] != "_" and name not in ("open", "connect", "open_sync", "connect_sync"):
                assert hasattr(home, name)
