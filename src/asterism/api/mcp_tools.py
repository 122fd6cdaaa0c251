"""The tools of the MCP server: what a client may ask for, what it gets, and how it is done."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from asterism.errors import InvalidInput, NotAllowed, NotFound
from asterism.memory.blocks import SHARED_BY_ALL, VisibleBlock
from asterism.records import dataclass
from asterism.times import iso_text, read_range
from asterism.types.agents import AgentRecord, new_id
from asterism.types.groups import GroupRecord
from asterism.types.memory import Append, Block, BlockWrite, Replace, SetText
from asterism.types.turns import Message, Signal, TurnState
from asterism.views import agent_names

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.agents import Agents
    from asterism.app.groups import Groups
    from asterism.types.permissions import ApprovalRecord
    from asterism.types.search import Hit

REPORT_EVERY = 0.5
"""Seconds between two reports of progress while an answer is written."""
STILL_WORKING = 10.0
"""Seconds without news after which a client is told that the turn goes on."""
_MAX_SHOWN = 160
"""How many characters of the answer a report of progress shows."""
_MAX_WAIT = 3_600


# -- what is asked and answered --------------------------------------------------------------------


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


AgentArgument = Annotated[
    str | None,
    Field(description="The agent, by name or id. May be left out where there is only one."),
]


class _ListAgents(_Arguments):
    pass


class _Chat(_Arguments):
    message: str = Field(description="What to say to the agent.", min_length=1)
    agent: AgentArgument = None
    external_id: str | None = Field(
        None,
        description=(
            "An id of your own for this message, such as a UUID. The same id again is the same "
            "message: it is not said twice, and you get the answer to the first."
        ),
        min_length=1,
        max_length=200,
    )
    wait_seconds: float | None = Field(
        None,
        description=(
            "How long to wait for the answer. After that the state is `working`, and a call with "
            "the same external_id goes on waiting. Left out: until the turn ends."
        ),
        gt=0,
        le=_MAX_WAIT,
    )


class _SendToGroup(_Arguments):
    group: str = Field(description="The group, by its name or id.", min_length=1)
    message: str = Field(description="What to say to the group.", min_length=1)
    external_id: str | None = Field(
        None,
        description="An id of your own for this message; the same id again is the same message.",
        min_length=1,
        max_length=200,
    )
    wait_seconds: float | None = Field(
        None, description="As in chat_with_agent.", gt=0, le=_MAX_WAIT
    )


class _GetMemory(_Arguments):
    agent: AgentArgument = None
    block: str | None = Field(None, description="Only this block, by its label, such as `human`.")


class _UpdateMemory(_Arguments):
    block: str = Field(description="The block, by its label, such as `human`.")
    operation: Literal["append", "replace", "set"] = Field(
        description=(
            "`append` adds content at the end, `replace` puts content in place of the first text "
            "that reads as `old`, `set` puts content in place of all that the block says."
        )
    )
    content: str = Field(description="The new text; JSON for a block that has fields.")
    agent: AgentArgument = None
    old: str | None = Field(None, description="With `replace`: the text to replace, exactly.")
    version: int | None = Field(
        None,
        description=(
            "The version that you have read. If the block was changed since, nothing is written."
        ),
        ge=0,
    )
    section: str | None = Field(None, description="The section, in a block that has sections.")
    reason: str = Field("", description="Why, for the history of the block.", max_length=1000)


class _SearchMemory(_Arguments):
    query: str = Field(
        description="Any text: a question, words, a date. Empty: the newest texts.",
    )
    agent: Annotated[
        str | None, Field(description="The agent, by name or id. Left out: all agents.")
    ] = None
    domains: list[Literal["messages", "passages", "documents", "blocks", "summaries"]] | None = (
        Field(None, description="Where to look. Left out: everywhere.", min_length=1)
    )
    since: str | None = Field(
        None, description="Nothing older than this time, such as `2026-11-01` or `3 days ago`."
    )
    until: str | None = Field(None, description="Nothing newer than this time.")
    limit: int = Field(10, description="How many hits.", ge=1, le=100)
    offset: int = Field(0, description="How many of the best to leave out.", ge=0)


class _ListApprovals(_Arguments):
    agent: Annotated[
        str | None, Field(description="The agent that asks. Left out: all agents.")
    ] = None


class _DecideApproval(_Arguments):
    approval: str = Field(description="The id of the approval, such as `ap_7q2`.", min_length=1)
    decision: Literal["approve", "deny"] = Field(
        description="`approve` lets exactly this call be made, `deny` does not."
    )
    note: str | None = Field(None, description="What the agent is told with it.", max_length=4000)


class _AgentShape(BaseModel):
    name: str
    id: str
    model: str = Field(description="The model that it thinks with, as `vendor:name`.")
    created_at: str


class _AgentsShape(BaseModel):
    agents: list[_AgentShape]


class _BlockShape(BaseModel):
    label: str
    text: str
    version: int = Field(description="The number of its edits; give it to update_agent_memory.")
    uri: str = Field(description="The same block as a resource.")
    description: str
    limit: int = Field(description="The most characters it may hold.")
    updated_at: str
    permission: str | None = Field(None, description="What the agent itself may do to it.")


class _MemoryShape(BaseModel):
    agent: str
    blocks: list[_BlockShape]


class _UpdateShape(BaseModel):
    agent: str
    block: _BlockShape


class _HitShape(BaseModel):
    kind: str
    id: str
    text: str
    at: str
    why: str = Field(description="Why it was found.")
    agent: str | None = None
    speaker: str | None = None
    where: str | None = None
    relevance: float | None = Field(None, description="From 0 to 1.")


class _HitsShape(BaseModel):
    hits: list[_HitShape]
    total: int
    more: bool = Field(description="Whether a larger offset finds more.")
    notes: list[str]


class _ApprovalShape(BaseModel):
    id: str
    agent: str
    question: str
    tool: str
    arguments: dict[str, Any] = Field(description="The exact arguments of the call.")
    reason: str = Field(description="Why it must be asked.")
    turn_id: str
    asked_at: str
    expires_at: str | None = None


class _ApprovalsShape(BaseModel):
    approvals: list[_ApprovalShape]


class _DecisionShape(BaseModel):
    approval: str
    decision: str
    turn_id: str = Field(description="The turn that goes on.")


class _AnswerShape(BaseModel):
    agent: str
    state: Literal["done", "failed", "stopped", "parked", "working"] = Field(
        description=(
            "`done`: text is the answer. `parked`: the agent waits for the approvals listed. "
            "`working`: it is not finished. `failed`, `stopped`: text says why."
        )
    )
    text: str
    external_id: str = Field(description="Call again with this id to wait for the same answer.")
    turn_id: str
    approvals: list[_ApprovalShape]


# -- what a call needs -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolScope:
    """What one caller has: the home as they may use it, and which agents are offered."""

    home: Asterism
    agents: frozenset[str] = frozenset()
    """The ids of the agents that are offered; empty: all."""

    def offers(self, agent_id: str) -> bool:
        """Tell whether an agent is offered."""
        return not self.agents or agent_id in self.agents

    async def list_agents(self) -> list[AgentRecord]:
        """Return the agents that are offered, by name."""
        return [agent for agent in await self.home.agents.list() if self.offers(agent.id)]

    async def agent(self, name: str | None) -> AgentRecord:
        """Return an agent by its name or id, or the only one there is."""
        if name is not None:
            agent = await self.home.agents.get(name)
            if not self.offers(agent.id):
                raise NotFound(
                    f"The agent {agent.name!r} is not offered here: this server was started for "
                    "other agents. list_agents names them. Nothing was changed."
                )
            return agent
        agents = await self.list_agents()
        if len(agents) == 1:
            return agents[0]
        if not agents:
            raise NotFound('There is no agent. "asterism agent create" makes one.')
        names = ", ".join(agent.name for agent in agents[:20])
        raise InvalidInput(
            f"There are {len(agents)} agents: {names}. Name one of them as `agent`. "
            "Nothing was changed."
        )


Report = Callable[[str], Awaitable[None]]
"""Tells the client how far a call is."""
Run = Callable[[ToolScope, Any, Report], Coroutine[Any, Any, BaseModel]]


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool of the MCP server."""

    name: str
    title: str
    description: str
    arguments: type[BaseModel]
    result: type[BaseModel]
    run: Run
    reads: bool = False
    destroys: bool = False
    repeatable: bool = False
    """Whether the same call again changes nothing more."""
    open_world: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return _schema(self.arguments)

    @property
    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of its result."""
        return _schema(self.result)


@functools.cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a model in its plainest form.

    What may be left out is never null, and names are those of the parts, not of our classes.
    """
    schema = _simplified(model.model_json_schema())
    schema.setdefault("properties", {})
    return json.loads(re.sub(r"\b_(\w+)Shape\b", r"\1", json.dumps(schema)))


