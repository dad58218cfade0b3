"""Resume: a run whose process died goes on, and what is finished is not paid for again."""

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing

from orchestrator import (
    MemoryJournal,
    NotInterruptedError,
    Orchestrator,
    Run,
    UnknownIdError,
    budget,
    open_orchestrator,
)
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    Part,
    ScriptedModel,
    ToolCall,
    Transcript,
    UserMessage,
    confirm,
    raising_one_error,
    tool,
)
from orchestrator.backends import journals_at
from orchestrator.cli.app import run_command
from orchestrator.delegation import Cause, Ending
from orchestrator.delegation.events import (
    ModelAnswered,
    SessionOpened,
    TaskRequested,
    TurnResumed,
    TurnStarted,
)
from orchestrator.kernel.doors.durable_run import LOOKED_AT, durable_key, goal_key
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal, read_sqlite_journal
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.testing import CrashedError, CrashingJournal, Harness
from tests.kit import facts, hand_on, worker

# A journal that is cut after each of its facts, and resumed.


def team(asked: Counter[str] | None = None) -> Agent:
    """Return a team on models that are functions of the transcript, and count their calls."""
    counts = Counter[str]() if asked is None else asked

    def model(name: str, *steps: object) -> ScriptedModel:
        def step(transcript: Transcript) -> object:
            counts[name] += 1
            return steps[sum(isinstance(it, AssistantMessage) for it in transcript)]

        return ScriptedModel.always(step)  # type: ignore[arg-type]

    finder = Agent("finder", model=model("finder", "found"))
    lead = model("lead", hand_on("a", "b", agent="finder"), "both are there")
    return Agent("lead", model=lead, delegates=[finder])


async def test_a_run_goes_on_wherever_its_process_died() -> None:
    whole = Harness()
    await whole.run(team(), "go")
    first = next(entry.seq for entry in whole.entries if isinstance(entry.event, TurnStarted))
    for length in range(first, len(whole.entries)):
        harness, asked = Harness(), Counter[str]()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(team(), "go")
        (opened,) = harness.facts(SessionOpened)
        answered = len(harness.facts(ModelAnswered))
        async with harness.open() as orchestrator:
            run = await orchestrator.resume(team(asked), opened.session)

        assert run.output == "both are there", length
        assert run.id == opened.session
        assert run.tree.counts() == {"succeeded": 3}
        assert len(harness.facts(TaskRequested)) == 2
        assert asked.total() == 4 - answered, "what was answered is not asked again"
        harness.assert_laws()


async def test_a_run_may_be_interrupted_again_and_is_resumed_once() -> None:
    harness = Harness()
    async with harness.open(crash_after=9) as orchestrator:
        await orchestrator.run(team(), "go")
    (opened,) = harness.facts(SessionOpened)
    async with harness.open(crash_after=13) as orchestrator:
        await orchestrator.resume(team(), opened.session)
    async with harness.open() as orchestrator:
        run = await orchestrator.resume(team(), opened.session)
        with pytest.raises(NotInterruptedError, match="has ended: succeeded"):
            await orchestrator.resume(team(), opened.session)

    assert run.output == "both are there"
    assert len(harness.facts(TurnResumed)) == 2


async def test_only_an_interrupted_run_can_be_resumed() -> None:
    harness = Harness()
    async with harness.open() as orchestrator:
        async with orchestrator.open_session(worker()) as session:
            with pytest.raises(NotInterruptedError, match="has not begun"):
                await orchestrator.resume(worker(), session.id)
        with pytest.raises(UnknownIdError, match="no run 'r_no'"):
            await orchestrator.resume(worker(), "r_no")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, worker(seconds=9), "go")
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(NotInterruptedError, match="is under way"):
                await orchestrator.resume(worker(), orchestrator.runs[-1])


async def test_a_conversation_goes_on_when_it_is_opened_and_not_by_resume() -> None:
    harness = Harness()
    async with harness.open(crash_after=6) as orchestrator:
        async with orchestrator.open_session(worker()) as session:
            await session.ask("go")
    async with harness.open() as orchestrator:
        with pytest.raises(NotInterruptedError, match="is a conversation"):
            await orchestrator.resume(worker(), session.id)


