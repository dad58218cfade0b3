"""Delivers the replies of job runs to all targets of the job, to each once."""

from collections.abc import Mapping
from itertools import chain
from typing import Final

import trio

from orchestrator.agents import MessageId, UserMessage
from orchestrator.delegation import Ending, Reply, SessionRecord
from orchestrator.delegation.events import MessageReceived
from orchestrator.delegation.events.jobs import REMEMBERED_RUNS
from orchestrator.delegation.session_kind import SessionKind
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.journals import Facts
from orchestrator.ports.reads import ReadApi
from orchestrator.ports.sessions import InboundRequest, KeptDoor, current_grants
from orchestrator.products.schedule.charges import Charge, charge_no_one
from orchestrator.products.schedule.job_run import JobRunState
from orchestrator.products.schedule.targets import ORIGIN, SILENT, Delivery, Target, Targets


class JobReplies:
    """Delivers the replies of runs; `deliver` is the push of sessions of the kind `JOB`."""

    def __init__(
        self,
        facts: Facts,
        read: ReadApi,
        targets: Mapping[str, Target],
        *,
        charge: Charge = charge_no_one,
        knows_targets: bool = True,
    ) -> None:
        self._facts = facts
        self._read = read
        self._charge = charge
        self._given_door: KeptDoor | None = None
        self.targets: Final = Targets(
            facts, read, {ORIGIN: self._send_to_origin, **targets}, knows_all=knows_targets
        )

    def use_door(self, door: KeptDoor) -> None:
        """Use this door to send replies to the session of a job."""
        self._given_door = door

    async def deliver(self, session: SessionRecord, reply: Reply) -> None:
        """Deliver a reply of a run to the targets of its job.

        An answer that contains no news (`SILENT`) is not delivered; a failure always is.
        """
        run = session.state(JobRunState)
        targets = run.deliver
        is_silent = reply.outcome.succeeded and reply.text.strip() == SILENT
        if is_silent or not targets:
            await trio.lowlevel.checkpoint()
            return
        text = reply.text
        if not reply.outcome.succeeded:
            text = f"Job {run.job} did not succeed. {text}"
            if await self._fails_in_a_row(run):
                text += "\nIt is the third time in a row that it did not succeed."
        await self.targets.deliver(
            Delivery(address="", job=run.job, due=run.due, text=text, session=session, reply=reply),
            targets,
        )

    async def _fails_in_a_row(self, run: JobRunState) -> bool:
        """Return whether the last runs of a job have all failed."""
        owner = self._read.records.sessions.get(run.session)
        job = None if owner is None else owner.jobs.get(run.job)
        runs = () if job is None else job.runs
        failures = 0
        for id_ in runs:
            await self._facts.load(id_)
            record = self._read.records.sessions.get(id_)
            outcome = None if record is None else record.last_outcome
            failures += outcome is not None and outcome.ending is not Ending.SUCCEEDED
        return failures == REMEMBERED_RUNS  # noqa: ASYNC910 (its caller waits next)

    async def _send_to_origin(self, delivery: Delivery) -> str:
        """Send a reply to the session that set its job; it starts a turn there."""
        await trio.lowlevel.checkpoint()
        door = self._given_door
        assert door is not None, "runs begin when there is a door"
        origin = delivery.session.state(JobRunState).session
        try:
            session = await door.find(origin)
        except UnknownIdError:
            return "the session is gone"
        id_ = MessageId(f"m_{delivery.session.id}_{delivery.reply.turn}")
        if session.closed:
            return "the session is closed"
        if _has_message(session, id_):
            return id_  # a crash came before the delivery was recorded
        text = f"[Job {delivery.job}, due {delivery.due}]\n{delivery.text}"
        # The reply goes to the address of the last one, and answers no message there.
        context = {**session.root.context, "message_id": "", "traceparent": ""}
        if session.door is not None or session.kind is SessionKind.PROGRAM:
            # The session's door takes the reply, or the next door that the program opens.
            with self._charge(session, True):
                grants = current_grants(self._facts)
                fact = MessageReceived(origin, text, (), id_, context, grants)
                self._facts.post(fact)
            return id_
        agent = door.agent_for(session)
        if agent is None:
            raise UnknownIdError(f"this process has no agent {session.root.agent!r}")
        message = UserMessage(text, id=id_)
        request = InboundRequest(agent=agent, message=message, context=context)
        with self._charge(session, True):
            door.receive(session, request)
        return id_


def _has_message(session: SessionRecord, id_: MessageId) -> bool:
    """Return whether a message has arrived, read or unread."""
    messages = chain(session.mail.values(), reversed(session.root.transcript))
    return any(isinstance(it, UserMessage) and it.id == id_ for it in messages)
