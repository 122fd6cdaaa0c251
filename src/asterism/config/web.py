"""Settings of the web: which private hosts may be fetched, and what searches the web."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationInfo, field_validator

Engine = Literal["none", "searxng", "brave", "kagi", "json"]
_NEEDS_URL = ("searxng", "json")


class WebSettings(BaseModel):
    """What the tool `web` may do."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

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
    def _there(cls, url: str | None, others: ValidationInfo) -> str | None:
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
