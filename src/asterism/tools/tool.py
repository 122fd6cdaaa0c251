"""`@tool`: a typed function becomes something a model can call.

The docstring is what the model reads, the signature becomes the schema, the return value is the
result. What a tool declares about its effect decides what a crash in the middle of a call means.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import field
from typing import Any, TypeVar, cast, get_type_hints, overload

import orjson

from asterism.config import Settings
from asterism.config.documents import Contacts
from asterism.errors import ConfigError, InvalidInput, ToolError
from asterism.memory.gate.writer import Writer
from asterism.permissions import Actor, Authority
from asterism.records import dataclass
from asterism.store.database import Connection
from asterism.telemetry.redaction import redact
from asterism.times import Moment
from asterism.types.agents import (
    EVERY_TOOL,
    OWNER,
    OWNER_ALONE,
    OWNER_ONLY,
    PUBLIC,
    AgentRecord,
    Audience,
    Label,
    Participants,
    Trust,
    least_trusted,
)
from asterism.types.memory import Source
from asterism.types.permissions import Declared, Effect, EffectKind, ToolEffect, effects_of
from asterism.types.search import Query, SearchResult
from asterism.types.turns import ResultState, RetrySafety, ToolResult

NOT_HAPPENED: Any = object()
"""What a check returns when the effect did not happen; anything else is the call's result."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A person's answer to a question that a call waited for."""

    approved: bool
    note: str | None = None
    by: str = ""
    """What they are called."""
    arguments: str | None = None
    """The arguments as the person changed them, as JSON."""
    approval_id: str | None = None
    """The question that was answered."""
    person_id: str = ""
    """The id of whoever answered."""


class NeedsApproval(Exception):
    """Raised through `ToolContext.ask`: the call must wait for a person."""

    def __init__(self, question: str, reviewers: tuple[str, ...] = (OWNER,)) -> None:
        super().__init__(question)
        self.question = question
        self.reviewers = reviewers


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a call may know: who calls, in which turn, under which key."""

    agent: AgentRecord
    turn_id: str
    key: str
    """The same for every try of the same call, and for no other call: an idempotency key."""
    now_ms: int
    """The time of the call, in milliseconds since 1970."""
    channel: str = ""
    reply_to: str | None = None
    decision: Decision | None = None
    """The approval this call was given, if it asked for one."""
    progress: Callable[[str], None] = field(default=lambda _: None)
    """Show watchers what the call is doing."""
    transaction: Connection | None = None
    participants: Participants = OWNER_ALONE
    """Who is present: what they may not see, the call must not bring to light."""
    people: frozenset[str] = frozenset({OWNER})
    """Who speaks, in every way that a policy may name them."""
    source: Source = field(default_factory=lambda: Source(()))
    """What whatever the call writes comes from, who may see it and how far it is trusted."""
    authority: Authority = field(default_factory=Authority)
    trust_levels: list[Trust] = field(default_factory=list[Trust])
    """How far what the result quotes is trusted."""
    audiences: list[Audience] = field(default_factory=list[Audience])
    """Who may see what the result quotes."""
    searching: Callable[[Query], Awaitable[SearchResult]] | None = None
    searching_all: Callable[[Query], Awaitable[SearchResult]] | None = None
    settings: Callable[[], Settings] = Settings
    """The configuration in use."""
    channels: Callable[[], Collection[str]] = tuple
    """The names of the channels there are."""
    contacts: Callable[[], Contacts] = Contacts
    """Where people are reached."""
    resolve: Callable[[str], str] = str
    """Returns the stored key that `secret:NAME` names, and any other text as it is."""

    now = Moment()

    def __post_init__(self) -> None:
        show = self.progress

        def clean(text: str) -> None:
            show(redact(text))  # watchers see no key, and a tool may know one

        object.__setattr__(self, "progress", clean)

    async def search(self, query: Query) -> SearchResult:
        """Return what the agent's memory has on a query, as far as those present may see it.

        It reads in a transaction of its own, so a tool that is declared transactional has no use
        for it. What of it the result tells must go through `quotes`.
        """
        if self.searching is None:
            raise RuntimeError("This context has no memory to search.")
        return await self.searching(query)

    async def search_all(self, query: Query) -> SearchResult:
        """Return what the memory of all agents has on a query, as far as those present may see."""
        if self.searching_all is None:
            raise RuntimeError("This context has no memory to search.")
        return await self.searching_all(query)

    def quotes(self, sources: Iterable[Source]) -> None:
        """Note what the result brings to light: it counts for all that is said in the turn."""
        for source in sources:
            if source.trust not in self.trust_levels:
                self.trust_levels.append(source.trust)
            if source.audience not in self.audiences:
                self.audiences.append(source.audience)

    @property
    def label(self) -> Label:
        """The label of what the result quotes."""
        return Label(least_trusted(self.trust_levels), Audience.intersection(self.audiences))

    def writer(self, reason: str = "") -> Writer:
        """Return whom the gate of memory shall take this call for."""
        return Writer(
            actor=Actor("agent", self.agent.id, self.agent.name, self.source.trust),
            source=self.source,
            now=self.now_ms,
            agent_id=self.agent.id,
            participants=self.participants,
            turn_id=self.turn_id,
            reason=reason,
            approved=self.decision is not None and self.decision.approved,
            authority=self.authority,
        )

    @property
    def tx(self) -> Connection:
        """The transaction in which a transactional tool has its effect."""
        if self.transaction is None:
            raise RuntimeError("Only a transactional tool has a transaction.")
        return self.transaction

    def ask(self, question: str, reviewers: tuple[str, ...] = (OWNER,)) -> None:
        """Go on if a person has approved this call; else park the turn and ask.

        Call it before the tool does anything: the tool is run again from its start. `reviewers`
        says who may answer: `owner`, `present` (who opened the turn), `person:…` or `role:…`.
        """
        if self.decision is None:
            raise NeedsApproval(question, reviewers)


