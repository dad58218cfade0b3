"""The picture of a tree: the same text for the same tree, at any size."""

import io
import time

import pytest
from msgspec.structs import replace
from rich.console import Console, Group

from orchestrator.agents import CallId, ToolCall, ToolMessage, Usage
from orchestrator.cli.journal_queries import Runs
from orchestrator.cli.terminal.console import Terminal
from orchestrator.cli.terminal.run_list import print_runs
from orchestrator.cli.terminal.style import (
    choose_progress,
    format_money,
    format_seconds,
    format_tokens,
)
from orchestrator.cli.terminal.task_line import Canvas
from orchestrator.cli.terminal.transcript import transcript_lines
from orchestrator.cli.terminal.tree_frame import RunSnapshot, render_frame
from orchestrator.cli.terminal.tree_table import print_tree
from orchestrator.cli.watch.state import Quit, ReadTranscript, WatchState
from orchestrator.delegation import Ending, Ledger, Mode, SessionId, Status, TaskId
from orchestrator.delegation.events import Entry, MessageReceived, SessionOpened, ToolAnswered
from orchestrator.kernel.control.server import AnswerApproval, Cancel, Steer
from orchestrator.kernel.journal.session_summary import summarize
from tests.delegation.built_trees import add_task
from tests.orchestrator.synthetic_trees import BEGAN, ask_of, grown, snapshot_of
from tests.orchestrator.terminals import SEQUENCE

FIVE = """\
◐ 3 running  ! 1 waiting  ✓ 1 done  last activity 2s ago
! needs you (1)
  a_01234567  /boss/lead[4]  terminal: rm -r build/
task                                                   tokens       cost    time
◐ boss  Ship it                                           400    $0.0040    1:40
├─ ✓ lead[1]  part 1                                      100    $0.0010    1.0s
├─ ◐ lead[2] &  part 2                                    100    $0.0010    1:39
├─ ◐ lead[3]  terminal make all (+1)                      100    $0.0010    1:39
└─ ! lead[4]  part 4                                      100    $0.0010    1:39"""
NARROW_AND_PLAIN = """\
* 3 running  ! 1 waiting  + 1 done  last activity 2s ago
! needs you (1)
  a_01234567  /boss/lead[4]  terminal: rm -r build/
task                                            cost    time
* boss  Ship it                              $0.0040    1:40
|- + lead[1]  part 1                         $0.0010    1.0s
|- * lead[2] &  part 2                       $0.0010    1:39
|- * lead[3]  terminal make all (+1)         $0.0010    1:39
`- ! lead[4]  part 4                         $0.0010    1:39"""
FIVE_HUNDRED = """\
◐ 4 running  ✗ 50 failed  ✓ 446 done  last activity 2s ago
◐ boss  Ship it                                         49.9k    $0.4990    1:40
└─ ▾ lead ×12  ✗1 ✓11                                   49.9k    $0.4990    1:39
   ├─ ✓ lead[1]  part 1                                 3,600    $0.0360    1.0s
   │  └─ ▾ coder ×15  ✓15                               3,500    $0.0350    1:39
   │     ├─ ✓ coder[24]  20↓ ◐3 ✗2                      2,100    $0.0210   24.0s
   │     ├─ ✓ coder[36]  part 36                          100    $0.0010   36.0s
   │     ├─ ✓ coder[48]  part 48                          100    $0.0010   48.0s
   │     ├─ ✓ coder[60]  part 60                          100    $0.0010   10.0s
   │     └─   … 11 more  ✓11                            1,100    $0.0110
   ├─ ✓ lead[2] &  part 2                               3,700    $0.0370    2.0s
   │  └─ ▸ tester ×16  ✗4 ✓12 · 20↓ ✗2                  3,600    $0.0360   49.0s
   ├─ ✗ lead[3]  36↓ ✗2                                 3,700    $0.0370    3.0s
   ├─ ✓ lead[4]  36↓ ✗5                                 3,700    $0.0370    4.0s
   └─   … 8 more  ✓8 · 344↓ ✗34                         35.2k    $0.3520
9 of 500 tasks are shown; the rest is folded"""
LARGE = """\
◐ 4 running  ✗ 2,000 failed  ✓ 17,996 done  last activity 2s ago
task                                                   tokens       cost    time
◐ boss  Ship it                                         2.00M   $19.9990    1:40
└─ ▾ lead ×12  ✗1 ✓11                                   2.00M   $19.9990    1:39
   ├─ ✓ lead[2] &  part 2                              193.7k    $1.9370    2.0s"""


