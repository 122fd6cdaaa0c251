"""Conversations with questions about them: made up from a seed, or read from a file."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.dialogue_words import (
    ADVICE,
    BESIDE,
    CHAT,
    CHAT_OF_AGENT,
    EVENTS,
    FACTS,
    PEOPLE,
    TOPICS,
    Advice,
    Event,
    Fact,
)

APART = frozenset({"adversarial", "abstention", "summarization", "event_ordering"})
"""Questions that no message answers, or that need the whole history: not in the overall figure."""
_BEGIN = datetime(2025, 2, 3, 18, 0, tzinfo=UTC)
_SESSIONS = 8
_AGO = {1: "yesterday", 3: "three days ago", 7: "a week ago", 14: "two weeks ago"}


@dataclass(frozen=True, slots=True)
class Message:
    """Something said; `user` is the owner of an agent and `assistant` the agent."""

    id: str
    speaker: str
    text: str
    time: datetime


@dataclass(frozen=True, slots=True)
class Session:
    """Messages of one sitting, in order of time."""

    id: str
    time: datetime
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and the messages that answer it."""

    id: str
    text: str
    category: str
    gold: list[str]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Sessions, and questions that are asked after the last of them."""

    id: str
    sessions: list[Session]
    questions: list[Question]

    @property
    def messages(self) -> list[Message]:
        """All messages in order."""
        return [one for session in self.sessions for one in session.messages]


def load(path: Path) -> list[Conversation]:
    """Read conversations from JSON, as harnesses for memory keep them."""
    when = datetime.fromisoformat
    given: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return [
        Conversation(
            one["id"],
            [
                Session(
                    part["id"],
                    when(part["time"]),
                    [
                        Message(said["id"], said["speaker"], said["text"], when(said["time"]))
                        for said in part["messages"]
                    ],
                )
                for part in one["sessions"]
            ],
            [
                Question(asked["id"], asked["text"], asked["category"], asked["gold"])
                for asked in one["queries"]
            ],
        )
        for one in given
    ]


def made(seed: int = 5) -> list[Conversation]:
    """Return four conversations: two between friends, two of an owner with an agent."""
    dice = random.Random(seed)
    names = dice.sample(PEOPLE, 4)
    return [
        _Scene(dice, "friends-1", names[:2]).conversation(),
        _Scene(dice, "friends-2", names[2:]).conversation(),
        _Scene(dice, "agent-1", ["user", "assistant"]).conversation(),
        _Scene(dice, "agent-2", ["user", "assistant"]).conversation(),
    ]


@dataclass(slots=True)
class _Line:
    speaker: str
    text: str
    key: str = ""
    """What questions know it by."""


@dataclass(slots=True)
class _Asked:
    text: str
    category: str
    keys: list[str]


@dataclass(slots=True)
class _Scene:
    """One conversation in the making."""

    dice: random.Random
    id: str
    names: list[str]
    lines: list[list[_Line]] = field(default_factory=list[list[_Line]])
    asked: list[_Asked] = field(default_factory=list[_Asked])

    def conversation(self) -> Conversation:
        self.lines = [[] for _ in range(_SESSIONS)]
        tellers = self.names if self.names[1] != "assistant" else self.names[:1]
        facts = self.dice.sample(FACTS, 9)
        events = self.dice.sample(EVENTS, 8)
        for teller in tellers:
            for fact in facts:
                self._tell_fact(teller, fact)
        # Each event happens to one only, or the question would have two answers.
        for number, event in enumerate(events):
            self._tell_event(tellers[number % len(tellers)], event)
        if "assistant" in self.names:
            for advice in self.dice.sample(ADVICE, 7):
                self._advise(advice)
        return self._written()

    def _day(self, session: int) -> datetime:
        return _BEGIN + timedelta(days=11 * session)

    def _tell_fact(self, teller: str, fact: Fact) -> None:
        """Let somebody say a thing about themselves; both friends have one, so the name decides."""
        value = self.dice.choice(fact.values)
        key = f"{teller}/{fact.says}"
        text = fact.says.format(value)
        self.dice.choice(self.lines).append(_Line(teller, text, key))
        category = self.dice.choice(("plain", "plain", "reworded"))
        form = fact.asks if category == "plain" else fact.reworded
        self.asked.append(_Asked(form.format(**_grammar(teller)), category, [key]))

    def _tell_event(self, teller: str, event: Event) -> None:
        """Let somebody tell what they did; a question names it by the day, or asks for the day."""
        session = self.dice.randrange(_SESSIONS)
        days, ago = self.dice.choice(list(_AGO.items()))
        key = f"{teller}/{event.did}"
        self.lines[session].append(_Line(teller, f"{ago.capitalize()} I {event.did}.", key))
        who = _grammar(teller)["who"]
        if self.dice.random() < 0.5:
            self.asked.append(_Asked(f"When did {who} {event.do}?", "when", [key]))
        else:
            day = self._day(session) - timedelta(days=days)
            asked = f"What did {who} do on {day:%B} {day.day}, {day.year}?"
            self.asked.append(_Asked(asked, "on a day", [key]))
        other = self.dice.randrange(_SESSIONS)
        if other != session and self.dice.random() < 0.4:
            again = f"{key}/again"
            self.lines[other].append(_Line(teller, event.again, again))
            self.asked.append(_Asked(event.asks.format(**_grammar(teller)), "both", [key, again]))

    def _advise(self, advice: Advice) -> None:
        """Let the agent answer something, which is asked for again later."""
        key = f"agent/{advice.wish}"
        self.dice.choice(self.lines).extend(
            [_Line("user", advice.wish), _Line("assistant", advice.answer, key)]
        )
        self.asked.append(_Asked(advice.asks, "the agent's", [key]))

    def _written(self) -> Conversation:
        """Put small talk between what matters, and give everything its time and id."""
        sessions: list[Session] = []
        ids: dict[str, str] = {}
        for number, lines in enumerate(self.lines):
            time = self._day(number)
            session = Session(f"S{number + 1}", time, [])
            for line in self._with_chat(lines):
                one = f"S{number + 1}:{len(session.messages) + 1}"
                at = time + timedelta(seconds=30 * len(session.messages))
                session.messages.append(Message(one, line.speaker, line.text, at))
                if line.key:
                    ids[line.key] = one
            sessions.append(session)
        questions = [
            Question(f"{self.id}/q{number}", one.text, one.category, [ids[key] for key in one.keys])
            for number, one in enumerate(self.asked, 1)
        ]
        return Conversation(self.id, sessions, questions)

    def _with_chat(self, lines: list[_Line]) -> Iterator[_Line]:
        dice = self.dice
        yield _Line(self.names[0], dice.choice(CHAT))
        replies = CHAT_OF_AGENT if "assistant" in self.names else CHAT
        for line in lines:
            yield line
            if line.speaker != "assistant" and not (line.speaker == "user" and not line.key):
                other = self.names[1] if line.speaker == self.names[0] else self.names[0]
                yield _Line(other, dice.choice(replies))
            for _ in range(dice.randrange(4)):
                beside = dice.choice(BESIDE).format(dice.choice(TOPICS))
                yield _Line(self.names[0], dice.choice((beside, beside, dice.choice(CHAT))))
                yield _Line(self.names[1], dice.choice(replies))


def _grammar(teller: str) -> dict[str, str]:
    """Return how a question speaks of somebody; the owner asks for themselves."""
    if teller == "user":
        return {"who": "I", "whose": "my", "do": "do", "have": "have"}
    return {"who": teller, "whose": f"{teller}'s", "do": "does", "have": "has"}


def zipf_messages(count: int, seed: int = 5, words: int = 20) -> list[str]:
    """Return texts of a natural distribution of made-up words, for measuring speed and size."""
    dice = random.Random(seed)
    syllables = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]
    known = list(
        dict.fromkeys("".join(dice.choices(syllables, k=dice.randint(1, 4))) for _ in range(30_000))
    )
    # Most of what people say is made of few words: the rank's inverse is how often one is said.
    weights = [1 / (rank + 2) for rank in range(len(known))]
    sizes = [max(3, round(dice.gauss(words, words / 3))) for _ in range(count)]
    said = iter(dice.choices(known, weights, k=sum(sizes)))
    return [" ".join(next(said) for _ in range(size)) + "." for size in sizes]