def _simplified(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_simplified(part) for part in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    parts = {
        key: _simplified(value)
        for key, value in cast("dict[str, Any]", schema).items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value is None)
    }
    match parts.get("anyOf"):
        case [{**only}, {"type": "null"}]:
            del parts["anyOf"]
            return {**only, **parts}
        case _:
            return parts


# -- agents and messages ---------------------------------------------------------------------------


async def _list_agents(scope: ToolScope, _: _ListAgents, __: Report) -> _AgentsShape:
    agents = [
        _AgentShape(
            name=agent.name,
            id=agent.id,
            model=str(getattr(agent, "model_in_use", agent.model)),
            created_at=iso_text(agent.created_at_ms),
        )
        for agent in await scope.list_agents()
    ]
    return _AgentsShape(agents=agents)


async def _chat(scope: ToolScope, arguments: _Chat, report: Report) -> _AnswerShape:
    agent = await scope.agent(arguments.agent)
    answer = await _ask(scope.home.agents, agent, arguments, report)
    if answer.state == TurnState.PARKED:
        answer.approvals = await _questions_of(scope, {answer.turn_id})
    return answer


async def _send_to_group(scope: ToolScope, arguments: _SendToGroup, report: Report) -> _AnswerShape:
    group = await scope.home.groups.get(arguments.group)
    hidden = [member for member in group.members if not scope.offers(member.agent_id)]
    if scope.agents and (hidden or not group.members):
        raise NotAllowed(
            f"Only some agents are offered here, and {group.name} has other members. Use "
            "chat_with_agent. Nothing was sent."
        )
    answer = await _ask(scope.home.groups, group, arguments, report)
    if answer.state == TurnState.PARKED:
        told = await scope.home.groups.transcript(group.id)
        # It is members that wait, each in a turn of its own.
        asked = {event.details.get("turn_id") for event in told if event.turn_id == answer.turn_id}
        answer.approvals = await _questions_of(scope, asked)
    return answer


