"""Approval rules: which tool calls of an agent are allowed, asked about or denied.

Of the rules of one agent the first that matches decides. Of the verdicts of an agent and all its
ancestors, the strictest decides: a child may be allowed less than its parent, never more. A rule
with `for_children=False` decides about the calls of its own agent only.
"""

import enum
import math
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase, translate
from typing import Final

import attrs
import msgspec

from orchestrator.agents.errors import DefinitionError
from orchestrator.agents.type_checks import has_type
from orchestrator.lazy_pattern import lazy_pattern

ESTIMATED: Final = ("delegate_task", "run_script")
"""The tools whose tasks can be estimated before they start."""
CONFIRM_SECONDS: Final = 600.0
"""How long a question stays open by default."""

# With these, a line of shell is more than one plain command, or another than it looks.
OPERATORS: Final = lazy_pattern(r"[;&|<>()`$\\{}\x00-\x08\x0a-\x1f\x7f]")
_BLANKS: Final = " \t"
# Where another command may begin, or be quoted.
_SEPARATORS: Final = lazy_pattern(r"[;&|()`\n\r{}\"'#<>]")
# A shell removes these.
_QUOTES: Final = lazy_pattern(r"\\\n|[\\\"']")
# A command may follow other words, or the path of its folder.
_COMMAND_START: Final = r"(?:\A|(?<=[\s/=]))"
# The end of a translated pattern.
_PATTERN_END: Final = translate("")[-2:]
# A pattern up to its first star; one in brackets does not count.
_UP_TO_A_STAR: Final = lazy_pattern(r"(?:\[!?\]?[^\]]*\]|[^*])*")


class Verdict(enum.IntEnum):
    """The decision about a call. A greater value is stricter."""

    ALLOW = 0
    CONFIRM = 1
    DENY = 2


