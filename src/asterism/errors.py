"""Every error asterism raises on purpose.

    AsterismError
    ├── ConfigError            the configuration is not valid
    ├── InvalidInput           an argument is not valid
    │   ├── BadRequest         the request is not as the document of the API says
    │   └── RequestTooLarge    the request has more bytes than it may
    ├── NotFound               an unknown name or id
    ├── Conflict               a name that exists already, an approval that was answered before
    │   └── Changed            it was changed since it was read
    ├── NotAllowed             the permissions of the actor do not allow it
    ├── InboxFull              so much of the sender waits that no more is taken; later it is
    ├── NotAuthenticated       the token, the password or the session is not valid
    ├── TooManyAttempts        too many wrong tokens or passwords; a later attempt is heard
    ├── StoreError             the store
    │   ├── StoreInUse         another process holds the data directory
    │   ├── StoreReadOnly      the store cannot be written
    │   ├── StoreMissing       the database has disappeared
    │   ├── StoreTooNew        written by a later release
    │   ├── StoreTooOld        written by an earlier release, and needs an upgrade
    │   ├── StoreDamaged       the file is not a healthy database
    │   └── StoreUnavailable   for now: disk full, I/O error, server not reachable
    │       └── StoreFull      the disk is full
    ├── ModelError             the language model did not answer
    │   ├── ModelUnavailable   not reachable, overloaded or interrupted; a retry may work
    │   │   └── ModelBusy      too many requests; a later retry works
    │   ├── ModelRefused       refuses this request; a retry is useless
    │   │   ├── KeyRefused     the key is missing, wrong or has no quota left
    │   │   ├── ContextTooLong longer than its context window
    │   │   └── ContentRefused its content filter objects
    │   └── ModelGarbled       the answer is not in the expected format
    ├── HomeLost               the process that has the home open ended or does not answer
    ├── OtherVersion           the process that has the home open is of another release
    ├── SecretError            a stored key
    │   ├── SecretUnreadable   damaged in the store
    │   └── MasterKeyMissing   the key that decrypts the others is missing or wrong
    ├── BackupError            a backup
    │   ├── BackupDamaged      cut off, changed or damaged
    │   └── PassphraseWrong    not the passphrase that it was encrypted with
    ├── BudgetReached          the next call could exceed a spending cap
    ├── ToolError              raised by a tool; the model reads its message
    ├── SandboxError           a program was not run, because there is no sandbox
    ├── DeliveryError          a channel could not send a message
    ├── TurnLimit              a turn reached one of its limits
    └── LaneLost               another worker has taken over this agent's lane

A message says what happened with the value, what would be right, the next move, and what was
not done. `code` is stable and shown by the API as problem+json. Callers use the type,
the code and the fields of an error; they never parse the sentence.
"""

from __future__ import annotations

from collections.abc import Callable


class AsterismError(Exception):
    """A problem that one sentence explains to the user; any other exception is our bug."""

    code = "error"
    cleaned: Callable[[str], str] | None = None
    """Removes secrets from messages, which often quote the input; set by `telemetry`."""

    def __init__(self, reason: str, *, outcome: str = "") -> None:
        """Make the error.

        Args:
            reason: What happened, what would be right, and the next move.
            outcome: What was not done, such as `Nothing was changed.`, if another error may
                quote the reason and has its own outcome.
        """
        clean = AsterismError.cleaned
        if clean is not None:
            reason, outcome = clean(str(reason)), clean(outcome)
        super().__init__(reason, *([outcome] if outcome else []))
        self.reason = reason
        self.outcome = outcome

    @property
    def message(self) -> str:
        """The whole sentence: the reason, the outcome and the added notes."""
        parts = (self.reason, self.outcome, *getattr(self, "__notes__", ()))
        return " ".join(part for part in parts if part)

    def __str__(self) -> str:
        return self.message

    def for_others(self) -> AsterismError:
        """Return the error for whoever has not the machine that it is about."""
        return self


class ConfigError(AsterismError):
    """The configuration cannot be used."""

    code = "config"


class InvalidInput(AsterismError):
    """An argument is not valid."""

    code = "input"


class BadRequest(InvalidInput):
    """The request is not as the document of the API says."""

    code = "input.request"


class RequestTooLarge(InvalidInput):
    """The request has more bytes than it may."""

    code = "input.too-large"


class NotFound(AsterismError):
    """The name or id is not known."""

    code = "not-found"


class Conflict(AsterismError):
    """It exists already, or was answered before."""

    code = "conflict"


class QuotaReached(Conflict):
    """There is as much of it as there may be."""

    code = "quota"


class Changed(Conflict):
    """It was changed since it was read."""

    code = "conflict.changed"


class NotAllowed(AsterismError):
    """The permissions of the actor do not allow it."""

    code = "not-allowed"


