"""The time of what has ended or rests does not grow: in trees, exports, reports and the watcher."""

import time
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import journals_at
from orchestrator.cli.app import run_command
from orchestrator.cli.watch.journal_tail import open_run
from orchestrator.delegation import SessionId, Status
from orchestrator.kernel.journal.reader import EntriesReader
from orchestrator.kernel.journal.run_history import RunHistory, read_history
from tests.kit import hand_on, worker

DAY = 86_400


def history_of(journal: MemoryJournal, run: SessionId) -> RunHistory:
    entries = EntriesReader(journal.entries).entries(run)
    return read_history(run, entries, has_writer=True, wants_transcript=lambda _: False)


async def test_a_report_ends_with_the_last_turn_and_not_with_the_door_or_the_next_process() -> None:
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(worker(seconds=2)) as session:
            await session.ask("go")
            await trio.sleep(DAY)
    await trio.sleep(DAY)
    async with open_orchestrator(journal):
        pass

    history = history_of(journal, session.id)
    assert history.last_at - history.began == pytest.approx(2, abs=0.1)
    assert history.critical_path.seconds == pytest.approx(2, abs=0.1)


async def test_a_report_of_an_interrupted_run_ends_with_its_last_fact() -> None:
    journal = MemoryJournal()
    talker = worker(seconds=4)
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(talker) as session:
            await session.ask("go")
            with trio.move_on_after(3):
                await session.ask("go on")
    await trio.sleep(DAY)
    async with open_orchestrator(journal):
        pass

    history = history_of(journal, session.id)
    assert history.tree[history.tree.root].status == Status.INTERRUPTED
    assert history.last_at - history.began == pytest.approx(7, abs=0.1)


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_commands_show_the_same_time_of_an_interrupted_run_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal has a writer, which may run other things."""
    path = tmp_path / "journal.db"
    steps: list[Any] = [hand_on("look", background=True), "on its way"]
    boss = Agent("boss", model=ScriptedModel(steps), delegates=[worker(seconds=DAY)])
    async with open_orchestrator(path) as orchestrator:
        async with orchestrator.open_session(boss) as session:
            await session.ask("go")

    def shown() -> list[str]:
        commands = (
            ["tree"],
            ["tree", "--rows", "5"],
            ["show", session.id],
            *(["export", "--format", it] for it in ("text", "svg", "trace", "html")),
            ["runs"],
        )
        out: list[str] = []
        for command in commands:
            assert run_command([*command, "--journal", str(path)]) == 0
            out.append(capsys.readouterr().out)
        return out

    async with open_orchestrator(path):
        before = await trio.to_thread.run_sync(shown)
        active_at = (await open_run(journals_at(path), None)).active_at
        later = time.time() + DAY
        monkeypatch.setattr(time, "time", lambda: later)
        after = await trio.to_thread.run_sync(shown)

    assert before == after
    tree = session.tree
    assert active_at - tree[tree.root].requested < 60
