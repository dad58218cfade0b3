"""Evidence: the parent of a task reads facts about its effects next to its claims."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import (
    Machine,
    MemoryJournal,
    TaskContext,
    ToolError,
    allow,
    deny,
    open_orchestrator,
    tool,
)
from orchestrator.agents import Agent, Limits, ModelError, OutputError, ScriptedModel, ToolCall
from orchestrator.cli import app as command_line
from orchestrator.delegation import Ending, Outcome
from orchestrator.delegation.events import TaskSettled
from orchestrator.tools import FILES, ToolResult, edit_file, ran, read_file, terminal, wrote
from tests.kit import continue_session, facts, last_text

pytestmark = pytest.mark.realtime


@tool
def search(words: str) -> str:
    """Search the web."""
    return f"nothing about {words}"


@tool
def publish(page: str) -> str:
    """Publish a page."""
    raise ToolError(f"{page} cannot be reached")


helper = Agent("helper", model=ScriptedModel.always(ModelError("the provider is down")))
steady = Agent("steady", model=ScriptedModel.always("done"))


def write(path: str, content: str = "text\n") -> ToolCall:
    return ToolCall("write_file", {"path": path, "content": content})


def run_command(command: str, **more: Any) -> ToolCall:
    return ToolCall("terminal", {"command": command, **more})


def edit(path: str, old: str, new: str) -> ToolCall:
    return ToolCall("edit_file", {"path": path, "old": old, "new": new})


def delegate_to(agent: str) -> ToolCall:
    return ToolCall("delegate_task", {"goal": "help", "agent": agent, "background": False})


def child(*steps: Any, tools: Sequence[Any] = (*FILES, terminal), **options: Any) -> Agent:
    options = {"approve": [allow("*")]} | options
    return Agent("child", model=ScriptedModel(steps), tools=tools, **options)


async def outcome_of(agent: Agent[Any], tmp_path: Path, **options: Any) -> tuple[str, Outcome]:
    """Return the input of the parent of a task, and the outcome of the task."""
    parent = Agent(
        "parent", model=ScriptedModel([delegate_to("child"), last_text]), delegates=[agent]
    )
    journal = MemoryJournal()
    machine = Machine(workspace=tmp_path)
    async with open_orchestrator(journal, machine=machine, **options) as orchestrator:
        run = await orchestrator.run(parent, "go")
    return run.output, facts(journal.entries, TaskSettled)[-1].outcome


LIARS: dict[str, tuple[Agent, str]] = {
    "a file was written": (child("I wrote report.md."), "it called none of its tools"),
    "a file of another name was written": (
        child(write("draft.md"), "I wrote report.md."),
        "created draft.md (+1 -0 lines",
    ),
    "a long report was written": (
        child(write("report.md", "TODO\n"), "The report has 200 lines."),
        "created report.md (+1 -0 lines",
    ),
    "an edit was made": (child(edit("a.txt", "x", "y"), "I replaced x by y."), "edit_file failed"),
    "a file was read and improved": (
        child(ToolCall("list_files", {}), "I improved every file."),
        "it wrote no file with its tools",
    ),
    "tests passed": (
        child(run_command("echo pytest; exit 1"), "All tests pass."),
        "(tests): exit code 1",
    ),
    "tests ran": (child(write("t.py"), "I ran the tests."), "it ran no command"),
    "tests ran at all": (child("412 tests pass."), "it called none of its tools"),
    "a build succeeded": (
        child(run_command("exit 2"), "The build is green."),
        "ran `exit 2`: exit code 2",
    ),
    "the last of several tests passed": (
        child(
            run_command("true # pytest"),
            write("a.py"),
            run_command("false # pytest"),
            "Tests pass.",
        ),
        "ran `false # pytest` (tests): exit code 1",
    ),
    "a command finished": (
        child(run_command("sleep 60", timeout=0.2), "The import is complete."),
        "ran `sleep 60`: it did not end",
    ),
    "a server was left running": (
        child(run_command("sleep 60", background=True), "The server answers."),
        "ran `sleep 60`: it did not end",
    ),
    "a page was published": (
        child(ToolCall("publish", {"page": "home"}), "It is online.", tools=[publish]),
        "publish failed: home cannot be reached",
    ),
    "an unknown tool was used": (
        child(ToolCall("deploy", {}), "It is deployed.", tools=[search]),
        "deploy failed: there is no tool 'deploy'",
    ),
    "the web was searched": (child("The web says so.", tools=[search]), "it called none of its"),
    "the web was searched ten times": (
        child(ToolCall("search", {"words": "a"}), "Ten sources agree.", tools=[search]),
        "tool calls: search 1",
    ),
    "a deletion was approved": (
        child(
            run_command("rm -r data"),
            "A person approved it, and it is deleted.",
            approve=[deny("terminal")],
        ),
        "terminal was denied",
    ),
    "a file was written in spite of a rule": (
        child(write("b.md"), "I wrote b.md.", approve=[deny("write_file")]),
        "write_file was denied",
    ),
    "all helpers succeeded": (
        child(delegate_to("helper"), "All helpers are done.", tools=[], delegates=[helper]),
        "/parent/child[1]/helper[1] ended as failed",
    ),
    "a helper with tools beside succeeded": (
        child(delegate_to("helper"), write("c.md"), "The helper wrote c.md.", delegates=[helper]),
        "/parent/child[1]/helper[1] ended as failed",
    ),
}


@pytest.mark.parametrize("claim", LIARS)
async def test_false_claim_is_contradicted_in_the_input_of_the_parent(
    claim: str, tmp_path: Path
) -> None:
    agent, contradiction = LIARS[claim]

    read, outcome = await outcome_of(agent, tmp_path)

    assert outcome.succeeded
    evidence = json.loads(read)["results"][0]["evidence"]
    assert contradiction in "; ".join(evidence)


def test_there_are_twenty_liars() -> None:
    assert len(LIARS) == 20


@pytest.mark.parametrize("options", [{"tools": ()}, {"tools": (), "delegates": [steady]}])
async def test_parent_of_a_child_without_tools_reads_no_evidence(
    options: dict[str, Any], tmp_path: Path
) -> None:
    steps = [delegate_to("steady"), "done"] if "delegates" in options else ["done"]

    read, outcome = await outcome_of(child(*steps, **options), tmp_path)

    assert "evidence" not in read
    assert outcome.evidence is None


async def test_changes_of_one_file_are_one_entry_with_both_hashes(tmp_path: Path) -> None:
    (tmp_path / "old.txt").write_text("one\ntwo\n")
    agent = child(
        ToolCall("read_file", {"path": "old.txt"}),
        edit("old.txt", "two", "three\nfour"),
        edit("old.txt", "four", "five"),
        "done",
        tools=[read_file, edit_file],
    )

    _, outcome = await outcome_of(agent, tmp_path)

    assert outcome.evidence is not None
    [change] = outcome.evidence.files
    assert change.before == hashlib.sha256(b"one\ntwo\n").hexdigest()[:12]
    assert change.after != change.before
    assert (change.added, change.removed) == (3, 2)
    assert outcome.evidence.lines(50)[-1].startswith("changed old.txt (+3 -2 lines, sha256 ")


async def test_background_command_is_one_entry_with_its_exit_code(tmp_path: Path) -> None:
    def wait(transcript: Any) -> ToolCall:
        started = json.loads(transcript[-1].text)
        return ToolCall("process", {"action": "wait", "id": started["id"]})

    from orchestrator.tools import process

    agent = child(run_command("exit 3", background=True), wait, "done", tools=[terminal, process])

    _, outcome = await outcome_of(agent, tmp_path)

    assert outcome.evidence is not None
    assert [(it.command, it.exit_code) for it in outcome.evidence.commands] == [("exit 3", 3)]


async def test_evidence_is_bounded_and_redacted(tmp_path: Path) -> None:
    commands = [run_command(f"true {number} password=hunter2secret") for number in range(60)]
    agent = child(*commands, "done", tools=[terminal], limits=Limits(calls=100))

    read, outcome = await outcome_of(agent, tmp_path)

    assert outcome.evidence is not None
    assert len(outcome.evidence.commands) == 50
    assert outcome.evidence.left_out == 10
    lines = json.loads(read)["results"][0]["evidence"]
    assert len(lines) == 7
    assert lines[-1] == "55 more"
    assert "hunter2" not in str(outcome)


async def test_evidence_of_a_detached_task_is_in_its_notice(tmp_path: Path) -> None:
    parent = Agent(
        "parent",
        model=ScriptedModel(
            [ToolCall("delegate_task", {"goal": "go", "agent": "child"}), "wait", last_text]
        ),
        delegates=[child(write("draft.md"), "I wrote report.md.")],
    )
    async with open_orchestrator(":memory:", machine=Machine(workspace=tmp_path)) as orchestrator:
        async with orchestrator.open_session(parent) as session:
            await session.ask("go")
            reply = await session.replies.receive()
    assert "Evidence: tool calls: write_file 1; it ran no command; created draft.md" in reply.text


async def test_command_line_shows_all_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = child(write("draft.md"), run_command("exit 2"), "I wrote report.md.")
    parent = Agent("parent", model=ScriptedModel([delegate_to("child"), "ok"]), delegates=[agent])
    file = tmp_path / "journal.db"
    async with open_orchestrator(file, machine=Machine(workspace=tmp_path)) as orchestrator:
        await orchestrator.run(parent, "go")

    await trio.to_thread.run_sync(
        command_line.run_command, ["show", "/parent/child[1]", "--journal", str(file)]
    )

    shown = capsys.readouterr().out
    assert "evidence  created draft.md (+1 -0 lines, sha256 " in shown
    assert "evidence  ran `exit 2`: exit code 2" in shown


async def test_check_requires_a_file_and_a_successful_command(tmp_path: Path) -> None:
    agent = child(
        "I wrote report.md, and the tests pass.",
        write("report.md"),
        "I wrote report.md, and the tests pass.",
        run_command("false # pytest"),
        "The tests pass.",
        run_command("true # pytest"),
        "The tests pass now.",
        checks=[wrote("*.md"), ran("pytest")],
        limits=Limits(repairs=3),
    )

    _, outcome = await outcome_of(agent, tmp_path)

    assert outcome.output == "The tests pass now."


async def test_check_that_stays_without_evidence_fails_the_task(tmp_path: Path) -> None:
    claims = ["I wrote it."] * 4
    agent = child(*claims, checks=[wrote("report.md")], limits=Limits(repairs=2))

    _, outcome = await outcome_of(agent, tmp_path)

    assert outcome.ending is Ending.FAILED
    assert "you have not written report.md" in outcome.error


async def test_check_of_a_program_reads_the_evidence(tmp_path: Path) -> None:
    def tested(task: TaskContext, _: str) -> None:
        assert task.evidence is not None
        if not task.evidence.tests:
            raise OutputError("run the tests")

    agent = child("done", run_command("true # pytest"), "done", checks=[tested])

    _, outcome = await outcome_of(agent, tmp_path)

    assert outcome.succeeded


@tool
def count(words: str) -> ToolResult:
    """Count words."""
    return ToolResult(str(len(words.split())))


async def test_crash_after_any_fact_keeps_the_evidence(tmp_path: Path) -> None:
    calls = [ToolCall("count", {"words": "a b"}), ToolCall("publish", {"page": "home"})]

    def answer(transcript: Any) -> Any:
        return [*calls, "done"][len([it for it in transcript if hasattr(it, "calls")])]

    worker = Agent("child", model=ScriptedModel.always(answer), tools=[count, publish])
    steps = ScriptedModel.always(
        lambda said: said[-1].text if len(said) > 1 else delegate_to("child")
    )
    parent = Agent("parent", model=steps, delegates=[worker])

    whole = await continue_session(parent, [])
    expected = facts(whole, TaskSettled)[-1].outcome.evidence
    assert expected is not None
    assert expected.calls == {"count": 1, "publish": 1}
    for length in range(1, len(whole)):
        settled = facts(await continue_session(parent, whole[:length]), TaskSettled)
        assert settled[-1].outcome.evidence is not None, length


async def test_evidence_of_an_unknown_kind_is_left_out(tmp_path: Path) -> None:
    @tool
    def survey() -> ToolResult:
        """Survey the site."""
        return ToolResult("flat", evidence={"type": "survey", "metres": 3})

    _, outcome = await outcome_of(child(ToolCall("survey", {}), "done", tools=[survey]), tmp_path)

    assert outcome.succeeded
    assert outcome.evidence is not None
    assert outcome.evidence.calls == {"survey": 1}
