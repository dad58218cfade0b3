"""Runs versions in rounds of pairs, until each differs clearly from the first, or all rounds ran.

Each round runs every case once with the first version and with each undecided one. Every look at
the results may err, so the interval of a look has a higher level than 95 %: all looks together err
in at most 5 % (Bonferroni).
"""

from collections.abc import Sequence

import trio

from orchestrator.products.evaluation.cases import Case
from orchestrator.products.evaluation.recorded import Trial
from orchestrator.products.evaluation.statistics import LEVEL
from orchestrator.products.evaluation.summary import score_interval, summarize
from orchestrator.products.evaluation.trials import Evaluation, Planned, Tell


async def run_rounds(
    evaluation: Evaluation,
    cases: Sequence[Case],
    *,
    rounds: int,
    limit: int,
    score: str | None,
    tell: Tell,
) -> list[Trial]:
    """Return the trials of all rounds. The same results lead to the same rounds after a crash."""
    await trio.lowlevel.checkpoint()
    first, *others = evaluation.versions
    trials: list[Trial] = []
    undecided = others
    for repeat in range(rounds):
        versions = [first, *undecided]
        planned = [Planned(version, case, repeat) for case in cases for version in versions]
        trials += await evaluation.run(planned, limit=limit, tell=tell)
        undecided = [it for it in undecided if not _is_decided(trials, first, it, score, rounds)]
        if evaluation.is_spent or (others and not undecided):
            break
    return trials


def _is_decided(
    trials: Sequence[Trial], first: str, other: str, score: str | None, looks: int
) -> bool:
    found = summarize(trials, score or score_name(trials))
    if first not in found or other not in found:
        return False
    interval = score_interval(found[first], found[other], level=1 - (1 - LEVEL) / looks)
    return interval is not None and interval.is_decided


def score_name(trials: Sequence[Trial]) -> str:
    """Return the name of the first score: the one that a summary is about."""
    return next((name for trial in trials for name in trial.scores), "score")
