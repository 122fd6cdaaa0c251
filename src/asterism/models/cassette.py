"""A cassette: what went over the wire, kept on a tape and played again without any network.

A tape is JSON Lines, one exchange a line, written in one go when the exchange has ended: a process
that is killed leaves whole lines, or at worst a torn one that is passed over. Bytes are kept
exactly, as text, or in base64 where they are not UTF-8. Keys are never kept.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import orjson

from asterism import plugins
from asterism.errors import ConfigError, ModelError, ModelGarbled, ModelRefused, ModelUnavailable
from asterism.private import read_regular
from asterism.records import dataclass
from asterism.types.agents import now_ms
from asterism.types.turns import without_times

if TYPE_CHECKING:
    from asterism.ports import ModelRequest

FORMAT = 1
_RECORDED_HEADERS = ("Content-Type", "Retry-After", "retry-after-ms", "Location")
_MIN_SECRET_LENGTH = 8
_KINDS: dict[str, type[ModelError]] = {
    kind.code: kind for kind in (ModelGarbled, ModelRefused, ModelUnavailable)
}
_APIS = {"/chat/completions": "openai", "/messages": "anthropic"}
_STREAMING = ("stream", "stream_options")
_MAX_COUNTED = 4_096

Read = Callable[[], Awaitable[bytes]]

_log = logging.getLogger(__name__)


class RecordedFailure(OSError):
    """The network failed when the tape was recorded; `problem` is what was said of it then."""

    def __init__(self, problem: ModelError) -> None:
        super().__init__(problem.message)
        self.problem = problem


class RecordedTimeout(Exception):
    """The caller's time was up when the tape was recorded."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """One request as it leaves, and where to."""

    model: str
    """`vendor:name`."""
    address: str
    path: str
    key: str
    """The step that asks, such as `turn_…/0/reply`."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and what came back."""

    line: int
    request: RecordedRequest
    attempt: int
    status: int
    headers: Mapping[str, str]
    chunks: tuple[tuple[float, bytes], ...]
    """Pieces of the body as they came, with the seconds since the request was sent."""
    end: str
    """`whole`; `cut` where the connection broke; `failed` with what was said of it; `given up`."""
    problem: ModelError | None = None

    @property
    def output_options(self) -> tuple[bool, int | None]:
        """Whether the answer was to be streamed, and the most tokens that it might have."""
        table = _table(self.request.body)
        max_tokens = table.get("max_completion_tokens") or table.get("max_tokens")
        return table.get("stream") is True, max_tokens if isinstance(max_tokens, int) else None

    @property
    def api(self) -> str | None:
        """The wire format, where the path gives it away."""
        path = self.request.path
        return next((api for end, api in _APIS.items() if path.endswith(end)), None)


