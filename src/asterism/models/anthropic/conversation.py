"""A conversation as the Messages API takes it: turns that alternate, every call with its result.

Messages of one side in a row become one, results come before what is said with them, ids of calls
are unique, and what lacks its counterpart is filled in. All of it is decided from the front, so
that a longer conversation begins with the same blocks as a shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson

from asterism.models.anthropic.blocks import (
    ConvertedMessage,
    ToolUse,
    convert_message,
    text_block,
    tool_result_block,
    tool_use_block,
)

if TYPE_CHECKING:
    from asterism.ports import ModelRequest

CACHE_MARK = b',"cache_control":{"type":"ephemeral"}}'
_EARLIER = text_block("[asterism] What was said before is not shown.")
_GO_ON = text_block("[asterism] Go on.")
_NO_RESULT = b',"is_error":true,"content":[%b]}' % b"".join(
    text_block("[asterism] There is no result: the call was interrupted.")
)
_LATEST = 2
_THINKING = frozenset({"thinking", "redacted_thinking"})


class Conversation:
    """The system prompt and the messages of a request, which a later request may continue."""

    def __init__(self, frozen: int) -> None:
        """Begin a conversation of which the first `frozen` messages stay from turn to turn."""
        self.system: list[bytes] = []
        self.tool_names: dict[str, None] = {}
        """The tools that were called in it, in order."""
        self.lacks_thinking = False
        """Whether the reply that the last results belong to came without a thought."""
        self.frozen = frozen
        self.read: list[bytes] = []
        """The messages that were taken in."""
        self.size = 0
        self._settled: list[bytes] = []
        """Messages that nothing can change, in the API's form."""
        self._turns: list[list[bytes]] = []
        """The blocks of the latest turns; the user's and the assistant's alternate."""
        self._results: list[bytes] = []
        self._user_blocks: list[bytes] = []
        self._ids: set[str] = set()
        self._waiting: dict[str, list[str]] = {}
        """The calls without a result, by their id in the wire form."""

    def copy(self) -> Conversation:
        """Return a copy that goes its own way."""
        other = Conversation(self.frozen)
        other.system, other.tool_names = self.system.copy(), self.tool_names.copy()
        other.lacks_thinking = self.lacks_thinking
        other.read, other.size = self.read.copy(), self.size
        other._settled = self._settled.copy()
        other._turns = [turn.copy() for turn in self._turns]
        other._results, other._user_blocks = self._results.copy(), self._user_blocks.copy()
        other._ids = self._ids.copy()
        other._waiting = {id: ids.copy() for id, ids in self._waiting.items()}
        return other

    def add(self, wire: bytes, thought: bytes | None = None) -> None:
        """Take in the next message."""
        piece = convert_message(wire)
        if piece.role == "assistant":
            if piece.uses or piece.blocks:
                self._add_reply(piece, thought)
        elif piece.role == "user":
            self._user_blocks += piece.blocks
        elif piece.role == "tool":
            self._add_result(piece)
        elif self._turns or self._user_blocks or self._results:
            self._user_blocks += (*text_block("[asterism]"), *piece.blocks)
        else:
            self.system += piece.blocks
        self.read.append(wire)
        self.size += len(wire)
        if len(self.read) == self.frozen:
            _mark_last(self._user_blocks or self._results or (self._turns or [self.system])[-1])

    def end(self) -> bytes:
        """Return the messages, marked where the last request ended and where this one ends."""
        self.lacks_thinking = self.lacks_thinking and bool(self._results or self._waiting)
        self._close_user_turn()
        if self._count() % 2 == 0:
            # Not every model goes on with a reply that was begun, and none takes an empty request.
            self._turns.append(list(_GO_ON))
        # A cached prefix is found at a mark or in the 20 blocks before it, and is written at marks
        # only; the request before this one ended where the last reply began. Marks may move: they
        # are not part of what is compared.
        # https://platform.claude.com/docs/en/build-with-claude/prompt-caching, 2026-11
        for turn in self._turns[-1:-4:-2]:
            _mark_last(turn)
        while self._turns:
            self._settle()
        return b",".join(self._settled)

    def _count(self) -> int:
        return len(self._settled) + len(self._turns)

    def _settle(self) -> None:
        role = b"assistant" if len(self._settled) % 2 else b"user"
        blocks = b",".join(self._turns.pop(0))
        self._settled.append(b'{"role":"%b","content":[%b]}' % (role, blocks))

    def _add_result(self, piece: ConvertedMessage) -> None:
        ids = self._waiting.get(piece.call_id)
        if ids:
            self._results.append(tool_result_block(ids.pop(0), piece.rest))
        else:
            self._user_blocks += piece.blocks

    def _add_reply(self, piece: ConvertedMessage, thought: bytes | None) -> None:
        self._close_user_turn()
        if not self._count():
            self._turns.append(list(_EARLIER))
        if self._count() % 2:
            self._turns.append([])
        ids = [self._unique(use) for use in piece.uses]
        self._turns[-1] += _with_thinking(piece, ids, thought)
        self.lacks_thinking = not thought
        # The latest may still be added to, and the one before it gets a mark.
        while len(self._turns) > 3:
            self._settle()

    def _unique(self, use: ToolUse) -> str:
        id, number = use.safe_id, 1
        while id in self._ids:
            number += 1
            id = f"{use.safe_id}_{number}"
        self._ids.add(id)
        self._waiting.setdefault(use.id, []).append(id)
        self.tool_names[use.name] = None
        return id

    def _close_user_turn(self) -> None:
        """Put what the user's side said into the turns, after a result for each call."""
        self._results += [
            tool_result_block(id, _NO_RESULT) for ids in self._waiting.values() for id in ids
        ]
        self._waiting.clear()
        if self._results or self._user_blocks:
            self._turns.append(self._results + self._user_blocks)
            self._results, self._user_blocks = [], []


