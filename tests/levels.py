"""The levels of the tests: which ones `make quick` leaves out, and which ones measure coverage.

`make quick` leaves the slow tests out: browsers, databases, server processes and long proofs.
`make test` runs all tests. `make coverage` measures the quick tests and `MEASURED`, because the
measurement doubles the time of a test. A test is slow by its file, or by `@pytest.mark.slow`.
"""

import os
import sys
import threading  # noqa: TID251 (its threads are traced, too)
from collections.abc import Generator
from contextlib import contextmanager
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
        "evaluation/test_cli_eval.py",
        "evaluation/test_recorded_runs.py",
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

MEASURED: Final = frozenset(
    {
        "agents/test_local.py",
        "chaos/simulation/test_simulation.py",
        "console/test_rows.py",
        "console/test_sign_in.py",
        "journal/test_postgres.py",
        "orchestrator/test_cli_control.py",
        "orchestrator/test_cli_schedule.py",
        "orchestrator/test_left_commands.py",
        "orchestrator/test_replay.py",
        "report/test_inline.py",
        "report/test_report.py",
        "server/test_forwarding.py",
        "server/test_owners.py",
        "server/test_past_runs.py",
        "test_cluster_demo.py",
        "workers/contract/test_mailbox.py",
        "workers/contract/test_work_queue.py",
        "workers/test_connections.py",
        "workers/test_lent_secrets.py",
        "workers/test_lent_turn_faults.py",
        "workers/test_lent_turns.py",
        "workers/test_turn_processes.py",
        "workers/test_worker_command.py",
    }
)
"""The slow files that reach code which no quick test reaches, and cost little."""

_TESTS: Final = Path(__file__).parent


def mark_slow(items: list[pytest.Item]) -> None:
    """Mark the tests of slow files, and put slow tests first: no worker ends with a long one."""
    for item in items:
        file = item.path.relative_to(_TESTS)
        if file.parts[0] in FOLDERS or str(file) in FILES:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda it: it.get_closest_marker("slow") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    file = item.path.relative_to(_TESTS)
    is_slow = item.get_closest_marker("slow") is not None
    if not is_slow or str(file) in MEASURED:
        return (yield)
    with _unmeasured():
        return (yield)


@contextmanager
def _unmeasured() -> Generator[None]:
    """Measure no coverage in the block, nor in the processes that it starts."""
    own, of_threads = sys.gettrace(), threading.gettrace()
    config = os.environ.pop("COVERAGE_PROCESS_CONFIG", None)
    sys.settrace(None)
    threading.settrace(None)
    try:
        yield
    finally:
        sys.settrace(own)
        threading.settrace(of_threads)
        if config is not None:
            os.environ["COVERAGE_PROCESS_CONFIG"] = config
