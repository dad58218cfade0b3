"""Moved to `orchestrator.control.client`."""

from orchestrator.control.client import connect_control

__all__ = ["connect_control"]
