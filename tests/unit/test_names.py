"""Names that one can search for: a public class name exists once, and plain words are used."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import asterism

PACKAGE = Path(asterism.__file__).parent
NOT_WORDS = {
    *("audible", "company", "critic", "deed", "deeds", "errand", "errands", "helper", "helpers"),
    *("ladder", "manager", "managers", "purse", "saga", "saying", "sayings", "shelf", "shelves"),
    *("swarm", "told", "util", "utils"),
}
"""Words for which AGENTS.md has another, or which nobody would search for."""
NOT_MODULES = NOT_WORDS | {
    *("aside", "asked", "base", "common", "found", "given", "handler", "heard", "held", "kept"),
    *("made", "run", "said", "service", "shown", "taken", "whose"),
}
"""A module is named after a thing, not by a participle, a relation or a word for anything."""


@functools.cache
def modules() -> list[tuple[Path, ast.Module]]:
    """Return the modules of the package; not at import, which each process of a test run does."""
    return [
        (path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def words_of(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def definitions() -> Iterator[tuple[Path, str]]:
    for path, module in modules():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node.name


def test_no_public_class_takes_a_name_that_another_has() -> None:
    counts = Counter(
        node.name
        for _, module in modules()
        for node in module.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(counts) > 300, f"{PACKAGE} is not the whole package"
    shared = {name: count for name, count in counts.items() if count > 1}
    assert not shared, f"name these classes after what each of them is: {shared}"


def test_functions_and_classes_are_named_in_plain_words() -> None:
    odd = [f"{path.name}: {name}" for path, name in definitions() if words_of(name) & NOT_WORDS]
    assert not odd, f"use the words of AGENTS.md: {odd}"


def test_modules_are_named_after_things() -> None:
    odd = [path.name for path, _ in modules() if words_of(path.stem) & NOT_MODULES]
    assert not odd, f"name these modules after what is in them: {odd}"
