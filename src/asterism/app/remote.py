"""A home on another machine, or behind an address: the same nouns and verbs, over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from asterism.app.agents import Agent, AgentParts, NamedAgent, bound_agent
from asterism.app.groups import Group, NamedGroup, bound_group
from asterism.app.turns import Approval, bound_approval
from asterism.client import (
    HOME,
    Hello,
    RemoteAgent,
    RemoteHome,
    SocketTransport,
    greet,
    lost,
    read_frame,
)
from asterism.config import data_directory
from asterism.errors import HomeLost, InvalidInput, NotAllowed
from asterism.types.agents import AgentRecord
from asterism.types.groups import GroupRecord
from asterism.types.permissions import ApprovalRecord
from asterism.version import __version__
from asterism.wire import MAX_FRAME, to_line

_CONNECT_WITHIN = 10.0
_PATH = "/api/call"


@asynccontextmanager
async def connected(
    url: str, token: str, make: Callable[..., RemoteHome] = RemoteHome
) -> AsyncGenerator[RemoteHome, None]:
    """Give the home behind an address, such as `https://home.example.org`.

    Args:
        url: Where `asterism serve` listens, or what stands in front of it.
        token: A token of the owner without limits.
        make: Makes the home.
    """
    import aiohttp

    address = checked_url(url)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN)
    async with aiohttp.ClientSession(
        timeout=timeout, headers={"authorization": f"Bearer {token}"}, read_bufsize=1 << 20
    ) as session:
        transport = HttpTransport(address, token, session)
        hello: Hello | None = None
        async for frame in transport.frames({"call": "hello", "work": True}, "hello", None):
            hello = Hello(**frame["result"])
        assert hello is not None
        yield make(hello, transport, work=True)


@asynccontextmanager
async def connected_to(
    target: str | Path | None,
    token: str | None,
    environ: Mapping[str, str],
    nouns: frozenset[str],
) -> AsyncGenerator[RemoteHome, None]:
    """Give the home behind an address or in a data directory, with the verbs of what it returns.

    Args:
        target: An address with `http://` or `https://`, or else a data directory that a process of
            this user has open; None: the one of this user.
        token: For an address: a token of the owner; None: that of ASTERISM_TOKEN.
        environ: The environment.
        nouns: The nouns of a home.
    """
    make = partial(ConnectedHome, nouns)
    if isinstance(target, str) and _ADDRESS.search(target):
        checked_url(target)
        secret = token or environ.get("ASTERISM_TOKEN")
        if not secret:
            raise InvalidInput(
                f"{target} needs a token. Pass one, or set ASTERISM_TOKEN; on that "
                'machine, "asterism token create" makes one. Nothing was done.'
            )
        async with connected(target, secret, make) as home:
            yield home
        return
    place = data_directory(Path(target) if target is not None else None, environ)
    hello = await greet(place, work=True)
    if hello is None:
        raise HomeLost(
            f'No process has {place} open. Start one with "asterism up", or open the home in this '
            "process with Asterism.open. Nothing was done."
        )
    yield make(hello, SocketTransport(place), work=True, place=place)


_ADDRESS = re.compile(r"://|^[^/\\]+:\d+$")
"""What is meant as an address, though perhaps not well written."""


class ConnectedHome(RemoteHome):
    """A home elsewhere whose agents, groups and approvals have their verbs, as in this process."""

    def __init__(self, nouns: frozenset[str], *args: Any, **options: Any) -> None:
        """Make it; `RemoteHome` has the options."""
        super().__init__(*args, **options)
        self._nouns = nouns

    def __getattr__(self, noun: str) -> Any:
        """Return a noun, or a verb of the home itself; raise `AttributeError` for what is not."""
        if not noun.startswith("_") and noun not in HOME and noun not in self._nouns:
            raise AttributeError(
                f"{noun!r} is not a noun of a home that runs elsewhere; it has "
                f"{', '.join(sorted(self._nouns))}"
            )
        return super().__getattr__(noun)

    def sent(self, value: Any) -> Any:
        """Return the record of an agent, a group or an approval."""
        if isinstance(value, Agent):
            return RemoteAgent(**_record(value, AgentRecord), _model_in_use=value.model_in_use)
        if isinstance(value, Approval):
            return ApprovalRecord(**_record(value, ApprovalRecord))
        if isinstance(value, Group):
            return GroupRecord(**_record(value, GroupRecord))
        return value

    def received(self, value: Any) -> Any:
        """Return agents, groups and approvals with their verbs, also those inside of others."""
        if isinstance(value, list):
            return [self.received(part) for part in cast("list[Any]", value)]
        if isinstance(value, tuple):
            return tuple(self.received(part) for part in cast("tuple[Any, ...]", value))
        if isinstance(value, dict):
            named = cast("dict[Any, Any]", value).items()
            return {name: self.received(part) for name, part in named}
        if isinstance(value, RemoteAgent):
            return bound_agent(value, self.agents, self._parts(value.model_in_use))
        if isinstance(value, ApprovalRecord):
            return bound_approval(value, self.approvals)
        if isinstance(value, GroupRecord):
            return bound_group(value, self.groups)
        if is_dataclass(value) and not isinstance(value, type):
            return self._with_verbs_inside(value)
        return value

    def named(self, noun: str, name: str) -> Any:
        """Return an agent or a group by its name or id; nothing is read yet."""
        if noun == "agents":
            return NamedAgent(name, _agents=self.agents, _parts=self._parts())
        if noun == "groups":
            return NamedGroup(name, _groups=self.groups)
        return super().named(noun, name)

    def _parts(self, model_in_use: str = "") -> AgentParts:
        return AgentParts(
            lambda: self.blocks, self.search, lambda: self.archive, lambda: model_in_use
        )

    def _with_verbs_inside(self, record: Any) -> Any:
        """Return a record whose parts have their verbs, such as the details of an approval."""
        parts = {each.name: getattr(record, each.name) for each in fields(record) if each.init}
        bound = {
            name: self.received(part)
            for name, part in parts.items()
            if isinstance(part, RemoteAgent | ApprovalRecord | GroupRecord)
        }
        return replace(record, **bound) if bound else record


def _record(value: Any, kind: type[Any]) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(kind)}


def checked_url(url: str) -> str:
    """Return the address of a home without a slash at its end; raise if it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput(
            f"{url[:80]!r} is not an address of a home. Write one such as "
            "https://home.example.org or http://127.0.0.1:8283. Nothing was done."
        )
    return url.rstrip("/")


