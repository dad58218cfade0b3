"""The tools `terminal`, which runs a command, and `process`, which controls background commands.

A notice is promised only where the session can receive one. Elsewhere a command ends with the turn,
and the answer says so: how to look at it before that, or to wait for it instead.
"""

import itertools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import trio

from orchestrator.agents.current_span import with_traceparent
from orchestrator.agents.errors import ToolError
from orchestrator.agents.messages import ToolCall
from orchestrator.agents.tools import tool
from orchestrator.agents.tools.context import ToolContext, current_tool_context, redact_secrets
from orchestrator.agents.tools.evidence import command_run
from orchestrator.agents.tools.files.workspace import Workspace
from orchestrator.agents.tools.result_text import ToolResult
from orchestrator.agents.tools.terminal.background import (
    BackgroundCommand,
    BackgroundCommands,
    tag_of,
)
from orchestrator.agents.tools.terminal.output_buffer import OutputBuffer
from orchestrator.agents.tools.terminal.process_group import open_command
from orchestrator.agents.tools.terminal.process_tags import new_tag

TERMINAL: Final = "terminal"
DEFAULT_SECONDS: Final = 180
MAX_SECONDS: Final = 600
"""How long a call may wait: longer commands belong in the background."""
SHOWN: Final = 15_000
"""How many characters of an output the model reads, from each end."""
TAIL: Final = 2_000
WRITE_SECONDS: Final = 10
"""The seconds that a command may take to read its input."""
LINES: Final = 200
COMMAND: Final = 200
"""How many characters of a command identify it in a list."""
SHORTEST_PREFIX: Final = 4
CONTEXT: Final = 16_000
"""How many characters before new output are searched for secrets: a private key is shorter."""

Seconds = Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)]


class RunCommand(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `terminal`."""

    command: Annotated[
        str,
        msgspec.Meta(description="a line of shell; it has no terminal, so it cannot ask anything"),
    ]
    background: Annotated[
        bool,
        msgspec.Meta(
            description="start it and go on, for servers and for what takes minutes; where"
            " nothing can be delivered after your turn it ends with the turn, as the answer says"
        ),
    ] = False
    timeout: Annotated[
        Seconds,
        msgspec.Meta(
            description="after so many seconds it is ended; what takes longer than"
            f" {MAX_SECONDS} runs in background, without one"
        ),
    ] = DEFAULT_SECONDS
    workdir: Annotated[
        str, msgspec.Meta(description="the folder it starts in, in the workspace")
    ] = "."
    notify_on_complete: Annotated[
        bool, msgspec.Meta(description="in background: be notified in a new turn when it ends")
    ] = False
    watch_patterns: Annotated[
        list[str],
        msgspec.Meta(
            description="in background: be notified in a new turn when it prints a line with one"
            " of these texts in it, and when it ends"
        ),
    ] = []


class ControlProcess(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The arguments of `process`."""

    action: Annotated[
        Literal["list", "poll", "log", "wait", "kill", "write", "submit", "close"],
        msgspec.Meta(
            description="list: all of yours; poll: how it is, and what it printed since the"
            " last poll; log: what it printed; wait: until it ends; kill: end it; write: to"
            " its input; submit: the same as a line; close: end its input"
        ),
    ]
    id: Annotated[str, msgspec.Meta(description="which one: its id, or how that begins")] = ""
    data: Annotated[str, msgspec.Meta(description="write, submit: what it is to read")] = ""
    timeout: Annotated[Seconds, msgspec.Meta(description="wait: for at most so many seconds")] = (
        DEFAULT_SECONDS
    )
    offset: Annotated[
        Annotated[int, msgspec.Meta(ge=0)] | None,
        msgspec.Meta(description="log: from this line on; the end if left out"),
    ] = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=2_000, description="log: so many lines")] = LINES


async def _terminal(call: ToolCall) -> ToolResult:
    arguments = tool.read_arguments(call, RunCommand)
    context = current_tool_context()
    if not arguments.command.strip():
        raise ToolError("terminal: say which command to run, in `command`")
    workdir = await trio.to_thread.run_sync(_folder, context, arguments.workdir)
    if arguments.background:
        answer = await _start_background(arguments, context.processes, workdir)
        evidence = command_run(arguments.command, None, id=answer["id"])
        return ToolResult(_json(answer), evidence=evidence)
    if arguments.notify_on_complete or arguments.watch_patterns:
        raise ToolError(
            "terminal: notify_on_complete and watch_patterns are for background=true; you"
            " read the output of this call anyway"
        )
    answer = await _run_to_completion(arguments, context, workdir)
    evidence = command_run(arguments.command, answer["exit_code"])
    return ToolResult(_json(answer), evidence=evidence)


def _folder(context: ToolContext, path: str) -> Path:
    workspace = Workspace(context.workspace, top=context.workspace_top)
    with workspace.find(path) as entry, entry.open_folder():
        return Path(entry.real)


