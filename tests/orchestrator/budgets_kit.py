"""Models that meter what they use, and agents for tests of budgets."""

from typing import Any

from orchestrator import Orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Model,
    ModelError,
    ModelRequest,
    ScriptedModel,
    ToolMessage,
    Transcript,
    Usage,
)
from tests.kit import hand_on


class Meter:
    """Counts what models are really asked, whatever the journal says of it."""

    def __init__(self) -> None:
        self.calls = 0
        self.used = Usage()
        self.at_once = 0
        self.most_at_once = 0
        self.caps: list[int | None] = []

    def on(self, model: ScriptedModel) -> Model:
        return _Metered(model, self)

    def worker(self, says: Any = "done", seconds: float = 1, **options: Any) -> Agent:
        model = ScriptedModel.always(says, seconds)
        return Agent("worker", model=self.on(model), **options)


class _Metered:
    def __init__(self, model: ScriptedModel, meter: Meter) -> None:
        self.name = model.name
        self.price = model.price
        self.count_tokens = model.count_tokens
        self._model = model
        self._meter = meter

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        meter = self._meter
        meter.calls += 1
        meter.caps.append(request.max_output)
        meter.at_once += 1
        meter.most_at_once = max(meter.most_at_once, meter.at_once)
        try:
            answer = await self._model.answer(request)
        except ModelError as exc:
            meter.used += exc.usage or Usage()
            raise
        finally:
            meter.at_once -= 1
        meter.used += answer.usage
        return answer


def lead(meter: Meter, count: int, delegate: Agent, **options: Any) -> Agent:
    """Return an agent that hands on so many tasks, and then ends."""
    steps: list[Any] = [hand_on(*map(str, range(count))), "end"]
    return Agent("top", model=meter.on(ScriptedModel(steps)), delegates=[delegate], **options)


def endings(orchestrator: Orchestrator) -> dict[str, str]:
    """Return how each task of the newest run ended, by path."""
    tree = orchestrator.tree(orchestrator.runs[-1])
    return {tree[task].path: tree[task].status for task in tree}


def chatty(meter: Meter, helper: Agent) -> Agent:
    """Return an agent that hands everything on in the background, and reports the news."""

    def say(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            return "on its way"
        if last.text.startswith("A task that you delegated"):
            return "news"
        return hand_on(last.text, background=True)

    model = meter.on(ScriptedModel.always(say))
    return Agent("chatty", model=model, delegates=[helper])
