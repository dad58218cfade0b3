"""Errors of the kernel that products raise, catch and translate."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from orchestrator.kernel.errors import (
    ChangedProgramError,
    ClosedError,
    EndedError,
    JournalAwayError,
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
