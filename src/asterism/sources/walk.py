"""Walking a folder: which files are documents of a source."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from asterism.errors import InvalidInput, NotFound
from asterism.sources.readers import is_known
from asterism.types.documents import DocumentSource

MOST_GLOBS = 100
LONGEST_GLOB = 200


@dataclass(frozen=True, slots=True)
class Found:
    """A file in a folder."""

    path: str
    """Within the folder, with `/` between folders."""
    size: int
    modified: int


class Walk:
    """The files of a source.

    Links are not followed: what they point to inside the folder is found by its own name, and what
    they point to outside does not belong to it.
    """

    def __init__(self, source: DocumentSource) -> None:
        check_globs((*source.include, *source.exclude))
        self._source = source
        self.root = Path(os.path.realpath(Path(source.path).expanduser()))
        self.unnamable: list[str] = []
        """Files whose names are not text, which no store keeps."""
        self.closed: list[str] = []
        """Folders that could not be looked into."""

    def check(self) -> None:
        """Raise `NotFound` if the folder is not there; its documents may only be out of reach."""
        if not self.root.is_dir():
            raise NotFound(
                f"Source {self._source.name!r} reads the folder {self._source.path!r}, which is "
                "not there. Mount or move it back, or remove the source. Nothing was changed."
            )

    def files(self) -> Iterator[Found]:
        """Yield the documents, folder by folder, in the order of their names."""
        self.unnamable, self.closed = [], []
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(self.root / folder) as listing:
                    entries = sorted(listing, key=lambda entry: entry.name)
            except OSError:
                self.closed.append(folder or ".")
                continue
            inner: list[str] = []
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.name.startswith(".") or entry.is_symlink():
                    continue
                if entry.is_dir(follow_symlinks=False):
                    inner.append(path)
                elif found := self._file(entry, path):
                    yield found
            waiting += reversed(inner)

    def _file(self, entry: os.DirEntry[str], path: str) -> Found | None:
        if not self.wants(path):
            return None
        try:
            looked = entry.stat(follow_symlinks=False)
        except OSError:
            return None
        if not stat.S_ISREG(looked.st_mode):
            return None
        if not _is_text(path):
            self.unnamable.append(path.encode(errors="replace").decode())
            return None
        return Found(path, looked.st_size, looked.st_mtime_ns // 1_000_000)

    def look(self, path: str) -> Found | None:
        """Return a document as it is now, or None if it is gone; raise `OSError` if unknown."""
        place = self.root / path
        hidden = any(part.startswith(".") for part in path.split("/"))
        if hidden or not self.wants(path) or os.path.realpath(place) != str(place):
            return None
        try:
            looked = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(looked.st_mode):
            return None
        return Found(path, looked.st_size, looked.st_mtime_ns // 1_000_000)

    def wants(self, path: str) -> bool:
        """Tell whether a file belongs to the source, by its path."""
        if any(glob_matches(glob, path) for glob in self._source.exclude):
            return False
        if self._source.include:
            return any(glob_matches(glob, path) for glob in self._source.include)
        return is_known(Path(path))


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_globs(globs: tuple[str, ...]) -> None:
    """Raise `InvalidInput` if what a source includes or leaves out cannot be meant."""
    if len(globs) > MOST_GLOBS:
        raise InvalidInput(
            f"{len(globs)} globs are too many for a source; {MOST_GLOBS} is the most. "
            "Nothing was changed."
        )
    for glob in globs:
        if not glob.strip() or len(glob) > LONGEST_GLOB or glob.startswith("/"):
            raise InvalidInput(
                f"{glob[:60]!r} is no glob within a folder. Write one such as notes/**/*.md, with "
                f"at most {LONGEST_GLOB} characters. Nothing was changed."
            )


def glob_matches(glob: str, path: str) -> bool:
    """Tell whether a path fits a glob; `**` is any number of folders.

    A glob without a slash fits a name in any folder, one that ends with a slash all that is inside.
    """
    if glob.endswith("/"):
        glob += "**"
    if "/" not in glob:
        return fnmatchcase(path.rpartition("/")[2], glob)
    wanted, parts = glob.split("/"), path.split("/")
    # fits[i]: whether the globs so far can stand for the first i parts.
    fits = [True] + [False] * len(parts)
    for pattern in wanted:
        if pattern == "**":
            first = fits.index(True) if True in fits else len(fits)
            fits = [index >= first for index in range(len(fits))]
        else:
            fits = [False] + [
                fits[index] and fnmatchcase(part, pattern) for index, part in enumerate(parts)
            ]
    return fits[-1]
