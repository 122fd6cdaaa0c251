"""Values of fields: checked as they come in, and shown on one line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, cast

from asterism.errors import InvalidInput, NotFound
from asterism.times import read_iso
from asterism.types.memory import Field, FieldType

_MOST_EXACT = 2**53
"""Beyond it a JSON number is not exact any more."""
_TAKES = {
    FieldType.TEXT: 'text, such as "tea"',
    FieldType.NUMBER: "a number, such as 3 or 2.5",
    FieldType.BOOLEAN: "true or false",
    FieldType.LIST: 'a list of texts, numbers and booleans, such as ["tea", "quiet"]',
    FieldType.TIMESTAMP: 'a time in ISO 8601, such as "2026-10-12T09:00:00Z"',
    FieldType.COUNTER: "a number, such as 5",
}
_SHOWN_OF_VALUE = 60
_UNCHANGED = "Nothing was changed."


def clean_text(text: str, what: str) -> str:
    r"""Return text with `\n` as its only line end, or refuse what no text may hold."""
    for character, name in (("\0", "a null character"), (None, "half a character (a surrogate)")):
        at = text.find(character) if character is not None else _surrogate(text)
        if at >= 0:
            raise InvalidInput(
                f"{what} holds {name} at position {at + 1}. Take it out and try again.",
                outcome=_UNCHANGED,
            )
    return text.replace("\r\n", "\n")


def _surrogate(text: str) -> int:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return error.start
    return -1


def read_value(field: Field, given: Any) -> Any:
    """Return the value that a field takes for what was given, or refuse it.

    What a command line or a model writes as text is understood for other types too: `"5"` is a
    number, `"true"` a boolean, `'["a"]'` a list.
    """
    match field.type:
        case FieldType.TEXT if isinstance(given, str):
            return clean_text(given, f"The value of {field.name!r}")
        case FieldType.NUMBER | FieldType.COUNTER:
            number = _number(given)
            if number is not None:
                return number
        case FieldType.BOOLEAN:
            if isinstance(given, bool):
                return given
            if isinstance(given, str) and given.strip().lower() in ("true", "false", "yes", "no"):
                return given.strip().lower() in ("true", "yes")
        case FieldType.LIST:
            return _list(field, given)
        case FieldType.TIMESTAMP if isinstance(given, str) and _is_time(given.strip()):
            return given.strip()
        case _:
            pass
    raise _refused(field, given)


def _refused(field: Field, given: Any) -> InvalidInput:
    return InvalidInput(
        f"Field {field.name!r} takes {_TAKES[field.type]}, and was given {_short(given)}.",
        outcome=_UNCHANGED,
    )


def _short(given: Any) -> str:
    told = repr(given)
    return told if len(told) <= _SHOWN_OF_VALUE else told[: _SHOWN_OF_VALUE - 1] + "…"


def _number(given: Any) -> int | float | None:
    if isinstance(given, str) and len(given) <= 40:
        try:
            given = json.loads(given.strip())
        except ValueError:
            return None
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    if not math.isfinite(given) or abs(given) > _MOST_EXACT:
        return None
    return given


def tidy_number(number: float) -> int | float:
    """Return a whole number as an int, and no float noise: what a counter's sum is shown as."""
    number = round(number, 9)
    return int(number) if number == int(number) else number


def _list(field: Field, given: Any) -> list[Any]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise _refused(field, given) from None
    if not isinstance(given, list | tuple):
        raise _refused(field, given)
    values: list[Any] = []
    for one in cast("Iterable[Any]", given):
        if isinstance(one, str):
            values.append(clean_text(one, f"The value of {field.name!r}"))
        elif isinstance(one, bool) or _number(one) is not None:
            values.append(one)
        else:
            raise _refused(field, one)
    return values


def _is_time(text: str) -> bool:
    try:
        read_iso(text)
    except ValueError:
        return False
    return True


def read_fields(
    fields: Iterable[Field], given: Mapping[str, Any], what: str, *, whole: bool
) -> dict[str, Any]:
    """Return checked values by name; with `whole`, what is left out gets its default.

    Args:
        fields: What may be given.
        given: Values by name; None leaves a field without one.
        what: What they belong to, for the error: `An item`.
        whole: Whether everything that is required has to be there.
    """
    known = {field.name: field for field in fields}
    for name in given:
        if name not in known:
            raise unknown("field", str(name), known, where=f" of {what}")
    values = {
        name: read_value(known[name], value) for name, value in given.items() if value is not None
    }
    if not whole:
        return values
    for field in known.values():
        if field.name in values:
            continue
        if field.default is not None and field.name not in given:
            values[field.name] = field.default
        elif field.required:
            raise InvalidInput(
                f"Field {field.name!r} is required in {what} and was left out. Give it "
                f"{_TAKES[field.type]}; nothing was changed."
            )
    return {name: values[name] for name in known if name in values}


def unknown(kind: str, name: str, known: Iterable[str], where: str = "") -> NotFound:
    """Return the error for a name that is not there, with the nearest one that is."""
    names = list(known)
    near = get_close_matches(name[:80], names, 1)
    listed = ", ".join(repr(one) for one in names[:12]) + (" …" if len(names) > 12 else "")
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return NotFound(
        f"There is no {kind} {_short(name)}{where}.{hint} "
        + (f"There is {listed}. " if names else "")
        + "Nothing was changed."
    )


def shown(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value.replace("\n", "\\n")
    if isinstance(value, int | float):
        return str(tidy_number(value))
    return json.dumps(value, ensure_ascii=False)
