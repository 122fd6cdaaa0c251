"""Where the red team works: people, rooms, agents and memories, drawn by a seed."""

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import orjson

from asterism import Asterism, TurnState
from asterism.testing.clock import ManualClock
from asterism.types.agents import Trust
from asterism.types.memory import BlockType, Permission
from asterism.types.search import DOMAINS
from tests.redteam import OWNER, Gossip, Judge, Present, Reach, read_rule
from tests.scenes import open_home, until

ROLES = ("family", "work", "club")
ROOMS = ("chat:kitchen", "chat:hall")
TRUSTED = ["stranger", "tool", "document", "web"]
WORDS = [
    "apple",
    "bridge",
    "candle",
    "dragon",
    "engine",
    "forest",
    "guitar",
    "harbour",
    "island",
    "jacket",
    "kettle",
    "ladder",
    "mirror",
    "needle",
    "orange",
    "pepper",
    "quartz",
    "ribbon",
    "saddle",
    "temple",
    "urchin",
    "velvet",
    "window",
    "yellow",
    "zephyr",
    "anchor",
    "button",
    "copper",
    "dolphin",
    "eagle",
    "falcon",
    "garden",
    "hammer",
    "igloo",
    "jungle",
    "knight",
    "lantern",
    "marble",
    "nutmeg",
]


@dataclass
class Someone:
    """A person of a world; the key is the judge's."""

    key: str
    id: str
    senders: list[str]
    """Accounts in the channel `chat`."""


@dataclass
class Tally:
    """What a world came to."""

    seed: int
    requests: int = 0
    compactions: int = 0
    canaries: int = 0
    looked_at: int = 0
    probes: int = 0
    wanted: int = 0
    found: int = 0
    withheld: int = 0
    recalled: int = 0
    """Memories that came by themselves."""
    missed: list[str] = field(default_factory=list[str])

    def __iadd__(self, other: "Tally") -> Self:
        for name in _COUNTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.missed += other.missed
        return self


_COUNTED = (
    "requests",
    "compactions",
    "canaries",
    "looked_at",
    "probes",
    "wanted",
    "found",
    "withheld",
    "recalled",
)


