"""The tool `send_message`: to a person where they are reached, another agent, or a channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.json_schema import SkipJsonSchema

from asterism.config import AgentMessageSettings
from asterism.errors import Conflict, NotFound, ToolError
from asterism.memory import people
from asterism.memory import people as accounts
from asterism.store import agents, groups, messages
from asterism.store.database import Connection
from asterism.store.groups import AgentMessage
from asterism.tools.builtin.arguments import TEXT, also
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.agents import (
    OWNER,
    Account,
    Participants,
    Person,
    Schedule,
    message_id_for,
    new_id,
)
from asterism.types.groups import AGENT_CHANNEL, delayed_message_id
from asterism.types.permissions import Effect, EffectKind
from asterism.types.turns import Delivery, MessageOrigin, Notice, message_wire

_OWNER_NAMES = ("", OWNER, "user", "me", "partner", "human")
_MAX_CONTENT = 20_000


class SendTarget(BaseModel):
    """Whom a message is for."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    type: Annotated[
        Literal["user", "agent", "group", "channel", "discord", "bluesky"],
        Field(validation_alias=also("type", "target_type").validation_alias),
    ] = "user"
    id: Annotated[str, also("id", "target_id", "name"), TEXT] = ""

    @model_validator(mode="before")
    @classmethod
    def _spelled(cls, value: Any) -> Any:
        """Read `agent:bob`, and a bare name as a person's."""
        if value is None:
            return {}
        if isinstance(value, str):
            kind, colon, name = value.partition(":")
            if kind.strip().casefold() in _TARGET_TYPES:
                return {"type": kind.strip().casefold(), "id": name.strip() if colon else ""}
            return {"type": "channel" if colon else "user", "id": value.strip()}
        if isinstance(value, dict):
            fields = dict(cast("dict[str, Any]", value))
            for key in ("type", "target_type"):
                if isinstance(fields.get(key), str):
                    fields[key] = _TARGET_WORDS.get(
                        fields[key].strip().casefold(), fields[key].casefold()
                    )
            return fields
        return value


_TARGET_TYPES = ("user", "agent", "group", "channel", "discord", "bluesky")
_TARGET_WORDS = {"person": "user", "human": "user", "owner": "user", "partner": "user"}


def _is_owner(target: SendTarget) -> bool:
    return target.type == "user" and target.id.strip().casefold() in _OWNER_NAMES


_TARGET: dict[str, Any] = {
    "type": "object",
    "properties": {
        "type": {"enum": list(_TARGET_TYPES)},
        "id": {
            "type": "string",
            "description": "A name; for user, empty means your owner; channel: name:address.",
        },
    },
    "required": ["type"],
}


def _send_effects(arguments: Mapping[str, Any]) -> list[Effect]:
    target = arguments.get("target")
    to = OWNER
    if isinstance(target, SendTarget) and not _is_owner(target):
        to = target.id
    return [
        Effect(EffectKind.SEND, recipients=(to,), content=(str(arguments.get("content") or ""),))
    ]


@tool(transactional=True, trust=None, compact=False, effects=_send_effects)
async def send_message(
    ctx: ToolContext,
    target: Annotated[SendTarget, WithJsonSchema(_TARGET)],
    content: Annotated[str, also("content", "message", "text"), TEXT],
    metadata: SkipJsonSchema[dict[str, Any] | None] = None,
) -> str:
    """Send a message to somebody who is not in this talk, or to an agent."""
    del metadata
    if not content.strip():
        raise ToolError("What should the message say? Set `content`.")
    if len(content) > _MAX_CONTENT:
        raise ToolError(
            f"The message has {len(content):,} characters; the limit is {_MAX_CONTENT:,}. "
            "Shorten it."
        )
    match target.type:
        case "user":
            return await _to_person(ctx, target.id, content)
        case "agent":
            return await _to_agent(ctx, target.id, content)
        case "group":
            return await _to_group(ctx, target.id, content)
        case "channel":
            channel, colon, address = target.id.partition(":")
            return await _to_channel(ctx, channel, address if colon else "", content)
        case "discord" | "bluesky":
            return await _to_channel(ctx, target.type, target.id, content)


# -- people ----------------------------------------------------------------------------------------


