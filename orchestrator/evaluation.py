"""Evaluations: scorers of runs, judges, and versions of a team compared in pairs."""

from orchestrator.products.evaluation.blame import BlameReport, TaskEffect, blame
from orchestrator.products.evaluation.cases import Case, Dataset, read_cases
from orchestrator.products.evaluation.evaluate import evaluate
from orchestrator.products.evaluation.repetitions import repeat_task
from orchestrator.products.evaluation.report import EvaluationReport
from orchestrator.products.evaluation.scorers import Judge, Score, each_task, judge
from orchestrator.products.evaluation.task_result import TaskResult
from orchestrator.products.history.coordination import Coordination, coordination

__all__ = [
    "BlameReport",
    "Case",
    "Coordination",
    "Dataset",
    "EvaluationReport",
    "Judge",
    "Score",
    "TaskEffect",
    "TaskResult",
    "blame",
    "coordination",
    "each_task",
    "evaluate",
    "judge",
    "read_cases",
    "repeat_task",
]
