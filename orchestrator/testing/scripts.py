"""What scripts say, and models that say what was recorded."""

from pathlib import Path

from agents import Model, ToolCall
from agents.models.wrappers.cassette import RecordingModel, ReplayModel


def hand_on(*goals: str, agent: str = "", background: bool | None = None) -> ToolCall:
    """Return the call by which a scripted model delegates goals to one agent.

    Args:
        goals: what is to be done, one task each.
        agent: who is to do it; may be left out where there is one delegate.
        background: whether to go on at once, to wait, or to leave that to the session.
    """
    arguments: dict[str, object] = {
        "tasks": [{"goal": goal, "agent": agent} for goal in goals]
    }
    if background is not None:
        arguments["background"] = background
    return ToolCall("delegate_task", arguments)


def recorded(file: Path, model: Model | None = None) -> Model:
    """Return a model that answers from a cassette, or one that fills it if there is none.

    The first run of a test asks the model, and every later one only the file: delete it to record
    anew.

    Args:
        file: the cassette.
        model: who is asked where there is none yet.
    """
    if model is None or file.exists():
        return ReplayModel(file)
    return RecordingModel(model, file)
