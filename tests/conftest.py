"""What tests of all kinds share: where files lie, how long hypothesis looks, and a clock."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from asterism.telemetry.redaction import SECRETS, KnownSecrets
from asterism.testing.clock import ManualClock
from asterism.times import use_local_zone

Test = TypeVar("Test", bound=Callable[..., object])
TORTURE = os.environ.get("ASTERISM_TORTURE") == "1"
_TESTS = Path(__file__).parent

# How long an example takes depends on the machine, and says nothing about the example.
_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", parent=_ANY_SPEED, max_examples=40, derandomize=True)
settings.register_profile("torture", parent=_ANY_SPEED, max_examples=2_000)
settings.load_profile("torture" if TORTURE else "short")

# A disk takes milliseconds for each commit, and thousands are made. What is killed here are
# processes, never the machine, so that memory keeps as much of their files as a disk does.
_MEMORY, _ENOUGH = Path("/dev/shm"), 4 << 30
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

LONG = (
    "torture/test_every_write.py",
    "torture/test_concurrency.py",
    "torture/test_kill.py",
    "integration/test_embedded.py",
    "torture/test_state_machine.py",
    "integration/test_hostile_arguments.py",
    "conformance/test_travel.py",
    "conformance/test_hostile_queries.py",
    "conformance/test_search_engines.py",
    "integration/test_lanes_postgres.py",
    "integration/test_compaction.py",
    "integration/test_outbox_kill.py",
    "torture/test_budget_kill.py",
    "e2e/test_private_files.py",
    "e2e/test_cli_serve.py",
    "conformance/test_mcp.py",
)
"""Files of tests that take tens of seconds, the longest first."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let each worker begin with some of the long tests, so that none is left for the end."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    files: dict[str, list[pytest.Item]] = {name: [] for name in LONG}
    short: list[pytest.Item] = []
    for item in items:
        files.get(item.path.relative_to(_TESTS).as_posix(), short).append(item)
    # As it is split up: the first part is the first worker's, and others take from its end.
    shares = [
        [item for name in LONG[worker::workers] for item in files[name]]
        for worker in range(workers)
    ]
    size = -(-len(items) // workers)
    for share in shares:
        count = max(size - len(share), 0)
        share.extend(short[:count])
        del short[:count]
    items[:] = [item for share in shares for item in share] + short


def longer_in_torture(test: Test) -> Test:
    """Let `make torture` run a test too, for as long as its many examples take."""
    return pytest.mark.torture(pytest.mark.timeout(900)(test)) if TORTURE else test


def examples(few: int, many: int) -> Callable[[Test], Test]:
    """Try a property with a few examples, and with many in `make torture`."""
    tried = settings(max_examples=many if TORTURE else few)
    return lambda test: longer_in_torture(tried(test))


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture(autouse=True)
def _no_known_secrets() -> Iterator[None]:
    """Let each test begin without the keys of others: a process knows all that it ever saw."""
    with mock.patch.dict(vars(SECRETS), vars(KnownSecrets()), clear=True):
        yield


@pytest.fixture(autouse=True)
def _no_local_zone() -> Iterator[None]:
    """Let no test leave the time zone of a home that it opened in this process to the next."""
    yield
    use_local_zone(None)
