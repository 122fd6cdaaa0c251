"""What the Messages API refuses, and what its prompt cache finds; written from its documentation.

A double's view, in the words of https://platform.claude.com/docs/en/api/messages and the pages on
prompt caching, tool use and thinking (2026-11); nothing here was recorded from the vendor.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, cast

import orjson

from asterism.types.turns import Usage

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
MAX_MARKS = 4
LOOKBACK = 20
LEAST_BUDGET = 1024
Block = dict[str, Any]


def sign(thinking: str) -> str:
    """Return the signature that the double gives to a thought."""
    return base64.b64encode(hashlib.sha256(b"double:" + thinking.encode()).digest()).decode()


def refusal(body: dict[str, Any]) -> str:
    """Return why the API would refuse a request with status 400, or nothing."""
    try:
        _check_fields(body)
        _check_messages(body["messages"])
        _check_thinking(body)
        output: dict[str, Any] = body.get("output_config", {})
        _check_format(output.get("format"))
    except _Refused as refused:
        return str(refused)
    return ""


class _Refused(Exception):
    """What the API says."""


def _want(condition: object, words: str) -> None:
    if not condition:
        raise _Refused(words)


def _check_fields(body: dict[str, Any]) -> None:
    _want(isinstance(body.get("model"), str), "model: Field required")
    _want(isinstance(body.get("max_tokens"), int), "max_tokens: Field required")
    _want(body["max_tokens"] > 0, "max_tokens: must be greater than or equal to 1")
    _want(body.get("messages"), "messages: at least one message is required")
    for block in body.get("system") or ():
        _want(block["text"].strip(), "system: text content blocks must be non-empty")
    names = [tool["name"] for tool in body.get("tools") or ()]
    for tool in body.get("tools") or ():
        _want(NAME.fullmatch(tool["name"]), "tools: name should match pattern")
        _want(tool["input_schema"].get("type") == "object", "tools: input_schema.type is required")
    used = any(
        block["type"] in {"tool_use", "tool_result"}
        for message in body["messages"]
        for block in message["content"]
    )
    _want(names or not used, "Requests which include `tool_use` blocks must define tools.")
    choice = body.get("tool_choice") or {"type": "auto"}
    _want(names or choice["type"] == "auto", "tool_choice may only be specified with tools.")
    _want("name" not in choice or choice["name"] in names, "tool_choice: tool not found")
    marks = sum("cache_control" in block for _, block in _blocks(body))
    _want(marks <= MAX_MARKS, f"A maximum of 4 blocks with cache_control. Found {marks}.")


def _check_messages(messages: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    _want(messages[0]["role"] == "user", "messages: first message must use the user role")
    _want(messages[-1]["role"] == "user", "The conversation must end with a user message.")
    waiting: list[str] = []
    for index, message in enumerate(messages):
        at, role, content = f"messages.{index}", message["role"], message["content"]
        _want(role == ("assistant" if index % 2 else "user"), f"{at}: roles must alternate")
        _want(content, f"{at}: content must be non-empty")
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        _want(sorted(results) == sorted(waiting), f"{at}: `tool_use` ids without `tool_result`")
        first = [block["type"] for block in content[: len(results)]]
        _want(set(first) <= {"tool_result"}, f"{at}: tool_result blocks must come first")
        waiting = [block["id"] for block in content if block["type"] == "tool_use"]
        _want(not seen.intersection(waiting), f"{at}: `tool_use` ids must be unique")
        _want(len(set(waiting)) == len(waiting), f"{at}: `tool_use` ids must be unique")
        seen.update(waiting)
        for block in content:
            _check_block(at, role, block)


def _check_block(at: str, role: str, block: Block) -> None:
    kind = block["type"]
    users = {"text", "image", "document", "tool_result"}
    allowed = users if role == "user" else {"text", "tool_use", "thinking", "redacted_thinking"}
    _want(kind in allowed, f"{at}: unexpected {kind} block")
    if kind == "text":
        _want(block["text"].strip(), f"{at}: text content blocks must contain non-whitespace text")
    elif kind == "tool_use":
        _want(NAME.fullmatch(block["id"]), f"{at}: tool_use.id should match pattern")
        _want(NAME.fullmatch(block["name"]), f"{at}: tool_use.name should match pattern")
        _want(isinstance(block["input"], dict), f"{at}: tool_use.input should be a dictionary")
    elif kind == "thinking":
        sound = block["signature"] == sign(block["thinking"])
        _want(sound, f"{at}: Invalid `signature` in `thinking` block")
    elif kind == "redacted_thinking":
        _want(block["data"].startswith("sealed:"), f"{at}: Invalid `data`")
    elif kind == "tool_result":
        for part in block.get("content") or ():
            _check_block(at, role, part)
    elif kind in {"image", "document"}:
        source = block["source"]
        wanted = {"base64": {"data", "media_type"}, "url": {"url"}}[source["type"]]
        _want(wanted <= source.keys(), f"{at}: source: Field required")


def _check_thinking(body: dict[str, Any]) -> None:
    for _, block in _blocks(body):
        thought = block.get("type") in {"thinking", "redacted_thinking"}
        _want(not (thought and "cache_control" in block), "thinking blocks cannot be cached")
    thinking: dict[str, Any] = body.get("thinking", {})
    if thinking.get("type") != "enabled":
        return
    budget = thinking["budget_tokens"]
    _want(budget >= LEAST_BUDGET, "thinking.budget_tokens: must be at least 1024")
    _want(budget < body["max_tokens"], "`max_tokens` must be greater than `budget_tokens`.")
    choice = (body.get("tool_choice") or {"type": "auto"})["type"]
    _want(choice in {"auto", "none"}, "Thinking may not be enabled when tool_choice forces use.")
    for reply, after in pairwise(body["messages"][-2:]):
        if after["content"][0]["type"] == "tool_result":
            first = reply["content"][0]["type"]
            _want(
                first in {"thinking", "redacted_thinking"},
                f"Expected `thinking` or `redacted_thinking`, but found `{first}`.",
            )


def _check_format(form: Any) -> None:
    if form is None:
        return
    _want(form["type"] == "json_schema", "output_config.format.type: json_schema")
    nodes: list[Any] = [form["schema"]]
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes += node
        elif isinstance(node, dict):
            node = cast("dict[str, Any]", node)
            nodes += node.values()
            closed = node.get("additionalProperties") is False
            _want(closed or node.get("type") != "object", "'additionalProperties' must be false")
            _want("maximum" not in node, "For 'integer' type, property 'maximum' is not supported")


class PromptCache:
    """The vendor's cache of prompt prefixes, without its expiry.

    An entry is written at each mark; a prefix is looked for at each mark and up to 20 blocks back.
    The marks themselves, which move forward with a conversation, are not part of it.
    """

    def __init__(self, least: int) -> None:
        """Keep prefixes from `least` tokens up; a token is four bytes."""
        self._least = least
        self._entries: set[bytes] = set()

    def count(self, body: dict[str, Any]) -> Usage:
        """Return the tokens in, as far as they were found and written."""
        digest = hashlib.sha256(body["model"].encode())
        prefixes: list[bytes] = []
        sizes: list[int] = []
        marks: list[int] = []
        size, before = 0, ""
        for place, (level, block) in enumerate(_blocks(body)):
            if level != before and before in {"", "tools", "system"} and level[0] == "m":
                digest.update(orjson.dumps([body.get("tool_choice"), body.get("thinking")]))
            before = level
            plain = orjson.dumps({k: v for k, v in block.items() if k != "cache_control"})
            digest.update(level.encode() + plain)
            size += -(-len(plain) // 4)
            prefixes.append(digest.digest())
            sizes.append(size)
            if "cache_control" in block:
                marks.append(place)
        read = max((self._found(prefixes, sizes, mark) for mark in marks), default=0)
        cached = [mark for mark in marks if sizes[mark] >= self._least]
        self._entries.update(prefixes[mark] for mark in cached)
        written = max(sizes[cached[-1]] - read, 0) if cached else 0
        return Usage(input=size, cached=read, written=written)

    def _found(self, prefixes: list[bytes], sizes: list[int], mark: int) -> int:
        for place in range(mark, max(mark - LOOKBACK, -1), -1):
            if prefixes[place] in self._entries:
                return sizes[place]
        return 0


def _blocks(body: dict[str, Any]) -> Iterator[tuple[str, Block]]:
    """Go through everything that is cached, in the order of the cache."""
    for tool in body.get("tools") or ():
        yield "tools", tool
    for block in body.get("system") or ():
        yield "system", block
    for index, message in enumerate(body["messages"]):
        for block in message["content"]:
            yield f"messages.{index}.{message['role']}", block
