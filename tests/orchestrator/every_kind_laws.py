"""The laws of the journal of `every_kind_kit`, at every cut."""

from collections import Counter
from collections.abc import Mapping, Sequence

from orchestrator.agents import AssistantMessage, CallId, ToolCall, ToolMessage
from orchestrator.delegation import Ending, Mode, TaskId
from orchestrator.delegation.events import (
    Entry,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    ReplyDelivered,
    SessionOpened,
    Steered,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnStarted,
)
from orchestrator.kernel.journal.journal import fold_entries
from tests.kit import facts
from tests.orchestrator.every_kind_kit import EXPECTED, MESSAGES, MIDDLE_CALLS, SPENDER_CALLS

ENDINGS = {ending.value for ending in Ending}


def check_journal(entries: Sequence[Entry]) -> None:
    """Raise `AssertionError` if anything was lost, told twice, done twice or overspent."""
    check_the_end(entries)
    check_tasks(entries)
    check_mail(entries)
    check_replies(entries)
    check_steps(entries)
    check_budgets(entries)


def check_the_end(entries: Sequence[Entry]) -> None:
    """The journal folds, it has no hole, and nothing is left to be done."""
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    ledger = fold_entries(entries, "journal")
    (session,) = ledger.sessions.values()
    assert session.is_idle
    assert not ledger.unstartable
    unsettled = [task.path for task in ledger.tasks.values() if task.parent and not task.outcome]
    assert not unsettled


def check_tasks(entries: Sequence[Entry]) -> None:
    """No task is asked for twice, and each settles once, as it must."""
    requested = facts(entries, TaskRequested)
    goals = [named(fact) for fact in requested]
    assert sorted(goals) == sorted(EXPECTED)
    assert len({(it.request.parent, it.request.call) for it in requested}) == len(goals)
    settled = facts(entries, TaskSettled)
    assert Counter(it.task for it in settled) == Counter(it.request.id for it in requested)
    goal_of = {fact.request.id: named(fact) for fact in requested}
    for fact in settled:
        ending, error = fact.outcome.ending, fact.outcome.error
        assert ending in EXPECTED[goal_of[fact.task]], (goal_of[fact.task], ending, error)
    said = Counter((fact.task, fact.id) for fact in facts(entries, Steered))
    assert len(said) == sum(said.values()) == 1


def named(fact: TaskRequested) -> str:
    return fact.request.goal.removesuffix(" of the lead")


def check_mail(entries: Sequence[Entry]) -> None:
    """The messages and every detached completion were read, once."""
    detached = {
        fact.request.id for fact in facts(entries, TaskRequested) if fact.mode is Mode.DETACHED
    }
    mail = Counter(
        entry.seq
        for entry in entries
        if isinstance(entry.event, MessageReceived)
        or (isinstance(entry.event, TaskSettled) and entry.event.task in detached)
    )
    read = Counter(seq for fact in facts(entries, TurnStarted) for seq in fact.mail)
    read += Counter(seq for fact in facts(entries, ToolAnswered) for seq in fact.mail)
    assert read == mail
    assert [fact.text for fact in facts(entries, MessageReceived)] == list(MESSAGES)


def check_replies(entries: Sequence[Entry]) -> None:
    """Every turn ended once, well, and its reply was taken once."""
    ended = facts(entries, TurnEnded)
    assert [fact.turn for fact in ended] == list(range(1, len(ended) + 1))
    assert {fact.outcome.ending.value for fact in ended} == {"succeeded"}
    delivered = sorted(fact.turn for fact in facts(entries, ReplyDelivered))
    assert delivered == [fact.turn for fact in ended]


def check_steps(entries: Sequence[Entry]) -> None:
    """Each answer of a model is followed by the answers to its calls, each once, and no more."""
    ending = {fact.task: fact.outcome.ending for fact in facts(entries, TaskSettled)}
    pending: dict[TaskId, set[CallId] | None] = {}
    for entry in entries:
        match entry.event:
            case ModelAnswered(task, AssistantMessage() as said):
                assert not pending.get(task, set()), f"{entry.seq}: it was not its turn"
                pending[task] = {call.id for call in said.calls} or None
            case ToolAnswered(task, ToolMessage() as answer):
                calls = pending[task]
                assert calls, f"{entry.seq}: it has not called anything"
                assert answer.call in calls, f"{entry.seq}: it is told twice"
                calls.remove(answer.call)
            case TaskStarted(task, afresh=True):
                pending[task] = set()
            case TurnStarted(session):
                pending[TaskId(session)] = set()
            case TaskSettled(task):
                has_said = pending.get(task, set()) is None
                # A task that a crash loses is lost, also if its last answer is durable.
                allowed = {"succeeded", "lost"} if has_said else ENDINGS - {"succeeded"}
                assert ending[task].value in allowed, f"{entry.seq}: {ending[task]}"
            case _:
                pass


def calls_of(entries: Sequence[Entry]) -> list[tuple[TaskId, ToolCall, str]]:
    """Return all calls, with their answers; a task that began anew or was lost has left some."""
    calls: list[tuple[TaskId, ToolCall, str]] = []
    pending: dict[tuple[TaskId, CallId], ToolCall] = {}
    for entry in entries:
        match entry.event:
            case ModelAnswered(task, AssistantMessage() as said):
                for call in said.calls:
                    if (task, call.id) in pending:
                        calls.append((task, pending[task, call.id], ""))
                    pending[task, call.id] = call
            case ToolAnswered(task, ToolMessage() as answer):
                calls.append((task, pending.pop((task, answer.call)), answer.text))
            case _:
                pass
    return calls + [(task, call, "") for (task, _), call in pending.items()]


def check_budgets(entries: Sequence[Entry]) -> None:
    """Of no budget was more used than it allows, in what the facts say was used."""
    parents: dict[TaskId, TaskId] = {
        fact.request.id: fact.request.parent for fact in facts(entries, TaskRequested)
    }
    used: Counter[TaskId] = Counter()
    asked = [fact.task for fact in facts(entries, ModelAnswered)]
    for caller in asked + [fact.task for fact in facts(entries, ModelFailed)]:
        task: TaskId | None = caller
        while task is not None:
            used[task] += 1
            task = parents.get(task)
    allowed: Mapping[str, int] = {"spender": SPENDER_CALLS, "middle": MIDDLE_CALLS}
    for request in facts(entries, TaskRequested):
        agent = request.request.agent
        if agent in allowed:
            assert used[request.request.id] <= allowed[agent], request.request.goal
    (opened,) = facts(entries, SessionOpened)
    budget = opened.budget
    assert budget is not None
    assert budget.calls is not None
    assert used[TaskId(opened.session)] <= budget.calls
    assert len(parents) == budget.tasks
