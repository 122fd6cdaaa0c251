"""Templates of constellations: agents, blocks, groups and schedules in one TOML file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from asterism import plugins
from asterism.config.parse import ConfigDocument
from asterism.errors import AsterismError, ConfigError, InvalidInput, NotFound
from asterism.groups.options import check_members_named, names_in_options
from asterism.memory.schemas import read_schema
from asterism.times import read_future, read_hours, zone_named
from asterism.tools.planning.records import KINDS, BlockKind
from asterism.types.groups import Role
from asterism.types.memory import DEFAULT_LIMIT, MAX_LIMIT, BlockType, Permission, Schema

PLANNING = "planning"
"""As a schema: that of the planning tools for a block of this label."""
EVERYONE = "*"
"""As the agents of a block: it belongs to the whole constellation."""
_NAME = r"^[^\s/@{}](?:[^/@{}\x00-\x1f]{0,58}[^\s/@{}\x00-\x1f])?$"
Name = Annotated[str, Field(pattern=_NAME)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TemplateAgent(_Table):
    """An agent that a template makes."""

    name: Name
    system: Annotated[str, Field(min_length=1, max_length=20_000)]
    """Who it is. `{name}` stands for the name of the agent that the template calls so."""
    description: str = ""
    tools: tuple[str, ...] | None = None
    """None: every tool that is not reserved."""
    model: str | None = None


class TemplateBlock(_Table):
    """A block that a template makes."""

    label: str
    agents: Annotated[tuple[str, ...], Field(min_length=1)]
    """Its owner, and those that it is shared with; `*` alone: the whole constellation."""
    description: str = ""
    content: str = ""
    schema_: Annotated[str | dict[str, Any], Field(alias="schema")] = "text"
    kind: BlockType = BlockType.CORE
    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    permission: Permission = Permission.READ_WRITE
    """What the agents may do to it."""
    audience: str = "owner"
    pinned: bool = False

    @property
    def planning(self) -> BlockKind | None:
        """What the planning tools keep in it, if it is one of theirs."""
        if self.schema_ != PLANNING:
            return None
        return next((kind for kind in KINDS if kind.label == self.label), None)

    @property
    def schema(self) -> Schema:  # pyright: ignore[reportIncompatibleMethodOverride] - pydantic's own is deprecated
        """Its schema."""
        return self.planning.schema if self.planning is not None else read_schema(self.schema_)


class TemplateMember(_Table):
    """An agent in a group that a template makes."""

    agent: str
    role: Role = Role.REGULAR
    domain: str = ""
    capabilities: tuple[str, ...] = ()
    weight: Annotated[float, Field(ge=0, le=1_000)] = 1.0


class TemplateGroup(_Table):
    """A group that a template makes."""

    name: Name
    pattern: str
    description: str = ""
    options: dict[str, Any] = {}
    members: Annotated[tuple[TemplateMember, ...], Field(min_length=1)]


class TemplateSchedule(_Table):
    """A message that an agent gets by a rule, or once."""

    agent: str
    when: str
    text: Annotated[str, Field(min_length=1, max_length=4_000)]
    quiet: str | None = None
    """Hours in which it does not come."""


class Template(_Table):
    """A ready-made constellation."""

    name: Name
    description: str
    start: str = ""
    """What to say first, for whoever has just made it."""
    agents: Annotated[tuple[TemplateAgent, ...], Field(min_length=1, max_length=50)]
    blocks: tuple[TemplateBlock, ...] = ()
    groups: tuple[TemplateGroup, ...] = ()
    schedules: tuple[TemplateSchedule, ...] = ()


# -- reading ---------------------------------------------------------------------------------------


def template_names() -> list[str]:
    """Return the names of the templates that come with asterism."""
    return sorted(
        Path(entry.name).stem for entry in _folder().iterdir() if entry.name.endswith(".toml")
    )


def read_template(name: str) -> Template:
    """Return a template by its name, or the one in a TOML file by its path.

    "Review board" and "review_board" are the template "review-board".

    Raises `NotFound` or `ConfigError`.
    """
    plain = re.sub(r"[\s_-]+", "-", name.strip().lower())
    if plain in template_names():
        return _built_in(plain)
    path = Path(name).expanduser()
    if path.suffix == ".toml" or len(path.parts) > 1:
        if not path.exists():
            raise NotFound(
                f"There is no file {name[:200]!r}. Name the file of a template, or one of these: "
                f"{', '.join(template_names())}. Nothing was created."
            )
        return parse_template(ConfigDocument.read(path, must_exist=True))
    near = get_close_matches(name, template_names(), 1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise NotFound(
        f"There is no template {name[:80]!r}.{hint} Templates: {', '.join(template_names())}. One "
        "of your own is given by the path of its file, such as ./team.toml. Nothing was created."
    )


def _folder() -> Any:
    return resources.files("asterism.groups") / "templates"


@lru_cache
def _built_in(name: str) -> Template:
    file = f"{name}.toml"
    return parse_template(ConfigDocument.parse(file, (_folder() / file).read_text("utf-8")))


def parse_template(document: ConfigDocument) -> Template:
    """Return the template in a document, checked; raise `ConfigError` that says where it fails."""
    try:
        template = Template.model_validate(document.values)
    except ValidationError as error:
        key = ".".join(str(part) for part in error.errors(include_url=False)[0]["loc"])
        raise _fault(document, key, _problem_of(error)) from None
    for key, problem in _problems(template):
        raise _fault(document, key, problem)
    return template


def _problem_of(error: ValidationError) -> str:
    """Return the first problem of a template as part of a sentence."""
    problem = error.errors(include_url=False)[0]["msg"]
    return f"{problem[0].lower()}{problem[1:]}"


def _fault(document: ConfigDocument, key: str, problem: str) -> ConfigError:
    return ConfigError(
        f"The template {document.name} cannot be used: {key}: {problem.rstrip('.')}. Nothing was "
        "created."
    )


def _problems(template: Template) -> Iterable[tuple[str, str]]:
    """Yield what does not fit together, with the key where it stands."""
    names = [agent.name for agent in template.agents]
    yield from _twice("agents", [*names, *(group.name for group in template.groups)])
    for place, block in enumerate(template.blocks):
        yield from _block_problems(f"blocks.{place}", block, names)
    labels = [f"{block.agents[0]}/{block.label}" for block in template.blocks]
    yield from _twice("blocks", labels)
    for place, group in enumerate(template.groups):
        yield from _group_problems(f"groups.{place}", group, names)
    for place, schedule in enumerate(template.schedules):
        key = f"schedules.{place}"
        yield from _unknown(f"{key}.agent", [schedule.agent], names)
        try:
            read_future(schedule.when, 0, zone_named("UTC"))
            if schedule.quiet is not None:
                read_hours(schedule.quiet)
        except (InvalidInput, ValueError) as error:
            yield key, str(error)


def _twice(key: str, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            yield key, f"{name!r} is there twice"
        seen.add(name.casefold())


def _unknown(key: str, names: Iterable[str], known: Iterable[str]) -> Iterable[tuple[str, str]]:
    known = list(known)
    for name in names:
        if name not in known:
            yield key, f"{name!r} is not one of its agents: {', '.join(known)}"


def _block_problems(key: str, block: TemplateBlock, names: list[str]) -> Iterable[tuple[str, str]]:
    if block.agents != (EVERYONE,):
        yield from _unknown(f"{key}.agents", block.agents, names)
    if block.schema_ == PLANNING and block.planning is None:
        labels = ", ".join(kind.label for kind in KINDS)
        yield f"{key}.schema", f"{block.label!r} is not a label of the planning tools: {labels}"
        return
    try:
        _ = block.schema
    except AsterismError as error:
        yield f"{key}.schema", error.message


def _group_problems(key: str, group: TemplateGroup, names: list[str]) -> Iterable[tuple[str, str]]:
    yield from _unknown(f"{key}.members", [member.agent for member in group.members], names)
    yield from _twice(f"{key}.members", [member.agent for member in group.members])
    for member in group.members:
        if member.domain and member.role is not Role.SPECIALIST:
            yield f"{key}.members", f"{member.agent!r} has a domain, and only specialists have one"
    if group.pattern not in plugins.names("patterns"):
        known = ", ".join(plugins.names("patterns"))
        yield f"{key}.pattern", f"{group.pattern!r} is not a pattern: {known}"
        return
    try:
        pattern = plugins.load("patterns", group.pattern)()
        options = pattern.check(group.options)
        members = [member.agent for member in group.members]
        check_members_named(
            group.pattern, names_in_options(pattern, options), members, "one of its members"
        )
    except AsterismError as error:
        yield f"{key}.options", error.message


# -- names of one's own ----------------------------------------------------------------------------


def with_prefix(template: Template, prefix: str) -> Template:
    """Return a template whose agents and groups have a prefix before their names.

    In texts, `{name}` becomes the name of that agent or group.
    """
    agents = {agent.name: f"{prefix}{agent.name}" for agent in template.agents}

    def renamed(value: Any) -> Any:
        """Replace names of agents in the options of a pattern, where they stand alone."""
        if isinstance(value, str):
            return agents.get(value, value)
        if isinstance(value, list | tuple):
            return [renamed(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - as TOML has it
        if isinstance(value, Mapping):
            return {key: renamed(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType] - as TOML has it
        return value

    names = agents | {group.name: f"{prefix}{group.name}" for group in template.groups}

    def filled(text: str) -> str:
        for name, full in names.items():
            text = text.replace(f"{{{name}}}", full)
        return text

    wire = template.model_dump(by_alias=True)
    for agent in wire["agents"]:
        agent.update(name=agents[agent["name"]], system=filled(agent["system"]))
    for block in wire["blocks"]:
        block["agents"] = [agents.get(name, name) for name in block["agents"]]
    for group in wire["groups"]:
        group["name"] = f"{prefix}{group['name']}"
        group["options"] = renamed(group["options"])
        for member in group["members"]:
            member["agent"] = agents[member["agent"]]
    for schedule in wire["schedules"]:
        schedule["agent"] = agents[schedule["agent"]]
    wire["start"] = filled(wire["start"])
    return _with_names_of(wire, prefix)


def _with_names_of(wire: Mapping[str, Any], prefix: str) -> Template:
    """Return the template whose names got a prefix; raise `InvalidInput` if none may be so."""
    try:
        return Template.model_validate(wire)
    except ValidationError as error:
        problem = _problem_of(error).rstrip(".")
        raise InvalidInput(
            f"{prefix!r} cannot stand before the names of a template: {problem}. Choose letters, "
            "digits and hyphens, such as my-. Nothing was created."
        ) from None
