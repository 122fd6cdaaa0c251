"""Who may use the HTTP API: tokens, users of the web page, and the token of the first start."""

from __future__ import annotations

import os
import re
import shlex
import string
import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from asterism.app.authentication import (
    MAX_NAME_LENGTH,
    MAX_PASSWORD_LENGTH,
    SECRET_FORM,
    SESSION_IDLE,
    TOKEN_COLUMNS,
    Access,
    AccessToken,
    Caller,
    NewToken,
    User,
    active_token,
    acts_of,
    acts_of_person,
    check_lasting,
    check_reach,
    check_secret_text,
    end_sessions,
    new_secret,
    plain_password,
    put_token,
    token_of,
    token_row,
    user_key,
)
from asterism.app.session import (
    ACCESS_CHANGED,
    Session,
    note,
    shorten_text,
    verbs,
)
from asterism.errors import Conflict, InvalidInput, NotAllowed, NotFound
from asterism.memory import people
from asterism.permissions import ROLES, Act
from asterism.private import private, read_regular
from asterism.store.database import Connection
from asterism.times import utc_text
from asterism.types.agents import OWNER, AgentRecord, Person, optional_ms

DEFAULT_NAME = "default"
"""The name of the token that is made at the first start of a server."""
DEFAULT_FILE = "api-token"
"""The file in the data directory that holds the secret of that token."""
WANTED_FILE = f"{DEFAULT_FILE}.wanted"
"""The file that a restore leaves: the secret was not in the backup, and another token is made."""
AGENT_SERVICE = "agent-service"
"""The role of programs that talk to some agents and read what they answer."""
SCOPES = ("read", "talk", "append", "overwrite", "delete", "govern")
"""The acts that a token can be narrowed to."""
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_MIN_PASSWORD_LENGTH = 10


# -- tokens ----------------------------------------------------------------------------------------


