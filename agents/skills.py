"""Skills: folders with a `SKILL.md`. An agent knows their names, and loads the rest on use.

The format is the specification of agentskills.io. The text of a skill is untrusted: it is read as
text, and no key of it gives a right.
"""

import os
import stat
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs

from orchestrator.agents.errors import DefinitionError

SKILL_FILE: Final = "SKILL.md"
AGENTS_FILE: Final = "AGENTS.md"
"""The instructions that a workspace has for agents: `Agent(skills=["AGENTS.md"])` reads them."""
FENCE: Final = "---"
FIELDS: Final = frozenset(
    {"name", "description", "license", "compatibility", "metadata", "allowed-tools"}
)
MOST_SKILLS: Final = 100
LONGEST_NAME: Final = 64
LONGEST_DESCRIPTION: Final = 1024
LONGEST_COMPATIBILITY: Final = 500
MOST_BYTES: Final = 1_000_000
"""The most bytes of a file of a skill."""
HEADING: Final = (
    "Skills are instructions for certain kinds of work. When one of them fits your task, load it"
    " with read_skill before you begin, and follow it as far as your own instructions allow:"
)


@attrs.frozen
class Skill:
    """A folder with a `SKILL.md`, as `Agent(skills=[...])` reads it."""

    name: str
    description: str
    folder: Path
    """Its real path."""
    unknown: tuple[str, ...] = ()
    """The keys of its front matter that the specification does not have."""


AgentSkill: TypeAlias = "Skill | str"
"""A skill, or `AGENTS.md`."""


def listed_skills(given: Any) -> tuple[AgentSkill, ...]:
    """Return the skills of folders; a skill stays as it is."""
    alone = isinstance(given, str | os.PathLike | Skill) or not hasattr(given, "__iter__")
    skills: list[AgentSkill] = []
    for item in (given,) if alone else given:
        if isinstance(item, Skill) or item == AGENTS_FILE:
            skills.append(item)
            continue
        for skill in skills_in(item):
            if skill.unknown:
                warnings.warn(unknown_keys_note(skill), stacklevel=2)
            skills.append(skill)
    _require_distinct(skills)
    return tuple(skills)


def skills_in(folder: str | os.PathLike[str]) -> Iterator[Skill]:
    """Yield the skill of a folder, or of all folders in it, in the order of their names.

    Raises:
        DefinitionError: there is none, or one of them breaks a rule of the specification.
    """
    if not isinstance(folder, str | os.PathLike):
        raise DefinitionError(f"{folder!r} in skills= must be the path of a folder")
    given = Path(folder).expanduser()
    top = Path(os.path.realpath(given))
    if not top.is_dir():
        raise DefinitionError(f"{given} in skills= is no folder: name the folder of a skill")
    if (file := _skill_file(top)) is not None:
        yield _read(file)
        return
    files = [found for it in sorted(top.iterdir()) if it.is_dir() and (found := _skill_file(it))]
    if not files:
        raise DefinitionError(
            f"{given} in skills= has no {SKILL_FILE}, and no folder in it has one"
        )
    for file in files:
        if file.parent.is_symlink():
            raise _error(file.parent, "it is a link: name the folder itself in skills=")
        yield _read(file)


def skills_text(skills: Iterable[AgentSkill]) -> str:
    """Return the part of the instructions that names skills; the same skills have the same text."""
    lines = [f"- {it.name}: {it.description}" for it in skills if isinstance(it, Skill)]
    return "\n".join([HEADING, *lines]) if lines else ""


def unknown_keys_note(skill: Skill) -> str:
    keys = ", ".join(map(repr, skill.unknown))
    return f"{skill.folder / SKILL_FILE}: the specification of skills has no {keys}; left out"


