"""Commands left on a machine, ended there for a writer elsewhere: by a table in a real Postgres."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from orchestrator import Machine, open_orchestrator
from orchestrator.kernel.errors import JournalInUseError
from orchestrator.kernel.execution.workspace.background_commands import describe_ended_there
from orchestrator.products.cluster.database.database import open_database
from orchestrator.products.cluster.database.left_commands import (
    CommandsLeftHere,
    end_left_commands,
    open_left_commands,
)
from orchestrator.products.cluster.database.wakeups import open_wakeups
from tests.orchestrator.commands_kit import pipe, running_in, talking

pytestmark = pytest.mark.realtime

ROOT = Path(__file__).parent.parent.parent
A, B = "host-a", "host-b"
LEFT = "select tag from orchestrator.left_commands"
LEASE_IS_OVER = "update orchestrator.journals set until = clock_timestamp()"

# A session that waits for news of its command, on the first machine.
PROGRAM = """
import os, sys

import trio

from orchestrator import Machine, open_orchestrator
from tests.orchestrator.commands_kit import talking

async def main():
    journal, home = sys.argv[1:]
    machine = Machine(workspace=home, host="host-a", sandbox="none")
    async with open_orchestrator(journal, machine=machine) as orchestrator:
        async with talking(orchestrator) as talk:
            manual = await talk.begin()
            # The second one stays in the foreground: its call is broken off.
            await manual.start("exec sleep 1000", notify_on_complete=True)
            await manual.run(f"echo {talk.session.id} >ready; exec sleep 1000")

trio.run(main)
"""


@pytest.fixture
def journal(postgres: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ORCHESTRATOR_WORKSPACE_HOST", "nfs")
    return f"{postgres}&journal=shard-1"


async def killed_on_host_a(postgres: str, journal: str, home: Path) -> str:
    """Kill a process in the middle of its commands, and return its session."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    with pipe(home / "ready") as ready:
        process = await trio.lowlevel.open_process(
            [sys.executable, "-c", PROGRAM, journal, str(home)], cwd=ROOT, env=environ
        )
        try:
            id_ = await ready.receive()
        finally:
            process.kill()
            await process.wait()
    async with open_database(postgres, application="test") as database:
        await database.run(lambda it: it.execute(LEASE_IS_OVER))
    return id_


async def test_commands_of_a_killed_process_are_ended_on_its_host_and_reported_elsewhere(
    tmp_path: Path, postgres: str, journal: str
) -> None:
    """Until then the session knows that it is not known; a third machine does nothing."""
    id_ = await killed_on_host_a(postgres, journal, tmp_path)
    async with open_orchestrator(
        journal, machine=Machine(workspace=tmp_path, host=B)
    ) as orchestrator:
        async with talking(orchestrator, session=id_) as talk:
            # The turn goes on first: one of its calls was broken off.
            assert "broken off" in await talk.manual.receive()
            talk.manual.end()
            assert "cannot be seen any more: it was started on host-a" in (await talk.woken())
            left = running_in(tmp_path)
            async with end_left_commands(postgres, "host-c"):
                assert running_in(tmp_path) == left != []
            async with end_left_commands(postgres, A):
                heard = await talk.woken()
                await talk.idle()
    assert running_in(tmp_path) == []
    assert f"has ended: {describe_ended_there(A)}" in heard


async def test_a_replaced_writer_neither_requests_nor_forgets_left_commands(
    postgres: str, journal: str
) -> None:
    """A process that was stopped past its lease must not end the commands of its successor."""
    for _ in range(2):
        async with open_orchestrator(journal):
            pass
    killed: list[str] = []

    async def kill(tags: Sequence[str]) -> Sequence[str]:
        await trio.lowlevel.checkpoint()
        killed.append(str(tags))
        return tags

    async with (
        open_left_commands(postgres, journal="shard-1", epoch=1) as old,
        open_left_commands(postgres, journal="shard-1", epoch=2) as new,
        open_database(postgres, application="test") as database,
        open_wakeups(postgres, application="test") as wakeups,
        trio.open_nursery() as nursery,
    ):
        with pytest.raises(JournalInUseError):
            await old.ask({"p_1": A})
        here = CommandsLeftHere(database, wakeups, A, kill=kill)
        await here.end_now()
        assert killed == []
        nursery.start_soon(here.end_forever)
        await new.ask({"p_2": A})
        with trio.fail_after(10):
            # Twice: the answer to the first question may have been lost.
            assert await new.wait_ended() == await new.wait_ended() == ["p_2"]
        await old.forget(["p_2"])
        assert await new.wait_ended() == ["p_2"]
        await new.forget(["p_2"])
        assert await database.run(lambda it: it.execute(LEFT).fetchall()) == []
        nursery.cancel_scope.cancel()
    assert killed == ["['p_2']"]
