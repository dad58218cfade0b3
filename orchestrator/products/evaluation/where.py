"""The condition of `--where`: a Python expression over a task, without calls and attributes."""

import ast
from collections.abc import Callable
from typing import Any, Final

from orchestrator.agents import DefinitionError
from orchestrator.products.evaluation.task_result import TaskResult

_NODES: Final = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn, ast.Name, ast.Load),
    *(ast.Constant, ast.Tuple, ast.List),
)
NAMES: Final[dict[str, Callable[[TaskResult], Any]]] = {
    "agent": lambda it: it.agent,
    "goal": lambda it: it.goal,
    "answer": lambda it: it.answer,
    "path": lambda it: it.path,
    "error": lambda it: it.error,
    "ending": lambda it: it.ending,
    "succeeded": lambda it: it.succeeded,
    "failed": lambda it: not it.succeeded,
    "cost": lambda it: it.usage.usd,
    "seconds": lambda it: it.seconds,
    "tokens": lambda it: it.tokens,
    "calls": lambda it: it.calls,
    "tasks": lambda it: len(it.tasks()),
    "is_root": lambda it: it.id == it.tree.root,
}
"""The names of a condition, and their values for a task."""


def parse_where(text: str) -> Callable[[TaskResult], bool]:
    """Return the condition as a function, or raise `DefinitionError`."""
    try:
        parsed = ast.parse(text.strip(), mode="eval")
    except SyntaxError as exc:
        raise DefinitionError(f"--where {text!r} is not an expression: {exc.msg}") from exc
    used: set[str] = set()
    for node in ast.walk(parsed):
        if not isinstance(node, _NODES):
            raise DefinitionError(
                f"--where {text!r}: {ast.unparse(node)!r} is not allowed; compare names such as"
                " agent, failed and cost with values, and join them with and, or, not"
            )
        if isinstance(node, ast.Name):
            if node.id not in NAMES:
                raise DefinitionError(
                    f"--where {text!r}: there is no {node.id!r}; the names are {', '.join(NAMES)}"
                )
            used.add(node.id)
    code = compile(parsed, "--where", "eval")

    def fits(result: TaskResult) -> bool:
        values = {name: NAMES[name](result) for name in used}
        try:
            # Only names, constants and comparisons: the nodes were checked.
            return bool(eval(code, {"__builtins__": {}}, values))  # noqa: S307
        except TypeError as exc:
            raise DefinitionError(f"--where {text!r}: {exc}") from exc

    return fits
