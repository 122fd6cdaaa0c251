"""A served home as operators run it: TLS, proxies, workers elsewhere, stops and restarts."""

from __future__ import annotations

import contextlib
import json
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx2
import pytest

from asterism.api.tls import TlsFiles
from asterism.errors import InvalidInput
from tests.certificates import write_certificate
from tests.e2e.command import EXECUTABLE, PATIENCE, Command, Installed, ModelServer


def address_of(server: Popen[str]) -> str:
    assert server.stderr is not None
    line = server.stderr.readline()
    found = re.search(r"https?://[\d.:]+\d", line)
    assert found, line
    return found[0]


def secret_of(command: Command) -> str:
    return (command.data / "api-token").read_text().strip()


def client_of(command: Command, url: str, **options: Any) -> httpx2.Client:
    headers = {"authorization": f"Bearer {secret_of(command)}"}
    return httpx2.Client(base_url=url, headers=headers, timeout=PATIENCE, **options)


def until(fulfilled: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not fulfilled():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- TLS and proxies -------------------------------------------------------------------------------


@pytest.mark.promise("X1")
def test_a_home_is_served_over_tls(asterism: Command, tmp_path: Path):
    certificate, key = write_certificate(tmp_path / "tls")
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with asterism.started("serve", "--port", "0", "--host", "127.0.0.1", *files) as server:
        url = address_of(server)
        assert url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(certificate))
        with client_of(asterism, url, verify=trusting) as client:
            assert client.get("/api/agents").status_code == 200
        plain = url.replace("https", "http")
        with pytest.raises(httpx2.HTTPError), client_of(asterism, plain) as client:
            client.get("/health")
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE) == 0


@pytest.mark.promise("X5")
def test_tls_files_that_cannot_be_used_are_refused_with_a_sentence(
    asterism: Command, tmp_path: Path
):
    certificate, key = write_certificate(tmp_path / "tls")
    other = write_certificate(tmp_path / "other")[1]
    expired, its_key = write_certificate(tmp_path / "expired", days=-1)
    _, locked = write_certificate(tmp_path / "locked", password=b"secret")
    missing = tmp_path / "nothing.pem"
    for files, told in (
        (("--tls-cert", str(certificate)), "api.tls_key is not"),
        (("--tls-key", str(key)), "api.tls_cert is not"),
        (("--tls-cert", str(missing), "--tls-key", str(key)), "cannot be read"),
        (("--tls-cert", str(key), "--tls-key", str(key)), "is not a certificate"),
        (("--tls-cert", str(certificate), "--tls-key", str(other)), "cannot be used for TLS"),
        (("--tls-cert", str(expired), "--tls-key", str(its_key)), "expired on"),
        (("--tls-cert", str(certificate), "--tls-key", str(locked)), "needs a password"),
    ):
        done = asterism.run("serve", "--port", "0", *files)
        assert done.returncode == 2, done.stderr
        assert told in done.stderr
        assert "Nothing was started." in done.stderr
    assert not asterism.data.exists()


def test_a_renewed_certificate_comes_into_use_and_a_broken_one_does_not(tmp_path: Path):
    certificate, key = write_certificate(tmp_path)
    files = TlsFiles(certificate, key)
    assert not files.read_again()

    def shown() -> bytes:
        """Return the certificate that a client is shown."""
        client = ssl.create_default_context()
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        sent, received = ssl.MemoryBIO(), ssl.MemoryBIO()
        asking = client.wrap_bio(received, sent)
        answering = files.context.wrap_bio(sent, received, server_side=True)
        for _ in range(4):
            for side in (asking, answering):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        found = asking.getpeercert(binary_form=True)
        assert found is not None
        return found

    def written() -> bytes:
        return ssl.PEM_cert_to_DER_cert(certificate.read_text())

    assert shown() == written()
    first = written()
    write_certificate(tmp_path)
    assert files.read_again()
    assert shown() == written() != first
    second = written()
    key.write_text("half of a file")
    with pytest.raises(InvalidInput):
        files.read_again()
    assert shown() == second


