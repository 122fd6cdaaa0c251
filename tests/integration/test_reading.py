"""Reading is judged as writing is: what those present may not see is asked of the owner."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from asterism import Asterism, Outcome, ToolEffect, TurnState, tool
from asterism.errors import ConfigError, InvalidInput
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.tools.tool import ToolContext
from asterism.types.agents import Audience
from asterism.types.permissions import Extent, Wish
from asterism.types.turns import EntryKind
from tests.integration.test_web_tool import serving
from tests.mcp_servers.scene import plain_server
from tests.scenes import calls, open_home

pytestmark = pytest.mark.promise("M9")

SECRET = "the safe opens with 4711"
STRANGER: dict[str, Any] = {"channel": "chat", "sender": "u1", "reply_to": "u1"}
ANNA: dict[str, Any] = {"channel": "chat", "sender": "anna", "reply_to": "anna"}
KITCHEN: dict[str, Any] = {"channel": "chat", "room": "kitchen", "sender": "anna"}


@tool(repeatable=True, effects=ToolEffect("read"))
def balance() -> str:
    """Tell the balance of the owner's account."""
    return SECRET


@tool
def mailbox() -> str:
    """Show the mailbox; its author has not said what it does."""
    return SECRET


@tool(transactional=True)
async def ledger(ctx: ToolContext) -> str:
    """Look into a table of the home's own."""
    del ctx
    return SECRET


@tool(repeatable=True, effects=ToolEffect("read"), audience="public")
def weather() -> str:
    """Tell the weather."""
    return "It rains."


@tool(repeatable=True, effects=ToolEffect("read"), audience="role:family")
def calendar() -> str:
    """Show the calendar of the family."""
    return "Dentist at nine."


TOOLS = [balance, mailbox, ledger, weather, calendar]


@asynccontextmanager
async def home_with_anna(place: Path, **given: Any) -> AsyncGenerator[Asterism]:
    async with open_home(place, tools=TOOLS, **given) as home:
        await home.agents.create("aria")
        await home.people.create("anna", roles=["family"])
        await home.people.link("anna", "chat:anna")
        yield home


async def workspace(home: Asterism) -> Path:
    folder = home.workshop.workplace.folder((await home.agents.get("aria")).id)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def called(name: str, **arguments: Any) -> str:
    return f"[[call:{name} {orjson.dumps(arguments).decode()}]]"


async def results(home: Asterism, outcome: Outcome) -> str:
    _, entries = await home.turns.get(outcome.turn_id)
    return "\n".join(one.body.decode() for one in entries if one.kind is EntryKind.RESULT)


async def is_asked(home: Asterism, outcome: Outcome) -> str:
    """Return the reason for which the owner was asked; nothing was read meanwhile."""
    assert outcome.state is TurnState.PARKED, outcome.text
    assert SECRET not in await results(home, outcome)
    assert SECRET not in outcome.text
    (asked,) = [one for one in await home.approvals.list() if one.turn_id == outcome.turn_id]
    assert asked.reviewers == ("owner",)
    return asked.reason


READS = {
    "file load": called("file", operation="load", path="notes.md"),
    "file diff": called("file", operation="diff", path="notes.md", content="x"),
    "file list": called("file", operation="list"),
    "file create": called("file", operation="create", path="notes.md", content="x"),
    "shell status": called("shell", operation="status"),
    "a tool that reads": called("balance"),
    "a tool that does not say": called("mailbox"),
    "a transactional tool that does not say": called("ledger"),
}


@pytest.mark.parametrize("who", [STRANGER, ANNA, KITCHEN], ids=["stranger", "known", "room"])
@pytest.mark.parametrize("name", READS)
async def test_what_others_may_not_see_is_asked_of_the_owner(
    tmp_path: Path, name: str, who: dict[str, Any]
):
    async with home_with_anna(tmp_path) as home:
        (await workspace(home) / "notes.md").write_text(SECRET)
        # First of all: what a stranger says is heard by the owner, and asks for nothing.
        alone = await home.agents.ask("aria", READS[name])
        assert alone.state is TurnState.DONE
        reason = await is_asked(home, await home.agents.ask("aria", READS[name], **who))
        called_so = "chat:u1" if who is STRANGER else "anna"
        assert f"would show its result to {called_so}, who may not see it" in reason


