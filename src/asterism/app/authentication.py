"""Who comes with a secret: tokens, passwords and sessions checked, and attempts throttled."""

from __future__ import annotations

import asyncio
import functools
import hmac
import ipaddress
import logging
import math
import re
import secrets
import string
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from dataclasses import replace as changed_record
from hashlib import sha256
from typing import Any, TypeVar

import orjson

from asterism.app.session import (
    ACCESS_CHANGED,
    THE_OWNER,
    Session,
    TokenLimits,
    note,
)
from asterism.errors import (
    AsterismError,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    TooManyAttempts,
)
from asterism.memory import people
from asterism.permissions import ROLES, SYSTEM, Act, Actor, Authority
from asterism.records import dataclass
from asterism.store import groups
from asterism.store.database import Connection, Database, Row
from asterism.times import DAY, Moment, OptionalMoment, exact_duration, utc_text
from asterism.types.agents import OWNER, Person, Trust, new_id

SESSION_IDLE = DAY
"""Milliseconds after which a session of the web page ends that nobody uses."""
SESSION_LIFETIME = 30 * DAY
"""Milliseconds after which every session ends."""
FRESH = 1.5
"""Seconds for which what the store says of a token is not read again."""

_LETTERS = string.ascii_letters + string.digits
SECRET_FORM = re.compile(r"ast_([0-9a-f]{24})_[A-Za-z0-9]{43}")
MAX_NAME_LENGTH = 80
_MAX_KNOWN = 10_000
MAX_PASSWORD_LENGTH = 1_000
_NOTED_EVERY = 60_000
_AT_ONCE = 2
"""How many secrets are checked at the same time: each takes megabytes of memory."""

T = TypeVar("T")
_log = logging.getLogger(__name__)


# -- records ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token for the HTTP API, without its secret."""

    id: str
    name: str
    role: str
    scopes: tuple[str, ...]
    """The acts it is narrowed to; empty: all that its role allows."""
    agents: tuple[str, ...]
    """The ids of the agents it is narrowed to; empty: all."""
    person_id: str | None
    """As whom it acts; None: as the owner."""
    created_at_ms: int
    expires_at_ms: int | None = None
    used_at_ms: int | None = None
    """When it was last used, to the minute."""
    revoked_at_ms: int | None = None

    created_at = Moment()
    expires_at = OptionalMoment()
    used_at = OptionalMoment()
    revoked_at = OptionalMoment()

    def state(self, now: int) -> str:
        """Return `active`, `expired` or `revoked`."""
        if self.revoked_at_ms is not None:
            return "revoked"
        return (
            "expired" if self.expires_at_ms is not None and self.expires_at_ms <= now else "active"
        )


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made, with its secret, which is not stored and never shown again."""

    token: AccessToken
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class User:
    """Somebody who can log in at the web page."""

    person_id: str
    """`owner`, or the id of a person."""
    name: str
    changed_at_ms: int
    """When the password was set."""
    sessions: int
    """How many sessions have not ended."""

    changed_at = Moment()


@dataclass(frozen=True, slots=True)
class WebSession:
    """A session of the web page."""

    id: str
    person_id: str
    created_at_ms: int
    seen_at_ms: int
    """When it was last used, to the minute."""
    expires_at_ms: int

    created_at = Moment()
    seen_at = Moment()
    expires_at = Moment()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who uses a home, and what they came with."""

    person_id: str
    """`owner`, or the id of a person."""
    name: str
    roles: tuple[str, ...]
    constellation: str
    credential: str | None
    """The id of the token or of the session of the web page."""


@dataclass(frozen=True, slots=True)
class NewWebSession:
    """A session that has just begun: its secret for the cookie, and its CSRF token."""

    session: WebSession
    secret: str = field(repr=False)
    csrf: str = field(repr=False)


def csrf_of(secret: str) -> str:
    """Return the CSRF token of a session, which is made of the secret and does not tell it."""
    return hmac.digest(secret.encode(), b"asterism csrf", "sha256").hex()


