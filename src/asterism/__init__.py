"""asterism: a self-hosted home for long-lived AI agents."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.errors import AsterismError, NotAllowed, ToolError
    from asterism.gate import Gate
    from asterism.tools.tool import NOT_HAPPENED, Decision, Tool, ToolContext, tool
    from asterism.types.agents import Agent, Limits
    from asterism.types.approvals import Approval, Grant
    from asterism.types.effects import Effect, ToolEffect
    from asterism.types.turns import Delivery, Outcome, Receipt, RetrySafety, Signal, TurnState

__all__ = [
    "NOT_HAPPENED",
    "Agent",
    "Approval",
    "Asterism",
    "AsterismError",
    "Decision",
    "Delivery",
    "Effect",
    "Gate",
    "Grant",
    "Limits",
    "NotAllowed",
    "Outcome",
    "Receipt",
    "RetrySafety",
    "Signal",
    "Tool",
    "ToolContext",
    "ToolEffect",
    "ToolError",
    "TurnState",
    "tool",
]
__version__ = "0.1.0"

_HOMES = {
    "asterism.app": {"Asterism"},
    "asterism.errors": {"AsterismError", "NotAllowed", "ToolError"},
    "asterism.gate": {"Gate"},
    "asterism.tools.tool": {"NOT_HAPPENED", "Decision", "Tool", "ToolContext", "tool"},
    "asterism.types.agents": {"Agent", "Limits"},
    "asterism.types.effects": {"Effect", "ToolEffect"},
    "asterism.types.approvals": {"Approval", "Grant"},
    "asterism.types.turns": {
        "Delivery",
        "Outcome",
        "Receipt",
        "RetrySafety",
        "Signal",
        "TurnState",
    },
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that the command line starts at once."""
    for module, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
