"""Commands: what a function needs to be one.

A command is an async function that takes the home and returns a `Result`:

    @command(app, "list", example="agent list", readonly=True)
    async def list_agents(home: Asterism) -> Result:

Parameters named `home` and `options` are filled in; all others become arguments and options. The
home is opened for the command, and what it returns is printed as text or JSON; errors become
sentences and exit codes. A command that checks its arguments before anything is opened takes
`options` and calls `open_home` itself. One that talks with a person is a plain function.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import functools
import inspect
import logging
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast
from zoneinfo import ZoneInfo

import typer
from typer.core import TyperCommand, TyperGroup

from asterism.cli import log
from asterism.cli.output import Output, as_json, printable
from asterism.errors import AsterismError, InvalidInput, StoreMissing
from asterism.private import data_directory
from asterism.records import dataclass
from asterism.times import use_local_zone
from asterism.views import problem, problem_of

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.keys import StoredKeys
    from asterism.cli.output import Result
    from asterism.client import RemoteHome

F = TypeVar("F", bound=Callable[..., Any])

FAILED, MISUSED, PARKED, INTERRUPTED = 1, 2, 3, 130

TITLES = {"usage": "The command cannot be understood", "fault": "A fault inside asterism"}
"""Kinds of problems that only a command line has."""

_PANEL = "Options of every command"
_FILLED_IN = ("home", "options")
_NEVER_CUT = 1_000
_SAME_ACT = (
    ("cancel", "delete", "remove", "revoke", "rm", "stop", "unset"),
    ("add", "create", "new", "set", "give"),
    ("list", "ls", "all"),
    ("show", "get", "info", "view", "cat"),
    ("edit", "update", "change", "describe"),
)
"""Words that people try for the same act; each noun has one of them."""

_HELP = "help"
_STOPS_ALL = "halt"
_CERTAIN = 0.8
"""How similar a word must be to suggest what stops all agents: `halp` is not."""

_log = logging.getLogger(__name__)

Data = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="The data directory (default: $ASTERISM_DATA, else the platform's usual directory).",
        rich_help_panel=_PANEL,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help=(
            "The configuration file (default: $ASTERISM_CONFIG, else asterism.toml in the data "
            "directory)."
        ),
        rich_help_panel=_PANEL,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=_PANEL)
]


# -- options of every command ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Options:
    """The options of every command, before the command or behind it."""

    data: Path | None = None
    config: Path | None = None
    json: bool = False
    settings: Mapping[str, object] = field(default_factory=dict[str, object])
    """Settings that win over file and environment."""
    url: str | None = None
    """The address of a home that runs elsewhere."""

    @property
    def place(self) -> Path:
        """The data directory."""
        return data_directory(self.data, os.environ)

    def over(self, outer: Options) -> Options:
        """Return these options, with those of `outer` where none is given here."""
        return Options(
            self.data or outer.data,
            self.config or outer.config,
            self.json or outer.json,
            {**outer.settings, **self.settings},
            self.url or outer.url,
        )

    def with_settings(self, settings: Mapping[str, object]) -> Options:
        """Return these options with more settings; None stands for not given."""
        given = {name: value for name, value in settings.items() if value is not None}
        return replace(self, settings={**self.settings, **given})

    def with_cassette(self, record: Path | None, play: Path | None) -> Options:
        """Return these options with a tape to record or to play, if one is named."""
        if record is None and play is None:
            return self
        if record is not None and play is not None:
            raise InvalidInput(
                "--record and --play cannot be used together. Choose one. Nothing was done."
            )
        if play is not None:
            from asterism.models.cassette import settings_to_play

            return replace(self, settings={**self.settings, **settings_to_play(play)})
        assert record is not None
        tape = {"cassette.file": str(record.absolute()), "cassette.mode": "record"}
        return replace(self, settings={**self.settings, **tape})


# -- the home --------------------------------------------------------------------------------------


@asynccontextmanager
async def open_home(
    options: Options,
    *,
    work: bool = False,
    readonly: bool = False,
    grace: float = 10.0,
    on_problem: Callable[[str], None] = _log.warning,
) -> AsyncGenerator[Asterism, None]:
    """Give the home that the options name: the one that another process has open, or one's own."""
    from asterism.client import RemoteHome, running_or_opened

    url = options.url or (os.environ.get("ASTERISM_URL") if options.data is None else None)
    if url:
        async with _elsewhere(options, url) as home:
            yield home
        return

    def opening() -> AbstractAsyncContextManager[Asterism]:
        return open_here(options, work=work, readonly=readonly, grace=grace, on_problem=on_problem)

    async with running_or_opened(options.place, opening, work=work) as home:
        if isinstance(home, RemoteHome):
            _check_settings(options, home)
            log.start(None)
            use_local_zone(ZoneInfo(home.hello.zone) if home.hello.zone else None)
        yield cast("Asterism", home)


