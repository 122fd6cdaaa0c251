"""A script without `await`, as type checkers see it: `test_sync_types` and `make check` check it.

Each mistake has an ignore for mypy and one for pyright. Both report an ignore that is not needed,
so that a mistake which one of them does not see is a failure.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, assert_type

from asterism import Asterism, Block, GroupEvent, Hit, NotFound, Outcome, Receipt, Signal
from asterism.memory.blocks import VisibleBlock

if TYPE_CHECKING:
    from asterism.app.sync import (  # noqa: F401 - in the texts of assert_type
        SyncAgent,
        SyncAgentBlock,
        SyncApproval,
        SyncAsterism,
        SyncGroup,
        SyncHome,
        SyncNamedAgent,
    )


def talk(home: SyncAsterism) -> str:
    """Use what has verbs; the types are those that the functions have after `await`."""
    aria = home.agents.ensure("aria", tools=["search"])
    assert_type(aria, "SyncAgent")
    assert_type(home.agents["aria"], "SyncNamedAgent")
    assert_type(home.agents["aria"].get(), "SyncAgent")
    assert_type(home.agents.list(), "list[SyncAgent]")
    assert_type(aria.ask("Hello!", sender=None), Outcome)
    assert_type(home.turns.wait(aria.send("Hello!")), Outcome)
    assert_type(aria.created_at_ms + 1, int)
    assert_type(aria.blocks.create("garden", "Beans."), "SyncAgentBlock")
    assert_type(aria.blocks["garden"].append("Peas.", reason="she said so"), Block)
    assert_type(aria.blocks["garden"].text(), str)
    assert_type(home.blocks.get(aria, "garden"), VisibleBlock)
    assert_type(home.search(aria, "peas", limit=3).hits, list[Hit])
    assert_type(home.approvals.list(), "list[SyncApproval]")
    assert_type(home.counts(), tuple[int, int])
    ring = home.groups.ensure("ring", members=["aria"])
    assert_type(ring, "SyncGroup")
    assert_type(ring.send("hi"), Receipt)
    assert_type(home.groups["ring"].transcript(limit=1), list[GroupEvent])
    stream = aria.stream("And now?")
    assert_type(stream, Generator[Signal, None, None])
    return "".join(signal.text for signal in stream if signal.kind == "text")


def mistakes(home: SyncAsterism) -> None:
    """Make mistakes that a checker sees; this is not run."""
    aria = home.agents.get("aria")
    home.agents.ensure(1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    home.agents.esnure("aria")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    home.agnets.list()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    aria.ask("Hello!", chanel="web")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    aria.edit(nmae="bea")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    print(aria.ask("Hello!").txet)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    aria.blocks[1].text()  # type: ignore[index]  # pyright: ignore[reportArgumentType]
    home.approvals.list()[0].deny(approved=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def opened() -> None:
    """Open a home both ways; this is not run."""
    with Asterism.open_sync() as home:
        assert_type(home, "SyncAsterism")
        assert_type(home.authenticate("secret"), "SyncHome")
    with Asterism.connect_sync("https://home.example.org", "secret") as there:
        assert_type(there.agents["aria"].ask("Hello!").text, str)
        try:
            there.agents.get("nobody")
        except NotFound as error:
            assert_type(error.message, str)
