"""Where the replies of jobs go: each target is a kind and an address, such as `file:news.md`.

A target is named by the program or the operator, never by a model. One that fails is tried again
with all others that failed; those that took the reply are facts, and get it once.
"""

import os
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, TypeAlias

import attrs
import trio

from orchestrator.agents import DefinitionError
from orchestrator.delegation import Reply, SessionRecord
from orchestrator.delegation.events import ReplyPartDelivered
from orchestrator.delegation.events.jobs import JobId
from orchestrator.kernel.errors import OrchestratorError, error_text
from orchestrator.kernel.journal.facts import Facts
from orchestrator.kernel.read_api import ReadApi

ORIGIN: Final = "origin"
"""The target of a job that an agent has set: the session in which it did."""
FILE: Final = "file"
SILENT: Final = "[SILENT]"
"""What an agent answers if there is nothing to tell."""


@attrs.frozen(kw_only=True)
class Delivery:
    """One reply on its way to one target."""

    address: str
    """What follows the kind of the target: a path, a URL, a chat."""
    job: JobId
    due: str
    """The time for which the run began."""
    text: str
    session: SessionRecord
    reply: Reply


Target: TypeAlias = Callable[[Delivery], Awaitable[str]]
"""Delivers a reply, and returns what its place calls it; or raises, and is called again later."""


@attrs.frozen
class CheckedTarget:
    """A target whose addresses are checked when a job is set, before anything is delivered."""

    send: Target
    require: Callable[[str], object]
    """Raises a `ValueError` for an address that cannot be."""

    def __call__(self, delivery: Delivery) -> Awaitable[str]:
        return self.send(delivery)


NO_TARGETS: Final[Mapping[str, Target]] = {}


class UndeliveredError(OrchestratorError):
    """Some targets of a reply did not take it."""


def require_targets(
    job: JobId, targets: Iterable[str], kinds: Mapping[str, Target], *, knows_all: bool = True
) -> None:
    """Raise unless all targets of a job can be delivered to.

    Args:
        job: the job.
        targets: its targets.
        kinds: what delivers, by the word before the colon.
        knows_all: whether there are no others, at another process that begins the jobs.

    Raises:
        DefinitionError: one is of a kind that is not there, or has an address that cannot be.
    """
    for target in targets:
        kind, _, address = target.partition(":")
        send = kinds.get(kind)
        if (send is None and knows_all) or (not address and kind != ORIGIN):
            known = ", ".join(f"{it}:..." for it in sorted(kinds.keys() - {ORIGIN}))
            raise DefinitionError(
                f"job {job!r} delivers to {target!r}, which is not there; there are: {known}"
            )
        if isinstance(send, CheckedTarget):
            try:
                send.require(address)
            except ValueError as exc:
                raise DefinitionError(f"job {job!r} delivers to {kind}: {exc}") from exc


class Targets:
    """The kinds of targets that there are here."""

    def __init__(
        self, facts: Facts, read: ReadApi, kinds: Mapping[str, Target], *, knows_all: bool = True
    ) -> None:
        """Deliver to targets.

        Args:
            facts: posts the deliveries.
            read: has the sessions.
            kinds: what delivers, by the word before the colon.
            knows_all: whether there are no others, at another process that begins the jobs.
        """
        self._facts = facts
        self._read = read
        self._kinds = {FILE: write_file, **kinds}
        self._knows_all = knows_all

    def require(self, job: JobId, targets: Iterable[str]) -> None:
        """Raise unless all targets of a job are of a kind that there is here."""
        require_targets(job, targets, self._kinds, knows_all=self._knows_all)

    async def deliver(self, delivery: Delivery, targets: Iterable[str]) -> None:
        """Deliver a reply to all targets that have not got it.

        Raises:
            UndeliveredError: some of them failed.
        """
        await trio.lowlevel.checkpoint()
        failed: list[str] = []
        for target in targets:
            if target in self._delivered_parts(delivery.reply):
                continue
            kind, _, address = target.partition(":")
            send = self._kinds.get(kind, _refuse)
            try:
                receipt = await send(attrs.evolve(delivery, address=address))
            except Exception as exc:  # noqa: BLE001 (a target is code of others, and not the only one)
                failed.append(f"{kind}: {error_text(exc)}")
                continue
            reply = delivery.reply
            self._facts.post(ReplyPartDelivered(reply.session, reply.turn, target, receipt))
        if failed:
            raise UndeliveredError("; ".join(failed))

    def _delivered_parts(self, reply: Reply) -> Container[str]:
        # The reply is as it was at the first attempt.
        session = self._read.records.sessions[reply.session]
        return session.undelivered[reply.turn].parts


async def _refuse(delivery: Delivery) -> str:
    await trio.lowlevel.checkpoint()
    raise UndeliveredError(f"job {delivery.job!r} delivers to a target that does not exist")


async def write_file(delivery: Delivery) -> str:
    """Write a reply to a file, whole or not at all; an earlier one there is replaced.

    `{job}` and `{time}` in its path are filled in.
    """
    path = delivery.address.replace("{job}", delivery.job)
    path = path.replace("{time}", delivery.due)
    await trio.to_thread.run_sync(_replace, Path(path), delivery.text)
    return ""


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as new:
        try:
            new.write(text if text.endswith("\n") else f"{text}\n")
            new.flush()
            os.fsync(new.fileno())
            Path(new.name).replace(path)
        except BaseException:
            Path(new.name).unlink(missing_ok=True)
            raise