_JSON_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
_HOME_EFFECTS = (Effect(EffectKind.REMEMBER),)
"""What a transactional tool does: all of its effect is in the home's own database."""

DeclaredAudience = (
    str | Audience | Callable[[AgentRecord, Participants, Mapping[str, Any]], Audience]
)
"""Who may see the results of a tool: an audience, or a function of who calls, those present and the
arguments. It must not look at what is hidden: whether a person is asked would tell."""

Function = Callable[..., Any]
Check = Callable[..., Awaitable[Any]]


class Tool:
    """A function that a model may call, with its schema and what it declares."""

    def __init__(
        self,
        function: Function,
        *,
        name: str,
        retry_safety: RetrySafety,
        check: Check | None,
        ask: bool,
        timeout: float | None,
        trust: Trust | None = Trust.TOOL,
        compact: bool | str = True,
        effects: Declared | None = None,
        reserved: bool = False,
        audience: DeclaredAudience | None = None,
        changes_by_itself: bool = False,
    ) -> None:
        self.function = function
        self.name = name
        self.retry_safety = retry_safety
        self.ask = ask
        self.timeout = timeout
        self.trust = trust
        """How far its results are trusted; None: they are the system's own words."""
        self.compact = compact
        """Whether small models are offered it, too; an expression: with messages that have it."""
        self.reserved = reserved
        """Whether only agents have it whose list of tools names it."""
        self.declared_effects = effects
        """What its calls do, by which they are judged; None: it does not say."""
        self.changes_by_itself = changes_by_itself
        """Whether the same call may have another result a moment later, by itself."""
        self._audience = _checked_audience(name, audience)
        self._check = check
        self._async = inspect.iscoroutinefunction(function)
        self._takes_context, self._parameters = _parameters_of(function)
        self._description, self._notes = _read_docstring(inspect.getdoc(function) or "")
        self._schema: Any = None
        self._shown_schema: dict[str, Any] | None = None
        self.definition: Any = None
        """What else makes it what it is, such as its source; in JSON, for its digest."""
        self._digest: str | None = None
        self.__doc__ = function.__doc__

    @property
    def is_lookup(self) -> bool:
        """Whether a small model is told to call it where a message asks for it: it only reads."""
        return isinstance(self.compact, str) and self.declared_effects == ToolEffect("read")

    def __repr__(self) -> str:
        return f"<tool {self.name}, {self.retry_safety.value}>"

    def wire(self) -> dict[str, Any]:
        """Return the description that models are given."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self._description,
                "parameters": self._json_schema(),
            },
        }

    def effects(self, arguments: dict[str, Any]) -> tuple[Effect, ...]:
        """Return what a call with these arguments, as `read` gives them, would do."""
        if self.declared_effects is None and self.retry_safety is RetrySafety.TRANSACTIONAL:
            return _HOME_EFFECTS
        return effects_of(self.declared_effects, arguments)

    def audience(
        self, agent: AgentRecord, participants: Participants, arguments: Mapping[str, Any]
    ) -> Audience:
        """Return who may see what a call brings back.

        A tool that does not say: the owner, if its calls read something or might do anything.
        """
        declared = self._audience
        if isinstance(declared, Audience):
            return declared
        if declared is not None:
            return declared(agent, participants, arguments)
        if self.declared_effects is None or any(
            effect.kind.shows for effect in self.effects(dict(arguments))
        ):
            return OWNER_ONLY
        return PUBLIC

    def reviewed_effects(self, arguments: dict[str, Any]) -> tuple[Effect, ...]:
        """Return what people who are asked are told that a call would do."""
        return self.effects(arguments)

    def digest(self, arguments: Mapping[str, Any]) -> str:
        """Return what tells the tool of a call from any other of its name.

        It covers whatever people and models are told of the tool, and what it declares. What was
        approved is run only by a tool with the same digest.
        """
        del (
            arguments
        )  # it is the same for all calls, but for tools that make others' calls possible
        if self._digest is None:
            identity = {
                "tool": self.wire(),
                "retry_safety": self.retry_safety,
                "effects": _effects_for_digest(self.declared_effects),
            }
            spelt = orjson.dumps([identity, self.definition], default=str, option=_JSON_OPTIONS)
            self._digest = hashlib.sha256(spelt).hexdigest()[:32]
        return self._digest

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the arguments of a call, checked and converted; raise `ToolError` if unfit."""
        from pydantic import ValidationError

        raw = read_object(self.name, arguments)
        try:
            model = self._model().model_validate(raw)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}"
                for fault in error.errors(include_url=False)[:5]
            )
            raise ToolError(
                f"The arguments do not fit {self.name}: {faults}. Correct them and call it again."
            ) from None
        return {name: getattr(model, name) for name in self._parameters}

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
        """Run the tool; what it returns is the result of a call that succeeded."""
        text = await self.run(context, arguments)
        return ToolResult(ResultState.OK, text, empty=isinstance(text, NothingFound))

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        """Run the function and return its result as text."""
        positional = (context,) if self._takes_context else ()
        if self._async:
            value = await self.function(*positional, **arguments)
        elif self.retry_safety is RetrySafety.TRANSACTIONAL:
            value = self.function(*positional, **arguments)
        else:
            value = await asyncio.to_thread(self.function, *positional, **arguments)
        return as_text(value)

    async def find_result(self, context: ToolContext, arguments: dict[str, Any]) -> str | None:
        """Ask whether the call with this key happened; return its result, or None if not."""
        assert self._check is not None
        positional = (context,) if self._takes_context else ()
        value = await self._check(*positional, **arguments)
        return None if value is NOT_HAPPENED else as_text(value)

    def _model(self) -> Any:
        if self._schema is None:
            from pydantic import ConfigDict, Field, create_model

            hints = get_type_hints(self.function, include_extras=True)
            fields: dict[str, Any] = {}
            for name, parameter in self._parameters.items():
                default = ... if parameter.default is parameter.empty else parameter.default
                fields[name] = (
                    hints.get(name, Any),
                    Field(default, description=self._notes.get(name)),
                )
            try:
                self._schema = create_model(
                    self.name, __config__=ConfigDict(extra="forbid"), **fields
                )
            except Exception as error:
                raise ConfigError(
                    f"The signature of tool {self.name!r} cannot be described to a model: {error}"
                ) from error
        return self._schema

    def _json_schema(self) -> dict[str, Any]:
        if self._shown_schema is None:
            schema: dict[str, Any] = self._model().model_json_schema()
            self._shown_schema = cast("dict[str, Any]", _shortened_schema(schema))
        return self._shown_schema


