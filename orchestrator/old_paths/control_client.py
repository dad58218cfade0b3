"""Moved to `orchestrator.kernel.control.client`."""

from orchestrator.kernel.control.client import connect_control

__all__ = ["connect_control"]