@pytest.mark.promise("X1")
def test_beyond_this_machine_needs_tls_or_a_proxy(asterism: Command):
    done = asterism.run("serve", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "other machines could read tokens" in done.stderr
    assert "--behind-proxy" in done.stderr
    assert not asterism.data.exists()


@pytest.mark.promise("X1")
def test_a_key_that_others_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    certificate, key = write_certificate(tmp_path / "tls")
    key.chmod(0o640)
    TlsFiles(certificate, key)
    assert not caplog.text
    key.chmod(0o604)
    TlsFiles(certificate, key)
    assert f'(mode 0604). Run "chmod 600 {key}"' in caplog.text


@pytest.mark.promise("X5", "O4")
def test_who_connects_and_is_silent_takes_no_file_of_the_home(asterism: Command, tmp_path: Path):
    certificate, key = write_certificate(tmp_path / "tls")
    files = ("--tls-cert", str(certificate), "--tls-key", str(key))
    asterism.ok("agent", "create", "aria")
    with (
        asterism.started("serve", "--port", "0", *files) as server,
        contextlib.ExitStack() as open_,
    ):
        url = address_of(server)
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (256, 256))
        port = int(url.rpartition(":")[2])
        for _ in range(600):
            open_.enter_context(socket.create_connection(("127.0.0.1", port)))
        trusting = ssl.create_default_context(cafile=str(certificate))
        with client_of(asterism, url, verify=trusting) as client:
            answer = client.post("/api/agents", json={"name": "bea"}, timeout=10)
            assert answer.status_code == 201
            assert client.get("/health", timeout=10).json()["status"] == "ok"
        assert [agent["name"] for agent in asterism.json("agent", "list")] == ["aria", "bea"]


@pytest.mark.promise("X1")
def test_what_a_proxy_says_is_believed_only_behind_one(asterism: Command):
    forwarded = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
    login_needs_tls = "__Host-asterism=ses_nothing"

    def refusal(*more: str) -> str:
        """Return what is said to a cookie that is for TLS alone."""
        with asterism.started("serve", "--port", "0", *more) as server:
            url = address_of(server)
            headers = {**forwarded, "cookie": login_needs_tls}
            answer = httpx2.get(f"{url}/api/agents", headers=headers, timeout=PATIENCE)
            assert answer.status_code == 401
            return answer.json()["detail"]

    # Without TLS that cookie is not even looked at.
    assert "This needs a token" in refusal()
    assert "This needs a token" not in refusal("--behind-proxy")


# -- in the background -----------------------------------------------------------------------------


@pytest.fixture
def background(installed: Installed) -> Generator[Installed, None, None]:
    yield installed
    installed.run("down")


@pytest.mark.promise("A8")
def test_a_home_in_the_background_is_served_on_this_machine(
    background: Installed, asterism: Command, model: ModelServer
):
    asterism.use(model)
    address = background.json("up")["address"]
    assert address.startswith("http://127.0.0.1:")
    status = asterism.json("status")
    assert status["address"] == address
    assert Path(status["token"]).read_text().startswith("ast_")
    assert f"{address}; the token is in {status['token']}" in asterism.ok("status")
    with client_of(asterism, address) as client:
        asterism.ok("agent", "create", "aria")
        answer = client.post("/api/agents/aria/ask", json={"text": "hello"})
        assert answer.json()["text"] == "answer to: hello"
        assert client.get("/api/agents", headers={"authorization": ""}).status_code == 401
    asterism.ok("down")
    assert asterism.json("status")["address"] is None


@pytest.mark.promise("A8")
def test_a_port_that_is_taken_is_another_for_up_unless_it_was_chosen(
    background: Installed, asterism: Command
):
    asterism.configure("")
    address = background.json("up")["address"]
    taken = int(address.rpartition(":")[2])
    second = Installed(background.place / "second")
    second.place.mkdir()
    try:
        assert int(second.json("up")["address"].rpartition(":")[2]) > taken
        second.ok("down")
        second.configure(f"[api]\nport = {taken}\n")
        done = second.run("up")
        assert done.returncode == 1
        assert f"127.0.0.1:{taken} cannot be listened at" in done.stderr
        second.configure("[api]\nbackground = false\n")
        assert second.json("up")["address"] is None
    finally:
        second.run("down")


# -- stopping --------------------------------------------------------------------------------------


