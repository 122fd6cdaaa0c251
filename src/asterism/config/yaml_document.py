"""A YAML file as a document: its values and the line of each key."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from asterism.config.document import Document, Key, printable, read_text, refuse_depth
from asterism.errors import ConfigError


def read_yaml(path: Path) -> Document:
    """Read a YAML file; raise `ConfigError` with the line if it cannot be used."""
    from importlib import import_module

    yaml: Any = import_module("yaml")
    text = read_text(path, must_exist=True)
    try:
        if any(isinstance(one, yaml.AliasToken) for one in yaml.scan(text)):
            # A few of them can stand for more than memory holds.
            raise ConfigError(f"{path.name} uses an alias (*name); write the values out instead.")
        node: Any = yaml.compose(text, yaml.SafeLoader)
        values: Any = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        problem = printable(str(getattr(error, "problem", None) or "it cannot be read"), 200)
        raise ConfigError(f"{path.name} line {line}: this is not valid YAML: {problem}.") from None
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"{path.name} is not valid YAML: {printable(str(error), 200)}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path.name}: names with values are needed, such as policy: [].")
    table = cast("dict[str, Any]", values)
    refuse_depth(table, path.name)
    lines: dict[Key, int] = {}
    if node is not None:
        _note_lines(node, (), lines)
    return Document(path.name, text, table, lines)


def _note_lines(node: Any, key: Key, lines: dict[Key, int]) -> None:
    lines.setdefault(key, node.start_mark.line + 1)
    if node.id == "mapping":
        for name, inner in node.value:
            within = (*key, str(name.value))
            lines[within] = name.start_mark.line + 1
            _note_lines(inner, within, lines)
    elif node.id == "sequence":
        for number, inner in enumerate(node.value):
            _note_lines(inner, (*key, number), lines)
