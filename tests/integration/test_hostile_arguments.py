"""Every verb of a home, called with what no program should give it: told in a sentence, or done."""

# apsw's stubs use a type that they do not define, so that all its methods count as partly unknown.
# That all writes are done shows nowhere else.
# pyright: reportUnknownMemberType=false, reportPrivateUsage=false

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import apsw
import pytest

from asterism.app.session import Arguments
from asterism.errors import AsterismError, InvalidInput
from asterism.memory.forgetting import Forgetting
from asterism.testing.postgres import postgres_server
from tests.hostile import HOSTILE, OF_ANY_ENGINE, WAITING, Scene
from tests.scenes import open_home

MAX_SENTENCE = 4_001


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Settings that put what is stored into one engine or the other."""
    if request.param == "sqlite":
        yield {}
        return
    with postgres_server().database() as url:
        yield {"store.url": url}


@pytest.mark.promise("X5")
async def test_hostile_arguments_are_told_in_a_sentence_and_change_nothing(
    tmp_path: Path, engine: dict[str, str]
):
    made = refused = 0
    left = False
    faults: list[str] = []
    async with open_home(tmp_path / "data", work=False, settings=engine) as home:
        scene = await Scene.make(home)
        place = tmp_path / "data" / "asterism.db"
        with closing(apsw.Connection(str(place) if place.exists() else ":memory:")) as watch:
            changes = _changes(watch)
            for attempt in scene.attempts(OF_ANY_ENGINE if engine else tuple(HOSTILE)):
                made += 1
                if left:
                    # What the call before has written may come after it was left.
                    await home._engine.database.write(lambda tx: tx.one("SELECT 1"))
                left = attempt.verb in WAITING
                before = changes()
                try:
                    await attempt.run()
                except AsterismError as error:
                    refused += 1
                    if changes() != before:
                        faults.append(f"{attempt.told} was refused and changed something")
                    if len(error.message) < 20 or not error.message.endswith((".", "?")):
                        faults.append(f"{attempt.told}: {error.message!r:.200} is no sentence")
                    if len(error.message) > MAX_SENTENCE:
                        faults.append(f"{attempt.told}: {len(error.message):,} characters")
                except Exception as error:  # noqa: BLE001 - this is what must not happen
                    faults.append(f"{attempt.told}: {type(error).__name__}: {str(error)[:80]}")
    assert not faults, "\n".join(faults[:40])
    assert made > 3_000
    assert refused > 2_500


def _changes(watch: apsw.Connection) -> Callable[[], Any]:
    """Return what tells commits of others to a database apart."""

    def version() -> Any:
        return cast("Any", watch).execute("PRAGMA data_version").fetchall()

    return version


@pytest.mark.promise("X5")
async def test_the_reason_names_the_verb_the_argument_and_what_is_needed(tmp_path: Path):
    async with open_home(tmp_path / "data", work=False) as home:
        await home.agents.create("aria")
        wrong: Any = b"human"
        with pytest.raises(
            InvalidInput,
            match=r"block\.get takes label as str, and was given a value of type bytes\. Nothing",
        ):
            await home.blocks.get("aria", wrong)
        with pytest.raises(InvalidInput, match=r"reason of home\.halt holds characters that are"):
            await home.halts.halt("\ud800")
        with pytest.raises(InvalidInput, match=r"version of .* a number of more than 64 bits"):
            await home.blocks.at("aria", "human", version=10**30)
        since_1970: Any = 1_715_000_000_000
        with pytest.raises(InvalidInput, match=r"moment as datetime, and was given"):
            await home.memory.as_of("aria", since_1970)
        with pytest.raises(InvalidInput, match=r"tags .* Sequence\[str\], and was given"):
            await home.archive.add("aria", "text", tags="house")
        several: Any = home.blocks.get
        with pytest.raises(TypeError, match="positional arguments"):
            await several("aria", "human", "more")
        with pytest.raises(TypeError, match="unexpected keyword"):
            await several("aria", "human", colour="red")


async def test_every_type_that_verbs_declare_is_known(tmp_path: Path):
    async with open_home(tmp_path / "data", work=False) as home:
        scene = await Scene.make(home)
        for verb, method in scene.verbs():
            Arguments(getattr(method, "__wrapped__", method), verb).check((), {})


@pytest.mark.promise("X5")
async def test_what_is_no_text_and_no_number_is_told_where_verbs_look_deeper(tmp_path: Path):
    many = "9" * 5_000
    async with open_home(tmp_path / "data", work=False) as home:
        names: list[Any] = [[], {}, {"a"}, None, 5, b"x"]
        for odd in names:
            with pytest.raises(InvalidInput, match="takes name as str"):
                home.keys.has(odd)
        texts: list[Any] = [None, 5, b"secret"]
        for odd in texts:
            with pytest.raises(InvalidInput, match="must be text"):
                await home.memory.forget(Forgetting(texts=(odd,)))
        for ref in (f"home:{many}", "home:99999999999999999999", many):
            with pytest.raises(InvalidInput, match="names no event"):
                await home.audit.get(ref)
            with pytest.raises(InvalidInput, match="names no event"):
                await home.audit.verify(head=f"{ref}:00")


async def test_a_value_that_reads_like_the_end_of_a_message_is_quoted_whole(tmp_path: Path):
    given = "five. Nothing was changed. Really"
    schema = {"kind": "map", "fields": [{"name": "age", "type": "number", "default": given}]}
    async with open_home(tmp_path, work=False) as home:
        await home.agents.create("aria")
        with pytest.raises(InvalidInput) as caught:
            await home.blocks.create("aria", "facts", schema=schema)
    assert repr(given) in caught.value.message
