"""Compaction: old turns leave the context, and a summary that can be expanded stands for them."""

from asterism.agents.compaction.digest import facts_leaving, rule_digest
from asterism.agents.compaction.folding import Folding, Options, Told, Weights, choose
from asterism.agents.compaction.wording import (
    ask_for_summary,
    chunks,
    summary_from,
    summary_message,
)
from asterism.types.summaries import Strategy

__all__ = [
    "Folding",
    "Options",
    "Strategy",
    "Told",
    "Weights",
    "ask_for_summary",
    "choose",
    "chunks",
    "facts_leaving",
    "rule_digest",
    "summary_from",
    "summary_message",
]
