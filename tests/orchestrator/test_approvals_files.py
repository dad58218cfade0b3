"""Rules about files hold for every name of a file."""

import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import Agent, ToolCall, allow, confirm, deny
from orchestrator.agents.tools.files import FILES
from tests.orchestrator.approvals_kit import stepwise, tool_texts, turn_of

# A sandbox is looked for in a thread, where tools touch the machine.
pytestmark = pytest.mark.realtime


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "secrets").mkdir(parents=True)
    (work / "secrets" / "key").write_text("TOP")
    (work / "docs").mkdir()
    (work / "docs" / "deep").symlink_to("../secrets")
    (work / "docs" / "key").symlink_to("../secrets/key")
    (tmp_path / "alias").symlink_to("work")
    return work


def reading(workspace: Path, *calls: ToolCall, **options: Any) -> Agent:
    return Agent(
        "main", model=stepwise(*calls, tool_texts), tools=FILES, workspace=workspace, **options
    )


@pytest.mark.parametrize(
    "path",
    [
        "secrets/key",
        "./secrets/key",
        "secrets//key",
        "secrets/./key",
        "docs/../secrets/key",
        "docs/deep/key",
        "docs/deep/../secrets/key",
        "docs/key",
        "{work}/secrets/key",
        "{work}/docs/key",
        "{work}/../alias/secrets/key",
        "../work/secrets/key",
        "secrets/key/",
        "Secrets/KEY",
    ],
)
async def test_a_rule_about_files_is_not_dodged(workspace: Path, path: str) -> None:
    call = ToolCall("read_file", {"path": path.format(work=workspace)})
    agent = reading(workspace, call, approve=[deny("*", path="secrets/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert done.output == "read_file was denied by the rules of this run. Do without it."


@pytest.mark.parametrize("path", ["docs/deep/key", "docs/key", "docs/../secrets/key"])
async def test_a_file_is_not_allowed_for_where_a_link_to_it_lies(
    workspace: Path, path: str
) -> None:
    call = ToolCall("read_file", {"path": path})
    agent = reading(workspace, call, approve=[allow("*", path="docs/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "needs an approval" in done.output


@pytest.mark.parametrize("path", ["secrets", "secrets/", "docs/deep", "./secrets/."])
async def test_a_search_of_a_denied_folder_is_denied(workspace: Path, path: str) -> None:
    call = ToolCall("search_files", {"pattern": "TOP", "path": path})
    agent = reading(workspace, call, approve=[deny("*", path="secrets/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "search_files was denied" in done.output


@pytest.mark.parametrize("arguments", [{}, {"path": "."}, {"path": ""}])
async def test_a_rule_applies_to_the_default_of_an_omitted_path(
    workspace: Path, arguments: dict[str, str]
) -> None:
    call = ToolCall("list_files", arguments)
    agent = reading(workspace, call, approve=[deny("*", path=".")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "list_files was denied" in done.output


@pytest.mark.parametrize("path", ["a\0b", "x" * 10_000, "/" * 5_000])
async def test_a_missing_path_does_not_fail_the_approval(workspace: Path, path: str) -> None:
    call = ToolCall("read_file", {"path": path})
    agent = reading(workspace, call, approve=[deny("*", path="secrets/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        assert (await orchestrator.run(agent, "go")).outcome.succeeded


async def test_a_link_redirected_during_approval_is_not_followed(workspace: Path) -> None:
    """Approved was the file that it led to."""
    link = workspace / "link"
    link.symlink_to("notes")
    call = ToolCall("write_file", {"path": "link", "content": "mine"})
    agent = reading(workspace, call, approve=[confirm("write_file")])

    async with turn_of(agent) as turn:
        question = await turn.question()
        assert question.subject.startswith("notes (content: sha256 ")
        link.unlink()
        link.symlink_to("secrets/key")
        await turn.session.answer(question.id, "once")
        said = await turn.reply()

    assert "approved for 'notes (" in said
    assert "is about something else by now" in said
    assert (workspace / "secrets" / "key").read_text() == "TOP"


async def test_rules_look_at_the_workspace_of_the_message(workspace: Path, tmp_path: Path) -> None:
    call = ToolCall("read_file", {"path": "work/secrets/key"})
    agent = Agent(
        "main", model=stepwise(call, tool_texts), tools=FILES, approve=[deny("*", path="secrets/*")]
    )
    async with open_orchestrator(":memory:", machine=Machine(workspace=tmp_path)) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            above = await session.ask("go")
            call.arguments["path"] = "secrets/key"  # type: ignore[index]
            inside = await session.ask("go", workspace=os.fspath(workspace))

    assert "TOP" in above.text
    assert "denied" in inside.text


@pytest.mark.parametrize("glob", ["*", "secrets/*", "**/key"])
async def test_a_search_from_above_leaves_out_denied_files(workspace: Path, glob: str) -> None:
    call = ToolCall("search_files", {"pattern": "TOP", "glob": glob})
    agent = reading(workspace, call, approve=[deny("*", path="secrets/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "TOP" not in done.output
    assert "left out" in done.output
    assert "1 file" in done.output


async def test_a_listing_from_above_leaves_out_denied_files(workspace: Path) -> None:
    call = ToolCall("list_files", {"pattern": "**/*"})
    agent = reading(workspace, call, approve=[deny("*", path="secrets/*")])

    async with open_orchestrator(":memory:") as orchestrator:
        done = await orchestrator.run(agent, "go")

    assert "secrets/key" not in done.output.splitlines()
    assert "1 file and 1 folder" in done.output


async def test_a_search_from_above_leaves_out_files_that_need_approval(workspace: Path) -> None:
    call = ToolCall("search_files", {"pattern": "TOP"})
    agent = reading(workspace, call, approve=[confirm("*", path="secrets/*")])

    async with turn_of(agent) as turn:
        said = await turn.reply()

    assert "TOP" not in said
    assert "1 file" in said


async def test_a_search_of_an_approved_folder_shows_its_files(workspace: Path) -> None:
    call = ToolCall("search_files", {"pattern": "TOP", "path": "secrets"})
    agent = reading(workspace, call, approve=[confirm("*", path="secrets/*")])

    async with turn_of(agent) as turn:
        await turn.answer("once")
        said = await turn.reply()

    assert "secrets/key:1: TOP" in said
