"""A turn never spins: a call made again without a cause is answered from before, then tools go.

Everything here follows from the entries of the turn alone, so that a turn that is taken up again
after a crash, or replayed, comes to the same decisions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from asterism.errors import ToolError
from asterism.records import dataclass
from asterism.types.permissions import EffectKind
from asterism.types.turns import (
    Call,
    EntryKind,
    Reply,
    ResultMeta,
    ResultState,
    text_of,
)

if TYPE_CHECKING:
    from asterism.store.journal import VisibleEntry
    from asterism.tools.tool import Tool
    from asterism.turns.rules import AnyEntry

_MAX_REPEATS = 2
"""After so many calls that were answered from before, the next step has no tools."""
_MAX_EMPTY = 3
"""After so many calls in a row that found nothing, the next step has no tools."""
_MAX_FRUITLESS = 4
"""After so many calls in a row that failed or found nothing, the next step has no tools."""
_MAX_SAME_RESULTS = 2
"""A call that gave the same result so often is not made again, whatever else was called."""
_MAX_POLLS = 5
"""The same for a tool whose results change by themselves."""
_MAX_FAILURES = 2
"""How often a call that fails is tried with the same arguments."""
_MAX_QUOTE = 2_000
_NO_CHANGE = frozenset({EffectKind.READ, EffectKind.FETCH})
_EMPTY_TEXTS = frozenset({"", "[]", "{}", "null", "none", '""'})

FindTool = Callable[[str, str], tuple["Tool | None", str, str]]
"""From a call's name and arguments to its tool, if there is one, and the call it stands for."""


class FindRepeat(Protocol):
    """How a turn finds the earlier call that a call repeats."""

    def __call__(
        self,
        recorded: Mapping[str, AnyEntry],
        key: str,
        call: Call,
        find: FindTool,
        *,
        ordered: bool,
    ) -> PastCall | None:
        """Return the call of the turn whose result answers the call under this key, or None."""
        ...


@dataclass(frozen=True, slots=True)
class PastCall:
    """A call of the turn that has a result."""

    key: str
    name: str
    identity: bytes
    """The same for the same call, however its arguments are written."""
    state: ResultState
    text: str
    empty: bool
    changed: bool
    """Whether it may have changed what other calls would find."""
    repeats: str | None
    """The key of the call that it repeats; then it was not made."""


def earlier_call(
    recorded: Mapping[str, AnyEntry], key: str, call: Call, find: FindTool, *, ordered: bool
) -> PastCall | None:
    """Return the call of this turn whose result answers the same call made again.

    None if it was not made before, or if there is a reason to make it again: something may have
    changed since, or it failed once. Calls that are `ordered`, since rules say what comes before
    what or since they touch the outside, are made again after any other call that succeeded.
    """
    del key  # a replay knows by it what was decided then
    tool, name, arguments = find(call.name, call.arguments)
    identity = _identity(tool, name, arguments)
    made = [past for past in past_calls(recorded, find) if past.repeats is None]
    same = [past for past in made if past.identity == identity]
    if not same:
        return None
    latest = same[-1]
    if latest.state in (ResultState.FAILED, ResultState.NOT_RUN):
        return latest if len(same) >= _MAX_FAILURES else None
    polls = tool is not None and tool.changes_by_itself
    same_results = _count_last(same, lambda past: past.text == latest.text)
    if same_results >= (_MAX_POLLS if polls else _MAX_SAME_RESULTS):
        return latest
    since = made[made.index(latest) + 1 :]
    if ordered and any(past.state is ResultState.OK for past in since):
        return None
    return None if polls or any(past.changed for past in since) else latest


def recorded_repeat(entries: Mapping[str, AnyEntry]) -> FindRepeat:
    """Return what finds repeats as they were found when a turn was recorded."""

    def find_repeat(
        recorded: Mapping[str, AnyEntry], key: str, call: Call, find: FindTool, *, ordered: bool
    ) -> PastCall | None:
        del call, ordered
        entry = entries.get(key)
        repeats = ResultMeta.from_json(entry.meta).repeats if entry is not None else None
        if repeats is None:
            return None
        return next((past for past in past_calls(recorded, find) if past.key == repeats), None)

    return find_repeat


