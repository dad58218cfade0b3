"""Scripts: each call is a child of the script's task, and a crash repeats none of them."""

import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from orchestrator import (
    Agent,
    DefinitionError,
    MemoryJournal,
    Run,
    ScriptedModel,
    Tool,
    ToolCall,
    budget,
    load_agents,
    open_orchestrator,
    tool,
)
from orchestrator.agents import ToolMessage, Transcript, UserMessage
from orchestrator.agents.sandbox.closed_thread import can_close
from orchestrator.agents.script import Script, ScriptLimits, ScriptTeam, script_agent
from orchestrator.delegation import Ending, SessionId
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    SessionOpened,
    TaskRequested,
    ToolAnswered,
    TurnEnded,
    TurnStarted,
)
from orchestrator.kernel.pipelines.scripts.interpreter import Interpreter, ScriptError
from orchestrator.products.history.replay.run import replay_sync
from orchestrator.products.history.simulation import dry_run
from tests.kit import facts

HOUR = 3_600.0
RESEARCHER = Agent("researcher", model=ScriptedModel.always(lambda said: f"on {said[0].text}"))
COUNTER = Agent("counter", output=int, model=ScriptedModel.always("7"))
SLOW = Agent("slow", model=ScriptedModel.always("too late", HOUR))
BROKEN = Agent("broken", model=ScriptedModel.always(RuntimeError("it broke")))


@tool(idempotent=True)
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    await trio.lowlevel.checkpoint()
    return str(a + b)


async def run(code: str, *agents: Agent[Any], limits: ScriptLimits | None = None) -> Run[str]:
    async with open_orchestrator(":memory:") as orchestrator:
        return await orchestrator.run(script_agent(agents, [add], limits), Script(code=code))


@pytest.mark.realtime
async def test_the_interpreter_works_in_a_thread() -> None:
    """Elsewhere in these tests time is virtual, and there is no thread."""
    done = await run('await gather(agent("researcher", "a"), agent("researcher", "b"))', RESEARCHER)

    assert done.output == '["on a", "on b"]'


async def test_calls_in_a_gather_run_at_once_and_are_children() -> None:
    done = await run(
        'await gather(agent("researcher", "a"), agent("counter", "b"))', RESEARCHER, COUNTER
    )

    assert done.output == '["on a", 7]'
    assert [row.name for row in done.tree.rows()] == ["script", "researcher[1]", "counter[1]"]


async def test_a_failed_child_raises_in_the_script() -> None:
    done = await run(
        'try:\n    await agent("broken", "x")\nexcept RuntimeError as exc:\n    print(exc)', BROKEN
    )

    assert "/script/broken[1] failed" in done.output
    assert "it broke" in done.output


async def test_a_race_returns_the_first_success_and_ends_the_others() -> None:
    done = await run(
        'await race(agent("slow", "a"), agent("broken", "b"), agent("researcher", "c"))',
        SLOW,
        BROKEN,
        RESEARCHER,
    )

    assert done.output == "on c"
    assert done.tree.counts() == {"succeeded": 2, "failed": 1, "cancelled": 1}


async def test_a_race_without_a_success_raises_an_error() -> None:
    done = await run('await race(agent("broken", "a"), agent("broken", "b"))', BROKEN)

    assert done.outcome.ending is Ending.FAILED
    assert "it broke" in done.outcome.error


async def test_a_tool_call_is_a_task_with_the_answer_of_the_tool() -> None:
    done = await run('await tool("add", a=1, b=2)', RESEARCHER)

    assert done.output == "3"
    assert [row.name for row in done.tree.rows()] == ["script", "add[1]"]


async def test_a_script_reads_what_its_budgets_leave() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with budget(calls=5, tokens=1_000):
            done = await orchestrator.run(
                script_agent([RESEARCHER]),
                Script(code='await agent("researcher", "a")\nawait budget_left()'),
            )

    left = json.loads(done.output)
    assert left["calls"] == 4
    assert left["tokens"] == 1_000 - done.usage.tokens
    assert left["usd"] is None


