"""Rules for tools as people write them: our form, Pattern's and Letta's, in TOML or JSON."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import orjson

from asterism.errors import InvalidInput
from asterism.private import read_regular
from asterism.times import read_duration
from asterism.types.agents import DEFAULT_PRIORITY, OF_OTHERS, OF_TIME, Rule, RuleKind

_FIELDS = ("tool", "kind", "tools", "operations", "count", "seconds", "priority")
_PATTERN = {
    "startconstraint": RuleKind.START,
    "requiresprecedingtools": RuleKind.PRECEDING,
    "requiresfollowingtools": RuleKind.NOT_AFTER,
    "exclusivegroups": RuleKind.EXCLUSIVE,
    "requiredbeforeexit": RuleKind.BEFORE_EXIT,
    "requiredbeforeexitif": RuleKind.BEFORE_EXIT,
    "maxcalls": RuleKind.MAX_CALLS,
    "cooldown": RuleKind.COOLDOWN,
    "periodic": RuleKind.PERIODIC,
    "requiresconsent": RuleKind.CONSENT,
    "allowedoperations": RuleKind.OPERATIONS,
    "exitloop": RuleKind.EXIT_LOOP,
    "continueloop": RuleKind.CONTINUE_LOOP,
}
"""Pattern's names, without what sets their words apart."""
_MARKS_ONLY = "needed"
"""A name of Pattern's that only marks a tool which a source brings along."""
_LETTA = {
    "run_first": RuleKind.START,
    "InitToolRule": RuleKind.START,
    "exit_loop": RuleKind.EXIT_LOOP,
    "TerminalToolRule": RuleKind.EXIT_LOOP,
    "continue_loop": RuleKind.CONTINUE_LOOP,
    "ContinueToolRule": RuleKind.CONTINUE_LOOP,
    "constrain_child_tools": RuleKind.NEXT,
    "ChildToolRule": RuleKind.NEXT,
    "parent_last_tool": RuleKind.RIGHT_AFTER,
    "ParentToolRule": RuleKind.RIGHT_AFTER,
    "required_before_exit": RuleKind.BEFORE_EXIT,
    "RequiredBeforeExitToolRule": RuleKind.BEFORE_EXIT,
    "max_count_per_step": RuleKind.MAX_CALLS,
    "MaxCountPerStepToolRule": RuleKind.MAX_CALLS,
    "requires_approval": RuleKind.CONSENT,
    "RequiresApprovalToolRule": RuleKind.CONSENT,
}
_LETTA_UNSUPPORTED = ("conditional", "ConditionalToolRule")
"""Letta's rule by which the output of a tool chooses the next: it has no counterpart."""

Form = Mapping[str, Any]


def read_rules(forms: Iterable[Rule | Form]) -> list[Rule]:
    """Return rules from their forms; raise `InvalidInput` that says which one cannot be read."""
    rules: list[Rule] = []
    for number, form in enumerate(forms, 1):
        try:
            read = [form] if isinstance(form, Rule) else _rules_of(form)
            rules += [_checked(rule) for rule in read]
        except InvalidInput as error:
            raise InvalidInput(
                f"Rule {number}: {error.reason}", outcome="Nothing was changed."
            ) from None
    return rules


def read_rules_file(file: Path) -> list[Rule]:
    """Return the rules of a TOML or JSON file: `[[rules]]`, Pattern's or Letta's `tool_rules`."""
    try:
        text = read_regular(file).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"{str(file)!r} cannot be read: {why}. Nothing was changed.") from None
    forms = _parsed(file, text)
    if isinstance(forms, dict):
        table = cast("dict[str, Any]", forms)
        forms = next((table[name] for name in ("rules", "tool_rules") if name in table), None)
    if not isinstance(forms, list):
        raise InvalidInput(
            f"{str(file)!r} has no rules: a list named [[rules]] (or tool_rules) is needed. "
            "Nothing was changed."
        )
    return read_rules(cast("list[Form]", forms))


