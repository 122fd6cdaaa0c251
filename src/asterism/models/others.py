"""Vendors with a wire format of their own, asked by way of pydantic-ai: an extra, `vendors`.

Whoever speaks OpenAI's or Anthropic's format is asked without it. What pydantic-ai offers beyond
one request (agents, retries, fallbacks, telemetry) is not used. It takes a second or more to
import, so that is done on a thread when a vendor is first asked.
"""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson

from asterism.errors import (
    ConfigError,
    ModelGarbled,
    ModelRefused,
    ModelUnavailable,
)
from asterism.models.endpoint import (
    CONNECT_SECONDS,
    Peer,
    VendorKeys,
    is_loopback,
    number_option,
    shorten,
    split_address,
)
from asterism.models.others_messages import (
    ConvertedHistory,
    HistoryConverter,
    ReplyCollector,
    explain,
    missing_credentials,
)
from asterism.ports import ModelRequest
from asterism.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from httpx2 import AsyncClient
    from numpy.typing import NDArray
    from pydantic_ai.embeddings import EmbeddingModel
    from pydantic_ai.messages import ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.profiles import ModelProfile
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
        base_url: str | None = options.get("base_url") or None
        host = split_address(vendor, base_url).hostname if base_url else None
        self._base_url = base_url and base_url.rstrip("/")
        self._loopback = is_loopback(host or "")
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
                result = await client.make_encoder(model).embed(
                    texts,
                    input_type="query" if question else "document",
                    settings={"truncate": True},
                )
                return list(result.embeddings)
            except Exception as error:  # noqa: BLE001 -- nothing but our own errors may leave
                sent = sum(map(len, texts))
                raise explain(error, self._peer(client, key), model, sent, links=False) from None

        return await self._with_key(request, ask)

    async def _with_key(
        self, request: ModelRequest, ask: Callable[[VendorClient, str], Awaitable[T]]
    ) -> T:
        """Ask with the first key that is taken."""
        if self._kind.needs_key and not self._keys.all:
            raise self._keys.missing(request.model)
        begun = False

        async def ask_with(key: str) -> T:
            nonlocal begun
            client = self._clients.get(key) or await self._open(request, key)
            begun = True
            return await ask(client, key)

        try:
            async with asyncio.timeout(request.timeout):
                return await self._keys.ask_with_each(ask_with)
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
            parameters = self._parameters(client, model, request)
            messages = _prepare(model, history, parameters)
            draft = ReplyCollector(emit)
            settings = self._request_settings(client, request)
            if emit is None:
                response = await model.request(messages, settings, parameters)
                draft.take_whole(response)
            else:
                async with model.request_stream(messages, settings, parameters) as stream:
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
        options = ClientOptions(
            key, self._base_url, self._loopback, self._timeout, self._client_options
        )
        async with self._opening:
            if key in self._clients:
                return self._clients[key]
            try:
                client = await asyncio.to_thread(_open_quietly, self._kind, options)
            except MissingCredentials as error:
                raise missing_credentials(
                    str(error), self._vendor, request.model, self._keys.name
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


def _prepare(
    model: Model, history: ConvertedHistory, parameters: ModelRequestParameters
) -> list[ModelMessage]:
    """Make the history fit for a vendor, where pydantic-ai has to do so.

    It also tells the model how to read what the system says later on, in words of its own, so it
    is left alone where nothing of the kind is said.
    """
    profile = model.profile
    inline = bool(profile.get("supports_inline_system_prompts"))
    if inline or history.late or profile.get("tool_call_id_length") is not None:
        return model.prepare_messages(history.messages, parameters)
    return history.messages


def _is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def _open_quietly(kind: VendorSpec, options: ClientOptions) -> VendorClient:
    with warnings.catch_warnings():
        # Of the libraries' own code, on import; nobody here can do anything about it.
        warnings.simplefilter("ignore")
        return kind.open(options)


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


_AT_ONCE = 64


class VendorEncoder:
    """An encoder by its name as `vendor:name`."""

    def __init__(self, port: OtherVendor, name: str) -> None:
        self.name = name
        self._port = port

    async def encode(self, texts: Sequence[str], *, question: bool = False) -> NDArray[np.float32]:
        """Return a vector of length 1 for each text, a row each; zeros for one without words."""
        import numpy as np

        with_words = [row for row, text in enumerate(texts) if text.strip()]
        vectors: list[Sequence[float]] = []
        for first in range(0, len(with_words), _AT_ONCE):
            some = [texts[row] for row in with_words[first : first + _AT_ONCE]]
            vectors += await self._port.embed(self.name.partition(":")[2], some, question=question)
        if not with_words:
            return np.zeros((len(texts), 0), dtype=np.float32)
        sizes = {len(vector) for vector in vectors}
        if len(vectors) != len(with_words) or len(sizes) != 1:
            raise ModelGarbled(
                f"The model {self.name!r} gave {len(vectors)} vectors for {len(with_words)} texts, "
                "or vectors of several sizes. Nothing of it was kept."
            )
        rows = np.array(vectors, dtype=np.float32)
        matrix = np.zeros((len(texts), rows.shape[1]), dtype=np.float32)
        matrix[with_words] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
        return matrix

    async def close(self) -> None:
        """Let go of connections."""
        await self._port.close()


_MAX_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Where a vendor is asked, with which key, and how patiently."""

    key: str
    """Empty where the vendor's library looks for credentials by itself."""
    base_url: str | None
    loopback: bool
    timeout: float
    extra: Mapping[str, str]
    """Settings of the vendor's client, such as the region."""


def _supports_schemas(profile: ModelProfile, has_tools: bool) -> bool:  # noqa: ARG001 -- the seam
    return bool(profile.get("supports_json_schema_output", False))


async def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class VendorClient:
    """A vendor's client that is open."""

    address: str
    make_model: Callable[[str], Model]
    """Makes the model of a name."""
    settings: frozenset[str]
    """The settings that requests can have."""
    default_settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings that each request has."""
    make_encoder: Callable[[str], EmbeddingModel] | None = None
    """Makes the encoder of a name, where the library has any."""
    close: Callable[[], Awaitable[None]] = _nothing
    enforces_schema: Callable[[ModelProfile, bool], bool] = _supports_schemas
    """Whether a model keeps to a schema by itself, with or without tools; others are told to."""


class MissingCredentials(Exception):
    """The vendor's library finds nothing to prove who asks."""


@dataclass(frozen=True, slots=True)
class VendorSpec:
    """One vendor: what it is called here, what it needs, and how a client is opened."""

    api: str
    title: str
    library: str
    """The module that must be installed."""
    keys: tuple[str, ...]
    """Environment variables that may hold the key; the first that is set is used."""
    open: Callable[[ClientOptions], VendorClient]
    """Imports what is needed and opens a client; slow, so it is called on a thread."""
    has_encoders: bool = True
    client_options: frozenset[str] = frozenset()
    """Options that are the client's and no request's."""
    needs_key: bool = True


def _open_google(options: ClientOptions) -> VendorClient:
    from pydantic_ai.embeddings.google import GoogleEmbeddingModel
    from pydantic_ai.models.google import GoogleModel, GoogleModelSettings
    from pydantic_ai.providers.google import GoogleProvider

    http = _open_http(options)
    provider = GoogleProvider(api_key=options.key, base_url=options.base_url, http_client=http)

    async def close() -> None:
        await http.aclose()
        provider.client.close()

    def keeps_schema(profile: ModelProfile, has_tools: bool) -> bool:
        # Gemini before 3 takes a schema or tools, and not both at once.
        both = bool(cast("Mapping[str, Any]", profile).get("google_supports_tool_combination"))
        return _supports_schemas(profile, has_tools) and (both or not has_tools)

    return VendorClient(
        address=provider.base_url.rstrip("/"),
        make_model=lambda name: GoogleModel(name, provider=provider),
        settings=_settings(GoogleModelSettings, GoogleModel),
        default_settings={"max_retries": 0, "timeout": options.timeout},
        make_encoder=lambda name: GoogleEmbeddingModel(name, provider=provider),
        close=close,
        enforces_schema=keeps_schema,
    )


def _open_mistral(options: ClientOptions) -> VendorClient:
    from pydantic_ai.models.mistral import MistralModel, MistralModelSettings
    from pydantic_ai.providers.mistral import MistralProvider

    http = _open_http(options)
    provider = MistralProvider(api_key=options.key, base_url=options.base_url, http_client=http)
    return VendorClient(
        address=provider.base_url.rstrip("/"),
        make_model=lambda name: MistralModel(name, provider=provider),
        settings=_settings(MistralModelSettings, MistralModel),
        default_settings={"max_retries": 0, "timeout": options.timeout},
        close=http.aclose,
    )


def _open_cohere(options: ClientOptions) -> VendorClient:
    import httpx
    from cohere import AsyncClientV2
    from pydantic_ai.embeddings.cohere import CohereEmbeddingModel
    from pydantic_ai.models.cohere import CohereModel, CohereModelSettings
    from pydantic_ai.providers.cohere import CohereProvider

    # Cohere's client is written for httpx, and gives each request a timeout of its own.
    timeout = httpx.Timeout(options.timeout, connect=CONNECT_SECONDS)
    http = httpx.AsyncClient(timeout=timeout, trust_env=not options.loopback)
    client = AsyncClientV2(
        api_key=options.key,
        base_url=options.base_url,
        client_name="asterism",
        timeout=options.timeout,
        httpx_client=http,
        log_warning_experimental_features=False,
    )
    provider = CohereProvider(cohere_client=client)
    return VendorClient(
        address=provider.base_url.rstrip("/"),
        make_model=lambda name: CohereModel(name, provider=provider),
        settings=_settings(CohereModelSettings, CohereModel),
        default_settings={"max_retries": 0},
        make_encoder=lambda name: CohereEmbeddingModel(name, provider=provider),
        close=http.aclose,
    )


def _open_bedrock(options: ClientOptions) -> VendorClient:
    from pydantic_ai.embeddings.bedrock import BedrockEmbeddingModel
    from pydantic_ai.models.bedrock import BedrockConverseModel, BedrockModelSettings
    from pydantic_ai.providers.bedrock import BedrockProvider

    # Amazon's libraries have no types.
    boto3, botocore = import_module("boto3"), import_module("botocore.session")
    exceptions, tokens = import_module("botocore.exceptions"), import_module("botocore.tokens")
    config: dict[str, Any] = {
        "read_timeout": options.timeout,
        "connect_timeout": CONNECT_SECONDS,
        "max_pool_connections": _MAX_CONNECTIONS,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
    }
    if options.loopback:
        config["proxies"] = {}
    inner = botocore.Session()
    if options.key:
        config["signature_version"] = "bearer"
        # What botocore would read from AWS_BEARER_TOKEN_BEDROCK; ours may stand elsewhere.
        token = tokens.FrozenAuthToken(options.key)

        def get_auth_token(**_: object) -> object:
            return token

        inner.get_auth_token = get_auth_token
    try:
        session = boto3.Session(
            botocore_session=inner,
            region_name=options.extra.get("region")
            or os.environ.get("AWS_DEFAULT_REGION")
            or os.environ.get("AWS_REGION")
            or None,
            profile_name=options.extra.get("profile"),
        )
        if not session.region_name:
            raise MissingCredentials("no AWS region is named")
        if not options.key and session.get_credentials() is None:
            raise MissingCredentials("no AWS credentials are found")
        runtime = session.client(
            "bedrock-runtime",
            config=import_module("botocore.config").Config(**config),
            endpoint_url=options.base_url,
        )
    except exceptions.BotoCoreError as error:
        raise MissingCredentials(str(error).rstrip(".")) from None
    provider = BedrockProvider(bedrock_client=runtime)

    async def close() -> None:
        runtime.close()

    return VendorClient(
        address=provider.base_url.rstrip("/"),
        make_model=lambda name: BedrockConverseModel(name, provider=provider),
        settings=_settings(BedrockModelSettings, BedrockConverseModel),
        # Models that cannot mark what is to be cached leave it out.
        default_settings={"cache": True},
        make_encoder=lambda name: BedrockEmbeddingModel(name, provider=provider),
        close=close,
    )


def _open_http(options: ClientOptions) -> AsyncClient:
    import httpx2
    from pydantic_ai.models import create_async_httpx2_client

    async def sign(request: httpx2.Request) -> None:
        # Google's library sends this header twice, which strict servers refuse (seen 2026-11).
        request.headers["User-Agent"] = "asterism"

    # A transport of one's own means no proxy, which none on this machine is asked through.
    client = create_async_httpx2_client(
        timeout=httpx2.Timeout(options.timeout, connect=CONNECT_SECONDS),
        transport=httpx2.AsyncHTTPTransport() if options.loopback else None,
    )
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "request": [*hooks["request"], sign]}
    return client


def _settings(known: Any, model: type[Model]) -> frozenset[str]:
    names: frozenset[str] = known.__optional_keys__ | known.__required_keys__
    return names - model.unsupported_settings


GOOGLE = VendorSpec(
    api="google",
    title="Google",
    library="google.genai",
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    open=_open_google,
)
MISTRAL = VendorSpec(
    api="mistral",
    title="Mistral",
    library="mistralai",
    keys=("MISTRAL_API_KEY",),
    open=_open_mistral,
    has_encoders=False,
)
COHERE = VendorSpec(
    api="cohere",
    title="Cohere",
    library="cohere",
    keys=("CO_API_KEY", "COHERE_API_KEY"),
    open=_open_cohere,
)
BEDROCK = VendorSpec(
    api="bedrock",
    title="Amazon Bedrock",
    library="boto3",
    keys=("AWS_BEARER_TOKEN_BEDROCK",),
    open=_open_bedrock,
    client_options=frozenset({"profile", "region"}),
    needs_key=False,
)

google = partial(OtherVendor, kind=GOOGLE)
mistral = partial(OtherVendor, kind=MISTRAL)
cohere = partial(OtherVendor, kind=COHERE)
bedrock = partial(OtherVendor, kind=BEDROCK)
