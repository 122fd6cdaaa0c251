"""Quotas at rest: which calls a policy has let pass, and what they were worth."""

from __future__ import annotations

from dataclasses import dataclass

from asterism.store.database import Connection

_KEPT = 366 * 86_400_000


@dataclass(frozen=True, slots=True)
class Use:
    """A call that a policy with a quota has let pass."""

    agent_id: str
    policy: str
    at: int
    amount: float


async def used(tx: Connection, agent_id: str, policy: str, since: int, of: str) -> float:
    """Return how much of a quota has gone by since a moment: calls, or the sum of amounts."""
    what = "SUM(amount)" if of == "amount" else "COUNT(*)"
    row = await tx.one(
        f"SELECT {what} FROM quota_uses WHERE agent_id = ? AND policy = ? AND at > ?",
        (agent_id, policy, since),
    )
    return float(row[0] or 0) if row else 0.0


async def put(tx: Connection, use: Use) -> None:
    """Count a call; what no quota can ask for any more is let go."""
    await tx.run(
        "INSERT INTO quota_uses (agent_id, policy, at, amount) VALUES (?, ?, ?, ?)",
        (use.agent_id, use.policy, use.at, use.amount),
    )
    await tx.run(
        "DELETE FROM quota_uses WHERE agent_id = ? AND policy = ? AND at < ?",
        (use.agent_id, use.policy, use.at - _KEPT),
    )
