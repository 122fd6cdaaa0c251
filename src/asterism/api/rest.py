"""The endpoints of the REST API below `/api`, by noun. Each calls the verb that it names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Field
from starlette.datastructures import UploadFile
from starlette.responses import Response

from asterism.api.auth import is_loopback, is_own_origin, session_cookie
from asterism.api.endpoints import (
    ENDPOINTS,
    EVENTS,
    JSON,
    OPEN,
    ApiCall,
    Body,
    EventStream,
    Paging,
    PositionPaging,
    bounded,
    check_length,
    check_unchanged,
    endpoint,
    events_of,
    is_conditional,
)
from asterism.api.shapes import ANY, ItemsOf, Shape, list_of
from asterism.app.alerts import Alert
from asterism.app.authentication import AccessToken, Caller
from asterism.app.backups import Backup, BackupReport
from asterism.app.configuration import ConfigCheck
from asterism.app.constellations import Constellation
from asterism.app.home import HomeStatus
from asterism.app.keys import StoredKey
from asterism.app.people import Room
from asterism.app.sources import MAX_UPLOAD
from asterism.config.load import Reload
from asterism.errors import InvalidInput, NotAllowed, NotFound
from asterism.memory.forgetting import ForgetReceipt, Forgetting
from asterism.memory.schemas import read_schema
from asterism.store.messages import archived_agent
from asterism.store.passages import PassageEdit
from asterism.turns.turn import id_at
from asterism.types.agents import (
    AgentRecord,
    Halt,
    HttpCall,
    Person,
    RegisteredTool,
    Schedule,
    Trust,
    now_ms,
)
from asterism.types.documents import DocumentSource, SourceDocument
from asterism.types.groups import GroupEvent
from asterism.types.memory import (
    Append,
    Block,
    BlockType,
    BlockWrite,
    Describe,
    EditRecord,
    Line,
    Passage,
    Permission,
    Redo,
    Replace,
    Restore,
    Retire,
    Revert,
    SetField,
    SetText,
    Share,
    Undo,
    Unshare,
    Which,
)
from asterism.types.permissions import ApprovalRecord, Grant
from asterism.types.search import DOMAINS
from asterism.types.turns import (
    Delivery,
    ImportResult,
    Notice,
    Outcome,
    PastMessage,
    Receipt,
    Replay,
    ToolResult,
    TurnRecord,
    Usage,
)
from asterism.views import (
    SpendBy,
    access_token_view,
    agent_names,
    approval_details_view,
    approval_view,
    blame_view,
    block_view,
    cap_view,
    context_view,
    entry_view,
    event_view,
    grant_view,
    group_view,
    health_view,
    mcp_server_view,
    outcome_view,
    person_names,
    rule_view,
    schedule_view,
    source_view,
    spend_view,
    turn_view,
    verification_view,
    view,
)

if TYPE_CHECKING:
    from asterism.app import Asterism

__all__ = ["ENDPOINTS"]

JSON_LINES = "application/x-ndjson"

Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=1_000_000)]
SomeText = Annotated[str, Field(min_length=1, pattern=r"\S")]
TagName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,80}$")]


def _iso(value: object) -> datetime:
    """Return a time as it is written; a bare number is none, though pydantic would read it."""
    try:
        return datetime.fromisoformat(str(value)) if isinstance(value, str) else _no_time()
    except ValueError:
        return _no_time()


def _no_time() -> datetime:
    raise ValueError("must be an ISO 8601 time such as 2026-11-18T09:00:00Z")


When = Annotated[datetime, BeforeValidator(_iso)]

AGENT = Shape("Agent", AgentRecord, model_in_use=str)
TURN = Shape("Turn", TurnRecord, agent=str | None)
ENTRY = Shape(
    "Entry",
    None,
    "An entry of the journal.",
    seq=int,
    kind=str,
    key=str,
    at=int,
    body=ANY,
    meta=ANY,
)
TURN_DETAILS = Shape("TurnDetails", TurnRecord, agent=str | None, entries=list[Any])
ANSWER = Shape(
    "Answer",
    None,
    "How a turn ended, or that it waits, and its answer.",
    agent=str,
    agent_id=str,
    turn_id=str,
    state=str,
    text=str,
    usage=Usage,
)
BLOCK = Shape("VisibleBlock", Block, name=str, owner=str | None, may=Permission)
APPROVAL = Shape("Approval", ApprovalRecord, agent=str | None, state=str)
APPROVAL_DETAILS = Shape(
    "ApprovalDetails", ApprovalRecord, agent=str | None, state=str, whom=ANY, granted=ANY
)
GRANT = Shape("GrantOfAgent", Grant, agent=str | None)
SCHEDULE = Shape("ScheduleOfAgent", Schedule, agent=str)


def _page(items: Sequence[Any], limit: int, cursor: str | None) -> dict[str, Any]:
    return {"items": items[:limit], "next": cursor if len(items) > limit else None}


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdigit() or len(cursor) > 9:
        raise InvalidInput(
            f"{cursor[:40]!r} is not a cursor of this list. Take `next` of the page before."
        )
    return int(cursor)


def _paged(items: Sequence[Any], paging: Paging) -> dict[str, Any]:
    """Return a page of a list that is read whole."""
    start = _offset(paging.cursor)
    rest = items[start:]
    return _page(rest, paging.limit, str(start + paging.limit))


def _page_by(
    found: Sequence[Any],
    query: Any,
    position: Callable[[Any], str],
    shape: Callable[[Any], Any] = view,
) -> dict[str, Any]:
    """Return a page of items of which one more was read than are wanted.

    Args:
        found: The items.
        query: What was asked for, with its `limit`.
        position: Returns what the next page goes on from, which stays true while rows come and go.
        shape: Returns an item as JSON.
    """
    shown = found[: query.limit]
    more = position(shown[-1]) if len(found) > query.limit else None
    return {"items": [shape(item) for item in shown], "next": more}


def _moment(given: datetime | None) -> datetime | None:
    return given if given is None or given.tzinfo is not None else given.replace(tzinfo=UTC)


# -- agents ----------------------------------------------------------------------------------------


class NewAgent(Body):
    """An agent that is to be made."""

    name: Name
    model: str | None = Field(None, max_length=500)
    system: Text | None = None
    tools: list[Name] | None = Field(None, max_length=1_000)


class AgentChange(Body):
    """What is changed of an agent; what is left out stays."""

    name: Name | None = None
    model: str | None = Field(None, max_length=500)
    system: Text | None = None
    tools: list[Name] | None = Field(None, max_length=1_000)
    all_tools: bool = False


class NewName(Body):
    """The name of a copy."""

    name: Name


def _agent(agent: Any) -> dict[str, Any]:
    return {**view(agent), "model_in_use": agent.model_in_use}


class AgentsQuery(Paging):
    """Which agents."""

    archived: bool = Field(
        default=False, description="The archived ones, instead of those at work."
    )


@endpoint("GET", "/agents", "agents.list", query=AgentsQuery, answer=list_of(AGENT))
async def list_agents(call: ApiCall) -> Any:
    """List the agents by name."""
    page = _paged(await call.home.agents.list(archived=call.query.archived), call.query)
    return {**page, "items": [_agent(agent) for agent in page["items"]]}


@endpoint("POST", "/agents", "agents.create", body=NewAgent, answer=AGENT, status=201, edits=True)
async def create_agent(call: ApiCall) -> Any:
    """Create an agent."""
    new: NewAgent = call.body
    return _agent(
        await call.home.agents.create(new.name, model=new.model, system=new.system, tools=new.tools)
    )


@endpoint("GET", "/agents/{agent}", "agents.get", answer=AGENT, edits=True)
async def get_agent(call: ApiCall) -> Any:
    """Return an agent by its name or id."""
    return _agent(await call.home.agents.get(call.path["agent"]))


@endpoint(
    "PATCH",
    "/agents/{agent}",
    "agents.edit",
    body=AgentChange,
    answer=AGENT,
    edits=True,
    conditional=True,
)
async def edit_agent(call: ApiCall) -> Any:
    """Change an agent from its next turn on."""
    change: AgentChange = call.body
    agent, version = await _unchanged_agent(call)
    return _agent(
        await call.home.agents.edit(
            agent,
            new_name=change.name,
            model=change.model,
            system=change.system,
            tools=change.tools,
            all_tools=change.all_tools,
            version=version,
        )
    )


@endpoint("POST", "/agents/{agent}/clone", "agents.clone", body=NewName, answer=AGENT, status=201)
async def clone_agent(call: ApiCall) -> Any:
    """Make another agent with the same past and memory."""
    return _agent(await call.home.agents.clone(call.path["agent"], call.body.name))


@endpoint("POST", "/agents/{agent}/archive", "agents.archive", answer=AGENT, conditional=True)
async def archive_agent(call: ApiCall) -> Any:
    """Let an agent rest: it takes no turns until it is unarchived; its memory stays."""
    agent, version = await _unchanged_agent(call)
    return _agent(await call.home.agents.archive(agent, version=version))


@endpoint("POST", "/agents/{agent}/unarchive", "agents.unarchive", answer=AGENT, conditional=True)
async def unarchive_agent(call: ApiCall) -> Any:
    """Put an archived agent back to work."""
    agent, version = await _unchanged_agent(call)
    return _agent(await call.home.agents.unarchive(agent, version=version))


@endpoint("DELETE", "/agents/{agent}", "agents.delete", conditional=True)
async def delete_agent(call: ApiCall) -> None:
    """Take an agent out of service; its journal stays."""
    agent, version = await _unchanged_agent(call)
    await call.home.agents.delete(agent, version=version)


async def _unchanged_agent(call: ApiCall) -> tuple[Any, int | None]:
    """Return the agent of a request, and the version that it must have if there is If-Match."""
    agent = await call.home.agents.get(call.path["agent"])
    check_unchanged(call, _agent(agent))
    return agent, agent.version if is_conditional(call) else None


# -- messages --------------------------------------------------------------------------------------


class NewMessage(Body):
    """What is said to an agent."""

    text: SomeText
    external_id: str | None = Field(
        None, min_length=1, max_length=200, description="The same id again is the same message."
    )
    images: list[str] = Field(
        default_factory=list, max_length=16, description="PNG, JPEG, GIF or WebP files in base64."
    )
    json_schema: dict[str, Any] | None = Field(
        None, description="The answer is JSON that fulfils this schema."
    )


class PastConversation(Body):
    """A conversation from elsewhere."""

    class Message(Body):
        """One message of it."""

        role: Literal["user", "assistant"]
        text: SomeText
        speaker: str | None = Field(None, max_length=200)
        at: When | None = None

    messages: list[Message] = Field(min_length=1, max_length=10_000)


def _options(call: ApiCall) -> dict[str, Any]:
    import base64
    import binascii

    message: NewMessage = call.body
    try:
        images = [base64.b64decode(image, validate=True) for image in message.images]
    except (binascii.Error, ValueError):
        raise InvalidInput(
            "images must be base64 texts of PNG, JPEG, GIF or WebP files. Nothing was stored."
        ) from None
    return {"external_id": _external_id(call), "images": images, "schema": message.json_schema}


def _external_id(call: ApiCall) -> str | None:
    """Return the id of a message: as its sender gives it, or else by the key of the request."""
    external, key = call.body.external_id, call.header("idempotency-key")
    if external is not None or key is None:
        return external
    return f"{call.request.state.token.id}:{key}"  # a key stands for a request of one token


@endpoint(
    "POST",
    "/agents/{agent}/messages",
    "agents.send",
    body=NewMessage,
    answer=Receipt,
    status=202,
    repeatable=True,
)
async def send_message(call: ApiCall) -> Any:
    """Hand in a message and return at once; it will be answered exactly once."""
    return await call.home.agents.send(call.path["agent"], call.body.text, **_options(call))


@endpoint(
    "POST", "/agents/{agent}/ask", "agents.ask", body=NewMessage, answer=ANSWER, repeatable=True
)
async def ask_agent(call: ApiCall) -> Any:
    """Hand in a message and wait for the answer."""
    agent = await call.home.agents.get(call.path["agent"])
    outcome = await call.home.agents.ask(agent, call.body.text, **_options(call))
    return outcome_view(outcome, agent.name)


@endpoint("POST", "/agents/{agent}/stream", "agents.stream", body=NewMessage, media=EVENTS)
async def stream_message(call: ApiCall) -> Any:
    """Hand in a message and stream what happens in its turn."""
    agent = await call.home.agents.get(call.path["agent"])
    if agent.archived_at_ms is not None:
        raise archived_agent(agent.name)
    signals = call.home.agents.stream(agent, call.body.text, **_options(call))
    return await events_of(signals, patience=_FIRST_SIGNAL)


_FIRST_SIGNAL = 1.0
"""Seconds that are waited for the first signal of a message before the answer begins."""


@endpoint("GET", "/agents/{agent}/events", "agents.watch", media=EVENTS)
async def watch_agent(call: ApiCall) -> Any:
    """Stream what happens in all turns of an agent, from Last-Event-ID on."""
    return await _watch(call, await call.home.agents.get(call.path["agent"]))


@endpoint("GET", "/events", "agents.watch", media=EVENTS)
async def watch_all(call: ApiCall) -> Any:
    """Stream what happens in all turns of all agents and groups, from Last-Event-ID on."""
    return await _watch(call, None)


async def _watch(call: ApiCall, agent: Any) -> AsyncGenerator[bytes, None]:
    after = call.header("last-event-id")
    signals = call.home.agents.watch(agent, after=after)
    return await events_of(signals, first_id="" if after else id_at(now_ms()))


@endpoint(
    "POST",
    "/agents/{agent}/import",
    "agents.import_messages",
    body=PastConversation,
    answer=ImportResult,
    status=201,
)
async def import_messages(call: ApiCall) -> Any:
    """Put a conversation from elsewhere at the end of an agent's past."""
    past: PastConversation = call.body
    messages = [
        PastMessage(one.role, one.text, one.speaker, _moment(one.at)) for one in past.messages
    ]
    return await call.home.agents.import_messages(call.path["agent"], messages)


