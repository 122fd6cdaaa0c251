"""The shape of an answer: JSON that fulfils a schema, where whoever asks wants it so."""

from __future__ import annotations

import re
from typing import Any

import orjson

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)


def unfenced(text: str) -> str:
    """Return JSON without the code fence that models like to put around it."""
    found = _FENCED.fullmatch(text)
    return found[1] if found else text.strip()


def fault_of(text: str, schema: dict[str, Any]) -> str:
    """Say in what an answer does not fulfil a schema; nothing if it does."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"it is not JSON ({error})"
    from jsonschema.validators import validator_for

    fault = next(iter(validator_for(schema)(schema).iter_errors(value)), None)
    return "" if fault is None else f"at {fault.json_path}, {fault.message[:300]}"


def fault_of_schema(schema: dict[str, Any]) -> str:
    """Say what is wrong with a schema itself; nothing if it can be used."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        return f"at {error.json_path}, {error.message[:300]}"
    return ""
