"""The schema: every setting, its type, its default, and in words what would be right."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import tzinfo
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from asterism.config.documents import AuthorizationSettings, ContactsSettings, SettingsTable
from asterism.config.vendors import DEMO, Vendor, usual_model, vendors
from asterism.errors import InvalidInput
from asterism.times import machine_zone, read_duration, zone_named
from asterism.types.agents import Audience, Limits
from asterism.types.permissions import EffectKind, ToolEffect
from asterism.types.spending import IMAGE_TOKENS, Budget, Limit, Price, nano

_MAX = 1_000_000_000

Count = Annotated[int, Field(ge=1, le=_MAX, description=f"a whole number from 1 to {_MAX:,}")]
Retries = Annotated[int, Field(ge=0, le=100, description="a whole number from 0 to 100")]
Seconds = Annotated[
    float,
    Field(gt=0, le=_MAX, description=f"a number of seconds above 0 and up to {_MAX:,}"),
]
_AUDIENCE_NEEDED = (
    'who may see it: "owner", "public", "role:NAME", "room:CHANNEL:ROOM" or "person:ID", several '
    "joined by |,"
)


def _parse_audience(text: str) -> str:
    try:
        return str(Audience.from_declaration(text))
    except InvalidInput:
        raise ValueError(f'is "{text}"; {_AUDIENCE_NEEDED} is needed.') from None


DeclaredAudience = Annotated[
    str,
    AfterValidator(_parse_audience),
    Field(description=_AUDIENCE_NEEDED, examples=["role:family"]),
]


def _check_zone(name: str) -> str:
    try:
        zone_named(name)
    except ValueError:
        raise ValueError(
            f'is "{name[:80]}"; the name of a time zone is needed, such as "Europe/Berlin".'
        ) from None
    return name


TimeZoneName = Annotated[
    str,
    AfterValidator(_check_zone),
    Field(description="the name of a time zone", examples=["Europe/Berlin"]),
]


_MAX_DOLLARS = 1_000_000
_MAX_TOKENS = 1_000_000_000

Dollars = Annotated[
    float,
    Field(
        ge=0,
        le=_MAX_DOLLARS,
        allow_inf_nan=False,
        description=f"an amount in US dollars from 0 to {_MAX_DOLLARS:,}",
    ),
]
Tokens = Annotated[
    int, Field(ge=1, le=_MAX_TOKENS, description=f"a whole number from 1 to {_MAX_TOKENS:,}")
]


class RateSettings(SettingsTable):
    """What a model costs when it is sent more tokens than usual."""

    above: Tokens
    input: Dollars
    output: Dollars
    cached: Dollars | None = Field(default=None, description="an amount in US dollars")
    written: Dollars | None = Field(default=None, description="an amount in US dollars")


class PriceSettings(SettingsTable):
    """What a model costs, in US dollars per million tokens; per request and image, each."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = Field(default=None, description="an amount in US dollars")
    written: Dollars | None = Field(default=None, description="an amount in US dollars")
    request: Dollars = 0.0
    image: Dollars = 0.0
    image_tokens: Tokens = IMAGE_TOKENS
    long: RateSettings | None = Field(
        default=None, description="a table with above, input and output"
    )

    @cached_property
    def price(self) -> Price:
        """The same in nano-dollars."""
        price = replace(
            _per_token(self),
            request=nano(self.request),
            image=nano(self.image),
            image_tokens=self.image_tokens,
        )
        if self.long is None:
            return price
        long = replace(_per_token(self.long), request=price.request, image=price.image)
        return replace(price, long_from=self.long.above, long=long)


def _per_token(table: PriceSettings | RateSettings) -> Price:
    # What is not said about a cache costs as much as without one.
    return Price(
        input=nano(table.input),
        output=nano(table.output),
        cached=nano(table.input if table.cached is None else table.cached),
        written=nano(table.input if table.written is None else table.written),
    )


class CapSettings(SettingsTable):
    """The most that may be spent in a day and in a month, in US dollars."""

    day: Dollars | None = Field(default=None, description="an amount in US dollars", examples=[5.0])
    month: Dollars | None = Field(
        default=None, description="an amount in US dollars", examples=[50.0]
    )

    @property
    def limit(self) -> Limit:
        """The same in nano-dollars."""
        return Limit(
            day=None if self.day is None else nano(self.day),
            month=None if self.month is None else nano(self.month),
        )


class BudgetSettings(CapSettings):
    """Spending caps: of the whole constellation, and of agents, persons and groups."""

    warn_at: float = Field(
        default=0.8, gt=0, le=1, description="a part of the cap above 0 and up to 1"
    )
    max_output: Tokens = 8_192
    timezone: TimeZoneName | None = None
    each_agent: CapSettings = CapSettings.model_construct()
    each_person: CapSettings = CapSettings.model_construct()
    agents: dict[str, CapSettings] = Field(default={})
    persons: dict[str, CapSettings] = Field(default={})
    groups: dict[str, CapSettings] = Field(default={})

    def in_zone(self, zone: str) -> Budget:
        """The same as caps in nano-dollars; its days are those of `zone` if it names none."""
        return Budget(
            all=self.limit,
            agents={name: cap.limit for name, cap in self.agents.items()},
            each_agent=self.each_agent.limit,
            persons={name: cap.limit for name, cap in self.persons.items()},
            each_person=self.each_person.limit,
            groups={name: cap.limit for name, cap in self.groups.items()},
            warn_at=self.warn_at,
            max_output=self.max_output,
            zone=zone_named(self.timezone or zone),
        )


