"""The executed tree: its nodes, its edges and its sums."""

from collections.abc import Callable
from typing import TypeAlias

import networkx as nx
import pytest

from orchestrator.agents import AssistantMessage, MessageId, Usage
from orchestrator.delegation import (
    DeliveryCapability,
    Ending,
    Ledger,
    Mode,
    Outcome,
    SessionId,
    TaskId,
    Tree,
    root_of,
)
from orchestrator.delegation.events import (
    CancelRequested,
    JournalOpened,
    MessageReceived,
    ModelAnswered,
    Steered,
    SteeringSeen,
    TaskRequested,
    TaskSettled,
    TaskStarted,
    TurnEnded,
)
from tests.delegation.built_trees import add_task

Tell: TypeAlias = Callable[..., None]
Asked: TypeAlias = Callable[..., TaskRequested]

PUSH = DeliveryCapability.PUSH
S = SessionId("s")
ROOT = root_of(S)
A, B, C = map(TaskId, "abc")
CHEAP = Usage(calls=1, input_tokens=10, output_tokens=5, micro_usd=7)
UNPRICED = Usage(calls=1, input_tokens=100, unpriced=1)


@pytest.fixture
def tree(ledger: Ledger, begin: Tell, tell: Tell, requested: Asked) -> Tree:
    """Below the editor a, which has b below it, and the detached c."""
    begin(PUSH)
    tell(requested(A, label="facts"), TaskStarted(A))
    tell(requested(B, parent=A, agent="checker"), TaskStarted(B))
    tell(requested(C, mode=Mode.DETACHED))
    return ledger.sessions[S].tree


def test_networkx_graph_has_every_task_edge_and_attribute(tree: Tree) -> None:
    """All algorithms of networkx work on it."""
    graph = tree.to_networkx()

    assert nx.is_arborescence(graph)
    assert nx.ancestors(graph, B) == {ROOT, A}
    assert list(graph.edges(data="kind")) == [
        (ROOT, A, "delegates"),
        (ROOT, C, "delegates"),
        (A, B, "delegates"),
    ]
    assert {task: graph.nodes[task] for task in graph} == {
        task: tree[task].attributes() for task in tree
    }


def test_networkx_graph_is_a_copy(tree: Tree, tell: Tell) -> None:
    """A program may change it, and the tree changes without it."""
    graph = tree.to_networkx()
    graph.nodes[A]["label"] = "mine"
    tell(TaskSettled(B, Outcome(Ending.SUCCEEDED)))

    assert tree[A].label == "facts"
    assert graph.nodes[B]["status"] == "running"
    assert tree.to_networkx().nodes[B]["status"] == "succeeded"


def test_children_of_an_unknown_task_are_an_error(tree: Tree) -> None:
    with pytest.raises(KeyError, match="x"):
        tree.children(TaskId("x"))


def test_children_are_complete_when_a_tree_grows_after_it_was_read(
    tree: Tree, tell: Tell, requested: Asked
) -> None:
    assert tree.children(A) == [B]
    tell(requested("d", parent=A), requested("e", parent=ROOT))

    assert tree.children(A) == [B, "d"]
    assert tree.children(ROOT) == [A, C, "e"]


def test_a_tree_has_a_size_and_an_order(tree: Tree) -> None:
    """Children are in the order they were asked for."""
    assert len(tree) == 4
    assert list(tree) == [ROOT, A, B, C]
    assert repr(tree) == "<Tree s: 4 tasks>"
    assert tree.root == ROOT
    assert tree.children(ROOT) == [A, C]
    assert tree.children(B) == []


def test_a_need_is_an_edge_of_its_own(tree: Tree, tell: Tell, requested: Asked) -> None:
    tell(requested("d", needs=(A, C)))
    task = TaskId("d")

    assert tree.needs(task) == [A, C]
    assert tree.needs(A) == []
    assert tree.children(A) == [B]
    assert tree.children(ROOT) == [A, C, task]
    assert tree.to_networkx().edges[C, task] == {"kind": "needs"}


def test_node_has_every_attribute_of_a_task(tree: Tree, tell: Tell) -> None:
    """Views and exports need nothing but the tree."""
    tell(ModelAnswered(A, AssistantMessage(usage=CHEAP)), TaskSettled(B, Outcome(Ending.SUCCEEDED)))
    tell(TaskSettled(A, Outcome(Ending.FAILED, "half of it", "no more paper")))

    assert tree[A].attributes() == {
        "parent": ROOT,
        "agent": "researcher",
        "goal": "find it",
        "label": "facts",
        "path": "/editor/researcher[1]",
        "mode": "joined",
        "reason": "asked_to_wait",
        "status": "failed",
        "requested": 5.0,
        "started": 6.0,
        "ended": 12.0,
        "usage": CHEAP,
        "micro_usd": 7,
        "total": CHEAP,
        "error": "no more paper",
    }