async def test_resuming_with_another_agent_is_refused() -> None:
    harness = Harness()
    async with harness.open(crash_after=8) as orchestrator:
        await orchestrator.run(team(), "go")
    (opened,) = harness.facts(SessionOpened)
    async with harness.open() as orchestrator:
        with pytest.raises(UnknownIdError, match="is of agent 'lead', not of 'worker'"):
            await orchestrator.resume(worker(), opened.session)
        assert (await orchestrator.resume(team(), opened.session)).outcome.succeeded


@pytest.mark.parametrize(
    ("on_restart", "ending", "cause"),
    [("restart", Ending.SUCCEEDED, Cause.NONE), ("lose", Ending.LOST, Cause.PROCESS_DIED)],
)
async def test_on_restart_applies_to_a_resumed_run(
    on_restart: str, ending: Ending, cause: Cause
) -> None:
    def one_step() -> Agent:
        return Agent("one", model=ScriptedModel.always("done"), on_restart=on_restart)  # type: ignore[arg-type]

    harness = Harness()
    async with harness.open(crash_after=4) as orchestrator:
        await orchestrator.run(one_step(), "go")
    (opened,) = harness.facts(SessionOpened)
    async with harness.open() as orchestrator:
        run = await orchestrator.resume(one_step(), opened.session)

    assert (run.outcome.ending, run.outcome.cause) == (ending, cause)


async def test_an_open_call_that_must_not_run_twice_is_answered_as_interrupted() -> None:
    paid: list[int] = []
    harness = Harness()

    @tool
    async def pay() -> str:
        """Pay once."""
        paid.append(len(harness.entries))
        await trio.lowlevel.checkpoint()
        return "paid"

    def step(transcript: Transcript) -> str | ToolCall:
        return transcript[-1].text if len(transcript) > 1 else ToolCall("pay")

    def payer() -> Agent:
        return Agent("payer", model=ScriptedModel.always(step), tools=[pay])

    async with harness.open(crash_after=5) as orchestrator:
        await orchestrator.run(payer(), "go")
    (opened,) = harness.facts(SessionOpened)
    async with harness.open() as orchestrator:
        run = await orchestrator.resume(payer(), opened.session)

    assert len(paid) == 1
    assert "its effect is unknown" in run.output


async def test_a_call_that_waited_for_approval_waits_again_when_it_is_resumed() -> None:
    def careful() -> Agent:
        @tool
        async def deploy() -> str:
            """Deploy it."""
            await trio.lowlevel.checkpoint()
            return "deployed"

        def step(transcript: Transcript) -> str | ToolCall:
            return transcript[-1].text if len(transcript) > 1 else ToolCall("deploy")

        model = ScriptedModel.always(step)
        return Agent("careful", model=model, tools=[deploy], approve=[confirm("deploy")])

    left = MemoryJournal()
    async with open_orchestrator(left) as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(run_attended, orchestrator, careful())
        await trio.testing.wait_all_tasks_blocked()
        left = MemoryJournal(left.entries)
        nursery.cancel_scope.cancel()
    async with open_orchestrator(left) as orchestrator, trio.open_nursery() as nursery:
        (run,) = orchestrator.runs
        assert orchestrator.approvals == []

        async def resume() -> None:
            resumed = await orchestrator.resume(careful(), run)
            assert resumed.output == "deployed"

        nursery.start_soon(resume)
        await trio.testing.wait_all_tasks_blocked()
        (question,) = orchestrator.approvals
        await orchestrator.answer(question.id, "once")


async def run_attended(orchestrator: Orchestrator, agent: Agent) -> None:
    await orchestrator.run(agent, "go", attended=True)


