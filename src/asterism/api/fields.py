"""What endpoints of several nouns share: the fields of their requests, and the pages of lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, Field

from asterism.api.endpoints import Body

T = TypeVar("T")

Name = Annotated[str, Field(min_length=1, max_length=200)]
Reference = Annotated[str, Field(max_length=200)]
"""A name or an id of something."""
ModelName = Annotated[str, Field(max_length=500)]
TagName = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,80}$")]
AudienceText = Annotated[str, Field(max_length=1_000)]
Text = Annotated[str, Field(max_length=1_000_000)]
SomeText = Annotated[str, Field(min_length=1, pattern=r"\S")]
ShortText = Annotated[str, Field(max_length=2_000)]
"""Why something is done, or what something is for."""
ExternalId = Annotated[
    str | None,
    Field(min_length=1, max_length=200, description="The same id again is the same message."),
]

Limit = Annotated[int, Field(ge=1, le=500, description="How many items at most.")]
NEXT = "`next` of the page before."
"""What the cursor of a list is."""


def _moment(value: object) -> datetime:
    """Return a time as it is written; a bare number is none, though pydantic would read it."""
    try:
        moment = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("must be an ISO 8601 time such as 2026-11-18T09:00:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


When = Annotated[datetime, BeforeValidator(_moment)]
"""A time, in UTC unless it says otherwise."""


# -- pages of lists --------------------------------------------------------------------------------


class Paging(Body):
    """Which part of a list is wanted."""

    limit: Limit = 50
    cursor: str | None = Field(None, pattern=r"^[0-9]{1,9}$", description=NEXT)


class PositionPaging(Body):
    """Which part of a list is wanted that grows while somebody reads it."""

    limit: Limit = 50
    cursor: str | None = Field(None, min_length=1, max_length=400, description=NEXT)


def whole_list(items: Sequence[Any]) -> dict[str, Any]:
    """Return all of a list as its one page."""
    return {"items": items, "next": None}


def page_of_all(
    items: Sequence[T], paging: Paging, shape: Callable[[T], Any] | None = None
) -> dict[str, Any]:
    """Return a page of a list that is read whole; its cursor counts items.

    Args:
        items: All of them.
        paging: Which of them are wanted.
        shape: Returns an item as JSON, if there is something beside it.
    """
    start = int(paging.cursor or 0)
    end = start + paging.limit
    return _page(items[start:end], str(end) if end < len(items) else None, shape)


def page_by(
    found: Sequence[T],
    query: Any,
    position: Callable[[T], str],
    shape: Callable[[T], Any] | None = None,
) -> dict[str, Any]:
    """Return a page of items of which one more was read than are wanted.

    Args:
        found: The items.
        query: What was asked for, with its `limit`.
        position: Returns what the next page goes on from, which stays true while rows come and go.
        shape: Returns an item as JSON, if there is something beside it.
    """
    shown = found[: query.limit]
    return _page(shown, position(shown[-1]) if len(found) > query.limit else None, shape)


def _page(
    shown: Sequence[T], following: str | None, shape: Callable[[T], Any] | None
) -> dict[str, Any]:
    items = shown if shape is None else [shape(item) for item in shown]
    return {"items": items, "next": following}
