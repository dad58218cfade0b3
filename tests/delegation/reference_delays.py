"""A simple model of what depends on what: when all would have ended if one task had ended later.

It is plain and slow, and goes forwards; `slack_time` goes backwards.
"""

from functools import cache

from orchestrator.delegation import Mode, TaskId, Tree
from orchestrator.delegation.tree.intervals import awaited_children, awaited_tasks, wait_intervals


def last_end(tree: Tree, delayed: TaskId, by: float) -> float:  # noqa: C901 (one model)
    """Return when the last task would have ended if one had ended so much later."""
    root, turns = tree.root, tree.turns
    ends = {task: node.ended for task, node in tree.nodes().items() if node.ended is not None}
    starts = {it: node.started for it, node in tree.nodes().items() if node.started is not None}
    detached = [it for it in awaited_tasks(tree, root) if tree[it].mode == Mode.DETACHED]

    def told_at(turn: int) -> list[TaskId]:
        begins = [begin for begin, _ in turns]
        return [
            it
            for it in detached
            if ends[it] <= begins[turn] and (turn == 0 or ends[it] > begins[turn - 1])
        ]

    @cache
    def begin(turn: int) -> float:
        if turn == 0:
            return turns[0][0]
        before = turns[turn - 1][1]
        assert before is not None, "it has ended"
        at = turns[turn][0]
        news = [it for it in told_at(turn) if ends[it] > before]
        ended = [ends[it] for it in news]
        previous = shifted(root, before, turn - 1)
        if not ended:
            early = [end(it) for it in told_at(turn)]
            return max([previous + at - before, *early])
        late = [end(it) for it in told_at(turn)]
        return max([previous, *late]) + at - max(ended)

    @cache
    def shifted(task: TaskId, at: float, turn: int = 0) -> float:
        """Return when a task would have done what it did at a moment."""
        if task == root:
            anchor, now = turns[turn][0], begin(turn)
        else:
            anchor, now = starts[task], start(task)
        for wait_begin, wait_end in wait_intervals(tree, task, 0.0):
            if anchor <= wait_begin and wait_end <= at:
                joined = [
                    end(child)
                    for child in awaited_children(tree, task)
                    if tree[child].mode == Mode.JOINED
                    and wait_begin <= tree[child].requested < wait_end
                ]
                anchor, now = wait_end, max(joined)
        return now + at - anchor

    @cache
    def start(task: TaskId) -> float:
        parent, at = tree[task].parent, tree[task].requested
        turn = max((number for number, (began, _) in enumerate(turns) if began <= at), default=0)
        needs = tree.needs(task)
        ready = max([at, *(ends[need] for need in needs)])
        assert parent is not None, "a root starts with its first turn"
        asked = shifted(parent, at, turn if parent == root else 0)
        now = max([asked, *(end(need) for need in needs)])
        return now + starts[task] - ready

    @cache
    def end(task: TaskId) -> float:
        turn = len(turns) - 1 if task == root else 0
        more = by if task == delayed else 0.0
        return shifted(task, ends[task], turn) + more

    return max(map(end, awaited_tasks(tree, root)))
