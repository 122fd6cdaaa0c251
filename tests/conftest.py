"""What tests of all kinds share: how long hypothesis looks, and a clock."""

import os

import pytest
from hypothesis import HealthCheck, settings

from asterism.testing.clock import ManualClock

TORTURE = os.environ.get("ASTERISM_TORTURE") == "1"

# How long an example takes depends on the machine, and says nothing about the example.
_ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("short", parent=_ANY_SPEED, max_examples=40, derandomize=True)
settings.register_profile("torture", parent=_ANY_SPEED, max_examples=2_000)
settings.load_profile("torture" if TORTURE else "short")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()