@verbs(
    "token",
    create=Act.GOVERN,
    list=Act.GOVERN,
    get=Act.GOVERN,
    revoke=Act.GOVERN,
    current=Act.TALK,
    revoke_current=Act.TALK,
)
class Tokens:
    """Tokens for the HTTP API."""

    def __init__(
        self,
        session: Session,
        access: Access,
        elsewhere: Callable[[str], Awaitable[Tokens]] | None = None,
    ) -> None:
        """Make it; `elsewhere` returns the tokens of another constellation of the server."""
        self._session = session
        self._access = access
        self._elsewhere = elsewhere

    async def create(
        self,
        name: str,
        *,
        role: str = OWNER,
        scopes: Sequence[str] = (),
        agents: Sequence[AgentRecord | str] = (),
        person: str | None = None,
        expires_at: datetime | None = None,
        constellation: str | None = None,
        by: str = "api",
    ) -> NewToken:
        """Make a token; its secret is returned here and nowhere else.

        Args:
            name: What it is called; it must be free.
            role: What it may do: `owner`, or a role such as `viewer`, `operator` or `partner`.
            scopes: The acts it is narrowed to, such as `read` and `talk`; none: no narrowing.
            agents: The agents it is narrowed to, by name or id; others do not exist for it.
            person: As whom it acts, if the role is not `owner`; None: as a new person of its name.
            expires_at: When it ends; None: when it is revoked.
            constellation: Another constellation of the server, which the token is for; only the
                owner of the server's own can make one. None: this one.
            by: What asks for it, such as `api` or `cli`.
        """
        tokens, end = self, optional_ms(expires_at)
        if constellation not in (None, self._session.database.constellation):
            if self._elsewhere is None:
                raise NotAllowed("This home serves no other constellation. Nothing was created.")
            self._check(role, person, agents, _checked_scopes(scopes), end)
            tokens = await self._elsewhere(constellation or "")
        return await tokens._create(  # noqa: SLF001 - of the same class
            name, role, scopes, agents, person, end, by, new_secret()
        )

    async def _create(
        self,
        name: str,
        role: str,
        scopes: Sequence[str],
        agents: Sequence[AgentRecord | str],
        person: str | None,
        end: int | None,
        by: str,
        numbered: tuple[str, str],
    ) -> NewToken:
        session, now = self._session, self._session.clock()
        name, role = _checked_name(name), role.strip().casefold()
        acts = _checked_scopes(scopes)
        self._check(role, person, agents, acts, end)
        number, secret = numbered
        hashed = await self._access.tokens.hash(secret)

        async def work(tx: Connection) -> AccessToken:
            ids = [(await session.agent_in(tx, agent)).id for agent in agents]
            if await active_token(tx, name) is not None:
                raise _taken(name)
            acts_as = None if role == OWNER else await self._person(tx, name, role, person, now)
            token = AccessToken(
                f"token_{number}",
                name,
                role,
                acts,
                tuple(dict.fromkeys(ids)),
                acts_as.id if acts_as is not None else None,
                now,
                end,
            )
            if not await put_token(tx, token, hashed):
                raise _taken(name)
            await note(
                *(tx, session, "token.created"),
                by=by,
                what=name,
                token_id=token.id,
                role=role,
                scopes=[*acts],
                agents=ids,
                person=acts_as.name if acts_as is not None else "",
                expires=end,
            )
            return token

        return NewToken(await session.database.write(work), secret)

    def _check(
        self,
        role: str,
        person: str | None,
        agents: Sequence[AgentRecord | str],
        acts: Sequence[str],
        end: int | None,
    ) -> None:
        """Raise unless a token can be made like this, by whoever acts."""
        session = self._session
        known = {OWNER, *ROLES, *session.authority().roles}
        if role not in known:
            raise InvalidInput(
                f"{shorten_text(role)!r} is not a role. The roles are {', '.join(sorted(known))}. "
                "Nothing was created."
            )
        if role == OWNER and person is not None:
            raise InvalidInput(
                "A token with the role 'owner' acts as the owner, so that no person can be given. "
                "Choose another role, or leave the person out. Nothing was created."
            )
        if role == AGENT_SERVICE and not agents:
            raise InvalidInput(
                f"The role {AGENT_SERVICE!r} is for some agents: name at least one. Nothing was "
                "created."
            )
        if end is not None and end <= session.clock():
            raise InvalidInput(
                f"A token that expires at {utc_text(end)} has expired already. Choose a time to "
                "come. Nothing was created."
            )
        check_reach(session, role)
        limits = session.limits
        if limits is None:
            return
        wanted = frozenset(map(Act, acts)) or frozenset(Act)
        if limits.acts is not None and not wanted <= limits.acts:
            raise NotAllowed(
                f"The token {limits.name!r} cannot make one that allows more than it does itself. "
                "Give scopes that it has. Nothing was created."
            )
        if limits.expires_at_ms is not None and (end is None or end > limits.expires_at_ms):
            raise NotAllowed(
                f"The token {limits.name!r} expires at {utc_text(limits.expires_at_ms)} and cannot "
                "make one that lasts longer. Nothing was created."
            )

    async def _person(
        self, tx: Connection, name: str, role: str, who: str | None, now: int
    ) -> Person:
        """Return the person that a token acts as: one that is known, or a new one of its name."""
        if who is None:
            if await people.person_by_name(tx, name) is not None:
                raise Conflict(
                    f"There is a person named {name!r} already. Say that the token acts as them "
                    "(--person), or choose another name. Nothing was created."
                )
            return await people.create_person(tx, name, now, roles=(role,))
        person = await people.find(tx, who)
        if person.id == OWNER:
            raise InvalidInput(
                f"{person.name} is the owner, and a token with the role {role!r} acts as a person. "
                "Use scopes to narrow a token of the owner. Nothing was created."
            )
        authority = self._session.authority()
        missing = acts_of(authority, [role]) - acts_of_person(authority, person)
        if missing:
            lacks = ", ".join(act.value for act in Act if act in missing)
            raise InvalidInput(
                f"{person.name} has no role that allows {lacks}, as {role!r} does. Give it to them "
                f'with "asterism person roles", or choose another role. Nothing was created.'
            )
        return person

    async def list(self, *, everything: bool = False) -> list[AccessToken]:
        """Return the tokens by name; with `everything`, also those that were revoked."""
        rows = await self._session.database.read(
            lambda tx: tx.all(
                f"SELECT {TOKEN_COLUMNS} FROM tokens WHERE constellation = ?"
                " ORDER BY name, created_at",
                (tx.constellation,),
            )
        )
        tokens = map(token_of, rows)
        return [token for token in tokens if everything or token.revoked_at_ms is None]

    async def get(self, token: str) -> AccessToken:
        """Return a token by its name or id."""
        return await self._session.database.read(lambda tx: _named(tx, token))

    async def revoke(self, token: str, *, by: str = "api") -> AccessToken:
        """Revoke a token by its name or id: from now on it is not valid."""
        return await self._revoke(token, by)

    async def _revoke(self, token: str, by: str, *, is_own: bool = False) -> AccessToken:
        session, now = self._session, self._session.clock()

        async def work(tx: Connection) -> AccessToken:
            found = await _named(tx, token)
            if not is_own:
                check_reach(session, found.role, "revoke a token")
            changed = await tx.run(
                "UPDATE tokens SET revoked_at = ?"
                " WHERE constellation = ? AND id = ? AND revoked_at IS NULL",
                (now, tx.constellation, found.id),
            )
            if not changed:
                raise Conflict(f"The token {found.name!r} was revoked before. Nothing was changed.")
            await tx.notify(ACCESS_CHANGED, tx.constellation)
            told = {"token_id": found.id, "role": found.role}
            await note(tx, session, "token.revoked", by=by, what=found.name, **told)
            return replace(found, revoked_at_ms=now)

        revoked = await session.database.write(work)
        self._access.changed()
        return revoked

    async def current(self) -> AccessToken:
        """Return the token that the caller came with."""
        return await self._session.database.read(lambda tx: _named(tx, self._own()))

    async def revoke_current(self) -> AccessToken:
        """Revoke the token that the caller came with."""
        return await self._revoke(self._own(), "api", is_own=True)

    def _own(self) -> str:
        limits = self._session.limits
        if limits is None or not limits.id.startswith("token_"):
            raise NotFound("You did not come with a token. Nothing was done.")
        return limits.id


