"""The bodies of `POST /v1/completions`, as OpenAI's clients write and read them."""

from typing import Annotated, Any, Literal

import msgspec

from orchestrator.products.server.openai.chat.bodies import ChatUsage, StreamOptions
from orchestrator.products.server.openai.choices import MOST_CHOICES
from orchestrator.products.server.operation import UNSUPPORTED


class CompletionRequest(msgspec.Struct, kw_only=True):
    """A request for the text that follows a prompt: an agent answers it as a user's message."""

    model: str
    """The name of an agent."""
    prompt: (
        str | Annotated[list[str | int | list[int]], msgspec.Meta(min_length=1, max_length=2_048)]
    )
    """A text, or several: each has choices of its own. Tokens are refused."""
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] | None = None
    """How many answers to each prompt: each is a run of the agent."""
    best_of: int | None = None
    """No more than `n`: answers are not compared."""
    echo: bool | None = None
    """Whether the text begins with the prompt."""
    suffix: Annotated[str | None, UNSUPPORTED] = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    user: str | None = None
    """Whom the client asks for: kept with the run."""


class TextChoice(msgspec.Struct, kw_only=True):
    """One text, or a piece of it."""

    text: str
    index: int
    finish_reason: Literal["stop", "length", "content_filter"] | None = None
    logprobs: dict[str, Any] | None = None


class TextCompletion(msgspec.Struct, kw_only=True):
    """The texts, or a piece of one in a stream."""

    id: str
    created: int
    model: str
    choices: list[TextChoice]
    run_id: str
    """Where the tree of the first choice is: `/v1/runs/{run_id}/tree`."""
    usage: ChatUsage | msgspec.UnsetType | None = msgspec.UNSET
    object: Literal["text_completion"] = "text_completion"
