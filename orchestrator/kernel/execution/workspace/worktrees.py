"""Git worktrees of tasks: made from HEAD, removed only when proven clean.

A half-made worktree is locked with our reason from its first moment on. After a crash it is made
again, when no git of the earlier process works in it any more. A worktree that a task has used is
never made again, and a ref keeps its base commit, even if its folder is gone. A worktree that
cannot be inspected is kept: no work of a task is lost for tidiness.
"""

import fcntl
import os
import re
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from orchestrator.agents import AgentError, well_formed
from orchestrator.agents.sandbox.sensitive_paths import git_folder_of_worktree
from orchestrator.kernel import private_files
from orchestrator.kernel.execution.program_sandbox import ProgramSandbox
from orchestrator.kernel.execution.workspace.git import (
    HALF_MADE,
    Git,
    GitFolders,
    GitOn,
    git_folder_of,
    is_intact,
    parse_worktrees,
    remove_worktree,
    repository_around,
    unsaved_work,
)

CHECKOUT_SECONDS: Final = 600
LOCK_ATTEMPTS: Final = 600
LOCK_RETRY_SECONDS: Final = 0.05
CLOSE_SECONDS: Final = 15
"""How long it may take to inspect and remove a worktree, or to undo a half-made one."""
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.|lock$|$))*")


class WorktreeError(AgentError):
    """A task cannot have a worktree, and so cannot begin."""


@attrs.frozen(kw_only=True)
class Worktree:
    """The worktree of one task."""

    path: Path
    workspace: Path
    """The folder that the task works in: the copy in `path` of its workspace in the repository."""
    branch: str
    base: str
    """The commit that it was made from, the first time."""
    repository: Path
    """The git folder that all worktrees of the repository share."""
    git_folder: Path
    """The folder of git's own files for this worktree."""


@attrs.frozen
class _Source:
    repository: Path
    top: Path
    prefix: str
    head: str


