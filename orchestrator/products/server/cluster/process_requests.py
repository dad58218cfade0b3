"""Answers requests about a run that another process writes: reads its facts, forwards its actions.

A read is answered from the journal beside its writer. An action goes to the control socket of the
writer, which carries it out and records it in its own audit; the server records it, too.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import trio
from starlette.responses import Response

from orchestrator.agents import AssistantMessage, MessageId, well_formed
from orchestrator.delegation import Receipt, SessionId, TaskId, root_of
from orchestrator.delegation.events.approvals import ApprovalId
from orchestrator.ports import control
from orchestrator.ports.errors import UnknownIdError
from orchestrator.ports.reads import FoundSession, FoundTask
from orchestrator.products.history.ports import export_tree, html_report
from orchestrator.products.server.api import bodies
from orchestrator.products.server.api.approvals import AcceptedVerdict, NewVerdict, author_of
from orchestrator.products.server.api.failures import FailuresQuery, failures_of
from orchestrator.products.server.api.part_bytes import part_response
from orchestrator.products.server.api.runs import TreeQuery, tree_response
from orchestrator.products.server.api.tasks import SteeringMessage, SteeringReceipt
from orchestrator.products.server.api.transcripts import TranscriptQuery, transcript_page
from orchestrator.products.server.api_call import ApiCall, json_response
from orchestrator.products.server.cluster.followed_run import FollowedRun
from orchestrator.products.server.cluster.other_processes import OtherProcesses
from orchestrator.products.server.cluster.router import written_elsewhere


class ProcessRequest:
    """A request about a run of another process."""

    def __init__(self, call: ApiCall, others: OtherProcesses, run: FollowedRun) -> None:
        self._call = call
        self._others = others
        self._run = run

    async def answer(self) -> Response:
        """Answer the request, or refuse an action that no control socket carries out."""
        answer = _ANSWERS.get(self._call.operation.name)
        if answer is None:
            await trio.lowlevel.checkpoint()
            raise written_elsewhere(self._run.writer)
        return await answer(self)

    @property
    def _found(self) -> FoundSession:
        found = self._run.found
        if found is None:
            raise UnknownIdError(f"there is no run or session {self._run.session!r}")
        return found

    @property
    def _task(self) -> FoundTask:
        found, id_ = self._found, self._call.path("task")
        record = found.records.tasks.get(TaskId(id_))
        if record is None:
            raise UnknownIdError(f"there is no task {id_!r}")
        return FoundTask(record, found.session, found.records)

    def _respond(self, body: Any) -> Response:
        return json_response(body, x_run_id=self._run.session)

    # Reads.

    async def get_run(self) -> Response:
        await trio.lowlevel.checkpoint()
        found = self._found
        body = bodies.run_of(found.session, found.records, seq=self._run.seq)
        if body.ended is None:
            body.process = self._run.writer.process
        return self._respond(body)

    async def get_tree(self) -> Response:
        format_ = self._call.query(TreeQuery).format
        session = self._found.session.id
        entries = await self._run.entries()

        def draw() -> str:
            if format_ == "html":
                # Clients must not see the program's code.
                return html_report(session, entries, has_writer=True, tracebacks=False)[0]
            return export_tree(self._found.session.tree, format_, now=None)

        text = await trio.to_thread.run_sync(draw) if format_ == "html" else draw()
        return tree_response(session, format_, text.encode())

    async def list_failures(self) -> Response:
        await trio.lowlevel.checkpoint()
        query = self._call.query(FailuresQuery)
        return self._respond(failures_of(self._found.session, query))

    async def get_task(self) -> Response:
        await trio.lowlevel.checkpoint()
        return self._respond(bodies.task_of(self._task, seq=self._run.seq))

    async def get_transcript(self) -> Response:
        query, found = self._call.query(TranscriptQuery), self._task
        read = await self._run.transcript(found.task.id)
        session = found.session if found.task.is_root else None
        return self._respond(transcript_page(read.messages, read.incidents, session, query))

    async def get_part(self) -> Response:
        message, number = MessageId(self._call.path("message")), self._call.path("part")
        read = await self._run.transcript(self._task.task.id)
        parts = (
            it.parts
            for it in read.messages
            if it.id == message and not isinstance(it, AssistantMessage)
        )
        return part_response(next(parts, ()), message, number, SessionId(self._run.session))

    # Actions.

    async def _act(self, target: str, request: control.ControlRequest) -> dict[str, Any]:
        """Have the process carry out an action, and read its effect."""
        if self._call.server.audit is not None:
            self._call.record(target)
        response = await self._others.send(self._run, request)
        await self._run.catch_up()
        return response

    async def cancel_run(self) -> Response:
        root = root_of(self._found.session.id)
        await self._act(root, control.Cancel(root))
        return await self.get_run()

    async def cancel_task(self) -> Response:
        task = self._task.task.id
        await self._act(task, control.Cancel(task))
        return await self.get_task()

    async def pause_task(self) -> Response:
        return await self._set_paused(paused=True)

    async def unpause_task(self) -> Response:
        return await self._set_paused(paused=False)

    async def _set_paused(self, *, paused: bool) -> Response:
        task = self._task.task.id
        await self._act(task, control.Pause(task, paused=paused))
        return await self.get_task()

    async def steer_task(self) -> Response:
        body = await self._call.body(SteeringMessage)
        self._call.server.require_short([body.text])
        task = self._task.task.id
        before = {*self._task.task.steering}
        response = await self._act(task, control.Steer(task, well_formed(body.text)))
        receipt = Receipt(response["state"])
        new = [it for it in self._task.task.steering if it not in before]
        return self._respond(
            SteeringReceipt(
                task=task,
                message=new[-1] if new else "",
                state=receipt.state,
                seen_at=None,
                sentence=receipt.sentence,
                seq=self._run.seq,
            )
        )

    async def answer_approval(self) -> Response:
        body = await self._call.body(NewVerdict)
        id_, by = self._call.path("approval"), author_of(self._call)
        question = self._found.records.open_questions.get(ApprovalId(id_))
        await self._act(id_, control.AnswerApproval(id_, body.answer, body.reason, by))
        return self._respond(
            AcceptedVerdict(
                id=id_,
                task="" if question is None else question.task,
                answer=body.answer,
                reason=body.reason,
                by=by,
                seq=self._run.seq,
            )
        )


_ANSWERS: Final[Mapping[str, Callable[[ProcessRequest], Awaitable[Response]]]] = {
    it.__name__: it
    for it in (
        ProcessRequest.get_run,
        ProcessRequest.get_tree,
        ProcessRequest.list_failures,
        ProcessRequest.get_task,
        ProcessRequest.get_transcript,
        ProcessRequest.get_part,
        ProcessRequest.cancel_run,
        ProcessRequest.cancel_task,
        ProcessRequest.pause_task,
        ProcessRequest.unpause_task,
        ProcessRequest.steer_task,
        ProcessRequest.answer_approval,
    )
}
"""The operations that other processes take, by the names of their handlers."""