async def _ask(
    verbs: Agents | Groups,
    asked: AgentRecord | GroupRecord,
    arguments: _Chat | _SendToGroup,
    report: Report,
) -> _AnswerShape:
    """Hand in a message to an agent or a group, and follow its turn for as long as is wanted."""
    _check_message(arguments.message)
    external_id = arguments.external_id or new_id("mcp")
    # Of this agent or group alone, and of none that another door has chosen.
    key = f"mcp:{asked.id}:{external_id}"
    async with aclosing(verbs.stream(asked.id, arguments.message, external_id=key)) as signals:
        last = await _follow(signals, asked.name, report, arguments.wait_seconds)
    if last is None:
        # It goes on without us: the same id tells which turn it is.
        receipt = await verbs.send(asked.id, arguments.message, external_id=key)
        state, text, turn_id = "working", "", receipt.turn_id
    else:
        state, text, turn_id = last.data["state"], last.text, last.turn_id
    return _AnswerShape(
        agent=asked.name,
        state=state,
        text=text,
        external_id=external_id,
        turn_id=turn_id,
        approvals=[],
    )


def _check_message(text: str) -> None:
    """Refuse what would decide an approval: a client may have been allowed to talk and no more."""
    answer = Message("", (text,)).answer
    if answer is not None and answer.approval_id is not None:
        raise InvalidInput(
            f"This message decides the approval {answer.approval_id}. Use decide_approval for "
            "that. Nothing was sent."
        )


