"""Writes the golden journals: facts as they are stored, which two folds must read alike.

Run as `python -m tests.golden.make`. What is written once stays as it is: a fold that reads an old
journal in another way has changed what happened.
"""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path

from orchestrator.agents import (
    AssistantMessage,
    Budget,
    CallId,
    MessageId,
    ToolCall,
    ToolMessage,
    Usage,
)
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Origin,
    Outcome,
    Reason,
    SessionId,
    TaskId,
    TaskRequest,
    encode,
)
from orchestrator.delegation.events import (
    ApprovalAnswered,
    ApprovalAsked,
    CancelRequested,
    DeliveryFailed,
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    ModelFailed,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    QuietChanged,
    ReplyDelivered,
    SessionClosed,
    SessionOpened,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalVerdict
from orchestrator.delegation.events.processes import ProcessId
from tests.report.synthetic import run_of

NONE, _, PUSH = DeliveryCapability
DONE = Outcome(Ending.SUCCEEDED, "it is done")
USED = Usage(1, 1200, 80, 4_800, 0, 300, 20)
UNPRICED = Usage(1, 500, 40, 0, 1)
S = SessionId("s1")
ROOT = TaskId("s1")


class Story:
    """Makes entries; each fact comes a little later than the one before."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.entries: list[Entry] = []
        self.ids = itertools.count(1)
        self.now = 1_790_000_000.125

    def post(self, *facts: Event, after: float = 0.375) -> int:
        """Return the number of the last fact."""
        for fact in facts:
            self.now += after
            entry = Entry(len(self.entries) + 1, self.now, self.ledger.session_of(fact), fact)
            self.ledger.fold(entry)
            self.entries.append(entry)
        return len(self.entries)

    def begin(self, capability: DeliveryCapability, text: str = "Find out") -> None:
        self.post(
            JournalOpened("0.1.0"),
            SessionOpened(S, "editor", budget=Budget(usd=3)),
            DoorOpened(S, capability),
        )
        seq = self.post(MessageReceived(S, text, id=MessageId("m1")))
        self.post(TurnStarted(S, 1, capability, (seq,)))

    def ask(
        self,
        task: str,
        agent: str = "researcher",
        *,
        parent: TaskId = ROOT,
        mode: Mode = Mode.JOINED,
        capability: DeliveryCapability = PUSH,
        needs: tuple[TaskId, ...] = (),
        label: str = "",
        goal: str = "Look it up",
        started: bool = False,
    ) -> TaskId:
        request = TaskRequest(
            id=TaskId(task),
            parent=parent,
            origin=Origin(session=S, turn=1, capability=capability),
            call=f"call-{task}",
            agent=agent,
            goal=goal,
            label=label,
            needs=needs,
        )
        reason = Reason.CAN_BE_TOLD_LATER if mode is Mode.DETACHED else Reason.CANNOT_BE_TOLD_LATER
        self.post(TaskRequested(request, mode, reason, started))
        return TaskId(task)

    def say(self, task: TaskId, text: str = "Well.", usage: Usage = USED, call: str = "") -> None:
        self.post(self.answer(task, text, usage, call))

    def answer(
        self, task: TaskId, text: str = "Well.", usage: Usage = USED, call: str = ""
    ) -> ModelAnswered:
        calls = (ToolCall("look", {"for": text}, id=CallId(call)),) if call else ()
        said = MessageId(f"m{len(self.entries)}")
        return ModelAnswered(task, AssistantMessage(text, calls, usage, "opus", id=said))

    def end(self, task: TaskId, outcome: Outcome = DONE) -> None:
        self.post(TaskSettled(task, outcome))


def answered(call: str, text: str = "found") -> ToolMessage:
    return ToolMessage(CallId(call), text, id=MessageId(f"a-{call}"))


def one_shot() -> Story:
    """A run whose caller waits inside it: two are joined, one fails and is tried again."""
    story = Story()
    story.begin(NONE)
    story.say(ROOT, "I ask two.")
    one, two = story.ask("t1"), story.ask("t2", "reviewer", label="second look")
    story.post(TaskStarted(one), TaskStarted(two))
    story.say(one, call="c1")
    story.post(ToolAnswered(one, answered("c1")))
    story.post(ModelFailed(two, "503", Usage(1, 700, 0, 2_100)))
    story.end(two, Outcome(Ending.FAILED, error="the provider failed: 503"))
    again = story.ask("t3", "reviewer", started=True)
    story.post(TaskSettled(again, DONE, story.answer(again, usage=UNPRICED)))
    story.end(one)
    story.say(ROOT, "Here it is.")
    story.post(TurnEnded(S, 1, DONE), DoorClosed(S))
    return story


def background() -> Story:
    """A session that is told later: detached tasks, news, a second turn, a reply on its way."""
    story = Story()
    story.begin(PUSH, "Keep an eye on it")
    one = story.ask("t1", mode=Mode.DETACHED)
    two = story.ask("t2", "watcher", mode=Mode.DETACHED, label="the logs")
    story.post(TaskStarted(one))
    story.say(ROOT, "I have asked two.")
    story.post(TurnEnded(S, 1, DONE), ReplyDelivered(S, 1))
    story.post(TaskStarted(two), after=90.5)
    below = story.ask("t3", "reader", parent=one, capability=NONE)
    story.post(TaskStarted(below), QuietChanged(below, quiet=True))
    story.say(below)
    story.post(QuietChanged(below, quiet=False))
    story.end(below)
    story.say(one)
    story.end(one)
    seq = len(story.entries)
    story.post(TurnStarted(S, 2, PUSH, (seq,)))
    story.say(ROOT, "One of them says this.")
    story.post(TurnEnded(S, 2, Outcome(Ending.OVER_BUDGET, error="usd", kind="usd")))
    story.post(DeliveryFailed(S, 2, 1, "nobody there"))
    story.post(CancelRequested(two))
    story.end(two, Outcome(Ending.CANCELLED, error="it was asked to end"))
    return story


def crash() -> Story:
    """The process dies twice: what ran is interrupted, goes on, begins anew, or is lost."""
    story = Story()
    story.begin(PUSH)
    one = story.ask("t1", mode=Mode.DETACHED)
    two = story.ask("t2")
    story.post(TaskStarted(one), TaskStarted(two))
    three = story.ask("t3", "reader", parent=two)
    story.post(TaskStarted(three))
    story.say(three)
    story.post(JournalOpened("0.1.0"), after=3600.0)
    story.post(DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH))
    story.post(TaskStarted(one, afresh=True), TaskStarted(two))
    story.post(TaskStarted(three))
    story.end(three, Outcome(Ending.LOST, error="its process died"))
    story.say(two, usage=UNPRICED)
    story.post(JournalOpened("0.2.0"), after=60.0)
    return story


def approvals() -> Story:
    """Calls that wait for approval, and background commands."""
    story = Story()
    story.begin(PUSH)
    one = story.ask("t1", "coder", mode=Mode.DETACHED)
    two = story.ask("t2", "coder", mode=Mode.DETACHED)
    story.post(TaskStarted(one), TaskStarted(two))
    story.say(one, call="c1")
    deadline = story.now + 600
    asked = ApprovalAsked(one, ApprovalId("a1"), CallId("c1"), "terminal", "rm -r build/", deadline)
    story.post(asked)
    story.post(ApprovalAnswered(one, ApprovalId("a1"), ApprovalVerdict.TASK, by="ann"))
    story.post(ToolAnswered(one, answered("c1", "gone")))
    story.say(two, call="c2")
    asked = ApprovalAsked(
        two, ApprovalId("a2"), CallId("c2"), "terminal", "git push", deadline, "git push -f"
    )
    story.post(asked)
    asked = ApprovalAsked(ROOT, ApprovalId("a3"), CallId("c3"), "write", "notes.md", deadline)
    story.post(asked)
    story.post(ProcessStarted(ROOT, ProcessId("p1"), "make", notify=True))
    story.post(ApprovalAnswered(ROOT, ApprovalId("a3"), ApprovalVerdict.DENY, "not now", "ann"))
    story.post(Steered(one, MessageId("x1"), "hurry", "/editor"))
    story.post(SteeringSeen(one, (MessageId("x1"),)))
    story.post(TurnEnded(S, 1, DONE))
    story.post(ProcessMatched(ROOT, ProcessId("p1"), ("error: 1",)))
    story.end(one)
    story.post(ProcessEnded(ROOT, ProcessId("p1"), "exit code 0", "built"))
    return story


def needs() -> Story:
    """Tasks that need others: one of them fails, so one never begins. Then it is closed."""
    story = Story()
    story.begin(PUSH)
    one = story.ask("t1", label="first")
    two = story.ask("t2", "reviewer")
    both = story.ask("t3", "writer", needs=(one, two))
    after = story.ask("t4", "writer", needs=(one,))
    story.post(TaskStarted(one), TaskStarted(two))
    story.end(two, Outcome(Ending.TIMED_OUT, error="120 seconds are over"))
    story.end(both, Outcome(Ending.REFUSED, error="a task that it needs did not succeed"))
    story.end(one)
    story.post(TaskStarted(after))
    said = AssistantMessage("copied", usage=USED, id=MessageId("copy"))
    story.post(ModelAnswered(after, said, copied=True))
    story.end(after)
    story.post(TurnEnded(S, 1, Outcome(Ending.FAILED, error="no answer")))
    story.post(DoorClosed(S), SessionClosed(S))
    return story


HOSTILE = (
    "</script><script>globalThis.pwned = 1</script>",
    "<img src=x onerror='globalThis.pwned = 1'>",
    "\u202egnp.exe\u2066 \u200f\x1b[31m\x00",
    "${globalThis.pwned = 1} {{constructor}} `x` \\u003c/script>",
    "]]>--><!-- <!doctype html>",
)


def hostile() -> Story:
    """Everything that a model can name or say is markup, or turns the direction of writing."""
    story = Story()
    story.begin(PUSH, HOSTILE[0])
    for number, text in enumerate(HOSTILE):
        task = story.ask(f"t{number}", text, label=text, goal=text)
        story.post(TaskStarted(task))
        story.say(task, text, call=f"c{number}")
        story.post(ToolAnswered(task, answered(f"c{number}", text)))
        story.end(task, Outcome(Ending.FAILED, output=text, error=text))
    long = story.ask("long", "talker", label="x" * 5_000)
    story.post(TaskStarted(long))
    story.say(long, "A" * 1_000_000)
    story.end(long, Outcome(Ending.FAILED, error="B" * 100_000))
    return story


def lines(entries: Iterable[Entry]) -> Iterable[str]:
    for entry in entries:
        fact = encode(entry.event)
        yield json.dumps(
            {
                "seq": entry.seq,
                "at": entry.at,
                "session": entry.session,
                "kind": fact.kind,
                "version": fact.version,
                "body": json.loads(fact.body),
            },
            ensure_ascii=True,
            separators=(",", ":"),
        )


def main() -> None:
    folder = Path(__file__).parent
    stories = (one_shot, background, crash, approvals, needs)
    journals = {make.__name__: make().entries for make in stories}
    journals["synthetic"] = run_of(120, seed=5, asking=0.1, until=60)
    for name, entries in journals.items():
        file = folder / f"{name.replace('_', '-')}.ndjson"
        file.write_text("\n".join(lines(entries)) + "\n")


if __name__ == "__main__":
    main()
