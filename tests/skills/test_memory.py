"""Memory: each change is a fact, and then in the file once, whatever crashes or writes too."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from orchestrator import Machine, MemoryJournal, load_agents, open_orchestrator
from orchestrator.agents import (
    Agent,
    AssistantMessage,
    DefinitionError,
    ModelRequest,
    RefusedBy,
    ScriptedModel,
    ToolCall,
    ToolError,
    ToolMessage,
    Transcript,
    confirm,
    tool,
)
from orchestrator.delegation.events import SessionOpened, StateChanged, ToolAnswered
from orchestrator.delegation.memory import version_of
from orchestrator.kernel.engine.memory_file import MemoryFile
from orchestrator.products.agent_files.agent_graph import BuiltTeam
from orchestrator.products.agent_files.effects import effects_of_team
from orchestrator.products.history.replay.run import replay
from orchestrator.simulation import SimulationSettings, simulate
from orchestrator.testing import Harness
from tests.kit import FunctionModel, facts, hand_on
from tests.orchestrator.approvals_kit import turn_of

pytestmark = pytest.mark.realtime  # files are read and written in threads


def use(action: str, **arguments: Any) -> ToolCall:
    return ToolCall("memory", {"action": action, **arguments})


def keeper(file: Path, *steps: Any, name: str = "keeper", **options: Any) -> Agent:
    """Return an agent with a memory that takes one step after the other."""

    def step(transcript: Transcript) -> Any:
        said = steps[sum(isinstance(it, AssistantMessage) for it in transcript)]
        return said(transcript) if callable(said) else said

    return Agent(name, model=ScriptedModel.always(step), memory=file, **options)


def answers(transcript: Transcript) -> str:
    return "\n".join(it.text for it in transcript if isinstance(it, ToolMessage))


def watched(file: Path, seen: list[str], *calls: ToolCall) -> Agent:
    """Return an agent that notes the instructions of each request, and then makes calls."""

    async def answer(request: ModelRequest) -> AssistantMessage:
        await trio.lowlevel.checkpoint()
        done = sum(isinstance(it, AssistantMessage) for it in request.transcript)
        seen.append(request.instructions)
        made = calls[done : done + 1]
        return AssistantMessage("" if made else "done", tuple(made))

    return Agent("keeper", model=FunctionModel(answer), memory=file, instructions="Hi.")


def content(file: Path) -> str:
    return file.read_text()


def put(file: Path, text: str) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)


def remove(file: Path) -> None:
    file.unlink()


def exists(file: Path) -> bool:
    return file.exists()


def beside(file: Path) -> list[str]:
    return sorted(it.name for it in file.parent.iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory/MEMORY.md"


async def test_memory_of_one_run_is_in_the_instructions_of_the_next(file: Path) -> None:
    seen: list[str] = []
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(watched(file, seen, use("append", text="likes tea")), "go")
        await orchestrator.run(watched(file, seen), "go")

    assert content(file) == "likes tea\n"
    assert "MEMORY.md is empty" in seen[0]
    # The instructions of a turn stay as they are: a cache serves them.
    assert seen[1] == seen[0]
    assert seen[2].startswith("Hi.")
    assert seen[2].endswith(f"MEMORY.md (version {version_of(content(file))}):\n> likes tea")


async def test_answer_of_a_change_is_its_diff(file: Path) -> None:
    steps = [use("append", text="tea\n"), use("edit", old="tea", new="coffee"), answers]
    harness = Harness()
    ended = await harness.run(keeper(file, *steps), "go")

    assert ended.output.endswith("@@ -1 +1 @@\n-tea\n+coffee")
    evidence: Any = harness.facts(ToolAnswered)[1].message.evidence
    assert (evidence["path"], evidence["added"], evidence["removed"]) == ("MEMORY.md", 1, 1)
    assert len(harness.facts(StateChanged)) == 3  # one read, two changes


async def test_secrets_are_neither_shown_nor_written(file: Path) -> None:
    secret = "sk-ant-api03-" + "a1B2" * 20
    put(file, f"key = {secret}\ntea\n")
    seen: list[str] = []
    calls = (
        use("edit", old="tea", new=f"tea {secret}"),
        use("write", text="all", version=version_of(content(file))),
    )
    harness = Harness()
    async with harness.open() as orchestrator:
        await orchestrator.run(watched(file, seen, *calls), "go")

    assert secret not in "".join(seen)
    assert content(file).count(secret) == 1
    assert not any(secret in repr(it) for it in harness.entries)


async def test_person_decides_about_a_change(file: Path) -> None:
    agent = keeper(file, use("append", text="x"), answers, approve=[confirm("memory")])
    async with turn_of(agent) as turn:
        question = await turn.question()
        assert "append" in question.subject
        assert not exists(file)
        await turn.session.answer(question.id, "once")
        assert "+x" in await turn.reply()
    assert content(file) == "x\n"


async def test_rule_without_a_person_denies_a_change(file: Path) -> None:
    agent = keeper(file, use("append", text="x"), "done", approve=[confirm("memory")])
    harness = Harness()
    await harness.run(agent, "go")
    (answered,) = harness.facts(ToolAnswered)
    assert answered.message.refused_by is RefusedBy.APPROVAL
    assert not exists(file)


async def test_crash_after_any_fact_applies_each_change_once(tmp_path: Path) -> None:
    def team(file: Path) -> Agent:
        steps = [use("append", text="one"), use("edit", old="one", new="1"), "done"]
        child = keeper(file, use("append", text="two"), "done", name="child")
        first, *rest = steps
        hand = hand_on("x", agent="child", background=False)
        return keeper(file, first, hand, *rest, delegates=[child])

    whole = Harness()
    await whole.run(team(tmp_path / "whole.md"), "go")
    assert (tmp_path / "whole.md").read_text() == "1\ntwo\n"
    first = next(it.seq for it in whole.entries if isinstance(it.event, SessionOpened)) + 2
    for length in range(first, len(whole.entries)):
        file = tmp_path / f"{length}.md"
        harness = Harness()
        async with harness.open(crash_after=length) as orchestrator:
            await orchestrator.run(team(file), "go")
        (opened,) = harness.facts(SessionOpened)
        async with harness.open() as orchestrator:
            again = await orchestrator.resume(team(file), opened.session)
        assert again.output == "done", length
        assert content(file) == "1\ntwo\n", length
        assert not [it for it in beside(file) if it.startswith(".")], length
        harness.assert_laws()


PROGRAM = """
import sys, trio
from pathlib import Path
from orchestrator import open_orchestrator
from orchestrator.kernel.journal.sqlite.journal import open_sqlite_journal
from orchestrator.testing import CrashingJournal
from tests.skills.test_memory import keeper, use

