"""Runs a function in an interpreter of its own, for what would hold this one too long.

A thread shares the interpreter with the event loop, and lets it go only between two steps of
Python: not in the middle of a regular expression, and not while garbage is collected. A process
shares nothing, gives way to its parent, and ends when the task that waits for it is cancelled.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import trio

# The variables that an interpreter may need to start at all. The rest of the environment has
# secrets.
_KEPT_VARIABLES: Final = ("LD_LIBRARY_PATH", "SYSTEMROOT")
# The request comes by the pipe: the arguments of a process can be read by others.
_PROGRAM: Final = """
import importlib, json, os, sys
if hasattr(os, "nice"):
    os.nice(10)
header = json.loads(sys.stdin.buffer.readline())
sys.path[:] = header["path"]
function = getattr(importlib.import_module(header["module"]), header["name"])
sys.stdout.buffer.write(function(sys.stdin.buffer.read()))
"""


async def run_in_interpreter(function: Callable[[bytes], bytes], request: bytes) -> bytes:
    """Return the answer of a module's function to a request.

    Raises:
        OSError: no process can be started here.
        subprocess.CalledProcessError: the function has failed.
    """
    header = {"path": sys.path, "module": function.__module__, "name": function.__qualname__}
    done = await trio.run_process(
        # Isolated: neither the folder of this process nor a variable chooses the imported modules.
        [sys.executable, "-I", "-c", _PROGRAM],
        stdin=b"%b\n%b" % (json.dumps(header).encode(), request),
        capture_stdout=True,
        stderr=subprocess.DEVNULL,
        env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
    )
    return done.stdout
