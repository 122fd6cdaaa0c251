"""`/agents`, `/turns`, `/events` and `/schedules`: what is said to agents, and what they do."""

from __future__ import annotations

import base64
import binascii
from functools import partial
from typing import Any, Literal

from pydantic import Field

from asterism.api.endpoints import (
    EVENTS,
    MANY_VALUES,
    ApiCall,
    Body,
    endpoint,
    events_of,
    events_since,
    expected_state,
)
from asterism.api.fields import (
    ExternalId,
    Limit,
    ModelName,
    Name,
    Paging,
    PositionPaging,
    Reference,
    ShortText,
    SomeText,
    Text,
    When,
    page_by,
    page_of_all,
)
from asterism.api.shapes import ANY, ItemsOf, Shape, list_of
from asterism.errors import InvalidInput
from asterism.store.messages import archived_agent
from asterism.types.agents import AgentRecord, Schedule
from asterism.types.turns import (
    ImportResult,
    Outcome,
    PastMessage,
    Receipt,
    Replay,
    TurnRecord,
    Usage,
)
from asterism.views import (
    agent_names,
    context_view,
    entry_view,
    outcome_view,
    schedule_view,
    turn_view,
    view,
)

AGENT = Shape("Agent", AgentRecord, model_in_use=str)
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
FIRST_SIGNAL = 1.0
"""Seconds that are waited for the first signal of a message before the answer begins."""


class AgentsQuery(Paging):
    """Which agents."""

    archived: bool = Field(
        default=False, description="The archived ones, instead of those at work."
    )


class NewAgent(Body):
    """An agent that is to be made."""

    name: Name
    model: ModelName | None = None
    system: Text | None = None
    tools: list[Name] | None = Field(None, max_length=1_000)


class AgentChange(Body):
    """What is changed of an agent; what is left out stays."""

    name: Name | None = None
    model: ModelName | None = None
    system: Text | None = None
    tools: list[Name] | None = Field(None, max_length=1_000)
    all_tools: bool = False


class NewName(Body):
    """The name of a copy."""

    name: Name


def _agent_view(agent: Any) -> dict[str, Any]:
    return {**view(agent), "model_in_use": agent.model_in_use}


@endpoint("GET", "/agents", "agents.list", query=AgentsQuery, answer=list_of(AGENT))
async def list_agents(call: ApiCall) -> Any:
    """List the agents by name."""
    agents = await call.home.agents.list(archived=call.query.archived)
    return page_of_all(agents, call.query, _agent_view)


@endpoint("POST", "/agents", "agents.create", body=NewAgent, answer=AGENT, status=201, edits=True)
async def create_agent(call: ApiCall) -> Any:
    """Create an agent."""
    return _agent_view(await call.home.agents.create(**call.body.values()))


@endpoint("GET", "/agents/{agent}", "agents.get", answer=AGENT, edits=True)
async def get_agent(call: ApiCall) -> Any:
    """Return an agent by its name or id."""
    return _agent_view(await call.home.agents.get(call.path["agent"]))


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
    agent, version = await _expected_agent(call)
    changes = call.body.values("name")
    return _agent_view(
        await call.home.agents.edit(agent, new_name=call.body.name, version=version, **changes)
    )


@endpoint("POST", "/agents/{agent}/clone", "agents.clone", body=NewName, answer=AGENT, status=201)
async def clone_agent(call: ApiCall) -> Any:
    """Make another agent with the same past and memory."""
    return _agent_view(await call.home.agents.clone(call.path["agent"], call.body.name))


@endpoint("POST", "/agents/{agent}/archive", "agents.archive", answer=AGENT, conditional=True)
async def archive_agent(call: ApiCall) -> Any:
    """Let an agent rest: it takes no turns until it is unarchived; its memory stays."""
    agent, version = await _expected_agent(call)
    return _agent_view(await call.home.agents.archive(agent, version=version))


