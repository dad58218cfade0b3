"""The code of this process: file tools do not write files that it runs or may import later.

Every module that this process imports has all its rights, its keys, and needs no approval. An agent
that could write a module that is imported late would be bound by no rule. The same is true of files
that define agents: an agent could give itself tools for the next start.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.machinery import PathFinder, all_suffixes
from pathlib import Path, PurePath
from types import ModuleType
from typing import Final

from orchestrator.agents.errors import ToolError
from orchestrator.agents.tools.files.dir_entry import escape_unprintable

_SUFFIXES: Final = tuple(all_suffixes())
_PACKAGES: Final = ("site-packages", "dist-packages")
_COMPILED: Final = "__pycache__"
_SEARCHED_LAST: Final[set[str]] = set()
"""The folders that this process has searched for modules earlier than now."""
SERVER_FILE: Final = ".mcp.json"
"""In it, people and programs configure MCP servers."""
_DEFINITIONS: Final[set[str]] = set()
"""The real paths of the files that agents were loaded from, and of folders full of them."""


def require_not_own_code(real: str, path: str) -> None:
    """Raise `ToolError` if a write would change what this process runs, or may import later."""
    if problem := (
        _installed(real)
        or _imported(real)
        or _hides(real)
        or _comes_before(real)
        or _defines_agents(real)
    ):
        raise ToolError(
            f"{escape_unprintable(path)!r} is refused: {problem}, and agents may not write"
            " code that the orchestrator runs; choose another name or folder"
        )


def search_last(folders: Iterable[Path]) -> None:
    """Search these folders last for modules, behind every other folder of the path.

    A command may write a module there that this process would import late, because `python app.py`
    searches the folder of that file first.
    """
    tops = [os.path.realpath(folder) for folder in folders]

    def is_inside(folder: str) -> bool:
        real = os.path.realpath(folder or os.curdir)
        return any(real == top or _is_below(real, top) for top in tops)

    moved = [folder for folder in sys.path if is_inside(folder)]
    if installed := [it for it in moved if it.endswith(_PACKAGES)]:
        # They are read-only for commands, and file tools leave them alone.
        moved = [folder for folder in moved if folder not in installed]
    kept = [folder for folder in sys.path if folder not in moved]
    if sys.path != [*kept, *moved]:
        sys.path[:] = [*kept, *moved]
        _SEARCHED_LAST.update(os.path.realpath(it or os.curdir) for it in moved)


def protect_definitions(files: Iterable[Path], folder: Path | None = None) -> None:
    """Have no agent write the files that agents were loaded from, nor add one to `folder`."""
    _DEFINITIONS.update(os.path.realpath(file) for file in files)
    if folder is not None:
        _DEFINITIONS.add(os.path.realpath(folder))


def own_code_in(folders: Iterable[Path]) -> list[Path]:
    """Return the real paths of the code that this process runs or imports from these folders.

    A folder of packages is named whole, because a late import may create files in it.
    """
    tops = tuple(os.path.realpath(folder) for folder in folders)
    return list(_parts_below(frozenset(_parts()), tops))


@lru_cache(maxsize=64)
def _parts_below(parts: frozenset[str], tops: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the real paths of parts below folders: the same for each of a thousand tasks."""
    return tuple(
        sorted(
            Path(part) for part in _real_paths(parts) if any(_is_below(part, top) for top in tops)
        )
    )


def _real_paths(paths: Iterable[str]) -> set[str]:
    """Return the real paths of many files in few folders: each folder is resolved once."""
    folders: dict[str, str] = {}
    found: set[str] = set()
    for path in paths:
        folder, name = os.path.split(path)
        if name in {"", ".", ".."} or os.path.islink(path):  # noqa: PTH114 (thousands)
            found.add(os.path.realpath(path))
            continue
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        found.add(os.path.join(folders[folder], name))  # noqa: PTH118
    return found


def _parts() -> Iterator[str]:
    yield from _DEFINITIONS
    if sys.prefix != sys.base_prefix:
        yield sys.prefix
    for folder in [*sys.path]:
        if folder.endswith(_PACKAGES):
            yield folder
    # A copy is made in one step: another thread may import a module meanwhile.
    for name, module in sys.modules.copy().items():
        if not _has_own_folder(name, module):
            continue
        if package := getattr(module, "__path__", None):
            yield from package
        elif own := getattr(module, "__file__", None):
            yield own
            # Compiled code runs in place of it.
            yield os.path.join(os.path.dirname(own), _COMPILED)  # noqa: PTH118, PTH120