@pytest.mark.postgres
async def test_on_postgres_it_is_asked_too(tmp_path: Path):
    with postgres_server().database() as url:
        async with home_with_anna(tmp_path, settings={"store.url": url}) as home:
            reason = await is_asked(home, await home.agents.ask("aria", called("balance"), **ANNA))
    assert "anna" in reason


async def test_what_is_for_those_present_is_answered_at_once(tmp_path: Path):
    async with home_with_anna(tmp_path) as home:
        for who in (STRANGER, ANNA):
            rain = await home.agents.ask("aria", called("weather"), **who)
            assert rain.state is TurnState.DONE
            assert "It rains." in await results(home, rain)
            sum_ = await home.agents.ask("aria", called("calculator", expression="6*7"), **who)
            assert "42" in await results(home, sum_)
        dentist = await home.agents.ask("aria", called("calendar"), **ANNA)
        assert "Dentist" in await results(home, dentist)
        await is_asked(home, await home.agents.ask("aria", called("calendar"), **STRANGER))
        both = {**KITCHEN, "present": ["u1"]}
        reason = await is_asked(home, await home.agents.ask("aria", called("calendar"), **both))
        assert "to chat:u1, who" in reason  # anna may see it


async def test_the_owner_may_say_yes_and_what_is_said_after_it_is_for_those_present(
    tmp_path: Path,
):
    async with home_with_anna(tmp_path) as home:
        await home.agents.send("aria", "Hello.", channel="chat", sender="u1")
        asked = await home.agents.ask("aria", called("balance"), **KITCHEN)
        (approval,) = await home.approvals.list()
        done = await home.turns.wait(await home.approvals.decide(approval.id, approved=True))
        assert done.state is TurnState.DONE
        record, entries = await home.turns.get(asked.turn_id)
        assert any(SECRET in one.body.decode() for one in entries)
        # Whoever enters the kitchen later was not there, and may not see the balance.
        later = await home.people.participants(["chat:u1"], "chat:kitchen")
        assert not later.can_see(Audience.of_turn(record.audience))
        found = await home.search("aria", "safe opens", participants=later)
        assert SECRET not in repr(found.hits)


async def test_a_grant_for_the_owner_alone_shows_nothing_to_others(tmp_path: Path):
    policies = (
        '[[policy]]\nname = "ask"\nverdict = "ask"\ntools = ["balance"]\npeople = ["owner"]\n'
    )
    (tmp_path / "authorizations.toml").write_text(policies)
    async with home_with_anna(tmp_path) as home:
        await home.agents.ask("aria", called("balance"))
        (approval,) = await home.approvals.list()
        always = Wish(Extent.ALWAYS)
        await home.turns.wait(await home.approvals.decide(approval.id, approved=True, grant=always))
        assert (await home.agents.ask("aria", called("balance"))).state is TurnState.DONE
        asked = await home.agents.ask("aria", called("balance"), **ANNA)
        await is_asked(home, asked)
        (approval,) = await home.approvals.list()
        await home.turns.wait(await home.approvals.decide(approval.id, approved=True, grant=always))
        # This one was given while anna listened.
        assert (await home.agents.ask("aria", called("balance"), **ANNA)).state is TurnState.DONE
        await is_asked(home, await home.agents.ask("aria", called("balance"), **STRANGER))


