"""The skills that a server lists (SEP-2640), as an agent gets them: named, bounded and checked.

A server may list anything. A skill that breaks a rule is left out and reported. Its text is
untrusted: no key of it gives a right, and its scripts are text.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import attrs

from orchestrator.agents.errors import DefinitionError, ToolError
from orchestrator.agents.skills import (
    LONGEST_DESCRIPTION,
    MOST_BYTES,
    MOST_SKILLS,
    SKILL_FILE,
    front_matter,
    one_line,
    skill_problems,
)
from orchestrator.agents.tools.files.dir_entry import escape_unprintable
from orchestrator.agents.tools.files.line_reader import binary_kind
from orchestrator.agents.tools.mcp.json_values import list_in, object_in
from orchestrator.agents.tools.mcp.listed_tools import visible_text

MOST_FILES: Final = 512
MOST_BYTES_TOGETHER: Final = 16 * 2**20
"""The limits of SEP-2640 for the files of one skill."""
LONGEST_URI: Final = 1_000
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s<>\"'\\^`{|}\[\]?#]+")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_WORDS: Final[Mapping[bool | None, tuple[str, ...]]] = {
    None: ("", "~", "null"),
    True: ("true", "yes", "on"),
    False: ("false", "no", "off"),
}
"""The words of YAML for truth values and nothing."""


class ChangedSkillError(Exception):
    """A file of a skill is not the one that its server has listed."""


@attrs.frozen
class SkillFile:
    """A file of a skill, as its server lists it."""

    uri: str
    digest: str
    size: int


@attrs.frozen
class ListedSkill:
    """A skill of a server that an agent can load."""

    name: str
    """Its own name; if the server has two of that name, the URI of its folder."""
    description: str
    uri: str
    """The URI of its `SKILL.md`. All its files are below the folder of this one."""
    keys: Mapping[str, Any]
    """The front matter, as the server lists it."""
    files: Mapping[str, SkillFile]
    """By their paths in the skill."""
    digest: str
    """Changes with every file."""

    def file_at(self, path: str) -> SkillFile:
        """Return a listed file; raise `ToolError` if there is none at this path."""
        wanted = "/".join(it for it in path.split("/") if it not in {"", "."})
        shown = escape_unprintable(path)
        if path.startswith(("/", "~")) or ".." in wanted.split("/"):
            raise ToolError(f"{shown!r} must be a path inside the skill")
        if wanted not in self.files:
            raise ToolError(f"the skill {self.name!r} has no file {shown!r}")
        if self.files[wanted].size > MOST_BYTES:
            raise ToolError(f"{shown!r} has more than {MOST_BYTES:,} bytes")
        return self.files[wanted]

    def text_of(self, data: bytes) -> str:
        """Return the instructions in its `SKILL.md`.

        Raises:
            ChangedSkillError: its front matter is another one than its server has listed.
        """
        try:
            keys, text = front_matter(data.decode())
        except ValueError as exc:
            raise ChangedSkillError(str(exc)) from exc
        if not _is_same(keys, dict(self.keys)):
            raise ChangedSkillError("its front matter is not the listed one")
        return text


def require_listed(file: SkillFile, data: bytes) -> None:
    """Raise `ChangedSkillError` if this is not the content that the server has listed."""
    if len(data) != file.size:
        raise ChangedSkillError(f"it has {len(data):,} bytes, and {file.size:,} are listed")
    if f"sha256:{hashlib.sha256(data).hexdigest()}" != file.digest:
        raise ChangedSkillError("it has another digest than the listed one")


def require_text(path: str, data: bytes) -> str:
    """Return the text of a file; raise `ToolError` if it is none."""
    if (kind := binary_kind(data)) is not None:
        raise ToolError(f"{escape_unprintable(path)!r} is {kind}, and no text")
    return data.decode(errors="replace")


def read_entry(entry: Mapping[str, Any]) -> ListedSkill:
    """Return a skill of a listing; raise `DefinitionError` if it breaks a rule."""
    uri = _checked_uri(entry.get("uri"))
    root, _, file = uri.rpartition("/")
    if file != SKILL_FILE:
        raise DefinitionError(f"its URI does not end in /{SKILL_FILE}")
    keys = object_in(entry.get("frontmatter"))
    if problems := skill_problems(keys, unquote(root.rpartition("/")[2])):
        raise DefinitionError("; ".join(problems))
    if visible_text(name := keys["name"]) != name:
        raise DefinitionError("its name has characters that people cannot see")
    description = one_line(visible_text(keys["description"], LONGEST_DESCRIPTION))
    files = _files(root, entry.get("resources"))
    digests = "\n".join(sorted(f"{it.uri} {it.digest}" for it in files.values()))
    return ListedSkill(name, description, uri, keys, files, _digest(digests))


def named_skills(skills: Iterable[ListedSkill]) -> tuple[tuple[ListedSkill, ...], list[str]]:
    """Return the skills that an agent gets, each with a name of its own, and the problems.

    Their order is the order of their names: prompt caches serve equal instructions alone.
    """
    known = {it.uri: it for it in skills}
    count = Counter(it.name for it in known.values())
    named = [
        it if count[it.name] == 1 else attrs.evolve(it, name=it.uri.rpartition("/")[0])
        for it in known.values()
    ]
    named.sort(key=lambda it: it.name)
    more = len(named) - MOST_SKILLS
    problems = [f"{more:,} skills: its server has more than {MOST_SKILLS}"] if more > 0 else []
    return tuple(named[:MOST_SKILLS]), problems


def digest_of_skills(skills: Iterable[ListedSkill]) -> str:
    """Return a digest that changes with every file of the skills."""
    return _digest("\n".join(it.digest for it in skills))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _files(root: str, resources: object) -> dict[str, SkillFile]:
    if resources == "dynamic":
        raise DefinitionError("its files are made on demand, so they have no digests to check")
    listed = list_in(resources)
    if len(listed) > MOST_FILES:
        raise DefinitionError(f"it has more than {MOST_FILES} files")
    files: dict[str, SkillFile] = {}
    for item in map(object_in, listed):
        uri, digest, size = _checked_uri(item.get("uri")), item.get("digest"), item.get("size")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise DefinitionError("a file of it has no SHA-256 digest")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise DefinitionError("a file of it has no size")
        path = unquote(uri.removeprefix(f"{root}/"))
        if not uri.startswith(f"{root}/") or path in files:
            raise DefinitionError("a file of it is listed twice, or outside of the skill")
        files[path] = SkillFile(uri, digest, size)
    if SKILL_FILE not in files:
        raise DefinitionError(f"its files are not listed, or {SKILL_FILE} is not among them")
    if sum(it.size for it in files.values()) > MOST_BYTES_TOGETHER:
        raise DefinitionError(f"its files have more than {MOST_BYTES_TOGETHER:,} bytes together")
    return files


def _checked_uri(uri: object) -> str:
    """Return a URI without a query, whose path leads nowhere else and can be shown."""
    if not isinstance(uri, str) or len(uri) > LONGEST_URI or not _URI.fullmatch(uri):
        raise DefinitionError("it has no URI, or one that cannot be read")
    plain = unquote(uri)
    if not plain.isprintable() or visible_text(plain, LONGEST_URI) != plain:
        raise DefinitionError("its URI has characters that people cannot see")
    if {"", ".", ".."} & {*plain.partition("://")[2].split("/")} or "\\" in plain:
        raise DefinitionError("its URI leads out of its folder")
    return uri


def _is_same(written: object, listed: object) -> bool:
    """Return whether a value of a `SKILL.md` is the listed one; written scalars are texts."""
    if own := object_in(written):
        other = object_in(listed)
        return own.keys() == other.keys() and all(_is_same(own[it], other[it]) for it in own)
    if items := list_in(written):
        others = list_in(listed)
        return len(items) == len(others) and all(map(_is_same, items, others))
    return written == listed or (isinstance(written, str) and _is_scalar(written, listed))


def _is_scalar(written: str, listed: object) -> bool:
    """Return whether a text of YAML is a number, a truth value or nothing, as it is listed."""
    if listed is None or isinstance(listed, bool):
        return written.lower() in _WORDS[listed]
    try:
        return isinstance(listed, int | float) and float(written) == listed
    except (ValueError, OverflowError):
        return False
