"""Which models are to be had here: keys in the environment, servers on loopback, weights."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import time
from collections.abc import Collection, Mapping
from typing import Any, cast
from urllib.parse import urlsplit

import orjson

from asterism.app.engine import make_model
from asterism.app.keys import Secret
from asterism.config import Settings
from asterism.config.vendors import EMBEDDED, Vendor, can_embed, models_directory, vendors
from asterism.errors import InvalidInput
from asterism.ports import Emit, ModelRequest
from asterism.records import dataclass
from asterism.types.turns import Usage, message_wire

PATIENCE = 0.3
"""Seconds for all servers together, which are asked at the same time."""
_MAX_BYTES = 1 << 20
_MAX_NAMES = 50
_NO_CHAT = ("embed", "rerank", "whisper", "tts", "bge-", "minilm", "clip")
"""What the names of models have in them that do not chat."""


@dataclass(frozen=True, slots=True)
class AvailableModel:
    """A model that could be used."""

    model: str
    """`vendor:name`."""
    where: str
    """Where it was found: a variable, an address, this machine."""
    why: str
    """What speaks for it, or what is missing, in a clause."""
    ready: bool
    """It can be asked as it is, without a download or an installation."""
    base_url: str | None = None
    """Where it is reached, if that is not what is known of the vendor."""
    others: tuple[str, ...] = ()
    """Further models at the same place."""

    @property
    def vendor(self) -> str:
        """Whose model it is."""
        return self.model.partition(":")[0]

    @property
    def name(self) -> str:
        """What the vendor calls it."""
        return self.model.partition(":")[2]

    @property
    def embedded(self) -> bool:
        """It runs on this machine, in a process of ours."""
        return self.vendor == EMBEDDED


async def discover(
    environ: Mapping[str, str], *, patience: float = PATIENCE
) -> list[AvailableModel]:
    """Return the models that this machine can use, the best first; only loopback is asked."""
    served = await _servers(environ, patience)
    models = [*_keys(environ), *served]
    models.sort(key=lambda model: not model.ready)
    return [*models, *_embedded_models(environ)]


def _keys(environ: Mapping[str, str]) -> list[AvailableModel]:
    return [
        _by_key(vendor, variable)
        for vendor in vendors().values()
        if (variable := vendor.key_variable(environ)) and environ.get(variable)
    ]


def _by_key(vendor: Vendor, variable: str) -> AvailableModel:
    model = f"{vendor.name}:{vendor.model}"
    if vendor.usable:
        return AvailableModel(model, variable, f"{vendor.title}, paid by use", ready=True)
    why = f"{vendor.title} needs a library that is not installed (pip install 'asterism[vendors]')"
    return AvailableModel(model, variable, why, ready=False)


def _embedded_models(environ: Mapping[str, str]) -> list[AvailableModel]:
    """Return the weights that are here, and those that the memory of the machine has room for."""
    from asterism.models.embedded.weights import WeightsDirectory, format_bytes, machine_memory

    directory = WeightsDirectory(models_directory(environ))
    memory = machine_memory()
    models: list[tuple[bool, bool, AvailableModel]] = []
    for name, weights in directory.available().items():
        here = directory.path(name) is not None
        if not here and not weights.fits(memory):
            continue
        where = "this machine" if here else "to be downloaded"
        sizes = f"{format_bytes(weights.size)}, {weights.memory_bytes / 1e9:.1f} GB of memory"
        tried = "measured" if weights.measured else "not measured here"
        best = "recommended, " if weights.recommended else ""
        why = f"{best}{tried}, {sizes}: {weights.about}"
        model = AvailableModel(f"{EMBEDDED}:{name}", where, why, ready=here and can_embed())
        models.append((not model.ready, not weights.recommended, model))
    models.sort(key=lambda row: row[:2])
    return [model for _, _, model in models]


# -- servers on loopback -------------------------------------------------------------------------


async def _servers(environ: Mapping[str, str], patience: float) -> list[AvailableModel]:
    places = server_addresses(environ)
    requests = [asyncio.ensure_future(_ask(vendors()[name], url)) for name, url in places.items()]
    if requests:
        _, late = await asyncio.wait(requests, timeout=patience)
        for task in late:
            task.cancel()
    answers = await asyncio.gather(*requests, return_exceptions=True)
    return [answer for answer in answers if isinstance(answer, AvailableModel)]


async def local_servers(
    environ: Mapping[str, str], *, patience: float = PATIENCE
) -> list[AvailableModel]:
    """Return the model servers that run on this machine, each with its models."""
    return await _servers(environ, patience)


async def models_of_server(
    settings: Settings, vendor: str, environ: Mapping[str, str], *, patience: float = PATIENCE
) -> tuple[str, tuple[str, ...] | None] | None:
    """Return where the server of a vendor is looked for on this machine, and its models.

    The models are None if no server answers there. None for all other vendors.
    """
    known = vendors().get(vendor)
    if known is None or not known.names:
        return None
    own = settings.vendor(vendor).base_url or ""
    url = server_addresses(environ).get(vendor, "")
    if vendor in settings.models and settings.models[vendor].base_url:
        url = own.removesuffix("/").removesuffix("/v1")
    if not _is_loopback(url):
        return None
    try:
        async with asyncio.timeout(patience):
            answer = orjson.loads(await _get(url, known.names))
            return url, tuple(_names(answer))
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError):
        return url, None


def server_addresses(environ: Mapping[str, str]) -> dict[str, str]:
    """Return where each kind of server is looked for, as `http://host:port` by vendor.

    ASTERISM_SERVERS says otherwise: `ollama=127.0.0.1:11500, vllm=127.0.0.1:9000`, or `none`.
    """
    known = {name: vendor for name, vendor in vendors().items() if vendor.names}
    if wish := environ.get("ASTERISM_SERVERS", "").strip():
        if wish == "none":
            return {}
        return dict(_read_server(part, known) for part in wish.split(","))
    places = {name: (vendor.base_url or "").removesuffix("/v1") for name, vendor in known.items()}
    if "ollama" in places and (host := environ.get("OLLAMA_HOST", "").strip()):
        places["ollama"] = _ollama_address(host)
    return {name: url for name, url in places.items() if _is_loopback(url)}


def _read_server(part: str, known: Collection[str]) -> tuple[str, str]:
    name, _, address = (piece.strip() for piece in part.partition("="))
    url = address if "://" in address else f"http://{address}"
    if name not in known or not _is_loopback(url):
        raise InvalidInput(
            f"ASTERISM_SERVERS holds {part.strip()!r}; a kind of server ({', '.join(known)}) and "
            'an address on this machine are needed, such as "ollama=127.0.0.1:11500", or "none". '
            "No server was asked."
        )
    return name, url.rstrip("/")


def _ollama_address(host: str) -> str:
    """Read OLLAMA_HOST: parts may be missing, and 0.0.0.0 means every address."""
    scheme, there, rest = host.partition("://")
    if not there:
        scheme, rest = "http", host
    port = 11434 if not there else {"https": 443}.get(scheme, 80)
    with contextlib.suppress(ValueError):
        parts = urlsplit(f"//{rest}")
        name = parts.hostname or "127.0.0.1"
        if name in ("0.0.0.0", "::"):  # noqa: S104 - where it listens; here it is asked
            name = "127.0.0.1"
        shown = f"[{name}]" if ":" in name else name
        return f"{scheme}://{shown}:{parts.port or port}"
    return ""


def _is_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
        return parts.scheme == "http" and (
            host == "localhost" or ipaddress.ip_address(host).is_loopback
        )
    except ValueError:
        return False


async def _ask(vendor: Vendor, url: str) -> AvailableModel | None:
    """Return the model that a server offers; None if no such server answers."""
    try:
        body = await _get(url, vendor.names)
        names = _names(orjson.loads(body))
    except (OSError, EOFError, ValueError, LookupError, TypeError, AttributeError):
        return None
    chatting = [name for name in names if not any(word in name.lower() for word in _NO_CHAT)]
    base_url = f"{url}/v1"
    if not chatting:
        why = f"{vendor.title} is running here, but has no model to chat with"
        return AvailableModel(f"{vendor.name}:", url, why, ready=False) if names == [] else None
    return AvailableModel(
        f"{vendor.name}:{chatting[0]}",
        url,
        f"{vendor.title} on this machine, free",
        ready=True,
        base_url=None if base_url == vendor.base_url else base_url,
        others=tuple(f"{vendor.name}:{name}" for name in chatting[1:]),
    )


def _names(answer: Any) -> list[str]:
    """Read a list of models: the `data[].id` of OpenAI's format, or Ollama's `models[].name`."""
    place, key = ("data", "id") if "data" in answer else ("models", "name")  # llama.cpp has both
    listed = cast("list[Any]", answer[place])
    names = [entry[key] for entry in listed[:_MAX_NAMES]]
    return [name for name in names if isinstance(name, str) and name and name.isprintable()]


async def _get(url: str, path: str) -> bytes:
    """Fetch a small page from a server on loopback, without a key or a cookie.

    HTTP/1.0, so that the answer comes in one piece and ends with the connection; a whole client
    would take longer to import than all servers take to answer.
    """
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 80)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if head.split(b" ", 2)[1] != b"200":
            raise ValueError
        body = b""
        while len(body) < _MAX_BYTES and (piece := await reader.read(65536)):
            body += piece
            with contextlib.suppress(ValueError):
                orjson.loads(body)  # some keep the connection open all the same
                break
        return body
    finally:
        writer.close()


QUESTION = "In one sentence: what is a constellation?"


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of asking a model once."""

    model: str
    """As `vendor:name`."""
    text: str
    first: float
    """Seconds until the first piece of the answer; of the whole one if it came in one piece."""
    seconds: float
    """Seconds until the end of the answer."""
    usage: Usage
    finish: str

    @property
    def speed(self) -> float | None:
        """Tokens per second after the answer began; None if it was too short to measure."""
        writing = self.seconds - self.first
        tokens = self.usage.output - 1
        return tokens / writing if tokens > 0 and writing > 0.001 else None


