"""The result of a tool as text that a model can read.

A text stays unchanged, and any other value becomes JSON. A long text is saved whole, and the model
reads its beginning, its end, and the file of the rest. A full disk costs the rest, not the answer.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import attrs
import msgspec
import trio

from orchestrator.agents.errors import DefinitionError, ToolError
from orchestrator.agents.messages import Part, well_formed
from orchestrator.agents.output.pydantic_types import shown_part
from orchestrator.agents.tools.context import redact_secrets
from orchestrator.agents.type_checks import has_type

MOST_PART_BYTES: Final = 16 * 2**20
"""How many bytes of images and files one answer may have: all of them are journaled, and sent
again with every later request of the conversation."""


class ToolResult(msgspec.Struct, frozen=True, gc=False):
    """The answer of a tool that also delivers notices of its session."""

    text: str
    consumes: Sequence[int] = ()
    """The notices that the text contains: the session reads them with it, and not again."""
    parts: tuple[Part, ...] = ()
    """Images and files that the model reads with the text."""

    def __post_init__(self) -> None:
        if self.parts == ():
            return
        if not has_type(self.parts, tuple) or not all(has_type(part, Part) for part in self.parts):
            raise DefinitionError(
                f"the parts of a tool's result must be a tuple of Part, not {self.parts!r}"
            )
        size = sum(len(part.data) for part in self.parts)
        if size > MOST_PART_BYTES:
            raise ToolError(
                f"the answer has files of {size:,} bytes, and a model can be sent"
                f" {MOST_PART_BYTES:,} at once: ask for less, or for smaller images"
            )


def with_parts(result: object) -> ToolResult | None:
    """Return the result of a tool that is an image or a file, or a list with one; else None."""
    items = cast("Sequence[object]", result if isinstance(result, list | tuple) else (result,))
    parts = tuple(item for item in items if isinstance(item, Part))
    if not parts or not all(isinstance(item, str | Part) for item in items):
        return None
    texts = [item for item in items if isinstance(item, str)]
    # Every protocol wants a text, and people see nothing else of it in a terminal.
    text = "\n".join(texts) if texts else f"see {', '.join(it.label for it in parts)}"
    return ToolResult(text, parts=parts)


def as_text(name: str, result: object) -> str:
    """Return the result of a tool as text."""
    if isinstance(result, str):
        return result
    try:
        return msgspec.json.encode(_in_order(result), enc_hook=shown_part).decode()
    except (TypeError, RecursionError, msgspec.MsgspecError) as exc:
        raise DefinitionError(
            f"tool {name!r} returned {type(result).__name__}, which JSON cannot carry: {exc}"
        ) from exc


def _in_order(value: object) -> object:
    # msgspec alone would sort the fields of attrs classes by name.
    kind = type(value)
    if attrs.has(kind):
        items = [
            (field.name, getattr(value, field.name, msgspec.UNSET))
            for field in attrs.fields(kind)
            if not field.name.startswith("_")  # msgspec omits private ones, too
        ]
        return {name: _in_order(item) for name, item in items if item is not msgspec.UNSET}
    if isinstance(value, list | tuple):
        return [_in_order(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        entries = cast("dict[object, object]", value).items()
        return {key: _in_order(entry) for key, entry in entries}
    return value


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


async def shortened_and_saved(text: str, limit: int, spill: Spill) -> str:
    """Save a text that is longer than the limit, and return its beginning and end."""
    text = redact_secrets(well_formed(text))
    saved_as = await trio.to_thread.run_sync(_saved_as, text, spill)
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
