"""The files that an orchestrator keeps to itself: its journal, and the files beside it.

An agent that reads them reads every session, and one that writes them approves every call. So no
tool of an agent does, wherever they are.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

DISCORD_SUFFIX: Final = ".discord"
"""The suffix of the file that lets the next process continue a session of Discord's gateway."""
JOURNAL_SUFFIXES: Final = (
    *("", "-wal", "-shm", "-journal", ".lock", ".sock", ".address", ".predictions", DISCORD_SUFFIX),
)
"""The suffixes of a journal's own files."""
SERVER_FILES: Final = (*("api_key", "keys", "webhook_secret", "webhook_secrets", "cluster_secret"),)
"""The files that `serve` keeps in the folder of its journal."""
SERVERS: Final = "servers"
"""The folder with a file for each process that runs MCP servers."""
LIMITS: Final = "limits"
"""The folder with a file for each model whose provider has refused calls."""
ACCOUNTS: Final = "accounts"
"""The folder with a file for each budget that several journals share."""
CHAT_HISTORY: Final = "chat_history"
"""The lines that were typed in chats."""
JOURNAL_VARIABLE: Final = "ORCHESTRATOR_JOURNAL"
"""Names the journal of all commands; a database has its password in it."""
FIRST_JOURNAL: Final = "journal.db"
JOURNALS: Final = "journals"
"""The folder of all journals but the first, inside the folder of the first."""


def state_folder(environ: Mapping[str, str]) -> Path:
    """Return the default folder of an orchestrator's state."""
    if home := environ.get("ORCHESTRATOR_HOME"):
        return Path(home)
    state = environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "orchestrator"


def default_journal(environ: Mapping[str, str]) -> Path:
    """Return the path of the first journal in the state folder."""
    return state_folder(environ) / FIRST_JOURNAL


def state_files(journal: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the files of an orchestrator with this journal, whether they exist yet or not.

    This includes the files of the other journals of its folder, also of journals that other
    processes will make: they are in a folder of their own.
    """
    real = Path(os.path.realpath(journal))
    yield from _journal_files(real)
    # The folder that the user names, and the folder that a link to the journal leads to.
    for folder in {real.parent, Path(os.path.realpath(Path(journal).parent))}:
        home = folder.parent if folder.name == JOURNALS else folder
        yield from _journal_files(home / FIRST_JOURNAL)
        yield home / JOURNALS
        for name in (*SERVER_FILES, CHAT_HISTORY, LIMITS, ACCOUNTS):
            yield home / name
    if os.name == "posix":
        # Where the path of a socket beside the journal would be too long.
        yield Path(f"/tmp/orchestrator-{os.getuid()}")  # noqa: S108


def _journal_files(journal: Path) -> Iterator[Path]:
    path = os.fspath(journal)
    for suffix in JOURNAL_SUFFIXES:
        yield Path(path + suffix)


def real_paths(paths: Iterable[Path]) -> list[Path]:
    """Return where paths lead, each once.

    There are dozens in a few folders, at every start: each folder is resolved once.
    """
    folders: dict[str, str] = {}
    found: dict[str, None] = {}
    for path in dict.fromkeys(map(os.fspath, paths)):
        folder, name = os.path.split(path)
        if name in {"", os.curdir, os.pardir} or _is_link(path):
            found[os.path.realpath(path)] = None
            continue
        if folder not in folders:
            folders[folder] = os.path.realpath(folder).rstrip(os.sep)
        found[f"{folders[folder]}{os.sep}{name}"] = None
    return [Path(it) for it in found]


def _is_link(path: str) -> bool:
    try:
        os.readlink(path)  # noqa: PTH115 (no object for each of dozens)
    except OSError:
        return False
    return True


def is_inside(file: Path, folder: Path) -> bool:
    """Return whether a file is in a folder, by their real paths."""
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))
