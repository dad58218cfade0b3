"""The evidence of a task: facts about its effects, from the answers of its tools.

A model may claim more than it did. The parent of a task reads the evidence next to the output.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

import msgspec

from orchestrator.agents.errors import RefusedBy
from orchestrator.agents.messages import AssistantMessage, CallId, Message, ToolMessage
from orchestrator.agents.tools.context import redact_secrets

MOST: Final = 50
"""How many entries of each kind are recorded."""
SHOWN: Final = 5
"""How many entries of each kind a parent reads."""
SHOWN_CHARACTERS: Final = 160
LARGE: Final = 1_000_000
"""Files of more bytes are not compared with their earlier content."""
UNKNOWN: Final = "unknown"
DELEGATION_TOOLS: Final = frozenset({"delegate_task", "task", "ask_parent", "board"})
TEST_COMMAND: Final = re.compile(
    r"\b(pytest|unittest|tox|nox|jest|vitest|mocha|rspec|phpunit|ctest)\b"
    r"|\b(make|npm|pnpm|yarn|cargo|go|mvn|gradle|dotnet|bun|deno|just)\s+(run\s+)?test"
)


class FileChange(msgspec.Struct, frozen=True, tag="file", omit_defaults=True):
    """A file that a task has written."""

    path: str
    after: str
    """The beginning of the SHA-256 of its content."""
    before: str = ""
    """The same of its content before; empty if the file is new, `unknown` if it was large."""
    added: int = 0
    """How many lines are in it that were not."""
    removed: int = 0

    def __str__(self) -> str:
        verb = "changed" if self.before else "created"
        return f"{verb} {self.path} (+{self.added} -{self.removed} lines, sha256 {self.after})"


class CommandRun(msgspec.Struct, frozen=True, tag="command", omit_defaults=True):
    """A command that a task has run."""

    command: str
    exit_code: int | None = None
    """None if its end is not known."""
    id: str = ""
    """The id of a background command."""
    is_test: bool = False
    """It runs tests, judged by its name."""

    def __str__(self) -> str:
        end = "it did not end" if self.exit_code is None else f"exit code {self.exit_code}"
        return f"ran `{self.command}`{' (tests)' if self.is_test else ''}: {end}"


class FailedCall(msgspec.Struct, frozen=True):
    """A call whose tool failed, or did not run."""

    tool: str
    error: str


class UnsuccessfulChild(msgspec.Struct, frozen=True):
    """A child that did not succeed."""

    path: str
    ending: str
    """How it ended; empty if it had not ended before its parent."""


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts about the effects of a task. Each list has at most 50 entries."""

    calls: dict[str, int] | None = None
    """How often it called each tool; None if it had no tools."""
    files: tuple[FileChange, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    failed: tuple[FailedCall, ...] = ()
    """The calls that failed."""
    denied: tuple[FailedCall, ...] = ()
    """The calls that a rule or a person denied."""
    children: tuple[UnsuccessfulChild, ...] = ()
    """The children that did not succeed."""
    unused: tuple[str, ...] = ()
    """The effects that its tools allow, and that no call had: `write`, `command`."""
    left_out: int = 0
    """How many entries are left out of the lists."""

    @property
    def tests(self) -> tuple[CommandRun, ...]:
        """The commands that run tests, judged by their names."""
        return tuple(it for it in self.commands if it.is_test)

    def lines(self, most: int = SHOWN) -> list[str]:
        """Return it as sentences; `most` limits the sentences of each kind."""
        lines: list[str] = []
        if self.calls is not None:
            counts = ", ".join(f"{tool} {count}" for tool, count in self.calls.items())
            lines.append(f"tool calls: {counts}" if counts else "it called none of its tools")
        unused = {"write": "it wrote no file with its tools", "command": "it ran no command"}
        lines += [unused[it] for it in self.unused]
        left = self.left_out
        for entries in (
            [*map(str, self.files)],
            [*map(str, self.commands)],
            [f"{it.tool} failed: {it.error}" for it in self.failed],
            [f"{it.tool} was denied: {it.error}" for it in self.denied],
            [f"{it.path} {_ended(it.ending)}" for it in self.children],
        ):
            # The last ones count: a command that failed at first may have succeeded later.
            lines += [_short(entry) for entry in entries[-most:]]
            left += max(0, len(entries) - most)
        return [*lines, f"{left} more"] if left else lines


Effect: TypeAlias = FileChange | CommandRun


def _ended(ending: str) -> str:
    return f"ended as {ending}" if ending else "had not ended"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 1]}…"