def new_secret() -> tuple[str, str]:
    """Return the number of a new id, and a secret that names it."""
    number = new_id("token").partition("_")[2]
    return number, f"ast_{number}_{''.join(secrets.choice(_LETTERS) for _ in range(43))}"


# -- rows ------------------------------------------------------------------------------------------

TOKEN_COLUMNS = (
    "id, name, role, scopes, agents, person_id, created_at, expires_at, used_at, revoked_at, hash"
)
_SESSION = "id, person_id, created_at, seen_at, expires_at, digest"


def token_of(row: Row) -> AccessToken:
    """Return the token of a row with `TOKEN_COLUMNS`."""
    id_, name, role, scopes, agents, *rest = row[:-1]
    return AccessToken(
        id_, name, role, tuple(orjson.loads(scopes)), tuple(orjson.loads(agents)), *rest
    )


async def token_row(tx: Connection, token_id: str) -> tuple[AccessToken, str] | None:
    """Return a token by its id, with the hash of its secret."""
    row = await tx.one(
        f"SELECT {TOKEN_COLUMNS} FROM tokens WHERE constellation = ? AND id = ?",
        (tx.constellation, token_id),
    )
    return (token_of(row), row[-1]) if row else None


async def active_token(tx: Connection, name: str) -> AccessToken | None:
    """Return the token of a name that is not revoked."""
    row = await tx.one(
        f"SELECT {TOKEN_COLUMNS} FROM tokens"
        " WHERE constellation = ? AND name = ? AND revoked_at IS NULL",
        (tx.constellation, name),
    )
    return token_of(row) if row else None


async def put_token(tx: Connection, token: AccessToken, hash_: str) -> bool:
    """Store a new token; False if another one that is not revoked has its name."""
    changed = await tx.run(
        "INSERT INTO tokens (id, constellation, name, hash, role, scopes, agents, person_id,"
        " created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (
            token.id,
            tx.constellation,
            token.name,
            hash_,
            token.role,
            orjson.dumps(token.scopes).decode(),
            orjson.dumps(token.agents).decode(),
            token.person_id,
            token.created_at_ms,
            token.expires_at_ms,
        ),
    )
    return changed > 0


async def _session_row(tx: Connection, session_id: str) -> tuple[WebSession, bytes] | None:
    row = await tx.one(
        f"SELECT {_SESSION} FROM web_sessions WHERE constellation = ? AND id = ?",
        (tx.constellation, session_id),
    )
    return (WebSession(*row[:-1]), bytes(row[-1])) if row else None


async def end_sessions(tx: Connection, person_id: str) -> int:
    """End all sessions of a user; other processes hear of it at the commit."""
    ended = await tx.run(
        "DELETE FROM web_sessions WHERE constellation = ? AND person_id = ?",
        (tx.constellation, person_id),
    )
    await tx.notify(ACCESS_CHANGED, tx.constellation)
    return ended


async def merge_access(tx: Connection, gone_id: str, kept_id: str, now: int) -> None:
    """Let tokens of a person act as another; the password and the sessions end with the person."""
    # What a person may do does not become what the owner may do.
    change, value = ("revoked_at", now) if kept_id == OWNER else ("person_id", kept_id)
    await tx.run(
        f"UPDATE tokens SET {change} = ?"
        " WHERE constellation = ? AND person_id = ? AND revoked_at IS NULL",
        (value, tx.constellation, gone_id),
    )
    await tx.run(
        "DELETE FROM users WHERE constellation = ? AND person_id = ?", (tx.constellation, gone_id)
    )
    await end_sessions(tx, gone_id)


# -- argon2 ----------------------------------------------------------------------------------------


