"""Whoever leads a group can give tasks away, and nobody else; who sees the images of a message."""

import zlib
from pathlib import Path
from struct import pack

import orjson
import pytest

from asterism import TurnState
from asterism.ports import ModelRequest
from asterism.types.turns import Reply, text_of
from tests.integration.group_scene import Cast, cast_home, soon
from tests.scenes import calls

pytestmark = pytest.mark.parametrize(
    "engine", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)


def delegate(to: str, task: str) -> Reply:
    return calls(("delegate", orjson.dumps({"to": to, "task": task}).decode()))


def lead(said: str) -> str | Reply:
    """What a leader says that gives one task away."""
    if "You lead this group" in said:
        return delegate("ben", "Find the rent.")
    return "It is 900." if "has come back" in said else "I have given it away."


def offered(request: ModelRequest) -> bool:
    return any(
        tool["function"]["name"] == "delegate" for tool in orjson.loads(request.tools or b"[]")
    )


@pytest.mark.promise("G1")
@pytest.mark.parametrize("options", [{}, {"leader": "ada"}])
async def test_whoever_leads_without_the_role_has_the_tool_that_its_message_names(
    engine: str, tmp_path: Path, options: dict[str, str]
):
    cast = Cast({"ada": lead, "ben": "900"})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create(
            "desk", pattern="supervisor", options=options, members=["ada", "ben"]
        )
        assert (await soon(group.ask("How much is the rent?"))).text == "It is 900."
        assert "task from ada] Find the rent." in cast.asked("ben")[0]
        by_name: dict[str, list[bool]] = {"ada": [], "ben": []}
        for request in cast.model.requests:
            said = text_of(request.messages[-1])
            by_name["ben" if "task from" in said else "ada"].append(offered(request))
        assert all(by_name["ada"])
        assert not any(by_name["ben"])
        # In a turn of its own it does not lead.
        await soon(home.agents.ask("ada", "hello"))
        assert not offered(cast.model.requests[-1])


@pytest.mark.promise("G1")
async def test_another_member_leads_when_the_first_cannot(engine: str, tmp_path: Path):
    cast = Cast({"ada": lead, "cy": lead, "ben": "900"})
    async with cast_home(engine, tmp_path, cast, "ada", "cy", "ben") as home:
        group = await home.groups.create("desk", pattern="supervisor", members=["ada", "cy", "ben"])
        for leader in ("ada", "cy"):
            assert (await soon(group.ask("How much?"))).text == "It is 900."
            assert "You lead this group" in cast.asked(leader)[0]
            await group.add_member("ada", active=False)


@pytest.mark.promise("G1")
async def test_a_member_with_a_task_cannot_give_it_away(engine: str, tmp_path: Path):
    heard: list[str] = []

    def second(said: str) -> str | Reply:
        if "task from" in said:
            return delegate("cy", "Do it for me.")
        heard.append(said)
        return "900"

    cast = Cast({"ada": lead, "ben": second})
    async with cast_home(engine, tmp_path, cast, "ada", "ben", "cy") as home:
        group = await home.groups.create("desk", pattern="supervisor", members=["cy"])
        for name in ("ada", "ben"):
            await group.add_member(name, role="supervisor")
        outcome = await soon(group.ask("How much is the rent?"))
    assert (outcome.state, outcome.text) == (TurnState.DONE, "It is 900.")
    assert "Only whoever leads a group" in heard[0]
    assert cast.asked("cy") == []


@pytest.mark.promise("G1")
async def test_a_task_is_not_lost_in_a_group_of_another_pattern(engine: str, tmp_path: Path):
    def ada(said: str) -> str | Reply:
        return delegate("ben", "Find it.") if "[group ring" in said else f"I was told: {said}"

    cast = Cast({"ada": ada})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        desk = await home.groups.create("desk", pattern="supervisor", members=["ben"])
        await desk.add_member("ada", role="supervisor")
        ring = await home.groups.create("ring", members=["ada", "ben"])
        outcome = await soon(ring.ask("How much is the rent?"))
        transcript = await ring.transcript()
    assert "Nothing was given away" in outcome.text
    assert all(event.kind != "delegation" for event in transcript)


# -- images --------------------------------------------------------------------------------------


def picture(shade: int = 255) -> bytes:
    """A PNG of one pixel."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return pack(">I", len(body)) + kind + body + pack(">I", zlib.crc32(kind + body))

    header = pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixel = zlib.compress(bytes([0, shade, 0, 0]))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixel) + chunk(b"IEND", b"")
    )


def images_of(cast: Cast, needle: str) -> list[bool]:
    """Tell of each request about something whether its latest message has an image."""
    latest = [request.messages[-1] for request in cast.model.requests]
    return [b"image_url" in wire for wire in latest if needle in text_of(wire)]


@pytest.mark.promise("G1")
async def test_members_see_the_images_of_a_message_that_they_get(engine: str, tmp_path: Path):
    cast = Cast()
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        ring = await home.groups.create("ring", options={"speakers": 2}, members=["ada", "ben"])
        await soon(ring.ask("What is this?", images=[picture()]))
        assert images_of(cast, "What is this?") == [True, True]
        line = await home.groups.create("line", pattern="pipeline", members=["ada", "ben"])
        await soon(line.ask("And that?", images=[picture(7)]))
        assert images_of(cast, "And that?") == [True, True]  # with the words of the first
        await soon(line.ask("Without a picture."))
        assert images_of(cast, "Without a picture.") == [False, False]


@pytest.mark.promise("G1")
async def test_a_leader_that_delegates_for_ever_is_stopped(engine: str, tmp_path: Path):
    def again(said: str) -> str | Reply:
        return delegate("ben", "And now?") if said.startswith("[") else "I wait for ben."

    cast = Cast({"ada": again, "ben": "900"})
    async with cast_home(engine, tmp_path, cast, "ada", "ben") as home:
        group = await home.groups.create(
            "desk", pattern="supervisor", options={"max_rounds": 2}, members=["ada", "ben"]
        )
        outcome = await soon(group.ask("How much is the rent?"))
    assert outcome.state is TurnState.FAILED
    assert "ada, who leads, gave tasks away again and again after 2 rounds" in outcome.text
    assert "I wait for ben." in outcome.text
    assert len(cast.asked("ben")) == 2
    assert "the leader has to answer itself. Do it yourself." in cast.asked("ada")[-2]
