"""asterism for a harness that measures how well memory systems find what was said.

One `Memory` holds one conversation in a home of its own on disk, through the public names only. The
environment variable ASTERISM_ENCODER says how queries are encoded: `minilm`, `none`, or whatever
else `search.encoder` takes; unset, it is as by default.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from asterism import Agent, Asterism
from asterism.times import to_datetime
from asterism.types.agents import now_ms
from asterism.types.turns import PastMessage

T = TypeVar("T")
OWNER, AGENT = "user", "assistant"
"""How datasets name the owner of an agent, and the agent; other names are other people's."""


class Said(Protocol):
    """A message of a dataset."""

    @property
    def id(self) -> str:
        """The dataset's own id of it."""
        ...

    @property
    def speaker(self) -> str:
        """Who said it."""
        ...

    @property
    def text(self) -> str:
        """What was said."""
        ...

    @property
    def time(self) -> datetime:
        """When."""
        ...


class Talk(Protocol):
    """A session of a dataset: messages in order of time."""

    @property
    def messages(self) -> Sequence[Said]:
        """What was said."""
        ...


class Memory:
    """What one agent remembers, kept under a directory."""

    def __init__(
        self, workdir: Path | str, encoder: str | None = None, url: str | None = None
    ) -> None:
        """Open a home in a directory; `encoder` wins over ASTERISM_ENCODER.

        With the `url` of a PostgreSQL database, messages are stored there.
        """
        self.workdir = Path(workdir)
        self._url = url
        self._encoder = encoder or os.environ.get("ASTERISM_ENCODER") or None
        self._runner = asyncio.Runner()
        self._exit: AsyncExitStack | None = None
        self._now = 0
        self._last = 0
        self._own: dict[str, str] = {}
        """From the id of a message in the journal to the dataset's own."""
        self.run(self._open())

    @classmethod
    def warm(cls) -> None:
        """Load the libraries and weights that a first search loads."""
        import tempfile

        with tempfile.TemporaryDirectory(prefix="asterism-warm-") as place:
            memory = cls(place)
            memory.search("warm", 1)
            memory.close()

    def ingest(self, session: Talk) -> None:
        """Put a session's messages into the agent's past, in one transaction."""
        said = [one for one in session.messages if one.text.strip()]
        past: list[PastMessage] = []
        for one in said:
            # A clock that was set back must not keep a conversation out.
            self._last = max(self._last, milliseconds(one.time))
            speaker: str | None = one.speaker.strip()
            role = AGENT if speaker == AGENT and past else "user"
            if role == AGENT or speaker in (OWNER, ""):
                speaker = None
            past.append(PastMessage(role, one.text, speaker, to_datetime(self._last)))
        if past:
            self._now = max(self._now, self._last)
            imported = self.run(self.home.agents.import_messages(self.agent, past))
            self._own |= dict(zip(imported.messages, (one.id for one in said), strict=True))

    def finish(self) -> None:
        """Let the index catch up."""
        self.run(self.home.indexing.catch_up())

    def search(self, query: str, k: int, now: datetime | None = None) -> list[str]:
        """Return the dataset's ids of the messages that answer a query, the best first."""
        if now is not None:
            self._now = max(self._last, milliseconds(now))
        return self.run(self.find(query, k))

    async def find(self, query: str, k: int) -> list[str]:
        """Do the same, awaited there."""
        found = await self.home.search(self.agent, query, domains=("messages",), limit=k)
        return [self._own[hit.id] for hit in found.hits]

    def dataset_id(self, id: str) -> str:
        """Return the dataset's id of a message that has this id in the journal."""
        return self._own[id]

    def number_of(self, id: str) -> int:
        """Return the number in the journal of a message that has this id in the dataset."""
        return next(int(ours.partition("#")[2]) for ours, own in self._own.items() if own == id)

    def disk_bytes(self) -> int:
        """Return what all files take once everything is closed."""
        self.run(self._let_go())
        return sum(one.stat().st_size for one in self.workdir.rglob("*") if one.is_file())

    def close(self) -> None:
        """Let go of everything."""
        self.run(self._let_go())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop that the home is open on."""
        return self._runner.run(work)

    async def _open(self) -> None:
        settings: dict[str, object] = {"model": "none:none"}
        if self._encoder is not None:
            settings["search"] = {"encoder": self._encoder}
        if self._url is not None:
            settings["store"] = {"url": self._url}
        self._exit = AsyncExitStack()
        self.home: Asterism = await self._exit.enter_async_context(
            Asterism.open(
                self.workdir,
                environ={},
                settings=settings,
                # Nothing is answered here; the harness says when the index is to catch up.
                work=False,
                clock=lambda: self._now or now_ms(),
            )
        )
        self.agent: Agent = await self.home.agents.ensure("aria", tools=[])

    async def _let_go(self) -> None:
        if self._exit is not None:
            await self._exit.aclose()
            self._exit = None


def milliseconds(moment: datetime) -> int:
    """Return a moment as asterism tells time; one without a zone is of UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)


def raw_bytes(texts: Iterable[str]) -> int:
    """Return what texts take by themselves."""
    return sum(len(text.encode()) for text in texts)
