"""Git: runs it for a bounded time, and reads the worktrees of a repository.

A task may write anything in its working tree, also over the file `.git` there, which names the
settings of git, and settings name commands that git runs. So every call passes the repository, and
git never asks a working tree. No hook and no filter runs, whatever the settings of the repository
say; nothing is fetched; and no variable of the environment leads elsewhere. These are fences: a
command may add a filter after they were listed. The wall is the sandbox that git itself runs in.
"""

import os
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import DEVNULL
from typing import Final

import attrs
import trio

from orchestrator.agents import AgentError, Sandbox
from orchestrator.agents.sandbox.backend import Launch
from orchestrator.agents.sandbox.limits import SHELL
from orchestrator.agents.sandbox.own_process import forbid_inspection
from orchestrator.agents.sandbox.program_path import program_path
from orchestrator.agents.sandbox.unconfined import UNCONFINED
from orchestrator.agents.tools.terminal.process_tags import kill_tagged, new_tag, with_tag
from orchestrator.kernel.execution.program_sandbox import ProgramSandbox

GIT_SECONDS: Final = 30
"""The seconds that a quick git command may take."""
GRACE_SECONDS: Final = 2
"""How long git may clean up when it is stopped."""
HALF_MADE: Final = "being made by the orchestrator"
"""The lock reason of a worktree that no task has had: there can be no work in it."""
_HALF_MADE_REASONS: Final = frozenset({HALF_MADE, "initializing"})  # the latter is git's own
_ALLOWED_VARIABLES: Final = frozenset(
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
"""The variables that git may have. Any other could lead it elsewhere."""
_SETTINGS: Final = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    # Whether a file has changed is checked, not cached or guessed.
    "core.untrackedCache=false",
    "core.ignoreStat=false",
    "core.trustctime=true",
    "core.checkStat=default",
    # Other programs may work in the same repository, and hold its locks for a moment.
    "core.filesRefLockTimeout=5000",
    "core.packedRefsTimeout=5000",
    "worktree.useRelativePaths=false",
    # A folder with the files of a bare repository may be part of any project.
    "safe.bareRepository=explicit",
)
_START: Final = Path("/")
"""The folder that git starts in: each call names the folder that it is for."""
# The shell waits for git, and its own stdin is the lock. The sandboxed process does not get the
# lock: through the descriptor of a folder outside, it would reach all files there.
_HOLDING: Final = 'input=$1; shift; printf %s "$input" | "$@"; exit $?'
_LONGEST_LINE: Final = 1 << 16
_FILTER: Final = ("clean", "smudge", "process")
"""The commands of a filter, which git runs on files as it reads and writes them."""
_SUBMODULE: Final = "160000 "
"""The mode of a submodule in the index."""


EMPTY: Final[Mapping[str, str]] = {}


class GitError(AgentError):
    """Git failed at an operation that a task needs."""


