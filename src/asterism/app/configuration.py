"""The configuration of a home: read without its secrets, checked, and read again from its file."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asterism.app.session import Session, note, shorten_error, verbs
from asterism.config.load import Reload, load
from asterism.config.parse import count_values
from asterism.errors import ConfigError, InvalidInput
from asterism.permissions import Act
from asterism.records import dataclass
from asterism.telemetry.redaction import redact

if TYPE_CHECKING:
    from asterism.config.load import LiveSettings


MAX_CHECKED_LENGTH = 64_000
"""The most characters of a configuration that is only looked at."""
MAX_CHECKED_VALUES = 5_000
"""The most keys and values in it, about."""


@dataclass(frozen=True, slots=True)
class ConfigCheck:
    """Whether a text can be the configuration of a home."""

    valid: bool
    problems: tuple[str, ...] = ()


@verbs("config", read=Act.GOVERN, check=Act.READ, reload=Act.GOVERN)
class Configuration:
    """The settings of a home, and the file that they come from."""

    def __init__(self, session: Session, live: LiveSettings) -> None:
        self._session = session
        self._live = live

    async def read(self) -> dict[str, Any]:
        """Return the settings in use, as JSON; secrets are left out."""
        import orjson

        shown = self._live.current.model_dump(mode="json")
        return orjson.loads(redact(orjson.dumps(shown).decode()))

    async def check(self, text: str) -> ConfigCheck:
        """Tell whether a text could be the file, and if not, what is wrong with which line."""
        _refuse_large(len(text), "characters", MAX_CHECKED_LENGTH)

        def look() -> ConfigCheck:
            _refuse_large(count_values(text), "keys and values", MAX_CHECKED_VALUES)
            with tempfile.TemporaryDirectory(prefix="asterism-config-") as place:
                file = Path(place) / "asterism.toml"
                file.write_text(text, "utf-8")
                file.chmod(0o600)
                try:
                    load(Path(place), file, {}, check=self._live.check)
                except ConfigError as error:
                    shorten_error(error)
                    return ConfigCheck(valid=False, problems=(error.message,))
            return ConfigCheck(valid=True)

        return await asyncio.to_thread(look)

    async def reload(self) -> Reload:
        """Read the file again and put in use what can change while the home is open."""
        result = self._live.reload()
        changed = [*result.changed]
        await self._session.database.write(
            lambda tx: note(tx, self._session, "config.reloaded", by="api", changed=changed)
        )
        return result


def _refuse_large(count: int, what: str, most: int) -> None:
    if count > most:
        raise InvalidInput(
            f"The configuration has {count:,} {what}, and at most {most:,} are checked here. Save "
            'it where asterism runs, where "asterism doctor" reads all of it. Nothing was checked.'
        )
