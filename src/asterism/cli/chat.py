"""`asterism chat`: a conversation at the terminal, or one question from a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGHUP, SIGTERM
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson

from asterism.cli.commands import Options, flag, option
from asterism.cli.halt import wait_unless_halted
from asterism.cli.home_thread import HomeThread, home_thread
from asterism.cli.inputs import (
    CHANNEL,
    FIRST_AGENT,
    STOPPED,
    Play,
    Record,
    document_of,
    read_bytes,
    read_document,
    renew,
)
from asterism.cli.output import note, plural
from asterism.cli.terminal import exit_on
from asterism.cli.turn import outcome_result
from asterism.errors import AsterismError, HomeLost, InvalidInput
from asterism.types.agents import new_id

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.app.agents import Agent
    from asterism.cli.conversation import TerminalConversation
    from asterism.cli.output import Result
    from asterism.types.turns import Outcome, Receipt

_LOOKED_BACK = 50
"""How many of the latest turns are looked at for the agent that was talked to last."""

AgentName = Annotated[
    str | None, option("--agent", "NAME", "The agent to talk to; default: the last one.")
]
GroupName = Annotated[str | None, option("--group", "NAME", "Talk to a group instead.")]
Once = Annotated[
    str | None, option("--once", "TEXT", "Ask this, print the answer and end; - reads stdin.")
]
Images = Annotated[
    list[Path] | None, option("--image", "FILE", "Show this image too, with --once; repeatable.")
]
Files = Annotated[
    list[Path] | None, option("--file", "FILE", "Send this document along; repeatable.")
]
Schema = Annotated[
    Path | None, option("--schema", "FILE", "With --once: answer in JSON that follows this schema.")
]
Plain = Annotated[
    bool, flag("--plain", "A plain prompt that never redraws, as for screen readers.")
]
Yes = Annotated[
    bool, flag("--yes -y", "At a first start, ask no questions and use the first available model.")
]


def chat(
    options: Options,
    agent: AgentName = None,
    group: GroupName = None,
    once: Once = None,
    image: Images = None,
    file: Files = None,
    schema: Schema = None,
    plain: Plain = False,
    yes: Yes = False,
    record: Record = None,
    play: Play = None,
) -> Result | None:
    """Talk to an agent or a group. With --once or in a pipe: one message in, its answer out."""
    options = options.with_cassette(record, play)
    if record is not None:
        return _recorded(
            record, lambda: chat(options, agent, group, once, image, file, schema, plain, yes)
        )
    interactive = sys.stdin.isatty() and sys.stdout.isatty()
    if group is not None:
        if agent or image or schema or file:
            raise InvalidInput(
                "--group cannot be used with --agent, --image, --file or --schema. Nothing was "
                "sent."
            )
        return _talk_to_group(options, group, once, plain=plain, interactive=interactive)
    if once is None and interactive and not options.json:
        if image or schema or file:
            raise InvalidInput(
                "--image, --file and --schema need --once TEXT or a message from a pipe. In a "
                "conversation, /image FILE TEXT shows an image, and /file FILE TEXT sends a "
                "document along. Nothing was sent."
            )
        if play is None:
            from asterism.cli.setup import choose_model

            choose_model(options, yes=yes)
        _talk_to_agent(options, agent, plain=plain)
        return None
    documents = [read_document(path) for path in file or ()]
    attached: dict[str, Any] = {
        "images": [read_bytes(path.expanduser()) for path in image or ()],
        "schema": _read_schema(schema) if schema else None,
    }
    if once in (None, "-"):
        text = _standard_input()
    else:
        text = once or ""
        if _is_piped() and (piped := _standard_input()).strip():
            documents.append(document_of("standard input", piped))
    if documents:
        attached["documents"] = documents
    # A home that was used, and one elsewhere, has its model: setup is not even imported.
    if play is None and not yes and not _has_model(options):
        from asterism.cli.setup import fetch_model

        fetch_model(options)
    return _ask_once(options, agent, text, attached)


def _talk_to_agent(options: Options, name: str | None, *, plain: bool) -> None:
    """Talk to an agent at a terminal; without a name, to the last one."""
    from asterism.cli.agent_chat import AgentChat

    def open_chat(thread: HomeThread, name: str | None, *parts: Any) -> TerminalConversation:
        return AgentChat(thread, thread.run(_choose(thread.home, name)), *parts)

    _converse(options, name, AgentChat, open_chat, plain=plain)


def _talk_to_group(
    options: Options, name: str, once: str | None, *, plain: bool, interactive: bool
) -> Result | None:
    """Talk to a group at a terminal, or send it one message and return its answer."""
    if once is None and interactive and not options.json:
        from asterism.cli.group_chat import GroupChat

        _converse(options, name, GroupChat, GroupChat.open, plain=plain)
        return None
    from asterism.cli.group import ask_group

    text = _standard_input() if once in (None, "-") else once or ""
    return asyncio.run(ask_group(options, name, text))


def _recorded(tape: Path, run: Callable[[], Result | None]) -> Result | None:
    """Run something that is to be recorded, and say so if nothing was."""

    def size() -> int:
        return tape.stat().st_size if tape.exists() else 0

    before = size()
    result = run()
    if size() == before:
        note(
            f"Nothing was recorded on {tape}: no request was made to a model. The demo model makes "
            'none; "asterism model use" chooses another.'
        )
    return result


# -- one question ------------------------------------------------------------------------------


def _ask_once(options: Options, agent: str | None, text: str, attached: dict[str, Any]) -> Result:
    with home_thread(options) as thread:
        who = thread.run(_choose(thread.home, agent))
        older = len(thread.home.taken_up)
        if older and not options.json and thread.run(thread.home.halts.current()) is None:
            note(f"Continuing {plural(older, 'message')} from before the restart.")
        if not options.json and who.model_in_use.startswith("embedded:"):
            from asterism.cli.setup import hint_at_better

            if who.model == "default" and (hint := hint_at_better(who.model_in_use)):
                note(hint)
        outcome = _answer(thread, who, text, attached)
    return outcome_result(outcome, who.name)


def _answer(thread: HomeThread, who: Agent, text: str, attached: dict[str, Any]) -> Outcome:
    receipt = thread.run(_send(thread.home, who, text, attached))
    ended = thread.start(_wait(thread.home, receipt))
    try:
        return ended.result()
    except KeyboardInterrupt:
        with contextlib.suppress(AsterismError):
            thread.run(thread.home.turns.stop(receipt.turn_id, STOPPED))
        return ended.result()


async def _send(home: Asterism, who: Agent, text: str, attached: dict[str, Any]) -> Receipt:
    """Send a message once, although the process that has the home open may end meanwhile."""
    external_id = new_id("once")
    while True:
        try:
            return await home.agents.send(
                who, text, channel=CHANNEL, external_id=external_id, **attached
            )
        except HomeLost:
            await renew(home)


async def _wait(home: Asterism, receipt: Receipt) -> Outcome:
    """Return how a turn ends; should the process end that has the home open, it goes on here."""
    while True:
        try:
            return await wait_unless_halted(home, receipt)
        except HomeLost as lost:
            note(lost.reason)
            await renew(home)


def _has_model(options: Options) -> bool:
    """Tell without a look into the configuration whether a home needs no model to be fetched."""
    named = ("ASTERISM_NONINTERACTIVE", "ASTERISM_URL")
    return (
        options.url is not None
        or any(os.environ.get(name) for name in named)
        or any(options.place.glob("asterism.db*"))
    )


def _is_piped() -> bool:
    """Tell whether something comes with a message through standard input: a pipe or a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


