"""Who writes to memory, in what situation, and what they may change of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Self

from asterism.errors import NotAllowed
from asterism.memory import blocks as rows
from asterism.memory.blocks import BlockRow, is_heading
from asterism.memory.content import HEADING
from asterism.memory.edits import BlockContent, ContentEdit
from asterism.memory.texts import EditStamp, carry
from asterism.permissions import Act, Actor, Allow, Ask, Authority, Resource, Situation, decide
from asterism.records import dataclass
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
from asterism.types.memory import (
    CONSTELLATION,
    Add,
    CompositeSchema,
    Line,
    MapSchema,
    Origin,
    OriginKind,
    Permission,
    RemoveItem,
    Schema,
    SetField,
    SetText,
    Source,
)


class WriteNeedsApproval(Exception):
    """A person has to be asked before this is written; nothing was written."""

    def __init__(self, question: str, reviewers: tuple[str, ...]) -> None:
        super().__init__(question)
        self.question = question
        self.reviewers = reviewers


@dataclass(frozen=True, slots=True)
class Writer:
    """Everything that the gate has to know about the writer."""

    actor: Actor
    source: Source
    """The origin, audience and trust of the text."""
    now: int
    agent_id: str | None = None
    """The agent that writes; its rights count. None: the owner."""
    participants: Participants = OWNER_ALONE
    turn_id: str | None = None
    reason: str = ""
    approved: bool = False
    """Whether a person has approved this very write."""
    authority: Authority = field(default_factory=Authority)
    by_verb: bool = False
    """Whether somebody other than the owner writes with their own hands, by a verb that was judged
    when they used it."""

    @staticmethod
    def owner(now: int, *, by: str = "cli", reason: str = "") -> Writer:
        """Return the writer for what an owner does with their own hands."""
        return Writer(
            actor=Actor(OWNER, OWNER, OWNER),
            source=Source((Origin(OriginKind.PERSON, OWNER, by),), PUBLIC, Trust.OWNER),
            now=now,
            reason=reason,
        )

    @staticmethod
    def person(
        actor: Actor,
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
            source=Source((Origin(OriginKind.PERSON, actor.id, by),), PUBLIC, trust),
            now=now,
            participants=participants,
            reason=reason,
            by_verb=True,
        )

    def with_source(self, source: Source) -> Self:
        """Return the same writer with something that comes from elsewhere, or others may see."""
        return replace(self, source=source)


def judge(writer: Writer, act: Act, resource: Resource, what: str) -> None:
    """Raise `WriteNeedsApproval` or `NotAllowed` unless the write may be made.

    `what` describes the write for people, such as "append to block 'human': likes tea".
    """
    if writer.by_verb:
        # Their roles were asked about the verb; what only the owner writes is still the owner's.
        writer = replace(writer, approved=True)
        resource = replace(resource, permission=Permission.ADMIN)
    verdict = decide(writer.actor, act, resource, Situation(writer.authority))
    match verdict:
        case Allow():
            return
        case Ask(reason, reviewers):
            if not writer.approved:
                raise WriteNeedsApproval(
                    f"{writer.actor.name} wants to {what} ({reason}).", reviewers
                )
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


# -- edits of blocks that the writer sees in part --------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    """The lines of a whole document, or of one section, and the schema they are under."""

    schema: Schema
    begin: int
    end: int


def _part(schema: Schema, lines: Sequence[Line], section: str | None) -> _Part | None:
    if not isinstance(schema, CompositeSchema):
        return _Part(schema, 0, len(lines)) if section is None else None
    for part in schema.sections:
        if part.name == section:
            begin = [line.text for line in lines].index(HEADING + part.name) + 1
            rest = (at for at in range(begin, len(lines)) if is_heading(schema, lines[at].text))
            return _Part(part.schema, begin, next(rest, len(lines)))
    return None


def make(
    content: BlockContent,
    lines: Sequence[Line],
    seen: Sequence[bool],
    edit: ContentEdit,
    stamp: EditStamp,
    now: int,
    limit: int,
) -> list[Line]:
    """Make an edit in a document and return its lines after it.

    Args:
        content: The document.
        lines: Its lines before.
        seen: Which of them the writer sees. Places and texts in the edit mean these lines only.
        edit: The edit.
        stamp: The number and label for the lines of this edit.
        now: The moment in ms.
        limit: How many characters a replacement may make.
    """
    if not all(seen):
        _check_hidden_fields(content.schema, lines, seen, edit)
        content.apply(edit, now=now, seen=seen, limit=limit)
    else:
        content.apply(edit, now=now, limit=limit)
    visible = [line for line, is_seen in zip(lines, seen, strict=True) if is_seen]
    hidden = [line for line, is_seen in zip(lines, seen, strict=True) if not is_seen]
    after = content.lines()
    places = _places([line.text for line in hidden], after)
    texts = [text for at, text in enumerate(after) if at not in places]
    if isinstance(edit, RemoveItem) and len(texts) == len(visible) - 1:
        part = _part(content.schema, lines, edit.section)
        begin = sum(seen[: part.begin]) if part is not None else 0
        del visible[begin + edit.index - 1]
    carried = iter(_carry_by_line(visible, texts, stamp))
    return [hidden[places[at]] if at in places else next(carried) for at in range(len(after))]


def _places(hidden: Sequence[str], after: Sequence[str]) -> dict[int, int]:
    """Return where the hidden lines are after an edit, which must have left them all in order.

    Of several lines that say the same, any will do.
    """
    places: dict[int, int] = {}
    for at, text in enumerate(after):
        if len(places) < len(hidden) and text == hidden[len(places)]:
            places[at] = len(places)
    if len(places) < len(hidden):
        raise _hidden_lines_error()
    return places


def _check_hidden_fields(
    schema: Schema, lines: Sequence[Line], seen: Sequence[bool], edit: ContentEdit
) -> None:
    """Refuse an edit that would overwrite hidden fields, even if it would not change them.

    Otherwise a refusal would reveal whether a guess is right.
    """
    part = _part(schema, lines, edit.section)
    if part is None:
        if isinstance(edit, SetText):
            raise _hidden_lines_error()
        return
    if not isinstance(part.schema, MapSchema):
        return
    names = [field.name for field in part.schema.fields]
    hidden = {name for at, name in enumerate(names) if not seen[part.begin + at]}
    touched = {edit.field} if isinstance(edit, SetField | Add) else set(names)
    if hidden & touched:
        raise _hidden_lines_error()


def _carry_by_line(old: Sequence[Line], new: Sequence[str], stamp: EditStamp) -> list[Line]:
    """Carry line by line where lines keep their places, as fields and items do."""
    if len(old) != len(new):
        return carry(old, new, stamp)
    apart = [at for at, line in enumerate(old) if line.text != new[at]]
    if len(apart) > 1:
        return carry(old, new, stamp)
    result = list(old)
    for at in apart:
        result[at] = carry([old[at]], [new[at]], stamp)[0]
    return result


def check_hidden_lines(hidden: Sequence[Line], after: Sequence[Line]) -> None:
    """Raise `NotAllowed` unless all lines that the writer does not see are there as they were."""
    rest = iter(after)
    if not all(any(line == other for other in rest) for line in hidden):
        raise _hidden_lines_error()


def _hidden_lines_error() -> NotAllowed:
    return NotAllowed(
        "This part of the block cannot be changed with these people present. Change another part, "
        "or do it when you talk with the owner alone. Nothing was changed."
    )
