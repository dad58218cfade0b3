"""Paths that hold credentials, or that other programs run: hidden from commands, or read-only."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from orchestrator.agents.sandbox.sandbox import Sandbox

CREDENTIALS: Final = (
    ".aws",
    ".azure",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/containers/auth.json",
    ".config/doctl",
    ".config/gcloud",
    ".config/gh",
    ".config/glab-cli",
    ".config/hub",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".local/share/uv/credentials",
    ".mozilla",
    ".config/chromium",
    ".config/google-chrome",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".ssh",
    ".terraform.d/credentials.tfrc.json",
    ".vault-token",
)
"""Where programs keep credentials, in a home."""
STARTUP_FILES: Final = (
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".config/autostart",
    ".config/fish",
    ".config/git",
    ".config/systemd",
    ".gitconfig",
    ".profile",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
)
"""Files in a home that shells, git and the desktop run or read at their next start."""
_MOST_READ: Final = 1 << 20
_COMMONDIR: Final = "commondir"
_WORKTREE_CONFIG: Final = "config.worktree"
_GIT_FILES: Final = (
    *("config", _WORKTREE_CONFIG, _COMMONDIR, "gitdir"),
    # Repositories, and the folders of worktrees: each has settings of its own.
    *("modules", "worktrees"),
)
_GIT_FOLDERS: Final = ("hooks", "info")
# In a folder with a `commondir`, git ignores these.
_BARE_OR_ELSEWHERE: Final = re.compile(
    rb"\bworktree\s*=|\bbare\s*(=\s*(true|yes|on|[1-9])|$)", re.IGNORECASE | re.MULTILINE
)
_HAS_WORKTREE_CONFIG: Final = re.compile(rb"\bworktreeConfig\b", re.IGNORECASE)


def without_named(hidden: Iterable[Path], sandbox: Sandbox) -> list[Path]:
    """Return the hidden paths without those that a sandbox names, and without their parents."""
    named = (*sandbox.write, *(sandbox.read or ()))
    return [path for path in hidden if not any(it.is_relative_to(path) for it in named)]


def credentials_in(home: Path) -> list[Path]:
    """Return the real paths of the credentials that there are in a home."""
    return _existing(home / name for name in CREDENTIALS)


def startup_files_in(home: Path) -> list[Path]:
    """Return the real paths of what runs at the next start of a shell or a desktop."""
    return _existing(home / name for name in STARTUP_FILES)


def repository_settings(folder: Path) -> Iterator[Path]:
    """Yield what programs for version control obey and run, in the top folder of a checkout.

    Settings and hooks are commands: their writer runs them as the next person who looks.
    Folders that are missing are named too, since they could be made.
    """
    git = folder / ".git"
    if git.is_file():
        yield git
    elif git.is_dir():
        yield from git_settings(git)
    if (hgrc := folder / ".hg" / "hgrc").exists():
        yield hgrc


def git_settings(git_folder: Path) -> Iterator[Path]:
    """Yield the same in a git folder: of a repository, or of one worktree."""
    for name in _GIT_FILES:
        if (path := git_folder / name).exists():
            yield path
    # A folder of a worktree has neither.
    if (git_folder / "objects").is_dir():
        for name in _GIT_FOLDERS:
            yield git_folder / name


def make_git_settings(git_folder: Path) -> None:
    """Make the settings that git would obey if a command made them, so that they can be protected.

    They say what holds without them: all of the repository is here, and a worktree has no settings
    of its own. They stay, since without the file its protection would end, in commands that run.
    """
    is_repository = (git_folder / "objects").is_dir()
    repository = git_folder if is_repository else git_folder.parent.parent
    try:
        config = _read(repository / "config")
        # A link would lead to the repository of another.
        folder = os.open(git_folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if is_repository and not _BARE_OR_ELSEWHERE.search(config):
            _make(_COMMONDIR, b".\n", folder)
        if _HAS_WORKTREE_CONFIG.search(config):
            _make(_WORKTREE_CONFIG, b"", folder)
    except OSError:
        pass  # commands cannot make a path that this process cannot make
    finally:
        os.close(folder)


def git_folder_of_worktree(workspace: Path) -> Path | None:
    """Return the folder of a git worktree in its repository, if they name each other."""
    try:
        _, _, named = _read(workspace / ".git").partition(b"gitdir: ")
        folder = Path(os.path.realpath(workspace / os.fsdecode(named.strip())))
        back = os.path.realpath(folder / os.fsdecode(_read(folder / "gitdir").strip()))
    except (OSError, ValueError):
        return None
    return folder if named and back == str(workspace / ".git") else None


def _read(path: Path) -> bytes:
    """Return the beginning of a file. A command may have made it a pipe, or endless."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(file, _MOST_READ)
    finally:
        os.close(file)


def _make(name: str, content: bytes, folder: int) -> None:
    """Make a file that is missing, with all of its content at once."""
    if os.access(name, os.F_OK, dir_fd=folder, follow_symlinks=False):
        return
    written = f"{name}.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    file = os.open(written, flags, 0o644, dir_fd=folder)
    try:
        os.write(file, content)
        os.link(written, name, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        pass  # another command is started here
    finally:
        os.close(file)
        os.unlink(written, dir_fd=folder)


def _existing(paths: Iterable[Path]) -> list[Path]:
    return [Path(os.path.realpath(path)) for path in paths if os.path.lexists(path)]