def test_root_is_a_node_like_any_other(tree: Tree, tell: Tell) -> None:
    """Its goal is the first message of its session."""
    tell(MessageReceived(S, "something else"))

    assert tree[ROOT].attributes() == {
        "parent": None,
        "agent": "editor",
        "goal": "go",
        "label": "",
        "path": "/editor",
        "mode": "root",
        "reason": "",
        "status": "running",
        "requested": 1.0,
        "started": 4.0,
        "ended": None,
        "usage": Usage(),
        "micro_usd": 0,
        "total": Usage(),
        "error": "",
    }


def test_the_usage_of_a_task_is_added_to_all_ancestors(tree: Tree, tell: Tell) -> None:
    tell(ModelAnswered(B, AssistantMessage(usage=CHEAP)))
    tell(ModelAnswered(B, AssistantMessage(usage=UNPRICED)))
    tell(ModelAnswered(A, AssistantMessage(usage=CHEAP)))

    assert tree[B].usage == tree[B].total == CHEAP + UNPRICED
    assert tree[A].usage == CHEAP
    assert tree[A].usage.micro_usd == 7
    assert tree[A].total == tree.total == CHEAP + UNPRICED + CHEAP
    assert tree[ROOT].usage == tree[C].total == Usage()


def test_the_usage_of_a_cancelled_task_is_kept(tree: Tree, tell: Tell) -> None:
    tell(ModelAnswered(B, AssistantMessage(usage=CHEAP)), CancelRequested(A))
    tell(TaskSettled(B, Outcome(Ending.CANCELLED)))
    tell(TaskSettled(A, Outcome(Ending.CANCELLED)))

    assert tree.total == CHEAP


def test_a_tree_counts_its_tasks_by_status(tree: Tree, tell: Tell) -> None:
    """Every task has one status, and every restart shows."""
    assert tree.counts() == {"running": 3, "queued": 1}

    tell(TaskSettled(B, Outcome(Ending.TIMED_OUT)), TaskSettled(A, Outcome(Ending.SUCCEEDED)))
    tell(TurnEnded(S, 1, Outcome(Ending.SUCCEEDED)), JournalOpened("1.0"))
    assert tree.counts() == {"waiting": 1, "succeeded": 1, "timed_out": 1, "interrupted": 1}
    assert tree.tally().waiting == 1
    assert tree.tally().glyph_counts() == "!1 ◐1 ✗1 ✓1"


def test_a_tree_counts_the_same_once_its_rollups_are_made(tree: Tree) -> None:
    """Until then the statuses alone are counted, which is a hundred times as fast."""
    before = tree.counts()
    tree.tally()

    assert list(tree.counts().items()) == list(before.items())


def test_a_node_shows_the_choices_of_its_parent_if_there_are_any(tree: Tree) -> None:
    assert "chosen" not in tree[A].attributes()

    tree[A].chosen = "model large"
    assert tree[A].attributes()["chosen"] == "model large"


def test_an_ended_fan_out_asks_for_no_more_tasks(tree: Tree) -> None:
    tree.set_to_come(A, 3)
    assert tree.to_come == 3

    tree.end(A, 9.0, "")
    tree.set_to_come(A, 3)
    assert tree.to_come == 0


def test_waits_for_providers_add_up_in_a_subtree(tree: Tree, tell: Tell) -> None:
    assert tree.provider_wait() == 0.0

    tell(ModelAnswered(A, AssistantMessage(usage=CHEAP), waited=(1.0, 3.5)))
    tell(ModelAnswered(B, AssistantMessage(usage=CHEAP), waited=(2.0, 2.5)))

    assert (tree.provider_wait(), tree.provider_wait(B)) == (3.0, 0.5)


def test_a_root_counts_its_answers_before_it_reads_a_steering_message(
    ledger: Ledger, tree: Tree, tell: Tell
) -> None:
    tell(ModelAnswered(ROOT, AssistantMessage(usage=CHEAP)))
    tell(Steered(ROOT, MessageId("m"), "faster", "you"), SteeringSeen(ROOT, (MessageId("m"),)))

    assert ledger.tasks[ROOT].steering[MessageId("m")].seen_at == 2


def test_zero_usage_leaves_the_rollups_unchanged(tree: Tree) -> None:
    before = tree.tally()
    tree.add_usage(B, Usage())

    assert tree.tally() == before


def test_rollups_follow_a_turn_that_begins_after_they_were_read() -> None:
    tree = Tree(ROOT)
    add_task(tree, ROOT, parent=None, agent="editor", path="/editor", mode=Mode.ROOT, at=0.0)
    assert tree.tally().began is None

    tree.begin_turn(1.0)
    assert tree.tally().began == 1.0


def test_a_tree_is_at_work_while_one_of_its_tasks_goes_on(
    tree: Tree, tell: Tell, ledger: Ledger
) -> None:
    assert tree.is_at_work
    tell(JournalOpened("0.1"))
    assert not tree.is_at_work