async def test_a_plan_tells_who_would_see_what_its_calls_read_and_is_asked_once(tmp_path: Path):
    alone: dict[str, Any] = {}
    cases = (
        ("balance", SECRET, alone, ""),
        ("weather", "It rains.", ANNA, ""),
        ("balance", SECRET, ANNA, "would show its result to anna, who may not see it"),
    )
    for number, (name, brings, who, reason) in enumerate(cases):
        plan = f'{{"steps": [{{"tool": "{name}", "arguments": {{}}}}]}}'
        proposed = calls(("propose_plan", plan))
        model = ScriptedModel([proposed, calls((name, "{}")), "done"])
        async with home_with_anna(tmp_path / str(number), model=model) as home:
            asked = await home.agents.ask("aria", "Go on.", **who)
            told = await is_asked(home, asked)
            assert told.endswith(reason) if reason else told == ""
            (approval,) = await home.approvals.list()
            done = await home.turns.wait(await home.approvals.decide(approval.id, approved=True))
            assert (done.state, done.text) == (TurnState.DONE, "done")
            assert brings in await results(home, asked)


async def test_a_policy_may_allow_it(tmp_path: Path):
    policies = (
        '[[policy]]\nname = "family"\nverdict = "allow"\ntools = ["balance"]\n'
        'people = ["role:family"]\n'
    )
    (tmp_path / "authorizations.toml").write_text(policies)
    async with home_with_anna(tmp_path) as home:
        assert SECRET in await results(
            home, await home.agents.ask("aria", called("balance"), **ANNA)
        )
        await is_asked(home, await home.agents.ask("aria", called("balance"), **STRANGER))


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["load", "list", "diff", "create", "append", "delete"])
async def test_a_file_that_is_there_and_one_that_is_not_get_the_same_answer(
    tmp_path: Path, operation: str
):
    async with home_with_anna(tmp_path) as home:
        folder = await workspace(home)
        (folder / "a.md").write_text(SECRET)
        (folder / "link.md").symlink_to("/etc/hostname")
        told: set[tuple[str, str]] = set()
        for name in ("a.md", "b.md", "link.md", "/etc/hostname", "~/none.md"):
            request = called("file", operation=operation, path=name, content="x")
            outcome = await home.agents.ask("aria", request, **STRANGER)
            reason = await is_asked(home, outcome)
            question = outcome.text.partition(" (approval ap_")[0]
            told.add((question.replace(name, "FILE"), reason.replace(name, "FILE")))
        assert len(told) == 1


async def test_a_rule_may_open_a_folder_to_others(tmp_path: Path):
    menu, diary = tmp_path / "menu", tmp_path / "diary"
    for place in (menu, diary):
        place.mkdir()
        (place / "today.md").write_text("soup" if place is menu else SECRET)
    rules = [
        {"paths": [f"{menu}/**"], "permission": "read", "audience": "role:family"},
        {"paths": [f"{diary}/**"], "permission": "read"},
    ]
    async with home_with_anna(tmp_path / "data", settings={"files": {"rule": rules}}) as home:
        soup = called("file", operation="load", path=f"{menu}/today.md")
        assert "soup" in await results(home, await home.agents.ask("aria", soup, **ANNA))
        await is_asked(home, await home.agents.ask("aria", soup, **STRANGER))
        other = called("file", operation="load", path=f"{diary}/today.md")
        await is_asked(home, await home.agents.ask("aria", other, **ANNA))
        # A link in the open folder leads to where it leads.
        (menu / "link.md").symlink_to(diary / "today.md")
        led = called("file", operation="load", path=f"{menu}/link.md")
        await is_asked(home, await home.agents.ask("aria", led, **ANNA))


async def test_what_the_owner_has_loaded_is_not_told_by_status(tmp_path: Path):
    settings = {"files": {"audience": "public"}}
    async with home_with_anna(tmp_path, settings=settings) as home:
        (await workspace(home) / "divorce.md").write_text("before")
        await home.agents.ask("aria", called("file", operation="load", path="divorce.md"))
        status = called("file", operation="status")
        assert "divorce.md" in await results(home, await home.agents.ask("aria", status))
        assert "No file is loaded." in await results(
            home, await home.agents.ask("aria", status, **ANNA)
        )
        (await workspace(home) / "divorce.md").write_text("after")
        diff = called("file", operation="diff", path="divorce.md")
        told = await results(home, await home.agents.ask("aria", diff, **ANNA))
        assert "is not loaded" in told
        assert "before" not in told


