"""Engines that search the web: what each is asked, and how its answer is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlencode

import orjson

from asterism.config.settings import WebSettings
from asterism.errors import NotFound, ToolError
from asterism.tools.addresses import Allowed, place_of
from asterism.tools.web.fetching import Hop, fetch

_LONGEST_SNIPPET = 400
_HOW = (
    'The web cannot be searched, since no engine is set. The owner can set search = "searxng" '
    '(with search_url), "brave" or "kagi" (with search_key_env) under [web] in asterism.toml. '
    "A page whose address you know can be fetched."
)


@dataclass(frozen=True, slots=True)
class Result:
    """One page that an engine knows."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class _Asked:
    url: str
    headers: dict[str, str]


async def search(
    settings: WebSettings, query: str, limit: int, hop: Hop, resolve: Callable[[str], str] = str
) -> list[Result]:
    """Ask the configured engine; the best results first.

    `hop` is asked about redirects, `resolve` finds a stored key.
    """
    if not query.strip():
        raise ToolError("What shall be searched for? Give `query`.")
    asked = _request(settings, query.strip(), limit, _key(settings, resolve))
    host, port = place_of(asked.url)
    # The owner has named this host, so that it may be one at home.
    answer = await fetch(asked.url, Allowed([f"{host}:{port}"]), hop, asked.headers)
    try:
        found: Any = orjson.loads(answer.text)
    except orjson.JSONDecodeError:
        raise ToolError(
            f"The search engine {host} did not answer with JSON, so that its results "
            "cannot be read. Tell the owner to look at [web] in asterism.toml."
        ) from None
    return _results(found)[:limit]


def _key(settings: WebSettings, resolve: Callable[[str], str]) -> str | None:
    key = settings.key()
    try:
        return resolve(key) if key else None
    except NotFound as error:
        raise ToolError(error.message) from None


def _request(settings: WebSettings, query: str, limit: int, key: str | None) -> _Asked:
    engine, base = settings.search, (settings.search_url or "").rstrip("/")
    if engine == "none":
        raise ToolError(_HOW)
    if engine in ("brave", "kagi") and not key:
        raise ToolError(
            f'The search engine "{engine}" needs a key, and none is set. The owner can set '
            "search_key_env under [web] in asterism.toml. Nothing was searched."
        )
    match engine:
        case "searxng":  # https://docs.searxng.org/dev/search_api.html (2026-11)
            asked = urlencode({"q": query, "format": "json"})
            return _Asked(f"{base}/search?{asked}", _bearer(key))
        case "brave":  # https://api-dashboard.search.brave.com (2026-11)
            base = base or "https://api.search.brave.com/res/v1"
            asked = urlencode({"q": query, "count": limit, "text_decorations": "false"})
            return _Asked(f"{base}/web/search?{asked}", {"X-Subscription-Token": key or ""})
        case "kagi":  # https://help.kagi.com/kagi/api/search.html (2026-11)
            base = base or "https://kagi.com/api/v0"
            asked = urlencode({"q": query, "limit": limit})
            return _Asked(f"{base}/search?{asked}", {"Authorization": f"Bot {key}"})
        case "json":
            url = (settings.search_url or "").replace("{query}", quote(query, safe=""))
            return _Asked(url.replace("{limit}", str(limit)), _bearer(key))


def _bearer(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _results(answer: Any) -> list[Result]:
    """Return what looks like results: engines differ in names, not in kind."""
    found: list[Result] = []
    for one in _listed(answer):
        url = _first(one, "url", "link", "href")
        if not url.startswith(("http://", "https://")):
            continue
        snippet = _first(one, "content", "description", "snippet", "text")
        found.append(Result(_first(one, "title", "name") or url, url, snippet[:_LONGEST_SNIPPET]))
    return found


def _listed(answer: Any) -> list[Mapping[str, Any]]:
    if isinstance(answer, list):
        rows = cast("list[Any]", answer)
        return [cast("Mapping[str, Any]", one) for one in rows if isinstance(one, Mapping)]
    if not isinstance(answer, Mapping):
        return []
    inside = cast("Mapping[str, Any]", answer)
    for name in ("results", "web", "data", "items", "organic"):
        listed = _listed(inside.get(name))
        if listed:
            return listed
    return []


def _first(one: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = one.get(name)
        if isinstance(value, str) and value.strip():
            return " ".join(value.split())
    return ""
