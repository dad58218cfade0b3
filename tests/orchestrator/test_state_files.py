"""No agent reads or writes what the orchestrator keeps to itself, wherever that is."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, Tool, ToolCall, Transcript, allow
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.agents.sandbox.detection import detect
from orchestrator.agents.tools.files import FILES
from orchestrator.agents.tools.terminal import terminal
from orchestrator.backends import journals_at
from orchestrator.cli.exposed_journal import warn_of_exposed_journal
from orchestrator.cli.retention import Retention
from orchestrator.cli.server.journal_opener import JournalOpener
from orchestrator.kernel.state_files import CHAT_HISTORY, SERVER_FILES, real_paths
from orchestrator.products.server.keys.file import FILE as KEYS
from orchestrator.products.server.transport.api_key import FILE as API_KEY
from orchestrator.products.server.webhook import FILE as WEBHOOK_SECRET
from orchestrator.products.server.webhook import FOLDER as WEBHOOK_SECRETS
from tests.orchestrator.approvals_kit import stepwise, tool_texts

pytestmark = pytest.mark.realtime


def test_every_file_of_a_server_is_known() -> None:
    folder, _, _ = KEYS.partition("/")
    assert {folder, API_KEY, WEBHOOK_SECRET, WEBHOOK_SECRETS} <= {*SERVER_FILES}


async def said_by(workspace: Path, call: ToolCall, environ: Mapping[str, str] | None = None) -> str:
    agent = Agent("main", model=stepwise(call, tool_texts), tools=FILES, approve=[allow("*")])
    journal = workspace / "journal.db"
    machine = Machine(workspace=workspace, sandbox="none", environ=environ)
    async with open_orchestrator(journal, machine=machine) as opened:
        return (await opened.run(agent, "go")).output


@pytest.mark.parametrize(
    "name", ["journal.db", "journal.db-wal", "journal.db.lock", "journal.db.sock"]
)
async def test_a_journal_in_the_workspace_is_not_for_agents(tmp_path: Path, name: str) -> None:
    for tool, more in (("read_file", {}), ("write_file", {"content": "mine"})):
        said = await said_by(tmp_path, ToolCall(tool, {"path": name, **more}))
        assert "is hidden" in said


@pytest.mark.parametrize("name", [*SERVER_FILES, CHAT_HISTORY])
async def test_a_key_in_the_workspace_is_not_for_agents(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("key")
    (tmp_path / "link").symlink_to(name)

    call = ToolCall("write_file", {"path": "link", "content": "mine"})
    assert "is hidden" in await said_by(tmp_path, call)
    assert "key" not in await said_by(tmp_path, ToolCall("read_file", {"path": "link"}))
    assert (tmp_path / name).read_text() == "key"


async def test_the_state_folder_is_hidden_but_for_the_worktrees_in_it(tmp_path: Path) -> None:
    (tmp_path / "state" / "worktrees" / "t_1").mkdir(parents=True)
    (tmp_path / "state" / "worktrees" / "t_1" / "a").write_text("mine")
    environ = {"ORCHESTRATOR_HOME": str(tmp_path / "state")}

    call = ToolCall("read_file", {"path": "state/worktrees/t_1/a"})
    assert "is hidden" in await said_by(tmp_path, call, environ=environ)
    agent = Agent(
        "main",
        model=ScriptedModel([ToolCall("read_file", {"path": "a"}), tool_texts]),
        tools=FILES,
        approve=[allow("*")],
        workspace=tmp_path / "state" / "worktrees" / "t_1",
    )
    async with open_orchestrator(
        ":memory:", machine=Machine(sandbox="none", environ=environ)
    ) as orchestrator:
        assert "mine" in (await orchestrator.run(agent, "go")).output


@pytest.mark.parametrize("workspace", ["state", "."])
async def test_a_journal_that_another_process_makes_later_is_not_for_agents(
    tmp_path: Path, workspace: str
) -> None:
    """Not even where the agents work in the folder of the journals, or in one above it."""
    state = tmp_path / "state"
    later = "journals/journal-2.db"
    path = later if workspace == "state" else f"state/{later}"

    def make_another(_: Transcript) -> ToolCall:
        (state / later).write_text("secret")
        return ToolCall("read_file", {"path": path})

    agent = Agent(
        "main",
        model=ScriptedModel(
            [
                make_another,
                ToolCall("write_file", {"path": path, "content": "mine"}),
                ToolCall("search_files", {"pattern": "secret"}),
                ToolCall("terminal", {"command": f"cat {path}; ls {Path(path).parent}"}),
                lambda it: "\n".join(message.text for message in it),
            ]
        ),
        tools=[*FILES, terminal],
        approve=[allow("*")],
    )
    machine = Machine(workspace=tmp_path / workspace)
    async with open_orchestrator(f"{state}/", machine=machine) as orchestrator:
        said = (await orchestrator.run(agent, "go")).output

    assert said.count(f"'{path}' is hidden") == 2
    # Where no sandbox is a wall, commands do as they like, and people are told so.
    assert not detect().backend.is_wall or "secret" not in said
    assert (state / later).read_text() == "secret"


@pytest.fixture
def warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, Sequence[Tool]], str]:
    def warn(journal: str, tools: Sequence[Tool]) -> str:
        child = Agent("child", model=ScriptedModel([]), tools=tools)
        agent = Agent("main", model=ScriptedModel([]), delegates=[child])
        warn_of_exposed_journal([agent], journal)
        return capsys.readouterr().err

    monkeypatch.chdir(tmp_path)
    return warn


@pytest.mark.parametrize("journal", ["journal.db", "inner/journal.db"])
def test_a_journal_in_the_workspace_is_warned_of(
    warning: Callable[[str, Sequence[Tool]], str], journal: str
) -> None:
    assert "in the folder that agents work in" in warning(journal, FILES)


@pytest.mark.parametrize(
    ("journal", "tools"), [("../journal.db", FILES), (":memory:", FILES), ("journal.db", ())]
)
def test_a_journal_that_no_agent_reaches_is_not_warned_of(
    warning: Callable[[str, Sequence[Tool]], str], journal: str, tools: Sequence[Tool]
) -> None:
    assert not warning(journal, tools)


@pytest.mark.parametrize("name", [*SERVER_FILES, "journals/journal-2.db"])
async def test_a_server_hides_the_keys_beside_a_journal_that_is_a_link(
    tmp_path: Path, name: str
) -> None:
    home = tmp_path / "home"
    (home / name).parent.mkdir(parents=True)
    (home / name).write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (home / "journal.db").symlink_to(tmp_path / "elsewhere" / "real.db")
    journals = journals_at(str(home / "journal.db"))
    opener = JournalOpener(
        journals=journals,
        secrets={},
        webhooks=[],
        hidden=[],
        workspace=home,
        sandbox=SandboxChoice("none"),
        retention=Retention(),
        exchange=None,
    )
    agent = Agent(
        "main",
        model=stepwise(ToolCall("read_file", {"path": name}), tool_texts),
        tools=FILES,
        approve=[allow("*")],
    )
    async with journals.open_free() as held, opener.open(held) as orchestrator:
        said = (await orchestrator.run(agent, "go")).output
    assert "is hidden" in said


def test_paths_lead_where_links_lead_and_each_once(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    (real / "elsewhere").symlink_to(tmp_path / "target")
    given = [
        *(link, link / "missing", real / "missing", link / "elsewhere", Path("/")),
        *(link / "..", Path("in-here"), Path("/tmp")),
    ]

    expected = dict.fromkeys(os.path.realpath(it) for it in given)

    assert real_paths(given) == [Path(it) for it in expected]
