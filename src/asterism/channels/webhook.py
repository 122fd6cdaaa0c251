"""The webhook channel: answers go out as HTTP POST requests.

Each request carries the header `Idempotency-Key`; a receiver that remembers the keys it has seen
gets every message exactly once, whatever crashes in between. The signature is of the time and the
body, so that a receiver can refuse what somebody has recorded and sends again.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any
from urllib.parse import quote

import orjson

from asterism.errors import ConfigError, DeliveryError
from asterism.ports import Accept
from asterism.types.agents import now_ms
from asterism.types.turns import Delivery

_FINAL = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})


class Webhook:
    """Posts to the address in `[channels.NAME] url`, signed if there is a `secret`."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Make the channel; `{target}` in the address stands for where a message is to go."""
        url = options.get("url")
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise ConfigError(
                f"channels.{name}.url is {url!r}; an http:// or https:// address is needed, "
                "to which answers are posted."
            )
        unknown = sorted(set(options) - {"url", "secret"})
        if unknown:
            raise ConfigError(
                f"channels.{name}.{unknown[0]} is not a setting of the webhook channel; "
                "it has url and secret."
            )
        secret = options.get("secret")
        self._url = url
        self._secret = str(secret).encode() if secret else None
        self._session: Any = None

    async def deliver(self, delivery: Delivery) -> None:
        """Post a message as JSON."""
        import aiohttp

        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30))
        body = orjson.dumps(
            {
                "key": delivery.key,
                "agent": delivery.agent_id,
                "turn": delivery.turn_id,
                "target": delivery.target,
                "text": delivery.text,
                "attempt": delivery.attempts,
            }
        )
        timestamp = str(now_ms() // 1000)
        headers = {
            "content-type": "application/json",
            "idempotency-key": delivery.key,
            "x-asterism-timestamp": timestamp,
        }
        if self._secret:
            signed = timestamp.encode() + b"." + body
            digest = hmac.new(self._secret, signed, hashlib.sha256).hexdigest()
            headers["x-asterism-signature"] = f"sha256={digest}"
        url = self._address(delivery.target)
        try:
            # A redirect would be followed as a GET, without the message.
            async with self._session.post(
                url, data=body, headers=headers, allow_redirects=False
            ) as response:
                status: int = response.status
                if status < 300:
                    return
                answer = (await response.content.read(300)).decode("utf-8", "replace").strip()
                leads_to = response.headers.get("location", "")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise DeliveryError(f"{url} could not be reached ({error or 'no answer'}).") from None
        if status < 400:
            raise DeliveryError(
                f"{url} answered {status}, a redirect to {leads_to[:200] or 'nowhere'}, which is "
                "not followed. Write the address that answers itself into url of the channel."
            )
        raise DeliveryError(
            f"{url} answered {status}{': ' + answer if answer else ''}.", final=status in _FINAL
        )

    def _address(self, target: str) -> str:
        """Return the address for a target, which stays one part of it."""
        if target in (".", ".."):
            raise DeliveryError(
                f"{target!r} cannot be a part of an address. Hand messages in with another "
                "reply_to.",
                final=True,
            )
        return self._url.replace("{target}", quote(target, safe=""))

    async def listen(self, accept: Accept) -> None:
        """Return at once: this channel only sends."""
        del accept

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None
