"""The loop: context, model, calls, until the agent has answered, must wait, or hits a limit."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from typing import Any

import orjson

from asterism.errors import BudgetReached, ModelError, ModelGarbled, ToolError, TurnLimit
from asterism.ports import ModelQuestion, ModelRequest, Profile
from asterism.store import agents
from asterism.telemetry.redaction import RedactingStream, redact
from asterism.tools.schema import answer_fault
from asterism.tools.tool import Tool
from asterism.turns.calls import carry_out_decisions, run_calls, settle_open_calls
from asterism.turns.context import BYTES_PER_TOKEN
from asterism.turns.repeats import must_answer
from asterism.turns.rules import RUN, Due, Refusal, narrowed
from asterism.turns.turn import CALLS_BEFORE, KEPT, Turn
from asterism.types.agents import rules_text
from asterism.types.permissions import arguments_json
from asterism.types.turns import (
    OWN_REPLIES,
    SCHEDULED,
    Call,
    EntryKind,
    NoteMeta,
    Outcome,
    Reply,
    ResultMeta,
)

_WINDOW_SHARE = 0.8
"""How much of a known window the past may fill; the rest is for the answer."""
_FITS_EVERYWHERE = 4_000
"""A tail of so many bytes fits any window."""
_CORRECTIONS = 2
_NO_THOUGHTS: dict[bytes, bytes] = {}
BY_PROCESSOR = OWN_REPLIES + "processors"
"""Who is named as the model of a reply that processors have made."""
BY_RULE = OWN_REPLIES + "rules"
"""Who is named as the model of a reply that a rule has made."""
RULES_KEY = "rules"
"""The key of the entry with the rules that a turn began with, and what they look at."""
_REMINDED = 2
"""The step from which on an agent is reminded."""
_FORCED = 3
_ENDED = 5
"""The step in which a turn ends whose agent goes on with what it must not do."""
_MAX_CLOSING = 2_000


async def run_turn(turn: Turn) -> Outcome:
    """Think and act until the agent has answered or must wait; a limit ends it in plain words."""
    limits = turn.agent.limits
    if turn.services.hub.is_watched(turn.agent.id):
        judged = turn.schema is not None or _may_be_rejected(turn)
        turn.publish("opened", {"resumed": turn.record is not None, "judged": judged})
    turn.ends_at = time.monotonic() + limits.seconds
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
    except BudgetReached as reached:
        explanation = f"I had to stop: {reached.message}"
    except ModelError as error:
        explanation = f"I could not answer: {error.message} {KEPT}"
    except asyncio.CancelledError:
        if turn.stop_reason is None:
            raise
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        await turn.wind_up()
        turn.keep_partial_reply("stopped")
        settle_open_calls(turn)
        return await turn.stop()
    await turn.wind_up()
    turn.keep_partial_reply("cut")
    settle_open_calls(turn)
    return await turn.fail(explanation)


def _may_be_rejected(turn: Turn) -> bool:
    """Tell whether evaluators look at the words of an answer before it stands."""
    pipeline, models = turn.services.pipeline, turn.services.models
    if pipeline is None:
        return False
    compact = models.profile(models.chain(turn.agent.model)[0]).compact
    return pipeline.may_reject(turn.agent.name, compact=compact)


async def _think(turn: Turn) -> Outcome:
    limits, calls, misses = turn.agent.limits, 0, 0
    await _begin_rules(turn)
    await carry_out_decisions(turn)
    await _make_room(turn)
    for step in range(limits.steps):
        # `once` gives back the recorded reply if a crash brought us here again.
        reply = await turn.once(f"{step}/reply", lambda step=step: _ask(turn, step))
        if not reply.calls:
            if not await _may_end(turn, step):
                continue
            if turn.schema is None or not (fault := fault_of(reply.text, turn.schema)):
                pipeline = turn.services.pipeline
                if pipeline is not None and not await pipeline.evaluate(turn, step, reply):
                    continue
                return await turn.finish(reply)
            misses += 1
            _tell_fault(turn, step, fault, misses)
            continue
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
        answer = await _closing_reply(turn, step, reply)
        if answer is not None:
            return await turn.finish(answer)
        _remind_of_rules(turn, step)
    raise TurnLimit(
        f"I had to stop: I had no answer after the {limits.steps} steps that a turn may take. What "
        "was done so far is kept. Ask me to go on, or raise limits.steps."
    )


async def _make_room(turn: Turn) -> None:
    """Compact old turns if the tail has outgrown its budget, or the window of the agent's model."""
    context, services = turn.context, turn.services
    # A past from before there were summaries, or an imported one, of which not all is shown.
    cut_off = not context.saved and context.epoch.first_seq > 1 and not context.epoch.summary
    size, budget = context.tail.size, context.tail.budget
    if size <= min(budget, _FITS_EVERYWHERE) and not cut_off:
        return
    profile = services.models.profile(services.models.chain(turn.agent.model)[0])
    if profile.window and not profile.compact:
        budget = min(budget, int(profile.window * _WINDOW_SHARE) * 4)
    if size > budget or cut_off:
        from asterism.turns.compaction import make_room

        await make_room(turn, budget)


