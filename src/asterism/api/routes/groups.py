"""`/groups`: agents that answer together, and what is said to them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field

from asterism.api.endpoints import (
    EVENTS,
    ApiCall,
    Body,
    endpoint,
    events_of,
    events_since,
    expected_state,
)
from asterism.api.fields import (
    ExternalId,
    Name,
    Paging,
    PositionPaging,
    Reference,
    ShortText,
    SomeText,
    page_of_all,
)
from asterism.api.routes.agents import ANSWER, FIRST_SIGNAL, external_id
from asterism.api.shapes import ItemsOf, Shape, list_of
from asterism.types.groups import GroupEvent
from asterism.types.turns import Receipt
from asterism.views import group_view, outcome_view

MemberRole = Literal["supervisor", "specialist", "regular", "observer"]
PatternName = Annotated[str, Field(max_length=100)]

GROUP_MEMBER = Shape(
    "GroupMember",
    None,
    "An agent in a group.",
    agent_id=str,
    name=str,
    role=MemberRole,
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
    pattern: PatternName = "round_robin"
    options: dict[str, Any] = Field(default_factory=dict)
    description: ShortText = ""
    members: list[Name] = Field(default_factory=list, max_length=200)


class GroupChange(Body):
    """What is changed of a group."""

    name: Name | None = None
    pattern: PatternName | None = None
    options: dict[str, Any] | None = None
    description: ShortText | None = None


class NewMember(Body):
    """What an agent is in a group; whatever is left out stays as it is for a member."""

    agent: Name
    role: MemberRole | None = None
    domain: Reference | None = None
    capabilities: list[Name] | None = Field(None, max_length=100)
    weight: float | None = Field(None, ge=0, le=1_000)
    active: bool | None = None


@endpoint("GET", "/groups", "groups.list", query=Paging, answer=list_of(GROUP))
async def list_groups(call: ApiCall) -> Any:
    """List the groups by name, with their members."""
    return page_of_all(await call.home.groups.list(), call.query, group_view)


@endpoint("POST", "/groups", "groups.create", body=NewGroup, answer=GROUP, status=201, edits=True)
async def create_group(call: ApiCall) -> Any:
    """Create a group."""
    return group_view(await call.home.groups.create(**call.body.values()))


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
    group, version = await _expected_group(call)
    changes = call.body.values("name")
    return group_view(
        await call.home.groups.edit(group, new_name=call.body.name, version=version, **changes)
    )


@endpoint("DELETE", "/groups/{group}", "groups.delete", conditional=True)
async def delete_group(call: ApiCall) -> None:
    """Take a group out of service; its members stay."""
    group, version = await _expected_group(call)
    await call.home.groups.delete(group, version=version)


async def _expected_group(call: ApiCall) -> tuple[Any, int | None]:
    """Return the group of a request, and the version that it must have, if any."""
    group = await call.home.groups.get(call.path["group"])
    return group, expected_state(call, group.version, group_view(group))


@endpoint("POST", "/groups/{group}/members", "groups.add_member", body=NewMember, answer=GROUP)
async def add_group_member(call: ApiCall) -> Any:
    """Add an agent to a group, or change what it is there."""
    return group_view(await call.home.groups.add_member(call.path["group"], **call.body.values()))


@endpoint("DELETE", "/groups/{group}/members/{agent}", "groups.remove_member")
async def remove_group_member(call: ApiCall) -> None:
    """Take an agent out of a group."""
    await call.home.groups.remove_member(call.path["group"], call.path["agent"])


# -- messages --------------------------------------------------------------------------------------


class GroupMessage(Body):
    """What is said to a group."""

    text: SomeText
    external_id: ExternalId = None


class TranscriptQuery(PositionPaging):
    """How much of a transcript: `limit` counts turns."""


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
        call.path["group"], call.body.text, external_id=external_id(call)
    )


@endpoint(
    "POST", "/groups/{group}/ask", "groups.ask", body=GroupMessage, answer=ANSWER, repeatable=True
)
async def ask_group(call: ApiCall) -> Any:
    """Hand in a message to a group and wait for its answer."""
    group = await call.home.groups.get(call.path["group"])
    outcome = await call.home.groups.ask(group, call.body.text, external_id=external_id(call))
    return outcome_view(outcome, group.name)


@endpoint("POST", "/groups/{group}/stream", "groups.stream", body=GroupMessage, media=EVENTS)
async def stream_group_message(call: ApiCall) -> Any:
    """Hand in a message to a group and stream its decisions and what members say."""
    group = await call.home.groups.get(call.path["group"])
    signals = call.home.groups.stream(group, call.body.text, external_id=external_id(call))
    return await events_of(signals, patience=FIRST_SIGNAL)


@endpoint("GET", "/groups/{group}/events", "groups.watch", media=EVENTS)
async def watch_group(call: ApiCall) -> Any:
    """Stream what happens in all turns of a group, from Last-Event-ID on."""
    group = await call.home.groups.get(call.path["group"])
    return await events_since(call, partial(call.home.groups.watch, group))


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
        return {"items": events, "next": None}
    return {"items": [each for each in events if each.turn_id != turns[0]], "next": turns[1]}
