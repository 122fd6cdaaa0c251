"""Pairs of an attack and an honest request for the gate, and the tools they are made with.

The pairs were written before the rules were changed, by somebody who had seen neither rules nor
code. One half (`tuned`) was looked at while the rules were made; the other (`held_out`) was not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asterism.gate import Allow, Gate, Reader
from asterism.types.permissions import Declared, Effect, ToolEffect

DATA = Path(__file__).parent / "data"
_MAIL = ToolEffect("read", source="mail", fields=("id", "date", "sender"))
_PAY = ToolEffect("pay", recipients="to", amount="amount", content="note")
_EVENT = ToolEffect("write", content=("title", "place"))
_GUESTS = ToolEffect("send", recipients="guests", content=("title", "place"))


def _batch(arguments: Mapping[str, Any]) -> list[Effect]:
    return [_PAY.effect(one) for one in arguments.get("payments", [])]


def _event(arguments: Mapping[str, Any]) -> list[Effect]:
    own, told = _EVENT.effect(arguments), _GUESTS.effect(arguments)
    return [own, told] if told.recipients else [own]


TOOLS: Mapping[str, Declared | None] = {
    "read_mail": _MAIL,
    "search_mail": _MAIL,
    "read_file": ToolEffect("read", paths="path", source="files"),
    "list_files": ToolEffect("read", paths="folder", source="files", fields=("id", "name", "size")),
    "browse": ToolEffect("fetch", hosts="url", source="web"),
    "web_search": ToolEffect("fetch", content="query", source="web"),
    "contacts": ToolEffect("read", source="contacts", fields="*"),
    "bank_history": ToolEffect(
        "read",
        source="bank",
        fields=("id", "date", "sender", "recipient", "amount"),
        accounts=("sender", "recipient"),
    ),
    "standing_orders": ToolEffect("read", source="standing orders", fields="*"),
    "calendar": ToolEffect(
        "read", source="calendar", fields=("id", "start", "end", "participants")
    ),
    "read_chat": ToolEffect(
        "read", things="channel", source="chat", fields=("sender", "channel"), closed=True
    ),
    "channels": ToolEffect("read", source="channels", fields="*"),
    "tickets": ToolEffect("read", source="tickets", fields=("id", "status", "reporter")),
    "shop": ToolEffect("read", source="shop", fields=("id", "price", "name")),
    "devices": ToolEffect("read", source="devices", fields="*"),
    "send_mail": ToolEffect("send", recipients="to", content=("subject", "body")),
    "send_chat": ToolEffect("send", recipients="channel", content="text"),
    "pay": _PAY,
    "change_order": ToolEffect("pay", things="id", recipients="to", amount="amount"),
    "transfer_batch": _batch,
    "save_file": ToolEffect("write", paths="path", content="text"),
    "delete_file": ToolEffect("delete", paths="path"),
    "delete_mail": ToolEffect("delete", things="id"),
    "create_event": _event,
    "cancel_event": ToolEffect("delete", things="id"),
    "update_ticket": ToolEffect("write", things="id", content=("status", "comment")),
    "set_device": ToolEffect("write", things="id", content="value"),
    "order_item": ToolEffect("pay", things="item", amount="quantity"),
    "shell": ToolEffect("run", content="command"),
    "share_file": ToolEffect("grant", recipients="with", paths="path"),
    "add_member": ToolEffect("grant", recipients="user", things="channel"),
    "set_password": ToolEffect("grant", things="service", content="password"),
    "post": ToolEffect("send", hosts="url", content="text"),
}
"""As the authors of such tools would declare them; `do_anything` declares nothing."""


@dataclass(frozen=True)
class Pair:
    """One request, what was read for it, and two calls that might follow."""

    id: str
    kind: str
    language: str
    request: str
    trusted: list[str]
    readings: list[dict[str, Any]]
    intent: list[dict[str, Any]]
    honest: dict[str, Any] | None
    attack: dict[str, Any]

    def gate(self, reader: Reader | None = None, *, weak: bool = False) -> Gate:
        """The gate after everything was read."""
        gate = Gate(self.request, tools=TOOLS, trusted=self.trusted, reader=reader, weak=weak)
        for one in self.readings:
            gate.result(one["tool"], one["arguments"], one["value"], trust=one["trust"])
        return gate

    def scripted(self) -> Gate:
        """The gate with a reader that answers as a good model would."""
        return self.gate(lambda _: self.intent)


def pairs(half: str) -> list[Pair]:
    """One half of the pairs: `tuned` or `held_out`."""
    lines = (DATA / f"intent_pairs_{half}.jsonl").read_text(encoding="utf-8").splitlines()
    return [Pair(**json.loads(line)) for line in lines]


def runs(gate: Gate, call: Mapping[str, Any]) -> bool:
    """Whether a call would run without a question."""
    return isinstance(gate.judge(call["tool"], call["arguments"]), Allow)


def reason(gate: Gate, call: Mapping[str, Any]) -> str:
    """Why it would not."""
    return gate.judge(call["tool"], call["arguments"]).reason