class CassetteSettings(SettingsTable):
    """A tape of requests and answers: recorded, or played without any network."""

    file: str | None = Field(
        default=None, min_length=1, description="a file", examples=["demo.jsonl"]
    )
    mode: Literal["play", "record"] = Field(default="play", description='"play" or "record"')
    speed: float = Field(
        default=0.0, ge=0, le=1000, description="a number from 0 (no pauses) to 1,000", examples=[1]
    )
    loose: bool = Field(default=False, description="true or false", examples=[])


FilePermission = Literal["none", "read", "human", "partner", "read_write"]


class FileRule(SettingsTable):
    """What agents may do with files that fit a pattern."""

    paths: tuple[Annotated[str, Field(pattern=r"^[~/][^\x00]*$")], ...] = Field(
        strict=False,
        min_length=1,
        description='a list of patterns that begin with / or ~, such as ["~/notes/**"],',
    )
    permission: FilePermission = Field(
        description='"none", "read", "human", "partner" or "read_write"', examples=["read"]
    )
    agents: tuple[str, ...] = Field(
        default=(), strict=False, description='a list of names of agents, such as ["aria"],'
    )
    audience: DeclaredAudience = "owner"


class FileSettings(SettingsTable):
    """What the tool `file` may do; the first rule that fits a path counts."""

    rule: tuple[FileRule, ...] = Field(
        default=(), strict=False, description="a list of tables with paths and a permission"
    )
    audience: DeclaredAudience = "owner"
    largest_kb: int = Field(
        default=1024, ge=1, le=100_000, description="a whole number from 1 to 100,000"
    )


_MAX_WAIT = 86_400

ShortSeconds = Annotated[
    float,
    Field(
        gt=0,
        le=_MAX_WAIT,
        description=f"a number of seconds above 0 and up to {_MAX_WAIT:,}",
    ),
]


def _as_tuple(value: object) -> object:
    """Take a text for a list of one."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_tuple),
    Field(strict=False, description="the name of an argument, or a list of them"),
]
NamePatterns = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_tuple),
    Field(strict=False, description='a list of names with wildcards, such as ["read_*"],'),
]
_EFFECTS = tuple(kind.value for kind in EffectKind)


class EffectSettings(SettingsTable):
    """What calls of a tool do, in terms of their arguments."""

    kind: str = Field(
        pattern=rf"^({'|'.join(_EFFECTS)})$",
        description=f"one of {', '.join(_EFFECTS)}",
        examples=["send"],
    )
    recipients: Names = ()
    hosts: Names = ()
    paths: Names = ()
    things: Names = ()
    amount: str | None = Field(default=None, description="the name of an argument")
    content: Names = ()
    source: str = Field(default="", description="a label for what it reads", examples=["mail"])
    fields: Names = ()
    accounts: Names = ()
    closed: bool = Field(default=False, description="true or false")

    @property
    def effects(self) -> ToolEffect:
        """The same as tools declare it."""
        values: dict[str, Any] = self.model_dump()
        if "*" in self.fields:
            values["fields"] = "*"
        return ToolEffect(**values)


class McpToolSettings(SettingsTable):
    """What the owner says of one tool of a server."""

    effects: EffectSettings | None = None
    ask: bool | None = Field(default=None, description="true or false")
    retry_safety: Literal["repeatable", "unknown"] | None = Field(
        default=None, description='"repeatable" or "unknown"'
    )
    trust: Literal["tool", "document", "web"] | None = Field(
        default=None, description='"tool", "document" or "web"'
    )
    audience: DeclaredAudience | None = None
    timeout: ShortSeconds | None = None


class OAuthSettings(SettingsTable):
    """How a login at a server is made; most servers need none of it."""

    client_id: str | None = Field(
        default=None, min_length=1, description="the id that the server's owner gave you"
    )
    client_secret: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description='the name of a stored secret, such as "secret:GITHUB_SECRET",',
    )
    scope: str | None = Field(default=None, min_length=1, description="scopes, with spaces between")
    metadata_url: str | None = Field(
        default=None,
        pattern=r"^https://[^/\s]+/\S+$",
        description="an https address with a path",
        examples=["https://example.org/asterism.json"],
    )
    callback_port: int = Field(
        default=0, ge=0, le=65_535, description="a port from 1 to 65535, or 0 for any free one"
    )


class McpSettings(SettingsTable):
    """One MCP server: a program to start, or an address."""

    command: str | None = Field(
        default=None, min_length=1, description="a program", examples=["npx"]
    )
    args: tuple[str, ...] = Field(
        default=(), strict=False, description='a list of texts, such as ["-y", "some-server"],'
    )
    env: dict[str, str] = Field(default={}, repr=False)
    cwd: str | None = Field(default=None, min_length=1, description="a directory")
    url: str | None = Field(
        default=None,
        repr=False,  # it may carry a token
        pattern=r"^https?://\S+$",
        description="an http or https address",
        examples=["https://example.org/mcp"],
    )
    headers: dict[str, str] = Field(default={}, repr=False)
    oauth: OAuthSettings = OAuthSettings.model_construct()
    enabled: bool = Field(default=True, description="true or false")
    protocol: Literal["auto", "2025-11-25", "2026-07-28"] = Field(
        default="auto", description='"auto", "2025-11-25" or "2026-07-28"'
    )
    prefix: str | None = Field(
        default=None,
        pattern=r"^[a-zA-Z0-9_-]{0,32}$",
        description="up to 32 of a-z, A-Z, 0-9, _ and -",
    )
    allow: NamePatterns = ()
    deny: NamePatterns = ()
    ask: bool = Field(default=False, description="true or false")
    trust_annotations: bool = Field(default=False, description="true or false")
    trust: Literal["tool", "document", "web"] | None = Field(
        default=None, description='"tool", "document" or "web"'
    )
    audience: DeclaredAudience = "owner"
    roots: NamePatterns = Field(
        default=(), description='a list of directories, such as ["/srv/notes"],'
    )
    timeout: ShortSeconds = 60.0
    connect_timeout: ShortSeconds = 30.0
    refresh: ShortSeconds = 3_600.0
    tools: dict[str, McpToolSettings] = Field(default={})

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            what = "both command and url" if self.command else "neither command nor url"
            raise ValueError(f"has {what}; set exactly one of them.")
        return self

    @property
    def transport(self) -> str:
        """How it is reached, in a word."""
        return "stdio" if self.command is not None else "http"

    def of(self, tool: str) -> McpToolSettings:
        """What is said of a tool, by the server's own name for it."""
        return self.tools.get(tool, _UNSET_TOOL)

    def reached(self) -> dict[str, Any]:
        """Everything that decides whom a connection reaches."""
        return self.model_dump(
            include={
                "command",
                "args",
                "env",
                "cwd",
                "url",
                "headers",
                "oauth",
                "protocol",
                "roots",
            }
        )


