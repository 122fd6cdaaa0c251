"""The first start and `asterism setup`, at a terminal and without one."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import socket
import stat
import subprocess
import threading
import time
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from asterism.models.embedded import download, weights
from asterism.models.embedded.weights import manifest
from tests import tiny_weights as tiny
from tests.e2e.command import EXECUTABLE, TRACEBACK, Command, Installed
from tests.file_server import FileServer

CTRL_C, CTRL_D = "\x03", "\x04"


class Ollama(BaseHTTPRequestHandler):
    """The two pages of Ollama's published interface that are needed, with made-up content."""

    def do_GET(self) -> None:
        assert self.path == "/api/tags"
        models = [{"name": "llama3.2:latest", "size": 2019393189}, {"name": "qwen3:8b"}]
        self._say("application/json", json.dumps({"models": models}))

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        self.rfile.read(int(self.headers["Content-Length"]))
        choice: dict[str, Any] = {"index": 0, "delta": {"content": "Moo, says llama."}}
        last: dict[str, Any] = {"index": 0, "delta": {}, "finish_reason": "stop"}
        events = [json.dumps({"choices": [one]}) for one in (choice, last)] + ["[DONE]"]
        self._say("text/event-stream", "".join(f"data: {event}\n\n" for event in events))

    def _say(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def ollama() -> Generator[str, None, None]:
    """Serve a made-up Ollama, and yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ollama)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def closed() -> str:
    """An address on loopback where nobody answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture
def person(asterism: Command, closed: str) -> Command:
    """The command for somebody who may be asked, on a machine that is offline."""
    del asterism.env["ASTERISM_NONINTERACTIVE"]
    asterism.env |= {"PIP_NO_INDEX": "1", "PIP_INDEX_URL": closed, "HF_ENDPOINT": closed}
    return asterism


@pytest.fixture
def hasty(person: Command, tmp_path: Path) -> None:
    """Let what cannot be fetched be tried again at once, and not after seconds."""
    place = tmp_path / "hasty"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'pip' not in sys.orig_argv:\n"
        "    from asterism.models.embedded import download\n"
        "    download.FIRST_PAUSE = 0.01\n"
    )
    usual = person.env.get("PYTHONPATH")
    person.env["PYTHONPATH"] = os.pathsep.join([str(place), *([usual] if usual else [])])


def configured(asterism: Command) -> dict[str, Any]:
    return tomllib.loads((asterism.data / "asterism.toml").read_text("utf-8"))


def put_weights(asterism: Command, name: str) -> None:
    """Put the weights of the manifest on the shelf as a pull leaves them, with a hole inside."""
    known, shelf = manifest()[name], Path(asterism.env["ASTERISM_MODELS"])
    shelf.mkdir()
    path = shelf / known.file
    with path.open("wb") as file:
        file.truncate(known.size)
    note = {"name": name, "sha256": known.sha256, "size": known.size, "own": False}
    note |= {"mtime_ns": path.stat().st_mtime_ns, "licence": "", "about": "", "window": 0}
    (shelf / f"{known.file}.json").write_text(json.dumps(note))


# -- the first start -----------------------------------------------------------------------------


@pytest.mark.promise("D1")
def test_a_server_on_this_machine_is_proposed_and_answers(person: Command):
    with ollama() as address:
        person.env["ASTERISM_SERVERS"] = f"ollama={address}"
        with person.terminal() as terminal:
            terminal.expect(f"Found http://{address}: use ollama:llama3.2:latest")
            terminal.expect("[Y/n]")
            terminal.type("")
            terminal.expect("aster · ollama:llama3.2:latest")
            terminal.expect("› ")
            terminal.type("hello")
            terminal.expect("Moo, says llama.")
            terminal.expect("› ")
            terminal.press(CTRL_D)
            assert terminal.ended() == 0
        assert configured(person) == {
            "model": "ollama:llama3.2:latest",
            "models": {"ollama": {"base_url": f"http://{address}/v1"}},
        }
        with person.terminal() as terminal:
            terminal.expect("› ")
            assert "Found" not in terminal.shown
        history = (person.data / "chat-history").read_text("utf-8")
        assert history.split() == ["hello"]


