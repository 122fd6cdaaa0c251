"""Alerts: what is wrong with a home, found by itself and told once for each cause.

Each process that takes turns looks now and then. A cause that is found for the first time becomes a
row, a notice and an event in one transaction, so that of several processes one tells of it. It ends
when no process has found it for a while, and is told again only if it comes back long after.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from asterism.app.session import Session, note, verbs
from asterism.app.spending import standings
from asterism.errors import AsterismError, DeliveryError
from asterism.permissions import Act
from asterism.records import dataclass
from asterism.store import agents, approvals, events
from asterism.store.database import Connection
from asterism.times import HOUR, Moment, OptionalMoment
from asterism.turns.lanes import Pump
from asterism.types.agents import new_id
from asterism.types.turns import Delivery, Notice

if TYPE_CHECKING:
    from asterism.app.engine import Engine
    from asterism.config import Settings

_log = logging.getLogger(__name__)

_MAX_ATTEMPTS = 8
_ROUNDS = 3
"""An alert ends when nobody has found its cause in so many rounds."""
_AGAIN_AFTER = HOUR
"""A cause that comes back sooner is the same alert, of which people know."""
_COLUMNS = "cause, text, since, told_at, id, attempts"


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that is wrong with the home now."""

    cause: str
    """What it is about, such as `disk`, `deliveries` or `model:openai`."""
    text: str
    since_ms: int
    told_at_ms: int | None
    """When a channel has taken it; None: it has not, or none is configured."""

    since = Moment()
    told_at = OptionalMoment()


@verbs("alert", list=Act.READ)
class Alerts:
    """What is wrong with the home now."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def list(self) -> builtins.list[Alert]:
        """Return the alerts that have not ended, the oldest first; they are for the owner."""
        if not self._session.sees_every_audience or self._session.only_agents is not None:
            return []
        return [alert for alert, _, _ in await self._session.database.read(open_alerts)]


async def open_alerts(tx: Connection) -> list[tuple[Alert, str, int]]:
    """Return the alerts that have not ended, each with its id and how often it was sent."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM alerts WHERE constellation = ? AND ended_at IS NULL"
        " ORDER BY since, cause",
        (tx.constellation,),
    )
    return [
        (Alert(cause, text, since, told_at), alert_id, attempts)
        for cause, text, since, told_at, alert_id, attempts in rows
    ]


# -- looking ---------------------------------------------------------------------------------------


class AlertWatch:
    """Looks for what is wrong, and tells of it."""

    def __init__(self, engine: Engine, data: Path) -> None:
        """Make it; it works from `start` on."""
        self._engine = engine
        self._data = data
        self._pump = Pump("alerts", self._work, engine.clock)
        self._due: int | None = None

    def start(self) -> None:
        """Begin."""
        self._pump.start()

    async def stop(self) -> None:
        """Stop."""
        await self._pump.stop()

    async def _work(self) -> int:
        every = int(self._engine.settings.alerts.every * 1000)
        now = self._engine.clock()
        # The first look comes after a while: what was interrupted gets its chance to recover.
        if self._due is not None and now >= self._due:
            await self.look()
        elif self._due is not None:
            return self._due
        self._due = self._engine.clock() + every
        return self._due

    async def look(self) -> None:
        """Find what is wrong, note what is new or over, and tell people."""
        engine = self._engine
        settings, now = engine.settings, engine.clock()
        breakers = engine.models.breakers()
        free = await asyncio.to_thread(_free_percent, self._data)
        found = await engine.database.read(
            lambda tx: find_causes(tx, settings, now, breakers=breakers, free=free)
        )
        silent = now - int(settings.alerts.every * 1000) * _ROUNDS
        await engine.database.write(lambda tx: _keep(tx, engine.session, found, now, silent))
        if settings.alerts.channel is not None:
            async with engine.database.alone("alerts"):
                for alert, alert_id, attempts in await engine.database.read(open_alerts):
                    if alert.told_at_ms is None and attempts < _MAX_ATTEMPTS:
                        await self._tell(alert, alert_id, attempts + 1)

    async def _tell(self, alert: Alert, alert_id: str, attempts: int) -> None:
        """Send an alert; if that fails, it is tried again at the next look."""
        engine = self._engine
        channel, target = engine.settings.alerts.channel, engine.settings.alerts.to
        assert channel is not None
        about = events.home_chain(engine.database.constellation)
        delivery = Delivery(alert_id, about, "", channel, target, alert.text, attempts)
        told: int | None = None
        try:
            await engine.channels.get(channel).deliver(delivery)
            told = engine.clock()
        except AsterismError as error:
            _log.warning("an alert could not be sent to %s: %s", channel, error.message)
            if isinstance(error, DeliveryError) and error.final:
                attempts = _MAX_ATTEMPTS

        async def record(tx: Connection) -> None:
            await tx.run(
                "UPDATE alerts SET told_at = ?, attempts = ? WHERE constellation = ? AND id = ?",
                (told, attempts, tx.constellation, alert_id),
            )

        await engine.database.write(record)


