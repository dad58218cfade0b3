"""Where the tools of a task run: its workspace, its environment, its worktree, its commands."""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from orchestrator import Machine, MemoryJournal, Orchestrator, RunFailedError, open_orchestrator
from orchestrator.agents import (
    Agent,
    Limits,
    Sandbox,
    ScriptedModel,
    ToolCall,
    ToolMessage,
    Transcript,
    allow,
    tool,
)
from orchestrator.agents.models.providers.scripted import ScriptStep
from orchestrator.agents.sandbox.detection import detect
from orchestrator.agents.tools.context import current_tool_context
from orchestrator.agents.tools.files import list_files, read_file, write_file
from orchestrator.agents.tools.files.own_code import own_code_in
from orchestrator.agents.tools.terminal import process, terminal
from orchestrator.delegation import Ending
from orchestrator.delegation.events import TaskSettled
from orchestrator.delegation.session_context import bind_session, reset_session_vars
from orchestrator.kernel.execution.workspace import task_workspace
from tests.kit import facts, hand_on
from tests.orchestrator.commands_kit import is_alive, pipe
from tests.orchestrator.test_worktrees import commit, git, left_of

pytestmark = pytest.mark.realtime

Open = Callable[..., AbstractAsyncContextManager[Orchestrator]]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "ORCHESTRATOR_HOME": str(tmp_path / "state"),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }


@pytest.fixture
def house(tmp_path: Path, environ: dict[str, str]) -> Open:
    """Open orchestrators that leave nothing outside of the test's folder."""

    def open_one(journal: Any = None, *, given: Any = None, **of_machine: Any) -> Any:
        machine = Machine(**{"workspace": tmp_path, "environ": given or environ, **of_machine})
        kept = MemoryJournal() if journal is None else journal
        return open_orchestrator(kept, machine=machine)

    return open_one


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template")
    git(path, "init", "--quiet", "--initial-branch=main", "--template=")
    (path / "part").mkdir()
    (path / "part" / "a.txt").write_text("a\n")
    commit(path)
    return path


@pytest.fixture
def repo(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "repo")


@tool
def where() -> str:
    """Say in which folder it runs."""
    return str(current_tool_context().workspace)


@tool
async def where_async() -> str:
    """Say in which folder it runs, without a thread."""
    await trio.lowlevel.checkpoint()
    return str(current_tool_context().workspace)


@tool
def write(name: str) -> str:
    """Leave a file behind."""
    file = current_tool_context().workspace / name
    file.write_text("mine\n")
    return str(file)


def last(transcript: Transcript) -> str:
    return transcript[-1].text


def asking(*calls: ToolCall | list[ToolCall]) -> ScriptedModel:
    """Return a model that makes calls, and answers what the last of them said."""
    return ScriptedModel([*calls, last])


def output_of(command: str, **more: Any) -> ToolCall:
    return ToolCall("terminal", {"command": command, **more})


def outputs(transcript: Transcript) -> str:
    """Return what commands have printed."""
    said = [it.text for it in transcript if isinstance(it, ToolMessage)]
    return "".join(json.loads(text)["output"] for text in said)


def result_of(answer: str) -> dict[str, Any]:
    """Return the only result in what `delegate_task` answers."""
    (result,) = json.loads(answer)["results"]
    return dict(result)


SHOW = output_of("env")


def showing() -> ScriptedModel:
    """Return a model that answers with the environment of a command."""
    return ScriptedModel([SHOW, outputs])


def variables(printed: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in printed.splitlines())
    return {name: value for name, _, value in pairs}


# The environment of what is started


async def test_a_command_gets_the_environment_without_its_secrets(
    house: Open, environ: dict[str, str]
) -> None:
    """The keys of the orchestrator are not for the programs that a model writes."""
    given = {
        **environ,
        "OPENAI_API_KEY": "sk-proj-Ab12Cd34Ef56Gh78Ij90",
        "ANTHROPIC_API_KEY": "sk-ant-Ab12Cd34Ef56Gh78Ij90",
        "LEGACY_PIN": "4711",
        "PLAIN": "words",
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_SSH_COMMAND": "ssh -i /keys/id",
        "LANG": "C.UTF-8",
        "GITHUB_TOKEN": "ghp_Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56",
    }
    agent = Agent("shell", model=showing(), tools=[terminal], approve=[allow("*")])

    async with house(given=given, secrets=["LEGACY_PIN"], hand_on=["GITHUB_TOKEN"]) as orchestrator:
        found = variables((await orchestrator.run(agent, "go")).output)

    # What is handed on is still not written down.
    assert found["GITHUB_TOKEN"] == "***"
    assert not {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "LEGACY_PIN"} & found.keys()
    unchanged = ("PLAIN", "GIT_AUTHOR_NAME", "GIT_SSH_COMMAND", "LANG", "PATH", "HOME")
    assert {name: found[name] for name in unchanged} == {name: given[name] for name in unchanged}