class Git:
    """The program, in a sandbox of its own and an environment that names no other repository."""

    def __init__(
        self, environ: Mapping[str, str], sandbox: ProgramSandbox, hold: int | None = None
    ) -> None:
        """Run nothing yet; `hold` stays open until git has ended, also if this process dies."""
        self._environ = {
            **{
                key: value
                for key, value in environ.items()
                if key in _ALLOWED_VARIABLES or not key.startswith("GIT_")
            },
            "LC_ALL": "C",
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            # A remote that lacks an object may name a command to fetch it with.
            "GIT_ALLOW_PROTOCOL": "",
        }
        self._sandbox = sandbox
        self._hold = hold

    def with_descriptor(self, descriptor: int) -> "Git":
        """Return one that keeps a descriptor: its lock is held even if this process dies."""
        return Git(self._environ, self._sandbox, descriptor)

    async def on_repository(self, repository: Path) -> "GitOn":
        """Return git on a repository, without the filters of its settings."""
        folders = GitFolders(visible=(repository,))
        return await self._on(_at_repository(repository), folders)

    async def on_worktree(self, path: Path, git_folder: Path, repository: Path) -> "GitOn":
        """Return git on the files of a worktree, without the filters of its settings.

        `git_folder` is its folder in the repository: the file `.git` in the worktree is not
        trusted.
        """
        at = ("-C", str(path), f"--git-dir={git_folder}", f"--work-tree={path}")
        # A worktree is in the state folder, which is hidden except for writable folders.
        return await self._on(at, GitFolders(write=(path,), visible=(repository,)))

    async def _on(self, at: Sequence[str], folders: "GitFolders") -> "GitOn":
        listed = await self.run(*at, "config", "--list", "--name-only", "-z", folders=folders)
        settings = _no_filters(_checked("config", listed).split("\0"))
        return GitOn(git=self, at=at, settings=settings, folders=folders)

    async def run(
        self,
        *args: str,
        folders: "GitFolders",
        stdin: str = "",
        seconds: float = GIT_SECONDS,
        settings: Mapping[str, str] = EMPTY,
    ) -> tuple[int, str, str]:
        """Return the exit code of git, its output, and its errors.

        It may write and see `folders`. Its settings override the repository's own.
        """
        own = [part for setting in _SETTINGS for part in ("-c", setting)]
        tag = new_tag()
        environ = with_tag({**self._environ, **_as_environment(settings)}, tag)
        forbid_inspection()
        try:
            program = program_path("git", environ=environ, cwd=_START)
            place = await self._sandbox.around(
                Sandbox(),
                write=folders.write,
                visible=(*folders.visible, Path(program)),
                protected=folders.protected,
            )
            argv = [program, *own, *args]
            launch = Launch(argv=argv, environ=environ)
            # Without a backend the overrides are all there is: limits hold no filter.
            if place.backend is not UNCONFINED:
                launch = place.launch(argv, cwd=_START, environ=environ)
            try:
                with trio.fail_after(seconds):
                    done = await trio.run_process(
                        [SHELL, "-c", _HOLDING, SHELL, stdin, *launch.argv],
                        stdin=DEVNULL if self._hold is None else self._hold,
                        capture_stdout=True,
                        capture_stderr=True,
                        check=False,
                        cwd=_START,
                        env=launch.environ,
                        pass_fds=launch.pass_fds,
                        start_new_session=True,  # one group with its own children, and no terminal
                        deliver_cancel=_stop_group,
                    )
            finally:
                for file in launch.pass_fds:
                    os.close(file)
                # A filter that ran all the same may have left its group.
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(kill_tagged, tag)
        except OSError as exc:
            raise GitError(
                f"git cannot be run: {exc}; a worktree needs git 2.34 or later in the PATH"
            ) from exc
        except trio.TooSlowError as exc:
            raise GitError(f"git has not answered within {seconds:g} seconds") from exc
        errors = " ".join(os.fsdecode(done.stderr).split())
        return done.returncode, os.fsdecode(done.stdout), errors[-500:]


@attrs.frozen(kw_only=True)
class GitFolders:
    """The folders that one call of git may touch, besides those that commands of agents read."""

    write: tuple[Path, ...] = ()
    visible: tuple[Path, ...] = ()
    """Read wherever it is, as in a temporary folder."""
    protected: tuple[Path, ...] = ()
    """Not written, though it is in a folder that can be."""


@attrs.frozen(kw_only=True)
class GitOn:
    """Git on one repository or worktree, without the filters that it had when it was opened."""

    git: Git
    at: Sequence[str]
    settings: Mapping[str, str]
    folders: GitFolders

    def at_repository(self, repository: Path) -> "GitOn":
        """Return git on the repository of a worktree that is gone by now."""
        folders = GitFolders(visible=(repository,))
        return attrs.evolve(self, at=_at_repository(repository), folders=folders)

    async def run(
        self,
        *args: str,
        write: Sequence[Path] = (),
        protected: Sequence[Path] = (),
        stdin: str = "",
        seconds: float = GIT_SECONDS,
    ) -> str:
        """Run git, and return its output; it also writes `write`, but not `protected`."""
        folders = attrs.evolve(
            self.folders, write=(*self.folders.write, *write), protected=tuple(protected)
        )
        done = await self.git.run(
            *self.at, *args, folders=folders, stdin=stdin, seconds=seconds, settings=self.settings
        )
        return _checked(args[0], done)