# -- groups ----------------------------------------------------------------------------------------

GROUP_MEMBER = Shape(
    "GroupMember",
    None,
    "An agent in a group.",
    agent_id=str,
    name=str,
    role=Literal["supervisor", "specialist", "regular", "observer"],
    domain=str,
    capabilities=list[str],
    weight=float,
    active=bool,
    since=int,
)
GROUP = Shape(
    "Group",
    None,
    "Agents that answer together.",
    id=str,
    name=str,
    pattern=str,
    options=dict[str, Any],
    description=str,
    version=int,
    created_at=int,
    members=ItemsOf(GROUP_MEMBER),
)


class NewGroup(Body):
    """A group that is to be made."""

    name: Name
    pattern: str = Field("round_robin", max_length=100)
    options: dict[str, Any] = Field(default_factory=dict)
    description: str = Field("", max_length=2_000)
    members: list[Name] = Field(default_factory=list, max_length=200)


class GroupChange(Body):
    """What is changed of a group."""

    name: Name | None = None
    pattern: str | None = Field(None, max_length=100)
    options: dict[str, Any] | None = None
    description: str | None = Field(None, max_length=2_000)


class NewMember(Body):
    """What an agent is in a group; whatever is left out stays as it is for a member."""

    agent: Name
    role: Literal["supervisor", "specialist", "regular", "observer"] | None = None
    domain: str | None = Field(None, max_length=200)
    capabilities: list[Name] | None = Field(None, max_length=100)
    weight: float | None = Field(None, ge=0, le=1_000)
    active: bool | None = None


class GroupMessage(Body):
    """What is said to a group."""

    text: SomeText
    external_id: str | None = Field(
        None, min_length=1, max_length=200, description="The same id again is the same message."
    )


class TranscriptQuery(PositionPaging):
    """How much of a transcript: `limit` counts turns."""


@endpoint("GET", "/groups", "groups.list", query=Paging, answer=list_of(GROUP))
async def list_groups(call: ApiCall) -> Any:
    """List the groups by name, with their members."""
    page = _paged(await call.home.groups.list(), call.query)
    return {**page, "items": [group_view(group) for group in page["items"]]}


@endpoint("POST", "/groups", "groups.create", body=NewGroup, answer=GROUP, status=201, edits=True)
async def create_group(call: ApiCall) -> Any:
    """Create a group."""
    new: NewGroup = call.body
    return group_view(
        await call.home.groups.create(
            new.name,
            pattern=new.pattern,
            options=new.options,
            description=new.description,
            members=new.members,
        )
    )


@endpoint("GET", "/groups/{group}", "groups.get", answer=GROUP, edits=True)
async def get_group(call: ApiCall) -> Any:
    """Return a group by its name or id."""
    return group_view(await call.home.groups.get(call.path["group"]))


@endpoint(
    "PATCH",
    "/groups/{group}",
    "groups.edit",
    body=GroupChange,
    answer=GROUP,
    edits=True,
    conditional=True,
)
async def edit_group(call: ApiCall) -> Any:
    """Change a group from its next turn on."""
    change: GroupChange = call.body
    group = await call.home.groups.get(call.path["group"])
    check_unchanged(call, group_view(group))
    return group_view(
        await call.home.groups.edit(
            group,
            new_name=change.name,
            pattern=change.pattern,
            options=change.options,
            description=change.description,
            version=group.version if is_conditional(call) else None,
        )
    )


@endpoint("DELETE", "/groups/{group}", "groups.delete", conditional=True)
async def delete_group(call: ApiCall) -> None:
    """Take a group out of service; its members stay."""
    group = await call.home.groups.get(call.path["group"])
    check_unchanged(call, group_view(group))
    version = group.version if is_conditional(call) else None
    await call.home.groups.delete(group, version=version)


@endpoint("POST", "/groups/{group}/members", "groups.add_member", body=NewMember, answer=GROUP)
async def add_group_member(call: ApiCall) -> Any:
    """Add an agent to a group, or change what it is there."""
    new: NewMember = call.body
    return group_view(
        await call.home.groups.add_member(
            call.path["group"],
            new.agent,
            role=new.role,
            domain=new.domain,
            capabilities=new.capabilities,
            weight=new.weight,
            active=new.active,
        )
    )


@endpoint("DELETE", "/groups/{group}/members/{agent}", "groups.remove_member")
async def remove_group_member(call: ApiCall) -> None:
    """Take an agent out of a group."""
    await call.home.groups.remove_member(call.path["group"], call.path["agent"])


