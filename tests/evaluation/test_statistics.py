"""The statistics, compared with values that scipy 1.17.1 has computed from the same pairs:

    bootstrap((A, B), statistic, paired=True, method="percentile", n_resamples=200_000, rng=1)
    binomtest(first, first + second).pvalue
    ((norm.ppf(.975) + norm.ppf(.8)) * (B - A).std(ddof=1) / .05) ** 2
    numpy.quantile([1, 2, 4, 8, 16], [.025, .5, .9])

scipy and numpy are 50 MB, so the tests do not install them.
"""

import pytest

from orchestrator.products.evaluation.statistics import (
    mcnemar,
    paired_interval,
    pairs_needed,
    quantile,
    relative_change,
)

A: tuple[float, ...] = (0.55, 0.40, 0.85, 0.60, 0.60, 0.70, 0.80, 0.70, 0.65, 0.75)
A += (0.70, 1.0, 0.5, 0.9, 0.3, 0.62, 0.71, 0.44, 0.93, 0.58)
B: tuple[float, ...] = (0.90, 0.75, 0.55, 0.85, 0.85, 0.90, 0.60, 0.90, 0.80, 0.90)
B += (0.85, 0.9, 0.7, 0.95, 0.35, 0.60, 0.88, 0.61, 0.90, 0.79)
PAIRS = list(zip(A, B, strict=True))


def test_the_interval_of_the_mean_difference_is_scipys() -> None:
    found = paired_interval(PAIRS)
    assert found.value == pytest.approx(0.1125)
    assert (found.low, found.high) == pytest.approx((0.0360, 0.1815), abs=0.004)
    assert found.is_decided
    wider = paired_interval(PAIRS, level=0.99)
    assert (wider.low, wider.high) == pytest.approx((0.0100, 0.2010), abs=0.006)


def test_the_interval_of_the_relative_change_is_scipys() -> None:
    found = paired_interval(PAIRS, relative_change)
    assert found.value == pytest.approx(0.16943, abs=1e-5)
    assert (found.low, found.high) == pytest.approx((0.0508, 0.2966), abs=0.006)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        (0, 0, 1.0),
        (1, 5, 0.21875),
        (5, 1, 0.21875),
        (3, 3, 1.0),
        (0, 9, 0.00390625),
        (2, 12, 0.012939453125),
        (40, 60, 0.05688793364098089),
    ],
)
def test_the_p_value_of_mcnemar_is_scipys(first: int, second: int, p: float) -> None:
    assert mcnemar(first, second) == pytest.approx(p, rel=1e-12)


def test_the_number_of_needed_pairs_is_scipys() -> None:
    assert pairs_needed([b - a for a, b in PAIRS], 0.05) == 92  # 91.307
    assert pairs_needed([0.0, 0.0, 0.0], 0.05) is None
    assert pairs_needed([0.3], 0.05) is None


def test_quantiles_are_interpolated_like_numpys() -> None:
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert [quantile(values, it) for it in (0.025, 0.5, 0.9)] == pytest.approx([1.1, 4.0, 12.8])


def test_the_same_pairs_have_the_same_interval() -> None:
    assert paired_interval(PAIRS) == paired_interval(PAIRS)


def test_too_few_pairs_decide_nothing() -> None:
    assert not paired_interval([(0.0, 1.0)] * 5).is_decided
    assert paired_interval([(0.0, 1.0)] * 6).is_decided
