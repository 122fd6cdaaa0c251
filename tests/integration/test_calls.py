"""Calls in a turn: what the model is told of each, and what a crash leaves of one under way."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asterism import NOT_HAPPENED, Asterism, Tool, ToolContext, ToolError, TurnState, tool
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import EntryKind, ResultState, RetrySafety, ToolResult
from tests.scenes import calls, heard, obedient, open_home, until

EFFECTS = ["transactional", "repeatable", "checkable", "unknown"]


def declared(effect: str, function: Callable[..., Any]) -> Tool:
    """Make a tool `act` of a function, with the effect declared."""

    async def never(**_: Any) -> Any:
        return NOT_HAPPENED

    options: dict[str, Any] = {
        "transactional": {"transactional": True},
        "repeatable": {"repeatable": True},
        "checkable": {"check": never},
        "unknown": {},
    }[effect]
    return tool(name="act", **options)(function)


async def result_of(place: Path, *tools: Tool, call: tuple[str, str] = ("act", "{}")) -> str:
    """Let an agent make one call; return what its model is told, after a sound answer."""
    model = ScriptedModel([calls(call), "well", "well again"])
    async with open_home(place, model, tools=tools) as home:
        await home.agents.create("aria")
        async with asyncio.timeout(120):
            assert (await home.agents.ask("aria", "go")).text == "well"
            assert (await home.agents.ask("aria", "next")).text == "well again"
    result = heard(model.requests[1])[-1]
    assert (result["role"], result["tool_call_id"]) == ("tool", "call_0")
    return result["content"]


# -- trouble -------------------------------------------------------------------------------------


@pytest.mark.promise("X5")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (ToolError("The door is locked."), "Error: The door is locked."),
        (ValueError("half \ud800"), "Error: act failed with ValueError: half ?"),
        (SystemExit(3), "Error: act failed with SystemExit: 3"),
        (asyncio.CancelledError(), "Error: act failed with CancelledError"),
        (TimeoutError("late"), "Error: act failed with TimeoutError: late"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_a_tool_that_fails_is_told_to_the_model(
    tmp_path: Path,
    effect: str,
    trouble: BaseException,
    told: str,
    caplog: pytest.LogCaptureFixture,
):
    # A report with half a surrogate pair in it cannot be sent between pytest's processes.
    caplog.set_level(logging.CRITICAL, "asterism")

    async def act() -> None:
        raise trouble

    assert (await result_of(tmp_path, declared(effect, act))).startswith(told)


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("call", "told"),
    [
        (
            ("nothing", "{}"),
            (
                "There are: act, block, block_edit, calculator, expand, file, heartbeat, "
                "propose_plan, recall, remember, schedule, search, send_message, shell, source, "
                "think, web."
            ),
        ),
        (("act", "{oops"), "not valid JSON"),
        (("act", "[1]"), "must be a JSON object"),
        (("act", '{"word": 7, "other": 1}'), "do not fit act: word"),
        (("act", '{"word": "\\ud800"}'), "not valid JSON"),
    ],
)
async def test_a_call_that_cannot_be_made_is_told_to_the_model(
    tmp_path: Path, call: tuple[str, str], told: str
):
    @tool
    def act(word: str) -> str:
        raise AssertionError("must not run")

    result = await result_of(tmp_path, act, call=call)
    assert result.startswith("Error: ")
    assert told in result


@pytest.mark.parametrize("effect", EFFECTS)
async def test_a_huge_result_is_cut_and_lone_surrogates_are_replaced(tmp_path: Path, effect: str):
    async def act() -> str:
        return "\ud800" + "x" * 1_000_000

    result = await result_of(tmp_path, declared(effect, act))
    assert result.startswith("?xxx")
    assert result.endswith("(Cut: the first 100,000 of 1,000,001 characters are shown.)")


async def test_a_transaction_that_waits_for_something_else_is_told_to_the_model(tmp_path: Path):
    async def act(ctx: ToolContext) -> None:
        await ctx.tx.run("CREATE TABLE half_done (x BIGINT)")
        await asyncio.sleep(0)

    assert "may await its connection and nothing else" in (
        await result_of(tmp_path, declared("transactional", act))
    )
    async with open_home(tmp_path) as home:
        found = await home.database.read(
            lambda tx: tx.one("SELECT 1 FROM sqlite_schema WHERE name = 'half_done'")
        )
        assert found is None


@pytest.mark.promise("T3")
@pytest.mark.parametrize(("effect", "unknown"), [("repeatable", False), ("unknown", True)])
async def test_a_call_given_up_is_unknown_unless_it_can_be_repeated(
    tmp_path: Path, effect: str, unknown: bool
):
    async def act() -> None:
        await asyncio.Event().wait()

    one = declared(effect, act)
    one.timeout = 0.05
    result = await result_of(tmp_path, one)
    assert "gave no answer within 0.05 s" in result
    assert ("Outcome unknown" in result) is unknown
    async with open_home(tmp_path) as home:
        assert [notice.kind for notice in await home.notices.list()] == ["call.unknown"] * unknown


async def test_neighbouring_repeatable_calls_run_together_and_answer_in_order(tmp_path: Path):
    both = asyncio.Barrier(2)

    @tool(repeatable=True)
    async def meet(name: str) -> str:
        async with asyncio.timeout(120):
            await both.wait()
        return name

    model = ScriptedModel([calls(("meet", '{"name": "a"}'), ("meet", '{"name": "b"}')), "well"])
    async with open_home(tmp_path, model, tools=[meet]) as home:
        await home.agents.create("aria")
        assert (await home.agents.ask("aria", "go")).text == "well"
    assert [message["content"] for message in heard(model.requests[1])[-2:]] == ["a", "b"]


# -- crashes in mid-call -------------------------------------------------------------------------


class Outside:
    """A place outside that tools act upon; it outlives every crash."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.checked: list[str] = []
        self.reached = asyncio.Event()
        self.hang_before = self.hang_after = False

    def tool(self, effect: RetrySafety) -> Tool:
        """A tool that acts upon it, and may never return."""

        async def act(ctx: ToolContext) -> str:
            if self.hang_before:
                await self._hang()
            self.done.append(ctx.key)
            if self.hang_after:
                await self._hang()
            return "acted"

        async def check(ctx: ToolContext) -> Any:
            self.checked.append(ctx.key)
            return "seen to have acted" if ctx.key in self.done else NOT_HAPPENED

        if effect is RetrySafety.REPEATABLE:
            return tool(repeatable=True)(act)
        return tool(check=check)(act) if effect is RetrySafety.CHECKABLE else tool(act)

    async def _hang(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


@pytest.mark.promise("T2", "T3")
@pytest.mark.parametrize("acted", [False, True], ids=["before its effect", "after its effect"])
@pytest.mark.parametrize(
    "effect", [RetrySafety.REPEATABLE, RetrySafety.CHECKABLE, RetrySafety.UNKNOWN]
)
async def test_a_call_under_way_at_a_crash_is_reconciled(
    tmp_path: Path, effect: RetrySafety, acted: bool
):
    outside = Outside()
    outside.hang_before, outside.hang_after = not acted, acted
    model = obedient()
    async with open_home(tmp_path, model, tools=[outside.tool(effect)], grace=0) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "[[call:act {}]]")
        await outside.reached.wait()
    assert len(model.requests) == 1

    outside.hang_before = outside.hang_after = False
    async with open_home(tmp_path, model, tools=[outside.tool(effect)]) as home:
        outcome = await _ended(home, receipt.turn_id)
        assert outcome == (TurnState.DONE, "answer to: [[call:act {}]]")
        kinds = [notice.kind for notice in await home.notices.list()]
    # The reply that made the call was recorded, so it was not asked for again.
    assert len(model.requests) == 2
    told = heard(model.requests[1])[-1]["content"]
    key = f"{receipt.turn_id}/0/call/0"
    match effect:
        case RetrySafety.REPEATABLE:
            assert (told, outside.done) == ("acted", [key] * (1 + acted))
        case RetrySafety.CHECKABLE:
            assert told == ("seen to have acted" if acted else "acted")
            assert (outside.done, outside.checked) == ([key], [key])
        case _:
            assert told.startswith("Outcome unknown")
            assert outside.done == [key] * acted
    assert kinds == (["call.unknown"] if effect is RetrySafety.UNKNOWN else [])