def _at_repository(repository: Path) -> Sequence[str]:
    return ("-C", str(repository), f"--git-dir={repository}")


def _no_filters(names: Iterable[str]) -> Mapping[str, str]:
    """Return settings that disable the filters among these names of settings."""
    drivers = {name.rpartition(".")[0] for name in names if name.lower().startswith("filter.")}
    return {
        f"{driver}.{part}": "false" if part == "required" else ""
        for driver in drivers
        for part in (*_FILTER, "required")
    }


def _as_environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Return settings as variables: a name may have any character in it, also `=`."""
    pairs = [*settings.items()]
    environ = {"GIT_CONFIG_COUNT": str(len(pairs))}
    for number, (name, value) in enumerate(pairs):
        environ[f"GIT_CONFIG_KEY_{number}"] = name
        environ[f"GIT_CONFIG_VALUE_{number}"] = value
    return environ


async def _stop_group(process: trio.Process) -> None:
    """Terminate git, then kill all that it has started."""
    try:
        _signal_group(process, signal.SIGTERM)
        await trio.sleep(GRACE_SECONDS)
    finally:
        _signal_group(process, signal.SIGKILL)


def _signal_group(process: trio.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _checked(command: str, done: tuple[int, str, str]) -> str:
    code, out, errors = done
    if code:
        raise GitError(f"git {command}: {errors or f'it ended with {code}'}")
    return out


@attrs.frozen
class RegisteredWorktree:
    """A worktree that a repository knows of."""

    path: Path
    branch: str
    """A full ref; empty without a branch."""
    locked: str
    """The reason of its lock; empty if it is not locked."""


async def git_folder_of(path: Path, repository: Path) -> Path:
    """Return the folder of a worktree in its repository, without asking the worktree."""
    found = await trio.to_thread.run_sync(_find_git_folder, path, repository)
    if found is None:
        raise GitError(
            f"{repository} does not know the worktree {path} any more; try it again, or mend it:"
            f" git worktree repair {path}"
        )
    return found


def is_intact(path: Path, git_folder: Path) -> bool:
    """Return whether a worktree is the one that git has made, and no lock keeps it.

    A task may have put another repository in its place, with commits of its own.
    """
    try:
        named = _first_line(path / ".git")
    except OSError:
        return False
    is_locked = (git_folder / "locked").exists()  # a lock may have no reason
    return named == f"gitdir: {git_folder}" and not is_locked


def repository_around(workspace: Path) -> tuple[Path, ...]:
    """Return the folders that git searches for the repository of a workspace.

    An agent may have written the file `.git`, so it must lead to a git folder.
    """
    for top in (workspace, *workspace.parents):
        if not os.path.lexists(top / ".git"):
            continue
        found = [top, Path(os.path.realpath(top / ".git"))]
        with suppress(OSError, ValueError):
            if found[-1].is_file():
                named = _first_line(top / ".git").removeprefix("gitdir: ")
                found.append(Path(os.path.realpath(top / named)))
            shared = _first_line(found[-1] / "commondir")
            found.append(Path(os.path.realpath(found[-1] / shared)))
        return (top, *(it for it in found if (it / "HEAD").is_file()))
    return (workspace,)


def _first_line(file: Path) -> str:
    # An agent may have made it a pipe, or a link.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags), "rb") as content:
        return os.fsdecode(content.readline(_LONGEST_LINE).rstrip(b"\n"))


def remove_worktree(path: Path, repository: Path, *, only_half_made: bool) -> None:
    """Remove a worktree and its folder in the repository, whatever is in it.

    Git does that too, but not if it was stopped while it wrote that folder; and before it does,
    it looks at the files once more, and at submodules with their own settings.
    """
    folder = _find_git_folder(path, repository)
    if folder is not None and not (only_half_made and _locked(folder) not in _HALF_MADE_REASONS):
        with suppress(FileNotFoundError):
            shutil.rmtree(path)
        # Last: until then, the lock says that this is not finished.
        _remove_unlinked(folder)
        with suppress(OSError):
            folder.parent.rmdir()  # as git does, after the last one


def _remove_unlinked(folder: Path) -> None:
    """Remove a folder of a repository: a command may put a link in place of one above it."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    above = os.open(folder.anchor, flags)
    try:
        for name in folder.parent.parts[1:]:
            below = os.open(name, flags, dir_fd=above)
            os.close(above)
            above = below
        shutil.rmtree(folder.name, dir_fd=above)
    finally:
        os.close(above)


