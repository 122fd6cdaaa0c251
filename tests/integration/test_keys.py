"""Stored keys: sealed at rest, used at the moment of a request, and lost by no mistake."""

# apsw's stubs use a type that they do not define, so that all its methods count as partly unknown.
# pyright: reportUnknownMemberType=false

import base64
import json
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from asterism import Asterism, ToolContext, ToolEffect, tool
from asterism.errors import (
    ConfigError,
    InvalidInput,
    MasterKeyMissing,
    NotAllowed,
    NotFound,
    SecretError,
    SecretUnreadable,
)
from asterism.permissions import Actor
from asterism.secrets import MasterKeyFile
from asterism.telemetry.redaction import redact
from asterism.testing.postgres import postgres_server
from asterism.testing.scripted import ScriptedModel
from asterism.types.agents import Trust
from asterism.types.turns import Call, Reply
from tests.scenes import calls, open_home, until
from tests.servers.openai_server import OpenAIServer

VALUE = "canary-value-4711-abcdef"


@asynccontextmanager
async def opened(place: Path, environ: dict[str, str] | None = None, **given: Any):
    async with Asterism.open(place / "data", environ=environ or {}, work=False, **given) as home:
        yield home


@pytest.fixture
async def stored(tmp_path: Path) -> Path:
    """A place with the keys `openai` and `other`."""
    async with opened(tmp_path) as home:
        await home.keys.set("openai", VALUE)
        await home.keys.set("other", "another-value-0815")
    return tmp_path


def master(place: Path) -> Path:
    return place / "master.key"


@pytest.mark.promise("X3")
async def test_a_key_is_sealed_used_listed_and_removed(tmp_path: Path):
    async with opened(tmp_path) as home:
        assert await home.keys.set("openai", f" {VALUE}\n") is False
        assert await home.keys.set("openai", f"{VALUE}2") is True
        assert home.keys.resolve("secret:openai") == f"{VALUE}2"
        assert home.keys.resolve("Bearer {secret:openai} ${secret:openai}").count(VALUE) == 2
        assert home.keys.resolve("no {secret} here") == "no {secret} here"
        [one] = await home.keys.list()
        assert (one.name, one.used_by, one.problem) == ("openai", ("models.openai",), None)
        assert one.used_at_ms is not None
        assert VALUE not in repr(one)
        kinds = [event.kind for event in await home.audit.list(kind="key")]
        assert kinds == ["key.changed", "key.set"]
    assert stat.S_IMODE(master(tmp_path).stat().st_mode) == 0o600
    for file in (tmp_path / "data").rglob("*"):
        assert not file.is_file() or VALUE.encode() not in file.read_bytes(), file
    async with opened(tmp_path, readonly=True) as home:
        assert home.keys.get("openai") == f"{VALUE}2"
    async with opened(tmp_path) as home:
        await home.keys.remove("openai")
        assert home.keys.get("openai") is None
        assert await home.keys.list() == []
        with pytest.raises(NotFound, match="There is no key named 'openai'"):
            home.keys.resolve("{secret:openai}")
        with pytest.raises(NotFound, match=r"Nothing was removed\."):
            await home.keys.remove("openai")


@pytest.mark.promise("X3")
@pytest.mark.parametrize("readonly", [False, True])
async def test_what_is_stored_is_taken_out_of_texts(stored: Path, readonly: bool):
    async with opened(stored, readonly=readonly):
        assert redact(f"said {VALUE}") == "said [redacted openai]"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "value-1234"),
        ("a b", "value-1234"),
        ("../x y", "wxyz-1"),
        ("a", ""),
        ("a", " \n"),
        ("a", "x\x00y"),
        ("a", "x" * 70_000),
    ],
)
async def test_what_is_no_key_is_refused(tmp_path: Path, name: str, value: str):
    async with opened(tmp_path) as home:
        with pytest.raises(InvalidInput, match=r"Nothing was stored( or changed)?\.$") as told:
            await home.keys.set(name, value)
        assert not value.strip() or value not in told.value.message
        assert await home.keys.list() == []
    assert not master(tmp_path).exists()


