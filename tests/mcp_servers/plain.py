"""A server for tests, written without a library: it does, and fails to do, what it is told.

Lines of JSON come in and go out; the one argument is a file in JSON with what it shall do.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLAN: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
TOOLS: list[Any] = PLAN.get("tools", [])
PAGE = PLAN.get("page", len(TOOLS) or 1)


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def listed(cursor: str | None) -> dict[str, Any]:
    file = PLAN.get("tools_from")
    tools = json.loads(Path(file).read_text()) if file else TOOLS
    start = int(cursor or 0)
    page: dict[str, Any] = {"tools": tools[start : start + PAGE]}
    if start + PAGE < len(tools):
        page["nextCursor"] = str(start + PAGE)
    return page


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    with Path(PLAN["log"]).open("a") as log:
        log.write(f"{name}\n")
    match name:
        case "die":
            os._exit(3)
        case "die_once":
            mark = Path(PLAN["log"] + ".died")
            if not mark.exists():
                mark.touch()
                os._exit(3)
            return {"content": [{"type": "text", "text": "alive"}]}
        case "hang":
            child = subprocess.Popen(["sleep", "600"])
            Path(PLAN["log"] + ".pids").write_text(f"{os.getpid()} {child.pid}")
            time.sleep(600)
        case "change":
            Path(PLAN["tools_from"]).write_text(json.dumps(arguments["tools"]))
            send({"method": "notifications/tools/list_changed"})
        case "answer":
            return arguments["result"]
        case _:
            pass
    return {"content": [{"type": "text", "text": json.dumps(arguments)}]}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    params: dict[str, Any] = request.get("params") or {}
    match request["method"]:
        case "initialize":
            if PLAN.get("silent"):
                time.sleep(600)
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "plain", "version": "1"},
            }
        case "tools/list":
            return listed(params.get("cursor"))
        case "tools/call":
            return called(params["name"], params.get("arguments") or {})
        case _:
            raise LookupError


def main() -> None:
    if PLAN.get("says"):
        sys.stderr.write(PLAN["says"] + "\n")
        sys.stderr.flush()
    if PLAN.get("ends"):
        sys.exit(PLAN["ends"])
    if PLAN.get("noise"):
        sys.stdout.write("Welcome to the server!\n")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        if request["method"] == "tools/list" and PLAN.get("raw"):
            sys.stdout.write(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{PLAN["raw"]}}}\n')
            sys.stdout.flush()
            continue
        try:
            send({"id": request["id"], "result": answer(request)})
        except LookupError:
            send({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})


main()
