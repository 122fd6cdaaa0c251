"""Answers in OpenAI's language: what came of a turn, as a chat completion or as a response."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from asterism.records import dataclass
from asterism.turns.parts import BETWEEN, TurnParts
from asterism.types.turns import Call, Signal, TurnState, Usage

Shape = dict[str, Any]
BEGINS_AGAIN = "\n\n(The model was interrupted. The answer begins again:)\n\n"
"""What stands between words that do not count any more and those that do."""
WAITS = "I cannot go on until somebody decides this:"
"""How the answer of a turn begins that waits for an approval."""
_CALL_ID = re.compile(r"call_([0-9a-z]{1,64})_([0-9]{1,6})_([0-9]{1,6})")
_RESPONSE_ID = re.compile(r"resp_([0-9a-z]{1,64})(?:_([0-9]{1,6}))?")


# -- ids -------------------------------------------------------------------------------------------


def call_id_for(turn_id: str, key: str) -> str:
    """Return the id of a call for a client: it names the turn and the call's place in it."""
    step, _, index = key.partition("/call/")
    return f"call_{turn_id.removeprefix('turn_')}_{step}_{index}"


def read_call_id(call_id: str) -> tuple[str, str] | None:
    """Return the turn and the key that the id of a call names; None if it is none of ours."""
    found = _CALL_ID.fullmatch(call_id)
    return (f"turn_{found[1]}", f"{found[2]}/call/{found[3]}") if found else None


def response_id_for(turn_id: str, part: int) -> str:
    """Return the id of a response: it names the turn, and which part of it."""
    return f"resp_{turn_id.removeprefix('turn_')}{f'_{part}' if part else ''}"


def read_response_id(response_id: str) -> tuple[str, int] | None:
    """Return the turn and the part that the id of a response names; None if it is none of ours."""
    found = _RESPONSE_ID.fullmatch(response_id)
    return (f"turn_{found[1]}", int(found[2] or 0)) if found else None


# -- what came of a turn ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """What a client is answered with: a part of a turn, and how the turn stands."""

    model: str
    turn_id: str
    part: int
    created: int
    """Seconds since 1970."""
    state: TurnState
    texts: tuple[str, ...] = ()
    calls: tuple[tuple[str, Call], ...] = ()
    usage: Usage = Usage()
    error: str = ""
    """Why there is no answer, if the turn failed or was stopped."""

    @property
    def text(self) -> str:
        """The words."""
        return BETWEEN.join(self.texts)

    @property
    def finish(self) -> str:
        """Why it ends here, as OpenAI calls it."""
        return "tool_calls" if self.calls else "stop"


def answer_from(model: str, turn: TurnParts, place: int) -> TurnAnswer:
    """Return a part of a turn as an answer.

    Args:
        model: The name of the agent.
        turn: The turn.
        place: Which part; -1: the latest.
    """
    latest = len(turn.parts) - 1
    place = min(place, latest) if place >= 0 else latest
    part, state = turn.parts[place], turn.state if place == latest else TurnState.PARKED
    texts, calls, error = part.texts, part.calls, ""
    if place == latest and state is not TurnState.PARKED:
        calls, error = (), turn.error
    elif place == latest and not calls and turn.questions:
        texts = (*texts, waiting_text(turn.questions))
    created = turn.opened_at_ms // 1000
    return TurnAnswer(model, turn.turn_id, place, created, state, texts, calls, part.usage, error)


def waiting_text(questions: Sequence[tuple[str, str]]) -> str:
    """Say which approvals a turn waits for, and how they are decided."""
    asked = "\n".join(f"- {question} ({approval})" for approval, question in questions)
    first = questions[0][0]
    return (
        f'{WAITS}\n{asked}\nAnswer here with "approve {first}" or "deny {first}", or run '
        f'"asterism approval approve {first}". I go on after that.'
    )


