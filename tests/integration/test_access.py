"""Who is let in: tokens, passwords and sessions, on both engines; what is tried to get in."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism
from asterism.app.access import DEFAULT_FILE, ensure_default_token
from asterism.app.authentication import (
    SESSION_IDLE,
    SESSION_LIFETIME,
    Access,
    Throttle,
    csrf_of,
)
from asterism.errors import (
    AsterismError,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    TooManyAttempts,
)
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.times import to_datetime
from asterism.types.agents import Trust
from tests.scenes import open_home, until

PASSWORD = "seven green umbrellas"
LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings that put what is stored into one engine or the other."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store.url": url}


class Seconds:
    """A monotonic clock that stands still."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def with_seconds(home: Asterism) -> Seconds:
    """Let the delays of a home go by a clock of the test."""
    seconds = Seconds()
    home._engine.access = Access(home._engine.session, monotonic=seconds)  # pyright: ignore[reportPrivateUsage] - no other way in
    return seconds


# -- tokens ----------------------------------------------------------------------------------------


async def test_a_token_is_made_used_listed_and_revoked(tmp_path: Path, engine: dict[str, str]):
    async with open_home(tmp_path, work=False, settings=engine) as home:
        await home.agents.create("aria")
        made = await home.tokens.create("ci", scopes=["talk", "read"], agents=["aria"])
        assert made.secret.startswith(f"ast_{made.token.id.removeprefix('token_')}_")
        assert made.secret not in repr(made)
        assert made.token.scopes == ("read", "talk")
        theirs = await home.authenticate(made.secret)
        assert (await theirs.tokens.current()).name == "ci"
        assert await home.authenticate(made.secret) is theirs
        (listed,) = await home.tokens.list()
        assert (listed.id, listed.role) == (made.token.id, "owner")
        revoked = await home.tokens.revoke("ci")
        assert revoked.revoked_at is not None
        with pytest.raises(NotAuthenticated, match="not valid"):
            await home.authenticate(made.secret)
        assert await home.tokens.list() == []
        assert [token.name for token in await home.tokens.list(everything=True)] == ["ci"]
        with pytest.raises(Conflict, match="revoked before"):
            await home.tokens.revoke(made.token.id)
        assert (await home.tokens.create("ci")).token.id != made.token.id
        kinds = [event.kind for event in await home.audit.list()]
        assert kinds.count("token.created") == 2
        assert kinds.count("token.revoked") == 1


