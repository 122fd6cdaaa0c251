"""Two constellations of one server, and requests of one that try to reach the other.

Everything that the first constellation has carries a canary that the second never sends. Names and
ids of the first that the second does send have twins that exist nowhere: a request with the one
and a request with the other must be answered the same.
"""

import inspect
import random
import re
import string
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import httpx

from asterism import Asterism
from asterism.api.endpoints import EVENTS, OPEN, ApiEndpoint
from asterism.api.routes import ENDPOINTS
from asterism.api.server import HttpApplication
from asterism.app.home import Home
from asterism.client import RemoteAgent
from asterism.types.turns import Receipt
from asterism.version import __version__
from asterism.wire import encode
from tests.scenes import open_home

WORDS = "quixotic saffron umbrella"
"""What the first constellation talks about, and what the second searches for."""
OWN = "birch-agent"
PASSWORD = "seven green umbrellas"
_ID = re.compile(r"\b([a-z]+)_([0-9a-f]{24})\b")
_SKIPPED = {
    ("PUT", "/halt"),
    ("POST", "/memory/forget"),  # rewrites the whole database: tried on its own
    ("GET", "/events"),  # does not end: tried on its own
    ("POST", "/config/reload"),
    ("DELETE", "/users/{person}"),
    ("PUT", "/users/{person}/password"),  # argon2 each time
    ("POST", "/tokens"),
    ("POST", "/session/password"),
    ("PUT", "/keys/{key}"),  # what is made would be found by the next request
    ("GET", "/audit/export"),
}
_QUIET_VERBS = {
    *(
        "halts.halt",
        "memory.forget",
        "memory.forget_again",
        "tokens.revoke_current",
        "memory.retain",
    ),
    *("users.set_password", "users.change_password", "tokens.create", "search.catch_up"),
    # What is made would be found by the next request.
    *("agents.create", "agents.ensure", "people.create", "tools.add", "sources.upload", "keys.set"),
    *("groups.create", "groups.ensure", "groups.edit"),
    *("keys.rotate", "agents.ask", "turns.wait", "search.check", "mcp.log_in", "audit.export"),
}


def twin(text: str, chance: random.Random) -> str:
    """Return something of the same form that exists nowhere."""

    def other(match: re.Match[str]) -> str:
        return f"{match[1]}_{''.join(chance.choices('0123456789abcdef', k=24))}"

    if _ID.search(text):
        return _ID.sub(other, text)
    return "".join(
        chance.choice(string.ascii_lowercase) if sign.isalpha() else sign for sign in text
    )


