"""The composition root: it joins the kernel, a journal and the products into an orchestrator.

The kernel imports no product. This module passes products to the kernel through its ports, and
imports each product when a program uses it.
"""

import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

import attrs
import trio

from orchestrator.agents import Agent, DefinitionError, raising_one_error
from orchestrator.agents.redaction.command_environment import without_secret_variables
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.secret_variables import has_references, secret_values
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.backends import journals_at
from orchestrator.delegation import Rules
from orchestrator.kernel.doors.lifecycle import release_agents
from orchestrator.kernel.doors.one_shot import OnChange, Run, accepts_changes
from orchestrator.kernel.event_loop import require_trio
from orchestrator.kernel.execution.agent_registry import AgentRegistry
from orchestrator.kernel.execution.model_resolver import ModelResolver
from orchestrator.kernel.execution.tool_place import HERE, ToolPlace, require_here
from orchestrator.kernel.execution.tool_servers import LateServers, ToolServers
from orchestrator.kernel.execution.workspace.host import host_of
from orchestrator.kernel.execution.workspace.settings import (
    WorkspaceSettings,
    resolve_workspace_settings,
)
from orchestrator.kernel.history import ForkTerms
from orchestrator.kernel.journal.bookkeeper import Bookkeeper
from orchestrator.kernel.journal.journal import Journal, restore_ledger
from orchestrator.kernel.journal.journals import Journals, open_journal
from orchestrator.kernel.journal.separate_journals import OneJournal
from orchestrator.kernel.journal.steady_clock import steady_clock
from orchestrator.kernel.loaded_file import require_not_loading
from orchestrator.kernel.opened_engine import open_engine
from orchestrator.kernel.orchestrator import Orchestrator
from orchestrator.kernel.sessions import Sessions
from orchestrator.kernel.settings import HERE_VARIABLE, SANDBOX_VARIABLE, Machine, Models, Workers
from orchestrator.kernel.state_files import (
    FIRST_JOURNAL,
    JOURNAL_VARIABLE,
    LIMITS,
    SERVERS,
    default_journal,
    state_files,
    state_folder,
)

if TYPE_CHECKING:
    from orchestrator.agents.models.wrappers.shared_hold import SharedHold
    from orchestrator.kernel.engine.cost_rules import TaskCost
    from orchestrator.kernel.pipelines.scripts.dry_run import DryRun
    from orchestrator.kernel.step_spans import StepSpans
    from orchestrator.products.cluster.worker_place import OpenExchange
    from orchestrator.products.telemetry.settings import Telemetry

SILENT_SECONDS: Final = 1.0
"""A run is shown after these seconds."""
RunKind: TypeAlias = Literal["new", "durable"]


