"""Requests in OpenAI's language: their bodies, and the conversation that they mean."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field

from asterism.errors import InvalidInput
from asterism.records import dataclass
from asterism.types.turns import ClientRequest

_DATA_URL = re.compile(r"data:image/[\w.+-]+(?:;[\w=.+-]+)*;base64,", re.IGNORECASE)
_MAX_HISTORY = 60_000
"""Characters of an unknown history that an agent is told, the latest of it."""
_OUTCOME = "Nothing was stored."


class UnacceptableField(InvalidInput):
    """A request that names a field which cannot be accepted."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        """Make the error; `param` is the field, `code` what OpenAI calls the problem."""
        super().__init__(message, outcome=_OUTCOME)
        self.param = param
        self.error_code = code


class _Body(BaseModel):
    """A part of a request; fields that mean nothing here are passed over."""

    model_config = ConfigDict(extra="ignore")


class _StreamOptions(_Body):
    include_usage: bool = False


class _Function(_Body):
    name: str
    arguments: str = ""


class _ToolCall(_Body):
    id: str
    type: str = "function"
    function: _Function | None = None


class _ChatMessage(_Body):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _Schema(_Body):
    type: str = "text"
    json_schema: dict[str, Any] | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class ChatRequest(_Body):
    """The body of `POST /chat/completions`."""

    model: str
    messages: list[_ChatMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    n: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: _Schema | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    logit_bias: dict[str, float] | None = None
    modalities: list[str] | None = None
    functions: list[dict[str, Any]] | None = None

    def check(self) -> None:
        """Raise `UnacceptableField` for what would mean something that an agent cannot do."""
        if self.n not in (None, 1):
            _refuse("n", f"n is {self.n}: an agent gives one answer to a message. Leave n out.")
        if self.stop:
            _refuse("stop", "stop cannot be kept: an agent's answer is not cut. Leave it out.")
        if self.logprobs:
            _refuse("logprobs", "An agent's answer has no logprobs. Leave logprobs out.")
        if self.logit_bias:
            _refuse("logit_bias", "logit_bias is not passed on to models. Leave it out.")
        if self.modalities and set(self.modalities) != {"text"}:
            _refuse("modalities", 'An agent answers in text. Leave modalities out, or ["text"].')
        if self.functions:
            _refuse("functions", "functions has been replaced by tools. Use tools.")

    def conversation(self) -> ClientConversation:
        """Return what was said, by whom."""
        messages: list[ClientMessage] = []
        for place, message in enumerate(self.messages):
            param = f"messages[{place}]"
            text, images = _content(message.content, f"{param}.content")
            calls = tuple(
                ClientCall(call.id, call.function.name, call.function.arguments)
                for call in message.tool_calls or ()
                if call.function is not None
            )
            if message.role not in ("system", "developer", "user", "assistant", "tool"):
                _refuse(f"{param}.role", f"{message.role!r} is not a valid role. Use user.")
            if message.role == "tool" and not message.tool_call_id:
                _refuse(f"{param}.tool_call_id", "A result names its call in tool_call_id.")
            messages.append(
                ClientMessage(message.role, text, images, calls, message.tool_call_id or "")
            )
        return ClientConversation(tuple(messages))

    def answer_schema(self) -> Mapping[str, Any] | None:
        """Return the JSON schema that the answer must fulfil."""
        asked = self.response_format
        if asked is None:
            return None
        inside = (asked.json_schema or {}).get("schema")
        return _schema_of(asked.type, inside, "response_format")

    def client_tools(self) -> tuple[tuple[Mapping[str, Any], ...], str]:
        """Return the tools of the client, and which must be called."""
        tools = [
            _function_tool(tool.get("type"), tool.get("function"), f"tools[{place}]")
            for place, tool in enumerate(self.tools or ())
        ]
        return _chosen(tools, self.tool_choice)


class _TextOptions(_Body):
    format: _Schema | None = None


class ResponseRequest(_Body):
    """The body of `POST /responses`."""

    model: str
    input: str | list[dict[str, Any]]
    instructions: str | None = None
    previous_response_id: str | None = None
    stream: bool | None = None
    store: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: _TextOptions | None = None
    background: bool | None = None
    conversation_: Any = Field(default=None, alias="conversation")
    prompt: Any = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None

    def check(self) -> None:
        """Raise `UnacceptableField` for what would mean something that an agent cannot do."""
        if self.background:
            _refuse("background", "Responses are made while you wait. Leave background out.")
        if self.conversation_ is not None:
            _refuse(
                "conversation",
                "There are no conversation objects: the agent's memory is the conversation. Use "
                "previous_response_id, or nothing.",
            )
        if self.prompt is not None:
            _refuse("prompt", "There are no stored prompts. Send instructions and input.")

    def conversation(self) -> ClientConversation:
        """Return what was said, by whom."""
        said = [ClientMessage("system", self.instructions)] if self.instructions else []
        if isinstance(self.input, str):
            return ClientConversation((*said, ClientMessage("user", self.input)))
        for place, item in enumerate(self.input):
            heard = _input_item(item, f"input[{place}]")
            if heard is not None:
                said.append(heard)
        return ClientConversation(tuple(said))

    def answer_schema(self) -> Mapping[str, Any] | None:
        """Return the JSON schema that the answer must fulfil."""
        asked = self.text.format if self.text is not None else None
        return _schema_of(asked.type, asked.schema_, "text.format") if asked is not None else None

    def client_tools(self) -> tuple[tuple[Mapping[str, Any], ...], str]:
        """Return the tools of the client, and which must be called."""
        tools = [
            _function_tool(tool.get("type"), tool, f"tools[{place}]")
            for place, tool in enumerate(self.tools or ())
        ]
        return _chosen(tools, self.tool_choice)


def _refuse(param: str, message: str) -> NoReturn:
    raise UnacceptableField(message, param)


def _object(value: Any) -> dict[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _input_item(item: dict[str, Any], param: str) -> ClientMessage | None:
    """Return what an input item of a response says; None for what the agent has by itself."""
    kind = item.get("type") or "message"
    if kind == "message":
        role = item.get("role")
        if role not in ("system", "developer", "user", "assistant"):
            _refuse(f"{param}.role", f"{role!r} is not a valid role. Use user.")
        text, images = _content(item.get("content"), f"{param}.content")
        return ClientMessage(str(role), text, images)
    if kind == "function_call":
        call = ClientCall(
            str(item.get("call_id")), str(item.get("name")), str(item.get("arguments") or "")
        )
        return ClientMessage("assistant", calls=(call,))
    if kind == "function_call_output":
        text, _ = _content(item.get("output"), f"{param}.output")
        return ClientMessage("tool", text, call_id=str(item.get("call_id") or ""))
    if kind in ("reasoning", "item_reference"):
        return None  # the agent has its own thoughts and answers in memory
    _refuse(f"{param}.type", f"Items of type {kind!r} cannot be read here. Send messages.")


def _content(content: Any, param: str) -> tuple[str, tuple[bytes, ...]]:
    """Return the text and the images of a message's content."""
    if content is None or isinstance(content, str):
        return content or "", ()
    if not isinstance(content, list):
        _refuse(param, "Content is a text, or a list of parts.")
    texts: list[str] = []
    images: list[bytes] = []
    for place, part in enumerate(map(_object, cast("list[Any]", content))):
        kind = part.get("type")
        where = f"{param}[{place}]"
        if kind in ("text", "input_text", "output_text"):
            texts.append(str(part.get("text") or ""))
        elif kind == "refusal":
            texts.append(str(part.get("refusal") or ""))
        elif kind in ("image_url", "input_image"):
            address = part.get("image_url")
            images.append(_image(_object(address).get("url") or address, where))
        else:
            _refuse(where, f"Parts of type {kind!r} cannot be read here. Send text and images.")
    return "\n".join(texts), tuple(images)


