"""Private files and the folder of state."""

# The imports are the ports.
# pyright: reportUnusedImport=false

from orchestrator.kernel.private_files import (
    PRIVATE_FILE,
    PrivateFile,
    foreign_file,
    foreign_folder,
    foreign_hand,
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
