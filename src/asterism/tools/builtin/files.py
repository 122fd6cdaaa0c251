"""The tool `file`: files in the agent's own folder, and where rules of the owner let it.

A program in the agent's folder may put a link in the place of a file at any moment. So a path is
resolved once, judged by where it leads, and then opened step by step without following any link.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from asterism.config.settings import FilePermission, FileSettings
from asterism.errors import ToolError
from asterism.memory.texts import unified_diff
from asterism.patterns import RegularExpression, compile_glob
from asterism.records import dataclass
from asterism.tools.builtin.arguments import OPERATION, TEXT, WORD, also, null_as
from asterism.tools.builtin.shell import Workspaces
from asterism.tools.sandbox import INSIDE, prepare_workspace
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.types.agents import OWNER_ONLY, PUBLIC, AgentRecord, Audience, Participants, Trust
from asterism.types.permissions import ComputedEffects, Effect, EffectKind


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A path, resolved and judged."""

    display: str
    path: Path
    """Where it leads, without a link in it."""
    permission: FilePermission
    rule: str
    """What the permission comes from, in words."""
    audience: Audience = OWNER_ONLY
    """Who may see what is there."""


def resolve_path(
    path_text: str, *, workspace: Path, data: Path, settings: FileSettings, agent: str
) -> ResolvedPath:
    """Return where a path leads and what may be done there."""
    text = path_text.strip()
    if not text or "\0" in text or len(text) > 4_000:
        raise ToolError(
            f"{path_text[:60]!r} is not a valid path. Name a file such as 'notes/today.md'."
        )
    if text == INSIDE or text.startswith(f"{INSIDE}/"):
        text = f".{text.removeprefix(INSIDE)}"
    expanded = str(Path(text).expanduser()) if text.startswith("~") else text
    try:
        path = Path(os.path.realpath(workspace / expanded))
    except (OSError, ValueError) as error:
        raise ToolError(f"{path_text[:200]!r} cannot be looked up: {error}.") from None
    if path == workspace or path.is_relative_to(workspace):
        display = str(path.relative_to(workspace))
        own = Audience.read(settings.audience)
        return ResolvedPath(display, path, "read_write", "your own folder", own)
    if path.is_relative_to(data.resolve()):
        return ResolvedPath(str(path), path, "none", "the data of this home, which no rule opens")
    for number, rule in enumerate(settings.rule, 1):
        if rule.agents and agent not in rule.agents:
            continue
        for pattern in rule.paths:
            if _matches_glob(pattern, path):
                words = f"rule {number} of [files] ({pattern} = {rule.permission})"
                seen_by = Audience.read(rule.audience)
                if rule.permission == "none":
                    seen_by = OWNER_ONLY  # whether it is there is nobody else's to know
                return ResolvedPath(str(path), path, rule.permission, words, seen_by)
    return ResolvedPath(str(path), path, "none", "no rule of [files] names it")


def _matches_glob(pattern: str, path: Path) -> bool:
    return _compiled_glob(str(Path(pattern).expanduser())).matches(str(path))


@lru_cache(maxsize=500)
def _compiled_glob(pattern: str) -> RegularExpression:
    """Compile a glob: `**` stands for any folders, `*` and `?` stay within one."""
    # The folder that a pattern begins with may be reached through a link itself.
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rpartition("/")[0]
    pattern = os.path.realpath(fixed or "/").rstrip("/") + pattern[len(fixed) :]
    wildcards = {"/**": "(?:/.*)?", "*": "[^/]*", "?": "[^/]"}
    return compile_glob(re.split(r"(/\*\*(?=/|$)|\*|\?)", pattern), wildcards)


@contextlib.contextmanager
def open_parent(place: ResolvedPath, *, make: bool = False) -> Generator[int]:
    """Open the folder above a place, going down from the root and following no link."""
    handle = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in place.path.parts[1:-1]:
            handle = _open_folder(handle, part, make=make)
        yield handle
    except OSError as error:
        raise _file_error(place, error) from None
    finally:
        os.close(handle)


def _open_folder(handle: int, part: str, *, make: bool) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        inner = os.open(part, flags, dir_fd=handle)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(part, 0o700, dir_fd=handle)
        inner = os.open(part, flags, dir_fd=handle)
        _give_to_owner(inner, os.fstat(handle))
    os.close(handle)
    return inner


def read_file(place: ResolvedPath, largest: int) -> bytes:
    """Return the contents of a file."""
    with open_parent(place) as folder:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        handle = os.open(place.path.name, flags, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"{place.display} is not a file. Use list for folders.")
            body = file.read(largest + 1)
    if len(body) > largest:
        raise ToolError(
            f"{place.display} has {status.st_size:,} bytes, and the limit is {largest:,}. "
            "Look at parts of it with shell, such as head or grep."
        )
    return body


