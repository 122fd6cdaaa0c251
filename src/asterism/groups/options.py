"""Reading the options of a pattern: each with its kind, its bounds and its default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, cast

from asterism.errors import InvalidInput
from asterism.ports import MemberOptionsPattern, Pattern
from asterism.types.groups import (
    AskedQuestion,
    GroupMember,
    GroupRecord,
    GroupState,
    QuestionState,
    find_member,
)

MAX_NUMBER = 10_000
OUTCOMES = {
    QuestionState.FAILED: "failed",
    QuestionState.STOPPED: "was stopped",
    QuestionState.TIMEOUT: "took too long",
    QuestionState.UNAVAILABLE: "is not available",
}


class PatternOptions:
    """The options of a pattern, read one after the other; what is left over is a mistake."""

    def __init__(self, pattern: str, options: Mapping[str, Any]) -> None:
        self._pattern = pattern
        self._left = dict(options)
        self.read: dict[str, Any] = {}

    def _take(self, name: str) -> Any:
        return self._left.pop(name, None)

    def fault(self, name: str, value: Any, wanted: str) -> InvalidInput:
        """Return the error for an option that is not valid."""
        return InvalidInput(
            f"{name} of the pattern {self._pattern} is {value!r}; {wanted} is needed. "
            "Nothing was changed."
        )

    def text(self, name: str) -> None:
        """Read a text, such as the name of a member."""
        value = self._take(name)
        if value is None:
            return
        if not isinstance(value, str) or not value.strip():
            raise self.fault(name, value, "a text")
        self.read[name] = value.strip()

    def choice(self, name: str, *values: str) -> None:
        """Read one of some words."""
        value = self._take(name)
        if value is None:
            return
        if value not in values:
            raise self.fault(name, value, f"one of {', '.join(values)}")
        self.read[name] = value

    def flag(self, name: str) -> None:
        """Read true or false."""
        value = self._take(name)
        if value is None:
            return
        if not isinstance(value, bool):
            raise self.fault(name, value, "true or false")
        self.read[name] = value

    def count(self, name: str, least: int = 1, most: int = MAX_NUMBER) -> None:
        """Read a whole number."""
        value = self._take(name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.fault(name, value, f"a whole number from {least} to {most}")
        self.read[name] = value

    def number(self, name: str, least: float, most: float) -> None:
        """Read a number, such as seconds."""
        value = self._take(name)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(name, value, f"a number from {least:g} to {most:g}")
        if not least <= value <= most:
            raise self.fault(name, value, f"a number from {least:g} to {most:g}")
        self.read[name] = value

    def texts(self, name: str, least: int = 1) -> None:
        """Read a list of texts."""
        value = self._take(name)
        if value is None:
            return
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        if not isinstance(value, list | tuple):
            raise self.fault(name, value, "a list of texts")
        items = cast("Sequence[Any]", value)
        texts = [item.strip() for item in items if isinstance(item, str) and item.strip()]
        if len(texts) < len(items) or len(texts) < least:
            raise self.fault(name, value, f"a list of {least} or more texts")
        self.read[name] = texts

    def tables(self, name: str) -> list[dict[str, Any]]:
        """Return a list of tables, for the caller to read."""
        value = self._take(name)
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            raise self.fault(name, value, "a list of tables")
        tables = cast("Sequence[Any]", value)
        if not all(isinstance(table, Mapping) for table in tables):
            raise self.fault(name, value, "a list of tables")
        return [dict(cast("Mapping[str, Any]", table)) for table in tables]

    def done(self) -> dict[str, Any]:
        """Return what was read, unless an option is left that the pattern does not know."""
        if self._left:
            name = next(iter(self._left))
            raise InvalidInput(
                f"{name!r} is not an option of the pattern {self._pattern}. Leave it out, or "
                "correct its name. Nothing was changed."
            )
        return self.read


def change_members(
    pattern: MemberOptionsPattern, options: Mapping[str, Any], change: Callable[[str], str]
) -> Mapping[str, Any]:
    """Return options with another text wherever they may name a member."""

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(item) for item in cast("list[Any]", value)]
        return change(value) if isinstance(value, str) else value

    def changed(value: Any, path: Sequence[str]) -> Any:
        if not path:
            return renamed(value)
        if isinstance(value, list):
            return [changed(item, path) for item in cast("list[Any]", value)]
        if not isinstance(value, Mapping) or path[0] not in value:
            return cast("Any", value)
        table = cast("Mapping[str, Any]", value)
        return {**table, path[0]: changed(table[path[0]], path[1:])}

    for path in pattern.member_options:
        options = changed(options, path.split("."))
    return options


def rename_in_options(
    pattern: MemberOptionsPattern, group: GroupRecord, agent_id: str, name: str
) -> Mapping[str, Any]:
    """Return the options of a group with another name for a member, wherever they name it."""

    def renamed(value: str) -> str:
        member = find_member(group.members, value)
        named = member is not None and member.agent_id == agent_id and value != agent_id
        return name if named else value

    return change_members(pattern, group.options, renamed)


def named_members(pattern: Pattern, group: GroupRecord) -> dict[str, str]:
    """Return the ids of the members that options of a group name, by how they are named there."""
    named: dict[str, str] = {}

    def note(value: str) -> str:
        if (member := find_member(group.members, value)) is not None:
            named[value] = member.agent_id
        return value

    if isinstance(pattern, MemberOptionsPattern):
        change_members(pattern, group.options, note)
    return named


def with_names_of_now(
    pattern: Pattern, options: Mapping[str, Any], named: Mapping[str, str], group: GroupRecord
) -> Mapping[str, Any]:
    """Return options from earlier with the names that the members they mean have now."""
    names = {member.agent_id: member.name for member in group.members}

    def renamed(value: str) -> str:
        agent_id = named.get(value)
        if agent_id is None:
            return value
        if agent_id in names:
            return names[agent_id]
        # It has left. If another one has its name now, that one is not meant.
        return value if find_member(group.members, value) is None else agent_id

    if not isinstance(pattern, MemberOptionsPattern):
        return options
    return change_members(pattern, options, renamed)


def check_members_named(pattern: str, names: Iterable[str], known: Iterable[str], who: str) -> None:
    """Raise `InvalidInput` if options of a pattern name somebody who is not there.

    Args:
        pattern: The pattern.
        names: The names in its options.
        known: The names and ids that may stand there.
        who: Whom the options may name, such as `an agent`.
    """
    there = list(known)
    spelled = {name.casefold() for name in there}
    for name in names:
        if name.strip().casefold() not in spelled:
            near = get_close_matches(name, there, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidInput(
                f"The options of the pattern {pattern} name {name!r}, which is not {who}.{hint} "
                "Correct the name, or add that agent first. Nothing was changed."
            )


def names_in_options(pattern: object, options: Mapping[str, Any]) -> list[str]:
    """Return the names of members in the options of a pattern, wherever it declares them."""
    found: list[str] = []

    def note(value: str) -> str:
        found.append(value)
        return value

    if isinstance(pattern, MemberOptionsPattern):
        change_members(pattern, options, note)
    return found


def from_speaker(state: GroupState) -> str:
    """Return the message that opened the turn as a member reads it."""
    return f"[group {state.group.name}, from {state.speaker}] {state.message}"


def with_names(answers: Sequence[AskedQuestion]) -> str:
    """Return answers as one text; with more than one, each with who gave it."""
    if len(answers) == 1:
        return answers[0].answer
    return "\n\n".join(f"{asked.name}: {asked.answer}" for asked in answers)


def problem_of(asked: AskedQuestion) -> str:
    """Say in words why a question has no answer."""
    what = OUTCOMES.get(asked.state, asked.state.value)
    return f"{asked.name} {what}: {asked.answer}" if asked.answer else f"{asked.name} {what}."


def nobody(state: GroupState) -> str:
    """Say that a group has nobody who can be asked."""
    return (
        f"The group {state.group.name} has no active member that can answer. Add one with "
        f'"asterism group add member {state.group.name} AGENT", or make one active.'
    )


def names_of(members: Sequence[GroupMember]) -> str:
    """Return the names of members in one line."""
    return ", ".join(member.name for member in members)
