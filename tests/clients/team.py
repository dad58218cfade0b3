"""The agents that clients are tried with: their models say what they were shown.

So that a parameter reaches a model is seen and not guessed. A model takes its orders from the last
message of the user:

| the message says | the model |
|---|---|
| `call weather` | calls that tool, with values that fit its parameters |
| `call weather twice` | calls it two times in one answer, unless only one call is allowed |
| `call weather {"city": "Oslo"}` | calls it with these arguments |
| `report` | answers with what it was shown, as JSON |
| anything else | repeats it |

A tool that it has to call is called, and an answer that must be JSON fits its schema.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import trio

from orchestrator import tool
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Failure,
    Limits,
    ModelError,
    ModelRequest,
    Part,
    ReasoningDelta,
    ScriptedModel,
    TextDelta,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
    confirm,
)
from orchestrator.agents.models.settings import FREE_CHOICES
from tests.kit import hand_on

ORDER: Final = re.compile(r"call ([a-zA-Z_]+)( twice)?(?: (\{.*\}))?")
PACE: Final = 0.01
VALUES: Final[Mapping[str, Any]] = {
    "string": "Lima",
    "integer": 18,
    "number": 18,
    "boolean": True,
    "null": None,
}


class ReportModel:
    """A model that does what the last message says, and reports what it was shown."""

    name = "report"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        calls = tuple(_calls(request))
        if calls:
            return self._message(request, "", calls)
        text = _text(request)
        if not text.startswith("{"):
            # What it was shown may have the very text at which an answer ends.
            for stop in request.settings.stop:
                text = text.partition(stop)[0]
        words = re.findall(r"\S+\s*|\s+", text)
        shown = words[: request.max_output]
        for number, word in enumerate(shown):
            request.tell(TextDelta(word))
            # At first at a pace at which readers get each word by itself.
            await trio.sleep(PACE if number < 3 else 0)
        if len(shown) < len(words):
            raise ModelError(
                "the answer was cut off",
                kind=Failure.CUT_OFF,
                partial="".join(shown),
                usage=Usage(1, 10, len(shown)),
            )
        return self._message(request, text, ())

    def _message(
        self, request: ModelRequest, text: str, calls: tuple[ToolCall, ...]
    ) -> AssistantMessage:
        usage = Usage(1, 10 * len(request.transcript), len(text.split()) + len(calls))
        return AssistantMessage(text, calls, usage, self.name)


def _calls(request: ModelRequest) -> Iterator[ToolCall]:
    """Yield the calls of an answer."""
    names = [tool.name for tool in request.tools]
    choice = request.settings.tool_choice
    last = request.transcript[-1]
    many = 1
    arguments: dict[str, Any] | None = None
    if choice is not None and choice not in FREE_CHOICES:
        # Libraries put the tool that stands for the answer behind the others.
        names = [choice] if choice in names else names[-1:]
    elif isinstance(last, ToolMessage) or (order := ORDER.search(last.text)) is None:
        return
    else:
        names = [name for name in names if name == order[1]]
        if order[2] and request.settings.parallel_tool_calls is not False:
            many = 2
        arguments = json.loads(order[3]) if order[3] else None
    for offered in request.tools:
        for number in range(many * (offered.name in names)):
            # The position in the transcript makes an id unique there.
            id_ = CallId(f"call_{len(request.transcript)}_{number}")
            given = fitting(offered.parameters) if arguments is None else arguments
            yield ToolCall(offered.name, given, id=id_)


def _text(request: ModelRequest) -> str:
    if request.output is not None:
        is_described = "properties" not in request.output
        schema = _described_schema(request) if is_described else None
        return json.dumps(fitting(schema or request.output))
    last = request.transcript[-1]
    if isinstance(last, ToolMessage):
        said = [it.text for it in request.transcript if isinstance(it, ToolMessage)]
        return f"The tools say: {', '.join(said)}."
    if (schema := _described_schema(request)) is not None:
        return f"```json\n{json.dumps(fitting(schema))}\n```"
    if "report" in last.text:
        return json.dumps(_report(request))
    return f"You said: {last.text}"


def _described_schema(request: ModelRequest) -> dict[str, Any] | None:
    """Return the schema that a prompt describes in its text."""
    texts = (request.instructions, *(message.text for message in request.transcript))
    for text in texts:
        for found in re.finditer(r"\{", text):
            try:
                value, _ = json.JSONDecoder().raw_decode(text, found.start())
            except ValueError:
                continue
            if isinstance(value, dict) and "properties" in value:
                return value
    return None


def _report(request: ModelRequest) -> dict[str, Any]:
    return {
        "instructions": request.instructions,
        "messages": [
            {
                "role": type(message).__name__.removesuffix("Message").lower(),
                "text": message.text,
                "parts": [_part(part) for part in getattr(message, "parts", ())],
                "calls": [call.name for call in getattr(message, "calls", ())],
            }
            for message in request.transcript
        ],
        "tools": [tool.name for tool in request.tools],
        "settings": request.settings.as_fields(),
        "max_output": request.max_output,
    }


def _part(part: Part) -> dict[str, Any]:
    return {"type": part.media_type, "name": part.name, "url": part.url, "bytes": len(part.data)}


def fitting(schema: Mapping[str, Any], root: Mapping[str, Any] | None = None) -> Any:
    """Return a value that fits a schema of the kinds that libraries make of types."""
    root = schema if root is None else root
    if isinstance(ref := schema.get("$ref"), str):
        part: Any = root
        for step in ref.removeprefix("#/").split("/"):
            part = part[step]
        return fitting(part, root)
    for keyword in ("anyOf", "oneOf", "allOf"):
        if keyword in schema:
            return fitting(schema[keyword][0], root)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: fitting(part, root) for name, part in schema.get("properties", {}).items()}
    return [fitting(schema["items"], root)] if kind == "array" else VALUES[kind]


class CountingAnswers:
    """A model that answers with the number of its calls: a repeated request shows."""

    name = "count"

    def __init__(self) -> None:
        self._calls = 0

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        self._calls += 1
        return AssistantMessage(f"call {self._calls}", usage=Usage(1, 1, 1))


class EndlessModel:
    """A model that says a word, and then nothing for good."""

    name = "endless"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        request.tell(TextDelta("Once "))
        await trio.sleep_forever()


class ThoughtfulModel:
    """A model that thinks before it answers."""

    name = "thoughtful"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        await trio.sleep(PACE)
        request.tell(ReasoningDelta("Let me see."))
        await trio.sleep(PACE)
        request.tell(TextDelta("It is Lima."))
        usage = Usage(1, 10, 6, reasoning_tokens=3)
        return AssistantMessage("It is Lima.", usage=usage, model=self.name)


def failing(name: str, kind: Failure, text: str, **more: Any) -> Agent[str]:
    error = ModelError(text, kind=kind, **more)
    return Agent(name, model=ScriptedModel.always(error))


def delegate(transcript: Any) -> Any:
    """Delegate a task for a message, and answer with its result."""
    last = transcript[-1]
    if isinstance(last, UserMessage) and "[" not in last.text:
        return hand_on("look it up", background=True)
    return "Looked up."


@tool
async def publish(page: str) -> str:
    """Publish a page."""
    await trio.lowlevel.checkpoint()
    return f"{page} is public"


def publish_once(transcript: Any) -> Any:
    """Publish a page, and answer with the result."""
    last = transcript[-1]
    return last.text if isinstance(last, ToolMessage) else ToolCall("publish", {"page": "home"})


def delegate_and_wait(transcript: Any) -> Any:
    """Delegate a task to each delegate at once, and answer with the results."""
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        results = json.loads(last.text)["results"]
        return ", ".join(it["output"] or it["status"] for it in results)
    tasks = [{"goal": "publish", "agent": "careful"}, {"goal": "fail", "agent": "broken"}]
    return ToolCall("delegate_task", {"tasks": tasks, "background": False})


report = Agent("report", model=ReportModel())
count = Agent("count", model=CountingAnswers())
endless = Agent("endless", model=EndlessModel(), limits=Limits(seconds=None))
thoughtful = Agent("thoughtful", model=ThoughtfulModel())
reader = Agent("reader", model=ScriptedModel.always("It is Lima."))
team = Agent("team", model=ScriptedModel.always(delegate), delegates=[reader])
limited = failing("limited", Failure.RATE_LIMIT, "too many requests", retry_after=7)
poor = failing("poor", Failure.QUOTA, "the account is empty")
long = failing("long", Failure.CONTEXT_TOO_LONG, "the conversation is too long")
broken = failing("broken", Failure.OVERLOADED, "the provider is overloaded")
careful = Agent(
    "careful",
    model=ScriptedModel.always(publish_once),
    tools=[publish],
    approve=[confirm("publish")],
)
editor = Agent("editor", model=ScriptedModel.always(delegate_and_wait), delegates=[careful, broken])
refusing = failing("refusing", Failure.REFUSED, "I cannot help with that.")
filtered = failing("filtered", Failure.FILTERED, "filtered", partial="Once upon")