def five() -> RunSnapshot:
    tree = grown(5)
    calls = [ToolCall("terminal", {"command": "make all"}), ToolCall("read")]
    return snapshot_of(tree, ask_of(tree, "t_4"), calls={"t_3": calls})


def text_of(snapshot: RunSnapshot, canvas: Canvas) -> str:
    return "\n".join(line.plain.rstrip() for line in render_frame(snapshot, canvas).lines)


def test_five_tasks_are_shown_whole_with_open_questions_on_top() -> None:
    assert text_of(five(), Canvas(width=80, height=24)) == FIVE


def test_the_header_counts_done_and_running_tasks_exactly() -> None:
    tree = grown(7)
    endings = [Ending.CANCELLED, Ending.REFUSED, Ending.TIMED_OUT]
    statuses: list[Status | Ending] = [*endings, Status.INTERRUPTED, Status.QUIET, Status.QUEUED]
    for number, status in enumerate(statuses, start=1):
        tree.set_status(TaskId(f"t_{number}"), status)

    header, *_ = text_of(snapshot_of(tree), Canvas(width=120, height=24)).splitlines()

    assert header.startswith(
        "◐ 2 running  ◌ 1 interrupted  ✗ 1 failed  ⊘ 2 cancelled  ✓ 0 done  · 1 queued"
    )


def test_a_fan_out_with_coming_tasks_shows_its_progress() -> None:
    tree = grown(9)
    tree.begin_turn(BEGAN)
    add_task(
        tree,
        TaskId("t_9"),
        parent=tree.root,
        agent="lead",
        path="/boss/lead[9]",
        mode=Mode.JOINED,
        at=BEGAN,
        to_come=66,
    )

    header, *_ = text_of(snapshot_of(tree), Canvas(width=120, height=24)).splitlines()

    # Five of nine have ended in 100 seconds.
    assert "5 of 75, about 23:20 left  last activity" in header


def test_a_long_question_counts_its_omitted_lines() -> None:
    """And a line end is seen to be one: to a shell it is."""
    tree = grown(5)
    lines = "\n".join(f"rm {number}" for number in range(50))
    asked = replace(ask_of(tree, "t_4"), subject=lines)
    state, canvas = WatchState(), Canvas(width=80, height=24)
    state.can_act = True
    above = state.render(snapshot_of(tree, asked), canvas, "")
    state.press("a")

    shown = [it.plain for it in state.render(snapshot_of(tree, asked), canvas, "")]

    assert "terminal: rm 0 ⏎ rm 1 ⏎ rm 2" in above[2].plain
    assert len(shown) == 24
    assert shown[-15].strip() == "Approve /boss/lead[4]  terminal: rm 0"
    assert shown[-4].strip() == "rm 11"
    assert shown[-3].startswith("… 37 more lines: Esc, then Enter at the task shows")
    assert shown[-2].strip() == "rm 49?"


def test_five_hundred_are_folded_into_as_many_lines_as_there_are() -> None:
    assert text_of(snapshot_of(grown(500)), Canvas(width=80, height=16)) == FIVE_HUNDRED


def test_the_ascii_view_holds_the_same_text() -> None:
    text = text_of(five(), Canvas(width=60, height=24, ascii=True))

    assert text == NARROW_AND_PLAIN
    assert text.isascii()


