"""The sources of the configuration, laid over each other, and their problems in sentences."""

from __future__ import annotations

import asyncio
import logging
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import date, time
from functools import reduce
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard, cast, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from asterism.config.parse import (
    MAX_DEPTH,
    ConfigDocument,
    Key,
    dotted,
    printable,
    read_yaml,
    refuse_depth,
)
from asterism.config.settings import Settings
from asterism.errors import ConfigError
from asterism.private import refuse_writable
from asterism.records import dataclass

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo
    from pydantic_core import ErrorDetails

PREFIX = "ASTERISM_"
RESERVED = frozenset(
    {
        "ASTERISM_CONFIG",
        "ASTERISM_DATA",
        "ASTERISM_KEY",
        "ASTERISM_MODELS",
        "ASTERISM_NONINTERACTIVE",
        "ASTERISM_SERVERS",
        "ASTERISM_TOKEN",
        "ASTERISM_TORTURE",
        "ASTERISM_URL",
    }
)
"""Variables that are read by others and are no settings."""
DOCUMENTS = ("authorizations", "contacts")
"""Tables of the settings that have a file of their own beside `asterism.toml`."""
_MAX_PROBLEMS = 20


Check = Callable[["Settings"], Sequence[tuple[Key, str]]]
"""Returns what is wrong with settings: the key of each, and a sentence about its value."""


def config_file(data: Path, explicit: Path | None, environ: Mapping[str, str]) -> Path:
    """The file to read: `--config`, ASTERISM_CONFIG, or `asterism.toml` in the data directory."""
    return Path(explicit or environ.get("ASTERISM_CONFIG") or data / "asterism.toml").absolute()


def load(
    data: Path,
    file: Path | None,
    environ: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    *,
    must_exist: bool = False,
    check: Check | None = None,
) -> Settings:
    """Read every source, later ones winning: defaults, the file, the environment, overrides.

    Overrides are named as in the reference (`"limits.steps"`); None stands for not given.
    A file that was named must exist, and so must any with `must_exist`. `check` returns what is
    wrong with settings of which each is valid.
    Raises `ConfigError` with one line for each problem.
    """
    path = config_file(data, file, environ)
    named = file is not None or bool(environ.get("ASTERISM_CONFIG"))
    if not named and path.exists():
        refuse_writable(path)
    sources = [
        _from_file(path, must_exist=must_exist or named),
        *(_from_document(path.parent, name) for name in DOCUMENTS),
        _from_environment(environ),
        _from_overrides(overrides or {}),
    ]
    settings = _validated(sources, environ)
    if check is not None and (problems := check(settings)):
        raise ConfigError(_place(problems, sources))
    modules = tuple(
        str(path.parent / module) if module.endswith(".py") else module
        for module in settings.tools.modules
    )
    tools = settings.tools.model_copy(update={"modules": modules})
    cassette = settings.cassette
    if cassette.file is not None:
        file = path.parent / cassette.file
        cassette = cassette.model_copy(update={"file": str(file)})
    return settings.model_copy(update={"tools": tools, "cassette": cassette})


def read_document(name: str, text: str, path: str) -> Settings:
    """Return the settings in the text of a document such as `authorizations`.

    Error messages name the document by `path`.
    """
    return _validated([_of_document(name, ConfigDocument.parse(path, text))], {})


def _validated(sources: list[_Source], environ: Mapping[str, str]) -> Settings:
    values = reduce(_merged, (source.values for source in sources))
    try:
        return Settings.model_validate(values, context=environ)
    except ValidationError as error:
        raise ConfigError(_explain(error, sources)) from None


@dataclass(frozen=True, slots=True)
class _Source:
    values: dict[str, Any]
    place: Callable[[Key], tuple[int, str]]
    """The line (0 where there are none) and the words that lead a reader to a key."""
    spell: Callable[[Key], str]
    """How a key is written in this source."""
    call: Callable[[Key], str] = dotted
    """What a key is called in sentences."""


def _from_file(path: Path, *, must_exist: bool) -> _Source:
    document = ConfigDocument.read(path, must_exist=must_exist)

    def place(key: Key) -> tuple[int, str]:
        line = document.line_of(key)
        return line, f"{document.name} line {line}"

    return _Source(document.values, place, dotted)


