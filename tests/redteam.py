"""A red team for audiences: a judge with rules of its own, and a model that tells what it hears.

Every memory of a generated world holds a canary, a word that is nowhere else. The judge knows who
may see each one, by rules that are written down here once more and share nothing with the product.
The model is the worst there could be: whatever it writes, it quotes canaries that it was shown.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from asterism.ports import ModelRequest
from asterism.testing.scripted import ScriptedModel
from asterism.turns.turn import WITHHELD
from asterism.types.turns import Reply
from tests.servers.openai_server import answer_by_directives

OWNER = "owner"
CANARY = re.compile(r"zq[bcdfghjklmnpqrstvwxz]{9}")
STAMP = re.compile(r"(?<=^\[asterism\] )\[[^\]]*\] ")
KEPT = re.compile(r"kept:(zq[bcdfghjklmnpqrstvwxz]{9})")
"""The form in which only the owner writes a canary: the memory itself, not talk about it."""
BLOCK = re.compile(r"<block .*?</block>", re.DOTALL)
GOSSIP = "GOSSIP"
"""Where in a call's arguments the model puts canaries that it was shown."""
_QUOTED = 5
_DIRECT = ("recall", "block")
"""Tools whose results are memories themselves, not what was once said."""

_RECALLED = "[asterism] From your memory"
_TALK = ("turn_", "summary")
"""How recalled pieces begin that are talk about memories, not memories themselves."""

Rule = tuple[frozenset[str], ...]
"""Who may see something: those named by a word of every clause."""


def read_rule(audience: str) -> Rule:
    """Return the rule that the text of an audience means."""
    return tuple(frozenset(clause.split("|")) for clause in audience.split("&"))


@dataclass(frozen=True)
class Present:
    """Who takes part in a turn, by the keys of a world."""

    persons: frozenset[str]
    room: str | None = None

    @property
    def rule(self) -> Rule:
        """Who may see what is said here: in a room its members, else those who are present."""
        if self.room is not None:
            return (frozenset({f"room:{self.room}"}),)
        return (frozenset(f"person:{one}" for one in self.persons),)


@dataclass(frozen=True)
class Leak:
    """A canary that somebody was told who may not see it."""

    where: str
    canary: str
    person: str
    told: str
    """What it was told in."""

    def __str__(self) -> str:
        at = self.told.find(self.canary)
        around = self.told[max(0, at - 160) : at + 60]
        return f"{self.where}: {self.person} must not see {self.canary}, told in …{around!r}…"


@dataclass
class Reach:
    """Where a canary must be found, and by whom."""

    agents: frozenset[str]
    then: Present | None = None
    """Those who were there; None: whoever the rule names."""