class Subject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The parts of a call that rules match."""

    tool: str
    command: str | None = None
    path: str | None = None
    """Relative to the workspace, if it is inside."""
    real_path: str | None = None
    """The absolute path of the same file."""


@attrs.frozen(kw_only=True)
class ApprovalRule:
    """A verdict about matching calls. Made by `allow`, `confirm` and `deny`."""

    verdict: Verdict
    tool: str
    """The name of a tool, or a pattern. `*` matches anything in all patterns here."""
    command: str | None = None
    """A pattern of command lines; None is all."""
    path: str | None = None
    """A pattern of files; None is all. `*` matches `/` as well."""
    seconds: float = CONFIRM_SECONDS
    """How long the question stays open."""
    reason: str = ""
    """The reason: the model reads it after a denial, and people read it with the question."""
    for_children: bool = True
    """Whether the rule also decides about the calls of all descendants."""
    above_usd: float | None = None
    """The rule is about batches of tasks with a higher estimate; None is all calls."""

    def __attrs_post_init__(self) -> None:
        if not (has_type(self.tool, str) and self.tool):
            raise DefinitionError("a rule about approval names a tool, or '*' for all")
        if not (has_type(self.seconds, int, float) and 0 < self.seconds < math.inf):
            raise self._definition_error(
                f"seconds={self.seconds!r} must be more than 0, and finite"
            )
        if not has_type(self.for_children, bool):
            raise self._definition_error(f"for_children={self.for_children!r} is not True or False")
        if self.above_usd is not None and not (
            has_type(self.above_usd, int, float) and 0 <= self.above_usd < math.inf
        ):
            raise self._definition_error(f"above_usd={self.above_usd!r} is no amount of dollars")
        if self.above_usd is not None and not any(fnmatchcase(it, self.tool) for it in ESTIMATED):
            raise self._definition_error(
                f"above_usd is for {' and '.join(ESTIMATED)}: their tasks are estimated"
            )
        for name, pattern in (("command", self.command), ("path", self.path)):
            if pattern is not None and not (has_type(pattern, str) and pattern.strip()):
                raise self._definition_error(f"{name}={pattern!r} is not a pattern; '*' is all")
        if self.path is not None and not _is_workspace_pattern(self.path):
            raise self._definition_error(
                f"no file is called {self.path!r}: write a path inside the workspace, without"
                " '~', '.' and '..', such as 'docs/*'"
            )

    def _definition_error(self, problem: str) -> DefinitionError:
        return DefinitionError(f"a rule about {self.tool!r}: {problem}")

    def covers_tool(self, subject: Subject) -> bool:
        """Return whether the rule is about calls of that tool."""
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
        # Some file systems ignore case, and a tool that searches a folder reads its files.
        path = self.path.casefold()
        known = [name.casefold() for name in known]
        return any(fnmatchcase(spelling, path) for name in known for spelling in (name, f"{name}/"))


def _is_workspace_pattern(pattern: str) -> bool:
    if pattern.startswith("~") or pattern.endswith("/"):
        return False
    return pattern == "." or not {".", ".."} & {*pattern.split("/")}


def _matches_plain_command(command: str, pattern: str) -> bool:
    """Return whether a command matches a pattern, and is one plain command to a shell."""
    command = command.strip(f"{_BLANKS}\n")
    if OPERATORS.search(command):
        return False
    if not _QUOTES.search(command):
        # Only blanks of the shell separate words, and only outside of quotes.
        command = " ".join(re.split(f"[{_BLANKS}]+", command))
    return fnmatchcase(command, pattern)


def _pieces(command: str) -> Iterator[str]:
    """Yield a command line, and every part that may be a command of its own."""
    for line in (command, _QUOTES.sub("", command)):
        for piece in (line, *_SEPARATORS.split(line)):
            if words := piece.split():
                yield " ".join(words)


def _ending_in(pattern: str) -> re.Pattern[str]:
    """Return an expression that matches commands by their last words."""
    pattern = " ".join(pattern.split())
    found = _UP_TO_A_STAR.match(pattern)
    assert found is not None, "the expression matches the empty string"
    fixed, rest = found[0], pattern[found.end() :]
    if not rest:
        return re.compile(f"{_COMMAND_START}{translate(fixed)}", re.IGNORECASE)
    # The first start is enough: the star absorbs the text before the next one. So the search takes
    # linear time.
    begin = f"{_COMMAND_START}{translate(fixed)[: -len(_PATTERN_END)]}"
    return re.compile(rf"\A(?s:(?>.*?{begin})){translate(rest)}", re.IGNORECASE)


def allow(tool: str, *, command: str | None = None, path: str | None = None) -> ApprovalRule:
    """Allow calls. If only some calls of a tool are allowed, the others are asked about.

    Args:
        tool: the name of a tool, or a pattern such as `"*_file"`.
        command: a pattern of command lines, such as `"git status*"`. It matches plain commands
            only: a line with `;`, `|`, `&&`, `$(...)` or redirections does more.
        path: a pattern of files, relative to the workspace.
    """
    return ApprovalRule(verdict=Verdict.ALLOW, tool=tool, command=command, path=path)


def confirm(
    tool: str,
    *,
    command: str | None = None,
    path: str | None = None,
    seconds: float = CONFIRM_SECONDS,
    for_children: bool = True,
    above_usd: float | None = None,
) -> ApprovalRule:
    """Let a person decide. Without a person who can, or without an answer, the call is denied.

    Args:
        tool: the name of a tool, or a pattern.
        command: a pattern of command lines; it also matches a part of the line.
        path: a pattern of files, relative to the workspace.
        seconds: how long to wait for the answer.
        for_children: whether the rule also holds for all descendants of the agent.
        above_usd: only for `delegate_task` and `run_script`: the person decides if the tasks of a
            call are estimated to cost more than this, or their price is unknown.
    """
    return ApprovalRule(
        verdict=Verdict.CONFIRM,
        tool=tool,
        command=command,
        path=path,
        seconds=seconds,
        for_children=for_children,
        above_usd=above_usd,
    )


def deny(
    tool: str,
    *,
    command: str | None = None,
    path: str | None = None,
    reason: str = "",
    for_children: bool = True,
) -> ApprovalRule:
    """Deny calls.

    A shell has many ways to write one command, so a pattern of commands is a fence and not a wall.
    To exclude a command for certain, use `allow` for the permitted ones.

    Args:
        tool: the name of a tool, or a pattern.
        command: a pattern of command lines; it also matches a part of the line.
        path: a pattern of files, relative to the workspace.
        reason: the text that the model reads.
        for_children: whether the rule also holds for all descendants of the agent.
    """
    return ApprovalRule(
        verdict=Verdict.DENY,
        tool=tool,
        command=command,
        path=path,
        reason=reason,
        for_children=for_children,
    )


def default_rule(tool: str, use: str | None, *, is_wall: bool) -> ApprovalRule | None:
    """Return the rule for a call where neither the agent nor one above it has rules; None allows
    it.

    Reads are allowed; so are writes and commands, where a wall holds them inside the sandbox of
    their task (`is_wall`). A job that comes again is asked about even if the agent has other rules.
    """
    match use:
        case None | "read":
            return None
        case "write" | "command" if is_wall:
            return None
        case "write" | "command":
            why = "commands are not sandboxed here"
        case "job":
            why = "a job comes again and again, unless a rule allows that"
            return attrs.evolve(confirm(tool), reason=why)
        case _:
            why = "this tool acts on the machine"
    return attrs.evolve(confirm(tool), reason=f"this agent has no approve rules, and {why}")


def inherited_rules(rules: tuple[ApprovalRule, ...]) -> tuple[ApprovalRule, ...]:
    """Return the rules of an agent that also decide about its descendants."""
    return tuple(rule for rule in rules if rule.for_children)


def matching_rule(rules: Iterable[ApprovalRule], subject: Subject) -> ApprovalRule | None:
    """Return the rule that decides about a call; None allows it."""
    is_partly_allowed = False
    for rule in rules:
        if rule.matches(subject):
            return rule
        is_partly_allowed |= rule.verdict is Verdict.ALLOW and rule.covers_tool(subject)
    return confirm(subject.tool) if is_partly_allowed else None


def strictest_rule(
    policies: Iterable[Iterable[ApprovalRule]], subject: Subject
) -> ApprovalRule | None:
    """Return the strictest rule of an agent and its ancestors; None allows the call."""
    decided = [rule for rules in policies if (rule := matching_rule(rules, subject))]
    if not decided:
        return None
    verdict = max(rule.verdict for rule in decided)
    asked = [rule for rule in decided if rule.verdict is verdict]
    # Of equal verdicts, the shortest time decides.
    return min(asked, key=lambda rule: rule.seconds)