def on_a_jumping_clock(function: Callable[[], Awaitable[None]]) -> None:
    trio.run(function, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_budget_goes_on_without_the_time_between() -> None:
    """The seconds without a process do not count."""
    harness = Harness()

    async def crash_and_resume() -> None:
        with budget(seconds=60):
            async with harness.open(crash_after=11) as orchestrator:
                await orchestrator.run(team(), "go")
        (opened,) = harness.facts(SessionOpened)
        async with harness.open() as orchestrator:
            await trio.sleep(1_000)
            run = await orchestrator.resume(team(), opened.session)
        assert run.output == "both are there"

    on_a_jumping_clock(crash_and_resume)

    (resumed,) = harness.facts(TurnResumed)
    assert resumed.paused == pytest.approx(1_000, abs=5)
    assert replay_sync(harness.entries, team()).difference is None


async def test_a_run_is_abandoned_by_its_cancel() -> None:
    harness = Harness()
    async with harness.open(crash_after=9) as orchestrator:
        await orchestrator.run(team(), "go")
    (opened,) = harness.facts(SessionOpened)
    async with harness.open() as orchestrator:
        await orchestrator.cancel(opened.session)
        with pytest.raises(NotInterruptedError, match="has ended: cancelled"):
            await orchestrator.resume(team(), opened.session)


def test_a_run_that_was_interrupted_is_replayed_and_forked() -> None:
    harness = Harness()
    outputs: list[str] = []

    async def crash() -> None:
        async with harness.open(crash_after=9) as orchestrator:
            await orchestrator.run(team(), "go")

    async def fork_and_resume() -> None:
        (opened,) = harness.facts(SessionOpened)
        second = "/lead/finder[2]"
        async with harness.open() as orchestrator:
            run = await orchestrator.fork(team(), opened.session, task=second)
            outputs.append(run.output)
            run = await orchestrator.resume(team(), opened.session)
            outputs.append(run.output)

    on_a_jumping_clock(crash)
    so_far = replay_sync(harness.entries, team())
    on_a_jumping_clock(fork_and_resume)
    whole = replay_sync(harness.entries, team(), run=so_far.run)

    assert so_far.is_same
    assert whole.is_same
    assert (so_far.is_whole, whole.is_whole) == (False, True)
    assert outputs == ["both are there"] * 2


# What an interrupted run costs as long as it is not resumed.


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_an_interrupted_run_is_not_read_when_the_journal_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_sqlite_journal(path) as journal:
        with suppress(CrashedError):
            async with open_orchestrator(CrashingJournal(journal, after=9)) as it:
                await it.run(team(), "go")
    (opened,) = facts(await read_sqlite_journal(path), SessionOpened)
    id_ = opened.session
    is_read: list[bool] = []
    for _ in range(2):
        async with open_orchestrator(path) as orchestrator:
            assert orchestrator.runs == [id_]
            is_read.append(id_ in orchestrator.read.records.sessions)
            assert orchestrator.working == 0
    async with open_orchestrator(path) as orchestrator:
        tree = await orchestrator.read_tree(id_)
        status = tree[tree.root].status
        run = await orchestrator.resume(team(), id_)

    assert is_read == [True, False], "from then on it is a row, and nothing else"
    assert status == "interrupted"
    assert run.output == "both are there"


# A real `orchestrator run`, killed in the midst of a pipeline.

PIPELINE = """
import os, trio
from orchestrator.agents import Agent, ScriptedModel, agent
from orchestrator import delegate

PAID = os.environ["PAID"]

def work(transcript):
    step = transcript[-1].text
    with open(PAID, "a") as paid:
        print(step, file=paid, flush=True)
        os.fsync(paid.fileno())
    return f"did {step}"

worker = Agent("worker", model=ScriptedModel.always(work))

@agent
async def pipe(goal: str) -> str:
    done = []
    for number in range(1, 7):
        if number == 4 and os.environ.get("HANGS"):
            print("three are done", flush=True)
            await trio.sleep_forever()
        done.append(await delegate(worker, f"step {number}"))
    return ", ".join(done)
"""
BEGIN = ["run", "--resume-on-crash"]
DONE = ", ".join(f"did step {number}" for number in range(1, 7))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the journal of a run that was killed after three of six steps."""
    home = tmp_path_factory.mktemp("killed")
    (home / "pipe.py").write_text(PIPELINE)
    environ = {"ORCHESTRATOR_HOME": str(home), "PAID": str(home / "paid")}
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *BEGIN, "pipe.py:pipe", "go"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=home,
        env={**os.environ, **environ, "HANGS": "1"},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "three are done\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    return home


class Shell:
    """Runs commands in this process, on a copy of that folder."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._home = home
        self._capsys = capsys
        self.file = str(home / "pipe.py:pipe")

    def run(self, *arguments: str) -> tuple[int, str]:
        code = run_command(arguments)
        out, err = self._capsys.readouterr()
        return code, out + err

    def paid(self) -> list[int]:
        """Return the steps that a model was asked for, in all processes together."""
        lines = (self._home / "paid").read_text().splitlines()
        return [int(line.removeprefix("step ")) for line in lines]


@pytest.fixture
def shell(
    killed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Shell:
    home = tmp_path / "home"
    shutil.copytree(killed, home, ignore=shutil.ignore_patterns("*.sock"))
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(home))
    monkeypatch.setenv("PAID", str(home / "paid"))
    return Shell(home, capsys)


@pytest.mark.memory_only
def test_a_killed_run_is_resumed_without_paying_twice(shell: Shell) -> None:
    assert shell.paid() == [1, 2, 3]
    code, said = shell.run("resume", shell.file)

    assert (code, shell.paid()) == (0, [1, 2, 3, 4, 5, 6])
    assert said.startswith(f"{DONE}\n")
    code, said = shell.run("resume", shell.file)
    assert code == 2
    assert "has ended: succeeded; there is nothing to resume" in said


def test_a_killed_run_prints_how_to_resume_it(shell: Shell) -> None:
    hint = "resume FILE r_"

    for command in (["runs"], ["tree"], ["show", "/pipe"]):
        code, said = shell.run(*command)
        assert code == 0
        assert "interrupted" in said
        assert hint in said


def test_a_run_that_was_killed_is_not_resumed_by_another_agent(shell: Shell) -> None:
    code, said = shell.run("resume", shell.file.replace(":pipe", ":worker"))

    assert code == 2
    assert "is of agent 'pipe', not of 'worker'" in said
    assert said.count("\n") == 1


def test_a_run_that_was_killed_is_replayed(shell: Shell) -> None:
    code, said = shell.run("replay", shell.file)

    assert code == 0
    assert "the same: 4 tasks, 10 steps, up to where its record ends" in said


@pytest.mark.memory_only
def test_a_run_that_was_killed_is_forked(shell: Shell) -> None:
    code, said = shell.run("fork", shell.file, "/pipe/worker[3]")

    assert (code, shell.paid()) == (0, [1, 2, 3, 3, 4, 5, 6])
    assert said.startswith(f"{DONE}\n")


def test_a_command_that_is_started_again_goes_on(shell: Shell) -> None:
    """As a supervisor starts it; with another goal it is another run."""
    code, said = shell.run(*BEGIN, shell.file, "go")
    assert (code, shell.paid()) == (0, [1, 2, 3, 4, 5, 6])
    assert said.startswith(f"{DONE}\n")

    for goal, runs in (("go", 2), ("come", 3)):
        code, _ = shell.run(*BEGIN, shell.file, goal)
        assert code == 0
        assert shell.paid().count(1) == runs


async def test_a_durable_run_goes_on_when_the_same_is_asked_again() -> None:
    whole = MemoryJournal()
    async with open_orchestrator(whole, runs="durable") as orchestrator:
        await orchestrator.run(team(), "go")
    for after in range(4, len(whole.entries) - 1):
        journal = MemoryJournal()
        with suppress(CrashedError):
            async with open_orchestrator(
                CrashingJournal(journal, after=after), runs="durable"
            ) as orchestrator:
                await orchestrator.run(team(), "go")
        async with open_orchestrator(journal, runs="durable") as orchestrator:
            other = await orchestrator.run(team(), "something else")
            run = await orchestrator.run(team(), "go")
            again = await orchestrator.run(team(), "go")
            runs = orchestrator.runs

        assert run.output == again.output == "both are there"
        assert runs == [run.id, other.id, again.id]


async def test_equal_durable_runs_are_distinguished() -> None:
    """Asked at once, and again after a crash: each call gets a run of its own."""
    journal = MemoryJournal()
    with suppress(CrashedError):
        async with open_orchestrator(
            CrashingJournal(journal, after=14), runs="durable"
        ) as orchestrator:
            with raising_one_error():
                async with trio.open_nursery() as nursery:
                    for _ in range(3):
                        nursery.start_soon(orchestrator.run, team(), "go")
    begun = {it.session for it in facts(journal.entries, SessionOpened)}
    found: list[Run[str]] = []

    async with open_orchestrator(journal, runs="durable") as orchestrator:

        async def ask_again() -> None:
            found.append(await orchestrator.run(team(), "go"))

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask_again)

    assert len({run.id for run in found}) == 4
    assert begun < {run.id for run in found}
    assert {run.output for run in found} == {"both are there"}


