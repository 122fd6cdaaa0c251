"""The vendors that are asked by way of pydantic-ai, and how a client is opened for each."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from asterism.models.http.trouble import CONNECT_SECONDS

if TYPE_CHECKING:
    from httpx2 import AsyncClient
    from pydantic_ai.embeddings import EmbeddingModel
    from pydantic_ai.models import Model
    from pydantic_ai.profiles import ModelProfile

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


def _open_google(place: ClientOptions) -> VendorClient:
    from pydantic_ai.embeddings.google import GoogleEmbeddingModel
    from pydantic_ai.models.google import GoogleModel, GoogleModelSettings
    from pydantic_ai.providers.google import GoogleProvider

    http = _open_http(place)
    provider = GoogleProvider(api_key=place.key, base_url=place.base_url, http_client=http)

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
        default_settings={"max_retries": 0, "timeout": place.timeout},
        make_encoder=lambda name: GoogleEmbeddingModel(name, provider=provider),
        close=close,
        enforces_schema=keeps_schema,
    )


def _open_mistral(place: ClientOptions) -> VendorClient:
    from pydantic_ai.models.mistral import MistralModel, MistralModelSettings
    from pydantic_ai.providers.mistral import MistralProvider

    http = _open_http(place)
    provider = MistralProvider(api_key=place.key, base_url=place.base_url, http_client=http)
    return VendorClient(
        address=provider.base_url.rstrip("/"),
        make_model=lambda name: MistralModel(name, provider=provider),
        settings=_settings(MistralModelSettings, MistralModel),
        default_settings={"max_retries": 0, "timeout": place.timeout},
        close=http.aclose,
    )


def _open_cohere(place: ClientOptions) -> VendorClient:
    import httpx
    from cohere import AsyncClientV2
    from pydantic_ai.embeddings.cohere import CohereEmbeddingModel
    from pydantic_ai.models.cohere import CohereModel, CohereModelSettings
    from pydantic_ai.providers.cohere import CohereProvider

    # Cohere's client is written for httpx, and gives each request a timeout of its own.
    timeout = httpx.Timeout(place.timeout, connect=CONNECT_SECONDS)
    http = httpx.AsyncClient(timeout=timeout, trust_env=not place.loopback)
    client = AsyncClientV2(
        api_key=place.key,
        base_url=place.base_url,
        client_name="asterism",
        timeout=place.timeout,
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


def _open_bedrock(place: ClientOptions) -> VendorClient:
    from pydantic_ai.embeddings.bedrock import BedrockEmbeddingModel
    from pydantic_ai.models.bedrock import BedrockConverseModel, BedrockModelSettings
    from pydantic_ai.providers.bedrock import BedrockProvider

    # Amazon's libraries have no types.
    boto3, botocore = import_module("boto3"), import_module("botocore.session")
    troubles, tokens = import_module("botocore.exceptions"), import_module("botocore.tokens")
    wishes: dict[str, Any] = {
        "read_timeout": place.timeout,
        "connect_timeout": CONNECT_SECONDS,
        "max_pool_connections": _MAX_CONNECTIONS,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
    }
    if place.loopback:
        wishes["proxies"] = {}
    inner = botocore.Session()
    if place.key:
        wishes["signature_version"] = "bearer"
        # What botocore would read from AWS_BEARER_TOKEN_BEDROCK; ours may stand elsewhere.
        token = tokens.FrozenAuthToken(place.key)

        def get_auth_token(**_: object) -> object:
            return token

        inner.get_auth_token = get_auth_token
    try:
        session = boto3.Session(
            botocore_session=inner,
            region_name=place.extra.get("region")
            or os.environ.get("AWS_DEFAULT_REGION")
            or os.environ.get("AWS_REGION")
            or None,
            profile_name=place.extra.get("profile"),
        )
        if not session.region_name:
            raise MissingCredentials("no AWS region is named")
        if not place.key and session.get_credentials() is None:
            raise MissingCredentials("no AWS credentials are found")
        runtime = session.client(
            "bedrock-runtime",
            config=import_module("botocore.config").Config(**wishes),
            endpoint_url=place.base_url,
        )
    except troubles.BotoCoreError as error:
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


def _open_http(place: ClientOptions) -> AsyncClient:
    import httpx2
    from pydantic_ai.models import create_async_httpx2_client

    async def sign(request: httpx2.Request) -> None:
        # Google's library sends this header twice, which strict servers refuse (seen 2026-11).
        request.headers["User-Agent"] = "asterism"

    # A transport of one's own means no proxy, which none on this machine is asked through.
    client = create_async_httpx2_client(
        timeout=httpx2.Timeout(place.timeout, connect=CONNECT_SECONDS),
        transport=httpx2.AsyncHTTPTransport() if place.loopback else None,
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
