"""A file is judged where it is opened: by where its path leads then, and not before."""

from pathlib import Path

import pytest

from orchestrator.agents import DefinitionError, Sandbox, Tool, allow, confirm, deny
from orchestrator.agents.approval import ApprovalRule, Subject
from orchestrator.agents.approved_call import APPROVED_CALL, ApprovedCall
from orchestrator.agents.errors import RefusedBy, ToolError
from orchestrator.agents.tools.files import (
    edit_file,
    list_files,
    read_file,
    search_files,
    write_file,
)
from tests.agents.files_kit import Worker

pytestmark = pytest.mark.realtime


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("TOP\n")
    (tmp_path / "notes").write_text("mine\n")
    (tmp_path / "link").symlink_to("secrets/key")
    (tmp_path / "there").symlink_to("secrets")
    return tmp_path


def approve(folder: Path, tool: Tool, path: str, *rules: ApprovalRule) -> None:
    """Approve a call for a path, as if the link had led there when it was judged."""
    subject = Subject(tool=tool.name, path=path, real_path=str(folder / path))
    APPROVED_CALL.set(ApprovedCall(subject=subject, policies=[rules]))


@pytest.mark.parametrize("rule", [deny("*", path="secrets/*"), confirm("*")])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (read_file, {"path": "link"}),
        (write_file, {"path": "link", "content": "x"}),
        (write_file, {"path": "there/made/new", "content": "x"}),
        (edit_file, {"path": "link", "old": "TOP", "new": "x"}),
        (search_files, {"path": "there", "pattern": "TOP"}),
        (search_files, {"path": "link", "pattern": "TOP"}),
    ],
)
async def test_a_link_redirected_after_approval_reaches_no_denied_file(
    folder: Path, tool: Tool, arguments: dict[str, str], rule: ApprovalRule
) -> None:
    approve(folder, tool, "notes", rule)

    with pytest.raises(ToolError) as caught:
        await Worker(folder).use(tool, **arguments)

    assert caught.value.refused_by is RefusedBy.APPROVAL
    assert [it.name for it in (folder / "secrets").iterdir()] == ["key"]
    assert (folder / "secrets" / "key").read_text() == "TOP\n"


async def test_a_link_redirected_to_an_allowed_file_is_followed(folder: Path) -> None:
    approve(folder, read_file, "notes", deny("*", path="docs/*"))

    assert "TOP" in await Worker(folder).use(read_file, path="link")


async def test_an_allowed_search_needs_no_rule_for_each_file(folder: Path) -> None:
    approve(folder, search_files, ".", allow("search_files", path="."))

    assert "secrets/key" in await Worker(folder).use(search_files, pattern="TOP")


async def test_the_rules_of_every_ancestor_hold_for_a_file_that_is_met(folder: Path) -> None:
    subject = Subject(tool="search_files", path=".", real_path=str(folder))
    policies = [[allow("*")], [deny("*", path="*.txt")], [deny("*", path="*key")]]
    APPROVED_CALL.set(ApprovedCall(subject=subject, policies=policies))

    assert "TOP" not in await Worker(folder).use(search_files, pattern="TOP")


@pytest.fixture
def hiding(folder: Path) -> Worker:
    """A task from which a file and a folder are hidden, and a file that is read-only."""
    (folder / "journal.db").write_text("facts\n")
    (folder / "state").mkdir()
    (folder / "state" / "api_key").write_text("facts\n")
    (folder / "journal").symlink_to("journal.db")
    (folder / "same").hardlink_to(folder / "journal.db")
    hidden = tuple(folder / it for it in ("journal.db", "journal.db-wal", "state"))
    return Worker(folder, hidden=hidden, protected=(folder / "notes",))


@pytest.mark.parametrize("path", ["journal.db", "./journal.db", "journal", "same", "state/api_key"])
async def test_a_hidden_file_is_unreadable_under_any_name(hiding: Worker, path: str) -> None:
    for tool, more in ((read_file, {}), (search_files, {"pattern": "facts"})):
        try:
            said = await hiding.use(tool, path=path, **more)
        except ToolError as exc:
            said = str(exc)
        assert "is hidden" in said
        assert "facts\n" not in said


@pytest.mark.parametrize("path", ["journal.db-wal", "state/new/key", "notes"])
async def test_hidden_and_read_only_files_are_not_written(
    folder: Path, hiding: Worker, path: str
) -> None:
    refused = await hiding.refused(write_file, path=path, content="mine")

    assert "sandbox" in refused
    assert not (folder / "journal.db-wal").exists()
    assert not (folder / "state" / "new").exists()


async def test_hidden_files_are_left_out_of_searches_and_listings(hiding: Worker) -> None:
    found = await hiding.use(search_files, pattern="facts", glob="*")
    listed = await hiding.use(list_files)

    assert "journal.db:" not in found
    assert "api_key:" not in found
    assert not {"journal.db", "state/"} & {line.split("  ")[0] for line in listed.splitlines()}
    assert "hides them: 2" in listed


def test_a_sandbox_path_must_not_link_out_of_the_workspace(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (folder / "build").symlink_to(tmp_path_factory.mktemp("outside"))

    for sandbox in (Sandbox(write=["build"]), Sandbox(read=["build/x"])):
        with pytest.raises(DefinitionError, match="leads out of the workspace"):
            sandbox.at(folder)
    assert Sandbox(write=["there"]).at(folder).write == (folder / "secrets",)