class _Hasher:
    """Argon2 with some parameters, in threads, a few at a time."""

    def __init__(self, *, time_cost: int, memory_cost: int) -> None:
        self._time_cost = time_cost
        self._memory_cost = memory_cost
        self._free = asyncio.Semaphore(_AT_ONCE)

    @functools.cached_property
    def _argon2(self) -> Any:
        from argon2 import PasswordHasher

        return PasswordHasher(self._time_cost, self._memory_cost, parallelism=1)

    @functools.cached_property
    def _of_nothing(self) -> str:
        """A hash that no secret has, to be compared with where there is none."""
        return self._argon2.hash(secrets.token_hex())

    async def hash(self, secret: str) -> str:
        """Return what is stored of a secret."""
        async with self._free:
            return await asyncio.to_thread(lambda: self._argon2.hash(secret))

    async def matches(self, stored: str | None, secret: str) -> bool:
        """Tell whether a secret is the one that is stored; without one, this takes as long."""
        async with self._free:
            return await asyncio.to_thread(self._matches, stored, secret)

    def _matches(self, stored: str | None, secret: str) -> bool:
        from argon2.exceptions import InvalidHashError, VerificationError

        instead = self._of_nothing
        try:
            return self._argon2.verify(stored or instead, secret) and stored is not None
        except (InvalidHashError, VerificationError):
            return False


# -- throttling ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Attempts:
    """What was tried from an address, or for a token or a user."""

    failures: int = 0
    under_way: int = 0
    until: float = 0.0
    """When the next attempt is heard."""
    last: float = 0.0


