"""Random valid histories: replay agrees with the live ledger."""

import math
from collections.abc import Callable
from typing import TypeAlias

import networkx as nx
from hypothesis import settings
from hypothesis.stateful import invariant, run_state_machine_as_test
from msgspec.structs import astuple, replace

from orchestrator.agents import Usage, UserMessage
from orchestrator.delegation import (
    Account,
    DeliveryCapability,
    Ledger,
    TaskId,
    TaskNotice,
    decode,
    encode,
)
from orchestrator.delegation.events import TaskSettled
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalVerdict
from tests.delegation.fact_strategies import Facts
from tests.delegation.reference_books import Task, ids

Snapshot: TypeAlias = Callable[[Ledger], object]

NONE = DeliveryCapability.NONE


def at_most(limit: int | None) -> float:
    return math.inf if limit is None else limit


def booked(account: Account) -> tuple[int, ...]:
    return astuple(account.used)


class CheckedFacts(Facts):
    """Compares what the ledger knows with the books, after every fact."""

    @invariant()
    def every_task_is_where_it_should_be(self) -> None:
        assert list(self.ledger.tasks) == list(self.tasks)
        for task in self.tasks.values():
            record = self.record(task)
            assert record.outcome == task.outcome
            assert record.is_running is task.acts()
            assert len(record.transcript) == task.heard
            assert list(record.children.unsettled) == ids(task.below())
            assert ids(task.joined_below()) == [
                child.id for child in self.ledger.unsettled_below(task.id)
            ]
            for other in self.tasks.values():
                is_below = other in task.line()[1:]
                assert self.ledger.is_descendant(task.id, other.id) is is_below

    @invariant()
    def a_task_settles_at_most_once(self) -> None:
        facts = [entry.event for entry in self.entries]
        settled = [fact.task for fact in facts if isinstance(fact, TaskSettled)]
        assert len(settled) == len(set(settled))

    @invariant()
    def mail_is_read_once_and_by_its_session(self) -> None:
        for session in self.sessions.values():
            record = self.ledger.sessions[session.id]
            letters = [
                it.text
                for it in record.root.transcript
                if isinstance(it, UserMessage) and not it.aside
            ]
            letters += [
                mail.text if isinstance(mail, UserMessage) else mail.text(1_000)
                for mail in record.mail.values()
            ]
            words = [*session.read.values(), *session.mail.values()]
            assert list(record.mail) == list(session.mail)
            assert len(letters) == len(words)
            assert all(map(str.__contains__, letters, words))
            assert session.completions() == [
                seq for seq, it in record.mail.items() if isinstance(it, TaskNotice)
            ]
            assert session.completions() == [seq for seq, _ in record.task_notices()]
            assert session.ended_commands() == [seq for seq, _ in record.process_notices()]
            assert record.envelopes.keys() <= record.mail.keys()

    @invariant()
    def what_was_said_meanwhile_is_kept_until_it_is_seen(self) -> None:
        for task in self.tasks.values():
            steering = self.record(task).steering
            assert {id_: not said.is_unseen for id_, said in steering.items()} == task.steering

    @invariant()
    def a_question_is_open_until_it_is_answered_or_its_call_is(self) -> None:
        still_open: list[ApprovalId] = []
        for task in self.tasks.values():
            record = self.record(task)
            assert {
                call: (ask.id, ask.is_open, ask.answered_while_not_running)
                for call, ask in record.questions.items()
            } == {call: (it.id, it.is_open, it.is_unheard) for call, it in task.questions.items()}
            assert record.approved == task.approved
            assert record.awaits_approval is bool(task.open_questions())
            if not task.session.awaits_resume():
                still_open += [it.id for it in task.open_questions()]
            for ask in record.questions.values():
                assert ask.path == record.path
                is_run = not (ask.is_open or ask.answer is ApprovalVerdict.DENY)
                assert ask.was_not_run is not (is_run and not ask.answered_while_not_running)
        assert sorted(self.ledger.open_questions) == sorted(still_open)
        asked = [ask.asked_at for ask in self.ledger.open_questions.values()]
        assert asked == sorted(asked)
        for session in self.sessions.values():
            assert self.ledger.sessions[session.id].approved == session.approved

    @invariant()
    def whoever_can_be_told_can_be_asked(self) -> None:
        for task in self.tasks.values():
            session = task.session
            is_told = session.turn not in {None, NONE}
            is_apart = any(above.detached for above in task.line())
            can_be = is_told or is_apart or session.attended
            assert self.ledger.can_ask_approval(task.id) is can_be

    @invariant()
    def a_command_is_known_until_it_ends(self) -> None:
        for session in self.sessions.values():
            record = self.ledger.sessions[session.id]
            assert {id_: (it.task, it.notify) for id_, it in record.processes.items()} == {
                id_: (it.task.id, it.notify) for id_, it in session.commands.items()
            }
            is_left = not (session.door or session.undelivered or session.commands)
            is_pending = not record.has_nothing_pending
            if session.awaits_resume() and not record.closed:
                is_pending = bool(session.mail or session.outstanding())
            assert record.is_idle is (is_left and not is_pending)

    @invariant()
    def metadata_and_states_are_as_they_were_changed_last(self) -> None:
        for session in self.sessions.values():
            record = self.ledger.sessions[session.id]
            assert record.metadata == session.metadata
            assert record.states.get("order", {}) == session.state

    @invariant()
    def what_is_due_is_due(self) -> None:
        due = [it for it in self.tasks.values() if self.has_slot(it) and not it.acts()]
        assert set(self.ledger.startable) == {it.id for it in due if it.detached}
        assert set(self.ledger.joinable) == {it.id for it in due if not it.detached}
        for session in self.sessions.values():
            record = self.ledger.sessions[session.id]
            waits = session.interrupted() if session.turn else bool(session.mail)
            assert (session.id in self.ledger.wakeable) is (waits and bool(session.door))
            assert record.awaits_resume is session.awaits_resume()

    @invariant()
    def who_needs_what_will_never_be_is_hopeless(self) -> None:
        hopeless = [it for it in self.tasks.values() if it.is_hopeless()]
        assert set(self.ledger.unstartable) == set(ids(hopeless))
        for task in hopeless:
            need = self.ledger.unstartable[task.id]
            assert need.id in ids(task.missing())
            assert need.outcome is not None
        for task in self.tasks.values():
            if task.outcome is None:
                assert set(self.record(task).pending_dependencies) == set(ids(task.missing()))

    @invariant()
    def a_due_task_has_a_slot_or_waits_for_one(self) -> None:
        for session in self.sessions.values():
            slots = self.ledger.sessions[session.id].slots
            entered = [it for it in session.tasks if it.entered]
            running = [it for it in session.tasks if self.has_slot(it)]
            waiting = [it for it in entered if it not in running]
            assert {*running} <= {*entered}
            assert {it for it in session.tasks if it.acts() and it.parent} <= {*running}
            assert slots.queued == len(waiting)
            assert slots.detached == sum(it.detached for it in running)
            assert slots.in_use == sum(
                not any(map(self.is_joined_and_runs, it.children)) for it in running
            )
            assert slots.in_use <= at_most(self.kept.live_tasks)
            assert slots.detached <= at_most(self.kept.detached)
            for task in (session.root, *running):
                assert self.running_below(task) <= at_most(self.kept.live_children)
            for task in waiting:
                assert self.must_wait(task)
            positions = slots.positions(map(self.record, waiting))
            assert len(positions) == len(waiting)
            assert all(1 <= it <= slots.queued for it in positions.values())

    def is_joined_and_runs(self, task: Task) -> bool:
        return self.has_slot(task) and not task.detached

    def running_below(self, task: Task) -> int:
        return sum(map(self.has_slot, task.children))

    def must_wait(self, task: Task) -> bool:
        assert task.parent is not None
        slots = self.ledger.sessions[task.session.id].slots
        is_new = not self.record(task).has_begun
        if is_new and any(above.paused for above in task.parent.line()):
            return True
        if self.running_below(task.parent) >= at_most(self.kept.live_children):
            return True
        if task.detached and slots.detached >= at_most(self.kept.detached):
            return True
        lends = self.has_slot(task.parent) and not any(
            map(self.is_joined_and_runs, task.parent.children)
        )
        can_borrow = lends and not task.detached
        return slots.in_use >= at_most(self.kept.live_tasks) and not can_borrow

    @invariant()
    def accounts_are_sums_over_the_tasks_that_pay_with_them(self) -> None:
        assert set(self.ledger.accounts) == set(self.purses)
        for id_, purse in self.purses.items():
            assert booked(self.ledger.accounts[id_]) == purse.totals()
            for session in self.sessions:
                part = self.ledger.sessions[session].own_accounts.get(id_)
                own = booked(part) if part is not None else (0, 0, 0, 0)
                assert own == purse.totals(session)
        for task in self.tasks.values():
            accounts = [account.id for account in self.record(task).accounts]
            assert accounts == [purse.id for purse in task.purses]

    @invariant()
    def what_is_torn_down_is_known_to_end_or_not(self) -> None:
        for task in self.tasks.values():
            detached = [above for above in task.line() if above.detached]
            # What is in the background outlives the turn that asked for it.
            last = task.line().index(detached[0]) if detached else len(task.line())
            cancelled = any(above.cancelled for above in task.line()[: last + 1])
            nobody_is_left = task.session.turn is NONE and not detached
            assert self.ledger.is_cancelled(task.id) is cancelled
            assert self.ledger.settles_on_teardown(task.id) is (cancelled or nobody_is_left)
            if task.outcome is None:
                stands = task.state == "interrupted"
                waits = stands if task.parent is None else not task.acts()
                assert self.ledger.has_no_runner(task.id) is waits

    @invariant()
    def every_session_shows_what_it_does(self) -> None:
        for session in self.sessions.values():
            record = self.ledger.sessions[session.id]
            waits_for = session.outstanding()
            status = "waiting" if session.awaits_news() else session.last
            if session.turn:
                status = session.root.state
            assert record.tree[session.root.id].status == status
            assert list(record.unsettled_detached) == ids(waits_for)
            assert list(record.undelivered) == session.undelivered
            is_busy = session.turn or session.mail or session.awaits_news()
            assert record.has_nothing_pending is not bool(is_busy)

    @invariant()
    def every_session_is_a_tree_whose_totals_are_sums(self) -> None:
        for session in self.sessions.values():
            tree = self.ledger.sessions[session.id].tree
            asked: nx.DiGraph[TaskId] = nx.DiGraph()
            asked.add_nodes_from(tree)
            asked.add_edges_from(
                (above, below)
                for above, below, edge in tree.to_networkx().edges(data=True)
                if edge["kind"] == "delegates"
            )
            assert nx.is_arborescence(asked)
            assert nx.is_directed_acyclic_graph(tree.to_networkx())
            assert list(tree) == ids(session.tasks)
            for task in session.tasks:
                spent = [it.spent for it in session.tasks if task in it.line()]
                assert tree[task.id].usage == task.spent
                assert tree[task.id].total == sum(spent, Usage())
                assert tree.children(task.id) == ids(task.children)
                assert tree.needs(task.id) == ids(task.needs)
                if task is not session.root:
                    assert tree[task.id].status in self.shown(task)
            needs = sum(len(task.needs) for task in session.tasks)
            assert tree.to_networkx().number_of_edges() == len(session.tasks) - 1 + needs

    def shown(self, task: Task) -> set[str]:
        """Return how a task may be shown."""
        record = self.record(task)
        if self.ledger.sessions[task.session.id].slots.is_waiting(record):
            return {"queued"}
        # Who stood in line after a crash, and was let in, is about to start.
        is_let_in = task.state == "interrupted" and record.has_slot
        return {task.state, "queued"} if is_let_in else {task.state}

    def teardown(self) -> None:
        """A fold of the stored facts gives the same state."""
        again = Ledger(self.kept)
        for entry in self.entries:
            again.fold(replace(entry, event=decode(encode(entry.event))))
        assert self.snapshot(again) == self.snapshot(self.ledger)


def test_replay_agrees_for_every_order_of_facts(snapshot: Snapshot) -> None:
    """The rules hold in every order of facts, and a restart needs no code of its own."""

    class Machine(CheckedFacts):
        def __init__(self) -> None:
            super().__init__(snapshot)

    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=70))