class Scene:
    """A household: agents, people with accounts, rooms, memories of the owner's own making."""

    def __init__(self, seed: int, place: Path, store_url: str | None = None) -> None:
        self.chance = random.Random(seed)
        self.judge = Judge(self.chance)
        self.gossip = Gossip(self.judge, self.chance)
        self.tally = Tally(seed)
        self.log: list[str] = []
        self.clock = ManualClock()
        self.people: dict[str, Someone] = {}
        self.agents = ["aria", "bran"][: self.chance.choice([1, 2, 2])]
        self.blocks: dict[str, tuple[str, str | None, dict[str, Present | None]]] = {}
        """By label: audience, the agent that owns it, its canaries and who was there."""
        self.passages: dict[str, str] = {}
        """The canary of each, by id."""
        self._place = place
        store = {"store.url": store_url} if store_url else {}
        self._settings: dict[str, Any] = {
            "memory.trusted": TRUSTED,
            "context.tokens": self.chance.choice([400, 700, 1_500]),
            "context.strategy": self.chance.choice(
                ["summary", "summary", "importance", "truncate"]
            ),
            "context.keep_recent": 2,
            # Whatever a search finds comes by itself, however little it has to do with a message.
            "pipeline.options.recall.threshold": 0.0,
            "pipeline.options.recall.hits": 20,
            "pipeline.options.recall.tokens": 4_000,
            "pipeline.options.recall.domains": list(DOMAINS),
            **store,
        }
        self._open = AsyncExitStack()
        self._home: Asterism | None = None
        self._numbers = 0

    @property
    def home(self) -> Asterism:
        """The home, while it is open."""
        assert self._home is not None
        return self._home

    def note(self, text: str) -> None:
        """Keep what was done, to be told if something comes to light."""
        self.log.append(f"{len(self.log):3} {text}")

    async def _start(self) -> None:
        self._home = await self._open.enter_async_context(
            open_home(self._place, self.gossip.model(), settings=self._settings, clock=self.clock)
        )

    # -- words ---------------------------------------------------------------------------------

    def words(self, count: int = 4) -> str:
        """Return words that tell nothing."""
        return " ".join(self.chance.sample(WORDS, count))

    def someone(self, count: int = 1) -> list[Someone]:
        """Return some who have an account in the channel of the rooms."""
        able = [one for one in self.people.values() if one.senders]
        return self.chance.sample(able, min(count, len(able)))

    def audience(self) -> tuple[str, str]:
        """Return an audience as the judge and as the product write it."""
        room = self.chance.choice(ROOMS)
        members = sorted(self.judge.members[room] & self.people.keys())
        if members and self.chance.random() < 0.3:
            # Those who are in a room, which others may enter later.
            both = [(f"person:{key}", f"person:{self.people[key].id}") for key in members]
            return "|".join(ours for ours, _ in both), "|".join(theirs for _, theirs in both)
        words: list[tuple[str, str]] = []
        for _ in range(self.chance.choice([1, 1, 2, 3])):
            match self.chance.choice(["public", "owner", "person", "person", "role", "room"]):
                case "person":
                    one = self.chance.choice(list(self.people.values()))
                    words.append((f"person:{one.key}", f"person:{one.id}"))
                case "role":
                    role = f"role:{self.chance.choice(ROLES)}"
                    words.append((role, role))
                case "room":
                    words.append((f"room:{room}", f"room:{room}"))
                case plain:
                    words.append((plain, plain))
        joint = self.chance.choice("||&")
        return joint.join(ours for ours, _ in words), joint.join(theirs for _, theirs in words)

    def participants(self) -> Present:
        """Return participants: one, several, or a room, sometimes with the owner."""
        kind = self.chance.choice(["one", "one", "some", "room", "room", "room", "owner"])
        if kind == "owner":
            return Present(frozenset({OWNER}))
        some = {one.key for one in self.someone(1 if kind == "one" else self.chance.randint(1, 3))}
        if kind != "one" and self.chance.random() < 0.3:
            some.add(OWNER)
        if kind != "room":
            return Present(frozenset(some or {OWNER}))
        room = self.chance.choice(ROOMS)
        there = [key for key in sorted(self.judge.members[room]) if self._can_speak(key)]
        if there and self.chance.random() < 0.7:
            some = {self.chance.choice(there)}
        if self.chance.random() < 0.15:
            some = {OWNER}
        return Present(frozenset(some or {OWNER}), room)

    def _can_speak(self, key: str) -> bool:
        return key == OWNER or bool(key in self.people and self.people[key].senders)

    # -- building ------------------------------------------------------------------------------

    async def _build(self) -> None:
        for agent in self.agents:
            await self.home.agents.create(agent, system="You are kind.")
        await self.home.people.link(OWNER, "chat:s_owner")
        for number in range(self.chance.randint(3, 5)):
            await self._arrive(f"p{number}", known=self.chance.random() < 0.6)
        for number in range(self.chance.randint(3, 5)):
            await self._block(f"topic_{number}")
        if len(self.agents) > 1:
            await self._block("plan", shared=True)
        await self._block("scratch", audience="public")
        for _ in range(self.chance.randint(2, 4)):
            await self._passage()
        if self.chance.random() < 0.3:
            await self._source()

    async def _arrive(self, key: str, *, known: bool) -> None:
        sender = f"s_{key}"
        if known:
            roles = self.chance.sample(ROLES, self.chance.randint(0, 2))
            person = await self.home.people.create(f"Name {key}", trust=Trust.KNOWN, roles=roles)
            await self.home.people.link(person.id, f"chat:{sender}")
            self.judge.roles[key] |= set(roles)
            self.people[key] = Someone(key, person.id, [sender])
            self.note(f"{key} is known, {roles}")
            return
        self.people[key] = Someone(key, "", [sender])
        await self._say("aria", Present(frozenset({key})), note="a stranger comes")
        self.people[key].id = await self._whose(sender)

    async def _whose(self, sender: str) -> str:
        """Return the product's id of the person with an account."""
        there = await self.home.people.list()
        return next(
            one.id
            for one in there
            if any((it.channel, it.sender) == ("chat", sender) for it in one.accounts)
        )

    async def _block(self, label: str, *, shared: bool = False, audience: str = "") -> None:
        ours, theirs = (audience, audience) if audience else self.audience()
        agent = "aria" if shared or self.chance.random() < 0.8 else None
        kind = self.chance.choice([BlockType.CORE, BlockType.CORE, BlockType.WORKING])
        await self._make_block(agent, label, ours, theirs, kind, shared=shared)

    async def _make_block(
        self,
        agent: str | None,
        label: str,
        ours: str,
        theirs: str,
        kind: BlockType,
        *,
        shared: bool = False,
    ) -> str:
        canary = self.judge.new(read_rule(ours), f"block {label} ({ours})")
        await self.home.blocks.create(
            agent,
            label,
            f"kept:{canary} {self.words()}",
            kind=kind,
            audience=theirs,
            shared_with={"bran": Permission.READ_WRITE} if shared else None,
        )
        self.blocks[label] = (ours, agent, {canary: None})
        if label != "scratch":
            self.judge.reach[canary] = Reach(self._agents_with(label))
        self.note(f"block {label} of {agent} for {ours}: {canary}")
        return canary

    def _agents_with(self, label: str) -> frozenset[str]:
        _, agent, _ = self.blocks[label]
        return frozenset(self.agents if agent is None or label == "plan" else [agent])

    async def _passage(self) -> None:
        await self._add(self.chance.choice(self.agents), *self.audience())

    async def _add(self, agent: str, ours: str, theirs: str) -> str:
        canary = self.judge.new(read_rule(ours), f"passage ({ours})")
        written = await self.home.archive.add(
            agent, f"kept:{canary} {self.words(7)}", audience=theirs
        )
        self.passages[written.passage.id] = canary
        if written.kind != "merged":
            self.judge.reach[canary] = Reach(frozenset({agent}))
        self.note(f"passage {written.passage.id} of {agent} for {ours}: {canary}")
        return canary

    async def _source(self) -> None:
        ours, theirs = self.audience()
        canary = self.judge.new(read_rule(ours), f"document ({ours})")
        folder = self._place.with_name(f"{self._place.name}-documents")
        folder.mkdir(parents=True)
        (folder / "one.txt").write_text(f"kept:{canary} {self.words(7)}.\n", "utf-8")
        await self.home.sources.add("papers", folder, agents=["aria"], audience=theirs)
        await self.home.sources.sync("papers")
        self.judge.reach[canary] = Reach(frozenset({"aria"}))
        self.note(f"source for {ours}: {canary}")

    # -- saying --------------------------------------------------------------------------------

    async def _say(
        self, agent: str, present: Present, calls: str = "", *, note: str = "", named: str = ""
    ) -> tuple[str, list[tuple[str, str]]]:
        """Say something to an agent; return its canary, and what the calls gave."""
        canary = self.judge.new(present.rule, f"said to {agent}")
        self.judge.openings[canary] = present
        others = set(present.persons) - {OWNER}
        senders = {one: self.chance.choice(self.people[one].senders) for one in sorted(others)}
        speaker = self.chance.choice(sorted(others)) if others else None
        if OWNER in present.persons and self.chance.random() < 0.5:
            speaker = None
        given: dict[str, Any] = {"channel": "chat"}
        if speaker is not None:
            given["sender"] = senders.pop(speaker)
            if OWNER in present.persons:
                given["present"] = ["s_owner"]
        if present.room is not None:
            given["room"] = present.room.partition(":")[2]
            self.judge.members[present.room] |= {self.judge.who(one) for one in present.persons}
        given["present"] = [*given.get("present", []), *senders.values()]
        named = (named or self._one_of(list(self.blocks))).replace("_", " ")
        text = f"{canary} of {named} {self.words(2)} {calls}"
        self.note(f"{note or 'said'} to {agent} by {speaker} in {present}: {text}")
        everybody = frozenset(self.judge.everybody(present))
        outcome = await self.home.agents.ask(agent, text, **given)
        assert outcome.state is TurnState.DONE, (self.tally.seed, outcome)
        await until(self._is_quiet)
        self.judge.reach[canary] = Reach(frozenset({agent}), Present(everybody, present.room))
        return canary, self.gossip.results[canary]

    async def _is_quiet(self) -> bool:
        return not await self.home.turns.unfinished()

    def _one_of(self, ids: list[str]) -> str:
        return self.chance.choice(ids) if ids else "none"


def call_to(name: str, **arguments: Any) -> str:
    """Return a directive that has the model call a tool."""
    return f"[[call:{name} {orjson.dumps(arguments).decode()}]]"
