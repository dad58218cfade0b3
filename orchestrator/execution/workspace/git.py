"""Git, for the house: run as a program, for a bounded time, and what it knows of worktrees.

A task may write what it likes in its working tree, also over the file `.git` there, which tells git
where its settings are, and settings name commands that git runs. So git is told where the
repository is, and never asks a working tree. No hook runs, and the environment leads nowhere else.
"""

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import attrs
import trio

from agents import AgentError

GIT_SECONDS: Final = 30
"""How long git may take for what is quick."""
GRACE_SECONDS: Final = 2
"""How long git may tidy up after itself when it is to stop."""
HALF_MADE: Final = "being made by the orchestrator"
"""Why a worktree is locked that was never handed out: there can be no work in it."""
_MARKS: Final = frozenset({HALF_MADE, "initializing"})  # the latter is what git says
_KEPT: Final = frozenset(
    {
        "GIT_CEILING_DIRECTORIES",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_NOSYSTEM",
        "GIT_CONFIG_SYSTEM",
        "GIT_DISCOVERY_ACROSS_FILESYSTEM",
        "GIT_EXEC_PATH",
        "GIT_SSH",
        "GIT_SSH_COMMAND",
    }
)
"""What may be said to git by the environment. Anything else could lead it elsewhere."""
_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    # Whether a file has changed is looked at, not remembered or guessed.
    "core.untrackedCache=false",
    "core.ignoreStat=false",
    "core.trustctime=true",
    "core.checkStat=default",
    # Others may work in the same repository, and hold its locks for a moment.
    "core.filesRefLockTimeout=5000",
    "core.packedRefsTimeout=5000",
    "worktree.useRelativePaths=false",
)


class GitError(AgentError):
    """Git could not do what a task needs."""


class Git:
    """The program, in an environment in which nothing leads it astray."""

    def __init__(self, environ: Mapping[str, str], holds: Sequence[int] = ()) -> None:
        self._environ = {
            **{
                key: value
                for key, value in environ.items()
                if key in _KEPT or not key.startswith("GIT_")
            },
            "LC_ALL": "C",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
        }
        self._holds = holds

    def with_descriptor(self, descriptor: int) -> "Git":
        """Return one that keeps something open for as long as it runs, also without us."""
        return Git(self._environ, (descriptor,))

    async def run_in_repository(
        self, repository: Path, *args: str, stdin: str = ""
    ) -> str:
        """Return what git answers about a repository, wherever its files are."""
        at = ("-C", str(repository), f"--git-dir={repository}")
        return _checked(args[0], await self.run(*at, *args, stdin=stdin))

    async def run_in_worktree(
        self, path: Path, git_folder: Path, *args: str, seconds: float = GIT_SECONDS
    ) -> str:
        """Return what git answers about the files of a worktree.

        Args:
            path: where they are.
            git_folder: what git keeps of them, whatever they say themselves.
            args: what it is asked.
            seconds: how long it may take.
        """
        at = ("-C", str(path), f"--git-dir={git_folder}", f"--work-tree={path}")
        return _checked(args[0], await self.run(*at, *args, seconds=seconds))

    async def run(
        self, *args: str, stdin: str = "", seconds: float = GIT_SECONDS
    ) -> tuple[int, str, str]:
        """Return how git ended, what it answered, and what it said besides."""
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        try:
            with trio.fail_after(seconds):
                done = await trio.run_process(
                    ["git", *settings, *args],
                    stdin=stdin.encode(),
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                    env=self._environ,
                    pass_fds=self._holds,
                    start_new_session=True,  # one group with its own children, and no terminal
                    deliver_cancel=_stop_group,
                )
        except OSError as exc:
            raise GitError(
                f"git cannot be run: {exc}; a worktree needs git 2.34 or later in the PATH"
            ) from exc
        except trio.TooSlowError as exc:
            raise GitError(f"git has not answered within {seconds:g} seconds") from exc
        said = " ".join(os.fsdecode(done.stderr).split())
        return done.returncode, os.fsdecode(done.stdout), said[-500:]


async def _stop_group(process: trio.Process) -> None:
    """Stop git, and when it has ended or will not, whatever it has started."""
    try:
        _signal_group(process, signal.SIGTERM)
        await trio.sleep(GRACE_SECONDS)
    finally:
        _signal_group(process, signal.SIGKILL)


