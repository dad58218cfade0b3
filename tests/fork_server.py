"""The process that forks Python programs for tests: what they import is loaded already.

The fixture `python` starts it, and it ends when its stdin does. A request is one line of JSON with
the three standard streams; the answer is the exit status. What runs is the program itself, in a
process of its own: only the second is saved that a new interpreter needs for its imports.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import types
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import coverage

PRELOADED: Final = (
    *("orchestrator.cli.app", "orchestrator.testing", "orchestrator.simulation"),
    *(
        "orchestrator.products.server.server",
        "orchestrator.products.history.report",
        "networkx",
        "httpx2",
    ),
    *("rich.live", "rich.markdown", "importlib.metadata"),
)


class Forked(BaseException):
    """Leaves the loop of the server in a new process, and says what to be there."""

    def __init__(self, request: Any, streams: list[int]) -> None:
        super().__init__()
        self.request = request
        self.streams = streams


class ForkServer:
    """Forks a program for each connection."""

    def __init__(self, listener: socket.socket, ready: selectors.BaseSelector) -> None:
        self._listener = listener
        self._ready = ready
        self._starters: dict[int, socket.socket] = {}
        """The connections of those who wait for a program to end."""
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)

    def serve(self) -> None:
        """Serve until stdin ends.

        Raises:
            Forked: this is a new process.
        """
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno())
        for source in (sys.stdin, self._listener, self._woken):
            self._ready.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in self._ready.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is self._listener:
                    self._fork()
                elif key.fileobj is self._woken:
                    self._woken.recv(1000)
                elif key.data in self._starters:
                    # Who waited for it was killed.
                    os.kill(key.data, signal.SIGKILL)
            self._report_ended()

    def _fork(self) -> None:
        starter, _ = self._listener.accept()
        _, streams, _, _ = socket.recv_fds(starter, 1, 3)
        with starter.makefile("rb") as lines:
            request = json.loads(lines.readline())
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (self._listener, self._wake, self._woken, starter):
                each.close()
            for each in self._starters.values():
                each.close()
            raise Forked(request, streams)
        self._starters[pid] = starter
        self._ready.register(starter, selectors.EVENT_READ, pid)
        for stream in streams:
            os.close(stream)

    def _report_ended(self) -> None:
        while self._starters:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            with self._starters.pop(pid) as starter, suppress(BrokenPipeError):
                self._ready.unregister(starter)
                starter.sendall(str(os.waitstatus_to_exitcode(status)).encode())


def become(request: Any, streams: list[int]) -> None:
    """Be like an interpreter that has just begun."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (as long as the process)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        coverage.process_startup(force=True)


def run(arguments: list[str]) -> None:
    """Run a program as `python arguments…` does."""
    match arguments:
        case ["-W", "error", *rest]:
            warnings.simplefilter("error")
            run(rest)
        case ["-m", module, *rest]:
            sys.argv[:] = [module, *rest]
            sys.path[0] = str(Path.cwd())
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv[:] = ["-c", *rest]
            sys.path[0] = ""
            program = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(code, "<string>", "exec"), program.__dict__)
        case [file, *rest]:
            sys.argv[:] = [file, *rest]
            sys.path[0] = str(Path(file).absolute().parent)
            runpy.run_path(file, run_name="__main__")
        case _:
            raise ValueError(f"there is no program in {arguments}")


def main() -> None:
    """Load what programs need, then serve at the socket that is stdout."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for module in PRELOADED:
            importlib.import_module(module)
    if (measured := coverage.Coverage.current()) is not None:
        # Each program is measured by itself; this process has nothing more to measure.
        measured.stop()
        measured.save()
        atexit.unregister(measured._atexit)
    gc.collect()
    gc.freeze()
    listener = socket.socket(fileno=os.dup(sys.stdout.fileno()))
    try:
        with listener, selectors.DefaultSelector() as ready:
            ForkServer(listener, ready).serve()
            return
    except Forked as forked:
        become(forked.request, forked.streams)
        arguments = forked.request["arguments"]
    run(arguments)


if __name__ == "__main__":
    main()
