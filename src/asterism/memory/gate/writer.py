"""Who writes to memory, in what situation, what they see of it, and what the decision says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

from asterism.errors import NotAllowed
from asterism.memory import blocks as rows
from asterism.memory.blocks import BlockRow
from asterism.permissions import Act, Actor, Allow, Ask, Authority, Resource, Situation, decide
from asterism.store.database import Connection
from asterism.types.agents import (
    OWNER,
    OWNER_ALONE,
    PUBLIC,
    Audience,
    Participants,
    Trust,
    least_trusted,
)
from asterism.types.memory import CONSTELLATION, Origin, OriginKind, Permission, Source


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
    """What it comes from, who may see it, how far it is trusted."""
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
        """Return the same writer with something that comes from elsewhere, or others may see."""
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


def by_owner(writer: Writer) -> bool:
    """Tell whether the owner writes, or a rule of theirs, who see everything."""
    return writer.actor.kind in (OWNER, "system")


def can_see(writer: Writer, audience: Audience) -> bool:
    """Tell whether a writer sees what has this audience, with those who are present."""
    return by_owner(writer) or writer.participants.can_see(audience)


async def resource_for(tx: Connection, writer: Writer, row: BlockRow) -> Resource:
    """Return a block as the decision sees it: with what the writer may do to it."""
    permission: str | None = None
    if by_owner(writer) or writer.by_verb:
        permission = Permission.ADMIN.value
    elif writer.agent_id is not None and writer.actor.kind == "agent":
        if writer.agent_id == row.owner_id:
            permission = row.permission
        else:
            permission = await rows.share_of(tx, row.id, writer.agent_id)
            if permission is None and row.owner_id == CONSTELLATION:
                permission = row.permission
    return Resource("block", row.label, Permission(permission) if permission else None)
