"""What the owner has decided beforehand, as the configuration says it now."""

from __future__ import annotations

from collections.abc import Callable

from asterism.config import Settings
from asterism.gate import policies_of
from asterism.permissions import Act, Authority
from asterism.types.people import Trust


class Authorities:
    """Makes the authority out of the settings in use, once for each change of them."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._made_of: Settings | None = None
        self._made = Authority()

    def __call__(self) -> Authority:
        """Return what holds now."""
        settings = self._settings()
        if settings is not self._made_of:
            self._made = authority_of(settings)
            self._made_of = settings
        return self._made


def authority_of(settings: Settings) -> Authority:
    """Return what an owner has decided in a configuration."""
    authorizations = settings.authorizations
    return Authority(
        frozenset(map(Trust, settings.memory.trusted)),
        policies_of(authorizations),
        {name: frozenset(map(Act, role.may)) for name, role in authorizations.roles.items()},
    )
