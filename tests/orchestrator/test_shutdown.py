"""Stopping: nothing new is begun, what runs may finish, and the journal says how all ended."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import ClosedError, MemoryJournal, open_orchestrator
from orchestrator.agents import (
    Agent,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    raising_one_error,
    tool,
)
from orchestrator.delegation import Ending, Ledger, Rules, SessionId
from orchestrator.delegation.events import (
    Entry,
    JournalOpened,
    ReplyDelivered,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnStarted,
)
from tests.kit import facts, hand_on, worker
from tests.orchestrator.terminals import terminal


def on_its_way(transcript: Transcript) -> Any:
    """Hand the message on in the background, and say what comes back."""
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "on its way"
    if last.text.startswith("A task"):
        return "heard " + last.text.partition("Output:\n")[2]
    return hand_on(last.text, background=True)


def statuses(journal: MemoryJournal) -> dict[str, str]:
    """Return the statuses of the first session's tasks, by path; none of them runs any more."""
    ledger = Ledger()
    for entry in journal.entries:
        ledger.fold(entry)
    ledger.fold(Entry(ledger.last_seq + 1, 0, SessionId(""), JournalOpened("test")))
    tree = next(iter(ledger.sessions.values())).tree
    return {tree[task].path: tree[task].status for task in tree}


async def test_drain_lets_running_work_finish_and_returns_true() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        async with trio.open_nursery() as nursery:
            runs = []

            async def run() -> None:
                runs.append(await orchestrator.run(worker(seconds=3), "go"))

            nursery.start_soon(run)
            await trio.sleep(1)
            assert orchestrator.working == 1

            assert await orchestrator.drain(10)
            assert trio.current_time() == pytest.approx(3)
            assert orchestrator.working == 0

        assert runs[0].output == "done"


async def test_closing_the_orchestrator_cancels_unfinished_runs() -> None:
    journal = MemoryJournal()
    with trio.CancelScope() as scope:
        async with open_orchestrator(journal) as orchestrator:
            async with trio.open_nursery() as nursery:
                agent = Agent(
                    "top", model=ScriptedModel.always(hand_on("a")), delegates=[worker(seconds=100)]
                )
                nursery.start_soon(orchestrator.run, agent, "go")
                await trio.sleep(1)
                assert orchestrator.working == 2

                assert not await orchestrator.drain(10)
                assert trio.current_time() == pytest.approx(11)
                assert not facts(journal.entries, TaskSettled)
                scope.cancel()

    assert statuses(journal) == {"/top": "cancelled", "/top/worker[1]": "cancelled"}


async def test_a_detached_task_that_needs_longer_goes_on_the_next_time() -> None:
    journal = MemoryJournal()
    slow = Agent("lead", model=ScriptedModel.always(on_its_way), delegates=[worker(seconds=100)])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(slow) as session:
            await session.ask("look")
            assert not await orchestrator.drain(5)
    assert statuses(journal)["/lead/worker[1]"] == "interrupted"

    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(slow, session=session.id) as again:
            assert (await again.replies.receive()).text == "heard done"
    assert len(facts(journal.entries, TaskSettled)) == 1


async def test_a_draining_orchestrator_starts_no_new_work() -> None:
    agent = worker()
    async with open_orchestrator(":memory:") as orchestrator:
        async with orchestrator.open_session(agent) as session:
            assert await orchestrator.drain(0)

            with pytest.raises(ClosedError, match="is stopping and starts no new work"):
                await session.ask("go")
            with pytest.raises(ClosedError, match="is stopping"):
                await orchestrator.run(agent, "go")
            with pytest.raises(ClosedError, match="is stopping"):
                async with orchestrator.open_session(agent):
                    pass
            await session.wait_idle()
        assert orchestrator.runs == [session.id]


async def test_notices_during_a_drain_are_delivered_at_the_next_start() -> None:
    """The task ends within the grace, and the turn that it wakes is not begun."""
    journal = MemoryJournal()
    agent = Agent("lead", model=ScriptedModel.always(on_its_way), delegates=[worker(seconds=3)])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            await session.ask("look")
            assert await orchestrator.drain(10)
            assert trio.current_time() == pytest.approx(3)
            with pytest.raises(ClosedError, match="open it again to continue"):
                await session.wait_idle()
    assert len(facts(journal.entries, TurnStarted)) == 1

    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            assert (await again.replies.receive()).text == "heard done"
    assert len(facts(journal.entries, TaskStarted)) == 1


