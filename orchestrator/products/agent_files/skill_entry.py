"""The skills and the memory that a file gives an agent; their paths are relative to the file."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.agents import DefinitionError
from orchestrator.agents.skills import AGENTS_FILE, AgentSkill, skills_in
from orchestrator.products.agent_files.located import Located

CLAUDE_MEMORIES: Final = frozenset({"user", "project", "local"})
"""The values of Claude Code's key `memory`, which name no file."""


def skills_of(found: Located) -> list[AgentSkill]:
    """Return the skills of a list of folders."""
    skills: list[AgentSkill] = []
    for item in found.as_names("skills"):
        text = item.as_text("a skill")
        if text == AGENTS_FILE:
            skills.append(AGENTS_FILE)
            continue
        try:
            skills += skills_in(_folder(item) or found.file.parent / text)
        except DefinitionError as exc:
            raise item.error(str(exc)) from exc
    return skills


def memory_of(found: Located) -> Path:
    """Return the file of a memory."""
    return found.file.parent / Path(found.as_text("memory")).expanduser()


def is_for_claude_code(key: str, found: Located) -> bool:
    """Return whether a key has a value of Claude Code that names nothing here."""
    if key == "memory":
        return found.value in CLAUDE_MEMORIES
    if key != "skills" or found.file.suffix.lower() != ".md":
        return False
    names = [it for it in found.as_names(key) if it.value != AGENTS_FILE]
    return bool(names) and not any(_folder(it) or "/" in str(it.value) for it in names)


def _folder(item: Located) -> Path | None:
    return next((it for it in _places(item) if it.is_dir()), None)


def _places(item: Located) -> Iterator[Path]:
    """Yield the folders that a name may mean; `.claude/skills` stands beside `.claude/agents`."""
    name = Path(item.as_text("a skill")).expanduser()
    yield item.file.parent / name
    if len(name.parts) == 1:
        yield item.file.parent.parent / "skills" / name
