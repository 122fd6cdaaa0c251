"""Writes the types of a home without `await`, `src/asterism/app/sync.pyi`, from its classes.

    python -m bench.sync_types            # after a change of a public verb
    python -m bench.sync_types --check    # fails if the file is not current

What has verbs is wrapped when a program runs; nobody writes the wrapped classes down. For type
checkers they are read here out of the source: `await` and `async for` are taken away, and
`**options` that are passed on become the parameters of the verb that they are passed to.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import inspect
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from asterism.app.home import Asterism
from asterism.app.sync import has_verbs

FILE = Path(__file__).parents[1] / "src/asterism/app/sync.pyi"
_APP = "asterism.app."
_HEAD = '''"""A home whose verbs need no `await`; `python -m bench.sync_types` writes this file."""

'''
_HEAD_OF_TYPES = """
_T = TypeVar("_T")

def has_verbs(kind: type[Any]) -> bool: ...
"""
_OPENED = '''
class SyncAsterism(SyncHome):
    """An open home for scripts: `with Asterism.open_sync() as home:`."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[Any]]) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
    def run(self, work: Coroutine[Any, Any, _T]) -> _T: ...
'''
_ITS_IMPORTS = {
    "collections.abc": {"Callable", "Coroutine"},
    "contextlib": {"AbstractAsyncContextManager"},
    "types": {"TracebackType"},
    "typing": {"Any", "Self", "TypeVar"},
}
_INSIDE = ("access", "greet", "home_of", "home_of_secret", "listens_at", "workshop")
"""What an open home has for the process that runs it."""
_PASSED_ON = {
    "AgentVerbs.ask": "Agents.send",
    "AgentVerbs.send": "Agents.send",
    "AgentVerbs.stream": "Agents.send",
    "AgentVerbs.search": "Search.__call__",
    "AgentVerbs.edit": "Agents.edit",
    "Agents.ask": "Agents.send",
    "Agents.stream": "Agents.send",
    "AgentArchive.list": "Archive.list",
    "AgentArchive.add": "Archive.add",
    "AgentArchive.add_many": "Archive.add_many",
    "AgentArchive.search": "Search.__call__",
    "AgentBlocks.create": "Blocks.create",
    "Approval.approve": "Approvals.decide",
    "Approval.deny": "Approvals.decide",
    "Approvals.stream_decision": "Approvals.decide",
    "Archive.search": "Search.__call__",
    "GroupVerbs.ask": "Groups.send",
    "GroupVerbs.send": "Groups.send",
    "GroupVerbs.stream": "Groups.send",
    "GroupVerbs.transcript": "Groups.transcript",
    "GroupVerbs.edit": "Groups.edit",
    "GroupVerbs.add_member": "Groups.add_member",
    "Groups.ask": "Groups.send",
    "Groups.stream": "Groups.send",
}
"""Verbs that pass their options on, and the verb whose options these are."""
_YIELDING = {"AsyncGenerator": "Generator", "AsyncIterator": "Generator"}
_AWAITED = ("Awaitable", "Coroutine")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class _Source:
    """A module of the package, and where the names in it come from."""

    module: ModuleType
    tree: ast.Module
    imported: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])

    @classmethod
    def of(cls, name: str) -> _Source:
        module = import_module(name)
        source = cls(module, ast.parse(inspect.getsource(module)))
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    source.imported[alias.asname or alias.name] = (node.module, alias.name)
        return source

    def class_of(self, name: str) -> ast.ClassDef:
        found = (node for node in self.tree.body if isinstance(node, ast.ClassDef))
        return next(node for node in found if node.name == name)

    def origin(self, name: str) -> tuple[str, str] | None:
        """Return the module and the name there of what a name stands for; None: a builtin."""
        if name in self.imported:
            return self.imported[name]
        return (self.module.__name__, name) if hasattr(self.module, name) else None


class _Stub:
    """The stub as far as it is written: classes, and the names that it imports."""

    def __init__(self) -> None:
        self.sources: dict[str, _Source] = {}
        self.imports: dict[str, set[str]] = {name: {*of} for name, of in _ITS_IMPORTS.items()}
        self.waiting: list[type[Any]] = []
        self.written: dict[type[Any], str] = {}

    def text(self) -> str:
        self.waiting.append(Asterism)
        while self.waiting:
            kind = self.waiting.pop(0)
            if kind not in self.written:
                self.written[kind] = ""  # what refers to itself is not written again
                self.written[kind] = self.class_text(kind)
        # The class of an open home inherits from that of an actor's home.
        home = next(kind for kind in self.written if kind.__name__ == "Home")
        first = [self.written.pop(home), self.written.pop(Asterism)]
        rest = [self.written[kind] for kind in sorted(self.written, key=lambda kind: kind.__name__)]
        others, ours = ["import builtins\n"], ["\n"]
        for module, names in sorted(self.imports.items()):
            lines = ours if module.startswith("asterism") else others
            lines.append(f"from {module} import {', '.join(sorted(names))}\n")
        return "".join([_HEAD, *others, *ours, _HEAD_OF_TYPES, *first, *rest])

    def source(self, module: str) -> _Source:
        if module not in self.sources:
            self.sources[module] = _Source.of(module)
        return self.sources[module]

    # -- classes -------------------------------------------------------------------------------

    def class_text(self, kind: type[Any]) -> str:
        """Return a class with the members of all classes of the package that it is made of."""
        made_of = [part for part in kind.__mro__ if part.__module__.startswith(_APP)]
        records = [part for part in kind.__bases__ if part not in made_of and part is not object]
        if kind is Asterism:
            made_of.remove(_home())
            self.waiting.insert(0, _home())
        nodes: dict[str, tuple[_Source, str, ast.stmt]] = {}
        for part in reversed(made_of):
            source = self.source(part.__module__)
            for node in source.class_of(part.__name__).body:
                for name, member in _members(node):
                    nodes[name] = (source, part.__name__, member)
        body = [
            text
            for name, (source, owner, member) in nodes.items()
            if (text := _Member(self, source, owner, {*nodes}).text(name, member))
        ]
        if kind is Asterism:
            return f"{_OPENED}{''.join(body)}"
        for record in records:
            self.imports.setdefault(record.__module__, set()).add(record.__name__)
        bases = ", ".join(record.__name__ for record in records)
        head = f"\nclass Sync{kind.__name__}{f'({bases})' if bases else ''}:\n"
        about = (inspect.getdoc(kind) or "").partition("\n")[0]
        return f'{head}    """{about}"""\n\n{"".join(body)}'


def _home() -> type[Any]:
    return Asterism.__mro__[1]


def _members(node: ast.stmt) -> list[tuple[str, ast.stmt]]:
    """Return what a statement of a class declares that its users see."""
    if isinstance(node, Function):
        if node.name == "__init__":
            return _attributes(node)
        is_seen = node.name[0] != "_" or node.name in ("__getitem__", "__call__")
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        is_of_class = decorators & {"classmethod", "staticmethod"}
        is_inside = node.name in _INSIDE
        return [(node.name, node)] if is_seen and not is_of_class and not is_inside else []
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [(node.target.id, node)] if node.target.id[0] != "_" else []
    if isinstance(node, ast.Assign) and ast.unparse(node) == "__iter__ = None":
        return [("__iter__", node)]
    return []


def _attributes(init: Function) -> list[tuple[str, ast.stmt]]:
    """Return the public attributes that are set when something is made."""
    given = {argument.arg: argument.annotation for argument in init.args.args}
    found: list[tuple[str, ast.stmt]] = []
    for node in init.body:
        if isinstance(node, ast.AnnAssign):
            target, annotation = node.target, node.annotation
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
            target, annotation = node.targets[0], given.get(node.value.id)
        else:
            continue
        if isinstance(target, ast.Attribute) and target.attr[0] != "_" and annotation is not None:
            declared = ast.AnnAssign(ast.Name(target.attr), annotation, None, 1)
            found.append((target.attr, declared))
    return found


# -- members -------------------------------------------------------------------------------------


@dataclass
class _Member:
    """One member of a class of the stub."""

    stub: _Stub
    source: _Source
    owner: str
    names: set[str]
    """All members of the class, which hide builtins of the same name."""

    def text(self, name: str, node: ast.stmt) -> str:
        if isinstance(node, ast.Assign):
            return "    __iter__: None\n"
        if isinstance(node, ast.AnnAssign):
            kind = self.type_text(node.annotation)
            return f"    @property\n    def {name}(self) -> {kind}: ...\n"
        assert isinstance(node, Function)
        decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
        is_property = bool(decorators & {"property", "cached_property"})
        head = "    @property\n" if is_property else ""
        result = self.type_text(_awaited(node.returns))
        about = (ast.get_docstring(node) or "").partition("\n")[0]
        end = f'\n        """{about}"""\n' if about else " ...\n"
        return f"{head}    def {name}({self.parameters(node)}) -> {result}:{end}"

    def parameters(self, node: Function) -> str:
        """Return the parameters of a verb, with those of the verb that options are passed to."""
        declared, passed = node.args, node.args.kwarg
        named = [argument.arg for argument in (*declared.args, *declared.kwonlyargs)]
        defaults = [None] * (len(declared.args) - len(declared.defaults)) + declared.defaults
        texts = list(map(self.parameter, declared.args, defaults))
        keywords = [
            self.parameter(argument, default)
            for argument, default in zip(declared.kwonlyargs, declared.kw_defaults, strict=True)
        ]
        if passed is not None:
            given = {*named, *_given(node, passed.arg)}
            keywords += self.passed_on(node.name, given)
        if declared.vararg is not None:
            texts.append(f"*{self.parameter(declared.vararg, None)}")
        elif keywords:
            texts.append("*")
        return ", ".join([*texts, *keywords])

    def passed_on(self, name: str, given: set[str]) -> list[str]:
        """Return the options that a verb passes on to another one."""
        goal = _PASSED_ON[f"{self.owner}.{name}"]
        owner, _, verb = goal.partition(".")
        source = self.stub.source(_module_of(owner))
        found = (node for node in source.class_of(owner).body if isinstance(node, Function))
        target = next(node for node in found if node.name == verb).args
        other = _Member(self.stub, source, owner, self.names)
        options = zip(target.kwonlyargs, target.kw_defaults, strict=True)
        return [
            other.parameter(argument, default)
            for argument, default in options
            if argument.arg not in given
        ]

    def parameter(self, argument: ast.arg, default: ast.expr | None) -> str:
        kind = f": {self.type_text(argument.annotation)}" if argument.annotation else ""
        if default is None:
            return f"{argument.arg}{kind}"
        # Constants are shown by editors; what is made elsewhere need not be imported for that.
        value = ast.unparse(default) if isinstance(default, ast.Constant) else "..."
        return f"{argument.arg}{kind} = {value}"

    def type_text(self, annotation: ast.expr | None) -> str:
        """Return a type as the stub writes it; a class with verbs becomes the one without await."""
        assert annotation is not None, f"{self.owner} has a member without a type"
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        return ast.unparse(_Types(self).visit(annotation))


def _given(node: Function, options: str) -> set[str]:
    """Return what a verb itself says where it passes its options on."""
    return {
        keyword.arg
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and any(
            keyword.arg is None and ast.unparse(keyword.value) == options
            for keyword in call.keywords
        )
        for keyword in call.keywords
        if keyword.arg is not None
    }


class _Types(ast.NodeTransformer):
    """Replaces the names in a type by those of the stub."""

    def __init__(self, member: _Member) -> None:
        self.member = member

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        if name in _YIELDING and isinstance(node.slice, ast.Tuple | ast.Name):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            self.member.stub.imports["collections.abc"].add("Generator")
            item = ast.unparse(self.visit(parts[0]))
            return ast.parse(f"Generator[{item}]", mode="eval").body
        if name == "Literal":
            self.visit(node.value)
            return node
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        member, name = self.member, node.id
        found = member.source.origin(name) if name != "builtins" else None
        if found is None:
            hidden = name in member.names and hasattr(builtins, name)
            return ast.Name(f"builtins.{name}" if hidden else name)
        module, original = found
        if module.startswith("asterism"):
            value: object = getattr(import_module(module), original)
            if isinstance(value, type) and has_verbs(cast("type[Any]", value)):
                member.stub.waiting.append(cast("type[Any]", value))
                return ast.Name(f"Sync{original}")
        if module == "builtins":
            return ast.Name(f"builtins.{original}")
        member.stub.imports.setdefault(module, set()).add(original)
        return ast.Name(original)


def _awaited(returned: ast.expr | None) -> ast.expr | None:
    """Return what is there after `await`, for a function that returns what can be awaited."""
    if isinstance(returned, ast.Subscript) and ast.unparse(returned.value) in _AWAITED:
        inside = returned.slice
        return inside.elts[-1] if isinstance(inside, ast.Tuple) else inside
    return returned


def _module_of(owner: str) -> str:
    """Return the module of the package that a class with verbs is in."""
    folder = FILE.parent
    pattern = f"\nclass {owner}"
    (found,) = (
        file.stem
        for file in sorted(folder.glob("*.py"))
        if any(f"{pattern}{end}" in file.read_text("utf-8") for end in (":", "("))
    )
    return f"{_APP}{found}"


def written() -> str:
    """Return the stub as it should be."""
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"],
        input=_Stub().text(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return formatted.stdout


def main() -> int:
    """Write the stub, or check it; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only tell whether it is current")
    check = parser.parse_args().check
    text = written()
    if check:
        is_current = FILE.exists() and FILE.read_text("utf-8") == text
        print("current" if is_current else 'not current: run "python -m bench.sync_types"')
        return 0 if is_current else 1
    FILE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