def file_change(
    path: str, before: bytes | None, after: bytes, *, is_new: bool = False
) -> Mapping[str, Any]:
    """Return the evidence of a written file; `before` is None if the file is new, or large."""
    old = "" if is_new else UNKNOWN if before is None else _digest(before)
    added = removed = 0
    if old != UNKNOWN and max(len(before or b""), len(after)) <= LARGE:
        was, now = Counter((before or b"").splitlines()), Counter(after.splitlines())
        added, removed = (now - was).total(), (was - now).total()
    return effect_fields(FileChange(path, _digest(after), old, added=added, removed=removed))


def command_run(command: str, exit_code: int | None, *, id: str = "") -> Mapping[str, Any]:  # noqa: A002
    """Return the evidence of a command."""
    # Redacted before it is cut: half a secret is not recognized.
    is_test = TEST_COMMAND.search(command) is not None
    shown = redact_secrets(command)[:SHOWN_CHARACTERS]
    return effect_fields(CommandRun(shown, exit_code, id, is_test))


def effect_fields(effect: Effect) -> Mapping[str, Any]:
    """Return an effect as a tool result has it."""
    plain: Mapping[str, Any] = msgspec.to_builtins(effect)
    return plain


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def evidence_of(
    messages: Iterable[Message],
    *,
    has_tools: bool,
    effects: Collection[str] = (),
    children: Sequence[UnsuccessfulChild] = (),
) -> Evidence | None:
    """Return the evidence in the messages of a task; None if there is nothing to say.

    Args:
        messages: the steps of the task.
        has_tools: the agent has tools of its own.
        effects: the effects that they allow, `write` and `command`.
        children: the children that did not succeed.
    """
    found = _Effects()
    for message in messages:
        found.add(message)
    if not has_tools and not (found.failed or found.denied or children):
        return None
    files, commands = (*found.files.values(),), (*found.commands.values(),)
    had = {"write": files, "command": commands}
    kinds: tuple[Sequence[object], ...] = (files, commands, found.failed, found.denied, children)
    return Evidence(
        dict(found.calls) if has_tools else None,
        files[-MOST:],
        commands[-MOST:],
        tuple(found.failed[-MOST:]),
        tuple(found.denied[-MOST:]),
        tuple(children[-MOST:]),
        unused=tuple(it for it in had if found.calls and it in effects and not had[it]),
        left_out=sum(max(0, len(it) - MOST) for it in kinds),
    )


class _Effects:
    """The effects of the calls in some messages."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        """How often each tool was called, without the tools of delegation."""
        self.files: dict[str, FileChange] = {}
        self.commands: dict[str, CommandRun] = {}
        self.failed: list[FailedCall] = []
        self.denied: list[FailedCall] = []
        self._names: dict[CallId, str] = {}

    def add(self, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            self._names |= {call.id: call.name for call in message.calls}
        elif isinstance(message, ToolMessage):
            name = self._names.get(message.call, "a tool")
            if name not in DELEGATION_TOOLS:
                self.calls[name] += 1
            if message.failed:
                is_denied = message.refused_by is RefusedBy.APPROVAL
                calls = self.denied if is_denied else self.failed
                calls.append(FailedCall(name, _short(message.text)))
            elif isinstance(message.evidence, Mapping):
                # A tool of the program may put anything there.
                with suppress(msgspec.ValidationError):
                    self._add_effect(message.call, msgspec.convert(message.evidence, Effect))

    def _add_effect(self, call: CallId, effect: Effect) -> None:
        if isinstance(effect, FileChange):
            self.files[effect.path] = _together(self.files.pop(effect.path, None), effect)
        else:
            self.commands[effect.id or f"call {call}"] = effect


def _together(first: FileChange | None, then: FileChange) -> FileChange:
    if first is None:
        return then
    added, removed = first.added + then.added, first.removed + then.removed
    return FileChange(then.path, then.after, first.before, added=added, removed=removed)


def read_evidence(recorded: object) -> Evidence | None:
    """Return recorded evidence as a value; None if there is none."""
    return msgspec.convert(recorded, Evidence) if isinstance(recorded, Mapping) else None
