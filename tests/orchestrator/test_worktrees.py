"""Worktrees of tasks, in real repositories: whole or not there, and kept if work is in them."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from orchestrator.agents import AgentError, DefinitionError
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.agents.sandbox.detection import detect
from orchestrator.kernel.execution.program_sandbox import ProgramSandbox
from orchestrator.kernel.execution.workspace import worktrees
from orchestrator.kernel.execution.workspace.git import HALF_MADE, GitError
from orchestrator.kernel.execution.workspace.worktrees import Worktree, WorktreeError, Worktrees

realtime = pytest.mark.realtime

Attempt = Callable[[Path, Worktrees], Awaitable[None]]
NOTES = "refs/orchestrator"
BACKENDS = ("bubblewrap", "landlock", "none")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
    }


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template")
    git(path, "init", "--quiet", "--initial-branch=main", "--template=")
    (path / "part").mkdir()
    (path / "part" / "a.txt").write_text("a\n")
    (path / "b.txt").write_text("b\n")
    (path / ".gitignore").write_text("*.log\n")
    commit(path)
    return path


@pytest.fixture
def repo(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "repo")


def require_backend(name: str) -> None:
    try:
        detect(name)
    except DefinitionError as exc:
        pytest.skip(str(exc))


def sandbox(backend: str = "auto") -> ProgramSandbox:
    return ProgramSandbox(choice=SandboxChoice(backend))


@pytest.fixture
def trees(tmp_path: Path, environ: dict[str, str]) -> Worktrees:
    return Worktrees(tmp_path / "trees", environ, sandbox())


def git(where: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", *args],
        cwd=where,
        env={
            "PATH": os.environ["PATH"],
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(where: Path, message: str = "more") -> str:
    git(where, "add", "--all")
    git(where, "commit", "--quiet", "--allow-empty", "-m", message)
    return git(where, "rev-parse", "HEAD")


def left_of(repo: Path) -> list[str]:
    """Return every worktree but the first, every branch but main, and every note."""
    worktrees = git(repo, "worktree", "list").splitlines()[1:]
    refs = git(repo, "for-each-ref", "--format=%(refname)", "refs/heads", NOTES)
    return [*worktrees, *(it for it in refs.split() if it != "refs/heads/main")]


@realtime
async def test_a_worktree_holds_the_committed_files_on_its_own_branch(
    repo: Path, trees: Worktrees
) -> None:
    """Uncommitted changes are not the task's work."""
    (repo / "b.txt").write_text("half done\n")
    (repo / "new.txt").touch()

    tree = await trees.open(repo, name="t1")

    assert tree.workspace == tree.path
    assert tree.base == git(repo, "rev-parse", "HEAD")
    assert git(tree.path, "symbolic-ref", "--short", "HEAD") == tree.branch
    assert (tree.path / "b.txt").read_text() == "b\n"
    assert not (tree.path / "new.txt").exists()
    assert not git(tree.path, "status", "--porcelain")
    assert "locked" not in git(repo, "worktree", "list", "--porcelain")


@realtime
async def test_a_worktree_is_private_to_its_user(repo: Path, trees: Worktrees) -> None:
    before = os.umask(0)
    try:
        tree = await trees.open(repo, name="t1")
    finally:
        os.umask(before)

    assert [it.stat().st_mode & 0o777 for it in (tree.path, tree.path.parent)] == [0o700, 0o700]


@realtime
async def test_a_clean_worktree_is_removed_with_its_branch(repo: Path, trees: Worktrees) -> None:
    tree = await trees.open(repo, name="t1")

    assert await trees.close(tree) == ""
    assert not tree.path.exists()
    assert left_of(repo) == []


@realtime
async def test_a_part_of_the_repository_is_the_same_part_of_the_worktree(
    repo: Path, trees: Worktrees
) -> None:
    (repo / "drafts" / "deep").mkdir(parents=True)

    part = await trees.open(repo / "part", name="t1")
    drafts = await trees.open(repo / "drafts" / "deep", name="t2")

    assert part.workspace == part.path / "part"
    assert (part.workspace / "a.txt").exists()
    assert drafts.workspace == drafts.path / "drafts" / "deep"
    assert drafts.workspace.is_dir()
    assert [await trees.close(part), await trees.close(drafts)] == ["", ""]


