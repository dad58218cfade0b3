"""Queries of a tree: agents, usage, durations and the critical path."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given

from orchestrator.agents import Usage
from orchestrator.delegation import Ending, Mode, Status, TaskId, Tree
from orchestrator.delegation.tree.critical_path import CriticalPath, SegmentKind
from orchestrator.delegation.tree.intervals import (
    ConcurrencyStep,
    awaited_tasks,
    end_of,
    last_moment,
    work_intervals,
)
from orchestrator.delegation.tree.progress import Progress
from orchestrator.delegation.tree.tally import FAILURES, Tally
from tests.delegation.built_trees import add_task
from tests.delegation.reference_delays import last_end
from tests.delegation.tree_strategies import ROOT, trees


def added_up(tree: Tree, tasks: Iterable[TaskId]) -> Tally:
    """Return a tally that is counted task by task."""
    tally = Tally()
    for task in tasks:
        node = tree[task]
        one = Tally(
            1,
            node.usage.tokens,
            node.usage.calls,
            node.usage.micro_usd,
            node.usage.unpriced,
            node.usage.estimated,
            node.started,
            node.ended,
        )
        one.status_counts[[*Status, *Ending].index(node.status)] = 1
        tally.absorb(one)
    return tally


def planned(*tasks: tuple[Any, ...], turns: Iterable[tuple[float, float]]) -> Tree:
    """Return a tree of tasks: name, parent, mode, requested, started, ended, needs."""
    tree = Tree(ROOT)
    add_task(tree, ROOT, parent=None, agent="editor", path="/editor", mode=Mode.ROOT, at=0)
    for begin, end in turns:
        tree.begin_turn(begin)
        tree.end_turn(end, "")
    tree.set_status(ROOT, Ending.SUCCEEDED)
    for name, parent, mode, requested, started, ended, *needs in tasks:
        add_task(
            tree,
            TaskId(name),
            parent=TaskId(parent),
            agent=name,
            path=f"{tree[TaskId(parent)].path}/{name}[1]",
            mode=mode,
            at=requested,
            needs=map(TaskId, needs),
        )
        if started is not None:
            tree.start(TaskId(name), started)
        tree.end(TaskId(name), ended, "")
        tree.set_status(TaskId(name), Ending.SUCCEEDED)
    return tree


def told(path: CriticalPath) -> list[tuple[str, str, float, float]]:
    return [(it.task, it.part.value, it.begin, it.end) for it in path.segments]


@given(trees())
def test_a_rollup_is_the_sum_of_all_below(tree: Tree) -> None:
    """Kept up to date or counted anew, it is the same, for every subtree."""
    for task in tree:
        below = [*tree.descendants(task, itself=True)]
        assert tree.tally(task) == added_up(tree, below)
        assert all(task in tree.ancestors(it) for it in below if it != task)
    assert tree.tally().micro_usd == tree.total.micro_usd
    assert tree.tally().tokens == tree.total.tokens


@given(trees(whole=True))
def test_a_tree_that_is_watched_adds_up_like_one_that_is_not(tree: Tree) -> None:
    watched = Tree(ROOT)
    for number, task in enumerate(tree):
        node = tree[task]
        add_task(
            watched,
            task,
            parent=node.parent,
            agent=node.agent,
            path=node.path,
            mode=node.mode,
            at=node.requested,
        )
        if number % 3:
            watched.tally()
        assert node.started is not None, "the whole tree was run"
        watched.start(task, node.started)
        watched.set_status(task, Status.RUNNING)
        if number % 2:
            watched.tally()
        watched.add_usage(task, node.usage)
    for number, task in enumerate(reversed([*tree])):
        if number % 4 == 0:
            watched.tally()
        ended = tree[task].ended
        assert ended is not None, "the whole tree was run"
        watched.end(task, ended, "")
        watched.set_status(task, tree[task].status)
    for task in tree:
        assert watched.tally(task) == tree.tally(task)
        for agent, siblings in watched.subtree(task).groups.items():
            same = tree.subtree(task).groups[agent]
            assert siblings.tally == same.tally
            assert siblings.status_counts == same.status_counts
            assert [*map(set, siblings.urgent)] == [*map(set, same.urgent)]
            assert set(siblings.branching) == set(same.branching)
            assert [it.task for it in siblings.most_important(4)] == [
                it.task for it in same.most_important(4)
            ]


def test_a_tree_finds_tasks_by_ancestry_status_agent_and_path() -> None:
    tree = planned(
        ("a", "s", Mode.JOINED, 1, 1, 5),
        ("b", "a", Mode.JOINED, 2, 2, 4),
        ("c", "s", Mode.DETACHED, 5, 6, 9),
        turns=[(0, 8)],
    )
    tree.set_status(TaskId("b"), Ending.FAILED)
    tree.set_status(TaskId("c"), Ending.LOST)

    assert tree.ancestors(TaskId("b")) == ["a", "s"]
    assert [*tree.descendants(TaskId("a"))] == ["b"]
    assert [*tree.descendants(itself=True)] == ["s", "a", "b", "c"]
    assert tree.find(status="failed") == ["b"]
    assert tree.find(status=FAILURES) == ["b", "c"]
    assert tree.find(status=FAILURES, under=TaskId("a")) == ["b"]
    assert tree.find(agent="a") == ["a"]
    assert tree.at("c") == tree.at("/editor/c[1]") == "c"
    assert tree.at("/nobody") is None


def test_an_unknown_price_marks_the_totals_of_all_ancestors() -> None:
    """A total that misses a price says so, as a lower bound."""
    tree = planned(("a", "s", Mode.JOINED, 1, 1, 5), turns=[(0, 8)])
    tree.add_usage(TaskId("a"), Usage(calls=1, micro_usd=5))
    tree.add_usage(TaskId("a"), Usage(calls=1, unpriced=1))

    assert (tree.tally().micro_usd, tree.tally().unpriced) == (5, 1)
    assert tree.tally().usage.unpriced == 1


def test_a_waiting_parent_and_its_child_count_as_one_worker() -> None:
    """The parent works for 2, then a and b work at once, then the parent again."""
    tree = planned(
        ("a", "s", Mode.JOINED, 2, 3, 6), ("b", "s", Mode.JOINED, 2, 3, 8), turns=[(0, 9)]
    )

    assert tree.steps() == [
        ConcurrencyStep(0, 1),
        ConcurrencyStep(2, 0),
        ConcurrencyStep(3, 2),
        ConcurrencyStep(6, 1),
        ConcurrencyStep(9, 0),
    ]
    found = tree.parallelism()
    assert (found.peak, found.work, found.makespan) == (2, 11, 9)
    assert found.achieved == pytest.approx(11 / 9)
    assert tree.parallelism(TaskId("a")).achieved == 1.0


def test_a_session_is_not_at_work_between_its_turns() -> None:
    tree = planned(turns=[(0, 2), (10, 11)])

    assert tree.steps() == [
        ConcurrencyStep(0, 1),
        ConcurrencyStep(2, 0),
        ConcurrencyStep(10, 1),
        ConcurrencyStep(11, 0),
    ]


def test_a_running_task_lasts_until_now() -> None:
    tree = Tree(ROOT)
    add_task(tree, ROOT, parent=None, agent="editor", path="/editor", mode=Mode.ROOT, at=0)
    assert tree.parallelism().peak == 0
    assert tree.critical_path().segments == ()

    tree.begin_turn(1.0)
    tree.set_status(ROOT, Status.RUNNING)
    assert tree.steps() == []
    assert tree.steps(now=5.0) == [ConcurrencyStep(1.0, 1), ConcurrencyStep(5.0, 0)]
    assert told(tree.critical_path(now=5.0)) == [("s", "works", 1.0, 5.0)]
    assert tree.tally().seconds() is None
    assert tree.tally().seconds(now=5.0) == 4.0


@given(trees())
def test_parallelism_agrees_with_the_work_intervals(tree: Tree) -> None:
    now = last_moment(tree, tree)
    found, steps = tree.parallelism(), tree.steps()
    own = [it for task in tree for it in work_intervals(tree, task, now)]

    assert found.work == sum(end - begin for begin, end in own)
    assert found.achieved <= found.peak <= len(tree)
    assert found.work <= found.peak * found.makespan
    assert not steps or steps[-1].at_work == 0
    for step in steps:
        assert step.at_work == sum(begin <= step.at < end for begin, end in own)


def test_the_critical_path_goes_through_the_awaited_child() -> None:
    tree = planned(
        ("a", "s", Mode.JOINED, 2, 2, 4),
        ("b", "s", Mode.JOINED, 2, 3, 9),
        ("c", "b", Mode.JOINED, 4, 4, 8),
        turns=[(0, 10)],
    )

    assert told(tree.critical_path()) == [
        ("s", "works", 0, 2),
        ("b", "queued", 2, 3),
        ("b", "works", 3, 4),
        ("c", "works", 4, 8),
        ("b", "works", 8, 9),
        ("s", "works", 9, 10),
    ]
    assert tree.critical_path().tasks == ["s", "b", "c"]
    assert tree.critical_path().seconds == 10
    assert tree.critical_path().work == 9
    assert tree.slack() == {"s": 0, "a": 5, "b": 0, "c": 0}


def test_the_critical_path_follows_needs() -> None:
    """It could not start before; that it was asked for early is no cause."""
    tree = planned(
        ("a", "s", Mode.JOINED, 2, 2, 5),
        ("b", "s", Mode.JOINED, 2, 6, 9, "a"),
        ("c", "s", Mode.JOINED, 2, 2, 8),
        turns=[(0, 10)],
    )

    assert told(tree.critical_path()) == [
        ("s", "works", 0, 2),
        ("a", "works", 2, 5),
        ("b", "queued", 5, 6),
        ("b", "works", 6, 9),
        ("s", "works", 9, 10),
    ]
    assert tree.slack() == {"s": 0, "a": 0, "b": 0, "c": 1}


@pytest.mark.parametrize("mode", [Mode.JOINED, Mode.DETACHED])
@pytest.mark.parametrize("order", [("slow", "fast"), ("fast", "slow")])
def test_the_critical_path_of_a_live_tree_leads_to_the_slowest_task(
    mode: Mode, order: tuple[str, str]
) -> None:
    """The last known moment is the end of the fast one; the slow one will end later."""
    tree = planned(turns=[])
    tree.begin_turn(0.0)
    tree.set_status(ROOT, Status.RUNNING)
    for name in order:
        add_task(
            tree,
            TaskId(name),
            parent=ROOT,
            agent=name,
            path=f"/editor/{name}[1]",
            mode=mode,
            at=1.0,
        )
        tree.start(TaskId(name), 1.0)
        tree.set_status(TaskId(name), Status.RUNNING)
    if mode is Mode.DETACHED:
        tree.end_turn(5.0, "")
    tree.end(TaskId("fast"), 5.0, "")
    tree.set_status(TaskId("fast"), Ending.SUCCEEDED)

    assert tree.critical_path().tasks == ["s", "slow"]
    assert tree.critical_path(now=7.0).tasks == ["s", "slow"]
    assert tree.slack(now=7.0)[TaskId("fast")] == 2.0


def test_a_child_that_its_parent_stopped_is_on_no_path_and_has_no_slack() -> None:
    """The loser of a race ends last, and neither it nor its own child has delayed the parent."""
    tree = planned(
        ("fast", "s", Mode.JOINED, 2, 2, 5),
        ("slow", "s", Mode.JOINED, 2, 2, 9),
        ("below", "slow", Mode.JOINED, 3, 3, 8),
        turns=[(0, 10)],
    )
    tree.end(TaskId("slow"), 9.0, "", Ending.CANCELLED, abandoned=True)

    assert told(tree.critical_path()) == [
        ("s", "works", 0, 2),
        ("fast", "works", 2, 5),
        ("s", "works", 5, 10),
    ]
    assert tree.slack() == {"s": 0, "fast": 0}
    assert tree.critical_path(TaskId("slow")).tasks == ["slow", "below"]
    # A parent that was stopped itself had waited for both.
    tree.set_status(ROOT, Ending.TIMED_OUT)
    assert tree.critical_path().tasks == ["s", "slow", "below"]
    assert tree.slack().keys() == {*tree}


def test_a_session_waits_for_a_detached_task_with_a_tool() -> None:
    tree = planned(
        ("d", "s", Mode.DETACHED, 2, 2, 7), ("e", "s", Mode.DETACHED, 2, 2, 6), turns=[(0, 10)]
    )
    tree.calls_began = 4.0
    tree.add_awaited(TaskId("d"), 7.0)
    tree.add_awaited(TaskId("e"), 6.0)

    assert told(tree.critical_path()) == [
        ("s", "works", 0, 2),
        ("d", "works", 2, 7),
        ("s", "works", 7, 10),
    ]
    assert work_intervals(tree, ROOT, 10.0) == [(0, 4), (7, 10)]
    assert tree.slack() == {"s": 0, "d": 0, "e": 1}


def test_a_result_that_was_there_before_the_call_of_a_tool_was_not_waited_for() -> None:
    tree = planned(("d", "s", Mode.DETACHED, 2, 2, 3), turns=[(0, 10)])
    tree.calls_began = 4.0
    tree.add_awaited(TaskId("d"), 3.0)

    assert told(tree.critical_path()) == [("s", "works", 0, 10)]


def test_the_critical_path_tells_the_wait_for_a_provider_from_work() -> None:
    tree = planned(("a", "s", Mode.JOINED, 2, 2, 9), turns=[(0, 10)])
    tree.add_provider_wait(TaskId("a"), (2.0, 3.0))
    tree.add_provider_wait(TaskId("a"), (5.0, 8.0))
    tree.add_provider_wait(ROOT, (1.0, 2.0))

    path = tree.critical_path()
    assert told(path) == [
        ("s", "works", 0, 1),
        ("s", "provider", 1, 2),
        ("a", "provider", 2, 3),
        ("a", "works", 3, 5),
        ("a", "provider", 5, 8),
        ("a", "works", 8, 9),
        ("s", "works", 9, 10),
    ]
    assert (path.work, path.seconds_of(SegmentKind.PROVIDER)) == (5, 5)
    assert (tree.provider_wait(), tree.own_provider_wait(TaskId("a"))) == (5, 4)


def test_the_last_of_several_dependencies_is_on_the_critical_path() -> None:
    tree = planned(
        ("a", "s", Mode.JOINED, 2, 2, 5),
        ("b", "s", Mode.JOINED, 2, 2, 4),
        ("c", "s", Mode.JOINED, 2, 5, 9, "a", "b"),
        turns=[(0, 10)],
    )

    assert [it.task for it in tree.critical_path().segments] == ["s", "a", "c", "s"]
    assert tree.slack() == {"s": 0, "a": 0, "b": 1, "c": 0}


def test_queries_of_a_subtree_ignore_turns_of_the_session() -> None:
    tree = planned(
        ("a", "s", Mode.JOINED, 2, 2, 9), ("d", "a", Mode.DETACHED, 3, 3, 6), turns=[(0, 10)]
    )

    assert tree.slack(TaskId("a")) == {"a": 0, "d": 3}


def test_a_detached_task_that_ends_last_is_on_the_critical_path() -> None:
    """The session does not wait for it, so it has slack until then."""
    tree = planned(("d", "s", Mode.DETACHED, 2, 3, 20), turns=[(0, 5)])

    assert told(tree.critical_path()) == [
        ("s", "works", 0, 2),
        ("d", "queued", 2, 3),
        ("d", "works", 3, 20),
    ]
    assert tree.slack() == {"s": 15, "d": 0}


def test_a_turn_begins_with_a_notice_or_a_message() -> None:
    tree = planned(
        ("d", "s", Mode.DETACHED, 2, 2, 8),
        ("e", "s", Mode.DETACHED, 2, 2, 6),
        turns=[(0, 5), (9, 12), (15, 16)],
    )

    assert told(tree.critical_path()) == [
        ("s", "works", 0, 2),
        ("d", "works", 2, 8),
        ("s", "idle", 8, 9),
        ("s", "works", 9, 12),
        ("s", "idle", 12, 15),
        ("s", "works", 15, 16),
    ]
    # News of e, as late as that of d, would have been told in the same turn.
    assert tree.slack() == {"s": 0, "d": 0, "e": 2}


def test_a_task_that_never_started_was_queued_for_as_long_as_it_was_waited_for() -> None:
    tree = planned(("a", "s", Mode.JOINED, 2, None, 7), turns=[(0, 8)])

    assert told(tree.critical_path()) == [
        ("s", "works", 0, 2),
        ("a", "queued", 2, 7),
        ("s", "works", 7, 8),
    ]


@given(trees())
def test_the_critical_path_has_no_gap_and_is_as_long_as_all_took(tree: Tree) -> None:
    for top in tree:
        path = tree.critical_path(top)
        below = [*tree.descendants(top, itself=True)]
        assert {*path.tasks} <= {*below}
        if not path.segments:
            continue
        ends = [end_of(tree, it, last_moment(tree, below)) for it in awaited_tasks(tree, top)]
        assert path.segments[0].begin == tree[top].started
        assert path.segments[-1].end == max(ends)
        for one, two in zip(path.segments, path.segments[1:], strict=False):
            assert one.end == two.begin
        assert path.work <= path.seconds
        assert path.work <= tree.parallelism(top).work


@given(trees(whole=True, least=1, most=30))
def test_slack_is_how_much_later_a_task_could_have_ended(tree: Tree) -> None:
    """So much later and nothing ends later; a little more, and something does."""
    last = last_end(tree, ROOT, 0.0)
    assert last == max(end_of(tree, it, 0.0) for it in awaited_tasks(tree, ROOT))
    for task, seconds in tree.slack().items():
        assert last_end(tree, task, seconds) == last
        assert last_end(tree, task, seconds + 1) > last


@given(trees(whole=True))
def test_tasks_on_the_critical_path_have_no_slack(tree: Tree) -> None:
    slack, path = tree.slack(), tree.critical_path()
    last = last_moment(tree, tree)

    assert slack.keys() == {*awaited_tasks(tree, ROOT)}
    for task, seconds in slack.items():
        assert 0 <= seconds <= last - end_of(tree, task, last)
    for it, after in zip(path.segments, [*path.segments[1:], None], strict=False):
        # Somebody went on because it had ended, and not because it had handed something on.
        hands_on = after is not None and it.task in tree.ancestors(after.task)
        is_end = it.part is SegmentKind.WORKS and it.end == tree[it.task].ended
        if is_end and not hands_on:
            assert slack[it.task] == 0


def test_a_fan_out_counts_its_coming_tasks_until_its_parent_ends() -> None:
    tree = Tree(ROOT)
    add_task(tree, ROOT, parent=None, agent="editor", path="/editor", mode=Mode.ROOT, at=0)
    tree.begin_turn(0.0)
    names = [TaskId(it) for it in "abcd"]
    for number, name in enumerate(names):
        add_task(
            tree,
            name,
            parent=ROOT,
            agent="coder",
            path=f"/editor/coder[{number + 1}]",
            mode=Mode.JOINED,
            at=number,
            to_come=9 - number,
        )
    assert tree.to_come == 6
    assert tree.progress(now=4.0) == Progress(0, 10, None)

    for name in names[:3]:
        tree.end(name, 6.0, "")
        tree.set_status(name, Ending.SUCCEEDED)
    assert tree.progress(now=6.0) == Progress(3, 10, 14.0)

    tree.end_turn(7.0, "")
    tree.set_status(ROOT, Ending.FAILED)
    assert tree.progress(now=7.0).known == 4


def test_progress_has_no_pace_after_the_end_or_a_pause_between_turns() -> None:
    children = [(it, "s", Mode.JOINED, 1, 1, 5) for it in "abcd"]
    ended = planned(*children, turns=[(0, 8)])
    talked = planned(*children[:3], turns=[(0, 8), (100, 101)])
    talked[TaskId("a")].ended = None
    talked.set_status(TaskId("a"), Status.RUNNING)

    assert ended.progress(now=9.0).seconds_left is None
    assert talked.progress(now=101.0).seconds_left is None
