"""`orchestrator acp`: a team in an editor, over the Agent Client Protocol on stdin and stdout."""

from typing import Final

import trio

from orchestrator.cli.agent_file import load_agent
from orchestrator.cli.journal_queries import read_runs
from orchestrator.cli.options import AnyAgentFile, JournalOption, journals_of
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.server.journal_opener import JournalOpener
from orchestrator.cli.signals import AllOrchestrators, Stop, run_stoppable
from orchestrator.cli.trust import TrustOption
from orchestrator.products.acp.team import Served, serve_editor
from orchestrator.products.mcp.lines import take_stdio

NEWEST: Final = 500
"""The number of runs among which the sessions of editors are listed."""


def acp(
    file: AnyAgentFile,
    /,
    *,
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
) -> int:
    """Speak the Agent Client Protocol on stdin and stdout: an editor starts this command.

    Zed, JetBrains IDEs, Neovim and Emacs talk to the agent with its whole team. Only messages are
    written to stdout; output of the file goes to stderr. The command ends when its stdin does, and
    the sessions go on when the editor loads them again.
    """
    # Before the file runs: it may print.
    wire = take_stdio()
    agent = load_agent(file, trust=trust)
    journals = journals_of(journal)

    async def work(stop: Stop) -> int:
        opener = JournalOpener(
            journals=journals, workspace=None, sandbox=await choose_sandbox(sandbox, [agent])
        )
        served = Served(
            agent=agent,
            journals=journals,
            open_orchestrator=opener.open,
            list_runs=lambda: read_runs(journals, newest=NEWEST).shown,
            orchestrators=[],
            end_wait_on_signal=stop.end_wait_on_signal,
            wait_drained=stop.wait_drained,
        )
        stop.set_orchestrator(AllOrchestrators(served.orchestrators))
        async with (
            trio.lowlevel.FdStream(wire.stdin) as stdin,
            trio.lowlevel.FdStream(wire.stdout) as stdout,
        ):
            await serve_editor(served, stdin, stdout)
        return 0

    return run_stoppable(work)
