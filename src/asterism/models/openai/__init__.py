"""The OpenAI chat-completions wire format, which most vendors and local servers speak.

Written from the API reference, https://platform.openai.com/docs/api-reference/chat, and lenient
where servers are known to differ from it. A request joins the stored bytes of its messages; they
are never parsed or serialised again, so that a call costs what is new in it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import orjson

from asterism.errors import ConfigError, ContentRefused
from asterism.models.http.endpoint import Endpoint, number_option
from asterism.models.openai.answer import ChatReplyParser
from asterism.models.openai.embeddings import EMBEDDINGS_PATH, OpenAIEncoder

if TYPE_CHECKING:
    from asterism.ports import Emit, ModelRequest
    from asterism.types.turns import Reply

OPENAI_URL = "https://api.openai.com/v1"
OWN_FIELDS = frozenset({"model", "messages", "tools", "stream", "stream_options"})
_STREAMING_FIELDS = b',"stream":true,"stream_options":{"include_usage":true}}'


class OpenAI:
    """The models of one vendor that speaks this wire format, asked over HTTP.

    Options: those of `Endpoint`, and `options`, a table of further fields for every request such
    as `temperature`.
    """

    def __init__(self, vendor: str, options: dict[str, Any]) -> None:
        self._vendor = vendor
        self._options = options
        home = None
        if vendor == "openai":
            home = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        self._default_url = home
        self._endpoint = Endpoint(
            vendor, options, path="/chat/completions", home=home, headers=_auth_headers
        )
        self._extra = _extra_fields(vendor, options.get("options") or {})
        # OpenAI's reasoning models take this name only, and other servers mostly the older one.
        official = self._endpoint.address == OPENAI_URL
        self._max_tokens_field = b"max_completion_tokens" if official else b"max_tokens"

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model once."""
        body = self._body(request, streamed=emit is not None)
        answer = await self._endpoint.ask(request, body, lambda: ChatReplyParser(emit))
        reply = answer.reply(len(body))
        if reply.finish == "content_filter" and not (reply.text or reply.calls):
            raise ContentRefused(
                f"The model '{self._vendor}:{request.model}' did not answer, since its content "
                "filter objects. Say it otherwise, or give the agent another model."
            )
        return reply

    def encoder(self, model: str) -> OpenAIEncoder:
        """Return an encoder by its name at the vendor."""
        endpoint = Endpoint(
            self._vendor,
            self._options,
            path=EMBEDDINGS_PATH,
            home=self._default_url,
            headers=_auth_headers,
        )
        timeout = number_option(self._vendor, self._options, "timeout", 120)
        return OpenAIEncoder(self._vendor, model, endpoint, timeout)

    async def close(self) -> None:
        """Let go of connections."""
        await self._endpoint.close()

    def _body(self, request: ModelRequest, *, streamed: bool) -> bytes:
        tools = request.tools
        if tools == b"[]":
            tools = None
        return b"".join(
            (
                b'{"model":',
                orjson.dumps(request.model),
                self._extra,
                self._optional_fields(request, tools),
                b',"messages":[',
                b",".join(_with_reasoning(request)),
                b'],"tools":' + tools if tools else b"]",
                _STREAMING_FIELDS if streamed else b"}",
            )
        )

    def _optional_fields(self, request: ModelRequest, tools: bytes | None) -> bytes:
        """Return the members that few requests have."""
        wishes = b"," + request.extra if request.extra else b""
        if request.max_output is not None:
            wishes += b',"%b":%d' % (self._max_tokens_field, request.max_output)
        if request.schema is not None:
            wishes += (
                b',"response_format":{"type":"json_schema","json_schema":'
                b'{"name":"answer","schema":%b}}' % request.schema
            )
        if tools and request.tool_choice != "auto":
            wishes += b',"tool_choice":' + _tool_choice(request.tool_choice)
        return wishes


def _auth_headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _tool_choice(choice: str) -> bytes:
    if choice in {"none", "required"}:
        return orjson.dumps(choice)
    return orjson.dumps({"type": "function", "function": {"name": choice}})


def _with_reasoning(request: ModelRequest) -> list[bytes]:
    """Return the messages; replies of this turn with the reasoning that came with them.

    Servers that send `reasoning_content` (DeepSeek, vLLM, llama.cpp) may want it back while the
    turn goes on, and OpenRouter its `reasoning_details`; others never sent any and get none.
    """
    thoughts = request.thoughts
    if not thoughts:
        return request.messages
    return [
        message[:-1] + b"," + thought[1:] if (thought := thoughts.get(message)) else message
        for message in request.messages
    ]


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
