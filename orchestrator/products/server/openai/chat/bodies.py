"""The bodies of `POST /v1/chat/completions`; `request.py` refuses unsupported fields."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from orchestrator.agents import Usage
from orchestrator.products.server.api.bodies import Metadata
from orchestrator.products.server.openai.answer_format import ChatFormat
from orchestrator.products.server.openai.choices import MOST_CHOICES
from orchestrator.products.server.openai.client_content import Refusal, TextPart
from orchestrator.products.server.openai.client_tools import AnyText, GrammarText, Syntax
from orchestrator.products.server.openai.logprobs import ChatLogprobs
from orchestrator.products.server.operation import UNSUPPORTED
from orchestrator.products.server.transport.json_body import MOST_MESSAGES, MOST_PIECES

RequestMessage: TypeAlias = "System | Developer | User | Assistant | ToolAnswer | FunctionAnswer"


class ImageUrl(msgspec.Struct):
    url: str


class ImagePart(msgspec.Struct, tag_field="type", tag="image_url"):
    image_url: ImageUrl


class File(msgspec.Struct):
    file_data: str | None = None
    """A data: URL, or the bytes of the file in base64."""
    filename: str = ""
    file_id: str | None = None


class FilePart(msgspec.Struct, tag_field="type", tag="file"):
    file: File


class AudioPart(msgspec.Struct, tag_field="type", tag="input_audio"):
    """Decoded only to be refused with an error of its own."""


Texts: TypeAlias = str | list[TextPart]
Parts: TypeAlias = str | list[TextPart | ImagePart | FilePart | AudioPart]


class System(msgspec.Struct, tag_field="role", tag="system"):
    content: Texts


class Developer(msgspec.Struct, tag_field="role", tag="developer"):
    content: Texts


class User(msgspec.Struct, tag_field="role", tag="user"):
    content: Parts


class Function(msgspec.Struct):
    name: str
    arguments: str
    """JSON text."""


class FunctionCall(msgspec.Struct, kw_only=True, tag_field="type", tag="function"):
    id: str
    function: Function


class CustomInput(msgspec.Struct):
    name: str
    input: str


class CustomCall(msgspec.Struct, kw_only=True, tag_field="type", tag="custom"):
    """A call of a tool that takes one text."""

    id: str
    custom: CustomInput


Call: TypeAlias = FunctionCall | CustomCall


class Assistant(msgspec.Struct, tag_field="role", tag="assistant"):
    content: str | list[TextPart | Refusal] | None = None
    tool_calls: list[Call] | None = None
    function_call: Function | None = None
    """The older form of a call, without an id."""


class ToolAnswer(msgspec.Struct, tag_field="role", tag="tool"):
    content: Parts
    tool_call_id: str


class FunctionAnswer(msgspec.Struct, tag_field="role", tag="function"):
    """The older form of a result; it belongs to the last call of that function."""

    name: str
    content: str | None


class FunctionSpec(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """The JSON schema of its arguments."""


class Grammar(msgspec.Struct, kw_only=True):
    definition: GrammarText
    syntax: Syntax


class ChatGrammar(msgspec.Struct, tag_field="type", tag="grammar"):
    """The input of a custom tool fits a grammar."""

    grammar: Grammar


class CustomSpec(msgspec.Struct):
    name: str
    description: str | None = None
    format: AnyText | ChatGrammar | None = None


class ChatTool(msgspec.Struct, kw_only=True):
    """A tool that the client runs itself."""

    type: str
    """`function` or `custom`; others are refused, or ignored if the server has that option."""
    function: FunctionSpec | None = None
    custom: CustomSpec | None = None


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool = False


class SampledRequest(msgspec.Struct, kw_only=True):
    """The parameters that chat completions share with completions of a prompt."""

    model: str
    """The name of an agent."""
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
    """The client's own user, kept with the run."""


