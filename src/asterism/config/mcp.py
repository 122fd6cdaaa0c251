"""Settings of MCP servers: how each is reached, which of its tools are offered, what they do."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from asterism.config.audiences import DeclaredAudience
from asterism.types.effects import EffectKind, ToolEffect

_LONGEST_WAIT = 86_400

Seconds = Annotated[
    float,
    Field(
        gt=0,
        le=_LONGEST_WAIT,
        description=f"a number of seconds above 0 and up to {_LONGEST_WAIT:,}",
    ),
]


def _listed(value: object) -> object:
    """Take a text for a list of one."""
    return (value,) if isinstance(value, str) else value


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_listed),
    Field(strict=False, description="the name of an argument, or a list of them"),
]
Patterns = Annotated[
    tuple[str, ...],
    BeforeValidator(_listed),
    Field(strict=False, description='a list of names with wildcards, such as ["read_*"],'),
]
_KINDS = tuple(kind.value for kind in EffectKind)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class EffectSettings(_Table):
    """What calls of a tool do, in terms of their arguments."""

    kind: str = Field(
        pattern=rf"^({'|'.join(_KINDS)})$",
        description=f"one of {', '.join(_KINDS)}",
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
        told: dict[str, Any] = self.model_dump()
        if "*" in self.fields:
            told["fields"] = "*"
        return ToolEffect(**told)


class McpToolSettings(_Table):
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
    timeout: Seconds | None = None


class OAuthSettings(_Table):
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


class McpSettings(_Table):
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
    oauth: OAuthSettings = OAuthSettings()
    enabled: bool = Field(default=True, description="true or false")
    protocol: Literal["auto", "2025-11-25", "2026-07-28"] = Field(
        default="auto", description='"auto", "2025-11-25" or "2026-07-28"'
    )
    prefix: str | None = Field(
        default=None,
        pattern=r"^[a-zA-Z0-9_-]{0,32}$",
        description="up to 32 of a-z, A-Z, 0-9, _ and -",
    )
    allow: Patterns = ()
    deny: Patterns = ()
    ask: bool = Field(default=False, description="true or false")
    trust_annotations: bool = Field(default=False, description="true or false")
    trust: Literal["tool", "document", "web"] | None = Field(
        default=None, description='"tool", "document" or "web"'
    )
    audience: DeclaredAudience = "owner"
    roots: Patterns = Field(
        default=(), description='a list of directories, such as ["/srv/notes"],'
    )
    timeout: Seconds = 60.0
    connect_timeout: Seconds = 30.0
    refresh: Seconds = 3_600.0
    tools: dict[str, McpToolSettings] = {}

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if (self.command is None) == (self.url is None):
            given = "both command and url" if self.command else "neither command nor url"
            raise ValueError(f"has {given}; one of them is needed.")
        return self

    @property
    def transport(self) -> str:
        """How it is reached, in a word."""
        return "stdio" if self.command is not None else "http"

    def of(self, tool: str) -> McpToolSettings:
        """What is said of a tool, by the server's own name for it."""
        return self.tools.get(tool, _NOTHING)

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


_NOTHING = McpToolSettings()

SERVER_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,31}")
"""What a server may be called where asterism writes the name itself."""
