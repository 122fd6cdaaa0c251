"""Who said what: the labels of texts, the persons behind them, and the names they go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from asterism.memory.search.stored import AGENT, PERSON
from asterism.store import agents, people
from asterism.store.database import Connection
from asterism.types.people import OWNER, Account, Participants

_SHORTEST_NAME = 2
_MOST_AGENTS = 40


@dataclass(slots=True)
class Speakers:
    """Those who speak in some texts."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Who is behind each label: a person's id, `agent`, or the label of somebody unknown."""
    shown: dict[str, str] = field(default_factory=dict[str, str])
    """The name to show, by label."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Names in lower case by which a question may mean somebody, each with who that is."""

    def add(self, label: str, id: str, shown: str, *also: str) -> None:
        """Note who is behind a label, and by what names they go."""
        self.ids[label], self.shown[label] = id, shown
        names = [*(shown, *also), *(one.split()[0] for one in (shown, *also) if one.split())]
        for name in names:
            if len(name) >= _SHORTEST_NAME:
                self.names.setdefault(name.casefold(), id)

    def meant_by(self, who: str) -> frozenset[str]:
        """Return the labels of those who go by a name, an id or an account."""
        wanted = " ".join(who.split()).casefold()
        return frozenset(
            label
            for label, id in self.ids.items()
            if wanted in (id.casefold(), label.casefold(), self.shown[label].casefold())
            or self.names.get(wanted) == id
        )


async def speakers_of(
    tx: Connection, constellation: str, labels: Sequence[str], agent_ids: Sequence[str]
) -> Speakers:
    """Find out who is behind the labels of texts of some agents."""
    found = Speakers()
    called: list[str] = []
    if AGENT in labels and len(agent_ids) <= _MOST_AGENTS:
        called = [one.name for id in agent_ids if (one := await agents.by_id(tx, id)) is not None]
    accounts = {
        label: Account(*label.split(":", 1)) for label in dict.fromkeys(labels) if ":" in label
    }
    known = await people.behind(tx, constellation, list(accounts.values())) if accounts else {}
    for label, account in accounts.items():
        if account.channel == PERSON and account not in known:
            person = await people.get(tx, constellation, account.sender)
            if person is not None:
                found.add(label, person.id, person.name)
                continue
        id, name = known.get(account, (label, label))
        # Strangers are named after their account, of which the channel says nothing.
        found.add(label, id, account.sender if name == label else name, account.sender)
    if AGENT in labels:
        found.add(AGENT, AGENT, called[0] if len(called) == 1 else AGENT, *called)
    if OWNER in labels:
        owner = await people.get(tx, constellation, OWNER)
        found.add(OWNER, OWNER, owner.name if owner is not None else OWNER)
    return found


def asker_of(participants: Participants) -> str | None:
    """Return who says `I` in a question, as far as that is one of those present."""
    if participants.owner_alone:
        return OWNER
    return participants.people[0].person_id if len(participants.people) == 1 else None