def write_file(place: ResolvedPath, body: bytes, *, new: bool = False) -> None:
    """Write a file in one go: whoever reads it sees the old contents or the new."""
    with open_parent(place, make=True) as folder:
        name = place.path.name
        before = _stat_or_none(folder, name)
        if before is not None and new:
            raise ToolError(f"{place.display} already exists. Use save to change it.")
        if before is not None and not stat.S_ISREG(before.st_mode):
            raise ToolError(f"{place.display} is not a file. Nothing was written.")
        temporary = f".{name[:100]}.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(temporary, flags, 0o600, dir_fd=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(body)
                _give_to_owner(handle, before or os.fstat(folder))
                os.fchmod(handle, stat.S_IMODE(before.st_mode) & 0o777 if before else 0o600)
                file.flush()
                os.fsync(handle)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise


def delete_path(place: ResolvedPath) -> None:
    """Delete a file, or a folder that is empty."""
    with open_parent(place) as folder:
        status = os.stat(place.path.name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            os.rmdir(place.path.name, dir_fd=folder)
        else:
            os.unlink(place.path.name, dir_fd=folder)


def _stat_or_none(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _give_to_owner(handle: int, owner: os.stat_result) -> None:
    """Give what root writes to whoever owns the folder, so that their programs can use it."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            os.fchown(handle, owner.st_uid, owner.st_gid)


def _file_error(place: ResolvedPath, error: OSError) -> ToolError:
    reasons = {
        errno.ENOENT: "does not exist. Use list to see the files",
        errno.ELOOP: "became a link while it was opened, and was not changed",
        errno.ENOTDIR: "is in a path that is not a folder",
        errno.ENOTEMPTY: "is a folder that is not empty, and was not deleted",
        errno.EACCES: "is not accessible for this home",
        errno.ENOSPC: "was not written: the disk is full",
        errno.EISDIR: "is a folder. Use list for folders",
        errno.ENAMETOOLONG: "has too long a name",
    }
    reason = reasons.get(error.errno or 0, f"cannot be used: {error.strerror}")
    return ToolError(f"{place.display} {reason}.")


# -- the tool --------------------------------------------------------------------------------------

FILE_PAGE = 10_000
"""Characters of a file that one result shows."""
_MAX_LOADED = 32
_MAX_LISTED = 300

Operation = Literal[
    "load", "save", "create", "delete", "append", "replace", "list", "status", "diff", "reload"
]
_READING = ("load", "reload", "list", "status", "diff")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A file as the agent last saw or wrote it."""

    place: ResolvedPath
    digest: bytes
    text: str


class Files:
    """What agents have loaded, by which a change by others is noticed."""

    def __init__(self, workspaces: Workspaces) -> None:
        self._workspaces = workspaces
        self._loaded: dict[tuple[str, str, str], _Loaded] = {}
        """By agent, those present and path: what others have loaded is not theirs to compare."""

    def clear(self) -> None:
        """Drop what was loaded, since something was forgotten; agents have to load it anew."""
        self._loaded.clear()

    # -- operations ----------------------------------------------------------------------------

    def load(self, ctx: ToolContext, path: str, offset: int) -> str:
        """Return a page of a file, and remember how it was."""
        place = self._permitted_path(ctx, path)
        text = self._read(place)
        self._remember(ctx, place, text)
        page = text[offset : offset + FILE_PAGE]
        lines = text.count("\n") + (not text.endswith("\n") and bool(text))
        head = f"{place.display}: {len(text):,} characters, {lines:,} lines"
        end = offset + len(page)
        if end < len(text):
            head += f", {offset:,} to {end:,} shown; continue with offset {end}"
        elif offset:
            head += f", from {offset:,}"
        return f"{head}.\n{page}"

    def save(self, ctx: ToolContext, path: str, content: str, *, new: bool) -> str:
        """Write a file whole."""
        place = self._permitted_path(ctx, path, "write")
        if not new:
            self._check_seen(ctx, place)
        return self._write(ctx, place, content, new=new)

    def append(self, ctx: ToolContext, path: str, content: str) -> str:
        """Add to the end of a file."""
        place = self._permitted_path(ctx, path, "add to")
        text = self._read(place)
        self._check_unchanged(ctx, place, text)
        gap = "" if not text or text.endswith("\n") else "\n"
        return self._write(ctx, place, f"{text}{gap}{content}")

    def replace(self, ctx: ToolContext, path: str, old: str, new: str) -> str:
        """Replace a text that is in a file once."""
        place = self._permitted_path(ctx, path, "change")
        text = self._read(place)
        self._check_unchanged(ctx, place, text)
        count = text.count(old) if old else 0
        if count != 1:
            raise ToolError(
                f"The old text is in {place.display} {count} times; it must occur "
                "exactly once. Include more of the text around it. Nothing was changed."
            )
        return self._write(ctx, place, text.replace(old, new))

    def delete(self, ctx: ToolContext, path: str) -> str:
        """Delete a file or an empty folder."""
        place = self._permitted_path(ctx, path, "delete")
        if place.path == self._workspaces.folder(ctx.agent.id):
            raise ToolError(
                "This is your own folder, which cannot be deleted. Nothing was deleted."
            )
        loaded = self._loaded.get(_key(ctx, place))
        if loaded is not None:
            self._check_unchanged(ctx, place, self._read(place))
        delete_path(place)
        self._loaded.pop(_key(ctx, place), None)
        return f"Deleted {place.display}."

    def list(self, ctx: ToolContext, path: str) -> str:
        """Show what is in a folder."""
        place = self._permitted_path(ctx, path or ".")
        lines: list[str] = []
        inner = replace(place, path=place.path / "any")
        with open_parent(inner) as folder, os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda item: item.name):
                status = entry.stat(follow_symlinks=False)
                kind = "/" if stat.S_ISDIR(status.st_mode) else ""
                kind = " (a link)" if stat.S_ISLNK(status.st_mode) else kind
                size = "" if kind else f" ({status.st_size:,} bytes)"
                lines.append(f"{entry.name}{kind}{size}")
        if not lines:
            return f"{place.display} is empty."
        more = f"\nand {len(lines) - _MAX_LISTED:,} more" if len(lines) > _MAX_LISTED else ""
        return "\n".join(lines[:_MAX_LISTED]) + more

    def status(self, ctx: ToolContext) -> str:
        """Say which loaded files have changed since."""
        own = self._loaded_by(ctx.agent, ctx.participants)
        for loaded in own:
            self._check_audience(ctx, loaded.place)
        return "\n".join(map(self._state, own)) or "No file is loaded."

    def _loaded_by(self, agent: AgentRecord, participants: Participants) -> list[_Loaded]:
        whose = (agent.id, participants.key)
        return [loaded for key, loaded in self._loaded.items() if key[:2] == whose]

    def _state(self, loaded: _Loaded) -> str:
        try:
            same = _digest(self._read(loaded.place)) == loaded.digest
        except ToolError as error:
            return error.message
        return f"{loaded.place.display}: {'as loaded' if same else 'changed since; see diff'}"

    def diff(self, ctx: ToolContext, path: str, content: str) -> str:
        """Show what differs between a file and how it was loaded, or a text."""
        place = self._permitted_path(ctx, path)
        text = self._read(place)
        loaded = self._loaded.get(_key(ctx, place))
        if not content and loaded is None:
            raise ToolError(f"{place.display} is not loaded. Load it, or set content to compare.")
        before, after, names = (
            (text, content, ("file", "content"))
            if content
            else (loaded.text if loaded else "", text, ("loaded", "file"))
        )
        lines = unified_diff(before.splitlines(), after.splitlines(), names, around=2)
        return "\n".join(lines)[:FILE_PAGE] or "No difference."

    # -- who may see it ------------------------------------------------------------------------

    def audience(
        self, agent: AgentRecord, participants: Participants, arguments: Mapping[str, Any]
    ) -> Audience:
        """Return who may see what a call tells, by rules alone: not by what is there."""
        if arguments.get("operation") == "status":
            loaded = self._loaded_by(agent, participants)
            return Audience.intersection(file.place.audience for file in loaded)
        try:
            return self._resolve(agent, str(arguments.get("path") or ".")).audience
        except ToolError:
            return PUBLIC  # it is not a path at all, and this is all that is said of it

    def _check_audience(self, ctx: ToolContext, place: ResolvedPath) -> None:
        """Refuse what is for others than the call was judged for: a link may have changed."""
        if place.audience not in ctx.audiences and not ctx.participants.can_see(place.audience):
            raise ToolError("The path now leads to another file. Nothing was done; try it again.")

    # -- what they share -----------------------------------------------------------------------

    def _resolve(self, agent: AgentRecord, path: str) -> ResolvedPath:
        return resolve_path(
            path,
            workspace=self._workspaces.folder(agent.id),
            data=self._workspaces.data,
            settings=self._workspaces.settings().files,
            agent=agent.name,
        )

    def _permitted_path(self, ctx: ToolContext, path: str, wanted: str = "") -> ResolvedPath:
        """Return a place where the agent may do what it wants; ask if a person has to."""
        workspace = self._workspaces.folder(ctx.agent.id)
        if not workspace.exists():
            prepare_workspace(workspace)
        place = self._resolve(ctx.agent, path)
        self._check_audience(ctx, place)
        if place.permission == "none" or (wanted and place.permission == "read"):
            raise ToolError(
                f"You may not {wanted or 'read'} {place.display}: {place.rule}. Work in your own "
                "folder with a path such as 'notes.md', or ask your owner for a rule in [files]."
            )
        if wanted and place.permission in ("human", "partner"):
            ctx.ask(f"May {ctx.agent.name} {wanted} {place.display}? ({place.rule})")
            if ctx.decision is not None and not ctx.decision.approved:
                raise ToolError(f"You were not allowed to {wanted} {place.display}.")
        return place

    def _largest(self) -> int:
        return self._workspaces.settings().files.largest_kb << 10

    def _read(self, place: ResolvedPath) -> str:
        body = read_file(place, self._largest())
        if b"\0" in body[:8_192]:
            raise ToolError(f"{place.display} is not text. Look at it with a program, using shell.")
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(
                f"{place.display} is not in UTF-8. Convert it with iconv, using shell."
            ) from None

    def _write(self, ctx: ToolContext, place: ResolvedPath, text: str, *, new: bool = False) -> str:
        body = text.encode("utf-8", "replace")
        if len(body) > self._largest():
            raise ToolError(
                f"The content has {len(body):,} bytes; the limit is {self._largest():,}. "
                "Nothing was written."
            )
        write_file(place, body, new=new)
        self._remember(ctx, place, text)
        return f"Wrote {place.display}, {len(body):,} bytes."

    def _remember(self, ctx: ToolContext, place: ResolvedPath, text: str) -> None:
        key = _key(ctx, place)
        self._loaded.pop(key, None)
        self._loaded[key] = _Loaded(place, _digest(text), text)
        own = [other for other in self._loaded if other[:2] == key[:2]]
        for oldest in own[:-_MAX_LOADED]:
            del self._loaded[oldest]

    def _check_seen(self, ctx: ToolContext, place: ResolvedPath) -> None:
        try:
            text = self._read(place)
        except ToolError:
            if place.path.exists():
                raise
            return
        if _key(ctx, place) not in self._loaded:
            raise ToolError(
                f"{place.display} exists, and you have not loaded it since the home started or "
                "something was forgotten. Load it first, so that nothing is lost. Nothing was "
                "written."
            )
        self._check_unchanged(ctx, place, text)

    def _check_unchanged(self, ctx: ToolContext, place: ResolvedPath, text: str) -> None:
        loaded = self._loaded.get(_key(ctx, place))
        if loaded is not None and loaded.digest != _digest(text):
            raise ToolError(
                f"{place.display} was changed by somebody else since you loaded it. See diff, then "
                "reload it and try again. Nothing was changed."
            )


def _key(ctx: ToolContext, place: ResolvedPath) -> tuple[str, str, str]:
    return ctx.agent.id, ctx.participants.key, str(place.path)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _file_effects(arguments: Mapping[str, Any]) -> tuple[Effect, ...]:
    operation, path = arguments.get("operation"), str(arguments.get("path") or ".")
    if operation in _READING:
        return (Effect(EffectKind.READ, paths=(path,)),)
    if operation == "delete":
        return (Effect(EffectKind.DELETE, paths=(path,)),)
    content = str(arguments.get("content") or arguments.get("new") or "")
    return (Effect(EffectKind.WRITE, paths=(path,), content=(content,)),)


def file_tool(files: Files) -> Tool:
    """Return the tool `file` for the agents of a home."""

    @tool(
        effects=ComputedEffects(_file_effects, source="files"),
        trust=Trust.DOCUMENT,
        compact=False,
        audience=files.audience,
    )
    async def file(
        ctx: ToolContext,
        operation: Annotated[Operation, WORD, OPERATION],
        path: Annotated[str, TEXT, also("path", "file", "file_path", "filename")] = "",
        content: Annotated[str, TEXT, also("content", "text")] = "",
        old: Annotated[str, TEXT] = "",
        new: Annotated[str, TEXT] = "",
        offset: Annotated[int, null_as(0), Field(ge=0)] = 0,
    ) -> str:
        """Read and write text files in your own folder, and elsewhere where rules let you.

        save writes a file whole; replace changes the one place where old stands to new; diff
        compares with how it was loaded, or with content.
        """

        def work() -> str:
            match operation:
                case "load" | "reload":
                    return files.load(ctx, path, offset)
                case "save" | "create":
                    return files.save(ctx, path, content, new=operation == "create")
                case "append":
                    return files.append(ctx, path, content)
                case "replace":
                    return files.replace(ctx, path, old, new)
                case "delete":
                    return files.delete(ctx, path)
                case "list":
                    return files.list(ctx, path)
                case "diff":
                    return files.diff(ctx, path, content)
                case "status":
                    return files.status(ctx)

        return await asyncio.to_thread(work)

    return file