async def test_a_draining_run_is_told_that_delegation_is_refused() -> None:
    def lead(transcript: Transcript) -> Any:
        last = transcript[-1]
        return last.text if isinstance(last, ToolMessage) else hand_on("a")

    agent = Agent("lead", model=ScriptedModel.always(lead, 3), delegates=[worker()])
    async with open_orchestrator(":memory:") as orchestrator:
        outputs = []

        async def run() -> None:
            outputs.append((await orchestrator.run(agent, "go")).output)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await trio.sleep(1)
            assert await orchestrator.drain(10)

    assert outputs == [
        "the orchestrator is stopping, and starts no new tasks: end with what you have"
    ]


async def test_a_session_that_hands_work_on_waits_with_it_until_the_next_time() -> None:
    """A refusal would be final, although the next process can do the work."""
    journal = MemoryJournal()
    agent = Agent("lead", model=ScriptedModel.always(on_its_way, 3), delegates=[worker()])
    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    with pytest.raises(ClosedError, match="before it had answered"):
                        await session.ask("look")

                nursery.start_soon(ask)
                await trio.sleep(1)
                assert not await orchestrator.drain(10)
                assert not facts(journal.entries, TaskRequested)
                session.disconnect()

    async with open_orchestrator(journal) as orchestrator:
        async with orchestrator.open_session(agent, session=session.id) as again:
            replies = [await again.replies.receive() for _ in range(2)]
    assert [reply.text for reply in replies] == ["on its way", "heard done"]
    assert len(facts(journal.entries, ReplyDelivered)) == 2


async def test_queued_joined_tasks_finish_during_a_drain() -> None:
    model = ScriptedModel([hand_on("a", "b", "c"), "end"])
    agent = Agent("lead", model=model, delegates=[worker(seconds=3)])
    async with open_orchestrator(":memory:", rules=Rules(live_children=1)) as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, agent, "go")
            await trio.sleep(1)
            assert await orchestrator.drain(10)
        tree = orchestrator.tree(orchestrator.runs[0])

    assert tree.counts() == {"succeeded": 4}


async def test_hanging_work_can_be_abandoned() -> None:
    """Cleanup that never ends would block the shutdown; the journal does not wait for it."""
    journal = MemoryJournal()

    @tool
    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await release.wait()
        return "late"

    release = trio.Event()
    child = Agent("child", model=ScriptedModel.always(ToolCall("stubborn")), tools=[stubborn])
    top = Agent("top", model=ScriptedModel.always(hand_on("a")), delegates=[child])
    lead = Agent("lead", model=ScriptedModel.always(on_its_way), delegates=[child])

    async def leave() -> None:
        async with open_orchestrator(journal) as orchestrator:
            async with orchestrator.open_session(lead) as session:
                await session.ask("look")
                with raising_one_error():
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(orchestrator.run, top, "go")
                        await trio.sleep(1)
                        await orchestrator.abandon()
                        release.set()

    with pytest.raises(ClosedError, match="the orchestrator is closed"):
        await leave()
    ended = facts(journal.entries, TurnEnded)[-1]
    settled = facts(journal.entries, TaskSettled)
    assert ended.outcome.ending is Ending.CANCELLED
    assert [fact.outcome.ending for fact in settled] == [Ending.CANCELLED]
    assert statuses(journal)["/lead/child[1]"] == "interrupted"


# From here on: real processes and real signals.

FILES = {
    "quick.py": """
from orchestrator.agents import Agent, ScriptedModel
quick = Agent("quick", model=ScriptedModel.always("the answer", 1.5))
""",
    "slow.py": """
from orchestrator.agents import Agent, ScriptedModel
slow = Agent("slow", model=ScriptedModel.always("never", 1000))
""",
    "thread.py": """
import time
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool

@tool
def hang() -> str:
    time.sleep(1000)
    return "never"

thread = Agent("thread", model=ScriptedModel.always(ToolCall("hang")), tools=[hang])
""",
    "stubborn.py": """
import trio
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool

@tool
async def cling() -> str:
    with trio.CancelScope(shield=True):
        await trio.sleep(1000)
    return "never"

stubborn = Agent("stubborn", model=ScriptedModel.always(ToolCall("cling")), tools=[cling])
""",
    "blocked.py": """
import sys, time
from orchestrator.agents import Agent, ScriptedModel, ToolCall, tool

@tool
async def block() -> str:
    print("now it is stuck", file=sys.stderr, flush=True)
    time.sleep(1000)
    return "never"

blocked = Agent("blocked", model=ScriptedModel.always(ToolCall("block")), tools=[block])
""",
    "chatty.py": """
import os
from orchestrator.agents import Agent, ScriptedModel, ToolCall, ToolMessage

def say(transcript):
    last = transcript[-1]
    if isinstance(last, ToolMessage):
        return "on its way"
    if last.text.startswith("A task"):
        return "heard " + last.text.partition("Output:\\n")[2]
    return ToolCall("delegate_task", {"goal": last.text, "background": True})

seconds = float(os.environ.get("WORKER_SECONDS", "1000"))
worker = Agent("worker", model=ScriptedModel.always("found", seconds))
chatty = Agent("chatty", model=ScriptedModel.always(say), delegates=[worker])
""",
}