def _image(url: Any, param: str) -> bytes:
    found = _DATA_URL.match(url) if isinstance(url, str) else None
    if found is None:
        _refuse(
            f"{param}.image_url",
            "Images are taken as data URLs (data:image/png;base64,…). Addresses are not fetched: "
            "load the image in your program and send it.",
        )
    try:
        return base64.b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError):
        _refuse(f"{param}.image_url", "The data of the image is not valid base64.")


def _schema_of(kind: str, schema: Any, param: str) -> Mapping[str, Any] | None:
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        _refuse(param, f"{kind!r} is not a valid format. Use text, json_object or json_schema.")
    if not isinstance(schema, dict):
        _refuse(param, "A format of type json_schema has its schema in it, as a JSON object.")
    return _object(cast("Any", schema))


def _function_tool(kind: Any, function: Any, param: str) -> Mapping[str, Any]:
    """Return a tool of the client as models are told of it."""
    if kind != "function" or not isinstance(function, dict):
        _refuse(
            f"{param}.type",
            f"Tools of type {kind!r} are not offered: an agent has its own tools, and the ones of "
            "your program are of type function.",
        )
    described = _object(cast("Any", function))
    name = described.get("name")
    if not isinstance(name, str):
        _refuse(f"{param}.name", "A tool needs a name.")
    parameters = described.get("parameters")
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": str(described.get("description") or ""),
            "parameters": parameters if isinstance(parameters, dict) else None,
        },
    }


def _named(tool: Any) -> str:
    """Return the name of a tool, which chat completions have one level deeper."""
    described = _object(tool)
    return str(described.get("name") or _object(described.get("function")).get("name"))


def _chosen(
    tools: Sequence[Mapping[str, Any]], choice: str | dict[str, Any] | None
) -> tuple[tuple[Mapping[str, Any], ...], str]:
    """Return the tools that are offered, and which of them must be called."""
    if choice in (None, "auto"):
        return tuple(tools), "auto"
    if choice == "none":
        return (), "auto"
    if choice == "required":
        return tuple(tools), "required" if tools else "auto"
    if isinstance(choice, dict) and choice.get("type") == "function":
        return tuple(tools), _named(choice)
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        allowed = _object(choice.get("allowed_tools") or choice)
        listed: Any = allowed.get("tools") or []
        if not isinstance(listed, list):
            _refuse("tool_choice", "tools of allowed_tools is a list of tools.")
        names = {_named(tool) for tool in cast("list[Any]", listed)}
        kept = tuple(tool for tool in tools if tool["function"]["name"] in names)
        return kept, "required" if kept and allowed.get("mode") == "required" else "auto"
    _refuse("tool_choice", f"{choice!r} is not a valid choice. Use auto, none or required.")


