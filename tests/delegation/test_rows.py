"""Trees as text and as Mermaid, the same for the same facts."""

from collections.abc import Callable
from typing import TypeAlias

import pytest

from orchestrator.agents import AssistantMessage, Usage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    Tree,
    one_line,
    printable,
    root_of,
)
from orchestrator.delegation.events import (
    JournalOpened,
    ModelAnswered,
    QuietChanged,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
)

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

PUSH = DeliveryCapability.PUSH
S = SessionId("s")
ROOT = root_of(S)
A, B, C, D = map(TaskId, "abcd")
DONE = Outcome(Ending.SUCCEEDED, "42")
TEXT = """\
editor            ◐ running                     1,243 tok  $1.0567  go
├─ researcher[1]  ✓ succeeded  joined    9.0 s  1,234 tok  $0.0567  collect the facts
│  └─ checker[1]  ✗ failed     joined    5.0 s      0 tok       $0  no such year
├─ researcher[2]  ◐ running    detached             9 tok  $1.0000  find it
└─ researcher[3]  · queued     joined               0 tok       $0  find it"""
MERMAID = """\
flowchart LR
  n0["◐ editor<br/>go"]:::busy
  n1["✓ researcher[1]<br/>collect the facts"]:::ok
  n0 --> n1
  n2["✗ checker[1]<br/>no such year"]:::bad
  n1 --> n2
  n3["◐ researcher[2]<br/>find it"]:::busy
  n0 -.-> n3
  n4["· researcher[3]<br/>find it"]
  n0 --> n4
  classDef ok stroke:#1a7f37,stroke-width:2px
  classDef bad stroke:#cf222e,stroke-width:2px
  classDef busy stroke:#0969da,stroke-width:2px"""
NASTY = "a \"quoted\" #1 <script>alert('x')</script> & \x1b[31mred"


@pytest.fixture
def tree(ledger: Ledger, begin: Tell, tell: Tell, requested: Asked) -> Tree:
    """A tree in the middle of its life: of all that can be seen there is some."""
    begin(PUSH)
    tell(requested(A, goal="collect\n  the facts"), TaskStarted(A))
    priced = Usage(calls=1, input_tokens=1000, output_tokens=234, micro_usd=56_700)
    tell(ModelAnswered(A, AssistantMessage(usage=priced)))
    tell(requested(B, parent=A, agent="checker", label="dates"), TaskStarted(B))
    tell(requested(C, mode=Mode.DETACHED), TaskStarted(C), requested(D))
    tell(ModelAnswered(C, AssistantMessage(usage=Usage(input_tokens=9, micro_usd=1_000_000))))
    tell(TaskSettled(B, Outcome(Ending.FAILED, error="no such year")))
    tell(TaskSettled(A, DONE))
    return ledger.sessions[S].tree


def test_a_tree_is_one_line_a_task(tree: Tree) -> None:
    """Tokens and money of a task are its own and those of all below it."""
    assert tree.to_text() == TEXT


def test_columns_stay_aligned_for_every_status_and_price(tree: Tree, tell: Tell) -> None:
    unpriced = AssistantMessage(usage=Usage(calls=1, unpriced=1))
    tell(TaskStarted(D), ModelAnswered(D, unpriced))
    tell(TaskSettled(D, Outcome(Ending.OVER_BUDGET)), JournalOpened("1.0"))
    lines = tree.to_text().splitlines()[-2:]

    assert [line.split()[3:5] for line in lines] == [
        ["interrupted", "detached"],
        ["over_budget", "joined"],
    ]
    assert len({line.index("find it") for line in lines}) == 1


def test_a_running_row_counts_its_seconds_until_now(tree: Tree) -> None:
    """Without a now there is none: the same facts give the same text."""
    assert [row.seconds for row in tree.rows()] == [None, 9.0, 5.0, None, None]
    assert [row.seconds for row in tree.rows(now=30.0)] == [26.0, 9.0, 5.0, 19.0, None]


def test_a_task_that_was_settled_unstarted_took_no_time(tree: Tree, tell: Tell) -> None:
    """It never ran."""
    tell(TaskSettled(D, Outcome(Ending.CANCELLED)))
    *_, row = tree.rows(now=30.0)

    assert (row.task, row.status, row.seconds) == (D, "cancelled", None)


def test_a_row_has_the_parts_that_a_view_aligns(tree: Tree) -> None:
    """A view that colours asks for a part, and does not take a line apart."""
    _, _, row, *_ = tree.rows()

    assert (row.task, row.branch, row.name) == (B, "│  └─ ", "checker[1]")
    assert (row.glyph, row.status, row.mode) == ("✗", "failed", "joined")
    assert (row.tokens, row.money, row.about) == (0, "$0", "no such year")


