"""Tools for files: read, write, edit, list and search, inside one workspace."""

from agents.tools.files.list import list_files
from agents.tools.files.read_write import FILES, edit_file, read_file, write_file
from agents.tools.files.search import search_files

__all__ = [
    "FILES",
    "edit_file",
    "list_files",
    "read_file",
    "search_files",
    "write_file",
]
