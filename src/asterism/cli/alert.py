"""`asterism alert`: what is wrong with the home now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from asterism.cli.commands import command, group
from asterism.cli.output import Column, ItemTable, Result
from asterism.times import local_short

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.alerts import Alert

app = group("See what is wrong with the home now.")


@command(app, "list", example="alert list", readonly=True)
async def list_alerts(home: Asterism) -> Result:
    """Show the alerts that have not ended, oldest first."""
    alerts = await home.alerts.list()
    columns: list[Column[Alert]] = [
        Column("since", lambda alert: local_short(alert.since_ms)),
        Column("cause", lambda alert: alert.cause, least=80),
        Column("alert", lambda alert: alert.text, prose=True),
    ]
    return Result(alerts, ItemTable(columns, alerts, "There are no alerts."))