class Command:
    """A command that runs, and what it says."""

    def __init__(self, process: subprocess.Popen[str], journal: Path) -> None:
        self.process = process
        self.journal = journal
        self.began = time.monotonic()
        self.err = ""
        self.out = ""

    def wait_for(self, words: str) -> None:
        """Wait until a line on stderr has these words."""
        assert self.process.stderr is not None
        while words not in self.err:
            line = self.process.stderr.readline()
            assert line, f"it ended too early: {self.err}"
            self.err += line

    def wait_said(self, words: str) -> None:
        assert self.process.stdout is not None
        while words not in self.out:
            line = self.process.stdout.readline()
            assert line, f"it ended too early: {self.out}"
            self.out += line

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        self.began = time.monotonic()
        self.process.send_signal(number)

    def end(self) -> int:
        out, err = self.process.communicate(timeout=60)
        self.took = time.monotonic() - self.began
        self.out += out
        self.err += err
        assert "Traceback" not in self.out + self.err
        return self.process.returncode

    def endings(self) -> list[str]:
        """Return the outcomes that the journal has, in order."""
        with closing(sqlite3.connect(self.journal)) as connection:
            rows = connection.execute(
                "SELECT json_extract(body, '$.outcome.ending') FROM entries"
                " WHERE kind IN ('TaskSettled', 'TurnEnded') ORDER BY seq"
            ).fetchall()
        return [ending for (ending,) in rows]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


# `python -m orchestrator`, with another grace after the first signal.
PATIENT = """
import runpy
from orchestrator.cli import signals
signals.run_stoppable.__defaults__ = (3600,)
runpy.run_module("orchestrator", run_name="__main__", alter_sys=True)
"""


