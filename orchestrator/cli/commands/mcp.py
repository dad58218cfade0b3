"""`orchestrator mcp`: agents as tools of the program that starts it, over stdin and stdout."""

import os
from pathlib import Path
from typing import Annotated, Final

from cyclopts import App, Parameter

from orchestrator.cli.agent_file import load_agents
from orchestrator.cli.commands.mcp_servers import list_, login, logout, probe
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import JournalOption, TeamFile, journals_of
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.server.journal_opener import JournalOpener
from orchestrator.cli.signals import AllOrchestrators, Stop, run_stoppable
from orchestrator.cli.trust import TrustOption
from orchestrator.ports.journals import local_actor
from orchestrator.products.mcp.lines import take_stdio
from orchestrator.products.mcp.server.tools import parse_modes, tools_of

INSTALL: Final = "pip install 'delegation-orchestrator[mcp]'"

mcp = App(
    name="mcp",
    help="Serve agents as tools of MCP clients: orchestrator mcp FILE speaks MCP on stdin and"
    " stdout. The commands manage the servers whose tools agents use.",
)
mcp.command(login)
mcp.command(logout)
mcp.command(list_, name="list")
mcp.command(probe, name="test")


@mcp.default
def speak(
    file: TeamFile,
    /,
    *,
    tasks: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    workspace: Path | None = None,
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
) -> int:
    """Speak MCP on stdin and stdout: each agent is a tool of the program that starts this command.

    Only MCP is written to stdout; output of the file goes to stderr. The command ends when its
    stdin does. A task that a client polls for goes on when the command is started again.

    Args:
        tasks: Whether calls are tasks that outlive their request: forbidden, optional (the
            default: if the client can poll) or required; AGENT=MODE for one agent, repeat it for
            several.
        workspace: The folder that tools work in; by default this one.
    """
    if workspace is not None and not workspace.is_dir():
        raise CommandError(f"--workspace {workspace} is not a folder")
    try:
        # Imported late: the SDK is an extra, and slow to import.
        from orchestrator.products.mcp.server.local_caller import open_local_caller
        from orchestrator.products.mcp.server.protocol import open_protocol
        from orchestrator.products.mcp.server.stdio import serve_stdio
    except ModuleNotFoundError as exc:
        raise CommandError(f"MCP needs {exc.name}: {INSTALL}") from exc
    # Before the file runs: it may print.
    wire = take_stdio()
    agents = load_agents(file, trust=trust)
    tools = tools_of(agents, parse_modes(tasks, agents))
    journals = journals_of(journal)
    user = local_actor(os.getuid())

    async def work(stop: Stop) -> int:
        opener = JournalOpener(
            journals=journals,
            workspace=workspace,
            sandbox=await choose_sandbox(sandbox, agents.values()),
        )
        async with open_local_caller(journals, opener.open, agents, user) as (
            caller,
            orchestrators,
        ):
            stop.set_orchestrator(AllOrchestrators(orchestrators))
            with stop.end_wait_on_signal():
                await serve_stdio(open_protocol(tools, lambda _: caller), wire)
            await stop.wait_drained()
        return 0

    return run_stoppable(work)
