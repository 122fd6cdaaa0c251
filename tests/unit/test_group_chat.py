"""What a chat with a group shows of members that are watched from the middle of their words."""

from collections.abc import AsyncGenerator
from typing import Any
from unittest.mock import MagicMock

import pytest

from asterism.cli.group_chat import GroupChat
from asterism.types.groups import GroupMember, GroupRecord
from asterism.types.turns import Signal

WORDS = "I am here, and I am late."


def signal(kind: str, turn_id: str, agent: str, **data: Any) -> Signal:
    return Signal("1-1", agent, turn_id, kind, data)


async def asked(turn: str) -> AsyncGenerator[Signal]:
    ask = {"turn": turn, "member": "ada", "agent": "agent_1", "formatted": False}
    yield signal("decision", "turn_g", "group_1", asks=[ask], reason="ada comes next.")


async def spoken(*, since_its_beginning: bool) -> AsyncGenerator[Signal]:
    if since_its_beginning:
        yield signal("opened", "turn_1", "agent_1", resumed=False)
        yield signal("text", "turn_1", "agent_1", text="I am ", step=0)
    yield signal("text", "turn_1", "agent_1", text="here, and I am late.", step=0)
    answer = {"member": "ada", "turn": "turn_1", "state": "done", "text": WORDS}
    yield signal("member", "turn_g", "group_1", **answer)


@pytest.mark.parametrize("since_its_beginning", [True, False])
async def test_words_of_a_member_stand_there_once(since_its_beginning: bool):
    group = GroupRecord(
        "group_1", "ring", "round_robin", {}, members=(GroupMember("agent_1", "ada"),)
    )
    thread, screen = MagicMock(), MagicMock(width=80)
    thread.start.side_effect = lambda work: work.close()  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType] - it watches other turns
    chat = GroupChat(thread, group, screen, MagicMock())  # pyright: ignore[reportArgumentType] - a record has all it reads

    async def both() -> AsyncGenerator[Signal]:
        async for each in asked("turn_1"):
            yield each
        async for each in spoken(since_its_beginning=since_its_beginning):
            yield each

    async for each in chat._with_members(both()):  # pyright: ignore[reportPrivateUsage] - as a turn is followed
        chat._show(each)  # pyright: ignore[reportPrivateUsage] - in the thread of the screen
    shown = [call.args[0].data.get("text", "") for call in screen.show.call_args_list]
    assert "".join(shown) == WORDS
    assert screen.speak.call_count == 1