@pytest.mark.parametrize("size", [5, 500, 20_000])
def test_no_frame_is_larger_than_its_canvas(size: int) -> None:
    tree = grown(size)
    snapshot = snapshot_of(tree, ask_of(tree, "t_4"))

    for width, height in ((80, 24), (200, 60), (30, 8), (12, 3), (1, 1)):
        for ascii_ in (False, True):
            canvas = Canvas(width=width, height=height, ascii=ascii_)
            lines = render_frame(snapshot, canvas).lines
            assert len(lines) <= height
            assert all(line.cell_len <= width for line in lines)


def test_a_large_tree_is_folded_and_hidden_tasks_are_counted() -> None:
    text = text_of(snapshot_of(grown(20_000)), Canvas(width=80, height=20))

    assert text.startswith(LARGE)
    assert text.endswith("10 of 20,000 tasks are shown; the rest is folded")
    assert len(text.splitlines()) == 20


def test_a_frame_of_twenty_thousand_tasks_is_as_fast_as_one_of_fifty() -> None:
    console = Console(force_terminal=True, width=118, height=36, quiet=True)

    def fastest(size: int) -> float:
        snapshot = snapshot_of(grown(size))
        seconds: list[float] = []
        for _ in range(12):
            # CPU time: other processes must not count.
            start = time.thread_time()
            console.print(Group(*render_frame(snapshot, Canvas(width=118, height=36)).lines))
            seconds.append(time.thread_time() - start)
        return min(seconds)

    # The two take about the same; the rest is for noise.
    assert fastest(20_000) < 8 * fastest(50)


@pytest.mark.parametrize(
    ("progress", "is_terminal", "environ", "expected"),
    [
        ("auto", True, {"TERM": "xterm"}, "live"),
        ("auto", True, {"TERM": "dumb"}, "plain"),
        ("auto", True, {}, "plain"),
        ("auto", True, {"TERM": "xterm", "CI": "true"}, "plain"),
        ("auto", False, {"TERM": "xterm", "FORCE_COLOR": "1"}, "plain"),
        ("live", False, {}, "live"),
        ("json", True, {"TERM": "xterm"}, "json"),
    ],
)
def test_the_default_progress_depends_on_the_terminal(
    progress: str, is_terminal: bool, environ: dict[str, str], expected: str
) -> None:
    class Stream:
        def isatty(self) -> bool:
            return is_terminal

    assert choose_progress(progress, Stream(), environ) == expected  # type: ignore[arg-type]


def test_numbers_are_short() -> None:
    used = [Usage(input_tokens=n) for n in (0, 9_999, 12_345, 9_876_543)]
    assert [format_tokens(usage) for usage in used] == ["0", "9,999", "12.3k", "9.88M"]
    damaged = Usage(input_tokens=10**4000, micro_usd=10**4000)
    assert (format_tokens(damaged), format_money(damaged)) == (">1000M", ">$1,000,000,000")
    times = [format_seconds(seconds) for seconds in (None, 0.04, 61, 3_661)]
    assert times == ["", "0.0s", "1:01", "1:01:01"]
    assert format_money(Usage(calls=1, unpriced=1)) == "$?"
    broken_off = Usage(calls=1, input_tokens=11, micro_usd=70, estimated=1)
    assert (format_tokens(broken_off), format_money(broken_off)) == ("~11", "≥ $0.0001")
    assert format_money(Usage(calls=2, unpriced=1, micro_usd=5)) == "≥ $0"


class Watched:
    """A state with a tree on it."""

    def __init__(self, snapshot: RunSnapshot, *, height: int = 24) -> None:
        self.snapshot = snapshot
        self.canvas = Canvas(width=80, height=height)
        self.state = WatchState()
        self.state.can_act = True
        self.look()

    def look(self) -> list[str]:
        lines = self.state.render(self.snapshot, self.canvas, "r_root")
        assert len(lines) == self.canvas.height
        self.chosen = next((line.plain for line in lines if "reverse" in str(line.style)), "")
        return [line.plain.rstrip() for line in lines]

    def press(self, *keys: str) -> object:
        action: object = None
        for key in keys:
            action = self.state.press(key)
            self.look()
        return action


