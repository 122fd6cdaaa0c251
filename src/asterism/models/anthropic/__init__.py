"""The Anthropic Messages wire format.

Written from the API reference, https://platform.claude.com/docs/en/api/messages. Messages are
converted once each, and a request joins what is known, so that a call costs what is new in it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.errors import ConfigError, ContentRefused, ContextTooLong
from asterism.models.anthropic.answer import REFUSED, WINDOW_FULL, MessagesReplyParser
from asterism.models.anthropic.conversation import ConversationCache
from asterism.models.anthropic.tools import (
    convert_choice,
    convert_schema,
    convert_tools,
    placeholder_tools,
)
from asterism.models.http.endpoint import Endpoint
from asterism.models.http.trouble import shorten
from asterism.ports import Profile

if TYPE_CHECKING:
    from asterism.ports import Emit, ModelRequest
    from asterism.types.turns import Reply

ANTHROPIC_URL = "https://api.anthropic.com"
# The one that other servers of this format know as well. The next, 2026-10-21, has no temperature,
# top_p and top_k any more: https://platform.claude.com/docs/en/api/versioning, 2026-11.
VERSION = "2023-06-01"
OWN_FIELDS = frozenset({"model", "messages", "system", "tools", "tool_choice", "stream"})
DEFAULT_OUTPUT_TOKENS = 8192
"""Tokens that an answer may have where nobody says: the API wants a bound, and every model that is
offered can write that much. Thinking comes on top."""
_MIN_BUDGET = 1024
"""Tokens of thinking below which the API takes no budget."""


class Anthropic:
    """The models of one vendor that speaks this wire format, asked over HTTP.

    Options: those of `Endpoint`, and `options`, a table of further fields for every request such
    as `max_tokens`, `temperature` or `thinking`.
    """

    def __init__(self, vendor: str, options: dict[str, Any]) -> None:
        self._vendor = vendor
        home = None
        if vendor == "anthropic":
            home = os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL
        address = str(options.get("base_url") or home or "").rstrip("/").removesuffix("/v1")
        self._endpoint = Endpoint(
            vendor,
            {**options, "base_url": address},
            path="/v1/messages",
            home=home,
            headers=_auth_headers,
        )
        fields = dict(options.get("options") or {})
        self._max_tokens = _max_tokens(vendor, fields.pop("max_tokens", None))
        self._thinking = _table_option(vendor, "thinking", fields.pop("thinking", None))
        self._output = _table_option(vendor, "output_config", fields.pop("output_config", None))
        self._budget = _budget(vendor, self._thinking, self._max_tokens)
        _extra_fields(vendor, {"thinking": self._thinking, "output_config": self._output})
        self._extra = _extra_fields(vendor, fields)
        self._conversations = ConversationCache()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model once."""
        body = self.body(request, streamed=emit is not None)
        answer = await self._endpoint.ask(request, body, lambda: MessagesReplyParser(emit))
        reply = answer.reply(len(body))
        if not (reply.text or reply.calls):
            self._raise_refusal(request.model, answer)
        return reply

    def profile(self, model: str) -> Profile:  # noqa: ARG002
        """Return what all of Anthropic's models can take in; some can take more."""
        return Profile(window=200_000, images=True)

    async def close(self) -> None:
        """Let go of connections."""
        await self._endpoint.close()

    def body(self, request: ModelRequest, *, streamed: bool) -> bytes:
        """Return what is sent for a request."""
        conversation = self._conversations.find(request)
        messages = conversation.end()
        tools = request.tools if request.tools != b"[]" else None
        choice = request.tool_choice if tools else "auto"
        if tools:
            tools = convert_tools(tools)
        elif conversation.tool_names:
            tools, choice = placeholder_tools(conversation.tool_names), "none"
        forced = choice not in {"auto", "none"}
        bound = self._max_output(request)
        body = [
            b'{"model":',
            orjson.dumps(request.model),
            b',"max_tokens":%d' % bound,
            self._extra,
            self._thinking_field(bound, apart=forced or conversation.lacks_thinking),
            self._output_field(request.schema),
        ]
        if request.extra:
            body += (b",", request.extra)
        if tools:
            body += (b',"tools":', tools)
        if choice != "auto":
            body += (b',"tool_choice":', convert_choice(choice))
        if conversation.system:
            body += (b',"system":[', b",".join(conversation.system), b"]")
        body += (b',"messages":[', messages, b'],"stream":true}' if streamed else b"]}")
        return b"".join(body)

    def _raise_refusal(self, model: str, answer: MessagesReplyParser) -> None:
        """Raise if an answer without a word says why."""
        named = f"The model '{self._vendor}:{model}'"
        if answer.finish == REFUSED:
            about = f" ({shorten(answer.objection)!r})" if answer.objection else ""
            raise ContentRefused(
                f"{named} did not answer, since its content filter objects{about}. Say it "
                "otherwise, or give the agent another model."
            )
        if answer.finish == WINDOW_FULL:
            raise ContextTooLong(
                f"{named} has too small a window for this conversation: there was no room left for "
                "an answer. Shorten it, or give the agent another model."
            )

    def _max_output(self, request: ModelRequest) -> int:
        bounds = [bound for bound in (request.max_output, self._max_tokens) if bound]
        if bounds:
            return min(bounds)
        # How much an adaptive model thinks is up to it; it gets as much room again.
        return DEFAULT_OUTPUT_TOKENS + (
            self._budget or (DEFAULT_OUTPUT_TOKENS if self._thinking else 0)
        )

    def _thinking_field(self, bound: int, *, apart: bool) -> bytes:
        """Return the field `thinking`, unless it does not go with the rest of the request.

        With a budget, no tool can be forced, a turn must have begun with thinking, and the budget
        is part of the bound. https://platform.claude.com/docs/en/build-with-claude/extended-thinking
        """
        if not self._thinking:
            return b""
        thinking = self._thinking
        if self._budget:
            budget = self._budget if bound > self._budget else bound // 2
            if apart or budget < _MIN_BUDGET:
                return b""
            thinking = {**thinking, "budget_tokens": budget}
        return b',"thinking":' + orjson.dumps(thinking)

    def _output_field(self, schema: bytes | None) -> bytes:
        if schema is None:
            return b',"output_config":' + orjson.dumps(self._output) if self._output else b""
        shape = {"type": "json_schema", "schema": orjson.Fragment(convert_schema(schema))}
        return b',"output_config":' + orjson.dumps({**(self._output or {}), "format": shape})