def document_files(name: str) -> tuple[str, ...]:
    """Return the names that the file of a document may have."""
    return f"{name}.toml", f"{name}.yaml", f"{name}.yml"


def _from_document(folder: Path, name: str) -> _Source:
    there = [folder / file for file in document_files(name) if (folder / file).exists()]
    if len(there) > 1:
        named = " and ".join(file.name for file in there)
        raise ConfigError(f"{folder} has {named}, but only one is allowed. Keep one of them.")
    if not there:
        return _Source({}, lambda _: (0, ""), dotted)
    refuse_writable(there[0])
    if there[0].suffix == ".toml":
        document = ConfigDocument.read(there[0], must_exist=True)
    else:
        document = read_yaml(there[0])
    return _of_document(name, document)


def _of_document(name: str, document: ConfigDocument) -> _Source:
    def place(key: Key) -> tuple[int, str]:
        line = document.line_of(key[1:])
        return line, f"{document.name} line {line}"

    def call(key: Key) -> str:
        return dotted(key[1:])

    return _Source({name: document.values}, place, call, call)


def _from_environment(environ: Mapping[str, str]) -> _Source:
    values: dict[str, Any] = {}
    names: dict[Key, str] = {}
    for name in sorted(environ):
        text = environ[name]
        if not name.startswith(PREFIX) or name in RESERVED or not text:
            continue
        key = tuple(name.removeprefix(PREFIX).lower().split("__", MAX_DEPTH))
        names[key] = name
        values = _merged(values, _nested(key, _parse_value(key, text), name))

    def place(key: Key) -> tuple[int, str]:
        # A variable may set the key itself, a table around it, or something inside it.
        related = [known for known in names if known[: len(key)] == key[: len(known)]]
        return 0, printable(names[max(related, key=len)])

    def spell(key: Key) -> str:
        return PREFIX + "__".join(map(str, key)).upper()

    return _Source(values, place, spell)


def _from_overrides(overrides: Mapping[str, object]) -> _Source:
    values: dict[str, Any] = {}
    for name, value in overrides.items():
        if value is not None:
            key = tuple(name.split(".", MAX_DEPTH))
            values = _merged(values, _nested(key, value, "overrides"))
    return _Source(values, lambda _: (0, "overrides"), dotted)


def _parse_value(key: Key, text: str) -> object:
    kind, _ = _schema(key)
    if kind in (None, str, SecretStr) or get_origin(kind) is Literal:
        return text
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


def _nested(key: Key, value: object, place: str) -> dict[str, Any]:
    refuse_depth(value, place)
    return cast("dict[str, Any]", reduce(lambda inner, part: {part: inner}, reversed(key), value))


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: _merged(under[name], cast("dict[str, Any]", value))
        for name, value in over.items()
        if isinstance(value, dict) and isinstance(under.get(name), dict)
    }
    return under | over | both


def _schema(key: Key) -> tuple[object, FieldInfo | None]:
    """The type that belongs at a key, and the field that says what is right there."""
    kind: object = Settings
    field: FieldInfo | None = None
    for part in key:
        if _is_model(kind):
            field = kind.model_fields.get(str(part))
            if field is None:
                kind = Any if kind.model_config.get("extra") == "allow" else None
            else:
                kind = _without_none(field.annotation)
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        elif get_origin(kind) is tuple and isinstance(part, int):
            kind = get_args(kind)[0]
        elif kind is not Any:
            kind = None
    return kind, field


