"""The services that run models, as data: address, key, protocol, and where each departs from it.

A service that speaks one of the three protocols is a row here, or a row of the user's own.
"""

import enum
from collections.abc import Callable, Mapping
from typing import Final, Literal

import attrs

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.models import settings_rules
from orchestrator.agents.models.model import Price


class WireProtocol(enum.StrEnum):
    """The protocols that we speak."""

    CHAT = "chat"
    """OpenAI's chat completions, as most servers have them."""
    RESPONSES = "responses"
    """OpenAI's responses."""
    MESSAGES = "messages"
    """Anthropic's messages."""


class Login(enum.StrEnum):
    """How a request says who makes it."""

    BEARER = "bearer"
    API_KEY = "api-key"
    X_API_KEY = "x-api-key"
    AWS = "aws"
    """Signed with the keys of an AWS account, or with a bearer key of Bedrock."""
    GOOGLE = "google"
    """A token of Google Cloud, which ends after an hour and is asked for again."""


@attrs.frozen(kw_only=True)
class Quirks:
    """Where a server departs from its protocol."""

    limit_field: Literal["max_tokens", "max_completion_tokens", "by host"] = "max_tokens"
    """The field that limits an answer. OpenAI's newer models refuse the old name, and many other
    servers know only that one, also those at an address in place of OpenAI's."""
    seed_field: str = "seed"
    effort: Literal["reasoning_effort", "reasoning", "thinking"] = "reasoning_effort"
    """How an effort is said: as a word, in an object, or with a switch beside it."""
    asks_for_usage: bool = True
    """Whether it takes `stream_options`; any other service reports its usage anyway."""
    has_json_schema: bool = True
    """Whether it keeps an answer to a schema; otherwise the instructions have the schema."""
    call_id_length: int | None = None
    """The exact length of the call ids that it takes, in letters and digits."""
    reasoning_field: Literal["reasoning_content", "reasoning_details"] | None = None
    """The field that carries its reasoning back together with the resulting calls."""
    has_parts_in_results: bool = False
    """Whether the answer of a tool may have images; else they follow in a message of the user."""
    has_cache_key: bool = False
    """Whether it takes `prompt_cache_key`; OpenAI's own servers do."""
    reports_cost: bool = False
    """Whether it reports the cost of a call in dollars."""
    anthropic_version: str = ""
    """The version in the body, where the address has the model."""


NO_QUIRKS: Final = Quirks()


@attrs.frozen(kw_only=True)
class Provider:
    """A service that runs models, and the settings to use it."""

    protocol: WireProtocol = attrs.field(converter=WireProtocol)
    default_url: str
    """The base URL of the service itself; `{region}` stands for what `address` says."""
    key_variable: str = ""
    """The environment variable with the key; empty if it needs none."""
    base_url_variable: str = ""
    """The environment variable with the base URL of another server of the same protocol."""
    extra: str = "openai"
    """The extra of this package that installs its client."""
    login: Login = Login.BEARER
    address: Mapping[str, tuple[str, ...]] = {}
    """The parts of the address, each with the environment variables that may have it."""
    path: str = ""
    """The path after the base URL, if it differs from the protocol's."""
    headers: Mapping[str, str] = {}
    """Sent with every request."""
    quirks: Quirks = NO_QUIRKS
    settings: settings_rules.SettingsRules = settings_rules.CHAT_RULES
    """The `ModelSettings` that it supports."""
    price: Price | None = None
    """The prices of its models, unless the program has its own."""
    token: Callable[[], str] | None = None
    """Gives a token for each request, in a thread: it may wait. It takes the place of the key."""

    def has_custom_url(self, environ: Mapping[str, str]) -> bool:
        """Return whether another server is configured in place of the service."""
        url = environ.get(self.base_url_variable, "").strip().rstrip("/")
        return url not in {"", self.default_url}

    def base_url(self, name: str, environ: Mapping[str, str]) -> str:
        """Return where the service is, for a model of this name."""
        if url := environ.get(self.base_url_variable, "").strip():
            return url
        parts = {
            part: _first(f"model {name!r} needs {part}", variables, environ)
            for part, variables in self.address.items()
        }
        url = self.default_url.format(**parts)
        # The only region of Google's that is no part of the host.
        return url.replace("//global-aiplatform.", "//aiplatform.")


def _first(needs: str, variables: tuple[str, ...], environ: Mapping[str, str]) -> str:
    for variable in variables:
        if value := environ.get(variable, "").strip().rstrip("/"):
            return value
    raise DefinitionError(f"{needs}: set {' or '.join(variables)}")


def _chat(
    url: str,
    variable: str,
    quirks: Quirks = NO_QUIRKS,
    *,
    cannot: frozenset[str] = settings_rules.CHAT_RULES.cannot,
    efforts: frozenset[str] = settings_rules.CHAT_RULES.efforts,
) -> Provider:
    return Provider(
        protocol=WireProtocol.CHAT,
        default_url=url,
        key_variable=f"{variable}_API_KEY",
        base_url_variable=f"{variable}_BASE_URL",
        quirks=quirks,
        settings=attrs.evolve(settings_rules.CHAT_RULES, cannot=cannot, efforts=efforts),
    )