def _checked_audience(
    name: str, declared: DeclaredAudience | None
) -> Audience | Callable[[AgentRecord, Participants, Mapping[str, Any]], Audience] | None:
    if not isinstance(declared, str):
        return declared
    try:
        return Audience.from_declaration(declared)
    except InvalidInput as error:
        raise ConfigError(f"The audience of tool {name!r}: {error.reason}") from None


def _effects_for_digest(effects: Declared | None) -> Any:
    if effects is None or isinstance(effects, ToolEffect):
        return effects
    if callable(effects):
        return (
            f"{effects.__module__}.{getattr(effects, '__qualname__', type(effects).__qualname__)}"
        )
    return list(effects)


def read_object(name: str, arguments: str) -> dict[str, Any]:
    """Return the JSON object that a model wrote as the arguments of a tool; else `ToolError`."""
    try:
        parsed: Any = orjson.loads(arguments) if arguments.strip() else {}
    except orjson.JSONDecodeError as error:
        raise ToolError(
            f"The arguments of {name} are not valid JSON ({error}). "
            "Call it again with a JSON object."
        ) from None
    if not isinstance(parsed, dict):
        raise ToolError(
            f"The arguments of {name} must be a JSON object such as {{}}, "
            f"not {type(cast('object', parsed)).__name__}. Call it again."
        )
    return cast("dict[str, Any]", parsed)


