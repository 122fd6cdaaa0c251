"""`/status`, `/halt`, `/spending`, `/audit`, `/config`, `/backups` and more: running a home."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from asterism.api.endpoints import ApiCall, Body, EventStream, endpoint
from asterism.api.fields import (
    NEXT,
    Limit,
    Name,
    PositionPaging,
    Reference,
    Text,
    When,
    page_by,
    whole_list,
)
from asterism.api.shapes import ANY, Shape, list_of
from asterism.app.alerts import Alert
from asterism.app.backups import Backup, BackupReport
from asterism.app.configuration import ConfigCheck
from asterism.app.home import HomeStatus
from asterism.app.keys import StoredKey
from asterism.config.load import Reload
from asterism.errors import NotFound
from asterism.types.agents import Halt
from asterism.types.turns import Delivery, Notice
from asterism.views import (
    SpendBy,
    cap_view,
    event_reference,
    event_view,
    mcp_server_view,
    spend_view,
    verification_view,
    view,
)

_JSON_LINES = "application/x-ndjson"


class HaltBody(Body):
    """Why everything stops."""

    reason: str = Field("Halted over the API.", max_length=2_000, pattern=r"\S")


@endpoint("GET", "/status", "home.status", answer=HomeStatus)
async def status(call: ApiCall) -> Any:
    """Return how the home is doing."""
    return await call.home.status()


@endpoint("GET", "/halt", "halts.current", answer=Shape("CurrentHalt", None, halt=Halt | None))
async def current_halt(call: ApiCall) -> Any:
    """Return the halt that is in force, if any."""
    return {"halt": await call.home.halts.current()}


@endpoint("PUT", "/halt", "halts.halt", body=HaltBody, answer=Halt)
async def halt(call: ApiCall) -> Any:
    """Stop all agents until somebody resumes them."""
    return await call.home.halts.halt(call.body.reason)


@endpoint("DELETE", "/halt", "halts.resume")
async def resume(call: ApiCall) -> None:
    """Let the agents work again."""
    await call.home.halts.resume()


# -- notices, alerts and deliveries ----------------------------------------------------------------


class NoticesQuery(PositionPaging):
    """Which notices."""

    unseen: bool = True
    limit: Limit = 100


class SeenNotices(Body):
    """Notices that the owner has seen."""

    ids: list[Name] = Field(min_length=1, max_length=1_000)


class DeliveriesQuery(PositionPaging):
    """Which deliveries."""

    state: Literal["waiting", "dead", "sent"] | None = None
    limit: Limit = 100


@endpoint("GET", "/notices", "notices.list", query=NoticesQuery, answer=list_of(Notice))
async def list_notices(call: ApiCall) -> Any:
    """List what the owner must be told."""
    query: NoticesQuery = call.query
    found = await call.home.notices.list(
        unseen=query.unseen, limit=query.limit + 1, after=query.cursor
    )
    return page_by(found, query, lambda notice: notice.id)


@endpoint("GET", "/alerts", "alerts.list", answer=list_of(Alert))
async def list_alerts(call: ApiCall) -> Any:
    """List what is wrong with the home now; the list is whole."""
    return whole_list(await call.home.alerts.list())


@endpoint("POST", "/notices/seen", "notices.mark_seen", body=SeenNotices)
async def mark_notices_seen(call: ApiCall) -> None:
    """Note that the owner has seen some notices."""
    await call.home.notices.mark_seen(call.body.ids)


@endpoint("GET", "/outbox", "outbox.list", query=DeliveriesQuery, answer=list_of(Delivery))
async def list_deliveries(call: ApiCall) -> Any:
    """List what must go out to channels."""
    query: DeliveriesQuery = call.query
    found = await call.home.outbox.list(query.state, limit=query.limit + 1, after=query.cursor)
    return page_by(found, query, lambda delivery: delivery.key)


@endpoint("POST", "/outbox/{key}/retry", "outbox.retry")
async def retry_delivery(call: ApiCall) -> None:
    """Try a delivery again that was given up."""
    await call.home.outbox.retry(call.path["key"])


# -- spending --------------------------------------------------------------------------------------

CAP = Shape(
    "SpendingCap",
    None,
    "A cap, and how much of it is used.",
    scope=str,
    who=str,
    span=str,
    setting=str,
    cap_usd=float,
    spent_usd=float,
    presumed_usd=float,
    reserved_usd=float,
    renewal=ANY,
)


class SpendQuery(Body):
    """Which spending."""

    days: int = Field(30, ge=1, le=3_660)
    agent: Reference | None = None
    by: SpendBy = SpendBy.AGENT


@endpoint("GET", "/spending", "spending.report", query=SpendQuery, answer=ANY)
async def spending(call: ApiCall) -> Any:
    """Return what models have cost, and how much of each cap is used."""
    query: SpendQuery = call.query
    return spend_view(await call.home.spending.report(query.days, agent=query.agent), query.by)


@endpoint("GET", "/spending/caps", "spending.caps", answer=list_of(CAP))
async def spending_caps(call: ApiCall) -> Any:
    """List the caps, and how much of each is used in its day or month; the list is whole."""
    return whole_list([cap_view(cap) for cap in await call.home.spending.caps()])


# -- the audit log ---------------------------------------------------------------------------------

EVENT = Shape(
    "AuditEvent",
    None,
    "An event of the audit log.",
    event=str,
    chain=str,
    number=int,
    at=int,
    kind=str,
    actor=str,
    agent_id=str | None,
    turn_id=str | None,
    body=ANY,
    forgotten=bool,
    hash=str,
)


class AuditQuery(Body):
    """Which events."""

    agent: Reference | None = None
    kind: str | None = Field(None, max_length=100)
    actor: Reference | None = None
    turn: Reference | None = None
    since: When | None = None
    until: When | None = None
    limit: Limit = 50
    cursor: str | None = Field(None, max_length=300, pattern=r"^\S+:[0-9]{1,12}$", description=NEXT)


@endpoint("GET", "/audit", "audit.list", query=AuditQuery, answer=list_of(EVENT))
async def list_events(call: ApiCall) -> Any:
    """List events of the audit log, the newest first."""
    query: AuditQuery = call.query
    audit = call.home.audit
    before = await audit.get(query.cursor) if query.cursor else None
    found = await audit.list(
        before=before, limit=query.limit + 1, **query.values("cursor", "limit")
    )
    names = await audit.names()
    return page_by(
        found,
        query,
        lambda event: event_reference(event, names),
        lambda event: event_view(event, names),
    )


@endpoint("GET", "/audit/verification", "audit.verify", answer=ANY)
async def verify_audit(call: ApiCall) -> Any:
    """Tell whether the audit log is as it was written."""
    return verification_view(await call.home.audit.verify())


@endpoint("GET", "/audit/export", "audit.export", media=_JSON_LINES)
async def export_audit(call: ApiCall) -> Any:
    """Return the whole log, chain by chain, each event as a line of JSON."""
    lines = (line.encode() async for line in call.home.audit.export())
    return EventStream(lines, 200, media_type=_JSON_LINES)


@endpoint("GET", "/audit/{event}", "audit.get", answer=EVENT)
async def get_event(call: ApiCall) -> Any:
    """Return one event, named as CHAIN:NUMBER."""
    return event_view(await call.home.audit.get(call.path["event"]), await call.home.audit.names())


# -- configuration ---------------------------------------------------------------------------------


class ConfigText(Body):
    """A configuration file as text."""

    text: Text


@endpoint("GET", "/config", "config.read", answer=ANY)
async def read_config(call: ApiCall) -> Any:
    """Return the settings in use, without secrets."""
    return await call.home.config.read()


@endpoint("POST", "/config/check", "config.check", body=ConfigText, answer=ConfigCheck, keyed=False)
async def check_config(call: ApiCall) -> Any:
    """Tell whether a text could be the configuration file."""
    return await call.home.config.check(call.body.text)


@endpoint("POST", "/config/reload", "config.reload", answer=Reload)
async def reload_config(call: ApiCall) -> Any:
    """Read the configuration file again."""
    return await call.home.config.reload()


# -- stored keys and MCP servers -------------------------------------------------------------------


class KeyValue(Body):
    """A key that is stored."""

    value: str = Field(min_length=1, max_length=100_000)


MCP_SERVER = Shape(
    "McpServer",
    None,
    "An MCP server that is configured, and what it offers.",
    name=str,
    transport=str,
    enabled=bool,
    tools=int,
    refused=int,
    asked_at=int | None,
    protocol=str | None,
    server=str | None,
    problem=str | None,
)


@endpoint("GET", "/keys", "keys.list", answer=list_of(StoredKey))
async def list_keys(call: ApiCall) -> Any:
    """List the stored keys by name, never with their values; the list is whole."""
    return whole_list(await call.home.keys.list())


@endpoint(
    "PUT",
    "/keys/{key}",
    "keys.set",
    body=KeyValue,
    answer=Shape("KeyWasSet", None, "Whether another key of this name was there.", replaced=bool),
)
async def set_key(call: ApiCall) -> Any:
    """Store a key, encrypted; it is told to nobody again."""
    return {"replaced": await call.home.keys.set(call.path["key"], call.body.value)}


@endpoint("DELETE", "/keys/{key}", "keys.remove")
async def remove_key(call: ApiCall) -> None:
    """Remove a stored key."""
    await call.home.keys.remove(call.path["key"])


@endpoint("GET", "/mcp-servers", "mcp.list", answer=list_of(MCP_SERVER))
async def list_mcp_servers(call: ApiCall) -> Any:
    """List the MCP servers that are configured; the list is whole."""
    found = call.home.mcp.list()
    return whole_list([mcp_server_view(server, server.problem) for server in found])


# -- backups ---------------------------------------------------------------------------------------


class NewBackup(Body):
    """A backup that is to be made in `backups.directory`."""

    note: str = Field("", max_length=1_000, description="What it is for.")
    passphrase: str | None = Field(
        None,
        min_length=1,
        max_length=1_000,
        description="Encrypt it with this; None: with `backups.passphrase`, if that is set.",
    )


class BackupPassphrase(Body):
    """What opens a backup that is encrypted."""

    passphrase: str | None = Field(
        None, min_length=1, max_length=1_000, description="None: `backups.passphrase` is tried."
    )


BACKUP = Shape("BackupOfHome", Backup, name=str)


def _backup_view(backup: Backup) -> dict[str, Any]:
    return {**view(backup), "name": Path(backup.path).name}


@endpoint("GET", "/backups", "backups.list", answer=list_of(BACKUP))
async def list_backups(call: ApiCall) -> Any:
    """List the backups in `backups.directory` and the copies from before upgrades."""
    found = await call.home.backups.list()
    return whole_list([_backup_view(backup) for backup in found])


@endpoint("POST", "/backups", "backups.create", body=NewBackup, answer=BACKUP, status=201)
async def create_backup(call: ApiCall) -> Any:
    """Make a backup of everything that makes up the home, while turns go on."""
    return _backup_view(await call.home.backups.create(**call.body.values()))


@endpoint(
    "POST",
    "/backups/{backup}/verify",
    "backups.verify",
    body=BackupPassphrase,
    answer=Shape("BackupReportOfHome", BackupReport, backup=BACKUP),
    keyed=False,
)
async def verify_backup(call: ApiCall) -> Any:
    """Read all of a backup, open its database in a temporary place, and check both."""
    name = call.path["backup"]
    found = [each for each in await call.home.backups.list() if Path(each.path).name == name]
    if not found:
        raise NotFound(
            f"There is no backup {name[:100]!r}. GET /api/backups lists them. Nothing was done."
        )
    report = await call.home.backups.verify(found[0].path, call.body.passphrase)
    return {**view(report), "backup": _backup_view(report.backup)}