@pytest.mark.promise("X3", "X5")
async def test_a_missing_master_key_is_told_and_nothing_is_lost(stored: Path):
    kept = master(stored).read_bytes()
    master(stored).unlink()
    async with opened(stored) as home:
        with pytest.raises(MasterKeyMissing, match="has no master key") as told:
            home.keys.get("openai")
        assert str(master(stored)) in told.value.message
        # A new master key is not made, since it would hide what happened.
        with pytest.raises(MasterKeyMissing):
            await home.keys.set("openai", "a-new-value")
        with pytest.raises(SecretError, match=r"Nothing was changed\."):
            await home.keys.rotate()
        assert {one.problem is None for one in await home.keys.list()} == {False}
    assert not master(stored).exists()
    MasterKeyFile(master(stored)).put([base64.b64decode(kept)])
    async with opened(stored) as home:
        assert home.keys.get("openai") == VALUE


@pytest.mark.promise("X3", "X5")
async def test_another_master_key_opens_nothing(stored: Path):
    wrong = base64.b64encode(os.urandom(32)).decode()
    async with opened(stored, {"ASTERISM_KEY": wrong}) as home:
        with pytest.raises(MasterKeyMissing, match="has a different master key"):
            home.keys.get("openai")
        # What is stored from now on is sealed with it; the others wait for theirs.
        await home.keys.set("third", "third-value-99")
    both = f"{wrong},{master(stored).read_text().strip()}"
    async with opened(stored, {"ASTERISM_KEY": both}) as home:
        assert (home.keys.get("openai"), home.keys.get("third")) == (VALUE, "third-value-99")


@pytest.mark.parametrize(
    "text", ["not base64!", "c2hvcnQ=", "\udcff".encode(errors="replace").hex()]
)
async def test_a_master_key_that_is_none_is_told(stored: Path, text: str):
    async with opened(stored, {"ASTERISM_KEY": text}) as home:
        with pytest.raises(ConfigError, match="32 bytes in Base64 are needed"):
            home.keys.get("openai")


async def test_a_master_key_that_others_can_read_is_refused(stored: Path):
    master(stored).chmod(0o644)
    async with opened(stored) as home:
        with pytest.raises(ConfigError, match="chmod 600"):
            home.keys.get("openai")


async def test_an_empty_environment_cannot_keep_the_master_key(tmp_path: Path):
    settings = {"secrets.keeper": "env"}
    async with opened(tmp_path, settings=settings) as home:
        with pytest.raises(ConfigError, match="ASTERISM_KEY is not set"):
            await home.keys.set("openai", VALUE)


@pytest.mark.promise("X3")
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE secrets SET ciphertext = zeroblob(40) WHERE name = 'openai'",
        "UPDATE secrets SET nonce = zeroblob(12) WHERE name = 'openai'",
        "UPDATE secrets SET nonce = x'00' WHERE name = 'openai'",
        "UPDATE secrets SET key_id = 'gone' WHERE name = 'openai'",
        # Taken from another row: what is sealed is bound to its name.
        (
            "UPDATE secrets SET (ciphertext, nonce) = (SELECT ciphertext, nonce FROM secrets s"
            " WHERE s.name = 'other') WHERE name = 'openai'"
        ),
    ],
)
async def test_a_damaged_row_is_told_and_the_others_work(stored: Path, damage: str):
    with closing(apsw.Connection(str(stored / "data" / "asterism.db"))) as raw:
        raw.execute(damage).fetchall()
    async with opened(stored) as home:
        with pytest.raises(SecretUnreadable, match='"asterism key set openai"'):
            home.keys.get("openai")
        assert home.keys.get("other") == "another-value-0815"
        with pytest.raises(SecretUnreadable, match=r"Nothing was changed\."):
            await home.keys.rotate()
        await home.keys.set("openai", VALUE)
        assert await home.keys.rotate() == 2


@pytest.mark.promise("X3")
async def test_rotation_seals_everything_anew(stored: Path):
    def rows() -> Any:
        with closing(apsw.Connection(str(stored / "data" / "asterism.db"))) as raw:
            return list(raw.execute("SELECT ciphertext, key_id FROM secrets"))

    before, first = rows(), master(stored).read_text()
    async with opened(stored) as home:
        assert await home.keys.rotate() == 2
    after, second = rows(), master(stored).read_text()
    assert not {one for row in before for one in row} & {one for row in after for one in row}
    assert second.splitlines()[1:] == first.splitlines()
    # The new one is enough.
    MasterKeyFile(master(stored)).put([base64.b64decode(second.splitlines()[0])])
    async with opened(stored) as home:
        assert home.keys.get("openai") == VALUE


