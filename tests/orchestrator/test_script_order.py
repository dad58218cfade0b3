"""A script gets answers in the order in which its tasks have ended, also after a crash."""

import json
from collections import Counter
from collections.abc import Sequence

import pytest
import trio

from orchestrator import Agent, MemoryJournal, open_orchestrator
from orchestrator.agents import AssistantMessage, ModelRequest, Usage
from orchestrator.agents.script import Script, ScriptLimits, script_agent
from orchestrator.delegation.events import (
    Entry,
    SessionOpened,
    TaskRequested,
    TurnEnded,
    TurnStarted,
)
from orchestrator.kernel.pipelines.scripts.fan_out_source import with_fan_outs
from tests.kit import facts


class Timed:
    """A model that answers after the seconds in its goal, and fails for a goal with `!`."""

    name = "timed"

    async def answer(self, request: ModelRequest) -> AssistantMessage:
        goal = request.transcript[0].text
        await trio.sleep(int(goal.split()[0]))
        if "!" in goal:
            raise RuntimeError(f"no {goal}")
        return AssistantMessage(goal, usage=Usage())


WORKER = Agent("worker", model=Timed())
ORDERED = """
done = []
async def one(goal):
    done.append(await agent("worker", goal))
    if goal == "1 b":
        done.append(await agent("worker", "1 follows b"))
async def two():
    await gather(one("3 a"), one("1 b"))
    done.append("both")
await gather(one("5 c"), two(), one("4 d"))
told = await agent("worker", "1 " + ", ".join(done))
try:
    await gather(*[agent("worker", f"{it} !") for it in (3, 1, 2)])
except RuntimeError as exc:
    told = await agent("worker", f"2 {exc}"[:15])
try:
    await gather(agent("worker", "1 e"), agent("worker", "1 f", model="other"))
except RuntimeError as exc:
    told = await agent("worker", "1 refused")
numbers = await gather(*[agent("worker", f"{it}") for it in (2, 1)])
[done, told, numbers]
"""


async def finish(entries: Sequence[Entry]) -> tuple[list[Entry], str]:
    """Run the script on a journal that has these entries, and return all entries."""
    journal = MemoryJournal(entries)
    script = script_agent([WORKER])
    opened = facts(entries, SessionOpened)
    async with open_orchestrator(journal) as orchestrator:
        if opened:
            done = await orchestrator.resume(script, opened[0].session)
        else:
            done = await orchestrator.run(script, Script(code=ORDERED))
    return journal.entries, done.output


def requests(entries: Sequence[Entry]) -> Counter[str]:
    return Counter(it.request.goal for it in facts(entries, TaskRequested))


async def test_a_script_that_depends_on_the_order_of_the_ends_continues_after_any_crash() -> None:
    whole, output = await finish([])
    done, told, numbers = json.loads(output)
    assert done == ["1 b", "1 follows b", "3 a", "both", "4 d", "5 c"]
    assert told == "1 refused"
    assert numbers == ["2", "1"]
    begins, ends = (
        next(at for at, it in enumerate(whole) if isinstance(it.event, kind))
        for kind in (TurnStarted, TurnEnded)
    )
    for kept in range(begins + 1, ends + 1):
        entries, resumed = await finish(whole[:kept])
        assert resumed == output, f"after {kept} entries"
        assert requests(entries) == requests(whole), f"after {kept} entries"


@pytest.mark.parametrize(
    "code",
    [
        "await gather(*[agent('worker', x) for x in 'ab'])",
        "await gather(*(agent('worker', f'({x}') for x in 'ab' if x),)",
        "import asyncio\nawait asyncio.gather(\n*[\nagent('worker', x)  # (\n  for x in 'ab']\n)",
        "from asyncio import gather\nawait gather(*[agent('worker', 'é' + x) for x in 'ab'])",
    ],
)
def test_a_fan_out_becomes_one_call_with_the_same_lines_and_columns(code: str) -> None:
    changed = with_fan_outs(code)
    assert "agent(" not in changed.code
    assert "args_(" in changed.code
    assert [len(it) for it in changed.code.split("\n")] == [len(it) for it in code.split("\n")]
    assert changed.with_own_names(changed.code) == code
    (line,) = changed.lines.values()
    assert "agent(" in code.split("\n")[line - 1]


@pytest.mark.parametrize(
    "code",
    [
        "await gather(*[agent('worker', await agent('worker', x)) for x in 'ab'])",
        "await gather(*[one(x) for x in 'ab'])",
        "await gather(agent('worker', 'a'), *[agent('worker', x) for x in 'ab'])",
        "await gather(*[agent('worker', x) for x in 'ab'], agent('worker', 'c'))",
        "await gather(*[agent('worker', x) if x else one(x) for x in 'ab'])",
        "await gather(*[agent('worker', x)[0] for x in 'ab'])",
        "await gather(*[agent('worker', x) for x in 'ab'],",
        "def agent(x): ...\nawait gather(*[agent(x) for x in 'ab'])",
        "agent = one\nawait gather(*[agent(x) for x in 'ab'])",
        "async def all(agent): await gather(*[agent('worker', x) for x in 'ab'])",
        "from my import gather\nawait gather(*[agent('worker', x) for x in 'ab'])",
        "from asyncio import sleep as gather\nawait gather(*[agent('worker', x) for x in 'ab'])",
        "asyncio = one\nawait asyncio.gather(*[agent('worker', x) for x in 'ab'])",
        "args_ = 1\nawait gather(*[agent('worker', x) for x in 'ab'])",
        "text = '''gather(*[agent('worker', x) for x in 'ab'])'''",
        "# gather(*[agent('worker', x) for x in 'ab'])",
        "gather(*[agent(",
        "gather '",
        "  gather\n(\n",
    ],
)
def test_a_source_that_is_no_plain_fan_out_stays_as_it_is(code: str) -> None:
    assert with_fan_outs(code).code == code


async def test_a_fan_out_has_lines_labels_limits_and_an_answer_without_calls() -> None:
    code = "none = await gather(*[agent('worker', x) for x in []])\n" + (
        "some = await gather(*[\n    agent('worker', f'{x} s') for x in range(3)])\n[none, some]"
    )
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(script_agent([WORKER]), Script(code=code))
        assert json.loads(run.output) == [[], ["0 s", "1 s", "2 s"]]
        assert [len(run.tree.find(label=f"line 3: {it} s")) for it in range(3)] == [1, 1, 1]
        limited = script_agent([WORKER], limits=ScriptLimits(calls=2))
        run = await orchestrator.run(limited, Script(code=code))
        assert "stopped in line 3: it made more than 2 calls" in run.outcome.error


async def test_an_error_in_a_fan_out_is_shown_with_the_names_of_the_script() -> None:
    code = "numbers = {}\nawait gather(*[agent('worker', numbers['no']) for x in range(3)])"
    async with open_orchestrator(":memory:") as orchestrator:
        run = await orchestrator.run(script_agent([WORKER]), Script(code=code))
    assert "line 2" in run.outcome.error
    assert "await gather(*[agent('worker', numbers['no']) for" in run.outcome.error