def _parsed(file: Path, text: str) -> Any:
    from asterism.config.parse import parse_toml

    try:
        # [[rules]] begins like JSON does.
        is_toml = re.match(r"\s*([\w#]|\[\[?\s*[A-Za-z_])", text)
        return parse_toml(text) if is_toml else orjson.loads(text)
    except ValueError as error:
        raise InvalidInput(
            f"{str(file)!r} is neither TOML nor JSON: {error}. Nothing was changed."
        ) from None


def rule_of(tool: str, kind: str, values: Sequence[str]) -> list[Rule]:
    """Return the rule that words on a command line spell, such as `web`, `max_calls`, `3`."""
    form: dict[str, Any] = {"tool": tool, "kind": kind}
    known = _own_kind(kind)
    if known is RuleKind.MAX_CALLS:
        form["count"] = _one(values, "a number of calls such as 3")
    elif known in OF_TIME:
        form["seconds"] = _one(values, "a time such as 90, 10m, 2h or 1d")
    elif known in (RuleKind.OPERATIONS, RuleKind.CONSENT):
        form["operations"] = list(values)
    elif known in OF_OTHERS or known is RuleKind.BEFORE_EXIT:
        form["tools"] = list(values)
    elif values:
        raise InvalidInput(
            f"A rule of the kind {known.value} takes no values, but there is "
            f"{' '.join(values)!r}. Nothing was changed."
        )
    return read_rules([form])


def _one(values: Sequence[str], what: str) -> str:
    if len(values) != 1:
        raise InvalidInput(f"After the kind, {what} is needed. Nothing was changed.")
    return values[0]


