"""People in the store: accounts, rooms, who is present, and one person made of two."""

import asyncio
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from asterism.errors import Conflict, InvalidInput, NotFound
from asterism.memory import people
from asterism.store.database import Connection, Database
from asterism.types.agents import OWNER, OWNER_ALONE, Account, Audience, Participants, Person, Trust
from tests.conformance.memory_scene import ENGINES, HOME, NOW, opened, put_agent, put_turn

ANNA = Account("discord", "anna#1")
BEN = Account("discord", "ben#2")


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


async def meet(database: Database, account: Account | None, room: str | None, *present: Account):
    return await database.write(lambda tx: people.meet(tx, account, room, present, NOW))


async def participants_of(database: Database, text: str | None) -> Participants:
    return await database.read(lambda tx: people.read_participants(tx, text))


async def create(database: Database, name: str, **given: object) -> Person:
    return await database.write(
        lambda tx: people.create_person(tx, name, NOW, **given)  # pyright: ignore[reportArgumentType] - whatever a test gives
    )


@pytest.mark.promise("M9")
async def test_an_unknown_sender_is_a_new_stranger_and_the_same_one_again(database: Database):
    first = await database.write(lambda tx: people.person_for(tx, ANNA, NOW))
    again = await database.write(lambda tx: people.person_for(tx, ANNA, NOW + 1))
    elsewhere = database.for_constellation("elsewhere")
    other = await elsewhere.write(lambda tx: people.person_for(tx, ANNA, NOW))
    assert (first.name, first.trust, first.roles) == ("discord:anna#1", Trust.STRANGER, ())
    assert again == first
    assert other.id != first.id


async def test_senders_that_arrive_at_once_are_one_person(database: Database):
    found = await asyncio.gather(
        *(database.write(lambda tx: people.person_for(tx, ANNA, NOW)) for _ in range(8))
    )
    assert len({one.id for one in found}) == 1
    everyone = await database.read(people.list_people)
    assert [one.name for one in everyone] == ["owner", "discord:anna#1"]


async def test_senders_whose_names_would_be_the_same_stay_apart(database: Database):
    odd = [
        Account("web", "a|b"),
        Account("web", "a&b"),
        Account("web", "a\x00b"),
        Account("web", "a_b"),
    ]
    for account in odd:
        await meet(database, account, None)
    everyone = await database.read(people.list_people)
    assert len({one.name for one in everyone}) == len({one.id for one in everyone}) == 5


async def test_the_owner_alone_is_nobody_in_particular(database: Database):
    assert await meet(database, None, None) is None
    await database.write(lambda tx: people.link(tx, ANNA, OWNER))
    assert await meet(database, ANNA, None) is None
    assert await participants_of(database, None) == OWNER_ALONE


@pytest.mark.promise("M9")
async def test_in_a_room_everybody_who_is_known_to_be_in_it_is_present(database: Database):
    await meet(database, BEN, "discord:home")
    told = await meet(database, ANNA, "discord:home")
    participants = await participants_of(database, told)
    anna = await database.read(lambda tx: people.find(tx, "discord:anna#1"))
    ben = await database.read(lambda tx: people.find(tx, "discord:ben#2"))
    assert participants.room == "discord:home"
    assert {one.person_id for one in participants.people} == {anna.id, ben.id}
    assert participants.can_see(Audience.read("room:discord:home"))
    assert not participants.can_see(Audience.read(f"person:{anna.id}"))
    alone = await participants_of(database, await meet(database, ANNA, None))
    assert alone.can_see(Audience.read("room:discord:home"))
    assert alone.can_see(Audience.read(f"person:{anna.id}"))
    left = await database.write(lambda tx: people.leave_room(tx, "discord:home", ben.id))
    assert left
    after = await participants_of(database, told)
    assert [one.person_id for one in after.people] == [anna.id]


async def test_the_owner_in_a_room_is_not_alone(database: Database):
    await meet(database, BEN, "discord:home")
    participants = await participants_of(database, await meet(database, None, "discord:home"))
    assert not participants.owner_alone
    assert not participants.can_see(Audience.read("owner"))


