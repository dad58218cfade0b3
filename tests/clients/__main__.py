"""`python -m tests.clients`: try every client against a real server, and print the matrix.

Each client runs in an environment of its own. What differs from the record is said, and the exit
code is 1 then. `--record` writes the record, and with it the table of `docs/http.md`.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.clients.environments import CLIENTS, Client, MissingNodeError, prepare
from tests.clients.matrix import Trial, read_lines, read_record, tables, write_record
from tests.server.server_process import ServerProcess, server_process

AGENTS: Final = "from tests.clients.team import *\n"
PATIENCE: Final = 300
"""How many seconds one client may take."""


async def run_program(
    server: ServerProcess, command: Sequence[str], folder: Path, *features: str
) -> Trial:
    """Run the program of a client against a server, and return what came of it.

    Args:
        server: what it talks to.
        command: how it is started.
        folder: where it runs: the environment of the client.
        features: what it tries; by default all.
    """
    # Nothing of this repository is on its path: `agents` is a name that others use, too.
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(server.folder),
        "ORCHESTRATOR_API_KEY": server.token,
    }
    with trio.fail_after(PATIENCE):
        done = await trio.run_process(
            [*command, server.url, *features],
            cwd=folder,
            env=environ,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{command[-1]} broke off: {done.stderr.decode()[-2000:]}")
    return read_lines(done.stdout)


async def try_clients(clients: Sequence[Client]) -> dict[str, Trial]:
    """Return what came of each client, all against one server."""
    found: dict[str, Trial] = {}
    commands = {client: await prepare(client) for client in clients}
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        async with server_process(Path(folder), AGENTS) as server:
            for client, command in commands.items():
                trial = await run_program(server, command, client.folder)
                found[client.title] = trial
                passed = sum(check.works for check in trial.checks)
                print(f"{client.title}: {passed} of {len(trial.checks)}", flush=True)
                for check in trial.surprises:
                    said = check.error or f"works now, and should not: {check.fails}"
                    print(f"  {check.feature}, {check.check}: {said}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__)
    names = [client.pins for client in CLIENTS]
    parser.add_argument("clients", nargs="*", metavar="client", help=", ".join(names))
    parser.add_argument("--record", action="store_true", help="write record and table")
    asked = parser.parse_args()
    if unknown := set(asked.clients) - set(names):
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    chosen = [it for it in CLIENTS if not asked.clients or it.pins in asked.clients]
    try:
        found = trio.run(partial(try_clients, chosen))
    except MissingNodeError as exc:
        parser.exit(2, f"{exc}\n")
    recorded = read_record()
    whole = {**recorded, **found}
    whole = {it.title: whole[it.title] for it in CLIENTS if it.title in whole}
    print(tables(whole))
    if asked.record:
        write_record(whole)
    differs = [title for title in found if not found[title].agrees_with(recorded.get(title))]
    if differs and not asked.record:
        print(f"other than recorded: {', '.join(differs)}; `--record` records it")
    surprises = any(trial.surprises for trial in found.values())
    return int(surprises or bool(differs and not asked.record))


if __name__ == "__main__":
    sys.exit(main())