async def _follow(
    signals: AsyncGenerator[Signal, None], name: str, report: Report, wait: float | None
) -> Signal | None:
    """Report what happens in a turn; return its last signal, or None if the time is over."""
    began = time.monotonic()
    until = began + wait if wait is not None else None
    progress = _TurnProgress(name, report)
    coming = asyncio.ensure_future(anext(signals))
    try:
        while True:
            left = STILL_WORKING if until is None else until - time.monotonic()
            done, _ = await asyncio.wait({coming}, timeout=max(0, min(STILL_WORKING, left)))
            if not done:
                if until is not None and time.monotonic() >= until:
                    return None
                await progress.say(f"{name} is working ({time.monotonic() - began:.0f} s)")
                continue
            signal = coming.result()
            if signal.kind in ("ended", "parked"):
                return signal
            await progress.take(signal)
            coming = asyncio.ensure_future(anext(signals))
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


class _TurnProgress:
    """What a client is told while a turn is running."""

    def __init__(self, name: str, report: Report) -> None:
        self._name = name
        self._report = report
        self._text = ""
        self._said_at = 0.0

    async def say(self, message: str) -> None:
        self._said_at = time.monotonic()
        await self._report(message)

    async def take(self, signal: Signal) -> None:
        match signal.kind:
            case "text":
                self._text += signal.text
                if time.monotonic() - self._said_at >= REPORT_EVERY:
                    await self.say(self._text[-_MAX_SHOWN:])
            case "again":
                self._text = ""
            case "call":
                await self.say(f"{self._name} calls {signal.data.get('name', 'a tool')}")
            case "progress":
                await self.say(signal.text[:_MAX_SHOWN])
            case _:
                pass


# -- memory ----------------------------------------------------------------------------------------


def block_uri(agent: str | None, label: str) -> str:
    """Return the URI of a block: of an agent, or for None of the whole constellation."""
    owner = f"agents/{quote(agent, safe='')}/" if agent is not None else ""
    return f"asterism://{owner}blocks/{quote(label, safe='')}"


def _block_shape(agent: str, name: str, block: Block, permission: str | None = None) -> _BlockShape:
    return _BlockShape(
        label=name,
        text=block.text,
        version=block.version,
        uri=block_uri(agent, name),
        description=block.description,
        limit=block.limit,
        permission=permission,
        updated_at=iso_text(block.updated_at_ms),
    )


async def _get_memory(scope: ToolScope, arguments: _GetMemory, _: Report) -> _MemoryShape:
    agent = await scope.agent(arguments.agent)
    blocks: list[VisibleBlock]
    if arguments.block is not None:
        blocks = [await scope.home.blocks.get(agent.id, arguments.block)]
    else:
        blocks = await scope.home.blocks.list(agent.id)
    shapes = [
        _block_shape(agent.name, seen.name, seen.block, seen.permission.value) for seen in blocks
    ]
    return _MemoryShape(agent=agent.name, blocks=shapes)


async def _update_memory(scope: ToolScope, arguments: _UpdateMemory, _: Report) -> _UpdateShape:
    agent = await scope.agent(arguments.agent)
    block = await scope.home.blocks.write(
        agent.id,
        arguments.block,
        _edit_of(arguments),
        reason=arguments.reason,
        by="mcp",
        version=arguments.version,
    )
    shape = _block_shape(agent.name, arguments.block, block)
    return _UpdateShape(agent=agent.name, block=shape)


