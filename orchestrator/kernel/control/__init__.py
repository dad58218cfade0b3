"""The control socket: another process of the same user reads and steers this one."""

from orchestrator.kernel.control.client import connect_control
from orchestrator.kernel.control.server import open_control

__all__ = ["connect_control", "open_control"]