def test_arrows_move_and_fold() -> None:
    watched = Watched(snapshot_of(grown(5)))

    assert "boss" in watched.chosen
    watched.press("down", "down")
    assert "lead[2]" in watched.chosen
    watched.press("left")
    assert "boss" in watched.chosen
    watched.press("left")
    assert not any("lead" in line for line in watched.look())
    assert any("4↓" in line for line in watched.look())
    watched.press("right", "end")
    assert "lead[4]" in watched.chosen


def test_the_watcher_stays_where_they_are_while_rows_arrive() -> None:
    watched = Watched(snapshot_of(grown(5)))
    watched.press("down", "down")

    watched.snapshot = snapshot_of(grown(9))
    watched.look()

    assert "lead[2]" in watched.chosen


def test_the_next_failed_is_found_wherever_it_is_folded_away() -> None:
    watched = Watched(snapshot_of(grown(2_000)))
    seen: set[str] = set()
    for _ in range(30):
        watched.press("f")
        assert "✗" in watched.chosen
        seen.add(watched.chosen)

    assert len(seen) == 30


def test_rows_beyond_the_screen_scroll_and_show_the_position() -> None:
    watched = Watched(snapshot_of(grown(500)), height=12)
    for _ in range(12):
        watched.press("f")

    assert watched.chosen
    assert any(line.startswith("rows ") and " of " in line for line in watched.look())
    watched.press("home")
    assert "boss" in watched.chosen


def test_a_search_goes_from_one_to_the_next() -> None:
    watched = Watched(snapshot_of(grown(2_000)))

    watched.press("/", *"part 177", "enter")
    assert "[177]" in watched.chosen
    watched.press("n")
    assert "part 1770" in watched.chosen
    watched.press("/", *"nowhere", "enter")
    assert watched.look()[-1] == "nothing has 'nowhere' in it"


def test_more_of_a_group_is_shown_on_request() -> None:
    watched = Watched(snapshot_of(grown(500)), height=40)
    while "11 more" not in watched.chosen:
        watched.press("down")
    watched.press("enter")

    assert not any("11 more" in line for line in watched.look())


def test_a_subtree_is_cancelled_only_after_a_yes() -> None:
    watched = Watched(five())
    watched.press("down", "down")

    assert watched.press("x", "n") is None
    assert watched.press("x", "escape") is None
    watched.press("x")
    assert "Cancel /boss/lead[2]?" in watched.look()[-2]
    assert watched.press("y") == Cancel("t_2")
    watched.press("up")
    watched.press("x")
    assert watched.look()[-1] == "it has ended already"


def test_a_running_task_can_be_steered() -> None:
    watched = Watched(five())
    watched.press("down", "down")

    assert watched.press("m", *"hurry upp", "backspace", "enter") == Steer("t_2", "hurry up")
    assert watched.press("m", "enter") is None


def test_an_approval_is_answered_with_a_reason() -> None:
    watched = Watched(five())
    id_ = "a_0123456789abcdef"

    watched.press("a")
    assert "Approve /boss/lead[4]  terminal: rm -r build/?" in watched.look()[-2]
    assert watched.press("s") == AnswerApproval(id_, "session")
    assert watched.press("d", *"not now", "enter") == AnswerApproval(id_, "deny", "not now")
    assert watched.press("a", "q") is None


def test_actions_need_a_control_socket() -> None:
    watched = Watched(five())
    watched.state.can_act = False
    for key in "xmad":
        assert watched.press(key) is None
        assert "read-only" in watched.look()[-1]


