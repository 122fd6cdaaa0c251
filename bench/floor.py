"""The floor: a turn with no framework at all, kept in SQLite.

One commit for the message, one for the answer (WAL, synchronous NORMAL), and between them one HTTP
request with the whole conversation, which is read from the database. `Httpx` asks with httpx, as
most programs in Python would; `Raw` writes the request on a socket by hand.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from typing import Any, cast
from urllib.parse import urlsplit

from bench.harness import MODEL, SYSTEM, Adapter, tool_impl

_TOOLS = json.dumps(
    [
        {
            "type": "function",
            "function": {
                "name": "record_event",
                "description": "Record an event.",
                "parameters": {
                    "type": "object",
                    "properties": {"note": {"type": "string"}},
                    "required": ["note"],
                },
            },
        }
    ]
)
_Handle = tuple[str, bool]


class Floor(Adapter):
    """Everything but the request."""

    _database: sqlite3.Connection

    async def open(self) -> None:
        """Open the database."""
        database = sqlite3.connect(self.env.p("floor.db"), isolation_level=None)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        database.execute("CREATE TABLE IF NOT EXISTS agents (name TEXT PRIMARY KEY, system TEXT)")
        database.execute(
            "CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, agent TEXT, body TEXT)"
        )
        database.execute("CREATE INDEX IF NOT EXISTS of_agent ON messages (agent, id)")
        self._database = database

    async def agent(self, key: str, tool: bool = False) -> _Handle:
        """Note the agent."""
        self._database.execute("INSERT OR IGNORE INTO agents VALUES (?, ?)", (key, SYSTEM))
        return key, tool

    def _put(self, agent: str, *messages: dict[str, Any]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(
            "INSERT INTO messages (agent, body) VALUES (?, ?)",
            [(agent, json.dumps(message)) for message in messages],
        )
        self._database.execute("COMMIT")

    async def turn(self, h: _Handle, text: str) -> str:
        """Store the message, ask with everything that was said, store the answer."""
        agent, tool = h
        self._put(agent, {"role": "user", "content": text})
        said = [json.dumps({"role": "system", "content": SYSTEM})]
        said += [
            row[0]
            for row in self._database.execute(
                "SELECT body FROM messages WHERE agent = ? ORDER BY id", (agent,)
            )
        ]
        tools = f',"tools":{_TOOLS}' if tool else ""
        while True:
            body = f'{{"model":"{MODEL}","messages":[{",".join(said)}]{tools}}}'.encode()
            message = json.loads(await self._post(body))["choices"][0]["message"]
            calls = message.get("tool_calls")
            if not calls:
                self._put(agent, {"role": "assistant", "content": message["content"]})
                return message["content"]
            done = [{"role": "assistant", "content": None, "tool_calls": calls}]
            for call in calls:
                result = tool_impl(**json.loads(call["function"]["arguments"]))
                done.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            self._put(agent, *done)
            said += [json.dumps(message) for message in done]

    async def close(self) -> None:
        """Close the database, which folds its log into it."""
        self._database.close()

    async def _post(self, body: bytes) -> bytes:
        raise NotImplementedError


class Httpx(Floor):
    """Asks with httpx."""

    name = "floor"

    async def open(self) -> None:
        """Open the database and one client for all."""
        # httpx imports its command line, with rich and pygments, wherever those are installed.
        cast("dict[str, None]", sys.modules).setdefault("httpx._main", None)
        import httpx

        await super().open()
        self._client = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None), timeout=60, trust_env=False
        )
        self._url = f"{self.env.base_url}/chat/completions"
        self._headers = {"content-type": "application/json", "authorization": "Bearer none"}

    async def _post(self, body: bytes) -> bytes:
        response = await self._client.post(self._url, content=body, headers=self._headers)
        return response.content

    async def close(self) -> None:
        """Close both."""
        await self._client.aclose()
        await super().close()


class Raw(Floor):
    """Asks over sockets that are kept."""

    name = "raw"

    async def open(self) -> None:
        """Open the database."""
        await super().open()
        parts = urlsplit(self.env.base_url)
        self._host, self._port = parts.hostname, parts.port
        self._head = (
            f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def _post(self, body: bytes) -> bytes:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 22)
        writer.write(b"%s%d\r\n\r\n%s" % (self._head, len(body), body))
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        answer = await reader.readexactly(length)
        self._idle.append((reader, writer))
        return answer

    async def close(self) -> None:
        """Close the sockets and the database."""
        for _, writer in self._idle:
            writer.close()
        await super().close()
