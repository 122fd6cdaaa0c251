"""The tool `web`: pages from a server on this machine, and all the ways to be led astray."""

import asyncio
import gzip
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web as server

from asterism import Asterism, TurnState
from asterism.errors import ToolError
from asterism.store import journal
from asterism.testing.clock import ManualClock
from asterism.tools.addresses import AllowedHosts, checked_url, is_public, public_resolver
from asterism.tools.builtin.web import decode_page, web
from asterism.types.turns import EntryKind
from asterism.types.values import ip_of
from tests.scenes import open_home

Serve = Callable[[server.Request], Awaitable[server.StreamResponse]]

PAGE = """<!doctype html><html><head><title>Tea &amp; more</title><style>p {}</style>
<script>document.write("<p>never</p>")</script></head><body><h1>Tea</h1>
<p>Green <b>tea</b> is <a href="/green?x=1">good</a>.</p><ul><li>one<li>two</ul>
<table><tr><th>A<th>B<tr><td>1<td>2</table><p hidden>secret</p>
<img alt="dot" src="data:image/png;base64,AAAA"></body></html>"""


@dataclass
class Site:
    """A server on this machine, and what it was asked."""

    host: str = "127.0.0.1"
    port: int = 0
    asked: list[str] = field(default_factory=list[str])
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    pages: dict[str, Serve] = field(default_factory=dict[str, Serve])

    def url(self, path: str = "/") -> str:
        return f"http://{self.host}:{self.port}{path}"

    def text(self, path: str, text: str | bytes, kind: str = "text/html", **headers: str) -> str:
        body = text.encode() if isinstance(text, str) else text

        async def page(request: server.Request) -> server.Response:
            del request
            return server.Response(body=body, headers={"Content-Type": kind, **headers})

        self.pages[path] = page
        return self.url(path)

    def moved(self, path: str, to: str) -> str:
        async def page(request: server.Request) -> server.Response:
            del request
            return server.Response(status=302, headers={"Location": to})

        self.pages[path] = page
        return self.url(path)


@asynccontextmanager
async def serving(host: str = "127.0.0.1") -> AsyncGenerator[Site]:
    site = Site(host)

    async def answer(request: server.Request) -> server.StreamResponse:
        site.asked.append(request.path_qs)
        site.headers.append(dict(request.headers))
        page = site.pages.get(request.path)
        return await page(request) if page else server.Response(status=404, text="no")

    runner = server.AppRunner(_app(answer), shutdown_timeout=0.1)
    await runner.setup()
    listening = server.TCPSite(runner, "127.0.0.1", 0)
    await listening.start()
    site.port = runner.addresses[0][1]
    try:
        yield site
    finally:
        await runner.cleanup()


def _app(answer: Serve) -> server.Application:
    app = server.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as found:
        yield found


@dataclass
class Scene:
    home: Asterism
    site: Site
    agent: str = "aria"
    others: int = 0

    async def call(self, **arguments: Any) -> str:
        """Have the agent call `web`; return the call's result."""
        text = f"[[call:web {orjson.dumps(arguments).decode()}]]"
        outcome = await self.home.agents.ask(self.agent, text)
        assert outcome.state is TurnState.DONE, outcome.text
        record = (await self.home.turns.list(self.agent))[0]
        entries = await self.home.database.read(lambda tx: journal.entries_of(tx, record))
        (result,) = [entry for entry in entries if entry.kind is EntryKind.RESULT]
        return orjson.loads(result.body)["content"]

    async def fetch(self, url: str, **more: Any) -> str:
        return await self.call(operation="fetch", query=url, **more)

    async def fetch_first(self, url: str, **more: Any) -> str:
        """Have an agent fetch a page that has read nothing before, so that nobody is asked."""
        self.others += 1
        self.agent = f"other{self.others}"
        await self.home.agents.create(self.agent)
        return await self.fetch(url, **more)