@realtime
async def test_a_part_that_is_committed_as_a_link_to_the_outside_is_refused(
    repo: Path, trees: Worktrees, tmp_path: Path
) -> None:
    """A task in it would write outside of its workspace."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (repo / "linked").symlink_to(outside)
    commit(repo)
    (repo / "linked").unlink()
    (repo / "linked" / "deep").mkdir(parents=True)

    with pytest.raises(WorktreeError, match="leads out of the worktree"):
        await trees.open(repo / "linked" / "deep", name="t1")

    assert list(outside.iterdir()) == []
    assert left_of(repo) == []


def commit_twice(path: Path) -> None:
    commit(path)
    commit(path)


def change(path: Path) -> None:
    (path / "b.txt").write_text("other\n")


def change_and_stage(path: Path) -> None:
    change(path)
    git(path, "add", "b.txt")


def delete(path: Path) -> None:
    (path / "b.txt").unlink()


def leave_new_files(path: Path) -> None:
    (path / "new").mkdir()
    (path / "new" / "1").touch()
    (path / "new" / "2").touch()


def commit_without_a_branch(path: Path) -> None:
    git(path, "checkout", "--quiet", "--detach")
    commit(path)


def switch(path: Path) -> None:
    git(path, "checkout", "--quiet", "-b", "feature")


def change_what_is_assumed_unchanged(path: Path) -> None:
    git(path, "update-index", "--assume-unchanged", "b.txt")
    change(path)


def change_what_is_skipped(path: Path) -> None:
    git(path, "update-index", "--skip-worktree", "b.txt")
    change(path)


def hide_new_files(path: Path) -> None:
    git(path, "config", "status.showUntrackedFiles", "no")
    (path / "new").touch()


@realtime
@pytest.mark.parametrize(
    ("work", "said"),
    [
        (commit_twice, "2 commits"),
        (change, "1 changed file"),
        (change_and_stage, "1 changed file"),
        (delete, "1 changed file"),
        (leave_new_files, "2 new files"),
        (commit_without_a_branch, "1 commit, (detached) is checked out instead of its"),
        (switch, "feature is checked out instead of its branch"),
        (change_what_is_assumed_unchanged, "1 file that git is told not to look at"),
        (change_what_is_skipped, "1 file that git is told not to look at"),
        (hide_new_files, "1 new file"),
    ],
)
async def test_a_worktree_with_work_is_kept(
    repo: Path, trees: Worktrees, work: Callable[[Path], None], said: str
) -> None:
    """The parent is told where it is, and how much."""
    tree = await trees.open(repo, name="t1")
    work(tree.path)

    kept = await trees.close(tree)

    assert f"{tree.path} (branch orchestrator/t1) is kept: {said}" in kept
    assert len(left_of(repo)) >= 3
    assert (tree.path / ".git").exists()


@realtime
async def test_ignored_files_do_not_count_as_work(repo: Path, trees: Worktrees) -> None:
    """It can be made again. Otherwise every run of a test would leave a worktree behind."""
    tree = await trees.open(repo, name="t1")
    (tree.path / "run.log").touch()

    assert await trees.close(tree) == ""
    assert not tree.path.exists()


def spoil_the_index(tree: Worktree) -> None:
    (tree.git_folder / "index").write_bytes(b"spoilt")


def lose_the_folder(tree: Worktree) -> None:
    shutil.rmtree(tree.path)


@realtime
@pytest.mark.parametrize("spoil", [spoil_the_index, lose_the_folder])
async def test_a_worktree_that_cannot_be_inspected_is_kept_and_reported(
    repo: Path, trees: Worktrees, spoil: Callable[[Worktree], None]
) -> None:
    """Not knowing is not the same as knowing that there is work, and neither is clean."""
    tree = await trees.open(repo, name="t1")
    spoil(tree)

    kept = await trees.close(tree)

    assert "is kept, for whether there is work in it could not be found out: git" in kept
    assert len(left_of(repo)) == 3


@realtime
async def test_a_locked_worktree_is_not_removed(repo: Path, trees: Worktrees) -> None:
    tree = await trees.open(repo, name="t1")
    git(repo, "worktree", "lock", str(tree.path))

    kept = await trees.close(tree)

    assert "has no work in it, and could not be removed altogether: it is locked" in kept
    assert (tree.path / "b.txt").exists()


@realtime
async def test_the_same_task_goes_on_in_its_worktree(
    repo: Path, trees: Worktrees, tmp_path: Path, environ: dict[str, str]
) -> None:
    """Its process has died. Where it began is where it began the first time."""
    first = await trees.open(repo / "part", name="t1")
    commit(first.path)
    (first.path / "new").touch()
    commit(repo)
    again = Worktrees(tmp_path / "trees", environ, sandbox())

    second = await again.open(repo / "part", name="t1")

    assert second == first
    assert "is kept: 1 commit" in await again.close(second)


@realtime
async def test_commits_outlive_the_folder(repo: Path, trees: Worktrees) -> None:
    """The folder was removed, and git still knows of it."""
    first = await trees.open(repo, name="t1")
    (first.path / "new").touch()
    commit(first.path)
    commit(repo)
    shutil.rmtree(first.path)

    second = await trees.open(repo, name="t1")

    assert second == first
    assert (second.path / "new").exists()
    assert "is kept: 1 commit" in await trees.close(second)


def only_refs(repo: Path, path: Path) -> None:
    git(repo, "update-ref", f"refs/heads/orchestrator/{path.name}", "HEAD")
    git(repo, "update-ref", f"{NOTES}/base/{path.name}", "HEAD")


def no_files(repo: Path, path: Path) -> None:
    only_refs(repo, path)
    lock = ("--no-checkout", "--lock", "--reason", HALF_MADE)
    git(repo, "worktree", "add", *lock, str(path), f"orchestrator/{path.name}")


def some_files(repo: Path, path: Path) -> None:
    no_files(repo, path)
    (path / "b.txt").write_text("the first ha")
    (repo / ".git" / "worktrees" / path.name / "index.lock").touch()


def locked_by_git(repo: Path, path: Path) -> None:
    some_files(repo, path)
    (repo / ".git" / "worktrees" / path.name / "locked").write_text("initializing\n")


def no_git_file(repo: Path, path: Path) -> None:
    no_files(repo, path)
    (path / ".git").unlink()


def no_folder(repo: Path, path: Path) -> None:
    no_files(repo, path)
    shutil.rmtree(path)


@realtime
@pytest.mark.parametrize(
    "half", [only_refs, no_files, some_files, locked_by_git, no_git_file, no_folder]
)
async def test_a_worktree_left_half_made_by_a_crash_is_made_again(
    repo: Path, trees: Worktrees, tmp_path: Path, half: Callable[[Path, Path], None]
) -> None:
    half(repo, tmp_path / "trees" / "t1")

    tree = await trees.open(repo, name="t1")

    assert not git(tree.path, "status", "--porcelain")
    assert await trees.close(tree) == ""
    assert left_of(repo) == []


HOUSE = """
import os, pathlib, sys, trio
from orchestrator.kernel.execution.workspace.worktrees import Worktrees
from tests.orchestrator.test_worktrees import sandbox

