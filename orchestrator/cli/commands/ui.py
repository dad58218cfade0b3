"""`orchestrator ui`: serve the agents of a file on this machine, and open the console."""

from pathlib import Path

from orchestrator.cli.commands.serve import serve
from orchestrator.cli.options import BrowserOption, JournalOption, LanguageModelOption, TeamFile
from orchestrator.cli.sandbox_line import SandboxOption
from orchestrator.cli.server.options import (
    FOREVER,
    ConsoleOptions,
    ListenOptions,
    RetentionOptions,
    ServeOptions,
)
from orchestrator.cli.trust import TrustOption


def ui(
    file: TeamFile,
    /,
    *,
    port: int = 8642,
    view: bool = False,
    browser: BrowserOption = True,
    workspace: Path | None = None,
    language_model: LanguageModelOption = (),
    journal: JournalOption = None,
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
) -> int:
    """Open the console in a browser: watch, steer, stop, chat and approve.

    This is `orchestrator serve` on this machine, with a link that signs your browser in. The
    command prints the link, too.

    Args:
        port: The port to listen at; 0 takes a free one.
        view: Make the console read-only.
        workspace: The folder that tools work in; by default this one.
    """
    options = ServeOptions(
        listen=ListenOptions(port=port),
        workspace=workspace,
        language_model=language_model,
        console=ConsoleOptions(view=view, browser=browser),
        # A person who looks at old runs wants to keep them.
        kept=RetentionOptions(keep=FOREVER),
        journal=journal,
        sandbox=sandbox,
        trust=trust,
    )
    return serve(file, options=options)
