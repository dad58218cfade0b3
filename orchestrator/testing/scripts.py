"""Steps for scripted models, and recorded models."""

from pathlib import Path

from orchestrator.agents import Model, ToolCall
from orchestrator.agents.models.wrappers.cassette import RecordingModel, ReplayModel


def hand_on(*goals: str, agent: str = "", background: bool | None = None) -> ToolCall:
    """Return a call of a scripted model that delegates goals to one agent.

    Args:
        goals: the goals, one for each task.
        agent: the name of the delegate; not needed if there is only one.
        background: True detaches, False waits, None detaches if possible.
    """
    arguments: dict[str, object] = {"tasks": [{"goal": goal, "agent": agent} for goal in goals]}
    if background is not None:
        arguments["background"] = background
    return ToolCall("delegate_task", arguments)


def recorded(file: Path, model: Model | None = None) -> Model:
    """Return a model that answers from a cassette, or records the cassette if there is none.

    The first run of a test calls the model, and later runs only read the file. Delete the file to
    record again.

    Args:
        file: the cassette.
        model: the model to record.
    """
    if model is None or file.exists():
        return ReplayModel(file)
    return RecordingModel(model, file)