def _signal_group(process: trio.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _checked(command: str, done: tuple[int, str, str]) -> str:
    code, out, said = done
    if code:
        raise GitError(f"git {command}: {said or f'it ended with {code}'}")
    return out


@attrs.frozen
class RegisteredWorktree:
    """A worktree that a repository knows of."""

    path: Path
    branch: str
    """As a whole ref, and nothing if it has none checked out."""
    locked: str
    """Why nobody may remove it, and nothing if anybody may."""


async def git_folder_of(path: Path, repository: Path) -> Path:
    """Return what git keeps of a worktree, without asking the worktree."""
    found = await trio.to_thread.run_sync(_find_git_folder, path, repository)
    if found is None:
        raise GitError(
            f"{repository} does not know the worktree {path} any more; try it again, or mend it:"
            f" git worktree repair {path}"
        )
    return found


def remove_worktree(path: Path, repository: Path, *, only_half_made: bool) -> None:
    """Remove a worktree and what git keeps of it, whatever is in it.

    Git does that too, but not if it was stopped while it wrote what it keeps.
    """
    folder = _find_git_folder(path, repository)
    if folder is not None and not (only_half_made and _locked(folder) not in _MARKS):
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
        # Last: until then, the mark says that this is not finished.
        shutil.rmtree(folder)


def _find_git_folder(path: Path, repository: Path) -> Path | None:
    for entry in (repository / "worktrees").glob("*/gitdir"):
        with suppress(OSError):
            if os.fsdecode(entry.read_bytes().rstrip(b"\n")) == f"{path}/.git":
                return entry.parent
    return None


def _locked(git_folder: Path) -> str:
    try:
        return os.fsdecode((git_folder / "locked").read_bytes().strip())
    except FileNotFoundError:
        return ""


def parse_worktrees(listed: str) -> list[RegisteredWorktree]:
    """Read what `git worktree list --porcelain` says."""
    found: list[RegisteredWorktree] = []
    for block in listed.split("\n\n"):
        lines = block.split("\n")
        if path := _after("worktree ", lines):
            # Locked without a reason is locked.
            locked = _after("locked ", lines) or ("locked" in lines) * "somebody"
            found.append(
                RegisteredWorktree(Path(path), _after("branch ", lines), locked)
            )
    return found


def _after(start: str, lines: Sequence[str]) -> str:
    return next((line[len(start) :] for line in lines if line.startswith(start)), "")


async def unsaved_work(
    git: Git, path: Path, git_folder: Path, *, branch: str, base: str
) -> Sequence[str]:
    """Return what there is to lose, or nothing if there is proof that nothing is."""
    look = "status --porcelain=v2 --branch -z --no-renames"
    all_of_it = (
        "--untracked-files=all",
        "--ignored=no",
        "--ignore-submodules=none",
    )
    status = await git.run_in_worktree(path, git_folder, *look.split(), *all_of_it)
    lines = status.split("\0")
    head = _after("# branch.oid ", lines)
    checked_out = _after("# branch.head ", lines)
    changed = sum(line.startswith(("1 ", "2 ", "u ")) for line in lines)
    new = sum(line.startswith("? ") for line in lines)
    work: list[str] = []
    if head != base:
        beyond = f"{base}..{head}"
        out = await git.run_in_worktree(path, git_folder, "rev-list", "--count", beyond)
        work.append(_count(int(out), "commit"))
    if checked_out != branch:
        work.append(f"{checked_out} is checked out instead of its branch")
    if changed:
        work.append(_count(changed, "changed file"))
    if new:
        work.append(_count(new, "new file"))
    if not work:
        # Git does not look at files of which it was told that they never change.
        out = await git.run_in_worktree(path, git_folder, "ls-files", "-v", "-z")
        unseen = await trio.to_thread.run_sync(_unseen, path, out)
        if unseen:
            work.append(f"{_count(unseen, 'file')} that git is told not to look at")
    return work


def _unseen(path: Path, listed: str) -> int:
    """Return how many files git takes for unchanged without looking."""
    count = 0
    for line in listed.split("\0"):
        tag, _, file = line.partition(" ")
        # In a sparse checkout most files are skipped, and are not there.
        is_skipped = tag == "S" and os.path.lexists(path / file)
        count += tag.islower() or is_skipped
    return count


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