async def test_who_is_present_besides_the_speaker_counts(database: Database):
    participants = await participants_of(database, await meet(database, None, None, BEN))
    assert len(participants.people) == 2
    assert not participants.can_see(Audience.read("owner"))


@pytest.mark.promise("M9")
async def test_a_rooms_name_cannot_widen_an_audience(database: Database):
    stranger = await participants_of(database, await meet(database, BEN, None))
    for name in ("x|public", "x&public", " x ", "x%7C;public", "a\x00b", "x\u3000"):
        participants = await participants_of(
            database, await meet(database, ANNA, f"discord:{name}")
        )
        audience = Audience.read(str(participants.audience))
        assert audience == participants.audience
        assert [len(clause) for clause in audience.clauses] == [1]
        assert not stranger.can_see(audience)


def test_rooms_with_different_names_are_different_rooms():
    names = ["a|b", "a%7C;b", "a&b", "a b", " a b", "a%b", "a;b", "a%25;b"]
    assert len({people.room_word(name) for name in names}) == len(names)


async def test_somebody_who_is_gone_is_a_stranger_without_roles(database: Database):
    anna = await create(database, "Anna", roles=["family"])
    text = orjson.dumps({"persons": [anna.id], "room": None}).decode()
    assert (await participants_of(database, text)).can_see(Audience.read("role:family"))
    await database.write(
        lambda tx: tx.run("DELETE FROM persons WHERE constellation = ? AND id = ?", (HOME, anna.id))
    )
    participants = await participants_of(database, text)
    assert not participants.can_see(Audience.read("role:family"))
    assert participants.can_see(Audience.read("public"))


async def test_nobody_at_all_is_a_stranger_not_the_owner(database: Database):
    participants = await database.read(lambda tx: people.participants(tx, [], "discord:empty"))
    assert not participants.can_see(Audience.read("owner"))
    nobody = await database.read(lambda tx: people.participants(tx, [], None))
    assert not nobody.can_see(Audience.read("owner"))


# -- what an owner says of them --------------------------------------------------------------------


async def test_an_owner_introduces_renames_trusts_and_links_people(database: Database):
    anna = await create(database, "  Anna   Berg ", roles=["Family", "family"])
    assert (anna.name, anna.trust, anna.roles) == ("Anna Berg", Trust.KNOWN, ("family",))

    async def change(tx: Connection) -> Person:
        await people.rename(tx, anna.id, "Anna")
        await people.set_trust(tx, anna.id, Trust.STRANGER)
        await people.set_roles(tx, anna.id, ["work"])
        return await people.link(tx, ANNA, anna.id)

    await database.write(change)
    found = await database.read(lambda tx: people.find(tx, "anna"))
    assert found == Person(anna.id, "Anna", Trust.STRANGER, ("work",), (ANNA,), NOW)
    assert await database.read(lambda tx: people.find(tx, "discord:anna#1")) == found
    assert await database.read(lambda tx: people.find(tx, anna.id)) == found
    assert (await database.write(lambda tx: people.person_for(tx, ANNA, NOW))) == found
    await database.write(lambda tx: people.unlink(tx, ANNA))
    stranger = await database.write(lambda tx: people.person_for(tx, ANNA, NOW))
    assert stranger.id != anna.id


async def test_the_owner_can_be_given_a_name_and_nothing_else(database: Database):
    await database.write(lambda tx: people.rename(tx, OWNER, "Sam"))
    await database.write(lambda tx: people.rename(tx, OWNER, "Samira"))
    found = await database.read(lambda tx: people.find(tx, "samira"))
    assert (found.id, found.trust, found.roles) == (OWNER, Trust.OWNER, (OWNER,))
    with pytest.raises(InvalidInput, match="owner cannot be"):
        await database.write(lambda tx: people.set_roles(tx, OWNER, ["x"]))
    with pytest.raises(InvalidInput, match="owner cannot be"):
        await database.write(lambda tx: people.set_trust(tx, OWNER, Trust.KNOWN))


async def test_a_person_that_is_not_there_is_named_with_the_nearest(database: Database):
    await create(database, "Anna")
    with pytest.raises(NotFound, match=r"No person is called 'Ana'. Did you mean 'Anna'\?"):
        await database.read(lambda tx: people.find(tx, "Ana"))
    with pytest.raises(NotFound, match="person list"):
        await database.read(lambda tx: people.find(tx, "zzz"))