_UNSET_TOOL = McpToolSettings.model_construct()

SERVER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}")
"""What a server may be called where asterism writes the name itself."""


class ContextSettings(SettingsTable):
    """How much a model sees, and what becomes of a past that is longer."""

    tokens: Count = 100_000
    strategy: Literal["truncate", "summary", "importance", "decay"] = Field(
        default="summary",
        description='"truncate", "summary", "importance" or "decay"',
        examples=["summary"],
    )
    keep_recent: Count = 8
    keep_important: Count = 8
    decay_hours: float = Field(
        default=24.0,
        gt=0,
        le=_MAX,
        description=f"a number of hours above 0 and up to {_MAX:,}",
        examples=[24],
    )


class MemorySettings(SettingsTable):
    """What may change memory without asking, and who looks for contradictions."""

    trusted: list[Literal["stranger", "tool", "document", "web"]] = Field(
        default=[],
        description='a list such as ["tool"] of "stranger", "tool", "document" and "web"',
        examples=[],
    )
    judge: Literal["rules", "model"] = Field(
        default="rules", description='"rules" or "model"', examples=["model"]
    )


_WITH_TRUST = ("messages", "passages", "summaries")


_PLUGIN_NAMES = 'a list of names of plugins, such as ["recall"],'
PluginNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_as_tuple),
    Field(strict=False, description=_PLUGIN_NAMES),
]


class RecallSettings(SettingsTable):
    """How much of its memory an agent is told unasked; what is not given goes by its model."""

    hits: int | None = Field(
        default=None, ge=1, le=20, description="a whole number from 1 to 20", examples=[6]
    )
    tokens: int | None = Field(
        default=None, ge=50, le=4_000, description="a whole number from 50 to 4,000", examples=[700]
    )
    threshold: float | None = Field(
        default=None, ge=0, le=1, description="a number from 0 to 1", examples=[0.3]
    )
    domains: list[Literal["messages", "passages", "documents", "blocks", "summaries"]] | None = (
        Field(
            default=None,
            description='a list such as ["messages", "documents"] of "messages", "passages", '
            '"documents", "blocks" and "summaries"',
            examples=["messages"],
        )
    )


class RememberSettings(SettingsTable):
    """What is kept of what an owner says, beyond what they ask to keep."""

    rules: bool | None = Field(default=None, description="true or false", examples=[True])
    model: bool | None = Field(default=None, description="true or false", examples=[False])
    idle_seconds: float | None = Field(
        default=None, ge=0, le=86_400, description="a number of seconds", examples=[3]
    )


