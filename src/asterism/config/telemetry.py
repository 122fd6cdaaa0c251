"""What is observed of a process at work, and who is told."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

_STRICT = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class TelemetrySettings(BaseModel):
    """Where traces and metrics are sent: nowhere, unless an endpoint is named."""

    model_config = _STRICT

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


class LogSettings(BaseModel):
    """What is written to the log, and how."""

    model_config = _STRICT

    level: Literal["debug", "info", "warning", "error"] = Field(
        default="warning", description='one of "debug", "info", "warning" and "error"'
    )
    format: Literal["text", "json"] = Field(default="text", description='"text" or "json"')