async def main(journal, file, after):
    agent = keeper(Path(file), use("append", text="one"), use("append", text="two"), "done")
    async with open_sqlite_journal(Path(journal)) as kept:
        crashing = CrashingJournal(kept, after=int(after), kill=True)
        async with open_orchestrator(crashing) as orchestrator:
            await orchestrator.run(agent, "go")

trio.run(main, *sys.argv[1:])
"""


@pytest.mark.parametrize("other", ["", "by hand\n"])
async def test_killed_process_leaves_a_change_that_is_applied_once(
    file: Path, tmp_path: Path, other: str
) -> None:
    """The process is killed when the change is a fact, before it is in the file."""
    agent = keeper(file, use("append", text="one"), use("append", text="two"), "done")
    whole = Harness()
    await whole.run(agent, "go")
    _, _, second = [it.seq for it in whole.entries if isinstance(it.event, StateChanged)]
    remove(file)
    journal = tmp_path / "journal.db"
    command = [sys.executable, "-c", PROGRAM, str(journal), str(file), str(second)]
    killed = await trio.run_process(command, cwd=Path(__file__).parents[2], check=False)
    assert killed.returncode == -9
    assert content(file) == "one\n"
    put(file, f"one\n{other}")

    async with open_orchestrator(journal) as orchestrator:
        (run,) = orchestrator.runs
        await orchestrator.resume(agent, run)
    assert content(file) == f"one\n{other}two\n"
    assert beside(file) == ["MEMORY.md"]


async def test_change_that_no_longer_fits_after_a_crash_is_withdrawn(
    file: Path, tmp_path: Path
) -> None:
    agent = keeper(file, use("append", text="one"), use("edit", old="one", new="1"), answers)
    whole = Harness()
    await whole.run(agent, "go")
    _, _, edited = [it.seq for it in whole.entries if isinstance(it.event, StateChanged)]
    (opened,) = whole.facts(SessionOpened)
    kept = MemoryJournal([it for it in whole.entries if it.seq <= edited])
    state: Any = facts(kept.entries, StateChanged)[-1].changes
    (key,) = state["changes"]
    put(file, "one\n")
    MemoryFile(file).prepare(key, lambda _: "1\n")
    put(file, "other\n")

    async with open_orchestrator(kept) as orchestrator:
        ended = await orchestrator.resume(agent, opened.session)
    assert "0 times" in ended.output
    assert content(file) == "other\n"
    assert beside(file) == ["MEMORY.md"]


async def test_tasks_that_write_at_once_lose_nothing(file: Path) -> None:
    def child(transcript: Transcript) -> Any:
        if len(transcript) > 1:
            return "done"
        return use("append", text=transcript[0].text.splitlines()[-1])

    worker = Agent("worker", model=ScriptedModel.always(child), memory=file)
    tasks = [{"goal": f"line {number}"} for number in range(12)]
    call = ToolCall("delegate_task", {"tasks": tasks, "background": False})
    lead = Agent("lead", model=ScriptedModel([call, "done"]), delegates=[worker])
    async with open_orchestrator(":memory:") as orchestrator:
        await orchestrator.run(lead, "go")
    assert sorted(content(file).splitlines()) == sorted(it["goal"] for it in tasks)


async def test_two_processes_that_write_at_once_lose_nothing(file: Path) -> None:
    program = (
        "import sys; from pathlib import Path;"
        "from orchestrator.kernel.engine.memory_file import MemoryFile;"
        "from orchestrator.delegation.memory import version_of\n"
        "file = MemoryFile(Path(sys.argv[1]))\n"
        "for number in range(20):\n"
        "    line, done = f'{sys.argv[2]} {number}\\n', False\n"
        "    while not done:\n"
        "        before, _ = file.prepare(line, lambda it: it + line)\n"
        "        done = file.apply(line, version_of(before))\n"
    )
    file.parent.mkdir()

    async def write(name: str) -> None:
        await trio.run_process([sys.executable, "-c", program, str(file), name])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, "a")
        nursery.start_soon(write, "b")
    lines = content(file).splitlines()
    assert sorted(lines) == sorted(f"{name} {number}" for name in "ab" for number in range(20))


async def test_replay_writes_no_memory(file: Path) -> None:
    agent = keeper(file, use("append", text="one"), use("view"), answers)
    journal = MemoryJournal()
    async with open_orchestrator(journal) as orchestrator:
        await orchestrator.run(agent, "go")
    remove(file)
    assert (await replay(journal.entries, agent)).is_same
    assert not exists(file)


def test_simulation_writes_no_memory(file: Path) -> None:
    simulate(keeper(file, "done"), settings=SimulationSettings(seeds=3))
    assert not exists(file)


def views(file: Path) -> Agent:
    """Return a team whose child reads the memory, and appends to it."""
    child = keeper(file, use("view"), use("append", text="child"), answers, name="child")
    hand = hand_on("x", agent="child", background=False)
    return Agent("lead", model=ScriptedModel.always(_handed(hand)), delegates=[child])


def _handed(hand: ToolCall) -> Callable[[Transcript], Any]:
    return lambda transcript: hand if len(transcript) == 1 else answers(transcript)


@pytest.mark.parametrize("only", [False, True])
async def test_fork_has_the_memory_of_its_point_and_writes_its_own(
    file: Path, *, only: bool
) -> None:
    put(file, "before\n")
    async with open_orchestrator(":memory:") as orchestrator:
        team = views(file)
        first = await orchestrator.run(team, "go")
        assert content(file) == "before\nchild\n"
        put(file, "later\n")
        point: dict[str, Any] = {"only" if only else "task": "/lead/child[1]"}
        forked = await orchestrator.fork(team, first.id, **point)

    assert "> before" in forked.output
    assert "later" not in forked.output
    assert "> child" not in forked.output
    assert "its memory is its own" in forked.output
    assert content(file) == "later\n"


async def test_fork_at_the_root_begins_with_the_memory_of_the_run(file: Path) -> None:
    agent = keeper(file, use("view"), use("append", text="one"), answers)
    async with open_orchestrator(":memory:") as orchestrator:
        first = await orchestrator.run(agent, "go")
        forked = await orchestrator.fork(agent, first.id, task=first.id)
    assert "MEMORY.md is empty" in first.output
    assert "MEMORY.md is empty" in forked.output
    assert content(file) == "one\n"


async def test_memory_that_cannot_be_read_is_an_error_for_the_model(tmp_path: Path) -> None:
    link = tmp_path / "MEMORY.md"
    link.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_text("x")
    seen: list[str] = []
    harness = Harness()
    await harness.run(watched(link, seen, use("append", text="y")), "go")
    assert "cannot be read" in seen[0]
    assert harness.facts(ToolAnswered)[0].message.failed
    assert (tmp_path / "elsewhere").read_text() == "x"
    with pytest.raises(ToolError, match="no plain file"):
        MemoryFile(tmp_path).read()
    (tmp_path / "large").write_bytes(b"x" * 1_000_001)
    with pytest.raises(ToolError, match="more than"):
        MemoryFile(tmp_path / "large").read()


def test_memory_beside_an_own_tool_or_at_a_place_is_refused(file: Path) -> None:
    @tool
    def memory() -> str:
        """Mine."""
        return ""

    with pytest.raises(DefinitionError, match=r"memory=\.\.\. brings one"):
        Agent("a", model="m:m", memory=file, tools=[memory])
    with pytest.raises(DefinitionError, match="has a memory"):
        Agent("a", model="m:m", memory=file, place="gpu")
    with pytest.raises(DefinitionError, match="path of a file"):
        Agent("a", model="m:m", memory=5)  # type: ignore[arg-type]


def test_memory_of_a_file_is_beside_the_file(tmp_path: Path) -> None:
    team = tmp_path / "team.yaml"
    team.write_text("agents: {a: {instructions: Hi, model: 'openai:m', memory: MEMORY.md}}")
    agents = load_agents(team)
    assert agents["a"].memory == tmp_path / "MEMORY.md"
    (line,) = effects_of_team(BuiltTeam(agents=agents, lead=None, warnings=())).lines
    assert line == f"lets a write its memory {tmp_path}/MEMORY.md"


def test_memory_of_claude_code_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\ntools: []\nmemory: user\n---\nHi.")
    with pytest.warns(UserWarning, match="the key 'memory' has no meaning here"):
        (agent,) = load_agents(tmp_path, model="openai:m").values()
    assert agent.memory is None


async def test_agents_file_of_the_workspace_is_read_on_request(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    seen: list[str] = []

    async def answer(request: ModelRequest) -> str:
        await trio.lowlevel.checkpoint()
        seen.append(request.instructions)
        return "done"

    model = FunctionModel(answer)
    reads = Agent("a", model=model, instructions="Hi.", skills=["AGENTS.md"])
    machine = Machine(workspace=tmp_path)
    async with open_orchestrator(":memory:", machine=machine) as orchestrator:
        await orchestrator.run(reads, "go")
        await orchestrator.run(Agent("b", model=model), "go")
        (tmp_path / "AGENTS.md").write_text("x" * 40_000)
        await orchestrator.run(reads, "go")
        (tmp_path / "AGENTS.md").unlink()
        await orchestrator.run(reads, "go")
        (tmp_path / "AGENTS.md").mkdir()
        await orchestrator.run(reads, "go")
    assert seen[0].startswith("Hi.\n\n")
    assert seen[0].endswith(":\n> Use tabs.")
    assert not seen[1]
    assert seen[2].endswith("> [The rest is left out.]")
    assert seen[3] == "Hi."
    assert "cannot be read" in seen[4]