@dataclass
class Scene:
    """A server, its two constellations, and what the first one has."""

    home: Asterism
    app: HttpApplication
    alder: httpx.AsyncClient
    birch: httpx.AsyncClient
    chance: random.Random
    probes: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Names and ids of the first constellation by kind, which the second one sends."""
    fresh_names: list[str] = field(default_factory=list)
    """Names of the first constellation that the second one gives to things of its own, once."""
    fresh_keys: list[str] = field(default_factory=list)
    """Idempotency keys of the first constellation that the second one sends, once."""
    silent: set[str] = field(default_factory=set)
    """Texts and ids of the first constellation that the second one never sends."""
    own: dict[str, str] = field(default_factory=dict)
    etag: str = ""
    sent: int = 0
    leaks: list[str] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)

    def canary(self) -> str:
        """Return a new text that must never be seen elsewhere."""
        made = f"canary{''.join(self.chance.choices(string.ascii_lowercase, k=14))}"
        self.silent.add(made)
        return made

    # -- what there is ---------------------------------------------------------------------------

    async def furnish(self) -> None:
        """Put something of every kind into the first constellation, and little into the second."""
        for number in range(2):
            await self._furnish_agent(f"alder-agent-{number}", silent=number == 1)
            await self._furnish_group(f"alder-group-{number}", silent=number == 1)
        api = self.alder
        for number in range(120):
            name = "".join(self.chance.choices(string.ascii_lowercase, k=15))
            key = f"alder-once-{name}"
            await api.post("/api/people", json={"name": name}, headers={"idempotency-key": key})
            self.fresh_keys.append(key)
            (self.probes["person"] if number < 10 else self.fresh_names).append(name)
        hidden = await api.post("/api/people", json={"name": self.canary()})
        self.silent.add(hidden.json()["id"])
        for number in range(3):
            key = f"alder-key-{number}"
            await api.post(
                "/api/agents",
                json={"name": f"{key}-{self.canary()}"},
                headers={"idempotency-key": key},
            )
            self.probes["idempotency"].append(key)
        made = await api.post("/api/tokens", json={"name": self.canary(), "role": "viewer"})
        self.silent.update((made.json()["secret"], made.json()["token"]["id"]))
        listed = await api.post("/api/tokens", json={"name": "alder-token", "role": "viewer"})
        self.probes["token"] += ["alder-token", listed.json()["token"]["id"]]
        await api.put("/api/users/owner/password", json={"password": PASSWORD})
        await api.put(
            "/api/sources/alder-letters/files/letter.txt",
            content=f"{WORDS} {self.canary()}".encode(),
        )
        self.probes["source"].append("alder-letters")
        said = {"channel": "chat", "sender": "anna", "room": "alder-room"}
        there = await self.home.authenticate(self.alder.headers["authorization"].split()[1])
        await there.agents.ask("alder-agent-0", self.canary(), **said)
        self.probes["room"].append("chat:alder-room")
        self.probes["constellation"] += ["alder", "home"]
        self.probes["file"].append("letter.txt")
        events = (await api.get("/api/audit", params={"limit": 200})).json()["items"]
        # A home's own chain has the same name for all; what is tried is the chain of an agent.
        self.probes["event"] += [f"{agent}:1" for agent in self.probes["agent"]]
        self.silent.update(event["hash"] for event in events)
        await self._furnish_signals()
        made = await self.birch.post("/api/agents", json={"name": OWN, "system": "Of birch."})
        self.own["agent"] = made.json()["id"]
        await self.birch.post(f"/api/agents/{OWN}/passages", json={"text": f"of birch: {WORDS}"})

    async def _furnish_agent(self, name: str, *, silent: bool) -> None:
        api, chance = self.alder, self.chance
        name = f"{name}-{self.canary()}" if silent else name
        probes: dict[str, list[str]] = defaultdict(list) if silent else self.probes
        made = await api.post("/api/agents", json={"name": name, "system": f"Of {self.canary()}."})
        path = f"/api/agents/{name}"
        if not silent:
            self.etag = made.headers["etag"]
        probes["agent"] += [made.json()["id"], name]
        label = self.canary() if silent else "alder-block"
        block = {"label": label, "content": f"{WORDS} {self.canary()}"}
        probes["label"] += [label, (await api.post(f"{path}/blocks", json=block)).json()["id"]]
        kept = await api.post(f"{path}/passages", json={"text": f"{WORDS} {self.canary()}"})
        probes["passage"].append(kept.json()["passage"]["id"])
        tool: dict[str, Any] = {
            "name": f"tool{''.join(chance.choices(string.ascii_lowercase, k=8))}",
            "description": self.canary(),
            "json_schema": {"type": "object", "properties": {}},
            "python": f"def run():\n    return '{self.canary()}'",
            "ask": True,
        }
        await api.post("/api/registered-tools", json=tool)
        probes["tool"].append(tool["name"])
        asked = await api.post(f"{path}/ask", json={"text": f"{WORDS} {self.canary()}"})
        probes["turn"].append(asked.json()["turn_id"])
        parked = await api.post(f"{path}/ask", json={"text": f"[[call:{tool['name']} {{}}]]"})
        assert parked.json()["state"] == "parked", parked.text
        probes["turn"].append(parked.json()["turn_id"])
        waiting = (await api.get("/api/approvals")).json()["items"]
        probes["approval"] += [one["id"] for one in waiting if one["agent"] == name]
        later = {"when": "tomorrow at 9", "text": self.canary()}
        probes["schedule"].append((await api.post(f"{path}/schedules", json=later)).json()["id"])
        grant = await api.post("/api/grants", json={"tool": tool["name"], "agent": name})
        probes["grant"].append(grant.json()["id"])
        answered = await api.post(
            "/openai/v1/responses", json={"model": name, "input": f"{WORDS} {self.canary()}"}
        )
        probes["response"].append(answered.json()["id"])
        deliveries = (await api.get("/api/outbox")).json()["items"]
        probes["key"] += [delivery["key"] for delivery in deliveries] or ["alder-delivery"]
        if silent:
            self.silent.update(
                value for values in probes.values() for value in values if "_" in value
            )

    async def _furnish_group(self, name: str, *, silent: bool) -> None:
        name = f"{name}-{self.canary()}" if silent else name
        members = [self.probes["agent"][1]]
        made = await self.alder.post(
            "/api/groups", json={"name": name, "members": members, "description": self.canary()}
        )
        asked = await self.alder.post(
            f"/api/groups/{name}/ask", json={"text": f"{WORDS} {self.canary()}"}
        )
        assert asked.status_code == 200, asked.text
        ids = [made.json()["id"], asked.json()["turn_id"]]
        if silent:
            self.silent.update(ids)
            return
        self.probes["group"] += [ids[0], name]
        self.probes["turn"].append(ids[1])

    async def _furnish_signals(self) -> None:
        """Note the ids of signals of the first constellation, and of an agent that has some."""
        there = await self.home.authenticate(self.alder.headers["authorization"].split()[1])
        agent = self.probes["agent"][1]
        async with aclosing(there.agents.stream(agent, self.canary())) as signals:
            self.probes["signal"] += [signal.id async for signal in signals]

    # -- requests --------------------------------------------------------------------------------

    @cached_property
    def endpoints(self) -> list[ApiEndpoint]:
        """The endpoints that are tried."""
        return [
            one
            for one in ENDPOINTS
            if (one.method, one.path) not in _SKIPPED and not one.upload and one.verb != OPEN
        ]

    @cached_property
    def verbs(self) -> list[str]:
        """The verbs that are called by name."""
        return [name for name in _verb_names(self.home) if name not in _QUIET_VERBS]

    async def try_pair(self) -> None:
        """Send a request with something of the first constellation, and one with its twin."""
        kind = self.chance.random()
        if kind < 0.7:
            make = self._rest_request(self.chance.choice(self.endpoints))
        elif kind < 0.85:
            make = self._verb_request(self.chance.choice(self.verbs))
        elif kind < 0.93:
            make = self._openai_request()
        else:
            make = self._mcp_request()
        pair = [await self._send(request) for request in make]
        (there, said_there), (nowhere, said_nowhere) = pair
        if _plain(there, said_there) != _plain(nowhere, said_nowhere):
            self.differences.append(
                f"{said_there} -> {there.status_code} {there.text[:600]}\n"
                f"{said_nowhere} -> {nowhere.status_code} {nowhere.text[:600]}"
            )

    async def _send(self, request: dict[str, Any]) -> tuple[httpx.Response, dict[str, Any]]:
        answer = await self.birch.request(**request)
        self.sent += 1
        told = f"{answer.text}\n{dict(answer.headers)}"
        found = [text for text in self.silent if text in told]
        if found:
            self.leaks.append(f"{request} told {found}: {told[:500]}")
        # A turn of its own group that nobody can answer fails, which is no fault of the server.
        if answer.status_code >= 500 and '"turn.failed"' not in told:
            self.leaks.append(f"{request} failed: {told[:500]}")
        return answer, request

    def _values(self, kind: str) -> tuple[str, str]:
        probes = self.probes.get(kind) or self.probes["agent"]
        value = self.chance.choice(probes)
        return value, twin(value, self.chance)

    def _new_name(self) -> tuple[str, str]:
        name = self.fresh_names.pop() if self.fresh_names else twin("a" * 15, self.chance)
        return name, twin(name, self.chance)

    def _rest_request(self, one: ApiEndpoint) -> Iterator[dict[str, Any]]:
        names = re.findall(r"{(\w+)}", one.path)
        pairs = {name: self._values(_KINDS.get(str(name), str(name))) for name in names}
        readable = one.method == "GET" and one.media != EVENTS
        may_own = names[:1] == ["agent"] and (readable or len(names) > 1)
        if may_own and self.chance.random() < 0.5:
            pairs["agent"] = (self.own["agent"], self.own["agent"])
        creates = one.status == 201
        body = _body(one, self._values, self._new_name, self.chance, creates=creates)
        query = _query(one, self._values, self.chance)
        headers = self._headers(one)
        for which in range(2):
            path = one.path
            for name, pair in pairs.items():
                path = path.replace(f"{{{name}}}", pair[which])
            yield {
                "method": one.method,
                "url": f"/api{path}",
                "params": {name: pair[which] for name, pair in query.items()},
                "json": body[which] if one.body is not None else None,
                "headers": {name: pair[which] for name, pair in headers.items()},
            }

    def _headers(self, one: ApiEndpoint) -> dict[str, tuple[str, str]]:
        headers: dict[str, tuple[str, str]] = {}
        if self.chance.random() < 0.2:
            headers["if-match"] = (self.etag, self.etag)
        if one.media == EVENTS:
            headers["last-event-id"] = self._values("signal")
        if one.keyed and self.fresh_keys and self.chance.random() < 0.3:
            key = self.fresh_keys.pop()
            headers["idempotency-key"] = (key, twin(key, self.chance))
        return headers

    def _verb_request(self, name: str) -> Iterator[dict[str, Any]]:
        noun = name.partition(".")[0]
        kind = _KINDS_OF_NOUNS.get(noun, "agent")
        first, second = self._values(kind), self._values("agent")
        form, count = self.chance.random(), self.chance.choice((1, 1, 2))
        for which in range(2):
            values: list[Any] = [first[which], second[which]][:count]
            if form < 0.2 and kind == "agent":
                values[0] = RemoteAgent(first[which], "x", "a:b", "", 0, _model_in_use="a:b")
            elif form < 0.3 and noun == "turns":
                values[0] = Receipt("msg_0", first[which], second[which])
            call: dict[str, Any] = {
                "version": __version__,
                "call": name,
                "args": encode(values),
                "kwargs": {},
            }
            yield {"method": "POST", "url": "/api/call", "json": call}

    def _openai_request(self) -> Iterator[dict[str, Any]]:
        model, answer = self._values("agent"), self._values("response")
        form = self.chance.randrange(5)
        for which in range(2):
            said = {"model": model[which], "messages": [{"role": "user", "content": WORDS}]}
            follow = {"model": OWN, "input": WORDS, "previous_response_id": answer[which]}
            yield (
                {"method": "GET", "url": "/openai/v1/models"},
                {"method": "GET", "url": f"/openai/v1/models/{model[which]}"},
                {"method": "POST", "url": "/openai/v1/chat/completions", "json": said},
                {"method": "POST", "url": "/openai/v1/responses", "json": follow},
                {"method": "GET", "url": f"/openai/v1/responses/{answer[which]}"},
            )[form]

    def _mcp_request(self) -> Iterator[dict[str, Any]]:
        agent, block = self._values("agent"), self._values("label")
        approval = self._values("approval")
        form = self.chance.randrange(6)
        for which in range(2):
            name, arguments = (
                ("list_agents", {}),
                ("get_agent_memory", {"agent": agent[which]}),
                ("get_agent_memory", {"agent": OWN, "block": block[which]}),
                ("search_memory", {"query": WORDS, "agent": agent[which]}),
                ("search_memory", {"query": WORDS}),
                ("decide_approval", {"approval": approval[which], "decision": "approve"}),
            )[form]
            meta = {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            }
            params = {"name": name, "arguments": arguments, "_meta": meta}
            yield {
                "method": "POST",
                "url": "/mcp",
                "json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
                "headers": {
                    "accept": "application/json, text/event-stream",
                    "mcp-protocol-version": "2026-07-28",
                    "mcp-method": "tools/call",
                    "mcp-name": name,
                },
            }


_KINDS = {"other": "agent"}
_KINDS_OF_NOUNS = {
    "turns": "turn",
    "contexts": "turn",
    "approvals": "approval",
    "grants": "grant",
    "schedules": "schedule",
    "archive": "passage",
    "people": "person",
    "tokens": "token",
    "users": "person",
    "tools": "tool",
    "sources": "source",
    "outbox": "key",
    "constellations": "constellation",
    "audit": "event",
    "groups": "group",
}
_FOREIGN = {
    "agent": "agent",
    "group": "group",
    "supersedes": "passage",
    "person": "person",
    "speaker": "person",
    "source": "source",
    "tool": "tool",
    "turn": "turn",
    "actor": "person",
    "cursor": "passage",
    "ref": "passage",
}
_LISTS = {
    "agents": "agent",
    "passages": "passage",
    "turns": "turn",
    "persons": "person",
    "sources": "source",
    "blocks": "label",
    "ids": "approval",
    "tools": "tool",
}
_PLAIN: dict[str, Any] = {
    "results": {"0/call/0": WORDS},
    "moment": "2026-11-18T09:00:00Z",
    "a": "0",
    "text": WORDS,
    "messages": [{"role": "user", "text": "hi"}],
    "operation": "append",
    "approved": True,
    "when": "tomorrow at 9",
    "account": "chat:birch",
    "description": "d",
    "json_schema": {"type": "object", "properties": {}},
    "rules": [],
    "path": "/nowhere",
    "document": {},
}


def _body(
    one: ApiEndpoint, values: Any, new_name: Any, chance: random.Random, *, creates: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two bodies of a request, the second with twins."""
    bodies: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for name, about in (one.body.model_fields if one.body is not None else {}).items():
        if name in ("name", "label") and about.is_required():
            pair = new_name() if creates or one.method != "POST" else values("agent")
        elif name in _FOREIGN and (about.is_required() or chance.random() < 0.5):
            pair = values(_FOREIGN[name])
        elif name in _LISTS and (about.is_required() or chance.random() < 0.3):
            found = values(_LISTS[name])
            pair = ([found[0]], [found[1]])
        elif about.is_required():
            pair = (_PLAIN[name], _PLAIN[name])
        else:
            continue
        for body, value in zip(bodies, pair, strict=True):
            body[name] = value
    return bodies


