"""The control socket: its client, its server and its requests."""

# The imports are the ports.
# pyright: reportUnusedImport=false

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
