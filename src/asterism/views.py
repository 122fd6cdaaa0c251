"""The JSON shapes of every noun, of problems and of pages, shared by the command line and the API.

Shapes are functions from what a verb of the home returns to plain values. `view` does it for any
value by its type; the others are for nouns that are shown with something beside them, such as the
name of an agent.
"""

from __future__ import annotations

import functools
import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, timedelta
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import orjson

from asterism.errors import AsterismError, NotAllowed
from asterism.records import dataclass

if TYPE_CHECKING:
    from asterism.app.audit import Autonomy
    from asterism.app.authentication import AccessToken
    from asterism.app.discovery import Trial
    from asterism.app.home import Home
    from asterism.app.mcp import ImportedServer
    from asterism.app.sources import SourceState
    from asterism.app.turns import ApprovalDetails
    from asterism.memory.blocks import VisibleBlock
    from asterism.memory.health import Health
    from asterism.store.events import RecordedEvent, Verified
    from asterism.tools.mcp.clients import McpServerStatus
    from asterism.tools.mcp.tools import McpTool
    from asterism.turns.context_view import ContextView
    from asterism.types.agents import AgentRecord, Rule, Schedule
    from asterism.types.documents import SourceDocument
    from asterism.types.groups import GroupEvent, GroupRecord
    from asterism.types.memory import EditRecord, Line
    from asterism.types.permissions import ApprovalRecord, Grant
    from asterism.types.spending import Spend, SpendLine, Standing
    from asterism.types.turns import Entry, Outcome, TurnRecord

T = TypeVar("T")
Shape = dict[str, Any]

VERDICTS = ("allowed", "asked", "denied")


def view(value: Any) -> Any:
    """Return a value as JSON can hold it: audiences and schemas in the form they are written in."""
    kind = cast("type[Any]", type(value))
    if kind in _PLAIN:
        return value
    if kind is dict:
        return {
            key if type(key) is str else str(key): view(item)
            for key, item in cast("dict[Any, Any]", value).items()
        }
    if kind is list or kind is tuple:
        return [view(item) for item in cast("list[Any]", value)]
    return _object_view(value, kind)


_STRUCTURE = re.compile(r"(?<=\n)[ \t]*(?:#{1,2}(?= \d{4}-)|[*_]{1,3}(?=\S))")
"""How the lines begin that a transcript in Markdown consists of: a turn, a speaker, a decision."""
_MAX_DELETED = 1_000
_PLAIN = frozenset({type(None), str, int, float, bool})


def _object_view(value: Any, kind: type[Any]) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        mapping = cast("Mapping[Any, Any]", value)
        return {str(key): view(item) for key, item in mapping.items()}
    if isinstance(value, list | tuple):
        return [view(item) for item in cast("list[Any]", value)]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    shown = _shown_fields(kind)
    if callable(shown):
        return shown(value)
    if shown is not None:
        return {key: view(getattr(value, name)) for key, name in shown}
    return value


@functools.cache
def _shown_fields(
    kind: type[Any],
) -> Callable[[Any], Any] | tuple[tuple[str, str], ...] | None:
    """Return how records of a class are shown: by a function, or the keys of their fields."""
    from asterism.memory.schemas import schema_wire
    from asterism.types.agents import Audience
    from asterism.types.memory import (
        CompositeSchema,
        ListSchema,
        LogSchema,
        MapSchema,
        TextSchema,
    )

    if issubclass(kind, Audience):
        return str
    if issubclass(kind, TextSchema | MapSchema | ListSchema | LogSchema | CompositeSchema):
        return schema_wire
    if is_dataclass(kind):
        # What begins with an underscore belongs to the object, such as the home behind an agent.
        names = (field.name for field in fields(kind) if not field.name.startswith("_"))
        return tuple((_json_name(kind, name), name) for name in names)
    return None


def _json_name(kind: type[Any], name: str) -> str:
    """Return the key of a field: a moment such as `created_at_ms` is shown as `created_at`."""
    shown = name.removesuffix("_ms")
    return shown if hasattr(kind, shown) else name


# -- groups ----------------------------------------------------------------------------------------