def test_a_key_is_proposed_and_never_shown_or_stored(person: Command):
    person.env |= {"OPENAI_API_KEY": "sk-hunter2", "GROQ_API_KEY": "sk-hunter2"}
    with person.terminal(columns=60) as terminal:
        terminal.expect("Also available here: groq:openai/gpt-oss-120b")
        terminal.expect("Found OPENAI_API_KEY: use openai:gpt-4.1-mini")
        terminal.expect("[Y/n]")
        terminal.type("perhaps")
        terminal.expect('Answer "y" or "n"')
        terminal.expect("[Y/n]")
        terminal.type("yes")
        terminal.expect("aster · openai:gpt-4.1-mini")
        terminal.expect("› ")
        assert "hunter2" not in terminal.shown
    assert configured(person) == {"model": "openai:gpt-4.1-mini"}


@pytest.mark.promise("X5")
def test_ctrl_c_at_the_question_leaves_and_changes_nothing(person: Command):
    person.env["OPENAI_API_KEY"] = "k"
    for key in (CTRL_C, CTRL_D):
        with person.terminal() as terminal:
            terminal.expect("[Y/n]")
            terminal.press(key)
            assert terminal.ended() == 130
        assert not person.data.exists()


@pytest.mark.promise("D1")
@pytest.mark.usefixtures("hasty")
def test_offline_with_nothing_at_all_the_demo_model_opens_and_says_why(person: Command):
    person.env["OPENAI_API_KEY"] = "k"
    with person.terminal() as terminal:
        terminal.expect("[Y/n]")
        terminal.type("n")
        terminal.expect("Getting qwen2.5-coder-1.5b (1.12 GB, Apache-2.0)")
        terminal.expect("could not be downloaded from any place")
        terminal.expect("Getting smollm2-135m")
        terminal.expect("could not be downloaded from any place")
        terminal.expect("The chat opens with the demo model")
        terminal.expect("› ")
        terminal.press(CTRL_D)
        assert terminal.ended() == 0
    assert not (person.data / "asterism.toml").exists()
    with person.terminal() as terminal:  # a used home is asked nothing
        terminal.expect("› ")
        assert "Getting" not in terminal.shown


@pytest.mark.promise("D1")
@pytest.mark.usefixtures("hasty")
def test_that_the_smallest_weights_are_here_is_no_reason_to_be_content(person: Command):
    put_weights(person, "smollm2-135m")
    with person.terminal() as terminal:
        terminal.expect("Getting qwen2.5-coder-1.5b (1.12 GB, Apache-2.0)")
        terminal.expect("could not be downloaded from any place")
        terminal.expect("aster · embedded:smollm2-135m")
        terminal.expect("› ")


