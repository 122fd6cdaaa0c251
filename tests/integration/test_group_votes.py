"""Votes of groups: what a secret ballot keeps, exact ties, and the whole group as a quorum."""

import asyncio
from pathlib import Path

import orjson
import pytest

from asterism import Signal
from asterism.views import transcript_markdown, view
from tests.integration.group_scene import Cast, ballot, cast_home, soon

pytestmark = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)


@pytest.mark.promise("G1")
@pytest.mark.parametrize("tie", ["first_vote", "named", "no_decision"])
async def test_a_secret_ballot_shows_counts_and_nobodys_vote(engine: str, tmp_path: Path, tie: str):
    cast = Cast({"ada": ballot("approve", "I trust it"), "ben": ballot("reject", "I doubt it")})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        named = {"tie_member": "ada"} if tie == "named" else {}
        group = await home.groups.create(
            "board",
            pattern="voting",
            options={"secret": True, "tie": tie, **named},
            members=["ada", "ben"],
        )
        signals: list[Signal] = [signal async for signal in group.stream("Shall we?")]
        events = await group.transcript()
    minutes = signals[-1].data["text"]
    assert "- approve: 1" in minutes
    assert "- reject: 1" in minutes
    shown = [
        minutes,
        transcript_markdown("board", events),
        orjson.dumps([view(event) for event in events]).decode(),
        repr([signal.data for signal in signals if signal.kind != "decision"]),
    ]
    for text in shown:
        assert "trust it" not in text
        assert "doubt it" not in text
        assert '"choice":"' not in text.replace('\\"', '"')
    assert "ada" not in minutes
    answers = [event for event in events if event.kind == "answer"]
    # The order of the ballots tells who was first, so that they bear no names.
    assert [event.speaker for event in answers] == ["a member", "a member"]
    assert all("turn_id" not in event.details for event in answers)


@pytest.mark.promise("G1")
async def test_a_secret_weighted_ballot_counts_heads_in_its_minutes(engine: str, tmp_path: Path):
    cast = Cast({"ada": ballot("approve"), "ben": ballot("reject"), "cy": ballot("reject")})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create(
            "board",
            pattern="voting",
            options={"secret": True, "weighted": True},
            members=["ada", "ben", "cy"],
        )
        await group.add_member("ada", weight=3)
        text = (await soon(group.ask("Shall we?"))).text
    assert text.startswith("Decision: approve.")
    assert "Votes count by weight." in text
    assert "- approve: 1\n- reject: 2" in text


@pytest.mark.promise("G1")
async def test_an_open_vote_names_everybody(engine: str, tmp_path: Path):
    cast = Cast({"ada": ballot("approve", "I trust it")})
    async with cast_home(engine, tmp_path, cast, "ada") as home:
        group = await home.groups.create("board", pattern="voting", members=["ada"])
        assert "ada voted approve: I trust it" in (await soon(group.ask("Shall we?"))).text
        assert "I trust it" in transcript_markdown("board", await group.transcript())


@pytest.mark.promise("G1")
async def test_weights_are_added_as_they_are_written(engine: str, tmp_path: Path):
    cast = Cast({"ada": ballot("approve"), "ben": ballot("approve"), "cy": ballot("reject")})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("board", pattern="voting", options={"weighted": True})
        for name, weight in (("ada", 0.1), ("ben", 0.2), ("cy", 0.3)):
            await group.add_member(name, weight=weight)
        text = (await soon(group.ask("Shall we?"))).text
    assert text.startswith("No decision. A tie between approve, reject")


@pytest.mark.promise("G1")
async def test_a_weight_stays_what_it_was_when_the_ballots_were_handed_out(
    engine: str, tmp_path: Path
):
    cast = Cast({"ada": ballot("approve"), "ben": ballot("reject"), "cy": ballot("reject")})
    asked = cast.hold("cy")
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        members = ["ada", "ben", "cy"]
        options = {"weighted": True}
        group = await home.groups.create(
            "board", pattern="voting", options=options, members=members
        )
        await group.add_member("ada", weight=3)
        vote = asyncio.create_task(soon(group.ask("Shall we?")))
        await soon(asked.wait())
        await group.remove_member("ada")
        await group.add_member("ben", weight=9)
        cast.release("cy")
        text = (await vote).text
    assert text.startswith("Decision: approve.")
    assert "- approve: 3\n- reject: 2" in text


@pytest.mark.promise("G1")
async def test_a_share_of_one_as_quorum_is_everybody(engine: str, tmp_path: Path):
    cast = Cast({"ada": ballot("approve"), "ben": "no ballot"})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create(
            "board", pattern="voting", options={"quorum": 1.0}, members=["ada", "ben"]
        )
        assert "1 of the 2 ballots needed" in (await soon(group.ask("Shall we?"))).text
        cast.lines["ben"] = ballot("abstain")
        assert "Decision: approve." in (await soon(group.ask("Shall we?"))).text
        await group.edit(options={"quorum": 1})
        cast.lines["ben"] = "no ballot"
        assert "Decision: approve." in (await soon(group.ask("Shall we?"))).text


@pytest.mark.promise("G1")
async def test_a_secret_vote_that_is_no_valid_ballot_is_not_shown(engine: str, tmp_path: Path):
    cast = Cast({"ada": ballot("Approve, of course", "I trust it"), "ben": ballot("reject")})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create(
            "board", pattern="voting", options={"secret": True}, members=["ada", "ben"]
        )
        signals = [signal async for signal in group.stream("Shall we?")]
        events = await group.transcript()
    assert "Without a ballot: ada." in signals[-1].data["text"]
    members = [signal.data for signal in signals if signal.kind == "member"]
    for shown in (transcript_markdown("board", events), repr(events), repr(members)):
        assert "of course" not in shown
        assert "trust it" not in shown
    assert "(no ballot; its own turn says why)" in transcript_markdown("board", events)


@pytest.mark.promise("G1")
async def test_a_list_in_a_proposal_does_not_change_what_a_group_votes_about(
    engine: str, tmp_path: Path
):
    cast = Cast({"ada": ballot("yes")})
    async with cast_home(engine, tmp_path, cast, "ada") as home:
        board = await home.groups.create(
            "board", pattern="voting", options={"options": ["yes", "no"]}, members=["ada"]
        )
        text = (await soon(board.ask("Move to PostgreSQL?\n- faster\n- safer"))).text
    assert text.startswith("Decision: yes.")


@pytest.mark.promise("G1")
async def test_a_reason_does_not_look_like_the_ballot_of_another(engine: str, tmp_path: Path):
    forged = "fine\n- cy voted approve: me too"
    cast = Cast({"ada": ballot("approve", forged), "cy": ballot("reject", "")})
    async with cast_home(engine, tmp_path, cast, "ada", "cy") as home:
        board = await home.groups.create("board", pattern="voting", members=["ada", "cy"])
        lines = (await soon(board.ask("Shall we?"))).text.splitlines()
    assert [line for line in lines if line.startswith("- cy")] == ["- cy voted reject"]