async def _run_to_completion(
    arguments: RunCommand, context: ToolContext, workdir: Path
) -> Mapping[str, Any]:
    output = OutputBuffer(head=SHOWN, tail=SHOWN)
    started = trio.current_time()
    exit_code: int | None = None
    key = tool.CURRENT_CALL_KEY.get(None)
    async with open_command(
        arguments.command,
        cwd=workdir,
        environ=with_traceparent(context.environ),
        sandbox=context.sandbox,
        tag=new_tag() if key is None else tag_of(key),
        output=output,
    ) as process:
        with trio.move_on_after(arguments.timeout):
            exit_code = await process.wait()
    answer: dict[str, Any] = {
        "exit_code": exit_code,
        "output": output.text(),
        "seconds": round(trio.current_time() - started, 1),
    }
    if exit_code is None:
        answer["note"] = (
            f"It had not ended after {arguments.timeout:g} seconds, and was ended with all that it"
            " had started. What takes longer can run with background=true."
        )
    elif process.left_behind:
        answer["note"] = (
            "It left something running, which was ended with it. What is to go on runs with"
            " background=true."
        )
    if process.refused:
        answer["network"] = _refusals(process.refused)
    return answer


def _refusals(hosts: Collection[str]) -> str:
    return (
        f"Not allowed for this agent, and so not reached: {', '.join(hosts)}. Work without, or"
        " say in your answer that you need it: Sandbox(network=[...]) of the agent allows hosts."
    )


async def _start_background(
    arguments: RunCommand, processes: BackgroundCommands, workdir: Path
) -> Mapping[str, Any]:
    watch = [text for text in arguments.watch_patterns if text]
    # A session that waits for a line must be notified when no line can come any more.
    wants_notice = arguments.notify_on_complete or bool(watch)
    is_notified = wants_notice and processes.can_notify
    command = await processes.start(
        arguments.command, workdir=workdir, notify=is_notified, watch=watch if is_notified else ()
    )
    answer: dict[str, Any] = {
        "status": "running",
        "id": command.id,
        "pid": command.pid,
        "notify_on_complete": is_notified,
        "ends_with_turn": not processes.can_notify,
    }
    if is_notified and watch:
        answer["watch_patterns"] = watch
    if not processes.can_notify:
        # Whether or not a notice was asked for: "poll it later" would be a promise, too.
        key = "notify_unsupported" if wants_notice else "hint"
        answer[key] = (
            "Nothing can be delivered to you after this turn. So you will not be notified of this"
            " command, and it is ended, with all that it has started, when you give your final"
            f' answer. Before that, look at it with process(action="poll", id="{command.id}"), or'
            f' wait with process(action="wait", id="{command.id}"). What must finish can also run'
            " with background=false, and nothing can be left running for later."
        )
    elif is_notified:
        answer["note"] = (
            "It runs in the background. You will be notified in a turn of its own: go on, or end"
            " this turn."
        )
    else:
        answer["hint"] = (
            "You will not be notified when it ends. Look at it with process(action="
            f'"poll", id="{command.id}"), in this turn or in a later one: it ends with the session.'
        )
    return answer


async def _process(call: ToolCall) -> ToolResult:
    arguments = tool.read_arguments(call, ControlProcess)
    processes = current_tool_context().processes
    if arguments.action == "list":
        await trio.lowlevel.checkpoint()
        return ToolResult(_json({"processes": [_status(command) for command in processes.known()]}))
    command = _find(processes.known(), arguments.id)
    if command.unknown:
        raise ToolError(
            f"process: {command.id} cannot be reached: {command.unknown}. You will be told when it"
            " is known that it has ended."
        )
    answer = _json(await _ACTIONS[arguments.action](arguments, processes, command))
    notices = processes.notices_of(command) if arguments.action in ACTIONS_WITH_END else ()
    if not command.ended:
        return ToolResult(answer, notices)
    evidence = command_run(command.command, command.exit_code, id=command.id)
    return ToolResult(answer, notices, evidence=evidence)


