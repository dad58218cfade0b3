"""The tools that a file can name: ours, the program's, and the names of Claude Code."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final

from orchestrator.agents import Tool
from orchestrator.agents.nearest_name import did_you_mean
from orchestrator.products.agent_files.located import Located

ALL: Final = "*"
CLAUDE_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "Read": ("read_file",),
    "Write": ("write_file",),
    "Edit": ("edit_file",),
    "MultiEdit": ("edit_file",),
    "Grep": ("search_files",),
    "Glob": ("list_files",),
    "LS": ("list_files",),
    "Bash": ("terminal", "process"),
    "BashOutput": ("process",),
    "KillShell": ("process",),
    "KillBash": ("process",),
}
"""The names of Claude Code's tools, and our tools that do the same."""
DELEGATION_NAMES: Final = frozenset({"Task", "Agent", "delegate_task"})
"""The names of the delegation tool, which the delegates of an agent bring."""
BROUGHT_TOOLS: Final = (
    *("delegate_task", "task", "ask_parent", "board", "job", "read_skill", "memory"),
)
"""The tools that other keys bring: delegates, copies, asks_parent, board, schedules, skills and
memory."""
PATTERN_SIGNS: Final = frozenset("*?[")
WITHOUT_COUNTERPART: Final = frozenset(
    {
        *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode", "LSP", "Monitor"),
        *("NotebookEdit", "NotebookRead", "SendMessage", "Skill", "SlashCommand"),
        *("TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop", "TaskUpdate"),
        *("TodoRead", "TodoWrite", "ToolSearch", "WebFetch", "WebSearch"),
    }
)
"""Tools of Claude Code without a counterpart here."""


class ToolNames:
    """Finds tools by the names that files give them."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        # Imported late: a program that loads no file needs none of them.
        from orchestrator.agents.tools.files import FILES
        from orchestrator.agents.tools.terminal import process, terminal

        self._shipped = {tool.name: tool for tool in (*FILES, terminal, process)}
        self._known = {**self._shipped, **{tool.name: tool for tool in tools}}

    def find(self, name: Located) -> tuple[Tool, ...]:
        """Return the tools of a name, or raise with the nearest one."""
        text = name.as_text("a tool")
        if text == ALL:
            return tuple(self._known.values())
        # A tool of the program goes before one that ships, whatever it is called elsewhere.
        if text in self._known:
            return (self._known[text],)
        if text in CLAUDE_NAMES:
            return tuple(self._known[ours] for ours in CLAUDE_NAMES[text])
        raise name.error(self._unknown(text))

    def in_rule(self, name: Located) -> list[str]:
        """Return the names of ours, or the pattern, that an approval rule means."""
        text = name.as_text("a tool")
        # In Claude Code, parentheses have the commands that a rule is about.
        if PATTERN_SIGNS.intersection(text) and "(" not in text:
            self._require_match(name, text)
            return [text]
        if text in BROUGHT_TOOLS:
            return [text]
        if text in DELEGATION_NAMES and text not in self._known:
            return [BROUGHT_TOOLS[0]]
        return [tool.name for tool in self.find(name)]

    def _require_match(self, name: Located, pattern: str) -> None:
        """Refuse a pattern that matches no call; one of Claude Code's names does not."""
        known = sorted({*self._known, *BROUGHT_TOOLS})
        if not any(fnmatchcase(it, pattern) for it in known):
            name.refuse(
                f"no tool is called like {pattern!r}; a pattern is one of these names:"
                f" {', '.join(known)}"
            )

    def _unknown(self, text: str) -> str:
        bare, parenthesis, _ = text.partition("(")
        if parenthesis and (bare in self._known or bare in CLAUDE_NAMES):
            return (
                f"{text!r} is a tool and a rule: write {bare!r} under tools, and the rule under"
                " approve, such as '- confirm: terminal' with 'command: git push*'"
            )
        if text in WITHOUT_COUNTERPART:
            return (
                f"there is no tool like Claude Code's {text!r} here: remove it, or give the"
                f" function in Python: load_agents(..., tools=[...]) with a tool named {text!r}"
            )
        if text.startswith("mcp__"):
            return (
                f"{text!r} is a tool of an MCP server, and a file names no servers: remove it, or"
                " give the tool in Python: load_agents(..., tools=[...])"
            )
        known = did_you_mean(text, {*self._known, *CLAUDE_NAMES})
        return f"there is no tool {text!r}; {known}"