class Throttle:
    """Lets fewer attempts pass the more of them failed: each failure doubles the delay."""

    FREE = 10
    """Failures before the first delay."""
    LONGEST = 300.0
    """Seconds that a delay takes at most."""
    FORGOTTEN_AFTER = 3_600.0
    MAX_KEYS = 10_000

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Make it; `monotonic` tells the time in seconds."""
        self._monotonic = monotonic
        self._attempts: dict[str, OrderedDict[str, _Attempts]] = {}
        """By what they are for (an address, a token, a user): many of one push out no other."""

    def __len__(self) -> int:
        """Return how many addresses, tokens and users are remembered."""
        return sum(map(len, self._attempts.values()))

    def begin(self, keys: Sequence[str]) -> None:
        """Note an attempt for all keys, or raise `TooManyAttempts` if one has to wait."""
        now = self._monotonic()
        # What is refused leaves nothing behind, or refused attempts would push out the others.
        found = [known for key in keys if (known := self._known(key, now)) is not None]
        wait = max((attempts.until - now for attempts in found), default=0.0)
        # Of attempts that are made at the same time, no more pass than one after the other.
        if any(one.under_way and one.failures + one.under_way >= self.FREE for one in found):
            wait = max(wait, 1.0)
        if wait > 0:
            raise TooManyAttempts(
                "There were too many wrong tokens or passwords from this address or for this name. "
                f"Try again in {exact_duration(math.ceil(wait))}. Nothing was checked.",
                retry_after=wait,
            )
        for key in keys:
            self._of(key, now).under_way += 1

    def end(self, keys: Sequence[str], *, failed: bool) -> bool:
        """Note how an attempt went; return whether it is the first that brings a delay."""
        now, first = self._monotonic(), False
        for key in keys:
            attempts = self._of(key, now)
            attempts.under_way = max(0, attempts.under_way - 1)
            if failed:
                attempts.failures += 1
                attempts.last = now
                over = attempts.failures - self.FREE
                if over >= 0:
                    attempts.until = now + min(2.0 ** min(over, 30), self.LONGEST)
                    first = first or over == 0
            elif not attempts.failures and not attempts.under_way:
                del self._table(key)[key]  # nothing is to be remembered of it
        return first

    def _table(self, key: str) -> OrderedDict[str, _Attempts]:
        return self._attempts.setdefault(key.partition(":")[0], OrderedDict())

    def _known(self, key: str, now: float) -> _Attempts | None:
        """Return what was tried, unless it is so long ago that it does not count any more."""
        known = self._table(key).get(key)
        if known is None or known.under_way or now - known.last <= self.FORGOTTEN_AFTER:
            return known
        return None

    def _of(self, key: str, now: float) -> _Attempts:
        """Return what was tried, or begin to remember it."""
        table, attempts = self._table(key), self._known(key, now) or _Attempts(last=now)
        table[key] = attempts
        table.move_to_end(key)
        if len(table) > self.MAX_KEYS:
            del table[self._least(table, key, now)]
        return attempts

    def _least(self, table: OrderedDict[str, _Attempts], new: str, now: float) -> str:
        """Return what can best be forgotten: the oldest that has no delay yet, or none any more."""

        def oldest(most_failures: float, until: float) -> str | None:
            for key, one in table.items():
                is_idle = not one.under_way and one.until <= until
                if key != new and is_idle and one.failures < most_failures:
                    return key
            return None

        least = oldest(self.FREE, now) or oldest(math.inf, now) or oldest(math.inf, math.inf)
        return least or next(iter(table))


def client_keys(client: str) -> list[str]:
    """Return what counts as one address: whoever has one address of IPv6 has 2⁶⁴ of them."""
    if not client:
        return []
    try:
        address = ipaddress.ip_address(client.partition("%")[0])
    except ValueError:
        return [f"client:{client[:64]}"]
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return [f"client:{address.ipv4_mapped}"]
        return [f"client:{ipaddress.ip_network((address, 64), strict=False)}"]
    return [f"client:{address}"]


# -- authentication --------------------------------------------------------------------------------


class Credential:
    """A secret that was checked: the token or the session of the web page, and who acts with it."""

    __slots__ = ("fresh_until", "home", "noted_at_ms", "session", "stored", "token")

    def __init__(
        self,
        token: AccessToken | WebSession,
        session: Session,
        stored: str | bytes,
        fresh_until: float,
        noted_at_ms: int,
    ) -> None:
        """Make it.

        Args:
            token: Which token or session of the web page it is.
            session: Who acts with it, and what they may see and do.
            stored: What the store has of the secret.
            fresh_until: When it has to be read again.
            noted_at_ms: When it was last noted that it is used.
        """
        self.token = token
        self.session = session
        self.stored = stored
        self.fresh_until = fresh_until
        self.noted_at_ms = noted_at_ms
        self.home: Any = None
        """The home as it may be used with this; made by whoever makes homes."""

    def ends_at(self) -> int | None:
        """Return when it is not valid any more, in milliseconds."""
        if isinstance(self.token, WebSession):
            return min(self.token.expires_at_ms, self.noted_at_ms + SESSION_IDLE)
        return self.token.expires_at_ms


_Found = tuple[AccessToken | WebSession, str | bytes, Person | None, frozenset[str]]
"""A token or a session, its hash, who has it, and the groups that exist for it."""
_INVALID = (
    "The token is not valid: it is unknown, or was revoked. "
    '"asterism token create" makes one. Nothing was done.'
)
_NO_SESSION = "The session has ended, or is not known. Log in again. Nothing was done."
_WRONG = "The name or the password is not right. Nothing was done."


class _Ended(NotAuthenticated):
    """The secret is right, and what it stands for is not valid any more."""


class Access:
    """Finds out who comes with a secret.

    A token is checked with argon2 once. After that, a SHA-256 of it is kept in memory with what the
    store says of the token, which is read again after at most two seconds, and at once when a
    process announces a change.
    """

    def __init__(
        self,
        session: Session,
        throttle: Throttle | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make it for the owner's session; `throttle` is that of the server, if it has several."""
        self._session = session
        self._system = changed_record(session, actor=Actor(SYSTEM, SYSTEM, SYSTEM))
        """For events about somebody of whom it is not known yet who they are."""
        self._monotonic = monotonic
        self.throttle = throttle or Throttle(monotonic)
        self.tokens = _Hasher(time_cost=1, memory_cost=8_192)
        """For random secrets of 256 bits, which nobody can guess."""
        self.passwords = _Hasher(time_cost=2, memory_cost=19_456)
        self._known: OrderedDict[bytes, Credential] = OrderedDict()
        self._ended: OrderedDict[bytes, NotAuthenticated] = OrderedDict()
        """Right secrets that are not valid any more, which are not checked again."""
        self._checking: dict[bytes, asyncio.Task[Credential]] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._changes = 0
        self._listening: asyncio.Task[None] | None = None

    # -- life ----------------------------------------------------------------------------------

    def changed(self, constellation: str | None = None) -> None:
        """Read everything again before it is relied upon."""
        if constellation in (None, self._session.database.constellation):
            self._changes += 1
            for credential in self._known.values():
                credential.fresh_until = 0.0

    async def _listen(self) -> None:
        """Hear of changes that other processes make, from the first use on."""
        if self._listening is None:
            database = self._session.database
            self._listening = asyncio.ensure_future(
                database.listen(ACCESS_CHANGED, self.changed, missed=self.changed)
            )
        try:
            await asyncio.shield(self._listening)
        except AsterismError:
            self._listening = None
            raise

    async def close(self) -> None:
        """Wait until all uses are noted."""
        await asyncio.gather(*self._checking.values(), *self._writing, return_exceptions=True)

    # -- tokens and sessions -------------------------------------------------------------------

    async def of_token(self, secret: str, client: str = "") -> Credential:
        """Return what the secret of a token stands for; raise `NotAuthenticated`."""
        return await self._of(secret, client, b"token", self._check_token)

    async def of_session(self, secret: str, client: str = "") -> Credential:
        """Return what the secret of a session of the web page stands for."""
        return await self._of(secret, client, b"session", self._check_session)

    async def _of(
        self,
        secret: str,
        client: str,
        kind: bytes,
        check: Callable[[str, str, str], Awaitable[Credential]],
    ) -> Credential:
        match = SECRET_FORM.fullmatch(secret)
        if match is None:
            keys = client_keys(client)
            self.throttle.begin(keys)
            await self._failed(keys, client)
            raise NotAuthenticated(_INVALID if kind == b"token" else _NO_SESSION)
        key = kind + sha256(secret.encode()).digest()
        known = self._known.get(key)
        if known is None:
            if (ended := self._ended.get(key)) is not None:
                raise NotAuthenticated(ended.reason)
            stored_id = f"{kind.decode()}_{match[1]}"
            known = await self._checked(key, lambda: check(secret, stored_id, client))
        elif known.fresh_until <= self._monotonic():
            known = await self._read_again(key, known)
        now = self._session.clock()
        end = known.ends_at()
        if end is not None and end <= now:
            raise self._end(key, _expired(known.token))
        if now - known.noted_at_ms >= _NOTED_EVERY:
            self._note_use(known, now)
        return known

    async def _checked(self, key: bytes, check: Callable[[], Awaitable[Credential]]) -> Credential:
        """Check a secret once, however many requests come with it at the same time."""

        async def work() -> Credential:
            try:
                # A change that comes after this finds it among what is known.
                credential = self._known[key] = await check()
            except _Ended as error:
                raise self._end(key, error) from None
            finally:
                del self._checking[key]
            while len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
            return credential

        task = self._checking.get(key)
        if task is None:
            task = self._checking[key] = asyncio.create_task(work())
            # Nobody may be left to hear how it went.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    def _end(self, key: bytes, error: NotAuthenticated) -> NotAuthenticated:
        """Remember that a right secret is not valid any more; return the error to raise."""
        self._known.pop(key, None)
        self._ended[key] = error
        while len(self._ended) > _MAX_KNOWN:
            self._ended.popitem(last=False)
        return NotAuthenticated(error.reason)

    async def _check_token(self, secret: str, token_id: str, client: str) -> Credential:
        await self._listen()
        keys = [*client_keys(client), f"token:{token_id}"]
        self.throttle.begin(keys)
        changes, found, right = self._changes, None, None
        try:
            found = await self._session.database.read(lambda tx: _find_token(tx, token_id))
            right = await self.tokens.matches(str(found[1]) if found else None, secret)
        finally:
            if right is not False:
                self.throttle.end(keys, failed=False)
        if not right or found is None:
            await self._failed(keys, client)
            raise NotAuthenticated(_INVALID)
        return self._admit(found, changes)

    async def _check_session(self, secret: str, session_id: str, client: str) -> Credential:
        await self._listen()
        keys = client_keys(client)
        self.throttle.begin(keys)
        changes, found, right = self._changes, None, None
        digest = sha256(secret.encode()).digest()
        try:
            found = await self._session.database.read(lambda tx: _find_session(tx, session_id))
            stored = found[1] if found is not None else b""
            # An old cookie is nobody's attempt to get in; a wrong secret is.
            same = isinstance(stored, bytes) and hmac.compare_digest(stored, digest)
            right = same if found is not None else None
        finally:
            if right is not False:
                self.throttle.end(keys, failed=False)
        if found is None or not right:
            if right is False:
                await self._failed(keys, client)
            raise NotAuthenticated(_NO_SESSION)
        return self._admit(found, changes)

    async def _failed(self, keys: Sequence[str], client: str) -> None:
        """Note a wrong secret; the first that brings a delay is told in the audit log."""
        if self.throttle.end(keys, failed=True):
            await self._session.database.write(
                lambda tx: note(tx, self._system, "access.throttled", by="http", client=client)
            )

    async def _read_again(self, key: bytes, known: Credential) -> Credential:
        changes, token = self._changes, known.token
        find = _find_session if isinstance(token, WebSession) else _find_token
        found = await self._session.database.read(lambda tx: find(tx, token.id))
        try:
            if found is None or found[1] != known.stored:
                raise _Ended(_INVALID if find is _find_token else _NO_SESSION)
            new = self._admit(found, changes)
        except _Ended as error:
            raise self._end(key, error) from None
        new.noted_at_ms = max(new.noted_at_ms, known.noted_at_ms)
        if new.session == known.session:
            # The home that was made for it stays, with all that it has loaded.
            known.token, known.fresh_until = new.token, new.fresh_until
            known.noted_at_ms = new.noted_at_ms
            return known
        self._known[key] = new
        return new

    def _admit(self, found: _Found, changes: int) -> Credential:
        """Return what a token stands for that was read from the store."""
        token, stored, person, groups_seen = found
        now = self._session.clock()
        if isinstance(token, AccessToken):
            if token.state(now) != "active":
                raise _expired(token)
            session = session_of_token(self._session, token, person, groups_seen)
            noted = token.used_at_ms or 0
        else:
            session = session_of_user(self._session, token, person)
            noted = token.seen_at_ms
        # What was read before a change that came meanwhile is read again.
        fresh = self._monotonic() + FRESH if changes == self._changes else 0.0
        return Credential(token, session, stored, fresh, noted)

    def _note_use(self, credential: Credential, now: int) -> None:
        """Write that a token is used, at most once a minute; nobody waits for it."""
        credential.noted_at_ms = now
        token = credential.token
        table, column = (
            ("web_sessions", "seen_at") if isinstance(token, WebSession) else ("tokens", "used_at")
        )

        async def write(tx: Connection) -> None:
            await tx.run(
                f"UPDATE {table} SET {column} = ? WHERE constellation = ? AND id = ?"
                f" AND COALESCE({column}, 0) < ?",
                (now, tx.constellation, token.id, now),
            )

        async def noted() -> None:
            try:
                await self._session.database.write(write)
            except AsterismError as error:
                _log.info("that %s is used could not be noted: %s", token.id, error.message)

        task = asyncio.ensure_future(noted())
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    # -- users ---------------------------------------------------------------------------------

    async def log_in(
        self, name: str, password: str, client: str = "", constellation: str | None = None
    ) -> NewWebSession:
        """Begin a session of the web page; raise `NotAuthenticated` if the password is wrong.

        A constellation that does not exist has no users: this is told as a wrong password is.
        """
        check_secret_text("The name", name, MAX_NAME_LENGTH)
        check_secret_text("The password", password, MAX_PASSWORD_LENGTH)
        check_secret_text("The constellation", constellation or "", MAX_NAME_LENGTH + 20)
        name = " ".join(name.split())
        own = database = self._session.database
        if constellation not in (None, own.constellation):
            database = own.for_constellation(constellation or "")
        keys = [*client_keys(client), user_key(database, name)]
        self.throttle.begin(keys)
        found, right = None, None
        try:
            found = await database.read(lambda tx: _find_user(tx, name))
            right = await self.passwords.matches(
                found[1] if found else None, plain_password(password)
            )
        finally:
            self.throttle.end(keys, failed=right is False)
        who = found[0] if found else ""
        if not right:
            # Not the name that was typed, if nobody has it: it may be a password.
            failed = "login.failed"
            await (database if found else own).write(
                lambda tx: note(tx, self._system, failed, by="http", what=who, client=client)
            )
            raise NotAuthenticated(_WRONG)
        return await self._begin_session(database, who, client)

    async def _begin_session(
        self, database: Database, person_id: str, client: str
    ) -> NewWebSession:
        number, secret = new_secret()
        now = self._session.clock()
        begun = WebSession(f"session_{number}", person_id, now, now, now + SESSION_LIFETIME)
        digest = sha256(secret.encode()).digest()

        async def work(tx: Connection) -> None:
            await tx.run(
                "DELETE FROM web_sessions WHERE constellation = ? AND"
                " (expires_at <= ? OR seen_at <= ?)",
                (tx.constellation, now, now - SESSION_IDLE),
            )
            await tx.run(
                f"INSERT INTO web_sessions (constellation, {_SESSION})"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (tx.constellation, begun.id, person_id, now, now, begun.expires_at_ms, digest),
            )
            kind = "login.succeeded"
            await note(tx, self._system, kind, by="http", what=person_id, client=client)

        await database.write(work)
        return NewWebSession(begun, secret, csrf_of(secret))

    async def log_out(self, secret: str) -> None:
        """End the session of the web page that a secret stands for."""
        credential = await self.of_session(secret)
        session, ended = self._session, credential.token

        async def work(tx: Connection) -> None:
            await tx.run(
                "DELETE FROM web_sessions WHERE constellation = ? AND id = ?",
                (tx.constellation, ended.id),
            )
            await tx.notify(ACCESS_CHANGED, tx.constellation)
            await note(tx, self._system, "login.ended", by="http", what=str(ended.person_id))

        await session.database.write(work)
        self.changed()