@endpoint(
    "POST",
    "/groups/{group}/messages",
    "groups.send",
    body=GroupMessage,
    answer=Receipt,
    status=202,
    repeatable=True,
)
async def send_group_message(call: ApiCall) -> Any:
    """Hand in a message to a group and return at once; it will be answered exactly once."""
    return await call.home.groups.send(
        call.path["group"], call.body.text, external_id=_external_id(call)
    )


@endpoint(
    "POST", "/groups/{group}/ask", "groups.ask", body=GroupMessage, answer=ANSWER, repeatable=True
)
async def ask_group(call: ApiCall) -> Any:
    """Hand in a message to a group and wait for its answer."""
    group = await call.home.groups.get(call.path["group"])
    outcome = await call.home.groups.ask(group, call.body.text, external_id=_external_id(call))
    return outcome_view(outcome, group.name)


@endpoint("POST", "/groups/{group}/stream", "groups.stream", body=GroupMessage, media=EVENTS)
async def stream_group_message(call: ApiCall) -> Any:
    """Hand in a message to a group and stream its decisions and what members say."""
    group = await call.home.groups.get(call.path["group"])
    signals = call.home.groups.stream(group, call.body.text, external_id=_external_id(call))
    return await events_of(signals, patience=_FIRST_SIGNAL)


@endpoint("GET", "/groups/{group}/events", "groups.watch", media=EVENTS)
async def watch_group(call: ApiCall) -> Any:
    """Stream what happens in all turns of a group, from Last-Event-ID on."""
    after = call.header("last-event-id")
    group = await call.home.groups.get(call.path["group"])
    signals = call.home.groups.watch(group, after=after)
    return await events_of(signals, first_id="" if after else id_at(now_ms()))


@endpoint(
    "GET",
    "/groups/{group}/transcript",
    "groups.transcript",
    query=TranscriptQuery,
    answer=list_of(GroupEvent),
)
async def group_transcript(call: ApiCall) -> Any:
    """Return what was said and decided in the latest turns of a group; each page oldest first."""
    query: TranscriptQuery = call.query
    events = await call.home.groups.transcript(
        call.path["group"], limit=query.limit + 1, before=query.cursor
    )
    turns = list(dict.fromkeys(event.turn_id for event in events))
    if len(turns) <= query.limit:
        return {"items": view(events), "next": None}
    shown = [event for event in events if event.turn_id != turns[0]]
    return {"items": view(shown), "next": turns[1]}


# -- turns -----------------------------------------------------------------------------------------


class TurnsQuery(PositionPaging):
    """Which turns are wanted."""

    agent: str | None = Field(None, max_length=200)
    limit: int = Field(20, ge=1, le=500)


class Reason(Body):
    """Why something is done."""

    reason: str = Field("", max_length=2_000)


class CallResults(Body):
    """What came of calls that a turn left to the program that asked."""

    results: dict[str, Text] = Field(
        min_length=1,
        max_length=1_000,
        description="Each result by the key of its call, such as `0/call/0`; all must be there.",
    )


class StepQuery(Body):
    """Which step of a turn."""

    step: int | None = Field(None, ge=0, le=100_000)


class NewFork(Body):
    """How a copy of an agent answers again."""

    name: Name | None = None
    model: str | None = Field(None, max_length=500)
    system: Text | None = None


@endpoint("GET", "/turns", "turns.list", query=TurnsQuery, answer=list_of(TURN))
async def list_turns(call: ApiCall) -> Any:
    """List the latest turns, newest first."""
    names = await agent_names(call.home)
    query: TurnsQuery = call.query
    turns = await call.home.turns.list(query.agent, limit=query.limit + 1, before=query.cursor)
    return _page_by(turns, query, lambda turn: turn.id, lambda turn: turn_view(turn, names))


@endpoint("GET", "/turns/{turn}", "turns.get", answer=TURN_DETAILS)
async def get_turn(call: ApiCall) -> Any:
    """Return a turn with its entries."""
    record, entries = await call.home.turns.get(call.path["turn"])
    shape = turn_view(record, await agent_names(call.home))
    return {**shape, "entries": [entry_view(entry) for entry in entries]}


@endpoint("GET", "/turns/{turn}/outcome", "turns.outcome", answer=Outcome)
async def get_outcome(call: ApiCall) -> Any:
    """Return how a turn stands."""
    return await call.home.turns.outcome(call.path["turn"])


@endpoint("GET", "/turns/{turn}/events", "turns.follow", media=EVENTS)
async def follow_turn(call: ApiCall) -> Any:
    """Stream what happens in a turn, from Last-Event-ID on."""
    turn_id, after = call.path["turn"], call.header("last-event-id")
    await call.home.turns.outcome(turn_id)
    signals = call.home.turns.follow(turn_id, after=after)
    return await events_of(signals, first_id="" if after else id_at(now_ms()))


@endpoint("GET", "/turns/{turn}/context", "contexts.of_turn", query=StepQuery, answer=ANY)
async def turn_context(call: ApiCall) -> Any:
    """Return what the model was shown in a step of a turn."""
    return context_view(await call.home.contexts.of_turn(call.path["turn"], call.query.step))


@endpoint("POST", "/turns/{turn}/stop", "turns.stop", body=Reason, status=202)
async def stop_turn(call: ApiCall) -> None:
    """End a turn that is under way, or that waits for others to end."""
    await call.home.turns.stop(call.path["turn"], call.body.reason or "Stopped.")


@endpoint(
    "POST",
    "/turns/{turn}/results",
    "turns.submit_results",
    body=CallResults,
    answer=Receipt,
    status=202,
)
async def submit_results(call: ApiCall) -> Any:
    """Give a turn the results of the calls that it left to the program that asked."""
    return await call.home.turns.submit_results(call.path["turn"], call.body.results)


@endpoint("POST", "/turns/{turn}/replay", "turns.replay", answer=Replay)
async def replay_turn(call: ApiCall) -> Any:
    """Run a recorded turn again, offline, and tell whether it comes out the same."""
    return await call.home.turns.replay(call.path["turn"])


@endpoint(
    "POST",
    "/turns/{turn}/fork",
    "turns.fork",
    body=NewFork,
    answer=Shape("Fork", None, "A copy of an agent and its answer.", agent=ANY, answer=ANY),
    status=201,
)
async def fork_turn(call: ApiCall) -> Any:
    """Let a copy of the agent, from before a turn, answer the same message again."""
    new: NewFork = call.body
    agent, outcome = await call.home.turns.fork(
        call.path["turn"], name=new.name, model=new.model, system=new.system
    )
    return {"agent": _agent(agent), "answer": outcome_view(outcome, agent.name)}


@endpoint("POST", "/turns/{turn}/revert", "memory.revert_turn", body=Reason, answer=ANY)
async def revert_turn(call: ApiCall) -> Any:
    """Undo everything that a turn wrote to memory."""
    return await call.home.memory.revert_turn(call.path["turn"], reason=call.body.reason)


@endpoint("GET", "/agents/{agent}/context", "contexts.now", answer=ANY)
async def agent_context(call: ApiCall) -> Any:
    """Return what a model would be shown if a message came now."""
    return context_view(await call.home.contexts.now(call.path["agent"]))


@endpoint("POST", "/agents/{agent}/context/restart", "contexts.restart", answer=ANY)
async def restart_context(call: ApiCall) -> Any:
    """Begin a conversation anew: earlier messages leave the context, memory and journal stay."""
    return await call.home.contexts.restart(call.path["agent"])


@endpoint("POST", "/agents/{agent}/context/compact", "contexts.compact", answer=ANY)
async def compact_context(call: ApiCall) -> Any:
    """Compact the older half of an agent's context into a summary; the originals stay."""
    return await call.home.contexts.compact(call.path["agent"])


# -- blocks ----------------------------------------------------------------------------------------


class NewBlock(Body):
    """A block that is to be made."""

    label: Name
    content: Text = ""
    kind: BlockType = BlockType.CORE
    json_schema: dict[str, Any] | str = "text"
    description: str = Field("", max_length=10_000)
    limit: int = Field(5_000, ge=1, le=10_000_000)
    permission: Permission = Permission.READ_WRITE
    audience: str | None = Field(None, max_length=1_000)
    pinned: bool = False
    shared_with: dict[str, Permission] = Field(default_factory=dict)


class BlockEdit(Body):
    """One edit of a block."""

    operation: Literal[
        "append", "replace", "set", "set_field", "undo", "redo", "revert", "restore", "retire"
    ]
    content: Text = ""
    old: Text = Field("", description="For `replace`: the text that `content` takes the place of.")
    which: Which = Field(Which.FIRST, description="For `replace`: which of several matches.")
    section: str | None = Field(None, max_length=200)
    field: str = Field("", max_length=200)
    value: Any = None
    number: int = Field(0, ge=0, description="For `revert` the edit, for `restore` the version.")
    reason: str = Field("", max_length=2_000)


class BlockChange(Body):
    """What is changed of what a block is; what is left out stays."""

    label: Name | None = None
    description: str | None = Field(None, max_length=10_000)
    kind: BlockType | None = None
    limit: int | None = Field(None, ge=1, le=10_000_000)
    permission: Permission | None = None
    audience: str | None = Field(None, max_length=1_000)
    pinned: bool | None = None
    json_schema: dict[str, Any] | str | None = None
    reason: str = Field("", max_length=2_000)