async def main(repo, folder, backend):
    trees = Worktrees(pathlib.Path(folder), os.environ, sandbox(backend))
    await trees.open(pathlib.Path(repo), name="t1")

trio.run(main, *sys.argv[1:])
"""


def start_house(repo: Path, environ: dict[str, str], backend: str) -> subprocess.Popen[bytes]:
    """Open a worktree in another process."""
    folder = repo.parent / "trees"
    command = [sys.executable, "-c", HOUSE, str(repo), str(folder), backend]
    return subprocess.Popen(command, env=environ, cwd=Path(__file__).parents[2])


def replace_checkout(environ: dict[str, str], repo: Path, script: str) -> None:
    """Put a git into the PATH that runs a script instead of a checkout."""
    real = shutil.which("git", path=environ["PATH"])
    # A sandbox shows it there.
    program = repo / ".git" / "bin" / "git"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\ncase " $* " in *" reset "*) {script};; esac\nexec {real} "$@"\n'
    )
    program.chmod(0o755)
    environ["PATH"] = f"{program.parent}:{environ['PATH']}"


def check_out_slowly(environ: dict[str, str], repo: Path) -> int:
    """Let a checkout take forever; who takes part in it holds the other end of what is returned."""
    line = repo / ".git" / "line"
    os.mkfifo(line)
    script = f"exec 3> {line}; echo begun >&3; exec sleep 600"
    replace_checkout(environ, repo, script)
    return os.open(line, os.O_RDONLY | os.O_NONBLOCK)


def who_holds(line: Path) -> int:
    """Return the process that writes to a pipe, by its id outside of any sandbox."""
    for opened in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            pid = int(opened.parts[2])
            if opened.samefile(line) and pid != os.getpid():
                return pid
    raise AssertionError(f"no process holds {line}")


async def wait_gone(line: int) -> None:
    with trio.fail_after(5):
        await trio.lowlevel.wait_readable(line)
    assert os.read(line, 1) == b""  # no process is left that could write
    os.close(line)


@realtime
@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_worktree_is_not_remade_while_an_earlier_git_works_in_it(
    repo: Path, trees: Worktrees, tmp_path: Path, environ: dict[str, str], backend: str
) -> None:
    """Its process was killed, and git was not: it still writes files there."""
    require_backend(backend)
    line = check_out_slowly(environ, repo)
    house = start_house(repo, environ, backend)
    await trio.lowlevel.wait_readable(line)
    assert os.read(line, 100)
    smudging = who_holds(repo / ".git" / "line")
    house.kill()
    house.wait()
    half = (tmp_path / "trees" / "t1" / ".git").stat()

    try:
        with trio.move_on_after(0.2) as waiting:
            await trees.open(repo, name="t1")
        assert waiting.cancelled_caught
        assert (tmp_path / "trees" / "t1" / ".git").stat() == half
    finally:
        os.killpg(os.getpgid(smudging), signal.SIGKILL)
    await wait_gone(line)
    tree = await trees.open(repo, name="t1")
    assert (tree.path / "b.txt").read_text() == "b\n"
    assert await trees.close(tree) == ""


@realtime
async def test_a_cancelled_opening_leaves_no_worktree(
    repo: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    line = check_out_slowly(environ, repo)
    trees = Worktrees(tmp_path / "trees", environ, sandbox())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: trees.open(repo, name="t1"))
        await trio.lowlevel.wait_readable(line)
        assert os.read(line, 100)
        nursery.cancel_scope.cancel()

    assert nursery.cancel_scope.cancelled_caught
    assert left_of(repo) == []
    assert list((tmp_path / "trees").iterdir()) == []
    await wait_gone(line)


@realtime
async def test_a_failed_checkout_leaves_no_worktree(
    repo: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    replace_checkout(environ, repo, "echo the disk is full >&2; exit 1")
    trees = Worktrees(tmp_path / "trees", environ, sandbox())

    with pytest.raises(GitError, match=r"git reset: the disk is full"):
        await trees.open(repo, name="t1")

    assert left_of(repo) == []
    assert list((tmp_path / "trees").iterdir()) == []


@realtime
async def test_many_siblings_open_and_close_at_the_same_time(
    repo: Path, trees: Worktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine needs longer for twenty at once, and would leave the worktrees there.
    """Git locks shared files and does not wait for the lock."""
    monkeypatch.setattr(worktrees, "CLOSE_SECONDS", 600)
    said: dict[str, str] = {}

    async def open_and_close(name: str) -> None:
        tree = await trees.open(repo, name=name)
        if name == "t7":
            commit(tree.path)
        said[name] = await trees.close(tree)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(open_and_close, f"t{number}")

    assert len(said) == 20
    assert [name for name, why in said.items() if why] == ["t7"]
    assert len(left_of(repo)) == 3


@realtime
async def test_a_worktree_begins_where_head_is(repo: Path, trees: Worktrees) -> None:
    """Also without a branch, and in the worktree of another task."""
    git(repo, "checkout", "--quiet", "--detach")
    parent = await trees.open(repo, name="parent")
    done = commit(parent.path)

    child = await trees.open(parent.workspace, name="child")

    assert child.base == done
    assert child.repository == parent.repository
    shutil.rmtree(parent.path)
    assert await trees.close(child) == ""


@realtime
async def test_a_folder_in_the_repository_does_not_look_like_work(
    repo: Path, environ: dict[str, str]
) -> None:
    trees = Worktrees(repo / ".trees", environ, sandbox())

    tree = await trees.open(repo, name="t1")

    assert git(repo, "status", "--porcelain") == ""
    change(tree.path)
    assert "is kept: 1 changed file" in await trees.close(tree)


@realtime
async def test_variables_of_a_git_hook_do_not_redirect_git(
    repo: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    """A process in a git hook has these variables."""
    git(tmp_path, "init", "--quiet", "other")
    astray = {
        "GIT_DIR": str(tmp_path / "other" / ".git"),
        "GIT_WORK_TREE": str(tmp_path / "other"),
        "GIT_INDEX_FILE": str(tmp_path / "index"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.bare",
        "GIT_CONFIG_VALUE_0": "true",
    }
    trees = Worktrees(tmp_path / "trees", {**environ, **astray}, sandbox())

    tree = await trees.open(repo, name="t1")

    assert tree.repository == repo / ".git"
    assert await trees.close(tree) == ""
    assert not (tmp_path / "index").exists()


@realtime
async def test_no_hook_of_the_repository_runs(repo: Path, trees: Worktrees) -> None:
    ran = repo / "ran"
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        file = repo / ".git" / "hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch {ran}\n")
        file.chmod(0o755)

    assert await trees.close(await trees.open(repo, name="t1")) == ""

    assert not ran.exists()


@realtime
async def test_a_task_cannot_make_the_house_run_its_commands(
    repo: Path, trees: Worktrees, tmp_path: Path
) -> None:
    """It may write any file of its workspace, and the one that says where git has its settings."""
    tree = await trees.open(repo, name="t1")
    ran = tmp_path / "ran"
    (tree.path / ".git").unlink()
    git(tree.path, "init", "--quiet", "--initial-branch=orchestrator/t1")
    commit(tree.path)
    git(tree.path, "config", "core.fsmonitor", f"touch {ran}")
    git(tree.path, "config", "filter.mine.clean", f"touch {ran}; cat")
    (tree.path / ".git" / "info").mkdir(exist_ok=True)
    (tree.path / ".git" / "info" / "attributes").write_text("* filter=mine\n")
    (tree.path / "b.txt").write_text("b\n")

    kept = await trees.close(tree)

    assert "could not be removed" in kept
    assert not ran.exists()
    assert (tree.path / "b.txt").exists()


@realtime
@pytest.mark.parametrize("part", ["clean", "smudge", "process"])
async def test_no_filter_of_the_repository_runs(
    repo: Path, trees: Worktrees, tmp_path: Path, part: str
) -> None:
    """An agent may have written it down there, or the author of the repository."""
    ran = tmp_path / "ran"
    (tmp_path / "included").write_text(
        f'[filter "a=b.c"]\n\t{part} = touch {ran}; cat\n\trequired = true\n'
    )
    git(repo, "config", "include.path", str(tmp_path / "included"))
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* filter=a=b.c\n")

    tree = await trees.open(repo, name="t1")
    (tree.path / "b.txt").write_text("changed\n")

    assert (tree.path / "part" / "a.txt").read_text() == "a\n"
    assert "1 changed file" in await trees.close(tree)
    assert not ran.exists()


@realtime
@pytest.mark.parametrize("committed", [True, False])
async def test_no_filter_of_a_submodule_runs_and_its_work_is_kept(
    repo: Path, trees: Worktrees, tmp_path: Path, *, committed: bool
) -> None:
    """A task can make a submodule, with settings of its own."""
    ran = tmp_path / "ran"
    tree = await trees.open(repo, name="t1")
    inner = tree.path / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    (inner / ".gitattributes").write_text("* filter=mine\n")
    (inner / "it").write_text("one\n")
    commit(inner)
    git(tree.path, "add", "inner")
    if committed:
        commit(tree.path)
    git(inner, "config", "filter.mine.clean", f"touch {ran}; cat")
    # As long as before: git has to read it, by the filter.
    (inner / "it").write_text("two\n")

    kept = await trees.close(tree)

    assert not ran.exists()
    assert kept
    assert (inner / "it").exists()


@realtime
async def test_work_in_a_submodule_alone_is_kept(repo: Path, trees: Worktrees) -> None:
    """Git is not asked about it, since it would obey the settings there."""
    head = git(repo, "rev-parse", "HEAD").strip()
    git(repo, "update-index", "--add", "--cacheinfo", f"160000,{head},inner")
    git(repo, "commit", "--quiet", "-m", "inner")
    unchanged = await trees.open(repo, name="t1")
    tree = await trees.open(repo, name="t2")
    git(tree.path, "clone", "--quiet", str(repo), "inner")
    (tree.path / "inner" / "new").write_text("work")
    git(tree.path / "inner", "checkout", "--quiet", head)

    assert await trees.close(unchanged) == ""
    assert "1 submodule that git is told not to look at" in await trees.close(tree)


@realtime
async def test_a_folder_that_imitates_a_repository_is_refused(
    repo: Path, trees: Worktrees, tmp_path: Path
) -> None:
    """It came with an innocent project, and its settings name a command."""
    ran = tmp_path / "ran"
    fake = tmp_path / "project" / "fixtures"
    git(tmp_path, "clone", "--quiet", "--bare", str(repo), str(fake))
    git(fake, "config", "core.bare", "false")
    git(fake, "config", "core.worktree", str(repo))
    git(fake, "config", "filter.x.smudge", f"touch {ran}; cat")

    with pytest.raises(WorktreeError):
        await trees.open(fake, name="t1")

    assert not ran.exists()


async def no_repository(repo: Path, trees: Worktrees) -> None:
    await trees.open(repo.parent, name="t1")


async def no_workspace(repo: Path, trees: Worktrees) -> None:
    await trees.open(repo / "nowhere", name="t1")


async def no_commit(repo: Path, trees: Worktrees) -> None:
    git(repo.parent, "init", "--quiet", "unborn")
    await trees.open(repo.parent / "unborn", name="t1")


async def no_files_at_all(repo: Path, trees: Worktrees) -> None:
    git(repo.parent, "clone", "--quiet", "--bare", "repo", "bare")
    await trees.open(repo.parent / "bare", name="t1")


async def the_git_folder(repo: Path, trees: Worktrees) -> None:
    await trees.open(repo / ".git", name="t1")


async def a_file_for_a_folder(repo: Path, trees: Worktrees) -> None:
    (repo.parent / "trees").touch()
    await trees.open(repo, name="t1")


async def a_taken_place(repo: Path, trees: Worktrees) -> None:
    (repo.parent / "trees" / "t1").mkdir(parents=True)
    mine = repo.parent / "trees" / "t1" / "mine"
    mine.touch()
    try:
        await trees.open(repo, name="t1")
    finally:
        assert mine.exists()


async def a_branch_in_use(repo: Path, trees: Worktrees) -> None:
    git(repo, "worktree", "add", "-b", "orchestrator/t1", "../elsewhere")
    await trees.open(repo, name="t1")


async def a_branch_of_somebody(repo: Path, trees: Worktrees) -> None:
    git(repo, "branch", "orchestrator/t1")
    await trees.open(repo, name="t1")


async def a_branch_in_the_way(repo: Path, trees: Worktrees) -> None:
    git(repo, "branch", "orchestrator")
    await trees.open(repo, name="t1")


async def a_lost_note(repo: Path, trees: Worktrees) -> None:
    await trees.open(repo, name="t1")
    git(repo, "update-ref", "-d", f"{NOTES}/base/t1")
    await trees.open(repo, name="t1")


async def a_locked_one_without_its_folder(repo: Path, trees: Worktrees) -> None:
    tree = await trees.open(repo, name="t1")
    git(repo, "worktree", "lock", str(tree.path))
    shutil.rmtree(tree.path)
    await trees.open(repo, name="t1")


@realtime
@pytest.mark.parametrize(
    ("attempt", "said"),
    [
        (no_repository, "is in no git repository.* run `git init` there and commit"),
        (no_workspace, "git cannot look at .*nowhere"),
        (no_commit, "no commit that a worktree could be made from; commit something"),
        (no_files_at_all, "bare has no files .* work in a clone of it"),
        (the_git_folder, "the inside of a .git folder"),
        (a_file_for_a_folder, "trees'; make .*trees one that can be written to"),
        (a_taken_place, "t1' already exists"),
        (a_branch_in_use, "is checked out in .*elsewhere already; remove that worktree"),
        (a_branch_of_somebody, "there is a branch orchestrator/t1 already.*rename it"),
        (a_branch_in_the_way, "'refs/heads/orchestrator' exists; cannot create"),
        (a_lost_note, "the base of the worktree .* is unknown"),
        (a_locked_one_without_its_folder, "is locked and its folder is not there"),
    ],
)
async def test_a_task_without_a_worktree_fails_with_the_reason(
    repo: Path, trees: Worktrees, attempt: Attempt, said: str
) -> None:
    """The task fails with it, and no file is changed."""
    with pytest.raises(AgentError, match=said):
        await attempt(repo, trees)

    assert git(repo, "status", "--porcelain") == ""


@realtime
@pytest.mark.skipif(os.getuid() != 0, reason="makes a folder of another user")
async def test_a_folder_of_another_user_gets_no_worktrees(
    trees: Worktrees, repo: Path, tmp_path: Path
) -> None:
    (tmp_path / "trees").mkdir(mode=0o777)
    os.chown(tmp_path / "trees", 65_534, 65_534)

    with pytest.raises(WorktreeError, match="another user"):
        await trees.open(repo, name="t1")


@pytest.mark.parametrize("name", ["", "a/b", "..", "-f", "a..b", "a.lock", "a.", "ä"])
async def test_a_name_must_be_one_for_a_folder_and_for_a_branch(
    trees: Worktrees, tmp_path: Path, name: str
) -> None:
    with pytest.raises(WorktreeError, match="cannot be the name of a worktree"):
        await trees.open(tmp_path, name=name)


async def test_a_worktree_needs_git(tmp_path: Path) -> None:
    trees = Worktrees(tmp_path / "trees", {"PATH": str(tmp_path)}, sandbox())

    with pytest.raises(GitError, match=r"git cannot be run: .*needs git 2.34 or later"):
        await trees.open(tmp_path, name="t1")


def stubborn(tmp_path: Path) -> Mapping[str, str]:
    """Return an environment with a git that never answers, and does not want to end."""
    (tmp_path / "git").write_text("#!/bin/sh\ntrap '' TERM\nsleep 600\n")
    (tmp_path / "git").chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def run_fast(work: Callable[[], Awaitable[None]]) -> None:
    """Run what waits for a time limit and a real process, which a jumping clock outruns."""
    trio.run(work, clock=MockClock(rate=60))


def test_a_hanging_git_is_given_up(tmp_path: Path) -> None:
    trees = Worktrees(tmp_path / "trees", stubborn(tmp_path), sandbox())

    async def attempt() -> None:
        with pytest.raises(GitError, match="git has not answered within 30 seconds"):
            await trees.open(tmp_path, name="t1")

    run_fast(attempt)


@pytest.mark.memory_only
def test_closing_a_worktree_ends_at_its_time_limit(tmp_path: Path) -> None:
    trees = Worktrees(tmp_path / "trees", stubborn(tmp_path), sandbox())
    tree = Worktree(
        path=tmp_path,
        workspace=tmp_path,
        branch="orchestrator/t1",
        base="0" * 40,
        repository=tmp_path,
        git_folder=tmp_path,
    )

    async def attempt() -> None:
        # A minute of real time, for a busy machine. The git of this test sleeps ten minutes.
        with trio.fail_after(3600):
            kept = await trees.close(tree)
        assert kept.endswith("could not be found out: it takes too long")

    run_fast(attempt)