def user_key(database: Database, name: str) -> str:
    """Return under which key attempts with the name of a user are counted."""
    return f"user:{database.constellation}:{name.casefold()}"


def _expired(token: AccessToken | WebSession) -> _Ended:
    if isinstance(token, WebSession):
        return _Ended(_NO_SESSION)
    if token.revoked_at_ms is not None:
        return _Ended(_INVALID)
    return _Ended(
        f"The token {token.name!r} has expired ({utc_text(token.expires_at_ms or 0)}). "
        '"asterism token create" makes another. Nothing was done.'
    )


async def _find_token(tx: Connection, token_id: str) -> _Found | None:
    found = await token_row(tx, token_id)
    if found is None:
        return None
    person_id, agents = found[0].person_id, found[0].agents
    person = await people.get_person(tx, person_id) if person_id is not None else None
    return *found, person, await groups.groups_among(tx, agents) if agents else frozenset[str]()


async def _find_session(tx: Connection, session_id: str) -> _Found | None:
    found = await _session_row(tx, session_id)
    if found is None:
        return None
    return *found, await people.get_person(tx, found[0].person_id), frozenset[str]()


async def _find_user(tx: Connection, name: str) -> tuple[str, str] | None:
    """Return the id and the stored password of a user by their name."""
    person_id = await people.person_by_name(tx, name)
    if person_id is None and name.casefold() == OWNER:
        person_id = OWNER
    row = await tx.one(
        "SELECT person_id, hash FROM users WHERE constellation = ? AND person_id = ?",
        (tx.constellation, person_id or ""),
    )
    return (row[0], row[1]) if row else None


