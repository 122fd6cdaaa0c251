"""`python -m bench.decisions`: decisions a core makes, with 200 policies and 1,000 grants."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from asterism.permissions import (
    Act,
    Actor,
    Authority,
    CallRequest,
    GrantSet,
    Policies,
    Policy,
    Resource,
    Ruling,
    Situation,
    decide,
)
from asterism.types.agents import Trust
from asterism.types.permissions import Grant, ToolEffect, effects_of

POLICIES, GRANTS, CALLS, LEAST = 200, 1_000, 50_000, 50_000


def situation() -> Situation:
    """Return policies of every kind, half of them about all tools, and grants of single calls."""
    policies = [
        Policy(
            f"policy {number}",
            Ruling(("allow", "ask", "deny")[number % 3]),
            tools=(f"tool{number % 50}",) if number % 2 else (),
            effects=("send",),
            recipients=(f"*@host{number}.example",),
            amount_up_to=float(number) if number % 5 == 0 else None,
        )
        for number in range(POLICIES)
    ]
    grants = [
        Grant(f"grant_{number}", "home", f"tool{number % 50}", pattern={"to": f"x{number}@y.org"})
        for number in range(GRANTS)
    ]
    return Situation(Authority(policies=Policies(policies)), GrantSet(grants), now=1)


def wanted(number: int) -> CallRequest:
    """Return a call: some are granted, some have a policy, some have neither."""
    recipient = (f"x{number % GRANTS}@y.org", f"a@host{number // 3 % 300}.example", "b@z.org")[
        number % 3
    ]
    arguments = {"to": recipient, "text": "Hello."}
    effects = ToolEffect("send", recipients="to", content="text")
    return CallRequest("aria", f"tool{number % 50}", arguments, effects_of(effects, arguments))


def main() -> int:
    """Print the rate beside that of an empty function; 1 if it is below the goal."""
    now = situation()
    actor = Actor("agent", "agent_1", "aria", Trust.OWNER)
    asked = [wanted(number) for number in range(1_000)]
    resources = [Resource("tool", one.tool, wanted=one) for one in asked]
    found = Counter(type(decide(actor, Act.CALL, one, now)).__name__ for one in resources)

    def spent(calls: int, what: Callable[..., object]) -> float:
        begun = time.process_time()
        for number in range(calls):
            what(actor, Act.CALL, resources[number % 1_000], now)
        return time.process_time() - begun

    def nothing(*_: object) -> None:
        return None

    floor = min(spent(CALLS, nothing) for _ in range(3))
    cost = min(spent(CALLS, decide) for _ in range(3))
    rate = CALLS / cost
    print(f"verdicts of 1,000 calls: {dict(found)}")
    print(
        f"{rate:,.0f} decisions/s a core (goal {LEAST:,}); {cost / floor:.0f} x an empty function"
    )
    return 0 if rate >= LEAST else 1


if __name__ == "__main__":
    raise SystemExit(main())
