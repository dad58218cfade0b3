"""`blame`: the effect of each task of a run on its score, measured by forks of that task alone.

A fork keeps all work that does not follow from the task, so a difference in the score comes from
the task. The effect is the mean score of the forks minus the score of the run.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, Final

import attrs

from orchestrator.agents import Agent, DefinitionError, Pipeline, ScriptedModel
from orchestrator.delegation import Ending, TaskId, Tree
from orchestrator.ports.sessions import ChangeAgent, Orchestrator, Run, budget, current_grants
from orchestrator.products.evaluation.repetitions import repeat_task
from orchestrator.products.evaluation.scorers import as_scorer
from orchestrator.products.evaluation.statistics import Interval
from orchestrator.products.evaluation.task_result import result_of_run
from orchestrator.products.evaluation.trials import Evaluation

MOST_SUSPECTS: Final = 8
REPETITIONS: Final = 6
TAIL: Final = 0.025
"""The share of samples that may be above an interval, and below it."""
T_QUANTILES: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""The quantiles 0.975 of Student's distribution with 1 to 20 degrees of freedom."""


@attrs.frozen(kw_only=True)
class TaskEffect:
    """The effect of one task on the score of its run."""

    task: TaskId
    path: str
    effect: Interval
    """The mean score of its forks minus the score of the run; `pairs` is the number of forks."""
    runs: tuple[str, ...]
    """The forks."""
    usd: float

    @property
    def is_to_blame(self) -> bool:
        """Whether the score surely rises when the task is done again."""
        return self.effect.low > 0

    def __str__(self) -> str:
        it = self.effect
        mark = "*" if self.is_to_blame else " "
        interval = f"[{it.low:+.2f}, {it.high:+.2f}]"
        return f"{mark} {self.path}: {it.value:+.2f} {interval} by {it.pairs} forks"


@attrs.frozen(kw_only=True)
class BlameReport:
    """The effects of the suspects of a run, largest first."""

    run: str
    score: float
    """The score of the run."""
    effects: tuple[TaskEffect, ...]
    not_tried: tuple[str, ...] = ()
    """The paths of suspects that were left out when the budget was spent."""

    @property
    def guilty(self) -> TaskEffect | None:
        """The task whose effect is the largest, if that is surely above zero."""
        first = self.effects[0] if self.effects else None
        return first if first is not None and first.is_to_blame else None

    def __str__(self) -> str:
        return "\n".join([f"run {self.run}: score {self.score:.2f}", *map(str, self.effects)])


async def blame(
    orchestrator: Orchestrator,
    agent: Agent[Any],
    run: str,
    scorer: Any,
    *,
    tasks: Sequence[str] = (),
    times: int = REPETITIONS,
    change: ChangeAgent | None = None,
    answers: Mapping[str, str] | None = None,
    usd: float | None = None,
    most: int = MOST_SUSPECTS,
    deps: object = None,
) -> BlameReport:
    """Measure the effect of suspect tasks on the score of a run, one task after the other.

    Args:
        orchestrator: an open orchestrator with the journal of the run.
        agent: the agent of the run, in its present definition.
        run: the id of a run that has ended.
        scorer: a function of a `TaskResult`, a judge, or an evaluator of pydantic-evals.
        tasks: the suspects: ids or paths; by default tasks that did not succeed, then tasks on the
            critical path, then expensive ones.
        times: the number of forks of each suspect.
        change: returns a stronger agent for an agent of a suspect and its descendants; by default a
            suspect is done again as it was.
        answers: corrected answers of suspects by their paths; such a suspect asks no model.
        usd: the most dollars for all forks and judges.
        most: the most suspects, if `tasks` names none.
        deps: the values that the tools and instructions of the forks need from the program.
    """
    if times < 2:
        raise DefinitionError(f"times is {times}: an interval needs at least 2 forks")
    tree = await orchestrator.read_tree(run)
    answers = {} if answers is None else answers
    chosen = [_find(tree, it) for it in (*tasks, *answers)] or suspects(tree)[:most]
    scoring = Evaluation(orchestrator=orchestrator, versions={}, scorers=[as_scorer(scorer)])
    before = await _score(scoring, agent, run)
    effects: list[TaskEffect] = []
    with budget(usd=usd, name="blame"):
        granted = {it.id for it in current_grants(orchestrator.facts)}
        for at, task in enumerate(dict.fromkeys(chosen)):
            path = tree[task].path
            altered = _answering(answers[path]) if path in answers else change
            forks = await repeat_task(
                orchestrator, agent, run, task, times=times, change=altered, deps=deps
            )
            if any([await _is_unpaid(orchestrator, it, granted) for it in forks]):
                return _report(run, before, effects, [tree[it].path for it in chosen[at:]])
            scores = [await _score(scoring, agent, it.id) for it in forks]
            effects.append(
                TaskEffect(
                    task=task,
                    path=path,
                    effect=mean_interval([it - before for it in scores], before),
                    runs=tuple(it.id for it in forks),
                    usd=sum(it.usage.usd for it in forks),
                )
            )
    return _report(run, before, effects, ())


