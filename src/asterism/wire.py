"""The wire between a running home and other terminals: a Unix socket, and values as lines of JSON.

A connection is one call of a verb. The client writes one line with the verb and its arguments; the
home answers with lines: what the verb yields, what it reports, and its result or its error. To
close the connection is to cancel the verb.

Plain values are plain JSON. Any other value is an object with its kind under `"!"`, such as
`{"!": "datetime", "value": "2026-11-18T09:00:00+00:00"}`; a record has the name of its class there
and its fields beside it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import errno
import importlib
import json
import os
import re
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import date, datetime, timedelta
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from asterism.errors import AsterismError, NotAllowed

FILE = "asterism.sock"
"""The socket's name in the data directory."""
MAX_FRAME = 512 << 20
"""Bytes that a line has at most."""
KIND = "!"
_MAX_PATH = 100
"""Bytes that every system takes as the path of a socket: Linux takes 107, macOS 103."""
_PACKAGE = "asterism."


class BadFrame(ValueError):
    """What came is not a frame, or holds a value that cannot be read."""


# -- values ----------------------------------------------------------------------------------------

Convert = Callable[[Any], Any]


def encode(value: Any, convert: Convert | None = None) -> Any:
    """Return a value as JSON can hold it.

    Args:
        value: What a verb takes, yields or returns.
        convert: Returns what is sent instead of a record or a function.
    """
    kind = cast("type[Any]", type(value))
    if value is None or kind in (str, int, float, bool):
        return value
    if kind is list:
        return [encode(part, convert) for part in value]
    if kind is dict:
        return _encode_mapping(value, convert)
    if isinstance(value, Enum):
        return {KIND: _name_of(kind), "value": encode(value.value, convert)}
    if convert is not None and (callable(value) or dataclasses.is_dataclass(value)):
        converted = convert(value)
        if converted is not value:
            return encode(converted, None)
    if dataclasses.is_dataclass(value):
        named = {
            field.name: encode(getattr(value, field.name), convert)
            for field in dataclasses.fields(value)
            if field.init
        }
        return {KIND: _name_of(kind), **named}
    return _encode_other(value, convert)


def _encode_mapping(value: Mapping[Any, Any], convert: Convert | None) -> dict[str, Any]:
    if KIND not in value and all(type(key) is str for key in value):
        return {key: encode(part, convert) for key, part in value.items()}
    pairs = [[encode(key, convert), encode(part, convert)] for key, part in value.items()]
    return {KIND: "dict", "value": pairs}


def _encode_other(value: Any, convert: Convert | None) -> Any:
    for kind, (name, write) in _WRITTEN.items():
        if isinstance(value, kind):
            return {KIND: name, "value": encode(write(value), convert)}
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return _encode_mapping(cast("Mapping[Any, Any]", value), convert)
    if hasattr(value, "get_secret_value"):
        return {KIND: "secret", "value": value.get_secret_value()}
    if hasattr(value, "model_dump"):
        fields = cast("Iterable[str]", type(value).model_fields)
        named = {name: encode(getattr(value, name), convert) for name in fields}
        return {KIND: _name_of(cast("type[Any]", type(value))), **named}
    if isinstance(value, Iterable):
        return [encode(part, convert) for part in cast("Iterable[Any]", value)]
    raise TypeError(f"A value of type {type(value).__name__} cannot be sent to another process.")