class HttpTransport:
    """Calls as requests to the address of a home."""

    def __init__(self, url: str, token: str, session: Any) -> None:
        """Make it; `session` is one of aiohttp."""
        self._url = url
        self._token = token
        self._session = session

    async def frames(
        self, request: Mapping[str, Any], name: str, pid: int | None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Send a request and yield the frames of its answer; the last one has the result."""
        import aiohttp

        body = to_line({**request, "version": __version__})
        try:
            async with self._session.post(f"{self._url}{_PATH}", data=body) as answer:
                if answer.status != 200:
                    raise _refused(self._url, answer.status, await answer.text())
                buffer = bytearray()
                async for part in answer.content.iter_any():
                    buffer += part
                    while (end := buffer.find(b"\n")) >= 0:
                        line = bytes(buffer[: end + 1])
                        del buffer[: end + 1]
                        frame = read_frame(line, self._url, name, pid)
                        yield frame
                        if "result" in frame:
                            return
                    if len(buffer) > MAX_FRAME:
                        raise lost(self._url, name, pid)
            raise lost(self._url, name, pid)
        except aiohttp.ClientConnectorError as error:
            raise HomeLost(
                f"There is no home at {self._url} ({error.strerror or error}). Start it there with "
                '"asterism serve", or correct the address. Nothing was done.'
            ) from None
        except (aiohttp.ClientError, ConnectionError):
            raise lost(self._url, name, pid) from None

    def frame_now(self, request: Mapping[str, Any], name: str, pid: int | None) -> dict[str, Any]:
        """Send a request whose answer is one frame, and wait for it."""
        import urllib.error
        import urllib.request

        body = to_line({**request, "version": __version__})
        sent = urllib.request.Request(  # noqa: S310 - `checked_url` lets http and https through
            f"{self._url}{_PATH}", body, {"authorization": f"Bearer {self._token}"}
        )
        try:
            with urllib.request.urlopen(sent, timeout=_CONNECT_WITHIN) as answer:  # noqa: S310
                return read_frame(answer.readline(), self._url, name, pid)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(self._url, error.code, error.read().decode()) from None
        except OSError:
            raise lost(self._url, name, pid) from None


def _refused(url: str, status: int, text: str) -> NotAllowed:
    """Return the error for an answer that is not one of a verb."""
    try:
        shape: object = json.loads(text)
    except ValueError:
        shape = None
    detail = cast("dict[str, Any]", shape).get("detail") if isinstance(shape, dict) else None
    said = detail or f"The server answered with status {status}, which is not asterism's."
    return NotAllowed(f"{url} does not let this in: {said}")
