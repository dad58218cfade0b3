"""The tests that `make quick` leaves out: browsers, databases, server processes and long proofs.

`make quick` measures no coverage. `make test` runs all tests and measures it. A test is slow by its
file, or by `@pytest.mark.slow`.
"""

from pathlib import Path
from typing import Final

import pytest

FOLDERS: Final = ("chaos", "clients", "console", "report", "soak", "typing", "workers")
FILES: Final = frozenset(
    {
        "agents/test_local.py",  # a real model
        "agents/test_random_streams.py",
        "agents/test_stream_cuts.py",
        "chat/test_kill.py",
        "journal/test_postgres.py",
        "journal/test_storage_faults.py",
        "mcp/test_server_docs.py",
        "mcp/test_server_processes.py",
        "mcp/test_servers_cli.py",
        "orchestrator/test_budgets_attempts.py",
        "orchestrator/test_cli_control.py",
        "orchestrator/test_cli_schedule.py",
        "orchestrator/test_commands_recovery.py",
        "orchestrator/test_git_sandbox.py",
        "orchestrator/test_killed_with_deps.py",
        "orchestrator/test_left_commands.py",
        "orchestrator/test_many_processes.py",
        "orchestrator/test_notebook.py",
        "orchestrator/test_pipeline_recovery.py",
        "orchestrator/test_recovery.py",
        "orchestrator/test_replay.py",
        "orchestrator/test_shutdown.py",
        "orchestrator/test_worktrees.py",
        "server/test_cluster.py",
        "server/test_docs.py",
        "server/test_forwarding.py",
        "server/test_isolation.py",
        "server/test_openapi.py",  # schemathesis
        "server/test_owners.py",
        "server/test_past_runs.py",
        "server/test_responses_crash.py",
        "server/test_serve.py",
        "server/test_shutdown.py",
        "test_cluster_demo.py",
        "test_coming_from.py",
        "test_distribution.py",
        "test_docs.py",
        "test_examples.py",
        "test_site.py",
    }
)

_TESTS: Final = Path(__file__).parent


def mark_slow(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files."""
    for item in items:
        file = item.path.relative_to(_TESTS)
        if file.parts[0] in FOLDERS or str(file) in FILES:
            item.add_marker(pytest.mark.slow)