@pytest.mark.promise("T3")
@pytest.mark.parametrize("effect", [RetrySafety.CHECKABLE, RetrySafety.UNKNOWN])
async def test_a_call_under_way_whose_tool_is_gone_after_the_crash_is_unknown(
    tmp_path: Path, effect: RetrySafety
):
    outside = Outside()
    outside.hang_after = True
    async with open_home(tmp_path, tools=[outside.tool(effect)], grace=0) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "[[call:act {}]]")
        await outside.reached.wait()
    model = obedient()
    async with open_home(tmp_path, model) as home:
        await _ended(home, receipt.turn_id)
        assert [notice.kind for notice in await home.notices.list()] == ["call.unknown"]
    assert heard(model.requests[0])[-1]["content"].startswith("Outcome unknown")


@pytest.mark.promise("T3")
async def test_a_check_that_fails_leaves_the_call_unknown(tmp_path: Path):
    outside = Outside()
    outside.hang_after = True
    async with open_home(tmp_path, tools=[outside.tool(RetrySafety.CHECKABLE)], grace=0) as home:
        await home.agents.create("aria")
        receipt = await home.agents.send("aria", "[[call:act {}]]")
        await outside.reached.wait()

    async def check(ctx: ToolContext) -> Any:
        raise OSError("no route")

    async def act(ctx: ToolContext) -> None:
        raise AssertionError("must not run again")

    async with open_home(tmp_path, tools=[tool(check=check)(act)]) as home:
        await _ended(home, receipt.turn_id)
        assert [notice.kind for notice in await home.notices.list()] == ["call.unknown"]


