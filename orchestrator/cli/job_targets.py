"""The targets of jobs, besides files, in a process of the command line: webhooks."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from orchestrator.cli.errors import CommandError
from orchestrator.products.schedule import Job, Target
from orchestrator.products.schedule.targets import NO_TARGETS

if TYPE_CHECKING:
    from orchestrator.products.server.transport.api_key import StoredSecret

WEBHOOK: Final = "webhook"
SECRET: Final = "ORCHESTRATOR_WEBHOOK_SECRET"  # noqa: S105 (the name of a variable)
INSTALL: Final = "pip install 'delegation-orchestrator[server]'"


@attrs.frozen
class JobTargets:
    """The targets of jobs that are not open yet. `targets_for` makes it."""

    secret: "StoredSecret | None"
    """The secret that signs webhooks; None if no job has one."""
    is_insecure: bool

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secrets to redact, by the names of their variables."""
        values = [] if self.secret is None else self.secret.value.split()
        return {
            SECRET if not number else f"{SECRET}_{number + 1}": value
            for number, value in enumerate(values)
        }

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Mapping[str, Target]]:
        """Open the targets, as long as the block lasts."""
        if self.secret is None:
            yield NO_TARGETS
            return
        from orchestrator.products.server.webhook import open_webhook_target

        async with open_webhook_target(self.secret.value, is_insecure=self.is_insecure) as webhook:
            yield {WEBHOOK: webhook}


def targets_for(
    jobs: Iterable[Job], folder: Path, environ: Mapping[str, str], *, is_insecure: bool = False
) -> JobTargets:
    """Return the targets of jobs: webhooks if a job or the secret in the environment asks."""
    is_named = any(target.startswith(f"{WEBHOOK}:") for job in jobs for target in job.deliver)
    if not (is_named or environ.get(SECRET, "").strip()):
        return JobTargets(None, is_insecure)
    try:
        # Imported late: the client is an extra.
        from orchestrator.products.server.webhook import secret_for
    except ModuleNotFoundError as exc:
        raise CommandError(f"a webhook needs {exc.name}: {INSTALL}") from exc
    return JobTargets(secret_for(environ, folder), is_insecure)
