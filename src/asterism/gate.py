"""The gate for programs of others: run a sequence of calls through it, without a home or a store.

It is the code that judges the calls of agents, so that what an outside suite measures here is what
an agent gets.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from asterism.config.authorizations import AuthorizationSettings, PolicySettings, quota_of
from asterism.errors import ConfigError, InvalidInput
from asterism.permissions import (
    Act,
    Actor,
    Allow,
    Ask,
    Authority,
    Deny,
    Policies,
    Policy,
    Quota,
    Resource,
    Ruling,
    Situation,
    Verdict,
    Wanted,
    decide,
)
from asterism.permissions.provenance import vouch
from asterism.permissions.readings import Readings
from asterism.types.deeds import Declared, Deed, Does, Doubt, deeds_of
from asterism.types.people import Tier

__all__ = ["Allow", "Ask", "Deed", "Deny", "Does", "Gate", "Verdict", "policies_of"]


class Gate:
    """Judges the calls of one turn, one after the other.

    Give it what the owner asked for and what the tools do; then ask `judge` before each call, and
    tell `result` what came of it.
    """

    def __init__(
        self,
        request: str,
        *,
        tools: Mapping[str, Declared | None],
        policies: str = "",
        trusted: Iterable[str] = (),
        agent: str = "agent",
    ) -> None:
        """Open a turn.

        Args:
            request: What the owner said.
            tools: What calls of each tool do. A tool that is missing here might do anything.
            policies: The authorizations, as TOML.
            trusted: Other texts that vouch for names and numbers, such as what the owner said
                earlier or what the agent remembers of them.
            agent: The agent's name, as policies know it.
        """
        self._tools = dict(tools)
        self._agent = agent
        self._authority = Authority(policies=_read_policies(policies))
        self._used: dict[str, float] = {}
        self.readings = Readings()
        for text in trusted:
            self.readings.trust(text)
        self.readings.trust(request, asks=True)

    def say(self, request: str) -> None:
        """Take in another message of the owner's."""
        self.readings.trust(request, asks=True)

    def judge(self, tool: str, arguments: Mapping[str, Any]) -> Verdict:
        """Allow a call, ask a person for it, or deny it, with the reason; nothing is run."""
        wanted = Wanted(
            self._agent,
            tool,
            arguments,
            deeds_of(self._tools.get(tool), arguments),
            operation=str(arguments.get("operation", "")),
            tier=self.readings.tier,
        )
        situation = Situation(authority=self._authority, doubt=self._doubt, used=self._used)
        actor = Actor("agent", self._agent, self._agent, wanted.tier)
        verdict = decide(actor, Act.CALL, Resource("tool", tool, wanted=wanted), situation)
        if isinstance(verdict, Allow) and verdict.policy:
            self._count(verdict.policy, wanted)
        return verdict

    def result(
        self, tool: str, arguments: Mapping[str, Any], value: Any, tier: Tier | str = Tier.TOOL
    ) -> None:
        """Take in what a call brought back: text, JSON-like values, dataclasses, pydantic models.

        Give values rather than a rendering of them: a field of a record is told from words in a
        text. `tier` says who wrote it: `tool` for the owner's own systems, `document`, `web`.
        """
        try:
            rank = Tier(tier)
        except ValueError:
            known = ", ".join(Tier)
            raise InvalidInput(f"There is no tier {tier!r}; give one of {known}.") from None
        self.readings.read(tool, value, tier=rank, arguments=arguments)

    def _doubt(self, deeds: tuple[Deed, ...]) -> Doubt | None:
        return vouch(self.readings, deeds)

    def _count(self, policy: str, wanted: Wanted) -> None:
        quota = next(
            (one.quota for one in self._authority.policies.all if one.name == policy), None
        )
        if quota is not None:
            amounts = sum(one.amount or 0.0 for one in wanted.deeds)
            this = amounts if quota.of == "amount" else 1.0
            self._used[policy] = self._used.get(policy, 0.0) + this


def policies_of(settings: AuthorizationSettings) -> Policies:
    """Return the policies of an authorizations document."""
    return Policies(_policy(one) for one in settings.policy)


def _policy(settings: PolicySettings) -> Policy:
    quota = None
    words = settings.quota or settings.amount_quota
    if words:
        most, span = quota_of(words)
        quota = Quota(most, span, "calls" if settings.quota else "amount", words)
    return Policy(
        settings.name,
        Ruling(settings.verdict),
        agents=settings.agents,
        people=settings.people,
        tools=settings.tools,
        operations=settings.operations,
        deeds=settings.deeds,
        arguments=settings.arguments,
        recipients=settings.recipients,
        hosts=settings.hosts,
        paths=settings.paths,
        things=settings.things,
        amount_up_to=settings.amount_up_to,
        amount_above=settings.amount_above,
        tiers=tuple(Tier(one) for one in settings.tiers),
        verbs=settings.verbs,
        reviewers=settings.reviewers,
        quota=quota,
        reason=settings.reason,
    )


def _read_policies(text: str) -> Policies:
    try:
        return policies_of(AuthorizationSettings.model_validate(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The policies are no TOML: {error}. Nothing was judged.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(one) for one in first["loc"])
        raise ConfigError(
            f"The policies have a problem at {place}: {first['msg']}. Nothing was judged."
        ) from None