@asynccontextmanager
async def open_orchestrator(
    journal: str | os.PathLike[str] | Journal | None = None,
    *,
    session: str | None = None,
    runs: RunKind = "new",
    on_change: OnChange = "refuse",
    rules: Rules | None = None,
    machine: Machine | None = None,
    models: Models | None = None,
    workers: Workers | None = None,
    telemetry: "Telemetry | str | None" = None,
    progress: Literal["auto"] | None = None,
) -> AsyncGenerator[Orchestrator]:
    """Open an orchestrator on a journal, and continue the unfinished work of the last process.

    Args:
        journal: the path of a file, which one process writes at a time; the path of a folder, where
            each process has a journal of its own; `":memory:"`, a database
            (`postgresql://host/database`, with `?journal=NAME` one of its journals), or any
            `Journal`. By default a folder: the user's state directory.
        session: a run or session of an earlier process to continue: its journal is opened. By
            default the opened journal has no unfinished work.
        runs: with `"durable"`, `run` continues a run of the same agent and goal that a crash
            interrupted, if the journal has one; with `"new"`, each call starts a new run.
        on_change: with `"accept"`, a pipeline that a crash interrupted, and whose program has
            changed since, may request other tasks than before.
        rules: the limits of delegation.
        machine: the folder, the sandbox and the secrets of tools, the environment variables, and
            the name of this machine.
        models: the providers, rate limits and prices of models that agents name.
        workers: the places whose tools run in this process, and the work queue.
        telemetry: the address of a collector of OpenTelemetry that receives the spans of all runs,
            or a `Telemetry`; by default none does.
        progress: with `"auto"`, the newest run is shown on stderr when a second has passed: the
            tree in a terminal, lines elsewhere. None shows nothing.
    """
    require_trio()
    require_not_loading()
    if runs not in get_args(RunKind):
        raise DefinitionError(f"runs is {runs!r}; it must be 'new' or 'durable'")
    machine = Machine() if machine is None else machine
    environ = os.environ if machine.environ is None else machine.environ
    if has_references(environ):
        from orchestrator.agents.secret_references import resolve_references

        values = await trio.to_thread.run_sync(resolve_references, environ)
        environ = {**environ, **values}
        machine = attrs.evolve(machine, secrets=(*machine.secrets, *values))
    workers = Workers() if workers is None else workers
    if journal is None or journal == "":
        journal = f"{state_folder(environ)}{os.sep}"
    journals = None
    if isinstance(journal, str | os.PathLike):
        host = host_of(machine.host, environ, spans_hosts=True)
        journals = journals_at(journal, host=host.name)
    elif not hasattr(journal, "read_ledger"):
        raise DefinitionError(
            f"{journal!r} is not a journal: give the path of a file or a folder, ':memory:', the"
            " address of a database, or a Journal"
        )
    async with (
        _opened(journal, journals, session) as opened,
        _open_holds(opened, journals) as hold_of,
    ):
        name = _name(opened)
        rules = Rules() if rules is None else rules
        contents = await opened.read(rules)
        ledger = restore_ledger(contents, name, rules)
        earlier = None
        if runs == "durable":
            from orchestrator.kernel.doors.durable_run import find_earlier

            earlier = find_earlier(ledger)
        book = Bookkeeper(
            opened,
            ledger,
            clock=steady_clock(
                time.time() + opened.clock_offset, contents.last_at if opened.spans_hosts else 0.0
            ),
            redactor=Redactor(_secret_values(environ, machine.secrets, opened)),
        )
        places = frozenset(
            environ.get(HERE_VARIABLE, "").split(",") if workers.here is None else workers.here
        )
        workspace_settings = _workspace_settings(machine, opened, journals, environ)

        def connect() -> ToolServers:
            from orchestrator.kernel.execution.program_sandbox import ProgramSandbox
            from orchestrator.products.mcp.client.connections import McpConnections

            return McpConnections(
                environ,
                book.redactor,
                workspace=workspace_settings.workspace,
                state=workspace_settings.state,
                sandbox=ProgramSandbox(
                    choice=workspace_settings.sandbox, hidden=workspace_settings.hidden
                ),
            )

        servers = await _open_servers(connect, workspace_settings.state)
        registry = AgentRegistry(
            ModelResolver(environ, models, hold_of=hold_of),
            require_deps=True,
            require_servers=servers.require,
            require_places=partial(require_here, places) if opened.tenure is None else None,
        )
        history = LateHistory(journals)
        async with (
            _open_telemetry(book, telemetry) as spans,
            _open_place(opened, book, registry, workers.queue, here=places, environ=environ) as (
                place,
                close_place,
            ),
            open_engine(
                book,
                registry,
                workspace_settings,
                place=place,
                servers=servers,
                history=history,
                spans=spans,
            ) as engine,
        ):
            engine.sessions.delegator.accepts_all_changes = accepts_changes(on_change)
            with release_agents(engine.sessions):
                orchestrator = Orchestrator(engine, history, journals, earlier=earlier)
                try:
                    async with _open_progress(orchestrator, progress):
                        yield orchestrator
                finally:
                    close_place()


@asynccontextmanager
async def _open_progress(
    orchestrator: Orchestrator, progress: Literal["auto"] | None
) -> AsyncGenerator[None]:
    if progress is None:
        yield
        return
    if progress != "auto":
        raise DefinitionError(f"progress is {progress!r}; it must be 'auto' or None")
    with raising_one_error():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_show_progress, orchestrator)
            yield
            nursery.cancel_scope.cancel(reason="the orchestrator is closed")


async def _show_progress(orchestrator: Orchestrator) -> None:
    # A quick run shows nothing, and does not wait for the libraries of the terminal.
    await trio.sleep(SILENT_SECONDS)
    display = await trio.to_thread.run_sync(
        import_module, "orchestrator.cli.progress.of_program", abandon_on_cancel=True
    )
    await display.show_progress(orchestrator)


@asynccontextmanager
async def _open_telemetry(
    book: Bookkeeper, telemetry: "Telemetry | str | None"
) -> "AsyncGenerator[StepSpans | None]":
    """Log the facts of runs if a program wants to read them, and send their spans."""
    async with AsyncExitStack() as opened:
        if logging.getLogger("orchestrator.runs").isEnabledFor(logging.INFO):
            from orchestrator.products.telemetry.fact_log import log_facts

            opened.enter_context(log_facts(book))
        if telemetry is None:
            yield None
        else:
            from orchestrator.products.telemetry.exporter import open_telemetry

            yield await opened.enter_async_context(open_telemetry(book, telemetry))


@asynccontextmanager
async def _open_place(
    journal: Journal,
    book: Bookkeeper,
    registry: AgentRegistry,
    queue: "str | OpenExchange | None",
    *,
    here: frozenset[str],
    environ: Mapping[str, str],
) -> AsyncGenerator[tuple[ToolPlace, Callable[[], None]]]:
    """Open the place of tool calls, and a function to call before tasks are torn down."""
    tenure, database = journal.tenure, journal.database
    if tenure is None:
        yield HERE, _do_nothing
        return
    from orchestrator.products.cluster.work.postgres.exchange import exchange_opener
    from orchestrator.products.cluster.worker_place import WorkerPlace

    if queue is None or isinstance(queue, str):
        assert database is not None, "where work is lent, workers find the journal"
        queue = exchange_opener(database, environ, queue=queue)
    place = WorkerPlace(book, registry, tenure, queue, here=here)
    async with place.open():
        yield place, place.close


