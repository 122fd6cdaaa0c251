"""The verbs about the audit log: read, verify and export it."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from asterism.app.session import Session, first_visible, verbs
from asterism.errors import InvalidInput, NotFound
from asterism.permissions import Act
from asterism.records import dataclass
from asterism.store import agents, events
from asterism.store.database import Connection, Row
from asterism.store.events import Flaw, RecordedEvent, Verified, home_chain, is_home, verify
from asterism.types.agents import OWNER, AgentRecord, optional_ms
from asterism.types.permissions import EffectKind

HOME = "home"
"""How the home's chain is called where a person names one."""
_PAGE = 1_000
_MAX_DIGITS = 18
_MAX_REF_LENGTH = 80
COLUMNS = (
    *("chain", "number", "at", "kind", "actor", "agent_id", "turn_id", "body", "salt"),
    *("digest", "hash"),
)


VERDICTS = ("allowed", "denied", "asked")
"""How a call is judged; of several that are noted of one call, the last here counts."""


@dataclass(frozen=True, slots=True)
class Autonomy:
    """How far agents acted alone: calls with an effect outside, by tool and by how they went."""

    tools: Mapping[str, Mapping[str, int]]
    """By tool, how many calls were `allowed` without asking, `asked` of a person or `denied`."""
    forgotten: int
    """Events about calls whose content was forgotten; these calls are not counted."""

    def total(self, verdict: str) -> int:
        """Return how many calls of all tools went so."""
        return sum(counts[verdict] for counts in self.tools.values())


@verbs(
    "audit",
    list=Act.READ,
    get=Act.READ,
    names=Act.READ,
    autonomy=Act.READ,
    verify=Act.READ,
    export=Act.READ,
    anchor=Act.APPEND,
)
class Audit:
    """The audit log: each event is written in the transaction of its effect and never changed."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(
        self,
        *,
        agent: AgentRecord | str | None = None,
        kind: str | None = None,
        actor: str | None = None,
        turn: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        before: RecordedEvent | None = None,
    ) -> list[RecordedEvent]:
        """Return events, the newest first.

        Args:
            agent: Only those of an agent.
            kind: Only those of a kind, such as `call.denied`, or all of a thing, such as `call`.
            actor: Only what this one did, such as `owner`.
            turn: Only those of a turn.
            since: The first moment.
            until: The last one.
            limit: How many at most.
            before: The last event of the page before.
        """
        agent_id = await self._session.agent_id(agent) if agent is not None else None
        place = (before.at_ms, before.chain, before.number) if before is not None else None

        async def read(tx: Connection) -> list[RecordedEvent]:
            async def page(most: int) -> list[RecordedEvent]:
                return await events.page(
                    tx,
                    agent_id=agent_id,
                    kind=kind,
                    actor=actor,
                    turn_id=turn,
                    since=optional_ms(since),
                    until=optional_ms(until),
                    limit=most,
                    before=place,
                )

            return await first_visible(page, lambda entries: self._visible(tx, entries), limit)

        return await self._session.database.read(read)

    async def _visible(
        self, tx: Connection, entries: Sequence[RecordedEvent]
    ) -> list[RecordedEvent]:
        """Return the events that the actor may see: of turns they see, and their own."""
        session = self._session
        entries = [entry for entry in entries if self._is_of(entry.agent_id, entry.chain)]
        if session.sees_every_audience:
            return entries
        visible = await session.visible_turns(tx, [entry.turn_id for entry in entries])
        me = str(self._session.actor)
        return [entry for entry in entries if entry.turn_id in visible or entry.actor == me]

    def _is_of(self, agent_id: str | None, chain: str) -> bool:
        """Tell whether an event is about an agent that exists for the actor, or all agents do."""
        session = self._session
        return session.sees_agent(agent_id or chain)

    async def autonomy(
        self,
        *,
        agent: AgentRecord | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Autonomy:
        """Return how many calls with an effect outside ran without asking, were asked or denied.

        Args:
            agent: Only those of an agent.
            since: The first moment.
            until: The last one.
        """
        calls: dict[tuple[str | None, str], tuple[str, str]] = {}
        forgotten, before = 0, None
        while True:
            page = await self.list(
                agent=agent, kind="call", since=since, until=until, limit=_PAGE, before=before
            )
            for event in page:
                if event.body is None:
                    forgotten += 1
                elif event.body.get("verdict") in VERDICTS and _is_outside(event.body):
                    # Of a call that was asked for and then run, the first counts.
                    place = (event.turn_id, str(event.body["key"]).removesuffix("/outcome"))
                    former = calls.get(place, (_words_of(event.body, "what"), "allowed"))[1]
                    verdict = max(former, event.body["verdict"], key=VERDICTS.index)
                    calls[place] = (_words_of(event.body, "what"), verdict)
            if len(page) < _PAGE:
                break
            before = page[-1]
        tools: dict[str, dict[str, int]] = {}
        for tool, verdict in calls.values():
            counts = tools.setdefault(tool, dict.fromkeys(VERDICTS, 0))
            counts[verdict] += 1
        return Autonomy(dict(sorted(tools.items())), forgotten)

    async def get(self, ref: str) -> RecordedEvent:
        """Return one event, named as CHAIN:NUMBER: `home:12`, or an agent's name or id and 12."""
        name, number = _place_of(ref)
        chain = await self._chain(name)

        async def read(tx: Connection) -> list[RecordedEvent]:
            event = await events.get(tx, chain, number)
            return await self._visible(tx, [event] if event is not None else [])

        visible = await self._session.database.read(read)
        if not visible:
            raise NotFound(
                f'There is no event {ref!r}. "asterism audit list" shows the latest ones.'
            )
        return visible[0]

    async def _chain(self, name: str) -> str:
        if name == HOME or is_home(name):
            return home_chain(self._session.database.constellation)
        if name.startswith("agent_"):
            return name
        return (await self._session.agent(name)).id

    async def names(self) -> dict[str, str]:
        """Return how each chain of this home is called: `home`, or an agent's name."""

        async def read(tx: Connection) -> dict[str, str]:
            there = await events.chains_of(tx)
            chains = {there[0]: HOME}
            for chain in there[1:]:
                if not self._session.sees_agent(chain):
                    continue
                agent = await agents.by_id(tx, chain)
                chains[chain] = agent.name if agent is not None else chain
            return chains

        return await self._session.database.read(read)

    async def verify(
        self, *, head: str | None = None, progress: Callable[[int], None] | None = None
    ) -> Verified:
        """Check all chains, and return every event that is not as it was written.

        In a constellation that a server serves beside its own, its own chains are checked.

        Args:
            head: An event that was written down elsewhere, as CHAIN:NUMBER:HASH; it must be there.
            progress: Hears how many events were looked at.
        """
        result = await verify(self._session.database, progress, own=self._session.is_guest)
        if head is not None:
            ref, _, wanted = head.rpartition(":")
            name, number = _place_of(ref)
            known = await self._hash_at(name, number)
            if len(wanted) < 8 or not known.startswith(wanted.lower()):
                problem = "it is not the event that was written down elsewhere"
                result.flaws.append(Flaw(name, number, problem))
        return result

    async def _visible_rows(self, rows: Sequence[Row]) -> Sequence[Row]:
        of, chain = COLUMNS.index("agent_id"), COLUMNS.index("chain")
        rows = [row for row in rows if self._is_of(row[of], row[chain])]
        if self._session.sees_every_audience:
            return rows
        place, by = COLUMNS.index("turn_id"), COLUMNS.index("actor")
        visible = await self._session.database.read(
            lambda tx: self._session.visible_turns(tx, [row[place] for row in rows])
        )
        me = str(self._session.actor)
        return [row for row in rows if row[place] in visible or row[by] == me]

    async def _hash_at(self, name: str, number: int) -> str:
        """Return the hash of an event, which does not show its text; "" if it does not exist."""
        chain = await self._chain(name)
        event = await self._session.database.read(lambda tx: events.get(tx, chain, number))
        return event.hash.hex() if event is not None else ""

    async def anchor(self) -> int:
        """Write into the home's chain how far the agents' chains have come; return how many."""
        now = self._session.clock()
        return await self._session.database.write(lambda tx: events.anchor(tx, now))

    async def export(self, form: str = "jsonl") -> AsyncGenerator[str, None]:
        """Yield the whole log chain by chain as lines of JSON, or of CSV below a heading."""
        chains = await self._session.database.read(events.chains_of)
        if form == "csv":
            yield ",".join(COLUMNS) + "\n"
        line = _csv if form == "csv" else _jsonl
        for chain in chains:
            after = 0
            while True:
                rows = await self._session.database.read(
                    lambda tx, chain=chain, after=after: events.following(tx, chain, after, _PAGE)
                )
                for row in await self._visible_rows(rows):
                    yield line(row)
                if len(rows) < _PAGE:
                    break
                after = rows[-1][1]