async def _named(tx: Connection, token: str) -> AccessToken:
    """Return the token of a name or id; a revoked one by its id alone."""
    token = token.strip()
    found = await active_token(tx, token)
    if found is None and (row := await token_row(tx, token)) is not None:
        found = row[0]
    if found is None:
        raise NotFound(
            f'There is no token {shorten_text(token)!r}. "asterism token list" shows all. Nothing '
            "was changed."
        )
    return found


def _taken(name: str) -> Conflict:
    return Conflict(
        f"There is a token named {name!r} already. Choose another name, or revoke it with "
        f'"asterism token revoke {shlex.quote(name)}". Nothing was created.'
    )


def _checked_name(name: str) -> str:
    name = name.strip()
    if (
        not name
        or len(name) > MAX_NAME_LENGTH
        or any(unicodedata.category(char) in _UNSEEN for char in name)
        or name.startswith("token_")
    ):
        raise InvalidInput(
            f"{shorten_text(name, 40)!r} cannot name a token: a name has 1 to {MAX_NAME_LENGTH} "
            'visible characters and does not begin with "token_". Nothing was created.'
        )
    return name


def _checked_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    words = {scope.strip().casefold() for scope in scopes}
    for word in words:
        if word not in SCOPES:
            raise InvalidInput(
                f"{shorten_text(word)!r} is not a scope. The scopes are {', '.join(SCOPES)}. "
                "Nothing was created."
            )
    return tuple(scope for scope in SCOPES if scope in words)


# -- users -----------------------------------------------------------------------------------------