@asynccontextmanager
async def _elsewhere(options: Options, url: str) -> AsyncGenerator[Asterism, None]:
    """Give the home behind an address."""
    from asterism.app.remote import connected

    if options.settings or options.config is not None:
        raise InvalidInput(
            f"--config, --record and --play are for a home of one's own, and {url} names one that "
            "runs elsewhere. Leave them out, or the address. Nothing was done."
        )
    token = os.environ.get("ASTERISM_TOKEN")
    if not token:
        raise InvalidInput(
            f"{url} needs a token. Set ASTERISM_TOKEN to one of the owner; on that machine, "
            '"asterism token create" makes one. Nothing was done.'
        )
    log.start(None)
    async with connected(url, token) as home:
        use_local_zone(ZoneInfo(home.hello.zone) if home.hello.zone else None)
        yield cast("Asterism", home)


def _check_settings(options: Options, home: RemoteHome) -> None:
    """Raise `InvalidInput` if a home that runs cannot do as the options say."""
    pid = home.hello.pid
    if options.settings:
        raise InvalidInput(
            f"--record and --play need a home of their own, and process {pid} has {options.place} "
            "open. End it, or choose another directory with --data. Nothing was done."
        )
    named = options.config or os.environ.get("ASTERISM_CONFIG")
    if named is not None and str(Path(named).absolute()) != home.hello.config:
        raise InvalidInput(
            f"Process {pid} has {options.place} open with the configuration {home.hello.config}, "
            f"not with {named}. Leave out --config and ASTERISM_CONFIG, or end that process. "
            "Nothing was done."
        )


@asynccontextmanager
async def open_here(
    options: Options,
    *,
    work: bool = False,
    readonly: bool = False,
    grace: float = 10.0,
    on_problem: Callable[[str], None] = _log.warning,
) -> AsyncGenerator[Asterism, None]:
    """Open the home that the options name in this process."""
    from asterism.app import Asterism

    log.start(None if readonly else options.place)
    async with Asterism.open(
        options.data,
        config=options.config,
        settings=options.settings,
        work=work,
        readonly=readonly,
        grace=grace,
        on_problem=on_problem,
    ) as home:
        log.follow(home.settings)
        use_local_zone(home.settings.zone if home.settings.timezone else None)
        yield home


@asynccontextmanager
async def stored_keys(
    options: Options, *, lenient: bool = False
) -> AsyncGenerator[StoredKeys, None]:
    """Open the keys that turns would use; none where there is no database yet.

    With `lenient`, there are none either where the database cannot be read.
    """
    from asterism.app.keys import NoStoredKeys

    async with AsyncExitStack() as stack:
        keys: StoredKeys = NoStoredKeys()
        try:
            home = await stack.enter_async_context(open_home(options, readonly=True))
            keys = home.keys
        except StoreMissing:
            pass
        except AsterismError:
            if not lenient:
                raise
        yield keys


# -- help ------------------------------------------------------------------------------------------

HELP_WIDTH = {"max_content_width": 120}
"""As wide as the terminal, and not so wide that lines are hard to read."""
_TYPE = re.compile(r" <([^<>]+)>$")
_NUMBERS = ("int", "float", "int range", "float range")
_RANGES = (
    (re.compile(r"([\d.]+)<=x<=([\d.]+)"), r"\1 to \2"),
    (re.compile(r"x>=([\d.]+)"), r"\1 or more"),
    (re.compile(r"x<=([\d.]+)"), r"\1 or less"),
)
_PLAIN_WORDS = (
    (re.compile(r"\S+ is not in the range "), "it must be "),
    *_RANGES,
    (re.compile(r"\S+ is not a valid int(?: range)?(?=\.?$)"), "it must be a whole number"),
    (re.compile(r"\S+ is not a valid float(?: range)?(?=\.?$)"), "it must be a number"),
)


def _help_rows(command: Any, context: Any, kind: str) -> list[tuple[str, str]]:
    """Return the rows for arguments or options: what to write, and what it means."""
    rows: list[tuple[str, str]] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or parameter.param_type_name != kind:
            continue
        name, about = record
        if found := _TYPE.search(name):
            value = "N" if found[1] in _NUMBERS else found[1]
            name = name[: found.start()] + ("" if kind == "argument" else f" {value}")
        for pattern, words in _RANGES:
            about = pattern.sub(words, about)
        rows.append((name, about.replace("  [required]", "")))
    return rows


