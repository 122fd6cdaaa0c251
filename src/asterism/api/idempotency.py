"""`Idempotency-Key`: a request that is sent again is answered again, and not done again.

A key is claimed before the request is done, and its answer is stored beside it. A request that was
begun and has no answer may have been done, or may be under way in another process: it is refused,
and never done a second time. One that was cut off before it was begun takes its claim back.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import orjson
from starlette.responses import Response

from asterism.api.endpoints import EVENTS, JSON, ApiCall, ApiEndpoint, status_of
from asterism.errors import AsterismError, BadRequest, Conflict, InvalidInput
from asterism.records import dataclass
from asterism.times import DAY

if TYPE_CHECKING:
    from asterism.store.database import Connection, Database

KEPT = DAY
"""Milliseconds for which a key is remembered."""
MAX_KEY_LENGTH = 200
REPLAYED = "idempotency-replayed"
"""The header of an answer that was given before."""
_PATIENCE = 10.0
"""Seconds that a request waits for the same one in another process."""
_LOOK_AGAIN = 0.1
_NONCE = 12

_under_way: dict[tuple[str, str, str], asyncio.Event] = {}
"""Requests that this process is doing, with an event for whoever waits for them."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A key in the store."""

    request: bytes
    status: int | None
    answer: bytes | None
    """Encrypted with the caller's secret; without a status, the nonce of the claim."""


async def _claim(
    tx: Connection, caller: str, key: str, request: bytes, nonce: bytes, now: int
) -> _Stored | None:
    """Take a key for a request; return what is stored if somebody has it.

    Until there is an answer, in its place stands a nonce that tells whose claim it is.
    """
    await tx.run("DELETE FROM idempotency_keys WHERE created_at <= ?", (now - KEPT,))
    taken = await tx.run(
        "INSERT INTO idempotency_keys (constellation, caller, key, request, answer, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (tx.constellation, caller, key, request, nonce, now),
    )
    return None if taken else await _read(tx, caller, key)


async def _read(tx: Connection, caller: str, key: str) -> _Stored | None:
    row = await tx.one(
        "SELECT request, status, answer FROM idempotency_keys"
        " WHERE constellation = ? AND caller = ? AND key = ?",
        (tx.constellation, caller, key),
    )
    if row is None:
        return None
    return _Stored(bytes(row[0]), row[1], bytes(row[2]) if row[2] is not None else None)


async def _record(tx: Connection, caller: str, key: str, status: int, answer: bytes) -> None:
    await tx.run(
        "UPDATE idempotency_keys SET status = ?, answer = ?"
        " WHERE constellation = ? AND caller = ? AND key = ?",
        (status, answer, tx.constellation, caller, key),
    )


async def _release(tx: Connection, caller: str, key: str) -> None:
    await tx.run(
        "DELETE FROM idempotency_keys"
        " WHERE constellation = ? AND caller = ? AND key = ? AND status IS NULL",
        (tx.constellation, caller, key),
    )


async def _withdraw(tx: Connection, caller: str, key: str, nonce: bytes) -> None:
    """Take back a claim that may have been made, and no claim of others."""
    await tx.run(
        "DELETE FROM idempotency_keys"
        " WHERE constellation = ? AND caller = ? AND key = ? AND status IS NULL AND answer = ?",
        (tx.constellation, caller, key, nonce),
    )


async def answer_once(
    call: ApiCall, one: ApiEndpoint, done: Callable[[], Awaitable[Response]]
) -> Response:
    """Do a request, or return what the same request with its Idempotency-Key was answered."""
    key = call.header("idempotency-key")
    if key is None or not one.keyed:
        return await done()
    await call.home.check_verb(one.verb)
    work = _KeyedRequest(call, one, _checked(key))
    if one.media == EVENTS or one.repeatable:
        # What it does is recognised by its key where it is stored, so that it can be run again.
        return await work.check_and_run(done)
    return await work.answer(done)