async def test_a_call_has_its_own_context_schema_and_budget() -> None:
    said: list[str] = []

    def answer(transcript: Transcript) -> str:
        said.append(transcript[0].text)
        return '{"n": 1}'

    done = await run(
        'await agent("reader", "read", context="page 1", output_schema={"type": "object"},'
        ' budget={"calls": 3})',
        Agent("reader", model=ScriptedModel.always(answer)),
    )

    assert done.output == '{"n": 1}'
    assert "page 1" in said[0]
    assert len(done.tree.find(label="line 1: read")) == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('budget={"euros": 1}', "euros"),
        ('budget={"usd": -1}', "makes no sense"),
        ('model="gpt-9"', "lets no parent choose its model"),
        ('output_schema={"type": 3}', "schema"),
    ],
)
async def test_a_call_with_wrong_terms_fails_and_names_its_line(
    arguments: str, problem: str
) -> None:
    done = await run(f'x = 1\nawait agent("researcher", "a", {arguments})', RESEARCHER)

    assert problem in done.outcome.error
    assert "line 2" in done.outcome.error
    assert len(done.tree) == 1


async def test_loops_functions_and_prints_make_the_result() -> None:
    done = await run(
        "async def both(word):\n"
        '    return [await agent("researcher", f"{word} {n}") for n in range(2)]\n'
        'log("begin")\n'
        'for line in (await both("x")):\n'
        "    print(line)\n"
        '{"done": True}',
        RESEARCHER,
    )

    assert done.output == 'begin\non x 0\non x 1\n{"done": true}'


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("x = nothing", "line 1, column 5"),
        ('await agent("stranger", "x")', 'found `Literal["stranger"]`'),
        ('x = 1\nawait agent("researcher")', "line 2, column 7"),
        ("def f(:", "line 1, column 7"),
        ('agent("researcher", "x")\n1', "is not awaited"),
        ('1 + "x"', "Operator `+` is not supported"),
    ],
)
async def test_a_wrong_script_is_refused_with_its_line_before_it_runs(
    code: str, problem: str
) -> None:
    done = await run(code, RESEARCHER)

    assert "was not run" in done.outcome.error
    assert problem in done.outcome.error
    assert len(done.tree) == 1


async def test_an_exception_names_the_line_of_the_script() -> None:
    done = await run('xs = [await agent("researcher", "x")]\nxs[5]', RESEARCHER)

    assert done.outcome.ending is Ending.FAILED
    assert "line 2" in done.outcome.error
    assert "IndexError" in done.outcome.error


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("while True: pass", "time limit exceeded"),
        ('x = ["x" * 1_000_000 for _ in range(1_000)]', "memory limit exceeded"),
        ('while True: await agent("researcher", "again")', "more than 5 calls"),
        ("def f() -> int: return f()\nf()", "RecursionError"),
    ],
)
async def test_a_script_that_uses_too_much_is_stopped(code: str, problem: str) -> None:
    limits = ScriptLimits(seconds=0.5, megabytes=20, calls=5)
    done = await run(code, RESEARCHER, limits=limits)

    assert done.outcome.ending is Ending.FAILED
    assert problem in done.outcome.error


async def test_a_long_result_is_cut() -> None:
    done = await run('print("x" * 100)\n"y" * 100', limits=ScriptLimits(characters=50))

    assert done.output == "x" * 50 + "\n[151 more characters]"


@pytest.mark.parametrize(
    "code",
    [
        'open("/etc/passwd").read()',
        'import os\nos.system("true")',
        "import subprocess",
        "import socket",
        '__import__("os")',
        "().__class__.__base__.__subclasses__()",
        'import os\nos.environ["HOME"]',
        'eval("__import__")("os")',
        'import pathlib\npathlib.Path("/etc/passwd").read_text()',
        "import sys\nsys.modules",
        "import ctypes",
        "agent.__globals__",
        "import asyncio\nawait asyncio.sleep(1)",
        "import time\ntime.sleep(1)",
    ],
)
async def test_an_escape_fails(code: str) -> None:
    done = await run(code, RESEARCHER)

    assert done.outcome.ending is Ending.FAILED
    assert done.outcome.error.startswith("the script")


async def test_a_cancelled_script_ends_with_its_children() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        with trio.move_on_after(0.5) as patience:
            await orchestrator.run(script_agent([SLOW]), Script(code='await agent("slow", "x")'))
        assert patience.cancelled_caught
        (session,) = orchestrator.runs
        assert orchestrator.tree(session).counts() == {"cancelled": 2}