@pytest.mark.promise("X3")
@pytest.mark.parametrize("when", ["before the keeper", "after the keeper", "after the store"])
async def test_a_rotation_that_is_cut_off_loses_nothing(
    stored: Path, when: str, monkeypatch: pytest.MonkeyPatch
):
    put = MasterKeyFile.put

    def cut_off(self: MasterKeyFile, keys: Sequence[bytes]) -> None:
        if when != "before the keeper":
            put(self, keys)
        raise RuntimeError

    async with opened(stored) as home:
        if when == "after the store":
            await home.keys.rotate()
        else:
            monkeypatch.setattr(MasterKeyFile, "put", cut_off)
            with pytest.raises(RuntimeError):
                await home.keys.rotate()
    async with opened(stored) as home:
        assert home.keys.get("openai") == VALUE


async def test_the_keyring_of_the_system_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import keyring

    kept: dict[tuple[str, str], str] = {}

    def read(service: str, user: str) -> str | None:
        return kept.get((service, user))

    def write(service: str, user: str, text: str) -> None:
        kept[service, user] = text

    monkeypatch.setattr(keyring, "get_password", read)
    monkeypatch.setattr(keyring, "set_password", write)
    settings = {"secrets.keeper": "keyring"}
    async with opened(tmp_path, settings=settings) as home:
        await home.keys.set("openai", VALUE)
        assert await home.keys.rotate() == 1
    async with opened(tmp_path, settings=settings) as home:
        assert home.keys.get("openai") == VALUE
    assert list(kept) == [("asterism", "master key of home")]
    assert not master(tmp_path).exists()


async def test_a_keyring_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import keyring
    from keyring.errors import KeyringLocked

    def locked(*_: str) -> None:
        raise KeyringLocked("locked")

    monkeypatch.setattr(keyring, "get_password", locked)
    async with opened(tmp_path, settings={"secrets.keeper": "keyring"}) as home:
        with pytest.raises(ConfigError, match="keyring does not answer"):
            await home.keys.set("openai", VALUE)


@pytest.mark.promise("X3")
@pytest.mark.parametrize("named", ["", 'key = "secret:mine"'])
async def test_a_vendor_is_asked_with_the_stored_key(
    tmp_path: Path, named: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("LOCAL_API_KEY", raising=False)
    name = "mine" if named else "local"
    async with OpenAIServer() as server:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "asterism.toml").write_text(
            f'model = "local:m"\n[models.local]\nbase_url = "{server.base_url}"\n{named}\n'
        )
        async with Asterism.open(tmp_path / "data", environ={}) as home:
            await home.keys.set(name, VALUE)
            await home.agents.create("aria")
            await home.agents.ask("aria", "hello")
            assert server.requests[-1].headers["Authorization"] == f"Bearer {VALUE}"
            await home.keys.set(name, "changed-value-99")
            await home.agents.ask("aria", "hello")
            assert server.requests[-1].headers["Authorization"] == "Bearer changed-value-99"
            [one] = await home.keys.list()
            assert one.used_by == ("models.local.key" if named else "models.local",)
        # The environment wins over what is stored, and a key in the configuration over both.
        if not named:
            monkeypatch.setenv("LOCAL_API_KEY", "from-environment-1")
            async with Asterism.open(tmp_path / "data", environ={}) as home:
                await home.agents.ask("aria", "hello")
                told = server.requests[-1].headers["Authorization"]
                assert told == "Bearer from-environment-1"


async def test_a_key_that_is_named_and_not_stored_is_told(tmp_path: Path):
    settings = {"models.local.base_url": "http://127.0.0.1:9", "models.local.key": "secret:mine"}
    async with Asterism.open(
        tmp_path / "data", environ={}, settings={"model": "local:m", **settings}
    ) as home:
        await home.agents.create("aria")
        outcome = await home.agents.ask("aria", "hello")
        assert "asterism key set mine" in outcome.text


@pytest.mark.postgres
@pytest.mark.promise("X3")
async def test_another_process_hears_of_a_key(tmp_path: Path):
    with postgres_server().database() as url:
        settings = {"store.url": url}
        async with (
            opened(tmp_path, settings=settings) as one,
            opened(tmp_path, settings=settings) as two,
        ):
            await one.keys.set("openai", VALUE)
            await until(lambda: two.keys.get("openai") == VALUE)
            await one.keys.remove("openai")
            await until(lambda: two.keys.get("openai") is None)