def acts_of(authority: Authority, roles: Sequence[str] | frozenset[str]) -> frozenset[Act]:
    """Return all that roles allow, as the owner has defined them."""
    allowed = (authority.roles.get(role, ROLES.get(role, frozenset[Act]())) for role in roles)
    return frozenset[Act]().union(*allowed)


def acts_of_person(authority: Authority, person: Person) -> frozenset[Act]:
    """Return all that a person may do: what their roles allow, and to talk if they are known."""
    acts = acts_of(authority, person.roles)
    return acts | {Act.TALK} if person.trust is Trust.KNOWN else acts


def session_of_token(
    session: Session,
    token: AccessToken,
    person: Person | None,
    groups_seen: frozenset[str] = frozenset(),
) -> Session:
    """Return the session of whoever comes with a token.

    A token for some agents may use the groups that have no other members: `groups_seen`.
    """
    acts: frozenset[Act] | None = frozenset(map(Act, token.scopes)) or None
    silent_role: str | None = None
    authority = session.authority()
    if token.role == OWNER:
        actor = THE_OWNER
    elif person is None:
        raise _Ended(_INVALID)
    else:
        # A person may have lost what the role of the token allows.
        allowed = acts_of(authority, [token.role])
        roles = {token.role} if allowed <= acts_of_person(authority, person) else set[str]()
        actor = Actor("person", person.id, person.name, person.trust, frozenset(roles))
        if Act.TALK not in allowed:
            # Persons whom the owner knows may talk to agents; a token says it by its role.
            acts, silent_role = (acts or frozenset(Act)) - {Act.TALK}, token.role
    agents = frozenset(token.agents) or None
    limits = TokenLimits(
        token.id, token.name, acts, agents, groups_seen, token.expires_at_ms, silent_role
    )
    return changed_record(session, actor=actor, limits=limits)