async def _to_person(ctx: ToolContext, name: str, content: str) -> str:
    if name.strip().casefold() in _OWNER_NAMES:
        person = await _owner(ctx)
    else:
        try:
            person = await people.find(ctx.tx, name.strip())
        except NotFound as error:
            if not ctx.participants.owner_alone:
                raise _unreachable(name) from None
            raise ToolError(f"{error.message} Nothing was sent.") from None
    place = _account_of(ctx, person)
    if place is None and person.id == OWNER:
        notice = Notice(new_id("ntc"), ctx.agent.id, ctx.turn_id, "message", content, ctx.now_ms)
        await agents.put_notice(ctx.tx, notice)
        return "Your owner will see it as a notice, since no channel reaches them."
    if place is None and not ctx.participants.owner_alone:
        raise _unreachable(name)
    if place is None:
        raise ToolError(
            f"No configured channel reaches {person.name}. {_channel_names(ctx)} Nothing was sent."
        )
    await _ask_unless_visible(ctx, person, content)
    await _deliver(ctx, place, content)
    return f"Sent to {person.name if person.id != OWNER else 'your owner'} in {place.channel}."


def _unreachable(name: str) -> ToolError:
    """Say the same of somebody unknown as of somebody out of reach: others are listening."""
    return ToolError(f"Nobody called {name!r} can be reached from here. Nothing was sent.")


async def _owner(ctx: ToolContext) -> Person:
    owner = await people.find(ctx.tx, OWNER)
    known = await accounts.accounts_of(ctx.tx, OWNER)
    return Person(owner.id, owner.name, owner.trust, owner.roles, tuple(known))


def _account_of(ctx: ToolContext, person: Person) -> Account | None:
    """Return where somebody is reached: as the contacts say, here, or where they have written."""
    channels = set(ctx.channels())
    for contact in ctx.contacts().people:
        if contact.person.casefold() in (person.id.casefold(), person.name.casefold()):
            for place in contact.reach:
                channel, _, address = place.partition(":")
                if channel in channels:
                    return Account(channel, address)
    alone = [participant.person_id for participant in ctx.participants.people] == [person.id]
    if alone and ctx.reply_to is not None and ctx.channel in channels:
        return Account(ctx.channel, ctx.reply_to)
    return next((account for account in person.accounts if account.channel in channels), None)


async def _ask_unless_visible(ctx: ToolContext, person: Person, content: str) -> None:
    """Ask the owner before somebody is told what is made of things that they may not see."""
    if person.id == OWNER:
        return
    participants: Participants = await people.participants(ctx.tx, [person.id], None)
    if not participants.can_see(ctx.source.audience):
        ctx.ask(
            f"{ctx.agent.name} wants to tell {person.name} something from a conversation that they "
            f"were not part of: {content}"
        )


# -- agents ----------------------------------------------------------------------------------------


async def _to_agent(ctx: ToolContext, name: str, content: str) -> str:
    other = await agents.by_name(ctx.tx, name.strip())
    if other is None or other.id == ctx.agent.id:
        names = [agent.name for agent in await agents.everyone(ctx.tx)]
        other_names = (
            ", ".join(other_name for other_name in names if other_name != ctx.agent.name)
            or "none but you"
        )
        hint = (
            f" Other agents: {other_names}."
            if ctx.participants.owner_alone
            else " Nothing was sent."
        )
        raise ToolError(f"There is no other agent named {name!r}.{hint}")
    return await _to_inbox(ctx, other.id, other.name, content)


async def _to_group(ctx: ToolContext, name: str, content: str) -> str:
    group = await groups.by_name(ctx.tx, name.strip())
    if group is None:
        names = ", ".join(each.name for each in await groups.everyone(ctx.tx)) or "none"
        hint = f" Groups: {names}." if ctx.participants.owner_alone else ""
        raise ToolError(f"There is no group {name!r}.{hint} Nothing was sent.")
    return await _to_inbox(ctx, group.id, group.name, content)