def _auth_headers(key: str) -> dict[str, str]:
    headers = {"anthropic-version": VERSION}
    return {"x-api-key": key, **headers} if key else headers


def _max_tokens(vendor: str, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and value > 0):
        return value
    raise ConfigError(
        f"models.{vendor}.options.max_tokens is {value!r}; a whole number from 1 up is needed, "
        f"such as {DEFAULT_OUTPUT_TOKENS}."
    )


def _table_option(vendor: str, name: str, value: Any) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return cast("dict[str, Any] | None", value)
    raise ConfigError(
        f"models.{vendor}.options.{name} is {value!r}; a table is needed, such as "
        '{type = "adaptive"} for thinking.'
    )


def _budget(vendor: str, thinking: dict[str, Any] | None, bound: int | None) -> int:
    """Return the tokens that thinking has of its own; 0 if the model decides."""
    budget = (thinking or {}).get("budget_tokens", 0)
    if not isinstance(budget, int) or (budget and budget < _MIN_BUDGET):
        raise ConfigError(
            f"models.{vendor}.options.thinking.budget_tokens is {budget!r}; a whole number from "
            f"{_MIN_BUDGET} up is needed."
        )
    if bound is not None and bound <= budget:
        raise ConfigError(
            f"models.{vendor}.options.max_tokens is {bound}, which must be more than "
            f"thinking.budget_tokens ({budget}): thinking is part of what the model writes."
        )
    return budget


def _extra_fields(vendor: str, fields: dict[str, Any]) -> bytes:
    if taken := sorted(OWN_FIELDS & fields.keys()):
        raise ConfigError(
            f"models.{vendor}.options sets {taken[0]!r}, which asterism sets by itself. Take it "
            "out; fields such as temperature or max_tokens belong there."
        )
    try:
        return b"," + orjson.dumps(fields)[1:-1] if fields else b""
    except TypeError as error:
        raise ConfigError(f"models.{vendor}.options cannot be sent as JSON: {error}.") from None
