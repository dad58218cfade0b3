"""Runs that never were: any number of agents, the same facts for the same seed.

Folding them proves that they are possible.
"""

import heapq
import itertools
import random
from collections.abc import Generator
from typing import Final, TypeAlias

import attrs

from orchestrator.agents import AssistantMessage, CallId, MessageId, ToolCall, ToolMessage, Usage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Mode,
    Origin,
    Outcome,
    Reason,
    SessionId,
    TaskId,
    TaskRequest,
    root_of,
)
from orchestrator.delegation.events import (
    ApprovalAsked,
    DoorOpened,
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    SessionOpened,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnStarted,
)
from orchestrator.delegation.events.approvals import ApprovalId

EPOCH: Final = 1_790_000_000.0
SESSION: Final = SessionId("s_quarterly")
AGENTS: Final = ("researcher", "coder", "reviewer", "tester", "writer", "fetcher", "summarizer")
TOPICS: Final = (
    "vendor quotes",
    "API changelog",
    "cache keys",
    "schema drift",
    "OAuth scopes",
    "CSV parser",
    "docs links",
    "rate limits",
    "flaky tests",
    "release notes",
    "invoice totals",
    "retry budget",
)
ERRORS: Final = (
    "the provider failed: 503 Service Unavailable, after 4 tries",
    "the answer is no JSON: line 1, column 1",
    "the tool `fetch` failed: connection refused",
)
MODELS: Final = {"researcher": "opus", "coder": "sonnet", "fetcher": "local:smollm2"}

Steps: TypeAlias = Generator["float | list[Task]", None, None]


@attrs.define
class Task:
    """A task of a plan."""

    id: TaskId
    agent: str
    label: str
    size: int
    """How many tasks it is, with all below it."""
    parent: "Task | None" = None
    mode: Mode = Mode.JOINED
    fails: Ending | None = None
    asks: bool = False
    """It asks for an approval that never comes."""
    waits_for: int = 0
    """How many of its children have not ended."""


