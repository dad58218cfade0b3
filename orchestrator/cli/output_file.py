"""A file that somebody wants something written to: whether it can be, and what it must not be."""

from pathlib import Path

from orchestrator.cli.errors import CommandError


def require_writable(file: Path, journal: Path) -> None:
    """Refuse a file that cannot be written, before any work is done; and the journal itself.

    Args:
        file: what the user named.
        journal: where all runs are kept.
    """
    if file.is_dir():
        raise CommandError(
            f"{file} is a directory; say a file with -o, such as {file / 'run.html'}"
        )
    if not file.parent.exists():
        raise CommandError(
            f"there is no directory {file.parent} to write {file.name} to"
        )
    if file.exists() and journal.exists() and file.samefile(journal):
        raise CommandError(f"{file} is the journal itself; say another file with -o")


def write_file(file: Path, text: str) -> None:
    """Write a file, or replace it."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise CommandError(
            f"{file} cannot be written: {exc.strerror or exc}; say another file with -o"
        ) from exc
