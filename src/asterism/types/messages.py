"""Messages: what comes in, and what must go out."""

from __future__ import annotations

from dataclasses import dataclass

from asterism.errors import InvalidInput
from asterism.types.ids import turn_id_for


@dataclass(frozen=True, slots=True)
class InboxItem:
    """Something that waits in an agent's inbox for its turn."""

    agent_id: str
    arrival: int
    id: str
    kind: str
    """`message` opens a turn; `decision` puts a parked turn back to work."""
    channel: str
    body: bytes
    """The wire form of the message, or the decision as JSON."""
    at: int
    sender: str | None = None
    reply_to: str | None = None
    """Where the answer is delivered; None when whoever asked is waiting or will look."""
    schema: str | None = None
    """The JSON schema that the answer must fulfil."""
    participants: str | None = None
    """Who is present, as JSON: persons and a room; None: the owner alone."""
    stopped: str | None = None
    """Why its turn is not to begin, if a person has stopped it."""

    @property
    def turn_id(self) -> str:
        """The turn that this item opens."""
        return turn_id_for(self.id)


@dataclass(frozen=True, slots=True)
class Receipt:
    """A message was accepted: it is stored and will be answered exactly once."""

    message_id: str
    turn_id: str
    agent_id: str
    duplicate: bool = False
    """True when the same (channel, external id) had been accepted before."""
    told: str | None = None
    """What came of it, where no turn answers it: the answer to a question that was refused."""


@dataclass(frozen=True, slots=True)
class PastMessage:
    """One message of a conversation from elsewhere, to be imported."""

    role: str
    """`user`: a person said it; `assistant`: the agent did."""
    text: str
    speaker: str | None = None
    """Which person, by their name there; None: the owner."""
    at: int | None = None
    """When, in milliseconds since 1970; None: when the message before it was said."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a conversation from elsewhere has become in an agent's journal."""

    turns: tuple[str, ...]
    """The ids of its turns, one for each message of a person."""
    messages: tuple[str, ...]
    """The id that search knows each message by, `turn#number`, in the order they were given."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message on its way out. The same `key` is the same message, however often it is tried."""

    key: str
    agent_id: str
    turn_id: str
    channel: str
    target: str
    text: str
    attempts: int = 0
    state: str = "waiting"
    """`waiting`, `sent`, or `dead` (given up; shown by `asterism outbox list`)."""
    next_at: int = 0
    created_at: int = 0
    error: str | None = None

    @property
    def approval(self) -> str | None:
        """The id of the question that it asks, for channels that show buttons; else None."""
        first, _, rest = self.key.partition("/")
        if rest.startswith("ap_"):
            return rest
        return first if first.startswith("ap_") and rest.partition("/")[0].isdigit() else None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something an owner must be told, such as a call whose outcome is unknown."""

    id: str
    agent_id: str
    turn_id: str | None
    kind: str
    text: str
    at: int


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