async def find_causes(
    tx: Connection,
    settings: Settings,
    now: int,
    *,
    breakers: Mapping[str, bool],
    free: float | None,
) -> dict[str, str]:
    """Return what is wrong now: each cause with a sentence for people.

    Args:
        tx: A transaction.
        settings: Where the limits are.
        now: Milliseconds since 1970.
        breakers: Whether a vendor of models is left alone since it fails, by vendor.
        free: How much of the disk is free, in percent; None if that is not known.
    """
    limits = settings.alerts
    found: dict[str, str] = {}
    dead = (await events.read(tx)).deliveries.get("dead", 0)
    if dead:
        found["deliveries"] = (
            f"{'1 delivery was' if dead == 1 else f'{dead:,} deliveries were'} given up. "
            '"asterism outbox list --state dead" shows them, "asterism outbox retry" tries again.'
        )
    for vendor, is_open in breakers.items():
        if is_open:
            found[f"model:{vendor}"] = (
                f"The model server of {vendor!r} fails again and again and is left alone for a "
                'while. "asterism model test" shows what it says.'
            )
    waiting = await approvals.waiting(tx)
    late = [approval for approval in waiting if now - approval.asked_at_ms > limits.approval_age_ms]
    if late:
        questions = "1 question has" if len(late) == 1 else f"{len(late):,} questions have"
        found["approvals"] = (
            f"{questions} waited for an answer for more than "
            f'{limits.approval_age}. "asterism approval list" shows them.'
        )
    if free is not None and free < limits.disk_free:
        found["disk"] = (
            f"{free:.1f} % of the disk with the data are free, less than {limits.disk_free:g} %. "
            "Free some space: without any, nothing can be stored."
        )
    found |= await _budgets(tx, settings, now)
    found |= await _backups(tx, settings, now)
    return found


async def _budgets(tx: Connection, settings: Settings, now: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for standing in await standings(tx, settings, now):
        cap, used = standing.cap, standing.total.counted
        if not cap.amount:
            continue
        percent = 100 * used / cap.amount
        reached = next((step for step in (100, settings.alerts.budget) if percent >= step), None)
        if reached is not None:
            # Each day and month is a cause of its own.
            cause = f"budget:{cap.setting}:{reached:g}:{standing.total.period}"
            found[cause] = (
                f"{percent:.0f} % of {cap.setting} are used by {cap.who}. "
                '"asterism spend" shows by what.'
            )
    return found


async def _backups(tx: Connection, settings: Settings, now: int) -> dict[str, str]:
    every = settings.backups.interval_ms
    if every is None:
        return {}
    made = await events.page(tx, kind="backup.created", limit=1)
    # Before the first one there is no time to count from but that of the first event.
    since = made[0].at_ms if made else await _first_event(tx)
    if since is None or now - since <= 2 * every:
        return {}
    return {
        "backup": (
            f"The last backup is older than twice {settings.backups.every}, the time after which "
            'one is due. "asterism backup create" makes one and says what is in the way.'
        )
    }


async def _first_event(tx: Connection) -> int | None:
    chain = events.home_chain(tx.constellation)
    row = await tx.one("SELECT MIN(at) FROM events WHERE chain = ?", (chain,))
    return row[0] if row is not None else None


def _free_percent(place: Path) -> float | None:
    try:
        usage = shutil.disk_usage(place)
    except OSError:
        return None
    return 100 * usage.free / usage.total if usage.total else None


# -- noting ----------------------------------------------------------------------------------------


async def _keep(
    tx: Connection, session: Session, found: Mapping[str, str], now: int, silent: int
) -> None:
    """Note what is wrong now; whoever notes a cause first puts a notice beside it."""
    for cause, text in sorted(found.items()):
        if await _is_new(tx, cause, text, now):
            about = events.home_chain(tx.constellation)
            await agents.put_notice(tx, Notice(new_id("note"), about, None, "alert", text, now))
            await note(tx, session, "alert.raised", by="home", what=cause)
    ended = await tx.all(
        "UPDATE alerts SET ended_at = ? WHERE constellation = ? AND ended_at IS NULL"
        " AND seen_at <= ? RETURNING cause",
        (now, tx.constellation, silent),
    )
    for (cause,) in ended:
        await note(tx, session, "alert.ended", by="home", what=cause)


async def _is_new(tx: Connection, cause: str, text: str, now: int) -> bool:
    """Note that a cause was found; tell whether people do not know of it yet."""
    values = (tx.constellation, cause)
    if await tx.all(
        "INSERT INTO alerts (constellation, cause, id, text, since, seen_at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING cause",
        (*values, new_id("alert"), text, now, now),
    ):
        return True
    again = await tx.all(
        "UPDATE alerts SET id = ?, since = ?, ended_at = NULL, told_at = NULL, attempts = 0,"
        " text = ?, seen_at = ? WHERE constellation = ? AND cause = ? AND ended_at < ?"
        " RETURNING cause",
        (new_id("alert"), now, text, now, *values, now - _AGAIN_AFTER),
    )
    if again:
        return True
    await tx.run(
        "UPDATE alerts SET text = ?, seen_at = ?, ended_at = NULL"
        " WHERE constellation = ? AND cause = ?",
        (text, now, *values),
    )
    return False