async def test_a_setting_that_names_nobody_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="everybody"):
        async with open_home(tmp_path, settings={"files": {"audience": "everybody"}}):
            pass
    with pytest.raises(ConfigError, match="by id"):
        tool(audience="person:anna")(lambda: "x")
    async with open_home(tmp_path) as home:
        with pytest.raises(InvalidInput, match="everybody"):
            await home.tools.add(
                "t", "T.", {"type": "object"}, python="def run(): pass", audience="everybody"
            )


# -- programs and pages ----------------------------------------------------------------------------


async def test_programs_that_the_owner_started_are_not_told_to_others(tmp_path: Path):
    policies = '[[policy]]\nname = "all"\nverdict = "allow"\ntools = ["shell"]\n'
    (tmp_path / "authorizations.toml").write_text(policies)
    async with home_with_anna(tmp_path) as home:
        command = f"echo {SECRET}; sleep 60"
        started = await home.agents.ask("aria", called("shell", operation="spawn", command=command))
        assert "Started as task_" in await results(home, started)
        status = called("shell", operation="status")
        assert SECRET in await results(home, await home.agents.ask("aria", status))
        for who in (ANNA, STRANGER):
            told = await results(home, await home.agents.ask("aria", status, **who))
            assert "No programs in the background." in told
        kill = called("shell", operation="kill", task_id="task_none")
        told = await results(home, await home.agents.ask("aria", kill, **ANNA))
        assert "there is none" in told
        # What is started among others, the owner sees.
        await home.agents.ask(
            "aria", called("shell", operation="spawn", command="sleep 61"), **ANNA
        )
        assert "sleep 61" in await results(home, await home.agents.ask("aria", status))
        told = await results(home, await home.agents.ask("aria", status, **ANNA))
        assert "sleep 61" in told
        assert SECRET not in told


async def test_the_page_that_the_owner_read_is_not_read_on_by_others(tmp_path: Path):
    # Not even where everybody may have pages fetched.
    policies = '[[policy]]\nname = "all"\nverdict = "allow"\ntools = ["web"]\n'
    (tmp_path / "authorizations.toml").write_text(policies)
    async with serving() as site:
        url = site.text("/divorce", "word " * 5_000, "text/plain")
        settings = {"web": {"allow": [f"127.0.0.1:{site.port}"]}}
        async with home_with_anna(tmp_path, settings=settings) as home:
            first = await home.agents.ask("aria", called("web", operation="fetch", query=url))
            assert "continue with continue_from" in await results(home, first)
            on = called("web", operation="fetch")
            for who in (ANNA, STRANGER):
                told = await results(home, await home.agents.ask("aria", on, **who))
                assert "Which page?" in told
                assert "divorce" not in told
            assert "divorce" in await results(home, await home.agents.ask("aria", on))
            # That the page is kept would show: it is fetched anew for others.
            before = len(site.asked)
            await home.agents.ask("aria", called("web", operation="fetch", query=url))
            assert len(site.asked) == before
            await home.agents.ask("aria", called("web", operation="fetch", query=url), **ANNA)
            assert len(site.asked) == before + 1


# -- registered tools ------------------------------------------------------------------------------


async def test_a_registered_tool_is_for_the_owner_unless_it_says_otherwise(tmp_path: Path):
    schema: dict[str, Any] = {"type": "object", "properties": {}}
    effects = [{"kind": "read"}]
    async with home_with_anna(tmp_path) as home:
        source = f"def run(): return {SECRET!r}"
        await home.tools.add("notes", "Notes.", schema, python=source, effects=effects)
        source = "def run(): return 'pasta'"
        await home.tools.add(
            "menu", "M.", schema, python=source, effects=effects, audience="public"
        )
        await is_asked(home, await home.agents.ask("aria", called("notes"), **ANNA))
        assert "pasta" in await results(home, await home.agents.ask("aria", called("menu"), **ANNA))
    async with home_with_anna_again(tmp_path) as home:
        assert "pasta" in await results(home, await home.agents.ask("aria", called("menu"), **ANNA))