# -- what was said ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A call that the client says the assistant made."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """One message of a conversation as a client tells it."""

    role: str
    text: str = ""
    images: tuple[bytes, ...] = ()
    calls: tuple[ClientCall, ...] = ()
    call_id: str = ""
    """Of a result, the call."""

    @property
    def words(self) -> str:
        """What the agent is asked: the text, or that there is an image and no text."""
        return "(an image)" if self.images and not self.text.strip() else self.text

    @property
    def line(self) -> str:
        """What an agent is told of it."""
        words = [self.text] if self.text else []
        words += ["(an image)"] * len(self.images)
        words += [f"(calls {call.name} {call.arguments})" for call in self.calls]
        return f"{self.role}: {' '.join(words)}"


@dataclass(frozen=True, slots=True)
class PastExchange:
    """A message of a person in the client's history, and all that followed it."""

    message: ClientMessage | None
    """None for what was said before the first message."""
    rest: tuple[ClientMessage, ...]

    @property
    def answers(self) -> tuple[str, ...]:
        """The words that the client says were the assistant's."""
        return tuple(
            message.text.strip()
            for message in self.rest
            if message.role == "assistant" and message.text.strip()
        )

    @property
    def text(self) -> str:
        """What an agent is told of it."""
        messages = self.rest if self.message is None else (self.message, *self.rest)
        return "\n".join(message.line for message in messages)[:_MAX_HISTORY]


@dataclass(frozen=True, slots=True)
class ClientConversation:
    """What was said, as a client tells it with each request."""

    messages: tuple[ClientMessage, ...]

    @property
    def instructions(self) -> str:
        """What the client asks of the answer."""
        return "\n\n".join(message.text for message in self._of_system if message.text.strip())

    @property
    def _of_system(self) -> list[ClientMessage]:
        return [message for message in self.messages if message.role in ("system", "developer")]

    @property
    def _spoken(self) -> list[ClientMessage]:
        return [message for message in self.messages if message.role not in ("system", "developer")]

    @property
    def message(self) -> ClientMessage | None:
        """The new message, if it ends with one."""
        spoken = self._spoken
        return spoken[-1] if spoken and spoken[-1].role == "user" else None

    @property
    def results(self) -> dict[str, str]:
        """The results that come after the latest calls, by the ids of the calls."""
        results: dict[str, str] = {}
        spoken = self._spoken
        for message in reversed(spoken[:-1] if self.message is not None else spoken):
            if message.role != "tool":
                break
            results[message.call_id] = message.text
        return results

    @property
    def exchanges(self) -> list[PastExchange]:
        """What was said before the new message, oldest first."""
        exchanges: list[PastExchange] = []
        opening: ClientMessage | None = None
        rest: list[ClientMessage] = []
        for message in self._spoken:
            if message.role == "user":
                if opening is not None or rest:
                    exchanges.append(PastExchange(opening, tuple(rest)))
                opening, rest = message, []
            else:
                rest.append(message)
        if self.message is None and (opening is not None or rest):
            exchanges.append(PastExchange(opening, tuple(rest)))
        return exchanges

    def check(self) -> None:
        """Raise `UnacceptableField` unless it ends with something that can be answered."""
        if self.message is None and not self.results:
            _refuse(
                "messages",
                "The last message is none of a user and no result of a tool, so that there is "
                "nothing to answer. End with a message of role user.",
            )


def latest_of(exchanges: Sequence[str]) -> tuple[str, ...]:
    """Return as much of an unknown history as an agent is told, the latest; and what is missing."""
    kept: list[str] = []
    room = _MAX_HISTORY
    for exchange in reversed(exchanges):
        room -= len(exchange)
        if room < 0:
            break
        kept.append(exchange)
    left_out = len(exchanges) - len(kept)
    if left_out:
        kept.append(f"({left_out} earlier exchanges of this conversation are left out.)")
    return tuple(reversed(kept))


def body_digest_parts(body: Mapping[str, Any]) -> bytes:
    """Return what of a request's body tells it from another request."""
    without = ("stream", "stream_options")
    kept = {name: value for name, value in body.items() if name not in without}
    try:
        return orjson.dumps(kept, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # it reads deeper than it writes
        raise UnacceptableField("The request is nested too deeply.") from None


def client_request(
    request: ChatRequest | ResponseRequest, conversation: ClientConversation, history: Sequence[str]
) -> ClientRequest | None:
    """Return what a client asks for beside its message; None if that is nothing."""
    tools, choice = request.client_tools()
    client = ClientRequest(tools, choice, conversation.instructions, latest_of(history))
    return client if client != ClientRequest() else None
