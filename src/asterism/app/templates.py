"""Making a constellation from a template: what is not there yet is created, the rest stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from asterism.app.session import checked_agent_name
from asterism.errors import Conflict, NotFound
from asterism.groups.template import (
    EVERYONE,
    Template,
    TemplateBlock,
    TemplateGroup,
    TemplateSchedule,
    read_template,
    with_prefix,
)
from asterism.records import dataclass
from asterism.types.memory import Permission, Share

if TYPE_CHECKING:
    from asterism.app.home import Home
    from asterism.client import RemoteHome

_PLANNING_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class TemplateItem:
    """One thing that a template makes."""

    kind: Literal["agent", "block", "share", "group", "member", "schedule"]
    name: str
    is_new: bool
    """Whether it was not there yet."""
    details: str = ""


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What a template has made, or would make."""

    template: str
    description: str
    start: str
    """What to say first."""
    items: tuple[TemplateItem, ...]
    is_preview: bool = False
    """Whether nothing was created."""

    @property
    def new(self) -> tuple[TemplateItem, ...]:
        """What was not there yet."""
        return tuple(item for item in self.items if item.is_new)


async def apply_template(
    home: Home | RemoteHome,
    template: Template | str,
    *,
    prefix: str = "",
    model: str | None = None,
    schedules: bool = True,
    preview: bool = False,
    by: str = "api",
) -> TemplateReport:
    """Create what a template has and a home has not; the same template again creates nothing.

    What is there already stays as it is, whoever made it.

    Args:
        home: An open home, here or elsewhere.
        template: A template, its name, or the path of a TOML file.
        prefix: What stands before the names of its agents and groups.
        model: The model of its agents; None: that of the template, or the home's.
        schedules: Whether to add its schedules.
        preview: Only tell what would be created.
        by: What asks for it, such as `api` or `cli`.
    """
    chosen = template if isinstance(template, Template) else read_template(template)
    chosen = with_prefix(chosen, prefix)
    work = _Work(home, chosen, model=model, preview=preview, by=by)
    await work.check()
    await work.make_agents()
    for block in chosen.blocks:
        await work.make_block(block)
    for group in chosen.groups:
        await work.make_group(group)
    for schedule in chosen.schedules if schedules else ():
        await work.make_schedule(schedule)
    return TemplateReport(
        chosen.name, chosen.description, chosen.start, tuple(work.items), is_preview=preview
    )


