"""`asterism debug`: other spellings of commands about memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from asterism.cli.archive import hits_result, list_passages
from asterism.cli.block import blocks_result
from asterism.cli.commands import Options, argument, command, group
from asterism.cli.context import context_result
from asterism.cli.inputs import AgentArgument
from asterism.cli.search import SearchOptions

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.cli.output import Result

app = group("Other spellings of commands about memory.")

Query = Annotated[str, argument("QUERY", "Any text is a query.")]


@command(app, "list-core", example="debug list-core aria", readonly=True)
async def list_core(home: Asterism, agent: AgentArgument) -> Result:
    """Show the core blocks that an agent sees; like "block list"."""
    from asterism.types.memory import BlockType

    blocks = await home.blocks.list(agent)
    return blocks_result([seen for seen in blocks if seen.block.type is BlockType.CORE])


@command(app, "list-archival", example="debug list-archival aria")
async def list_archival(options: Options, agent: AgentArgument) -> Result:
    """Show the passages of an agent; like "archive list"."""
    return await list_passages(options, agent)


@command(app, "show-context", example="debug show-context aria", readonly=True)
async def show_context(home: Asterism, agent: AgentArgument) -> Result:
    """Show what a model would see now; like "context show"."""
    return await context_result(home, agent)


@command(app, "search-archival", example="debug search-archival aria boiler")
async def search_archival(options: Options, agent: AgentArgument, query: Query) -> Result:
    """Search the passages of an agent; like "archive search --in passages"."""
    return await hits_result(options, SearchOptions(query, agent=agent, within=("passages",)))


@command(app, "search-conversations", example="debug search-conversations aria boiler")
async def search_conversations(options: Options, agent: AgentArgument, query: Query) -> Result:
    """Search the messages of an agent; like "search --in messages"."""
    return await hits_result(options, SearchOptions(query, agent=agent, within=("messages",)))
