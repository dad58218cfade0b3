"""How long an approval holds: once, for the task, for the session."""

from pathlib import Path

import attrs
import pytest
import trio

from orchestrator import MemoryJournal, open_orchestrator
from orchestrator.agents import Agent, ToolCall, confirm, tool
from orchestrator.agents.tools.files import FILES
from orchestrator.delegation.events import ApprovalAsked
from tests.kit import facts
from tests.orchestrator.approvals_kit import ASKS, Shell, run, stepwise, tool_texts, turn_of


async def test_a_session_s_approval_for_this_task_ends_with_the_turn() -> None:
    shell = Shell()

    async with turn_of(shell.agent(run("a"), run("a"), tool_texts, rules=ASKS)) as turn:
        await turn.answer("task")
        await turn.reply()
        assert shell.ran == ["a", "a"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.session.ask, "again")
            await turn.answer("task")

    assert len(shell.ran) == 4


async def test_an_approval_for_the_session_holds_in_later_turns_and_after_a_restart() -> None:
    shell = Shell()
    agent = shell.agent(run("a"), tool_texts, rules=ASKS)
    journal = MemoryJournal()

    async with open_orchestrator(journal) as orchestrator:
        async with turn_of(agent, orchestrator=orchestrator) as turn:
            await turn.answer("session")
            await turn.reply()
            await turn.session.ask("again")
    async with open_orchestrator(MemoryJournal(journal.entries)) as orchestrator:
        async with orchestrator.open_session(agent, session=turn.session.id) as session:
            await session.ask("once more")

    assert shell.ran == ["a", "a", "a"]
    assert len(facts(journal.entries, ApprovalAsked)) == 1


async def test_an_approval_for_a_session_does_not_cover_another() -> None:
    shell = Shell()
    agent = shell.agent(run("a"), tool_texts, rules=ASKS)

    async with open_orchestrator(":memory:") as orchestrator:
        async with turn_of(agent, orchestrator=orchestrator) as turn:
            await turn.answer("session")
        async with turn_of(agent, orchestrator=orchestrator) as turn:
            await turn.answer("deny")

    assert shell.ran == ["a"]


@pytest.mark.parametrize(
    "another",
    [
        run("make x"),
        run("make "),
        run("Make"),
        run("make", workdir="sub"),
        run("make", more=1),
        ToolCall("other", {"command": "make"}),
    ],
    ids=repr,
)
async def test_an_approval_covers_only_the_identical_call(another: ToolCall) -> None:
    """The same command in another folder, or with more to it, is another one."""
    shell = Shell()
    other = attrs.evolve(shell.tool, name="other")
    agent = shell.agent(run("make"), another, tool_texts, rules=[confirm("*")], tools=[other])

    async with turn_of(agent) as turn:
        await turn.answer("session")
        question = await turn.answer("deny")

    assert shell.ran == ["make"]
    assert question.id


async def test_equivalent_commands_share_an_approval() -> None:
    shell = Shell()
    agent = shell.agent(run("make"), run("make", workdir="./x/.."), tool_texts, rules=ASKS)

    async with turn_of(agent) as turn:
        await turn.answer("session")
        await turn.reply()

    assert shell.ran == ["make", "make"]


async def test_a_question_shows_the_folder_in_shell_syntax() -> None:
    """So no command is taken for another one in another folder."""
    shell = Shell()
    agent = shell.agent(run("rm *", workdir="my build"), tool_texts, rules=ASKS)

    async with turn_of(agent) as turn:
        question = await turn.answer("deny")

    assert question.subject == "cd 'my build' && (rm *)"


@pytest.mark.realtime
async def test_a_change_of_a_file_is_approved_for_this_content_only(tmp_path: Path) -> None:
    def write(path: str, content: str) -> ToolCall:
        return ToolCall("write_file", {"path": path, "content": content})

    agent = Agent(
        "main",
        model=stepwise(
            *(write("a", "1"), write("./a", "1"), write("a", "2"), write("b", "1")), "end"
        ),
        tools=FILES,
        approve=[confirm("write_file")],
        workspace=tmp_path,
    )
    with trio.fail_after(10):
        async with turn_of(agent) as turn:
            first = await turn.answer("task")
            second = await turn.answer("deny")
            third = await turn.answer("deny")

    assert first.subject.startswith("a (content: sha256 ")
    assert second.subject.startswith("a (content: sha256 ")
    assert third.subject.startswith("b (content: sha256 ")
    assert '"content":"1"' in first.details
    assert (tmp_path / "a").read_text() == "1"
    assert not (tmp_path / "b").exists()


async def test_an_unknown_tool_is_approved_by_its_whole_call() -> None:
    sent: list[str] = []

    @tool
    async def remote(host: str, command: str) -> str:
        """Run a command elsewhere."""
        await trio.lowlevel.checkpoint()
        sent.append(host)
        return "done"

    def call(host: str) -> ToolCall:
        return ToolCall("remote", {"host": host, "command": "reboot"})

    agent = Agent(
        "main",
        model=stepwise(call("test"), call("test"), call("prod"), "end"),
        tools=[remote],
        approve=[confirm("remote", command="reboot*")],
    )
    async with turn_of(agent) as turn:
        await turn.answer("session")
        question = await turn.answer("deny")

    assert question.subject == '{"command":"reboot","host":"prod"}'
    assert sent == ["test", "test"]