_AZURE: Final = Provider(
    protocol=WireProtocol.CHAT,
    default_url="{endpoint}/openai/v1",
    key_variable="AZURE_OPENAI_API_KEY",
    base_url_variable="AZURE_OPENAI_BASE_URL",
    login=Login.API_KEY,
    address={"endpoint": ("AZURE_OPENAI_ENDPOINT",)},
    quirks=Quirks(limit_field="max_completion_tokens", has_cache_key=True),
)
_OPENAI: Final = Provider(
    protocol=WireProtocol.CHAT,
    default_url="https://api.openai.com/v1",
    key_variable="OPENAI_API_KEY",
    base_url_variable="OPENAI_BASE_URL",
    quirks=Quirks(limit_field="by host"),
)
_GOOGLE_CLOUD: Final = {
    "project": ("GOOGLE_CLOUD_PROJECT", "ANTHROPIC_VERTEX_PROJECT_ID"),
    "region": ("GOOGLE_CLOUD_LOCATION", "CLOUD_ML_REGION"),
}
_GOOGLE_URL: Final = (
    "https://{region}-aiplatform.googleapis.com/v1/projects/{project}/locations/{region}"
)
_VERTEX: Final = Provider(
    protocol=WireProtocol.MESSAGES,
    default_url=_GOOGLE_URL,
    key_variable="GOOGLE_CLOUD_ACCESS_TOKEN",
    base_url_variable="VERTEX_BASE_URL",
    extra="anthropic",
    login=Login.GOOGLE,
    address=_GOOGLE_CLOUD,
    path="/publishers/anthropic/models/{model}:streamRawPredict",
    quirks=Quirks(anthropic_version="vertex-2023-10-16", has_json_schema=False),
    settings=settings_rules.MESSAGES_RULES,
)

PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai": _OPENAI,
    "openai-responses": attrs.evolve(
        _OPENAI, protocol=WireProtocol.RESPONSES, settings=settings_rules.RESPONSES_RULES
    ),
    "anthropic": Provider(
        protocol=WireProtocol.MESSAGES,
        default_url="https://api.anthropic.com",
        key_variable="ANTHROPIC_API_KEY",
        base_url_variable="ANTHROPIC_BASE_URL",
        extra="anthropic",
        login=Login.X_API_KEY,
        settings=settings_rules.MESSAGES_RULES,
    ),
    "gemini": _chat(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI",
        efforts=frozenset({"none", "minimal", "low", "medium", "high"}),
    ),
    "ollama": _chat("http://localhost:11434/v1", "OLLAMA"),
    "openrouter": _chat(
        "https://openrouter.ai/api/v1",
        "OPENROUTER",
        Quirks(effort="reasoning", reasoning_field="reasoning_details", reports_cost=True),
    ),
    "groq": _chat("https://api.groq.com/openai/v1", "GROQ"),
    "mistral": _chat(
        "https://api.mistral.ai/v1",
        "MISTRAL",
        # It refuses fields that it does not know.
        Quirks(
            seed_field="random_seed",
            asks_for_usage=False,
            call_id_length=9,
            has_cache_key=True,
            # A message of the user cannot follow the answer of a tool there.
            has_parts_in_results=True,
        ),
        efforts=frozenset({"none", "high"}),
    ),
    "deepseek": _chat(
        "https://api.deepseek.com/v1",
        "DEEPSEEK",
        Quirks(effort="thinking", has_json_schema=False, reasoning_field="reasoning_content"),
        cannot=frozenset({"seed", "parallel_tool_calls"}),
    ),
    "xai": _chat("https://api.x.ai/v1", "XAI"),
    "together": _chat("https://api.together.xyz/v1", "TOGETHER"),
    "azure": _AZURE,
    "azure-responses": attrs.evolve(
        _AZURE, protocol=WireProtocol.RESPONSES, settings=settings_rules.RESPONSES_RULES
    ),
    "bedrock": Provider(
        protocol=WireProtocol.MESSAGES,
        default_url="https://bedrock-runtime.{region}.amazonaws.com",
        key_variable="AWS_ACCESS_KEY_ID",
        base_url_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        extra="anthropic",
        login=Login.AWS,
        address={"region": ("AWS_REGION", "AWS_DEFAULT_REGION")},
        path="/model/{model}/invoke-with-response-stream",
        quirks=Quirks(anthropic_version="bedrock-2023-05-31", has_json_schema=False),
        settings=settings_rules.MESSAGES_RULES,
    ),
    "vertex": _VERTEX,
    "vertex-openai": attrs.evolve(
        _VERTEX,
        protocol=WireProtocol.CHAT,
        default_url=f"{_GOOGLE_URL}/endpoints/openapi",
        extra="openai",
        path="",
        quirks=Quirks(),
        settings=settings_rules.CHAT_RULES,
    ),
}