@pytest.mark.promise("D1")
def test_one_question_never_goes_to_the_smallest_weights_in_silence(
    person: Command, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(download, "FIRST_PAUSE", 0.01)
    put_weights(person, "smollm2-135m")
    done = person.run("chat", "--once", "hello")  # a hole is no model, so that nobody answers
    assert "Getting qwen2.5-coder-1.5b (1.12 GB, Apache-2.0)" in done.stderr
    assert "could not be downloaded from any place" in done.stderr
    hint = "embedded:smollm2-135m is the smallest model and often wrong; qwen2.5-coder-1.5b"
    assert hint in done.stderr
    assert not (person.data / "asterism.toml").exists()
    again = person.run("chat", "--once", "hello")  # nothing is fetched in a home that was used
    assert "Getting" not in again.stderr
    assert hint in again.stderr


@pytest.mark.promise("D1")
def test_one_question_on_a_new_machine_fetches_a_model(
    person: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    body = tiny.gguf()
    known = tmp_path / "manifest.toml"
    known.write_text(tiny.manifest(body, ("hub",)), "utf-8")
    monkeypatch.setattr(weights, "manifest", lambda: weights.read_manifest(known))
    with FileServer() as server:
        tiny.publish(server, body)
        person.env |= tiny.environment(server)
        done = person.run("chat", "--once", "hello")
    assert f"Getting {tiny.NAME} (80 kB, MIT)" in done.stderr
    assert "Getting" not in done.stdout
    assert (Path(person.env["ASTERISM_MODELS"]) / tiny.FILE).read_bytes() == body
    assert configured(person) == {"model": f"embedded:{tiny.NAME}"}


def test_ctrl_c_skips_the_download(person: Command):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never answers
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        del person.env["PIP_NO_INDEX"]
        person.env |= {"PIP_INDEX_URL": f"{address}/simple", "HF_ENDPOINT": address}
        with person.terminal() as terminal:
            terminal.expect("Ctrl-C skips it.")
            silent.settimeout(30)
            with silent.accept()[0]:
                terminal.press(CTRL_C)
                terminal.expect("Skipped; the downloaded part is kept.")
                terminal.expect("aster · demo:guide")
                terminal.expect("› ")


@pytest.mark.promise("D3")
def test_weights_on_this_machine_are_taken_without_a_question(person: Command):
    if importlib.util.find_spec("xllamacpp") is None:  # not imported: it must not be here
        pytest.skip("xllamacpp is not installed")
    put_weights(person, "qwen2.5-coder-1.5b")
    began = time.monotonic()
    with person.terminal() as terminal:
        terminal.expect("aster · embedded:qwen2.5-coder-1.5b")
        terminal.expect("› ")
        ready = time.monotonic() - began
        assert "Getting" not in terminal.shown
    assert configured(person) == {"model": "embedded:qwen2.5-coder-1.5b"}
    assert ready < 10  # a bound for any machine; `make bench` has the figure


@pytest.mark.parametrize("how", ["--yes", "ASTERISM_NONINTERACTIVE", "store.url"])
def test_who_wants_no_questions_is_asked_none(person: Command, how: str):
    person.env["OPENAI_API_KEY"] = "k"
    arguments = ["chat"]
    if how == "--yes":
        arguments.append(how)
    elif how == "store.url":
        person.configure('[store]\nurl = "postgresql://nobody@127.0.0.1:1/none"\n')
    else:
        person.env[how] = "1"
    with person.terminal(*arguments) as terminal:
        terminal.expect("aster · openai:gpt-4.1-mini" if how != "store.url" else "asterism: ")
        assert "Found" not in terminal.shown
    assert "model" not in (configured(person) if how == "store.url" else {})


def test_in_a_pipe_nothing_is_asked(person: Command, installed: Installed):
    installed.env = person.env
    done = installed.run("chat", stdin="hello")
    assert done.returncode == 0
    assert "demo model" in done.stdout
    assert not (person.data / "asterism.toml").exists()


# -- the wizard ----------------------------------------------------------------------------------


@pytest.mark.promise("T15")
def test_setup_asks_with_defaults_and_writes_once(person: Command):
    person.env |= {"GROQ_API_KEY": "sk-hunter2", "TZ": "America/New_York"}
    with person.terminal("setup") as terminal:
        terminal.expect("groq:openai/gpt-oss-120b")
        terminal.expect("Model, by number or as vendor:name [1]: ")
        terminal.type("99")
        terminal.expect("99 is not in the list")
        terminal.expect("[1]: ")
        terminal.type("nobody:m")
        terminal.expect("'nobody', which is not known")
        terminal.expect("[1]: ")
        terminal.type("")
        terminal.expect("Name of the first agent [aster]: ")
        terminal.type("aria")
        terminal.expect("Who it is")
        terminal.type("You are aria, a gardener.")
        terminal.expect("[5]: ")
        terminal.type("-3")
        terminal.expect("'-3' is not a valid cap")
        assert not person.data.exists()
        terminal.type("2.50")
        terminal.expect("Your time zone [America/New_York]: ")
        terminal.type("Mars")
        terminal.expect("'Mars' is not the name of a time zone on this machine.")
        assert not person.data.exists()
        terminal.type("Asia/Kolkata")
        terminal.expect("aria is ready.")
        assert terminal.ended() == 0
        assert "ackup" not in terminal.shown
        assert "hunter2" not in terminal.shown
    assert configured(person) == {
        "model": "groq:openai/gpt-oss-120b",
        "budget": {"day": 2.5},
        "timezone": "Asia/Kolkata",
    }
    assert "in Asia/Kolkata, set in the configuration" in person.ok("doctor", "--offline")
    (agent,) = person.json("agent", "list")
    assert (agent["name"], agent["system"]) == ("aria", "You are aria, a gardener.")


def test_setup_again_shows_what_is_and_enter_changes_nothing(person: Command):
    person.configure('# mine\nmodel = "demo:guide" # for now\n\n[budget]\nday = 7.0\n')
    person.ok("agent", "create", "aria", "--system", "Be brief.")
    with person.terminal("setup") as terminal:
        for default in ("[demo:guide]", "[aria]", "[Be brief.]", "[7]", "Your time zone ["):
            terminal.expect(default)
            terminal.type("")
        terminal.expect("This is already the current setup. Nothing was changed.")
        assert terminal.ended() == 0
    text = (person.data / "asterism.toml").read_text("utf-8")
    assert text == '# mine\nmodel = "demo:guide" # for now\n\n[budget]\nday = 7.0\n'


def test_setup_is_about_the_agent_that_was_made_first_whatever_its_name(asterism: Command):
    asterism.ok("agent", "create", "zoe")
    asterism.ok("agent", "create", "aria", "--system", "Be brief.")
    asterism.ok("setup", "--agent", "zora", "--yes")
    agents = {agent["name"]: agent["system"] for agent in asterism.json("agent", "list")}
    assert set(agents) == {"aria", "zora"}
    assert agents["aria"] == "Be brief."
    assert "zora" in agents["zora"]


@pytest.mark.promise("X5")
def test_ctrl_c_in_the_middle_of_setup_leaves_everything_as_it_was(person: Command):
    with person.terminal("setup") as terminal:
        terminal.expect("Model, by number")
        terminal.type("demo:guide")
        terminal.expect("Name of the first agent")
        terminal.type("aria")
        terminal.expect("Who it is")
        terminal.press(CTRL_C)
        assert terminal.ended() == 130
    assert not person.data.exists()


@pytest.mark.promise("X3")
def test_a_key_that_is_typed_is_stored_encrypted_and_never_shown(person: Command):
    with person.terminal("setup", "--agent", "a", "--persona", "p", "--cap", "none") as terminal:
        terminal.expect("Model, by number")
        terminal.type("groq:some-model")
        terminal.expect("GROQ_API_KEY")
        terminal.expect("(not shown")
        terminal.type("sk-hunter2")
        terminal.expect("Your time zone [")
        terminal.type("")
        terminal.expect("a is ready.")
        assert terminal.ended() == 0
        assert "hunter2" not in terminal.raw
        assert "Stored the key of groq, encrypted." in terminal.shown
    assert "models" not in configured(person)
    assert stat.S_IMODE((person.data / "asterism.toml").stat().st_mode) == 0o600
    for file in person.place.rglob("*"):
        assert not file.is_file() or b"hunter2" not in file.read_bytes()
    (stored,) = person.json("key", "list")
    assert stored["name"] == "groq"
    (groq,) = [row for row in person.json("model", "list") if row.get("name") == "groq"]
    assert "missing" not in groq["key"]
    assert "hunter2" not in person.ok("doctor", "--offline") + person.ok("model", "list")


@pytest.mark.promise("X3")
def test_a_key_replaces_the_variable_that_the_configuration_names(person: Command):
    person.configure('[models.groq]\nkey_env = "MY_GROQ"\n')
    with person.terminal("setup", "--agent", "a", "--persona", "p", "--cap", "none") as terminal:
        terminal.expect("Model, by number")
        terminal.type("groq:some-model")
        terminal.expect("MY_GROQ")
        terminal.expect("(not shown")
        terminal.type("sk-hunter2")
        terminal.expect("Your time zone [")
        terminal.type("")
        assert terminal.ended() == 0
    assert configured(person)["models"]["groq"]["key"] == "secret:groq"
    (groq,) = [row for row in person.json("model", "list") if row.get("name") == "groq"]
    assert "missing" not in groq["key"]


def test_an_embedded_model_is_offered_for_download(person: Command):
    answers = ("--agent", "a", "--persona", "p", "--cap", "none")
    with person.terminal("setup", "--model", "smollm2-135m", *answers) as terminal:
        terminal.expect("Your time zone [")
        terminal.type("")
        terminal.expect("smollm2-135m is not on this machine yet. Get it now (98 MB)?")
        terminal.type("n")
        terminal.expect('"asterism model pull smollm2-135m" gets it')
        assert terminal.ended() == 0
    assert configured(person) == {"model": "embedded:smollm2-135m"}


def test_every_answer_as_an_option(asterism: Command):
    asterism.configure("# keep me\n[limits]\nsteps = 5 # five\n")
    told = asterism.ok(
        "setup",
        *("--model", "demo:guide, groq:openai/gpt-oss-120b", "--agent", "aria"),
        *("--persona", "Be kind.", "--cap", "5", "--yes"),
    )
    assert "aria is ready." in told
    text = (asterism.data / "asterism.toml").read_text("utf-8")
    assert "# keep me" in text
    assert "steps = 5 # five" in text
    assert configured(asterism) == {
        "model": "demo:guide, groq:openai/gpt-oss-120b",
        "limits": {"steps": 5},
        "budget": {"day": 5.0},
    }
    shown = asterism.json("setup", "--agent", "bea", "--cap", "none", "--yes")
    assert shown["written"] == ["budget.day"]
    (agent,) = asterism.json("agent", "list")
    assert (agent["name"], agent["system"]) == ("bea", "Be kind.")
    assert "budget" not in configured(asterism) or configured(asterism)["budget"] == {}


def test_an_agent_with_the_usual_persona_goes_by_its_new_name(asterism: Command):
    asterism.ok("setup", "--agent", "aria", "--yes")
    asterism.ok("setup", "--agent", "bea", "--yes")
    (agent,) = asterism.json("agent", "list")
    assert agent["system"].startswith("You are bea, ")


# -- what can go wrong ---------------------------------------------------------------------------


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no options were used"),
        (["--yes"], "no options were used"),
        (["--model", "gpt", "--yes"], "does not name a model"),
        (["--model", "default", "--yes"], "Use vendor:name"),
        (["--model", "nobody:m", "--yes"], "'nobody', which is not known"),
        (["--model", "embedded:smollm", "--yes"], "Did you mean 'smollm2-135m'?"),
        (["--agent", " ", "--yes"], "cannot name an agent"),
        (["--cap", "nan", "--yes"], "'nan' is not a valid cap"),
        (["--cap", "0", "--yes"], "'0' is not a valid cap"),
        (["--backups", "/srv", "--yes"], "No such option"),
    ],
)
def test_an_answer_that_cannot_be_changes_nothing(
    asterism: Command, arguments: list[str], said: str
):
    done = asterism.run("setup", *arguments)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert not asterism.data.exists()


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("model = \n", "line 1, column 9: this is not valid TOML"),
        ("[limits]\nsteps = 0\n", "limits.steps is 0"),
        ("models = 3\n", "models is a number"),
    ],
)
def test_a_bad_configuration_is_told_and_stays(asterism: Command, text: str, said: str):
    asterism.configure(text)
    done = asterism.run("setup", "--model", "demo:guide", "--agent", "aria", "--yes")
    assert done.returncode == 1
    assert said in done.stderr
    assert (asterism.data / "asterism.toml").read_text("utf-8") == text
    assert [path.name for path in asterism.data.iterdir()] == ["asterism.toml"]


