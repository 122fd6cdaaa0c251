"""Paths that agents name: where they lead, what may be done there, and how they are opened safely.

A program in the agent's folder may put a link in the place of a file at any moment. So a path is
resolved once, judged by where it leads, and then opened step by step without following any link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Generator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from asterism.config.settings import FilePermission, FileSettings
from asterism.errors import ToolError
from asterism.types.people import OWNER_ONLY, Audience

INSIDE = "/workspace"


@dataclass(frozen=True, slots=True)
class Place:
    """A path, resolved and judged."""

    shown: str
    path: Path
    """Where it leads, without a link in it."""
    permission: FilePermission
    rule: str
    """What the permission comes from, in words."""
    audience: Audience = OWNER_ONLY
    """Who may see what is there."""


def place_of(
    given: str, *, workspace: Path, data: Path, settings: FileSettings, agent: str
) -> Place:
    """Return where a path leads and what may be done there."""
    text = given.strip()
    if not text or "\0" in text or len(text) > 4_000:
        raise ToolError(f"{given[:60]!r} is no path. Name a file such as 'notes/today.md'.")
    if text == INSIDE or text.startswith(f"{INSIDE}/"):
        text = f".{text.removeprefix(INSIDE)}"
    expanded = str(Path(text).expanduser()) if text.startswith("~") else text
    try:
        path = Path(os.path.realpath(workspace / expanded))
    except (OSError, ValueError) as error:
        raise ToolError(f"{given[:200]!r} cannot be looked up: {error}.") from None
    if path == workspace or path.is_relative_to(workspace):
        shown = str(path.relative_to(workspace))
        own = Audience.read(settings.audience)
        return Place(shown, path, "read_write", "your own folder", own)
    if path.is_relative_to(data.resolve()):
        return Place(str(path), path, "none", "the data of this home, which no rule opens")
    for number, rule in enumerate(settings.rule, 1):
        if rule.agents and agent not in rule.agents:
            continue
        for pattern in rule.paths:
            if _fits(pattern, path):
                words = f"rule {number} of [files] ({pattern} = {rule.permission})"
                seen_by = Audience.read(rule.audience)
                if rule.permission == "none":
                    seen_by = OWNER_ONLY  # whether it is there is nobody else's to know
                return Place(str(path), path, rule.permission, words, seen_by)
    return Place(str(path), path, "none", "no rule of [files] names it")


def _fits(pattern: str, path: Path) -> bool:
    return _compiled(str(Path(pattern).expanduser())).fullmatch(str(path)) is not None


@lru_cache(maxsize=500)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return a glob as an expression: `**` stands for any folders, `*` and `?` stay within one."""
    # The folder that a pattern begins with may be reached through a link itself.
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    pattern = os.path.realpath(fixed or "/").rstrip("/") + pattern[len(fixed) :]
    parts: list[str] = []
    index = 0
    while index < len(pattern):
        if pattern.startswith("/**", index) and pattern[index + 3 : index + 4] in ("", "/"):
            parts.append("(?:/.*)?")
            index += 3
        elif pattern[index] == "*":
            parts.append("[^/]*")
            index += 1
        elif pattern[index] == "?":
            parts.append("[^/]")
            index += 1
        else:
            parts.append(re.escape(pattern[index]))
            index += 1
    return re.compile("".join(parts), re.DOTALL)


@contextlib.contextmanager
def folder_of(place: Place, *, make: bool = False) -> Generator[int]:
    """Open the folder above a place, going down from the root and following no link."""
    handle = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in place.path.parts[1:-1]:
            handle = _step(handle, part, make=make)
        yield handle
    except OSError as error:
        raise _told(place, error) from None
    finally:
        os.close(handle)


def _step(handle: int, part: str, *, make: bool) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        inner = os.open(part, flags, dir_fd=handle)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(part, 0o700, dir_fd=handle)
        inner = os.open(part, flags, dir_fd=handle)
        _give(inner, os.fstat(handle))
    os.close(handle)
    return inner


def read(place: Place, largest: int) -> bytes:
    """Return the contents of a file."""
    with folder_of(place) as folder:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open(place.path.name, flags, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise ToolError(f"{place.shown} is no file. Use list for folders.")
            body = file.read(largest + 1)
    if len(body) > largest:
        raise ToolError(
            f"{place.shown} has {found.st_size:,} bytes, and the most is {largest:,}. "
            "Look at parts of it with shell, such as head or grep."
        )
    return body


def write(place: Place, body: bytes, *, new: bool = False) -> None:
    """Write a file in one go: whoever reads it sees the old contents or the new."""
    with folder_of(place, make=True) as folder:
        name = place.path.name
        before = _there(folder, name)
        if before is not None and new:
            raise ToolError(f"{place.shown} is there already. Use save to change it.")
        if before is not None and not stat.S_ISREG(before.st_mode):
            raise ToolError(f"{place.shown} is no file. Nothing was written.")
        made = f".{name[:100]}.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(made, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                _give(handle, before or os.fstat(folder))
                os.fchmod(handle, stat.S_IMODE(before.st_mode) & 0o777 if before else 0o600)
                file.flush()
                os.fsync(handle)
            os.rename(made, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(made, dir_fd=folder)
            raise


def delete(place: Place) -> None:
    """Delete a file, or a folder that is empty."""
    with folder_of(place) as folder:
        found = os.stat(place.path.name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            os.rmdir(place.path.name, dir_fd=folder)
        else:
            os.unlink(place.path.name, dir_fd=folder)


def _there(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _give(handle: int, owner: os.stat_result) -> None:
    """Give what root writes to whoever owns the folder, so that their programs can use it."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            os.fchown(handle, owner.st_uid, owner.st_gid)


def _told(place: Place, error: OSError) -> ToolError:
    reasons = {
        errno.ENOENT: "is not there. Use list to see what is",
        errno.ELOOP: "has become a link while it was opened, and was left alone",
        errno.ENOTDIR: "lies below something that is no folder",
        errno.ENOTEMPTY: "is a folder with something in it, and was not deleted",
        errno.EACCES: "may not be touched by this home",
        errno.ENOSPC: "was not written: the disk is full",
        errno.EISDIR: "is a folder. Use list for folders",
        errno.ENAMETOOLONG: "has too long a name",
    }
    reason = reasons.get(error.errno or 0, f"cannot be used: {error.strerror}")
    return ToolError(f"{place.shown} {reason}.")
