"""What commands take: options that several share, texts, files, times, and a yes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson
import typer

from asterism.cli.commands import argument, flag, option
from asterism.cli.output import printable
from asterism.cli.terminal import ctrl_c_interrupts
from asterism.errors import InvalidInput
from asterism.private import MAX_BYTES, NotRegular, TooLarge, private, read_regular
from asterism.times import read_moment, read_range

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.types.agents import AgentRecord
    from asterism.types.turns import AttachedDocument

CHANNEL = "terminal"
"""The channel of what is typed here."""
FIRST_AGENT = "aster"
STOPPED = "Stopped."
_MAX_DOCUMENT = 400_000
"""Characters of a document that go with a message at most."""
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
MAX_DIGITS = 18
"""Of a number that stores can keep; Python itself refuses to read thousands."""
_MAX_NAMES = 10
_SHARED = "constellation"

AgentArgument = Annotated[str, argument("AGENT", "The agent's name or id.")]
AgentOption = Annotated[str | None, option("--agent -a", "NAME", "The agent whose memory to use.")]
Constellation = Annotated[
    bool, flag("--constellation", "A block that belongs to all agents together.")
]
Limit = Annotated[int, option("--limit", None, "The maximum number.", min=1)]
Yes = Annotated[bool, flag("--yes -y", "Do not ask.")]
Reason = Annotated[str, option("--reason", "TEXT", "The reason; it is kept in the history.")]
Record = Annotated[
    Path | None,
    option("--record", "FILE", "Record the requests to models and their answers on this tape."),
]
Play = Annotated[
    Path | None, option("--play", "FILE", "Let models answer from this tape, without any network.")
]


# -- which agent and block -------------------------------------------------------------------------


def block_reference(
    agent: str | None, label: str, *, constellation: bool
) -> tuple[str | None, str]:
    """Return the agent that a label is read for, and the label; None: the owner, who sees all."""
    if not constellation:
        return agent, label
    if agent is not None:
        raise InvalidInput(
            "--agent and --constellation cannot be used together. Choose one. Nothing was done."
        )
    return None, label if "/" in label else f"{_SHARED}/{label}"


async def choose_agent(home: Asterism, agent: str | None, *, instead: str = "") -> AgentRecord:
    """Return the agent that is named; where there is only one, it needs no name.

    `instead` is a sentence on what else can be done where there are several.
    """
    if agent is not None:
        return await home.agents.get(agent)
    agents = await home.agents.list()
    if len(agents) == 1:
        return agents[0]
    if not agents:
        raise InvalidInput(
            'There are no agents yet. "asterism agent create" makes one. Nothing was done.'
        )
    more = " …" if len(agents) > _MAX_NAMES else ""
    names = ", ".join(agent.name for agent in agents[:_MAX_NAMES]) + more
    reason = f"Say whose memory is meant with --agent: {names}."
    raise InvalidInput(f"{reason} {instead}" if instead else reason, outcome="Nothing was done.")


# -- numbers, times, pairs, JSON -------------------------------------------------------------------


def number_of(text: str) -> int | None:
    """Return the number that digits spell; None if there are others, or more than stores keep."""
    if not text.isdecimal() or len(text) > MAX_DIGITS:
        return None
    return int(text)


def optional_moment(text: str | None) -> datetime | None:
    """Return the moment that is named, if one is."""
    return read_moment(text) if text is not None else None


def read_since(text: str, now: datetime | None = None) -> datetime:
    """Return the first moment of the time that a person means, such as "last week" or a day."""
    return read_range(text, now, _read_phrase)[0]


def read_until(text: str, now: datetime | None = None) -> datetime:
    """Return the last moment of the time that a person means; a day is meant to its end."""
    return read_range(text, now, _read_phrase)[1]


def _read_phrase(text: str, now: int) -> tuple[int, int] | None:
    from asterism.search.query import span_of  # its patterns take long to compile

    return span_of(text, now)


def read_json(text: str, where: str, outcome: str = "Nothing was changed.") -> Any:
    """Return what JSON says; `where` it stands is named if it is not valid."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{where} is not valid JSON ({error}). {outcome}") from None