async def test_a_name_that_cannot_be_is_refused(database: Database):
    for name in ("", "owner", "Public", "a|b", "a&b", "person_1", "x" * 81, "a\x00"):
        with pytest.raises(InvalidInput, match="cannot be a person's name"):
            await create(database, name)
    assert [one.id for one in await database.read(people.list_people)] == [OWNER]


async def test_bad_roles_trust_levels_accounts_and_taken_names_are_refused(database: Database):
    anna = await create(database, "Anna")
    await create(database, "Ben")
    with pytest.raises(InvalidInput, match="cannot be a role"):
        await database.write(lambda tx: people.set_roles(tx, anna.id, ["Owner"]))
    with pytest.raises(InvalidInput, match="cannot be a role"):
        await database.write(lambda tx: people.set_roles(tx, anna.id, ["a|public"]))
    with pytest.raises(InvalidInput, match="too many"):
        await database.write(lambda tx: people.set_roles(tx, anna.id, [str(n) for n in range(51)]))
    with pytest.raises(InvalidInput, match="known or a stranger"):
        await database.write(lambda tx: people.set_trust(tx, anna.id, Trust.OWNER))
    with pytest.raises(InvalidInput, match="not a valid account"):
        await database.write(lambda tx: people.link(tx, Account("discord", " "), anna.id))
    with pytest.raises(Conflict, match="called 'Ben' already"):
        await database.write(lambda tx: people.rename(tx, anna.id, "Ben"))
    with pytest.raises(Conflict, match="called 'Ben' already"):
        await create(database, "Ben")
    with pytest.raises(NotFound, match="no person 'person_x'"):
        await database.write(lambda tx: people.rename(tx, "person_x", "Carl"))
    with pytest.raises(NotFound, match="belongs to nobody"):
        await database.write(lambda tx: people.unlink(tx, BEN))


async def test_an_audience_may_name_people_by_their_names(database: Database):
    anna = await create(database, "Anna")
    read = await database.read(
        lambda tx: people.read_audience(tx, "person:anna|role:Family&room:discord:x|owner")
    )
    assert read == Audience.read(f"person:{anna.id}|role:family&room:discord:x|owner")
    with pytest.raises(NotFound, match="'Carl'"):
        await database.read(lambda tx: people.read_audience(tx, "person:Carl"))


# -- merging ---------------------------------------------------------------------------------------


async def put_everywhere(tx: Connection, agent_id: str, person_id: str) -> None:
    """Name a person in every place that can name one."""
    audience = f"person:{person_id}|person:person_x"
    lines = orjson.dumps([[1, audience, "owner", 1]]).decode()
    source = orjson.dumps(
        {"origins": [["person", person_id]], "audience": audience, "trust": "owner"}
    ).decode()
    await tx.run(
        "INSERT INTO blocks VALUES ('block_1', ?, ?, 'human', 'core', '', '{}', 100,"
        " 'read_write', ?, 0, 1, 'x', ?, ?, 0, 0, NULL)",
        (HOME, agent_id, audience, lines, b"."),
    )
    await tx.run(
        "INSERT INTO block_edits VALUES ('block_1', 1, 'append', 'owner', NULL, '', ?, NULL, NULL,"
        " '{}', 0)",
        (source,),
    )
    packed = zlib.compress(orjson.dumps({"edits": [[source]]}))
    await tx.run("INSERT INTO block_eras VALUES ('block_1', 1, 1, ?, ?, 0)", (b".", packed))
    await tx.run(
        "INSERT INTO passages VALUES ('pas_1', ?, ?, NULL, NULL, 'x', '[]', '{}', ?, ?, 'owner',"
        " 'owner', NULL, 0, NULL, NULL, NULL, NULL, '', NULL, 1)",
        (HOME, agent_id, orjson.dumps([["person", person_id, "cli"]]).decode(), audience),
    )
    await tx.run(
        "INSERT INTO passage_edits VALUES ('pas_1', 1, 'append', 'owner', NULL, '', ?, 0)",
        (orjson.dumps({"audience": audience}).decode(),),
    )
    await tx.run(
        "INSERT INTO summaries VALUES ('sum_1', ?, '', ?, 'owner', 1, 1, 'summary', 'x', '[]', 1,"
        " 1, 'rule', 0)",
        (agent_id, audience),
    )
    await tx.run(
        "INSERT INTO sources VALUES ('source_1', ?, 'docs', '/', '{}', ?, 0, NULL)",
        (HOME, audience),
    )
    await put_turn(tx, agent_id, "turn_1", "hello", audience=audience)
    participants = orjson.dumps({"persons": [person_id], "room": "discord:home"}).decode()
    await tx.run(
        "INSERT INTO inbox (agent_id, arrival, id, kind, channel, body, at, participants)"
        " VALUES (?, 1, 'msg_1', 'message', 'discord', ?, 0, ?)",
        (agent_id, b"{}", participants),
    )
    await tx.run(
        "INSERT INTO schedules (id, agent_id, text, due_at, created_at, participants)"
        " VALUES ('sch_1', ?, 'x', 0, 0, ?)",
        (agent_id, participants),
    )