class Stream:
    """A client of server-sent events, in a thread."""

    def __init__(self, client: httpx2.Client, path: str, after: str | None = None) -> None:
        self._client = client
        self._path = path
        self._headers = {"last-event-id": after} if after is not None else {}
        self.events: list[tuple[str | None, str, dict[str, Any]]] = []
        self.is_open = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        assert self.is_open.wait(PATIENCE)

    def _read(self) -> None:
        with (
            contextlib.suppress(httpx2.HTTPError),
            self._client.stream("GET", self._path, headers=self._headers) as answer,
        ):
            self.is_open.set()
            fields: dict[str, str] = {}
            for line in answer.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    data = json.loads(fields["data"])
                    self.events.append((fields.get("id"), fields["event"], data))
                    fields = {}

    def ended(self) -> list[str]:
        """Wait for its end and return the kinds of its events."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
        return [kind for _, kind, _ in self.events]

    @property
    def last_id(self) -> str | None:
        return next((event_id for event_id, _, _ in reversed(self.events) if event_id), None)


@pytest.fixture
def slow_model() -> Generator[ModelServer, None, None]:
    """A model that takes two seconds to answer."""
    with ModelServer(latency=2.0) as server:
        yield server


@pytest.mark.promise("O4")
def test_a_stop_tells_streams_to_come_again_and_finishes_what_is_asked(
    asterism: Command, slow_model: ModelServer
):
    asterism.use(slow_model, "[api]\ndrain = 0.5\n")
    asterism.ok("agent", "create", "aria")
    with asterism.started("serve", "--port", "0") as server:
        url = address_of(server)
        with client_of(asterism, url) as client, client_of(asterism, url) as watching:
            stream = Stream(watching, "/api/agents/aria/events")
            answers: list[httpx2.Response] = []
            asking = threading.Thread(
                target=lambda: answers.append(
                    client.post("/api/agents/aria/ask", json={"text": "one more"})
                )
            )
            asking.start()
            slow_model.wait_until_asked()
            server.send_signal(signal.SIGTERM)
            with client_of(asterism, url) as balancer:
                until(lambda: balancer.get("/ready").status_code == 503)
                assert balancer.get("/health").status_code == 200
            asking.join(PATIENCE)
            assert answers[0].json()["text"] == "answer to: one more"
            assert stream.ended()[-1] == "reconnect"
            assert stream.events[-1][0] is None
        assert server.wait(PATIENCE) == 0
    with (
        asterism.started("serve", "--port", "0") as server,
        client_of_started(asterism, server) as client,
    ):
        again = Stream(client, "/api/agents/aria/events", stream.last_id)
        until(lambda: "ended" in [kind for _, kind, _ in again.events])


@pytest.mark.promise("O4")
def test_what_is_not_finished_when_the_server_stops_is_told_so_and_goes_on(
    asterism: Command, stalled_model: ModelServer
):
    asterism.use(stalled_model)
    asterism.ok("agent", "create", "aria")
    with asterism.started("serve", "--port", "0") as server:
        with client_of(asterism, address_of(server)) as client:
            answers: list[httpx2.Response] = []
            asking = threading.Thread(
                target=lambda: answers.append(
                    client.post("/api/agents/aria/ask", json={"text": "still there?"})
                )
            )
            asking.start()
            stalled_model.wait_until_asked()
            server.send_signal(signal.SIGTERM)
            asking.join(PATIENCE * 2)
        assert answers[0].status_code == 503
        assert answers[0].headers["retry-after"] == "2"
        assert answers[0].json()["type"].endswith("stopping")
        assert server.wait(PATIENCE) == 0
    with asterism.started("serve", "--port", "0") as server:
        address_of(server)
        until(lambda: asterism.json("turn", "list")[0]["state"] == "done")
    assert len(asterism.json("turn", "list")) == 1


# -- API processes and workers ---------------------------------------------------------------------


def test_an_api_without_a_worker_needs_postgresql(asterism: Command):
    done = asterism.run("serve", "--no-worker")
    assert done.returncode == 2
    assert "store.url is not set" in done.stderr
    assert not asterism.data.exists()


@pytest.mark.postgres
@pytest.mark.promise("D2", "T5")
def test_an_api_process_streams_what_a_worker_says(asterism: Command, model: ModelServer):
    from asterism.testing.postgres import postgres_server

    with postgres_server().database() as url:
        asterism.use(model, f'[store]\nurl = "{url}"')
        asterism.ok("agent", "create", "aria")
        with (
            asterism.started("serve", "--port", "0", "--no-worker") as first,
            client_of_started(asterism, first) as client,
        ):
            accepted = client.post("/api/agents/aria/messages", json={"text": "anybody?"})
            turn = accepted.json()["turn_id"]
            assert state_of(client, turn) == "waiting"
            with asterism.started("worker"):
                until(lambda: state_of(client, turn) == "done")
                with (
                    asterism.started("serve", "--port", "0", "--no-worker") as second,
                    client_of_started(asterism, second) as other,
                ):
                    watching = Stream(other, "/api/agents/aria/events")
                    with client.stream(
                        "POST", "/api/agents/aria/stream", json={"text": "tell me a story"}
                    ) as answer:
                        said = "".join(
                            json.loads(line.removeprefix("data: "))["data"].get("text", "")
                            for line in answer.iter_lines()
                            if line.startswith("data: ") and '"kind":"text"' in line
                        )
                    assert said == "answer to: tell me a story"
                    until(lambda: "ended" in [kind for _, kind, _ in watching.events])
                    # The place in one process's stream is understood by the other.
                    again = Stream(client, "/api/agents/aria/events", watching.events[0][0])
                    until(lambda: "ended" in [kind for _, kind, _ in again.events])


def state_of(client: httpx2.Client, turn: str) -> str:
    return client.get(f"/api/turns/{turn}/outcome").json()["state"]


@contextlib.contextmanager
def client_of_started(command: Command, server: Popen[str]) -> Generator[httpx2.Client, None, None]:
    with client_of(command, address_of(server)) as client:
        yield client


@pytest.mark.promise("O4")
def test_whoever_has_just_connected_when_the_server_stops_is_answered(asterism: Command):
    asterism.configure('model = "demo:guide"\n[api]\ndrain = 0\n')
    with asterism.started("serve", "--port", "0") as server:
        host, port = address_of(server).removeprefix("http://").split(":")
        place = (host, int(port))
        with socket.create_connection(place, PATIENCE) as early:
            server.send_signal(signal.SIGTERM)
            until(lambda: not _listens(place))
            early.sendall(f"GET /health HTTP/1.1\r\nhost: {host}\r\n\r\n".encode())
            assert early.recv(4_096).startswith(b"HTTP/1.1 200")
        assert server.wait(PATIENCE) == 0


def _listens(place: tuple[str, int]) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(place, 1):
        return True
    return False


@pytest.mark.postgres
@pytest.mark.promise("O4", "D2")
def test_one_of_several_is_restarted_and_no_request_fails(asterism: Command, model: ModelServer):
    """Two API processes take connections from one socket, as a socket unit of systemd has it."""
    from asterism.testing.postgres import postgres_server

    with postgres_server().database() as url, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        address = "http://{}:{}".format(*listening.getsockname())
        asterism.use(model, f'[store]\nurl = "{url}"')
        asterism.ok("agent", "create", "aria")
        with handed_over(asterism, listening) as first, handed_over(asterism, listening) as second:
            for process in (first, second):
                assert address_of(process) == address
            statuses: list[int] = []
            done = threading.Event()

            def ask() -> None:
                while not done.is_set():
                    with client_of(asterism, address) as client:
                        statuses.append(client.get("/api/agents/aria").status_code)
                    done.wait(0.02)  # the processes that start have to get their turn

            asking = [threading.Thread(target=ask) for _ in range(3)]
            for thread in asking:
                thread.start()
            until(lambda: len(statuses) > 10)
            first.send_signal(signal.SIGTERM)
            assert first.wait(PATIENCE) == 0
            with handed_over(asterism, listening) as third:
                assert address_of(third) == address
                second.send_signal(signal.SIGTERM)
                assert second.wait(PATIENCE) == 0
                seen = len(statuses)
                until(lambda: len(statuses) > seen + 10)
                done.set()
                for thread in asking:
                    thread.join(PATIENCE)
            assert set(statuses) == {200}


@contextlib.contextmanager
def handed_over(command: Command, listening: socket.socket) -> Generator[Popen[str], None, None]:
    """Start an API process with a socket as systemd hands it over: as descriptor 3."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", _HAND_OVER, str(listening.fileno())),
            *(str(EXECUTABLE), "serve", "--no-worker"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=command.env,
        pass_fds=[listening.fileno()],
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


_HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"}
os.execv(sys.argv[2], sys.argv[2:])
"""


# -- what is observed ------------------------------------------------------------------------------


@pytest.mark.promise("D4")
def test_requests_are_counted_by_route_and_logged_with_their_id(asterism: Command):
    asterism.configure('[log]\nformat = "json"\nlevel = "info"\n')
    asterism.ok("agent", "create", "aria")
    with (
        asterism.started("serve", "--port", "0") as server,
        client_of_started(asterism, server) as client,
    ):
        shown = client.get("/api/agents/aria")
        assert client.get("/api/agents/nobody").status_code == 404
        assert client.get("/api/nothing/at/all").status_code == 404
        assert client.get("/openai/v1/models/aria").status_code == 200
        metrics = client.get("/metrics").text
    route = 'method="GET",route="/api/agents/{agent}"'
    assert f'asterism_http_requests_total{{{route},status="200"}} 1.0' in metrics
    assert f'asterism_http_requests_total{{{route},status="404"}} 1.0' in metrics
    assert f"asterism_http_request_seconds_count{{{route}}} 2.0" in metrics
    assert 'route="/openai/v1/models/{model:path}"' in metrics
    assert "nothing/at/all" not in metrics
    lines = [json.loads(line) for line in (asterism.data / "asterism.log").read_text().splitlines()]
    own = [line for line in lines if line.get("request_id") == shown.headers["x-request-id"]]
    assert re.match(r"GET /api/agents/\{agent\}: 200 in [\d.]+ ms$", own[0]["message"])