@pytest.mark.realtime
async def test_a_script_that_is_cancelled_while_its_worker_starts_does_not_begin() -> None:
    code = "print('it began')\nwhile True:\n    pass"
    with Interpreter(code, "", ScriptLimits(seconds=3)) as interpreter:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(interpreter.start)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    assert interpreter.output == []


async def test_a_worker_that_dies_before_its_script_begins_is_an_error_of_the_script() -> None:
    class Deadly(str):
        """A goal that kills the worker when the interpreter is about to send it."""

        def __repr__(self) -> str:
            assert interpreter.pid is not None
            os.kill(interpreter.pid, signal.SIGKILL)
            return super().__repr__()

    with Interpreter("goal", "goal: str", ScriptLimits(), Deadly("x")) as interpreter:
        with pytest.raises(ScriptError, match=r"the script was stopped: .*SIGKILL"):
            await interpreter.start()


@pytest.mark.realtime
async def test_a_script_that_computes_is_cancelled_at_once() -> None:
    script = script_agent([RESEARCHER], limits=ScriptLimits(seconds=HOUR))
    async with open_orchestrator(":memory:") as orchestrator:
        with trio.move_on_after(0.5) as patience:
            await orchestrator.run(script, Script(code="while True: pass"))
        assert patience.cancelled_caught
        (session,) = orchestrator.runs
        assert orchestrator.tree(session).counts() == {"cancelled": 1}


CRASHED = """
first, second = await gather(agent("researcher", "a"), agent("counter", "b"))
try:
    await agent("broken", "c")
except RuntimeError:
    third = await race(agent("slow", "d"), agent("researcher", f"{first} {second}"))
async def chain(word):
    return await agent("researcher", await agent("researcher", word))
chains = await gather(chain("x"), chain("y"), chain("z"))
added = await tool("add", a=second, b=1)
[first, second, third, chains, added]
"""


def crashed_team(researcher: Agent[Any]) -> Agent[str, Script]:
    return script_agent([researcher, COUNTER, BROKEN, SLOW], [add])


async def finish(entries: Sequence[Entry]) -> tuple[list[Entry], str]:
    """Run the script on a journal that has these entries, and return all entries."""
    journal = MemoryJournal(entries)
    script = crashed_team(RESEARCHER)
    opened = facts(entries, SessionOpened)
    async with open_orchestrator(journal) as orchestrator:
        if opened:
            done = await orchestrator.resume(script, opened[0].session)
        else:
            done = await orchestrator.run(script, Script(code=CRASHED))
    return journal.entries, done.output


def requests(entries: Sequence[Entry]) -> Counter[tuple[str, str]]:
    return Counter((it.request.agent, it.request.goal) for it in facts(entries, TaskRequested))


async def test_a_crash_after_any_entry_repeats_no_child() -> None:
    whole, output = await finish([])
    assert json.loads(output) == ["on a", 7, "on on a 7", [f"on on {it}" for it in "xyz"], "8"]
    begins, ends = (
        next(at for at, it in enumerate(whole) if isinstance(it.event, kind))
        for kind in (TurnStarted, TurnEnded)
    )
    for kept in range(begins + 1, ends + 1):
        entries, resumed = await finish(whole[:kept])
        assert resumed == output, f"after {kept} entries"
        assert requests(entries) == requests(whole), f"after {kept} entries"


class Purse:
    """A purse that counts its payments: a witness outside of the journal."""

    def __init__(self) -> None:
        self.paid = 0

    def tool(self) -> Tool:
        @tool
        async def pay(usd: int) -> str:
            """Pay once."""
            await trio.lowlevel.checkpoint()
            self.paid += usd
            return f"paid {usd}"

        return pay


def team(purse: Purse, *, background: bool) -> Agent[Any]:
    """Return an agent that runs one script with a payment, and repeats its notice."""
    code = 'first = await agent("researcher", "a")\nawait tool("pay", usd=len(first))'

    def lead(transcript: Transcript) -> Any:
        last = transcript[-1]
        if isinstance(last, ToolMessage):
            return last.text
        if isinstance(last, UserMessage) and last.text.startswith("A task"):
            return f"heard: {last.text}"
        return ToolCall("run_script", {"code": code, "goal": "Pay", "background": background})

    return Agent(
        "lead",
        model=ScriptedModel.always(lead),
        delegates=[RESEARCHER],
        tools=[purse.tool()],
        scripts=True,
    )