def _standard_input() -> str:
    from asterism.types.turns import MAX_MESSAGE_LENGTH

    limit = MAX_MESSAGE_LENGTH * 4  # bytes that as many characters take at most
    raw = sys.stdin.buffer.read(limit + 1)
    if len(raw) > limit:
        raise InvalidInput(
            f"The message is longer than {limit:,} bytes; the limit is {MAX_MESSAGE_LENGTH:,} "
            "characters. Send it in parts. Nothing was stored."
        )
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"Byte {error.start + 1} of standard input (0x{raw[error.start]:02x}) is not UTF-8. "
            "Send the message as UTF-8. Nothing was stored."
        ) from None


async def _choose(home: Asterism, name: str | None) -> Agent:
    """Return the agent of that name; without one, the one that was talked to last."""
    if name is not None:
        return await home.agents.get(name)
    agents = {agent.id: agent for agent in await home.agents.list()}
    if not agents:
        return await home.agents.ensure(FIRST_AGENT)
    for turn in await home.turns.list(limit=_LOOKED_BACK):
        if turn.channel == CHANNEL and turn.agent_id in agents:
            return agents[turn.agent_id]
    return min(agents.values(), key=lambda agent: agent.created_at_ms)


def _read_schema(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        schema = orjson.loads(read_bytes(path.expanduser()))
    except orjson.JSONDecodeError as error:
        why = f"it is not JSON ({error})"
    else:
        if isinstance(schema, dict):
            return cast("dict[str, Any]", schema)
        why = "it is not a JSON object"
    raise InvalidInput(
        f"The schema {str(path)!r} cannot be read: {why}. Name a file with a JSON schema. Nothing "
        "was sent."
    )


# -- a conversation ----------------------------------------------------------------------------


def _converse(
    options: Options,
    name: str | None,
    kind: type[TerminalConversation],
    start: Callable[..., TerminalConversation],
    *,
    plain: bool,
) -> None:
    """Talk until the person leaves; `start` takes the home, the name, a screen and a prompt."""
    from asterism.cli.screen import LiveScreen, Prompt, Screen

    if plain or os.environ.get("TERM", "dumb") in ("", "dumb"):
        screen = Screen()
        prompt = Prompt(
            options.place, [f"/{command}" for command in kind.COMMANDS], coloured=screen.coloured
        )
        exit_on((SIGTERM, SIGHUP), prompt.close)
    else:
        from asterism.cli.input_line import InputLine

        screen = LiveScreen()
        prompt = InputLine(options.place, kind.COMMANDS, screen, coloured=screen.coloured)
        screen.write = prompt.print

    def on_problem(problem: str) -> None:
        prompt.announce(lambda: screen.warn(problem))

    with home_thread(options, follow=True, on_problem=on_problem) as thread:
        chat = start(thread, name, screen, prompt)
        prompt.on_interrupt, prompt.on_leave = chat.interrupt, chat.leave
        prompt.run(chat.converse)
