"""What end-to-end tests share."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.e2e.command import Command, ModelServer


@pytest.fixture
def asterism(tmp_path: Path) -> Command:
    """The installed command on an empty directory."""
    return Command(tmp_path)


@pytest.fixture
def model() -> Generator[ModelServer, None, None]:
    """A model that answers at once."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def slow_model() -> Generator[ModelServer, None, None]:
    """A model that takes two seconds for each answer."""
    with ModelServer(latency=2.0) as server:
        yield server
