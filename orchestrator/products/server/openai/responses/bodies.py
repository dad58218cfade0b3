"""The bodies of `/v1/responses`; `request.py` refuses unsupported fields."""

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from orchestrator.agents import Usage
from orchestrator.products.server.api.bodies import Metadata
from orchestrator.products.server.openai.answer_format import PlainText, ResponseFormat
from orchestrator.products.server.openai.client_content import Refusal
from orchestrator.products.server.openai.client_tools import AnyText, GrammarText, Syntax
from orchestrator.products.server.openai.pages import Page
from orchestrator.products.server.operation import UNSUPPORTED
from orchestrator.products.server.transport.json_body import MOST_MESSAGES, MOST_PIECES


class InputText(msgspec.Struct, tag_field="type", tag="input_text"):
    text: str


class InputImage(
    msgspec.Struct, kw_only=True, tag_field="type", tag="input_image", omit_defaults=True
):
    image_url: str | None = None
    """A link, or a data: URL."""
    file_id: str | None = None
    detail: str | None = None


class InputFile(
    msgspec.Struct, kw_only=True, tag_field="type", tag="input_file", omit_defaults=True
):
    file_data: str | None = None
    """A data: URL, or the bytes of the file in base64."""
    file_url: str | None = None
    filename: str | None = None
    file_id: str | None = None


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: list[Any] = []
    logprobs: list[Any] = []
    """The log probabilities of its tokens, for a client that asks; ignored in an input."""


Content: TypeAlias = InputText | InputImage | InputFile | OutputText | Refusal


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text"):
    """Reasoning of a model, sent back as part of the conversation."""

    text: str = ""


ItemContent: TypeAlias = str | list[Content | ReasoningText] | None


class Item(msgspec.Struct, kw_only=True):
    """An item of the input: a message, a call, its result, or a reference to one."""

    type: str = "message"
    """`message`, `function_call`, `function_call_output`, `custom_tool_call`,
    `custom_tool_call_output`, `item_reference` or `reasoning`."""
    id: str | None = None
    """For a reference: the id of an item of a stored response."""
    role: Literal["user", "assistant", "system", "developer"] = "user"
    """For a message."""
    content: ItemContent = ""
    """For a message."""
    call_id: str = ""
    """For a call and its result."""
    name: str = ""
    """For a call: the function or the custom tool."""
    arguments: str = ""
    """For a call of a function: JSON text."""
    input: str = ""
    """For a call of a custom tool."""
    encrypted_content: str | None = None
    """For reasoning."""
    output: ItemContent = ""
    """For a result."""


class ResponseGrammar(msgspec.Struct, kw_only=True, tag_field="type", tag="grammar"):
    """The input of a custom tool fits a grammar."""

    definition: GrammarText
    syntax: Syntax


class ResponseTool(msgspec.Struct, kw_only=True):
    """A tool that the client runs itself."""

    type: str
    """`function` or `custom`."""
    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{0,128}$")] = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """The JSON schema of the arguments of a function."""
    strict: bool | None = None
    format: AnyText | ResponseGrammar | None = None
    """The input of a custom tool; by default any text."""


class TextConfig(msgspec.Struct):
    format: ResponseFormat | None = None
    """The format that the answer has to fit, instead of the agent's own."""
    verbosity: str | None = None
    """The wanted length of the answer: no agent applies it."""


Summary: TypeAlias = Literal["auto", "concise", "detailed"]


class Reasoning(msgspec.Struct, kw_only=True):
    effort: str | None = None
    """The effort of the model's reasoning before it answers."""
    summary: Summary | None = None
    """Show the model's reasoning, if its provider does."""
    generate_summary: Summary | None = None
    """The older name of `summary`."""


class ConversationRef(msgspec.Struct):
    id: str


