"""The tool `file`: files in the agent's own folder, and where rules of the owner let it."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from asterism.errors import ToolError
from asterism.tools import paths
from asterism.tools.paths import Place
from asterism.tools.spellings import OPERATION, TEXT, WORD, also, unless_null
from asterism.tools.tool import Tool, ToolContext, tool
from asterism.tools.workplace import Workplace
from asterism.types.agents import Agent
from asterism.types.effects import ComputedEffects, Effect, EffectKind
from asterism.types.people import PUBLIC, Audience, Participants, Trust

PAGE = 10_000
"""Characters of a file that one result shows."""
_MOST_LOADED = 32
_MOST_LISTED = 300

Operation = Literal[
    "load", "save", "create", "delete", "append", "replace", "list", "status", "diff", "reload"
]
_LOOKING = ("load", "reload", "list", "status", "diff")


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A file as the agent last saw or wrote it."""

    place: Place
    digest: bytes
    text: str


class Files:
    """What agents have loaded, by which a change by others is noticed."""

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace
        self._loaded: dict[tuple[str, str, str], _Loaded] = {}
        """By agent, those present and path: what others have loaded is not theirs to compare."""

    def clear(self) -> None:
        """Drop what was loaded, since something was forgotten; agents have to load it anew."""
        self._loaded.clear()

    # -- operations ----------------------------------------------------------------------------

    def load(self, ctx: ToolContext, given: str, offset: int) -> str:
        """Return a page of a file, and remember how it was."""
        place = self._place(ctx, given)
        text = self._read(place)
        self._remember(ctx, place, text)
        page = text[offset : offset + PAGE]
        lines = text.count("\n") + (not text.endswith("\n") and bool(text))
        head = f"{place.shown}: {len(text):,} characters, {lines:,} lines"
        end = offset + len(page)
        if end < len(text):
            head += f", {offset:,} to {end:,} shown; go on with offset {end}"
        elif offset:
            head += f", from {offset:,}"
        return f"{head}.\n{page}"

    def save(self, ctx: ToolContext, given: str, content: str, *, new: bool) -> str:
        """Write a file whole."""
        place = self._place(ctx, given, "write")
        if not new:
            self._check_seen(ctx, place)
        return self._write(ctx, place, content, new=new)

    def append(self, ctx: ToolContext, given: str, content: str) -> str:
        """Add to the end of a file."""
        place = self._place(ctx, given, "add to")
        text = self._read(place)
        self._check_unchanged(ctx, place, text)
        gap = "" if not text or text.endswith("\n") else "\n"
        return self._write(ctx, place, f"{text}{gap}{content}")

    def replace(self, ctx: ToolContext, given: str, old: str, new: str) -> str:
        """Replace a text that is in a file once."""
        place = self._place(ctx, given, "change")
        text = self._read(place)
        self._check_unchanged(ctx, place, text)
        count = text.count(old) if old else 0
        if count != 1:
            raise ToolError(
                f"The old text is in {place.shown} {count} times; it has to be there once. Give "
                "more of what stands around it. Nothing was changed."
            )
        return self._write(ctx, place, text.replace(old, new))

    def delete(self, ctx: ToolContext, given: str) -> str:
        """Delete a file or an empty folder."""
        place = self._place(ctx, given, "delete")
        if place.path == self._workplace.folder(ctx.agent.id):
            raise ToolError("That is your own folder itself, which stays. Nothing was deleted.")
        loaded = self._loaded.get(_key(ctx, place))
        if loaded is not None:
            self._check_unchanged(ctx, place, self._read(place))
        paths.delete(place)
        self._loaded.pop(_key(ctx, place), None)
        return f"Deleted {place.shown}."

    def list(self, ctx: ToolContext, given: str) -> str:
        """Show what is in a folder."""
        place = self._place(ctx, given or ".")
        lines: list[str] = []
        inner = replace(place, path=place.path / "any")
        with paths.folder_of(inner) as folder, os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                found = entry.stat(follow_symlinks=False)
                kind = "/" if stat.S_ISDIR(found.st_mode) else ""
                kind = " (a link)" if stat.S_ISLNK(found.st_mode) else kind
                size = "" if kind else f" ({found.st_size:,} bytes)"
                lines.append(f"{entry.name}{kind}{size}")
        if not lines:
            return f"{place.shown} is empty."
        more = f"\nand {len(lines) - _MOST_LISTED:,} more" if len(lines) > _MOST_LISTED else ""
        return "\n".join(lines[:_MOST_LISTED]) + more

    def status(self, ctx: ToolContext) -> str:
        """Say which loaded files have changed since."""
        own = self._loaded_by(ctx.agent, ctx.participants)
        for one in own:
            self._check_audience(ctx, one.place)
        return "\n".join(map(self._state, own)) or "No file is loaded."

    def _loaded_by(self, agent: Agent, participants: Participants) -> list[_Loaded]:
        whose = (agent.id, participants.key)
        return [one for key, one in self._loaded.items() if key[:2] == whose]

    def _state(self, loaded: _Loaded) -> str:
        try:
            same = _digest(self._read(loaded.place)) == loaded.digest
        except ToolError as error:
            return error.message
        return f"{loaded.place.shown}: {'as loaded' if same else 'changed since; see diff'}"

    def diff(self, ctx: ToolContext, given: str, content: str) -> str:
        """Show what differs between a file and how it was loaded, or a text."""
        place = self._place(ctx, given)
        text = self._read(place)
        loaded = self._loaded.get(_key(ctx, place))
        if not content and loaded is None:
            raise ToolError(f"{place.shown} is not loaded. Load it, or give content to compare.")
        before, after, names = (
            (text, content, ("file", "content"))
            if content
            else (loaded.text if loaded else "", text, ("loaded", "file"))
        )
        lines = difflib.unified_diff(
            before.splitlines(), after.splitlines(), *names, lineterm="", n=2
        )
        return "\n".join(lines)[:PAGE] or "No difference."

    # -- who may see it ------------------------------------------------------------------------

    def audience(
        self, agent: Agent, participants: Participants, arguments: Mapping[str, Any]
    ) -> Audience:
        """Return who may see what a call tells, by rules alone: not by what is there."""
        if arguments.get("operation") == "status":
            loaded = self._loaded_by(agent, participants)
            return Audience.intersection(one.place.audience for one in loaded)
        try:
            return self._found(agent, str(arguments.get("path") or ".")).audience
        except ToolError:
            return PUBLIC  # it is no path at all, and this is all that is said of it

    def _check_audience(self, ctx: ToolContext, place: Place) -> None:
        """Refuse what is for others than the call was judged for: a link may have changed."""
        if place.audience not in ctx.audiences and not ctx.participants.can_see(place.audience):
            raise ToolError("The path leads elsewhere by now. Nothing was done; try it again.")

    # -- what they share -----------------------------------------------------------------------

    def _found(self, agent: Agent, given: str) -> Place:
        return paths.place_of(
            given,
            workspace=self._workplace.folder(agent.id),
            data=self._workplace.data,
            settings=self._workplace.settings().files,
            agent=agent.name,
        )

    def _place(self, ctx: ToolContext, given: str, wanted: str = "") -> Place:
        """Return a place where the agent may do what it wants; ask if a person has to."""
        workspace = self._workplace.folder(ctx.agent.id)
        if not workspace.exists():
            from asterism.sandbox.plan import own_workspace

            own_workspace(workspace)
        place = self._found(ctx.agent, given)
        self._check_audience(ctx, place)
        if place.permission == "none" or (wanted and place.permission == "read"):
            raise ToolError(
                f"You may not {wanted or 'read'} {place.shown}: {place.rule}. Work in your own "
                "folder with a path such as 'notes.md', or ask your owner for a rule in [files]."
            )
        if wanted and place.permission in ("human", "partner"):
            ctx.ask(f"May {ctx.agent.name} {wanted} {place.shown}? ({place.rule})")
            if ctx.decision is not None and not ctx.decision.approved:
                raise ToolError(f"You were not allowed to {wanted} {place.shown}.")
        return place

    def _largest(self) -> int:
        return self._workplace.settings().files.largest_kb << 10

    def _read(self, place: Place) -> str:
        body = paths.read(place, self._largest())
        if b"\0" in body[:8_192]:
            raise ToolError(f"{place.shown} is no text. Look at it with a program, using shell.")
        try:
            return body.decode("utf-8")
        except UnicodeDecodeError:
            raise ToolError(
                f"{place.shown} is not in UTF-8. Convert it with iconv, using shell."
            ) from None

    def _write(self, ctx: ToolContext, place: Place, text: str, *, new: bool = False) -> str:
        body = text.encode("utf-8", "replace")
        if len(body) > self._largest():
            raise ToolError(
                f"That are {len(body):,} bytes, and the most is {self._largest():,}. "
                "Nothing was written."
            )
        paths.write(place, body, new=new)
        self._remember(ctx, place, text)
        return f"Wrote {place.shown}, {len(body):,} bytes."

    def _remember(self, ctx: ToolContext, place: Place, text: str) -> None:
        key = _key(ctx, place)
        self._loaded.pop(key, None)
        self._loaded[key] = _Loaded(place, _digest(text), text)
        own = [one for one in self._loaded if one[:2] == key[:2]]
        for one in own[:-_MOST_LOADED]:
            del self._loaded[one]

    def _check_seen(self, ctx: ToolContext, place: Place) -> None:
        try:
            text = self._read(place)
        except ToolError:
            if place.path.exists():
                raise
            return
        if _key(ctx, place) not in self._loaded:
            raise ToolError(
                f"{place.shown} is there, and you have not loaded it since the home started or "
                "something was forgotten. Load it first, so that nothing is lost. Nothing was "
                "written."
            )
        self._check_unchanged(ctx, place, text)

    def _check_unchanged(self, ctx: ToolContext, place: Place, text: str) -> None:
        loaded = self._loaded.get(_key(ctx, place))
        if loaded is not None and loaded.digest != _digest(text):
            raise ToolError(
                f"{place.shown} was changed by somebody else since you loaded it. See diff, then "
                "reload it and try again. Nothing was changed."
            )


def _key(ctx: ToolContext, place: Place) -> tuple[str, str, str]:
    return ctx.agent.id, ctx.participants.key, str(place.path)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "replace")).digest()


def _effects_of(arguments: Mapping[str, Any]) -> tuple[Effect, ...]:
    operation, path = arguments.get("operation"), str(arguments.get("path") or ".")
    if operation in _LOOKING:
        return (Effect(EffectKind.READ, paths=(path,)),)
    if operation == "delete":
        return (Effect(EffectKind.DELETE, paths=(path,)),)
    content = str(arguments.get("content") or arguments.get("new") or "")
    return (Effect(EffectKind.WRITE, paths=(path,), content=(content,)),)


def file_tool(files: Files) -> Tool:
    """Return the tool `file` for the agents of a home."""

    @tool(
        effects=ComputedEffects(_effects_of, source="files"),
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
        offset: Annotated[int, unless_null(0), Field(ge=0)] = 0,
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