class PluginOptions(SettingsTable):
    """Options by the name of a plugin; those of plugins of others are handed on as they are."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, dict[str, Any]] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride] - how pydantic types what is extra

    recall: RecallSettings = RecallSettings.model_construct()
    remember: RememberSettings = RememberSettings.model_construct()

    def of(self, plugin: str) -> dict[str, Any]:
        """Return the options that are given for a plugin."""
        if plugin in PluginOptions.model_fields:
            return getattr(self, plugin).model_dump(exclude_none=True)
        return (self.model_extra or {}).get(plugin, {})

    def joined(self, own: PluginOptions) -> PluginOptions:
        """Return these with those of one agent, which win."""
        others = {*(self.model_extra or {}), *(own.model_extra or {})}
        return PluginOptions.model_construct(
            None,
            recall=RecallSettings.model_construct(**{**self.of("recall"), **own.of("recall")}),
            remember=RememberSettings.model_construct(
                **{**self.of("remember"), **own.of("remember")}
            ),
            **{plugin: {**self.of(plugin), **own.of(plugin)} for plugin in others},
        )


class PipelineSettings(SettingsTable):
    """What stands around the model of every agent."""

    processors: PluginNames = ("remember", "calculations", "reminders", "planning", "recall")
    sections: PluginNames = ()
    evaluators: PluginNames = ("empty_answer", "refused_answer", "unused_result")
    retries: Retries = 2
    seconds: Seconds = 10.0
    options: PluginOptions = PluginOptions.model_construct()


class AgentPipelineSettings(SettingsTable):
    """What stands around the model of one agent, where it is not what all have."""

    processors: PluginNames | None = Field(default=None, description=_PLUGIN_NAMES)
    sections: PluginNames | None = Field(default=None, description=_PLUGIN_NAMES)
    evaluators: PluginNames | None = Field(default=None, description=_PLUGIN_NAMES)
    retries: Retries | None = Field(default=None, description="a whole number from 0 to 100")
    options: PluginOptions = PluginOptions.model_construct()


class AgentSettings(SettingsTable):
    """What is configured for one agent, by its name."""

    pipeline: AgentPipelineSettings = AgentPipelineSettings.model_construct()


class RetentionSettings(SettingsTable):
    """What is deleted when it has grown too old."""

    kind: Literal[
        "messages",
        "passages",
        "summaries",
        "blobs",
        "block history",
        "outbox",
        "notices",
        "charges",
    ] = Field(
        description='"messages", "passages", "summaries", "blobs", "block history", "outbox", '
        '"notices" or "charges"',
        examples=["messages"],
    )
    days: float = Field(
        gt=0,
        le=_MAX,
        description=f"a number of days above 0 and up to {_MAX:,}",
        examples=[365],
    )
    agent: str | None = Field(
        default=None, min_length=1, description="the name of an agent", examples=["aster"]
    )
    tag: str | None = Field(
        default=None, min_length=1, description="a tag of passages", examples=["note"]
    )
    trust: Literal["owner", "known", "stranger", "tool", "document", "web"] | None = Field(
        default=None,
        description='"owner", "known", "stranger", "tool", "document" or "web"',
        examples=["web"],
    )

    @model_validator(mode="after")
    def _check_filters(self) -> Self:
        if self.tag is not None and self.kind != "passages":
            raise ValueError(f"has a tag, but {self.kind} have no tags; leave out one of the two.")
        if self.trust is not None and self.kind not in _WITH_TRUST:
            raise ValueError(
                f"has trust, which does not apply to {self.kind}; leave out one of the two."
            )
        if self.agent is not None and self.kind == "blobs":
            raise ValueError("has an agent, but blobs have no agent; leave out one of the two.")
        return self


UNSANDBOXED = "I know that programs will run with my rights"
"""What has to be written to let programs run without a sandbox."""


class SandboxSettings(SettingsTable):
    """What programs that agents run may see and use."""

    kind: Literal["auto", "bubblewrap", "namespaces", "landlock"] = Field(
        default="auto",
        description='"auto", "bubblewrap", "namespaces" or "landlock"',
        examples=["auto"],
    )
    allow_unsandboxed: str | None = Field(
        default=None, description=f'the sentence "{UNSANDBOXED}"', examples=[UNSANDBOXED]
    )
    network: bool = Field(default=False, description="true or false")
    memory_mb: int = Field(
        default=1024, ge=64, le=1_000_000, description="a whole number from 64 to 1,000,000"
    )
    cpu_seconds: int = Field(
        default=60, ge=1, le=86_400, description="a whole number from 1 to 86,400"
    )
    processes: int = Field(
        default=64, ge=8, le=10_000, description="a whole number from 8 to 10,000"
    )
    disk_mb: int = Field(
        default=1024, ge=1, le=10_000_000, description="a whole number from 1 to 10,000,000"
    )

    files: int = Field(
        default=100_000,
        ge=100,
        le=100_000_000,
        description="a whole number from 100 to 100,000,000",
    )

    @field_validator("allow_unsandboxed")
    @classmethod
    def _check_sentence(cls, sentence: str | None) -> str | None:
        if sentence is not None and sentence != UNSANDBOXED:
            raise ValueError(f'is a different sentence; write exactly "{UNSANDBOXED}".')
        return sentence


class SearchSettings(SettingsTable):
    """What texts of one meaning are found with."""

    encoder: str = Field(
        default="minilm",
        pattern=r"^(minilm|none|[^:,\s]+:[^,\s]+)$",
        description='"minilm", "none" or a model as vendor:name',
        examples=["ollama:nomic-embed-text"],
    )
    threads: int = Field(
        default=1, ge=1, le=256, description="a whole number from 1 to 256", examples=[1]
    )


_MIN_BACKUP_INTERVAL = 60.0


class BackupSettings(SettingsTable):
    """Where backups are kept, how often one is made, and how they are encrypted."""

    directory: str = Field(
        default="backups",
        min_length=1,
        description="the path of a directory",
        examples=["/mnt/nas/asterism"],
    )
    every: str | None = Field(
        default=None, description="a duration of at least 1 minute", examples=["1 day"]
    )
    keep: int = Field(
        default=7, ge=1, le=10_000, description="a whole number from 1 to 10,000", examples=[7]
    )
    passphrase: SecretStr | None = Field(
        default=None,
        min_length=8,
        repr=False,
        description='"secret:NAME" or at least 8 characters',
        examples=["secret:backup"],
    )

    @field_validator("every")
    @classmethod
    def _check_every(cls, text: str | None) -> str | None:
        if text is None:
            return None
        with contextlib.suppress(ValueError):
            if _MIN_BACKUP_INTERVAL <= read_duration(text) <= _MAX:
                return text
        raise ValueError(
            f'is "{text[:80]}"; a duration of at least 1 minute is needed, such as "1 day".'
        )

    @property
    def interval_ms(self) -> int | None:
        """Milliseconds from one scheduled backup to the next; None: none is scheduled."""
        return int(read_duration(self.every) * 1000) if self.every is not None else None


class SecretSettings(SettingsTable):
    """Where the key is that opens the stored keys of others."""

    keeper: str = Field(
        default="file",
        pattern=r"^(file|keyring|env)$",
        description='"file", "keyring" or "env"',
        examples=["keyring"],
    )
    key_file: str | None = Field(
        default=None,
        min_length=1,
        description="the path of a file",
        examples=["/etc/asterism/master.key"],
    )


class TelemetrySettings(SettingsTable):
    """Where traces and metrics are sent: nowhere, unless an endpoint is named."""

    endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://\S+$",
        description="the address of an OpenTelemetry collector",
        examples=["http://127.0.0.1:4318"],
    )
    headers: dict[str, SecretStr] = Field(
        default={}, repr=False, description="a table of texts", examples=[]
    )
    sample: float = Field(
        default=1.0, ge=0, le=1, description="a number from 0 to 1", examples=[0.1]
    )
    content: bool = Field(default=False, description="true or false", examples=[])


class LogSettings(SettingsTable):
    """What is written to the log, and how."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description='one of "debug", "info", "warning" and "error"'
    )
    format: Literal["text", "json"] = Field(default="text", description='"text" or "json"')


