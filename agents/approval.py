"""What an agent may do without asking: rules about its tools, and what they say of a call.

Of an agent's rules the first that fits decides. Of the rules of all agents above, the strictest
decides: whoever works for another may be allowed less, never more.
"""

import enum
import math
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase, translate
from typing import Final

import attrs

from agents.errors import DefinitionError
from agents.runtime_types import has_type

ASK_SECONDS: Final = 600.0
"""How long somebody may think about it, if the rule does not say."""

# What makes a line of shell more than one plain command, or another than it looks.
OPERATORS: Final = re.compile(r"[;&|<>()`$\\{}\x00-\x08\x0a-\x1f\x7f]")
_BLANKS: Final = " \t"
# Where another command may begin, or stand quoted.
_PIECES: Final = re.compile(r"[;&|()`\n\r{}\"'#<>]")
# What a shell reads as nothing.
_QUOTES: Final = re.compile(r"\\\n|[\\\"']")
# Words that come before a command, and folders that it lies in.
_BEGIN: Final = r"(?:\A|(?<=[\s/=]))"
# What a translated pattern ends with.
_TO_THE_END: Final = translate("")[-2:]
# A pattern up to its first star; that in brackets is none.
_UP_TO_A_STAR: Final = re.compile(r"(?:\[!?\]?[^\]]*\]|[^*])*")


class Verdict(enum.IntEnum):
    """What becomes of a call. The greater is the stricter."""

    ALLOW = 0
    ASK = 1
    DENY = 2


@attrs.frozen(kw_only=True)
class Subject:
    """What a call is about, as the rules look at it."""

    tool: str
    command: str | None = None
    path: str | None = None
    """Relative to the workspace, where it is inside."""
    real_path: str | None = None
    """The same file by its whole name."""


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
        if not (has_type(self.tool, str) and self.tool):
            raise DefinitionError("a rule about approval names a tool, or '*' for all")
        if not (has_type(self.seconds, int, float) and 0 < self.seconds < math.inf):
            raise self._wrong(f"{self.seconds!r} seconds are no time to think")
        for name, pattern in (("command", self.command), ("path", self.path)):
            if pattern is not None and not (has_type(pattern, str) and pattern.strip()):
                raise self._wrong(f"{name}={pattern!r} is no pattern; '*' is all")
        if self.path is not None and not _is_workspace_pattern(self.path):
            raise self._wrong(
                f"no file is called {self.path!r}: say it from the workspace on, without"
                " '~', '.' and '..', such as 'docs/*'"
            )

    def _wrong(self, problem: str) -> DefinitionError:
        return DefinitionError(f"a rule about {self.tool!r}: {problem}")

    def covers_tool(self, subject: Subject) -> bool:
        """Tell whether it is about some calls of that tool."""
        return fnmatchcase(subject.tool, self.tool)

    def matches(self, subject: Subject) -> bool:
        return (
            self.covers_tool(subject)
            and self._matches_command(subject.command)
            and self._matches_path(subject.path, subject.real_path)
        )

    def _matches_command(self, command: str | None) -> bool:
        if self.command is None:
            return True
        if command is None:
            return False
        if self.verdict is Verdict.ALLOW:
            return _matches_plain_command(command, self.command)
        return any(map(_ending_in(self.command).search, _pieces(command)))

    def _matches_path(self, *names: str | None) -> bool:
        if self.path is None:
            return True
        known = [name for name in names if name is not None]
        if self.verdict is Verdict.ALLOW:
            return any(fnmatchcase(name, self.path) for name in known)
        # There are disks to which great and small letters are the same, and whoever looks
        # through a folder sees what is in it.
        path = self.path.casefold()
        known = [name.casefold() for name in known]
        return any(fnmatchcase(it, path) for name in known for it in (name, f"{name}/"))


def _is_workspace_pattern(pattern: str) -> bool:
    if pattern.startswith("~") or pattern.endswith("/"):
        return False
    return pattern == "." or not {".", ".."} & {*pattern.split("/")}


def _matches_plain_command(command: str, pattern: str) -> bool:
    """Tell whether a command is like a pattern, and no shell makes more of it."""
    command = command.strip(f"{_BLANKS}\n")
    if OPERATORS.search(command):
        return False
    if not _QUOTES.search(command):
        # Only what a shell takes for a space is one, and only outside of quotes.
        command = " ".join(re.split(f"[{_BLANKS}]+", command))
    return fnmatchcase(command, pattern)


def _pieces(command: str) -> Iterator[str]:
    """Yield a command line and all of it that may be a command of its own."""
    for said in (command, _QUOTES.sub("", command)):
        for piece in (said, *_PIECES.split(said)):
            if words := piece.split():
                yield " ".join(words)


def _ending_in(pattern: str) -> re.Pattern[str]:
    """Return what finds commands that end in what is like a pattern, from some word on."""
    pattern = " ".join(pattern.split())
    found = _UP_TO_A_STAR.match(pattern)
    assert found is not None, "there may be nothing before it"
    fixed, rest = found[0], pattern[found.end() :]
    if not rest:
        return re.compile(f"{_BEGIN}{translate(fixed)}", re.IGNORECASE)
    # Where it begins first is enough: the star takes whatever comes before the next beginning.
    # So this takes no longer than reading it.
    begin = f"{_BEGIN}{translate(fixed)[: -len(_TO_THE_END)]}"
    return re.compile(rf"\A(?s:(?>.*?{begin})){translate(rest)}", re.IGNORECASE)


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


def matching_rule(
    rules: Iterable[ApprovalRule], subject: Subject
) -> ApprovalRule | None:
    """Return the rule that decides about a call; None lets it pass."""
    is_partly_allowed = False
    for rule in rules:
        if rule.matches(subject):
            return rule
        is_partly_allowed |= rule.verdict is Verdict.ALLOW and rule.covers_tool(subject)
    return ask(subject.tool) if is_partly_allowed else None


def strictest_rule(
    policies: Iterable[Iterable[ApprovalRule]], subject: Subject
) -> ApprovalRule | None:
    """Return what the rules of everybody above say together; None lets a call pass."""
    decided = [rule for rules in policies if (rule := matching_rule(rules, subject))]
    if not decided:
        return None
    verdict = max(rule.verdict for rule in decided)
    asked = [rule for rule in decided if rule.verdict is verdict]
    # Whoever allows the shortest time to think has the last word on that, too.
    return min(asked, key=lambda rule: rule.seconds)
