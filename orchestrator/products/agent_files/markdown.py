"""Markdown files with front matter: the keys of one agent, and its instructions below them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from orchestrator.products.agent_files.entry import AgentEntry
from orchestrator.products.agent_files.located import AgentFileError, Located
from orchestrator.products.agent_files.source_text import read_text
from orchestrator.products.agent_files.yaml_text import read_yaml

FENCE: Final = "---"
EXAMPLE: Final = "'---', then 'name: reviewer' and 'description: ...', then '---'"
# A key with a plain text that YAML would read as something else, as in most files of Claude Code:
# "description: Use it when: ..."; not one that begins with a sign of YAML.
LOOSE_LINE: Final = re.compile(r"([A-Za-z][\w-]*):[ \t]+([^\s'\"\[{|>&*!%@`#].*?)[ \t]*")


def read_agent(file: Path) -> AgentEntry:
    """Return the agent of a Markdown file."""
    head, body, body_line = _split(read_text(file), file)
    fields = _fields(head, file)
    name = fields.get("name")
    return AgentEntry(
        name=Located(file.stem, file, 1) if name is None else name,
        fields={key: value for key, value in fields.items() if key != "name"},
        instructions=Located(body.strip(), file, body_line),
        at=Located(None, file, 1),
    )


def has_front_matter(text: str) -> bool:
    """Return whether a Markdown file begins with keys."""
    return text.partition("\n")[0].rstrip() == FENCE


def _split(text: str, file: Path) -> tuple[str, str, int]:
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        raise AgentFileError(file, 1, f"it has no front matter: begin with {EXAMPLE}")
    for number, line in enumerate(lines[1:], 2):
        if line.rstrip() == FENCE:
            return ("\n".join(lines[1 : number - 1]), "\n".join(lines[number:]), number + 1)
    raise AgentFileError(file, 1, f"its front matter is not closed: end it with a line {FENCE!r}")


def _fields(head: str, file: Path) -> Mapping[str, Located]:
    try:
        found = read_yaml(head, file, first_line=2)
    except AgentFileError:
        loose = "\n".join(map(_quoted, head.split("\n")))
        if loose == head:
            raise
        found = read_yaml(loose, file, first_line=2)
    return {} if found.value is None else found.as_mapping("front matter", "name: ...")


def _quoted(line: str) -> str:
    found = LOOSE_LINE.fullmatch(line)
    if found is None or not (": " in found[2] or " #" in found[2]):
        return line
    text = found[2].replace("'", "''")
    return f"{found[1]}: '{text}'"
