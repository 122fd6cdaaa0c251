"""Tools that were handed in: a JSON schema and whatever carries the call out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asterism.errors import ToolError
from asterism.tools.schemas import checked_schema, checked_tool_name, faults_of, shown_schema
from asterism.tools.tool import Tool, ToolContext, as_text, read_object
from asterism.types.effects import Declared
from asterism.types.people import OWNER, Trust
from asterism.types.turns import RetrySafety

Carry = Callable[[ToolContext, dict[str, Any]], Awaitable[Any]]
"""Carries a call out, with arguments that fit the schema; what it returns is the result."""

LONGEST_DESCRIPTION = 4_000


class SchemaTool(Tool):
    """A tool made of a JSON schema: from a server, or registered by a person."""

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any] | None,
        call: Carry,
        *,
        retry_safety: RetrySafety = RetrySafety.UNKNOWN,
        trust: Trust | None = Trust.TOOL,
        effects: Declared | None = None,
        timeout: float | None = None,
        ask: bool = False,
        compact: bool = False,
        audience: str = OWNER,
        definition: Any = None,
    ) -> None:
        """Check name and schema, raising `InvalidInput` for what models or vendors cannot take."""
        self.schema = checked_schema(checked_tool_name(name), schema)

        async def carry_out(ctx: ToolContext) -> str:
            raise NotImplementedError  # `run` below goes another way

        super().__init__(
            carry_out,
            name=name,
            retry_safety=retry_safety,
            check=None,
            ask=ask,
            timeout=timeout,
            trust=trust,
            compact=compact,
            effects=effects,
            audience=audience,
        )
        self._call = call
        self.definition = [self.schema, definition]
        self.description = _one_text(description)

    def wire(self) -> dict[str, Any]:
        """Return the description that models are given."""
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": shown_schema(self.schema),
            },
        }

    def read(self, arguments: str) -> dict[str, Any]:
        """Return the arguments of a call, held against the schema; `ToolError` if unfit."""
        known = read_object(self.name, arguments)
        if faults := faults_of(self.schema, known):
            raise ToolError(
                f"The arguments do not fit {self.name}: {'; '.join(faults)}. "
                "Correct them and call it again."
            )
        return known

    async def run(self, context: ToolContext, arguments: dict[str, Any]) -> str:
        """Carry the call out and return its result as text."""
        return as_text(await self._call(context, arguments))


def _one_text(text: str) -> str:
    """Return a description that can be sent; a lone surrogate or a control character cannot."""
    clean = "".join(
        char for char in text.encode("utf-8", "replace").decode() if char >= " " or char in "\n\t"
    ).strip()
    if len(clean) <= LONGEST_DESCRIPTION:
        return clean
    return f"{clean[: LONGEST_DESCRIPTION - 1]}…"