@pytest.mark.promise("X3")
async def test_nobody_but_the_owner_gets_at_keys(stored: Path):
    async with opened(stored) as home:
        stranger = home.acting_as(Actor("person", "person_1", "mallory", Trust.STRANGER))
        for attempt in (
            lambda: stranger.keys.set("openai", "another-value"),
            lambda: stranger.keys.remove("openai"),
            stranger.keys.rotate,
        ):
            with pytest.raises(NotAllowed):
                await attempt()
        for look in (stranger.keys.get, stranger.keys.has, stranger.keys.resolve):
            with pytest.raises(NotAllowed):
                look("openai")
        assert home.keys.get("openai") == VALUE
        [first, *_] = await home.audit.list(kind="verb.denied")
        assert (first.actor, first.body and first.body["what"]) == ("person:mallory", "key.rotate")


@pytest.mark.promise("X3")
async def test_no_model_and_no_journal_gets_a_key_that_a_message_or_a_tool_brings(stored: Path):
    @tool(effects=ToolEffect("read"))
    def leak() -> str:
        """Say too much."""
        return f"The key is {VALUE}."

    model = ScriptedModel([calls(("leak", "{}")), "done"])
    async with open_home(stored / "data", model, tools=[leak]) as home:
        await home.agents.create("zoe")
        outcome = await home.agents.ask("zoe", f"Is it {VALUE}?")
        sent = b"".join(wire for request in model.requests for wire in request.messages)
        assert b"[redacted openai]" in sent
        assert VALUE.encode() not in sent
        _, entries = await home.turns.get(outcome.turn_id)
        assert all(VALUE.encode() not in one.body for one in entries)


@pytest.mark.promise("X3")
async def test_no_prompt_and_no_search_shows_a_key_however_it_came_into_memory(
    tmp_path: Path, engine: dict[str, str]
):
    later = f"later-known-{secrets.token_hex(8)}"  # what is known once stays known
    model = ScriptedModel.from_rule(lambda _: "done")
    async with open_home(tmp_path / "data", model, settings=engine) as home:
        await home.keys.set("openai", VALUE)
        await home.agents.create("aria", system=f"You know {VALUE}.")
        await home.blocks.create("aria", "house", f"Its door opens with {VALUE}.")
        await home.agents.import_messages(
            "aria", [("user", f"imported {VALUE}"), ("assistant", VALUE)]
        )
        await home.archive.add("aria", f"A passage with {VALUE}.")
        await home.agents.ask("aria", f"My password is {later}.")
        await home.agents.ask("aria", "And now?")
        assert later.encode() in b"".join(model.requests[-1].messages)
        await home.keys.set("later", later)
        await home.agents.ask("aria", "And then?")
        sent = b"".join(wire for request in model.requests for wire in request.messages)
        last = b"".join(model.requests[-1].messages)
        assert VALUE.encode() not in sent
        assert later.encode() not in last
        assert b"My password is [redacted later]." in last
        for wire in model.requests[-1].messages:
            assert json.loads(wire)["role"] in ("system", "user", "assistant")
        for words in ("door", "imported", "passage", "password"):
            found = await home.search("aria", words, neighbours=2)
            assert "[redacted " in repr(found.hits)
            assert VALUE not in repr(found)
            assert later not in repr(found)


@pytest.mark.promise("X3")
async def test_progress_ids_of_calls_and_errors_hold_no_key(stored: Path):
    @tool(effects=ToolEffect("read"))
    def look(context: ToolContext) -> str:
        """Look."""
        context.progress(f"trying {VALUE}")
        return "seen"

    model = ScriptedModel([Reply("", (Call(f"id-{VALUE}", "look", "{}"),)), "done"])
    async with open_home(stored / "data", model, tools=[look]) as home:
        await home.agents.create("zoe")
        shown = [signal async for signal in home.agents.stream("zoe", "go")]
        assert "trying [redacted openai]" in repr(shown)
        _, entries = await home.turns.get(shown[-1].turn_id)
        assert VALUE not in repr((shown, entries, model.requests))
        calls_of = json.loads(model.requests[-1].messages[-2])["tool_calls"]
        assert [one["id"] for one in calls_of] == ["id-_redacted_openai"]
        with pytest.raises(NotFound, match=r"no agent named '\[redacted openai\]'") as caught:
            await home.agents.get(VALUE)
        assert VALUE not in repr(caught.value)


LINES = base64.encodebytes(b"user:" + 4 * VALUE.encode()).decode()
SPELLED = "".join(f"\\u{ord(char):04x}" for char in VALUE)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings that put what is stored into one engine or the other."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store.url": url}