class Script:
    """Makes the facts of one run."""

    def __init__(self, agents: int, *, seed: int, asking: float) -> None:
        self.random = random.Random(seed)
        self.asking = asking
        self.entries: list[Entry] = []
        self.ids = itertools.count(1)
        self.order = itertools.count()
        self.now = EPOCH
        self.due: list[tuple[float, int, Task, Steps]] = []
        self.running: dict[TaskId, Steps] = {}
        self.root = Task(root_of(SESSION), "planner", "", agents)

    def post(self, fact: Event) -> None:
        seq = len(self.entries) + 1
        session = SessionId("") if isinstance(fact, JournalOpened) else SESSION
        self.entries.append(Entry(seq, round(self.now, 3), session, fact))

    def play(self, until: float | None) -> list[Entry]:
        push = DeliveryCapability.PUSH
        self.post(JournalOpened("0.1.0"))
        self.post(SessionOpened(SESSION, self.root.agent))
        self.post(DoorOpened(SESSION, push))
        message_id = MessageId("m_goal")
        self.post(MessageReceived(SESSION, "Ship the quarterly report", id=message_id))
        self.post(TurnStarted(SESSION, 1, push, (len(self.entries),)))
        self.begin(self.root, self.act(self.root))
        while self.due:
            at, _, task, steps = heapq.heappop(self.due)
            if until is not None and at > EPOCH + until:
                break
            self.now = at
            self.advance(task, steps)
        return self.entries

    def begin(self, task: Task, steps: Steps) -> None:
        self.running[task.id] = steps
        self.advance(task, steps)

    def advance(self, task: Task, steps: Steps) -> None:
        """Let a task do its next step, and wait as long as that says."""
        for waits in steps:
            if isinstance(waits, float):
                at = self.now + waits
                heapq.heappush(self.due, (at, next(self.order), task, steps))
                return
            joined = [child for child in waits if child.mode is Mode.JOINED]
            task.waits_for = len(joined)
            for child in waits:
                self.begin(child, self.live(child))
            if joined:
                return

    def live(self, task: Task) -> Steps:
        """Yield the steps of a task's life: queued, started, acting, settled."""
        yield self.random.uniform(0.02, 0.4)
        self.post(TaskStarted(task.id))
        yield from self.act(task)
        self.post(TaskSettled(task.id, self.outcome(task)))
        parent = task.parent
        if parent is not None and task.mode is Mode.JOINED:
            parent.waits_for -= 1
            if not parent.waits_for:
                steps = self.running[parent.id]
                heapq.heappush(self.due, (self.now, next(self.order), parent, steps))

    def outcome(self, task: Task) -> Outcome:
        if task.fails is None:
            return Outcome(Ending.SUCCEEDED, f"{task.label}: all of it is done.")
        error = self.random.choice(ERRORS)
        if task.fails is Ending.TIMED_OUT:
            error = "it took longer than the 120 seconds that its agent allows"
        if task.fails is Ending.CANCELLED:
            error = "it was asked to end"
        return Outcome(task.fails, error=error)

    def act(self, task: Task) -> Steps:
        """Yield the steps of an agent at work."""
        yield self.random.uniform(0.4, 2.5)
        children = self.plan(task)
        while children:
            size = min(len(children), self.random.choice((1, 2, 3, 5, 12, 44)))
            batch, children = children[:size], children[size:]
            self.answer(task, "I hand this on.", delegating=True)
            for number, child in enumerate(batch):
                self.request(task, child, f"{child.id}-{number}")
            yield batch
            yield self.random.uniform(0.3, 1.5)
        if task.size == 1 and self.random.random() < 0.3:
            yield from self.use_tool(task)
        if task.asks:
            self.answer(task, "I would clear this away.")
            self.ask(task)
            yield 1e9
        yield self.random.lognormvariate(0.7, 0.7)
        if task.fails is Ending.FAILED:
            self.post(ModelFailed(task.id, ERRORS[0], Usage(1, 900, 0, 2_700)))
        self.answer(task, f"{task.label or 'The report'}: done.")
        if task.parent is None:
            done = Outcome(Ending.SUCCEEDED, "The report is shipped.")
            self.post(TurnEnded(SESSION, 1, done))

    def plan(self, task: Task) -> list[Task]:
        """Return the children of a task, whose sizes add up to its own."""
        left = task.size - 1
        children: list[Task] = []
        wide = task.parent is None and left > 1_000
        width = 44 if wide else self.random.choice((2, 3, 4, 6, 11, 16))
        agent = "coder" if wide else self.random.choice(AGENTS)
        topic = self.random.choice(TOPICS)
        while left > 0:
            if wide:
                topic = self.random.choice(TOPICS)
            elif self.random.random() < 0.25:
                agent, topic = self.random.choice(AGENTS), self.random.choice(TOPICS)
            most = max(1, 2 * (task.size - 1) // width)
            size = min(left, self.random.randint(max(1, most // 3), most))
            if len(children) + 1 == width:
                size = left
            left -= size
            child = self.child(task, agent, f"{topic} #{len(children) + 1}", size)
            children.append(child)
            if child.fails is not None and size == 1 and left:
                left -= 1
                retry = self.child(task, agent, f"{child.label} (try 2)", 1)
                retry.fails = None
                children.append(retry)
        return children

    def child(self, task: Task, agent: str, label: str, size: int) -> Task:
        child = Task(TaskId(f"t_{next(self.ids):05}"), agent, label, size, task)
        chance = self.random.random()
        if chance < 0.04:
            child.fails = Ending.FAILED
        elif chance < 0.05:
            child.fails = Ending.TIMED_OUT
        elif chance < 0.06:
            child.fails = Ending.CANCELLED
        elif size == 1 and self.random.random() < self.asking:
            child.asks = True
        if task.parent is None and self.random.random() < 0.15:
            child.mode = Mode.DETACHED
        return child

    def request(self, task: Task, child: Task, call: str) -> None:
        is_detached = child.mode is Mode.DETACHED
        request = TaskRequest(
            id=child.id,
            parent=task.id,
            origin=Origin(session=SESSION, turn=1, capability=DeliveryCapability.PUSH),
            call=call,
            agent=child.agent,
            goal=f"Look into the {child.label} and say what has to change.",
            label=child.label,
        )
        reason = Reason.CAN_BE_TOLD_LATER if is_detached else Reason.ASKED_TO_WAIT
        self.post(TaskRequested(request, child.mode, reason))

    def answer(self, task: Task, text: str, *, delegating: bool = False) -> None:
        tokens = self.random.randint(400, 9_000)
        written = self.random.randint(20, 700)
        is_priced = task.agent != "fetcher"
        usage = Usage(
            calls=1,
            input_tokens=tokens,
            output_tokens=written,
            micro_usd=(3 * tokens + 15 * written) if is_priced else 0,
            unpriced=0 if is_priced else 1,
            cached_tokens=tokens // 3,
        )
        calls = (
            (ToolCall("delegate_task", {"goal": "…"}, id=CallId(f"c{len(self.entries)}")),)
            if delegating
            else ()
        )
        model = MODELS.get(task.agent, "haiku")
        message_id = MessageId(f"m_{len(self.entries)}")
        self.post(
            ModelAnswered(task.id, AssistantMessage(text, calls, usage, model, id=message_id))
        )

    def use_tool(self, task: Task) -> Steps:
        call = CallId(f"c{len(self.entries)}")
        message_id = MessageId(f"m_{len(self.entries)}")
        wish = ToolCall("search", {"for": task.label}, id=call)
        usage = Usage(1, 700, 30, 2_550)
        answer = AssistantMessage("", (wish,), usage, "haiku", id=message_id)
        self.post(ModelAnswered(task.id, answer))
        yield self.random.uniform(0.1, 3.0)
        found = ToolMessage(call, "3 files", id=MessageId(f"m_{len(self.entries)}"))
        self.post(ToolAnswered(task.id, found))

    def ask(self, task: Task) -> None:
        self.post(
            ApprovalAsked(
                task.id,
                ApprovalId(f"a_{task.id}"),
                CallId("c_rm"),
                "terminal",
                "rm -r build/",
                self.now + 3600,
                "terminal(command='rm -r build/')",
            )
        )


def run_of(
    agents: int, *, seed: int = 7, asking: float = 0.0, until: float | None = None
) -> list[Entry]:
    """Return the entries of a run.

    Args:
        agents: how many there are, the first one included.
        seed: the same facts for the same seed.
        asking: the share of the tasks without children that ask for an approval.
        until: break off after so many seconds; what runs then still runs.
    """
    return Script(agents, seed=seed, asking=asking).play(until)