@asynccontextmanager
async def scene_with(place: Path, site: Site, **settings: Any) -> AsyncGenerator[Scene]:
    wanted = {
        "web": {"allow": [f"127.0.0.1:{site.port}"], **settings},
        "secrets": {"key_file": str(place / "master.key")},
    }
    async with open_home(place, tools=[web], clock=ManualClock(), settings=wanted) as home:
        await home.agents.create("aria")
        yield Scene(home, site)


@pytest.fixture
async def scene(tmp_path: Path, site: Site) -> AsyncIterator[Scene]:
    async with scene_with(tmp_path, site) as found:
        yield found


# -- pages -----------------------------------------------------------------------------------------


@pytest.mark.promise("S1")
async def test_a_page_is_read_as_markdown(scene: Scene):
    found = await scene.fetch(scene.site.text("/tea", PAGE))
    assert found.startswith(f"Tea & more\n{scene.site.url('/tea')}\n\n# Tea")
    assert f"Green **tea** is [good]({scene.site.url('/green?x=1')})." in found
    assert "- one\n- two" in found
    assert "| A" in found
    for absent in ("never", "secret", "base64", "p {}"):
        assert absent not in found


async def test_a_page_is_shown_as_it_is_asked_for(scene: Scene):
    url = scene.site.text("/tea", PAGE)
    assert "<h1>Tea</h1>" in await scene.fetch(url, format="html")
    plain = await scene.fetch(url, format="Text")
    assert "Green tea is good" in plain
    assert "#" not in plain
    found = await scene.fetch_first(scene.site.text("/j", '{"a": 1}', "application/json"))
    assert found == f'{scene.site.url("/j")}\n\n{{"a": 1}}'


@pytest.mark.promise("S1")
async def test_a_long_page_is_read_in_parts_and_fetched_once(scene: Scene):
    lines = "".join(f"<p>line {number} {'x' * 90}</p>" for number in range(250))
    url = scene.site.text("/long", lines)
    first = await scene.fetch(url)
    place = int(first.rpartition("continue_from ")[2].rstrip(".)"))
    assert 5_000 < place <= 10_000
    second = await scene.fetch(url, continue_from=place)
    last = await scene.call(operation="fetch", query="")
    both = first + second + last
    assert [f"line {n} " for n in range(250) if f"line {n} " not in both] == []
    assert scene.site.asked == ["/long"]
    beyond = await scene.fetch(url, continue_from=99_999_999)
    assert beyond.startswith("Error: ")
    assert "continue_from from 0 to" in beyond


async def test_a_page_is_kept_for_five_minutes(scene: Scene, tmp_path: Path):
    clock = ManualClock()
    wanted = {"web": {"allow": [f"127.0.0.1:{scene.site.port}"]}}
    async with open_home(tmp_path / "b", tools=[web], clock=clock, settings=wanted) as home:
        await home.agents.create("aria")
        other = Scene(home, scene.site)
        url = scene.site.text("/tea", "<p>one</p>")
        await other.fetch(url)
        clock.forward(seconds=299)
        scene.site.text("/tea", "<p>two</p>")
        assert "one" in await other.fetch(url)
        clock.forward(seconds=2)
        assert "two" in await other.fetch(url)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"op": "fetch", "url": "{}"}, "hello"),
        ({"operation": "FETCH", "query": "{}", "format": "markdown", "limit": None}, "hello"),
        ({"operation": "fetch", "query": "{}", "continue_from": None, "format": None}, "hello"),
    ],
)
async def test_other_spellings_are_taken(scene: Scene, arguments: dict[str, Any], said: str):
    url = scene.site.text("/hello", "<p>hello</p>")
    given = {key: url if one == "{}" else one for key, one in arguments.items()}
    assert said in await scene.call(**given)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("grün".encode("latin-1"), "text/html; charset=iso-8859-1", "grün"),
        ("grün".encode(), "text/html", "grün"),
        ("grün".encode("cp1252"), "text/html; charset=nonsense", "grün"),
        ("grün".encode("utf-16"), "text/plain", "grün"),
        (b"<meta charset=koi8-r>" + "да".encode("koi8-r"), "text/html", "да"),
        (b"x" * 100, "text/html; charset=base64", "xxx"),
    ],
)
async def test_charsets_are_read(scene: Scene, body: bytes, kind: str, text: str):
    assert text in await scene.fetch(scene.site.text("/c", body, kind))


