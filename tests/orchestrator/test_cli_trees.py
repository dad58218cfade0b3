"""`orchestrator tree`, `show` and `export`: of runs that ended, and of one under way."""

import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

import networkx as nx
import pytest
import trio

from orchestrator import open_orchestrator
from orchestrator.agents import Agent, ModelError, ScriptedModel, ToolCall, Transcript, tool
from orchestrator.cli.app import run_command
from tests.kit import hand_on, worker

FORMATS = ["text", "mermaid", "dot", "svg", "graphml", "json", "trace", "html"]


def out_of_paper(transcript: Transcript) -> str:
    raise ModelError("out of \x1b[31mpaper")


def team() -> Agent:
    printer = Agent("printer", model=ScriptedModel.always(out_of_paper))
    calls = [
        hand_on("look it up", "check it", agent="worker", background=False),
        hand_on("print it", agent="printer", background=False),
    ]
    model = ScriptedModel([*calls, "merged"])
    return Agent("editor", model=model, delegates=[worker(says="found"), printer])


class Command:
    """Runs commands on one journal, as a user does."""

    def __init__(self, journal: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.journal = journal
        self.capsys = capsys

    def __call__(self, *arguments: str) -> str:
        code = run_command([*arguments, "--journal", str(self.journal)])
        out, err = self.capsys.readouterr()
        assert code == 0, err
        return out

    def error(self, *arguments: str) -> str:
        """Run what must fail as a user's mistake: one line, code 2, nothing on stdout."""
        assert run_command([*arguments, "--journal", str(self.journal)]) == 2
        out, err = self.capsys.readouterr()
        assert out == ""
        assert err.startswith("orchestrator: ")
        assert err.count("\n") == 1
        return err


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with two runs, of which the second is looked at."""
    path = tmp_path_factory.mktemp("runs") / "journal.db"

    async def run() -> None:
        async with open_orchestrator(path) as orchestrator:
            await orchestrator.run(worker("solo"), "earlier")
            await orchestrator.run(team(), "go")

    trio.run(run)
    return path


@pytest.fixture
def command(journal: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(journal, capsys)


def ids(command: Command) -> dict[str, str]:
    nodes = json.loads(command("tree", "--json"))["nodes"]
    return {node["path"]: node["id"] for node in nodes}


def test_the_tree_can_be_limited_to_failed_tasks(command: Command) -> None:
    lines = command("tree", "--failed").splitlines()

    assert [line.split()[0] for line in lines] == ["run", "editor", "└─"]
    assert "2↓ · go" in lines[1]
    assert "out of [31mpaper" in lines[2]
    assert command("tree", "--depth", "0").splitlines()[1].endswith("3↓ ✗1 · go")


def test_the_tree_reports_that_no_task_failed(command: Command) -> None:
    first = ids(command)["/editor"]
    runs = [line.split()[0] for line in command("runs").splitlines()]
    (earlier,) = [run for run in runs if run.startswith("r_") and run != first]

    out = command("tree", earlier, "--failed")
    assert out.splitlines()[1:] == ["none of its 1 tasks has failed"]


def test_the_tree_can_be_folded(command: Command) -> None:
    lines = command("tree", "--rows", "3").splitlines()

    assert len(lines) == 1 + 3 + 1
    assert lines[-1] == "2 of 4 tasks are shown; the rest is folded"


def test_the_tree_is_a_graph_for_programs(command: Command) -> None:
    graph = nx.node_link_graph(json.loads(command("tree", "--json")), edges="edges")

    assert len(graph) == 4
    assert nx.is_arborescence(graph)


def test_an_export_never_replaces_the_journal(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    before = command.journal.read_bytes()
    same = command.journal.with_name("same")
    same.symlink_to(command.journal)

    for file in (command.journal, same):
        arguments = ["export", "--format", "json", "-o", str(file)]
        assert run_command([*arguments, "--journal", str(command.journal)]) == 2
        assert "is the journal itself" in capsys.readouterr().err
    assert command.journal.read_bytes() == before


@pytest.mark.parametrize("format_", FORMATS)
def test_a_run_is_exported_in_each_format(command: Command, format_: str, tmp_path: Path) -> None:
    """To a file or to stdout, the same."""
    file = tmp_path / f"run.{format_}"
    text = command("export", "--format", format_)
    command("export", "--format", format_, "-o", str(file))

    assert file.read_text() == text
    assert "\x1b" not in text
    match format_:
        case "json":
            assert len(json.loads(text)["nodes"]) == 4
        case "trace":
            assert json.loads(text)["otherData"]["tasks"] == 4
        case "graphml":
            assert len(nx.read_graphml(io.BytesIO(text.encode()))) == 4
        case "svg":
            assert ET.fromstring(text).tag.endswith("svg")
        case "html":
            assert text.startswith("<!doctype html>")
        case _:
            assert "worker[2]" in text


def test_a_task_is_shown_by_its_path_or_its_id(command: Command) -> None:
    """Goal, status, times, its own usage and that of its subtree, and its transcript."""
    task = ids(command)["/editor/worker[2]"]
    shown = command("show", "/editor/worker[2]")

    assert shown == command("show", task) == command("show", task[:12])
    for part in (
        f"/editor/worker[2]  {task}  run r_",
        "status    succeeded",
        "mode      joined, asked to wait",
        "subtree   1 tasks (✓1)",
        "check it",
        "found",
    ):
        assert part in shown


def test_a_shown_task_names_its_error_and_its_children(command: Command) -> None:
    root = command("show", ids(command)["/editor"])
    printer = command("show", "/editor/printer[1]")

    assert "asked     worker[1]  succeeded" in root
    assert "subtree   4 tasks (✗1 ✓3)" in root
    assert "delegate_task(" in root
    assert "error     " in printer
    assert "\x1b" not in printer


def test_a_task_is_shown_to_programs(command: Command) -> None:
    shown = json.loads(command("show", "/editor/printer[1]", "--json"))

    assert (shown["status"], shown["path"]) == ("failed", "/editor/printer[1]")
    assert shown["below"] == {
        "tasks": 0,
        "counts": {"failed": 1},
        "provider_wait": 0.0,
        **seconds(shown),
    }
    kinds = [fact["kind"] for fact in shown["facts"]]
    assert (kinds[0], kinds[-1]) == ("TaskRequested", "TaskSettled")
    assert shown["facts"][0]["fact"]["request"]["goal"] == "print it"


def seconds(shown: dict[str, float]) -> dict[str, float]:
    return {"seconds": shown["ended"] - shown["started"]}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["show", "t_nobody"], "there is no task 't_nobody'"),
        (["show", "/editor/nobody[1]"], "has no task '/editor/nobody[1]'"),
        (["show", "t_"], "tasks start with 't_'; give more of the id"),
        (["show", ""], "there is no task ''"),
        (["show", "x", "--run", "r_nothing"], "there is no run 'r_nothing'"),
        (["export", "--format", "pdf"], 'Invalid value "pdf" for --format'),
        (["export", "r_nothing", "--format", "svg"], "there is no run 'r_nothing'"),
        (["export", "--format", "dot", "-o", "/"], "/ is a directory; name a file with -o"),
        (["tree", "--depth", "-1"], "--depth is -1"),
        (["tree", "--rows", "0"], "--rows is 0"),
        (["tree", "--rows", "9", "--failed"], "goes with neither"),
        (["tree", "--json", "--failed"], "do not go with --json"),
    ],
)
def test_an_unknown_run_or_task_is_reported_in_a_sentence(
    command: Command, arguments: list[str], error: str
) -> None:
    assert error in command.error(*arguments)


@pytest.mark.memory_only
@pytest.mark.realtime
async def test_a_run_can_be_read_while_another_process_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "journal.db"
    command = Command(path, capsys)
    asleep = trio.Event()

    @tool
    async def nap() -> str:
        """Sleep for ever."""
        asleep.set()
        await trio.sleep_forever()
        return "never"

    napper = Agent("napper", model=ScriptedModel([ToolCall("nap")]), tools=[nap])
    model = ScriptedModel([hand_on("sleep", background=False), "never"])
    editor = Agent("editor", model=model, delegates=[napper])
    async with open_orchestrator(path) as orchestrator, trio.open_nursery() as nursery:
        nursery.start_soon(orchestrator.run, editor, "go")
        await asleep.wait()

        assert "status    running" in command("show", "/editor/napper[1]")
        (line,) = [it for it in command("tree").splitlines() if "└─ napper[1]" in it]
        assert line.split()[2:4] == ["◐", "running"]
        assert " s " in line
        nursery.cancel_scope.cancel()
