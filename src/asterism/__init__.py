"""asterism: a self-hosted home for long-lived AI agents."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asterism.app import Asterism
    from asterism.errors import AsterismError, ToolError
    from asterism.tools.tool import NOT_HAPPENED, Decision, Tool, ToolContext, tool
    from asterism.types.agents import Agent, Limits
    from asterism.types.messages import Delivery, Receipt
    from asterism.types.turns import Effect, Outcome, Signal, TurnState

__all__ = [
    "NOT_HAPPENED",
    "Agent",
    "Asterism",
    "AsterismError",
    "Decision",
    "Delivery",
    "Effect",
    "Limits",
    "Outcome",
    "Receipt",
    "Signal",
    "Tool",
    "ToolContext",
    "ToolError",
    "TurnState",
    "tool",
]
__version__ = "0.1.0"

_HOMES = {
    "asterism.app": {"Asterism"},
    "asterism.errors": {"AsterismError", "ToolError"},
    "asterism.tools.tool": {"NOT_HAPPENED", "Decision", "Tool", "ToolContext", "tool"},
    "asterism.types.agents": {"Agent", "Limits"},
    "asterism.types.messages": {"Delivery", "Receipt"},
    "asterism.types.turns": {"Effect", "Outcome", "Signal", "TurnState"},
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that the command line starts at once."""
    for module, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(module), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
