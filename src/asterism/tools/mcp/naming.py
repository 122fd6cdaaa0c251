"""Names: what a tool of a server is called where vendors of models take few characters."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

LONGEST = 64
_UNFIT = re.compile(r"[^a-zA-Z0-9_-]+")
_MARK = 8


def fitted(name: str) -> str:
    """Return a name with everything replaced that a vendor would refuse; it may be empty."""
    return _UNFIT.sub("_", name).strip("_")


def offered_name(prefix: str, tool: str) -> str:
    """Return what models call a tool; empty if nothing of its own name can be kept.

    A name that is too long keeps its beginning and ends with a mark made of the whole, so that it
    stays the same from one day to the next and differs from its neighbours.
    """
    own = fitted(tool)
    if not own:
        return ""
    # "git_add" of the server "git" says already whose it is.
    said = not prefix or own.casefold().startswith(f"{prefix}_".casefold())
    whole = own if said else f"{prefix}_{own}"
    if len(whole) <= LONGEST:
        return whole
    mark = hashlib.sha256(f"{prefix}\n{tool}".encode("utf-8", "replace")).hexdigest()[:_MARK]
    return f"{whole[: LONGEST - _MARK - 1]}_{mark}"


def offered_names(prefix: str, tools: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the names of tools that can be offered, and the reasons for those that cannot.

    Of several that would be called the same, the one that needed no change keeps the name.
    """
    names: dict[str, str] = {}
    refused: dict[str, str] = {}
    given = list(dict.fromkeys(tools))
    taken: dict[str, str] = {}
    for tool in sorted(given, key=lambda one: fitted(one) != one):
        name = offered_name(prefix, tool)
        if not name:
            refused[tool] = "its name has none of the characters that a tool's name may have"
        elif name in taken:
            refused[tool] = f"it would be called {name}, as {taken[name]!r} is"
        else:
            taken[name] = tool
            names[tool] = name
    return {tool: names[tool] for tool in given if tool in names}, refused