class BlockSharing(Body):
    """With whom a block is shared; None ends it."""

    permission: Permission | None = Permission.APPEND


class HistoryQuery(Body):
    """Which edits."""

    limit: int = Field(50, ge=1, le=500)
    cursor: int | None = Field(None, ge=1, description="`next` of the page before.")
    before: int | None = Field(None, ge=1, description="The same as `cursor`.")


class DiffQuery(Body):
    """Which two versions."""

    a: int = Field(ge=0, description="The one.")
    b: int | None = Field(None, ge=0, description="The other; None: as it is now.")


class VersionQuery(Body):
    """Which version."""

    version: int | None = Field(None, ge=0)
    moment: When | None = None


def _block_write(edit: BlockEdit) -> BlockWrite:
    writes: dict[str, Any] = {
        "append": lambda: Append(edit.content, edit.section),
        "replace": lambda: Replace(
            edit.old, edit.content, edit.which, edit.number or 1, edit.section
        ),
        "set": lambda: SetText(edit.content, section=edit.section),
        "set_field": lambda: SetField(edit.field, edit.value, edit.section),
        "undo": Undo,
        "redo": Redo,
        "revert": lambda: Revert(edit.number),
        "restore": lambda: Restore(edit.number),
        "retire": Retire,
    }
    return writes[edit.operation]()


_OF_AGENT = "/agents/{agent}/blocks"


@endpoint("GET", "/blocks", "blocks.list", query=Paging, answer=list_of(BLOCK))
async def list_all_blocks(call: ApiCall) -> Any:
    """List all blocks there are."""
    page = _paged(await call.home.blocks.list(), call.query)
    return {**page, "items": [block_view(seen) for seen in page["items"]]}


@endpoint("GET", _OF_AGENT, "blocks.list", query=Paging, answer=list_of(BLOCK))
async def list_blocks(call: ApiCall) -> Any:
    """List the blocks that an agent sees."""
    page = _paged(await call.home.blocks.list(call.path["agent"]), call.query)
    return {**page, "items": [block_view(seen) for seen in page["items"]]}


@endpoint("POST", _OF_AGENT, "blocks.create", body=NewBlock, answer=Block, status=201, edits=True)
async def create_block(call: ApiCall) -> Any:
    """Create a block of an agent."""
    new: NewBlock = call.body
    return await call.home.blocks.create(
        call.path["agent"],
        new.label,
        new.content,
        kind=new.kind,
        schema=new.json_schema,
        description=new.description,
        limit=new.limit,
        permission=new.permission,
        audience=new.audience,
        pinned=new.pinned,
        shared_with=new.shared_with,
    )


@endpoint("GET", f"{_OF_AGENT}/{{label}}", "blocks.get", answer=BLOCK, edits=True)
async def get_block(call: ApiCall) -> Any:
    """Return a block that an agent sees."""
    return block_view(await call.home.blocks.get(call.path["agent"], call.path["label"]))


@endpoint(
    "POST",
    f"{_OF_AGENT}/{{label}}/edits",
    "blocks.write",
    body=BlockEdit,
    answer=BLOCK,
    edits=True,
    conditional=True,
)
async def edit_block(call: ApiCall) -> Any:
    """Edit the content of a block, undo an edit, or restore a version."""
    return await _write_block(call, _block_write(call.body), call.body.reason)


@endpoint(
    "PATCH",
    f"{_OF_AGENT}/{{label}}",
    "blocks.write",
    body=BlockChange,
    answer=BLOCK,
    edits=True,
    conditional=True,
)
async def change_block(call: ApiCall) -> Any:
    """Change what a block is called, who may see it, and what may be done to it."""
    change: BlockChange = call.body
    home = call.home
    describe = Describe(
        description=change.description,
        type=change.kind,
        limit=change.limit,
        permission=change.permission,
        audience=await home.people.audience(change.audience) if change.audience else None,
        pinned=change.pinned,
        schema=read_schema(change.json_schema) if change.json_schema else None,
        label=change.label,
    )
    return await _write_block(call, describe, change.reason, label=change.label)


@endpoint(
    "PUT",
    f"{_OF_AGENT}/{{label}}/shares/{{other}}",
    "blocks.write",
    body=BlockSharing,
    answer=BLOCK,
    edits=True,
    conditional=True,
)
async def share_block(call: ApiCall) -> Any:
    """Share a block with another agent, or end that."""
    other = await call.home.agents.get(call.path["other"])
    permission = call.body.permission
    write = Share(other.id, permission) if permission is not None else Unshare(other.id)
    return await _write_block(call, write, "")


@endpoint("DELETE", f"{_OF_AGENT}/{{label}}", "blocks.write", conditional=True)
async def retire_block(call: ApiCall) -> None:
    """Archive a block; its history stays."""
    agent, label = call.path["agent"], call.path["label"]
    seen = await call.home.blocks.get(agent, label)
    check_unchanged(call, block_view(seen))
    version = seen.block.version if is_conditional(call) else None
    await call.home.blocks.write(agent, label, Retire(), version=version)


async def _write_block(
    call: ApiCall, write: BlockWrite, reason: str, label: str | None = None
) -> dict[str, Any]:
    agent, former = call.path["agent"], call.path["label"]
    seen = await call.home.blocks.get(agent, former)
    check_unchanged(call, block_view(seen))
    version = seen.block.version if is_conditional(call) else None
    await call.home.blocks.write(agent, former, write, reason=reason, version=version)
    if isinstance(write, Retire):
        raise NotFound(f"Block {former!r} is archived now.")
    return block_view(await call.home.blocks.get(agent, label or former))


@endpoint(
    "GET",
    f"{_OF_AGENT}/{{label}}/history",
    "blocks.history",
    query=HistoryQuery,
    answer=list_of(EditRecord),
)
async def block_history(call: ApiCall) -> Any:
    """List the edits of a block, the newest first."""
    query: HistoryQuery = call.query
    found = await call.home.blocks.history(
        call.path["agent"],
        call.path["label"],
        limit=query.limit + 1,
        before=query.cursor or query.before,
    )
    return _page_by(found, query, lambda edit: str(edit.number))


@endpoint(
    "GET",
    f"{_OF_AGENT}/{{label}}/lines",
    "blocks.at",
    query=VersionQuery,
    answer=list_of(Line),
)
async def block_lines(call: ApiCall) -> Any:
    """Return the lines of a block, now, at a version or at a moment."""
    query: VersionQuery = call.query
    lines = await call.home.blocks.at(
        call.path["agent"],
        call.path["label"],
        version=query.version,
        moment=_moment(query.moment),
    )
    return {"items": lines, "next": None}


@endpoint(
    "GET",
    f"{_OF_AGENT}/{{label}}/diff",
    "blocks.diff",
    query=DiffQuery,
    answer=Shape("BlockDiff", None, "How two versions differ.", diff=str),
)
async def diff_block(call: ApiCall) -> Any:
    """Return how a block differs between two versions, as a unified diff."""
    query: DiffQuery = call.query
    agent, label = call.path["agent"], call.path["label"]
    return {"diff": await call.home.blocks.diff(agent, label, query.a, query.b)}


@endpoint(
    "GET", f"{_OF_AGENT}/{{label}}/blame", "blocks.blame", answer=list_of(ANY, "LineWithEdits")
)
async def blame_block(call: ApiCall) -> Any:
    """Return each line of a block with the edits that it comes from; the list is whole."""
    lines = await call.home.blocks.blame(call.path["agent"], call.path["label"])
    return {"items": blame_view(lines), "next": None}


# -- archive ---------------------------------------------------------------------------------------


class PassagesQuery(Body):
    """Which passages."""

    tag: TagName | None = None
    moment: When | None = None
    limit: int = Field(50, ge=1, le=500)
    cursor: str | None = Field(None, max_length=200)


class NewPassageBody(Body):
    """A passage that is to be kept."""

    text: SomeText
    tags: list[TagName] = Field(default_factory=list, max_length=100)
    metadata: dict[str, Any] = Field(default_factory=dict)
    true_from: When | None = None
    supersedes: str | None = Field(None, max_length=200)
    audience: str = Field("owner", max_length=1_000)


class PassageChange(Body):
    """What is changed of a passage."""

    append: SomeText | None = None
    tags: list[TagName] | None = Field(None, max_length=100)


@endpoint(
    "GET",
    "/agents/{agent}/passages",
    "archive.list",
    query=PassagesQuery,
    answer=list_of(Passage),
)
async def list_passages(call: ApiCall) -> Any:
    """List the passages of an agent, newest first."""
    query: PassagesQuery = call.query
    found = await call.home.archive.list(
        call.path["agent"],
        tag=query.tag,
        moment=_moment(query.moment),
        limit=query.limit + 1,
        before=query.cursor,
    )
    shown = found[: query.limit]
    return {"items": shown, "next": shown[-1].id if len(found) > query.limit else None}


@endpoint(
    "POST",
    "/agents/{agent}/passages",
    "archive.add",
    body=NewPassageBody,
    answer=ANY,
    status=201,
)
async def add_passage(call: ApiCall) -> Any:
    """Keep a passage in an agent's archive."""
    new: NewPassageBody = call.body
    return await call.home.archive.add(
        call.path["agent"],
        new.text,
        tags=new.tags,
        metadata=new.metadata,
        true_from=_moment(new.true_from),
        supersedes=new.supersedes,
        audience=new.audience,
    )