class NothingFound(str):
    """The result of a call that looked for something and found nothing; say what to do next."""

    __slots__ = ()


def as_text(value: Any) -> str:
    """Return a tool's return value as the text a model reads."""
    if isinstance(value, str):
        return value
    if value is None:
        return "Done."
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:
        return str(value)


def _parameters_of(function: Function) -> tuple[bool, dict[str, inspect.Parameter]]:
    parameters = dict(inspect.signature(function).parameters)
    takes_context = False
    for name, parameter in list(parameters.items()):
        if name == "ctx" or parameter.annotation in (ToolContext, "ToolContext"):
            takes_context = True
            del parameters[name]
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(
                f"Tool {function.__name__!r} takes *{name}; a model needs each parameter by name."
            )
    return takes_context, parameters


_ARGUMENT = re.compile(r"^\s+(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Split a Google-style docstring into what the tool does and a note per argument."""
    before, _, after = text.partition("\nArgs:\n")
    notes: dict[str, str] = {}
    current = ""
    for line in after.splitlines():
        if line.strip() and not line.startswith(" "):
            break  # the next heading
        match = _ARGUMENT.match(line)
        if match and (not current or len(line) - len(line.lstrip()) <= 4):
            current = match[1]
            notes[current] = match[2].strip()
        elif current and line.strip():
            notes[current] = f"{notes[current]} {line.strip()}"
    return before.strip(), notes


_UNNEEDED_KEYWORDS = ("title", "default", "additionalProperties")
"""Words of a schema that cost tokens and tell a model nothing, where they say what is usual."""
_USUAL_DEFAULTS: tuple[Any, ...] = ("", 0, None, False)


def _shortened_schema(value: Any, *, names: bool = False) -> Any:
    """Leave away what a model need not read; `names` are those of properties, and all count."""
    if isinstance(value, list):
        return [_shortened_schema(inner) for inner in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    schema = cast("dict[str, Any]", value)
    if names:
        return {key: _shortened_schema(inner) for key, inner in schema.items()}
    short = {
        key: _shortened_schema(inner, names=key in ("properties", "$defs"))
        for key, inner in schema.items()
        if key not in _UNNEEDED_KEYWORDS or not (key == "title" or inner in _USUAL_DEFAULTS)
    }
    choices = short.get("anyOf")
    if isinstance(choices, list) and schema.get("default", 1) is None:
        others = [choice for choice in cast("list[Any]", choices) if choice != {"type": "null"}]
        if len(others) == 1:  # it can be left away instead of being null
            del short["anyOf"]
            short = {**others[0], **short}
    return short


F = TypeVar("F", bound=Function)


@overload
def tool(function: Function, /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    transactional: bool = False,
    repeatable: bool = False,
    check: Check | None = None,
    ask: bool = False,
    timeout: float | None = None,
    trust: Trust | None = Trust.TOOL,
    compact: bool | str = True,
    effects: Declared | None = None,
    reserved: bool = False,
    audience: DeclaredAudience | None = None,
    changes_by_itself: bool = False,
) -> Callable[[Function], Tool]: ...
def tool(
    function: Function | None = None,
    /,
    *,
    name: str | None = None,
    transactional: bool = False,
    repeatable: bool = False,
    check: Check | None = None,
    ask: bool = False,
    timeout: float | None = None,
    trust: Trust | None = Trust.TOOL,
    compact: bool | str = True,
    effects: Declared | None = None,
    reserved: bool = False,
    audience: DeclaredAudience | None = None,
    changes_by_itself: bool = False,
) -> Tool | Callable[[Function], Tool]:
    """Make a typed function callable by models.

    Args:
        function: The function, when used without parentheses.
        name: What models call it; the function's own name if not given.
        transactional: Its effect is made through `ctx.tx` and commits together with its result.
        repeatable: Running it again with the same arguments and key is harmless.
        check: Called like the tool after a crash; returns the result if the effect with this
            `ctx.key` happened, else `NOT_HAPPENED`.
        ask: A person is asked before each call.
        timeout: Seconds after which a call is given up.
        trust: How far its results are trusted. After results of less trust than known persons,
            changes of memory blocks wait for a person; None: nothing from outside is in them.
        compact: Offer it to small models, too, which read each description slowly: always, never,
            or with messages in which this regular expression is found (case does not count).
        effects: What its calls do in terms of their arguments, such as
            `ToolEffect("send", recipients="to", content="text")`. After untrusted text was read,
            calls are judged by it; a tool that does not say might do anything.
        reserved: Only agents have it whose own list of tools names it.
        audience: Who may see its results, such as "public", "owner" or "role:family". Where
            somebody is present who may not, the owner is asked before each call. Without it: the
            owner alone, unless `does` says that calls only send, write, pay, delete or remember.
        changes_by_itself: The same call may have another result a moment later, as when it asks
            whether something is done: an agent may make it several times in a turn.
    """
    declared = [transactional, repeatable, check is not None]
    if sum(declared) > 1:
        raise ConfigError("A tool is transactional, repeatable or checkable: declare one of them.")
    retry_safety = RetrySafety.UNKNOWN
    if transactional:
        retry_safety = RetrySafety.TRANSACTIONAL
    elif repeatable:
        retry_safety = RetrySafety.REPEATABLE
    elif check is not None:
        retry_safety = RetrySafety.CHECKABLE

    def wrap(wrapped: Function) -> Tool:
        return Tool(
            wrapped,
            name=name or wrapped.__name__,
            retry_safety=retry_safety,
            check=check,
            ask=ask,
            timeout=timeout,
            trust=trust,
            compact=compact,
            effects=effects,
            reserved=reserved,
            audience=audience,
            changes_by_itself=changes_by_itself,
        )

    return wrap if function is None else wrap(function)


@dataclass(frozen=True, slots=True)
class MoreTools:
    """A tool through which others are called."""

    tool: Tool
    target_call: Callable[[str], tuple[str, str] | None]
    """Returns the name and the arguments of the tool that its arguments mean, if any."""


_MAX_MESSAGE_TOOLS = 4
"""So many tools a small model is offered for a message besides those that it always has."""


def _is_always_offered(tool: Tool, allowed: tuple[str, ...] | None) -> bool:
    """Tell whether a small model is offered a tool with every message.

    An agent with a list of its own was given these tools for a purpose.
    """
    own_list = allowed is not None and EVERY_TOOL not in allowed
    return tool.compact is True or (isinstance(tool.compact, str) and own_list)


def is_offered_with(tool: Tool, message: str) -> bool:
    """Tell whether a message seems to need a tool: it has its expression, or names the tool."""
    pattern = tool.compact if isinstance(tool.compact, str) else ""
    named = rf"\b(?:call|use|run|tool)\s+(?:the\s+)?(?:tool\s+)?{re.escape(tool.name)}\b"
    return (
        re.search(rf"{pattern}|{named}" if pattern else named, message, re.IGNORECASE) is not None
    )


class Toolbox:
    """The tools there are, by name."""

    def __init__(self, tools: list[Tool] | None = None) -> None:
        self._tools: dict[str, Tool] = {}
        self._wire: dict[tuple[tuple[str, ...] | None, bool], bytes | None] = {}
        self.more: MoreTools | None = None
        """What leads a small model to the tools that it is not shown."""
        for tool in tools or ():
            self.add(tool)

    def add(self, tool: Tool) -> None:
        """Offer a tool; a name can be given away once."""
        if tool.name in self._tools and self._tools[tool.name] is not tool:
            raise ConfigError(f"Two tools are called {tool.name!r}. Rename one with @tool(name=…).")
        self._tools[tool.name] = tool
        self._wire.clear()

    def remove(self, tool: Tool) -> None:
        """Offer a tool no more, unless its name was given to another meanwhile."""
        if self._tools.get(tool.name) is tool:
            del self._tools[tool.name]
            self._wire.clear()

    def get(self, name: str, allowed: tuple[str, ...] | None) -> Tool | None:
        """Return a tool that an agent may call, or None."""
        if (
            self.more is not None
            and name == self.more.tool.name
            and self.hidden_from_small_models(allowed)
        ):
            return self.more.tool
        if allowed is not None and name not in allowed and EVERY_TOOL not in allowed:
            return None
        tool = self._tools.get(name)
        named = allowed is not None and name in allowed
        return None if tool is not None and tool.reserved and not named else tool

    def names(self, allowed: tuple[str, ...] | None = None) -> list[str]:
        """Return the names of the tools an agent may call."""
        if allowed is None:
            return sorted(self._tools)
        every = EVERY_TOOL in allowed
        return sorted(
            name
            for name, tool in self._tools.items()
            if name in allowed or (every and not tool.reserved)
        )

    def tool_names(self, allowed: tuple[str, ...] | None) -> list[str]:
        """Return the names of the tools that an agent has; reserved ones if it names them."""
        names = self.names(allowed)
        return [name for name in names if allowed is not None or not self._tools[name].reserved]

    def wire(self, allowed: tuple[str, ...] | None, *, compact: bool = False) -> bytes | None:
        """Return the descriptions for a model as a JSON array, or None if there are none."""
        key = (allowed, compact)
        if key not in self._wire:
            tools = (self._tools[name] for name in self.tool_names(allowed))
            descriptions = [
                tool.wire() for tool in tools if not compact or _is_always_offered(tool, allowed)
            ]
            self._wire[key] = orjson.dumps(descriptions) if descriptions else None
        return self._wire[key]

    def tools_for(
        self, allowed: tuple[str, ...] | None, message: str, without: Collection[str]
    ) -> list[Tool]:
        """Return the further tools that a small model may need for a message.

        Args:
            allowed: The names of the tools that the agent has; None: all.
            message: What it is asked.
            without: Names of tools that are not needed any more.
        """
        tools = [self._tools[name] for name in self.tool_names(allowed)]
        if self.more is not None and self.hidden_from_small_models(allowed):
            tools.append(self.more.tool)
        chosen = [
            tool
            for tool in tools
            if tool.name not in without
            and not _is_always_offered(tool, allowed)
            and is_offered_with(tool, message)
        ]
        return chosen[:_MAX_MESSAGE_TOOLS]

    def hidden_from_small_models(self, allowed: tuple[str, ...] | None) -> list[Tool]:
        """Return the tools of an agent that a small model is not shown by itself."""
        tools = (self._tools[name] for name in self.tool_names(allowed))
        return [tool for tool in tools if not _is_always_offered(tool, allowed)]

    def resolve_call(self, name: str, arguments: str) -> tuple[str, str]:
        """Return the call that is meant: one through the tool `tools` is a call of that tool.

        What it does is judged by the tool that is meant, never by the way that led there.
        """
        if self.more is None or name != self.more.tool.name:
            return name, arguments
        return self.more.target_call(arguments) or (name, arguments)
