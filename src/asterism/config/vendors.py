"""What is known of vendors without a word in `asterism.toml`, and whom to ask if none is named."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from asterism.records import dataclass

DEMO = "demo:guide"
"""The model that is always there: rules, and no language model."""
EMBEDDED = "embedded"
"""The vendor of the models that run on this machine in a process of ours."""
_RUNTIME = "xllamacpp"


@dataclass(frozen=True, slots=True)
class Vendor:
    """What is known of one vendor; `vendors.toml` says what each name means."""

    name: str
    title: str
    api: str
    base_url: str | None = None
    keys: tuple[str, ...] = ()
    model: str = ""
    names: str = ""
    library: str = ""

    @property
    def usable(self) -> bool:
        """Whether what speaks its wire format is installed; nothing is imported for it."""
        return not self.library or (is_installed("pydantic_ai") and is_installed(self.library))

    def key_variable(self, environ: Mapping[str, str]) -> str | None:
        """Return the variable that holds the key, or that should; None if there is no need."""
        return next((name for name in self.keys if environ.get(name)), next(iter(self.keys), None))


@cache
def vendors() -> dict[str, Vendor]:
    """Return the known vendors, in the order in which they are asked."""
    text = Path(__file__).with_name("vendors.toml").read_text("utf-8")
    return {
        name: Vendor(name, **facts | {"keys": tuple(facts.get("keys", ()))})
        for name, facts in tomllib.loads(text).items()
    }


def usual_model(has_key: Callable[[Vendor], bool], environ: Mapping[str, str]) -> str:
    """Return the model to use where none is configured, without asking the network.

    The first vendor with a key; else weights that are on this machine, the recommended ones
    before others; else the demo model.
    """
    for vendor in vendors().values():
        if vendor.model and has_key(vendor) and vendor.usable:
            return f"{vendor.name}:{vendor.model}"
    if can_embed() and (here := weights_here(environ)):
        return f"{EMBEDDED}:{here[0]}"
    return DEMO


def can_embed() -> bool:
    """Tell whether the library that runs embedded models is installed; it is not imported."""
    return is_installed(_RUNTIME)


@cache
def is_installed(library: str) -> bool:
    """Tell whether a library is there."""
    try:
        return find_spec(library) is not None
    except ImportError:  # not even the package around it
        return False


def models_directory(environ: Mapping[str, str]) -> Path | None:
    """Return where weights rest: ASTERISM_MODELS, else the user's cache.

    None for an environment that was made up and names neither.
    """
    if named := environ.get("ASTERISM_MODELS"):
        return Path(named).absolute()
    if environ is not os.environ and "HOME" not in environ:
        return None
    from platformdirs import user_cache_path

    return user_cache_path("asterism", appauthor=False) / "models"


def weights_here(environ: Mapping[str, str]) -> list[str]:
    """Return the names of verified weights on this machine: known ones by size, then one's own.

    Only the notes beside the files are read, which say what was verified and when.
    """
    directory = models_directory(environ)
    weights: list[tuple[bool, int, str]] = []
    for note in directory.glob("*.gguf.json") if directory else ():
        with suppress(OSError, ValueError, KeyError, TypeError):
            noted = json.loads(note.read_bytes())
            stat = note.with_suffix("").stat()
            if (stat.st_size, stat.st_mtime_ns) == (noted["size"], noted["mtime_ns"]):
                weights.append((bool(noted["own"]), -stat.st_size, str(noted["name"])))
    return [name for _, _, name in sorted(weights)]
