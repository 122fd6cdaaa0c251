"""A public class name exists once in the package, so that a search for it has one answer."""

import ast
from collections import Counter
from pathlib import Path

import asterism

PACKAGE = Path(asterism.__file__).parent

KNOWN = {
    "Account": 2, "Answer": 5, "Approvals": 2, "Archive": 2, "Asked": 2, "Asking": 2, "Claim": 2,
    "Encoder": 2, "Finding": 3, "Folded": 2, "Found": 4,
    "Grants": 2, "Hub": 2, "Imported": 2, "Keeper": 2, "Kept": 2, "Keys": 2,
    "Kind": 4, "Label": 2, "Made": 2, "Means": 2, "Memory": 2, "Offer": 2, "Options": 2,
    "Piece": 2, "Place": 5, "Progress": 2, "Prompt": 2, "Question": 2, "Raw": 2, "Reading": 4,
    "Reason": 2, "Receipt": 2, "Reply": 2, "Rule": 2, "Running": 2, "Said": 4,
    "Server": 3, "Shelf": 3, "Shown": 3, "Standing": 4, "Sum": 2, "Texts": 2, "Token": 2,
    "Told": 2, "Use": 2, "View": 2, "Wanted": 3, "Weights": 2,
}  # fmt: skip
"""How many classes still share a name; only ever to be made shorter."""


def shared_names() -> dict[str, int]:
    """Return the public names of more than one class at the top of a module."""
    counts = Counter(
        node.name
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8"), str(path)).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(counts) > 300, f"{PACKAGE} is not the whole package"
    return {name: count for name, count in counts.items() if count > 1}


def test_no_public_class_takes_a_name_that_another_has() -> None:
    more = {name: count for name, count in shared_names().items() if count > KNOWN.get(name, 1)}
    assert not more, f"name these classes after what each of them is: {more}"


def test_the_list_of_shared_names_is_as_short_as_it_can_be() -> None:
    shared = shared_names()
    fewer = {
        name: shared.get(name, 1) for name, count in KNOWN.items() if shared.get(name, 1) < count
    }
    assert not fewer, f"take these out of KNOWN, or lower their count: {fewer}"
