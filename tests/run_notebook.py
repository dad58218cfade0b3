"""Run the cells of a notebook in a kernel of its own, and print it with its outputs.

    python tests/run_notebook.py FILE FOLDER

A program, since the client of a kernel leaves sockets to the end of its process.
"""

import sys
from pathlib import Path

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

SECONDS = 120
"""For one cell: only a net, if the kernel hangs."""


def main(file: str, folder: str) -> None:
    notebook = nbformat.read(file, as_version=4)  # type: ignore[no-untyped-call]
    # By files, not by ports: no other user of the machine can connect.
    kernel = AsyncKernelManager(
        kernel_name="python3", transport="ipc", ip=str(Path(folder) / "kernel")
    )
    NotebookClient(notebook, km=kernel, timeout=SECONDS).execute()
    print(nbformat.writes(notebook))  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(*sys.argv[1:])
