"""The schema: every setting, its type, its default, and in words what would be right."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationInfo,
    field_validator,
)

from asterism.config.authorizations import AuthorizationSettings
from asterism.config.budget import BudgetSettings, PriceSettings
from asterism.config.cassette import CassetteSettings
from asterism.config.contacts import ContactsSettings
from asterism.config.files import FileSettings
from asterism.config.mcp import McpSettings
from asterism.config.memory import ContextSettings, MemorySettings, RetentionSettings
from asterism.config.sandbox import SandboxSettings
from asterism.config.search import SearchSettings
from asterism.config.secrets import SecretSettings
from asterism.config.telemetry import LogSettings, TelemetrySettings
from asterism.config.trust import TrustSettings
from asterism.config.vendors import DEMO, Vendor, usual_model, vendors
from asterism.config.web import WebSettings
from asterism.types.agents import Limits

_MOST = 1_000_000_000

Count = Annotated[int, Field(ge=1, le=_MOST, description=f"a whole number from 1 to {_MOST:,}")]
Retries = Annotated[int, Field(ge=0, le=100, description="a whole number from 0 to 100")]
Seconds = Annotated[
    float,
    Field(gt=0, le=_MOST, description=f"a number of seconds above 0 and up to {_MOST:,}"),
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class StoreSettings(_Table):
    """Where everything rests."""

    url: str | None = Field(
        default=None,
        repr=False,  # it may carry a password
        description="the address of a PostgreSQL database",
        examples=["postgresql://user@localhost/asterism"],
    )

    @field_validator("url")
    @classmethod
    def _postgres(cls, url: str | None) -> str | None:
        if url is None or re.match(r"postgres(ql)?://\S", url):
            return url
        scheme = re.match(r"[A-Za-z][\w+.-]{0,30}:", url)
        found = f'begins with "{scheme[0]}"' if scheme else "is not an address"
        raise ValueError(
            f'{found}; "postgresql://user@host/name" is needed. '
            "Without store.url, SQLite in the data directory is used."
        )


_PER_MINUTE: Any = Field(
    default=None,
    ge=1,
    le=_MOST,
    description=f"a whole number from 1 to {_MOST:,}",
    examples=[500],
)


class ModelSettings(_Table):
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


class LimitSettings(_Table):
    """How far one turn may go, for agents without limits of their own."""

    steps: Count = _LIMITS.steps
    seconds: Seconds = _LIMITS.seconds
    tokens: Count = _LIMITS.tokens
    calls: Count = _LIMITS.calls


class RuntimeSettings(_Table):
    """How one process works, and how workers know of each other."""

    turns: Count = 256
    heartbeat: Seconds = 2.0
    stalled_after: Seconds = Field(default=6.0, validate_default=True)

    @field_validator("stalled_after")
    @classmethod
    def _outlasts_heartbeat(cls, seconds: float, others: ValidationInfo) -> float:
        heartbeat: float | None = others.data.get("heartbeat")
        if heartbeat and seconds < 2 * heartbeat:
            raise ValueError(
                f"is {seconds} with a heartbeat of {heartbeat}; "
                f"at least twice the heartbeat is needed, such as {3 * heartbeat}."
            )
        return seconds


class OutboxSettings(_Table):
    """How often and how patiently a delivery is tried."""

    attempts: Count = 8
    first_delay: Seconds = 1.0
    longest_delay: Seconds = Field(default=600.0, validate_default=True)
    timeout: Seconds = 30.0

    @field_validator("longest_delay")
    @classmethod
    def _reaches_first(cls, seconds: float, others: ValidationInfo) -> float:
        first: float | None = others.data.get("first_delay")
        if first and seconds < first:
            raise ValueError(
                f"is {seconds} with a first_delay of {first}; at least that is needed."
            )
        return seconds


class ChannelSettings(_Table):
    """One channel: its type, and whatever the plugin of that type asks for."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(
        min_length=1, description="the name of a channel's plugin", examples=["webhook"]
    )

    @property
    def options(self) -> dict[str, Any]:
        """Everything beside `type`."""
        return dict(self.model_extra or {})

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        return [("type", self.type)]  # the rest may hold passwords


class ToolSettings(_Table):
    """Where an owner's own tools come from."""

    modules: tuple[
        Annotated[str, Field(pattern=r"^([^\W\d]\w*(\.[^\W\d]\w*)*|[^\x00-\x1f]+\.py)$")], ...
    ] = Field(
        default=(),
        strict=False,
        description='a list of modules and .py files, such as ["house.tools", "tools.py"],',
    )


class Settings(_Table):
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
    store: StoreSettings = StoreSettings()
    models: dict[str, ModelSettings] = {}
    budget: BudgetSettings = BudgetSettings()
    prices: dict[str, PriceSettings] = {}
    limits: LimitSettings = LimitSettings()
    context: ContextSettings = ContextSettings()
    memory: MemorySettings = MemorySettings()
    search: SearchSettings = SearchSettings()
    trust: TrustSettings = TrustSettings()
    retention: dict[str, RetentionSettings] = {}
    runtime: RuntimeSettings = RuntimeSettings()
    outbox: OutboxSettings = OutboxSettings()
    channels: dict[str, ChannelSettings] = {}
    tools: ToolSettings = ToolSettings()
    authorizations: AuthorizationSettings = AuthorizationSettings()
    contacts: ContactsSettings = ContactsSettings()
    cassette: CassetteSettings = CassetteSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    secrets: SecretSettings = SecretSettings()
    mcp: dict[str, McpSettings] = {}
    web: WebSettings = WebSettings()
    sandbox: SandboxSettings = SandboxSettings()
    files: FileSettings = FileSettings()

    _usual: str = PrivateAttr(default=DEMO)
    _key_variables: dict[str, str] = PrivateAttr(default={})

    def model_post_init(self, context: Mapping[str, str] | None, /) -> None:
        """Note whom to ask if none is named; `context` is the environment, if not the process's."""
        environ = os.environ if context is None else context

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

    @property
    def default_model(self) -> str:
        """The model of agents that name none."""
        return self.model or self._usual

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
