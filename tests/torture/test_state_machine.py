"""Any order of accepting, deciding, stopping, editing and crashing leaves every promise kept.

A crash is simulated at the seam to the database: at a chosen write the process freezes, before
or after the write is durable. Then all that was in memory is dropped and opened anew from disk.
"""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from asterism import NOT_HAPPENED, Asterism, Delivery, Receipt, Tool, ToolContext, TurnState, tool
from asterism.errors import Conflict
from asterism.ports import Emit, ModelRequest
from asterism.store.database import Connection, Database, Work
from asterism.store.sqlite import open_sqlite
from asterism.testing.channel import MemoryChannel
from asterism.testing.scripted import ScriptedModel
from asterism.types.permissions import ApprovalRecord, ToolEffect
from asterism.types.turns import Reply
from tests.conftest import TORTURE
from tests.scenes import heard, obedient, open_home
from tests.servers.openai_server import directives
from tests.torture.audit import AuditedTurn, audit
from tests.torture.worker import finished

T = TypeVar("T")
AGENTS = ("aria", "bela")
TOOLS = ("enter", "stamp", "post", "mail", "sign", "heartbeat")
PLANS = st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3)
DEATHS = st.tuples(st.integers(1, 6), st.booleans())
"""At which write from now on, and whether it is durable."""


