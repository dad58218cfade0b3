"""The laws of every journal, checked fact by fact.

The check computes its own sums, and compares them with the ledger.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import assert_never

from orchestrator.agents import Budget, Usage
from orchestrator.agents.budget import BudgetKind
from orchestrator.delegation import (
    Grant,
    ImpossibleEventError,
    Ledger,
    Mode,
    Rules,
    SessionId,
    TaskId,
    TaskRequest,
    events,
    root_of,
)
from orchestrator.delegation.amounts import NOTHING, ONE_TASK, Amounts


def assert_laws(entries: Sequence[events.Entry], rules: Rules | None = None) -> None:
    """Raise `AssertionError` with all violations, if a journal breaks a law."""
    broken = laws_of(entries, rules)
    assert not broken, "the journal breaks a law:\n" + "\n".join(broken)


def laws_of(entries: Sequence[events.Entry], rules: Rules | None = None) -> list[str]:
    """Return the violations of a journal, as sentences.

    Facts are in order. A task settles once, takes no step before it starts or after it has settled,
    and its joined children settle before it. Limits of slots and depth hold, budgets are not
    exceeded, mail is read once, a turn ends once, and the usage of a tree is the sum of its model
    calls. An idle session has no unsettled task.

    Args:
        entries: all entries of a journal, or of some of its sessions.
        rules: the limits that applied when the entries were written.
    """
    check = _JournalCheck(rules or Rules())
    for entry in entries:
        check.check(entry)
    return [*check.broken, *check.check_ledger(entries)]


class _Budget:
    """The usage of one budget."""

    def __init__(self, budget: Budget, depth: int) -> None:
        self.budget = budget
        self.depth = depth
        self.used = NOTHING
        self.held: dict[TaskId, Amounts] = {}
        """The reservations of open calls."""

    def add(self, usage: Usage, calls: int = 1) -> None:
        # A user's model may call a provider several times; this counts as one call.
        self.used += Amounts(calls=calls, tokens=usage.tokens, micro_usd=usage.micro_usd)

    def hold(self, task: TaskId, usage: Usage) -> None:
        self.held[task] = Amounts(calls=usage.calls, tokens=usage.tokens, micro_usd=usage.micro_usd)

    def release(self, task: TaskId) -> None:
        self.held.pop(task, None)

    def charge_held(self, task: TaskId) -> None:
        """Book the reservation of a call without an end."""
        self.used += self.held.pop(task, NOTHING)

    @property
    def exceeded(self) -> list[str]:
        return [
            f"{used} {kind} of {most}"
            for kind in BudgetKind
            for used, most in [self._used_of(kind)]
            if most is not None and used > most
        ]

    def _used_of(self, kind: BudgetKind) -> tuple[float, float | None]:
        """Return the used amount, and its limit."""
        used, budget = sum(self.held.values(), start=self.used), self.budget
        match kind:
            case BudgetKind.CALLS:
                return used.calls, budget.calls
            case BudgetKind.TOKENS:
                return used.tokens, budget.tokens
            case BudgetKind.USD:
                return used.micro_usd / 1_000_000, budget.usd
            case BudgetKind.TASKS:
                return used.tasks, budget.tasks
            case BudgetKind.SECONDS | BudgetKind.DEPTH:
                # Not sums: a deadline may end a task late, and each request has its own depth.
                return 0, None
            case _:
                assert_never(kind)


class _Task:
    def __init__(self, request: TaskRequest, mode: Mode, depth: int) -> None:
        self.request = request
        self.mode = mode
        self.depth = depth
        self.running = False
        self.joined_running = 0
        self.unsettled: set[TaskId] = set()
        """Joined children that have not settled."""
        self.settled = 0


class _JournalCheck:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.broken: list[str] = []
        self._seq = 0
        self._at = float("-inf")
        self._tasks: dict[TaskId, _Task] = {}
        self._unsettled_joined: dict[TaskId, set[TaskId]] = {}
        """Joined children of each session that have not settled."""
        self._slots: Counter[SessionId] = Counter()
        self._children: Counter[TaskId] = Counter()
        self._detached: Counter[SessionId] = Counter()
        self._read: set[int] = set()
        self._ended: set[tuple[SessionId, int]] = set()
        self._used: dict[SessionId, Usage] = {}
        self._budgets: dict[str, _Budget] = {}
        self._accounts: dict[TaskId, tuple[str, ...]] = {}
        self._session_accounts: dict[SessionId, tuple[str, ...]] = {}
        """The budgets that apply to all turns of a session."""
        self._message_grants: dict[int, tuple[Grant, ...]] = {}

    def check(self, entry: events.Entry) -> None:
        self._require(entry, entry.seq > self._seq, "comes after a later one")
        # Another process may have a different clock.
        is_later = entry.at >= self._at or isinstance(entry.event, events.JournalOpened)
        self._require(entry, is_later, "is dated before the one before it")
        self._seq, self._at = entry.seq, entry.at
        event = entry.event
        if isinstance(event, events.JournalOpened):
            self._interrupt()
        elif isinstance(event, events.SessionOpened):
            self._grant(root_of(event.session), 0, (), event.budget, event.grants)
            self._session_accounts[event.session] = self._accounts[root_of(event.session)]
        for part in events.parts_of(event):
            if isinstance(part, events.WorkFact | events.AttemptFact):
                self._check_work(entry, part)

    def _check_work(self, entry: events.Entry, event: events.WorkFact | events.AttemptFact) -> None:  # noqa: C901, PLR0912 (a case a fact)
        match event:
            case events.MessageReceived(grants=grants):
                self._message_grants[entry.seq] = grants
            case events.TurnStarted(session, mail=mail):
                self._require(entry, self._read.isdisjoint(mail), "reads mail again")
                self._read.update(mail)
                # The grants of a message apply to the turn that reads it.
                grants = tuple(grant for seq in mail for grant in self._message_grants.get(seq, ()))
                above = self._session_accounts.get(session, ())
                self._grant(root_of(session), 0, above, None, grants)
            case events.TurnEnded(session, turn):
                once = (session, turn) not in self._ended
                self._require(entry, once, "ends a turn again")
                self._ended.add((session, turn))
                waited = self._unsettled_joined.get(root_of(session), ())
                self._require(entry, not waited, "ends before its joined children")
            case events.TaskRequested(request, mode):
                self._requested(entry, request, mode)
            case events.TaskStarted(task, afresh):
                # A task that has lost its worker starts again in its slot.
                if not (afresh and self._tasks[task].running):
                    self._started(entry, self._tasks[task])
            case events.TaskSettled(task):
                self._settled(entry, task, self._tasks[task])
            case events.ModelCalled(task, reserved):
                self._require_running(entry, task)
                for account in self._accounts_of(task):
                    account.hold(task, reserved)
                    self._require_within_budget(entry, account)
            case events.ModelAnswered(task, message, copied):
                self._require_running(entry, task)
                if not copied:
                    self._booked(entry, task, message.usage)
            case events.ModelFailed(task, _, usage, charged=charged):
                self._require_running(entry, task)
                self._booked(entry, task, usage, charged)
            case events.ToolAnswered(task, _, mail):
                self._require_running(entry, task)
                self._require(entry, self._read.isdisjoint(mail), "reads mail again")
                self._read.update(mail)
            case events.QuietChanged():
                pass
            case _:
                assert_never(event)

    def _require(self, entry: events.Entry, condition: bool, otherwise: str) -> None:
        if not condition:
            kind = type(entry.event).__name__
            self.broken.append(f"entry {entry.seq}, {kind} of {entry.session}: {otherwise}")

    def _interrupt(self) -> None:
        """Mark all running tasks as not running."""
        for task in self._tasks.values():
            task.running = False
            task.joined_running = 0
        for account in self._budgets.values():
            for id_ in list(account.held):
                account.charge_held(id_)
        self._slots.clear()
        self._children.clear()
        self._detached.clear()

    def _grant(
        self,
        task: TaskId,
        depth: int,
        above: tuple[str, ...],
        budget: Budget | None,
        grants: tuple[Grant, ...],
    ) -> None:
        own = [*grants, *([] if budget is None else [Grant(task, budget)])]
        for grant in own:
            self._budgets.setdefault(grant.id, _Budget(grant.budget, depth))
        new = (grant.id for grant in own if grant.id not in above)
        self._accounts[task] = (*above, *new)

    def _requested(self, entry: events.Entry, request: TaskRequest, mode: Mode) -> None:
        parent = self._tasks.get(request.parent)
        depth = 1 if parent is None else parent.depth + 1
        self._tasks[request.id] = _Task(request, mode, depth)
        self._require(entry, depth <= self._rules.depth, f"is {depth} levels deep")
        above = self._accounts.get(request.parent, ())
        # The budgets of the request count the task itself; the task's own budget is for its work.
        self._grant(request.id, depth - 1, above, None, request.grants)
        for id_ in self._accounts[request.id]:
            account = self._budgets[id_]
            account.used += ONE_TASK
            most = account.budget.depth
            fits = most is None or depth - account.depth <= most
            self._require(entry, fits, f"is too deep for {account.budget}")
            self._require_within_budget(entry, account)
        above = self._accounts[request.id]
        self._grant(request.id, depth, above, request.budget, ())
        if mode is Mode.JOINED:
            if parent is not None:
                parent.unsettled.add(request.id)
            else:
                self._unsettled_joined.setdefault(request.parent, set()).add(request.id)

    def _started(self, entry: events.Entry, task: _Task) -> None:
        self._require(entry, not task.settled, "starts after its end")
        self._require(entry, not task.running, "starts while it runs")
        rules, session = self._rules, entry.session
        task.running = True
        parent = self._tasks.get(task.request.parent)
        self._children[task.request.parent] += 1
        # A waiting parent lends its slot to its first joined child.
        borrows = task.mode is Mode.JOINED and parent is not None and parent.running
        if not (borrows and parent is not None and not parent.joined_running):
            self._slots[session] += 1
        if task.mode is Mode.DETACHED:
            self._detached[session] += 1
        elif parent is not None:
            parent.joined_running += 1
        live = self._children[task.request.parent]
        for count, most, what in (
            (self._slots[session], rules.live_tasks, "tasks work"),
            (live, rules.live_children, "tasks of one parent run"),
            (self._detached[session], rules.detached, "tasks run in the background"),
        ):
            fits = most is None or count <= most
            self._require(entry, fits, f"{count} {what}, of {most} that may")

    def _settled(self, entry: events.Entry, id_: TaskId, task: _Task) -> None:
        task.settled += 1
        self._require(entry, task.settled == 1, f"is settled {task.settled} times")
        self._require(entry, not task.unsettled, "ends before its joined children")
        parent = self._tasks.get(task.request.parent)
        if parent is not None:
            parent.unsettled.discard(id_)
        self._unsettled_joined.get(task.request.parent, set()).discard(id_)
        if not task.running:
            return
        task.running = False
        self._children[task.request.parent] -= 1
        if task.mode is Mode.DETACHED:
            self._detached[entry.session] -= 1
        elif parent is not None:
            parent.joined_running -= 1
        lent = task.mode is Mode.JOINED and parent is not None and parent.running
        if not (lent and parent is not None and not parent.joined_running):
            self._slots[entry.session] -= 1

    def _require_running(self, entry: events.Entry, task: TaskId) -> None:
        if task in self._tasks:
            known = self._tasks[task]
            self._require(entry, known.running, f"{task} acts while it does not run")

    def _accounts_of(self, task: TaskId) -> list[_Budget]:
        return [self._budgets[id_] for id_ in self._accounts.get(task, ())]

    def _booked(
        self, entry: events.Entry, task: TaskId, usage: Usage, charged: Usage | None = None
    ) -> None:
        used = self._used.get(entry.session, Usage())
        self._used[entry.session] = used + usage
        for account in self._accounts_of(task):
            account.release(task)
            if charged is None:
                account.add(usage)
            else:
                account.add(charged, charged.calls)
            self._require_within_budget(entry, account)

    def _require_within_budget(self, entry: events.Entry, account: _Budget) -> None:
        passed = account.exceeded
        self._require(entry, not passed, f"{account.budget}: {', '.join(passed)}")

    def check_ledger(self, entries: Sequence[events.Entry]) -> Iterator[str]:
        """Yield the differences from the ledger's sums."""
        ledger = Ledger(self._rules)
        try:
            for entry in entries:
                ledger.fold(entry)
        except ImpossibleEventError as exc:
            yield f"the ledger refuses a fact: {exc}"
            return
        for session in ledger.sessions.values():
            used = self._used.get(session.id, Usage())
            if session.tree.total != used:
                yield f"{session.id} has used {session.tree.total}, and its models {used}"
            if session.has_nothing_pending:
                for id_, task in self._tasks.items():
                    if not task.settled and task.request.origin.session == session.id:
                        yield f"{session.id} has ended, and task {id_} has not"