async def test_a_passed_on_token_reaches_the_command_unredacted(
    house: Open, environ: dict[str, str], tmp_path: Path
) -> None:
    """A command that needs a token is useless with stars instead."""
    token = "ghp_Ab12Cd34Ef56Gh78Ij90Kl12Mn34Op56"
    call = output_of('printf %s "$GITHUB_TOKEN" | wc -c; printf "[$OTHER_TOKEN]"')
    agent = Agent(
        "shell", model=ScriptedModel([call, outputs]), tools=[terminal], approve=[allow("*")]
    )
    given = {**environ, "GITHUB_TOKEN": token, "OTHER_TOKEN": token}

    async with house(given=given, hand_on=["GITHUB_TOKEN"]) as orchestrator:
        assert (await orchestrator.run(agent, "go")).output == f"{len(token)}\n[]"


async def test_commands_of_sessions_at_the_same_time_get_their_own_variables(
    house: Open, tmp_path: Path
) -> None:
    """A program that asks which chat it answers must never answer another."""
    say = 'echo "$ORCHESTRATOR_SESSION_CHAT_ID $ORCHESTRATOR_SESSION_ID $ORCHESTRATOR_TASK"'
    waited_for = hand_on("go", agent="child", background=False)
    found: dict[str, tuple[str, str]] = {}

    async def talk(orchestrator: Orchestrator, chat: str) -> None:
        held = output_of(f"echo > {tmp_path}/ready; read _ < {tmp_path}/{chat}; {say}")
        child = Agent(
            "child", model=ScriptedModel([held, outputs]), tools=[terminal], approve=[allow("*")]
        )
        parent = Agent(
            "parent",
            model=ScriptedModel([held, waited_for, both]),
            tools=[terminal],
            approve=[allow("*")],
            delegates=[child],
        )
        with bind_session(chat_id=chat):
            async with orchestrator.open_session(parent) as session:
                found[chat] = session.id, (await session.ask("go")).text

    def both(transcript: Transcript) -> str:
        answer = json.loads(transcript[-1].text)
        own = json.loads(transcript[-3].text)["output"]
        return f"{own}{answer['results'][0]['output']}"

    with (
        pipe(tmp_path / "ready") as ready,
        pipe(tmp_path / "A") as to_a,
        pipe(tmp_path / "B") as to_b,
    ):
        # The opener has none of their contexts.
        with bind_session(chat_id="opener", user_name="opener"):
            async with house() as orchestrator:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(talk, orchestrator, "A")
                    nursery.start_soon(talk, orchestrator, "B")
                    # Parents together, then children together: all four are under way at once.
                    for _ in range(2):
                        for _ in range(2):
                            await ready.receive()
                        to_a.send()
                        to_b.send()

    for chat, (session, said) in found.items():
        lines = [line for line in said.splitlines() if line]
        assert lines == [f"{chat} {session} /parent", f"{chat} {session} /parent/child[1]"]
    assert found["A"][0] != found["B"][0]


async def test_a_command_in_the_background_keeps_the_variables_of_its_turn(
    house: Open, tmp_path: Path
) -> None:
    """The next message may come from another chat."""
    say = 'echo "for $ORCHESTRATOR_SESSION_CHAT_ID"'
    start = output_of(f"read _ < {tmp_path}/go; {say}", background=True, notify_on_complete=True)
    model = ScriptedModel([start, "started", "other", last])
    agent = Agent("shell", model=model, tools=[terminal], approve=[allow("*")])

    with pipe(tmp_path / "go") as go:
        async with house() as orchestrator, orchestrator.open_session(agent) as session:
            with bind_session(chat_id="A"):
                await session.ask("go")
            with bind_session(chat_id="B"):
                await session.ask("something else")
            go.send()
            assert "for A" in (await session.replies.receive()).text


async def test_variables_of_an_outer_session_do_not_leak_into_a_run(
    house: Open, environ: dict[str, str]
) -> None:
    """An orchestrator may itself be started by a command of another."""
    given = {**environ, "ORCHESTRATOR_TASK": "/outer", "ORCHESTRATOR_SESSION_ID": "r_outer"}
    agent = Agent("shell", model=showing(), tools=[terminal], approve=[allow("*")])
    reset_session_vars()

    async with house(given=given) as orchestrator:
        run = await orchestrator.run(agent, "go")

    found = variables(run.output)
    assert found["ORCHESTRATOR_TASK"] == "/shell"
    assert found["ORCHESTRATOR_SESSION_ID"] == run.id