@pytest.mark.promise("X3")
async def test_a_key_that_a_model_says_is_kept_and_shown_nowhere(
    tmp_path: Path, engine: dict[str, str]
):
    given: list[tuple[str, str]] = []

    @tool(effects=ToolEffect("read"))
    def note(words: str, spelled: str = "") -> str:
        """Take words down."""
        given.append((words, spelled))
        return "noted"

    @tool(ask=True)
    def pay(account: str) -> str:
        """Pay."""
        return account

    edit = json.dumps({"operation": "append", "label": "human", "content": f"Uses {VALUE}."})
    script = [
        calls(("block_edit", edit)),
        Reply(
            f"I will use {VALUE}.",
            (
                Call("call_a", "note", f'{{"words": "it is {VALUE}", "spelled": "{SPELLED}"}}'),
                Call("call_b", "note", json.dumps({"words": LINES})),
                Call("call_c", VALUE, "{}"),
            ),
            reasoning=f"The key must be {VALUE}",
            thought=json.dumps({"reasoning_details": f"{VALUE}!"}).encode(),
        ),
        Reply("", (Call("call_d", "pay", json.dumps({"account": VALUE})),)),
        f"It was {VALUE}, or {LINES}",
    ]
    model = ScriptedModel(script)
    async with open_home(tmp_path / "data", model, tools=[note, pay], settings=engine) as home:
        await home.keys.set("openai", VALUE)
        aria = await home.agents.create("aria")
        await home.blocks.create(aria, "human", "A person.", existing=True)
        shown = [signal async for signal in home.agents.stream(aria, "go")]
        assert shown[-1].kind == "parked"
        [asked] = await home.approvals.list()
        decided = [one async for one in home.approvals.stream_decision(asked, approved=True)]
        # What is recorded is what was run.
        put = "[redacted openai]"
        assert sorted(given) == [(f"dXNlcj{put}\n", ""), (f"it is {put}", put)]
        assert (await home.blocks.get(aria, "human")).block.text.endswith(f"Uses {put}.")
        assert decided[-1].data["text"].startswith(f"It was {put}, or")
        _, entries = await home.turns.get(shown[-1].turn_id)
        found = await home.search(aria, "key account uses")
        everything = [
            shown,
            decided,
            entries,
            found,
            await home.approvals.answered(),
            await home.notices.list(),
            await home.contexts.now(aria),
            await home.audit.list(),
            [request.messages for request in model.requests],
            [dict(request.thoughts) for request in model.requests],
        ]
    text = "".join(map(repr, everything))
    core = base64.b64encode(VALUE.encode()).decode()[:-4]
    for form in (VALUE, SPELLED, core, "".join(LINES.split())[8:40], LINES.split()[1]):
        assert form not in text
    assert text.count("[redacted openai]") > 10
    for file in (tmp_path / "data").rglob("*"):
        assert not file.is_file() or VALUE.encode() not in file.read_bytes(), file


@pytest.mark.promise("X3", "T5")
async def test_watchers_see_no_key_however_a_reply_is_cut(stored: Path):
    async with open_home(
        stored / "data", ScriptedModel([Reply(f"a{VALUE}b. Done", reasoning=f"so {VALUE}")])
    ) as home:
        await home.agents.create("zoe")
        shown = [signal async for signal in home.agents.stream("zoe", "go")]
        said = {
            kind: "".join(one.data["text"] for one in shown if one.kind == kind)
            for kind in ("text", "reasoning")
        }
        assert said == {
            "text": "a[redacted openai]b. Done",
            "reasoning": "so [redacted openai]",
        }
        assert VALUE[:12] not in repr(shown)


async def test_a_reply_without_a_key_stays_as_it_is(stored: Path):
    thought = b'{"reasoning_details":["caf\\u00e9"]}'
    arguments = '{ "word" : "caf\\u00e9" }'

    @tool(effects=ToolEffect("read"))
    def echo(word: str) -> str:
        """Say a word back."""
        return word

    model = ScriptedModel([Reply("", (Call("c", "echo", arguments),), thought=thought), "done"])
    async with open_home(stored / "data", model, tools=[echo]) as home:
        await home.agents.create("zoe")
        outcome = await home.agents.ask("zoe", "go")
        [kept] = model.requests[-1].thoughts.values()
        assert kept == thought
        _, entries = await home.turns.get(outcome.turn_id)
        assert any(json.dumps(arguments).encode() in one.body for one in entries)
