"""Long results of tools: a text is saved whole, and the model reads its beginning and its end.

A full disk costs the rest of a text, not the answer.
"""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec
import trio

from orchestrator.agents.messages import well_formed
from orchestrator.agents.tools.context import redact_secrets


class Spill(msgspec.Struct, frozen=True):
    """Saves texts that are too long for a model in files that only this user can read."""

    folder: Path | None = None
    """None is a private folder among the temporary files."""

    def save(self, text: str) -> Path:
        """Write a text to a file that is named by its hash, and return the path.

        Raises:
            OSError: it cannot be written, or others could write in the folder.
        """
        folder = (self.folder or _default_folder()).absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        # Another user who made a folder of that name first could replace our files.
        if (
            not stat.S_ISDIR(found.st_mode)
            or found.st_uid != os.getuid()
            or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        ):
            raise PermissionError(f"{folder} is not a folder that we alone can write to")
        content = text.encode()
        file = folder / f"{hashlib.sha256(content).hexdigest()[:32]}.txt"
        if not file.exists() or file.stat().st_size != len(content):
            _write(file, content)
        return file


def _default_folder() -> Path:
    return Path(tempfile.gettempdir(), f"orchestrator-results-{os.getuid()}")


def _write(file: Path, content: bytes) -> None:
    # Renamed when it is whole: the same text may be saved twice at once.
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
        try:
            part.write(content)
            part.flush()
            Path(part.name).replace(file)
        finally:
            Path(part.name).unlink(missing_ok=True)


async def shortened_and_saved(text: str, limit: int, spill: Spill | None) -> str:
    """Save a text that is longer than the limit, and return its beginning and end."""
    text = redact_secrets(well_formed(text))
    saved_as = await trio.to_thread.run_sync(_saved_as, text, spill or Spill())
    return shortened(text, limit, saved_as)


def _saved_as(text: str, spill: Spill) -> Path | OSError:
    try:
        return spill.save(text)
    except OSError as exc:
        return exc


def shortened(text: str, limit: int, saved_as: Path | OSError) -> str:
    """Return the beginning (three quarters) and the end of a text that is longer than the limit.

    `saved_as` is the file with the whole text, or why there is none.
    """
    ending = limit // 4
    begin, end = limit - ending, len(text) - ending
    where = (
        f"They could not be saved: {saved_as}"
        if isinstance(saved_as, OSError)
        else f"The whole is in the file {saved_as}; what is left out starts there at"
        f" character {begin} (byte {len(text[:begin].encode())})"
    )
    return (
        f"{text[:begin]}\n\n[{end - begin} of {len(text)} characters are left out here."
        f" {where}.]\n\n{text[end:]}"
    )
