"""Callers of the Python API get times as `datetime`s in UTC, whatever object they stand on."""

from __future__ import annotations

import pkgutil
import typing
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from inspect import getmembers, isfunction, unwrap
from pathlib import Path
from typing import Any, get_args, get_type_hints

import asterism
from asterism.times import Moment, OptionalMoment
from tests.scenes import obedient, open_home

MOMENTS = (datetime, datetime | None)
TIMES_OF_FIELDS = {Moment: (int, datetime), OptionalMoment: (int | None, datetime | None)}


def names_of_classes() -> dict[str, Any]:
    """Return every class of the package by its name, for hints that are imported for types only."""
    names: dict[str, Any] = {"Any": Any, "Path": Path}
    names |= {name: getattr(typing, name) for name in ("AsyncGenerator", "Sequence")}
    for module in pkgutil.walk_packages(asterism.__path__, "asterism."):
        if not module.name.endswith("__main__"):
            found = vars(import_module(module.name)).items()
            classes = {name: kind for name, kind in found if isinstance(kind, type)}
            own = {name: kind for name, kind in classes.items() if _is_ours(kind)}
            # A library's class may have the name of one of ours.
            names = classes | names | own
    return names


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("asterism")


CLASSES = names_of_classes()


def hints(value: Any) -> dict[str, Any]:
    return get_type_hints(unwrap(value), localns=CLASSES)


def attributes(kind: type) -> dict[str, Any]:
    """Return the types of what a caller reads from an object: fields, properties and times."""
    fields = hints(kind)
    read = {name: hint for name, hint in fields.items() if not name.startswith("_")}
    for name, member in getmembers(kind):
        if isinstance(member, property) and not name.startswith("_"):
            read[name] = hints(member.fget).get("return")
        elif isinstance(member, Moment | OptionalMoment):
            stored, shown = TIMES_OF_FIELDS[type(member)]
            assert fields[f"{name}_ms"] == stored, f"{kind.__name__}.{name}"
            read[name] = shown
    return read


def returned(kind: type) -> list[Any]:
    """Return the types of what the verbs of a class return."""
    members = ((name, getattr(member, "func", member)) for name, member in getmembers(kind))
    public = (member for name, member in members if not name.startswith("_"))
    return [hints(member).get("return") for member in public if isfunction(member)]


def classes_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not get_args(hint):
        yield hint
    for inner in get_args(hint):
        yield from classes_in(inner)


def public_types() -> set[type]:
    """Return every class that a caller can get hold of, but for the configuration."""
    waiting: list[Any] = [getattr(asterism, name) for name in asterism.__all__]
    known: set[type] = set()
    while waiting:
        for kind in classes_in(waiting.pop()):
            module = kind.__module__
            ours = module.startswith("asterism.") and not module.startswith("asterism.config")
            if ours and kind not in known:
                known.add(kind)
                waiting += [*attributes(kind).values(), *returned(kind)]
    return known


def test_every_time_that_a_caller_gets_is_a_datetime() -> None:
    kinds = public_types()
    shown = {
        f"{kind.__name__}.{name}": hint
        for kind in kinds
        for name, hint in attributes(kind).items()
        if name == "at" or name.endswith("_at")
    }
    assert {"Agent.created_at", "Approval.asked_at", "StoredKey.used_at", "Entry.at"} <= set(shown)
    assert {name: hint for name, hint in shown.items() if hint not in MOMENTS} == {}


def test_every_stored_time_has_a_datetime_beside_it() -> None:
    every = {kind.__name__: attributes(kind) for kind in public_types()}
    stored = {
        f"{kind}.{name}": read.get(name.removesuffix("_ms"))
        for kind, read in every.items()
        for name in read
        if name.endswith("_ms")
    }
    assert "Grant.until_ms" in stored
    assert {name: hint for name, hint in stored.items() if hint not in MOMENTS} == {}


async def test_the_times_of_a_conversation_are_datetimes_in_utc(tmp_path: Path) -> None:
    begun = datetime.now(UTC).replace(microsecond=0)
    async with open_home(tmp_path, model=obedient()) as home:
        aria = await home.agents.create("aria")
        await aria.ask("Where is the spare key?")
        (turn,) = await home.turns.list()
        _, entries = await home.turns.get(turn.id)
        block = await (await aria.blocks.create("human", "Likes tea.")).append("Has a cat.")
        await aria.archive.add("The spare key is with the neighbour.", true_from=begun)
        (passage,) = await aria.archive.list()
        grant = await home.grants.give("pay", agent="aria", until=datetime(2999, 1, 1, tzinfo=UTC))
        schedule = await home.schedules.add("aria", "tomorrow at nine", "Good morning.")
        (hit, *_) = (await aria.search("spare key")).hits
        times = [
            aria.created_at,
            turn.opened_at,
            turn.ended_at,
            *(entry.at for entry in entries),
            block.updated_at,
            passage.known_from,
            grant.given_at,
            schedule.due_at,
            hit.at,
        ]
        assert all(time is not None and time.tzinfo is UTC and time >= begun for time in times)
        assert passage.true_from == begun
        assert grant.until == datetime(2999, 1, 1, tzinfo=UTC)
        assert grant.revoked_at is None
        assert (await home.people.get("owner")).created_at is None