class TextDeltas:
    """The words of a turn as they are sent while they come, none of them twice.

    Words are sent at once unless something may still reject them, or their beginning was missed:
    then they come at the end. Where a model is asked again in the middle of its words and says
    others, it is said that the answer begins again: what was sent cannot be taken back.
    """

    def __init__(self) -> None:
        """Begin, with nothing said."""
        self.sent = ""
        self._live = False
        self._step: int = -1
        self._shown = ""
        """What was sent of the step."""
        self._void = ""
        """What was sent of an attempt at the step that does not count."""
        self._fresh = ""

    def receive(self, signal: Signal) -> str:
        """Return what is to be sent after a signal; mostly its text, often nothing."""
        if signal.kind == "opened":
            self._live = not signal.data.get("judged", True)
        elif signal.kind == "again" and self._live and self._shown:
            self._void, self._fresh, self._shown = self._shown, "", ""
        elif signal.kind == "text" and self._live:
            return self._say(signal.text, int(signal.data.get("step", 0)))
        return ""

    def _say(self, text: str, step: int) -> str:
        lead = ""
        if step != self._step:
            lead = BETWEEN if self.sent else ""
            self._step, self._shown, self._void = step, "", ""
        if self._void:
            self._fresh += text
            if self._void.startswith(self._fresh):
                return ""
            same = self._fresh.startswith(self._void)
            lead, text = "" if same else BEGINS_AGAIN, self._fresh
            self._shown = text
            text = text[len(self._void) :] if same else text
            self._void = ""
        else:
            self._shown += text
        self.sent += lead + text
        return lead + text

    def rest(self, texts: Sequence[str]) -> str:
        """Return what is still to be sent, of all that was said."""
        said = BETWEEN.join(texts)
        if said.startswith(self.sent):
            rest = said[len(self.sent) :]
        elif not texts or self.sent.rstrip().endswith(texts[-1].strip()):
            rest = ""
        else:
            rest = BEGINS_AGAIN + texts[-1]
        self.sent += rest
        return rest


# -- chat completions ------------------------------------------------------------------------------


def chat_id(answer: TurnAnswer) -> str:
    """Return the id of a chat completion."""
    return f"chatcmpl-{answer.turn_id.removeprefix('turn_')}-{answer.part}"


def chat_usage(usage: Usage) -> Shape:
    """Return what was used, as chat completions say it."""
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def chat_completion(answer: TurnAnswer) -> Shape:
    """Return an answer as a chat completion."""
    message: Shape = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.calls:
        message["tool_calls"] = [chat_call(answer.turn_id, *call) for call in answer.calls]
    elif not answer.text:
        message["content"] = ""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
    return {
        "id": chat_id(answer),
        "object": "chat.completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [choice],
        "usage": chat_usage(answer.usage),
    }


def chat_call(turn_id: str, key: str, call: Call) -> Shape:
    """Return a call as a chat completion has it."""
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    return {"id": call_id_for(turn_id, key), "type": "function", "function": function}


class ChatStream:
    """Makes the chunks of a chat completion."""

    def __init__(self, model: str, created: int, *, with_usage: bool) -> None:
        """Begin with the name of the agent."""
        self._head: Shape = {
            "id": "",
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
        }
        self._with_usage = with_usage

    def begin(self, turn_id: str, part: int) -> Iterator[Shape]:
        """Yield the chunk that says who speaks."""
        self._head["id"] = f"chatcmpl-{turn_id.removeprefix('turn_')}-{part}"
        yield self._chunk({"role": "assistant", "content": "", "refusal": None})

    def text(self, text: str) -> Iterator[Shape]:
        """Yield words."""
        yield self._chunk({"content": text})

    def end(self, answer: TurnAnswer) -> Iterator[Shape]:
        """Yield the calls, why it ends, and what was used if that was asked for."""
        for index, (key, call) in enumerate(answer.calls):
            shape = chat_call(answer.turn_id, key, call)
            arguments = shape["function"]["arguments"]
            shape["function"] = {"name": call.name, "arguments": ""}
            yield self._chunk({"tool_calls": [{"index": index, **shape}]})
            piece = {"index": index, "function": {"arguments": arguments}}
            yield self._chunk({"tool_calls": [piece]})
        yield self._chunk({}, answer.finish)
        if self._with_usage:
            yield {**self._head, "choices": [], "usage": chat_usage(answer.usage)}

    def _chunk(self, delta: Shape, finish: str | None = None) -> Shape:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = {**self._head, "choices": [choice]}
        return {**chunk, "usage": None} if self._with_usage else chunk


# -- responses -------------------------------------------------------------------------------------

_STATUS = {
    TurnState.WAITING: "queued",
    TurnState.OPEN: "in_progress",
    TurnState.FAILED: "failed",
    TurnState.STOPPED: "failed",
}


def response_usage(usage: Usage) -> Shape:
    """Return what was used, as responses say it."""
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total,
    }