def _edit_of(arguments: _UpdateMemory) -> BlockWrite:
    if (arguments.old is not None) != (arguments.operation == "replace"):
        raise InvalidInput(
            f"`old` belongs to the operation `replace` and to no other; the operation is "
            f"`{arguments.operation}`, and `old` is "
            f"{'given' if arguments.old is not None else 'missing'}. Nothing was changed."
        )
    if arguments.old is not None:
        return Replace(arguments.old, arguments.content, section=arguments.section)
    if arguments.operation == "set":
        return SetText(arguments.content, section=arguments.section)
    return Append(arguments.content, arguments.section)


async def _search_memory(scope: ToolScope, arguments: _SearchMemory, _: Report) -> _HitsShape:
    agent_id: str | None = None
    if arguments.agent is not None or scope.agents:
        agent_id = (await scope.agent(arguments.agent)).id
    filters: dict[str, Any] = {"domains": arguments.domains} if arguments.domains else {}
    found = await scope.home.search(
        agent_id,
        arguments.query,
        since=_read_time(arguments.since, 0),
        until=_read_time(arguments.until, 1),
        limit=arguments.limit,
        offset=arguments.offset,
        **filters,
    )
    names = await agent_names(scope.home)
    return _HitsShape(
        hits=[_hit_shape(hit, names) for hit in found.hits],
        total=found.total,
        more=found.more,
        notes=list(found.notes),
    )


def _read_time(text: str | None, end: Literal[0, 1]) -> datetime | None:
    """Return the first or the last moment of the time that is meant."""
    if text is None:
        return None
    from asterism.search.query import span_of  # its patterns take long to compile

    return read_range(text, None, span_of)[end]


def _hit_shape(hit: Hit, names: Mapping[str, str]) -> _HitShape:
    return _HitShape(
        kind=hit.kind.value,
        id=hit.id,
        text=hit.text,
        at=iso_text(hit.at_ms),
        why=hit.reason,
        agent=names.get(hit.agent_id),
        speaker=hit.speaker or None,
        where=hit.where or None,
        relevance=hit.relevance,
    )


# -- approvals -------------------------------------------------------------------------------------


async def _list_approvals(
    scope: ToolScope, arguments: _ListApprovals, _: Report
) -> _ApprovalsShape:
    wanted = (await scope.agent(arguments.agent)).id if arguments.agent is not None else None
    names = await agent_names(scope.home)
    return _ApprovalsShape(
        approvals=[
            _approval_shape(question, names)
            for question in await scope.home.approvals.list()
            if scope.offers(question.agent_id) and wanted in (None, question.agent_id)
        ]
    )


async def _questions_of(scope: ToolScope, turn_ids: Collection[object]) -> list[_ApprovalShape]:
    """Return what turns wait for, as far as the caller may see it."""
    try:
        questions = await scope.home.approvals.list()
        names = await agent_names(scope.home)
    except NotAllowed:
        return []
    return [
        _approval_shape(question, names) for question in questions if question.turn_id in turn_ids
    ]


def _approval_shape(question: ApprovalRecord, names: Mapping[str, str]) -> _ApprovalShape:
    expires = question.expires_at_ms
    return _ApprovalShape(
        id=question.id,
        agent=names.get(question.agent_id, question.agent_id),
        question=question.question,
        tool=question.tool,
        arguments=_read_object(question.arguments),
        reason=question.reason,
        turn_id=question.turn_id,
        asked_at=iso_text(question.asked_at_ms),
        expires_at=iso_text(expires) if expires is not None else None,
    )


