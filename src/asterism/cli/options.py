"""Options that every command takes: where the data is, and how answers are printed."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from asterism.cli.problem import told
from asterism.errors import InvalidInput

_PANEL = "Options of every command"

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Where everything rests; else ASTERISM_DATA, else the platform's usual place.",
        rich_help_panel=_PANEL,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="The configuration; else ASTERISM_CONFIG, else asterism.toml in the data directory.",
        rich_help_panel=_PANEL,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=_PANEL)
]
Record = Annotated[
    Path | None,
    typer.Option(
        "--record", metavar="FILE", help="Append what goes over the wire to models to this tape."
    ),
]
Play = Annotated[
    Path | None,
    typer.Option(
        "--play", metavar="FILE", help="Let models answer from this tape, without any network."
    ),
]

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Options:
    """What was said before the command or behind it."""

    data: Path | None = None
    config: Path | None = None
    json: bool = False
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    """Settings that win over file and environment."""

    @property
    def place(self) -> Path:
        """The data directory."""
        from asterism.config import data_directory

        return data_directory(self.data, os.environ)

    def over(self, outer: Options) -> Options:
        """Return these options, with those of `outer` where nothing was said here."""
        return Options(
            self.data or outer.data,
            self.config or outer.config,
            self.json or outer.json,
            {**outer.settings, **self.settings},
        )

    def with_cassette(self, record: Path | None, play: Path | None) -> Options:
        """Return these options with a tape to record or to play, if one is named."""
        if record is None and play is None:
            return self
        if record is not None and play is not None:
            raise InvalidInput(
                "--record and --play exclude each other: a tape that plays needs no model. Give "
                "one of them. Nothing was done."
            )
        if play is not None:
            from asterism.models.cassette import settings_to_play

            return replace(self, settings={**self.settings, **settings_to_play(play)})
        assert record is not None
        tape = {"cassette.file": str(record.absolute()), "cassette.mode": "record"}
        return replace(self, settings={**self.settings, **tape})


def command(
    app: typer.Typer, name: str | None = None
) -> Callable[[Callable[Concatenate[Options, P], None]], Callable[..., None]]:
    """Make a function a command that takes the options of every command beside its own."""

    def register(function: Callable[Concatenate[Options, P], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def invoke(
            *,
            context: typer.Context,
            data: Path | None,
            config: Path | None,
            json: bool,
            **own: Any,
        ) -> None:
            outer = context.obj if isinstance(context.obj, Options) else Options()
            options = Options(data, config, json).over(outer)
            with told(lambda: options.place, json=options.json):
                function(options, **own)  # pyright: ignore[reportCallIssue] - own is P.kwargs

        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        parameters = [
            _keyword("context", typer.Context),
            *(one.replace(kind=one.KEYWORD_ONLY) for one in own),
            _keyword("data", Data, None),
            _keyword("config", Config, None),
            _keyword("json", Json, default=False),
        ]
        invoke.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue] - read by inspect
        invoke.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name)(invoke)
        return invoke

    return register


def _keyword(
    name: str, annotation: Any, default: object = inspect.Parameter.empty
) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def group(about: str) -> typer.Typer:
    """Return a noun that has commands, such as `agent`."""
    app = typer.Typer(help=about, rich_markup_mode=None, add_completion=False)

    @app.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            typer.echo(context.get_help())

    return app
