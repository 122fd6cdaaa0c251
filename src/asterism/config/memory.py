"""Settings of memory: how much a model sees, how a long past is folded, what may change memory."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_MOST = 1_000_000_000
_Count = Annotated[int, Field(ge=1, le=_MOST, description=f"a whole number from 1 to {_MOST:,}")]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


class ContextSettings(_Table):
    """How much a model sees, and what becomes of a past that is longer."""

    tokens: _Count = 100_000
    strategy: Literal["truncate", "summary", "importance", "decay"] = Field(
        default="summary",
        description='"truncate", "summary", "importance" or "decay"',
        examples=["summary"],
    )
    keep_recent: _Count = 8
    keep_important: _Count = 8
    decay_hours: float = Field(
        default=24.0,
        gt=0,
        le=_MOST,
        description=f"a number of hours above 0 and up to {_MOST:,}",
        examples=[24],
    )


class MemorySettings(_Table):
    """What may change memory without asking, and who looks for contradictions."""

    trusted: list[Literal["stranger", "tool", "document", "web"]] = Field(
        default=[],
        description='a list such as ["tool"] of "stranger", "tool", "document" and "web"',
        examples=[],
    )
    judge: Literal["rules", "model"] = Field(
        default="rules", description='"rules" or "model"', examples=["model"]
    )


_HAVE_TIERS = ("messages", "passages", "summaries")


class RetentionSettings(_Table):
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
        le=_MOST,
        description=f"a number of days above 0 and up to {_MOST:,}",
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
    def _fits(self) -> Self:
        if self.tag is not None and self.kind != "passages":
            raise ValueError(f"has a tag, which {self.kind} have not; leave out one of the two.")
        if self.trust is not None and self.kind not in _HAVE_TIERS:
            raise ValueError(f"has a trust, which {self.kind} have not; leave out one of the two.")
        if self.agent is not None and self.kind == "blobs":
            raise ValueError("has an agent, which blobs have not; leave out one of the two.")
        return self
