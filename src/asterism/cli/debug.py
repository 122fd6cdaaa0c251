"""`asterism debug`: other spellings of commands about memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from asterism.cli.archive import print_hits, print_passages
from asterism.cli.block import print_list
from asterism.cli.context import print_context
from asterism.cli.home import visit
from asterism.cli.options import Options, command, group
from asterism.cli.search import Asked

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.memory.blocks import VisibleBlock

app = group("Other spellings of commands about memory.")

AgentRecord = Annotated[str, typer.Argument(metavar="AGENT", help="The agent's name or id.")]


@command(app, "list-core")
def list_core(options: Options, agent: AgentRecord) -> None:
    """Show the core blocks that an agent sees; like "block list"."""

    async def errand(home: Asterism) -> list[VisibleBlock]:
        from asterism.types.memory import BlockType

        found = await home.blocks.list(agent)
        return [one for one in found if one.block.type is BlockType.CORE]

    print_list(options, visit(options, errand, readonly=True))


@command(app, "list-archival")
def list_archival(options: Options, agent: AgentRecord) -> None:
    """Show the passages of an agent; like "archive list"."""
    print_passages(options, agent)


@command(app, "show-context")
def show_context(options: Options, agent: AgentRecord) -> None:
    """Show what a model would be shown now; like "context show"."""
    print_context(options, agent)


@command(app, "search-archival")
def search_archival(
    options: Options,
    agent: AgentRecord,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Any text is a query.")],
) -> None:
    """Search the passages of an agent; like "archive search --in passages"."""
    print_hits(options, Asked(query, agent=agent, within=("passages",)))


@command(app, "search-conversations")
def search_conversations(
    options: Options,
    agent: AgentRecord,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Any text is a query.")],
) -> None:
    """Search the messages of an agent; like "search --in messages"."""
    print_hits(options, Asked(query, agent=agent, within=("messages",)))