async def test_a_durable_run_that_newer_equal_ones_overtook_goes_on() -> None:
    """However many have ended since it began."""
    journal, begun, calls = MemoryJournal(), trio.Event(), list[str]()

    @tool
    async def act() -> str:
        """Act, the first time for ever."""
        calls.append("acted")
        if len(calls) == 1:
            begun.set()
            await trio.sleep_forever()
        return "acted"

    def step(transcript: Transcript) -> ToolCall | str:
        return ToolCall("act", {}) if len(transcript) == 1 else "done"

    actor = Agent("actor", model=ScriptedModel.always(step), tools=[act])
    async with open_orchestrator(journal, runs="durable") as orchestrator:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(orchestrator.run, actor, "go")
            await begun.wait()
            (slow,) = orchestrator.runs
            for _ in range(LOOKED_AT + 1):
                await orchestrator.run(actor, "go")
            left = MemoryJournal(journal.entries)
            nursery.cancel_scope.cancel()
    async with open_orchestrator(left, runs="durable") as orchestrator:
        run = await orchestrator.run(actor, "go")

    assert (run.id, run.output) == (slow, "done")
    assert len(calls) == LOOKED_AT + 2, "it has not acted again"


@pytest.mark.realtime
async def test_a_durable_run_goes_on_when_earlier_equal_ones_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with open_orchestrator(path, runs="durable") as orchestrator:
        ended = [(await orchestrator.run(team(), "go")).id for _ in range(2)]
        last = orchestrator.read.last_seq
    async with open_sqlite_journal(path) as journal:
        with suppress(CrashedError):
            async with open_orchestrator(
                CrashingJournal(journal, after=last + 9), runs="durable"
            ) as orchestrator:
                await orchestrator.run(team(), "go")
    # One that does not ask for it, and one that does.
    async with open_orchestrator(path, runs="durable") as orchestrator:
        interrupted = orchestrator.runs[-1]
        await orchestrator.delete_run(ended[0])
    async with open_orchestrator(path, runs="durable") as orchestrator:
        await orchestrator.delete_run(ended[1])
        run = await orchestrator.run(team(), "go")
        again = await orchestrator.run(team(), "go")
        runs = orchestrator.runs

    assert interrupted not in ended
    assert run.id == interrupted
    assert runs == [interrupted, again.id]


