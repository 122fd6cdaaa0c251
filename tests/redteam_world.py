"""Worlds for the red team: lived in as drawn by a seed, then looked at from all sides."""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson

from asterism.memory import people
from asterism.types.agents import Participants
from asterism.types.memory import Append, BlockType, Describe
from tests.redteam import GOSSIP, OWNER, Present, Reach, read_rule, same_but_for
from tests.redteam_scene import ROLES, ROOMS, WORDS, Scene, Someone, Tally, call_to
from tests.scenes import until


class World(Scene):
    """One generated world."""

    async def run(self, steps: int) -> Tally:
        """Live through a world, probe it, and return what it came to; raise if there is a leak."""
        try:
            await self._start()
            await self._build()
            for _ in range(steps):
                await self._step()
                self._complain()
            await self._probe()
            self._complain()
            self.tally.compactions = len(await self._summaries())
        finally:
            await self._open.aclose()
        tally = self.tally
        tally.requests, tally.recalled = self.gossip.requests, self.gossip.recalled
        tally.canaries, tally.looked_at = len(self.judge.rules), self.judge.looked_at
        return tally

    def _complain(self) -> None:
        if self.judge.leaks:
            leaks = "\n".join(str(leak) for leak in self.judge.leaks[:5])
            lived = "\n".join(self.log)
            raise AssertionError(
                f"{len(self.judge.leaks)} leaks in the world of seed {self.tally.seed}:\n{leaks}\n"
                f"What happened there:\n{lived}"
            )

    # -- living --------------------------------------------------------------------------------

    async def _step(self) -> None:
        steps: list[tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = [
            (6, self._talk),
            (4, self._enter),
            (8, self._write),
            (10, self._look_up),
            (3, self._later),
            (2, self._time_passes),
            (4, self._secret_in_a_room),
            (2, self._role_taken_away),
            (1, self._owner_in_an_empty_room),
            (3, self._owner_writes),
            (1, self._passage),
            (2, self._narrow),
            (2, self._change_roles),
            (1, self._merge),
            (2, self._move_account),
            (1, self._leave),
            (1, self._restart),
        ]
        (step,) = self.chance.choices([one for _, one in steps], [weight for weight, _ in steps])
        await step()

    async def _talk(self) -> None:
        await self._say(self.chance.choice(self.agents), self.participants())

    async def _enter(self, room: str = "", agent: str = "") -> None:
        """Let somebody come into a room where they were not."""
        room = room or self.chance.choice(ROOMS)
        others = [key for key in self.people if key not in self.judge.members[room]]
        able = [key for key in others if self._can_speak(key)]
        if able:
            present = Present(frozenset({self.chance.choice(able)}), room)
            await self._say(agent or self.chance.choice(self.agents), present, note="enter")

    def _seen_by(self, agent: str) -> list[str]:
        """Return the labels that an agent has, as far as there are such blocks."""
        return [
            label
            for label, (_, owner, _) in self.blocks.items()
            if owner in (agent, None) or label == "plan"
        ]

    async def _write(self, agent: str = "", present: Present | None = None) -> None:
        """Let an agent write in a turn: what it writes may be heard as what is said there."""
        agent, present = agent or self.chance.choice(self.agents), present or self.participants()
        everybody = frozenset(self.judge.everybody(present))
        then = Present(everybody, present.room)
        canary = self.judge.new(present.rule, f"written by {agent}")
        content = f"{canary} {self.words(5)} {GOSSIP}"
        label = self.chance.choice(self._seen_by(agent) or ["none"])
        kind = self.chance.choice(
            ["append", "append", "insert", "insert", "replace", "range", "undo"]
        )
        match kind:
            case "append":
                call = call_to("block_edit", operation="append", label=label, content=content)
            case "insert":
                call = call_to("recall", operation="insert", text=content)
            case "replace":
                old = self.chance.choice(WORDS)
                call = call_to(
                    "block_edit", operation="replace", label="scratch", old=old, content=content
                )
            case "range":
                call = call_to(
                    "block_edit", operation="edit_range", label="scratch", number=1, content=content
                )
            case _:
                name = self.chance.choice(["undo", "redo"])
                call = call_to("block_edit", operation=name, label="scratch")
        _, results = await self._say(agent, present, call, note=kind)
        told = results[-1][1]
        if kind == "append" and "now holds" in told:
            ours, _, canaries = self.blocks[label]
            canaries[canary] = then
            # It was said there before it was written.
            self.judge.set_rule(canary, (*read_rule(ours), *present.rule))
            if label != "scratch":
                self.judge.reach[canary] = Reach(self._agents_with(label), then)
        elif kind == "insert" and told.startswith("Stored"):
            self.passages[told.split()[2].rstrip(".")] = canary
            self.judge.reach[canary] = Reach(frozenset({agent}), then)

    async def _look_up(self) -> None:
        """Let an agent look for whatever there is, also what those present may not see."""
        agent, present = self.chance.choice(self.agents), self.participants()
        canary, label, passage = self._targets(present)
        call = self.chance.choice(
            [
                call_to(
                    "recall", operation="search", text=f"{canary.upper()} {self.words(2)}", limit=20
                ),
                call_to("recall", operation="search", text=self.words(4), limit=20),
                call_to("search", query=f"{canary.upper()} {self.words(2)}", limit=50),
                call_to("search", query=self._question(), limit=50),
                call_to("recall", operation="read", id=passage),
                call_to("recall", operation="append", id=passage, text=GOSSIP),
                call_to("block", operation="load", label=label),
                call_to("block", operation="info", label=label),
                call_to("block", operation="list"),
                call_to("block", operation="pin", label=label),
                call_to("schedule", operation="list"),
                call_to("expand", summary=self._one_of(await self._summaries())),
            ]
        )
        _, results = await self._say(agent, present, call, note="look up")
        if results[-1][1].startswith("Appended to"):
            # Only those who see both may see the passage from now on.
            self.judge.reach.pop(self.passages[results[-1][1].split()[2].rstrip(",")], None)

    def _question(self) -> str:
        """Return a query of another kind: the newest, beginnings, quotes, who, and when."""
        word = self.chance.choice(WORDS)
        return self.chance.choice(
            [
                "",
                f"{word[:3]}* zq*",
                f'"{word}" {self.words(2)}',
                f"What did I say about {word}?",
                f"What did you tell me of {word} today?",
                self.words(4),
            ]
        )

    def _targets(self, present: Present) -> tuple[str, str, str]:
        """Return a canary, a label and a passage, which those present mostly may see."""
        canaries, labels, passages = list(self.judge.rules), [*self.blocks], [*self.passages]
        if self.chance.random() < 0.6:
            persons = self.judge.everybody(present) | set(present.persons)

            def heard(canary: str) -> bool:
                return all(
                    self.judge.can_see(one, canary, present.room, kept=True) for one in persons
                )

            canaries = [one for one in canaries if heard(one)]
            labels = [one for one in labels if any(map(heard, self.blocks[one][2]))]
            passages = [one for one in passages if heard(self.passages[one])]
        return self._one_of(canaries), self._one_of(labels), self._one_of(passages)

    async def _summaries(self) -> list[str]:
        rows: list[Any] = await self.home.database.read(
            lambda tx: tx.all("SELECT id FROM summaries ORDER BY id")
        )
        return [row[0] for row in rows]

    async def _later(self) -> None:
        await self._plan(self.chance.choice(self.agents), self.participants())

    async def _plan(self, agent: str, present: Present) -> str:
        """Let an agent send itself a message, later or at once."""
        canary = self.judge.new(present.rule, f"scheduled by {agent}")
        self.judge.openings[canary] = present
        minutes = f"{self.chance.randint(1, 30)} minutes"
        text = f"{canary} {self.words(2)} {GOSSIP}"
        call = call_to("schedule", operation="in", when=minutes, message=text)
        if self.chance.random() < 0.3:
            call = call_to("heartbeat", reason=text)
        await self._say(agent, present, call, note="later")
        return canary

    async def _time_passes(self) -> None:
        self.note("ten minutes pass")
        self.clock.forward(seconds=600)
        home = self.home

        async def nothing_due() -> bool:
            for agent in self.agents:
                if any(one.due_at_ms <= self.clock.now for one in await home.schedules.list(agent)):
                    return False
            return await self._is_quiet()

        await home.database.write(lambda tx: tx.notify("schedule", ""))
        await until(nothing_due)
        for turn_id, whole in self.gossip.withheld:
            _, entries = await home.turns.get(turn_id)
            opening = next(entry for entry in entries if entry.key == "in")
            told = orjson.loads(orjson.loads(opening.meta or "{}")["participants"])
            keys = {one.id: one.key for one in self.people.values()} | {OWNER: OWNER}
            persons = frozenset(keys[one] for one in told["persons"] if one in keys)
            self.judge.look("withheld", whole, Present(persons, told["room"]))
            self.tally.withheld += 1
        self.gossip.withheld.clear()

    async def _owner_writes(self) -> None:
        label = self.chance.choice(list(self.blocks))
        ours, agent, canaries = self.blocks[label]
        canary = self.judge.new(read_rule(ours), f"block {label} ({ours})")
        await self.home.blocks.write(agent, label, Append(f"kept:{canary} {self.words()}"))
        canaries[canary] = None
        if label != "scratch":
            self.judge.reach[canary] = Reach(self._agents_with(label))
        self.note(f"the owner writes to {label}: {canary}")

    async def _narrow(self) -> None:
        """Let the owner say anew who may see a block."""
        label = self.chance.choice(list(self.blocks))
        _, agent, canaries = self.blocks[label]
        ours, theirs = self.audience()
        home, present = self.home, self.participants()
        await self._say("aria", present)
        heard = await home.database.read(lambda tx: people.read_audience(tx, theirs))
        await home.blocks.write(agent, label, Describe(audience=heard))
        for canary, then in canaries.items():
            self.judge.set_rule(canary, (*read_rule(ours), *(then.rule if then else ())))
        self.blocks[label] = (ours, agent, canaries)
        self.note(f"{label} is for {ours} now")
        await self._say("aria", present)

    async def _change_roles(self) -> None:
        one = self.chance.choice(list(self.people.values()))
        await self._set_roles(one, self.chance.sample(ROLES, self.chance.randint(0, 2)))

    async def _set_roles(self, one: Someone, roles: list[str]) -> None:
        await self.home.people.set_roles(one.id, roles)
        self.judge.roles[one.key] = set(roles)
        self.note(f"the roles of {one.key} are {roles}")

    async def _merge(self) -> None:
        if len(self.people) < 3:
            return
        kept, gone = self.chance.sample(list(self.people.values()), 2)
        if self.chance.random() < 0.15:
            kept = Someone(OWNER, OWNER, [])
        await self.home.people.merge(kept.id, gone.id)
        self.judge.merge(kept.key, gone.key)
        kept.senders += gone.senders if kept.key != OWNER else []
        del self.people[gone.key]
        self.note(f"{gone.key} is {kept.key}")

    async def _move_account(self) -> None:
        """Give an account to somebody else, to the owner, or to nobody."""
        able = [one for one in self.people.values() if len(one.senders) > 1]
        if not able or self.chance.random() < 0.5:
            (one,) = self.chance.sample(list(self.people.values()), 1)
            self._numbers += 1
            sender = f"more_{self._numbers}"
            await self.home.people.link(one.id, f"chat:{sender}")
            one.senders.append(sender)
            self.note(f"{sender} is an account of {one.key}")
            return
        one = self.chance.choice(able)
        sender = one.senders.pop(self.chance.randrange(len(one.senders)))
        kind = self.chance.choice(["other", "owner", "nobody"])
        self.note(f"{sender} is taken from {one.key} and given to {kind}")
        if kind == "owner":
            await self.home.people.link(OWNER, f"chat:{sender}")
        elif kind == "other":
            other = self.chance.choice(list(self.people.values()))
            await self.home.people.link(other.id, f"chat:{sender}")
            other.senders.append(sender)
        else:
            await self.home.people.unlink(f"chat:{sender}")
            self._numbers += 1
            key = f"q{self._numbers}"
            self.people[key] = Someone(key, "", [sender])
            await self._say("aria", Present(frozenset({key})), note="a stranger again")
            self.people[key].id = await self._whose(sender)

    # What leaks only in a certain order is drawn in that order.

    async def _secret_in_a_room(self) -> None:
        """Bring up in a room what all who are there may see; then somebody comes in."""
        room, agent = self.chance.choice(ROOMS), self.chance.choice(self.agents)
        there = sorted(self.judge.members[room] & self.people.keys())
        there = [key for key in there if self._can_speak(key)]
        if not there:
            return
        ours = "|".join(f"person:{key}" for key in there)
        theirs = "|".join(f"person:{self.people[key].id}" for key in there)
        how = self.chance.choice(["search", "recall", "read", "load", "refer", "list"])
        present = Present(frozenset({self.chance.choice(there)}), room)
        self._numbers += 1
        if how in ("load", "refer"):
            label = f"secret_{self._numbers}"
            canary = await self._make_block(agent, label, ours, theirs, BlockType.WORKING)
            call = call_to("block", operation="load", label=label) if how == "load" else ""
            await self._say(agent, present, call, note=how, named=label)
        elif how == "list":
            group = Present(frozenset(there))
            canary = await self._plan(agent, group)
            await self._say(agent, present, call_to("schedule", operation="list"), note=how)
        else:
            canary = await self._add(agent, ours, theirs)
            passage = next(id for id, one in self.passages.items() if one == canary)
            calls = {
                "search": call_to("search", query=canary.upper()),
                "recall": call_to("recall", operation="search", text=canary.upper()),
                "read": call_to("recall", operation="read", id=passage),
            }
            await self._say(agent, present, calls[how], note=how)
        await self._enter(room, agent)

    async def _role_taken_away(self) -> None:
        """Talk with somebody who has a role, and again when they have it no more."""
        able = [one for one in self.people.values() if self._can_speak(one.key)]
        if not able:
            return
        one, role = self.chance.choice(able), self.chance.choice(ROLES)
        alone = Present(frozenset({one.key}))
        await self._set_roles(one, [role])
        self._numbers += 1
        label, word = f"secret_{self._numbers}", f"role:{role}"
        await self._make_block("aria", label, word, word, BlockType.CORE)
        await self._say("aria", alone)
        await self._set_roles(one, [])
        await self._say("aria", alone)

    async def _owner_in_an_empty_room(self) -> None:
        """Let an agent write where only the owner is; then somebody comes in."""
        room, agent = self.chance.choice(ROOMS), self.chance.choice(self.agents)
        for key in sorted(self.judge.members[room] & self.people.keys()):
            await self._leave(room, key)
        if self.judge.members[room] <= {OWNER}:
            await self._write(agent, Present(frozenset({OWNER}), room))
            await self._enter(room, agent)

    async def _leave(self, room: str = "", key: str = "") -> None:
        room = room or self.chance.choice(ROOMS)
        there = sorted(self.judge.members[room] & self.people.keys())
        if not there:
            return
        one, home = self.people[key or self.chance.choice(there)], self.home
        await home.database.write(lambda tx: people.leave_room(tx, room, one.id))
        self.judge.members[room].discard(one.key)
        self.note(f"{one.key} leaves {room}")

    async def _restart(self) -> None:
        await self._open.aclose()
        await self._start()
        self.note("a restart")

    # -- probing -------------------------------------------------------------------------------

    async def _probe(self) -> None:
        for _ in range(4):
            present = self.participants()
            participants = await self._as_product(present)
            for agent in self.agents:
                await self._probe_search(agent, present, participants)
                await self._probe_export(agent, present, participants)
                if present.room is None:
                    await self._probe_context(agent, present)
        for _ in range(3):
            await self._probe_errors(self.chance.choice(self.agents), self.participants())

    async def _as_product(self, present: Present) -> Participants:
        names = [OWNER if one == OWNER else self.people[one].id for one in sorted(present.persons)]
        return await self.home.people.participants(names, present.room)

    async def _probe_search(self, agent: str, present: Present, participants: Participants) -> None:
        canaries = sorted(self.judge.rules)
        for canary in self.chance.sample(canaries, min(12, len(canaries))):
            near = self.chance.choice([0, 2])
            told = await self.home.search(agent, canary, participants=participants, neighbours=near)
            self.tally.probes += 1
            found = False
            for hit in told.hits:
                where = f"search of {agent}, {hit.kind} {hit.id}"
                kept = hit.kind in ("passage", "block")
                found |= canary in self.judge.look(where, hit.text, present, kept=kept)
                for one in (*hit.before, *hit.after):
                    self.judge.look(f"{where}, beside it {one.id}", one.text, present, kept=kept)
            if self.judge.is_within_reach(canary, agent, present):
                self.tally.wanted += 1
                self.tally.found += found
                if not found:
                    note = self.judge.notes[canary]
                    missed = f"seed {self.tally.seed}: {canary} [{note}] by {present} of {agent}"
                    self.tally.missed.append(missed)

    async def _probe_export(self, agent: str, present: Present, participants: Participants) -> None:
        exported = await self.home.memory.export(agent, participants=participants)
        self.tally.probes += 1
        for name, part in exported.items():
            text = orjson.dumps(part).decode()
            kept = name in ("blocks", "passages")
            self.judge.look(f"export of {agent}, {name}", text, present, kept=kept)

    async def _probe_context(self, agent: str, present: Present) -> None:
        names = [OWNER if one == OWNER else self.people[one].id for one in sorted(present.persons)]
        shown = await self.home.contexts.now(agent, present=names)
        self.tally.probes += 1
        for line in shown.lines:
            self.judge.look(f"context of {agent}, {line.part}", line.text, present)
        for message in shown.messages:
            self.judge.look(f"context of {agent}", message.decode(), present)

    async def _probe_errors(self, agent: str, present: Present) -> None:
        """What may not be heard is answered like what does not exist."""
        participants = await self._as_product(present)
        hidden = {
            "block": [
                seen.block.label
                for seen in await self.home.blocks.list(agent)
                if not participants.can_see(seen.block.audience)
            ],
            "passage": [
                one.id
                for one in await self.home.archive.list(agent, limit=500)
                if not participants.can_see(one.source.audience)
            ],
        }
        for kind, ids in hidden.items():
            if not ids:
                continue
            one = self.chance.choice(ids)
            ghost = "x" + one[1:] if kind == "block" else one[:-4] + "0000"
            for call in _ERRORS[kind]:
                pair: list[tuple[str, str]] = []
                for word in (one, ghost):
                    directive = call.replace("WORD", word)
                    _, results = await self._say(agent, present, directive, note="probe")
                    pair.append((word, results[-1][1]))
                self.tally.probes += 1
                same_but_for(pair, lambda told, call=call: self._tells(call, told))

    def _tells(self, call: str, told: str) -> None:
        raise AssertionError(
            f"In the world of seed {self.tally.seed} {call} tells what exists: {told}\n"
            + "\n".join(self.log)
        )


_ERRORS = {
    "block": [
        call_to("block", operation="load", label="WORD"),
        call_to("block", operation="pin", label="WORD"),
        call_to("block_edit", operation="append", label="WORD", content="more"),
        call_to("block_edit", operation="replace", label="WORD", old="a", content="b"),
    ],
    "passage": [
        call_to("recall", operation="read", id="WORD"),
        call_to("recall", operation="append", id="WORD", text="more"),
        call_to("recall", operation="retract", id="WORD"),
        call_to("recall", operation="insert", id="WORD", text="quite another matter altogether"),
    ],
}