# The workspace

ONE_AFTER_THE_OTHER = ToolCall(
    "delegate_task",
    {
        "tasks": [
            {"goal": "first", "agent": "slow", "label": "first"},
            {"goal": "then", "agent": "late", "depends_on": ["first"]},
        ],
        "background": True,
    },
)


def nested(depth: int, folders: Sequence[Path | None], tools: Any) -> Agent:
    """Return agents one below the other; the last one says where it is."""
    agent: Agent | None = None
    for level in reversed(range(depth)):
        is_last = agent is None
        agent = Agent(
            f"level{level}",
            model=asking(ToolCall("where"))
            if agent is None
            else ScriptedModel([hand_on("go", agent=agent.name), told]),
            tools=tools if is_last else (),
            delegates=() if agent is None else [agent],
            workspace=folders[level],
        )
    assert agent is not None
    return agent


def told(transcript: Transcript) -> str:
    return str(result_of(transcript[-1].text)["output"])


async def test_tools_work_in_the_folder_of_the_process_by_default(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And stay there: a process may change its folder meanwhile."""
    monkeypatch.chdir(tmp_path)

    @tool
    def leave() -> str:
        """Change the folder of the process."""
        monkeypatch.chdir("/")
        return ""

    agent = Agent(
        "here", model=asking(ToolCall("leave"), ToolCall("where_async")), tools=[leave, where_async]
    )
    async with open_orchestrator(":memory:", machine=Machine(environ=environ)) as orchestrator:
        assert (await orchestrator.run(agent, "go")).output == str(tmp_path)


async def test_a_relative_workspace_of_an_orchestrator_is_below_where_it_was_opened(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = Agent("here", model=asking(ToolCall("where")), tools=[where])
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace="a/b", environ=environ)
    ) as orchestrator:
        monkeypatch.chdir("/")
        assert (await orchestrator.run(agent, "go")).output == str(tmp_path / "a/b")


@pytest.mark.parametrize(
    ("folders", "found"),
    [
        ([None, None, None], "."),
        ([Path("a"), Path("b"), Path("c")], "a/b/c"),
        ([Path("a"), None, Path("c")], "a/c"),
        ([None, Path("b"), None], "b"),
        ([Path("a"), Path("/elsewhere"), Path("c")], "/elsewhere/c"),
    ],
    ids=str,
)
async def test_a_relative_workspace_is_inside_the_workspace_of_the_parent(
    house: Open, tmp_path: Path, folders: list[Path | None], found: str
) -> None:
    agent = nested(3, folders, [where])
    async with house() as orchestrator:
        assert (await orchestrator.run(agent, "go")).output == str(tmp_path / found)


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """A folder with links in it, and a file beside it that they lead to."""
    top = tmp_path / "top"
    (top / "docs" / "deep").mkdir(parents=True)
    (top / "docs" / "note").write_text("mine")
    (tmp_path / "secret").write_text("theirs")
    (top / "out").symlink_to(tmp_path)
    (top / "docs" / "up").symlink_to("..")
    (top / "inside").symlink_to("docs")
    return top


@pytest.mark.parametrize("folder", ["out", "docs/up/out", "../", "docs/up/../.."])
@pytest.mark.parametrize("named_by", ["agent", "message"])
async def test_a_workspace_that_is_a_link_stays_inside(
    house: Open, linked: Path, folder: str, named_by: str
) -> None:
    call = ToolCall("read_file", {"path": "secret"})
    own = Path(folder) if named_by == "agent" else None
    model = ScriptedModel([call, last])
    agent = Agent("reader", model=model, tools=[read_file], workspace=own)

    async with house(workspace=linked) as orchestrator:
        async with orchestrator.open_session(agent) as session:
            reply = await session.ask("go", workspace="" if own else folder)

    assert "leads out of the workspace" in reply.text
    assert "theirs" not in reply.text


async def test_the_workspace_of_a_child_cannot_leave_the_workspace_of_its_parent(
    house: Open, linked: Path
) -> None:
    """A link that leads elsewhere in the folder of the server leads out as well."""
    child = Agent("child", model=ScriptedModel(["never"]), tools=[where], workspace=Path("up"))
    model = ScriptedModel([hand_on("go", agent="child"), last])
    agent = Agent("main", model=model, delegates=[child], workspace=Path("docs"))

    async with house(workspace=linked) as orchestrator:
        run = await orchestrator.run(agent, "go")

    assert "leads out of the workspace" in run.output


async def test_a_workspace_may_be_a_link_to_a_folder_inside(house: Open, linked: Path) -> None:
    call = ToolCall("read_file", {"path": "note"})
    agent = Agent(
        "reader", model=ScriptedModel([call, last]), tools=[read_file], workspace=Path("inside")
    )

    async with house(workspace=linked) as orchestrator:
        assert "mine" in (await orchestrator.run(agent, "go")).output


async def test_a_workspace_that_becomes_a_link_under_way_is_not_followed(
    house: Open, linked: Path
) -> None:
    @tool
    def turn() -> str:
        """Put a link in the place of the workspace."""
        shutil.rmtree(linked / "docs")
        (linked / "docs").symlink_to(linked.parent)
        return "turned"

    call = ToolCall("read_file", {"path": "secret"})
    agent = Agent(
        "reader",
        model=ScriptedModel([ToolCall("turn"), call, last]),
        tools=[turn, read_file],
        workspace=Path("docs"),
    )

    async with house(workspace=linked) as orchestrator:
        assert "theirs" not in (await orchestrator.run(agent, "go")).output


async def test_a_copy_of_an_agent_works_where_the_agent_does(house: Open, tmp_path: Path) -> None:
    """It is the same agent: its folder is not once more inside its folder."""
    model = ScriptedModel([hand_on("go"), ToolCall("where"), last, told])
    agent = Agent("copied", model=model, tools=[where], copies=True, workspace=Path("docs"))
    async with house() as orchestrator:
        assert (await orchestrator.run(agent, "go")).output == str(tmp_path / "docs")


async def test_the_workspace_of_a_message_holds_for_that_message(
    house: Open, tmp_path: Path
) -> None:
    """It may change from one to the next, and one without is where the orchestrator is."""
    call = ToolCall("where")
    model = ScriptedModel([call, last, call, last, call, last])
    agent = Agent("shop", model=model, tools=[where], workspace=Path("docs"))

    async with house() as orchestrator, orchestrator.open_session(agent) as session:
        first = await session.ask("go", workspace="/srv/shop")
        second = await session.ask("go", workspace="other")
        third = await session.ask("go")

    assert [first.text, second.text, third.text] == [
        "/srv/shop/docs",
        str(tmp_path / "other/docs"),
        str(tmp_path / "docs"),
    ]


async def test_a_task_works_in_the_workspace_of_its_message(house: Open, tmp_path: Path) -> None:
    """Also if it begins while the session works for another message, in another folder."""
    begin, begun = trio.Event(), trio.Event()
    places: list[Path] = []

    @tool
    async def hold() -> str:
        """Wait."""
        await begin.wait()
        return ""

    @tool
    async def note() -> str:
        """Note where it is."""
        await trio.lowlevel.checkpoint()
        places.append(current_tool_context().workspace)
        begun.set()
        return ""

    @tool
    async def let_go() -> str:
        """Let the late one begin, and wait for it."""
        places.append(current_tool_context().workspace)
        begin.set()
        await begun.wait()
        return ""

    slow = Agent("slow", model=asking(ToolCall("hold")), tools=[hold])
    late = Agent("late", model=asking(ToolCall("note")), tools=[note])
    model = ScriptedModel([ONE_AFTER_THE_OTHER, "begun", ToolCall("let_go"), "b", "c"])
    agent = Agent("boss", model=model, tools=[let_go], delegates=[slow, late])

    async with house() as orchestrator, orchestrator.open_session(agent) as session:
        await session.ask("go", workspace="one")
        await session.ask("something else", workspace="two")

    assert places == [tmp_path / "two", tmp_path / "one"]


async def test_file_tools_and_commands_are_in_the_same_folder(house: Open, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    model = asking(
        ToolCall("write_file", {"path": "a.txt", "content": "mine\n"}),
        output_of("pwd; cat a.txt"),
        ToolCall("read_file", {"path": "a.txt"}),
    )
    agent = Agent(
        "writer",
        model=model,
        tools=[write_file, read_file, terminal],
        approve=[allow("*")],
        workspace=Path("docs"),
    )
    async with house() as orchestrator:
        assert "mine" in (await orchestrator.run(agent, "go")).output
    assert (tmp_path / "docs" / "a.txt").read_text() == "mine\n"


# Worktrees


def brancher(*calls: ToolCall, name: str = "brancher", **more: Any) -> Agent:
    return Agent(
        name,
        model=asking(*calls),
        tools=[where, write, terminal],
        approve=[allow("*")],
        workspace="worktree",
        **more,
    )


WRITE = ToolCall("write", {"name": "new.txt"})
WHERE = ToolCall("where")


async def test_children_at_the_same_time_have_a_worktree_each(house: Open, repo: Path) -> None:
    child = Agent(
        "child",
        model=ScriptedModel.always(
            lambda said: (
                said[-1].text if len(said) > 1 else WRITE if "dirty" in said[0].text else WHERE
            )
        ),
        tools=[where, write],
        workspace="worktree",
    )
    goals = ("clean one", "dirty", "clean two")
    parent = Agent(
        "parent", model=ScriptedModel([hand_on(*goals, agent="child"), last]), delegates=[child]
    )
    async with house(workspace=repo / "part") as orchestrator:
        run = await orchestrator.run(parent, "go")

    results = json.loads(run.output)["results"]
    folders = [Path(it["output"]) for it in results]
    assert len(set(folders)) == 3
    assert [it.name for it in folders] == ["part", "new.txt", "part"]
    assert ["note" in it for it in results] == [False, True, False]
    kept = folders[1].parents[1]
    assert results[1]["note"].startswith(f"The worktree {kept} (branch orchestrator/")
    assert [it.exists() for it in folders] == [False, True, False]
    assert not (repo / "part" / "new.txt").exists()
    assert len(left_of(repo)) == 3  # its worktree, its branch, where that began


async def test_a_session_is_told_the_worktree_of_a_detached_task(house: Open, repo: Path) -> None:
    child = brancher(WRITE, name="child")
    model = ScriptedModel([hand_on("go", agent="child"), "begun", last])
    parent = Agent("parent", model=model, delegates=[child])

    async with house(workspace=repo) as orchestrator, orchestrator.open_session(parent) as session:
        await session.ask("go")
        said = (await session.replies.receive()).text

    assert "Note: The worktree " in said
    assert "is kept: 1 new file" in said


async def test_a_child_in_the_worktree_of_its_parent_works_there(house: Open, repo: Path) -> None:
    """And one with a worktree of its own begins where that one's HEAD is."""
    grand = brancher(output_of("git log --format=%s -1"), name="grand")
    plain = Agent("plain", model=asking(WHERE), tools=[where], workspace=Path("part"))
    model = ScriptedModel(
        [
            output_of("git -c user.name=T -c user.email=t@x commit -q --allow-empty -m parents"),
            ToolCall("where"),
            hand_on("go", agent="grand"),
            hand_on("go", agent="plain"),
            lambda said: "\n".join(
                [said[4].text, told(said[:7]), told(said[:9])]  # own, grand's, plain's
            ),
        ]
    )
    parent = Agent(
        "parent",
        model=model,
        tools=[where, terminal],
        approve=[allow("*")],
        delegates=[grand, plain],
        workspace="worktree",
    )
    async with house(workspace=repo) as orchestrator:
        run = await orchestrator.run(parent, "go")

    own, grands, plains = run.output.splitlines()
    assert json.loads(grands)["output"] == "parents\n"
    assert plains == f"{own}/part"
    assert "is kept: " in run.outcome.note


async def test_a_session_with_a_worktree_works_in_it_from_turn_to_turn(
    house: Open, repo: Path
) -> None:
    """A clean turn leaves nothing; work is found again by the next one."""
    read = ToolCall("read_file", {"path": "new.txt"})
    model = ScriptedModel([WHERE, last, WRITE, last, read, last])
    agent = Agent("root", model=model, tools=[where, write, read_file], workspace="worktree")
    async with house(workspace=repo) as orchestrator, orchestrator.open_session(agent) as session:
        clean = await session.ask("look")
        assert clean.outcome.note == ""
        assert left_of(repo) == []
        dirty = await session.ask("write")
        assert "is kept" in dirty.outcome.note
        again = await session.ask("read")

    assert dirty.text == f"{clean.text}/new.txt"
    assert "mine" in again.text
    assert again.outcome.note == dirty.outcome.note


async def test_a_task_that_starts_after_the_turn_works_in_its_worktree(
    house: Open, repo: Path
) -> None:
    """It was requested in there; the shared folder is not its own to write in."""
    begin = trio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        await begin.wait()
        return ""

    slow = Agent("slow", model=asking(ToolCall("hold")), tools=[hold])
    late = Agent("late", model=asking(WRITE), tools=[write])
    model = ScriptedModel([ONE_AFTER_THE_OTHER, "begun", "a", "b", "c"])
    agent = Agent("root", model=model, tools=[where], delegates=[slow, late], workspace="worktree")
    async with house(workspace=repo) as orchestrator, orchestrator.open_session(agent) as session:
        first = await session.ask("go")
        assert first.outcome.note.startswith("Its tasks still work in ")
        begin.set()
        await session.wait_idle()
        worktree = Path(first.outcome.note.removeprefix("Its tasks still work in "))
        assert not (repo / "new.txt").exists()
        assert (worktree / "new.txt").exists()
        replies = [session.replies.receive_nowait()]
        with suppress(trio.WouldBlock):
            replies.append(session.replies.receive_nowait())
    assert "is kept" in replies[-1].outcome.note


async def test_a_detached_task_goes_on_in_the_worktree_of_its_session_after_a_restart(
    house: Open, repo: Path
) -> None:
    """The session has no turn then that would have opened it."""
    journal = MemoryJournal()
    entered = trio.Event()

    def team(*, held: bool) -> Agent:
        @tool(idempotent=True)
        async def work() -> str:
            """Write a file, as soon as it may."""
            if held:
                entered.set()
                await trio.sleep_forever()
            (current_tool_context().workspace / "late.txt").write_text("mine\n")
            return str(current_tool_context().workspace)

        child = Agent("child", model=asking(ToolCall("work")), tools=[work])
        if not held:
            child = Agent("child", model=ScriptedModel([last]), tools=[work])
        begin: list[ScriptStep] = [[hand_on("go", agent="child", background=True), WHERE], "begun"]
        return Agent(
            "root",
            model=ScriptedModel(begin if held else [last]),
            tools=[where],
            delegates=[child],
            workspace="worktree",
        )

    async with house(journal, workspace=repo) as orchestrator:
        async with orchestrator.open_session(team(held=True)) as session:
            first = await session.ask("go")
            await entered.wait()
    async with house(journal, workspace=repo) as orchestrator:
        async with orchestrator.open_session(team(held=False), session=session.id) as again:
            reply = await again.replies.receive()

    worktree = Path(first.outcome.note.removeprefix("Its tasks still work in "))
    assert not (repo / "late.txt").exists()
    assert (worktree / "late.txt").exists()
    assert "is kept" in reply.outcome.note


async def test_a_worktree_with_a_running_command_is_kept(
    house: Open, repo: Path, tmp_path: Path
) -> None:
    """A command of a session goes on when the turn has ended; the turn it wakes tidies up."""
    start = output_of(
        f"read _ < {tmp_path}/go; ls -d $PWD", background=True, notify_on_complete=True
    )
    model = ScriptedModel([start, "started", last])
    agent = Agent("root", model=model, tools=[terminal], approve=[allow("*")], workspace="worktree")

    with pipe(tmp_path / "go") as go:
        async with (
            house(workspace=repo) as orchestrator,
            orchestrator.open_session(agent) as session,
        ):
            first = await session.ask("go")
            assert first.outcome.note.startswith("Its commands still run in ")
            path = first.outcome.note.removeprefix("Its commands still run in ")
            go.send()
            woken = await session.replies.receive()

    assert path in woken.text
    assert "exit code 0" in woken.text
    assert woken.outcome.note == ""
    assert left_of(repo) == []


async def test_a_task_that_is_interrupted_goes_on_in_its_worktree(house: Open, repo: Path) -> None:
    """Closing the orchestrator ends no detached task, so its folder stays, clean or not."""
    journal = MemoryJournal()
    entered = trio.Event()
    places: list[Path] = []

    def team(*, held: bool) -> Agent:
        @tool(idempotent=True)
        async def work() -> str:
            """Note where it is."""
            places.append(current_tool_context().workspace)
            if held:
                entered.set()
                await trio.sleep_forever()
            return "done"

        steps: list[ScriptStep] = [ToolCall("work"), last] if held else [last]
        child = Agent("child", model=ScriptedModel(steps), tools=[work], workspace="worktree")
        begin: list[ScriptStep] = [hand_on("go", agent="child"), "begun"]
        said = begin if held else [last]
        return Agent("boss", model=ScriptedModel(said), delegates=[child])

    async with house(journal, workspace=repo) as orchestrator:
        async with orchestrator.open_session(team(held=True)) as session:
            await session.ask("go")
            await entered.wait()
    assert places[0].exists()
    async with house(journal, workspace=repo) as orchestrator:
        async with orchestrator.open_session(team(held=False), session=session.id) as again:
            await again.replies.receive()

    assert places[0] == places[1]
    assert left_of(repo) == []


@pytest.mark.parametrize("way", ["failed", "timed_out", "cancelled"])
@pytest.mark.parametrize("is_dirty", [False, True], ids=["clean", "dirty"])
async def test_however_a_task_ends_its_worktree_is_closed(
    house: Open, repo: Path, mock_clock: MockClock, way: str, is_dirty: bool
) -> None:
    """A task that did not succeed has left half its work there, if any."""
    mock_clock.rate = 1
    entered = trio.Event()

    @tool
    async def work() -> str:
        """Go wrong."""
        if is_dirty:
            (current_tool_context().workspace / "new.txt").write_text("half\n")
        entered.set()
        if way == "failed":
            raise ZeroDivisionError
        await trio.sleep_forever()
        raise AssertionError

    child = Agent(
        "child",
        model=asking(ToolCall("work")),
        tools=[work],
        workspace="worktree",
        limits=Limits(seconds=100),
    )
    model = ScriptedModel([hand_on("go", agent="child"), "begun", last])
    boss = Agent("boss", model=model, delegates=[child])
    journal = MemoryJournal()

    async with (
        house(journal, workspace=repo) as orchestrator,
        orchestrator.open_session(boss) as session,
    ):
        await session.ask("go")
        await entered.wait()
        if way == "timed_out":
            mock_clock.jump(101)
        elif way == "cancelled":
            (task,) = [it for it in session.tree if it != session.tree.root]
            await orchestrator.cancel(task)
        said = (await session.replies.receive()).text

    (settled,) = facts(journal.entries, TaskSettled)
    assert settled.outcome.ending == way
    assert bool(settled.outcome.note) == is_dirty
    assert ("Note: The worktree" in said) == is_dirty
    assert bool(left_of(repo)) == is_dirty


@pytest.mark.parametrize("way", ["times out", "fails"])
async def test_the_worktree_of_a_child_is_closed_when_its_parent_fails(
    house: Open, repo: Path, mock_clock: MockClock, way: str
) -> None:
    """The task ends with its parent, and is never resumed."""
    mock_clock.rate = 1
    entered = trio.Event()

    @tool
    async def work() -> str:
        """Never end."""
        entered.set()
        await trio.sleep_forever()
        raise AssertionError

    @tool
    async def crash() -> str:
        """Fail while the child works."""
        await entered.wait()
        raise ZeroDivisionError

    child = Agent("child", model=asking(ToolCall("work")), tools=[work], workspace="worktree")
    calls = [hand_on("go", agent="child")]
    middle = Agent(
        "middle",
        model=ScriptedModel([[*calls, ToolCall("crash")] if way == "fails" else calls]),
        tools=[crash] if way == "fails" else [],
        delegates=[child],
        limits=Limits(seconds=100),
    )
    model = ScriptedModel([hand_on("go", agent="middle"), "begun", last])
    boss = Agent("boss", model=model, delegates=[middle])
    journal = MemoryJournal()

    async with (
        house(journal, workspace=repo) as orchestrator,
        orchestrator.open_session(boss) as session,
    ):
        await session.ask("go")
        await entered.wait()
        if way == "times out":
            mock_clock.jump(101)
        await session.replies.receive()

    endings = [it.outcome.ending for it in facts(journal.entries, TaskSettled)]
    assert endings == [Ending.CANCELLED, Ending.TIMED_OUT if way == "times out" else Ending.FAILED]
    assert left_of(repo) == []


async def test_a_worktree_without_a_repository_fails_the_task(house: Open, tmp_path: Path) -> None:
    child = brancher(WHERE, name="child")
    parent = Agent(
        "parent", model=ScriptedModel([hand_on("go", agent="child"), last]), delegates=[child]
    )
    async with house() as orchestrator:
        result = result_of((await orchestrator.run(parent, "go")).output)
        assert result["status"] == "failed"
        assert f"{tmp_path} is in no git repository" in result["error"]
        run = await orchestrator.run(brancher(WHERE), "go")

    with pytest.raises(RunFailedError, match="is in no git repository"):
        _ = run.output


# Commands, and how long they live


async def test_the_commands_of_a_child_end_with_it(house: Open, tmp_path: Path) -> None:
    """Its parent goes on, and could not even name them."""
    start = output_of("echo $$; sleep 1000", background=True)
    child = Agent("child", model=asking(start), tools=[terminal], approve=[allow("*")])
    checked: list[bool] = []

    def check(transcript: Transcript) -> str:
        started = json.loads(result_of(transcript[-1].text)["output"])
        checked.append(is_alive(started["pid"]))
        return "ok"

    parent = Agent(
        "parent", model=ScriptedModel([hand_on("go", agent="child"), check]), delegates=[child]
    )
    async with house() as orchestrator:
        await orchestrator.run(parent, "go")

    assert checked == [False]


async def test_the_commands_of_a_run_end_with_it(house: Open) -> None:
    start = output_of("sleep 1000", background=True)
    agent = Agent("shell", model=asking(start), tools=[terminal], approve=[allow("*")])
    async with house() as orchestrator:
        run = await orchestrator.run(agent, "go")
        assert not is_alive(json.loads(run.output)["pid"])


async def test_the_commands_of_a_session_outlive_the_turn_and_end_with_the_session(
    house: Open,
) -> None:
    start = output_of("sleep 1000", background=True)
    agent = Agent("shell", model=asking(start), tools=[terminal, process], approve=[allow("*")])
    async with house() as orchestrator:
        async with orchestrator.open_session(agent) as session:
            pid = json.loads((await session.ask("go")).text)["pid"]
            assert is_alive(pid)
        # Closing the door ends nothing.
        assert is_alive(pid)
        await orchestrator.close_session(session.id)
        assert not is_alive(pid)


async def test_a_turn_that_is_cancelled_leaves_the_commands_of_its_session_alone(
    house: Open, tmp_path: Path
) -> None:
    """They are in the background; `tree=True` ends them, too."""
    start = output_of("sleep 1000", background=True)
    started: list[int] = []
    entered = trio.Event()

    @tool
    async def hold() -> str:
        """Never end."""
        entered.set()
        await trio.sleep_forever()
        raise AssertionError

    def note(transcript: Transcript) -> ToolCall:
        started.append(json.loads(transcript[-1].text)["pid"])
        return ToolCall("hold")

    agent = Agent(
        "shell", model=ScriptedModel([start, note]), tools=[terminal, hold], approve=[allow("*")]
    )
    async with (
        house() as orchestrator,
        orchestrator.open_session(agent) as session,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(session.ask, "go")
        await entered.wait()
        await orchestrator.cancel(session.id)
        assert is_alive(started[0])
        await orchestrator.cancel(session.id, tree=True)
        assert not is_alive(started[0])


async def test_a_command_commits_in_its_worktree_and_changes_no_setting(
    house: Open, repo: Path
) -> None:
    """Worktrees share a folder with settings that git executes."""
    settings = (repo / ".git" / "config").read_text()
    command = "echo new > new.txt; git add . && git -c user.name=a -c user.email=b commit -qm made"
    model = asking(
        output_of(command), output_of("git config --local core.fsmonitor 'touch pwned'; echo over")
    )
    agent = Agent("root", model=model, tools=[terminal], workspace="worktree", approve=[allow("*")])
    held_by = detect(os.environ.get("ORCHESTRATOR_SANDBOX", "auto")).backend
    async with house(workspace=repo, sandbox=held_by.name) as orchestrator:
        await orchestrator.run(agent, "go")

    assert git(repo, "log", "--all", "--format=%s").count("made") == 1
    if held_by.protects:
        assert (repo / ".git" / "config").read_text() == settings


async def test_the_sandbox_of_a_child_is_the_intersection_with_all_ancestors(
    house: Open, tmp_path: Path
) -> None:
    seen: list[Sandbox] = []

    @tool
    async def look() -> str:
        """Look at what is allowed."""
        await trio.lowlevel.checkpoint()
        seen.append(current_tool_context().sandbox.sandbox)
        return "seen"

    child = Agent(
        "child",
        model=ScriptedModel([ToolCall("look"), "done"]),
        tools=[look],
        sandbox=Sandbox(network=True, write=["below", "/"], processes=7),
        workspace=Path("below"),
    )
    parent = Agent(
        "parent",
        model=ScriptedModel([ToolCall("look"), hand_on("go", agent="child"), "done"]),
        tools=[look],
        delegates=[child],
        sandbox=Sandbox(write=["named"], memory=9),
    )
    (tmp_path / "below").mkdir()
    async with house() as orchestrator:
        assert (await orchestrator.run(parent, "go")).output == "done"

    first, second = seen
    assert (first.network, second.network) == (False, False)
    assert first.write == (tmp_path / "named",)
    # The workspace of the parent, and nothing outside of what that may write.
    assert set(second.write) == {tmp_path / "below" / "below", tmp_path / "named", tmp_path}
    assert (second.memory, second.processes) == (9, 7)


async def test_the_paths_of_a_sandbox_are_looked_up_for_a_tool_that_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[object] = []

    def look(writable: Sequence[Path]) -> Iterable[Path]:
        looked.append(writable)
        return own_code_in(writable)

    monkeypatch.setattr(task_workspace, "own_code_in", look)

    @tool
    def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    async with open_orchestrator(":memory:", machine=Machine(workspace=tmp_path)) as orchestrator:
        adds = ScriptedModel([ToolCall("add", {"a": 1, "b": 2}), "3"])
        agent = Agent("clerk", model=adds, tools=[add])
        await orchestrator.run(agent, "add")
        assert looked == []

        lists = ScriptedModel([ToolCall("list_files", {}), "none"])
        agent = Agent("lister", model=lists, tools=[list_files])
        await orchestrator.run(agent, "list")
        assert len(looked) == 1