@verbs(
    "user",
    list=Act.GOVERN,
    set_password=Act.GOVERN,
    remove=Act.GOVERN,
    change_password=Act.TALK,
    current=Act.TALK,
    log_out=Act.TALK,
    log_out_everywhere=Act.TALK,
)
class Users:
    """Users of the web page: the owner and persons who have a password."""

    def __init__(self, session: Session, access: Access) -> None:
        self._session = session
        self._access = access

    async def list(self) -> list[User]:
        """Return everybody who has a password, the owner first."""
        now = self._session.clock()

        async def read(tx: Connection) -> list[User]:
            rows = await tx.all(
                "SELECT u.person_id, u.changed_at, (SELECT COUNT(*) FROM web_sessions s"
                " WHERE s.constellation = u.constellation AND s.person_id = u.person_id"
                " AND s.expires_at > ? AND s.seen_at > ?) FROM users u WHERE u.constellation = ?",
                (now, now - SESSION_IDLE, tx.constellation),
            )
            named = {one.id: one.name for one in await people.list_people(tx)}
            users = [
                User(row[0], named.get(str(row[0]), str(row[0])), row[1], row[2]) for row in rows
            ]
            return sorted(users, key=lambda user: (user.person_id != OWNER, user.name))

        return await self._session.database.read(read)

    async def set_password(self, who: str, password: str, *, by: str = "api") -> User:
        """Set the password of the owner or of a person; their sessions end."""
        session = self._session
        person = await session.database.read(lambda tx: people.find(tx, who))
        self._check_reach(person)
        return await self._set(person, password, by)

    async def _set(self, person: Person, password: str, by: str) -> User:
        session, now = self._session, self._session.clock()
        _check_password(password, person.name)
        hashed = await self._access.passwords.hash(plain_password(password))

        async def work(tx: Connection) -> None:
            await tx.run(
                "INSERT INTO users (constellation, person_id, hash, changed_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (constellation, person_id) DO UPDATE SET hash = excluded.hash,"
                " changed_at = excluded.changed_at",
                (tx.constellation, person.id, hashed, now),
            )
            await end_sessions(tx, person.id)
            await note(tx, session, "user.password-set", by=by, what=person.name, person=person.id)

        await session.database.write(work)
        self._access.changed()
        return User(person.id, person.name, now, 0)

    async def remove(self, who: str, *, by: str = "api") -> None:
        """Take the password of a user away; they cannot log in any more, and their sessions end."""
        session = self._session

        async def work(tx: Connection) -> None:
            person = await people.find(tx, who)
            self._check_reach(person, "take access away from somebody")
            removed = await tx.run(
                "DELETE FROM users WHERE constellation = ? AND person_id = ?",
                (tx.constellation, person.id),
            )
            if not removed:
                raise NotFound(
                    f'{person.name} has no password. "asterism user list" shows who has. Nothing '
                    "was changed."
                )
            await end_sessions(tx, person.id)
            await note(tx, session, "user.removed", by=by, what=person.name, person=person.id)

        await session.database.write(work)
        self._access.changed()

    def _check_reach(self, person: Person, act: str = "give access") -> None:
        """Raise `NotAllowed` if whoever acts would get more by this user than they have."""
        check_lasting(self._session, None, "set or take away a password")
        for role in (OWNER,) if person.id == OWNER else person.roles:
            check_reach(self._session, role, act)

    async def change_password(self, old: str, new: str) -> User:
        """Change the caller's own password; all their sessions end."""
        access, person_id = self._access, self._session.actor.id
        check_secret_text("The password", old, MAX_PASSWORD_LENGTH)
        person = await self._session.database.read(lambda tx: people.find(tx, person_id))
        keys = [user_key(self._session.database, person.name)]
        access.throttle.begin(keys)
        row, right = None, False
        try:
            row = await self._session.database.read(
                lambda tx: tx.one(
                    "SELECT hash FROM users WHERE constellation = ? AND person_id = ?",
                    (tx.constellation, person_id),
                )
            )
            right = await access.passwords.matches(row[0] if row else None, plain_password(old))
        finally:
            access.throttle.end(keys, failed=row is not None and not right)
        if not right:
            raise NotAllowed("The old password is not right. Nothing was changed.")
        return await self._set(person, new, "api")

    async def current(self) -> Caller:
        """Return who the caller is, and what they came with."""
        session, actor = self._session, self._session.actor
        limits = session.limits
        name = actor.name
        if actor.kind == OWNER:
            owner = await session.database.read(lambda tx: people.get_person(tx, OWNER))
            name = owner.name if owner is not None else OWNER
        return Caller(
            actor.id,
            name,
            (OWNER,) if actor.kind == OWNER else tuple(sorted(actor.roles)),
            session.database.constellation,
            limits.id if limits is not None else None,
        )

    async def log_out(self) -> None:
        """End the session of the web page that the caller came with."""
        limits = self._session.limits
        if limits is None or not limits.id.startswith("session_"):
            raise NotFound(
                "You did not come with a session of the web page, but with a token, which stays "
                'valid. "asterism token revoke" ends one. Nothing was changed.'
            )
        session, session_id = self._session, limits.id

        async def work(tx: Connection) -> None:
            await tx.run(
                "DELETE FROM web_sessions WHERE constellation = ? AND id = ?",
                (tx.constellation, session_id),
            )
            await tx.notify(ACCESS_CHANGED, tx.constellation)
            await note(tx, session, "login.ended", by="http", what=session.actor.id)

        await session.database.write(work)
        self._access.changed()

    async def log_out_everywhere(self) -> int:
        """End all sessions of the caller; return how many there were."""
        session, person_id = self._session, self._session.actor.id

        async def work(tx: Connection) -> int:
            ended = await end_sessions(tx, person_id)
            await note(tx, session, "login.ended", by="api", what=person_id, count=ended)
            return ended

        ended = await session.database.write(work)
        self._access.changed()
        return ended