class TrustSettings(SettingsTable):
    """How a request is read before a consequential call that follows untrusted content."""

    reader: str = Field(
        default="auto",
        pattern=r"^(auto|literal|[^:,\s]+:[^,\s]+)$",
        description='"auto", "literal" or a model as vendor:name',
        examples=["openai:gpt-5-mini"],
    )


Engine = Literal["none", "searxng", "brave", "kagi", "json"]
_NEEDS_URL = ("searxng", "json")


class WebSettings(SettingsTable):
    """What the tool `web` may do."""

    allow: tuple[Annotated[str, Field(pattern=r"^[^\s/@]+:[0-9]{1,5}$")], ...] = Field(
        default=(),
        strict=False,
        description='a list of hosts with their ports, such as ["nas.local:8080"],',
    )
    search: Engine = Field(
        default="none",
        description='"none", "searxng", "brave", "kagi" or "json"',
        examples=["searxng"],
    )
    search_url: str | None = Field(
        default=None,
        pattern=r"^https?://\S+$",
        validate_default=True,
        description="an http or https address",
        examples=["http://localhost:8888"],
    )
    search_key: SecretStr | None = Field(
        default=None, min_length=1, repr=False, description="the engine's key in quotes"
    )
    search_key_env: str | None = Field(
        default=None,
        pattern=r"^\w+$",
        repr=False,  # a key may be put here by mistake
        description="the name of an environment variable",
        examples=["BRAVE_API_KEY"],
    )

    @field_validator("search_url")
    @classmethod
    def _check_search_url(cls, url: str | None, others: ValidationInfo) -> str | None:
        engine = others.data.get("search")
        if url is None and engine in _NEEDS_URL:
            raise ValueError(f'is missing; search = "{engine}" needs the address of its server.')
        if url is not None and engine == "json" and "{query}" not in url:
            raise ValueError(
                'has no place for the query; write it such as "https://host/search?q={query}".'
            )
        return url

    def key(self, environ: Mapping[str, str] | None = None) -> str | None:
        """Return the engine's key, if one is set."""
        if self.search_key is not None:
            return self.search_key.get_secret_value()
        there = os.environ if environ is None else environ
        return there.get(self.search_key_env) if self.search_key_env else None