@endpoint("GET", "/passages/{passage}", "archive.get", answer=Passage, edits=True)
async def get_passage(call: ApiCall) -> Any:
    """Return a passage."""
    return await call.home.archive.get(call.path["passage"])


@endpoint(
    "PATCH",
    "/passages/{passage}",
    "archive.edit",
    body=PassageChange,
    answer=Passage,
    edits=True,
    conditional=True,
)
async def change_passage(call: ApiCall) -> Any:
    """Add text to a passage, or give it other tags."""
    change: PassageChange = call.body
    expected = await _unchanged_passage(call)
    return await call.home.archive.edit(
        call.path["passage"], append=change.append, tags=change.tags, expected=expected
    )


async def _unchanged_passage(call: ApiCall) -> Passage | None:
    """Return the passage as it must still be if there is If-Match."""
    if not is_conditional(call):
        return None
    passage = await call.home.archive.get(call.path["passage"])
    check_unchanged(call, passage)
    return passage


@endpoint("DELETE", "/passages/{passage}", "archive.retract", conditional=True)
async def retract_passage(call: ApiCall) -> None:
    """Hold a passage to be true no longer; it stays in the history."""
    expected = await _unchanged_passage(call)
    await call.home.archive.retract(call.path["passage"], expected=expected)


@endpoint(
    "GET",
    "/passages/{passage}/history",
    "archive.history",
    query=Paging,
    answer=list_of(PassageEdit),
)
async def passage_history(call: ApiCall) -> Any:
    """List the edits of a passage, the first one first."""
    return _paged(await call.home.archive.history(call.path["passage"]), call.query)


# -- search ----------------------------------------------------------------------------------------


class SearchBody(Body):
    """What is looked for, and where."""

    text: Text
    agent: str | None = Field(None, max_length=200)
    domains: list[Literal["messages", "passages", "documents", "blocks", "summaries"]] | None = None
    speaker: str | None = Field(None, max_length=200)
    role: Literal["user", "assistant"] | None = None
    since: When | None = None
    until: When | None = None
    tags: list[Name] = Field(default_factory=list, max_length=100)
    source: str | None = Field(None, max_length=200)
    limit: int = Field(10, ge=1, le=200)
    offset: int = Field(0, ge=0, le=10_000)
    moment: When | None = None
    neighbours: int = Field(0, ge=0, le=20)


@endpoint("POST", "/search", "search.__call__", body=SearchBody, answer=ANY, keyed=False)
async def search(call: ApiCall) -> Any:
    """Return what memory has on a query, the best first."""
    query: SearchBody = call.body
    return await call.home.search(
        query.agent,
        query.text,
        domains=query.domains or DOMAINS,
        speaker=query.speaker,
        role=query.role,
        since=_moment(query.since),
        until=_moment(query.until),
        tags=query.tags,
        source=query.source,
        limit=query.limit,
        offset=query.offset,
        moment=_moment(query.moment),
        neighbours=query.neighbours,
    )


# -- approvals and grants --------------------------------------------------------------------------


class ApprovalsQuery(PositionPaging):
    """Which approvals."""

    answered: bool = False
    limit: int = Field(100, ge=1, le=500)


class ApprovalDecision(Body):
    """The answer to a question."""

    approved: bool
    note: str | None = Field(None, max_length=10_000)
    arguments: dict[str, Any] | None = None
    grant: Literal["turn", "recipient", "always"] | None = None


class GrantsQuery(Paging):
    """Which grants."""

    agent: str | None = Field(None, max_length=200)
    everything: bool = False


class NewGrant(Body):
    """A permission for more than one call."""

    tool: Name
    agent: str | None = Field(None, max_length=200)
    pattern: dict[str, str] = Field(default_factory=dict)
    until: When | None = None
    uses: int | None = Field(None, ge=1)
    amount: float | None = Field(None, ge=0)
    per_day: int | None = Field(None, ge=1)


@endpoint("GET", "/approvals", "approvals.list", query=ApprovalsQuery, answer=list_of(APPROVAL))
async def list_approvals(call: ApiCall) -> Any:
    """List the questions that wait for an answer, or those that were answered."""
    names = await agent_names(call.home)
    query: ApprovalsQuery = call.query
    approvals = call.home.approvals
    found = (
        await approvals.answered(limit=query.limit + 1, before=query.cursor)
        if query.answered
        else await approvals.list(limit=query.limit + 1, after=query.cursor)
    )
    return _page_by(found, query, lambda one: one.id, lambda one: approval_view(one, names))


@endpoint("GET", "/approvals/{approval}", "approvals.show", answer=APPROVAL_DETAILS)
async def get_approval(call: ApiCall) -> Any:
    """Return a question with who may answer it."""
    details = await call.home.approvals.show(call.path["approval"])
    return approval_details_view(details, await agent_names(call.home))


@endpoint(
    "POST",
    "/approvals/{approval}/decision",
    "approvals.decide",
    body=ApprovalDecision,
    answer=Receipt,
)
async def decide_approval(call: ApiCall) -> Any:
    """Answer a question; the turn that asked goes on."""
    decision: ApprovalDecision = call.body
    return await call.home.approvals.decide(
        call.path["approval"],
        approved=decision.approved,
        note=decision.note,
        arguments=decision.arguments,
        grant=decision.grant,
    )


@endpoint("GET", "/grants", "grants.list", query=GrantsQuery, answer=list_of(GRANT))
async def list_grants(call: ApiCall) -> Any:
    """List the grants that count, or all there ever were."""
    names = await agent_names(call.home)
    found = await call.home.grants.list(call.query.agent, everything=call.query.everything)
    return _paged([grant_view(grant, names) for grant in found], call.query)


@endpoint("POST", "/grants", "grants.give", body=NewGrant, answer=Grant, status=201)
async def give_grant(call: ApiCall) -> Any:
    """Let an agent call a tool without asking each time."""
    new: NewGrant = call.body
    return await call.home.grants.give(
        new.tool,
        agent=new.agent,
        pattern=new.pattern,
        until=_moment(new.until),
        uses=new.uses,
        amount=new.amount,
        per_day=new.per_day,
    )


@endpoint("DELETE", "/grants/{grant}", "grants.revoke")
async def revoke_grant(call: ApiCall) -> None:
    """Take a grant back."""
    await call.home.grants.revoke(call.path["grant"])


# -- schedules, notices, deliveries ----------------------------------------------------------------


class NewSchedule(Body):
    """A message that an agent gets later."""

    when: str = Field(
        min_length=1,
        max_length=200,
        description='Such as "tomorrow at 9", "every Monday at 8" or an ISO 8601 time.',
    )
    text: SomeText
    quiet: str | None = Field(
        None,
        max_length=40,
        description='Hours in which it does not come, such as "22:00-08:00".',
    )


class NoticesQuery(PositionPaging):
    """Which notices."""

    unseen: bool = True
    limit: int = Field(100, ge=1, le=500)


class SeenNotices(Body):
    """Notices that the owner has seen."""

    ids: list[Name] = Field(min_length=1, max_length=1_000)


class DeliveriesQuery(PositionPaging):
    """Which deliveries."""

    state: Literal["waiting", "dead", "sent"] | None = None
    limit: int = Field(100, ge=1, le=500)


@endpoint("GET", "/schedules", "schedules.list", query=Paging, answer=list_of(SCHEDULE))
async def list_all_schedules(call: ApiCall) -> Any:
    """List the schedules of all agents, the next one first."""
    agents = {agent.id: agent for agent in await call.home.agents.list(archived=None)}
    found = await call.home.schedules.list()
    shapes = [
        schedule_view(agents[schedule.agent_id], schedule)
        for schedule in found
        if schedule.agent_id in agents  # not deleted in between
    ]
    return _paged(shapes, call.query)


@endpoint(
    "GET", "/agents/{agent}/schedules", "schedules.list", query=Paging, answer=list_of(SCHEDULE)
)
async def list_schedules(call: ApiCall) -> Any:
    """List the schedules of an agent, the next one first."""
    agent = await call.home.agents.get(call.path["agent"])
    found = await call.home.schedules.list(agent)
    return _paged([schedule_view(agent, schedule) for schedule in found], call.query)


@endpoint(
    "POST",
    "/agents/{agent}/schedules",
    "schedules.add",
    body=NewSchedule,
    answer=Schedule,
    status=201,
)
async def add_schedule(call: ApiCall) -> Any:
    """Send an agent a message later, once or by a rule."""
    body = call.body
    return await call.home.schedules.add(call.path["agent"], body.when, body.text, quiet=body.quiet)


@endpoint("DELETE", "/schedules/{schedule}", "schedules.cancel")
async def cancel_schedule(call: ApiCall) -> None:
    """Take a schedule back."""
    await call.home.schedules.cancel(call.path["schedule"])


@endpoint("GET", "/notices", "notices.list", query=NoticesQuery, answer=list_of(Notice))
async def list_notices(call: ApiCall) -> Any:
    """List what the owner must be told."""
    query: NoticesQuery = call.query
    found = await call.home.notices.list(
        unseen=query.unseen, limit=query.limit + 1, after=query.cursor
    )
    return _page_by(found, query, lambda notice: notice.id)