class CreateResponse(msgspec.Struct, kw_only=True):
    """A request for a response."""

    model: str
    """The name of an agent."""
    input: str | Annotated[list[Item], msgspec.Meta(max_length=MOST_MESSAGES)] | None = None
    instructions: str | None = None
    """Instructions for this response, in addition to the agent's own."""
    previous_response_id: str | None = None
    """The response whose conversation this one continues."""
    conversation: str | ConversationRef | None = None
    """The conversation that this response reads and adds to."""
    store: bool | None = None
    """Whether the response can be retrieved later; true by default."""
    background: bool | None = None
    """Whether the response goes on after the request."""
    stream: bool | None = None
    include_progress: bool | None = None
    """Whether a stream tells when tasks below the agent begin and end."""
    metadata: Metadata | None = None
    tools: Annotated[list[ResponseTool], msgspec.Meta(max_length=MOST_PIECES)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    """`auto`, `none`, `required`, or an object that names a tool."""
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["disabled", "auto"] | None = None
    """`auto` is ignored: an agent's definition says whether it compacts a conversation."""
    user: str | None = None
    """The client's own user, kept with the response."""
    text: TextConfig | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    """The number of alternatives for each token, if the agent's model reports them."""
    prompt: Annotated[dict[str, Any] | None, UNSUPPORTED] = None
    moderation: Annotated[dict[str, Any] | None, UNSUPPORTED] = None


class GivenInput(msgspec.Struct):
    """The raw input of a request, which a conversation stores."""

    input: str | list[dict[str, Any]] | None = None


class NamedConversation(msgspec.Struct):
    """The conversation that a request names."""

    conversation: str | ConversationRef | None = None


Progress: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class MessageItem(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """A message of the agent."""

    id: str
    content: list[OutputText | Refusal]
    status: Progress
    role: Literal["assistant"] = "assistant"
    phase: Literal["commentary", "final_answer"] | None = None
    """Whether it is the answer, or text on the way to it."""


class CallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call"):
    """A function that the client has to run."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Progress


class CustomCallItem(msgspec.Struct, kw_only=True, tag_field="type", tag="custom_tool_call"):
    """A custom tool that the client has to run."""

    id: str
    call_id: str
    name: str
    input: str
    status: Progress


class SummaryText(msgspec.Struct, tag_field="type", tag="summary_text"):
    text: str


class ReasoningItem(msgspec.Struct, kw_only=True, tag_field="type", tag="reasoning"):
    """The model's reasoning before the next item."""

    id: str
    summary: list[SummaryText]
    encrypted_content: str | None = None
    """A reference to the reasoning in the journal, which the client sends back."""
    status: Progress


AnyCall: TypeAlias = CallItem | CustomCallItem
OutputItem: TypeAlias = MessageItem | ReasoningItem | AnyCall


Role: TypeAlias = Literal["user", "developer", "assistant"]


class InputMessageItem(msgspec.Struct, kw_only=True, tag_field="type", tag="message"):
    """A message of the input."""

    id: str
    role: Role
    content: list[Content]
    status: Progress = "completed"


class CallOutputItem(msgspec.Struct, kw_only=True, tag_field="type", tag="function_call_output"):
    """The result of a function."""

    id: str
    call_id: str
    output: str
    status: Progress = "completed"


class CustomCallOutputItem(
    msgspec.Struct, kw_only=True, tag_field="type", tag="custom_tool_call_output"
):
    """The result of a custom tool."""

    id: str
    call_id: str
    output: str
    status: Progress = "completed"


InputItem: TypeAlias = InputMessageItem | AnyCall | CallOutputItem | CustomCallOutputItem


class InputItems(Page[InputItem], kw_only=True):
    """The input of a response, and the conversation before it."""


class InputDetails(msgspec.Struct):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(msgspec.Struct):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, kw_only=True):
    """The usage of the whole tree."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


def response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.input_tokens,
        input_tokens_details=InputDetails(usage.cached_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputDetails(usage.reasoning_tokens),
        total_tokens=usage.tokens,
    )


Code: TypeAlias = Literal["rate_limit_exceeded", "invalid_prompt", "server_error"]


class ResponseError(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The reason why there is no answer."""

    code: Code
    """The nearest code that OpenAI's clients know."""
    message: str
    type: str
    """`rate_limit`, `auth`, `quota`, `context`, `provider`, `tool_limit`, `cancelled` or
    `internal`."""
    retry_after: float | None = None
    """The seconds after which a retry may help."""


class IncompleteDetails(msgspec.Struct):
    """The reason why an answer is cut off."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseBody(msgspec.Struct, kw_only=True):
    """A response, finished or not."""

    id: str
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    model: str
    output: list[OutputItem]
    background: bool
    store: bool
    run: str
    """The id of the run; its tree is at `/v1/runs/{run}/tree`."""
    completed_at: int | None = None
    error: ResponseError | None = None
    usage: ResponseUsage | None = None
    """The usage of the whole tree, when the response is over."""
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: ConversationRef | None = None
    metadata: dict[str, str] = {}
    user: str | None = None
    tools: list[ResponseTool] = []
    tool_choice: str | dict[str, Any] = "auto"
    parallel_tool_calls: bool = True
    incomplete_details: IncompleteDetails | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning: Reasoning = msgspec.field(default_factory=Reasoning)
    text: TextConfig = msgspec.field(default_factory=lambda: TextConfig(PlainText()))
    truncation: Literal["disabled"] = "disabled"
    top_logprobs: int | None = None
    object: Literal["response"] = "response"


class Deleted(msgspec.Struct, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True
