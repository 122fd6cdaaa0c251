"""Values that no verb may stumble over, and calls of every verb of a home with each of them."""

import asyncio
import inspect
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from asterism import Asterism
from asterism.memory.forgetting import Forgetting
from asterism.types.agents import OWNER_ALONE, Account, Trust
from asterism.types.memory import Append
from asterism.types.permissions import ApprovalRecord
from asterism.types.search import Query

ENDLESS: dict[str, Any] = {}
ENDLESS["itself"] = ENDLESS

HOSTILE: dict[str, Any] = {
    "a lone surrogate": "x\ud800y",
    "a NUL": "a\0b",
    "nothing": "",
    "white space": " \n\t",
    "a megabyte": "m" * 1_000_000,
    "an unknown id": "turn_ffffffffffffffffffffffff",
    "a path": "../../etc/passwd",
    "a number as text": "12",
    "bytes": b"\xff\x00bytes",
    "a large number": 10**30,
    "a large negative number": -(10**30),
    "a number that fits 64 bits": 2**63 - 1,
    "minus one": -1,
    "infinity": float("1e400"),
    "no number": float("nan"),
    "None": None,
    "an object": object(),
    "a list of odd things": ["x\udfff", 10**30, None, b"z"],
    "a table of odd things": {"x\udfff": 10**30, "y": "\ud800", "z": b"z"},
    "a table within itself": ENDLESS,
    "an edit": Append("x\ud800y"),
    "an edit with a NUL": Append("a\0b"),
    "texts with a NUL": ["a\0b"],
}

OF_ANY_ENGINE = [told for told, value in HOSTILE.items() if isinstance(value, str | int)]
"""Those that may get as far as the store; types are the same whatever the engine."""