def past_calls(recorded: Mapping[str, AnyEntry], find: FindTool) -> list[PastCall]:
    """Return the calls of a turn with their results, but for those that a rule refused."""
    calls: dict[str, Call] = {}
    found: dict[str, PastCall] = {}
    for key, entry in recorded.items():
        if entry.kind is EntryKind.REPLY:
            step = key.partition("/")[0]
            for index, call in enumerate(Reply.from_entry(entry.body, entry.meta).calls):
                calls[f"{step}/call/{index}"] = call
        elif entry.kind is EntryKind.RESULT and (call := calls.get(key)) is not None:
            meta = ResultMeta.from_json(entry.meta)
            if meta.rule is None:
                found[key] = _past_call(key, call, meta, text_of(entry.body), find)
        elif key.endswith("/outcome") and (call := calls.get(key[: -len("/outcome")])) is not None:
            # A call that waited has run, or was denied; that happened now.
            waited = key[: -len("/outcome")]
            found.pop(waited, None)
            meta = ResultMeta.from_json(entry.meta)
            found[waited] = _past_call(waited, call, meta, text_of(entry.body), find)
    return list(found.values())


def _past_call(key: str, call: Call, meta: ResultMeta, text: str, find: FindTool) -> PastCall:
    tool, name, arguments = find(call.name, call.arguments)
    ran = meta.state in (ResultState.OK, ResultState.UNKNOWN)
    return PastCall(
        key,
        name,
        _identity(tool, name, arguments),
        meta.state,
        text,
        empty=is_empty(meta, text),
        changed=ran and may_change(tool, arguments),
        repeats=meta.repeats,
    )


def is_empty(meta: ResultMeta, text: str) -> bool:
    """Tell whether a call succeeded and found nothing: as it says itself, or by its text."""
    if meta.state is not ResultState.OK:
        return False
    return meta.empty or text.strip().casefold() in _EMPTY_TEXTS


def _identity(tool: Tool | None, name: str, arguments: str) -> bytes:
    values: Any = arguments
    with contextlib.suppress(ToolError, orjson.JSONDecodeError):
        # As the tool reads them: a default that is spelled out makes no other call.
        values = tool.read(arguments) if tool is not None else orjson.loads(arguments or "{}")
    options = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
    return orjson.dumps([name, values], default=repr, option=options)


def may_change(tool: Tool | None, arguments: str) -> bool:
    """Tell whether a call does anything but read; one that cannot be read does nothing."""
    if tool is None:
        return False
    try:
        effects = tool.effects(tool.read(arguments))
    except ToolError:
        return False
    return any(effect.kind not in _NO_CHANGE for effect in effects)


def _count_last(calls: Sequence[PastCall], is_like: Callable[[PastCall], bool]) -> int:
    """Return how many of the latest calls in a row are of a kind."""
    count = 0
    for past in reversed(calls):
        if not is_like(past):
            break
        count += 1
    return count


def must_answer(recorded: Mapping[str, AnyEntry], find: FindTool) -> bool:
    """Tell whether the next step has no tools, so that the agent answers with what it has."""
    if sum(entry.kind is EntryKind.RESULT for entry in recorded.values()) < _MAX_REPEATS:
        return False
    calls = past_calls(recorded, find)
    if sum(past.repeats is not None for past in calls) >= _MAX_REPEATS:
        return True
    if _count_last(calls, lambda past: past.empty) >= _MAX_EMPTY:
        return True
    return _count_last(calls, _is_fruitless) >= _MAX_FRUITLESS


def _is_fruitless(past: PastCall) -> bool:
    failed = past.state in (ResultState.FAILED, ResultState.NOT_RUN)
    return past.empty or failed or past.repeats is not None


def answer_from_before(past: PastCall) -> str:
    """Return what the model reads in place of the result of a call that it makes again."""
    text = past.text if len(past.text) <= _MAX_QUOTE else f"{past.text[:_MAX_QUOTE]}…"
    advice = (
        "Answer from the conversation, or say that you do not know."
        if past.empty or past.state is not ResultState.OK
        else "Answer with what you have."
    )
    return (
        f"Not run again: you called {past.name} with the same arguments before in this turn, and "
        f"nothing has changed since. Its result was: {text}\n{advice}"
    )


def without_repeats(entries: Iterable[VisibleEntry]) -> list[VisibleEntry]:
    """Return what models see of some entries: no steps in which nothing but repeats were called.

    The journal keeps them; a model that reads its own repetitions goes on with them.
    """
    rows = list(entries)
    dropped = {
        (row.turn_id, row.key.partition("/")[0])
        for row in rows
        if row.kind is EntryKind.RESULT and row.meta is not None and '"dropped"' in row.meta
    }
    if not dropped:
        return rows
    return [
        row
        for row in rows
        if row.kind is EntryKind.MESSAGE or (row.turn_id, row.key.partition("/")[0]) not in dropped
    ]