class StoreSettings(SettingsTable):
    """The database."""

    url: str | None = Field(
        default=None,
        repr=False,  # it may carry a password
        description="the address of a PostgreSQL database",
        examples=["postgresql://user@localhost/asterism"],
    )

    @field_validator("url")
    @classmethod
    def _check_postgres(cls, url: str | None) -> str | None:
        if url is None or re.match(r"postgres(ql)?://\S", url):
            return url
        scheme = re.match(r"[A-Za-z][\w+.-]{0,30}:", url)
        problem = f'begins with "{scheme[0]}"' if scheme else "is not an address"
        raise ValueError(
            f'{problem}; "postgresql://user@host/name" is needed. '
            "Without store.url, SQLite in the data directory is used."
        )


_PER_MINUTE: Any = Field(
    default=None,
    ge=1,
    le=_MAX,
    description=f"a whole number from 1 to {_MAX:,}",
    examples=[500],
)


class ModelSettings(SettingsTable):
    """One vendor of language models."""

    api: str | None = Field(
        default=None,
        min_length=1,
        description="the name of a wire format",
        examples=["openai"],
    )
    base_url: str | None = Field(
        default=None,
        pattern=r"^https?://\S+$",
        description="an http or https address",
        examples=["http://localhost:11434/v1"],
    )
    key: SecretStr | None = Field(
        default=None, min_length=1, repr=False, description="the vendor's key in quotes"
    )
    key_env: str | None = Field(
        default=None,
        pattern=r"^\w+$",
        repr=False,  # a key may be put here by mistake
        description="the name of an environment variable",
        examples=["OPENAI_API_KEY"],
    )
    timeout: Seconds = 120.0
    retries: Retries = 2
    requests_per_minute: int | None = _PER_MINUTE
    tokens_per_minute: int | None = _PER_MINUTE
    options: dict[str, Any] = Field(default={}, repr=False)


_LIMITS = Limits()


class LimitSettings(SettingsTable):
    """How far one turn may go, for agents without limits of their own."""

    steps: Count = _LIMITS.steps
    seconds: Seconds = _LIMITS.seconds
    tokens: Count = _LIMITS.tokens
    calls: Count = _LIMITS.calls


class RuntimeSettings(SettingsTable):
    """How one process works, and how workers know of each other."""

    turns: Count = 256
    crashes: Count = 2
    heartbeat: Seconds = 2.0
    stalled_after: Seconds = Field(default=6.0, validate_default=True)

    @field_validator("stalled_after")
    @classmethod
    def _check_stalled_after(cls, seconds: float, others: ValidationInfo) -> float:
        heartbeat: float | None = others.data.get("heartbeat")
        if heartbeat and seconds < 2 * heartbeat:
            raise ValueError(
                f"is {seconds} with a heartbeat of {heartbeat}; "
                f"at least twice the heartbeat is needed, such as {3 * heartbeat}."
            )
        return seconds


class ApiSettings(SettingsTable):
    """The HTTP API."""

    host: str = Field(
        default="127.0.0.1",
        pattern=r"^[^\s/]{1,255}$",
        description="an address or a name of this machine",
        examples=["0.0.0.0"],  # noqa: S104 - an example of what needs TLS
    )
    port: int = Field(
        default=8283, ge=0, le=65_535, description="a whole number from 0 to 65,535", examples=[443]
    )
    background: bool = Field(default=True, description="true or false")
    tls_cert: str | None = Field(
        default=None, min_length=1, description="the path of a PEM file", examples=["/etc/a.pem"]
    )
    tls_key: str | None = Field(
        default=None, min_length=1, description="the path of a PEM file", examples=["/etc/a.key"]
    )
    behind_proxy: bool = Field(default=False, description="true or false")
    trusted_proxies: tuple[str, ...] = Field(
        default=("127.0.0.1", "::1"),
        strict=False,
        description='a list of addresses or networks, such as ["10.0.0.0/8"],',
    )
    drain: float = Field(
        default=0.0, ge=0, le=300, description="a number of seconds from 0 to 300", examples=[10]
    )
    requests_per_minute: Count = 12_000
    requests_at_once: Count = 100
    hosts: tuple[str, ...] = Field(
        default=(), strict=False, description='a list of names, such as ["home.example.org"],'
    )
    origins: tuple[str, ...] = Field(
        default=(), strict=False, description='a list of origins, such as ["https://example.org"],'
    )


