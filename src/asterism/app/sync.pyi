"""A home whose verbs need no `await`; `python -m bench.sync_types` writes this file."""

import builtins
from collections.abc import (
    AsyncIterable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from asterism.app.alerts import Alert
from asterism.app.audit import Autonomy
from asterism.app.authentication import AccessToken, Caller, NewToken, NewWebSession, User
from asterism.app.backups import Backup, BackupReport, OnProgress
from asterism.app.blocks import OptionalAgent
from asterism.app.configuration import ConfigCheck
from asterism.app.constellations import Constellation
from asterism.app.home import HomeStatus
from asterism.app.keys import StoredKey
from asterism.app.mcp import Show
from asterism.app.people import Room
from asterism.app.rules import Form
from asterism.app.session import AnyText
from asterism.app.sources import SourceState
from asterism.app.turns import ApprovalDetails
from asterism.config import Settings
from asterism.config.load import Reload
from asterism.config.settings import McpSettings
from asterism.memory.blocks import VisibleBlock
from asterism.memory.export import Report
from asterism.memory.forgetting import ForgetReceipt, Forgetting
from asterism.memory.forgetting.removal import RetentionResult
from asterism.memory.gate.copies import Forked
from asterism.memory.gate.passages import Written
from asterism.memory.health import Health
from asterism.memory.history import MemoryAt, TurnWrites
from asterism.memory.why import Trace
from asterism.permissions import Actor, LiveAuthority
from asterism.ports import Clock
from asterism.sources.folder import Progress, SyncResult
from asterism.store.database import Database
from asterism.store.events import RecordedEvent, Verified
from asterism.store.passages import PassageEdit
from asterism.telemetry import Telemetry
from asterism.tools.builtin.shell import SandboxStatus
from asterism.tools.mcp.clients import McpServerStatus
from asterism.tools.mcp.tools import ToolListing
from asterism.tools.tool import Toolbox
from asterism.turns.compaction import CompactionResult
from asterism.turns.context_view import ContextView
from asterism.turns.lanes import Indexing
from asterism.turns.parts import TurnParts
from asterism.turns.runtime import Hub
from asterism.types.agents import (
    Account,
    AgentRecord,
    Audience,
    Halt,
    HttpCall,
    Limits,
    Participants,
    Person,
    RegisteredTool,
    Rule,
    Schedule,
    Trust,
)
from asterism.types.documents import DocumentSource, SourceDocument
from asterism.types.groups import GroupEvent, GroupRecord
from asterism.types.memory import (
    Block,
    BlockType,
    BlockWrite,
    EditRecord,
    Line,
    Passage,
    Permission,
    Schema,
)
from asterism.types.permissions import ApprovalRecord, Extent, Grant, Wish
from asterism.types.search import Hit, SearchResult
from asterism.types.spending import Spend, Standing
from asterism.types.turns import (
    AttachedDocument,
    ClientRequest,
    Delivery,
    Entry,
    ImportResult,
    InboxItem,
    Notice,
    Outcome,
    PastMessage,
    Receipt,
    Replay,
    Signal,
    Summary,
    ToolResult,
    TurnRecord,
)

_T = TypeVar("_T")

def has_verbs(kind: type[Any]) -> bool: ...

class SyncHome:
    """A constellation of agents as somebody has it: its nouns, judged as theirs."""

    @property
    def agents(self) -> SyncAgents:
        """The agents: `aria = await home.agents.ensure("aria")`."""
    @property
    def groups(self) -> SyncGroups:
        """The groups of agents: `await home.groups.create("board", pattern="voting")`."""
    @property
    def turns(self) -> SyncTurns:
        """The turns of all agents."""
    @property
    def notices(self) -> SyncNotices:
        """What the owner must be told."""
    @property
    def alerts(self) -> SyncAlerts:
        """What is wrong with the home now."""
    @property
    def outbox(self) -> SyncOutbox:
        """What must go out to channels."""
    @property
    def schedules(self) -> SyncSchedules:
        """Messages that agents get at a later time."""
    @property
    def spending(self) -> SyncSpendingReports:
        """What models cost."""
    @property
    def blocks(self) -> SyncBlocks:
        """The blocks of agents, and of the constellation."""
    @property
    def audit(self) -> SyncAudit:
        """What was done, by whom and why."""
    @property
    def keys(self) -> SyncKeys:
        """Keys of others, encrypted at rest."""
    @property
    def backups(self) -> SyncBackups:
        """Copies of the whole home."""
    @property
    def tools(self) -> SyncTools:
        """The tools that were registered."""
    @property
    def mcp(self) -> SyncMcp:
        """MCP servers, whose tools are offered beside our own."""
    @property
    def archive(self) -> SyncArchive:
        """The archives of agents."""
    @property
    def search(self) -> SyncSearch:
        """Search over all that agents remember: `await home.search(agent, text, …)`."""
    @property
    def people(self) -> SyncPeople:
        """The persons that agents talk to."""
    @property
    def constellations(self) -> SyncConstellations:
        """The constellations of a server, for the owner of its own."""
    @property
    def tokens(self) -> SyncTokens:
        """Tokens for the HTTP API."""
    @property
    def users(self) -> SyncUsers:
        """Users of the web page."""
    @property
    def rules(self) -> SyncRules:
        """The rules for agents' tools: told to the model, and enforced."""
    @property
    def halts(self) -> SyncHalts:
        """Halts of all agents."""
    @property
    def sources(self) -> SyncSources:
        """The folders of documents that agents can search."""
    @property
    def contexts(self) -> SyncContexts:
        """What models see, or saw."""
    @property
    def memory(self) -> SyncMemory:
        """Memory as a whole: time travel, provenance, health, forgetting, export."""
    @property
    def approvals(self) -> SyncApprovals:
        """The questions that turns wait for."""
    @property
    def grants(self) -> SyncGrants:
        """Permissions of agents for more than one call."""
    @property
    def config(self) -> SyncConfiguration:
        """The settings of the home."""
    def check_verb(self, name: str) -> None:
        """Return if whoever has this home may use a verb, such as `sources.upload`; else raise."""
    def may_use(self, name: str) -> bool:
        """Tell whether whoever has this home may use a verb; nothing is noted if not."""
    def find_verb(self, name: str) -> Callable[..., Any] | None:
        """Return a verb by its name, such as `agents.list`, if the class of its noun has it."""
    @property
    def is_unlimited(self) -> bool:
        """Whether it is the owner's, without a limit on the acts and the agents."""
    def counts(self) -> tuple[int, int]:
        """Return how many agents there are, and how many messages wait."""
    def check(self) -> list[str]:
        """Return what is wrong with the store; nothing if it is healthy."""
    def status(self) -> HomeStatus:
        """Return how the home is doing."""
    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics in a text format that Prometheus reads, and the format's type."""

class SyncAsterism(SyncHome):
    """An open home for scripts: `with Asterism.open_sync() as home:`."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Any]]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def run(self, work: Coroutine[Any, Any, _T]) -> _T: ...
    @property
    def taken_up(self) -> list[str]: ...
    def acting_as(self, actor: Actor) -> SyncHome:
        """Return the same home for another actor, with the permissions of that actor."""
    def authenticate(self, secret: str, *, client: str = "") -> SyncHome:
        """Return the home as the bearer of a token may use it, which is that of its constellation."""
    def log_in(
        self, name: str, password: str, *, client: str = "", constellation: str | None = None
    ) -> NewWebSession:
        """Begin a session of the web page for the owner or a person with a password."""
    def log_out(self, secret: str) -> None:
        """End the session of the web page with this secret."""
    def ensure_default_token(self) -> str:
        """Make the token `default` at the first start; return what a person should know."""
    @property
    def settings(self) -> Settings:
        """The settings in use."""
    @property
    def database(self) -> Database:
        """The store, where everything of the home is."""
    @property
    def toolbox(self) -> Toolbox:
        """The tools that agents are offered."""
    @property
    def hub(self) -> Hub:
        """Where watchers hear of what happens in turns."""
    @property
    def telemetry(self) -> Telemetry:
        """Counts and spans."""
    @property
    def indexing(self) -> Indexing:
        """What makes vectors of texts, in the background."""
    @property
    def authorities(self) -> LiveAuthority:
        """What the owner has decided beforehand."""
    @property
    def now(self) -> Clock:
        """The clock: milliseconds since 1970."""
    def start_working(self) -> None:
        """Take turns in this process from now on, if it does not yet."""
    def follow_configuration(self, changed: Callable[[Settings], None] | None = None) -> None:
        """Put changes of the configuration file in use as they are saved, and tell `changed`."""

class SyncAgent(AgentRecord):
    """An agent of an open home: its record and its verbs."""

    def ask(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Outcome:
        """Send a message and wait for the answer; `Agents.send` has the options."""
    def send(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Receipt:
        """Send a message. On return it is stored and will be answered exactly once."""
    def stream(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Generator[Signal]:
        """Send a message and yield the signals of its turn, `ended` or `parked` the last."""
    def watch(self, *, after: str | None = None) -> Generator[Signal]:
        """Yield the signals of all turns of this agent."""
    def search(
        self,
        text: str,
        *,
        domains: Sequence[str] = ...,
        speaker: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: Sequence[str] = ...,
        source: str | None = None,
        participants: Participants = ...,
        limit: int = 10,
        offset: int = 0,
        moment: datetime | None = None,
        neighbours: int = 0,
    ) -> SearchResult:
        """Return what this agent remembers of something, the best first."""
    def edit(
        self,
        *,
        new_name: str | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        all_tools: bool = False,
        limits: Limits | None = None,
        version: int | None = None,
    ) -> SyncAgent:
        """Change this agent and return it as it is then; `Agents.edit` has the options."""
    def delete(self) -> None:
        """Take this agent out of service. Its journal stays and can be read."""
    def import_messages(self, messages: Sequence[PastMessage | tuple[str, str]]) -> ImportResult:
        """Put a conversation from elsewhere at the end of this agent's past."""
    @property
    def blocks(self) -> SyncAgentBlocks:
        """The blocks that this agent sees: `await agent.blocks["human"].append("Has a cat.")`."""
    @property
    def archive(self) -> SyncAgentArchive:
        """What this agent keeps for later: `await agent.archive.add("The rent is due.")`."""
    @property
    def model_in_use(self) -> str:
        """The model that this agent thinks with now, as `vendor:name`."""

class SyncAgentArchive:
    """The archive of one agent: `await agent.archive.add("The rent is due on the first.")`."""

    def list(
        self,
        *,
        tag: str | None = None,
        moment: datetime | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Sequence[Passage]:
        """Return its passages, the newest first; `Archive.list` has the options."""
    def add(
        self,
        text: str,
        *,
        tags: Sequence[str] = ...,
        metadata: Mapping[str, Any] | None = None,
        true_from: datetime | None = None,
        supersedes: str | None = None,
        audience: str = "owner",
        by: str = "api",
    ) -> Written:
        """Store a passage; `Archive.add` has the options."""
    def add_many(
        self,
        texts: Iterable[str],
        *,
        tags: Sequence[str] = ...,
        audience: str = "owner",
        by: str = "api",
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Store many passages; return how many were new."""
    def search(
        self,
        query: str,
        *,
        domains: Sequence[str] = ...,
        speaker: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: Sequence[str] = ...,
        source: str | None = None,
        participants: Participants = ...,
        limit: int = 10,
        offset: int = 0,
        moment: datetime | None = None,
        neighbours: int = 0,
    ) -> Sequence[Hit]:
        """Search the archive; `Agents.search` has the same filters."""

class SyncAgentBlock:
    """A block that an agent sees, by its label: read and edited by the owner."""

    @property
    def label(self) -> str: ...
    def get(self) -> VisibleBlock:
        """Return the block with its lines."""
    def text(self) -> str:
        """Return its text."""
    def append(self, content: str, *, section: str | None = None, reason: str = "") -> Block:
        """Add a line, or an item or entry, to the end."""
    def replace(self, old: str, new: str, *, section: str | None = None, reason: str = "") -> Block:
        """Put a text in place of the first that reads so."""
    def set(self, content: str, *, section: str | None = None, reason: str = "") -> Block:
        """Put a text in place of all that it says."""
    def set_field(
        self, field: str, value: Any, *, section: str | None = None, reason: str = ""
    ) -> Block:
        """Give a field of a map a value."""
    def undo(self, *, reason: str = "") -> Block:
        """Take the latest edit back."""
    def restore(self, version: int, *, reason: str = "") -> Block:
        """Restore the text of a version; this is a new edit."""
    def write(self, write: BlockWrite, *, reason: str = "") -> Block:
        """Edit, describe, share, undo or retire it."""
    def history(self, *, limit: int = 50, before: int | None = None) -> Sequence[EditRecord]:
        """Return its edits, the newest first."""
    def at(self, *, version: int | None = None, moment: datetime | None = None) -> Sequence[Line]:
        """Return its lines at a version, or at a moment."""

class SyncAgentBlocks:
    """The blocks that one agent sees; `agent.blocks["human"]` names one of them."""

    def __getitem__(self, label: str) -> SyncAgentBlock:
        """Return a block by its label; nothing is read yet."""
    __iter__: None
    def list(self) -> Sequence[VisibleBlock]:
        """Return all of them."""
    def create(
        self,
        label: str,
        content: str = "",
        *,
        kind: BlockType = ...,
        schema: Schema | Mapping[str, Any] | str = "text",
        description: str = "",
        limit: int = ...,
        permission: Permission = ...,
        audience: str | None = None,
        pinned: bool = False,
        shared_with: Mapping[str, Permission] | None = None,
        existing: bool = False,
        by: str = "api",
    ) -> SyncAgentBlock:
        """Create a block of this agent; `Blocks.create` has the options."""

class SyncAgents:
    """The agents of a home: made, talked to, changed and taken out of service."""

    def __getitem__(self, name: str) -> SyncNamedAgent:
        """Return an agent by its name or id; nothing is read yet."""
    __iter__: None
    def list(self, *, archived: bool | None = False) -> builtins.list[SyncAgent]:
        """Return the agents by name: those at work, or with `archived` the archived ones."""
    def get(self, name: str) -> SyncAgent:
        """Return an agent by name or id."""
    def create(
        self,
        name: str,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> SyncAgent:
        """Create an agent; its name must be free."""
    def ensure(
        self,
        name: str,
        *,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        limits: Limits | None = None,
    ) -> SyncAgent:
        """Return the agent of that name; create it with these options if it does not exist."""
    def edit(
        self,
        agent: AgentRecord | str,
        *,
        new_name: str | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        all_tools: bool = False,
        limits: Limits | None = None,
        version: int | None = None,
    ) -> SyncAgent:
        """Change an agent from its next turn on; options that you leave out stay unchanged."""
    def clone(self, agent: AgentRecord | str, name: str) -> SyncAgent:
        """Make another agent with the same past and memory; what is under way stays where it is."""
    def archive(self, agent: AgentRecord | str, *, version: int | None = None) -> SyncAgent:
        """Let an agent rest: it is in no list and takes no turns until it is unarchived."""
    def unarchive(self, agent: AgentRecord | str, *, version: int | None = None) -> SyncAgent:
        """Put an archived agent back to work, first on what has waited meanwhile."""
    def delete(self, agent: AgentRecord | str, *, version: int | None = None) -> SyncAgent:
        """Take an agent out of service. Its journal stays and can be read."""
    def send(
        self,
        agent: AgentRecord | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Receipt:
        """Hand in a message. On return it is stored and will be answered exactly once."""
    def ask(
        self,
        agent: AgentRecord | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Outcome:
        """Hand in a message and wait for how its turn ends."""
    def stream(
        self,
        agent: AgentRecord | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Generator[Signal]:
        """Hand in a message and yield the signals of its turn, `ended` or `parked` the last."""
    def watch(
        self, agent: AgentRecord | str | None = None, *, after: str | None = None
    ) -> Generator[Signal]:
        """Yield the signals of all turns of an agent, or of everybody, after the signal `after`."""
    def import_messages(
        self, agent: AgentRecord | str, messages: Sequence[PastMessage | tuple[str, str]]
    ) -> ImportResult:
        """Put a conversation from elsewhere at the end of an agent's past; nobody is asked."""
    def warm(self, agent: AgentRecord | str) -> None:
        """Let the model of an agent get ready while nobody has asked anything yet, if it can."""

class SyncAlerts:
    """What is wrong with the home now."""

    def list(self) -> builtins.list[Alert]:
        """Return the alerts that have not ended, the oldest first; they are for the owner."""

class SyncApproval(ApprovalRecord):
    """An approval of an open home: the question, and the verbs that answer it."""

    def approve(
        self,
        *,
        by: str | Account | None = None,
        note: str | None = None,
        arguments: str | Mapping[str, Any] | None = None,
        grant: Wish | Extent | str | None = None,
        place: str | None = None,
    ) -> Receipt:
        """Let the call be made; `Approvals.decide` has the options."""
    def deny(
        self,
        *,
        by: str | Account | None = None,
        note: str | None = None,
        arguments: str | Mapping[str, Any] | None = None,
        grant: Wish | Extent | str | None = None,
        place: str | None = None,
    ) -> Receipt:
        """Have the turn go on without the call."""

class SyncApprovals:
    """Questions that turns wait for, and the answers to them."""

    def list(
        self, *, limit: int | None = None, after: str | None = None
    ) -> builtins.list[SyncApproval]:
        """Return the questions that wait for an answer, the oldest first."""
    def answered(
        self, *, limit: int = 20, before: str | None = None
    ) -> builtins.list[SyncApproval]:
        """Return the questions that were answered, the latest first."""
    def get(self, approval_id: str) -> SyncApproval:
        """Return an approval by its id; for a waiting approval, the end of the id is enough."""
    def show(self, approval_id: str) -> ApprovalDetails:
        """Return an approval with its reviewers, its answer and its grant."""
    def decide(
        self,
        approval_id: str,
        *,
        approved: bool,
        by: str | Account | None = None,
        note: str | None = None,
        arguments: str | Mapping[str, Any] | None = None,
        grant: Wish | Extent | str | None = None,
        place: str | None = None,
    ) -> Receipt:
        """Answer a question; the turn that asked goes on. The first valid answer counts."""
    def answer(
        self,
        approval_id: str,
        *,
        approved: bool,
        by: Account,
        place: str | None = None,
        note: str | None = None,
    ) -> str:
        """Answer a question from a channel; return in a sentence what came of it."""
    def stream_decision(
        self,
        approval: ApprovalRecord,
        *,
        approved: bool,
        by: str | Account | None = None,
        note: str | None = None,
        arguments: str | Mapping[str, Any] | None = None,
        grant: Wish | Extent | str | None = None,
        place: str | None = None,
    ) -> Generator[Signal]:
        """Answer a question and yield the signals of the turn as it goes on."""

class SyncArchive:
    """Passages: texts that agents keep outside of their blocks and find by search."""

    def list(
        self,
        agent: AgentRecord | str,
        *,
        tag: str | None = None,
        moment: datetime | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> builtins.list[Passage]:
        """Return the passages of an agent that hold now, or held at a moment, newest first."""
    def get(self, passage_id: str) -> Passage:
        """Return a passage by its id."""
    def history(self, passage_id: str) -> builtins.list[PassageEdit]:
        """Return the edits of a passage, from its first version on."""
    def add(
        self,
        agent: AgentRecord | str,
        text: str,
        *,
        tags: Sequence[str] = ...,
        metadata: Mapping[str, Any] | None = None,
        true_from: datetime | None = None,
        supersedes: str | None = None,
        audience: str = "owner",
        by: str = "api",
    ) -> Written:
        """Store a passage in an agent's archive; a duplicate is not stored again."""
    def add_many(
        self,
        agent: AgentRecord | str,
        texts: Iterable[str],
        *,
        tags: Sequence[str] = ...,
        audience: str = "owner",
        by: str = "api",
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Store many passages, some hundred in each transaction; return how many were new."""
    def append(self, passage_id: str, text: str, *, by: str = "api") -> Written:
        """Add text to the end of a passage."""
    def edit(
        self,
        passage_id: str,
        *,
        append: str | None = None,
        tags: Sequence[str] | None = None,
        expected: Passage | None = None,
        by: str = "api",
    ) -> Passage:
        """Change a passage: all that is given, or nothing if a part of it cannot be."""
    def retract(
        self, passage_id: str, *, expected: Passage | None = None, by: str = "api"
    ) -> Written:
        """Hold a passage to be true no longer; it stays in the history."""
    def tag(self, passage_id: str, tags: Sequence[str], *, by: str = "api") -> Written:
        """Give a passage these tags and no others."""
    def search(
        self,
        agent: AgentRecord | str,
        query: AnyText,
        *,
        domains: Sequence[str] = ...,
        speaker: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: Sequence[str] = ...,
        source: str | None = None,
        participants: Participants = ...,
        limit: int = 10,
        offset: int = 0,
        moment: datetime | None = None,
        neighbours: int = 0,
    ) -> builtins.list[Hit]:
        """Return the hits of `Asterism.search`, which has the same filters."""

class SyncAudit:
    """The audit log: each event is written in the transaction of its effect and never changed."""

    def list(
        self,
        *,
        agent: AgentRecord | str | None = None,
        kind: str | None = None,
        actor: str | None = None,
        turn: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 50,
        before: RecordedEvent | None = None,
    ) -> builtins.list[RecordedEvent]:
        """Return events, the newest first."""
    def autonomy(
        self,
        *,
        agent: AgentRecord | str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Autonomy:
        """Return how many calls with an effect outside ran without asking, were asked or denied."""
    def get(self, ref: str) -> RecordedEvent:
        """Return one event, named as CHAIN:NUMBER: `home:12`, or an agent's name or id and 12."""
    def names(self) -> dict[str, str]:
        """Return how each chain of this home is called: `home`, or an agent's name."""
    def verify(
        self, *, head: str | None = None, progress: Callable[[int], None] | None = None
    ) -> Verified:
        """Check all chains, and return every event that is not as it was written."""
    def anchor(self) -> int:
        """Write into the home's chain how far the agents' chains have come; return how many."""
    def export(self, form: str = "jsonl") -> Generator[str]:
        """Yield the whole log chain by chain as lines of JSON, or of CSV below a heading."""

class SyncBackups:
    """The backups of a home."""

    def create(
        self,
        path: Path | str | None = None,
        *,
        passphrase: AnyText | None = None,
        note: str = "",
        progress: OnProgress | None = None,
    ) -> Backup:
        """Make a backup of everything that makes up the home, while turns go on."""
    def list(self) -> builtins.list[Backup]:
        """Return the backups in `backups.directory` and the copies from before upgrades."""
    def verify(
        self,
        path: Path | str,
        passphrase: AnyText | None = None,
        *,
        progress: OnProgress | None = None,
    ) -> BackupReport:
        """Read all of a backup, open its database in a temporary place, and check both."""

class SyncBlocks:
    """Blocks: labelled documents that agents always see, or see when they need them."""

    def list(self, agent: OptionalAgent = None) -> builtins.list[VisibleBlock]:
        """Return the blocks that an agent sees; without one, all blocks there are."""
    def get(self, agent: OptionalAgent, label: str) -> VisibleBlock:
        """Return a block that an agent sees by its label; `owner/label` for one of another's."""
    def create(
        self,
        agent: OptionalAgent,
        label: str,
        content: str = "",
        *,
        kind: BlockType = ...,
        schema: Schema | Mapping[str, Any] | str = "text",
        description: str = "",
        limit: int = ...,
        permission: Permission = ...,
        audience: str | None = None,
        pinned: bool = False,
        shared_with: Mapping[str, Permission] | None = None,
        existing: bool = False,
        by: str = "api",
    ) -> Block:
        """Create a block; with `existing`, return the block of that label if it exists."""
    def write(
        self,
        agent: OptionalAgent,
        label: str,
        write: BlockWrite,
        *,
        reason: str = "",
        by: str = "api",
        version: int | None = None,
    ) -> Block:
        """Edit, describe, share, undo or retire a block, as its owner."""
    def editable(self, agent: OptionalAgent, label: str) -> tuple[Block, str]:
        """Return a block and the form that a person edits: its text, or JSON for other schemas."""
    def shares(self, agent: OptionalAgent, label: str) -> dict[str, Permission]:
        """Return the agents that a block is shared with, by name, and what each may do to it."""
    def history(
        self, agent: OptionalAgent, label: str, *, limit: int = 50, before: int | None = None
    ) -> builtins.list[EditRecord]:
        """Return the edits of a block, the newest first."""
    def at(
        self,
        agent: OptionalAgent,
        label: str,
        *,
        version: int | None = None,
        moment: datetime | None = None,
    ) -> builtins.list[Line]:
        """Return the lines of a block at a version, or at a moment."""
    def version_at(self, agent: OptionalAgent, label: str, moment: datetime) -> int:
        """Return the version that a block had at a moment; 0: it was not there yet."""
    def diff(self, agent: OptionalAgent, label: str, a: int, b: int | None = None) -> str:
        """Return how a block differs between two versions; without the second, from now."""
    def blame(
        self, agent: OptionalAgent, label: str
    ) -> Sequence[tuple[Line, builtins.list[EditRecord]]]:
        """Return each line of a block with the edits it comes from."""
    def updates(self, agent: OptionalAgent, label: str, since: bytes | None = None) -> bytes:
        """Return the Loro updates of a block, for another replica to merge."""

class SyncConfiguration:
    """The settings of a home, and the file that they come from."""

    def read(self) -> dict[str, Any]:
        """Return the settings in use, as JSON; secrets are left out."""
    def check(self, text: str) -> ConfigCheck:
        """Tell whether a text could be the file, and if not, what is wrong with which line."""
    def reload(self) -> Reload:
        """Read the file again and put in use what can change while the home is open."""

class SyncConstellations:
    """The constellations of a server, for the owner of its own: `home.constellations`."""

    def list(self) -> builtins.list[Constellation]:
        """Return all constellations of the database, by name."""
    def get(self, name: str) -> Constellation:
        """Return a constellation by its name."""
    def ensure(self, name: str, *, by: str = "api") -> Constellation:
        """Return the constellation of a name; create it if there is none."""

class SyncContexts:
    """What models are shown, exactly, and why."""

    def now(self, agent: AgentRecord | str, *, present: Sequence[str] = ...) -> ContextView:
        """Return what a model would see if a message came now, with these persons present."""
    def of_turn(self, turn_id: str, step: int | None = None) -> ContextView:
        """Return what the model was shown in a step of a turn; without a step, in its last one."""
    def compact(self, agent: AgentRecord | str) -> CompactionResult:
        """Compact the older half of a conversation into a summary; the originals stay."""
    def restart(self, agent: AgentRecord | str) -> Summary:
        """Begin the actor's own conversation with an agent anew; what the agent remembers stays."""

class SyncGrants:
    """Grants: permissions for more than one call."""

    def list(
        self, agent: AgentRecord | str | None = None, *, everything: bool = False
    ) -> builtins.list[Grant]:
        """Return the grants that count, or with `everything` all there ever were; oldest first."""
    def give(
        self,
        tool: str,
        *,
        agent: AgentRecord | str | None,
        pattern: Mapping[str, str] | None = None,
        until: datetime | None = None,
        uses: int | None = None,
        amount: float | None = None,
        per_day: int | None = None,
    ) -> Grant:
        """Let an agent call a tool without asking each time."""
    def revoke(self, grant_id: str) -> Grant:
        """Take a grant back; from the next call on the agent asks again."""

class SyncGroup(GroupRecord):
    """A group of an open home: its record and its verbs."""

    def ask(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Outcome:
        """Send a message and wait for the group's answer; `Groups.send` has the options."""
    def send(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Receipt:
        """Send a message. On return it is stored and will be answered exactly once."""
    def stream(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Generator[Signal]:
        """Send a message and yield the signals of the group's turn, `ended` or `parked` last."""
    def transcript(self, *, limit: int = 50, before: str | None = None) -> list[GroupEvent]:
        """Return what was said and decided in this group."""
    def edit(
        self,
        *,
        new_name: str | None = None,
        pattern: str | None = None,
        options: Mapping[str, Any] | None = None,
        description: str | None = None,
        version: int | None = None,
    ) -> SyncGroup:
        """Change this group and return it as it is then; `Groups.edit` has the options."""
    def add_member(
        self,
        agent: AgentRecord | str,
        *,
        role: str | None = None,
        domain: str | None = None,
        capabilities: Sequence[str] | None = None,
        weight: float | None = None,
        active: bool | None = None,
    ) -> SyncGroup:
        """Add an agent, or change what it is here; `Groups.add_member` has the options."""
    def remove_member(self, agent: AgentRecord | str) -> SyncGroup:
        """Take an agent out of this group."""
    def delete(self) -> None:
        """Take this group out of service. Its journal stays and can be read."""

class SyncGroups:
    """The groups of a home: made, talked to, changed and taken out of service."""

    def __getitem__(self, name: str) -> SyncNamedGroup:
        """Return a group by its name or id; nothing is read yet."""
    __iter__: None
    def list(self) -> builtins.list[SyncGroup]:
        """Return all groups by name, with their members."""
    def get(self, name: str) -> SyncGroup:
        """Return a group by name or id."""
    def patterns(self) -> builtins.list[str]:
        """Return the names of all patterns, those of plugins included."""
    def create(
        self,
        name: str,
        *,
        pattern: str = "round_robin",
        options: Mapping[str, Any] | None = None,
        description: str = "",
        members: Sequence[str] = ...,
    ) -> SyncGroup:
        """Create a group; no agent and no other group may have its name."""
    def ensure(
        self,
        name: str,
        *,
        pattern: str = "round_robin",
        options: Mapping[str, Any] | None = None,
        description: str = "",
        members: Sequence[str] = ...,
    ) -> SyncGroup:
        """Return the group of that name; create it with these options if it does not exist."""
    def edit(
        self,
        group: GroupRecord | str,
        *,
        new_name: str | None = None,
        pattern: str | None = None,
        options: Mapping[str, Any] | None = None,
        description: str | None = None,
        version: int | None = None,
    ) -> SyncGroup:
        """Change a group from its next turn on; options that you leave out stay unchanged."""
    def delete(self, group: GroupRecord | str, *, version: int | None = None) -> SyncGroup:
        """Take a group out of service. Its members stay, and its journal can be read."""
    def add_member(
        self,
        group: GroupRecord | str,
        agent: AgentRecord | str,
        *,
        role: str | None = None,
        domain: str | None = None,
        capabilities: Sequence[str] | None = None,
        weight: float | None = None,
        active: bool | None = None,
    ) -> SyncGroup:
        """Add an agent to a group, or change what it is there."""
    def remove_member(self, group: GroupRecord | str, agent: AgentRecord | str) -> SyncGroup:
        """Take an agent out of a group; what it is at work on comes back all the same."""
    def send(
        self,
        group: GroupRecord | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Receipt:
        """Hand in a message to a group. On return it is stored and will be answered exactly once."""
    def ask(
        self,
        group: GroupRecord | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Outcome:
        """Hand in a message and wait for how the group's turn ends."""
    def stream(
        self,
        group: GroupRecord | str,
        text: AnyText,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Generator[Signal]:
        """Hand in a message and yield the signals of the group's turn."""
    def watch(self, group: GroupRecord | str, *, after: str | None = None) -> Generator[Signal]:
        """Yield the signals of all turns of a group after the signal `after`, as for an agent."""
    def transcript(
        self, group: GroupRecord | str, *, limit: int = 50, before: str | None = None
    ) -> builtins.list[GroupEvent]:
        """Return what was said and decided in the latest turns of a group, the oldest first."""

class SyncHalts:
    """Halts: stop all agents of a constellation, and let them continue."""

    def current(self) -> Halt | None:
        """Return the halt that stops all turns, or None if there is no halt."""
    def halt(self, reason: str = "") -> Halt:
        """Stop all agents until `resume`; what comes in meanwhile waits. A reason is optional."""
    def resume(self, by: str = "owner") -> Halt:
        """Let all agents continue; return the halt that had stopped them."""

class SyncKeys:
    """Stored keys, such as those of vendors: encrypted at rest, opened when they are needed."""

    def get(self, name: str) -> str | None:
        """Return a key, or None if it is not stored; raise if it cannot be opened."""
    def has(self, name: str) -> bool:
        """Tell whether there is a key of a name, whether or not it can be opened."""
    def resolve(self, text: str) -> str:
        """Return a text with the keys that it names as `secret:NAME` or `{secret:NAME}`."""
    def set(self, name: str, value: str, *, by: str = "api") -> bool:
        """Store a key, encrypted; return whether it took the place of another."""
    def list(self) -> builtins.list[StoredKey]:
        """Return the stored keys by name, without their values."""
    def remove(self, name: str, *, by: str = "api") -> None:
        """Remove a key; this process still redacts its value in all texts."""
    def rotate(self, *, by: str = "api") -> int:
        """Encrypt everything again, with a new data key, and a new master key where possible."""
    def place(self) -> str:
        """Return where the master key is, in words; not the path, unless the machine is theirs."""

class SyncMcp:
    """The MCP servers of a home."""

    def configured(self, name: str) -> McpSettings:
        """Return the settings of a server, with its address or command."""
    def list(self) -> builtins.list[McpServerStatus]:
        """Return the states of all configured servers by name, also of disabled servers."""
    def ask(self, name: str) -> McpServerStatus:
        """Ask a server for its tools now."""
    def login(self, name: str, show: Show, *, port: int | None = None) -> ToolListing:
        """Log in at a server: `show` brings a person to the address, who then comes back here."""
    def forget(self, name: str) -> None:
        """Drop the list of tools and the login of a server."""

class SyncMemory:
    """The memory of agents as a whole."""

    def as_of(
        self, agent: AgentRecord | str, moment: datetime, *, most: int | None = None
    ) -> MemoryAt:
        """Return the memory of an agent at a moment."""
    def written_by(self, turn_id: str) -> TurnWrites:
        """Return all that a turn wrote to memory."""
    def revert_turn(self, turn_id: str, *, reason: str = "", by: str = "api") -> TurnWrites:
        """Undo everything that a turn wrote to memory; later edits stay."""
    def fork(
        self,
        agent: AgentRecord | str,
        target: AgentRecord | str,
        *,
        moment: datetime | None = None,
        by: str = "api",
    ) -> Forked:
        """Give an agent a copy of another's memory, as it is or as it was at a moment."""
    def why(self, ref: str, *, agent: AgentRecord | str | None = None) -> Trace:
        """Return where a memory comes from: a passage, a summary, `label` or `label:line`."""
    def health(self, agent: AgentRecord | str) -> Health:
        """Return the problems of an agent's memory: duplicates, contradictions, junk …."""
    def forget(self, what: Forgetting, *, reason: str = "", by: str = "api") -> ForgetReceipt:
        """Forget something everywhere; the receipt counts the places and never holds the text."""
    def receipts(self) -> list[ForgetReceipt]:
        """Return the receipts of everything that was forgotten, the newest first."""
    def forget_again(self) -> ForgetReceipt | None:
        """Forget again what an older copy of the database brought back; None if it has nothing."""
    def retain(self) -> RetentionResult:
        """Delete everything that is older than the rules of retention allow."""
    def export(
        self, agent: AgentRecord | str, *, participants: Participants = ...
    ) -> dict[str, Any]:
        """Return the part of an agent's memory that those present may see, as a JSON document."""
    def import_(
        self,
        agent: AgentRecord | str,
        document: Mapping[str, Any],
        *,
        dry_run: bool = False,
        by: str = "api",
    ) -> Report:
        """Import a document that `export` made; the report names the parts left out."""

class SyncNamedAgent:
    """An agent by its name or id, `home.agents["aria"]`: each verb looks it up when it is used."""

    def ask(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Outcome:
        """Send a message and wait for the answer; `Agents.send` has the options."""
    def send(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Receipt:
        """Send a message. On return it is stored and will be answered exactly once."""
    def stream(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        schema: Mapping[str, Any] | None = None,
        room: str | None = None,
        present: Sequence[str] = ...,
        client: ClientRequest | None = None,
        repeat_seconds: float | None = None,
        documents: Sequence[AttachedDocument] = ...,
        retry_of: str | None = None,
    ) -> Generator[Signal]:
        """Send a message and yield the signals of its turn, `ended` or `parked` the last."""
    def watch(self, *, after: str | None = None) -> Generator[Signal]:
        """Yield the signals of all turns of this agent."""
    def search(
        self,
        text: str,
        *,
        domains: Sequence[str] = ...,
        speaker: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: Sequence[str] = ...,
        source: str | None = None,
        participants: Participants = ...,
        limit: int = 10,
        offset: int = 0,
        moment: datetime | None = None,
        neighbours: int = 0,
    ) -> SearchResult:
        """Return what this agent remembers of something, the best first."""
    def edit(
        self,
        *,
        new_name: str | None = None,
        model: str | None = None,
        system: str | None = None,
        tools: Sequence[str] | None = None,
        all_tools: bool = False,
        limits: Limits | None = None,
        version: int | None = None,
    ) -> SyncAgent:
        """Change this agent and return it as it is then; `Agents.edit` has the options."""
    def delete(self) -> None:
        """Take this agent out of service. Its journal stays and can be read."""
    def import_messages(self, messages: Sequence[PastMessage | tuple[str, str]]) -> ImportResult:
        """Put a conversation from elsewhere at the end of this agent's past."""
    @property
    def blocks(self) -> SyncAgentBlocks:
        """The blocks that this agent sees: `await agent.blocks["human"].append("Has a cat.")`."""
    @property
    def archive(self) -> SyncAgentArchive:
        """What this agent keeps for later: `await agent.archive.add("The rent is due.")`."""
    @property
    def name(self) -> str: ...
    def get(self) -> SyncAgent:
        """Return the agent as it is now."""

class SyncNamedGroup:
    """A group by its name or id, `home.groups["desk"]`: each verb looks it up when it is used."""

    def ask(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Outcome:
        """Send a message and wait for the group's answer; `Groups.send` has the options."""
    def send(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Receipt:
        """Send a message. On return it is stored and will be answered exactly once."""
    def stream(
        self,
        text: str,
        *,
        channel: str = "api",
        external_id: str | None = None,
        sender: str | None = None,
        reply_to: str | None = None,
        images: Sequence[bytes] = ...,
        room: str | None = None,
        present: Sequence[str] = ...,
        repeat_seconds: float | None = None,
    ) -> Generator[Signal]:
        """Send a message and yield the signals of the group's turn, `ended` or `parked` last."""
    def transcript(self, *, limit: int = 50, before: str | None = None) -> list[GroupEvent]:
        """Return what was said and decided in this group."""
    def edit(
        self,
        *,
        new_name: str | None = None,
        pattern: str | None = None,
        options: Mapping[str, Any] | None = None,
        description: str | None = None,
        version: int | None = None,
    ) -> SyncGroup:
        """Change this group and return it as it is then; `Groups.edit` has the options."""
    def add_member(
        self,
        agent: AgentRecord | str,
        *,
        role: str | None = None,
        domain: str | None = None,
        capabilities: Sequence[str] | None = None,
        weight: float | None = None,
        active: bool | None = None,
    ) -> SyncGroup:
        """Add an agent, or change what it is here; `Groups.add_member` has the options."""
    def remove_member(self, agent: AgentRecord | str) -> SyncGroup:
        """Take an agent out of this group."""
    def delete(self) -> None:
        """Take this group out of service. Its journal stays and can be read."""
    @property
    def name(self) -> str: ...
    def get(self) -> SyncGroup:
        """Return the group as it is now."""

class SyncNotices:
    """What the owner must be told, and is told once."""

    def list(
        self, *, unseen: bool = True, limit: int = 100, after: str | None = None
    ) -> builtins.list[Notice]:
        """Return the notices, which are for nobody but the owner, the oldest first."""
    def mark_seen(self, ids: Sequence[str]) -> None:
        """Note that the owner has seen these; if one of them is not there, none is noted."""

class SyncOutbox:
    """What must go out to channels."""

    def list(
        self, state: str | None = None, *, limit: int = 100, after: str | None = None
    ) -> builtins.list[Delivery]:
        """Return deliveries, the oldest first."""
    def retry(self, key: str) -> None:
        """Try a dead delivery again."""

class SyncPeople:
    """The persons that agents talk to."""

    def list(self) -> builtins.list[Person]:
        """Return everybody who is known, the owner first."""
    def get(self, who: str) -> Person:
        """Return a person by name or id."""
    def create(self, name: str, *, trust: Trust = ..., roles: Sequence[str] = ...) -> Person:
        """Introduce a person."""
    def edit(
        self,
        who: str,
        *,
        name: str | None = None,
        trust: Trust | None = None,
        roles: Sequence[str] | None = None,
        expected: Person | None = None,
    ) -> Person:
        """Change a person: all that is given, or nothing if a part of it cannot be."""
    def rename(self, who: str, name: str) -> Person:
        """Rename a person."""
    def set_trust(self, who: str, trust: Trust) -> Person:
        """Say how far a person is trusted."""
    def set_roles(self, who: str, roles: Sequence[str]) -> Person:
        """Give a person these roles and no others."""
    def link(self, who: str, account: str) -> Person:
        """Link an account, as `channel:sender`, to a person."""
    def unlink(self, account: str) -> None:
        """Unlink an account, as `channel:sender`, from its person."""
    def merge(self, remaining: str, merged: str) -> Person:
        """Make one person of two."""
    def rooms(self) -> builtins.list[Room]:
        """Return the rooms of channels and who is known to be in each, by name."""
    def room(self, name: str) -> Room:
        """Return a room by its name, as `channel:room`."""
    def leave_room(self, room: str, who: str) -> None:
        """Note that somebody has left a room: from now on they do not see what is said there."""
    def participants(self, present: Sequence[str], room: str | None = None) -> Participants:
        """Return participants by their names or ids."""
    def audience(self, text: str) -> Audience:
        """Return the audience that a text means, in which persons may go by their names."""

class SyncRules:
    """Rules for the tools of agents: told to the model, and enforced."""

    def list(self, agent: AgentRecord | str) -> builtins.list[Rule]:
        """Return the rules of an agent, in the order in which they were given."""
    def add(self, agent: AgentRecord | str, *rules: Form) -> builtins.list[Rule]:
        """Give an agent more rules; they count from its next turn on."""
    def set(self, agent: AgentRecord | str, rules: Iterable[Form]) -> builtins.list[Rule]:
        """Replace the rules of an agent."""
    def remove(self, agent: AgentRecord | str, rule: Rule | int) -> Rule:
        """Take a rule from an agent: the rule itself, or its number in the list, from 1 on."""

class SyncSchedules:
    """Messages that agents get at a later time."""

    def list(self, agent: AgentRecord | str | None = None) -> builtins.list[Schedule]:
        """Return the schedules of an agent, or without one of all agents, the next one first."""
    def add(
        self,
        agent: AgentRecord | str,
        when: str | datetime,
        text: str,
        *,
        quiet: str | None = None,
        by: str = "api",
    ) -> Schedule:
        """Send an agent a message later, once or by a rule."""
    def cancel(self, schedule_id: str, *, by: str = "api") -> Schedule:
        """Take a schedule back, and return it as it was."""

class SyncSearch:
    """Search over all that agents remember: `await home.search("aria", "bicycle")`."""

    def __call__(
        self,
        agent: AgentRecord | str | None,
        text: AnyText,
        *,
        domains: Sequence[str] = ...,
        speaker: str | None = None,
        role: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        tags: Sequence[str] = ...,
        source: str | None = None,
        participants: Participants = ...,
        limit: int = 10,
        offset: int = 0,
        moment: datetime | None = None,
        neighbours: int = 0,
    ) -> SearchResult:
        """Return what memory has on a query, the best first; any text is a query."""
    def catch_up(self) -> None:
        """Put all texts into the index and encode them now, not in the background."""
    def progress(self) -> tuple[int, int]:
        """Return how many of the indexed texts are encoded, and how many there are."""
    def check(self) -> str | None:
        """Ask the encoder for a vector; return the problem, or None."""

class SyncSources:
    """Folders of documents, read into passages, read again when a file changes."""

    def add(
        self,
        name: str,
        path: Path | str,
        *,
        agents: Sequence[AgentRecord | str] = ...,
        include: Sequence[str] = ...,
        exclude: Sequence[str] = ...,
        audience: str = "owner",
    ) -> DocumentSource:
        """Make a source of a folder of the machine, or of one file; `sync` reads it."""
    def list(self) -> builtins.list[SourceState]:
        """Return all sources and how they stand."""
    def get(self, name: str) -> DocumentSource:
        """Return a source by its name."""
    def documents(
        self, name: str, *, after: str = "", limit: int = 200
    ) -> Sequence[SourceDocument]:
        """Return the documents of a source by path, a page of them."""
    def sync(self, name: str, *, progress: Callable[[Progress], None] | None = None) -> SyncResult:
        """Read the new and changed documents of a source; an interrupted run continues."""
    def upload(
        self,
        name: str,
        file: str,
        content: bytes | AsyncIterable[bytes],
        *,
        audience: str = "owner",
        most: int = ...,
    ) -> SyncResult:
        """Put a file into a source and read it; a source of that name is made if there is none."""
    def pause(self, name: str, *, paused: bool = True) -> None:
        """Pause a source: its documents can still be searched, and no new ones are read."""
    def resume(self, name: str) -> None:
        """Let a source that rested be read again."""
    def remove(self, name: str) -> None:
        """Take a source away with all that was read from it; the files stay."""
    def attach(self, name: str, agent: AgentRecord | str) -> str:
        """Let an agent search a source, or the supervisor of a group; return the agent's name."""
    def detach(self, name: str, agent: AgentRecord | str) -> str:
        """Let an agent, or the supervisor of a group, search a source no longer."""

class SyncSpendingReports:
    """What models cost, and how much of each cap is used."""

    def report(self, days: int = 30, *, agent: AgentRecord | str | None = None) -> Spend:
        """Return the spending of the last days, including today, and the state of the caps."""
    def caps(self) -> list[Standing]:
        """Return how much of each cap is used in the day or the month that it runs for."""

class SyncTokens:
    """Tokens for the HTTP API."""

    def create(
        self,
        name: str,
        *,
        role: str = ...,
        scopes: Sequence[str] = ...,
        agents: Sequence[AgentRecord | str] = ...,
        person: str | None = None,
        expires_at: datetime | None = None,
        constellation: str | None = None,
        by: str = "api",
    ) -> NewToken:
        """Make a token; its secret is returned here and nowhere else."""
    def list(self, *, everything: bool = False) -> builtins.list[AccessToken]:
        """Return the tokens by name; with `everything`, also those that were revoked."""
    def get(self, token: str) -> AccessToken:
        """Return a token by its name or id."""
    def revoke(self, token: str, *, by: str = "api") -> AccessToken:
        """Revoke a token by its name or id: from now on it is not valid."""
    def current(self) -> AccessToken:
        """Return the token that the caller came with."""
    def revoke_current(self) -> AccessToken:
        """Revoke the token that the caller came with."""

class SyncTools:
    """The tools that were registered: `await home.tools.add(…)`."""

    def add(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        *,
        python: str | None = None,
        http: HttpCall | None = None,
        effects: Sequence[Mapping[str, Any]] | None = None,
        trust: str = "tool",
        retry_safety: str = "unknown",
        ask: bool = False,
        timeout: float = 30.0,
        audience: str = ...,
        by: str = "owner",
    ) -> RegisteredTool:
        """Register a tool, or a new version of one, and offer it to agents at once."""
    def list(self) -> builtins.list[RegisteredTool]:
        """Return the registered tools."""
    def offered(self) -> builtins.list[dict[str, Any]]:
        """Return all tools as models see them, and what a crash in the middle of a call means."""
    def versions(self, name: str) -> builtins.list[RegisteredTool]:
        """Return all versions of a registered tool, the newest first."""
    def remove(self, name: str) -> None:
        """Offer a registered tool no more; its versions are kept."""
    def test(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Run a registered tool once with some arguments, as a call of an agent would."""
    def sandbox(self) -> SandboxStatus:
        """Return the name of the sandbox, and its limits."""

class SyncTurns:
    """The turns of all agents: how they stand, how they went, and running them again."""

    def list(
        self, agent: AgentRecord | str | None = None, *, limit: int = 20, before: str | None = None
    ) -> builtins.list[TurnRecord]:
        """Return the latest turns, newest first."""
    def count(self, agent: AgentRecord | str) -> int:
        """Return how many turns an agent has had that the actor may see."""
    def cost(self, turn_id: str) -> int:
        """Return what the model calls of a turn have cost, in nano-dollars."""
    def get(self, turn_id: str) -> tuple[TurnRecord, builtins.list[Entry]]:
        """Return a turn with its entries."""
    def outcome(self, turn_id: str) -> Outcome:
        """Return how a turn stands."""
    def wait(self, receipt: Receipt) -> Outcome:
        """Wait for how the turn of an accepted message ends."""
    def follow(self, turn_id: str, *, after: str | None = None) -> Generator[Signal]:
        """Yield the signals of a turn from now on, `ended` or `parked` the last."""
    def parts(self, turn_id: str) -> TurnParts:
        """Return what whoever asked is told of a turn: its words, its calls for them, its state."""
    def find_messages(
        self, agent: AgentRecord | str, messages: Sequence[bytes]
    ) -> dict[bytes, builtins.list[str]]:
        """Return the turns of an agent that have exactly these messages, the latest first."""
    def submit_results(self, turn_id: str, results: Mapping[str, str]) -> Receipt:
        """Give a turn the results of the calls that it left to the program that asked."""
    def stream_results(self, turn_id: str, results: Mapping[str, str]) -> Generator[Signal]:
        """Give a turn such results and yield its signals as it goes on."""
    def stop(self, turn_id: str, reason: str = "Stopped.") -> None:
        """End a turn that is under way, wherever it runs, or that waits for others to end."""
    def retry(self, turn_id: str) -> Receipt:
        """Hand in the message of a turn once more that ended without an answer, as it came then."""
    def replay(self, turn_id: str, *, cassette: Path | str | None = None) -> Replay:
        """Run a recorded turn again, offline, and tell whether it comes out the same."""
    def fork(
        self,
        turn_id: str,
        *,
        name: str | None = None,
        model: str | None = None,
        system: str | None = None,
    ) -> tuple[SyncAgent, Outcome]:
        """Let a copy of the agent, from before a turn, answer the same message again."""
    def waiting(self) -> builtins.list[InboxItem]:
        """Return accepted messages whose turns have not begun."""
    def unfinished(self) -> builtins.list[str]:
        """Return the ids of turns that were accepted and have not ended: waiting or interrupted."""

class SyncUsers:
    """Users of the web page: the owner and persons who have a password."""

    def list(self) -> builtins.list[User]:
        """Return everybody who has a password, the owner first."""
    def set_password(self, who: str, password: str, *, by: str = "api") -> User:
        """Set the password of the owner or of a person; their sessions end."""
    def remove(self, who: str, *, by: str = "api") -> None:
        """Take the password of a user away; they cannot log in any more, and their sessions end."""
    def change_password(self, old: str, new: str) -> User:
        """Change the caller's own password; all their sessions end."""
    def current(self) -> Caller:
        """Return who the caller is, and what they came with."""
    def log_out(self) -> None:
        """End the session of the web page that the caller came with."""
    def log_out_everywhere(self) -> int:
        """End all sessions of the caller; return how many there were."""
