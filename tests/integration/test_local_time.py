"""The owner's time: in front of messages, in schedules in and out, and after a move."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, InvalidInput, NotAllowed, NotFound
from asterism.permissions import Actor
from asterism.ports import ModelRequest
from asterism.testing.clock import ManualClock
from asterism.testing.scripted import ScriptedModel
from asterism.times import to_ms, zone_named
from asterism.types.agents import Trust
from asterism.types.search import ReasonKind
from asterism.types.turns import text_of
from tests.scenes import calls, obedient, open_home, until

ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Pacific/Auckland")
OPENED = {
    "Europe/Berlin": "[Tue 2026-11-17 14:05] ",
    "America/New_York": "[Tue 2026-11-17 08:05] ",
    "Asia/Kolkata": "[Tue 2026-11-17 18:35] ",
    "Pacific/Auckland": "[Wed 2026-11-18 02:05] ",
}
NOW = to_ms(datetime(2026, 11, 17, 14, 5, tzinfo=zone_named("Europe/Berlin")))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def living_in(zone: str, **more: Any) -> dict[str, Any]:
    return {"timezone": zone, **more}


def texts(request: ModelRequest) -> list[str]:
    return [text_of(wire) for wire in request.messages]


def plan(**arguments: str) -> str:
    return f"[[call:schedule {json.dumps(arguments)}]]"


async def look(home: Asterism) -> None:
    """Have schedules look at the clock, as they do by themselves when time passes."""
    await home.database.write(lambda tx: tx.notify("schedule", ""))


# -- what a model is shown -----------------------------------------------------------------------


@pytest.mark.promise("T15")
@pytest.mark.parametrize("zone", ZONES)
async def test_an_agent_knows_the_time_where_its_owner_is(
    tmp_path: Path, clock: ManualClock, zone: str
):
    model = ScriptedModel(["one", "two"])
    async with open_home(tmp_path, model, clock=clock, settings=living_in(zone)) as home:
        aria = await home.agents.create("aria")
        first = await aria.ask("What time is it?")
        clock.forward(seconds=3 * 60)
        await aria.ask("And now?")
        assert f"at which they were sent, in {zone}." in texts(model.requests[0])[0]
        stamp = OPENED[zone]
        later = stamp.replace(":05]", ":08]").replace(":35]", ":38]")
        expected = [f"{stamp}What time is it?", "one", f"{later}And now?"]
        assert texts(model.requests[1])[1:] == expected
        # What was sent before is sent again, byte for byte.
        assert model.requests[1].messages[:2] == model.requests[0].messages
        # The journal, search and answers have the text alone.
        _, entries = await home.turns.get(first.turn_id)
        assert text_of(entries[0].body) == "What time is it?"
        assert all("2026-11-17" not in hit.text for hit in (await home.search("aria", "time")).hits)


async def test_a_time_that_a_person_writes_stands_after_the_real_one(
    tmp_path: Path, clock: ManualClock
):
    model = ScriptedModel(["one"])
    async with open_home(tmp_path, model, clock=clock, settings=living_in("Europe/Berlin")) as home:
        aria = await home.agents.create("aria")
        await aria.ask("[Mon 2020-01-06 08:00] Is it 2020?")
    assert texts(model.requests[0])[-1] == (
        "[Tue 2026-11-17 14:05] [Mon 2020-01-06 08:00] Is it 2020?"
    )


@pytest.mark.promise("T15")
async def test_the_outcome_of_a_call_that_waited_has_its_time(tmp_path: Path, clock: ManualClock):
    model = ScriptedModel([calls(("pay", '{"to": "bob"}')), "asked", "done"])
    from asterism import ToolContext, tool

    @tool(ask=True)
    async def pay(ctx: ToolContext, to: str) -> str:
        """Pay somebody."""
        return f"Paid {to}."

    settings = living_in("Europe/Berlin")
    async with open_home(tmp_path, model, clock=clock, settings=settings, tools=[pay]) as home:
        aria = await home.agents.create("aria")
        await aria.send("Pay Bob.")

        async def asked() -> bool:
            return bool(await home.approvals.list())

        await until(asked)
        clock.forward(seconds=3_600)
        (approval,) = await home.approvals.list()
        receipt = await approval.approve()
        await home.turns.wait(receipt)
    told = [text for text in texts(model.requests[-1]) if text.startswith("[asterism]")]
    assert any(text.startswith("[asterism] [Tue 2026-11-17 15:05] ") for text in told)


@pytest.mark.promise("T15")
async def test_a_move_begins_a_new_context_and_the_past_stays_as_it_was_shown(
    tmp_path: Path, clock: ManualClock
):
    model = ScriptedModel(["one", "two"])
    settings = living_in("Europe/Berlin")
    async with open_home(tmp_path, model, clock=clock, settings=settings) as home:
        aria = await home.agents.create("aria")
        first = await aria.ask("Hello!")
    settings = living_in("America/New_York")
    async with open_home(tmp_path, model, clock=clock, settings=settings) as home:
        second = await home.agents.ask("aria", "Hello again!")
        assert texts(model.requests[1])[1] == "[Tue 2026-11-17 08:05] Hello!"
        for outcome, request in ((first, model.requests[0]), (second, model.requests[1])):
            shown = await home.contexts.of_turn(outcome.turn_id)
            assert list(shown.messages) == request.messages
        assert (await home.contexts.of_turn(second.turn_id)).epoch == 2
        now = await home.contexts.now("aria")
        assert now.messages[1] == model.requests[1].messages[1]
        assert (await home.turns.replay(first.turn_id)).same


async def test_a_zone_that_is_edited_takes_effect_at_the_next_turn(
    tmp_path: Path, clock: ManualClock
):
    file = tmp_path / "asterism.toml"
    file.write_text('timezone = "Europe/Berlin"\n')
    model = ScriptedModel(["one", "two"])
    async with open_home(tmp_path, model, clock=clock) as home:
        aria = await home.agents.create("aria")
        await aria.ask("Hello!")
        file.write_text('timezone = "Asia/Kolkata"\n')
        home._engine.live_settings.reload()  # pyright: ignore[reportPrivateUsage] - as its watcher does
        await aria.ask("Hello again!")
    assert texts(model.requests[1])[1:] == [
        "[Tue 2026-11-17 18:35] Hello!",
        "one",
        "[Tue 2026-11-17 18:35] Hello again!",
    ]


# -- schedules -----------------------------------------------------------------------------------


@pytest.mark.promise("T15")
@pytest.mark.parametrize("zone", ZONES)
async def test_tomorrow_at_nine_means_that(tmp_path: Path, clock: ManualClock, zone: str):
    model = obedient()
    async with open_home(tmp_path, model, clock=clock, settings=living_in(zone)) as home:
        aria = await home.agents.create("aria")
        await aria.ask(plan(operation="at", when="tomorrow at nine", message="call Ada"))
        (entry,) = await home.schedules.list("aria")
        day = 19 if zone == "Pacific/Auckland" else 18
        weekday = "Thu" if day == 19 else "Wed"
        assert entry.due_at_ms == to_ms(datetime(2026, 11, day, 9, tzinfo=zone_named(zone)))
        told = f"Scheduled for {weekday} {day} Nov 2026, 09:00 ({zone}), as {entry.id}."
        assert texts(model.requests[-1])[-1] == told
        await aria.ask(plan(operation="list"))
        listed = f"{entry.id}: {weekday} {day} Nov 2026, 09:00: call Ada"
        assert texts(model.requests[-1])[-1] == listed
        clock.now = entry.due_at_ms
        await look(home)
        await until(lambda: "[scheduled for" in texts(model.requests[-1])[-1])
        assert texts(model.requests[-1])[-1] == (
            f"[{weekday} 2026-11-{day} 09:00] [scheduled for {weekday} {day} Nov 09:00] call Ada"
        )


@pytest.mark.promise("T15")
async def test_a_rule_keeps_its_time_of_day_when_summer_time_begins(
    tmp_path: Path, clock: ManualClock
):
    zone = zone_named("Europe/Berlin")
    clock.now = to_ms(datetime(2026, 3, 27, 12, tzinfo=zone))
    async with open_home(tmp_path, clock=clock, settings=living_in("Europe/Berlin")) as home:
        aria = await home.agents.create("aria")
        await aria.ask(plan(operation="every", when="every day at 9", message="stand up"))
        due: list[str] = []
        for turns in range(2, 5):
            (entry,) = await home.schedules.list("aria")
            due.append(f"{datetime.fromtimestamp(entry.due_at_ms / 1000, zone):%d %H:%M %z}")
            clock.now = entry.due_at_ms
            await look(home)

            async def answered(count: int = turns) -> bool:
                return len(await home.turns.list("aria")) == count

            await until(answered)
    assert due == ["28 09:00 +0100", "29 09:00 +0200", "30 09:00 +0200"]


async def test_a_time_of_day_that_has_passed_is_told_to_be_tomorrow(
    tmp_path: Path, clock: ManualClock
):
    model = obedient()
    settings = living_in("Europe/Berlin")
    async with open_home(tmp_path, model, clock=clock, settings=settings) as home:
        aria = await home.agents.create("aria")
        await aria.ask(plan(operation="at", when="9:00", message="tea"))
        told = texts(model.requests[-1])[-1]
    assert told.startswith("Scheduled for Wed 18 Nov 2026, 09:00 (Europe/Berlin), as sch_")
    assert told.endswith(" That time has passed today, so it is tomorrow.")


@pytest.mark.promise("T15")
async def test_the_owner_adds_and_cancels_schedules(tmp_path: Path, clock: ManualClock):
    async with open_home(tmp_path, clock=clock, settings=living_in("Asia/Kolkata")) as home:
        await home.agents.create("aria")
        entry = await home.schedules.add("aria", "every Monday at 8", "Water the plants.")
        assert (entry.cron, entry.zone) == ("0 8 * * 1", "Asia/Kolkata")
        moment = datetime(2026, 11, 23, 8, tzinfo=zone_named("Asia/Kolkata"))
        assert entry.due_at_ms == to_ms(moment)
        once = await home.schedules.add("aria", moment, "Once.")
        assert (once.due_at_ms, once.cron) == (entry.due_at_ms, None)
        assert await home.schedules.list("aria") == sorted(
            [entry, once], key=lambda schedule: schedule.id
        )
        assert await home.schedules.cancel(entry.id) == entry
        with pytest.raises(NotFound, match="There is no schedule"):
            await home.schedules.cancel(entry.id)
        kinds = [event.kind for event in await home.audit.list()]
        assert kinds.count("schedule.added") == 2
        assert kinds.count("schedule.cancelled") == 1
        with pytest.raises(InvalidInput, match="is not a valid time"):
            await home.schedules.add("aria", "soon", "x")
        with pytest.raises(InvalidInput, match="The message is empty"):
            await home.schedules.add("aria", "tomorrow", " ")
        with pytest.raises(NotFound, match="arya"):
            await home.schedules.add("arya", "tomorrow", "x")
        clock.now = once.due_at_ms
        await look(home)

        async def answered() -> bool:
            return bool(await home.turns.list("aria")) and not await home.turns.unfinished()

        await until(answered)
        (turn,) = await home.turns.list("aria")
        _, entries = await home.turns.get(turn.id)
        assert text_of(entries[0].body) == "[scheduled for Mon 23 Nov 08:00] Once."


# -- search --------------------------------------------------------------------------------------


@pytest.mark.promise("T15")
async def test_days_of_a_search_are_those_of_the_owner(tmp_path: Path):
    """In Auckland it is Wednesday already while it is Tuesday in UTC."""
    zone = zone_named("Pacific/Auckland")
    clock = ManualClock(to_ms(datetime(2026, 11, 17, 8, tzinfo=zone)))
    model = obedient()
    settings = living_in("Pacific/Auckland")
    async with open_home(tmp_path, model, clock=clock, settings=settings) as home:
        aria = await home.agents.create("aria")
        await aria.ask("The heron stood in the pond.")
        clock.now = to_ms(datetime(2026, 11, 18, 9, tzinfo=zone))
        call = json.dumps({"query": "heron", "since": "yesterday", "until": "yesterday"})
        await aria.ask(f"[[call:search {call}]]")
        found = texts(model.requests[-1])[-1]
        assert ", 17 Nov 2026" in found  # 16 November in UTC
        assert "The heron stood in the pond." in found
        call = json.dumps({"query": "heron", "since": "2026-11-18"})
        await aria.ask(f"[[call:search {call}]]")
        assert "stood in the pond" not in texts(model.requests[-1])[-1]
        hits = (await home.search("aria", "what did I say about the heron yesterday?")).hits
        (reason,) = {why.text for hit in hits for why in hit.why if why.kind is ReasonKind.DATE}
        assert reason == "17 Nov 2026"


@pytest.mark.promise("T15")
async def test_a_person_may_plan_for_themselves_and_sees_only_their_own(
    tmp_path: Path, clock: ManualClock
):
    async with open_home(tmp_path, clock=clock, settings=living_in("Europe/Berlin")) as home:
        await home.agents.create("aria")
        anna = await home.people.create("anna", trust=Trust.KNOWN)
        editor, nothing = frozenset({"editor"}), frozenset[str]()
        theirs = home.acting_as(Actor("person", anna.id, "anna", Trust.KNOWN, editor))
        own = await theirs.schedules.add("aria", "tomorrow at nine", "Wake me.")
        owners = await home.schedules.add("aria", "tomorrow at ten", "A secret.")
        assert [entry.id for entry in await theirs.schedules.list("aria")] == [own.id]
        with pytest.raises(NotFound, match="There is no schedule"):
            await theirs.schedules.cancel(owners.id)
        nobody = home.acting_as(Actor("person", anna.id, "anna", Trust.KNOWN, nothing))
        with pytest.raises(NotAllowed):
            await nobody.schedules.cancel(own.id)
        with pytest.raises(NotAllowed):
            await nobody.schedules.add("aria", "tomorrow", "x")
        assert len(await home.schedules.list("aria")) == 2
