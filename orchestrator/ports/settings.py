"""Settings of an orchestrator, and checks of the program that opens it."""

from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.loaded_file import MODULE, loads_agents
from orchestrator.kernel.settings import SANDBOX_VARIABLE, Machine, Workers

__all__ = ["MODULE", "SANDBOX_VARIABLE", "Machine", "Workers", "loads_agents", "require_trio"]
