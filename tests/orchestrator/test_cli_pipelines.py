"""Pipelines on the command line, limits of a run, and what another program reads of it."""

import json
from pathlib import Path

import pytest

from tests.orchestrator.test_cli import Shell

PIPELINE = """
import trio
from orchestrator.agents import Agent, ScriptedModel, agent
from orchestrator import delegate, map_each

plan = Agent("plan", model=ScriptedModel(['["a", "b"]']), output=list[str])
research = Agent("research", model=ScriptedModel.always(lambda goal: f"on {goal[0].text}"))
each = map_each(research, limit=5)


@agent
async def brief(topic: str) -> dict[str, str]:
    \"\"\"Write a brief.\"\"\"
    parts = await delegate(plan, topic)
    return dict(zip(parts, await delegate(each, parts)))
"""
CHAIN = """
from orchestrator.agents import Agent, ScriptedModel
from orchestrator import map_each

plan = Agent("plan", model=ScriptedModel(['["a", "b"]']), output=list[str])
research = Agent("research", model=ScriptedModel.always("found", 0.01))
pipeline = plan >> map_each(research)
"""
SLOW = """
import trio
from orchestrator.agents import Agent, ScriptedModel, agent
from orchestrator import delegate

slow = Agent("slow", model=ScriptedModel.always("never", 1000))


@agent
async def wait(topic: str) -> str:
    return await delegate(slow, topic)
"""


@pytest.fixture
def shell(tmp_path: Path, python: list[str]) -> Shell:
    return Shell(tmp_path, python)


def test_a_function_is_found_and_run_and_so_is_a_chain(shell: Shell) -> None:
    """A delegate of another agent is not the one that is meant."""
    function, chain = shell.write("f.py", PIPELINE), shell.write("c.py", CHAIN)

    out, err = shell.run("run", function, "trio")
    assert json.loads(out) == {"a": "on a", "b": "on b"}
    assert "map_each[1]" in err
    out, _ = shell.run("run", chain, "trio", "--quiet")
    assert json.loads(out) == ["found", "found"]
    out, _ = shell.run("run", f"{function}:each", '["x"]', "--quiet")
    assert json.loads(out) == ["on x"]


def test_the_json_document_holds_the_whole_result_of_a_run(shell: Shell) -> None:
    out, err = shell.run("run", shell.write("f.py", PIPELINE), "x", "--json", "--quiet")
    document = json.loads(out)

    assert err == ""
    assert (document["agent"], document["outcome"], document["error"]) == ("brief", "succeeded", "")
    assert document["output"] == {"a": "on a", "b": "on b"}
    assert document["usage"]["calls"] == 3
    assert document["usage"]["cost_usd"] == 0
    assert [task["path"] for task in document["tree"]] == [
        "/brief",
        "/brief/plan[1]",
        "/brief/map_each[1]",
        "/brief/map_each[1]/research[1]",
        "/brief/map_each[1]/research[2]",
    ]
    assert document["tree"][1]["parent"] == document["tree"][0]["id"] == document["run"]
    assert {task["status"] for task in document["tree"]} == {"succeeded"}


@pytest.mark.parametrize(
    ("option", "outcome", "code"),
    [
        ("--budget-tokens=1", "over_budget", 3),
        ("--budget-tasks=1", "over_budget", 3),
        ("--budget-tasks=4", "succeeded", 0),
        ("--budget-usd=1", "succeeded", 0),
    ],
)
def test_a_run_has_limits_and_its_outcome_is_its_exit_code(
    shell: Shell, option: str, outcome: str, code: int
) -> None:
    file = shell.write("c.py", CHAIN)
    out, _ = shell.run("run", file, "x", "--json", "--quiet", option, code=code)

    assert json.loads(out)["outcome"] == outcome


def test_a_run_that_is_out_of_time_exits_with_4(shell: Shell) -> None:
    file = shell.write("s.py", SLOW)
    out, err = shell.run("run", file, "x", "--quiet", "--budget-seconds=0.2", code=4)

    assert out == ""
    assert "/wait timed_out: the budget (seconds=0.2) of /wait is used up" in err


def test_limits_that_make_no_sense_are_mistakes(shell: Shell) -> None:
    file = shell.write("c.py", CHAIN)

    assert "makes no sense" in shell.error("run", file, "x", "--budget-tokens=-1")
    assert "say which agent" in shell.error(
        "run", shell.write("two.py", CHAIN + "other = plan >> research\n"), "x"
    )


def test_a_goal_of_the_wrong_type_is_reported(shell: Shell) -> None:
    _, err = shell.run("run", f"{shell.write('f.py', PIPELINE)}:each", "x", code=1)

    assert "the goal is not the list[Any] that map_each takes" in err