def test_no_bytes_are_an_error():
    for declared in (None, "utf-7", "idna", "hex", "unicode_escape", "undefined", "\0"):
        assert isinstance(decode_page(b"\xff\xfe\x00\x80abc\\x", declared), str)


# -- limits ----------------------------------------------------------------------------------------


@pytest.mark.promise("S1")
async def test_a_bomb_is_not_unpacked(scene: Scene):
    bomb = gzip.compress(b"a" * 200_000_000, 9)
    found = await scene.fetch(
        scene.site.text("/bomb", bomb, "text/plain", **{"Content-Encoding": "gzip"})
    )
    assert "of 5,000,000 characters" in found


async def test_more_than_five_megabytes_are_not_read(scene: Scene):
    sent = 0

    async def endless(request: server.Request) -> server.StreamResponse:
        nonlocal sent
        response = server.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        for _ in range(2_000):
            await response.write(b"b" * 100_000)
            sent += 100_000
        return response

    scene.site.pages["/endless"] = endless
    assert "of 5,000,000 characters" in await scene.fetch(scene.site.url("/endless"))
    assert sent < 100_000_000


async def test_a_server_that_hangs_is_given_up(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("asterism.tools.builtin.web._MAX_SECONDS", 0.2)

    async def hang(request: server.Request) -> server.Response:
        await asyncio.sleep(30)
        return server.Response()

    scene.site.pages["/hang"] = hang
    found = await scene.fetch(scene.site.url("/hang"))
    assert found == ("Error: 127.0.0.1 did not answer within 0.2 s. Try another page, or later.")


@pytest.mark.parametrize("kind", ["image/png", "application/pdf", "application/octet-stream"])
async def test_what_is_no_text_is_refused(scene: Scene, kind: str):
    found = await scene.fetch(scene.site.text("/p", b"\x89PNG", kind))
    assert f"is {kind}, which cannot be read as text" in found


@pytest.mark.parametrize(
    ("status", "said"), [(404, "answered with 404"), (500, "answered with 500")]
)
async def test_errors_of_servers_are_told(scene: Scene, status: int, said: str):
    async def fail(request: server.Request) -> server.Response:
        del request
        return server.Response(status=status)

    scene.site.pages["/f"] = fail
    assert said in await scene.fetch(scene.site.url("/f"))


async def test_what_is_broken_is_told(scene: Scene):
    broken = scene.site.text("/b", b"no gzip", "text/plain", **{"Content-Encoding": "gzip"})
    assert "could not be fetched" in await scene.fetch(broken)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        gone = unused.getsockname()[1]
    assert "private network" in await scene.fetch_first(f"http://127.0.0.1:{gone}/")


# -- addresses -------------------------------------------------------------------------------------

AT_HOME = [
    "127.0.0.1",
    "127.0.0.1.",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0x7f.0.0.1",
    "0177.0.0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.169.254.",
    "0xa9fea9fe",
    "100.64.0.1",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "239.255.255.250",
    "255.255.255.255",
    "168.63.129.16",
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:a9fe:a9fe]",
    "[::127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a00:1]",
    "[2002:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[fe80::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fec0::1]",
    "[ff02::1]",
    "[2001:db8::1]",
]


@pytest.mark.promise("S1", "S4")
@pytest.mark.parametrize("host", AT_HOME)
def test_nothing_at_home_is_asked(host: str):
    with pytest.raises(ToolError, match="private network"):
        checked_url(f"http://{host}/latest/meta-data", AllowedHosts())
    address = ip_of(host)
    assert address is not None
    assert not is_public(address)