def _installed(real: str) -> str:
    """Return why a file belongs to the installed packages, if it does."""
    # The prefix of an interpreter without an environment of its own may be `/usr`.
    if sys.prefix != sys.base_prefix and _is_below(real, os.path.realpath(sys.prefix)):
        return "it is in the virtual environment of the orchestrator"
    for folder in [*sys.path]:
        if folder.endswith(_PACKAGES) and _is_below(real, os.path.realpath(folder)):
            return "it is among the packages that the orchestrator imports"
    return ""


def _imported(real: str) -> str:
    """Return why a file is, or may become, a part of an imported module, if it may."""
    file = _identity(real)
    folders = {_identity(str(folder)) for folder in PurePath(real).parents} - {None}
    is_module = real.endswith(_SUFFIXES)
    # A copy is made in one step: another thread may import a module meanwhile.
    for name, module in sys.modules.copy().items():
        if not _has_own_folder(name, module):
            continue
        own = getattr(module, "__file__", None)
        if own and file is not None and _identity(own) == file:
            return f"the orchestrator runs it, as {name}"
        if is_module and any(
            _identity(part) in folders for part in getattr(module, "__path__", None) or ()
        ):
            return f"the orchestrator imports from {name}"
    return ""


def _has_own_folder(name: str, module: ModuleType) -> bool:
    """Return whether a module is not below the folder of its package: a top one, or a link."""
    if "." not in name:
        return True
    return any(_is_link(part) for part in getattr(module, "__path__", None) or ())


@lru_cache(maxsize=4096)
def _is_link(folder: str) -> bool:
    return os.path.islink(folder)  # noqa: PTH114 (hundreds for each task)


def _identity(path: str) -> tuple[int, int] | None:
    """Return the identity of a path's target, whatever its name; None if it does not exist."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _hides(real: str) -> str:
    """Return which module a file would be imported in place of, if there is one."""
    folder, file = os.path.split(real)
    name, _, suffix = file.partition(".")
    if f".{suffix}" not in _SUFFIXES:
        return ""
    if name == "__init__":
        folder, name = os.path.split(folder)
    folders = [*_search_path()]
    if folder in folders:
        # Python takes the first that it finds, and this folder may be the first at the next start.
        later = folders[folders.index(folder) + 1 :]
        if folder in _SEARCHED_LAST:
            later = [it for it in folders if it != folder]
        if PathFinder.find_spec(name, later) is not None:
            return f"it would be imported in place of the module {name}"
    return ""


def _comes_before(real: str) -> str:
    """Return which imported module a file would be imported in place of at the next start.

    In one folder, Python takes a package before a module, and a compiled module before others.
    """
    folder, file = os.path.split(real)
    name, _, suffix = file.partition(".")
    if f".{suffix}" not in _SUFFIXES:
        return ""
    if name == "__init__":
        folder, name = os.path.split(folder)
    for imported, module in sys.modules.copy().items():
        own: str = getattr(module, "__file__", None) or ""
        # Few have the name: to look at the paths of thousands takes long.
        if not own or (name not in own and not imported.endswith(name)):
            continue
        above, known = os.path.split(own)
        names = (imported.rpartition(".")[2], known.partition(".")[0])
        if name in names and os.path.realpath(above) == folder:
            return f"it would be imported in place of {known}"
    return ""


def _defines_agents(real: str) -> str:
    """Return why a file defines an agent, or would at the next start, if it does."""
    if os.path.basename(real) == SERVER_FILE:  # noqa: PTH119 (a text)
        return "it names commands that are started as servers of agents"
    is_added = real.endswith(".md") and any(_is_below(real, it) for it in _DEFINITIONS)
    return "it defines an agent" if is_added or real in _DEFINITIONS else ""


def _search_path() -> Iterator[str]:
    return (os.path.realpath(folder or os.curdir) for folder in [*sys.path])


def _is_below(real: str, folder: str) -> bool:
    return real.startswith(os.path.join(folder, ""))  # noqa: PTH118
