"""A tree of any size in few rows: what matters is shown, and nothing is hidden in silence."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agents import Usage
from orchestrator.delegation import Ending, Mode, Status, TaskId, Tree
from orchestrator.delegation.tree.collapse import (
    GROUP_THRESHOLD,
    SHOWN_PER_GROUP,
    CollapsedTree,
    CollapseState,
    RowKind,
    collapse_tree,
)
from orchestrator.delegation.tree.rollups import NOT_URGENT, urgency
from orchestrator.delegation.tree.tally import FAILURES, Tally
from tests.delegation.built_trees import add_task
from tests.delegation.tree_strategies import ROOT, trees
from tests.growth import grows_at_most

DONE, FAILED = Ending.SUCCEEDED, Ending.FAILED


def team(children: Iterable[tuple[str, str, Status | Ending]] = ()) -> Tree:
    """Return a tree of an editor and tasks: parent, agent, status. They are called t0, t1, ..."""
    tree = Tree(ROOT)
    add_task(tree, ROOT, parent=None, agent="editor", path="/editor", mode=Mode.ROOT, at=0)
    tree.set_status(ROOT, Status.RUNNING)
    for number, (parent, agent, status) in enumerate(children):
        add_task(
            tree,
            TaskId(f"t{number}"),
            parent=TaskId(parent),
            agent=agent,
            path=f"{tree[TaskId(parent)].path}/{agent}[{number}]",
            mode=Mode.JOINED,
            at=number,
        )
        tree.set_status(TaskId(f"t{number}"), status)
    return tree


def drawn(collapsed: CollapsedTree) -> list[str]:
    return [
        f"{row.branch}{row.task if row.kind is RowKind.TASK else row.title} {row.summary}".rstrip()
        for row in collapsed.rows
    ]


def test_a_tree_that_fits_is_shown_whole() -> None:
    tree = team([("s", "coder", DONE)] * 12 + [("t3", "tester", FAILED)])
    collapsed = collapse_tree(tree, rows=14)

    assert [row.task for row in collapsed.rows] == [*tree.descendants(itself=True)]
    assert [row.is_expanded for row in collapsed.rows].count(True) == 2
    assert (collapsed.hidden, collapsed.footer) == (0, "")


def test_of_many_failed_siblings_the_worst_are_opened() -> None:
    """All of them have a failure below, so their order alone says nothing."""
    coders = [("s", "coder", DONE)] * 12
    failed = [(f"t{at}", "tester", FAILED) for at in range(12)]
    done = [(f"t{at}", "tester", DONE) for at in range(12) if at not in {7, 9}]
    tree = team(coders + failed + done)
    tree.set_status(TaskId("t11"), FAILED)
    tree.add_usage(TaskId("t10"), Usage(1, micro_usd=5))

    rows = collapse_tree(tree, rows=7).rows
    chosen = [row.task for row in rows if row.kind is RowKind.TASK and row.agent == "coder"]

    assert chosen == ["t7", "t9", "t10", "t11"]


def test_many_siblings_become_one_row_with_the_urgent_ones_open() -> None:
    tree = team(
        [("s", "coder", DONE)] * 44
        + [("s", "writer", DONE), ("t17", "tester", FAILED), ("t40", "tester", DONE)]
    )
    tree.set_status(TaskId("t30"), Status.WAITING)
    tree.set_status(TaskId("t20"), Status.RUNNING)

    assert drawn(collapse_tree(tree, rows=3)) == ["s", "├─ coder ×44 !1 ◐1 ✓42 · 2↓ ✗1", "└─ t44"]
    assert drawn(collapse_tree(tree, rows=8)) == [
        "s",
        "├─ coder ×44 !1 ◐1 ✓42",
        "│  ├─ t17 1↓ ✗1",
        "│  ├─ t20",
        "│  ├─ t30",
        "│  ├─ t40 1↓",
        "│  └─ … 40 more ✓40",
        "└─ t44",
    ]
    assert collapse_tree(tree, rows=8).footer == "6 of 48 tasks are shown; the rest is folded"


def test_collapsed_rows_go_to_the_most_urgent_tasks() -> None:
    tree = team(
        [("s", agent, DONE) for agent in ("large", "failed", "running", "waiting")]
        + [("t0", "x", DONE)] * 7
        + [("t1", "x", FAILED), ("t2", "x", Status.QUIET), ("t3", "x", Status.WAITING)]
    )
    shown = [
        {row.task for row in collapse_tree(tree, rows=rows).rows} - {ROOT, "t0", "t1", "t2", "t3"}
        for rows in (5, 6, 7, 8)
    ]

    assert shown == [set(), {"t13"}, {"t13", "t12"}, {"t13", "t12", "t11"}]


def test_an_urgent_task_is_shown_when_its_group_does_not_fit() -> None:
    tree = team([("s", f"agent{number}", DONE) for number in range(9)])
    tree.set_status(TaskId("t6"), FAILED)

    assert drawn(collapse_tree(tree, rows=4)) == ["s", "├─ t0", "├─ t6", "└─ … 7 more ✓7"]


def test_spare_rows_show_more_of_the_urgent_tasks() -> None:
    """A batch of forty that runs is worth the room; forty that have ended are not."""
    running = team([("s", "coder", Status.RUNNING)] * 40)
    done = team([("s", "coder", DONE)] * 40)

    assert len(collapse_tree(running, rows=30).rows) == 30
    assert drawn(collapse_tree(running, rows=30))[-1] == "   └─ … 13 more ◐13"
    assert len(collapse_tree(done, rows=30).rows) == 2 + SHOWN_PER_GROUP + 1


def test_rows_opened_and_closed_by_hand_stay_so() -> None:
    tree = team([("s", "coder", DONE)] * 20 + [("t5", "tester", FAILED)] * 3)
    state = CollapseState().expand("s/coder").expand("t5")

    assert len(collapse_tree(tree, rows=2, state=state).rows) == 2 + SHOWN_PER_GROUP + 1 + 3
    assert drawn(collapse_tree(tree, rows=9, state=CollapseState().collapse("s/coder"))) == [
        "s",
        "└─ coder ×20 ✓20 · 3↓ ✗3",
    ]
    assert state.collapse("t5") == CollapseState(frozenset({"s/coder"}), frozenset({"t5"}))
    whole = collapse_tree(tree, rows=9, state=CollapseState().show("s/coder", 20))
    assert [row.key for row in whole.rows if row.kind is RowKind.MORE] == []


def test_a_subtree_is_folded_like_a_tree() -> None:
    tree = team([("s", "coder", DONE), ("t0", "tester", DONE), ("s", "coder", DONE)])

    assert drawn(collapse_tree(tree, rows=9, root=TaskId("t0"))) == ["t0", "└─ t1"]


@given(trees(most=300), st.integers(1, 60))
def test_shown_and_hidden_rows_add_up_to_the_tree(tree: Tree, rows: int) -> None:
    """Of every status, however much or little room there is."""
    collapsed = collapse_tree(tree, rows=rows)
    whole = Tally()
    for row in collapsed.rows:
        whole.absorb(row.hidden)
        if row.kind is RowKind.TASK:
            whole.absorb(tree.tally(row.task) - tree.subtree(row.task).below)

    assert len(collapsed.rows) <= rows
    assert collapsed.tasks == len(tree) == whole.tasks
    assert whole.counts == tree.counts()
    assert whole - tree.tally() == Tally()
    assert len({row.key for row in collapsed.rows}) == len(collapsed.rows)


@given(trees(most=200), st.integers(1, 40), st.sets(st.integers(0, 200)), st.booleans())
def test_opened_and_closed_rows_count_every_task(
    tree: Tree, rows: int, chosen: set[int], opened: bool
) -> None:
    keys = [*tree, *(f"{task}/coder" for task in tree)]
    these = frozenset(keys[number % len(keys)] for number in chosen)
    state = CollapseState(expanded=these) if opened else CollapseState(collapsed=these)
    collapsed = collapse_tree(tree, rows=rows, state=state)
    shown = sum(row.kind is RowKind.TASK for row in collapsed.rows)

    assert shown + sum(row.hidden.tasks for row in collapsed.rows) == len(tree)
    for row in collapsed.rows:
        if row.key in these and row.is_expanded is not None:
            assert row.is_expanded is opened


@given(trees(most=300), st.integers(2, 40))
def test_every_hidden_failure_is_counted(tree: Tree, rows: int) -> None:
    """It is a row, or the row above it counts it."""
    collapsed = collapse_tree(tree, rows=rows)
    said = sum(row.hidden.failed for row in collapsed.rows)
    shown = {row.task for row in collapsed.rows if row.kind is RowKind.TASK}

    assert said == len({*tree.find(status=FAILURES)} - shown)
    for row in collapsed.rows:
        assert not row.hidden.failed or "✗" in row.summary


@given(trees(most=300))
def test_only_a_few_idle_siblings_are_shown_side_by_side(tree: Tree) -> None:
    collapsed = collapse_tree(tree, rows=len(tree) - 1)
    siblings: dict[tuple[TaskId | None, str], list[int]] = {}
    for row in collapsed.rows:
        if row.kind is RowKind.TASK and row.task != ROOT:
            node = tree[row.task]
            those = siblings.setdefault((node.parent, node.agent), [])
            those.append(urgency(row.tally))

    for those in siblings.values():
        assert len(those) <= GROUP_THRESHOLD or NOT_URGENT not in those


def test_the_urgency_of_a_subtree_is_its_most_urgent_task() -> None:
    tree = team([("s", "a", DONE), ("t0", "b", DONE)])
    seen = [urgency(tree.tally(TaskId("t0")))]
    for status in (FAILED, Status.QUIET, Status.WAITING):
        tree.set_status(TaskId("t1"), status)
        seen.append(urgency(tree.tally(TaskId("t0"))))

    assert seen == [3, 2, 1, 0]


@pytest.mark.parametrize("wide", [True, False], ids=["side by side", "in teams"])
def test_drawing_a_frame_visits_only_the_shown_rows(wide: bool) -> None:
    """After a change, 20,000 tasks in 30 rows take no longer than 2,000: it is no scan of all."""

    def crowd(count: int) -> Tree:
        if wide:
            return team([("s", "coder", DONE)] * count)
        teams = 140 * count // 20_000
        below = [(f"t{number}", "tester", DONE) for number in range(teams)] * 140
        return team([("s", "coder", DONE)] * teams + below)

    numbers = itertools.count()

    def change(tree: Tree) -> None:
        tree.set_status(TaskId(f"t{next(numbers) % 10}"), FAILED)
        assert len(collapse_tree(tree, rows=30).rows) <= 30

    few, many = crowd(2_000), crowd(20_000)
    for tree in (few, many):
        collapse_tree(tree, rows=30)

    assert grows_at_most(4, change, small=few, large=many)
    assert collapse_tree(many, rows=30).tasks > 19_700


def test_groups_that_do_not_fit_are_counted_without_the_shown_ones() -> None:
    tree = team([("s", f"agent{agent}", DONE) for agent in range(3) for _ in range(9)])

    collapsed = collapse_tree(tree, rows=3)

    assert len(collapsed.rows) <= 3
    assert collapsed.hidden + sum(row.kind is RowKind.TASK for row in collapsed.rows) == len(tree)
