"""Our own git: no filter of a repository runs outside of a sandbox, whichever command reads it."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import pytest

from orchestrator import Machine, open_orchestrator
from orchestrator.agents import Agent, ScriptedModel, ToolCall
from orchestrator.agents.tools.terminal import terminal
from orchestrator.kernel.execution.workspace.git import Git, GitError, GitOn, remove_worktree
from orchestrator.kernel.execution.workspace.worktrees import Worktree, WorktreeError, Worktrees
from tests.orchestrator.test_worktrees import BACKENDS, commit, git, require_backend, sandbox

pytestmark = pytest.mark.realtime
KINDS: Final = ("clean", "smudge", "process")
WALLS: Final = ("bubblewrap", "landlock")
COMMANDS: Final = {
    "config": ["config", "--list"],
    "for-each-ref": ["for-each-ref"],
    "ls-files": ["ls-files", "-v", "--stage", "-z"],
    "reset": ["reset", "--hard", "--quiet", "--no-recurse-submodules"],
    "rev-list": ["rev-list", "--count", "HEAD"],
    "rev-parse": ["rev-parse", "HEAD^{commit}"],
    "status": ["status", "--porcelain=v2", "--untracked-files=all"],
    "update-ref": ["update-ref", "--stdin"],
    "worktree add": ["worktree", "add", "--no-checkout"],
    "worktree list": ["worktree", "list", "--porcelain"],
}
"""Every command of git that we start, by its name."""
# Which of them read or write files by a filter of each kind.
FILTERING: Final = {"clean": {"status"}, "smudge": {"reset"}, "process": {"status", "reset"}}


@attrs.frozen
class House:
    """A repository with a worktree, and files by which a filter shows that it ran."""

    folder: Path
    environ: dict[str, str]

    @property
    def repo(self) -> Path:
        return self.folder / "repo"

    @property
    def outside(self) -> Path:
        return self.folder / "outside" / "ran"

    def trees(self, backend: str) -> Worktrees:
        return Worktrees(self.folder / "trees", self.environ, sandbox(backend))

    def set_filter(self, kind: str, tree: Path | None = None) -> None:
        """Have git run a command on every file, which tries to write two files."""
        inside = f"touch {tree}/ran;" if tree else ""
        command = f"{inside} touch {self.outside}; cat"
        git(self.repo, "config", f"filter.mine.{kind}", f"sh -c '{command}'")
        (self.repo / ".git" / "info").mkdir(exist_ok=True)
        (self.repo / ".git" / "info" / "attributes").write_text("* filter=mine\n")


@pytest.fixture
def house() -> Generator[House]:
    """Not in `/tmp`, which every sandbox may have for itself."""
    made = Path(tempfile.mkdtemp(dir=Path(__file__).parent, prefix=".git-"))
    folder = Path(os.path.realpath(made))
    for name in ("repo", "outside"):
        (folder / name).mkdir()
    git(folder / "repo", "init", "--quiet", "--initial-branch=main", "--template=")
    (folder / "repo" / "a.txt").write_text("a\n")
    commit(folder / "repo")
    git(folder / "repo", "branch", "added")
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }
    yield House(folder, environ)
    shutil.rmtree(folder)


def touch(tree: Worktree) -> None:
    """Have git read a file that is as it was, since its time is another."""
    os.utime(tree.path / "a.txt", (1, 1))


async def run(name: str, at: GitOn, tree: Worktree) -> None:
    """Run one of the commands on a worktree or its repository."""
    write = [tree.repository, tree.git_folder]
    args = COMMANDS[name]
    touch(tree)
    match name:
        case "worktree add":
            path = tree.path.with_name("added")
            path.mkdir()
            known = tree.repository / "worktrees"
            folders = [path, known]
            added = [*args, str(path), "added"]
            await at.run(*added, write=folders, protected=[tree.git_folder])
        case "update-ref":
            stdin = f"create refs/heads/more {tree.base}\n"
            await at.run(*args, stdin=stdin, write=write)
        case "reset":
            # Files are made anew only if they are not there.
            (tree.path / "a.txt").unlink()
            await at.run(*args, write=write)
        case _:
            await at.run(*args)


@pytest.mark.parametrize("kind", KINDS)
async def test_no_git_command_runs_a_filter_that_the_repository_names(
    house: House, kind: str
) -> None:
    """Without a backend, too: the filters of the settings are overridden."""
    tree = await house.trees("none").open(house.repo, name="t1")
    house.set_filter(kind)
    bare = Git(house.environ, sandbox("none"))
    at = await bare.on_worktree(tree.path, tree.git_folder, tree.repository)

    ran: list[str] = []
    for name in COMMANDS:
        await run(name, at, tree)
        if house.outside.exists():
            house.outside.unlink()
            ran.append(name)

    assert ran == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", WALLS)
async def test_a_git_command_keeps_a_filter_in_its_sandbox(
    house: House, kind: str, backend: str
) -> None:
    """A command in the background adds the filter after the filters were listed."""
    require_backend(backend)
    tree = await house.trees(backend).open(house.repo, name="t1")
    held = Git(house.environ, sandbox(backend))
    at = await held.on_worktree(tree.path, tree.git_folder, tree.repository)
    house.set_filter(kind, tree.path)

    ran: set[str] = set()
    for name in COMMANDS:
        # This filter speaks no protocol, so git says that it fails.
        with suppress(*[GitError] * (kind == "process")):
            await run(name, at, tree)
        if (tree.path / "ran").exists():
            (tree.path / "ran").unlink()
            ran.add(name)
        assert not house.outside.exists(), name

    assert ran == FILTERING[kind]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_closing_an_unchanged_worktree_runs_no_filter(
    house: House, backend: str, kind: str
) -> None:
    require_backend(backend)
    trees = house.trees(backend)
    tree = await trees.open(house.repo, name="t1")
    house.set_filter(kind)
    touch(tree)

    assert await trees.close(tree) == ""

    assert not house.outside.exists()
    assert not tree.path.exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_opening_a_worktree_without_its_folder_runs_no_filter(
    house: House, backend: str, kind: str
) -> None:
    require_backend(backend)
    trees = house.trees(backend)
    tree = await trees.open(house.repo, name="t1")
    shutil.rmtree(tree.path)
    house.set_filter(kind)

    again = await trees.open(house.repo, name="t1")

    assert (again.path / "a.txt").read_text() == "a\n"
    assert not house.outside.exists()


async def test_every_git_command_that_is_started_is_in_the_list(house: House) -> None:
    real = shutil.which("git")
    log = house.folder / "log"
    program = house.folder / "bin" / "git"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {log}\nexec {real} "$@"\n')
    program.chmod(0o755)
    house.environ["PATH"] = f"{program.parent}:{house.environ['PATH']}"
    trees = house.trees("none")

    clean = await trees.open(house.repo, name="t1")
    worked = await trees.open(house.repo, name="t2")
    await trees.open(house.repo, name="t2")
    commit(worked.path)
    gone = await trees.open(house.repo, name="t3")
    shutil.rmtree(gone.path)
    await trees.open(house.repo, name="t3")
    assert await trees.close(clean) == ""
    assert await trees.close(worked)

    lines = log.read_text().splitlines()
    unknown = [line for line in lines if not any(f" {name} " in f"{line} " for name in COMMANDS)]
    used = {name for name in COMMANDS for line in lines if f" {name} " in f"{line} "}
    assert unknown == []
    assert used == {*COMMANDS}


async def test_a_filter_in_the_sandbox_of_git_changes_no_settings(house: House) -> None:
    """They would name commands for the next git of the person."""
    require_backend("bubblewrap")
    trees = house.trees("bubblewrap")
    other = await trees.open(house.repo, name="t2")
    tree = await trees.open(house.repo, name="t1")
    settings = [
        house.repo / ".git" / "config",
        house.repo / ".git" / "hooks" / "post-checkout",
        house.repo / ".git" / "info" / "attributes",
        other.git_folder / "config.worktree",
        other.git_folder / "gitdir",
        other.path / "b.txt",
    ]
    held = Git(house.environ, sandbox("bubblewrap"))
    at = await held.on_worktree(tree.path, tree.git_folder, tree.repository)
    tries = "; ".join(f"echo broken >> {file}" for file in settings)
    house.set_filter("smudge", tree.path)
    git(house.repo, "config", "filter.mine.smudge", f"touch ran; {tries}; cat")
    before = [file.read_text() if file.exists() else None for file in settings]

    await run("reset", at, tree)

    after = [file.read_text() if file.exists() else None for file in settings]
    assert (tree.path / "ran").exists()
    assert before == after


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", WALLS)
async def test_a_command_in_a_sandbox_leaves_it_by_no_filter(
    house: House, backend: str, kind: str
) -> None:
    """It makes a repository with a filter, and delegates to an agent with a worktree."""
    require_backend(backend)
    workspace = house.folder / "plain"
    workspace.mkdir()
    evil = (
        "git init --quiet . && echo a > a.txt && git add a.txt"
        " && git -c user.name=x -c user.email=x@y commit --quiet -m 1;"
        f" git config filter.x.{kind} \"sh -c 'touch {house.outside}; cat'\";"
        " mkdir -p .git/info && echo '* filter=x' > .git/info/attributes"
    )
    child = Agent("child", model=ScriptedModel.always("ok"), workspace="worktree")
    boss = Agent(
        "boss",
        model=ScriptedModel(
            [
                ToolCall("terminal", {"command": evil}),
                ToolCall("delegate_task", {"goal": "look"}),
                lambda transcript: transcript[-1].text,
            ]
        ),
        tools=[terminal],
        delegates=[child],
    )
    environ = {**os.environ, "ORCHESTRATOR_HOME": str(house.folder / "home")}
    async with open_orchestrator(
        ":memory:", machine=Machine(workspace=workspace, sandbox=backend, environ=environ)
    ) as orchestrator:
        done = await orchestrator.run(boss, "go", attended=False)

    assert "ok" in done.output
    assert not house.outside.exists()


@pytest.mark.parametrize("way", ["a link", "a file"])
async def test_a_workspace_that_an_agent_leads_to_another_repository_gets_no_worktree(
    house: House, way: str
) -> None:
    """Commands in a worktree write its repository."""
    workspace = house.folder / "plain"
    workspace.mkdir()
    if way == "a link":
        (workspace / ".git").symlink_to(house.repo / ".git")
    else:
        (workspace / ".git").write_text(f"gitdir: {house.repo / '.git'}\n")
    trees = house.trees("auto")

    with pytest.raises(WorktreeError, match=r"does not name .*plain: an agent may"):
        await trees.open(workspace, name="t1")


@pytest.mark.parametrize("backend", WALLS)
async def test_a_link_in_place_of_a_repository_lets_git_write_no_other(
    house: House, backend: str
) -> None:
    """A command in the background swaps the folder with a link, after it was judged."""
    require_backend(backend)
    repository, other = house.repo / ".git", house.folder / "other"
    head = git(house.repo, "rev-parse", "HEAD").strip()
    at = await Git(house.environ, sandbox(backend)).on_repository(repository)
    repository.rename(other)
    repository.symlink_to("../other")

    with pytest.raises(GitError):
        await at.run(
            "update-ref", "--stdin", stdin=f"create refs/heads/more {head}\n", write=[repository]
        )

    assert not (other / "refs" / "heads" / "more").exists()


async def test_a_link_in_place_of_the_worktrees_of_a_repository_removes_no_other_folder(
    house: House,
) -> None:
    tree = await house.trees("none").open(house.repo, name="t1")
    known, other = tree.repository / "worktrees", house.folder / "other"
    known.rename(other)
    known.symlink_to(other)

    with pytest.raises(OSError, match="worktrees"):
        remove_worktree(tree.path, tree.repository, only_half_made=False)

    assert (other / "t1" / "HEAD").exists()


async def test_a_pipe_among_the_worktrees_of_a_repository_does_not_block(house: House) -> None:
    tree = await house.trees("none").open(house.repo, name="t1")
    (tree.repository / "worktrees" / "0").mkdir()
    os.mkfifo(tree.repository / "worktrees" / "0" / "gitdir")
    (tree.repository / "worktrees" / "0" / "HEAD").write_text("ref: refs/heads/main")
    (tree.git_folder / "locked").unlink(missing_ok=True)
    os.mkfifo(tree.git_folder / "locked")

    remove_worktree(tree.path, tree.repository, only_half_made=True)

    assert tree.path.exists()


async def test_a_submodule_and_a_worktree_of_the_person_get_worktrees(house: House) -> None:
    """Their repository is elsewhere, and names them."""
    above = house.folder / "above"
    above.mkdir()
    git(above, "init", "--quiet", "--template=")
    add = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
    git(above, *add, str(house.repo), "inner")
    git(house.repo, "worktree", "add", "--quiet", "--detach", str(house.folder / "own"))
    trees = house.trees("auto")

    for number, workspace in enumerate([above / "inner", house.folder / "own"]):
        tree = await trees.open(workspace, name=f"t{number}")
        assert (tree.path / "a.txt").read_text() == "a\n"
        assert await trees.close(tree) == ""
