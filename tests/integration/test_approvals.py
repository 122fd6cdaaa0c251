"""Approvals: who is asked where, who may answer, and what an answer may hold."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asterism import Asterism, ToolContext, TurnState, tool
from asterism.errors import Conflict, InvalidInput, NotAllowed, NotFound
from asterism.permissions import Actor
from asterism.store.events import RecordedEvent
from asterism.testing.channel import MemoryChannel
from asterism.testing.clock import ManualClock
from asterism.times import to_datetime
from asterism.types.agents import Account, Trust
from asterism.types.memory import Permission
from asterism.types.permissions import ApprovalRecord, Effect, EffectKind, Extent, ToolEffect, Wish
from asterism.types.turns import Delivery, Message, MessageOrigin, Outcome
from tests.scenes import obedient, open_home, until

HOUR = 3_600
DAY = 24 * HOUR
PAY = '[[call:pay {"to": "bob", "euros": 5}]]'
CONTACTS = """
again = "1d"

[contacts.anna]
reach = ["home:anna", "work:anna@example.org"]

[contacts.cleo]
reach = ["home:cleo"]

[[escalation]]
after = "4h"
to = ["role:admin"]
"""
AUTHORIZATIONS = """
[[policy]]
name = "payments"
verdict = "ask"
tools = ["pay"]
reviewers = ["person:anna", "role:treasurer"]
reason = "money is anna's business"
"""


class Scene:
    """A home in which anna decides about money, and two channels where people are."""

    def __init__(self, home: Asterism, paid: list[str], channels: dict[str, MemoryChannel]) -> None:
        self.home = home
        self.paid = paid
        self.channels = channels

    async def asked(self, text: str = PAY, **given: Any) -> ApprovalRecord:
        """Let the agent ask for a payment; return the question."""
        parked = await self.home.agents.ask("aria", text, **given)
        assert parked.state is TurnState.PARKED, parked.text
        (question,) = [
            one for one in await self.home.approvals.list() if one.turn_id == parked.turn_id
        ]
        return question

    async def delivered(self, channel: str, count: int) -> list[Delivery]:
        """Return what a channel has delivered, once it is so many."""
        there = self.channels[channel].delivered
        await until(lambda: len(there) >= count)
        assert len(there) == count, [one.text for one in there]
        return there

    async def outcome(self, turn_id: str) -> Outcome:
        """Return how a turn ended, once it has."""

        async def ended() -> bool:
            return (await self.home.turns.outcome(turn_id)).state in (
                TurnState.DONE,
                TurnState.FAILED,
            )

        await until(ended)
        return await self.home.turns.outcome(turn_id)

    async def events(self, kind: str) -> list[RecordedEvent]:
        """Return what the audit has of a kind, the newest first."""
        from asterism.store import events

        return await self.home.database.read(lambda tx: events.page(tx, kind=kind))


@asynccontextmanager
async def scene(
    place: Path,
    clock: ManualClock,
    *,
    contacts: str = CONTACTS,
    policies: str = AUTHORIZATIONS,
    paid: list[str] | None = None,
    people: bool = True,
) -> AsyncGenerator[Scene, None]:
    log: list[str] = [] if paid is None else paid
    if contacts:
        (place / "contacts.toml").write_text(contacts)
    (place / "authorizations.toml").write_text(policies)
    channels = {"home": MemoryChannel(), "work": MemoryChannel()}

    @tool(repeatable=True, effects=ToolEffect("pay", recipients="to", amount="euros"))
    async def pay(to: str, euros: int) -> str:
        log.append(f"{to}: {euros}")
        return "paid"

    async with open_home(
        place, obedient(), tools=[pay], channels=dict(channels), clock=clock
    ) as home:
        if people:
            await home.agents.create("aria")
            for name, role in (("anna", "family"), ("bob", "guest"), ("cleo", "admin")):
                await home.people.create(name, roles=[role])
                await home.people.link(name, f"home:{name}")
        yield Scene(home, log, channels)


@pytest.mark.promise("H1")
async def test_whoever_asks_again_after_a_decision_waits_for_what_follows(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked(external_id="m-1")
        parked = await it.home.agents.ask("aria", PAY, external_id="m-1")
        assert (parked.state, parked.turn_id) == (TurnState.PARKED, question.turn_id)
        # No turn goes on in a home that is halted, so that the decision waits in the lane.
        await it.home.halts.halt("a look at it")
        await it.home.approvals.decide(question.id, approved=True, by="anna")
        again = asyncio.create_task(it.home.agents.ask("aria", PAY, external_id="m-1"))
        done, _ = await asyncio.wait({again}, timeout=0.2)
        assert not done
        await it.home.halts.resume()
        outcome = await again
        assert (outcome.state, outcome.turn_id) == (TurnState.DONE, question.turn_id)
        assert it.paid == ["bob: 5"]


# -- announcing ------------------------------------------------------------------------------------


@pytest.mark.promise("H1")
async def test_a_question_is_announced_where_it_came_from_and_where_its_reviewers_are(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked(channel="home", sender="bob", reply_to="bob")
        here, there = await it.delivered("home", 2)
        assert {here.target, there.target} == {"bob", "anna"}
        (mail,) = await it.delivered("work", 1)
        assert mail.target == "anna@example.org"
        assert '"euros": 5' in mail.text
        assert "money is anna's business" in mail.text
        assert f"approve {question.id}" in mail.text
        assert [one.approval for one in (here, there, mail)] == [question.id] * 3
        stands = await it.home.approvals.get(question.id)
        assert set(stands.announced) == {"home:bob", "home:anna", "work:anna@example.org"}


@pytest.mark.promise("H1")
async def test_an_answer_is_told_to_everybody_else_who_was_asked(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked(channel="home", sender="bob", reply_to="bob")
        await it.delivered("work", 1)
        press = it.channels["work"].press
        await it.home.people.link("anna", "work:anna@example.org")
        shown = await press(
            it.channels["work"].delivered[0], approved=True, sender="anna@example.org"
        )
        assert shown.startswith(f"Approved {question.id}")
        outcome = await it.outcome(question.turn_id)
        assert "was approved by anna" in outcome.text
        assert it.paid == ["bob: 5"]
        told = [one for one in await it.delivered("home", 5) if "was answered" in one.text]
        assert {one.target for one in told} == {"anna", "bob"}
        assert told[0].text == f"Approval {question.id} was answered by anna: approved."
        await it.delivered("work", 1)
        again = await press(
            it.channels["work"].delivered[0], approved=False, sender="anna@example.org"
        )
        assert again == f"{question.id} was approved by anna before. Nothing was changed."


@pytest.mark.promise("H1")
async def test_what_fell_due_while_nobody_ran_happens_once(tmp_path: Path, clock: ManualClock):
    async with scene(tmp_path, clock) as it:
        question = await it.asked(channel="home", sender="bob", reply_to="bob")
        await it.delivered("home", 2)
        await it.delivered("work", 1)
    clock.forward(seconds=30 * DAY)
    async with scene(tmp_path, clock, people=False) as it:
        # The second round, and cleo by escalation: once, after thirty days of silence.
        again = await it.delivered("home", 3)
        assert {one.target for one in again} == {"anna", "bob", "cleo"}
        assert "(asked 2 times)" in again[0].text
        await it.delivered("work", 1)
        stands = await it.home.approvals.get(question.id)
        assert stands.reviewers[-1] == "role:admin"
        assert stands.next_at_ms == clock.now + DAY * 1000
        (event,) = await it.events("approval.escalated")
        assert event.body is not None
        assert event.body["to"] == ["role:admin"]
    async with scene(tmp_path, clock, people=False) as it:
        receipt = await it.home.approvals.decide(question.id, approved=True, by="cleo")
        assert (await it.home.turns.wait(receipt)).state is TurnState.DONE
        assert it.paid == ["bob: 5"]
        assert await it.home.approvals.list() == []


async def test_somebody_is_not_disturbed_at_night(tmp_path: Path, clock: ManualClock):
    contacts = """
    [contacts.anna]
    reach = ["home:anna"]
    hours = "08:00-22:00"
    zone = "UTC"
    """
    clock.now = 1_800_000_000_000 // 86_400_000 * 86_400_000  # midnight, UTC
    async with scene(tmp_path, clock, contacts=contacts) as it:
        question = await it.asked()

        async def looked_at() -> bool:
            return (
                await it.home.approvals.get(question.id)
            ).next_at_ms == clock.now + 8 * HOUR * 1000

        await until(looked_at)
        assert it.channels["home"].delivered == []
    clock.forward(seconds=8 * HOUR)
    async with scene(tmp_path, clock, contacts=contacts, people=False) as it:
        (asked,) = await it.delivered("home", 1)
        assert asked.target == "anna"


async def test_an_owner_is_told_of_reviewers_whom_nobody_can_reach(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock, contacts="") as it:
        question = await it.asked()

        async def told() -> bool:
            return bool(await it.home.notices.list())

        await until(told)
        (notice,) = await it.home.notices.list()
        assert (notice.kind, question.id in notice.text) == ("approval.unheard", True)


async def test_a_question_expires_only_if_that_is_configured(tmp_path: Path, clock: ManualClock):
    async with scene(tmp_path, clock, contacts='expire = "30d"') as it:
        question = await it.asked()

        async def announced() -> bool:
            return (await it.home.approvals.get(question.id)).expires_at_ms is not None

        await until(announced)
    clock.forward(seconds=31 * DAY)
    async with scene(tmp_path, clock, contacts='expire = "30d"', people=False) as it:
        outcome = await it.outcome(question.turn_id)
        assert "Nobody answered within 30 days, so it ended as denied." in outcome.text
        assert it.paid == []
        assert (await it.home.approvals.get(question.id)).verdict == "denied"


async def test_a_contacts_document_that_cannot_be_used_says_where_and_why(
    tmp_path: Path, clock: ManualClock
):
    from asterism.errors import ConfigError

    (tmp_path / "contacts.toml").write_text('[contacts.anna]\nreach = ["nowhere"]\n')
    with pytest.raises(ConfigError, match=r"contacts.toml line 2: .*CHANNEL:ADDRESS"):
        async with open_home(tmp_path, clock=clock):
            pass


@pytest.mark.promise("H1")
async def test_what_is_announced_hides_nothing_and_says_what_is_cut(
    tmp_path: Path, clock: ManualClock
):
    hidden = "\u202e\u2066\u200b\u2028\x1b"
    channel = MemoryChannel()

    @tool(ask=True, effects=ToolEffect("send", recipients="to", content="text"))
    def mail(text: str, to: str) -> str:
        return "sent"

    async with open_home(
        tmp_path, obedient(), tools=[mail], channels={"home": channel}, clock=clock
    ) as home:
        await home.agents.create("aria")
        to = f"eve{hidden}\nIt would send something to bob."
        written = json.dumps({"text": "x" * 9_000 + hidden, "to": to})
        twice = written[:-1] + ', "to": "mallory"}'
        await home.agents.ask("aria", f"[[call:mail {written}]]", channel="home", reply_to="me")
        await home.agents.ask("aria", f"[[call:mail {twice}]]", channel="home", reply_to="me")
        await until(lambda: len(channel.delivered) == 2)
        asked, last = (one.text for one in channel.delivered)
        for text in (asked, last):
            assert not any(char in text for char in hidden)
            assert sum(line.startswith("It would") for line in text.splitlines()) == 1
            assert "characters are cut here." in text
        shown = r'"eve\u202e\u2066\u200b\u2028\u001b\nIt would send something to bob."'
        assert f"It would send something to {shown}." in asked.splitlines()
        assert "It would send something to mallory." in last.splitlines()
        assert "eve" not in last
        questions = await home.approvals.list()
        assert f"asterism approval show {questions[0].id}" in asked
        assert "mallory" in questions[1].question
        assert "eve" not in questions[1].question
        assert not any(char in one.question for char in f"{hidden}\n" for one in questions)


# -- answering -------------------------------------------------------------------------------------


@pytest.mark.promise("H1", "H2")
async def test_the_wrong_person_is_refused_and_it_is_kept(tmp_path: Path, clock: ManualClock):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        with pytest.raises(NotAllowed, match=r"bob may not answer .*anna"):
            await it.home.approvals.decide(question.id, approved=True, by="bob")
        with pytest.raises(NotAllowed, match="home:nobody may not answer"):
            await it.home.approvals.decide(question.id, approved=True, by=Account("home", "nobody"))
        assert (await it.home.approvals.get(question.id)).decided_at_ms is None
        assert it.paid == []
        stranger, bob = await it.events("approval.refused")
        assert (bob.actor, stranger.actor) == ("person:bob", "account:home:nobody")
        with pytest.raises(NotFound):
            await it.home.approvals.decide(question.id, approved=True, by="zoe")
        await it.home.approvals.decide(question.id, approved=False, by="anna")
        (decided,) = await it.events("approval.decided")
        assert (decided.actor, decided.turn_id) == ("person:anna", question.turn_id)


@pytest.mark.promise("H1")
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("approve {id}", "approved"),
        ("APPROVE {short}!", "approved"),
        ("yes", "approved"),
        ("deny {id} too expensive", "denied"),
        ("No, too expensive", "denied"),
    ],
)
async def test_words_in_a_channel_are_taken_as_an_answer_once(
    tmp_path: Path, clock: ManualClock, text: str, verdict: str
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        await it.delivered("home", 1)
        accept = await it.channels["home"].accepting()
        said = text.format(id=question.id, short=f"ap_{question.id[-6:]}")
        for duplicate in (False, True):
            receipt = await accept(Message("aria", (said,), MessageOrigin("", "anna", "anna"), "1"))
            assert (receipt.turn_id, receipt.duplicate) == (question.turn_id, duplicate)
            assert (await it.home.turns.wait(receipt)).state is TurnState.DONE
        stands = await it.home.approvals.get(question.id)
        assert (stands.verdict, stands.place) == (verdict, "home:anna")
        assert stands.note == (None if verdict == "approved" else "too expensive")
        assert it.paid == (["bob: 5"] if verdict == "approved" else [])
        reply = (await it.delivered("home", 2))[1]
        assert reply.text.startswith(verdict.capitalize())
        assert len(await it.home.turns.list()) == 1


@pytest.mark.parametrize(
    ("sender", "text"),
    [
        ("bob", "yes"),  # nothing waits for him
        ("anna", "yes, but only if it is cheap"),
        ("anna", "yes we can"),
    ],
)
async def test_other_words_are_a_message_like_any(
    tmp_path: Path, clock: ManualClock, sender: str, text: str
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        await it.delivered("home", 1)
        outcome = await it.home.agents.ask(
            "aria", text, channel="home", sender=sender, reply_to=sender
        )
        assert outcome.text == f"answer to: {text}"
        assert (await it.home.approvals.get(question.id)).decided_at_ms is None


async def test_a_yes_that_could_mean_two_questions_answers_none(tmp_path: Path, clock: ManualClock):
    async with scene(tmp_path, clock) as it:
        await it.asked()
        await it.asked('[[call:pay {"to": "bob", "euros": 6}]]')
        await it.delivered("home", 2)
        outcome = await it.home.agents.ask(
            "aria", "yes", channel="home", sender="anna", reply_to="anna"
        )
        assert outcome.text == "answer to: yes"
        assert len(await it.home.approvals.list()) == 2


@pytest.mark.promise("H1")
async def test_the_wrong_person_in_a_channel_is_told_so(tmp_path: Path, clock: ManualClock):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        await it.delivered("home", 1)
        accept = await it.channels["home"].accepting()
        await accept(Message("aria", (f"approve {question.id}",), MessageOrigin("", "bob", "bob")))
        reply = (await it.delivered("home", 2))[1]
        assert (reply.target, "bob may not answer" in reply.text) == ("bob", True)
        assert (await it.home.approvals.get(question.id)).decided_at_ms is None
        assert len(await it.events("approval.refused")) == 1


@pytest.mark.promise("H1", "M9")
async def test_who_may_not_answer_learns_nothing_of_a_question_nor_whether_there_is_one(
    tmp_path: Path, clock: ManualClock
):
    unknown = "ap_000000000000000000000000"
    async with scene(tmp_path, clock) as it:
        question = await it.asked('[[call:pay {"to": "mauve walrus", "euros": 5}]]')
        decided = await it.asked()
        await it.delivered("home", 2)
        await it.outcome(
            (
                await it.home.approvals.decide(decided.id, approved=False, by="anna", note="no")
            ).turn_id
        )
        bob = await it.home.people.get("bob")
        theirs = it.home.acting_as(Actor("person", bob.id, "bob", bob.trust))
        before = len(await it.delivered("home", 3))
        for number, named in enumerate(
            (question.id, f"ap_{question.id[-6:]}", decided.id, unknown)
        ):
            said = f"bob may not answer {named}. Nothing was changed."
            given = {"channel": "home", "sender": "bob", "reply_to": "bob"}
            outcome = await it.home.agents.ask("aria", f"approve {named}", **given)
            assert (outcome.state, outcome.text) == (TurnState.DONE, said)
            for _ in range(2):  # the same message, handed in once more
                again = await it.home.agents.ask(
                    "aria", f"approve {named}", external_id=str(number), **given
                )
                assert again.text == said
            signals = [
                one async for one in it.home.agents.stream("aria", f"deny {named} no", **given)
            ]
            assert [one.data["text"] for one in signals] == [said]
            with pytest.raises(NotAllowed) as refused:
                await theirs.approvals.decide(named, approved=True)
            assert refused.value.message == said
            answer = await it.home.approvals.answer(named, approved=True, by=Account("home", "bob"))
            assert answer == said
        told = (await it.delivered("home", before + 12))[before:]
        assert {one.text for one in told if "walrus" in one.text} == set()
        assert {one.target for one in told} == {"bob"}
        assert (await it.home.approvals.get(question.id)).decided_at_ms is None


@pytest.mark.promise("H1")
async def test_the_person_present_may_answer_if_the_authorizations_say_so(
    tmp_path: Path, clock: ManualClock
):
    policies = AUTHORIZATIONS.replace('["person:anna", "role:treasurer"]', '["present"]')
    async with scene(tmp_path, clock, policies=policies) as it:
        question = await it.asked(channel="home", sender="bob", reply_to="bob")
        with pytest.raises(NotAllowed):
            await it.home.approvals.decide(question.id, approved=True, by="anna")
        outcome = await it.home.agents.ask(
            "aria", "yes", channel="home", sender="bob", reply_to="bob"
        )
        assert "was approved by bob" in outcome.text
        assert it.paid == ["bob: 5"]


@pytest.mark.promise("H2")
async def test_two_people_at_once_one_wins_and_the_other_is_told(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        both = await asyncio.gather(
            it.home.approvals.decide(question.id, approved=True, by="anna"),
            it.home.approvals.decide(question.id, approved=False, by="owner"),
            return_exceptions=True,
        )
        (lost,) = [one for one in both if isinstance(one, Conflict)]
        stands = await it.home.approvals.get(question.id)
        assert f"was {stands.verdict} by" in lost.message
        await it.outcome(question.turn_id)
        assert len(it.paid) == (stands.verdict == "approved")


# -- other arguments -------------------------------------------------------------------------------


@pytest.mark.promise("H1")
async def test_a_call_is_run_with_the_arguments_that_a_person_changed(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        for wrong in ('{"to": "bob", "euros": "many"}', "[]", "{", '{"to": "bob", "cents": 1}'):
            with pytest.raises(InvalidInput, match=r"cannot be used.*Nothing was changed"):
                await it.home.approvals.decide(question.id, approved=True, arguments=wrong)
        with pytest.raises(InvalidInput, match="denied"):
            await it.home.approvals.decide(question.id, approved=False, arguments="{}")
        assert (await it.home.approvals.get(question.id)).decided_at_ms is None
        receipt = await it.home.approvals.decide(
            question.id, approved=True, arguments={"to": "bob", "euros": 3}, note="Less."
        )
        outcome = await it.home.turns.wait(receipt)
        assert "was approved with changes by owner. They say: Less." in outcome.text
        assert it.paid == ["bob: 3"]
        assert (await it.home.approvals.get(question.id)).verdict == "approved with changes"


# -- grants ----------------------------------------------------------------------------------------


@pytest.mark.promise("H3")
async def test_a_grant_for_a_recipient_covers_calls_like_it_and_no_others(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        receipt = await it.home.approvals.decide(question.id, approved=True, grant="recipient")
        await it.home.turns.wait(receipt)
        (grant,) = await it.home.grants.list()
        assert (grant.tool, [str(one) for one in grant.effects or ()]) == ("pay", ["pay bob (5)"])
        assert (await it.home.agents.ask("aria", PAY)).state is TurnState.DONE
        more = await it.home.agents.ask("aria", '[[call:pay {"to": "bob", "euros": 6}]]')
        assert more.state is TurnState.PARKED
        other = await it.home.agents.ask("aria", '[[call:pay {"to": "eve", "euros": 5}]]')
        assert other.state is TurnState.PARKED
        await it.home.agents.create("zoe")
        assert (await it.home.agents.ask("zoe", PAY)).state is TurnState.PARKED
        await it.home.grants.revoke(grant.id)
        assert (await it.home.agents.ask("aria", PAY)).state is TurnState.PARKED
        assert it.paid == ["bob: 5", "bob: 5"]
        with pytest.raises(Conflict):
            await it.home.grants.revoke(grant.id)
        with pytest.raises(NotFound):
            await it.home.grants.revoke("grant_0")
        kinds = [one.kind for one in await it.events("grant")]
        assert kinds == ["grant.revoked", "grant.given"]


@pytest.mark.promise("H3")
async def test_a_grant_ends_with_its_turn_or_at_its_time(tmp_path: Path, clock: ManualClock):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        await it.home.turns.wait(
            await it.home.approvals.decide(question.id, approved=True, grant="turn")
        )
        assert await it.home.grants.list() == []
        assert len(await it.home.grants.list(everything=True)) == 1
        question = await it.asked()
        wish = Wish(Extent.ALWAYS, until=to_datetime(clock.now + HOUR * 1000), pattern={"to": "b*"})
        await it.home.turns.wait(
            await it.home.approvals.decide(question.id, approved=True, grant=wish)
        )
        done = await it.home.agents.ask("aria", '[[call:pay {"to": "ben", "euros": 9}]]')
        assert done.state is TurnState.DONE
        clock.forward(seconds=HOUR)
        assert (await it.home.agents.ask("aria", PAY)).state is TurnState.PARKED


@pytest.mark.promise("H3")
async def test_only_the_owner_grants_more_than_the_turn(tmp_path: Path, clock: ManualClock):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        with pytest.raises(NotAllowed, match="only the owner grants more"):
            await it.home.approvals.decide(question.id, approved=True, by="anna", grant="always")
        with pytest.raises(InvalidInput, match="a denial grants nothing"):
            await it.home.approvals.decide(question.id, approved=False, grant="always")
        with pytest.raises(InvalidInput, match="yet to come"):
            await it.home.approvals.decide(
                question.id, approved=True, grant=Wish(Extent.ALWAYS, until=to_datetime(1))
            )
        with pytest.raises(InvalidInput, match="does not say how far a yes reaches"):
            await it.home.approvals.decide(question.id, approved=True, grant="forever")
        assert await it.home.grants.list(everything=True) == []
        await it.home.turns.wait(
            await it.home.approvals.decide(question.id, approved=True, grant="always")
        )
        assert (await it.home.agents.ask("aria", '[[call:pay {"to": "x", "euros": 1}]]')).state is (
            TurnState.DONE
        )


@pytest.mark.promise("H3")
async def test_a_grant_is_given_beforehand_for_some_calls(tmp_path: Path, clock: ManualClock):
    async with scene(tmp_path, clock) as it:
        await it.home.grants.give("pa*", agent="aria", pattern={"euros": "5"}, uses=1)
        assert (await it.home.agents.ask("aria", PAY)).state is TurnState.DONE
        assert (await it.home.agents.ask("aria", PAY)).state is TurnState.PARKED
        past = to_datetime(1)
        wrong: list[dict[str, Any]] = [{"uses": 0}, {"until": past}, {"pattern": {"to": "re:("}}]
        for given in wrong:
            with pytest.raises(InvalidInput, match="Nothing was granted"):
                await it.home.grants.give("pay", agent=None, **given)


@pytest.mark.promise("H3")
async def test_a_grant_under_a_limit_asks_above_it_and_after_so_many_a_day(
    tmp_path: Path, clock: ManualClock
):
    async def pays(to: str, euros: int) -> bool:
        said = f'[[call:pay {{"to": "{to}", "euros": {euros}}}]]'
        return (await it.home.agents.ask("aria", said)).state is TurnState.DONE

    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        wish = Wish(Extent.ALWAYS, amount=20, per_day=3)  # and the first call is one of them
        await it.home.turns.wait(
            await it.home.approvals.decide(question.id, approved=True, grant=wish)
        )
        assert await pays("bob", 20)
        assert not await pays("bob", 21)
        assert not await pays("eve", 1)
        assert not await pays("bob", -1)
        assert await pays("bob", 3)
        assert not await pays("bob", 3)
        clock.forward(seconds=DAY + 1)
        assert await pays("bob", 3)
        assert it.paid == ["bob: 5", "bob: 20", "bob: 3", "bob: 3"]
        (grant,) = await it.home.grants.list()
        assert (grant.amount, grant.per_day) == (20, 3)
        wrong = [
            (Wish(Extent.RECIPIENT, amount=3), "A limit goes with"),
            (Wish(Extent.ALWAYS, amount=float("nan")), "not a number"),
            (Wish(Extent.ALWAYS, amount=-1), "a number above 0"),
            (Wish(Extent.ALWAYS, per_day=0), "1 to 1,000,000"),
        ]
        open_question = (await it.home.approvals.list())[0]
        for one, said in wrong:
            with pytest.raises(InvalidInput, match=said):
                await it.home.approvals.decide(open_question.id, approved=True, grant=one)


@pytest.mark.promise("H3")
async def test_calls_of_one_reply_do_not_pass_a_daily_limit_together(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock) as it:
        await it.home.grants.give("pay", agent="aria", per_day=2, amount=10)
        three = " ".join(PAY.replace("5", str(euros)) for euros in (5, 6, 7))
        assert (await it.home.agents.ask("aria", three)).state is TurnState.PARKED
        assert it.paid == ["bob: 5", "bob: 6"]


@pytest.mark.promise("H3")
async def test_a_yes_to_a_recipient_is_none_to_further_ones_or_other_effects(tmp_path: Path):
    done: list[str] = []

    def effects(arguments: Mapping[str, Any]) -> list[Effect]:
        to = tuple(one for one in (arguments["to"], arguments["cc"]) if one)
        return [Effect(EffectKind(arguments["operation"]), recipients=to)]

    @tool(ask=True, effects=effects)
    def desk(operation: str, to: str, cc: str = "", text: str = "") -> str:
        done.append(f"{operation} {to} {cc}")
        return "done"

    @tool(ask=True)
    def blind(first: str, second: str = "") -> str:
        done.append(f"{first} {second}")
        return "done"

    async def runs(name: str, arguments: str) -> bool:
        return (
            await home.agents.ask("aria", f"[[call:{name} {arguments}]]")
        ).state is TurnState.DONE

    async with open_home(tmp_path, tools=[desk, blind]) as home:
        await home.agents.create("aria")
        for name, arguments in (
            ("desk", '{"operation": "send", "to": "bob", "text": "a"}'),
            ("blind", '{"first": "x"}'),
        ):
            assert not await runs(name, arguments)
            (question,) = await home.approvals.list()
            await home.turns.wait(
                await home.approvals.decide(question.id, approved=True, grant="recipient")
            )
        assert await runs("desk", '{"operation": "send", "to": "bob", "text": "b"}')
        assert not await runs("desk", '{"operation": "send", "to": "bob", "cc": "eve"}')
        assert not await runs("desk", '{"operation": "delete", "to": "bob"}')
        assert await runs("blind", '{"first": "x"}')
        assert not await runs("blind", '{"first": "x", "second": "y"}')
        assert done == ["send bob ", "x ", "send bob ", "x "]


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.promise("M2")
async def test_a_tool_says_who_may_answer(tmp_path: Path):
    @tool(repeatable=True, trust=None, effects=ToolEffect("remember"))
    async def swear(ctx: ToolContext) -> str:
        ctx.ask("May I?", ("present",))
        return "sworn"

    async with open_home(tmp_path, tools=[swear]) as home:
        await home.agents.create("aria")
        await home.people.create("bob")
        await home.people.link("bob", "home:bob")
        await home.people.create("anna")
        parked = await home.agents.ask("aria", "[[call:swear {}]]", channel="home", sender="bob")
        (question,) = await home.approvals.list()
        assert (question.reviewers, question.turn_id) == (("present",), parked.turn_id)
        with pytest.raises(NotAllowed):
            await home.approvals.decide(question.id, approved=True, by="anna")
        outcome = await home.turns.wait(
            await home.approvals.decide(question.id, approved=True, by="bob")
        )
        assert "was approved by bob" in outcome.text


@pytest.mark.promise("M2")
@pytest.mark.parametrize(
    ("permission", "reviewers"),
    [(Permission.HUMAN, ("present",)), (Permission.PARTNER, ("owner",))],
)
async def test_consent_to_a_block_is_given_by_the_one_that_its_permission_names(
    tmp_path: Path, permission: Permission, reviewers: tuple[str, ...]
):
    write = '[[call:block_edit {"operation": "append", "label": "facts", "content": "Tea."}]]'
    async with open_home(tmp_path) as home:
        await home.agents.create("aria")
        await home.blocks.create("aria", "facts", permission=permission, audience="public")
        await home.people.create("bob")
        await home.people.link("bob", "home:bob")
        await home.people.create("anna")
        parked = await home.agents.ask("aria", write, channel="home", sender="bob")
        assert parked.state is TurnState.PARKED, parked.text
        (question,) = await home.approvals.list()
        assert question.reviewers == reviewers
        with pytest.raises(NotAllowed):
            await home.approvals.decide(question.id, approved=True, by="anna")
        by = "bob" if permission is Permission.HUMAN else "owner"
        if by == "owner":
            with pytest.raises(NotAllowed):
                await home.approvals.decide(question.id, approved=True, by="bob")
        await home.turns.wait(await home.approvals.decide(question.id, approved=True, by=by))
        assert "Tea." in (await home.blocks.get("aria", "facts")).block.text


@pytest.mark.promise("H2")
async def test_a_name_that_goes_to_somebody_else_takes_no_question_along(
    tmp_path: Path, clock: ManualClock
):
    async with scene(tmp_path, clock) as it:
        question = await it.asked()
        await it.delivered("home", 1)
        await it.home.people.rename("anna", "annette")
        await it.home.people.create("anna")
        with pytest.raises(NotAllowed, match=r"anna may not answer .*annette"):
            await it.home.approvals.decide(question.id, approved=True, by="anna")
        receipt = await it.home.approvals.decide(question.id, approved=True, by="annette")
        assert "was approved by annette" in (await it.home.turns.wait(receipt)).text


@pytest.mark.promise("H2")
async def test_somebody_who_acts_for_themselves_answers_as_nobody_else(
    tmp_path: Path, clock: ManualClock
):
    policies = AUTHORIZATIONS + '\n[roles.guest]\nmay = ["read", "talk"]\n'
    async with scene(tmp_path, clock, policies=policies) as it:
        question = await it.asked()
        bob = await it.home.people.get("bob")
        theirs = it.home.acting_as(
            Actor("person", bob.id, bob.name, Trust.KNOWN, roles=frozenset(bob.roles))
        )
        for by in (None, "owner", "anna"):
            with pytest.raises(NotAllowed, match="bob may not answer"):
                await theirs.approvals.decide(question.id, approved=True, by=by)
        with pytest.raises(NotAllowed):
            await theirs.grants.give("pay", agent="aria")
        assert (await it.home.approvals.get(question.id)).decided_at_ms is None
        assert await it.home.grants.list(everything=True) == []