class InboxFull(AsterismError):
    """So many messages of a sender wait that no more are taken for `retry_after` seconds."""

    code = "inbox.full"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotAuthenticated(AsterismError):
    """The token, the password or the session is not valid."""

    code = "not-authenticated"


class TooManyAttempts(AsterismError):
    """Too many wrong tokens or passwords; the next is checked after `retry_after` seconds."""

    code = "too-many-attempts"

    def __init__(self, message: str, *, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoreError(AsterismError):
    """A problem with the store."""

    code = "store"

    def for_others(self) -> AsterismError:
        """Return the error without paths and addresses."""
        return _without_places(self)


class StoreInUse(StoreError):
    """Another process holds the data directory."""

    code = "store.in-use"


class StoreReadOnly(StoreError):
    """The store cannot be written."""

    code = "store.read-only"


class StoreMissing(StoreError):
    """The database has disappeared."""

    code = "store.missing"


class StoreTooNew(StoreError):
    """Written by a later release."""

    code = "store.too-new"

    def for_others(self) -> AsterismError:
        """Return the error as it is: it is about a backup."""
        return self


class StoreTooOld(StoreError):
    """Written by an earlier release or before the first; this release cannot read it directly."""

    code = "store.too-old"


class StoreDamaged(StoreError):
    """The file is not a healthy database."""

    code = "store.damaged"


class StoreUnavailable(StoreError):
    """Not available now; the same write may work later."""

    code = "store.unavailable"


class StoreFull(StoreUnavailable):
    """The disk is full."""

    code = "store.full"


class ModelError(AsterismError):
    """The language model did not answer."""

    code = "model"


class ModelUnavailable(ModelError):
    """Not reachable, overloaded or interrupted; a retry may work."""

    code = "model.unavailable"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        slow: bool = False,
        begun: bool = False,
    ) -> None:
        """Make the error.

        Args:
            message: The sentence for people.
            retry_after: Seconds that the server asks us to wait.
            slow: Whether it was a timeout.
            begun: Whether the model may have started to answer, and may charge for it.
        """
        super().__init__(message)
        self.retry_after = retry_after
        self.slow = slow
        self.begun = begun


class ModelBusy(ModelUnavailable):
    """Too many requests or tokens a minute; `retry_after` comes from the server."""

    code = "model.busy"


class ModelRefused(ModelError):
    """An unknown model, or a request that it does not accept."""

    code = "model.refused"


class KeyRefused(ModelRefused):
    """The key is missing, wrong, or has no quota left; another key may work."""

    code = "model.key"


class ContextTooLong(ModelRefused):
    """The conversation is longer than the model's context window."""

    code = "model.context"


class ContentRefused(ModelRefused):
    """The vendor's content filter refuses it; another model may accept it."""

    code = "model.content"


class ModelGarbled(ModelError):
    """The answer is not in the expected format."""

    code = "model.garbled"


class HomeLost(AsterismError):
    """The process that has the home open has ended, or does not answer."""

    code = "home.lost"


class OtherVersion(AsterismError):
    """The process that has the home open is of another release."""

    code = "home.other-version"


class SecretError(AsterismError):
    """A problem with a stored key."""

    code = "secret"

    def for_others(self) -> AsterismError:
        """Return the error without the place of the master key."""
        return _without_places(self)


class SecretUnreadable(SecretError):
    """A stored key is damaged in the store; the others are not affected."""

    code = "secret.unreadable"


class MasterKeyMissing(SecretError):
    """The master key, which decrypts the stored keys, is missing or wrong."""

    code = "secret.master-key"


class BackupError(AsterismError):
    """A backup cannot be made or used."""

    code = "backup"


class BackupDamaged(BackupError):
    """The backup is cut off, changed or damaged."""

    code = "backup.damaged"


class PassphraseWrong(BackupError):
    """The passphrase is not the one that the backup was encrypted with."""

    code = "backup.passphrase"


class BudgetReached(AsterismError):
    """The worst case of the next model call exceeds a spending cap; it was not made."""

    code = "budget.reached"


class ToolError(AsterismError):
    """Raised by a tool; the model reads the message, so that it can correct itself."""

    code = "tool"


class SandboxError(AsterismError):
    """There is no sandbox for a program, so it was not run."""

    code = "sandbox"


class DeliveryError(AsterismError):
    """A channel could not send a message; `final` if a retry is useless."""

    code = "delivery"

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class TurnLimit(AsterismError):
    """A turn reached one of its limits."""

    code = "turn.limit"


class LaneLost(AsterismError):
    """Another worker has taken over this agent's lane; work that started here is discarded."""

    code = "lane.lost"


def _without_places(error: StoreError | SecretError) -> AsterismError:
    what = (type(error).__doc__ or "").strip().partition("\n")[0]
    return type(error)(
        f"{what} Whoever runs the server finds more in its log. What was confirmed before is safe, "
        "and this was not done."
    )
