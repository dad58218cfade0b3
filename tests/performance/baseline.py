"""The baseline of the gate: the committed figures of each Python, and a comparison with them."""

import json
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.performance.counting import Calls

_HERE: Final = Path(__file__).parent
FIGURES: Final = _HERE / "baseline.json"
FUNCTIONS: Final = _HERE / "functions.json"
"""The counts of each function, to name the functions that grew. They decide nothing."""
PYTHON: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBRARIES: Final = ("trio", "attrs", "msgspec", "outcome", "starlette", "h11")
EXPLAIN: Final = (
    "If the cost is worth it, explain it in benchmarks/README.md and run "
    "`python -m tests.performance --write`."
)

_NAMED: Final = (
    "a child of a fan-out",
    "one joined delegation",
    "a run with a tool",
    "a chat completion",
    "a streamed word",
)
"""The workloads with stored functions: together they call everything that the others call."""

Figures = dict[str, dict[str, float]]
"""Figures by workload, then by unit."""

GOALS: Final[dict[str, Figures]] = {
    "calls": {"a child of a fan-out": {"python": 170}},
    "memory": {"a waiting child": {"bytes": 6_000}},
    "growth": {},
    "steps": {},
    "imports": {},
    "instructions": {
        "one joined delegation": {"times raw trio": 4.8},
        "a fan-out of 100": {"times raw trio": 5},
        "a chain of 20": {"times raw trio": 4.5},
        "a run alone": {"million instructions": 0.45},
    },
}

_SLACK: Final = {
    # A difference of two runs is divided by the repetitions: its last digits vary.
    "calls": 0.5,
    "growth": 0.02,
}
_SHARE: Final = {
    # Threads, sockets and the allocator vary a little.
    "a turn in a file": 0.03,
    "a chat completion": 0.01,
    "an empty route": 0.01,
    "the first word": 0.02,
    "the first word of an empty route": 0.02,
    "a streamed word": 0.02,
    "a streamed word of an empty route": 0.01,
    "a waiting child": 0.02,
    "a fan-out of 2,000": 0.02,
}


def libraries() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


def read_baseline() -> dict[str, Any]:
    """Return the baseline of this Python, which is empty if it was never measured."""
    stored: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    return dict(stored.get(PYTHON, {}))


def why_not_comparable(kind: str) -> str | None:
    """Return why this process has nothing to compare with, if so."""
    stored = read_baseline()
    if kind not in stored:
        return f"tests/performance/baseline.json has no {kind} for Python {PYTHON}"
    for name, there in stored["libraries"].items():
        here = version(name)
        if here != there:
            return f"the baseline was measured with {name} {there}, and here is {here}"
    return None


def write(kind: str, figures: Figures, functions: dict[str, Calls] | None = None) -> None:
    """Store the figures of this Python as its baseline."""
    stored: dict[str, Any] = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    mine = stored.setdefault(PYTHON, {})
    mine["libraries"] = libraries()
    mine[kind] = {
        workload: {unit: round(number, 2) for unit, number in numbers.items()}
        for workload, numbers in figures.items()
    }
    FIGURES.write_text(json.dumps(stored, indent=2) + "\n")
    if functions is None:
        return
    known: dict[str, Any] = json.loads(FUNCTIONS.read_text()) if FUNCTIONS.exists() else {}
    known[PYTHON] = {
        workload: {
            unit: {name: round(count, 2) for name, count in sorted(counts.items())}
            for unit, counts in (("python", calls.python), ("c", calls.c))
        }
        for workload, calls in functions.items()
        if workload in _NAMED
    }
    FUNCTIONS.write_text(_one_line_for_each_workload(known))


def _one_line_for_each_workload(known: dict[str, Any]) -> str:
    versions = [
        f'"{python}": {{\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(it)}" for name, it in workloads.items())
        + "\n}"
        for python, workloads in sorted(known.items())
    ]
    return "{\n" + ",\n".join(versions) + "\n}\n"


def allowed(kind: str, workload: str, stored: float) -> float:
    """Return the largest figure that passes."""
    if kind == "growth":
        return max(1.10, stored + _SLACK["growth"])
    if kind == "instructions":
        return stored * 1.02
    return stored * (1 + _SHARE.get(workload, 0)) + _SLACK.get(kind, 0)


def problems(kind: str, figures: Figures, functions: dict[str, Calls] | None = None) -> list[str]:
    """Return a sentence for each figure above the baseline."""
    stored: Figures = read_baseline()[kind]
    found: list[str] = []
    for workload, numbers in figures.items():
        for unit, number in numbers.items():
            before = stored.get(workload, {}).get(unit)
            if before is None:
                found.append(f"{workload}: no baseline for {unit}, which is {number:,.2f} now.")
            elif number > allowed(kind, workload, before):
                line = f"{workload}: {number:,.2f} {unit}, and the baseline has {before:,.2f}."
                if functions is not None:
                    line += _grown(workload, unit, functions[workload])
                found.append(line)
    return found


def advice(kind: str, figures: Figures) -> str | None:
    """Return a hint if every figure is at most the baseline, and one is clearly lower."""
    stored: Figures = read_baseline().get(kind, {})
    lower = [
        workload
        for workload, numbers in figures.items()
        if any(
            number < 0.98 * stored[workload][unit]
            for unit, number in numbers.items()
            if unit in stored.get(workload, {})
        )
    ]
    if not lower:
        return None
    return (
        f"Lower than the baseline: {', '.join(lower)}. Keep it: python -m tests.performance --write"
    )


def _grown(workload: str, unit: str, calls: Calls) -> str:
    if not FUNCTIONS.exists():
        return ""
    known: Any = json.loads(FUNCTIONS.read_text())
    before = known.get(PYTHON, {}).get(workload, {}).get(unit)
    if before is None:
        return ""
    now: Counter[str] = calls.python if unit == "python" else calls.c
    growth = sorted(((now[it] - before.get(it, 0), it) for it in now), reverse=True)[:8]
    lines = [
        f"    {before.get(it, 0):8.2f} → {now[it]:8.2f}  {it}" for more, it in growth if more > 0.01
    ]
    return "\n  Functions that grew most:\n" + "\n".join(lines)


def print_table(kind: str, figures: Figures) -> None:
    """Print figures beside the baseline and the goals."""
    stored: Figures = read_baseline().get(kind, {})
    print(f"\n{kind:44s}{'now':>24s}{'baseline':>12s}{'goal':>12s}")
    for workload, numbers in figures.items():
        for unit, number in numbers.items():
            before = stored.get(workload, {}).get(unit)
            goal = GOALS[kind].get(workload, {}).get(unit)
            columns = [f"{it:,.2f}" if it is not None else "" for it in (before, goal)]
            name = f"{workload}, {unit}"
            print(f"{name:52s}{number:16,.2f}{columns[0]:>12s}{columns[1]:>12s}")
    if hint := advice(kind, figures):
        print(hint)
