"""Tool calls as an editor shows them: their kinds, titles, files and diffs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from orchestrator.agents import ToolCall
from orchestrator.delegation import TaskId, one_line, printable
from orchestrator.products.acp import schema

DELEGATE_TASK: Final = "delegate_task"
KINDS: Final[Mapping[str, schema.ToolKind]] = {
    "read_file": "read",
    "write_file": "edit",
    "edit_file": "edit",
    "list_files": "search",
    "search_files": "search",
    "terminal": "execute",
    "process": "execute",
    "run_script": "execute",
    DELEGATE_TASK: "think",
    "task": "think",
    "ask_parent": "think",
    "board": "think",
}
"""The kinds of the tools of this library; any other tool is `other`."""
LONGEST_TITLE: Final = 120
LONGEST_RESULT: Final = 20_000
"""How many characters of an answer an editor is shown; the journal has all of it."""


def call_id(task: TaskId, call: str) -> str:
    """Return the id of a call in its session: ids of calls are unique in their task alone."""
    return f"{task}/{call}"


def show_call(task: TaskId, call: ToolCall, cwd: Path, name: str = "") -> schema.CallBegun:
    """Return a call that begins; `name` is the task that an editor without subagents is told."""
    arguments = call.arguments
    words = (value for value in arguments.values() if isinstance(value, str))
    title = short_title(f"{call.name} {next(words, '')}".strip(), name)
    path = arguments.get("path")
    locations: tuple[schema.Location, ...] = ()
    content: tuple[schema.Diff, ...] = ()
    if isinstance(path, str) and call.name in KINDS:
        place = str(cwd / path)
        line = arguments.get("offset")
        locations = (schema.Location(path=place, line=line if isinstance(line, int) else None),)
        diff = _diff(call.name, place, arguments)
        content = () if diff is None else (diff,)
    return schema.CallBegun(
        tool_call_id=call_id(task, call.id),
        title=title,
        name=call.name,
        kind=KINDS.get(call.name, "other"),
        status="in_progress",
        content=content,
        locations=locations,
        raw_input=arguments,
    )


def _diff(tool: str, path: str, arguments: Mapping[str, Any]) -> schema.Diff | None:
    """Return the change that a call makes to a file; None if it makes none."""
    match tool, arguments:
        case "write_file", {"content": str(new)}:
            return schema.Diff(path=path, new_text=new)
        case "edit_file", {"old": str(old), "new": str(new)}:
            return schema.Diff(path=path, old_text=old, new_text=new)
        case _:
            return None


def show_result(begun: schema.CallBegun, text: str, *, failed: bool) -> schema.CallChanged:
    """Return a call that has ended. A diff stays, unless the change has failed."""
    shown = () if begun.content and not failed else (show_text(text),)
    return schema.CallChanged(
        tool_call_id=begun.tool_call_id, status="failed" if failed else "completed", content=shown
    )


def show_text(text: str) -> schema.Content:
    """Return a text as content of a call, cut if it is long."""
    if len(text) > LONGEST_RESULT:
        text = f"{text[:LONGEST_RESULT]}\n… {len(text) - LONGEST_RESULT:,} more characters"
    return schema.Content(content=schema.Text(text=text))


def show_question(begun: schema.CallBegun, why: str) -> schema.CallFields:
    """Return a call whose approval is asked for, and why."""
    content = (*begun.content, show_text(why)) if why else begun.content
    fields = msgspec.structs.asdict(replace(begun, status="pending", content=content))
    return schema.CallFields(**fields)


def short_title(text: str, name: str = "") -> str:
    """Return a title on one line, after the name of a task."""
    title = one_line(printable(text))
    title = title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1]}…"
    return f"{name}: {title}" if name else title