@contextmanager
def started(
    home: Path, *arguments: str, is_patient: bool = False, **environ: str
) -> Iterator[Command]:
    """Start a command; one that is patient would not end in the time of a test by its grace."""
    program = ["-c", PATIENT] if is_patient else ["-m", "orchestrator"]
    with subprocess.Popen(
        [sys.executable, *program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=home,
        env={**os.environ, "ORCHESTRATOR_HOME": str(home), **environ},
    ) as process:
        try:
            yield Command(process, home / "journal.db")
        finally:
            process.kill()


def test_sigterm_lets_a_run_finish_that_needs_less_than_the_grace(home: Path) -> None:
    """It ended by itself, so it exits as if nothing had been: the caller has the answer."""
    with started(home, "run", "quick.py", "go", is_patient=True) as command:
        command.wait_for("/quick running")
        command.signal(signal.SIGTERM)
        assert command.end() == 0

    assert command.out == "the answer\n"
    assert "waiting up to 3600 s for 1 task; again to stop at once" in command.err
    assert command.endings() == ["succeeded"]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_hanging_run_is_cancelled_after_the_grace(
    home: Path, number: signal.Signals, code: int
) -> None:
    # A caller that ignores SIGHUP, such as nohup, lets its children ignore it.
    before = signal.signal(number, signal.SIG_DFL)
    try:
        with started(home, "run", "slow.py", "go") as command:
            command.wait_for("/slow running")
            command.signal(number)
            assert command.end() == code
    finally:
        signal.signal(number, before)

    assert command.endings() == ["cancelled"]
    assert "orchestrator: stopped; see: python -m orchestrator tree r_" in command.err
    assert command.out == ""
    assert command.took >= 5


def test_a_command_that_ignores_ctrl_c_and_closed_terminals_ends_by_sigterm(home: Path) -> None:
    """A shell starts `nohup orchestrator ... &` so."""
    ignored = [signal.SIGINT, signal.SIGHUP]
    before = [signal.signal(it, signal.SIG_IGN) for it in ignored]
    try:
        with started(home, "run", "slow.py", "go") as command:
            command.wait_for("/slow running")
            command.signal(signal.SIGHUP)
            command.signal(signal.SIGTERM)
            assert command.end() == 143
    finally:
        for number, handler in zip(ignored, before, strict=True):
            signal.signal(number, handler)

    assert command.endings() == ["cancelled"]
    assert "Traceback" not in command.err


def test_a_second_signal_stops_at_once(home: Path) -> None:
    with started(home, "run", "slow.py", "go", is_patient=True) as command:
        command.wait_for("/slow running")
        command.signal(signal.SIGINT)
        command.wait_for("again to stop at once")
        command.signal(signal.SIGINT)
        assert command.end() == 130

    assert command.endings() == ["cancelled"]


@pytest.mark.parametrize("file", ["thread.py", "stubborn.py"])
def test_hanging_work_does_not_block_the_exit(home: Path, file: str) -> None:
    with started(home, "run", file, "go", is_patient=True) as command:
        command.wait_for("running")
        wait_for_row(command.journal, "ModelAnswered")
        command.signal(signal.SIGTERM)
        command.wait_for("again to stop at once")
        command.signal(signal.SIGTERM)
        assert command.end() == 143

    assert command.endings() == ["cancelled"]
    assert "something hangs, and is left behind" in command.err


def test_a_third_signal_ends_a_blocked_event_loop(home: Path) -> None:
    """No fact can be written, so the journal looks as after `kill -9`."""
    with started(home, "run", "blocked.py", "go") as command:
        command.wait_for("now it is stuck")
        # Three that come too quickly one after the other may be one for Python.
        while not has_ended_by(signal.SIGINT, command.process):
            command.signal(signal.SIGINT)
        assert command.end() == 130

    assert command.endings() == []


def test_ctrl_c_in_a_chat_interrupts_a_task_that_goes_on_the_next_time(home: Path) -> None:
    with started(home, "chat", "chatty.py") as command:
        command.say("look\n")
        command.wait_said("on its way")
        command.signal(signal.SIGINT)
        command.wait_for("waiting up to 5 s for 1 task")
        command.signal(signal.SIGINT)
        assert command.end() == 130
    assert command.endings() == ["succeeded"]  # the turn, and not the task
    session = one(command.journal, "SELECT session FROM entries WHERE seq = 2")

    with started(home, "chat", "chatty.py", "--session", session, WORKER_SECONDS="0") as command:
        command.wait_said("heard found")
        assert command.end() == 0
    assert command.endings() == ["succeeded"] * 3


def test_ctrl_c_in_a_chat_that_only_waits_for_a_line_leaves_at_once(home: Path) -> None:
    with started(home, "chat", "chatty.py", is_patient=True) as command:
        command.wait_said("Ctrl-D ends it")
        command.signal(signal.SIGINT)
        assert command.end() == 130

    assert "to come back: python -m orchestrator chat chatty.py --session" in command.out
    assert command.err == ""


def test_sigterm_stops_the_demonstration(home: Path) -> None:
    with started(home, "demo", "--seconds", "1000") as command:
        wait_for_row(command.journal, "TurnStarted")
        command.signal(signal.SIGTERM)
        command.wait_for("again to stop at once")
        command.signal(signal.SIGTERM)
        assert command.end() == 143


def test_a_terminal_gets_its_cursor_back(home: Path) -> None:
    """The tree that grows hides it, and a signal is no excuse."""
    with terminal(home, "run", "slow.py", "go") as run:
        run.wait_for("1 running", anywhere=True)
        run.process.send_signal(signal.SIGINT)
        run.wait_for("again to stop at once", anywhere=True)
        run.process.send_signal(signal.SIGINT)
        assert run.wait() == 130

    assert run.all.rindex("\x1b[?25h") > run.all.rindex("\x1b[?25l")


def has_ended_by(number: signal.Signals, process: subprocess.Popen[str]) -> bool:
    """Wait until no signal is pending for a process, and tell whether it has ended."""
    bit = 1 << (number - 1)
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        lines = status.read_text().splitlines()
        pending = next(line for line in lines if line.startswith("ShdPnd"))
        if not int(pending.split()[1], 16) & bit:
            return False
    return True


def wait_for_row(journal: Path, kind: str) -> None:
    """Wait until a fact of this kind is in a journal that another process writes."""
    while True:
        try:
            if one(journal, f"SELECT count(*) FROM entries WHERE kind = '{kind}'"):
                return
        except sqlite3.OperationalError:
            pass  # there is no journal yet
        os.sched_yield()


def one(journal: Path, query: str) -> Any:
    with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchone()[0]


@pytest.mark.parametrize(
    "imported",
    ["orchestrator.agents.messages", "orchestrator.kernel.journal.journal", "cyclopts.core"],
)
def test_an_interrupt_while_the_command_is_imported_leaves_no_traceback(imported: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "orchestrator", "runs"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        # One line a module, as it is imported: so the moment is known without waiting.
        assert any(line.split()[-1] == imported for line in process.stderr)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()

    assert "Traceback" not in errors
    assert process.returncode == -signal.SIGINT


def test_an_interrupt_that_the_shell_ignores_stays_ignored(tmp_path: Path) -> None:
    done = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-c", IGNORED],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("True\n")


IGNORED = """
import atexit, signal, sys
from orchestrator.__main__ import main
atexit.register(lambda: print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN))
sys.argv = ["orchestrator", "--version"]
main()
"""
