"""Evaluations: scorers of runs, judges, and versions of a team compared in pairs."""

from orchestrator.products.evaluation.cases import Case, Dataset, read_cases
from orchestrator.products.evaluation.evaluate import evaluate
from orchestrator.products.evaluation.report import EvaluationReport
from orchestrator.products.evaluation.scorers import Judge, Score, each_task, judge
from orchestrator.products.evaluation.task_result import TaskResult

__all__ = [
    "Case",
    "Dataset",
    "EvaluationReport",
    "Judge",
    "Score",
    "TaskResult",
    "each_task",
    "evaluate",
    "judge",
    "read_cases",
]