async def try_model(
    settings: Settings,
    model: str,
    *,
    question: str = QUESTION,
    most: int | None = 200,
    timeout: float = 120.0,  # noqa: ASYNC109 - the port keeps it, as for any request
    emit: Emit | None = None,
    secret: Secret = lambda _: None,
) -> Trial:
    """Ask one model, named as `vendor:name`, past all agents: no journal, no chain, no retries.

    `most` bounds the tokens of the answer, `secret` returns stored keys. Raises the model's own
    `ModelError`, or `ConfigError` when the vendor is not known.
    """
    vendor, colon, name = model.partition(":")
    if not (vendor and colon and name):
        raise InvalidInput(
            f"{model!r} is not a valid model name. Use vendor:name, such as openai:gpt-4.1-mini."
        )
    began = time.monotonic()
    first = 0.0

    def note(kind: str, piece: str) -> None:
        nonlocal first
        if not first and piece:
            first = time.monotonic() - began
        if emit is not None:
            emit(kind, piece)

    port = make_model(settings, model, secret=secret)
    try:
        messages = [message_wire("user", question)]
        request = ModelRequest(name, messages, None, "trial", timeout, max_output=most)
        reply = await port.complete(request, note)
        seconds = time.monotonic() - began
    finally:
        await port.close()
    return Trial(model, reply.text, first or seconds, seconds, reply.usage, reply.finish)
