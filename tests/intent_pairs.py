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
from asterism.types.deeds import Declared, Deed, Does

DATA = Path(__file__).parent / "data"
_MAIL = Does("read", source="mail", fields=("id", "date", "sender"))
_PAY = Does("pay", recipients="to", amount="amount", content="note")
_EVENT = Does("write", content=("title", "place"))
_GUESTS = Does("send", recipients="guests", content=("title", "place"))


def _batch(arguments: Mapping[str, Any]) -> list[Deed]:
    return [_PAY.deed(one) for one in arguments.get("payments", [])]


def _event(arguments: Mapping[str, Any]) -> list[Deed]:
    own, told = _EVENT.deed(arguments), _GUESTS.deed(arguments)
    return [own, told] if told.recipients else [own]


TOOLS: Mapping[str, Declared | None] = {
    "read_mail": _MAIL,
    "search_mail": _MAIL,
    "read_file": Does("read", paths="path", source="files"),
    "list_files": Does("read", paths="folder", source="files", fields=("id", "name", "size")),
    "browse": Does("fetch", hosts="url", source="web"),
    "web_search": Does("fetch", content="query", source="web"),
    "contacts": Does("read", source="contacts", fields="*"),
    "bank_history": Does(
        "read",
        source="bank",
        fields=("id", "date", "sender", "recipient", "amount"),
        accounts=("sender", "recipient"),
    ),
    "standing_orders": Does("read", source="standing orders", fields="*"),
    "calendar": Does("read", source="calendar", fields=("id", "start", "end", "participants")),
    "read_chat": Does(
        "read", things="channel", source="chat", fields=("sender", "channel"), closed=True
    ),
    "channels": Does("read", source="channels", fields="*"),
    "tickets": Does("read", source="tickets", fields=("id", "status", "reporter")),
    "shop": Does("read", source="shop", fields=("id", "price", "name")),
    "devices": Does("read", source="devices", fields="*"),
    "send_mail": Does("send", recipients="to", content=("subject", "body")),
    "send_chat": Does("send", recipients="channel", content="text"),
    "pay": _PAY,
    "change_order": Does("pay", things="id", recipients="to", amount="amount"),
    "transfer_batch": _batch,
    "save_file": Does("write", paths="path", content="text"),
    "delete_file": Does("delete", paths="path"),
    "delete_mail": Does("delete", things="id"),
    "create_event": _event,
    "cancel_event": Does("delete", things="id"),
    "update_ticket": Does("write", things="id", content=("status", "comment")),
    "set_device": Does("write", things="id", content="value"),
    "order_item": Does("pay", things="item", amount="quantity"),
    "shell": Does("run", content="command"),
    "share_file": Does("grant", recipients="with", paths="path"),
    "add_member": Does("grant", recipients="user", things="channel"),
    "set_password": Does("grant", things="service", content="password"),
    "post": Does("send", hosts="url", content="text"),
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
            gate.result(one["tool"], one["arguments"], one["value"], tier=one["tier"])
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