async def test_a_model_runs_a_script_and_reads_its_result() -> None:
    purse = Purse()
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(team(purse, background=False), "go")

    assert done.output == "paid 4"
    assert purse.paid == 4
    assert len(done.tree.find(label="Pay")) == 1
    rows = [f"{row.branch}{row.name}" for row in done.tree.rows()]
    assert rows == ["lead", "└─ script[1]", "   ├─ researcher[1]", "   └─ pay[1]"]


async def talk(journal: MemoryJournal, agent: Agent[Any], session: SessionId | None) -> list[str]:
    """Talk to an agent until it is quiet, and return the texts of its replies."""
    async with (
        open_orchestrator(journal) as orchestrator,
        orchestrator.open_session(agent, session=session) as door,
    ):
        if not facts(journal.entries, MessageReceived):
            await door.ask("go")
        await door.wait_idle()
        return [turn.output for turn in facts_of_turns(journal.entries)]


def facts_of_turns(entries: Sequence[Entry]) -> list[Any]:
    return [it.outcome for it in facts(entries, TurnEnded)]


async def test_a_detached_script_continues_after_a_crash_and_pays_at_most_once() -> None:
    whole = MemoryJournal([])
    purse = Purse()
    assert "Output:\npaid 4" in (await talk(whole, team(purse, background=True), None))[-1]
    assert purse.paid == 4
    opened = facts(whole.entries, SessionOpened)[0].session
    begins = next(at for at, it in enumerate(whole.entries) if isinstance(it.event, TurnStarted))
    for kept in range(begins + 1, len(whole.entries)):
        entries = whole.entries[:kept]
        has_paid = any("paid" in it.message.text for it in facts(entries, ToolAnswered))
        again, journal = Purse(), MemoryJournal(entries)
        replies = await talk(journal, team(again, background=True), opened)
        last = replies[-1]
        if has_paid:
            assert again.paid == 0, f"after {kept} entries"
        assert "paid 4" in last or "its effect is unknown" in last, f"after {kept} entries: {last}"
        assert requests(journal.entries) == requests(whole.entries), f"after {kept} entries"


def test_a_script_is_replayed_without_a_model_and_a_changed_team_differs() -> None:
    async def record() -> list[Entry]:
        journal = MemoryJournal([])
        async with open_orchestrator(journal) as orchestrator:
            await orchestrator.run(crashed_team(RESEARCHER), Script(code=CRASHED))
        return journal.entries

    entries = trio.run(record, clock=trio.testing.MockClock(autojump_threshold=0))

    same = replay_sync(entries, crashed_team(RESEARCHER))
    assert same.is_same
    assert same.tasks == len(requests(entries)) + 1
    other = Agent("researcher", output=int, model=ScriptedModel.always("1"))
    assert not replay_sync(entries, crashed_team(other)).is_same


def test_a_delegate_cannot_have_the_name_of_scripts() -> None:
    named = Agent("script", model=ScriptedModel([]))
    with pytest.raises(DefinitionError, match="'script'"):
        Agent("lead", model=ScriptedModel([]), delegates=[named], scripts=True)


def test_an_agent_with_scripts_has_no_tool_of_that_name() -> None:
    @tool
    def run_script(code: str) -> str:
        """Run it elsewhere."""
        return code

    with pytest.raises(DefinitionError, match="run_script"):
        Agent("lead", model=ScriptedModel([]), tools=[run_script], scripts=True)


def repairing(*codes: str) -> Agent[Any]:
    """Return an agent that sends these scripts with one goal, and repeats the last answer."""
    calls = iter(codes)

    def lead(transcript: Transcript) -> Any:
        code = next(calls, None)
        if code is None:
            return transcript[-1].text
        return ToolCall("run_script", {"code": code, "goal": "Count", "background": False})

    return Agent("lead", model=ScriptedModel.always(lead), delegates=[RESEARCHER], scripts=True)


async def test_a_model_repairs_a_script_twice() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        refused = await orchestrator.run(repairing("x = y", "[][1]", "1 + ''", "1"), "go")
        repaired = await orchestrator.run(repairing("x = y", "[][1]", "1", "2 +", "2"), "go")

    assert "3 scripts for the goal 'Count' have failed" in refused.output
    assert refused.tree.counts() == {"failed": 3, "succeeded": 1}
    assert repaired.output == "2"


