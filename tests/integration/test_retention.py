"""Retention: what is too old is really deleted, and nothing else."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from asterism.memory import archive, history
from asterism.memory.forgetting import removal
from asterism.memory.forgetting.removal import RetentionKind, RetentionRule, enforce_retention
from asterism.memory.gate import blocks, passages
from asterism.store.database import Connection, Database
from asterism.store.journal import Draft
from asterism.times import DAY
from asterism.types.agents import Blob, Trust
from asterism.types.memory import Append, Field, Insert, MapSchema, Replace, SetField, Source
from asterism.types.turns import EntryKind, Reply, message_wire, result_wire, text_of
from tests.conformance.memory_scene import (
    ENGINES,
    NOW,
    as_owner,
    opened,
    put_agent,
    put_turn,
)

OLD = NOW - 100 * DAY


@pytest.fixture(params=ENGINES)
async def database(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(request.param, tmp_path) as database:
        yield database


async def texts(database: Database) -> list[str]:
    rows = await database.read(lambda tx: tx.all("SELECT body FROM entries ORDER BY agent_id, seq"))
    return [text_of(row[0]) for row in rows]


@pytest.mark.promise("X4")
async def test_messages(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_BATCH", 2)

    async def fill(tx: Connection) -> tuple[str, str]:
        aria, bela = await put_agent(tx, "aria"), await put_agent(tx, "bela")
        reply = Reply(calls=(), text="calling").wire()
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        said = json.dumps({**json.loads(reply), "tool_calls": [call]}).encode()
        more = [
            Draft(EntryKind.REPLY, "0/reply", said, OLD, Reply(text="x", reasoning="y").meta()),
            Draft(EntryKind.RESULT, "0/call/0", result_wire("c1", "found"), OLD),
        ]
        await put_turn(tx, aria, "turn_1", "old", at=OLD, more=more)
        for number in range(2, 7):
            await put_turn(tx, aria, f"turn_{number}", "older", "yes", at=OLD)
        await put_turn(tx, aria, "turn_7", "new", "now", at=NOW)
        await put_turn(tx, bela, "turn_8", "old too", "hm", at=OLD, trust="web")
        return aria, bela

    aria, bela = await database.write(fill)
    rules = [
        RetentionRule(RetentionKind.MESSAGES, 30, agent_id=aria),
        RetentionRule(RetentionKind.MESSAGES, 30, trust="stranger"),
    ]
    done = await enforce_retention(database, rules, NOW)
    assert done.counts == {"messages": 13}
    assert done.agents == (aria,)
    assert done.unreached == ()
    assert await texts(database) == [*["[forgotten]"] * 13, "new", "now", "old too", "hm"]
    rows = await database.read(
        lambda tx: tx.all("SELECT seq, body FROM entries WHERE agent_id = ? ORDER BY seq", (aria,))
    )
    assert [row[0] for row in rows] == list(range(1, 16))
    assert Reply.from_entry(rows[1][1], None).calls[0].arguments == "{}"
    assert json.loads(rows[2][1])["tool_call_id"] == "c1"
    assert (await enforce_retention(database, rules, NOW)).counts == {}
    assert (
        await enforce_retention(
            database.for_constellation("elsewhere"), [RetentionRule(RetentionKind.MESSAGES, 0)], NOW
        )
    ).counts == {}
    web = await enforce_retention(
        database, [RetentionRule(RetentionKind.MESSAGES, 30, trust="web")], NOW
    )
    assert web.agents == (bela,)


async def test_passages_by_tag_trust_and_age(database: Database) -> None:
    async def fill(tx: Connection) -> str:
        aria = await put_agent(tx, "aria")
        owner = as_owner(OLD)
        web = replace(owner, source=Source(owner.source.origins, trust=Trust.WEB))
        for writer, text, tags in (
            (owner, "Anna likes tea in the morning", ()),
            (owner, "The meeting was moved to Friday", ("passing",)),
            (web, "A page says that the moon is far away", ()),
            (as_owner(NOW), "Bela has a new bicycle", ("passing",)),
        ):
            await passages.write(tx, writer, aria, Insert(text, tags=tags))
        return aria

    aria = await database.write(fill)
    rules = [
        RetentionRule(RetentionKind.PASSAGES, 7, tag="passing"),
        RetentionRule(RetentionKind.PASSAGES, 7, trust="web"),
    ]
    assert (await enforce_retention(database, rules, NOW)).counts == {"passages": 2}
    left = await database.read(lambda tx: archive.listing(tx, [aria], limit=9))
    assert {one.text for one in left} == {"Anna likes tea in the morning", "Bela has a new bicycle"}


async def test_the_rest(database: Database) -> None:
    async def fill(tx: Connection) -> None:
        aria = await put_agent(tx, "aria")
        body = message_wire("user", "see", [Blob("a" * 64, "image/png", b"x")])
        await put_turn(tx, aria, "turn_1", "look", at=OLD)
        await tx.run("UPDATE entries SET body = ?", (body,))
        for name in "ab":
            await tx.run("INSERT INTO blobs VALUES (?, 'image/png', ?, ?)", (name * 64, b"x", OLD))
        for number, at in enumerate((OLD, NOW)):
            await tx.run(
                "INSERT INTO notices (id, agent_id, kind, text, at) VALUES (?, ?, 'k', 't', ?)",
                (f"n{number}", aria, at),
            )
            await tx.run(
                "INSERT INTO summaries VALUES (?, ?, 'owner', 'owner', 'owner', 1, 1, 'summary',"
                " 'said', '[]', 1, 1, 'rule', ?)",
                (f"sum_{number}", aria, at),
            )
            for state in ("sent", "waiting"):
                await tx.run(
                    "INSERT INTO outbox (key, agent_id, turn_id, channel, target, number, body,"
                    " state, next_at, created_at) VALUES (?, ?, 't', 'c', 'x', 1, 'b', ?, 0, ?)",
                    (f"{state}{number}", aria, state, at),
                )

    await database.write(fill)
    rules = [
        RetentionRule(kind, 30) for kind in RetentionKind if kind is not RetentionKind.MESSAGES
    ]
    done = await enforce_retention(database, rules, NOW)
    assert done.counts == {"blobs": 1, "notices": 1, "outbox": 1, "summaries": 1}

    async def left(tx: Connection) -> list[Any]:
        return [
            await tx.all("SELECT id FROM blobs"),
            await tx.all("SELECT key FROM outbox ORDER BY key"),
            await tx.all("SELECT text FROM summaries ORDER BY id"),
        ]

    assert await database.read(left) == [
        [("a" * 64,)],
        [("sent1",), ("waiting0",), ("waiting1",)],
        [("[forgotten]",), ("said",)],
    ]
    # An image goes with the last message that names it.
    done = await enforce_retention(
        database,
        [RetentionRule(RetentionKind.BLOBS, 30), RetentionRule(RetentionKind.MESSAGES, 30)],
        NOW,
    )
    assert done.counts == {"messages": 1, "blobs": 1}


async def test_what_blocks_said_before(database: Database) -> None:
    async def fill(tx: Connection) -> tuple[str, str]:
        aria = await put_agent(tx, "aria")
        old, new = as_owner(OLD), as_owner(NOW)
        block = await blocks.create(tx, old, aria, "human", content="lives in Lyon\nlikes tea")
        for number in range(6):
            await blocks.write(tx, old, block.id, Append(f"line {number}"), era=4)
        await blocks.write(tx, old, block.id, Replace("Lyon", "Nice"), era=4)
        await blocks.write(tx, new, block.id, Replace("Nice", "Metz"), era=4)
        partner = await blocks.create(tx, old, aria, "p", schema=MapSchema((Field("phone"),)))
        for value in ("12-34", "56-78"):
            await blocks.write(tx, old, partner.id, SetField("phone", value))
        return block.id, partner.id

    block_id, partner_id = await database.write(fill)

    async def said(tx: Connection, block_id: str) -> list[str]:
        count = await tx.one("SELECT version FROM blocks WHERE id = ?", (block_id,))
        assert count is not None
        found: list[str] = []
        for number in range(1, count[0] + 1):
            lines = await history.lines_at(tx, block_id, version=number)
            found.append("\n".join(line.text for line in lines))
        return found

    before = await database.read(lambda tx: said(tx, block_id))
    rules = [RetentionRule(RetentionKind.HISTORY, 30)]
    assert (await enforce_retention(database, rules, NOW)).counts[RetentionKind.HISTORY] > 0
    after = await database.read(lambda tx: said(tx, block_id))
    assert after[-2:] == before[-2:]
    assert after[0] == "lives in ****\nlikes tea"
    assert "Lyon" not in "".join(after)
    phones = await database.read(lambda tx: said(tx, partner_id))
    assert phones[-1].endswith("56-78")
    assert "12-34" not in "".join(phones)
    assert (await enforce_retention(database, rules, NOW)).counts == {}
    await database.write(lambda tx: blocks.write(tx, as_owner(), block_id, Append("and so on")))