def _place_of(ref: str) -> tuple[str, int]:
    """Return chain and number of an event that is named as CHAIN:NUMBER."""
    name, _, digits = ref.rpartition(":")
    # Python reads no number of thousands of digits, and no store keeps one of twenty.
    if not name or not digits.isdecimal() or len(digits) > _MAX_DIGITS:
        shown = ref if len(ref) <= _MAX_REF_LENGTH else f"{ref[:_MAX_REF_LENGTH]}…"
        raise InvalidInput(
            f"{shown!r} names no event. Write CHAIN:NUMBER, such as home:12 or aria:3; "
            '"asterism audit list" shows them.'
        )
    return name, int(digits)


def _words_of(body: Mapping[str, Any], name: str) -> str:
    return str(body.get(name) or "")


def _is_outside(body: Mapping[str, Any]) -> bool:
    """Tell whether a judged call would have done something outside of the agent and its owner."""
    effects: list[str] = [str(effect) for effect in body.get("effects") or ()]
    kinds = [
        effect.partition(" ")[0] for effect in effects if effect != f"{EffectKind.SEND} {OWNER}"
    ]
    return any(kind in tuple(EffectKind) and EffectKind(kind).outside for kind in kinds)


def _plain(row: Row) -> list[Any]:
    """Return the columns of an event as text and numbers: a body as it is, other bytes in hex."""
    *facts, body, salt, digest, own = row
    return [
        *facts,
        bytes(body).decode() if body is not None else None,
        bytes(salt).hex() if salt is not None else None,
        bytes(digest).hex(),
        bytes(own).hex(),
    ]


def _jsonl(row: Row) -> str:
    return orjson.dumps(dict(zip(COLUMNS, _plain(row), strict=True))).decode() + "\n"


def _csv(row: Row) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow(_plain(row))
    return out.getvalue()