def test_every_status_has_a_glyph(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    """However a task stands or ends, it can be drawn."""
    begin(PUSH)
    for ending in Ending:
        tell(requested(ending.value), TaskSettled(TaskId(ending.value), Outcome(ending)))
    tree = ledger.sessions[S].tree
    assert [row.glyph for row in tree.rows()] == list("◐✓✗⊘✗✗⊘✗")

    tell(requested(A, mode=Mode.DETACHED))
    assert [*tree.rows()][-1].glyph == "·"

    tell(TaskStarted(A), QuietChanged(A, True))
    assert [*tree.rows()][-1].glyph == "◔"

    tell(TurnEnded(S, 1, DONE), JournalOpened("1.0"))
    assert [row.glyph for row in tree.rows()] == list("◌✓✗⊘✗✗⊘✗◌")


def test_a_long_goal_is_cut_on_one_line() -> None:
    """A goal may be pages long; its task is one line."""
    assert one_line(" two\n\n\tlines ") == "two lines"
    assert one_line("x" * 60) == "x" * 60
    assert one_line("x" * 61) == "x" * 59 + "…"
    assert one_line("") == ""


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        pytest.param("\x1b[2Jgone", " [2Jgone", id="clear the screen"),
        pytest.param("\x9b31mred", " 31mred", id="the one-byte form"),
        pytest.param("\x1b]0;title\a", " ]0;title ", id="set the title"),
        pytest.param("over\rwritten\b", "over written ", id="move the cursor"),
        pytest.param("\u202egnp.exe", " gnp.exe", id="turn the direction"),
        pytest.param("line one\nline two", "line one\nline two", id="lines stay"),
        pytest.param("a\u2028b", "a b", id="another end of a line"),
        pytest.param("rm\u200f -r", "rm\\u200f -r", id="a mark of direction"),
        pytest.param("\u061cx", "\\u061cx", id="the Arabic one"),
        pytest.param("pay\u200bpal", "pay\\u200bpal", id="no width"),
        pytest.param("a\U000e0041", "a\\U000e0041", id="a tag"),
        pytest.param("a\ufe0f\U000e0101", "a\\ufe0f\\U000e0101", id="variations"),
        pytest.param("1\ufe0f\ufe0f", "1\ufe0f\\ufe0f", id="one variation is enough"),
        pytest.param("\udcff", "\\udcff", id="half a character"),
        pytest.param("✔️ 👩‍💻", "✔️ 👩‍💻", id="emoji stay"),
        pytest.param("می‌خواهم", "می‌خواهم", id="joined letters stay"),
        pytest.param("naïve 猫 ✓", "naïve 猫 ✓", id="words of all languages stay"),
    ],
)
def test_printable_removes_control_sequences(said: str, shown: str) -> None:
    """A terminal obeys them, and an agent may have read some from a file."""
    assert printable(said) == shown


def test_mermaid_distinguishes_joined_from_detached(tree: Tree) -> None:
    assert tree.to_mermaid() == MERMAID


def test_mermaid_draws_dependencies(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A), requested(B, needs=(A,)), requested(C, needs=(A, B)))

    assert ledger.sessions[S].tree.to_mermaid().splitlines()[-6:-1] == [
        '  n3["· researcher[3]<br/>find it"]',
        "  n0 --> n3",
        "  n1 ==> n2",
        "  n1 ==> n3",
        "  n2 ==> n3",
    ]


def test_a_chart_draws_no_arrow_from_a_folded_task(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tell(requested(A, agent="checker"), TaskStarted(A))
    tell(*(requested(f"t{number}") for number in range(117)))
    tell(requested(B, agent="writer", needs=("a", "t99")))
    tree = ledger.sessions[S].tree
    assert "\n  n1 ==> n119\n  n101 ==> n119\n" in tree.to_mermaid(rows=120)

    tell(requested("one more"))
    last, footer, _ = tree.to_mermaid().splitlines()[-3:]
    assert last == "  n1 ==> n8"
    assert footer == '  folded["7 of 121 tasks are shown; the rest is folded"]'


def test_the_words_of_agents_are_never_markup(tree: Tree, tell: Tell) -> None:
    """A viewer would run it: Mermaid reads HTML, and has entities of its own."""
    tell(TaskSettled(C, Outcome(Ending.FAILED, error=NASTY)))

    assert (
        '  n3["✗ researcher[2]<br/>a #34;quoted#34; #35;1 #60;script#62;'
        "alert(#39;x#39;)#60;/script#62; #38; #91;31mred"
    ) in tree.to_mermaid()
    assert "\x1b" not in tree.to_mermaid() + tree.to_text()


def test_a_large_chart_is_folded_with_a_note(
    ledger: Ledger, begin: Tell, tell: Tell, requested: Asked
) -> None:
    begin(PUSH)
    tree = ledger.sessions[S].tree
    tell(*(requested(f"t{number}") for number in range(119)))
    assert "\n  n0 --> n119\n" in tree.to_mermaid(rows=120)

    tell(*(requested(f"more{number}") for number in range(5)))
    assert tree.to_mermaid().splitlines()[-4:-1] == [
        '  n6["… 120 more<br/>·120"]',
        "  n1 --> n6",
        '  folded["5 of 125 tasks are shown; the rest is folded"]',
    ]


def test_rows_end_at_a_depth_and_count_the_tasks_below(tree: Tree) -> None:
    assert [(row.name, row.collapsed) for row in tree.rows(depth=1)] == [
        ("editor", ""),
        ("researcher[1]", "1↓ ✗1"),
        ("researcher[2]", ""),
        ("researcher[3]", ""),
    ]
    assert [(row.name, row.collapsed) for row in tree.rows(depth=0)] == [("editor", "4↓ ◐1 ✗1")]


def test_rows_may_show_some_tasks_with_all_their_ancestors(tree: Tree) -> None:
    """A failure is hard to understand without the task that requested it."""
    shown = [*tree.rows(only=tree.find(status="failed"))]

    assert [(row.branch + row.name, row.collapsed) for row in shown] == [
        ("editor", "2↓ ◐1"),
        ("└─ researcher[1]", ""),
        ("   └─ checker[1]", ""),
    ]


def test_a_kept_task_is_marked_in_its_row_label_and_attributes(tree: Tree) -> None:
    node = tree[tree.root]
    before = node.attributes()
    node.kept = True

    assert next(iter(tree.rows())).about.startswith("kept · ")
    assert node.shown_label.startswith("kept · ")
    assert node.attributes() == {**before, "kept": True}