class Cassette:
    """One tape, recorded (`mode` is "record") or played ("play")."""

    def __init__(
        self, path: Path | str, mode: str, *, speed: float = 0.0, loose: bool = False
    ) -> None:
        """Put a tape in.

        Args:
            path: The file.
            mode: "record" appends to it, "play" answers from it.
            speed: How fast it plays: 1 as it was recorded, 2 twice as fast, 0 without any pause.
            loose: Play by order whatever is not on the tape word for word.
        """
        self.path = Path(path)
        self.plays = mode == "play"
        self._speed = speed
        self._loose = loose
        self._attempts: Counter[str] = Counter()
        self._unplayed: dict[int, Exchange] | None = None
        self._played: Counter[int] = Counter()

    def check(self) -> None:
        """Raise `ConfigError` if the tape cannot be used; a recording's file is made."""
        if self.plays:
            _ = self.exchanges
        else:
            self._append(b"")

    # -- playing -------------------------------------------------------------------------------

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """What is on the tape, in order."""
        return read_tape(self.path)

    def play(self, request: RecordedRequest) -> Playback:
        """Return the answer to a request that is on the tape."""
        exchange = self._find(request)
        self._remaining.pop(exchange.line, None)
        return Playback(exchange, self._speed)

    @property
    def _remaining(self) -> dict[int, Exchange]:
        """What has not been played yet, by line."""
        if self._unplayed is None:
            self._unplayed = {exchange.line: exchange for exchange in self.exchanges}
        return self._unplayed

    def _find(self, request: RecordedRequest) -> Exchange:
        for same in (
            self._by_body.get((request.model, request.body)),
            self._by_meaning.get(_meaning(request.body)),
        ):
            if same:
                # Asked once more than recorded, it all begins again.
                first = same[0].line
                self._played[first] += 1
                return same[(self._played[first] - 1) % len(same)]
        if self._loose:
            for exchange in self._remaining.values():
                return exchange
        raise self._missing(request)

    @cached_property
    def _by_body(self) -> dict[tuple[str, bytes], list[Exchange]]:
        exchanges: dict[tuple[str, bytes], list[Exchange]] = {}
        for exchange in self.exchanges:
            exchanges.setdefault((exchange.request.model, exchange.request.body), []).append(
                exchange
            )
        return exchanges

    @cached_property
    def _by_meaning(self) -> dict[bytes, list[Exchange]]:
        exchanges: dict[bytes, list[Exchange]] = {}
        for exchange in self.exchanges:
            exchanges.setdefault(_meaning(exchange.request.body), []).append(exchange)
        return exchanges

    def _missing(self, request: RecordedRequest) -> ModelRefused:
        named = f"The cassette {self.path.name} has no answer to this request to {request.model!r}"
        if not self.exchanges:
            return ModelRefused(f"{named}: it is empty. Record it first. Nothing was sent.")
        if self._loose:
            return ModelRefused(
                f"{named}: all of its {len(self.exchanges)} exchanges have been played. Record "
                "more of them, or begin anew. Nothing was sent."
            )
        nearest = max(
            self.exchanges,
            key=lambda exchange: (
                exchange.request.model == request.model,
                _common_prefix_length(exchange.request.body, request.body),
            ),
        )
        return ModelRefused(
            f"{named}. Nearest is line {nearest.line}: "
            f"{first_difference(nearest.request.body, request.body)}. Record it anew, or play by "
            "order with cassette.loose = true. Nothing was sent."
        )

    # -- recording -----------------------------------------------------------------------------

    def begin(self, request: RecordedRequest, secret: str) -> Recording:
        """Begin to record an exchange; `secret` is blotted out wherever it turns up."""
        attempt = self._attempts[request.key]
        self._attempts[request.key] += 1
        if len(self._attempts) > _MAX_COUNTED:
            self._attempts = Counter(dict(itertools.islice(self._attempts.items(), 2_048, None)))
        return Recording(request, attempt, secret, self._append)

    def _append(self, line: bytes) -> None:
        try:
            # What people said is in it, so nobody else may read it.
            tape = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                size = os.fstat(tape).st_size
                torn = line and size and os.pread(tape, 1, size - 1) != b"\n"
                left = b"\n" + line if torn else line
                while left:
                    left = left[os.write(tape, left) :]
            finally:
                os.close(tape)
        except OSError as error:
            raise ConfigError(
                f"The cassette {self.path} cannot be written: {error.strerror}. Correct "
                "cassette.file, or make room. The exchange was not recorded."
            ) from None


