"""Taking a text out of the files beside the database: snapshots, tapes, logs, anything."""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import orjson

from asterism.errors import StoreError
from asterism.memory.forgetting.blocks import sweep_blocks_of
from asterism.memory.forgetting.packed import in_stream, look_around, look_into, packing_of
from asterism.memory.forgetting.redaction import Redactor, same_length
from asterism.memory.forgetting.removal import Place, choice_of
from asterism.memory.forgetting.rows import Columns, Found, sweep_connection
from asterism.store import search_index
from asterism.store.database import Connection
from asterism.store.forgetting import ForgetRequest, rewrite_file
from asterism.store.sqlite import columns_of

_SQLITE = b"SQLite format 3\0"
_LIVE = re.compile(r"asterism\.(db(-wal|-shm|-journal)?|lock)|tombstones\.key")
_LOG = re.compile(r".*\.log(\.\d+)?")
_OWNERS = (".toml", ".env", ".py", ".yaml", ".yml", ".ini")
"""Files that an owner writes: what they say is told, not changed."""
_LARGEST = 1 << 28
_EVENT = re.compile(r"data: ?(\{.*\})")


def sweep_files(
    data: Path,
    request: ForgetRequest,
    redactor: Redactor,
    ids: dict[str, tuple[str, ...]] | None = None,
) -> Found:
    """Take it out of every file of a data directory but the open database."""
    found = Found()
    for path in _files(data):
        name = path.relative_to(data).as_posix()
        if redactor.spans(name):
            found.left.append(f"The name of a file in {data} holds it. Rename or remove the file.")
        before = redactor.found
        try:
            found.add(_sweep_file(path, name, request, redactor, ids or {}))
        except (OSError, StoreError) as error:
            found.left.append(f"{_shown(name, redactor)} could not be looked into ({error}).")
            continue
        if redactor.found > before:
            found.places[_shown(name, redactor)] += redactor.found - before
    return found


def _shown(name: str, redactor: Redactor) -> str:
    before = redactor.found
    shown = redactor.text(name)
    redactor.found = before
    return shown


def _files(data: Path) -> Iterator[Path]:
    for directory, _, names in os.walk(data):
        for name in sorted(names):
            path = Path(directory) / name
            if path.is_file() and not path.is_symlink():
                if path.parent == data and _LIVE.fullmatch(name):
                    continue
                yield path


def _sweep_file(
    path: Path,
    name: str,
    request: ForgetRequest,
    redactor: Redactor,
    ids: dict[str, tuple[str, ...]],
) -> Found:
    found = Found()
    with path.open("rb") as file:
        start = file.read(len(_SQLITE))
    if start == _SQLITE:
        work = partial(_sweep_database, request, redactor, ids)
        swept = rewrite_file(path, work)
        found.left += swept.left
        # Rows that went by their ids; what was taken out of others the redactor counts.
        found.places[_shown(name, redactor)] += sum(
            count for place, count in swept.places.items() if "." not in place
        )
        return found
    if packing := packing_of(start, path.suffix):
        if told := look_into(path, packing, redactor):
            found.left.append(f"{_shown(name, redactor)} {told}")
        return found
    if path.stat().st_size > _LARGEST:
        if _in_large(path, redactor):
            found.left.append(f"{_shown(name, redactor)} holds it and is too large to be changed.")
        return found
    body = path.read_bytes()
    try:
        text = body.decode()
    except UnicodeDecodeError:
        held = "holds it and is no text. Remove it if it may go."
        if told := held if redactor.in_bytes(body) else look_around(body, redactor):
            found.left.append(f"{_shown(name, redactor)} {told}")
        return found
    if path.suffix in _OWNERS:
        if redactor.spans(text):
            found.left.append(f"{_shown(name, redactor)} holds it. It is yours to edit.")
    elif _LOG.fullmatch(path.name):
        _cover(path, text, redactor)
    else:
        changed = redacted_text(text, redactor)
        if changed is not text:
            _replace(path, changed)
    return found


async def _sweep_database(
    request: ForgetRequest,
    redactor: Redactor,
    ids: dict[str, tuple[str, ...]],
    tx: Connection,
) -> Found:
    """Do to another database file what was done to the open one."""
    present: Columns = await columns_of(tx)
    constellation = request.constellation
    found = Found()
    if "segments" in present:
        await search_index.drop_everything(tx)
    if "entries" in present:
        place = Place(tx, present, constellation)
        chosen = choice_of(await place.turns_of(ids), ids.get("persons", ()))
        if "blocks" in present:
            found.add(await sweep_blocks_of(tx, constellation, redactor, chosen))
        await place.forget(ids, request)
        found.add(place.removed.found)
    found.add(await sweep_connection(tx, present, request, redactor))
    return found


def _in_large(path: Path, redactor: Redactor) -> bool:
    with path.open("rb") as file:
        return in_stream(file, redactor)


# -- text --------------------------------------------------------------------------------------


def redacted_text(text: str, redactor: Redactor) -> str:
    """Return a file's text without it, line by line where its lines are JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return redactor.text(text)
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    else:
        return redactor.json(text)
    lines = [_redacted_line(line, redactor) for line in text.splitlines(keepends=True)]
    changed = redactor.text("".join(line for line in lines if line is not None))
    return text if changed == text else changed


def _redacted_line(line: str, redactor: Redactor) -> str | None:
    """Return a line of JSON without it; None: the line goes, since it is spread over it."""
    body = line.rstrip("\r\n")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return redactor.text(line)
    if isinstance(value, dict) and "chunks" in value:
        tape = cast("dict[str, Any]", value)
        if any(redactor.spans(said) for said in _streamed(tape["chunks"])):
            redactor.found += 1
            return None
    changed = redactor.value(value)
    return line if changed is value else orjson.dumps(changed).decode() + line[len(body) :]


def _streamed(chunks: Any) -> list[str]:
    """Return what a recorded stream says when its pieces are put together, by where they are."""
    try:
        whole = "".join(chunk for _, chunk in chunks if isinstance(chunk, str))
    except (TypeError, ValueError):
        return []
    said: defaultdict[str, list[str]] = defaultdict(list)
    for event in _EVENT.findall(whole):
        try:
            _collect(orjson.loads(event), "", said)
        except orjson.JSONDecodeError:
            continue
    return ["".join(parts) for parts in said.values()]


def _collect(value: Any, path: str, said: defaultdict[str, list[str]]) -> None:
    if isinstance(value, str):
        said[path].append(value)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            _collect(item, path, said)
    elif isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            _collect(item, f"{path}.{name}", said)


def _cover(path: Path, text: str, redactor: Redactor) -> None:
    """Write over it in place: a log is open, and goes on growing."""
    with path.open("r+b") as file:
        for start, end in redactor.spans(text):
            redactor.found += 1
            file.seek(len(text[:start].encode()))
            size = len(text[start:end].encode())
            file.write(same_length(text[start:end]).encode().ljust(size, b"*")[:size])
        file.flush()
        os.fsync(file.fileno())


def _replace(path: Path, text: str) -> None:
    """Put another file in the place of one, whole or not at all."""
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=".forgetting-")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(path.stat().st_mode & 0o777)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