@endpoint("GET", "/alerts", "alerts.list", answer=list_of(Alert))
async def list_alerts(call: ApiCall) -> Any:
    """List what is wrong with the home now; the list is whole."""
    return {"items": await call.home.alerts.list(), "next": None}


@endpoint("POST", "/notices/seen", "notices.mark_seen", body=SeenNotices)
async def mark_notices_seen(call: ApiCall) -> None:
    """Note that the owner has seen some notices."""
    await call.home.notices.mark_seen(call.body.ids)


@endpoint("GET", "/outbox", "outbox.list", query=DeliveriesQuery, answer=list_of(Delivery))
async def list_deliveries(call: ApiCall) -> Any:
    """List what must go out to channels."""
    query: DeliveriesQuery = call.query
    found = await call.home.outbox.list(query.state, limit=query.limit + 1, after=query.cursor)
    return _page_by(found, query, lambda delivery: delivery.key)


@endpoint("POST", "/outbox/{key}/retry", "outbox.retry")
async def retry_delivery(call: ApiCall) -> None:
    """Try a delivery again that was given up."""
    await call.home.outbox.retry(call.path["key"])


# -- people ----------------------------------------------------------------------------------------


class NewPerson(Body):
    """A person who is introduced."""

    name: Name
    trust: Literal["known", "stranger"] = "known"
    roles: list[Name] = Field(default_factory=list, max_length=100)


class PersonChange(Body):
    """What is changed of a person; what is left out stays."""

    name: Name | None = None
    trust: Literal["known", "stranger"] | None = None
    roles: list[Name] | None = Field(None, max_length=100)


class AccountBody(Body):
    """An account of a person."""

    account: str = Field(
        max_length=400, pattern=r"^[^:\s]+:\S+$", description="As `channel:sender`."
    )


class OtherPerson(Body):
    """Another person."""

    person: Name


@endpoint("GET", "/people", "people.list", query=Paging, answer=list_of(Person))
async def list_people(call: ApiCall) -> Any:
    """List everybody who is known, the owner first."""
    return _paged(await call.home.people.list(), call.query)


@endpoint("POST", "/people", "people.create", body=NewPerson, answer=Person, status=201, edits=True)
async def create_person(call: ApiCall) -> Any:
    """Introduce a person."""
    new: NewPerson = call.body
    return await call.home.people.create(new.name, trust=Trust(new.trust), roles=new.roles)


@endpoint("GET", "/people/{person}", "people.get", answer=Person, edits=True)
async def get_person(call: ApiCall) -> Any:
    """Return a person by name or id."""
    return await call.home.people.get(call.path["person"])


@endpoint(
    "PATCH",
    "/people/{person}",
    "people.edit",
    body=PersonChange,
    answer=Person,
    edits=True,
    conditional=True,
)
async def change_person(call: ApiCall) -> Any:
    """Rename a person, or say how far they are trusted and which roles they have."""
    change: PersonChange = call.body
    person = await call.home.people.get(call.path["person"])
    check_unchanged(call, person)
    return await call.home.people.edit(
        person.id,
        name=change.name,
        trust=Trust(change.trust) if change.trust is not None else None,
        roles=change.roles,
        expected=person if is_conditional(call) else None,
    )


@endpoint("POST", "/people/{person}/accounts", "people.link", body=AccountBody, answer=Person)
async def link_account(call: ApiCall) -> Any:
    """Link an account to a person."""
    return await call.home.people.link(call.path["person"], call.body.account)


@endpoint("DELETE", "/accounts/{account}", "people.unlink")
async def unlink_account(call: ApiCall) -> None:
    """Unlink an account from its person."""
    await call.home.people.unlink(call.path["account"])


@endpoint("POST", "/people/{person}/merge", "people.merge", body=OtherPerson, answer=Person)
async def merge_people(call: ApiCall) -> Any:
    """Make one person of two."""
    return await call.home.people.merge(call.path["person"], call.body.person)


@endpoint("GET", "/rooms", "people.rooms", answer=list_of(Room))
async def list_rooms(call: ApiCall) -> Any:
    """List the rooms of channels, and who is known to be in each."""
    return {"items": await call.home.people.rooms(), "next": None}


@endpoint("GET", "/rooms/{room}", "people.room", answer=Room)
async def get_room(call: ApiCall) -> Any:
    """Return a room by its name, as `channel:room`."""
    return await call.home.people.room(call.path["room"])


@endpoint("DELETE", "/rooms/{room}/people/{person}", "people.leave_room")
async def leave_room(call: ApiCall) -> None:
    """Note that somebody has left a room."""
    await call.home.people.leave_room(call.path["room"], call.path["person"])


# -- tools and rules -------------------------------------------------------------------------------


class HttpRequest(Body):
    """The request that a registered tool makes."""

    url: str = Field(max_length=4_000)
    method: str = Field("POST", max_length=10)
    headers: dict[str, str] = Field(default_factory=dict)


class NewTool(Body):
    """A tool that is registered, as source or as a request."""

    name: Name
    description: Text
    json_schema: dict[str, Any]
    python: Text | None = None
    http: HttpRequest | None = None
    effects: list[dict[str, Any]] | None = None
    trust: str = Field("tool", max_length=40)
    retry_safety: str = Field("unknown", max_length=40)
    ask: bool = False
    timeout: float = Field(30.0, gt=0, le=3_600)
    audience: str = Field("owner", max_length=1_000)


class ToolArguments(Body):
    """What a tool is tested with."""

    arguments: dict[str, Any] = Field(default_factory=dict)


class RuleForms(Body):
    """Rules for the calls of an agent."""

    rules: list[dict[str, Any]] = Field(max_length=200)


@endpoint("GET", "/tools", "tools.offered", answer=list_of(ANY, "OfferedTool"))
async def list_offered_tools(call: ApiCall) -> Any:
    """List all tools as models see them."""
    return {"items": await call.home.tools.offered(), "next": None}


@endpoint("GET", "/registered-tools", "tools.list", answer=list_of(RegisteredTool))
async def list_registered_tools(call: ApiCall) -> Any:
    """List the registered tools."""
    return {"items": await call.home.tools.list(), "next": None}


@endpoint("POST", "/registered-tools", "tools.add", body=NewTool, answer=RegisteredTool, status=201)
async def register_tool(call: ApiCall) -> Any:
    """Register a tool, or a new version of one."""
    new: NewTool = call.body
    http = HttpCall(new.http.url, new.http.method, new.http.headers) if new.http else None
    return await call.home.tools.add(
        new.name,
        new.description,
        new.json_schema,
        python=new.python,
        http=http,
        effects=new.effects,
        trust=new.trust,
        retry_safety=new.retry_safety,
        ask=new.ask,
        timeout=new.timeout,
        audience=new.audience,
        by="api",
    )


@endpoint(
    "GET", "/registered-tools/{tool}/versions", "tools.versions", answer=list_of(RegisteredTool)
)
async def tool_versions(call: ApiCall) -> Any:
    """List all versions of a registered tool, the newest first."""
    return {"items": await call.home.tools.versions(call.path["tool"]), "next": None}


@endpoint(
    "POST", "/registered-tools/{tool}/test", "tools.test", body=ToolArguments, answer=ToolResult
)
async def test_tool(call: ApiCall) -> Any:
    """Run a registered tool once, in its sandbox, and return its result."""
    return await call.home.tools.test(call.path["tool"], call.body.arguments)


@endpoint("DELETE", "/registered-tools/{tool}", "tools.remove")
async def remove_tool(call: ApiCall) -> None:
    """Offer a registered tool no more."""
    await call.home.tools.remove(call.path["tool"])


@endpoint("GET", "/agents/{agent}/rules", "rules.list", answer=list_of(ANY, "RuleForm"))
async def list_rules(call: ApiCall) -> Any:
    """List the rules for the calls of an agent."""
    return _rules(await call.home.rules.list(call.path["agent"]))


@endpoint(
    "PUT",
    "/agents/{agent}/rules",
    "rules.set",
    body=RuleForms,
    answer=list_of(ANY, "RuleForm"),
)
async def set_rules(call: ApiCall) -> Any:
    """Replace the rules of an agent."""
    return _rules(await call.home.rules.set(call.path["agent"], call.body.rules))


def _rules(rules: Sequence[Any]) -> dict[str, Any]:
    items = [rule_view(number, rule) for number, rule in enumerate(rules, 1)]
    return {"items": items, "next": None}


# -- sources ---------------------------------------------------------------------------------------


class NewSource(Body):
    """A folder or a file of the server's machine that is read."""

    name: Name
    path: str = Field(min_length=1, max_length=4_000)
    agents: list[Name] = Field(default_factory=list, max_length=1_000)
    include: list[str] = Field(default_factory=list, max_length=100)
    exclude: list[str] = Field(default_factory=list, max_length=100)
    audience: str = Field("owner", max_length=1_000)


class AfterQuery(Body):
    """A page of documents."""

    limit: int = Field(50, ge=1, le=500)
    cursor: str = Field("", max_length=4_000)


@endpoint("GET", "/sources", "sources.list", answer=list_of(ANY, "SourceOfHome"))
async def list_sources(call: ApiCall) -> Any:
    """List the folders of documents."""
    names = await agent_names(call.home)
    found = await call.home.sources.list()
    return {"items": [source_view(state, names) for state in found], "next": None}


