"""Search over messages, passages, documents, blocks and summaries, ranked together."""

from __future__ import annotations

import sys

_CACHING_MODULES = ("texts", "index", "rank", "search")


def clear_caches() -> None:
    """Empty all caches of this process, since a text in them may have been forgotten."""
    # A module that was never imported has no cache, and is not imported for this.
    for name in _CACHING_MODULES:
        module = sys.modules.get(f"{__name__}.{name}")
        if module is not None:
            module.clear()
