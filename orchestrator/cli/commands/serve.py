"""`orchestrator serve`: serve the agents of a file over HTTP, until a signal comes."""

from typing import Final

from orchestrator.cli.agent_file import load_team
from orchestrator.cli.errors import CommandError
from orchestrator.cli.options import TeamFile
from orchestrator.cli.server.options import ServeOptions
from orchestrator.cli.signals import run_stoppable

INSTALL: Final = "pip install 'delegation-orchestrator[server]'"
DEFAULTS: Final = ServeOptions()


def serve(file: TeamFile, /, *, options: ServeOptions = DEFAULTS) -> int:
    """Serve the agents of a file over HTTP: each is a model for OpenAI's clients.

    Clients show the token of a key: ORCHESTRATOR_API_KEY, the one that is made and kept beside the
    journal, or those of `orchestrator keys add`. Exits with 0 when a signal has stopped it in good
    order.
    """
    retention = options.kept.retention()
    options.require_valid()
    try:
        # Imported late: these libraries are an extra.
        from orchestrator.cli.server.process import prepare_server
    except ModuleNotFoundError as exc:
        raise CommandError(f"a server needs {exc.name}: {INSTALL}") from exc

    # The file may run any code, so it is loaded before the event loop starts.
    process = prepare_server(file, load_team(file, trust=options.trust), options, retention)
    return run_stoppable(process.work, options.grace)
