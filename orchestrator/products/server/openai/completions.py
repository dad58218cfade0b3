"""`POST /v1/completions`: chat completions for older clients; a prompt is a user's message."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import attrs
import msgspec
import trio
from starlette.responses import Response

from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.sessions import InboundRequest
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.keys.key import Scope
from orchestrator.products.server.openai.chat import bodies
from orchestrator.products.server.openai.chat.request import to_inbound_request
from orchestrator.products.server.openai.chat.response import completion
from orchestrator.products.server.openai.chat.stream import stream_or_wait
from orchestrator.products.server.openai.choices import MOST_CHOICES
from orchestrator.products.server.openai.conversation import CHAT
from orchestrator.products.server.operation import UNSUPPORTED, Answer, Operation
from orchestrator.products.server.transport.errors import JSON, bad_request
from orchestrator.products.server.transport.sse import SSE_MEDIA_TYPE


class CompletionRequest(bodies.SampledRequest, kw_only=True):
    """A request for the text after a prompt; an agent answers it as a user's message."""

    prompt: (
        str | Annotated[list[str | int | list[int]], msgspec.Meta(min_length=1, max_length=2_048)]
    )
    """A text, or several texts: each has choices of its own. Tokens are refused."""
    n: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHOICES)] | None = None
    """The number of answers to each prompt: each is a run of the agent."""
    best_of: int | None = None
    """At most `n`: answers are not compared."""
    echo: bool | None = None
    """Whether the text begins with the prompt."""
    suffix: Annotated[str | None, UNSUPPORTED] = None


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
    """The run of the first choice; its tree is at `/v1/runs/{run_id}/tree`."""
    usage: bodies.ChatUsage | msgspec.UnsetType | None = msgspec.UNSET
    object: Literal["text_completion"] = "text_completion"


@Operation(
    "POST",
    "/v1/completions",
    Scope.RUN,
    Answer(
        "The text, or a stream of its pieces", TextCompletion, media_types=(JSON, SSE_MEDIA_TYPE)
    ),
    body=CompletionRequest,
    errors=(404, 409, 422, 499, 502, 503, 504),
    takes_idempotency_key=True,
)
async def create_completion(call: ApiCall) -> Response:
    """Run an agent on a prompt, and wait for the text."""
    await trio.lowlevel.checkpoint()
    request, unknown = await call.body_and_unknown(CompletionRequest)
    prompts = _prompts(request)
    same = {name: getattr(request, name) for name in bodies.SampledRequest.__struct_fields__}
    inbound: list[InboundRequest] = []
    for prompt in prompts:
        chat = bodies.ChatRequest(messages=[bodies.User(prompt)], **same)
        one, call.answer_headers = to_inbound_request(call, chat, SessionKind.COMPLETION, unknown)
        await call.take_request(one)
        inbound += [one] * (request.n or 1)
    words = _Words(prompts, request.n or 1, has_echo=bool(request.echo))
    begun = await stream_or_wait(call, inbound, request, encode=words.encode_chunk)
    if isinstance(begun, Response):
        return begun
    return json_response(words.completion(completion(begun)), x_run_id=begun[0].id)


def _prompts(request: CompletionRequest) -> list[str]:
    """Return the prompts of a request, or refuse unsupported options."""
    if request.suffix:
        raise bad_request(
            "an agent cannot fill a gap before a suffix: leave out 'suffix'", param="suffix"
        )
    n = request.n or 1
    if request.best_of is not None and request.best_of != n:
        raise bad_request(
            "answers are not compared with each other: leave out 'best_of', or set it to 'n'",
            param="best_of",
        )
    given = [request.prompt] if isinstance(request.prompt, str) else request.prompt
    prompts = [it for it in given if isinstance(it, str)]
    if len(prompts) < len(given):
        raise bad_request(
            "an agent reads texts: send a prompt as text, not as tokens", param="prompt"
        )
    if len(prompts) * n > MOST_CHOICES:
        raise CHAT.invalid_value(
            f"{len(prompts)} prompts with {n} answers each are {len(prompts) * n} runs, and the"
            f" limit of one request is {MOST_CHOICES}",
            "prompt",
        )
    return prompts


@attrs.frozen
class _Words:
    """Converts a chat completion to the older form."""

    prompts: Sequence[str]
    answers: int
    """The number of answers to each prompt."""
    has_echo: bool = attrs.field(kw_only=True)

    def completion(self, chat: bodies.ChatCompletion) -> TextCompletion:
        choices = [
            self._choice(
                self._echo(it.index) + (it.message.content or it.message.refusal or ""),
                it.index,
                it.finish_reason,
            )
            for it in chat.choices
        ]
        return self._body(chat, choices)

    def encode_chunk(self, chunk: bodies.Chunk) -> bytes | None:
        """Encode a piece of a stream; return None if the older form has no such piece."""
        choices: list[TextChoice] = []
        for it in chunk.choices:
            text = it.delta.content or it.delta.refusal or ""
            if it.delta.role is not None:
                text = self._echo(it.index) + text
            if text or it.finish_reason is not None:
                choices.append(self._choice(text, it.index, it.finish_reason))
        if not choices and chunk.choices:
            return None
        return msgspec.json.encode(self._body(chunk, choices))

    def _echo(self, index: int) -> str:
        return self.prompts[index // self.answers] if self.has_echo else ""

    def _choice(self, text: str, index: int, finish: bodies.Finish | None) -> TextChoice:
        # Completions have no tools, so no tool is called.
        match finish:
            case "tool_calls" | "function_call":
                reason = None
            case _:
                reason = finish
        return TextChoice(text=text, index=index, finish_reason=reason)

    def _body(
        self, chat: bodies.ChatCompletion | bodies.Chunk, choices: list[TextChoice]
    ) -> TextCompletion:
        return TextCompletion(
            id=chat.id.replace("chatcmpl-", "cmpl-"),
            created=chat.created,
            model=chat.model,
            choices=choices,
            usage=chat.usage,
            run_id=chat.run_id,
        )