def _read_object(text: str) -> dict[str, Any]:
    """Return the arguments of a call; what is not an object is shown as it is written."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = text
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {"arguments": read}


async def _decide_approval(
    scope: ToolScope, arguments: _DecideApproval, _: Report
) -> _DecisionShape:
    if scope.agents:
        question = await scope.home.approvals.get(arguments.approval)
        await scope.agent(question.agent_id)
    receipt = await scope.home.approvals.decide(
        arguments.approval, approved=arguments.decision == "approve", note=arguments.note
    )
    if receipt.refusal is not None:
        raise NotAllowed(receipt.refusal)
    return _DecisionShape(
        approval=arguments.approval, decision=arguments.decision, turn_id=receipt.turn_id
    )


# -- all of them -----------------------------------------------------------------------------------


TOOLS: tuple[ServedTool, ...] = (
    ServedTool(
        "list_agents",
        "List agents",
        "List the agents of this asterism home: long-lived assistants with a memory of their own.",
        _ListAgents,
        _AgentsShape,
        _list_agents,
        reads=True,
        repeatable=True,
    ),
    ServedTool(
        "chat_with_agent",
        "Chat with an agent",
        "Send a message to an agent and wait for its answer. The agent remembers the conversation "
        "and may use its own tools. With the state `parked` it waits for a person's approval: show "
        "the approval to the person, and once it is decided call again with the same external_id. "
        "A call that is cancelled or times out does not stop the agent; the same external_id "
        "returns its answer later.",
        _Chat,
        _AnswerShape,
        _chat,
        # An agent may do whatever its own tools do.
        destroys=True,
        open_world=True,
    ),
    ServedTool(
        "send_to_group",
        "Send a message to a group",
        "Send a message to a group of agents and wait for its answer: members vote, work in stages "
        "or are chosen, as the group's pattern says. The states and external_id are those of "
        "chat_with_agent.",
        _SendToGroup,
        _AnswerShape,
        _send_to_group,
        destroys=True,
        open_world=True,
    ),
    ServedTool(
        "get_agent_memory",
        "Read an agent's memory",
        "Read the memory blocks of an agent: labelled texts that it always sees, such as `human` "
        "(what it knows of its owner) and `persona`. Each has a version. For anything else that "
        "the agent remembers use search_memory.",
        _GetMemory,
        _MemoryShape,
        _get_memory,
        reads=True,
        repeatable=True,
    ),
    ServedTool(
        "update_agent_memory",
        "Change an agent's memory",
        "Append to a memory block of an agent, replace a part of it, or set all of it. Give the "
        "version that you have read, so that nothing is overwritten that was changed since. Every "
        "edit is kept in the history of the block and can be undone.",
        _UpdateMemory,
        _UpdateShape,
        _update_memory,
        destroys=True,
    ),
    ServedTool(
        "search_memory",
        "Search memory",
        "Search all that agents remember: messages, archived passages, documents, memory blocks "
        "and summaries. The best hits come first, each with its time and the reason.",
        _SearchMemory,
        _HitsShape,
        _search_memory,
        reads=True,
        repeatable=True,
    ),
    ServedTool(
        "list_approvals",
        "List approvals",
        "List the tool calls of agents that wait for a person to approve or deny them.",
        _ListApprovals,
        _ApprovalsShape,
        _list_approvals,
        reads=True,
        repeatable=True,
    ),
    ServedTool(
        "decide_approval",
        "Decide an approval",
        "Approve or deny one tool call of an agent. Only on the word of the person who is asked: "
        "show them the exact call first. An approved call is made at once.",
        _DecideApproval,
        _DecisionShape,
        _decide_approval,
        destroys=True,
        open_world=True,
    ),
)
"""In the order in which they are listed."""


def answer_text(tool: ServedTool, result: BaseModel) -> str:
    """Return what a tool has returned as text: an answer as it is, anything else as JSON."""
    if not isinstance(result, _AnswerShape):
        return result.model_dump_json(exclude_none=True)
    if result.state == "working":
        return (
            f"{result.agent} is still working. Call {tool.name} again with the external_id "
            f"{result.external_id!r} to wait for the answer."
        )
    if result.state == "parked":
        calls = "; ".join(f"{question.id}: {question.question}" for question in result.approvals)
        return (
            f"{result.agent} waits for an approval{f' ({calls})' if calls else ''}. Once it is "
            f"decided, call {tool.name} again with the external_id {result.external_id!r}."
        )
    return result.text


def is_failure(result: BaseModel) -> bool:
    """Tell whether a result is an explanation instead of an answer."""
    return isinstance(result, _AnswerShape) and result.state in ("failed", "stopped")


def constellation_label(label: str) -> str:
    """Return the name by which a block of the whole constellation is found."""
    return f"{SHARED_BY_ALL}/{label}"
