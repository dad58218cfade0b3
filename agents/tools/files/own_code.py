"""The code of this process: file tools do not write what it runs, or may import later.

Whatever this process imports runs with all its rights: with its keys, and without approval. So an
agent that could write a module that is imported late would be bound by no rule.
"""

import os
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder, all_suffixes
from types import ModuleType
from typing import Final

from agents.errors import ToolError
from agents.tools.files.dir_entry import escape_unprintable

_SUFFIXES: Final = tuple(all_suffixes())


def require_not_own_code(real: str, path: str) -> None:
    """Raise if a write would change what this process runs, or may import later.

    Args:
        real: the absolute path of the file.
        path: the same as models read it.

    Raises:
        ToolError: it would.
    """
    if problem := _installed(real) or _imported(real) or _hides(real):
        raise ToolError(
            f"{escape_unprintable(path)!r} is refused: {problem}, and what the orchestrator runs"
            " is not written by the agents that it runs; choose another name or folder"
        )


def _installed(real: str) -> str:
    """Return why a file belongs to the installed packages, if it does."""
    for prefix in {sys.prefix, sys.exec_prefix}:
        # The prefix of an interpreter without an environment of its own may be `/usr`.
        if prefix != sys.base_prefix and _is_below(real, prefix):
            return "it is in the virtual environment of the orchestrator"
    for folder in [*sys.path]:
        if folder.endswith(("site-packages", "dist-packages")) and _is_below(
            real, os.path.realpath(folder)
        ):
            return "it is among the packages that the orchestrator imports"
    return ""


def _imported(real: str) -> str:
    """Return why a file is, or may become, a part of an imported module, if it may."""
    folder, name = os.path.split(real)
    # There are thousands of modules: only the paths of those that have the name are resolved.
    for module in _modules():
        file = getattr(module, "__file__", None)
        if file and file.endswith(name) and os.path.realpath(file) == real:
            return f"the orchestrator runs it, as {_name_of(module)}"
    if name.endswith(_SUFFIXES):
        package = os.path.basename(folder)  # noqa: PTH119
        for module in _modules():
            for part in getattr(module, "__path__", None) or ():
                if part.endswith(package) and os.path.realpath(part) == folder:
                    return f"the orchestrator imports from {_name_of(module)}"
    return ""


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
        # Python takes the first that it finds.
        later = folders[folders.index(folder) + 1 :]
        if PathFinder.find_spec(name, later) is not None:
            return f"it would be imported in place of the module {name}"
    return ""


def _modules() -> list[ModuleType]:
    # A copy: another thread may import meanwhile.
    return [*sys.modules.values()]


def _name_of(module: ModuleType) -> str:
    # Programs put other objects there, too.
    return str(getattr(module, "__name__", module))


def _search_path() -> Iterator[str]:
    return (os.path.realpath(folder or os.curdir) for folder in [*sys.path])


def _is_below(real: str, folder: str) -> bool:
    return real.startswith(os.path.join(folder, ""))  # noqa: PTH118