def front_matter(text: str) -> tuple[Mapping[str, Any], str]:
    """Return the keys at the head of a `SKILL.md`, and the text below them.

    Raises:
        ValueError: it has none, or they cannot be read; the text says why.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        raise ValueError(f"it has no front matter: begin with a line {FENCE!r}")
    end = next((at for at, it in enumerate(lines[1:], 1) if it.rstrip() == FENCE), None)
    if end is None:
        raise ValueError(f"its front matter is not closed: end it with a line {FENCE!r}")
    return _keys("\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip()


def skill_problems(keys: Mapping[str, Any], folder: str) -> list[str]:
    """Return the rules of the specification that front matter breaks; unknown keys break none."""
    return [
        *_name_problems(keys.get("name"), folder),
        *_text_problems("description", keys.get("description"), LONGEST_DESCRIPTION),
        *(
            _text_problems("compatibility", keys["compatibility"], LONGEST_COMPATIBILITY)
            if "compatibility" in keys
            else ()
        ),
    ]


def read_regular_file(path: Path) -> bytes:
    """Return the content of a file that is no link, and not larger than a file of a skill may be.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no such file; the text says why.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no plain file")
        with open(descriptor, "rb", closefd=False) as opened:
            data = opened.read(MOST_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
    return data


def _skill_file(folder: Path) -> Path | None:
    names = (SKILL_FILE, SKILL_FILE.lower())
    return next((file for name in names if os.path.lexists(file := folder / name)), None)


def _read(file: Path) -> Skill:
    folder = file.parent
    try:
        keys, _ = front_matter(read_regular_file(file).decode())
    except OSError as exc:
        raise _error(file, f"it cannot be read: {exc.strerror}; links are not followed") from exc
    except UnicodeDecodeError as exc:
        raise _error(file, "it is not UTF-8") from exc
    except ValueError as exc:
        raise _error(file, str(exc)) from exc
    if problems := skill_problems(keys, folder.name):
        raise _error(file, "; ".join(problems))
    return Skill(
        name=_normal(keys["name"]),
        description=one_line(keys["description"]),
        folder=folder,
        unknown=tuple(sorted(key for key in keys if key not in FIELDS)),
    )


def _keys(head: str) -> Mapping[str, Any]:
    # Imported late: an agent without skills needs no YAML.
    import yaml

    try:
        for event in yaml.parse(head, Loader=yaml.SafeLoader):
            is_plain = (
                getattr(event, "anchor", None) is None and getattr(event, "tag", None) is None
            )
            if not is_plain:
                raise ValueError("its front matter has anchors or tags, which skills do not have")
        # Every scalar is a text, as the reference library reads it.
        found = yaml.load(head, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, RecursionError) as exc:
        line = getattr(getattr(exc, "problem_mark", None), "line", None)
        where = "" if line is None else f" in line {line + 2}"
        raise ValueError(
            f"its front matter is no YAML{where}: a text with ': ' in it is written in quotes"
        ) from exc
    if not isinstance(found, dict):
        raise ValueError("its front matter must be keys, such as 'name: pdf'")  # noqa: TRY004
    return {str(key): value for key, value in found.items()}


def _name_problems(name: object, folder: str) -> Iterator[str]:
    if not isinstance(name, str) or not name.strip():
        yield "it has no 'name', which must be a text"
        return
    name = _normal(name)
    if len(name) > LONGEST_NAME:
        yield f"its name has {len(name)} characters, and may have {LONGEST_NAME}"
    if name != name.lower():
        yield f"its name {name!r} must be in lower case"
    if name.startswith("-") or name.endswith("-") or "--" in name:
        yield f"its name {name!r} begins or ends with '-', or has two of them in a row"
    if not all(char.isalnum() or char == "-" for char in name):
        yield f"its name {name!r} may have letters, digits and '-' alone"
    if unicodedata.normalize("NFKC", folder) != name:
        yield f"its name {name!r} must be the name of its folder, {folder!r}"


def _text_problems(key: str, text: object, longest: int) -> Iterator[str]:
    if not isinstance(text, str) or not text.strip():
        yield f"it has no {key!r}, which must be a text"
    elif len(text) > longest:
        yield f"its {key} has {len(text)} characters, and may have {longest}"


def _require_distinct(skills: Iterable[AgentSkill]) -> None:
    names = [it.name if isinstance(it, Skill) else it for it in skills]
    if len(names) > MOST_SKILLS:
        raise DefinitionError(f"an agent has at most {MOST_SKILLS} skills, and not {len(names)}")
    for name in names:
        if names.count(name) > 1:
            raise DefinitionError(f"skills= has two called {name!r}: remove one of them")


def _normal(name: str) -> str:
    return unicodedata.normalize("NFKC", name.strip())


def one_line(text: str) -> str:
    """Return a text of people on one line."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _error(path: Path, problem: str) -> DefinitionError:
    return DefinitionError(f"{path}: {problem}")
