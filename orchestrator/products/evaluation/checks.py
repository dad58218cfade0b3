"""The checks of an evaluation: `score>=0.8`, or relative to the baseline, `cost<=1.1x`."""

import operator
import re
from typing import Final

import attrs

from orchestrator.agents import DefinitionError
from orchestrator.products.evaluation.summary import VersionSummary

_CHECK: Final = re.compile(r"\s*([A-Za-z_][\w -]*?)\s*(<=|>=|==|<|>)\s*(-?\d+(?:\.\d+)?)(x?)\s*")
_COMPARE: Final = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


@attrs.frozen(kw_only=True)
class Check:
    """A bound of the mean of a measure."""

    text: str
    measure: str
    sign: str
    bound: float
    is_relative: bool
    """Whether the bound is a multiple of the baseline's mean."""

    def result(self, version: VersionSummary, baseline: VersionSummary | None) -> tuple[bool, str]:
        """Return whether a version passes, and a sentence about it."""
        value = _mean(version, self.measure)
        bound, of = self.bound, ""
        if value is None:
            return False, f"{self.text}: no trial has {self.measure!r}"
        if self.is_relative:
            base = None if baseline is None else _mean(baseline, self.measure)
            if base is None:
                return False, f"{self.text}: the baseline has no {self.measure!r}"
            bound, of = self.bound * base, f" ({base:.4g} in the baseline)"
        passes = bool(_COMPARE[self.sign](value, bound))
        verb = "holds" if passes else "fails"
        return passes, f"{self.text} {verb}: {self.measure} is {value:.4g}{of}"


def parse_check(text: str) -> Check:
    """Return the check that a text describes, or raise `DefinitionError`."""
    if (found := _CHECK.fullmatch(text)) is None:
        raise DefinitionError(
            f"the check {text!r} is not MEASURE, a sign and a number: write 'score>=0.8', or"
            " 'cost<=1.1x' for 1.1 times the baseline"
        )
    measure, sign, bound, relative = found.groups()
    return Check(
        text=text.strip(),
        measure=measure,
        sign=sign,
        bound=float(bound),
        is_relative=bool(relative),
    )


def _mean(version: VersionSummary, measure: str) -> float | None:
    return float(version.errors) if measure == "errors" else version.mean(measure)
