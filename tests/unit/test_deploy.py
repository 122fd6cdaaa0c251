"""The files in `deploy` and the Dockerfile name commands, paths and variables that exist."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.core import TyperGroup
from typer.main import get_command

from asterism.cli import build
from asterism.config import load

ROOT = Path(__file__).parents[2]
COMPOSE = sorted((ROOT / "deploy").glob("compose*.yaml"))
UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
VARIABLES = {
    *("ASTERISM_DATA", "ASTERISM_MODELS", "ASTERISM_NONINTERACTIVE"),
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY"),
    *("HOME", "PATH", "PYTHONUNBUFFERED", "XDG_CONFIG_HOME"),
}
"""Variables that are read and are no settings."""


def check_command(words: list[str]) -> None:
    """Fail unless these are a command of asterism and its options."""
    root = get_command(build())
    assert isinstance(root, TyperGroup)
    command = root.commands[words[0]]
    context = command.make_context(words[0], list(words[1:]), resilient_parsing=False)
    assert not context.args


def check_variable(name: str, value: str) -> None:
    """Fail unless a variable is one that asterism reads."""
    if name in VARIABLES:
        return
    assert name.startswith("ASTERISM_"), name
    filled = re.sub(r"\$\{[^}]*\}", "demo:guide" if name == "ASTERISM_MODEL" else "x", value)
    load(Path("/nowhere"), None, {name: filled})


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, each on one line."""
    text = re.sub(r"\\\n\s*", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2].strip()) for line in lines]


def test_the_dockerfile_names_what_exists():
    found = instructions()
    known = "FROM WORKDIR COPY RUN ENV USER VOLUME EXPOSE STOPSIGNAL HEALTHCHECK ENTRYPOINT CMD"
    assert {name for name, _ in found} <= set(known.split())
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in ignored if line.startswith("!")}
    for name, rest in found:
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
                assert source in sent, f"{source} is in .dockerignore"
    assert not [name for name in sent if not (ROOT / name).exists()]
    extras = re.search(r'"\.\[(.*?)\]"', str(found))
    assert extras is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(extras[1].split(",")) <= set(project["optional-dependencies"])
    (entry,) = [rest for name, rest in found if name == "ENTRYPOINT"]
    (words,) = [rest for name, rest in found if name == "CMD"]
    assert json.loads(entry)[0] in project["scripts"]
    check_command(json.loads(words))
    for name, rest in found:
        if name == "ENV":
            for pair in rest.split():
                check_variable(*pair.split("=", 1))


def test_the_image_runs_as_a_user_of_its_own_who_has_the_data():
    found = dict(instructions())
    assert found["USER"] == "asterism"
    assert "ASTERISM_DATA=/data" in found["ENV"]
    assert found["VOLUME"] == "/data"
    assert f":{found['EXPOSE']}/health" in found["HEALTHCHECK"]
    assert int(found["EXPOSE"]) == load(Path("/nowhere"), None, {}).api.port
    names = [name for name, _ in instructions()]
    assert names.index("USER") > max(place for place, name in enumerate(names) if name == "RUN")


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: file.name)
def test_compose_files_name_what_exists(file: Path):
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    volumes = set(content["volumes"])
    for name, service in content["services"].items():
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= volumes
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "nothing without TLS beyond this machine"
        if name == "postgres":
            continue
        assert (file.parent / service["build"] / "Dockerfile").exists()
        if "command" in service:
            check_command(service["command"])
        for variable, value in service["environment"].items():
            check_variable(variable, value)
        seconds = int(service["stop_grace_period"].removesuffix("s"))
        assert seconds > 2 * 10 + 5, "longer than requests and turns get"


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.name)
def test_systemd_units_name_what_exists(file: Path):
    unit = configparser.RawConfigParser(strict=False, comment_prefixes=("#",))
    unit.optionxform = str  # pyright: ignore[reportAttributeAccessIssue] - keeps the case
    unit.read_string(file.read_text(encoding="utf-8"))
    if file.suffix == ".socket":
        port = load(Path("/nowhere"), None, {}).api.port
        assert unit["Socket"]["ListenStream"] == f"127.0.0.1:{port}"
        return
    words = unit["Service"]["ExecStart"].split()
    assert words[0] == "/opt/asterism/bin/asterism"
    check_command(words[1:])
    assert int(unit["Service"]["TimeoutStopSec"]) > 2 * 10 + 5
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("Environment="):
            check_variable(*line.removeprefix("Environment=").split("=", 1))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_units(tmp_path: Path):
    for file in UNITS:
        # The command is not installed here, and neither are other units.
        text = file.read_text(encoding="utf-8").replace("/opt/asterism/bin/asterism", "/bin/true")
        (tmp_path / file.name).write_text(text, encoding="utf-8")
    names = [str(tmp_path / file.name.replace("@", "@1")) for file in UNITS]
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *names],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Unknown" not in done.stderr, done.stderr
    assert "Failed to parse" not in done.stderr, done.stderr