async def _ask(turn: Turn, step: int) -> Reply:
    if (forced := _forced_reply(turn, step)) is not None:
        return forced
    services, agent = turn.services, turn.agent
    schema = orjson.dumps(turn.schema) if turn.schema is not None else None
    # Before the third reply there is nothing that could go in circles.
    without_tools = step > 1 and must_answer(turn.recorded, turn.find_tool)
    if turn.context.tail.pictured:
        await turn.live.fetch_images()

    def compose(model: str, profile: Profile, too_long: int) -> ModelRequest:
        _fit(turn, profile, too_long)
        tools = narrowed(services.toolbox.wire(agent.tools, compact=profile.compact), agent.rules)
        choice, more = "none" if without_tools else "auto", None
        if turn.client_tools:
            tools = _with_client_tools(turn, tools)
            choice = choice if without_tools else _client_choice(turn)
        if profile.compact and not without_tools:
            chosen = _message_tools(turn)
            more = orjson.dumps([tool.wire() for tool in chosen]) if chosen else None
            if chosen and tools is None and all(tool.is_lookup for tool in chosen):
                choice = "required"
        more = narrowed(more, agent.rules)
        turn.note_sent(turn.context.tail.sent(profile), tools, more, compact=profile.compact)
        vendor = model.partition(":")[0]
        request = ModelRequest(
            model=model[len(vendor) + 1 :],
            messages=turn.live.messages(profile),
            tools=tools,
            key=f"{turn.id}/{step}/reply",
            timeout=turn.seconds_left,
            agent_id=agent.id,
            schema=schema,
            tool_choice=choice,
            message_tools=more,
            thoughts={
                wire: thought
                for wire, (who, thought) in turn.thoughts.items()
                if who.partition(":")[0] == vendor
            }
            if turn.thoughts
            else _NO_THOUGHTS,
        )
        turn.note_asked()
        return request

    shown = _Pieces(turn, step) if services.hub.is_watched(agent.id) else None
    reply = await services.models.ask(
        ModelQuestion(
            models=services.models.chain(agent.model),
            compose=compose,
            reservations=turn.reservations,
            notify=turn.notify_owner,
            emit=shown.emit if shown is not None else None,
        )
    )
    if reply.calls or schema is not None:  # else nothing is executed before the turn ends
        await turn.note_answered()
    if shown is not None:
        shown.end()
    if without_tools and reply.calls:
        reply = _without_calls(reply)
    if schema is not None and not reply.calls:
        reply = replace(reply, text=without_code_fence(reply.text))
    if turn.call_ids and not turn.call_ids.isdisjoint(call.id for call in reply.calls):
        # Some servers begin to count anew with each reply; others do not take an id twice.
        calls = tuple(replace(call, id=f"{call.id}_{step}") for call in reply.calls)
        return replace(reply, calls=calls)
    return reply


def _with_client_tools(turn: Turn, tools: bytes | None) -> bytes:
    """Return the descriptions of the agent's tools and of those of the program that asked."""
    own: list[dict[str, Any]] = orjson.loads(tools) if tools is not None else []
    kept = [tool for tool in own if tool["function"]["name"] not in turn.client_tools]
    return orjson.dumps([*kept, *(tool.wire() for tool in turn.client_tools.values())])


def _client_choice(turn: Turn) -> str:
    """Return whether the model must call a tool: until it has called one of the program's."""
    if turn.client_offer.choice == "auto":
        return "auto"
    called = any(
        ResultMeta.from_json(entry.meta).client
        for entry in turn.recorded.values()
        if entry.kind is EntryKind.RESULT
    )
    return "auto" if called else turn.client_offer.choice


def _message_tools(turn: Turn) -> list[Tool]:
    """Return the tools that a small model may need for the message; each of them is called once.

    After its result the model is asked for words, without it, so that it cannot go in circles.
    """
    done: set[str] = set()
    for entry in turn.recorded.values():
        if entry.kind is EntryKind.REPLY:
            calls = Reply.from_entry(entry.body, entry.meta).calls
            done.update(turn.find_tool(call.name, call.arguments)[1] for call in calls)
            done.update(call.name for call in calls)
        elif entry.key.startswith("note/") and entry.meta:
            done.update(NoteMeta.from_json(entry.meta).replaces)
    if turn.view.message.startswith(SCHEDULED):
        done.add("schedule")  # else it puts off the reminder that has come
    return turn.services.toolbox.tools_for(turn.agent.tools, turn.view.message, done)


