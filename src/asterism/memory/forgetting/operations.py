"""Loro's operations as JSON: which of them wrote a text, and how it is covered in them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism.memory.documents.values import ROW_ID
from asterism.memory.forgetting.redaction import FORGOTTEN, Redactor, same_length
from asterism.store.blocks import EditRow

if TYPE_CHECKING:
    from loro import Frontiers, IdSpan, LoroDoc

Ids = set[tuple[int, int]]
"""Characters, by the peer and the counter of what wrote them."""


def take_in(document: LoroDoc, *blobs: bytes) -> None:
    """Import what is not empty."""
    for blob in blobs:
        if blob:
            document.import_(blob)


def update_between(document: LoroDoc, before: Frontiers, after: Frontiers) -> bytes:
    """Return the update that leads from one version to another."""
    from loro import ExportMode

    spans = between(document, before, after)
    return document.export(ExportMode.UpdatesInRange(spans)) if spans else b""


def between(document: LoroDoc, before: Frontiers, after: Frontiers) -> list[IdSpan]:
    """Return the operations that lead from one version to another."""
    former, latter = document.frontiers_to_vv(before), document.frontiers_to_vv(after)
    assert former is not None
    assert latter is not None
    return latter.sub_iter(former)


def said_at(document: LoroDoc, updates: dict[str, Any], state: Frontiers) -> tuple[Ids, set[str]]:
    """Return the characters that a document shows in a state, and its values as JSON."""
    from loro import Side

    document.checkout(state)
    found: Ids = set()
    for container in _texts(updates):
        text = document.get_text(_container(container, updates))
        for at in range(text.len_unicode):
            cursor = text.get_cursor(at, Side.Middle)
            if cursor is not None and cursor.id is not None:
                found.add((cursor.id.peer, cursor.id.counter))
    values: set[str] = set()
    _leaves(document.get_deep_value(), values)
    document.checkout_to_latest()
    return found, values


def _leaves(value: Any, found: set[str]) -> None:
    if isinstance(value, dict | list):
        parts = cast("Any", value)
        for one in parts.values() if isinstance(value, dict) else parts:
            _leaves(one, found)
    if not isinstance(value, bytes):
        found.add(_as_json(value))


def _as_json(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def written_by(
    document: LoroDoc, updates: dict[str, Any], versions: Iterable[bytes], redactor: Redactor
) -> Ids:
    """Return the characters that make it up in any state that the document was ever in."""
    from loro import Frontiers, Side

    texts = _texts(updates)
    found: Ids = set()
    seen: set[tuple[str, str]] = set()
    states = [Frontiers.decode(version) for version in versions]
    for state in (*_states(updates), *states, document.oplog_frontiers) if texts else ():
        document.checkout(state)
        for container in texts:
            text = document.get_text(_container(container, updates))
            written = text.to_string()
            if (container, written) in seen:
                continue
            seen.add((container, written))
            for start, end in redactor.spans(written):
                redactor.found += 1
                for at in range(start, end):
                    cursor = text.get_cursor(at, Side.Middle)
                    if cursor is not None and cursor.id is not None:
                        found.add((cursor.id.peer, cursor.id.counter))
    document.checkout_to_latest()
    return found


def _texts(updates: dict[str, Any]) -> list[str]:
    """Return the containers of text."""
    ops = (op for change in updates["changes"] for op in change["ops"])
    return sorted({op["container"] for op in ops if op["container"].endswith(":Text")})


def written_in(document: LoroDoc, past: Sequence[EditRow], gone: Sequence[EditRow]) -> Ids:
    """Return all that edits have written."""
    from loro import Frontiers

    before = {edit.number + 1: edit.version for edit in past}
    found: Ids = set()
    for edit in gone:
        start = before.get(edit.number)
        since = Frontiers.decode(start) if start is not None else Frontiers()
        for span in between(document, since, Frontiers.decode(edit.version)):
            counters = range(span.counter.start, span.counter.end)
            found.update((span.peer, counter) for counter in counters)
    return found


def _states(updates: dict[str, Any]) -> Iterable[Any]:
    """Return the state after each operation on a text."""
    from loro import ID, Frontiers

    for change in updates["changes"]:
        peer = _peer(updates, change["id"])
        for op in change["ops"]:
            if op["container"].endswith(":Text"):
                content = op["content"]
                size = len(content.get("text", "")) or content.get("len", 1)
                yield Frontiers.from_id(ID(peer, op["counter"] + size - 1))


def _peer(updates: dict[str, Any], written: str) -> int:
    """Return the peer of an id such as 12@0, which counts the peers of the export."""
    return int(updates["peers"][int(written.partition("@")[2])])


def _container(written: str, updates: dict[str, Any]) -> Any:
    from loro import ContainerID, ContainerType

    name = written.removeprefix("cid:").removesuffix(":Text")
    if name.startswith("root-"):
        return ContainerID.Root(name.removeprefix("root-"), ContainerType.Text())
    counter = int(name.partition("@")[0])
    return ContainerID.Normal(_peer(updates, name), counter, ContainerType.Text())


def cover(
    updates: dict[str, Any], covered: Ids, redactor: Redactor, kept: Container[str] = ()
) -> bool:
    """Change the operations that wrote it; tell whether there were any.

    Of what is covered wholly, values that are `kept` as JSON stay.
    """
    changed = False
    taken_out = partial(_value, redactor=redactor)
    for change in updates["changes"]:
        peer = _peer(updates, change["id"])
        if change.get("msg"):
            change["msg"] = redactor.text(change["msg"])
        for op in change["ops"]:
            content: dict[str, Any] = op["content"]
            if op["container"] == _ABOUT or content.get("key") == ROW_ID:
                continue
            name, colon, kind = op["container"].rpartition(":")
            if name.startswith(_ROOT):
                # Named after sections and fields.
                op["container"] = _ROOT + redactor.text(name.removeprefix(_ROOT)) + colon + kind
            if "text" in content:
                new = _covered(content["text"], peer, op["counter"], covered, redactor)
                changed = changed or new != content["text"]
                content["text"] = new
            for name in ("key", "value") if content["type"] != "counter" else ():
                if name in content:
                    wholly = name == "value" and (peer, op["counter"]) in covered
                    wholly = wholly and _as_json(content[name]) not in kept
                    new = (_emptied if wholly else taken_out)(content[name])
                    changed = changed or new != content[name]
                    content[name] = new
    return changed


def _covered(text: str, peer: int, counter: int, covered: Ids, redactor: Redactor) -> str:
    if covered:
        text = "".join(
            same_length(one) if (peer, at) in covered else one
            for at, one in enumerate(text, counter)
        )
    # What was written and taken out again in one edit was never to be seen, but is kept.
    return redactor.text(text, same_length)


def _value(value: Any, redactor: Redactor) -> Any:
    """Return a value that an operation has put somewhere, without it."""
    if isinstance(value, str) and value.startswith(_NESTED_CONTAINER):
        return value
    if isinstance(value, list):
        return _same_or([_value(item, redactor) for item in cast("list[Any]", value)], value)
    changed: Any = redactor.value(value)
    # A field of numbers holds a number, whatever else it may not hold.
    return 0 if changed is not value and isinstance(value, int | float) else changed


def _emptied(value: Any) -> Any:
    """Return a value that says nothing, of the same kind."""
    if isinstance(value, str):
        return value if value.startswith(_NESTED_CONTAINER) or not value else FORGOTTEN
    if isinstance(value, list):
        return _same_or([_emptied(item) for item in cast("list[Any]", value)], value)
    if isinstance(value, dict):
        return {name: _emptied(item) for name, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, bool) or value is None:
        return value
    return 0


def _same_or(items: list[Any], value: Any) -> Any:
    same = all(new is old for new, old in zip(items, value, strict=True))
    return value if same else items


_ROOT = "cid:root-"
_ABOUT = "cid:root-about:Map"
_NESTED_CONTAINER = "\N{PARROT}:cid:"
