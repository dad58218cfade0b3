"""Settings of an orchestrator, and checks of the program that opens it."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.loaded_file import MODULE, loads_agents
from orchestrator.kernel.settings import SANDBOX_VARIABLE, Machine, Models, Workers
