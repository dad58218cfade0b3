"""A session that begins with facts of another session.

One commit contains all copied facts. They call no model, run no tool and cost nothing. The session
then resumes the same way as after a crash.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import attrs
from msgspec import UNSET
from msgspec.structs import replace

from orchestrator.agents import Agent, Usage
from orchestrator.delegation import (
    SHARED_BUDGET_PREFIX,
    Encoded,
    SessionId,
    SessionRecord,
    TaskId,
    decode,
    encode,
    events,
    root_of,
)
from orchestrator.delegation.session_state import store_states
from orchestrator.ports.sessions import (
    ForkState,
    ForkTerms,
    KeptOpen,
    Sessions,
    current_grants,
    random_task_id,
)
from orchestrator.products.history.replay.record import RecordedRun

ID_PATTERN: Final = re.compile(rb"[rtb]_[0-9a-f]{8,}")
WHOLE: Final = ForkTerms()
PROCESS_NOT_COPIED: Final = (
    "it belongs to the run that this one is a fork of, and does not run here"
)


@attrs.frozen(kw_only=True)
class CopiedRun:
    """The part of an old run that a new run begins with."""

    record: RecordedRun
    """The old run."""
    task: TaskId
    """The task at which the new run departs from the old one."""
    facts: Sequence[events.Entry]

    @property
    def open_turn(self) -> int:
        """The number of the turn that continues in the new run, or 0."""
        turn = 0
        for entry in self.facts:
            if isinstance(entry.event, events.TurnStarted):
                turn = entry.event.turn
            elif isinstance(entry.event, events.TurnEnded):
                turn = 0
        return turn

    def post(
        self,
        sessions: Sessions,
        agent: Agent[Any],
        id_: SessionId,
        *,
        deps: object = None,
        kept_open: KeptOpen | None = None,
        terms: ForkTerms = WHOLE,
    ) -> SessionRecord:
        """Post the copy as a new session at once; `kept_open` None is like the old session."""
        sessions.registry.require_models(agent, deps)
        task = root_of(id_) if self.task == self.record.root else random_task_id()
        _SessionCopy(sessions, self, id_, task).post(agent, kept_open, terms)
        sessions.registry.register_session(id_, agent, deps)
        if terms.change is not None:
            sessions.registry.change_agents(id_, task, terms.change)
        return sessions.read.records.sessions[id_]


class _SessionCopy:
    """Copies the facts of a run into another session."""

    def __init__(self, sessions: Sessions, copied: CopiedRun, id_: SessionId, task: TaskId) -> None:
        self._facts = sessions.facts
        self._records = sessions.read.records
        self._copied = copied
        self._id = id_
        self._task = task
        """The id of the task at which the new run departs from the old one."""
        run = copied.record.run
        self._id_map: dict[bytes, bytes] = {run.encode(): id_.encode()}
        self._seq_map: dict[int, int] = {}

    def post(self, agent: Agent[Any], kept_open: KeptOpen | None, terms: ForkTerms) -> None:
        """Post the facts."""
        record = self._copied.record
        opened = self._with_new_ids(record.session_opened)
        assert isinstance(opened, events.SessionOpened), "only its ids have changed"
        known = {grant.id for grant in opened.grants}
        granted = current_grants(self._facts)
        around = tuple(it for it in granted if it.id not in known)
        opened = replace(
            opened,
            agent=agent.name,
            budget=agent.budget,
            grants=(*opened.grants, *around),
            forked_from=f"{record.run}/{self._copied.task}",
            attended=False,
        )
        if kept_open is not None:
            opened = replace(
                opened,
                owner=kept_open.owner,
                kind=kept_open.kind,
                metadata=kept_open.metadata,
                states=kept_open.states,
            )
        states = {it: fields for it, fields in opened.states.items() if it != ForkState.NAME}
        state = ForkState(
            stops_at=self._task if terms.stop else "",
            changed="" if terms.change is None else self._task,
            settings=getattr(terms.change, "settings", ()),
        )
        fork = store_states((state,))
        self._facts.post(replace(opened, states={**states, **fork}))
        open_turn = self._copied.open_turn
        for entry in self._copied.facts:
            match entry.event:
                case events.TurnStarted() as event if kept_open and event.turn == open_turn:
                    capability = kept_open.capability
                    self._copy(entry.seq, replace(event, capability=capability))
                case event:
                    self._copy(entry.seq, event)
        for process in list(self._records.sessions[self._id].processes.values()):
            self._facts.post(events.ProcessEnded(process.task, process.id, PROCESS_NOT_COPIED))

    def _copy(self, seq: int, event: events.Event) -> None:
        tasks = self._records.tasks
        event = self._with_new_ids(event)
        match event:
            case events.ModelAnswered(message=message):
                free = replace(message, usage=Usage())
                event = replace(event, message=free, copied=True)
            case events.ModelFailed():
                event = replace(event, usage=Usage(), charged=Usage())
            case events.TurnStarted():
                mail = tuple(self._seq_map[it] for it in event.mail)
                event = replace(event, mail=mail, trace=UNSET)
            case events.ToolAnswered():
                mail = tuple(self._seq_map[it] for it in event.mail)
                event = replace(event, mail=mail)
            # A restart after a crash, which the fork does not have.
            case events.TaskStarted(task) if tasks[task].is_running:
                return
            # The failure of its dependency, which was just copied, refused it.
            case events.TaskSettled(task) if tasks[task].outcome is not None:
                session = self._records.sessions[self._id]
                notices = {about: at for at, about in session.task_notices()}
                if task in notices:
                    self._seq_map[seq] = notices[task]
                return
            case events.TaskSettled(_, outcome):
                event = replace(event, outcome=replace(outcome, kept=True))
            case _:
                pass
        self._seq_map[seq] = self._records.last_seq + 1
        self._facts.post(event)

    def _with_new_ids(self, event: events.Event) -> events.Event:
        """Return a fact with the ids of the fork in place of the run's ids."""
        if isinstance(event, events.SessionOpened | events.MessageReceived):
            # The key of a client pays for the run that it began, but not for a fork.
            own = tuple(it for it in event.grants if not it.is_standing)
            event = replace(event, grants=own)
        if isinstance(event, events.MessageReceived) and "traceparent" in event.context:
            # The caller of the run has not called the fork.
            event = replace(event, context={**event.context, "traceparent": ""})
        encoded = encode(event)
        if isinstance(event, events.TaskRequested):
            is_departure = event.request.id == self._copied.task
            fresh_id = self._task if is_departure else random_task_id()
            self._id_map[event.request.id.encode()] = fresh_id.encode()
        if isinstance(event, events.SessionOpened | events.MessageReceived | events.TaskRequested):
            grants = (
                event.request.grants if isinstance(event, events.TaskRequested) else event.grants
            )
            for grant in grants:
                if grant.is_common:
                    continue  # it pays for the fork, too
                fresh = f"{SHARED_BUDGET_PREFIX}{random_task_id().removeprefix('t_')}".encode()
                self._id_map.setdefault(grant.id.encode(), fresh)
        body = ID_PATTERN.sub(lambda found: self._id_map.get(found[0], found[0]), encoded.body)
        return decode(Encoded(encoded.kind, encoded.version, body))
