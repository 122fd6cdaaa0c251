"""`asterism tool`: functions that agents may call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.output import Column, Output

if TYPE_CHECKING:
    from asterism.app import Asterism

app = group("See the tools there are.")


@command(app, "list")
def list_tools(options: Options) -> None:
    """Show the tools there are, and what a crash in the middle of each means."""

    async def errand(home: Asterism) -> list[dict[str, Any]]:
        return [_described(home, name) for name in home.toolbox.names()]

    found = visit(options, errand, readonly=True)
    out = Output(json=options.json)
    if out.json:
        out.data(found)
        return
    columns: list[Column[dict[str, Any]]] = [
        Column("tool", lambda one: one["name"]),
        Column("effect", lambda one: one["effect"]),
        Column("asks", lambda one: "yes" if one["ask"] else "", least=80),
        Column("what it does", lambda one: one["description"].partition("\n")[0], prose=True),
    ]
    out.table(columns, found, empty="There are no tools.")


def _described(home: Asterism, name: str) -> dict[str, Any]:
    tool = home.toolbox.get(name, None)
    assert tool is not None
    return {**tool.wire()["function"], "effect": tool.effect, "ask": tool.ask}