def _find_git_folder(path: Path, repository: Path) -> Path | None:
    for entry in (repository / "worktrees").glob("*/gitdir"):
        with suppress(OSError):
            # Later versions of git may write a relative path.
            named = entry.parent / _first_line(entry)
            if os.path.normpath(named) == f"{path}/.git":
                return entry.parent
    return None


def _locked(git_folder: Path) -> str:
    try:
        return _first_line(git_folder / "locked").strip()
    except FileNotFoundError:
        return ""


def parse_worktrees(listed: str) -> list[RegisteredWorktree]:
    """Parse the output of `git worktree list --porcelain`."""
    found: list[RegisteredWorktree] = []
    for block in listed.split("\n\n"):
        lines = block.split("\n")
        if path := _after("worktree ", lines):
            # Locked without a reason is locked.
            locked = _after("locked ", lines) or ("locked" in lines) * "no reason given"
            found.append(RegisteredWorktree(Path(path), _after("branch ", lines), locked))
    return found


def _after(start: str, lines: Sequence[str]) -> str:
    return next((line[len(start) :] for line in lines if line.startswith(start)), "")


async def unsaved_work(git: GitOn, path: Path, *, branch: str, base: str) -> Sequence[str]:
    """Describe the work in a worktree; empty only if it provably has no work."""
    look = "status --porcelain=v2 --branch -z --no-renames"
    all_of_it = (
        "--untracked-files=all",
        "--ignored=no",
        # In a submodule git obeys the settings of that one, which may name commands.
        "--ignore-submodules=dirty",
    )
    status = await git.run(*look.split(), *all_of_it)
    lines = status.split("\0")
    head = _after("# branch.oid ", lines)
    checked_out = _after("# branch.head ", lines)
    changed = sum(line.startswith(("1 ", "2 ", "u ")) for line in lines)
    new = sum(line.startswith("? ") for line in lines)
    work: list[str] = []
    if head != base:
        beyond = f"{base}..{head}"
        out = await git.run("rev-list", "--count", beyond)
        work.append(_count(int(out), "commit"))
    if checked_out != branch:
        work.append(f"{checked_out} is checked out instead of its branch")
    if changed:
        work.append(_count(changed, "changed file"))
    if new:
        work.append(_count(new, "new file"))
    if not work:
        # Git does not look at files that are marked as never changing.
        listing = ("ls-files", "-v", "--stage", "-z")
        out = await git.run(*listing)
        unseen = await trio.to_thread.run_sync(_unseen, path, out)
        work += [
            f"{_count(count, what)} that git is told not to look at"
            for what, count in unseen.items()
            if count
        ]
    return work


def _unseen(path: Path, listed: str) -> Mapping[str, int]:
    """Count the files and submodules that git takes for unchanged without looking."""
    count = {"file": 0, "submodule": 0}
    for line in listed.split("\0"):
        about, _, file = line.partition("\t")
        tag, _, entry = about.partition(" ")
        # In a sparse checkout most files are skipped, and are not there.
        is_skipped = tag == "S" and os.path.lexists(path / file)
        count["file"] += tag.islower() or is_skipped
        # The submodule folder of a new worktree is empty.
        if entry.startswith(_SUBMODULE) and _has_entries(path / file):
            count["submodule"] += 1
    return count


def _has_entries(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(entries)
    except OSError:
        return False


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
