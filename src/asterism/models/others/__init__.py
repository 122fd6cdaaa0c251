"""Vendors with a wire format of their own, asked by way of pydantic-ai: an extra, `vendors`.

Whoever speaks OpenAI's or Anthropic's format is asked without it. What pydantic-ai offers beyond
one request (agents, retries, fallbacks, telemetry) is not used. It takes a second or more to
import, so that is done on a thread when a vendor is first asked.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

import orjson

from asterism.errors import (
    ConfigError,
    KeyRefused,
    ModelBusy,
    ModelError,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models.http.endpoint import is_loopback, number_option
from asterism.models.http.trouble import Peer, shorten
from asterism.models.others.encoder import VendorEncoder
from asterism.models.others.history import ConvertedHistory, HistoryConverter
from asterism.models.others.keys import VendorKeys
from asterism.models.others.reply import ReplyCollector
from asterism.models.others.trouble import explain, missing_credentials
from asterism.models.others.vendors import (
    BEDROCK,
    COHERE,
    GOOGLE,
    MISTRAL,
    ClientOptions,
    MissingCredentials,
    VendorClient,
    VendorSpec,
)
from asterism.ports import ModelRequest

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

    from asterism.ports import Emit
    from asterism.types.turns import Reply

T = TypeVar("T")

EXTRA = "pip install 'asterism[vendors]'"
_RESERVED = frozenset(
    {"first_event_timeout", "max_retries", "request_timeout", "timeout", "tool_choice"}
)


class OtherVendor:
    """The models of one vendor, asked through its own client library.

    Options: `base_url`, `key` or `key_env` (several keys are separated by commas), `timeout`
    (seconds without a byte), and `options`, a table of pydantic-ai's model settings such as
    `temperature`, `thinking` or `google_safety_settings`.
    """

    def __init__(self, vendor: str, options: dict[str, Any], kind: VendorSpec) -> None:
        self._vendor = vendor
        self._kind = kind
        if not (find_spec("pydantic_ai") and _is_installed(kind.library)):
            raise ConfigError(
                f"The models of {kind.title} need a library that is not installed. Install it "
                f"with: {EXTRA}."
            )
        if options.get("cassette") is not None:
            raise ConfigError(
                f"The models of {kind.title} go through a library of their own, which no cassette "
                "can record or play. Take [cassette] out of asterism.toml, or use a model that "
                "speaks OpenAI's or Anthropic's wire format."
            )
        self._base_url, self._loopback = _address(vendor, options.get("base_url"))
        self._keys = VendorKeys.find(vendor, options, kind.keys, kind.api)
        self._timeout = number_option(vendor, options, "timeout", 120)
        self._settings, self._client_options = _split_options(
            vendor, options.get("options") or {}, kind
        )
        self._conversions = HistoryConverter()
        self._opening = asyncio.Lock()
        self._clients: dict[str, VendorClient] = {}
        self._models: dict[tuple[str, str], Model] = {}

    async def complete(self, request: ModelRequest, emit: Emit | None = None) -> Reply:
        """Ask the model once."""
        return await self._with_key(
            request, lambda client, key: self._ask(client, request, key, emit)
        )

    def encoder(self, model: str) -> VendorEncoder:
        """Return an encoder by its name at the vendor."""
        if not self._kind.has_encoders:
            raise ConfigError(
                f"The encoder '{self._vendor}:{model}' cannot be used, since the library for "
                f"{self._kind.title} offers none. Its server speaks OpenAI's format for them: "
                'add a table such as [models.embeddings] with api = "openai", its base_url and '
                f'key_env, and set search.encoder to "embeddings:{model}".'
            )
        return VendorEncoder(self, f"{self._vendor}:{model}")

    async def embed(self, model: str, texts: list[str], *, question: bool) -> list[Sequence[float]]:
        """Return the vectors of texts by an encoder of the vendor's."""
        request = ModelRequest(model, [], None, key="encode", timeout=self._timeout)

        async def ask(client: VendorClient, key: str) -> list[Sequence[float]]:
            assert client.make_encoder is not None
            try:
                found = await client.make_encoder(model).embed(
                    texts,
                    input_type="query" if question else "document",
                    settings={"truncate": True},
                )
                return list(found.embeddings)
            except Exception as error:  # noqa: BLE001 -- nothing but our own errors may leave
                sent = sum(map(len, texts))
                raise explain(error, self._peer(client, key), model, sent, links=False) from None

        return await self._with_key(request, ask)

    async def _with_key(
        self, request: ModelRequest, ask: Callable[[VendorClient, str], Awaitable[T]]
    ) -> T:
        """Ask with the first key that is taken."""
        if self._kind.needs_key and not self._keys.found:
            raise KeyRefused(
                f"The model '{self._vendor}:{request.model}' needs a key, but {self._keys.name} is "
                f'not set. Set it, run "asterism key set {self._vendor}", or write key = "…" under '
                f"[models.{self._vendor}] in asterism.toml."
            )
        refused: ModelError | None = None
        begun = False
        try:
            async with asyncio.timeout(request.timeout):
                for key in self._keys.usable():
                    try:
                        client = self._clients.get(key) or await self._open(request, key)
                        begun = True
                        return await ask(client, key)
                    except KeyRefused as error:
                        refused = error
                        if not self._keys.set_aside(key, float("inf")):
                            raise
                    except ModelBusy as error:
                        refused = error
                        if not self._keys.set_aside(key, error.retry_after):
                            raise
                assert refused is not None
                raise refused
        except TimeoutError:
            raise ModelUnavailable(
                f"The model '{self._vendor}:{request.model}' gave no whole answer within "
                f"{request.timeout:g} seconds. Ask again, or allow it more time.",
                slow=True,
                begun=begun,
            ) from None

    async def close(self) -> None:
        """Let go of connections."""
        clients, self._clients = self._clients, {}
        self._models.clear()
        for client in clients.values():
            with suppress(Exception):
                await client.close()

    async def _ask(
        self, client: VendorClient, request: ModelRequest, key: str, emit: Emit | None
    ) -> Reply:
        sent = sum(map(len, request.messages)) + len(request.tools or b"")
        links = False
        try:
            model = self._model(client, key, request.model)
            history = self._conversions.history(request, self._kind.api)
            links = history.links
            wishes = self._parameters(client, model, request)
            messages = _prepare(model, history, wishes)
            draft = ReplyCollector(emit)
            settings = self._request_settings(client, request)
            if emit is None:
                response = await model.request(messages, settings, wishes)
                draft.take_whole(response)
            else:
                async with model.request_stream(messages, settings, wishes) as stream:
                    async for event in stream:
                        draft.take(event)
                    response = stream.get()
            return draft.reply(response, sent, self._kind.api)
        except Exception as error:  # noqa: BLE001 -- nothing but our own errors may leave
            # Not chained: the libraries' errors carry requests, and with them the key.
            peer = self._peer(client, key)
            raise explain(error, peer, request.model, sent, links=links) from None

    def _peer(self, client: VendorClient, key: str) -> Peer:
        return Peer(self._vendor, client.address, key, self._keys.name, self._timeout)

    def _model(self, client: VendorClient, key: str, name: str) -> Model:
        model = self._models.get((key, name))
        if model is None:
            model = self._models[key, name] = client.make_model(name)
        return model

    async def _open(self, request: ModelRequest, key: str) -> VendorClient:
        place = ClientOptions(
            key, self._base_url, self._loopback, self._timeout, self._client_options
        )
        async with self._opening:
            if key in self._clients:
                return self._clients[key]
            try:
                client = await asyncio.to_thread(_open_quietly, self._kind, place)
            except MissingCredentials as error:
                raise missing_credentials(
                    error, self._vendor, request.model, self._keys.name
                ) from None
            except Exception as error:  # noqa: BLE001 -- an import may raise anything
                raise ModelRefused(
                    f"The model '{self._vendor}:{request.model}' was not asked, since the library "
                    f"of {self._kind.title} cannot be used ({type(error).__name__}: "
                    f"{shorten(str(error), 200)}). Bring it up to date with: {EXTRA}."
                ) from None
            if unknown := sorted(self._settings.keys() - client.settings):
                await client.close()
                known = ", ".join(sorted(client.settings - _RESERVED))
                raise ModelRefused(
                    f"models.{self._vendor}.options sets {unknown[0]!r}, which the models of "
                    f"{self._kind.title} do not take. They take: {known}. Correct it or take it "
                    "out; nothing was asked."
                )
            self._clients[key] = client
            return client

    def _parameters(
        self, client: VendorClient, model: Model, request: ModelRequest
    ) -> ModelRequestParameters:
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition

        tools = self._conversions.tools(request.tools)
        if request.schema is None:
            return ModelRequestParameters(function_tools=tools)
        keeps = client.enforces_schema(model.profile, bool(tools))
        return ModelRequestParameters(
            function_tools=tools,
            output_mode="native" if keeps else "prompted",
            output_object=OutputObjectDefinition(orjson.loads(request.schema), name="answer"),
        )

    def _request_settings(self, client: VendorClient, request: ModelRequest) -> ModelSettings:
        settings = {**client.default_settings, **self._settings}
        if request.max_output is not None:
            bound: int = settings.get("max_tokens") or request.max_output
            settings["max_tokens"] = min(bound, request.max_output)
        if request.tools and request.tools != b"[]" and request.tool_choice != "auto":
            choice = request.tool_choice
            settings["tool_choice"] = choice if choice in {"none", "required"} else [choice]
        return cast("ModelSettings", settings)


