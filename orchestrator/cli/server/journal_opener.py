"""Opens the orchestrators of a server, one per journal."""

import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import attrs
import trio

from orchestrator.agents import raising_one_error
from orchestrator.agents.sandbox.choice import SandboxChoice
from orchestrator.cli.retention import Retention
from orchestrator.composition import open_orchestrator
from orchestrator.ports.control import open_control
from orchestrator.ports.files import FIRST_JOURNAL, state_files
from orchestrator.ports.journals import AuditEvent, HeldJournal, Journals, local_actor
from orchestrator.ports.sessions import OnChange, Orchestrator
from orchestrator.ports.settings import Machine, Models, Workers
from orchestrator.products.cluster.work.shared_exchange import SharedExchange
from orchestrator.products.server.audit_export import AuditExport
from orchestrator.products.telemetry.settings import Telemetry


@attrs.frozen(kw_only=True)
class JournalOpener:
    """Opens the orchestrators of a server, each with the parts that belong to its journal."""

    journals: Journals
    secrets: Mapping[str, str] = attrs.field(factory=dict[str, str], repr=False)
    webhooks: Sequence[str] = attrs.field(default=(), repr=False)
    hidden: Sequence[Path] = ()
    workspace: Path | None
    sandbox: SandboxChoice
    policy: str = "shortest"
    """The order of model calls that wait for a provider."""
    retention: Retention = attrs.Factory(Retention)
    export: AuditExport | None = None
    """Gets a copy of the audit of all journals."""
    telemetry: Telemetry | None = None
    on_change: OnChange = "refuse"
    exchange: SharedExchange | None = None
    """Lends tool calls of all journals of a database."""

    @asynccontextmanager
    async def open(self, held: HeldJournal) -> AsyncGenerator[Orchestrator]:
        """Open an orchestrator on a journal, as long as the block lasts."""
        file = self.journals.store(held.name).file
        async with AsyncExitStack() as opened:
            orchestrator = await opened.enter_async_context(
                open_orchestrator(
                    held.journal,
                    machine=Machine(
                        secrets=self.secrets,
                        hide=[*self.hidden, *self._state_files(file)],
                        workspace=self.workspace,
                        sandbox=self.sandbox,
                        environ={**os.environ, **self.secrets},
                    ),
                    models=Models(policy=self.policy),
                    workers=Workers(queue=None if self.exchange is None else self.exchange.open),
                    on_change=self.on_change,
                    telemetry=self.telemetry,
                )
            )
            if self.export is not None:
                orchestrator.facts.on_audit = partial(self.export.put, held.name)
            if file is not None:
                await opened.enter_async_context(open_control(orchestrator, file))
            for url in self.webhooks:
                orchestrator.facts.audit(_webhook_set(url))
            if self.retention != Retention():
                opened.enter_context(raising_one_error())
                nursery = await opened.enter_async_context(trio.open_nursery())
                opened.callback(nursery.cancel_scope.cancel)
                nursery.start_soon(self.retention.prune_forever, orchestrator, file)
            yield orchestrator

    def _state_files(self, file: Path | None) -> Iterator[Path]:
        if file is not None:
            yield from state_files(file)
        # The journal may be a link: its file is elsewhere, and the keys are beside the link.
        if self.journals.folder is not None:
            yield from state_files(self.journals.folder / FIRST_JOURNAL)


def _webhook_set(url: str) -> AuditEvent:
    """Return the audit event of a webhook, with its address but without its secret parts."""
    parts = urlsplit(url)
    return AuditEvent(
        actor=local_actor(os.getuid()),
        action="webhook.set",
        target=f"{parts.scheme}://{parts.hostname}",
        peer=f"pid {os.getpid()}",
    )
