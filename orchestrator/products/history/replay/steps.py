"""The steps of a task that a replay must repeat, and their texts."""

import attrs
import msgspec

from orchestrator.agents import AssistantMessage, ToolMessage
from orchestrator.delegation import Outcome
from orchestrator.delegation.events import ModelAnswered, TaskRequested


@attrs.frozen
class Step:
    """One step of a task."""

    what: str
    detail: str
    position: float
    """The position of the replay at this step; a recorded step has its sequence number."""
    tool: str = ""
    """The tool that answered."""
    outcome: Outcome | None = None
    """The outcome, if the step ends a task or a turn."""

    def __str__(self) -> str:
        return f"{self.what}: {self.detail}" if self.detail else self.what


def request_step(event: TaskRequested, position: float) -> Step:
    request = event.request
    arguments = {
        "agent": request.agent,
        "goal": request.goal,
        "context": request.context,
        "label": request.label,
        "needs": ", ".join(request.needs),
        "schema": request.output_schema and str(request.output_schema),
        "budget": request.budget and str(request.budget),
        "chosen": request.choices_text,
        "of": "a copy" if request.copy else "",
        "after": " / ".join(said.text for said in request.handed or ()),
        "background": None if request.background is None else str(request.background),
        event.mode.value: f"because {event.reason.sentence}",
    }
    given = "; ".join(f"{name} {value}" for name, value in arguments.items() if value)
    return Step("is asked for", given, position)


def model_step(event: ModelAnswered, position: float) -> Step:
    settings = ""
    # Copied answers have the settings of the original run.
    if event.settings is not msgspec.UNSET and not event.copied:
        given = sorted(event.settings.items())
        settings = f" under {', '.join(f'{name}={value!r}' for name, value in given)}"
    return Step(f"its model answers{settings}", _describe_message(event.message), position)


def _describe_message(message: AssistantMessage) -> str:
    calls = [f"{call.name}({call.arguments})" for call in message.calls]
    return " ".join([message.text, *calls]).strip()


def tool_step(message: ToolMessage, name: str, position: float) -> Step:
    verb = "refuses" if message.failed else "answers"
    return Step(f"{name or 'a tool'} {verb}", message.text, position, name)


def end_step(what: str, outcome: Outcome, position: float) -> Step:
    schema = f" {list(outcome.schema_errors)}" if outcome.schema_errors else ""
    parts = [f"{outcome.ending}{schema}", outcome.kind, outcome.error, outcome.output]
    return Step(what, ": ".join(part for part in parts if part), position, outcome=outcome)
