"""Which of many tools a message may need, and each of them on one line."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

MAX_TOOLS = 8
_SELECTED_TOOLS = 4
_MAX_LINE = 260
_WORD = re.compile(r"[^\W\d_]{3,}")
_STOP_WORDS = frozenset(
    _WORD.findall(
        "the and for with from that this what when where which who how you your are was "
        "will can could would should please have has had not but all any its one use such "
        "into out them they about tell give let want need make get put"
    )
)


@dataclass(frozen=True, slots=True)
class ToolSummary:
    """A tool as a small model is told of it."""

    name: str
    line: str
    schema: dict[str, Any]
    words: frozenset[str]

    @staticmethod
    def from_function(function: dict[str, Any]) -> ToolSummary:
        """Make an offer from a function as the wire format describes it."""
        name = str(function.get("name"))
        about = " ".join(str(function.get("description") or "").split("\n\n")[0].split())
        schema: dict[str, Any] = function.get("parameters") or {}
        schema = {"type": "object", "properties": {}, **schema}
        members = cast("dict[str, dict[str, Any]]", schema["properties"])
        required: list[str] = schema.get("required") or []
        arguments = ", ".join(
            f"{one}{'' if one in required else '?'}: {_type_name(member)}"
            for one, member in members.items()
        )
        notes = " ".join(str(member.get("description") or "") for member in members.values())
        line = f"- {name}({arguments}): {about}"
        if len(line) > _MAX_LINE:
            line = line[: _MAX_LINE - 1] + "…"
        return ToolSummary(name, line, schema, frozenset(_stems(f"{name} {about} {notes}")))


def select_tools(text: str, offers: dict[str, ToolSummary], *, fill: bool) -> list[str]:
    """Return the few tools whose names and descriptions share the rarest words with a message.

    With `fill`, the first of the others make up the number, so that there always are some.
    """
    spread = Counter(word for offer in offers.values() for word in offer.words)
    said = set(_stems(text))
    scores = {
        name: sum(math.log(1 + len(offers) / spread[word]) for word in said & offer.words)
        for name, offer in offers.items()
    }
    order = sorted(offers, key=lambda name: -scores[name])
    return [name for name in order[:_SELECTED_TOOLS] if fill or scores[name] > 0]


def _stems(text: str) -> list[str]:
    words = (word.lower() for word in _WORD.findall(text.replace("_", " ")))
    return [_stem(word) for word in words if word not in _STOP_WORDS]


def _stem(word: str) -> str:
    for ending in ("ing", "ed", "es", "s", "er"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)].rstrip("e")
    return word.rstrip("e")


def _type_name(member: dict[str, Any]) -> str:
    """Name what an argument may be, in a word."""
    if "enum" in member:
        return "|".join(str(value) for value in member["enum"])
    if "const" in member:
        return str(member["const"])
    ways = cast("list[dict[str, Any]]", member.get("anyOf") or member.get("oneOf") or [])
    if ways:
        return "|".join(dict.fromkeys(_type_name(way) for way in ways if way.get("type") != "null"))
    kind = member.get("type", "object")
    if kind == "array":
        return f"[{_type_name(cast('dict[str, Any]', member.get('items') or {'type': 'any'}))}]"
    return str(kind) if isinstance(kind, str) else "|".join(cast("list[str]", kind))
