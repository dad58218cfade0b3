"""Runs a Python program in a process that the fork server makes, and ends as the program does.

A test starts it with `-I -S`, so it costs some milliseconds:
python -I -S forked_program.py SOCKET -m orchestrator runs
"""

import json
import os
import signal
import socket
import sys


def main() -> int:
    """Hand streams, folder, environment and arguments over, and wait for the exit status."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        socket.send_fds(server, [b"\n"], [0, 1, 2])
        request = {
            "arguments": sys.argv[2:],
            "cwd": os.getcwd(),  # noqa: PTH109 (an import costs more)
            "environ": dict(os.environ),
        }
        server.sendall(json.dumps(request).encode() + b"\n")
        code = int(server.recv(100))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