async def _ended(home: Asterism, turn_id: str) -> tuple[TurnState, str]:
    async def over() -> bool:
        return (await home.turns.outcome(turn_id)).state is not TurnState.OPEN

    await until(over)
    outcome = await home.turns.outcome(turn_id)
    return outcome.state, outcome.text


@pytest.mark.promise("T3")
async def test_a_transactional_tool_that_fails_leaves_nothing_but_its_error(tmp_path: Path):
    @tool(transactional=True)
    async def act(ctx: ToolContext, fail: bool) -> str:
        await ctx.tx.run("INSERT INTO scribbles VALUES (?)", (ctx.key,))
        if fail:
            raise ToolError("Changed my mind.")
        return "written"

    async with open_home(tmp_path, tools=[act]) as home:
        await home.database.write(lambda tx: tx.run("CREATE TABLE scribbles (key TEXT)"))
        await home.agents.create("aria")
        await home.agents.ask("aria", '[[call:act {"fail": true}]][[call:act {"fail": false}]]')
        (record,) = await home.turns.list("aria")
        written = await home.database.read(lambda tx: tx.all("SELECT key FROM scribbles"))
        assert written == [(f"{record.id}/1/call/0",)]
        _, entries = await home.turns.get(record.id)
        assert [entry.kind for entry in entries] == [
            EntryKind.MESSAGE, EntryKind.REPLY, EntryKind.RESULT,
            EntryKind.REPLY, EntryKind.RESULT, EntryKind.REPLY,
        ]  # fmt: skip


# -- the state of a result ------------------------------------------------------------------------


HONEST = [
    "Error: line 7 of the log says so.",
    "Not run: two of the tests.",
    "Cut short: the film.",
    "Outcome unknown: the match goes on.",
    "Error: x. Outcome unknown: y",
]
"""What begins like the words of the system and is none of them."""


@pytest.mark.promise("X5")
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("text", HONEST)
async def test_what_a_tool_returns_does_not_choose_its_state(
    tmp_path: Path, effect: str, text: str
):
    model = ScriptedModel([calls(("act", "{}")), "well"])
    async with open_home(tmp_path, model, tools=[declared(effect, lambda: text)]) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "go")
        _, entries = await home.turns.get(outcome.turn_id)
    (result,) = [entry.result for entry in entries if entry.kind is EntryKind.RESULT]
    assert result == ToolResult(ResultState.OK, text)


@pytest.mark.promise("X5")
@pytest.mark.parametrize("effect", EFFECTS)
async def test_the_state_of_a_call_that_failed_is_kept(tmp_path: Path, effect: str):
    def act() -> str:
        raise ToolError("The door is locked.")

    model = ScriptedModel([calls(("act", "{}"), ("act", "[]"), ("none", "{}")), "well"])
    async with open_home(tmp_path, model, tools=[declared(effect, act)]) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "go")
        _, entries = await home.turns.get(outcome.turn_id)
    results = [entry.result for entry in entries if entry.kind is EntryKind.RESULT]
    assert [one.state for one in results if one] == [
        ResultState.FAILED,
        ResultState.NOT_RUN,
        ResultState.NOT_RUN,
    ]
    assert results[0] == ToolResult(ResultState.FAILED, "Error: The door is locked.")