def _write_help_rows(command: Any, context: Any, formatter: Any) -> None:
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        if rows := _help_rows(command, context, kind):
            with formatter.section(title):
                formatter.write_dl(rows)


class HelpCommand(TyperCommand):
    """A command whose help says what to write, and shows one example."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return what stands behind the name, without marks around what is required."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        _write_help_rows(self, ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the example on a line of its own, so that it can be copied."""
        del ctx
        if self.epilog:
            with formatter.section("Example"):
                formatter.write(f"{'':>{formatter.current_indent}}asterism {self.epilog}\n")


class HelpGroup(TyperGroup):
    """A noun or the program itself: its commands are listed with all of their first sentence."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options, then the commands."""
        _write_help_rows(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands; long sentences go on in the next line."""
        rows: list[tuple[str, str]] = []
        for name in self.list_commands(ctx):
            found = self.get_command(ctx, name)
            if found is not None and not found.hidden:
                rows.append((name, found.get_short_help_str(_NEVER_CUT)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; `help` shows help, and what is not there leads to what is meant."""
        if self.get_command(ctx, args[0]) is not None or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        if args[0] == _HELP:
            if len(args) > 1:
                return self.resolve_command(ctx, [*args[1:], "--help"])
            typer.echo(ctx.get_help())
            raise typer.Exit
        meant = self._meant(args[0].lower())
        hint = f" Did you mean {' or '.join(map(repr, meant))}?" if meant else ""
        unknown = typer.TyperException(f"No such command {args[0]!r}.{hint}")
        unknown.ctx = ctx  # pyright: ignore[reportAttributeAccessIssue] - as those of typer have
        raise unknown

    def _meant(self, given: str) -> list[str]:
        """Return the commands that do what a word asks for, else those with a similar name."""
        same = [words for words in _SAME_ACT if given in words]
        if meant := [name for name in self.commands if any(name in words for words in same)]:
            return meant
        there = [*(name for name, found in self.commands.items() if not found.hidden), _HELP]
        near = difflib.get_close_matches(given, there, 2)
        if near[:1] == [_STOPS_ALL] and _similarity(given, _STOPS_ALL) >= _CERTAIN:
            return near[:1]
        return [name for name in near if name != _STOPS_ALL]


def _similarity(word: str, name: str) -> float:
    return difflib.SequenceMatcher(None, word, name).ratio()


# -- commands --------------------------------------------------------------------------------------


def argument(metavar: str, about: str) -> Any:
    """Describe an argument: what it is called in help, and what it is."""
    return typer.Argument(metavar=metavar, help=about)


def option(flags: str, metavar: str | None, about: str, **limits: float) -> Any:
    """Describe an option with a value, such as `--agent -a`; `limits` are `min` and `max`."""
    bounds: dict[str, Any] = limits
    return typer.Option(*flags.split(), metavar=metavar, help=about, **bounds)


def flag(flags: str, about: str) -> Any:
    """Describe an option without a value, such as `--yes -y`."""
    return typer.Option(*flags.split(), help=about)


def group(about: str, *, in_pipe: Callable[[Options], None] | None = None) -> typer.Typer:
    """Return a noun that has commands, such as `agent`.

    Alone it shows its help; with `in_pipe`, only at a terminal, and else it does that.
    """
    app = typer.Typer(
        cls=HelpGroup,
        help=about,
        rich_markup_mode=None,
        add_completion=False,
        context_settings=HELP_WIDTH,
    )

    @app.callback(invoke_without_command=True)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is not None:
            return
        if in_pipe is None or sys.stdin.isatty():
            typer.echo(context.get_help())
        else:
            in_pipe(context.obj if isinstance(context.obj, Options) else Options())

    return app


def command(
    app: typer.Typer,
    name: str | None = None,
    *,
    example: str = "",
    readonly: bool = False,
    work: bool = False,
) -> Callable[[F], F]:
    """Make a function a command; the function itself stays as it is and can be called.

    Args:
        app: What the command belongs to.
        name: Its name; else the function's.
        example: What one would type behind `asterism`, for help.
        readonly: Open the home for reading alone, beside a process that works there.
        work: Open the home at work, so that turns are taken.
    """

    def register(function: F) -> F:
        own = _own_parameters(function)

        @functools.wraps(function)
        def invoke(
            *,
            context: typer.Context,
            data: Path | None,
            config: Path | None,
            json: bool,
            **arguments: Any,
        ) -> None:
            outer = context.obj if isinstance(context.obj, Options) else Options()
            options = Options(data, config, json).over(outer)
            run_command(function, options, arguments, readonly=readonly, work=work)

        parameters = [
            _keyword("context", typer.Context),
            *own,
            _keyword("data", Data, None),
            _keyword("config", Config, None),
            _keyword("json", Json, default=False),
        ]
        invoke.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue] - read by inspect
        invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name, cls=HelpCommand, epilog=example, context_settings=HELP_WIDTH)(invoke)
        return function

    return register


