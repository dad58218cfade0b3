"""Every place in our code that starts a process, with what holds that process.

An agent may have written what a process reads, imports or obeys. So a new place fails here until
it is in the list, with its sandbox or the reason why it needs none.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("agents", "delegation", "orchestrator")
STARTS: Final = re.compile(
    r"""(trio|anyio)\.(run_process|open_process|lowlevel\.open_process)
    |subprocess\.(run|Popen|call|check_call|check_output|getoutput|getstatusoutput)
    |asyncio\.(create_)?subprocess\w*
    |os\.(exec\w+|spawn\w+|posix_spawn\w*|fork|forkpty|system|popen|startfile)
    |pty\.(fork|spawn)|_posixsubprocess\.\w+
    |multiprocessing\b.*|concurrent\.futures\.(process\.)?ProcessPoolExecutor
    |concurrent\.futures\.InterpreterPoolExecutor
    |webbrowser\.(open\w*|get)
    |mcp\.client\.stdio\b.*|pydantic_monty\.Monty""",
    re.VERBOSE,
)
LISTED: Final = {
    # What an agent, or a file in its workspace, has a part in: all of it is held.
    (
        "agents/tools/terminal/process_group.py",
        "_open_process",
        "trio.lowlevel.open_process",
    ): "commands of agents and MCP servers: in the launch of their sandbox; a server whose author"
    " says sandbox=False alone is started as it is, in an empty folder",
    (
        "orchestrator/kernel/execution/workspace/git.py",
        "Git.run",
        "trio.run_process",
    ): "git on a repository: in a sandbox that writes the repository and the worktree alone; with"
    " no backend, filters and hooks are overridden",
    # Inside of a sandbox, on the way to the command.
    (
        "agents/sandbox/launcher.py",
        "_become_command",
        "os.execve",
    ): "becomes the command after it has restricted itself",
    (
        "agents/sandbox/launcher.py",
        "_supervise",
        "os.fork",
    ): "the child restricts itself, and becomes the command",
    (
        "agents/sandbox/launcher.py",
        "main",
        "os.fork",
    ): "our own supervisor of the command, which runs no other code",
    (
        "agents/sandbox/network/listen_in_namespace.py",
        "",
        "os.execvp",
    ): "becomes the command, in its sandbox",
    (
        "orchestrator/kernel/pipelines/scripts/interpreter.py",
        "Interpreter._start",
        "pydantic_monty.Monty",
    ): "interprets a script of a model, in a language without files, network and processes; the"
    " worker is started by a closed thread: Landlock leaves it its program and the libraries of the"
    " system, and seccomp no socket",
    # Our own code and arguments, which no workspace has a part in.
    (
        "agents/sandbox/detection.py",
        "_run",
        "subprocess.run",
    ): "tries the backends themselves, by absolute paths and in an empty folder",
    (
        "agents/interpreter.py",
        "run_in_interpreter",
        "trio.run_process",
    ): "our own interpreter, isolated (-I), with our search path and no variables; it runs a"
    " function of ours",
    # Programs of the person, who asked for them.
    (
        "agents/models/http/credentials.py",
        "GcloudToken._ask",
        "trio.run_process",
    ): "gcloud of the person, which needs their login; its arguments are fixed",
    (
        "agents/secret_references.py",
        "_cached_output",
        "subprocess.Popen",
    ): "the program that a person names in a variable to print a secret: it needs their login; no"
    " shell, in the root folder",
    (
        "orchestrator/cli/server/process.py",
        "open_browser",
        "webbrowser.open",
    ): "the browser of the person, with the address of our console",
    (
        "orchestrator/cli/commands/report.py",
        "report",
        "webbrowser.open",
    ): "the browser of the person, with the report that they asked for",
    (
        "orchestrator/cli/commands/mcp_servers.py",
        "login.show_link",
        "webbrowser.open",
    ): "the browser of the person, who logs in to a server that they named",
}
"""By file, function and what starts the process."""


def test_every_start_of_a_process_is_listed_with_its_confinement() -> None:
    found = {
        (str(file.relative_to(ROOT)), function, name)
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for function, name in starts_in(ast.parse(file.read_text()))
    }

    assert found == {*LISTED}


def test_a_process_is_found_however_it_is_imported() -> None:
    code = """
import os, subprocess as sub
from trio import lowlevel, run_process
from webbrowser import open as show

class Runner:
    async def run(self):
        await run_process(["a"])
        await lowlevel.open_process(["b"])
        work(sub.Popen, os.execvp)

def others():
    from os import posix_spawn
    show("c")
    posix_spawn("d", ["d"], {})

os.getpid()
"""

    assert sorted(starts_in(ast.parse(code))) == [
        ("Runner.run", "os.execvp"),
        ("Runner.run", "subprocess.Popen"),
        ("Runner.run", "trio.lowlevel.open_process"),
        ("Runner.run", "trio.run_process"),
        ("others", "os.posix_spawn"),
        ("others", "webbrowser.open"),
    ]


def starts_in(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the functions of a module that name what starts a process, with that name."""
    imported = dict(_imported(tree))

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
        for child in ast.iter_child_nodes(node):
            inner = function
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{function}.{child.name}".lstrip(".")
            if STARTS.fullmatch(name := _full_name(child, imported)):
                yield inner, name
            else:
                yield from walk(child, inner)

    yield from walk(tree, "")


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield what each imported name stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for it in node.names:
                top = it.name.partition(".")[0]
                yield it.asname or top, it.name if it.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            for it in node.names:
                yield it.asname or it.name, f"{node.module}.{it.name}"


def _full_name(node: ast.AST, imported: dict[str, str]) -> str:
    """Return what an expression names, such as `os.fork`; nothing if it names nothing."""
    match node:
        case ast.Name(id=name):
            return imported.get(name, "")
        case ast.Attribute(value=value, attr=name):
            above = _full_name(value, imported)
            return f"{above}.{name}" if above else ""
        case _:
            return ""