class Playback:
    """The answer of a recorded exchange, piece by piece."""

    def __init__(self, exchange: Exchange, speed: float) -> None:
        self._exchange = exchange
        self._speed = speed
        self._position = 0
        self._at = 0.0

    async def answer(self) -> tuple[int, Mapping[str, str]]:
        """Return status and headers; raise what came instead of them."""
        from multidict import CIMultiDict  # comes with aiohttp

        exchange = self._exchange
        if not exchange.status:
            raise self._ending() or ConnectionResetError
        return exchange.status, CIMultiDict(exchange.headers)

    async def read(self) -> bytes:
        """Return the next bytes of the body, none at its end."""
        if self._position == len(self._exchange.chunks):
            ending = self._ending()
            if ending is not None:
                raise ending
            return b""
        at, chunk = self._exchange.chunks[self._position]
        self._position += 1
        pause, self._at = at - self._at, at
        await asyncio.sleep(pause / self._speed if self._speed else 0)
        return chunk

    def _ending(self) -> Exception | None:
        if self._exchange.problem is not None:
            return RecordedFailure(self._exchange.problem)
        match self._exchange.end:
            case "cut":
                return ConnectionResetError()
            case "given up":
                return RecordedTimeout()
            case _:
                return None


class Recording:
    """An exchange under way."""

    def __init__(
        self, request: RecordedRequest, attempt: int, secret: str, append: Callable[[bytes], None]
    ) -> None:
        self._asked = request
        self._attempt = attempt
        self._secret = secret if len(secret) >= _MIN_SECRET_LENGTH else ""
        self._append = append
        self._began_at = now_ms()
        self._began = time.monotonic()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._chunks: list[tuple[float, bytes]] = []
        self._end = "whole"
        self._error: dict[str, Any] | None = None

    def note_answer(self, status: int, headers: Mapping[str, str], read: Read) -> Read:
        """Note how the answer begins; return a way to read on that takes notes."""
        self._status = status
        self._headers = {
            name: self._redact(headers[name].encode("utf-8", "replace")).decode()
            for name in _RECORDED_HEADERS
            if name in headers
        }

        async def read_on() -> bytes:
            try:
                chunk = await read()
            except asyncio.CancelledError:
                raise
            except Exception:
                self._end = "cut"
                raise
            if chunk:
                self._chunks.append((round(time.monotonic() - self._began, 4), chunk))
            return chunk

        return read_on

    def note_failure(self, problem: ModelError) -> None:
        """Note that the network failed."""
        self._end = "failed"
        kind = next(
            kind_of_error for kind_of_error in _KINDS.values() if isinstance(problem, kind_of_error)
        )
        self._error = {"code": kind.code, "message": problem.message}
        if isinstance(problem, ModelUnavailable):
            self._error |= {"slow": problem.slow, "begun": problem.begun}

    def note_abandoned(self) -> None:
        """Note that nobody waits for the rest any more."""
        self._end = "given up"

    def close(self) -> None:
        """Write the exchange."""
        request = self._asked
        line: dict[str, Any] = {
            "cassette": FORMAT,
            "key": request.key,
            "attempt": self._attempt,
            "at": self._began_at,
            "model": request.model,
            "address": request.address.partition("?")[0],
            "path": request.path,
            "request": _as_text(self._redact(request.body)),
            "status": self._status,
            "headers": self._headers,
            "chunks": [[at, _as_text(chunk)] for at, chunk in self._redacted_chunks()],
            "end": self._end,
        }
        if self._error is not None:
            line["error"] = self._error
        try:
            self._append(orjson.dumps(line) + b"\n")
        except ConfigError as error:
            # An answer is not lost because its recording is.
            _log.error("%s", error.message)

    def _redacted_chunks(self) -> list[tuple[float, bytes]]:
        """Return the chunks; as one if a key stands in them, since it may be cut in two."""
        whole = b"".join(chunk for _, chunk in self._chunks)
        clean = self._redact(whole)
        return self._chunks if clean == whole else [(self._chunks[-1][0], clean)]

    def _redact(self, data: bytes) -> bytes:
        return data.replace(self._secret.encode(), "…".encode()) if self._secret else data


def taped_request(
    vendor: str, address: str, path: str, request: ModelRequest, body: bytes
) -> RecordedRequest:
    """Return a request as it is written on a tape."""
    return RecordedRequest(f"{vendor}:{request.model}", address, path, request.key, body)