def test_a_transcript_is_opened_scrolled_and_left() -> None:
    watched = Watched(five(), height=10)
    watched.press("down")

    assert watched.press("enter") == ReadTranscript(TaskId("t_1"))
    watched.press("down", "page down", "home", "end")
    assert "/boss/lead[1]" in watched.look()[0]
    watched.press("escape")
    assert "running" in watched.look()[0]
    assert watched.press("q") == Quit()


@pytest.mark.parametrize("width", [50, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_tree_that_has_ended_looks_as_it_did_live(width: int, encoding: str) -> None:
    """At any width its time is there, and from 50 columns on its cost."""
    written = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Terminal(file=written, force_terminal=True, width=width, no_color=True)
    tree = grown(5)
    shown = snapshot_of(tree)
    canvas = Canvas(width=width, height=24, ascii=encoding == "ascii")

    print_tree(tree, console, now=shown.now)

    lines = text_of(shown, canvas).splitlines()[1:]
    assert _text(written).splitlines() == lines
    assert lines[0].split() == ["task", *["tokens"][: width > 70], "cost", "time"]
    assert lines[1].endswith("$0.0040    1:40")
    assert max(map(len, lines)) == width


@pytest.mark.parametrize("width", [50, 80, 120])
def test_the_list_of_runs_fits_and_only_a_goal_is_cut(width: int) -> None:
    written = io.TextIOWrapper(io.BytesIO(), "utf-8")
    console = Terminal(file=written, force_terminal=True, width=width, no_color=True)
    ledger = Ledger()
    opened = SessionOpened(SessionId("r_0123456789abcdef"), "editor", None)
    ledger.fold(Entry(1, 1_800_000_000.0, opened.session, opened))
    message = MessageReceived(opened.session, "Find out " + "more " * 50)
    ledger.fold(Entry(2, 1_800_000_001.0, opened.session, message))

    runs = [summarize(it, ledger) for it in ledger.sessions.values()]
    print_runs(Runs(runs, 1, {}, []), console)

    head, line = _text(written).splitlines()
    assert ("2027-01-15" in line, "editor" in line, "$0" in line) == (True, True, True)
    assert ("goal" in head) == (width >= 80)
    assert len(line) <= width
    assert ("r_0123456789abcdef" in line) == (width == 120)


def test_the_keys_are_named_as_far_as_they_fit_and_all_in_the_help() -> None:
    state = WatchState()
    shown = snapshot_of(grown(5))

    def bottom(width: int) -> str:
        return state.render(shown, Canvas(width=width, height=24), "")[-1].plain

    assert bottom(30) == "Enter read  ? help  q leave"
    assert "f failed  w waiting  ? help  q leave" in bottom(80)
    assert bottom(120).endswith("↑↓ move  ? help  q leave")
    state.press("?")
    screen = state.render(shown, Canvas(width=80, height=24), "")
    assert any("go to the next failed, waiting task" in it.plain for it in screen)
    assert state.press("q") is None, "any key goes back"
    assert bottom(80).startswith("Enter read")


def _text(written: io.TextIOWrapper) -> str:
    written.flush()
    raw = written.buffer
    assert isinstance(raw, io.BytesIO)
    return SEQUENCE.sub("", raw.getvalue().decode())


def test_json_in_a_transcript_is_shown_line_by_line() -> None:
    """Unless it is short, or only looks like it."""
    texts = ('{"tasks": [{"path": "/boss/lead[1]", "status": "succeeded"}], "n": 1}', "[]")
    broken = '{"it": "is cut in the midst of a word, as the answer of a tool may be'
    request = TaskId("t_1")
    entries = [
        Entry(seq, 0.0, SessionId("r_1"), ToolAnswered(request, ToolMessage(CallId("c"), text)))
        for seq, text in enumerate((*texts, broken))
    ]

    lines = [line.plain.strip() for line in transcript_lines(entries)]

    assert '"path": "/boss/lead[1]",' in lines
    assert "[]" in lines
    assert broken in lines