class _KeyedRequest:
    """A request that came with an Idempotency-Key."""

    def __init__(self, call: ApiCall, one: ApiEndpoint, key: str) -> None:
        state = call.request.state
        self._database: Database = state.asterism.database
        self._now = state.asterism.now
        self._caller, self._key = str(state.token.id), key
        self._cipher_key = hmac.digest(state.secret.encode(), b"asterism answers", "sha256")
        # A body can hold a passphrase, which a bare hash would let others try out.
        self._request = hmac.digest(self._cipher_key, _plain(call, one), "sha256")
        self._place = (self._database.constellation, self._caller, key)

    async def check_and_run(self, done: Callable[[], Awaitable[Response]]) -> Response:
        """Run a request whose effect is recognised, unless the key was for another one."""
        stored = await self._take()
        if stored is not None:
            self._check_same(stored)
        return await done()

    async def answer(self, done: Callable[[], Awaitable[Response]]) -> Response:
        """Do the request, or return the recorded answer."""
        while (running := _under_way.get(self._place)) is not None:
            await running.wait()
        event = _under_way[self._place] = asyncio.Event()
        try:
            stored = await self._take()
            if stored is None:
                return await self._do(done)
            self._check_same(stored)
            return self._answered(stored if stored.status is not None else await self._wait())
        finally:
            del _under_way[self._place]
            event.set()

    async def _take(self) -> _Stored | None:
        now, nonce = self._now(), secrets.token_bytes(_NONCE)
        try:
            return await self._database.write(
                lambda tx: _claim(tx, self._caller, self._key, self._request, nonce, now)
            )
        except BaseException:
            # The claim may be stored although nobody waited for it, and nothing else was done.
            with contextlib.suppress(AsterismError):
                await self._database.write(lambda tx: _withdraw(tx, self._caller, self._key, nonce))
            raise

    async def _do(self, done: Callable[[], Awaitable[Response]]) -> Response:
        try:
            response = await done()
        except AsterismError as error:
            if status_of(error) < 500:
                # Nothing was done, so that the same key may try again.
                await self._database.write(lambda tx: _release(tx, self._caller, self._key))
            raise
        status, answer = response.status_code, self._encrypt(response)
        await self._database.write(lambda tx: _record(tx, self._caller, self._key, status, answer))
        return response

    async def _wait(self) -> _Stored | None:
        """Return the answer that another process records soon, if one does."""
        for _ in range(int(_PATIENCE / _LOOK_AGAIN)):
            stored = await self._database.read(lambda tx: _read(tx, self._caller, self._key))
            if stored is None or stored.status is not None:
                return stored
            if not self._database.distributed:
                break  # whoever began it is gone
            await asyncio.sleep(_LOOK_AGAIN)
        return None

    def _check_same(self, stored: _Stored) -> None:
        if not hmac.compare_digest(stored.request, self._request):
            raise InvalidInput(
                f"The Idempotency-Key {self._key[:80]!r} was used for another request within the "
                "last 24 hours: another path, or another body. Use a new key for each request. "
                "Nothing was changed."
            )

    def _answered(self, stored: _Stored | None) -> Response:
        if stored is None or stored.status is None:
            raise Conflict(
                f"A request with the Idempotency-Key {self._key[:80]!r} was begun, and how it "
                "ended is not known: it is still under way, or the server stopped in the middle of "
                "it. Look whether it was done; if it was not, send it with a new key. Nothing was "
                "done now."
            )
        shape = self._decrypt(stored.answer) if stored.answer is not None else None
        if shape is None:
            raise Conflict(
                f"The request with the Idempotency-Key {self._key[:80]!r} was done, and its answer "
                "is not kept any more, since something was forgotten meanwhile. Nothing was done "
                "now."
            )
        headers = {**shape["headers"], REPLAYED: "true"}
        return Response(shape["body"].encode(), stored.status, headers, shape["media"])

    def _encrypt(self, response: Response) -> bytes:
        """Return an answer as it is stored, so that only the caller's secret opens it."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        shape = {
            "headers": {
                name: response.headers[name] for name in ("etag",) if name in response.headers
            },
            "media": response.media_type or JSON,
            "body": bytes(response.body).decode(),
        }
        nonce = secrets.token_bytes(_NONCE)
        return nonce + AESGCM(self._cipher_key).encrypt(
            nonce, orjson.dumps(shape), self._key.encode()
        )

    def _decrypt(self, answer: bytes) -> dict[str, Any] | None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            plain = AESGCM(self._cipher_key).decrypt(
                answer[:_NONCE], answer[_NONCE:], self._key.encode()
            )
        except InvalidTag:
            return None
        return orjson.loads(plain)


def _checked(key: str) -> str:
    if not 0 < len(key) <= MAX_KEY_LENGTH or not key.isascii() or not key.isprintable():
        raise BadRequest(
            f"The Idempotency-Key has {len(key)} characters, or signs that are not ASCII; 1 to "
            f"{MAX_KEY_LENGTH} visible characters are needed, such as a UUID. Nothing was changed."
        )
    return key


def _plain(call: ApiCall, one: ApiEndpoint) -> bytes:
    """Return what a request says: the same for the same request, however it is written."""
    body = call.body.model_dump(mode="json") if call.body is not None else None
    query = call.query.model_dump(mode="json")
    parts = [one.method, one.path, dict(call.path), query, body]
    return orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)
