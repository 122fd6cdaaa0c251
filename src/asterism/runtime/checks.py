"""What may be handed in: text that every store can keep and every model can be sent."""

from __future__ import annotations

from asterism.errors import InvalidInput

LONGEST_MESSAGE = 1_000_000
_LONGEST_FIELD = 10_000


def check_text(text: str) -> str:
    """Return a message's text, or raise `InvalidInput` if it cannot be taken."""
    if not text.strip():
        raise InvalidInput("The message is empty. Write something; nothing was stored.")
    if len(text) > LONGEST_MESSAGE:
        raise InvalidInput(
            f"The message has {len(text):,} characters, and at most {LONGEST_MESSAGE:,} can be "
            "taken. Send it in parts. Nothing was stored."
        )
    if not _is_unicode(text):
        raise InvalidInput(
            "The message holds characters that are not valid Unicode (lone surrogates), as when "
            "bytes of another encoding are read as UTF-8. Send it as UTF-8. Nothing was stored."
        )
    return text


def check_field(name: str, value: str | None, longest: int = _LONGEST_FIELD) -> None:
    """Raise `InvalidInput` unless a text beside a message can be kept as it is."""
    if value is None:
        return
    if len(value) > longest:
        raise InvalidInput(
            f"{name} has {len(value):,} characters, and at most {longest:,} can be taken. "
            "Shorten it. Nothing was stored."
        )
    if "\x00" in value or not _is_unicode(value):
        raise InvalidInput(
            f"{name} is {value[:40]!a}, which holds a NUL character or half a surrogate pair. "
            "Take it out. Nothing was stored."
        )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
