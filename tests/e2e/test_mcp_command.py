"""`asterism mcp`: servers added, looked at, taken over from other programs, removed."""

import json
from pathlib import Path

import pytest

from tests.e2e.command import TRACEBACK, Command, Installed
from tests.mcp_servers.scene import plain_server

pytestmark = pytest.mark.promise("S4")


def program(place: Path) -> list[str]:
    server = plain_server(place, tools=["add", "take.away", "***"])
    assert server.command is not None
    return [server.command, *server.args]


def test_add_look_and_remove(asterism: Command, tmp_path: Path) -> None:
    asterism.ok("mcp", "add", "sums", "--ask", "--env", "A=1", "--", *program(tmp_path))
    again = asterism.run("mcp", "add", "sums", "https://example.org/mcp")
    assert again.returncode == 1
    assert "--replace" in again.stderr
    found = {one["tool"]: one for one in asterism.json("mcp", "tools", "sums")}
    assert found["take.away"]["name"] == "sums_take_away"
    assert found["add"]["ask"] is True
    assert found["add"]["effects"] == ["undeclared"]
    assert "none of the characters" in found["***"]["refused"]
    (listed,) = asterism.json("mcp", "list")
    assert (listed["tools"], listed["refused"], listed["protocol"]) == (2, 1, "2025-11-25")
    looked = asterism.run("doctor", "--offline").stdout
    assert "sums: 2 tools, protocol 2025-11-25; 1 tool not offered" in looked
    asterism.ok("mcp", "remove", "sums")
    assert "sums" not in (asterism.data / "asterism.toml").read_text()
    assert not list((asterism.data / "mcp").glob("*.json"))


def test_a_server_that_is_not_there_is_named_with_its_address(asterism: Command):
    asterism.ok("mcp", "add", "mail", "http://127.0.0.1:9/mcp")
    said = asterism.run("mcp", "tools", "mail").stderr
    assert "MCP server 'mail' cannot be used: http://127.0.0.1:9 was not reached (" in said
    assert "Errno" not in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "a b", "https://example.org"), "is not a valid server name"),
        (("add", "a", "https://example.org", "more"), "After the address"),
        (("add", "a", "--env", "A", "--", "true"), "is not NAME=VALUE"),
        (("add", "a", "--prefix", "ä", "--", "true"), "prefix"),
        (("tools", "nobody"), "There is no MCP server 'nobody'"),
        (("login", "nobody"), "There is no MCP server 'nobody'"),
        (("import", "/no/such/file.json"), "cannot be read"),
    ],
)
def test_what_cannot_be_done_is_said(
    asterism: Command, arguments: tuple[str, ...], said: str
) -> None:
    done = asterism.run("mcp", *arguments)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert TRACEBACK not in done.stderr
    assert not (asterism.data / "asterism.toml").exists()


FOREIGN = """\
{
  // made by another program
  "mcpServers": {
    "git hub": {
      "type": "http", "url": "https://example.org/mcp", "autoApprove": ["x"],
      "headers": {"Authorization": "Bearer tok-0123456789", "X-Team": "blue"},
    },
    "search": {"command": "npx", "args": ["-y", "s", "${workspaceFolder}"],
               "env": {"API_KEY": "${input:search-key}", "HOST": "${SEARCH_HOST:-a}"}},
    "old": {"type": "sse", "url": "https://example.org/sse"},
    "off": {"command": "x", "disabled": true},
    "broken": {"args": []},
    "***": {"command": "x"}, /* nothing to name it by */
  },
}
"""


def test_servers_are_taken_over(asterism: Command, installed: Installed, tmp_path: Path) -> None:
    folder = tmp_path / "project" / ".vscode"
    folder.mkdir(parents=True)
    file = folder / "mcp.json"
    file.write_text(FOREIGN)
    planned = {one["name"]: one for one in asterism.json("mcp", "import", str(file), "--dry-run")}
    assert not (asterism.data / "asterism.toml").exists()
    assert planned["git_hub"]["keys"] == ["mcp.git_hub.Authorization"]
    assert "SSE" in planned["old"]["refused"]
    assert "neither a command nor a url" in planned["broken"]["refused"]
    assert planned["***"]["refused"]
    assert any("asterism key set search-key" in note for note in planned["search"]["notes"])
    installed.ok("mcp", "import", str(file))
    text = (asterism.data / "asterism.toml").read_text()
    assert "tok-0123456789" not in text
    assert 'Authorization = "Bearer ${secret:mcp.git_hub.Authorization}"' in text
    assert 'API_KEY = "${secret:search-key}"' in text
    assert str(tmp_path / "project") in text
    assert [one["name"] for one in asterism.json("mcp", "list")] == ["git_hub", "off", "search"]
    assert [one["name"] for one in asterism.json("key", "list")] == ["mcp.git_hub.Authorization"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("[]", 'neither "mcpServers" nor "servers"'),
        (json.dumps({"mcpServers": 7}), 'neither "mcpServers" nor "servers"'),
    ],
)
def test_files_that_are_something_else(
    asterism: Command, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "x.json"
    file.write_text(text)
    done = asterism.run("mcp", "import", str(file))
    assert done.returncode in (1, 2)
    assert said in done.stderr
