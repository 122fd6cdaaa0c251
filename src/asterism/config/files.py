"""Settings of files: which folders beside their own agents may read or change."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from asterism.config.audiences import DeclaredAudience

FilePermission = Literal["none", "read", "human", "partner", "read_write"]


class FileRule(BaseModel):
    """What agents may do with files that fit a pattern."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

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


class FileSettings(BaseModel):
    """What the tool `file` may do; the first rule that fits a path counts."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    rule: tuple[FileRule, ...] = Field(
        default=(), strict=False, description="a list of tables with paths and a permission"
    )
    audience: DeclaredAudience = "owner"
    largest_kb: int = Field(
        default=1024, ge=1, le=100_000, description="a whole number from 1 to 100,000"
    )
