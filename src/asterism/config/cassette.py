"""What goes over the wire to models, recorded or played."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class CassetteSettings(BaseModel):
    """A tape of requests and answers: recorded, or played without any network."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    file: str | None = Field(
        default=None, min_length=1, description="a file", examples=["demo.jsonl"]
    )
    mode: Literal["play", "record"] = Field(default="play", description='"play" or "record"')
    speed: float = Field(
        default=0.0, ge=0, le=1000, description="a number from 0 (no pauses) to 1,000", examples=[1]
    )
    loose: bool = Field(default=False, description="true or false", examples=[])
