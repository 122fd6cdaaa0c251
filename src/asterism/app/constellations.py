"""Constellations: those that a server serves beside its own, each with a home of its own."""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asterism.app.authentication import SECRET_FORM
from asterism.app.session import Session, note, shorten_text, verbs
from asterism.config import LiveSettings, Settings, load
from asterism.errors import AsterismError, InvalidInput, NotAllowed, NotFound
from asterism.permissions import Act
from asterism.records import dataclass
from asterism.store import agents
from asterism.store.database import Connection
from asterism.times import OptionalMoment
from asterism.types.memory import CONSTELLATION_DIRECTORIES

if TYPE_CHECKING:
    from asterism.app.engine import Engine

_log = logging.getLogger(__name__)

CONFIG_FILE = "asterism.toml"
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,100}")
_MAX_KNOWN = 100_000
INHERITED = (
    *("model", "timezone", "store", "models", "budget", "prices", "limits", "context", "memory"),
    *("search", "trust", "pipeline", "runtime", "api", "outbox", "cassette", "log", "telemetry"),
    *("secrets", "quotas", "alerts", "agent_messages"),
)
"""Settings of the server that count in every constellation which does not set them itself.

What leads to people and to the machine is not among them: channels, MCP servers, modules of tools,
folders, what the sandbox and the web tool let through, authorizations and contacts; nor, of the
alerts, where they are sent."""
_ALWAYS = frozenset({"store", "models", "runtime", "api", "cassette", "log"})
"""Of these, what is the process's, whatever a constellation sets."""


@dataclass(frozen=True, slots=True)
class Constellation:
    """A constellation of a server: agents that belong together, and that no other one sees."""

    name: str
    agents: int
    tokens: int
    """How many tokens for the HTTP API it has that were not revoked."""
    is_own: bool
    """Whether it is the server's own, whose owner can make others."""
    created_at_ms: int | None = None
    """When it was created; None for one that is known by what it holds."""

    created_at = OptionalMoment()


# -- rows ------------------------------------------------------------------------------------------

_THERE = (
    "SELECT name AS name FROM constellations UNION SELECT constellation FROM agents"
    " UNION SELECT constellation FROM tokens"
)


async def _put(tx: Connection, name: str, now: int) -> bool:
    changed = await tx.run(
        "INSERT INTO constellations (name, created_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
        (name, now),
    )
    return changed > 0


async def _list(tx: Connection, name: str | None = None) -> list[Constellation]:
    """Return all constellations of the database by name, or the one of a name."""
    condition = " WHERE t.name = ?" if name is not None else ""
    rows = await tx.all(
        "SELECT t.name,"
        " (SELECT COUNT(*) FROM agents a WHERE a.constellation = t.name AND a.kind = 'agent'"
        " AND a.deleted_at IS NULL),"
        " (SELECT COUNT(*) FROM tokens k WHERE k.constellation = t.name AND k.revoked_at IS NULL),"
        " (SELECT c.created_at FROM constellations c WHERE c.name = t.name)"
        f" FROM ({_THERE}) t{condition} ORDER BY t.name",
        (name,) if name is not None else (),
    )
    own = tx.constellation
    return [Constellation(row[0], row[1], row[2], row[0] == own, row[3]) for row in rows]


async def _with_open_work(tx: Connection) -> list[str]:
    """Return the constellations in which a message, a turn or a question waits."""
    rows = await tx.all(
        "SELECT DISTINCT constellation FROM agents WHERE id IN (SELECT agent_id FROM inbox"
        " UNION SELECT agent_id FROM turns WHERE ended_at IS NULL"
        " UNION SELECT agent_id FROM approvals WHERE decided_at IS NULL)"
    )
    return [row[0] for row in rows]


async def _of_secret(tx: Connection, number: str) -> str | None:
    """Return the constellation whose token or web session has a number."""
    row = await tx.one(
        "SELECT constellation FROM tokens WHERE id = ?"
        " UNION ALL SELECT constellation FROM web_sessions WHERE id = ?",
        (f"token_{number}", f"session_{number}"),
    )
    return row[0] if row else None


# -- settings --------------------------------------------------------------------------------------