@asynccontextmanager
async def home_with_anna_again(place: Path) -> AsyncGenerator[Asterism]:
    async with open_home(place, tools=TOOLS) as home:
        yield home


# -- errors ----------------------------------------------------------------------------------------


async def test_errors_of_sending_name_nobody_to_others(tmp_path: Path):
    async with home_with_anna(tmp_path) as home:
        await home.people.create("Dr. Divorce")
        await home.agents.create("lawyer")
        for target in ({"type": "user", "id": "Dr Divorce"}, {"type": "user", "id": "Dr. Divorce"}):
            send = called("send_message", target=target, content="hi")
            told = await results(home, await home.agents.ask("aria", send, **ANNA))
            assert f"Nobody called '{target['id']}' can be reached" in told
        send = called("send_message", target={"type": "agent", "id": "x"}, content="hi")
        assert "lawyer" not in await results(home, await home.agents.ask("aria", send, **ANNA))
        assert "lawyer" in await results(home, await home.agents.ask("aria", send))


# -- MCP servers -----------------------------------------------------------------------------------


async def test_results_of_servers_are_for_the_owner_unless_settings_say_otherwise(tmp_path: Path):
    server = plain_server(tmp_path, tools=["add", "open"])
    table = {**server.model_dump(exclude_defaults=True), "args": list(server.args)}
    table["tools"] = {
        "add": {"effects": {"kind": "write", "things": "a"}},
        "open": {"audience": "role:family", "effects": {"kind": "read"}},
    }
    async with home_with_anna(tmp_path / "data", settings={"mcp": {"home": table}}) as home:
        await home.mcp.ask("home")
        # Whatever it does, what a server answers is not known beforehand.
        asked = await home.agents.ask("aria", called("home_add", a=1), **ANNA)
        assert "anna" in await is_asked(home, asked)
        shown = await home.agents.ask("aria", called("home_open"), **ANNA)
        assert shown.state is TurnState.DONE
        await is_asked(home, await home.agents.ask("aria", called("home_open"), **STRANGER))


# -- blocks ----------------------------------------------------------------------------------------


async def test_a_block_does_not_tell_that_something_is_hidden_in_it(tmp_path: Path):
    async with home_with_anna(tmp_path) as home:
        for label, hidden in (("plain", ""), ("deep", "x" * 900)):
            await home.blocks.create("aria", label, "open words", limit=1_000, audience="public")
            for line in (hidden, "") if hidden else ():
                private = called("block_edit", operation="append", label=label, content=line or "y")
                await home.agents.ask("aria", private)
        shown: list[str] = []
        for label in ("plain", "deep"):
            for request in (
                called("block", operation="info", label=label),
                called("block", operation="list"),
                called("block", operation="load", label=label),
            ):
                told = await results(home, await home.agents.ask("aria", request, **ANNA))
                shown.append(told.replace("deep", "plain"))
            context = await home.contexts.now("aria", present=["anna"])
            assert 'used="10/1000"' in repr(context)
            assert 'used="9' not in repr(context)
        strip = [orjson.loads(one)["content"] for one in shown if one]
        assert strip[:3] == strip[3:]
        assert "version 1." in strip[0]
        assert "version 3." in await results(
            home, await home.agents.ask("aria", called("block", operation="info", label="deep"))
        )


async def test_a_block_that_is_full_does_not_tell_of_what(tmp_path: Path):
    async with home_with_anna(tmp_path) as home:
        await home.blocks.create("aria", "deep", "open words", limit=1_000, audience="public")
        private = called("block_edit", operation="append", label="deep", content="x" * 900)
        await home.agents.ask("aria", private)
        more = called("block_edit", operation="append", label="deep", content="z" * 200)
        told = await results(home, await home.agents.ask("aria", more, **ANNA))
        assert "Block 'deep' does not take this text." in told
        for number in ("900", "911", "910", "200", "201", "1,000", "1,11"):
            assert number not in orjson.loads(told)["content"]
