"""What this process keeps in memory of texts to search them quickly."""

from __future__ import annotations

import sys

_MODULES = ("index", "stored", "looking", "across")


def let_go() -> None:
    """Keep nothing any more, since something of it was forgotten."""
    # What was never imported keeps nothing, and is not imported for this.
    for name in _MODULES:
        module = sys.modules.get(f"asterism.memory.search.{name}")
        if module is not None:
            module.clear()
