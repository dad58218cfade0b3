"""`orchestrator worker`: run the calls and turns that writers lend, until a signal comes."""

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote, urlsplit

import trio
from cyclopts import Parameter

from orchestrator.agents import raising_one_error
from orchestrator.agents.redaction.command_environment import without_secret_variables
from orchestrator.agents.redaction.redactor import Redactor
from orchestrator.agents.redaction.secret_variables import secret_values
from orchestrator.agents.tools.terminal.process_tags import with_tag
from orchestrator.cli.agent_file import load_agents
from orchestrator.cli.errors import CommandError
from orchestrator.cli.sandbox_line import SandboxOption, choose_sandbox
from orchestrator.cli.signals import Stop, run_stoppable
from orchestrator.cli.trust import TrustOption
from orchestrator.delegation import printable
from orchestrator.ports.execution import AgentCatalogue, host_of, resolve_workspace_settings
from orchestrator.ports.files import default_journal, state_files
from orchestrator.products.cluster.database.left_commands import end_left_commands
from orchestrator.products.cluster.work import WorkerId
from orchestrator.products.cluster.work.postgres.exchange import QUEUE_VARIABLE
from orchestrator.products.cluster.worker.context import WorkerContexts
from orchestrator.products.cluster.worker.leftovers import end_leftovers, hold_worker_tag
from orchestrator.products.cluster.worker.process import LEASE_SECONDS, Worker

if TYPE_CHECKING:
    from orchestrator.products.cluster.work import Exchange

GRACE_SECONDS: Final = 30
JOURNAL_VARIABLE: Final = "ORCHESTRATOR_JOURNAL"
INSTALL: Final = "pip install 'delegation-orchestrator[workers]'"

DatabaseOption = Annotated[
    str | None,
    Parameter(
        name="--journal",
        help="The database of the journals: postgresql://... By default"
        " ORCHESTRATOR_JOURNAL. Put a password there, because `ps` shows options.",
        show_default=False,
    ),
]
QueueOption = Annotated[
    str,
    Parameter(
        help="The queue that hands out work: absurd, or module:function. Writers use the same.",
        env_var=QUEUE_VARIABLE,
    ),
]


def worker(
    file: str,
    /,
    *,
    journal: DatabaseOption = None,
    place: str = "",
    slots: int = 1,
    queue: QueueOption = "absurd",
    workspace: Path | None = None,
    grace: float = GRACE_SECONDS,
    lease: float = LEASE_SECONDS,
    sandbox: SandboxOption = None,
    trust: TrustOption = False,
) -> int:
    """Run the tool calls and the turns of agents that have a place, lent by runs on other machines.

    The first SIGTERM or Ctrl-C drains it: it takes no new work, and exits with 0 when its running
    work has ended. The second one ends its calls at once.

    Args:
        file: The file that the runs are started with, or a copy: FILE or FILE:NAME.
        place: The place whose work it runs; by default the one place that the file names.
        slots: The most calls or turns that it runs at once.
        workspace: The folder that tools work in; by default this one.
        grace: The seconds that its calls may run on after the first signal.
        lease: The seconds after which a silent worker counts as dead.
    """
    address = require_database(journal)
    if slots < 1:
        raise CommandError(f"--slots is {slots}; it must be 1 or more")
    if not 0 <= grace < float("inf"):
        raise CommandError(f"--grace is {grace}; it must be 0 or more")
    if not 0.5 <= lease < float("inf"):
        raise CommandError(f"--lease is {lease}; it must be half a second or more")
    if workspace is not None and not workspace.is_dir():
        raise CommandError(f"--workspace {workspace} is not a folder")
    agents = load_agents(file, trust=trust)
    catalogue = AgentCatalogue(agents)
    place = _place_in(catalogue, place, file)
    state = default_journal(os.environ).parent
    host = host_of(None, os.environ, spans_hosts=True)
    end_leftovers(state / "workers", host.name)

    async def work(stop: Stop) -> int | None:
        choice = await choose_sandbox(sandbox, agents.values())
        settings = resolve_workspace_settings(
            with_tag(_environ_of_commands(), tag),
            workspace,
            state,
            choice,
            host=host,
            hidden=[state, *state_files(default_journal(os.environ))],
        )
        redactor = Redactor([*secret_values(os.environ, ()), *_secrets_in(address)])
        id_ = WorkerId(f"{host.name}-{os.getpid()}-{token_hex(3)}")
        drained = False
        async with (
            open_exchange_at(address, queue, lease) as exchange,
            # Also ends commands that an orchestrator left on this machine, if other machines took
            # over.
            end_left_commands(address, host.name),
            exchange.worker_mailbox(id_) as mailbox,
        ):
            running = Worker(
                exchange,
                mailbox,
                catalogue,
                WorkerContexts(settings, redactor),
                redactor,
                id=id_,
                host=host.name,
                place=place,
                slots=slots,
                lease=lease,
                tell=lambda line: print_status(redactor.redact(line)),
            )
            draining = _Draining(running)
            stop.set_orchestrator(draining)
            print(
                f"worker {id_} runs calls at {place!r}, {slots} at once (version"
                f" {catalogue.version})",
                flush=True,
            )
            with stop.work_scope:
                await running.run()
                drained = True
            draining.ended.set()
        return 0 if drained else None

    with hold_worker_tag(state / "workers", host.name) as tag:
        # Processes that a tool starts by itself inherit the tag, too.
        os.environ.update(with_tag(os.environ, tag))
        return run_stoppable(work, grace)


