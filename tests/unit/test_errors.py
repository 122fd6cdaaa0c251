"""Errors: what callers want to know has a field, and nobody reads it out of the sentence."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import asterism
from asterism.errors import AsterismError, InvalidInput, ModelUnavailable

SOURCE = Path(asterism.__file__).parent
_READS = frozenset(
    {"count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace"}
    | {"rfind", "rpartition", "rsplit", "split", "startswith"}
)
FOREIGN = {
    ("tools/mcp/clients.py", "is_unknown_session"): "the library has one code for several refusals",
    ("memory/gate/replicas.py", "loro_errors"): "Loro raises bare exceptions",
}
"""Where the error of a library is told apart by its words, since it has nothing else."""


def test_a_message_is_its_reason_and_its_outcome() -> None:
    error = InvalidInput("'x' is not a number.", outcome="Nothing was changed.")
    assert str(error) == error.message == "'x' is not a number. Nothing was changed."
    assert (error.reason, error.outcome) == ("'x' is not a number.", "Nothing was changed.")
    alone = ModelUnavailable("The model is not there.", slow=True)
    assert (alone.message, alone.reason, alone.outcome) == (str(alone), str(alone), "")


def test_secrets_are_taken_out_of_both_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    def clean(text: str) -> str:
        return text.replace("sk-1", "…")

    monkeypatch.setattr(AsterismError, "cleaned", clean)
    error = InvalidInput("'sk-1' is not a name.", outcome="sk-1 was not stored.")
    assert error.message == "'…' is not a name. … was not stored."
    assert "sk-1" not in repr(error)


def test_nobody_reads_or_edits_the_text_of_an_error() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{line}: {spelt}"
        for file in sorted(SOURCE.rglob("*.py"))
        for line, spelt in _texts_read(file)
    ]
    assert found == []


def _texts_read(file: Path) -> Iterator[tuple[int, str]]:
    """Yield where a file branches on, cuts or changes the words of an error."""
    tree = ast.parse(file.read_text("utf-8"))
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if (str(file.relative_to(SOURCE)), function.name) in FOREIGN:
            continue
        names = _errors_in(function)
        for node in ast.walk(function):
            if _reads_text(node, names):
                yield function.lineno, ast.unparse(node)


def _errors_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names of errors in a function: caught, or given as such."""
    caught = {
        one.name for one in ast.walk(function) if isinstance(one, ast.ExceptHandler) and one.name
    }
    given = {
        one.arg
        for one in (*function.args.args, *function.args.kwonlyargs)
        if one.annotation is not None
        and ast.unparse(one.annotation).split(".")[-1] in _ERRORS | {"Exception", "BaseException"}
    }
    return caught | given


def _kinds(kind: type[AsterismError]) -> Iterator[str]:
    yield kind.__name__
    for one in kind.__subclasses__():
        yield from _kinds(one)


_ERRORS = set(_kinds(AsterismError))


def _reads_text(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=text, attr=attr)) if attr in _READS:
            return _is_text(text, names)
        case ast.Compare(left=left, comparators=others):
            return any(_is_text(one, names) for one in (left, *others))
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr="message")]):
            return name in names
        case _:
            return False


def _is_text(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr="message" | "reason"):
            return name in names
        case ast.Call(func=ast.Name(id="str"), args=[ast.Name(id=name)]):
            return name in names
        case _:
            return False
