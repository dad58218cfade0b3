"""Trees that never grew, of any size, and always the same."""

from orchestrator.agents import ToolCall, Usage
from orchestrator.cli.terminal.tree_frame import RunSnapshot
from orchestrator.delegation import Ending, Mode, Status, TaskId, Tree
from orchestrator.delegation.events.approvals import ApprovalId, ApprovalQuestion
from tests.delegation.built_trees import add_task

BEGAN = 1_000_000.0
NOW = BEGAN + 100


def grown(size: int) -> Tree:
    """Return a tree of so many tasks: of each ten one has failed, and the last three run."""
    tree = Tree(TaskId("r_root"))
    add_task(
        tree,
        tree.root,
        parent=None,
        agent="boss",
        path="/boss",
        mode=Mode.ROOT,
        at=BEGAN,
        goal="Ship it",
    )
    tree.start(tree.root, BEGAN)
    tree.set_status(tree.root, Status.RUNNING)
    paths = {0: "/boss"}
    for number in range(1, size):
        # A few have many below them, and those have a few more each.
        above = 0 if number <= 12 else (number % 12 + 1 if number < 200 else number // 20)
        agent = ("coder", "tester")[number % 2] if above else "lead"
        paths[number] = f"{paths[above]}/{agent}[{number}]"
        task = TaskId(f"t_{number}")
        parent = TaskId(f"t_{above}") if above else tree.root
        add_task(
            tree,
            task,
            parent=parent,
            agent=agent,
            path=paths[number],
            mode=Mode.DETACHED if number == 2 else Mode.JOINED,
            at=BEGAN,
            goal=f"part {number}",
        )
        is_running = number > size - 4
        ending = Ending.FAILED if number % 10 == 3 else Ending.SUCCEEDED
        tree.start(task, BEGAN + 1)
        tree.set_status(task, Status.RUNNING if is_running else ending)
        if not is_running:
            error = "no route to host" if ending is Ending.FAILED else ""
            tree.end(task, BEGAN + 1 + number % 50, error)
        tree.add_usage(task, Usage(calls=1, input_tokens=100, micro_usd=1_000))
    return tree


def ask_of(tree: Tree, task: str) -> ApprovalQuestion:
    """Let a task of a tree ask for an approval."""
    id_ = TaskId(task)
    tree.set_status(id_, Status.WAITING)
    return ApprovalQuestion(
        id=ApprovalId("a_0123456789abcdef"),
        task=id_,
        path=tree[id_].path,
        call=ToolCall("terminal").id,
        tool="terminal",
        subject="rm -r build/",
        details="",
        asked_at=NOW,
        deadline=NOW + 60,
    )


def snapshot_of(
    tree: Tree, *asks: ApprovalQuestion, calls: dict[str, list[ToolCall]] | None = None
) -> RunSnapshot:
    called = {} if calls is None else calls
    return RunSnapshot(
        tree=tree,
        questions=asks,
        calls=lambda task: called.get(task, []),
        now=NOW,
        active_at=NOW - 2,
    )