def read_pair(text: str, form: str, option: str = "") -> tuple[str, str]:
    """Return what is before and behind `=`; `form` says how to write it."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InvalidInput(
            f"{f'{option} ' if option else ''}{text[:40]!r} is not {form}. Nothing was changed."
        )
    return name.strip(), value


def only_one(options: Sequence[tuple[str, object]], *, needed: bool = True) -> str | None:
    """Return which of some options is used; raise `InvalidInput` if it is not exactly one."""
    used = [name for name, value in options if value is not None and value is not False]
    names = [name for name, _ in options]
    if len(used) > 1:
        raise InvalidInput(
            f"{' and '.join(used)} cannot be used together. Choose one. Nothing was done."
        )
    if not used and needed:
        raise InvalidInput(
            f"Give one of {', '.join(names[:-1])} and {names[-1]}. Nothing was done."
        )
    return used[0] if used else None


# -- files -----------------------------------------------------------------------------------------


def read_bytes(file: Path) -> bytes:
    """Return what is in a file; `-` is standard input."""
    try:
        if str(file) != "-":
            return read_regular(file)
        content = sys.stdin.buffer.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise TooLarge(MAX_BYTES)
    except NotRegular:
        raise InvalidInput(
            f"{file} is not a regular file. Name another file, or use - for standard input. "
            "Nothing was done."
        ) from None
    except TooLarge:
        raise InvalidInput(
            f"{_name(file)} has more than {MAX_BYTES >> 20:,} MB, which is the limit. "
            'Split it; folders of documents are read with "asterism source add". '
            "Nothing was done."
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read ({error.strerror}). Name a file that exists. Nothing was done."
        ) from None
    return content


def read_text(file: Path) -> str:
    """Return the text of a file; `-` is standard input."""
    content = read_bytes(file)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(
            f"{_name(file)} is not UTF-8 text. Save it as UTF-8; documents such as PDF files are "
            'read with "asterism source add". Nothing was done.'
        ) from None
    if "\0" in text:
        raise InvalidInput(
            f"{_name(file)} is binary, not text. Name a text file; documents such as PDF files "
            'are read with "asterism source add". Nothing was done.'
        )
    return text


def _name(file: Path) -> str:
    return "Standard input" if str(file) == "-" else str(file)


def write_bytes(file: Path, content: bytes) -> None:
    """Write a file that is not there yet."""
    try:
        with open(file, "xb", opener=private) as out:
            out.write(content)
    except FileExistsError:
        raise InvalidInput(
            f"{file} already exists. Name another file, or move it. Nothing was written."
        ) from None
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be written ({error.strerror}). Nothing was written."
        ) from None


# -- what goes with a message ----------------------------------------------------------------------


def read_document(path: Path) -> AttachedDocument:
    """Read a document with the readers that sources use; of a long one, its beginning."""
    from asterism.sources.readers import DocumentRefused, is_known, looks_readable, read

    path = path.expanduser()
    if not path.exists():
        raise InvalidInput(f"There is no file {str(path)!r}. Nothing was sent.")
    if path.suffix.lower() in _IMAGES:
        raise InvalidInput(
            f"{path.name!r} is an image, not a document. Send it with --image, in a chat with "
            "/image. Nothing was sent."
        )
    try:
        if not is_known(path) and not looks_readable(path):
            raise InvalidInput(
                f"{path.name!r} is a file of a kind that is not read. Convert it to text, PDF or "
                "an office document. Nothing was sent."
            )
        text = "\n\n".join(piece.text for piece in read(path))
    except DocumentRefused as error:
        raise InvalidInput(f"{error.reason} Nothing was sent.") from None
    if not text.strip():
        raise InvalidInput(f"{path.name!r} has no text that can be read. Nothing was sent.")
    return document_of(path.name, text)


def document_of(name: str, text: str) -> AttachedDocument:
    """Return a text as a document that goes with a message, cut if it is too long."""
    from asterism.types.turns import AttachedDocument

    name = printable(name).replace("\n", " ")
    return AttachedDocument(name, text[:_MAX_DOCUMENT], max(0, len(text) - _MAX_DOCUMENT))


# -- the home --------------------------------------------------------------------------------------


async def renew(home: Asterism) -> None:
    """Go on with whoever has the home open now; if nobody has, in this process."""
    from asterism.client import RemoteHome

    if isinstance(home, RemoteHome):
        await home.renew()


# -- a yes -----------------------------------------------------------------------------------------


def require_yes(question: str, *, yes: bool) -> None:
    """Ask for a yes; without it the command ends. `--yes` has answered before."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidInput(
            f"{question} This needs a confirmation. Run it in a terminal, or add --yes. "
            "Nothing was done."
        )
    try:
        with ctrl_c_interrupts():
            answer = typer.confirm(printable(question), err=True)
    except typer.Abort:  # Ctrl-C, or the end of input
        raise KeyboardInterrupt from None
    if not answer:
        raise typer.Exit(1)