def suspects(tree: Tree) -> list[TaskId]:
    """Return all tasks below the root, the most suspicious first."""
    on_path = {*tree.critical_path().tasks}
    return sorted(
        tree.descendants(),
        key=lambda it: (
            tree[it].status == Ending.SUCCEEDED,
            it not in on_path,
            -tree[it].usage.micro_usd,
            -tree[it].usage.tokens,
            -tree[it].level,
        ),
    )


def mean_interval(differences: Sequence[float], before: float = 0.0) -> Interval:
    """Return the mean of differences to a score, with its interval of 95 %.

    The interval is exact for scores of 0 and 1 (Clopper and Pearson), and Student's for others.
    """
    count, mean = len(differences), fmean(differences)
    scores = [it + before for it in differences]
    if all(min(abs(it), abs(it - 1)) < 1e-9 for it in scores):
        passed = round(sum(scores))
        low, high = _passing_shares(passed, count)
        return Interval(mean, low - before, high - before, count)
    freedom = count - 1
    quantile = T_QUANTILES[freedom - 1] if freedom <= len(T_QUANTILES) else 1.96 + 2.6 / freedom
    half = quantile * stdev(differences) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def _passing_shares(passed: int, count: int) -> tuple[float, float]:
    """Return the exact interval of the probability to pass."""

    def tail(share: float, passes: range) -> float:
        return math.fsum(
            math.comb(count, it) * share**it * (1 - share) ** (count - it) for it in passes
        )

    low = high = None
    if passed:
        low = _solve(lambda share: tail(share, range(passed, count + 1)) - TAIL)
    if passed < count:
        high = _solve(lambda share: TAIL - tail(share, range(passed + 1)))
    return low or 0.0, 1.0 if high is None else high


def _solve(rising: Callable[[float], float]) -> float:
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


async def _score(scoring: Evaluation, agent: Agent[Any], run: Any) -> float:
    """Return the first score of a run; 0 if the run did not succeed."""
    found = await scoring.orchestrator.read.session(run)
    result = result_of_run(found.session, found.records.tasks, agent=agent)
    trials = await scoring.score_recorded([result], "blame", tell=lambda trial: None)
    if trials and trials[0].broken:
        raise DefinitionError(f"the score of {run} is unknown: {trials[0].broken}")
    values = [it.value for trial in trials for it in trial.scores.values()]
    if result.succeeded and not values:
        raise DefinitionError(f"the scorer gave run {run} no score")
    return values[0] if values else 0.0


def _answering(answer: str) -> ChangeAgent:
    """Return a change that lets the agent of a task give one answer, without a model."""

    def change(agent: Agent[Any]) -> Agent[Any]:
        if isinstance(agent, Pipeline):
            raise DefinitionError(f"{agent.name!r} is a program: correct the answer of its tasks")
        return attrs.evolve(agent, model=ScriptedModel.always(answer), models=())

    return change


async def _is_unpaid(orchestrator: Orchestrator, fork: Run[Any], granted: Collection[str]) -> bool:
    """Return whether the budget ended a task of a fork: its score says nothing."""
    found = await orchestrator.read.session(fork.id)
    outcomes = [fork.outcome, *(found.records.tasks[it].outcome for it in fork.tree.descendants())]
    return any(it is not None and it.account in granted for it in outcomes)


def _find(tree: Tree, task: str) -> TaskId:
    found = [it for it in tree.descendants() if task in {it, tree[it].path}]
    if not found:
        raise DefinitionError(f"the run has no task {task!r} below its root")
    return found[0]


def _report(
    run: str, score: float, effects: Sequence[TaskEffect], not_tried: Sequence[str]
) -> BlameReport:
    ordered = sorted(effects, key=lambda it: (-it.effect.low, -it.effect.value))
    return BlameReport(run=run, score=score, effects=tuple(ordered), not_tried=tuple(not_tried))