@pytest.mark.parametrize("host", ["8.8.8.8", "1.1.1.1", "[2606:4700::1111]", "93.184.216.34"])
def test_the_open_internet_is_asked(host: str):
    assert checked_url(f"https://{host}/x#part", AllowedHosts()).fragment == ""


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "javascript:alert(1)",
        "http://",
        "http://user:pw@example.org/",
        "http://example.org@127.0.0.1/",
        "http://exa mple.org/",
        "http://[::1",
        "http://example.org:99999/",
        "https://" + "a" * 300 + ".org/",
        "",
    ],
)
def test_what_is_no_address_of_a_page_is_refused(address: str):
    with pytest.raises(ToolError):
        checked_url(address, AllowedHosts())


async def test_a_name_that_leads_home_is_refused(scene: Scene):
    for host in ("localhost", "localhost.", "LOCALHOST"):
        found = await scene.fetch_first(f"http://{host}:{scene.site.port}/")
        assert "is an address of a private network, which web does not contact" in found
    assert scene.site.asked == []


@pytest.mark.promise("S4")
async def test_every_address_of_a_name_is_looked_at_and_it_is_resolved_once(
    site: Site, monkeypatch: pytest.MonkeyPatch
):
    asked: list[str] = []
    answers = [["93.184.216.34", "127.0.0.1"], ["93.184.216.34"], ["::ffff:10.0.0.1"]]

    async def lookup(host: str, port: int, **given: Any) -> list[Any]:
        asked.append(host)
        there = answers[len(asked) - 1]
        family = {4: socket.AF_INET, 6: socket.AF_INET6}
        return [
            (family[ip_address(one).version], socket.SOCK_STREAM, 6, "", (one, port))
            for one in there
        ]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup)
    with pytest.raises(ToolError, match="private network"):
        await public_resolver(AllowedHosts()).resolve("rebind.example", site.port)
    found = await public_resolver(AllowedHosts()).resolve("open.example", 443)
    assert [(one["host"], one["flags"]) for one in found] == [
        ("93.184.216.34", socket.AI_NUMERICHOST)
    ]
    with pytest.raises(ToolError, match="private network"):
        await public_resolver(AllowedHosts()).resolve("mapped.example", 443)
    assert len(asked) == len(answers)


@pytest.mark.promise("S4")
async def test_redirects_are_checked_hop_by_hop(scene: Scene):
    async with serving() as inner:
        inner.text("/admin", "the keys")
        for target in (
            inner.url("/admin"),
            f"http://0x7f.1:{inner.port}/admin",
            f"http://localhost:{inner.port}/admin",
            "http://169.254.169.254/latest/",
            "file:///etc/passwd",
        ):
            found = await scene.fetch(scene.site.moved("/to", target))
            assert found.startswith("Error: "), target
            assert "the keys" not in found
        assert inner.asked == []


async def test_redirects_end(scene: Scene):
    assert "hello" in await scene.fetch(
        scene.site.moved("/a", scene.site.text("/hello", "<p>hello</p>"))
    )
    assert "hello" in await scene.fetch_first(scene.site.moved("/relative", "/hello"))
    assert "more than 5 redirects" in await scene.fetch_first(scene.site.moved("/loop", "/loop"))


POLICIES = """
[[policy]]
name = "closed"
verdict = "{verdict}"
effects = ["fetch"]
hosts = ["localhost"]
reason = "{reason}"
"""


