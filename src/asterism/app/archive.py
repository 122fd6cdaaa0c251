"""The verbs about archives: passages that agents and owners keep, and search over all memory."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any

from asterism.app.session import AnyText, Session, check_same, note, verbs
from asterism.errors import BudgetReached, ModelError, NotAllowed, NotFound
from asterism.memory import archive, people
from asterism.memory.archive import Relation, judge_prompt, parse_verdict
from asterism.memory.gate import passages as gate
from asterism.memory.gate.passages import NewPassage, Written, check_tags
from asterism.permissions import Act
from asterism.store import documents
from asterism.store.database import Connection
from asterism.store.passages import PassageEdit
from asterism.types.agents import AgentRecord, optional_ms
from asterism.types.memory import AppendPassage, Insert, Passage, Retract, Source, Tag
from asterism.types.search import Hit, SearchResult

_log = logging.getLogger(__name__)
_BATCH = 500
_ASKED_ABOUT = 3
"""About how many passages that are nearest to a new one a model is asked."""

Ask = Callable[[AgentRecord, str], Awaitable[str]]
_PassageWrite = AppendPassage | Retract | Tag
_DONE: dict[type, str] = {AppendPassage: "appended", Retract: "retracted", Tag: "tagged"}


@verbs(
    "passage",
    list=Act.READ,
    get=Act.READ,
    history=Act.READ,
    add=Act.APPEND,
    add_many=Act.APPEND,
    append=Act.APPEND,
    edit=Act.APPEND,
    retract=Act.DELETE,
    tag=Act.APPEND,
    search=Act.READ,
)
class Archive:
    """Passages: texts that agents keep outside of their blocks and find by search."""

    def __init__(
        self,
        session: Session,
        search: Callable[..., Awaitable[SearchResult]],
        judge: Callable[[], Ask | None],
    ) -> None:
        """Make the verbs.

        Args:
            session: Who acts, and where.
            search: Searches all memory: `home.search`.
            judge: Returns what puts a question to a model, if that is wanted.
        """
        self._session = session
        self._search = search
        self._judge = judge

    async def list(
        self,
        agent: AgentRecord | str,
        *,
        tag: str | None = None,
        moment: datetime | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> list[Passage]:
        """Return the passages of an agent that hold now, or held at a moment, newest first."""
        agent_id = await self._session.agent_id(agent)
        wanted = check_tags((tag,))[0] if tag is not None else None

        async def read(tx: Connection) -> list[Passage]:
            return await archive.listing(
                tx,
                [agent_id],
                participants=await self._session.participants(tx),
                tag=wanted,
                moment=optional_ms(moment),
                limit=limit,
                before=before,
            )

        return await self._session.database.read(read)

    async def get(self, passage_id: str) -> Passage:
        """Return a passage by its id."""
        return await self._session.database.read(lambda tx: self._visible(tx, passage_id))

    async def _visible(self, tx: Connection, passage_id: str) -> Passage:
        """Return a passage that the actor may see."""
        participants = await self._session.participants(tx)
        passage = await archive.get(tx, passage_id, participants=participants)
        if not await self._is_of_agent(tx, passage.archive_id):
            # The same words as for one that does not exist.
            raise NotFound(f"There is no passage {passage_id!r}. Search for it to learn its id.")
        return passage

    async def _is_of_agent(self, tx: Connection, archive_id: str) -> bool:
        """Tell whether an archive is one of an agent, or a source, that exists for the actor."""
        session = self._session
        if session.sees_agent(archive_id):
            return True
        return any(map(session.sees_agent, await documents.agents_of(tx, archive_id)))

    async def history(self, passage_id: str) -> list[PassageEdit]:
        """Return the edits of a passage, from its first version on."""

        async def read(tx: Connection) -> list[PassageEdit]:
            await self._visible(tx, passage_id)
            participants = await self._session.participants(tx)
            return await archive.history(tx, passage_id, participants=participants)

        return await self._session.database.read(read)

    async def add(
        self,
        agent: AgentRecord | str,
        text: str,
        *,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        true_from: datetime | None = None,
        supersedes: str | None = None,
        audience: str = "owner",
        by: str = "api",
    ) -> Written:
        """Store a passage in an agent's archive; a duplicate is not stored again.

        Args:
            agent: Whose archive.
            text: What is to be known.
            tags: Words to find it by.
            metadata: Anything else that belongs to it.
            true_from: Since when it holds.
            supersedes: The passage that it takes the place of.
            audience: Who may see it, such as `owner`, `public` or `person:anna`.
            by: What asks for it, such as `api` or `cli`.
        """
        session = self._session
        if supersedes is not None and (session.limits is not None or not session.is_owner):
            # What takes the place of another passage overwrites it.
            await session.allow(Act.OVERWRITE, "passage.add", "passage", (agent,))
        owner = await session.agent(agent)
        ask = self._judge()
        contradicted = await self._contradicted(ask, owner, text) if ask is not None else ()
        insert = Insert(text, tuple(tags), dict(metadata or {}), optional_ms(true_from), supersedes)

        async def work(tx: Connection) -> Written:
            writer = await session.writer(tx, by)
            visible = await people.read_audience(tx, audience)
            source = Source(writer.source.origins, visible, writer.source.trust)
            written = await gate.write(
                tx,
                writer.with_source(source),
                owner.id,
                insert,
                judge_with=lambda _, old: Relation.CONTRADICTS if old in contradicted else None,
            )
            kind = "passage.added"
            await note(tx, session, kind, by=by, agent_id=owner.id, what=written.passage.id)
            return written

        return self._answer(await session.database.write(work))

    async def _contradicted(self, ask: Ask, agent: AgentRecord, text: str) -> frozenset[str]:
        """Return the passages that a model finds contradicted by a new text.

        A model cannot merge or replace anything: it can only point out a contradiction.
        """
        contradicted: set[str] = set()
        near = await self.search(agent, text, domains=("passages", "documents"), limit=_ASKED_ABOUT)
        for hit in near:
            try:
                answer = await ask(agent, judge_prompt(text, hit.text))
            except (ModelError, BudgetReached) as problem:
                _log.warning("no model could be asked about %s: %s", hit.id, problem.message)
                break
            if parse_verdict(answer) is Relation.CONTRADICTS:
                contradicted.add(hit.text)
        return frozenset(contradicted)

    async def add_many(
        self,
        agent: AgentRecord | str,
        texts: Iterable[str],
        *,
        tags: Sequence[str] = (),
        audience: str = "owner",
        by: str = "api",
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Store many passages, some hundred in each transaction; return how many were new."""
        session = self._session
        agent_id = await session.agent_id(agent)
        stored = done = 0
        rest = iter(texts)
        while batch := list(islice(rest, _BATCH)):
            rows = [NewPassage(text, tags=tuple(tags)) for text in batch]

            async def work(tx: Connection, rows: list[NewPassage] = rows) -> int:
                writer = await session.writer(tx, by)
                visible = await people.read_audience(tx, audience)
                source = Source(writer.source.origins, visible, writer.source.trust)
                count = await gate.insert_many(tx, writer.with_source(source), agent_id, rows)
                what = f"{count} passages"
                await note(tx, session, "passage.added", by=by, agent_id=agent_id, what=what)
                return count

            stored += await session.database.write(work)
            done += len(rows)
            if progress is not None:
                progress(done)
        await session.stay_forgotten()
        return stored

    async def append(self, passage_id: str, text: str, *, by: str = "api") -> Written:
        """Add text to the end of a passage."""
        return await self._write([AppendPassage(passage_id, text)], by)

    async def edit(
        self,
        passage_id: str,
        *,
        append: str | None = None,
        tags: Sequence[str] | None = None,
        expected: Passage | None = None,
        by: str = "api",
    ) -> Passage:
        """Change a passage: all that is given, or nothing if a part of it cannot be.

        Args:
            passage_id: Which passage.
            append: Text that is added to its end.
            tags: Its tags, and no others.
            expected: The passage as read before; if somebody was quicker, `Changed` is raised.
            by: What asks for it, such as `api` or `cli`.
        """
        writes: builtins.list[_PassageWrite] = []
        if append is not None:
            await self._session.allow(Act.APPEND, "passage.append", "passage", (passage_id,))
            writes.append(AppendPassage(passage_id, append))
        if tags is not None:
            await self._session.allow(Act.APPEND, "passage.tag", "passage", (passage_id,))
            writes.append(Tag(passage_id, tuple(tags)))
        if not writes:
            return await self.get(passage_id)
        return (await self._write(writes, by, expected)).passage

    async def retract(
        self, passage_id: str, *, expected: Passage | None = None, by: str = "api"
    ) -> Written:
        """Hold a passage to be true no longer; it stays in the history.

        With `expected`, the passage as read before, `Changed` is raised if somebody was quicker.
        """
        return await self._write([Retract(passage_id)], by, expected)

    async def tag(self, passage_id: str, tags: Sequence[str], *, by: str = "api") -> Written:
        """Give a passage these tags and no others."""
        return await self._write([Tag(passage_id, tuple(tags))], by)

    async def _write(
        self, writes: Sequence[_PassageWrite], by: str, expected: Passage | None = None
    ) -> Written:
        """Do all of the writes to one passage, or none; return what the last one returns."""
        session = self._session

        async def work(tx: Connection) -> Written:
            passage = await self._visible(tx, writes[0].passage_id)
            check_same(passage.id, passage, expected)
            if not session.sees_agent(passage.archive_id):
                raise NotAllowed(
                    f"Passage {passage.id} is of a document that other agents may read as well. "
                    "Use a token for all agents. Nothing was changed."
                )
            written: Written | None = None
            for write in writes:
                kind = f"passage.{_DONE[type(write)]}"
                await note(tx, session, kind, by=by, agent_id=passage.archive_id, what=passage.id)
                writer = await session.writer(tx, by)
                written = await gate.write(tx, writer, passage.archive_id, write)
            assert written is not None
            return written

        return self._answer(await session.database.write(work))

    def _answer(self, written: Written) -> Written:
        """Return what whoever has written is told; those who may not read, without any texts."""
        if self._session.may(Act.READ, "passage.get"):
            return written
        passage = replace(written.passage, text="", metadata={}, tags=())
        return replace(written, passage=passage, note="", quoted=())

    async def search(self, agent: AgentRecord | str, query: AnyText, **filters: Any) -> list[Hit]:
        """Return the hits of `Asterism.search`, which has the same filters."""
        return (await self._search(agent, query, **filters)).hits


class AgentArchive:
    """The archive of one agent: `await agent.archive.add("The rent is due on the first.")`."""

    def __init__(self, archive: Archive, agent: AgentRecord | str) -> None:
        self._archive = archive
        self._agent = agent

    async def list(self, **options: Any) -> Sequence[Passage]:
        """Return its passages, the newest first; `Archive.list` has the options."""
        return await self._archive.list(self._agent, **options)

    async def add(self, text: str, **options: Any) -> Written:
        """Store a passage; `Archive.add` has the options."""
        return await self._archive.add(self._agent, text, **options)

    async def add_many(self, texts: Iterable[str], **options: Any) -> int:
        """Store many passages; return how many were new."""
        return await self._archive.add_many(self._agent, texts, **options)

    async def search(self, query: str, **filters: Any) -> Sequence[Hit]:
        """Search the archive; `Agents.search` has the same filters."""
        return await self._archive.search(self._agent, query, **filters)
