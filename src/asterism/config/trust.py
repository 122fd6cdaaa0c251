"""Settings of trust: who reads what was asked for, when untrusted content was read before."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class TrustSettings(BaseModel):
    """How a request is read before a consequential call that follows untrusted content."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    reader: str = Field(
        default="auto",
        pattern=r"^(auto|literal|[^:,\s]+:[^,\s]+)$",
        description='"auto", "literal" or a model as vendor:name',
        examples=["openai:gpt-5-mini"],
    )