def _is_model(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _without_none(annotation: object) -> object:
    kinds = get_args(annotation)
    return next(kind for kind in kinds if kind is not NoneType) if NoneType in kinds else annotation


def _place(problems: Sequence[tuple[Key, str]], sources: list[_Source]) -> str:
    lines: list[str] = []
    for key, sentence in problems[:_MAX_PROBLEMS]:
        source = sources[_origin(key, sources)]
        place = source.place(key)[1]
        lines.append(f"{place}: {source.call(key)} {sentence}" if place else sentence)
    return "\n".join(lines)


def _explain(error: ValidationError, sources: list[_Source]) -> str:
    problems: list[tuple[int, int, str, ErrorDetails]] = []
    for detail in error.errors(include_url=False):
        rank = _origin(detail["loc"], sources)
        line, place = sources[rank].place(detail["loc"])
        problems.append((rank, line, place, detail))
    problems.sort(key=lambda problem: problem[:2])
    lines = [
        f"{place}: {_sentence(detail, sources[rank])}"
        for rank, _, place, detail in problems[:_MAX_PROBLEMS]
    ]
    if more := len(problems) - len(lines):
        lines.append(f"There are {more:,} more problems.")
    return "\n".join(lines)


def _origin(key: Key, sources: list[_Source]) -> int:
    """The last source that sets a key or, failing that, the innermost table around it."""
    return next(
        rank
        for end in range(len(key), -1, -1)
        for rank in reversed(range(len(sources)))
        if _holds(sources[rank].values, key[:end])
    )


def _holds(value: object, key: Key) -> bool:
    for part in key:
        try:
            value = cast("dict[str | int, object]", value)[part]
        except (LookupError, TypeError):
            return False
    return True


def _sentence(problem: ErrorDetails, source: _Source) -> str:
    key, value = problem["loc"], problem["input"]
    name = source.call(key)
    kind, field = _schema(key)
    is_table = _is_model(kind) or get_origin(kind) is dict
    match problem["type"]:
        case "extra_forbidden":
            return f"{name} is not a setting. {_hint(key, source.spell)}"
        case "value_error":
            return f"{name} {problem.get('ctx', {}).get('error')}"
        case "missing":
            return f"{name} is missing; {_needed(field)}."
        case _ if is_table:
            return f"{name} is {_describe_type(value)}; a table is needed, such as [{name}]."
        case _ if field is None or not field.repr:  # it is or may be a secret
            hidden = (
                "text (not shown)" if value and isinstance(value, str) else _describe_type(value)
            )
            return f"{name} is {hidden}; {_needed(field)}."
        case _:
            return f"{name} is {_quote(value)}; {_needed(field)}."


def _needed(field: FieldInfo | None) -> str:
    if field is None:
        return "another value is needed"
    example = field.examples[0] if field.examples else field.default
    such_as = f", such as {_quote(example)}" if example else ""
    return f"{field.description} is needed{such_as}"


def _hint(key: Key, spell: Callable[[Key], str]) -> str:
    from difflib import get_close_matches

    *around, last = key
    kind, _ = _schema(tuple(around))
    names = list(kind.model_fields) if _is_model(kind) else []
    if near := get_close_matches(str(last)[:80], names, n=1):
        return f"Did you mean {spell((*around, near[0]))}?"
    if elsewhere := _elsewhere(last):
        return f"Did you mean {spell(elsewhere)}?"
    return f"Known here: {', '.join(spell((*around, name)) for name in names)}."


def _elsewhere(name: str | int) -> Key | None:
    for section, described in Settings.model_fields.items():
        if section == name:
            return (section,)
        if _is_model(described.annotation) and name in described.annotation.model_fields:
            return (section, name)
    return None


def _quote(value: object) -> str:
    match value:
        case str():
            # An address may carry a password.
            return f'"{printable(re.sub(r"//.*@", "//…@", value))}"'
        case bool():
            return str(value).lower()
        case int() if value.bit_length() > 64:
            return "a number of more than 64 bits"
        case int() | float():
            return str(value)
        case _:
            return _describe_type(value)


def _describe_type(value: object) -> str:
    match value:
        case str():
            return "text" if value else "empty"
        case bool():
            return "a truth value"
        case int() | float():
            return "a number"
        case date() | time():
            return "a date or time"
        case list() | tuple():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a Python {type(value).__name__}"


_log = logging.getLogger(__name__)


# -- the settings in use while a process runs ------------------------------------------------------

NEEDS_RESTART = frozenset({"cassette", "constellation", "runtime", "store", "telemetry", "tools"})
"""What a running process keeps; everything else changes live."""


@dataclass(frozen=True, slots=True)
class Reload:
    """What came of reading the configuration again."""

    changed: tuple[str, ...] = ()
    """Settings that are in use with their new value."""
    needs_restart: tuple[str, ...] = ()
    """Settings that differ, and keep their old value until the next start."""
    error: str | None = None


class CurrentSettings(Protocol):
    """Something that has the settings in use."""

    current: Settings


@dataclass(slots=True)
class FixedSettings:
    """Settings that follow no file."""

    current: Settings = field(default_factory=Settings)


class LiveSettings:
    """The settings in use, which follow the file."""

    def __init__(
        self,
        data: Path,
        file: Path | None,
        environ: Mapping[str, str],
        overrides: Mapping[str, object] | None = None,
        *,
        on_problem: Callable[[str], None] = _log.warning,
        check: Check | None = None,
    ) -> None:
        """Load for the first time.

        Args:
            data: The data directory.
            file: The file, if one is named.
            environ: The environment.
            overrides: Settings that win over the others.
            on_problem: Hears what a later reload cannot put in use.
            check: Returns what is wrong with settings of which each is valid.
        """
        self.check = check
        """What every load is checked with."""
        self._data = data
        self._named = file
        self._environ = environ
        self._overrides = overrides
        self._on_problem = on_problem
        self._subscribers: list[Callable[[Settings, Settings], None]] = []
        self.file = config_file(data, file, environ)
        """The file that is followed; it need not exist."""
        self._must_exist = False
        self.current = self._load()
        """The settings in use."""

    def subscribe(self, callback: Callable[[Settings, Settings], None]) -> None:
        """Call back with the old and the new settings after each change; it must not raise."""
        self._subscribers.append(callback)

    def reload(self) -> Reload:
        """Read the file again and put in use what can change live."""
        try:
            read = self._load()
        except ConfigError as error:
            problem = f"{error.message} The previous configuration stays in use."
            self._on_problem(problem)
            return Reload(error=problem)
        old = self.current
        unchanged = {section: getattr(old, section) for section in NEEDS_RESTART}
        self.current = new = read.model_copy(update=unchanged)
        changed, needs_restart = _differences(old, new), _differences(new, read)
        if changed:
            for callback in self._subscribers:
                callback(old, new)
        if needs_restart:
            names = ", ".join(needs_restart)
            self._on_problem(f"{names}: changed in {self.file.name}, in use after a restart.")
        return Reload(changed, needs_restart)

    async def watch(self) -> None:
        """Reload whenever the file changes, until cancelled."""
        # Its annotations name trio, which need not be installed.
        from watchfiles import awatch  # pyright: ignore[reportUnknownVariableType]

        target = self.file.resolve()
        # Kubernetes changes a mounted file by pointing the link "..data" beside it elsewhere.
        names = {self.file.name, target.name, "..data"}
        names.update(file for name in DOCUMENTS for file in document_files(name))
        changes = awatch(
            *{self.file.parent, target.parent},
            watch_filter=lambda _, path: Path(path).name in names,
            recursive=False,
        )
        try:
            while True:
                change = asyncio.ensure_future(anext(changes))
                await asyncio.sleep(0)  # it watches from here on, so nothing saved later is missed
                self.reload()
                await change
        except OSError as error:
            self._on_problem(
                f"{self.file} cannot be watched: {error}. Changes are in use after a restart."
            )

    def _load(self) -> Settings:
        settings = load(
            self._data,
            self._named,
            self._environ,
            self._overrides,
            must_exist=self._must_exist,
            check=self.check,
        )
        # A file that was there once must not turn into defaults when it is gone.
        self._must_exist = self._must_exist or self.file.exists()
        return settings


def _differences(old: Settings, new: Settings) -> tuple[str, ...]:
    # Without defaults, so that a new vendor is named by what was written about it.
    before = dict(_leaves((), old.model_dump(exclude_defaults=True)))
    after = dict(_leaves((), new.model_dump(exclude_defaults=True)))
    changed = [key for key in before | after if before.get(key) != after.get(key)]
    return tuple(map(dotted, changed))


def _leaves(key: Key, value: object) -> Iterator[tuple[Key, object]]:
    if isinstance(value, dict) and (value or not key):
        for name, inner in cast("dict[str, object]", value).items():
            yield from _leaves((*key, name), inner)
    else:
        yield key, value
