"""Two runs side by side: what more, what less, and what is new."""

from hypothesis import given

from orchestrator.agents import Usage
from orchestrator.delegation import Ending, Mode, TaskId, Tree
from orchestrator.delegation.tree.diff import Change, role_of
from tests.delegation.built_trees import add_task
from tests.delegation.tree_strategies import ROOT, trees


def run(*agents: str, tokens: int = 10, price: int | None = 5) -> Tree:
    tree = Tree(ROOT)
    add_task(tree, ROOT, parent=None, agent="editor", path="/editor", mode=Mode.ROOT, at=0)
    for number, agent in enumerate(agents):
        task = TaskId(f"t{number}")
        add_task(
            tree,
            task,
            parent=ROOT,
            agent=agent,
            path=f"/editor/{agent}[{number + 1}]",
            mode=Mode.JOINED,
            at=0,
        )
        tree.start(task, 1.0)
        tree.end(task, 3.0, "")
        tree.set_status(task, Ending.SUCCEEDED)
        unpriced = int(price is None)
        tree.add_usage(
            task, Usage(calls=1, input_tokens=tokens, micro_usd=price or 0, unpriced=unpriced)
        )
    return tree


def changed(before: Tree, after: Tree) -> dict[str, Change]:
    return {it.role: it for it in before.diff(after) if not it.is_same}


def test_a_role_is_a_path_without_numbers() -> None:
    assert role_of("/editor/researcher[12]/checker[1]") == "/editor/researcher/checker"


def test_two_runs_differ_role_by_role() -> None:
    one, two = run("coder", "coder", "tester"), run("coder", "coder", "coder", "writer")
    found = changed(one, two)

    assert [*found] == ["/editor/coder", "/editor/tester", "/editor/writer"]
    coder, tester, writer = found.values()
    assert (coder.tasks, coder.tokens, coder.micro_usd, coder.seconds) == (1, 10, 5, 2.0)
    assert (tester.is_removed, writer.is_added) == (True, True)
    assert str(writer) == ("+ /editor/writer: +1 tasks, +0 failed, +10 tok, +<$0.0001, +2.0 s")


def test_a_price_that_is_missing_is_marked() -> None:
    found = changed(run("coder", price=None), run("coder", price=2_000_000))

    assert "~+$2.0000" in str(found["/editor/coder"])


def test_a_task_that_failed_is_a_difference() -> None:
    one, two = run("coder"), run("coder")
    two.set_status(TaskId("t0"), Ending.FAILED)

    assert changed(one, two)["/editor/coder"].failed == 1


@given(trees(), trees())
def test_the_differences_add_up(one: Tree, two: Tree) -> None:
    found = one.diff(two)

    assert sum(it.tasks for it in found) == len(two) - len(one)
    assert sum(it.micro_usd for it in found) == two.total.micro_usd - one.total.micro_usd
    assert sum(it.tokens for it in found) == two.total.tokens - one.total.tokens
    assert all(it.is_same for it in one.diff(one))
    assert [(it.role, -it.tasks) for it in found if it.tasks > 0] == [
        (it.role, it.tasks) for it in two.diff(one) if it.tasks < 0
    ] or len({it.role for it in found}) == len(found)
