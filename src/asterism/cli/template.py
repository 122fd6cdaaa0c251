"""`asterism constellation new`: agents, groups and blocks from a template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from asterism.cli.commands import Options, command, flag, option
from asterism.cli.constellation import app
from asterism.cli.output import Column, ItemTable, Result, plural
from asterism.errors import InvalidInput

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.templates import TemplateItem, TemplateReport
    from asterism.groups.template import Template

_NOUNS = ("agent", "block", "group", "schedule")


@command(app, "templates", example="constellation templates")
async def templates(options: Options) -> Result:
    """Show the templates that there are."""
    from asterism.groups.template import read_template, template_names

    del options
    found = [read_template(name) for name in template_names()]
    columns: list[Column[Template]] = [
        Column("template", lambda template: template.name),
        Column("agents", lambda template: str(len(template.agents))),
        Column("what it is", lambda template: template.description, prose=True),
    ]
    shapes = [template.model_dump(mode="json", by_alias=True) for template in found]
    return Result(shapes, ItemTable(columns, found))


@command(app, "new", example="constellation new --template adhd")
async def new(
    home: Asterism,
    template: Annotated[
        str | None,
        option("--template", "NAME", "A template, or the path of your own TOML file."),
    ] = None,
    prefix: Annotated[
        str, option("--prefix", "TEXT", "What stands before the names of agents and groups.")
    ] = "",
    model: Annotated[
        str | None,
        option("--model", "MODEL", "The model of its agents, such as openai:gpt-5-mini."),
    ] = None,
    no_schedules: Annotated[
        bool, flag("--no-schedules", "Add no schedules: nothing happens by itself.")
    ] = False,
    preview: Annotated[
        bool, flag("--preview", "Show what would be created, and create nothing.")
    ] = False,
) -> Result:
    """Create the agents, blocks, groups and schedules of a template; what is there stays."""
    from asterism.app.templates import apply_template
    from asterism.groups.template import template_names

    if template is None:
        raise InvalidInput(
            f"Say which template with --template: {', '.join(template_names())}. Nothing was "
            "created."
        )
    report = await apply_template(
        home,
        template,
        prefix=prefix,
        model=model,
        schedules=not no_schedules,
        preview=preview,
        by="cli",
    )
    columns: list[Column[TemplateItem]] = [
        Column("kind", lambda item: item.kind),
        Column("name", lambda item: item.name, prose=True),
        Column("state", lambda item: "new" if item.is_new else "was there"),
        Column("what it is", lambda item: _details(report, item), least=70, prose=True),
    ]
    shown = [item for item in report.items if item.kind in _NOUNS]
    return Result(report, ItemTable(columns, shown), "", *_summary(report))


def _details(report: TemplateReport, item: TemplateItem) -> str:
    """Return what an item is, with whom a block is shared, and who is in a group."""
    if item.kind == "block":
        names = _names(report, "share", f"{item.name} with ")
        return f"shared with {', '.join(names)}" if names else item.details
    if item.kind == "group":
        names = [
            other.name.removesuffix(f" in {item.name}")
            for other in report.items
            if other.kind == "member" and other.name.endswith(f" in {item.name}")
        ]
        return f"{item.details}: {', '.join(names)}"
    return item.details


def _names(report: TemplateReport, kind: str, before: str) -> list[str]:
    return [
        item.name.removeprefix(before)
        for item in report.items
        if item.kind == kind and item.name.startswith(before)
    ]


def _summary(report: TemplateReport) -> list[str]:
    counts = {noun: sum(item.kind == noun for item in report.new) for noun in _NOUNS}
    made = ", ".join(plural(count, noun) for noun, count in counts.items() if count)
    if report.is_preview:
        return [f"Would create {made}. Nothing was created." if made else "All of it is there."]
    if not report.new:
        return ["All of it was there already. Nothing was changed."]
    lines = [f"Created {made}." if made else "Completed what was missing."]
    # A group, if there is one, is whom to talk to.
    kind = "group" if any(item.kind == "group" for item in report.items) else "agent"
    first = next(item.name for item in report.items if item.kind == kind)
    lines.append(f'"asterism chat --{kind} {first}" opens a chat.')
    if report.start:
        lines.append(f"To begin: {report.start}")
    return lines
