"""Audiences in settings: who may see what a tool, a server or a folder brings to light."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from asterism.errors import InvalidInput
from asterism.types.people import Audience

_NEEDED = (
    'who may see it: "owner", "public", "role:NAME", "room:CHANNEL:ROOM" or "person:ID", several '
    "joined by |,"
)


def _declared(text: str) -> str:
    try:
        return str(Audience.declared(text))
    except InvalidInput:
        raise ValueError(f'is "{text}"; {_NEEDED} is needed.') from None


DeclaredAudience = Annotated[
    str,
    AfterValidator(_declared),
    Field(description=_NEEDED, examples=["role:family"]),
]
