"""Errors of the kernel that products raise, catch and translate."""

from orchestrator.kernel.errors import (
    ClosedError,
    EndedError,
    JournalError,
    JournalInUseError,
    LoginError,
    LoginRequiredError,
    NotInterruptedError,
    OrchestratorError,
    ServerSetupError,
    SessionOpenError,
    UnknownIdError,
    WrongLoopError,
    error_text,
)

__all__ = [
    "ClosedError",
    "EndedError",
    "JournalError",
    "JournalInUseError",
    "LoginError",
    "LoginRequiredError",
    "NotInterruptedError",
    "OrchestratorError",
    "ServerSetupError",
    "SessionOpenError",
    "UnknownIdError",
    "WrongLoopError",
    "error_text",
]