def constellation_directory(data: Path, name: str) -> Path:
    """Return the data directory of a constellation that a server serves beside its own."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:40]
    # Different names never share a directory, whatever signs a file system takes for the same.
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return data / CONSTELLATION_DIRECTORIES / f"{readable}-{digest}".lstrip("-")


class ConstellationSettings(LiveSettings):
    """The settings of a constellation: its own file, and for the rest those of the server."""

    def __init__(
        self, server: LiveSettings, place: Path, name: str, environ: Mapping[str, str]
    ) -> None:
        """Load for the first time, and follow the settings of the server."""
        self._server = server
        # What is set by variables of the server is set for the server.
        plain = {key: value for key, value in environ.items() if not key.startswith("ASTERISM_")}
        super().__init__(place, None, plain, {"constellation": name}, check=server.check)
        server.subscribe(lambda _, __: self._follow())

    def _follow(self) -> None:
        self.reload()

    def _load(self) -> Settings:
        own = load(self._data, self._named, self._environ, self._overrides, check=self.check)
        server = self._server.current
        taken = {
            name: getattr(server, name)
            for name in INHERITED
            if name in _ALWAYS or name not in own.model_fields_set
        }
        if "alerts" in taken:
            taken["alerts"] = server.alerts.model_copy(update={"channel": None, "to": ""})
        # A tenant may have less than the server allows, and not more.
        caps = [each.quotas.agents for each in (own, server) if each.quotas.agents is not None]
        taken["quotas"] = server.quotas.model_copy(update={"agents": min(caps, default=None)})
        merged = own.model_copy(update=taken)
        merged.take_usual_model(server)
        return merged


# -- the homes of a process ------------------------------------------------------------------------


class ConstellationRegistry:
    """The constellations of a server: each is opened when it is first needed."""

    def __init__(
        self, engine: Engine, home: Any, open_home: Callable[[str], Awaitable[tuple[Any, Engine]]]
    ) -> None:
        """Make it.

        Args:
            engine: The engine of the server's own constellation.
            home: The home of the server's own constellation.
            open_home: Opens another one; returns its home and its engine.
        """
        self._engine = engine
        self._own = engine.database.constellation
        self._open_home = open_home
        self._opened: dict[str, tuple[Any, Engine]] = {self._own: (home, engine)}
        self._opening: dict[str, asyncio.Task[tuple[Any, Engine]]] = {}
        self._of_agent: OrderedDict[str, str] = OrderedDict()
        self._of_secret: OrderedDict[str, str] = OrderedDict()
        self._closed = False

    # -- which -----------------------------------------------------------------------------------

    async def home_of_secret(self, secret: str) -> Any:
        """Return the home to which a token or a session belongs; the server's own if to none."""
        match = SECRET_FORM.fullmatch(secret)
        if match is None:
            return self._opened[self._own][0]
        name = self._of_secret.get(match[1])
        if name is None:
            number = match[1]
            name = await self._engine.database.read(lambda tx: _of_secret(tx, number))
            if name is None:
                return self._opened[self._own][0]
            _remember(self._of_secret, number, name)
        return await self.home(name)

    async def engine_of_agent(self, agent_id: str) -> Engine:
        """Return the engine of the constellation that an agent belongs to."""
        engine = self._engine
        if engine.runtime.loaded_agent(agent_id) is not None:
            return engine
        name = self._of_agent.get(agent_id)
        if name is None:
            found = await engine.database.read(lambda tx: agents.constellation_of(tx, agent_id))
            name = found or self._own
            if found is not None:
                _remember(self._of_agent, agent_id, name)
        return engine if name == self._own else (await self._get(name))[1]

    async def home(self, name: str) -> Any:
        """Return the home of a constellation, which is opened if it is not open yet."""
        return (await self._get(name))[0]

    async def _get(self, name: str) -> tuple[Any, Engine]:
        opened = self._opened.get(name)
        if opened is not None:
            return opened
        task = self._opening.get(name)
        if task is None:
            task = self._opening[name] = asyncio.create_task(self._open(name))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def _open(self, name: str) -> tuple[Any, Engine]:
        try:
            if self._closed:
                raise NotFound(f"The constellation {name!r} is not open any more.")
            opened = self._opened[name] = await self._open_home(name)
            return opened
        finally:
            del self._opening[name]

    # -- life ------------------------------------------------------------------------------------

    def others(self) -> list[Any]:
        """Return the homes that are open beside the server's own."""
        return [home for name, (home, _) in self._opened.items() if name != self._own]

    async def open_busy(self) -> None:
        """Open the constellations that have open work, or a configuration file of their own."""
        engine = self._engine
        names = set(await engine.database.read(_with_open_work))
        data = engine.session.data
        if await asyncio.to_thread((data / CONSTELLATION_DIRECTORIES).is_dir):
            for there in await engine.database.read(_list):
                file = constellation_directory(data, there.name) / CONFIG_FILE
                if await asyncio.to_thread(file.exists):
                    names.add(there.name)
        for name in sorted(names - {self._own}):
            try:
                await self.home(name)
            except AsterismError as error:
                _log.warning("the constellation %s cannot be opened: %s", name, error.message)

    async def settle(self) -> list[Any]:
        """Open nothing more; return the homes that are open beside the server's own."""
        self._closed = True
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        return self.others()


def _remember(known: OrderedDict[str, str], key: str, name: str) -> None:
    known[key] = name
    while len(known) > _MAX_KNOWN:
        known.popitem(last=False)


@verbs("constellation", list=Act.GOVERN, get=Act.GOVERN, ensure=Act.GOVERN)
class Constellations:
    """The constellations of a server, for the owner of its own: `home.constellations`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self) -> builtins.list[Constellation]:
        """Return all constellations of the database, by name."""
        self._check_owner()
        found = await self._session.database.read(_list)
        own = self._session.database.constellation
        if all(there.name != own for there in found):
            found.append(Constellation(own, 0, 0, is_own=True))
        return sorted(found, key=lambda there: there.name)

    async def get(self, name: str) -> Constellation:
        """Return a constellation by its name."""
        found = [there for there in await self.list() if there.name == name]
        if not found:
            raise NotFound(
                f"There is no constellation {shorten_text(name)!r}. "
                '"asterism constellation list" shows all. Nothing was changed.'
            )
        return found[0]

    async def ensure(self, name: str, *, by: str = "api") -> Constellation:
        """Return the constellation of a name; create it if there is none."""
        self._check_owner()
        name = _checked(name)
        session, now = self._session, self._session.clock()

        async def work(tx: Connection) -> None:
            there = await _list(tx, name)
            if (not there or there[0].created_at_ms is None) and await _put(tx, name, now):
                await note(tx, session, "constellation.created", by=by, what=name)

        await session.database.write(work)
        return await self.get(name)

    def _check_owner(self) -> None:
        """Raise `NotAllowed` unless it is the owner who acts."""
        if not self._session.is_owner or self._session.is_guest:
            raise NotAllowed(
                "Only the owner of the server's own constellation may see and make others. "
                "Nothing was changed."
            )


def _checked(name: str) -> str:
    name = name.strip()
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"{shorten_text(name, 40)!r} cannot name a constellation: a name has 1 to 100 "
            "characters on one line. Nothing was created."
        )
    return name