class _Work:
    """The steps of making what a template has."""

    def __init__(
        self,
        home: Home | RemoteHome,
        template: Template,
        *,
        model: str | None,
        preview: bool,
        by: str,
    ) -> None:
        self._home = home
        self._template = template
        self._model = model
        self._preview = preview
        self._by = by
        self._new_agents: set[str] = set()
        self.items: list[TemplateItem] = []

    def _note(
        self,
        kind: Literal["agent", "block", "share", "group", "member", "schedule"],
        name: str,
        details: str = "",
        *,
        is_new: bool,
    ) -> bool:
        """Note a thing; return whether to create it."""
        self.items.append(TemplateItem(kind, name, is_new, details))
        return is_new and not self._preview

    async def check(self) -> None:
        """Raise before anything is created, if some of it cannot be."""
        known = {str(tool["name"]) for tool in await self._home.tools.offered()}
        agents = {agent.name for agent in await self._home.agents.list()}
        groups = {group.name for group in await self._home.groups.list()}
        for agent in self._template.agents:
            if agent.name not in agents:
                checked_agent_name(agent.name)
            if missing := sorted(set(agent.tools or ()) - known):
                raise NotFound(
                    f"The template {self._template.name} gives {agent.name} the tool "
                    f'{missing[0]!r}, which is not there. "asterism tool list" shows all. '
                    "Nothing was created."
                )
            if agent.name in groups:
                raise self._taken(agent.name, "a group")
        for group in self._template.groups:
            if group.name not in groups:
                checked_agent_name(group.name, "a group")
            if group.name in agents:
                raise self._taken(group.name, "an agent")

    def _taken(self, name: str, what: str) -> Conflict:
        return Conflict(
            f"There is {what} named {name!r} already, and the template {self._template.name} needs "
            "this name. Choose other names with --prefix. Nothing was created."
        )

    async def make_agents(self) -> None:
        """Create the agents."""
        there = {agent.name for agent in await self._home.agents.list()}
        for agent in self._template.agents:
            is_new = agent.name not in there
            if is_new:
                self._new_agents.add(agent.name)
            if self._note("agent", agent.name, agent.description, is_new=is_new):
                await self._home.agents.ensure(
                    agent.name,
                    model=self._model or agent.model,
                    system=agent.system.strip(),
                    tools=agent.tools,
                )

    async def make_block(self, block: TemplateBlock) -> None:
        """Create a block, and share it with those that do not see it yet."""
        shared = block.agents == (EVERYONE,)
        owner = None if shared else block.agents[0]
        planning = block.planning
        name = block.label if shared else f"{owner}/{block.label}"
        is_new = not await self._has_block(owner, block.label)
        description = block.description or (planning.description if planning is not None else "")
        if self._note("block", name, description, is_new=is_new):
            await self._home.blocks.create(
                owner,
                block.label,
                block.content,
                kind=block.kind,
                schema=block.schema,
                description=description,
                limit=block.limit if planning is None else max(block.limit, _PLANNING_LIMIT),
                permission=block.permission,
                audience=block.audience,
                pinned=block.pinned,
                existing=True,
                by=self._by,
            )
        if not shared:
            await self._share(block, name, is_new=is_new)

    async def _has_block(self, owner: str | None, label: str) -> bool:
        if owner in self._new_agents:
            return False
        wanted = f"constellation/{label}" if owner is None else f"{owner}/{label}"
        return any(
            wanted == (seen.name if "/" in seen.name else f"{owner}/{seen.name}")
            for seen in await self._home.blocks.list(owner)
            if seen.block.label == label
        )

    async def _share(self, block: TemplateBlock, name: str, *, is_new: bool) -> None:
        owner, *others = block.agents
        there: dict[str, Permission] = {}
        if not is_new:
            there = await self._home.blocks.shares(owner, block.label)
        for other in others:
            if self._note(
                "share", f"{name} with {other}", block.permission.value, is_new=other not in there
            ):
                agent = await self._home.agents.get(other)
                share = Share(agent.id, block.permission)
                await self._home.blocks.write(owner, block.label, share, by=self._by)

    async def make_group(self, group: TemplateGroup) -> None:
        """Create a group with its members."""
        there = {found.name: found for found in await self._home.groups.list()}
        found = there.get(group.name)
        members = {member.name for member in found.members} if found is not None else set[str]()
        if self._note("group", group.name, group.pattern, is_new=found is None):
            await self._home.groups.ensure(
                group.name,
                pattern=group.pattern,
                options=group.options,
                description=group.description,
            )
        for member in group.members:
            role = f"{member.role.value} {member.domain}".strip()
            if self._note(
                "member",
                f"{member.agent} in {group.name}",
                role,
                is_new=member.agent not in members,
            ):
                await self._home.groups.add_member(
                    group.name,
                    member.agent,
                    role=member.role.value,
                    domain=member.domain,
                    capabilities=member.capabilities,
                    weight=member.weight,
                )

    async def make_schedule(self, schedule: TemplateSchedule) -> None:
        """Add a schedule, unless the agent has one with the same text."""
        there: set[str] = set()
        if schedule.agent not in self._new_agents or not self._preview:
            there = {found.text for found in await self._home.schedules.list(schedule.agent)}
        is_new = schedule.text not in there
        if self._note(
            "schedule", f"{schedule.agent}, {schedule.when}", schedule.text, is_new=is_new
        ):
            await self._home.schedules.add(
                schedule.agent, schedule.when, schedule.text, quiet=schedule.quiet, by=self._by
            )