class ChatRequest(SampledRequest, kw_only=True):
    """A request for a chat completion."""

    messages: Annotated[list[RequestMessage], msgspec.Meta(min_length=1, max_length=MOST_MESSAGES)]
    include_reasoning: bool | None = None
    """Send the reasoning as `reasoning_content`; a stream also tells about delegations."""
    tools: Annotated[list[ChatTool], msgspec.Meta(max_length=MOST_PIECES)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    """`auto`, `none`, `required`, or an object that names a tool."""
    parallel_tool_calls: bool | None = None
    max_completion_tokens: int | None = None
    reasoning_effort: str | None = None
    metadata: Metadata | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] | None = None
    """The number of answers: each is a run of the agent."""
    store: bool | None = None
    """Whether the completion can be retrieved later; false by default."""
    logprobs: bool | None = None
    """Whether the answer has the log probabilities of its tokens, if the model reports them."""
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    response_format: ChatFormat | None = None
    """The format that the answer has to fit, instead of the agent's own."""
    modalities: list[str] | None = None
    audio: Annotated[dict[str, Any] | None, UNSUPPORTED] = None
    functions: Annotated[list[FunctionSpec], msgspec.Meta(max_length=MOST_PIECES)] | None = None
    """The older form of `tools`; a call is then a `function_call`."""
    function_call: str | dict[str, Any] | None = None
    """The older form of `tool_choice`."""
    web_search_options: Annotated[dict[str, Any] | None, UNSUPPORTED] = None


class PromptDetails(msgspec.Struct):
    cached_tokens: int
    audio_tokens: int = 0


class CompletionDetails(msgspec.Struct):
    reasoning_tokens: int
    audio_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0


class ChatUsage(msgspec.Struct, kw_only=True):
    """The usage of the whole tree."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


def chat_usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.tokens,
        prompt_tokens_details=PromptDetails(usage.cached_tokens),
        completion_tokens_details=CompletionDetails(usage.reasoning_tokens),
    )


Finish: TypeAlias = Literal["stop", "length", "tool_calls", "function_call", "content_filter"]


class Message(msgspec.Struct, kw_only=True):
    content: str | None
    role: Literal["assistant"] = "assistant"
    refusal: str | None = None
    """The model's reason for not answering."""
    tool_calls: list[Call] | msgspec.UnsetType = msgspec.UNSET
    function_call: Function | msgspec.UnsetType = msgspec.UNSET
    """For a client that has sent `functions`."""
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    """The agent's reasoning, for a client that asks for it."""


class Choice(msgspec.Struct, kw_only=True):
    message: Message
    finish_reason: Finish
    index: int = 0
    logprobs: ChatLogprobs | None = None


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The answer of an agent."""

    id: str
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage
    run_id: str
    """The id of the run; its tree is at `/v1/runs/{run_id}/tree`."""
    object: Literal["chat.completion"] = "chat.completion"


class CallDelta(msgspec.Struct, kw_only=True):
    """A call in a stream: complete, because it is sent when it is durable."""

    index: int
    id: str
    type: Literal["function", "custom"]
    function: Function | msgspec.UnsetType = msgspec.UNSET
    custom: CustomInput | msgspec.UnsetType = msgspec.UNSET


class Delta(msgspec.Struct, kw_only=True, omit_defaults=True):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning_content: str | None = None
    """The agent's reasoning and delegations, for a client that asks for them."""
    refusal: str | None = None
    tool_calls: list[CallDelta] | None = None
    function_call: Function | None = None


class ChunkChoice(msgspec.Struct, kw_only=True):
    delta: Delta
    finish_reason: Finish | None = None
    index: int = 0
    logprobs: ChatLogprobs | None = None
    """Sent after the text of a message, for all its tokens."""


class Chunk(msgspec.Struct, kw_only=True):
    """One event of a stream."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    run_id: str
    usage: ChatUsage | msgspec.UnsetType | None = msgspec.UNSET
    """In the last chunk, if the client asks for it; then null in the others."""
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
