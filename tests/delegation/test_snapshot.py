"""A snapshot and the facts after it give what all facts give."""

import ast
import hashlib
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from orchestrator import delegation
from orchestrator.agents import AssistantMessage, Budget, MessageId, Usage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Outcome,
    Rules,
    SessionId,
    TaskId,
    UnreadableFactError,
    UnwritableFactError,
    evict_session,
    root_of,
)
from orchestrator.delegation.events import (
    Entry,
    JournalOpened,
    ModelAnswered,
    ProcessEnded,
    ProcessStarted,
    SessionOpened,
    Steered,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.delegation.events.processes import ProcessId
from orchestrator.delegation.ledger.task_state import Ended, Interrupted, Queued
from orchestrator.delegation.snapshot import (
    LAYOUT,
    MIN_FACTS,
    MIN_FACTS_LEFT,
    Snapshot,
    is_own_layout,
    is_same_state,
    is_snapshot_due,
    snapshot_layout,
)
from orchestrator.delegation.snapshot.capture import take_snapshot
from orchestrator.delegation.snapshot.restore import adopt_session, restore_snapshot
from orchestrator.delegation.snapshot.stored_state import (
    decode_state,
    encode_state,
    state_code,
    state_of_code,
)
from tests.delegation.fact_strategies import Facts

Tell: TypeAlias = Callable[..., None]
Look: TypeAlias = Callable[[Ledger], object]
Asked: TypeAlias = Callable[..., TaskRequested]

S = SessionId("s")
NONE, _, PUSH = DeliveryCapability


def take(ledger: Ledger, session: SessionId) -> Snapshot:
    return take_snapshot(ledger, ledger.sessions[session])


def fold(ledger: Ledger, entries: Iterable[Entry]) -> Ledger:
    for entry in entries:
        ledger.fold(entry)
    for session in ledger.sessions.values():
        session.facts_in_snapshot = 0
    return ledger


def _without_origin(account: list[tuple[str, object]]) -> list[tuple[str, object]]:
    origin = {"path", "depth", "started_at"}
    return [(name, value) for name, value in account if name not in origin]


class SnapshottedFacts(Facts):
    """Takes snapshots of each session of a random history."""

    def own_entries(self, session: SessionId) -> list[Entry]:
        """Return the entries of a session, and those of no session since it was opened."""
        own = [it for it in self.entries if it.session in {session, ""}]
        while not own[0].session:
            del own[0]
        return own

    def teardown(self) -> None:
        alone: dict[SessionId, Ledger] = {}
        for session in self.sessions:
            entries = self.own_entries(session)
            whole = alone[session] = fold(Ledger(self.kept), entries)
            for count in {1, len(entries) // 3, len(entries) * 2 // 3, len(entries)}:
                before = fold(Ledger(self.kept), entries[:count])
                if session not in before.sessions:
                    continue
                snapshot = take(before, session)
                restored = restore_snapshot(snapshot)
                assert is_same_state(take(restored, session), snapshot)
                restored.rules = whole.rules
                fold(restored, entries[count:])
                assert self.look(restored) == self.look(whole)
            # What the others do is no part of it.
            live, refolded = take(self.ledger, session), take(whole, session)
            assert is_same_state(replace(live, seq=0), replace(refolded, seq=0))
        self.check_adopted(alone)

    def look(self, ledger: Ledger) -> object:
        """Return all that a ledger knows, but accounts that no task has any more.

        Nor where and when a budget was set that several sessions share: a session that has used
        nothing of it need not know.
        """
        known: dict[str, Any] = dict(cast("Any", self.snapshot(ledger)))
        used = {it.id for task in ledger.tasks.values() for it in task.accounts}
        known["accounts"] = sorted(
            (id_, _without_origin(rest) if id_.startswith("b_") else rest)
            for id_, rest in known["accounts"]
            if id_ in used
        )
        return known

    def check_adopted(self, alone: dict[SessionId, Ledger]) -> None:
        """Put the ledgers of single sessions together, and compare with the one of all."""
        together = Ledger(self.kept)
        for session, ledger in alone.items():
            adopt_session(together, session, restore_snapshot(take(ledger, session)))
        assert list(together.sessions) == list(self.ledger.sessions)
        assert together.tasks.keys() == self.ledger.tasks.keys()
        assert together.wakeable.keys() == self.ledger.wakeable.keys()
        assert together.startable.keys() == self.ledger.startable.keys()
        assert together.joinable.keys() == self.ledger.joinable.keys()
        assert together.unstartable.keys() == self.ledger.unstartable.keys()
        assert together.open_questions == self.ledger.open_questions
        for record in together.sessions.values():
            for account in record.accounts:
                assert account is together.accounts[account.id]
        for id_, account in together.accounts.items():
            assert account.used == self.ledger.accounts[id_].used


def test_a_snapshot_with_later_facts_equals_all_facts(snapshot: Look) -> None:
    class Machine(SnapshottedFacts):
        def __init__(self) -> None:
            super().__init__(snapshot)

    run_state_machine_as_test(
        Machine, settings=settings(max_examples=15, stateful_step_count=60, deadline=None)
    )


def test_a_snapshot_keeps_the_states_of_ended_tasks(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Callable[..., TaskRequested]
) -> None:
    """Most have the same ones, and one that was steered has more to tell."""
    begin(PUSH)
    done = Outcome(Ending.SUCCEEDED, "42")
    tell(requested("t1"), requested("t2"), requested("t3"))
    for id_ in map(TaskId, ("t1", "t2")):
        tell(TaskStarted(id_), TaskSettled(id_, done))
    steered = TaskId("t3")
    tell(TaskStarted(steered), Steered(steered, MessageId("m"), "faster", "ann"))
    tell(TaskSettled(steered, done))

    restored = restore_snapshot(take(ledger, S))

    assert restored.tasks[steered].steering == ledger.tasks[steered].steering
    for id_, task in ledger.tasks.items():
        assert (restored.tasks[id_].state, restored.tasks[id_].history) == (
            task.state,
            task.history,
        )


def test_a_snapshot_keeps_the_mark_of_kept_tasks(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Callable[..., TaskRequested]
) -> None:
    begin(NONE)
    kept, live = TaskId("t1"), TaskId("t2")
    tell(requested(kept), requested(live), TaskStarted(kept), TaskStarted(live))
    tell(TaskSettled(kept, Outcome(Ending.SUCCEEDED, "42", kept=True)))
    tell(TaskSettled(live, Outcome(Ending.SUCCEEDED, "42")))

    for tree in (ledger.sessions[S].tree, restore_snapshot(take(ledger, S)).sessions[S].tree):
        assert (tree[kept].kept, tree[live].kept) == (True, False)
        assert tree[kept].attributes()["kept"] is True
        assert "kept" not in tree[live].attributes()
        assert tree[kept].shown_label == f"kept · {tree[kept].goal}"
        assert tree[live].shown_label == tree[live].label
        assert tree.to_text().count("kept · ") == 1
        assert str(tree.diff(tree)[1]).endswith(", 1 kept")


def test_an_evicted_session_has_the_snapshot_of_before(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Callable[..., TaskRequested]
) -> None:
    """It leaves the memory with a task that never starts, and is stored afterwards."""
    begin(NONE)
    t1, t2 = TaskId("t1"), TaskId("t2")
    tell(requested(t1), requested(t2, needs=(t1,)), TaskStarted(t1))
    tell(TaskSettled(t1, Outcome(Ending.FAILED, error="no")), JournalOpened("1"))
    before = take(ledger, S)

    past = evict_session(ledger, S)

    assert list(past.unstartable) == [t2]
    assert is_same_state(take(past, S), before)
    assert not ledger.tasks


def test_tasks_to_come_of_an_earlier_turn_are_not_restored(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Callable[..., TaskRequested]
) -> None:
    begin(PUSH)
    fact = requested("t1")
    request = msgspec.structs.replace(fact.request, to_come=2)
    tell(msgspec.structs.replace(fact, request=request), TaskStarted(TaskId("t1")))

    assert restore_snapshot(take(ledger, S)).sessions[S].tree.to_come == 2

    done = Outcome(Ending.SUCCEEDED, "42")
    tell(TaskSettled(TaskId("t1"), done), TurnEnded(S, 1, done), TurnStarted(S, 2, PUSH, ()))

    assert ledger.sessions[S].tree.to_come == 0
    assert restore_snapshot(take(ledger, S)).sessions[S].tree.to_come == 0


def test_a_snapshot_keeps_postponed_deadlines(ledger: Ledger, tell: Tell) -> None:
    root = root_of(S)
    tell(SessionOpened(S, "editor", Budget(seconds=60)), TurnStarted(S, 1, NONE, ()))
    tell(ModelAnswered(root, AssistantMessage("half", usage=Usage(calls=1))))
    tell(JournalOpened("1"), TurnResumed(S, 1, NONE, paused=1_000.0))
    snapshot = take(ledger, S)
    (account,) = ledger.tasks[root].accounts
    deadline = account.deadline
    tell(JournalOpened("2"), TurnResumed(S, 1, NONE, paused=500.0))
    together = Ledger()

    adopt_session(together, S, restore_snapshot(snapshot))

    assert [it.deadline for it in together.tasks[root].accounts] == [deadline]


def test_a_damaged_snapshot_is_an_error(ledger: Ledger, begin: Tell) -> None:
    begin(NONE)
    whole = take(ledger, S)

    bomb = zlib.compress(bytes(50_000_000))
    for state in (b"", whole.state[:-9], zlib.compress(b'{"session": 1}'), bomb):
        with pytest.raises(UnreadableFactError, match="snapshot of session s is dam"):
            restore_snapshot(replace(whole, state=state))


def test_a_contradictory_snapshot_is_the_same_error(ledger: Ledger, begin: Tell) -> None:
    begin(NONE)
    whole = take(ledger, S)
    state = decode_state(whole.state)
    state.tasks.clear()

    with pytest.raises(UnreadableFactError, match="snapshot of session s is dam"):
        restore_snapshot(replace(whole, state=encode_state(state)))


def test_a_state_that_cannot_be_stored_is_an_error(ledger: Ledger, begin: Tell) -> None:
    begin(NONE)
    ledger.sessions[S].metadata = {"lone": "\ud800"}

    with pytest.raises(UnwritableFactError, match="session s has a state"):
        take(ledger, S)


def test_a_snapshot_depends_on_the_rules_for_slots(ledger: Ledger) -> None:
    layout = snapshot_layout(ledger.rules)

    assert layout == snapshot_layout(Rules(depth=3, processes=1))
    assert layout != snapshot_layout(Rules(live_tasks=3))
    assert layout != snapshot_layout(Rules(live_children=3))
    assert layout != snapshot_layout(Rules(detached=3))


def test_a_snapshot_keeps_the_notices_of_a_command_and_of_a_task(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(DeliveryCapability.PUSH)
    command, child = ProcessId("p_1"), TaskId("child")
    tell(requested(child, mode=Mode.DETACHED), TaskStarted(child))
    tell(TaskSettled(child, Outcome(Ending.SUCCEEDED, "42")))
    tell(ProcessStarted(TaskId(S), command, "make", notify=True))
    tell(TurnEnded(S, 1, Outcome(Ending.SUCCEEDED, "ok")))
    tell(ProcessEnded(TaskId(S), command, "exit code 0"))
    mail = list(ledger.sessions[S].mail.values())

    restored = restore_snapshot(take(ledger, S))

    assert len(mail) == 2
    assert list(restored.sessions[S].mail.values()) == mail


def test_a_snapshot_of_other_code_is_known_by_its_layout(ledger: Ledger, begin: Tell) -> None:
    begin(NONE)
    own = take(ledger, S)

    assert is_own_layout(own)
    assert is_own_layout(replace(own, layout=snapshot_layout(Rules(detached=3))))
    assert not is_own_layout(replace(own, layout=f"0 {own.layout}"))


def test_a_snapshot_is_due_after_many_facts(ledger: Ledger, begin: Tell) -> None:
    begin(PUSH)
    session = ledger.sessions[S]
    assert session.facts == 4
    assert not is_snapshot_due(session)

    session.facts = MIN_FACTS
    assert is_snapshot_due(session)
    session.facts, session.facts_in_snapshot = 100_000, 90_000
    assert not is_snapshot_due(session)
    session.facts = 104_000
    assert is_snapshot_due(session)

    assert not is_snapshot_due(session, MIN_FACTS_LEFT)
    session.facts = 110_000
    assert is_snapshot_due(session, MIN_FACTS_LEFT)


FOLD = (1, "0c7a2295bb244d6c")
"""The layout of snapshots, and a digest of the code that they are made by."""


def code_of(file: Path) -> str:
    """Return the code of a file without its docstrings, which change no state."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in [*body]:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                body.remove(statement)
    return ast.dump(tree)


def test_a_change_of_the_fold_raises_the_layout_of_snapshots() -> None:
    """A snapshot of another fold would be read as if the facts had given it."""
    folder = Path(delegation.__file__).parent
    files = [*folder.glob("ledger/*.py"), *folder.glob("events/*.py")]
    files += [*folder.glob("snapshot/*.py"), folder / "budget.py", folder / "amounts.py"]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(code_of(file).encode())

    assert (LAYOUT, digest.hexdigest()[:16]) == FOLD, (
        "the fold has changed: if it gives another state, raise LAYOUT; then write both down here"
    )


def test_a_stored_task_keeps_its_dependencies() -> None:
    ended = Ended(Outcome(Ending.SUCCEEDED, "42"))
    for state in (Queued(frozenset({TaskId("t1")})), Interrupted(frozenset({TaskId("t1")}))):
        assert state_of_code(state_code(state), state.dependencies, ended) == state
    assert state_of_code(state_code(ended), (), ended) is ended