@pytest.mark.promise("X6", "M10")
@pytest.mark.parametrize(
    ("verdict", "reason", "said"),
    [
        ("deny", "that is closed", "which is not allowed: that is closed"),
        ("ask", "", "was not followed, since policy 'closed' requires an approval"),
    ],
)
async def test_policies_are_asked_about_redirects(
    tmp_path: Path, site: Site, verdict: str, reason: str, said: str
):
    (tmp_path / "authorizations.toml").write_text(POLICIES.format(verdict=verdict, reason=reason))
    async with serving("localhost") as other:
        allow = [f"{one.host}:{one.port}" for one in (site, other)]
        async with scene_with(tmp_path, site, allow=allow) as scene:
            secret = other.text("/secret", "the page")
            again = f"http://LocalHost.:{other.port}/secret"
            for number, target in enumerate((secret, again, secret.removeprefix("http:"))):
                # By way of another page of the same host, too.
                through = site.moved(f"/{number}/b", target)
                for start in (through, site.moved(f"/{number}/a", f"/{number}/b")):
                    found = await scene.fetch_first(start)
                    assert found.startswith("Error: "), target
                    assert said in found
                    assert secret in found
            assert other.asked == []
            assert "hello" in await scene.fetch_first(
                site.moved("/c", site.text("/hello", "<p>hello</p>"))
            )


@pytest.mark.promise("X6")
async def test_a_page_that_was_kept_is_not_shown_against_a_new_policy(tmp_path: Path, site: Site):
    async with serving("localhost") as other:
        allow = [f"{one.host}:{one.port}" for one in (site, other)]
        start = site.moved("/to", other.text("/page", "<p>the page</p>"))
        async with scene_with(tmp_path, site, allow=allow) as scene:
            assert "the page" in await scene.fetch(start)
        denied = POLICIES.format(verdict="deny", reason="closed")
        other_home = tmp_path / "b"
        other_home.mkdir()
        (other_home / "authorizations.toml").write_text(denied)
        async with scene_with(other_home, site, allow=allow) as scene:
            assert "which is not allowed" in await scene.fetch(start)
        assert other.asked == ["/page"]


async def test_who_was_asked_about_a_page_is_not_asked_again_within_its_host(
    tmp_path: Path, site: Site
):
    denied = POLICIES.format(verdict="ask", reason="").replace("localhost", "127.0.0.1")
    (tmp_path / "authorizations.toml").write_text(denied)
    async with scene_with(tmp_path, site) as scene:
        site.text("/hello", "<p>hello</p>")
        call = orjson.dumps({"operation": "fetch", "query": site.moved("/a", "/hello")}).decode()
        parked = await scene.home.agents.ask("aria", f"[[call:web {call}]]")
        assert parked.state is TurnState.PARKED
        (question,) = await scene.home.approvals.list()
        await scene.home.turns.wait(await scene.home.approvals.decide(question.id, approved=True))
        assert site.asked == ["/a", "/hello"]


@pytest.mark.promise("X6")
async def test_a_search_engine_that_leads_elsewhere_is_asked_about(tmp_path: Path, site: Site):
    denied = POLICIES.format(verdict="deny", reason="closed").replace("localhost", "*.example")
    (tmp_path / "authorizations.toml").write_text(denied)
    site.moved("/search", "https://other.example/search")
    given = {"search": "searxng", "search_url": site.url("")}
    async with scene_with(tmp_path, site, allow=[], **given) as scene:
        found = await scene.call(operation="search", query="tea")
    assert "which is not allowed: closed" in found


@pytest.mark.promise("S4")
async def test_what_was_fetched_is_of_the_web(scene: Scene):
    await scene.fetch(scene.site.text("/tea", PAGE))
    record = (await scene.home.turns.list("aria"))[0]
    entries = await scene.home.database.read(lambda tx: journal.entries_of(tx, record))
    (result,) = [entry for entry in entries if entry.kind is EntryKind.RESULT]
    assert orjson.loads(result.meta or "{}")["trust_levels"] == ["web"]
    (effect,) = web.effects(web.read('{"operation": "fetch", "query": "https://a.example/x?y=1"}'))
    assert (effect.kind.value, effect.hosts) == ("fetch", ("https://a.example/x?y=1",))


