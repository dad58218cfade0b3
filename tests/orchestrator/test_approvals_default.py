"""Without rules: reads are allowed, and what touches the machine only behind a wall."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator import Machine, RunFailedError, open_orchestrator
from orchestrator.agents import (
    Agent,
    DefinitionError,
    RefusedBy,
    ToolCall,
    ToolMessage,
    Transcript,
    allow,
    confirm,
    tool,
)
from orchestrator.agents.approval import Verdict, default_rule
from orchestrator.agents.tools.files import FILES
from orchestrator.agents.tools.terminal import process, terminal
from tests.kit import hand_on
from tests.orchestrator.approvals_kit import stepwise, tool_texts, turn_of

pytestmark = pytest.mark.realtime

RUN = ToolCall("terminal", {"command": "echo ran > file"})
WRITE = ToolCall("write_file", {"path": "file", "content": "written"})
INPUT = ToolCall("process", {"action": "write", "id": "p", "data": "rm"})


@tool(machine="other")
def reboot() -> str:
    """Restart the machine."""
    return "restarted"


def working(*steps: Any, name: str = "main", **options: Any) -> Agent:
    return Agent(
        name,
        model=stepwise(*steps, tool_texts),
        tools=[terminal, process, reboot, *FILES],
        **options,
    )


@pytest.mark.parametrize("call", [RUN, WRITE, INPUT, ToolCall("reboot")])
async def test_a_call_without_a_wall_and_a_person_changes_no_file(
    tmp_path: Path, call: ToolCall
) -> None:
    refused: list[RefusedBy | None] = []

    def last(transcript: Transcript) -> str:
        answer = transcript[-1]
        assert isinstance(answer, ToolMessage)
        refused.append(answer.refused_by)
        return answer.text

    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path, sandbox="none")
    ) as orchestrator:
        run = await orchestrator.run(working(call, last), "go")

    assert refused == [RefusedBy.APPROVAL]
    # The developer reads what to write.
    assert 'approve=[allow("*")]' in run.output
    assert not (tmp_path / "file").exists()


async def test_without_a_wall_a_person_is_asked_and_told_why(tmp_path: Path) -> None:
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path, sandbox="none")
    ) as orchestrator:
        async with turn_of(working(RUN), orchestrator=orchestrator) as turn:
            question = await turn.answer("once")
            await turn.reply()

    assert question.subject == "echo ran > file"
    assert "no approve rules" in question.why
    assert (tmp_path / "file").read_text() == "ran\n"


async def test_without_rules_the_workspace_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    calls = [
        ToolCall("read_file", {"path": "file"}),
        ToolCall("list_files"),
        ToolCall("search_files", {"pattern": "mine"}),
        ToolCall("process", {"action": "list"}),
    ]
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path, sandbox="none")
    ) as orchestrator:
        run = await orchestrator.run(working(calls), "go")

    assert "approval" not in run.output
    assert "file:1: mine" in run.output


async def test_a_file_that_was_asked_about_is_the_one_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    call = ToolCall("write_file", {"path": "link", "content": "written"})
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path, sandbox="none")
    ) as orchestrator:
        async with turn_of(working(call), orchestrator=orchestrator) as turn:
            question = await turn.question()
            (tmp_path / "link").unlink()
            (tmp_path / "link").symlink_to("other")
            await turn.session.answer(question.id, "once")
            await turn.reply()

    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("where", ["own", "above"])
async def test_one_rule_allows_all_calls_of_an_agent_and_its_descendants(
    tmp_path: Path, where: str
) -> None:
    rules = [allow("*")]
    child = working(RUN, name="child", approve=rules if where == "own" else [])
    agent = Agent(
        "main",
        model=stepwise(hand_on("go", agent="child"), "end"),
        delegates=[child],
        approve=rules if where == "above" else [],
    )
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path, sandbox="none")
    ) as orchestrator:
        await orchestrator.run(agent, "go")

    assert (tmp_path / "file").read_text() == "ran\n"


async def test_rules_of_an_ancestor_decide_alone(tmp_path: Path) -> None:
    """They are the policy of the tree: the default adds nothing to them."""
    child = working(RUN, name="child")
    agent = Agent(
        "main",
        model=stepwise(hand_on("go", agent="child"), "end"),
        delegates=[child],
        approve=[confirm("terminal", command="git push*")],
    )
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path, sandbox="none")
    ) as orchestrator:
        await orchestrator.run(agent, "go")

    assert (tmp_path / "file").exists()


@pytest.mark.parametrize(
    ("use", "is_wall", "asks"),
    [
        (None, False, False),
        ("read", False, False),
        ("write", False, True),
        ("write", True, False),
        ("command", False, True),
        ("command", True, False),
        ("other", False, True),
        ("other", True, True),
    ],
)
def test_a_wall_permits_writes_and_commands_by_default(
    use: str | None, is_wall: bool, asks: bool
) -> None:
    rule = default_rule("it", use, is_wall=is_wall)

    assert (rule is not None and rule.verdict is Verdict.CONFIRM) is asks


def test_a_tool_is_marked_with_a_word_that_is_known() -> None:
    with pytest.raises(DefinitionError, match="'network' must be one of"):
        tool(machine="network")(reboot.run)  # type: ignore[call-overload]


@pytest.mark.parametrize("sandbox", ["bubblewrap", "landlock"])
async def test_behind_a_wall_writes_and_commands_need_no_approval(
    tmp_path: Path, sandbox: str
) -> None:
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path, sandbox=sandbox)
    ) as orchestrator:
        try:
            run = await orchestrator.run(working([RUN, WRITE, ToolCall("reboot")]), "go")
            answers = run.output
        except RunFailedError:
            pytest.skip(f"{sandbox} does not work here")

    assert answers.count("needs an approval") == 1
    assert "reboot needs an approval" in answers
    assert (tmp_path / "file").exists()


async def test_a_workspace_that_holds_the_home_is_behind_no_wall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A startup file that is not there cannot be protected: a shell would run it."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    call = ToolCall("terminal", {"command": "echo evil > home/.bashrc"})
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=tmp_path, sandbox="bubblewrap")
    ) as orchestrator:
        try:
            answers = (await orchestrator.run(working([call, WRITE]), "go")).output
        except RunFailedError:
            pytest.skip("bubblewrap does not work here")

    assert answers.count("needs an approval") == 2
    assert not (tmp_path / "home" / ".bashrc").exists()
    assert not (tmp_path / "file").exists()
