"""asterism: a self-hosted home for long-lived AI agents."""

from importlib import import_module
from typing import TYPE_CHECKING

from asterism.version import __version__ as __version__

if TYPE_CHECKING:
    from asterism.app.agents import Agent, NamedAgent
    from asterism.app.backups import verify_backup
    from asterism.app.blocks import AgentBlock
    from asterism.app.groups import Group, NamedGroup
    from asterism.app.home import Asterism, Home
    from asterism.app.restore import restore_backup
    from asterism.app.templates import TemplateItem, TemplateReport, apply_template
    from asterism.app.turns import Approval
    from asterism.errors import (
        AsterismError,
        BudgetReached,
        ConfigError,
        Conflict,
        InvalidInput,
        ModelError,
        NotAllowed,
        NotFound,
        StoreError,
        ToolError,
    )
    from asterism.gate import Allow, Ask, Gate
    from asterism.models.cassette import settings_to_play
    from asterism.permissions import Actor
    from asterism.ports import (
        Channel,
        Emit,
        Judgement,
        JudgementKind,
        Model,
        ModelRequest,
        Pattern,
        ProcessorCall,
        ProcessorNote,
        TurnView,
    )
    from asterism.telemetry.logs import JsonLines, TurnFilter
    from asterism.telemetry.redaction import RedactingStream, add_secret
    from asterism.tools.tool import NOT_HAPPENED, Decision, NothingFound, Tool, ToolContext, tool
    from asterism.types.agents import (
        Account,
        AgentRecord,
        Audience,
        Limits,
        Participants,
        Person,
        Rule,
        RuleKind,
        Schedule,
        Trust,
    )
    from asterism.types.groups import (
        AskedQuestion,
        GroupActivity,
        GroupDecision,
        GroupEvent,
        GroupMember,
        GroupRecord,
        GroupState,
        MemberQuestion,
        Role,
    )
    from asterism.types.memory import (
        Append,
        Block,
        BlockType,
        Describe,
        Passage,
        Patch,
        Permission,
        Replace,
        Restore,
        SetField,
        SetText,
        Share,
        Undo,
    )
    from asterism.types.permissions import Effect, Grant, ToolEffect
    from asterism.types.search import Hit, SearchResult
    from asterism.types.spending import Spend
    from asterism.types.turns import (
        AttachedDocument,
        Call,
        ClientRequest,
        Delivery,
        Message,
        MessageOrigin,
        Notice,
        Outcome,
        PastMessage,
        Receipt,
        Reply,
        RetrySafety,
        Signal,
        TurnRecord,
        TurnState,
        Usage,
    )

_MODULES = {
    "app.agents": "Agent NamedAgent",
    "app.backups": "verify_backup",
    "app.blocks": "AgentBlock",
    "app.groups": "Group NamedGroup",
    "app.home": "Asterism Home",
    "app.restore": "restore_backup",
    "app.templates": "TemplateItem TemplateReport apply_template",
    "app.turns": "Approval",
    "errors": "AsterismError BudgetReached ConfigError Conflict InvalidInput ModelError NotAllowed"
    " NotFound StoreError ToolError",
    "gate": "Allow Ask Gate",
    "models.cassette": "settings_to_play",
    "permissions": "Actor",
    "ports": "Channel Emit Judgement JudgementKind Model ModelRequest Pattern ProcessorCall"
    " ProcessorNote TurnView",
    "telemetry.logs": "JsonLines TurnFilter",
    "telemetry.redaction": "RedactingStream add_secret",
    "tools.tool": "NOT_HAPPENED Decision NothingFound Tool ToolContext tool",
    "types.agents": "Account AgentRecord Audience Limits Participants Person Rule RuleKind"
    " Schedule Trust",
    "types.groups": "AskedQuestion GroupActivity GroupDecision GroupEvent GroupMember GroupRecord"
    " GroupState MemberQuestion Role",
    "types.memory": "Append Block BlockType Describe Passage Patch Permission Replace Restore"
    " SetField SetText Share Undo",
    "types.permissions": "Effect Grant ToolEffect",
    "types.search": "Hit SearchResult",
    "types.spending": "Spend",
    "types.turns": "AttachedDocument Call ClientRequest Delivery Message MessageOrigin Notice"
    " Outcome PastMessage Receipt Reply RetrySafety Signal TurnRecord TurnState Usage",
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
    "NOT_HAPPENED",
    "Account",
    "Actor",
    "Agent",
    "AgentBlock",
    "AgentRecord",
    "Allow",
    "Append",
    "Approval",
    "Ask",
    "AskedQuestion",
    "Asterism",
    "AsterismError",
    "AttachedDocument",
    "Audience",
    "Block",
    "BlockType",
    "BudgetReached",
    "Call",
    "Channel",
    "ClientRequest",
    "ConfigError",
    "Conflict",
    "Decision",
    "Delivery",
    "Describe",
    "Effect",
    "Emit",
    "Gate",
    "Grant",
    "Group",
    "GroupActivity",
    "GroupDecision",
    "GroupEvent",
    "GroupMember",
    "GroupRecord",
    "GroupState",
    "Hit",
    "Home",
    "InvalidInput",
    "JsonLines",
    "Judgement",
    "JudgementKind",
    "Limits",
    "MemberQuestion",
    "Message",
    "MessageOrigin",
    "Model",
    "ModelError",
    "ModelRequest",
    "NamedAgent",
    "NamedGroup",
    "NotAllowed",
    "NotFound",
    "NothingFound",
    "Notice",
    "Outcome",
    "Participants",
    "Passage",
    "PastMessage",
    "Patch",
    "Pattern",
    "Permission",
    "Person",
    "ProcessorCall",
    "ProcessorNote",
    "Receipt",
    "RedactingStream",
    "Replace",
    "Reply",
    "Restore",
    "RetrySafety",
    "Role",
    "Rule",
    "RuleKind",
    "Schedule",
    "SearchResult",
    "SetField",
    "SetText",
    "Share",
    "Signal",
    "Spend",
    "StoreError",
    "TemplateItem",
    "TemplateReport",
    "Tool",
    "ToolContext",
    "ToolEffect",
    "ToolError",
    "Trust",
    "TurnFilter",
    "TurnRecord",
    "TurnState",
    "TurnView",
    "Undo",
    "Usage",
    "add_secret",
    "apply_template",
    "restore_backup",
    "settings_to_play",
    "tool",
    "verify_backup",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that the command line starts at once."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
