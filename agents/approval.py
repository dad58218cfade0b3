"""What an agent may do without asking: rules about its tools, and what they say of a call.

Of an agent's rules the first that fits decides. Of the rules of all agents above, the strictest
decides: whoever works for another may be allowed less, never more.
"""

import enum
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Protocol

import attrs

from agents.errors import DefinitionError
from agents.messages import ToolCall

ASK_SECONDS: Final = 600.0
"""How long somebody may think about it, if the rule does not say."""

# What makes a line of shell more than one plain command.
_OPERATORS: Final = re.compile(r"[;&|<>()`$\n\r{}\\]")
# Where another command may begin, or stand quoted.
_PIECES: Final = re.compile(r"[;&|()`\n\r{}\"']|\$\(|<\(|>\(")


class Verdict(enum.IntEnum):
    """What becomes of a call. The greater is the stricter."""

    ALLOW = 0
    ASK = 1
    DENY = 2


@attrs.frozen(kw_only=True)
class Subject:
    """What a call is about, as the rules look at it and as people are asked about it."""

    tool: str
    command: str | None = None
    path: str | None = None
    """Relative to the workspace, where it is inside."""
    arguments: str = ""
    """All that the call says, as text."""

    @property
    def words(self) -> str:
        """What is approved: this very command, file, or call."""
        if self.command is not None:
            return self.command
        return self.arguments if self.path is None else self.path


@attrs.frozen(kw_only=True)
class ApprovalRule:
    """What becomes of some calls. `allow`, `ask` and `deny` make it."""

    verdict: Verdict
    tool: str
    """The name of a tool. `*` stands for anything in all of these patterns."""
    command: str | None = None
    """The command lines it is about; None is all."""
    path: str | None = None
    """The files it is about; None is all. `*` stands for `/` as well."""
    seconds: float = ASK_SECONDS
    """How long somebody may think about it."""
    reason: str = ""
    """What whoever is denied reads."""

    def __attrs_post_init__(self) -> None:
        if not self.tool:
            raise DefinitionError("a rule about approval names a tool, or '*' for all")
        if not self.seconds > 0:
            raise DefinitionError(
                f"a rule about {self.tool!r}: {self.seconds!r} seconds are no time to think"
            )

    def names(self, subject: Subject) -> bool:
        return fnmatchcase(subject.tool, self.tool)

    def fits(self, subject: Subject) -> bool:
        return (
            self.names(subject)
            and self._fits_command(subject.command)
            and self._fits_path(subject.path)
        )

    def _fits_command(self, command: str | None) -> bool:
        if self.command is None:
            return True
        if command is None:
            return False
        if self.verdict is Verdict.ALLOW:
            # Whatever a shell makes of operators is another command, which nobody has allowed.
            is_plain = not _OPERATORS.search(command.strip())
            return is_plain and _is_like(command, self.command)
        pieces = (command, *_PIECES.split(command))
        return any(_is_like(piece, self.command) for piece in pieces)

    def _fits_path(self, path: str | None) -> bool:
        if self.path is None:
            return True
        return path is not None and fnmatchcase(path, self.path)


def _is_like(command: str, pattern: str) -> bool:
    return fnmatchcase(" ".join(command.split()), pattern)


def allow(
    tool: str, *, command: str | None = None, path: str | None = None
) -> ApprovalRule:
    """Let calls pass. Whoever allows only some of a tool's calls has the others asked about.

    Args:
        tool: the name of a tool, or a pattern such as `"*_file"`.
        command: a pattern of command lines, such as `"git status*"`. It fits plain commands
            only: what has `;`, `|`, `&&`, `$(...)` or redirections in it is more than it says.
        path: a pattern of files, relative to the workspace.
    """
    return ApprovalRule(verdict=Verdict.ALLOW, tool=tool, command=command, path=path)


def ask(
    tool: str,
    *,
    command: str | None = None,
    path: str | None = None,
    seconds: float = ASK_SECONDS,
) -> ApprovalRule:
    """Have somebody decide. Where nobody can be asked, or nobody answers, it is denied.

    Args:
        tool: the name of a tool, or a pattern.
        command: a pattern of command lines; it fits also what is only a part of the line.
        path: a pattern of files, relative to the workspace.
        seconds: how long to wait for the answer.
    """
    return ApprovalRule(
        verdict=Verdict.ASK, tool=tool, command=command, path=path, seconds=seconds
    )


def deny(
    tool: str,
    *,
    command: str | None = None,
    path: str | None = None,
    reason: str = "",
) -> ApprovalRule:
    """Let calls not pass.

    A shell has many ways to say one thing, so a pattern of commands is a fence and no wall: whoever
    must not do something at all is better off with `allow` for what it may do.

    Args:
        tool: the name of a tool, or a pattern.
        command: a pattern of command lines; it fits also what is only a part of the line.
        path: a pattern of files, relative to the workspace.
        reason: what the agent reads.
    """
    return ApprovalRule(
        verdict=Verdict.DENY, tool=tool, command=command, path=path, reason=reason
    )


def ruling(rules: Iterable[ApprovalRule], subject: Subject) -> ApprovalRule | None:
    """Return the rule that decides about a call; None lets it pass."""
    is_partly_allowed = False
    for rule in rules:
        if rule.fits(subject):
            return rule
        is_partly_allowed |= rule.verdict is Verdict.ALLOW and rule.names(subject)
    return ask(subject.tool) if is_partly_allowed else None


def strictest(
    policies: Iterable[Iterable[ApprovalRule]], subject: Subject
) -> ApprovalRule | None:
    """Return what the rules of everybody above say together; None lets a call pass."""
    decided = [rule for rules in policies if (rule := ruling(rules, subject))]
    if not decided:
        return None
    verdict = max(rule.verdict for rule in decided)
    asked = [rule for rule in decided if rule.verdict is verdict]
    # Whoever allows the shortest time to think has the last word on that, too.
    return min(asked, key=lambda rule: rule.seconds)


class Gate(Protocol):
    """Decides about a call before it is run."""

    async def admit(self, call: ToolCall) -> None:
        """Return when a call may be run, or say in a `ToolError` why it may not."""
        ...

    def is_held(self, call: ToolCall) -> bool:
        """Tell of a call that a crash left open whether it was still waiting here."""
        ...
