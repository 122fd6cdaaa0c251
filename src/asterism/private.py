"""Files: for this user alone, whatever the umask; whether others may write; read with a bound."""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import pwd
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from asterism.errors import ConfigError

MAX_BYTES = 256 << 20
"""What a file that somebody names may have at most."""


class NotRegular(OSError):
    """A device, a pipe or a directory, of which nobody knows whether it ever ends."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file")


class TooLarge(OSError):
    """A file of more bytes than are read at once."""

    def __init__(self, most: int) -> None:
        size = f"{most >> 20:,} MB" if most >= 1 << 20 else f"{most:,} bytes"
        super().__init__(errno.EFBIG, f"it has more than {size}")


def open_regular(file: Path) -> int:
    """Open a file that somebody names, and return its handle; raise `NotRegular` if it is none."""
    # Without O_NONBLOCK, a pipe that nobody writes to would never be opened.
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise NotRegular


def append_regular(file: Path) -> int:
    """Open a file for writing at its end, and return its handle; raise `NotRegular` if it is none.

    It is made for this user alone if it is not there.
    """
    handle = private(str(file), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise NotRegular


def is_disk_full(place: Path) -> bool:
    """Tell whether so little room is left on a disk that nothing can be written there."""
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _LEAST_ROOM


_LEAST_ROOM = 64 << 10


def read_regular(file: Path, most: int = MAX_BYTES) -> bytes:
    """Return what is in a file that somebody names; raise an `OSError` that says why it cannot be.

    Every such file is read here: a device or a pipe never ends, and memory does.
    """
    with os.fdopen(open_regular(file), "rb") as source:
        content = source.read(most + 1)
    if len(content) > most:
        raise TooLarge(most)
    return content


def make_directory(place: Path) -> None:
    """Make a directory for this user alone; it may exist.

    Those above it that are missing are made, too. Others may pass through them, not write to them.
    """
    for parent in reversed(place.parents):
        if not parent.exists():
            parent.mkdir(mode=0o755, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)


_OURS = re.compile(r"asterism\..*|tombstones\..*|chat-history.*|api-token(\.\w+)?|background\.\w+")
_OUR_FOLDERS = frozenset(
    {"snapshots", "backups", "workspaces", "files", "cassettes", "uploads", "constellations"}
)


def keep_private(place: Path) -> None:
    """Take from others what an older release let them read in a data directory.

    The directory itself is closed if it holds nothing but what asterism writes there: somebody may
    have put their own things into it, and those are not ours to close.
    """
    only_ours = True
    with contextlib.suppress(OSError):  # another user's: `others_may` and doctor tell of it
        for entry in os.scandir(place):
            ours = bool(_OURS.fullmatch(entry.name)) or entry.name in _OUR_FOLDERS
            only_ours &= ours or entry.name.endswith(".py") or entry.name == "__pycache__"
            mode = entry.stat(follow_symlinks=False).st_mode
            if ours and mode & 0o077 and not stat.S_ISLNK(mode):
                Path(entry.path).chmod(stat.S_IMODE(mode) & 0o700)
        mode = place.stat().st_mode
        if only_ours and mode & 0o077:
            place.chmod(stat.S_IMODE(mode) & 0o700)


def private(path: str, flags: int) -> int:
    """Open a file, which only this user may read if it is new; an `opener` of `open`."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def others_may(place: Path) -> str:
    """Say what users other than this one may do with a file or directory.

    Returns:
        `write`, `read`, or nothing. A group that nobody else is in is this user's own.
    """
    found = place.stat()
    mode = found.st_mode & (0o007 if _nobody_else_in(found.st_gid) else 0o077)
    if mode & 0o022:
        return "write"
    # Who may only pass through a directory reads nothing of it.
    return "read" if mode & 0o044 else ""


def _nobody_else_in(group: int) -> bool:
    me = os.geteuid()
    try:
        members = grp.getgrgid(group).gr_mem
    except KeyError:
        members = []
    return not any(
        user.pw_uid not in (me, 0) and (user.pw_gid == group or user.pw_name in members)
        for user in pwd.getpwall()
    )


def refuse_writable(file: Path) -> None:
    """Raise `ConfigError` if a file that was found, not named, can have been written by others."""
    for place, mode in ((file.parent, 700), (file, 600)):
        try:
            writable = others_may(place) == "write"
        except OSError:
            continue
        if writable:
            raise ConfigError(
                f"{place} can be written by other users of this machine, so {file.name} may not be "
                "yours, and was not read. Look at the file, then run "
                f'"chmod {mode} {place}".'
            )


def data_directory(explicit: Path | None, environ: Mapping[str, str]) -> Path:
    """The data directory: `--data`, ASTERISM_DATA, or the platform's usual place."""
    named = explicit or environ.get("ASTERISM_DATA")
    if named:
        return Path(named).absolute()
    from platformdirs import user_data_path

    return user_data_path("asterism", appauthor=False)