def _without_calls(reply: Reply) -> Reply:
    """Return the words of a reply that calls tools although it was offered none."""
    if not reply.text.strip():
        names = ", ".join(dict.fromkeys(call.name for call in reply.calls))
        raise TurnLimit(
            f"I had to stop: I called {names} again and again without getting any further, and "
            "gave no answer. What was done so far is kept. Ask me in other words, or give me "
            "another model."
        )
    return replace(reply, calls=(), finish="stop")


class _Pieces:
    """Shows watchers a reply as it comes, without known keys, wherever pieces cut them."""

    def __init__(self, turn: Turn, step: int) -> None:
        self._turn = turn
        self._streams: dict[str, RedactingStream] = {}
        self._seen = turn.begin_partial_reply(step)

    def emit(self, kind: str, piece: str) -> None:
        """Show a piece, except for an end that may become a key."""
        if kind == "reading":
            done, _, total = piece.partition("/")
            self._turn.publish(kind, {"done": int(done), "total": int(total)})
        elif kind == "again":
            self._streams.clear()
            self._seen.restart()
            self._turn.publish(kind, {"why": redact(piece)})
        elif text := self._streams.setdefault(kind, RedactingStream()).feed(piece):
            self._show(kind, text)

    def _show(self, kind: str, text: str) -> None:
        if kind == "text":
            self._seen.pieces.append(text)
        self._turn.publish(kind, {"text": text, "step": self._seen.step})

    def end(self) -> None:
        """Show what was held back, since nothing follows."""
        for kind, stream in self._streams.items():
            if text := stream.rest():
                self._show(kind, text)
        self._turn.end_partial_reply()


def _tell_fault(turn: Turn, step: int, fault: str, misses: int) -> None:
    """Let the agent correct an answer that does not fulfil the schema, some times."""
    if misses > _CORRECTIONS:
        raise ModelGarbled(
            f"an answer in JSON by a schema was asked for, and after {misses} tries {fault}. "
            "Give the agent another model, or simplify the schema."
        )
    if f"{step}/shape" not in turn.recorded:
        turn.tell(
            f"{step}/shape",
            f"Your answer does not fulfil the JSON schema: {fault}. Answer again, with the JSON "
            f"alone. The schema: {orjson.dumps(turn.schema).decode()}",
        )


def _fit(turn: Turn, profile: Profile, too_long: int) -> None:
    """Send less of the past, where the model's window is known or found to be smaller.

    What is left out now is compacted before the next turn.
    """
    tail = turn.context.tail
    prefix = len(turn.context.prefix) // BYTES_PER_TOKEN
    while turn.squeezed < too_long or (
        profile.window
        and not profile.compact
        and tail.tokens > profile.window * _WINDOW_SHARE - prefix
    ):
        turn.squeezed += turn.squeezed < too_long
        if not tail.squeeze():
            return


_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", re.DOTALL | re.IGNORECASE)


def without_code_fence(text: str) -> str:
    """Return JSON without the code fence that models like to put around it."""
    found = _FENCED.fullmatch(text)
    return found[1] if found else text.strip()