# -- search ----------------------------------------------------------------------------------------
# The answers below are written from what each engine publishes of its API, not recorded from one.

HITS = [{"title": "Tea", "url": "https://tea.example/", "content": "All about  tea."}]


@pytest.mark.promise("S1")
@pytest.mark.parametrize(
    ("engine", "path", "answer", "header"),
    [
        ("searxng", "/search", {"query": "tea", "results": HITS}, ("Authorization", "Bearer k")),
        (
            "brave",
            "/web/search",
            {"type": "search", "web": {"results": [{**HITS[0], "description": "All about tea."}]}},
            ("X-Subscription-Token", "k"),
        ),
        (
            "kagi",
            "/search",
            {
                "meta": {},
                "data": [
                    {
                        "t": 0,
                        "title": "Tea",
                        "url": "https://tea.example/",
                        "snippet": "All about tea.",
                    },
                    {"t": 1, "list": ["green tea"]},
                ],
            },
            ("Authorization", "Bot k"),
        ),
    ],
)
async def test_the_web_is_searched(
    tmp_path: Path, site: Site, engine: str, path: str, answer: Any, header: tuple[str, str]
):
    site.text(path, orjson.dumps(answer), "application/json")
    given = {"search": engine, "search_url": site.url("").rstrip("/"), "search_key": "k"}
    async with scene_with(tmp_path, site, allow=[], **given) as scene:
        found = await scene.call(operation="search", query="green tea & cake", limit=3)
    assert found == "1. Tea\n   https://tea.example/\n   All about tea."
    assert "q=green+tea+%26+cake" in site.asked[0]
    assert site.headers[0][header[0]] == header[1]


async def test_any_engine_can_be_described(tmp_path: Path, site: Site):
    site.text(
        "/find",
        orjson.dumps({"items": [{"name": "T", "link": "https://t.example/"}]}),
        "text/plain",
    )
    url = site.url("/find?words={query}&n={limit}")
    async with scene_with(tmp_path, site, search="json", search_url=url) as scene:
        assert await scene.call(op="search", q="a b") == "1. T\n   https://t.example/"
        assert site.asked == ["/find?words=a%20b&n=10"]
        site.text("/find", "<html>", "text/html")
        assert "did not answer with JSON" in await scene.call(op="search", q="c")
        site.text("/find", "[]", "application/json")
        assert (await scene.call(op="search", q="d")).startswith("Nothing was found.")
        assert "What should be searched for?" in await scene.call(op="search", q=" ")


async def test_without_an_engine_it_is_said_how(scene: Scene):
    found = await scene.call(operation="search", query="tea")
    assert "no engine is set" in found
    assert "[web] in asterism.toml" in found


async def test_the_key_can_be_a_stored_one(tmp_path: Path, site: Site):
    site.text("/search", orjson.dumps({"results": HITS}), "application/json")
    given = {"search": "searxng", "search_url": site.url(""), "search_key": "secret:FINDER"}
    async with scene_with(tmp_path, site, allow=[], **given) as scene:
        missing = await scene.call(operation="search", query="tea")
        assert missing.startswith("Error: ")
        assert "FINDER" in missing
        await scene.home.keys.set("FINDER", "a-long-stored-key")
        assert "tea.example" in await scene.call(operation="search", query="tea")
    assert site.headers[0]["Authorization"] == "Bearer a-long-stored-key"


async def test_a_key_is_not_sent_along_to_another_host(tmp_path: Path, site: Site):
    async with serving() as other:
        other.text("/search", orjson.dumps({"results": HITS}), "application/json")
        site.moved("/search", other.url("/search"))
        given = {"search": "searxng", "search_url": site.url(""), "search_key": "k"}
        async with scene_with(tmp_path, site, allow=[], **given) as scene:
            found = await scene.call(operation="search", query="tea")
        assert "private network" in found
        assert other.asked == []