@endpoint("POST", "/sources", "sources.add", body=NewSource, answer=DocumentSource, status=201)
async def add_source(call: ApiCall) -> Any:
    """Add a folder or a file of the server's machine."""
    new: NewSource = call.body
    return await call.home.sources.add(
        new.name,
        new.path,
        agents=new.agents,
        include=new.include,
        exclude=new.exclude,
        audience=new.audience,
    )


@endpoint("GET", "/sources/{source}", "sources.get", answer=DocumentSource)
async def get_source(call: ApiCall) -> Any:
    """Return a source by its name."""
    return await call.home.sources.get(call.path["source"])


@endpoint(
    "GET",
    "/sources/{source}/documents",
    "sources.documents",
    query=AfterQuery,
    answer=list_of(SourceDocument),
)
async def list_documents(call: ApiCall) -> Any:
    """List the documents of a source by their paths."""
    query: AfterQuery = call.query
    found = await call.home.sources.documents(
        call.path["source"], after=query.cursor, limit=query.limit + 1
    )
    shown = found[: query.limit]
    return {"items": shown, "next": shown[-1].path if len(found) > query.limit else None}


@endpoint("POST", "/sources/{source}/sync", "sources.sync", answer=ANY)
async def sync_source(call: ApiCall) -> Any:
    """Read what has changed in a source."""
    return await call.home.sources.sync(call.path["source"])


@endpoint("PUT", "/sources/{source}/files/{file}", "sources.upload", answer=ANY, upload=True)
async def upload_file(call: ApiCall) -> Any:
    """Put a file into a source, as the body of the request, and read it."""
    check_length(call.request, MAX_UPLOAD)
    return await call.home.sources.upload(
        call.path["source"], call.path["file"], call.request.stream()
    )


@endpoint("POST", "/sources/{source}/files", "sources.upload", answer=ANY, upload=True)
async def upload_files(call: ApiCall) -> Any:
    """Put files into a source, as a form (multipart), and read them."""
    results: dict[str, Any] = {}
    async with bounded(call.request, MAX_FORM).form(max_files=20, max_fields=20) as form:
        files = [part for _, part in form.multi_items() if isinstance(part, UploadFile)]
        if not files:
            raise InvalidInput(
                "The form has no file. Send multipart/form-data with at least one part that has a "
                "file name. Nothing was stored."
            )
        for file in files:
            results[file.filename or ""] = await call.home.sources.upload(
                call.path["source"], file.filename or "", _parts(file)
            )
    return results


MAX_FORM = 200 << 20
"""Bytes of all files of a form."""


async def _parts(file: UploadFile) -> AsyncGenerator[bytes, None]:
    while part := await file.read(1 << 16):
        yield part


@endpoint("POST", "/sources/{source}/pause", "sources.pause")
async def pause_source(call: ApiCall) -> None:
    """Read a source no more until it is resumed."""
    await call.home.sources.pause(call.path["source"])


@endpoint("POST", "/sources/{source}/resume", "sources.resume")
async def resume_source(call: ApiCall) -> None:
    """Read a paused source again."""
    await call.home.sources.resume(call.path["source"])


@endpoint("PUT", "/sources/{source}/agents/{agent}", "sources.attach")
async def attach_source(call: ApiCall) -> None:
    """Let an agent search a source."""
    await call.home.sources.attach(call.path["source"], call.path["agent"])


@endpoint("DELETE", "/sources/{source}/agents/{agent}", "sources.detach")
async def detach_source(call: ApiCall) -> None:
    """Let an agent search a source no more."""
    await call.home.sources.detach(call.path["source"], call.path["agent"])


@endpoint("DELETE", "/sources/{source}", "sources.remove")
async def remove_source(call: ApiCall) -> None:
    """Remove a source and what was read of it; its files stay."""
    await call.home.sources.remove(call.path["source"])


# -- memory ----------------------------------------------------------------------------------------


class WhyQuery(Body):
    """Which memory."""

    ref: str = Field(min_length=1, max_length=400)
    agent: str | None = Field(None, max_length=200)


class MomentQuery(Body):
    """When."""

    moment: When
    most: int = Field(100, ge=1, le=10_000, description="How many passages, the latest first.")


class ForgetBody(Body):
    """What is to be forgotten; at least one of these."""

    texts: list[SomeText] = Field(default_factory=list, max_length=100)
    passages: list[Name] = Field(default_factory=list, max_length=1_000)
    turns: list[Name] = Field(default_factory=list, max_length=1_000)
    persons: list[Name] = Field(default_factory=list, max_length=100)
    sources: list[Name] = Field(default_factory=list, max_length=100)
    blocks: list[Name] = Field(default_factory=list, max_length=100)
    agents: list[Name] = Field(default_factory=list, max_length=100)
    reason: str = Field("", max_length=2_000)


class MemoryDocument(Body):
    """A document that an export has made."""

    document: dict[str, Any]
    dry_run: bool = False


@endpoint("GET", "/memory/why", "memory.why", query=WhyQuery, answer=ANY)
async def why(call: ApiCall) -> Any:
    """Return where a memory comes from."""
    return await call.home.memory.why(call.query.ref, agent=call.query.agent)


@endpoint("GET", "/agents/{agent}/health", "memory.health", answer=ANY)
async def memory_health(call: ApiCall) -> Any:
    """Return the problems of an agent's memory."""
    return health_view(await call.home.memory.health(call.path["agent"]))


@endpoint("GET", "/agents/{agent}/memory", "memory.export", answer=ANY)
async def export_memory(call: ApiCall) -> Any:
    """Export an agent's memory as a document."""
    return await call.home.memory.export(call.path["agent"])


@endpoint("GET", "/agents/{agent}/memory/at", "memory.as_of", query=MomentQuery, answer=ANY)
async def memory_at(call: ApiCall) -> Any:
    """Return what an agent remembered at a moment: its blocks, passages and sources."""
    query: MomentQuery = call.query
    moment = _moment(query.moment)
    assert moment is not None
    return await call.home.memory.as_of(call.path["agent"], moment, most=query.most)


@endpoint("POST", "/agents/{agent}/memory", "memory.import_", body=MemoryDocument, answer=ANY)
async def import_memory(call: ApiCall) -> Any:
    """Import a document that an export has made."""
    new: MemoryDocument = call.body
    return await call.home.memory.import_(call.path["agent"], new.document, dry_run=new.dry_run)


@endpoint("POST", "/memory/forget", "memory.forget", body=ForgetBody, answer=ForgetReceipt)
async def forget(call: ApiCall) -> Any:
    """Forget something everywhere, and return the receipt."""
    body: ForgetBody = call.body
    what = Forgetting(
        texts=tuple(body.texts),
        passages=tuple(body.passages),
        turns=tuple(body.turns),
        persons=tuple(body.persons),
        sources=tuple(body.sources),
        blocks=tuple(body.blocks),
        agents=tuple(body.agents),
    )
    return await call.home.memory.forget(what, reason=body.reason)


@endpoint("GET", "/memory/receipts", "memory.receipts", query=Paging, answer=list_of(ForgetReceipt))
async def list_receipts(call: ApiCall) -> Any:
    """List the receipts of everything that was forgotten, the newest first."""
    return _paged(await call.home.memory.receipts(), call.query)


# -- the home: halts, spending, audit, status ------------------------------------------------------


class HaltBody(Body):
    """Why everything stops."""

    reason: str = Field("Halted over the API.", max_length=2_000, pattern=r"\S")


class SpendQuery(Body):
    """Which spending."""

    days: int = Field(30, ge=1, le=3_660)
    agent: str | None = Field(None, max_length=200)
    by: SpendBy = SpendBy.AGENT


class AuditQuery(Body):
    """Which events."""

    agent: str | None = Field(None, max_length=200)
    kind: str | None = Field(None, max_length=100)
    actor: str | None = Field(None, max_length=200)
    turn: str | None = Field(None, max_length=200)
    since: When | None = None
    until: When | None = None
    limit: int = Field(50, ge=1, le=500)
    cursor: str | None = Field(None, max_length=300, pattern=r"^\S+:[0-9]{1,12}$")


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


@endpoint("GET", "/spending", "spending.report", query=SpendQuery, answer=ANY)
async def spending(call: ApiCall) -> Any:
    """Return what models have cost, and how much of each cap is used."""
    query: SpendQuery = call.query
    return spend_view(await call.home.spending.report(query.days, agent=query.agent), query.by)


@endpoint("GET", "/spending/caps", "spending.caps", answer=list_of(CAP))
async def spending_caps(call: ApiCall) -> Any:
    """List the caps, and how much of each is used in its day or month; the list is whole."""
    return {"items": [cap_view(cap) for cap in await call.home.spending.caps()], "next": None}


@endpoint("GET", "/audit", "audit.list", query=AuditQuery, answer=list_of(EVENT))
async def list_events(call: ApiCall) -> Any:
    """List events of the audit log, the newest first."""
    query: AuditQuery = call.query
    audit = call.home.audit
    before = await audit.get(query.cursor) if query.cursor else None
    found = await audit.list(
        agent=query.agent,
        kind=query.kind,
        actor=query.actor,
        turn=query.turn,
        since=_moment(query.since),
        until=_moment(query.until),
        limit=query.limit + 1,
        before=before,
    )
    names = await audit.names()
    items = [event_view(event, names) for event in found[: query.limit]]
    return {"items": items, "next": items[-1]["event"] if len(found) > query.limit else None}


