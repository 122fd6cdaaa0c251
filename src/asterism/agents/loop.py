"""The loop: context, model, calls, until the agent has answered, must wait, or hits a limit."""

from __future__ import annotations

import asyncio

from asterism.agents.calls import carry_out_decisions, run_calls, settle_open_calls
from asterism.agents.turn import Turn
from asterism.errors import ModelError, ModelUnavailable, TurnLimit
from asterism.ports import ModelRequest
from asterism.types.turns import Outcome, Reply

_TRIES_AFTER_CUT = 3


async def run_turn(turn: Turn) -> Outcome:
    """Think and act until the agent has answered or must wait; a limit ends it in plain words."""
    limits = turn.agent.limits
    turn.publish("opened", {"resumed": turn.record is not None})
    clock = asyncio.timeout(limits.seconds)
    try:
        async with clock:
            return await _think(turn)
    except TimeoutError:
        if not clock.expired():
            raise
        explanation = (
            f"I had to stop: this took longer than the {limits.seconds:g} s that a turn may take. "
            "What was done so far is kept. Ask me to go on, or raise limits.seconds."
        )
    except TurnLimit as limit:
        explanation = limit.message
    except ModelError as error:
        explanation = f"I could not answer: {error.message} Your message is kept."
    except asyncio.CancelledError:
        if turn.stop_reason is None:
            raise
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        await turn.wind_up()
        settle_open_calls(turn)
        return await turn.stop()
    await turn.wind_up()
    settle_open_calls(turn)
    return await turn.fail(explanation)


async def _think(turn: Turn) -> Outcome:
    limits, calls = turn.agent.limits, 0
    await carry_out_decisions(turn)
    for step in range(limits.steps):
        # `once` gives back the recorded reply if a crash brought us here again.
        reply = await turn.once(f"{step}/reply", lambda step=step: _ask(turn, step))
        if not reply.calls:
            return await turn.finish(reply)
        calls += len(reply.calls)
        if calls > limits.calls:
            raise TurnLimit(
                f"I had to stop: this needed more than the {limits.calls} calls that a turn may "
                "make. What was done so far is kept. Ask me to go on, or raise limits.calls."
            )
        if turn.usage.total > limits.tokens:
            raise TurnLimit(
                f"I had to stop: this used {turn.usage.total:,} tokens, and a turn may use "
                f"{limits.tokens:,}. What was done so far is kept. Ask me to go on, or raise "
                "limits.tokens."
            )
        questions = await run_calls(turn, step, reply)
        if questions:
            return await turn.park(questions)
    raise TurnLimit(
        f"I had to stop: I had no answer after the {limits.steps} steps that a turn may take. What "
        "was done so far is kept. Ask me to go on, or raise limits.steps."
    )


async def _ask(turn: Turn, step: int) -> Reply:
    agent = turn.agent
    model, name = turn.means.model_for(agent.model)
    request = ModelRequest(
        model=name,
        messages=turn.live.messages(),
        tools=turn.means.toolbox.wire(agent.tools),
        key=f"{turn.id}/{step}/reply",
        timeout=agent.limits.seconds,
    )
    if not turn.means.watched(agent.id):
        return await model.complete(request)
    shown = False

    def emit(kind: str, piece: str) -> None:
        nonlocal shown
        shown = True
        turn.publish(kind, {"text": piece})

    for _ in range(_TRIES_AFTER_CUT - 1):
        try:
            return await model.complete(request, emit)
        except ModelUnavailable as problem:
            # Before the first piece the port has tried again by itself.
            if not shown:
                raise
            turn.publish("again", {"why": problem.message})
    return await model.complete(request, emit)
