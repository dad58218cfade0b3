"""What many tests need: calls that delegate, and questions to a journal."""

from agents import Agent, ScriptedModel
from orchestrator.testing import facts, hand_on

__all__ = ["facts", "hand_on", "worker"]


def worker(name: str = "worker", *, seconds: float = 0, says: str = "done") -> Agent:
    """Return an agent that answers every goal alike."""
    return Agent(name, model=ScriptedModel.always(says, seconds))