def _rules_of(value: Any) -> list[Rule]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a table with a tool and a kind is needed, not {value!r}.")
    form = cast("Form", value)
    if "rule_type" in form:
        return _from_pattern(form)
    if "kind" not in form and "tool_name" in form and "type" in form:
        return _from_letta(form)
    for name in form:
        if name not in _FIELDS:
            near = difflib.get_close_matches(str(name), _FIELDS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidInput(
                f"{name!r} is not a field of a rule.{hint} Use one of: {_list(_FIELDS)}."
            )
    return [
        Rule(
            _text(form.get("tool"), "tool"),
            _own_kind(form.get("kind")),
            _texts(form.get("tools"), "tools"),
            _texts(form.get("operations"), "operations"),
            _count(form.get("count")),
            _seconds(form.get("seconds")),
            _priority(form),
        )
    ]


def _own_kind(value: Any) -> RuleKind:
    try:
        return RuleKind(value)
    except ValueError:
        known = [kind.value for kind in RuleKind]
        near = difflib.get_close_matches(str(value), known, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidInput(
            f"{value!r} is not a valid kind of rule.{hint} Use one of: {_list(known)}."
        ) from None


# -- Pattern ---------------------------------------------------------------------------------------


def _from_pattern(form: Form) -> list[Rule]:
    """Read `{tool_name, rule_type = {type, value}, conditions, priority}`."""
    tool, type_name, value = _text(form.get("tool_name"), "tool_name"), form["rule_type"], None
    if isinstance(type_name, Mapping):
        table = cast("Form", type_name)
        # Both of serde's forms: {type = "MaxCalls", value = 3} and {MaxCalls = 3}.
        type_name, value = (
            (table["type"], table.get("value"))
            if "type" in table
            else next(iter(table.items()), ("", None))
        )
    name = str(type_name).replace("_", "").replace("-", "").casefold()
    if name == _MARKS_ONLY:
        return []
    kind = _PATTERN.get(name)
    if kind is None:
        raise InvalidInput(f"{type_name!r} is not a rule_type of Pattern's.")
    others, priority = _texts(form.get("conditions"), "conditions"), _priority(form)
    if kind is RuleKind.EXCLUSIVE:
        groups = cast("list[Any]", value if isinstance(value, list) else [])
        named = [_texts(group, "groups") for group in groups] or [(tool, *others)]
        return [Rule(first, kind, tuple(rest), priority=priority) for first, *rest in named if rest]
    if name == "requiredbeforeexitif" and not others:
        raise InvalidInput(f"the rule of {tool!r} is conditional, but names no conditions.")
    if kind is RuleKind.MAX_CALLS:
        return [Rule(tool, kind, count=_count(value), priority=priority)]
    if kind in OF_TIME:
        return [Rule(tool, kind, seconds=_seconds(value), priority=priority)]
    if kind is RuleKind.OPERATIONS:
        return [Rule(tool, kind, operations=_texts(value, "operations"), priority=priority)]
    # Other kinds have conditions that say nothing there, either.
    takes = kind in OF_OTHERS or name == "requiredbeforeexitif"
    return [Rule(tool, kind, others if takes else (), priority=priority)]


# -- Letta -----------------------------------------------------------------------------------------


def _from_letta(form: Form) -> list[Rule]:
    """Read `{tool_name, type, children, max_count_limit}`."""
    tool, type_name = _text(form.get("tool_name"), "tool_name"), form["type"]
    if type_name in _LETTA_UNSUPPORTED:
        raise InvalidInput(
            f"the rule of {tool!r} chooses the next tool by what {tool!r} returned, which rules "
            'do not support. Leave it out, or name the choices with the kind "next".'
        )
    kind = _LETTA.get(str(type_name))
    if kind is None:
        raise InvalidInput(f"{type_name!r} is not a type of Letta's tool rules.")
    if form.get("args"):
        raise InvalidInput(
            f"the rule of {tool!r} gives the tool arguments, which rules do not support. Leave out "
            "args."
        )
    children = _texts(form.get("children"), "children")
    if kind is RuleKind.RIGHT_AFTER:
        # Letta names the parent, and its children are what may only follow it.
        return [Rule(child, kind, (tool,)) for child in children]
    if kind is RuleKind.NEXT:
        return [Rule(tool, kind, children)]
    count = _count(form.get("max_count_limit")) if kind is RuleKind.MAX_CALLS else 0
    return [Rule(tool, kind, count=count)]


# -- values ----------------------------------------------------------------------------------------


def _checked(rule: Rule) -> Rule:
    kind = rule.kind
    lacks = ""
    if kind in OF_OTHERS and not rule.tools:
        lacks = "names of other tools (tools)"
    elif kind is RuleKind.MAX_CALLS and rule.count < 1:
        lacks = "how many calls (count), 1 or more"
    elif kind in OF_TIME and rule.seconds <= 0:
        lacks = "a time (seconds) above 0"
    elif kind is RuleKind.OPERATIONS and not rule.operations:
        lacks = "the operations that stay open (operations)"
    if lacks:
        raise InvalidInput(f"a rule of the kind {kind.value} needs {lacks}.")
    own = rule.tool in rule.tools
    if own and kind in (RuleKind.PRECEDING, RuleKind.EXCLUSIVE, RuleKind.BEFORE_EXIT):
        raise InvalidInput(f"{rule.tool!r} is listed among the other tools of its own rule.")
    return rule


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip() or any(char.isspace() for char in value):
        raise InvalidInput(
            f"{name} is {value!r}; the name of a tool is needed, or a pattern such as 'web_*'."
        )
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    several = isinstance(value, list | tuple | set | frozenset)
    values = list(cast("Iterable[Any]", value)) if several else [value]
    return tuple(dict.fromkeys(_text(item, name) for item in values))


def _count(value: Any) -> int:
    if value is None:
        return 0
    text = str(value)
    if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidInput(f"count is {value!r}; a whole number such as 3 is needed.")
    return int(text)


def _seconds(value: Any) -> float:
    """Read a time: seconds, a text such as `10m`, or `{secs, nanos}`."""
    if value is None:
        return 0.0
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return _seconds(table.get("secs", 0)) + float(table.get("nanos", 0)) / 1e9
    try:
        return read_duration(str(value), default_unit="s")
    except ValueError:
        raise InvalidInput(
            f"seconds is {value!r}; a time such as 90, 10m, 2h or 1d is needed."
        ) from None


def _priority(form: Form) -> int:
    value = form.get("priority", DEFAULT_PRIORITY)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise InvalidInput(f"priority is {value!r}; a whole number from 0 to 255 is needed.")
    return value


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)
