"""The summary of an evaluation: means of cases and versions, and versions compared in pairs.

A trial with an error has no score. It is counted as an error, and its case takes part in no
comparison of scores.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final, Literal, TypeAlias

import attrs

from orchestrator.products.evaluation.recorded import Trial
from orchestrator.products.evaluation.statistics import (
    LEVEL,
    MIN_PAIRS,
    POWER,
    Interval,
    Pair,
    mcnemar,
    paired_interval,
    pairs_needed,
    relative_change,
)

EFFECT: Final = 0.05
"""The difference of scores that the sentence about the sample size names: five points."""
QUICK_SECONDS: Final = 0.1
"""Versions whose runs are all quicker than this are not compared by their time."""
Verdict: TypeAlias = Literal["better", "worse", "no difference seen"]
MEASURES: Final = ("score", "cost", "seconds", "tokens", "calls")


@attrs.frozen(kw_only=True)
class CaseSummary:
    """The trials of one case with one version."""

    key: str
    name: str
    trials: tuple[Trial, ...]

    def mean(self, measure: str, score: str) -> float | None:
        """Return the mean of a measure or a score; None if no trial has one."""
        values = [
            it for trial in self.trials if (it := measured(trial, measure, score)) is not None
        ]
        return fmean(values) if values else None

    @property
    def errors(self) -> int:
        return sum(bool(it.error) for it in self.trials)

    def passes(self, score: str) -> bool | None:
        """Return whether most trials passed; None for a score that is a number, or an error."""
        scores = [it.scores.get(score) for it in self.trials]
        if self.errors or not all(it is not None and it.is_pass for it in scores):
            return None
        return fmean(it.value for it in scores if it is not None) > 0.5


@attrs.frozen(kw_only=True)
class VersionSummary:
    """All cases with one version."""

    name: str
    cases: Mapping[str, CaseSummary]
    """The cases by their keys."""
    score: str
    """The name of the score that the summary is about."""

    def mean(self, measure: str) -> float | None:
        """Return the mean over cases; each case counts once, however often it ran."""
        means = (it.mean(measure, self.score) for it in self.cases.values())
        values = [it for it in means if it is not None]
        return fmean(values) if values else None

    @property
    def errors(self) -> int:
        return sum(it.errors for it in self.cases.values())

    @property
    def trials(self) -> list[Trial]:
        return [trial for case in self.cases.values() for trial in case.trials]


def measured(trial: Trial, measure: str, score: str = "") -> float | None:
    """Return a measure of a trial: a number of its run, or one of its scores."""
    result = trial.result
    match measure:
        case "cost":
            return result.cost
        case "seconds":
            return result.seconds
        case "tokens":
            return float(result.tokens)
        case "calls":
            return float(result.calls)
        case _:
            found = trial.scores.get(score if measure == "score" else measure)
            return None if found is None or trial.error else found.value


def summarize(trials: Iterable[Trial], score: str) -> dict[str, VersionSummary]:
    """Return the summaries of all versions, by their names, in the order of their first trials."""
    found: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        found.setdefault(trial.version, {}).setdefault(trial.case.key, []).append(trial)
    return {
        version: VersionSummary(
            name=version,
            score=score,
            cases={
                key: CaseSummary(key=key, name=them[0].case.name, trials=tuple(them))
                for key, them in cases.items()
            },
        )
        for version, cases in found.items()
    }


@attrs.frozen(kw_only=True)
class CaseChange:
    """A case in two versions."""

    case: CaseSummary
    before: CaseSummary | None
    change: float | None
    """The second score minus the first; None if one is missing."""


@attrs.frozen(kw_only=True)
class Comparison:
    """A version compared with another one, case by case."""

    first: VersionSummary
    second: VersionSummary
    score: Interval | None
    """The difference of scores; None without a pair."""
    cost: Interval | None
    """The relative change of the cost: -0.4 is 40 % less."""
    seconds: Interval | None
    changes: Sequence[CaseChange]
    """All cases of the second version, the largest change first."""
    passed: tuple[int, int] | None
    """How many cases passed only in the first, and only in the second version; None for scores that
    are numbers."""
    needed: int | None
    """How many pairs detect a difference of five points."""

    @property
    def verdict(self) -> Verdict:
        """Better or worse only if the interval leaves out zero."""
        if self.score is None or not self.score.is_decided:
            return "no difference seen"
        return "better" if self.score.value > 0 else "worse"

    @property
    def p_value(self) -> float | None:
        """The exact p value of McNemar for scores that pass or fail."""
        return None if self.passed is None else mcnemar(*self.passed)

    @property
    def sentence(self) -> str:
        """The result for people, such as "b is better (…) and 40 % cheaper (…)"."""
        if self.score is None:
            return "No case has a score in both versions: there is nothing to compare."
        interval = (
            f"{self.score.value:+.2f}, {LEVEL * 100:.0f} % interval"
            f" {self.score.low:+.2f} … {self.score.high:+.2f}"
        )
        name, pairs = self.second.name, self.score.pairs
        cost = _change_text(self.cost, "cheaper", "more expensive")
        time = _change_text(self.seconds, "faster", "slower")
        others = "".join(f" and {it}" for it in (cost, time) if it)
        if self.verdict != "no difference seen":
            return f"{name} is {self.verdict} ({interval}, {_count(pairs, 'pair')}){others}."
        sentence = f"{name}: no difference seen with {_count(pairs, 'pair')} ({interval})"
        if pairs < MIN_PAIRS:
            sentence += f"; fewer than {MIN_PAIRS} pairs decide nothing"
        elif self.needed is not None and self.needed > pairs:
            power = f"power {POWER * 100:.0f} %"
            sentence += f"; detecting {EFFECT * 100:.0f} points needs {self.needed:,} ({power})"
        return f"{sentence}." + (f" It is{others.removeprefix(' and')}." if others else "")


def compare_versions(
    first: VersionSummary, second: VersionSummary, *, level: float = LEVEL
) -> Comparison:
    """Compare two versions by the cases that both have."""
    scores = _pairs(first, second, "score", whole := _whole(first, second))
    changes = [
        CaseChange(
            case=case,
            before=first.cases.get(key),
            change=_difference(first.cases.get(key), case, second.score),
        )
        for key, case in second.cases.items()
    ]
    # An error is the largest change of all.
    changes.sort(key=lambda it: -2.0 if it.case.errors else -abs(it.change or 0.0))
    return Comparison(
        first=first,
        second=second,
        score=score_interval(first, second, level=level),
        cost=_relative(_pairs(first, second, "cost", second.cases), level),
        seconds=_relative(_slow(_pairs(first, second, "seconds", second.cases)), level),
        changes=changes,
        passed=_passed(first, second, whole),
        needed=pairs_needed([b - a for a, b in scores], EFFECT),
    )


def _slow(pairs: list[Pair]) -> list[Pair]:
    """Return the times of pairs, unless all are so short that the load of the machine decides."""
    return pairs if any(max(pair) >= QUICK_SECONDS for pair in pairs) else []


def score_interval(
    first: VersionSummary, second: VersionSummary, *, level: float = LEVEL
) -> Interval | None:
    """Return the difference of scores over the cases without an error; None without a pair."""
    scores = _pairs(first, second, "score", _whole(first, second))
    return paired_interval(scores, level=level) if scores else None


def _whole(first: VersionSummary, second: VersionSummary) -> list[str]:
    """Return the cases that both versions have without an error."""
    return [
        key
        for key, case in second.cases.items()
        if not case.errors and key in first.cases and not first.cases[key].errors
    ]


def _pairs(
    first: VersionSummary, second: VersionSummary, measure: str, keys: Iterable[str]
) -> list[Pair]:
    found: list[Pair] = []
    for key in keys:
        if key in first.cases:
            a = first.cases[key].mean(measure, first.score)
            b = second.cases[key].mean(measure, second.score)
            if a is not None and b is not None:
                found.append((a, b))
    return found


def _relative(pairs: Sequence[Pair], level: float) -> Interval | None:
    if not pairs or not sum(a for a, _ in pairs):
        return None
    return paired_interval(pairs, relative_change, level=level)


def _difference(before: CaseSummary | None, case: CaseSummary, score: str) -> float | None:
    if before is None:
        return None
    was, now = before.mean("score", score), case.mean("score", score)
    return None if was is None or now is None else now - was


def _passed(
    first: VersionSummary, second: VersionSummary, keys: Iterable[str]
) -> tuple[int, int] | None:
    only_first = only_second = 0
    for key in keys:
        was, now = first.cases[key].passes(first.score), second.cases[key].passes(second.score)
        if was is None or now is None:
            return None
        only_first += was and not now
        only_second += now and not was
    return only_first, only_second


def _change_text(interval: Interval | None, less: str, more: str) -> str:
    """Return a relative change that is clear, such as "40 % cheaper (38 … 42 %)"."""
    if interval is None or not interval.is_decided or abs(interval.value) < 0.005:
        return ""
    value, ends = abs(interval.value), sorted((abs(interval.low), abs(interval.high)))
    word = less if interval.value < 0 else more
    return f"{value * 100:.0f} % {word} ({ends[0] * 100:.0f} … {ends[1] * 100:.0f} %)"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