NAMING = {
    "blocks": ("audience", "lines"),
    "block_edits": ("source",),
    "block_eras": ("edits",),
    "passages": ("audience", "origins"),
    "passage_edits": ("before",),
    "summaries": ("audience",),
    "sources": ("audience",),
    "turns": ("audience",),
    "inbox": ("participants",),
    "schedules": ("participants",),
}


async def named_in(tx: Connection, person_id: str) -> set[str]:
    found: set[str] = set()
    for table, columns in NAMING.items():
        for column in columns:
            for (value,) in await tx.all(f"SELECT {column} FROM {table}"):
                text = zlib.decompress(value).decode() if isinstance(value, bytes) else value
                if person_id in text:
                    found.add(f"{table}.{column}")
    return found


@pytest.mark.promise("M9")
async def test_two_persons_become_one_wherever_the_other_was_named(database: Database):
    agent_id = await database.write(lambda tx: put_agent(tx, "aria"))
    kept = await create(database, "Anna", roles=["family"])
    await meet(database, ANNA, "discord:home")
    gone = await database.read(lambda tx: people.find(tx, "discord:anna#1"))
    await database.write(lambda tx: people.set_roles(tx, gone.id, ["work"]))
    await database.write(lambda tx: put_everywhere(tx, agent_id, gone.id))
    everywhere = await database.read(lambda tx: named_in(tx, gone.id))
    assert everywhere == {f"{table}.{one}" for table, columns in NAMING.items() for one in columns}

    merged = await database.write(lambda tx: people.merge(tx, kept.id, gone.id))

    assert merged == Person(kept.id, "Anna", Trust.KNOWN, ("family", "work"), (ANNA,), NOW)
    assert await database.read(lambda tx: named_in(tx, gone.id)) == set()
    assert await database.read(lambda tx: named_in(tx, kept.id)) == everywhere
    participants = await database.read(lambda tx: people.participants(tx, [kept.id], None))
    assert participants.people[0].rooms == {"discord:home"}
    row = await database.read(lambda tx: tx.one("SELECT audience FROM passages"))
    assert row is not None
    assert participants.can_see(Audience.read(row[0]))
    memory = await database.read(lambda tx: tx.one("SELECT memory FROM agents"))
    assert memory == (1,)
    with pytest.raises(NotFound):
        await database.read(lambda tx: people.find(tx, gone.id))


async def test_a_person_can_turn_out_to_be_the_owner_but_not_the_other_way(database: Database):
    await meet(database, ANNA, None)
    gone = await database.read(lambda tx: people.find(tx, "discord:anna#1"))
    with pytest.raises(InvalidInput, match="owner cannot be merged"):
        await database.write(lambda tx: people.merge(tx, gone.id, OWNER))
    with pytest.raises(InvalidInput, match="one person already"):
        await database.write(lambda tx: people.merge(tx, gone.id, gone.id))
    merged = await database.write(lambda tx: people.merge(tx, OWNER, gone.id))
    assert (merged.id, merged.accounts) == (OWNER, (ANNA,))
    assert await meet(database, ANNA, None) is None
