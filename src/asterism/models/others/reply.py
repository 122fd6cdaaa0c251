"""What a vendor answered by way of pydantic-ai, turned into our reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asterism.models import estimate_usage
from asterism.models.http.text import StreamedText, fix_surrogates
from asterism.models.others.history import dump_thought
from asterism.types.turns import Call, Reply, Usage

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse, ModelResponseStreamEvent

    from asterism.ports import Emit

_FINISHES = {"tool_call": "tool_calls"}


class IncompleteReply(Exception):
    """The answer ended early; the message says how."""


class ReplyFiltered(Exception):
    """The vendor's content filter left nothing of the answer."""


class ReplyCollector:
    """The text of a reply in the making. Pieces of it are emitted as they come."""

    def __init__(self, emit: Emit | None = None) -> None:
        self.text = StreamedText()
        self.reasoning = StreamedText()
        self._emit = emit

    def take(self, event: ModelResponseStreamEvent) -> None:
        """Take an event of a stream; those of calls are left to the whole response."""
        from pydantic_ai.messages import (
            PartDeltaEvent,
            PartStartEvent,
            TextPart,
            TextPartDelta,
            ThinkingPart,
            ThinkingPartDelta,
        )

        match event:
            case PartStartEvent(part=TextPart(content=piece)):
                self._add("text", self.text, piece)
            case PartStartEvent(part=ThinkingPart(content=piece)):
                self._add("reasoning", self.reasoning, piece)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=piece)):
                self._add("text", self.text, piece)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=piece)):
                self._add("reasoning", self.reasoning, piece or "")
            case _:
                pass

    def take_whole(self, response: ModelResponse) -> None:
        """Take the text of an answer that was not streamed."""
        from pydantic_ai.messages import TextPart, ThinkingPart

        for part in response.parts:
            if isinstance(part, TextPart):
                self.text.add(part.content)
            elif isinstance(part, ThinkingPart):
                self.reasoning.add(part.content)

    def _add(self, kind: str, to: StreamedText, piece: str) -> None:
        shown = to.add(piece)
        if shown and self._emit is not None:
            self._emit(kind, shown)

    def reply(self, response: ModelResponse, sent: int, by: str) -> Reply:
        """Return the reply to a request of `sent` bytes.

        Raises `IncompleteReply` or `ReplyFiltered` if there is none.
        """
        text, reasoning = str(self.text), str(self.reasoning)
        calls = _calls(response)
        finish = _finish(response, empty=not (text or calls), streamed=self._emit is not None)
        if calls and finish == "stop":
            finish = "tool_calls"
        usage = _usage(response)
        if not usage.total:
            said = text + reasoning + "".join(call.name + call.arguments for call in calls)
            usage = estimate_usage(sent, len(said.encode()))
        thought = dump_thought(response, by) if calls and _has_vendor_parts(response) else b""
        return Reply(text, calls, reasoning, usage, finish, thought)


def _calls(response: ModelResponse) -> tuple[Call, ...]:
    calls: dict[str, Call] = {}
    for index, part in enumerate(response.tool_calls):
        if not part.tool_name:
            raise IncompleteReply("with a tool call that names no tool. Ask again.")
        # Changed in place, so that the vendor's record and our reply know a call by the same id.
        part.tool_call_id = fix_surrogates(part.tool_call_id or f"call_{index}")
        while part.tool_call_id in calls:
            part.tool_call_id += "_"
        arguments = part.args if isinstance(part.args, str) else part.args_as_json_str()
        id = part.tool_call_id
        calls[id] = Call(
            id, fix_surrogates(part.tool_name), fix_surrogates(arguments.strip() or "{}")
        )
    return tuple(calls.values())


def _finish(response: ModelResponse, *, empty: bool, streamed: bool) -> str:
    """Return how the answer ended, in the words of chat completions."""
    details: dict[str, Any] = response.provider_details or {}
    own: object = details.get("finish_reason") or details.get("block_reason") or ""
    finish = response.finish_reason
    if finish is None and not own:
        if streamed:
            raise ConnectionAbortedError
        raise IncompleteReply("in another form than this vendor's. Is base_url right?")
    if empty and finish == "content_filter":
        raise ReplyFiltered(str(own))
    if empty and finish == "error":
        raise IncompleteReply(f"it broke off by itself ({own}). Ask again.")
    return _FINISHES.get(finish or "stop", finish or "stop")


def _usage(response: ModelResponse) -> Usage:
    usage = response.usage
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cached=usage.cache_read_tokens,
        written=usage.cache_write_tokens,
    )


def _has_vendor_parts(response: ModelResponse) -> bool:
    """Whether the vendor said more than our wire form can hold."""
    from pydantic_ai.messages import TextPart, ToolCallPart

    return any(
        not isinstance(part, TextPart | ToolCallPart) or bool(part.provider_details)
        for part in response.parts
    )