def read_tape(path: Path) -> list[Exchange]:
    """Return the exchanges of a tape; torn lines are passed over with a word in the log."""
    try:
        lines = read_regular(path).split(b"\n")
    except OSError as error:
        raise ConfigError(
            f"The cassette {path} cannot be read: {error.strerror}. Name a tape that was recorded "
            'with "asterism chat --record FILE". Nothing was asked.'
        ) from None
    exchanges: list[Exchange] = []
    torn: list[int] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                exchanges.append(_exchange(number, orjson.loads(line)))
            except (ValueError, KeyError, TypeError, AttributeError):
                torn.append(number)
    if torn and not exchanges:
        raise ConfigError(
            f"{path} is not a cassette of format {FORMAT}: line {torn[0]} is not a recorded "
            "exchange. "
            'Record one with "asterism chat --record FILE". Nothing was asked.'
        )
    for number in torn:
        _log.warning("cassette %s: line %d is torn and was passed over", path.name, number)
    return exchanges


def _exchange(number: int, record: dict[str, Any]) -> Exchange:
    if record["cassette"] != FORMAT:
        raise ValueError
    problem = None
    if error := record.get("error"):
        kind = _KINDS[error["code"]]
        problem = kind(error["message"])
        if isinstance(problem, ModelUnavailable):
            problem.slow, problem.begun = bool(error.get("slow")), bool(error.get("begun"))
    return Exchange(
        line=number,
        request=RecordedRequest(
            record["model"],
            record["address"],
            record["path"],
            record["key"],
            _as_bytes(record["request"]),
        ),
        attempt=record["attempt"],
        status=record["status"],
        headers=dict(record["headers"]),
        chunks=tuple((float(at), _as_bytes(chunk)) for at, chunk in record["chunks"]),
        end=record["end"],
        problem=problem,
    )


def settings_to_play(path: Path) -> dict[str, object]:
    """Return the settings with which a tape can be talked to: its model, and no key.

    Raises `ConfigError` if it is no tape, or an empty one.
    """
    exchanges = read_tape(path)
    if not exchanges:
        raise ConfigError(
            f"The cassette {path} is empty. Record it first, with "
            f'"asterism chat --record {path}". Nothing was asked.'
        )
    wanted: dict[str, object] = {
        "cassette.file": str(path.absolute()),
        "cassette.mode": "play",
        "model": exchanges[0].request.model,
    }
    for exchange in exchanges:
        vendor = exchange.request.model.partition(":")[0]
        wanted[f"models.{vendor}.base_url"] = exchange.request.address
        if exchange.api is not None and vendor not in plugins.names("models"):
            wanted[f"models.{vendor}.api"] = exchange.api
    return wanted


def first_difference(recorded: bytes, now: bytes) -> str:
    """Say where two requests part."""
    position = _common_prefix_length(recorded, now)
    return (
        f"after {position:,} equal bytes it has {_excerpt(recorded, position)} where this one has "
        f"{_excerpt(now, position)}"
    )


def _excerpt(data: bytes, position: int) -> str:
    if position >= len(data):
        return "its end"
    # A character may begin before the byte that differs.
    start = max(0, position - 12)
    piece = data[start : position + 36].decode("utf-8", "replace").strip("\ufffd")
    before = "…" if start else ""
    after = "…" if position + 36 < len(data) else ""
    return f"{before}{piece}{after}"


def _common_prefix_length(first: bytes, second: bytes) -> int:
    """Return how many bytes two requests begin with alike."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[:middle] == second[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _meaning(body: bytes) -> bytes:
    """Return what a request says, whenever it is sent and whether or not its answer is watched."""
    table = _table(body)
    for name in _STREAMING:
        table.pop(name, None)
    return without_times(orjson.dumps(table) if table else body)


def _table(body: bytes) -> dict[str, Any]:
    try:
        value: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_text(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _as_bytes(recorded: Any) -> bytes:
    if isinstance(recorded, str):
        return recorded.encode()
    return base64.b64decode(recorded["base64"], validate=True)