google = partial(OtherVendor, kind=GOOGLE)
mistral = partial(OtherVendor, kind=MISTRAL)
cohere = partial(OtherVendor, kind=COHERE)
bedrock = partial(OtherVendor, kind=BEDROCK)


def _prepare(
    model: Model, history: ConvertedHistory, wishes: ModelRequestParameters
) -> list[ModelMessage]:
    """Make the history fit for a vendor, where pydantic-ai has to do so.

    It also tells the model how to read what the system says later on, in words of its own, so it
    is left alone where nothing of the kind is said.
    """
    profile = model.profile
    inline = bool(profile.get("supports_inline_system_prompts"))
    if inline or history.late or profile.get("tool_call_id_length") is not None:
        return model.prepare_messages(history.messages, wishes)
    return history.messages


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def _open_quietly(kind: VendorSpec, place: ClientOptions) -> VendorClient:
    with warnings.catch_warnings():
        # Of the libraries' own code, on import; nobody here can do anything about it.
        warnings.simplefilter("ignore")
        return kind.open(place)


def _address(vendor: str, base_url: str | None) -> tuple[str | None, bool]:
    """Return the address as it is given, and whether it is on this machine."""
    if not base_url:
        return None, False
    with suppress(ValueError):
        parts = urlsplit(base_url)
        sound = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        if sound and "@" not in parts.netloc:
            return base_url.rstrip("/"), is_loopback(parts.hostname or "")
    shown = shorten(base_url.rpartition("@")[2])
    raise ConfigError(
        f"models.{vendor}.base_url is {shown!r}; the address of a server is needed, without user "
        "or password, such as http://127.0.0.1:8080."
    )


def _split_options(
    vendor: str, options: Mapping[str, Any], kind: VendorSpec
) -> tuple[dict[str, Any], dict[str, str]]:
    """Part the settings of requests from those of the client."""
    if taken := sorted(_RESERVED & options.keys()):
        raise ConfigError(
            f"models.{vendor}.options sets {taken[0]!r}, which asterism sets by itself. Take it "
            "out; settings such as temperature or max_tokens belong there."
        )
    own = {name: options[name] for name in kind.client_options & options.keys()}
    for name, value in own.items():
        if not isinstance(value, str):
            raise ConfigError(
                f"models.{vendor}.options.{name} is {value!r}; a name in quotes is needed."
            )
    return {name: value for name, value in options.items() if name not in own}, own
