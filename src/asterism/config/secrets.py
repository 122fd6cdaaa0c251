"""Settings of secrets: who keeps the master key."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SecretSettings(BaseModel):
    """Where the key is that opens the stored keys of others."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)

    keeper: str = Field(
        default="file",
        pattern=r"^(file|keyring|env)$",
        description='"file", "keyring" or "env"',
        examples=["keyring"],
    )
    key_file: str | None = Field(
        default=None,
        min_length=1,
        description="the path of a file",
        examples=["/etc/asterism/master.key"],
    )
