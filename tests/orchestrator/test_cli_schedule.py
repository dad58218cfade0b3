"""`orchestrator schedule` and `orchestrator jobs`, as a user has them: real processes, one file."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.cli.app import run_command
from orchestrator.cli.exit_codes import USAGE

FILE = """
from orchestrator import Agent, ScriptedModel
from orchestrator.schedule import Job

editor = Agent("editor", model=ScriptedModel.always("All is well."))
schedule = [
    Job("0 8 * * MON", editor, "Write the week.", name="week", zone="Europe/Berlin",
        deliver="file:news/{job}.md"),
]
"""
KILLED = """
import sys
import trio
from orchestrator.agents import Agent, ScriptedModel
from orchestrator.backends import journals_at
from orchestrator.kernel.journal.journals import open_journal
from orchestrator.composition import open_orchestrator
from orchestrator.schedule import Delivery, Job, open_schedule
from orchestrator.testing import CrashingJournal

path, told, after = sys.argv[1:]
editor = Agent("editor", model=ScriptedModel.always("News."))
job = Job("0 * * * *", editor, "Write.", zone="UTC", deliver="chat:42")
done = trio.Event()

async def send(delivery: Delivery) -> str:
    with open(told, "a") as file:
        file.write(delivery.due + "\\n")
    done.set()
    return ""

async def main() -> None:
    journals = journals_at(path, host="")
    async with open_journal(journals) as held:
        journal = CrashingJournal(held.journal, after=int(after), kill=True)
        async with open_orchestrator(journal) as orchestrator:
            # It is a second before the full hour, and a second is a twentieth of one.
            began = trio.current_time()
            clock = lambda: 1_800_000_000 - 1 + 20 * (trio.current_time() - began)
            targets = {"chat": send}
            async with open_schedule(orchestrator, [job], targets=targets, clock=clock):
                await done.wait()
                await trio.sleep(0.05)

trio.run(main)
"""
SET_BY_AGENT = """
import sys
import trio
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage, UserMessage, allow
from orchestrator.kernel.doors.inbound import InboundRequest
from orchestrator.kernel.doors.kept import KeptDoor
from orchestrator.kernel.errors import UnknownIdError
from orchestrator.backends import journals_at
from orchestrator.kernel.journal.journals import open_journal
from orchestrator.composition import open_orchestrator
from orchestrator.schedule import Scheduler
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.testing import CrashingJournal

path, told, after = sys.argv[1:]
HOURLY = {"action": "set", "name": "tea", "schedule": "0 * * * *", "goal": "Look."}

def play(transcript):
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "I will."
    if last.text.startswith("[Job tea"):
        return f"Heard: {last.text}"
    return "Ready." if last.text == "Look." else ToolCall("job", HOURLY)

host = Agent("host", model=ScriptedModel.always(play), schedules=True, approve=[allow("job")])
agents = {"host": host}

async def main() -> None:
    done = trio.Event()

    async def push(session, reply):
        if reply.text.startswith("Heard"):
            with open(told, "a") as file:
                file.write(reply.text.replace("\\n", " ") + "\\n")
            done.set()

    async with open_journal(journals_at(path, host="")) as held:
        journal = CrashingJournal(held.journal, after=int(after), kill=True)
        async with open_orchestrator(journal) as orchestrator, trio.open_nursery() as nursery:
            # It is a moment before the full hour until the job is set, and then it is later.
            clock = lambda: 1_800_000_000 + (1 if any(scheduler.jobs()) else -0.05)
            services = orchestrator.sessions
            scheduler = Scheduler(services, agents, clock=clock)
            kinds = {SessionKind.JOB_RUN: scheduler.deliver}
            door = KeptDoor(services, agents, nursery, {"": push}, kinds=kinds)
            async with scheduler.open(door, None):
                await door.resume_sessions()
                try:
                    session = await door.find("r_1")
                except UnknownIdError:
                    session = door.open_conversation(agents["host"], "r_1")
                if not (session.turns or session.mail):
                    message = UserMessage("Tea, please.")
                    door.receive(session, InboundRequest(agent=agents["host"], message=message))
                await done.wait()
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()

trio.run(main)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.py").write_text(FILE)
    return tmp_path