async def _to_inbox(ctx: ToolContext, recipient_id: str, name: str, content: str) -> str:
    """Put a message into the inbox of an agent or a group, unless the two have said enough."""
    settings = ctx.settings().agent_messages
    waiting = await messages.waiting(ctx.tx, recipient_id)
    label = f"{AGENT_CHANNEL}{ctx.agent.name}"
    pause = int(settings.cooldown * 1_000)
    delays = settings.on_cooldown == "delay"
    if not delays and any(
        message.channel == label and ctx.now_ms - message.at_ms < pause for message in waiting
    ):
        raise ToolError(
            f"{name} has a message of yours that it has not read yet. Wait for it, or "
            "send more in one message next time. Nothing was sent."
        )
    opening = await groups.find_agent_message(ctx.tx, message_id_for(ctx.turn_id))
    thread, depth = (ctx.turn_id, 1) if opening is None else (opening.thread, opening.depth + 1)
    message = AgentMessage(
        new_id("msg"), ctx.agent.id, recipient_id, thread, depth, ctx.turn_id, "", ctx.now_ms
    )
    if problem := await stop_loop(ctx.tx, settings, message, ctx.agent.name, name):
        return problem
    latest = await groups.latest_between(ctx.tx, ctx.agent.id, recipient_id)
    left = 0 if latest is None else latest + pause - ctx.now_ms
    if left > 0 and not delays:
        raise ToolError(
            f"You wrote to {name} less than {settings.cooldown:g} s ago. Wait {left / 1000:.0f} s, "
            "or go on without it. Nothing was sent."
        )
    text = f"[from agent {ctx.agent.name}] {content}"
    participants = ctx.participants.wire(ctx.source.audience, ctx.source.trust)
    if left > 0:
        schedule = Schedule(
            *(new_id("sched"), recipient_id, text, ctx.now_ms + left, None, label, None),
            *(ctx.now_ms, participants),
        )
        await messages.put_schedule(ctx.tx, schedule)
        await ctx.tx.notify("schedule", recipient_id)
        delayed = replace(
            message, message_id=delayed_message_id(schedule.id), at_ms=schedule.due_at_ms
        )
        await groups.put_agent_message(ctx.tx, delayed)
        return f"{name} gets it in {left / 1000:.0f} s, since you wrote to it just now."
    try:
        item = await messages.put_message(
            ctx.tx,
            recipient_id,
            message.message_id,
            message_wire("user", text),
            MessageOrigin(label),
            ctx.now_ms,
            participants=participants,
        )
    except Conflict:
        raise ToolError(
            f"{name} is archived and takes no messages. Go on without it. Nothing was sent."
        ) from None
    if item is None:
        raise ToolError(f"{name} has been deleted. Nothing was sent.")
    await groups.put_agent_message(ctx.tx, message)
    return f"Sent to {name}, which reads it in its own turn."


async def stop_loop(
    tx: Connection,
    settings: AgentMessageSettings,
    message: AgentMessage,
    sender: str,
    recipient: str,
) -> str:
    """Say why an exchange between agents ends here, if it does, and tell the owner once."""
    count = await groups.count_between(tx, message.thread, message.sender_id, message.recipient_id)
    cost = settings.max_cost
    if count >= settings.max_messages:
        why = f"{sender} and {recipient} have sent each other {count} messages"
    elif message.depth > settings.max_depth:
        why = f"{message.depth - 1} messages between agents have led to this one"
    elif cost is not None and await groups.thread_cost(tx, message.thread) >= cost * 1e9:
        why = f"the exchange has cost {cost:g} dollars"
    else:
        return ""
    notice_id = f"note_loop_{message.thread.partition('_')[2]}"
    if not await agents.has_notice(tx, notice_id):
        text = (
            f"An exchange between agents was stopped: {why}. {sender} wanted to write to "
            f"{recipient}. Write to one of them if it shall go on; [agent_messages] has the limits."
        )
        notice = Notice(
            notice_id, message.sender_id, message.turn_id, "agents.loop", text, message.at_ms
        )
        await agents.put_notice(tx, notice)
    return f"Not sent: {why}, the most allowed. The owner has been told, and decides what follows."


# -- channels --------------------------------------------------------------------------------------


async def _to_channel(ctx: ToolContext, channel: str, address: str, content: str) -> str:
    if channel not in ctx.channels():
        raise ToolError(f"There is no channel {channel!r}. {_channel_names(ctx)} Nothing was sent.")
    if not address:
        if channel != ctx.channel or ctx.reply_to is None:
            raise ToolError(
                f'Where in {channel}? Write the id as "{channel}:ADDRESS". Nothing was sent.'
            )
        address = ctx.reply_to
    elsewhere = (channel, address) != (ctx.channel, ctx.reply_to)
    if elsewhere and ctx.source.audience.clauses:
        person_id = await accounts.person_of_account(ctx.tx, Account(channel, address))
        participants = await people.participants(ctx.tx, [person_id] if person_id else [], None)
        if not participants.can_see(ctx.source.audience):
            ctx.ask(
                f"{ctx.agent.name} wants to send something from a private conversation to "
                f"{channel}:{address}: {content}"
            )
    await _deliver(ctx, Account(channel, address), content)
    return f"Sent to {channel}:{address}."


async def _deliver(ctx: ToolContext, place: Account, content: str) -> None:
    await messages.put_delivery(
        ctx.tx,
        Delivery(
            key=ctx.key,
            agent_id=ctx.agent.id,
            turn_id=ctx.turn_id,
            channel=place.channel,
            target=place.sender,
            text=content,
            next_at_ms=ctx.now_ms,
            created_at_ms=ctx.now_ms,
        ),
    )
    await ctx.tx.notify("outbox", place.channel)


def _channel_names(ctx: ToolContext) -> str:
    names = sorted(ctx.channels())
    return f"There are: {', '.join(names)}." if names else "No channels are configured."


TOOLS: list[Tool] = [send_message]