NOUNS = (
    *("blocks", "archive", "people", "grants", "approvals", "keys", "search", "memory", "contexts"),
    *("audit", "sources", "rules", "tools", "halts", "mcp", "agents", "turns", "notices"),
    *("outbox", "schedules", "spending", "tokens", "users", "config", "groups"),
)
WAITING = (
    *("agents.ask", "turns.wait", "agents.stream"),
    *("approvals.stream_decision", "turns.follow", "agents.watch"),
    *("groups.ask", "groups.stream", "groups.watch"),
)
LEFT_OUT = {
    # A server of others, and a browser to log in with.
    "mcp.ask",
    "mcp.login",
    # They have no arguments, and work through all that is stored.
    "memory.forget_again",
    "memory.retain",
    "tool.refresh",
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call of a verb."""

    verb: str
    method: Callable[..., Any]
    given: dict[str, Any]
    """Arguments by name."""
    spread: tuple[Any, ...] = ()
    """Arguments of a parameter such as `*rules`."""
    told: str = ""

    async def run(self) -> Any:
        """Make the call; one that waits for a turn is left after a while, since there is none."""
        signature = inspect.signature(self.method)
        positional = [
            self.given[name]
            for name, one in signature.parameters.items()
            if one.kind is one.POSITIONAL_OR_KEYWORD and name in self.given
        ]
        named = {
            name: value
            for name, value in self.given.items()
            if name not in signature.parameters
            or signature.parameters[name].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD
        }
        made = self.method(*positional, *self.spread, **named)
        task = asyncio.ensure_future(_awaited(made))
        waits = self.verb in WAITING
        done, _ = await asyncio.wait([task], timeout=0.03 if waits else 10.0)
        if not done:
            # What comes of it now comes of being left.
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert waits, f"{self.told} takes too long"
            return None
        return task.result()


async def _awaited(made: Any) -> Any:
    if inspect.isasyncgen(made):
        async with aclosing(cast("AsyncGenerator[Any, None]", made)) as found:
            return [one async for one in found]
    return await made if inspect.isawaitable(made) else made


class Parts:
    """The content of a file, as often as it is read."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield it."""
        yield b"some words"


@dataclass(slots=True)
class Scene:
    """A home with one of everything, and an argument that fits each parameter."""

    home: Asterism
    fits: dict[str, Any] = field(default_factory=dict[str, Any])

    @classmethod
    async def make(cls, home: Asterism) -> "Scene":
        """Fill a home."""
        # By their ids, since names may change on the way.
        aria, bo = (await home.agents.create("aria")).id, (await home.agents.create("bo")).id
        await home.blocks.create("aria", "human", "A person.", existing=True)
        written = await home.archive.add("aria", "The spare key is with the neighbour.")
        anna, ben = (await home.people.create("anna")).id, (await home.people.create("ben")).id
        grant = await home.grants.give("shell", agent="aria")
        receipt = await home.agents.send("aria", "hello")
        await home.keys.set("stored", "value-of-a-key-1")
        team = await home.groups.create("team", members=[aria])
        fits: dict[str, Any] = {
            "agent": aria,
            "group": team.id,
            "groups.get.name": team.id,
            "groups.create.name": "others",
            "groups.ensure.name": team.name,
            "pattern": "round_robin",
            "agents.warm.agent": await home.agents.get(aria),
            "target": bo,
            "name": aria,
            "who": anna,
            "remaining": anna,
            "merged": ben,
            "account": "discord:anna",
            "room": "discord:kitchen",
            "arguments": {},
            "label": "human",
            "write": Append("more"),
            "text": "some words",
            "texts": ["one", "two"],
            "passage_id": written.passage.id,
            "grant_id": grant.id,
            "turn_id": receipt.turn_id,
            "receipt": receipt,
            "approval_id": "ap_1",
            "approval": ApprovalRecord(
                "ap_1", receipt.agent_id, receipt.turn_id, "0/call/0", "Hm?", 0
            ),
            "trust": Trust.KNOWN,
            "by": Account("discord", "anna"),
            "agent_id": receipt.agent_id,
            "participants": OWNER_ALONE,
            "approved": True,
            "value": "value-of-a-key-2",
            "moment": datetime.fromtimestamp(1_700_000_000, UTC),
            "a": 1,
            "ref": f"turn:{receipt.turn_id}",
            "reason": "since",
            "document": {},
            "messages": [("user", "hi")],
            "rules": [{"tool": "web", "kind": "max_calls", "count": 3}],
            "rule": 1,
            "present": ["anna"],
            "roles": ["friend"],
            "tags": ["house"],
            "tool": "web",
            "query": "key",
            "search.find.query": Query("key"),
            "keys.set.name": "stored",
            "people.create.name": "cleo",
            "tools.add.name": "made",
            "tokens.create.name": "made",
            "agents.clone.name": "copied",
            "turns.find_messages.messages": [b"{}"],
            "results": {"0/call/0": "done"},
            "sources.upload.name": "papers",
            "sources.upload.file": "note.txt",
            "sources.upload.content": Parts(),
            "token": "made",
            "password": "correct horse battery",
            "old": "correct horse battery",
            "new": "another horse battery",
            "description": "Does something.",
            "schema": {"properties": {}},
            "path": "/nonexistent",
            "key": "no-such-key",
            "ids": ["note_1"],
            "when": "tomorrow at nine",
            "schedule_id": "sch_1",
            "what": Forgetting(passages=("passage_1",)),
        }
        return cls(home, fits)

    def verbs(self) -> Iterator[tuple[str, Callable[..., Any]]]:
        """Yield every verb with its name."""
        for noun in ("", *NOUNS):
            place: Any = getattr(self.home, noun) if noun else self.home
            for name, member in inspect.getmembers(cast("type[Any]", type(place)), callable):
                told = getattr(member, "verb", None)
                if told is None or (name.startswith("_") and name != "__call__"):
                    continue
                verb = f"{noun or 'home'}.{name}"
                if told[1] not in LEFT_OUT and verb not in LEFT_OUT:
                    yield verb, getattr(place, name)

    def attempts(self, kinds: Collection[str] = tuple(HOSTILE)) -> Iterator[Attempt]:
        """Yield calls in which one argument is hostile, and the others fit."""
        for verb, method in self.verbs():
            for name, parameter in _parameters(method).items():
                for told in kinds:
                    value = HOSTILE[told]
                    words = f"{verb}({name}={told})"
                    usual = self._usual(verb, method)
                    if parameter.kind is parameter.VAR_POSITIONAL:
                        yield Attempt(verb, method, usual, (value,), words)
                    else:
                        yield Attempt(verb, method, {**usual, name: value}, (), words)

    def at_random(self, chance: random.Random) -> Iterator[Attempt]:
        """Yield calls without end, in which any of the arguments may be hostile."""
        verbs, values = list(self.verbs()), list(HOSTILE.items())
        while True:
            verb, method = chance.choice(verbs)
            given, words = self._usual(verb, method), list[str]()
            spread: tuple[Any, ...] = ()
            for name, parameter in _parameters(method).items():
                if chance.random() < 0.4:
                    told, value = chance.choice(values)
                    words.append(f"{name}={told}")
                    if parameter.kind is parameter.VAR_POSITIONAL:
                        spread = (value,)
                    else:
                        given[name] = value
            yield Attempt(verb, method, given, spread, f"{verb}({', '.join(words)})")

    def _usual(self, verb: str, method: Callable[..., Any]) -> dict[str, Any]:
        return {
            name: self.fits.get(f"{verb}.{name}", self.fits.get(name))
            for name, one in _parameters(method).items()
            if one.default is one.empty and one.kind is not one.VAR_POSITIONAL
        }


def _parameters(method: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(method).parameters)
    return {
        name: one
        for name, one in found.items()
        if one.kind is not one.VAR_KEYWORD and name not in ("progress", "show")
    }