def session_of_user(session: Session, web: WebSession, person: Person | None) -> Session:
    """Return the session of whoever has logged in at the web page."""
    if web.person_id == OWNER:
        actor = THE_OWNER
    elif person is None:
        raise _Ended(_NO_SESSION)
    else:
        actor = Actor("person", person.id, person.name, person.trust, frozenset(person.roles))
    return changed_record(session, actor=actor, limits=TokenLimits(web.id, "web session"))


def check_secret_text(what: str, text: str, most: int) -> None:
    """Raise `InvalidInput`, which does not repeat it, unless a text can be taken as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{what} is not valid Unicode. Nothing was done.") from None
    if len(text) > most or "\0" in text:
        raise InvalidInput(
            f"{what} has {len(text):,} characters, or a NUL among them; up to {most:,} without one "
            "can be taken. Nothing was done."
        )


def plain_password(password: str) -> str:
    """Return a password in one form, however the keyboard composes its letters."""
    return unicodedata.normalize("NFKC", password)


def check_reach(session: Session, role: str, act: str = "give access") -> None:
    """Raise `NotAllowed` if the actor would give or take a role that allows more than their own."""
    if session.is_owner:
        return
    authority = session.authority()
    own = acts_of(authority, session.actor.roles)
    if role == OWNER or not acts_of(authority, [role]) <= own:
        raise NotAllowed(
            f"{session.actor} cannot {act} with the role {role!r}, which allows more than "
            "their own. The owner can. Nothing was changed."
        )


def check_lasting(session: Session, acts: frozenset[Act] | None, what: str) -> None:
    """Raise `NotAllowed` if a token would give access that allows more, or lasts longer, than it.

    Args:
        session: Who acts, and what the token allows.
        acts: What whoever gets the access may do; None: everything.
        what: What would give it, for the error.
    """
    limits = session.limits
    if limits is None:
        return
    more = limits.acts is not None and not (acts is not None and acts <= limits.acts)
    if more or limits.agents is not None:
        reason = "is narrowed, and that could give somebody more than it allows"
    elif limits.expires_at_ms is not None:
        ends = utc_text(limits.expires_at_ms)
        reason = f"expires at {ends}, and that could give somebody access for longer"
    else:
        return
    raise NotAllowed(
        f"The token {limits.name!r} cannot {what}: it {reason}. Use a token for all acts and all "
        "agents that does not expire. Nothing was changed."
    )
