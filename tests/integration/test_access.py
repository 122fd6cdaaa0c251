"""Who is let in: tokens, passwords and sessions, on both engines; what is tried to get in."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism
from asterism.app.authentication import (
    Access,
)
from asterism.errors import (
    AsterismError,
    Conflict,
    InvalidInput,
    NotAllowed,
    NotAuthenticated,
    NotFound,
)
from asterism.testing.clock import ManualClock
from asterism.testing.postgres import postgres_server
from asterism.times import to_datetime
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
async def test_another_process_hears_of_a_revocation(tmp_path: Path):
    with postgres_server().database() as url:
        one = open_home(tmp_path / "a", work=False, settings={"store.url": url})
        two = open_home(tmp_path / "b", work=False, settings={"store.url": url})
        async with one as first, two as second:
            with_seconds(second)  # what is believed for two seconds is believed for ever here
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

            await until(is_refused)

            async def lost_role() -> bool:
                try:
                    await (await second.authenticate(person.secret)).agents.list()
                except NotAllowed:
                    return True
                return False

            await until(lost_role)


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
        assert "twin" not in [person.name for person in await home.people.list()]