@endpoint("POST", "/agents/{agent}/unarchive", "agents.unarchive", answer=AGENT, conditional=True)
async def unarchive_agent(call: ApiCall) -> Any:
    """Put an archived agent back to work."""
    agent, version = await _expected_agent(call)
    return _agent_view(await call.home.agents.unarchive(agent, version=version))


@endpoint("DELETE", "/agents/{agent}", "agents.delete", conditional=True)
async def delete_agent(call: ApiCall) -> None:
    """Take an agent out of service; its journal stays."""
    agent, version = await _expected_agent(call)
    await call.home.agents.delete(agent, version=version)


async def _expected_agent(call: ApiCall) -> tuple[Any, int | None]:
    """Return the agent of a request, and the version that it must have, if any."""
    agent = await call.home.agents.get(call.path["agent"])
    return agent, expected_state(call, agent.version, _agent_view(agent))


# -- messages --------------------------------------------------------------------------------------


class NewMessage(Body):
    """What is said to an agent."""

    text: SomeText
    external_id: ExternalId = None
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
        speaker: Reference | None = None
        at: When | None = None

    messages: list[Message] = Field(min_length=1, max_length=10_000)


def _options(call: ApiCall) -> dict[str, Any]:
    """Return what comes with the text of a message."""
    message: NewMessage = call.body
    try:
        images = [base64.b64decode(image, validate=True) for image in message.images]
    except (binascii.Error, ValueError):
        raise InvalidInput(
            "images must be base64 texts of PNG, JPEG, GIF or WebP files. Nothing was stored."
        ) from None
    return {"external_id": external_id(call), "images": images, "schema": message.json_schema}


def external_id(call: ApiCall) -> str | None:
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
    return await events_of(signals, patience=FIRST_SIGNAL)


@endpoint("GET", "/agents/{agent}/events", "agents.watch", media=EVENTS)
async def watch_agent(call: ApiCall) -> Any:
    """Stream what happens in all turns of an agent, from Last-Event-ID on."""
    agent = await call.home.agents.get(call.path["agent"])
    return await events_since(call, partial(call.home.agents.watch, agent))


@endpoint("GET", "/events", "agents.watch", media=EVENTS)
async def watch_all(call: ApiCall) -> Any:
    """Stream what happens in all turns of all agents and groups, from Last-Event-ID on."""
    return await events_since(call, partial(call.home.agents.watch, None))


@endpoint(
    "POST",
    "/agents/{agent}/import",
    "agents.import_messages",
    body=PastConversation,
    values=MANY_VALUES,
    answer=ImportResult,
    status=201,
)
async def import_messages(call: ApiCall) -> Any:
    """Put a conversation from elsewhere at the end of an agent's past."""
    messages = [PastMessage(**message.values()) for message in call.body.messages]
    return await call.home.agents.import_messages(call.path["agent"], messages)


# -- turns -----------------------------------------------------------------------------------------

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
TURN_DETAILS = Shape("TurnDetails", TurnRecord, agent=str | None, entries=ItemsOf(ENTRY))


class TurnsQuery(PositionPaging):
    """Which turns are wanted."""

    agent: Reference | None = None
    limit: Limit = 20


class Reason(Body):
    """Why something is done."""

    reason: ShortText = ""


class CallResults(Body):
    """What came of calls that a turn left to the program that asked."""

    results: dict[str, Text] = Field(
        min_length=1,
        max_length=1_000,
        description="Each result by the key of its call, such as `0/call/0`; all must be there.",
    )


class NewFork(Body):
    """How a copy of an agent answers again."""

    name: Name | None = None
    model: ModelName | None = None
    system: Text | None = None