class ConversationCache:
    """The conversations of late, so that a call costs what is new in it."""

    def __init__(self, room: int = 64 << 20) -> None:
        """Keep up to `room` bytes of messages; those not used for longest are let go."""
        self._room = self._free = room
        self._known: dict[tuple[str, bytes], Conversation] = {}

    def find(self, request: ModelRequest) -> Conversation:
        """Return the conversation of a request, to be ended and used once."""
        messages, thoughts = request.messages, request.thoughts
        # Thoughts go with a turn, and the last messages may be others next time: neither is kept.
        kept = max(len(messages) - _LATEST, 0)
        if thoughts:
            kept = min(kept, _first_thought(messages, thoughts))
        conversation = self._continue(request, kept).copy()
        for wire in messages[kept:]:
            conversation.add(wire, thoughts.get(wire))
        return conversation

    def _continue(self, request: ModelRequest, count: int) -> Conversation:
        messages = request.messages
        key = (request.agent_id, messages[0] if messages else b"")
        known = self._known.pop(key, None)
        if known is not None:
            self._free += known.size
            length = len(known.read)
            if known.frozen != request.frozen or known.read != messages[: min(length, count)]:
                known = None
        conversation = known or Conversation(request.frozen)
        for wire in messages[len(conversation.read) : count]:
            conversation.add(wire)
        self._known[key] = conversation
        self._free -= conversation.size
        while self._free < 0:
            oldest = next(iter(self._known))
            self._free += self._known.pop(oldest).size
        return conversation


def _first_thought(messages: list[bytes], thoughts: Mapping[bytes, bytes]) -> int:
    """Return the place of the first reply that has a thought; they are near the end."""
    first, left = len(messages), len(thoughts)
    for index in range(len(messages) - 1, -1, -1):
        if messages[index] in thoughts:
            first, left = index, left - 1
            if not left:
                break
    return first


def _with_thinking(piece: ConvertedMessage, ids: list[str], thought: bytes | None) -> list[bytes]:
    """Return the blocks of a reply with the vendor's own record of its reasoning.

    The record is the thinking that the reply began with, or, if the thinking came in between, all
    of its blocks. https://platform.claude.com/docs/en/build-with-claude/extended-thinking, 2026-11
    """
    uses = [tool_use_block(id, use.rest) for id, use in zip(ids, piece.uses, strict=True)]
    if not thought or not thought.startswith(b"[{"):
        return [*piece.blocks, *uses]
    record: list[dict[str, Any]] = orjson.loads(thought)
    if all(block.get("type") in _THINKING for block in record):
        return [thought[1:-1], *piece.blocks, *uses]
    recorded = [block for block in record if block.get("type") == "tool_use"]
    if [block.get("id") for block in recorded] == ids:
        return [thought[1:-1]]
    for block, id in zip(recorded, ids, strict=False):
        block["id"] = id
    return [orjson.dumps(block) for block in record]


def _mark_last(blocks: list[bytes]) -> None:
    if blocks and not blocks[-1].endswith(CACHE_MARK):
        blocks[-1] = blocks[-1][:-1] + CACHE_MARK
