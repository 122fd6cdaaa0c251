"""What end-to-end tests share."""

from collections.abc import Generator
from pathlib import Path

import pytest

from asterism.testing.openai_server import Fault
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
def stalled_model() -> Generator[ModelServer, None, None]:
    """A model whose first answer stops in the middle and never ends; the others come at once."""
    with ModelServer() as server:
        server.next(Fault.STALL)
        yield server
