"""A public class name exists once in the package, so that a search for it has one answer."""

import ast
from collections import Counter
from pathlib import Path

import asterism

PACKAGE = Path(asterism.__file__).parent


def test_no_public_class_takes_a_name_that_another_has() -> None:
    counts = Counter(
        node.name
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(counts) > 300, f"{PACKAGE} is not the whole package"
    shared = {name: count for name, count in counts.items() if count > 1}
    assert not shared, f"name these classes after what each of them is: {shared}"
