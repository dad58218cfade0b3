"""Commands in the background: what is true of them, and what their session is told."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.agents import CallId, ToolMessage, UserMessage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    ImpossibleEventError,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    SessionRecord,
    Status,
    TaskId,
    root_of,
)
from orchestrator.delegation.events import (
    DoorClosed,
    DoorOpened,
    Entry,
    Event,
    JournalOpened,
    MessageReceived,
    NetworkRequested,
    ProcessEnded,
    ProcessMatched,
    ProcessStarted,
    ProcessUnreachable,
    ReplyDelivered,
    SessionClosed,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    ToolAnswered,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkspaceOpened,
)
from orchestrator.delegation.events.processes import ProcessId, ProcessNotice, ProcessRecord

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]
Snapshot: TypeAlias = Callable[[Ledger], object]

NONE, PUSH = DeliveryCapability.NONE, DeliveryCapability.PUSH
S, OTHER = SessionId("s"), SessionId("other")
ROOT = root_of(S)
CHILD, SIBLING, ENDED, QUEUED = map(TaskId, ("child", "sibling", "ended", "queued"))
NOBODY = TaskId("nobody")
P, Q, OF_CHILD, UNKNOWN = map(ProcessId, ("p_1", "p_2", "p_3", "p_none"))
DONE = Outcome(Ending.SUCCEEDED, "42")
LOOKED = ToolMessage(CallId("call"), "it has ended")
RESTART = JournalOpened("1.0")


@pytest.fixture
def session(ledger: Ledger, begin: Tell) -> SessionRecord:
    """A session in its first turn that can be told something later."""
    begin(PUSH)
    return ledger.sessions[S]


def read_now(session: SessionRecord) -> TurnStarted:
    """Return the fact that a session begins a turn in which it reads all its mail."""
    return TurnStarted(session.id, session.turns + 1, PUSH, tuple(session.mail))


def last_read(session: SessionRecord) -> str:
    message = session.root.transcript[-1]
    assert isinstance(message, UserMessage)
    return message.text


def only_news(session: SessionRecord) -> ProcessNotice:
    (news,) = session.mail.values()
    assert isinstance(news, ProcessNotice)
    return news


class TestRunning:
    def test_a_command_runs_from_its_first_fact_to_its_last(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify=True))
        assert session.processes == {P: ProcessRecord(P, ROOT, "make", notify=True)}

        tell(ProcessEnded(ROOT, P, "exit code 0"))
        assert session.processes == {}

    def test_a_process_outlives_the_turn_that_started_it(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify=True), TurnEnded(S, 1, DONE))

        assert list(session.processes) == [P]

    def test_a_process_ends_with_a_turn_without_async_delivery(
        self, ledger: Ledger, begin: Tell, tell: Tell
    ) -> None:
        begin(NONE)
        tell(ProcessStarted(ROOT, P, "make", notify=False), TurnEnded(S, 1, DONE))

        assert ledger.sessions[S].processes == {}

    def test_a_process_ends_only_with_the_task_that_started_it(
        self, session: SessionRecord, tell: Tell, requested: Asked
    ) -> None:
        tell(requested(CHILD), TaskStarted(CHILD))
        tell(ProcessStarted(ROOT, P, "make", notify=True))
        tell(ProcessStarted(CHILD, OF_CHILD, "serve", notify=False))

        tell(TaskSettled(CHILD, DONE))

        assert list(session.processes) == [P]
        assert session.mail == {}

    def test_a_session_is_not_at_rest_while_a_command_runs(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        """An evicted session could not be told that the command ended."""
        tell(ProcessStarted(ROOT, P, "serve", notify=False), TurnEnded(S, 1, DONE))
        tell(ReplyDelivered(S, 1), DoorClosed(S))

        assert session.has_nothing_pending
        assert not session.is_idle

        tell(ProcessEnded(ROOT, P, "exit code 0"))
        assert session.is_idle

    @pytest.mark.parametrize(
        ("notify", "status"), [(True, Status.WAITING), (False, Ending.SUCCEEDED)]
    )
    def test_a_session_waits_for_a_process_with_a_notice(
        self, session: SessionRecord, tell: Tell, notify: bool, status: str
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify), TurnEnded(S, 1, DONE))

        assert session.tree[ROOT].status == status
        assert session.awaits_notices == notify
        assert session.has_nothing_pending != notify

    def test_the_next_process_records_the_end_of_a_process(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        """The exit code is unknown, and the fold must not guess it."""
        tell(ProcessStarted(ROOT, P, "make", notify=True), TurnEnded(S, 1, DONE))

        tell(RESTART)
        assert list(session.processes) == [P]

        tell(ProcessEnded(ROOT, P, "nobody knows"))
        assert session.processes == {}
        assert only_news(session).ended == "nobody knows"

    def test_the_end_of_a_process_is_a_fact_even_for_an_interrupted_task(
        self, session: SessionRecord, tell: Tell, requested: Asked
    ) -> None:
        tell(requested(CHILD, mode=Mode.DETACHED), TaskStarted(CHILD))
        tell(ProcessStarted(CHILD, P, "make", notify=False), RESTART)

        tell(ProcessEnded(CHILD, P, "nobody knows"))

        assert session.processes == {}
        assert session.mail == {}


class TestElsewhere:
    """The journal was taken over on a machine that cannot see the command."""

    def test_a_session_does_not_wait_for_an_unreachable_process(
        self, ledger: Ledger, session: SessionRecord, tell: Tell
    ) -> None:
        """Its session is told once, and shows how its last turn ended."""
        tell(ProcessStarted(ROOT, P, "make", True, "host-a"), TurnEnded(S, 1, DONE))
        assert session.awaits_notices

        tell(RESTART, ProcessUnreachable(ROOT, P, "host-b"))

        assert session.processes[P].is_unreachable
        assert not session.awaits_notices
        assert session.may_be_told_later
        text = only_news(session).text(share=100)
        assert "cannot be seen any more" in text
        assert "host-a" in text
        assert "do not start it again" in text
        with pytest.raises(ImpossibleEventError, match="is known"):
            tell(ProcessUnreachable(ROOT, P, "host-c"))

    def test_an_unreachable_process_stays_known_after_its_task(
        self, session: SessionRecord, tell: Tell, requested: Asked
    ) -> None:
        tell(requested(CHILD), TaskStarted(CHILD))
        tell(ProcessStarted(CHILD, P, "serve", False, "host-a"), RESTART)
        tell(ProcessUnreachable(CHILD, P, "host-b"), TaskSettled(CHILD, DONE))
        assert list(session.processes) == [P]
        assert not session.mail

        tell(ProcessEnded(CHILD, P, "ended there"))
        assert session.processes == {}

    def test_a_deleted_session_forgets_its_processes(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "serve", False, "host-a"), TurnEnded(S, 1, DONE))
        tell(RESTART, ProcessUnreachable(ROOT, P, "host-b"))
        tell(SessionClosed(S))
        assert list(session.processes) == [P]

        tell(SessionClosed(S, deleted=True))
        assert session.processes == {}

    def test_a_session_has_one_workspace(self, session: SessionRecord, tell: Tell) -> None:
        tell(WorkspaceOpened(ROOT, "host-a", "/here"))
        assert session.workspace_host == "host-a"

        with pytest.raises(ImpossibleEventError, match="has a workspace already"):
            tell(WorkspaceOpened(ROOT, "host-b", "/here"))


class TestNews:
    def test_the_end_of_a_process_wakes_its_session(
        self, ledger: Ledger, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify=True), TurnEnded(S, 1, DONE))
        assert not ledger.wakeable

        tell(ProcessEnded(ROOT, P, "exit code 2", "no rule\n", 3))

        assert list(ledger.wakeable) == [S]
        assert only_news(session) == ProcessNotice(
            process=P, command="make", ended="exit code 2", output="no rule\n", left_out=3
        )
        tell(read_now(session))
        assert last_read(session) == only_text(
            "has ended: exit code 2", "make", 3, "The end of its output:\nno rule\n"
        )
        assert session.mail == {}

    def test_a_process_notice_does_not_disturb_the_running_turn(
        self, ledger: Ledger, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify=True))
        said = list(session.root.transcript)

        tell(ProcessEnded(ROOT, P, "exit code 0"))

        assert not ledger.wakeable
        assert session.root.transcript == said
        tell(TurnEnded(S, 1, DONE))
        assert list(ledger.wakeable) == [S]

    def test_a_process_without_notify_sends_no_notice(
        self, ledger: Ledger, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify=False), TurnEnded(S, 1, DONE))

        tell(ProcessEnded(ROOT, P, "exit code 0", "all of it"))

        assert not session.mail
        assert not ledger.wakeable

    def test_a_line_that_is_watched_for_wakes_it_and_the_command_goes_on(
        self, ledger: Ledger, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "serve", notify=True), TurnEnded(S, 1, DONE))

        tell(ProcessMatched(ROOT, P, ("ready", "really"), 2))

        assert list(ledger.wakeable) == [S]
        assert list(session.processes) == [P]
        tell(read_now(session))
        assert last_read(session) == only_text(
            "has printed what you watch",
            "serve",
            2,
            "Lines:\nready\nreally",
            'process(action="log", id="p_1") reads all that it printed.',
        )

    def test_all_notices_are_delivered_in_one_turn(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "a", notify=True))
        tell(ProcessStarted(ROOT, Q, "b", notify=True), TurnEnded(S, 1, DONE))
        tell(ProcessMatched(ROOT, Q, ("ready",)), ProcessEnded(ROOT, P, "exit code 0"))
        tell(ProcessEnded(ROOT, Q, "exit code 1"), MessageReceived(S, "and?"))
        read = len(session.root.transcript)

        tell(read_now(session))

        texts = [said.text for said in session.root.transcript[read:]]
        assert [text.partition(" (p_")[0] for text in texts] == [
            "A command that runs in the background has printed what you watch",
            "A command that runs in the background has ended: exit code 0",
            "A command that runs in the background has ended: exit code 1",
            "and?",
        ]

    def test_much_output_of_many_is_cut_at_its_beginning(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        """The reason of an end is at the end of the output."""
        tell(ProcessStarted(ROOT, P, "a", notify=True), TurnEnded(S, 1, DONE))
        tell(ProcessEnded(ROOT, P, "exit code 0", "begin" + 2_000 * "." + "end"))

        tell(TurnStarted(S, 2, PUSH, tuple(session.mail), characters=100))

        assert last_read(session).endswith("output:\n" + 197 * "." + "end")

    def test_a_closed_session_gets_no_process_notice(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify=True), TurnEnded(S, 1, DONE))
        tell(SessionClosed(S))

        tell(ProcessMatched(ROOT, P, ("ready",)), ProcessEnded(ROOT, P, "stopped"))

        assert not session.mail
        assert not session.envelopes
        assert session.processes == {}

    def test_the_answer_goes_where_the_message_came_from(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        """The turn that tells the news has the context of the one that started the command."""
        where = {"platform": "telegram", "chat_id": "7"}
        tell(TurnEnded(S, 1, DONE), MessageReceived(S, "build", context=where))
        tell(read_now(session), ProcessStarted(ROOT, P, "make", notify=True))
        tell(TurnEnded(S, 2, DONE), ProcessEnded(ROOT, P, "exit code 0"))

        tell(read_now(session))

        assert session.root.context == where


class TestToldByATool:
    def test_a_notice_that_a_tool_has_answered_wakes_no_session(
        self, ledger: Ledger, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify=True))
        tell(ProcessEnded(ROOT, P, "exit code 0"))
        ((seq, process),) = session.process_notices()
        assert process == P

        tell(ToolAnswered(ROOT, LOOKED, (seq,)), TurnEnded(S, 1, DONE))

        assert not session.mail
        assert not session.envelopes
        assert not ledger.wakeable

    def test_a_turn_that_starts_afresh_gets_its_notices_again(
        self, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "make", notify=True))
        tell(ProcessEnded(ROOT, P, "exit code 0"))
        tell(ToolAnswered(ROOT, LOOKED, tuple(session.mail)))

        tell(RESTART, DoorOpened(S, PUSH), TurnResumed(S, 1, PUSH, afresh=True))

        assert only_news(session).process == P

    def test_a_read_end_of_a_process_cancels_its_earlier_notices(
        self, ledger: Ledger, session: SessionRecord, tell: Tell
    ) -> None:
        tell(ProcessStarted(ROOT, P, "serve", notify=True))
        tell(ProcessMatched(ROOT, P, ("ready",)), ProcessEnded(ROOT, P, "exit code 0"))
        news = list(session.process_notices())
        assert [process for _, process in news] == [P, P]

        tell(ToolAnswered(ROOT, LOOKED, tuple(seq for seq, _ in news)))
        tell(TurnEnded(S, 1, DONE))

        assert not session.mail
        assert not session.envelopes
        assert not ledger.wakeable

    def test_notices_of_a_running_process_need_their_own_turn(
        self, session: SessionRecord, tell: Tell, refuses: Callable[[Event], str]
    ) -> None:
        tell(ProcessStarted(ROOT, P, "serve", notify=True))
        tell(ProcessMatched(ROOT, P, ("ready",)), MessageReceived(S, "hello"))

        assert list(session.process_notices()) == []
        for seq in session.mail:
            why = refuses(ToolAnswered(ROOT, LOOKED, (seq,)))
            assert why == "its notices are []"


@pytest.fixture
def refuses(ledger: Ledger, snapshot: Snapshot) -> Callable[[Event], str]:
    """Check that a fact is refused and changes nothing, and return why it is impossible."""

    def refuses(fact: Event) -> str:
        before = snapshot(ledger)
        with pytest.raises(ImpossibleEventError) as refused:
            ledger.fold(Entry(ledger.last_seq + 1, 99.0, S, fact))
        assert refused.value.event is fact
        assert snapshot(ledger) == before
        return refused.value.because

    return refuses


@pytest.fixture
def life(begin: Tell, tell: Tell, requested: Asked) -> None:
    """Session `s` and a child of it run a command each; another session runs none."""
    begin(PUSH)
    begin(NONE, "other")
    tell(requested(CHILD), TaskStarted(CHILD), requested(SIBLING), TaskStarted(SIBLING))
    tell(requested(ENDED), TaskStarted(ENDED), TaskSettled(ENDED, DONE))
    tell(requested(QUEUED, needs=(CHILD,)))
    tell(ProcessStarted(ROOT, P, "make", notify=True))
    tell(ProcessStarted(ROOT, Q, "make", notify=True), ProcessEnded(ROOT, Q, "gone"))
    tell(ProcessStarted(CHILD, OF_CHILD, "serve", notify=False))


def starts(task: TaskId, process: ProcessId = UNKNOWN, notify: bool = False) -> Event:
    return ProcessStarted(task, process, "make", notify)


IMPOSSIBLE: dict[str, tuple[Event, str]] = {
    "nobody starts one": (starts(NOBODY), "no such task"),
    "one who has ended starts one": (starts(ENDED), "has ended already"),
    "one who has not begun starts one": (starts(QUEUED), "the task does not run"),
    "two have one id": (starts(ROOT, P), "such a command already"),
    "two of different tasks have one id": (starts(CHILD, P), "such a command already"),
    "a child is to be told later": (starts(CHILD, notify=True), "only a session gets notices"),
    "a run is to be told later": (
        starts(root_of(OTHER), notify=True),
        "only a session gets notices",
    ),
    "one of nobody ends": (ProcessEnded(NOBODY, P, "gone"), "no such task"),
    "one of nobody prints": (ProcessMatched(NOBODY, P, ("a",)), "no such task"),
    "one of nobody asks for a host": (
        NetworkRequested(NOBODY, "pypi.org:443", allowed=True),
        "no such task",
    ),
    "one of nobody is out of sight": (ProcessUnreachable(NOBODY, P, "host-b"), "no such task"),
    "one is out of sight that has ended": (
        ProcessUnreachable(ROOT, Q, "host-b"),
        "or it has ended",
    ),
    "one is out of sight of its own machine": (
        ProcessUnreachable(ROOT, P, ""),
        "that very machine",
    ),
    "nobody opens a workspace": (WorkspaceOpened(NOBODY, "host-b", "/here"), "no such task"),
    "one ends that never began": (ProcessEnded(ROOT, UNKNOWN, "gone"), "has ended"),
    "one prints that never began": (ProcessMatched(ROOT, UNKNOWN, ("a",)), "has ended"),
    "one ends twice": (ProcessEnded(ROOT, Q, "gone"), "or it has ended"),
    "one prints after its end": (ProcessMatched(ROOT, Q, ("a",)), "or it has ended"),
    "a child's ends as the session's": (
        ProcessEnded(ROOT, OF_CHILD, "gone"),
        "a command of another task",
    ),
    "the session's prints as a child's": (
        ProcessMatched(CHILD, P, ("a",)),
        "a command of another task",
    ),
    "one child's ends as another's": (
        ProcessEnded(SIBLING, OF_CHILD, "gone"),
        "a command of another task",
    ),
    "one ends in another session": (ProcessEnded(root_of(OTHER), P, "gone"), "no such command"),
    "one prints that nobody watches": (
        ProcessMatched(CHILD, OF_CHILD, ("a",)),
        "its task wants no notices",
    ),
}


@pytest.mark.usefixtures("life")
@pytest.mark.parametrize(("fact", "why"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_contradicting_fact_is_refused_and_leaves_the_ledger_unchanged(
    fact: Event, why: str, refuses: Callable[[Event], str]
) -> None:
    assert why in refuses(fact)


def test_a_session_between_two_turns_cannot_start_a_process(
    begin: Tell, tell: Tell, refuses: Callable[[Event], str]
) -> None:
    begin(PUSH)
    tell(TurnEnded(S, 1, DONE))

    assert refuses(ProcessStarted(ROOT, P, "make", notify=True))


def only_text(what: str, command: str, left_out: int, *more: str) -> str:
    lines = [
        f"A command that runs in the background {what} (p_1).",
        f"Command: {command}",
        f"{left_out} more lines that you watch for came too quickly, and are not told.",
        *more,
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("news", "text"),
    [
        pytest.param(
            ProcessNotice(process=P, command="make", ended="exit code 0"),
            "A command that runs in the background has ended: exit code 0 (p_1).\nCommand: make",
            id="no output",
        ),
        pytest.param(
            ProcessNotice(process=P, command="make", ended="killed", output="abc"),
            "A command that runs in the background has ended: killed (p_1).\n"
            "Command: make\nThe end of its output:\nbc",
            id="output",
        ),
        pytest.param(
            ProcessNotice(process=P, command="make", output="ready"),
            "A command that runs in the background has printed what you watch (p_1).\n"
            "Command: make\nLines:\ndy\n"
            'process(action="log", id="p_1") reads all that it printed.',
            id="lines",
        ),
        pytest.param(
            ProcessNotice(process=P, command="make", ended="killed", left_out=1),
            "A command that runs in the background has ended: killed (p_1).\n"
            "Command: make\n"
            "1 more line that you watch for came too quickly, and is not told.",
            id="one line left out",
        ),
        pytest.param(
            ProcessNotice(process=P, command=501 * "x", ended="killed"),
            "A command that runs in the background has ended: killed (p_1).\n"
            f"Command: {500 * 'x'} [501 characters in all]",
            id="a long command",
        ),
    ],
)
def test_a_process_notice_describes_the_event_without_history(
    news: ProcessNotice, text: str
) -> None:
    assert news.text(2) == text