class Judge:
    """Knows who is who, and decides by itself who may see what."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._who: dict[str, str] = {}
        self.roles: defaultdict[str, set[str]] = defaultdict(set)
        self.members: defaultdict[str, set[str]] = defaultdict(set)
        self.rules: dict[str, Rule] = {}
        self.former: defaultdict[str, list[Rule]] = defaultdict(list)
        """What was said while another rule held may be heard by those whom that one names."""
        self.notes: dict[str, str] = {}
        self.heard: defaultdict[str, set[str]] = defaultdict(set)
        self.reach: dict[str, Reach] = {}
        self.openings: dict[str, Present] = {}
        self.leaks: list[Leak] = []
        self.looked_at = 0

    # -- what there is -------------------------------------------------------------------------

    def new(self, rule: Rule, note: str = "") -> str:
        """Return a new canary that those named by a rule may see."""
        canary = "zq" + "".join(self._chance.choices("bcdfghjklmnpqrstvwxz", k=9))
        self.rules[canary] = rule
        self.notes[canary] = note
        return canary

    def set_rule(self, canary: str, rule: Rule) -> None:
        """Say anew who may see a memory, which does not unsay what was said of it."""
        self.former[canary].append(self.rules[canary])
        self.rules[canary] = rule

    def merge(self, kept: str, gone: str) -> None:
        """Make one person of two."""
        self._who[gone] = kept
        self.roles[kept] |= self.roles.pop(gone, set())
        for members in self.members.values():
            if gone in members:
                members.discard(gone)
                members.add(kept)

    def who(self, person: str) -> str:
        """Return who a person is by now."""
        while person in self._who:
            person = self._who[person]
        return person

    # -- who may see --------------------------------------------------------------------------

    def _is_named(self, person: str, word: str, room: str | None) -> bool:
        kind, _, name = word.partition(":")
        if kind == "room":
            return name == room or person in self.members[name]
        if kind == "role":
            return name in self.roles[person]
        return kind == "public" or (kind == "person" and self.who(name) == person)

    def can_see(
        self, person: str, canary: str, room: str | None = None, *, kept: bool = False
    ) -> bool:
        """Tell whether a person may see a canary; what they were told once, they know.

        With `kept`, whether they may see the memory itself, which somebody who once heard of it
        may not if the owner has decided otherwise since.
        """
        person = self.who(person)
        if person == OWNER:
            return True
        if not kept and person in {self.who(one) for one in self.heard[canary]}:
            return True
        rules = [self.rules[canary], *(() if kept else self.former[canary])]
        return any(
            all(any(self._is_named(person, word, room) for word in clause) for clause in rule)
            for rule in rules
        )

    def everybody(self, present: Present) -> set[str]:
        """Return all who see what is said: those present and, in a room, its members."""
        persons = {self.who(one) for one in present.persons}
        return persons | self.members[present.room] if present.room is not None else persons

    def look(self, where: str, text: str, present: Present, *, kept: bool = False) -> set[str]:
        """Hold a text against what those present may see; return the canaries in it."""
        found = set(CANARY.findall(text))
        strictly = set(KEPT.findall(text)) if kept else set[str]()
        for canary in found:
            for person in self.everybody(present):
                self.looked_at += 1
                if canary not in self.rules or not self.can_see(
                    person, canary, present.room, kept=canary in strictly
                ):
                    note = self.notes.get(canary, "")
                    self.leaks.append(Leak(f"{where} [{note}]", canary, person, text))
        return found

    def is_within_reach(self, canary: str, agent: str, present: Present) -> bool:
        """Tell whether a search for a canary must find it for these."""
        reach = self.reach.get(canary)
        if reach is None or agent not in reach.agents:
            return False
        persons = self.everybody(present) - {OWNER}
        if reach.then is None:
            return all(self.can_see(one, canary, present.room, kept=True) for one in persons)
        there = {self.who(one) for one in reach.then.persons}
        return all(
            one in there
            and self.can_see(one, canary, kept=True)
            and (reach.then.room is None or one in self.members[reach.then.room])
            for one in persons
        )


@dataclass
class Gossip:
    """The rule of a model that obeys, quotes whatever it was shown, and lets the judge look on."""

    judge: Judge
    chance: random.Random
    results: dict[str, list[tuple[str, str]]] = field(
        default_factory=dict[str, list[tuple[str, str]]]
    )
    """What calls gave, with the names of their tools, by the canary that opened their turn."""
    withheld: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Turns that were not told what opened them, so that the world has to say who was present."""
    requests: int = 0
    recalled: int = 0
    """How many memories came by themselves."""
    _compactions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What was read for summaries in turns of which it is not known yet who is present."""

    def model(self) -> ScriptedModel:
        """Return the model."""
        return ScriptedModel.from_rule(self._answer)

    def _answer(self, request: ModelRequest) -> Reply | str:
        self.requests += 1
        turn_id = request.key.partition("/")[0]
        whole = b"\n".join(request.messages).decode()
        if "/compact/" in request.key:
            self._compactions.setdefault(turn_id, []).append(whole)
            seen = sorted(set(CANARY.findall(whole)))
            return f"They spoke of {' and '.join(seen) or 'nothing'}."
        messages: list[dict[str, Any]] = [orjson.loads(wire) for wire in request.messages]
        if STAMP.sub("", messages[-1]["content"]) == WITHHELD:
            self.withheld.append((turn_id, whole))
            return "Well."
        canary = self._watch(messages)
        seen = self._look(turn_id, messages, canary)
        reply = answer_by_directives({"messages": messages})
        if not reply.calls:
            return f"I know {self._quote(seen)}."
        call = reply.calls[0]
        arguments = call.arguments.replace(GOSSIP, self._quote(seen))
        return Reply(calls=(type(call)(call.id, call.name, arguments),), finish="tool_calls")

    def _quote(self, seen: Iterable[str]) -> str:
        known = sorted(seen)
        return " and ".join(self.chance.sample(known, min(_QUOTED, len(known)))) or "nothing"

    def _watch(self, messages: Sequence[dict[str, Any]]) -> str:
        """Return the canary of the message that opened the turn, and note what its calls gave."""
        opening = self._opening(messages)
        found = CANARY.search(messages[opening]["content"])
        assert found is not None, messages[opening]
        names = {
            call["id"]: call["function"]["name"]
            for message in messages[opening:]
            for call in message.get("tool_calls") or ()
        }
        self.results[found[0]] = [
            (names[message["tool_call_id"]], message["content"])
            for message in messages[opening:]
            if message["role"] == "tool"
        ]
        return found[0]

    @staticmethod
    def _opening(messages: Sequence[dict[str, Any]]) -> int:
        return max(
            at
            for at, message in enumerate(messages)
            if message["role"] == "user" and not message["content"].startswith("[asterism]")
        )

    def _recalled(self, messages: Sequence[dict[str, Any]]) -> list[str]:
        """Return what was put before the message that opened the turn, piece by piece."""
        last = self._opening(messages) - 1
        note = str(messages[last]["content"]) if last > 0 else ""
        if not note.startswith(_RECALLED):
            return []
        return note.partition("\n- ")[2].split("\n- ")

    def _look(self, turn_id: str, messages: Sequence[dict[str, Any]], canary: str) -> set[str]:
        judge, present = self.judge, self.judge.openings[canary]
        seen: set[str] = set()
        # Only now is it known who was present when this was read for a summary.
        for read in self._compactions.pop(turn_id, []):
            judge.look(f"summary in {turn_id}", read, present)
        for block in BLOCK.findall(messages[0]["content"]):
            seen |= judge.look(f"prefix in {turn_id}", block, present, kept=True)
        for name, content in self.results[canary]:
            seen |= judge.look(f"{name} in {turn_id}", content, present, kept=name in _DIRECT)
        for line in self._recalled(messages):
            self.recalled += 1
            kept = not line.startswith(_TALK)
            seen |= judge.look(f"recalled in {turn_id}", line, present, kept=kept)
        for message in messages:
            seen |= judge.look(f"{message['role']} in {turn_id}", str(message), present)
        for one in seen:
            judge.heard[one] |= judge.everybody(present)
        return seen


def same_but_for(texts: Sequence[tuple[str, str]], differs: Callable[[str], None]) -> None:
    """Hold texts against each other, apart from a word that is in each of them."""
    told = {re.sub(rf"\b{re.escape(word)}\b", "…", text) for word, text in texts}
    if len(told) > 1:
        differs(" / ".join(sorted(told)))
