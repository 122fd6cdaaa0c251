"""Offers: which tools of a server agents are given, what they are called and what they do."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from asterism.config.settings import McpSettings
from asterism.errors import InvalidInput
from asterism.tools.given import SchemaTool
from asterism.tools.mcp.listing import Listed, Listing
from asterism.tools.mcp.naming import fitted, offered_names
from asterism.tools.tool import ToolContext
from asterism.types.effects import EffectKind, ToolEffect
from asterism.types.people import Trust
from asterism.types.turns import RetrySafety

MOST_TOOLS = 256
"""Tools of one server; each request to a model carries the descriptions of all."""

_LONGEST_READ = 20_000
_LEFT_OUT = "allow and deny leave it out"

Carry = Callable[[Listed, ToolContext, dict[str, Any], bool], Awaitable[str]]
"""Carries out a call of a tool; the last says whether it may safely be sent twice."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One tool of a server: offered under a name, or not, for a reason."""

    own: str
    """What the server calls it."""
    name: str = ""
    """What models call it."""
    refused: str = ""
    tool: SchemaTool | None = None

    @property
    def left_out(self) -> bool:
        """Whether it is the owner who does not want it."""
        return self.refused == _LEFT_OUT


def offers(name: str, settings: McpSettings, listing: Listing, carry: Carry) -> list[Offer]:
    """Return what becomes of each tool that a server listed, in its order."""
    found: list[Offer] = []
    wanted = [one for one in listing.tools if _wanted(settings, one.name)]
    prefix = fitted(name)[:32] if settings.prefix is None else settings.prefix
    names, unnamed = offered_names(prefix, (one.name for one in wanted))
    seen: set[str] = set()
    count = 0
    for one in listing.tools:
        if one.name in seen:
            found.append(Offer(one.name, refused="the server lists it twice"))
        elif not _wanted(settings, one.name):
            found.append(Offer(one.name, refused=_LEFT_OUT))
        elif one.name in unnamed:
            found.append(Offer(one.name, refused=unnamed[one.name]))
        elif count >= MOST_TOOLS:
            found.append(
                Offer(one.name, refused=f"only {MOST_TOOLS} tools of one server are offered")
            )
        else:
            offer = _offer(names[one.name], settings, one, carry)
            count += offer.tool is not None
            found.append(offer)
        seen.add(one.name)
    return found + [Offer(own, refused=reason) for own, reason in listing.refused]


def _wanted(settings: McpSettings, tool: str) -> bool:
    allowed = not settings.allow or any(fnmatchcase(tool, one) for one in settings.allow)
    return allowed and not any(fnmatchcase(tool, pattern) for pattern in settings.deny)


def _offer(name: str, settings: McpSettings, one: Listed, carry: Carry) -> Offer:
    said = settings.of(one.name)
    retry_safety = (
        RetrySafety(said.retry_safety) if said.retry_safety else _hinted_effect(settings, one)
    )
    again = retry_safety is RetrySafety.REPEATABLE

    async def call(ctx: ToolContext, arguments: dict[str, Any]) -> str:
        return await carry(one, ctx, arguments, again)

    try:
        tool = SchemaTool(
            name,
            plain_text(one.description[:_LONGEST_READ]) or f"The tool {plain_text(one.name)!r}.",
            one.schema,
            call,
            retry_safety=retry_safety,
            trust=Trust(said.trust or settings.trust or _usual_trust(one)),
            effects=said.effects.effects if said.effects else hinted_effects(settings, one),
            timeout=said.timeout or settings.timeout,
            ask=settings.ask if said.ask is None else said.ask,
            audience=said.audience or settings.audience,
            definition=[one.name, one.description, one.hints],
        )
    except InvalidInput as error:
        return Offer(one.name, refused=error.message)
    return Offer(one.name, name, tool=tool)


def hinted_effects(settings: McpSettings, one: Listed) -> ToolEffect | None:
    """Return what a tool does by its server's word, which counts if the owner trusts the server.

    Without that word, or that trust, it is not known what it does: it might do anything.
    """
    if not settings.trust_annotations or "readOnlyHint" not in one.hints:
        return None
    arguments = tuple(one.schema.get("properties") or ())
    if one.hints["readOnlyHint"]:
        if one.hints.get("openWorldHint", True):
            return ToolEffect(EffectKind.FETCH, hosts=arguments)
        return ToolEffect(EffectKind.READ, things=arguments)
    if one.hints.get("destructiveHint", True):
        return ToolEffect(EffectKind.DELETE, things=arguments)
    return ToolEffect(EffectKind.WRITE, things=arguments)


def _hinted_effect(settings: McpSettings, one: Listed) -> RetrySafety:
    safe = one.hints.get("readOnlyHint", False) or one.hints.get("idempotentHint", False)
    return RetrySafety.REPEATABLE if settings.trust_annotations and safe else RetrySafety.UNKNOWN


def _usual_trust(one: Listed) -> str:
    # Whose words a server passes on is not known: a mailbox holds anybody's.
    del one
    return Trust.WEB.value


def plain_text(text: str) -> str:
    """Return a text without characters that a person who reads it would not see.

    A description is read by models as their owner's; what the owner cannot see in it, such as
    Unicode tags, has no place there.
    """
    return "".join(
        char
        for char in text
        if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Co", "Cn", "Cs")
    ).strip()