def response_shape(answer: TurnAnswer, echo: Shape, *, status: str = "") -> Shape:
    """Return an answer as a response.

    Args:
        answer: The answer.
        echo: What of the request is said again.
        status: What it is called instead of how the turn stands, while it is being made.
    """
    stands = status or _STATUS.get(answer.state, "completed")
    error = {"code": "server_error", "message": answer.error} if answer.error else None
    made = stands in ("completed", "failed")
    return {
        "id": response_id_for(answer.turn_id, answer.part),
        "object": "response",
        "created_at": answer.created,
        "status": stands,
        "error": error,
        "incomplete_details": None,
        "model": answer.model,
        "output": output_items(answer) if made else [],
        "usage": response_usage(answer.usage) if made else None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "user": None,
        **echo,
    }


def output_items(answer: TurnAnswer) -> list[Shape]:
    """Return what was said and called, as the items of a response."""
    items: list[Shape] = []
    if answer.text or not answer.calls:
        items.append(message_item(answer.turn_id, answer.part, answer.text))
    return items + [call_item(answer.turn_id, *call) for call in answer.calls]


def message_item(turn_id: str, part: int, text: str | None) -> Shape:
    """Return words as an item; None: they are to come."""
    content = [] if text is None else [text_part(text)]
    return {
        "id": f"msg_{turn_id.removeprefix('turn_')}_{part}",
        "type": "message",
        "status": "in_progress" if text is None else "completed",
        "role": "assistant",
        "content": content,
    }


def text_part(text: str) -> Shape:
    """Return words as a part of an item."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def call_item(turn_id: str, key: str, call: Call, *, made: bool = True) -> Shape:
    """Return a call as an item."""
    call_id = call_id_for(turn_id, key)
    return {
        "id": f"fc_{call_id.removeprefix('call_')}",
        "type": "function_call",
        "status": "completed" if made else "in_progress",
        "call_id": call_id,
        "name": call.name,
        "arguments": (call.arguments or "{}") if made else "",
    }


class ResponseStream:
    """Makes the events of a response."""

    def __init__(self, model: str, created: int, echo: Shape) -> None:
        """Begin with the name of the agent, and what of the request is said again."""
        self._model, self._created, self._echo = model, created, echo
        self._number = -1
        self._turn_id, self._part = "", 0
        self._text: list[str] = []
        self._begun = False

    def begin(self, turn_id: str, part: int) -> Iterator[Shape]:
        """Yield that it has begun."""
        self._turn_id, self._part = turn_id, part
        answer = TurnAnswer(self._model, turn_id, part, self._created, TurnState.OPEN)
        for kind in ("created", "in_progress"):
            shape = response_shape(answer, self._echo, status="in_progress")
            yield self._event(f"response.{kind}", response=shape)

    def text(self, text: str) -> Iterator[Shape]:
        """Yield words."""
        yield from self._begin_message()
        self._text.append(text)
        yield self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def _begin_message(self) -> Iterator[Shape]:
        if not self._begun:
            self._begun = True
            item = message_item(self._turn_id, self._part, None)
            yield self._event("response.output_item.added", output_index=0, item=item)
            yield self._event("response.content_part.added", **self._place, part=text_part(""))

    @property
    def _place(self) -> Shape:
        item_id = message_item(self._turn_id, self._part, "")["id"]
        return {"item_id": item_id, "output_index": 0, "content_index": 0}

    def end(self, answer: TurnAnswer) -> Iterator[Shape]:
        """Yield the end of the words, the calls, and the whole."""
        if not answer.calls:
            yield from self._begin_message()
        if self._begun:
            text = "".join(self._text)
            yield self._event("response.output_text.done", **self._place, text=text, logprobs=[])
            yield self._event("response.content_part.done", **self._place, part=text_part(text))
            item = message_item(self._turn_id, self._part, text)
            yield self._event("response.output_item.done", output_index=0, item=item)
        for index, (key, call) in enumerate(answer.calls, int(self._begun)):
            yield from self._call(answer.turn_id, index, key, call)
        whole = response_shape(answer, self._echo)
        yield self._event(f"response.{whole['status']}", response=whole)

    def _call(self, turn_id: str, index: int, key: str, call: Call) -> Iterator[Shape]:
        whole = call_item(turn_id, key, call)
        place = {"item_id": whole["id"], "output_index": index}
        item = call_item(turn_id, key, call, made=False)
        yield self._event("response.output_item.added", output_index=index, item=item)
        kind, arguments = "response.function_call_arguments", whole["arguments"]
        yield self._event(f"{kind}.delta", **place, delta=arguments)
        yield self._event(f"{kind}.done", **place, name=call.name, arguments=arguments)
        yield self._event("response.output_item.done", output_index=index, item=whole)

    def _event(self, kind: str, **fields: Any) -> Shape:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}
