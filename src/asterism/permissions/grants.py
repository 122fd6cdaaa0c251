"""Grants, ready to be asked often: does one of them cover a call?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from asterism.permissions.patterns import glob
from asterism.permissions.policies import Wanted
from asterism.types.effects import read_texts_at, texts_at
from asterism.types.grants import Grant, amount_within, does_no_more, exact_arguments
from asterism.types.values import leaves_of


class Grants:
    """The grants of a constellation that have not been revoked.

    Those that want an argument to be just so are found by its value, however many there are; the
    others of a tool are gone through.
    """

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self.all = tuple(one for one in grants if one.revoked_at is None)
        self._exact: dict[str, dict[str, dict[str, list[_Compiled]]]] = {}
        self._rest: dict[str, list[_Compiled]] = {}
        self._globs: list[_Compiled] = []
        for one in self.all:
            self._keep(_Compiled(one))

    def __len__(self) -> int:
        return len(self.all)

    def covering(
        self,
        agent_id: str,
        wanted: Wanted,
        turn_id: str,
        now: int,
        counts: Callable[[Grant], bool] = lambda _: True,
    ) -> Grant | None:
        """Return a grant that covers a call at a moment, of those that count."""
        for name, by_value in self._exact.get(wanted.tool, {}).items():
            for value in texts_at(wanted.arguments, name):
                for one in by_value.get(value, ()):
                    if counts(one.grant) and one.covers(agent_id, wanted, turn_id, now):
                        return one.grant
        for one in self._rest.get(wanted.tool, ()):
            if counts(one.grant) and one.covers(agent_id, wanted, turn_id, now):
                return one.grant
        for one in self._globs:
            meant = counts(one.grant) and one.names(wanted.tool)
            if meant and one.covers(agent_id, wanted, turn_id, now):
                return one.grant
        return None

    def _keep(self, one: _Compiled) -> None:
        tool = one.grant.tool
        if any(char in tool for char in "*?"):
            self._globs.append(one)
            return
        for name, value in one.grant.pattern.items():
            if not value.startswith("re:") and not any(char in value for char in "*?"):
                by_name = self._exact.setdefault(tool, {})
                by_name.setdefault(name, {}).setdefault(value, []).append(one)
                return
        self._rest.setdefault(tool, []).append(one)


class _Compiled:
    """A grant with its patterns ready."""

    __slots__ = ("_tests", "grant", "names")

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.names = glob(grant.tool)
        self._tests = [(name, glob(value)) for name, value in grant.pattern.items()]

    def covers(self, agent_id: str, wanted: Wanted, turn_id: str, now: int) -> bool:
        grant = self.grant
        if grant.agent_id is not None and grant.agent_id != agent_id:
            return False
        if grant.turn_id is not None and grant.turn_id != turn_id:
            return False
        if grant.until is not None and now >= grant.until:
            return False
        if grant.uses is not None and grant.uses <= 0:
            return False
        for name, test in self._tests:
            values = read_texts_at(wanted.arguments, name)
            if not values or not all(test(one) for one in values):
                return False
        return self._is_within_limits(wanted)

    def _is_within_limits(self, wanted: Wanted) -> bool:
        grant = self.grant
        if any(one.unreadable for one in wanted.effects):
            return False
        if grant.definition is not None and grant.definition != wanted.definition:
            return False
        if grant.arguments is not None and (
            leaves_of(wanted.arguments) is None
            or grant.arguments != exact_arguments(wanted.arguments)
        ):
            return False
        if grant.amount is not None and not amount_within(wanted.effects, grant.amount):
            return False
        return grant.effects is None or does_no_more(
            wanted.effects, grant.effects, amounts=grant.amount is None
        )
