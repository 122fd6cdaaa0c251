"""Settings of the sandbox: how programs are shut in, and how much they may use."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

UNSANDBOXED = "I know that programs will run with my rights"
"""What has to be written to let programs run without a sandbox."""


class SandboxSettings(BaseModel):
    """What programs that agents run may see and use."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

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
    def _in_so_many_words(cls, said: str | None) -> str | None:
        if said is not None and said != UNSANDBOXED:
            raise ValueError(f'is another sentence; "{UNSANDBOXED}" is needed, word by word.')
        return said