class Worktrees:
    """Opens and closes worktrees in one folder, for one process."""

    def __init__(self, folder: Path, environ: Mapping[str, str], sandbox: ProgramSandbox) -> None:
        """Open nothing yet; `sandbox` makes the sandboxes that git runs in."""
        self._folder = folder
        self._git = Git(environ, sandbox)
        self._locks: dict[Path, trio.Lock] = {}
        """One for each repository, which one git at a time may change, and for each path."""

    async def open(self, workspace: Path, *, name: str) -> Worktree:
        """Return the worktree with a name; if it does not exist, make it from HEAD.

        It contains only committed files of the workspace.

        Raises:
            WorktreeError: the workspace cannot have a worktree.
            GitError: git cannot make it.
        """
        if not _NAME.fullmatch(name):
            raise WorktreeError(
                f"{name!r} cannot be the name of a worktree: letters, digits, '-', '_' and single"
                " dots can be in it, a letter or digit first, and no '.lock' at its end"
            )
        source = await self._look_at(workspace)
        path = await self._prepare(source, name)
        ref, note = _refs_of(path)
        async with self._lock_folder(path) as git:
            async with self._lock(source.repository):
                await _remove_worktree(path, source.repository, only_half_made=True)
                at = await git.on_repository(source.repository)
                exists = await _find(at, source.repository, path)
                refs = await _read_refs(at, ref, note)
            if exists and note not in refs:
                raise WorktreeError(
                    f"the base of the worktree {path} is unknown, because the ref {note} is gone;"
                    f" check the worktree for work, and remove it: git worktree remove {path}"
                )
            if exists:
                found = await _described(source, path, refs[note])
                await _make_folder(path, found.workspace)
                return found
        async with self._lock_folder(path, make=True) as git:
            return await self._make(git, at, source, path, refs)

    async def close(self, worktree: Worktree) -> str:
        """Remove a worktree that has no work in it, or return why it is kept.

        Work is a commit, a change, a new file that is not ignored, or another branch checked out.
        Ignored files can be made again, and do not count.
        """
        path, repository = worktree.path, worktree.repository
        where = f"the worktree {path} (branch {worktree.branch})"
        doubt = "is kept, for whether there is work in it could not be found out"
        try:
            with trio.fail_after(CLOSE_SECONDS):
                async with self._lock_folder(path) as git:
                    at = await git.on_worktree(path, worktree.git_folder, repository)
                    work = await unsaved_work(at, path, branch=worktree.branch, base=worktree.base)
                    if work:
                        return well_formed(f"{where} is kept: {', '.join(work)}")
                    doubt = "has no work in it, and could not be removed altogether"
                    # No `await` between the look and the removal.
                    await _remove_files(path, worktree.git_folder)
                    async with self._lock(repository):
                        await _remove_worktree(path, repository, only_half_made=False)
                        at = at.at_repository(repository)
                        await _drop(at, repository, path, worktree.base)
        except (AgentError, trio.TooSlowError) as exc:
            why = "it takes too long" if isinstance(exc, trio.TooSlowError) else exc
            return well_formed(f"{where} {doubt}: {why}")  # noqa: ASYNC910 (it has waited)
        return ""

    async def _look_at(self, workspace: Path) -> _Source:
        asked = "--is-inside-work-tree --git-common-dir --show-toplevel --show-prefix"
        code, out, errors = await self._git.run(
            *("-C", str(workspace), "rev-parse", "--path-format=absolute"),
            *(*asked.split(), "HEAD^{commit}", "--"),
            folders=GitFolders(visible=repository_around(workspace)),
        )
        otherwise = "or give its agent another workspace than 'worktree'"
        match out.split("\n"):
            case ["true", repository, top, prefix, head, "--", ""]:
                source = _Source(Path(repository), Path(top), prefix, head)
                await self._require_own(source)
                return source
            case ["true", _, top, _, ""] if code:
                raise WorktreeError(
                    f"the repository {top} has no commit that a worktree could be made from;"
                    f" commit something first, {otherwise}"
                )
            case _ if out.startswith("false\n") or "bare repository" in errors:
                raise WorktreeError(
                    f"{workspace} has no files of a repository: it is bare, or that is the"
                    f" inside of a .git folder; work in a clone of it, {otherwise}"
                )
            case _ if "not a git repository" in errors:
                raise WorktreeError(
                    f"{workspace} is in no git repository, so no worktree can be made of it;"
                    f" run `git init` there and commit, {otherwise}"
                )
            case _:
                raise WorktreeError(f"git cannot look at {workspace}: {errors or out}")

    async def _require_own(self, source: _Source) -> None:
        """Raise if a repository elsewhere does not know the folder that leads to it.

        An agent may have made the file or link `.git`, and the repository of a worktree is
        written.
        """
        await trio.lowlevel.checkpoint()
        repository, top = source.repository, source.top
        linked = git_folder_of_worktree(top)
        if repository.is_relative_to(top) or (
            linked is not None and linked.parent.parent == repository
        ):
            return
        at = await self._git.on_repository(repository)
        # Submodules have it.
        named = await at.run("config", "--default", "", "--get", "core.worktree")
        if not named or (repository / named.rstrip("\n")).resolve() != top.resolve():
            raise WorktreeError(
                f"{top / '.git'} leads to the repository {repository}, which does not name {top}:"
                " an agent may have made that. If it is meant, say so there:"
                f" git --git-dir={repository} config core.worktree {top}"
            )

    async def _prepare(self, source: _Source, name: str) -> Path:
        def prepare() -> Path:
            private_files.make_private_folder(self._folder)
            # Raises, with its path, if it is no folder.
            os.scandir(self._folder).close()
            if private_files.foreign_link(self._folder) or private_files.foreign_owner(
                self._folder.stat()
            ):
                raise PermissionError(f"{self._folder} is another user's")
            folder = self._folder.resolve()
            # Inside a working tree of the user, it must not look like a change.
            if folder.is_relative_to(source.top) and not any(folder.iterdir()):
                (folder / ".gitignore").write_text("*\n")
            return folder / name

        try:
            return await trio.to_thread.run_sync(prepare)
        except OSError as exc:
            raise WorktreeError(
                f"there is no folder for worktrees: {exc}; make {self._folder} one that can be"
                " written to"
            ) from exc

    async def _make(
        self, git: Git, at: GitOn, source: _Source, path: Path, refs: Mapping[str, str]
    ) -> Worktree:
        repository = source.repository
        at = attrs.evolve(at, git=git)
        ref, note = _refs_of(path)
        branch = _short(ref)
        if ref in refs and note not in refs:
            raise WorktreeError(
                f"there is a branch {branch} already, and it was not made for a worktree of the"
                f" orchestrator; rename it: git branch -m {branch} another-name"
            )
        # Its folder may be gone while its commits are not: then it goes on with those.
        base = refs[note] if ref in refs else source.head
        add = ("worktree", "add", "--no-checkout", "--lock", "--reason", HALF_MADE)
        fill = ("reset", "--hard", "--quiet", "--no-recurse-submodules")
        try:
            async with self._lock(repository):
                if ref not in refs:
                    update = f"update {note} {base}\ncreate {ref} {base}\n"
                    await at.run("update-ref", "--stdin", stdin=update, write=[repository])
                known, others = _worktree_folders(repository)
                await at.run(*add, str(path), branch, write=[path, known], protected=others)
            # It may take long, and changes no shared state.
            made = await _described(source, path, base)
            tree = await git.on_worktree(path, made.git_folder, repository)
            await tree.run(*fill, write=[repository, made.git_folder], seconds=CHECKOUT_SECONDS)
            await _make_folder(path, made.workspace)
            _unlock(made.git_folder)
        except BaseException:
            with trio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._undo(at, repository, path, base)
            raise
        return made

    async def _undo(self, git: GitOn, repository: Path, path: Path, base: str) -> None:
        """Remove a half-made worktree as far as possible: the next `open` does the rest."""
        async with self._lock(repository):
            with suppress(AgentError):
                await _remove_worktree(path, repository, only_half_made=False)
                await _drop(git, repository, path, base)

    def _lock(self, path: Path) -> trio.Lock:
        return self._locks.setdefault(path, trio.Lock())

    @asynccontextmanager
    async def _lock_folder(self, path: Path, *, make: bool = False) -> AsyncGenerator[Git]:
        """Lock a folder, and yield a git that holds the lock itself if this process dies."""
        async with self._lock(path):
            descriptor = _open_folder(path, make=make)
            if descriptor is None:
                yield self._git
                return
            try:
                await _wait_for_lock(descriptor, path)
                yield self._git.with_descriptor(descriptor)
            finally:
                os.close(descriptor)
                _remove_if_empty(path)


