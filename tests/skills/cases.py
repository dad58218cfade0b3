"""Skills that keep or break a rule of the specification, and the verdicts about them.

`python -m tests.skills.judge` compares the verdicts with the reference library `skills-ref`.
"""

from pathlib import Path
from typing import Final, NamedTuple


class Case(NamedTuple):
    """The `SKILL.md` of a folder."""

    folder: str
    text: str
    problem: str = ""
    """A part of our error; empty if the skill is accepted."""
    differs: str = ""
    """Why the reference library decides otherwise."""

    def write(self, top: Path) -> Path:
        """Write the skill into a folder, and return the folder of the skill."""
        folder = top / self.folder
        folder.mkdir()
        (folder / "SKILL.md").write_text(self.text)
        return folder


def head(**keys: str) -> str:
    lines = [f"{key.replace('_', '-')}: {value}" for key, value in keys.items()]
    return "\n".join(["---", *lines, "---", "", "# Do it", ""])


CASES: Final = (
    Case("pdf", head(name="pdf", description="Fill in forms.")),
    Case(
        "all-keys",
        head(
            name="all-keys",
            description="Everything.",
            license="MIT",
            compatibility="Needs git",
            allowed_tools="Bash(git:*) Read",
            metadata="\n  author: us\n  version: '1.0'",
        ),
    ),
    Case("a" * 64, head(name="a" * 64, description="Long.")),
    Case("a" * 65, head(name="a" * 65, description="Too long."), "65 characters"),
    Case("技能", head(name="技能", description="Letters of any script.")),
    Case("Pdf", head(name="Pdf", description="Upper case."), "lower case"),
    Case("-pdf", head(name="-pdf", description="A dash."), "'-'"),
    Case("pdf-", head(name="pdf-", description="A dash."), "'-'"),
    Case("p--f", head(name="p--f", description="Two dashes."), "'-'"),
    Case("p_f", head(name="p_f", description="An underscore."), "letters, digits"),
    Case("other", head(name="pdf", description="Another folder."), "name of its folder"),
    Case("no-name", head(description="No name."), "no 'name'"),
    Case("no-text", head(name="no-text"), "no 'description'"),
    Case("empty-text", head(name="empty-text", description='""'), "no 'description'"),
    Case("long-text", head(name="long-text", description="x" * 1024)),
    Case("too-long", head(name="too-long", description="x" * 1025), "1025 characters"),
    Case("needs", head(name="needs", description="It.", compatibility="x" * 501), "501 characters"),
    Case("colon", head(name="colon", description="Use it: now"), "in quotes"),
    Case("no-head", "# Do it\n", "no front matter"),
    Case("open-head", "---\nname: open-head\ndescription: It.\n", "not closed"),
    Case("a-list", "---\n- one\n---\n", "must be keys"),
    Case("anchor", head(name="&a anchor", description="*a"), "anchors or tags"),
    Case("a-tag", head(name="!!str a-tag", description="It."), "anchors or tags"),
    Case(
        "unknown-key",
        head(name="unknown-key", description="It.", model="opus"),
        differs="an unknown key is a warning here",
    ),
)