def _query(one: ApiEndpoint, values: Any, chance: random.Random) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for name, about in one.query.model_fields.items():
        if name in _FOREIGN and (about.is_required() or chance.random() < 0.5):
            kind = "event" if name == "cursor" and one.path == "/audit" else _FOREIGN[name]
            found[name] = values(kind)
        elif about.is_required():
            found[name] = (_PLAIN[name], _PLAIN[name])
    return found


def _verb_names(home: Asterism) -> list[str]:
    names: list[str] = []
    for noun, declared in vars(Home).items():
        if not isinstance(declared, cached_property):
            continue
        kind = cast("type[object]", type(getattr(home, noun)))
        for name in dir(kind):
            method = getattr(kind, name)
            if hasattr(method, "verb") and not name.startswith("_") and not _streams(method):
                names.append(f"{noun}.{name}")
    return names


def _streams(method: Any) -> bool:
    return inspect.isasyncgenfunction(inspect.unwrap(method))


_MADE = re.compile(
    r"[a-z]+_[0-9a-f]{24}|\b[0-9a-f]{12,64}\b|ast_\w+|\b\d{10,13}\b|\d\d:\d\d(:\d\d)?|\d+\.\d+"
)


def _plain(answer: httpx.Response, request: dict[str, Any]) -> tuple[int, str]:
    """Return what an answer says, without what was asked for and what is new each time."""
    text = answer.text
    sent = f"{request['url']} {request.get('params')} {request.get('json')}"
    asked = {*re.findall(r"[\w:.-]{6,}", sent), *re.findall(r"[\w.-]{6,}", sent)}
    for word in sorted(asked, key=len, reverse=True):
        text = text.replace(word, "?")
    return answer.status_code, _MADE.sub("#", text)


@asynccontextmanager
async def isolation_scene(place: Path, seed: int, **options: Any) -> AsyncGenerator[Scene, None]:
    """A server with two furnished constellations."""
    chance = random.Random(seed)
    async with open_home(place, **options) as home:
        app = HttpApplication(home)
        transport = httpx.ASGITransport(cast("Any", app))
        clients: list[httpx.AsyncClient] = []
        for name in ("alder", "birch"):
            await home.constellations.ensure(name)
            secret = (await home.tokens.create("owner", constellation=name)).secret
            clients.append(
                httpx.AsyncClient(
                    transport=transport,
                    base_url="http://localhost",
                    headers={"authorization": f"Bearer {secret}"},
                    timeout=30,
                )
            )
        alder, birch = clients
        scene = Scene(home, app, alder, birch, chance)
        try:
            await scene.furnish()
            yield scene
        finally:
            for client in clients:
                await client.aclose()
            await app.close()