_OBVIOUS = re.compile(
    r"(?:password|passwort|passw0rd|p@ssw0rd|p@ssword|passphrase|kennwort|geheim|secret|letmein|"
    r"welcome|willkommen|qwerty|qwertz|azerty|asdfgh|iloveyou|administrator|admin|asterism|root|"
    r"master|monkey|dragon|football|baseball|superman|batman|trustno|abc|changeme|default|hallo|"
    r"hello|test|login|user|owner|[\d\W_])+",
    re.IGNORECASE,
)
_RUNS = (
    "01234567890123456789",
    "98765432109876543210",
    "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz",
    "qwertyuiopasdfghjklzxcvbnm",
    "qwertzuiopasdfghjklyxcvbnm",
    "azertyuiopqsdfghjklmwxcvbn",
    "1q2w3e4r5t6y7u8i9o0p",
    "1qaz2wsx3edc4rfv5tgb6yhn7ujm",
)
_FEW_SIGNS = 5


def _check_password(password: str, name: str) -> None:
    check_secret_text("The password", password, MAX_PASSWORD_LENGTH)
    plain = plain_password(password)
    if len(plain) < _MIN_PASSWORD_LENGTH:
        raise InvalidInput(
            f"The password has {len(plain)} characters; at least {_MIN_PASSWORD_LENGTH} are "
            "needed. Several words that belong to no saying are good. Nothing was changed."
        )
    low = plain.casefold()
    obvious = (
        len(set(low)) < _FEW_SIGNS
        or any(low in run for run in _RUNS)
        or name.casefold() in (low, low.rstrip(string.digits + string.punctuation))
        or _OBVIOUS.fullmatch(low) is not None
    )
    if obvious:
        raise InvalidInput(
            "The password is one of those that are tried first. Use several words that belong to "
            "no saying, or a password manager. Nothing was changed."
        )


# -- the token of the first start ------------------------------------------------------------------


async def ensure_default_token(tokens: Tokens, session: Session) -> str:
    """Make the token `default` at the first start of a server, and write it to `api-token`.

    Returns:
        What a person should know, or nothing.
    """
    # Of several servers that start at once, one makes it.
    async with session.database.alone("default token"):
        return await _ensure_default_token(tokens, session)


async def _ensure_default_token(tokens: Tokens, session: Session) -> str:
    file, wanted = session.data / DEFAULT_FILE, session.data / WANTED_FILE
    written = _read_default(file)
    match = SECRET_FORM.fullmatch(written) if written is not None else None
    known, active = await session.database.read(
        lambda tx: _default_state(tx, f"token_{match[1]}" if match else "")
    )
    if written is not None and (known or match is None):
        wanted.unlink(missing_ok=True)
        return ""  # in use, or revoked, or put there by the owner
    if active and not wanted.exists():
        return (
            f"The secret of the token {DEFAULT_NAME!r} is not in {file}. "
            '"asterism token create NAME" makes another token.'
        )
    name = await session.database.read(_free_name)
    number, secret = new_secret()
    # Written first: a token that is in the store and nowhere else could not be used by anybody.
    try:
        _write_default(file, secret)
    except OSError as error:
        return f"{file} cannot be written ({error.strerror}), so that no token was made."
    await tokens._create(name, OWNER, (), (), None, None, "server", (number, secret))  # pyright: ignore[reportPrivateUsage] - of the same module  # noqa: SLF001
    wanted.unlink(missing_ok=True)
    return f"The token for programs on this machine is in {file}."


async def _free_name(tx: Connection) -> str:
    """Return the name of the token of a first start; one with a number if it is taken."""
    name, number = DEFAULT_NAME, 1
    while await active_token(tx, name) is not None:
        number += 1
        name = f"{DEFAULT_NAME}-{number}"
    return name


async def _default_state(tx: Connection, token_id: str) -> tuple[bool, bool]:
    known = await token_row(tx, token_id) is not None
    return known, await active_token(tx, DEFAULT_NAME) is not None


def _read_default(file: Path) -> str | None:
    try:
        return read_regular(file, 4_096).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def _write_default(file: Path, secret: str) -> None:
    """Write a secret whole or not at all, for this user alone."""
    new = file.with_name(f"{file.name}.new")
    new.unlink(missing_ok=True)
    with open(new, "xb", opener=private) as output:
        output.write(f"{secret}\n".encode())
        output.flush()
        os.fsync(output.fileno())
    new.replace(file)