async def test_a_refused_repair_is_replayed() -> None:
    journal = MemoryJournal([])
    codes = ("x = y", "[][1]", "1 + ''", "1")
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(repairing(*codes), "go")

    replayed = await trio.to_thread.run_sync(replay_sync, journal.entries, repairing(*codes))
    assert replayed.is_same


def dry(code: str) -> Agent[Any]:
    call = ToolCall("run_script", {"code": code, "dry_run": True})
    return Agent(
        "lead",
        model=ScriptedModel([call, lambda said: said[-1].text]),
        delegates=[RESEARCHER, COUNTER],
        scripts=True,
    )


@pytest.fixture
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate all runs, however loaded the machine is."""
    monkeypatch.setattr(dry_run, "SECONDS", HOUR)


@pytest.mark.realtime
@pytest.mark.usefixtures("_patience")
async def test_a_dry_run_starts_no_task_and_says_the_price() -> None:
    code = 'await gather(*[agent("researcher", str(n)) for n in range(4)])'
    journal = MemoryJournal([])
    async with open_orchestrator(journal) as orchestrator:
        done = await orchestrator.run(dry(code), "go")

    assert len(done.tree) == 1
    assert "cost         $0.0000     $0.0000" in done.output
    assert "tasks              4           4" in done.output
    replayed = await trio.to_thread.run_sync(replay_sync, journal.entries, dry(code))
    assert replayed.is_same


@pytest.mark.realtime
@pytest.mark.usefixtures("_patience")
async def test_a_dry_run_that_depends_on_the_answers_has_bounds() -> None:
    code = (
        'text = await agent("researcher", "a")\n'
        'for n in range(len(text) % 3): await agent("researcher", f"{n}")\n'
        "if len(text) % 3 == 2: [][0]"
    )
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(dry(code), "go")

    assert "the figures are bounds of these runs: 1 to 3 tasks" in done.output
    assert "IndexError" in done.output


@pytest.mark.realtime
@pytest.mark.usefixtures("_patience")
async def test_a_dry_run_of_a_wrong_script_fails_with_its_line() -> None:
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(dry("x = 1\ny = nothing"), "go")

    assert "line 2, column 5" in done.output


@pytest.mark.realtime
async def test_a_dry_run_of_a_script_that_computes_too_long_kills_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dry_run, "SECONDS", 0.4)
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(dry("while True: pass"), "go")

    # The limit of the script itself would be another error, after 10 seconds.
    assert "no simulated run of the script ended in time" in done.output


async def test_a_pipeline_of_a_team_file_runs_its_script_with_its_goal(tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(
        "agents:\n  lead: {instructions: Lead., delegates: [reader]}\n"
        "  reader: {instructions: Read.}\n"
        'pipelines:\n  twice:\n    script: |\n      await agent("reader", goal * 2)\n'
    )
    agents = load_agents(file, model=ScriptedModel.always(lambda said: f"on {said[0].text}"))
    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agents["twice"], "it's ")

    assert done.output == "on it's it's "
    rows = [f"{row.branch}{row.name}" for row in done.tree.rows()]
    assert rows == ["twice", "└─ script[1]", "   └─ reader[1]"]


@pytest.mark.parametrize(
    ("pipelines", "problem"),
    [
        ("lead: {script: x}", "team.yaml:3: there is an agent called 'lead'"),
        ("a: {code: x}", "a pipeline has no key 'code'"),
        ("a: {agent: lead}", "pipeline 'a' has no 'script'"),
        ("a: {agent: stranger, script: x}", "there is no agent 'stranger'"),
        ("a b: {script: x}", "a b"),
    ],
)
def test_a_wrong_pipeline_of_a_team_file_is_refused(
    tmp_path: Path, pipelines: str, problem: str
) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(f"agents: {{lead: {{instructions: Lead.}}}}\npipelines:\n  {pipelines}\n")
    with pytest.raises(DefinitionError, match=problem):
        load_agents(file, model=ScriptedModel([]))


def status_of(process: int | None) -> str:
    return Path(f"/proc/{process}/status").read_text()


async def test_the_worker_of_a_script_has_neither_files_nor_sockets() -> None:
    with Interpreter("1 + 1", ScriptTeam({}, {}).stubs, ScriptLimits()) as interpreter:
        assert (await interpreter.start()).value == 2
        status = status_of(interpreter.pid)

    assert ("Seccomp:\t2" in status) is can_close()
    assert ("NoNewPrivs:\t1" in status) is can_close()