async def test_nothing_of_a_secret_is_stored_or_told(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        secret = (await home.tokens.create("ci")).secret
        await home.users.set_password("owner", PASSWORD)
        await home.authenticate(secret)
        events = str(await home.audit.list())
    random = secret.rpartition("_")[2]
    assert random not in events
    contents = {file: file.read_bytes() for file in _files(tmp_path)}
    assert contents
    for file, content in contents.items():
        assert random.encode() not in content, file
        assert PASSWORD.encode() not in content, file


def _files(place: Path) -> list[Path]:
    return [file for file in place.rglob("*") if file.is_file()]


async def test_the_last_use_is_written_once_a_minute(tmp_path: Path, engine: dict[str, str]):
    clock = ManualClock()
    async with open_home(tmp_path, work=False, clock=clock, settings=engine) as home:
        secret = (await home.tokens.create("ci")).secret
        assert (await home.tokens.get("ci")).used_at is None

        async def used_at(expected: int) -> None:
            async def is_so() -> bool:
                return (await home.tokens.get("ci")).used_at_ms == expected

            await until(is_so)

        first = clock()
        await home.authenticate(secret)
        await used_at(first)
        clock.now += 30_000
        await home.authenticate(secret)
        await home.access.close()
        await used_at(first)
        clock.now += 31_000
        await home.authenticate(secret)
        await used_at(first + 61_000)


async def test_a_token_expires_at_once(tmp_path: Path):
    clock = ManualClock()
    async with open_home(tmp_path, work=False, clock=clock) as home:
        end = to_datetime(clock() + 10_000)
        secret = (await home.tokens.create("ci", expires_at=end)).secret
        await home.authenticate(secret)
        clock.now += 9_999
        await home.authenticate(secret)
        clock.now += 1
        for _ in range(30):  # never throttled: it was right
            with pytest.raises(NotAuthenticated, match="'ci' has expired"):
                await home.authenticate(secret, client="10.0.0.1")


@pytest.mark.postgres
async def test_another_process_hears_of_a_revocation_within_two_seconds(tmp_path: Path):
    with postgres_server().database() as url:
        one = open_home(tmp_path / "a", work=False, settings={"store.url": url})
        two = open_home(tmp_path / "b", work=False, settings={"store.url": url})
        async with one as first, two as second:
            made = await first.tokens.create("ci")
            person = await first.tokens.create("anna", role="viewer")
            await second.authenticate(made.secret)
            anna = await second.authenticate(person.secret)
            assert await anna.agents.list() == []
            await first.tokens.revoke("ci")
            await first.people.set_roles("anna", [])

            async def is_refused() -> bool:
                try:
                    await second.authenticate(made.secret)
                except NotAuthenticated:
                    return True
                return False

            await until(is_refused, patience=2.0)

            async def lost_role() -> bool:
                try:
                    await (await second.authenticate(person.secret)).agents.list()
                except NotAllowed:
                    return True
                return False

            await until(lost_role, patience=2.0)


async def test_a_lost_notice_costs_two_seconds(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        seconds = with_seconds(home)
        made = await home.tokens.create("ci")
        await home.authenticate(made.secret)
        await home.database.write(
            lambda tx: tx.run("UPDATE tokens SET revoked_at = 1 WHERE id = ?", (made.token.id,))
        )
        await home.authenticate(made.secret)  # nobody was told
        seconds.now += 2.0
        with pytest.raises(NotAuthenticated):
            await home.authenticate(made.secret)


async def test_a_person_who_loses_a_role_loses_it_with_the_token(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.people.create("anna", roles=["operator"])
        made = await home.tokens.create("phone", role="viewer", person="anna")
        theirs = await home.authenticate(made.secret)
        assert await theirs.agents.list() == []
        await home.people.set_roles("anna", [])

        async def refused() -> bool:
            try:
                await (await home.authenticate(made.secret)).agents.list()
            except NotAllowed:
                return True
            return False

        await until(refused)
        await home.people.create("ben", roles=["viewer"])
        await home.people.merge("ben", "anna")
        merged = await home.tokens.get("phone")
        assert merged.person_id == (await home.people.get("ben")).id


WRONG: list[tuple[dict[str, Any], type[AsterismError], str]] = [
    ({"name": ""}, InvalidInput, "cannot name a token"),
    ({"name": "  "}, InvalidInput, "cannot name a token"),
    ({"name": "a\x1bb"}, InvalidInput, "cannot name a token"),
    ({"name": "a\u202eb"}, InvalidInput, "cannot name a token"),
    ({"name": "n" * 81}, InvalidInput, "cannot name a token"),
    ({"name": "token_1"}, InvalidInput, "cannot name a token"),
    ({"name": "a\0b"}, InvalidInput, "NUL"),
    ({"name": "taken"}, Conflict, "already"),
    ({"role": "boss"}, InvalidInput, "is not a role"),
    ({"scopes": ["all"]}, InvalidInput, "is not a scope"),
    ({"scopes": ["call"]}, InvalidInput, "is not a scope"),
    ({"scopes": "read"}, InvalidInput, r"Sequence\[str\]"),
    ({"agents": ["nobody"]}, NotFound, "nobody"),
    ({"role": "agent-service"}, InvalidInput, "at least one"),
    ({"person": "anna"}, InvalidInput, "acts as the owner"),
    ({"role": "viewer", "person": "owner"}, InvalidInput, "is the owner"),
    ({"role": "viewer", "person": "nobody"}, NotFound, "nobody"),
    ({"role": "admin", "person": "anna"}, InvalidInput, "no role that allows"),
    ({"role": "viewer", "name": "anna"}, Conflict, "--person"),
    ({"role": "viewer", "name": "a|b"}, InvalidInput, "person's name"),
    ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, InvalidInput, "expired already"),
    ({"expires_at": datetime(2100, 1, 1)}, InvalidInput, "zone"),  # noqa: DTZ001 - on purpose
]


async def test_what_no_token_can_be(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.people.create("anna")
        await home.tokens.create("taken")
        for options, kind, words in WRONG:
            wanted: dict[str, Any] = {"name": "new", **options}
            with pytest.raises(kind, match=words):
                await home.tokens.create(**wanted)
        assert [token.name for token in await home.tokens.list()] == ["taken"]
        assert [person.name for person in await home.people.list()] == ["owner", "anna"]


async def test_secrets_that_are_not_right(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        one = (await home.tokens.create("one")).secret
        other = (await home.tokens.create("two")).secret
        _, number, random = other.split("_")
        wrong = [
            "",
            "ast_",
            one[:-1],
            one + "a",
            one + "\n",
            one.upper(),
            one.replace("ast_", "sk_"),
            f"ast_{number}_{one.split('_')[2]}",
            f"ast_{one.split('_')[1]}_{random}",
            f"ast_{'0' * 24}_{random}",
            f"ast_{number}_{random[:20]}\0{random[21:]}",
            "ast_" + "a" * 1_000_000,
            "ast_\ud800",
            "Bearer",
        ]
        for secret in wrong:
            with pytest.raises(NotAuthenticated, match="not valid"):
                await home.authenticate(secret)
        await home.authenticate(one)


async def test_tokens_of_another_constellation_are_unknown(tmp_path: Path, engine: dict[str, str]):
    async with open_home(tmp_path / "a", work=False, settings=engine) as home:
        secret = (await home.tokens.create("ci")).secret
        await home.users.set_password("owner", PASSWORD)
        opened = await home.log_in("owner", PASSWORD)
        other = home.database.for_constellation("other")
        async with open_home(
            tmp_path / "b", work=False, database=_Shared(other), settings={"constellation": "other"}
        ) as elsewhere:
            assert await elsewhere.tokens.list() == []
            assert await elsewhere.users.list() == []
            with pytest.raises(NotAuthenticated):
                await elsewhere.access.of_token(secret)
            there = await elsewhere.authenticate(secret)
            assert (await there.users.current()).constellation == home.database.constellation
            with pytest.raises(NotAuthenticated):
                await elsewhere.log_in("owner", PASSWORD)
            with pytest.raises(NotAuthenticated):
                await elsewhere.access.of_session(opened.secret)
            with pytest.raises(NotFound):
                await elsewhere.tokens.revoke("ci")
            await elsewhere.tokens.create("ci")
        await home.authenticate(secret)


class _Shared:
    """A database that stays open when one of its homes closes."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def for_constellation(self, name: str) -> "_Shared":
        return _Shared(self._database.driver.for_constellation(name))

    async def close(self) -> None:
        """Leave it open."""


async def test_an_unknown_id_takes_as_long_as_a_wrong_secret(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        _, number, random = (await home.tokens.create("ci")).secret.split("_")
        home.access.throttle.FREE = 10_000  # pyright: ignore[reportAttributeAccessIssue] - of this object alone

        async def seconds(form: str, count: int) -> float:
            spent: list[float] = []
            for index in range(count):
                secret = form.format(f"{index:024x}", f"{index:05d}{random[5:]}")
                begun = time.perf_counter()
                with pytest.raises(NotAuthenticated):
                    await home.authenticate(secret)
                spent.append(time.perf_counter() - begun)
            return sorted(spent)[count // 4]

        await seconds("ast_{}_{}", 3)
        unknown = await seconds("ast_{}_{}", 25)
        wrong = await seconds(f"ast_{number}_{{1}}", 25)
    assert 0.5 < unknown / wrong < 2.0, (unknown, wrong)


async def test_nobody_gets_more_by_a_token_than_they_have(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        admin = await home.authenticate((await home.tokens.create("boss", role="admin")).secret)
        with pytest.raises(NotAllowed, match="'owner'"):
            await admin.tokens.create("mine")
        with pytest.raises(NotAllowed, match="'owner'"):
            await admin.users.set_password("owner", PASSWORD)
        await admin.tokens.create("helper", role="operator")
        scoped = await home.authenticate(
            (await home.tokens.create("s", scopes=["read", "govern"], expires_at=LATER)).secret
        )
        with pytest.raises(NotAllowed, match="more than it does itself"):
            await scoped.tokens.create("x", expires_at=LATER)
        with pytest.raises(NotAllowed, match="more than it does itself"):
            await scoped.tokens.create("x", scopes=["delete"], expires_at=LATER)
        with pytest.raises(NotAllowed, match="lasts longer"):
            await scoped.tokens.create("x", scopes=["read"])
        await scoped.tokens.create("x", scopes=["read"], expires_at=LATER - timedelta(days=1))
        with pytest.raises(NotAllowed, match="narrowed"):
            await scoped.users.set_password("owner", PASSWORD)


async def test_a_caller_may_end_its_own_token_whatever_it_allows(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.agents.create("aria")
        made = await home.tokens.create(
            "shop", role="agent-service", agents=["aria"], scopes=["talk"]
        )
        theirs = await home.authenticate(made.secret)
        assert (await theirs.tokens.current()).id == made.token.id
        with pytest.raises(NotAllowed):
            await theirs.tokens.list()
        await theirs.tokens.revoke_current()
        with pytest.raises(NotAuthenticated):
            await home.authenticate(made.secret)
        with pytest.raises(NotFound, match="did not come"):
            await home.tokens.current()


# -- attempts --------------------------------------------------------------------------------------


async def test_wrong_tokens_are_throttled_by_address_and_by_id(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        seconds = with_seconds(home)
        secret = (await home.tokens.create("ci")).secret
        _, number, random = secret.split("_")
        used = (await home.tokens.create("used")).secret
        await home.authenticate(used, client="10.0.0.1")

        async def attempt(index: int, client: str) -> None:
            await home.authenticate(f"ast_{number}_{index:05d}{random[5:]}", client=client)

        for index in range(Throttle.FREE):
            with pytest.raises(NotAuthenticated):
                await attempt(index, "10.0.0.1")
        for client in ("10.0.0.1", "10.0.0.2"):  # the id counts wherever it comes from
            with pytest.raises(TooManyAttempts, match="Nothing was checked") as caught:
                await attempt(99, client)
            assert 0 < caught.value.retry_after <= 1.0
        with pytest.raises(TooManyAttempts):
            await home.authenticate(f"ast_{'1' * 24}_{random}", client="10.0.0.1")
        with pytest.raises(TooManyAttempts):  # also the right one: whether it is right is not told
            await home.authenticate(secret, client="10.0.0.2")
        await home.authenticate(used, client="10.0.0.1")  # was in use before
        waits: list[float] = []
        for index in range(12):
            seconds.now += waits[-1] if waits else 1.0
            with pytest.raises(NotAuthenticated):
                await attempt(100 + index, "10.0.0.1")
            with pytest.raises(TooManyAttempts) as caught:
                await attempt(200 + index, "10.0.0.1")
            waits.append(caught.value.retry_after)
        assert waits[:4] == [2.0, 4.0, 8.0, 16.0]
        assert waits[-1] == Throttle.LONGEST
        seconds.now += Throttle.LONGEST
        await home.authenticate(secret, client="10.0.0.3")
        assert [event.kind for event in await home.audit.list()].count("access.throttled") == 1


async def test_attempts_at_the_same_time_are_not_a_way_around(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        with_seconds(home)
        secret = (await home.tokens.create("ci")).secret
        _, number, random = secret.split("_")
        guesses = [f"ast_{number}_{index:05d}{random[5:]}" for index in range(60)]
        results = await asyncio.gather(
            *(home.authenticate(guess, client="10.0.0.1") for guess in guesses),
            return_exceptions=True,
        )
        checked = [one for one in results if isinstance(one, NotAuthenticated)]
        assert len(checked) == Throttle.FREE
        # The same right secret many times is one attempt.
        many = [home.authenticate(secret, client="10.0.0.9") for _ in range(60)]
        with pytest.raises(TooManyAttempts):
            await asyncio.gather(*many)
        two = (await home.tokens.create("two")).secret
        await asyncio.gather(*(home.authenticate(two, client="10.0.0.9") for _ in range(60)))


def test_what_is_remembered_of_attempts_is_bounded():
    seconds = Seconds()
    throttle = Throttle(seconds)
    for index in range(Throttle.MAX_KEYS + 500):
        throttle.begin([f"client:{index}"])
        throttle.end([f"client:{index}"], failed=True)
    assert len(throttle) == Throttle.MAX_KEYS


async def test_addresses_of_one_network_count_together(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        with_seconds(home)
        for index in range(Throttle.FREE):
            with pytest.raises(NotAuthenticated):
                await home.authenticate("wrong", client=f"2001:db8::{index:x}")
        with pytest.raises(TooManyAttempts):
            await home.authenticate("wrong", client="2001:db8::ffff")
        with pytest.raises(NotAuthenticated):
            await home.authenticate("wrong", client="2001:db8:0:1::1")


# -- users -----------------------------------------------------------------------------------------


async def test_a_user_logs_in_and_out(tmp_path: Path, engine: dict[str, str]):
    async with open_home(tmp_path, work=False, settings=engine) as home:
        await home.people.create("Anna", trust=Trust.KNOWN, roles=["viewer"])
        for who in ("owner", "Anna"):
            await home.users.set_password(who, PASSWORD)
        assert [user.name for user in await home.users.list()] == ["owner", "Anna"]
        begun = await home.log_in("Anna", PASSWORD)
        assert begun.csrf == csrf_of(begun.secret) != begun.secret
        credential = await home.access.of_session(begun.secret)
        theirs = home.home_of(credential)
        assert await theirs.agents.list() == []
        with pytest.raises(NotAllowed):
            await theirs.agents.create("aria")
        with pytest.raises(NotAuthenticated):
            await home.authenticate(begun.secret)  # it is no token
        assert [user.sessions for user in await home.users.list()] == [0, 1]
        await home.log_out(begun.secret)
        with pytest.raises(NotAuthenticated, match="session has ended"):
            await home.access.of_session(begun.secret)
        two = [await home.log_in("Anna", PASSWORD) for _ in range(2)]
        one = home.home_of(await home.access.of_session(two[0].secret))
        assert await one.users.log_out_everywhere() == 2
        for session in two:
            with pytest.raises(NotAuthenticated):
                await home.access.of_session(session.secret)
        kinds = [event.kind for event in await home.audit.list()]
        assert kinds.count("login.succeeded") == 3
        owner = home.home_of(
            await home.access.of_session((await home.log_in("OWNER", PASSWORD)).secret)
        )
        await owner.agents.create("aria")


async def test_a_new_password_ends_the_sessions(tmp_path: Path, engine: dict[str, str]):
    async with open_home(tmp_path, work=False, settings=engine) as home:
        await home.users.set_password("owner", PASSWORD)
        begun = await home.log_in("owner", PASSWORD)
        theirs = home.home_of(await home.access.of_session(begun.secret))
        with pytest.raises(NotAllowed, match="old password"):
            await theirs.users.change_password("wrong" + PASSWORD, "nine grey parasols")
        await theirs.users.change_password(PASSWORD, "nine grey parasols")
        with pytest.raises(NotAuthenticated):
            await home.access.of_session(begun.secret)
        with pytest.raises(NotAuthenticated, match="name or the password"):
            await home.log_in("owner", PASSWORD)
        again = await home.log_in("owner", "nine grey parasols")
        await home.users.remove("owner")
        with pytest.raises(NotAuthenticated):
            await home.access.of_session(again.secret)
        with pytest.raises(NotAuthenticated):
            await home.log_in("owner", "nine grey parasols")
        with pytest.raises(NotFound, match="has no password"):
            await home.users.remove("owner")


async def test_sessions_end_by_rest_and_by_age(tmp_path: Path):
    clock = ManualClock()
    async with open_home(tmp_path, work=False, clock=clock) as home:
        await home.users.set_password("owner", PASSWORD)
        idle, busy = [(await home.log_in("owner", PASSWORD)).secret for _ in range(2)]
        begun = clock()
        while clock() - begun < SESSION_LIFETIME - SESSION_IDLE // 2:
            clock.now += SESSION_IDLE // 2
            await home.access.of_session(busy)
        with pytest.raises(NotAuthenticated):
            await home.access.of_session(idle)
        clock.now += SESSION_IDLE // 2
        with pytest.raises(NotAuthenticated):
            await home.access.of_session(busy)


async def test_passwords_that_are_not_taken(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        await home.people.create("Bartholomew")
        wrong = [
            *("", "short", "ninechars", "p" * 2_000, "aaaaaaaaaaaa", "1234567890", "0987654321"),
            *("password123", "Passwort2024!", "qwertyuiop", "letmein12345", "asterism2026"),
            *("administrator", "Bartholomew1", "bartholomew", "a\0bcdefghijk", "\ud800bcdefghijk"),
        ]
        for password in wrong:
            with pytest.raises(InvalidInput) as caught:
                await home.users.set_password("Bartholomew", password)
            assert len(password) < 5 or password not in caught.value.message
        assert await home.users.list() == []
        with pytest.raises(NotFound):
            await home.users.set_password("nobody", PASSWORD)
        # However a keyboard composes its letters.
        await home.users.set_password("owner", "gru\u0308ne Regenschirme")
        await home.log_in("owner", "gr\u00fcne Regenschirme")


async def test_wrong_passwords_are_throttled_and_told_in_the_audit_log(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        seconds = with_seconds(home)
        await home.users.set_password("owner", PASSWORD)
        for index in range(Throttle.FREE):
            with pytest.raises(NotAuthenticated):
                await home.log_in("Owner", f"{PASSWORD}{index}", client=f"10.0.{index}.1")
        with pytest.raises(TooManyAttempts):
            await home.log_in("owner", PASSWORD, client="10.9.9.9")
        seconds.now += 1.0
        await home.log_in("owner", PASSWORD, client="10.9.9.9")
        with pytest.raises(NotAuthenticated):
            await home.log_in(PASSWORD, "typed in the wrong field", client="10.8.8.8")
        events = await home.audit.list(kind="login.failed")
        assert len(events) == Throttle.FREE + 1
        assert PASSWORD not in str(events)
        assert {event.actor for event in events} == {"system"}


# -- the token of the first start ------------------------------------------------------------------


async def test_the_first_start_makes_a_token_for_this_machine(tmp_path: Path):
    file = tmp_path / DEFAULT_FILE
    async with open_home(tmp_path, work=False) as home:
        assert str(file) in await home.ensure_default_token()
        assert file.stat().st_mode & 0o777 == 0o600
        secret = file.read_text().strip()
        theirs = await home.authenticate(secret)
        await theirs.agents.create("aria")
        assert await home.ensure_default_token() == ""
        await home.tokens.revoke("default")
        assert await home.ensure_default_token() == ""  # the owner wants none
        assert await home.tokens.list() == []
        file.unlink()
        assert await home.ensure_default_token()
        assert file.read_text().strip() != secret
        file.unlink()
        assert "is not in" in await home.ensure_default_token()
        assert not file.exists()


async def test_a_secret_that_was_written_and_never_stored_is_made_anew(tmp_path: Path):
    async with open_home(tmp_path, work=False) as home:
        file = tmp_path / DEFAULT_FILE
        file.write_text(f"ast_{'0' * 24}_{'a' * 43}\n")  # the process died in between
        await ensure_default_token(home.tokens, home._session)  # pyright: ignore[reportPrivateUsage] - as the home does it
        await home.authenticate(file.read_text().strip())
        assert file.stat().st_mode & 0o777 == 0o600
