"""The gate for other programs: judge a sequence of calls, without a home or a store.

It uses the same code that judges the calls of agents, so an outside test suite measures what an
agent gets.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from asterism.config.documents import AuthorizationSettings, PolicySettings, parse_quota
from asterism.config.load import read_document
from asterism.errors import ConfigError, InvalidInput
from asterism.permissions import (
    Act,
    Actor,
    Allow,
    Ask,
    Authority,
    CallRequest,
    Deny,
    Policies,
    Policy,
    Quota,
    Resource,
    Ruling,
    Situation,
    Verdict,
    decide,
)
from asterism.permissions.intent import (
    Intent,
    LookupValue,
    Reader,
    TrustedText,
    read_intents,
    read_literally,
    verify_intents,
)
from asterism.permissions.provenance import Evidence, judge, reading_of
from asterism.types.agents import Trust
from asterism.types.permissions import (
    Declared,
    Doubt,
    Effect,
    ToolEffect,
    amount_of,
    effects_of,
    results_of,
)

_log = logging.getLogger(__name__)

__all__ = [
    "Allow",
    "Ask",
    "Deny",
    "Effect",
    "Gate",
    "Intent",
    "LookupValue",
    "Reader",
    "ToolEffect",
    "TrustedText",
    "Verdict",
    "policies_of",
]


class Gate:
    """Judges the calls of one turn, one after the other.

    Pass the owner's request and the effects of the tools. Then call `judge` before each call, and
    pass its result to `result`.
    """

    def __init__(
        self,
        request: str,
        *,
        tools: Mapping[str, Declared | None],
        reader: Reader | None = None,
        weak: bool = False,
        policies: str = "",
        trusted: Iterable[str] = (),
        agent: str = "agent",
    ) -> None:
        """Open a turn.

        Args:
            request: The message of the owner.
            tools: The effects of each tool. A tool that is missing here might do anything.
            reader: Reads the intents of the request, from trusted text alone. None: the literal
                reading, which knows plain imperatives of some languages and else asks a person.
            weak: Whether the reader often makes mistakes, like a small model: then the literal
                reading has to agree before a call is allowed.
            policies: The authorizations, as TOML.
            trusted: Other texts that only the owner can have written, such as earlier messages or
                memories about them.
            agent: The agent's name, for policies.
        """
        self._tools = dict(tools)
        self._agent = agent
        self._authority = Authority(policies=_read_policies(policies))
        self._used: dict[str, float] = {}
        self._reader = reader
        self._weak = weak
        self._intent: tuple[tuple[Intent, ...], ...] | None = None
        sources = {results_of(tool).source or name for name, tool in self._tools.items()}
        text = TrustedText(request, tuple(trusted), sources=tuple(sorted(sources)))
        self.evidence = Evidence(text)

    def say(self, request: str) -> None:
        """Add another message of the owner, which is the request from now on."""
        text = self.evidence.text
        self.evidence.text = replace(text, request=request, earlier=(*text.earlier, text.request))
        self.evidence.requested_at = len(self.evidence.readings)
        self._intent = None

    @property
    def intent(self) -> tuple[Intent, ...]:
        """The intents of the request; it is read at the first use."""
        return self._readings()[0]

    def _readings(self) -> tuple[tuple[Intent, ...], ...]:
        """Return the readings of the request; each of them must cover a call."""
        if self._intent is None:
            text = self.evidence.text
            literal = read_literally(text)
            intents = None if self._reader is None else _intents_from(self._reader, text)
            if intents is None:
                read = [literal]
            else:
                read = [intents]
                if self._weak:
                    read.append(literal)
            self._intent = tuple(verify_intents(intents, text) for intents in read)
        return self._intent

    def judge(self, tool: str, arguments: Mapping[str, Any]) -> Verdict:
        """Allow a call, ask a person, or deny it, with the reason; does not run it."""
        if not isinstance(arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - from other programs
            raise InvalidInput(
                f"The arguments of {tool!r} are {type(arguments).__name__}; pass a mapping of "
                "names to values. Nothing was judged."
            )
        wanted = CallRequest(
            self._agent,
            tool,
            arguments,
            effects_of(self._tools.get(tool), arguments),
            operation=_operation(arguments),
            trust=self.evidence.trust,
        )
        situation = Situation(authority=self._authority, doubt=self._doubt, used=self._used)
        actor = Actor("agent", self._agent, self._agent, wanted.trust)
        verdict = decide(actor, Act.CALL, Resource("tool", tool, wanted=wanted), situation)
        if isinstance(verdict, Allow) and verdict.policy:
            self._count(verdict.policy, wanted)
        return verdict

    def result(
        self, tool: str, arguments: Mapping[str, Any], value: Any, trust: Trust | str = Trust.TOOL
    ) -> None:
        """Add the result of a call: text, JSON-like values, dataclasses, pydantic models.

        Pass values, not a rendered text: declared fields count as more than words in a text.
        `trust` says who wrote it: `tool` for the owner's own systems, where others may have
        written, `document`, `web`, `stranger`; `owner` for content that only the owner writes.
        """
        try:
            rank = Trust(trust)
        except ValueError:
            known = ", ".join(Trust)
            raise InvalidInput(
                f"{trust!r} is not a trust level. Use one of {known}. Nothing was judged."
            ) from None
        declared = self._tools.get(tool)
        self.evidence.read(
            reading_of(
                tool,
                value,
                rank,
                dict(arguments),
                effects_of(declared, arguments),
                results_of(declared),
            )
        )

    def _doubt(self, effects: tuple[Effect, ...]) -> Doubt | None:
        for intents in self._readings():
            doubt = judge(self.evidence, intents, effects)
            if doubt is not None:
                return doubt
        return None

    def _count(self, policy: str, wanted: CallRequest) -> None:
        quota = next(
            (
                candidate.quota
                for candidate in self._authority.policies.all
                if candidate.name == policy
            ),
            None,
        )
        if quota is not None:
            this = amount_of(wanted.effects) if quota.of == "amount" else 1.0
            self._used[policy] = self._used.get(policy, 0.0) + this


def _operation(arguments: Mapping[str, Any]) -> str:
    operation = arguments.get("operation", "")
    return operation if isinstance(operation, str) else ""


def _intents_from(reader: Reader, text: TrustedText) -> tuple[Intent, ...] | None:
    """Return the intents from a reader; None if it fails."""
    try:
        answer = reader(text)
        return read_intents(list(answer))
    except Exception:  # noqa: BLE001 - it is the caller's, and may fail in any way
        _log.exception("the reader of requests failed; using the literal reading")
        return None


def policies_of(settings: AuthorizationSettings) -> Policies:
    """Return the policies of an authorizations document."""
    return Policies(_policy(policy) for policy in settings.policy)


def _policy(settings: PolicySettings) -> Policy:
    quota = None
    words = settings.quota or settings.amount_quota
    if words:
        most, span = parse_quota(words)
        quota = Quota(most, span, "calls" if settings.quota else "amount", words)
    return Policy(
        settings.name,
        Ruling(settings.verdict),
        agents=settings.agents,
        people=settings.people,
        tools=settings.tools,
        operations=settings.operations,
        effects=settings.effects,
        arguments=settings.arguments,
        recipients=settings.recipients,
        hosts=settings.hosts,
        paths=settings.paths,
        things=settings.things,
        amount_up_to=settings.amount_up_to,
        amount_above=settings.amount_above,
        trust_levels=tuple(Trust(level) for level in settings.trust_levels),
        verbs=settings.verbs,
        reviewers=settings.reviewers,
        quota=quota,
        reason=settings.reason,
    )


def _read_policies(text: str) -> Policies:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - from other programs
        raise InvalidInput(
            f"The policies are {type(text).__name__}; pass the text of an authorizations.toml. "
            "Nothing was judged."
        )
    try:
        return policies_of(read_document("authorizations", text, "policies").authorizations)
    except ConfigError as error:
        raise ConfigError(error.reason, outcome="Nothing was judged.") from None
