"""What end-to-end tests share."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.e2e.command import Command, Installed, ModelServer
from tests.servers.openai_server import Fault


@pytest.fixture
def asterism(tmp_path: Path) -> Command:
    """The command on an empty directory, within this process."""
    return Command(tmp_path)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    """The installed command on the same directory, as a process of its own."""
    return Installed(tmp_path)


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
