"""Who writes to memory, in what situation, and what the one decision says to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from asterism.errors import NotAllowed
from asterism.permissions import Act, Actor, Allow, Ask, Authority, Resource, Situation, decide
from asterism.types.memory import Origin, OriginKind, Permission, Source
from asterism.types.people import OWNER, OWNER_ALONE, PUBLIC, Participants, Trust, least_trusted


class NeedsConsent(Exception):
    """A person has to be asked before this is written; nothing was written."""

    def __init__(self, question: str, reviewers: tuple[str, ...]) -> None:
        super().__init__(question)
        self.question = question
        self.reviewers = reviewers


@dataclass(frozen=True, slots=True)
class Writer:
    """Everything the gate wants to know of whoever writes."""

    actor: Actor
    constellation: str
    source: Source
    """What it comes from, who may hear it, how far it is trusted."""
    now: int
    agent_id: str | None = None
    """The agent as which it is written: what it may see and do counts. None: the owner."""
    participants: Participants = OWNER_ALONE
    turn_id: str | None = None
    reason: str = ""
    consent: bool = False
    """Whether a person has approved this very write."""
    authority: Authority = field(default_factory=Authority)
    by_verb: bool = False
    """Whether somebody other than the owner writes with their own hands, by a verb that was judged
    when they used it."""

    @staticmethod
    def owner(constellation: str, now: int, *, by: str = "cli", reason: str = "") -> Writer:
        """Return the writer for what an owner does with their own hands."""
        return Writer(
            actor=Actor(OWNER, OWNER, OWNER),
            constellation=constellation,
            source=Source((Origin(OriginKind.PERSON, OWNER, by),), PUBLIC, Trust.OWNER),
            now=now,
            reason=reason,
        )

    @staticmethod
    def person(
        actor: Actor,
        constellation: str,
        participants: Participants,
        now: int,
        *,
        by: str = "api",
        reason: str = "",
    ) -> Writer:
        """Return the writer for what somebody other than the owner does with their own hands.

        It is theirs, and trusted as far as they are: nobody but the owner writes as the owner.
        """
        trust = least_trusted((actor.trust, Trust.KNOWN))
        return Writer(
            actor=replace(actor, trust=trust),
            constellation=constellation,
            source=Source((Origin(OriginKind.PERSON, actor.id, by),), PUBLIC, trust),
            now=now,
            participants=participants,
            reason=reason,
            by_verb=True,
        )

    def saying(self, source: Source) -> Self:
        """Return the same writer with something that comes from elsewhere, or others may hear."""
        return replace(self, source=source)


def judge(writer: Writer, act: Act, resource: Resource, what: str) -> None:
    """Return if the write may be made; else raise `NeedsConsent` or `NotAllowed`.

    `what` says for people what is to be done, such as "append to block 'human': likes tea".
    """
    if writer.by_verb:
        # Their roles were asked about the verb; what only the owner writes is still the owner's.
        writer = replace(writer, consent=True)
        resource = replace(resource, permission=Permission.ADMIN)
    verdict = decide(writer.actor, act, resource, Situation(writer.authority))
    match verdict:
        case Allow():
            return
        case Ask(reason, reviewers):
            if not writer.consent:
                raise NeedsConsent(f"{writer.actor.name} wants to {what} ({reason}).", reviewers)
        case _:
            raise NotAllowed(f"{verdict.reason} Nothing was changed.")