@endpoint("GET", "/audit/verification", "audit.verify", answer=ANY)
async def verify_audit(call: ApiCall) -> Any:
    """Tell whether the audit log is as it was written."""
    return verification_view(await call.home.audit.verify())


@endpoint("GET", "/audit/export", "audit.export", media=JSON_LINES)
async def export_audit(call: ApiCall) -> Any:
    """Return the whole log, chain by chain, each event as a line of JSON."""
    await call.home.check_verb("audit.export")  # before the answer begins
    lines = (line.encode() async for line in call.home.audit.export())
    return EventStream(lines, 200, media_type=JSON_LINES)


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
    return {"items": await call.home.keys.list(), "next": None}


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
    return {"items": [mcp_server_view(server, server.problem) for server in found], "next": None}


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
    return {"items": [_backup_view(backup) for backup in found], "next": None}


@endpoint("POST", "/backups", "backups.create", body=NewBackup, answer=BACKUP, status=201)
async def create_backup(call: ApiCall) -> Any:
    """Make a backup of everything that makes up the home, while turns go on."""
    new: NewBackup = call.body
    made = await call.home.backups.create(note=new.note, passphrase=new.passphrase)
    return _backup_view(made)


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


# -- tokens and users ------------------------------------------------------------------------------


class NewTokenBody(Body):
    """A token that is to be made."""

    name: Name
    role: Literal["owner", "admin", "editor", "operator", "partner", "viewer", "agent-service"] = (
        "owner"
    )
    scopes: list[Literal["read", "talk", "append", "overwrite", "delete", "govern"]] = Field(
        default_factory=list, max_length=6
    )
    agents: list[Name] = Field(default_factory=list, max_length=1_000)
    person: str | None = Field(None, max_length=200)
    expires_at: When | None = None
    constellation: str | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="Another constellation of the server; None: your own.",
    )


class PasswordBody(Body):
    """A new password."""

    password: str = Field(min_length=10, max_length=1_000)


TOKEN = Shape(
    "AccessTokenOfHome", AccessToken, agents=list[str], agent_ids=list[str], person=str | None
)


async def _token(call: ApiCall, token: AccessToken) -> dict[str, Any]:
    return access_token_view(token, await agent_names(call.home), await person_names(call.home))


@endpoint("GET", "/tokens", "tokens.list", query=Paging, answer=list_of(TOKEN))
async def list_tokens(call: ApiCall) -> Any:
    """List the tokens; their secrets are stored nowhere."""
    page = _paged(await call.home.tokens.list(), call.query)
    agents, persons = await agent_names(call.home), await person_names(call.home)
    items = [access_token_view(token, agents, persons) for token in page["items"]]
    return {**page, "items": items}


@endpoint("GET", "/tokens/{token}", "tokens.get", answer=TOKEN)
async def get_token(call: ApiCall) -> Any:
    """Return a token by its name or id, without its secret."""
    return await _token(call, await call.home.tokens.get(call.path["token"]))


@endpoint(
    "POST",
    "/tokens",
    "tokens.create",
    body=NewTokenBody,
    answer=Shape("NewTokenOfHome", None, "A token and its secret.", token=TOKEN, secret=str),
    status=201,
)
async def create_token(call: ApiCall) -> Any:
    """Make a token; its secret is told this once."""
    new: NewTokenBody = call.body
    made = await call.home.tokens.create(
        new.name,
        role=new.role,
        scopes=new.scopes,
        agents=new.agents,
        person=new.person,
        expires_at=_moment(new.expires_at),
        constellation=new.constellation,
    )
    return {"token": await _token(call, made.token), "secret": made.secret}


@endpoint("DELETE", "/tokens/{token}", "tokens.revoke")
async def revoke_token(call: ApiCall) -> None:
    """End a token."""
    await call.home.tokens.revoke(call.path["token"])


@endpoint("GET", "/users", "users.list", answer=list_of(ANY, "User"))
async def list_users(call: ApiCall) -> Any:
    """List who can log in at the web page."""
    return {"items": await call.home.users.list(), "next": None}


@endpoint("PUT", "/users/{person}/password", "users.set_password", body=PasswordBody)
async def set_password(call: ApiCall) -> None:
    """Let the owner or a person log in with a password; their sessions end."""
    await call.home.users.set_password(call.path["person"], call.body.password)


@endpoint("DELETE", "/users/{person}", "users.remove")
async def remove_user(call: ApiCall) -> None:
    """Let somebody log in no more."""
    await call.home.users.remove(call.path["person"])


# -- logging in ------------------------------------------------------------------------------------


class LogIn(Body):
    """Who logs in at the web page."""

    name: str = Field(min_length=1, max_length=80)
    password: str = Field(min_length=1, max_length=1_000)
    constellation: str | None = Field(
        None, min_length=1, max_length=100, description="None: the server's own."
    )


CALLER = Shape(
    "CurrentCaller",
    Caller,
    csrf=str | None,
    expires_at=int | None,
)


@endpoint("POST", "/login", OPEN, body=LogIn, answer=CALLER, keyed=False)
async def log_in(call: ApiCall) -> Any:
    """Log in at the web page: sets the cookie of a session, and returns its CSRF token."""
    request, given = call.request, call.body
    server: Asterism = request.app.state.server
    client = request.client.host if request.client is not None else ""
    secure = request.url.scheme == "https"
    if not secure and not is_loopback(client):
        raise NotAllowed(
            "Over a network, log in over HTTPS: without it, others can read the password and the "
            "cookie. Put a proxy with TLS in front of the server. Nothing was checked."
        )
    origin = request.headers.get("origin")
    host = request.headers.get("host", "").encode("latin-1")
    if origin is not None and not is_own_origin(request.url.scheme, origin.encode("latin-1"), host):
        raise NotAllowed(
            f"A page of {origin[:200]} cannot log in here; only the web page of this server can. "
            "Use a token instead. Nothing was checked."
        )
    begun = await server.log_in(
        given.name, given.password, client=client, constellation=given.constellation
    )
    home = await server.home_of_secret(begun.secret)
    known = home.home_of(await home.access.of_session(begun.secret, client))
    shape = {
        **view(await known.users.current()),
        "csrf": begun.csrf,
        "expires_at": begun.session.expires_at_ms,
    }
    headers = {"set-cookie": session_cookie(begun.secret, secure=secure)}
    return Response(orjson.dumps(shape), 200, headers, JSON)


@endpoint("GET", "/session", "users.current", answer=CALLER)
async def current_caller(call: ApiCall) -> Any:
    """Return who you are, and the CSRF token of your session of the web page."""
    state = call.request.state
    return {
        **view(await call.home.users.current()),
        "csrf": getattr(state, "csrf", None),
        "expires_at": state.token.expires_at_ms,
    }


class OwnPassword(Body):
    """Your password, and the one that takes its place."""

    old: str = Field(min_length=1, max_length=1_000)
    new: str = Field(min_length=10, max_length=1_000)


@endpoint(
    "POST", "/session/password", "users.change_password", body=OwnPassword, status=204, keyed=False
)
async def change_own_password(call: ApiCall) -> Any:
    """Change your own password: all your sessions end, and the browser drops its cookie."""
    _check_session(call)
    await call.home.users.change_password(call.body.old, call.body.new)
    return _without_cookie(call)


@endpoint("POST", "/logout/everywhere", "users.log_out_everywhere", keyed=False)
async def log_out_everywhere(call: ApiCall) -> Any:
    """End all your sessions of the web page, and have the browser drop its cookie."""
    _check_session(call)
    await call.home.users.log_out_everywhere()
    return _without_cookie(call)


def _check_session(call: ApiCall) -> None:
    """Raise `NotAllowed` for a token, which may be for less than the login of its owner."""
    if getattr(call.request.state, "csrf", None) is None:
        raise NotAllowed(
            "This is about your own login, and takes a session of the web page, not a token. Log "
            "in first (POST /api/login). Nothing was changed."
        )


@endpoint("POST", "/logout", "users.log_out", keyed=False)
async def log_out(call: ApiCall) -> Any:
    """End your session of the web page, and have the browser drop its cookie."""
    await call.home.users.log_out()
    return _without_cookie(call)


def _without_cookie(call: ApiCall) -> Response:
    """Return an answer that has the browser drop the cookie of its session."""
    secure = call.request.url.scheme == "https"
    return Response(status_code=204, headers={"set-cookie": session_cookie("", secure=secure)})


# -- constellations --------------------------------------------------------------------------------


class NewConstellation(Body):
    """A constellation that the server serves beside its own."""

    name: str = Field(
        min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$"
    )


@endpoint("GET", "/constellations", "constellations.list", answer=list_of(Constellation))
async def list_constellations(call: ApiCall) -> Any:
    """List the constellations of the server, for the owner of its own."""
    return {"items": await call.home.constellations.list(), "next": None}


@endpoint(
    "POST", "/constellations", "constellations.ensure", body=NewConstellation, answer=Constellation
)
async def ensure_constellation(call: ApiCall) -> Any:
    """Return the constellation of a name; create it if there is none."""
    return await call.home.constellations.ensure(call.body.name)


@endpoint("GET", "/constellations/{constellation}", "constellations.get", answer=Constellation)
async def get_constellation(call: ApiCall) -> Any:
    """Return a constellation by its name."""
    return await call.home.constellations.get(call.path["constellation"])