class AlertSettings(SettingsTable):
    """When the owner is told that something is wrong, and where beside the notices."""

    every: float = Field(
        default=60.0, ge=1, le=86_400, description="a number of seconds from 1 to 86,400"
    )
    channel: str | None = Field(
        default=None, min_length=1, description="the name of a channel", examples=["home"]
    )
    to: str = Field(default="", max_length=1_000, description="where in that channel")
    budget: float = Field(
        default=80.0, gt=0, le=100, description="a percentage above 0 and up to 100", examples=[80]
    )
    approval_age: str = Field(default="1 day", description="a duration", examples=["1 day"])
    disk_free: float = Field(
        default=5.0, ge=0, le=100, description="a percentage from 0 to 100", examples=[5]
    )

    @field_validator("approval_age")
    @classmethod
    def _check_age(cls, text: str) -> str:
        with contextlib.suppress(ValueError):
            if 0 < read_duration(text) <= _MAX:
                return text
        raise ValueError(f'is "{text[:80]}"; a duration is needed, such as "1 day".')

    @property
    def approval_age_ms(self) -> int:
        """Milliseconds that a question may wait for its answer."""
        return int(read_duration(self.approval_age) * 1000)


class QuotaSettings(SettingsTable):
    """How much a constellation may have."""

    agents: int | None = Field(
        default=None,
        ge=1,
        le=_MAX,
        description=f"a whole number from 1 to {_MAX:,}",
        examples=[100],
    )
    waiting_per_person: Count = 200
    waiting_per_token: Count = 10_000


class OutboxSettings(SettingsTable):
    """How often and how patiently a delivery is tried."""

    attempts: Count = 8
    first_delay: Seconds = 1.0
    longest_delay: Seconds = Field(default=600.0, validate_default=True)
    timeout: Seconds = 30.0

    @field_validator("longest_delay")
    @classmethod
    def _check_max_delay(cls, seconds: float, others: ValidationInfo) -> float:
        first: float | None = others.data.get("first_delay")
        if first and seconds < first:
            raise ValueError(
                f"is {seconds} with a first_delay of {first}; at least that is needed."
            )
        return seconds


class AgentMessageSettings(SettingsTable):
    """What agents may write to each other, so that two of them cannot talk for ever."""

    cooldown: Annotated[
        float, Field(ge=0, le=86_400, description="a number of seconds from 0 to 86400")
    ] = 30.0
    on_cooldown: Literal["refuse", "delay"] = Field(
        default="refuse", description='"refuse" or "delay"'
    )
    max_messages: Count = 20
    max_depth: Count = 12
    max_cost: Dollars | None = Field(default=None, description="an amount in US dollars")


class ChannelSettings(SettingsTable):
    """One channel: its type, and whatever the plugin of that type asks for."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(
        min_length=1, description="the name of a channel's plugin", examples=["webhook"]
    )
    events: tuple[Literal["ended", "parked"], ...] = Field(
        default=(), strict=False, description='a list of "ended" and "parked"'
    )
    agents: tuple[str, ...] = Field(
        default=(), strict=False, description='a list of names of agents, such as ["aria"],'
    )
    target: str | None = Field(
        default=None, min_length=1, description="the name of an agent or a group", examples=["desk"]
    )
    rooms: dict[str, str] = Field(
        default={},
        description='a table of rooms and who answers there, such as {general = "desk"},',
    )

    def answers_in(self, room: str | None) -> str | None:
        """Return the name of who answers in a room, or in private, what is addressed to nobody."""
        return self.rooms.get(room or "", self.target)

    def tells(self, event: str, agent: str) -> bool:
        """Whether this channel is told of an event of an agent's turns."""
        return event in self.events and (not self.agents or agent in self.agents)

    @property
    def options(self) -> dict[str, Any]:
        """What belongs to the plugin."""
        return dict(self.model_extra or {})

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return [("type", self.type)]  # the rest may hold passwords


class ToolSettings(SettingsTable):
    """Where an owner's own tools come from."""

    modules: tuple[
        Annotated[str, Field(pattern=r"^([^\W\d]\w*(\.[^\W\d]\w*)*|[^\x00-\x1f]+\.py)$")], ...
    ] = Field(
        default=(),
        strict=False,
        description='a list of modules and .py files, such as ["house.tools", "tools.py"],',
    )


