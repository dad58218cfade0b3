"""The targets of job replies: each is a kind and an address, such as `file:news.md`.

The program or the operator names a target, never a model. If some targets fail, only these are
tried again: a delivery that succeeded is a fact, so each target receives a reply once.
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
from orchestrator.ports.errors import OrchestratorError, error_text
from orchestrator.ports.journals import Facts
from orchestrator.ports.reads import ReadApi

ORIGIN: Final = "origin"
"""The target of a job that an agent has set: the session that set it."""
FILE: Final = "file"
SILENT: Final = "[SILENT]"
"""The answer of an agent without news."""


@attrs.frozen(kw_only=True)
class Delivery:
    """One reply for one target."""

    address: str
    """The part after the kind of the target: a path, a URL, a chat."""
    job: JobId
    due: str
    """The time at which the run was due."""
    text: str
    session: SessionRecord
    reply: Reply


Target: TypeAlias = Callable[[Delivery], Awaitable[str]]
"""Delivers a reply, and returns the id of the message; if it raises, it is called again."""


@attrs.frozen
class CheckedTarget:
    """A target that checks an address when a job is set, before a reply is delivered."""

    send: Target
    require: Callable[[str], object]
    """Raises a `ValueError` for an invalid address."""

    def __call__(self, delivery: Delivery) -> Awaitable[str]:
        return self.send(delivery)


NO_TARGETS: Final[Mapping[str, Target]] = {}


class UndeliveredError(OrchestratorError):
    """Some targets did not accept a reply."""


def require_targets(
    job: JobId, targets: Iterable[str], kinds: Mapping[str, Target], *, knows_all: bool = True
) -> None:
    """Raise `DefinitionError` unless all targets of a job are known, or may be elsewhere."""
    for target in targets:
        kind, _, address = target.partition(":")
        send = kinds.get(kind)
        if (send is None and knows_all) or (not address and kind != ORIGIN):
            known = ", ".join(f"{it}:..." for it in sorted(kinds.keys() - {ORIGIN}))
            raise DefinitionError(
                f"job {job!r} delivers to {target!r}, which is unknown; known targets: {known}"
            )
        if isinstance(send, CheckedTarget):
            try:
                send.require(address)
            except ValueError as exc:
                raise DefinitionError(f"job {job!r} delivers to {kind}: {exc}") from exc


class Targets:
    """The kinds of targets of this process."""

    def __init__(
        self, facts: Facts, read: ReadApi, kinds: Mapping[str, Target], *, knows_all: bool = True
    ) -> None:
        """Deliver to kinds of targets, by the word before the colon.

        `knows_all`: the process that begins the jobs has no other kinds.
        """
        self._facts = facts
        self._read = read
        self._kinds = {FILE: write_file, **kinds}
        self._knows_all = knows_all

    def require(self, job: JobId, targets: Iterable[str]) -> None:
        """Raise unless the kinds of all targets of a job are known."""
        require_targets(job, targets, self._kinds, knows_all=self._knows_all)

    async def deliver(self, delivery: Delivery, targets: Iterable[str]) -> None:
        """Deliver a reply to all targets that lack it; raise `UndeliveredError` if some fail."""
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
        # The text of the reply is unchanged since the first attempt.
        session = self._read.records.sessions[reply.session]
        return session.undelivered[reply.turn].parts


async def _refuse(delivery: Delivery) -> str:
    await trio.lowlevel.checkpoint()
    raise UndeliveredError(f"job {delivery.job!r} delivers to a target that does not exist")


async def write_file(delivery: Delivery) -> str:
    """Write a reply to a file, whole or not at all; an earlier reply in the file is replaced.

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
