"""The team of `orchestrator demo --local`: a tiny real model, held to short JSON schemas."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from orchestrator.agents import (
    Agent,
    AssistantMessage,
    CallId,
    Limits,
    Model,
    ModelRequest,
    TextDelta,
    ToolCall,
)

LOCAL_NOTE: Final = (
    "A real model writes every goal and every answer, on this machine, without a key. With 135"
    " million parameters it is silly: expect nonsense. A JSON schema keeps the run valid."
)

GOALS: Final = 2
# Fixed words at both ends: no goal is empty, and each is a question.
QUESTION: Final = {"type": "string", "pattern": "^(What|How|Why) [a-z ,'-]{10,60}[?]$"}
QUESTIONS: Final = {"type": "array", "items": QUESTION, "minItems": GOALS, "maxItems": GOALS}
SENTENCE: Final = {"type": "string", "pattern": "^[A-Z][a-zA-Z ,'-]{10,120}[.]$"}


def local_team(model: Model) -> Agent:
    """Return an editor that first delegates and then answers, and its researcher."""
    researcher = Agent(
        "researcher",
        instructions="Answer the question in one short sentence.",
        model=OneSentenceModel(model),
        limits=Limits(calls=1, seconds=60),
    )
    return Agent(
        "editor",
        instructions="Answer the question in one short sentence.",
        model=DelegatingModel(model),
        delegates=[researcher],
        limits=Limits(calls=2, seconds=110),
    )


class OneSentenceModel:
    """A model that answers in one short sentence."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        answer = await _ask(self._model, request, SENTENCE)
        text = msgspec.json.decode(answer.text, type=str)
        request.tell(TextDelta(text))
        return replace(answer, text=text)


class DelegatingModel:
    """A model whose first answer is a call of `delegate_task`: the goals are its own."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._one_sentence = OneSentenceModel(model)

    @property
    def name(self) -> str:
        return self._model.name

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        if len(request.transcript) > 1:
            return await self._one_sentence.answer(request)
        split = "Split the question into two short questions."
        request = replace(request, instructions=split)
        answer = await _ask(self._model, request, QUESTIONS)
        goals = msgspec.json.decode(answer.text, type=list[str])
        call = ToolCall(
            "delegate_task",
            {"tasks": [{"goal": goal} for goal in goals], "background": False},
            id=CallId(f"call_{len(request.transcript)}_0"),
        )
        return replace(answer, text="", calls=(call,))


async def _ask(model: Model, request: ModelRequest, output: Mapping[str, Any]) -> AssistantMessage:
    return await model.answer(
        ModelRequest(
            instructions=request.instructions,
            transcript=request.transcript,
            tools=(),
            output=output,
        )
    )