def _without_override() -> None:
    """Give up root's right to write anywhere, before the command is run."""
    if os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.prctl(24, 1, 0, 0, 0) == 0  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE


@pytest.mark.promise("X5")
@pytest.mark.parametrize("locked", ["file", "directory"])
def test_a_configuration_that_cannot_be_written(asterism: Command, locked: str):
    asterism.configure("# mine\n")
    file = asterism.data / "asterism.toml"
    (file if locked == "file" else asterism.data).chmod(0o555 if locked == "directory" else 0o444)
    try:
        done = subprocess.run(
            [EXECUTABLE, "setup", "--model", "demo:guide", "--yes"],
            env=asterism.env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=_without_override,
        )
    finally:
        asterism.data.chmod(0o755)
    assert done.returncode == 1
    assert f"{file} cannot be written (Permission denied)" in done.stderr
    assert "Nothing was changed." in done.stderr
    assert TRACEBACK not in done.stderr
    assert file.read_text("utf-8") == "# mine\n"
    assert [path.name for path in asterism.data.iterdir()] == ["asterism.toml"]


@pytest.mark.promise("X5")
def test_a_device_is_not_replaced(asterism: Command):
    done = asterism.run("setup", "--model", "demo:guide", "--yes", "--config", "/dev/null")
    assert done.returncode == 1
    assert "/dev/null is not an ordinary file" in done.stderr
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.promise("A8")
def test_setup_beside_a_process_at_work(asterism: Command):
    with asterism.started("serve", "--port", "0") as server:
        assert server.stderr is not None
        assert "Listening" in server.stderr.readline()
        told = asterism.ok("setup", "--model", "demo:guide", "--agent", "aria", "--yes")
        assert "aria is ready" in told
        assert [agent["name"] for agent in asterism.json("agent", "list")] == ["aria"]
    assert configured(asterism) == {"model": "demo:guide"}


def test_a_link_stays_a_link_and_a_variable_that_wins_is_told(asterism: Command, tmp_path: Path):
    real = tmp_path / "real.toml"
    real.write_text("# real\n", encoding="utf-8")
    asterism.data.mkdir()
    (asterism.data / "asterism.toml").symlink_to(real)
    asterism.env["ASTERISM_MODEL"] = "demo:other"
    told = asterism.ok("setup", "--model", "demo:guide", "--yes")
    assert "ASTERISM_MODEL is set in the environment and overrides" in told
    assert (asterism.data / "asterism.toml").is_symlink()
    assert real.read_text("utf-8") == '# real\nmodel = "demo:guide"\n'