_WRITTEN: dict[type[Any], tuple[str, Callable[[Any], Any]]] = {
    bytes: ("bytes", lambda value: base64.b64encode(value).decode()),
    datetime: ("datetime", datetime.isoformat),  # before `date`, which it is too
    date: ("date", date.isoformat),
    timedelta: ("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    # The other process may be in another directory.
    Path: ("path", lambda value: str(value.absolute())),
    tuple: ("tuple", list),
    set: ("set", list),
    frozenset: ("frozenset", list),
}


def decode(value: Any, *, trusted: bool = False) -> Any:
    """Return the value that `encode` was given.

    Args:
        value: As JSON has it.
        trusted: Whether modules may be imported to make records of; else a record's class must be
            known to this process already.
    """
    if isinstance(value, list):
        return [decode(part, trusted=trusted) for part in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = cast("dict[str, Any]", value)
    if KIND not in fields:
        return {name: decode(part, trusted=trusted) for name, part in fields.items()}
    kind = fields[KIND]
    named = {name: decode(part, trusted=trusted) for name, part in fields.items() if name != KIND}
    try:
        if kind in _PLAIN:
            return _PLAIN[kind](named["value"])
        return _record(_class_of(kind, trusted=trusted), named)
    except BadFrame:
        raise
    except (TypeError, ValueError, KeyError, AsterismError, OverflowError) as error:
        raise BadFrame(f"{str(kind)[:80]!r} cannot be made of what was sent: {error}") from None


def _secret(text: str) -> Any:
    from pydantic import SecretStr

    return SecretStr(text)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise BadFrame(str(error)) from None


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    "bytes": _bytes,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "path": Path,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": dict,
    "secret": _secret,
}


def _name_of(kind: type[Any]) -> str:
    if not kind.__module__.startswith(_PACKAGE):
        raise TypeError(f"A {kind.__name__} cannot be sent to another process.")
    return f"{kind.__module__}.{kind.__qualname__}"


_CLASS = re.compile(
    rf"{re.escape(_PACKAGE)}(?:app|client|config|errors|groups|memory|models|permissions|ports|search"
    r"|secrets|sources|store|times|tools|turns|types)(?:\.[a-z][a-z0-9_]*)*\.\w+"
)
"""The classes of values and errors: in packages that may be imported because an answer names them.

None is a program that runs when it is imported."""


def _class_of(name: Any, *, trusted: bool) -> type[Any]:
    """Return the class of a kind; a name of anything else, such as a module to run, is refused."""
    if not isinstance(name, str) or not _CLASS.fullmatch(name):
        raise BadFrame(f"{str(name)[:80]!r} is not a kind of value")
    module_name, _, class_name = name.rpartition(".")
    module: ModuleType | None = sys.modules.get(module_name)
    if module is None and trusted:
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            raise BadFrame(f"{name[:80]!r} is not a kind of value") from None
    kind = getattr(module, class_name, None)
    if not isinstance(kind, type) or kind.__module__ != module_name:
        raise BadFrame(f"{name[:80]!r} is not a kind of value")
    return kind


def _record(kind: type[Any], named: dict[str, Any]) -> Any:
    if issubclass(kind, Enum):
        return kind(named["value"])
    if not dataclasses.is_dataclass(kind) and not hasattr(kind, "model_fields"):
        raise BadFrame(f"{kind.__name__} is not a kind of value")
    return kind(**named)


# -- errors ----------------------------------------------------------------------------------------


def encode_error(error: AsterismError) -> dict[str, Any]:
    """Return an error with all that it says."""
    details = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return {
        KIND: _name_of(type(error)),
        "notes": list(getattr(error, "__notes__", ())),
        **{name: encode(value) for name, value in details.items()},
    }


def decode_error(frame: Mapping[str, Any]) -> AsterismError:
    """Return the same error: its type, its text and its fields."""
    kind = _class_of(frame.get(KIND), trusted=True)
    if not issubclass(kind, AsterismError):
        raise BadFrame(f"{kind.__name__} is not an error")
    error = kind.__new__(kind)
    AsterismError.__init__(error, frame["reason"], outcome=frame["outcome"])
    for name, value in frame.items():
        if name not in (KIND, "notes", "reason", "outcome") and not name.startswith("_"):
            setattr(error, name, decode(value, trusted=True))
    for note in frame["notes"]:
        error.add_note(note)
    return error


# -- lines -----------------------------------------------------------------------------------------


def to_line(frame: Mapping[str, Any]) -> bytes:
    """Return a frame as it is written."""
    # Not orjson: texts that are not valid Unicode and large numbers must reach the verb, which
    # says what is wrong with them.
    return json.dumps(frame, separators=(",", ":")).encode() + b"\n"


def from_line(line: bytes) -> dict[str, Any]:
    """Return the frame that a line holds, or raise `BadFrame`."""
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"it is not JSON ({error})") from None
    if not isinstance(frame, dict):
        raise BadFrame("it is not a JSON object")
    return cast("dict[str, Any]", frame)


# -- the socket ------------------------------------------------------------------------------------


@contextlib.contextmanager
def short_path(path: Path) -> Generator[str, None, None]:
    """Give a name of a socket that the system takes, however deep its directory is."""
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield str(path)
        return
    # A link to the directory, in a directory of this user's own that has a short name.
    roots = [tempfile.gettempdir(), "/tmp"]  # noqa: S108 - mkdtemp makes a private one in it
    room = _MAX_PATH - len("/asterism-xxxxxxxx/d/") - len(path.name)
    root = next((root for root in roots if len(os.fsencode(root)) <= room), roots[-1])
    private = Path(tempfile.mkdtemp(prefix="asterism-", dir=root))
    try:
        (private / "d").symlink_to(path.parent)
        yield str(private / "d" / path.name)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def bind(path: Path) -> socket.socket:
    """Return a socket that listens, for this user alone; what another process left is replaced.

    Only the process that has locked the data directory may call it.
    """
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        with short_path(path) as name:
            listening.bind(name)
        # Nobody can connect before it listens.
        path.chmod(0o600)
        listening.listen()
    except BaseException:
        listening.close()
        path.unlink(missing_ok=True)
        raise
    listening.settimeout(0)
    return listening


def connect(path: Path, timeout: float) -> socket.socket | None:
    """Return a connection to the process that listens at a path; None if nobody does."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        with short_path(path) as name:
            connection.connect(name)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        connection.close()
        return None
    except OSError as error:
        connection.close()
        if error.errno == errno.ENOTSOCK:
            return None
        if isinstance(error, PermissionError):
            raise NotAllowed(
                f"{path} belongs to another user. Run the command as the user who owns the home, "
                "or choose another directory with --data. Nothing was changed."
            ) from None
        raise
    uid = peer_uid(connection)
    if refusal := refuse_peer(uid, path.parent):
        connection.close()
        raise NotAllowed(refusal)
    return connection


def peer_uid(connection: socket.socket) -> int:
    """Return the user at the other end of a connection, by the word of the system."""
    if sys.platform == "linux":
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return struct.unpack("3i", credentials)[1]
    # macOS and BSD: LOCAL_PEERCRED gives a struct xucred, whose second word is the user.
    return struct.unpack_from("=2I", connection.getsockopt(0, 1, 76))[1]


def refuse_peer(uid: int, place: Path) -> str:
    """Return why a user is not let in; nothing for the user of this process."""
    if uid == os.geteuid():
        return ""
    return (
        f"Only the user who runs a home may use its socket: at {place}, this process runs as user "
        f"{os.geteuid()} and the other end as user {uid}. Run the command as the same user, or "
        "choose another directory with --data. Nothing was changed."
    )