def _find(known: Sequence[BackgroundCommand], id_: str) -> BackgroundCommand:
    if not id_:
        raise ToolError("process: say which command is meant, in `id`")
    found = [command for command in known if command.id == id_] or [
        command for command in known if len(id_) >= SHORTEST_PREFIX and command.id.startswith(id_)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(command.id for command in found)
        raise ToolError(f"process: {id_!r} may be any of {ids}; say more of its id")
    raise ToolError(
        f'process: you have no command {id_!r}; process(action="list") lists yours.'
        " Commands that were started before a restart of the orchestrator are gone."
    )


def _status(command: BackgroundCommand) -> dict[str, Any]:
    status: dict[str, Any] = {
        "id": command.id,
        "command": _begin(command.command),
        "status": _status_word(command),
    }
    if command.seconds is not None:
        status["seconds"] = round(command.seconds, 1)
    if command.unknown:
        status["unknown"] = command.unknown
    if command.ended:
        status |= {"exit_code": command.exit_code, "ended": command.ended}
    if command.refused:
        status["network"] = _refusals(command.refused)
    return status


def _status_word(command: BackgroundCommand) -> str:
    if command.unknown:
        return "unknown"
    return "ended" if command.ended else "running"


def _begin(command: str) -> str:
    if len(command) <= COMMAND:
        return command
    return f"{redact_secrets(command)[:COMMAND]} ..."


_Action = Callable[
    [ControlProcess, BackgroundCommands, BackgroundCommand], Awaitable[Mapping[str, Any]]
]


async def _poll(
    _: ControlProcess, processes: BackgroundCommands, command: BackgroundCommand
) -> Mapping[str, Any]:
    await trio.lowlevel.checkpoint()
    held = command.output.open_word_length()
    before, new = processes.unread(command, hold_back=held, context=CONTEXT)
    answer = {**_status(command), "new_output": _shown(_redact_new(before, new))}
    if held:
        answer["note"] = "It may be in the middle of a word, which the next poll will show."
    return answer


def _redact_new(before: str, new: str) -> str:
    """Return new output without secrets, also without the rest of one that began before."""
    redacted, whole = redact_secrets(before), redact_secrets(before + new)
    if whole == before + new:
        return new
    pairs = zip(redacted, whole, strict=False)
    alike = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
    return whole[len(list(alike)) :]


async def _log(
    arguments: ControlProcess, processes: BackgroundCommands, command: BackgroundCommand
) -> Mapping[str, Any]:
    await trio.lowlevel.checkpoint()
    shown = command.output.lines(arguments.offset, arguments.limit)
    held = command.output.open_word_length() if shown.end == shown.total else 0
    return {
        **_status(command),
        "lines": f"{shown.begin} to {shown.end} of {shown.total}",
        "output": _shown(_without_end(held, shown.text)),
    }


def _without_end(held: int, text: str) -> str:
    """Return a text without a number of characters at its end."""
    return text[: max(0, len(text) - held)]


def _shown(text: str) -> str:
    """Return the beginning and the end of a text: one line may be as long as the buffer."""
    if len(text) > 2 * SHOWN:
        # Redacted before it is cut: half a secret is not recognized.
        text = redact_secrets(text)
    left_out = len(text) - 2 * SHOWN
    if left_out <= 0:
        return text
    note = f"[{left_out} of these {len(text)} characters are left out here]"
    return f"{text[:SHOWN]}\n{note}\n{text[-SHOWN:]}"


async def _wait(
    arguments: ControlProcess, processes: BackgroundCommands, command: BackgroundCommand
) -> Mapping[str, Any]:
    await processes.wait(command, arguments.timeout)
    held = command.output.open_word_length()
    output = _without_end(held, command.output.tail_text(TAIL))
    answer = {**_status(command), "output": output}
    if not command.ended:
        answer["note"] = f"It still runs after {arguments.timeout:g} seconds."
    return answer


async def _kill(
    _: ControlProcess, processes: BackgroundCommands, command: BackgroundCommand
) -> Mapping[str, Any]:
    await processes.end(command)
    return {**_status(command), "output": command.output.tail_text(TAIL)}


async def _write(
    arguments: ControlProcess, processes: BackgroundCommands, command: BackgroundCommand
) -> Mapping[str, Any]:
    if command.ended:
        raise ToolError(f"process: {command.id} has ended, and reads nothing any more")
    if arguments.action == "close":
        await processes.close_input(command)
        return {**_status(command), "note": "Its input has ended."}
    text = arguments.data + ("\n" if arguments.action == "submit" else "")
    with trio.move_on_after(WRITE_SECONDS) as writing:
        await processes.write(command, text)
    if writing.cancelled_caught:
        raise ToolError(
            f"process: {command.id} has not read all of it in {WRITE_SECONDS} seconds; some of"
            " it may still be read"
        )
    return {**_status(command), "written": len(text)}


ACTIONS_WITH_END: Final = frozenset({"log", "wait", "kill"})
"""The actions whose answer contains the end of a command, and so consumes its notices."""
_ACTIONS: Final[Mapping[str, _Action]] = {
    "poll": _poll,
    "log": _log,
    "wait": _wait,
    "kill": _kill,
    "write": _write,
    "submit": _write,
    "close": _write,
}


def _json(answer: Mapping[str, Any]) -> str:
    return msgspec.json.encode(answer).decode()


def _machine_use(call: ToolCall) -> tool.MachineUse | None:
    # The input of a command may be a command, too.
    is_input = call.arguments.get("action") in {"write", "submit"}
    return "command" if is_input else None


terminal: Final = tool.Tool(
    name=TERMINAL,
    description="Run a command in a shell, in the workspace, and read what it prints.",
    parameters=tool.arguments_schema(RunCommand),
    run=_terminal,
    machine="command",
)
process: Final = tool.Tool(
    name="process",
    description="Look after the commands that you have started with terminal(background=true).",
    parameters=tool.arguments_schema(ControlProcess),
    run=_process,
    machine=_machine_use,
)
