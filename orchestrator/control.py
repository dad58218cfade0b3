"""The control socket: another process of the same user reads and steers an orchestrator."""

from orchestrator.kernel.control import connect_control, open_control

__all__ = ["connect_control", "open_control"]