@contextmanager
def scheduled(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "schedule", "team.py", "--journal", "s.db"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        try:
            assert any("the jobs run as process" in line for line in process.stderr)
            yield process
        finally:
            process.kill()


def jobs(*arguments: str) -> int:
    return run_command(["jobs", *arguments, "--journal", "s.db"])


def test_jobs_are_listed_run_paused_and_resumed_while_another_process_begins_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scheduled(folder) as process:
        assert run_command(["schedule", "team.py", "--journal", "s.db"]) == USAGE
        assert f"process {process.pid} begins the jobs" in capsys.readouterr().err

        assert jobs("list") == 0
        row = capsys.readouterr().out.splitlines()[1]
        assert row.split()[:6] == ["week", "0", "8", "*", "*", "MON"]
        assert "08:00 CET" in row or "08:00 CEST" in row

        assert jobs("pause", "week") == 0
        assert jobs("list") == 0
        assert "paused" in capsys.readouterr().out
        assert jobs("edit", "week", "--schedule", "0 9 * * TUE", "--zone", "UTC") == 0
        assert "change it there, too" in capsys.readouterr().err
        assert jobs("edit", "week", "--schedule", "0 9 * *") == USAGE
        assert "4 fields" in capsys.readouterr().err
        assert jobs("edit", "week", "--deliver", "pigeon:7") == USAGE
        assert "which is unknown" in capsys.readouterr().err
        assert jobs("resume", "week") == 0
        assert jobs("list") == 0
        [_, row] = capsys.readouterr().out.splitlines()
        assert row.split()[:6] == ["week", "0", "9", "*", "*", "TUE"]
        assert "09:00 UTC" in row
        assert jobs("run", "week") == 0
        run = capsys.readouterr().out.strip()
        # The first signal lets what runs end.
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0

    assert (folder / "news" / "week.md").read_text() == "All is well.\n"
    assert jobs("history", "week") == 0
    history = capsys.readouterr().out
    assert "(by hand)" in history
    assert run in history
    assert "succeeded" in history


def test_a_job_can_be_paused_without_a_process_and_run_in_only_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scheduled(folder):
        pass
    assert jobs("pause", "week") == 0
    assert jobs("run", "week") == USAGE
    assert "orchestrator schedule FILE" in capsys.readouterr().err
    assert jobs("list") == 0
    assert "paused" in capsys.readouterr().out


def test_an_edited_job_lasts_until_the_next_start_reads_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scheduled(folder):
        pass
    arguments = ["--goal", "Write less.", "--deliver", "chat:42", "--catch-up", "1h"]
    assert jobs("edit", "week", *arguments) == 0
    assert jobs("list") == 0
    assert "Write less." in capsys.readouterr().out
    assert jobs("edit", "week") == USAGE
    assert "say what to change" in capsys.readouterr().err
    assert jobs("edit", "week", "--goal", " ") == USAGE
    assert "cannot be empty" in capsys.readouterr().err
    with scheduled(folder):
        assert jobs("list") == 0
        assert "Write the week." in capsys.readouterr().out


def test_the_session_of_a_job_is_not_listed_as_a_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with scheduled(folder):
        assert jobs("run", "week") == 0
        run = capsys.readouterr().out.strip()
        assert run_command(["runs", "--journal", "s.db"]) == 0
    listed = capsys.readouterr()
    [row] = listed.out.splitlines()[1:]
    assert row.startswith(run)
    assert "newest" not in listed.err
    assert run_command(["jobs", "remove", "week", "--journal", "s.db"]) == USAGE
    assert "is of a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["jobs", "list", "--journal", "none.db"], "there is no journal none.db"),
        (["jobs", "list", "--journal", "nowhere/"], "there are no jobs yet"),
        (["schedule", "team.py", "--journal", "runs/"], "recorded in one file"),
        (["schedule", "nope.py"], "there is no file nope.py"),
        (["schedule", "empty.py"], "defines no Job"),
        (["schedule", "wrong.py", "--journal", "w.db"], "job 'a': .* 4 fields"),
        (["schedule", "."], "a schedule is the variable of a Python file"),
        (["schedule", "hook.py", "--journal", "w.db"], "sent to a.example in the clear"),
        (["serve", "wrong.py", "--journal", "w.db"], "job 'a': .* 4 fields"),
    ],
)
def test_a_mistake_is_a_sentence_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    (folder / "empty.py").write_text("")
    (folder / "wrong.py").write_text(
        "from orchestrator import Agent, ScriptedModel\n"
        "from orchestrator.schedule import Job\n"
        'a = Agent("a", model=ScriptedModel.always("x"))\n'
        'job = Job("* * * *", a, "x")\n'
    )
    (folder / "hook.py").write_text(
        # No import of another file: that of an earlier test is in memory still.
        "from orchestrator import Agent, ScriptedModel\n"
        "from orchestrator.schedule import Job\n"
        'a = Agent("a", model=ScriptedModel.always("x"))\n'
        'job = Job("0 8 * * *", a, "x", deliver="webhook:http://a.example/")\n'
    )

    assert run_command(arguments) == USAGE
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("orchestrator: ")
    assert re.search(problem, line)


@pytest.mark.parametrize(
    ("text", "step"),
    # Of an agent each third: tests in memory crash after each.
    [(KILLED, 1), (SET_BY_AGENT, 3)],
    ids=["file", "agent"],
)
def test_killing_the_scheduler_after_any_write_loses_and_repeats_no_run(
    folder: Path, python: list[str], text: str, step: int
) -> None:
    program = folder / "killed.py"
    program.write_text(text)

    def live(after: int) -> int:
        command = [*python, str(program), "j.db", "told.txt", str(after)]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode

    told = folder / "told.txt"
    journal = folder / "j.db"
    after, has_ended = 3, False
    while not has_ended:
        has_ended = live(after) == 0
        if not has_ended:
            assert live(10_000) == 0, after
        times = told.read_text().splitlines()
        # Killed between the telling and the fact that says so, it tells again.
        assert set(times) == {times[0]}, after
        assert len(times) <= 2, after
        for path in (told, *folder.glob(f"{journal.name}*")):
            path.unlink()
        after += step
    assert after > 10, "it was killed after each of its facts"
