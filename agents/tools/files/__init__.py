"""Tools for files: read, write, edit, list and search, inside one workspace.

They are imported on first use: a workspace alone does not need them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from orchestrator.agents.tools.files.list import list_files
    from orchestrator.agents.tools.files.read_write import FILES, edit_file, read_file, write_file
    from orchestrator.agents.tools.files.search import search_files

__all__ = ["FILES", "edit_file", "list_files", "read_file", "search_files", "write_file"]

_MODULES: Final = {"list_files": "list", "search_files": "search"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'agents.tools.files' has no attribute {name!r}")
    module = import_module(f"orchestrator.agents.tools.files.{_MODULES.get(name, 'read_write')}")
    value = getattr(module, name)
    # The next lookup finds it without this function.
    globals()[name] = value
    return value
