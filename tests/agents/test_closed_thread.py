"""A closed thread: its processes read no file, open no socket, and start no other program."""

import socket
import subprocess
from pathlib import Path

import pytest

from orchestrator.agents.sandbox.closed_thread import can_close, run_closed

BASH = "/bin/bash"


def ran(script: str) -> bool:
    """Return whether a script of bash succeeded in a closed thread."""
    done = run_closed(
        lambda: subprocess.run([BASH, "-c", script], capture_output=True, check=False), BASH
    )
    return done.returncode == 0


def test_a_process_of_a_closed_thread_runs() -> None:
    assert ran("exit 0")
    assert not ran("exit 1")


@pytest.mark.parametrize("script", ["read x < '{file}'", "echo x > '{folder}/new'", "/bin/true"])
def test_a_process_of_a_closed_thread_has_no_files(script: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text\n")

    assert ran(script.format(file=file, folder=tmp_path)) is not can_close()
    # The thread that asked for it keeps its rights.
    assert file.read_text() == "text\n"


def test_a_process_of_a_closed_thread_has_no_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert ran(f"exec 3<>/dev/tcp/127.0.0.1/{port}") is not can_close()


def test_an_error_in_a_closed_thread_is_raised_by_its_caller() -> None:
    with pytest.raises(FileNotFoundError):
        run_closed(lambda: subprocess.run(["/nowhere"], check=False), "/nowhere")