def group_view(group: GroupRecord) -> Shape:
    """Return a group with its members; how busy they are is not part of it."""
    shape = view(group)
    shape["members"] = [
        {name: value for name, value in view(member).items() if name not in ("waiting", "position")}
        for member in group.members
    ]
    return {name: value for name, value in shape.items() if name != "memory"}


def transcript_markdown(name: str, events: Sequence[GroupEvent]) -> str:
    """Return the transcript of a group as Markdown: a section for each turn."""
    lines = [f"# {name}", ""]
    turn = ""
    said = ""
    for event in events:
        if event.kind == "reply" and event.text == said:
            continue  # the words of the one member that was asked
        said = event.text if event.kind == "answer" else said
        if event.turn_id != turn:
            turn = event.turn_id
            lines += [f"## {event.at:%Y-%m-%d %H:%M} UTC, {turn}", ""]
        text, who = _plain_lines(event.text), event.speaker.replace("*", r"\*")
        match event.kind:
            case "decision":
                lines.append(f"*{' '.join(text.split())}*")
                votes = event.details.get("notes", {}).get("minutes", {}).get("votes", ())
                lines += [f"- {vote['member']} voted {vote['choice']}" for vote in votes]
            case "question":
                continue
            case "delegation":
                to = f" to {event.details['to']}" if event.details.get("to") else ""
                lines.append(f"**{who}** delegates{to}: {text}")
            case "answer" if event.details.get("state") != "done":
                lines.append(f"**{who}** ({event.details.get('state')}): {text}")
            case "message":
                lines.append(f"**{speaker_label(who)}**: {text}")
            case _:
                lines.append(f"**{who}**: {text}")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _plain_lines(text: str) -> str:
    """Return a text in which no line looks like one of a transcript: a heading or a speaker."""
    return _STRUCTURE.sub(lambda found: re.sub(r"([*_#])", r"\\\1", found[0]), text)


def speaker_label(speaker: str) -> str:
    """Return who has said something to a group: a name, and where it was said.

    Args:
        speaker: That of a message in a transcript, such as `owner`, `terminal` or `discord:ann`.
    """
    channel, _, sender = speaker.partition(":")
    match channel:
        case "owner":
            return "owner"
        case "terminal":
            return "owner (terminal)"
        case "agent" | "group":
            return f"{sender} ({channel})"
        case _ if sender:
            return f"{sender if sender.startswith('@') else f'@{sender}'} ({channel})"
        case _:
            return f"({channel})"


# -- problems and pages ----------------------------------------------------------------------------


def problem(error: AsterismError) -> Shape:
    """Return an error as problem+json: its stable code, what kind it is, and what happened."""
    title = (type(error).__doc__ or "").strip().partition("\n")[0].rstrip(".")
    return problem_of(error.code, title, error.message)