def _own_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters that are arguments and options; types of others are not imported."""

    def described() -> None:
        """Carry the annotations that can be read."""

    described.__annotations__ = {
        name: annotation
        for name, annotation in function.__annotations__.items()
        if name not in (*_FILLED_IN, "return")
    }
    types = inspect.get_annotations(
        described, globals=vars(sys.modules[function.__module__]), eval_str=True
    )
    return [
        parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=types[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name in types
    ]


def _keyword(
    name: str, annotation: Any, default: object = inspect.Parameter.empty
) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def run_command(
    function: Callable[..., Any],
    options: Options,
    arguments: dict[str, Any],
    *,
    readonly: bool = False,
    work: bool = False,
) -> None:
    """Call a command, print its result or what went wrong, and end with the code that fits."""
    with reporting_problems(options):
        result = _call(function, options, arguments, readonly=readonly, work=work)
        if result is not None:
            Output(json=options.json).result(result)
            if result.code:
                raise typer.Exit(result.code)


def _call(
    function: Callable[..., Any],
    options: Options,
    arguments: dict[str, Any],
    *,
    readonly: bool,
    work: bool,
) -> Result | None:
    parameters = inspect.signature(function).parameters
    if "options" in parameters:
        arguments = {**arguments, "options": options}
    if not inspect.iscoroutinefunction(function):
        return function(**arguments)

    async def run() -> Result | None:
        if "home" not in parameters:
            return await function(**arguments)
        async with open_home(options, readonly=readonly, work=work) as home:
            return await function(home=home, **arguments)

    return asyncio.run(run())


# -- problems --------------------------------------------------------------------------------------


@contextlib.contextmanager
def reporting_problems(options: Options) -> Generator[None, None, None]:
    """Print what goes wrong inside on standard error, and end with the code that fits.

    A bug of ours is written to the log of the data directory; the terminal gets no traceback.
    """
    try:
        yield
    except typer.Exit:
        raise
    except AsterismError as error:
        print_problem(problem(error), json=options.json)
        raise typer.Exit(MISUSED if isinstance(error, InvalidInput) else FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise typer.Exit(output_closed()) from None
    except Exception as error:  # noqa: BLE001 - the one place where a bug of ours is reported
        file = log.write_fault(options.place, error)
        detail = (
            f"A fault inside asterism ({type(error).__name__}); nothing that was confirmed is "
            f"lost. The details are at the end of {file}: please open an issue with them and what "
            "you did."
        )
        print_problem(problem_of("fault", TITLES["fault"], detail), json=options.json)
        raise typer.Exit(FAILED) from None


def usage_error(detail: str, *, json: bool) -> int:
    """Print what is wrong with the command line, and return the exit code."""
    print_problem(problem_of("usage", TITLES["usage"], detail), json=json)
    return MISUSED


def misuse(error: typer.TyperException, *, json: bool) -> int:
    """Print what typer does not accept, and where help is."""
    detail = _in_plain_words(error.format_message().strip())
    stop = "" if detail.endswith((".", "?", "!")) else "."
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "asterism"
    return usage_error(f'{detail}{stop} "{path} --help" shows the valid usage.', json=json)


def _in_plain_words(detail: str) -> str:
    """Return what a library says of a value, in the words of all other messages."""
    for pattern, words in _PLAIN_WORDS:
        detail = pattern.sub(words, detail)
    return detail


def output_closed() -> int:
    """Be silent, since nobody reads the output any more; Python would complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def print_problem(problem: Mapping[str, Any], *, json: bool) -> None:
    """Print a problem on standard error: a sentence, or a JSON object with `--json`."""
    text = as_json(problem) if json else f"asterism: {printable(problem['detail'])}"
    print(text, file=sys.stderr)  # noqa: T201


@contextlib.contextmanager
def note_if_stopped(message: Callable[[], str]) -> Generator[None, None, None]:
    """Print on standard error how to go on, if Ctrl-C stops what is inside."""
    try:
        yield
    except asyncio.CancelledError:
        typer.echo(printable(message()), err=True)
        raise