class _Draining:
    """A worker as signals drain it (`orchestrator.cli.signals.Drainable`)."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.ended = trio.Event()

    @property
    def working(self) -> int:
        return self._worker.running

    async def drain(self, seconds: float) -> bool:
        self._worker.drain()
        with trio.move_on_after(seconds):
            await self.ended.wait()
        return self.ended.is_set()

    async def abandon(self) -> None:
        await trio.lowlevel.checkpoint()


def require_database(option: str | None) -> str:
    """Return the address of the database of `--journal`, which workers need."""
    address = option or os.environ.get(JOURNAL_VARIABLE, "")
    if urlsplit(address).scheme not in {"postgresql", "postgres"}:
        shown = f", not {printable(address)}" if address and "@" not in address else ""
        raise CommandError(
            "workers find their work in the Postgres database of the journals: say"
            f" --journal postgresql://...{shown}"
        )
    return address


@asynccontextmanager
async def open_exchange_at(
    address: str, queue: str, lease: float = LEASE_SECONDS
) -> AsyncGenerator["Exchange"]:
    """Connect to the database that carries lent work."""
    try:
        # Imported late: these libraries are an extra.
        from orchestrator.products.cluster.work.postgres.exchange import open_exchange

        opened = open_exchange(address, queue=queue, application="orchestrator worker", lease=lease)
        with raising_one_error():
            async with opened as exchange:
                yield exchange
    except ModuleNotFoundError as exc:
        raise CommandError(f"a worker needs {exc.name}: {INSTALL}") from exc


def print_status(line: str) -> None:
    print(f"orchestrator: {printable(line)}", file=sys.stderr, flush=True)


def _place_in(catalogue: AgentCatalogue, place: str, file: str) -> str:
    places = sorted(catalogue.places())
    if not places:
        raise CommandError(
            f"no agent or tool in {file} has a place, so there is nothing to run:"
            ' @tool(place="gpu"), or Agent(place="gpu")'
        )
    if place in places:
        return place
    if place:
        raise CommandError(
            f"no agent or tool in {file} has the place {place!r}; there are: {', '.join(places)}"
        )
    if len(places) > 1:
        raise CommandError(f"say which --place: {', '.join(places)}")
    return places[0]


def _environ_of_commands() -> dict[str, str]:
    environ = without_secret_variables(os.environ, declared=(), hand_on=())
    return {name: it for name, it in environ.items() if name != JOURNAL_VARIABLE}


def _secrets_in(address: str) -> list[str]:
    """Return the password of a database address, encoded and decoded."""
    password = urlsplit(address).password
    return [] if password is None else [password, unquote(password)]
