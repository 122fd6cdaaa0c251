"""Files that go with a message: images for the model to see, a schema for its answer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import orjson
import typer

from asterism.cli.given import read_bytes
from asterism.errors import InvalidInput

Images = Annotated[
    list[Path] | None,
    typer.Option("--image", metavar="FILE", help="Show this image too, with --once; repeatable."),
]
Schema = Annotated[
    Path | None,
    typer.Option(
        "--schema", metavar="FILE", help="With --once: answer in JSON that fulfils this schema."
    ),
]


def read_image(path: Path) -> bytes:
    """Return the bytes of a file."""
    return read_bytes(path.expanduser())


def read_schema(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        schema = orjson.loads(read_bytes(path.expanduser()))
    except orjson.JSONDecodeError as error:
        why = f"it is not JSON ({error})"
    else:
        if isinstance(schema, dict):
            return cast("dict[str, Any]", schema)
        why = "it holds no JSON object"
    raise InvalidInput(
        f"The schema {str(path)!r} cannot be read: {why}. Name a file with a JSON schema. Nothing "
        "was sent."
    )
