"""The bench of everyday conversations holds one with a home, without a real model."""

from __future__ import annotations

from datetime import timedelta

from asterism import Call, Reply
from asterism.testing.scripted import ScriptedModel
from asterism.types.turns import text_of
from bench.assistant import AsterismSession
from bench.assistant_checks import Conversation, failures, filler, read_conversation

ENTRY = {
    "id": "remember-all",
    "split": "tuned",
    "now": "10:15",
    "documents": {"lease.md": "# Lease\n\nThe deposit is 1,740 euros."},
    "earlier": [["user", "I lent my tent to Bogdan."], ["assistant", "Alright."]],
    "days_ago": 9,
    "blocks": {"human": "The owner lives in Kiel."},
    "archive": ["The hourly rate is 38 euros."],
    "steps": [
        {
            "say": "Remember that my locker is 318, and remind me in 20 minutes of the oven.",
            "answer_has": ["done"],
            "memory_has_all": ["Kiel", "hourly rate", 318],
            "schedule": [{"in": "20m", "text": ["oven"]}],
            "schedules": 1,
        },
        {"restart": True},
        {"filler": 240},
        {
            "say": "Which locker is mine?",
            "answer_has": [318],
            "memory_has": [318],
            "schedules": 1,
            "calls_any": ["calculator"],
        },
    ],
}
SCRIPT = [
    Reply(
        calls=(
            Call("1", "recall", '{"operation": "insert", "text": "The locker is 318."}'),
            Call("2", "schedule", '{"operation": "in", "when": "20 minutes", "message": "Oven!"}'),
        )
    ),
    "Done.",
    Reply(calls=(Call("3", "calculator", '{"expression": "317 + 1"}'),)),
    "It is 318.",
]


async def test_a_conversation_with_everything_in_it():
    conversation = read_conversation(ENTRY, "remember")
    model = ScriptedModel(SCRIPT)
    session = AsterismSession(conversation, "scripted", model, timeout=30)
    await session.start()
    try:
        for step in conversation.steps:
            if step.restart:
                await session.restart()
            elif step.filler:
                await session.fill(step.filler)
            else:
                turn = await session.say(step.say)
                assert failures(step, turn) == []
                assert turn.began.strftime("%H:%M") == "10:15"
                assert turn.ended - turn.began < timedelta(seconds=30)
    finally:
        await session.close()
    first = "\n".join(map(text_of, model.requests[0].messages))
    assert "Bogdan" in first
    assert "Kiel" in first
    last = "\n".join(map(text_of, model.requests[-1].messages))
    assert filler().messages(240)[-1][1] in last


async def test_a_turn_that_takes_too_long_is_a_failure_and_is_stopped():
    entry = {"id": "x", "split": "tuned", "steps": [{"say": "Hello?"}]}
    conversation = read_conversation(entry, "plain_talk")
    session = AsterismSession(conversation, "scripted", ScriptedModel(["Yes."], delay=60), 0.2)
    await session.start()
    try:
        turn = await session.say("Hello?")
    finally:
        await session.close()
    assert failures(conversation.steps[0], turn) == ["turn: no answer within 0.2 s"]
    assert turn.seconds < 10


async def test_a_conversation_needs_nothing_but_steps():
    conversation = Conversation("x", "plain_talk", "tuned", ())
    session = AsterismSession(conversation, "scripted", ScriptedModel(["Hello!"]), 30)
    await session.start()
    try:
        turn = await session.say("Hi")
    finally:
        await session.close()
    assert (turn.answer, turn.calls, turn.schedules) == ("Hello!", (), ())


async def test_a_new_chat_leaves_the_messages_and_keeps_the_memory():
    call = Call("1", "recall", '{"operation": "insert", "text": "The locker is 318."}')
    plan = Call("2", "schedule", '{"operation": "in", "when": "20 minutes", "message": "Oven!"}')
    model = ScriptedModel([Reply(calls=(call, plan)), "Noted, Rosalind.", "It is 318."])
    entry = {
        "id": "x",
        "split": "unseen",
        "steps": [
            {
                "say": "I am Rosalind, my locker is 318.",
                "memory_has": [318],
                "schedule_added": True,
            },
            {"new_chat": True},
            {"say": "Which locker?", "memory_same": True, "schedule_added": False},
        ],
    }
    conversation = read_conversation(entry, "told")
    session = AsterismSession(conversation, "scripted", model, timeout=30)
    await session.start()
    try:
        first, _, last = conversation.steps
        assert failures(first, await session.say(first.say)) == []
        await session.new_chat()
        assert failures(last, await session.say(last.say)) == []
    finally:
        await session.close()
    assert "Noted, Rosalind." not in "\n".join(map(text_of, model.requests[-1].messages))
