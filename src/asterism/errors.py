"""Every error asterism raises on purpose.

    AsterismError
    ├── ConfigError            the configuration does not say what it must
    ├── InvalidInput           what was handed in cannot be taken as it is
    ├── NotFound               a name or id that is not there
    ├── Conflict               a name that is taken, an answer that was given before
    ├── NotAllowed             permissions do not let this actor do that
    ├── StoreError             the place at rest
    │   ├── StoreInUse         another process holds the data directory
    │   ├── StoreReadOnly      the place cannot be written
    │   ├── StoreMissing       a database that was there is gone
    │   ├── StoreTooNew        written by a later release
    │   ├── StoreTooOld        written by an earlier release, and not readable as it is
    │   ├── StoreDamaged       the file is not a healthy database
    │   └── StoreUnavailable   not now: disk full, I/O error, server out of reach
    │       └── StoreFull      no room left
    ├── ModelError             the language model did not answer
    │   ├── ModelUnavailable   out of reach, overloaded or cut off; may work when tried again
    │   │   └── ModelBusy      has had too many requests; works again after a while
    │   ├── ModelRefused       will not take this request until something is changed
    │   │   ├── KeyRefused     the key is missing, wrong or has no quota left
    │   │   ├── ContextTooLong more than its window holds
    │   │   └── ContentRefused its content filter objects
    │   └── ModelGarbled       answered, but not in its wire format
    ├── SecretError            a stored key
    │   ├── SecretUnreadable   damaged at rest
    │   └── MasterKeyMissing   the key that opens the others is gone, or is another one
    ├── BudgetReached          the next call could pass a spending cap
    ├── ToolError              raised by a tool; its words are read by the model
    ├── SandboxError           no program was run, since it could not be shut in
    ├── DeliveryError          a channel could not hand over a message
    ├── TurnLimit              a turn ran into one of its limits
    └── LaneLost               another worker has taken over this agent's lane

A message says what happened with the value, what would be right, the next move, and what was
not done. `code` is stable and shown by the API as problem+json. Whatever a caller wants to know
of an error is its type, its code or a field; nobody reads it out of the sentence.
"""

from __future__ import annotations

from collections.abc import Callable


class AsterismError(Exception):
    """What a user can be told in one sentence; anything else is a bug of ours."""

    code = "error"
    cleaned: Callable[[str], str] | None = None
    """Takes secrets out of messages, which often repeat what was handed in; set by `telemetry`."""

    def __init__(self, reason: str, *, outcome: str = "") -> None:
        """Say what happened.

        Args:
            reason: What happened, what would be right, and the next move.
            outcome: What was not done, such as `Nothing was changed.`, where another error may
                give the reason as a part of its own and has an outcome of its own.
        """
        clean = AsterismError.cleaned
        if clean is not None:
            reason, outcome = clean(str(reason)), clean(outcome)
        super().__init__(reason, *([outcome] if outcome else []))
        self.reason = reason
        self.outcome = outcome

    @property
    def message(self) -> str:
        """The whole: the reason, the outcome, and what was noted on the way."""
        parts = (self.reason, self.outcome, *getattr(self, "__notes__", ()))
        return " ".join(part for part in parts if part)

    def __str__(self) -> str:
        return self.message


class ConfigError(AsterismError):
    """The configuration cannot be used."""

    code = "config"


class InvalidInput(AsterismError):
    """What was handed in cannot be taken as it is."""

    code = "input"


class NotFound(AsterismError):
    """No such thing."""

    code = "not-found"


class Conflict(AsterismError):
    """It is there already, or was answered before."""

    code = "conflict"


class NotAllowed(AsterismError):
    """Permissions do not let this actor do that."""

    code = "not-allowed"


class StoreError(AsterismError):
    """Something about the place at rest."""

    code = "store"


class StoreInUse(StoreError):
    """Another process holds the data directory."""

    code = "store.in-use"


class StoreReadOnly(StoreError):
    """The place cannot be written."""

    code = "store.read-only"


class StoreMissing(StoreError):
    """A database that was there is gone."""

    code = "store.missing"


class StoreTooNew(StoreError):
    """Written by a later release."""

    code = "store.too-new"


class StoreTooOld(StoreError):
    """Written by an earlier release or before the first, and not readable by this one as it is."""

    code = "store.too-old"


class StoreDamaged(StoreError):
    """The file is not a healthy database."""

    code = "store.damaged"


class StoreUnavailable(StoreError):
    """Not now; the same write may work later."""

    code = "store.unavailable"


class StoreFull(StoreUnavailable):
    """No room left."""

    code = "store.full"


class ModelError(AsterismError):
    """The language model did not answer."""

    code = "model"


class ModelUnavailable(ModelError):
    """Out of reach, overloaded or cut off; may work when tried again."""

    code = "model.unavailable"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        slow: bool = False,
        begun: bool = False,
    ) -> None:
        """Say what happened.

        Args:
            message: The sentence for people.
            retry_after: Seconds that the server wants us to wait.
            slow: Whether time ran out.
            begun: Whether the model may have begun to answer, and charge for it.
        """
        super().__init__(message)
        self.retry_after = retry_after
        self.slow = slow
        self.begun = begun


class ModelBusy(ModelUnavailable):
    """Too many requests or tokens a minute; `retry_after` is the server's wish."""

    code = "model.busy"


class ModelRefused(ModelError):
    """An unknown model, a request it will not take."""

    code = "model.refused"


class KeyRefused(ModelRefused):
    """The key is missing, wrong, or has no quota left; another key may do."""

    code = "model.key"


class ContextTooLong(ModelRefused):
    """The conversation is longer than the model's window; a shorter one would be taken."""

    code = "model.context"


class ContentRefused(ModelRefused):
    """The vendor's content filter objects; another model may not."""

    code = "model.content"


class ModelGarbled(ModelError):
    """Answered, but not in its wire format."""

    code = "model.garbled"


class SecretError(AsterismError):
    """Something about a stored key."""

    code = "secret"


class SecretUnreadable(SecretError):
    """A stored key was damaged at rest; the others are not affected."""

    code = "secret.unreadable"


class MasterKeyMissing(SecretError):
    """The master key, which opens the stored keys, is gone or is another one."""

    code = "secret.master-key"


class BudgetReached(AsterismError):
    """The worst case of the next model call would pass a spending cap; it was not made."""

    code = "budget.reached"


class ToolError(AsterismError):
    """Raised by a tool; its words are read by the model, so that it can correct itself."""

    code = "tool"


class SandboxError(AsterismError):
    """A program could not be shut in, and so was not run."""

    code = "sandbox"


class DeliveryError(AsterismError):
    """A channel could not hand over a message; `final` when trying again is useless."""

    code = "delivery"

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class TurnLimit(AsterismError):
    """A turn ran into one of its limits."""

    code = "turn.limit"


class LaneLost(AsterismError):
    """Another worker has taken over this agent's lane; whatever was begun here is void."""

    code = "lane.lost"