def problem_of(code: str, title: str, detail: str) -> Shape:
    """Return a problem that is not an error of the home; known secrets are taken out."""
    from asterism.telemetry.redaction import redact

    return {"type": code, "title": title, "detail": redact(detail)}


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a long list, and where the next part begins."""

    items: Sequence[T]
    limit: int
    next: str | None
    """The cursor of the next page; None: this is the last."""


def page_of(items: Sequence[T], limit: int, cursor: Callable[[T], str]) -> Page[T]:
    """Return a page; `cursor` names an item, and a page that is full may have one after it."""
    return Page(items, limit, cursor(items[-1]) if len(items) == limit else None)


# -- names -----------------------------------------------------------------------------------------


async def agent_names(home: Home) -> dict[str, str]:
    """Return the names of agents and groups by id; of none, if the caller may not read them."""
    try:
        named = [*await home.agents.list(archived=None), *await home.groups.list()]
        return {each.id: each.name for each in named}
    except NotAllowed:
        return {}


async def names_with_deleted(home: Home, ids: Collection[str]) -> dict[str, str]:
    """Return the names of agents and groups by id, those of deleted agents among `ids` too.

    These stand in the audit log, as long as it has them.
    """
    names = await agent_names(home)
    if all(id in names for id in ids):
        return names
    try:
        deleted = await home.audit.list(kind="agent.deleted", limit=_MAX_DELETED)
    except NotAllowed:
        return names
    gone = {
        str(event.agent_id): f"{event.body['what']} (deleted)"
        for event in reversed(deleted)
        if event.agent_id in ids and event.body and event.body.get("what")
    }
    return gone | names


async def person_names(home: Home) -> dict[str, str]:
    """Return the names of persons by id; of none, if the caller may not read them."""
    try:
        return {person.id: person.name for person in await home.people.list()}
    except NotAllowed:
        return {}


# -- access ----------------------------------------------------------------------------------------


def access_token_view(
    token: AccessToken, agents: Mapping[str, str], persons: Mapping[str, str]
) -> Shape:
    """Return a token with the names of its agents and of whom it acts as."""
    return {
        **view(token),
        "agents": [agents.get(agent, agent) for agent in token.agents],
        "agent_ids": [*token.agents],
        "person": persons.get(token.person_id) if token.person_id is not None else None,
    }


# -- turns, approvals, schedules -------------------------------------------------------------------


def is_begun(record: TurnRecord) -> bool:
    """Tell whether a turn has begun, or only waits for others to end."""
    return record.first_seq > 0


def turn_view(record: TurnRecord, agents: Mapping[str, str]) -> Shape:
    """Return a turn with the name of its agent."""
    shape = {**view(record), "agent": agents.get(record.agent_id)}
    return shape if is_begun(record) else {**shape, "opened_at": None}


def entry_view(entry: Entry) -> Shape:
    """Return an entry of the journal, read where it is JSON."""
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "key": entry.key,
        "at": entry.at_ms,
        "body": read_body(entry.body),
        "meta": read_body(entry.meta.encode()) if entry.meta else None,
    }


def read_body(body: bytes) -> Any:
    """Return what an entry holds, as JSON or else as text."""
    try:
        return orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return body.decode("utf-8", "replace")


def outcome_view(outcome: Outcome, agent: str) -> Shape:
    """Return how a turn ended."""
    return {
        "agent": agent,
        "agent_id": outcome.agent_id,
        "turn_id": outcome.turn_id,
        "state": outcome.state.value,
        "text": outcome.text,
        "usage": outcome.usage,
    }


def approval_view(approval: ApprovalRecord, agents: Mapping[str, str]) -> Shape:
    """Return a question to a person with the name of the agent that asks."""
    return {**view(approval), "agent": agents.get(approval.agent_id), "state": approval.verdict}


def approval_details_view(details: ApprovalDetails, agents: Mapping[str, str]) -> Shape:
    """Return a question with who may answer it and what was granted along."""
    shape = approval_view(details.approval, agents)
    return {**shape, "whom": details.whom, "granted": view(details.grant)}


def grant_view(grant: Grant, agents: Mapping[str, str]) -> Shape:
    """Return a grant with the name of its agent."""
    return {**view(grant), "agent": agents.get(grant.agent_id or "")}


def schedule_view(agent: AgentRecord, schedule: Schedule) -> Shape:
    """Return a schedule with the name of its agent."""
    return {**view(schedule), "agent": agent.name}


# -- memory ----------------------------------------------------------------------------------------


def block_view(seen: VisibleBlock) -> Shape:
    """Return a block as an agent or the owner sees it."""
    block = view(seen.block)
    return {"name": seen.name, "owner": seen.owner_name, **block, "may": seen.permission.value}


def block_at_view(
    seen: VisibleBlock, lines: Sequence[Line], version: int, shares: Mapping[str, str]
) -> Shape:
    """Return a block as it was at a version, with whom it is shared and its lines."""
    then = {"version": version, "text": "\n".join(line.text for line in lines)}
    return {**block_view(seen), **then, "shared_with": shares, "lines": view(lines)}


def blame_view(blame: Sequence[tuple[Line, list[EditRecord]]]) -> list[Shape]:
    """Return the lines of a block, each with the edits that made it."""
    return [{**view(line), "made_by": view(records)} for line, records in blame]


def health_view(health: Health) -> Shape:
    """Return what a check of a memory has found."""
    return {
        "counts": health.counts,
        "findings": view(health.findings),
        "looked_at": health.checked_passages,
    }


def context_view(context: ContextView) -> Shape:
    """Return what a model is shown."""
    shape = view(context)
    for line in shape["lines"]:
        del line["wire"]
    messages: list[Any] = [orjson.loads(message) for message in context.messages]
    return {**shape, "messages": messages, "tokens": context.tokens}


def source_view(state: SourceState, agents: Mapping[str, str]) -> Shape:
    """Return a source with its counts and the names of the agents that can search it."""
    readers = [agents.get(agent, agent) for agent in state.agents]
    return {**view(state.source), **view(state), "source": state.source.name, "agents": readers}


def source_page_view(
    state: SourceState, page: Page[SourceDocument], agents: Mapping[str, str]
) -> Shape:
    """Return a source with some of its documents."""
    return {**source_view(state, agents), "files": view(page.items)}


# -- the audit log ---------------------------------------------------------------------------------


def event_reference(event: RecordedEvent, names: Mapping[str, str]) -> str:
    """Return how an event is named: its chain and its number, such as `aria:12`."""
    return f"{names.get(event.chain, event.chain)}:{event.number}"


def event_view(event: RecordedEvent, names: Mapping[str, str]) -> Shape:
    """Return an event of the audit log."""
    return {
        "event": event_reference(event, names),
        "chain": event.chain,
        "number": event.number,
        "at": event.at_ms,
        "kind": event.kind,
        "actor": event.actor,
        "agent_id": event.agent_id,
        "turn_id": event.turn_id,
        "body": event.body,
        "forgotten": event.body is None,
        "hash": event.hash.hex(),
    }


def verification_view(verified: Verified) -> Shape:
    """Return whether the audit log is as it was written."""
    return {
        "sound": verified.sound,
        "events": verified.events,
        "forgotten": verified.forgotten,
        "heads": [
            {"chain": head.chain, "number": head.length, "hash": head.hash.hex()}
            for head in verified.heads
        ],
        "flaws": [
            {"chain": flaw.chain, "number": flaw.number, "what": flaw.what}
            for flaw in verified.flaws
        ],
    }


def autonomy_view(autonomy: Autonomy) -> Shape:
    """Return how many calls with an effect outside were allowed, asked for and denied."""
    counts = {verdict: autonomy.total(verdict) for verdict in VERDICTS}
    return {**counts, "tools": autonomy.tools, "forgotten": autonomy.forgotten}


# -- tools, rules, MCP servers, models -------------------------------------------------------------


def rule_view(number: int, rule: Rule) -> Shape:
    """Return a rule with its number and the sentence that the model reads."""
    return {"number": number, **rule.form(), "text": str(rule)}


def mcp_server_view(server: McpServerStatus, problem: str) -> Shape:
    """Return an MCP server and what is wrong with it."""
    return {
        "name": server.name,
        "transport": server.settings.transport,
        "enabled": server.settings.enabled,
        "tools": server.offered,
        "refused": sum(bool(tool.refused) for tool in server.tools),
        "asked_at": server.listing.at_ms if server.listing else None,
        "protocol": server.listing.protocol if server.listing else None,
        "server": server.listing.server if server.listing else None,
        "problem": problem or None,
    }


def mcp_tool_view(offered: McpTool) -> Shape:
    """Return a tool of an MCP server, or why it is not offered."""
    shape: Shape = {"tool": offered.own_name, "name": offered.name or None}
    if offered.tool is None:
        return {**shape, "refused": offered.refused}
    return {
        **shape,
        **offered.tool.wire()["function"],
        "effects": [str(effect.kind) for effect in offered.tool.effects({})],
        "ask": offered.tool.ask,
        "retry_safety": offered.tool.retry_safety,
        "trust": offered.tool.trust,
    }


def imported_server_view(server: ImportedServer, *, dry_run: bool) -> Shape:
    """Return what became of a server in the configuration of another program."""
    return {
        "name": server.name,
        "imported": not server.refused and not dry_run,
        "refused": server.refused or None,
        "notes": list(server.notes),
        "keys": sorted(server.secrets),
    }


def trial_view(model: str, trial: Trial | AsterismError) -> Shape:
    """Return how a model answered a short question, or why it did not."""
    if isinstance(trial, AsterismError):
        return {"model": model, "error": trial.message, "type": trial.code}
    return {**view(trial), "speed": trial.speed}


# -- spending --------------------------------------------------------------------------------------


class SpendBy(StrEnum):
    """What calls are added up by."""

    AGENT = "agent"
    MODEL = "model"
    DAY = "day"
    PERSON = "person"


@dataclass(slots=True)
class SpendSum:
    """Calls added up."""

    name: str
    calls: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    cost: int = 0
    presumed: int = 0
    paid: bool = False
    unknown: bool = False
    """Whether there were calls whose price nobody knows."""

    def add(self, line: SpendLine) -> None:
        """Count a line in."""
        self.calls += line.calls
        self.input += line.usage.input
        self.cached += line.usage.cached
        self.output += line.usage.output
        self.presumed += line.presumed
        self.cost += line.cost or 0
        self.unknown = self.unknown or line.cost is None
        self.paid = self.paid or bool(line.cost or line.presumed)

    @property
    def cost_text(self) -> str:
        """The cost in words."""
        from asterism.types.spending import dollars

        if not self.paid:
            return "unknown" if self.unknown else "free"
        return dollars(self.cost) + (" + unknown" if self.unknown else "")


def spend_sums(lines: Iterable[SpendLine], by: SpendBy) -> list[SpendSum]:
    """Add calls up: days in their order, anything else by cost."""
    sums: dict[str, SpendSum] = {}
    for line in lines:
        name = {
            SpendBy.AGENT: line.agent,
            SpendBy.MODEL: line.model or "(not recorded)",
            SpendBy.DAY: line.day,
            SpendBy.PERSON: line.person or "(nobody)",
        }[by]
        sums.setdefault(name, SpendSum(name)).add(line)
    if by is SpendBy.DAY:
        return [sums[name] for name in sorted(sums)]
    return sorted(sums.values(), key=lambda row: (-row.cost - row.presumed, -row.calls, row.name))


def spend_by_day(spend: Spend) -> list[tuple[date, int, int]]:
    """Return for every day what was spent and what is presumed."""
    first, last = date.fromisoformat(spend.first), date.fromisoformat(spend.last)
    sums = {row.name: row for row in spend_sums(spend.lines, SpendBy.DAY)}
    days = [first + timedelta(days=number) for number in range((last - first).days + 1)]
    nothing = SpendSum("")
    rows = ((day, sums.get(f"{day:%Y-%m-%d}", nothing)) for day in days)
    return [(day, row.cost, row.presumed) for day, row in rows]


def spend_view(spend: Spend, by: SpendBy) -> Shape:
    """Return what models have cost, and how much of each cap is used."""
    return {
        "first": spend.first,
        "last": spend.last,
        "by": by.value,
        "sums": [
            {
                "name": row.name,
                "calls": row.calls,
                "tokens_in": row.input,
                "tokens_cached": row.cached,
                "tokens_out": row.output,
                "cost_usd": None if row.unknown and not row.paid else _usd(row.cost),
                "presumed_usd": _usd(row.presumed),
                "price_unknown": row.unknown,
            }
            for row in spend_sums(spend.lines, by)
        ],
        "days": [
            {"day": f"{day:%Y-%m-%d}", "cost_usd": _usd(cost), "presumed_usd": _usd(presumed)}
            for day, cost, presumed in spend_by_day(spend)
        ],
        "caps": [cap_view(standing) for standing in spend.standings],
    }


def cap_view(standing: Standing) -> Shape:
    """Return a cap, and how much of it is used."""
    return {
        "scope": standing.cap.scope,
        "who": standing.cap.who,
        "span": standing.cap.span.value,
        "setting": standing.cap.setting,
        "cap_usd": _usd(standing.cap.amount),
        "spent_usd": _usd(standing.total.spent),
        "presumed_usd": _usd(standing.total.presumed),
        "reserved_usd": _usd(standing.total.reserved),
        "renewal": standing.renewal,
    }


def _usd(amount: int) -> float:
    return amount / 1_000_000_000
