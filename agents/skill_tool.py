"""`read_skill`: loads the text of a skill, and then its files, for an agent with skills.

Imported late: most agents have none.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from orchestrator.agents.errors import ToolError
from orchestrator.agents.nearest_name import did_you_mean
from orchestrator.agents.skills import MOST_BYTES, SKILL_FILE, AgentSkill, Skill, front_matter
from orchestrator.agents.tools.files.dir_entry import MissingFileError, escape_unprintable
from orchestrator.agents.tools.files.line_reader import binary_kind
from orchestrator.agents.tools.files.workspace import Workspace
from orchestrator.agents.tools.tool import Tool, tool

READ_SKILL: Final = "read_skill"
MOST_FILES: Final = 100
"""How many files of a skill are listed."""
DEEPEST: Final = 4


@attrs.frozen(kw_only=True, slots=False)
class SkillTool(Tool):
    """The tool that the skills of an agent bring."""


def with_skill_tool(tools: Iterable[Tool], skills: Iterable[AgentSkill]) -> tuple[Tool, ...]:
    """Return the tools of an agent with the one that its skills bring, if any."""
    own = tuple(it for it in tools if not isinstance(it, SkillTool))
    known = {it.name: it for it in skills if isinstance(it, Skill)}
    if not known:
        return own
    runs_commands = any(getattr(it, "machine", None) == "command" for it in own)

    @tool(name=READ_SKILL, idempotent=True)
    def read_skill(name: str, path: str = "") -> str:
        """Load the instructions of a skill; with `path`, load one of its files.

        Args:
            name: the name of the skill.
            path: a file of the skill, relative to it, such as references/forms.md.
        """
        if name not in known:
            raise ToolError(f"there is no skill {name!r}; {did_you_mean(name, known)}")
        if path:
            return _file_text(known[name], path)
        return _whole_text(known[name], runs_commands=runs_commands)

    return (*own, SkillTool(**attrs.asdict(read_skill, recurse=False)))


def _whole_text(skill: Skill, *, runs_commands: bool) -> str:
    folder = skill.folder
    name = SKILL_FILE if (folder / SKILL_FILE).exists() else SKILL_FILE.lower()
    try:
        _, text = front_matter(_file_text(skill, name))
    except ValueError as exc:
        raise ToolError(f"the skill {skill.name!r} has changed: {exc}") from exc
    files = sorted(it for it in _files_below(folder, "", DEEPEST) if it != name)
    parts = [text]
    if files:
        listed = ", ".join(map(escape_unprintable, files[:MOST_FILES]))
        more = f" and {len(files) - MOST_FILES} more" if len(files) > MOST_FILES else ""
        parts.append(f"[Files of this skill, for read_skill: {listed}{more}.]")
        if runs_commands:
            parts.append(f"[Its folder is {escape_unprintable(str(folder))}.]")
    return "\n\n".join(parts)


def _file_text(skill: Skill, path: str) -> str:
    """Return a file of a skill. No part of the path may be a link, or lead out of the folder."""
    wanted = tuple(it for it in path.split("/") if it not in {"", "."})
    if path.startswith(("/", "~")) or ".." in wanted:
        raise ToolError(f"{escape_unprintable(path)!r} must be a path inside the skill")
    try:
        with Workspace(skill.folder).find(path) as entry:
            if entry.path != "/".join(wanted):
                raise ToolError(f"{escape_unprintable(path)!r} leads over a link: use no links")
            with entry.open_file() as (descriptor, _):
                with open(descriptor, "rb", closefd=False) as opened:
                    data = opened.read(MOST_BYTES + 1)
    except MissingFileError as exc:
        raise ToolError(
            f"the skill {skill.name!r} has no file {escape_unprintable(path)!r}"
        ) from exc
    if len(data) > MOST_BYTES:
        raise ToolError(f"{escape_unprintable(path)!r} has more than {MOST_BYTES:,} bytes")
    if (kind := binary_kind(data)) is not None:
        raise ToolError(f"{escape_unprintable(path)!r} is {kind}, and no text")
    return data.decode(errors="replace")


def _files_below(folder: Path, prefix: str, levels: int) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            found: Sequence[os.DirEntry[str]] = sorted(entries, key=lambda it: it.name)
    except OSError:
        return
    for entry in found[: 10 * MOST_FILES]:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_file(follow_symlinks=False):
            yield f"{prefix}{entry.name}"
        elif levels and entry.is_dir(follow_symlinks=False):
            yield from _files_below(folder / entry.name, f"{prefix}{entry.name}/", levels - 1)