@pytest.mark.realtime
async def test_equal_durable_runs_of_two_processes_leave_their_goal_free(tmp_path: Path) -> None:
    folder = f"{tmp_path / 'runs'}/"
    found: list[Run[str]] = []
    async with (
        open_orchestrator(folder, runs="durable") as one,
        open_orchestrator(folder, runs="durable") as other,
    ):
        found += [await one.run(team(), "go"), await other.run(team(), "go")]
    async with open_orchestrator(folder, runs="durable") as later:
        found += [await later.run(team(), "go"), await later.run(team(), "go")]

    assert len({run.id for run in found}) == 4
    assert {run.output for run in found} == {"both are there"}


@pytest.mark.realtime
async def test_a_durable_run_that_waits_in_another_journal_is_found_there(tmp_path: Path) -> None:
    folder = f"{tmp_path / 'runs'}/"
    async with open_orchestrator(folder, runs="durable") as one:
        ended = await one.run(team(), "go")
        async with journals_at(folder).open_free() as held:
            with suppress(CrashedError):
                async with open_orchestrator(
                    CrashingJournal(held.journal, after=9), runs="durable"
                ) as other:
                    await other.run(team(), "go")
    ((waiting,),) = journals_at(folder).waiting().values()

    async def ask_again() -> Run[str]:
        async with open_orchestrator(folder, runs="durable") as orchestrator:
            assert ended.id in orchestrator.runs
            return await orchestrator.run(team(), "go")

    with pytest.raises(UnknownIdError, match=f"session='{waiting}'"):
        await ask_again()
    async with open_orchestrator(folder, session=waiting, runs="durable"):
        # A process that lives may go on with it: this one begins its own.
        beside = await ask_again()
    with pytest.raises(UnknownIdError, match=f"session='{waiting}'"):
        await ask_again()
    async with open_orchestrator(folder, session=waiting, runs="durable") as advised:
        resumed = await advised.run(team(), "go")
        again = await advised.run(team(), "go")
    last = await ask_again()

    assert resumed.id == waiting
    assert len({it.id for it in (ended, beside, resumed, again, last)}) == 5


def test_durable_keys_differ_by_agent_text_and_parts() -> None:
    other = Agent("other", model=ScriptedModel([]))
    files = [
        Part(media_type="text/plain", data=b"a"),
        Part(media_type="text/plain", url="https://a.example"),
    ]
    asked = [UserMessage("go"), UserMessage("stay"), UserMessage("")]
    asked += [UserMessage("go", parts=(it,)) for it in files]

    keys = {durable_key(agent, it) for agent in (team(), other) for it in asked}

    assert len(keys) == 10
    assert goal_key(team(), "go") in keys
