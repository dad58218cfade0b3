"""Private files and the folder of state."""

from orchestrator.kernel.private_files import (
    PRIVATE_FILE,
    PrivateFile,
    foreign_folder,
    make_private_folder,
)
from orchestrator.kernel.state_files import (
    CHAT_HISTORY,
    DISCORD_SUFFIX,
    FIRST_JOURNAL,
    JOURNAL_VARIABLE,
    SERVERS,
    default_journal,
    is_inside,
    real_paths,
    state_files,
    state_folder,
)

__all__ = [
    "CHAT_HISTORY",
    "DISCORD_SUFFIX",
    "FIRST_JOURNAL",
    "JOURNAL_VARIABLE",
    "PRIVATE_FILE",
    "SERVERS",
    "PrivateFile",
    "default_journal",
    "foreign_folder",
    "is_inside",
    "make_private_folder",
    "real_paths",
    "state_files",
    "state_folder",
]