class Settings(SettingsTable):
    """The whole configuration; `docs/reference/configuration.md` explains each name."""

    model: str | None = Field(
        default=None,
        pattern=r"^[^:,\s]+:[^,\s]+(\s*,\s*[^:,\s]+:[^,\s]+)*$",
        description="a model as vendor:name",
        examples=["openai:gpt-4.1-mini"],
    )
    constellation: str = Field(
        default="home",
        pattern=r"^[^\x00-\x1f\x7f]{1,100}$",
        description="a name of 1 to 100 characters on one line",
    )
    timezone: TimeZoneName | None = None
    # Tables that may be left out: constructed, since to validate one would build its class first.
    store: StoreSettings = StoreSettings.model_construct()
    models: dict[str, ModelSettings] = Field(default={})
    budget: BudgetSettings = BudgetSettings.model_construct()
    prices: dict[str, PriceSettings] = Field(default={})
    limits: LimitSettings = LimitSettings.model_construct()
    context: ContextSettings = ContextSettings.model_construct()
    memory: MemorySettings = MemorySettings.model_construct()
    search: SearchSettings = SearchSettings.model_construct()
    trust: TrustSettings = TrustSettings.model_construct()
    pipeline: PipelineSettings = PipelineSettings.model_construct()
    agents: dict[str, AgentSettings] = Field(default={})
    retention: dict[str, RetentionSettings] = Field(default={})
    runtime: RuntimeSettings = RuntimeSettings.model_construct()
    api: ApiSettings = ApiSettings.model_construct()
    alerts: AlertSettings = AlertSettings.model_construct()
    quotas: QuotaSettings = QuotaSettings.model_construct()
    outbox: OutboxSettings = OutboxSettings.model_construct()
    agent_messages: AgentMessageSettings = AgentMessageSettings.model_construct()
    channels: dict[str, ChannelSettings] = Field(default={})
    tools: ToolSettings = ToolSettings.model_construct()
    authorizations: AuthorizationSettings = AuthorizationSettings.model_construct()
    contacts: ContactsSettings = ContactsSettings.model_construct()
    cassette: CassetteSettings = CassetteSettings.model_construct()
    log: LogSettings = LogSettings.model_construct()
    telemetry: TelemetrySettings = TelemetrySettings.model_construct()
    secrets: SecretSettings = SecretSettings.model_construct()
    backups: BackupSettings = BackupSettings.model_construct()
    mcp: dict[str, McpSettings] = Field(default={})
    web: WebSettings = WebSettings.model_construct()
    sandbox: SandboxSettings = SandboxSettings.model_construct()
    files: FileSettings = FileSettings.model_construct()

    _usual: str = PrivateAttr(default=DEMO)
    _key_variables: dict[str, str] = PrivateAttr(default={})
    _tz: str | None = PrivateAttr(default=None)

    def model_post_init(self, context: Mapping[str, str] | None, /) -> None:
        """Note whom to ask if none is named; `context` is the environment, if not the process's."""
        environ = os.environ if context is None else context
        self._tz = environ.get("TZ")

        def has_key(vendor: Vendor) -> bool:
            own = self.models.get(vendor.name, ModelSettings())
            variable = own.key_env or vendor.key_variable(environ)
            return own.key is not None or bool(variable and environ.get(variable))

        if self.model is None:
            self._usual = usual_model(has_key, environ)
        self._key_variables = {
            vendor.name: variable
            for vendor in vendors().values()
            if (variable := vendor.key_variable(environ))
        }

    def take_usual_model(self, other: Settings) -> None:
        """Let agents that name no model ask the same one as those of other settings do."""
        self._usual = other._usual

    @property
    def default_model(self) -> str:
        """The model of agents that name none."""
        return self.model or self._usual

    @cached_property
    def zone_name(self) -> str:
        """The name of the owner's time zone: the one that is set, or else the machine's."""
        return self.timezone or machine_zone(self._tz)

    @cached_property
    def zone(self) -> tzinfo:
        """The owner's time zone."""
        return zone_named(self.zone_name)

    @cached_property
    def spending_caps(self) -> Budget:
        """What may be spent, in nano-dollars, in days of the owner unless `[budget]` differs."""
        return self.budget.in_zone(self.zone_name)

    def pipeline_of(self, agent: str) -> PipelineSettings:
        """What stands around the model of an agent, by its name."""
        own = self.agents.get(agent)
        if own is None:
            return self.pipeline
        changed = own.pipeline.model_dump(exclude_none=True, exclude={"options"})
        options = self.pipeline.options.joined(own.pipeline.options)
        return self.pipeline.model_copy(update={**changed, "options": options})

    def vendor(self, name: str) -> ModelSettings:
        """The settings of a vendor, with what is known of it where nothing is configured."""
        own, known = self.models.get(name, ModelSettings()), vendors().get(name)
        if known is None or known.base_url is None or own.base_url:
            return own
        facts = {
            "base_url": known.base_url,
            "key_env": own.key_env or (None if own.key else self._key_variables.get(name)),
        }
        return own.model_copy(update=facts)

    def takes_stored_key(self, vendor: str, environ: Mapping[str, str]) -> bool:
        """Whether a vendor is asked with the stored key of its name: nothing else names one."""
        own = self.models.get(vendor, ModelSettings())
        if own.key is not None or own.key_env is not None:
            return False
        variable = self.vendor(vendor).key_env or f"{vendor.upper().replace('-', '_')}_API_KEY"
        return not environ.get(variable)

    def api_of(self, vendor: str, known: Collection[str]) -> str:
        """The wire format a vendor speaks, where `known` are those that are installed."""
        configured = self.models.get(vendor)
        if configured and configured.api:
            return configured.api
        if vendor in known:
            return vendor
        there = vendors().get(vendor)
        if there and (there.api in known or not configured):
            return there.api
        return "openai" if configured else vendor
