"""The control socket: its client, its server and its requests."""

from orchestrator.kernel.control.client import ControlClient, RefusedError, connect_control
from orchestrator.kernel.control.server import (
    AnswerApproval,
    Cancel,
    ControlJob,
    ControlRequest,
    DeleteRun,
    EditJob,
    Pause,
    Prune,
    Steer,
    Subscribe,
    open_control,
)

__all__ = [
    "AnswerApproval",
    "Cancel",
    "ControlClient",
    "ControlJob",
    "ControlRequest",
    "DeleteRun",
    "EditJob",
    "Pause",
    "Prune",
    "RefusedError",
    "Steer",
    "Subscribe",
    "connect_control",
    "open_control",
]
