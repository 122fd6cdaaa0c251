"""Settings of search: what makes vectors of texts, and on how many cores."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SearchSettings(BaseModel):
    """What texts of one meaning are found with."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    encoder: str = Field(
        default="minilm",
        pattern=r"^(minilm|none|[^:,\s]+:[^,\s]+)$",
        description='"minilm", "none" or a model as vendor:name',
        examples=["ollama:nomic-embed-text"],
    )
    threads: int = Field(
        default=1, ge=1, le=256, description="a whole number from 1 to 256", examples=[1]
    )