def _open_folder(path: Path, *, make: bool) -> int | None:
    try:
        if make:
            path.mkdir(mode=private_files.PRIVATE_FOLDER, exist_ok=True)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise WorktreeError(f"{path} is not a folder for a worktree: {exc}; move it away") from exc


def _remove_if_empty(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()


async def _wait_for_lock(descriptor: int, path: Path) -> None:
    """Wait until no git of an earlier process works in a folder."""
    await trio.lowlevel.checkpoint()
    for _ in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await trio.sleep(LOCK_RETRY_SECONDS)  # no event says when another process unlocks
        else:
            return
    raise WorktreeError(
        f"a git that an earlier process has started still works in {path}; wait for it, or end it"
    )


async def _find(git: GitOn, repository: Path, path: Path) -> bool:
    """Return whether a worktree exists, and remove one that is gone."""
    ref = _refs_of(path)[0]
    listed = await git.run("worktree", "list", "--porcelain")
    exists = False
    for one in parse_worktrees(listed):
        if one.path != path and one.branch != ref:
            continue
        has_folder = await trio.Path(one.path).exists()
        if not has_folder and one.locked:
            raise WorktreeError(
                f"the worktree {one.path} is locked and its folder is not there; bring it back,"
                f" or let go of it: git worktree unlock {one.path}"
            )
        if not has_folder:
            await _remove_worktree(one.path, repository, only_half_made=False)
        elif one.path != path:
            raise WorktreeError(
                f"the branch {_short(ref)} is checked out in {one.path} already; remove that"
                f" worktree (git worktree remove {one.path}), or switch it to another branch"
            )
        else:
            exists = True
    return exists


async def _read_refs(git: GitOn, *names: str) -> dict[str, str]:
    form = "--format=%(refname) %(objectname)"
    out = await git.run("for-each-ref", form, *names)
    found = dict(line.split() for line in out.splitlines())
    return {name: found[name] for name in names if name in found}


async def _remove_worktree(path: Path, repository: Path, *, only_half_made: bool) -> None:
    remove = partial(remove_worktree, path, repository, only_half_made=only_half_made)
    await _remove(path, remove)


async def _remove_files(path: Path, git_folder: Path) -> None:
    if not is_intact(path, git_folder):
        raise WorktreeError(
            f"it is locked, or {path / '.git'} is not the file that git has made; look at it, and"
            f" remove it yourself: git worktree remove --force {path}"
        )
    await _remove(path, partial(shutil.rmtree, path))


async def _remove(path: Path, remove: Callable[[], None]) -> None:
    try:
        await trio.to_thread.run_sync(remove)
    except OSError as exc:
        raise WorktreeError(
            f"the worktree {path} cannot be removed: {exc}; remove it yourself:"
            f" git worktree remove --force {path}"
        ) from exc


def _unlock(git_folder: Path) -> None:
    """Let go of a worktree that is whole: with its lock, the next `open` would remove it."""
    try:
        (git_folder / "locked").unlink()
    except OSError as exc:
        raise WorktreeError(
            f"{git_folder / 'locked'} cannot be removed: {exc}; remove it yourself"
        ) from exc


def _worktree_folders(repository: Path) -> tuple[Path, list[Path]]:
    """Return the folder of a repository's worktrees, and its present worktrees."""
    known = repository / "worktrees"
    try:
        known.mkdir(exist_ok=True)
        return known, sorted(known.iterdir())
    except OSError as exc:
        raise WorktreeError(
            f"the repository {repository} can have no worktree: {exc}; make it one that you can"
            " write to"
        ) from exc


async def _drop(git: GitOn, repository: Path, path: Path, base: str) -> None:
    """Delete the branch and the ref of its base, if it is still there."""
    update = "".join(f"delete {ref} {base}\n" for ref in _refs_of(path))
    await git.run("update-ref", "--stdin", stdin=update, write=[repository])


def _refs_of(path: Path) -> tuple[str, str]:
    """Return the refs of a worktree's branch and of its base."""
    return f"refs/heads/orchestrator/{path.name}", f"refs/orchestrator/base/{path.name}"


def _short(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


async def _described(source: _Source, path: Path, base: str) -> Worktree:
    return Worktree(
        path=path,
        workspace=path / source.prefix,
        branch=_short(_refs_of(path)[0]),
        base=base,
        repository=source.repository,
        git_folder=await git_folder_of(path, source.repository),
    )


async def _make_folder(path: Path, workspace: Path) -> None:
    """Make the folder to work in, if the commit does not contain it."""
    try:
        is_inside = (await trio.Path(workspace).resolve()).is_relative_to(path)
        if is_inside:
            await trio.Path(workspace).mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise WorktreeError(
            f"there is no folder {workspace} in the worktree: {exc}; commit the folder"
        ) from exc
    if not is_inside:
        raise WorktreeError(
            f"{workspace} is committed as a link that leads out of the worktree; commit it as"
            " the folder that it is"
        )