def _do_nothing() -> None:
    pass


@asynccontextmanager
async def _open_holds(
    journal: Journal, journals: Journals | None
) -> AsyncGenerator["Callable[[str], SharedHold] | None"]:
    """Open the holds of models that the processes with journals at one address share."""
    folder = None if isinstance(journals, OneJournal | None) else journals.folder
    if journal.database is not None:
        from orchestrator.products.cluster.database.shared_holds import open_shared_holds

        async with open_shared_holds(journal.database) as holds:
            yield holds.of
    else:
        yield None if folder is None else partial(_file_hold, folder / LIMITS)


def _file_hold(folder: Path, model: str) -> "SharedHold":
    from orchestrator.agents.models.wrappers.shared_hold import FileHold

    return FileHold(folder, model)


async def _open_servers(connect: Callable[[], ToolServers], state: Path) -> ToolServers:
    """Return the port to MCP servers, and end the servers that a crash has left."""
    await trio.lowlevel.checkpoint()
    if _has_entries(state / SERVERS):
        from orchestrator.products.mcp.client.left_programs import (
            end_left_programs,
            has_left_programs,
        )

        if has_left_programs(state):
            await trio.to_thread.run_sync(end_left_programs, state)
    return LateServers(connect)


def _has_entries(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False


class LateHistory:
    """Imports the history product when a program forks or shows a run (`History`)."""

    def __init__(self, journals: Journals | None) -> None:
        self._journals = journals

    async def fork(
        self,
        sessions: Sessions,
        agent: Agent[Any],
        run: str,
        task: str,
        terms: ForkTerms,
        *,
        deps: object,
    ) -> Run[Any]:
        from orchestrator.products.history.replay.fork import fork_run

        return await fork_run(sessions, agent, run, task, terms, deps=deps)

    async def estimate_cost(self, agent: Agent[Any], goal: str) -> "TaskCost | None":
        from orchestrator.products.history.simulation.task_cost import estimate_cost

        return await estimate_cost(agent, goal, self._journals)

    async def dry_run(self, agent: Agent[Any], goal: str) -> "DryRun":
        from orchestrator.products.history.simulation.dry_run import dry_run

        return await dry_run(agent, goal, self._journals)

    def show(self, run: Run[Any]) -> str:
        from orchestrator.products.history.report.inline import inline_report

        outcome = run.outcome
        error = "" if outcome.succeeded else f"{outcome.ending}: {outcome.error}"
        return inline_report(run.tree, answer=outcome.output, error=error)


def _name(opened: Journal) -> object:
    """Return the journal in errors: never the address of a database, which has a password."""
    if opened.database is not None:
        return opened.identity
    return opened.file or type(opened).__name__


def _secret_values(
    environ: Mapping[str, str], secrets: Iterable[str], opened: Journal
) -> list[str]:
    """Return the secrets to redact: of the environment, and the password of the database."""
    if opened.database is None:
        return secret_values(environ, secrets)
    from orchestrator.products.cluster.database.connection import password_of

    name = "password of the journal"
    password = {name: password_of(opened.database)}
    return secret_values({**environ, **password}, (*secrets, name))


def _workspace_settings(
    machine: Machine, opened: Journal, journals: Journals | None, environ: Mapping[str, str]
) -> WorkspaceSettings:
    sandbox = machine.sandbox
    if not isinstance(sandbox, SandboxChoice):
        sandbox = SandboxChoice(sandbox or environ.get(SANDBOX_VARIABLE) or "auto")
    declared = (*machine.secrets, JOURNAL_VARIABLE)
    return resolve_workspace_settings(
        without_secret_variables(environ, declared=declared, hand_on=machine.hand_on),
        machine.workspace,
        state_folder(environ),
        sandbox,
        host=host_of(machine.host, environ, spans_hosts=opened.spans_hosts),
        hidden=[*_hidden(opened, journals, environ), *machine.hide],
    )


def _hidden(opened: Journal, journals: Journals | None, environ: Mapping[str, str]) -> list[Path]:
    """Return the state files of all orchestrators, which no tool of an agent sees."""
    # Its files are named as well: a workspace may be the folder itself.
    usual = default_journal(environ)
    files = [usual, opened.file]
    if journals is not None and journals.folder is not None:
        # Where a link has led to the journal, it is another folder.
        files.append(journals.folder / FIRST_JOURNAL)
    hidden = [usual.parent]
    for file in filter(None, dict.fromkeys(files)):
        hidden += state_files(file)
    return hidden


@asynccontextmanager
async def _opened(
    journal: str | os.PathLike[str] | Journal, journals: Journals | None, session: str | None
) -> AsyncGenerator[Journal]:
    if isinstance(journal, str | os.PathLike):
        assert journals is not None, "it has an address"
        async with open_journal(journals, session) as held:
            yield held.journal
    else:
        yield journal