@endpoint("GET", "/turns", "turns.list", query=TurnsQuery, answer=list_of(TURN))
async def list_turns(call: ApiCall) -> Any:
    """List the latest turns, newest first."""
    names = await agent_names(call.home)
    query: TurnsQuery = call.query
    turns = await call.home.turns.list(query.agent, limit=query.limit + 1, before=query.cursor)
    return page_by(turns, query, lambda turn: turn.id, lambda turn: turn_view(turn, names))


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
    turn_id = call.path["turn"]
    await call.home.turns.outcome(turn_id)  # before the answer begins
    return await events_since(call, partial(call.home.turns.follow, turn_id))


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


@endpoint("POST", "/turns/{turn}/retry", "turns.retry", answer=Receipt, status=202)
async def retry_turn(call: ApiCall) -> Any:
    """Hand in the message of a turn once more that ended without an answer."""
    return await call.home.turns.retry(call.path["turn"])


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
    agent, outcome = await call.home.turns.fork(call.path["turn"], **call.body.values())
    return {"agent": _agent_view(agent), "answer": outcome_view(outcome, agent.name)}


@endpoint("POST", "/turns/{turn}/revert", "memory.revert_turn", body=Reason, answer=ANY)
async def revert_turn(call: ApiCall) -> Any:
    """Undo everything that a turn wrote to memory."""
    return await call.home.memory.revert_turn(call.path["turn"], reason=call.body.reason)


# -- what a model is shown -------------------------------------------------------------------------


class StepQuery(Body):
    """Which step of a turn."""

    step: int | None = Field(None, ge=0, le=100_000)


@endpoint("GET", "/turns/{turn}/context", "contexts.of_turn", query=StepQuery, answer=ANY)
async def turn_context(call: ApiCall) -> Any:
    """Return what the model was shown in a step of a turn."""
    return context_view(await call.home.contexts.of_turn(call.path["turn"], call.query.step))


@endpoint("GET", "/agents/{agent}/context", "contexts.now", answer=ANY)
async def agent_context(call: ApiCall) -> Any:
    """Return what a model would be shown if a message came now."""
    return context_view(await call.home.contexts.now(call.path["agent"]))


@endpoint("POST", "/agents/{agent}/context/restart", "contexts.restart", answer=ANY)
async def restart_context(call: ApiCall) -> Any:
    """Begin one's own conversation anew: messages leave the context, memory and journal stay."""
    return await call.home.contexts.restart(call.path["agent"])


@endpoint("POST", "/agents/{agent}/context/compact", "contexts.compact", answer=ANY)
async def compact_context(call: ApiCall) -> Any:
    """Compact the older half of one's own conversation into a summary; the originals stay."""
    return await call.home.contexts.compact(call.path["agent"])


# -- schedules -------------------------------------------------------------------------------------

SCHEDULE = Shape("ScheduleOfAgent", Schedule, agent=str)


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


@endpoint("GET", "/schedules", "schedules.list", query=Paging, answer=list_of(SCHEDULE))
async def list_all_schedules(call: ApiCall) -> Any:
    """List the schedules of all agents, the next one first."""
    agents = {agent.id: agent for agent in await call.home.agents.list(archived=None)}
    found = await call.home.schedules.list()
    known = [schedule for schedule in found if schedule.agent_id in agents]  # others are deleted
    return page_of_all(known, call.query, lambda one: schedule_view(agents[one.agent_id], one))


@endpoint(
    "GET", "/agents/{agent}/schedules", "schedules.list", query=Paging, answer=list_of(SCHEDULE)
)
async def list_schedules(call: ApiCall) -> Any:
    """List the schedules of an agent, the next one first."""
    agent = await call.home.agents.get(call.path["agent"])
    found = await call.home.schedules.list(agent)
    return page_of_all(found, call.query, partial(schedule_view, agent))


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
    return await call.home.schedules.add(call.path["agent"], **call.body.values())


@endpoint("DELETE", "/schedules/{schedule}", "schedules.cancel")
async def cancel_schedule(call: ApiCall) -> None:
    """Take a schedule back."""
    await call.home.schedules.cancel(call.path["schedule"])
