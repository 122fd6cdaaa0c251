"""What a block may be: its label, its description, its limit, its size."""

from __future__ import annotations

import re

from asterism.errors import InvalidInput
from asterism.types.memory import Block

HIGHEST_LIMIT = 10_000_000
_LABEL = re.compile(r"\w(?:[\w.:/-]{0,78}\w)?")
_LONGEST_DESCRIPTION = 2_000


def check_label(label: str) -> None:
    """Refuse what cannot be a label."""
    if not _LABEL.fullmatch(label):
        raise InvalidInput(
            f"{label[:100]!r} cannot be a label. It has 1 to 80 letters, digits or any of _ - . : "
            "/, and begins and ends with a letter, a digit or _. Nothing was changed."
        )


def check_description(description: str) -> None:
    """Refuse a description that is too long."""
    if len(description) > _LONGEST_DESCRIPTION or "\x00" in description:
        raise InvalidInput(
            f"The description has {len(description):,} characters; at most "
            f"{_LONGEST_DESCRIPTION:,}, and no null character, are taken. Nothing was changed."
        )


def check_limit_itself(limit: int) -> None:
    """Refuse a limit that no block may have."""
    if not 1 <= limit <= HIGHEST_LIMIT:
        raise InvalidInput(
            f"A block cannot have the limit {limit:,}. Choose from 1 to {HIGHEST_LIMIT:,} "
            "characters. Nothing was changed."
        )


def check_size(block: Block, text: str, *, sees_all: bool) -> None:
    """Refuse text that is longer than the block may be."""
    size, held = len(text), len(block.text)
    if size <= block.limit or size < held:
        return
    if not sees_all:  # any number here would tell how much there is of what is not heard
        raise InvalidInput(
            f"Block {block.label!r} does not take this text. Shorten it, replace a part of the "
            "block, or keep it in the archive. Nothing was changed."
        )
    raise InvalidInput(
        f"Block {block.label!r} holds {held:,} of {block.limit:,} characters and this text adds "
        f"{size - held:,}. Shorten it, replace a part of the block, or keep it in the archive. "
        "Nothing was changed."
    )
