"""`python -m tests.acp.editors`: let the clients that others wrote talk to a team over ACP."""

import json
import os
import sys
from pathlib import Path
from typing import Final

import trio

from tests.clients.environments import PROGRAMS, Client, prepare
from tests.clients.matrix import Trial, read_lines

ROOT: Final = Path(__file__).parents[2]
TEAM: Final = Path(__file__).parent / "team.py"
PATIENCE: Final = 300
"""How many seconds one client may take."""
CLIENTS: Final = (
    Client("@agentclientprotocol/sdk", "acp", "acp_sdk_checks.mjs", "ACP"),
    Client("acpx", "acp", "acpx_checks.mjs", "ACP"),
)


def count_checks(client: Client) -> int:
    """Return how many checks the program of a client has."""
    return (PROGRAMS / client.program).read_text().count("\ncheck(")


async def try_client(client: Client) -> Trial:
    """Run the program of a client against the team."""
    serve = [sys.executable, "-m", "orchestrator", "acp", str(TEAM)]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            [*await prepare(client), json.dumps(serve)],
            cwd=client.folder,
            env=environ,
            capture_stdout=True,
            check=False,
        )
    return read_lines(done.stdout)


async def main() -> int:
    has_failed = False
    for client in CLIENTS:
        trial = await try_client(client)
        passed = sum(check.works for check in trial.checks)
        print(f"{client.title}: {passed} of {count_checks(client)}", flush=True)
        for check in trial.surprises:
            print(f"  {check.feature}, {check.check}: {check.error}", flush=True)
        has_failed |= passed < count_checks(client)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(trio.run(main))