class Mortal:
    """Whether the simulated process lives; whatever it does after its death is not done."""

    def __init__(self) -> None:
        self.died = asyncio.Event()
        self.dying = False
        """Whether the write at which it dies is under way."""
        self._writes_left = 0
        self._durable = False

    def doom(self, writes: int, *, durable: bool) -> None:
        """Die at a later write: before it, or when it is durable and nobody has heard of it."""
        self._writes_left, self._durable = writes, durable

    async def alive(self) -> None:
        """Go on if the process lives; else never."""
        if self.died.is_set():
            await self._rest()

    async def write(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write, unless this is the write at which the process dies."""
        await self.alive()
        self._writes_left -= 1
        if self._writes_left != 0:
            result = await write()
            await self.alive()
            return result
        self.dying = True
        if self._durable:
            await write()
        self.died.set()
        return await self._rest()

    async def _rest(self) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


class MortalDatabase:
    """A database as a mortal process sees it."""

    distributed = False

    def __init__(self, real: Database, mortal: Mortal) -> None:
        self._real = real
        self._mortal = mortal
        self.constellation = real.constellation
        self.listen, self.check, self.close = real.listen, real.check, real.close
        self.columns, self.scrub, self.alone = real.columns, real.scrub, real.alone
        self.upgrade, self.snapshot = real.upgrade, real.snapshot
        self.last_full = real.last_full

    def for_constellation(self, name: str) -> Database:
        real = self._real.for_constellation(name)
        return self if real is self._real else MortalDatabase(real, self._mortal)

    async def write(self, work: Work[T]) -> T:
        return await self._mortal.write(lambda: self._real.write(work))

    async def read(self, work: Work[T], *, brief: bool = False) -> T:
        await self._mortal.alive()
        return await self._real.read(work, brief=brief)


class MortalModel(ScriptedModel):
    """An obedient model; it keeps the system prompt that each turn was told."""

    def __init__(self, household: "Household") -> None:
        super().__init__()
        self._household = household
        self._obedient = obedient()

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        await self._household.mortal.alive()
        turn_id, _, step = request.key.partition("/")
        if step == "0/reply":
            self._household.systems[turn_id] = heard(request)[0]["content"].partition("\n\n")[0]
        self._household.asked[request.key] += 1
        return await self._obedient.complete(request, emit)


class Household(RuleBasedStateMachine):
    """A home with two agents, crashed and opened again at will."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.place = Path(tempfile.mkdtemp(prefix="asterism-household-"))
        self.mortal: Mortal
        self.home: Asterism
        self._open: AbstractAsyncContextManager[Asterism]
        self.crashes = 0
        self.quiet = False
        # What is outside, and outlives every crash:
        self.effects: Counter[tuple[str, str]] = Counter()
        self.received: list[Delivery] = []
        self.asked: Counter[str] = Counter()
        self.systems: dict[str, str] = {}
        # What must be true:
        self.accepted: dict[str, list[tuple[str, Receipt]]] = {name: [] for name in AGENTS}
        self.questions = 0
        self.decisions: dict[str, bool] = {}
        self.stopped: set[str] = set()
        self.system: dict[str, str] = dict.fromkeys(AGENTS, "new")
        self.systems_due: dict[str, str] = {}

    # -- life and death ------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def _start(self) -> None:
        self.mortal = Mortal()
        self.holding = asyncio.Event()
        self.database = MortalDatabase(await open_sqlite(self.place), self.mortal)
        self._open = open_home(
            self.place,
            MortalModel(self),
            database=self.database,
            tools=self._tools(),
            channels={"room": _Room(self)},
            grace=5.0,
        )
        self.home = await self._open.__aenter__()

    async def _crash(self) -> None:
        """Drop everything in memory without a word, and start anew from disk."""
        self.crashes += 1
        self.mortal.died.set()
        async with asyncio.timeout(30):
            while dropped := asyncio.all_tasks() - {asyncio.current_task()}:
                for task in dropped:
                    task.cancel()
                # One that was being stopped just now takes the first cancellation for that.
                await asyncio.wait(dropped, timeout=0.1)
            await self._open.__aexit__(None, None, None)
        await self._start()

    async def _insist(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something until it is done, as a caller does that is there after each crash."""
        while True:
            doing = asyncio.ensure_future(attempt())
            dying = asyncio.ensure_future(self.mortal.died.wait())
            async with asyncio.timeout(20):
                await asyncio.wait({doing, dying}, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                dying.cancel()
                return doing.result()
            await self._crash()

    def _tools(self) -> list[Tool]:
        async def act(name: str, ctx: ToolContext) -> str:
            await self.mortal.alive()
            assert await self._is_recorded(ctx), "acted upon a reply before it was recorded"
            await self.mortal.alive()
            self.effects[name, ctx.key] += 1
            await asyncio.sleep(0)
            return f"{name} done"

        @tool(transactional=True)
        async def enter(ctx: ToolContext, number: int) -> str:
            del number  # tells two calls of one turn apart
            await ctx.tx.run("INSERT INTO entered VALUES (?)", (ctx.key,))
            return "enter done"

        @tool(repeatable=True, effects=ToolEffect("read"))
        async def stamp(ctx: ToolContext, number: int) -> str:
            del number  # tells two calls of one turn apart
            return await act("stamp", ctx)

        async def posted(ctx: ToolContext, number: int) -> Any:
            del number
            await self.mortal.alive()
            return "post done" if self.effects["post", ctx.key] else NOT_HAPPENED

        @tool(check=posted, effects=ToolEffect("read"))
        async def post(ctx: ToolContext, number: int) -> str:
            del number  # tells two calls of one turn apart
            return await act("post", ctx)

        @tool(effects=ToolEffect("read"))
        async def mail(ctx: ToolContext, number: int) -> str:
            del number  # tells two calls of one turn apart
            return await act("mail", ctx)

        @tool(ask=True, effects=ToolEffect("read"))
        async def sign(ctx: ToolContext, number: int) -> str:
            del number  # tells two calls of one turn apart
            return await act("sign", ctx)

        @tool(repeatable=True, effects=ToolEffect("read"))
        async def hold(ctx: ToolContext) -> str:
            self.holding.set()
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

        return [enter, stamp, post, mail, sign, hold]

    async def _is_recorded(self, ctx: ToolContext) -> bool:
        step = ctx.key.removeprefix(f"{ctx.turn_id}/").partition("/")[0]
        select = "SELECT 1 FROM entries WHERE agent_id = ? AND turn_id = ? AND key = ?"
        row = await self.database.read(
            lambda tx: tx.one(select, (ctx.agent.id, ctx.turn_id, f"{step}/reply"))
        )
        return row is not None

    @initialize()
    def open(self) -> None:
        async def prepare() -> None:
            await self._start()
            await self.home.database.write(lambda tx: tx.run("CREATE TABLE entered (key TEXT)"))
            for name in AGENTS:
                await self.home.agents.create(name, system=self.system[name])

        self.run(prepare())

    def teardown(self) -> None:
        if hasattr(self, "home"):
            self.settle()
            self.promises_are_kept()
            self.run(_exit(self._open))
        self.runner.close()
        shutil.rmtree(self.place)

    # -- what can happen -----------------------------------------------------------------------

    @rule(agent=st.sampled_from(AGENTS), plan=PLANS)
    def accept(self, agent: str, plan: list[str]) -> None:
        # Each with an argument of its own: the same call again would be answered from before.
        calls = (
            f' [[call:{name} {{"reason": "{number}"}}]]'
            if name == "heartbeat"
            else f' [[call:{name} {{"number": {number}}}]]'
            for number, name in enumerate(plan)
        )
        self._send(agent, f"{len(self.accepted[agent])}{''.join(calls)}")
        self.questions += "sign" in plan

    @rule(
        agent=st.sampled_from(AGENTS), plan=PLANS, deaths=st.lists(DEATHS, min_size=1, max_size=3)
    )
    def accept_and_die(self, agent: str, plan: list[str], deaths: list[tuple[int, bool]]) -> None:
        self.accept(agent, plan)
        for writes, durable in deaths:
            self.mortal.doom(writes, durable=durable)
            self.settle()

    def _send(self, agent: str, text: str) -> Receipt:
        number = len(self.accepted[agent])

        async def send() -> Receipt:
            return await self.home.agents.send(
                agent, text, channel="room", external_id=f"{agent}/{number}", reply_to=agent
            )

        self.quiet = False
        receipt = self.run(self._insist(send))
        self.accepted[agent].append((text, receipt))
        self.systems_due[receipt.turn_id] = self.system[agent]
        return receipt

    @precondition(lambda self: any(self.accepted.values()))
    @rule(data=st.data())
    def accept_again(self, data: st.DataObject) -> None:
        agent = data.draw(st.sampled_from([name for name in AGENTS if self.accepted[name]]))
        number = data.draw(st.integers(0, len(self.accepted[agent]) - 1))
        text, former = self.accepted[agent][number]

        async def send() -> Receipt:
            return await self.home.agents.send(
                agent, text, channel="room", external_id=f"{agent}/{number}", reply_to=agent
            )

        again = self.run(self._insist(send))
        assert (again.turn_id, again.duplicate) == (former.turn_id, True)

    @rule(death=DEATHS)
    def doom(self, death: tuple[int, bool]) -> None:
        writes, durable = death
        self.mortal.doom(writes, durable=durable)

    @rule(moments=st.integers(0, 60))
    def crash(self, moments: int) -> None:
        async def crash() -> None:
            for _ in range(moments):
                await asyncio.sleep(0)
            await self._crash()

        self.run(crash())

    @rule()
    def restart(self) -> None:
        async def restart() -> None:
            if self.mortal.dying:
                await self.mortal.died.wait()
                await self._crash()
                return
            self.mortal.doom(0, durable=False)
            await self._open.__aexit__(None, None, None)
            await self._start()

        self.run(restart())

    @rule()
    def settle(self) -> None:
        self.run(self._insist(lambda: finished(self.home)))
        self.quiet = True

    async def _questions(self) -> Sequence[ApprovalRecord]:
        return await self.home.approvals.list()

    @precondition(lambda self: self.questions > len(self.decisions))
    @rule(approved=st.booleans(), data=st.data())
    def decide(self, approved: bool, data: st.DataObject) -> None:
        self.settle()
        questions = self.run(self._insist(self._questions))
        question = data.draw(st.sampled_from(questions))

        async def decide() -> None:
            try:
                await self.home.approvals.decide(question.id, approved=approved)
            except Conflict:
                # It was stored before a crash that kept us from hearing so.
                assert self.crashes

        self.quiet = False
        self.run(self._insist(decide))
        self.decisions[f"{question.turn_id}/{question.key}"] = approved
        with pytest.raises(Conflict):
            self.run(
                self._insist(lambda: self.home.approvals.decide(question.id, approved=not approved))
            )

    @precondition(lambda self: not self.stopped)
    @rule(agent=st.sampled_from(AGENTS))
    def stop(self, agent: str) -> None:
        receipt = self._send(agent, f"{len(self.accepted[agent])} [[call:hold {{}}]]")

        async def stop() -> None:
            await self.holding.wait()
            await self.home.turns.stop(receipt.turn_id)
            assert (await self.home.turns.wait(receipt)).state is TurnState.STOPPED

        async def stop_unless_stopped() -> None:
            if (await self.home.turns.outcome(receipt.turn_id)).state is not TurnState.STOPPED:
                await stop()
            self.holding.clear()

        self.run(self._insist(stop_unless_stopped))
        self.stopped.add(receipt.turn_id)

    @rule(agent=st.sampled_from(AGENTS))
    def edit(self, agent: str) -> None:
        self.settle()
        system = f"{self.system[agent]}, edited"

        async def edit() -> None:
            await self.home.agents.edit(agent, system=system)

        self.run(self._insist(edit))
        self.system[agent] = system

    # -- what must be true ---------------------------------------------------------------------

    @invariant()
    def promises_are_kept(self) -> None:
        if self.quiet:
            self.run(self._insist(self._judge))

    async def _judge(self) -> None:
        found = await audit(self.home.database, parked=True)
        turns = {turn.id: turn for turn in found.all_turns()}
        for agent, accepted in self.accepted.items():
            mine = [turns[receipt.turn_id] for _, receipt in accepted]
            assert [turn.asked for turn in mine] == [text for text, _ in accepted]
            assert len({turn.id for turn in mine}) == len(mine)
            seqs = [turn.entries[0].seq for turn in mine]
            assert seqs == sorted(seqs), f"{agent} answered out of order"
        self._judge_turns(list(turns.values()))
        self._judge_deliveries(turns)
        rows = await self.home.database.read(_entered)
        self._judge_effects(list(turns.values()), Counter(row[0] for row in rows))
        told = {turn: n for (kind, turn), n in found.notices.items() if kind == "call.unknown"}
        assert told == Counter(turn.id for turn in turns.values() for _ in _unknown(turn))

    def _judge_turns(self, turns: list[AuditedTurn]) -> None:
        beats = 0
        for turn in turns:
            wanted = [name for name, _ in directives(turn.asked)]
            if "sign" in wanted:
                wanted = wanted[: wanted.index("sign") + 1]
            assert [name for name, _ in turn.results.values()] == wanted
            beats += wanted.count("heartbeat")
            assert (turn.state is TurnState.STOPPED) == (turn.id in self.stopped)
            undecided = [
                key
                for key, (name, _) in turn.results.items()
                if name == "sign" and key not in self.decisions
            ]
            assert (turn.state is TurnState.PARKED) == bool(undecided)
            if turn.state is TurnState.DONE and "sign" not in wanted:
                assert turn.answer == f"answer to: {turn.asked}"
            if turn.id in self.systems_due:
                assert self.systems[turn.id] == self.systems_due[turn.id]
        accepted = sum(map(len, self.accepted.values()))
        assert len(turns) == accepted + beats, "each heartbeat is one turn"

    def _judge_deliveries(self, turns: dict[str, AuditedTurn]) -> None:
        answers = [one for one in self.received if one.key.endswith("/answer")]
        assert {one.turn_id for one in answers} == {
            turn.id for turn in turns.values() if turn.ended_at is not None
        }
        assert len(self.received) <= len({one.key for one in self.received}) + self.crashes * 2

    def _judge_effects(self, turns: list[AuditedTurn], entered: Counter[str]) -> None:
        assert all(count == 1 for (name, _), count in self.effects.items() if name != "stamp")
        done = {key for _, key in self.effects}
        for turn in turns:
            unknown = _unknown(turn)
            for key, (name, result) in turn.results.items():
                if name in ("stamp", "post"):
                    assert (key in done, result) == (True, f"{name} done")
                elif name == "enter":
                    assert (entered[key], result) == (1, "enter done")
                elif name == "mail":
                    assert key in done or key in unknown
                elif name == "sign":
                    approved = self.decisions.get(key, False)
                    assert (key in done) == approved or (approved and key in unknown)
        replies = Counter(f"{turn.id}/{e.key}" for turn in turns for e in turn.entries)
        repeats = {key: count for key, count in self.asked.items() if count > 1 and replies[key]}
        extra = sum(count - 1 for count in repeats.values())
        assert extra <= self.crashes * len(AGENTS), f"asked for again: {repeats}"


def _unknown(turn: AuditedTurn) -> list[str]:
    """The calls of a turn whose outcome its agent was told to be unknown."""
    return [
        f"{turn.id}/{entry.key.removesuffix('/outcome')}"
        for entry in turn.entries
        if b"Outcome unknown" in entry.body and entry.key != "in" and "/reply" not in entry.key
    ]


async def _entered(tx: Connection) -> list[tuple[Any, ...]]:
    return await tx.all("SELECT key FROM entered")


async def _exit(context: AbstractAsyncContextManager[Asterism]) -> None:
    await context.__aexit__(None, None, None)


class _Room(MemoryChannel):
    """People who remember what they got, whoever brought it."""

    def __init__(self, household: Household) -> None:
        super().__init__()
        self._household = household

    async def deliver(self, delivery: Delivery) -> None:
        await self._household.mortal.alive()
        self._household.received.append(delivery)


@pytest.mark.promise("T1", "T2", "T3", "T4", "K2")
@pytest.mark.timeout(3_600 if TORTURE else 400)
def test_a_household_keeps_its_promises_whatever_happens() -> None:
    many = settings.get_profile("torture").max_examples if TORTURE else 40
    run_state_machine_as_test(
        Household, settings=settings(stateful_step_count=15, max_examples=many)
    )


if TORTURE:
    pytestmark = pytest.mark.torture