def fault_of(text: str, schema: dict[str, Any]) -> str:
    """Say in what an answer does not fulfil a schema; nothing if it does."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"it is not JSON ({error})"
    return answer_fault(schema, value)


# -- rules for tools -------------------------------------------------------------------------------


async def _begin_rules(turn: Turn) -> None:
    """Learn what rules look at beyond the turn, and note it for whoever replays the turn."""
    if not turn.agent.rules:
        return
    state = turn.rule_state
    ran: dict[str, int] = {}
    if state.looks_back:
        ran = await turn.live.database.read(lambda tx: agents.runs_of(tx, turn.agent.id))
        state.look_back(ran)
    if RULES_KEY not in turn.recorded:
        kept = {"rules": rules_text(turn.agent.rules), "tools": state.tools, "ran": ran}
        turn.stage(EntryKind.ONCE, RULES_KEY, orjson.dumps(kept))


def _remind_of_rules(turn: Turn, step: int) -> None:
    """Climb a rung for each rule that calls of a step did not keep; may end the turn."""
    turn.rule_state.read(turn.recorded)
    key = f"{step}/rules"
    if not turn.rule_state.history.refused or key in turn.recorded:
        return
    broken = [entry for entry in turn.rule_state.step_refusals(step) if entry[0] >= _REMINDED]
    if not broken:
        return
    said = " ".join(dict.fromkeys(_reason_of(refused) for _, refused in broken))
    for count, refused in broken:
        if refused.needs is None:
            if count >= _ENDED:
                raise TurnLimit(_stopped(f"in {count} steps I did what a rule forbids. {said}"))
        elif count >= _FORCED:
            name = _force(turn, step, (refused.needs,))
            if name is None:
                raise TurnLimit(_stopped(f"in {count} steps I did not keep a rule. {said}"))
            turn.tell(key, f"{said} {name} is called for you now.")
            return
    turn.tell(key, f"For the second time or more: {said}")


async def _may_end(turn: Turn, step: int) -> bool:
    """Tell whether a turn may end with its answer; if not, the agent is reminded or helped."""
    if not turn.agent.rules:
        return True
    state, key = turn.rule_state, f"{step}/due"
    if key in turn.recorded:
        return False
    state.read(turn.recorded)
    due = state.due_calls(turn.services.clock())
    if not due:
        return True
    said = " ".join(str(due_call) for due_call in due)
    if _count_entries(turn, "/due") < _REMINDED:
        turn.tell(key, f"The turn cannot end yet. {said} Call it now, and give your answer after.")
        await turn.flush()
        return False
    name = next((name for due_call in due if (name := _force(turn, step, due_call.tools))), None)
    if name is not None:
        turn.tell(key, f"{said} {name} is called for you now; give your answer after.")
        await turn.flush()
        return False
    if all(_was_tried(turn, due_call) for due_call in due):
        turn.notify_owner(
            "rule.unmet",
            f"{turn.agent.name} ended a turn although a rule wants more, since the tool failed: "
            f"{said} (turn {turn.id})",
        )
        return True
    raise TurnLimit(_stopped(f"I did not call what a rule wants before the turn ends. {said}"))


def _forced_reply(turn: Turn, step: int) -> Reply | None:
    """Return the calls that are made for the agent in this step, as if it had made them."""
    before = turn.recorded.get(CALLS_BEFORE) if step == 0 else None
    if before is not None:
        made: list[dict[str, Any]] = orjson.loads(before.body)
        calls = tuple(
            Call(f"before_{turn.id[-8:]}_{place}", call["name"], arguments_json(call["arguments"]))
            for place, call in enumerate(made)
        )
        return Reply(calls=calls, model=BY_PROCESSOR, finish="tool_calls")
    entry = turn.recorded.get(f"{step - 1}/force")
    if entry is None:
        return None
    call = Call(f"rule_{turn.id[-8:]}_{step}", entry.body.decode(), "{}")
    return Reply(calls=(call,), model=BY_RULE, finish="tool_calls")


async def _closing_reply(turn: Turn, step: int, reply: Reply) -> Reply | None:
    """Return the answer that a turn ends with since a tool of it ends turns, or None."""
    if not turn.agent.rules or turn.schema is not None:
        return None
    turn.rule_state.read(turn.recorded)
    made, key = turn.rule_state.ending_call(), f"{step + 1}/reply"
    if made is None or turn.rule_state.due_calls(turn.services.clock()):
        return None
    if (former := turn.recorded.get(key)) is not None:
        said = Reply.from_entry(former.body, former.meta)
        return said if said.model == BY_RULE and not said.calls else None
    if reply.text:
        return reply

    async def result() -> Reply:
        return Reply(text=made.result[:_MAX_CLOSING], model=BY_RULE)

    return await turn.once(key, result)


def _force(turn: Turn, step: int, tools: tuple[str, ...]) -> str | None:
    """Have a tool called in the next step that leads to one of these; None if none can be."""
    state, now = turn.rule_state, turn.services.clock()
    forced_before = {
        entry.body.decode() for key, entry in turn.recorded.items() if key.endswith("/force")
    }
    for wanted in tools:
        name = state.first_step(wanted, now)
        if name is not None and name not in forced_before and _takes_nothing(turn, name):
            turn.stage(EntryKind.ONCE, f"{step}/force", name.encode())
            return name
    return None


def _takes_nothing(turn: Turn, name: str) -> bool:
    """Tell whether a tool can be called without arguments."""
    tool = turn.services.toolbox.get(name, turn.agent.tools)
    if tool is None:
        return False
    try:
        tool.read("{}")
    except ToolError:
        return False
    return True


def _was_tried(turn: Turn, due: Due) -> bool:
    return any(turn.rule_state.history.any(name, RUN) for name in due.tools)


def _count_entries(turn: Turn, ending: str) -> int:
    return sum(key.endswith(ending) for key in turn.recorded)


def _reason_of(refused: Refusal) -> str:
    """Return what a refusal says, without the words with which every refusal begins."""
    said = refused.text.removeprefix("Error: not run, ").removeprefix("by a rule for your tools: ")
    return said[:1].upper() + said[1:]


def _stopped(why: str) -> str:
    return (
        f"I had to stop: {why} What was done so far is kept. Ask me to go on, or change the rules "
        'with "asterism rule".'
    )
